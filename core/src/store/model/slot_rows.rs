//! Which slot of a pool a process gets, and when a lease is renewed or freed. Every store decides alike.
//!
//! A change is one compare-and-set on token, mark and end of a row, inside a transaction that reads without locks: two processes that
//! choose the same slot are told apart by it, on a server that detects the conflict only at the commit too.

use crate::layout::rfc3339;
pub(crate) use crate::request::worker::POOL_ROW;
use crate::request::worker::{
    Left, OwnSlot, PassedOver, PoolRecord, PoolRows, RaisePool, Release, Renewal, Renewed, SlotRow,
    SlotState, Take, Taken, owner_shown,
};
use crate::store::model::pool_rows::SlotRows;
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Row, StoreIndex};

/// A process that was too late for the lowest unused slot chooses among this many, and twice as many after each further try: however
/// many processes start at once, they soon have different slots.
const SPREAD: usize = 16;

/// The number of slots to choose from doubles this often.
const DOUBLINGS: usize = 16;

/// How many holders a message names.
const NAMED: usize = 5;

/// The owner of a slot that `keymill repair` has raised, for people.
const REPAIR: &str = "keymill repair";

/// The longest name of a source that the table holds, in bytes.
const LONGEST_SOURCE: usize = 512;

impl SlotRow {
    /// The slot after its worker got newer marks at another place: free, and without a note.
    pub(crate) fn elsewhere(&self) -> SlotRow {
        SlotRow { ends_at: 0, state: SlotState::Elsewhere, source: String::new(), ..self.clone() }
    }
}

/// The slot after a repair to `to`.
pub(crate) fn repaired(row: &SlotRow, to: u64) -> SlotRow {
    SlotRow {
        mark: row.mark.max(to),
        ends_at: 0,
        state: SlotState::Repaired,
        source: String::new(),
        owner: REPAIR.to_owned(),
        ..row.clone()
    }
}

/// Refuses a source whose name the table does not hold: its slots would never note it, and a name that is cut is another source's.
fn check_source(take: &Take) -> Result<(), Fault> {
    let source = take.beside.places.as_ref().map_or("", |places| &places.source);
    if source.len() <= LONGEST_SOURCE {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "the name of the source has {} bytes, and the table of workers holds {LONGEST_SOURCE}; nothing was changed; give the source a shorter name",
            source.len()
        ),
    ))
}

/// Takes a slot; `None`: another process was faster. `attempt` counts those. Answers with the slot's row as it was before too.
pub(crate) fn take_row(
    rows: &mut dyn SlotRows,
    take: &Take,
    attempt: usize,
) -> Result<Option<(Taken, Option<SlotRow>)>, Fault> {
    check_source(take)?;
    let Some(pool) = begin(rows, take)? else { return Ok(None) };
    let take = &take.believed(pool.now_ms);
    let (old, slot) = match choose(&pool, take, attempt) {
        Some(Choice::Used(row)) => (Some(row), row.slot),
        Some(Choice::New(slot)) => (None, slot),
        None => return Err(none_free(&pool, take)),
    };
    let start = old.map_or(0, |row| row.mark).max(pool.floor);
    let new = SlotRow {
        slot,
        token: take.token,
        mark: take.mark.max(start),
        ends_at: ends_at(pool.now_ms, take.lease_ms),
        state: SlotState::Leased,
        source: match &take.beside.places {
            // It has the newest mark, and keeps it.
            Some(places) if old.is_some_and(|old| old.is_noted(&places.source)) => places.source.clone(),
            // The other places were not looked at yet: the next change notes it.
            _ => String::new(),
        },
        owner: owner_shown(&take.owner),
        layout: String::new(),
        store: take.store,
    };
    let done = match old {
        Some(old) => rows.replace_slot(&take.key, old, &new)?,
        None => rows.insert_slot(&take.key, &new, pool.floor)?,
    };
    Ok(done.then(|| {
        (Taken { slot, start, mark: new.mark, now_ms: pool.now_ms, has_moved: false }, old.cloned())
    }))
}

/// Records the layout of a pool that is new, and refuses another one; answers with the pool. `None`: another process was faster.
pub(crate) fn begin(rows: &mut dyn SlotRows, take: &Take) -> Result<Option<PoolRows>, Fault> {
    let pool = rows.read_pool(&take.key)?;
    check_layout(&take.key, &take.layout, take.store, &pool)?;
    if pool.record.is_none() && !rows.insert_pool(&take.key, &recorded(&take.layout, take.store).row(0))? {
        return Ok(None);
    }
    Ok(Some(pool))
}

/// Notes in one of several stores that all of them have recorded the pool: from now on a store without the record has lost it, or is
/// not one of them. The note is a floor of one tick, which no clock is below. `None`: another process was faster.
pub(crate) fn note_recorded(rows: &mut dyn SlotRows, key: &Key) -> Result<Option<()>, Fault> {
    let pool = rows.read_pool(key)?;
    if pool.floor > 0 {
        return Ok(Some(()));
    }
    let Some(record) = pool.record else { return Ok(None) };
    Ok(rows.replace_slot(key, &record.row(0), &record.row(1))?.then_some(()))
}

