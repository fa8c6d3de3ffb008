//! What a bank of 65 536 counters costs: its first ids, its memory and its close. What an id from memory costs is in `hot`,
//! `-- --only business`.
//!
//! `ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo bench -p keymill --all-features --bench bank`.
//! A server whose variable is not set is left out. An absolute time is never a goal; the ratios are.

use std::hint::black_box;
use std::time::{Duration, Instant};

use keymill::{Gene, Mill, Source};

const COUNTERS: u32 = 65_536;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn open(config: &str, spec: &str) -> (Mill, Source) {
    let mill = Mill::open(config).expect("a mill");
    let source = mill.source(spec).expect("a source");
    (mill, source)
}

fn open_and_first_id(name: &str, config: &dyn Fn(usize) -> String, table: &str) {
    let time = |counters: u32, round: usize| {
        let began = Instant::now();
        let (mill, bank) =
            open(&config(round), &format!("business:first{round}x{counters}?counters={counters}{table}"));
        black_box(bank.next_for(42).expect("an id"));
        let took = began.elapsed().as_secs_f64() * 1e3;
        mill.close();
        took
    };
    let pairs: Vec<(f64, f64)> = (0..15).map(|round| (time(1, round), time(COUNTERS, round))).collect();
    let ratio = median(pairs.iter().map(|(one, all)| all / one).collect());
    let one = median(pairs.iter().map(|pair| pair.0).collect());
    println!(
        "{name}: open and first id {one:.2} ms with 1 counter, {ratio:.2} times as long with {COUNTERS}"
    );
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn the_largest_bank(name: &str, config: &str, table: &str) {
    let spec = format!("business:big?counters={COUNTERS}&deadline=60s{table}");
    for round in 1..=2 {
        let (mill, bank) = open(config, &spec);
        // The connection and its buffers are no cost of the bank.
        bank.next_for(42).expect("an id");
        let before = resident_kib();
        let began = Instant::now();
        let mut lacking: Vec<Gene> = (0..=u16::MAX).map(Gene::from).collect();
        while !lacking.is_empty() {
            lacking.retain(|gene| bank.try_next_of(*gene).is_err());
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(lacking);
        let (first, after) = (began.elapsed(), resident_kib());
        let trips = mill.latency().trips;
        let began = Instant::now();
        mill.close();
        println!(
            "{name}, round {round}: {COUNTERS} first ids {first:.2?} in {trips} conversations, {} KiB, close {:.2?}",
            after.saturating_sub(before),
            began.elapsed()
        );
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if !args.iter().any(|arg| arg == "--bench") {
        println!("a benchmark, not a test: cargo bench -p keymill --all-features --bench bank");
        return;
    }
    let folder = tempfile::tempdir_in(".").expect("a folder on a real disk");
    let file = |round: usize| format!("sqlite:{}", folder.path().join(format!("{round}.db")).display());
    open_and_first_id("memory", &|_| "memory:".to_owned(), "");
    open_and_first_id("SQLite", &file, "");
    the_largest_bank("SQLite", &file(1_000), "");
    for (server, variable) in [
        ("MariaDB", "KEYMILL_TEST_MYSQL"),
        ("PostgreSQL", "KEYMILL_TEST_POSTGRES"),
        ("Redis", "KEYMILL_TEST_REDIS"),
    ] {
        let Ok(url) = std::env::var(variable) else {
            println!("{variable} is not set: {server} is left out");
            continue;
        };
        let table = format!("bench_bank_{}", std::process::id());
        let mill = Mill::open(&url).expect("a mill");
        mill.init(&[&format!("segment:x?table={table}")], keymill::Change::Apply).expect("a table");
        mill.close();
        open_and_first_id(server, &|_| url.clone(), &format!("&table={table}"));
        the_largest_bank(server, &url, &format!("&table={table}"));
    }
}
