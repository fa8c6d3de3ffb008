//! The record of a row's partition, kept in each store.
//!
//! Under scheme `keymill` the row itself holds it, in columns. Row and record cannot be separated, each reservation compares
//! them in the store, and a mill with one store or another partition is refused. Other programs' tables have no columns for
//! it; there the record is a row of its own in `keymill_segment`, compared when a process first uses the source. It does not
//! stop programs that never read it: stop old nodes first, and open that row with no plain mill.
//!
//! Such a row and its record can be separated. So the row is made *before* the record, in every store, before any store
//! issues a number. A record without a row therefore always means that the row was deleted. The row is then not made again:
//! its numbers may have been issued. After a crash between the two steps there is a row at its start without a record,
//! which is treated as a new source.

use std::fmt;
use std::sync::Arc;

use super::member::{Conversation, Member};
use super::rotation::MemberRow;
use crate::store::model::decide::misplaced;
use crate::store::model::rows;
use crate::store::{
    BankRow, Columns, Fault, FaultKind, Key, MAX_NUMBER, Mark, Partition, Remedy, Request, Reserved, Row,
    RowMark, RowName, RowStatus, Scheme, Subject,
};

/// The state of a source in one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Its partition; `next` is the lowest own number not yet reserved.
    Ours { next: u64 },
    /// A record without a row: the row was deleted.
    Lost,
    /// Neither record nor numbers.
    Nothing,
    /// A row that is not interleaved, with numbers below `next` reserved.
    Plain { next: u64 },
    /// A row of another partition, or in a state or a period that gives no numbers.
    Foreign(RowMark),
}

/// A source among kept state: two columns of one row are two sources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SourceId {
    scheme: Scheme,
    table: String,
    name: RowName,
    columns: Columns,
}

impl SourceId {
    pub(super) fn of(key: &Key) -> SourceId {
        SourceId {
            scheme: key.scheme,
            table: key.table.clone(),
            name: key.name.clone(),
            columns: key.columns.clone(),
        }
    }

    /// Whether the source is a row of the bank that `key` is a row of.
    pub(super) fn is_of_bank(&self, key: &Key) -> bool {
        let bank = |name: &RowName| match name.subject() {
            Subject::Bank { bank, .. } => Some(Arc::clone(bank)),
            _ => None,
        };
        self.table == key.table && bank(&self.name).is_some() && bank(&self.name) == bank(&key.name)
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}{}", self.scheme.name(), self.table, self.name, self.columns)
    }
}

/// Whether the row itself keeps the record.
pub(super) fn in_row(key: &Key) -> bool {
    key.scheme == Scheme::Keymill
}

impl Partition {
    /// The key of the record for a row that cannot hold it.
    fn record_key(self, key: &Key) -> Key {
        Key { partition: Some(self), ..Key::partition_record(SourceId::of(key).to_string()) }
    }

    /// The key of the same row, with this partition where the row keeps one.
    pub(super) fn key(self, key: &Key) -> Arc<Key> {
        let partition = match key.name.subject() {
            // A mark is no counter, and the record and the floor of a bank hold for all of its numbers.
            Subject::Mark { .. } => Some(Partition { chunk: 1, ..self }),
            Subject::Bank { row: BankRow::Record | BankRow::Floor, .. } => None,
            _ => in_row(key).then_some(self),
        };
        Arc::new(Key { partition, ..key.clone() })
    }

    /// The first position of a new source's row.
    pub(super) fn first_of(self, key: &Key, start: u64) -> u64 {
        if in_row(key) { self.first(start) } else { unused(key, self.first(start)) }
    }

    /// Whether numbers of a source that begins at `start` were issued, or may have been. A process with another `start` may have made
    /// the row, or issued numbers below this one.
    pub(super) fn has_issued(self, key: &Key, start: u64, found: &Recorded) -> bool {
        match found {
            Recorded::Ours { next } => *next > self.first_of(key, 1) && *next != self.first_of(key, start),
            // A deleted row may have stood anywhere.
            Recorded::Lost => true,
            _ => false,
        }
    }

    /// Why a store with such a row is refused; `None` if it may be used.
    pub(super) fn refusal(self, key: &Key, found: &Recorded) -> Option<Fault> {
        match found {
            Recorded::Ours { .. } | Recorded::Lost | Recorded::Nothing => None,
            Recorded::Plain { next } => {
                let what = format!(
                    "its row has numbers up to {} of a source with one store, and its partition would issue them again; nothing was changed",
                    next.saturating_sub(1),
                );
                let raise = Remedy::Text(
                    "with this file, raise this source: the ids of another source may equal its ids",
                );
                let repair = Remedy::repair(&key.name, *next);
                Some(Fault::new(FaultKind::Refused, what).with_remedy(raise).with_remedy(repair))
            }
            Recorded::Foreign(row) if row.mark.period != 0 => {
                let period = row.mark.period;
                let what = format!(
                    "its row stands in period {period}, but this key has no periods; nothing was changed"
                );
                Some(Fault::new(FaultKind::Refused, what))
            }
            Recorded::Foreign(row) => {
                let own = Key { partition: Some(self), ..key.clone() };
                Some(misplaced(&own, row.status))
            }
        }
    }

