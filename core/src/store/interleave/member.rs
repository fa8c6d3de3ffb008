//! One of several stores, and how it is asked.
//!
//! Every conversation with a store begins here, so there is one rule for stores that fail. An outage gives the store a pause. While
//! it lasts, the store is not asked again, and the answer is its last outage at once. A caller so waits for one timeout of a store
//! that is gone, once. Any answer ends the pause, a refusal too.
//!
//! How long a pause holds depends on who else can serve:
//!
//! * [`Member::ask`]: another store can. The whole pause holds. It is twenty times as long as the failed try took at least, so a
//!   store that stays silent takes a twentieth of the time at most.
//! * [`Member::ask_alone`]: only this store can, or all of them are needed. The pause ends after [`ALONE_MS`], or after ten
//!   times as long as the failed try took, and for a lease so early that the lease can still be renewed.
//! * [`Member::insist`]: all stores are needed now, or no store is left that has no pause. No pause holds.
//! * [`Member::operate`]: an operator changes what a store holds. No pause holds.
//!
//! All exchanges of a conversation share one timeout, so a store that gives each answer just in time costs no more than a silent store.
//! Only an operator's conversation takes as long as it needs: it may make tables.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use super::gone;
use crate::store::bank::BankPart;
use crate::store::contained_store::ContainedStore;
use crate::store::time_budget::within_budget;
use crate::store::{Catalogue, Fault, FaultKind, Key, Partition, Remedy, Store, StoreIndex};
use crate::time::Clock;

/// The shortest and the longest pause of a store that fails at once.
const PAUSE_MS: (u64, u64) = (200, 10_000);
/// A pause is between half of this and this many times as long as the failed try took …
const TIMES_AS_LONG: u64 = 40;
/// … and ends after this long.
const LONGEST_MS: u64 = 120_000;
/// How long a pause holds at most where no other store can serve.
pub(super) const ALONE_MS: u64 = PAUSE_MS.1;
/// … and this many times as long as the failed try took: a silent store takes a tenth of the time at most there.
const ALONE_TIMES_AS_LONG: u64 = 10;
/// An answer within this time counts as immediate while only paused stores are left.
const AT_ONCE_MS: u64 = 100;

/// How long a pause holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hold {
    /// To its end: another store can serve.
    Whole,
    /// No other store can serve, or all of them are needed.
    Alone,
    /// So many milliseconds at most.
    AtMost(u64),
}

/// Why a store, or a source's row in it, is not asked now.
#[derive(Clone, Debug)]
pub(super) struct Pause {
    since_ms: u64,
    until_ms: u64,
    took_ms: u64,
    failures: u32,
    /// Names the store.
    fault: Fault,
}

impl Pause {
    /// After another failure, of a try that took so long: pauses double, and half of each is random.
    pub(super) fn after(before: Option<&Pause>, now_ms: u64, took_ms: u64, fault: Fault) -> Pause {
        let failures = before.map_or(0, |pause| pause.failures);
        let whole = (PAUSE_MS.0 << failures.min(16)).min(PAUSE_MS.1);
        let whole = whole.max(took_ms.saturating_mul(TIMES_AS_LONG)).min(LONGEST_MS);
        let until_ms = now_ms + whole / 2 + fastrand::u64(0..=whole / 2);
        Pause { since_ms: now_ms, until_ms, took_ms, failures: failures.saturating_add(1), fault }
    }

    /// Whether the pause has not ended.
    fn holds(&self, now_ms: u64, hold: Hold) -> bool {
        let most_ms = match hold {
            Hold::Whole => u64::MAX,
            Hold::Alone => ALONE_MS.max(self.took_ms.saturating_mul(ALONE_TIMES_AS_LONG)),
            Hold::AtMost(ms) => ms,
        };
        now_ms < self.until_ms.min(self.since_ms.saturating_add(most_ms))
    }

    pub(super) fn is_active(&self, now_ms: u64) -> bool {
        self.holds(now_ms, Hold::Whole)
    }

    pub(super) fn until_ms(&self) -> u64 {
        self.until_ms
    }

    pub(super) fn fault(&self) -> &Fault {
        &self.fault
    }
}

/// Asks paused stores when no other is left, one after the other while they answer at once: any of them may be back, and a
/// frozen store costs its timeout only once.
#[derive(Debug, Default)]
pub(super) struct LastResorts(Option<u64>);

impl LastResorts {
    /// Whether to ask one more.
    pub(super) fn another(&mut self, now_ms: u64) -> bool {
        now_ms < self.0.get_or_insert(now_ms).saturating_add(AT_ONCE_MS)
    }
}

/// What a store is asked through.
pub(super) struct Conversation<'m> {
    store: &'m mut (dyn Store + 'static),
    pub(super) partition: Partition,
}

impl Conversation<'_> {
    /// The key of the same row, of this store's partition.
    pub(super) fn own(&self, key: &Key) -> Arc<Key> {
        self.partition.key(key)
    }

    /// Which of the stores this is.
    pub(super) fn index(&self) -> StoreIndex {
        self.partition.store_index()
    }
}

impl Deref for Conversation<'_> {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        self.store
    }
}

impl DerefMut for Conversation<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.store
    }
}

