//! The keeper: the one background thread of a mill. It refills, renews, turns periods, and owns every connection.
//!
//! It is two things. [`Planner`] decides and does nothing; this file and `executor` do what was decided. What is
//! here is still without I/O and without a clock, so the simulation drives it too; `executor` adds the thread and the store.

#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod defect_tests;
pub(crate) mod executor;
pub(crate) mod expiry;
#[cfg(test)]
mod mark_tests;
#[cfg(test)]
mod outage_tests;

use std::collections::HashMap;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::reservation::{Fault, GiveBack};
use crate::base::waker::ReadyQueue;
use crate::planner::spec::Spec;
use crate::planner::{Action, Answer, Ask, Batch, LastMark, Now, Planner, Slot};
use crate::time::Clock;
use crate::well::{Counters, Unused, Well};

/// What a mill that is closing tells its store.
#[derive(Debug, Default)]
pub struct LastWords {
    /// Marks of snowflakes that are lower than an id that was issued. They come first: without them a successor whose
    /// clock is behind may repeat ids.
    pub raise: Vec<Ask>,
    /// What was reserved and not handed out; a snowflake's mark that is higher than needed is lowered the same way.
    pub give_back: Vec<GiveBack>,
}

/// A planner and the wells it plans for. Whoever holds it brings the time and carries the batches to a store.
#[derive(Debug)]
pub struct Keeper {
    planner: Planner,
    wells: HashMap<Slot, Arc<Well>>,
    ready: Arc<ReadyQueue>,
}

impl Keeper {
    /// A keeper without sources; its jitter follows `seed`.
    #[must_use]
    pub fn new(seed: u64, ready: Arc<ReadyQueue>) -> Self {
        Keeper { planner: Planner::new(seed), wells: HashMap::new(), ready }
    }

    /// Takes a source in.
    pub fn add(&mut self, well: Arc<Well>) {
        let slot = well.waker.slot();
        // First, so that a keeper that starts anew knows the source whatever happens in the planner.
        let well = self.wells.entry(slot).or_insert(well);
        self.planner.add(slot, well.spec.clone());
        // A caller may have queued the source before the keeper knew it: that entry was dropped, and no caller queues the
        // source again before it is acknowledged.
        if well.waker.acknowledge() {
            well.waker.wake();
        }
    }

    /// Makes a source's well and takes it in. For the simulation; a mill makes wells on its callers' threads.
    ///
    /// # Errors
    /// As the source's kind says.
    pub fn open(&mut self, slot: Slot, spec: Arc<Spec>, clock: Clock) -> Result<Arc<Well>> {
        let well = Arc::new(Well::new(spec, self.ready.clone(), slot, clock)?);
        self.add(well.clone());
        Ok(well)
    }

    /// Serves every queued source and every timer, then says which batch is next, if any: one for `most` sources or fewer.
    pub fn poll(&mut self, now: Now, most: usize) -> Option<Batch> {
        while let Some(slot) = self.ready.pop() {
            // While the store may not be asked for it, the source is not acknowledged: its callers go on from memory, and
            // none of them wakes the keeper again.
            let is_waited_for = self.wells.get(&slot).is_some_and(|well| well.is_waited_for());
            if !self.planner.postpone(slot, is_waited_for, now) {
                self.check(slot, now);
            }
        }
        for slot in self.planner.due(now) {
            self.check(slot, now);
        }
        self.planner.next_batch(now, most)
    }

    /// Looks at a source and does what the planner says.
    pub fn check(&mut self, slot: Slot, now: Now) {
        let Some(well) = self.wells.get(&slot) else { return };
        well.expire(now);
        for action in self.planner.check(slot, &well.view(), now) {
            well.act(action, now);
        }
        well.counters.set_rate(self.planner.rate_per_1000s(slot, now));
    }

    /// A batch came back.
    pub fn complete(&mut self, slot: Slot, answer: std::result::Result<Answer, Fault>, now: Now) {
        let Some(well) = self.wells.get(&slot) else { return };
        for action in self.planner.complete(slot, answer, now) {
            well.act(action, now);
        }
        self.check(slot, now);
    }

    /// The store would not serve this source together with others, and changed nothing for it.
    pub fn retry_alone(&mut self, slot: Slot) {
        self.planner.retry_alone(slot);
    }

