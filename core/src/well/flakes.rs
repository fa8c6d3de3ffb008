//! The callers of a snowflake: they wait for the clock, and for the keeper where the stored mark runs low.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::base::error::{Code, Error, Result};
use crate::snowflake::{Generator, Refusal, Why};

use super::{Counters, ROUND_TRIP, Well};

/// Whether only the keeper can help.
fn needs_keeper(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::NotReady { why: Why::Start | Why::Mark, .. })
}

impl Well {
    /// A caller that finds the mark running low calls the keeper: one plain load per id.
    #[inline]
    pub(super) fn feed(&self, generator: &Generator) {
        if generator.wants_keeper() {
            self.waker.wake();
        }
    }

    /// As many ids of the clock as there are right now, at least one, or why not.
    pub(crate) fn try_fill_time(&self, generator: &Generator, out: &mut [u64]) -> Result<usize> {
        match generator.try_take(out) {
            Ok(n) => {
                self.feed(generator);
                Ok(n)
            }
            Err(refusal) => Err(self.time_error(generator, refusal)),
        }
    }

    pub(super) fn fill_with_time(
        &self,
        generator: &Generator,
        out: &mut [u64],
        give_up_at: Instant,
    ) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            match generator.try_take(&mut out[done..]) {
                Ok(n) => {
                    self.feed(generator);
                    done += n;
                }
                Err(_) => done += self.wait_for_time(generator, &mut out[done..], give_up_at)?.0,
            }
        }
        Ok(())
    }

    #[cold]
    pub(super) fn time_error(&self, generator: &Generator, refusal: Refusal) -> Error {
        if needs_keeper(refusal) {
            let posted = self.not_ready(1);
            self.waker.wake();
            if posted.code != Code::NotReady {
                return posted;
            }
        }
        self.explained(generator, refusal)
    }

    fn explained(&self, generator: &Generator, refusal: Refusal) -> Error {
        // A worker id that was lost has a story, which the keeper posted.
        let posted = self.posted_error().filter(|e| e.code == refusal.code());
        let mut error = posted.unwrap_or_else(|| generator.explain(refusal));
        if refusal == Refusal::Closed {
            return self.closed();
        }
        error.retry_after = refusal.retry_after_ms().map(|ms| Duration::from_millis(ms).max(ROUND_TRIP));
        error
    }

    /// Waits until the generator gives at least one id; answers with how many, and the first.
    #[cold]
    pub(super) fn wait_for_time(
        &self,
        generator: &Generator,
        out: &mut [u64],
        give_up_at: Instant,
    ) -> Result<(usize, u64)> {
        let before = self.lock_last_error().count;
        let mut waited = false;
        loop {
            let refusal = match generator.try_take(out) {
                Ok(n) => {
                    self.feed(generator);
                    return Ok((n, out.first().copied().unwrap_or(0)));
                }
                Err(refusal) => refusal,
            };
            if !std::mem::replace(&mut waited, true) {
                Counters::add(&self.counters.waits, 1);
            }
            let now = Instant::now();
            let left = give_up_at.saturating_duration_since(now);
            let last_error = self.lock_last_error();
            let pause = if needs_keeper(refusal) {
                if let Some(error) = self.give_up(&last_error, before, 1, now, give_up_at) {
                    return Err(error);
                }
                self.waker.wake();
                // The keeper may have answered between the try and the lock: look again soon.
                left.min(Duration::from_millis(20))
            } else {
                match refusal.retry_after_ms().map(Duration::from_millis) {
                    Some(pause) if pause < left => pause.max(Duration::from_micros(50)),
                    _ => {
                        drop(last_error);
                        let mut error = self.explained(generator, refusal);
                        if error.code == Code::NotReady {
                            // The caller was ready to wait, and did.
                            error.code = Code::Deadline;
                        }
                        return Err(error);
                    }
                }
            };
            drop(self.changed.wait_timeout(last_error, pause).unwrap_or_else(PoisonError::into_inner));
        }
    }
}
