//! Rows of readers: which processes follow a route table, and with which version. They are rows of a pool, as the rows of leased workers,
//! with a number that each process draws by chance instead of a worker: no two processes want the same row.
//!
//! A row that its process did not remove stays when it has ended. Nothing tells a process that was killed from a process that is cut off from
//! the store, and the steps of a move ask which version it ran.

use crate::error::shown;
use crate::request::reader::{OwnReader, READER_LAYOUT, Reader, Readers};
use crate::request::worker::{Left, MOST_READERS, POOL_ROW, PoolRecord, PoolRows, SlotRow};
use crate::store::{Fault, FaultKind, KeepReader, Key, MAX_NUMBER, StoreIndex};

use super::pool_rows::SlotRows;

/// A row that ended so long ago counts no longer, and goes with the next process that begins: otherwise a process that is killed again and again would fill the
/// table.
const KEPT_MS: u64 = 7 * 86_400_000;

/// Adds a row; answers with the highest version that a living reader runs. `None`: another process was faster.
pub(crate) fn add(
    rows: &mut dyn SlotRows,
    key: &Key,
    new: &SlotRow,
    keep: &KeepReader,
) -> Result<Option<u64>, Fault> {
    let pool = rows.read_pool(key)?;
    check_stores(&key.name, &readers(&pool), keep.store.stores)?;
    let record = PoolRecord { layout: READER_LAYOUT.to_owned(), store: StoreIndex::ONLY };
    if pool.record.is_none() && !rows.insert_pool(key, &record.row(0))? {
        return Ok(None);
    }
    let highest = highest(&pool);
    // An earlier attempt may have written it.
    let left = Left { token: new.token, mark: new.mark };
    if pool.slots.iter().any(|row| row.slot == new.slot && left.is_in(row)) {
        return Ok(Some(highest));
    }
    for old in pool.slots.iter().filter(|row| is_old(row, pool.now_ms)) {
        if !rows.delete_slot(key, old)? {
            return Ok(None);
        }
    }
    let new = SlotRow { ends_at: pool.now_ms.saturating_add(keep.lease_ms).min(MAX_NUMBER), ..new.clone() };
    Ok(rows.insert_slot(key, &new, pool.floor)?.then_some(highest))
}

fn is_old(row: &SlotRow, now_ms: u64) -> bool {
    row.ends_at.saturating_add(KEPT_MS) < now_ms
}

/// Refuses to follow or to change a table whose living readers list another number of stores: what is stored in one of them, the other
/// processes may not see, and they may not be waited for.
pub(crate) fn check_stores(router: &str, readers: &Readers, stores: u64) -> Result<(), Fault> {
    let is_other = |reader: &&Reader| reader.is_living() && reader.stores != stores;
    let Some(other) = readers.all.iter().find(is_other) else { return Ok(()) };
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "router `{router}` is followed by `{}`, whose mill has {}, and this mill has {}: processes with other `stores` miss steps, and are not waited for; nothing was changed. Name the same `stores`, or end that process first",
            shown(&other.owner),
            counted(other.stores),
            counted(stores),
        ),
    ))
}

/// Nobody can say of so many rows which processes they are, and a step that passes one over may misroute its ids.
pub(crate) fn too_many(key: &Key, now_ms: u64) -> Fault {
    let (router, table) = (key.name.as_str(), &key.table);
    Fault::new(
        FaultKind::Refused,
        format!(
            "router `{}` has more than {MOST_READERS} rows in `{table}`: a login that may write there has added them; nothing was changed. Take its right to do so, end every process of the router that is cut off from the store, and delete the rows that have ended: `DELETE FROM {table} WHERE pool = '{}' AND slot <> {POOL_ROW} AND ends_at < {now_ms}`",
            shown(router),
            router.replace('\'', "''")
        ),
    )
}

fn counted(stores: u64) -> String {
    if stores == 1 { "one store".to_owned() } else { format!("{stores} stores") }
}

/// The highest version that a living reader runs; 0 without one.
pub(crate) fn highest(pool: &PoolRows) -> u64 {
    readers(pool).highest()
}

/// Deletes the row of a process that ends; nothing, where it is another one's by now.
pub(crate) fn remove(rows: &mut dyn SlotRows, key: &Key, own: &OwnReader) -> Result<Option<()>, Fault> {
    let Some((member, left)) = &own.row else { return Ok(Some(())) };
    let pool = rows.read_pool(key)?;
    let own = pool.slots.iter().find(|row| row.slot == *member);
    let Some(row) = own.filter(|row| left.iter().any(|left| left.is_in(row))) else { return Ok(Some(())) };
    Ok(rows.delete_slot(key, row)?.then_some(()))
}

/// Deletes rows that have ended, by their numbers; answers with those that were deleted. `None`: another process was faster.
pub(crate) fn forget(rows: &mut dyn SlotRows, key: &Key, members: &[u64]) -> Result<Option<Vec<u64>>, Fault> {
    let pool = rows.read_pool(key)?;
    let mut gone = Vec::new();
    let ended = |row: &&SlotRow| members.contains(&row.slot) && !reader(row, pool.now_ms).is_living();
    for row in pool.slots.iter().filter(ended) {
        if !rows.delete_slot(key, row)? {
            return Ok(None);
        }
        gone.push(row.slot);
    }
    Ok(Some(gone))
}

/// The readers that a store knows.
pub(crate) fn readers(pool: &PoolRows) -> Readers {
    let counted = pool.slots.iter().filter(|row| !is_old(row, pool.now_ms));
    Readers { now_ms: pool.now_ms, all: counted.map(|row| reader(row, pool.now_ms)).collect() }
}

fn reader(row: &SlotRow, now_ms: u64) -> Reader {
    let left_ms = i64::try_from(i128::from(row.ends_at) - i128::from(now_ms)).unwrap_or(i64::MAX);
    Reader { stores: row.store.stores, ..Reader::new(row.slot, &row.owner, row.mark, left_ms) }
}

/// The readers of several stores, each by the store that saw it last.
pub(crate) fn joined(each: Vec<Readers>) -> Readers {
    let mut all = Readers::default();
    for Readers { now_ms, all: readers } in each {
        all.now_ms = all.now_ms.max(now_ms);
        for reader in readers {
            match all.all.iter_mut().find(|other| other.member == reader.member) {
                None => all.all.push(reader),
                Some(other) => {
                    other.left_ms = other.left_ms.max(reader.left_ms);
                    other.version = other.version.max(reader.version);
                }
            }
        }
    }
    all.all.sort_by_key(|reader| reader.member);
    all
}
