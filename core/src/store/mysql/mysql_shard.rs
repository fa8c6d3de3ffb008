//! A session as a connection to a shard's database.

use std::time::Duration;

use super::answers;
use super::mysql_session::MysqlSession;
use super::{Mysql, Phase};
use crate::store::model::value::text;
use crate::store::server::ServerOptions;
use crate::store::shard_session::{Cells, MYSQL_VALUES, ShardSession, ShardTable, StatementPlace};
use crate::store::sql::remote::Driver;
use crate::store::sql::sql_slots::now_ms;
use crate::store::sql::{Connection, Dialect};
use crate::store::{Fault, FaultKind};

/// Why no rows are moved from such a server, nor to it.
const REPLICA: &str = "this server replicates from another one: its rows may be old, and its primary does not get the rows that are written here; name the primary (if the server is no replica any more: `STOP REPLICA; RESET REPLICA ALL`)";

/// Values cross as the bytes that the columns hold. A commit begins no transaction after it. MySQL has no limit on the time of changes.
fn exact(dialect: Dialect) -> [String; 2] {
    let limit = if dialect == Dialect::MariaDb { ", max_statement_time = 0" } else { "" };
    let values = MYSQL_VALUES.map(|(name, value)| format!("{name} = '{value}', ")).concat();
    ["SET NAMES binary".to_owned(), format!("SET SESSION {values}completion_type = 0{limit}")]
}

impl Mysql {
    /// Connects to the server of a shard that takes writes.
    pub(crate) fn open_shard(options: &ServerOptions) -> Result<MysqlSession, Fault> {
        let mut driver = Mysql { largest_packet: 1 << 30, one_by_one: true, ..Mysql::default() };
        let mut session = driver.connect(options)?;
        session.writable()?;
        if session.server.replicates || session.is_set_up_as_replica()? {
            return Err(Fault::new(FaultKind::Refused, REPLICA));
        }
        for words in exact(session.dialect()) {
            session.say(&words, Phase::Ask)?;
        }
        // Statements are good until a time of this clock.
        now_ms(&mut session)?;
        Ok(session)
    }
}

impl MysqlSession {
    /// Whether it follows another server, or would if it was told to go on. `false` where the login may not see that.
    fn is_set_up_as_replica(&mut self) -> Result<bool, Fault> {
        let sql = match self.dialect() {
            Dialect::MariaDb => "SHOW ALL SLAVES STATUS",
            // A member of a group follows the others by channels of that name.
            Dialect::MySql => {
                "SELECT 1 FROM performance_schema.replication_connection_configuration \
                 WHERE CHANNEL_NAME NOT LIKE 'group_replication%'"
            }
            _ => return Ok(false),
        };
        self.finds(sql)
    }
}

impl ShardSession for MysqlSession {
    fn read(&mut self, sql: &str, _: StatementPlace, row: &mut dyn FnMut(Cells<'_>)) -> Result<u64, Fault> {
        let (changed, read) = answers::read_raw(&mut self.connection, sql, |answer| {
            let cells: Vec<_> = (0..answer.len())
                .map(|column| match answer.as_ref(column) {
                    Some(mysql::Value::Bytes(bytes)) => Some(bytes.as_slice()),
                    _ => None,
                })
                .collect();
            row(&cells);
        });
        // What is sent again changes nothing more: no outcome is unknown.
        read.map_err(|error| self.failed(&error, Phase::Ask))?;
        Ok(changed.last().map_or(0, |changed| changed.rows))
    }

    fn roll_back(&mut self) -> Result<(), Fault> {
        self.say("ROLLBACK", Phase::Ask)
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

    fn limit_waits(&mut self, for_locks: Duration, for_client: Duration) -> Result<(), Fault> {
        let [locks, client] = [for_locks, for_client].map(|limit| limit.as_secs().max(1));
        let mut words = format!(
            "SET SESSION innodb_lock_wait_timeout = {locks}, lock_wait_timeout = {locks}, net_write_timeout = {client}, wait_timeout = {client}"
        );
        // Within a transaction, MariaDB looks at this one alone.
        if self.dialect() == Dialect::MariaDb {
            words.push_str(&format!(", idle_transaction_timeout = {client}"));
        }
        self.say(&words, Phase::Ask)
    }

    fn is_broken(&mut self) -> bool {
        self.state.broken
    }
}
