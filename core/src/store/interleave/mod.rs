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
mod counters;
mod marks;
mod record;
mod rotation;
mod routes;
mod workers;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bank;
use super::model::partition::Partition;
pub(crate) use super::model::partition::{MOST_STORES, WIDEST_CHUNK};
use super::model::rows;
use super::{
    BankChange, BankRows, BankStore, BeginMark, Catalogue, Facts, Fault, FaultKind, GiveBack, Key,
    MAX_NUMBER, Mark, PoolRows, RaisePool, Release, Remedy, Renewal, Renewed, Request, Reserved, RouteStore,
    Row, RowStore, SlotStore, Store, StoredTable, Take, Taken, Work,
};
use crate::request::bank_spec::{BankSpec, OpenBank};
use marks::of_one_store;
use record::Recorded;
use rotation::{LastResorts, LeftOver, MemberRow, Pause, Rotation, is_active};

/// `chunk=`, unless given: as wide as the largest step, so that every adaptive step fits into one chunk.
pub(crate) const DEFAULT_CHUNK: u64 = 10_000_000;
/// The narrowest chunk: in a narrower one every reservation would end its chunk.
pub(crate) const NARROWEST_CHUNK: u64 = 1000;

/// The rest of a reservation beyond its chunk's end is issued within this time or never: ids follow time.
const LEFT_OVER: Duration = Duration::from_secs(30);
/// How often one reservation may raise a ticket's counter before the fault is that other processes are faster.
const RAISES: u32 = 3;

/// One of the stores.
struct Member {
    store: Box<dyn Store>,
    partition: Partition,
    /// `store 2 of 2 (mysql://b:3306/ids)`.
    name: String,
    pause: Option<Pause>,
}

impl Member {
    fn said(&self, fault: Fault) -> Fault {
        fault.at(&self.name)
    }
}

/// Several stores that serve each source together.
pub struct Interleaved {
    members: Vec<Member>,
    sources: HashMap<String, Rotation>,
    /// Pools of leased workers whose records were compared, by table and name, and the stores that lease none of their slots.
    pools: HashMap<(String, String), Vec<usize>>,
    /// Fixed workers that have begun while a store could not record them.
    unrecorded: Vec<BeginMark>,
    news: Vec<Fault>,
}

impl fmt::Debug for Interleaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(|member| &member.name).collect();
        f.debug_struct("Interleaved").field("stores", &names).finish_non_exhaustive()
    }
}

impl Interleaved {
    /// The stores in their order, each with the name that messages call it by (never a user or a password), and the chunk.
    ///
    /// The numbers depend on the order and the chunk: the same stores in another order are refused.
    #[must_use]
    pub fn new(stores: Vec<(String, Box<dyn Store>)>, chunk: u64) -> Interleaved {
        let of = stores.len();
        let members = stores.into_iter().enumerate().map(|(index, (name, store))| Member {
            store,
            partition: Partition {
                stores: of as u64,
                index: index as u64,
                chunk: chunk.clamp(1, WIDEST_CHUNK),
            },
            name: format!("store {} of {of} ({name})", index + 1),
            pause: None,
        });
        Interleaved {
            members: members.collect(),
            sources: HashMap::new(),
            pools: HashMap::new(),
            unrecorded: Vec::new(),
            news: Vec::new(),
        }
    }

    fn rotation_of(&mut self, key: &Key) -> Rotation {
        self.sources.remove(&record::identity(key)).unwrap_or_else(|| Rotation {
            begun: false,
            turn: fastrand::usize(..self.members.len().max(1)),
            rows: vec![MemberRow::default(); self.members.len()],
            left_over: None,
        })
    }

    fn keep(&mut self, key: &Key, rotation: Rotation) {
        self.sources.insert(record::identity(key), rotation);
    }

    /// Leaves the store, or this source's row there, out for a while, and reports it.
    fn leave_out(&mut self, rotation: &mut Rotation, at: usize, fault: Fault) {
        let (member, row) = (&mut self.members[at], &mut rotation.rows[at]);
        // A server's fault concerns every source.
        let pause = if gone(fault.kind) { &mut member.pause } else { &mut row.pause };
        if fault.kind != FaultKind::Exhausted {
            self.news
                .push(fault.clone().at(&member.name).with_remedy(Remedy::Text("the other stores go on")));
        }
        // A fault of one row shows that the server answers; `Exhausted` may come without a query.
        let is_there = !gone(fault.kind) && fault.kind != FaultKind::Exhausted;
        *pause = Some(Pause::after(pause.as_ref(), fault));
        if is_there {
            member.pause = None;
        }
    }

