//! Verbs for operators who move ranges of genes between shards while programs go on.

use std::sync::Arc;
use std::time::Duration;

use crate::config::check_name;
use crate::engine::SharedMill;
use crate::error::fault::FaultKind;
use crate::error::task_error::TaskError;
use crate::error::{Code, Error, Result, shown};
use crate::gene::GENES;
use crate::moves::{self, MovePhase, MovePlan, MoveStep, PlannedMove, follow, move_of};
use crate::request::reader::{LARGEST_VERSION, Reader, Readers};
use crate::request::reservation::{Fault, Key};
use crate::router::{By, Moved, Progress, RouteTable};
use crate::store::{Store, stored_table};

use super::{Change, Mill, Source};

/// The moves of one router's ranges between shards, from [`Mill::moves`]. Every verb reads what the store has; nothing is kept here.
///
/// ```
/// use keymill::{Change, Mill, MoveOptions};
/// let mill = Mill::open("memory:")?;
/// mill.put_routes("orders", "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"", Change::Apply)?;
/// let moves = mill.moves("orders")?;
/// let plan = moves.plan(&[("s1", 1), ("s2", 1)], None)?;
/// assert_eq!((plan.moves.len(), plan.moves[0].to.as_str()), (1, "s2"));
/// let begun = moves.start(&plan, 1, &MoveOptions::default(), Change::Apply)?;
/// assert_eq!(begun.moving.map(|moving| moving.phase.to_string()), Some("mirror".to_owned()));
/// # Ok::<(), keymill::Error>(())
/// ```
#[derive(Clone)]
pub struct Moves {
    shared: Arc<SharedMill>,
    router: String,
    /// Where the move has to stand for a step to be stored: see [`Moves::only_from`].
    expected: Option<MoveStatus>,
}

impl std::fmt::Debug for Moves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Moves").field("router", &self.router).finish_non_exhaustive()
    }
}

/// How a move is made: see [`Moves::start`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOptions {
    /// The percentages of the cut-over, rising, the last one 100: 5, 25, 50, 100.
    pub steps: Vec<u8>,
    /// How long each of them is watched before the next one: a minute.
    pub watch: Duration,
    /// The first genes of the range first, so that all ids of a key stay together; else the ids by their number.
    pub by_gene: bool,
}

impl Default for MoveOptions {
    fn default() -> MoveOptions {
        MoveOptions {
            steps: Progress::STEPS.to_vec(),
            watch: Duration::from_millis(Progress::WATCH_MS),
            by_gene: false,
        }
    }
}

/// The range that moves.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Moving {
    /// Its genes and shards. (`share` is its share of all genes.) Where the range begins behind its end, it goes on at gene 0.
    pub planned: PlannedMove,
    /// Where the move stands.
    pub phase: MovePhase,
    /// How it is made.
    pub options: MoveOptions,
    /// The version in which it began; `None`: the table was written by hand.
    pub since: Option<u64>,
    /// When the present phase was stored, by the store's clock, milliseconds since 1970.
    pub stored_at: Option<u64>,
    /// From when on a comparison of both shards counts, by the same clock.
    pub verify_from: Option<u64>,
    /// When a comparison began that found both shards alike, by the same clock.
    pub verified_at: Option<u64>,
}

/// A range whose move is finished.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FinishedMove {
    /// Its genes and shards, as in [`Moving::planned`].
    pub planned: PlannedMove,
    /// When, by the store's clock, milliseconds since 1970.
    pub finished_at: u64,
}

impl FinishedMove {
    fn new(moved: &Moved) -> FinishedMove {
        let Moved { first, last, from, to, finished_at } = moved.clone();
        FinishedMove {
            planned: PlannedMove { first, last, from, to, share: share(first, last) },
            finished_at,
        }
    }
}

/// The share of these genes in all.
fn share(first: u16, last: u16) -> f64 {
    f64::from(u32::from(last.wrapping_sub(first)) + 1) / f64::from(GENES)
}

/// What the store says of a router: see [`Moves::status`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MoveStatus {
    /// The version of the table.
    pub version: u64,
    /// How long a route may be used after it was asked for.
    pub settle: Duration,
    /// The range that moves, if one does.
    pub moving: Option<Moving>,
    /// The moves that are finished, the oldest first: the old shard may still have their rows.
    pub finished: Vec<FinishedMove>,
    /// The processes that follow the table.
    pub readers: Vec<Reader>,
    /// The store's clock, milliseconds since 1970.
    pub now_ms: u64,
}

