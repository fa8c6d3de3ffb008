//! Why there is no id right now.

use std::fmt;

use crate::error::{Code, Error, Result};
pub use crate::spec::ClockBack;

/// How soon to ask again when the keeper must act, not the clock.
pub(super) const KEEPER_MS: u64 = 1;

impl ClockBack {
    /// Reads `borrow`, `wait` or `error`; `INVALID_CONFIG` otherwise.
    pub fn parse(text: &str) -> Result<ClockBack> {
        match text {
            "borrow" => Ok(ClockBack::Borrow),
            "wait" => Ok(ClockBack::Wait),
            "error" => Ok(ClockBack::Error),
            _ => {
                let shown: String = text.chars().take(40).collect();
                Err(Error::config(format!(
                    "clock_back={shown:?} is not known; valid are borrow, wait, error"
                )))
            }
        }
    }
}

/// Why there is no id. Small and without allocation, since a starved caller asks often;
/// [`Generator::explain`](super::Generator::explain) makes an [`Error`] of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The generator was closed.
    Closed,
    /// The worker id is no longer this process's own.
    LeaseLost,
    /// The lease of the worker id is over, and another one is asked for.
    Lapsed,
    /// The time field is over.
    LayoutEnded,
    /// Not now, but after this many milliseconds, for this reason.
    NotReady {
        /// What is waited for.
        why: Why,
        /// When to ask again.
        retry_after_ms: u64,
    },
    /// The wall clock is behind what was issued.
    ClockBehind {
        /// What the clock shows.
        wall_ms: i64,
        /// What it must show.
        needed_ms: i64,
    },
}

/// What a refused call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The keeper: the store's mark has not been read and raised yet.
    Start,
    /// The clock: counting already leads it by `max_lead`.
    Lead,
    /// The keeper: the next id leads the clock and the stored mark does not cover it.
    Mark,
    /// The clock: it stepped back and `clock_back=wait`.
    Clock,
}

impl Refusal {
    /// The code every language sees.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Refusal::Closed => Code::Closed,
            Refusal::LeaseLost | Refusal::Lapsed => Code::LeaseLost,
            Refusal::LayoutEnded => Code::LayoutEnded,
            Refusal::NotReady { .. } => Code::NotReady,
            Refusal::ClockBehind { .. } => Code::ClockBehind,
        }
    }

    /// When the call may succeed, where waiting helps.
    #[must_use]
    pub fn retry_after_ms(self) -> Option<u64> {
        match self {
            Refusal::NotReady { retry_after_ms, .. } => Some(retry_after_ms),
            Refusal::Lapsed => Some(KEEPER_MS),
            Refusal::ClockBehind { wall_ms, needed_ms } => Some(until(wall_ms, needed_ms)),
            Refusal::Closed | Refusal::LeaseLost | Refusal::LayoutEnded => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code().name())
    }
}

/// Milliseconds from one wall time to another, at least 1.
pub(super) fn until(wall_ms: i64, needed_ms: i64) -> u64 {
    needed_ms.saturating_sub(wall_ms).max(1).unsigned_abs()
}
