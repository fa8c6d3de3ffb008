//! One generator on a clock that stands: what it hands out, borrows, waits for and refuses.

mod even;
mod many;

use std::sync::Arc;

use super::refusal::KEEPER_MS;
use super::*;
use crate::time::ManualClock;

/// 2026-11-21T08:30:00.123Z.
const NOW: i64 = 1_795_249_800_123;
const DAY: i64 = 86_400_000;

/// A generator on a clock that stands, with a keeper and a store that work when called.
struct Rig {
    clock: Arc<ManualClock>,
    layout: Layout,
    back: ClockBack,
    lead: u64,
    stored: u64,
    generator: Generator,
}

impl Rig {
    fn unstarted(layout: &str, back: ClockBack, lead: u64) -> Rig {
        let clock = Arc::new(ManualClock::new(NOW));
        let layout = Layout::parse(layout, "2025-01-01").unwrap();
        let generator = Generator::new(layout, 1, back, lead, Clock::Manual(clock.clone())).unwrap();
        Rig { clock, layout, back, lead, stored: 0, generator }
    }

    fn new(layout: &str, back: ClockBack, lead: u64) -> Rig {
        Rig::salted(layout, back, lead, 0)
    }

    /// With the salt of a process.
    fn salted(layout: &str, back: ClockBack, lead: u64, salt: u64) -> Rig {
        let mut rig = Rig::unstarted(layout, back, lead);
        let core = Core::new(rig.layout, Some(1), back, lead, salt).unwrap();
        rig.generator = Generator::over(core, Clock::Manual(rig.clock.clone()));
        rig.generator.start(0).unwrap();
        rig.keeper();
        rig.clock.advance(rig.layout.unit_ms() as u64);
        rig
    }

    fn twitter() -> Rig {
        Rig::new("twitter", ClockBack::Borrow, 3000)
    }

    fn keeper(&mut self) -> bool {
        let wanted = self.generator.wanted_mark();
        if let Some(mark) = wanted {
            self.stored = mark;
            self.generator.raise_mark(mark);
        }
        wanted.is_some()
    }

    /// Forgets the generator and starts another from what is stored.
    fn restart(&mut self) -> Result<()> {
        self.generator =
            Generator::new(self.layout, 1, self.back, self.lead, Clock::Manual(self.clock.clone()))?;
        self.generator.start(self.stored)?;
        self.keeper();
        Ok(())
    }

    fn id(&self) -> u64 {
        self.generator.try_next().unwrap()
    }

    fn tick(&self) -> u64 {
        self.layout.unpack(self.id()).tick
    }

    fn now(&self) -> u64 {
        self.layout.tick_at(self.clock.wall_ms()) as u64
    }

    /// Takes until refused.
    fn drain(&self) -> (Vec<u64>, Refusal) {
        let mut ids = Vec::new();
        loop {
            match self.generator.try_next() {
                Ok(id) => ids.push(id),
                Err(refusal) => return (ids, refusal),
            }
        }
    }
}

fn rises(ids: &[u64]) -> bool {
    ids.windows(2).all(|pair| pair[0] < pair[1])
}

#[test]
fn ids_carry_the_clock_and_the_worker_and_rise() {
    let rig = Rig::twitter();
    let mut last = 0;
    for _ in 0..10_000 {
        let id = rig.id();
        let parts = rig.layout.read(id).unwrap();
        assert!(id > last);
        assert_eq!((parts.tick, parts.worker), (rig.now(), 1));
        last = id;
        rig.clock.advance(1);
    }
    assert_eq!(rig.generator.issued(), 10_000);
}

#[test]
fn a_worker_beyond_the_layout_is_refused_with_the_range() {
    let layout = Layout::parse("twitter", "").unwrap();
    let error = Generator::new(layout, 1024, ClockBack::Borrow, 0, Clock::System).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.contains("0 to 1023"), "{}", error.message);
    assert_eq!(ClockBack::parse("stop").unwrap_err().code, Code::InvalidConfig);
    assert_eq!(ClockBack::parse("wait").unwrap(), ClockBack::Wait);
}

