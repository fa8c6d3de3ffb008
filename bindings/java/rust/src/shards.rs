//! Natives of `io.keymill.ShardsBox`: the writes of ids whose rows lie on several databases. Java executes what the core's machine says.
//!
//! An action crosses as one number, and an answer as a number and bytes; the text of a statement is fetched by a call of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jni::objects::{JByteArray, JClass, JObject};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned};
use keymill::binding::{NoConnection, ShardAction, ShardAnswer, ShardTables, ShardWrite, Side};
use keymill::{Code, Error, Result, Router, ShardFailure, ShardKind, ShardRow};

use crate::call::{CallError, enter, enter_with};
use crate::held::{Held, boxed};

/// The tables, and the shards that Java has, by the numbers that it gave them.
struct Tables {
    tables: ShardTables,
    shards: Arc<HashMap<String, u32>>,
}

/// A write under way, and the text of its last action.
struct Write {
    machine: ShardWrite,
    shards: Arc<HashMap<String, u32>>,
    text: String,
}

/// What an action is, in the low byte of its number.
mod action {
    pub(super) const OPEN: i64 = 1;
    pub(super) const BEGIN: i64 = 2;
    pub(super) const ASK: i64 = 3;
    pub(super) const WORK: i64 = 4;
    pub(super) const COMMIT: i64 = 5;
    pub(super) const ROLLBACK: i64 = 6;
    pub(super) const CLOSE: i64 = 7;
    pub(super) const WAIT: i64 = 8;
    pub(super) const THROW: i64 = 9;
    pub(super) const DONE: i64 = 10;
    /// On the shard that follows.
    pub(super) const NEW: i64 = 1 << 8;
    /// The connection is ended; or, of `OPEN`, rows are carried over to a second shard.
    pub(super) const MARK: i64 = 1 << 9;
    /// Above: the number of the shard, or the microseconds of a wait.
    pub(super) const SHIFT: u32 = 16;
}

impl Write {
    fn number(&mut self, action: ShardAction) -> i64 {
        let on = |side: Side| if side == Side::New { action::NEW } else { 0 };
        match action {
            ShardAction::Open(side, shard) => {
                let number = self.shards.get(&shard).map_or(0, |number| i64::from(*number) << action::SHIFT);
                let mirrored = if self.machine.shard(Side::New).is_empty() { 0 } else { action::MARK };
                self.text = shard;
                action::OPEN | on(side) | mirrored | number
            }
            ShardAction::Begin(side) => action::BEGIN | on(side),
            ShardAction::Ask(side, sql) => {
                self.text = sql;
                action::ASK | on(side)
            }
            ShardAction::Work => action::WORK,
            ShardAction::Commit(side) => action::COMMIT | on(side),
            ShardAction::Rollback(side) => action::ROLLBACK | on(side),
            ShardAction::Close(side, ends) => action::CLOSE | on(side) | if ends { action::MARK } else { 0 },
            ShardAction::Wait(time) => {
                let micros = time.as_micros().clamp(1, 1 << 46) as i64;
                action::WAIT | micros << action::SHIFT
            }
            ShardAction::Throw => action::THROW,
            ShardAction::Done => action::DONE,
        }
    }
}

/// Reads what Java wrote with a `DataOutput`: numbers of 32 bits, the highest byte first, and texts after their lengths.
struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn number(&mut self) -> Result<i32> {
        let (number, rest) = self.0.split_first_chunk::<4>().ok_or_else(unreadable)?;
        self.0 = rest;
        Ok(i32::from_be_bytes(*number))
    }

    /// The bytes after their length; -1 is NULL.
    fn bytes(&mut self) -> Result<Option<&'b [u8]>> {
        let Ok(length) = usize::try_from(self.number()?) else { return Ok(None) };
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(unreadable)?;
        self.0 = rest;
        Ok(Some(bytes))
    }

    /// No text is the empty one.
    fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?.unwrap_or_default()).into_owned())
    }

    fn texts(&mut self) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        while !self.0.is_empty() {
            texts.push(self.text()?);
        }
        Ok(texts)
    }

    fn row(&mut self) -> Result<ShardRow> {
        let cells = self.number()?;
        (0..cells).map(|_| Ok(self.bytes()?.map(<[u8]>::to_vec))).collect()
    }

    fn rows(&mut self) -> Result<Vec<ShardRow>> {
        let mut rows = Vec::new();
        while !self.0.is_empty() {
            rows.push(self.row()?);
        }
        Ok(rows)
    }

    fn failure(&mut self) -> Result<ShardFailure> {
        let (state, number) = (self.text()?, self.number()?);
        let (message, broken) = (self.text()?, self.number()?);
        Ok(ShardFailure {
            state,
            number: u32::try_from(number).unwrap_or(0),
            message,
            is_broken: broken != 0,
        })
    }
}

fn unreadable() -> Error {
    Error::new(Code::Internal, "an answer of Java cannot be read")
}

