//! One worker of a source, several places that keep a mark of it: the row of a fixed worker in `keymill_segment`, and the slots of the
//! pools that the source has leased from. A change of `worker=` or `pool=` moves a worker from one place to another, and must not
//! begin there below the marks of the others.
//!
//! **The rule.** For each source and worker at most one place is *current*: an open row of a fixed worker in its mill's store, or a slot
//! that notes the source ([`SlotRow::is_noted`]). Where a worker begins at a current place, no other place has newer marks. A
//! fixed worker looks at the pools all the same: one of them may have been repaired, or the row put back from a backup. At any other
//! place a process
//!
//! 1. writes its own row first, so that others see it: a slot is taken and held, and notes the source from its first renewal or its
//!    clean end on; the row of a fixed worker is in state [`RowState::Beginning`], which is
//!    not current, so that after a crash this begins again;
//! 2. then reads every other place. A place in use stays as it is: a slot that is held, or a fixed worker whose mark is ahead of the clock.
//!    Then a lease gives its slot back and takes another; a fixed worker waits;
//! 3. ends the others by compare-and-set: a slot gets a new token and the state [`SlotState::Elsewhere`], a fixed worker's row the
//!    state [`RowState::Leased`] and a mark one higher. A process that read such a row before and writes it after fails, and a process that
//!    still used it is told at its next renewal;
//! 4. begins at the highest of the marks.
//!
//! Of two processes that begin at once at two places, the later one reads what the earlier one wrote (1 before 2), or its write fails
//! (3). Each row changes alone, so this holds on a store without transactions over several rows, as on Redis.
//!
//! **Which places.** A source's own pool has a row for each other pool that the source has leased from: it is written before the other
//! pool's slot is used, and so the own pool leads to all of them. Of several stores, worker w has all of its places in store w mod N.
//! Pools of other widths do not count: a source must not change its layout, as ids of two layouts may be equal at any tick. The epoch
//! does not matter: ids hold ticks.
//!
//! **What it cannot know.** Tables with another name than the default, a table that this user may not read, `mark=none`, which asks no
//! store, and a fixed worker that is idle: its process may go on until it raises its mark again.
//!
//! **`repair`** leaves a row that is not current, so that the next process to begin looks at every place.

use super::model::decide::in_state;
use super::model::rows::{self, Rows, StoredRow};
use super::model::slot_rows::{self, POOL_ROW};
use super::{
    Fault, FaultKind, Key, Mark, Partition, PoolRows, Remedy, Row, RowMark, RowState, RowStatus, SlotRow,
    SlotState, SlotStore, StoreIndex, Take, Taken, in_transaction, on_slots,
};
use crate::request::worker::{BeginMark, PassedOver, Places};

/// A process that found so many workers in use leaves the rest to its next attempt.
const MOST_PASSED_OVER: usize = 16;

/// The status of the row of a fixed worker in use, which records the number of stores and the index of its own.
pub(crate) fn in_use_at(store: StoreIndex) -> RowStatus {
    let StoreIndex { stores, index } = store;
    RowStatus::open(store.is_one_of_several().then_some(Partition { stores, index, chunk: 1 }))
}

/// What another place says of a worker.
enum Seen {
    /// Its ids begin here.
    Above(u64),
    /// It is in use, for this reason.
    InUse(String),
}

/// The answer of a place; `None`: it is missing, closed to this user, or a table that keymill does not use and so never wrote a mark to,
/// and nothing is known of it. A place that is refused for anything else may keep the newest mark.
fn if_known<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Err(fault) if fault.absence().is_some() => Ok(None),
        answer => answer.map(Some),
    }
}

