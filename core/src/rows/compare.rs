//! Finds the rows that both shards do not have alike.
//!
//! Sub-ranges are compared by count and checksum, and row by row where those differ. Rows that differ are read again after `settle`:
//! until then a write may have reached one of the shards only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::error::{Code, Error, Result};

use super::Both;
use super::copy::{behind, nth};
use super::digest::{Digest, checksum, digests};
use super::key::{Id, IdRange, Primary};
use super::pace::Pace;
use super::watch::RowsTask;

/// Rows of a sub-range.
const CHUNK: u64 = 5_000;
/// So many differing ids are read again at once.
const AGAIN: usize = 500;
/// How often a row is read again that changes all the time: alike once is alike.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// How a row differs between the two shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Differs {
    /// The new shard does not have it.
    OnlyOld,
    /// The old shard does not have it.
    OnlyNew,
    /// Both have it, and not all of its values are alike.
    Content,
}

impl Differs {
    fn of(old: Option<&Digest>, new: Option<&Digest>) -> Option<Differs> {
        match (old, new) {
            (None, None) => None,
            (Some(_), None) => Some(Differs::OnlyOld),
            (None, Some(_)) => Some(Differs::OnlyNew),
            (Some(old), Some(new)) => (old != new).then_some(Differs::Content),
        }
    }

    /// A few words, such as `missing in the new shard`.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Differs::OnlyOld => "missing in the new shard",
            Differs::OnlyNew => "only in the new shard",
            Differs::Content => "other values in the new shard",
        }
    }
}

/// A row that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub primary: Primary,
    pub id: Id,
    pub how: Differs,
}

/// Gets rows that differ, and answers with those that are left.
pub type Resolve<'r> = dyn FnMut(&mut Both<'_>, Vec<Difference>) -> Result<Vec<Difference>> + 'r;

/// What a comparison found.
#[derive(Debug, Default)]
pub struct Compared {
    pub rows: u64,
    pub left: Vec<Difference>,
    pub repaired: u64,
}

fn between(
    old: &BTreeMap<Primary, Digest>,
    new: &BTreeMap<Primary, Digest>,
    both: &Both<'_>,
) -> Result<Vec<Difference>> {
    let rows: BTreeSet<&Primary> = old.keys().chain(new.keys()).collect();
    let mut found = Vec::new();
    for primary in rows {
        let Some(how) = Differs::of(old.get(primary), new.get(primary)) else { continue };
        let Some(id) = both.old.id_of(primary) else {
            return Err(Error::new(Code::StoreRefused, format!("a key of `{}` is no id", both.old.name)));
        };
        found.push(Difference { primary: primary.clone(), id, how });
    }
    Ok(found)
}

/// The rows with these ids that differ now.
pub fn look(both: &mut Both<'_>, ids: &BTreeSet<Id>) -> Result<Vec<Difference>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let old = both.watch.persist(|| digests(&mut both.from, &both.old, &both.old.one_of(ids)))?;
    let new = both.watch.persist(|| digests(&mut both.to, &both.new, &both.new.one_of(ids)))?;
    between(&old, &new, both)
}

/// The rows with these ids that differ and go on differing.
fn differing(both: &mut Both<'_>, mut ids: BTreeSet<Id>, settle: Duration) -> Result<Vec<Difference>> {
    std::thread::sleep(settle);
    let mut found = look(both, &ids)?;
    for _ in 1..LOOKS {
        if found.is_empty() {
            break;
        }
        std::thread::sleep(BETWEEN_LOOKS);
        ids = found.iter().map(|row| row.id.clone()).collect();
        found = look(both, &ids)?;
    }
    Ok(found)
}

/// Compares a range, until so many rows are left that differ.
pub fn compare(
    both: &mut Both<'_>,
    range: &IdRange,
    settle: Duration,
    pace: &mut Pace,
    most_left: usize,
    resolve: &mut Resolve<'_>,
) -> Result<Compared> {
    let mut compared = Compared::default();
    let mut again = BTreeSet::new();
    let mut rest = Some(range.clone());
    while let Some(left) = rest.take() {
        both.watch.go_on("compare again")?;
        let asked = Instant::now();
        let chunk = sub_range(both, &left, pace.most(CHUNK))?;
        let rows = differing_in(both, &chunk, &mut again)?;
        compared.rows += rows;
        rest = behind(&left, &chunk.last);
        both.progress(RowsTask::Comparing, range.share(&chunk.last), compared.rows, pace.is_easing());
        std::thread::sleep(pace.pause(rows, asked.elapsed(), Instant::now()));
        if again.len() >= AGAIN || rest.is_none() && !again.is_empty() {
            let found = differing(both, std::mem::take(&mut again), settle)?;
            let differed = found.len();
            let left = resolve(both, found)?;
            compared.repaired += (differed - left.len().min(differed)) as u64;
            compared.left.extend(left);
            if compared.left.len() >= most_left {
                break;
            }
        }
    }
    Ok(compared)
}

/// The beginning of a range in which neither shard has more than so many ids.
pub fn sub_range(both: &mut Both<'_>, left: &IdRange, most: u64) -> Result<IdRange> {
    let old = both.watch.persist(|| nth(&mut both.from, &both.old, left, most - 1))?;
    let new = both.watch.persist(|| nth(&mut both.to, &both.new, left, most - 1))?;
    let last = old.into_iter().chain(new).min().unwrap_or_else(|| left.last.clone());
    Ok(IdRange { first: left.first.clone(), last })
}

/// Collects the ids of a sub-range whose rows differ; answers with how many rows it has.
fn differing_in(both: &mut Both<'_>, chunk: &IdRange, again: &mut BTreeSet<Id>) -> Result<u64> {
    let old = both.watch.persist(|| checksum(&mut both.from, &both.old, chunk))?;
    let new = both.watch.persist(|| checksum(&mut both.to, &both.new, chunk))?;
    let count = |cells: &[Vec<u8>]| {
        cells.first().and_then(|bytes| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok()).unwrap_or(0)
    };
    if old != new {
        let within = both.old.within(chunk);
        let old = both.watch.persist(|| digests(&mut both.from, &both.old, &within))?;
        let within = both.new.within(chunk);
        let new = both.watch.persist(|| digests(&mut both.to, &both.new, &within))?;
        again.extend(between(&old, &new, both)?.into_iter().map(|row| row.id));
    }
    Ok(count(&old).max(count(&new)))
}

impl Both<'_> {
    /// Whether both shards have a sub-range alike.
    pub fn is_alike(&mut self, chunk: &IdRange) -> Result<bool> {
        Ok(checksum(&mut self.from, &self.old, chunk)? == checksum(&mut self.to, &self.new, chunk)?)
    }
}
