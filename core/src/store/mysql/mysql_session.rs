//! A connection and what is known about it: questions, changes, transactions, and the settings that decide whether a commit
//! survives.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use mysql::{Conn, Error};

use super::mysql_dialect::{
    IN_GROUP, MISSING_TABLE, NOT_CAUGHT_UP, NOT_READY, OUT_OF_TIME, REPLICATES, Safe, wait_timeout,
};
use super::mysql_error::judge_error;
use super::mysql_values::written_out;
use super::settings_check::{Condition, NOT_PASSED, SettingsCheck};
use super::tunnel::Tunnel;
use super::{Secret, answers};
use crate::store::model::value::{ColumnValue, Value, text};
use crate::store::server::{Phase, READ_ONLY, ServerOptions};
use crate::store::sql::{Changed, Connection, Dialect, State, refused_setting};
use crate::store::tls::Protection;
use crate::store::tried;
use crate::store::{Durability, Fault, FaultKind, Remedy, SerialKey};
use crate::time::Clock;

/// After a `SELECT` that exceeded its time limit, this many times the limit passes before the next one.
const REST_AFTER_SCAN: u64 = 30;

/// What the server said about itself when the connection was made.
#[derive(Debug)]
pub(super) struct MysqlServer {
    pub(super) dialect: Dialect,
    pub(super) version: String,
    /// Its statements can carry `NOWAIT`.
    pub(super) nowait: bool,
    pub(super) durability: Vec<String>,
    pub(super) read_only: bool,
    /// It is a node of a Galera cluster.
    pub(super) in_cluster: bool,
    /// It takes writes and replicates from another server, which is therefore a primary too.
    pub(super) replicates: bool,
}

/// Why a packet of statements was not carried out completely.
pub(super) enum Stopped {
    /// After this many answers, the next statement failed.
    At(usize, Error),
    /// After this many answers, the server ended the packet.
    Short(usize),
}

/// A connection and what is known about it.
pub struct MysqlSession {
    pub(super) connection: Conn,
    /// Declared after the connection, whose `drop` still sends a packet through it.
    pub(super) line: Tunnel,
    pub(super) protection: Protection,
    pub(super) server: MysqlServer,
    /// The options tested with each change.
    pub(super) settings_check: SettingsCheck,
    pub(super) state: State,
    pub(super) password: Secret,
    /// Several hosts are configured: then a server that replicates from another one is not the primary.
    pub(super) passes_over: bool,
    /// How many seconds a locked row is waited for.
    pub(super) lock_wait: u64,
    pub(super) read_timeout: Duration,
    /// The number of the server's last error.
    pub(super) code: Option<u16>,
    pub(super) scans: Scans,
}

/// Business tables whose `SELECT` exceeded its time limit: by table and column, the boot time until which it is not
/// repeated. Owned by the store, because it outlives connections.
pub(super) type Scans = Arc<Mutex<HashMap<(String, String), u64>>>;

impl fmt::Debug for MysqlSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlSession").finish_non_exhaustive()
    }
}

impl MysqlSession {
    /// The rows and the count of a statement, by the text protocol: a server limits prepared statements across all of its
    /// clients.
    fn read(&mut self, sql: &str, phase: Phase) -> Result<(Vec<Vec<ColumnValue>>, Changed), Fault> {
        let mut rows = Vec::new();
        let (changed, read) = answers::read(&mut self.connection, sql, |row| rows.push(row));
        read.map_err(|error| self.failed(&error, phase))?;
        Ok((rows, changed.last().copied().unwrap_or_default()))
    }

    /// The rows of a statement.
    pub(super) fn run(
        &mut self,
        sql: &str,
        values: &[Value],
        phase: Phase,
    ) -> Result<Vec<Vec<ColumnValue>>, Fault> {
        self.read(&written_out(sql, values)?, phase).map(|(rows, _)| rows)
    }

