//! What a mill tells its operators: events for a log, and counters for metrics.

pub(crate) mod events;
pub(crate) mod mill_counters;
