//! A handle: a block of one's own.

use std::sync::Arc;

use pyo3::prelude::*;

use crate::cursor::Cursor;
use crate::fast::{Taking, iterate};
use crate::source::Source;
use crate::taker::Taker;
use crate::value::not_pickled;

/// A block of numbers of one's own, from `Source.handle`. Ids rise within it.
///
/// >>> import keymill
/// >>> mill = keymill.open("memory:")
/// >>> mine, yours = mill.segment("orders").handle(), mill.segment("orders").handle()
/// >>> len({mine.next(), next(yours), mine.next(), next(yours)})
/// 4
#[pyclass(frozen, module = "keymill", generic, weakref)]
#[derive(Debug)]
pub(crate) struct Handle {
    taker: Taker,
}

impl Handle {
    pub(crate) fn of(source: &Source) -> Self {
        Handle { taker: Taker::new((*source.taker.source).clone(), Arc::new(Cursor::new())) }
    }
}

impl Taking for Handle {
    #[inline]
    fn taker(&self) -> &Taker {
        &self.taker
    }
}

#[pymethods]
impl Handle {
    /// The next id of this handle's block; waits at most the source's deadline when none is in memory.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.taker.next(py)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.taker.next(py)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        iterate(slf)
    }

    fn __repr__(&self) -> String {
        format!("<keymill.Handle {}>", self.taker.source.label())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_pickled(slf))
    }
}
