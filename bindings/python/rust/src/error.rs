//! Errors of the core as exceptions of `keymill`.

use keymill::{Code, Error};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The exception class of a code.
pub(crate) const fn family(code: Code) -> &'static str {
    match family_of(code) {
        Some(family) => family,
        None => "KeymillError",
    }
}

const fn family_of(code: Code) -> Option<&'static str> {
    Some(match code {
        Code::Internal => "KeymillError",
        Code::InvalidArgument | Code::BufferTooSmall | Code::Forged => "ArgumentError",
        Code::InvalidConfig => "ConfigError",
        Code::Closed | Code::Forked => "ClosedError",
        Code::Deadline | Code::NotReady => "DeadlineError",
        Code::Exhausted | Code::NumberOverflow | Code::LayoutEnded | Code::NoWorkerFree => "ExhaustedError",
        Code::StoreUnavailable
        | Code::StoreRefused
        | Code::StoreWentBackwards
        | Code::StoreUnsafe
        | Code::LeaseLost => "StoreError",
        Code::ClockBehind => "ClockError",
        _ => return None,
    })
}

// A code that is added to the core does not compile until it has a class.
const _: () = {
    let mut at = 0;
    while at < Code::ALL.len() {
        assert!(family_of(Code::ALL[at]).is_some(), "a code without a class");
        at += 1;
    }
};

/// The exception for an error.
#[cold]
pub(crate) fn raised(error: Error) -> PyErr {
    // What keeps the exception from being made is raised instead: an interrupt that arrived meanwhile, most likely.
    Python::attach(|py| exception(py, &error).map_or_else(|other| other, PyErr::from_value))
}

fn exception<'py>(py: Python<'py>, error: &Error) -> PyResult<Bound<'py, PyAny>> {
    static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let module =
        MODULE.get_or_try_init(py, || py.import(crate::beside("_errors")).map(|m| m.into_any().unbind()))?;
    let retry_after = error.retry_after.map(|wait| wait.as_secs_f64());
    let class = module.bind(py).getattr(family(error.code))?;
    class.call1((error.code.name(), error.message.as_str(), retry_after))
}

/// `INVALID_ARGUMENT` with these words.
#[cold]
pub(crate) fn bad_argument(message: impl Into<String>) -> PyErr {
    raised(Error::argument(message))
}