    /// Refuses `to`, a number of all stores, as the row's new position if numbers above it may have been issued by a
    /// source with other stores.
    pub(super) fn may_adopt(self, key: &Key, found: &Recorded, to: u64) -> Result<(), Fault> {
        if to == 0 {
            return Err(Fault::new(FaultKind::Refused, "numbers begin at 1, so 0 cannot be the next one"));
        }
        match found {
            Recorded::Ours { .. } | Recorded::Lost | Recorded::Nothing => Ok(()),
            Recorded::Plain { next } if *next <= to => Ok(()),
            Recorded::Plain { next } => Err(Fault::new(
                FaultKind::Refused,
                format!("its row stands at {next}, above {to}, and repair never lowers a row"),
            )),
            Recorded::Foreign(_) => Err(self.refusal(key, found).unwrap_or_else(|| lost(key))),
        }
    }

    /// The position that [`Conversation::raise_to`] would leave, in this store's own numbers.
    pub(super) fn would_stand(self, key: &Key, found: &Recorded, to: u64) -> Result<u64, Fault> {
        let first = Mark { period: 0, next: self.first(to) };
        // Tickets are whole steps.
        let own = if key.scheme.is_ticket() { rows::moved(key, None, first)?.mark.next } else { first.next };
        Ok(match found {
            Recorded::Ours { next } => own.max(*next),
            Recorded::Plain { next } if !in_row(key) => own.max(*next),
            _ => own,
        })
    }

    /// The lowest own number that the caller may have, and the last one.
    pub(super) fn bounds(self, request: &Request) -> (u64, u64) {
        (self.first(request.high_water.next.max(1)), self.last(request.last.min(MAX_NUMBER)))
    }

    /// The request to the store, in its own numbers. `seen`: where this process saw the row last (0: never); `lowest` and
    /// `last`: the own numbers that the caller may have.
    pub(super) fn request_for(self, request: &Request, seen: u64, lowest: u64, last: u64) -> Request {
        let key = &request.key;
        let want = seen.max(lowest);
        // At most the rest of the chunk, as far as it is known: numbers beyond its end would skip the numbers of other stores.
        let len = request.len.min(self.left(want));
        // The row exists or was deleted. `start` 0 is no number to begin at, so the row is never made again; jumps are
        // measured from 0.
        let own =
            Request { key: self.key(key), len, last, period: 0, period_max: 0, start: 0, ..request.clone() };
        if key.scheme.is_ticket() {
            return Request { high_water: Mark { period: 0, next: seen }, heal: false, ..own };
        }
        // The row may be raised from where it was seen last to `lowest`, and no further. A row below that needs a larger
        // jump, so it went backwards.
        let healed = if request.heal { request.max_jump } else { 0 };
        Request {
            high_water: Mark { period: 0, next: want },
            heal: true,
            max_jump: (want - seen.min(want)).min(want.saturating_sub(1)).saturating_add(healed),
            ..own
        }
    }

    /// Translates a row into all stores' numbers.
    pub(super) fn shown(self, key: &Key, found: &Recorded) -> String {
        match found {
            Recorded::Lost => "its row is gone; `keymill repair` it".to_owned(),
            Recorded::Ours { next: 0 } | Recorded::Nothing => "no row".to_owned(),
            Recorded::Ours { next } => format!("next={}", self.stands(*next)),
            Recorded::Plain { next } => format!("next={next} of a source with one store"),
            other @ Recorded::Foreign(_) => {
                self.refusal(key, other).map_or_else(String::new, |refusal| refusal.to_string())
            }
        }
    }
}