impl MoveStatus {
    /// The range that moves, its phase, and when both began: the same phase of another move, or reached a second time, is not the same.
    fn standing(&self) -> Option<(&PlannedMove, MovePhase, Option<u64>, Option<u64>)> {
        self.moving.as_ref().map(|moving| (&moving.planned, moving.phase, moving.since, moving.stored_at))
    }

    /// The phase in words, for messages.
    fn phase_name(&self) -> String {
        self.moving.as_ref().map_or_else(|| "no move".to_owned(), |moving| format!("`{}`", moving.phase))
    }

    fn of(table: &RouteTable, readers: Readers) -> Result<MoveStatus> {
        let moving = if table.moves() {
            let (moves, first, last) = move_of(table)?;
            let from = table.ranges.iter().find(|range| range.upper == last).map(|range| range.shard.clone());
            let (from, to) = (from.unwrap_or_default(), moves.to.clone());
            let planned = PlannedMove { first, last, from, to, share: share(first, last) };
            let Progress { since, steps, watch_ms, stored_at, verify_from, verified_at, .. } =
                moves.progress.clone();
            let options =
                MoveOptions { steps, watch: Duration::from_millis(watch_ms), by_gene: moves.by == By::Gene };
            Some(Moving {
                planned,
                phase: moves.phase(),
                options,
                since,
                stored_at,
                verify_from,
                verified_at,
            })
        } else {
            None
        };
        Ok(MoveStatus {
            version: table.version(),
            settle: Duration::from_millis(table.settle_ms),
            moving,
            finished: table.moved.iter().map(FinishedMove::new).collect(),
            readers: readers.all,
            now_ms: readers.now_ms,
        })
    }
}

/// Reads the table first: a reader that begins later reads this version or a later one.
fn seen(store: &mut dyn Store, router: &str) -> std::result::Result<(RouteTable, Readers), TaskError> {
    let table = stored_table(store, router)?.table(router)?;
    Ok((table, store.readers(&Key::of_readers(router))?))
}

/// Replaces the table, if it still has version `old`.
fn store_table(
    store: &mut dyn Store,
    router: &str,
    old: u64,
    new: &RouteTable,
) -> std::result::Result<bool, Fault> {
    let (key, text) = (Key::of_route(router), new.to_text());
    match store.replace_route(&key, Some(old), (new.version(), &text)) {
        // The answer was lost, and the store knows what became of it.
        Err(fault) if fault.kind == FaultKind::Unknown => {
            let now = store.read_route(&key, 0)?.filter(|now| now.refused.is_none());
            match now {
                Some(now) if now.version == new.version() => Ok(now.text.as_deref() == Some(text.as_str())),
                _ => Err(fault),
            }
        }
        answer => answer,
    }
}

impl Mill {
    /// The moves of a router's ranges between shards.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: not a name.
    pub fn moves(&self, router: &str) -> Result<Moves> {
        self.shared.catch_panic(|| check_name(router, "the router's name"))?;
        Ok(Moves { shared: self.shared.clone(), router: router.to_owned(), expected: None })
    }
}

impl Moves {
    /// The router's name.
    #[must_use]
    pub fn router(&self) -> &str {
        &self.router
    }

    /// The same moves, but each step is refused with `STORE_REFUSED` unless the move still stands where `status` found it: the same range in
    /// the same phase, reached at the same time. Of two operators who decide by the same status and send the same step, one makes it.
    /// Comparisons recorded since then do not matter.
    ///
    /// ```
    /// use keymill::{Change, Code, Mill, MoveOptions};
    /// let mill = Mill::open("memory:")?;
    /// mill.put_routes("orders", "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"", Change::Apply)?;
    /// let moves = mill.moves("orders")?;
    /// let plan = moves.plan(&[("s1", 1), ("s2", 1)], None)?;
    /// let mirrored = moves.start(&plan, 1, &MoveOptions::default(), Change::Apply)?;
    /// let moves = moves.only_from(&mirrored);
    /// moves.back(Change::Apply)?;
    /// // The second operator's step does not take the move further back.
    /// assert_eq!(moves.back(Change::Apply).unwrap_err().code, Code::StoreRefused);
    /// # Ok::<(), keymill::Error>(())
    /// ```
    #[must_use]
    pub fn only_from(&self, status: &MoveStatus) -> Moves {
        Moves { expected: Some(status.clone()), ..self.clone() }
    }

