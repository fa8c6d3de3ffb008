//! Order numbers: what business ids are called outside.

use std::ffi::c_char;

use keymill_core::{OrderNumbers, Result};

use crate::business::km_wide;
use crate::error::{enter, km_code};
use crate::handle::{Out, free, give, held, ids, km_numbers, values};
use crate::text::{TextOut, text_in};

/// The bytes of an order number, and the bytes of a key.
const ORDER_NO: usize = 16;
const KEY: usize = 32;

/// The length of an order number's text: of 16 bytes, and of 8 bytes.
const TEXT: usize = 26;
const TEXT8: usize = 14;

/// Writes a text of a known length; a buffer that is too small is refused before anything is sealed.
fn sealed(out: &TextOut, length: usize, seal: impl FnOnce() -> Result<String>) -> Result<()> {
    out.write(length, |buffer| {
        let text = seal()?;
        let length = text.len().min(buffer.len());
        buffer[..length].copy_from_slice(&text.as_bytes()[..length]);
        Ok(length)
    })
}

/// Order numbers with the keys of a file, for one tenant and one table; either may be empty. The file is read once. It has
/// `seal_with = 2` and, below `[key]`, lines such as `2 = "64 hexadecimal digits"`, and other users must not be able to read it.
/// `*numbers` is the caller's, who frees it with km_numbers_free; the last free of one wipes the keys.
///
/// KM_INVALID_ARGUMENT where the file cannot be read, KM_INVALID_CONFIG where others can read it, and with what is wrong in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_open(
    file: *const c_char,
    tenant: *const c_char,
    table: *const c_char,
    numbers: *mut *mut km_numbers,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page; so below.
        let (file, numbers) = unsafe { (text_in(file, "file")?, Out::new(numbers, "numbers")?) };
        // SAFETY: as above.
        let (tenant, table) = unsafe { (text_in(tenant, "tenant")?, text_in(table, "table")?) };
        numbers.set(give(OrderNumbers::open(file, tenant, table)?));
        Ok(())
    })
}

/// As km_numbers_open with the environment variable KEYMILL_ORDER_KEYS, which has the text of a key file.
///
/// KM_INVALID_ARGUMENT, KM_INVALID_CONFIG where it is not set, and with what is wrong in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_open_env(
    tenant: *const c_char,
    table: *const c_char,
    numbers: *mut *mut km_numbers,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (tenant, table, numbers) =
            unsafe { (text_in(tenant, "tenant")?, text_in(table, "table")?, Out::new(numbers, "numbers")?) };
        numbers.set(give(OrderNumbers::from_env(tenant, table)?));
        Ok(())
    })
}

/// As km_numbers_open with `count` keys of the caller's: `versions` holds their versions, 1 to 255, and `keys` 32 bytes for each. The
/// caller wipes its own copy.
///
/// KM_INVALID_ARGUMENT for a version that is 0 or there twice, and where `seal_with` has no key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_open_keys(
    versions: *const u8,
    keys: *const u8,
    count: usize,
    seal_with: u8,
    tenant: *const c_char,
    table: *const c_char,
    numbers: *mut *mut km_numbers,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (tenant, table, numbers) =
            unsafe { (text_in(tenant, "tenant")?, text_in(table, "table")?, Out::new(numbers, "numbers")?) };
        // SAFETY: as above.
        let (versions, keys) = unsafe {
            (values(versions, count, "versions")?, values(keys.cast::<[u8; KEY]>(), count, "keys")?)
        };
        let keys: Vec<(u8, &[u8])> =
            versions.iter().zip(keys).map(|(version, key)| (*version, key.as_slice())).collect();
        numbers.set(give(OrderNumbers::from_keys(&keys, seal_with, tenant, table)?));
        Ok(())
    })
}

/// The same keys, with only this version in use: it seals, it opens order numbers of 8 bytes, and order numbers of 16 bytes have to be of
/// this version. `*chosen` is the caller's, who frees it with km_numbers_free; `numbers` may be freed before.
///
/// KM_INVALID_ARGUMENT for a version that is 0 or not loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_with_version(
    numbers: *const km_numbers,
    version: u8,
    chosen: *mut *mut km_numbers,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, chosen) = unsafe { (held(numbers)?, Out::new(chosen, "chosen")?) };
        chosen.set(give(numbers.with_version(version)?));
        Ok(())
    })
}

