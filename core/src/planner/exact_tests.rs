//! What the planner decides, to the number and to the millisecond.

use std::time::Duration;

use super::tests::{at, lost, planner_of};
use super::*;
use crate::config::MillConfig;
use crate::error::Code;
use crate::process::random::token;
use crate::request::reservation::{Fault, FaultKind, MAX_NUMBER, Reserved};

const NOON: i64 = 1_795_218_600_000;
const ROOM: usize = 8;

fn spec(text: &str) -> Arc<Spec> {
    Arc::new(MillConfig::parse("memory:").and_then(|config| config.spec(text)).expect("a spec"))
}

fn snapshot(left: u64, issued: u64, wanted: u64) -> Snapshot {
    Snapshot { left, issued, wanted, room: ROOM, born_ms: None }
}

fn check(planner: &mut Planner, snapshot: Snapshot, now: Now) -> Vec<Action> {
    planner.check(0, &View::Segments(snapshot), now)
}

/// The request that goes to the store now, if any.
fn request(planner: &mut Planner, now: Now) -> Option<Request> {
    match planner.next_batch(now, 1, token)? {
        Batch::One(0, Ask::Reserve(request)) => Some(request),
        other => panic!("{other:?}"),
    }
}

/// A caller waits for one number, and the store reserves this range.
fn reserve(planner: &mut Planner, range: Reserved, now: Now) -> Vec<Action> {
    check(planner, snapshot(0, 0, 1), now);
    request(planner, now).expect("a request");
    planner.complete(0, Ok(Answer::Reserved(range)), now)
}

fn range(lo: u64, hi: u64, period: u64) -> Reserved {
    Reserved { lo, hi, period, ttl_ms: None }
}

fn fails_with(actions: &[Action]) -> &Error {
    match actions {
        [Action::Fail(error)] => error,
        other => panic!("{other:?}"),
    }
}

fn wakes_below(actions: &[Action]) -> Option<u64> {
    actions.iter().find_map(|action| match action {
        Action::Segment(SegmentAction::WakeBelow(left)) => Some(*left),
        _ => None,
    })
}

/// A planner of one source that issued so many numbers in the second before this time.
fn at_rate(spec: &str, issued: u64) -> (Planner, Now) {
    let mut planner = planner_of(spec);
    for quarter in 0..=4 {
        let snapshot = snapshot(1_000_000_000, issued * quarter / 4, 0);
        check(&mut planner, snapshot, at(10_000 + 250 * quarter));
    }
    (planner, at(11_000))
}

mod buffers {
    use super::*;

    #[test]
    fn a_queue_without_room_is_not_refilled() {
        let mut planner = planner_of("segment:orders?min_step=1000");
        check(&mut planner, Snapshot { room: 0, ..snapshot(0, 0, 1) }, at(0));
        assert!(request(&mut planner, at(0)).is_none());
        check(&mut planner, Snapshot { room: 1, ..snapshot(0, 0, 1) }, at(0));
        assert_eq!(request(&mut planner, at(0)).map(|request| request.len), Some(1000));
    }

    #[test]
    fn the_keeper_is_woken_at_the_low_water_mark_or_when_half_is_gone_whichever_comes_first() {
        let (mut planner, now) = at_rate("segment:orders", 1_000);
        assert_eq!(planner.rate_per_1000s(0, now), 1_000_000);
        for (left, below) in [
            (40_000, Some(31_000)),
            (70_000, Some(35_000)),
            (31_001, Some(31_000)),
            (31_000, Some(30_999)),
            (2, Some(1)),
            (1, None),
            (0, None),
        ] {
            let actions = check(&mut planner, snapshot(left, 1_000, 0), now);
            assert_eq!(wakes_below(&actions), below, "{left} left");
            planner.next_batch(now, 1, token);
            planner.complete(0, lost(), now);
        }
        // Without a rate, when half is gone.
        let mut idle = planner_of("segment:orders");
        assert_eq!(wakes_below(&check(&mut idle, snapshot(999, 1, 0), at(0))), Some(499));
    }

    #[test]
    fn numbers_are_dropped_as_soon_as_they_have_outlived_their_time() {
        let mut planner = planner_of("segment:orders?ttl=500ms");
        let aged = Snapshot { born_ms: Some(10_000), ..snapshot(100, 1, 0) };
        let actions = check(&mut planner, aged, at(10_499));
        assert!(
            !actions.iter().any(|action| matches!(action, Action::Segment(SegmentAction::DropOlder(_)))),
            "{actions:?}"
        );
        assert_eq!(planner.wake_at(at(10_499)), Some(10_500));
        assert!(planner.due(at(10_499)).is_empty());
        assert_eq!(planner.due(at(10_500)), [0]);
        let actions = check(&mut planner, aged, at(10_500));
        assert!(matches!(actions[..], [Action::Segment(SegmentAction::DropOlder(10_000))]), "{actions:?}");
        assert_eq!(planner.due(at(10_500)), [0], "what stays is looked at at once");
        let actions = check(&mut planner, aged, at(10_750));
        assert!(matches!(actions[..], [Action::Segment(SegmentAction::DropOlder(10_250))]), "{actions:?}");
    }

