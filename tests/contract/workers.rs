//! Leased workers: what every store promises about slots, proved against the real thing.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keymill::Mill;
use keymill::store::{
    Fault, FaultKind, Key, Left, OwnSlot, PoolRecord, RaisePool, Release, Renewal, Slots, Store, StoreIndex,
    Take, Taken,
};
use keymill_tests::in_time;
use keymill_tests::lease::{self, LEASE_MS};
use keymill_tests::simulation::copies::{self, Copy};

use crate::bench::{Bench, Kind, Place, unique};

/// A pool in a table of its own, with its store.
struct Pool {
    bench: Bench,
    key: Arc<Key>,
}

impl Pool {
    fn new(bench: Bench) -> Pool {
        let key = Arc::new(Key::pool(&unique("w"), "tx 'orders' %"));
        let pool = Pool { bench, key };
        pool.open().init(std::slice::from_ref(&pool.key), false).expect("the table");
        pool
    }

    fn open(&self) -> Box<dyn Store> {
        self.bench.open()
    }

    fn take(&self, last: u64, token: u64) -> Take {
        Take {
            layout: "a layout of 63 bits".into(),
            slots: Slots { first: 0, last },
            ..lease::take(self.key.clone(), token)
        }
    }

    fn own(&self, slot: u64, token: u64, marks: &[u64]) -> OwnSlot {
        let left = marks.iter().map(|&mark| Left { token, mark }).collect();
        OwnSlot { key: self.key.clone(), slot, left, source: "".into() }
    }

    /// A renewal by the owner that left `token` and one of `marks`; it writes the token and the mark `to`.
    fn renewal(&self, slot: u64, token: u64, marks: &[u64], to: (u64, u64)) -> Renewal {
        let to = Left { token: to.0, mark: to.1 };
        Renewal { own: self.own(slot, token, marks), to, lease_ms: LEASE_MS }
    }

    fn release(&self, slot: u64, token: u64, mark: u64, used: u64) -> Release {
        Release { own: self.own(slot, token, &[mark]), used }
    }
}

/// The answer to one of several renewals.
fn answered(answer: &Result<u64, Fault>) -> Result<u64, FaultKind> {
    answer.as_ref().copied().map_err(|fault| fault.kind)
}

fn a_slot_has_one_owner_and_another_process_gets_the_next(pool: &Pool) {
    let (mut one, mut two) = (pool.open(), pool.open());
    let first = one.take_slot(&pool.take(9, 11)).expect("a slot");
    let second = two.take_slot(&pool.take(9, 12)).expect("a slot");
    assert_eq!((first.slot, first.start, first.mark), (0, 0, 1_033));
    assert_eq!((second.slot, second.start, second.mark), (1, 0, 1_033));
    let rows = one.slots(&pool.key).expect("the rows");
    let owners: Vec<_> = rows.slots.iter().map(|row| (row.slot, row.owner.as_str())).collect();
    assert_eq!(owners, [(0, "host:11"), (1, "host:12")]);
    let record = PoolRecord { layout: "a layout of 63 bits".to_owned(), store: StoreIndex::ONLY };
    assert_eq!(rows.record, Some(record));
    assert!(rows.slots.iter().all(|row| row.is_held(rows.now_ms)));
}

fn the_clock_of_the_store_comes_with_each_answer(pool: &Pool) {
    let mut store = pool.open();
    let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as u64;
    let near = |now_ms: u64| now_ms.abs_diff(here) < 600_000;
    let Taken { slot, mark, now_ms, .. } = store.take_slot(&pool.take(9, 11)).expect("a slot");
    assert!(near(now_ms), "{now_ms} and {here}");
    let renewed = store.renew_slots(&[pool.renewal(slot, 11, &[mark], (21, 1_050))]).expect("renewed");
    assert!(near(renewed.now_ms), "{} and {here}", renewed.now_ms);
    let rows = store.slots(&pool.key).expect("the rows");
    assert!(rows.slots[0].ends_at.abs_diff(renewed.now_ms + LEASE_MS) < 60_000, "{rows:?}");
}

