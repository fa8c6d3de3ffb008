//! The keeper: the one background thread of a mill. It refills, renews, turns periods, and owns every connection.
//!
//! [`Planner`] decides and does nothing; this folder carries out what it decided. [`Keeper`] has no I/O and no clock, so the
//! simulation drives it too; `executor` adds the thread and the store, and `expiry` a thread that ends dates while the first one
//! waits for a store.

#[cfg(test)]
mod batch_tests;
pub(crate) mod closing;
#[cfg(test)]
mod defect_tests;
pub(crate) mod executor;
pub(crate) mod expiry;
mod follower;
pub(crate) mod followers;
mod kept_source;
#[cfg(test)]
mod mark_tests;
#[cfg(all(test, feature = "moves"))]
mod move_tests;
#[cfg(test)]
mod outage_tests;
pub(crate) mod own_readers;
pub(crate) mod routers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::bank::BankAnswer;
use crate::callers::waker::ReadyQueue;
use crate::error::{Error, Result};
use crate::planner::{Answer, Ask, Batch, LastMark, Planner, SourceIndex};
use crate::request::reservation::{Fault, GiveBack, Key, Request};
use crate::request::worker::{Release, Renewed};
use crate::spec::Spec;
use crate::time::{Clock, Now};
pub use kept_source::KeptSource;

/// What a closing mill asks of its store.
#[derive(Debug, Default)]
pub struct FinalRequests {
    /// Marks of snowflakes that are lower than an id that was issued. They go first: without them a successor whose clock is
    /// behind may repeat ids.
    pub raise: Vec<Ask>,
    /// Ranges that were reserved and not handed out. A snowflake's mark that is higher than needed is lowered the same way.
    pub give_back: Vec<GiveBack>,
    /// Leased workers, with what was used of them.
    pub free: Vec<Release>,
    /// What banks reserved and did not hand out.
    pub banks: Vec<BankRest>,
}

/// What a bank reserved and did not hand out.
#[derive(Clone, Debug)]
pub struct BankRest {
    /// The key of the bank's record.
    pub key: Arc<Key>,
    /// How many counters it has.
    pub counters: u32,
    /// Counters, each with its range `[lo, hi)`.
    pub ranges: Vec<(u32, u64, u64)>,
    /// The mill that reserved them.
    pub writer: u64,
}

/// A planner and the sources it plans for. Its owner passes the time and carries the batches to a store.
#[derive(Debug)]
pub struct Keeper {
    planner: Planner,
    sources: HashMap<SourceIndex, KeptSource>,
    ready: Arc<ReadyQueue>,
    /// Draws the tokens of leased workers.
    tokens: fn() -> u64,
    /// Names this mill in the rows that it reserves from.
    writer: u64,
    /// The source that is being checked or whose request is completed, for a keeper that goes on after a panic in there.
    checking: Option<SourceIndex>,
    /// The sources whose last check panicked.
    defective: HashMap<SourceIndex, Defective>,
    /// The source whose check panics, as a defect would make it.
    #[cfg(test)]
    panics_on: Option<SourceIndex>,
}

/// A source whose check panicked: it is checked only while no other source needs the store, so that others do not wait
/// for it.
#[derive(Debug)]
struct Defective {
    /// Panics in a row.
    panics: u32,
    /// It is not checked before this boot time.
    until_ms: u64,
}

/// For how many counters of a bank the store is asked in one conversation. More would save little, and the callers of all of them
/// wait for the answer.
const COUNTERS_AT_ONCE: usize = 512;

/// How long a defective source is not checked, the first time and at most. Longer than [`executor`] remembers a defect, so
/// that one source does not make the keeper rest for seconds each time.
const DEFECTIVE_REST_MS: (u64, u64) = (50, 100_000);

/// Marks of a fixed worker are not made of a wall clock that the store's contradicts.
fn limit_marks(source: &KeptSource, planner: &mut Planner, now: Now) {
    if let KeptSource::Snowflake(source) = source {
        source.generator.limit_marks(planner.latest_ms(now), now);
    }
}

