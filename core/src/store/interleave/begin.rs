//! How a source begins over several stores, and how one of them is drawn from.

use super::Interleaved;
use super::complete::NEEDS_EVERY_STORE;
use super::member::{Hold, LastResorts};
use super::record::{self, Recorded};
use super::rotation::{LeftOver, Rotation};
use crate::store::model::rows;
use crate::store::{Fault, FaultKind, Mark, Request, Reserved};

/// How often one reservation may raise a ticket's counter before the fault is that other processes are faster.
const RAISES: u32 = 3;

impl Interleaved {
    /// Compares the records of all stores before the first number: a store that was added, removed or has changed places
    /// would give numbers that another store owns.
    pub(super) fn begin(
        &mut self,
        rotation: &mut Rotation,
        request: &Request,
        last_resorts: &mut LastResorts,
    ) -> Result<(), Fault> {
        let doing = rows::reserving(request);
        let key = &request.key;
        let mut found = self.find_rows(rotation, request, last_resorts)?;
        let is_missing = found.contains(&Some(Recorded::Nothing));
        if is_missing && self.is_complete(key, &found).map_err(|fault| fault.with_context(&doing))? {
            let missing = found.iter_mut().filter(|row| **row == Some(Recorded::Nothing));
            missing.for_each(|row| *row = Some(Recorded::Lost));
        }
        for (member, row) in self.members.iter().zip(&found) {
            if let Some(refusal) = row.as_ref().and_then(|row| member.partition().refusal(key, row)) {
                return Err(member.said(refusal).with_context(&doing));
            }
        }
        let in_use = self.has_issued(request, &found);
        if !in_use && found.iter().all(Option::is_none) {
            return Err(self.none(rotation, &doing));
        }
        if !in_use && (record::is_new(&found) || self.may_lack_rows(request, &found)?) {
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
                Some(Recorded::Nothing | Recorded::Lost) => {
                    match self.members[at].ask(|store| store.know(key)) {
                        Ok(()) => rotation.rows[at].known = true,
                        Err(fault) => self.leave_out(rotation, at, fault),
                    }
                }
                _ => {}
            }
        }
        rotation.begun = true;
        Ok(())
    }

    /// What each store has of a source; `None`: it did not answer. Paused stores are asked where no other answers, or where all of them
    /// are needed.
    fn find_rows(
        &mut self,
        rotation: &mut Rotation,
        request: &Request,
        last_resorts: &mut LastResorts,
    ) -> Result<Vec<Option<Recorded>>, Fault> {
        let key = &request.key;
        let mut found: Vec<Option<Recorded>> = vec![None; self.members.len()];
        let (ready, paused) = self.order(rotation, 0);
        let without_pause = ready.len();
        for (nth, at) in ready.into_iter().chain(paused).enumerate() {
            let has_answer = found.iter().any(Option::is_some);
            if nth >= without_pause && (has_answer || !last_resorts.another(self.clock.boot_ms())) {
                break;
            }
            match self.members[at].insist(|store| store.inspect_from(key, request.start)) {
                Ok(row) => found[at] = Some(row),
                Err(fault) => self.leave_out(rotation, at, fault),
            }
        }
        if record::is_new(&found) || self.may_lack_rows(request, &found)? {
            // All of them are needed.
            for (member, row) in self.members.iter_mut().zip(&mut found).filter(|(_, row)| row.is_none()) {
                *row = member.ask_alone(Hold::Alone, |store| store.inspect_from(key, request.start)).ok();
            }
        }
        Ok(found)
    }

    /// Whether a store that answers has issued numbers of the source.
    pub(super) fn has_issued(&self, request: &Request, found: &[Option<Recorded>]) -> bool {
        found.iter().zip(&self.members).any(|(row, member)| {
            row.as_ref().is_some_and(|row| member.partition().has_issued(&request.key, request.start, row))
        })
    }

    /// Whether no number was issued that is known of, and a store that does not answer may lack its row: it may have failed while the
    /// rows were made. Once another store has issued numbers, that row would look like a deleted row.
    fn may_lack_rows(&mut self, request: &Request, found: &[Option<Recorded>]) -> Result<bool, Fault> {
        Ok(!self.has_issued(request, found)
            && record::may_be_cut_off(found)
            && !self.is_complete(&request.key, found)?)
    }

    /// Begins a new source: every store records its partition before any of them issues a number. So a missing record
    /// beside a row with numbers means that the record was lost.
    fn found_source(
        &mut self,
        rotation: &Rotation,
        request: &Request,
        found: &[Option<Recorded>],
    ) -> Result<(), Fault> {
        let key = &request.key;
        let doing = format!("beginning `{}`", key.name);
        let in_context = |fault: Fault| fault.with_context(&doing);
        if let Some(at) = found.iter().position(Option::is_none) {
            let why = self.why(rotation, at).map_or_else(
                || format!("{} was not asked", self.members[at].name()),
                |pause| pause.fault().to_string(),
            );
            let missing =
                format!("{NEEDS_EVERY_STORE}, and one did not: {why}; sources that have begun go on");
            // Callers wait for the store until their deadline; sources that have begun do not.
            return Err(in_context(Fault::new(FaultKind::Unavailable, missing).of_one_store()));
        }
        // All rows before the first record: a record means that its row was made.
        for (member, row) in self.members.iter_mut().zip(found) {
            if matches!(row, Some(Recorded::Nothing)) && !record::in_row(key) {
                member.ask(|store| store.make_row(key, request.start)).map_err(in_context)?;
            }
        }
        let mut plain = 0;
        for (member, row) in self.members.iter_mut().zip(found) {
            if matches!(row, Some(Recorded::Nothing)) {
                let start = member.partition().first(request.start);
                plain = plain.max(member.ask(|store| store.record(key, start)).map_err(in_context)?);
            }
        }
        if plain > 1 {
            // A mill with one store has begun the same source meanwhile. From now on it is refused; the numbers it took are
            // skipped.
            for member in &mut self.members {
                match member.ask(|store| store.raise_to(key, &Recorded::Ours { next: 0 }, plain)) {
                    Err(fault) if fault.kind != FaultKind::Refused => return Err(in_context(fault)),
                    _ => {}
                }
            }
        }
        // After all have recorded: another process may have been faster, and two of the URLs may lead to one store.
        for member in &mut self.members {
            member.ask(|store| store.know(key)).map_err(in_context)?;
        }
        Ok(())
    }

    /// Reserves from one store, which [`order`](Self::order) has chosen, in spite of a pause.
    pub(super) fn draw(
        &mut self,
        rotation: &mut Rotation,
        at: usize,
        request: &Request,
    ) -> Result<Reserved, Fault> {
        let now_ms = self.clock.boot_ms();
        let (member, row) = (&mut self.members[at], &mut rotation.rows[at]);
        if !row.known {
            member.insist(|store| store.know(&request.key))?;
            row.known = true;
        }
        let partition = member.partition();
        let (lowest, last) = partition.bounds(request);
        if lowest > last {
            let what = "every number of its partition has been reserved";
            return Err(member.said(Fault::new(FaultKind::Exhausted, what)));
        }
        for _ in 0..RAISES {
            let asked = partition.request_for(request, row.seen, lowest, last);
            // The context is in the store's own numbers.
            let reserve = |fault: Fault| fault.without_context();
            let got = match member.insist(|store| store.reserve(&asked).map_err(reserve)) {
                Ok(got) => member.check_drawn(row, &asked, got)?,
                Err(fault) => return Err(member.explain(request, row, fault)),
            };
            if got.hi > lowest {
                let own =
                    LeftOver { member: at, lo: got.lo, hi: got.hi, since_ms: now_ms, ttl_ms: got.ttl_ms };
                return self.issue(rotation, own, request).ok_or_else(rows::moved_on);
            }
            // A counter of the server's own cannot be raised in the same statement: raise it, then reserve again.
            let raised = member.insist(|store| store.repair(&request.key, Mark { period: 0, next: lowest }));
            match raised {
                Err(fault) if fault.kind != FaultKind::Refused => return Err(fault),
                _ => {}
            }
        }
        Err(self.members[at].said(rows::moved_on()))
    }
}