fn a_fixed_worker_whose_clock_is_a_year_ahead_begins_ten_minutes_above_the_clock_of_the_store(pool: &Pool) {
    // A mill in memory has one clock for both.
    let Some(url) = crate::banks::url(&pool.bench) else { return };
    let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as i64;
    let near = |ms: i64| ms.abs_diff(here + 600_000) < 300_000;
    let and = if url.contains('?') { '&' } else { '?' };
    let mill = Mill::open(&format!("{url}{and}clock=manual%40{}", here + 31_536_000_000)).expect("a mill");
    for worker in ["5", "ordinal:tx-7", "ip:10.0.0.9"] {
        let spec = format!("snowflake:tx?worker={worker}&deadline=60s&table={}", pool.bench.table);
        let source = mill.source(&spec).expect("a source");
        let id = source.next().expect("an id");
        let time_ms = source.parse(id).expect("an id").time_ms.expect("a time");
        assert!(near(time_ms), "{worker}: an id of {time_ms}, and it is {here}");
        let mark = source.row().expect("an answer").expect("a row").mark.next;
        let mark_ms = source.layout().expect("a layout").wall_ms_of(mark);
        assert!(near(mark_ms), "{worker}: a mark of {mark_ms}, and it is {here}");
    }
    let metrics = mill.metrics();
    let skew = metrics.lines().find_map(|line| line.strip_prefix("keymill_clock_skew_seconds "));
    let skew: f64 = skew.and_then(|skew| skew.parse().ok()).expect("the skew");
    assert!((skew - 31_536_000.0).abs() < 600.0, "{skew}");
}

fn a_renewal_needs_a_token_and_a_mark_that_its_owner_wrote_together(pool: &Pool) {
    let mut store = pool.open();
    store.take_slot(&pool.take(9, 11)).expect("a slot");
    let mut renew = |renewal| answered(&store.renew_slots(&[renewal]).expect("an answer").marks[0]);
    assert_eq!(renew(pool.renewal(0, 11, &[1_033], (21, 1_040))), Ok(1_040));
    assert_eq!(renew(pool.renewal(0, 12, &[1_040], (22, 1_050))), Err(FaultKind::Taken), "another token");
    assert_eq!(renew(pool.renewal(0, 21, &[1_033], (23, 1_050))), Err(FaultKind::Taken), "another mark");
    assert_eq!(renew(pool.renewal(5, 21, &[1_040], (24, 1_050))), Err(FaultKind::Taken), "no row");
    let mut crossed = pool.renewal(0, 21, &[1_033], (25, 1_050));
    crossed.own.left.push(Left { token: 11, mark: 1_040 });
    assert_eq!(renew(crossed), Err(FaultKind::Taken), "token and mark of two requests");
    let mut doubt = pool.renewal(0, 11, &[1_033], (26, 1_050));
    doubt.own.left.push(Left { token: 21, mark: 1_040 });
    assert_eq!(renew(doubt), Ok(1_050), "an answer was lost");
    let rows = store.slots(&pool.key).expect("the rows");
    assert_eq!((rows.slots[0].token, rows.slots[0].mark), (26, 1_050));
}

fn a_renewal_that_was_carried_out_and_is_sent_again_is_known_by_its_token(pool: &Pool) {
    let mut store = pool.open();
    store.take_slot(&pool.take(9, 11)).expect("a slot");
    let renewal = pool.renewal(0, 11, &[1_033], (21, 1_040));
    let other = pool.renewal(0, 11, &[1_033], (22, 1_040));
    let mut renew = |renewal: &Renewal| {
        let renewed = store.renew_slots(std::slice::from_ref(renewal)).expect("an answer");
        answered(&renewed.marks[0])
    };
    assert_eq!([renew(&renewal), renew(&renewal)], [Ok(1_040), Ok(1_040)]);
    assert_eq!(renew(&other), Err(FaultKind::Taken), "a copy of this process, which writes the same mark");
}

