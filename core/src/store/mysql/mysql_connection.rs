//! A session as a connection of `sql`: transactions, packets of several statements, the catalogue, and sequences.
//!
//! Several reservations go as one packet of statements and one transaction: one round trip and one flush of the log for all of
//! them. (Without the transaction each statement is a commit and a flush of its own, which is most of what a reservation
//! costs.) The driver allows such packets on every connection anyway.

use super::definers::{self, TableEntry};
use super::mysql_session::{MysqlSession, Stopped};
use super::mysql_values::written_out;
use super::{Phase, answers};
use crate::request::scheme::Kept;
use crate::store::model::rows::Digits;
use crate::store::model::sequence_value::least;
use crate::store::model::value::{ColumnValue, Value, number, text};
use crate::store::server::READ_ONLY;
use crate::store::sql::{
    Changed, Connection, Counting, Dialect, Drawn, Relation, Sequences, State, Statement, Tickets, Together,
    like, sequence, step_of,
};
use crate::store::{Fault, FaultKind, Key, SerialKey};

use super::mysql_dialect::{DEADLOCK, REPLICATES};

impl Connection for MysqlSession {
    fn dialect(&self) -> Dialect {
        self.server.dialect
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<ColumnValue>>, Fault> {
        self.run(sql, values, Phase::Ask)
    }

    fn change(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        self.execute(sql, values, Phase::Write).map(|changed| changed.rows)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.begin_at(None)
    }

    /// Commits, between two tests of the server's options. After a failure the transaction was rolled back, or its outcome
    /// is unknown and the connection is not used again.
    fn commit(&mut self) -> Result<(), Fault> {
        let commit = self.server.dialect.commit();
        let fault = match (self.settings_check.within.clone(), self.settings_check.closing.clone()) {
            (Some(within), Some(closing)) => match self.say_all(&[&within, commit, &closing]) {
                Ok(_) => return Ok(()),
                Err(Stopped::At(0, error)) => self.not_passed(&error, Phase::Write),
                Err(Stopped::At(1, error)) => self.failed(&error, Phase::Commit),
                Err(Stopped::At(_, error)) => self.not_passed(&error, Phase::Commit),
                Err(Stopped::Short(answers)) => self.incomplete(answers),
            },
            _ => match self.say(commit, Phase::Commit) {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            },
        };
        self.roll_back();
        Err(fault)
    }

    /// Rolls back; a connection that cannot do that is not used again (the server rolls back when it closes).
    fn roll_back(&mut self) {
        if self.state.broken {
            return;
        }
        // Galera reports a conflict that happened between two statements in the answer to the next statement, here
        // `ROLLBACK`. The transaction was rolled back by then, and a second `ROLLBACK` succeeds.
        let mut said = answers::carry_out(&mut self.connection, "ROLLBACK");
        if matches!(&said, Err(mysql::Error::MySqlError(error)) if error.code == DEADLOCK) {
            said = answers::carry_out(&mut self.connection, "ROLLBACK");
        }
        if let (Ok(()), Some(after)) = (&said, &self.settings_check.rolled_back) {
            said = answers::carry_out(&mut self.connection, after);
        }
        self.state.broken = said.is_err();
    }

    fn commit_alone(&mut self, change: &Statement) -> Result<Changed, Fault> {
        self.execute(&change.sql(), &change.values(), Phase::Commit)
    }

    fn commit_together(&mut self, changes: &[&Statement]) -> Result<Together, Fault> {
        let probes = self.says_nowait();
        let mut rows = Vec::with_capacity(changes.len() * 2);
        for change in changes {
            if probes {
                // An `UPDATE` cannot say `NOWAIT`; a `SELECT … FOR UPDATE` before it can.
                let Statement { table, condition, condition_values, .. } = change;
                let probe = format!("SELECT 1 FROM {table} WHERE {condition} FOR UPDATE NOWAIT");
                rows.push(written_out(&probe, condition_values)?);
            }
            rows.push(written_out(&change.sql(), &change.values())?);
        }
        let each = 1 + usize::from(probes);
        let (opening, within) = (self.settings_check.opening.clone(), self.settings_check.within.clone());
        let closing = self.settings_check.closing.clone();
        let mut packet: Vec<&str> = opening.as_deref().into_iter().collect();
        packet.push(self.server.dialect.begin());
        let before = packet.len();
        packet.extend(rows.iter().map(String::as_str));
        packet.extend(within.as_deref());
        let commit = packet.len();
        packet.push(self.server.dialect.commit());
        packet.extend(closing.as_deref());
        Ok(match self.carry_out(&packet, opening.is_some(), commit)? {
            Packet::Done(done) => {
                let of_rows = done.into_iter().take(before + rows.len());
                Together::Done(of_rows.skip(before + each - 1).step_by(each).collect())
            }
            Packet::LockedAt(at) => {
                at.checked_sub(before).map_or(Together::Nothing, |at| Together::LockedAt(at / each))
            }
            Packet::Nothing => Together::Nothing,
        })
    }

    fn set_nowait(&mut self, nowait: bool) -> Result<(), Fault> {
        let seconds = if nowait { self.server.dialect.shortest_lock_wait() } else { self.lock_wait };
        // A row, and a table that another session locks or alters.
        let of_tables = match self.server.dialect {
            Dialect::TiDb => String::new(),
            _ => format!(", lock_wait_timeout = {seconds}"),
        };
        let wait = format!("SET SESSION innodb_lock_wait_timeout = {seconds}{of_tables}");
        let said = self.say(&wait, Phase::Ask);
        // A connection that still did not wait for locks would fail on every contender.
        self.state.broken |= said.is_err();
        self.state.nowait = nowait;
        said
    }

    fn commits_alone_without_waiting(&self) -> bool {
        !self.server.nowait
    }

    fn for_update(&self) -> &'static str {
        if self.says_nowait() { " FOR UPDATE NOWAIT" } else { " FOR UPDATE" }
    }

