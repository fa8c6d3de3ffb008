//! keymill hands out identifiers at memory speed: database-backed segments, snowflakes and serial numbers.
//!
//! ```
//! let mill = keymill::Mill::open("memory:")?;
//! let orders = mill.source("segment:orders")?;
//! let id: u64 = orders.next()?;
//! let serials = mill.source("serial:cust_info/custid?number=000000&zone=UTC")?;
//! let text: String = serials.next_text()?;           // 20261120000001
//! # assert_eq!((id, text.len()), (1, 14));
//! # Ok::<(), keymill::Error>(())
//! ```
//!
//! Floors, each of which names only itself and what is under it:
//!
//! ```text
//! 4  api                                     the waist: every binding translates these verbs and nothing else
//! 3  mill config keeper::act events metrics  assembly, and the one thread
//! 2  store                                   all I/O
//! 1  segment block bell well spec snowflake::generator keeper::plan   state machines; no I/O, time is passed in
//! 0  error random sync thread revocation reservation stride time snowflake::layout serial  pure functions and types
//! ```

mod api;
mod bell;
mod block;
mod config;
mod error;
mod events;
#[doc(hidden)]
pub mod keeper;
mod metrics;
mod mill;
mod random;
mod reservation;
mod revocation;
mod segment;
pub mod serial;
pub mod snowflake;
mod spec;
mod stride;
/// What `tests/simulation` drives that nobody else should: wells without threads, specs without a mill.
#[doc(hidden)]
pub mod simulation {
    pub use crate::bell::Belfry;
    pub use crate::config::MillConfig;
    pub use crate::segment::{Rules, Taken};
    pub use crate::spec::{Body, Order, Spec};
    pub use crate::well::Well;
}
#[doc(hidden)]
pub mod store;
mod sync;
/// How the bindings start a thread of their own.
#[doc(hidden)]
pub mod thread;
#[doc(hidden)]
pub mod time;
mod well;

pub use api::{Handle, Iter, Kind, Lease, Mill, OldRow, Parts, Pending, Source, Standing, Table, VERSION};
pub use config::{DEFAULT_MILL, MILL_VARIABLE, default_mill, spec_string};
#[doc(hidden)]
pub use error::printable;
pub use error::{Code, Error, Result};
pub use events::Event;
pub use metrics::{Latency, Stats};
pub use serial::SerialPattern;
pub use snowflake::Layout;
pub use store::{Facts, Handover, Row};
