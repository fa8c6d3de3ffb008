//! Natives of `io.keymill.Native`: what belongs to no mill.

use jni::EnvUnowned;
use jni::objects::{JByteArray, JByteBuffer, JClass, JString};
use jni::sys::jlong;
use keymill::Code;

use crate::call::{enter_with, rows_out, text_in, text_out};

/// `String version()`
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_version<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| text_out(env, keymill::VERSION))
}

/// `String codes()`: number and name of every code, for the test that compares them with the enum.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_codes<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let codes = Code::ALL.iter().map(|code| (code.number().to_string(), code.name()));
        // Java's list has a name for success, as C's.
        let rows: Vec<_> = std::iter::once(("0".to_owned(), "OK")).chain(codes).collect();
        text_out(env, &rows_out(rows))
    })
}

/// Texts, each ended by a byte that UTF-8 never holds.
fn ended(bytes: &[u8]) -> Vec<String> {
    let parts = bytes.split_inclusive(|b| *b == 0xFF);
    parts.map(|part| String::from_utf8_lossy(&part[..part.len() - 1]).into_owned()).collect()
}

/// `String spec(byte[] kind, byte[] name, byte[] options)`: the spec string; parts of the name, and option and value by
/// turns, each ended by a byte that UTF-8 never holds.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_spec<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    kind: JByteArray<'local>,
    name: JByteArray<'local>,
    options: JByteArray<'local>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let kind = text_in(env, &kind)?;
        let name = ended(&env.convert_byte_array(&name)?);
        let options = ended(&env.convert_byte_array(&options)?);
        let name: Vec<&str> = name.iter().map(String::as_str).collect();
        let options: Vec<(&str, &str)> =
            options.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        text_out(env, &keymill::spec_string(&kind, &name, &options))
    })
}

/// `String storeOf(byte[] url, byte[] properties)`: the mill in the application's database; names and values by turns, each
/// ended by a byte that UTF-8 never holds.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_storeOf<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    url: JByteArray<'local>,
    properties: JByteArray<'local>,
) -> JString<'local> {
    enter_with(&mut env, JString::null(), |env| {
        let url = text_in(env, &url)?;
        let properties = ended(&env.convert_byte_array(&properties)?);
        let properties: Vec<(&str, &str)> =
            properties.chunks_exact(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        text_out(env, &keymill::store_of(&url, &properties)?)
    })
}

/// `long address(ByteBuffer direct)`: where a direct buffer lies.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_address<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    buffer: JByteBuffer<'local>,
) -> jlong {
    enter_with(&mut env, 0, |env| Ok(env.get_direct_buffer_address(&buffer)? as jlong))
}

/// `ByteBuffer word(long address)`: a view of a revocation word, which is readable for ever.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_word<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    address: jlong,
) -> JByteBuffer<'local> {
    enter_with(&mut env, JByteBuffer::null(), |env| {
        // SAFETY: the address came from a lease: an aligned word on a page that is never unmapped. Java only reads it.
        Ok(unsafe { env.new_direct_byte_buffer(address as *mut u8, size_of::<u64>()) }?)
    })
}
