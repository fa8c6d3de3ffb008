//! Batches: many ids, all of them or none.
//!
//! A batch of segment ids begins with what the cursor holds and goes on with what the core leases, at every try: so it
//! never overtakes numbers that are still in the cursor, and what the cursor gives after the batch is greater than what
//! the batch got. Serial numbers, and ids that do not follow each other, have no cursor; the core's own batch serves them.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use keymill::binding::{Notifier, Pending, Registration};
use keymill::{Gene, Kind, Result, Source};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString};

use crate::cursor::{Cursor, Leased};
use crate::error::{bad_argument, raised};
use crate::notifier;
use crate::value;
use crate::wait::{Step, patient, wait};

/// Lists from this length on are tried out before numbers are spent on them.
const LARGE: usize = 1 << 20;

/// A batch that may still be waiting.
pub(crate) struct IdBatch {
    source: Source,
    count: usize,
    from: From,
}

enum From {
    Cursor {
        cursor: Arc<Cursor>,
        since: Option<Instant>,
        leased: Vec<Leased>,
        /// While it waits to be told of news.
        registration: Option<Registration>,
    },
    Core(Pending),
}

impl IdBatch {
    pub(crate) fn new(source: &Source, cursor: &Arc<Cursor>, count: usize) -> Result<Self> {
        let from = if source.kind() == Kind::Segment && source.counts() {
            From::Cursor { cursor: cursor.clone(), since: None, leased: Vec::new(), registration: None }
        } else {
            From::Core(source.ask(count)?)
        };
        Ok(IdBatch { source: source.clone(), count, from })
    }

    /// A batch of business ids for a key with this gene.
    pub(crate) fn of_gene(source: &Source, gene: Gene, count: usize) -> Result<Self> {
        let batch =
            if source.is_wide() { source.ask_wide_of(gene, count) } else { source.ask_of(gene, count) };
        Ok(IdBatch { source: source.clone(), count, from: From::Core(batch?) })
    }

    /// Takes what is there; never blocks.
    pub(crate) fn step(&mut self) -> Result<Step<()>> {
        match &mut self.from {
            From::Core(pending) => Ok(pending.poll()?.map_or(Step::Done(()), Step::Pause)),
            From::Cursor { cursor, since, leased, registration } => {
                *registration = None;
                // A signal's handler may have forked while this batch waited: what the parent took is the parent's.
                leased.retain(Leased::is_ours);
                let taken = collect(&self.source, cursor, self.count as u64, leased);
                // Nearly always it is all there, and no clock is read.
                match taken {
                    Ok(()) => Ok(Step::Done(())),
                    refused => patient(&self.source, since, refused),
                }
            }
        }
    }

    /// As [`IdBatch::step`]; before a pause `notifier` gets `token` when the batch is worth another step.
    fn step_or_register(&mut self, notifier: &Notifier, token: u64) -> Result<Step<()>> {
        let (cursor, since, leased, registration) = match &mut self.from {
            From::Core(pending) => {
                let pause = pending.poll_or_register(notifier, token)?;
                return Ok(pause.map_or(Step::Done(()), Step::Pause));
            }
            From::Cursor { cursor, since, leased, registration } => (cursor, since, leased, registration),
        };
        *registration = Some(self.source.register(None, notifier, token)?);
        leased.retain(Leased::is_ours);
        // The news may have come just before.
        match collect(&self.source, cursor, self.count as u64, leased) {
            Ok(()) => {
                *registration = None;
                Ok(Step::Done(()))
            }
            Err(refusal) => {
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                self.source.patience_until_news(refusal, waited).map(Step::Pause)
            }
        }
    }

    /// Waits until it is complete.
    pub(crate) fn complete(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.step().map_err(raised)? {
            Step::Done(()) => Ok(()),
            Step::Pause(_) => {
                let source = self.source.clone();
                wait(py, &source, || self.step())
            }
        }
    }

    /// The numbers of a complete batch in order, part by part.
    pub(crate) fn for_each_part(self, mut write: impl FnMut(Range<u64>)) {
        match self.from {
            From::Cursor { leased, .. } => leased.iter().for_each(|part| write(part.lo..part.hi)),
            From::Core(pending) => {
                let mut ids = vec![0; self.count];
                pending.write(&mut ids);
                for id in ids {
                    write(id..id + 1);
                }
            }
        }
    }

    /// Whether a list of so many would fit into memory: asked before any number is spent.
    pub(crate) fn fits(py: Python<'_>, count: usize) -> PyResult<()> {
        if count < LARGE { Ok(()) } else { room(py, count).map(drop) }
    }

