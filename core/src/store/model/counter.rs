//! Tables that keep one row a name and in it how far numbers have been handed out: IDSnowman's `sequence_table`, Leaf's
//! `leaf_alloc`, tinyid's `tiny_id_info`, CosId's `cosid`. Their shape stands here once, as data: which columns, and
//! whether the maximum is the last number handed out or the next one.
//!
//! The rivals' programs may work on the same row at the same time, so nothing of theirs is changed in meaning:
//! * IDSnowman (the seed): `SET cur_id = LAST_INSERT_ID(cur_id + step)`, and the batch that ends at 800 begins at 601 where
//!   `step` is 200: `cur_id` is the *last* number handed out.
//! * Leaf: `SET max_id = max_id + step`, and a node counts from `max_id - step` up to *below* `max_id`: it is the *next*.
//! * tinyid: a segment is `(max_id - step, max_id]`, and a writer compares `version` and `max_id`: *last*. Of its numbers a
//!   node issues those with `id % delta == remainder`. `max_id` need not be one of them: wherever it stands between two,
//!   the next is the same, so a [`Mark`] is that next one, and nobody notices which node moved the row.
//! * CosId: a segment is `(last_max_id - step, last_max_id]`: *last*.

use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Request, Scheme, Stride};

/// What a row's maximum says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// The last number handed out.
    Last,
    /// The next number to hand out.
    Next,
}

/// The columns of such a table, as their authors call them or as a shop does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter<'k> {
    /// The column a row is found by, and how many characters it holds.
    pub(crate) name: (&'k str, usize),
    /// The column of the maximum.
    pub(crate) maximum: &'k str,
    pub(crate) holds: Holds,
    /// Every reservation is a whole multiple of this column.
    pub(crate) step: Option<&'k str>,
    /// How many seconds a range may be issued from; 0 is without end.
    pub(crate) ttl: Option<&'k str>,
    /// Counts the changes; whoever writes compares it.
    pub(crate) version: Option<&'k str>,
    /// Delta and remainder: a node issues only every delta-th number.
    #[cfg_attr(not(feature = "_sql"), allow(dead_code))]
    pub(crate) stride: Option<(&'k str, &'k str)>,
    /// Which numbers they have to say.
    pub(crate) own: Stride,
    /// A column that says when the row was changed, with what MySQL, SQLite and PostgreSQL call this moment.
    #[cfg_attr(not(feature = "_sql"), allow(dead_code))]
    pub(crate) touched: Option<(&'k str, &'static str, &'static str, &'static str)>,
}

const SEQUENCE_TABLE: Counter<'static> = Counter {
    name: ("biz_type", 50),
    maximum: "cur_id",
    holds: Holds::Last,
    step: Some("step"),
    ttl: Some("time_to_live"),
    version: None,
    stride: None,
    own: Stride::EVERY,
    touched: None,
};

const LEAF_ALLOC: Counter<'static> = Counter {
    name: ("biz_tag", 128),
    maximum: "max_id",
    holds: Holds::Next,
    step: Some("step"),
    ttl: None,
    version: None,
    stride: None,
    own: Stride::EVERY,
    touched: Some(("update_time", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP")),
};

const TINY_ID_INFO: Counter<'static> = Counter {
    name: ("biz_type", 63),
    maximum: "max_id",
    holds: Holds::Last,
    step: Some("step"),
    ttl: None,
    version: Some("version"),
    stride: Some(("delta", "remainder")),
    own: Stride::EVERY,
    touched: Some(("update_time", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP", "CURRENT_TIMESTAMP")),
};

const COSID: Counter<'static> = Counter {
    name: ("name", 100),
    maximum: "last_max_id",
    holds: Holds::Last,
    step: None,
    ttl: None,
    version: None,
    stride: None,
    own: Stride::EVERY,
    touched: Some((
        "last_fetch_time",
        "UNIX_TIMESTAMP()",
        "CAST(strftime('%s', 'now') AS INTEGER)",
        "CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT)",
    )),
};

/// What is said of a source that is to own every number of a row which owns only some.
const WITHOUT: &str = ", this source is written without them";

/// Why such a row cannot be imported, where that is what `fault` is about.
pub(crate) fn not_imported(mut fault: Fault) -> Fault {
    if let Some(at) = fault.message.find(WITHOUT) {
        fault.message.truncate(at);
        fault.message.push_str(
            ": the other numbers are another database's, and an import takes them all. Stop the nodes of every such \
             database, raise `max_id` above that of each of their rows, set the two columns to 1 and 0, and import then; or \
             go on as `scheme=tiny_id_info`; nothing was changed",
        );
    }
    fault
}

/// The columns of a scheme's table that a shop may call otherwise (`columns=`); none where the table is keymill's own.
pub(crate) fn columns_of(scheme: Scheme) -> Vec<&'static str> {
    match Counter::of(scheme) {
        Some(counter) => counter.needed(),
        None if scheme == Scheme::KeyProducer => PRODUCER.to_vec(),
        None => Vec::new(),
    }
}

