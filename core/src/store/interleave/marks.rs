//! Marks of fixed workers over several stores: worker w lives in store w mod N, as a leased one does. Before a worker's first id every
//! store records how many stores there are and which one it is, so that another list or order is refused.

use crate::request::worker::BeginMark;
use crate::store::model::rows;
use crate::store::places::{self, BEGINNING, is_state, period_of};
use crate::store::{Fault, FaultKind, Key, Mark, Remedy, Row, in_transaction};

use super::rotation::is_active;
use super::{Interleaved, Member};

/// A mark as one store alone would show it.
pub(super) fn of_one_store(row: Row) -> Row {
    if row.mark.period == 0 || is_state(row.mark.period) {
        return row;
    }
    let next = row.mark.next;
    Row { mark: Mark { period: 0, next }, text: format!("next={next}"), counter: None }
}

impl Interleaved {
    /// The period of the row that keeps a mark: a worker's records the stores.
    pub(super) fn period_of_mark(&self, key: &Key, period: u64) -> u64 {
        if !key.name.starts_with("snowflake:") || period != 0 {
            return period;
        }
        period_of((self.members.len() as u64, self.home_at(key) as u64))
    }

    /// Begins with a worker in its store. A worker that this store does not know may have been begun in another one, so every store has
    /// to answer.
    pub(super) fn begin_mark_at_home(&mut self, begin: &BeginMark) -> Result<u64, Fault> {
        let count = self.members.len() as u64;
        let home = self.home_at(&begin.key);
        let own = |at: usize| BeginMark { member: (count, at as u64), ..begin.clone() };
        let Some(member) = self.members.get_mut(home) else {
            return Err(Fault::new(FaultKind::Refused, "there are no stores"));
        };
        let seen = places::current(&mut *member.store, &own(home)).map_err(|fault| member.said(fault))?;
        let Err(seen) = seen else {
            self.record_elsewhere(begin, home)?;
            let member = &mut self.members[home];
            return member.store.begin_mark(&own(home)).map_err(|fault| member.said(fault));
        };
        let keys = begin.places.fixed_rows(begin.worker);
        let is_known = |member: &mut Member| {
            let rows = member.store.look_rows(&keys).map_err(|fault| member.said(fault))?;
            Ok::<_, Fault>(rows.iter().any(Option::is_some))
        };
        let is_known = seen.is_some() || is_known(&mut self.members[home])?;
        let mut down = None;
        let mut recorded_by = None;
        for (at, member) in self.members.iter_mut().enumerate().filter(|(at, _)| *at != home) {
            match member.store.look_rows(&keys) {
                Ok(rows) => {
                    check_recorded(member, begin, own(at).member, &rows)?;
                    places::check_pools(&mut *member.store, &begin.places, own(at).member)
                        .map_err(|fault| member.said(fault))?;
                    if rows.first().is_some_and(Option::is_some) {
                        recorded_by = Some(member.name.clone());
                    }
                }
                Err(fault) => down = Some(member.said(fault)),
            }
        }
        if let Some(other) = recorded_by.filter(|_| !is_known) {
            return Err(self.members[home].said(lost_mark(begin, &other)));
        }
        // A worker that was only announced may lack the records of other stores.
        let is_new = !is_known || seen.is_some_and(|mark| mark.period == BEGINNING);
        if let Some(fault) = down.as_ref().filter(|_| is_new) {
            let why = format!(
                "a new worker begins when every store answers, and one does not: {fault}; workers that have begun go on"
            );
            return Err(Fault::new(FaultKind::Refused, why));
        }
        // The row comes before the records of the other stores: a record without the row means that the row is lost.
        let member = &mut self.members[home];
        places::announce(&mut *member.store, &own(home), seen).map_err(|fault| member.said(fault))?;
        for (at, member) in self.members.iter_mut().enumerate().filter(|(at, _)| *at != home) {
            let recorded = record(member, &begin.key, period_of((count, at as u64)));
            // A worker of 0.1.0 has no records: those of the stores that are down are made at no time.
            recorded.or_else(|fault| if down.is_some() { Ok(()) } else { Err(member.said(fault)) })?;
        }
        let member = &mut self.members[home];
        member.store.begin_mark(&own(home)).map_err(|fault| member.said(fault))
    }