/// Leases a slot that no other place of the source uses.
pub(super) fn take(store: &mut (impl SlotStore + ?Sized), take: &Take) -> Result<Taken, Fault> {
    let doing = format!("leasing a worker of pool `{}`", take.key.name);
    let mut take = take.clone();
    loop {
        let (taken, before) =
            on_slots(store, &take.key, &doing, |rows, attempt| slot_rows::take_row(rows, &take, attempt))?;
        let Some(places) = take.beside.places.clone() else { return Ok(taken) };
        if before.as_ref().is_some_and(|row| row.is_noted(&places.source)) {
            return Ok(taken);
        }
        let seen = end_others(store, &take, &taken, &places).map_err(|fault| fault.with_context(&doing));
        let why = match seen {
            Ok(Seen::Above(start)) => {
                return Ok(Taken { start: taken.start.max(start), has_moved: true, ..taken });
            }
            Ok(Seen::InUse(why)) => why,
            Err(fault) => {
                if !fault.kind.is_outage() {
                    let _ = pass_over(store, &take, &taken);
                }
                return Err(fault);
            }
        };
        pass_over(store, &take, &taken).map_err(|fault| fault.with_context(&doing))?;
        take.beside.passed_over.push(PassedOver { slot: taken.slot, why });
        if take.beside.passed_over.len() >= MOST_PASSED_OVER {
            let each =
                take.beside.passed_over.iter().map(|PassedOver { slot, why }| format!("{slot}: {why}"));
            let each = each.collect::<Vec<_>>().join("; ");
            return Err(Fault::new(FaultKind::NoneFree, format!("{each}; the next attempt takes others"))
                .with_context(&doing));
        }
    }
}

/// Whether a pool has a newer mark of a worker than its current row, or the worker leased: one of the two tables was restored, or
/// the pool was repaired.
fn is_newer_in_pools(
    store: &mut (impl SlotStore + ?Sized),
    begin: &BeginMark,
    next: u64,
) -> Result<bool, Fault> {
    let source = &begin.places.source;
    let pools = pools_beside(store, &begin.places, None)?;
    Ok(pools.iter().any(|(_, pool)| {
        let is_own = |row: &&SlotRow| {
            row.slot == begin.worker && (row.is_noted(source) || row.state == SlotState::Repaired)
        };
        let is_newer = |row: &SlotRow| row.mark > next || row.is_held(pool.now_ms);
        pool.floor > next || pool.slots.iter().find(is_own).is_some_and(is_newer)
    }))
}

/// Frees a slot that was just taken, and leaves it to last.
pub(super) fn pass_over(
    store: &mut (impl SlotStore + ?Sized),
    take: &Take,
    taken: &Taken,
) -> Result<(), Fault> {
    on_slots(store, &take.key, "giving a worker back", |rows, _| {
        let pool = rows.read_pool(&take.key)?;
        let own = pool.slots.iter().find(|row| row.slot == taken.slot && row.token == take.token);
        let Some(own) = own else { return Ok(Some(())) };
        let new = SlotRow { mark: taken.start, ..own.elsewhere() };
        Ok(rows.replace_slot(&take.key, own, &new)?.then_some(()))
    })
}

/// Looks at the other places of a slot that was just taken, and ends them.
fn end_others(
    store: &mut (impl SlotStore + ?Sized),
    take: &Take,
    taken: &Taken,
    places: &Places,
) -> Result<Seen, Fault> {
    let mut start = 0;
    for (name, pool) in pools_beside(store, places, Some(take))? {
        check_store(&name, &pool, take.store)?;
        match end_slot(store, places, (&name, &pool), taken.slot)? {
            Seen::Above(mark) => start = start.max(mark),
            in_use @ Seen::InUse(_) => return Ok(in_use),
        }
    }
    let take = take.believed(taken.now_ms);
    match end_fixed(store, places, &take, taken.slot)? {
        Seen::Above(mark) => start = start.max(mark),
        in_use @ Seen::InUse(_) => return Ok(in_use),
    }
    if start > take.latest_mark {
        return Ok(Seen::InUse("its mark elsewhere is ahead of this machine's clock".to_owned()));
    }
    Ok(Seen::Above(start))
}

