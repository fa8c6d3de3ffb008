//! Lists of what the server has, for people.

use std::collections::BTreeSet;

use redis::{Value, cmd};

use super::meaning::{self, advised};
use super::redis_session::{RedisSession, ask_texts, text};
use super::redis_wire::CommandKind;
use crate::store::{Fault, Key, ListedRow, Scheme};

/// The names of the keys below the table of `key` that are `wanted`.
pub(super) fn names(
    session: &mut RedisSession,
    key: &Key,
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeSet<String>, Fault> {
    let prefix = format!("{}:", key.table);
    let mut names = BTreeSet::new();
    let mut cursor = "0".to_owned();
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(&cursor).arg("MATCH").arg(format!("{prefix}*")).arg("COUNT").arg(1000);
        let answer =
            session.wire.exchange(&[scan], CommandKind::Query)?.into_iter().next().unwrap_or_default();
        let Value::Array(parts) = session.wire.answer(answer)? else { break };
        if let Some(Value::Array(found)) = parts.get(1) {
            let found = found.iter().filter_map(text);
            let found = found.filter_map(|at| Some(at.strip_prefix(&prefix)?.to_owned()));
            names.extend(found.filter(|name| wanted(name)));
        }
        match parts.first().and_then(text) {
            Some(next) if next != "0" => cursor = next,
            _ => break,
        }
    }
    Ok(names)
}

/// The rows of a table of sources, or the pools of a table of leased workers.
pub(super) fn list(session: &mut RedisSession, key: &Key, most: usize) -> Result<Vec<ListedRow>, Fault> {
    list_all(session, key, most).map_err(|fault| advised(fault, meaning::LISTS_ROWS))
}

fn list_all(session: &mut RedisSession, key: &Key, most: usize) -> Result<Vec<ListedRow>, Fault> {
    let names = names(session, key, |name| !ListedRow::is_of_listed_bank(name))?;
    let mut listed = Vec::with_capacity(names.len().min(most));
    for name in names.into_iter().take(most) {
        if key.scheme == Scheme::Worker {
            listed.push(ListedRow::pool(&name));
            continue;
        }
        let at = format!("{}:{name}", key.table);
        let found = ask_texts(session, cmd("HMGET").arg(&at).arg(&["date", "next"]).take())?;
        let mut numbers = found.iter().map(|field| field.as_ref().and_then(|text| text.parse().ok()));
        let date = numbers.next().flatten().unwrap_or_default();
        listed.push(ListedRow { name, date, next: numbers.next().flatten() });
    }
    Ok(listed)
}