    #[test]
    fn the_shorter_time_to_live_counts_the_sources_or_its_rows() {
        for (spec, of_row, lives_ms) in [
            ("segment:orders?ttl=500ms", Some(300), 300),
            ("segment:orders?ttl=500ms", Some(700), 500),
            ("segment:orders?scheme=sequence_table", Some(300), 300),
        ] {
            let mut planner = planner_of(spec);
            reserve(&mut planner, Reserved { ttl_ms: of_row, ..range(1, 1001, 0) }, at(0));
            check(&mut planner, Snapshot { born_ms: Some(0), ..snapshot(999, 1, 0) }, at(1));
            assert_eq!(planner.wake_at(at(1)), Some(lives_ms), "{spec}");
        }
    }

    #[test]
    fn a_request_says_all_that_a_store_decides_by() {
        let mut planner = planner_of("segment:orders?start=5&backwards=heal&max_step=2000");
        reserve(&mut planner, range(5, 1005, 0), at(0));
        check(&mut planner, snapshot(0, 1000, 1), at(1));
        let asked = request(&mut planner, at(1)).expect("a request");
        assert_eq!(asked.high_water, Mark { period: 0, next: 1005 });
        assert_eq!((asked.start, asked.last, asked.period, asked.period_max), (5, MAX_NUMBER, 0, 0));
        assert_eq!((asked.heal, asked.max_jump), (true, 2_000_000));
        assert_eq!(planner.seen(0), Mark { period: 0, next: 1005 });
    }

    #[test]
    fn a_give_back_is_one_range_that_ends_where_the_last_reservation_ended() {
        let mut planner = planner_of("segment:orders");
        reserve(&mut planner, range(1, 1001, 0), at(0));
        let back = |rest: &[(u64, u64, u64)]| planner.give_back(0, rest);
        assert_eq!(back(&[]), None);
        assert_eq!(back(&[(0, 400, 1001)]), Some((0, 400, 1001)));
        assert_eq!(back(&[(0, 400, 1000)]), None, "it does not end there");
        assert_eq!(back(&[(1, 400, 1001)]), None, "another period");
        assert_eq!(back(&[(0, 1, 100), (0, 100, 400), (0, 400, 1001)]), Some((0, 1, 1001)));
        assert_eq!(back(&[(0, 1, 399), (0, 400, 1001)]), Some((0, 400, 1001)), "a gap");
        assert_eq!(back(&[(7, 1, 400), (0, 400, 1001)]), Some((0, 400, 1001)), "of another period");
        assert_eq!(planner.give_back(1, &[(0, 400, 1001)]), None, "no source");
    }

    #[test]
    fn nothing_is_given_back_after_the_row_went_backwards() {
        let mut planner = planner_of("segment:orders");
        reserve(&mut planner, range(1, 1001, 0), at(0));
        check(&mut planner, snapshot(0, 1000, 1), at(1));
        request(&mut planner, at(1)).expect("a request");
        planner.complete(0, Err(Fault::new(FaultKind::WentBackwards, "its row is gone")), at(1));
        assert_eq!(planner.give_back(0, &[(0, 400, 1001)]), None);
        let successor = planner.successor(2);
        assert_eq!(successor.give_back(0, &[(0, 400, 1001)]), None, "nor after a defect");
    }

    #[test]
    fn a_planner_is_shown_by_its_figures() {
        let planner = planner_of("segment:orders");
        assert_eq!(format!("{planner:?}"), "Planner { sources: 1, failures: 0, .. }");
    }
}

mod outages {
    use super::*;

    #[test]
    fn a_check_is_postponed_until_the_store_may_be_asked_again() {
        let mut planner = planner_of("segment:orders");
        (planner.store_urgent_at_ms, planner.store_retry_at_ms) = (1_000, 10_000);
        assert!(!planner.postpone(0, false, at(500)), "it wants nothing yet");
        check(&mut planner, snapshot(0, 0, 1), at(500));
        for (now, waited_for, until) in [
            (500, true, Some(1_000)),
            (999, false, Some(1_000)),
            (1_000, true, None),
            (1_000, false, Some(2_000)),
            (9_500, false, Some(10_000)),
            (10_000, false, None),
        ] {
            planner.timers.clear();
            planner.plans[0].as_mut().expect("a plan").timer_ms = None;
            assert_eq!(planner.postpone(0, waited_for, at(now)), until.is_some(), "at {now}");
            assert_eq!(planner.timers.first().map(|timer| timer.0), until, "at {now}");
        }
        planner.plans[0].as_mut().expect("a plan").retry_at_ms = 20_000;
        assert!(planner.postpone(0, true, at(19_999)), "the source's own refusal rests");
        assert!(!planner.postpone(0, true, at(20_000)));
        assert!(!planner.postpone(1, true, at(0)), "no source");
    }

    #[test]
    fn a_timer_that_is_due_before_stays() {
        let mut planner = planner_of("segment:orders");
        planner.set_timer_by(0, 500);
        planner.set_timer_by(0, 600);
        assert_eq!(planner.wake_at(at(0)), Some(500));
        planner.set_timer_by(0, 400);
        assert_eq!(planner.wake_at(at(0)), Some(400));
        assert_eq!(planner.timers.len(), 1);
        planner.set_timer(0, 900);
        assert_eq!(planner.wake_at(at(0)), Some(900));
    }

