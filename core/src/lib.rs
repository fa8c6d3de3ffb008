//! keymill hands out identifiers at memory speed: database-backed segments, snowflakes and serial numbers.
//!
//! Floors, each of which names only itself and what is under it:
//!
//! ```text
//! 4  api                                    the waist: every binding translates these verbs and nothing else
//! 3  mill config keeper events metrics      assembly, and the one thread
//! 2  store                                  all I/O
//! 1  segment snowflake::generator keeper::plan   state machines; no I/O, time is passed in
//! 0  error sync time snowflake::layout serial    pure functions and types
//! ```

pub mod error;
pub mod serial;
pub mod snowflake;
pub mod store;
pub mod time;

mod sync;
