//! Marks of fixed workers over several stores: worker w is in store w mod N, as a leased one is. Before a worker's first id every
//! store records how many stores there are and which one it is, so that another list or order is refused.

use crate::request::worker::BeginMark;
use crate::store::model::rows;
use crate::store::places::{self, in_use_at};
use crate::store::{
    Fault, FaultKind, GiveBack, Key, Mark, Partition, Remedy, Row, RowMark, RowState, RowStatus, StoreIndex,
    in_transaction,
};

use super::member::{Conversation, Hold};
use super::{Interleaved, Member, gone};

/// A mark as one store alone would show it.
pub(super) fn of_one_store(row: Row) -> Row {
    let status = RowStatus { partition: None, ..row.status };
    let text = rows::segment_text(RowMark { mark: row.mark, status, writer: 0 });
    Row { status, text, ..row }
}

impl Interleaved {
    /// Begins with a worker in its store. A worker that this store does not know may have been begun in another one, so every store has
    /// to answer.
    pub(super) fn begin_mark_at_home(&mut self, begin: &BeginMark) -> Result<u64, Fault> {
        let home = self.home_at(&begin.key);
        let own = |store: &Conversation<'_>| BeginMark {
            store: store.index(),
            key: store.own(&begin.key),
            ..begin.clone()
        };
        let at_home = self.home(&begin.key)?;
        let seen = at_home.ask_alone(Hold::Alone, |store| {
            let own = own(store);
            places::current(&mut **store, &own)
        })?;
        let Err(seen) = seen else {
            self.record_elsewhere(begin, home)?;
            return self.home(&begin.key)?.ask_alone(Hold::Alone, |store| {
                let own = own(store);
                store.begin_mark(&own)
            });
        };
        let down = self.check_new_mark(begin, home, seen)?;
        // The row comes before the records of the other stores: a record without the row means that the row is lost.
        self.members[home].ask_alone(Hold::Alone, |store| {
            let own = own(store);
            places::announce(&mut **store, &own, seen)
        })?;
        for member in others(&mut self.members, home) {
            let recorded = member.ask_alone(Hold::Alone, |store| record(store, begin));
            // A known worker begins without the stores that are down. The next process to begin records it there.
            recorded.or_else(|fault| if down.is_some() { Ok(()) } else { Err(fault) })?;
        }
        self.members[home].ask_alone(Hold::Alone, |store| {
            let own = own(store);
            store.begin_mark(&own)
        })
    }

    /// Refuses a worker that another store has recorded and its own has lost, and a new one while a store does not answer. The worker's
    /// store has seen it at `seen`. Answers with the outage of a store that a worker which has begun can do without.
    fn check_new_mark(
        &mut self,
        begin: &BeginMark,
        home: usize,
        seen: Option<RowMark>,
    ) -> Result<Option<Fault>, Fault> {
        let mut down = None;
        let mut recorded_by = None;
        for member in others(&mut self.members, home) {
            let is_recorded = member.ask_alone(Hold::Alone, |store| {
                let row = match unless_gone(store.look(&begin.key))? {
                    Ok(row) => row,
                    Err(fault) => return Ok(Err(fault)),
                };
                check_recorded(store, begin, row.as_ref())?;
                Ok(Ok(row.is_some()))
            });
            let is_recorded = match is_recorded {
                Ok(Ok(is_recorded)) => is_recorded,
                Ok(Err(fault)) => {
                    down = Some(member.said(fault));
                    continue;
                }
                Err(fault) if gone(fault.kind) => {
                    down = Some(fault);
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            member.ask_alone(Hold::Alone, |store| {
                let index = store.index();
                places::check_pools(&mut **store, &begin.places, index)
            })?;
            if is_recorded {
                recorded_by = Some(member.name().to_owned());
            }
        }
        if let Some(other) = recorded_by.filter(|_| seen.is_none()) {
            return Err(self.members[home].said(lost_mark(begin, &other)));
        }
        // A worker that was only announced may lack the records of other stores.
        let is_new = seen.is_none_or(|row| row.status.state == RowState::Beginning);
        match down {
            Some(fault) if is_new => {
                let why = format!(
                    "a new worker begins when every store answers, and one did not: {fault}; workers that have begun go on"
                );
                // Callers wait for a store that is down. A store that refuses does so until its operator acts.
                let kind = if gone(fault.kind) { FaultKind::Unavailable } else { FaultKind::Refused };
                Err(Fault::new(kind, why))
            }
            down => Ok(down),
        }
    }

    /// A worker that has begun is recorded by the stores that lack it and answer: one of them may have taken the place of another, and
    /// the next change of the list is compared with it.
    fn record_elsewhere(&mut self, begin: &BeginMark, home: usize) -> Result<(), Fault> {
        let mut is_complete = true;
        for member in others(&mut self.members, home) {
            let recorded = member.ask(|store| {
                let row = match unless_gone(store.look(&begin.key))? {
                    Ok(row) => row,
                    Err(fault) => return Ok(Err(fault)),
                };
                check_recorded(store, begin, row.as_ref())?;
                if row.is_some() { Ok(Ok(())) } else { unless_gone(record(store, begin)) }
            });
            match recorded {
                Ok(Ok(())) => {}
                // A store whose table this user may not write is asked again.
                Ok(Err(_)) => is_complete = false,
                Err(fault) if gone(fault.kind) => is_complete = false,
                Err(fault) => return Err(fault),
            }
        }
        self.unrecorded.retain(|worker| worker.key.name != begin.key.name);
        if !is_complete {
            self.unrecorded.push(begin.clone());
        }
        Ok(())
    }

    /// Raises a mark in its store. The stores that could not record its worker are asked again before.
    pub(super) fn raise_mark(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        let begin = self.unrecorded.iter().find(|begin| begin.key.name == key.name).cloned();
        if let Some(begin) = begin {
            self.record_elsewhere(&begin, self.home_at(key))?;
        }
        let home = self.home_at(key);
        // At a close the first of the last marks is raised in spite of a pause. Where that fails, the others of the store wait for nothing:
        // marks of other stores, leases and numbers behind them are reached.
        let is_tried = self.raised_last.get_mut(home).map(|is_tried| std::mem::replace(is_tried, true));
        let hold = match is_tried {
            Some(true) => Hold::Whole,
            Some(false) => Hold::AtMost(0),
            None => Hold::Alone,
        };
        self.home(key)?.ask_alone(hold, |store| {
            let own = store.own(key);
            store.raise(&own, expect, to)
        })
    }

    /// Lowers a mark in its store. A store that does not answer keeps it as it is.
    pub(super) fn lower_mark(&mut self, range: &GiveBack) -> Result<bool, Fault> {
        let lowered = self.home(&range.key)?.ask(|store| {
            let own = store.own(&range.key);
            store.give_back(&GiveBack { key: own, ..range.clone() })
        });
        if super::is_outage(&lowered) { Ok(false) } else { lowered }
    }

    /// Raises a mark in its store, and records the worker in the others. Every store has to answer: it may have been begun in another
    /// one.
    pub(super) fn repair_mark_at_home(
        &mut self,
        begin: &BeginMark,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        let home = self.home_at(&begin.key);
        for member in others(&mut self.members, home) {
            member.operate(|store| {
                let row = store.look(&begin.key)?;
                check_recorded(store, begin, row.as_ref())?;
                let index = store.index();
                places::check_pools(&mut **store, &begin.places, index)
            })?;
        }
        let repaired = self.home(&begin.key)?.operate(|store| {
            let own = BeginMark { store: store.index(), key: store.own(&begin.key), ..begin.clone() };
            places::repair(&mut **store, &own, to, dry_run)
        })?;
        for member in others(&mut self.members, home).filter(|_| !dry_run) {
            member.operate(|store| record(store, begin))?;
        }
        Ok(repaired)
    }
}

/// Splits an answer: an outage is a fault of the conversation, a refusal is an answer that the caller judges.
fn unless_gone<T>(answer: Result<T, Fault>) -> Result<Result<T, Fault>, Fault> {
    match answer {
        Err(fault) if gone(fault.kind) => Err(fault),
        answer => Ok(answer),
    }
}

/// The stores but for one.
fn others(members: &mut [Member], home: usize) -> impl Iterator<Item = &mut Member> {
    members.iter_mut().enumerate().filter(move |(at, _)| *at != home).map(|(_, member)| member)
}

/// Refuses a worker that a store other than its own has recorded under another list.
fn check_recorded(store: &Conversation<'_>, begin: &BeginMark, row: Option<&Row>) -> Result<(), Fault> {
    let own = store.index();
    match row.filter(|row| row.status != in_use_at(own)) {
        Some(row) => Err(places::of_other_stores(begin.worker, own, row.status)),
        None => Ok(()),
    }
}

/// The worker has begun, and its store has no row of it.
fn lost_mark(begin: &BeginMark, other: &str) -> Fault {
    let worker = begin.worker;
    Fault::new(
        FaultKind::Refused,
        format!(
            "it has no mark of worker {worker}, although {other} has recorded the worker: it is not the store in which the worker was begun, or has lost its rows, and ids would come twice; open the source with the `stores` it was begun with"
        ),
    )
    .with_remedy(Remedy::Text(
        "where its rows are lost, stop every program that uses it, then run `keymill repair SOURCE --to now --yes`",
    ))
}

/// Records in a store which one it is, where it has no row of this worker. A row that is there by now names the same store, or two of
/// the list are one.
fn record(store: &mut Conversation<'_>, begin: &BeginMark) -> Result<(), Fault> {
    let (key, own) = (&*begin.key, store.index());
    let status = in_use_at(own);
    let doing = format!("recording the stores of `{}`", key.name);
    in_transaction(&mut **store, key, 0, &doing, |rows| {
        if let Some(stored) = rows.read(key, true)? {
            return match rows::row_mark_of(key, &stored)? {
                Some(row) if row.status != status => Err(listed_twice(begin.worker, own, row.status)),
                _ => Ok(Some(())),
            };
        }
        let new = rows::stored_as(key, RowMark { mark: Mark { period: 0, next: 1 }, status, writer: 0 })?;
        Ok(rows.insert(key, &new)?.then_some(()))
    })
}

/// A store that had no row of a worker has another worker's row now.
fn listed_twice(worker: u64, own: StoreIndex, found: RowStatus) -> Fault {
    let found = found.partition.map_or(StoreIndex::ONLY, Partition::store_index);
    Fault::new(
        FaultKind::Refused,
        format!(
            "worker {worker} was begun there a moment ago in {found}, and this mill opens it in {own}: two entries of `stores` lead to one store, or another mill has just begun this worker with another list; no id was given. List each store once"
        ),
    )
}
