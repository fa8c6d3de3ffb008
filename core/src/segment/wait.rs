//! Callers who wait, for the first number or for all of a batch, each until its own deadline.

use std::sync::atomic::Ordering;

use crate::callers::GiveUpAt;
use crate::callers::counters::Counters;
use crate::error::Result;
use crate::serial::Prefix;

use super::{SegmentSource, TakenRange};

fn write_numbers(out: &mut [u64], taken: &TakenRange) {
    for (slot, number) in out.iter_mut().zip(taken.lo..taken.hi) {
        *slot = number;
    }
}

impl SegmentSource {
    /// At least one and at most `want` numbers; waits for the first.
    pub(crate) fn lease(&self, want: u64) -> Result<TakenRange> {
        match self.buffer.take(want) {
            Ok(taken) => Ok(taken),
            Err(_) => self.wait_for(want, 1, &mut GiveUpAt::default()),
        }
    }

    /// Fills `out`, all of it or none; waits until the deadline.
    pub(crate) fn fill(&self, out: &mut [u64]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let mut give_up_at = GiveUpAt::default();
        // `out` is written once all of it is there, so that an error leaves it as it was. Nearly always one part is all.
        let mut parts = Vec::new();
        let mut lacking = out.len() as u64;
        while lacking > 0 {
            // Nothing is taken before enough is there, so that an outage costs numbers only where callers race.
            match self.wait_for(lacking, lacking, &mut give_up_at) {
                Ok(taken) if parts.is_empty() && taken.len() == lacking => {
                    write_numbers(out, &taken);
                    return Ok(());
                }
                Ok(taken) => {
                    lacking -= taken.len();
                    parts.push(taken);
                }
                Err(error) => {
                    self.callers.counters.lose(out.len() as u64 - lacking);
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

    /// `count` numbers in ranges, each with its date part: all of them, or an error; waits until the deadline.
    pub(crate) fn take_dated(
        &self,
        count: u64,
        mut with: impl FnMut(std::ops::Range<u64>, &Prefix),
    ) -> Result<()> {
        let mut give_up_at = GiveUpAt::default();
        let mut done = 0;
        while done < count {
            let lacking = count - done;
            // As in `fill`: an outage costs no numbers.
            let taken = self
                .wait_for(lacking, lacking, &mut give_up_at)
                .inspect_err(|_| self.callers.counters.lose(done))?;
            if let Some(prefix) = self.prefix(&taken) {
                with(taken.lo..taken.hi, &prefix);
                done += taken.len();
            } else {
                // The period ended before its date part was read.
                self.callers.counters.lose(taken.len());
            }
        }
        Ok(())
    }

    /// Waits until `enough` numbers are in memory (or as many as memory can hold), then takes up to `want`.
    #[cold]
    fn wait_for(&self, want: u64, enough: u64, give_up_at: &mut GiveUpAt) -> Result<TakenRange> {
        if let Some(taken) = self.take_if(want, enough)? {
            return Ok(taken);
        }
        Counters::add(&self.callers.counters.waits, 1);
        let ask = || {
            // ordering: Relaxed — `Waker::wake` publishes it.
            self.wanted.fetch_add(enough, Ordering::Relaxed);
            self.callers.waker.wake();
        };
        let awake = || {
            // Before it takes: a keeper that checks the source between the two would reserve for it a second time.
            // ordering: Relaxed — the count that takes is a read-modify-write behind it. Where a machine shows them in the
            // other order, one step too many is reserved and nothing else happens.
            self.wanted.fetch_sub(enough, Ordering::Relaxed);
        };
        let waiting = self.callers.begin_wait(enough, give_up_at);
        let left = || self.buffer.snapshot().left;
        self.callers.wait(waiting, || self.take_if(want, enough), left, ask, awake)
    }
}