    /// A change. With `Phase::Commit` it commits by itself, between two tests of the server's options.
    pub(super) fn execute(&mut self, sql: &str, values: &[Value], phase: Phase) -> Result<Changed, Fault> {
        let sql = written_out(sql, values)?;
        match phase {
            Phase::Commit => self.execute_alone(&sql),
            _ => self.read(&sql, phase).map(|(_, changed)| changed),
        }
    }

    /// Statements in one packet, with the number of rows that each changed. The server carries out none after a failed one.
    pub(super) fn say_all(&mut self, statements: &[&str]) -> Result<Vec<Changed>, Stopped> {
        let (changed, read) = answers::read(&mut self.connection, &statements.join("; "), drop);
        if let Err(error) = read {
            return Err(Stopped::At(changed.len(), error));
        }
        // Fewer answers than statements: the last of them may not have been the commit's.
        if changed.len() == statements.len() { Ok(changed) } else { Err(Stopped::Short(changed.len())) }
    }

    /// One statement that commits by itself, in one packet with the tests of the server's options before and after it.
    fn execute_alone(&mut self, sql: &str) -> Result<Changed, Fault> {
        if self.server.in_cluster {
            // A node repeats by itself a statement that commits by itself and lost against another node
            // (`wsrep_retry_autocommit`), and answers with the number of the attempt that was undone.
            self.begin()?;
            return match self.read(sql, Phase::Write) {
                Ok((_, changed)) => self.commit().map(|()| changed),
                Err(fault) => {
                    self.roll_back();
                    Err(fault)
                }
            };
        }
        let (alone, within) = (self.settings_check.alone.clone(), self.settings_check.within.clone());
        let (Some(alone), Some(within)) = (alone, within) else {
            return self.read(sql, Phase::Commit).map(|(_, changed)| changed);
        };
        match self.say_all(&[&alone, sql, self.server.dialect.commit(), &within]) {
            Ok(changed) => Ok(changed.get(1).copied().unwrap_or_default()),
            Err(Stopped::At(0, error)) => Err(self.not_passed(&error, Phase::Write)),
            Err(Stopped::At(1, error)) => Err(self.failed(&error, Phase::Commit)),
            Err(Stopped::At(2, error)) => Err(self.not_known(&error)),
            Err(Stopped::At(_, error)) => Err(self.not_passed(&error, Phase::Commit)),
            Err(Stopped::Short(answers)) => Err(self.incomplete(answers)),
        }
    }

