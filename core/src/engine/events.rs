//! Events, for an operator's log. The program pulls them, so no code of the program runs here.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam::queue::ArrayQueue;

use crate::base::error::printable;
use crate::base::reservation::{Fault, FaultKind};
use crate::snowflake::layout::rfc3339;

/// How many events are kept; the oldest make room.
const KEPT: usize = 256;

/// Something that happened to a mill.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// When.
    pub at: SystemTime,
    /// Its kind, one of these words: `refill_failed`, `went_backwards`, `store_warning`, `store_created`, `layout_ending`, `revived`,
    /// `driver_panicked`, `keeper_restarted`.
    pub kind: &'static str,
    /// One line for a person. Never holds a secret.
    pub message: String,
}

impl Event {
    pub(crate) fn new(kind: &'static str, message: impl Into<String>) -> Self {
        Event { at: SystemTime::now(), kind, message: printable(message.into()) }
    }

    pub(crate) fn refusal(fault: &Fault) -> Self {
        let kind = match fault.kind {
            FaultKind::WentBackwards => "went_backwards",
            FaultKind::Unsafe => "store_unsafe",
            FaultKind::Taken => "worker_taken",
            _ => "refill_failed",
        };
        Event::new(kind, fault.to_string())
    }
}

/// One line: `2026-11-21T08:30:00.123Z refill_failed: …`.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
        write!(f, "{} {}: {}", rfc3339(ms), self.kind, self.message)
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

    /// Takes the oldest.
    pub(crate) fn pop(&self) -> Option<Event> {
        self.kept.pop()
    }

    pub(crate) fn drain(&self) -> Vec<Event> {
        std::iter::from_fn(|| self.pop()).collect()
    }
}
