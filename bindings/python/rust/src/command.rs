//! The command, which the package brings along.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command `keymill` with these words after its name; the answer is the exit code. For `keymill._command`.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| keymill_cli::run(std::iter::once(OsString::from("keymill")).chain(words)))
}
