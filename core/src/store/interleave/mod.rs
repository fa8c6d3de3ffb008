//! One source over several stores: `stores = ["mysql://a/ids", "mysql://b/ids"]`. One of them may die, and ids go on.
//!
//! It is a [`Store`] over other stores, so keeper, planner and callers know nothing of it. Each store owns every N-th chunk
//! of the numbers (`partition`) and counts its own numbers in a row of its own. So no two stores can reserve the same
//! number, whether they are up, down or cut off from each other. This module only chooses which store to ask:
//!
//! * **Rotation.** A source begins at a random store and stays there to the end of a chunk; then it moves to the next
//!   store, which owns the next chunk. So a process's numbers rise without gaps although the stores alternate, and
//!   processes spread over the stores. If a store fails, the same call goes on with the next one.
//! * **Order.** Numbers of a process rise, so a store whose row is below the caller's numbers is raised first: in the same
//!   statement, as `backwards=heal` does, but at most by the distance from where this process saw that row last. A row that
//!   was set back needs a larger jump, and is refused.
//! * **Identity.** Each row records its partition and the number of stores (`record`); both are compared before the first
//!   number.

mod banks;
mod begin;
mod complete;
mod counters;
mod marks;
mod member;
mod readers;
mod record;
mod rotation;
mod routes;
mod status;
mod workers;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::contained_store::ContainedStore;
use super::model::rows;
use super::{
    BankChange, BankRows, BankStore, BeginMark, Catalogue, Facts, Fault, FaultKind, GiveBack, Key, ListedRow,
    Mark, PoolRows, RaisePool, Release, Remedy, Renewal, Renewed, Request, Reserved, RouteStore, Row,
    RowStore, SlotStore, StoredTable, Take, Taken, Work,
};
use crate::request::bank_spec::{BankSpec, OpenBank};
use crate::request::partition::Partition;
pub(crate) use crate::request::partition::{MOST_STORES, WIDEST_CHUNK};
use crate::time::Clock;
use complete::Completion;
use member::{Conversation, Hold, LastResorts, Member, Pause};
use record::SourceId;
use rotation::{LeftOver, MemberRow, Rotation};
use workers::ComparedPool;

/// `chunk=`, unless given: as wide as the largest step, so that every adaptive step fits into one chunk.
pub(crate) const DEFAULT_CHUNK: u64 = 10_000_000;
/// The narrowest chunk: in a narrower one every reservation would end its chunk.
pub(crate) const NARROWEST_CHUNK: u64 = 1000;

/// The rest of a reservation beyond its chunk's end is issued within this time or never: ids follow time.
const LEFT_OVER_MS: u64 = 30_000;
/// Several stores that serve each source together.
pub struct Interleaved {
    members: Vec<Member>,
    clock: Clock,
    sources: HashMap<SourceId, Rotation>,
    /// Pools of leased workers whose records were compared, by table and name.
    pools: HashMap<(String, String), ComparedPool>,
    /// Fixed workers that have begun while a store could not record them.
    unrecorded: Vec<BeginMark>,
    /// Banks, by the row that says that they are complete.
    banks: HashMap<SourceId, Completion>,
    /// From a close on: the stores that were asked for a last mark.
    raised_last: Vec<bool>,
    /// Faults of single rows since they were told last.
    news: Vec<Fault>,
}

impl fmt::Debug for Interleaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(Member::name).collect();
        f.debug_struct("Interleaved").field("stores", &names).finish_non_exhaustive()
    }
}

impl Interleaved {
    /// The stores in their order, each with the name that messages call it by (never a user or a password), and the chunk.
    ///
    /// The numbers depend on the order and the chunk: the same stores in another order are refused.
    #[must_use]
    pub fn new<S: Into<ContainedStore>>(stores: Vec<(String, S)>, chunk: u64) -> Interleaved {
        let store_count = stores.len() as u64;
        let chunk = chunk.clamp(1, WIDEST_CHUNK);
        let members = (0..).zip(stores).map(|(index, (shown, store))| {
            Member::new(store.into(), Partition { stores: store_count, index, chunk }, &shown)
        });
        Interleaved {
            members: members.collect(),
            clock: Clock::System,
            sources: HashMap::new(),
            pools: HashMap::new(),
            unrecorded: Vec::new(),
            banks: HashMap::new(),
            raised_last: Vec::new(),
            news: Vec::new(),
        }
    }

