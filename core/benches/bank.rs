//! What a bank of 65 536 counters costs: its first ids, its memory and its close. What an id from memory costs is in `hot`,
//! `-- --only business`.
//!
//! `ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo bench -p keymill --all-features --bench bank`.
//! A server whose variable is not set is left out. An absolute time is never a goal; the ratios are.
//!
//! `-- crowd [CALLERS]` runs processes that begin one bank together instead: how many calls fail, how long they wait, and how long
//! another source of the same mill waits. `-- silent` compares the rate of a bank on two stores while one of them is silent with its
//! rate before and after.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keymill::{EventKind, Gene, Mill, Source};

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

/// How long the callers of a crowd call.
const CROWDED: Duration = Duration::from_secs(10);

/// Latencies in microseconds.
fn waits(name: &str, mut micros: Vec<u64>) -> String {
    micros.sort_unstable();
    let at = |share: f64| micros[((micros.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    format!(
        "{} {name}: p50 {:.1} p99 {:.1} p99.9 {:.1} max {:.1} ms",
        micros.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    )
}

/// One process: callers over random keys, and a caller that opens a new segment source again and again.
fn crowd_member(url: &str, table: &str, callers: usize) {
    let (mill, bank) = open(url, &format!("business:crowd?counters={COUNTERS}&table={table}"));
    println!("ready");
    std::io::stdin().lock().read_line(&mut String::new()).expect("the start");
    let until = Instant::now() + CROWDED;
    let is_over = AtomicBool::new(false);
    let failed = std::sync::Mutex::new(BTreeMap::<String, u64>::new());
    let timed = |call: &mut dyn FnMut() -> keymill::Result<()>| {
        let mut micros = Vec::new();
        // ordering: Relaxed — nothing depends on when it is seen.
        while Instant::now() < until && !is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            if let Err(error) = call() {
                *failed.lock().expect("no caller panics").entry(format!("{error}")).or_default() += 1;
            }
            micros.push(began.elapsed().as_micros() as u64);
        }
        micros
    };
    let (callers, other) = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..callers)
            .map(|_| scope.spawn(|| timed(&mut || bank.next_for(fastrand::u64(..)).map(drop))))
            .collect();
        let other = scope.spawn(|| {
            let mut count = 0;
            timed(&mut || {
                count += 1;
                let name = format!("segment:{}-{count}?table={table}", std::process::id());
                let other = mill.source(&name)?.next();
                std::thread::sleep(Duration::from_millis(20));
                other.map(drop)
            })
        });
        let callers: Vec<u64> =
            callers.into_iter().flat_map(|caller| caller.join().expect("no caller panics")).collect();
        (callers, other.join().expect("it does not panic"))
    });
    let latency = mill.latency();
    let longest =
        latency.buckets.iter().find(|(_, count)| *count == latency.count).map_or(0.0, |(bound, _)| *bound);
    let refused = mill.events().into_iter().filter(|event| event.kind == EventKind::RefillFailed).count();
    println!(
        "{}; {} of another source; {refused} refills failed, {} conversations, {:.1} s of them, none above {longest:.3} s; failed calls: {:?}",
        waits("calls", callers),
        // Less the pause.
        waits("calls", other.into_iter().map(|micros| micros.saturating_sub(20_000)).collect()),
        latency.trips,
        latency.sum_seconds,
        failed.into_inner().expect("no caller panics")
    );
    mill.close();
}

fn crowd(server: &str, url: &str, table: &str, processes: usize, callers: &str) {
    let mill = Mill::open(url).expect("a mill");
    mill.init(&[&format!("segment:x?table={table}")], keymill::Change::Apply).expect("a table");
    mill.close();
    let program = std::env::current_exe().expect("this program");
    let mut members: Vec<_> = (0..processes)
        .map(|_| {
            let mut command = Command::new(&program);
            command
                .args(["--bench", "member", url, table, callers])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped());
            let mut child = command.spawn().expect("a process");
            let lines = std::io::BufReader::new(child.stdout.take().expect("its output")).lines();
            (child, lines)
        })
        .collect();
    for (_, lines) in &mut members {
        assert_eq!(lines.next().expect("a line").expect("text"), "ready");
    }
    for (child, _) in &mut members {
        child.stdin.take().expect("its input").write_all(b"go\n").expect("it reads");
    }
    for (mut child, mut lines) in members {
        println!("{server}, {processes} processes: {}", lines.next().expect("a line").expect("text"));
        child.wait().expect("it has ended");
    }
}

