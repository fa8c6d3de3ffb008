//! Natives of `io.keymill.SourceBox`: the verbs of a source.

use std::time::Duration;

use jni::objects::{JByteArray, JLongArray, JObject, JString};
use jni::sys::{jint, jlong};
use jni::{Env, EnvUnowned};
use keymill::binding::{LastBlock, Notifier, Pending};
use keymill::{Code, Error, Kind, Parts, Result, Source};

use crate::call::{CallError, enter, enter_with, rows_out, text_in, text_out};
use crate::held::{Held, boxed};

/// Answers of the natives that may have to wait: done.
pub(crate) const DONE: jlong = 0;
/// … an exception is pending.
pub(crate) const THROWN: jlong = -1;

/// What a lease reads in Java: `io.keymill.LeaseBuffer` names the same offsets.
#[repr(C)]
struct LeaseBuffer {
    lo: u64,
    hi: u64,
    leased_at: u64,
    word: u64,
    width: u64,
    prefix_len: u64,
    prefix: [u8; 64],
    /// By which the core sizes the next block; Java leaves it alone.
    last: LastBlock,
}

/// What a refusal means for a caller that has waited for `waited` nanoseconds; less than 0: for a caller that does not wait at all.
/// A caller that has waited is registered and sleeps until there are news, or asks again by a clock of its own and ignores the pause.
/// The answer is a pause in nanoseconds, more than 0.
#[cold]
pub(crate) fn pause_after(source: &Source, refusal: Error, waited: jlong) -> Result<jlong> {
    let pause = match u64::try_from(waited) {
        Ok(0) => source.patience(refusal, Duration::ZERO)?,
        Ok(waited) => source.patience_until_news(refusal, Duration::from_nanos(waited))?,
        Err(_) if refusal.code == Code::NotReady => refusal.retry_after.unwrap_or_default(),
        Err(_) => return Err(refusal),
    };
    Ok(nanos(pause))
}

fn nanos(pause: Duration) -> jlong {
    jlong::try_from(pause.as_nanos()).unwrap_or(jlong::MAX).max(1)
}

/// `long tryLease(long address, long buffer, long count, long enough, long waited)`: 0, and the lease is in the buffer;
/// or a pause in nanoseconds; or -1, and an exception is pending.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_tryLease(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    source: Held<'_, Source>,
    buffer: jlong,
    count: jlong,
    enough: jlong,
    waited: jlong,
) -> jlong {
    enter(&mut env, THROWN, || {
        let buffer = buffer as *mut LeaseBuffer;
        // SAFETY: Java's direct buffer of the size of a `LeaseBuffer`, which the calling thread alone uses; its bytes are zeros at first.
        let mut last = unsafe { (&raw const (*buffer).last).read_unaligned() };
        let leased = if count == 0 {
            source.try_lease_block(&mut last, enough as u64)
        } else {
            source.try_lease(count as u64, enough as u64)
        };
        let lease = match leased {
            Ok(lease) => lease,
            Err(refusal) => return pause_after(&source, refusal, waited),
        };
        let prefix = lease.prefix.as_str().as_bytes();
        let mut out = LeaseBuffer {
            lo: lease.lo,
            hi: lease.hi,
            leased_at: lease.leased_at,
            word: lease.word.as_ptr() as u64,
            width: u64::from(lease.width),
            prefix_len: prefix.len() as u64,
            prefix: [0; 64],
            last,
        };
        // A prefix has at most 64 bytes: the core's own buffer is no longer.
        out.prefix[..prefix.len()].copy_from_slice(prefix);
        // SAFETY: as above.
        unsafe { buffer.write_unaligned(out) };
        Ok(DONE)
    })
}

/// `void giveBack(long address, long buffer, long leasedAt, long lo, long hi)`: takes back numbers of what was leased last into the
/// buffer.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_giveBack(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    source: Held<'_, Source>,
    buffer: jlong,
    leased_at: jlong,
    lo: jlong,
    hi: jlong,
) {
    enter(&mut env, (), || {
        // SAFETY: as in `tryLease`.
        let last = unsafe { &raw mut (*(buffer as *mut LeaseBuffer)).last };
        // SAFETY: as above.
        let before = unsafe { last.read_unaligned() };
        // SAFETY: as above.
        unsafe { last.write_unaligned(LastBlock::default()) };
        source.give_back(leased_at as u64, lo as u64, hi as u64, before);
        Ok(())
    });
}

/// `long tryId(long address, long waited)`: an id; or a pause in nanoseconds, negated; or 0, and an exception is pending.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_tryId(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    source: Held<'_, Source>,
    waited: jlong,
) -> jlong {
    enter(&mut env, 0, || match source.try_next() {
        Ok(id) => Ok(id as jlong),
        Err(refusal) => pause_after(&source, refusal, waited).map(|pause| -pause),
    })
}