/// Where ticks are long, or the copies renew at one moment, both write one and the same mark.
fn a_clone_that_renews_at_the_same_moment_is_told_at_the_next_renewal(pool: &Pool) {
    let here = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as i64;
    for (layout, tick_ms) in copies::LAYOUTS {
        for apart_ms in BTreeSet::from([0, 1, tick_ms.min(5_000)]) {
            let what = format!("{layout}, {apart_ms} ms apart");
            let and = format!("&table={}&pool=tx-{tick_ms}-{apart_ms}", pool.key.table);
            let copy = Copy { at_ms: 100, apart_ms, in_flight: false, mutant: None };
            let outcome = copies::copied(|| pool.open(), &copies::spec(layout, &and), here, copy, || {});
            println!("{what}: {outcome:?}");
            let told_ms = outcome.told_ms().unwrap_or_else(|| panic!("{what}: {outcome:?}"));
            assert!(told_ms <= copies::LEASE_MS / 3 + 1, "{what}: {outcome:?}");
            assert_eq!(outcome.later, 0, "{what}: {outcome:?}");
        }
    }
}

fn several_leases_are_renewed_together_and_a_lost_one_does_not_hold_up_the_others(pool: &Pool) {
    let mut store = pool.open();
    for token in 11..15 {
        store.take_slot(&pool.take(9, token)).expect("a slot");
    }
    let all = |tokens: [u64; 4], mark: u64, to: (u64, u64)| {
        (0..4).map(|slot| pool.renewal(slot, tokens[slot as usize], &[mark], to)).collect::<Vec<_>>()
    };
    let renewed = store.renew_slots(&all([11, 12, 13, 14], 1_033, (21, 1_040))).expect("renewed");
    assert_eq!(renewed.marks.iter().map(answered).collect::<Vec<_>>(), [Ok(1_040); 4]);
    let renewed = store.renew_slots(&all([21, 99, 21, 21], 1_040, (22, 1_050))).expect("an answer");
    let lost = Err(FaultKind::Taken);
    assert_eq!(
        renewed.marks.iter().map(answered).collect::<Vec<_>>(),
        [Ok(1_050), lost, Ok(1_050), Ok(1_050)]
    );
    let rows = store.slots(&pool.key).expect("the rows");
    assert_eq!(
        rows.slots.iter().map(|row| (row.token, row.mark)).collect::<Vec<_>>(),
        [(22, 1_050), (21, 1_040), (22, 1_050), (22, 1_050)]
    );
    // One of the rows was left with another token, as two mills of one process leave theirs.
    let mut apart = all([22, 21, 22, 22], 1_050, (23, 1_060));
    apart[1] = pool.renewal(1, 21, &[1_040], (24, 1_060));
    let renewed = store.renew_slots(&apart).expect("renewed");
    assert_eq!(renewed.marks.iter().map(answered).collect::<Vec<_>>(), [Ok(1_060); 4]);
    let rows = store.slots(&pool.key).expect("the rows");
    assert_eq!(rows.slots.iter().map(|row| row.token).collect::<Vec<_>>(), [23, 24, 23, 23]);
}

/// More than a statement has, and of two lengths.
fn many_leases_are_renewed_and_a_lost_one_holds_up_none_of_the_others(pool: &Pool) {
    const MANY: u64 = 150;
    let mut store = pool.open();
    for token in 1..=MANY {
        store.take_slot(&pool.take(MANY - 1, token)).expect("a slot");
    }
    let mut all: Vec<_> =
        (0..MANY).map(|slot| pool.renewal(slot, slot + 1, &[1_033], (900, 1_040))).collect();
    all.iter_mut().step_by(3).for_each(|renewal| renewal.lease_ms += 600_000);
    all[77] = pool.renewal(77, 999, &[1_033], (900, 1_040));
    let renewed = store.renew_slots(&all).expect("an answer");
    for (slot, mark) in renewed.marks.iter().enumerate() {
        assert_eq!(answered(mark), if slot == 77 { Err(FaultKind::Taken) } else { Ok(1_040) }, "slot {slot}");
    }
    let rows = store.slots(&pool.key).expect("the rows").slots;
    for row in &rows {
        assert_eq!(row.token, if row.slot == 77 { 78 } else { 900 }, "{row:?}");
        let longer = rows[0].ends_at.saturating_sub(row.ends_at);
        assert!(
            row.slot % 3 == 0 || row.slot == 77 || longer > 500,
            "slot {} ends {longer} ms earlier",
            row.slot
        );
    }
}

