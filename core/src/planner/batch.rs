//! Batches: which sources the store serves next, and which of them together.
//!
//! There are two queues of sources: those whose callers wait, and the others. A batch takes from one of them only. A source that
//! the store would not serve together with others is retried alone.
//!
//! A bank has tens of thousands of counters, so callers may wait for it all the time. Its turn is one conversation, and between two
//! such turns the other queue has one.

use crate::bank::BankAsk;
use crate::request::reservation::Request;
use crate::request::worker::Renewal;

use super::{Ask, Now, Planner, SourceIndex, Want};

/// What goes to the store in one round trip. `Counters` is what a bank asks: the planner does not know, and the keeper has the bank say
/// it.
#[derive(Clone, Debug)]
pub enum Batch<Counters = BankAsk> {
    /// For one source.
    One(SourceIndex, Ask),
    /// For several sources, each once: their requests, in the order of the sources.
    Several(Vec<SourceIndex>, Vec<Request>),
    /// The renewal of every leased worker of the mill, with the sources that have them.
    Renew(Vec<SourceIndex>, Vec<Renewal>),
    /// For counters of one bank.
    Bank(SourceIndex, Counters),
}

/// What a source asks for in its turn.
enum Turn {
    /// Numbers, which the store may reserve together with other sources' numbers.
    Numbers(Request),
    /// What the store is asked for this source alone.
    Alone(Ask),
    /// Numbers for counters of a bank.
    Counters,
}

impl Planner {
    /// Queues a source. A source that was refused rests first, and is queued when its rest is over.
    pub(super) fn enqueue(&mut self, index: SourceIndex, urgent: bool, now: Now) {
        if self.plan(index).is_some_and(|plan| now.boot_ms < plan.retry_at_ms) {
            self.rest(index);
        } else {
            self.queue(index, urgent);
        }
    }

    /// The source is queued again when it may be tried again, so that nothing looks at it before.
    fn rest(&mut self, index: SourceIndex) {
        let Some(plan) = self.plan(index) else { return };
        let until_ms = plan.retry_at_ms;
        if let Some(before) = plan.rests_until_ms.replace(until_ms) {
            self.resting.remove(&(before, index));
        }
        self.resting.insert((until_ms, index));
    }

    /// Queues the sources whose rest is over.
    fn end_rests(&mut self, now: Now) {
        while let Some(&(until_ms, index)) = self.resting.first() {
            if now.boot_ms < until_ms {
                break;
            }
            self.resting.pop_first();
            if let Some(plan) = self.plan(index) {
                plan.rests_until_ms = None;
            }
            self.enqueue(index, false, now);
        }
    }

    fn queue(&mut self, index: SourceIndex, urgent: bool) {
        let Some(plan) = self.plan(index) else { return };
        // One place in each queue at most: callers may wake the keeper a thousand times a second during the backoff. A place in
        // both is harmless: a source that wants nothing when its turn comes is skipped.
        if plan.in_urgent {
            return;
        }
        if urgent {
            plan.in_urgent = true;
            self.urgent.push_back(index);
        } else if !plan.in_background {
            plan.in_background = true;
            self.background.push_back(index);
        }
    }