    /// The present routes, for one look.
    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn routes(&self) -> Result<super::Router> {
        super::Router::from_text(&self.shared.route_table(&self.router)?)
    }

    fn read(&self) -> Result<(RouteTable, Readers)> {
        let (router, line) = (self.router.clone(), self.shared.config.command_line());
        self.shared.on_store(line, move |store| seen(store, &router))
    }

    /// Makes a step: reads table and readers, decides, and stores the next table if the table that was read is still there.
    fn step(
        &self,
        change: Change,
        step: impl FnOnce(&RouteTable, &Readers) -> Result<RouteTable> + Send + 'static,
    ) -> Result<MoveStatus> {
        let (router, line) = (self.router.clone(), self.shared.config.command_line());
        let expected = self.expected.clone();
        self.shared.on_store(line, move |store| {
            let (table, readers) = seen(store, &router)?;
            if let Some(expected) = expected {
                let now = MoveStatus::of(&table, readers.clone())?;
                if now.standing() != expected.standing() {
                    return Err(TaskError::Error(Error::new(
                        Code::StoreRefused,
                        format!(
                            "another operator has made a step of router `{}` meanwhile, from {} to {}; nothing was stored",
                            shown(&router),
                            expected.phase_name(),
                            now.phase_name()
                        ),
                    )));
                }
            }
            let new = step(&table, &readers)?;
            if new.version() > LARGEST_VERSION {
                return Err(TaskError::Error(Error::new(
                    Code::StoreRefused,
                    format!(
                        "the table of router `{}` has the largest version, 2^52, and no step can follow it; nothing was stored",
                        shown(&router)
                    ),
                )));
            }
            if !change.is_dry() && !store_table(store, &router, table.version(), &new)? {
                return Err(TaskError::Error(Error::new(
                    Code::StoreRefused,
                    format!(
                        "another process has stored a table of router `{}` meanwhile; nothing was stored: `keymill move status` shows where the move stands",
                        shown(&router)
                    ),
                )));
            }
            Ok(MoveStatus::of(&new, readers)?)
        })
    }

    /// The fewest moves that give each of these shards its share by weight: of the genes, or of the ids that `hot`, a source of business
    /// ids, has reserved for each. A shard of the table that is not named gives all of its genes away.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: a range moves, or a shard is not in the table's list. `INVALID_ARGUMENT`: no shard, one twice, a weight of 0.
    /// `STORE_REFUSED`, `STORE_UNAVAILABLE`, `CLOSED`.
    pub fn plan(&self, shards: &[(&str, u32)], hot: Option<&Source>) -> Result<MovePlan> {
        let (table, _) = self.read()?;
        let load = hot.map(load_of).transpose()?.unwrap_or_default();
        self.shared.catch_panic(|| MovePlan::new(&table, shards, &load))
    }

    /// Begins a move of a plan, counted from 1: from now on its ids are written to both shards.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: the table is not the plan's, a range moves already, the percentages do not rise. `NOT_READY`: a reader has
    /// not followed yet. `STORE_REFUSED`: another process was faster; and as for all steps `STORE_UNAVAILABLE`, `CLOSED`.
    pub fn start(
        &self,
        plan: &MovePlan,
        nth: usize,
        options: &MoveOptions,
        change: Change,
    ) -> Result<MoveStatus> {
        let planned = nth.checked_sub(1).and_then(|at| plan.moves.get(at)).cloned().ok_or_else(|| {
            Error::argument(format!("the plan has moves 1 to {}, and no move {nth}", plan.moves.len()))
        })?;
        let (plan, options) = (plan.clone(), options.clone());
        let watch_ms = u64::try_from(options.watch.as_millis()).unwrap_or(u64::MAX);
        if watch_ms > moves::LONGEST_WATCH_MS {
            return Err(Error::argument("a step is watched for 7 days at most"));
        }
        self.step(change, move |table, readers| {
            if !table.moves() {
                plan.check(table)?;
            }
            let by = if options.by_gene { By::Gene } else { By::Number };
            follow(
                table,
                &MoveStep::Start { planned: &planned, by, steps: &options.steps, watch_ms },
                readers,
            )
        })
    }