    /// A complete batch as a list. The list is made and filled in one go, so that no code of the caller sees it half filled.
    pub(crate) fn list(self, py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
        let list = room(py, self.count)?;
        let mut failed = None;
        let mut put = |at: usize, made: PyResult<Bound<'_, PyAny>>| match made {
            // SAFETY: `at` is under the list's length and its slot is empty; the reference is given away.
            Ok(item) => unsafe {
                ffi::PyList_SetItem(list.as_ptr(), at as isize, item.into_ptr());
            },
            Err(error) => failed = Some(error),
        };
        let mut at = 0;
        match self.from {
            From::Core(pending) if self.source.kind() == Kind::Serial => pending.texts(|text| {
                put(at, Ok(PyString::new(py, text).into_any()));
                at += 1;
            }),
            From::Core(pending) if self.source.is_wide() => {
                let mut ids = vec![0; self.count];
                pending.write_wide(&mut ids);
                for id in ids {
                    put(at, id.into_pyobject(py).map(Bound::into_any).map_err(PyErr::from));
                    at += 1;
                }
            }
            _ => self.for_each_part(|part| {
                for number in part {
                    put(at, value::int(py, number));
                    at += 1;
                }
            }),
        }
        failed.map_or(Ok(list), Err)
    }
}

/// A list with `count` empty slots.
fn room(py: Python<'_>, count: usize) -> PyResult<Bound<'_, PyList>> {
    let room = isize::try_from(count).ok().filter(|n| *n < isize::MAX / 16);
    let made = room.map_or(std::ptr::null_mut(), |n| {
        // SAFETY: the interpreter is attached.
        unsafe { ffi::PyList_New(n) }
    });
    // SAFETY: a new list, or NULL.
    let list = unsafe { Bound::from_owned_ptr_or_opt(py, made) };
    let Some(list) = list else {
        drop(PyErr::take(py));
        return Err(bad_argument(format!("{count} ids do not fit into memory; take them in parts")));
    };
    // SAFETY: PyList_New makes a list.
    Ok(unsafe { list.cast_into_unchecked() })
}

/// Adds numbers to `leased` until there are `count`.
fn collect(source: &Source, cursor: &Cursor, count: u64, leased: &mut Vec<Leased>) -> Result<()> {
    let mut lacking = count - leased.iter().map(Leased::len).sum::<u64>();
    while lacking > 0 {
        let own = cursor.left().min(lacking);
        // Leased before the cursor is emptied: a store that is down costs no numbers.
        let more = if own < lacking {
            Some(Leased::from(source.try_lease(lacking - own, lacking - own)?))
        } else {
            None
        };
        for part in cursor.drain(own).into_iter().chain(more) {
            lacking -= part.len();
            leased.push(part);
        }
    }
    Ok(())
}

/// A batch that asyncio waits for.
#[pyclass(frozen, module = "keymill._keymill", name = "_Batch")]
pub(crate) struct Batch {
    /// `None` once the result was given.
    asked: Mutex<Option<IdBatch>>,
    /// One id, not a list of ids.
    single: bool,
}

impl Batch {
    fn new(asked: IdBatch, single: bool) -> Self {
        Batch { asked: Mutex::new(Some(asked)), single }
    }

    /// A coroutine of the package's Python part, which gives the ids, or the one id.
    pub(crate) fn in_asyncio(py: Python<'_>, asked: IdBatch, single: bool) -> PyResult<Bound<'_, PyAny>> {
        static COMPLETE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        COMPLETE.import(py, &crate::beside("_aio"), "complete")?.call1((Batch::new(asked, single),))
    }

    /// Held only under the interpreter's lock.
    fn asked(&self) -> MutexGuard<'_, Option<IdBatch>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Batch {
    /// Takes what is there: None when the batch is complete, else the seconds after which to ask again.
    fn poll(&self) -> PyResult<Option<f64>> {
        // The lock is let go before any of Python's code leased.
        let step = self.asked().as_mut().map(IdBatch::step);
        answer(step)
    }

    /// As `poll`; before the seconds are over the loop of the notifier gets the token when it is worth to ask again.
    fn poll_or_register(&self, notifier: &notifier::Notifier, token: u64) -> PyResult<Option<f64>> {
        let step = self.asked().as_mut().map(|asked| asked.step_or_register(&notifier.core, token));
        answer(step)
    }

    /// The task that waits for it has ended.
    fn give_up(&self) {
        let asked = self.asked().take();
        drop(asked);
    }

    /// The id, or the list of ids, of a batch that is complete; once.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let asked = self.asked().take();
        let Some(asked) = asked else { return Err(bad_argument("the batch was given out")) };
        let list = asked.list(py)?;
        if self.single { list.get_item(0) } else { Ok(list.into_any()) }
    }
}

/// What a step means to Python: the seconds after which to ask again, or None.
fn answer(step: Option<Result<Step<()>>>) -> PyResult<Option<f64>> {
    match step {
        None | Some(Ok(Step::Done(()))) => Ok(None),
        Some(Ok(Step::Pause(pause))) => Ok(Some(pause.as_secs_f64())),
        Some(Err(error)) => Err(raised(error)),
    }
}
