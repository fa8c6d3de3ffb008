//! The rows of a range that moves: copied from the old shard to the new one, compared, repaired, and in the end removed.
//!
//! The ids of a range of genes are one range of the primary key, so everything goes chunk by chunk along the key. Nothing here knows a
//! terminal or a signal: what happens goes to a callback of the caller (`watch.rs`), whose answer says whether to go on.

mod children;
mod clean;
mod compare;
mod copy;
mod digest;
mod insert;
mod key;
mod literals;
mod moved_table;
mod pace;
mod parents;
mod permit;
mod repair;
mod send;
mod shard;
mod sides;
mod sql;
mod storage;
mod verify;
mod watch;
mod wording;

use std::fmt;
use std::time::Duration;

use crate::api::{Change, MoveStatus, Moves, Moving};
use crate::error::{Code, Error, Result, shown};
use crate::moves::{MovePhase, PlannedMove};
use children::check_all_are_named;
use key::IdRange;
use moved_table::texts;
use parents::check_parents;
use permit::Permit;
use shard::{Cells, Shard};
use sides::check_sides;
use storage::{check_key, check_storage};
use watch::Watch;

pub(crate) use crate::store::shard_session::ShardTable;
pub(crate) use children::{TakenAlong, ask_taken_along, taken_along};
pub(crate) use key::{Id, Primary};
pub(crate) use literals::{quoted, text_literal};
pub(crate) use moved_table::{Class, Column, MovedTable, cell, check_kind, questions};
pub use shard::ShardKind;
pub(crate) use sql::bits;
pub(crate) use storage::refused_storage;
pub(crate) use wording::Wording;

pub use clean::RemovedRows;
pub use compare::Differs;
pub use verify::{ComparedRows, Comparison, DifferingRow, RowRepair};
pub use watch::{OnEvent, RowsEvent, RowsTask};

/// The most rows a second, unless another number is given.
const ROWS_PER_SECOND: u64 = 10_000;

/// The tables of a range that moves, and the databases of its two shards.
///
/// ```
/// use keymill::MovedRows;
/// let rows = MovedRows::new("s1=mysql://mover@db1/shop", "s2=mysql://mover@db2/shop")
///     .table("t_order", "order_id")
///     .table("t_item", "order_id")
///     .rows_per_second(5_000);
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct MovedRows {
    from: String,
    to: String,
    tables: Vec<(String, String)>,
    per_second: u64,
    has_changed: bool,
    wording: Wording,
}

impl fmt::Debug for MovedRows {
    // The URLs may hold passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovedRows").field("tables", &self.tables).finish_non_exhaustive()
    }
}

impl MovedRows {
    /// The databases of the old shard and of the new one: URLs of MySQL, MariaDB or PostgreSQL as a mill's, `file:CONFIG.toml` among them,
    /// with the name of the shard in front: `s1=mysql://…`. [`Moves::clean`] needs the names; the other verbs compare them with the move.
    #[must_use]
    pub fn new(from: &str, to: &str) -> MovedRows {
        MovedRows {
            from: from.to_owned(),
            to: to.to_owned(),
            tables: Vec::new(),
            per_second: ROWS_PER_SECOND,
            has_changed: false,
            wording: Wording::default(),
        }
    }

    /// One more table, and the column of its ids: the first of its primary key. Tables to which foreign keys lead come first.
    #[must_use]
    pub fn table(mut self, name: &str, key: &str) -> MovedRows {
        self.tables.push((name.to_owned(), key.to_owned()));
        self
    }

    /// The most rows a second that are copied or removed, at least 1; 10 000 unless it is called.
    #[must_use]
    pub fn rows_per_second(mut self, rows: u64) -> MovedRows {
        self.per_second = rows.max(1);
        self
    }

