//! What the core answers as dicts: parts, settings, figures.

use keymill::{FigureValue, Parts, Source, Stats};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::bad_argument;

/// A moment as a `datetime` in UTC. Python has none after the year 9999.
fn when(py: Python<'_>, ms: i64) -> PyResult<Bound<'_, PyAny>> {
    let datetime = py.import("datetime")?;
    let utc = datetime.getattr("timezone")?.getattr("utc")?;
    let epoch = datetime.getattr("datetime")?.call1((1970, 1, 1, 0, 0, 0, 0, utc))?;
    // Days, seconds, microseconds, milliseconds.
    epoch.call_method1("__add__", (datetime.getattr("timedelta")?.call1((0, 0, 0, ms))?,)).map_err(|_| {
        bad_argument("the time of this id is after the year 9999, and Python has no `datetime` for it")
    })
}

/// What an id is made of, as a dict.
pub(crate) fn parts_of<'py>(py: Python<'py>, parts: &Parts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in parts.fields() {
        match name {
            "time" => dict.set_item(name, when(py, parts.time_ms.unwrap_or_default())?)?,
            "date" => dict.set_item(name, value)?,
            _ => dict.set_item(name, value.parse::<u64>().unwrap_or_default())?,
        }
    }
    Ok(dict)
}

/// What a source is, as a dict.
pub(crate) fn settings_of<'py>(py: Python<'py>, source: &Source) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in source.settings() {
        dict.set_item(name, value)?;
    }
    Ok(dict)
}

/// A source's figures, as a dict; None where one is not known.
pub(crate) fn figures<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for figure in stats.fields() {
        match figure.value {
            Some(FigureValue::Count(count)) => dict.set_item(figure.name, count)?,
            Some(FigureValue::Milliseconds(ms)) => dict.set_item(figure.name, ms)?,
            Some(FigureValue::Real(value)) => dict.set_item(figure.name, value)?,
            Some(text) => dict.set_item(figure.name, text.to_string())?,
            None => dict.set_item(figure.name, py.None())?,
        }
    }
    Ok(dict)
}
