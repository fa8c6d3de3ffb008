//! Connections of the crate `mysql` as connections of a shard.

use std::error::Error as StdError;

use mysql::prelude::Queryable;
use mysql::{Conn, PooledConn, Value};

use super::{ShardConnection, ShardFailure, ShardKind, ShardRow};

fn failed(error: &mysql::Error) -> ShardFailure {
    let message = error.to_string();
    match error {
        mysql::Error::MySqlError(said) => ShardFailure {
            state: said.state.clone(),
            number: u32::from(said.code),
            message,
            is_broken: false,
        },
        _ => ShardFailure { message, is_broken: true, ..ShardFailure::default() },
    }
}

fn ask(connection: &mut impl Queryable, sql: &str) -> Result<Vec<ShardRow>, ShardFailure> {
    let mut answer = connection.query_iter(sql).map_err(|error| failed(&error))?;
    let mut rows = Vec::new();
    for row in answer.by_ref() {
        let row = row.map_err(|error| failed(&error))?;
        let cell = |value: Value| match value {
            Value::NULL => None,
            Value::Bytes(bytes) => Some(bytes),
            other => Some(other.as_sql(true).into_bytes()),
        };
        rows.push(row.unwrap().into_iter().map(cell).collect());
    }
    Ok(rows)
}

macro_rules! connection {
    ($type:ty) => {
        impl ShardConnection for $type {
            fn kind(&self) -> ShardKind {
                ShardKind::MySql
            }

            fn ask(&mut self, sql: &str) -> Result<Vec<ShardRow>, ShardFailure> {
                ask(self, sql)
            }

            fn failure(error: &(dyn StdError + 'static)) -> Option<ShardFailure> {
                error.downcast_ref::<mysql::Error>().map(failed)
            }
        }
    };
}

connection!(Conn);
connection!(PooledConn);