#[test]
fn nothing_is_issued_before_the_start_and_before_the_first_mark() {
    let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
    let waiting = Refusal::NotReady { why: Why::Start, retry_after_ms: KEEPER_MS };
    assert_eq!(rig.generator.try_next(), Err(waiting));
    assert_eq!(rig.generator.wanted_mark(), None);
    rig.generator.start(0).unwrap();
    assert_eq!(rig.generator.try_next(), Err(waiting));
    assert!(rig.generator.wants_keeper());
    rig.generator.raise_mark(rig.generator.wanted_mark().unwrap());
    assert!(!rig.generator.wants_keeper());
    rig.id();
}

#[test]
fn a_full_tick_borrows_up_to_max_lead_and_then_says_when_to_ask_again() {
    let mut rig = Rig::new("twitter", ClockBack::Error, 3000);
    rig.id();
    rig.keeper();
    let (ids, refusal) = rig.drain();
    assert!(rises(&ids));
    let ticks = ids.len() / 4096;
    assert!((1999..=3001).contains(&ticks), "{ticks} ticks");
    let last = rig.layout.unpack(*ids.last().unwrap()).tick;
    assert!(last <= rig.now() + 3000);
    // The mark was the limit; with it raised the lead is.
    assert!(matches!(refusal, Refusal::NotReady { .. }), "{refusal:?}");
    rig.keeper();
    let (more, refusal) = rig.drain();
    let last = more.last().or(ids.last()).map(|id| rig.layout.unpack(*id).tick).unwrap();
    assert_eq!(last, rig.now() + 3000);
    assert_eq!(refusal, Refusal::NotReady { why: Why::Lead, retry_after_ms: 1 });
    assert_eq!(rig.generator.lead_ms(), 3001);
    // Refused calls do not spend the word.
    let before = rig.generator.core.position();
    for _ in 0..1000 {
        assert!(rig.generator.try_next().is_err());
    }
    assert_eq!(rig.generator.core.position(), before);
    assert_eq!(rig.generator.issued(), (ids.len() + more.len() + 1) as u64);
    rig.clock.advance(1);
    assert_eq!(rig.drain().0.len(), 4096);
}

#[test]
fn overload_is_limited_by_the_layout_and_not_by_the_mark() {
    let mut rig = Rig::twitter();
    rig.drain();
    let (mut count, mut writes) = (0, 0);
    rig.keeper();
    rig.drain();
    for _ in 0..3000 {
        rig.clock.advance(1);
        count += rig.drain().0.len();
        writes += u32::from(rig.generator.wants_keeper() && rig.keeper());
    }
    assert!(count as f64 / (3000.0 * 4096.0) > 0.999, "{count}");
    assert!(writes <= 8, "{writes} writes in 3 s");
}

#[test]
fn without_lead_a_tick_still_gives_half_its_ids_and_no_more_than_all() {
    let rig = Rig::new("twitter", ClockBack::Borrow, 0);
    let (ids, refusal) = rig.drain();
    assert!((2048..=4096).contains(&ids.len()), "{}", ids.len());
    assert_eq!(refusal, Refusal::NotReady { why: Why::Lead, retry_after_ms: 1 });
    rig.clock.advance(1);
    assert_eq!(rig.drain().0.len(), 4096);
}

#[test]
fn a_clock_step_back_within_the_lead_is_borrowed_through() {
    let mut rig = Rig::twitter();
    let before = rig.id();
    rig.keeper();
    let highest = rig.now();
    rig.clock.set_wall(rig.clock.wall_ms() - 1000);
    let mut ids = vec![before];
    for _ in 0..1000 {
        ids.push(rig.id());
        rig.clock.advance(1);
    }
    assert!(rises(&ids));
    assert!(rig.layout.unpack(*ids.last().unwrap()).tick <= highest + 1);
    rig.clock.advance(10);
    assert_eq!(rig.tick(), rig.now());
}