    #[test]
    fn a_failed_store_is_backed_off_from_and_callers_get_the_delay() {
        let mut planner = planner_of("segment:orders");
        check(&mut planner, snapshot(0, 0, 1), at(1_000));
        request(&mut planner, at(1_000)).expect("a request");
        let actions = planner.complete(0, lost(), at(1_000));
        let error = fails_with(&actions);
        assert_eq!(error.code, Code::StoreUnavailable);
        let rest = error.retry_after.expect("a hint").as_millis() as u64;
        assert!((25..=50).contains(&rest), "{rest}");
        assert_eq!(planner.failures(), 1);
        assert!(planner.store_retry_at_ms >= planner.store_urgent_at_ms);
        assert_eq!(planner.wake_at(at(1_000)), Some(1_000 + rest), "a caller waits");
        assert!(request(&mut planner, at(1_000 + rest - 1)).is_none());
        assert!(request(&mut planner, at(1_000 + rest)).is_some());
    }

    #[test]
    fn the_backoff_doubles_with_each_failure_and_half_of_it_is_random() {
        let mut planner = planner_of("segment:orders");
        for (failures, longest, whole) in
            [(0, 5_000, 50), (1, 5_000, 50), (2, 5_000, 100), (3, 5_000, 200), (40, 60, 60), (1, 9, 9)]
        {
            let rests: BTreeSet<u64> = (0..5_000).map(|_| planner.backoff(failures, longest)).collect();
            assert_eq!(rests, (whole / 2..=whole / 2 + whole / 2).collect(), "after {failures} failures");
        }
        assert!((2_500..=5_000).contains(&planner.backoff(9, 5_000)));
        // 50 ms doubled sixteen times, and no further.
        assert!((1_638_400..=3_276_800).contains(&planner.backoff(u32::MAX, u64::MAX)));
    }

    #[test]
    fn every_kind_of_fault_has_its_code_and_only_an_outage_backs_off_from_the_store() {
        for (kind, code) in [
            (FaultKind::Unavailable, Code::StoreUnavailable),
            (FaultKind::Unknown, Code::StoreUnavailable),
            (FaultKind::Locked, Code::StoreUnavailable),
            (FaultKind::Refused, Code::StoreRefused),
            (FaultKind::Closed, Code::StoreRefused),
            (FaultKind::WentBackwards, Code::StoreWentBackwards),
            (FaultKind::Unsafe, Code::StoreUnsafe),
            (FaultKind::Exhausted, Code::Exhausted),
            (FaultKind::ClockBehind, Code::ClockBehind),
            (FaultKind::Taken, Code::LeaseLost),
        ] {
            let mut planner = planner_of("segment:orders");
            check(&mut planner, snapshot(0, 0, 1), at(1_000));
            request(&mut planner, at(1_000)).expect("a request");
            let actions = planner.complete(0, Err(Fault::new(kind, "no")), at(1_000));
            assert_eq!(fails_with(&actions).code, code, "{kind:?}");
            let rest = fails_with(&actions).retry_after.expect("a hint").as_millis() as u64;
            let plan = planner.plans[0].as_ref().expect("a plan");
            if kind.is_outage() {
                assert_eq!((planner.failures(), plan.failures, plan.retry_at_ms), (1, 0, 0), "{kind:?}");
                assert!(plan.wanted.is_some(), "{kind:?}: it is tried again");
            } else {
                assert_eq!((planner.failures(), plan.failures), (0, 1), "{kind:?}");
                assert_eq!(plan.retry_at_ms, 1_000 + rest, "{kind:?}");
                assert!(plan.wanted.is_none(), "{kind:?}: the next caller asks again");
            }
        }
    }

    #[test]
    fn the_outage_of_one_of_several_stores_backs_off_from_none_of_the_others() {
        for kind in [FaultKind::Unavailable, FaultKind::Unknown] {
            let mut planner = planner_of("segment:orders");
            check(&mut planner, snapshot(0, 0, 1), at(1_000));
            request(&mut planner, at(1_000)).expect("a request");
            let fault = Fault::new(kind, "store 2 of 2: no").of_one_store();
            let actions = planner.complete(0, Err(fault), at(1_000));
            assert_eq!(fails_with(&actions).code, Code::StoreUnavailable);
            let plan = planner.plans[0].as_ref().expect("a plan");
            assert_eq!((planner.failures(), plan.failures), (0, 1), "{kind:?}: only this source waits");
            assert_eq!((planner.store_retry_at_ms, planner.store_urgent_at_ms), (0, 0));
        }
    }

    fn unreached() -> Fault {
        Fault::new(FaultKind::Unavailable, "nothing listens").of_unreached_server()
    }