/// Refuses a pool that was begun with another layout.
pub(crate) fn check_layout(key: &Key, layout: &str, store: StoreIndex, pool: &PoolRows) -> Result<(), Fault> {
    let wanted = recorded(layout, store);
    match &pool.record {
        Some(found) if found.store != store => Err(of_other_stores(&key.name, found.store, store)),
        Some(found) if *found != wanted => Err(other_layout(key, &found.layout, layout)),
        _ => Ok(()),
    }
}

/// The tick at which a worker of the pool may begin, the earliest of all.
pub(crate) fn lowest(pool: &PoolRows) -> u64 {
    pool.slots.iter().map(|row| row.mark.max(pool.floor)).chain([pool.floor]).min().unwrap_or(0)
}

/// Refuses a raise to `to` that would raise no worker: the earliest of them begins at `lowest`.
pub(crate) fn check_raises(key: &Key, to: u64, lowest: u64) -> Result<(), Fault> {
    if to > 0 && to >= lowest {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "every worker of pool `{}` begins at tick {lowest} or later, and {to} raises none of them; give a later time, or an id of a later time",
            key.name
        ),
    ))
}

/// The pool after [`raise`]: every mark is at least `to`, every token is new, and every lease has ended.
pub(crate) fn raised(raise: &RaisePool, pool: &PoolRows) -> Result<PoolRows, Fault> {
    let RaisePool { key, layout, store, to, .. } = raise;
    check_layout(key, layout, *store, pool)?;
    // Of several stores one may stand higher than another that was restored.
    if !store.is_one_of_several() {
        check_raises(key, *to, lowest(pool))?;
    }
    let slots = pool.slots.iter().map(|row| raised_slot(raise, row));
    Ok(PoolRows {
        record: Some(recorded(layout, *store)),
        floor: pool.floor.max(*to),
        slots: slots.collect(),
        now_ms: pool.now_ms,
        locked: Vec::new(),
        others: pool.others.clone(),
        is_cut: false,
    })
}

/// The token of every slot is the same new one, so that an attempt that is made again changes nothing more. A slot that is repaired
/// already has no process, and stays as it is.
fn raised_slot(raise: &RaisePool, row: &SlotRow) -> SlotRow {
    let repaired = repaired(row, raise.to);
    if repaired == *row { repaired } else { SlotRow { token: raise.token.max(1), ..repaired } }
}

