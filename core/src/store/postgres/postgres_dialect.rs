//! PostgreSQL's dialect: placeholders and quotes, session settings, and what its SQLSTATEs mean for a reservation. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use postgres_protocol::escape::escape_identifier;

use crate::store::server::{Phase, READ_ONLY};
use crate::store::sql::judgement::Meaning;
use crate::store::{Absence, FaultKind};

/// The schemas in which a statement's operators, functions, types and collations are looked up. `pg_temp` has to be named, or
/// it would come first for tables and types.
///
/// Before statements in the same message: for the rest of their transaction.
pub(super) const PIN: &str = "SET LOCAL search_path = pg_catalog, pg_temp; ";

/// The same for a whole session.
pub(super) const PIN_SESSION: &str = "SET search_path = pg_catalog, pg_temp; ";

/// Translates a statement of the shared code (`` `name` `` and `?`) into PostgreSQL's syntax: `"name"` and `$n`. Names are
/// folded to lower case, as PostgreSQL folds unquoted names: `table=ORDERS` finds the table that `CREATE TABLE ORDERS` made.
/// Text in other quotes stays as it is.
pub(super) fn translated(sql: &str) -> String {
    let mut values = 0;
    with_placeholders(sql, |out| {
        values += 1;
        let _ = write!(out, "${values}");
    })
}

/// The same, with `value` called to write each placeholder.
pub(super) fn with_placeholders(sql: &str, mut value: impl FnMut(&mut String)) -> String {
    let mut out = String::with_capacity(sql.len() * 2);
    let mut quote = None;
    for c in sql.chars() {
        match (quote, c) {
            (Some('`'), '`') => {
                quote = None;
                out.push('"');
            }
            (Some('`'), _) => out.push(c.to_ascii_lowercase()),
            (Some(open), _) => {
                quote = quote.filter(|_| c != open);
                out.push(c);
            }
            (None, '`') => {
                quote = Some(c);
                out.push('"');
            }
            (None, '\'' | '"') => {
                quote = Some(c);
                out.push(c);
            }
            (None, '?') => value(&mut out),
            (None, _) => out.push(c),
        }
    }
    out
}

/// The name as SQL, quoted as it is.
pub(super) fn identifier(name: &str) -> String {
    escape_identifier(name)
}

/// How long the server waits: for a lock, and for a whole statement. It reports a lock held too long, or a statement that
/// hangs, before the read timeout would make the outcome unknown. A client that vanished with its machine loses its locks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    ms: u64,
}

impl Limits {
    pub(super) fn new(read_timeout: Duration) -> Limits {
        let ms = u64::try_from(read_timeout.as_millis()).unwrap_or(u64::MAX);
        Limits { ms: ms.clamp(1, i32::MAX as u64 / 5) }
    }

    /// How long a lock is waited for.
    pub(super) fn lock(self) -> Duration {
        Duration::from_millis((self.ms / 2).max(1))
    }

    fn statement_ms(self) -> u64 {
        (self.ms * 3 / 4).max(1)
    }

    fn idle_ms(self) -> u64 {
        (self.ms * 5).max(1000)
    }
}

/// Settings of a session that keymill alone uses. A session shared through a pooler gets none: they would remain for the
/// next client, and the next transaction may be on another connection.
///
/// * `jit`: keymill asks for a few rows by their key. To compile such a statement takes a second, where a role's settings or a large
///   catalogue make the planner expect a long one.
pub(super) fn session(limits: Limits) -> String {
    format!(
        "SET lock_timeout = {}; SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; SET client_min_messages = warning; SET standard_conforming_strings = on; SET jit = off; SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
        limits.lock().as_millis(),
        limits.statement_ms(),
        limits.idle_ms(),
    )
}

