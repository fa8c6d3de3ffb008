//! SQL from the columns of a row: text and values, without a connection.

use crate::request::scheme::{Family, Kept};
use crate::store::model::row_layout::RowLayout;
use crate::store::model::rows::{self, StoredRow};
use crate::store::model::value::Value;
use crate::store::{Fault, Key, OwnSlot, Renewal};

use super::Dialect;

/// Columns with values.
type ColumnValues<'k> = Vec<(&'k str, Value)>;

/// The table of a key, as statements name it.
#[derive(Clone, Debug)]
pub(crate) struct SqlTable<'k> {
    pub(crate) key: &'k Key,
    pub(crate) dialect: Dialect,
    /// Qualified for SQL.
    pub(crate) place: String,
}

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
    /// The column whose new value is the number in the answer to a change that commits by itself.
    pub(crate) numbered: String,
}

impl Statement {
    pub(crate) fn sql(&self) -> String {
        format!("UPDATE {} SET {} WHERE {}", self.table, self.assigned, self.condition)
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

impl<'k> SqlTable<'k> {
    fn layout(&self) -> RowLayout<'k> {
        RowLayout::of(self.key)
    }

    /// The columns that identify the row of the key, with their values.
    fn identity(&self) -> Result<ColumnValues<'k>, Fault> {
        let identity = self.layout().identity()?;
        if self.dialect.family() == Family::MySql && matches!(self.key.scheme.kept(), Kept::Serial) {
            for (_, value) in &identity {
                if let Value::Text(text) = value {
                    rows::check_three_bytes(self.key, text)?;
                }
            }
        }
        Ok(identity)
    }

    /// A query for columns of the row.
    pub(super) fn select(&self, columns: &str, end: &str) -> Result<(String, Vec<Value>), Fault> {
        let mut row = Fragment::default();
        row.compare(self.identity()?);
        Ok((format!("SELECT {columns} FROM {} WHERE {}{end}", self.place, row.text), row.values))
    }

    /// Creates the row.
    pub(super) fn insert(&self, new: &StoredRow) -> Result<(String, Vec<Value>), Fault> {
        let layout = self.layout();
        let (mut columns, mut values) = (Fragment::default(), Fragment::default());
        for (column, value) in self.identity()?.into_iter().chain(layout.encode(new)) {
            columns.push(", ", &format!("`{column}`"));
            values.push(", ", "?");
            values.values.push(value);
        }
        if let Some((column, touched)) = layout.touched_on(self.dialect.family()) {
            columns.push(", ", &format!("`{column}`"));
            values.push(", ", self.dialect.now(touched));
        }
        let sql = format!("INSERT INTO {} ({}) VALUES ({})", self.place, columns.text, values.text);
        Ok((sql, values.values))
    }

    /// Compare-and-set: changes a row that is `old` to `new`.
    pub(super) fn replace(&self, old: &StoredRow, new: &StoredRow) -> Result<Statement, Fault> {
        let layout = self.layout();
        let (mut assigned, mut condition) = (Fragment::default(), Fragment::default());
        assigned.assign(layout.changed(new));
        assigned.touch(layout, self.dialect);
        condition.compare(self.identity()?);
        condition.compare(layout.compared(old));
        Ok(self.update(assigned, condition, layout.position()))
    }

    /// Adds `len` to the position of a row between `lowest` and `highest` whose columns `relied_on` are unchanged. `addition` is
    /// the new value of the position in SQL.
    pub(super) fn add(
        &self,
        addition: &str,
        len: u64,
        (lowest, highest): (u64, u64),
        relied_on: ColumnValues<'_>,
        writer: u64,
    ) -> Result<Statement, Fault> {
        let layout = self.layout();
        let position = layout.position();
        let mut assigned = Fragment { text: format!("`{position}` = {addition}"), values: vec![len.into()] };
        assigned.assign(layout.writer().map(|column| (column, writer.into())).into_iter().collect());
        assigned.touch(layout, self.dialect);
        let mut condition = Fragment::default();
        condition.compare(self.identity()?);
        condition.push(" AND ", &format!("`{position}` >= ? AND `{position}` <= ?"));
        condition.values.extend([lowest.into(), highest.into()]);
        condition.compare(relied_on);
        Ok(self.update(assigned, condition, position))
    }

    fn update(&self, assigned: Fragment, condition: Fragment, numbered: &str) -> Statement {
        Statement {
            table: self.place.clone(),
            assigned: assigned.text,
            assigned_values: assigned.values,
            condition: condition.text,
            condition_values: condition.values,
            numbered: numbered.to_owned(),
        }
    }

    /// Raises the marks and ends of leased workers of one table and of leases of one length, each where its owner left token and mark, and
    /// gives all of them one new token. It commits by itself, and its number is the end: the server's clock and the length.
    pub(super) fn renew(
        &self,
        renewals: &[Renewal],
        clock: &str,
        (token, lease_ms): (u64, u64),
    ) -> Statement {
        let (mut marks, mut sources, mut condition) =
            (Fragment::default(), Fragment::default(), Fragment::default());
        for Renewal { own: OwnSlot { key, slot, left, source }, to, .. } in renewals {
            marks.push(" ", "WHEN `pool` = ? AND `slot` = ? THEN ?");
            marks.values.extend([key.name.as_str().into(), (*slot).into(), to.mark.into()]);
            sources.push(" ", "WHEN `pool` = ? AND `slot` = ? THEN ?");
            sources.values.extend([key.name.as_str().into(), (*slot).into(), (&**source).into()]);
            let lefts = vec!["`token` = ? AND `mark` = ?"; left.len()].join(" OR ");
            condition.push(" OR ", &format!("`pool` = ? AND `slot` = ? AND ({lefts})"));
            condition.values.extend([key.name.as_str().into(), (*slot).into()]);
            condition.values.extend(left.iter().flat_map(|left| [left.token, left.mark]).map(Value::from));
        }
        let end = match self.dialect.family() {
            Family::MySql => format!("LAST_INSERT_ID({clock} + ?)"),
            Family::Postgres | Family::Sqlite => format!("{clock} + ?"),
        };
        let mut assigned = Fragment {
            text: format!(
                "`token` = ?, `mark` = CASE {} ELSE `mark` END, `source` = CASE {} ELSE `source` END, `ends_at` = {end}",
                marks.text, sources.text
            ),
            values: vec![token.into()],
        };
        assigned.values.extend(marks.values);
        assigned.values.extend(sources.values);
        assigned.values.push(lease_ms.into());
        condition.text = format!("({})", condition.text);
        self.update(assigned, condition, "ends_at")
    }
}

/// The pattern of texts that begin with `prefix`, for `LIKE … ESCAPE '|'`.
pub(crate) fn like(prefix: &str) -> String {
    let mut like = String::with_capacity(prefix.len() + 1);
    for c in prefix.chars() {
        if matches!(c, '|' | '%' | '_') {
            like.push('|');
        }
        like.push(c);
    }
    like.push('%');
    like
}