    /// Rows of the new shard with other values than the old one's were changed there since the move, and rows that it lacks were deleted there:
    /// [`Moves::clean`] removes the old ones, too. Otherwise it refuses, because a program that did not follow the move may have written them to the
    /// old shard.
    #[must_use]
    pub fn changed_too(mut self) -> MovedRows {
        self.has_changed = true;
        self
    }

    /// Errors name the options of the command instead of the arguments of a program.
    #[doc(hidden)] // for the command
    #[must_use]
    pub fn named_by_options(mut self) -> Self {
        self.wording = Wording::Command;
        self
    }

    fn open<'w>(&self, planned: &PlannedMove, watch: &'w Watch<'w>) -> Result<Vec<Both<'w>>> {
        if self.tables.is_empty() {
            let how = self.wording.table();
            return Err(Error::argument(format!("name the table and the column of its ids: {how}")));
        }
        let all = self.tables.iter().map(|(name, key)| Both::open(self, planned, name, key, watch));
        let mut all = all.collect::<Result<Vec<_>>>()?;
        let tables: Vec<MovedTable> = all.iter().map(|both| both.old.clone()).collect();
        for both in &mut all {
            check_all_are_named(&mut both.from, &both.old, &tables, self.wording)?;
        }
        Ok(all)
    }

    /// The tables, each behind those that its rows refer to.
    fn opened_to_copy<'w>(&self, planned: &PlannedMove, watch: &'w Watch<'w>) -> Result<Vec<Both<'w>>> {
        let mut all = self.open(planned, watch)?;
        for at in 0..all.len() {
            let (before, later) = all.split_at_mut(at + 1);
            let Some(both) = before.last_mut() else { continue };
            let later: Vec<_> = later.iter().map(|both| &both.new).collect();
            check_parents(&mut both.to, &both.new, &later)?;
            check_key(&mut both.to, &both.new)?;
        }
        Ok(all)
    }

    /// A move of no ids between the shards that stand in front of the URLs.
    fn named_shards(&self) -> Result<PlannedMove> {
        let name = |option: &str, word: &str| match word.split_once('=') {
            Some((name, _)) if !name.contains(':') => Ok(name.to_owned()),
            _ => Err(Error::argument(format!(
                "no range moves yet: write the shard's name in front of the URL of {}, such as s1=mysql://…",
                self.wording.option(option)
            ))),
        };
        let (from, to) = (name("from", &self.from)?, name("to", &self.to)?);
        Ok(PlannedMove { first: 0, last: 0, from, to, share: 0.0 })
    }
}

/// One table on both shards.
struct Both<'w> {
    from: Shard,
    to: Shard,
    /// The table as the old shard has it.
    old: MovedTable,
    /// The same columns in the same order, as the new shard has it.
    new: MovedTable,
    /// The longest statement that both servers take.
    longest: usize,
    wording: Wording,
    watch: &'w Watch<'w>,
}