    /// TiDB has no shared lock.
    fn for_share(&self) -> &'static str {
        if self.dialect() == Dialect::TiDb { self.for_update() } else { " LOCK IN SHARE MODE" }
    }

    /// Refuses to write to a replica, and drops the connection: the next attempt may find another server.
    fn writable(&mut self) -> Result<(), Fault> {
        if self.server.read_only {
            self.state.broken = true;
            return Err(Fault::new(FaultKind::Unavailable, READ_ONLY));
        }
        if self.server.replicates && self.passes_over {
            // Its role may have changed at the next attempt.
            let judged = self.state.judge(REPLICATES.to_owned());
            self.state.broken |= judged.is_err();
            return judged;
        }
        Ok(())
    }

    fn relation(&mut self, key: &Key) -> Result<Option<Relation>, Fault> {
        let of_table = [Value::from(key.table.as_str())];
        let [table, view, trigger] = std::array::from_fn(|_| of_table[0].clone());
        let found = self.query(definers::RELATION, &[table, view, trigger])?;
        let Some(TableEntry { engine, warning }) = definers::checked(key, &found)? else { return Ok(None) };
        if let Some(warning) = warning {
            self.state.warn(warning);
        }
        let pairs = |rows: Vec<Vec<ColumnValue>>| -> Vec<(String, String)> {
            let word = |row: &[ColumnValue], column| text(row, column).unwrap_or_default().to_owned();
            rows.iter().map(|row| (word(row, 0), word(row, 1))).collect()
        };
        let columns = self.query(
            "SELECT COLUMN_NAME, IF(DATA_TYPE = 'decimal', COLUMN_TYPE, CONCAT_WS(' ', DATA_TYPE, COLLATION_NAME)) \
             FROM information_schema.COLUMNS \
             WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
            &of_table,
        )?;
        let unique = self.query(
            "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() \
             AND TABLE_NAME = ? AND NON_UNIQUE = 0",
            &of_table,
        )?;
        Ok(Some(Relation {
            columns: pairs(columns),
            unique: pairs(unique),
            storage: engine,
            ..Relation::default()
        }))
    }

    fn check_relation(&mut self, key: &Key, found: &Relation) -> Result<(), Fault> {
        let (table, engine) = (&key.table, &found.storage);
        if engine.eq_ignore_ascii_case("InnoDB") {
            return Ok(());
        }
        self.state.judge(format!("table `{table}` is kept by {engine}, not by InnoDB, and may lose commits"))
    }

    fn create(&mut self, _key: &Key, statement: &str) -> Result<(), Fault> {
        self.test_options(Phase::Ask)?;
        self.say(statement, Phase::Create)
    }

    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        let SerialKey { table, column, .. } = serial;
        // As text: of a binary column bytes would be counted, and MySQL matches no pattern with one (error 3995).
        let sql = format!(
            "SELECT `number` FROM (SELECT SUBSTRING(CONVERT(`{column}` USING utf8mb4), ?) AS `number` FROM `{table}` \
             WHERE `{column}` LIKE ? ESCAPE '|') AS `found` WHERE `number` NOT REGEXP '[^0-9]' AND CHAR_LENGTH(`number`) BETWEEN ? AND ? AND (CHAR_LENGTH(`number`) = ? OR LEFT(`number`, 1) <> '0') ORDER BY CHAR_LENGTH(`number`) DESC, `number` DESC LIMIT 1"
        );
        let (shortest, longest) = (digits.shortest as u64, digits.longest as u64);
        let after = prefix.chars().count() as u64 + 1;
        let values = [after.into(), like(prefix).into(), shortest.into(), longest.into(), shortest.into()];
        let found = self.scan(serial, &sql, &values)?;
        Ok(found.first().and_then(|row| text(row, 0)).map(str::to_owned))
    }

    fn tickets(&mut self) -> Option<&mut dyn Tickets> {
        Some(self)
    }

    fn sequences(&mut self) -> Option<&mut dyn Sequences> {
        Some(self)
    }
}

