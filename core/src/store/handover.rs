//! Handing a row of another program's table over to `keymill_segment`, so that whoever still works on the old row never
//! meets the numbers of the new one.
//!
//! One transaction: the old row is locked and moved [`FAR`] away first, then the new row is made to begin where the old
//! one stood. A crash in between leaves both as they were. What is left on the old row says what was done, and a record
//! beside the new one ([`record_of`]) to whom, so that a second run does nothing and no second source takes it:
//! * Below `FAR` it has not been handed over. At or above it has: old nodes that still run count on up there, in numbers
//!   that the new row reaches only after 2^62 of its own, and programs of a shorter memory find their number patterns
//!   used up.
//! * Why not close it? A deleted row is made anew at 1 by KeyFactory, IDSnowman reads an older answer, and tinyid adds its
//!   step to 2^63-1 and hands out negative numbers. Far away is the one place where all of them stay unique.
//! * A serial's row is far away until its period ends: then an old KeyFactory begins at 1 whatever the row says.

use super::counter::Counter;
use super::rows::{self, Rows};
use super::{Fault, FaultKind, Key, Mark, Row, Scheme};

/// How far an old row is moved: half of all numbers.
pub const FAR: u64 = 1 << 62;

/// The rows of a hand-over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The other program's row as it stood.
    pub old: Row,
    /// And as it stands now.
    pub old_after: Row,
    /// The new row as it stood.
    pub new: Option<Row>,
    /// And as it stands now.
    pub new_after: Row,
}

impl Handover {
    /// Whether there was nothing to do.
    #[must_use]
    pub fn was_done(&self) -> bool {
        self.old == self.old_after && self.new.as_ref() == Some(&self.new_after)
    }
}

/// Where the old row and the new one are to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Places {
    old: Mark,
    new: Mark,
}

/// The longest name that a row of `keymill_segment` can have.
const LONGEST: usize = 512;

/// What the name of a hand-over's record begins with: whose row it was. The name of the source that has it now follows.
pub(crate) fn record_of(old: &Key) -> String {
    let column = match Counter::of_key(old) {
        Some(counter) => counter.maximum,
        None => old.columns.own("MAXSERIALNO"),
    };
    let row = old.name.strip_prefix("segment:").unwrap_or(&old.name);
    // What follows the first `>` is the source's name, whatever the row is called.
    let row = row.replace('%', "%25").replace('>', "%3E");
    format!("import:{}/{}.{column}/{row}>", old.scheme.name(), old.table)
}

/// What the rows of a hand-over say before it.
#[derive(Clone, Copy, Debug, Default)]
struct Found<'a> {
    old: Option<Mark>,
    new: Option<Mark>,
    /// The source that the old row was handed over to, by the record.
    taker: Option<&'a str>,
}

/// What a hand-over makes of the rows; `period` is the present one.
fn decide(old_key: &Key, new_key: &Key, found: Found<'_>, period: u64) -> Result<Places, Fault> {
    let (table, new_table) = (&old_key.table, &new_key.table);
    let Found { old, new, taker } = found;
    let refuse =
        |message: String| Err(Fault::new(FaultKind::Refused, format!("{message}; nothing was changed")));
    let Some(old) = old.filter(|old| old.next > 0) else {
        return refuse(format!(
            "the row of `{}` in `{table}` says no number yet (missing, INIT or 0), so there is nothing to hand over: check its name \
             (`--row`), or use the source as it is",
            old_key.name
        ));
    };
    if let Some(taker) = taker.filter(|taker| *taker != new_key.name) {
        return refuse(format!(
            "the row in `{table}` was handed over to `{taker}` before, which goes on with its numbers: use that source, or \
             a row of another name"
        ));
    }
    if old.next > FAR {
        return match (taker, new) {
            (Some(_), Some(new)) => Ok(Places { old, new }),
            (None, _) => refuse(format!(
                "the row in `{table}` stands above 2^62, so it was handed over before, and `{new_table}` has no record to \
                 which source (it may be one with another `table=`, or its row was written in other letters, which this table \
                 takes for the same name)"
            )),
            (Some(_), None) => refuse(format!(
                "the row in `{table}` was handed over before, and the row it was handed over to is gone: find the \
                 highest number ever issued from it and run `keymill repair`, N above it"
            )),
        };
    }
    // An old row of a period that is over would let old nodes begin at 1 of the present one.
    let raised = if period > old.period {
        Mark { period, next: FAR + 1 }
    } else {
        Mark { next: FAR + old.next, ..old }
    };
    match new {
        None => Ok(Places { old: raised, new: old }),
        // It begins above every number of the old row: an import once done on an old row that was set back since.
        Some(new) if new >= old => Ok(Places { old: raised, new }),
        Some(new) => refuse(format!(
            "the new row is there already and stands at {}, below {} in `{table}`: two programs have counted the same \
             numbers. If those of the new row are in use nowhere, close every mill that has it open, then raise it: \
             `keymill repair`, N above both",
            super::decision::place(new),
            super::decision::place(old),
        )),
    }
}

