//! A connection and what is known about it: questions, changes, transactions, and the settings that decide whether a commit
//! survives. (floor 2)

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, Error, Params};

use super::Secret;
use super::connect::Line;
use super::dialect::{DEADLOCK, Dialect, MISSING_TABLE, NOT_CAUGHT_UP, NOT_READY};
use super::error::judge_error;
use super::schemes::Open;
use super::values::text;
use crate::store::connected::Connection;
use crate::store::counter::CounterRow;
use crate::store::rows::{HASTE, HeldRow, Rows, moved_on, rolled_back_badly};
use crate::store::server::{Options, Phase, READ_ONLY};
use crate::store::tls::Protection;
use crate::store::{Durability, Facts, Fault, FaultKind, Key, Scheme};

/// Pauses between attempts grow up to so many times the first one: to some 20 ms.
const LONGEST_PAUSE: u64 = 20;

/// What the server said about itself when the connection was made.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) dialect: Dialect,
    pub(super) version: String,
    /// Its statements can say that they wait for nobody.
    pub(super) nowait: bool,
    pub(super) durability: Vec<String>,
    pub(super) read_only: bool,
}

/// A connection and what is known about it.
pub(crate) struct Session {
    pub(super) connection: Conn,
    /// After the connection, which says goodbye through it.
    #[expect(dead_code, reason = "it is kept, and ends with the connection")]
    pub(super) line: Line,
    pub(super) protection: Protection,
    pub(super) server: Server,
    pub(super) policy: Durability,
    pub(super) password: Secret,
    pub(super) warnings: Vec<String>,
    /// Tables whose shape has been checked.
    pub(super) checked: Vec<(Scheme, String)>,
    /// By table and name: rows whose step and time to live have been read.
    pub(super) known: HashMap<(String, String), CounterRow>,
    /// Rows that somebody held when they were last asked for.
    pub(super) held: HashSet<HeldRow>,
    /// How many seconds a row is waited for, and whether it is not now.
    pub(super) lock_wait: u64,
    pub(super) hasty: bool,
    /// Boot time of the last answer.
    pub(super) used_ms: u64,
    /// Not to be used again.
    pub(super) broken: bool,
    /// The last error was a conflict: the transaction may be begun again.
    pub(super) again: bool,
    /// The last error was a duplicate key.
    pub(super) duplicate: bool,
}

impl Connection for Session {
    fn is_broken(&self) -> bool {
        self.broken
    }

    fn used(&mut self, now_ms: u64) {
        self.used_ms = now_ms;
    }

    fn used_ms(&self) -> u64 {
        self.used_ms
    }

    fn check_table(&mut self, key: &Key) -> Result<bool, Fault> {
        Session::check_table(self, key)
    }

    fn forget_tables(&mut self) {
        self.checked.clear();
    }

    fn create(&mut self, statement: &str) -> Result<(), Fault> {
        self.say(statement, Phase::Write)
    }

    fn writable(&mut self) -> Result<(), Fault> {
        Session::writable(self)
    }

    fn about(&self) -> (Facts, bool) {
        let facts = Facts {
            dialect: self.server.dialect.name().to_owned(),
            version: self.server.version.clone(),
            durability: self.server.durability.clone(),
            tls: self.protection.words().to_owned(),
            warnings: self.warnings.clone(),
        };
        (facts, self.server.read_only)
    }

    fn held(&mut self) -> &mut HashSet<HeldRow> {
        &mut self.held
    }

    fn is_hasty(&self) -> bool {
        self.hasty
    }

    fn set_hasty(&mut self, hasty: bool) -> Result<(), Fault> {
        let seconds = if hasty { self.server.dialect.shortest_lock_wait() } else { self.lock_wait };
        let said = self.say(&format!("SET SESSION innodb_lock_wait_timeout = {seconds}"), Phase::Ask);
        // A connection that stayed hasty would give up on every rival.
        self.broken |= said.is_err();
        self.hasty = hasty;
        said
    }
}

impl Session {
    /// A question's rows.
    pub(super) fn ask(&mut self, sql: &str, values: impl Into<Params>) -> Result<Vec<mysql::Row>, Fault> {
        self.run(sql, values, Phase::Ask)
    }

    /// A change; answers with how many rows it changed.
    pub(super) fn execute(
        &mut self,
        sql: &str,
        values: impl Into<Params>,
        phase: Phase,
    ) -> Result<u64, Fault> {
        self.run(sql, values, phase)?;
        Ok(self.connection.affected_rows())
    }

    pub(super) fn run(
        &mut self,
        sql: &str,
        values: impl Into<Params>,
        phase: Phase,
    ) -> Result<Vec<mysql::Row>, Fault> {
        // Prepared apart: until this has been answered nothing can have been changed.
        let statement = self.connection.prep(sql).map_err(|error| self.failed(&error, Phase::Ask))?;
        // All rows are read, so that an error after the first one is not lost.
        self.connection
            .exec::<mysql::Row, _, _>(&statement, values)
            .map_err(|error| self.failed(&error, phase))
    }