/// The columns of `key_producer`.
const PRODUCER: [&str; 6] = ["TABLENAME", "COLUMNNAME", "MAXSERIALNO", "DATEFMT", "NOFMT", "update_time"];

/// A row of such a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterRow {
    /// The maximum, as it is kept.
    pub(crate) maximum: u64,
    /// The row's step, 1 where the table has none.
    pub(crate) step: u64,
    /// The row's time to live in seconds, 0 for none.
    pub(crate) ttl_s: u64,
    /// The row's version, 0 where the table has none.
    pub(crate) version: u64,
    /// The row's delta and remainder, (1, 0) where the table has none.
    pub(crate) stride: (u64, u64),
}

/// A column as a store reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "_sql"), allow(dead_code))] // memory keeps rows as they are
pub(crate) enum Cell {
    Null,
    Number(i128),
    Other(String),
}

impl<'k> Counter<'k> {
    /// The table of this key as this key calls its columns, if it is one of these.
    pub(crate) fn of_key(key: &'k Key) -> Option<Counter<'k>> {
        let authors = Counter::of(key.scheme)?;
        let own = |column: &'static str| key.columns.own(column);
        Some(Counter {
            name: (own(authors.name.0), authors.name.1),
            maximum: own(authors.maximum),
            holds: authors.holds,
            step: authors.step.map(own),
            ttl: authors.ttl.map(own),
            version: authors.version.map(own),
            stride: authors.stride.map(|(delta, remainder)| (own(delta), own(remainder))),
            own: key.stride,
            touched: authors
                .touched
                .map(|(column, mysql, sqlite, postgres)| (own(column), mysql, sqlite, postgres)),
        })
    }
}

impl Counter<'static> {
    /// The table of this scheme as its authors made it, if it is one of these.
    pub(crate) const fn of(scheme: Scheme) -> Option<&'static Counter<'static>> {
        match scheme {
            Scheme::SequenceTable => Some(&SEQUENCE_TABLE),
            Scheme::LeafAlloc => Some(&LEAF_ALLOC),
            Scheme::TinyIdInfo => Some(&TINY_ID_INFO),
            Scheme::Cosid => Some(&COSID),
            Scheme::Keymill
            | Scheme::KeyProducer
            | Scheme::AutoIncrement
            | Scheme::Ticket
            | Scheme::Sequence => None,
        }
    }
}