/// The whole of it inside one transaction; `None` where a row moved under us.
pub(crate) fn hand_over(
    rows: &mut dyn Rows,
    old_key: &Key,
    new_key: &Key,
    period: u64,
) -> Result<Option<Handover>, Fault> {
    let old = rows.read(old_key, true)?;
    let new = rows.read(new_key, true)?;
    rows::not_blank(old_key, old.as_ref())?;
    let old_mark = old.as_ref().map_or(Ok(None), |stored| rows::mark_of(old_key, stored))?;
    let new_mark = new.as_ref().map_or(Ok(None), |stored| rows::mark_of(new_key, stored))?;
    // The old row's lock holds for its record too.
    let record = record_of(old_key);
    let taker = rows.taker(new_key, &record)?;
    let places =
        decide(old_key, new_key, Found { old: old_mark, new: new_mark, taker: taker.as_deref() }, period)?;
    let row = |key: &Key, stored: &Option<rows::Stored>| {
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
    if taker.is_none() {
        let record = Key { name: format!("{record}{}", new_key.name), ..new_key.clone() };
        if !rows.insert(&record, &begins)? {
            return Ok(None);
        }
    }
    // As they are kept: what the table adds to a row of its own accord is shown as well.
    let (old_after, new_after) = (rows::look(rows, old_key)?, rows::look(rows, new_key)?);
    match (old_row, old_after, new_after) {
        (Some(old), Some(old_after), Some(new_after)) => {
            Ok(Some(Handover { old, old_after, new: new_row, new_after }))
        }
        _ => Ok(None),
    }
}

/// What [`hand_over`] would make of these rows; `taker` is the source that the old one was handed over to before.
pub(crate) fn handed_over(
    old_key: &Key,
    new_key: &Key,
    (old, new): (Option<Row>, Option<Row>),
    taker: Option<&str>,
    period: u64,
) -> Result<Handover, Fault> {
    // A row that was only looked at is its text: one that says nothing is refused as where it is written.
    for blank in [rows::Stored::Serial(None), rows::Stored::Serial(Some(String::new()))] {
        let text = rows::row_of(old_key, &blank)?.text;
        if old_key.serial.is_some() && old.as_ref().is_some_and(|old| old.text == text) {
            rows::not_blank(old_key, Some(&blank))?;
        }
    }
    let mark = |row: &Option<Row>| row.as_ref().map(|row| row.mark);
    let places = decide(old_key, new_key, Found { old: mark(&old), new: mark(&new), taker }, period)?;
    let Some(old) = old else { return Err(Fault::new(FaultKind::Refused, "there is no row to hand over")) };
    let after = |key: &Key, before: Option<&Row>, place: Mark| match before {
        Some(row) if row.mark == place => Ok(row.clone()),
        before => rows::moved(key, before, place),
    };
    Ok(Handover {
        old_after: after(old_key, Some(&old), places.old)?,
        new_after: after(new_key, new.as_ref(), places.new)?,
        old,
        new,
    })
}

/// The tables a row can come from, and that it goes to keymill's own.
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
        return wrong(format!("`{}` cannot take over a row of scheme `{}`", new.name, from.name()));
    }
    let record = record_of(old).len() + new.name.len();
    if record > LONGEST {
        return wrong(format!(
            "the names of `{}` and of the old row are too long: the record of a hand-over holds both, in {record} of at most \
             {LONGEST} bytes",
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
        decided_of(Found { old, new, taker: None }, period)
    }

    fn decided_of(found: Found<'_>, period: u64) -> Result<(Mark, Mark), String> {
        let (old, new) = (key("segment:orders?scheme=leaf_alloc"), key("segment:orders"));
        decide(&old, &new, found, period)
            .map(|places| (places.old, places.new))
            .map_err(|fault| fault.message)
    }

    const fn at(period: u64, next: u64) -> Mark {
        Mark { period, next }
    }

    #[test]
    fn the_new_row_begins_where_the_old_one_stood_and_the_old_one_is_far_away() {
        assert_eq!(decided(Some(at(0, 1)), None, 0), Ok((at(0, FAR + 1), at(0, 1))));
        assert_eq!(decided(Some(at(0, FAR)), None, 0), Ok((at(0, 2 * FAR), at(0, FAR))));
        // The row of yesterday: today an old node would begin at 1.
        assert_eq!(decided(Some(at(20, 500)), None, 21), Ok((at(21, FAR + 1), at(20, 500))));
        // Of a clock that is ahead.
        assert_eq!(decided(Some(at(22, 500)), None, 21), Ok((at(22, FAR + 500), at(22, 500))));
    }

    #[test]
    fn a_hand_over_that_was_made_is_left_and_one_that_was_lost_is_not_made_again() {
        let taker = Some("segment:orders");
        let far = Some(at(0, FAR + 51));
        let done = Found { old: far, new: Some(at(0, 7)), taker };
        assert_eq!(decided_of(done, 0), Ok((at(0, FAR + 51), at(0, 7))));
        let lost = Found { old: far, new: None, taker };
        assert!(decided_of(lost, 0).unwrap_err().contains("is gone"));
        // The old table was restored from a backup: it is moved away again, and ours stays.
        assert_eq!(decided(Some(at(0, 40)), Some(at(0, 900)), 0), Ok((at(0, FAR + 40), at(0, 900))));
    }

    #[test]
    fn a_row_that_another_source_has_taken_is_its_own_for_good() {
        let far = Some(at(0, FAR + 51));
        // A row of our own is no sign that it was us.
        for new in [None, Some(at(0, 900))] {
            let unknown = decided(far, new, 0).unwrap_err();
            assert!(unknown.contains("`keymill_segment` has no record to which source"), "{unknown}");
            // Nor is it free again where the old table was restored from a backup.
            for old in [far, Some(at(0, 40))] {
                let taken = decided_of(Found { old, new, taker: Some("segment:first") }, 0).unwrap_err();
                assert!(taken.contains("was handed over to `segment:first` before"), "{taken}");
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
            assert!(decided(nothing, None, 0).unwrap_err().contains("nothing to hand over"));
        }
    }
}