/// How long the rate of a bank is counted in each state of its stores, and how often all states are passed through.
const COUNTED: Duration = Duration::from_secs(10);
const ROUNDS: usize = 2;

/// Sends a signal to all processes of the PostgreSQL that `ci/servers/postgres run` has started.
fn postgres(verb: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../ci/servers/postgres");
    assert!(Command::new(script).arg(verb).status().expect("the script").success(), "{verb}");
}

/// The rate of a bank on MariaDB and PostgreSQL of which every id is reserved by itself, with PostgreSQL well, silent and well again.
fn one_silent(mysql: &str, postgres_url: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keymill.toml");
    let options = |url: &str| format!("{url}{}timeout=1s", if url.contains('?') { '&' } else { '?' });
    let text = format!("stores = [{:?}, {:?}]\n", options(mysql), options(postgres_url));
    std::fs::write(&file, text).expect("a file");
    // It holds a password.
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("its mode");
    let table = format!("bench_silent_{}", std::process::id());
    let spec = format!("business:silent?counters=4096&min_step=1&max_step=1&deadline=30s&table={table}");
    let mill = Mill::open(&format!("file:{}", file.display())).expect("a mill");
    mill.init(&[&spec], keymill::Change::Apply).expect("a table");
    let bank = mill.source(&spec).expect("a source");
    let issued = std::sync::atomic::AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                // ordering: Relaxed — nothing depends on when it is seen.
                while !is_over.load(Ordering::Relaxed) {
                    bank.next_for(fastrand::u64(..)).expect("an id");
                    // ordering: Relaxed — as above.
                    issued.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let rate = || {
            // ordering: Relaxed — as above.
            let (began, before) = (Instant::now(), issued.load(Ordering::Relaxed));
            std::thread::sleep(COUNTED);
            // ordering: Relaxed — as above.
            (issued.load(Ordering::Relaxed) - before) as f64 / began.elapsed().as_secs_f64()
        };
        // The rows of all counters are made ahead.
        rate();
        for _ in 0..ROUNDS {
            let before = rate();
            postgres("freeze");
            let first = rate();
            let silent = rate();
            postgres("thaw");
            // It rests for at most forty times as long as it was waited for.
            std::thread::sleep(Duration::from_secs(40));
            let after = rate();
            let well = f64::midpoint(before, after);
            println!(
                "MariaDB and PostgreSQL: {before:.0} ids/s; PostgreSQL silent {first:.0}, then {silent:.0}; well again {after:.0}: {:.2}, then {:.2} of the rate",
                first / well,
                silent / well
            );
        }
        // ordering: Relaxed — as above.
        is_over.store(true, Ordering::Relaxed);
    });
    mill.close();
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == "member") {
        return crowd_member(&args[at + 1], &args[at + 2], args[at + 3].parse().expect("a number"));
    }
    if !args.iter().any(|arg| arg == "--bench") {
        println!("a benchmark, not a test: cargo bench -p keymill --all-features --bench bank");
        return;
    }
    if args.iter().any(|arg| arg == "silent") {
        let url =
            |variable: &str| std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set"));
        return one_silent(&url("KEYMILL_TEST_MYSQL"), &url("KEYMILL_TEST_POSTGRES"));
    }
    if !args.iter().any(|arg| arg == "crowd") {
        let folder = tempfile::tempdir_in(".").expect("a folder on a real disk");
        let file = |round: usize| format!("sqlite:{}", folder.path().join(format!("{round}.db")).display());
        open_and_first_id("memory", &|_| "memory:".to_owned(), "");
        open_and_first_id("SQLite", &file, "");
        the_largest_bank("SQLite", &file(1_000), "");
    }
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
        if let Some(at) = args.iter().position(|arg| arg == "crowd") {
            let callers = args.get(at + 1).map_or("200", String::as_str);
            for processes in [2, 4] {
                crowd(server, &url, &format!("{table}_{processes}"), processes, callers);
            }
            continue;
        }
        let mill = Mill::open(&url).expect("a mill");
        mill.init(&[&format!("segment:x?table={table}")], keymill::Change::Apply).expect("a table");
        mill.close();
        open_and_first_id(server, &|_| url.clone(), &format!("&table={table}"));
        the_largest_bank(server, &url, &format!("&table={table}"));
    }
}
