//! SQL sequences that count in steps: the values are 1, 1 + step, …, and the value *v* owns `[v, v + step)`.

use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Remedy, Request, Reserved, Row};

use super::{Connection, check_table};
use crate::store::model::rows::not_lower;

/// How a sequence counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counting {
    /// Its `INCREMENT BY`.
    pub(crate) increment: i128,
    /// It starts again at its end.
    pub(crate) cycles: bool,
}

/// The database's answer to a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    Value(u64),
    /// No value was drawn: the sequence is below what was seen. `next` is the value that would come.
    Behind {
        next: u64,
    },
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
    let Some(Counting { increment, cycles }) = sequences(connection)?.counting(key)? else {
        return Ok(false);
    };
    if increment <= 0 {
        return Err(wrong(key, "counts downwards"));
    }
    if increment != i128::from(key.step) {
        let what = format!(
            "counts in steps of {increment}, and this source says step={}: numbers would be issued twice or lost; use `step={increment}`",
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
        let what = format!("sequence `{}` is missing", key.table);
        return Err(Fault::new(FaultKind::Refused, what).with_remedy(Remedy::INIT));
    }
    Ok(())
}

/// The value that comes next, as a row.
pub(super) fn row(connection: &mut dyn Connection, key: &Key) -> Result<Option<Row>, Fault> {
    if !check_table(connection, key)? {
        return Ok(None);
    }
    let next = sequences(connection)?.next(key)?.filter(|next| *next > 0).ok_or_else(|| {
        Fault::new(FaultKind::Refused, format!("sequence `{}` says no positive next value", key.table))
    })?;
    Ok(Some(row_at(next)))
}

fn row_at(next: u64) -> Row {
    Row { mark: Mark { period: 0, next }, text: format!("next value={next}"), counter: None }
}

/// Draws a value and with it a range.
pub(super) fn reserve(connection: &mut dyn Connection, request: &Request) -> Result<Reserved, Fault> {
    let (key, seen) = (&*request.key, request.high_water.next);
    need(connection, key)?;
    let sequences = sequences(connection)?;
    let loser = sequences.loser();
    let last = request.last.min(MAX_NUMBER);
    let lo = match sequences.draw(key, seen.min(MAX_NUMBER))? {
        Drawn::Value(0) => {
            let what = format!("sequence `{}` named no positive value", key.table);
            return Err(Fault::new(FaultKind::Refused, what));
        }
        Drawn::Value(lo) if lo < seen => return Err(went_backwards(request, lo, loser)),
        Drawn::Behind { next } => return Err(went_backwards(request, next, loser)),
        Drawn::Value(lo) if lo <= last => lo,
        Drawn::Altered => {
            connection.forget_tables();
            need(connection, key)?;
            return Err(Fault::new(
                FaultKind::Unavailable,
                "its sequence was altered while a value was drawn",
            ));
        }
        Drawn::Value(_) | Drawn::RanOut => {
            let what = format!("every number up to {last} has been reserved");
            return Err(Fault::new(FaultKind::Exhausted, what));
        }
    };
    // `last` is below 2^63, so this cannot wrap.
    Ok(Reserved { lo, hi: lo.saturating_add(key.step).min(last + 1), period: 0, ttl_ms: None })
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
    let used = 1 + ((to.next - 1).div_ceil(key.step).max(1) - 1) * key.step;
    need(connection, key)?;
    let before = row(connection, key)?;
    not_lower(before.as_ref(), to)?;
    if before.as_ref().is_none_or(|row| row.mark < to) {
        sequences(connection)?.raise(key, used)?;
    }
    let after = row(connection, key)?.unwrap_or_else(|| row_at(to.next));
    Ok((before, after))
}
