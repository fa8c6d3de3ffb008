//! Events: what an operator would want to read in a log. Pulled, never pushed, so no foreign code runs here. (floor 3)

use std::time::SystemTime;

use crossbeam::queue::ArrayQueue;

use crate::reservation::{Fault, FaultKind};

/// How many events are kept; the oldest make room.
const KEPT: usize = 256;

/// Something that happened to a mill.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// When.
    pub at: SystemTime,
    /// What kind, a fixed word: `refill_failed`, `went_backwards`, `store_warning`, `layout_ending`, `revived`.
    pub kind: &'static str,
    /// One line for a person. Never holds a secret.
    pub message: String,
}

impl Event {
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Event { at: SystemTime::now(), kind, message: message.into() }
    }

    pub(crate) fn refusal(fault: &Fault) -> Self {
        let kind = match fault.kind {
            FaultKind::WentBackwards => "went_backwards",
            FaultKind::Unsafe => "store_unsafe",
            FaultKind::Taken => "worker_taken",
            _ => "refill_failed",
        };
        Event::new(kind, fault.message.clone())
    }
}

/// The events of one mill.
#[derive(Debug)]
pub(crate) struct Events {
    kept: ArrayQueue<Event>,
}

impl Events {
    pub(crate) fn new() -> Self {
        Events { kept: ArrayQueue::new(KEPT) }
    }

    pub(crate) fn push(&self, event: Event) {
        self.kept.force_push(event);
    }

    pub(crate) fn drain(&self) -> Vec<Event> {
        std::iter::from_fn(|| self.kept.pop()).collect()
    }
}