fn a_freed_slot_is_taken_first_and_begins_where_it_was_left(pool: &Pool) {
    let mut store = pool.open();
    for token in 11..14 {
        store.take_slot(&pool.take(9, token)).expect("a slot");
    }
    let freed = store.free_slots(&[pool.release(1, 12, 1_033, 1_001), pool.release(2, 99, 1_033, 1_001)]);
    assert_eq!(freed.expect("an answer"), [true, false], "only its owner frees a slot");
    let taken = store.take_slot(&pool.take(9, 15)).expect("a slot");
    assert_eq!((taken.slot, taken.start, taken.mark), (1, 1_001, 1_033));
    assert_eq!(
        store.free_slots(&[pool.release(1, 12, 1_033, 900)]).expect("an answer"),
        [false],
        "a late one"
    );
}

fn a_lease_that_ran_out_is_taken_over_at_its_mark(pool: &Pool) {
    let mut store = pool.open();
    let short = Take { lease_ms: 1, mark: 1_002, ..pool.take(0, 11) };
    assert_eq!(store.take_slot(&short).expect("a slot").slot, 0);
    let until = Instant::now() + Duration::from_secs(60);
    let taken = loop {
        match store.take_slot(&pool.take(0, 12)) {
            Ok(taken) => break taken,
            Err(fault) => assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}"),
        }
        assert!(Instant::now() < until, "the lease never ended");
    };
    assert_eq!((taken.slot, taken.start, taken.mark), (0, 1_002, 1_033));
    let late = store.renew_slots(&[pool.renewal(0, 11, &[1_002], (21, 1_050))]).expect("an answer");
    assert_eq!(answered(&late.marks[0]), Err(FaultKind::Taken));
}

fn a_lease_that_ran_out_and_was_not_taken_is_renewed(pool: &Pool) {
    let mut store = pool.open();
    let short = Take { lease_ms: 1, ..pool.take(0, 11) };
    store.take_slot(&short).expect("a slot");
    let late = store.renew_slots(&[pool.renewal(0, 11, &[1_033], (21, 1_050))]).expect("an answer");
    assert_eq!(answered(&late.marks[0]), Ok(1_050));
}

fn without_a_free_slot_the_holders_are_named(pool: &Pool) {
    let mut store = pool.open();
    for token in 11..13 {
        store.take_slot(&pool.take(1, token)).expect("a slot");
    }
    let refused = store.take_slot(&pool.take(1, 13)).expect_err("no slot is free");
    assert_eq!(refused.kind, FaultKind::NoneFree);
    let message = refused.to_string();
    assert!(message.contains("0 by host:11") && message.contains("1 by host:12"), "{message}");
    assert!(message.contains("the first lease ends in"), "{message}");
}

fn a_pool_keeps_one_layout(pool: &Pool) {
    let mut store = pool.open();
    store.take_slot(&pool.take(9, 11)).expect("a slot");
    let other = Take { layout: "another layout".into(), ..pool.take(9, 12) };
    let refused = store.take_slot(&other).expect_err("another layout");
    assert_eq!(refused.kind, FaultKind::Refused);
    assert!(refused.to_string().contains("`a layout of 63 bits`"), "{refused}");
}

