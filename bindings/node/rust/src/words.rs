//! Words of Rust memory as JavaScript sees them: views, never copies.

use std::ffi::c_void;
use std::ptr;

use napi::bindgen_prelude::{FromNapiValue, Unknown};
use napi::{Env, sys};

/// Drops what keeps the memory of a view alive.
extern "C" fn release<T>(_: sys::napi_env, _: *mut c_void, keeper: *mut c_void) {
    // SAFETY: `view` made this pointer of a box of this type, and the engine calls this once.
    drop(unsafe { Box::from_raw(keeper.cast::<T>()) });
}

/// An `ArrayBuffer` over `len` bytes at `data`; `None` where the runtime refuses such buffers (Electron does). A copy in
/// its place, which is what the wrappers of napi make, would never show a revocation.
///
/// # Safety
/// `data` is readable while `keeper` lives.
pub unsafe fn view<T>(env: &Env, data: *mut c_void, len: usize, keeper: T) -> Option<Unknown<'_>> {
    let keeper = Box::into_raw(Box::new(keeper));
    let mut value = ptr::null_mut();
    // SAFETY: plain pointers; the engine owns `keeper` from here on if it says ok.
    let status = unsafe {
        sys::napi_create_external_arraybuffer(
            env.raw(),
            data,
            len,
            Some(release::<T>),
            keeper.cast(),
            &raw mut value,
        )
    };
    if status != sys::Status::napi_ok {
        // SAFETY: the engine did not take it.
        drop(unsafe { Box::from_raw(keeper) });
        return None;
    }
    // SAFETY: a value of this environment, just made.
    unsafe { Unknown::from_napi_value(env.raw(), value) }.ok()
}