impl<'k> Counter<'k> {
    /// The name a row of this key is found by: the source's, without its kind, as the rivals write it.
    pub(crate) fn row_name<'n>(&self, key: &'n Key) -> Result<&'n str, Fault> {
        let name = key.name.strip_prefix("segment:").unwrap_or(&key.name);
        let (column, most) = self.name;
        if name.chars().count() > most {
            return Err(Fault::new(
                FaultKind::Refused,
                format!("`{name}` is longer than the {most} characters of `{column}`; use `scheme=keymill`"),
            ));
        }
        // The tables are three-byte utf8 as their authors made them: a wider character would be cut, or not be found.
        if let Some(wide) = name.chars().find(|c| *c > '\u{ffff}') {
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "`{wide}` cannot be kept in `{}`, whose text is three-byte utf8; use `scheme=keymill`",
                    key.table
                ),
            ));
        }
        Ok(name)
    }

    /// The number after those that were handed out when the maximum stands there.
    const fn after(&self, maximum: u64) -> u64 {
        match self.holds {
            Holds::Last => maximum + 1,
            Holds::Next => maximum,
        }
    }

    /// The lowest number that nobody has been handed, by this row: of its own, where it owns only some.
    pub(crate) fn mark(&self, row: &CounterRow) -> Mark {
        let next = self.after(row.maximum);
        // 0 is told by whoever decides.
        Mark { period: 0, next: if next == 0 { 0 } else { self.own.at_least(next) } }
    }

    /// Refuses a row whose delta and remainder are not the key's: it hands out other numbers.
    pub(crate) fn check_stride(&self, key: &Key, row: &CounterRow) -> Result<(), Fault> {
        let (Some((delta, remainder)), (by, from)) = (self.stride, row.stride) else { return Ok(()) };
        let own = self.own;
        if (by, from) == (own.delta(), own.remainder()) {
            return Ok(());
        }
        let written = if own.is_every() {
            WITHOUT.to_owned()
        } else {
            format!(", this source is written with `delta={}&remainder={}`", own.delta(), own.remainder())
        };
        let remedy = match Stride::new(by, from) {
            None => "no number is one of these: mend the row".to_owned(),
            Some(row) if row.is_every() => "leave both options out".to_owned(),
            Some(_) => format!("write `delta={by}&remainder={from}`"),
        };
        Err(Fault::new(
            FaultKind::Refused,
            format!(
                "its row in `{}` has {delta}={by} and {remainder}={from}{written}: they would not take the same numbers; \
                 {remedy}; nothing was changed",
                key.table
            ),
        ))
    }

    /// A new row that stands there.
    pub(crate) fn row_at(&self, mark: Mark, step: u64) -> Result<CounterRow, Fault> {
        if mark.next > self.last() + 1 {
            return Err(Fault::new(
                FaultKind::Refused,
                format!("{} cannot be kept in `{}`, a signed 64-bit column", mark.next, self.maximum),
            ));
        }
        let maximum = match self.holds {
            Holds::Last => mark.next.saturating_sub(1),
            Holds::Next => mark.next,
        };
        // A node of theirs issues every delta-th number of a step.
        let step = step.saturating_mul(self.own.delta());
        let step = if self.step.is_some() { step.clamp(1, i32::MAX as u64) } else { 1 };
        let stride = (self.own.delta(), self.own.remainder());
        Ok(CounterRow { maximum, step, ttl_s: 0, version: 0, stride })
    }

    /// The last number such a table can hand out: where the maximum is the next one, it has to be kept itself.
    pub(crate) const fn last(&self) -> u64 {
        match self.holds {
            Holds::Last => MAX_NUMBER,
            Holds::Next => MAX_NUMBER - 1,
        }
    }

    /// How far a row is moved: by whole multiples of its step, and over one number of its own at least.
    const fn whole_steps(&self, len: u64, row: &CounterRow) -> u64 {
        let least = self.own.delta();
        (if len > least { len } else { least }).div_ceil(row.step).saturating_mul(row.step)
    }

    /// The request as this row allows it: whole multiples of its step. A range begins with a number of its own; what lies
    /// between `max_id` and that one counts as moved.
    pub(crate) fn fitted(&self, request: &Request, row: &CounterRow) -> Request {
        let passed = self.mark(row).next.saturating_sub(self.after(row.maximum));
        Request {
            len: self.whole_steps(request.len, row).saturating_sub(passed),
            // 0 stays: a row that is missing is then not made.
            start: if request.start == 0 { 0 } else { self.own.at_least(request.start) },
            last: request.last.min(self.last()),
            ..request.clone()
        }
    }

    /// How long this row lets a range live.
    pub(crate) fn ttl_ms(row: &CounterRow) -> Option<u64> {
        (row.ttl_s > 0).then(|| row.ttl_s.saturating_mul(1000))
    }

    /// The columns that hold what a [`CounterRow`] is made of, the maximum first.
    fn read_columns(&self) -> Vec<&'k str> {
        let mut columns = vec![self.maximum];
        columns.extend([self.step, self.ttl, self.version].into_iter().flatten());
        columns.extend(self.stride.map(|(delta, remainder)| [delta, remainder]).into_iter().flatten());
        columns
    }

    /// The columns the table must have, the name's first.
    pub(crate) fn needed(&self) -> Vec<&'k str> {
        let mut columns = vec![self.name.0];
        columns.extend(self.read_columns());
        columns.extend(self.touched.map(|(column, ..)| column));
        columns
    }

    /// The row for a person.
    pub(crate) fn describe(&self, row: &CounterRow) -> String {
        let mut text = format!("{}={}", self.maximum, row.maximum);
        // A row that owns every number is described as ever: nobody has to know of the others.
        let stride = self.stride.filter(|_| !self.own.is_every());
        let values = [
            (self.step, row.step),
            (self.ttl, row.ttl_s),
            (stride.map(|(delta, _)| delta), row.stride.0),
            (stride.map(|(_, remainder)| remainder), row.stride.1),
            (self.version, row.version),
        ];
        for (column, value) in values {
            if let Some(column) = column {
                text.push_str(&format!(" {column}={value}"));
            }
        }
        text
    }
}

