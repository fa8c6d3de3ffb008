//! Writes of ids whose rows lie on several databases, also while a range of them moves: the protocol of `docs/live-moves.md`.
//!
//! * `shard_write` is one write of one id as a state machine. It does no I/O: it says what to do on which connection, and is told what came
//!   of it. Every language runs the same machine over the connections of its own drivers.
//! * `carried` has the statements: an id's rows are locked and read on both shards, and the new shard's rows become what they are on the old one.
//! * `known_shards` finds out what columns the tables have, and remembers it.
//! * `client` is the machine over a Rust program's connections; `mysql_client` and `postgres_client` are these.
//! * `failure` says what a driver's error means.

mod carried;
mod client;
mod failure;
mod known_shards;
#[cfg(feature = "mysql")]
mod mysql_client;
#[cfg(feature = "postgres-client")]
mod postgres_client;
mod questions;
mod shard_write;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world_tests;

use std::sync::Arc;
use std::time::Duration;

use crate::api::Router;
use crate::error::{Error, Result, shown};

pub use crate::rows::ShardKind;
pub use client::{ShardConnection, Shards, WorkError};
pub use failure::ShardFailure;
use known_shards::KnownShards;
pub use shard_write::{Misuse, NoConnection, ShardAction, ShardAnswer, ShardRow, ShardWrite, Side};

/// How long a write is tried, unless it is said otherwise: a pause lasts as long as the lease of a reader that has died, 10 s by default.
const DEADLINE: Duration = Duration::from_secs(15);

/// A router, and the tables whose rows belong to its ids: what the writes of one program share.
///
/// Copies share what was learned of the tables.
#[derive(Clone, Debug)]
pub struct ShardTables {
    router: Router,
    tables: Arc<[(String, String)]>,
    deadline: Duration,
    known: Arc<KnownShards>,
}

impl ShardTables {
    /// The tables, each with the column that holds the id: the first of its primary key. The first table is the root: each id that has rows
    /// has one there. Tables to which foreign keys lead come first.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: no table, an empty name, or a table that is named twice.
    pub fn new(router: &Router, tables: Vec<(String, String)>) -> Result<ShardTables> {
        if tables.is_empty() {
            return Err(Error::config(
                "no table is named: the call takes each table whose rows move with an id, and its column of the id",
            ));
        }
        for (at, (name, key)) in tables.iter().enumerate() {
            if name.is_empty() || key.is_empty() {
                return Err(Error::config("the name of a table, or of its column of ids, is empty"));
            }
            if tables.iter().take(at).any(|(other, _)| other == name) {
                return Err(Error::config(format!("table `{}` is named twice", shown(name))));
            }
        }
        Ok(ShardTables {
            router: router.clone(),
            tables: tables.into(),
            deadline: DEADLINE,
            known: Arc::default(),
        })
    }

    /// How long a write is tried again while its range pauses, or because a step came in between; 15 s unless it is called.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> ShardTables {
        self.deadline = deadline;
        self
    }

    /// The router.
    #[must_use]
    pub fn router(&self) -> &Router {
        &self.router
    }
}
