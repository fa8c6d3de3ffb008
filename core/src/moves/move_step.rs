//! Which table follows a table while a range moves, and whether it may be stored now.

use std::fmt;

use crate::error::{Code, Error, Result, shown};
use crate::request::reader::{Reader, Readers};
use crate::router::{By, Move, Moved, Progress, Range, RouteTable, check_steps};

use super::plan::{PlannedMove, given, intervals};

/// How often a caller that waits for readers looks again.
const AGAIN_MS: u64 = 1_000;
/// … while writes wait for them too.
const AGAIN_PAUSED_MS: u64 = 100;

/// So long writes wait at least where a reader is lost that ran the move: it looks five times until then.
const LOST_MS: u64 = 1_000;

/// How many readers a message names.
const NAMED: usize = 5;

/// Where a move stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MovePhase {
    /// Every write goes to both shards, and all ids are read from the old one.
    Mirror,
    /// So many percent are read from the new shard. The old one still decides writes.
    CutOver(u8),
    /// All ids are read from the new shard, and writes wait until every reader knows it.
    Pausing,
}

impl fmt::Display for MovePhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MovePhase::Mirror => f.write_str("mirror"),
            MovePhase::CutOver(percent) => write!(f, "cut over {percent} %"),
            MovePhase::Pausing => f.write_str("pausing"),
        }
    }
}

impl Move {
    pub(crate) fn phase(&self) -> MovePhase {
        match self.percent {
            _ if self.is_paused => MovePhase::Pausing,
            0 => MovePhase::Mirror,
            percent => MovePhase::CutOver(percent),
        }
    }
}

/// A step of a move.
#[derive(Clone, Debug)]
pub(crate) enum MoveStep<'a> {
    /// Mirrors the genes of a move.
    Start { planned: &'a PlannedMove, by: By, steps: &'a [u8], watch_ms: u64 },
    /// Every reader writes to both shards, or reads all from the new one: a comparison counts that begins `settle` from now.
    BeginVerify,
    /// A comparison that began at this time of the store found both shards alike.
    Verified { began_at: u64 },
    /// The next percentage. The watching time of the table, or another one.
    Next { watch_ms: Option<u64> },
    /// Mirrored again, then not moving.
    Back,
    /// Writes wait; then the range is the new shard's.
    Finish { watch_ms: Option<u64> },
}

/// The range that moves, with its first and its last gene. One range moves at a time.
pub(crate) fn move_of(table: &RouteTable) -> Result<(&Move, u16, u16)> {
    let moving = |range: &&Range| range.moves.is_some();
    if table.ranges.iter().filter(moving).count() > 1 {
        return Err(Error::config(
            "several ranges of the table move, and these steps move one range at a time; store a table in which one range moves, with `keymill route put`",
        ));
    }
    let at = table.ranges.iter().position(|range| range.moves.is_some());
    let moves = at.and_then(|at| Some((at, table.ranges.get(at)?.moves.as_ref()?)));
    let Some((at, moves)) = moves else {
        return Err(Error::config("no range of the table moves; begin with `keymill move start`"));
    };
    let before = at.checked_sub(1).or(table.ranges.len().checked_sub(1)).and_then(|at| table.ranges.get(at));
    let first = before.map_or(0, |before| before.upper.wrapping_add(1));
    Ok((moves, first, table.ranges.get(at).map_or(0, |range| range.upper)))
}

