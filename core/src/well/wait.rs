//! Callers who wait: for the first number or for all of a batch, each until its own deadline.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::base::error::{Code, Error, Result};
use crate::segment::{Buffer, TakeError, Taken};
use crate::serial::Prefix;

use super::{Counters, ROUND_TRIP, Spring, Well};

/// A waiting caller looks again after this long at the latest, whoever should have woken it.
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// Counts through what was taken.
fn write_numbers(out: &mut [u64], taken: &Taken) {
    for (slot, number) in out.iter_mut().zip(taken.lo..taken.hi) {
        *slot = number;
    }
}

impl Well {
    /// At least one and at most `want` numbers; waits for the first.
    pub(crate) fn lease(&self, want: u64) -> Result<Taken> {
        let buffer = self.buffer()?;
        match buffer.take(want) {
            Ok(taken) => Ok(taken),
            Err(_) => self.wait_for(buffer, want, 1, self.give_up_at()),
        }
    }

    /// Fills `out`, all of it or none; waits until the deadline.
    pub(crate) fn fill(&self, out: &mut [u64]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let give_up_at = self.give_up_at();
        let buffer = match &self.spring {
            Spring::Numbers(buffer) => buffer,
            Spring::Time { generator, .. } => return self.fill_with_time(generator, out, give_up_at),
        };
        // `out` is written when all of it is there: who is refused finds it as it was. Nearly always one part is all.
        let mut parts = Vec::new();
        let mut lacking = out.len() as u64;
        while lacking > 0 {
            // Taking begins when all of it is there, so that a store that is down costs numbers only where callers race.
            match self.wait_for(buffer, lacking, lacking, give_up_at) {
                Ok(taken) if parts.is_empty() && taken.len() == lacking => {
                    write_numbers(out, &taken);
                    return Ok(());
                }
                Ok(taken) => {
                    lacking -= taken.len();
                    parts.push(taken);
                }
                Err(error) => {
                    Counters::add(&self.counters.lost, out.len() as u64 - lacking);
                    return Err(error);
                }
            }
        }
        let mut rest = out;
        for taken in &parts {
            let (now, later) = rest.split_at_mut(taken.len() as usize);
            write_numbers(now, taken);
            rest = later;
        }
        Ok(())
    }

    /// `count` numbers in runs, each with its date part: all of them, or an error; waits until the deadline.
    pub(crate) fn take_dated(
        &self,
        count: u64,
        mut with: impl FnMut(std::ops::Range<u64>, &Prefix),
    ) -> Result<()> {
        let give_up_at = self.give_up_at();
        let buffer = self.buffer()?;
        let mut done = 0;
        while done < count {
            let lacking = count - done;
            // As in `fill`: a store that is down costs no numbers.
            let taken = self.wait_for(buffer, lacking, lacking, give_up_at).inspect_err(|_| {
                Counters::add(&self.counters.lost, done);
            })?;
            if let Some(prefix) = self.prefix(&taken) {
                with(taken.lo..taken.hi, &prefix);
                done += taken.len();
            } else {
                // The period ended between the count and the look: nobody gets these numbers.
                Counters::add(&self.counters.lost, taken.len());
            }
        }
        Ok(())
    }

    pub(super) fn give_up_at(&self) -> Instant {
        Instant::now() + self.spec.deadline
    }

    /// Waits until `enough` numbers are in memory (or one, if the source is what it is), then takes up to `want`.
    #[cold]
    pub(super) fn wait_for(
        &self,
        buffer: &Buffer,
        want: u64,
        enough: u64,
        give_up_at: Instant,
    ) -> Result<Taken> {
        if enough <= 1 || buffer.has_at_least(enough) {
            match buffer.take(want) {
                Ok(taken) => return Ok(taken),
                Err(TakeError::Closed) => return Err(self.closed()),
                Err(TakeError::Empty) => {}
            }
        }
        Counters::add(&self.counters.waits, 1);
        self.wait_in_line(buffer, want, enough, give_up_at)
    }

    fn wait_in_line(&self, buffer: &Buffer, want: u64, enough: u64, give_up_at: Instant) -> Result<Taken> {
        let mut last_error = self.lock_last_error();
        let before = last_error.count;
        loop {
            if enough <= 1 || buffer.has_at_least(enough) {
                match buffer.take(want) {
                    Ok(taken) => return Ok(taken),
                    Err(TakeError::Closed) => return Err(self.closed()),
                    Err(TakeError::Empty) => {}
                }
            }
            let now = Instant::now();
            if let Some(error) = self.give_up(&last_error, before, enough, now, give_up_at) {
                return Err(error);
            }
            // ordering: Relaxed — `Waker::wake` publishes it.
            self.wanted.fetch_add(enough, Ordering::Relaxed);
            self.waker.wake();
            let (guard, _) = self
                .changed
                .wait_timeout(last_error, (give_up_at - now).min(LONGEST_NAP))
                .unwrap_or_else(PoisonError::into_inner);
            // Before it takes: a keeper that looks between the two would reserve for it a second time.
            // ordering: Relaxed — the count that takes is a read-modify-write behind it; where a machine shows them the
            // other way round, one step more is reserved and nothing else happens.
            self.wanted.fetch_sub(enough, Ordering::Relaxed);
            last_error = guard;
        }
    }

    /// What a caller that waits in its own way does about `refusal` after `waited`: waits this long and tries again, or
    /// gives up with the error. The same judgement as that of a caller who waits here. A wait is counted where it begins:
    /// with a `waited` of zero.
    pub(crate) fn patience(&self, refusal: Error, waited: Duration) -> Result<Duration> {
        let pause = self.pause_after(refusal, waited)?;
        if waited.is_zero() {
            Counters::add(&self.counters.waits, 1);
        }
        Ok(pause)
    }

    fn pause_after(&self, refusal: Error, waited: Duration) -> Result<Duration> {
        let left = self.spec.deadline.saturating_sub(waited);
        let waits = match refusal.code {
            Code::NotReady | Code::StoreUnavailable => true,
            // A generator waits for its clock; a period that is over comes no nearer.
            Code::ClockBehind => matches!(self.spring, Spring::Time { .. }),
            _ => false,
        };
        let Some(again) = refusal.retry_after.filter(|_| waits) else { return Err(refusal) };
        let again = again.max(ROUND_TRIP);
        if again < left {
            return Ok(again);
        }
        match refusal.code {
            // A refill may land at any moment: until the deadline it is worth waiting for.
            Code::NotReady if !left.is_zero() => Ok(left),
            Code::NotReady => Err(match self.spring {
                Spring::Numbers(_) => self.deadline_passed(),
                // What was refused says what the clock lacks; this caller was ready to wait, and did.
                Spring::Time { .. } => Error { code: Code::Deadline, ..refusal },
            }),
            _ => Err(refusal),
        }
    }
}