#[test]
fn a_clock_step_back_beyond_the_lead_is_refused_until_it_catches_up() {
    for step in [600_000, 2 * DAY] {
        let mut rig = Rig::twitter();
        let before = rig.id();
        rig.keeper();
        rig.clock.set_wall(rig.clock.wall_ms() - step);
        let refusal = rig.generator.try_next().unwrap_err();
        assert_eq!(refusal.code(), Code::ClockBehind);
        let wait = refusal.retry_after_ms().unwrap();
        assert_eq!(wait as i64, step - 3000);
        let error = rig.generator.explain(refusal);
        assert_eq!(error.retry_after, Some(Duration::from_millis(wait)));
        assert!(error.message.contains("2026-11-"), "{}", error.message);
        rig.clock.advance(wait - 1);
        assert!(rig.generator.try_next().is_err());
        rig.clock.advance(1);
        assert!(rig.id() > before);
    }
}

#[test]
fn a_clock_step_back_is_waited_for_or_refused_when_configured() {
    for step in [1000, 600_000, 2 * DAY] {
        for (back, code) in [(ClockBack::Wait, Code::NotReady), (ClockBack::Error, Code::ClockBehind)] {
            let rig = Rig::new("twitter", back, 3000);
            let before = rig.id();
            rig.clock.set_wall(rig.clock.wall_ms() - step);
            let refusal = rig.generator.try_next().unwrap_err();
            assert_eq!(refusal.code(), code);
            assert_eq!(refusal.retry_after_ms(), Some(step as u64));
            assert_eq!(rig.generator.explain(refusal).code, code);
            rig.clock.advance(step as u64 - 1);
            assert!(rig.generator.try_next().is_err());
            rig.clock.advance(1);
            assert!(rig.id() > before);
        }
    }
}

#[test]
fn a_restart_after_a_lead_of_almost_three_seconds_repeats_nothing() {
    let mut rig = Rig::twitter();
    let mut ids = Vec::new();
    while rig.generator.lead_ms() < 2900 {
        match rig.generator.try_next() {
            Ok(id) => ids.push(id),
            Err(_) => assert!(rig.keeper()),
        }
    }
    rig.restart().unwrap();
    let mut waited = 0;
    let first = loop {
        match rig.generator.try_next() {
            Ok(id) => break id,
            Err(refusal) => {
                assert_eq!(refusal.code(), Code::NotReady);
                let wait = refusal.retry_after_ms().unwrap();
                waited += wait;
                rig.clock.advance(wait);
                rig.keeper();
            }
        }
    };
    assert!(first > *ids.last().unwrap());
    assert!(waited <= 1001, "{waited} ms");
}

#[test]
fn a_restart_within_the_same_tick_repeats_nothing_even_when_the_mark_had_lapsed() {
    let mut rig = Rig::new("uid", ClockBack::Borrow, 3000);
    rig.id();
    rig.clock.advance(60_000);
    let last = rig.id();
    assert!(rig.layout.unpack(last).tick >= rig.stored);
    rig.restart().unwrap();
    assert!(rig.id() > last);
}

#[test]
fn where_the_stores_clock_is_followed_the_refusal_of_a_mark_shows_the_clock_of_this_machine_too() {
    let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
    rig.generator.limit_marks(Some(NOW - 3_600_000), rig.generator.clock.now());
    let error = rig.generator.start(rig.now()).unwrap_err();
    assert_eq!(error.code, Code::ClockBehind);
    let says = "this machine's clock shows 2026-11-21T08:30:00.123Z, and by the store's clock it counts only up to 2026-11-21T07:30:00.123Z,";
    assert!(error.message.contains(says), "{}", error.message);
    assert!(error.message.contains("set right the clock that is wrong"), "{}", error.message);
}

#[test]
fn a_stored_mark_far_ahead_of_the_clock_is_refused_with_both_times() {
    let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
    let mark = rig.now() + 3_600_000;
    let error = rig.generator.start(mark).unwrap_err();
    assert_eq!(error.code, Code::ClockBehind);
    assert!(error.message.contains("2026-11-21T08:30:00.123Z"), "{}", error.message);
    assert!(error.message.contains("2026-11-21T09:30:00.123Z"), "{}", error.message);
    let wait = error.retry_after.unwrap();
    rig.clock.advance(wait.as_millis() as u64);
    rig.generator.start(mark).unwrap();
    rig.clock.set_wall(0);
    assert_eq!(rig.generator.start(0).unwrap_err().code, Code::ClockBehind);
    assert_eq!(rig.generator.start(u64::MAX).unwrap_err().code, Code::ClockBehind);
}

