//! Statements of several sources at once.
//!
//! They are one transaction: one round trip and one flush of the log, so all of them are carried out or none. Every process
//! locks rows in the same order. A row that another transaction has locked would delay all of them, so it is left out and
//! requested on its own.

use std::time::{Duration, Instant};

use crate::store::model::rows::Answers;
use crate::store::{Fault, GiveBack, Key, Request};

use super::conditional_add::{self, ConditionalAdd};
use super::relation::look_at_table;
use super::{Changed, Connection, Statement, Together, row_id};

/// How long locked rows are found one after the other, once the first was found.
const DROP_LOCKED_FOR: Duration = Duration::from_millis(500);

/// The order in which every process locks the rows of a batch, so that no two transactions wait for each other.
fn in_order<'k>(keys: impl Iterator<Item = &'k Key>) -> Vec<usize> {
    let mut order: Vec<_> = keys.map(|key| (&key.table, key.name.as_str())).enumerate().collect();
    order.sort_by(|a, b| a.1.cmp(&b.1));
    order.into_iter().map(|(at, _)| at).collect()
}

/// One statement of a batch, and the index of its request.
struct Sent<'k, T> {
    at: usize,
    key: &'k Key,
    of: T,
}

/// Whether the row of this key may be part of a batch: its table was checked, and its row was not locked.
fn may_go_along(connection: &mut dyn Connection, key: &Key) -> Result<bool, Fault> {
    if key.scheme.is_ticket() || connection.state().locked.contains(&row_id(key)) {
        return Ok(false);
    }
    // A missing table would fail the transaction for all. The request on its own reports it.
    match look_at_table(connection, key) {
        Err(fault) if connection.state().broken => Err(fault),
        answer => Ok(answer.unwrap_or(false)),
    }
}

/// Reserves for several sources. `None`: nothing was changed for this request.
pub(super) fn reserve(connection: &mut dyn Connection, requests: &[Request]) -> Result<Answers, Fault> {
    let mut answers = vec![None; requests.len()];
    let mut sent: Vec<Sent<'_, ConditionalAdd>> = Vec::with_capacity(requests.len());
    for at in in_order(requests.iter().map(|request| &*request.key)) {
        let Some(request) = requests.get(at) else { continue };
        if may_go_along(connection, &request.key)?
            && let Ok(Some(of)) = conditional_add::prepare(connection, request)
        {
            sent.push(Sent { at, key: &request.key, of });
        }
    }
    let done = carry_out(connection, &mut sent, |add| &add.statement)?;
    for (Sent { at, of, .. }, changed) in sent.iter().zip(done) {
        if let (Some(request), Some(answer)) = (requests.get(*at), answers.get_mut(*at)) {
            *answer = conditional_add::interpret(connection, request, of, changed).transpose();
        }
    }
    Ok(answers)
}

/// Returns several ranges. `None`: nothing was changed for this range.
pub(super) fn give_back(
    connection: &mut dyn Connection,
    ranges: &[GiveBack],
) -> Result<Vec<Option<bool>>, Fault> {
    let mut answers = vec![None; ranges.len()];
    let mut sent: Vec<Sent<'_, Statement>> = Vec::with_capacity(ranges.len());
    for at in in_order(ranges.iter().map(|range| &*range.key)) {
        let Some(GiveBack { key, period, lo, hi }) = ranges.get(at) else { continue };
        if may_go_along(connection, key)?
            && let Ok(Some(of)) = conditional_add::prepare_give_back(connection, key, *period, (*lo, *hi))
        {
            sent.push(Sent { at, key, of });
        }
    }
    let done = carry_out(connection, &mut sent, |statement| statement)?;
    for (Sent { at, .. }, changed) in sent.iter().zip(done) {
        if let Some(answer) = answers.get_mut(*at) {
            *answer = Some(conditional_add::given_back(connection, changed)?);
        }
    }
    Ok(answers)
}

/// Carries out all of these except those with locked rows, which are removed; answers with the results, or with nothing if
/// nothing was changed.
fn carry_out<T>(
    connection: &mut dyn Connection,
    sent: &mut Vec<Sent<'_, T>>,
    statement: impl Fn(&T) -> &Statement,
) -> Result<Vec<Changed>, Fault> {
    let done = drop_locked(connection, sent, statement);
    if connection.state().nowait && !connection.state().broken {
        // A completed reservation stays valid; a connection that could not be reset is not used again.
        let _ = connection.set_nowait(false);
    }
    done
}

/// The first locked row is waited for, unless one is known already; further ones are not.
fn drop_locked<T>(
    connection: &mut dyn Connection,
    sent: &mut Vec<Sent<'_, T>>,
    statement: impl Fn(&T) -> &Statement,
) -> Result<Vec<Changed>, Fault> {
    let mut until = None;
    if sent.len() > 1 && !connection.state().locked.is_empty() {
        connection.set_nowait(true)?;
    }
    while sent.len() > 1 {
        let statements: Vec<_> = sent.iter().map(|one| statement(&one.of)).collect();
        let locked = match connection.commit_together(&statements)? {
            Together::Done(done) => return Ok(done),
            Together::LockedAt(at) if at < sent.len() => at,
            Together::LockedAt(_) | Together::Nothing => break,
        };
        let dropped = sent.remove(locked);
        connection.state().locked.insert(row_id(dropped.key));
        if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + DROP_LOCKED_FOR) {
            break;
        }
        if !connection.state().nowait {
            connection.set_nowait(true)?;
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;

    #[test]
    fn rows_are_locked_in_one_order_by_table_and_name() {
        let mill = MillConfig::parse("mysql://app@db/ids").expect("a mill");
        let specs = ["segment:b", "segment:a?table=z", "segment:a", "segment:c?table=a"];
        let keys = specs.map(|spec| mill.spec(spec).expect("a spec").key);
        assert_eq!(in_order(keys.iter().map(|key| &**key)), [3, 2, 0, 1]);
        assert_eq!(row_id(&keys[1]), ("z".to_owned(), "segment:a".to_owned()));
    }
}
