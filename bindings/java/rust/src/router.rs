//! Natives of `io.keymill.RouterBox`: genes and routers.

use jni::EnvUnowned;
use jni::objects::{JByteArray, JClass, JLongArray, JObject, JString};
use jni::sys::{jboolean, jint, jlong};
use keymill::{Gene, Result, Route, Router};

use crate::call::{CallError, enter, enter_with, text_in, text_out};
use crate::held::{Held, boxed};

/// Writes a route into an array of the caller's: gene, version, and the numbers of the names, 16 bits each: the shard, the shard that
/// is read, and the second shard to write to with bit 48 set, bit 49 where that one may serve ids of the key too, and bit 50 where the route
/// is paused.
fn answer(
    env: &mut jni::Env<'_>,
    route: &Route<'_>,
    out: &JLongArray<'_>,
) -> std::result::Result<(), CallError> {
    let (shard, read, mirror) = route.numbers();
    let mirror = mirror.map_or(0, |mirror| 1 << 48 | jlong::from(mirror) << 32);
    let also = jlong::from(route.also.is_some()) << 49;
    let paused = jlong::from(route.paused) << 50;
    let names = jlong::from(shard) | jlong::from(read) << 16 | mirror | also | paused;
    out.set_region(env, 0, &[jlong::from(route.gene.get()), route.version as jlong, names])?;
    Ok(())
}

/// `static int gene(long key)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_gene(
    mut env: EnvUnowned<'_>,
    _: JClass<'_>,
    key: jlong,
) -> jint {
    enter(&mut env, 0, || Ok(jint::from(Gene::of_number(key as u64).get())))
}

/// `static int geneOfText(byte[] key)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_geneOfText<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    key: JByteArray<'local>,
) -> jint {
    enter_with(&mut env, 0, |env| {
        let key = env.convert_byte_array(&key)?;
        Ok(jint::from(Gene::of(&key[..])?.get()))
    })
}

/// `static long open(byte[] file)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_open<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| Ok(boxed(Router::open(text_in(env, &file)?)?)))
}

/// `static long fromText(byte[] table)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_fromText<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    table: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| Ok(boxed(Router::from_text(&text_in(env, &table)?)?)))
}

/// `static void free(long address)`: nothing in Java can reach the router any more.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_free(mut env: EnvUnowned<'_>, _: JClass<'_>, address: jlong) {
    enter(&mut env, (), || {
        // SAFETY: from `boxed`, freed once: the reference queue hands a box out once.
        drop(unsafe { Box::from_raw(address as *mut Router) });
        Ok(())
    });
}

/// `boolean load(long address, byte[] table)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_load<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'_, Router>,
    table: JByteArray<'local>,
) -> jboolean {
    enter_with(&mut env, false, |env| Ok(router.load(&text_in(env, &table)?)?))
}

/// A native that writes a route.
fn routed<'local>(
    env: &mut EnvUnowned<'local>,
    out: &JLongArray<'local>,
    ask: impl FnOnce() -> Result<Route<'local>>,
) {
    enter_with(env, (), |env| answer(env, &ask()?, out));
}

/// `void route(long address, long id, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_route<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'local, Router>,
    id: jlong,
    out: JLongArray<'local>,
) {
    routed(&mut env, &out, || router.get().route(id as u64));
}

/// `void routeBytes(long address, byte[] id, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_routeBytes<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'_, Router>,
    id: JByteArray<'local>,
    out: JLongArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let id = env.convert_byte_array(&id)?;
        let route = router.route_bytes(&id)?;
        answer(env, &route, &out)
    });
}

/// `void routeKey(long address, long key, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_routeKey<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'local, Router>,
    key: jlong,
    out: JLongArray<'local>,
) {
    routed(&mut env, &out, || router.get().route_key(key as u64));
}

/// `void routeText(long address, byte[] key, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_routeText<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'_, Router>,
    key: JByteArray<'local>,
    out: JLongArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let key = env.convert_byte_array(&key)?;
        let route = router.route_key(&key[..])?;
        answer(env, &route, &out)
    });
}

/// `void routeOrderNo(long address, byte[] orderNo, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_routeOrderNo<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'_, Router>,
    order_no: JByteArray<'local>,
    out: JLongArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let order_no = env.convert_byte_array(&order_no)?;
        let route = router.route_order_no(&order_no[..])?;
        answer(env, &route, &out)
    });
}

/// `void routeOrderNo8(long address, long orderNo, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_routeOrderNo8<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'local, Router>,
    order_no: jlong,
    out: JLongArray<'local>,
) {
    routed(&mut env, &out, || router.get().route_order_no(order_no as u64));
}

/// `void routeOrderNoText(long address, byte[] text, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_routeOrderNoText<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'_, Router>,
    text: JByteArray<'local>,
    out: JLongArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let text = text_in(env, &text)?;
        let route = router.route_order_no(&text)?;
        answer(env, &route, &out)
    });
}

/// `boolean isCurrent(long address, int gene, byte[] write, byte[] mirror)`: names, or null.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_isCurrent<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'_, Router>,
    gene: jint,
    write: JByteArray<'local>,
    mirror: JByteArray<'local>,
) -> jboolean {
    enter_with(&mut env, false, |env| {
        let name = |bytes: &JByteArray<'local>| {
            if bytes.is_null() { Ok(None) } else { text_in(env, bytes).map(Some) }
        };
        let (write, mirror) = (name(&write)?, name(&mirror)?);
        Ok(router.writes_to(gene as u16, write.as_deref(), mirror.as_deref()))
    })
}

/// `String name(long address, int number)`: a name of a shard.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_name<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    router: Held<'_, Router>,
    number: jint,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| text_out(env, router.name(number as u16)))
}

/// `long version(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_version(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    router: Held<'_, Router>,
) -> jlong {
    enter(&mut env, 0, || Ok(router.version() as jlong))
}

/// `long age(long address)`: milliseconds; -1: the table is not from a store.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_RouterBox_age(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    router: Held<'_, Router>,
) -> jlong {
    enter(&mut env, -1, || Ok(router.age().map_or(-1, |age| age.as_millis() as jlong)))
}