impl Keeper {
    /// A keeper without sources; its jitter follows `seed`.
    #[must_use]
    pub fn new(seed: u64, ready: Arc<ReadyQueue>) -> Self {
        Keeper {
            planner: Planner::new(seed),
            sources: HashMap::new(),
            ready,
            tokens: crate::process::random::token,
            writer: crate::process::random::token(),
            checking: None,
            defective: HashMap::new(),
            #[cfg(test)]
            panics_on: None,
        }
    }

    /// Tokens of leased workers that a simulation can repeat, from 1 to 2^63-1.
    pub fn set_tokens(&mut self, tokens: fn() -> u64) {
        self.tokens = tokens;
    }

    /// Takes a source in.
    pub fn add(&mut self, source: KeptSource) {
        let index = source.callers().waker.index();
        // First, so that a keeper that starts anew knows the source even if the planner panics on it.
        let source = self.sources.entry(index).or_insert(source);
        self.planner.add(index, source.spec().clone());
        // A caller may have queued the source before the keeper knew it: that entry was dropped, and no caller queues the
        // source again before it is acknowledged.
        let waker = &source.callers().waker;
        if waker.acknowledge() {
            waker.wake();
        }
    }

    /// Makes a source and takes it in. For the simulation; a mill makes sources on its callers' threads.
    ///
    /// # Errors
    /// As the source's kind says.
    pub fn open(&mut self, index: SourceIndex, spec: Arc<Spec>, clock: Clock) -> Result<KeptSource> {
        let source = KeptSource::new(spec, self.ready.clone(), index, clock)?;
        self.add(source.clone());
        Ok(source)
    }

    /// Checks every queued source and every source whose timer is due, then returns the next batch, for at most `most` sources.
    pub fn poll(&mut self, now: Now, most: usize) -> Option<Batch> {
        while let Some(index) = self.ready.pop() {
            // A defective source is due by itself.
            if self.defective.contains_key(&index) {
                continue;
            }
            // While the store may not be asked for it, the source is not acknowledged: its callers go on from memory, and
            // none of them wakes the keeper again.
            let source = self.sources.get(&index);
            let is_waited_for = source.is_some_and(KeptSource::is_waited_for);
            // Numbers that lie in memory need no store.
            let has_numbers = matches!(source, Some(KeptSource::Bank(bank)) if bank.has_ahead());
            if has_numbers || !self.planner.postpone(index, is_waited_for, now) {
                self.check(index, now);
            }
        }
        for index in self.planner.due(now) {
            if !self.defective.contains_key(&index) {
                self.check(index, now);
            }
        }
        let batch = self.next_batch(now, most);
        if batch.is_some() || self.defective.is_empty() {
            return batch;
        }
        let due = self.defective.iter().filter(|(_, defective)| now.boot_ms >= defective.until_ms);
        for index in due.map(|(index, _)| *index).collect::<Vec<_>>() {
            self.check(index, now);
        }
        self.next_batch(now, most)
    }

    /// The planner's next batch. A bank's batch has what its counters need.
    fn next_batch(&mut self, now: Now, most: usize) -> Option<Batch> {
        loop {
            let index = match self.planner.next_batch(now, most, self.tokens)? {
                Batch::One(index, Ask::Reserve(request)) => {
                    return Some(Batch::One(index, Ask::Reserve(self.signed(request))));
                }
                Batch::One(index, ask) => return Some(Batch::One(index, ask)),
                Batch::Several(indexes, requests) => {
                    let signed = requests.into_iter().map(|request| self.signed(request)).collect();
                    return Some(Batch::Several(indexes, signed));
                }
                Batch::Renew(indexes, renewals) => return Some(Batch::Renew(indexes, renewals)),
                Batch::Bank(index, ()) => index,
            };
            if let Some(KeptSource::Bank(bank)) = self.sources.get(&index)
                && let Some(ask) = bank.ask_for(COUNTERS_AT_ONCE, now)
            {
                return Some(Batch::Bank(index, ask.signed(self.writer)));
            }
            // Its callers were served meanwhile, or their counters rest after a refusal.
            self.planner.skipped(index);
        }
    }

    fn signed(&self, request: Request) -> Request {
        Request { writer: self.writer, ..request }
    }