    /// A statement without values, by the text protocol.
    pub(super) fn say(&mut self, sql: &str, phase: Phase) -> Result<(), Fault> {
        self.connection.query_drop(sql).map_err(|error| self.failed(&error, phase))
    }

    /// What an error means, and what it does to this connection.
    pub(super) fn failed(&mut self, error: &Error, phase: Phase) -> Fault {
        let judged = judge_error(error, phase, &self.password);
        if matches!(error, Error::MySqlError(said) if said.code == MISSING_TABLE) {
            // What comes in its place may be of another shape, and `init` has something to do again.
            self.checked.clear();
        }
        self.broken |= judged.broken;
        self.again = judged.again;
        self.duplicate = judged.duplicate;
        judged.fault
    }

    /// A server that answers otherwise than the protocol says.
    pub(super) fn incomplete(&mut self, answers: usize) -> Fault {
        self.broken = true;
        let what = format!(
            "the server ended after {answers} answers; whether it was done is unknown, so those ranges are never used"
        );
        Fault::new(FaultKind::Unknown, what)
    }

    /// A setting that loses commits: refused or noted, as configured.
    pub(super) fn judge(&mut self, found: String) -> Result<(), Fault> {
        match self.policy {
            Durability::Refuse => Err(Fault::new(
                FaultKind::Unsafe,
                format!("{found}; change it, or `durability=warn` accepts the risk of duplicates"),
            )),
            Durability::Warn => {
                if !self.warnings.contains(&found) {
                    self.warnings.push(found);
                }
                Ok(())
            }
        }
    }

    /// One variable; `None` where this server has none of that name, or this user may not see it.
    pub(super) fn variable(&mut self, name: &str) -> Result<Option<String>, Fault> {
        match self.connection.query::<mysql::Row, _>(format!("SELECT @@{name}")) {
            Ok(rows) => Ok(rows.first().and_then(|row| text(row, 0))),
            // Unknown here, or not for this user. Anything else (a node that is joining, a shutdown) is no answer.
            Err(Error::MySqlError(said)) if matches!(said.code, 1193 | 1044 | 1142 | 1143 | 1227) => Ok(None),
            Err(error) => Err(self.failed(&error, Phase::Ask)),
        }
    }

    fn check_durability(&mut self) -> Result<(), Fault> {
        let log_bin = self.variable("log_bin")?.is_some_and(|on| is_on(&on));
        for (name, safe) in self.server.dialect.durability() {
            if *name == "sync_binlog" && !log_bin {
                continue;
            }
            match self.variable(name)? {
                Some(value) => {
                    self.server.durability.push(format!("{name}={value}"));
                    if value != *safe {
                        self.judge(format!(
                            "the server has {name}={value}, which loses commits ({name}={safe} is safe)"
                        ))?;
                    }
                }
                None => self.warnings.push(format!("`{name}` cannot be read; it has to be {safe}")),
            }
        }
        Ok(())
    }
}

/// `1`, `ON`.
fn is_on(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("on")
}
impl Session {
    /// Finds out who the server is, sets the session up, and checks what decides whether a commit survives.
    pub(super) fn introduce(&mut self, options: &Options) -> Result<(), Fault> {
        self.server.version = self.variable("version")?.unwrap_or_default();
        self.server.dialect = Dialect::of(&self.server.version);
        self.server.nowait = self.server.dialect.has_nowait(&self.server.version);
        let statement_binlog = self.variable("log_bin")?.is_some_and(|on| is_on(&on))
            && self.variable("binlog_format")?.is_some_and(|format| format.eq_ignore_ascii_case("statement"));
        self.lock_wait = (options.read_timeout.as_secs() / 2).max(1);
        for setting in self.server.dialect.session(self.lock_wait, options.idle_timeout, statement_binlog) {
            self.say(&setting, Phase::Ask)?;
        }
        self.join_cluster()?;
        // MariaDB 12 has more words for it than `ON`.
        self.server.read_only =
            self.variable("read_only")?.is_some_and(|word| word != "0" && !word.eq_ignore_ascii_case("off"));
        self.check_durability()
    }

