//! Waiting: without the interpreter's lock, with a check for signals from time to time.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use keymill::{Code, Error, Result, Source};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::beside;
use crate::error::raised;

/// A signal or a close ends a wait after this long at the latest.
const SIGNAL_CHECK: Duration = Duration::from_millis(20);

/// The first pause of a wait: most waits are for a refill that is on its way. Each later pause is twice as long, up to
/// what the core asks for.
const FIRST_PAUSE: Duration = Duration::from_micros(20);

/// A step of a wait.
pub(crate) enum Step<T> {
    /// Here it is.
    Done(T),
    /// Come again after this pause.
    Pause(Duration),
}

/// What a refused `try_` verb means to a caller who has waited since `since`; `None`: the wait begins here.
pub(crate) fn patient<T>(source: &Source, since: &mut Option<Instant>, answer: Result<T>) -> Result<Step<T>> {
    match answer {
        Ok(value) => Ok(Step::Done(value)),
        Err(refusal) => {
            let waited = since.map_or(Duration::ZERO, |since| since.elapsed());
            since.get_or_insert_with(Instant::now);
            source.patience(refusal, waited).map(Step::Pause)
        }
    }
}

/// Steps until it is done, pausing without the lock. Each step runs with it.
#[cold]
pub(crate) fn wait<T>(
    py: Python<'_>,
    source: &Source,
    mut step: impl FnMut() -> Result<Step<T>>,
) -> PyResult<T> {
    let mut longest = FIRST_PAUSE;
    loop {
        match step().map_err(raised)? {
            Step::Done(value) => return Ok(value),
            Step::Pause(pause) => nap(py, source, pause.min(longest))?,
        }
        longest = longest.saturating_mul(2);
    }
}

/// Sleeps without the lock; ends early at a signal whose handler raises, and when the mill closes.
fn nap(py: Python<'_>, source: &Source, pause: Duration) -> PyResult<()> {
    let mut left = pause;
    while !left.is_zero() {
        let part = left.min(SIGNAL_CHECK);
        if !pauses_as_a_task(py, part)? {
            py.detach(|| thread::sleep(part));
        }
        py.check_signals()?;
        left -= part;
        if source.mill().is_closed() {
            break;
        }
    }
    Ok(())
}

/// Pauses the task alone where the thread carries several (gevent, eventlet, SQLAlchemy's asyncio); `false`: it carries one, and may
/// sleep. Other tasks call the same sources meanwhile, so nothing is locked here.
fn pauses_as_a_task(py: Python<'_>, pause: Duration) -> PyResult<bool> {
    static PAUSE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?.cast_into::<PyDict>()?;
    // All of them are made of greenlets, and most programs have none.
    if !modules.contains(intern!(py, "greenlet"))? {
        return Ok(false);
    }
    PAUSE.import(py, &beside("_tasks"), "pause")?.call1((pause.as_secs_f64(),))?.is_truthy()
}

/// Runs a verb that has no `try_` form on a thread of its own, so that signals are handled meanwhile. An interrupted caller
/// leaves the verb to end by itself.
pub(crate) fn on_own_thread<T: Send + 'static>(
    py: Python<'_>,
    verb: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut answer) = mpsc::sync_channel(1);
    keymill::binding::spawn("keymill-call", move || {
        let _ = sender.send(verb());
    })
    .map_err(|e| raised(keymill::binding::not_started("this call", &e)))?;
    let mut pause = FIRST_PAUSE;
    loop {
        let as_a_task = pauses_as_a_task(py, pause)?;
        let limit = if as_a_task { Duration::ZERO } else { SIGNAL_CHECK };
        pause = pause.saturating_mul(2).min(SIGNAL_CHECK);
        let answer = &mut answer;
        match py.detach(move || answer.recv_timeout(limit)) {
            Ok(answer) => return answer.map_err(raised),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(raised(Error::new(Code::Internal, "a defect in keymill, please report it")));
            }
        }
    }
}
