//! A pool of connections to a shard, for drivers that bring none.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, PoisonError};

use keymill::{ShardConnection, ShardFailure, ShardKind, ShardRow, WorkError};

/// A connection that goes back to its pool, unless it has broken.
#[derive(Debug)]
pub struct Pooled<C> {
    connection: Option<C>,
    kind: ShardKind,
    free: Arc<Mutex<Vec<C>>>,
}

/// Makes connections by `open`, and uses those again that are free.
pub fn pool<C>(
    open: impl Fn() -> Result<C, WorkError> + Send + Sync,
) -> impl Fn() -> Result<Pooled<C>, WorkError> + Send + Sync
where
    C: ShardConnection + Send,
{
    let free = Arc::new(Mutex::new(Vec::new()));
    move || {
        let found = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = found.map_or_else(&open, Ok)?;
        let kind = connection.kind();
        Ok(Pooled { connection: Some(connection), kind, free: Arc::clone(&free) })
    }
}

impl<C> Drop for Pooled<C> {
    fn drop(&mut self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).extend(self.connection.take());
    }
}

impl<C: ShardConnection> ShardConnection for Pooled<C> {
    fn kind(&self) -> ShardKind {
        self.kind
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<ShardRow>, ShardFailure> {
        let gone = || ShardFailure { is_broken: true, ..ShardFailure::default() };
        let answer = self.connection.as_mut().ok_or_else(gone)?.ask(sql);
        // PostgreSQL says that it ends the session before it does.
        if answer.as_ref().is_err_and(|failure| failure.is_broken || failure.state.starts_with("57P")) {
            self.connection = None;
        }
        answer
    }

    fn failure(error: &(dyn StdError + 'static)) -> Option<ShardFailure> {
        C::failure(error)
    }

    fn end(mut self) {
        self.connection = None;
    }
}