    /// Checks a source and does what the planner decides.
    pub fn check(&mut self, index: SourceIndex, now: Now) {
        let Some(source) = self.sources.get(&index) else { return };
        self.checking = Some(index);
        #[cfg(test)]
        assert_ne!(Some(index), self.panics_on, "a defect");
        source.expire(now);
        limit_marks(source, &mut self.planner, now);
        for action in self.planner.check(index, &source.view(now), now) {
            source.act(action, now);
        }
        source.callers().counters.set_rate(self.planner.rate_per_1000s(index, now));
        self.checking = None;
        if !self.defective.is_empty() {
            self.defective.remove(&index);
        }
    }

    /// The store answered a request of a batch.
    pub fn complete(&mut self, index: SourceIndex, answer: std::result::Result<Answer, Fault>, now: Now) {
        let Some(source) = self.sources.get(&index) else { return };
        self.checking = Some(index);
        let actions = self.planner.complete(index, answer, now);
        limit_marks(source, &mut self.planner, now);
        for action in actions {
            source.act(action, now);
        }
        self.check(index, now);
    }

    /// The store answered a bank.
    pub fn complete_bank(&mut self, index: SourceIndex, answer: BankAnswer, now: Now) {
        let Some(KeptSource::Bank(bank)) = self.sources.get(&index) else { return };
        let fault = match answer {
            BankAnswer::Reserved(indexes, answers) => bank.reserved(&indexes, answers, now),
            BankAnswer::Opened(opened) => opened.map(|open| bank.opened(open)).err(),
        };
        self.complete(index, fault.map_or(Ok(Answer::Counters), Err), now);
    }

    /// The store answered a renewal of leased workers.
    pub fn renewed(
        &mut self,
        indexes: &[SourceIndex],
        answer: std::result::Result<Renewed, Fault>,
        now: Now,
    ) {
        for (index, action) in self.planner.renewed(indexes, answer, now) {
            if let Some(source) = self.sources.get(&index) {
                source.act(action, now);
            }
        }
        for &index in indexes {
            self.check(index, now);
        }
    }

    /// The process, as the rows of its leased workers name it.
    pub fn set_owner(&mut self, owner: Arc<str>) {
        self.planner.set_owner(&owner);
    }

    /// How far the wall clock is ahead of the store's, where the store has shown its own.
    #[must_use]
    pub fn skew_ms(&self, now: Now) -> Option<i64> {
        self.planner.skew_ms(now)
    }

    /// The store would not serve this source together with others, and changed nothing for it.
    pub fn retry_alone(&mut self, index: SourceIndex) {
        self.planner.retry_alone(index);
    }

    /// Goes on after a defect in keymill, with a new planner that knows every source's progress and has no request in flight.
    /// Every waiting caller gets `error`; the numbers in memory were reserved and stay.
    pub(crate) fn start_anew(&mut self, seed: u64, error: &Error, now: Now) {
        self.planner = self.planner.successor(seed);
        if let Some(index) = self.checking.take() {
            let defective = self.defective.entry(index).or_insert(Defective { panics: 0, until_ms: 0 });
            let rest = (DEFECTIVE_REST_MS.0 << defective.panics.min(16)).min(DEFECTIVE_REST_MS.1);
            defective.panics = defective.panics.saturating_add(1);
            defective.until_ms = now.boot_ms + rest;
        }
        for (index, source) in &self.sources {
            self.planner.add_if_missing(*index, source.spec());
            let mut error = error.clone();
            if let Some(defective) = self.defective.get(index) {
                error = error.after(Duration::from_millis(defective.until_ms.saturating_sub(now.boot_ms)));
            }
            source.fail(error, now);
            // The source may have been taken from the queue and not acknowledged.
            let waker = &source.callers().waker;
            waker.acknowledge();
            waker.wake();
        }
    }

    /// When to poll again at the latest, on the boot clock; `None`: when a source is queued.
    #[must_use]
    pub fn wake_at(&self, now: Now) -> Option<u64> {
        let defective = self.defective.values().map(|defective| defective.until_ms).min();
        self.planner.wake_at(now).into_iter().chain(defective).min()
    }

    /// The clock was set by hand.
    pub fn clock_moved(&mut self) {
        self.planner.clock_moved();
        for source in self.sources.values() {
            source.callers().notify();
        }
    }