impl<'w> Both<'w> {
    fn open(
        rows: &MovedRows,
        planned: &PlannedMove,
        name: &str,
        key: &str,
        watch: &'w Watch<'w>,
    ) -> Result<Both<'w>> {
        let wording = rows.wording;
        let [from_option, to_option] = ["from", "to"].map(|option| wording.option(option));
        let (from, to) = (
            url_of(&from_option, &rows.from, &planned.from, planned)?,
            url_of(&to_option, &rows.to, &planned.to, planned)?,
        );
        let (mut from, mut to) = (Shard::open(&from_option, from)?, Shard::open(&to_option, to)?);
        if from.kind() != to.kind() {
            return Err(Error::config(format!(
                "{from_option} ({}) is {:?} and {to_option} ({}) is {:?}: rows are moved between databases of one kind",
                from.at(),
                from.kind(),
                to.at(),
                to.kind()
            )));
        }
        let old = MovedTable::read(&mut from, name, key, wording)?;
        let mut new = MovedTable::read(&mut to, name, key, wording)?;
        check_storage(&mut from, &old)?;
        check_storage(&mut to, &new)?;
        check_apart(&mut from, &mut to, &old, &new, wording)?;
        old.check_alike(&from.at(), &new, &to.at(), false)?;
        new.in_order_of(&old);
        let longest = longest(&mut from)?.min(longest(&mut to)?);
        Ok(Both { from, to, old, new, longest, wording, watch })
    }

    /// Refuses where the table has other columns than when the verb began: those were neither copied nor compared.
    fn check_columns(&mut self) -> Result<()> {
        let (name, key) = (self.old.name.clone(), self.old.key().to_owned());
        let old = MovedTable::read(&mut self.from, &name, &key, self.wording)?;
        let mut new = MovedTable::read(&mut self.to, &name, &key, self.wording)?;
        old.check_alike(&self.from.at(), &new, &self.to.at(), false)?;
        new.in_order_of(&old);
        if old.columns == self.old.columns && new.columns == self.new.columns {
            return Ok(());
        }
        Err(Error::new(
            Code::StoreRefused,
            format!(
                "the columns of `{name}` have changed since the comparison began, and nothing was recorded; {}",
                self.wording.again()
            ),
        ))
    }

    /// The parts of the key that the genes of a move are.
    fn ranges(&self, planned: &PlannedMove) -> Vec<IdRange> {
        IdRange::of(planned, self.old.is_wide)
    }

    fn progress(&self, task: RowsTask, share: f64, rows: u64, is_easing: bool) {
        self.watch.say(RowsEvent::Progress { task, table: &self.old.name, share, rows, is_easing });
    }
}

/// How long a statement may be, with room for what the protocol adds.
fn longest(shard: &mut Shard) -> Result<usize> {
    Ok(match shard.kind() {
        ShardKind::MySql => shard.number("SELECT @@max_allowed_packet")?.saturating_sub(1024) as usize,
        ShardKind::Postgres => 1 << 30,
    })
}

/// A row that does not fit into a statement.
fn too_long(at: &str, table: &MovedTable, row: Cells<'_>, bytes: usize, wording: Wording) -> Error {
    let primary = table.primary_of(row).map_or_else(String::new, |primary| table.shown(&primary));
    Error::new(
        Code::StoreRefused,
        format!(
            "{at}: row {primary} of `{}` needs a statement of {bytes} bytes, and a server takes none longer than its `max_allowed_packet`; raise that, on both shards, and {}",
            table.name,
            wording.again()
        ),
    )
}

/// A row whose key is no id.
fn no_id(at: &str, table: &MovedTable, row: Cells<'_>) -> Error {
    let key = table.primary.first().and_then(|at| row.get(*at).copied().flatten());
    Error::new(
        Code::StoreRefused,
        format!(
            "{at}: a row of `{}` has the key `{}`, which is no id; nothing of it was written",
            table.name,
            shown(&String::from_utf8_lossy(key.unwrap_or_default()))
        ),
    )
}

/// The URL behind `NAME=`, if this name stands there.
fn url<'u>(word: &'u str, shard: &str) -> Option<&'u str> {
    word.strip_prefix(shard)?.strip_prefix('=')
}

/// The URL of a shard, whose name may stand in front.
fn url_of<'u>(option: &str, word: &'u str, shard: &str, planned: &PlannedMove) -> Result<&'u str> {
    if let Some(url) = url(word, shard) {
        return Ok(url);
    }
    match word.split_once('=') {
        // No URL has an `=` before its first colon.
        Some((other, _)) if !other.contains(':') => Err(Error::argument(format!(
            "{option} names shard `{}`; the move is from `{}` to `{}`",
            shown(other),
            shown(&planned.from),
            shown(&planned.to)
        ))),
        _ => Ok(word),
    }
}

