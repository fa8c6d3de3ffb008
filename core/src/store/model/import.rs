//! Importing a row of another program's table into `keymill_segment`, so that old nodes that still use the old row never
//! meet the numbers of the new one.
//!
//! One transaction locks the old row and moves it [`PARKED_AT`] numbers away, then makes the new row begin where the old
//! one stood. A crash in between leaves both rows as they were. The position of the old row says that it was imported, and
//! a record beside the new row ([`record_of`]) says into which source. So a second run changes nothing, and no second source
//! can import the same row.
//! * A row below `PARKED_AT` has not been imported; a row above it has. Old nodes that still run continue up there. The
//!   new row would reach those numbers only after 2^62 of its own. Programs with shorter number patterns find them used up.
//! * The old row is not deleted or closed: KeyFactory creates a deleted row again at 1, IDSnowman falls back to an older
//!   answer, and tinyid adds its step to 2^63-1 and issues negative numbers. All three stay unique only far away.
//! * The row of a serial stays parked until its period ends. Then an old KeyFactory begins at 1, as in every new period.

use super::counter::Counter;
use super::decide::judged;
use super::rows::{self, Rows};
use crate::store::{Fault, FaultKind, Key, Mark, Remedy, Row, Scheme, Subject};

/// How far an imported row is moved away: half of all numbers.
pub const PARKED_AT: u64 = 1 << 62;

/// The rows of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Import {
    /// The other program's row as it stood.
    pub old: Row,
    /// The other program's row as it stands now.
    pub old_after: Row,
    /// The new row as it stood.
    pub new: Option<Row>,
    /// The new row as it stands now.
    pub new_after: Row,
}

impl Import {
    /// Whether the import was done before, so that nothing was changed.
    #[must_use]
    pub fn was_done(&self) -> bool {
        self.old == self.old_after && self.new.as_ref() == Some(&self.new_after)
    }
}

/// Where the old row and the new row are to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ImportMarks {
    old: Mark,
    new: Mark,
}

/// The longest name that a row of `keymill_segment` can have.
const LONGEST: usize = 512;

/// The prefix of an import record's name: it identifies the old row. The name of the source that owns the numbers now follows.
pub(crate) fn record_of(old: &Key) -> String {
    let column = match Counter::of(old) {
        Some(counter) => counter.maximum(),
        None => old.columns.own("MAXSERIALNO"),
    };
    // The source's name follows the first `>`, so the row's name must not contain one.
    let row = old.own_name().replace('%', "%25").replace('>', "%3E");
    format!("import:{}/{}.{column}/{row}>", old.scheme.name(), old.table)
}

/// The rows before an import.
#[derive(Clone, Copy, Debug, Default)]
struct Before<'a> {
    old: Option<Mark>,
    new: Option<Mark>,
    /// The source that the old row was imported into, by the record.
    new_owner: Option<&'a str>,
}

/// Decides where an import moves the rows; `period` is the present one.
fn decide(old_key: &Key, new_key: &Key, found: Before<'_>, period: u64) -> Result<ImportMarks, Fault> {
    let (table, new_table) = (&old_key.table, &new_key.table);
    let Before { old, new, new_owner } = found;
    let refused = |message: String| Fault::new(FaultKind::Refused, format!("{message}; nothing was changed"));
    let refuse = |message: String| Err(refused(message));
    let repair = |above: &'static str| Remedy::Repair {
        first: "then ",
        row: Some(new_key.name.to_string()),
        above,
        seen: 0,
    };
    let Some(old) = old.filter(|old| old.next > 0) else {
        return refuse(format!(
            "the row of `{}` in `{table}` says no number yet (missing, INIT or 0), so there is nothing to import: check its name (`--row`), or use the source without an import",
            old_key.name
        ));
    };
    if let Some(new_owner) = new_owner.filter(|new_owner| *new_owner != new_key.name.as_str()) {
        return refuse(format!(
            "the row in `{table}` was imported into `{new_owner}` before, which continues its numbers: use that source, or import another row"
        ));
    }
    if old.next > PARKED_AT {
        return match (new_owner, new) {
            (Some(_), Some(new)) => Ok(ImportMarks { old, new }),
            (None, _) => refuse(format!(
                "the row in `{table}` was already imported (its value is above 2^62), but `{new_table}` has no import record for it: it may have been imported with another `table=`, or under a name in another letter case"
            )),
            (Some(_), None) => {
                Err(refused(format!("the row in `{table}` was already imported, and the new row is gone"))
                    .with_remedy(repair("every number that was ever issued from it")))
            }
        };
    }
    // In a row of an earlier period old nodes would begin at 1 of the present one.
    let raised = if period > old.period {
        Mark { period, next: PARKED_AT + 1 }
    } else {
        Mark { next: PARKED_AT + old.next, ..old }
    };
    match new {
        None => Ok(ImportMarks { old: raised, new: old }),
        // The new row begins above every number of the old row: the old table was restored after an import.
        Some(new) if new >= old => Ok(ImportMarks { old: raised, new }),
        Some(new) => Err(refused(format!(
            "the new row exists already and stands at {}, below {} in `{table}`: two programs have counted the same numbers",
            super::decide::place(new),
            super::decide::place(old),
        ))
        .with_remedy(Remedy::Text("if no number of the new row is in use, close every mill that has it open"))
        .with_remedy(repair("both"))),
    }
}

