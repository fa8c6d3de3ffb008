//! What leaves the process: answers to standard output, errors to standard error.
//!
//! A reader that has gone away is not an error: it has read what it wanted. Nothing here uses `println!`, which
//! panics then.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};

use keymill::{Error, Result};
use serde_json::Value;

/// Whether standard output still has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Yes.
    Listens,
    /// The pipe is closed.
    Gone,
}

/// Writes to standard output and flushes.
///
/// # Errors
/// `INVALID_ARGUMENT` where it cannot be written, a full disk for one.
pub fn out(bytes: &[u8]) -> Result<Reader> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(Reader::Listens),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(error) => Err(Error::argument(format!(
            "standard output cannot be written: {error}; the last ids taken may be missing there and are lost"
        ))),
    }
}

/// Writes an answer as text, with a line end.
///
/// # Errors
/// As [`out`].
pub fn text(answer: &str) -> Result<()> {
    out(answer.as_bytes()).map(drop)
}

/// Writes an answer as one line of JSON.
///
/// # Errors
/// As [`out`].
pub fn json(answer: &Value) -> Result<()> {
    out(format!("{answer}\n").as_bytes()).map(drop)
}

/// `name: value`, one a line, or a JSON object of strings.
///
/// # Errors
/// As [`out`].
pub fn fields<N: AsRef<str>>(as_json: bool, fields: &[(N, String)]) -> Result<()> {
    if as_json {
        let object =
            fields.iter().map(|(name, value)| (name.as_ref().replace(' ', "_"), Value::from(value.as_str())));
        return json(&Value::Object(object.collect()));
    }
    let mut lines = String::new();
    for (name, value) in fields {
        let _ = writeln!(lines, "{}: {}", name.as_ref(), one_line(value));
    }
    text(&lines)
}

/// Columns that stand under each other; the first row is the head.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Text without what a terminal obeys: a name from a database must not move its cursor or fake a line.
#[must_use]
pub fn one_line(text: &str) -> String {
    keymill::binding::printable(text.to_owned())
}

/// A line for a person, on standard error.
pub fn note(text: &str) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(io::stderr().lock(), "{}", one_line(text));
}

/// `keymill: CODE: message`, on standard error.
pub fn error(error: &Error) {
    note(&format!("keymill: {error}"));
}

/// In the largest unit that it is a whole number of: `10 ms`, `1 s`, `90 min`, `7 d`.
#[must_use]
pub fn duration(ms: i64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
    let largest = units.into_iter().find(|(unit, _)| ms != 0 && ms % unit == 0);
    let (unit, name) = largest.unwrap_or((1, "ms"));
    format!("{} {name}", ms / unit)
}
