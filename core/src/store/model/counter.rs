//! Rows of other programs' counters, one for each name: the schemes whose rows [`Kept::Counter`](crate::request::scheme::Kept::Counter)
//! describes. Other programs may change such a row at the same time, so keymill keeps the meaning of every column.

use crate::request::scheme::{CounterColumns, Holds};
#[cfg(feature = "_sql")]
use crate::store::Reserved;
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Remedy, Request, Stride};

/// The counter in a key's table, with this key's names for the columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter<'k> {
    key: &'k Key,
    columns: &'static CounterColumns,
}

/// Why the row of `old` cannot be read for an import, and what to do then.
pub(crate) fn not_imported(old: &Key, fault: Fault) -> Fault {
    match fault.remedy() {
        // `init` would create the table, and the import would find no row in it.
        Some(Remedy::Init { .. }) => fault.instead(Remedy::Text("name the old row's table (`--table`)")),
        Some(Remedy::SetOption(stride)) => {
            let found = format!("its row in `{}` has {}", old.table, stride.replace('&', " and "));
            fault.because(format!(
                "{found}: other databases issue the other numbers, and an import takes them all. Stop every program and node of every such database, programs with keymill too, raise `max_id` above the `max_id` of each of their rows, set the two columns to 1 and 0, and then import; or stay with `scheme=tiny_id_info`; nothing was changed"
            ))
        }
        _ => fault,
    }
}

/// A row of such a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterRow {
    /// The maximum, as stored.
    pub(crate) maximum: u64,
    /// The row's step, 1 where the table has none.
    pub(crate) step: u64,
    /// The row's time to live in seconds, 0 where it has none.
    pub(crate) ttl_s: u64,
    /// The row's version, 0 where the table has none.
    pub(crate) version: u64,
    /// The row's delta and remainder, (1, 0) where the table has none.
    pub(crate) stride: (u64, u64),
}

/// The highest next number that a row of this key can hold: one above its last number, where that fits into its column.
pub(crate) fn highest_next(key: &Key) -> u64 {
    match Counter::of(key) {
        Some(counter) => counter.last() + 1,
        None if key.scheme.is_sequence() => MAX_NUMBER,
        None => MAX_NUMBER + 1,
    }
}

impl<'k> Counter<'k> {
    /// The counter of this key, if its scheme is one.
    pub(crate) fn of(key: &'k Key) -> Option<Counter<'k>> {
        key.scheme.counter().map(|columns| Counter { key, columns })
    }

    fn own(&self, column: &'static str) -> &'k str {
        self.key.columns.own(column)
    }

    /// The column that identifies a row.
    pub(crate) fn name(&self) -> &'k str {
        self.own(self.columns.name)
    }

    pub(crate) fn maximum(&self) -> &'k str {
        self.own(self.columns.maximum)
    }

