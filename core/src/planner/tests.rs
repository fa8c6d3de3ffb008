//! Doubtful marks, and places in line.

use super::*;
use crate::config::MillConfig;
use crate::process::random::token;
use crate::request::reservation::{Fault, FaultKind};

pub(super) fn planner_of(spec: &str) -> Planner {
    let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
    let mut planner = Planner::new(1);
    planner.add(0, Arc::new(spec));
    planner
}

pub(super) fn at(boot_ms: u64) -> Now {
    Now { boot_ms, wall_ms: 1_795_218_600_000 }
}

fn next(planner: &mut Planner, now: Now) -> Option<(SourceIndex, Ask)> {
    planner.next_batch(now, 1, token).map(|batch| match batch {
        Batch::One(index, ask) => (index, ask),
        Batch::Several(indexes, _) | Batch::Renew(indexes, _) => panic!("{indexes:?} in one batch"),
        Batch::Bank(index, ()) => panic!("{index} is no bank"),
    })
}

pub(super) fn lost() -> Result<Answer, Fault> {
    Err(Fault::new(FaultKind::Unknown, "lost"))
}

/// Found by `tests/simulation`, seed 1: a server that froze for two timeouts cost the process its worker id.
#[test]
fn two_lost_answers_in_a_row_leave_a_mark_that_may_stand_in_either_place() {
    let mut planner = planner_of("snowflake:f?worker=1");
    let mut boot = 0;
    let mut raise = |planner: &mut Planner, to: u64, answer: Result<Answer, Fault>| {
        boot += 60_000;
        planner.check(
            0,
            &View::Snowflake(SnowflakeView::Mark { wanted: Some(to), waiting: false }),
            at(boot),
        );
        let (index, ask) = next(planner, at(boot)).expect("a batch");
        (ask, planner.complete(index, answer, at(boot)))
    };
    raise(&mut planner, 0, Ok(Answer::Raised(0)));
    raise(&mut planner, 100, Ok(Answer::Raised(0)));
    raise(&mut planner, 200, lost()); // carried out
    let (ask, _) = raise(&mut planner, 300, lost()); // held back
    assert!(matches!(ask, Ask::Raise { expect: None, to: 300, .. }));
    let (_, actions) = raise(&mut planner, 250, Ok(Answer::Raised(200)));
    assert!(matches!(actions[..], [Action::Snowflake(SnowflakeAction::Mark(250))]), "{actions:?}");
    // Now the answer that was held back comes through.
    let (_, actions) = raise(&mut planner, 400, Ok(Answer::Raised(300)));
    assert!(matches!(actions[..], [Action::Snowflake(SnowflakeAction::Mark(400))]), "{actions:?}");
    let (ask, _) = raise(&mut planner, 500, Ok(Answer::Raised(400)));
    assert!(matches!(ask, Ask::Raise { expect: Some(400), .. }), "nothing is in doubt any more: {ask:?}");
}

#[test]
fn callers_who_wake_the_keeper_during_the_backoff_take_one_place_in_the_queue() {
    let mut planner = planner_of("segment:orders");
    let dry = View::Segments(Snapshot { wanted: 1, room: 8, ..Snapshot::default() });
    planner.check(0, &dry, at(0));
    let (index, _) = next(&mut planner, at(0)).expect("a batch");
    planner.complete(index, lost(), at(0));
    for _ in 0..1000 {
        planner.check(0, &dry, at(1));
        assert!(next(&mut planner, at(1)).is_none());
    }
    assert!(planner.urgent.len() + planner.background.len() <= 2, "{} places", planner.urgent.len());
}

/// A source that runs low at a thousand ids a second.
fn low(boot_ms: u64) -> View {
    View::Segments(Snapshot { left: 1, room: 8, issued: 1_000 + boot_ms, ..Snapshot::default() })
}

