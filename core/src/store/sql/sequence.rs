//! SQL sequences that count in steps: how they are checked, drawn from and raised. `model/sequence_value.rs` says which numbers a value
//! owns.

use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Remedy, Request, Reserved, Row};

use super::{Connection, Counting, Dialect, Drawn, Sequences};
use crate::request::scheme::Family;
use crate::store::model::rows::not_lower;
use crate::store::model::sequence_value::{is_just_begun, next_from, owned, row_at, value_of};

/// A message about a sequence that another program made.
pub(crate) fn wrong(key: &Key, what: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "`{}` {what}; name another sequence with `table=`, if no id of this source was issued",
            key.table
        ),
    )
}

/// What is said of a sequence whose next value is no number.
const BELOW: &str = "stands below every number";

fn sequences(connection: &mut dyn Connection) -> Result<&mut dyn Sequences, Fault> {
    // `check_kept` has refused the key on a database without sequences.
    connection.sequences().ok_or_else(|| Fault::new(FaultKind::Refused, "this database has no sequences"))
}

/// Whether the sequence exists; refused if it does not count as this source says.
pub(super) fn check(connection: &mut dyn Connection, key: &Key) -> Result<bool, Fault> {
    let dialect = connection.dialect();
    let sequences = sequences(connection)?;
    let Some(Counting { increment, cycles, start, made_with, place }) = sequences.counting(key)? else {
        return Ok(false);
    };
    if increment == 0 {
        return Err(wrong(
            key,
            "counts in steps of the server's `auto_increment_increment` (INCREMENT BY 0), which may change",
        ));
    }
    if increment < 0 {
        return Err(wrong(key, "counts downwards"));
    }
    let of_source = i128::from(key.step);
    if increment != of_source || made_with.is_some_and(|step| step != key.step) {
        return Err(other_step(key, increment, made_with, &place, dialect));
    }
    if cycles {
        return Err(wrong(key, "starts over at its end (CYCLE)"));
    }
    if start < 0 {
        return Err(wrong(key, &format!("starts with {start}, below every number")));
    }
    // TiDB's start with 1, or were refused.
    if dialect == Dialect::TiDb {
        return Ok(true);
    }
    // Nothing is drawn where keymill cannot count: each value is another program's.
    match sequences.next(key)? {
        Some(next) if next > 0 || start == 0 => Ok(true),
        _ => Err(wrong(key, BELOW)),
    }
}

/// The fault of a sequence whose step is not the source's, or was altered: its values owned other numbers.
fn other_step(key: &Key, increment: i128, made_with: Option<u64>, place: &str, dialect: Dialect) -> Fault {
    let option = if key.scheme.keeps_allocation() { "allocation" } else { "step" };
    let table = &key.table;
    let back = |step: u64| {
        let alter = format!("ALTER SEQUENCE {place} INCREMENT BY {step}");
        // Servers of MySQL's kind keep the next value, not the last one: with the new step it would own ids of the value before it.
        if key.is_pooled && dialect.family() == Family::MySql {
            let draw = format!("SELECT NEXT VALUE FOR {place}");
            return Remedy::Sql {
                first: "stop every program that draws from it, then put it back, and draw one value that no program uses:",
                statements: vec![alter, draw],
            };
        }
        Remedy::Sql { first: "put it back:", statements: vec![alter] }
    };
    let refused = |what: String| Fault::new(FaultKind::Refused, what);
    if let Some(step) = made_with.filter(|step| i128::from(*step) != increment) {
        return refused(format!(
            "`{table}` was made for steps of {step}, and counts in steps of {increment} now: numbers that were issued would come again; nothing was drawn"
        ))
        .with_remedy(back(step));
    }
    let differ = format!(
        "`{table}` counts in steps of {increment}, and this source says {option}={}: numbers would be issued twice or lost",
        key.step
    );
    if made_with.is_some() {
        return refused(format!("{differ}; use `{option}={increment}`"));
    }
    refused(format!(
        "{differ}; if its step was never altered, use `{option}={increment}`; else it was altered"
    ))
    .with_remedy(back(key.step))
}

/// The fault of a sequence that is missing, in a place if its database has several.
pub(crate) fn missing(key: &Key, place: &str) -> Fault {
    // `init` would make a second sequence that begins at 1.
    let other = if key.scheme.is_shared_sequence() {
        " (if that of the other programs has another name, write it as `table=NAME`)"
    } else {
        ""
    };
    let what = format!("sequence `{}` is missing{place}{other}", key.table);
    Fault::new(FaultKind::Refused, what).with_remedy(Remedy::INIT)
}

