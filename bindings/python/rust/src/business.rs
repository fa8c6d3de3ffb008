//! Business ids: the verbs that take a key.

use std::sync::Arc;

use keymill::binding::encoded_label;
use keymill::{Code, Gene, Result, Source};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::batch::{Batch, IdBatch};
use crate::cursor::Cursor;
use crate::dicts::{figures, parts_of, settings_of};
use crate::error::{bad_argument, raised};
use crate::id_source::IdSource;
use crate::router::Key;
use crate::source::{texts_of, written};
use crate::value::{count, int, not_pickled, text, whole};
use crate::wait::{patient, wait};

/// Ids that carry the gene of a key, from `Mill.business`: 16 bits that name a virtual node of the ring, so that the id alone
/// says its shard. All ids of one key have one gene, and they rise within the process.
///
/// A key is an int from -2**63 to 2**64-1, a str, or bytes of at most 64 KiB; ``42`` and ``"42"`` have different genes, a str
/// and its UTF-8 bytes have the same. With ``wide=True`` ids have 128 bits. Any thread may use it.
///
/// >>> import keymill
/// >>> orders = keymill.open("memory:").business("order")
/// >>> id = orders.next("buyer-42")
/// >>> orders.parse(id)
/// {'gene': 56443, 'number': 1}
#[pyclass(frozen, module = "keymill", weakref)]
#[derive(Debug)]
pub(crate) struct Business {
    ids: IdSource,
}

/// The gene of a key.
fn gene(key: Option<&Bound<'_, PyAny>>) -> PyResult<Gene> {
    match key {
        Some(key) => Gene::of(Key::of(key)?.as_key()).map_err(raised),
        None => Err(bad_argument("a business id needs a key, and none was given: an int, a str or bytes")),
    }
}

impl Business {
    pub(crate) fn new(source: Source) -> Self {
        Business { ids: IdSource::new(source, Arc::new(Cursor::new())) }
    }

    fn source(&self) -> &Source {
        &self.ids.source
    }

    /// The next id if there is one; never blocks. The outer error is the core's, the inner one Python's.
    fn attempt<'py>(&self, py: Python<'py>, gene: Gene) -> Result<PyResult<Bound<'py, PyAny>>> {
        if self.source().is_wide() {
            self.source().try_next_wide_of(gene).map(|id| Ok(id.into_pyobject(py)?.into_any()))
        } else {
            self.source().try_next_of(gene).map(|id| int(py, id))
        }
    }

    fn ask(&self, key: Option<&Bound<'_, PyAny>>, count: usize) -> PyResult<IdBatch> {
        IdBatch::of_gene(self.source(), gene(key)?, count).map_err(raised)
    }
}

