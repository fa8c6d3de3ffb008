//! What a mill tells its operators: events for a log, and counters for metrics.

pub(crate) mod counters;
pub(crate) mod events;
