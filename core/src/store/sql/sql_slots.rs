//! Rows of leased workers in a database. Every change is a compare-and-set of one row; nothing is read with a lock.

use std::time::{Duration, Instant};

use crate::request::scheme::Family;
use crate::store::model::pool_rows::SlotRows;
use crate::store::model::rows;
use crate::store::model::slot_rows::{self, POOL_ROW};
use crate::store::model::value::{Value, number, text};
use crate::store::{
    Fault, FaultKind, Key, MOST_AT_ONCE, OwnSlot, PoolRows, Remedy, Renewal, Renewed, SlotRow, SlotWork,
};

use super::sql_rows::transact_on;
use super::store::{Server, SqlStore, without_waiting, write};
use super::{Connection, RowId, check_table, statement};

/// How long a renewal one by one goes on after a row that another transaction holds.
const PAST_LOCKED_FOR: Duration = Duration::from_millis(500);

/// One transaction on the rows of leased workers. It begins again after a conflict, and while other processes are faster.
pub(super) fn transact(
    connection: &mut dyn Connection,
    key: &Key,
    work: &mut SlotWork<'_>,
) -> Result<(), Fault> {
    rows::check_table_name(&key.table)?;
    transact_on(connection, key, |connection| {
        let done = work.run(&mut SqlSlots { connection })?;
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

/// What became of one statement for several leases.
enum RenewedTogether {
    Renewed(Renewed),
    /// Some were not renewed, and perhaps some were.
    InPart,
    /// It was not tried: another transaction held a row of them when it was last used.
    Untried,
}

/// Renews leases, with one statement for those of one length, as many as a statement may have.
pub(super) fn renew<S: Server>(store: &mut SqlStore<S>, renewals: &[Renewal]) -> Result<Renewed, Fault> {
    let is_one = |of: &Renewal| renewals.first().is_some_and(|first| is_alike(of, first));
    if renewals.len() <= MOST_AT_ONCE && renewals.iter().all(is_one) {
        return renew_together(store, renewals);
    }
    let (mut marks, mut now_ms, mut outage) = (vec![None; renewals.len()], 0, None);
    for (nth, at) in groups(renewals).into_iter().enumerate() {
        let group: Vec<_> = at.iter().filter_map(|&at| renewals.get(at)).cloned().collect();
        let answer = match &outage {
            Some(fault) => Err(not_asked(Fault::clone(fault))),
            None => renew_together(store, &group),
        };
        let answers = match answer {
            Ok(renewed) => {
                now_ms = renewed.now_ms;
                renewed.marks
            }
            Err(fault) if nth == 0 && fault.kind.is_outage() => return Err(fault),
            Err(fault) => {
                if fault.kind.is_outage() {
                    outage.get_or_insert(fault.clone());
                }
                vec![Err(fault); at.len()]
            }
        };
        for (at, answer) in at.into_iter().zip(answers) {
            marks[at] = Some(answer);
        }
    }
    let marks = marks.into_iter().map(|mark| mark.unwrap_or_else(|| Err(rows::moved_on()))).collect();
    Ok(Renewed { marks, now_ms })
}

/// Whether one statement can renew both.
fn is_alike(one: &Renewal, other: &Renewal) -> bool {
    one.own.key.place() == other.own.key.place()
        && (one.to.token, one.lease_ms) == (other.to.token, other.lease_ms)
}

/// The renewals that one statement takes, by index.
fn groups(renewals: &[Renewal]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, renewal) in renewals.iter().enumerate() {
        let open = groups.iter_mut().find(|group| {
            group.len() < MOST_AT_ONCE
                && group
                    .first()
                    .and_then(|&first| renewals.get(first))
                    .is_some_and(|of| is_alike(of, renewal))
        });
        match open {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}

/// Of an outage, for those that were not asked for.
fn not_asked(mut fault: Fault) -> Fault {
    if fault.kind == FaultKind::Unknown {
        fault.kind = FaultKind::Unavailable;
    }
    fault
}

/// Renews leases with one statement, or one by one where something concerns one of them alone.
fn renew_together<S: Server>(store: &mut SqlStore<S>, renewals: &[Renewal]) -> Result<Renewed, Fault> {
    let doing = crate::store::renewing(renewals);
    let together = write(&mut store.server, |connection| {
        if renewals.len() > 1 && renewals.iter().any(|renewal| is_held(connection, renewal)) {
            return Ok(RenewedTogether::Untried);
        }
        Ok(renew_alone(connection, renewals)?.map_or(RenewedTogether::InPart, RenewedTogether::Renewed))
    });
    let answer = match together.map_err(|fault| fault.with_context(&doing)) {
        Ok(RenewedTogether::Renewed(renewed)) => return Ok(renewed),
        Ok(RenewedTogether::Untried) => return renew_each(store, renewals),
        Ok(RenewedTogether::InPart) => crate::store::renew_slots(store, renewals),
        Err(fault) => Err(fault),
    };
    match answer {
        // Nothing was changed, and the row of one lease is enough for that.
        Err(fault) if renewals.len() > 1 && matches!(fault.kind, FaultKind::Locked | FaultKind::Refused) => {
            renew_each(store, renewals)
        }
        answer => answer,
    }
}

/// Renews leases one by one, without waiting for rows that other transactions hold: those known as held come last.
fn renew_each<S: Server>(store: &mut SqlStore<S>, renewals: &[Renewal]) -> Result<Renewed, Fault> {
    let mut order: Vec<usize> = (0..renewals.len()).collect();
    write(&mut store.server, |connection| {
        order.sort_by_key(|&at| renewals.get(at).is_some_and(|renewal| is_held(connection, renewal)));
        Ok(())
    })?;
    let (mut marks, mut now_ms, mut locked_since) = (vec![None; renewals.len()], 0, None);
    let mut rest = None;
    for (at, renewal) in order.iter().filter_map(|&at| Some((at, renewals.get(at)?))) {
        let answer = write(&mut store.server, |connection| renew_without_waiting(connection, renewal))
            .map_err(|fault| {
                fault.with_context(&format!("renewing a worker of pool `{}`", renewal.own.key.name))
            })
            .and_then(|renewed| {
                now_ms = renewed.now_ms;
                renewed.marks.into_iter().next().unwrap_or_else(|| Err(rows::moved_on()))
            });
        let fault = answer.as_ref().err().cloned();
        marks[at] = Some(answer);
        let Some(fault) = fault else { continue };
        let is_locked = fault.kind == FaultKind::Locked;
        let since = *locked_since.get_or_insert_with(Instant::now);
        if fault.kind.is_outage() || is_locked && since.elapsed() >= PAST_LOCKED_FOR {
            rest = Some(fault);
            break;
        }
    }
    let unasked = || Err(not_asked(rest.clone().unwrap_or_else(rows::moved_on)));
    Ok(Renewed { marks: marks.into_iter().map(|mark| mark.unwrap_or_else(unasked)).collect(), now_ms })
}

/// Renews one lease in a transaction with NOWAIT.
fn renew_without_waiting(connection: &mut dyn Connection, renewal: &Renewal) -> Result<Renewed, Fault> {
    without_waiting(connection, |connection| {
        transact_on(connection, &renewal.own.key, |connection| {
            slot_rows::renew(&mut SqlSlots { connection }, std::slice::from_ref(renewal))
        })
    })
}

/// Whether another transaction held the row of this lease when it was last used.
fn is_held(connection: &mut dyn Connection, renewal: &Renewal) -> bool {
    connection.state().locked.contains(&slot_id(&renewal.own.key, renewal.own.slot))
}

/// The identity of a slot's row in [`State::locked`](super::State::locked).
fn slot_id(key: &Key, slot: u64) -> RowId {
    (key.place(), format!("{slot} {}", key.name))
}

/// Renews leases with one statement. `None`: some were not renewed, and their rows tell why.
///
/// The number in the answer is only the clock: on TiDB, where it may be that of an attempt that was rolled back, the count of changed
/// rows decides alone.
pub(super) fn renew_alone(
    connection: &mut dyn Connection,
    renewals: &[Renewal],
) -> Result<Option<Renewed>, Fault> {
    let Some(Renewal { own: OwnSlot { key, .. }, to, lease_ms }) = renewals.first() else { return Ok(None) };
    let is_one = |of: &Renewal| renewals.first().is_some_and(|first| is_alike(of, first));
    // A transaction is no round trip on SQLite.
    if connection.dialect().creates_tables() || renewals.len() > MOST_AT_ONCE || !renewals.iter().all(is_one)
    {
        return Ok(None);
    }
    check_table(connection, key)?;
    let change = statement::renew(connection, renewals, key, clock(connection), (to.token, *lease_ms))?;
    connection.state().begin_attempt();
    let changed = match connection.commit_alone(&change) {
        Ok(changed) => changed,
        // A transaction repeats.
        Err(_) if connection.state().conflict && !connection.state().broken => return Ok(None),
        Err(fault) => return Err(fault),
    };
    let end = changed.number.unwrap_or(0);
    Ok((changed.rows == renewals.len() as u64).then(|| Renewed {
        marks: renewals.iter().map(|renewal| Ok(renewal.to.mark)).collect(),
        now_ms: end.saturating_sub(*lease_ms),
    }))
}

/// Rows of leased workers in an open transaction.
pub(super) struct SqlSlots<'c> {
    pub(super) connection: &'c mut dyn Connection,
}

/// A login whose clock is this far from the server's has one that stands still. Both are in the session's time zone: a change to summer
/// time between them is not it.
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

const COLUMNS: &str = "(`pool`, `slot`, `token`, `mark`, `ends_at`, `owner`, `layout`)";

fn new_row(key: &Key, new: &SlotRow, layout: &str) -> [Value; 7] {
    [
        key.name.as_str().into(),
        new.slot.into(),
        new.token.into(),
        new.mark.into(),
        new.ends_at.into(),
        new.owner.as_str().into(),
        layout.into(),
    ]
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
        let sql = format!(
            "SELECT `slot`, `token`, `mark`, `ends_at`, `owner`, `layout` FROM {} WHERE `pool` = ? ORDER BY `slot`",
            self.connection.place(key)?
        );
        let found = self.connection.query(&sql, &[key.name.as_str().into()])?;
        let mut pool = PoolRows { now_ms: now_ms(self.connection)?, ..PoolRows::default() };
        let locked = &self.connection.state().locked;
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
                pool.floor = whole(2, "mark")?;
                continue;
            }
            if locked.contains(&slot_id(key, slot)) {
                pool.locked.push(slot);
            }
            pool.add(SlotRow {
                slot,
                token: whole(1, "token")?,
                mark: whole(2, "mark")?,
                ends_at: whole(3, "ends_at")?,
                owner: text(&row, 4).unwrap_or_default().to_owned(),
            });
        }
        Ok(pool)
    }

    fn insert_pool(&mut self, key: &Key, new: &SlotRow, layout: &str) -> Result<bool, Fault> {
        let sql =
            format!("INSERT INTO {} {COLUMNS} VALUES (?, ?, ?, ?, ?, ?, ?)", self.connection.place(key)?);
        self.insert(&sql, &new_row(key, new, layout))
    }

    fn insert_slot(&mut self, key: &Key, new: &SlotRow, floor: u64) -> Result<bool, Fault> {
        // The lock keeps `repair` from raising the pool before this row is committed, and found by it.
        let place = self.connection.place(key)?;
        let sql = format!(
            "INSERT INTO {place} {COLUMNS} SELECT ?, ?, ?, ?, ?, ?, ? FROM {place} \
             WHERE `pool` = ? AND `slot` = ? AND `mark` = ?{}",
            self.connection.for_share()
        );
        let mut values = new_row(key, new, "").to_vec();
        values.extend([key.name.as_str().into(), POOL_ROW.into(), floor.into()]);
        self.insert(&sql, &values)
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
