//! The shared mill, and sources that are declared before it is open.
//!
//! The shared mill and the default one are attributes of the compiled module, so that they end with the program's other objects, and
//! a mill closes at exit as one of a program's own variables does. They are read and written under the interpreter's lock, which
//! nothing here lets go of between finding no default mill and having opened one.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use keymill::{Code, Error};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule, PyTuple};

use crate::beside;
use crate::error::{bad_argument, raised};
use crate::id_source::IdSource;
use crate::mill::{self, Mill};
use crate::source::Source;
use crate::value::{query, shown, text};

/// What the children of `multiprocessing` inherit from a process that shares a mill: in the settings that a process gives its own.
const INHERITED: &str = "keymill";
/// The attributes of the compiled module.
const SHARED: &str = "_shared";
const DEFAULT: &str = "_default";

/// Rises with each `use`; a lazy source compares it with the value that it resolved at.
static GENERATION: AtomicU64 = AtomicU64::new(1);

fn generation() -> u64 {
    // ordering: Relaxed — the interpreter's lock orders it.
    GENERATION.load(Ordering::Relaxed)
}

fn module(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import(beside("_keymill"))
}

/// A mill that the module keeps under this name.
fn kept<'py>(module: &Bound<'py, PyModule>, name: &str) -> PyResult<Option<Bound<'py, Mill>>> {
    Ok(module.dict().get_item(name)?.and_then(|mill| mill.cast_into::<Mill>().ok()))
}

/// Makes this the mill that lazy sources take from: their next ids come from it, also where they came from another one before. It
/// stays the caller's to close; while a closed one is shared, they raise `ClosedError`. ``None``: the default mill again.
///
/// >>> import keymill
/// >>> orders = keymill.lazy("segment:orders")
/// >>> with keymill.open("memory:") as mill:
/// ...     keymill.use(mill)
/// ...     orders.next()
/// 1
/// >>> keymill.use(None)
#[pyfunction]
#[pyo3(name = "use", signature = (mill, /))]
pub(crate) fn share(py: Python<'_>, mill: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let module = module(py)?;
    let given = mill.map(|mill| {
        mill.cast::<Mill>().map_err(|_| {
            bad_argument(format!("use takes a mill of keymill.open, or None, not {}", shown(mill)))
        })
    });
    let given = given.transpose()?;
    if given.is_none()
        && let Some(opened) = kept(&module, DEFAULT)?
        && opened.get().is_closed()
    {
        module.setattr(DEFAULT, py.None())?;
    }
    tell_children(py, given.is_some());
    module.setattr(SHARED, given)?;
    // ordering: Relaxed — the interpreter's lock orders it.
    GENERATION.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// A process of `multiprocessing` passes its settings on to the processes that it starts, and has no other place for them.
fn settings(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let process = py.import("multiprocessing.process")?.call_method0("current_process")?;
    Ok(process.getattr("_config")?.cast_into::<PyDict>()?)
}

fn tell_children(py: Python<'_>, shares: bool) {
    // An interpreter without them has no children to tell.
    let Ok(settings) = settings(py) else { return };
    let _told = if shares { settings.set_item(INHERITED, true) } else { settings.del_item(INHERITED) };
}

/// Whether the process that started this one shares a mill, which this one does not have: the default mill would be another store.
fn is_left_out(py: Python<'_>) -> bool {
    std::env::var_os("KEYMILL_CONFIG").is_none()
        && settings(py).is_ok_and(|settings| settings.contains(INHERITED).unwrap_or(false))
}

/// The mill that lazy sources take from: the mill given to `use`, else the default mill (`open` without a string), which is opened once.
///
/// >>> import keymill
/// >>> mill = keymill.open("memory:")
/// >>> keymill.use(mill)
/// >>> keymill.shared() is mill
/// True
/// >>> keymill.use(None)
#[pyfunction]
pub(crate) fn shared(py: Python<'_>) -> PyResult<Bound<'_, Mill>> {
    shared_for(py, "the shared mill")
}

/// The shared mill, for what a message names by `what`.
fn shared_for<'py>(py: Python<'py>, what: &str) -> PyResult<Bound<'py, Mill>> {
    let module = module(py)?;
    if let Some(mill) = kept(&module, SHARED)? {
        return Ok(mill);
    }
    if is_left_out(py) {
        let message = format!(
            "{what}: no mill is shared in this process, and the process that started it shares one; call keymill.use(mill) here too (Pool and ProcessPoolExecutor: initializer=), or set KEYMILL_CONFIG for both"
        );
        return Err(raised(Error::new(Code::InvalidConfig, message)));
    }
    let error = match default_mill(py, &module)? {
        Ok(mill) => return Ok(mill),
        Err(error) => error,
    };
    let named = if std::env::var_os("KEYMILL_CONFIG").is_some() { " (KEYMILL_CONFIG=…)" } else { "" };
    let remedy = "share a mill with keymill.use(mill)";
    let message = format!(
        "{what}: no mill is shared, and the default mill{named} cannot be opened: {}; {remedy}",
        error.message
    );
    Err(raised(Error::new(error.code, message)))
}

