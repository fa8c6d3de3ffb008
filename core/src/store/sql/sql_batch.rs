//! Ranges of several sources at once.
//!
//! Their statements are one transaction: one round trip and one flush of the log, so all of them are carried out or none. Every process
//! locks rows in the same order. A row that another transaction has locked would delay all of them, so it is left out and
//! requested on its own.

use std::time::Instant;

use crate::store::model::rows::{self, Answers, Rows};
use crate::store::{Fault, GiveBack, Key, MOST_AT_ONCE, Request};

use super::conditional_add;
use super::connection::row_id;
use super::relation::{ensure_table, look_at_table};
use super::sql_rows::OpenRows;
use super::transaction::PAST_LOCKED_FOR;
use super::{Changed, Connection, Statement, Together};

/// The order in which every process locks the rows of a batch, so that no two transactions wait for each other.
fn in_order<'k>(keys: impl Iterator<Item = &'k Key>) -> Vec<usize> {
    let mut order: Vec<_> = keys.map(|key| (&key.table, key.name.as_str())).enumerate().collect();
    order.sort_by(|a, b| a.1.cmp(&b.1));
    order.into_iter().map(|(at, _)| at).collect()
}

/// A statement of a batch, with the item that it serves and its index.
struct Sent<'i, I, T> {
    at: usize,
    item: &'i I,
    prepared: T,
}

/// What the statements of a batch have changed.
type Answered<'i, I, T> = Vec<(Sent<'i, I, T>, Changed)>;

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
    if connection.dialect().goes_on_after_errors() {
        let all = in_one_transaction(connection, requests, |request| &request.key, rows::reserve)?;
        // A request on its own reports what is wrong.
        let alone = |_| vec![None; requests.len()];
        return Ok(all.map_or_else(alone, |answers| answers.into_iter().map(Result::transpose).collect()));
    }
    let mut answers = vec![None; requests.len()];
    let done =
        send(connection, requests, |request| &request.key, conditional_add::prepare, |add| &add.statement)?;
    for (Sent { at, item, prepared }, changed) in done {
        answers[at] = conditional_add::interpret(connection, item, &prepared, changed).transpose();
    }
    Ok(answers)
}

/// Returns several ranges. `None`: nothing was changed for this range.
pub(super) fn give_back(
    connection: &mut dyn Connection,
    ranges: &[GiveBack],
) -> Result<Vec<Option<bool>>, Fault> {
    if connection.dialect().goes_on_after_errors() {
        let give_back = |rows: &mut dyn Rows, range: &GiveBack| rows::give_back(rows, range).map(Some);
        let all = in_one_transaction(connection, ranges, |range| &range.key, give_back)?;
        // A refused row was not changed, and the refusal concerns no other row.
        let given = |answer: Result<Option<bool>, Fault>| Some(answer.ok().flatten().unwrap_or(false));
        return Ok(all?.into_iter().map(given).collect());
    }
    if ranges.len() > MOST_AT_ONCE {
        let chunks = ranges.chunks(MOST_AT_ONCE).map(|some| give_back(connection, some));
        return chunks.collect::<Result<Vec<_>, Fault>>().map(|given| given.concat());
    }
    let mut answers = vec![None; ranges.len()];
    let prepare = |connection: &mut dyn Connection, range: &GiveBack| {
        conditional_add::prepare_give_back(connection, range)
    };
    let done = send(connection, ranges, |range| &range.key, prepare, |statement| statement)?;
    for (Sent { at, .. }, changed) in done {
        answers[at] = Some(conditional_add::given_back(connection, changed)?);
    }
    Ok(answers)
}

/// The answers to pieces of work in one transaction.
type InOne<T> = Vec<Result<Option<T>, Fault>>;

/// Carries out one piece of work for each item in one transaction, and so with one flush of the log. A refused item has
/// written nothing and does not affect the others. The inner fault belongs to one item, after which nothing was changed for
/// any; the outer fault is the transaction's own.
fn in_one_transaction<I, T>(
    connection: &mut dyn Connection,
    items: &[I],
    key: impl Fn(&I) -> &Key,
    work: impl Fn(&mut dyn Rows, &I) -> Result<Option<T>, Fault>,
) -> Result<Result<InOne<T>, Fault>, Fault> {
    connection.begin()?;
    connection.state().aborted = false;
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let answer = ensure_table(connection, key(item))
            .and_then(|()| work(&mut OpenRows { connection: &mut *connection }, item));
        // If the disk or memory is full, the database may have rolled back earlier work.
        match answer {
            Err(fault) if fault.kind.is_outage() || connection.state().aborted => {
                connection.roll_back();
                return Ok(Err(fault));
            }
            answer => answers.push(answer),
        }
    }
    connection.commit()?;
    Ok(Ok(answers))
}

/// Sends the statements of these items in one transaction, except those with locked rows. Answers with what each of them changed,
/// or with nothing if nothing was changed.
fn send<'i, I, T>(
    connection: &mut dyn Connection,
    items: &'i [I],
    key: impl Fn(&'i I) -> &'i Key,
    prepare: impl Fn(&mut dyn Connection, &'i I) -> Result<Option<T>, Fault>,
    statement: impl Fn(&T) -> &Statement,
) -> Result<Answered<'i, I, T>, Fault> {
    let mut sent = Vec::with_capacity(items.len());
    for at in in_order(items.iter().map(&key)) {
        let Some(item) = items.get(at) else { continue };
        if may_go_along(connection, key(item))?
            && let Ok(Some(prepared)) = prepare(connection, item)
        {
            sent.push(Sent { at, item, prepared });
        }
    }
    let done = drop_locked(connection, &mut sent, key, statement);
    if connection.state().nowait && !connection.state().broken {
        // A completed reservation stays valid; a connection that could not be reset is not used again.
        let _ = connection.set_nowait(false);
    }
    Ok(sent.into_iter().zip(done?).collect())
}

/// Sends them until no row is locked. The first locked row is waited for, unless one is known already; further ones are not.
fn drop_locked<'i, I, T>(
    connection: &mut dyn Connection,
    sent: &mut Vec<Sent<'i, I, T>>,
    key: impl Fn(&'i I) -> &'i Key,
    statement: impl Fn(&T) -> &Statement,
) -> Result<Vec<Changed>, Fault> {
    let mut until = None;
    if sent.len() > 1 && !connection.state().locked.is_empty() {
        connection.set_nowait(true)?;
    }
    while sent.len() > 1 {
        let statements: Vec<_> = sent.iter().map(|one| statement(&one.prepared)).collect();
        let locked = match connection.commit_together(&statements)? {
            Together::Done(done) => return Ok(done),
            Together::LockedAt(at) if at < sent.len() => at,
            Together::LockedAt(_) | Together::Nothing => break,
        };
        let dropped = sent.remove(locked);
        connection.state().locked.insert(row_id(key(dropped.item)));
        if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + PAST_LOCKED_FOR) {
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
