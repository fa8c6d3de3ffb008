//! What MySQL, MariaDB and TiDB have in common and where they differ: versions, session settings, durability, and what
//! their error numbers mean for a reservation.

use std::time::Duration;

use crate::store::server::{Phase, READ_ONLY};
use crate::store::sql::Dialect;
use crate::store::sql::judgement::Meaning;
use crate::store::{Absence, FaultKind};

use super::settings_check::ALL_ROWS;

impl Dialect {
    /// By `@@version`: `10.11.19-MariaDB-…`, `8.0.11-TiDB-v8.5.1`, `8.4.2`.
    pub(super) fn of(version: &str) -> Dialect {
        let version = version.to_ascii_lowercase();
        if version.contains("tidb") {
            Dialect::TiDb
        } else if version.contains("mariadb") {
            Dialect::MariaDb
        } else {
            Dialect::MySql
        }
    }

    /// `SELECT … FOR UPDATE` waits only inside a pessimistic transaction, whatever `tidb_txn_mode` says: older clusters
    /// default to optimistic ones, and an autocommitted statement is always optimistic first.
    pub(super) const fn begin(self) -> &'static str {
        match self {
            Dialect::TiDb => "BEGIN PESSIMISTIC",
            _ => "START TRANSACTION",
        }
    }

    /// TiDB's servers name AUTO_INCREMENT values from stocks of their own, or from one allocator that has named values twice
    /// when it moved (pingcap/tidb #46444, #52600, #52622, #53016): there a ticket has to be above every row of its table.
    pub(super) const fn counts_apart(self) -> bool {
        matches!(self, Dialect::TiDb)
    }

    /// Settings of every session. `lock_wait` is in seconds and shorter than the read timeout, so that a lock held too
    /// long ends in the server's own answer and not in an unknown outcome.
    pub(super) fn session(self, lock_wait: u64, idle: Duration, statement_binlog: bool) -> Vec<String> {
        let wait_timeout = wait_timeout(idle).as_secs();
        let mut settings = vec![
            "SET NAMES utf8mb4".to_owned(),
            format!(
                // Strict: a name or a number that does not fit is an error, never cut. `wait_timeout`: a client that
                // vanished with its machine would otherwise hold a row's lock for eight hours. `unique_checks`: without, two
                // rows of one name can be made.
                "SET SESSION autocommit = 1, sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', innodb_lock_wait_timeout = {lock_wait}, wait_timeout = {wait_timeout}, {ALL_ROWS}, unique_checks = 1"
            ),
        ];
        if self == Dialect::MariaDb {
            settings.push(format!("SET SESSION idle_transaction_timeout = {}", lock_wait * 5));
        }
        if self != Dialect::TiDb {
            // For a table that another client alters or locks: the server would go on waiting after the client's read
            // timeout, once for each attempt.
            settings.push(format!("SET SESSION lock_wait_timeout = {lock_wait}"));
        }
        // No gap locks: sixteen processes that use a key for the first time would deadlock on them. Statement-based
        // binary logs allow no such transactions; there the deadlocks are retried.
        if self != Dialect::TiDb && !statement_binlog {
            settings.push("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned());
        }
        settings
    }

    /// The shortest lock wait in seconds: only MariaDB has 0.
    pub(super) const fn shortest_lock_wait(self) -> u64 {
        match self {
            Dialect::MariaDb => 0,
            _ => 1,
        }
    }

    /// Whether a statement can carry `NOWAIT` itself (`FOR UPDATE NOWAIT`). MariaDB does not need it: there a session
    /// setting covers all statements.
    pub(super) fn has_nowait(self, version: &str) -> bool {
        let major = || version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        match self {
            Dialect::MySql => major().is_some_and(|major| major >= 8),
            Dialect::TiDb => true,
            _ => false,
        }
    }

    /// What ends a transaction. An option (`completion_type`) may let a bare `COMMIT` begin the next one.
    pub(super) const fn commit(self) -> &'static str {
        match self {
            Dialect::TiDb => "COMMIT",
            _ => "COMMIT AND NO CHAIN NO RELEASE",
        }
    }

    /// The options that decide whether a commit survives.
    pub(super) const fn durability(self) -> &'static [Safe] {
        const fn safe(values: &'static [&'static str]) -> [Safe; 2] {
            [
                Safe { name: "innodb_flush_log_at_trx_commit", values, of_binlog: false },
                Safe { name: "sync_binlog", values: &["1"], of_binlog: true },
            ]
        }
        match self {
            // 3 flushes twice, as servers did before group commit.
            Dialect::MariaDb => const { &safe(&["1", "3"]) },
            Dialect::MySql => const { &safe(&["1"]) },
            // TiKV writes by Raft; these variables are there but mean nothing.
            _ => &[],
        }
    }

    /// A `SELECT` that the server itself ends after this time.
    pub(super) fn limited(self, select: &str, limit: Duration) -> String {
        match (self, select.strip_prefix("SELECT ")) {
            (Dialect::MariaDb, _) => {
                format!(
                    "SET STATEMENT max_statement_time = {:.3} FOR {select}",
                    limit.as_secs_f64().max(0.001)
                )
            }
            (_, Some(rest)) => {
                format!("SELECT /*+ MAX_EXECUTION_TIME({}) */ {rest}", limit.as_millis().max(1))
            }
            (_, None) => select.to_owned(),
        }
    }
}

