//! SQL from the columns of a row.

use crate::request::scheme::Family;
use crate::store::model::row_layout::RowLayout;
use crate::store::model::rows::StoredRow;
use crate::store::model::value::Value;
use crate::store::{Fault, Key, OwnSlot, Renewal};

use super::{Connection, Dialect, sql_rows};

/// ColumnValues with values.
type ColumnValues<'k> = Vec<(&'k str, Value)>;

/// A change of one row, in parts: a connection may query the row first, by the same condition.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    /// The table, qualified for SQL.
    pub(crate) table: String,
    /// The assignments and their values.
    assigned: String,
    assigned_values: Vec<Value>,
    /// The condition on the row and its values.
    pub(crate) condition: String,
    pub(crate) condition_values: Vec<Value>,
    /// The end of the statement.
    end: String,
}

impl Statement {
    pub(crate) fn sql(&self) -> String {
        format!("UPDATE {} SET {} WHERE {}{}", self.table, self.assigned, self.condition, self.end)
    }

    pub(crate) fn values(&self) -> Vec<Value> {
        self.assigned_values.iter().chain(&self.condition_values).cloned().collect()
    }
}

/// Builds the two sides of a statement.
#[derive(Default)]
struct Fragment {
    text: String,
    values: Vec<Value>,
}

impl Fragment {
    fn push(&mut self, separator: &str, text: &str) {
        if !self.text.is_empty() {
            self.text.push_str(separator);
        }
        self.text.push_str(text);
    }

    /// `a` = ? AND `b` IS NULL
    fn compare(&mut self, columns: ColumnValues<'_>) {
        for (column, value) in columns {
            if value == Value::Null {
                self.push(" AND ", &format!("`{column}` IS NULL"));
            } else {
                self.push(" AND ", &format!("`{column}` = ?"));
                self.values.push(value);
            }
        }
    }

    /// `a` = ?, `b` = ?
    fn assign(&mut self, columns: ColumnValues<'_>) {
        for (column, value) in columns {
            self.push(", ", &format!("`{column}` = ?"));
            self.values.push(value);
        }
    }

    /// The assignments that every change of a row needs.
    fn touch(&mut self, layout: RowLayout<'_>, dialect: Dialect) {
        if let Some(version) = layout.version() {
            self.push(", ", &format!("`{version}` = `{version}` + 1"));
        }
        if let Some((column, touched)) = layout.touched_on(dialect.family()) {
            self.push(", ", &format!("`{column}` = {}", dialect.now(touched)));
        }
    }
}

/// A query for columns of the row of a key.
pub(super) fn select(
    connection: &dyn Connection,
    key: &Key,
    columns: &str,
    end: &str,
) -> Result<(String, Vec<Value>), Fault> {
    let mut row = Fragment::default();
    row.compare(sql_rows::identity(connection.dialect(), key)?);
    Ok((format!("SELECT {columns} FROM {} WHERE {}{end}", connection.place(key)?, row.text), row.values))
}

/// Creates the row of a key.
pub(super) fn insert(
    connection: &dyn Connection,
    key: &Key,
    new: &StoredRow,
) -> Result<(String, Vec<Value>), Fault> {
    let (layout, dialect) = (RowLayout::of(key), connection.dialect());
    let (mut columns, mut values) = (Fragment::default(), Fragment::default());
    for (column, value) in sql_rows::identity(dialect, key)?.into_iter().chain(layout.encode(new)) {
        columns.push(", ", &format!("`{column}`"));
        values.push(", ", "?");
        values.values.push(value);
    }
    if let Some((column, touched)) = layout.touched_on(dialect.family()) {
        columns.push(", ", &format!("`{column}`"));
        values.push(", ", dialect.now(touched));
    }
    let sql = format!("INSERT INTO {} ({}) VALUES ({})", connection.place(key)?, columns.text, values.text);
    Ok((sql, values.values))
}

