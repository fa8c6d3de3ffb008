//! Leased workers in virtual time: when a lease is renewed, ends, and is replaced.

use super::tests::at;
use super::*;
use crate::config::MillConfig;
use crate::error::Code;
use crate::error::fault::{Fault, FaultKind, Remedy};
use crate::process::random::token;
use crate::request::worker::{Left, Renewal, Renewed};
use crate::snowflake::WorkerView;

const LEASE: u64 = 30_000;
const THIRD: u64 = LEASE / 3;
/// A lease is used for this long.
const USED: u64 = LEASE - LEASE / 16;

/// What the generator of a source that has a worker shows.
const BUSY: View =
    View::Snowflake(SnowflakeView::Worker(WorkerView { wanted: false, idle: false, mark: 1_000 }));
/// It has none, and a caller waits.
const WAITING: View =
    View::Snowflake(SnowflakeView::Worker(WorkerView { wanted: true, idle: true, mark: 0 }));
/// It has none, and no caller waits.
const IDLE: View = View::Snowflake(SnowflakeView::Worker(WorkerView { wanted: false, idle: true, mark: 0 }));

/// A planner with a source for each spec.
fn planner(specs: &[&str]) -> Planner {
    let mut planner = Planner::new(7);
    for (index, spec) in specs.iter().enumerate() {
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
        planner.add(index, Arc::new(spec));
    }
    planner
}

/// The request for a slot that is due now, sent.
fn take(planner: &mut Planner, now: Now) -> (SourceIndex, Take) {
    match planner.next_batch(now, 9, token) {
        Some(Batch::One(index, Ask::Take(take))) => (index, take),
        other => panic!("no request for a worker: {other:?}"),
    }
}

/// A source gets this worker.
fn lease(planner: &mut Planner, index: SourceIndex, worker: u64, now: Now) -> Take {
    planner.check(index, &WAITING, now);
    let (asked, take) = take(planner, now);
    assert_eq!(asked, index);
    let taken =
        Taken { slot: worker, start: 0, mark: take.mark, now_ms: now.wall_ms as u64, has_moved: false };
    let actions = planner.complete(index, Ok(Answer::Taken(taken)), now);
    assert!(
        matches!(actions[..], [Action::Snowflake(SnowflakeAction::Begin { start: 0, .. })]),
        "{actions:?}"
    );
    take
}

/// The first renewal comes at a random moment of the first third. It is over, and the next one is due a third later: there.
fn renewed_once(planner: &mut Planner, from: Now) -> u64 {
    let due = planner.wake_at(from).expect("a time");
    assert!((from.boot_ms..=from.boot_ms + THIRD).contains(&due), "{due}");
    let now = at(due);
    let (indexes, renewals) = renewal(planner, now).expect("it is due");
    planner.renewed(&indexes, Ok(done(&renewals, now)), now);
    due + THIRD
}

/// The renewal that is due now, sent.
fn renewal(planner: &mut Planner, now: Now) -> Option<(Vec<SourceIndex>, Vec<Renewal>)> {
    match planner.next_batch(now, 9, token)? {
        Batch::Renew(indexes, renewals) => Some((indexes, renewals)),
        other => panic!("no renewal: {other:?}"),
    }
}

/// The store renewed each.
fn done(renewals: &[Renewal], now: Now) -> Renewed {
    let marks = renewals.iter().map(|renewal| Ok(renewal.to.mark)).collect();
    Renewed { marks, now_ms: now.wall_ms as u64 }
}

fn unavailable<T>() -> Result<T, Fault> {
    Err(Fault::new(FaultKind::Unavailable, "down"))
}

fn unknown<T>() -> Result<T, Fault> {
    Err(Fault::new(FaultKind::Unknown, "lost"))
}

#[test]
fn nothing_is_leased_before_a_caller_asks_and_nothing_renewed_before_its_time() {
    let mut planner = planner(&["snowflake:tx"]);
    planner.check(0, &IDLE, at(0));
    assert!(planner.next_batch(at(0), 9, token).is_none());
    assert_eq!(planner.wake_at(at(0)), None, "an unused source costs nothing");
    lease(&mut planner, 0, 5, at(100));
    let due = renewed_once(&mut planner, at(100));
    for boot_ms in [due - THIRD, due - THIRD + 1, due - 1] {
        planner.check(0, &BUSY, at(boot_ms));
        assert!(planner.next_batch(at(boot_ms), 9, token).is_none(), "at {boot_ms}");
        assert_eq!(planner.wake_at(at(boot_ms)), Some(due));
    }
}

