//! Leased workers over several stores: a slot lives in the store whose index is its remainder by the number of stores, which each
//! pool records. If a store is down, its slots end with their leases, and the sources that had them lease slots of other stores.

use crate::store::{
    Fault, FaultKind, Key, Left, OwnSlot, PoolRows, RaisePool, Release, Remedy, Renewal, Renewed, Store,
    Take, Taken,
};

use crate::store::model::slot_rows::{self, ELSEWHERE};
use crate::store::on_slots;
use crate::store::places;

use super::rotation::{Pause, is_active};
use super::{Interleaved, gone};

/// Adds the rows of one store to those of others.
fn add(all: &mut PoolRows, pool: PoolRows) {
    all.layout = all.layout.take().or(pool.layout);
    all.now_ms = all.now_ms.max(pool.now_ms);
    all.floor = all.floor.max(pool.floor);
    all.slots.extend(pool.slots);
    all.slots.sort_by_key(|row| row.slot);
    all.others.extend(pool.others);
    all.others.sort_unstable();
    all.others.dedup();
}

/// A store has no record of a pool that the others have leased from.
fn lost_pool(take: &Take) -> Fault {
    let name = &take.key.name;
    Fault::new(
        FaultKind::Refused,
        format!(
            "it has no record of pool `{name}`, which other stores have begun: it is not one of the stores that the pool was begun \
             with, or has lost its rows, and would lease workers again that are in use; open the pool with the stores it was begun \
             with"
        ),
    )
    .with_remedy(Remedy::Text(
        "where its rows are lost, `keymill repair snowflake:NAME --to TIME --yes` with a time above every id makes it usable again",
    ))
}

impl Interleaved {
    /// Compares what the stores record of a pool before this process takes the first slot of it; answers with the stores that
    /// lease none. A new pool is recorded by every store, and then each of them notes that all have, before any of them leases a slot.
    /// So a store without the record, beside one with the note, was added or has lost its rows: it would lease slots that
    /// another store has. Pools of 0.1.0 have no note; there another store's slots say as much.
    fn begin_pool(&mut self, take: &Take) -> Result<Vec<usize>, Fault> {
        let pool = (take.key.table.clone(), take.key.name.clone());
        // Those that are left out are asked again: `repair` may have raised them.
        if self.pools.get(&pool).is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        let found = self.recorded_pools(take);
        let down = found.iter().find_map(|pool| pool.as_ref().err()).cloned();
        if let Some(fault) = down.as_ref().filter(|fault| !gone(fault.kind)) {
            return Err(fault.clone());
        }
        let pools = || found.iter().filter_map(|pool| pool.as_ref().ok());
        let is_begun = pools().any(|pool| pool.layout.is_some());
        let has_leased = pools().any(|pool| pool.floor > 0 || !pool.slots.is_empty());
        // Without a note or a slot the beginning may have been cut off, and the store that is down may lack the record.
        if let Some(fault) = down.clone().filter(|_| !has_leased) {
            return Err(fault
                .with_context("beginning a pool of leased workers, for which every store has to answer,"));
        }
        if let Some(places) = take.beside.places.as_ref().filter(|_| !is_begun) {
            let count = self.members.len() as u64;
            for (at, member) in self.members.iter_mut().enumerate() {
                places::check_pools(&mut *member.store, places, (count, at as u64))
                    .map_err(|fault| member.said(fault))?;
            }
        }
        let mut left_out: Vec<usize> =
            (0..found.len()).filter(|at| matches!(&found[*at], Ok(pool) if pool.layout.is_none())).collect();
        if down.is_none() && !has_leased {
            for at in left_out.drain(..) {
                self.record_pool(take, at)?;
            }
        }
        if down.is_none() && left_out.is_empty() {
            let noted = |pool: &Result<PoolRows, Fault>| pool.as_ref().is_ok_and(|pool| pool.floor > 0);
            for at in (0..found.len()).filter(|at| !noted(&found[*at])) {
                let member = &mut self.members[at];
                let doing = format!("beginning pool `{}`", take.key.name);
                on_slots(&mut *member.store, &take.key, &doing, |rows, _| {
                    slot_rows::note_recorded(rows, &take.key)
                })
                .map_err(|fault| member.said(fault))?;
            }
        }
        // Another process may have begun the pool between two of the questions.
        left_out.retain(|at| match self.members[*at].store.slots(&take.key) {
            Ok(pool) => pool.layout.is_none(),
            Err(_) => true,
        });
        // While a store is down, it may be that no process has ever leased.
        if down.is_none() || has_leased {
            let known = self.pools.insert(pool, left_out.clone()).unwrap_or_default();
            for at in left_out.iter().filter(|at| !known.contains(at)) {
                self.news.push(self.members[*at].said(lost_pool(take)));
            }
        }
        Ok(left_out)
    }

    /// What each store records of a pool; an error where it is that of another list.
    fn recorded_pools(&mut self, take: &Take) -> Vec<Result<PoolRows, Fault>> {
        let count = self.members.len() as u64;
        let each = self.members.iter_mut().enumerate().map(|(at, member)| {
            let found = member.store.slots(&take.key).and_then(|found| {
                slot_rows::check_layout(&take.key, &take.layout, (count, at as u64), &found)?;
                Ok(found)
            });
            found.map_err(|fault| member.said(fault))
        });
        each.collect()
    }

