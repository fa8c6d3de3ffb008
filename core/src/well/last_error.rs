//! Why there is nothing: the refusal that the keeper posted, and what a caller is told of it.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::base::error::{Code, Error};

use super::{ROUND_TRIP, Spring, Well};

/// Why there is nothing right now, as the keeper posted it.
#[derive(Clone, Debug)]
pub(super) struct PostedError {
    pub(super) error: Error,
    /// When it was posted, on the wall clock.
    pub(super) wall_ms: i64,
    /// When the keeper tries again, on the mill's boot clock: the one the keeper goes by, which may be a manual one.
    pub(super) until_ms: u64,
    /// Counts refusals, so that a caller knows one that came after it asked.
    pub(super) count: u64,
}

#[derive(Default)]
pub(super) struct LastError {
    pub(super) posted: Option<PostedError>,
    pub(super) count: u64,
}

impl Well {
    pub(super) fn lock_last_error(&self) -> MutexGuard<'_, LastError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a caller who waits for `enough` numbers gives up now, and with what.
    pub(super) fn give_up(
        &self,
        last_error: &LastError,
        before: u64,
        enough: u64,
        now: Instant,
        give_up_at: Instant,
    ) -> Option<Error> {
        if let Some(posted) = &last_error.posted {
            let again = self.retry_in(posted);
            let outage = posted.error.code == Code::StoreUnavailable;
            let fresh = posted.count > before || !again.is_zero();
            // An outage may end within the deadline; a refusal stands until the keeper's next try.
            let hopeless = if outage { now + again >= give_up_at } else { fresh };
            if hopeless || now >= give_up_at {
                return Some(self.error_for(posted, again, enough));
            }
        } else if now >= give_up_at {
            return Some(self.deadline_passed());
        }
        None
    }

    /// A refusal as it is told to a caller who needs `enough` numbers.
    fn error_for(&self, posted: &PostedError, again: Duration, enough: u64) -> Error {
        let mut error = posted.error.clone();
        error.retry_after = match error.code {
            Code::Exhausted | Code::NumberOverflow => {
                if let Spring::Numbers(buffer) = &self.spring {
                    let left = buffer.snapshot().left;
                    if (1..enough).contains(&left) {
                        error.message = format!(
                            "`{}` has {left} more numbers, {enough} more were asked for; ask for fewer at a time: {}",
                            self.spec.label, error.message
                        );
                    }
                }
                self.until_next_period(posted, again)
            }
            _ => Some(again.max(ROUND_TRIP)),
        };
        error
    }

    /// How long until the period is over whose numbers ended, and they begin anew; `None` where they never do.
    fn until_next_period(&self, posted: &PostedError, again: Duration) -> Option<Duration> {
        let pattern = self.spec.pattern()?;
        let end = pattern.period_end_ms(pattern.period_at(posted.wall_ms))?;
        let left = Duration::from_millis(end.saturating_sub(self.clock.wall_ms()).max(0) as u64);
        Some(left.max(again).max(ROUND_TRIP))
    }

    /// How long a refusal stands from now.
    fn retry_in(&self, posted: &PostedError) -> Duration {
        Duration::from_millis(posted.until_ms.saturating_sub(self.clock.boot_ms()))
    }

    pub(super) fn deadline_passed(&self) -> Error {
        Error::new(
            Code::Deadline,
            format!(
                "no number for `{}` within {} ms: the store has not answered yet; try again, or give the source a longer deadline=",
                self.spec.label,
                self.spec.deadline.as_millis()
            ),
        )
        .after(Duration::from_millis(50))
    }

    pub(super) fn closed(&self) -> Error {
        Error::new(Code::Closed, format!("the mill of `{}` was closed", self.spec.label))
    }

    pub(super) fn not_ready(&self, enough: u64) -> Error {
        let last_error = self.lock_last_error();
        match last_error.posted.as_ref().map(|posted| (posted, self.retry_in(posted))) {
            Some((posted, again)) if !again.is_zero() => self.error_for(posted, again, enough),
            _ => Error::new(Code::NotReady, format!("no number of `{}` is in memory yet", self.spec.label))
                .after(ROUND_TRIP),
        }
    }

    /// The refusal callers are told now, if one stands.
    pub(crate) fn posted_error(&self) -> Option<Error> {
        self.lock_last_error().posted.as_ref().map(|r| r.error.clone())
    }
}