/// The default mill, which the first caller opens. Nothing here lets go of the interpreter's lock, and so none waits for `OPENING` but
/// where an interpreter runs without that lock.
fn default_mill<'py>(
    py: Python<'py>,
    module: &Bound<'py, PyModule>,
) -> PyResult<keymill::Result<Bound<'py, Mill>>> {
    static OPENING: Mutex<()> = Mutex::new(());
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mill) = kept(module, DEFAULT)? {
        return Ok(Ok(mill));
    }
    let opened = match mill::opened(None) {
        Ok(mill) => Bound::new(py, mill)?,
        Err(error) => return Ok(Err(error)),
    };
    module.setattr(DEFAULT, &opened)?;
    Ok(Ok(opened))
}

/// A source that is declared before a mill is open, as a model's field is: nothing is opened or looked at before its first id, which
/// finds the mill of `use`, else opens the default mill. Any option by keyword.
///
/// >>> import keymill
/// >>> keymill.lazy("segment:orders", step=1000)
/// keymill.lazy('segment:orders?step=1000')
#[pyfunction]
#[pyo3(signature = (spec, /, **options))]
pub(crate) fn lazy(spec: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Lazy> {
    let mut spec = text(spec, "spec")?;
    let query = query(options)?;
    if !query.is_empty() {
        spec.push(if spec.contains('?') { '&' } else { '?' });
        spec.push_str(&query);
    }
    Ok(Lazy {
        spec,
        resolved_at: AtomicU64::new(0),
        ids: AtomicPtr::new(ptr::null_mut()),
        source: Mutex::new(None),
    })
}

/// A source that is declared before a mill is open, from `lazy`. It holds only its spec: it is pickled, copied and deconstructed
/// (Django) as its spec, two with one spec are equal, and a forked child goes on as with a source.
///
/// Called without arguments it gives the next id, so it serves as a model's default. It has the verbs of a `Source`, and with a key the
/// verbs of a `Business`.
///
/// >>> import keymill
/// >>> orders = keymill.lazy("segment:orders")
/// >>> with keymill.open("memory:") as mill:
/// ...     keymill.use(mill)
/// ...     orders(), orders.next(), next(orders), orders.take(2)
/// (1, 2, 3, [4, 5])
/// >>> keymill.use(None)
#[pyclass(frozen, module = "keymill", generic, weakref)]
#[derive(Debug)]
pub(crate) struct Lazy {
    spec: String,
    /// The generation that `source` belongs to; 0: none.
    resolved_at: AtomicU64,
    /// The ids of `source`; null where they take a key, and where no cursor may be used.
    ids: AtomicPtr<IdSource>,
    /// A `Source` or a `Business`. Held only under the interpreter's lock.
    source: Mutex<Option<Py<PyAny>>>,
}

impl Lazy {
    fn source_slot(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next number, if one is in the cursor and this process may still issue it.
    #[inline]
    pub(crate) fn quick(&self) -> Option<u64> {
        // ordering: Relaxed — the interpreter's lock; so below.
        if self.resolved_at.load(Ordering::Relaxed) != generation() {
            return None;
        }
        // SAFETY: null, or the ids of the object that `source` holds. Both are replaced only under the interpreter's lock, which is held
        // until the number is taken.
        unsafe { self.ids.load(Ordering::Relaxed).as_ref() }?.cursor.next()
    }

    /// The source in the present mill.
    fn source<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        // ordering: Relaxed — the interpreter's lock.
        if self.resolved_at.load(Ordering::Relaxed) == generation()
            && let Some(source) = &*self.source_slot()
        {
            return Ok(source.bind(py).clone());
        }
        self.resolve(py)
    }

    #[cold]
    fn resolve<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let at = generation();
        let mill = shared_for(py, &self.spec)?;
        let found = mill.get().any_source(py, &self.spec).map_err(|error| {
            if error.code == Code::Closed {
                return raised(self.closed(py));
            }
            let mut error = error;
            error.message = format!("{}: {}", self.spec, error.message);
            raised(error)
        })??;
        let ids = match found.cast::<Source>() {
            Ok(source) if crate::cursor::is_locked() => ptr::from_ref(&source.get().ids).cast_mut(),
            _ => ptr::null_mut(),
        };
        let before = self.source_slot().replace(found.clone().unbind());
        // ordering: Relaxed — the interpreter's lock, which is not let go of before all three are written.
        self.ids.store(ids, Ordering::Relaxed);
        self.resolved_at.store(at, Ordering::Relaxed);
        // The last copy of a source may let go of the lock.
        drop(before);
        Ok(found)
    }

    /// What to say where the mill was closed.
    fn closed(&self, py: Python<'_>) -> Error {
        let is_shared = module(py).and_then(|module| kept(&module, SHARED)).is_ok_and(|mill| mill.is_some());
        let which = if is_shared { "shared" } else { "default" };
        let remedy = "share an open one with keymill.use(mill), or keymill.use(None) for the default mill";
        Error::new(Code::Closed, format!("{}: the {which} mill was closed; {remedy}", self.spec))
    }

    /// Asks again if the mill that answered was replaced meanwhile.
    fn ask<'py, T>(&self, py: Python<'py>, verb: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>) -> PyResult<T> {
        loop {
            let at = generation();
            match verb(&self.source(py)?) {
                Err(error) => self.judge(py, at, error)?,
                answer => return answer,
            }
        }
    }

    /// Whether to ask again after this error, of a source of the generation `at`; else it is raised.
    fn judge(&self, py: Python<'_>, at: u64, error: PyErr) -> PyResult<()> {
        let code = error.value(py).getattr("code").and_then(|code| code.extract::<String>());
        match code {
            Ok(code) if code == Code::Closed.name() && at != generation() => Ok(()),
            Ok(code) if code == Code::Closed.name() => Err(raised(self.closed(py))),
            _ => Err(error),
        }
    }

    /// The next id where the cursor gave none.
    pub(crate) fn next_otherwise<'py>(
        &self,
        py: Python<'py>,
        key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, |source| match (source.cast::<Source>(), key) {
            (Ok(source), None) => source.get().ids.next(py),
            (Ok(_), Some(_)) => Err(bad_argument(format!("`{}` takes no key; business ids do", self.spec))),
            (Err(_), key) => source.call_method1("next", PyTuple::new(py, key)?),
        })
    }

    /// `next` as it was called.
    pub(crate) fn next_with<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match arguments.len() {
            0 => self.next_otherwise(py, None),
            1 => {
                let key = arguments.get_item(0)?;
                self.next_otherwise(py, (!key.is_none()).then_some(&key))
            }
            more => Err(bad_argument(format!("next takes a key at most, not {more} arguments"))),
        }
    }

    fn verb<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, |source| source.call_method1(name, arguments))
    }

    /// A coroutine of the package's Python part.
    fn in_asyncio<'py>(
        slf: &Bound<'py, Self>,
        name: &str,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static FOLLOW: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        FOLLOW.import(slf.py(), &beside("_aio"), "follow")?.call1((slf, name, arguments))
    }
}