/// The times at which a store that is down is tried, where a caller waits or none does.
fn tries(waiting: bool, length_ms: u64) -> Vec<u64> {
    let mut planner = planner_of("segment:orders");
    let dry = View::Segments(Snapshot { wanted: 1, room: 8, ..Snapshot::default() });
    let mut tries = Vec::new();
    for boot_ms in (0..length_ms).step_by(10) {
        let low = low(boot_ms);
        planner.check(0, if waiting { &dry } else { &low }, at(boot_ms));
        if let Some((index, _)) = next(&mut planner, at(boot_ms)) {
            planner.complete(index, lost(), at(boot_ms));
            tries.push(boot_ms);
        }
    }
    tries
}

#[test]
fn an_outage_that_lasts_is_tried_less_often_and_for_waiting_callers_every_ten_seconds() {
    let rests = |waiting| {
        let tries = tries(waiting, 900_000);
        let rests = tries.windows(2).map(|two| (two[0], two[1] - two[0]));
        rests.collect::<Vec<_>>()
    };
    let longest = |rests: &[(u64, u64)], from: u64, to: u64| {
        let within = rests.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, rest)| *rest).max().expect("a try")
    };
    let (urgent, calm) = (rests(true), rests(false));
    for rests in [&urgent, &calm] {
        assert!(longest(rests, 0, 60_000) <= 5_000, "{rests:?}");
    }
    assert!((7_000..=10_000).contains(&longest(&urgent, 200_000, 900_000)), "{urgent:?}");
    assert!((20_000..=30_000).contains(&longest(&calm, 400_000, 900_000)), "{calm:?}");
    assert!(calm.iter().filter(|(at, _)| *at > 400_000).all(|(_, rest)| *rest >= 15_000), "{calm:?}");
    // Half of each backoff is random.
    assert!(calm.iter().map(|(_, rest)| rest).collect::<BTreeSet<_>>().len() > 10);
}

#[test]
fn a_caller_in_a_long_outage_is_tried_for_within_ten_seconds() {
    let mut planner = planner_of("segment:orders");
    let dry = View::Segments(Snapshot { wanted: 1, room: 8, ..Snapshot::default() });
    let (mut last, mut now) = (0, 0);
    while now < 600_000 {
        planner.check(0, &low(now), at(now));
        if let Some((index, _)) = next(&mut planner, at(now)) {
            planner.complete(index, lost(), at(now));
            last = now;
        }
        now += 10;
    }
    planner.check(0, &dry, at(now));
    let due = planner.wake_at(at(now)).expect("a time");
    assert!(
        due <= now.max(last + 10_000),
        "tried at {last}, a caller came at {now}, and the next try is at {due}"
    );
    assert!(next(&mut planner, at(due)).is_some());
}

#[test]
fn a_store_that_is_back_is_asked_for_everybody_at_once() {
    let mut planner = planner_of("segment:orders");
    let spec = MillConfig::parse("memory:").and_then(|config| config.spec("segment:other")).expect("a spec");
    planner.add(1, Arc::new(spec));
    let mut now = 0;
    while now < 600_000 {
        for index in 0..2 {
            planner.check(index, &low(now), at(now));
        }
        if let Some((index, _)) = next(&mut planner, at(now)) {
            planner.complete(index, lost(), at(now));
        }
        now += 10;
    }
    now = planner.wake_at(at(now)).expect("a time");
    let (index, _) = next(&mut planner, at(now)).expect("a try");
    let range = crate::request::reservation::Reserved { lo: 1, hi: 1001, period: 0, ttl_ms: None };
    planner.complete(index, Ok(Answer::Reserved(range)), at(now));
    let (other, _) = next(&mut planner, at(now)).expect("the other source's turn");
    assert_ne!(index, other);
    assert_eq!(planner.failures(), 0);
    // The next outage begins anew.
    planner.complete(other, lost(), at(now));
    assert!(planner.wake_at(at(now)).is_some_and(|at| at <= now + 50));
}

