//! Tests of refills: a planner whose callers and store the test plays, in virtual time.

use std::sync::Arc;

use super::{Action, Answer, Ask, Batch, Now, Planner, View};
use crate::config::MillConfig;
use crate::process::random::token;
use crate::request::reservation::{Request, Reserved};
use crate::segment::{SegmentAction, Snapshot};

/// What the store is asked next.
fn next(planner: &mut Planner, now: Now) -> Option<Request> {
    match planner.next_batch(now, 1, token)? {
        Batch::One(0, Ask::Reserve(request)) => Some(request),
        other => panic!("{other:?}"),
    }
}

/// A planner of one source whose callers and store this test plays, in virtual time.
struct Stage {
    planner: Planner,
    now: Now,
    left: u64,
    issued: u64,
    reserved: u64,
    refills: u64,
    /// The store gives this much at most.
    most: u64,
}

impl Stage {
    fn of(spec: &str) -> Stage {
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
        let mut planner = Planner::new(1);
        planner.add(0, Arc::new(spec));
        let now = Now { boot_ms: 1_000_000, wall_ms: 1_795_218_600_000 };
        Stage { planner, now, left: 0, issued: 0, reserved: 0, refills: 0, most: u64::MAX }
    }

    /// A check, and the batches that follow; returns the low-water mark.
    fn check(&mut self, mut wanted: u64) -> u64 {
        let mut low_water = 0;
        loop {
            let (issued, left) = (self.issued, self.left);
            let snapshot = Snapshot { issued, left, room: 8, wanted, born_ms: None };
            for action in self.planner.check(0, &View::Segments(snapshot), self.now) {
                match action {
                    Action::Segment(SegmentAction::WakeBelow(at)) => low_water = at,
                    other => panic!("{other:?}"),
                }
            }
            let Some(asked) = next(&mut self.planner, self.now) else { return low_water };
            let len = asked.len.min(self.most);
            let (lo, hi) = (self.reserved + 1, self.reserved + 1 + len);
            let range = Reserved { lo, hi, period: 0, ttl_ms: None };
            for action in self.planner.complete(0, Ok(Answer::Reserved(range)), self.now) {
                assert!(matches!(action, Action::Segment(SegmentAction::Publish(_))), "{action:?}");
            }
            (self.reserved, self.left, self.refills) =
                (self.reserved + len, self.left + len, self.refills + 1);
            wanted = wanted.saturating_sub(len);
        }
    }

    fn first_id(&mut self) -> u64 {
        let low_water = self.check(1);
        (self.issued, self.left) = (1, self.left - 1);
        low_water
    }

    /// Takes so many a millisecond, and checks whenever the low-water mark is crossed or a timer is due.
    fn take(&mut self, each_ms: u64, ms: u64, low_water: &mut u64) {
        for _ in 0..ms {
            self.now.boot_ms += 1;
            self.now.wall_ms += 1;
            assert!(self.left >= each_ms, "dry after {}: {} left", self.issued, self.left);
            (self.issued, self.left) = (self.issued + each_ms, self.left - each_ms);
            if self.left < *low_water || !self.planner.due(self.now).is_empty() {
                *low_water = self.check(0);
            }
        }
    }
}

impl Stage {
    /// Takes up to so many a millisecond, and lacks the rest for as long as the store needs: a millisecond. What lies ahead after a
    /// check is what was used before, or two steps. Answers with how many callers were late.
    fn take_serials(&mut self, each_ms: u64, ms: u64, low_water: &mut u64) -> u64 {
        let mut late = 0;
        for _ in 0..ms {
            self.now.boot_ms += 1;
            self.now.wall_ms += 1;
            let taken = each_ms.min(self.left);
            (self.issued, self.left) = (self.issued + taken, self.left - taken);
            late += each_ms - taken;
            if self.left < *low_water || taken < each_ms || !self.planner.due(self.now).is_empty() {
                *low_water = self.check(u64::from(taken < each_ms));
            }
            assert!(self.left <= self.issued.max(1_000), "{} left, {} used", self.left, self.issued);
        }
        late
    }
}

