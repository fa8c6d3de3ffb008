//! Writes of ids whose rows lie on several databases. `_shards.py` runs what this says on the program's connections.

use std::time::Duration;

use keymill::binding::{
    Misuse, NoConnection, ShardAction, ShardAnswer, ShardTables as Tables, ShardWrite as Write, Side,
};
use keymill::{Error, ShardFailure, ShardKind, ShardRow};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{bad_argument, raised};
use crate::router::Router;
use crate::value::{not_pickled, shown, whole};

/// A router, and the tables whose rows belong to its ids.
#[pyclass(frozen, module = "keymill", name = "_ShardTables")]
#[derive(Debug)]
pub(crate) struct ShardTables {
    tables: Tables,
}

#[pymethods]
impl ShardTables {
    #[new]
    fn new(router: &Router, tables: Vec<(String, String)>, deadline: f64) -> PyResult<ShardTables> {
        let deadline = Duration::try_from_secs_f64(deadline)
            .map_err(|_| bad_argument("deadline must be seconds, not negative"))?;
        let tables = Tables::new(&router.router, tables).map_err(raised)?;
        Ok(ShardTables { tables: tables.with_deadline(deadline) })
    }

    /// A write, or a read, of an id: an int of 64 bits, or bytes, 8 of them or 16 of a wide id.
    fn begin(&self, id: &Bound<'_, PyAny>, reads: bool, once: bool) -> PyResult<ShardWrite> {
        let narrow = |id| if reads { self.tables.read(id) } else { self.tables.write(id) };
        let write = if let Ok(bytes) = id.cast::<PyBytes>() {
            let bytes = bytes.as_bytes();
            match (bytes.try_into().map(u64::from_be_bytes), bytes.try_into().map(u128::from_be_bytes)) {
                (Ok(id), _) => narrow(id),
                (_, Ok(id)) if reads => self.tables.read_wide(id),
                (_, Ok(id)) => self.tables.write_wide(id),
                _ => return Err(bad_argument(format!("id must have 8 bytes or 16, not {}", shown(id)))),
            }
        } else {
            narrow(whole(id, "id")?)
        };
        Ok(ShardWrite { write: if once { write.once() } else { write } })
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_pickled(slf))
    }
}

/// One write of one id: what to do next, step by step.
#[pyclass(module = "keymill", name = "_ShardWrite")]
#[derive(Debug)]
pub(crate) struct ShardWrite {
    write: Write,
}

/// What is done next: its name, the side (0: the shard that decides, 1: the shard that follows), a text and a number.
type Action = (&'static str, usize, String, f64);

fn action(action: ShardAction) -> Action {
    let at = |side| usize::from(side == Side::New);
    let none = String::new;
    match action {
        ShardAction::Open(side, shard) => ("open", at(side), shard, 0.0),
        ShardAction::Begin(side) => ("begin", at(side), none(), 0.0),
        ShardAction::Ask(side, sql) => ("ask", at(side), sql, 0.0),
        ShardAction::Work => ("work", 0, none(), 0.0),
        ShardAction::Commit(side) => ("commit", at(side), none(), 0.0),
        ShardAction::Rollback(side) => ("rollback", at(side), none(), 0.0),
        ShardAction::Close(side, ends) => ("close", at(side), none(), f64::from(u8::from(ends))),
        ShardAction::Wait(time) => ("wait", 0, none(), time.as_secs_f64()),
        ShardAction::Throw => ("throw", 0, none(), 0.0),
        ShardAction::Done => ("done", 0, none(), 0.0),
    }
}

#[pymethods]
impl ShardWrite {
    /// The last action is done.
    fn ready(&mut self) -> PyResult<Action> {
        self.next(ShardAnswer::Ready)
    }

    /// The connection is there.
    fn opened(&mut self, is_postgres: bool) -> PyResult<Action> {
        let kind = if is_postgres { ShardKind::Postgres } else { ShardKind::MySql };
        self.next(ShardAnswer::Opened(kind))
    }

    /// The rows of a statement.
    fn rows(&mut self, rows: Vec<ShardRow>) -> PyResult<Action> {
        self.next(ShardAnswer::Rows(rows))
    }

    /// The database has failed, or the work has.
    fn failed(&mut self, state: String, number: u32, message: String, is_broken: bool) -> PyResult<Action> {
        self.next(ShardAnswer::Failed(ShardFailure { state, number, message, is_broken }))
    }

    /// The program has named no connection to this shard.
    fn unnamed(&mut self, advice: String) -> PyResult<Action> {
        self.next(ShardAnswer::NotOpened(NoConnection::Unnamed(advice)))
    }

    /// It is the connection that the other shard has.
    fn shared(&mut self, advice: String) -> PyResult<Action> {
        self.next(ShardAnswer::NotOpened(NoConnection::Shared(advice)))
    }

    /// Another write or read has the connection.
    fn in_use(&mut self) -> PyResult<Action> {
        self.next(ShardAnswer::NotOpened(NoConnection::InUse))
    }

    /// The action cannot be done.
    fn refused(&mut self, message: &str) -> PyResult<Action> {
        self.next(ShardAnswer::Refused(Error::config(message)))
    }

    /// The work has left rows unread.
    fn unread(&mut self) -> PyResult<Action> {
        self.next(ShardAnswer::Misused(Misuse::UnreadRows))
    }

    /// The work has closed its connection, or ended the transaction.
    fn ended(&mut self) -> PyResult<Action> {
        self.next(ShardAnswer::Misused(Misuse::EndedTransaction))
    }

    /// The transaction can only be rolled back.
    fn doomed(&mut self) -> PyResult<Action> {
        self.next(ShardAnswer::Misused(Misuse::FailedTransaction))
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_pickled(slf))
    }
}

impl ShardWrite {
    fn next(&mut self, answer: ShardAnswer) -> PyResult<Action> {
        self.write.next(answer).map(action).map_err(raised)
    }
}
