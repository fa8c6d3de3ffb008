//! Segments (号段): ranges that a store has reserved for this process, and how callers count through them.
//!
//! * A number is handed out at most once: the cell accepts a number only if its segment is still the current segment since the count began.
//! * Numbers of one source rise over all threads of the process, because segments are published in rising order and
//!   there is one counter.
//! * Gaps are normal: a dropped segment, a crash and a count that lost a race all leave unused numbers.

mod block;
mod buffer;
mod cell;
pub(crate) mod cursor;
mod ends;
#[cfg(all(test, loom))]
mod loom;
mod segment_action;
mod segment_source;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;

pub use block::LastBlock;
pub use buffer::TakenRange;
pub(crate) use buffer::{Buffer, Snapshot, TakeError};
pub(crate) use cell::Miss;
pub(crate) use segment_action::SegmentAction;
pub use segment_source::SegmentSource;

use crate::serial::Prefix;

/// `[lo, hi)`, reserved for this process alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// First number.
    pub(crate) lo: u64,
    /// One past the last number.
    pub(crate) hi: u64,
    /// The period it was reserved for; 0 where the source has none.
    pub(crate) period: u64,
    /// When it was reserved, on the boot clock.
    pub(crate) born_ms: u64,
    /// The rendered date part; empty where the source has none.
    pub(crate) prefix: Prefix,
}

impl Segment {
    pub(crate) fn len(&self) -> u64 {
        self.hi.saturating_sub(self.lo)
    }
}