    /// A `SELECT` on a business table, which may have many rows and no fitting index. The server ends it in time; without
    /// that limit it would run on after the client's read timeout. After exceeding the limit it is not repeated for a
    /// while.
    pub(super) fn scan(
        &mut self,
        serial: &SerialKey,
        question: &str,
        values: &[Value],
    ) -> Result<Vec<Vec<ColumnValue>>, Fault> {
        let place = (serial.table.clone(), serial.column.clone());
        let now = Clock::System.boot_ms();
        let scans = Arc::clone(&self.scans);
        // A panic while the lock was held leaves the map valid.
        let scans = || scans.lock().unwrap_or_else(PoisonError::into_inner);
        let too_long = |limit: Duration, rest_ms: u64| {
            Fault::new(
                FaultKind::Refused,
                format!(
                    "`init=max` reads the largest number in `{}`.`{}`, and the server has not found it in {} ms; it is asked again in {} s. Create an index on the column, or raise `timeout`",
                    serial.table,
                    serial.column,
                    limit.as_millis(),
                    rest_ms.div_ceil(1000)
                ),
            )
            .with_remedy(Remedy::Repair {
                first: "then ",
                row: None,
                above: "every number of the present period",
                seen: 0,
            })
        };
        // The server's limit is shorter than the read timeout: its answer leaves the connection usable, a silent connection
        // is dropped.
        let limit = self.read_timeout.mul_f64(0.75);
        if let Some(again_at) = scans().get(&place).copied().filter(|again_at| now < *again_at) {
            return Err(too_long(limit, again_at - now));
        }
        let began = Instant::now();
        let found = self.query(&self.server.dialect.limited(question, limit), values);
        let out_of_time = self.code.is_some_and(|code| OUT_OF_TIME.contains(&code))
            || self.state.broken && began.elapsed() >= limit;
        if found.is_err() && out_of_time {
            let rest_ms =
                u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).saturating_mul(REST_AFTER_SCAN);
            scans().insert(place, Clock::System.boot_ms().saturating_add(rest_ms));
            return Err(too_long(limit, rest_ms));
        }
        found
    }

    /// Tests the server's options without a change.
    pub(super) fn test_options(&mut self, phase: Phase) -> Result<(), Fault> {
        let Some(test) = self.settings_check.alone.clone() else { return Ok(()) };
        match self.say_all(&[&test]) {
            Ok(_) => Ok(()),
            Err(Stopped::At(_, error)) => Err(self.not_passed(&error, phase)),
            Err(Stopped::Short(answers)) => Err(self.incomplete(answers)),
        }
    }

    /// Why a test of the options failed; the next connection may find another server, or safe options.
    ///
    /// After a commit (`Phase::Commit`) a range was reserved; it is not used.
    pub(super) fn not_passed(&mut self, error: &Error, phase: Phase) -> Fault {
        if !matches!(error, Error::MySqlError(said) if said.code == NOT_PASSED) {
            return self.failed(error, phase);
        }
        let burnt =
            if phase == Phase::Commit { "; the range that was reserved meanwhile is never used" } else { "" };
        let asked = self
            .settings_check
            .conditions
            .iter()
            .map(|condition| format!("({}), {}", condition.sql(), condition.variable));
        let question = format!("SELECT {}", asked.collect::<Vec<_>>().join(", "));
        let found = match self.query(&question, &[]) {
            Ok(found) => found,
            Err(fault) => return fault,
        };
        self.state.broken = true;
        self.state.conflict = false;
        let Some(row) = found.first() else { return self.incomplete(0) };
        let failed = |at: &usize| text(row, at * 2) != Some("1");
        let Some(at) = (0..self.settings_check.conditions.len()).find(failed) else {
            // The option was changed and restored, or only a proxy sees another value.
            let what = format!("an option of the server was unsafe for a moment{burnt}");
            return Fault::new(
                if burnt.is_empty() { FaultKind::Unavailable } else { FaultKind::Unknown },
                what,
            );
        };
        let value = text(row, at * 2 + 1).unwrap_or("NULL");
        match self.settings_check.conditions.get(at) {
            Some(Condition { variable, safe: Some(safe), .. }) => {
                let name = variable.rsplit('.').next().unwrap_or(variable);
                Fault::new(FaultKind::Unsafe, format!("{}{burnt}", loses_commits(name, value, safe)))
            }
            _ => Fault::new(FaultKind::Unavailable, format!("{READ_ONLY}{burnt}")),
        }
    }

    /// A commit without an open transaction failed: the statement before it may have been carried out.
    fn not_known(&mut self, error: &Error) -> Fault {
        let fault = self.failed(error, Phase::Commit);
        if self.state.conflict && !self.state.broken {
            // A conflict: the next attempt reserves a range of its own.
            return fault;
        }
        self.state.broken = true;
        let what =
            format!("{fault}; whether it was done is unknown, and what it may have reserved is never used");
        Fault::new(FaultKind::Unknown, what)
    }

    /// A statement without values, by the text protocol.
    pub(super) fn say(&mut self, sql: &str, phase: Phase) -> Result<(), Fault> {
        answers::carry_out(&mut self.connection, sql).map_err(|error| self.failed(&error, phase))
    }

    /// What an error means, and how it changes this connection.
    pub(super) fn failed(&mut self, error: &Error, phase: Phase) -> Fault {
        let late = self.line.late_error();
        let error = late.as_ref().unwrap_or(error);
        let judged = judge_error(error, phase, &self.password);
        if matches!(error, Error::MySqlError(said) if said.code == MISSING_TABLE) {
            // A table that replaces it may have another shape, and `init` may have to create it.
            self.state.checked.clear();
        }
        self.code = match error {
            Error::MySqlError(said) => Some(said.code),
            _ => None,
        };
        self.state.note(judged)
    }

    /// Error for an answer that violates the protocol.
    pub(super) fn incomplete(&mut self, answers: usize) -> Fault {
        self.state.broken = true;
        let what = format!(
            "the server ended after {answers} answers; whether it was done is unknown, so those ranges are never used"
        );
        Fault::new(FaultKind::Unknown, what)
    }

    /// One variable; `None` where this server has none of that name, or this user may not see it.
    pub(super) fn variable(&mut self, name: &str) -> Result<Option<String>, Fault> {
        let mut found = None;
        let question = format!("SELECT @@{name}");
        match answers::read(&mut self.connection, &question, |row| found = text(&row, 0).map(str::to_owned)).1
        {
            Ok(()) => Ok(found),
            // A variable that is unknown, or that this user may not read. Any other error (a joining node, a shutdown) is no
            // answer.
            Err(Error::MySqlError(said)) if matches!(said.code, 1193 | 1044 | 1142 | 1143 | 1227) => Ok(None),
            Err(error) => Err(self.failed(&error, Phase::Ask)),
        }
    }

    /// The options that decide whether a commit survives: those that are safe now are tested with each change from now on.
    fn check_durability(&mut self, log_bin: bool) -> Result<(), Fault> {
        for option in self.server.dialect.durability() {
            let Safe { name, values, of_binlog } = option;
            if *of_binlog && !log_bin {
                continue;
            }
            let safe = values.join(" or ");
            match self.variable(name)? {
                Some(value) => {
                    self.server.durability.push(format!("{name}={value}"));
                    if !values.contains(&value.as_str()) {
                        self.state.judge(format!(
                            "the server has {name}={value}, which loses commits ({name}={safe} is safe)"
                        ))?;
                    } else if self.state.policy == Durability::Refuse {
                        self.test_always(
                            format!("@@GLOBAL.{name}"),
                            format!("IN ({})", values.join(", ")),
                            Some(safe),
                        );
                    }
                }
                None => self
                    .state
                    .judge(format!("`{name}` cannot be read on this server; it has to be {safe}"))?,
            }
        }
        // With that right a session can keep its statements out of the binary log, and so from every replica.
        if log_bin
            && self.state.policy == Durability::Refuse
            && self.variable("sql_log_bin")?.is_some_and(|on| is_on(&on))
        {
            self.test_always("@@SESSION.sql_log_bin".to_owned(), "= 1".to_owned(), Some("1".to_owned()));
        }
        Ok(())
    }

    /// Tests this option with each change from now on.
    fn test_always(&mut self, variable: String, test: String, safe: Option<String>) {
        self.settings_check.conditions.push(Condition { variable, test, safe });
    }

    /// Whether this server takes writes, now and with each change.
    fn check_read_only(&mut self) -> Result<(), Fault> {
        let names: &[&str] = match self.server.dialect {
            // An option of clusters; there `read_only` has no effect.
            Dialect::TiDb => &["tidb_restricted_read_only", "tidb_super_read_only"],
            _ => &["read_only"],
        };
        for name in names {
            let Some(word) = self.variable(name)? else {
                if self.server.dialect != Dialect::TiDb {
                    self.state.judge(format!(
                        "`{name}` cannot be read on this server, so keymill cannot tell whether it is a replica"
                    ))?;
                }
                continue;
            };
            // MariaDB 12 has more values for it than `ON`, and a comparison with a number would turn every text into 0.
            let off = if word.parse::<u8>().is_ok() { "= 0" } else { "= 'OFF'" };
            self.server.read_only |= word != "0" && !word.eq_ignore_ascii_case("off");
            self.test_always(format!("@@GLOBAL.{name}"), off.to_owned(), None);
        }
        Ok(())
    }

    /// Facts that only the server's status shows: that it replicates from another server, and that it writes no redo log.
    fn check_status(&mut self) -> Result<(), Fault> {
        if self.server.dialect == Dialect::TiDb {
            return Ok(());
        }
        let status = self.query(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Slaves_running', 'Slave_running', 'Innodb_redo_log_enabled')",
            &[],
        )?;
        let mut replicates = false;
        for row in &status {
            let (name, value) = (text(row, 0).unwrap_or_default(), text(row, 1).unwrap_or_default());
            if name.eq_ignore_ascii_case("Innodb_redo_log_enabled") {
                if !is_on(value) {
                    self.state.judge(
                        "the server writes no redo log (ALTER INSTANCE DISABLE INNODB REDO_LOG)".to_owned(),
                    )?;
                }
            } else {
                replicates |= is_on(value) || value.parse::<u64>().is_ok_and(|count| count > 0);
            }
        }
        if self.server.dialect == Dialect::MySql && !replicates {
            // Readable only with that right. Group replication makes its secondaries read-only itself.
            replicates = self.finds(
                "SELECT 1 FROM performance_schema.replication_connection_status \
                 WHERE SERVICE_STATE = 'ON' AND CHANNEL_NAME NOT LIKE 'group_replication%'",
            )?;
        }
        self.server.replicates = replicates;
        Ok(())
    }

    /// Whether a question has a row for an answer; `false` where this login may not ask it.
    pub(super) fn finds(&mut self, sql: &str) -> Result<bool, Fault> {
        let mut found = false;
        let (_, read) = answers::read(&mut self.connection, sql, |_| found = true);
        match read {
            Ok(()) => Ok(found),
            Err(Error::MySqlError(_)) => Ok(false),
            Err(error) => Err(self.failed(&error, Phase::Ask)),
        }
    }
}