    /// The store's failures in a row.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.planner.failures()
    }

    /// Closes every source. Returns what the store has yet to do for them.
    pub fn close(&mut self) -> FinalRequests {
        let mut indexes: Vec<_> = self.sources.keys().copied().collect();
        indexes.sort_unstable();
        let mut last = FinalRequests::default();
        for index in indexes {
            let Some(source) = self.sources.get(&index) else { continue };
            let key = &source.spec().key;
            match source {
                KeptSource::Segment(source) => {
                    let rest = source.close();
                    if let Some((period, lo, hi)) = self.planner.give_back(index, &rest) {
                        let (lo, hi) = (key.stride.nth(lo), key.stride.nth(hi));
                        last.give_back.push(GiveBack {
                            key: key.clone(),
                            period,
                            lo,
                            hi,
                            writer: self.writer,
                        });
                    }
                }
                KeptSource::Bank(source) => {
                    let rest = source.close();
                    if !rest.is_empty() {
                        let counters = source.bank().counters;
                        let (key, writer) = (key.clone(), self.writer);
                        last.banks.push(BankRest { key, counters, ranges: rest, writer });
                    }
                }
                KeptSource::Snowflake(source) => {
                    let Some(above) = source.close() else { continue };
                    if !source.keeps_mark() {
                        last.free.extend(self.planner.release(index, above));
                        continue;
                    }
                    match self.planner.last_mark(index, above) {
                        Some(LastMark::Raise { expect }) => {
                            let key = key.clone();
                            last.raise.push(Ask::Raise { key, expect, to: above, clock: false, begin: None });
                        }
                        Some(LastMark::Lower { from }) => {
                            last.give_back.push(GiveBack {
                                key: key.clone(),
                                period: 0,
                                lo: above,
                                hi: from,
                                // A mark is raised by compare-and-set, and its row names no mill.
                                writer: 0,
                            });
                        }
                        None => {}
                    }
                }
            }
        }
        last
    }

    /// The rate of a source as the keeper measures it, per 1000 s.
    #[must_use]
    pub fn rate_per_1000s(&self, index: SourceIndex, now: Now) -> u64 {
        self.planner.rate_per_1000s(index, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;
    use crate::request::reservation::FaultKind;
    use crate::segment::SegmentSource;
    use crate::time::ManualClock;

    #[test]
    fn a_source_queued_before_the_keeper_knew_it_is_served() {
        let ready = Arc::new(ReadyQueue::default());
        let mut keeper = Keeper::new(1, ready.clone());
        let spec = MillConfig::parse("memory:").and_then(|c| c.spec("segment:early")).expect("a spec");
        let clock = Clock::Manual(Arc::new(ManualClock::new(0)));
        let source = SegmentSource::new(Arc::new(spec), ready, 0, clock);
        assert!(source.try_next().is_err(), "nothing is in memory, so the caller wakes the keeper");
        assert!(keeper.poll(Now::default(), 1).is_none(), "the source is not added yet");
        keeper.add(KeptSource::Segment(source));
        assert!(keeper.poll(Now::default(), 1).is_some(), "the caller still waits for a number");
    }

    #[test]
    fn the_wish_of_a_caller_who_does_not_wait_stays_until_the_store_has_answered() {
        let ready = Arc::new(ReadyQueue::default());
        let mut keeper = Keeper::new(1, ready.clone());
        let spec = MillConfig::parse("memory:").and_then(|c| c.spec("segment:asked")).expect("a spec");
        let clock = Clock::Manual(Arc::new(ManualClock::new(0)));
        let source = SegmentSource::new(Arc::new(spec), ready, 0, clock);
        keeper.add(KeptSource::Segment(source.clone()));
        assert!(source.try_next().is_err(), "nothing is in memory, so the caller asks and goes");
        keeper.check(0, Now::default());
        // A timer, or a second caller.
        keeper.check(0, Now::default());
        let batch = keeper.poll(Now::default(), 1);
        assert!(matches!(batch, Some(Batch::One(0, _))), "a batch for the caller who asked: {batch:?}");
        keeper.complete(0, Err(Fault::new(FaultKind::Unavailable, "down")), Now::default());
        let later = Now { boot_ms: 60_000, ..Now::default() };
        assert!(keeper.poll(later, 1).is_none(), "no caller has asked since the store answered");
    }
}