/// The pools that this source has leased from, except the pool of `own`, which the source's own pool records from now on.
fn pools_beside(
    store: &mut (impl SlotStore + ?Sized),
    places: &Places,
    own: Option<&Take>,
) -> Result<Vec<(String, PoolRows)>, Fault> {
    let home = places.pool(&places.source);
    let Some(mut first) = if_known(store.slots(&home))? else { return Ok(Vec::new()) };
    let own_name = own.map(|take| take.key.name.as_str());
    let is_recorded = |name: &str| name == places.source || first.others.iter().any(|known| known == name);
    if let Some(take) = own.filter(|take| !is_recorded(&take.key.name)) {
        on_slots(store, &home, "recording a pool", |rows, _| record_pool(rows, &home, take))?;
        first = store.slots(&home)?;
    }
    let others = first.others.clone();
    let mut pools = vec![(places.source.clone(), first)];
    for name in others {
        if let Some(pool) = if_known(store.slots(&places.pool(&name)))? {
            pools.push((name, pool));
        }
    }
    pools.retain(|(name, _)| Some(name.as_str()) != own_name);
    let mut counting = Vec::with_capacity(pools.len());
    for (name, pool) in pools {
        if makes_ids_of(&name, &pool, places)? {
            counting.push((name, pool));
        }
    }
    Ok(counting)
}

/// Whether the marks of a pool count for a source: both have the same widths. Refuses a pool that does not say which it has.
fn makes_ids_of(name: &str, pool: &PoolRows, places: &Places) -> Result<bool, Fault> {
    let Some(record) = &pool.record else {
        if pool.slots.is_empty() {
            return Ok(false);
        }
        return Err(Fault::new(
            FaultKind::Refused,
            format!(
                "pool `{name}` in `{}` has workers and no record of its layout, and its marks may be the newest; nothing was changed",
                places.pool_table
            ),
        )
        .with_remedy(Remedy::Text(
            "stop every program that uses it, then run `keymill repair SOURCE --to now --yes` for the source of this pool",
        )));
    };
    if places.makes_ids_of(&record.layout) {
        return Ok(true);
    }
    if crate::layout::is_recorded(&record.layout) {
        return Ok(false);
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "pool `{name}` in `{}` records `{}`, which is no layout, and its marks may be the newest; nothing was changed; stop every program that uses it, then write into `layout` of its record what the source of this pool has, as in `time:41@1ms,worker:10,seq:12 epoch 2025-01-01T00:00:00Z`",
            places.pool_table,
            crate::error::shown(&record.layout)
        ),
    ))
}

/// Refuses a pool that was begun under another list of stores: its slots may be in any of them.
fn check_store(name: &str, pool: &PoolRows, index: StoreIndex) -> Result<(), Fault> {
    match &pool.record {
        Some(found) if found.store != index => Err(slot_rows::of_other_stores(name, found.store, index)),
        _ => Ok(()),
    }
}

/// Refuses a source whose pools in this store were begun under another list of stores.
pub(super) fn check_pools(
    store: &mut (impl SlotStore + ?Sized),
    places: &Places,
    index: StoreIndex,
) -> Result<(), Fault> {
    let pools = pools_beside(store, places, None)?;
    pools.iter().try_for_each(|(name, pool)| check_store(name, pool, index))
}

/// Refuses a worker whose fixed row in this store was begun under another list of stores.
pub(super) fn check_fixed(
    store: &mut (impl SlotStore + ?Sized),
    places: &Places,
    worker: u64,
    index: StoreIndex,
) -> Result<(), Fault> {
    let row = if_known(store.look(&places.fixed_row(worker)))?.flatten();
    row.map_or(Ok(()), |row| check_fixed_row(worker, index, row.row_mark()))
}

/// Refuses the row of a fixed worker that has a date, or was begun under another list of stores.
fn check_fixed_row(worker: u64, index: StoreIndex, row: RowMark) -> Result<(), Fault> {
    let found = row.status;
    if row.mark.period != 0 {
        return Err(Fault::new(
            FaultKind::Refused,
            format!(
                "the row of worker {worker} has the date {}, and a mark has none; nothing was changed; stop every program that uses it, then set `date` to 0, and `next` to the first tick that no id has",
                row.mark.period
            ),
        ));
    }
    if matches!(found.state, RowState::Leased | RowState::Beginning) || found == in_use_at(index) {
        return Ok(());
    }
    if found.partition == in_use_at(index).partition {
        return Err(in_state(found.state));
    }
    Err(of_other_stores(worker, index, found))
}