/// The table that follows by this step, if it may be stored now. An error that goes away by waiting is `NOT_READY` and says when to try
/// again.
pub(crate) fn follow(table: &RouteTable, step: &MoveStep<'_>, readers: &Readers) -> Result<RouteTable> {
    let mut new = table.clone();
    new.version += 1;
    if let MoveStep::Start { planned, by, steps, watch_ms } = step {
        check_followed(table, &readers.all)?;
        let progress = Progress {
            since: Some(new.version),
            steps: steps.to_vec(),
            watch_ms: *watch_ms,
            stored_at: Some(readers.now_ms),
            verify_from: None,
            verified_at: None,
            finish_from: None,
        };
        new.ranges = started(table, planned, *by, progress)?;
        // A plan is a file, which people edit: every reader has to be able to read what is stored.
        RouteTable::parse(&new.to_text()).map_err(|error| {
            Error::config(format!("the plan would make a table that no program can read: {}", error.message))
        })?;
        return Ok(new);
    }
    let (old, first, last) = move_of(table)?;
    let Some(range) = new.ranges.iter_mut().find(|range| range.moves.is_some()) else { return Ok(new) };
    let Some(moves) = &mut range.moves else { return Ok(new) };
    match step {
        MoveStep::Start { .. } => {}
        MoveStep::BeginVerify => {
            check_compared(old)?;
            check_followed(table, &readers.all)?;
            check_aware(table, old, &readers.all)?;
            moves.progress.verify_from = Some(readers.now_ms.saturating_add(table.settle_ms));
            moves.progress.verified_at = None;
        }
        MoveStep::Verified { began_at } => {
            check_verified(table, old, *began_at, readers)?;
            moves.progress.verified_at = Some(*began_at);
            // A statement that repaired a row until now may be carried out for `settle`.
            moves.progress.finish_from = Some(readers.now_ms.saturating_add(table.settle_ms));
        }
        MoveStep::Next { watch_ms } => {
            let Some(percent) = old.progress.steps.iter().copied().find(|step| *step > old.percent) else {
                return Err(Error::config(format!(
                    "all ids are read from the new shard `{}` already; end the move with `keymill move finish`",
                    shown(&old.to)
                )));
            };
            if old.phase() == MovePhase::Mirror {
                check_alike(old)?;
            }
            check_followed(table, &readers.all)?;
            check_aware(table, old, &readers.all)?;
            if old.phase() != MovePhase::Mirror {
                check_watched(old, *watch_ms, readers.now_ms)?;
            }
            moves.percent = percent;
            moves.progress.stored_at = Some(readers.now_ms);
            moves.progress.forget_comparison();
        }
        MoveStep::Back => {
            check_followed(table, &readers.all)?;
            moves.progress.stored_at = Some(readers.now_ms);
            match old.phase() {
                MovePhase::Mirror => range.moves = None,
                MovePhase::CutOver(_) | MovePhase::Pausing => {
                    (moves.percent, moves.is_paused) = (0, false);
                    // Rows that are written from now on may fail on the mirror.
                    moves.progress.forget_comparison();
                }
            }
            join(&mut new.ranges);
        }
        MoveStep::Finish { watch_ms } => {
            if old.percent != 100 {
                return Err(Error::config(format!(
                    "{} % of the ids are read from the new shard `{}`; only a range that is read there as a whole can be finished: `keymill move next`",
                    old.percent,
                    shown(&old.to)
                )));
            }
            check_followed(table, &readers.all)?;
            check_aware(table, old, &readers.all)?;
            if old.phase() != MovePhase::Pausing {
                check_alike(old)?;
                check_watched(old, *watch_ms, readers.now_ms)?;
                check_settled(old, readers.now_ms)?;
                moves.is_paused = true;
                moves.progress.stored_at = Some(readers.now_ms);
                return Ok(new);
            }
            check_lost(table, old, readers)?;
            let (from, to) = (std::mem::replace(&mut range.shard, old.to.clone()), old.to.clone());
            range.moves = None;
            Moved::note(&mut new.moved, Moved { first, last, from, to, finished_at: readers.now_ms });
            join(&mut new.ranges);
        }
    }
    Ok(new)
}

/// The ranges after one range began to move.
fn started(table: &RouteTable, planned: &PlannedMove, by: By, progress: Progress) -> Result<Vec<Range>> {
    if table.moves() {
        return Err(Error::config(
            "a range of the table moves already; finish that move or go back before the next one begins",
        ));
    }
    check_steps(&progress.steps).map_err(Error::config)?;
    let PlannedMove { first, last, from, to, .. } = planned;
    if table.shards.as_ref().is_some_and(|listed| !listed.contains(to)) {
        return Err(Error::config(format!(
            "shard `{}` is not in `shards` of the table; store a table that lists it first",
            shown(to)
        )));
    }
    let all = intervals(&table.ranges);
    let owner = all.iter().find(|one| one.first <= *first && *last <= one.last);
    if first > last || owner.is_none_or(|one| one.shard != *from) || from == to {
        return Err(Error::config(format!(
            "genes {first}-{last} do not lie in one range of shard `{}`; make a new plan",
            shown(from)
        )));
    }
    // A name that no shard has keeps the interval apart from its neighbours.
    let ranges = given(&all, *first, *last, "").into_iter().map(|one| {
        if !one.shard.is_empty() {
            return Range { upper: one.last, shard: one.shard, moves: None };
        }
        let moves =
            Some(Move { to: to.clone(), percent: 0, is_paused: false, by, progress: progress.clone() });
        Range { upper: one.last, shard: from.clone(), moves }
    });
    Ok(ranges.collect())
}

