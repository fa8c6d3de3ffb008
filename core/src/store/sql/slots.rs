//! Rows of leased workers in a database. Every change is a compare-and-set of one row; nothing is read with a lock.

use crate::base::scheme::Family;
use crate::store::model::rows;
use crate::store::model::value::{Value, number, text};
use crate::store::model::worker::{POOL_ROW, SlotRows};
use crate::store::{Fault, FaultKind, Key, MOST_AT_ONCE, PoolRows, Renewal, Renewed, SlotRow, SlotWork};

use super::rows::transact_on;
use super::{Connection, check_table, statement};

/// One transaction on the rows of leased workers. It begins again after a conflict, and while other processes are faster.
pub(super) fn transact(
    connection: &mut dyn Connection,
    key: &Key,
    work: &mut SlotWork<'_>,
) -> Result<(), Fault> {
    rows::check_table_name(&key.table)?;
    transact_on(connection, key, |connection| {
        let done = work.run(&mut OpenSlots { connection })?;
        Ok(done.then_some(()))
    })
}

/// The clock of the database, milliseconds since 1970. None of the functions depends on the session's time zone.
fn clock(connection: &dyn Connection) -> &'static str {
    match connection.dialect().family() {
        Family::MySql => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000",
        Family::Postgres => "CAST(EXTRACT(EPOCH FROM pg_catalog.clock_timestamp()) * 1000 AS BIGINT)",
        Family::Sqlite => "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    }
}

/// Renews leases with one statement. `None`: some were not renewed, and their rows tell why.
///
/// The number in the answer is only the clock: on TiDB, where it may be that of an attempt that was rolled back, the count of changed
/// rows decides alone.
pub(super) fn renew_alone(
    connection: &mut dyn Connection,
    renewals: &[Renewal],
) -> Result<Option<Renewed>, Fault> {
    let Some(Renewal { key, lease_ms, .. }) = renewals.first() else { return Ok(None) };
    let alike = |of: &Renewal| of.key.place() == key.place() && of.lease_ms == *lease_ms;
    // A transaction is no round trip on SQLite.
    if connection.dialect().creates_tables() || renewals.len() > MOST_AT_ONCE || !renewals.iter().all(alike) {
        return Ok(None);
    }
    check_table(connection, key)?;
    let change = statement::renew(connection, renewals, key, clock(connection), *lease_ms)?;
    connection.state().begin_attempt();
    let changed = match connection.commit_alone(&change) {
        Ok(changed) => changed,
        // A transaction repeats.
        Err(_) if connection.state().conflict && !connection.state().broken => return Ok(None),
        Err(fault) => return Err(fault),
    };
    let end = changed.number.unwrap_or(0);
    Ok((changed.rows == renewals.len() as u64).then(|| Renewed {
        marks: renewals.iter().map(|renewal| Ok(renewal.to)).collect(),
        now_ms: end.saturating_sub(*lease_ms),
    }))
}

/// Rows of leased workers in an open transaction.
pub(super) struct OpenSlots<'c> {
    pub(super) connection: &'c mut dyn Connection,
}

impl OpenSlots<'_> {
    /// The clock of the database, milliseconds since 1970.
    fn now_ms(&mut self) -> Result<u64, Fault> {
        let clock = format!("SELECT {}", clock(self.connection));
        let found = self.connection.query(&clock, &[])?;
        found.first().and_then(|row| number(row, 0)).ok_or_else(|| {
            Fault::new(FaultKind::Refused, "the clock of the database shows no time after 1970; set it right")
        })
    }
}

impl SlotRows for OpenSlots<'_> {
    fn read_pool(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let sql = format!(
            "SELECT `slot`, `token`, `mark`, `ends_at`, `owner`, `layout` FROM {} WHERE `pool` = ? ORDER BY `slot`",
            self.connection.place(key)?
        );
        let found = self.connection.query(&sql, &[key.name.as_str().into()])?;
        let mut pool = PoolRows { now_ms: self.now_ms()?, ..PoolRows::default() };
        for row in found {
            let whole = |column: usize, name: &str| {
                number(&row, column).ok_or_else(|| {
                    Fault::new(
                        FaultKind::Refused,
                        format!(
                            "a row of pool `{}` has a `{name}` that is no whole number; mend the row",
                            key.name
                        ),
                    )
                })
            };
            let slot = whole(0, "slot")?;
            if slot == POOL_ROW {
                pool.layout = Some(text(&row, 5).unwrap_or_default().to_owned());
                continue;
            }
            pool.slots.push(SlotRow {
                slot,
                token: whole(1, "token")?,
                mark: whole(2, "mark")?,
                ends_at: whole(3, "ends_at")?,
                owner: text(&row, 4).unwrap_or_default().to_owned(),
            });
        }
        Ok(pool)
    }

    fn insert_slot(&mut self, key: &Key, new: &SlotRow, layout: &str) -> Result<bool, Fault> {
        let sql = format!(
            "INSERT INTO {} (`pool`, `slot`, `token`, `mark`, `ends_at`, `owner`, `layout`) VALUES (?, ?, ?, ?, ?, ?, ?)",
            self.connection.place(key)?
        );
        let values: [Value; 7] = [
            key.name.as_str().into(),
            new.slot.into(),
            new.token.into(),
            new.mark.into(),
            new.ends_at.into(),
            new.owner.as_str().into(),
            layout.into(),
        ];
        let made = self.connection.change(&sql, &values);
        // Another process has just created it.
        if made.is_err() && std::mem::take(&mut self.connection.state().duplicate) {
            return Ok(false);
        }
        made.map(|rows| rows == 1)
    }

    fn replace_slot(&mut self, key: &Key, old: &SlotRow, new: &SlotRow) -> Result<bool, Fault> {
        let sql = format!(
            "UPDATE {} SET `token` = ?, `mark` = ?, `ends_at` = ?, `owner` = ? \
             WHERE `pool` = ? AND `slot` = ? AND `token` = ? AND `mark` = ? AND `ends_at` = ?",
            self.connection.place(key)?
        );
        let values: [Value; 9] = [
            new.token.into(),
            new.mark.into(),
            new.ends_at.into(),
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
        Ok(self.connection.change(&sql, &values)? == 1)
    }
}
