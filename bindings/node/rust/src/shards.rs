//! Writes of ids whose rows lie on several databases. `ts/shards.ts` runs what this says on the program's connections.

use std::cell::RefCell;

use keymill::binding::{
    Misuse, NoConnection, ShardAction, ShardAnswer, ShardTables, ShardWrite, Side, duration,
};
use keymill::{Error, ShardFailure, ShardKind};
use napi::bindgen_prelude::{BigInt, External, Uint8Array};
use napi_derive::napi;

use crate::errors::{Thrown, enter};
use crate::router::{RouterBox, word};

type Result<T> = napi::Result<T, Thrown>;

/// A router, and the tables whose rows belong to its ids.
pub struct ShardTablesBox(ShardTables);

/// One write of one id.
pub struct ShardWriteBox(RefCell<ShardWrite>);

/// What is done next.
#[napi(object, object_from_js = false)]
pub struct ShardStep {
    pub action: &'static str,
    /// 0: on the shard that decides; 1: on the shard that follows.
    pub side: u32,
    /// The shard or the statement.
    pub text: String,
    /// Milliseconds of a wait; 1: the connection is ended.
    pub number: f64,
}

fn step(action: ShardAction) -> ShardStep {
    let plain =
        |action, side, text, number| ShardStep { action, side: u32::from(side == Side::New), text, number };
    let none = String::new;
    match action {
        ShardAction::Open(side, shard) => plain("open", side, shard, 0.0),
        ShardAction::Begin(side) => plain("begin", side, none(), 0.0),
        ShardAction::Ask(side, sql) => plain("ask", side, sql, 0.0),
        ShardAction::Work => plain("work", Side::Old, none(), 0.0),
        ShardAction::Commit(side) => plain("commit", side, none(), 0.0),
        ShardAction::Rollback(side) => plain("rollback", side, none(), 0.0),
        ShardAction::Close(side, ends) => plain("close", side, none(), f64::from(u8::from(ends))),
        ShardAction::Wait(time) => plain("wait", Side::Old, none(), time.as_millis() as f64),
        ShardAction::Throw => plain("throw", Side::Old, none(), 0.0),
        ShardAction::Done => plain("done", Side::Old, none(), 0.0),
    }
}

fn next(write: &External<ShardWriteBox>, answer: impl FnOnce() -> ShardAnswer) -> Result<ShardStep> {
    enter(|| {
        let mut write =
            write.0.try_borrow_mut().map_err(|_| Error::argument("a write has one action at a time"))?;
        write.next(answer()).map(step)
    })
}

/// The tables, each a name and the column of the id.
#[napi]
pub fn shard_tables(
    router: &External<RouterBox>,
    tables: Vec<Vec<String>>,
    deadline: Option<String>,
) -> Result<External<ShardTablesBox>> {
    enter(|| {
        let pair = |pair: Vec<String>| match <[String; 2]>::try_from(pair) {
            Ok([name, key]) => Some((name, key)),
            Err(_) => None,
        };
        let tables = ShardTables::new(router.router(), tables.into_iter().filter_map(pair).collect())?;
        let Some(deadline) = deadline else { return Ok(External::new(ShardTablesBox(tables))) };
        let time = duration(&deadline)
            .ok_or_else(|| Error::argument("deadline must be a time such as '15s' or '500ms'"))?;
        Ok(External::new(ShardTablesBox(tables.with_deadline(time))))
    })
}

fn begun(write: ShardWrite) -> External<ShardWriteBox> {
    External::new(ShardWriteBox(RefCell::new(write)))
}

/// A write or a read of an id of 64 bits.
#[napi]
pub fn shard_write(
    tables: &External<ShardTablesBox>,
    id: BigInt,
    reads: bool,
) -> Result<External<ShardWriteBox>> {
    enter(|| {
        let id = word(&id);
        Ok(begun(if reads { tables.0.read(id) } else { tables.0.write(id) }))
    })
}

/// A write or a read of an id of 8 or 16 bytes.
#[napi]
pub fn shard_write_bytes(
    tables: &External<ShardTablesBox>,
    id: Uint8Array,
    reads: bool,
) -> Result<External<ShardWriteBox>> {
    enter(|| {
        let narrow = <[u8; 8]>::try_from(&id[..]).map(u64::from_be_bytes);
        let wide = <[u8; 16]>::try_from(&id[..]).map(u128::from_be_bytes);
        Ok(begun(match (narrow, wide) {
            (Ok(id), _) if reads => tables.0.read(id),
            (Ok(id), _) => tables.0.write(id),
            (_, Ok(id)) if reads => tables.0.read_wide(id),
            (_, Ok(id)) => tables.0.write_wide(id),
            _ => return Err(Error::argument("an id has 8 or 16 bytes")),
        }))
    })
}

/// The last action is done.
#[napi]
pub fn shard_ready(write: &External<ShardWriteBox>) -> Result<ShardStep> {
    next(write, || ShardAnswer::Ready)
}

/// The connection is there.
#[napi]
pub fn shard_opened(write: &External<ShardWriteBox>, is_postgres: bool) -> Result<ShardStep> {
    next(write, || ShardAnswer::Opened(if is_postgres { ShardKind::Postgres } else { ShardKind::MySql }))
}

/// The rows of a statement.
#[napi]
pub fn shard_rows(write: &External<ShardWriteBox>, rows: Vec<Vec<Option<Uint8Array>>>) -> Result<ShardStep> {
    next(write, || {
        let row = |row: Vec<Option<Uint8Array>>| {
            row.into_iter().map(|cell| cell.map(|cell| cell.to_vec())).collect()
        };
        ShardAnswer::Rows(rows.into_iter().map(row).collect())
    })
}

/// The database has failed, or the work has.
#[napi]
pub fn shard_failed(
    write: &External<ShardWriteBox>,
    state: String,
    number: u32,
    message: String,
    is_broken: bool,
) -> Result<ShardStep> {
    next(write, || ShardAnswer::Failed(ShardFailure { state, number, message, is_broken }))
}

/// The program has named no pool for this shard.
#[napi]
pub fn shard_unnamed(write: &External<ShardWriteBox>, advice: String) -> Result<ShardStep> {
    next(write, || ShardAnswer::NotOpened(NoConnection::Unnamed(advice)))
}

/// It is the connection, or the pool, that the other shard has.
#[napi]
pub fn shard_shared(write: &External<ShardWriteBox>, advice: String) -> Result<ShardStep> {
    next(write, || ShardAnswer::NotOpened(NoConnection::Shared(advice)))
}

/// Another write or read has the connection.
#[napi]
pub fn shard_in_use(write: &External<ShardWriteBox>) -> Result<ShardStep> {
    next(write, || ShardAnswer::NotOpened(NoConnection::InUse))
}

/// The work has left rows unread, or has not waited for a statement.
#[napi]
pub fn shard_unread(write: &External<ShardWriteBox>) -> Result<ShardStep> {
    next(write, || ShardAnswer::Misused(Misuse::UnreadRows))
}

/// For how many milliseconds it is tried again.
#[napi]
pub fn shard_left(write: &External<ShardWriteBox>) -> Result<f64> {
    enter(|| {
        let write = write.0.try_borrow().map_err(|_| Error::argument("a write has one action at a time"))?;
        Ok(write.left().as_secs_f64() * 1000.0)
    })
}
