//! What a row of `keymill_segment` says beside its mark: in which state it is, and which of the numbers it counts.

use super::partition::Partition;
use super::position::Mark;

/// What may be done with a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowState {
    /// It gives numbers, or is the mark of a fixed worker in use.
    #[default]
    Open,
    /// The mark of a fixed worker whose process has not yet looked at the other places that keep marks of the worker.
    Beginning,
    /// The mark of a fixed worker that was leased since.
    Leased,
    /// A counter of a bank that has another number of counters since. It gives no numbers.
    Closed,
}

impl RowState {
    /// Every state.
    pub const ALL: [RowState; 4] = [RowState::Open, RowState::Beginning, RowState::Leased, RowState::Closed];

    /// As the row has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            RowState::Open => "open",
            RowState::Beginning => "beginning",
            RowState::Leased => "leased",
            RowState::Closed => "closed",
        }
    }

    /// The state of a word; `None`: there is none.
    #[must_use]
    pub fn of_word(word: &str) -> Option<RowState> {
        RowState::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// What every change of a row compares beside its mark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowStatus {
    /// What may be done with it.
    pub state: RowState,
    /// Which numbers it counts; `None`: all, as in a mill with one store.
    pub partition: Option<Partition>,
}

impl RowStatus {
    /// A row that gives the numbers of this partition.
    #[must_use]
    pub const fn open(partition: Option<Partition>) -> RowStatus {
        RowStatus { state: RowState::Open, partition }
    }
}

/// Where a row stands, with its status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowMark {
    /// Its mark.
    pub mark: Mark,
    /// Its status.
    pub status: RowStatus,
    /// The mill that reserved last, by the random number that it drew when it was opened. 0: no reservation wrote the row as it stands.
    pub writer: u64,
}

impl RowMark {
    /// An open row without periods, whose next number of this partition is `next`.
    #[must_use]
    pub const fn open(partition: Option<Partition>, next: u64) -> RowMark {
        RowMark { mark: Mark { period: 0, next }, status: RowStatus::open(partition), writer: 0 }
    }

    /// The same row in another state.
    #[must_use]
    pub const fn in_state(self, state: RowState) -> RowMark {
        RowMark { status: RowStatus { state, ..self.status }, ..self }
    }

    /// The same row, written by this mill.
    #[must_use]
    pub const fn by(self, writer: u64) -> RowMark {
        RowMark { writer, ..self }
    }

    /// The same row at another number.
    #[must_use]
    pub const fn at(self, next: u64) -> RowMark {
        RowMark { mark: Mark { next, ..self.mark }, ..self }
    }
}