    #[test]
    fn a_refused_connection_is_told_at_once_after_300_ms_to_a_source_that_never_had_a_number() {
        let told_at_once = |planner: &mut Planner, answer: Result<Answer, Fault>, ms: u64| {
            check(planner, snapshot(0, 0, 1), at(ms));
            request(planner, at(ms)).expect("a request");
            fails_with(&planner.complete(0, answer, at(ms))).is_told_at_once
        };
        let mut planner = planner_of("segment:orders");
        for ms in [1_000, 1_060, 1_299] {
            assert!(!told_at_once(&mut planner, Err(unreached()), ms), "{ms}: the server may be restarting");
        }
        assert!(told_at_once(&mut planner, Err(unreached()), 1_500));
        assert!(!told_at_once(&mut planner, lost(), 9_000), "another failure of the store is waited for");
        assert!(told_at_once(&mut planner, Err(unreached()), 19_000));
        let mut planner = planner_of("segment:orders");
        reserve(&mut planner, range(1, 1001, 0), at(0));
        for ms in [1_000, 2_000, 9_000] {
            assert!(
                !told_at_once(&mut planner, Err(unreached()), ms),
                "its callers wait for the server to come back"
            );
        }
    }

    #[test]
    fn callers_of_a_source_that_may_not_be_asked_for_are_told_once_a_try_why_the_store_failed_for_others() {
        for (fault, at_once) in [(unreached(), true), (Fault::new(FaultKind::Unavailable, "silent"), false)] {
            let mut planner = planner_of("segment:orders");
            planner.add(1, spec("segment:later"));
            let others =
                |planner: &mut Planner, ms| planner.check(1, &View::Segments(snapshot(0, 0, 1)), at(ms));
            for ms in [1_000, 1_500] {
                check(&mut planner, snapshot(0, 0, 1), at(ms));
                request(&mut planner, at(ms)).expect("a request");
                planner.complete(0, Err(fault.clone().with_context("reserving 7 for `orders`")), at(ms));
            }
            let next_try = planner.store_urgent_at_ms;
            assert!(next_try > 1_501, "{next_try}");
            let actions = others(&mut planner, 1_501);
            let [Action::Tell(error)] = &actions[..] else { panic!("{actions:?}") };
            assert_eq!((error.code, error.is_told_at_once), (Code::StoreUnavailable, at_once));
            assert!(!error.message.contains("orders"), "{}", error.message);
            assert_eq!(error.retry_after, Some(Duration::from_millis(next_try - 1_501)));
            assert!(others(&mut planner, 1_502).is_empty(), "they know");
            // The first source's request fails again, and the other one is checked at once.
            check(&mut planner, snapshot(0, 0, 1), at(next_try));
            request(&mut planner, at(next_try)).expect("a request");
            planner.complete(0, Err(fault.clone()), at(next_try));
            assert_eq!(planner.due(at(next_try)), [1]);
            assert!(matches!(others(&mut planner, next_try)[..], [Action::Tell(_)]));
        }
    }

    #[test]
    fn a_source_that_was_refused_backs_off_alone_and_to_the_millisecond() {
        let mut planner = planner_of("segment:orders");
        check(&mut planner, snapshot(0, 0, 1), at(1_000));
        request(&mut planner, at(1_000)).expect("a request");
        planner.complete(0, Err(Fault::new(FaultKind::Refused, "no")), at(1_000));
        let retry_at = planner.plans[0].as_ref().expect("a plan").retry_at_ms;
        check(&mut planner, snapshot(0, 0, 1), at(1_001));
        assert_eq!(planner.wake_at(at(1_001)), Some(retry_at));
        assert!(request(&mut planner, at(retry_at - 1)).is_none());
        assert_eq!(planner.wake_at(at(retry_at - 1)), Some(retry_at), "it has kept its place");
        assert!(request(&mut planner, at(retry_at)).is_some());
        // A success forgets the failures.
        planner.complete(0, Ok(Answer::Reserved(range(1, 1001, 0))), at(retry_at));
        let plan = planner.plans[0].as_ref().expect("a plan");
        assert_eq!((plan.failures, plan.retry_at_ms), (0, 0));
    }

    #[test]
    fn a_planner_after_a_defect_knows_every_row_and_has_nothing_under_way() {
        let mut planner = planner_of("segment:orders?scheme=sequence_table");
        planner.add(1, spec("snowflake:f?worker=1"));
        planner.add(3, spec("serial:a/b?zone=UTC"));
        reserve(&mut planner, Reserved { ttl_ms: Some(9_000), ..range(1, 1001, 0) }, at(0));
        let mark = |to| View::Snowflake(SnowflakeView::Mark { wanted: Some(to), waiting: true });
        for (to, before) in [(0, 7), (50, 7)] {
            planner.check(1, &mark(to), at(0));
            planner.next_batch(at(0), 1, token).expect("a batch");
            planner.complete(1, Ok(Answer::Raised(before)), at(0));
        }
        planner.check(1, &mark(90), at(0));
        planner.next_batch(at(0), 1, token).expect("a batch under way");
        let serials = planner.plans[3].as_mut().expect("a plan");
        (serials.period, serials.period_end_ms, serials.ahead) = (20, Some(NOON + 5_000), Some(21));
        planner.failures = 3;
        let mut next = planner.successor(2);
        assert_eq!(next.seen(0), Mark { period: 0, next: 1001 });
        let plan = |planner: &Planner, index: SourceIndex| {
            let plan = planner.plans[index].as_ref().expect("a plan");
            (plan.row_ttl_ms, plan.mark, plan.doubts.clone(), plan.period, plan.period_end_ms, plan.ahead)
        };
        assert_eq!(plan(&next, 0), (Some(9_000), None, vec![], 0, None, None));
        // Whether the mark was raised to 90 is not known.
        assert_eq!(plan(&next, 1), (None, Some(50), vec![90], 0, None, None));
        assert!(next.plans[2].is_none());
        assert_eq!(plan(&next, 3), (None, None, vec![], 20, Some(NOON + 5_000), Some(21)));
        assert_eq!(next.dated, BTreeSet::from([(NOON + 5_000, 3)]));
        assert_eq!(next.failures(), 0);
        assert!(next.timers.is_empty() && next.next_batch(at(0), 9, token).is_none());
        // A source that the defect kept out is taken in; a known source stays what it is.
        next.add_if_missing(2, &spec("segment:late"));
        next.add_if_missing(0, &spec("segment:orders"));
        assert!(next.plans[2].is_some());
        assert_eq!(next.seen(0), Mark { period: 0, next: 1001 });
    }
}