/// An option on which a commit's durability depends.
#[derive(Debug)]
pub(super) struct Safe {
    pub(super) name: &'static str,
    /// The values that are safe.
    pub(super) values: &'static [&'static str],
    /// It matters only with a binary log.
    pub(super) of_binlog: bool,
}

/// How long the server waits for a client's next statement: longer than keymill lets a connection be idle, so that the server
/// never has to close one whose client lives.
pub(super) const fn wait_timeout(idle: Duration) -> Duration {
    idle.saturating_add(Duration::from_secs(10))
}

/// The server ended a statement that exceeded its time limit: MariaDB's number and MySQL's.
pub(super) const OUT_OF_TIME: [u16; 2] = [1969, 3024];

/// Warning text for a server that takes writes and also replicates from another server.
pub(super) const REPLICATES: &str = "the server is not read-only and replicates from another server: where programs write to both, numbers come twice; set read_only=1 on replicas, and name the primary";

/// The server has no table of this name.
pub(super) const MISSING_TABLE: u16 = 1146;
/// `require_secure_transport`: the login was not encrypted.
const DEMANDS_TLS: u16 = 3159;

/// Whether the server refuses user and password, or a login without TLS.
pub(super) fn refuses_login(code: u16) -> bool {
    matches!(code, 1045 | 1698 | DEMANDS_TLS)
}

/// Why there are no rows to read, if this error says so.
pub(super) const fn absence(code: u16) -> Option<Absence> {
    match code {
        MISSING_TABLE => Some(Absence::Missing),
        // No right on the table, or on one of its columns.
        1142 | 1143 => Some(Absence::Forbidden),
        _ => None,
    }
}

/// A deadlock, or on Galera a lost certification against another node: rolled back.
pub(super) const DEADLOCK: u16 = 1213;

/// `HA_ERR_LOCK_DEADLOCK` of MySQL's storage engines.
const ENGINE_DEADLOCK: u16 = 149;

/// The first number in a server's message, which may be in any language.
fn first_number(message: &str) -> Option<u16> {
    let digits = message.split(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty());
    digits.and_then(|digits| digits.parse().ok())
}

/// Error text for a Galera node outside the primary component.
pub(super) const NOT_READY: &str =
    "this node of the cluster is not ready: it has no quorum or is still joining";

/// Error text for a Galera node that has not applied in time what the other nodes committed.
pub(super) const NOT_CAUGHT_UP: &str = "the server did not begin a transaction in time: this node of the cluster lags behind the others, or has lost them";

/// A function that only a member of a group can carry out that is online and has the majority with it, for any login.
pub(super) const IN_GROUP: &str = "group_replication_get_write_concurrency()";
const OUTSIDE_GROUP: &str = "the server is set up for a replication group, but is not in the group or has no majority: the group does not get what it writes, and numbers would come twice; START GROUP_REPLICATION, and set super_read_only=ON in its settings so that it takes no writes before that";