/// The value that comes next, as a row.
pub(super) fn row(connection: &mut dyn Connection, key: &Key) -> Result<Row, Fault> {
    let sequences = sequences(connection)?;
    let next = sequences.next(key)?.filter(|next| *next > 0).ok_or_else(|| {
        Fault::new(FaultKind::Refused, format!("sequence `{}` says no positive next value", key.table))
    })?;
    let start = sequences.counting(key)?.map_or(1, |counting| counting.start);
    let start = u64::try_from(start).unwrap_or(1);
    Ok(row_at(key, next, start))
}

/// Draws a value and with it a range.
pub(super) fn reserve(connection: &mut dyn Connection, request: &Request) -> Result<Reserved, Fault> {
    let (key, seen) = (&*request.key, request.high_water.next);
    let last = request.last.min(MAX_NUMBER);
    let sequences = sequences(connection)?;
    let loser = sequences.loser();
    let mut drawn = sequences.draw(key, seen.min(MAX_NUMBER))?;
    let is_zero = matches!(drawn, Drawn::Value { value: 0, start: 0 });
    if is_zero {
        // A sequence with `initialValue=0`: 0 is no number of keymill's, and the first value was this one.
        drawn = sequences.draw(key, seen.min(MAX_NUMBER))?;
    }
    let (lo, hi) = match drawn {
        Drawn::Value { value: 0, .. } => {
            let what = format!("sequence `{}` named no positive value", key.table);
            return Err(Fault::new(FaultKind::Refused, what));
        }
        Drawn::Value { value, start } if !is_zero && is_just_begun(key, value, start, seen) => {
            return Err(Fault::new(
                FaultKind::Unavailable,
                "another program has just drawn the first value of its sequence, and may count on from there; a later value is drawn",
            ));
        }
        Drawn::Value { value, start } => owned(key, value, start),
        Drawn::Behind { next: 0 } if seen == 0 => return Err(wrong(key, BELOW)),
        Drawn::Behind { next } => return Err(went_backwards(request, next, loser)),
        Drawn::Altered => {
            connection.forget_tables();
            if !check(connection, key)? {
                return Err(missing(key, ""));
            }
            return Err(Fault::new(FaultKind::Conflict, "its sequence was altered while a value was drawn"));
        }
        Drawn::RanOut => return Err(ran_out(key)),
    };
    match lo {
        lo if lo < seen => Err(went_backwards(request, lo, loser)),
        lo if lo > last => Err(exhausted(last)),
        // `last` is below 2^63, so this cannot wrap.
        lo => Ok(Reserved { lo, hi: hi.min(last + 1), period: 0, ttl_ms: None }),
    }
}

/// The fault of a sequence at its `MAXVALUE`.
pub(crate) fn ran_out(key: &Key) -> Fault {
    Fault::new(FaultKind::Exhausted, format!("sequence `{}` has no value left below its MAXVALUE", key.table))
}

fn exhausted(last: u64) -> Fault {
    Fault::new(FaultKind::Exhausted, format!("every number up to {last} has been reserved"))
}

fn went_backwards(request: &Request, stands: u64, loser: &str) -> Fault {
    Fault::new(
        FaultKind::WentBackwards,
        format!(
            "its sequence stands at {stands}, this process has seen {}: a backup was restored, {loser} lost values or the sequence was made anew; nothing is used",
            request.high_water.next
        ),
    )
    .with_remedy(Remedy::repair(&request.key.name, request.high_water.next))
}

/// Moves the sequence on, so that the next value is `to` or the first of its values above.
pub(super) fn repair(
    connection: &mut dyn Connection,
    key: &Key,
    to: Mark,
) -> Result<(Option<Row>, Row), Fault> {
    if to.next == 0 || to.next > MAX_NUMBER {
        return Err(Fault::new(FaultKind::Refused, "a next number is from 1 to 2^63-1"));
    }
    let before = row(connection, key)?;
    not_lower(Some(&before), to)?;
    if before.mark < to {
        sequences(connection)?.raise(key, next_from(key, value_of(&before), to.next) - key.step)?;
    }
    let after = row(connection, key)?;
    // MariaDB leaves a sequence where it stands that would have to be raised above its end.
    if after.mark < to { Err(ran_out(key)) } else { Ok((Some(before), after)) }
}