/// The outcome of a packet.
enum Packet {
    /// Carried out: the answer of each statement.
    Done(Vec<Changed>),
    /// Not carried out: another transaction has locked the row of this statement.
    LockedAt(usize),
    /// Not carried out.
    Nothing,
}

impl MysqlSession {
    /// Sends a packet: a transaction whose commit is the statement at `commit`. After a failed statement the server carries
    /// out none, and nothing was changed. `tested`: the first statement, the one before the commit and the one after it are
    /// tests of the server's options.
    fn carry_out(&mut self, packet: &[&str], tested: bool, commit: usize) -> Result<Packet, Fault> {
        let (at, error) = match self.say_all(packet) {
            Ok(done) => return Ok(Packet::Done(done)),
            Err(Stopped::Short(answers)) => return Err(self.incomplete(answers)),
            Err(Stopped::At(at, error)) => (at, error),
        };
        if tested && (at == 0 || at + 1 == commit || at > commit) {
            let phase = if at > commit { Phase::Commit } else { Phase::Write };
            let fault = self.not_passed(&error, phase);
            self.roll_back();
            return Err(fault);
        }
        let fault = self.failed(&error, Phase::Commit);
        let by_server = matches!(error, mysql::Error::MySqlError(_));
        self.roll_back();
        if by_server && at < commit || self.state.conflict {
            let locked = fault.kind == FaultKind::Locked && !self.state.broken;
            return Ok(if locked { Packet::LockedAt(at) } else { Packet::Nothing });
        }
        Err(fault)
    }
}

/// SQL sequences.
///
/// * MariaDB hands out the values of its sequences again after a crash (MDEV-36288; seen in this project's own measurements:
///   forty `NEXTVAL`, `kill -9`, the same forty again). There the scheme is refused unless `unsafe=on`.
/// * MySQL has no sequences. TiDB's statements are written from its documentation and source, and not run on a TiDB.
impl Sequences for MysqlSession {
    fn counting(&mut self, key: &Key) -> Result<Option<Counting>, Fault> {
        let table = &key.table;
        let of_table = [Value::from(table.as_str())];
        let mut made_with = None;
        let found = if self.server.dialect == Dialect::TiDb {
            let found = self.query(
                "SELECT `INCREMENT`, `CYCLE`, `START`, `CACHE` FROM information_schema.SEQUENCES \
                 WHERE SEQUENCE_SCHEMA = DATABASE() AND SEQUENCE_NAME = ?",
                &of_table,
            )?;
            if let Some(row) = found.first() {
                if text(row, 2).is_some_and(|start| start != "1") {
                    return Err(sequence::wrong(key, "does not start with 1"));
                }
                if text(row, 3).is_some_and(|cache| cache != "0") {
                    return Err(sequence::wrong(
                        key,
                        "is cached, so that each TiDB server hands out values of its own and none is known to be the next; `ALTER SEQUENCE … NOCACHE`",
                    ));
                }
            }
            found
        } else {
            let kind = self.query(
                "SELECT TABLE_TYPE, TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
                &of_table,
            )?;
            made_with = kind.first().and_then(|row| text(row, 1)).and_then(step_of);
            match kind.first().and_then(|row| text(row, 0)) {
                None => return Ok(None),
                Some(kind) if kind.eq_ignore_ascii_case("SEQUENCE") => {
                    let sql =
                        format!("SELECT increment, cycle_option, start_value, cache_size FROM `{table}`");
                    let found = self.query(&sql, &[])?;
                    let row = found.first().map_or(&[][..], Vec::as_slice);
                    if key.scheme.is_shared_sequence() {
                        self.check_shared(key, number(row, 3))?;
                    }
                    found
                }
                Some(_) => return Err(sequence::wrong(key, "is a table, not a sequence")),
            }
        };
        Ok(found.first().map(|row| Counting {
            increment: text(row, 0).and_then(|increment| increment.parse().ok()).unwrap_or(0),
            cycles: text(row, 1) != Some("0"),
            start: text(row, 2).and_then(|start| start.parse().ok()).unwrap_or(1),
            made_with,
            place: table.clone(),
        }))
    }

