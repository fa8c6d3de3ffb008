//! SQL sequences of PostgreSQL: found, drawn from and raised.

use super::owners::RelationUse;
use super::place::{FoundRelation, Place, chosen};
use super::postgres_dialect::identifier;
use super::postgres_session::PostgresSession;
use crate::store::model::sequence_value::least;
use crate::store::model::value::{ColumnValue, Value, number, text};
use crate::store::server::Phase;
use crate::store::sql::Connection;
use crate::store::sql::{Counting, Drawn, Sequences, sequence, step_of};
use crate::store::{Fault, FaultKind, Key, Remedy};

/// The advisory lock of a sequence: `keym` and its number in the catalogue. Draws share it, and a repair holds it
/// exclusively.
const LOCK: &str =
    "(1801812333::pg_catalog.int8 << 32) | pg_catalog.to_regclass(?)::pg_catalog.oid::pg_catalog.int8";

/// How a sequence counts: `increment,cycles,cache,start`. After `nextval` in a statement's columns it says how that value was drawn, as
/// the sequence cannot be altered before the statement has ended.
const COUNTING: &str = "(SELECT pg_catalog.concat_ws(',', c.increment, c.cycle_option, c.cache_size, c.start_value) FROM pg_catalog.pg_sequence_parameters(pg_catalog.to_regclass(?)::pg_catalog.oid) c)";

/// The error of a sequence without a value left.
const RAN_OUT: &str = "2200H";

/// How many values a repair draws in one statement, and at most. A million take about a second.
const DRAWS: u64 = 100_000;
const MOST_DRAWS: u64 = 2_000_000;

