//! Leased workers over several stores: a slot is in the store whose index is its remainder by the number of stores, which each
//! pool records. If a store is down, its slots end with their leases, and the sources that had them lease slots of other stores.

use crate::store::{
    Fault, FaultKind, Key, PoolRows, RaisePool, Release, Remedy, Renewal, Renewed, Take, Taken,
};

use crate::store::model::slot_rows;
use crate::store::on_slots;
use crate::store::places;

use super::member::{ALONE_MS, Conversation, Hold, LastResorts};
use super::{Interleaved, gone, is_outage};

/// A pause takes this part of a lease at most from its renewal: of the two thirds in which a lease is renewed enough is left.
const PART_OF_LEASE: u64 = 6;

/// What is known of the records of a pool.
#[derive(Debug, Default)]
pub(super) struct ComparedPool {
    /// Stores without the record, which lease none of their slots.
    left_out: Vec<usize>,
    /// Every store has answered.
    is_compared: bool,
}

/// What the stores have of a pool.
struct FoundPools {
    each: Vec<Result<PoolRows, Fault>>,
    /// Of a store that did not answer.
    down: Option<Fault>,
    /// A store has a slot of it, or the note that all stores have recorded it.
    has_leased: bool,
}

/// Adds the rows of one store to the other stores' rows.
fn add(all: &mut PoolRows, pool: PoolRows) {
    all.record = all.record.take().or(pool.record);
    all.now_ms = all.now_ms.max(pool.now_ms);
    all.floor = all.floor.max(pool.floor);
    all.slots.extend(pool.slots);
    all.slots.sort_by_key(|row| row.slot);
    all.others.extend(pool.others);
    all.others.sort_unstable();
    all.others.dedup();
}

/// What a store records of a pool; an error if it belongs to another list.
fn recorded_pool(store: &mut Conversation<'_>, take: &Take) -> Result<PoolRows, Fault> {
    let found = store.slots(&take.key)?;
    slot_rows::check_layout(&take.key, &take.layout, store.index(), &found)?;
    Ok(found)
}

/// A store has no record of a pool that the others have leased from.
fn lost_pool(take: &Take) -> Fault {
    let name = &take.key.name;
    Fault::new(
        FaultKind::Refused,
        format!(
            "it has no record of pool `{name}`, which other stores have begun: it is not one of the stores that the pool was begun with, or has lost its rows, and would lease workers again that are in use; open the pool with the stores it was begun with"
        ),
    )
    .with_remedy(Remedy::Text(
        "where its rows are lost, stop every program that uses it, then run `keymill repair snowflake:NAME --to now --yes`",
    ))
}

impl Interleaved {
    /// Compares what the stores record of a pool before this process takes the first slot of it; answers with the stores that
    /// lease none. A new pool is recorded by every store, and then each of them notes that all have, before any of them leases a slot.
    /// So a store without the record, beside one with the note, was added or has lost its rows: it would lease slots that
    /// another store has. A slot says as much as the note.
    fn begin_pool(&mut self, take: &Take) -> Result<Vec<usize>, Fault> {
        let pool = (take.key.table.clone(), take.key.name.to_string());
        // Stores that were left out are asked again: `repair` may have raised them.
        if self.pools.get(&pool).is_some_and(|known| known.is_compared && known.left_out.is_empty()) {
            return Ok(Vec::new());
        }
        let FoundPools { each, down, has_leased } = self.find_pools(take)?;
        if let Some(places) = take.beside.places.as_ref()
            && !each.iter().flatten().any(|pool| pool.record.is_some())
        {
            for member in &mut self.members {
                member.ask(|store| {
                    let index = store.index();
                    places::check_pools(&mut **store, places, index)
                })?;
            }
        }
        let mut left_out: Vec<usize> =
            (0..each.len()).filter(|at| matches!(&each[*at], Ok(pool) if pool.record.is_none())).collect();
        if down.is_none() {
            self.record_pool(take, &each, &mut left_out, has_leased)?;
        }
        // Another process may have begun the pool between two of the questions.
        left_out.retain(|at| match self.members[*at].ask(|store| store.slots(&take.key)) {
            Ok(pool) => pool.record.is_none(),
            Err(_) => true,
        });
        // While a store is down, it may be that no process has ever leased.
        if down.is_none() || has_leased {
            let compared = ComparedPool { left_out: left_out.clone(), is_compared: down.is_none() };
            let known = self.pools.insert(pool, compared).unwrap_or_default().left_out;
            for at in left_out.iter().filter(|at| !known.contains(at)) {
                self.news.push(self.members[*at].said(lost_pool(take)));
            }
        }
        Ok(left_out)
    }