/// The meaning of an error number.
pub(crate) fn meaning(code: u16, message: &str, phase: Phase) -> Meaning {
    let plain = Meaning::plain;
    let committing = phase == Phase::Commit;
    // TiDB has errors without a number of their own, so their texts decide.
    let says = |part: &str| message.to_ascii_lowercase().contains(part);
    match code {
        // A lock wait that timed out, or a locked row under `NOWAIT`.
        1205 | 3572 => Meaning::Locked,
        // Deadlock, a deadlock over the next AUTO_INCREMENT, record or table definition changed, certification of group
        // replication; TiDB: write conflict, transaction to be repeated, schema changed.
        DEADLOCK | 1467 | 1020 | 1412 | 3101 | 9007 | 8002 | 8005 | 8022 | 8027 | 8028 => Meaning::Conflict,
        1105 if says("information schema is changed") || says("try again later") => Meaning::Conflict,
        // A commit that failed. The text names the storage engine's own error. A deadlock stands there where a transaction lost
        // the certification of group replication and was rolled back.
        1180 if first_number(message) == Some(ENGINE_DEADLOCK) => Meaning::Conflict,
        // And a hook of group replication that failed at the commit: the member has lost its group, or left it.
        1180 | 3100 => Meaning::Unknown,
        1123 => plain(FaultKind::Unavailable, true, OUTSIDE_GROUP),
        // Killed or shut down in the middle, TiKV or its placement driver did not answer; TiDB also says
        // 1105 for what has no number of its own, an undetermined commit among it.
        1053 | 1105 | 1317 | 1927 | 1969 | 3024 | 4031 | 9001..=9005 | 9008 if committing => Meaning::Unknown,
        _ if committing && says("undetermined") => Meaning::Unknown,
        1461 => plain(
            FaultKind::Unavailable,
            true,
            "the server keeps too many prepared statements; raise max_prepared_stmt_count",
        ),
        // Memory, sort buffers, threads, locks, undo slots.
        1037 | 1038 | 1041 | 1135 | 1206 | 1637 => {
            plain(FaultKind::Unavailable, true, "the server has run out of something; see its log")
        }
        1040 | 1203 => plain(FaultKind::Unavailable, true, "the server has too many connections"),
        1226 => plain(FaultKind::Unavailable, true, "a limit of the user's account is used up"),
        1047 => plain(FaultKind::Unavailable, true, NOT_READY),
        1290 | 1792 | 1836 | 3989 => plain(FaultKind::Unavailable, true, READ_ONLY),
        // MySQL in maintenance mode, or a node that left its group: logins are rejected, another host may serve.
        3032 => plain(
            FaultKind::Unavailable,
            true,
            "it is in maintenance, or has left its group: SET GLOBAL offline_mode = OFF lets users in again",
        ),
        1053 | 1317 | 1927 | 1969 | 3024 => {
            plain(FaultKind::Unavailable, true, "the server ended the statement")
        }
        1021 | 1114 => plain(FaultKind::Unavailable, false, "the server's disk is full; make room"),
        1030 | 1129 | 1158..=1161 | 1615 | 1243 | 4031 | 9001..=9005 | 9008 => {
            plain(FaultKind::Unavailable, true, "")
        }
        1045 | 1698 => plain(FaultKind::Refused, true, "check user and password"),
        DEMANDS_TLS => {
            plain(FaultKind::Refused, true, "the server demands TLS: `tls=require`, or `tls=verify`")
        }
        1130 => {
            plain(FaultKind::Refused, true, "the server takes no connections from this machine for this user")
        }
        1184 if says("init_connect") => plain(
            FaultKind::Refused,
            true,
            "a statement of the server's init_connect fails for this user; change it as an administrator",
        ),
        1049 => Meaning::missing_database(),
        MISSING_TABLE => Meaning::missing_table(),
        1044 => plain(
            FaultKind::Refused,
            false,
            "check the database's name, or grant this user rights in it: SELECT, INSERT and UPDATE on the table (schemes `auto_increment` and `ticket`: SELECT, INSERT and DELETE)",
        ),
        1142 if phase == Phase::Create => plain(
            FaultKind::Refused,
            false,
            "if the table is there, grant this user its rights on it; else give what `keymill init --dry-run` prints to a user who may create tables",
        ),
        1142 | 1143 | 1227 => plain(
            FaultKind::Refused,
            false,
            "grant this user SELECT, INSERT and UPDATE on the source's table (schemes `auto_increment` and `ticket`: SELECT, INSERT and DELETE), and only SELECT on the table that `init=max` reads; if there is no such table yet, create it first, as `keymill init --dry-run` prints it",
        ),
        1264 | 1267 | 1271 | 1366 | 1406 | 1690 | 3988 => {
            plain(FaultKind::Refused, false, "a column is too narrow or of another character set")
        }
        1054 => plain(FaultKind::Refused, false, "the table is of another shape"),
        // The next connection finds the index.
        1176 => plain(FaultKind::Unavailable, true, "the index of the table's unique key was replaced"),
        _ => plain(FaultKind::Refused, false, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Remedy;

    #[test]
    fn a_version_names_the_dialect() {
        assert_eq!(Dialect::of("10.11.19-MariaDB-0+deb12u1"), Dialect::MariaDb);
        assert_eq!(Dialect::of("8.0.11-TiDB-v8.5.1"), Dialect::TiDb);
        assert_eq!(Dialect::of("8.4.2"), Dialect::MySql);
        assert!(Dialect::MySql.has_nowait("8.0.33") && Dialect::MySql.has_nowait("26.10.0"));
        assert!(!Dialect::MySql.has_nowait("5.7.44-log") && !Dialect::MySql.has_nowait(""));
    }

    #[test]
    fn a_conflict_is_repeated_and_a_kill_during_commit_is_unknown() {
        assert_eq!(meaning(1213, "Deadlock found", Phase::Commit), Meaning::Conflict);
        let lost = "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT";
        assert_eq!(meaning(1180, lost, Phase::Write), Meaning::Conflict);
        assert_eq!(
            meaning(1180, "Got error 28 - 'No space left' during COMMIT", Phase::Commit),
            Meaning::Unknown
        );
        assert_eq!(meaning(1317, "Query execution was interrupted", Phase::Commit), Meaning::Unknown);
        let hook = "Error on observer while running replication hook 'before_commit'.";
        assert_eq!(meaning(3100, hook, Phase::Write), Meaning::Unknown);
        // MySQL 8.0.24 and later say so before they close a connection that was silent for `wait_timeout`.
        assert_eq!(meaning(4031, "disconnected because of inactivity", Phase::Commit), Meaning::Unknown);
        assert!(matches!(
            meaning(4031, "", Phase::Ask),
            Meaning::Plain { kind: FaultKind::Unavailable, reconnect: true, .. }
        ));
        assert_eq!(meaning(8229, "execution result Undetermined", Phase::Commit), Meaning::Unknown);
        assert_eq!(meaning(1105, "[global:2]execution result undetermined", Phase::Commit), Meaning::Unknown);
        assert_eq!(meaning(1105, "Information schema is changed", Phase::Commit), Meaning::Conflict);
        assert!(matches!(meaning(1317, "", Phase::Ask), Meaning::Plain { kind: FaultKind::Unavailable, .. }));
        let advice = |code| match meaning(code, "", Phase::Ask) {
            Meaning::Plain { remedy: Remedy::Text(advice), .. } => advice,
            other => panic!("{other:?}"),
        };
        assert!(
            advice(1044).contains("name") && advice(1044).contains("grant") && !advice(1142).contains("name")
        );
        for passes in [1037, 1135, 1206, 1461, 1637] {
            assert!(
                matches!(
                    meaning(passes, "", Phase::Commit),
                    Meaning::Plain { kind: FaultKind::Unavailable, .. }
                ),
                "{passes}"
            );
        }
        assert!(matches!(meaning(1146, "", Phase::Commit), Meaning::Plain { kind: FaultKind::Refused, .. }));
    }
}
