//! Snowflakes: ids made of time, a worker and a sequence, without a request per id.
//!
//! * A [`Layout`] says which bits mean what, and when the time field is over. [`scatter`] spreads the ids of one moment over the
//!   regions of a table. Both are pure.
//! * The generator hands out the positions of one worker. It reads clocks through the vDSO and does no I/O: the keeper gives it
//!   the worker id and the stored high-water mark.
//!
//! Guarantees, the most important first:
//!
//! 1. No id twice, by one process or by a process and its successor on the same worker id.
//! 2. Ids of one generator rise.
//! 3. The time in an id leads the wall clock by at most `max_lead`, and follows it as closely as the clock is cheap to read.
//! 4. Nothing wraps: the end of the time field is an error with a date.
//! 5. Low bits and last digits are even at any rate, where the layout ends with the sequence.
//!
//! The scheme is Twitter's (<https://github.com/twitter-archive/snowflake>), counting ahead of the clock is
//! uid-generator's (<https://github.com/baidu/uid-generator>), one packed word is ferroid's and many others'.

pub(crate) mod generator;
mod snowflake_action;
pub(crate) mod snowflake_source;
/// Which bits of a snowflake mean what: time, worker, sequence, and the day on which the time field is over.
pub mod layout {
    pub use crate::layout::{DEFAULT_EPOCH, Fields, Layout, PRESETS, Window, rfc3339};
}
/// Scattered ids: forms that spread the ids of one moment over several regions of a table.
pub mod scatter {
    pub use crate::layout::scatter::{MOST_DIGITS, Scatter, move_digits, restore_digits};
}

#[cfg(all(test, loom))]
mod loom;

use generator::{Generator, Refusal, Why};
pub use layout::{Fields, Layout};
pub use scatter::Scatter;
pub(crate) use snowflake_action::{SnowflakeAction, SnowflakeView, WorkerView};
pub(crate) use snowflake_source::SnowflakeSource;
