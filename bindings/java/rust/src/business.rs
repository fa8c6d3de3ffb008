//! Natives of `io.keymill.SourceBox` for business ids: the verbs that take a key.

use jni::objects::{JByteArray, JObject, JString};
use jni::sys::{jboolean, jint, jlong};
use jni::{Env, EnvUnowned};
use keymill::binding::Pending;
use keymill::{Gene, Result, Source};

use crate::call::{CallError, enter, enter_with};
use crate::held::{Held, boxed};
use crate::source::{DONE, THROWN, parts_out, pause_after};

/// Keys of so many bytes are read without memory of their own.
const SHORT: usize = 256;

/// The gene of a text key.
fn gene_in(env: &Env<'_>, key: &JByteArray<'_>) -> std::result::Result<Gene, CallError> {
    let len = key.len(env)?;
    if len > SHORT {
        return Ok(Gene::of(env.convert_byte_array(key)?.as_slice())?);
    }
    let mut signed = [0_i8; SHORT];
    key.get_region(env, 0, &mut signed[..len])?;
    Ok(Gene::of(&signed.map(i8::cast_unsigned)[..len])?)
}

/// An id; or a pause in nanoseconds, negated.
fn try_id(source: &Source, gene: Gene, waited: jlong) -> Result<jlong> {
    match source.try_next_of(gene) {
        Ok(id) => Ok(id as jlong),
        Err(refusal) => pause_after(source, refusal, waited).map(|pause| -pause),
    }
}

/// `long tryIdFor(long address, long key, long waited)`: an id; or a pause in nanoseconds, negated; or 0, and an exception is
/// pending.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_tryIdFor(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    source: Held<'_, Source>,
    key: jlong,
    waited: jlong,
) -> jlong {
    enter(&mut env, 0, || try_id(&source, Gene::of_number(key as u64), waited))
}

/// `long tryIdForText(long address, byte[] key, long waited)`: as `tryIdFor`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_tryIdForText<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
    key: JByteArray<'local>,
    waited: jlong,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let gene = gene_in(env, &key)?;
        Ok(try_id(&source, gene, waited)?)
    })
}

/// `long tryWide(long address, long key, byte[] text, long waited, byte[] out)`: 0, and the 16 bytes of the id are in `out`; or a
/// pause in nanoseconds; or -1, and an exception is pending. The key is `text` unless that is null.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_tryWide<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
    key: jlong,
    text: JByteArray<'local>,
    waited: jlong,
    out: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, THROWN, |env| {
        let gene = gene_of(env, key, &text)?;
        match source.try_next_wide_of(gene) {
            Ok(id) => {
                out.set_region(env, 0, &id.to_be_bytes().map(u8::cast_signed))?;
                Ok(DONE)
            }
            Err(refusal) => Ok(pause_after(&source, refusal, waited)?),
        }
    })
}

/// The gene of the text, or of the number where there is no text.
fn gene_of(env: &Env<'_>, key: jlong, text: &JByteArray<'_>) -> std::result::Result<Gene, CallError> {
    if text.is_null() { Ok(Gene::of_number(key as u64)) } else { gene_in(env, text) }
}

/// `long askFor(long address, long key, byte[] text, int count, boolean wide)`: a batch that is not complete yet; `forget` frees
/// it. The key is `text` unless that is null.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_askFor<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
    key: jlong,
    text: JByteArray<'local>,
    count: jint,
    wide: jboolean,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let gene = gene_of(env, key, &text)?;
        let count = usize::try_from(count).unwrap_or(0);
        let batch = if wide { source.ask_wide_of(gene, count) } else { source.ask_of(gene, count) }?;
        Ok(boxed(batch))
    })
}

/// `void collectWide(long batch, byte[] out)`: the ids of a complete batch, 16 bytes each, as many as `out` holds. Frees it.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_collectWide<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    batch: jlong,
    out: JByteArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        // SAFETY: from `askFor`; Java does not use it after this call, which is its last or `forget` is.
        let batch = unsafe { Box::from_raw(batch as *mut Pending) };
        let mut ids = vec![0; out.len(env)? / 16];
        batch.write_wide(&mut ids);
        let bytes: Vec<i8> = ids.into_iter().flat_map(|id| id.to_be_bytes().map(u8::cast_signed)).collect();
        out.set_region(env, 0, &bytes)?;
        Ok(())
    });
}

/// `String parseBytes(long address, byte[] id)`: the parts of an id of 8 or 16 bytes as rows.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_parseBytes<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    source: Held<'_, Source>,
    id: JByteArray<'local>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let bytes = env.convert_byte_array(&id)?;
        let parts = source.parse_bytes(&bytes)?;
        parts_out(env, &parts)
    })
}