#[test]
fn a_start_accepts_the_furthest_mark_that_a_predecessor_stores_and_none_beyond() {
    let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
    // The lead, a third of it as margin, and the tick that is under way.
    let furthest = rig.now() + 3000 + 1000 + 1;
    assert_eq!(rig.generator.start(furthest + 1).unwrap_err().code, Code::ClockBehind);
    rig.generator.start(furthest).unwrap();
}

#[test]
fn an_outage_of_the_store_stops_the_lead_but_not_the_ids() {
    let rig = Rig::twitter();
    for _ in 0..20_000 {
        assert_eq!(rig.tick(), rig.now());
        rig.clock.advance(1);
    }
    assert!(rig.generator.wants_keeper());
    let (ids, refusal) = rig.drain();
    assert!(ids.len() <= 4096);
    assert_eq!(refusal, Refusal::NotReady { why: Why::Mark, retry_after_ms: KEEPER_MS });
}

#[test]
fn a_clock_jump_forward_is_adopted_only_with_the_mark() {
    let mut rig = Rig::twitter();
    rig.id();
    rig.clock.advance(10_000);
    let old = rig.now();
    rig.clock.set_wall(rig.clock.wall_ms() + 365 * DAY);
    assert_eq!(rig.tick(), old);
    rig.clock.set_wall(rig.clock.wall_ms() - 365 * DAY);
    assert_eq!(rig.tick(), old);
    rig.clock.set_wall(rig.clock.wall_ms() + DAY);
    assert!(rig.keeper());
    assert_eq!(rig.tick(), rig.now());
}

#[test]
fn an_idle_generator_asks_for_no_mark_and_a_failed_store_is_asked_again() {
    let mut rig = Rig::twitter();
    rig.clock.advance(DAY as u64);
    assert!(!rig.keeper());
    rig.id();
    let asked = rig.generator.wanted_mark();
    assert_eq!(asked, Some(rig.now() + 3001));
    assert_eq!(rig.generator.wanted_mark(), asked);
    assert!(rig.keeper());
    assert!(!rig.keeper());
    rig.clock.advance(999);
    rig.id();
    assert!(!rig.keeper());
    rig.clock.advance(2);
    assert!(rig.keeper());
}

#[test]
fn the_end_of_the_time_field_is_an_error_and_nothing_wraps() {
    let mut rig = Rig::twitter();
    let end = rig.layout.ends_at_ms();
    rig.clock.set_wall(end - 10);
    rig.restart().unwrap();
    let (ids, refusal) = rig.drain();
    assert_eq!(refusal, Refusal::LayoutEnded);
    assert!(rises(&ids));
    assert_eq!(ids.last().copied().map(|id| rig.layout.unpack(id).tick), Some(rig.layout.max_tick()));
    assert_eq!(ids.last().map(|id| id & 0xfff), Some(4095));
    rig.clock.set_wall(end);
    assert_eq!(rig.generator.try_next(), Err(Refusal::LayoutEnded));
    let error = rig.generator.explain(Refusal::LayoutEnded);
    assert!(error.message.contains("2094-09-07"), "{}", error.message);
    assert_eq!(rig.restart().unwrap_err().code, Code::LayoutEnded);
}

