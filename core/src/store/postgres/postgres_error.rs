//! The meaning of PostgreSQL's errors.

use std::io;

use tokio_postgres::error::Severity;

use super::failed::Failed;
use super::login_filter::Objection;
use super::postgres_dialect::{self, MISSING_TABLE};
use crate::store::server::{self, CLOSED_EARLY, Phase, ServerOptions, hide, unreached};
use crate::store::sql::judgement::{Judged, Meaning, missing_table};
use crate::store::tls::{Mode, login_refused, not_offered, password_withheld};
use crate::store::{Fault, FaultKind, Secret};

/// Error text for a server that took longer than `timeout`.
const SILENT: &str = "the server did not answer in time";

/// What an error means for the requested range and for the connection. Only the server's own error leaves the connection
/// usable.
pub(super) fn judge(failed: &Failed, phase: Phase, password: &Secret) -> Judged {
    let said = match failed {
        Failed::Postgres(error) => error.as_db_error(),
        _ => None,
    };
    let Some(said) = said else {
        return Judged::of_connection(hide(&plain_words(failed), password), phase);
    };
    let (code, message) = (said.code().code(), hide(said.message(), password));
    // The server tells where an error arose that arose in a function. keymill's statements call only functions of the server.
    let in_function = said.where_().is_some() && postgres_dialect::UNKNOWN_NAME.contains(&code);
    let (meaning, named) = match code {
        _ if in_function => {
            (Meaning::plain(FaultKind::Refused, false, postgres_dialect::NAMES_ITS_SCHEMAS), None)
        }
        MISSING_TABLE => (postgres_dialect::meaning(code, phase), Some(missing_table(&message, '"'))),
        _ => (postgres_dialect::meaning(code, phase), None),
    };
    let judged = Judged::of_server(meaning, code, &message, named);
    // An error of severity FATAL ends the session, whatever its code.
    let ends = said.parsed_severity() != Some(Severity::Error) && !judged.conflict;
    let fault = judged.fault.with_absence(postgres_dialect::absence(code));
    Judged { duplicate: code == "23505", broken: judged.broken || ends, fault, ..judged }
}

/// Why this end stopped the login of a failed connection attempt, if it did.
pub(super) fn objection(failed: &Failed) -> Option<Objection> {
    let Failed::Postgres(error) = failed else { return None };
    let broken = std::error::Error::source(error)?.downcast_ref::<io::Error>()?;
    broken.get_ref()?.downcast_ref::<Objection>().copied()
}

/// The fault of a failed connection attempt in this mode.
pub(super) fn not_connected(options: &ServerOptions, mode: Mode, failed: Failed) -> Fault {
    let failed = match failed {
        Failed::Fault(fault) => return fault,
        other => other,
    };
    let mut fault = judge(&failed, Phase::Ask, &options.password).fault;
    if let Failed::Io(error) = &failed {
        return server::not_dialled(error, fault.to_string());
    }
    if matches!(failed, Failed::Silent) {
        fault = fault.because(format!(
            "{SILENT}: the login was not over within {:?}; is it a PostgreSQL server, and awake?",
            options.read_timeout
        ));
    }
    let stopped = objection(&failed);
    let Failed::Postgres(error) = &failed else { return fault };
    let source = std::error::Error::source(error);
    // The server's part of SCRAM failed. The driver shows no kind of its errors, only these words. No second attempt: it would show
    // another program in the server's place one more proof.
    if error.to_string() == "authentication error"
        && let Some(why) = source
    {
        return Fault::new(
            FaultKind::Refused,
            format!(
                "the server did not prove that it knows the password of user `{}` ({why}), and nothing more was sent: another program may answer in its place, or change what passes between; check the host and port",
                options.user
            ),
        );
    }
    let broken = source.and_then(|source| source.downcast_ref::<io::Error>());
    if let Some(broken) = broken {
        match stopped {
            Some(Objection::Password) => return password_withheld("the password in clear", mode),
            Some(Objection::NoTls) => return not_offered(),
            Some(Objection::TooLong | Objection::NotPostgres) => {
                return Fault::new(FaultKind::Unavailable, broken.to_string());
            }
            None => {}
        }
        // Another attempt would fail too.
        if let Some(refused) = crate::store::tls::refusal(broken) {
            return refused;
        }
    }
    match (error.as_db_error(), broken) {
        (Some(said), _) if matches!(said.code().code(), "28P01" | "28000") => {
            fault = fault.because(login_refused(options, mode));
            // Only the server knows that its rules have no line for this address or database, or that the role may not log in.
            if said.code().code() == "28000" {
                let words = hide(said.message(), &options.password);
                fault = fault.and(&format!("; the server says: {words}"));
            }
        }
        // PgBouncer's answer to a wrong password, an unknown database, and a server behind it that is not there.
        (Some(said), _) if said.code().code() == "08P01" => {
            let words = hide(said.message(), &options.password);
            fault = fault.because(format!(
                "error 08P01: {words}; a pooler says so of the user, the password or the database, or of the server behind it"
            ));
        }
        (None, Some(broken)) if broken.kind() == io::ErrorKind::InvalidData => {
            fault = fault.because(format!(
                "it does not answer as PostgreSQL does ({broken}); is it a PostgreSQL server?"
            ));
        }
        (None, Some(broken)) if server::is_closed(broken.kind()) => {
            fault = fault.and(&format!("; {CLOSED_EARLY}"));
        }
        (None, None) if error.is_closed() => fault = fault.and(&format!("; {CLOSED_EARLY}")),
        (Some(_), _) | (None, Some(_)) => {}
        // An unsupported login method, or a server of another protocol.
        (None, None) => {
            fault.kind = FaultKind::Refused;
            if source.is_none() {
                fault = fault.and("; is it a PostgreSQL server?");
            }
        }
    }
    fault
}

/// The text of a driver's error, without its debug output.
fn plain_words(failed: &Failed) -> String {
    match failed {
        Failed::Fault(fault) => fault.to_string(),
        Failed::Silent => SILENT.to_owned(),
        Failed::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            format!(
                "{SILENT}: the connection was not accepted; is the address right, and no firewall in between?"
            )
        }
        Failed::Io(error) => match error.raw_os_error() {
            Some(_) => unreached(error.kind(), &error.to_string()).unwrap_or_else(|| error.to_string()),
            None => error.to_string(),
        },
        Failed::Postgres(error) if error.is_closed() => "the connection broke".to_owned(),
        Failed::Postgres(error) => match std::error::Error::source(error) {
            Some(source) if source.is::<io::Error>() => format!("the connection broke: {source}"),
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}