/// Makes one range of neighbours of one shard.
fn join(ranges: &mut Vec<Range>) {
    let mut joined: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..) {
        match joined.last_mut() {
            Some(before)
                if before.moves.is_none() && range.moves.is_none() && before.shard == range.shard =>
            {
                before.upper = range.upper;
            }
            _ => joined.push(range),
        }
    }
    *ranges = joined;
}

/// Refuses while a living reader runs another version than the table's.
fn check_followed(table: &RouteTable, readers: &[Reader]) -> Result<()> {
    let version = table.version();
    let untrue: Vec<_> = readers.iter().filter(|reader| reader.fault().is_some()).collect();
    if !untrue.is_empty() {
        return Err(Error::new(
            Code::NotReady,
            format!(
                "{} not as keymill writes it: {}. If such a process runs, end it; then say so with `--gone MEMBER`",
                are(untrue.len()),
                list(&untrue)
            ),
        ));
    }
    let ahead = readers.iter().find(|reader| reader.is_living() && reader.version > version);
    if let Some(ahead) = ahead {
        return Err(Error::new(
            Code::StoreRefused,
            format!(
                "reader {} runs version {} of the table, and the store has version {version}: it was restored from a backup; store the present table with a higher version, `keymill route put`",
                named(ahead),
                ahead.version
            ),
        ));
    }
    let lag: Vec<_> =
        readers.iter().filter(|reader| reader.is_living() && reader.version < version).collect();
    if lag.is_empty() {
        return Ok(());
    }
    let is_paused =
        table.ranges.iter().any(|range| range.moves.as_ref().is_some_and(|moves| moves.is_paused));
    Err(wait(
        format!("{} not yet at version {version} of the table: {}", are(lag.len()), list(&lag)),
        if is_paused { AGAIN_PAUSED_MS } else { AGAIN_MS },
    ))
}

/// Refuses while a reader that has not ended cleanly may not know that the range moves: cut off from the store it would answer as
/// before, and write to the old shard only.
fn check_aware(table: &RouteTable, moves: &Move, readers: &[Reader]) -> Result<()> {
    let since = moves.progress.since.unwrap_or(table.version());
    let unaware: Vec<_> =
        readers.iter().filter(|reader| !reader.is_living() && reader.version < since).collect();
    if unaware.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        Code::NotReady,
        format!(
            "{} lost to the store before the range began to move, in version {since}: {}. A process that still runs there, cut off from the store, would write to the old shard only. End it, and say so with `--gone MEMBER`",
            are(unaware.len()),
            list(&unaware)
        ),
    ))
}

/// Refuses until the present percentage was watched for long enough.
fn check_watched(moves: &Move, watch_ms: Option<u64>, now_ms: u64) -> Result<()> {
    let watch_ms = watch_ms.unwrap_or(moves.progress.watch_ms);
    let Some(at) = moves.progress.stored_at.filter(|at| now_ms.saturating_sub(*at) < watch_ms) else {
        return Ok(());
    };
    let left_ms = at.saturating_add(watch_ms).saturating_sub(now_ms);
    let why = if at > now_ms { ": the store's clock went back" } else { "" };
    Err(wait(
        format!(
            "{} is watched for another {} s{why}; `--watch` says how long",
            moves.phase(),
            left_ms.div_ceil(1000)
        ),
        left_ms,
    ))
}

/// Refuses until statements that repaired rows before the comparison ended are over.
fn check_settled(moves: &Move, now_ms: u64) -> Result<()> {
    let left_ms = moves.progress.finish_from.map_or(0, |from| from.saturating_sub(now_ms));
    if left_ms == 0 {
        return Ok(());
    }
    Err(wait(
        format!("the move can be finished in {} s, `settle` after the comparison", left_ms.div_ceil(1000)),
        left_ms,
    ))
}