/// The version that seals, which belongs into a column beside order numbers of 8 bytes.
///
/// KM_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_version(numbers: *const km_numbers, version: *mut u8) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, version) = unsafe { (held(numbers)?, Out::new(version, "version")?) };
        version.set(numbers.version());
        Ok(())
    })
}

/// The order number of an id of 64 bits: writes 16 bytes to `order_no`.
///
/// KM_INVALID_ARGUMENT for an id of 2^63 or more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_seal(numbers: *const km_numbers, id: u64, order_no: *mut u8) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, order_no) =
            unsafe { (held(numbers)?, Out::new(order_no.cast::<[u8; ORDER_NO]>(), "order_no")?) };
        order_no.set(numbers.seal(id)?);
        Ok(())
    })
}

/// The id in an order number of 16 bytes; `len` is 16.
///
/// KM_FORGED for what was not sealed with these keys for this tenant and this table. KM_INVALID_ARGUMENT for another length, and for a
/// key version that is 0 or not loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_unseal(
    numbers: *const km_numbers,
    order_no: *const u8,
    len: usize,
    id: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, order_no, id) =
            unsafe { (held(numbers)?, values(order_no, len, "order_no")?, Out::new(id, "id")?) };
        id.set(numbers.unseal(order_no)?);
        Ok(())
    })
}

/// The order number of an id of 128 bits: writes 16 bytes to `order_no`.
///
/// KM_INVALID_ARGUMENT for an id of another form.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_seal_wide(
    numbers: *const km_numbers,
    id: km_wide,
    order_no: *mut u8,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, order_no) =
            unsafe { (held(numbers)?, Out::new(order_no.cast::<[u8; ORDER_NO]>(), "order_no")?) };
        order_no.set(numbers.seal_wide(id.into())?);
        Ok(())
    })
}

/// The id of 128 bits in an order number.
///
/// As km_numbers_unseal; KM_FORGED for the order number of an id of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_unseal_wide(
    numbers: *const km_numbers,
    order_no: *const u8,
    len: usize,
    id: *mut km_wide,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, order_no, id) =
            unsafe { (held(numbers)?, values(order_no, len, "order_no")?, Out::new(id, "id")?) };
        id.set(numbers.unseal_wide(order_no)?.into());
        Ok(())
    })
}

/// The order number of 8 bytes: a number below 2^63. It hides the number in the id and has no room for a check: every number below 2^63
/// opens as some id.
///
/// As km_numbers_seal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_seal8(
    numbers: *const km_numbers,
    id: u64,
    order_no: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, order_no) = unsafe { (held(numbers)?, Out::new(order_no, "order_no")?) };
        order_no.set(numbers.seal8(id)?);
        Ok(())
    })
}

/// The id in an order number of 8 bytes. Its key version is the one given to km_numbers_with_version, or the only loaded version.
///
/// KM_INVALID_ARGUMENT where several versions are loaded and none was chosen, and for a number of 2^63 or more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_unseal8(
    numbers: *const km_numbers,
    order_no: u64,
    id: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, id) = unsafe { (held(numbers)?, Out::new(id, "id")?) };
        id.set(numbers.unseal8(order_no)?);
        Ok(())
    })
}

/// The order numbers of `count` ids, several times as fast as one by one: writes `16 * count` bytes, all of them or none and an error.
///
/// As km_numbers_seal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_seal_all(
    numbers: *const km_numbers,
    ids: *const u64,
    count: usize,
    order_nos: *mut u8,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let sealed = unsafe { held(numbers)?.seal_all(values(ids, count, "ids")?) }?;
        // SAFETY: as above.
        unsafe { self::ids(order_nos.cast::<[u8; ORDER_NO]>(), count) }?.copy_from_slice(&sealed);
        Ok(())
    })
}

/// The ids in `count` order numbers of 16 bytes each: all of them, or none and an error that says which one is wrong.
///
/// As km_numbers_unseal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_unseal_all(
    numbers: *const km_numbers,
    order_nos: *const u8,
    count: usize,
    ids: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, order_nos) = unsafe { (held(numbers)?, values(order_nos.cast(), count, "order_nos")?) };
        let opened = numbers.unseal_all(order_nos)?;
        // SAFETY: as above.
        unsafe { self::ids(ids, count) }?.copy_from_slice(&opened);
        Ok(())
    })
}