/// Refuses one table under two names. A lock shows it, whatever the spelling: host names, sockets and proxies say nothing.
fn check_apart(
    from: &mut Shard,
    to: &mut Shard,
    old: &MovedTable,
    new: &MovedTable,
    wording: Wording,
) -> Result<()> {
    let secret = format!("keymill move {:016x}", drawn());
    let is_one = match from.kind() {
        ShardKind::MySql => {
            let lock = literals::text_literal(ShardKind::MySql, &secret);
            from.read(&format!("SELECT GET_LOCK({lock}, 0)"), |_| {})?;
            let held = to.number(&format!("SELECT IS_USED_LOCK({lock}) IS NOT NULL"))? == 1;
            from.read(&format!("SELECT RELEASE_LOCK({lock})"), |_| {})?;
            let name = "SELECT IF(@@lower_case_table_names, LOWER(DATABASE()), DATABASE())";
            let cluster = "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'";
            let of_cluster = texts(from, cluster)?;
            // A server of no cluster has a name of it that is empty, or only zeros.
            let has_name = |row: &Vec<String>| {
                row.get(1).is_some_and(|name| name.chars().any(|letter| !matches!(letter, '0' | '-')))
            };
            let one_server = held || of_cluster.iter().any(has_name) && of_cluster == texts(to, cluster)?;
            one_server && texts(from, name)? == texts(to, name)?
        }
        ShardKind::Postgres => {
            let lock = format!("pg_catalog.hashtextextended('{secret}', 0)");
            let free = from.with_locks(|from| {
                from.read(&format!("SELECT pg_catalog.pg_advisory_xact_lock({lock})"), |_| {})?;
                to.number(&format!("SELECT pg_catalog.pg_try_advisory_xact_lock({lock})::int"))
            });
            free? == 0 && old.quoted == new.quoted
        }
    };
    if is_one {
        return Err(Error::config(format!(
            "{} ({}) and {} ({}) are one database: `{}` would be copied into itself; name the databases of the two shards",
            wording.option("from"),
            from.at(),
            wording.option("to"),
            to.at(),
            old.name
        )));
    }
    Ok(())
}

/// A number that no other process has.
fn drawn() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// How many rows of a table were copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopiedRows {
    /// The table.
    pub table: String,
    /// Rows that were copied. Of a dry run: the rows of the old shard.
    pub sent: u64,
    /// Rows that both shards had alike before, those that a copy of before has left among them. Of a dry run: the rows of the new shard.
    pub alike: u64,
}

impl Moves {
    /// The range that moves, and where all moves stand.
    fn moving(&self) -> Result<(Moving, MoveStatus)> {
        let status = self.status()?;
        let moving = status.moving.clone().ok_or_else(|| {
            Error::config(format!(
                "no range of router `{}` moves, so programs write to one shard only, and a copy would miss what they write meanwhile; begin with `keymill move start`",
                shown(self.router())
            ))
        })?;
        Ok((moving, status))
    }

    /// Records that every reader writes to both shards. Answers with the version that it stored, the time from which on a comparison counts,
    /// and how long until then.
    fn begin(&self, moving: &Moving, watch: &Watch<'_>) -> Result<(u64, u64, Duration)> {
        let status = watch.patiently(|| self.begin_verify(Change::Apply))?;
        let is_same = |now: &&Moving| now.since == moving.since && now.planned == moving.planned;
        let Some(began) = status.moving.as_ref().filter(is_same).and_then(|moving| moving.verify_from) else {
            return Err(self.other_step(status.version));
        };
        Ok((status.version, began, Duration::from_millis(began.saturating_sub(status.now_ms))))
    }

