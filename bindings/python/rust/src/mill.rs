//! A mill: opening, sources, figures, closing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use keymill::Kind;
use keymill::binding::OpenMills;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::business::Business;
use crate::cursor::Cursor;
use crate::dicts::figures;
use crate::error::raised;
use crate::router::Router;
use crate::source::Source;
use crate::value::{not_pickled, spec, text, texts, whole};
use crate::wait::on_own_thread;

/// Opens a mill from one string: ``sqlite:keymill.db``, ``memory:``, ``mysql://user:password@host:port/database``,
/// ``postgres://…`` and ``redis://…`` alike, or ``file:keymill.toml``. Without one, the environment variable
/// ``KEYMILL_CONFIG``, else ``sqlite:keymill.db``. Nothing is connected until a source needs it.
///
/// >>> import keymill
/// >>> with keymill.open("memory:") as mill:
/// ...     mill.segment("orders").next()
/// 1
#[pyfunction]
#[pyo3(signature = (config = None))]
pub(crate) fn open(config: Option<&Bound<'_, PyAny>>) -> PyResult<Mill> {
    let config = config.map(|config| text(config, "config")).transpose()?;
    opened(config.as_deref()).map_err(raised)
}

/// Locked only under the interpreter's lock and for a moment, so that no thread holds it at a fork, nor at the interpreter's end.
static OPEN: Mutex<OpenMills> = Mutex::new(OpenMills::new());

/// Those that the end of the interpreter left open: a daemon thread keeps the objects that its frames see.
pub(crate) fn left_open() -> Vec<keymill::Mill> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A mill of this configuration, or the default one.
pub(crate) fn opened(config: Option<&str>) -> keymill::Result<Mill> {
    let mill = config.map_or_else(keymill::Mill::open_default, keymill::Mill::open)?;
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).add(&mill);
    Ok(Mill { mill: Some(mill), cursors: Mutex::default() })
}

/// The spec string that keywords stand for; what `segment`, `snowflake` and `serial` name their sources by.
#[pyfunction]
pub(crate) fn spec_string(
    kind: &str,
    name: Vec<String>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<String> {
    spec(kind, &name.iter().map(String::as_str).collect::<Vec<_>>(), options)
}

/// The mill in the application's database; `_store.py` makes the pairs.
#[pyfunction]
pub(crate) fn store_of(url: &str, properties: Vec<(String, String)>) -> PyResult<String> {
    let pairs: Vec<(&str, &str)> = properties.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    keymill::store_of(url, &pairs).map_err(raised)
}

fn gone() -> keymill::Error {
    keymill::Error::new(keymill::Code::Closed, "the mill was closed")
}

/// The sources asked for under one label, and the cursor each identity has.
type Cursors = HashMap<String, Vec<(keymill::Source, Arc<Cursor>)>>;

/// An engine that hands out ids: one configuration, one background thread, any number of sources. From `open`.
///
/// As a context manager it closes at the end. Any thread may use it; a forked child may go on using it.
#[pyclass(frozen, module = "keymill", weakref)]
#[derive(Debug)]
pub(crate) struct Mill {
    /// `None` only while it is dropped.
    mill: Option<keymill::Mill>,
    /// One cursor per source, however often it is asked for. Held only under the interpreter's lock.
    cursors: Mutex<Cursors>,
}

impl Mill {
    fn mill(&self) -> PyResult<&keymill::Mill> {
        self.mill.as_ref().ok_or_else(|| raised(gone()))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.mill.as_ref().is_none_or(keymill::Mill::is_closed)
    }

    /// A `Source`, or a `Business`. The outer error is the core's, the inner one Python's.
    pub(crate) fn any_source<'py>(
        &self,
        py: Python<'py>,
        spec: &str,
    ) -> keymill::Result<PyResult<Bound<'py, PyAny>>> {
        let source = self.mill.as_ref().ok_or_else(gone)?.source(spec)?;
        if source.kind() == Kind::Business {
            return Ok(Bound::new(py, Business::new(source)).map(Bound::into_any));
        }
        let cursor = self.cursor_of(&source);
        Ok(Bound::new(py, Source::new(source, cursor)).map(Bound::into_any))
    }

    fn source_of(&self, spec: &str) -> PyResult<Source> {
        let source = self.mill()?.source(spec).map_err(raised)?;
        let cursor = self.cursor_of(&source);
        Ok(Source::new(source, cursor))
    }

    /// Gives back what is left in the cursors of its sources. Called with the interpreter's lock.
    fn give_back(&self) {
        let cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        for (source, cursor) in cursors.values().flatten() {
            cursor.give_back(source);
        }
    }

    fn cursor_of(&self, source: &keymill::Source) -> Arc<Cursor> {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        if !cursors.contains_key(source.label()) {
            cursors.insert(source.label().to_owned(), Vec::new());
        }
        let Some(known) = cursors.get_mut(source.label()) else { return Arc::new(Cursor::new()) };
        // Asked anew each time: in a forked child a source's identity is another one.
        let identity = source.identity();
        if let Some((_, cursor)) = known.iter().find(|(other, _)| other.identity() == identity) {
            return cursor.clone();
        }
        let cursor = Arc::new(Cursor::new());
        known.push((source.clone(), cursor.clone()));
        cursor
    }
}