fn a_repaired_pool_takes_its_workers_back_and_begins_each_later(pool: &Pool) {
    let mut store = pool.open();
    for token in 11..13 {
        store.take_slot(&pool.take(9, token)).expect("a slot");
    }
    assert_eq!(store.free_slots(&[pool.release(1, 12, 1_033, 900)]).expect("an answer"), [true]);
    let raise = |to: u64| RaisePool {
        key: pool.key.clone(),
        layout: "a layout of 63 bits".into(),
        store: StoreIndex::ONLY,
        to,
        token: 99,
    };
    let (_, planned) = store.would_raise_pool(&raise(1_002)).expect("a plan");
    assert_eq!(planned.slots.iter().map(|row| row.mark).collect::<Vec<_>>(), [1_033, 1_002]);
    assert_eq!(store.slots(&pool.key).expect("the rows").slots[1].mark, 900, "nothing was written");
    let (before, after) = store.raise_pool(&raise(1_002)).expect("repaired");
    assert_eq!((before.floor, after.floor), (0, 1_002));
    let rows = store.slots(&pool.key).expect("the rows");
    assert_eq!((rows.floor, &rows.record), (1_002, &after.record));
    assert_eq!(rows.slots, after.slots);
    let lost = store.renew_slots(&[pool.renewal(0, 11, &[1_033], (21, 1_050))]).expect("an answer");
    let lost = lost.marks[0].as_ref().expect_err("its token has changed");
    assert_eq!(lost.kind, FaultKind::Taken);
    assert!(lost.to_string().contains("keymill repair"), "{lost}");
    let used = store.take_slot(&pool.take(9, 13)).expect("the free slot");
    let new = store.take_slot(&pool.take(9, 14)).expect("a slot without a row");
    assert_eq!([(used.slot, used.start), (new.slot, new.start)], [(1, 1_002), (2, 1_002)]);
    assert_eq!(store.raise_pool(&raise(1_001)).expect_err("it would lower").kind, FaultKind::Refused);
    store.raise_pool(&raise(2_000)).expect("repaired again");
    let early = store.take_slot(&pool.take(9, 15)).expect_err("ahead of the clock");
    assert!(early.kind == FaultKind::NoneFree && early.to_string().contains("2000"), "{early}");
    let later = Take { latest_mark: 2_000, present: 2_000, mark: 2_033, ..pool.take(9, 15) };
    assert_eq!(store.take_slot(&later).expect("a slot").start, 2_000);
}

fn a_pool_whose_rows_are_gone_is_repaired(pool: &Pool) {
    let mut store = pool.open();
    let raise = RaisePool {
        key: pool.key.clone(),
        layout: "a layout of 63 bits".into(),
        store: StoreIndex::ONLY,
        to: 1_002,
        token: 99,
    };
    let (before, _) = store.raise_pool(&raise).expect("repaired");
    assert_eq!(before.record, None);
    let taken = store.take_slot(&pool.take(9, 11)).expect("a slot");
    assert_eq!((taken.slot, taken.start), (0, 1_002));
    let other = RaisePool { layout: "another layout".into(), to: 5_000, ..raise };
    assert_eq!(store.raise_pool(&other).expect_err("another layout").kind, FaultKind::Refused);
}

fn sixteen_connections_take_sixteen_slots(pool: &Pool) {
    let barrier = Barrier::new(16);
    let mut slots: Vec<u64> = std::thread::scope(|scope| {
        let takers: Vec<_> = (0..16)
            .map(|token| {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mut store = pool.open();
                    barrier.wait();
                    in_time(|| store.take_slot(&pool.take(15, token + 1))).expect("a slot").slot
                })
            })
            .collect();
        takers.into_iter().map(|taker| taker.join().expect("a taker")).collect()
    });
    slots.sort_unstable();
    assert_eq!(slots, (0..16).collect::<Vec<_>>());
}