/// Compare-and-set: changes a row that is `old` to `new`.
pub(super) fn replace(
    connection: &dyn Connection,
    key: &Key,
    old: &StoredRow,
    new: &StoredRow,
) -> Result<Statement, Fault> {
    let (layout, dialect) = (RowLayout::of(key), connection.dialect());
    let (mut assigned, mut condition) = (Fragment::default(), Fragment::default());
    assigned.assign(layout.changed(new));
    assigned.touch(layout, dialect);
    condition.compare(sql_rows::identity(dialect, key)?);
    condition.compare(layout.compared(old));
    Statement::new(connection, key, assigned, condition)
}

impl Statement {
    fn new(
        connection: &dyn Connection,
        key: &Key,
        assigned: Fragment,
        condition: Fragment,
    ) -> Result<Statement, Fault> {
        Ok(Statement {
            table: connection.place(key)?,
            assigned: assigned.text,
            assigned_values: assigned.values,
            condition: condition.text,
            condition_values: condition.values,
            end: String::new(),
        })
    }

    /// The same change, committing by itself.
    pub(super) fn committing(mut self, connection: &dyn Connection, key: &Key) -> Statement {
        self.end = connection.ends_with(RowLayout::of(key).position());
        self
    }
}

/// Adds `len` to the position of a row between `from.0` and `from.1` whose columns `relied_on` are unchanged. `addition` is
/// the new value of the position in SQL.
pub(super) fn add(
    connection: &dyn Connection,
    key: &Key,
    addition: &str,
    len: u64,
    from: (u64, u64),
    relied_on: ColumnValues<'_>,
) -> Result<Statement, Fault> {
    let (layout, dialect) = (RowLayout::of(key), connection.dialect());
    let position = layout.position();
    let mut assigned = Fragment { text: format!("`{position}` = {addition}"), values: vec![len.into()] };
    assigned.touch(layout, dialect);
    let mut condition = Fragment::default();
    condition.compare(sql_rows::identity(dialect, key)?);
    condition.push(" AND ", &format!("`{position}` >= ? AND `{position}` <= ?"));
    condition.values.extend([from.0.into(), from.1.into()]);
    condition.compare(relied_on);
    Ok(Statement::new(connection, key, assigned, condition)?.committing(connection, key))
}

/// Raises the marks and ends of leased workers of one table and of leases of one length, each where its owner left token and mark, and
/// gives all of them one new token. It commits by itself, and its number is the end: the server's clock and the length.
pub(super) fn renew(
    connection: &dyn Connection,
    renewals: &[Renewal],
    key: &Key,
    clock: &str,
    (token, lease_ms): (u64, u64),
) -> Result<Statement, Fault> {
    let (mut marks, mut owners, mut condition) =
        (Fragment::default(), Fragment::default(), Fragment::default());
    for Renewal { own: OwnSlot { key, slot, left, owner }, to, .. } in renewals {
        marks.push(" ", "WHEN `pool` = ? AND `slot` = ? THEN ?");
        marks.values.extend([key.name.as_str().into(), (*slot).into(), to.mark.into()]);
        owners.push(" ", "WHEN `pool` = ? AND `slot` = ? THEN ?");
        owners.values.extend([key.name.as_str().into(), (*slot).into(), (&**owner).into()]);
        let lefts = vec!["`token` = ? AND `mark` = ?"; left.len()].join(" OR ");
        condition.push(" OR ", &format!("`pool` = ? AND `slot` = ? AND ({lefts})"));
        condition.values.extend([key.name.as_str().into(), (*slot).into()]);
        condition.values.extend(left.iter().flat_map(|left| [left.token, left.mark]).map(Value::from));
    }
    let end = match connection.dialect().family() {
        Family::MySql => format!("LAST_INSERT_ID({clock} + ?)"),
        Family::Postgres | Family::Sqlite => format!("{clock} + ?"),
    };
    let mut assigned = Fragment {
        text: format!(
            "`token` = ?, `mark` = CASE {} ELSE `mark` END, `owner` = CASE {} ELSE `owner` END, `ends_at` = {end}",
            marks.text, owners.text
        ),
        values: vec![token.into()],
    };
    assigned.values.extend(marks.values);
    assigned.values.extend(owners.values);
    assigned.values.push(lease_ms.into());
    condition.text = format!("({})", condition.text);
    let mut statement = Statement::new(connection, key, assigned, condition)?;
    statement.end = connection.ends_with("ends_at");
    Ok(statement)
}
