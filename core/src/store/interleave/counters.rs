//! Counters of a bank over several stores, many at once: each store is asked once for all counters whose turn it is.
//!
//! Every counter has a rotation of its own, as a source has. What is usual is done for all of them together; a counter about
//! which anything is unusual goes the way of a single source, [`Interleaved::reserve_in_rotation`].

use std::sync::Arc;

use super::record::{self, Recorded};
use super::rotation::{LeftOver, Rotation};
use super::{Interleaved, gone, is_active};
use crate::store::model::rows;
use crate::store::{Fault, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Request, Reserved, RowsWork};

/// What the rows of some counters say in one store; `None`: it did not answer.
type Found = Option<Vec<Recorded>>;

impl Interleaved {
    /// An answer to each request, in their order.
    pub(super) fn reserve_for_counters(&mut self, requests: &[Request]) -> Vec<Result<Reserved, Fault>> {
        let mut rotations: Vec<_> = requests.iter().map(|request| self.rotation_of(&request.key)).collect();
        let mut answers: Vec<Option<Result<Reserved, Fault>>> = requests
            .iter()
            .zip(&mut rotations)
            .map(|(request, rotation)| self.left_over(rotation, request).map(Ok))
            .collect();
        if requests.len() > 1 {
            let open = |answers: &[Option<_>]| -> Vec<usize> {
                (0..requests.len()).filter(|&at| answers[at].is_none()).collect()
            };
            let new: Vec<usize> = open(&answers).into_iter().filter(|&at| !rotations[at].begun).collect();
            self.begin_together(&mut rotations, requests, &new);
            // A store that fails is left out, so the next round asks the others.
            for _ in 0..self.members.len() {
                let begun: Vec<usize> =
                    open(&answers).into_iter().filter(|&at| rotations[at].begun).collect();
                if begun.is_empty() {
                    break;
                }
                self.draw_together(&mut rotations, requests, &begun, &mut answers);
            }
        }
        let mut done = Vec::with_capacity(requests.len());
        for ((request, mut rotation), answer) in requests.iter().zip(rotations).zip(answers) {
            done.push(match answer {
                Some(answer) => answer,
                None => self.reserve_in_rotation(&mut rotation, request),
            });
            self.keep(&request.key, rotation);
        }
        done
    }

    /// Begins the counters `new`, those about which nothing is unusual: all new, or all in use. As [`Interleaved::begin`] does
    /// for one.
    fn begin_together(&mut self, rotations: &mut [Rotation], requests: &[Request], new: &[usize]) {
        let Some(&first) = new.first() else { return };
        let keys: Vec<Arc<Key>> = new.iter().map(|&at| Arc::clone(&requests[at].key)).collect();
        let mut found: Vec<Found> = Vec::with_capacity(self.members.len());
        for at in 0..self.members.len() {
            if is_active(self.members[at].pause.as_ref()) {
                found.push(None);
                continue;
            }
            match self.members[at].inspect_all(&keys) {
                Ok(rows) => found.push(Some(rows)),
                Err(fault) => {
                    self.leave_out(&mut rotations[first], at, fault);
                    found.push(None);
                }
            }
        }
        // What every store says of the counter at this place of `new`.
        let of = |found: &[Found], place: usize| -> Vec<Option<Recorded>> {
            found.iter().map(|rows| rows.as_ref().and_then(|rows| rows.get(place)).copied()).collect()
        };
        let is_new = |rows: &[Option<Recorded>]| rows.iter().all(|row| *row == Some(Recorded::Nothing));
        let fresh: Vec<usize> = (0..new.len()).filter(|&place| is_new(&of(&found, place))).collect();
        let mut founded = vec![false; new.len()];
        if !fresh.is_empty() && self.record_together(requests, new, &fresh).is_ok() {
            for &place in &fresh {
                founded[place] = true;
            }
        }
        for (place, &at) in new.iter().enumerate() {
            let rows = of(&found, place);
            let is_ours = |row: &Option<Recorded>| matches!(row, None | Some(Recorded::Ours { .. }));
            let issued = rows.iter().zip(&self.members).any(|(row, member)| {
                matches!(row, Some(Recorded::Ours { next }) if *next > member.first(&requests[at].key, requests[at].start))
            });
            let all_answered = rows.iter().all(Option::is_some);
            if !founded[place] && !(rows.iter().all(is_ours) && (issued || all_answered)) {
                continue;
            }
            let rotation = &mut rotations[at];
            if !issued {
                // The first store issues the first numbers: from then on the loss of any single row is detected.
                rotation.turn = 0;
            }
            for (row, known) in rows.iter().zip(&mut rotation.rows) {
                known.known = row.is_some();
            }
            rotation.begun = true;
        }
    }

    /// Records the partition of new counters in every store, and reads all of them afterwards: another process may have been faster,
    /// and two of the URLs may lead to one store.
    fn record_together(&mut self, requests: &[Request], new: &[usize], fresh: &[usize]) -> Result<(), Fault> {
        let some: Vec<&Request> = fresh.iter().map(|&place| &requests[new[place]]).collect();
        let keys: Vec<Arc<Key>> = some.iter().map(|request| Arc::clone(&request.key)).collect();
        for member in &mut self.members {
            let partition = member.partition;
            let mut work = |at: usize, row: Result<Option<Mark>, Fault>| {
                let start = partition.first(some.get(at)?.start);
                let is_unused = matches!(row, Ok(None | Some(Mark { period: 0, next: 0..=1 })));
                is_unused.then_some(Mark { period: partition.code(), next: start })
            };
            member.store.change_rows(&keys, &mut RowsWork::new(&mut work))?;
        }
        for member in &mut self.members {
            let rows = member.inspect_all(&keys)?;
            if !rows.iter().all(|row| matches!(row, Recorded::Ours { .. })) {
                return Err(rows::moved_on());
            }
        }
        Ok(())
    }