    /// Refuses a number below every row, most likely a typing error: it would raise none of them.
    fn not_lower(&self, found: &[Recorded], to: u64) -> Result<(), Fault> {
        let rows: Option<Vec<_>> = self
            .members
            .iter()
            .zip(found)
            .map(|(member, row)| match row {
                Recorded::Ours { next } => Some((member.partition.stands(*next), &member.name)),
                _ => None,
            })
            .collect();
        match rows.and_then(|rows| rows.into_iter().min()) {
            Some((lowest, name)) if lowest > to => Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "the lowest of its rows, that of {name}, stands at {lowest}, above {to}, and repair never lowers a row"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Why a store is not asked now.
    fn why<'a>(&'a self, rotation: &'a Rotation, at: usize) -> Option<&'a Pause> {
        let (member, row) = (self.members[at].pause.as_ref(), rotation.rows[at].pause.as_ref());
        if is_active(member) { member } else { row.or(member) }
    }

    fn is_paused(&self, rotation: &Rotation, at: usize) -> bool {
        is_active(self.members[at].pause.as_ref()) || is_active(rotation.rows[at].pause.as_ref())
    }

    /// The stores to ask, beginning with store `first`: those not left out, and then the others, by the end of their pause.
    fn order(&self, rotation: &Rotation, first: usize) -> (Vec<usize>, Vec<usize>) {
        let count = self.members.len();
        let all = (0..count).map(|after| (first + after) % count);
        let (mut paused, ready): (Vec<_>, Vec<_>) = all.partition(|&at| self.is_paused(rotation, at));
        paused.sort_by_key(|&at| self.why(rotation, at).map(|pause| pause.until));
        (ready, paused)
    }

    /// No store had a number.
    fn none(&self, rotation: &Rotation, doing: &str) -> Fault {
        let faults: Vec<Fault> = (0..self.members.len())
            .filter_map(|at| Some(self.members[at].said(self.why(rotation, at)?.fault.clone())))
            .collect();
        let kinds = || faults.iter().map(|fault| fault.kind);
        let kind = if kinds().any(gone) {
            FaultKind::Unavailable
        } else {
            // `Exhausted` only if every store is: another store could still have numbers.
            kinds().find(|kind| *kind != FaultKind::Exhausted).unwrap_or(FaultKind::Exhausted)
        };
        Fault::all(kind, faults).with_context(doing)
    }

    fn reserve_in_rotation(&mut self, rotation: &mut Rotation, request: &Request) -> Result<Reserved, Fault> {
        if let Some(reserved) = self.left_over(rotation, request) {
            return Ok(reserved);
        }
        if !rotation.begun {
            self.begin(rotation, request)?;
        }
        let (ready, paused) = self.order(rotation, rotation.turn);
        let mut last_resorts = LastResorts::default();
        for at in ready.into_iter().chain(paused.into_iter().take_while(|_| last_resorts.another())) {
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
        let waited = left.since.elapsed();
        let ttl_ms = left.ttl_ms.map(|ttl| ttl.saturating_sub(waited.as_millis() as u64));
        if waited > LEFT_OVER || ttl_ms == Some(0) {
            return None;
        }
        self.issue(rotation, left, request).map(|reserved| Reserved { ttl_ms, ..reserved })
    }

    /// Cuts the first range that the caller may have from a store's own numbers, up to the end of its chunk; the rest is
    /// kept for the next call.
    fn issue(&self, rotation: &mut Rotation, own: LeftOver, request: &Request) -> Option<Reserved> {
        let partition = self.members[own.member].partition;
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

    /// Compares the records of all stores before the first number: a store that was added, removed or has changed places
    /// would give numbers that another store owns.
    fn begin(&mut self, rotation: &mut Rotation, request: &Request) -> Result<(), Fault> {
        let doing = rows::reserving(request);
        let key = &request.key;
        let mut found: Vec<Option<Recorded>> = vec![None; self.members.len()];
        let (ready, mut paused) = self.order(rotation, 0);
        if !ready.is_empty() {
            paused.clear();
        }
        let mut last_resorts = LastResorts::default();
        for at in ready.into_iter().chain(paused.into_iter().take_while(|_| last_resorts.another())) {
            match self.members[at].inspect_from(key, request.start) {
                Ok(row) => found[at] = Some(row),
                Err(fault) => self.leave_out(rotation, at, fault),
            }
        }
        for (member, row) in self.members.iter().zip(&found) {
            if let Some(refusal) = row.as_ref().and_then(|row| member.refusal(key, row)) {
                return Err(member.said(refusal).with_context(&doing));
            }
        }
        let issued = |row: &Option<Recorded>, member: &Member| match row {
            Some(Recorded::Ours { next }) => *next > member.first(key, request.start),
            // A deleted row may have stood anywhere.
            Some(Recorded::Lost) => true,
            _ => false,
        };
        let in_use = found.iter().zip(&self.members).any(|(row, member)| issued(row, member));
        if !in_use && found.iter().all(Option::is_none) {
            return Err(self.none(rotation, &doing));
        }
        // Records are made from the first store to the last: a missing record before an existing one was lost.
        let nothing = found.iter().position(|row| *row == Some(Recorded::Nothing));
        let is_ours = |row: &Option<Recorded>| matches!(row, Some(Recorded::Ours { .. }));
        let is_new = !in_use && nothing.is_some_and(|at| !found[at..].iter().any(is_ours));
        if is_new {
            self.found_source(rotation, request, &found)?;
            found.fill(Some(Recorded::Ours { next: 0 }));
        }
        if !in_use {
            // The first store issues the first numbers, if it answers: from then on the loss of any single row is detected.
            rotation.turn = 0;
        }
        for (at, row) in found.iter().enumerate() {
            match row {
                Some(Recorded::Ours { .. }) => rotation.rows[at].known = true,
                // Other stores have issued numbers, and no store issues any before all have their records. But those
                // records may have been made after this store was read, so it is read again.
                Some(Recorded::Nothing | Recorded::Lost) => match self.members[at].know(key) {
                    Ok(()) => rotation.rows[at].known = true,
                    Err(fault) => self.leave_out(rotation, at, fault),
                },
                _ => {}
            }
        }
        rotation.begun = true;
        Ok(())
    }

    /// Begins a new source: every store records its partition before any of them issues a number. So a missing record
    /// beside a row with numbers means that the record was lost.
    fn found_source(
        &mut self,
        rotation: &Rotation,
        request: &Request,
        found: &[Option<Recorded>],
    ) -> Result<(), Fault> {
        let doing = format!("beginning `{}`", request.key.name);
        if let Some(at) = found.iter().position(Option::is_none) {
            let why = self.why(rotation, at).map_or_else(String::new, |pause| format!(": {}", pause.fault));
            // Not `Unavailable`: that would hold up other sources, which have begun.
            let missing = format!(
                "a new source begins when every store answers, and {} does not{why}; sources that have begun go on",
                self.members[at].name
            );
            return Err(Fault::new(FaultKind::Refused, missing).with_context(&doing));
        }
        // All rows before the first record: a record means that its row was made.
        for (member, row) in self.members.iter_mut().zip(found) {
            if matches!(row, Some(Recorded::Nothing)) && !record::in_row(&request.key) {
                let made = member.make_row(&request.key, request.start);
                made.map_err(|fault| member.said(fault).with_context(&doing))?;
            }
        }
        let mut plain = 0;
        for (member, row) in self.members.iter_mut().zip(found) {
            if matches!(row, Some(Recorded::Nothing)) {
                let start = member.partition.first(request.start);
                let recorded = member.record(&request.key, start);
                plain = plain.max(recorded.map_err(|fault| member.said(fault).with_context(&doing))?);
            }
        }
        if plain > 1 {
            // A mill with one store has begun the same source meanwhile. From now on it is refused; the numbers it took are
            // skipped.
            for member in &mut self.members {
                match member.raise_to(&request.key, &Recorded::Ours { next: 0 }, plain) {
                    Err(fault) if fault.kind != FaultKind::Refused => {
                        return Err(member.said(fault).with_context(&doing));
                    }
                    _ => {}
                }
            }
        }
        // After all have recorded: another process may have been faster, and two of the URLs may lead to one store.
        for member in &mut self.members {
            member.know(&request.key).map_err(|fault| member.said(fault).with_context(&doing))?;
        }
        Ok(())
    }

    /// Reserves from one store.
    fn draw(&mut self, rotation: &mut Rotation, at: usize, request: &Request) -> Result<Reserved, Fault> {
        let (member, row) = (&mut self.members[at], &mut rotation.rows[at]);
        if !row.known {
            member.know(&request.key)?;
            row.known = true;
        }
        let partition = member.partition;
        let last = partition.last(request.last.min(MAX_NUMBER));
        // The lowest own number that the caller may have.
        let lowest = partition.first(request.high_water.next.max(1));
        if lowest > last {
            return Err(Fault::new(FaultKind::Exhausted, "every number of its partition has been reserved"));
        }
        for _ in 0..RAISES {
            let asked = member.request_for(request, row.seen, lowest, last);
            let got = match member.store.reserve(&asked) {
                Ok(got) => got,
                Err(fault) => return Err(member.explain(request, row, fault)),
            };
            if got.lo < row.seen.max(1) || got.hi <= got.lo || got.period != asked.period {
                let what = format!("it answered with {}..{}, not above {}", got.lo, got.hi, row.seen);
                return Err(Fault::new(FaultKind::WentBackwards, what));
            }
            row.seen = got.hi;
            (member.pause, row.pause) = (None, None);
            if got.hi > lowest {
                let since = Instant::now();
                let own = LeftOver { member: at, lo: got.lo, hi: got.hi, since, ttl_ms: got.ttl_ms };
                return self.issue(rotation, own, request).ok_or_else(rows::moved_on);
            }
            // A counter of the server's own cannot be raised in the same statement: raise it, then reserve again.
            match member.store.repair(&request.key, Mark { period: 0, next: lowest }) {
                Err(fault) if fault.kind != FaultKind::Refused => return Err(fault),
                _ => {}
            }
        }
        Err(rows::moved_on())
    }

    /// The record of every store: of those that answer, and the faults of the others.
    fn inspect_all(&mut self, key: &Key) -> Vec<Result<Recorded, Fault>> {
        self.members
            .iter_mut()
            .map(|member| member.inspect(key).map_err(|fault| member.said(fault)))
            .collect()
    }

    /// The store that keeps a snowflake's mark, which one store has to compare: as a leased worker, worker w lives in store w mod N.
    fn home_at(&self, key: &Key) -> usize {
        // The key of a mark ends in `worker=N`.
        let worker = key.name.rsplit_once('=').and_then(|(_, worker)| worker.parse::<usize>().ok());
        worker.unwrap_or(0) % self.members.len().max(1)
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

/// Whether the key is a mark, which is no counter: a snowflake's, or a bank's record or floor.
fn is_mark(key: &Key) -> bool {
    key.name.starts_with("snowflake:") || crate::request::bank_spec::is_mark(key)
}

fn check_shared(key: &Key) -> Result<(), Fault> {
    if key.serial.is_none() {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "`{}`: serial numbers count each period from 1 in one row, so several `stores` cannot serve them; open them in a \
             mill with one store",
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
        let answer = self.reserve_in_rotation(&mut rotation, request);
        self.keep(&request.key, rotation);
        answer
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        if is_mark(key) {
            let period = self.period_of_mark(key, period);
            return self.home(key)?.store.give_back(key, period, lo, hi);
        }
        let rotation = self.rotation_of(key);
        let left = rotation.left_over;
        self.keep(key, rotation);
        // From the top down, chunk by chunk, each to its owner.
        let mut hi = hi;
        while lo < hi {
            let Some((at, partition)) = self
                .members
                .iter()
                .enumerate()
                .map(|(at, member)| (at, member.partition))
                .find(|(_, partition)| partition.global(partition.last(hi - 1)) == Some(hi - 1))
            else {
                return Ok(false);
            };
            let last = partition.last(hi - 1);
            let begin = partition.first(lo).max(last + partition.left(last) - partition.chunk);
            // The kept rest of a reservation lies right above, in the store's own numbers.
            let end =
                left.filter(|left| (left.member, left.lo) == (at, last + 1)).map_or(last + 1, |left| left.hi);
            let member = &mut self.members[at];
            let period = member.period(key);
            // A store that is down would delay every source: these numbers are lost instead.
            if is_active(member.pause.as_ref())
                || !member.store.give_back(key, period, begin, end).map_err(|fault| member.said(fault))?
            {
                return Ok(false);
            }
            if let Some(rotation) = self.sources.get_mut(&record::identity(key)) {
                // The kept rest is returned with them.
                rotation.left_over = None;
            }
            let Some(begins) = partition.global(begin) else { return Ok(false) };
            hi = begins;
        }
        Ok(true)
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        if !self.unrecorded.is_empty() {
            self.record_again(key)?;
        }
        let member = self.home(key)?;
        member.store.raise(key, expect, to).map_err(|fault| member.said(fault))
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        if is_mark(key) {
            let member = self.home(key)?;
            return Ok(member.store.look(key)?.map(of_one_store));
        }
        check_shared(key)?;
        let found = self.inspect_all(key);
        if found.iter().all(Result::is_err) {
            return found.into_iter().find_map(Result::err).map_or(Ok(None), Err);
        }
        let stands = |(row, member): (&Result<Recorded, Fault>, &Member)| match row {
            Ok(Recorded::Ours { next }) if *next > 0 => Some(member.partition.stands(*next)),
            _ => None,
        };
        // The lowest number that no store has reserved.
        let next = found.iter().zip(&self.members).filter_map(stands).min();
        if next.is_none()
            && found.iter().all(|row| matches!(row, Ok(Recorded::Nothing | Recorded::Ours { .. })))
        {
            return Ok(None);
        }
        if next.is_none() && found.iter().any(|row| matches!(row, Ok(Recorded::Foreign { .. }))) {
            let refused = |(row, member): (&Result<Recorded, Fault>, &Member)| {
                member.refusal(key, row.as_ref().ok()?).map(|refusal| member.said(refusal))
            };
            return found.iter().zip(&self.members).find_map(refused).map_or(Ok(None), Err);
        }
        let each = found.iter().zip(&self.members).map(|(row, member)| match row {
            Ok(Recorded::Nothing) if next.is_some() => {
                format!("{}: {}", member.name, member.shown(key, &Recorded::Lost))
            }
            Ok(row) => format!("{}: {}", member.name, member.shown(key, row)),
            Err(fault) => fault.to_string(),
        });
        let text = each.collect::<Vec<_>>().join("; ");
        Ok(Some(Row { mark: Mark { period: 0, next: next.unwrap_or(0) }, text, counter: None }))
    }

    fn warnings_of(&mut self, key: &Key) -> Result<Vec<Fault>, Fault> {
        if is_mark(key) {
            return Ok(Vec::new());
        }
        check_shared(key)?;
        let found = self.inspect_all(key);
        let in_use = found.iter().any(|row| matches!(row, Ok(Recorded::Ours { .. } | Recorded::Lost)));
        let warning = |(row, member): (&Result<Recorded, Fault>, &Member)| match row {
            Ok(Recorded::Nothing) if !in_use => None,
            Ok(Recorded::Nothing | Recorded::Lost) => Some(member.said(record::lost(key))),
            Ok(row) => member.refusal(key, row).map(|refusal| member.said(refusal)),
            Err(fault) => Some(fault.clone()),
        };
        Ok(found.iter().zip(&self.members).filter_map(warning).collect())
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if is_mark(key) {
            return self.home(key)?.store.repair(key, to);
        }
        check_shared(key)?;
        let doing = format!("repairing `{}`", key.name);
        // All are asked before any is raised.
        let before = self.look(key)?;
        let found: Vec<Recorded> = self.inspect_all(key).into_iter().collect::<Result<_, _>>()?;
        for (member, row) in self.members.iter_mut().zip(&found) {
            member.may_adopt(key, row, to.next).map_err(|fault| member.said(fault).with_context(&doing))?;
        }
        self.not_lower(&found, to.next).map_err(|fault| fault.with_context(&doing))?;
        let key = &Arc::new(key.clone());
        for (member, row) in self.members.iter_mut().zip(&found) {
            member.raise_to(key, row, to.next).map_err(|fault| member.said(fault).with_context(&doing))?;
        }
        // A store that was left out for its row may be asked again.
        let mut rotation = self.rotation_of(key);
        rotation.rows.iter_mut().for_each(|row| *row = MemberRow { seen: row.seen, ..MemberRow::default() });
        self.keep(key, rotation);
        let after = self.look(key)?;
        after.map(|after| (before, after)).ok_or_else(|| Fault::new(FaultKind::Refused, "no store has a row"))
    }

    fn would_repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if is_mark(key) {
            return self.home(key)?.store.would_repair(key, to);
        }
        check_shared(key)?;
        for member in &mut self.members {
            member.store.writable().map_err(|fault| rows::would_fail(key, member.said(fault)))?;
        }
        let before = self.look(key)?;
        let found: Vec<Recorded> = self.inspect_all(key).into_iter().collect::<Result<_, _>>()?;
        self.not_lower(&found, to.next).map_err(|fault| rows::would_fail(key, fault))?;
        let (mut next, mut each) = (u64::MAX, Vec::new());
        for (member, row) in self.members.iter().zip(&found) {
            member.may_adopt(key, row, to.next).map_err(|fault| rows::would_fail(key, member.said(fault)))?;
            let stands = member.partition.stands(member.would_stand(key, row, to.next)?);
            next = next.min(stands);
            each.push(format!("{}: next={stands}", member.name));
        }
        Ok((before, Row { mark: Mark { period: 0, next }, text: each.join("; "), counter: None }))
    }
}

impl SlotStore for Interleaved {
    fn take_slot(&mut self, take: &Take) -> Result<Taken, Fault> {
        self.take_from_one(take)
    }

    fn renew_slots(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        self.renew_in_each(renewals)
    }

    fn free_slots(&mut self, releases: &[Release]) -> Result<Vec<bool>, Fault> {
        self.free_in_each(releases)
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
        let member = self.home(key)?;
        member.store.clock_ms(key).map_err(|fault| member.said(fault))
    }

    fn begin_mark(&mut self, begin: &BeginMark) -> Result<u64, Fault> {
        self.begin_mark_at_home(begin)
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
        self.open_bank_in_each(key, bank)
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
        bank::look(&mut self.parts(), key, start)
    }

    fn reserve_counters(&mut self, requests: &[Request]) -> Vec<Result<Reserved, Fault>> {
        self.reserve_for_counters(requests)
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
        keys.iter().try_for_each(|key| check_shared(key))?;
        let keys = record::keys_with_records(keys);
        let mut statements = Vec::new();
        for member in &mut self.members {
            let own = member.store.init(&keys, dry_run).map_err(|fault| member.said(fault))?;
            if !own.is_empty() {
                statements.push(format!("-- {}", member.name));
            }
            statements.extend(own);
        }
        Ok(statements)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        let told: Vec<_> =
            self.members.iter_mut().map(|member| (member.name.clone(), member.store.facts())).collect();
        if told.iter().all(|(_, facts)| facts.is_err()) {
            let each = told.into_iter().filter_map(|(name, facts)| Some(facts.err()?.at(name)));
            return Err(Fault::all(FaultKind::Unavailable, each));
        }
        let chunk = self.members.first().map_or(0, |member| member.partition.chunk);
        let mut all = Facts {
            dialect: "interleaved".to_owned(),
            version: format!("over {} stores, chunk={chunk}", told.len()),
            ..Facts::default()
        };
        for (name, facts) in told {
            match facts {
                Ok(facts) => {
                    let kind = format!("{name}: {} {}", facts.dialect, facts.version);
                    all.durability.push(
                        format!("{} {}", kind.trim_end(), facts.durability.join(" ")).trim_end().to_owned(),
                    );
                    if !facts.tls.is_empty() {
                        let before = if all.tls.is_empty() { "" } else { "; " };
                        all.tls.push_str(&format!("{before}{name}: {}", facts.tls));
                    }
                    all.tables.extend(facts.tables.iter().map(|table| format!("{name}: {table}")));
                    all.warnings.extend(facts.warnings.iter().map(|warning| format!("{name}: {warning}")));
                }
                Err(fault) => all.warnings.push(format!("{name}: {fault}")),
            }
        }
        Ok(all)
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        self.members.iter_mut().filter_map(|member| member.store.release_idle(now_ms)).min()
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        let of_members: Vec<_> = self
            .members
            .iter_mut()
            .filter_map(|member| member.store.warnings().map(|warnings| (&member.name, warnings)))
            .collect();
        let named = |(name, warnings): &(&String, Vec<String>)| {
            warnings.iter().map(|warning| format!("{name}: {warning}")).collect::<Vec<_>>()
        };
        (!of_members.is_empty()).then(|| of_members.iter().flat_map(named).collect())
    }

    fn created(&mut self) -> Vec<String> {
        self.members.iter_mut().flat_map(|member| member.store.created()).collect()
    }

    fn news(&mut self) -> Vec<Fault> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.members.iter_mut().flat_map(|member| member.store.news()));
        news
    }
}
