//! [`Shards`]: the machine over the connections of a Rust program.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use once_cell::sync::OnceCell;

use crate::api::Router;
use crate::error::{Error, Result};

use super::{
    NoConnection, ShardAction, ShardAnswer, ShardFailure, ShardKind, ShardRow, ShardTables, ShardWrite, Side,
};

/// The error of a program's work, or keymill's own [`Error`].
pub type WorkError = Box<dyn StdError + Send + Sync>;

/// A connection to the database of a shard. Connections of the crates `mysql` and, with the feature `postgres-client`, `postgres` are such
/// connections; it is implemented for others by three functions, and a connection of a pool has [`end`](ShardConnection::end) too.
pub trait ShardConnection {
    /// What the server speaks.
    fn kind(&self) -> ShardKind;

    /// Runs a statement that has no parameters, and answers with its rows, each value as bytes; a text is in UTF-8.
    ///
    /// # Errors
    /// What the database says.
    fn ask(&mut self, sql: &str) -> std::result::Result<Vec<ShardRow>, ShardFailure>;

    /// What an error of the work says about the database, where it is an error of this driver.
    fn failure(error: &(dyn StdError + 'static)) -> Option<ShardFailure>;

    /// Ends the connection, which may be in the middle of a transaction: it must not go back to a pool. Unless this is
    /// implemented, the connection is dropped.
    fn end(self)
    where
        Self: Sized,
    {
        drop(self);
    }
}

/// A connection that is ended, unless it is dropped by [`give_back`](OpenConnection::give_back).
struct OpenConnection<C: ShardConnection>(Option<C>);

impl<C: ShardConnection> OpenConnection<C> {
    fn give_back(&mut self) {
        self.0 = None;
    }

    fn end(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.end();
        }
    }
}

impl<C: ShardConnection> Drop for OpenConnection<C> {
    /// The work has panicked.
    fn drop(&mut self) {
        self.end();
    }
}

/// The connections of one write, each once it is open.
struct Connections<C: ShardConnection> {
    old: OpenConnection<C>,
    new: OpenConnection<C>,
}

impl<C: ShardConnection> Connections<C> {
    fn get(&mut self, side: Side) -> &mut OpenConnection<C> {
        match side {
            Side::Old => &mut self.old,
            Side::New => &mut self.new,
        }
    }

    fn ask(&mut self, side: Side, sql: &str) -> ShardAnswer {
        match self.get(side).0.as_mut().map(|connection| connection.ask(sql)) {
            Some(Ok(rows)) => ShardAnswer::Rows(rows),
            Some(Err(failure)) => ShardAnswer::Failed(failure),
            None => ShardAnswer::Failed(ShardFailure::default()),
        }
    }
}

type ConnectShard<C> = Box<dyn Fn() -> std::result::Result<C, WorkError> + Send + Sync>;

/// Writes and reads over the program's own connections, each on the shard where its id is, also while a range moves.
///
/// A [`write`](Shards::write) runs the program's work in a transaction on the shard that decides. While the id's range moves, the rows of the id
/// in the named tables are made the same on the other shard, and both are committed. Without a move it adds nothing but the route.
pub struct Shards<C> {
    /// Made by the first write.
    tables: OnceCell<ShardTables>,
    router: Router,
    named: Vec<(String, String)>,
    deadline: Option<Duration>,
    connect: HashMap<String, ConnectShard<C>>,
}

impl<C> fmt::Debug for Shards<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("tables", &self.named).finish_non_exhaustive()
    }
}