    /// What each store has of a pool. Where a store does not answer, the others have to know that the pool has leased.
    fn find_pools(&mut self, take: &Take) -> Result<FoundPools, Fault> {
        let has_leased = |pool: &PoolRows| pool.floor > 0 || !pool.slots.is_empty();
        let mut each = self.recorded_pools(take);
        if !each.iter().flatten().any(has_leased) {
            // All of them are needed.
            for (member, pool) in self.members.iter_mut().zip(&mut each).filter(|(_, pool)| is_outage(pool)) {
                *pool = member.ask_alone(Hold::Alone, |store| recorded_pool(store, take));
            }
        }
        let down = each.iter().find_map(|pool| pool.as_ref().err()).cloned();
        let has_leased = each.iter().flatten().any(has_leased);
        match down {
            Some(fault) if !gone(fault.kind) => Err(fault),
            // Without a note or a slot the beginning may have been cut off, and the store that is down may lack the record.
            Some(fault) if !has_leased => Err(fault
                .with_context("beginning a pool of leased workers, for which every store has to answer,")),
            down => Ok(FoundPools { each, down, has_leased }),
        }
    }

    /// Records a pool that has leased nothing in the stores without the record, which leaves none of them out. Where all stores have the
    /// record, each that lacks it gets the note that they have.
    fn record_pool(
        &mut self,
        take: &Take,
        each: &[Result<PoolRows, Fault>],
        left_out: &mut Vec<usize>,
        has_leased: bool,
    ) -> Result<(), Fault> {
        let doing = format!("beginning pool `{}`", take.key.name);
        if !has_leased {
            for at in left_out.drain(..) {
                self.members[at].ask(|store| {
                    let own = Take { store: store.index(), ..take.clone() };
                    on_slots(&mut **store, &take.key, &doing, |rows, _| slot_rows::begin(rows, &own))
                        .map(drop)
                })?;
            }
        }
        if !left_out.is_empty() {
            return Ok(());
        }
        let has_note = |pool: &Result<PoolRows, Fault>| pool.as_ref().is_ok_and(|pool| pool.floor > 0);
        for (member, _) in self.members.iter_mut().zip(each).filter(|(_, pool)| !has_note(pool)) {
            member.ask(|store| {
                on_slots(&mut **store, &take.key, &doing, |rows, _| slot_rows::note_recorded(rows, &take.key))
            })?;
        }
        Ok(())
    }

    fn recorded_pools(&mut self, take: &Take) -> Vec<Result<PoolRows, Fault>> {
        self.ask_each(|_, store| recorded_pool(store, take))
    }

    /// Asks the stores in turn, from a random one on; those that failed a moment ago come last.
    pub(super) fn take_from_one(&mut self, take: &Take) -> Result<Taken, Fault> {
        let left_out = self.begin_pool(take)?;
        let count = self.members.len();
        let first = fastrand::usize(..count.max(1));
        let all = (0..count).map(|after| (first + after) % count).filter(|at| !left_out.contains(at));
        let (paused, ready): (Vec<_>, Vec<_>) = all.partition(|&at| self.members[at].is_paused());
        let mut last_resorts = LastResorts::default();
        let mut has_answer = false;
        let mut faults: Vec<Fault> =
            left_out.iter().map(|at| self.members[*at].said(lost_pool(take))).collect();
        let without_pause = ready.len();
        for (nth, at) in ready.into_iter().chain(self.by_end_of_pause(paused)).enumerate() {
            let hold = match nth < without_pause {
                true => Hold::Whole,
                // A store that does not answer costs its timeout: another one's refusal is enough for a while.
                false if has_answer => Hold::Alone,
                false if last_resorts.another(self.clock.boot_ms()) => Hold::AtMost(0),
                false => break,
            };
            let taken = self.members[at].ask_alone(hold, |store| {
                // A store may have lost its rows since the records were compared.
                if recorded_pool(store, take)?.record.is_none() {
                    return Err(lost_pool(take));
                }
                let own = Take { store: store.index(), ..take.clone() };
                store.take_slot(&own)
            });
            match taken {
                Ok(taken) => {
                    self.check_fixed_elsewhere(take, at, &taken)?;
                    return Ok(taken);
                }
                Err(fault) => {
                    has_answer |= !gone(fault.kind);
                    faults.push(fault);
                }
            }
        }
        let kinds = || faults.iter().map(|fault| fault.kind);
        let kind = kinds().find(|kind| !gone(*kind) && *kind != FaultKind::NoneFree);
        let down = kinds().any(gone).then_some(FaultKind::Unavailable);
        Err(Fault::all(kind.or(down).unwrap_or(FaultKind::NoneFree), faults))
    }