/// Records in the source's own pool that it leases from another one.
fn record_pool(
    rows: &mut dyn super::model::pool_rows::SlotRows,
    home: &Key,
    take: &Take,
) -> Result<Option<()>, Fault> {
    let pool = rows.read_pool(home)?;
    let other = take.key.name.as_str();
    if pool.others.iter().any(|name| name == other) {
        return Ok(Some(()));
    }
    // Another name may have any of them, and two rows for one name do no harm.
    let slot = fastrand::u64(POOL_ROW + 1..POOL_ROW << 1);
    let (state, source) = (SlotState::OtherPool, other.to_owned());
    let row = SlotRow { slot, state, source, store: take.store, ..SlotRow::default() };
    Ok(rows.insert_pool(home, &row)?.then_some(()))
}

/// Ends a slot of another pool; a slot that was never leased there may not be until this is done.
fn end_slot(
    store: &mut (impl SlotStore + ?Sized),
    places: &Places,
    (name, pool): (&str, &PoolRows),
    slot: u64,
) -> Result<Seen, Fault> {
    let key = places.pool(name);
    let Some(row) = pool.slots.iter().find(|row| row.slot == slot) else {
        return Ok(Seen::Above(pool.floor));
    };
    if row.is_held(pool.now_ms) {
        let seconds = (row.ends_at - pool.now_ms).div_ceil(1000);
        return Ok(Seen::InUse(format!(
            "`{}` leases it in pool `{name}` for {seconds} s, unless it renews or closes",
            row.owner
        )));
    }
    // A process of this source may renew a lease that is over. One of another source makes other ids.
    if row.state != SlotState::Elsewhere && !row.is_of_another(&places.source) {
        let token = (row.token ^ crate::process::random::u64() >> 1).max(1);
        let new = SlotRow { token, ..row.elsewhere() };
        let ended =
            on_slots(store, &key, "ending a slot", |rows, _| rows.replace_slot(&key, row, &new).map(Some))?;
        if !ended {
            return Ok(Seen::InUse(format!("another process has just changed it in pool `{name}`")));
        }
    }
    Ok(Seen::Above(row.mark.max(pool.floor)))
}

/// Ends a fixed worker, which is leased from now on.
fn end_fixed(
    store: &mut (impl SlotStore + ?Sized),
    places: &Places,
    take: &Take,
    worker: u64,
) -> Result<Seen, Fault> {
    let key = places.fixed_row(worker);
    let Some(row) = if_known(store.look(&key))?.flatten() else { return Ok(Seen::Above(0)) };
    let next = row.mark.next;
    check_fixed_row(worker, take.store, row.row_mark())?;
    if row.status.state == RowState::Leased {
        return Ok(Seen::Above(next));
    }
    if next > take.present {
        let name = &places.source;
        return Ok(Seen::InUse(format!(
            "the fixed worker of `snowflake:{name}` was in use a moment ago, and is free when its mark is past"
        )));
    }
    let to = RowMark { mark: row.mark, status: in_use_at(take.store), writer: 0 };
    let to = to.in_state(RowState::Leased).at(next.saturating_add(1));
    if !move_mark(store, &key, Some(row.row_mark()), to)? {
        return Ok(Seen::InUse("its fixed worker has just raised its mark".to_owned()));
    }
    Ok(Seen::Above(to.mark.next))
}

fn in_use(why: String) -> Fault {
    Fault::new(FaultKind::NoneFree, why)
}