    /// Goes on after a defect of keymill's own: with a new planner, which knows how far each source had come and has nothing
    /// under way. Every waiting caller is told `error`; what lies in memory was reserved and stays.
    pub(crate) fn start_anew(&mut self, seed: u64, error: &Error, now: Now) {
        self.planner = self.planner.successor(seed);
        for (slot, well) in &self.wells {
            self.planner.add_if_missing(*slot, &well.spec);
            well.act(Action::Fail(error.clone()), now);
            // The source may have been taken from the queue and not acknowledged.
            well.waker.acknowledge();
            well.waker.wake();
        }
    }

    /// When to attend again at the latest, on the boot clock; `None`: when a source is queued.
    #[must_use]
    pub fn wake_at(&self, now: Now) -> Option<u64> {
        self.planner.wake_at(now)
    }

    /// The clock was set by hand.
    pub fn clock_moved(&mut self) {
        self.planner.clock_moved();
        for well in self.wells.values() {
            well.nudge();
        }
    }

    /// The store's failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.planner.failures()
    }

    /// Closes every source; answers with what the store has yet to hear of them.
    pub fn close(&mut self) -> LastWords {
        let mut slots: Vec<_> = self.wells.keys().copied().collect();
        slots.sort_unstable();
        let mut last = LastWords::default();
        for slot in slots {
            let Some(well) = self.wells.get(&slot) else { continue };
            let key = &well.spec.key;
            match well.close() {
                Unused::Ranges(rest) => {
                    Counters::add(&well.counters.lost, rest.iter().map(|(_, lo, hi)| hi - lo).sum());
                    if let Some((period, lo, hi)) = self.planner.give_back(slot, &rest) {
                        let (lo, hi) = (key.stride.nth(lo), key.stride.nth(hi));
                        last.give_back.push(GiveBack { key: key.clone(), period, lo, hi });
                    }
                }
                Unused::TicksFrom(above) => match self.planner.last_mark(slot, above) {
                    Some(LastMark::Raise { expect }) => {
                        last.raise.push(Ask::Raise { key: key.clone(), expect, to: above });
                    }
                    Some(LastMark::Lower { from }) => {
                        last.give_back.push(GiveBack { key: key.clone(), period: 0, lo: above, hi: from });
                    }
                    None => {}
                },
            }
        }
        last
    }

    /// The rate of a source as the keeper measures it, per 1000 s.
    #[must_use]
    pub fn rate_per_1000s(&self, slot: Slot, now: Now) -> u64 {
        self.planner.rate_per_1000s(slot, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::reservation::FaultKind;
    use crate::config::MillConfig;
    use crate::time::ManualClock;

    #[test]
    fn a_source_queued_before_the_keeper_knew_it_is_served() {
        let ready = Arc::new(ReadyQueue::default());
        let mut keeper = Keeper::new(1, ready.clone());
        let spec = MillConfig::parse("memory:").and_then(|c| c.spec("segment:early")).expect("a spec");
        let clock = Clock::Manual(Arc::new(ManualClock::new(0)));
        let well = Arc::new(Well::new(Arc::new(spec), ready, 0, clock).expect("a well"));
        assert!(well.try_next().is_err(), "nothing is in memory, so the caller wakes the keeper");
        assert!(keeper.poll(Now::default(), 1).is_none(), "nobody knows the source yet");
        keeper.add(well);
        assert!(keeper.poll(Now::default(), 1).is_some(), "the caller still waits for a number");
    }

    #[test]
    fn what_a_caller_asked_who_does_not_wait_stands_until_the_store_has_answered() {
        let ready = Arc::new(ReadyQueue::default());
        let mut keeper = Keeper::new(1, ready.clone());
        let spec = MillConfig::parse("memory:").and_then(|c| c.spec("segment:asked")).expect("a spec");
        let clock = Clock::Manual(Arc::new(ManualClock::new(0)));
        let well = Arc::new(Well::new(Arc::new(spec), ready, 0, clock).expect("a well"));
        keeper.add(well.clone());
        assert!(well.try_next().is_err(), "nothing is in memory, so the caller asks and goes");
        keeper.check(0, Now::default());
        // A timer, or a second caller.
        keeper.check(0, Now::default());
        let batch = keeper.poll(Now::default(), 1);
        assert!(matches!(batch, Some(Batch::One(0, _))), "a batch for the caller who asked: {batch:?}");
        keeper.complete(0, Err(Fault::new(FaultKind::Unavailable, "down")), Now::default());
        let later = Now { boot_ms: 60_000, ..Now::default() };
        assert!(keeper.poll(later, 1).is_none(), "nobody asked since the store answered");
    }
}
