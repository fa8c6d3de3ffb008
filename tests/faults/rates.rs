//! The adaptive step and the runway under real rates, on a real MariaDB and a real SQLite file.
//!
//! The rules for a source from which ids are taken at a steady rate q, with T = q × `buffer`, or 4 × `max_step` ÷ 1.2 where
//! that is less:
//! * T is a floor: a refill is due when 31/30 of T are left and fills up to 6/5 of T, so an outage as long as `buffer` is
//!   served from memory whenever it begins, unless the refill before it took longer than a thirtieth of `buffer`;
//! * so numbers in memory and unused stay under 6/5 of T and two least steps, and under 4 × `max_step` at any rate;
//! * a refill is worth a sixth of T: at 100 000 ids/s and 30 s that is 500 000 numbers, two round trips a million ids;
//! * a rate that rises is known a second later. Until then a refill without a waiting caller pauses for an eighth of the
//!   time that it fills up, a second at most, unless less than an eighth of that is left; so every rate settles within a
//!   few refills.
//!
//! These rules are about time, and are asserted in virtual time: `tests/simulation/ramp.rs`, and the ledger's bound on
//! unused numbers. The tests here assert what a busy machine cannot break: no error, no number lost, no flood of refills.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use keymill::{Change, Mill, Source, Stats};
use keymill_tests::ci::patient;
use keymill_tests::mariadb::{self, Private};
use keymill_tests::postgres;

const PATIENCE: Duration = Duration::from_secs(180);

fn unique(name: &str) -> String {
    format!("{name}_{}_{}", std::process::id(), fastrand::u32(..))
}

fn stats(source: &Source) -> Stats {
    source.stats().expect("figures")
}

/// Both real stores: an existing MariaDB, a new file.
fn stores(folder: &tempfile::TempDir) -> [(&'static str, Mill); 2] {
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    [("mariadb", mariadb::url()), ("sqlite", file)].map(|(name, config)| {
        let mill = Mill::open(&patient(&config)).expect("a mill");
        mill.init(&[], Change::Apply).expect("init");
        (name, mill)
    })
}

/// Takes batches at a pace until it is stopped; after too long a pause it catches up.
struct Pace {
    per_second: u64,
    batch: usize,
    stop: AtomicBool,
    taken: AtomicU64,
}

/// Stops the taker when it is dropped, in a failed test too: a scope waits for its threads.
struct Stop<'a>(&'a Pace);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        // ordering: Relaxed — a flag.
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

impl Pace {
    fn of(per_second: u64) -> Pace {
        // A batch a millisecond at most: more would measure the thread's wake-up.
        let batch = usize::try_from(per_second / 1000).expect("small").clamp(1, 100_000);
        Pace { per_second, batch, stop: AtomicBool::new(false), taken: AtomicU64::new(0) }
    }

    fn taken(&self) -> u64 {
        // ordering: Relaxed — a counter.
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes until the first error, which it returns.
    fn run(&self, source: &Source) -> Result<(), keymill::Error> {
        let began = Instant::now();
        let mut buffer = vec![0; self.batch];
        // ordering: Relaxed — a flag.
        while !self.stop.load(Ordering::Relaxed) {
            source.fill(&mut buffer)?;
            // ordering: Relaxed — a counter.
            let taken = self.taken.fetch_add(self.batch as u64, Ordering::Relaxed) + self.batch as u64;
            let due = Duration::from_secs_f64(taken as f64 / self.per_second as f64);
            if let Some(early) = due.checked_sub(began.elapsed()) {
                thread::park_timeout(early);
            }
        }
        Ok(())
    }
}

#[test]
fn a_cold_source_reserves_no_more_than_the_least_step() {
    let folder = tempfile::tempdir().expect("a folder");
    for (store, mill) in stores(&folder) {
        for (options, most) in [("", 800), ("&min_step=10", 10), ("&step=500", 500)] {
            let spec = format!("segment:{}?deadline=60s{options}", unique("cold"));
            let orders = mill.source(&spec).expect("a source");
            orders.next().expect("an id");
            let now = stats(&orders);
            assert!(now.reserved <= most, "{store} {options}: one id reserved {}", now.reserved);
            assert_eq!(now.refills, 1, "{store} {options}");
        }
    }
}

/// What a program did that takes 300 ids and ends.
struct Program {
    /// From its first call to its last id.
    took: Duration,
    /// Reserved and not used, when it ended.
    ahead: u64,
}

impl Program {
    fn run(config: &str, spec: &str) -> Program {
        let began = Instant::now();
        let mill = Mill::open(config).expect("a mill");
        let orders = mill.source(spec).expect("a source");
        for _ in 0..300 {
            orders.next().expect("an id");
        }
        let (took, ahead) = (began.elapsed(), stats(&orders).reserved - 300);
        mill.close();
        Program { took, ahead }
    }