impl Counter<'_> {
    /// The row that was `before`, once it stands at `to`.
    pub(crate) fn moved(&self, before: &CounterRow, to: Mark) -> Result<CounterRow, Fault> {
        let CounterRow { maximum, .. } = self.row_at(to, 1)?;
        let version = before.version.saturating_add(u64::from(self.version.is_some()));
        Ok(CounterRow { maximum, version, ..*before })
    }
}

/// Whose SQL is spoken.
#[cfg(feature = "_sql")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // a build may have one of them only
pub(crate) enum Tongue {
    MySql,
    Sqlite,
    Postgres,
}

/// What a database's statements are made of. Both MySQL and SQLite take backquotes and `?`; PostgreSQL's store translates.
#[cfg(feature = "_sql")]
impl<'k> Counter<'k> {
    fn touched(&self, tongue: Tongue) -> Option<(&'k str, &'static str)> {
        self.touched.map(|(column, mysql, sqlite, postgres)| match tongue {
            Tongue::MySql => (column, mysql),
            Tongue::Sqlite => (column, sqlite),
            Tongue::Postgres => (column, postgres),
        })
    }

    /// Finds the row by its name.
    pub(crate) fn select(&self, table: &str) -> String {
        let columns: Vec<_> = self.read_columns().iter().map(|column| format!("`{column}`")).collect();
        format!("SELECT {} FROM `{table}` WHERE `{}` = ?", columns.join(", "), self.name.0)
    }

    /// Creates a row from its name, its maximum, and its step, time to live and stride where the table has them.
    pub(crate) fn insert(&self, table: &str, tongue: Tongue) -> String {
        let mut columns = format!("`{}`, `{}`", self.name.0, self.maximum);
        let mut values = String::from("?, ?");
        let stride = self.stride.map(|(delta, remainder)| [delta, remainder]);
        for column in [self.step, self.ttl].into_iter().flatten().chain(stride.into_iter().flatten()) {
            columns.push_str(&format!(", `{column}`"));
            values.push_str(", ?");
        }
        if let Some((column, now)) = self.touched(tongue) {
            columns.push_str(&format!(", `{column}`"));
            values.push_str(&format!(", {now}"));
        }
        format!("INSERT INTO `{table}` ({columns}) VALUES ({values})")
    }

    /// The values of [`Counter::insert`] after the name.
    pub(crate) fn insert_values(&self, row: &CounterRow) -> Vec<u64> {
        let mut values = vec![row.maximum];
        values.extend(self.step.map(|_| row.step));
        values.extend(self.ttl.map(|_| row.ttl_s));
        values.extend(self.stride.map(|_| [row.stride.0, row.stride.1]).into_iter().flatten());
        values
    }

    /// The beginning of a statement that moves a row: `UPDATE … SET maximum = VALUE, … WHERE name = ?`.
    pub(crate) fn update(&self, table: &str, value: &str, tongue: Tongue) -> String {
        let mut sql = format!("UPDATE `{table}` SET `{}` = {value}", self.maximum);
        if let Some(version) = self.version {
            sql.push_str(&format!(", `{version}` = `{version}` + 1"));
        }
        if let Some((column, now)) = self.touched(tongue) {
            sql.push_str(&format!(", `{column}` = {now}"));
        }
        sql.push_str(&format!(" WHERE `{}` = ?", self.name.0));
        sql
    }

    /// Compare-and-set: the values are the new maximum, the name, the old maximum, and the old version if there is one.
    pub(crate) fn replace(&self, table: &str, tongue: Tongue) -> String {
        let mut sql = self.update(table, "?", tongue);
        for column in [Some(self.maximum), self.version].into_iter().flatten() {
            sql.push_str(&format!(" AND `{column}` = ?"));
        }
        sql
    }

