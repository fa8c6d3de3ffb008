//! Strings that are made of parts: the spec that names a source, the mill in an application's database.

use std::ffi::c_char;

use keymill_core::{Result, spec_string, store_of};

use crate::error::{enter, km_code};
use crate::handle::null;
use crate::text::{TextOut, text_in};

/// Writes the string that names a source, with a NUL: "serial:cust%2Finfo/custid?number=000000". What separates its parts
/// is percent-encoded inside them. `name` holds `names` strings, one for each part of the name; `options` holds
/// `2 * pairs` strings, an option and its value each time. An array of no strings may be NULL. Nothing is checked but the
/// strings themselves: km_mill_source says what is wrong with a spec.
///
/// KM_INVALID_ARGUMENT, KM_BUFFER_TOO_SMALL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_spec(
    kind: *const c_char,
    name: *const *const c_char,
    names: usize,
    options: *const *const c_char,
    pairs: usize,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page; so below.
        let (kind, out) = unsafe { (text_in(kind, "kind")?, TextOut::new(buf, size, len)?) };
        // SAFETY: as above.
        let (name, options) =
            unsafe { (texts(name, names, "name")?, texts(options, pairs.saturating_mul(2), "options")?) };
        let options: Vec<(&str, &str)> = options.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        out.put(&spec_string(kind, &name, &options))
    })
}

/// Writes the string that opens a mill in the application's own database, with a NUL. `url` is a JDBC URL, a URL as SQLAlchemy,
/// Prisma and DATABASE_URL write them, or "django:ENGINE". `properties` holds `2 * pairs` strings, the name of a parameter
/// beside the URL and its value each time; it may be NULL where there are none. Nothing is opened or asked. The string holds
/// the password.
///
/// KM_INVALID_CONFIG: a parameter that says where, as whom or how encrypted in a way that a mill cannot, by its name; or a
/// database that cannot be a store. No message holds a value. Other parameters are ignored and named by `ignored=`.
/// KM_INVALID_ARGUMENT, KM_BUFFER_TOO_SMALL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_store_of(
    url: *const c_char,
    properties: *const *const c_char,
    pairs: usize,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page; so below.
        let (url, out) = unsafe { (text_in(url, "url")?, TextOut::new(buf, size, len)?) };
        // SAFETY: as above.
        let properties = unsafe { texts(properties, pairs.saturating_mul(2), "properties")? };
        let properties: Vec<(&str, &str)> =
            properties.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        out.put(&store_of(url, &properties)?)
    })
}

/// A caller's array of strings.
///
/// # Safety
/// `list` is NULL or holds `count` strings as `text_in` takes them.
unsafe fn texts<'a>(list: *const *const c_char, count: usize, what: &str) -> Result<Vec<&'a str>> {
    if list.is_null() && count > 0 {
        return Err(null(what));
    }
    // SAFETY: by the contract.
    (0..count).map(|i| unsafe { text_in(*list.add(i), what) }).collect()
}