/// One of the stores.
pub(super) struct Member {
    store: ContainedStore,
    partition: Partition,
    /// `store 2 of 2 (mysql://b:3306/ids)`.
    name: String,
    clock: Clock,
    pause: Option<Pause>,
    /// Outages since they were told last.
    news: Vec<Fault>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Member {
    /// A store; `shown` is what messages call it by, never with a user or a password.
    pub(super) fn new(store: ContainedStore, partition: Partition, shown: &str) -> Member {
        let name = format!("{} ({shown})", partition.store_index());
        Member { store, partition, name, clock: Clock::System, pause: None, news: Vec::new() }
    }

    pub(super) fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    pub(super) fn partition(&self) -> Partition {
        self.partition
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Names the store in a fault.
    pub(super) fn said(&self, fault: Fault) -> Fault {
        fault.at(&self.name)
    }

    pub(super) fn pause(&self) -> Option<&Pause> {
        self.pause.as_ref()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.is_active(self.clock.boot_ms()))
    }

    /// Asks for what another store can serve too.
    pub(super) fn ask<T>(
        &mut self,
        work: impl FnOnce(&mut Conversation<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.converse(Hold::Whole, work)
    }

    /// Asks for what only this store can serve, or for what every store is needed; a pause may end earlier there.
    pub(super) fn ask_alone<T>(
        &mut self,
        hold: Hold,
        work: impl FnOnce(&mut Conversation<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.converse(hold, work)
    }

    /// Asks in spite of a pause.
    pub(super) fn insist<T>(
        &mut self,
        work: impl FnOnce(&mut Conversation<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.converse(Hold::AtMost(0), work)
    }

    /// Asks for an operator, in spite of a pause; each exchange has a timeout of its own.
    pub(super) fn operate<T>(
        &mut self,
        work: impl FnOnce(&mut Conversation<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let began_ms = self.may_ask(Hold::AtMost(0))?;
        let partition = self.partition;
        let answer = self.store.ask(|store| work(&mut Conversation { store, partition }));
        self.judge(began_ms, None, answer)
    }

    /// As [`ask`](Self::ask), for `count` things at once. The store has failed where it answered for none of them.
    pub(super) fn ask_for_all<T>(
        &mut self,
        count: usize,
        work: impl FnOnce(&mut Conversation<'_>) -> Vec<Result<T, Fault>>,
    ) -> Vec<Result<T, Fault>> {
        let mut answers = Vec::new();
        let asked = self.ask(|store| {
            answers = work(store);
            let outage =
                |answer: &Result<T, Fault>| answer.as_ref().err().filter(|fault| gone(fault.kind)).cloned();
            let outages: Option<Vec<Fault>> = answers.iter().map(outage).collect();
            outages.and_then(|outages| outages.into_iter().next()).map_or(Ok(()), Err)
        });
        match asked {
            Err(fault) if answers.is_empty() => (0..count).map(|_| Err(fault.clone())).collect(),
            _ => answers.into_iter().map(|answer| answer.map_err(|fault| self.said(fault))).collect(),
        }
    }

    fn converse<T>(
        &mut self,
        hold: Hold,
        work: impl FnOnce(&mut Conversation<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let began_ms = self.may_ask(hold)?;
        let partition = self.partition;
        let store = &mut self.store;
        let (answer, longest) =
            within_budget(|| store.ask(|store| work(&mut Conversation { store, partition })));
        self.judge(began_ms, longest, answer)
    }

    /// Any answer ends a pause, and an outage begins one.
    fn judge<T>(
        &mut self,
        began_ms: u64,
        longest: Option<Duration>,
        answer: Result<T, Fault>,
    ) -> Result<T, Fault> {
        match answer {
            Ok(answer) => {
                self.pause = None;
                Ok(answer)
            }
            Err(fault) => Err(self.failed(began_ms, longest, fault)),
        }
    }

    /// The time, where no pause holds.
    fn may_ask(&self, hold: Hold) -> Result<u64, Fault> {
        let now_ms = self.clock.boot_ms();
        match self.pause.as_ref().filter(|pause| pause.holds(now_ms, hold)) {
            // The store was not asked now, whatever became of the request that it did not answer.
            Some(pause) => {
                let mut fault = pause.fault.clone();
                fault.kind = FaultKind::Unavailable;
                Err(fault)
            }
            None => Ok(now_ms),
        }
    }

    /// An outage begins a pause; another fault is an answer, and ends it.
    fn failed(&mut self, began_ms: u64, longest: Option<Duration>, fault: Fault) -> Fault {
        let fault = fault.at(&self.name);
        if !gone(fault.kind) {
            self.pause = None;
            return fault;
        }
        let now_ms = self.clock.boot_ms();
        self.news.push(fault.clone().with_remedy(Remedy::Text("the other stores go on")));
        // A stop of this process is not the store's.
        let longest_ms = longest.map_or(u64::MAX, |longest| longest.as_millis() as u64);
        let took_ms = now_ms.saturating_sub(began_ms).min(longest_ms);
        // The next request that the pause refuses is not the failed request.
        let why = fault.clone().without_doing();
        self.pause = Some(Pause::after(self.pause.as_ref(), now_ms, took_ms, why));
        fault
    }

    /// Calls a verb that sends nothing to the server.
    pub(super) fn without_asking<T: Default>(
        &mut self,
        work: impl FnOnce(&mut (dyn Store + 'static)) -> T,
    ) -> T {
        self.store.without_asking(work)
    }

    /// What this store has to report since the last call.
    pub(super) fn news(&mut self) -> Vec<Fault> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.store.without_asking(Catalogue::news));
        news
    }
}

/// An operator changes a bank in all stores, after each has answered.
impl BankPart for Member {
    type Store = dyn Store;

    fn partition(&self) -> Option<Partition> {
        Some(self.partition)
    }

    fn ask<T>(&mut self, work: impl FnOnce(&mut Self::Store) -> Result<T, Fault>) -> Result<T, Fault> {
        self.operate(|conversation| work(conversation.store))
    }

    fn said(&self, fault: Fault) -> Fault {
        Member::said(self, fault)
    }
}