/// What follows `BEGIN` of a transaction that may lock rows: every setting on which a reservation relies, whatever the role, the
/// database or another client of a pooler has set. Its only row is the row of [`pinned`].
///
/// * `client_min_messages`: the server reports in a warning that a commit did not wait for its standby.
/// * `client_encoding`: a name read in another encoding would name another row.
/// * `jit`: as in [`session`].
/// * Read-only or not is left as it is: a DBA stops writing by `default_transaction_read_only`.
pub(super) fn begun(limits: Limits, lock: Duration, synchronous_commit: &str) -> String {
    let lock = u64::try_from(lock.as_millis()).unwrap_or(u64::MAX).clamp(1, i32::MAX as u64);
    format!(
        "SELECT {}, pg_catalog.set_config('lock_timeout', '{lock}', true), \
         pg_catalog.set_config('statement_timeout', '{}', true), pg_catalog.set_config('idle_in_transaction_session_timeout', '{}', true), pg_catalog.set_config('client_min_messages', 'warning', true), pg_catalog.set_config('client_encoding', 'UTF8', true), pg_catalog.set_config('jit', 'off', true)",
        pinned(synchronous_commit),
        limits.statement_ms(),
        limits.idle_ms(),
    )
}

/// Columns of a statement that commits by itself, or of a transaction's first statement. They set `synchronous_commit`
/// until after that commit, and return [`WATCHED`] as of that moment.
pub(super) fn pinned(synchronous_commit: &str) -> String {
    format!(
        "pg_catalog.set_config('synchronous_commit', '{synchronous_commit}', true), pg_catalog.current_setting('fsync', true), pg_catalog.current_setting('full_page_writes', true), pg_catalog.current_setting('synchronous_standby_names', true)"
    )
}

/// A condition that always holds, for a statement that commits by itself on a shared connection. PostgreSQL evaluates it
/// before any row is locked.
pub(super) fn own_limits(limits: Limits) -> String {
    format!(
        " AND (SELECT pg_catalog.concat(pg_catalog.set_config('lock_timeout', '{}', true), pg_catalog.set_config('client_min_messages', 'warning', true))) IS NOT NULL",
        limits.lock().as_millis()
    )
}

/// A lock wait that timed out.
pub(super) const LOCKED: &str = "55P03";

/// The server's settings that [`pinned`] and [`ABOUT`] answer with. A reload changes each of them under a live connection.
pub(super) const WATCHED: [&str; 3] = ["fsync", "full_page_writes", "synchronous_standby_names"];

/// The first query on every server: version, in recovery, read-only, `synchronous_commit` as this role and database have
/// it, [`WATCHED`], and the server's own words. `reset_val` excludes what another client of a pooler has set.
pub(super) const ABOUT: &str = "SELECT pg_catalog.current_setting('server_version'), \
     pg_catalog.pg_is_in_recovery()::pg_catalog.text, pg_catalog.current_setting('transaction_read_only'), (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'synchronous_commit'), pg_catalog.current_setting('fsync', true), pg_catalog.current_setting('full_page_writes', true), pg_catalog.current_setting('synchronous_standby_names', true), pg_catalog.version()";

/// The schemas in which this role finds tables, in the order of the `search_path` of role and database.
pub(super) const PATH: &str = "SELECT s.name::pg_catalog.text FROM \
     (SELECT pg_catalog.set_config('search_path', reset_val, true) AS path FROM pg_catalog.pg_settings WHERE name = 'search_path' OFFSET 0) AS p, LATERAL pg_catalog.unnest(pg_catalog.current_schemas(p.path IS NULL)) WITH ORDINALITY AS s(name, place) ORDER BY s.place";

/// The identity of the data, and its timeline: the first eight digits of a log file's name.
pub(super) const HISTORY: &str = "SELECT system_identifier::pg_catalog.text, \
     pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) FROM pg_catalog.pg_control_system()";

/// The two ends of the connection as the server sees them.
pub(super) const ENDS: &str = "SELECT pg_catalog.host(pg_catalog.inet_client_addr()), pg_catalog.inet_client_port(), \
     pg_catalog.host(pg_catalog.inet_server_addr()), pg_catalog.inet_server_port()";