    fn next(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        let table = &key.table;
        if self.server.dialect == Dialect::TiDb {
            let found = self.query(&format!("SHOW TABLE `{table}` NEXT_ROW_ID"), &[])?;
            // One more than the value used last, or 1: values continue as 1, 1 + step, … from there.
            let used = found.first().and_then(|row| number(row, 3)).and_then(|next| next.checked_sub(1));
            return Ok(used.map(|used| used.div_ceil(key.step).saturating_mul(key.step).saturating_add(1)));
        }
        let found = self.query(&format!("SELECT next_not_cached_value FROM `{table}`"), &[])?;
        Ok(found.first().and_then(|row| number(row, 0)))
    }

    fn draw(&mut self, key: &Key, seen: u64) -> Result<Drawn, Fault> {
        if seen > 0 {
            // Values drawn at the same moment count only upwards.
            let next = Sequences::next(self, key)?.unwrap_or(0);
            if next < least(key, seen) {
                let ran_out = self.server.dialect == Dialect::MariaDb && self.has_ended(key)?;
                return Ok(if ran_out { Drawn::RanOut } else { Drawn::Behind { next } });
            }
        }
        self.test_options(Phase::Ask)?;
        // One autocommitted statement: a drawn value is never drawn again, except after a crash of MariaDB.
        // MariaDB's sequence is a table too, and cannot be altered while a statement uses it.
        let counting = match self.server.dialect {
            Dialect::TiDb => String::new(),
            _ => format!(", increment, cycle_option, start_value FROM `{}`", key.table),
        };
        let found = self.run(&format!("SELECT NEXTVAL(`{}`){counting}", key.table), &[], Phase::Commit);
        let value = match found {
            Ok(rows) => {
                let row = rows.first().map_or(&[][..], Vec::as_slice);
                if row.len() > 1 && (number(row, 1), number(row, 2)) != (Some(key.step), Some(0)) {
                    return Ok(Drawn::Altered);
                }
                let start = if row.len() > 3 { number(row, 3).unwrap_or(0) } else { 1 };
                number(row, 0).map(|value| Drawn::Value { value, start })
            }
            // Run out: 4084 on MariaDB, 4135 on TiDB.
            Err(_) if matches!(self.code, Some(4084 | 4135)) => return Ok(Drawn::RanOut),
            Err(fault) => return Err(fault),
        };
        self.test_options(Phase::Commit)?;
        Ok(value.unwrap_or(Drawn::Value { value: 0, start: 1 }))
    }

    fn raise(&mut self, key: &Key, used: u64) -> Result<(), Fault> {
        self.test_options(Phase::Ask)?;
        self.run(&format!("SELECT SETVAL(`{}`, {used})", key.table), &[], Phase::Commit).map(drop)
    }

    fn loser(&self) -> &'static str {
        "a failover or a crash"
    }
}

impl MysqlSession {
    /// Whether the sequence of MariaDB is at its end. Its next value is then said to be one above its last, whatever its steps.
    fn has_ended(&mut self, key: &Key) -> Result<bool, Fault> {
        let sql = format!("SELECT next_not_cached_value > maximum_value FROM `{}`", key.table);
        Ok(self.query(&sql, &[])?.first().and_then(|row| number(row, 0)) == Some(1))
    }

    /// Refuses another program's sequence of MariaDB whose values do not rise one by one.
    fn check_shared(&self, key: &Key, cache: Option<u64>) -> Result<(), Fault> {
        if self.server.in_cluster {
            let what = "is a sequence of a Galera cluster, whose nodes draw values each by itself and in no order; use `scheme=keymill`, with `start=` above every id that was issued, or number the entities by a `@TableGenerator` and `scheme=jpa_table`";
            return Err(Fault::new(FaultKind::Refused, format!("`{}` {what}", key.table)));
        }
        match cache {
            Some(0 | 1) => Ok(()),
            // Only the server knows where a cached sequence stands: keymill would not notice that it was set back.
            _ => Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "`{0}` is cached (CACHE {1}), so that it does not say which value comes next: `ALTER SEQUENCE `{0}` NOCACHE`",
                    key.table,
                    cache.map_or_else(|| "of a size that is not told".to_owned(), |cache| cache.to_string())
                ),
            )),
        }
    }
}

/// Whether a scheme is numbered by an AUTO_INCREMENT column whose names have one row each.
pub(super) fn is_replaced(key: &Key) -> bool {
    matches!(key.scheme.kept(), Kept::Ticket { stub_is_unique: true })
}
