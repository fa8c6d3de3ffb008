//! Statements that the server parses and plans once.
//!
//! On a connection whose two ends the server sees as keymill does, the driver's own prepared statements are used: they cost
//! the server next to nothing. Behind a pooler that shares connections by transaction, a prepared statement may be missing,
//! and its name may belong to another process: every driver counts `s0`, `s1`, …. So there, and if it is not known,
//! statements are prepared in SQL, under names that no other connection has. A statement whose name is missing was not
//! carried out; it is sent as plain text from then on.

use std::collections::HashMap;

use tokio_postgres::Statement;

use super::postgres_dialect;
use super::postgres_values::{type_of, write_literal};
use crate::store::model::value::Value;

/// A statement is prepared when it is used this often.
const OFTEN: u32 = 3;
/// No more names than this on one connection.
const MOST: usize = 64;

/// The statements of one connection.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// By text, as the shared code writes it.
    uses: HashMap<String, StatementUse>,
    /// The prefix of this connection's names.
    prefix: String,
    /// No pooler shares this connection, so the driver's names are unique on it.
    direct: bool,
    off: bool,
}

#[derive(Debug)]
struct StatementUse {
    /// How often it was used, up to [`OFTEN`], from when on it is prepared.
    times: u32,
    number: usize,
    kept: Option<Statement>,
}

/// How a statement goes to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Execution {
    /// Its text with its values.
    Plain,
    /// Under a name of the driver's, which is to be [kept](Prepared::keep) first.
    Keep,
    /// Under a name of the driver's, see [`Prepared::kept`].
    Kept,
    /// Under a name of our own; `prepare` goes first.
    Name { prepare: Option<String>, execute: String },
}

impl Prepared {
    /// No statement yet. The process's number separates forked children, which share their parent's random numbers.
    pub(super) fn new(direct: bool) -> Prepared {
        let prefix = format!("keymill_{:x}_{:x}", std::process::id(), crate::process::random::u64());
        Prepared { prefix, direct, ..Prepared::default() }
    }

    /// Decides how this statement is sent now.
    pub(super) fn execution(&mut self, sql: &str, values: &[Value]) -> Execution {
        if self.off {
            return Execution::Plain;
        }
        let Some(used) = self.uses.get_mut(sql) else {
            if self.uses.len() < MOST {
                let number = self.uses.len();
                self.uses.insert(sql.to_owned(), StatementUse { times: 1, number, kept: None });
            }
            return Execution::Plain;
        };
        used.times = (used.times + 1).min(OFTEN + 1);
        if used.times < OFTEN {
            return Execution::Plain;
        }
        if self.direct {
            return if used.kept.is_some() { Execution::Kept } else { Execution::Keep };
        }
        let name = format!("{}_{}", self.prefix, used.number);
        let mut execute = format!("EXECUTE {name}");
        for (at, value) in values.iter().enumerate() {
            execute.push_str(if at == 0 { "(" } else { ", " });
            write_literal(&mut execute, value);
        }
        if !values.is_empty() {
            execute.push(')');
        }
        if used.times > OFTEN {
            return Execution::Name { prepare: None, execute };
        }
        let types: Vec<_> =
            values.iter().map(|value| format!("pg_catalog.{}", type_of(value).name())).collect();
        let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
        let prepare = Some(format!("PREPARE {name}{types} AS {}", postgres_dialect::translated(sql)));
        Execution::Name { prepare, execute }
    }

    /// Remembers the statement that the driver has prepared.
    pub(super) fn keep(&mut self, sql: &str, statement: Statement) {
        if let Some(used) = self.uses.get_mut(sql) {
            used.kept = Some(statement);
        }
    }

    /// The driver's prepared statement for this text.
    pub(super) fn kept(&self, sql: &str) -> Option<&Statement> {
        self.uses.get(sql)?.kept.as_ref()
    }

    /// Stops preparing: names do not last on this connection, or are refused.
    pub(super) fn give_up(&mut self) {
        self.off = true;
    }
}

/// Whether the error says that the statement's name caused the failure: the server has no statement of this name, or the
/// table was changed since. In both cases nothing was changed.
pub(super) fn is_refused(code: &str) -> bool {
    matches!(code, "26000" | "0A000")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute(prepared: &mut Prepared, sql: &str, values: &[Value]) -> String {
        loop {
            if let Execution::Name { prepare: None, execute } = prepared.execution(sql, values) {
                return execute;
            }
        }
    }

    #[test]
    fn a_statement_that_is_used_often_gets_a_name_once() {
        let mut prepared = Prepared::new(false);
        let values = [Value::from(7), Value::from("a")];
        assert_eq!(prepared.execution("SELECT ?, ?", &values), Execution::Plain);
        assert_eq!(prepared.execution("SELECT ?, ?", &values), Execution::Plain);
        let Execution::Name { prepare: Some(prepare), execute } = prepared.execution("SELECT ?, ?", &values)
        else {
            panic!("a third use is worth a name")
        };
        let name = format!("{}_0", prepared.prefix);
        assert_eq!(prepare, format!("PREPARE {name} (pg_catalog.int8, pg_catalog.text) AS SELECT $1, $2"));
        assert_eq!(execute, format!("EXECUTE {name}('7', 'a')"));
        assert_eq!(prepared.execution("SELECT ?, ?", &values), Execution::Name { prepare: None, execute });
        prepared.give_up();
        assert_eq!(prepared.execution("SELECT ?, ?", &values), Execution::Plain);
    }

    #[test]
    fn the_drivers_names_are_for_a_connection_of_our_own_only() {
        let mut prepared = Prepared::new(true);
        for execution in [Execution::Plain, Execution::Plain, Execution::Keep, Execution::Keep] {
            assert_eq!(prepared.execution("SELECT 1", &[]), execution);
        }
        prepared.give_up();
        assert_eq!(prepared.execution("SELECT 1", &[]), Execution::Plain);
        let mut shared = Prepared::new(false);
        assert!(
            (0..5).all(|_| !matches!(shared.execution("SELECT 1", &[]), Execution::Keep | Execution::Kept))
        );
    }

    #[test]
    fn no_value_ends_its_quotes() {
        let mut prepared = Prepared::new(false);
        let values = [Value::from(1 << 63), Value::from(r"a'; DROP \' x\"), Value::Null, Value::from("it's")];
        let sql = execute(&mut prepared, "SELECT 1", &values);
        assert!(sql.ends_with(r"('-9223372036854775808',  E'a''; DROP \\'' x\\', NULL, 'it''s')"), "{sql}");
    }

    #[test]
    fn connections_share_no_names_and_have_not_endlessly_many() {
        let mut prepared = Prepared::new(false);
        assert_ne!(prepared.prefix, Prepared::new(false).prefix);
        for number in 0..10 * MOST {
            prepared.execution(&format!("SELECT {number}"), &[]);
        }
        assert_eq!(prepared.uses.len(), MOST);
    }
}