    /// The next batch, for `most` sources or fewer, if one is wanted and the store may be tried. `token` draws a number that no other
    /// process has, nor a copy of this one: a request that writes the row of a leased worker carries it.
    pub fn next_batch(&mut self, now: Now, most: usize, token: impl Fn() -> u64) -> Option<Batch<()>> {
        // First of all, and whatever the store's backoff: a lease that is not renewed ends.
        if let Some(renewal) = self.next_renewal(now, &token) {
            return Some(renewal);
        }
        if now.boot_ms < self.store_tried_at_ms() {
            return None;
        }
        self.failed = false;
        self.end_rests(now);
        let (mut indexes, mut requests) = (Vec::new(), Vec::new());
        let mut single = None;
        let mut urgent = false;
        while indexes.len() < most.max(1) {
            if urgent && self.urgent.is_empty() {
                break;
            }
            let Some((index, caller_waits)) = self.dequeue(now) else { break };
            let Some(plan) = self.plan(index) else { continue };
            if plan.wanted.is_none() || plan.in_flight.is_some() {
                continue;
            }
            if now.boot_ms < plan.retry_at_ms {
                self.rest(index);
                continue;
            }
            let alone = plan.alone || !matches!(plan.wanted, Some(Want::Numbers { .. }));
            if alone && !indexes.is_empty() {
                self.put_back(index, caller_waits);
                break;
            }
            let Some(turn) = self.take_turn(index, caller_waits, now, &token) else { continue };
            single = Some(match turn {
                Turn::Numbers(request) if !alone => {
                    urgent = caller_waits;
                    indexes.push(index);
                    requests.push(request);
                    continue;
                }
                Turn::Numbers(request) => Batch::One(index, Ask::Reserve(request)),
                Turn::Alone(ask) => Batch::One(index, ask),
                Turn::Counters => Batch::Bank(index, ()),
            });
            break;
        }
        self.after_bank = match &single {
            Some(Batch::Bank(index, ())) => self.plan(*index).is_some_and(|plan| plan.caller_waits),
            _ => self.after_bank && indexes.is_empty(),
        };
        match (single, indexes.as_slice()) {
            (None, []) => None,
            (None, [index]) => requests.pop().map(|request| Batch::One(*index, Ask::Reserve(request))),
            (None, _) => Some(Batch::Several(indexes, requests)),
            (single, _) => single,
        }
    }

    /// What the source whose turn it is asks for. From now on it is in flight.
    fn take_turn(
        &mut self,
        index: SourceIndex,
        caller_waits: bool,
        now: Now,
        token: impl Fn() -> u64,
    ) -> Option<Turn> {
        let turn = match self.plan(index)?.wanted? {
            Want::Numbers { len, single, period } => {
                Turn::Numbers(self.plan(index)?.request(len, single, period, now))
            }
            Want::Mark { to } => {
                // A store that shows the same time ends the doubt.
                let doubts_clock = self.latest_ms(now).is_some();
                Turn::Alone(self.plan(index)?.raise(to, doubts_clock))
            }
            Want::Worker => Turn::Alone(self.ask_worker(index, now, token())?),
            Want::Counters => Turn::Counters,
        };
        let plan = self.plan(index)?;
        (plan.in_flight, plan.caller_waits, plan.asked_ms) = (plan.wanted, caller_waits, now.boot_ms);
        Some(turn)
    }

    /// When the store may be tried: earlier where callers wait.
    pub(super) fn store_tried_at_ms(&self) -> u64 {
        if self.urgent.is_empty() { self.store_retry_at_ms } else { self.store_urgent_at_ms }
    }

    /// Whether the background queue has a turn between two turns of banks whose callers wait.
    fn yields(&self, now: Now) -> bool {
        let next = self.urgent.front().and_then(|index| self.plans.get(*index)?.as_ref());
        let is_bank = next.is_some_and(|plan| matches!(plan.wanted, Some(Want::Counters)));
        self.after_bank && is_bank && !self.background.is_empty() && now.boot_ms >= self.store_retry_at_ms
    }

    /// Takes the next source, and whether a caller waits for it.
    fn dequeue(&mut self, now: Now) -> Option<(SourceIndex, bool)> {
        if !self.yields(now)
            && let Some(index) = self.urgent.pop_front()
        {
            if let Some(plan) = self.plan(index) {
                plan.in_urgent = false;
            }
            return Some((index, true));
        }
        let index = self.background.pop_front()?;
        if let Some(plan) = self.plan(index) {
            plan.in_background = false;
        }
        Some((index, false))
    }

    /// Puts a source back to the front of its queue.
    fn put_back(&mut self, index: SourceIndex, caller_waits: bool) {
        let Some(plan) = self.plan(index) else { return };
        if caller_waits {
            plan.in_urgent = true;
            self.urgent.push_front(index);
        } else {
            plan.in_background = true;
            self.background.push_front(index);
        }
    }

    /// The bank whose turn it was needs nothing of the store.
    pub(crate) fn skipped(&mut self, index: SourceIndex) {
        let Some(plan) = self.plan(index) else { return };
        (plan.wanted, plan.in_flight) = (None, None);
    }

    /// The store would not serve this source together with the others of its batch: it is queued again, to be served alone.
    pub(crate) fn retry_alone(&mut self, index: SourceIndex) {
        let Some(plan) = self.plan(index) else { return };
        plan.in_flight = None;
        plan.alone = true;
        let caller_waits = plan.caller_waits;
        self.queue(index, caller_waits);
    }
}
