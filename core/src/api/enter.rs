//! How every verb begins that may start something, wait or fail. A forked child gets an engine of its own or is refused, a closed
//! mill is refused, a panic becomes `INTERNAL`, and the error is counted. The id path comes here only when memory has no id.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::engine::{Engine, SharedMill};
use crate::error::fault::CommandLine;
use crate::error::task_error::TaskError;
use crate::error::{Code, Error, Result};
use crate::process::thread::panic_words;
use crate::store::Store;

use super::Source;

impl SharedMill {
    /// Runs a verb of the mill.
    pub(crate) fn enter<T>(&self, verb: impl FnOnce(&Engine) -> Result<T>) -> Result<T> {
        self.enter_for(None, verb)
    }

    fn enter_for<T>(&self, label: Option<&str>, verb: impl FnOnce(&Engine) -> Result<T>) -> Result<T> {
        self.catch_panic(|| {
            let engine = self.engine()?;
            if engine.is_closed() { Err(Engine::closed_error(label)) } else { verb(engine) }
        })
    }

    /// Runs a verb that a closed mill answers too.
    pub(crate) fn catch_panic<T>(&self, verb: impl FnOnce() -> Result<T>) -> Result<T> {
        // Unwind safety: what threads share is behind atomics, and behind locks whose poison is ignored everywhere.
        let answer = catch_unwind(AssertUnwindSafe(verb)).unwrap_or_else(|panic| {
            let what = panic_words(panic);
            Err(Error::new(Code::Internal, format!("a defect in keymill, please report it: {what}")))
        });
        answer.map_err(|error| self.failed(error))
    }

    /// Counts an error that a caller gets.
    #[cold]
    pub(crate) fn failed(&self, error: Error) -> Error {
        if let Some(engine) = self.present() {
            engine.counters.error(error.code);
        }
        error
    }

    /// Reads figures. A forked child's figures begin with its first call of another verb.
    pub(crate) fn figures<T>(&self, read: impl FnOnce(&Engine) -> T) -> Option<T> {
        let engine = self.present()?;
        self.catch_panic(|| Ok(read(engine))).ok()
    }

    /// Runs `task` with the store. The message of a fault names the commands of `line`.
    pub(crate) fn on_store<T: Send + 'static>(
        &self,
        line: CommandLine<'_>,
        task: impl FnOnce(&mut dyn Store) -> std::result::Result<T, TaskError> + Send + 'static,
    ) -> Result<T> {
        self.enter(|engine| engine.run_on_store(task).map_err(|failed| failed.error(line)))
    }
}

impl Source {
    /// Runs a verb of the source.
    pub(crate) fn enter<T>(&self, verb: impl FnOnce() -> Result<T>) -> Result<T> {
        self.shared.mill.enter_for(Some(self.label()), |_| verb())
    }

    /// Counts an error that a caller gets.
    #[cold]
    pub(crate) fn failed(&self, error: Error) -> Error {
        self.shared.mill.failed(error)
    }

    /// Runs `task` with the store.
    pub(crate) fn on_store<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut dyn Store) -> std::result::Result<T, TaskError> + Send + 'static,
    ) -> Result<T> {
        self.shared.mill.on_store(self.spec().command_line(), task)
    }
}
