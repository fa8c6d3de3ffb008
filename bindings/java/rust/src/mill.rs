//! Natives of `io.keymill.MillBox`: the verbs of a mill.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JObject, JString};
use jni::sys::{jboolean, jlong};
use keymill::binding::source_in_zone;
use keymill::{Change, Mill, Result, Source};

use crate::call::{enter, enter_with, rows_out, text_in, text_out};
use crate::held::{Held, boxed};

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
        Ok(boxed(MillBox { mill, sources: Mutex::default() }))
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
extern "system" fn Java_io_keymill_MillBox_close(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    mill: Held<'_, MillBox>,
) {
    enter(&mut env, (), || {
        mill.mill.close();
        Ok(())
    });
}

/// `boolean isClosed(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_isClosed(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    mill: Held<'_, MillBox>,
) -> jboolean {
    enter(&mut env, true, || Ok(mill.mill.is_closed()))
}

/// `long source(long address, byte[] spec, byte[] zone)`: the same address for the same source. `zone` is what `zone=local` means.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_source<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    mill: Held<'_, MillBox>,
    spec: JByteArray<'local>,
    zone: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let (spec, zone) = (text_in(env, &spec)?, text_in(env, &zone)?);
        let source = source_in_zone(&mill.mill, &spec, &zone)?;
        let mut sources = mill.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let source = sources.by_identity.entry(source.identity()).or_insert_with(|| Box::new(source));
        Ok(std::ptr::from_ref::<Source>(source) as jlong)
    })
}

/// `long router(long address, byte[] name)`: a box of `io.keymill.RouterBox`.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_router<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    mill: Held<'_, MillBox>,
    name: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let name = text_in(env, &name)?;
        let router = mill.mill.router(&name)?;
        // `System.exit` and a signal end the virtual machine by the C library's `exit`.
        keymill::binding::close_at_exit(&mill.mill);
        Ok(boxed(router))
    })
}

/// `String metrics(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_metrics<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    mill: Held<'_, MillBox>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| text_out(env, &mill.mill.metrics()))
}

/// `String events(long address)`: one event a row: its kind, and the line.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_events<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    mill: Held<'_, MillBox>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let events = mill.mill.events();
        let rows: Vec<_> = events.iter().map(|event| (event.kind.name(), event.to_string())).collect();
        text_out(env, &rows_out(rows))
    })
}

/// `String store(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_store<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    mill: Held<'_, MillBox>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| text_out(env, &mill.mill.store()))
}

/// `String init(long address, byte[] specs, boolean dryRun)`: specs one a line; statements as rows.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_init<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    mill: Held<'_, MillBox>,
    specs: JByteArray<'local>,
    dry_run: jboolean,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let specs = text_in(env, &specs)?;
        let specs: Vec<&str> = specs.lines().collect();
        let change = if dry_run { Change::DryRun } else { Change::Apply };
        let statements = mill.mill.init(&specs, change)?;
        text_out(env, &rows_out(statements.iter().map(|statement| ("statement", statement))))
    })
}

/// `void advanceClock(long address, long ms)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_advanceClock(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    mill: Held<'_, MillBox>,
    ms: jlong,
) {
    enter(&mut env, (), || -> Result<()> {
        let ms = u64::try_from(ms).map_err(|_| {
            keymill::Error::argument(format!("a clock cannot advance by {ms} ms; setClock moves it back"))
        })?;
        mill.mill.advance_clock(ms)
    });
}

/// `void setClock(long address, long wallMs)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_MillBox_setClock(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    mill: Held<'_, MillBox>,
    wall_ms: jlong,
) {
    enter(&mut env, (), || mill.mill.set_clock(wall_ms));
}
