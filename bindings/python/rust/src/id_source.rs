//! One id, now or after a wait: what a source and a handle have in common.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use keymill::{Code, Kind, Result, Source};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::cursor::Cursor;
use crate::error::raised;
use crate::value::int;
use crate::wait::{patient, wait};

/// Texts up to this length are written on the stack.
const STACK: usize = 256;

/// A source and the cursor its segment ids come from.
#[derive(Debug)]
pub(crate) struct IdSource {
    pub(crate) cursor: Arc<Cursor>,
    kind: Kind,
    /// Whether its ids follow each other, so that the cursor counts through blocks of them.
    counts: bool,
    pub(crate) source: ManuallyDrop<Source>,
}

impl IdSource {
    pub(crate) fn new(source: Source, cursor: Arc<Cursor>) -> Self {
        IdSource { cursor, kind: source.kind(), counts: source.counts(), source: ManuallyDrop::new(source) }
    }

    /// The next id; waits for it.
    #[inline]
    pub(crate) fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.cursor.next() {
            Some(number) => int(py, number),
            None => self.next_otherwise(py),
        }
    }

    /// The next id where the cursor gave none.
    #[inline(never)]
    pub(crate) fn next_otherwise<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Ok(id) = self.attempt(py) {
            return id;
        }
        let mut since = None;
        wait(py, &self.source, || patient(&self.source, &mut since, self.attempt(py)))?
    }

    /// The next id if there is one; never blocks. The outer error is the core's, the inner one Python's.
    fn attempt<'py>(&self, py: Python<'py>) -> Result<PyResult<Bound<'py, PyAny>>> {
        match self.kind {
            Kind::Serial => self.attempt_text(py),
            _ if !self.counts => self.source.try_next().map(|id| int(py, id)),
            _ => match self.cursor.next() {
                Some(number) => Ok(int(py, number)),
                None => self.cursor.refill(&self.source).map(|id| int(py, id)),
            },
        }
    }

    fn attempt_text<'py>(&self, py: Python<'py>) -> Result<PyResult<Bound<'py, PyAny>>> {
        let mut buffer = [0; STACK];
        if self.source.text_len() > STACK {
            return self.source.try_next_text().map(|text| Ok(PyString::new(py, &text).into_any()));
        }
        let len = self.source.try_write_text(&mut buffer)?;
        Ok(PyString::from_bytes(py, &buffer[..len]).map(Bound::into_any))
    }

    /// The next id, or `None` if none is in memory.
    pub(crate) fn try_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.attempt(py) {
            Ok(id) => id.map(Some),
            Err(refusal) if refusal.code == Code::NotReady => Ok(None),
            Err(refusal) => Err(raised(refusal)),
        }
    }
}

impl Drop for IdSource {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used again.
        let source = unsafe { ManuallyDrop::take(&mut self.source) };
        Python::attach(|py| {
            // No other object counts by this cursor: a handle had it, or the mill's object is gone.
            if Arc::strong_count(&self.cursor) == 1 {
                self.cursor.give_back(&source);
            }
            // The last copy of an open mill closes it, which may wait for the store.
            py.detach(|| drop(source));
        });
    }
}