#[test]
fn processes_that_start_at_once_do_not_renew_at_once() {
    let dues: BTreeSet<_> = (0..100)
        .map(|seed| {
            let mut planner = planner(&["snowflake:tx"]);
            planner.rng = fastrand::Rng::with_seed(seed);
            lease(&mut planner, 0, 5, at(0));
            renewed_once(&mut planner, at(0)) / 100
        })
        .collect();
    assert!(dues.len() > 50, "{dues:?}");
}

#[test]
fn a_lease_is_renewed_each_third_of_it_idle_or_in_use() {
    let mut planner = planner(&["snowflake:tx"]);
    lease(&mut planner, 0, 5, at(0));
    let due = renewed_once(&mut planner, at(0));
    for turn in 0..10 {
        let now = at(due + turn * THIRD);
        assert!(renewal(&mut planner, at(now.boot_ms - 1)).is_none());
        let (indexes, renewals) = renewal(&mut planner, now).expect("it is due");
        assert_eq!((indexes.as_slice(), renewals[0].own.slot), ([0].as_slice(), 5));
        assert!(planner.next_batch(now, 9, token).is_none(), "one is in flight");
        let actions = planner.renewed(&indexes, Ok(done(&renewals, now)), now);
        let until = now.boot_ms + USED;
        assert!(
            matches!(actions[..], [(0, Action::Snowflake(SnowflakeAction::Renewed { until_ms, .. }))] if until_ms == until),
            "{actions:?}"
        );
    }
}

#[test]
fn a_renewal_raises_the_mark_by_the_time_that_passed_and_names_the_last_one() {
    let mut planner = planner(&["snowflake:tx?max_lead=3s"]);
    let first = lease(&mut planner, 0, 5, at(0));
    let later = Now { boot_ms: THIRD, wall_ms: at(0).wall_ms + THIRD as i64 };
    let (indexes, renewals) = renewal(&mut planner, later).expect("it is due");
    assert_eq!(renewals[0].own.left, [Left { token: first.token, mark: first.mark }]);
    assert_eq!(renewals[0].to.mark, first.mark + THIRD, "a tick is a millisecond");
    assert_ne!(renewals[0].to.token, first.token, "each request has a token of its own");
    planner.renewed(&indexes, Ok(done(&renewals, later)), later);
    let later = Now { boot_ms: 2 * THIRD, ..later };
    let (_, again) = renewal(&mut planner, later).expect("it is due");
    assert_eq!(again[0].own.left, [renewals[0].to]);
    assert_eq!(again[0].to.mark, renewals[0].to.mark, "a clock that stands still lowers nothing");
    assert_ne!(again[0].to.token, renewals[0].to.token);
}