/// Imports inside one transaction; `None` if another transaction changed a row meanwhile.
pub(crate) fn import(
    rows: &mut dyn Rows,
    old_key: &Key,
    new_key: &Key,
    period: u64,
) -> Result<Option<Import>, Fault> {
    let old = rows.read(old_key, true)?;
    let new = rows.read(new_key, true)?;
    rows::not_blank(old_key, old.as_ref())?;
    let old_mark = old.as_ref().map_or(Ok(None), |stored| rows::mark_of(old_key, stored))?;
    let new_mark = new.as_ref().map_or(Ok(None), |stored| rows::mark_of(new_key, stored))?;
    // The lock of the old row protects its record too.
    let record = record_of(old_key);
    let new_owner = rows.new_owner(new_key, &record)?;
    let places = decide(
        old_key,
        new_key,
        Before { old: old_mark, new: new_mark, new_owner: new_owner.as_deref() },
        period,
    )?;
    let row = |key: &Key, stored: &Option<rows::StoredRow>| {
        stored.as_ref().map(|stored| rows::row_of(key, stored)).transpose()
    };
    let (old_row, new_row) = (row(old_key, &old)?, row(new_key, &new)?);
    if old_mark != Some(places.old) {
        let moved = rows::stored_at(old_key, places.old)?;
        let Some(old) = &old else { return Ok(None) };
        if !rows.replace(old_key, old, &moved)? {
            return Ok(None);
        }
    }
    let begins = rows::stored_at(new_key, places.new)?;
    if new_mark != Some(places.new) && !rows.insert(new_key, &begins)? {
        return Ok(None);
    }
    if new_owner.is_none() {
        let subject = Subject::Import { record, owner: new_key.name.to_string() };
        let record = Key { name: subject.into(), ..new_key.clone() };
        if !rows.insert(&record, &begins)? {
            return Ok(None);
        }
    }
    // Read again, to show what the table's defaults and triggers added.
    let (old_after, new_after) = (rows::look(rows, old_key)?, rows::look(rows, new_key)?);
    match (old_row, old_after, new_after) {
        (Some(old), Some(old_after), Some(new_after)) => {
            Ok(Some(Import { old, old_after, new: new_row, new_after }))
        }
        _ => Ok(None),
    }
}

/// What [`import`] would make of these rows; `new_owner` is the source that the old row was imported into before.
pub(crate) fn planned_import(
    old_key: &Key,
    new_key: &Key,
    (old, new): (Option<Row>, Option<Row>),
    new_owner: Option<&str>,
    period: u64,
) -> Result<Import, Fault> {
    // `look` shows a blank row as text only; it is refused with the same message as inside the import.
    for blank in [rows::StoredRow::Serial(None), rows::StoredRow::Serial(Some(String::new()))] {
        let text = rows::row_of(old_key, &blank)?.text;
        if old_key.serial.is_some() && old.as_ref().is_some_and(|old| old.text == text) {
            rows::not_blank(old_key, Some(&blank))?;
        }
    }
    let new_mark = new.as_ref().map(|row| judged(new_key, row.row_mark())).transpose()?;
    let old_mark = old.as_ref().map(|row| row.mark);
    let places = decide(old_key, new_key, Before { old: old_mark, new: new_mark, new_owner }, period)?;
    let Some(old) = old else { return Err(Fault::new(FaultKind::Refused, "there is no row to import")) };
    let after = |key: &Key, before: Option<&Row>, place: Mark| match before {
        Some(row) if row.mark == place => Ok(row.clone()),
        before => rows::moved(key, before, place),
    };
    Ok(Import {
        old_after: after(old_key, Some(&old), places.old)?,
        new_after: after(new_key, new.as_ref(), places.new)?,
        old,
        new,
    })
}

