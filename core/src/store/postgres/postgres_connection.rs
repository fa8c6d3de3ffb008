//! A session as a connection of `sql`: transactions and the catalogue.
//!
//! Names are written in lower case, as an old node finds them that quotes nothing.

use std::time::Duration;

use super::owners::{Other, RELATIONS, RelationOwner, RelationUse};
use super::place::{FoundRelation, Place, chosen};
use super::postgres_dialect::{self, CREATED_MEANWHILE};
use super::postgres_session::PostgresSession;
use super::postgres_wire::WireStatement;
use crate::request::scheme::Kept;
use crate::store::model::rows::Digits;
use crate::store::model::value::{ColumnValue, Value, number, text};
use crate::store::server::{Phase, READ_ONLY};
use crate::store::sql::{
    Changed, Connection, Dialect, NOWAIT_PATIENCE, Relation, Sequences, State, Statement, Together, like,
    sequence, wrong,
};
use crate::store::{Absence, Fault, FaultKind, Key, Remedy, SerialKey};

impl Connection for PostgresSession {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<ColumnValue>>, Fault> {
        self.run(sql, values, Phase::Ask)
    }

    fn change(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        self.execute(sql, values)
    }

    fn make_some(&mut self, insert: &str, values: &[Value]) -> Result<Option<Vec<Vec<ColumnValue>>>, Fault> {
        // Without it one row that another process was faster to make would fail all of them.
        let sql = format!("{insert} ON CONFLICT DO NOTHING RETURNING `name`");
        self.run(&sql, values, Phase::Write).map(Some)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        let wait = if self.state.nowait { NOWAIT_PATIENCE } else { self.limits().lock() };
        self.open_transaction(wait).inspect_err(|_| {
            // The transaction may have begun in spite of the error.
            self.roll_back();
        })
    }

    fn commit(&mut self) -> Result<(), Fault> {
        self.say(&WireStatement::Commit, Phase::Commit).inspect_err(|_| self.roll_back())
    }

    fn roll_back(&mut self) {
        if self.state.broken {
            return;
        }
        // The caller still asks what the failed statement meant.
        let (conflict, duplicate, code) = (self.state.conflict, self.state.duplicate, self.code.take());
        if self.say(&WireStatement::RollBack, Phase::Ask).is_err() {
            self.state.broken = true;
        }
        (self.state.conflict, self.state.duplicate, self.code) = (conflict, duplicate, code);
    }

    fn commit_alone(&mut self, change: &Statement) -> Result<Changed, Fault> {
        let found = self.run(&self.committing(change), &change.values(), Phase::Commit)?;
        self.changed(&found)
    }

    fn commit_together(&mut self, changes: &[&Statement]) -> Result<Together, Fault> {
        const SHORTEST: Duration = Duration::from_millis(1);
        let wait = if self.state.nowait { SHORTEST } else { self.limit / 8 };
        self.run_together(changes, wait)
    }

    fn commits_alone_without_waiting(&self) -> bool {
        false
    }