#[pymethods]
impl Mill {
    /// A source named by one string: ``segment:orders?step=1000``, ``snowflake:tx?worker=5``,
    /// ``serial:cust_info/custid?number=000000``. Asking again gives the same source. A ``business:`` one is a `Business`, whose
    /// verbs take a key.
    ///
    /// >>> import keymill
    /// >>> keymill.open("memory:").source("segment:orders?start=100").next()
    /// 100
    #[pyo3(signature = (spec, /))]
    fn source<'py>(&self, py: Python<'py>, spec: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.any_source(py, &text(spec, "spec")?).map_err(raised)?
    }

    /// Numbers from segments that the store has reserved; any option by keyword.
    ///
    /// >>> import keymill
    /// >>> keymill.open("memory:").segment("orders", min_step=100, deadline="1s").next()
    /// 1
    #[pyo3(signature = (name, /, **options))]
    fn segment(&self, name: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Source> {
        self.source_of(&spec("segment", &[&text(name, "name")?], options)?)
    }

    /// Numbers made of time, worker and sequence; any option by keyword.
    ///
    /// >>> import keymill
    /// >>> tx = keymill.open("memory:").snowflake("tx", worker=5)
    /// >>> tx.parse(tx.next()).get("worker")
    /// 5
    #[pyo3(signature = (name, /, **options))]
    fn snowflake(&self, name: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Source> {
        self.source_of(&spec("snowflake", &[&text(name, "name")?], options)?)
    }

    /// Texts made of a date and a number, `20261120000001`; any option by keyword.
    ///
    /// >>> import keymill
    /// >>> len(keymill.open("memory:").serial("cust_info", "custid", date="yyyyMMdd", number="000000").next())
    /// 14
    #[pyo3(signature = (table, column, /, **options))]
    fn serial(
        &self,
        table: &Bound<'_, PyAny>,
        column: &Bound<'_, PyAny>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Source> {
        self.source_of(&spec("serial", &[&text(table, "table")?, &text(column, "column")?], options)?)
    }

    /// The router whose table the store has under this name. The mill reads the table every 10 s, every second while a range
    /// moves. Asking again gives the same router.
    #[pyo3(signature = (name, /))]
    fn router(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Router> {
        let name = text(name, "name")?;
        let mill = self.mill()?.clone();
        Ok(Router { router: on_own_thread(py, move || mill.router(&name))? })
    }

    /// Ids that carry the gene of a key, and so their shard; any option by keyword, ``wide=True`` for ids of 128 bits.
    ///
    /// >>> import keymill
    /// >>> orders = keymill.open("memory:").business("order", counters=16)
    /// >>> orders.parse(orders.next("buyer-42")).get("gene")
    /// 56443
    #[pyo3(signature = (name, /, **options))]
    fn business(&self, name: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Business> {
        let spec = spec("business", &[&text(name, "name")?], options)?;
        Ok(Business::new(self.mill()?.source(&spec).map_err(raised)?))
    }

    /// Closes for good: every later call raises `ClosedError`; unused numbers go back to the store where they can.
    /// Closing twice is nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mill = self.mill()?.clone();
        if mill.is_closed() {
            return Ok(());
        }
        self.give_back();
        on_own_thread(py, move || {
            mill.close();
            Ok(())
        })
    }

    /// Whether the mill was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed()
    }

    /// The store, without user and password.
    #[getter]
    fn store(&self) -> PyResult<String> {
        Ok(self.mill()?.store())
    }

    /// Every figure as Prometheus text.
    ///
    /// >>> import keymill
    /// >>> "keymill_errors_total" in keymill.open("memory:").metrics()
    /// True
    fn metrics(&self) -> PyResult<String> {
        Ok(self.mill()?.metrics())
    }

    /// Every open source's figures.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for stats in self.mill()?.stats() {
            list.append(figures(py, &stats)?)?;
        }
        Ok(list)
    }

    /// Takes the events that happened since the last call, a line each; at most the last 256 are kept.
    fn events(&self) -> PyResult<Vec<String>> {
        Ok(self.mill()?.events().iter().map(ToString::to_string).collect())
    }

    /// Creates what these sources need in the store; with none, keymill's own table. Answers with the statements;
    /// `dry_run` only answers.
    #[pyo3(signature = (*specs, dry_run = false))]
    fn init(&self, py: Python<'_>, specs: &Bound<'_, PyTuple>, dry_run: bool) -> PyResult<Vec<String>> {
        let specs = texts(specs, "spec")?;
        let change = if dry_run { keymill::Change::DryRun } else { keymill::Change::Apply };
        let mill = self.mill()?.clone();
        on_own_thread(py, move || mill.init(&specs.iter().map(String::as_str).collect::<Vec<_>>(), change))
    }

    /// For tests: moves the clock of a mill opened with ``clock=manual`` forward by milliseconds.
    #[pyo3(signature = (ms, /))]
    fn advance_clock(&self, ms: &Bound<'_, PyAny>) -> PyResult<()> {
        self.mill()?.advance_clock(whole(ms, "ms")?).map_err(raised)
    }

    /// For tests: sets the clock of a mill opened with ``clock=manual`` to milliseconds since 1970.
    #[pyo3(signature = (ms, /))]
    fn set_clock(&self, ms: &Bound<'_, PyAny>) -> PyResult<()> {
        let ms = ms.extract::<i64>().map_err(|_| crate::error::bad_argument("ms must be a whole number"))?;
        self.mill()?.set_clock(ms).map_err(raised)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(format!("<keymill.Mill {}>", self.store()?))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_pickled(slf))
    }
}

impl Drop for Mill {
    fn drop(&mut self) {
        let mill = self.mill.take();
        let cursors = std::mem::take(&mut *self.cursors.lock().unwrap_or_else(PoisonError::into_inner));
        Python::attach(|py| {
            // Source objects that outlive this one go on with new blocks.
            cursors.values().flatten().for_each(|(source, cursor)| cursor.give_back(source));
            // The last copy closes, which may wait for the store.
            py.detach(|| drop((mill, cursors)));
        });
    }
}
