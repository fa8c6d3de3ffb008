//! Compares the tables of a range, repairs them if asked to, and records that both shards are alike.

use std::time::Instant;

use super::children::check_children;
use super::compare::{Compared, Differs, compare};
use super::pace::Pace;
use super::permit::Permit;
use super::repair::repair;
use super::sides::{check_deletes, check_sides};
use super::watch::{OnEvent, Watch};
use super::{Both, MovedRows};
use crate::api::{Change, MoveStatus, Moves};
use crate::error::{Error, Result};
use crate::moves::MovePhase;

/// So many rows are named.
const NAMED: usize = 1000;

/// What is done to rows that differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowRepair {
    /// Nothing: they are named.
    #[default]
    Named,
    /// The newer one is brought over; of one version, that of the shard to which the id is written. Nothing is inserted into that shard: a
    /// row that it lacks was deleted there.
    Newer,
    /// In addition, a row that the shard that counts does not have is deleted in the other one: it was deleted there, or its write was not
    /// acknowledged.
    NewerAndDeleted,
}

/// A row that differs between the two shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferingRow {
    /// Its primary key, as text.
    pub row: String,
    /// How it differs.
    pub how: Differs,
}

/// What a comparison of a table found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedRows {
    /// The table.
    pub table: String,
    /// How many rows were compared.
    pub rows: u64,
    /// How many were repaired.
    pub repaired: u64,
    /// The rows that still differ. At a thousand the comparison of the table ends.
    pub differ: Vec<DifferingRow>,
}

/// What a comparison of a range found.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// By table.
    pub tables: Vec<ComparedRows>,
    /// Where the move stands with this comparison. `None`: nothing was recorded. Rows differ, the run was dry, or ids are cut over
    /// already, and both shards were alike before the first of them was.
    pub recorded: Option<MoveStatus>,
    /// Whether ids are cut over already.
    pub is_cut_over: bool,
}

impl Comparison {
    /// Whether both shards have all rows alike.
    #[must_use]
    pub fn is_alike(&self) -> bool {
        self.tables.iter().all(|table| table.differ.is_empty())
    }
}

impl Moves {
    /// Compares the rows of the range that moves: sub-ranges by count and by a checksum that the servers compute, row by row where
    /// those differ, and again after `settle`. Rows that differ are repaired as `repair` says. Where both shards are alike, and no id is cut
    /// over yet, this is recorded, and [`Moves::next`] may follow. A dry run compares, and neither repairs nor records.
    ///
    /// # Errors
    /// As [`Moves::copy`]. Rows that differ are no error.
    pub fn verify<'c>(
        &self,
        rows: &MovedRows,
        repair: RowRepair,
        change: Change,
        on_event: &'c mut OnEvent<'c>,
    ) -> Result<Comparison> {
        let watch = Watch::new(on_event);
        let (before, status) = self.moving()?;
        let routes = self.routes()?;
        let mut all = rows.open(&before.of, &watch)?;
        for both in &mut all {
            check_sides(both, &routes, &before.of, &status.finished)?;
            if repair == RowRepair::NewerAndDeleted {
                check_deletes(both, &before.of)?;
                check_children(&mut both.to, &both.new, &[], rows.wording)?;
                check_children(&mut both.from, &both.old, &[], rows.wording)?;
            }
        }
        // In between no step depends on a comparison.
        let is_cut_over = before.phase != MovePhase::Mirror;
        let counts = !is_cut_over || before.phase == MovePhase::CutOver(100);
        let begins = counts && !change.is_dry();
        let (version, began) = match begins.then(|| self.begin(&before, &watch)).transpose()? {
            Some((version, began)) => (version, Some(began)),
            None => (status.version, None),
        };
        let repair = if change.is_dry() { RowRepair::Named } else { repair };
        let still = || self.check_still(version);
        let permit = Permit::new(&still, status.settle);
        let mut tables = Vec::new();
        for both in &mut all {
            let found = self.compare(both, repair, &permit)?;
            let named = found.left.iter();
            let named = named.map(|of| DifferingRow { row: both.old.shown(&of.primary), how: of.how });
            tables.push(ComparedRows {
                table: both.old.name.clone(),
                rows: found.rows,
                repaired: found.repaired,
                differ: named.collect(),
            });
        }
        let mut comparison = Comparison { tables, recorded: None, is_cut_over };
        if let Some(began) = began.filter(|_| comparison.is_alike()) {
            comparison.recorded = Some(watch.patiently(|| self.verified(began, change))?);
        }
        Ok(comparison)
    }

    fn compare(&self, both: &mut Both<'_>, repairs: RowRepair, permit: &Permit<'_>) -> Result<Compared> {
        let status = self.status()?;
        let Some(moving) = status.moving else {
            return Err(Error::config("the move has ended meanwhile; nothing was recorded"));
        };
        let mut pace = Pace::new(u64::MAX, Instant::now());
        let mut whole = Compared::default();
        for range in both.ranges(&moving.of) {
            let of = compare(both, &range, status.settle, &mut pace, NAMED, &mut |both, found| {
                if repairs == RowRepair::Named {
                    return Ok(found);
                }
                let deletes = repairs == RowRepair::NewerAndDeleted;
                repair(both, &found, deletes, permit)
            })?;
            whole.rows += of.rows;
            whole.repaired += of.repaired;
            whole.left.extend(of.left);
        }
        Ok(whole)
    }
}
