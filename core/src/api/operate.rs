//! Verbs for operators: where a source's row stands, and the import of another program's row.

use std::sync::Arc;

use crate::config::spec_string;
use crate::error::{Error, Result, shown};
use crate::request::bank_spec::{BankSpec, recorded_counters};
use crate::request::reservation::{Key, Mark, PeriodClock, Scheme};
use crate::request::subject::Subject;
use crate::store::{
    Fault, Import, Row, check_schemes, look, misplaced, not_imported, planned_import, present_periods,
    step_of,
};

use super::{Heat, Source};

/// Whether a verb changes the store, or only shows what it would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes the change.
    Apply,
    /// Writes nothing, and answers with what would be written.
    DryRun,
}

impl Change {
    pub(crate) fn is_dry(self) -> bool {
        self == Change::DryRun
    }
}

/// Another program's row, for [`Source::import`].
///
/// ```
/// use keymill::{OldRow, Scheme};
/// let row = OldRow::of(Scheme::LeafAlloc).table("shop_leaf").row("shop.orders");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct OldRow<'a> {
    scheme: Scheme,
    table: Option<&'a str>,
    row: Option<&'a str>,
    columns: Option<&'a str>,
}

impl<'a> OldRow<'a> {
    /// The row of the source's own name in the scheme's own table; `scheme` is one of [`Source::IMPORTS`].
    pub const fn of(scheme: Scheme) -> OldRow<'a> {
        OldRow { scheme, table: None, row: None, columns: None }
    }

    /// Its table, where that is not the scheme's own.
    pub fn table(self, name: impl Into<Option<&'a str>>) -> OldRow<'a> {
        OldRow { table: name.into(), ..self }
    }

    /// Its name, where that is not the source's; `TABLE/COLUMN` of a `key_producer` row.
    pub fn row(self, name: impl Into<Option<&'a str>>) -> OldRow<'a> {
        OldRow { row: name.into(), ..self }
    }

    /// What its table calls its columns, as in a source's `columns=`: `max_id:current,biz_tag:name`.
    pub fn columns(self, names: impl Into<Option<&'a str>>) -> OldRow<'a> {
        OldRow { columns: names.into(), ..self }
    }

    /// Whose row it is.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }
}

/// A row before and after [`Source::repair`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Repair {
    /// The row as it stood; `None` where there was none.
    pub before: Option<Row>,
    /// The row as it stands now, or would stand.
    pub after: Row,
    /// The numbers of a period ahead of the store's clock, from which the row is set back. They were reserved, and when that period begins
    /// its numbers count from 1 again.
    pub set_back: Option<ReservedAhead>,
    /// Something changes that the row does not show: the floor of a pool, or a slot below its highest.
    pub(crate) changes_more: bool,
}

impl Repair {
    /// Whether the repair changes a row, or in a dry run would: `false` where each row stands there already.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.changes_more || self.before.as_ref() != Some(&self.after)
    }
}

/// The serials that were reserved of a period that lies ahead of the store's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReservedAhead {
    /// The first one.
    pub first: String,
    /// The last one.
    pub last: String,
    /// When their period begins, milliseconds since 1970; `None`: at no time.
    pub begins_ms: Option<i64>,
}

impl ReservedAhead {
    /// Of the row of a serial that stands here.
    pub(super) fn new(key: &Key, stands: Mark) -> Option<ReservedAhead> {
        let pattern = &key.serial.as_ref()?.pattern;
        let text = |number| pattern.text(stands.period, number);
        Some(ReservedAhead {
            first: text(1),
            last: text(stands.next.saturating_sub(1).max(1)),
            begins_ms: pattern.period_start_ms(stands.period),
        })
    }
}

/// The date parts of two periods.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Periods {
    /// Of the row.
    pub row: String,
    /// Of the present moment, by this machine's clock.
    pub present: String,
}