/// The message about an option that loses commits.
fn loses_commits(name: &str, value: &str, safe: &str) -> String {
    refused_setting(&format!("the server has {name}={value}, which loses commits ({name}={safe} is safe)"))
}

/// `1`, `ON`.
fn is_on(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("on")
}

impl MysqlSession {
    /// Identifies the server, sets the session up, and checks the options that decide whether a commit survives.
    pub(super) fn introduce(&mut self, options: &ServerOptions) -> Result<(), Fault> {
        self.server.version = self.variable("version")?.unwrap_or_default();
        self.server.dialect = Dialect::of(&self.server.version);
        self.state.warnings.extend(tried::too_old(self.server.dialect.name(), &self.server.version));
        self.server.nowait = self.server.dialect.has_nowait(&self.server.version);
        let log_bin = self.variable("log_bin")?.is_some_and(|on| is_on(&on));
        let statement_binlog = log_bin
            && self.variable("binlog_format")?.is_some_and(|format| format.eq_ignore_ascii_case("statement"));
        self.lock_wait = (options.read_timeout.as_secs() / 2).max(1);
        for setting in self.server.dialect.session(self.lock_wait, options.idle_timeout, statement_binlog) {
            self.say(&setting, Phase::Ask)?;
        }
        let in_cluster = self.join_cluster()?;
        self.join_group()?;
        self.server.in_cluster = in_cluster;
        self.check_read_only()?;
        self.check_durability(log_bin)?;
        self.check_status()?;
        // A whole cluster may replicate from another one.
        self.server.replicates &= !in_cluster && !self.server.read_only;
        if self.server.replicates {
            self.state.warn(REPLICATES.to_owned());
        }
        let idle = wait_timeout(options.idle_timeout);
        let limits = (self.server.dialect == Dialect::MySql)
            .then_some((Duration::from_secs(self.lock_wait * 5), idle));
        self.settings_check = SettingsCheck::new(
            self.server.dialect,
            std::mem::take(&mut self.settings_check.conditions),
            limits,
        );
        Ok(())
    }

