//! A source: the verbs of one generator.

use std::sync::Arc;

use keymill::Kind;
use keymill::binding::encoded_label;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

use crate::batch::{Batch, IdBatch};
use crate::buffer::Ids;
use crate::cursor::Cursor;
use crate::dicts::{figures, parts_of, settings_of};
use crate::error::{bad_argument, raised};
use crate::handle::Handle;
use crate::id_source::IdSource;
use crate::iteration::{HasIds, iterate};
use crate::value::{count, not_pickled, text, whole};

/// An id as its source writes it.
pub(crate) fn written<'py>(
    py: Python<'py>,
    source: &keymill::Source,
    id: u64,
) -> PyResult<Bound<'py, PyString>> {
    let mut buffer = [0; keymill::serial::MAX_TEXT];
    let len = source.write_text_of(id, &mut buffer).map_err(raised)?;
    // The core writes ASCII.
    Ok(PyString::new(py, std::str::from_utf8(&buffer[..len]).unwrap_or_default()))
}

/// A list of ids as texts.
pub(crate) fn texts_of<'py>(
    py: Python<'py>,
    source: &keymill::Source,
    ids: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyList>> {
    let texts = PyList::empty(py);
    for id in ids {
        texts.append(written(py, source, whole(&id, "id")?)?)?;
    }
    Ok(texts)
}

/// A named generator inside a mill, from `Mill.segment`, `Mill.snowflake`, `Mill.serial` or `Mill.source`.
///
/// Any thread may use it. Segments and snowflakes hand out ints, serial sources hand out texts. With
/// ``order=process`` (the default) ids rise over all threads of the process and over all verbs.
///
/// >>> import keymill
/// >>> mill = keymill.open("memory:")
/// >>> orders = mill.segment("orders")
/// >>> orders.next(), next(orders), orders.take(3)
/// (1, 2, [3, 4, 5])
#[pyclass(frozen, module = "keymill", generic, weakref)]
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) ids: IdSource,
}

impl Source {
    pub(crate) fn new(source: keymill::Source, cursor: Arc<Cursor>) -> Self {
        Source { ids: IdSource::new(source, cursor) }
    }

    fn ask(&self, count: usize) -> PyResult<IdBatch> {
        IdBatch::new(&self.ids.source, &self.ids.cursor, count).map_err(raised)
    }

    /// A coroutine of the package's Python part.
    fn wait_in_asyncio<'py>(slf: &Bound<'py, Self>, count: Option<usize>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        IdBatch::fits(py, count.unwrap_or(1))?;
        Batch::in_asyncio(py, slf.get().ask(count.unwrap_or(1))?, count.is_none())
    }
}

impl HasIds for Source {
    #[inline]
    fn ids(&self) -> &IdSource {
        &self.ids
    }
}

