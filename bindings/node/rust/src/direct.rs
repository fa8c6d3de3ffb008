//! Ids straight from the core by the cheapest call there is: a function made for one source.
//!
//! For ids that do not follow each other, and where several contexts share a source. It bypasses the macros of napi: converting arguments, and
//! above all proving that an opaque value is ours, costs several times the id.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use keymill::Source;
use napi::bindgen_prelude::{External, FromNapiValue, Unknown};
use napi::{Env, sys};
use napi_derive::napi;

use crate::source::SourceBox;

/// The next id of the source that the function was made for.
fn next_of(env: sys::napi_env, info: sys::napi_callback_info) -> Option<u64> {
    let mut data = ptr::null_mut();
    // SAFETY: called by the engine with its own values; only the data is asked for.
    unsafe {
        sys::napi_get_cb_info(env, info, ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), &raw mut data)
    };
    // SAFETY: the data of `function`, which lives as long as the function.
    let source = unsafe { &*data.cast::<Source>() };
    catch_unwind(AssertUnwindSafe(|| source.try_next())).ok()?.ok()
}

/// The next id, or `undefined`: then `next_id` says why.
extern "C" fn next(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    let mut id = ptr::null_mut();
    if let Some(number) = next_of(env, info) {
        // SAFETY: the engine's own environment.
        unsafe { sys::napi_create_bigint_uint64(env, number, &raw mut id) };
    }
    id
}

/// The same as a number, for sources whose ids fit one.
extern "C" fn next_number(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    let mut id = ptr::null_mut();
    if let Some(number) = next_of(env, info) {
        // SAFETY: as above.
        unsafe { sys::napi_create_double(env, number as f64, &raw mut id) };
    }
    id
}

extern "C" fn release(_: sys::napi_env, source: *mut c_void, _: *mut c_void) {
    // SAFETY: `function` made this pointer of a box, and the engine calls this once.
    drop(unsafe { Box::from_raw(source.cast::<Source>()) });
}

/// A function without arguments that answers with the next id if one is in memory, as a number or a BigInt; else
/// `undefined`.
#[napi]
pub fn direct_next<'env>(
    env: &'env Env,
    source: &External<SourceBox>,
    number: bool,
) -> Option<Unknown<'env>> {
    function(env, &source.source, if number { next_number } else { next })
}

/// What the engine calls.
type Entry = extern "C" fn(sys::napi_env, sys::napi_callback_info) -> sys::napi_value;

/// A function made for one source, which is its data.
pub fn function<'env>(env: &'env Env, source: &Source, entry: Entry) -> Option<Unknown<'env>> {
    let data = Box::into_raw(Box::new(source.clone())).cast::<c_void>();
    let mut function = ptr::null_mut();
    // SAFETY: plain pointers; the finalizer takes the box when the function is collected.
    let made = unsafe {
        sys::napi_create_function(env.raw(), ptr::null(), 0, Some(entry), data, &raw mut function)
            == sys::Status::napi_ok
            && sys::napi_add_finalizer(
                env.raw(),
                function,
                data,
                Some(release),
                ptr::null_mut(),
                ptr::null_mut(),
            ) == sys::Status::napi_ok
    };
    if !made {
        // The function, if there is one, never reaches JavaScript, so it is never called.
        release(env.raw(), data, ptr::null_mut());
        return None;
    }
    // SAFETY: a value of this environment, just made.
    unsafe { Unknown::from_napi_value(env.raw(), function) }.ok()
}