    /// No statement changes a key or deletes the row, and a `FOR UPDATE` would wait for a row of another table that refers to this one:
    /// a role with the right `REFERENCES` alone could hold it.
    fn for_update(&self) -> &'static str {
        " FOR NO KEY UPDATE"
    }

    fn for_share(&self) -> &'static str {
        " FOR SHARE"
    }

    /// `"schema"."table"` of a key whose table was checked.
    fn place(&self, key: &Key) -> Result<String, Fault> {
        self.places.get(&key.table).map(|place| place.quoted.clone()).ok_or_else(|| {
            let place =
                self.schema.as_ref().map_or_else(String::new, |schema| format!(" in schema `{schema}`"));
            if key.scheme.is_sequence() {
                return sequence::missing(key, &place);
            }
            Fault::new(FaultKind::Refused, format!("table `{}` is missing{place}", key.table))
                .with_remedy(Remedy::INIT)
                .with_absence(Some(Absence::Missing))
        })
    }

    /// Refuses to write to a replica, and drops the connection: the next attempt may find another server.
    fn writable(&mut self) -> Result<(), Fault> {
        if self.server.read_only {
            self.state.broken = true;
            return Err(Fault::new(FaultKind::Unavailable, READ_ONLY));
        }
        Ok(())
    }

    fn relation(&mut self, key: &Key) -> Result<Option<Relation>, Fault> {
        let Some(found) = self.find(&key.table)? else { return Ok(None) };
        if found.kind != "r" && found.kind != "p" {
            return Err(wrong(self, key, "it is no table, but a view, an index or a sequence"));
        }
        let pairs = |rows: Vec<Vec<ColumnValue>>| -> Vec<(String, String)> {
            let word = |row: &[ColumnValue], column| text(row, column).unwrap_or_default().to_owned();
            rows.iter().map(|row| (word(row, 0), word(row, 1))).collect()
        };
        let columns = self.query(
            "SELECT attname::pg_catalog.text, pg_catalog.format_type(atttypid, \
             CASE WHEN atttypid = 'pg_catalog.numeric'::pg_catalog.regtype THEN atttypmod END) \
             FROM pg_catalog.pg_attribute \
             WHERE attrelid = CAST(? AS pg_catalog.oid) AND attnum > 0 AND NOT attisdropped",
            &[found.oid.into()],
        )?;
        let unique = self.query(
            "SELECT i.indexrelid::pg_catalog.text, a.attname::pg_catalog.text \
             FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a \
             ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1]) \
             WHERE i.indrelid = CAST(? AS pg_catalog.oid) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL \
             AND i.indexprs IS NULL",
            &[found.oid.into()],
        )?;
        Ok(Some(Relation {
            columns: pairs(columns),
            unique: pairs(unique),
            kind: found.kind,
            storage: found.storage,
            oid: found.oid,
        }))
    }

    /// Refuses a table that a crash empties, or whose statements change rows of other tables: one with rules or children,
    /// one with a partition that loses its rows, and the target of a logical subscription.
    fn check_relation(&mut self, key: &Key, found: &Relation) -> Result<(), Fault> {
        let (table, oid) = (&key.table, Value::from(found.oid));
        self.check_storage(table, &found.storage)?;
        let below = self.query(
            "WITH RECURSIVE below(oid) AS (\
             SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = CAST(? AS pg_catalog.oid) \
             UNION ALL SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN below b ON i.inhparent = b.oid) \
             SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite WHERE ev_class = CAST(? AS pg_catalog.oid))::pg_catalog.text, \
             EXISTS (SELECT 1 FROM below)::pg_catalog.text, \
             EXISTS (SELECT 1 FROM below b JOIN pg_catalog.pg_class c ON c.oid = b.oid \
             WHERE c.relpersistence <> 'p')::pg_catalog.text, \
             EXISTS (SELECT 1 FROM below b JOIN pg_catalog.pg_class c ON c.oid = b.oid \
             WHERE c.relkind = 'f')::pg_catalog.text, \
             pg_catalog.row_security_active(CAST(? AS pg_catalog.oid))::pg_catalog.text",
            &[oid.clone(), oid.clone(), oid.clone()],
        )?;
        let yes = |at| below.first().and_then(|row| text(row, at)) == Some("true");
        // A counter's row is changed by its name, and a hidden one fails. Of a pool all rows are read.
        if yes(4) && matches!(key.scheme.kept(), Kept::Worker) {
            return Err(wrong(
                self,
                key,
                "row security is on for this user, and keymill would take a hidden row for a missing row: run `ALTER TABLE … DISABLE ROW LEVEL SECURITY`, or give this user BYPASSRLS",
            ));
        }
        if yes(0) {
            return Err(wrong(
                self,
                key,
                "it has a rule (`CREATE RULE`), so other statements are carried out",
            ));
        }
        if found.kind == "r" && yes(1) {
            return Err(wrong(
                self,
                key,
                "other tables inherit from it, and no key is unique in all of them",
            ));
        }
        if yes(3) {
            return Err(wrong(self, key, "a partition of it is a foreign table"));
        }
        if yes(2) {
            self.state.judge(format!("a partition of `{table}` is UNLOGGED, and a crash empties it"))?;
        }
        let mut overwritten = self.query(
            "SELECT s.subname::pg_catalog.text FROM pg_catalog.pg_subscription_rel r \
             JOIN pg_catalog.pg_subscription s ON s.oid = r.srsubid \
             WHERE s.subenabled AND r.srrelid = CAST(? AS pg_catalog.oid)",
            std::slice::from_ref(&oid),
        );
        if matches!(&overwritten, Err(fault) if fault.kind == FaultKind::Refused) && !self.state.broken {
            // Before PostgreSQL 14 only a superuser may read a subscription's `oid`: any that is enabled here may have the table.
            overwritten = self.query(
                "SELECT s.subname::pg_catalog.text FROM pg_catalog.pg_subscription s \
                 JOIN pg_catalog.pg_database d ON d.oid = s.subdbid \
                 WHERE s.subenabled AND d.datname = pg_catalog.current_database() AND EXISTS ( \
                 SELECT FROM pg_catalog.pg_subscription_rel r WHERE r.srrelid = CAST(? AS pg_catalog.oid))",
                &[oid],
            );
        }
        self.refuse_subscription(overwritten, |name| {
            format!(
                "subscription `{name}` overwrites `{table}` with the rows of another server (disable it before numbers are counted here)"
            )
        })
    }

    fn schema_to_create_in(&self, table: &str) -> Option<String> {
        self.known_schema(table)
            .or_else(|| self.server.path.iter().find(|schema| *schema != "information_schema").cloned())
    }

    /// Another process may create the same table at this moment.
    fn create(&mut self, key: &Key, statement: &str) -> Result<(), Fault> {
        if self.schema_to_create_in(&key.table).is_none() {
            return Err(Fault::new(
                FaultKind::Refused,
                format!("this user's search_path has no schema in which table `{}` could be", key.table),
            )
            .with_remedy(Remedy::Text(
                "write `schema=NAME` in the store's URL, NAME a schema that is there",
            )));
        }
        // Statements sent together are one transaction.
        let whole = format!("SELECT {}; {statement}", self.pinned());
        self.code = None;
        match self.say(&WireStatement::Words(&whole), Phase::Create) {
            Err(_) if self.code.as_deref().is_some_and(|code| CREATED_MEANWHILE.contains(&code)) => {
                self.state.duplicate = false;
                self.say(&WireStatement::Words(&whole), Phase::Create)
            }
            said => said,
        }
    }

    fn forget_tables(&mut self) {
        self.state.checked.clear();
        self.places.clear();
    }

    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        let SerialKey { table, column, .. } = serial;
        let column = column.to_ascii_lowercase();
        let searched = format!("{table}.{column}");
        if let Some(fault) = self.recent_timeout(&searched) {
            return Err(fault);
        }
        let (place, oid) = self.business_table(table)?;
        let kind = self.query(
            "SELECT pg_catalog.format_type(atttypid, NULL::pg_catalog.int4) FROM pg_catalog.pg_attribute \
             WHERE attrelid = CAST(? AS pg_catalog.oid) AND attname = CAST(? AS pg_catalog.name)",
            &[oid.into(), column.as_str().into()],
        )?;
        let kind = kind.first().and_then(|row| text(row, 0)).unwrap_or_default();
        // Bytes that are cast to text become hexadecimal digits of themselves.
        let text_of = match kind {
            "bytea" => format!("pg_catalog.convert_from(`{column}`, 'UTF8')"),
            _ => format!("CAST(`{column}` AS pg_catalog.text)"),
        };
        let length = "pg_catalog.char_length(number)";
        let sql = format!(
            "SELECT number FROM (SELECT pg_catalog.substr({text_of}, CAST(? AS INTEGER)) AS number \
             FROM {place} WHERE {text_of} ~~ pg_catalog.like_escape(?, '|')) AS found \
             WHERE number !~ '[^0-9]' AND {length} >= ? AND {length} <= ? \
             AND ({length} = ? OR pg_catalog.left(number, 1) <> '0') \
             ORDER BY {length} DESC, number COLLATE pg_catalog.\"C\" DESC LIMIT 1"
        );
        let (shortest, longest) = (digits.shortest as u64, digits.longest as u64);
        let after = prefix.chars().count() as u64 + 1;
        let values = [after.into(), like(prefix).into(), shortest.into(), longest.into(), shortest.into()];
        match self.query(&sql, &values) {
            Ok(found) => Ok(found.first().and_then(|row| text(row, 0)).map(str::to_owned)),
            // `statement_timeout` has ended it, so nothing runs on there.
            Err(_) if self.code.as_deref() == Some("57014") => {
                // An index on a text column serves the texts themselves.
                let index = match kind {
                    "text" | "character varying" => postgres_dialect::identifier(&column),
                    _ => format!("({})", postgres_dialect::translated(&text_of)),
                };
                let remedy =
                    format!("`CREATE INDEX ON {place} ({index} text_pattern_ops)` lets it be found at once");
                Err(self.search_timed_out(searched, &remedy))
            }
            Err(fault) => Err(fault),
        }
    }

    fn sequences(&mut self) -> Option<&mut dyn Sequences> {
        Some(self)
    }
}