    /// Galera. Two nodes write one row at once and meet at the commit: one of them is told error 1213, and tries again.
    ///
    /// A node may answer before it has carried out what another one committed. Certification keeps such a stale node from
    /// writing, but a mill that changed hosts would find the row below what it has seen. So whatever reads (a `SELECT`, the
    /// beginning of a transaction) waits until the node has caught up; the single statement that only writes does not, and
    /// where it finds the row too low a transaction looks again.
    fn join_cluster(&mut self) -> Result<(), Fault> {
        if !self.variable("wsrep_on")?.is_some_and(|on| is_on(&on)) {
            return Ok(());
        }
        // Allowed on every node, while a node that takes no part refuses even `SELECT 1`, unless `wsrep_dirty_reads` is on.
        let status = self.ask(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status', 'wsrep_cluster_size')",
            (),
        )?;
        for row in &status {
            let (name, value) = (text(row, 0).unwrap_or_default(), text(row, 1).unwrap_or_default());
            if name.eq_ignore_ascii_case("wsrep_ready") && !is_on(&value) {
                self.broken = true;
                return Err(Fault::new(FaultKind::Unavailable, NOT_READY));
            }
            self.server.durability.push(format!("{name}={value}"));
        }
        let provider = self.variable("wsrep_provider_options")?.unwrap_or_default();
        for option in provider.split(';').map(str::trim) {
            // The halves of a split cluster would both go on.
            if let Some((name @ ("pc.ignore_sb" | "pc.ignore_quorum"), value)) =
                option.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
                && !matches!(value.to_ascii_lowercase().as_str(), "false" | "no" | "off" | "0")
            {
                self.judge(format!(
                    "the cluster has {name}={value}, with which both halves of a split one hand out the same numbers \
                     ({name}=false is safe)"
                ))?;
            }
        }
        self.say("SET SESSION wsrep_sync_wait = 1", Phase::Ask)
    }

    /// Refuses to write to a replica, and forgets it: the next attempt may find another server.
    pub(super) fn writable(&mut self) -> Result<(), Fault> {
        if self.server.read_only {
            self.broken = true;
            return Err(Fault::new(FaultKind::Unavailable, READ_ONLY));
        }
        Ok(())
    }

    /// Whether whoever is in haste has to say so in each statement.
    pub(super) fn asks_without_waiting(&self) -> bool {
        self.hasty && self.server.nowait
    }

    /// How a row is read that is to be changed.
    pub(super) fn for_update(&self) -> &'static str {
        if self.asks_without_waiting() { " FOR UPDATE NOWAIT" } else { " FOR UPDATE" }
    }

    /// The same piece of work again, with a growing, jittered pause, while others are faster (`None`, or a conflict), as
    /// long as an answer may take. On a cluster whose nodes meet at the commit that is everyday life and no outage.
    pub(super) fn patiently<T>(
        &mut self,
        patience: Duration,
        mut work: impl FnMut(&mut Session) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault> {
        let patience = if self.hasty { HASTE.min(patience) } else { patience };
        let began = Instant::now();
        let mut attempt = 0;
        loop {
            self.again = false;
            self.duplicate = false;
            let conflict = match work(self) {
                Ok(Some(done)) => return Ok(done),
                Ok(None) if self.broken => return Err(rolled_back_badly()),
                Ok(None) => None,
                // One lock's wait is enough: the other sources wait too. (To TiDB such an error may be a conflict like others.)
                Err(fault)
                    if fault.kind == FaultKind::Held
                        && !self.hasty
                        && self.server.dialect != Dialect::TiDb =>
                {
                    return Err(fault);
                }
                Err(fault) if self.again && !self.broken => Some(fault),
                Err(fault) => return Err(fault),
            };
            attempt += 1;
            let spent = began.elapsed();
            if spent >= patience {
                let mut fault = conflict.unwrap_or_else(moved_on);
                fault.message.push_str(&format!(" ({attempt} attempts in {} ms)", spent.as_millis()));
                return Err(fault);
            }
            std::thread::sleep(Duration::from_micros(fastrand::u64(200..2000) * attempt.min(LONGEST_PAUSE)));
        }
    }

    /// Begins a transaction. Nobody's row is asked for by that: Galera says by the number of a lock's wait that this node has
    /// not caught up with the others (`wsrep_sync_wait`).
    pub(super) fn begin(&mut self) -> Result<(), Fault> {
        self.say(self.server.dialect.begin(), Phase::Ask).map_err(|fault| match fault.kind {
            FaultKind::Held => Fault::new(FaultKind::Unavailable, NOT_CAUGHT_UP),
            _ => fault,
        })
    }

    /// One try: begin, work, commit. `None`: somebody else was faster, nothing was changed.
    pub(super) fn attempt<T>(
        &mut self,
        work: impl Fn(&mut dyn Rows) -> Result<Option<T>, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.again = false;
        self.duplicate = false;
        self.begin()?;
        let answer = work(&mut Open { session: self });
        match answer {
            Ok(Some(done)) => match self.say("COMMIT", Phase::Commit) {
                Ok(()) => Ok(Some(done)),
                Err(fault) => {
                    // An optimistic transaction finds the other row here.
                    self.again |= self.duplicate;
                    self.roll_back();
                    Err(fault)
                }
            },
            Ok(None) => {
                self.roll_back();
                Ok(None)
            }
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    /// Rolls back; a connection that cannot do that is not used again (the server rolls back when it closes).
    pub(super) fn roll_back(&mut self) {
        if self.broken {
            return;
        }
        // Galera: who lost against another node while nothing was asked is told so by the answer to the next statement,
        // whichever it is. It was rolled back then, and asked again says so.
        let mut said = self.connection.query_drop("ROLLBACK");
        if matches!(&said, Err(Error::MySqlError(error)) if error.code == DEADLOCK) {
            said = self.connection.query_drop("ROLLBACK");
        }
        self.broken = said.is_err();
    }
}