/// Checks that the old row's scheme can be imported, and that the new row is of scheme `keymill`.
pub(crate) fn check_schemes(old: &Key, new: &Key) -> Result<(), Fault> {
    let (from, to) = (old.scheme, new.scheme);
    let wrong = |message: String| Err(Fault::new(FaultKind::Refused, message));
    if to != Scheme::Keymill {
        return wrong(format!(
            "rows are imported into scheme `keymill`, and `{}` is of scheme `{}`; write `scheme=keymill` in it",
            new.name,
            to.name()
        ));
    }
    if old.serial.is_some() != new.serial.is_some() || from == Scheme::Keymill || from.is_ticket() {
        return wrong(format!("`{}` cannot import a row of scheme `{}`", new.name, from.name()));
    }
    let record = record_of(old).len() + new.name.len();
    if record > LONGEST {
        return wrong(format!(
            "the names of `{}` and of the old row are too long: the import record holds both, and would have {record} of at most {LONGEST} bytes",
            new.name
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;

    fn key(spec: &str) -> std::sync::Arc<Key> {
        MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec").key
    }

    fn decided(old: Option<Mark>, new: Option<Mark>, period: u64) -> Result<(Mark, Mark), String> {
        decided_of(Before { old, new, new_owner: None }, period)
    }

    fn decided_of(found: Before<'_>, period: u64) -> Result<(Mark, Mark), String> {
        let (old, new) = (key("segment:orders?scheme=leaf_alloc"), key("segment:orders"));
        decide(&old, &new, found, period)
            .map(|places| (places.old, places.new))
            .map_err(|fault| fault.to_string())
    }

    const fn at(period: u64, next: u64) -> Mark {
        Mark { period, next }
    }

    #[test]
    fn the_new_row_begins_where_the_old_row_stood_and_the_old_row_is_parked() {
        assert_eq!(decided(Some(at(0, 1)), None, 0), Ok((at(0, PARKED_AT + 1), at(0, 1))));
        assert_eq!(decided(Some(at(0, PARKED_AT)), None, 0), Ok((at(0, 2 * PARKED_AT), at(0, PARKED_AT))));
        // A row of yesterday: today an old node would begin at 1.
        assert_eq!(decided(Some(at(20, 500)), None, 21), Ok((at(21, PARKED_AT + 1), at(20, 500))));
        // A row written by a clock that is ahead.
        assert_eq!(decided(Some(at(22, 500)), None, 21), Ok((at(22, PARKED_AT + 500), at(22, 500))));
    }

    #[test]
    fn a_finished_import_is_left_alone_and_a_lost_one_is_not_repeated() {
        let new_owner = Some("segment:orders");
        let far = Some(at(0, PARKED_AT + 51));
        let done = Before { old: far, new: Some(at(0, 7)), new_owner };
        assert_eq!(decided_of(done, 0), Ok((at(0, PARKED_AT + 51), at(0, 7))));
        let lost = Before { old: far, new: None, new_owner };
        assert!(decided_of(lost, 0).unwrap_err().contains("is gone"));
        // The old table was restored from a backup: its row is parked again, the new row stays.
        assert_eq!(decided(Some(at(0, 40)), Some(at(0, 900)), 0), Ok((at(0, PARKED_AT + 40), at(0, 900))));
    }

    #[test]
    fn a_row_that_another_source_has_imported_stays_its_own() {
        let far = Some(at(0, PARKED_AT + 51));
        // A new row does not prove that this source imported the old one.
        for new in [None, Some(at(0, 900))] {
            let unknown = decided(far, new, 0).unwrap_err();
            assert!(unknown.contains("`keymill_segment` has no import record"), "{unknown}");
            // Nor may another source import it after the old table was restored from a backup.
            for old in [far, Some(at(0, 40))] {
                let taken = decided_of(Before { old, new, new_owner: Some("segment:first") }, 0).unwrap_err();
                assert!(taken.contains("was imported into `segment:first` before"), "{taken}");
            }
        }
    }

    #[test]
    fn a_record_says_which_column_of_which_row() {
        let record = |spec| record_of(&key(spec));
        assert_eq!(
            record("segment:a>b%25?scheme=cosid&columns=last_max_id:m"),
            "import:cosid/cosid.m/a%3Eb%25>"
        );
        assert_eq!(
            record("serial:cust/id?scheme=key_producer&number=000"),
            "import:key_producer/key_producer.MAXSERIALNO/serial:CUST/ID?date=yyyyMMdd&number=000>"
        );
    }

    #[test]
    fn two_rows_that_have_counted_the_same_numbers_are_refused() {
        assert!(decided(Some(at(0, 41)), Some(at(0, 40)), 0).unwrap_err().contains("stands at 40, below 41"));
        assert!(
            decided(Some(at(21, 1)), Some(at(20, 900)), 21).unwrap_err().contains("below 1 of period 21")
        );
        for nothing in [None, Some(Mark::default())] {
            assert!(decided(nothing, None, 0).unwrap_err().contains("nothing to import"));
        }
    }
}
