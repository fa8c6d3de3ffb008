//! Statements that the server parses and plans once.
//!
//! On a connection that the server itself sees with both its ends, the driver's own prepared statements do: they cost the
//! server next to nothing. Behind a pooler that shares connections by transaction, a prepared statement may be gone, and its
//! name may be another process's statement: drivers count `s0`, `s1`, … in every process alike. So there, and where it is not
//! known, they are prepared in SQL, under names that no other connection has. What is not found under such a name was never
//! carried out, and goes as plain text from then on.

use std::collections::HashMap;
use std::fmt::Write as _;

use postgres_protocol::escape::escape_literal;
use tokio_postgres::Statement;

use super::dialect;
use super::values::type_of;
use crate::store::model::value::Value;

/// A statement is worth a name when it is used this often.
const OFTEN: u32 = 3;
/// No more names than this on one connection.
const MOST: usize = 64;

/// The statements of one connection.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// By text, as the shared code writes it.
    uses: HashMap<String, Use>,
    /// What all names of this connection begin with.
    prefix: String,
    /// Nobody stands between the server and us: the driver's names are ours alone.
    direct: bool,
    off: bool,
}

#[derive(Debug)]
struct Use {
    /// How often it was used, up to [`OFTEN`], when it has the name of its number, or the driver's.
    times: u32,
    number: usize,
    kept: Option<Statement>,
}

/// How a statement goes to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
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
    /// None yet. The process's number keeps forked children apart, which share their parent's chance.
    pub(super) fn new(direct: bool) -> Prepared {
        let prefix = format!("keymill_{:x}_{:x}", std::process::id(), crate::base::random::u64());
        Prepared { prefix, direct, ..Prepared::default() }
    }

    /// How this statement is to go now.
    pub(super) fn way(&mut self, sql: &str, values: &[Value]) -> Way {
        if self.off {
            return Way::Plain;
        }
        let Some(used) = self.uses.get_mut(sql) else {
            if self.uses.len() < MOST {
                let number = self.uses.len();
                self.uses.insert(sql.to_owned(), Use { times: 1, number, kept: None });
            }
            return Way::Plain;
        };
        used.times = (used.times + 1).min(OFTEN + 1);
        if used.times < OFTEN {
            return Way::Plain;
        }
        if self.direct {
            return if used.kept.is_some() { Way::Kept } else { Way::Keep };
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
            return Way::Name { prepare: None, execute };
        }
        let types: Vec<_> =
            values.iter().map(|value| format!("pg_catalog.{}", type_of(value).name())).collect();
        let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
        let prepare = Some(format!("PREPARE {name}{types} AS {}", dialect::translated(sql)));
        Way::Name { prepare, execute }
    }

    /// The driver has prepared this statement.
    pub(super) fn keep(&mut self, sql: &str, statement: Statement) {
        if let Some(used) = self.uses.get_mut(sql) {
            used.kept = Some(statement);
        }
    }

    /// What the driver has prepared of this statement.
    pub(super) fn kept(&self, sql: &str) -> Option<&Statement> {
        self.uses.get(sql)?.kept.as_ref()
    }

    /// Names do not last on this connection, or are not given.
    pub(super) fn give_up(&mut self) {
        self.off = true;
    }
}

/// Whether the server says by this that it did not carry out a statement for its name's sake: there is none of that name, or
/// the table was changed under it. Either way nothing was changed.
pub(super) fn is_refused(code: &str) -> bool {
    matches!(code, "26000" | "0A000")
}

/// A value as SQL, read alike with and without `standard_conforming_strings`.
fn write_literal(out: &mut String, value: &Value) {
    match value {
        Value::Number(number) => {
            let _ = write!(out, "'{}'", number.cast_signed());
        }
        Value::Null => out.push_str("NULL"),
        Value::Text(text) => out.push_str(&escape_literal(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute(prepared: &mut Prepared, sql: &str, values: &[Value]) -> String {
        loop {
            if let Way::Name { prepare: None, execute } = prepared.way(sql, values) {
                return execute;
            }
        }
    }

    #[test]
    fn a_statement_that_is_used_often_gets_a_name_once() {
        let mut prepared = Prepared::new(false);
        let values = [Value::from(7), Value::from("a")];
        assert_eq!(prepared.way("SELECT ?, ?", &values), Way::Plain);
        assert_eq!(prepared.way("SELECT ?, ?", &values), Way::Plain);
        let Way::Name { prepare: Some(prepare), execute } = prepared.way("SELECT ?, ?", &values) else {
            panic!("a third use is worth a name")
        };
        let name = format!("{}_0", prepared.prefix);
        assert_eq!(prepare, format!("PREPARE {name} (pg_catalog.int8, pg_catalog.text) AS SELECT $1, $2"));
        assert_eq!(execute, format!("EXECUTE {name}('7', 'a')"));
        assert_eq!(prepared.way("SELECT ?, ?", &values), Way::Name { prepare: None, execute });
        prepared.give_up();
        assert_eq!(prepared.way("SELECT ?, ?", &values), Way::Plain);
    }

    #[test]
    fn the_drivers_names_are_for_a_connection_of_our_own_only() {
        let mut prepared = Prepared::new(true);
        for way in [Way::Plain, Way::Plain, Way::Keep, Way::Keep] {
            assert_eq!(prepared.way("SELECT 1", &[]), way);
        }
        prepared.give_up();
        assert_eq!(prepared.way("SELECT 1", &[]), Way::Plain);
        let mut shared = Prepared::new(false);
        assert!((0..5).all(|_| !matches!(shared.way("SELECT 1", &[]), Way::Keep | Way::Kept)));
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
            prepared.way(&format!("SELECT {number}"), &[]);
        }
        assert_eq!(prepared.uses.len(), MOST);
    }
}