    /// Use that goes on for a second is a rate, for which more is kept ahead.
    fn was_a_burst(&self) -> bool {
        self.took < Duration::from_secs(1)
    }
}

#[test]
fn twenty_programs_that_take_300_ids_each_at_once_lose_no_more_than_twice_what_they_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    for config in [mariadb::url(), postgres::url(), file] {
        let config = patient(&config);
        let began = Instant::now();
        let mut bursts = 0;
        // On a busy machine some of them take longer than a second: their rate counts, and others take their place.
        while bursts < 20 {
            assert!(began.elapsed() < PATIENCE, "{bursts} programs took less than a second");
            let spec = format!("segment:{}?deadline=60s", unique("deploy"));
            let next = |mill: &Mill| mill.source(&spec).and_then(|source| source.next()).expect("an id");
            let first = Mill::open(&config).expect("a mill");
            first.init(&[], Change::Apply).expect("init");
            let before = next(&first);
            first.close();
            let start = Barrier::new(20);
            let run = || {
                start.wait();
                Program::run(&config, &spec)
            };
            let programs: Vec<Program> = thread::scope(|scope| {
                let running: Vec<_> = (0..20).map(|_| scope.spawn(run)).collect();
                running.into_iter().map(|program| program.join().expect("a program")).collect()
            });
            let lost = next(&Mill::open(&config).expect("a mill")) - before - 1 - 20 * 300;
            let (quick, slow): (Vec<_>, Vec<_>) = programs.iter().partition(|program| program.was_a_burst());
            assert!(
                quick.iter().all(|program| program.ahead <= 800 - 300),
                "more than `min_step` was reserved"
            );
            let of_rates = slow.iter().map(|program| program.ahead).sum::<u64>();
            assert!(lost <= 2 * 20 * 300 + of_rates, "{lost} lost, {of_rates} of them by rates");
            let store = config.split(':').next().unwrap_or_default();
            println!("{store}: {lost} lost, at most {of_rates} of them by {} rates", slow.len());
            bursts += quick.len();
        }
    }
}

#[test]
fn every_rate_is_served_from_cold_and_after_silence_without_a_flood_of_refills() {
    let folder = tempfile::tempdir().expect("a folder");
    for (store, mill) in stores(&folder) {
        for (rate, seconds) in [2_000, 100_000, 5_000_000].into_iter().flat_map(|r| [(r, 30), (r, 1)]) {
            let spec = format!("segment:{}?buffer={seconds}s&deadline=60s", unique("rate"));
            let source = mill.source(&spec).expect("a source");
            for from in ["from cold", "after silence"] {
                let (pace, before, began) = (Pace::of(rate), stats(&source), Instant::now());
                let mut most_unused = 0;
                thread::scope(|scope| {
                    let taker = scope.spawn(|| pace.run(&source));
                    let stop = Stop(&pace);
                    while began.elapsed() < Duration::from_secs(2) || pace.taken() < rate {
                        assert!(!taker.is_finished(), "{store} at {rate} {from}: {:?}", taker.join());
                        assert!(began.elapsed() < PATIENCE, "{store} at {rate} {from}: {}", pace.taken());
                        most_unused = most_unused.max(stats(&source).left);
                        thread::park_timeout(Duration::from_millis(1));
                    }
                    drop(stop);
                    taker.join().expect("no panic").expect("no error");
                });
                let (now, took) = (stats(&source), began.elapsed());
                let refills = now.refills - before.refills;
                println!(
                    "{store:8} {rate:7} {seconds:2} s {from:13} {refills:4} refills, {most_unused:9} unused at most"
                );
                // Each refill takes an eighth of the buffer at least, or was urgent: then it quadrupled the numbers in
                // memory.
                let most = 30.0 + 8.0 * took.as_secs_f64() / f64::from(seconds);
                assert!((refills as f64) < most, "{store} at {rate} {from}: {refills} refills in {took:?}");
                assert!(most_unused <= 40_000_000 + 2_000, "{store} at {rate} {from}: {most_unused} unused");
            }
        }
    }
}

#[test]
fn a_burst_after_silence_does_not_fail() {
    let folder = tempfile::tempdir().expect("a folder");
    for (store, mill) in stores(&folder) {
        let spec = format!("segment:{}?buffer=100ms&deadline=60s", unique("burst"));
        let orders = mill.source(&spec).expect("a source");
        orders.next().expect("an id");
        for burst in [5_000, 200_000, 3_000_000] {
            // Until the keeper has forgotten the last burst: a whole window of its samples.
            let silence = Instant::now();
            while silence.elapsed() < Duration::from_millis(1500) {
                thread::park_timeout(Duration::from_millis(50));
            }
            let began = Instant::now();
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for _ in 0..burst / 4 / 500 {
                            orders.take(500).expect("a batch of a burst");
                        }
                    });
                }
            });
            println!(
                "{store}: a burst of {burst} after silence took {:?}, {} refills",
                began.elapsed(),
                stats(&orders).refills
            );
        }
    }
}