impl Conversation<'_> {
    /// Reads the state of this source.
    pub(super) fn inspect(&mut self, key: &Key) -> Result<Recorded, Fault> {
        self.inspect_from(key, 1)
    }

    /// The same for a source whose numbers begin at `start`: no store issues numbers below it.
    pub(super) fn inspect_from(&mut self, key: &Key, start: u64) -> Result<Recorded, Fault> {
        let partition = self.partition;
        let row = self.look(key)?;
        if in_row(key) {
            return Ok(of_row(partition, row.map(|row| row.row_mark())));
        }
        let row = row.map(|row| row.mark);
        let next = row.map_or(0, |mark| mark.next);
        Ok(match self.look(&partition.record_key(key))?.map(|row| row.row_mark()) {
            Some(record) if record.status != RowStatus::open(Some(partition)) => Recorded::Foreign(record),
            Some(_) if is_missing(key, row) => Recorded::Lost,
            Some(_) => Recorded::Ours { next },
            None if next <= unused(key, start) => Recorded::Nothing,
            None => Recorded::Plain { next },
        })
    }

    /// Reads the states of many counters, whose rows keep their records.
    pub(super) fn inspect_all(&mut self, keys: &[Arc<Key>]) -> Result<Vec<Recorded>, Fault> {
        let partition = self.partition;
        Ok(self.look_rows(keys)?.into_iter().map(|row| of_row(partition, row)).collect())
    }

    /// Makes the row for a scheme with a separate record. An existing row is not lowered.
    pub(super) fn make_row(&mut self, key: &Arc<Key>, start: u64) -> Result<(), Fault> {
        if key.scheme.is_ticket() {
            return self.draw_first_ticket(key);
        }
        let to = self.partition.first(start);
        match self.repair(key, Mark { period: 0, next: to }) {
            // The row is higher: another process made it, and has reserved from it since.
            Err(fault) if fault.kind == FaultKind::Refused => match self.look(key)? {
                Some(row) if row.mark.next > to => Ok(()),
                _ => Err(fault),
            },
            other => other.map(drop),
        }
    }

    /// Draws one unused ticket from a new counter: a counter without a ticket looks as if it had been deleted and created again.
    fn draw_first_ticket(&mut self, key: &Arc<Key>) -> Result<(), Fault> {
        let row = self.look(key)?.map(|row| row.mark);
        if !is_missing(key, row) {
            return Ok(());
        }
        self.reserve(&Request::new(key, key.step)).map(drop)
    }

    /// Checks that this store is the expected one, although the other stores have issued numbers.
    pub(super) fn know(&mut self, key: &Key) -> Result<(), Fault> {
        match self.inspect(key)? {
            Recorded::Ours { .. } => Ok(()),
            Recorded::Nothing | Recorded::Lost => Err(lost(key)),
            other => Err(self.partition.refusal(key, &other).unwrap_or_else(|| lost(key))),
        }
    }

    /// Records the partition for a source that no store has issued a number of. Answers with the position of a plain
    /// mill's row that was created since the store was read, else 0.
    pub(super) fn record(&mut self, key: &Key, start: u64) -> Result<u64, Fault> {
        let recorded = if in_row(key) {
            let plain = |before: Option<Row>| before.filter(|row| row.status.partition.is_none());
            let own = self.own(key);
            self.repair(&own, Mark { period: 0, next: start })
                .map(|(before, _)| plain(before).map_or(0, |row| row.mark.next))
        } else {
            self.record_beside(key).map(|()| 0)
        };
        match recorded {
            // Another process wrote it, and that is read next; or nothing may be written.
            Err(fault) if matches!(fault.kind, FaultKind::Refused | FaultKind::Taken) => {
                if self.inspect(key)? == Recorded::Nothing { Err(fault) } else { Ok(0) }
            }
            other => other,
        }
    }

    /// Makes the record for a row that cannot hold it.
    fn record_beside(&mut self, key: &Key) -> Result<(), Fault> {
        let record = self.partition.record_key(key);
        self.repair(&record, Mark { period: 0, next: 1 }).map(drop)
    }

    /// Raises the row to the first own number at or above `to`, a number of all stores, and records the partition.
    pub(super) fn raise_to(&mut self, key: &Arc<Key>, found: &Recorded, to: u64) -> Result<(), Fault> {
        let partition = self.partition;
        let own = Mark { period: 0, next: partition.first(to) };
        match found {
            Recorded::Ours { next } if *next >= own.next => {}
            // Another program's row counts in steps, and may end higher than needed.
            Recorded::Plain { next } if !in_row(key) && *next >= own.next => {}
            _ => {
                let key = self.own(key);
                self.repair(&key, own).map(drop)?;
            }
        }
        if key.scheme.is_ticket() {
            self.draw_first_ticket(key)?;
        }
        if !in_row(key) {
            self.record_beside(key)?;
        }
        Ok(())
    }
}

