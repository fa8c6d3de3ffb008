//! The C ABI: each function checks what C may get wrong, calls one verb of the core, and answers with a code.
//!
//! * `error`: `enter`, which every function passes, and the thread's last message.
//! * `handle`: what C holds; the only place where pointers change their type.
//! * `text`: strings in, outputs out.
//! * `mill`, `source`, `business`, `cursor`, `router`, `numbers`, `spec`, `version`: the verbs.
//!
//! Doc comments of `extern "C"` functions are C documentation: `tests/header.rs` renders them into `include/keymill.h`.
//! The conventions page at its head and the inline cursor at its end stand in `cbindgen.toml`.

#![expect(non_camel_case_types, reason = "C's names")]

#[cfg(panic = "abort")]
compile_error!(
    "build with panic=unwind: a panic must become KM_INTERNAL, not the end of the caller's process"
);

mod business;
mod cursor;
mod error;
mod handle;
mod mill;
mod numbers;
mod router;
mod source;
mod spec;
mod text;
mod version;

pub use business::km_wide;
pub use cursor::km_cursor;
pub use error::km_code;
pub use handle::{km_mill, km_numbers, km_router, km_source};
pub use router::km_route;
pub use source::km_parts;