#[test]
fn the_end_of_a_period_that_was_reserved_ahead_is_set_when_it_begins() {
    let mut planner = planner_of("serial:a/b?zone=UTC");
    let spec = MillConfig::parse("memory:").and_then(|c| c.spec("serial:a/b?zone=UTC")).expect("a spec");
    let pattern = spec.pattern().expect("a pattern");
    let today = pattern.period_at(at(0).wall_ms);
    let end = pattern.period_end_ms(today).expect("an end");
    let at = |boot_ms: u64, wall_ms: i64| Now { boot_ms, wall_ms };
    let snapshot = |left, issued, wanted| {
        View::Segments(Snapshot { left, issued, wanted, room: 8, ..Snapshot::default() })
    };
    planner.check(0, &snapshot(0, 0, 1), at(0, end - 5_000));
    next(&mut planner, at(0, end - 5_000)).expect("a request for today");
    let range = crate::request::reservation::Reserved { lo: 1, hi: 1001, period: today, ttl_ms: None };
    planner.complete(0, Ok(Answer::Reserved(range)), at(0, end - 5_000));
    planner.check(0, &snapshot(900_000, 2, 0), at(3_000, end - 2_000));
    planner.check(0, &snapshot(900_000, 300, 0), at(4_500, end - 500));
    let (_, ask) = next(&mut planner, at(4_500, end - 500)).expect("a request ahead");
    let Ask::Reserve(ask) = ask else { panic!("{ask:?}") };
    let tomorrow = pattern.period_at(end);
    assert_eq!(ask.period, tomorrow);
    let range = crate::request::reservation::Reserved { period: tomorrow, ..range };
    let kept = planner.complete(0, Ok(Answer::Reserved(range)), at(4_600, end - 400));
    assert!(matches!(kept.as_slice(), [Action::Segment(SegmentAction::KeepAhead(_))]), "{kept:?}");
    let begun = planner.check(0, &snapshot(900_000, 300, 0), at(5_000, end));
    let ends = pattern.period_end_ms(tomorrow);
    assert!(
        begun.iter().any(|action| matches!(action, Action::Segment(SegmentAction::Ends { wall_ms, .. }) if *wall_ms == ends)),
        "{begun:?}"
    );
}

#[test]
fn an_answer_causes_no_check_of_other_dated_sources() {
    let mut planner = planner_of("serial:a/b?zone=UTC");
    let spec = MillConfig::parse("memory:").and_then(|c| c.spec("serial:c/d?zone=UTC")).expect("a spec");
    let pattern = spec.pattern().expect("a pattern");
    let today = pattern.period_at(at(0).wall_ms);
    let end = pattern.period_end_ms(today).expect("an end");
    planner.add(1, Arc::new(spec.clone()));
    let land = |planner: &mut Planner, index: SourceIndex, lo: u64, now: Now| {
        planner.check(index, &View::Segments(Snapshot { wanted: 1, room: 8, ..Snapshot::default() }), now);
        next(planner, now).expect("a request");
        let range = crate::request::reservation::Reserved { lo, hi: lo + 1000, period: today, ttl_ms: None };
        planner.complete(index, Ok(Answer::Reserved(range)), now);
    };
    let now = |boot_ms: u64, before_end_ms: i64| Now { boot_ms, wall_ms: end - before_end_ms };
    land(&mut planner, 0, 1, now(10_000, 60_000));
    planner.due(now(10_000, 60_000));
    assert_eq!(planner.next_period_check_ms, 11_000);
    land(&mut planner, 1, 1, now(10_100, 59_900));
    assert_eq!(planner.next_period_check_ms, 11_000, "the second one is checked with the first");
    // But where its own moment is nearer than the next check, that counts.
    planner.due(now(11_000, 2_950));
    assert_eq!(planner.next_period_check_ms, 11_950);
    land(&mut planner, 0, 1001, now(11_900, 700));
    assert_eq!(planner.next_period_check_ms, 11_950);
    planner.due(now(11_950, 650));
    assert_eq!(planner.next_period_check_ms, 12_600, "at the end");
}