    fn record_pool(&mut self, take: &Take, at: usize) -> Result<(), Fault> {
        let own = Take { member: (self.members.len() as u64, at as u64), ..take.clone() };
        let member = &mut self.members[at];
        let doing = format!("beginning pool `{}`", take.key.name);
        let begun = on_slots(&mut *member.store, &take.key, &doing, |rows, _| slot_rows::begin(rows, &own));
        begun.map(drop).map_err(|fault| member.said(fault))
    }

    /// Asks the stores in turn, from a random one on; those that failed a moment ago come last.
    pub(super) fn take_from_one(&mut self, take: &Take) -> Result<Taken, Fault> {
        let left_out = self.begin_pool(take)?;
        let count = self.members.len();
        let first = fastrand::usize(..count.max(1));
        let mut order: Vec<usize> = (0..count).map(|after| (first + after) % count).collect();
        order.retain(|at| !left_out.contains(at));
        order.sort_by_key(|&at| is_active(self.members[at].pause.as_ref()));
        let mut faults: Vec<Fault> =
            left_out.iter().map(|at| self.members[*at].said(lost_pool(take))).collect();
        for at in order {
            // A store that does not answer costs its timeout: another one's refusal is enough.
            if faults.len() > left_out.len() && is_active(self.members[at].pause.as_ref()) {
                continue;
            }
            let own = Take { member: (count as u64, at as u64), ..take.clone() };
            match self.members[at].store.take_slot(&own) {
                Ok(taken) => {
                    self.members[at].pause = None;
                    self.check_fixed_elsewhere(take, at, &taken)?;
                    return Ok(taken);
                }
                Err(fault) => {
                    self.note(at, &fault);
                    faults.push(self.members[at].said(fault));
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
        let count = self.members.len() as u64;
        let mut refusal = None;
        for (at, member) in self.members.iter_mut().enumerate().filter(|(at, _)| *at != home) {
            match places::check_fixed(&mut *member.store, places, taken.slot, (count, at as u64)) {
                // A store that is down keeps no process of the other stores from its worker.
                Err(fault) if gone(fault.kind) => {}
                Err(fault) => refusal = Some(member.said(fault)),
                Ok(()) => {}
            }
        }
        let Some(refusal) = refusal else { return Ok(()) };
        let own = OwnSlot {
            key: take.key.clone(),
            slot: taken.slot,
            left: vec![Left { token: take.token, mark: taken.mark }],
            owner: ELSEWHERE.into(),
        };
        let _ = self.members[home].store.free_slots(&[Release { own, used: taken.start }]);
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
            if let Some(pause) = self.members[at].pause.as_ref().filter(|pause| is_active(Some(pause))) {
                let fault = Fault::new(FaultKind::Unavailable, pause.fault.to_string());
                for place in places {
                    marks[place] = Some(Err(fault.clone()));
                }
                continue;
            }
            match self.members[at].store.renew_slots(&own) {
                Ok(renewed) => {
                    self.members[at].pause = None;
                    now_ms = renewed.now_ms;
                    for (place, mark) in places.into_iter().zip(renewed.marks) {
                        marks[place] = Some(mark);
                    }
                }
                Err(fault) => {
                    self.note(at, &fault);
                    let fault = self.members[at].said(fault);
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
            if own.is_empty() || is_active(self.members[at].pause.as_ref()) {
                continue;
            }
            match self.members[at].store.free_slots(&own) {
                Ok(answers) => {
                    places.into_iter().zip(answers).for_each(|(place, answer)| freed[place] = answer);
                }
                Err(failed) => fault = Some(self.members[at].said(failed)),
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
        mut work: impl FnMut(&mut dyn Store, &RaisePool) -> Result<(PoolRows, PoolRows), Fault>,
    ) -> Result<(PoolRows, PoolRows), Fault> {
        let count = self.members.len() as u64;
        let (mut before, mut after) = (PoolRows::default(), PoolRows::default());
        // All are asked before any is raised.
        let mut lowest = u64::MAX;
        for member in &mut self.members {
            let pool = member.store.slots(&raise.key).map_err(|fault| member.said(fault))?;
            lowest = lowest.min(slot_rows::lowest(&pool));
        }
        slot_rows::check_raises(&raise.key, raise.to, lowest)?;
        for (at, member) in self.members.iter_mut().enumerate() {
            let own = RaisePool { member: (count, at as u64), ..raise.clone() };
            let (was, is) = work(&mut *member.store, &own).map_err(|fault| member.said(fault))?;
            add(&mut before, was);
            add(&mut after, is);
        }
        Ok((before, after))
    }

    /// The slots of every store that answers.
    pub(super) fn slots_of_all(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let mut all = PoolRows::default();
        let mut faults = Vec::new();
        for member in &mut self.members {
            match member.store.slots(key) {
                Ok(pool) => add(&mut all, pool),
                Err(fault) => faults.push(member.said(fault)),
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
        let own = all.iter().enumerate().filter(|(_, of)| slot(of) % count == at as u64);
        own.map(|(place, of)| (place, of.clone())).unzip()
    }

    /// A store that failed is asked later, and reported.
    pub(super) fn note(&mut self, at: usize, fault: &Fault) {
        if !gone(fault.kind) {
            return;
        }
        let member = &mut self.members[at];
        self.news.push(fault.clone().at(&member.name).with_remedy(Remedy::Text("the other stores go on")));
        member.pause = Some(Pause::after(member.pause.as_ref(), fault.clone()));
    }
}