mod marks {
    use super::*;

    fn raise(planner: &mut Planner, to: u64, answer: Result<Answer, Fault>, now: Now) -> Vec<Action> {
        planner.check(0, &View::Snowflake(SnowflakeView::Mark { wanted: Some(to), waiting: false }), now);
        planner.next_batch(now, 1, token).expect("a batch");
        planner.complete(0, answer, now)
    }

    #[test]
    fn a_snowflake_that_wants_its_mark_raised_is_checked_three_times_in_its_lead() {
        for (spec, again_ms) in [("snowflake:f?worker=1", 1_000), ("snowflake:f?worker=1&max_lead=1ms", 1)] {
            let mut planner = planner_of(spec);
            raise(&mut planner, 10, Ok(Answer::Raised(0)), at(500));
            assert_eq!(planner.wake_at(at(500)), Some(500 + again_ms), "{spec}");
            planner.due(at(100_000));
            planner.check(
                0,
                &View::Snowflake(SnowflakeView::Mark { wanted: None, waiting: false }),
                at(100_000),
            );
            assert_eq!(planner.wake_at(at(100_000)), None, "an idle one costs nothing");
        }
    }

    #[test]
    fn a_close_raises_or_lowers_a_mark_or_leaves_it() {
        let mut planner = planner_of("snowflake:f?worker=1");
        assert_eq!(planner.last_mark(0, 5), None, "nothing is known of the row");
        raise(&mut planner, 0, Ok(Answer::Raised(0)), at(0));
        raise(&mut planner, 100, Ok(Answer::Raised(0)), at(1_000));
        assert_eq!(planner.last_mark(0, 101), Some(LastMark::Raise { expect: Some(100) }));
        assert_eq!(planner.last_mark(0, 100), None);
        assert_eq!(planner.last_mark(0, 99), Some(LastMark::Lower { from: 100 }));
        raise(&mut planner, 200, lost(), at(100_000));
        assert_eq!(planner.last_mark(0, 101), Some(LastMark::Raise { expect: None }), "it may stand at 200");
    }

    #[test]
    fn an_answer_is_lost_of_a_mark_that_is_known_only() {
        let mut planner = planner_of("snowflake:f?worker=1");
        raise(&mut planner, 0, lost(), at(0));
        assert!(planner.plans[0].as_ref().expect("a plan").doubts.is_empty(), "no mark is known yet");
        let actions = raise(&mut planner, 0, Ok(Answer::Raised(40)), at(100_000));
        assert!(matches!(actions[..], [Action::Snowflake(SnowflakeAction::Start(40))]), "{actions:?}");
        let refused = Err(Fault::new(FaultKind::Refused, "no"));
        raise(&mut planner, 50, refused, at(200_000));
        assert!(planner.plans[0].as_ref().expect("a plan").doubts.is_empty(), "nothing was changed");
        raise(&mut planner, 50, lost(), at(300_000));
        raise(&mut planner, 50, lost(), at(400_000));
        assert_eq!(planner.plans[0].as_ref().expect("a plan").doubts, [50]);
    }

    #[test]
    fn a_mark_that_stands_elsewhere_is_another_processs() {
        for (doubts, before, code) in [
            (vec![], 40, None),
            (vec![], 41, Some(Code::LeaseLost)),
            (vec![45], 45, None),
            (vec![45], 46, Some(Code::LeaseLost)),
        ] {
            let mut planner = planner_of("snowflake:f?worker=1");
            raise(&mut planner, 0, Ok(Answer::Raised(40)), at(0));
            planner.plans[0].as_mut().expect("a plan").doubts = doubts;
            let actions = raise(&mut planner, 60, Ok(Answer::Raised(before)), at(100_000));
            match code {
                Some(code) => assert_eq!(fails_with(&actions).code, code),
                None => assert!(
                    matches!(actions[..], [Action::Snowflake(SnowflakeAction::Mark(60))]),
                    "{actions:?}"
                ),
            }
        }
    }

    #[test]
    fn a_doubt_ends_when_the_mark_stands_as_high() {
        let mut planner = planner_of("snowflake:f?worker=1");
        raise(&mut planner, 0, Ok(Answer::Raised(40)), at(0));
        planner.plans[0].as_mut().expect("a plan").doubts = vec![59, 60, 61];
        raise(&mut planner, 60, Ok(Answer::Raised(40)), at(100_000));
        assert_eq!(planner.plans[0].as_ref().expect("a plan").doubts, [61]);
    }
}

mod ranges {
    use super::*;