/// Raises the slots that other processes took for the first time while the pool was raised: those that the answer of [`raise`] lacks.
/// No such slot is made once the floor is committed.
pub(crate) fn raise_added(
    rows: &mut dyn SlotRows,
    request: &RaisePool,
    before: &PoolRows,
) -> Result<Option<()>, Fault> {
    let pool = rows.read_pool(&request.key)?;
    let known = |row: &SlotRow| before.slots.iter().any(|known| known.slot == row.slot);
    for row in pool.slots.iter().filter(|row| !known(row)) {
        if !rows.replace_slot(&request.key, row, &raised_slot(request, row))? {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

/// Raises a pool, and takes its workers from the processes that use them; answers with its rows before and after.
pub(crate) fn raise(
    rows: &mut dyn SlotRows,
    request: &RaisePool,
) -> Result<Option<(PoolRows, PoolRows)>, Fault> {
    let key = &request.key;
    let before = rows.read_pool(key)?;
    let after = raised(request, &before)?;
    let record = recorded(&request.layout, request.store);
    let recorded = if before.record.is_none() {
        rows.insert_pool(key, &record.row(after.floor))?
    } else {
        after.floor == before.floor
            || rows.replace_slot(key, &record.row(before.floor), &record.row(after.floor))?
    };
    if !recorded {
        return Ok(None);
    }
    for (old, new) in before.slots.iter().zip(&after.slots) {
        if !rows.replace_slot(key, old, new)? {
            return Ok(None);
        }
    }
    Ok(Some((before, after)))
}

/// Renews leases; each belongs to this process or to another one.
pub(crate) fn renew(rows: &mut dyn SlotRows, renewals: &[Renewal]) -> Result<Option<Renewed>, Fault> {
    let mut renewed = Renewed { marks: Vec::with_capacity(renewals.len()), now_ms: 0 };
    for renewal in renewals {
        let key = &renewal.own.key;
        let pool = rows.read_pool(key)?;
        renewed.now_ms = pool.now_ms;
        // An earlier attempt may have written what this one is to write.
        let owned = own(&pool, &renewal.own, Some(renewal.to));
        let Ok(old) = owned.map_err(|why| renewed.marks.push(Err(lost(key, renewal.own.slot, &why)))) else {
            continue;
        };
        let Left { token, mark } = renewal.to;
        let mark = mark.max(old.mark);
        let (source, ends_at) = (renewal.own.source.to_string(), ends_at(pool.now_ms, renewal.lease_ms));
        let new = SlotRow { token, mark, ends_at, source, ..old.clone() };
        if !rows.replace_slot(key, old, &new)? {
            return Ok(None);
        }
        renewed.marks.push(Ok(mark));
    }
    Ok(Some(renewed))
}

/// Frees slots; another owner's slots stay as they are. Answers which were freed.
pub(crate) fn free(rows: &mut dyn SlotRows, releases: &[Release]) -> Result<Option<Vec<bool>>, Fault> {
    let mut freed = Vec::with_capacity(releases.len());
    for release in releases {
        let pool = rows.read_pool(&release.own.key)?;
        let Ok(old) = own(&pool, &release.own, None) else {
            freed.push(false);
            continue;
        };
        let source = release.own.source.to_string();
        let new = SlotRow { mark: release.used.min(old.mark), ends_at: 0, source, ..old.clone() };
        if !rows.replace_slot(&release.own.key, old, &new)? {
            return Ok(None);
        }
        freed.push(true);
    }
    Ok(Some(freed))
}

/// The row of a slot, where this owner wrote it, or where this request did; else what was seen.
fn own<'p>(pool: &'p PoolRows, own: &OwnSlot, to: Option<Left>) -> Result<&'p SlotRow, String> {
    let Some(row) = pool.slots.iter().find(|row| row.slot == own.slot) else {
        return Err("its row is gone: the table was emptied or restored from a backup".to_owned());
    };
    if own.is_left(row) || to.is_some_and(|to| to.is_in(row)) {
        return Ok(row);
    }
    let writer = match row.state {
        SlotState::Elsewhere => "a process that has the worker at another place".to_owned(),
        _ => format!("`{}`", row.owner),
    };
    Err(format!(
        "{writer} has written its row since: another process has taken the worker, this process was cloned, or the table was restored from a backup"
    ))
}

fn lost(key: &Key, slot: u64, why: &str) -> Fault {
    Fault::new(FaultKind::Taken, format!("worker {slot} of pool `{}` is no longer leased: {why}", key.name))
}

/// 2^63-1 at most, which is the column's.
fn ends_at(now_ms: u64, lease_ms: u64) -> u64 {
    now_ms.saturating_add(lease_ms).min(MAX_NUMBER)
}

/// What a pool records.
pub(crate) fn recorded(layout: &str, store: StoreIndex) -> PoolRecord {
    PoolRecord { layout: layout.to_owned(), store }
}

/// The pool belongs to another list of stores.
pub(crate) fn of_other_stores(pool: &str, found: StoreIndex, store: StoreIndex) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "pool `{pool}` was begun in {found}, and this mill opens it in {store}: with other `stores` or another order ids would come twice; nothing was changed. Open it with the `stores` it was begun with",
        ),
    )
}

fn other_layout(key: &Key, found: &str, wanted: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "pool `{}` was begun with `{found}`, and this source has `{wanted}`: ids of both could be equal, in another pool too. Write the `layout` and `epoch` that the pool records; another layout or epoch is for another entity, with a source of another name",
            key.name
        ),
    )
}

enum Choice<'p> {
    Used(&'p SlotRow),
    New(u64),
}

fn is_offered(take: &Take, slot: u64) -> bool {
    let is_passed_over = take.beside.passed_over.iter().any(|passed| passed.slot == slot);
    (take.slots.first..=take.slots.last).contains(&slot) && take.store.has_worker(slot) && !is_passed_over
}

/// The best slot: among free ones the lowest mark; without a free one, the lowest slot without a row.
fn choose<'p>(pool: &'p PoolRows, take: &Take, attempt: usize) -> Option<Choice<'p>> {
    if pool.floor > take.latest_mark {
        return None;
    }
    let usable = |row: &&SlotRow| {
        is_offered(take, row.slot) && !row.is_held(pool.now_ms) && row.mark <= take.latest_mark
    };
    let is_locked = |row: &SlotRow| pool.locked.contains(&row.slot);
    // Callers of a slot with the latest mark wait for the next tick, which may be a minute away.
    let waits = |row: &SlotRow| row.mark >= take.latest_mark;
    let is_last = |row: &SlotRow| is_locked(row) || row.state == SlotState::Elsewhere || waits(row);
    // A slot whose owner closed it before one whose lease ran out; and marks that no caller has to wait for are equal.
    let order = |row: &&SlotRow| (is_last(row), is_locked(row), row.ends_at != 0, row.mark.max(take.present));
    let best = pool.slots.iter().filter(usable).min_by_key(order);
    if let Some(best) = best.filter(|best| !is_last(best)) {
        let equals: Vec<_> =
            pool.slots.iter().filter(usable).filter(|row| order(row) == order(&best)).collect();
        // At random, so that processes that start together do not all choose the same one.
        let at = if attempt == 0 { 0 } else { fastrand::usize(..equals.len()) };
        return equals.get(at).map(|row| Choice::Used(row));
    }
    let stores = take.store.stores.max(1);
    let first = take.slots.first + (take.store.index + stores - take.slots.first % stores) % stores;
    let mut used: Vec<u64> = pool.slots.iter().map(|row| row.slot).collect();
    used.sort_unstable();
    let window = attempt.checked_sub(1).map_or(1, |late| SPREAD << late.min(DOUBLINGS));
    let unused = (first..=take.slots.last).step_by(usize::try_from(stores).unwrap_or(usize::MAX));
    let unused = unused.filter(|slot| used.binary_search(slot).is_err() && is_offered(take, *slot));
    let unused: Vec<u64> = unused.take(window).collect();
    let at = if unused.is_empty() { 0 } else { fastrand::usize(..unused.len()) };
    unused.get(at).map(|slot| Choice::New(*slot)).or(best.map(Choice::Used))
}