/// SQL sequences.
///
/// `SELECT nextval(…)` alone is not durable. A sequence writes one log record for 32 values, ahead; only the transaction
/// that wrote it waits for the disk when it commits. A draw of one of the other 31, after a first draw that was rolled back or
/// has not committed yet, has a value that the disk does not know, and after a crash it is drawn again. Giving that
/// transaction a number of its own (`txid_current()`) does not help: a commit without a log record of its own waits for
/// nothing. So each draw writes a record, a message that no process reads, in the same statement: its commit flushes the log
/// up to there, what others wrote before included, and waits for synchronous standbys.
impl Sequences for PostgresSession {
    fn counting(&mut self, key: &Key) -> Result<Option<Counting>, Fault> {
        let table = &key.table;
        let Some(relation) = self.find_sequence(key)? else { return Ok(None) };
        let found = self.query(
            "SELECT seqcache, seqincrement, seqcycle::pg_catalog.text, seqstart, \
             (SELECT d.description FROM pg_catalog.pg_description d WHERE d.objoid = seqrelid \
             AND d.classoid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AND d.objsubid = 0) \
             FROM pg_catalog.pg_sequence WHERE seqrelid = CAST(? AS pg_catalog.oid)",
            &[relation.oid.into()],
        )?;
        let Some(row) = found.first() else { return Err(sequence::wrong(key, "is a table, not a sequence")) };
        // With a cache each connection takes that many values at once: behind a pooler, and among processes, values are
        // issued out of order, and a lower one looks like a sequence that was set back.
        let cache = number(row, 0);
        if cache != Some(1) {
            let cache = cache.map_or_else(|| "more than one".to_owned(), |cache| cache.to_string());
            let place = self.place(key)?;
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "`{table}` hands out {cache} values at a time to each connection (CACHE {cache}), so they come in no order: `ALTER SEQUENCE {place} CACHE 1`"
                ),
            ));
        }
        self.check_storage(table, &relation.storage)?;
        let whole = |column| row.get(column).and_then(ColumnValue::whole).unwrap_or(-1);
        let (increment, start, cycles) = (whole(1), whole(3), text(row, 2) != Some("false"));
        let made_with = text(row, 4).and_then(step_of);
        self.check_subscriptions(table)?;
        Ok(Some(Counting { increment, cycles, start, made_with, place: self.place(key)? }))
    }

    fn next(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        let select = format!("SELECT last_value, is_called::pg_catalog.text FROM {}", self.place(key)?);
        let found = self.query(&select, &[]).map_err(|fault| self.with_grant(key, fault))?;
        Ok(found.first().and_then(|row| {
            let last = number(row, 0)?;
            Some(if text(row, 1)? == "true" { last.saturating_add(key.step) } else { last })
        }))
    }

    fn draw(&mut self, key: &Key, seen: u64) -> Result<Drawn, Fault> {
        let place = self.place(key)?;
        // In one statement, so that a sequence that was set back is left where it stands.
        let sql = format!(
            "SELECT pg_catalog.pg_advisory_xact_lock_shared({LOCK})::pg_catalog.text, \
             pg_catalog.nextval(pg_catalog.to_regclass(?)), \
             pg_catalog.pg_logical_emit_message(true, 'keymill', ''::pg_catalog.text)::pg_catalog.text, \
             {COUNTING}, {} FROM {place} s WHERE s.last_value >= CASE WHEN s.is_called THEN ? ELSE ? END{}",
            self.pinned(),
            self.own_limits(),
        );
        let name = || Value::from(place.as_str());
        let values = [name(), name(), name(), least(key, seen).saturating_sub(key.step).into(), seen.into()];
        let found = match self.run(&sql, &values, Phase::Commit) {
            Ok(rows) => rows,
            Err(_) if self.code.as_deref() == Some(RAN_OUT) => return Ok(Drawn::RanOut),
            Err(fault) => return Err(self.with_grant(key, fault)),
        };
        let Some(row) = found.first() else {
            return Ok(Drawn::Behind { next: Sequences::next(self, key)?.unwrap_or(0) });
        };
        self.check_watched_row(row, 4)?;
        let counting = text(row, 3).and_then(|counting| counting.strip_prefix(&format!("{},f,1,", key.step)));
        let Some(start) = counting.and_then(|start| start.parse().ok()) else { return Ok(Drawn::Altered) };
        Ok(Drawn::Value { value: number(row, 1).unwrap_or(0), start })
    }

    /// Only raises. Between the look at the sequence and `setval` another process may draw a higher value, and would then
    /// draw the same values again. So every draw holds a shared lock, this change holds it exclusively, and the condition
    /// is tested under it. Another program's draws hold no such lock: its sequence is raised by draws alone.
    fn raise(&mut self, key: &Key, used: u64) -> Result<(), Fault> {
        if key.scheme.is_shared_sequence() {
            return self.draw_up_to(key, used);
        }
        let place = self.place(key)?;
        self.begin()?;
        let lock = format!("SELECT pg_catalog.pg_advisory_xact_lock({LOCK})::pg_catalog.text");
        // The value of a new sequence is not used yet.
        let set = format!(
            "SELECT pg_catalog.setval(pg_catalog.to_regclass(?), ?) FROM {place} s WHERE s.last_value < CASE WHEN s.is_called THEN ? ELSE ? END"
        );
        let values = [place.as_str().into(), used.into(), used.into(), used.saturating_add(1).into()];
        let raised = self
            .run(&lock, &[place.as_str().into()], Phase::Write)
            .and_then(|_| self.run(&set, &values, Phase::Write));
        match raised {
            Ok(_) => self.commit(),
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    fn loser(&self) -> &'static str {
        "a failover"
    }
}

impl PostgresSession {
    /// Which relation the sequence of this key is. Names are folded, but for another program's sequence that is called exactly as the
    /// source says: Hibernate quotes names where it is told to.
    fn find_sequence(&mut self, key: &Key) -> Result<Option<FoundRelation>, Fault> {
        let table = &key.table;
        if !key.scheme.is_shared_sequence() {
            return self.find(table);
        }
        let mut quoted = None;
        if *table != table.to_ascii_lowercase() {
            let found = self.relations_named(table, RelationUse::Write)?;
            let known = self.known_schema(table);
            quoted = chosen(table, &found, &self.server.path, known.as_deref())?.cloned();
        }
        match (quoted, self.find(table)?) {
            (Some(_), Some(_)) => {
                let folded = table.to_ascii_lowercase();
                let what = format!(
                    "there are two sequences, `{table}` and `{folded}`, and neither knows what the other has issued: write `table={folded}` if that is the one, else rename it"
                );
                Err(Fault::new(FaultKind::Refused, what))
            }
            (Some(quoted), None) => {
                self.remember_place(table, Place::quoted(&quoted.schema, table));
                Ok(Some(quoted))
            }
            (None, Some(found)) => Ok(Some(found)),
            (None, None) => self.check_spelling(table).map(|()| None),
        }
    }