    #[test]
    fn a_range_is_used_from_where_the_last_one_ended_and_never_an_empty_one() {
        for (lo, hi, used) in
            [(1001, 2001, true), (5000, 5001, true), (1000, 2000, false), (1001, 1001, false)]
        {
            let mut planner = planner_of("segment:orders");
            reserve(&mut planner, range(1, 1001, 0), at(0));
            check(&mut planner, snapshot(0, 1000, 1), at(10_000));
            request(&mut planner, at(10_000)).expect("a request");
            let actions = planner.complete(0, Ok(Answer::Reserved(range(lo, hi, 0))), at(10_000));
            if used {
                let [Action::Segment(SegmentAction::Publish(segment))] = &actions[..] else {
                    panic!("{actions:?}")
                };
                assert_eq!((segment.lo, segment.hi, segment.born_ms), (lo, hi, 10_000));
                assert_eq!(planner.seen(0).next, hi);
            } else {
                assert_eq!(fails_with(&actions).code, Code::StoreWentBackwards, "{lo}..{hi}");
                assert_eq!(planner.seen(0).next, 1001);
            }
        }
    }

    #[test]
    fn numbers_that_can_end_by_themselves_are_published_with_their_end() {
        let mut planner = planner_of("segment:orders?ttl=500ms");
        let actions = reserve(&mut planner, range(1, 1001, 0), at(0));
        assert!(
            matches!(
                actions[..],
                [
                    Action::Segment(SegmentAction::Ends { wall_ms: None, ttl_ms: Some(500) }),
                    Action::Segment(SegmentAction::Publish(_))
                ]
            ),
            "{actions:?}"
        );
        let actions = reserve(&mut planner_of("segment:orders"), range(1, 1001, 0), at(0));
        assert!(matches!(actions[..], [Action::Segment(SegmentAction::Publish(_))]), "{actions:?}");
    }
}

mod periods {
    use super::super::period::until_check;
    use super::*;
    use crate::serial::SerialPattern;

    const DAYS: &str = "serial:a/b?zone=UTC";

    /// The pattern, today and the end of it.
    fn today(spec: &Spec) -> (SerialPattern, u64, i64) {
        let pattern = spec.pattern().expect("a pattern").clone();
        let today = pattern.period_at(NOON);
        let end = pattern.period_end_ms(today).expect("an end");
        (pattern, today, end)
    }

    /// A source of serials that was given its first thousand of today 60 s before today's end, and issues a thousand a second.
    struct Days {
        planner: Planner,
        today: u64,
        tomorrow: u64,
        end: i64,
    }

    impl Days {
        fn of(text: &str) -> Days {
            let mut planner = planner_of(text);
            let (pattern, today, end) = today(&spec(text));
            reserve(&mut planner, range(1, 1001, today), Now { boot_ms: 940_000, wall_ms: end - 60_000 });
            let mut days = Days { planner, today, tomorrow: pattern.period_at(end), end };
            for (before_ms, issued) in [(60_000, 0), (59_000, 1_000)] {
                let now = days.now(before_ms);
                check(&mut days.planner, snapshot(900_000, issued, 0), now);
            }
            days
        }

        /// So long before the end of today, on both clocks.
        fn now(&self, before_ms: i64) -> Now {
            Now { boot_ms: (1_000_000 - before_ms) as u64, wall_ms: self.end - before_ms }
        }

        /// The period for which a calm look so long before the end has the store asked.
        fn asks_for(&mut self, before_ms: i64) -> Option<u64> {
            let now = self.now(before_ms);
            // A steady rate: a thousand a second.
            let issued = (60_000 - before_ms) as u64;
            check(&mut self.planner, snapshot(900_000, issued, 0), now);
            request(&mut self.planner, now).map(|request| request.period)
        }
    }

    #[test]
    fn the_next_period_is_reserved_two_seconds_ahead_or_half_the_skew() {
        for (text, ahead_ms) in
            [(DAYS, 2_000), ("serial:a/b?zone=UTC&skew=3s", 1_500), ("serial:a/b?zone=UTC&skew=10s", 2_000)]
        {
            assert_eq!(Days::of(text).asks_for(ahead_ms + 1), None, "{text}");
            let mut days = Days::of(text);
            assert_eq!(days.asks_for(ahead_ms), Some(days.tomorrow), "{text}");
            let mut days = Days::of(text);
            assert_eq!(days.asks_for(1), Some(days.tomorrow), "{text}");
        }
    }

    #[test]
    fn the_next_period_is_reserved_for_a_source_in_use_of_keymills_own_scheme_only() {
        // Idle: no rate.
        let mut planner = planner_of(DAYS);
        let (_, today, end) = today(&spec(DAYS));
        reserve(&mut planner, range(1, 1001, today), Now { boot_ms: 0, wall_ms: end - 60_000 });
        let now = Now { boot_ms: 59_000, wall_ms: end - 1_000 };
        check(&mut planner, snapshot(999, 1, 0), now);
        assert!(request(&mut planner, now).is_none());
        assert_eq!(Days::of("serial:a/b?zone=UTC&scheme=key_producer").asks_for(1_000), None);
        // Periods of a second are too short, periods of a minute are not.
        let short = "serial:a/b?zone=UTC&date=yyyyMMddHHmmss";
        let mut planner = planner_of(short);
        let (_, second, end) = self::today(&spec(short));
        reserve(&mut planner, range(1, 100_001, second), Now { boot_ms: 0, wall_ms: end - 999 });
        for (boot_ms, issued) in [(0, 0), (900, 50_000)] {
            let now = Now { boot_ms, wall_ms: end - 999 + boot_ms as i64 };
            check(&mut planner, snapshot(90_000_000, issued, 0), now);
            assert!(request(&mut planner, now).is_none());
        }
        let minutes = "serial:a/b?zone=UTC&date=yyyyMMddHHmm";
        let mut days = Days::of(minutes);
        assert_eq!(days.asks_for(1_000), Some(days.tomorrow));
    }

