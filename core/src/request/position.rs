//! Positions of rows.

/// The largest number keymill hands out: positive in a signed 64-bit column.
pub const MAX_NUMBER: u64 = i64::MAX as u64;

/// A place in a key's history: first by period, then by number. `next` is the lowest number not yet reserved; where the
/// key has a `Stride`, the lowest that is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The period, 0 where the key has none.
    pub period: u64,
    /// The lowest number not yet reserved; 0 means that nothing has been seen.
    pub next: u64,
}