    /// Galera: two nodes may write the same row at once and conflict at the commit. One of them gets error 1213 and tries
    /// again.
    ///
    /// A node may answer before it has carried out what another one committed. Certification keeps such a stale node from
    /// writing, but a mill that changed hosts would find the row below what it has seen. So a `SELECT` and the
    /// beginning of a transaction wait until the node has caught up. A single statement that only writes does not wait; if it
    /// finds the row too low, a transaction looks again.
    fn join_cluster(&mut self) -> Result<bool, Fault> {
        if !self.variable("wsrep_on")?.is_some_and(|on| is_on(&on)) {
            return Ok(false);
        }
        // Allowed on every node; a node outside the primary component refuses even `SELECT 1`, unless `wsrep_dirty_reads`
        // is on.
        let status = self.query(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status', 'wsrep_cluster_size')",
            &[],
        )?;
        for row in &status {
            let (name, value) = (text(row, 0).unwrap_or_default(), text(row, 1).unwrap_or_default());
            if name.eq_ignore_ascii_case("wsrep_ready") && !is_on(value) {
                self.state.broken = true;
                return Err(Fault::new(FaultKind::Unavailable, NOT_READY));
            }
            self.server.durability.push(format!("{name}={value}"));
        }
        let provider = self.variable("wsrep_provider_options")?.unwrap_or_default();
        for option in provider.split(';').map(str::trim) {
            // Without it both halves of a split cluster would go on.
            if let Some((name @ ("pc.ignore_sb" | "pc.ignore_quorum"), value)) =
                option.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
                && !matches!(value.to_ascii_lowercase().as_str(), "false" | "no" | "off" | "0")
            {
                self.state.judge(format!(
                    "the cluster has {name}={value}: if it splits, both halves hand out the same numbers ({name}=false is safe)"
                ))?;
            }
        }
        // With that right a session can keep its statements on one node.
        self.test_always("@@SESSION.wsrep_on".to_owned(), "= 1".to_owned(), Some("1".to_owned()));
        self.say("SET SESSION wsrep_sync_wait = 1, wsrep_retry_autocommit = 0", Phase::Ask)?;
        Ok(true)
    }