    #[test]
    fn once_the_next_period_is_reserved_only_a_caller_who_lacks_a_number_has_today_refilled() {
        let mut days = Days::of(DAYS);
        assert_eq!(days.asks_for(1_500), Some(days.tomorrow));
        let now = days.now(1_400);
        let kept = days.planner.complete(0, Ok(Answer::Reserved(range(1, 1001, days.tomorrow))), now);
        let [Action::Segment(SegmentAction::KeepAhead(segment))] = &kept[..] else { panic!("{kept:?}") };
        assert_eq!((segment.lo, segment.hi, segment.period), (1, 1001, days.tomorrow));
        let now = days.now(1_300);
        check(&mut days.planner, snapshot(3, 58_700, 0), now);
        assert!(request(&mut days.planner, now).is_none(), "three are left, and no caller lacks one");
        check(&mut days.planner, snapshot(3, 58_700, 3), now);
        assert!(request(&mut days.planner, now).is_none(), "three are left for three callers");
        check(&mut days.planner, snapshot(3, 58_700, 4), now);
        let asked = request(&mut days.planner, now).expect("a request");
        assert_eq!((asked.period, asked.period_max), (days.today, days.tomorrow));
    }

    #[test]
    fn a_row_may_stand_as_far_ahead_as_the_skew_allows() {
        for (before_ms, ahead) in [(5_001, false), (5_000, true)] {
            let mut planner = planner_of(DAYS);
            let (pattern, today, end) = today(&spec(DAYS));
            let now = Now { boot_ms: 0, wall_ms: end - before_ms };
            check(&mut planner, snapshot(0, 0, 1), now);
            let asked = request(&mut planner, now).expect("a request");
            assert_eq!(asked.period, today);
            assert_eq!(asked.period_max, if ahead { pattern.period_at(end) } else { today }, "{before_ms}");
        }
    }

    #[test]
    fn a_range_of_a_later_period_than_asked_for_begins_that_period() {
        let mut planner = planner_of(DAYS);
        let (pattern, today, end) = today(&spec(DAYS));
        let now = Now { boot_ms: 0, wall_ms: end - 3_000 };
        let actions = reserve(&mut planner, range(1, 1001, today), now);
        assert!(
            matches!(actions[..], [Action::Segment(SegmentAction::DropOtherPeriods(period)), Action::Segment(SegmentAction::Ends { wall_ms: Some(ends), .. }), Action::Segment(SegmentAction::Publish(_))]
                if period == today && ends == end),
            "{actions:?}"
        );
        assert_eq!(planner.dated, BTreeSet::from([(end, 0)]));
        // A second range of the same period drops nothing.
        let actions = reserve(&mut planner, range(1001, 2001, today), now);
        assert!(
            matches!(
                actions[..],
                [Action::Segment(SegmentAction::Ends { .. }), Action::Segment(SegmentAction::Publish(_))]
            ),
            "{actions:?}"
        );
        // The row is a day ahead of this clock.
        let tomorrow = pattern.period_at(end);
        let actions = reserve(&mut planner, range(1, 1001, tomorrow), now);
        let ends_tomorrow = pattern.period_end_ms(tomorrow);
        assert!(
            matches!(actions[..], [Action::Segment(SegmentAction::DropOtherPeriods(period)), Action::Segment(SegmentAction::Ends { wall_ms, .. }), Action::Segment(SegmentAction::Publish(_))]
                if period == tomorrow && wall_ms == ends_tomorrow),
            "{actions:?}"
        );
    }

    #[test]
    fn a_range_reserved_ahead_whose_period_has_begun_is_not_kept() {
        let mut days = Days::of(DAYS);
        assert_eq!(days.asks_for(1_000), Some(days.tomorrow));
        let now = days.now(0);
        let actions = days.planner.complete(0, Ok(Answer::Reserved(range(1, 1001, days.tomorrow))), now);
        assert!(
            matches!(
                actions[..],
                [
                    Action::Segment(SegmentAction::DropOtherPeriods(_)),
                    Action::Segment(SegmentAction::Ends { .. }),
                    Action::Segment(SegmentAction::Publish(_))
                ]
            ),
            "{actions:?}"
        );
        // A range that arrived a moment before is kept.
        let mut days = Days::of(DAYS);
        assert_eq!(days.asks_for(1_000), Some(days.tomorrow));
        let now = days.now(1);
        let actions = days.planner.complete(0, Ok(Answer::Reserved(range(1, 1001, days.tomorrow))), now);
        assert!(matches!(actions[..], [Action::Segment(SegmentAction::KeepAhead(_))]), "{actions:?}");
    }

