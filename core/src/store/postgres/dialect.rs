//! What PostgreSQL says and wants to hear: placeholders and quotes, session settings, and what its SQLSTATEs mean for a
//! reservation. Pure. (floor 2)

use std::fmt::Write as _;
use std::time::Duration;

use crate::store::FaultKind;
use crate::store::server::READ_ONLY;

/// A statement as the shared code writes it, with `` `name` `` and `?`, in PostgreSQL's words: `"name"` and `$n`. Names are
/// folded to lower case, as PostgreSQL does with names that nobody quotes: who writes `table=ORDERS` finds what
/// `CREATE TABLE ORDERS` made.
pub(super) fn translated(sql: &str) -> String {
    let mut out = String::with_capacity(sql.len() + 8);
    let (mut in_name, mut in_text, mut values) = (false, false, 0);
    for c in sql.chars() {
        match c {
            '\'' if !in_name => {
                in_text = !in_text;
                out.push(c);
            }
            '`' if !in_text => {
                in_name = !in_name;
                out.push('"');
            }
            '?' if !in_text && !in_name => {
                values += 1;
                let _ = write!(out, "${values}");
            }
            _ if in_name => out.push(c.to_ascii_lowercase()),
            _ => out.push(c),
        }
    }
    out
}

/// Settings of every session. A lock held too long, or a statement that hangs, ends in the server's own answer before the
/// read timeout would make an unknown outcome of it; a client that vanished with its machine does not keep a row's lock.
pub(super) fn session(read_timeout: Duration) -> String {
    let ms = u64::try_from(read_timeout.as_millis()).unwrap_or(u64::MAX).clamp(1, i32::MAX as u64 / 5);
    format!(
        "SET lock_timeout = {lock}; SET statement_timeout = {statement}; \
         SET idle_in_transaction_session_timeout = {idle}; \
         SET client_min_messages = warning; SET standard_conforming_strings = on; \
         SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
        lock = (ms / 2).max(1),
        statement = (ms * 3 / 4).max(1),
        idle = (ms * 5).max(1000),
    )
}

/// Somebody holds a row: its lock was waited for in vain.
pub(super) const HELD: &str = "55P03";

/// The setting of a transaction that locks many rows: who holds one of them holds up all, so none is waited for long. Rivals
/// that reserve together too are through in milliseconds.
pub(super) fn hasty(wait: Duration) -> String {
    let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    format!("SET LOCAL lock_timeout = {}", ms.clamp(1, i32::MAX as u64))
}

/// The settings that decide whether a commit survives, in the order of [`ABOUT`]'s columns after the third.
pub(super) const DURABILITY: [&str; 3] = ["synchronous_commit", "fsync", "full_page_writes"];

/// What is asked of every server: version, in recovery, read-only, [`DURABILITY`], the synchronous standbys. That commits wait
/// is made this session's own setting: one that is changed in the server's file would else reach live sessions.
pub(super) const ABOUT: &str = "SELECT current_setting('server_version'), pg_is_in_recovery()::text, \
     current_setting('transaction_read_only'), \
     set_config('synchronous_commit', current_setting('synchronous_commit'), false), current_setting('fsync'), \
     current_setting('full_page_writes'), current_setting('synchronous_standby_names')";

/// Which data these are, and the timeline they are written on: the first eight digits of a log file's name.
pub(super) const HISTORY: &str = "SELECT system_identifier::text, \
     substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) FROM pg_catalog.pg_control_system()";

/// The two ends of the connection as the server sees them.
pub(super) const ENDS: &str =
    "SELECT host(inet_client_addr()), inet_client_port(), host(inet_server_addr()), inet_server_port()";

/// Why a setting loses commits; `None` where it does not.
pub(super) fn unsafe_setting(name: &str, value: &str) -> Option<String> {
    let remedy = match (name, value) {
        ("synchronous_commit", "off") => "`ALTER ROLE … SET synchronous_commit = on` is enough",
        ("fsync" | "full_page_writes", "off") => "set it to `on`",
        _ => return None,
    };
    Some(format!("the server has {name}={value}, which loses commits in a crash ({remedy})"))
}

/// What an error says about the state of things.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Not applied; somebody else was faster. The same transaction may go through now.
    Again,
    /// Whether a commit in flight was applied cannot be known.
    Unknown,
    /// As it says. `reconnect`: another server may do better, or this session is not to be used any more.
    Plain { kind: FaultKind, reconnect: bool, advice: &'static str },
}