#[pymethods]
impl Lazy {
    /// The next id, of business ids for a key: `next`. A model calls it for its default.
    #[pyo3(signature = (key = None, /))]
    fn __call__<'py>(&self, py: Python<'py>, key: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        self.next(py, key)
    }

    /// The next id, of business ids for a key; waits as a source does.
    #[pyo3(signature = (key = None, /))]
    fn next<'py>(&self, py: Python<'py>, key: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        match key {
            None => match self.quick() {
                Some(number) => crate::value::int(py, number),
                None => self.next_otherwise(py, None),
            },
            key => self.next_otherwise(py, key),
        }
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.next(py, None)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// The next id if one is in memory, else None; never waits.
    #[pyo3(signature = (*key))]
    fn try_next<'py>(&self, py: Python<'py>, key: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "try_next", key)
    }

    /// A list of ids: ``take(count)``, of business ids ``take(key, count)``.
    #[pyo3(signature = (*arguments))]
    fn take<'py>(&self, py: Python<'py>, arguments: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "take", arguments)
    }

    /// Fills a writable buffer of 64-bit integers, as a source does.
    #[pyo3(signature = (buffer, /))]
    fn fill<'py>(&self, py: Python<'py>, buffer: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "fill", &PyTuple::new(py, [buffer])?)
    }

    /// The next id as text, as a source gives it.
    #[pyo3(signature = (*key))]
    fn next_text<'py>(&self, py: Python<'py>, key: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "next_text", key)
    }

    /// A list of texts, as a source gives it.
    #[pyo3(signature = (*arguments))]
    fn take_text<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "take_text", arguments)
    }

    /// An id as text, as a source writes it.
    #[pyo3(signature = (id, /))]
    fn text_of<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "text_of", &PyTuple::new(py, [id])?)
    }

    /// The next id, for asyncio.
    #[pyo3(signature = (*key))]
    fn anext<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        Self::in_asyncio(slf, "anext", key)
    }

    /// `take` for asyncio.
    #[pyo3(signature = (*arguments))]
    fn take_async<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Self::in_asyncio(slf, "take_async", arguments)
    }

    fn __aiter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::in_asyncio(slf, "anext", &PyTuple::empty(slf.py()))
    }

    /// Takes an id apart, as a source does.
    #[pyo3(signature = (id, /))]
    fn parse<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "parse", &PyTuple::new(py, [id])?)
    }

    /// A handle of the source in the present mill, which it stays with.
    fn handle<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "handle", &PyTuple::empty(py))
    }

    /// The source's figures in the present mill.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "stats", &PyTuple::empty(py))
    }

    /// What the source is in the present mill, every default filled in.
    fn settings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.verb(py, "settings", &PyTuple::empty(py))
    }

    /// The source in the present mill, which it stays with: a `Source`, or a `Business`.
    #[pyo3(name = "source")]
    fn present<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.source(py)
    }

    /// What it was declared by.
    #[getter]
    fn spec(&self) -> &str {
        &self.spec
    }

    /// What Django writes into a migration.
    ///
    /// >>> import keymill
    /// >>> keymill.lazy("segment:orders").deconstruct()
    /// ('keymill.lazy', ('segment:orders',), {})
    fn deconstruct<'py>(&self, py: Python<'py>) -> (String, (&str,), Bound<'py, PyDict>) {
        (beside("lazy"), (&self.spec,), PyDict::new(py))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (&str,))> {
        Ok((module(py)?.getattr("lazy")?, (&self.spec,)))
    }

    /// For the package's Python part: the generation that an error is to be judged with.
    #[staticmethod]
    fn _generation() -> u64 {
        generation()
    }

    /// For the package's Python part: raises what an error of a source of that generation means, unless the verb is to be asked again.
    fn _judge(&self, py: Python<'_>, at: u64, error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.judge(py, at, PyErr::from_value(error.clone()))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Lazy>().is_ok_and(|other| other.get().spec == self.spec)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        pyo3::types::PyString::new(py, &self.spec).hash()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("keymill.lazy({})", pyo3::types::PyString::new(py, &self.spec).repr()?))
    }
}
