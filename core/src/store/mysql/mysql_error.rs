//! The meaning of the driver's errors for a reservation, and their texts.

use std::io;

use mysql::{DriverError, Error};

use super::Phase;
use super::Secret;
use super::mysql_dialect::{self, MISSING_TABLE};
use crate::store::server::{hide, unreached};
use crate::store::sql::judgement::{Judged, missing_table};

/// Error text for a server that took longer than `timeout`.
pub(super) const SILENT: &str = "the server did not answer in time";
/// Error text for an address at which no server accepts the connection.
pub(super) const UNHEARD: &str = "the server did not answer in time: the connection was not accepted; is the address right, and no firewall in between?";
pub(super) const NOT_MYSQL: &str = "the answer is not of the MySQL protocol";
/// Error text for the port 33060 of a MySQL.
pub(super) const IS_X: &str = "this is the port of MySQL's X protocol (`mysqlx_port`), which keymill does not speak; the server's other port is its `port`, 3306 unless it was set";
/// The question behind it.
pub(super) const IS_IT: &str = "is it a MySQL or MariaDB server?";

/// What an error means for the requested range and for the connection. Only an error packet of the server leaves the
/// connection usable.
pub(super) fn judge_error(error: &Error, phase: Phase, password: &Secret) -> Judged {
    let Error::MySqlError(said) = error else {
        let mut message = hide(&plain_words(error), password);
        if is_silent(error) && phase == Phase::Commit {
            message.push_str(" (it is frozen or overloaded, or the commit waits for a replica that is gone)");
        }
        return Judged::of_connection(message, phase);
    };
    let (code, message) = (said.code, hide(&said.message, password));
    let named = (code == MISSING_TABLE).then(|| missing_table(&message, '\''));
    let judged = Judged::of_server(mysql_dialect::meaning(code, &said.message, phase), code, &message, named);
    let fault = judged.fault.with_absence(mysql_dialect::absence(code));
    Judged { duplicate: code == 1062, fault, ..judged }
}

/// The underlying I/O or TLS error, if there is one.
pub(super) fn broken_by(error: &Error) -> Option<&io::Error> {
    match error {
        Error::IoError(error) => Some(error),
        // The driver keeps the type of this one to itself, but not its source.
        Error::CodecError(error) => {
            std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>())
        }
        _ => None,
    }
}

/// Whether a connected server took too long.
pub(super) fn is_silent(error: &Error) -> bool {
    match broken_by(error) {
        Some(io) => is_timeout(io.kind()),
        None => matches!(error, Error::DriverError(DriverError::Timeout)),
    }
}

/// The text of a driver's error, without its debug output.
fn plain_words(error: &Error) -> String {
    let unheard = UNHEARD.to_owned();
    match (broken_by(error), error) {
        _ if is_silent(error) => SILENT.to_owned(),
        (Some(io), _) => format!("the connection broke: {io}"),
        (_, Error::DriverError(DriverError::ConnectTimeout)) => unheard,
        (_, Error::DriverError(DriverError::CouldNotConnect(Some((_, what, kind))))) => {
            if is_timeout(*kind) {
                unheard
            } else {
                unreached(*kind, what).unwrap_or_else(|| what.clone())
            }
        }
        (_, Error::DriverError(error)) => error.to_string(),
        (_, Error::CodecError(error)) => format!("{NOT_MYSQL} ({error}); {IS_IT}"),
        (_, other) => other.to_string(),
    }
}

fn is_timeout(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_commit_may_wait_for_a_replica() {
        let silent = Error::IoError(io::ErrorKind::WouldBlock.into());
        let said = |phase| judge_error(&silent, phase, &Secret::default()).fault.to_string();
        assert!(said(Phase::Commit).contains("waits for a replica that is gone"), "{}", said(Phase::Commit));
        assert_eq!(said(Phase::Ask), SILENT);
    }
}