/// A SQLSTATE's meaning. `committing`: the statement was one whose success makes a range usable.
pub(super) fn meaning(code: &str, committing: bool) -> Meaning {
    const fn plain(kind: FaultKind, reconnect: bool, advice: &'static str) -> Meaning {
        Meaning::Plain { kind, reconnect, advice }
    }
    match code {
        // Serialization failure, deadlock, lock timeout.
        "40001" | "40P01" | HELD => Meaning::Again,
        // A session that is ended while its commit waits for a standby has committed on this server.
        "40003" => Meaning::Unknown,
        _ if committing && (code.starts_with("57P") || code.starts_with("08") || code == "57014") => {
            Meaning::Unknown
        }
        "53300" | "53400" => plain(FaultKind::Unavailable, true, "the server has too many connections"),
        "53100" => plain(FaultKind::Unavailable, false, "the server's disk is full; make room"),
        "57014" => plain(FaultKind::Unavailable, true, "the server ended the statement"),
        "57P01" | "57P02" | "57P05" => plain(FaultKind::Unavailable, true, "the server ended the session"),
        "57P03" => plain(FaultKind::Unavailable, true, "the server is starting up or shutting down"),
        "25006" => plain(FaultKind::Unavailable, true, READ_ONLY),
        "25P02" | "25P03" => plain(FaultKind::Unavailable, true, ""),
        "28P01" | "28000" => plain(FaultKind::Refused, true, "check user and password"),
        "3D000" => plain(FaultKind::Refused, true, "create the database, then run `keymill init`"),
        "3F000" => plain(FaultKind::Refused, true, "no schema to create in; set the user's search_path"),
        "42P01" => plain(FaultKind::Refused, false, "run `keymill init`"),
        "42501" => plain(
            FaultKind::Refused,
            false,
            "grant this user SELECT, INSERT and UPDATE on the table (a sequence: SELECT and UPDATE)",
        ),
        "42703" | "42804" | "42883" => plain(FaultKind::Refused, false, "the table is of another shape"),
        "22001" | "22003" | "22021" | "22P05" => {
            plain(FaultKind::Refused, false, "a column is too narrow or of another character set")
        }
        // The operator intervenes, resources, system errors: it may pass.
        _ if ["08", "53", "57", "58", "XX"].iter().any(|class| code.starts_with(class)) => {
            plain(FaultKind::Unavailable, true, "")
        }
        _ => plain(FaultKind::Refused, false, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_placeholders_are_postgresqls() {
        assert_eq!(
            translated("UPDATE `KeyProducer` SET `NEXT` = ? WHERE `a` LIKE ? ESCAPE '`?|' AND x = ?"),
            "UPDATE \"keyproducer\" SET \"next\" = $1 WHERE \"a\" LIKE $2 ESCAPE '`?|' AND x = $3"
        );
    }

    #[test]
    fn a_conflict_is_repeated_and_an_ended_session_during_commit_is_unknown() {
        assert_eq!(meaning("40P01", true), Meaning::Again);
        assert_eq!(meaning("57P01", true), Meaning::Unknown);
        assert_eq!(meaning("08006", true), Meaning::Unknown);
        assert!(matches!(
            meaning("57P01", false),
            Meaning::Plain { kind: FaultKind::Unavailable, reconnect: true, .. }
        ));
        assert!(matches!(
            meaning("42P01", true),
            Meaning::Plain { kind: FaultKind::Refused, reconnect: false, .. }
        ));
        assert!(matches!(meaning("53200", false), Meaning::Plain { kind: FaultKind::Unavailable, .. }));
    }

    #[test]
    fn settings_that_lose_commits_are_told_apart() {
        assert!(unsafe_setting("synchronous_commit", "off").is_some());
        for value in ["on", "local", "remote_write", "remote_apply"] {
            assert_eq!(unsafe_setting("synchronous_commit", value), None);
        }
        assert!(unsafe_setting("fsync", "off").is_some());
    }

    #[test]
    fn waiting_ends_on_the_server_before_it_ends_here() {
        let settings = session(Duration::from_secs(2));
        assert!(settings.contains("lock_timeout = 1000;"), "{settings}");
        assert!(settings.contains("SET statement_timeout = 1500;"), "{settings}");
        assert!(session(Duration::MAX).contains("lock_timeout"), "no overflow");
    }
}
