//! Route tables: a hash for each, `keymill_route:NAME`, of `version` and `text`.

use std::sync::LazyLock;

use redis::{Value, cmd};

use super::meaning::{self, advised};
use super::redis_listing;
use super::redis_session::{RedisSession, Script, ask_texts, place};
use crate::store::{Fault, FaultKind, Key, StoredTable, Subject};

/// What the builds before 0.2.0 called `text`. They need it to read a table, so they refuse today's, as this build refuses theirs.
const EARLIER_TEXT: &str = "table_text";

static ROUTE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("route.lua")));

pub(super) fn read(session: &mut RedisSession, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
    read_one(session, key, known).map_err(|fault| advised(fault, meaning::READS_ROUTE))
}

fn read_one(session: &mut RedisSession, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
    let at = place(key);
    let version = ask_texts(session, cmd("HMGET").arg(&at).arg("version").take())?;
    match version.into_iter().next().flatten() {
        None => return Ok(None),
        Some(version) if version == known.to_string() => {
            return Ok(Some(StoredTable::new(known, None)));
        }
        Some(_) => {}
    }
    // Both at once, so that they belong together.
    let names = ["version", "text", EARLIER_TEXT];
    let found = ask_texts(session, cmd("HMGET").arg(&at).arg(&names).take())?;
    match <[Option<String>; 3]>::try_from(found) {
        Ok([_, _, Some(_)]) => Err(of_earlier_build(&at)),
        Ok([Some(version), Some(text), None]) if version.bytes().all(|b| b.is_ascii_digit()) => {
            let version = version.parse().map_err(|_| wrong(&at))?;
            Ok(Some(StoredTable::new(version, Some(text))))
        }
        Ok([None, None, None]) => Ok(None),
        _ => Err(wrong(&at)),
    }
}

/// Reads all tables. A key that cannot be read stands in the list with its fault.
pub(super) fn list(session: &mut RedisSession, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
    list_all(session, key).map_err(|fault| advised(fault, meaning::LISTS_ROUTES))
}

fn list_all(session: &mut RedisSession, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
    let names = redis_listing::names(session, key, |_| true)?;
    let mut listed = Vec::with_capacity(names.len());
    for name in names {
        let stored =
            match read_one(session, &Key { name: Subject::Route(name.clone()).into(), ..key.clone() }, 0) {
                Err(fault) if fault.kind == FaultKind::Refused && fault.remedy().is_none() => {
                    Some(StoredTable::unreadable(&fault))
                }
                stored => stored?,
            };
        listed.extend(stored.map(|table| (name, table)));
    }
    Ok(listed)
}

fn of_earlier_build(at: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "its key `{at}` was written by an earlier build of keymill (it has `{EARLIER_TEXT}` in place of `text`); nothing was changed. Stop every program that uses the router, write that field into a file, rename the key, and store the file with `keymill route put NAME FILE --yes`"
        ),
    )
}

fn wrong(at: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!("its key `{at}` is no route table of keymill's, a hash of `version` and `text`"),
    )
}

pub(super) fn replace(
    session: &mut RedisSession,
    key: &Key,
    old: Option<u64>,
    new: (u64, &str),
) -> Result<bool, Fault> {
    let old = old.map(|version| version.to_string()).unwrap_or_default();
    let done = Value::Int(1);
    let values = [old, new.0.to_string(), new.1.to_owned()];
    let answer = session.run(&ROUTE, key, &values, |answer| *answer == done);
    Ok(answer.map_err(|fault| advised(fault, meaning::PUTS_ROUTE))? == done)
}