#[test]
fn a_process_that_ends_after_a_burst_has_reserved_no_more_than_six_times_what_it_used() {
    for used in [1, 300, 5_000, 100_000, 3_000_000] {
        let mut stage = Stage::of("segment:orders");
        let mut low_water = stage.first_id();
        while stage.issued < used {
            let taken = (used / 100).clamp(1, used - stage.issued);
            let wanted = if taken > stage.left { taken } else { 0 };
            stage.now.boot_ms += 1;
            if stage.left < taken + low_water || !stage.planner.due(stage.now).is_empty() {
                low_water = stage.check(wanted);
            }
            (stage.issued, stage.left) = (stage.issued + taken, stage.left - taken);
        }
        stage.check(0);
        assert!(stage.reserved <= (6 * used).max(800), "{used}: {} reserved", stage.reserved);
    }
}

#[test]
fn a_process_that_takes_300_ids_in_less_than_a_second_reserves_one_step_however_long_they_take() {
    for took_ms in 1..1_000 {
        let mut stage = Stage::of("segment:orders");
        let mut low_water = stage.first_id();
        for ms in 1..=took_ms {
            let taken = 1 + 299 * ms / took_ms - stage.issued;
            stage.take(taken, 1, &mut low_water);
        }
        stage.check(0);
        assert_eq!((stage.issued, stage.reserved), (300, 800), "within {took_ms} ms");
    }
}

#[test]
fn serials_taken_as_fast_as_memory_are_reserved_twice_as_many_at_a_time_until_memory_is_full() {
    let mut stage = Stage::of("serial:a/b?date=&number=0000000000&step=500");
    let mut trips = 0;
    while stage.left < 1_000_000 {
        (stage.issued, stage.left) = (stage.issued + stage.left, 0);
        stage.now.boot_ms += 1;
        stage.check(1);
        trips += 1;
    }
    assert!(trips <= 13, "{trips} round trips");
    let (before, issued) = (stage.refills, stage.issued);
    stage.take_serials(46_000, 10_000, &mut 0);
    let refills = (stage.refills - before) as f64 * 1e6 / (stage.issued - issued) as f64;
    assert!(refills <= 0.3, "{refills} a million");
}

#[test]
fn a_rate_of_serials_that_rises_costs_few_refills_and_few_callers_wait() {
    for (rate, few, late) in [(2_000, 12, 0), (100_000, 16, 1_000), (5_000_000, 20, 60_000)] {
        let mut stage = Stage::of("serial:a/b?date=&number=00000000000&step=500");
        let mut low_water = stage.first_id();
        let waited = stage.take_serials(rate / 1000, 3_000, &mut low_water);
        assert!(stage.refills <= few && waited <= late, "{rate}: {} refills, {waited} late", stage.refills);
        stage.take_serials(rate / 1000, 120_000, &mut low_water);
        let before = stage.refills;
        for _ in 0..60_000 {
            assert_eq!(stage.take_serials(rate / 1000, 1, &mut low_water), 0, "{rate}");
            // Of 30 s, as far as four largest steps last.
            let runway = (30 * rate).min(40_000_000);
            assert!(stage.left * 36 >= runway * 31 - 36 * 1_000, "{rate}: {} of {runway}", stage.left);
            assert!(stage.left <= runway, "{rate}: {} of {runway}", stage.left);
        }
        let refills = stage.refills - before;
        assert!(refills <= 16 || rate > 1_000_000, "{rate}: {refills} refills in a minute");
    }
}

#[test]
fn a_process_that_knows_of_the_last_tenth_asks_for_single_steps() {
    let mut stage = Stage::of("serial:a/b?date=&number=000000&step=500");
    stage.reserved = 890_000;
    let mut low_water = 0;
    let late = stage.take_serials(1_000, 40, &mut low_water);
    assert!(stage.reserved >= 900_000, "{} reserved, {late} late", stage.reserved);
    for _ in 0..50 {
        let (before, refills) = (stage.reserved, stage.refills);
        stage.take_serials(100, 10, &mut low_water);
        assert!(stage.reserved - before <= (stage.refills - refills) * 500);
        assert!(stage.left <= 625, "{} left", stage.left);
    }
    assert!(stage.refills > 50, "{}", stage.refills);
}

