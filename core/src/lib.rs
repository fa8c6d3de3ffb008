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
//! 4  api binding               every language translates these verbs and nothing else
//! 3  engine keeper config      assembly, and the one thread
//! 2  store                     all I/O
//! 1  planner segment snowflake   state machines; no I/O, time is passed in
//! 0  base time serial snowflake::layout   pure functions and types
//! ```

mod api;
mod base;
#[doc(hidden)]
pub mod binding;
mod config;
mod engine;
#[doc(hidden)]
pub mod keeper;
#[doc(hidden)]
pub mod planner;
mod segment;
pub mod serial;
/// What `tests/simulation` drives and no other program should: sources without threads, specs without a mill.
#[doc(hidden)]
pub mod simulation {
    pub use crate::base::spec::{Kind, Order, Rules, SnowflakeSpec, Spec};
    pub use crate::base::waker::ReadyQueue;
    pub use crate::config::MillConfig;
    pub use crate::segment::{SegmentSource, Taken};
    pub use crate::snowflake::SnowflakeSource;
}
pub mod snowflake;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod time;

pub use api::{Handle, Iter, Kind, Mill, OldRow, Parts, Source, Standing, Table, VERSION};
pub use base::error::{Code, Error, Result};
/// What the documentation says of options.
#[doc(hidden)]
pub use config::options;
pub use config::{DEFAULT_MILL, MILL_VARIABLE, default_mill, spec_string};
pub use engine::events::Event;
pub use engine::metrics::{Latency, Stats};
pub use serial::SerialPattern;
pub use snowflake::Layout;
pub use store::{Facts, Import, Row};
