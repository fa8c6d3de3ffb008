//! The rows of leased workers in an open transaction. Every change is a compare-and-set of one row; nothing is read with a lock.

use crate::request::scheme::Family;
use crate::request::worker::MOST_READERS;
use crate::store::model::pool_rows::SlotRows;
use crate::store::model::slot_columns::{self, COLUMNS};
use crate::store::model::slot_rows::POOL_ROW;
use crate::store::model::value::{Value, number};
use crate::store::{Fault, FaultKind, Key, PoolRows, Remedy, SlotRow};

use super::Connection;
use super::connection::RowId;

/// The clock of the database, milliseconds since 1970. None of the functions depends on the session's time zone.
pub(super) fn clock(connection: &dyn Connection) -> &'static str {
    match connection.dialect().family() {
        Family::MySql => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
        Family::Postgres => "CAST(EXTRACT(EPOCH FROM pg_catalog.clock_timestamp()) * 1000 AS BIGINT)",
        Family::Sqlite => "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    }
}

/// The identity of a slot's row in [`State::locked`](super::State::locked).
pub(super) fn slot_id(key: &Key, slot: u64) -> RowId {
    (key.place(), format!("{slot} {}", key.name))
}

/// Rows of leased workers in an open transaction.
pub(super) struct SqlSlots<'c> {
    pub(super) connection: &'c mut dyn Connection,
}

/// A login whose clock is this far from the server's clock has a clock that stands still. Both are in the session's time zone: a change to
/// summer time between them is not it.
const STANDS_STILL_S: u64 = 3 * 3_600;

/// The clock of the database, milliseconds since 1970.
pub(in crate::store) fn now_ms(connection: &mut dyn Connection) -> Result<u64, Fault> {
    // `SET timestamp = N` stops every clock of a session but this one. (`--sysdate-is-now` stops it too.)
    let off = match connection.dialect().family() {
        Family::MySql => "ABS(TIMESTAMPDIFF(SECOND, NOW(), SYSDATE()))",
        Family::Postgres | Family::Sqlite => "0",
    };
    let clock = format!("SELECT {}, {off}", clock(connection));
    let found = connection.query(&clock, &[])?;
    let row = found.first();
    if row.and_then(|row| number(row, 1)).is_some_and(|off| off >= STANDS_STILL_S) {
        return Err(Fault::new(
            FaultKind::Unsafe,
            "this login sets the session's `timestamp`, so the server's clock stands still for it, and no lease and no permit to write rows would end",
        )
        .with_remedy(Remedy::Text(
            "take `SET timestamp` out of the server's `init_connect`, or write `SET timestamp = DEFAULT` there",
        )));
    }
    row.and_then(|row| number(row, 0)).ok_or_else(|| {
        Fault::new(FaultKind::Refused, "the clock of the database shows no time after 1970; set it right")
    })
}

/// The columns that a statement names.
fn listed(columns: &[&str]) -> String {
    columns.iter().map(|column| format!("`{column}`")).collect::<Vec<_>>().join(", ")
}

impl SqlSlots<'_> {
    /// Inserts a row; `false`: another process has just created it, or there was nothing to insert.
    fn insert(&mut self, sql: &str, values: &[Value]) -> Result<bool, Fault> {
        let made = self.connection.change(sql, values);
        if made.is_err() && std::mem::take(&mut self.connection.state().duplicate) {
            return Ok(false);
        }
        made.map(|rows| rows == 1)
    }
}