#[test]
fn the_last_tick_is_issued_where_the_mark_stands_at_it_and_not_where_the_clock_does() {
    let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
    let (end, last) = (rig.layout.ends_at_ms(), rig.layout.max_tick());
    rig.clock.set_wall(end - 10);
    rig.generator.start(last).unwrap();
    assert_eq!(rig.generator.issued(), 0, "positions below the start are no ids");
    rig.generator.raise_mark(last + 1);
    let (ids, refusal) = rig.drain();
    assert_eq!(refusal, Refusal::LayoutEnded);
    assert_eq!(ids.last().map(|id| rig.layout.unpack(*id).tick), Some(last));
    assert_eq!(rig.generator.issued(), ids.len() as u64);
    // Another process may have issued ids of the tick that the clock shows.
    let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
    rig.clock.set_wall(end - 1);
    rig.generator.start(0).unwrap();
    rig.generator.raise_mark(last + 1);
    assert_eq!(rig.generator.try_next(), Err(Refusal::LayoutEnded));
}

#[test]
fn a_mark_is_raised_while_half_the_margin_is_left_above_what_was_issued() {
    let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
    let now = rig.now();
    // Nothing was issued ahead: a third of the reach may be gone. At the end of the lead: half of the margin of 1000.
    for (issued, level) in [(now, now + 2000), (now + 3000, now + 3500), (u64::MAX, now + 3500)] {
        assert_eq!(rig.generator.core.renewal_level(now as i64, issued), level);
    }
}

#[test]
fn the_end_of_a_layout_of_63_bits_without_a_worker_is_layout_ended() {
    let mut rig = Rig::twitter();
    rig.layout = Layout::parse("time:41@1ms,worker:0,seq:22", "2025-01-01").unwrap();
    rig.generator =
        Generator::new(rig.layout, 0, ClockBack::Borrow, 3000, Clock::Manual(rig.clock.clone())).unwrap();
    let end = rig.layout.ends_at_ms();
    rig.clock.set_wall(end - 10);
    rig.generator.start(0).unwrap();
    rig.keeper();
    let (ids, refusal) = rig.drain();
    assert!(rises(&ids));
    assert_eq!(ids.last(), Some(&i64::MAX.unsigned_abs()), "the last id is the largest");
    assert_eq!(refusal, Refusal::LayoutEnded);
    assert_eq!(rig.generator.try_take(&mut [0; 10]), Err(Refusal::LayoutEnded));
    let layout = rig.layout;
    assert_eq!(rig.generator.close(), Some(layout.max_tick() + 1));
    assert_eq!(rig.generator.try_next(), Err(Refusal::Closed));
    // A start in the last tick: nothing is left of it, and that is no close.
    let generator =
        Generator::new(layout, 0, ClockBack::Borrow, 3000, Clock::Manual(rig.clock.clone())).unwrap();
    generator.start(layout.max_tick() + 1).unwrap();
    generator.raise_mark(layout.max_tick() + 1);
    assert_eq!(generator.try_next(), Err(Refusal::LayoutEnded));
}

#[test]
fn id_zero_is_never_issued() {
    for seq_bits in 1..14 {
        let layout = Layout::parse(&format!("time:41@1ms,worker:0,seq:{seq_bits}"), "2025-01-01").unwrap();
        let clock = Arc::new(ManualClock::new(layout.epoch_ms()));
        let generator = Generator::new(layout, 0, ClockBack::Borrow, 3000, Clock::Manual(clock)).unwrap();
        generator.start(0).unwrap();
        generator.raise_mark(u64::MAX);
        assert!(generator.try_next().unwrap() > 0);
        assert!(generator.core.spread_start(0) > 0);
    }
}

#[test]
fn a_batch_is_a_run_of_positions_that_begins_where_a_single_call_would() {
    for layout in ["twitter", "sonyflake", "uid", "js53"] {
        let (one, many) =
            (Rig::new(layout, ClockBack::Borrow, 3000), Rig::new(layout, ClockBack::Borrow, 3000));
        let mut batch = vec![0; 10_000];
        let count = many.generator.try_take(&mut batch).unwrap();
        assert!(count > 500, "{count}");
        assert_eq!(batch[0], one.id());
        // One after the other, sequences and ticks carrying, each with the worker in its place.
        let position = |id: u64| {
            let parts = many.layout.read(id).unwrap();
            assert_eq!(parts.worker, 1);
            parts.tick << many.layout.seq_bits() | parts.seq
        };
        assert!(batch[..count].windows(2).all(|pair| position(pair[0]) + 1 == position(pair[1])));
        assert!(rises(&one.drain().0));
        assert!(batch[count..].iter().all(|id| *id == 0));
        assert_eq!(many.generator.try_take(&mut []), Ok(0));
        assert_eq!(many.generator.issued(), count as u64);
    }
}

