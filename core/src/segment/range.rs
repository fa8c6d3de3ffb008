//! A reserved range with what callers need to know about it.

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