/// The value of `synchronous_commit` to set: the configured one, or the server's default if the configured one is unknown.
pub(super) fn commit_waits(configured: &str) -> &'static str {
    ["off", "local", "remote_write", "remote_apply"]
        .into_iter()
        .find(|known| *known == configured)
        .unwrap_or("on")
}

/// Why a setting loses commits; `None` where it does not.
pub(super) fn unsafe_setting(name: &str, value: &str) -> Option<String> {
    let remedy = match (name, value) {
        ("synchronous_commit" | "fsync" | "full_page_writes", "") => {
            return Some(format!("the server does not tell its {name}, so a crash may lose commits"));
        }
        ("synchronous_commit", "off") => "`ALTER ROLE … SET synchronous_commit = on` is enough",
        ("fsync" | "full_page_writes", "off") => "set it to `on`",
        _ => return None,
    };
    Some(format!("the server has {name}={value}, which loses commits in a crash ({remedy})"))
}

/// The server has no table of this name.
pub(super) const MISSING_TABLE: &str = "42P01";
/// No right on a table, a schema or a sequence.
const FORBIDDEN: &str = "42501";

/// Why there are no rows to read, if this error says so.
pub(super) fn absence(code: &str) -> Option<Absence> {
    match code {
        MISSING_TABLE => Some(Absence::Missing),
        FORBIDDEN => Some(Absence::Forbidden),
        _ => None,
    }
}

/// Nothing of this name is there: a table, a function or an operator, another object.
pub(super) const UNKNOWN_NAME: [&str; 3] = [MISSING_TABLE, "42883", "42704"];

/// For a trigger's function that relied on its caller's `search_path`, see [`PIN`].
pub(super) const NAMES_ITS_SCHEMAS: &str = "a function at the table (of a trigger, a policy or a default) names something without its schema, and keymill calls it with no schema in the `search_path` but the server's own: write the schema in it, or run `ALTER FUNCTION … SET search_path = …`";

/// What `CREATE TABLE IF NOT EXISTS` answers where another session creates the same table in the same moment: a row of the
/// catalogue, the table, or its row type is there already.
pub(super) const CREATED_MEANWHILE: [&str; 3] = ["23505", "42P07", "42710"];