/// `long ask(long address, int count)`: a batch that is not complete yet; `forget` frees it.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_ask(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    source: Held<'_, Source>,
    count: jint,
) -> jlong {
    enter(&mut env, 0, || {
        let batch = source.ask(usize::try_from(count).unwrap_or(0))?;
        Ok(boxed(batch))
    })
}

/// `long pollOrRegister(long batch, long notifier, long token)`: as `poll`; the token comes to the notifier when there are news.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_pollOrRegister(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    batch: jlong,
    notifier: Held<'_, Notifier>,
    token: jlong,
) -> jlong {
    enter(&mut env, THROWN, || {
        // SAFETY: as in `poll`.
        let pause = unsafe { &mut *(batch as *mut Pending) }.poll_or_register(&notifier, token as u64)?;
        Ok(pause.map_or(DONE, nanos))
    })
}

/// `long poll(long batch)`: 0 when it is complete; or a pause in nanoseconds; or -1, and an exception is pending.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_poll(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    batch: jlong,
) -> jlong {
    enter(&mut env, THROWN, || {
        // SAFETY: from `ask`, in the hands of the one thread that asked.
        let pause = unsafe { &mut *(batch as *mut Pending) }.poll()?;
        Ok(pause.map_or(DONE, nanos))
    })
}

/// `void collect(long batch, long[] out)`: the ids of a complete batch, as many as `out` holds. Frees it.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_collect<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    batch: jlong,
    out: JLongArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        // SAFETY: from `ask`; Java does not use it after this call, which is its last or `forget` is.
        let batch = unsafe { Box::from_raw(batch as *mut Pending) };
        let mut ids = vec![0; out.len(env)?];
        batch.write(&mut ids);
        let ids: Vec<jlong> = ids.into_iter().map(|id| id as jlong).collect();
        out.set_region(env, 0, &ids)?;
        Ok(())
    });
}

/// `void forget(long batch)`: frees a batch that was given up.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_forget(mut env: EnvUnowned<'_>, _: JObject<'_>, batch: jlong) {
    enter(&mut env, (), || {
        // SAFETY: as in `collect`.
        drop(unsafe { Box::from_raw(batch as *mut Pending) });
        Ok(())
    });
}

/// `String parse(long address, byte[] text)`: the parts as rows.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_parse<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
    text: JByteArray<'local>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let text = text_in(env, &text)?;
        let parts = source.parse_text(&text)?;
        parts_out(env, &parts)
    })
}

/// `String parseNumber(long address, byte[] digits)`: the same for an id that is a number in Java.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_parseNumber<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
    digits: JByteArray<'local>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let digits = text_in(env, &digits)?;
        let parts = source.parse_number(&digits)?;
        parts_out(env, &parts)
    })
}

/// Parts as rows.
pub(crate) fn parts_out<'local>(
    env: &mut Env<'local>,
    parts: &Parts,
) -> std::result::Result<JString<'local>, CallError> {
    let mut fields = parts.fields();
    if let Some(ms) = parts.time_ms {
        fields.push(("time_ms", ms.to_string()));
    }
    text_out(env, &rows_out(fields))
}

/// `String stats(long address)`: the figures as rows; a figure that is not known has none.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_stats<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let stats = source.stats()?;
        let figures = stats.fields().filter_map(|figure| Some((figure.name, figure.value?.to_string())));
        text_out(env, &rows_out(figures))
    })
}

/// `String facts(long address)`: label, kind, order and block, and every setting, as rows.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_facts<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let kind = match source.kind() {
            Kind::Snowflake => "snowflake",
            Kind::Serial => "serial",
            Kind::Business => "business",
            _ => "segment",
        };
        let mut facts = vec![
            ("label", source.label().to_owned()),
            ("kind", kind.to_owned()),
            ("by_thread", source.by_thread().to_string()),
            ("block", source.block().to_string()),
            ("expires", source.expires().to_string()),
            ("counts", source.counts().to_string()),
        ];
        facts.extend(source.settings());
        text_out(env, &rows_out(facts))
    })
}

/// `String form(long address)`: how an id is written as text, as rows.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_form<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let (digits, width, prefix) = source.text_form();
        let width = width.to_string();
        text_out(env, &rows_out([("digits", digits), ("width", &*width), ("prefix", prefix)]))
    })
}

/// `void refuse(long address)`: throws what a verb of numbers answers on a source of texts.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_refuse(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    source: Held<'_, Source>,
) {
    enter(&mut env, (), || source.try_next().map(|_| ()));
}

/// `String refusalOfKeys(long address, byte[] table, long highest, long from)`: why ids would be keys that a table has; null: none would.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_refusalOfKeys<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
    table: JByteArray<'local>,
    highest: jlong,
    from: jlong,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let table = text_in(env, &table)?;
        match source.refusal_of_keys(&table, highest as u64, from as u64)? {
            Some(refusal) => text_out(env, &refusal),
            None => Ok(JString::null()),
        }
    })
}
