//! Live moves of ranges between shards. Pure: tables, readers and the time are passed in.
//!
//! * `plan` finds the fewest moves that give each shard its share.
//! * `move_step` decides which table follows a table, and whether it may be stored now.
//!
//! A range that moves is *mirrored* first: every write goes to both shards, and the old one serves. The rows of before are copied and
//! compared. Then ids are *cut over* by percentages: the new shard serves them, and the old one is still written to. Up to the last
//! step both shards have every acknowledged write, so each step can be undone.
//!
//! Why no write is lost. Two tables that follow each other may be in use at the same moment, because some readers have followed and some
//! have not; a table is stored only when every reader runs the one before. Mirrored and cut over agree: both write to both shards. Not
//! moving and cut over would not, so the first percentage waits until no reader can be left that does not know of the move. Cut over in
//! part and finished would not, so the last step waits until every reader serves all ids from the new shard.

mod move_step;
mod plan;

pub(crate) use crate::router::LONGEST_TIME_MS as LONGEST_WATCH_MS;
pub use move_step::MovePhase;
pub(crate) use move_step::{MoveStep, follow, move_of};
pub use plan::{MovePlan, PlannedMove};
