//! Renewals of the leases of workers: one statement for several leases, a transaction where it did not renew all of them, and
//! one by one where the row of one lease stops the others.

use std::time::Instant;

use crate::store::model::rows;
use crate::store::model::slot_rows;
use crate::store::{Fault, FaultKind, Key, MOST_AT_ONCE, Renewal, Renewed, renewing};

use super::access::{Server, write, write_several};
use super::sql_slots::{SqlSlots, clock, slot_id};
use super::transaction::{self, PAST_LOCKED_FOR, without_waiting};
use super::{Connection, Dialect};

/// Renews leases, as many at once as one statement takes.
pub(super) fn renew(server: &mut impl Server, renewals: &[Renewal]) -> Result<Renewed, Fault> {
    let groups = groups(renewals);
    if groups.len() == 1 {
        return renew_together(server, renewals);
    }
    let (mut marks, mut now_ms, mut outage) = (vec![None; renewals.len()], 0, None);
    for (nth, at) in groups.into_iter().enumerate() {
        let group: Vec<_> = at.iter().filter_map(|&at| renewals.get(at)).cloned().collect();
        let answer = match &outage {
            Some(fault) => Err(not_asked(Fault::clone(fault))),
            None => renew_together(server, &group),
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
            let first = group.first().and_then(|&first| renewals.get(first));
            group.len() < MOST_AT_ONCE && first.is_some_and(|first| is_alike(first, renewal))
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

/// Renews leases of one group, or one by one where something concerns one of them alone.
fn renew_together(server: &mut impl Server, renewals: &[Renewal]) -> Result<Renewed, Fault> {
    let Some(first) = renewals.first() else { return Ok(Renewed { marks: Vec::new(), now_ms: 0 }) };
    let together = write(server, &first.own.key, |connection| {
        if renewals.iter().any(|renewal| is_held(connection, renewal)) {
            return Ok(None);
        }
        let renewed = match renew_alone(connection, renewals) {
            Ok(None) => renew_in_transaction(connection, &first.own.key, renewals),
            Ok(Some(renewed)) => Ok(renewed),
            Err(fault) => Err(fault),
        };
        if renewals.len() == 1 {
            note_held(connection, first, &renewed);
        }
        renewed.map(Some)
    });
    match together.map_err(|fault| fault.with_context(&renewing(renewals))) {
        Ok(Some(renewed)) => Ok(renewed),
        Ok(None) => renew_each(server, renewals),
        // Nothing was changed, and the row of one lease is enough for that.
        Err(fault) if renewals.len() > 1 && matches!(fault.kind, FaultKind::Locked | FaultKind::Refused) => {
            renew_each(server, renewals)
        }
        Err(fault) => Err(fault),
    }
}

/// Renews leases one by one, without waiting for rows that other transactions hold: those known as held come last.
fn renew_each(server: &mut impl Server, renewals: &[Renewal]) -> Result<Renewed, Fault> {
    let mut order: Vec<usize> = (0..renewals.len()).collect();
    write_several(server, |connection| {
        order.sort_by_key(|&at| renewals.get(at).is_some_and(|renewal| is_held(connection, renewal)));
        Ok(())
    })?;
    let (mut marks, mut now_ms, mut locked_since) = (vec![None; renewals.len()], 0, None);
    let mut rest = None;
    for (at, renewal) in order.iter().filter_map(|&at| Some((at, renewals.get(at)?))) {
        let key = &renewal.own.key;
        let answer = write(server, key, |connection| {
            let renewed = without_waiting(connection, |connection| {
                renew_in_transaction(connection, key, std::slice::from_ref(renewal))
            });
            note_held(connection, renewal, &renewed);
            renewed
        });
        let answer = answer
            .map_err(|fault| fault.with_context(&format!("renewing a worker of pool `{}`", key.name)))
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

/// Renews leases in one transaction, which reads their rows.
fn renew_in_transaction(
    connection: &mut dyn Connection,
    key: &Key,
    renewals: &[Renewal],
) -> Result<Renewed, Fault> {
    transaction::on_table(connection, key, |connection| {
        slot_rows::renew(&mut SqlSlots { connection }, renewals)
    })
}

/// Whether another session held the row of this lease when it was last used.
fn is_held(connection: &mut dyn Connection, renewal: &Renewal) -> bool {
    connection.state().locked.contains(&slot_id(&renewal.own.key, renewal.own.slot))
}

/// Notes whether another session held the row of this lease, or its table.
fn note_held(connection: &mut dyn Connection, renewal: &Renewal, answer: &Result<Renewed, Fault>) {
    let row = slot_id(&renewal.own.key, renewal.own.slot);
    let locked = &mut connection.state().locked;
    if answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Locked) {
        locked.insert(row);
    } else {
        locked.remove(&row);
    }
}

/// Renews leases with one statement. `None`: some were not renewed, and their rows tell why.
///
/// The number in the answer is only the clock: on TiDB it may come from an attempt that was rolled back, so the count of changed rows
/// decides alone.
fn renew_alone(connection: &mut dyn Connection, renewals: &[Renewal]) -> Result<Option<Renewed>, Fault> {
    let Some(Renewal { own, to, lease_ms }) = renewals.first() else { return Ok(None) };
    // A transaction is no round trip on SQLite.
    if connection.dialect().creates_tables() {
        return Ok(None);
    }
    let table = connection.table(&own.key)?;
    let change = table.renew(renewals, clock(connection), (to.token, *lease_ms));
    connection.state().begin_attempt();
    let changed = match connection.commit_alone(&change) {
        Ok(changed) => changed,
        // A transaction repeats. One wait for a lock is enough: the other sources wait too. TiDB's error about a lock may be a conflict.
        Err(fault) => {
            let may_repeat = fault.kind != FaultKind::Locked || connection.dialect() == Dialect::TiDb;
            let state = connection.state();
            return if may_repeat && state.conflict && !state.broken { Ok(None) } else { Err(fault) };
        }
    };
    let end = changed.number.unwrap_or(0);
    Ok((changed.rows == renewals.len() as u64).then(|| Renewed {
        marks: renewals.iter().map(|renewal| Ok(renewal.to.mark)).collect(),
        now_ms: end.saturating_sub(*lease_ms),
    }))
}
