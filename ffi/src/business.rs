//! Business ids: the verbs of a source that take a key.

use std::ffi::c_char;

use keymill_core::{Gene, Result};

use crate::error::{enter, km_code};
use crate::handle::{Out, held, hinted, ids, km_source, null};

/// An id of 128 bits: a zero, the gene in 16 bits, the number in the 111 bits that are left. As VARBINARY(16) it is hi and
/// then lo, each big-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct km_wide {
    /// The upper 64 bits.
    pub hi: u64,
    /// The lower 64 bits.
    pub lo: u64,
}

impl From<u128> for km_wide {
    fn from(id: u128) -> km_wide {
        km_wide { hi: (id >> 64) as u64, lo: id as u64 }
    }
}

impl From<km_wide> for u128 {
    fn from(id: km_wide) -> u128 {
        u128::from(id.hi) << 64 | u128::from(id.lo)
    }
}

/// The bytes of a text key.
///
/// # Safety
/// `key` is NULL or holds `len` bytes, which do not change until the call ends.
pub(crate) unsafe fn bytes_in<'a>(key: *const c_char, len: usize) -> Result<&'a [u8]> {
    if key.is_null() {
        return Err(null("key"));
    }
    // A slice has no more bytes than an object can have; a key is too long far below that.
    let len = len.min(isize::MAX as usize);
    // SAFETY: by the contract.
    Ok(unsafe { std::slice::from_raw_parts(key.cast(), len) })
}

/// The gene of a text key.
///
/// # Safety
/// As [`bytes_in`].
unsafe fn text_gene(key: *const c_char, len: usize) -> Result<Gene> {
    // SAFETY: by the contract.
    Gene::of(unsafe { bytes_in(key, len) }?)
}

/// The next business id for an integer key; a negative key is given as its two's complement. Ids of one gene rise. Waits at
/// most the source's deadline when none is in memory.
///
/// KM_INVALID_ARGUMENT for a source of another kind, and for one with wide=on (km_source_next_wide_for_u64); and as
/// km_source_next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_next_for_u64(source: *mut km_source, key: u64, id: *mut u64) -> km_code {
    enter(|| {
        // SAFETY: the conventions page; so below.
        let (source, id) = unsafe { (held(source)?, Out::new(id, "id")?) };
        id.set(source.next_of(Gene::of_number(key))?);
        Ok(())
    })
}

/// As km_source_next_for_u64 for a text key: `len` bytes of UTF-8, at most 65536, which need no NUL. An empty key is a key.
///
/// KM_INVALID_ARGUMENT for a longer key, and as km_source_next_for_u64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_next_for_text(
    source: *mut km_source,
    key: *const c_char,
    len: usize,
    id: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, gene, id) = unsafe { (held(source)?, text_gene(key, len)?, Out::new(id, "id")?) };
        id.set(source.next_of(gene)?);
        Ok(())
    })
}

/// As km_source_next_for_u64, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask again.
///
/// KM_NOT_READY, and as km_source_next_for_u64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_try_next_for_u64(
    source: *mut km_source,
    key: u64,
    id: *mut u64,
    retry_ms: *mut u32,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, id, retry) =
            unsafe { (held(source)?, Out::new(id, "id")?, Out::new(retry_ms, "retry_ms")?) };
        id.set(hinted(source.try_next_of(Gene::of_number(key)), &retry)?);
        Ok(())
    })
}

/// As km_source_next_for_text, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask again.
///
/// KM_NOT_READY, and as km_source_next_for_text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_try_next_for_text(
    source: *mut km_source,
    key: *const c_char,
    len: usize,
    id: *mut u64,
    retry_ms: *mut u32,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, gene) = unsafe { (held(source)?, text_gene(key, len)?) };
        // SAFETY: as above.
        let (id, retry) = unsafe { (Out::new(id, "id")?, Out::new(retry_ms, "retry_ms")?) };
        id.set(hinted(source.try_next_of(gene), &retry)?);
        Ok(())
    })
}

