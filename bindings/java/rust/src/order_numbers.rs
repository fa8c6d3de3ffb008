//! Natives of `io.keymill.OrderNumbers`: order numbers.

use jni::objects::{JByteArray, JClass, JLongArray, JObject, JString};
use jni::sys::{jbyte, jint, jlong};
use jni::{Env, EnvUnowned};
use keymill::{Error, OrderNumbers};
use zeroize::Zeroizing;

use crate::call::{CallError, enter, enter_with, text_in, text_out};
use crate::held::{Held, boxed};

type Answer<T> = Result<T, CallError>;

/// The bytes of a key, and of an order number.
const KEY: usize = 32;
const ORDER_NO: usize = 16;

/// Writes bytes into an array of the caller's.
fn put(env: &mut Env<'_>, bytes: &[u8], out: &JByteArray<'_>) -> Answer<()> {
    let bytes: Vec<jbyte> = bytes.iter().map(|byte| byte.cast_signed()).collect();
    Ok(out.set_region(env, 0, &bytes)?)
}

/// The numbers of an array of the caller's.
fn longs(env: &mut Env<'_>, array: &JLongArray<'_>) -> Answer<Vec<u64>> {
    let mut values = vec![0; array.len(env)?];
    array.get_region(env, 0, &mut values)?;
    Ok(values.into_iter().map(jlong::cast_unsigned).collect())
}

/// Writes numbers into an array of the caller's.
fn put_longs(env: &mut Env<'_>, values: &[u64], out: &JLongArray<'_>) -> Answer<()> {
    let values: Vec<jlong> = values.iter().map(|value| value.cast_signed()).collect();
    Ok(out.set_region(env, 0, &values)?)
}

/// The id of 128 bits that 16 bytes are.
fn wide(env: &mut Env<'_>, id: &JByteArray<'_>) -> Answer<u128> {
    let bytes = env.convert_byte_array(id)?;
    match bytes.as_slice().try_into() {
        Ok(bytes) => Ok(u128::from_be_bytes(bytes)),
        Err(_) => {
            Err(Error::argument(format!("an id of 128 bits has 16 bytes, and this one {}", bytes.len()))
                .into())
        }
    }
}

/// `static long open(byte[] file, byte[] tenant, byte[] table)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_open<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: JByteArray<'local>,
    tenant: JByteArray<'local>,
    table: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let (tenant, table) = (text_in(env, &tenant)?, text_in(env, &table)?);
        Ok(boxed(OrderNumbers::open(text_in(env, &file)?, &tenant, &table)?))
    })
}

/// `static long fromEnv(byte[] tenant, byte[] table)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_fromEnv<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    tenant: JByteArray<'local>,
    table: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let (tenant, table) = (text_in(env, &tenant)?, text_in(env, &table)?);
        Ok(boxed(OrderNumbers::from_env(&tenant, &table)?))
    })
}

/// `static long fromKeys(byte[] versions, byte[] keys, byte sealWith, byte[] tenant, byte[] table)`: 32 bytes a key, which Java has looked at.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_fromKeys<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    versions: JByteArray<'local>,
    keys: JByteArray<'local>,
    seal_with: jbyte,
    tenant: JByteArray<'local>,
    table: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| {
        let (tenant, table) = (text_in(env, &tenant)?, text_in(env, &table)?);
        let (versions, keys) =
            (env.convert_byte_array(&versions)?, Zeroizing::new(env.convert_byte_array(&keys)?));
        let keys: Vec<(u8, &[u8])> = versions.into_iter().zip(keys.chunks(KEY)).collect();
        Ok(boxed(OrderNumbers::from_keys(&keys, seal_with.cast_unsigned(), &tenant, &table)?))
    })
}

/// `static void free(long address)`: nothing in Java can reach the keys any more.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_free(mut env: EnvUnowned<'_>, _: JClass<'_>, address: jlong) {
    enter(&mut env, (), || {
        // SAFETY: from `boxed`, freed once: the reference queue hands a box out once.
        drop(unsafe { Box::from_raw(address as *mut OrderNumbers) });
        Ok(())
    });
}

/// `long withVersion(long address, byte version)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_withVersion(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    numbers: Held<'_, OrderNumbers>,
    version: jbyte,
) -> jlong {
    enter(&mut env, 0, || numbers.with_version(version.cast_unsigned()).map(boxed))
}