/// Every slot is held, or has a mark that is too far ahead.
fn none_free(pool: &PoolRows, take: &Take) -> Fault {
    let mut held: Vec<_> =
        pool.slots.iter().filter(|row| is_offered(take, row.slot) && row.is_held(pool.now_ms)).collect();
    held.sort_by_key(|row| row.ends_at);
    let ahead = pool
        .slots
        .iter()
        .filter(|row| is_offered(take, row.slot) && !row.is_held(pool.now_ms) && row.mark > take.latest_mark)
        .count();
    let mut message = format!(
        "no worker of pool `{}` is free in slots {}-{}: {}",
        take.key.name,
        take.slots.first,
        take.slots.last,
        leased(held.len())
    );
    let names: Vec<_> =
        held.iter().take(NAMED).map(|row| format!("{} by {}", row.slot, row.holder())).collect();
    if !names.is_empty() {
        let more = if held.len() > NAMED { ", …" } else { "" };
        message.push_str(&format!(" ({}{more})", names.join(", ")));
    }
    if let Some(first) = held.first() {
        let seconds = (first.ends_at - pool.now_ms).div_ceil(1000);
        message.push_str(&format!(", the first lease ends in {seconds} s unless it is renewed"));
    }
    if pool.floor > take.latest_mark {
        message.push_str(&format!(
            "; `repair` raised the pool to tick {}, which is ahead of the time by more than max_lead: {}; set right the one that is wrong, else workers are free again when the time has come near that tick, which `keymill status` shows",
            pool.floor,
            both_clocks(take, pool)
        ));
        return Fault::new(FaultKind::NoneFree, message);
    }
    for PassedOver { slot, why } in take.beside.passed_over.iter().take(NAMED) {
        message.push_str(&format!("; {slot} is passed over: {why}"));
    }
    if ahead > 0 {
        message.push_str(&format!(
            "; {ahead} passed over, since their marks are ahead of the time by more than max_lead: {}; set right the one that is wrong, or wait until the time has come near the marks",
            both_clocks(take, pool)
        ));
    }
    if !held.is_empty() {
        message.push_str(
            "; close processes that need none, or widen `slots=` by workers that no other program has, if it is set; a layout with more worker bits needs a new source and a new column: its ids may equal those of this one",
        );
    }
    Fault::new(FaultKind::NoneFree, message)
}

/// What this machine and the store take for the time. Ids are made of the earlier one where they are far apart.
fn both_clocks(take: &Take, pool: &PoolRows) -> String {
    let stores = i64::try_from(pool.now_ms).unwrap_or(i64::MAX);
    format!("this machine's clock shows {}, the store's {}", rfc3339(take.wall_ms), rfc3339(stores))
}

/// How many slots are leased.
fn leased(count: usize) -> String {
    match count {
        0 => "none is leased".to_owned(),
        1 => "1 is leased".to_owned(),
        _ => format!("{count} are leased"),
    }
}