/// Refuses while a lost reader may not have seen that writes wait. The store's clock may have jumped ahead: then the reader lives, and would
/// write to the old shard what the new one decides by now.
fn check_lost(table: &RouteTable, moves: &Move, readers: &Readers) -> Result<()> {
    let version = table.version();
    let is_lost = |reader: &&Reader| !reader.is_living() && reader.version < version;
    let lost: Vec<_> = readers.all.iter().filter(is_lost).collect();
    let since_ms = readers.now_ms.saturating_sub(moves.progress.stored_at.unwrap_or(0));
    if lost.is_empty() || since_ms >= LOST_MS {
        return Ok(());
    }
    Err(wait(
        format!(
            "{} lost to the store, and may still run if the store's clock has jumped: {}; writes wait for {LOST_MS} ms",
            are(lost.len()),
            list(&lost)
        ),
        AGAIN_PAUSED_MS,
    ))
}

/// Refuses where no step depends on a comparison.
fn check_compared(moves: &Move) -> Result<()> {
    if matches!(moves.phase(), MovePhase::Mirror | MovePhase::CutOver(100)) {
        return Ok(());
    }
    Err(Error::config(format!(
        "the move is at `{}`; a comparison counts only before the first ids are cut over, and after the last ids",
        moves.phase()
    )))
}

/// Refuses a step that depends on a comparison where none has counted.
fn check_alike(moves: &Move) -> Result<()> {
    if moves.progress.verified_at.is_some() {
        return Ok(());
    }
    Err(Error::config(if moves.phase() == MovePhase::Mirror {
        "no comparison has found both shards alike since the range was mirrored; copy the older rows, then run `keymill move verify`"
    } else {
        "no comparison has found both shards alike since all ids are read from the new shard; run `keymill move verify`"
    }))
}

fn check_verified(table: &RouteTable, moves: &Move, began_at: u64, readers: &Readers) -> Result<()> {
    check_compared(moves)?;
    let Some(from) = moves.progress.verify_from else {
        return Err(Error::config(
            "a comparison counts if it begins `settle` after every reader has followed: begin with `keymill move verify --wait --yes`",
        ));
    };
    check_followed(table, &readers.all)?;
    check_aware(table, moves, &readers.all)?;
    if (from..=readers.now_ms).contains(&began_at) {
        return Ok(());
    }
    Err(Error::config(format!(
        "the comparison began at {began_at}; it counts if it begins at {from} or later and has ended by {}: run it again",
        readers.now_ms
    )))
}

fn wait(message: String, ms: u64) -> Error {
    Error::new(Code::NotReady, message).after(std::time::Duration::from_millis(ms))
}

fn are(count: usize) -> String {
    if count == 1 { "1 reader is".to_owned() } else { format!("{count} readers are") }
}

fn named(reader: &Reader) -> String {
    format!("{} ({})", reader.member, shown(&reader.owner))
}