    /// Group Replication. A member that left its group, or was started outside it, takes writes unless its settings say otherwise: only a
    /// member that is online in the majority is used, now and with each change.
    ///
    /// Where several members take writes, one may answer before it has carried out what another one committed, as in
    /// [`join_cluster`](Self::join_cluster). So each transaction waits until it has.
    fn join_group(&mut self) -> Result<(), Fault> {
        if self.server.dialect != Dialect::MySql
            || self.variable("group_replication_group_name")?.is_none_or(|name| name.is_empty())
        {
            return Ok(());
        }
        self.query(&format!("SELECT {IN_GROUP}"), &[])?;
        self.test_always(IN_GROUP.to_owned(), "> 0".to_owned(), None);
        let single = "group_replication_single_primary_mode";
        let is_single = self.variable(single)?.is_some_and(|on| is_on(&on));
        if !is_single {
            self.say("SET SESSION group_replication_consistency = 'BEFORE'", Phase::Ask)?;
        }
        // A group may change from one to several while it runs.
        self.test_always(format!("@@GLOBAL.{single}"), format!("= {}", u8::from(is_single)), None);
        Ok(())
    }

    /// Whether this server and driver need `NOWAIT` in each statement, while locked rows are not waited for.
    pub(super) fn says_nowait(&self) -> bool {
        self.state.nowait && self.server.nowait
    }

    /// Begins a transaction, after a test of the server's options. The test reads no row: with a lock wait's error Galera
    /// says that this node has not caught up with the others (`wsrep_sync_wait`). `level` is a statement right before
    /// `BEGIN`; it holds for the next transaction only.
    pub(super) fn begin_at(&mut self, level: Option<&str>) -> Result<(), Fault> {
        let test = self.settings_check.opening.clone();
        let statements: Vec<&str> =
            test.as_deref().into_iter().chain(level).chain([self.server.dialect.begin()]).collect();
        let fault = match self.say_all(&statements) {
            Ok(_) => return Ok(()),
            Err(Stopped::Short(answers)) => return Err(self.incomplete(answers)),
            Err(Stopped::At(0, error)) => self.not_passed(&error, Phase::Ask),
            Err(Stopped::At(_, error)) => self.failed(&error, Phase::Ask),
        };
        Err(match fault.kind {
            FaultKind::Locked => Fault::new(FaultKind::Unavailable, NOT_CAUGHT_UP),
            _ => fault,
        })
    }
}