    /// Pauses and ages follow this clock instead of the machine's: a test moves it by hand.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Interleaved {
        self.members.iter_mut().for_each(|member| member.set_clock(clock.clone()));
        self.clock = clock;
        self
    }

    fn rotation_of(&mut self, key: &Key) -> Rotation {
        self.sources.remove(&SourceId::of(key)).unwrap_or_else(|| Rotation {
            begun: false,
            turn: fastrand::usize(..self.members.len().max(1)),
            rows: vec![MemberRow::default(); self.members.len()],
            left_over: None,
        })
    }

    fn keep(&mut self, key: &Key, rotation: Rotation) {
        self.sources.insert(SourceId::of(key), rotation);
    }

    /// Leaves this source's row in a store out for a while, and reports it. A store that failed has a pause of its own.
    fn leave_out(&mut self, rotation: &mut Rotation, at: usize, fault: Fault) {
        if gone(fault.kind) && self.members[at].is_paused() {
            return;
        }
        if fault.kind != FaultKind::Exhausted {
            self.news.push(fault.clone().with_remedy(Remedy::Text("the other stores go on")));
        }
        let row = &mut rotation.rows[at];
        row.pause = Some(Pause::after(row.pause.as_ref(), self.clock.boot_ms(), 0, fault));
    }

    /// Asks each store that has no pause; if none of them answers, those that have one too.
    fn ask_each<T>(
        &mut self,
        mut work: impl FnMut(usize, &mut Conversation<'_>) -> Result<T, Fault>,
    ) -> Vec<Result<T, Fault>> {
        let paused: Vec<usize> = (0..self.members.len()).filter(|&at| self.members[at].is_paused()).collect();
        let mut answers: Vec<Result<T, Fault>> =
            (0..).zip(&mut self.members).map(|(at, member)| member.ask(|store| work(at, store))).collect();
        let mut last_resorts = LastResorts::default();
        if answers.iter().all(is_outage) {
            for at in self.by_end_of_pause(paused) {
                if !last_resorts.another(self.clock.boot_ms()) {
                    break;
                }
                answers[at] = self.members[at].insist(|store| work(at, store));
            }
        }
        answers
    }

    /// Asks every store for an operator, in spite of pauses, until one of them fails.
    fn operate_on_each<T>(
        &mut self,
        mut work: impl FnMut(usize, &mut Conversation<'_>) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let each = (0..).zip(&mut self.members);
        each.map(|(at, member)| member.operate(|store| work(at, store))).collect()
    }

    fn by_end_of_pause(&self, mut paused: Vec<usize>) -> Vec<usize> {
        paused.sort_by_key(|&at| self.members[at].pause().map(Pause::until_ms));
        paused
    }

    /// The outage of one store is not the mill's: what other stores can serve goes on. While the mill closes a store that was down a
    /// moment ago may be back.
    fn judged<T>(&self, answer: Result<T, Fault>) -> Result<T, Fault> {
        let others_go_on =
            || !self.raised_last.is_empty() || self.members.iter().any(|member| !member.is_paused());
        answer.map_err(|fault| if gone(fault.kind) && others_go_on() { fault.of_one_store() } else { fault })
    }

    /// Why a store is not asked now.
    fn why<'a>(&'a self, rotation: &'a Rotation, at: usize) -> Option<&'a Pause> {
        let (member, row) = (self.members[at].pause(), rotation.rows[at].pause.as_ref());
        if self.members[at].is_paused() { member } else { row.or(member) }
    }

    fn is_paused(&self, rotation: &Rotation, at: usize) -> bool {
        let row = rotation.rows[at].pause.as_ref();
        self.members[at].is_paused() || row.is_some_and(|pause| pause.is_active(self.clock.boot_ms()))
    }

    /// The stores to ask, beginning with store `first`: those not left out, and then the others, by the end of their pause.
    fn order(&self, rotation: &Rotation, first: usize) -> (Vec<usize>, Vec<usize>) {
        let count = self.members.len();
        let all = (0..count).map(|after| (first + after) % count);
        let (mut paused, ready): (Vec<_>, Vec<_>) = all.partition(|&at| self.is_paused(rotation, at));
        paused.sort_by_key(|&at| self.why(rotation, at).map(Pause::until_ms));
        (ready, paused)
    }

    /// No store had a number.
    fn none(&self, rotation: &Rotation, doing: &str) -> Fault {
        let why = |at| self.why(rotation, at).map(|pause| pause.fault().clone());
        let faults: Vec<Fault> = (0..self.members.len()).filter_map(why).collect();
        let kinds = || faults.iter().map(|fault| fault.kind);
        let kind = if kinds().any(|kind| kind == FaultKind::Closed) {
            // Counters are closed in every store.
            FaultKind::Closed
        } else if kinds().any(gone) {
            FaultKind::Unavailable
        } else {
            // `Exhausted` only if every store is: another store could still have numbers.
            kinds().find(|kind| *kind != FaultKind::Exhausted).unwrap_or(FaultKind::Exhausted)
        };
        Fault::all(kind, faults).with_context(doing)
    }

    /// Reserves for one source, or for one counter of several, which share the last resorts.
    fn reserve_in_rotation(
        &mut self,
        rotation: &mut Rotation,
        request: &Request,
        last_resorts: &mut LastResorts,
    ) -> Result<Reserved, Fault> {
        if let Some(reserved) = self.left_over(rotation, request) {
            return Ok(reserved);
        }
        if !rotation.begun {
            self.begin(rotation, request, last_resorts)?;
        }
        let (ready, paused) = self.order(rotation, rotation.turn);
        let without_pause = ready.len();
        for (nth, at) in ready.into_iter().chain(paused).enumerate() {
            if nth >= without_pause && !last_resorts.another(self.clock.boot_ms()) {
                break;
            }
            match self.draw(rotation, at, request) {
                Ok(reserved) => return Ok(reserved),
                Err(fault) => self.leave_out(rotation, at, fault),
            }
        }
        Err(self.none(rotation, &rows::reserving(request)))
    }

    /// The next range from the rest of an earlier reservation.
    fn left_over(&mut self, rotation: &mut Rotation, request: &Request) -> Option<Reserved> {
        let left = rotation.left_over.take()?;
        let waited_ms = self.clock.boot_ms().saturating_sub(left.since_ms);
        let ttl_ms = left.ttl_ms.map(|ttl| ttl.saturating_sub(waited_ms));
        if waited_ms > LEFT_OVER_MS || ttl_ms == Some(0) {
            return None;
        }
        self.issue(rotation, left, request).map(|reserved| Reserved { ttl_ms, ..reserved })
    }

    /// Cuts the first range that the caller may have from a store's own numbers, up to the end of its chunk; the rest is
    /// kept for the next call.
    fn issue(&self, rotation: &mut Rotation, own: LeftOver, request: &Request) -> Option<Reserved> {
        let partition = self.members[own.member].partition();
        let lo = own.lo.max(partition.first(request.high_water.next));
        if lo >= own.hi {
            return None;
        }
        let end = own.hi.min(lo + partition.left(lo));
        rotation.left_over = (end < own.hi).then_some(LeftOver { lo: end, ..own });
        let chunk_is_over = end == own.hi && partition.left(end) == partition.chunk;
        rotation.turn = if chunk_is_over { (own.member + 1) % self.members.len() } else { own.member };
        // Both ends lie in one chunk, so the range has the same length in the store's numbers.
        let (first, last) = (partition.global(lo)?, partition.global(end - 1)?);
        Some(Reserved { lo: first, hi: last + 1, period: 0, ttl_ms: own.ttl_ms })
    }

    /// The store that keeps a snowflake's mark, which one store has to compare: as a leased worker, worker w is in store w mod N.
    fn home_at(&self, key: &Key) -> usize {
        let stores = self.members.len().max(1);
        // The first store is asked for the rows of a bank that every store has, and for rows of no worker.
        (key.worker().unwrap_or(0) % stores as u64) as usize
    }

    fn home(&mut self, key: &Key) -> Result<&mut Member, Fault> {
        let at = self.home_at(key);
        self.members.get_mut(at).ok_or_else(|| Fault::new(FaultKind::Refused, "there are no stores"))
    }
}

/// Whether the fault concerns the server and not one row.
fn gone(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Unavailable | FaultKind::Unknown)
}

