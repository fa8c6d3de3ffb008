//! Statements that the server parses and plans once. (floor 2)
//!
//! Behind a pooler that shares connections by transaction, a prepared statement may be gone, and its name may be another
//! process's statement: drivers count `s0`, `s1`, … in every process alike. So these are prepared in SQL, under names that
//! no other connection has. What is not found under such a name was never carried out, and goes as plain text from then on.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::session::Value;

/// A statement is worth a name when it is used this often.
const OFTEN: u32 = 3;
/// No more names than this on one connection.
const MOST: usize = 64;

/// The statements of one connection.
#[derive(Debug)]
pub(super) struct Prepared {
    /// By text: how often it was used, up to [`OFTEN`], when it has the name of its number.
    uses: HashMap<String, (u32, usize)>,
    /// What all names of this connection begin with.
    prefix: String,
    off: bool,
}

/// How a statement goes to the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Its text with its values.
    Plain,
    /// This first, and then as `Known`.
    New { prepare: String, execute: String },
    /// A name and values.
    Known { execute: String },
}

impl Prepared {
    /// None yet. The process's number keeps forked children apart, which share their parent's chance.
    pub(super) fn new() -> Prepared {
        let prefix = format!("keymill_{:x}_{:x}", std::process::id(), fastrand::u64(..));
        Prepared { uses: HashMap::new(), prefix, off: false }
    }

    /// How this statement, in PostgreSQL's words, is to go now.
    pub(super) fn way(&mut self, words: &str, values: &[Value]) -> Way {
        if self.off {
            return Way::Plain;
        }
        let Some((uses, number)) = self.uses.get_mut(words) else {
            if self.uses.len() < MOST {
                self.uses.insert(words.to_owned(), (1, self.uses.len()));
            }
            return Way::Plain;
        };
        *uses = (*uses + 1).min(OFTEN + 1);
        if *uses < OFTEN {
            return Way::Plain;
        }
        let name = format!("{}_{number}", self.prefix);
        let mut execute = format!("EXECUTE {name}");
        for (at, value) in values.iter().enumerate() {
            execute.push_str(if at == 0 { "(" } else { ", " });
            write_literal(&mut execute, value);
        }
        if !values.is_empty() {
            execute.push(')');
        }
        if *uses > OFTEN {
            return Way::Known { execute };
        }
        let types: Vec<_> = values.iter().map(|value| value.of_type().name().to_owned()).collect();
        let types = if types.is_empty() { String::new() } else { format!(" ({})", types.join(", ")) };
        Way::New { prepare: format!("PREPARE {name}{types} AS {words}"), execute }
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
        Value::Text(None) => out.push_str("NULL"),
        Value::Text(Some(text)) => {
            out.push_str("E'");
            for c in text.chars() {
                if matches!(c, '\'' | '\\') {
                    out.push(c);
                }
                out.push(c);
            }
            out.push('\'');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execute(prepared: &mut Prepared, words: &str, values: &[Value]) -> String {
        loop {
            match prepared.way(words, values) {
                Way::Plain | Way::New { .. } => {}
                Way::Known { execute } => return execute,
            }
        }
    }

    #[test]
    fn a_statement_that_is_used_often_gets_a_name_once() {
        let mut prepared = Prepared::new();
        let values = [Value::from(7), Value::from("a")];
        assert_eq!(prepared.way("SELECT $1, $2", &values), Way::Plain);
        assert_eq!(prepared.way("SELECT $1, $2", &values), Way::Plain);
        let Way::New { prepare, execute } = prepared.way("SELECT $1, $2", &values) else {
            panic!("a third use is worth a name")
        };
        let name = format!("{}_0", prepared.prefix);
        assert_eq!(prepare, format!("PREPARE {name} (int8, text) AS SELECT $1, $2"));
        assert_eq!(execute, format!("EXECUTE {name}('7', E'a')"));
        assert_eq!(prepared.way("SELECT $1, $2", &values), Way::Known { execute });
        prepared.give_up();
        assert_eq!(prepared.way("SELECT $1, $2", &values), Way::Plain);
    }

    #[test]
    fn no_value_ends_its_quotes() {
        let mut prepared = Prepared::new();
        let values = [Value::from(1 << 63), Value::from(r"a'; DROP \' x\"), Value::Text(None)];
        let sql = execute(&mut prepared, "SELECT 1", &values);
        assert!(sql.ends_with(r"('-9223372036854775808', E'a''; DROP \\'' x\\', NULL)"), "{sql}");
    }

    #[test]
    fn connections_share_no_names_and_have_not_endlessly_many() {
        let mut prepared = Prepared::new();
        assert_ne!(prepared.prefix, Prepared::new().prefix);
        for number in 0..10 * MOST {
            prepared.way(&format!("SELECT {number}"), &[]);
        }
        assert_eq!(prepared.uses.len(), MOST);
    }
}
