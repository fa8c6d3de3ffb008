//! Compares the tables of a range, repairs them if asked to, and records that both shards are alike.

use std::time::Instant;

use super::children::check_children;
use super::compare::{Compared, Difference, Differs, Resolve, compare};
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
    /// Rows of the new shard become what they are in the old one, which decides until the move is finished. Nothing is written there.
    Bring,
    /// In addition, a row that only the new shard has is deleted: it was deleted in the old one, or its write was not acknowledged.
    BringAndDelete,
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
    /// Where the move stands with this comparison. `None`: nothing was recorded. Rows differ, the run was dry, or no step depends on a
    /// comparison now.
    pub recorded: Option<MoveStatus>,
    /// Whether a step depends on it: before the first ids are cut over, and after the last ones.
    pub counts: bool,
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
    /// those differ, and again after `settle`. Rows that differ are repaired as `repair` says. Where both shards are alike before the first
    /// ids are cut over, or after the last ones, this is recorded, and [`Moves::next`] or [`Moves::finish`] may follow. A dry run compares, and
    /// neither repairs nor records.
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
        let mut all = rows.open(&before.planned, &watch)?;
        for both in &mut all {
            check_sides(both, &routes, &before.planned, &status.finished)?;
        }
        for at in 0..all.len() {
            let (these, behind) = all.split_at_mut(at + 1);
            let Some(both) = these.last_mut().filter(|_| repair == RowRepair::BringAndDelete) else {
                continue;
            };
            check_deletes(both, &before.planned)?;
            let behind: Vec<_> = behind.iter().map(|both| &both.new).collect();
            check_children(&mut both.to, &both.new, &behind, rows.wording)?;
        }
        let counts = matches!(before.phase, MovePhase::Mirror | MovePhase::CutOver(100));
        let begins = counts && !change.is_dry();
        let (version, began) = match begins.then(|| self.begin(&before, &watch)).transpose()? {
            Some((version, began, settle)) => {
                watch.settle(settle);
                (version, Some(began))
            }
            None => (status.version, None),
        };
        let repair = if change.is_dry() { RowRepair::Named } else { repair };
        let still = || self.check_still(version);
        let permit = Permit::new(&still, status.settle);
        // Rows that refer to others are deleted before those.
        let mut deleted = vec![0; all.len()];
        if repair == RowRepair::BringAndDelete {
            for (both, deleted) in all.iter_mut().zip(&mut deleted).rev() {
                *deleted = self.delete_orphans(both, &permit)?;
            }
        }
        let mut tables = Vec::new();
        for (both, deleted) in all.iter_mut().zip(deleted) {
            let found = self.compare(both, repair, &permit)?;
            let named = found.left.iter();
            let named = named.map(|row| DifferingRow { row: both.old.shown(&row.primary), how: row.how });
            tables.push(ComparedRows {
                table: both.old.name.clone(),
                rows: found.rows,
                repaired: deleted + found.repaired,
                differ: named.collect(),
            });
        }
        let mut comparison = Comparison { tables, recorded: None, counts };
        if let Some(began) = began.filter(|_| comparison.is_alike()) {
            for both in &mut all {
                watch.persist(|| both.check_columns())?;
            }
            comparison.recorded = Some(watch.patiently(|| self.verified(began, change))?);
        }
        Ok(comparison)
    }

    /// Deletes the rows that only the new shard has; answers with how many.
    fn delete_orphans(&self, both: &mut Both<'_>, permit: &Permit<'_>) -> Result<u64> {
        let mut deleted = 0;
        self.each_range(both, &mut |both, found| {
            let is_orphan = |row: &Difference| row.how == Differs::OnlyNew;
            let orphans: Vec<_> = found.into_iter().filter(is_orphan).collect();
            let left = repair(both, &orphans, true, permit)?;
            deleted += orphans.iter().filter(|row| !left.contains(row)).count() as u64;
            // The others are for the comparison that follows.
            Ok(Vec::new())
        })?;
        Ok(deleted)
    }

    fn compare(&self, both: &mut Both<'_>, repairs: RowRepair, permit: &Permit<'_>) -> Result<Compared> {
        self.each_range(both, &mut |both, found| match repairs {
            RowRepair::Named => Ok(found),
            RowRepair::Bring => repair(both, &found, false, permit),
            RowRepair::BringAndDelete => repair(both, &found, true, permit),
        })
    }

    fn each_range(&self, both: &mut Both<'_>, resolve: &mut Resolve<'_>) -> Result<Compared> {
        let status = both.watch.persist(|| self.status())?;
        let Some(moving) = status.moving else {
            return Err(Error::config("the move has ended meanwhile; nothing was recorded"));
        };
        let mut pace = Pace::new(u64::MAX, Instant::now());
        let mut whole = Compared::default();
        for range in both.ranges(&moving.planned) {
            let compared = compare(both, &range, status.settle, &mut pace, NAMED, resolve)?;
            whole.rows += compared.rows;
            whole.repaired += compared.repaired;
            whole.left.extend(compared.left);
        }
        Ok(whole)
    }
}