/// The meaning of a SQLSTATE.
pub(crate) fn meaning(code: &str, phase: Phase) -> Meaning {
    let plain = Meaning::plain;
    let committing = phase == Phase::Commit;
    match code {
        LOCKED => Meaning::Locked,
        // Serialization failure, deadlock.
        "40001" | "40P01" => Meaning::Conflict,
        // A session terminated while its commit waits for a standby has committed on this server.
        "40003" => Meaning::Unknown,
        _ if committing
            && (code.starts_with("57P") || code.starts_with("08") || matches!(code, "57014" | "25P04")) =>
        {
            Meaning::Unknown
        }
        "53300" | "53400" => plain(FaultKind::Unavailable, true, "the server has too many connections"),
        "53100" => plain(FaultKind::Unavailable, false, "the server's disk is full; make room"),
        "57014" => plain(FaultKind::Unavailable, false, "the server ended the statement"),
        "57P01" | "57P02" | "57P05" => plain(FaultKind::Unavailable, true, "the server ended the session"),
        // PgBouncer; from other servers, a protocol mismatch between server and driver.
        "08P01" => plain(
            FaultKind::Unavailable,
            true,
            "a pooler says so where no server is behind it, where its pool has no free connection, and in statement mode: use its transaction or session mode",
        ),
        "57P03" => plain(FaultKind::Unavailable, true, "the server is starting up or shutting down"),
        "25006" => plain(FaultKind::Unavailable, true, READ_ONLY),
        "25P02" | "25P03" | "25P04" => plain(FaultKind::Unavailable, true, ""),
        "28P01" | "28000" => plain(FaultKind::Refused, true, "check user and password"),
        "3D000" => Meaning::missing_database(),
        "3F000" => plain(
            FaultKind::Refused,
            true,
            "create the schema; if no id of this source was issued, name another with `schema=` in the store's URL",
        ),
        MISSING_TABLE => Meaning::missing_table(),
        FORBIDDEN if phase == Phase::Create => plain(
            FaultKind::Refused,
            false,
            "this user may not create in the schema; give what `keymill init --dry-run` prints to a user who may, and grant this user SELECT, INSERT and UPDATE on the table",
        ),
        FORBIDDEN => plain(
            FaultKind::Refused,
            false,
            "grant this user CONNECT on the database, USAGE on the schema, and SELECT, INSERT and UPDATE on the source's table (a sequence: SELECT and UPDATE; the table that `init=max` reads: SELECT)",
        ),
        "42703" | "42804" | "42883" => plain(FaultKind::Refused, false, "the table is of another shape"),
        "22001" | "22003" | "22021" | "22P05" => {
            plain(FaultKind::Refused, false, "a column is too narrow or of another character set")
        }
        // Operator intervention, resources, system errors: they may pass.
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
            translated(
                "UPDATE `KeyProducer` SET `NEXT` = `NEXT` + ?, b = ? WHERE `a` >= ? AND c !~ '[^0-9]=`?' RETURNING d"
            ),
            "UPDATE \"keyproducer\" SET \"next\" = \"next\" + $1, b = $2 \
             WHERE \"a\" >= $3 AND c !~ '[^0-9]=`?' RETURNING d"
        );
        assert_eq!(
            translated("SELECT a = ANY (b), x - 1 FROM \"My = `?` Schema\".\"T\" OFFSET 0"),
            "SELECT a = ANY (b), x - 1 FROM \"My = `?` Schema\".\"T\" OFFSET 0"
        );
    }

    #[test]
    fn a_conflict_is_repeated_and_an_ended_session_during_commit_is_unknown() {
        assert_eq!(meaning("40P01", Phase::Commit), Meaning::Conflict);
        assert_eq!(meaning("57P01", Phase::Commit), Meaning::Unknown);
        assert_eq!(meaning("08006", Phase::Commit), Meaning::Unknown);
        // `transaction_timeout` of PostgreSQL 17 ends the session.
        assert_eq!(meaning("25P04", Phase::Commit), Meaning::Unknown);
        assert!(matches!(
            meaning("25P04", Phase::Write),
            Meaning::Plain { kind: FaultKind::Unavailable, reconnect: true, .. }
        ));
        assert!(matches!(
            meaning("57P01", Phase::Ask),
            Meaning::Plain { kind: FaultKind::Unavailable, reconnect: true, .. }
        ));
        assert!(matches!(
            meaning("42P01", Phase::Commit),
            Meaning::Plain { kind: FaultKind::Refused, reconnect: false, .. }
        ));
        assert!(matches!(meaning("53200", Phase::Ask), Meaning::Plain { kind: FaultKind::Unavailable, .. }));
    }

    #[test]
    fn settings_that_lose_commits_are_recognised() {
        assert!(unsafe_setting("synchronous_commit", "off").is_some());
        for value in ["on", "local", "remote_write", "remote_apply"] {
            assert_eq!(unsafe_setting("synchronous_commit", value), None);
        }
        assert!(unsafe_setting("fsync", "off").is_some());
        assert!(unsafe_setting("fsync", "").is_some(), "a setting that is not told");
        assert_eq!(["remote_apply", "on", "of\'f"].map(commit_waits), ["remote_apply", "on", "on"]);
    }

    #[test]
    fn waiting_ends_on_the_server_before_it_ends_here() {
        let settings = session(Limits::new(Duration::from_secs(2)));
        assert!(settings.contains("lock_timeout = 1000;"), "{settings}");
        assert!(settings.contains("SET statement_timeout = 1500;"), "{settings}");
        assert!(session(Limits::new(Duration::MAX)).contains("lock_timeout"), "no overflow");
    }

    #[test]
    fn the_server_compiles_no_statement() {
        let limits = Limits::new(Duration::from_secs(2));
        assert!(session(limits).contains("SET jit = off;"));
        assert!(begun(limits, limits.lock(), "on").contains("set_config('jit', 'off', true)"));
    }
}
