//! Leased workers over several stores: a slot lives in the store whose index is its remainder by the number of stores, which each
//! pool records. If a store is down, its slots end with their leases, and the sources that had them lease slots of other stores.

use crate::store::{
    Fault, FaultKind, Key, PoolRows, RaisePool, Release, Remedy, Renewal, Renewed, Store, Take, Taken,
};

use crate::store::model::worker;
use crate::store::on_slots;

use super::rotation::{Pause, is_active};
use super::{Interleaved, gone};

/// Adds the rows of one store to those of others.
fn add(all: &mut PoolRows, pool: PoolRows) {
    all.layout = all.layout.take().or(pool.layout);
    all.now_ms = all.now_ms.max(pool.now_ms);
    all.floor = all.floor.max(pool.floor);
    all.slots.extend(pool.slots);
    all.slots.sort_by_key(|row| row.slot);
}

impl Interleaved {
    /// Compares what the stores record of a pool before this process takes the first slot of it. A new pool is recorded by every
    /// store before any of them leases a slot: a store that was added would lease slots that another one has.
    fn begin_pool(&mut self, take: &Take) -> Result<(), Fault> {
        let pool = (take.key.table.clone(), take.key.name.clone());
        if self.pools.contains(&pool) {
            return Ok(());
        }
        let count = self.members.len() as u64;
        let own = |at: usize| Take { member: (count, at as u64), ..take.clone() };
        let mut down = None;
        let mut is_begun = false;
        let mut answered = Vec::new();
        for (at, member) in self.members.iter_mut().enumerate() {
            match member.store.slots(&take.key) {
                Ok(found) => {
                    worker::check_layout(&take.key, &take.layout, own(at).member, &found)
                        .map_err(|fault| member.said(fault))?;
                    is_begun |= found.layout.is_some();
                    answered.push(at);
                }
                Err(fault) => down = Some(member.said(fault)),
            }
        }
        if let Some(fault) = down.filter(|_| !is_begun) {
            return Err(fault
                .with_context("beginning a pool of leased workers, for which every store has to answer,"));
        }
        for at in answered {
            let member = &mut self.members[at];
            let doing = format!("beginning pool `{}`", take.key.name);
            let begun =
                on_slots(&mut *member.store, &take.key, &doing, |rows, _| worker::begin(rows, &own(at)));
            begun.map_err(|fault| member.said(fault))?;
        }
        self.pools.insert(pool);
        Ok(())
    }

    /// Asks the stores in turn, from a random one on; those that failed a moment ago come last.
    pub(super) fn take_from_one(&mut self, take: &Take) -> Result<Taken, Fault> {
        self.begin_pool(take)?;
        let count = self.members.len();
        let first = fastrand::usize(..count.max(1));
        let mut order: Vec<usize> = (0..count).map(|after| (first + after) % count).collect();
        order.sort_by_key(|&at| is_active(self.members[at].pause.as_ref()));
        let mut faults: Vec<Fault> = Vec::new();
        for at in order {
            // A store that does not answer costs its timeout: another one's refusal is enough.
            if !faults.is_empty() && is_active(self.members[at].pause.as_ref()) {
                continue;
            }
            let own = Take { member: (count as u64, at as u64), ..take.clone() };
            match self.members[at].store.take_slot(&own) {
                Ok(taken) => {
                    self.members[at].pause = None;
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
    fn note(&mut self, at: usize, fault: &Fault) {
        if !gone(fault.kind) {
            return;
        }
        let member = &mut self.members[at];
        self.news.push(fault.clone().at(&member.name).with_remedy(Remedy::Text("the other stores go on")));
        member.pause = Some(Pause::after(member.pause.as_ref(), fault.clone()));
    }
}