    pub(crate) fn step(&self) -> Option<&'k str> {
        self.columns.step.map(|column| self.own(column))
    }

    pub(crate) fn ttl(&self) -> Option<&'k str> {
        self.columns.ttl.map(|column| self.own(column))
    }

    pub(crate) fn version(&self) -> Option<&'k str> {
        self.columns.version.map(|column| self.own(column))
    }

    pub(crate) fn stride(&self) -> Option<(&'k str, &'k str)> {
        self.columns.stride.map(|(delta, remainder)| (self.own(delta), self.own(remainder)))
    }

    /// The row's name: the source's without its kind, as other programs write it.
    pub(crate) fn row_name(&self) -> Result<&'k str, Fault> {
        let name = self.key.own_name();
        let (column, most) = (self.name(), self.columns.name_width);
        if name.chars().count() > most {
            return Err(Fault::new(
                FaultKind::Refused,
                format!("`{name}` is longer than the {most} characters of `{column}`; use `scheme=keymill`"),
            ));
        }
        super::rows::check_three_bytes(self.key, name)?;
        Ok(name)
    }

    /// How far a range keeps from a maximum, above it and below it, because another program may own the numbers between.
    ///
    /// A program moves the maximum from *m* to *m + a*; its allocation *a* is at most `allocation`. It owns some of the numbers from
    /// *m - a* to *m + a*, and the row does not show which. So every number up to *m* may have been issued. After keymill has moved
    /// the maximum to *m*, the next program begins there and may issue the numbers from *m - a* on.
    pub(crate) const fn apart(&self) -> u64 {
        if self.columns.allocates && self.key.step > 0 { self.key.step + 1 } else { 0 }
    }

    /// By how much a maximum is above the last number that keymill counts as handed out.
    const fn ahead(&self) -> u64 {
        match self.columns.holds {
            Holds::Last => self.apart(),
            Holds::Next => self.apart() + 1,
        }
    }

    /// The number after those that count as issued if the maximum is this.
    const fn after(&self, maximum: u64) -> u64 {
        let next = (maximum + 1).saturating_sub(self.ahead());
        // Below its first allocation a row says no number of keymill's yet.
        if next == 0 && self.apart() > 0 { 1 } else { next }
    }

    /// The lowest own number of the source that was not issued, by this row.
    pub(crate) fn mark(&self, row: &CounterRow) -> Mark {
        let next = self.after(row.maximum);
        // `decide` rejects 0.
        Mark { period: 0, next: if next == 0 { 0 } else { self.key.stride.at_least(next) } }
    }

    /// Refuses a row whose delta and remainder are not the key's: it issues other numbers.
    pub(crate) fn check_stride(&self, row: &CounterRow) -> Result<(), Fault> {
        let (Some((delta, remainder)), (by, from)) = (self.stride(), row.stride) else { return Ok(()) };
        let own = self.key.stride;
        if (by, from) == (own.delta(), own.remainder()) {
            return Ok(());
        }
        let written = if own.is_every() {
            "without them".to_owned()
        } else {
            format!("with `delta={}&remainder={}`", own.delta(), own.remainder())
        };
        let remedy = match Stride::new(by, from) {
            None => Remedy::Text("no number fits both: stop every program that uses it, then mend the row"),
            Some(row) if row.is_every() => Remedy::Text("leave both options out"),
            Some(_) => Remedy::SetOption(format!("delta={by}&remainder={from}")),
        };
        let found = format!(
            "its row in `{}` has {delta}={by} and {remainder}={from}, this source is written {written}: they would not take the same numbers",
            self.key.table
        );
        Err(Fault::new(FaultKind::Refused, found)
            .with_remedy(remedy)
            .with_remedy(Remedy::Text("nothing was changed")))
    }

    /// A new row at this position.
    pub(crate) fn row_at(&self, mark: Mark, step: u64) -> Result<CounterRow, Fault> {
        if mark.next > self.last() + 1 {
            return Err(Fault::new(
                FaultKind::Refused,
                format!("{} cannot be kept in `{}`, a signed 64-bit column", mark.next, self.maximum()),
            ));
        }
        let maximum = (mark.next + self.ahead()).saturating_sub(1);
        let own = self.key.stride;
        // A node of the other program issues every delta-th number of a step.
        let step = step.saturating_mul(own.delta());
        let step = if self.columns.step.is_some() { step.clamp(1, i32::MAX as u64) } else { 1 };
        Ok(CounterRow { maximum, step, ttl_s: 0, version: 0, stride: (own.delta(), own.remainder()) })
    }

    /// The last number that such a table can issue: the maximum, which may be ahead of it, has to fit into the column.
    pub(crate) const fn last(&self) -> u64 {
        MAX_NUMBER - self.ahead()
    }

    /// How far a row is moved: by whole multiples of its step, and over at least one own number of the source.
    fn whole_steps(&self, len: u64, row: &CounterRow) -> u64 {
        len.max(self.key.stride.delta()).div_ceil(row.step).saturating_mul(row.step)
    }

    /// The request as this row allows it: whole multiples of its step. A range begins with an own number of the source;
    /// numbers between `max_id` and that number count as moved.
    pub(crate) fn fitted(&self, request: &Request, row: &CounterRow) -> Request {
        let passed = self.mark(row).next.saturating_sub(self.after(row.maximum));
        Request {
            len: self.whole_steps(request.len, row).saturating_sub(passed),
            // 0 stays 0: then a missing row is not created.
            start: if request.start == 0 { 0 } else { self.key.stride.at_least(request.start) },
            last: request.last.min(self.last()),
            ..request.clone()
        }
    }

    /// How long a range of this row may be used.
    pub(crate) fn ttl_ms(row: &CounterRow) -> Option<u64> {
        (row.ttl_s > 0).then(|| row.ttl_s.saturating_mul(1000))
    }

    /// The row as text.
    pub(crate) fn describe(&self, row: &CounterRow) -> String {
        let mut text = format!("{}={}", self.maximum(), row.maximum);
        // Delta and remainder of a row that owns every number are left out.
        let stride = self.stride().filter(|_| !self.key.stride.is_every());
        let values = [
            (self.step(), row.step),
            (self.ttl(), row.ttl_s),
            (stride.map(|(delta, _)| delta), row.stride.0),
            (stride.map(|(_, remainder)| remainder), row.stride.1),
            (self.version(), row.version),
        ];
        for (column, value) in values {
            if let Some(column) = column {
                text.push_str(&format!(" {column}={value}"));
            }
        }
        text
    }

    /// The row `before`, moved to `to`.
    pub(crate) fn moved(&self, before: &CounterRow, to: Mark) -> Result<CounterRow, Fault> {
        let CounterRow { maximum, .. } = self.row_at(to, 1)?;
        let version = before.version.saturating_add(u64::from(self.columns.version.is_some()));
        Ok(CounterRow { maximum, version, ..*before })
    }
}

/// The fast path for a row whose step and time to live are known: add `len` to the maximum if it lies within `from`.
#[cfg(feature = "_sql")]
impl Counter<'_> {
    /// `len` and `from`; `None` where only a transaction can decide.
    pub(crate) fn addition(&self, request: &Request, known: &CounterRow) -> Option<(u64, (u64, u64))> {
        if request.len == 0 || (request.period, request.high_water.period) != (0, 0) {
            return None;
        }
        let len = self.whole_steps(request.len, known).saturating_add(self.apart());
        let last = request.last.min(self.last());
        // The row's next number before and after: at least `seen`, and low enough that `len` more end at `last`. A range
        // whose last own number was seen may end anywhere below the next own number.
        let lowest = self.key.stride.below(request.high_water.next.max(1)) + 1;
        let highest = last.checked_sub(len)? + 1;
        let kept = |next: u64| next + self.ahead() - 1;
        (lowest <= highest).then(|| (len, (kept(lowest), kept(highest))))
    }

    /// The range that was reserved when the maximum was `before` and was raised by `len`.
    pub(crate) fn added(&self, before: u64, len: u64, known: &CounterRow) -> Option<Reserved> {
        let lo = self.mark(&CounterRow { maximum: before, ..*known }).next + self.apart();
        let hi = self.after(before.checked_add(len)?);
        (lo < hi).then(|| Reserved { lo, hi, period: 0, ttl_ms: Counter::ttl_ms(known) })
    }
}