/// An answer: what it is, and its bytes.
fn answer(kind: jint, bytes: &[u8]) -> Result<ShardAnswer> {
    let mut input = Input(bytes);
    Ok(match kind {
        0 => ShardAnswer::Ready,
        1 => ShardAnswer::Opened(ShardKind::MySql),
        2 => ShardAnswer::Opened(ShardKind::Postgres),
        3 => ShardAnswer::Rows(input.rows()?),
        4 => ShardAnswer::Failed(input.failure()?),
        5 => ShardAnswer::Refused(Error::new(Code::InvalidConfig, input.text()?)),
        6 => ShardAnswer::Refused(Error::new(Code::InvalidArgument, input.text()?)),
        7 => ShardAnswer::NotOpened(NoConnection::Unnamed(input.text()?)),
        8 => ShardAnswer::NotOpened(NoConnection::Shared(input.text()?)),
        _ => return Err(unreadable()),
    })
}

/// `long shards(long address, byte[] tables, byte[] shards, long deadlineMs)`: texts after their lengths; names and keys of the tables by turns. A
/// negative deadline is the default.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_shards<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'_, Router>,
    tables: JByteArray<'local>,
    shards: JByteArray<'local>,
    deadline_ms: jlong,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let texts = |env: &Env<'_>, bytes: &JByteArray<'_>| -> std::result::Result<Vec<String>, CallError> {
            Ok(Input(&env.convert_byte_array(bytes)?).texts()?)
        };
        let words = texts(env, &tables)?;
        let named = words.chunks_exact(2).filter_map(|pair| match pair {
            [name, key] => Some((name.clone(), key.clone())),
            _ => None,
        });
        let mut tables = ShardTables::new(&router, named.collect())?;
        if let Ok(deadline) = u64::try_from(deadline_ms) {
            tables = tables.with_deadline(Duration::from_millis(deadline));
        }
        let shards = (1..).zip(texts(env, &shards)?).map(|(number, name)| (name, number)).collect();
        Ok(boxed(Tables { tables, shards: Arc::new(shards) }))
    })
}

/// `static void free(long address)`: nothing in Java can reach the tables any more.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_ShardsBox_free(mut env: EnvUnowned<'_>, _: JClass<'_>, address: jlong) {
    enter(&mut env, (), || {
        // SAFETY: from `shards`, freed once: the reference queue hands a box out once.
        drop(unsafe { Box::from_raw(address as *mut Tables) });
        Ok(())
    });
}

fn begun(tables: &Tables, write: ShardWrite) -> jlong {
    boxed(Write { machine: write, shards: Arc::clone(&tables.shards), text: String::new() })
}

/// `long begin(long address, long id, boolean reads)`: a write, or a read; `end` frees it.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_ShardsBox_begin(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    tables: Held<'_, Tables>,
    id: jlong,
    reads: jboolean,
) -> jlong {
    enter(&mut env, 0, || {
        let of_id = &tables.tables;
        let id = u64::try_from(id).map_err(|_| Error::argument("an id of 64 bits is not negative"))?;
        Ok(begun(&tables, if reads { of_id.read(id) } else { of_id.write(id) }))
    })
}

/// `long beginBytes(long address, byte[] id, boolean reads)`: of an id in big-endian order, of 8 or 16 bytes.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_ShardsBox_beginBytes<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    tables: Held<'_, Tables>,
    id: JByteArray<'local>,
    reads: jboolean,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let bytes = env.convert_byte_array(&id)?;
        let all = &tables.tables;
        let write = match (<[u8; 8]>::try_from(&bytes[..]), <[u8; 16]>::try_from(&bytes[..])) {
            (Ok(id), _) if reads => all.read(u64::from_be_bytes(id)),
            (Ok(id), _) => all.write(u64::from_be_bytes(id)),
            (_, Ok(id)) if reads => all.read_wide(u128::from_be_bytes(id)),
            (_, Ok(id)) => all.write_wide(u128::from_be_bytes(id)),
            _ => return Err(Error::argument("an id has 8 or 16 bytes").into()),
        };
        Ok(begun(&tables, write))
    })
}

/// `static long next(long write, int answer, byte[] bytes)`: the next action; null are no bytes.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_ShardsBox_next<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    write: jlong,
    kind: jint,
    bytes: JByteArray<'local>,
) -> jlong {
    let step = |bytes: &[u8]| {
        // SAFETY: from `begun`; one thread of Java has it, which frees it afterwards by `end`.
        let write = unsafe { &mut *(write as *mut Write) };
        let action = write.machine.next(answer(kind, bytes)?)?;
        Ok(write.number(action))
    };
    if bytes.is_null() {
        return enter(&mut env, 0, || step(&[]));
    }
    enter_with(&mut env, 0, |env| Ok(step(&env.convert_byte_array(&bytes)?)?))
}

/// `static byte[] text(long write)`: the statement or the shard of the last action, in UTF-8.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_ShardsBox_text<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    write: jlong,
) -> JByteArray<'local> {
    enter_with(&mut env, JByteArray::null(), |env| {
        // SAFETY: as in `next`.
        let write = unsafe { &*(write as *const Write) };
        Ok(env.byte_array_from_slice(write.text.as_bytes())?)
    })
}

/// `static void end(long write)`: frees it.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_ShardsBox_end(mut env: EnvUnowned<'_>, _: JClass<'_>, write: jlong) {
    enter(&mut env, (), || {
        // SAFETY: from `begun`; the one thread that has it frees it once.
        drop(unsafe { Box::from_raw(write as *mut Write) });
        Ok(())
    });
}
