//! What the planner decides for a source that counts through segments.

use super::Segment;

/// What a source of segments has to do.
#[derive(Clone, Debug)]
pub(crate) enum SegmentAction {
    /// Put this segment into the buffer.
    Publish(Segment),
    /// Keep this segment until its period begins.
    KeepAhead(Segment),
    /// Drop the segments of every other period than this one, and begin with those kept for it.
    DropOtherPeriods(u64),
    /// The numbers in memory end at this wall time, and this long after they were reserved.
    Ends { wall_ms: Option<i64>, ttl_ms: Option<u64> },
    /// Drop segments that were reserved at or before this boot time.
    DropOlder(u64),
    /// Wake the keeper when fewer than this many numbers are left.
    WakeBelow(u64),
}
