//! Segments (号段): ranges that a store has reserved for this process, and how callers count through them.
//!
//! * A number is handed out at most once: the cell accepts a number only if the segment it was counted from is still
//!   the one that was current when the count began.
//! * Numbers of one source rise over all threads of the process, because segments are published in rising order and
//!   there is one counter.
//! * Gaps are normal: a dropped segment, a crash, a count that lost a race all leave numbers that nobody gets.

mod buffer;
mod cell;
pub(crate) mod cursor;
mod expiry;
#[cfg(all(test, loom))]
mod loom;
mod range;
mod source;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;

pub use buffer::Taken;
pub(crate) use buffer::{Buffer, Snapshot, TakeError};
pub(crate) use cell::Miss;
pub(crate) use range::Segment;
pub use source::SegmentSource;