/// Sum of a counter in a mill's metrics.
fn metric(mill: &Mill, name: &str) -> u64 {
    let text = mill.metrics();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines
        .map(|line| line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("a figure") as u64)
        .sum()
}

#[test]
fn an_outage_is_served_from_memory_to_the_last_number() {
    let server = Private::start("");
    let mill = Mill::open(&patient(&server.url())).expect("a mill");
    mill.init(&[], Change::Apply).expect("init");
    let orders = mill.source("segment:orders?buffer=3s&deadline=20s").expect("a source");
    let pace = Pace::of(100_000);
    thread::scope(|scope| {
        let taker = scope.spawn(|| pace.run(&orders));
        let _stop = Stop(&pace);
        let began = Instant::now();
        while stats(&orders).runway_seconds.is_none_or(|s| s < 3.0) {
            assert!(began.elapsed() < PATIENCE, "the buffer never fills: {:?}", stats(&orders));
            assert!(!taker.is_finished(), "{:?}", taker.join());
            thread::park_timeout(Duration::from_millis(1));
        }
        // The outage begins here: the time of the kill itself is part of it.
        let (served_before, left) = (pace.taken(), stats(&orders).left);
        server.kill();
        // The taker ends with its first error, which must not come before the runway has ended.
        let down = Instant::now();
        while !taker.is_finished() {
            assert!(down.elapsed() < PATIENCE, "ids without end and without a store");
            thread::park_timeout(Duration::from_millis(1));
        }
        let (served, end) = (pace.taken() - served_before, stats(&orders));
        println!("outage: {left} were left, {served} ids from memory in {:?}", down.elapsed());
        // A last batch that cannot be filled is refused as a whole.
        assert!(end.left < pace.batch as u64, "{} were left when an error came", end.left);
        assert!(served + 2 * pace.batch as u64 >= left, "{served} of {left}");
        let error = taker.join().expect("no panic").expect_err("the runway ended");
        println!("outage: then {error}");
    });
}

#[test]
fn a_thousand_sources_share_one_connection_and_their_refills_go_in_one_run() {
    // A private server: its connections are counted.
    let server = Private::start("");
    let mill = Mill::open(&patient(&server.url())).expect("a mill");
    mill.init(&[], Change::Apply).expect("init");
    let name = unique("many");
    let sources: Vec<Source> = (0..1000)
        .map(|n| format!("segment:{name}-{n}?min_step=10&buffer=1ms&deadline=60s"))
        .map(|spec| mill.source(&spec).expect("a source"))
        .collect();
    let connections = || -> u64 {
        use mysql::prelude::Queryable;
        let mut connection = mariadb::connection_of(&server.url());
        connection
            .query_first("SELECT COUNT(*) FROM information_schema.PROCESSLIST")
            .expect("a count")
            .expect("a row")
    };
    let before = connections();
    let cold = Instant::now();
    for source in &sources {
        source.next().expect("an id");
    }
    let (cold, trips) = (cold.elapsed(), metric(&mill, "keymill_refill_seconds_count"));
    // All at once: each needs more numbers than it has.
    let warm = Instant::now();
    thread::scope(|scope| {
        for part in sources.chunks(250) {
            scope.spawn(move || {
                for source in part {
                    source.take(10).expect("a batch that has to be reserved");
                }
            });
        }
    });
    let (warm, all) = (warm.elapsed(), metric(&mill, "keymill_refill_seconds_count"));
    println!(
        "1000 sources, one connection: {trips} first reservations in {cold:?}, {} refills in {warm:?}, {:?} each",
        all - trips,
        warm / u32::try_from(all - trips).expect("few")
    );
    assert!(connections() <= before + 2, "one connection of the mill, and this test's");
    assert!(all - trips <= 1100, "a refill each: {}", all - trips);
}

#[test]
fn a_hundred_new_sources_at_once_need_a_reservation_or_two_each() {
    let mill = Mill::open(&patient(&mariadb::url())).expect("a mill");
    mill.init(&[], Change::Apply).expect("init");
    let name = unique("flood");
    let together = Barrier::new(100);
    let waits = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for n in 0..100 {
            let (mill, name, together, waits) = (&mill, &name, &together, &waits);
            scope.spawn(move || {
                together.wait();
                let asked = Instant::now();
                let source = mill.source(&format!("segment:{name}-{n}?deadline=60s")).expect("a source");
                source.next().expect("a first id");
                waits.lock().expect("no taker panics").push(asked.elapsed());
            });
        }
    });
    let mut waits = waits.into_inner().expect("no taker panics");
    waits.sort_unstable();
    let refills = metric(&mill, "keymill_refill_seconds_count");
    println!(
        "100 new sources at once: median first id after {:?}, worst {:?}, {refills} refills",
        waits[50], waits[99]
    );
    // The disk decides how fast that is: the slowest waits for a hundred reservations at most, and for no other round trip.
    assert!(refills <= 200, "{refills} refills for a hundred first ids");
    assert_eq!(metric(&mill, "keymill_refills_failed_total"), 0);
}