/// Fills an array with `count` business ids for an integer key: all of it, or none and an error. The fast way to many ids of
/// one key. 0 ids are nothing.
///
/// As km_source_next_for_u64; KM_INVALID_ARGUMENT for a count that no memory holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_fill_for_u64(
    source: *mut km_source,
    key: u64,
    ids: *mut u64,
    count: usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, ids) = unsafe { (held(source)?, self::ids(ids, count)?) };
        source.fill_of(Gene::of_number(key), ids)
    })
}

/// As km_source_fill_for_u64 for a text key, given as to km_source_next_for_text.
///
/// As km_source_next_for_text; KM_INVALID_ARGUMENT for a count that no memory holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_fill_for_text(
    source: *mut km_source,
    key: *const c_char,
    len: usize,
    ids: *mut u64,
    count: usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, gene, ids) = unsafe { (held(source)?, text_gene(key, len)?, self::ids(ids, count)?) };
        source.fill_of(gene, ids)
    })
}

/// The next id of 128 bits for an integer key, of a source with wide=on.
///
/// KM_INVALID_ARGUMENT for a source without wide=on, and as km_source_next_for_u64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_next_wide_for_u64(
    source: *mut km_source,
    key: u64,
    id: *mut km_wide,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, id) = unsafe { (held(source)?, Out::new(id, "id")?) };
        id.set(source.next_wide_of(Gene::of_number(key))?.into());
        Ok(())
    })
}

/// The next id of 128 bits for a text key, given as to km_source_next_for_text, of a source with wide=on.
///
/// KM_INVALID_ARGUMENT for a source without wide=on, and as km_source_next_for_text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_next_wide_for_text(
    source: *mut km_source,
    key: *const c_char,
    len: usize,
    id: *mut km_wide,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, gene, id) = unsafe { (held(source)?, text_gene(key, len)?, Out::new(id, "id")?) };
        id.set(source.next_wide_of(gene)?.into());
        Ok(())
    })
}

/// As km_source_next_wide_for_u64, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask
/// again.
///
/// KM_NOT_READY, and as km_source_next_wide_for_u64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_try_next_wide_for_u64(
    source: *mut km_source,
    key: u64,
    id: *mut km_wide,
    retry_ms: *mut u32,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, id, retry) =
            unsafe { (held(source)?, Out::new(id, "id")?, Out::new(retry_ms, "retry_ms")?) };
        id.set(hinted(source.try_next_wide_of(Gene::of_number(key)), &retry)?.into());
        Ok(())
    })
}

/// As km_source_next_wide_for_text, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask
/// again.
///
/// KM_NOT_READY, and as km_source_next_wide_for_text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_try_next_wide_for_text(
    source: *mut km_source,
    key: *const c_char,
    len: usize,
    id: *mut km_wide,
    retry_ms: *mut u32,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, gene) = unsafe { (held(source)?, text_gene(key, len)?) };
        // SAFETY: as above.
        let (id, retry) = unsafe { (Out::new(id, "id")?, Out::new(retry_ms, "retry_ms")?) };
        id.set(hinted(source.try_next_wide_of(gene), &retry)?.into());
        Ok(())
    })
}

/// Fills an array with `count` ids of 128 bits for an integer key: all of it, or none and an error.
///
/// As km_source_next_wide_for_u64; KM_INVALID_ARGUMENT for a count that no memory holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_fill_wide_for_u64(
    source: *mut km_source,
    key: u64,
    ids: *mut km_wide,
    count: usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, ids) = unsafe { (held(source)?, self::ids(ids, count)?) };
        put(&source.take_wide_for(key, count)?, ids);
        Ok(())
    })
}

/// As km_source_fill_wide_for_u64 for a text key, given as to km_source_next_for_text.
///
/// As km_source_next_wide_for_text; KM_INVALID_ARGUMENT for a count that no memory holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_fill_wide_for_text(
    source: *mut km_source,
    key: *const c_char,
    len: usize,
    ids: *mut km_wide,
    count: usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, key, ids) = unsafe { (held(source)?, bytes_in(key, len)?, self::ids(ids, count)?) };
        put(&source.take_wide_for(key, count)?, ids);
        Ok(())
    })
}

fn put(taken: &[u128], ids: &mut [km_wide]) {
    for (to, from) in ids.iter_mut().zip(taken) {
        *to = (*from).into();
    }
}
