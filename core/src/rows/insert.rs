//! The statement that brings rows of the old shard to the new one.

use std::ops::Range;

use super::key::Id;
use super::literals::{push_escaped, write_literal};
use super::moved_table::MovedTable;
use super::permit::{CONDITION, Until};
use super::shard::{Cells, ShardKind};

/// What came of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is in the statement.
    Yes,
    /// It does not fit beside the rows that are there.
    NoRoom,
    /// It has no id.
    NoId,
    /// Alone it needs a statement of so many bytes.
    TooLong(usize),
}

/// The rows of a statement.
enum RowTexts {
    /// One after the other. The first id has this place: it is an error once the permit is over.
    Values { text: String, id: Range<usize> },
    /// Column by column. PostgreSQL reads an array about three times as fast as as many values of a `VALUES`, since each of those is an expression.
    Arrays(Vec<String>),
}

/// An insert, row by row.
pub(super) struct Insert<'t> {
    table: &'t MovedTable,
    head: String,
    tail: String,
    /// The longest statement that the server takes.
    longest: usize,
    /// The bytes around the rows.
    frame: usize,
    rows: RowTexts,
    count: usize,
}

impl<'t> Insert<'t> {
    /// Rows that the table does not have, as far as is known: a row that is there is an error. To look for each costs PostgreSQL a third more.
    pub(super) fn new(table: &'t MovedTable, longest: usize) -> Insert<'t> {
        Insert::ending(table, longest, String::new())
    }

    /// Rows that replace those that are there.
    pub(super) fn or_replace(table: &'t MovedTable, longest: usize) -> Insert<'t> {
        Insert::ending(table, longest, table.or_replace())
    }

    fn ending(table: &'t MovedTable, longest: usize, tail: String) -> Insert<'t> {
        let head = table.insert();
        let has_arrays =
            table.kind == ShardKind::Postgres && table.columns.iter().all(|column| !column.array.is_empty());
        let rows = if has_arrays {
            RowTexts::Arrays(vec![String::new(); table.columns.len()])
        } else {
            RowTexts::Values { text: String::new(), id: 0..0 }
        };
        let mut insert = Insert { table, head, tail, longest, frame: 0, rows, count: 0 };
        insert.frame = insert.words("", "").len() + CONDITION;
        insert
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of the statement.
    pub(super) fn len(&self) -> usize {
        let rows = match &self.rows {
            RowTexts::Values { text, .. } => text.len(),
            RowTexts::Arrays(columns) => columns.iter().map(String::len).sum(),
        };
        self.frame + rows
    }

    /// Adds a row of [`MovedTable::select_where`]. It is another server's, which may say anything.
    pub(super) fn add(&mut self, row: Cells<'_>) -> Added {
        let cell = self.table.primary.first().and_then(|at| row.get(*at)).copied().flatten();
        let id = cell.and_then(|bytes| self.table.read_id(bytes));
        let Some(id) = id.filter(|_| row.len() == self.table.columns.len()) else { return Added::NoId };
        let before = self.lengths();
        self.write(&id, row);
        let len = self.len();
        if len <= self.longest {
            self.count += 1;
            return Added::Yes;
        }
        self.shorten(&before);
        if self.count == 0 { Added::TooLong(len) } else { Added::NoRoom }
    }

    /// Begins the next statement.
    pub(super) fn clear(&mut self) {
        self.shorten(&[]);
        self.count = 0;
    }

    fn lengths(&self) -> Vec<usize> {
        match &self.rows {
            RowTexts::Values { text, .. } => vec![text.len()],
            RowTexts::Arrays(columns) => columns.iter().map(String::len).collect(),
        }
    }

    fn shorten(&mut self, lengths: &[usize]) {
        let length = |at: usize| lengths.get(at).copied().unwrap_or(0);
        match &mut self.rows {
            RowTexts::Values { text, .. } => text.truncate(length(0)),
            RowTexts::Arrays(columns) => {
                columns.iter_mut().enumerate().for_each(|(at, column)| column.truncate(length(at)));
            }
        }
    }

    fn write(&mut self, id: &Id, row: Cells<'_>) {
        let table = self.table;
        let at_key = table.primary.first().copied().unwrap_or(0);
        let cells = table.columns.iter().zip(row).enumerate();
        match &mut self.rows {
            RowTexts::Values { text, id: place } => {
                text.push_str(if self.count > 0 { ",(" } else { "(" });
                for (at, (column, value)) in cells {
                    text.push_str(if at > 0 { "," } else { "" });
                    let begin = text.len();
                    match value {
                        None => text.push_str("NULL"),
                        Some(_) if at == at_key => text.push_str(&table.id(id)),
                        Some(bytes) => write_literal(text, table.kind, &column.charset, bytes),
                    }
                    if at == at_key && self.count == 0 {
                        *place = begin..text.len();
                    }
                }
                text.push(')');
            }
            RowTexts::Arrays(columns) => {
                for (column, (_, (_, value))) in columns.iter_mut().zip(cells) {
                    column.push_str(if self.count > 0 { "," } else { "" });
                    match value {
                        None => column.push_str("NULL"),
                        Some(bytes) => write_element(column, bytes),
                    }
                }
            }
        }
    }

    /// The statement, which changes nothing once the permit is over.
    pub(super) fn statement(&self, until: &Until) -> String {
        match &self.rows {
            RowTexts::Values { text, id } => {
                let part = |range: Range<usize>| text.get(range).unwrap_or_default();
                let id_or_late = until.guarded(part(id.clone()), self.table.is_wide);
                let rest = part(id.end..text.len());
                [&self.head, "VALUES ", part(0..id.start), &id_or_late, rest, &self.tail].concat()
            }
            RowTexts::Arrays(_) => {
                let [before, after] = until.around_array(self.table.is_wide);
                self.words(&before, &after)
            }
        }
    }

    /// The statement, with these words around the ids of arrays.
    fn words(&self, before_ids: &str, after_ids: &str) -> String {
        let RowTexts::Arrays(columns) = &self.rows else {
            return [&self.head, "VALUES ", &self.tail].concat();
        };
        let at_key = self.table.primary.first().copied().unwrap_or(0);
        let mut out = [&self.head, "SELECT * FROM ROWS FROM ("].concat();
        for (at, (values, column)) in columns.iter().zip(&self.table.columns).enumerate() {
            let [before, after] = if at == at_key { [before_ids, after_ids] } else { ["", ""] };
            let comma = if at > 0 { ", " } else { "" };
            for words in
                [comma, "pg_catalog.unnest(", before, "'{", values, "}'::", &column.array, after, ")"]
            {
                out.push_str(words);
            }
        }
        out + ") AS sent" + &self.tail
    }
}

/// A value as an element of an array in a literal.
fn write_element(out: &mut String, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    // Numbers need no quotes, and the server reads them faster without.
    let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if !bytes.is_empty() && bytes.iter().all(is_number) {
        out.push_str(text);
        return;
    }
    out.push('"');
    push_escaped(out, text, [('\'', "''"), ('\\', "\\\\"), ('"', "\\\"")]);
    out.push('"');
}