fn is_outage<T>(answer: &Result<T, Fault>) -> bool {
    answer.as_ref().is_err_and(|fault| gone(fault.kind))
}

/// Whether the key is a mark, which is no counter: a snowflake's, or a bank's record or floor.
fn is_mark(key: &Key) -> bool {
    key.worker().is_some() || key.is_of_bank()
}

fn check_shared(key: &Key) -> Result<(), Fault> {
    if key.serial.is_none() {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "`{}`: serial numbers count each period from 1 in one row, so several `stores` cannot serve them; open them in a mill with one store",
            key.name
        ),
    ))
}

impl RowStore for Interleaved {
    /// Called for imports only: every other verb is implemented below.
    fn transact(&mut self, _key: &Key, _period: u64, _work: &mut Work<'_>) -> Result<(), Fault> {
        let what = "several `stores` import no row; import it in a mill with one store";
        Err(Fault::new(FaultKind::Refused, what))
    }

    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        check_shared(&request.key)?;
        let mut rotation = self.rotation_of(&request.key);
        let answer = self.reserve_in_rotation(&mut rotation, request, &mut LastResorts::default());
        self.keep(&request.key, rotation);
        self.judged(answer)
    }

    fn give_back(&mut self, range: &GiveBack) -> Result<bool, Fault> {
        if is_mark(&range.key) { self.lower_mark(range) } else { self.give_back_in_chunks(range) }
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        let raised = self.raise_mark(key, expect, to);
        self.judged(raised)
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        self.look_at_all(key)
    }

    fn warnings_of(&mut self, key: &Key) -> Result<Vec<Fault>, Fault> {
        self.warnings_of_all(key)
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        self.repair_all(key, to)
    }

    fn would_repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        self.would_repair_all(key, to)
    }
}