    /// Refuses a name that a sequence has in other letters: `init` would make another one beside it.
    fn check_spelling(&mut self, table: &str) -> Result<(), Fault> {
        let schema = self.known_schema(table);
        let found = self.query(
            "SELECT c.relname::pg_catalog.text, n.nspname::pg_catalog.text FROM pg_catalog.pg_class c \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relkind = 'S' AND pg_catalog.lower(c.relname::pg_catalog.text) = ?",
            &[table.to_ascii_lowercase().into()],
        )?;
        let is_near = |found_in: &str| match &schema {
            Some(schema) => schema == found_in,
            None => self.server.path.iter().any(|schema| schema == found_in),
        };
        let mut names =
            found.iter().filter(|row| text(row, 1).is_some_and(is_near)).filter_map(|row| text(row, 0));
        match names.next() {
            Some(name) => Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "sequence `{table}` is missing, and there is `{name}`: write `table={name}` if that is the one"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Refuses a sequence in a database that a subscription fills: rows come from another server, and where its sequences stand does not.
    fn check_subscriptions(&mut self, table: &str) -> Result<(), Fault> {
        let filled = self.query(
            "SELECT s.subname::pg_catalog.text FROM pg_catalog.pg_subscription s \
             JOIN pg_catalog.pg_database d ON d.oid = s.subdbid \
             WHERE s.subenabled AND d.datname = pg_catalog.current_database()",
            &[],
        );
        self.refuse_subscription(filled, |name| {
            format!(
                "subscription `{name}` fills this database with the rows of another server, whose numbers sequence `{table}` does not know (disable it and raise the sequence by `keymill repair` before numbers are counted here)"
            )
        })
    }

    /// Raises another program's sequence by drawing its values: whatever the others draw meanwhile, it only rises.
    fn draw_up_to(&mut self, key: &Key, used: u64) -> Result<(), Fault> {
        let place = self.place(key)?;
        let mut most = MOST_DRAWS;
        // The message makes the commit flush the log, as in `draw`.
        let sql = "SELECT pg_catalog.pg_logical_emit_message(true, 'keymill', ''::pg_catalog.text)::pg_catalog.text, \
             (SELECT pg_catalog.max(d.value) FROM (SELECT pg_catalog.nextval(pg_catalog.to_regclass(?)) AS value \
             FROM pg_catalog.generate_series(1::pg_catalog.int8, ?)) d)";
        loop {
            // A sequence that says no positive value has been refused.
            let next = Sequences::next(self, key)?.unwrap_or(used.saturating_add(key.step));
            let left = used.saturating_add(key.step).saturating_sub(next).div_ceil(key.step);
            if left == 0 {
                return Ok(());
            }
            if left > most {
                let what = format!(
                    "`{}` is {left} values below: other programs draw from it without a lock, so it is raised value by value, by {MOST_DRAWS} at most",
                    key.table
                );
                return Err(Fault::new(FaultKind::Refused, what).with_remedy(Remedy::Sql {
                    first: "stop every program that draws from it and run",
                    statements: vec![format!("SELECT setval('{}', {used})", place.replace('\'', "''"))],
                }));
            }
            let draws = left.min(DRAWS);
            most -= draws;
            self.begin()?;
            if let Err(fault) = self.run(sql, &[place.as_str().into(), draws.into()], Phase::Write) {
                let ran_out = self.code.as_deref() == Some(RAN_OUT);
                self.roll_back();
                return Err(if ran_out { sequence::ran_out(key) } else { self.with_grant(key, fault) });
            }
            self.commit()?;
        }
    }

    /// The fault of a right that is missing, with the statement that gives it.
    fn with_grant(&mut self, key: &Key, fault: Fault) -> Fault {
        if self.code.as_deref() != Some("42501") || self.state.broken {
            return fault;
        }
        let user = self.query("SELECT CURRENT_USER::pg_catalog.text", &[]).unwrap_or_default();
        let user = user.first().and_then(|row| text(row, 0)).map(identifier);
        let (Some(user), Ok(place)) = (user, self.place(key)) else { return fault };
        fault.instead(Remedy::Sql {
            first: "run as the owner of the sequence",
            statements: vec![format!("GRANT USAGE, SELECT ON SEQUENCE {place} TO {user}")],
        })
    }
}
