//! A session as a connection to a shard's database.

use std::time::Duration;

use super::answers;
use super::mysql_session::MysqlSession;
use super::{Mysql, Phase};
use crate::store::Fault;
use crate::store::model::value::text;
use crate::store::server::ServerOptions;
use crate::store::shard_session::{Cells, ShardSession, ShardTable};
use crate::store::sql::Connection;
use crate::store::sql::remote::Driver;
use crate::store::sql::sql_slots::now_ms;

/// Values cross as the bytes that the columns hold, and times in UTC. A zero, and a date that no calendar has, stay what they are.
const EXACT: &str = "SET NAMES binary; SET SESSION time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES', max_statement_time = 0";

impl Mysql {
    /// Connects to the server of a shard that takes writes.
    pub(crate) fn open_shard(options: &ServerOptions) -> Result<MysqlSession, Fault> {
        let mut driver = Mysql { largest_packet: 1 << 30, one_by_one: true, ..Mysql::default() };
        let mut session = driver.connect(options)?;
        session.writable()?;
        let exact = EXACT.split("; ").map(|words| match session.dialect() {
            // MySQL has another name for it, and no limit on changes.
            crate::store::sql::Dialect::MariaDb => words,
            _ => words.trim_end_matches(", max_statement_time = 0"),
        });
        for words in exact.collect::<Vec<_>>() {
            session.say(words, Phase::Ask)?;
        }
        // Statements are good until a time of this clock.
        now_ms(&mut session)?;
        Ok(session)
    }
}

impl ShardSession for MysqlSession {
    fn read(&mut self, sql: &str, row: &mut dyn FnMut(Cells<'_>)) -> Result<u64, Fault> {
        let (changed, read) = answers::read_raw(&mut self.connection, sql, |answer| {
            let cells: Vec<_> = (0..answer.len())
                .map(|column| match answer.as_ref(column) {
                    Some(mysql::Value::Bytes(bytes)) => Some(bytes.as_slice()),
                    _ => None,
                })
                .collect();
            row(&cells);
        });
        read.map_err(|error| self.failed(&error, Phase::Write))?;
        Ok(changed.last().map_or(0, |changed| changed.rows))
    }

    fn table(&mut self, name: &str) -> Result<Option<ShardTable>, Fault> {
        let found = self.query(
            "SELECT TABLE_SCHEMA, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
            &[name.into()],
        )?;
        Ok(found.first().map(|row| {
            let [schema, kind] = [0, 1].map(|at| text(row, at).unwrap_or_default());
            let [schema, name] = [schema, name].map(|word| word.replace('`', "``"));
            ShardTable { quoted: format!("`{schema}`.`{name}`"), kind: kind.to_owned(), oid: 0 }
        }))
    }

    fn limit_lock_waits(&mut self, limit: Duration) -> Result<(), Fault> {
        let seconds = limit.as_secs().max(1);
        let words =
            format!("SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}");
        self.say(&words, Phase::Ask)
    }

    fn is_broken(&mut self) -> bool {
        self.state.broken
    }
}