#[test]
fn every_lease_of_a_mill_is_renewed_in_one_batch_before_anything_else() {
    let mut planner = planner(&["snowflake:a", "snowflake:b?lease=60s", "segment:orders", "snowflake:c"]);
    lease(&mut planner, 0, 1, at(0));
    lease(&mut planner, 1, 2, at(1_000));
    lease(&mut planner, 3, 3, at(1_200));
    let dry = View::Segments(Snapshot { wanted: 1, room: 8, ..Snapshot::default() });
    planner.check(2, &dry, at(THIRD));
    let (indexes, renewals) = renewal(&mut planner, at(THIRD)).expect("a third of the shortest lease");
    assert_eq!(indexes, [0, 1, 3]);
    assert_eq!(renewals.iter().map(|renewal| renewal.own.slot).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(renewals[1].lease_ms, 60_000);
    planner.renewed(&indexes, Ok(done(&renewals, at(THIRD))), at(THIRD));
    assert!(matches!(planner.next_batch(at(THIRD), 9, token), Some(Batch::One(2, Ask::Reserve(_)))));
    assert!(renewal(&mut planner, at(2 * THIRD - 1)).is_none());
    assert_eq!(renewal(&mut planner, at(2 * THIRD)).expect("it is due").0, [0, 1, 3]);
}

#[test]
fn a_failed_renewal_is_tried_again_within_a_quarter_of_a_third_and_stops_at_no_backoff() {
    let mut planner = planner(&["snowflake:tx"]);
    lease(&mut planner, 0, 5, at(0));
    let (mut tries, mut waits) = (Vec::new(), Vec::new());
    for boot_ms in THIRD..THIRD + 60_000 {
        let Some((indexes, _)) = renewal(&mut planner, at(boot_ms)) else { continue };
        waits.extend(tries.last().map(|last| boot_ms - last));
        tries.push(boot_ms);
        planner.renewed(&indexes, unavailable(), at(boot_ms));
    }
    assert!(waits[0] <= 50, "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= THIRD / 4), "{waits:?}");
    assert!(waits.iter().skip(8).all(|wait| *wait >= THIRD / 8), "it rests between: {waits:?}");
    let now = at(THIRD + 60_000 + THIRD);
    let (indexes, renewals) = renewal(&mut planner, now).expect("it goes on");
    planner.renewed(&indexes, Ok(done(&renewals, now)), now);
    let due = renewed_once(&mut planner, now);
    assert_eq!(planner.wake_at(now), Some(due), "and is regular again, at a moment of its own");
}

#[test]
fn a_lost_answer_leaves_a_mark_that_may_stand_in_either_place() {
    let mut planner = planner(&["snowflake:tx"]);
    let Take { token, mark, .. } = lease(&mut planner, 0, 5, at(0));
    let later = |boot_ms: u64| Now { boot_ms, wall_ms: at(0).wall_ms + boot_ms as i64 };
    let (indexes, lost) = renewal(&mut planner, later(THIRD)).expect("it is due");
    planner.renewed(&indexes, unknown(), later(THIRD));
    let now = later(THIRD + 100);
    let (indexes, again) = renewal(&mut planner, now).expect("it is tried again");
    assert_eq!(again[0].own.left, [Left { token, mark }, lost[0].to]);
    assert!(again[0].to.mark >= lost[0].to.mark, "never below what the store may hold");
    planner.renewed(&indexes, Ok(done(&again, now)), now);
    let (_, third) = renewal(&mut planner, later(2 * THIRD + 100)).expect("it is due");
    assert_eq!(third[0].own.left, [again[0].to], "nothing is in doubt any more");
}

#[test]
fn a_lease_that_was_not_renewed_lapses_before_the_store_would_give_it_away() {
    let mut planner = planner(&["snowflake:tx"]);
    lease(&mut planner, 0, 5, at(0));
    for boot_ms in (THIRD..USED).step_by(1_250) {
        if let Some((indexes, _)) = renewal(&mut planner, at(boot_ms)) {
            let actions = planner.renewed(&indexes, unavailable(), at(boot_ms));
            assert!(actions.is_empty(), "callers have ids until the end of the lease: {actions:?}");
        }
    }
    assert!(planner.check(0, &BUSY, at(USED - 1)).is_empty());
    assert!(planner.due(at(USED - 1)).is_empty());
    assert_eq!(planner.due(at(USED)), [0], "a timer stands at its end");
    let actions = planner.check(0, &BUSY, at(USED));
    assert!(matches!(actions[..], [Action::Snowflake(SnowflakeAction::Lapse)]), "{actions:?}");
    const { assert!(USED < LEASE) }
    // Callers that now wait get the reason at each try.
    let now = at(USED + 5_000);
    let (indexes, _) = renewal(&mut planner, now).expect("it is tried again");
    let actions = planner.renewed(&indexes, unavailable(), now);
    assert!(
        matches!(&actions[..], [(0, Action::Fail(error))] if error.code == Code::StoreUnavailable),
        "{actions:?}"
    );
}

#[test]
fn a_process_that_made_ids_is_told_to_repair_the_table_that_is_gone_and_not_only_to_make_it() {
    let missing = || Fault::new(FaultKind::Refused, "the table is missing").with_remedy(Remedy::INIT);
    let says = |actions: &[Action]| match actions {
        [Action::Fail(error)] => error.message.clone(),
        other => panic!("{other:?}"),
    };
    let mut planner = planner(&["snowflake:tx?worker=lease"]);
    planner.check(0, &WAITING, at(0));
    take(&mut planner, at(0));
    let before = says(&planner.complete(0, Err(missing()), at(0)));
    assert!(before.contains("run `keymill init`") && !before.contains("repair"), "{before}");

    lease(&mut planner, 0, 5, at(10_000));
    planner.check(0, &BUSY, at(10_001));
    planner.check(0, &BUSY, at(10_000 + USED));
    let (indexes, _) = renewal(&mut planner, at(10_000 + USED)).expect("it is due");
    let actions = planner.renewed(&indexes, Err(missing()), at(10_000 + USED));
    let after: Vec<Action> = actions.into_iter().map(|(_, action)| action).collect();
    let after = says(&after);
    assert!(after.contains("stop every program") && after.contains("--to now --yes`"), "{after}");
}

#[test]
fn the_length_of_a_lease_counts_from_when_it_was_asked_for() {
    let mut planner = planner(&["snowflake:tx"]);
    planner.check(0, &WAITING, at(0));
    let (index, asked) = take(&mut planner, at(0));
    let taken = Taken { slot: 5, start: 0, mark: asked.mark, now_ms: 0, has_moved: false };
    let actions = planner.complete(index, Ok(Answer::Taken(taken)), at(4_000));
    assert!(
        matches!(actions[..], [Action::Snowflake(SnowflakeAction::Begin { until_ms: USED, .. })]),
        "{actions:?}"
    );
    let (indexes, renewals) = renewal(&mut planner, at(THIRD)).expect("a third after it was asked for");
    let actions = planner.renewed(&indexes, Ok(done(&renewals, at(THIRD))), at(THIRD + 4_000));
    let until = THIRD + USED;
    assert!(
        matches!(actions[..], [(0, Action::Snowflake(SnowflakeAction::Renewed { until_ms, .. }))] if until_ms == until),
        "{actions:?}"
    );
}

#[test]
fn a_lapsed_lease_that_no_process_took_goes_on_with_its_worker() {
    let mut planner = planner(&["snowflake:tx"]);
    let first = lease(&mut planner, 0, 5, at(0));
    let late = at(LEASE + 7_000);
    assert!(matches!(planner.check(0, &BUSY, late)[..], [Action::Snowflake(SnowflakeAction::Lapse)]));
    let (indexes, renewals) = renewal(&mut planner, late).expect("it is due");
    let actions = planner.renewed(&indexes, Ok(done(&renewals, late)), late);
    assert!(matches!(actions[..], [(0, Action::Snowflake(SnowflakeAction::Renewed { .. }))]), "{actions:?}");
    let begun = planner.check(0, &IDLE, late);
    assert!(
        matches!(begun[..], [Action::Snowflake(SnowflakeAction::Begin { worker: 5, mark, .. })] if mark >= first.mark),
        "{begun:?}"
    );
}

#[test]
fn a_worker_that_another_process_took_is_given_up_and_the_next_caller_gets_a_new_one() {
    let mut planner = planner(&["snowflake:tx"]);
    let first = lease(&mut planner, 0, 5, at(0));
    let late = at(LEASE + 7_000);
    let (indexes, _) = renewal(&mut planner, late).expect("it is due");
    let taken = Err(Fault::new(FaultKind::Taken, "another process"));
    let answer = Ok(Renewed { marks: vec![taken], now_ms: late.wall_ms as u64 });
    let actions = planner.renewed(&indexes, answer, late);
    assert!(matches!(actions[..], [(0, Action::Snowflake(SnowflakeAction::Lapse))]), "{actions:?}");
    assert!(renewal(&mut planner, at(LEASE * 9)).is_none(), "nothing is left to renew");
    // Only where a caller lacks one: an idle source does not take workers from others.
    planner.check(0, &IDLE, late);
    assert!(planner.next_batch(late, 9, token).is_none());
    let used_up =
        View::Snowflake(SnowflakeView::Worker(WorkerView { wanted: true, idle: true, mark: first.mark }));
    planner.check(0, &used_up, late);
    let (_, again) = take(&mut planner, late);
    assert_ne!(again.token, first.token);
    assert!(again.mark >= first.mark, "marks of later workers are not lower");
    let taken = Taken { slot: 9, start: 77, mark: again.mark, now_ms: 0, has_moved: false };
    let actions = planner.complete(0, Ok(Answer::Taken(taken)), late);
    assert!(
        matches!(actions[..], [Action::Snowflake(SnowflakeAction::Begin { worker: 9, start: 77, .. })]),
        "{actions:?}"
    );
}

#[test]
fn a_lapsed_lease_of_one_of_several_stores_is_given_up_while_others_go_on() {
    let mut planner = planner(&["snowflake:tx"]);
    let first = lease(&mut planner, 0, 5, at(0));
    let down = || Fault::new(FaultKind::Unavailable, "store 2 of 2: down").of_one_store();
    for boot_ms in (THIRD..USED).step_by(1_250) {
        if let Some((slots, _)) = renewal(&mut planner, at(boot_ms)) {
            let answer = Ok(Renewed { marks: vec![Err(down())], now_ms: 0 });
            assert!(planner.renewed(&slots, answer, at(boot_ms)).is_empty());
        }
    }
    assert!(planner.check(0, &BUSY, at(USED - 1)).is_empty(), "it is used to its end");
    let late = at(USED);
    assert_eq!(planner.due(late), [0], "a timer stands at its end");
    let actions = planner.check(0, &BUSY, late);
    assert!(matches!(actions[..], [Action::Snowflake(SnowflakeAction::Lapse)]), "{actions:?}");
    assert_eq!(planner.wake_at(late), None, "nothing is renewed at the store that is down");
    planner.check(0, &IDLE, late);
    assert!(planner.next_batch(late, 9, token).is_none(), "no caller lacks a worker");
    planner.check(0, &WAITING, late);
    let (_, again) = take(&mut planner, late);
    assert_ne!(again.token, first.token);
}

#[test]
fn one_lost_worker_does_not_end_the_leases_of_other_sources() {
    let mut planner = planner(&["snowflake:a", "snowflake:b"]);
    lease(&mut planner, 0, 1, at(0));
    lease(&mut planner, 1, 2, at(0));
    let (indexes, renewals) = renewal(&mut planner, at(THIRD)).expect("it is due");
    let taken = Err(Fault::new(FaultKind::Taken, "another process"));
    let answer = Ok(Renewed { marks: vec![taken, Ok(renewals[1].to.mark)], now_ms: 0 });
    let actions = planner.renewed(&indexes, answer, at(THIRD));
    assert!(
        matches!(
            actions[..],
            [
                (0, Action::Snowflake(SnowflakeAction::Lapse)),
                (1, Action::Snowflake(SnowflakeAction::Renewed { .. }))
            ]
        ),
        "{actions:?}"
    );
    assert_eq!(renewal(&mut planner, at(2 * THIRD)).expect("it is due").0, [1]);
}

#[test]
fn without_a_free_worker_the_store_is_asked_again_within_a_second_as_long_as_callers_wait() {
    let mut planner = planner(&["snowflake:tx"]);
    let mut tries = Vec::new();
    for boot_ms in (0..10_000).step_by(10) {
        planner.check(0, &WAITING, at(boot_ms));
        if let Some(batch) = planner.next_batch(at(boot_ms), 9, token) {
            assert!(matches!(batch, Batch::One(0, Ask::Take(_))));
            tries.push(boot_ms);
            let fault = Fault::new(FaultKind::NoneFree, "none");
            let actions = planner.complete(0, Err(fault), at(boot_ms));
            assert!(
                matches!(&actions[..], [Action::Fail(error)] if error.code == Code::NoWorkerFree),
                "{actions:?}"
            );
        }
    }
    assert!(tries.windows(2).all(|two| two[1] - two[0] <= 1_010), "{tries:?}");
    assert!((10..40).contains(&tries.len()), "{tries:?}");
}

#[test]
fn a_keeper_that_begins_again_keeps_the_leases_and_doubts_what_was_in_flight() {
    let mut old = planner(&["snowflake:a", "snowflake:b"]);
    let first = lease(&mut old, 0, 5, at(0));
    let (_, lost) = renewal(&mut old, at(THIRD)).expect("it is due");
    let mut planner = old.successor(8);
    let now = at(THIRD + 10);
    let (indexes, renewals) = renewal(&mut planner, now).expect("what it inherits is renewed at once");
    assert_eq!((indexes.as_slice(), renewals[0].own.slot), ([0].as_slice(), 5));
    assert_eq!(renewals[0].own.left, [Left { token: first.token, mark: first.mark }, lost[0].to]);
}

#[test]
fn a_close_frees_the_worker_with_what_was_used() {
    let mut planner = planner(&["snowflake:tx"]);
    assert!(planner.release(0, 9).is_none(), "nothing is leased");
    let first = lease(&mut planner, 0, 5, at(0));
    let freed = planner.release(0, first.mark - 7).expect("a lease");
    assert_eq!(
        (freed.own.slot, freed.own.left.as_slice(), freed.used),
        (5, [Left { token: first.token, mark: first.mark }].as_slice(), first.mark - 7)
    );
}
