//! Counters of a bank over several stores, many at once: each store is asked once for all counters whose turn it is.
//!
//! Every counter has a rotation of its own, as a source has. What is usual is done for all of them together; a counter that needs
//! more is reserved as a single source is, by [`Interleaved::reserve_in_rotation`].

use std::sync::Arc;

use super::member::LastResorts;
use super::record::{self, Recorded, SourceId};
use super::rotation::{LeftOver, Rotation};
use super::{Interleaved, gone};
use crate::request::bank_spec::bank_of;
use crate::store::{Fault, GiveBack, Key, Request, Reserved};

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
        // One for all of them: where every store is silent, each counter would wait for a timeout of its own.
        let mut last_resorts = LastResorts::default();
        for ((request, mut rotation), answer) in requests.iter().zip(rotations).zip(answers) {
            done.push(match answer {
                Some(answer) => answer,
                None => self.reserve_in_rotation(&mut rotation, request, &mut last_resorts),
            });
            self.keep(&request.key, rotation);
        }
        if let Some(request) = requests.first() {
            self.complete_further(request);
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
            found.push(match self.members[at].ask(|store| store.inspect_all(&keys)) {
                Ok(rows) => Some(rows),
                Err(fault) => {
                    self.leave_out(&mut rotations[first], at, fault);
                    None
                }
            });
        }
        let is_complete = bank_of(&requests[first].key)
            .is_some_and(|(bank, counters)| self.is_known_complete(&bank, counters));
        // The row of the counter at this place of `new`, in each store.
        let rows_at = |found: &[Found], place: usize| -> Vec<Option<Recorded>> {
            found.iter().map(|rows| rows.as_ref().and_then(|rows| rows.get(place)).copied()).collect()
        };
        let is_new = |rows: &[Option<Recorded>]| rows.iter().all(|row| *row == Some(Recorded::Nothing));
        let mut fresh: Vec<usize> = (0..new.len()).filter(|&place| is_new(&rows_at(&found, place))).collect();
        // Where the bank is complete, a missing row was deleted.
        if !fresh.is_empty() && self.may_be_complete(&requests[first].key) {
            fresh.clear();
        }
        let mut founded = vec![false; new.len()];
        if !fresh.is_empty() && self.record_together(requests, new, &fresh).is_ok() {
            for &place in &fresh {
                founded[place] = true;
            }
        }
        for (place, &at) in new.iter().enumerate() {
            let rows = rows_at(&found, place);
            let is_ours = |row: &Option<Recorded>| matches!(row, None | Some(Recorded::Ours { .. }));
            let issued = self.has_issued(&requests[at], &rows);
            let has_answer = rows.iter().any(Option::is_some);
            // A store that does not answer may have failed while the rows were made.
            let is_whole = issued || is_complete || !record::may_be_cut_off(&rows);
            let is_begun = rows.iter().all(is_ours) && has_answer && is_whole;
            if !founded[place] && !is_begun {
                continue;
            }
            let rotation = &mut rotations[at];
            if !issued {
                // The first store issues the first numbers. Once it has, the loss of any single row is detected.
                rotation.turn = 0;
            }
            for (row, known) in rows.iter().zip(&mut rotation.rows) {
                known.known = row.is_some();
            }
            rotation.begun = true;
        }
    }

    /// Whether the counter's bank is complete, or not every store says that it is not.
    fn may_be_complete(&mut self, counter: &Key) -> bool {
        let Some((bank, counters)) = bank_of(counter) else { return false };
        self.is_known_complete(&bank, counters) || self.read_whether_complete(&bank, counters).unwrap_or(true)
    }

    /// Records the partition of new counters in every store.
    fn record_together(&mut self, requests: &[Request], new: &[usize], fresh: &[usize]) -> Result<(), Fault> {
        let some: Vec<&Request> = fresh.iter().map(|&place| &requests[new[place]]).collect();
        let keys: Vec<Arc<Key>> = some.iter().map(|request| Arc::clone(&request.key)).collect();
        self.record_in_each(&keys, |at| some.get(at).map_or(1, |request| request.start))
    }

    /// Compares the records of one store, which answers again, for all of these counters.
    fn know_together(
        &mut self,
        rotations: &mut [Rotation],
        requests: &[Request],
        at: usize,
        counters: &[usize],
    ) {
        let unknown: Vec<usize> =
            counters.iter().copied().filter(|&counter| !rotations[counter].rows[at].known).collect();
        if unknown.len() < 2 {
            return;
        }
        let keys: Vec<Arc<Key>> = unknown.iter().map(|&counter| Arc::clone(&requests[counter].key)).collect();
        let Ok(rows) = self.members[at].ask(|store| store.inspect_all(&keys)) else { return };
        for (counter, row) in unknown.into_iter().zip(rows) {
            rotations[counter].rows[at].known = matches!(row, Recorded::Ours { .. });
        }
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
            let is_next = |counter: &usize| {
                let (ready, _) = self.order(&rotations[*counter], rotations[*counter].turn);
                answers[*counter].is_none() && ready.first() == Some(&at)
            };
            let next: Vec<usize> = begun.iter().copied().filter(is_next).collect();
            self.know_together(rotations, requests, at, &next);
            let partition = self.members[at].partition();
            let (mut own, mut asked) = (Vec::new(), Vec::new());
            for counter in next.into_iter().filter(|counter| rotations[*counter].rows[at].known) {
                let (lowest, last) = partition.bounds(&requests[counter]);
                if lowest <= last {
                    asked.push(partition.request_for(
                        &requests[counter],
                        rotations[counter].rows[at].seen,
                        lowest,
                        last,
                    ));
                    own.push((counter, lowest));
                }
            }
            if asked.is_empty() {
                continue;
            }
            let since_ms = self.clock.boot_ms();
            // The context is in the store's own numbers.
            let got = self.members[at].ask_for_all(asked.len(), |store| {
                let answers = store.reserve_counters(&asked).into_iter();
                answers.map(|answer| answer.map_err(Fault::without_context)).collect()
            });
            let mut is_told = false;
            for (((counter, lowest), asked), got) in own.into_iter().zip(&asked).zip(got) {
                let (rotation, request) = (&mut rotations[counter], &requests[counter]);
                let member = &mut self.members[at];
                let drawn = match got {
                    Ok(got) => member.check_drawn(&mut rotation.rows[at], asked, got),
                    // The store has its pause, or it answered for others: this counter is asked for again.
                    Err(fault) if gone(fault.kind) => continue,
                    Err(fault) => Err(member.explain(request, &rotation.rows[at], fault)),
                };
                match drawn {
                    Ok(got) if got.hi > lowest => {
                        let own =
                            LeftOver { member: at, lo: got.lo, hi: got.hi, since_ms, ttl_ms: got.ttl_ms };
                        answers[counter] = self.issue(rotation, own, request).map(Ok);
                    }
                    Ok(_) => {}
                    Err(fault) => {
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

    /// Returns ranges: those that lie in one chunk of one store together, the others one by one. Numbers of a store that does not
    /// answer are lost.
    pub(super) fn give_back_of_counters(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        let mut given: Vec<Option<bool>> = vec![None; ranges.len()];
        for at in 0..self.members.len() {
            let partition = self.members[at].partition();
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
                let hi = self.end_with_left_over(&range.key, at, last + 1);
                let key = partition.key(&range.key);
                own.push(GiveBack { key, period: 0, lo: first, hi, writer: range.writer });
                places.push(place);
            }
            if own.is_empty() {
                continue;
            }
            let done = match self.members[at].ask(|store| store.give_back_counters(&own)) {
                Err(fault) if gone(fault.kind) => vec![false; own.len()],
                done => done?,
            };
            for (place, done) in places.into_iter().zip(done) {
                given[place] = Some(done);
                if done {
                    self.forget_left_over(&ranges[place].key);
                }
            }
        }
        let alone = |(range, given): (&GiveBack, Option<bool>)| match given {
            Some(given) => Ok(given),
            None => self.give_back_in_chunks(range),
        };
        ranges.iter().zip(given).map(alone).collect()
    }

    /// Returns the numbers of a source, from the top down, chunk by chunk, each to its owner.
    pub(super) fn give_back_in_chunks(&mut self, range: &GiveBack) -> Result<bool, Fault> {
        let (key, lo, mut hi) = (&range.key, range.lo, range.hi);
        while lo < hi {
            let owner =
                |partition: &super::Partition| partition.global(partition.last(hi - 1)) == Some(hi - 1);
            let Some((at, partition)) = self
                .members
                .iter()
                .map(super::Member::partition)
                .enumerate()
                .find(|(_, partition)| owner(partition))
            else {
                return Ok(false);
            };
            let last = partition.last(hi - 1);
            let begin = partition.first(lo).max(last + partition.left(last) - partition.chunk);
            let end = self.end_with_left_over(key, at, last + 1);
            let own =
                GiveBack { key: partition.key(key), period: 0, lo: begin, hi: end, writer: range.writer };
            match self.members[at].ask(|store| store.give_back(&own)) {
                Ok(true) => {}
                Err(fault) if !gone(fault.kind) => return Err(fault),
                // The row has moved on, or the store is down, and would delay every source: these numbers are lost instead.
                _ => return Ok(false),
            }
            self.forget_left_over(key);
            let Some(begins) = partition.global(begin) else { return Ok(false) };
            hi = begins;
        }
        Ok(true)
    }

    /// Where numbers of a store end that are returned, in its own numbers: the kept rest of a reservation lies right above them, and is
    /// returned with them.
    fn end_with_left_over(&self, key: &Key, at: usize, end: u64) -> u64 {
        let left = self.sources.get(&SourceId::of(key)).and_then(|source| source.left_over);
        left.filter(|left| (left.member, left.lo) == (at, end)).map_or(end, |left| left.hi)
    }

    fn forget_left_over(&mut self, key: &Key) {
        if let Some(rotation) = self.sources.get_mut(&SourceId::of(key)) {
            rotation.left_over = None;
        }
    }
}