    /// A worker that has begun is recorded by the stores that lack it and answer: one of them may have taken the place of another, and
    /// the next change of the list is compared with it.
    fn record_elsewhere(&mut self, begin: &BeginMark, home: usize) -> Result<(), Fault> {
        let mut is_complete = true;
        let count = self.members.len() as u64;
        let keys = begin.places.fixed_rows(begin.worker);
        for at in (0..self.members.len()).filter(|at| *at != home) {
            let member = &mut self.members[at];
            if is_active(member.pause.as_ref()) {
                is_complete = false;
                continue;
            }
            let own = (count, at as u64);
            let recorded = match member.store.look_rows(&keys) {
                Ok(rows) => {
                    check_recorded(member, begin, own, &rows)?;
                    let is_there = rows.first().is_some_and(Option::is_some);
                    if is_there { Ok(()) } else { record(member, &begin.key, period_of(own)) }
                }
                Err(fault) => Err(fault),
            };
            if let Err(fault) = recorded {
                is_complete = false;
                self.note(at, &fault);
            }
        }
        self.unrecorded.retain(|of| of.key.name != begin.key.name);
        if !is_complete {
            self.unrecorded.push(begin.clone());
        }
        Ok(())
    }

    /// A mark is about to be raised: the stores that could not record its worker are asked again.
    pub(super) fn record_again(&mut self, key: &Key) -> Result<(), Fault> {
        let begin = self.unrecorded.iter().find(|begin| begin.key.name == key.name).cloned();
        begin.map_or(Ok(()), |begin| self.record_elsewhere(&begin, self.home_at(key)))
    }

    /// Raises a mark in its store, and records the worker in the others. Every store has to answer: it may have been begun in another
    /// one.
    pub(super) fn repair_mark_at_home(
        &mut self,
        begin: &BeginMark,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        let count = self.members.len() as u64;
        let home = self.home_at(&begin.key);
        let keys = begin.places.fixed_rows(begin.worker);
        for (at, member) in self.members.iter_mut().enumerate().filter(|(at, _)| *at != home) {
            let own = (count, at as u64);
            let rows = member.store.look_rows(&keys).map_err(|fault| member.said(fault))?;
            check_recorded(member, begin, own, &rows)?;
            places::check_pools(&mut *member.store, &begin.places, own)
                .map_err(|fault| member.said(fault))?;
        }
        let own = BeginMark { member: (count, home as u64), ..begin.clone() };
        let Some(member) = self.members.get_mut(home) else {
            return Err(Fault::new(FaultKind::Refused, "there are no stores"));
        };
        let repaired =
            places::repair(&mut *member.store, &own, to, dry_run).map_err(|fault| member.said(fault))?;
        for (at, member) in self.members.iter_mut().enumerate().filter(|(at, _)| *at != home && !dry_run) {
            record(member, &begin.key, period_of((count, at as u64))).map_err(|fault| member.said(fault))?;
        }
        Ok(repaired)
    }
}

/// Refuses a worker that a store other than its own has recorded under another list.
fn check_recorded(
    member: &Member,
    begin: &BeginMark,
    own: (u64, u64),
    rows: &[Option<Mark>],
) -> Result<(), Fault> {
    match rows.iter().flatten().find(|mark| mark.period != period_of(own)) {
        Some(mark) => Err(member.said(places::of_other_stores(begin.worker, own, mark.period))),
        None => Ok(()),
    }
}

/// The worker has begun, and its store has no row of it.
fn lost_mark(begin: &BeginMark, other: &str) -> Fault {
    let worker = begin.worker;
    Fault::new(
        FaultKind::Refused,
        format!(
            "it has no mark of worker {worker}, although {other} has recorded the worker: it is not the store in which the worker was \
             begun, or has lost its rows, and ids would come twice; open the source with the `stores` it was begun with"
        ),
    )
    .with_remedy(Remedy::Text(
        "where its rows are lost, `keymill repair SOURCE --to TIME --yes` with a time above every id of the worker makes it usable again",
    ))
}

/// Records in a store which one it is, where it has no row of this worker.
fn record(member: &mut Member, key: &Key, period: u64) -> Result<(), Fault> {
    let doing = format!("recording the stores of `{}`", key.name);
    in_transaction(&mut *member.store, key, period, &doing, |rows| {
        if rows.read(key, true)?.is_some() {
            return Ok(Some(()));
        }
        let new = rows::stored_at(key, Mark { period, next: 1 })?;
        Ok(rows.insert(key, &new)?.then_some(()))
    })
}
