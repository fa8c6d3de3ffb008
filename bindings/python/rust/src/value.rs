//! Values in and out: ids, counts, options.

use std::ffi::c_long;
use std::time::Duration;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDelta, PyDict, PyFloat, PyInt, PyString, PyTuple};

use crate::error::bad_argument;

/// An id as a new reference to Python's int; NULL with MemoryError set. All ids lie under 2^63.
#[inline]
pub(crate) fn raw_int(id: u64) -> *mut ffi::PyObject {
    // Where a `long` has 64 bits this is the shortest way to an int.
    if size_of::<c_long>() == 8 {
        // SAFETY: called with the interpreter attached.
        unsafe { ffi::PyLong_FromLong(id as c_long) }
    } else {
        // SAFETY: as above.
        unsafe { ffi::PyLong_FromUnsignedLongLong(id) }
    }
}

/// An id as Python's int.
#[inline]
pub(crate) fn int(py: Python<'_>, id: u64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: a new reference, or NULL with MemoryError set.
    unsafe { Bound::from_owned_ptr_or_err(py, raw_int(id)) }
}

/// A value as it may stand in a message: its type, and itself where that is short and harmless.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
    // Nothing of the caller's code is run to write an error, so only Python's own ints are shown.
    if value.is_exact_instance_of::<PyInt>() {
        return value
            .extract::<i64>()
            .map_or_else(|_| "an int of more than 64 bits".to_owned(), |number| number.to_string());
    }
    name
}

/// A whole number of at least 0, from anything Python takes for an index.
pub(crate) fn whole(value: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    // A float or a text has no `__index__`; a negative or huge number does not fit.
    value.extract::<u64>().map_err(|_| {
        let range = "a whole number from 0 to 18446744073709551615";
        bad_argument(format!("{what} must be {range}, not {}", shown(value)))
    })
}

/// More than this in one list is a mistake: Linux grants the memory, then kills the process that fills it.
const MOST: usize = 1 << 27;

/// How many ids a batch shall have.
pub(crate) fn count(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    let count = whole(value, "count")?;
    usize::try_from(count).ok().filter(|count| *count <= MOST).ok_or_else(|| {
        bad_argument(format!(
            "{count} ids are too many for one list; take at most {MOST} at a time, or fill a buffer"
        ))
    })
}

/// The spec string that keywords stand for.
pub(crate) fn spec(kind: &str, name: &[&str], options: Option<&Bound<'_, PyDict>>) -> PyResult<String> {
    let pairs = pairs(options)?;
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(o, v)| (o.as_str(), v.as_str())).collect();
    Ok(keymill::spec_string(kind, name, &pairs))
}

/// The options of a spec string that keywords stand for: what follows its `?`.
pub(crate) fn query(options: Option<&Bound<'_, PyDict>>) -> PyResult<String> {
    let spec = spec("", &[], options)?;
    Ok(spec.strip_prefix(":?").unwrap_or_default().to_owned())
}

fn pairs(options: Option<&Bound<'_, PyDict>>) -> PyResult<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for (option, value) in options.into_iter().flatten() {
        let option: String = option.extract()?;
        if option.contains(['?', '&', '=', '%', '/']) {
            return Err(bad_argument(format!("`{option}` cannot be an option's name")));
        }
        if let Some(value) = option_value(&option, &value)? {
            pairs.push((option, value));
        }
    }
    Ok(pairs)
}

/// An option's value as text; `None` leaves the option out.
fn option_value(option: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if value.is_none() {
        return Ok(None);
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Some(utf8(text, option)?));
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Some(if flag.is_true() { "on" } else { "off" }.to_owned()));
    }
    if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        return Ok(Some(utf8(&value.str()?, option)?));
    }
    if value.is_instance_of::<PyDelta>() {
        let Ok(length) = value.extract::<Duration>() else {
            return Err(bad_argument(format!("{option}: a negative time")));
        };
        return Ok(Some(format!("{}ms", length.as_millis())));
    }
    Err(bad_argument(format!("{option} must be a str, int, bool, float or timedelta, not {}", shown(value))))
}

fn utf8(text: &Bound<'_, PyString>, what: &str) -> PyResult<String> {
    match text.to_cow() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(bad_argument(format!("{what} holds lone surrogates, which are no UTF-8"))),
    }
}

/// A text of the caller's.
pub(crate) fn text(value: &Bound<'_, PyAny>, what: &str) -> PyResult<String> {
    match value.cast::<PyString>() {
        Ok(text) => utf8(text, what),
        Err(_) => Err(bad_argument(format!("{what} must be a str, not {}", shown(value)))),
    }
}

/// `text` of each.
pub(crate) fn texts(values: &Bound<'_, PyTuple>, what: &str) -> PyResult<Vec<String>> {
    values.iter().map(|value| text(&value, what)).collect()
}

/// The error of pickling and copying.
pub(crate) fn not_pickled(object: &Bound<'_, PyAny>) -> PyErr {
    bad_argument(format!(
        "a {} cannot be pickled or copied: it holds numbers and connections that belong to one process; open a mill in each process (a forked child may go on with the one it inherited)",
        shown(object)
    ))
}