thread_local! {
    /// A write of this thread is under way.
    static WRITES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Ends with the write.
struct Writing;

impl Writing {
    fn begin() -> Result<Writing> {
        if WRITES.replace(true) {
            return Err(Error::argument(
                "a write inside another one would wait for its locks: this thread's first write has not ended",
            ));
        }
        Ok(Writing)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        WRITES.set(false);
    }
}

impl<C: ShardConnection> Shards<C> {
    /// Over the shards of a router's table.
    #[must_use]
    pub fn new(router: &Router) -> Shards<C> {
        Shards {
            tables: OnceCell::new(),
            router: router.clone(),
            named: Vec::new(),
            deadline: None,
            connect: HashMap::new(),
        }
    }

    /// How to get a connection to a shard: from a pool, or a new one. It is dropped after the write.
    #[must_use]
    pub fn shard<E: Into<WorkError>>(
        mut self,
        name: &str,
        connect: impl Fn() -> std::result::Result<C, E> + Send + Sync + 'static,
    ) -> Shards<C> {
        self.connect.insert(name.to_owned(), Box::new(move || connect().map_err(Into::into)));
        self
    }

    /// One more table, and the column that holds the id: the first of its primary key. The first table is the root: each id that has rows has
    /// one there. Tables to which foreign keys lead come first.
    #[must_use]
    pub fn table(mut self, name: &str, key: &str) -> Shards<C> {
        self.named.push((name.to_owned(), key.to_owned()));
        self.tables = OnceCell::new();
        self
    }

    /// How long a write is tried again, 15 s unless it is called. A statement that waits for a lock is not cut short.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Shards<C> {
        self.deadline = Some(deadline);
        self.tables = OnceCell::new();
        self
    }

    fn tables(&self) -> Result<&ShardTables> {
        self.tables.get_or_try_init(|| {
            let tables = ShardTables::new(&self.router, self.named.clone())?;
            Ok(match self.deadline {
                Some(deadline) => tables.with_deadline(deadline),
                None => tables,
            })
        })
    }

    /// Does the work in a transaction on the shard that decides where this id is written. It is done again where a step of a move came in
    /// between, or the database ended the transaction in favour of another one; so it changes nothing but this transaction.
    ///
    /// # Errors
    /// The work's own; then nothing is left of it. keymill's [`Error`]: `NOT_READY`, `STORE_UNAVAILABLE`, `STORE_REFUSED`; the message says whether
    /// something may have been written.
    pub fn write<T>(
        &self,
        id: u64,
        work: impl FnMut(&mut C) -> std::result::Result<T, WorkError>,
    ) -> std::result::Result<T, WorkError> {
        let _writing = Writing::begin()?;
        self.run(self.tables()?.write(id), work)
    }

    /// As [`Shards::write`], of an id of 128 bits.
    ///
    /// # Errors
    /// As [`Shards::write`].
    pub fn write_wide<T>(
        &self,
        id: u128,
        work: impl FnMut(&mut C) -> std::result::Result<T, WorkError>,
    ) -> std::result::Result<T, WorkError> {
        let _writing = Writing::begin()?;
        self.run(self.tables()?.write_wide(id), work)
    }

    /// Does the work on the shard from which this id is read. What it writes is rolled back.
    ///
    /// # Errors
    /// The work's own. keymill's [`Error`]: `LEASE_LOST`, `STORE_UNAVAILABLE`.
    pub fn read<T>(
        &self,
        id: u64,
        work: impl FnMut(&mut C) -> std::result::Result<T, WorkError>,
    ) -> std::result::Result<T, WorkError> {
        self.run(self.tables()?.read(id), work)
    }

    fn run<T>(
        &self,
        mut write: ShardWrite,
        mut work: impl FnMut(&mut C) -> std::result::Result<T, WorkError>,
    ) -> std::result::Result<T, WorkError> {
        let mut connections: Connections<C> =
            Connections { old: OpenConnection(None), new: OpenConnection(None) };
        let (mut value, mut thrown) = (None, None);
        let mut answer = ShardAnswer::Ready;
        let mut commit = "COMMIT";
        loop {
            let action = write.next(answer)?;
            answer = match action {
                ShardAction::Open(side, shard) => match self.connect.get(&shard).map(|connect| connect()) {
                    None => ShardAnswer::NotOpened(NoConnection::Unnamed(
                        "`shard(name, connect)` says how to get one".to_owned(),
                    )),
                    Some(Ok(connection)) => {
                        let kind = connection.kind();
                        if kind == ShardKind::Postgres {
                            // Where a statement of the work has failed, which the work did not say, the first one fails.
                            commit = "SELECT 1; COMMIT";
                        }
                        connections.get(side).0 = Some(connection);
                        ShardAnswer::Opened(kind)
                    }
                    Some(Err(error)) => {
                        let failure = failure_of::<C>(error.as_ref());
                        ShardAnswer::Failed(failure.unwrap_or_else(|| ShardFailure {
                            message: error.to_string(),
                            ..ShardFailure::default()
                        }))
                    }
                },
                // `BEGIN` begins a block in MariaDB's mode `ORACLE`.
                ShardAction::Begin(side) => connections.ask(side, "START TRANSACTION"),
                ShardAction::Ask(side, sql) => connections.ask(side, &sql),
                ShardAction::Commit(side) => connections.ask(side, commit),
                ShardAction::Rollback(side) => connections.ask(side, "ROLLBACK"),
                ShardAction::Close(side, ends) => {
                    let connection = connections.get(side);
                    if ends {
                        connection.end();
                    } else {
                        connection.give_back();
                    }
                    ShardAnswer::Ready
                }
                ShardAction::Wait(time) => {
                    std::thread::sleep(time);
                    ShardAnswer::Ready
                }
                ShardAction::Work => match connections.old.0.as_mut().map(&mut work) {
                    Some(Ok(done)) => {
                        value = Some(done);
                        ShardAnswer::Ready
                    }
                    Some(Err(error)) => {
                        let failure = failure_of::<C>(error.as_ref()).unwrap_or_default();
                        thrown = Some(error);
                        ShardAnswer::Failed(failure)
                    }
                    None => ShardAnswer::Failed(ShardFailure::default()),
                },
                ShardAction::Throw => {
                    return Err(thrown.unwrap_or_else(|| Error::argument("the work has failed").into()));
                }
                ShardAction::Done => {
                    return value.ok_or_else(|| Error::argument("the work has not run").into());
                }
            };
        }
    }
}

/// The database's part of an error, wherever in it that is.
fn failure_of<C: ShardConnection>(error: &(dyn StdError + 'static)) -> Option<ShardFailure> {
    let mut at = Some(error);
    while let Some(one) = at {
        let own = || one.downcast_ref::<ShardFailure>().cloned();
        if let Some(failure) = own().or_else(|| C::failure(one)) {
            return Some(failure);
        }
        at = one.source();
    }
    None
}