#[pymethods]
impl Business {
    /// The next id for a key; waits at most the source's deadline when none is in memory, without the interpreter's lock.
    /// Ctrl-C ends the wait.
    ///
    /// >>> import keymill
    /// >>> orders = keymill.open("memory:").business("order", wide=True)
    /// >>> orders.next(42).bit_length() > 64
    /// True
    #[pyo3(signature = (key = None, /), text_signature = "($self, key, /)")]
    fn next<'py>(&self, py: Python<'py>, key: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let gene = gene(key)?;
        if let Ok(id) = self.attempt(py, gene) {
            return id;
        }
        let mut since = None;
        wait(py, self.source(), || patient(self.source(), &mut since, self.attempt(py, gene)))?
    }

    /// The next id for a key if one is in memory, else None; never waits.
    ///
    /// >>> import keymill, time
    /// >>> orders = keymill.open("memory:").business("order")
    /// >>> while (id := orders.try_next(42)) is None:
    /// ...     time.sleep(0.001)
    /// >>> orders.parse(id).get("number")
    /// 1
    #[pyo3(signature = (key = None, /), text_signature = "($self, key, /)")]
    fn try_next<'py>(
        &self,
        py: Python<'py>,
        key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.attempt(py, gene(key)?) {
            Ok(id) => id.map(Some),
            Err(refusal) if refusal.code == Code::NotReady => Ok(None),
            Err(refusal) => Err(raised(refusal)),
        }
    }

    /// A list of `count` ids for a key: all of them, or an exception. The fast way to many.
    ///
    /// >>> import keymill
    /// >>> orders = keymill.open("memory:").business("order")
    /// >>> [orders.parse(id).get("number") for id in orders.take("buyer-42", 3)]
    /// [1, 2, 3]
    #[pyo3(signature = (key, count, /))]
    fn take<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        count: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        let count = self::count(count)?;
        IdBatch::fits(py, count)?;
        let mut asked = self.ask(Some(key), count)?;
        asked.complete(py)?;
        asked.list(py)
    }

    /// The next id for a key as text: in the form that ``text=`` and ``prefix=`` say.
    ///
    /// >>> import keymill
    /// >>> len(keymill.open("memory:").business("order", text="base36").next_text(42))
    /// 13
    #[pyo3(signature = (key = None, /), text_signature = "($self, key, /)")]
    fn next_text<'py>(
        &self,
        py: Python<'py>,
        key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyString>> {
        let id = self.next(py, key)?;
        self.text_of(py, &id)
    }

    /// A list of `count` ids for a key as texts.
    #[pyo3(signature = (key, count, /))]
    fn take_text<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        count: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyList>> {
        texts_of(py, self.source(), &self.take(py, key, count)?)
    }

    /// An id of this source as its texts are written.
    #[pyo3(signature = (id, /))]
    fn text_of<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
        written(py, self.source(), whole(id, "id")?)
    }

    /// The next id for a key, for asyncio: awaits instead of waiting, so the loop is never blocked.
    ///
    /// >>> import asyncio, keymill
    /// >>> async def first():
    /// ...     orders = keymill.open("memory:").business("order")
    /// ...     return orders.parse(await orders.anext(42))
    /// >>> asyncio.run(first())
    /// {'gene': 61763, 'number': 1}
    #[pyo3(signature = (key = None, /), text_signature = "($self, key, /)")]
    fn anext<'py>(&self, py: Python<'py>, key: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        Batch::in_asyncio(py, self.ask(key, 1)?, true)
    }

    /// `take` for asyncio.
    #[pyo3(signature = (key, count, /))]
    fn take_async<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        count: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let count = self::count(count)?;
        IdBatch::fits(py, count)?;
        Batch::in_asyncio(py, self.ask(Some(key), count)?, false)
    }

    /// Takes an id apart: a dict of `gene` and `number`. The id is an int, a str of digits, or the 8 or 16 bytes that a database
    /// keeps, big-endian. With ``wide=True`` an int or digits that may be an id of 64 bits or another one of 128 are refused; the bytes
    /// say which.
    #[pyo3(signature = (id, /))]
    fn parse<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let source = self.source();
        let parts = if id.is_instance_of::<PyString>() {
            source.parse_text(&text(id, "id")?)
        } else if let Ok(bytes) = id.cast::<PyBytes>() {
            source.parse_bytes(bytes.as_bytes())
        } else if let Ok(wide) = id.extract::<u128>() {
            source.parse_number(&wide.to_string())
        } else {
            source.parse(whole(id, "id")?)
        };
        parts_of(py, &parts.map_err(raised)?)
    }

    /// This source's figures, over all its counters.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        figures(py, &self.source().stats().map_err(raised)?)
    }

    /// What the source is, every default filled in.
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        settings_of(py, self.source())
    }

    /// `business:order`: kind and name, without options.
    #[getter]
    fn label(&self) -> &str {
        self.source().label()
    }

    fn __repr__(&self) -> String {
        format!("<keymill.Business {}>", encoded_label(self.source()))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_pickled(slf))
    }
}