impl SlotRows for SqlSlots<'_> {
    fn read_pool(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        // The record and the living ones come first.
        let order = if key.is_of_readers() {
            format!(
                "CASE `slot` WHEN {POOL_ROW} THEN 0 ELSE 1 END, `ends_at` DESC LIMIT {}",
                MOST_READERS + 2
            )
        } else {
            "`slot`".to_owned()
        };
        let sql = format!(
            "SELECT {} FROM {} WHERE `pool` = ? ORDER BY {order}",
            slot_columns::read_columns(),
            self.connection.place(key)?
        );
        let found = self.connection.query(&sql, &[key.name.as_str().into()])?;
        let mut pool = PoolRows { now_ms: now_ms(self.connection)?, ..PoolRows::default() };
        let locked = &self.connection.state().locked;
        for cells in found {
            let Some(row) = slot_columns::row_of(key, &cells)? else { continue };
            if locked.contains(&slot_id(key, row.slot)) {
                pool.locked.push(row.slot);
            }
            pool.add(key, row)?;
        }
        pool.is_cut = key.is_of_readers() && pool.slots.len() > MOST_READERS;
        pool.slots.sort_by_key(|row| row.slot);
        Ok(pool)
    }

    fn insert_pool(&mut self, key: &Key, new: &SlotRow) -> Result<bool, Fault> {
        let (columns, marks) = (listed(&COLUMNS), ["?"; COLUMNS.len()].join(", "));
        let sql = format!("INSERT INTO {} ({columns}) VALUES ({marks})", self.connection.place(key)?);
        self.insert(&sql, &slot_columns::values(key, new))
    }

    fn insert_slot(&mut self, key: &Key, new: &SlotRow, floor: u64) -> Result<bool, Fault> {
        // The lock keeps `repair` from raising the pool before this row is committed, and found by it.
        let place = self.connection.place(key)?;
        let (columns, marks) = (listed(&COLUMNS), ["?"; COLUMNS.len()].join(", "));
        // Readers are never raised, so whatever stands in that column is not theirs.
        let (is_at, floor) =
            if key.is_of_readers() { ("", None) } else { (" AND `mark` = ?", Some(Value::from(floor))) };
        let sql = format!(
            "INSERT INTO {place} ({columns}) SELECT {marks} FROM {place} WHERE `pool` = ? AND `slot` = ?{is_at}{}",
            self.connection.for_share()
        );
        let mut values = slot_columns::values(key, new).to_vec();
        values.extend([key.name.as_str().into(), POOL_ROW.into()]);
        values.extend(floor);
        self.insert(&sql, &values)
    }

    fn replace_slot(&mut self, key: &Key, old: &SlotRow, new: &SlotRow) -> Result<bool, Fault> {
        let sql = format!(
            "UPDATE {} SET `token` = ?, `mark` = ?, `ends_at` = ?, `state` = ?, `source` = ?, `process` = ? \
             WHERE `pool` = ? AND `slot` = ? AND `token` = ? AND `mark` = ? AND `ends_at` = ?",
            self.connection.place(key)?
        );
        let values: [Value; 11] = [
            new.token.into(),
            new.mark.into(),
            new.ends_at.into(),
            new.state.word().into(),
            new.source.as_str().into(),
            new.owner.as_str().into(),
            key.name.as_str().into(),
            old.slot.into(),
            old.token.into(),
            old.mark.into(),
            old.ends_at.into(),
        ];
        if old == new {
            // MySQL counts a row only where something changes.
            return Ok(true);
        }
        let changed = self.connection.change(&sql, &values);
        let row = slot_id(key, old.slot);
        let locked = &mut self.connection.state().locked;
        if changed.as_ref().is_err_and(|fault| fault.kind == FaultKind::Locked) {
            locked.insert(row);
        } else {
            locked.remove(&row);
        }
        Ok(changed? == 1)
    }

    fn delete_slot(&mut self, key: &Key, old: &SlotRow) -> Result<bool, Fault> {
        let sql = format!(
            "DELETE FROM {} WHERE `pool` = ? AND `slot` = ? AND `token` = ? AND `mark` = ? AND `ends_at` = ?",
            self.connection.place(key)?
        );
        let values: [Value; 5] = [
            key.name.as_str().into(),
            old.slot.into(),
            old.token.into(),
            old.mark.into(),
            old.ends_at.into(),
        ];
        Ok(self.connection.change(&sql, &values)? == 1)
    }
}
