//! Natives of `io.keymill.MillBox`: the verbs of a mill.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JObject, JString};
use jni::sys::{jboolean, jlong};
use keymill::{Change, Mill, Result, Source};

use crate::call::{enter, enter_with, rows_out, text_in, text_out};
use crate::router::boxed;

/// A mill and the sources Java asked it for: one box per identity, so that Java keeps one cursor for each. They are
/// freed together, when nothing in Java can reach the mill any more.
struct MillBox {
    mill: Mill,
    sources: Mutex<Sources>,
}

#[derive(Default)]
struct Sources {
    by_identity: HashMap<u64, Box<Source>>,
}

/// # Safety
/// `address` came from `open` and was not freed; the reference does not outlive the native call.
unsafe fn held<'a>(address: jlong) -> &'a MillBox {
    // SAFETY: the contract; Java frees a box only when no object can call with it any more.
    unsafe { &*(address as *const MillBox) }
}

/// `static long open(byte[] config)`; null is the default mill.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_open<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    config: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        keymill::binding::quiet_panics();
        let mill =
            if config.is_null() { Mill::open_default()? } else { Mill::open(&text_in(env, &config)?)? };
        Ok(Box::into_raw(Box::new(MillBox { mill, sources: Mutex::default() })) as jlong)
    })
}

/// `static void free(long address)`: nothing in Java can reach the mill any more.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_free(mut env: EnvUnowned<'_>, _: JClass<'_>, address: jlong) {
    enter(&mut env, (), || {
        // SAFETY: from `open`, freed once: the reference queue hands a box out once.
        drop(unsafe { Box::from_raw(address as *mut MillBox) });
        Ok(())
    });
}

/// `void close(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_close(mut env: EnvUnowned<'_>, _: JObject<'_>, address: jlong) {
    enter(&mut env, (), || {
        // SAFETY: a native of the box's owner.
        unsafe { held(address) }.mill.close();
        Ok(())
    });
}

/// `boolean isClosed(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_isClosed(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    address: jlong,
) -> jboolean {
    // SAFETY: as above.
    enter(&mut env, true, || Ok(unsafe { held(address) }.mill.is_closed()))
}

/// `long source(long address, byte[] spec)`: the same address for the same source.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_source<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    address: jlong,
    spec: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let spec = text_in(env, &spec)?;
        // SAFETY: as above.
        let held = unsafe { held(address) };
        let source = held.mill.source(&spec)?;
        let mut sources = held.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let source = sources.by_identity.entry(source.identity()).or_insert_with(|| Box::new(source));
        Ok(std::ptr::from_ref::<Source>(source) as jlong)
    })
}

/// `long router(long address, byte[] name)`: a box of `io.keymill.RouterBox`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_router<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    address: jlong,
    name: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let name = text_in(env, &name)?;
        // SAFETY: as above.
        Ok(boxed(unsafe { held(address) }.mill.router(&name)?))
    })
}

/// `String metrics(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_metrics<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    address: jlong,
) -> JString<'local> {
    // SAFETY: as above.
    enter_with(&mut env, JString::null(), |env| text_out(env, &unsafe { held(address) }.mill.metrics()))
}

/// `String events(long address)`: one event a row: its kind, and the line.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_events<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    address: jlong,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        // SAFETY: as above.
        let events = unsafe { held(address) }.mill.events();
        let rows: Vec<_> = events.iter().map(|event| (event.kind.name(), event.to_string())).collect();
        text_out(env, &rows_out(rows))
    })
}

/// `String store(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_store<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    address: jlong,
) -> JString<'local> {
    // SAFETY: as above.
    enter_with(&mut env, JString::null(), |env| text_out(env, &unsafe { held(address) }.mill.store()))
}

/// `String init(long address, byte[] specs, boolean dryRun)`: specs one a line; statements as rows.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_init<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    address: jlong,
    specs: JByteArray<'local>,
    dry_run: jboolean,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let specs = text_in(env, &specs)?;
        let specs: Vec<&str> = specs.lines().collect();
        let change = if dry_run { Change::DryRun } else { Change::Apply };
        // SAFETY: as above.
        let statements = unsafe { held(address) }.mill.init(&specs, change)?;
        text_out(env, &rows_out(statements.iter().map(|statement| ("statement", statement))))
    })
}

/// `void advanceClock(long address, long ms)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_advanceClock(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    address: jlong,
    ms: jlong,
) {
    enter(&mut env, (), || -> Result<()> {
        let ms = u64::try_from(ms).map_err(|_| {
            keymill::Error::argument(format!("a clock cannot advance by {ms} ms; setClock moves it back"))
        })?;
        // SAFETY: as above.
        unsafe { held(address) }.mill.advance_clock(ms)
    });
}

/// `void setClock(long address, long wallMs)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_setClock(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    address: jlong,
    wall_ms: jlong,
) {
    // SAFETY: as above.
    enter(&mut env, (), || unsafe { held(address) }.mill.set_clock(wall_ms));
}