/// Rows that only another program can have written. Whatever they say, no worker begins below where its row stood, and none is had by
/// two.
fn a_row_that_makes_no_sense_is_refused_or_passed_over(pool: &Pool) {
    let is_sql = !matches!(pool.bench.place, Place::Memory(_) | Place::Redis);
    let table = &pool.key.table;
    let nonsense: Vec<String> = match &pool.bench.place {
        // Nothing but this process writes to its memory.
        Place::Memory(_) => Vec::new(),
        Place::Redis => {
            let numbers = ["18446744073709551616 1 1", "-1 -1 -1", "7 \u{221e} 0", "0 x 0"];
            let numbers = numbers.map(|numbers| format!("{numbers} leased 1 1 tx a"));
            let others = [
                "",
                "x",
                "1 2",
                "1 2 3",
                "1 2 0 host:7 for tx",
                "1 2 0 lent 1 1 tx a",
                "1 2 0 leased 1 0 tx a",
            ];
            others.map(str::to_owned).into_iter().chain(numbers).collect()
        }
        place => {
            let mut sets = vec![
                "mark = 9223372036854775807",
                "ends_at = 9223372036854775807",
                "token = 0",
                "process = ''",
                "state = ''",
                "state = 'pool'",
                "stores = 0",
                "store = 2",
            ];
            if matches!(place, Place::Postgres | Place::Sqlite(..)) {
                sets.extend(["mark = -1", "ends_at = -1", "token = -9223372036854775808"]);
            }
            if matches!(place, Place::Sqlite(..)) {
                sets.extend(["mark = 'x'", "token = 1.5", "ends_at = x'00'"]);
            }
            sets.iter().map(|set| format!("UPDATE {table} SET {set} WHERE slot = 0")).collect()
        }
    };
    for (round, write) in nonsense.iter().enumerate() {
        let of_round = Key::pool(&pool.key.table, &format!("pool {round}"));
        let mut own = pool.take(9, 7);
        own.key = Arc::new(of_round);
        let first = in_time(|| pool.open().take_slot(&own)).expect("a slot");
        assert_eq!(first.slot, 0);
        if is_sql {
            assert_eq!(pool.bench.tamper(&format!("{write} AND pool = 'pool {round}'"), &[]), 1, "{write}");
        } else {
            let at = format!("{table}:pool {round}");
            let words = ["HSET", &at, "0", write];
            let _: u64 = keymill_tests::redis::say(
                &mut keymill_tests::redis::connection_of(&keymill_tests::redis::url()),
                &words,
            );
        }
        let other = Take { token: 8, owner: "host:8".into(), ..own.clone() };
        for _ in 0..2 {
            match in_time(|| pool.open().take_slot(&other)) {
                Ok(taken) => assert!(
                    taken.slot != 0 || taken.start >= first.mark,
                    "{write}: {taken:?} after {first:?}"
                ),
                Err(fault) => assert_eq!(fault.kind, FaultKind::Refused, "{write}: {fault}"),
            }
        }
        // Its owner may not go on as if nothing had happened to its mark.
        let left = vec![Left { token: 7, mark: lease::MARK }];
        let slot = OwnSlot { key: own.key.clone(), slot: 0, left, source: "".into() };
        let renewal =
            Renewal { own: slot, to: Left { token: 9, mark: lease::MARK + 10 }, lease_ms: LEASE_MS };
        if let Ok(renewed) = in_time(|| pool.open().renew_slots(std::slice::from_ref(&renewal)))
            && let Some(Ok(mark)) = renewed.marks.first()
        {
            assert!(*mark >= lease::MARK + 10, "{write}: renewed to {mark}");
        }
    }
}

/// Defines each function as a test for each store.
macro_rules! workers {
    ($($name:ident)*) => {
        workers!(@ memory, Bench::memory(Kind::Segment), $($name)*);
        workers!(@ sqlite, Bench::sqlite(Kind::Segment), $($name)*);
        workers!(@ mariadb, Bench::mariadb(Kind::Segment), $($name)*);
        workers!(@ tidb, Bench::tidb(Kind::Segment), $($name)*);
        workers!(@ postgres, Bench::postgres(Kind::Segment), $($name)*);
        workers!(@ redis, Bench::redis(Kind::Segment), $($name)*);
    };
    (@ $module:ident, $bench:expr, $($name:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $name() {
                    super::$name(&Pool::new($bench))
                }
            )*
        }
    };
}

workers! {
    a_slot_has_one_owner_and_another_process_gets_the_next
    the_clock_of_the_store_comes_with_each_answer
    a_fixed_worker_whose_clock_is_a_year_ahead_begins_ten_minutes_above_the_clock_of_the_store
    a_renewal_needs_a_token_and_a_mark_that_its_owner_wrote_together
    a_renewal_that_was_carried_out_and_is_sent_again_is_known_by_its_token
    a_clone_that_renews_at_the_same_moment_is_told_at_the_next_renewal
    several_leases_are_renewed_together_and_a_lost_one_does_not_hold_up_the_others
    many_leases_are_renewed_and_a_lost_one_holds_up_none_of_the_others
    a_freed_slot_is_taken_first_and_begins_where_it_was_left
    a_lease_that_ran_out_is_taken_over_at_its_mark
    a_lease_that_ran_out_and_was_not_taken_is_renewed
    without_a_free_slot_the_holders_are_named
    a_pool_keeps_one_layout
    sixteen_connections_take_sixteen_slots
    a_repaired_pool_takes_its_workers_back_and_begins_each_later
    a_pool_whose_rows_are_gone_is_repaired
    a_row_that_makes_no_sense_is_refused_or_passed_over
}