impl PostgresSession {
    /// Refuses what the first subscription of an answer changes.
    pub(super) fn refuse_subscription(
        &mut self,
        found: Result<Vec<Vec<ColumnValue>>, Fault>,
        says: impl FnOnce(&str) -> String,
    ) -> Result<(), Fault> {
        match found {
            Ok(rows) => match rows.first().and_then(|row| text(row, 0)) {
                Some(name) => self.state.judge(says(name)),
                None => Ok(()),
            },
            // Older servers show it to superusers only.
            Err(fault) if fault.kind == FaultKind::Refused && !self.state.broken => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

impl PostgresSession {
    /// Which relation the table or sequence of this name is; its place is remembered.
    pub(super) fn find(&mut self, table: &str) -> Result<Option<FoundRelation>, Fault> {
        let found = self.relations_named(&table.to_ascii_lowercase(), RelationUse::Write)?;
        let known = self.known_schema(table);
        let Some(found) = chosen(table, &found, &self.server.path, known.as_deref())?.cloned() else {
            self.places.remove(table);
            return Ok(None);
        };
        self.remember_place(table, Place::new(&found.schema, table));
        Ok(Some(found))
    }

    /// Every relation of exactly this name.
    pub(super) fn relations_named(
        &mut self,
        name: &str,
        to: RelationUse,
    ) -> Result<Vec<FoundRelation>, Fault> {
        let word = |row: &[ColumnValue], at| text(row, at).unwrap_or_default().to_owned();
        let found = self.query(RELATIONS, &[u64::from(to == RelationUse::Read).into(), name.into()])?;
        let relation = |row: &Vec<ColumnValue>| FoundRelation {
            schema: word(row, 0),
            name: name.to_owned(),
            kind: word(row, 1),
            storage: word(row, 2),
            usable: text(row, 3) == Some("true"),
            readable: text(row, 4) == Some("true"),
            oid: number(row, 5).unwrap_or_default(),
            owner: RelationOwner {
                name: word(row, 6),
                is_trusted: text(row, 7) == Some("true"),
                user: word(row, 8),
                other: text(row, 13).map(|owner| Other {
                    part_type: word(row, 9),
                    part: word(row, 10),
                    used_type: word(row, 11),
                    used: word(row, 12),
                    owner: owner.to_owned(),
                }),
            },
        };
        Ok(found.iter().map(relation).collect())
    }

    /// Refuses rows that are not written to the log: they are gone after a crash.
    pub(super) fn check_storage(&mut self, table: &str, storage: &str) -> Result<(), Fault> {
        match storage {
            "u" => self.state.judge(format!("`{table}` is UNLOGGED, and a crash empties it")),
            "t" => self.state.judge(format!("`{table}` is TEMPORARY, and goes with the connection")),
            _ => Ok(()),
        }
    }

    /// The table of `init=max`: in the schema of the URL, or the only one of its name along the `search_path`.
    fn business_table(&mut self, table: &str) -> Result<(String, u64), Fault> {
        let found = self.relations_named(&table.to_ascii_lowercase(), RelationUse::Read)?;
        let schema =
            self.schema.as_deref().filter(|schema| found.iter().any(|relation| relation.schema == **schema));
        let near: Vec<FoundRelation> = found
            .iter()
            .filter(|relation| schema.is_some() || self.server.path.contains(&relation.schema))
            .cloned()
            .collect();
        let Some(one) = chosen(table, &near, &self.server.path, schema)? else {
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "`init=max` reads table `{table}`, which is not in a schema of this user's search_path"
                ),
            ));
        };
        Ok((Place::new(&one.schema, table).quoted, one.oid))
    }
}