/// The order numbers of 8 bytes of `count` ids: all of them, or none and an error. `order_nos` may be the array of the ids.
///
/// As km_numbers_seal8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_seal8_all(
    numbers: *const km_numbers,
    ids: *const u64,
    count: usize,
    order_nos: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let sealed = unsafe { held(numbers)?.seal8_all(values(ids, count, "ids")?) }?;
        // SAFETY: as above.
        unsafe { self::ids(order_nos, count) }?.copy_from_slice(&sealed);
        Ok(())
    })
}

/// The ids in `count` order numbers of 8 bytes, which one version has sealed.
///
/// As km_numbers_unseal8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_unseal8_all(
    numbers: *const km_numbers,
    order_nos: *const u64,
    count: usize,
    ids: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let opened = unsafe { held(numbers)?.unseal8_all(values(order_nos, count, "order_nos")?) }?;
        // SAFETY: as above.
        unsafe { self::ids(ids, count) }?.copy_from_slice(&opened);
        Ok(())
    })
}

/// The order number of an id of 64 bits as text: 26 characters of Crockford's base 32, and a NUL.
///
/// As km_numbers_seal; KM_BUFFER_TOO_SMALL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_seal_text(
    numbers: *const km_numbers,
    id: u64,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, out) = unsafe { (held(numbers)?, TextOut::new(buf, size, len)?) };
        sealed(&out, TEXT, || numbers.seal_text(id))
    })
}

/// The id in the text of an order number of 16 bytes. Small letters are read too, and i, l and o as the digits that they look like.
///
/// As km_numbers_unseal; KM_INVALID_ARGUMENT for a text of another length or with other characters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_unseal_text(
    numbers: *const km_numbers,
    text: *const c_char,
    id: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, text, id) = unsafe { (held(numbers)?, text_in(text, "text")?, Out::new(id, "id")?) };
        id.set(numbers.unseal_text(text)?);
        Ok(())
    })
}

/// The order number of an id of 128 bits as text of 26 characters, and a NUL.
///
/// As km_numbers_seal_wide; KM_BUFFER_TOO_SMALL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_seal_wide_text(
    numbers: *const km_numbers,
    id: km_wide,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, out) = unsafe { (held(numbers)?, TextOut::new(buf, size, len)?) };
        sealed(&out, TEXT, || numbers.seal_wide_text(id.into()))
    })
}

/// The id of 128 bits in the text of an order number.
///
/// As km_numbers_unseal_text; KM_FORGED for the order number of an id of 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_unseal_wide_text(
    numbers: *const km_numbers,
    text: *const c_char,
    id: *mut km_wide,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, text, id) = unsafe { (held(numbers)?, text_in(text, "text")?, Out::new(id, "id")?) };
        id.set(numbers.unseal_wide_text(text)?.into());
        Ok(())
    })
}

/// The order number of 8 bytes as text: 13 characters of Crockford's base 32, his check symbol, and a NUL.
///
/// As km_numbers_seal8; KM_BUFFER_TOO_SMALL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_seal8_text(
    numbers: *const km_numbers,
    id: u64,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, out) = unsafe { (held(numbers)?, TextOut::new(buf, size, len)?) };
        sealed(&out, TEXT8, || numbers.seal8_text(id))
    })
}

/// The id in the text of an order number of 8 bytes.
///
/// As km_numbers_unseal8; KM_INVALID_ARGUMENT for a text of another length, with other characters, or with another check symbol.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_unseal8_text(
    numbers: *const km_numbers,
    text: *const c_char,
    id: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (numbers, text, id) = unsafe { (held(numbers)?, text_in(text, "text")?, Out::new(id, "id")?) };
        id.set(numbers.unseal8_text(text)?);
        Ok(())
    })
}

/// Frees order numbers. NULL is nothing.
///
/// KM_INVALID_ARGUMENT when it was freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_numbers_free(numbers: *mut km_numbers) -> km_code {
    // SAFETY: the conventions page.
    enter(|| unsafe { free(numbers, |_| ()) })
}