/// `int version(long address)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_version(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    numbers: Held<'_, OrderNumbers>,
) -> jint {
    enter(&mut env, 0, || Ok(jint::from(numbers.version())))
}

/// `long seal8(long address, long id)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_seal8(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    numbers: Held<'_, OrderNumbers>,
    id: jlong,
) -> jlong {
    enter(&mut env, 0, || numbers.seal8(id.cast_unsigned()).map(u64::cast_signed))
}

/// `long unseal8(long address, long orderNo)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_unseal8(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    numbers: Held<'_, OrderNumbers>,
    order_no: jlong,
) -> jlong {
    enter(&mut env, 0, || numbers.unseal8(order_no.cast_unsigned()).map(u64::cast_signed))
}

/// `void seal(long address, long id, byte[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_seal<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    id: jlong,
    out: JByteArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let sealed = numbers.seal(id.cast_unsigned())?.map(u8::cast_signed);
        Ok(out.set_region(env, 0, &sealed)?)
    });
}

/// `long unseal(long address, byte[] orderNo)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_unseal<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    order_no: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| Ok(numbers.unseal(&env.convert_byte_array(&order_no)?)?.cast_signed()))
}

/// `void sealWide(long address, byte[] id, byte[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_sealWide<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    id: JByteArray<'local>,
    out: JByteArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let sealed = numbers.seal_wide(wide(env, &id)?)?;
        put(env, &sealed, &out)
    });
}

/// `void unsealWide(long address, byte[] orderNo, byte[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_unsealWide<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    order_no: JByteArray<'local>,
    out: JByteArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let id = numbers.unseal_wide(&env.convert_byte_array(&order_no)?)?;
        put(env, &id.to_be_bytes(), &out)
    });
}

/// `void sealAll(long address, long[] ids, byte[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_sealAll<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    ids: JLongArray<'local>,
    out: JByteArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let sealed = numbers.seal_all(&longs(env, &ids)?)?;
        put(env, sealed.as_flattened(), &out)
    });
}

/// `void unsealAll(long address, byte[] orderNos, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_unsealAll<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    order_nos: JByteArray<'local>,
    out: JLongArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let order_nos = env.convert_byte_array(&order_nos)?;
        let (order_nos, _) = order_nos.as_chunks::<ORDER_NO>();
        put_longs(env, &numbers.unseal_all(order_nos)?, &out)
    });
}

/// `void seal8All(long address, long[] given, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_seal8All<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    given: JLongArray<'local>,
    out: JLongArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let answer = numbers.seal8_all(&longs(env, &given)?)?;
        put_longs(env, &answer, &out)
    });
}

/// `void unseal8All(long address, long[] given, long[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_unseal8All<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    given: JLongArray<'local>,
    out: JLongArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let answer = numbers.unseal8_all(&longs(env, &given)?)?;
        put_longs(env, &answer, &out)
    });
}

/// `String sealText(long address, long id)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_sealText<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    id: jlong,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| text_out(env, &numbers.seal_text(id.cast_unsigned())?))
}

/// `String seal8Text(long address, long id)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_seal8Text<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    id: jlong,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| text_out(env, &numbers.seal8_text(id.cast_unsigned())?))
}

/// `long unsealText(long address, byte[] text)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_unsealText<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    text: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| Ok(numbers.unseal_text(&text_in(env, &text)?)?.cast_signed()))
}

/// `long unseal8Text(long address, byte[] text)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_unseal8Text<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    text: JByteArray<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| Ok(numbers.unseal8_text(&text_in(env, &text)?)?.cast_signed()))
}

/// `String sealWideText(long address, byte[] id)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_sealWideText<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    id: JByteArray<'local>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let text = numbers.seal_wide_text(wide(env, &id)?)?;
        text_out(env, &text)
    })
}

/// `void unsealWideText(long address, byte[] text, byte[] out)`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_OrderNumbers_unsealWideText<'local>(
    mut env: EnvUnowned<'local>,
    _: JObject<'local>,
    numbers: Held<'_, OrderNumbers>,
    text: JByteArray<'local>,
    out: JByteArray<'local>,
) {
    enter_with(&mut env, (), |env| {
        let id = numbers.unseal_wide_text(&text_in(env, &text)?)?;
        put(env, &id.to_be_bytes(), &out)
    });
}