/// The slots of a pool as one row: who holds which, for how long. Its position is the highest mark.
pub(crate) fn shown(pool: &PoolRows) -> Row {
    let (held, free): (Vec<_>, Vec<_>) = pool.slots.iter().partition(|row| row.is_held(pool.now_ms));
    let each = held.iter().map(|row| {
        format!("{} by {} for {} s", row.slot, row.holder(), (row.ends_at - pool.now_ms).div_ceil(1000))
    });
    let mut text = if held.is_empty() { "none leased".to_owned() } else { format!("{} leased", held.len()) };
    for (at, holder) in each.enumerate() {
        text.push_str(if at == 0 { ": " } else { ", " });
        text.push_str(&holder);
    }
    if !free.is_empty() {
        let free: Vec<_> = free.iter().map(|row| row.slot.to_string()).collect();
        text.push_str(&format!("; free, and used before: {}", free.join(", ")));
    }
    let next = pool.slots.iter().map(|row| row.mark).max().unwrap_or(0).max(pool.floor);
    Row::at(next, text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::MillConfig;
    use crate::request::worker::{Beside, Slots};

    const NOW: u64 = 1_000_000;

    /// Rows in a vector, without other processes.
    #[derive(Default)]
    struct Table(PoolRows);

    impl SlotRows for Table {
        fn read_pool(&mut self, _key: &Key) -> Result<PoolRows, Fault> {
            Ok(PoolRows { now_ms: NOW, ..self.0.clone() })
        }
        fn insert_pool(&mut self, key: &Key, new: &SlotRow) -> Result<bool, Fault> {
            self.0.add(key, new.clone()).map(|()| true)
        }
        fn insert_slot(&mut self, _key: &Key, new: &SlotRow, _floor: u64) -> Result<bool, Fault> {
            self.0.slots.push(new.clone());
            Ok(true)
        }
        fn delete_slot(&mut self, _key: &Key, old: &SlotRow) -> Result<bool, Fault> {
            self.0.slots.retain(|row| row != old);
            Ok(true)
        }
        fn replace_slot(&mut self, _key: &Key, old: &SlotRow, new: &SlotRow) -> Result<bool, Fault> {
            if new.slot == POOL_ROW {
                self.0.floor = new.mark;
                return Ok(true);
            }
            let row = self.0.slots.iter_mut().find(|row| *row == old).expect("the row that was read");
            *row = new.clone();
            Ok(true)
        }
    }

    fn key() -> Arc<Key> {
        MillConfig::parse("memory:").and_then(|config| config.spec("snowflake:f")).expect("a spec").key
    }

    fn request(first: u64, last: u64) -> Take {
        Take {
            key: key(),
            layout: "a layout".into(),
            slots: Slots { first, last },
            store: StoreIndex::ONLY,
            latest_mark: 1_003,
            present: 1_000,
            mark: 1_033,
            wall_ms: 0,
            unit_ms: 1,
            least_mark: 0,
            lease_ms: 30_000,
            token: 7,
            owner: "here:1".into(),
            beside: Beside::default(),
        }
    }

    fn take(rows: &mut dyn SlotRows, take: &Take, attempt: usize) -> Result<Option<Taken>, Fault> {
        Ok(take_row(rows, take, attempt)?.map(|(taken, _)| taken))
    }

    fn row(slot: u64, mark: u64, ends_at: u64) -> SlotRow {
        SlotRow { slot, token: 5, mark, ends_at, owner: format!("there:{slot}"), ..SlotRow::default() }
    }

    fn taken(slots: Vec<SlotRow>, request: &Take) -> Result<Option<Taken>, Fault> {
        take(
            &mut Table(PoolRows {
                record: Some(recorded(&request.layout, request.store)),
                slots,
                ..PoolRows::default()
            }),
            request,
            0,
        )
    }

    fn slot_of(slots: Vec<SlotRow>, request: &Take) -> (u64, u64) {
        let taken = taken(slots, request).expect("a slot").expect("no other process");
        (taken.slot, taken.start)
    }

    #[test]
    fn a_slot_whose_worker_has_newer_marks_elsewhere_or_was_repaired_notes_no_source() {
        let noted = |state: SlotState| SlotRow { state, source: "tx".to_owned(), ..row(3, 900, 0) };
        assert!(noted(SlotState::Leased).is_noted("tx"));
        assert!(!noted(SlotState::Leased).is_noted("ty"));
        for state in [SlotState::Elsewhere, SlotState::Repaired] {
            assert!(!noted(state).is_noted("tx"), "{state:?}");
        }
    }

    #[test]
    fn the_lowest_unused_slot_is_taken_where_none_was_given_back() {
        assert_eq!(slot_of(vec![], &request(0, 9)), (0, 0));
        assert_eq!(slot_of(vec![row(0, 900, NOW + 1), row(2, 900, NOW + 1)], &request(0, 9)), (1, 0));
        assert_eq!(slot_of(vec![row(5, 900, NOW + 1)], &request(5, 9)), (6, 0));
        assert_eq!(
            slot_of(vec![], &Take { store: StoreIndex { stores: 3, index: 1 }, ..request(5, 9) }),
            (7, 0)
        );
    }

    #[test]
    fn a_freed_slot_comes_before_one_whose_lease_ran_out_and_that_before_an_unused_one() {
        let rows = vec![row(0, 900, NOW), row(1, 950, 0), row(2, 1_002, 0)];
        assert_eq!(slot_of(rows.clone(), &request(0, 9)), (1, 950));
        assert_eq!(slot_of(rows[..1].to_vec(), &request(0, 9)), (0, 900));
        assert_eq!(slot_of(rows[2..].to_vec(), &request(0, 9)), (2, 1_002), "a mark within max_lead");
    }

    /// Other processes changed the table since it was read.
    struct Stale<'t> {
        read: PoolRows,
        table: &'t mut Vec<u64>,
    }

    impl SlotRows for Stale<'_> {
        fn read_pool(&mut self, _key: &Key) -> Result<PoolRows, Fault> {
            Ok(self.read.clone())
        }
        fn insert_pool(&mut self, _key: &Key, _new: &SlotRow) -> Result<bool, Fault> {
            unreachable!("the pool is recorded")
        }
        fn insert_slot(&mut self, _key: &Key, new: &SlotRow, _floor: u64) -> Result<bool, Fault> {
            let free = !self.table.contains(&new.slot);
            if free {
                self.table.push(new.slot);
            }
            Ok(free)
        }
        fn replace_slot(&mut self, _key: &Key, _old: &SlotRow, _new: &SlotRow) -> Result<bool, Fault> {
            unreachable!("every slot is held")
        }
        fn delete_slot(&mut self, _key: &Key, _old: &SlotRow) -> Result<bool, Fault> {
            unreachable!("workers have no rows that go")
        }
    }

    #[test]
    fn processes_that_start_at_once_meet_at_the_same_slot_a_few_times_only() {
        let request = request(0, 16_383);
        let mut table = Vec::new();
        let mut waiting = 1_000;
        let mut rounds = 0;
        while waiting > 0 {
            // All of them read, and then each tries to insert.
            let slots = table.iter().map(|&slot| row(slot, 900, NOW + 1)).collect();
            let read = PoolRows {
                record: Some(recorded(&request.layout, request.store)),
                slots,
                now_ms: NOW,
                ..PoolRows::default()
            };
            let tries = (0..waiting).map(|_| {
                let mut rows = Stale { read: read.clone(), table: &mut table };
                take(&mut rows, &request, rounds).expect("there are slots").is_some()
            });
            waiting -= tries.filter(|&taken| taken).count();
            rounds += 1;
        }
        println!("{rounds} rounds");
        assert!(rounds <= 16, "{rounds} rounds");
    }

    #[test]
    fn a_slot_whose_row_another_transaction_holds_is_taken_only_where_there_is_no_other() {
        let chosen = |slots: Vec<SlotRow>, last: u64| {
            let pool = PoolRows { slots, now_ms: NOW, locked: vec![0], ..PoolRows::default() };
            match choose(&pool, &request(0, last), 0) {
                Some(Choice::Used(row)) => row.slot,
                Some(Choice::New(slot)) => slot,
                None => panic!("a slot"),
            }
        };
        assert_eq!(chosen(vec![row(0, 900, 0), row(1, 950, NOW)], 9), 1, "one that was used before");
        assert_eq!(chosen(vec![row(0, 900, 0)], 9), 1, "one without a row");
        assert_eq!(chosen(vec![row(0, 900, 0)], 0), 0, "the transaction may be over");
    }

    #[test]
    fn a_slot_is_held_until_its_end_by_the_clock_of_the_store() {
        let request = request(0, 0);
        assert_eq!(taken(vec![row(0, 900, NOW + 1)], &request).expect_err("held").kind, FaultKind::NoneFree);
        assert_eq!(slot_of(vec![row(0, 900, NOW)], &request), (0, 900));
    }

    #[test]
    fn an_unused_slot_is_taken_before_one_whose_callers_would_wait_for_the_next_tick() {
        assert_eq!(slot_of(vec![row(0, 1_003, 0)], &request(0, 1)), (1, 0));
        assert_eq!(slot_of(vec![row(0, 1_003, 0)], &request(0, 0)), (0, 1_003), "there is no other");
        assert_eq!(slot_of(vec![row(0, 1_003, 0), row(1, 1_002, 0)], &request(0, 2)), (1, 1_002));
    }

    #[test]
    fn a_mark_too_far_ahead_is_passed_over_and_the_message_counts_it() {
        let refused = taken(vec![row(0, 1_004, 0), row(1, 900, NOW + 12_000)], &request(0, 1));
        let refused = refused.expect_err("nothing is free").to_string();
        assert!(refused.contains("1 by there:1") && refused.contains("ends in 12 s"), "{refused}");
        assert!(refused.contains("1 passed over"), "{refused}");
        assert!(
            refused.contains("set right the one that is wrong") && refused.contains("widen `slots=`"),
            "{refused}"
        );
    }

    #[test]
    fn no_process_is_to_be_closed_where_none_holds_a_worker() {
        let refused = taken(vec![row(0, 1_004, 0)], &request(0, 0)).expect_err("nothing is free").to_string();
        assert!(refused.contains("none is leased; 1 passed over") && !refused.contains("close"), "{refused}");
    }

    #[test]
    fn the_slots_of_a_pool_are_shown_as_held_or_as_used_before() {
        let shown = |slots: Vec<SlotRow>| shown(&PoolRows { now_ms: NOW, slots, ..PoolRows::default() }).text;
        assert_eq!(shown(vec![row(0, 900, 0)]), "none leased; free, and used before: 0");
        assert_eq!(
            shown(vec![row(3, 900, NOW + 1500), row(7, 900, 0)]),
            "1 leased: 3 by there:3 for 2 s; free, and used before: 7"
        );
    }

    #[test]
    fn a_clock_that_is_ahead_of_the_stores_by_more_than_ten_minutes_makes_no_marks() {
        let ahead = |ms: u64| Take {
            latest_mark: 1_003 + ms,
            present: 1_000 + ms,
            mark: 1_033 + ms,
            wall_ms: (NOW + ms) as i64,
            ..request(0, 9)
        };
        let mark = |take: &Take| taken(vec![], take).expect("a slot").expect("no other process").mark;
        assert_eq!(mark(&ahead(600_000)), 601_033);
        assert_eq!(mark(&ahead(600_001)), 1_033);
        assert_eq!(mark(&Take { least_mark: 2_000, ..ahead(86_400_000) }), 2_000, "no id is above its mark");
        let far =
            taken(vec![row(0, 1_004, 0)], &Take { slots: Slots { first: 0, last: 0 }, ..ahead(86_400_000) });
        assert_eq!(far.expect_err("a mark ahead of the store's time").kind, FaultKind::NoneFree);
    }

    #[test]
    fn a_lease_that_ends_later_than_any_lease_may_is_not_held() {
        // The store's clock showed a year more for a moment, and its process was killed.
        const YEAR: u64 = 31_536_000_000;
        let held = row(0, 1_001, NOW + 3_600_000);
        assert_eq!(slot_of(vec![row(0, 1_001, NOW + YEAR + 30_000)], &request(0, 0)), (0, 1_001));
        assert_eq!(
            taken(vec![held], &request(0, 0)).expect_err("an hour is a lease").kind,
            FaultKind::NoneFree
        );
    }

    #[test]
    fn a_repair_ends_the_leases() {
        let mut table = Table(PoolRows {
            record: Some(recorded("a layout", StoreIndex::ONLY)),
            slots: vec![row(0, 900, NOW + 3_600_000)],
            ..PoolRows::default()
        });
        let request = RaisePool {
            key: key(),
            layout: "a layout".into(),
            store: StoreIndex::ONLY,
            to: 1_001,
            token: 99,
        };
        assert!(raise(&mut table, &request).expect("raised").is_some());
        assert_eq!(slot_of_table(&mut table), (0, 1_001));
    }

    #[test]
    fn marks_ahead_of_the_stores_clock_blame_neither_clock() {
        // The store's clock stands at 1970-01-01T00:16:40, and this machine's shows eleven minutes more.
        let late = Take {
            latest_mark: 661_003,
            present: 661_000,
            mark: 661_033,
            wall_ms: (NOW + 660_000) as i64,
            ..request(0, 0)
        };
        let refused = taken(vec![row(0, 600_000, 0)], &late).expect_err("its mark is later").to_string();
        for part in
            ["this machine's clock shows 1970-01-01T00:27:40.000Z", "the store's 1970-01-01T00:16:40.000Z"]
        {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(!refused.contains("set the clock"), "{refused}");
    }

    #[test]
    fn a_mark_is_never_lowered_by_a_take() {
        let request = Take { mark: 990, ..request(0, 9) };
        let taken = taken(vec![row(0, 1_001, 0)], &request).expect("a slot").expect("no other process");
        assert_eq!((taken.start, taken.mark), (1_001, 1_001));
    }

    #[test]
    fn a_pool_of_another_layout_or_of_other_stores_is_refused() {
        let mut table = Table::default();
        assert!(take(&mut table, &request(0, 9), 0).is_ok());
        for other in [
            Take { layout: "another".into(), ..request(0, 9) },
            Take { store: StoreIndex { stores: 2, index: 0 }, ..request(0, 9) },
        ] {
            assert_eq!(take(&mut table, &other, 0).expect_err("refused").kind, FaultKind::Refused);
        }
    }

    fn own_slot(slot: u64, token: u64, marks: &[u64]) -> OwnSlot {
        OwnSlot {
            key: key(),
            slot,
            left: marks.iter().map(|&mark| Left { token, mark }).collect(),
            source: "".into(),
        }
    }

    /// A renewal by the owner that left this token and these marks; it writes the token 77.
    fn renewal(slot: u64, token: u64, marks: &[u64]) -> Renewal {
        Renewal { own: own_slot(slot, token, marks), to: Left { token: 77, mark: 1_050 }, lease_ms: 30_000 }
    }

    #[test]
    fn a_renewal_needs_a_token_and_a_mark_that_this_owner_left_together() {
        let pool = |token: u64| {
            let row = SlotRow { token, ..row(3, 1_020, NOW + 1) };
            PoolRows { slots: vec![row], ..PoolRows::default() }
        };
        let renewed_in = |pool: PoolRows, renewal: Renewal| {
            let mut table = Table(pool);
            let answer = renew(&mut table, &[renewal]).expect("answers").expect("no other process");
            let answer = answer.marks.into_iter().next().expect("an answer").map_err(|fault| fault.kind);
            (answer, table.0.slots[0].token)
        };
        let renewed = |renewal: Renewal| renewed_in(pool(5), renewal);
        let lost = (Err(FaultKind::Taken), 5);
        assert_eq!(renewed(renewal(3, 5, &[1_020])), (Ok(1_050), 77));
        assert_eq!(renewed(renewal(3, 5, &[1_010, 1_020])), (Ok(1_050), 77), "an answer was lost");
        assert_eq!(renewed(renewal(3, 5, &[1_010])), lost);
        assert_eq!(renewed(renewal(3, 6, &[1_020])), lost);
        assert_eq!(renewed(renewal(4, 5, &[1_020])), lost, "its row is gone");
        let mut crossed = renewal(3, 5, &[1_010]);
        crossed.own.left.push(Left { token: 6, mark: 1_020 });
        assert_eq!(renewed(crossed), lost, "token and mark of two requests");
    }

    #[test]
    fn a_renewal_that_an_earlier_attempt_carried_out_is_known_by_its_own_token_and_never_by_its_mark() {
        let carried_out = |token: u64| {
            let row = SlotRow { token, ..row(3, 1_050, NOW + 1) };
            let mut table = Table(PoolRows { slots: vec![row], ..PoolRows::default() });
            let answer = renew(&mut table, &[renewal(3, 5, &[1_020])]).expect("answers");
            answer.expect("no other process").marks.remove(0).map_err(|fault| fault.kind)
        };
        assert_eq!(carried_out(77), Ok(1_050));
        assert_eq!(carried_out(78), Err(FaultKind::Taken), "a copy of this process wrote the same mark");
        assert_eq!(carried_out(5), Err(FaultKind::Taken));
    }

    #[test]
    fn a_raised_pool_has_new_tokens_and_no_worker_begins_below_its_floor() {
        let mut table = Table(PoolRows {
            record: Some(recorded("a layout", StoreIndex::ONLY)),
            slots: vec![row(0, 900, NOW + 1), row(1, 1_002, 0)],
            ..PoolRows::default()
        });
        let raise_to = |to: u64| RaisePool {
            key: key(),
            layout: "a layout".into(),
            store: StoreIndex::ONLY,
            to,
            token: 99,
        };
        let (before, after) = raise(&mut table, &raise_to(1_001)).expect("raised").expect("no other process");
        assert_eq!((before.floor, after.floor), (0, 1_001));
        assert_eq!(after.slots.iter().map(|row| row.mark).collect::<Vec<_>>(), [1_001, 1_002]);
        let lost = renewal(0, 5, &[900]);
        let lost = renew(&mut table, &[lost]).expect("answers").expect("no other process").marks.remove(0);
        assert!(lost.expect_err("another token").to_string().contains("keymill repair"));
        let fresh = take(&mut table, &request(5, 9), 0).expect("a slot").expect("no other process");
        assert_eq!((fresh.slot, fresh.start), (5, 1_001), "a slot without a row begins at the floor too");
        assert_eq!(raise(&mut table, &raise_to(1_000)).expect_err("lowers").kind, FaultKind::Refused);
        let far = raise(&mut table, &raise_to(5_000)).expect("raised").expect("no other process").1;
        let refused = take(&mut table, &request(5, 9), 0).expect_err("ahead of the clock").to_string();
        assert!(refused.contains("`repair` raised the pool to tick 5000"), "{refused}");
        assert_eq!(far.floor, 5_000);
    }

    #[test]
    fn a_raise_that_is_made_again_leaves_no_process_its_token() {
        let slots = vec![row(0, 900, NOW + 1), row(1, 900, NOW + 1)];
        let mut table = Table(PoolRows { slots, ..PoolRows::default() });
        let request = RaisePool {
            key: key(),
            layout: "a layout".into(),
            store: StoreIndex::ONLY,
            to: 1_001,
            token: 99,
        };
        // On Redis an attempt that met a faster process leaves what it has changed.
        for _ in 0..2 {
            assert!(raise(&mut table, &request).expect("raised").is_some());
        }
        assert!(table.0.slots.iter().all(|row| row.token != 5 && row.mark == 1_001), "{:?}", table.0.slots);
    }

    #[test]
    fn a_pool_whose_rows_are_gone_is_raised_too() {
        let mut table = Table::default();
        let request = RaisePool {
            key: key(),
            layout: "a layout".into(),
            store: StoreIndex::ONLY,
            to: 1_001,
            token: 99,
        };
        assert!(raise(&mut table, &request).expect("raised").is_some());
        assert_eq!(slot_of_table(&mut table), (0, 1_001));
    }

    fn slot_of_table(table: &mut Table) -> (u64, u64) {
        let taken = take(table, &request(0, 9), 0).expect("a slot").expect("no other process");
        (taken.slot, taken.start)
    }

    #[test]
    fn a_freed_slot_has_the_mark_that_was_used_and_the_next_owner_begins_there() {
        let mut table = Table(PoolRows { slots: vec![row(3, 1_020, NOW + 1)], ..PoolRows::default() });
        let release = Release { own: own_slot(3, 5, &[1_020]), used: 980 };
        assert_eq!(free(&mut table, std::slice::from_ref(&release)).expect("freed"), Some(vec![true]));
        assert_eq!((table.0.slots[0].mark, table.0.slots[0].ends_at), (980, 0));
        let stranger = Release { own: own_slot(3, 6, &[980]), used: 980 };
        assert_eq!(free(&mut table, &[stranger]).expect("an answer"), Some(vec![false]));
    }
}