    /// Refuses a slot that was a fixed worker under another list of stores: then its mark may be in another store than the slot's.
    fn check_fixed_elsewhere(&mut self, take: &Take, home: usize, taken: &Taken) -> Result<(), Fault> {
        let Some(places) = take.beside.places.as_ref().filter(|_| taken.has_moved) else { return Ok(()) };
        let mut refusal = None;
        for (_, member) in self.members.iter_mut().enumerate().filter(|(at, _)| *at != home) {
            let checked = member.ask(|store| {
                let index = store.index();
                places::check_fixed(&mut **store, places, taken.slot, index)
            });
            match checked {
                // A store that is down keeps no process of the other stores from its worker.
                Err(fault) if gone(fault.kind) => {}
                Err(fault) => refusal = Some(fault),
                Ok(()) => {}
            }
        }
        let Some(refusal) = refusal else { return Ok(()) };
        let _ = self.members[home].ask(|store| places::pass_over(&mut **store, take, taken));
        Err(refusal)
    }

    /// Renews each lease in the store that has its slot.
    pub(super) fn renew_in_each(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let mut marks: Vec<Option<Result<u64, Fault>>> = vec![None; renewals.len()];
        let mut now_ms = 0;
        for at in 0..self.members.len() {
            let (places, own) = self.of_member(renewals, at, |renewal| renewal.own.slot);
            if own.is_empty() {
                continue;
            }
            // No other store can renew them: the pause ends so early that a store that is back does it in time.
            let shortest_ms = own.iter().map(|renewal| renewal.lease_ms).min().unwrap_or(0);
            let hold = Hold::AtMost(ALONE_MS.min(shortest_ms / PART_OF_LEASE));
            match self.members[at].ask_alone(hold, |store| store.renew_slots(&own)) {
                Ok(renewed) => {
                    now_ms = renewed.now_ms;
                    for (place, mark) in places.into_iter().zip(renewed.marks) {
                        marks[place] = Some(mark);
                    }
                }
                Err(fault) => {
                    for place in places {
                        marks[place] = Some(Err(fault.clone()));
                    }
                }
            }
        }
        let unanswered = || Err(Fault::new(FaultKind::Unknown, "a store answered too few renewals"));
        let marks: Vec<_> = marks.into_iter().map(|mark| mark.unwrap_or_else(unanswered)).collect();
        // Where every store is down, the outage is the mill's.
        let outages = || marks.iter().filter_map(|mark| mark.as_ref().err()).filter(|fault| gone(fault.kind));
        if outages().count() == marks.len()
            && let Some(fault) = outages().find(|fault| fault.kind == FaultKind::Unknown).or(outages().next())
        {
            return Err(fault.clone());
        }
        Ok(Renewed { marks, now_ms })
    }

    /// Frees each slot in its store.
    pub(super) fn free_in_each(&mut self, releases: &[Release]) -> Result<Vec<bool>, Fault> {
        let mut freed = vec![false; releases.len()];
        let mut fault = None;
        for at in 0..self.members.len() {
            let (places, own) = self.of_member(releases, at, |release| release.own.slot);
            if own.is_empty() {
                continue;
            }
            // A lease that is not freed ends by itself.
            match self.members[at].ask(|store| store.free_slots(&own)) {
                Ok(answers) => {
                    places.into_iter().zip(answers).for_each(|(place, answer)| freed[place] = answer);
                }
                Err(failed) => fault = Some(failed),
            }
        }
        match fault {
            Some(fault) if !freed.contains(&true) => Err(fault),
            _ => Ok(freed),
        }
    }

    /// Does something to the pool in every store; answers with the rows of all of them before and after.
    pub(super) fn in_each_pool(
        &mut self,
        raise: &RaisePool,
        mut work: impl FnMut(&mut Conversation<'_>, &RaisePool) -> Result<(PoolRows, PoolRows), Fault>,
    ) -> Result<(PoolRows, PoolRows), Fault> {
        // All are asked before any is raised.
        let pools = self.operate_on_each(|_, store| store.slots(&raise.key))?;
        let lowest = pools.iter().map(slot_rows::lowest).min().unwrap_or(u64::MAX);
        slot_rows::check_raises(&raise.key, raise.to, lowest)?;
        let raised = self.operate_on_each(|_, store| {
            let own = RaisePool { store: store.index(), ..raise.clone() };
            work(store, &own)
        })?;
        let (mut before, mut after) = (PoolRows::default(), PoolRows::default());
        for (was, is) in raised {
            add(&mut before, was);
            add(&mut after, is);
        }
        Ok((before, after))
    }

    /// The slots of every store that answers.
    pub(super) fn slots_of_all(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let mut all = PoolRows::default();
        let mut faults = Vec::new();
        for pool in self.ask_each(|_, store| store.slots(key)) {
            match pool {
                Ok(pool) => add(&mut all, pool),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.len() == self.members.len() {
            return Err(Fault::all(FaultKind::Unavailable, faults));
        }
        Ok(all)
    }

    /// The requests for slots of a store, and their places.
    fn of_member<T: Clone>(&self, all: &[T], at: usize, slot: impl Fn(&T) -> u64) -> (Vec<usize>, Vec<T>) {
        let count = self.members.len() as u64;
        let own = all.iter().enumerate().filter(|(_, request)| slot(request) % count == at as u64);
        own.map(|(place, request)| (place, request.clone())).unzip()
    }
}