/// Where a source's row stands, and how much is left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourceStatus {
    /// The row; `None` where there is none yet.
    pub row: Option<Row>,
    /// The highest id reserved, as it is issued: a number, or a serial's text. `None` before the first.
    pub reserved_to: Option<String>,
    /// How many numbers of the row's period are reserved.
    pub used: u64,
    /// How many numbers a period has.
    pub capacity: u64,
    /// How many seconds ago the row was changed, by the store's clock, where the table says so.
    pub changed_seconds_ago: Option<u64>,
    /// The row's period and the present one, where they differ: the row belongs to a past period, or was written by a clock that is
    /// ahead.
    pub other_period: Option<Periods>,
    /// How many numbers one reservation takes: the source's steps, as multiples of the row's step where it has one.
    pub step: String,
    /// Of business ids the ten counters with most reserved numbers, the first one first.
    pub hottest: Vec<Heat>,
    /// Of business ids the recorded number of counters; `None` where none is recorded yet.
    pub counters: Option<u32>,
    /// Problems that do not stop the source: of several stores, one has lost its row or does not answer.
    pub warnings: Vec<String>,
}

/// How many counters of a bank `status` names.
const HOTTEST: usize = 10;

impl Source {
    /// Where the row stands, and how much is left.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_REFUSED`, `CLOSED`. Where the whole table is refused, the messages of all its sources are the same.
    pub fn status(&self) -> Result<SourceStatus> {
        if let Some(bank) = self.spec().bank {
            return self.status_of_bank(bank);
        }
        let key = self.spec().key.clone();
        let (row, changed_seconds_ago, warnings) = self.on_store(move |store| {
            let row = look(store, &key).map_err(Fault::without_doing)?;
            if let Some(row) = row.as_ref().filter(|row| row.status.partition != key.partition) {
                let fault = misplaced(&key, row.status);
                return Err(fault.with_context(&format!("looking at `{}`", key.name)).into());
            }
            if matches!(key.scheme, Scheme::Worker | Scheme::WorkerNode) {
                return Ok((row, None, Vec::new()));
            }
            let age = if row.is_some() { store.age(&key)? } else { None };
            Ok((row, age, store.warnings_of(&key)?))
        })?;
        let line = self.spec().command_line();
        let warnings = warnings.iter().map(|warning| warning.message(line)).collect();
        let pattern = self.spec().pattern();
        let mark = row.as_ref().map(|row| row.mark).unwrap_or_default();
        let stride = self.stride();
        // With a stride `next` is the next id, and the numbers between it and the last one are not the source's.
        let highest = Some(stride.below(mark.next)).filter(|highest| *highest > 0);
        let reserved_to = highest.map(|number| match pattern {
            Some(pattern) => pattern.text(mark.period, number),
            None => number.to_string(),
        });
        let other_period = pattern.filter(|_| mark.next > 0).and_then(|pattern| {
            let now = pattern.period_at(self.shared.mill.clock().wall_ms());
            let date = |period| pattern.prefix(period).as_str().to_owned();
            (mark.period != now).then(|| Periods { row: date(mark.period), present: date(now) })
        });
        let (used, capacity) = (stride.up_to(highest.unwrap_or(0)), stride.up_to(self.spec().last));
        let of_row = row.as_ref().and_then(|row| step_of(&self.spec().key, row));
        let step = self.spec().step_in_words(of_row);
        Ok(SourceStatus {
            row,
            reserved_to,
            used,
            capacity,
            changed_seconds_ago,
            other_period,
            step,
            hottest: Vec::new(),
            counters: None,
            warnings,
        })
    }

    /// The counter that is used up most stands for its bank.
    fn status_of_bank(&self, bank: BankSpec) -> Result<SourceStatus> {
        let key = self.spec().key.clone();
        let row = self.on_store(move |store| Ok(look(store, &key).map_err(Fault::without_doing)?))?;
        let rows = self.bank_rows()?.unwrap_or_default();
        let mut hottest = self.heat_in(&rows)?;
        let lowest = hottest.iter().map(|heat| heat.left).min();
        // Counters that were not used yet begin at the floor, which is above the numbers of all earlier ones.
        let floor = (rows.floor > 1).then(|| rows.floor - 1);
        let highest = lowest.map(|left| bank.last() - left).max(floor);
        hottest.sort_by_key(|heat| std::cmp::Reverse(heat.reserved));
        hottest.truncate(HOTTEST);
        let mut warnings = Vec::new();
        let text = row.as_ref().and_then(|row| recorded_counters(row.mark.next));
        if let Some(counters) = text.filter(|counters| bank.is_named && *counters != bank.counters) {
            warnings.push(format!(
                "the store records counters={counters}, and this source has counters={}",
                bank.counters
            ));
        }
        let row = row
            .map(|row| Row { text: text.map_or(row.text, |counters| format!("counters={counters}")), ..row });
        Ok(SourceStatus {
            row,
            reserved_to: highest.map(|number| number.to_string()),
            used: highest.unwrap_or(0),
            capacity: bank.last(),
            changed_seconds_ago: None,
            other_period: None,
            step: self.spec().step_in_words(None),
            hottest,
            counters: text,
            warnings,
        })
    }