    /// The row that these cells are, in the order of [`Counter::select`]; refused with the column and what to do where
    /// they make no sense.
    pub(crate) fn row_of(&self, key: &Key, cells: &[Cell]) -> Result<CounterRow, Fault> {
        let columns = self.read_columns();
        let value = |column: &str, least: u64| -> Result<u64, Fault> {
            let cell = columns.iter().position(|of| *of == column).and_then(|at| cells.get(at));
            let remedy = match self.holds {
                _ if column != self.maximum => "mend the row",
                Holds::Last => "set it to the highest number that was ever issued",
                Holds::Next => "set it to the lowest number that was never issued",
            };
            whole(key, column, cell, (least, MAX_NUMBER), remedy)
        };
        Ok(CounterRow {
            stride: match self.stride {
                Some((delta, remainder)) => (value(delta, 1)?, value(remainder, 0)?),
                None => (1, 0),
            },
            maximum: value(self.maximum, 0)?,
            step: self.step.map_or(Ok(1), |column| value(column, 1))?,
            ttl_s: self.ttl.map_or(Ok(0), |column| value(column, 0))?,
            version: self.version.map_or(Ok(0), |column| value(column, 0))?,
        })
    }
}

/// The number in a column; refused with what is there and what to do where it is none, or not from `least` to `most`.
#[cfg(feature = "_sql")]
fn whole(
    key: &Key,
    column: &str,
    cell: Option<&Cell>,
    (least, most): (u64, u64),
    remedy: &str,
) -> Result<u64, Fault> {
    let found = match cell {
        Some(Cell::Number(number)) => match u64::try_from(*number) {
            Ok(number) if number >= least && number <= most => return Ok(number),
            _ => number.to_string(),
        },
        Some(Cell::Other(text)) => format!("`{text}`"),
        Some(Cell::Null) | None => "NULL".to_owned(),
    };
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "its row in `{}` holds {found} in `{column}`, where a whole number from {least} to {most} is needed; {remedy}; \
             nothing was changed",
            key.table
        ),
    ))
}

/// The place that a row of `keymill_segment` holds: its period and its next number.
#[cfg(feature = "_sql")]
pub(crate) fn segment_of(key: &Key, cells: &[Cell]) -> Result<Mark, Fault> {
    // A next number of 0 is told by whoever decides: it knows whether one was ever issued.
    let next = "set it to the lowest number that was never issued";
    Ok(Mark {
        period: whole(key, "period", cells.first(), (0, MAX_NUMBER), "mend the row")?,
        next: whole(key, "next", cells.get(1), (0, MAX_NUMBER + 1), next)?,
    })
}

/// One statement's part of a reservation from a row whose step and time to live are known.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) struct Leap {
    /// How many numbers.
    pub(crate) len: u64,
    /// The least and the largest maximum from which this may be done.
    pub(crate) from: (u64, u64),
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
impl Counter<'_> {
    /// What one statement may do; `None` where only a transaction can tell.
    pub(crate) fn leap(&self, request: &Request, known: &CounterRow) -> Option<Leap> {
        if request.len == 0 || (request.period, request.high_water.period) != (0, 0) {
            return None;
        }
        let (len, last) = (self.whole_steps(request.len, known), request.last.min(self.last()));
        // `next` of the row before and after: at least what was seen, at most where `len` more end with `last`. A range whose
        // last number of its own was seen may end anywhere below the next one.
        let lowest = self.own.below(request.high_water.next.max(1)) + 1;
        let highest = last.checked_sub(len)? + 1;
        let kept = |next: u64| if self.holds == Holds::Last { next - 1 } else { next };
        (lowest <= highest).then(|| Leap { len, from: (kept(lowest), kept(highest)) })
    }

    /// The range that ends where the maximum stands now.
    pub(crate) fn leapt(
        &self,
        leap: &Leap,
        known: &CounterRow,
        maximum: u64,
    ) -> Option<crate::store::Reserved> {
        let (lowest, highest) = leap.from;
        let before = maximum.checked_sub(leap.len).filter(|before| (lowest..=highest).contains(before))?;
        let lo = self.mark(&CounterRow { maximum: before, ..*known }).next;
        let hi = self.after(maximum);
        (lo < hi).then(|| crate::store::Reserved { lo, hi, period: 0, ttl_ms: Counter::ttl_ms(known) })
    }
}