#[pymethods]
impl Source {
    /// The next id: an int, or a text where the source is a serial one. It comes from memory; only a cold or starved
    /// source waits, at most its deadline, without the interpreter's lock. Ctrl-C ends the wait.
    ///
    /// >>> import keymill
    /// >>> keymill.open("memory:").serial("cust", "id", date="'C'", number="000").next()
    /// 'C001'
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.ids.next(py)
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.ids.next(py)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        iterate(slf)
    }

    /// The next id if one is in memory, else None; never waits. What no waiting cures is raised.
    ///
    /// >>> import keymill, time
    /// >>> orders = keymill.open("memory:").segment("orders")
    /// >>> while (id := orders.try_next()) is None:
    /// ...     time.sleep(0.001)
    /// >>> id
    /// 1
    fn try_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.ids.try_next(py)
    }

    /// A list of `count` ids: all of them, or an exception.
    ///
    /// >>> import keymill
    /// >>> keymill.open("memory:").segment("orders").take(4)
    /// [1, 2, 3, 4]
    #[pyo3(signature = (count, /))]
    fn take<'py>(&self, py: Python<'py>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let count = self::count(count)?;
        IdBatch::fits(py, count)?;
        let mut asked = self.ask(count)?;
        asked.complete(py)?;
        asked.list(py)
    }

    /// The next id as text: in the form that ``text=`` and ``prefix=`` say, decimal digits unless they are given. A serial number is a
    /// text already. Waits as `next` does.
    ///
    /// >>> import keymill
    /// >>> keymill.open("memory:").segment("orders", text="crockford", prefix="ord_").next_text()
    /// 'ord_0000000000001'
    fn next_text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let id = self.ids.next(py)?;
        if id.is_instance_of::<PyString>() {
            return Ok(id);
        }
        self.text_of(py, &id).map(Bound::into_any)
    }

    /// A list of `count` texts, as `next_text` gives them.
    ///
    /// >>> import keymill
    /// >>> ", ".join(keymill.open("memory:").segment("orders", prefix="no_").take_text(2))
    /// 'no_1, no_2'
    #[pyo3(signature = (count, /))]
    fn take_text<'py>(&self, py: Python<'py>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let ids = self.take(py, count)?;
        if self.ids.source.kind() == Kind::Serial {
            return Ok(ids);
        }
        texts_of(py, &self.ids.source, &ids)
    }

    /// An id of this source as its texts are written.
    ///
    /// >>> import keymill
    /// >>> keymill.open("memory:").segment("orders", text="base62").text_of(62)
    /// '00000000010'
    #[pyo3(signature = (id, /))]
    fn text_of<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
        written(py, &self.ids.source, whole(id, "id")?)
    }

    /// Fills a writable buffer of 64-bit integers (array, memoryview, numpy) with ids: all of it, or an exception and
    /// the buffer as it was. By far the fastest way to many ids.
    ///
    /// >>> import array, keymill
    /// >>> ids = array.array("Q", bytes(24))
    /// >>> keymill.open("memory:").segment("orders").fill(ids)
    /// >>> ids
    /// array('Q', [1, 2, 3])
    #[pyo3(signature = (buffer, /))]
    pub(crate) fn fill(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.ids.source.kind() == Kind::Serial {
            return Err(bad_argument(format!(
                "`{}` hands out texts, which do not fit into a buffer of integers; use take",
                self.ids.source.label()
            )));
        }
        let ids = Ids::of(buffer)?;
        let mut asked = self.ask(ids.len())?;
        asked.complete(py)?;
        ids.write(asked);
        Ok(())
    }

    /// The next id, for asyncio: awaits instead of waiting, so the loop is never blocked.
    ///
    /// >>> import asyncio, keymill
    /// >>> async def first():
    /// ...     return await keymill.open("memory:").segment("orders").anext()
    /// >>> asyncio.run(first())
    /// 1
    fn anext<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::wait_in_asyncio(slf, None)
    }

    /// `take` for asyncio.
    ///
    /// >>> import asyncio, keymill
    /// >>> async def first():
    /// ...     return await keymill.open("memory:").segment("orders").take_async(3)
    /// >>> asyncio.run(first())
    /// [1, 2, 3]
    #[pyo3(signature = (count, /))]
    fn take_async<'py>(slf: &Bound<'py, Self>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::wait_in_asyncio(slf, Some(self::count(count)?))
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::wait_in_asyncio(slf, None)
    }

    /// Takes an id or a text of this source apart: a dict with what this kind of source has of `time` (a `datetime` in
    /// UTC), `datacenter`, `worker`, `sequence`, `date`, `gene` and `number`.
    ///
    /// >>> import keymill
    /// >>> keymill.open("memory:").serial("cust", "id", date="'C'", number="000").parse("C042")
    /// {'date': 'C', 'number': 42}
    #[pyo3(signature = (id, /))]
    fn parse<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
        let source = &self.ids.source;
        let parts = if id.is_instance_of::<PyString>() {
            source.parse_text(&text(id, "id")?)
        } else {
            source.parse(whole(id, "id")?)
        };
        parts_of(py, &parts.map_err(raised)?)
    }

    /// A block of its own: ids rise within the handle only. For a loop that shares with no other thread.
    fn handle(&self) -> Handle {
        Handle::new((*self.ids.source).clone())
    }

    /// This source's figures: `issued`, `reserved`, `left`, `lost`, `refills`, `waits`, `rate`, `runway_seconds` …
    ///
    /// >>> import keymill
    /// >>> orders = keymill.open("memory:").segment("orders")
    /// >>> _ = orders.take(7)
    /// >>> orders.stats().get("issued")
    /// 7
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut stats = self.ids.source.stats().map_err(raised)?;
        // The numbers in the cursor count as issued in the core, but no caller has them yet.
        let held = self.ids.cursor.left();
        stats.issued -= held.min(stats.issued);
        stats.left += held;
        figures(py, &stats)
    }

    /// What the source is, every default filled in: scheme, table, step, layout …
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        settings_of(py, &self.ids.source)
    }

    /// Why ids would be keys that a table has; None where none would. `highest` is its highest key, read before.
    fn _refusal_of_keys(&self, py: Python<'_>, table: &str, highest: u64) -> PyResult<Option<String>> {
        let source = &self.ids.source;
        py.detach(|| source.refusal_of_keys(table, highest, 0)).map_err(raised)
    }

    /// `segment:orders`: kind and name, without options.
    #[getter]
    fn label(&self) -> &str {
        self.ids.source.label()
    }

    fn __repr__(&self) -> String {
        format!("<keymill.Source {}>", encoded_label(&self.ids.source))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_pickled(slf))
    }
}