    /// Copies the rows of the range that moves which were there before it was mirrored, chunk by chunk along the key. The rows of a chunk are
    /// locked in the old shard until the new one has them. It begins `settle` after all readers write to both shards, and reads where the move stands before
    /// each chunk. A copy that ended early goes on with the same call. A dry run checks the tables and counts; it does so before a move too, when there is
    /// nothing to count.
    ///
    /// This and the other verbs of rows block until they are done. `on_event` is told what happens.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: no range is mirrored, ids are cut over already, or the two databases are one or are of two kinds. `STORE_REFUSED`:
    /// a table cannot be moved, both have it in other forms, the databases are mixed up, or another operator has made a step. `STORE_UNSAFE`: the
    /// clock of a database stands still for its login. `NOT_READY`: readers have not followed, or
    /// `on_event` has said stop. `STORE_UNAVAILABLE`: the store did not answer at first, or a database or the store could not be reached for a
    /// minute.
    pub fn copy<'c>(
        &self,
        rows: &MovedRows,
        change: Change,
        on_event: &'c mut OnEvent<'c>,
    ) -> Result<Vec<CopiedRows>> {
        let watch = Watch::new(on_event);
        if change.is_dry() && self.status()?.moving.is_none() {
            let all = rows.opened_to_copy(&rows.named_shards()?, &watch)?;
            let none = |both: Both<'_>| CopiedRows { table: both.old.name, sent: 0, alike: 0 };
            return Ok(all.into_iter().map(none).collect());
        }
        let (moving, status) = self.moving()?;
        if !change.is_dry() {
            self.check_copied(moving.phase)?;
        }
        let mut all = rows.opened_to_copy(&moving.planned, &watch)?;
        let routes = self.routes()?;
        for both in &mut all {
            check_sides(both, &routes, &moving.planned, &status.finished)?;
        }
        let mut version = status.version;
        if !change.is_dry() {
            // Under a version of its own: a comparison that runs meanwhile does not count, nor one of before. If the old shard's locks are lost,
            // a statement may reach the new shard later than a program's `DELETE`.
            let (stored, _, settle) = self.begin(&moving, &watch)?;
            version = stored;
            // A row that a program writes to the old shard only, behind the place where the copy is, would be missed.
            if moving.verify_from.is_none_or(|from| from > status.now_ms) {
                watch.settle(settle);
            }
        }
        let still = || self.check_still(version);
        let permit = Permit::new(&still, status.settle);
        let (mut sent, mut alike) = (vec![0; all.len()], vec![0; all.len()]);
        if change.is_dry() {
            for ((both, sent), alike) in all.iter_mut().zip(&mut sent).zip(&mut alike) {
                for range in both.ranges(&moving.planned) {
                    let counted = copy::counted(both, &range)?;
                    *sent += counted.sent;
                    *alike += counted.alike;
                }
            }
        } else {
            for (at, alike) in alike.iter_mut().enumerate() {
                *alike = copy::table(&mut all, at, &moving.planned, rows.per_second, &permit, &mut sent)?;
            }
        }
        let counts = all.into_iter().zip(sent).zip(alike);
        let copied = counts.map(|((both, sent), alike)| CopiedRows { table: both.old.name, sent, alike });
        Ok(copied.collect())
    }

    /// Refuses where another step was stored, or another table, since the verb began.
    fn check_still(&self, version: u64) -> Result<()> {
        let now = self.status()?.version;
        if now == version {
            return Ok(());
        }
        Err(self.other_step(now))
    }

    /// Another operator has stored this version meanwhile.
    fn other_step(&self, now: u64) -> Error {
        Error::new(
            Code::StoreRefused,
            format!(
                "router `{}` has version {now} of its table, and had another one when this began: another operator has made a step; what was done stays, run it again",
                shown(self.router())
            ),
        )
    }

    /// Refuses to copy rows of ids that are cut over.
    fn check_copied(&self, phase: MovePhase) -> Result<()> {
        if phase == MovePhase::Mirror {
            return Ok(());
        }
        Err(Error::config(format!(
            "ids of router `{}` are cut over already: a row that a program deletes meanwhile would come back; `keymill move verify --repair` brings over what differs, and `keymill move back` goes back to where rows are copied",
            shown(self.router())
        )))
    }
}