/// Moves a mark from where it was seen; `false`: it stands elsewhere by now.
fn move_mark(
    store: &mut (impl SlotStore + ?Sized),
    key: &Key,
    from: Option<RowMark>,
    to: RowMark,
) -> Result<bool, Fault> {
    let doing = format!("moving the mark `{}`", key.name);
    in_transaction(store, key, 0, &doing, |rows| {
        let stored = rows.read(key, true)?;
        let mark = stored.as_ref().map_or(Ok(None), |stored| rows::row_mark_of(key, stored))?;
        if mark != from {
            return Ok(Some(false));
        }
        // MySQL counts a row only where something changes.
        if mark == Some(to) {
            return Ok(Some(true));
        }
        let new = rows::stored_as(key, to)?;
        let done = match &stored {
            None => rows.insert(key, &new)?,
            Some(old) => rows.replace(key, old, &new)?,
        };
        Ok(done.then_some(true))
    })
}

/// The mark of a fixed worker's row.
fn read_mark(rows: &mut dyn Rows, key: &Key) -> Result<Option<RowMark>, Fault> {
    let stored: Option<StoredRow> = rows.read(key, true)?;
    stored.as_ref().map_or(Ok(None), |stored| rows::row_mark_of(key, stored))
}

/// Where the mark of a fixed worker stands if its row is current; else the row.
pub(super) fn current(
    store: &mut (impl SlotStore + ?Sized),
    begin: &BeginMark,
) -> Result<Result<u64, Option<RowMark>>, Fault> {
    let key = &*begin.key;
    let doing = format!("reading the mark `{}`", key.name);
    let Some(row) = in_transaction(store, key, 0, &doing, |rows| read_mark(rows, key).map(Some))? else {
        return Ok(Err(None));
    };
    check_fixed_row(begin.worker, begin.store, row).map_err(|fault| fault.with_context(&doing))?;
    Ok(if row.status == in_use_at(begin.store) { Ok(row.mark.next) } else { Err(Some(row)) })
}

/// The row belongs to another list of stores.
pub(super) fn of_other_stores(worker: u64, index: StoreIndex, found: RowStatus) -> Fault {
    let found = found.partition.map_or(StoreIndex::ONLY, Partition::store_index);
    Fault::new(
        FaultKind::Refused,
        format!(
            "worker {worker} was begun in {found}, and this mill opens it in {index}: with other `stores` or another order ids would come twice; nothing was changed. Open it with the `stores` it was begun with, or take another worker",
        ),
    )
}

/// Begins with the mark of a fixed worker; answers with where it stands.
pub(super) fn begin(store: &mut (impl SlotStore + ?Sized), begin: &BeginMark) -> Result<u64, Fault> {
    let seen = match current(store, begin)? {
        Ok(next) if !is_newer_in_pools(store, begin, next)? => return Ok(next),
        Ok(next) => Some(live_at(begin, next)),
        Err(seen) => seen,
    };
    let beginning = announce(store, begin, seen)?;
    let (key, places) = (&*begin.key, &*begin.places);
    let in_context = |fault: Fault| beginning_with(begin, fault);
    let mut next = beginning.mark.next;
    for (name, pool) in pools_beside(store, places, None).map_err(in_context)? {
        check_store(&name, &pool, begin.store)?;
        match end_slot(store, places, (&name, &pool), begin.worker).map_err(in_context)? {
            Seen::Above(mark) => next = next.max(mark),
            Seen::InUse(why) => {
                let why =
                    format!("worker {}: {why}; close that process, or take another worker", begin.worker);
                return Err(in_context(in_use(why)));
            }
        }
    }
    if !move_mark(store, key, Some(beginning), live_at(begin, next))? {
        return Err(in_context(faster()));
    }
    Ok(next)
}

/// The row of a fixed worker in use.
fn live_at(begin: &BeginMark, next: u64) -> RowMark {
    RowMark { mark: Mark { period: 0, next }, status: in_use_at(begin.store), writer: 0 }
}

/// Writes the row of a fixed worker, which others see from now on; answers with its mark. `seen`: the row as [`current`] has found it.
pub(super) fn announce(
    store: &mut (impl SlotStore + ?Sized),
    begin: &BeginMark,
    seen: Option<RowMark>,
) -> Result<RowMark, Fault> {
    let next = seen.map_or(1, |row| row.mark.next);
    let beginning = live_at(begin, next).in_state(RowState::Beginning);
    if seen != Some(beginning) && !move_mark(store, &begin.key, seen, beginning)? {
        return Err(beginning_with(begin, faster()));
    }
    Ok(beginning)
}