fn list(readers: &[&Reader]) -> String {
    let names: Vec<_> = readers
        .iter()
        .take(NAMED)
        .map(|reader| {
            let end = match reader.fault() {
                Some(fault) => format!(" for {} s: {fault}", reader.left_ms / 1000),
                None if reader.is_living() => String::new(),
                None => format!(", ended {} s ago", reader.left_ms.unsigned_abs() / 1000),
            };
            format!("{} at version {}{end}", named(reader), reader.version)
        })
        .collect();
    let more = if readers.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const STORED_AT: u64 = 10_000_000;

    fn table(text: &str) -> RouteTable {
        RouteTable::parse(text).expect(text)
    }

    fn two() -> RouteTable {
        table(
            "version = 6\n[[range]]\nupper = 9999\nshard = \"a\"\n[[range]]\nupper = 29999\nshard = \"b\"\n",
        )
    }

    /// Genes that lie behind the highest bound, so the ring is cut anew.
    fn planned() -> PlannedMove {
        PlannedMove { first: 40_000, last: 49_999, from: "a".into(), to: "c".into(), share: 0.1 }
    }

    fn start() -> RouteTable {
        let planned = planned();
        let step =
            MoveStep::Start { planned: &planned, by: By::Number, steps: &[5, 50, 100], watch_ms: 60_000 };
        follow(&two(), &step, &readers(STORED_AT, &[(6, 1)])).expect("a table")
    }

    /// Every reader writes to both shards.
    fn mirrored() -> RouteTable {
        follow(&start(), &MoveStep::BeginVerify, &readers(STORED_AT, &[])).expect("a table")
    }

    fn readers(now_ms: u64, all: &[(u64, i64)]) -> Readers {
        let reader = |(at, (version, left_ms)): (usize, &(u64, i64))| {
            Reader::new(at as u64 + 1, "host:7", *version, *left_ms)
        };
        Readers { now_ms, all: all.iter().enumerate().map(reader).collect() }
    }

    fn says(answer: Result<RouteTable>, code: Code, says: &str) -> Option<Duration> {
        let error = answer.expect_err(says);
        assert_eq!((error.code, error.message.contains(says)), (code, true), "{error}");
        error.retry_after
    }

    #[test]
    fn a_row_that_ended_with_a_version_that_none_may_have_holds_up_no_move() {
        let at = |left_ms| readers(STORED_AT, &[(u64::MAX, left_ms)]);
        assert!(follow(&start(), &MoveStep::BeginVerify, &at(-1_795_732_384_000)).is_ok());
        says(follow(&start(), &MoveStep::BeginVerify, &at(1)), Code::NotReady, "not as keymill writes it");
    }

    const NEXT: MoveStep<'static> = MoveStep::Next { watch_ms: None };

    #[test]
    fn a_move_goes_from_mirrored_by_its_steps_to_the_new_shard_and_is_read_back_from_its_text() {
        let mut now_ms = STORED_AT;
        let mut at = start();
        let (moves, first, last) = move_of(&at).expect("a move");
        assert_eq!(
            (moves.phase(), first, last, moves.progress.since),
            (MovePhase::Mirror, 40_000, 49_999, Some(7))
        );
        at = follow(&at, &MoveStep::BeginVerify, &readers(now_ms, &[(7, 1)])).expect("every reader follows");
        now_ms += at.settle_ms;
        at = follow(&at, &MoveStep::Verified { began_at: now_ms }, &readers(now_ms, &[(8, 1)]))
            .expect("verified");
        for percent in [5, 50, 100] {
            assert_eq!(at, table(&at.to_text()), "as it is stored");
            at = follow(&at, &NEXT, &readers(now_ms, &[(at.version(), 1)])).expect("the next step");
            assert_eq!(move_of(&at).expect("a move").0.phase(), MovePhase::CutOver(percent));
            now_ms += 60_000;
        }
        says(
            follow(&at, &NEXT, &readers(now_ms, &[])),
            Code::InvalidConfig,
            "read from the new shard `c` already",
        );
        let finish = MoveStep::Finish { watch_ms: None };
        says(
            follow(&at, &finish, &readers(now_ms, &[])),
            Code::InvalidConfig,
            "since all ids are read from the new shard",
        );
        at = follow(&at, &MoveStep::BeginVerify, &readers(now_ms, &[(at.version(), 1)]))
            .expect("all read there");
        now_ms += at.settle_ms;
        at = follow(&at, &MoveStep::Verified { began_at: now_ms }, &readers(now_ms, &[])).expect("verified");
        assert!(at.pauses(), "readers look often from now on");
        let early = says(
            follow(&at, &finish, &readers(now_ms, &[])),
            Code::NotReady,
            "`settle` after the comparison",
        );
        assert_eq!(early, Some(Duration::from_millis(at.settle_ms)));
        now_ms += at.settle_ms;
        at = follow(&at, &finish, &readers(now_ms, &[])).expect("writes wait");
        assert_eq!(at, table(&at.to_text()), "as it is stored");
        assert_eq!(move_of(&at).expect("a move").0.phase(), MovePhase::Pausing);
        let lags = says(
            follow(&at, &finish, &readers(now_ms, &[(at.version() - 1, 1)])),
            Code::NotReady,
            "not yet at version",
        );
        assert_eq!(lags, Some(Duration::from_millis(AGAIN_PAUSED_MS)));
        // The store's clock has jumped ahead, and a reader that lives counts as lost: it looks again before the new shard decides.
        let lost = [(at.version() - 1, -3_600_000)];
        let jumped = says(
            follow(&at, &finish, &readers(now_ms + LOST_MS - 1, &lost)),
            Code::NotReady,
            "may still run",
        );
        assert_eq!(jumped, Some(Duration::from_millis(AGAIN_PAUSED_MS)));
        follow(&at, &finish, &readers(now_ms + LOST_MS, &lost)).expect("it has had its time");
        says(
            follow(&at, &MoveStep::BeginVerify, &readers(now_ms, &[])),
            Code::InvalidConfig,
            "the move is at `pausing`",
        );
        let back = follow(&at, &MoveStep::Back, &readers(now_ms, &[])).expect("a step back");
        assert_eq!(move_of(&back).expect("a move").0.phase(), MovePhase::Mirror);
        at = follow(&at, &finish, &readers(now_ms, &[])).expect("the last step");
        assert_eq!((at.moves(), at.version()), (false, 16));
        let owners: Vec<_> = at.ranges.iter().map(|range| (range.upper, range.shard.as_str())).collect();
        assert_eq!(owners, [(9999, "a"), (29_999, "b"), (39_999, "a"), (49_999, "c"), (65_535, "a")]);
    }

    #[test]
    fn a_move_goes_back_to_mirrored_and_then_to_a_range_that_does_not_move() {
        let mut at = mirrored();
        at = follow(
            &at,
            &MoveStep::Verified { began_at: STORED_AT + 10_000 },
            &readers(STORED_AT + 20_000, &[]),
        )
        .expect("verified");
        let mut phases = Vec::new();
        for watched in [1, 2] {
            at = follow(&at, &NEXT, &readers(STORED_AT + watched * 100_000, &[])).expect("a step");
        }
        while at.moves() {
            phases.push(move_of(&at).expect("a move").0.phase());
            at = follow(&at, &MoveStep::Back, &readers(STORED_AT, &[])).expect("a step back");
        }
        assert_eq!(phases, [MovePhase::CutOver(50), MovePhase::Mirror]);
        let owners: Vec<_> = at.ranges.iter().map(|range| (range.upper, range.shard.as_str())).collect();
        assert_eq!(owners, [(9999, "a"), (29_999, "b"), (65_535, "a")]);
    }

    #[test]
    fn no_step_is_stored_while_a_reader_has_not_followed() {
        let at = mirrored();
        let verified = MoveStep::Verified { began_at: STORED_AT + 10_000 };
        let steps = [MoveStep::BeginVerify, verified, MoveStep::Back];
        for step in &steps {
            let answer = follow(&at, step, &readers(STORED_AT + 20_000, &[(8, 1), (7, 1)]));
            assert_eq!(says(answer, Code::NotReady, "2 (host:7) at version 7"), Some(Duration::from_secs(1)));
            let answer = follow(&at, step, &readers(STORED_AT + 20_000, &[(9, 1)]));
            says(answer, Code::StoreRefused, "restored from a backup");
        }
        let answer = follow(&two(), &MoveStep::Back, &readers(STORED_AT, &[]));
        says(answer, Code::InvalidConfig, "no range of the table moves");
    }

    #[test]
    fn a_reader_that_was_lost_before_the_move_began_holds_up_the_first_ids_and_a_later_one_does_not() {
        let verified = MoveStep::Verified { began_at: STORED_AT + 10_000 };
        for (at, step) in [(start(), MoveStep::BeginVerify), (mirrored(), verified.clone())] {
            let lost = readers(STORED_AT + 20_000, &[(at.version(), 1), (6, -3_000)]);
            let answer = follow(&at, &step, &lost);
            assert_eq!(
                says(answer, Code::NotReady, "2 (host:7) at version 6, ended 3 s ago"),
                None,
                "it does not pass by waiting"
            );
        }
        let at = follow(&mirrored(), &verified, &readers(STORED_AT + 20_000, &[(7, -1)]))
            .expect("it knows of the move");
        let lost = readers(STORED_AT + 20_000, &[(9, 1), (6, -1)]);
        says(follow(&at, &NEXT, &lost), Code::NotReady, "before the range began to move");
        follow(&at, &MoveStep::Back, &lost).expect("the old shard has every row");
    }

    #[test]
    fn a_step_waits_for_its_time_and_the_first_one_for_a_comparison() {
        let at = start();
        let verified = MoveStep::Verified { began_at: STORED_AT + 50_000 };
        let answer = follow(&at, &verified, &readers(STORED_AT + 99_000, &[]));
        says(answer, Code::InvalidConfig, "begin with `keymill move verify");
        let at = mirrored();
        says(
            follow(&at, &NEXT, &readers(STORED_AT + 99_000, &[])),
            Code::InvalidConfig,
            "keymill move verify",
        );
        for (began_at, now_ms) in
            [(STORED_AT + 9_999, STORED_AT + 20_000), (STORED_AT + 20_001, STORED_AT + 20_000)]
        {
            let answer = follow(&at, &MoveStep::Verified { began_at }, &readers(now_ms, &[]));
            says(answer, Code::InvalidConfig, "run it again");
        }
        let began_at = STORED_AT + 10_000;
        let at = follow(&at, &MoveStep::Verified { began_at }, &readers(began_at, &[])).expect("verified");
        let at = follow(&at, &NEXT, &readers(began_at, &[])).expect("the first step");
        says(
            follow(&at, &MoveStep::Verified { began_at }, &readers(began_at, &[])),
            Code::InvalidConfig,
            "the move is at `cut over 5 %`",
        );
        let answer = follow(&at, &NEXT, &readers(began_at + 59_000, &[]));
        assert_eq!(says(answer, Code::NotReady, "another 1 s"), Some(Duration::from_secs(1)));
        let answer = follow(&at, &NEXT, &readers(began_at - 3_600_000, &[]));
        says(answer, Code::NotReady, "another 3660 s: the store's clock went back");
        says(
            follow(&at, &MoveStep::Finish { watch_ms: None }, &readers(began_at, &[])),
            Code::InvalidConfig,
            "5 % of the ids are read from the new shard",
        );
        let at = follow(&at, &MoveStep::Next { watch_ms: Some(0) }, &readers(began_at, &[]))
            .expect("as it was asked");
        let mirrored = follow(&at, &MoveStep::Back, &readers(began_at, &[])).expect("a step back");
        says(
            follow(&mirrored, &NEXT, &readers(began_at + 99_000, &[])),
            Code::InvalidConfig,
            "keymill move verify",
        );
    }

    #[test]
    fn a_move_that_does_not_fit_the_table_is_not_begun() {
        let begin = |planned: &PlannedMove, table: &RouteTable, steps: &[u8]| {
            follow(
                table,
                &MoveStep::Start { planned, by: By::Gene, steps, watch_ms: 0 },
                &readers(STORED_AT, &[]),
            )
        };
        let planned = planned();
        for (wrong, what) in [
            (PlannedMove { from: "b".into(), ..planned.clone() }, "do not lie in one range"),
            (PlannedMove { first: 20_000, ..planned.clone() }, "do not lie in one range"),
            (PlannedMove { first: 50_000, ..planned.clone() }, "do not lie in one range"),
            (PlannedMove { to: "a".into(), ..planned.clone() }, "do not lie in one range"),
            (PlannedMove { to: " c".into(), ..planned.clone() }, "a blank at an end"),
            (
                PlannedMove { to: String::new(), ..planned.clone() },
                "the plan would make a table that no program can read",
            ),
        ] {
            says(begin(&wrong, &two(), &[100]), Code::InvalidConfig, what);
        }
        says(begin(&planned, &two(), &[50, 25, 100]), Code::InvalidConfig, "percentages");
        says(begin(&planned, &start(), &[100]), Code::InvalidConfig, "moves already");
        let listed = RouteTable { shards: Some(vec!["a".into(), "b".into()]), ..two() };
        says(begin(&planned, &listed, &[100]), Code::InvalidConfig, "`c` is not in `shards`");
        let by_hand = table(
            "version = 3\n[[range]]\nupper = 9\nshard = \"a\"\nto = \"b\"\n[[range]]\nupper = 20\nshard = \"b\"\nto = \"a\"",
        );
        says(
            follow(&by_hand, &MoveStep::Back, &readers(STORED_AT, &[])),
            Code::InvalidConfig,
            "one range at a time",
        );
    }
}