    #[test]
    fn a_range_for_another_period_than_asked_ahead_is_used_at_once() {
        let mut days = Days::of(DAYS);
        assert_eq!(days.asks_for(1_000), Some(days.tomorrow));
        let now = days.now(900);
        let later = days.tomorrow + 1_000_000_000;
        let actions = days.planner.complete(0, Ok(Answer::Reserved(range(1, 1001, later))), now);
        assert!(
            matches!(
                actions[..],
                [
                    Action::Segment(SegmentAction::DropOtherPeriods(_)),
                    Action::Segment(SegmentAction::Ends { .. }),
                    Action::Segment(SegmentAction::Publish(_))
                ]
            ),
            "{actions:?}"
        );
    }

    #[test]
    fn a_period_is_over_at_its_end_and_not_before() {
        let mut days = Days::of(DAYS);
        let (early, now) = (days.now(1), days.now(0));
        let actions = check(&mut days.planner, snapshot(900, 2_000, 0), early);
        assert!(
            !actions
                .iter()
                .any(|action| matches!(action, Action::Segment(SegmentAction::DropOtherPeriods(_)))),
            "{actions:?}"
        );
        days.planner.next_batch(early, 1, token);
        let actions = check(&mut days.planner, snapshot(900, 2_000, 1), now);
        assert!(
            matches!(actions[..], [Action::Segment(SegmentAction::DropOtherPeriods(period))] if period == days.tomorrow),
            "nothing is left: {actions:?}"
        );
        assert!(days.planner.dated.is_empty());
    }

    #[test]
    fn a_check_of_the_clock_is_due_ahead_of_a_periods_end_and_at_it() {
        for (before_ms, ms) in [
            (10_000, 1_000),
            (2_999, 999),
            (2_500, 500),
            (2_001, 1),
            (2_000, 1_000),
            (1_500, 1_000),
            (700, 700),
            (0, 1),
            (-9, 1),
        ] {
            assert_eq!(until_check(NOON + before_ms, at(0)), ms, "{before_ms} ms before the end");
        }
    }

    #[test]
    fn a_range_whose_end_is_near_brings_the_next_check_of_the_clock_forward() {
        let mut planner = planner_of(DAYS);
        let (_, today, end) = today(&spec(DAYS));
        for (check_ms, then) in [(u64::MAX, 10_700), (10_701, 10_700), (10_699, 10_699)] {
            planner.next_period_check_ms = check_ms;
            let now = Now { boot_ms: 10_000, wall_ms: end - 700 };
            let lo = planner.seen(0).next.max(1);
            reserve(&mut planner, range(lo, lo + 1000, today), now);
            assert_eq!(planner.next_period_check_ms, then);
        }
    }

    #[test]
    fn dated_sources_near_their_end_are_due_at_each_check_and_between_checks_none_is() {
        let mut days = Days::of(DAYS);
        days.planner.timers.clear();
        days.planner.next_period_check_ms = 0;
        let now = days.now(2_001);
        assert!(days.planner.due(now).is_empty(), "not near enough");
        assert_eq!(days.planner.next_period_check_ms, now.boot_ms + 1);
        assert_eq!(days.planner.wake_at(now), Some(now.boot_ms + 1));
        let now = days.now(2_000);
        assert_eq!(days.planner.due(now), [0]);
        assert_eq!(days.planner.next_period_check_ms, now.boot_ms + 1_000);
        assert!(days.planner.due(days.now(1_001)).is_empty(), "between two checks");
        assert_eq!(days.planner.due(days.now(1_000)), [0]);
        days.planner.clock_moved();
        assert_eq!(days.planner.due(days.now(999)), [0], "the clock was set");
    }

    #[test]
    fn an_exhausted_period_backs_off_no_longer_than_the_period() {
        let exhausted = |before_ms: i64| {
            let mut planner = planner_of(DAYS);
            let (_, _, end) = today(&spec(DAYS));
            let now = Now { boot_ms: 0, wall_ms: end - before_ms };
            planner.plans[0].as_mut().expect("a plan").failures = 6;
            check(&mut planner, snapshot(0, 0, 1), now);
            request(&mut planner, now).expect("a request");
            let actions = planner.complete(0, Err(Fault::new(FaultKind::Exhausted, "no")), now);
            let error = fails_with(&actions);
            assert_eq!(error.code, Code::NumberOverflow);
            error.retry_after.expect("a hint").as_millis()
        };
        assert_eq!(exhausted(300), 300);
        assert_eq!(exhausted(10), 25, "the shortest rest");
        assert!(exhausted(3_600_000) > 1_000);
        // Another refusal of the same source rests as long as ever.
        let mut planner = planner_of(DAYS);
        let (_, _, end) = today(&spec(DAYS));
        let now = Now { boot_ms: 0, wall_ms: end - 300 };
        planner.plans[0].as_mut().expect("a plan").failures = 6;
        check(&mut planner, snapshot(0, 0, 1), now);
        request(&mut planner, now).expect("a request");
        let actions = planner.complete(0, Err(Fault::new(FaultKind::Refused, "no")), now);
        assert!(fails_with(&actions).retry_after.expect("a hint").as_millis() > 1_000);
    }
}
