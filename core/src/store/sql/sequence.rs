//! SQL sequences that count in steps: how they are checked, drawn from and raised. `model/sequence_value.rs` says which numbers a value
//! owns.

use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Remedy, Request, Reserved, Row};

use super::{Connection, check_table};
use crate::store::model::rows::not_lower;
use crate::store::model::sequence_value::{is_just_begun, next_from, owned, row_at, value_of};

/// How a sequence counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counting {
    /// Its `INCREMENT BY`.
    pub(crate) increment: i128,
    /// It starts again at its end.
    pub(crate) cycles: bool,
    /// Its first value.
    pub(crate) start: i128,
}

/// The database's answer to a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// A value of a sequence that starts at `start`.
    Value { value: u64, start: u64 },
    /// No value was drawn: the sequence is below what was seen. `next` is the value that would come.
    Behind { next: u64 },
    /// The sequence has no value left.
    RanOut,
    /// A value was drawn of a sequence that did not count as this source says: it was altered meanwhile.
    Altered,
}

/// The SQL sequences of a database.
pub(crate) trait Sequences {
    /// How the sequence of this key counts; `None`: it is missing. Refused if its values do not rise in order.
    fn counting(&mut self, key: &Key) -> Result<Option<Counting>, Fault>;

    /// The value that comes next; `None`: it is no positive number.
    fn next(&mut self, key: &Key) -> Result<Option<u64>, Fault>;

    /// Draws a value, unless the sequence is below `seen`. A sequence that was set back would otherwise rise value by value
    /// to where this process stands, and pass numbers that other nodes have issued.
    /// How the sequence counts is judged in the same statement, where the database can say so: its next value would otherwise
    /// lie inside the range of this one.
    /// With `optimizer=pooled` the value has to be so far above `seen` that its range is too.
    fn draw(&mut self, key: &Key, seen: u64) -> Result<Drawn, Fault>;

    /// Makes `used` the value that was used last; never lowers it.
    fn raise(&mut self, key: &Key, used: u64) -> Result<(), Fault>;

    /// How this database may lose values, other than by a restored backup.
    fn loser(&self) -> &'static str;
}

/// A message about a sequence that another program made.
pub(crate) fn wrong(key: &Key, what: &str) -> Fault {
    Fault::new(FaultKind::Refused, format!("`{}` {what}; name another sequence with `table=`", key.table))
}

fn sequences(connection: &mut dyn Connection) -> Result<&mut dyn Sequences, Fault> {
    // `check_kept` has refused the key on a database without sequences.
    connection.sequences().ok_or_else(|| Fault::new(FaultKind::Refused, "this database has no sequences"))
}

/// Whether the sequence exists; refused if it does not count as this source says.
pub(super) fn check(connection: &mut dyn Connection, key: &Key) -> Result<bool, Fault> {
    let Some(Counting { increment, cycles, .. }) = sequences(connection)?.counting(key)? else {
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
    if increment != i128::from(key.step) {
        let option = if key.scheme.keeps_allocation() { "allocation" } else { "step" };
        let what = format!(
            "counts in steps of {increment}, and this source says {option}={}: numbers would be issued twice or lost; use `{option}={increment}`",
            key.step
        );
        return Err(wrong(key, &what));
    }
    if cycles { Err(wrong(key, "starts over at its end (CYCLE)")) } else { Ok(true) }
}

/// The sequence, or the remedy if it is missing.
fn need(connection: &mut dyn Connection, key: &Key) -> Result<(), Fault> {
    if !check_table(connection, key)? {
        // On a database with schemas the message names the schema.
        connection.place(key)?;
        return Err(missing(key, ""));
    }
    Ok(())
}

/// The fault of a sequence that is missing, in a place if its database has several.
pub(crate) fn missing(key: &Key, place: &str) -> Fault {
    // `init` would make one that begins at 1, beside that of the programs.
    let other = if key.scheme.is_shared_sequence() {
        " (if that of the other programs has another name, write it as `table=NAME`)"
    } else {
        ""
    };
    let what = format!("sequence `{}` is missing{place}{other}", key.table);
    Fault::new(FaultKind::Refused, what).with_remedy(Remedy::INIT)
}

/// The same of a sequence that has to exist.
fn existing_row(connection: &mut dyn Connection, key: &Key) -> Result<Row, Fault> {
    need(connection, key)?;
    row(connection, key)?.ok_or_else(|| missing(key, ""))
}

/// The value that comes next, as a row.
pub(super) fn row(connection: &mut dyn Connection, key: &Key) -> Result<Option<Row>, Fault> {
    if !check_table(connection, key)? {
        return Ok(None);
    }
    let sequences = sequences(connection)?;
    let next = sequences.next(key)?.filter(|next| *next > 0).ok_or_else(|| {
        Fault::new(FaultKind::Refused, format!("sequence `{}` says no positive next value", key.table))
    })?;
    let start = sequences.counting(key)?.map_or(1, |counting| counting.start);
    let start = u64::try_from(start).unwrap_or(1);
    Ok(Some(row_at(key, next, start)))
}

/// Draws a value and with it a range.
pub(super) fn reserve(connection: &mut dyn Connection, request: &Request) -> Result<Reserved, Fault> {
    let (key, seen) = (&*request.key, request.high_water.next);
    need(connection, key)?;
    let last = request.last.min(MAX_NUMBER);
    let sequences = sequences(connection)?;
    let loser = sequences.loser();
    let mut drawn = sequences.draw(key, seen.min(MAX_NUMBER))?;
    let is_zero = key.scheme.is_shared_sequence() && matches!(drawn, Drawn::Value { value: 0, start: 0 });
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
        Drawn::Behind { next } => return Err(went_backwards(request, next, loser)),
        Drawn::Altered => {
            connection.forget_tables();
            need(connection, key)?;
            return Err(Fault::new(
                FaultKind::Unavailable,
                "its sequence was altered while a value was drawn",
            ));
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
    .with_remedy(Remedy::repair(&request.key.name))
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
    let before = existing_row(connection, key)?;
    not_lower(Some(&before), to)?;
    if before.mark < to {
        sequences(connection)?.raise(key, next_from(key, value_of(&before), to.next) - key.step)?;
    }
    let after = existing_row(connection, key)?;
    // MariaDB leaves a sequence where it stands that would have to be raised above its end.
    if after.mark < to { Err(ran_out(key)) } else { Ok((Some(before), after)) }
}
