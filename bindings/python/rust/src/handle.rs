//! A handle: a block that no other caller counts in.

use std::sync::Arc;

use keymill::binding::encoded_label;
use pyo3::prelude::*;

use crate::cursor::Cursor;
use crate::id_source::IdSource;
use crate::iteration::{HasIds, iterate};
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
    ids: IdSource,
}

impl Handle {
    pub(crate) fn new(source: keymill::Source) -> Self {
        Handle { ids: IdSource::new(source, Arc::new(Cursor::new())) }
    }
}

impl HasIds for Handle {
    #[inline]
    fn ids(&self) -> &IdSource {
        &self.ids
    }
}

#[pymethods]
impl Handle {
    /// The next id of this handle's block; waits at most the source's deadline when none is in memory.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.ids.next(py)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.ids.next(py)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        iterate(slf)
    }

    fn __repr__(&self) -> String {
        format!("<keymill.Handle {}>", encoded_label(&self.ids.source))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_pickled(slf))
    }
}