    /// The schemes whose rows [`Source::import`] imports.
    pub const IMPORTS: &'static [Scheme] = &Scheme::IMPORTS;

    /// Imports the row of another program into this source, in one transaction: the old row is moved 2^62 numbers away
    /// first, so that old nodes that still run never meet this source's numbers, then this source's row begins where the
    /// old one stood. A second import changes nothing.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a scheme without such rows, `INVALID_CONFIG` for columns that it has not, `STORE_REFUSED`
    /// where there is no row, where another source has imported it, or where numbers could come twice; `STORE_UNAVAILABLE`.
    pub fn import(&self, old: &OldRow<'_>, change: Change) -> Result<Import> {
        let old = self.old_key(old).map_err(|error| self.failed(error))?;
        let new = self.spec().key.clone();
        let present = self.present();
        self.on_store(move |store| {
            check_schemes(&old, &new)?;
            let period = match &present {
                Some(clock) => present_periods(store, &new, *clock)?.present,
                None => 0,
            };
            // Reading a row also checks the shape of its table.
            let old_row = store.look(&old).map_err(|fault| not_imported(&old, fault))?;
            let new_row = store.look(&new)?;
            let new_owner = store.new_owner(&old, &new)?;
            let seen = planned_import(&old, &new, (old_row, new_row), new_owner.as_deref(), period);
            let seen = seen.map_err(|fault| fault.with_context(&format!("importing `{}`", new.name)))?;
            Ok(if change.is_dry() || seen.was_done() { seen } else { store.import(&old, &new, period)? })
        })
    }

    /// This machine's clock, of a source with periods.
    pub(super) fn present(&self) -> Option<PeriodClock> {
        let wall_ms = self.shared.mill.clock().wall_ms();
        self.spec().pattern().map(|_| PeriodClock { wall_ms, skew_ms: self.spec().skew_ms })
    }

    /// The key of the other program's row.
    fn old_key(&self, old: &OldRow<'_>) -> Result<Arc<Key>> {
        let OldRow { scheme, table, row, columns } = *old;
        if !Source::IMPORTS.contains(&scheme) {
            return Err(Error::argument(format!(
                "no row can be imported from `{scheme}`; valid: {}",
                Scheme::IMPORTS.map(Scheme::name).join(", ")
            )));
        }
        // Always given, because a TOML file may set `table` for this source.
        let mut options = vec![("scheme", scheme.name()), ("table", table.unwrap_or(scheme.default_table()))];
        // What other programs may own below the maximum is theirs far away once the row has moved there.
        if scheme.keeps_allocation() {
            options.push(("allocation", "0"));
        }
        options.extend(columns.map(|columns| ("columns", columns)));
        let spec = match &self.spec().key.serial {
            None => {
                let Subject::Segment(own) = self.spec().key.name.subject() else {
                    let label = self.label();
                    return Err(Error::argument(format!(
                        "`{label}` keeps no counted numbers, so it imports none"
                    )));
                };
                spec_string("segment", &[row.unwrap_or(own)], &options)
            }
            Some(serial) => {
                let (old_table, column) = match row {
                    None => (serial.table.as_str(), serial.column.as_str()),
                    Some(row) => row.split_once('/').ok_or_else(|| {
                        Error::argument(format!(
                            "`{}` is no row of key_producer; write TABLE/COLUMN",
                            shown(row)
                        ))
                    })?,
                };
                let pattern = &serial.pattern;
                options.extend([("date", pattern.date_pattern()), ("number", pattern.number_pattern())]);
                options.push(("zone", pattern.zone_name()));
                spec_string("serial", &[old_table, column], &options)
            }
        };
        Ok(self.shared.mill.config.spec(&spec)?.key)
    }
}