/// How often a repair begins again because another process has moved the worker's mark.
const REPAIRS: u32 = 20;

/// Raises the mark of a fixed worker to `to`, and its slots in the pools that the source has leased from. Its row is not current after
/// that: the next process that begins with this worker looks at every other place. A process that uses the worker now is refused when
/// it raises its mark or renews. A dry run only says what would be done.
pub(super) fn repair(
    store: &mut (impl SlotStore + ?Sized),
    begin: &BeginMark,
    to: u64,
    dry_run: bool,
) -> Result<(Option<Row>, Row), Fault> {
    check_pools(store, &begin.places, begin.store)?;
    for _ in 0..REPAIRS {
        if let Some(repaired) = try_repair(store, begin, to, dry_run)? {
            return Ok(repaired);
        }
    }
    Err(Fault::new(
        FaultKind::Unavailable,
        "another process moved the mark each time; close the processes that use this worker, and repair it again",
    ))
}

/// One attempt; `None`: another process was faster.
fn try_repair(
    store: &mut (impl SlotStore + ?Sized),
    begin: &BeginMark,
    to: u64,
    dry_run: bool,
) -> Result<Option<(Option<Row>, Row)>, Fault> {
    let found = store.look(&begin.key)?.map(|row| row.row_mark());
    if let Some(row) = found {
        check_fixed_row(begin.worker, begin.store, row)?;
    }
    let mut before = found.map(shown);
    rows::not_lower(before.as_ref(), Mark { period: 0, next: to })?;
    let is_leased = found.is_some_and(|row| row.status.state == RowState::Leased);
    let state = if is_leased { RowState::Leased } else { RowState::Beginning };
    let new_mark = live_at(begin, to).in_state(state);
    let after = shown(new_mark);
    let slots = slots_to_raise(store, begin, to)?;
    if let Some(before) = before.as_mut().filter(|before| **before == after && !slots.is_empty()) {
        let pools: Vec<_> = slots.iter().map(|(pool, _)| format!("`{}`", pool.name)).collect();
        before.text.push_str(&format!("; its slot is lower in pool {}", pools.join(", ")));
    }
    if dry_run {
        store.writable()?;
        return Ok(Some((before, after)));
    }
    if !move_mark(store, &begin.key, found, new_mark)? {
        return Ok(None);
    }
    // Read again: a process may have leased the worker before the mark moved.
    for (key, row) in slots_to_raise(store, begin, to)? {
        let new = SlotRow { token: crate::process::random::token(), ..slot_rows::repaired(&row, to) };
        let is_raised =
            on_slots(store, &key, "raising a slot", |rows, _| rows.replace_slot(&key, &row, &new).map(Some))?;
        if !is_raised {
            return Ok(None);
        }
    }
    Ok(Some((before, after)))
}

/// The slots of this worker that a repair to `to` changes, each with its pool. A slot that is repaired already has no process.
fn slots_to_raise(
    store: &mut (impl SlotStore + ?Sized),
    begin: &BeginMark,
    to: u64,
) -> Result<Vec<(Key, SlotRow)>, Fault> {
    let mut slots = Vec::new();
    for (name, pool) in pools_beside(store, &begin.places, None)? {
        let row = pool.slots.into_iter().find(|row| row.slot == begin.worker);
        let row = row.filter(|row| slot_rows::repaired(row, to) != *row);
        slots.extend(row.map(|row| (begin.places.pool(&name), row)));
    }
    Ok(slots)
}

/// A mark, for people.
fn shown(row: RowMark) -> Row {
    let next = row.mark.next;
    Row { status: row.status, ..Row::at(next, format!("next={next}")) }
}

fn beginning_with(begin: &BeginMark, fault: Fault) -> Fault {
    let (worker, source) = (begin.worker, &begin.places.source);
    fault.with_context(&format!("beginning with worker {worker} of `snowflake:{source}`"))
}

fn faster() -> Fault {
    in_use("another process begins with it".to_owned())
}
