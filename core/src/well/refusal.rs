//! Why there is nothing: the refusal that the keeper posted, and what a caller is told of it.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::base::error::{Code, Error};

use super::{ROUND_TRIP, Spring, Well};

/// Why there is nothing right now, as the keeper posted it.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) error: Error,
    /// When it was posted, on the wall clock.
    pub(super) wall_ms: i64,
    /// When the keeper tries again, on the mill's boot clock: the one the keeper goes by, which may be a manual one.
    pub(super) until_ms: u64,
    /// Counts refusals, so that a caller knows one that came after it asked.
    pub(super) count: u64,
}

#[derive(Default)]
pub(super) struct Standing {
    pub(super) refusal: Option<Refusal>,
    pub(super) refusals: u64,
}

impl Well {
    pub(super) fn stand(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a caller who waits for `enough` numbers gives up now, and with what.
    pub(super) fn verdict(
        &self,
        standing: &Standing,
        before: u64,
        enough: u64,
        now: Instant,
        give_up_at: Instant,
    ) -> Option<Error> {
        if let Some(refusal) = &standing.refusal {
            let again = self.stands_for(refusal);
            let outage = refusal.error.code == Code::StoreUnavailable;
            let fresh = refusal.count > before || !again.is_zero();
            // An outage may end within the deadline; a refusal stands until the keeper's next try.
            let hopeless = if outage { now + again >= give_up_at } else { fresh };
            if hopeless || now >= give_up_at {
                return Some(self.told(refusal, again, enough));
            }
        } else if now >= give_up_at {
            return Some(self.deadline_passed());
        }
        None
    }

    /// A refusal as it is told to a caller who needs `enough` numbers.
    fn told(&self, refusal: &Refusal, again: Duration, enough: u64) -> Error {
        let mut error = refusal.error.clone();
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
                self.until_next_period(refusal, again)
            }
            _ => Some(again.max(ROUND_TRIP)),
        };
        error
    }

    /// How long until the period is over whose numbers ended, and they begin anew; `None` where they never do.
    fn until_next_period(&self, refusal: &Refusal, again: Duration) -> Option<Duration> {
        let pattern = self.spec.pattern()?;
        let end = pattern.period_end_ms(pattern.period_at(refusal.wall_ms))?;
        let left = Duration::from_millis(end.saturating_sub(self.clock.wall_ms()).max(0) as u64);
        Some(left.max(again).max(ROUND_TRIP))
    }

    /// How long a refusal stands from now.
    fn stands_for(&self, refusal: &Refusal) -> Duration {
        Duration::from_millis(refusal.until_ms.saturating_sub(self.clock.boot_ms()))
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
        let standing = self.stand();
        match standing.refusal.as_ref().map(|refusal| (refusal, self.stands_for(refusal))) {
            Some((refusal, again)) if !again.is_zero() => self.told(refusal, again, enough),
            _ => Error::new(Code::NotReady, format!("no number of `{}` is in memory yet", self.spec.label))
                .after(ROUND_TRIP),
        }
    }

    /// The refusal callers are told now, if one stands.
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.stand().refusal.as_ref().map(|r| r.error.clone())
    }
}
