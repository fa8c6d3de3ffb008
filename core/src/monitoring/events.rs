//! Events, for an operator's log. The program pulls them, so no code of the program runs here.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam::queue::ArrayQueue;

use crate::error::printable;
use crate::layout::rfc3339;
use crate::request::reservation::{Fault, FaultKind};

/// How many events are kept; the oldest make room.
const KEPT: usize = 256;

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A reservation failed.
    RefillFailed,
    /// The store holds less than this process has seen.
    WentBackwards,
    /// A setting of the store loses commits, so nothing is reserved.
    StoreUnsafe,
    /// A warning about the settings of the store; the mill goes on.
    StoreWarning,
    /// A new SQLite file was made.
    StoreCreated,
    /// `store_of` made the mill's string from the application's settings, and these have names that a store does not need.
    SettingsIgnored,
    /// Another mill uses this snowflake's worker.
    WorkerTaken,
    /// A snowflake's layout ends soon.
    LayoutEnding,
    /// A serial with `zone=local` was opened: which zone the program has.
    LocalZone,
    /// A forked child started with numbers and connections of its own.
    Revived,
    /// The store's driver panicked; the mill went on.
    DriverPanicked,
    /// The keeper met a defect in keymill and went on.
    KeeperRestarted,
    /// A router took over a new table from the store.
    RouteLoaded,
    /// A router could not take over the store's table, and keeps its own.
    RouteRefused,
    /// A router could not renew the row that says which version of its table this process runs.
    ReaderNotRenewed,
}

impl EventKind {
    /// The name that every language prints: `refill_failed`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            EventKind::RefillFailed => "refill_failed",
            EventKind::WentBackwards => "went_backwards",
            EventKind::StoreUnsafe => "store_unsafe",
            EventKind::StoreWarning => "store_warning",
            EventKind::StoreCreated => "store_created",
            EventKind::SettingsIgnored => "settings_ignored",
            EventKind::WorkerTaken => "worker_taken",
            EventKind::LayoutEnding => "layout_ending",
            EventKind::LocalZone => "local_zone",
            EventKind::Revived => "revived",
            EventKind::DriverPanicked => "driver_panicked",
            EventKind::KeeperRestarted => "keeper_restarted",
            EventKind::RouteLoaded => "route_loaded",
            EventKind::RouteRefused => "route_refused",
            EventKind::ReaderNotRenewed => "reader_not_renewed",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that happened to a mill.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// When.
    pub at: SystemTime,
    /// What it is about.
    pub kind: EventKind,
    /// One line for a person. Never holds a secret.
    pub message: String,
}

impl Event {
    pub(crate) fn new(kind: EventKind, message: impl Into<String>) -> Self {
        Event { at: SystemTime::now(), kind, message: printable(message.into()) }
    }

    pub(crate) fn refusal(fault: &Fault) -> Self {
        let kind = match fault.kind {
            FaultKind::WentBackwards => EventKind::WentBackwards,
            FaultKind::Unsafe => EventKind::StoreUnsafe,
            FaultKind::Taken => EventKind::WorkerTaken,
            _ => EventKind::RefillFailed,
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
