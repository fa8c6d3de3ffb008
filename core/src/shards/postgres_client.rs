//! The client of the crate `postgres` as the connection of a shard.

use std::error::Error as StdError;

use postgres::{Client, SimpleQueryMessage};

use super::{ShardConnection, ShardFailure, ShardKind, ShardRow};

fn failed(error: &postgres::Error) -> ShardFailure {
    let said = error.as_db_error();
    ShardFailure {
        state: error.code().map(|code| code.code().to_owned()).unwrap_or_default(),
        number: 0,
        message: said.map_or_else(|| error.to_string(), |said| said.message().to_owned()),
        is_broken: said.is_none(),
    }
}

impl ShardConnection for Client {
    fn kind(&self) -> ShardKind {
        ShardKind::Postgres
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<ShardRow>, ShardFailure> {
        let answer = self.simple_query(sql).map_err(|error| failed(&error))?;
        let row = |message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|at| row.get(at).map(|text| text.as_bytes().to_vec())).collect())
            }
            _ => None,
        };
        Ok(answer.into_iter().filter_map(row).collect())
    }

    fn failure(error: &(dyn StdError + 'static)) -> Option<ShardFailure> {
        error.downcast_ref::<postgres::Error>().map(failed)
    }
}
