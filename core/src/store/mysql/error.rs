//! What a driver's error means for a reservation, in words.

use std::io;

use mysql::{DriverError, Error};

use super::Phase;
use super::Secret;
use super::dialect::{self, HELD, MISSING_TABLE, Meaning};
use crate::store::server::{hide, unreached};
use crate::store::{Fault, FaultKind};

/// A server that took longer than `timeout`.
pub(super) const SILENT: &str = "the server did not answer in time";
/// A place where nobody takes the connection.
pub(super) const UNHEARD: &str = "the server did not answer in time: nobody takes the connection; is the address right, and no firewall in between?";
const NOT_MYSQL: &str = "the answer is not of the MySQL protocol";

/// What an error says about the range that was asked for, and about the connection.
pub(super) struct Judged {
    pub(super) fault: Fault,
    /// The connection is not to be used again.
    pub(super) broken: bool,
    /// The transaction may be begun again.
    pub(super) conflict: bool,
    /// A duplicate key.
    pub(super) duplicate: bool,
}

/// Any error that is not a server's error packet breaks the connection.
pub(super) fn judge_error(error: &Error, phase: Phase, password: &Secret) -> Judged {
    let broken = |kind, message| Judged {
        fault: Fault::new(kind, message),
        broken: true,
        conflict: false,
        duplicate: false,
    };
    let Error::MySqlError(said) = error else {
        let mut message = hide(&plain_words(error), password);
        if message == SILENT && phase == Phase::Commit {
            message.push_str(" (it is frozen or overloaded, or the commit waits for a replica that is gone)");
        }
        return if phase == Phase::Ask {
            broken(FaultKind::Unavailable, message)
        } else {
            let unknown = format!("{message}; whether it was done is unknown, so that range is never used");
            broken(FaultKind::Unknown, unknown)
        };
    };
    let (code, message) = (said.code, hide(&said.message, password));
    match dialect::meaning(code, &said.message, phase == Phase::Commit) {
        Meaning::Again => Judged {
            fault: if HELD.contains(&code) {
                let found =
                    format!("error {code}: {message} (another transaction holds its row: let it end)");
                Fault::new(FaultKind::Locked, found)
            } else {
                Fault::new(FaultKind::Unavailable, format!("error {code}: {message}"))
            },
            broken: false,
            conflict: true,
            duplicate: false,
        },
        Meaning::Unknown => broken(
            FaultKind::Unknown,
            format!("error {code}: {message}; whether it was done is unknown, so that range is never used"),
        ),
        Meaning::Plain { kind, reconnect, advice } => {
            let message = match (code, advice) {
                (MISSING_TABLE, _) => format!("{}; {advice}", missing_table(&message)),
                (1142, _) if message.starts_with("CREATE ") => {
                    format!(
                        "error {code}: {message}; let one who may run what `keymill init --dry-run` prints"
                    )
                }
                (_, "") => format!("error {code}: {message}"),
                _ => format!("error {code}: {message}; {advice}"),
            };
            Judged {
                fault: Fault::new(kind, message),
                broken: reconnect,
                conflict: false,
                duplicate: code == 1062,
            }
        }
    }
}

/// `Table 'ids.keymill_segment' doesn't exist`, as we say it.
fn missing_table(message: &str) -> String {
    let quoted = message.split('\'').nth(1);
    match quoted.and_then(|name| name.rsplit('.').next()) {
        Some(table) => format!("table `{table}` is missing"),
        None => message.to_owned(),
    }
}

/// What broke underneath, where something did.
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

/// A driver's error in words, without its debug output.
fn plain_words(error: &Error) -> String {
    let io = broken_by(error);
    let silent = SILENT.to_owned();
    let unheard = UNHEARD.to_owned();
    match (io, error) {
        (Some(io), _) if is_timeout(io.kind()) => silent,
        (Some(io), _) => format!("the connection broke: {io}"),
        (_, Error::DriverError(DriverError::ConnectTimeout)) => unheard,
        (_, Error::DriverError(DriverError::Timeout)) => silent,
        (_, Error::DriverError(DriverError::CouldNotConnect(Some((_, what, kind))))) => {
            if is_timeout(*kind) {
                unheard
            } else {
                unreached(*kind, what).unwrap_or_else(|| what.clone())
            }
        }
        (_, Error::DriverError(error)) => error.to_string(),
        (_, Error::CodecError(error)) => format!("{NOT_MYSQL} ({error}); is it a MySQL or MariaDB server?"),
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
    fn a_missing_table_is_named_with_the_command() {
        assert_eq!(
            missing_table("Table 'ids.keymill_segment' doesn't exist"),
            "table `keymill_segment` is missing"
        );
    }

    #[test]
    fn a_commit_that_nobody_answers_may_wait_for_a_replica() {
        let silent = Error::IoError(io::ErrorKind::WouldBlock.into());
        let said = |phase| judge_error(&silent, phase, &Secret::default()).fault.message;
        assert!(said(Phase::Commit).contains("waits for a replica that is gone"), "{}", said(Phase::Commit));
        assert_eq!(said(Phase::Ask), SILENT);
    }

    #[test]
    fn anything_but_an_error_packet_breaks_the_connection() {
        let cut = Error::IoError(io::ErrorKind::ConnectionReset.into());
        for (phase, kind) in [
            (Phase::Ask, FaultKind::Unavailable),
            (Phase::Write, FaultKind::Unknown),
            (Phase::Commit, FaultKind::Unknown),
        ] {
            let judged = judge_error(&cut, phase, &Secret::default());
            assert!(judged.broken);
            assert_eq!(judged.fault.kind, kind);
        }
    }
}
