//! Why a task of the keeper failed: by its store, or by what it read or was asked for.

use std::fmt;

use super::Error;
use super::fault::{CommandLine, Fault};

/// Why a task failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskError {
    /// The store refused or failed. The commands in its message are written where the mill is known.
    Fault(Fault),
    /// Something else, as the caller gets it.
    Error(Error),
}

impl TaskError {
    /// The error that a caller gets.
    pub(crate) fn error(self, at: CommandLine<'_>) -> Error {
        match self {
            TaskError::Fault(fault) => fault.error(at),
            TaskError::Error(error) => error,
        }
    }
}

/// The message without the mill's name.
impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::Fault(fault) => fault.fmt(f),
            TaskError::Error(error) => f.write_str(&error.message),
        }
    }
}

impl From<Fault> for TaskError {
    fn from(fault: Fault) -> TaskError {
        TaskError::Fault(fault)
    }
}

impl From<Error> for TaskError {
    fn from(error: Error) -> TaskError {
        TaskError::Error(error)
    }
}
