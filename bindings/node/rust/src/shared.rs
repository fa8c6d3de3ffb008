//! The mill that lazy sources of all threads take from: the shared mill; the default mill while none is shared.
//!
//! A thread that did not share the mill itself uses it as a guest: it opens sources, and keeps nothing open. When the holder that
//! was shared closes, guests find it closed, also where other holders keep the mill open.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use napi::bindgen_prelude::{External, Unknown};
use napi::{Env, Result};
use napi_derive::napi;

use crate::errors::{Thrown, enter};
use crate::holder::{GENERATION, SHARED, rise};
use crate::mill::{MillBox, Variables, environment};
use crate::{registry, words};

/// Shares a mill with all threads; none: the default one again. Answers with the generation.
#[napi]
pub fn share_mill(mill: Option<&External<MillBox>>) -> u32 {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    *shared = mill.map(|mill| mill.holder().clone());
    rise()
}

/// The shared mill as a guest has it; null where none is shared.
#[napi]
pub fn shared_mill() -> Option<External<MillBox>> {
    SHARED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .as_ref()
        .map(|holder| MillBox::guest(holder.clone()))
}

/// Whether the program has named its mill: it shares one, or `KEYMILL_CONFIG` is set.
#[napi]
pub fn is_mill_named(variables: Option<Variables>) -> bool {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner).is_some() || environment(variables).mill.is_some()
}

/// Whether a mill is shared that was not closed.
#[napi]
pub fn is_shared_open() -> bool {
    let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    shared.is_some_and(|holder| MillBox::is_open(&holder))
}

/// The default mill, which all threads share.
#[napi]
pub fn default_mill(variables: Option<Variables>) -> Result<External<MillBox>, Thrown> {
    enter(|| registry::open_default(&environment(variables)).map(MillBox::new))
}

/// The word that rises when another mill is shared, as a buffer of 4 bytes; null where the runtime refuses views.
#[napi]
pub fn share_word(env: &Env) -> Option<Unknown<'_>> {
    let data = std::ptr::from_ref(&GENERATION).cast_mut().cast();
    // SAFETY: the word is static.
    unsafe { words::view(env, data, 4, ()) }
}

/// What the word reads.
#[napi]
pub fn share_generation() -> u32 {
    // ordering: SeqCst — as the rise.
    GENERATION.load(Ordering::SeqCst)
}
