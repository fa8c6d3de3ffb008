//! Business ids: the verbs that take a key, or the gene that TypeScript made of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use keymill::{Gene, Source};
use napi::bindgen_prelude::{BigInt, BigUint64ArraySlice, Either, External, Unknown};
use napi::{Env, Result, sys};
use napi_derive::napi;

use crate::batch::BatchBox;
use crate::errors::{Thrown, enter};
use crate::source::{SourceBox, pause_after};

/// One id for a key with this gene, or the pause after which to ask again.
#[napi]
pub fn next_for(
    source: &External<SourceBox>,
    gene: u16,
    waited: f64,
    registered: Option<bool>,
) -> Result<Either<u64, f64>, Thrown> {
    enter(|| match source.source.try_next_of(gene.into()) {
        Ok(id) => Ok(Either::A(id)),
        Err(refusal) => pause_after(&source.source, refusal, waited, registered).map(Either::B),
    })
}

/// One id of 128 bits for a key with this gene, or the pause after which to ask again.
#[napi]
pub fn next_wide_for(
    source: &External<SourceBox>,
    gene: u16,
    waited: f64,
    registered: Option<bool>,
) -> Result<Either<BigInt, f64>, Thrown> {
    enter(|| match source.source.try_next_wide_of(gene.into()) {
        Ok(id) => Ok(Either::A(BigInt::from(id))),
        Err(refusal) => pause_after(&source.source, refusal, waited, registered).map(Either::B),
    })
}

/// Begins a batch of `count` ids for a key with this gene.
#[napi]
pub fn ask_for(source: &External<SourceBox>, gene: u16, count: f64) -> Result<External<BatchBox>, Thrown> {
    let (source, gene, count) = (&source.source, gene.into(), count as usize);
    enter(|| {
        let batch =
            if source.is_wide() { source.ask_wide_of(gene, count) } else { source.ask_of(gene, count) };
        Ok(BatchBox::of(batch?))
    })
}

/// Writes the ids of a complete batch of 128 bits: two words each, the upper one first.
#[napi]
pub fn write_wide_batch(batch: &External<BatchBox>, mut out: BigUint64ArraySlice) -> Result<(), Thrown> {
    enter(|| {
        // SAFETY: a private array of `ts/business.ts`; no JavaScript runs meanwhile.
        let out = unsafe { out.as_mut() };
        let mut ids = vec![0; out.len() / 2];
        batch.handed_out()?.write_wide(&mut ids);
        for (pair, id) in out.as_chunks_mut::<2>().0.iter_mut().zip(ids) {
            *pair = [(id >> 64) as u64, id as u64];
        }
        Ok(())
    })
}

/// Keys of fewer bytes are read without memory of their own.
const SHORT: usize = 512;

/// U+FFFD in UTF-8: what half of a surrogate pair becomes on its way here.
const REPLACED: &[u8] = "\u{FFFD}".as_bytes();

/// The gene of a key as it stands in the engine; `None` for what `ts/router.ts` has to look at.
fn quick_gene(env: sys::napi_env, key: sys::napi_value) -> Option<Gene> {
    let ok = |status| status == sys::Status::napi_ok;
    let mut kind = 0;
    // SAFETY: the engine's own environment and value; so below.
    if !ok(unsafe { sys::napi_typeof(env, key, &raw mut kind) }) {
        return None;
    }
    match kind {
        sys::ValueType::napi_number => {
            const SAFE: f64 = 9_007_199_254_740_991.0;
            let mut number = 0.0;
            // SAFETY: as above.
            let read = ok(unsafe { sys::napi_get_value_double(env, key, &raw mut number) });
            (read && number.fract() == 0.0 && number.abs() <= SAFE)
                .then(|| Gene::of_number((number as i64).cast_unsigned()))
        }
        sys::ValueType::napi_bigint => {
            let (mut signed, mut unsigned, mut exact) = (0, 0, false);
            // SAFETY: as above.
            if ok(unsafe { sys::napi_get_value_bigint_int64(env, key, &raw mut signed, &raw mut exact) })
                && exact
            {
                return Some(Gene::of_number(signed.cast_unsigned()));
            }
            // SAFETY: as above.
            let read =
                ok(unsafe { sys::napi_get_value_bigint_uint64(env, key, &raw mut unsigned, &raw mut exact) });
            (read && exact).then(|| Gene::of_number(unsigned))
        }
        sys::ValueType::napi_string => {
            let mut buffer = [0_u8; SHORT];
            let mut len = 0;
            // SAFETY: as above; the buffer has so many bytes.
            let read = ok(unsafe {
                sys::napi_get_value_string_utf8(env, key, buffer.as_mut_ptr().cast(), SHORT, &raw mut len)
            });
            // A longer text was cut, at the latest four bytes and a NUL before the buffer's end.
            let text = buffer.get(..len).filter(|_| read && len < SHORT - 5)?;
            let whole = !text.windows(REPLACED.len()).any(|bytes| bytes == REPLACED);
            if whole { Gene::of(text).ok() } else { None }
        }
        _ => None,
    }
}

/// What a function was made for, and its one argument's gene.
fn called<'a>(env: sys::napi_env, info: sys::napi_callback_info) -> Option<(&'a Source, Gene)> {
    let (mut data, mut key, mut count) = (ptr::null_mut(), ptr::null_mut(), 1);
    // SAFETY: called by the engine with its own values; room for one argument.
    unsafe { sys::napi_get_cb_info(env, info, &raw mut count, &raw mut key, ptr::null_mut(), &raw mut data) };
    // SAFETY: the data of `direct::function`, which lives as long as the function.
    Some((unsafe { &*data.cast::<Source>() }, quick_gene(env, key)?))
}

/// The next id for the key, or `undefined`: then `next_for` says why.
extern "C" fn next(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    let verb = || called(env, info).and_then(|(source, gene)| source.try_next_of(gene).ok());
    let mut id = ptr::null_mut();
    if let Ok(Some(number)) = catch_unwind(AssertUnwindSafe(verb)) {
        // SAFETY: the engine's own environment.
        unsafe { sys::napi_create_bigint_uint64(env, number, &raw mut id) };
    }
    id
}

/// The same for ids of 128 bits.
extern "C" fn next_wide(env: sys::napi_env, info: sys::napi_callback_info) -> sys::napi_value {
    let verb = || called(env, info).and_then(|(source, gene)| source.try_next_wide_of(gene).ok());
    let mut id = ptr::null_mut();
    if let Ok(Some(number)) = catch_unwind(AssertUnwindSafe(verb)) {
        let words = [number as u64, (number >> 64) as u64];
        // SAFETY: as above; two words, the lower one first.
        unsafe { sys::napi_create_bigint_words(env, 0, words.len(), words.as_ptr(), &raw mut id) };
    }
    id
}

/// A function that takes a key and answers with its next id if one is in memory; else `undefined`.
#[napi]
pub fn direct_for<'env>(env: &'env Env, source: &External<SourceBox>) -> Option<Unknown<'env>> {
    let next = if source.source.is_wide() { next_wide } else { next };
    crate::direct::function(env, &source.source, next)
}