impl Member {
    /// Refuses an answer that is not above the numbers that this process has received from the store; notes an answer that is.
    pub(super) fn check_drawn(
        &self,
        row: &mut MemberRow,
        asked: &Request,
        got: Reserved,
    ) -> Result<Reserved, Fault> {
        if got.lo < row.seen.max(1) || got.hi <= got.lo || got.period != asked.period {
            let what = format!("it answered with {}..{}, not above {}", got.lo, got.hi, row.seen);
            return Err(self.said(Fault::new(FaultKind::WentBackwards, what)));
        }
        row.seen = got.hi;
        row.pause = None;
        Ok(got)
    }

    /// Translates a reservation's fault into the numbers that callers know: it is in the store's own numbers.
    pub(super) fn explain(&mut self, request: &Request, row: &MemberRow, fault: Fault) -> Fault {
        let told = [FaultKind::WentBackwards, FaultKind::ClockBehind, FaultKind::Refused, FaultKind::Closed];
        if !told.contains(&fault.kind) {
            return fault;
        }
        let key = &request.key;
        let partition = self.partition();
        let found = self.insist(|store| store.inspect(key));
        if let Some(refusal) = found.as_ref().ok().and_then(|found| partition.refusal(key, found)) {
            return self.said(refusal);
        }
        if fault.kind != FaultKind::WentBackwards && !matches!(found, Ok(Recorded::Lost)) {
            return fault;
        }
        let seen = if row.seen == 0 { 0 } else { partition.stands(row.seen) };
        let known = match seen {
            0 => "this process has seen none of its numbers yet".to_owned(),
            seen => format!("this process has seen {seen}"),
        };
        let stands = match found {
            Ok(Recorded::Ours { next }) if next > 0 => {
                format!("its row stands at {}", partition.stands(next))
            }
            Ok(_) => "its row is gone".to_owned(),
            Err(_) => "its row is below or gone".to_owned(),
        };
        self.said(went_backwards(key, &format!("{stands}, {known}"), seen))
    }
}

/// The state of a row that says of itself how many stores there are.
fn of_row(partition: Partition, row: Option<RowMark>) -> Recorded {
    let Some(row) = row else { return Recorded::Nothing };
    let Mark { period, next } = row.mark;
    match row.status {
        status if period == 0 && status == RowStatus::open(Some(partition)) => Recorded::Ours { next },
        status if period == 0 && status == RowStatus::default() => match next {
            0..=1 => Recorded::Nothing,
            next => Recorded::Plain { next },
        },
        _ => Recorded::Foreign(row),
    }
}

/// Whether a source is new, if no store that answers has issued a number of it. Records are made from the first store to the last: a
/// missing record before an existing one was lost.
pub(super) fn is_new(found: &[Option<Recorded>]) -> bool {
    let is_ours = |row: &Option<Recorded>| matches!(row, Some(Recorded::Ours { .. }));
    let nothing = found.iter().position(|row| *row == Some(Recorded::Nothing));
    nothing.is_some_and(|at| !found[at..].iter().any(is_ours))
}

/// Whether the rows may have been made in a part of the stores only: a store that does not answer comes after all stores that have theirs.
pub(super) fn may_be_cut_off(found: &[Option<Recorded>]) -> bool {
    let last = found.iter().rposition(|row| matches!(row, Some(Recorded::Ours { .. })));
    last.is_some_and(|last| found[last..].contains(&None))
}

/// The highest next number of a row from which no number of a source beginning at `start` was issued.
fn unused(key: &Key, start: u64) -> u64 {
    if key.scheme.is_ticket() { key.step.saturating_add(1) } else { start.max(1) }
}

/// Whether a store has no row of this key. A sequence that was created again is at its first number.
fn is_missing(key: &Key, row: Option<Mark>) -> bool {
    match row {
        None => true,
        Some(mark) => key.scheme.is_ticket() && mark.next <= 1,
    }
}

/// The fault for a deleted row, which was made before any store issued a number.
pub(super) fn lost(key: &Key) -> Fault {
    went_backwards(key, "its row is gone, and this source has begun", 0)
}

fn went_backwards(key: &Key, found: &str, seen: u64) -> Fault {
    let why =
        "a backup was restored, a failover lost writes or the row was deleted; nothing was changed there";
    Fault::new(FaultKind::WentBackwards, format!("{found}: {why}"))
        .with_remedy(Remedy::repair(&key.name, seen))
}

/// The keys whose tables a store needs: the sources' own table, and the table of separate records.
pub(super) fn keys_with_records(keys: &[Arc<Key>]) -> Vec<Arc<Key>> {
    let mut all = keys.to_vec();
    let has_record =
        |key: &&Arc<Key>| !matches!(key.scheme, Scheme::Worker | Scheme::WorkerNode | Scheme::Route);
    if keys.iter().filter(has_record).any(|key| !in_row(key)) {
        all.push(Arc::new(Key::partition_record(String::new())));
    }
    all
}