impl SlotStore for Interleaved {
    fn take_slot(&mut self, take: &Take) -> Result<Taken, Fault> {
        let taken = self.take_from_one(take);
        self.judged(taken)
    }

    fn renew_slots(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let renewed = self.renew_in_each(renewals);
        let mut renewed = self.judged(renewed)?;
        renewed.marks = renewed.marks.into_iter().map(|mark| self.judged(mark)).collect();
        Ok(renewed)
    }

    fn free_slots(&mut self, releases: &[Release]) -> Result<Vec<bool>, Fault> {
        let freed = self.free_in_each(releases);
        self.judged(freed)
    }

    fn raise_pool(&mut self, raise: &RaisePool) -> Result<(PoolRows, PoolRows), Fault> {
        // All are asked before any is raised.
        self.in_each_pool(raise, |store, own| store.would_raise_pool(own))?;
        self.in_each_pool(raise, |store, own| store.raise_pool(own))
    }

    fn would_raise_pool(&mut self, raise: &RaisePool) -> Result<(PoolRows, PoolRows), Fault> {
        self.in_each_pool(raise, |store, own| store.would_raise_pool(own))
    }

    fn slots(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        self.slots_of_all(key)
    }

    fn clock_ms(&mut self, key: &Key) -> Result<u64, Fault> {
        let clock_ms = self.home(key)?.ask_alone(Hold::Alone, |store| store.clock_ms(key));
        self.judged(clock_ms)
    }

    fn begin_mark(&mut self, begin: &BeginMark) -> Result<u64, Fault> {
        let begun = self.begin_mark_at_home(begin);
        self.judged(begun)
    }

    fn repair_mark(
        &mut self,
        begin: &BeginMark,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        let doing = format!("repairing `{}`", begin.key.name);
        self.repair_mark_at_home(begin, to, dry_run).map_err(|fault| fault.with_context(&doing))
    }
}

impl BankStore for Interleaved {
    fn open_bank(&mut self, key: &Arc<Key>, bank: BankSpec) -> Result<OpenBank, Fault> {
        let opened = self.open_bank_in_each(key, bank);
        self.judged(opened)
    }

    fn change_counters(&mut self, key: &Arc<Key>, counters: u32, dry_run: bool) -> Result<BankChange, Fault> {
        self.change_counters_of_all(key, counters, dry_run)
    }

    fn repair_bank(
        &mut self,
        key: &Arc<Key>,
        bank: BankSpec,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        self.raise_counters_of_all(key, bank, to, dry_run)
    }

    fn look_bank(&mut self, key: &Key, start: u64) -> Result<Option<BankRows>, Fault> {
        self.look_at_bank(key, start)
    }

    fn reserve_counters(&mut self, requests: &[Request]) -> Vec<Result<Reserved, Fault>> {
        let answers = self.reserve_for_counters(requests);
        answers.into_iter().map(|answer| self.judged(answer)).collect()
    }