    /// Records that every reader follows: writes to both shards, or reads all ids from the new one. A comparison counts that begins at
    /// [`Moving::verify_from`] or later, by the store's clock: `settle` from now.
    ///
    /// # Errors
    /// `NOT_READY`: a reader has not followed, or was lost before the move began; `INVALID_CONFIG`: no step depends on a comparison now. `STORE_REFUSED` as
    /// [`Moves::start`].
    pub fn begin_verify(&self, change: Change) -> Result<MoveStatus> {
        self.step(change, move |table, readers| follow(table, &MoveStep::BeginVerify, readers))
    }

    /// Records that a comparison of both shards, begun at this time of the store, found no difference. The first ids are cut over only
    /// after that, and a move is finished only after another one.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: it began before [`Moving::verify_from`], or no step depends on a comparison now. `NOT_READY`, `STORE_REFUSED` as [`Moves::start`].
    pub fn verified(&self, began_at: u64, change: Change) -> Result<MoveStatus> {
        self.step(change, move |table, readers| follow(table, &MoveStep::Verified { began_at }, readers))
    }

    /// Cuts over the next percentage, after the watching time of the present one; `watch` is another time.
    ///
    /// # Errors
    /// `NOT_READY`: the time is not over, or a reader has not followed; `retry_after` says when to try again, where waiting helps.
    /// `INVALID_CONFIG`: no range moves, no comparison was clean, all ids are cut over. `STORE_REFUSED` as [`Moves::start`].
    pub fn next(&self, watch: Option<Duration>, change: Change) -> Result<MoveStatus> {
        let watch_ms = watch.map(in_ms);
        self.step(change, move |table, readers| follow(table, &MoveStep::Next { watch_ms }, readers))
    }

    /// Goes back: from any percentage, and while writes wait, to mirrored, and from there to a range that does not move. Nothing is lost:
    /// the old shard has every write.
    ///
    /// # Errors
    /// `NOT_READY`, `STORE_REFUSED` as [`Moves::start`]; `INVALID_CONFIG`: no range moves.
    pub fn back(&self, change: Change) -> Result<MoveStatus> {
        self.step(change, |table, readers| follow(table, &MoveStep::Back, readers))
    }

    /// Ends a move whose ids are all read from the new shard, after a comparison that began since and found no difference. The first call
    /// stores [`MovePhase::Pausing`]: writes of the range wait. The second one, once every reader knows it, makes the range the new
    /// shard's, and [`MoveStatus::moving`] is `None`. Call it again until then, as `keymill move finish` does: each reader looks every 200 ms.
    ///
    /// # Errors
    /// As [`Moves::next`]. While writes wait, `NOT_READY` names the readers that they wait for; a reader that has died is waited for until its
    /// row ends, `reader_lease` at most.
    pub fn finish(&self, watch: Option<Duration>, change: Change) -> Result<MoveStatus> {
        let watch_ms = watch.map(in_ms);
        self.step(change, move |table, readers| follow(table, &MoveStep::Finish { watch_ms }, readers))
    }

    /// Where the move stands, and who follows the table.
    ///
    /// # Errors
    /// `STORE_REFUSED`, `STORE_UNAVAILABLE`, `CLOSED`.
    pub fn status(&self) -> Result<MoveStatus> {
        let (table, readers) = self.read()?;
        MoveStatus::of(&table, readers)
    }

    /// Deletes the rows of readers that have ended, by their numbers: their processes are known to run no more. Answers with those that
    /// were deleted; the row of a process that lives is not.
    ///
    /// # Errors
    /// `STORE_REFUSED`, `STORE_UNAVAILABLE`, `CLOSED`.
    pub fn forget(&self, members: &[u64]) -> Result<Vec<u64>> {
        let (key, members) = (Key::of_readers(&self.router), members.to_vec());
        let line = self.shared.config.command_line();
        self.shared.on_store(line, move |store| Ok(store.forget_readers(&key, &members)?))
    }
}

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How much each gene counts: what its counter has reserved, shared out over the genes of the counter.
fn load_of(source: &Source) -> Result<Vec<u64>> {
    let mut load = vec![0; GENES as usize];
    for heat in source.heat()? {
        let genes = u64::from(heat.genes.end - heat.genes.start).max(1);
        // In parts of a gene, so that nothing is lost by the division.
        let each = u64::try_from(u128::from(heat.reserved) * u128::from(GENES) / u128::from(genes));
        let (first, end) = (heat.genes.start as usize, heat.genes.end as usize);
        if let Some(genes) = load.get_mut(first..end) {
            genes.fill(each.unwrap_or(u64::MAX / 4));
        }
    }
    Ok(load)
}
