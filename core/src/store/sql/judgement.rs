//! The meaning of an error for a reservation and for the connection.

use std::fmt;

use crate::store::server::Phase;
use crate::store::{Fault, FaultKind, Remedy};

use super::State;

/// The meaning of a server's own error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Not carried out: another transaction was faster. The same transaction may succeed now.
    Conflict,
    /// The same, and the other transaction has locked the row.
    Locked,
    /// Whether a commit in flight was carried out is unknown.
    Unknown,
    /// A fault of this kind. `reconnect`: another server may succeed, or this session must not be used again.
    Plain { kind: FaultKind, reconnect: bool, remedy: Remedy },
}

impl Meaning {
    pub(crate) const fn plain(kind: FaultKind, reconnect: bool, advice: &'static str) -> Meaning {
        Meaning::Plain { kind, reconnect, remedy: Remedy::Text(advice) }
    }

    /// Something is missing that `keymill init` creates.
    pub(crate) const fn missing_table() -> Meaning {
        Meaning::Plain { kind: FaultKind::Refused, reconnect: false, remedy: Remedy::INIT }
    }

    pub(crate) const fn missing_database() -> Meaning {
        let remedy = Remedy::Init { first: "create the database, then " };
        Meaning::Plain { kind: FaultKind::Refused, reconnect: true, remedy }
    }
}

/// The judgement of one error.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) fault: Fault,
    /// The connection must not be used again.
    pub(crate) broken: bool,
    /// The transaction may begin again.
    pub(crate) conflict: bool,
    /// A duplicate key.
    pub(crate) duplicate: bool,
}

/// Ends the message about a commit with unknown outcome.
const NEVER_USED: &str = "; whether it was done is unknown, and what it may have reserved is never used";

impl Judged {
    fn new(kind: FaultKind, message: String, broken: bool) -> Judged {
        let conflict = kind == FaultKind::Locked;
        Judged { fault: Fault::new(kind, message), broken, conflict, duplicate: false }
    }

    /// An error from below the protocol: it breaks the connection, and a commit in flight is unknown.
    pub(crate) fn of_connection(message: String, phase: Phase) -> Judged {
        match phase {
            Phase::Ask => Judged::new(FaultKind::Unavailable, message, true),
            Phase::Create | Phase::Write | Phase::Commit => {
                Judged::new(FaultKind::Unknown, message + NEVER_USED, true)
            }
        }
    }

    /// A server's own error. `named`: the message to use instead of its code and message.
    pub(crate) fn of_server(
        meaning: Meaning,
        code: impl fmt::Display,
        message: &str,
        named: Option<String>,
    ) -> Judged {
        let said = named.unwrap_or_else(|| format!("error {code}: {message}"));
        let mut judged = match meaning {
            Meaning::Conflict => {
                Judged { conflict: true, ..Judged::new(FaultKind::Unavailable, said, false) }
            }
            Meaning::Locked => {
                let said = format!("{said} (another transaction holds its row: let it end)");
                Judged::new(FaultKind::Locked, said, false)
            }
            Meaning::Unknown => Judged::new(FaultKind::Unknown, said + NEVER_USED, true),
            Meaning::Plain { kind, reconnect, remedy } => {
                let mut judged = Judged::new(kind, said, reconnect);
                if remedy != Remedy::Text("") {
                    judged.fault = judged.fault.with_remedy(remedy);
                }
                judged
            }
        };
        judged.fault = judged.fault.with_native(code);
        judged
    }
}

impl State {
    /// Records an error.
    pub(crate) fn note(&mut self, judged: Judged) -> Fault {
        self.broken |= judged.broken;
        (self.conflict, self.duplicate) = (judged.conflict, judged.duplicate);
        judged.fault
    }
}

/// The message about a missing table. Servers name it between these quotes in any language: MySQL with its database, which
/// the configuration names, PostgreSQL with its schema, which the server may have chosen.
pub(crate) fn missing_table(message: &str, quote: char) -> String {
    let name = message.split(quote).nth(1);
    match if quote == '"' { name } else { name.and_then(|name| name.rsplit('.').next()) } {
        Some(table) => format!("table `{table}` is missing"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_table_is_named() {
        for (message, quote, says) in [
            ("Table 'ids.keymill_segment' doesn't exist", '\'', "table `keymill_segment` is missing"),
            ("relation \"keymill_segment\" does not exist", '"', "table `keymill_segment` is missing"),
            (
                "relation \"ids.keymill_segment\" does not exist",
                '"',
                "table `ids.keymill_segment` is missing",
            ),
            ("Relation »x« gibt es nicht", '"', "Relation »x« gibt es nicht"),
        ] {
            assert_eq!(missing_table(message, quote), says);
        }
    }

    #[test]
    fn an_error_that_is_not_the_servers_own_breaks_the_connection() {
        for (phase, kind) in [
            (Phase::Ask, FaultKind::Unavailable),
            (Phase::Write, FaultKind::Unknown),
            (Phase::Commit, FaultKind::Unknown),
        ] {
            let judged = Judged::of_connection("cut".to_owned(), phase);
            assert!(judged.broken && !judged.conflict);
            assert_eq!(judged.fault.kind, kind);
        }
    }
}