    fn give_back_counters(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        self.give_back_of_counters(ranges)
    }
}

impl RouteStore for Interleaved {
    fn read_route(&mut self, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
        self.newest_route(key, known)
    }

    fn list_routes(&mut self, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        self.newest_routes(key)
    }

    fn replace_route(&mut self, key: &Key, _old: Option<u64>, new: (u64, &str)) -> Result<bool, Fault> {
        self.replace_route_in_each(key, new)
    }
}

impl Catalogue for Interleaved {
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        self.init_each(keys, dry_run)
    }

    fn list_rows(&mut self, key: &Key, most: usize) -> Result<Vec<ListedRow>, Fault> {
        self.rows_of_each(key, most)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        self.facts_of_all()
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        let each = self.members.iter_mut();
        each.filter_map(|member| member.without_asking(|store| store.release_idle(now_ms))).min()
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        self.warnings_read_last()
    }

    fn created(&mut self) -> Vec<String> {
        self.members.iter_mut().flat_map(|member| member.without_asking(Catalogue::created)).collect()
    }

    fn news(&mut self) -> Vec<Fault> {
        let mut news: Vec<Fault> = self.members.iter_mut().flat_map(Member::news).collect();
        news.append(&mut self.news);
        news
    }

    fn closing(&mut self) {
        self.raised_last = vec![false; self.members.len()];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::{Memory, MemoryStore};
    use crate::store::{Left, OwnSlot, Scheme};

    fn of_two() -> ([Arc<Memory>; 2], Interleaved) {
        let memories = [Memory::new(), Memory::new()];
        let stores = memories.each_ref().map(|memory| {
            let store: Box<dyn crate::store::Store> = Box::new(MemoryStore::new(Arc::clone(memory)));
            ("memory:".to_owned(), store)
        });
        (memories, Interleaved::new(stores.into(), 1_000))
    }

    #[test]
    fn the_outage_of_one_store_is_not_the_mills_and_that_of_all_is() {
        let ([one, other], mut stores) = of_two();
        let mark = Key::mark("keymill_segment", "tx", "time:41", 1);
        assert_eq!(stores.raise(&mark, None, 500), Ok(0));
        let pool = Arc::new(Key::pool("keymill_worker", "tx"));
        let own = |slot| OwnSlot {
            key: Arc::clone(&pool),
            slot,
            left: vec![Left { token: 7, mark: 1 }],
            source: "".into(),
        };
        let renewal = |slot| Renewal { own: own(slot), to: Left { token: 8, mark: 2 }, lease_ms: 60_000 };
        other.set_down(true);
        let faults = |stores: &mut Interleaved| {
            let begun = OpenBank { counters: 1, floor: 0 };
            let bank = BankSpec { counters: 1, is_named: true, wide: false };
            let record = Arc::new(Key::bank("keymill_segment", "order"));
            [
                stores.raise(&mark, None, 900).map(drop),
                stores.clock_ms(&mark).map(drop),
                stores.renew_slots(&[renewal(1)]).map(drop),
                stores.open_bank(&record, bank).map(|open| assert_eq!(open, begun)),
            ]
            .map(|answer| answer.expect_err("it is down"))
        };
        for fault in faults(&mut stores) {
            assert!(fault.kind.is_outage() && !fault.is_outage(), "{fault}");
        }
        one.set_down(true);
        let segment = Arc::new(Key::segment(Scheme::Keymill, "keymill_segment", "orders"));
        let all = stores.reserve(&Request::new(&segment, 1)).expect_err("both are down");
        assert!(all.is_outage(), "{all}");
        for fault in faults(&mut stores) {
            assert!(fault.is_outage(), "{fault}");
        }
    }

    #[test]
    fn the_outage_of_one_store_ends_no_close() {
        let ([one, other], mut stores) = of_two();
        let mark = |worker| Key::mark("keymill_segment", "tx", "time:41", worker);
        assert_eq!(stores.raise(&mark(0), None, 500), Ok(0));
        one.set_down(true);
        stores.raise(&mark(0), None, 900).expect_err("it is down");
        one.set_down(false);
        other.set_down(true);
        stores.closing();
        let fault = stores.raise(&mark(1), None, 900).expect_err("it is down");
        assert!(!fault.is_outage(), "the first store is back: {fault}");
        assert_eq!(stores.raise(&mark(0), None, 900), Ok(500));
    }
}