    /// Reserves for each counter from the store whose turn it is. A counter that gets no answer here is asked for again.
    fn draw_together(
        &mut self,
        rotations: &mut [Rotation],
        requests: &[Request],
        begun: &[usize],
        answers: &mut [Option<Result<Reserved, Fault>>],
    ) {
        for at in 0..self.members.len() {
            let (mut own, mut asked) = (Vec::new(), Vec::new());
            for &of in begun {
                let (rotation, request) = (&rotations[of], &requests[of]);
                let (ready, _) = self.order(rotation, rotation.turn);
                if answers[of].is_some() || ready.first() != Some(&at) || !rotation.rows[at].known {
                    continue;
                }
                let member = &self.members[at];
                let last = member.partition.last(request.last.min(MAX_NUMBER));
                let lowest = member.partition.first(request.high_water.next.max(1));
                if lowest <= last {
                    asked.push(member.request_for(request, rotation.rows[at].seen, lowest, last));
                    own.push((of, lowest));
                }
            }
            if asked.is_empty() {
                continue;
            }
            let got = self.members[at].store.reserve_counters(&asked);
            let mut is_told = false;
            for (((of, lowest), asked), got) in own.into_iter().zip(&asked).zip(got) {
                let (rotation, request) = (&mut rotations[of], &requests[of]);
                match got {
                    Ok(got) => {
                        let row = &mut rotation.rows[at];
                        if got.lo < row.seen.max(1) || got.hi <= got.lo || got.period != asked.period {
                            let what =
                                format!("it answered with {}..{}, not above {}", got.lo, got.hi, row.seen);
                            self.leave_out(rotation, at, Fault::new(FaultKind::WentBackwards, what));
                            continue;
                        }
                        row.seen = got.hi;
                        row.pause = None;
                        self.members[at].pause = None;
                        if got.hi > lowest {
                            let since = std::time::Instant::now();
                            let own =
                                LeftOver { member: at, lo: got.lo, hi: got.hi, since, ttl_ms: got.ttl_ms };
                            answers[of] = self.issue(rotation, own, request).map(Ok);
                        }
                    }
                    // The whole store: it is left out, and reported, once.
                    Err(fault) if gone(fault.kind) => {
                        if !std::mem::replace(&mut is_told, true) {
                            let fault = self.members[at].explain(request, &rotation.rows[at], fault);
                            self.leave_out(rotation, at, fault);
                        }
                    }
                    Err(fault) => {
                        let fault = self.members[at].explain(request, &rotation.rows[at], fault);
                        self.leave_out(rotation, at, fault);
                        if std::mem::replace(&mut is_told, true) {
                            // One of a batch is reported.
                            self.news.pop();
                        }
                    }
                }
            }
        }
    }

    /// Returns ranges: those that lie in one chunk of one store together, the others one by one.
    pub(super) fn give_back_of_counters(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        let mut given: Vec<Option<bool>> = vec![None; ranges.len()];
        for at in 0..self.members.len() {
            if is_active(self.members[at].pause.as_ref()) {
                continue;
            }
            let partition = self.members[at].partition;
            let (mut places, mut own) = (Vec::new(), Vec::new());
            for (place, range) in ranges.iter().enumerate() {
                let Some(top) = range.hi.checked_sub(1).filter(|_| range.lo < range.hi) else { continue };
                let (first, last) = (partition.first(range.lo), partition.last(top));
                if partition.global(first) != Some(range.lo)
                    || partition.global(last) != Some(top)
                    || last - first != top - range.lo
                {
                    continue;
                }
                let left = self.sources.get(&record::identity(&range.key)).and_then(|of| of.left_over);
                // The kept rest of a reservation lies right above, in the store's own numbers.
                let hi = left
                    .filter(|left| (left.member, left.lo) == (at, last + 1))
                    .map_or(last + 1, |left| left.hi);
                let period = self.members[at].period(&range.key);
                own.push(GiveBack { key: Arc::clone(&range.key), period, lo: first, hi });
                places.push(place);
            }
            if own.is_empty() {
                continue;
            }
            let member = &mut self.members[at];
            let done = member.store.give_back_counters(&own).map_err(|fault| member.said(fault))?;
            for (place, done) in places.into_iter().zip(done) {
                given[place] = Some(done);
                if let Some(rotation) =
                    self.sources.get_mut(&record::identity(&ranges[place].key)).filter(|_| done)
                {
                    rotation.left_over = None;
                }
            }
        }
        let alone = |(range, given): (&GiveBack, Option<bool>)| match given {
            Some(given) => Ok(given),
            None => crate::store::RowStore::give_back(self, &range.key, range.period, range.lo, range.hi),
        };
        ranges.iter().zip(given).map(alone).collect()
    }
}