#[test]
fn a_batch_takes_what_the_lead_allows_and_then_is_refused() {
    let mut rig = Rig::new("twitter", ClockBack::Borrow, 2);
    rig.keeper();
    let mut batch = vec![0; 100_000];
    let count = rig.generator.try_take(&mut batch).unwrap();
    assert!((2048..=3 * 4096).contains(&count), "{count}");
    while rig.keeper() {
        let _ = rig.generator.try_take(&mut batch);
    }
    assert!(matches!(rig.generator.try_take(&mut batch), Err(Refusal::NotReady { why: Why::Lead, .. })));
}

#[test]
fn a_closed_generator_stays_closed_and_returns_the_tick_above_all() {
    let mut rig = Rig::twitter();
    assert_eq!(Rig::unstarted("twitter", ClockBack::Borrow, 0).generator.close(), None);
    let last = rig.id();
    let mark = rig.generator.close().unwrap();
    assert_eq!(mark, rig.layout.unpack(last).tick + 1);
    assert_eq!(rig.generator.close(), None);
    for _ in 0..10 {
        assert_eq!(rig.generator.try_next(), Err(Refusal::Closed));
    }
    assert_eq!(rig.generator.try_take(&mut [0]), Err(Refusal::Closed));
    assert_eq!(rig.generator.wanted_mark(), None);
    assert_eq!(rig.generator.issued(), 1);
    rig.generator.start(0).unwrap();
    assert_eq!(rig.generator.try_next(), Err(Refusal::Closed));
    rig.stored = mark;
    rig.restart().unwrap();
    assert!(rig.id() > last);
    rig.generator.revoke();
    assert_eq!(rig.generator.try_next(), Err(Refusal::LeaseLost));
    assert_eq!(rig.generator.explain(Refusal::LeaseLost).code, Code::LeaseLost);
}

#[test]
fn a_fallen_rate_leaves_no_stale_time_behind() {
    let rig = Rig::new("time:41@1ms,worker:1,seq:21", ClockBack::Borrow, 3000);
    for _ in 0..50 {
        for _ in 0..20_000 {
            assert_eq!(rig.tick(), rig.now());
        }
        rig.clock.advance(1);
    }
    for _ in 0..1000 {
        rig.clock.advance(7);
        assert_eq!(rig.tick(), rig.now());
    }
}

#[test]
fn callers_of_narrow_sequences_wait_few_ticks_for_the_next_leased_worker() {
    for (layout, most) in [
        ("time:38@10ms,worker:14,seq:1", 6),
        ("time:30@1s,worker:17,seq:6", 3),
        ("time:31@1s,worker:20,seq:2", 4),
        ("twitter", 3),
    ] {
        let clock = Arc::new(ManualClock::new(NOW));
        let layout = Layout::parse(layout, "2025-01-01").unwrap();
        let generator =
            Generator::leased(layout, ClockBack::Borrow, 3000, Clock::Manual(clock.clone())).unwrap();
        let now = layout.tick_at(NOW) as u64;
        generator.begin(1, now, NOW).unwrap();
        generator.raise_mark(now + 10_000);
        let before = layout.unpack(generator.try_next().unwrap()).tick;
        generator.lapse();
        generator.begin(2, now, NOW).unwrap();
        // As far as the lead reaches, they do not wait at all.
        let mut waited = 0;
        let after = loop {
            match generator.try_next() {
                Ok(id) => break layout.unpack(id),
                Err(_) => clock.advance(layout.unit_ms() as u64),
            }
            waited += 1;
            assert!(waited < 10_000, "{layout}: no id");
        };
        assert_eq!(after.worker, 2);
        assert!(after.tick - before <= most, "{layout}: {} ticks after the last worker", after.tick - before);
    }
}