#[test]
fn a_rate_that_rises_costs_few_refills_from_cold_and_after_a_minute_of_silence() {
    for silence_ms in [0, 60_000, 3_600_000] {
        for (rate, few) in [(2_000, 5), (100_000, 6)] {
            let mut stage = Stage::of("segment:orders");
            let mut low_water = stage.first_id();
            stage.take(0, silence_ms, &mut low_water);
            stage.take(rate / 1000, 3_000, &mut low_water);
            assert!(stage.refills <= few, "{rate} after {silence_ms}: {} refills", stage.refills);
            assert!(stage.left > rate * 25, "{rate} after {silence_ms}: {} left", stage.left);
        }
    }
}

#[test]
fn a_refill_pauses_no_longer_than_an_eighth_of_the_target() {
    let mut stage = Stage::of("segment:orders?buffer=4s");
    let mut low_water = stage.first_id();
    stage.take(100, 400, &mut low_water);
    let (refills, left) = (stage.refills, stage.left);
    assert!(left < 4 * 40_000, "a refill is wanted, and pauses: {left} left");
    stage.take(100, 500, &mut low_water);
    assert_eq!(stage.refills, refills + 1, "its timer woke the keeper");
}

#[test]
fn a_steady_rate_never_meets_the_pause() {
    for buffer in [1, 3, 30] {
        let mut stage = Stage::of(&format!("segment:orders?buffer={buffer}s"));
        let mut low_water = stage.first_id();
        stage.take(100, buffer * 2_000, &mut low_water);
        let (refills, full) = (stage.refills, buffer * 100_000);
        for _ in 0..buffer * 1_000 {
            stage.take(100, 1, &mut low_water);
            assert!(stage.left >= full, "{} left, and the buffer is {full}", stage.left);
            assert!(stage.left <= full * 6 / 5 + 2_000, "{} left, and the buffer is {full}", stage.left);
        }
        assert!((5..=6).contains(&(stage.refills - refills)), "{} refills", stage.refills - refills);
    }
}

#[test]
fn a_store_that_gives_less_than_was_asked_for_is_asked_again_at_once() {
    let mut stage = Stage::of("segment:orders");
    stage.most = 100_000;
    let mut low_water = stage.first_id();
    stage.take(100, 3_000, &mut low_water);
    assert!(stage.left >= 3_000_000, "{} left", stage.left);
}

#[test]
fn the_keeper_wakes_for_the_time_to_live_or_the_pause_whichever_ends_first() {
    for (landed, wakes) in [(400, 462), (450, 500)] {
        let mut stage = Stage::of("segment:orders?ttl=500ms");
        let born = stage.now.boot_ms;
        let mut check = |at_ms: u64, issued, left, wanted, lands: bool| {
            stage.now.boot_ms = born + at_ms;
            let born_ms = (left > 0).then_some(born);
            let snapshot = Snapshot { issued, left, room: 8, wanted, born_ms };
            stage.planner.check(0, &View::Segments(snapshot), stage.now);
            let batch = next(&mut stage.planner, stage.now);
            assert_eq!(batch.is_some(), lands, "at {at_ms} ms with {left} left");
            let range = Reserved { lo: issued + left + 1, hi: issued + left + 1001, period: 0, ttl_ms: None };
            if lands {
                stage.planner.complete(0, Ok(Answer::Reserved(range)), stage.now);
            }
        };
        check(0, 0, 0, 1, true);
        check(1, 1, 999, 0, false);
        check(landed, 800, 200, 0, true);
        check(landed, 800, 1200, 0, false);
        // Of 850 that a rate of 1700 a second makes, 300 are left: a refill is wanted, and pauses.
        check(landed + 1, 1700, 300, 0, false);
        let plan = stage.planner.plans[0].as_ref().expect("a plan");
        assert_eq!(plan.timer_ms, Some(born + wakes));
    }
}
