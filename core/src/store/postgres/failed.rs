//! Why a connection or a statement of PostgreSQL failed, before it is put in words.

use std::io;

use tokio_postgres::error::Severity;

use crate::store::Fault;

/// Why a connection could not be made.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server or the protocol refused it.
    Postgres(tokio_postgres::Error),
    /// The network or this machine refused it.
    Io(io::Error),
    /// No answer in time.
    Silent,
    /// The fault is complete.
    Fault(Fault),
}

impl Failed {
    /// The SQLSTATE of an error after which the connection is still usable.
    pub(super) fn code(&self) -> Option<&str> {
        let Failed::Postgres(error) = self else { return None };
        let said = error.as_db_error()?;
        (said.parsed_severity() == Some(Severity::Error)).then(|| said.code().code())
    }

    /// Whether the server itself reported the error.
    pub(super) fn is_said(&self) -> bool {
        matches!(self, Failed::Postgres(error) if error.as_db_error().is_some())
    }
}
