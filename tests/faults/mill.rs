//! The promises of a mill under faults of processes, servers, wires and clocks: real files, a real MariaDB, real kills.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Kind, Mill, Source};
use keymill_tests::ci::patient;
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::takers::{self, persistently};
use keymill_tests::{mariadb, postgres, worker};
use mysql::prelude::Queryable;

const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until a condition holds; panics with its name after a time limit.
fn until(what: &str, is_true: impl FnMut() -> bool) {
    takers::until(what, PATIENCE, is_true);
}

fn unique(name: &str) -> String {
    format!("{name}_{}_{}", std::process::id(), fastrand::u32(..))
}

fn open(config: &str) -> Mill {
    Mill::open(config).expect("a mill")
}

fn source(mill: &Mill, spec: &str) -> Source {
    mill.source(spec).expect("a source")
}

fn file(folder: &tempfile::TempDir) -> String {
    format!("sqlite:{}", folder.path().join("ids.db").display())
}

// ---- processes killed ----

#[test]
fn a_worker_process_takes_until_it_is_killed() {
    worker::work();
}

/// Kills workers at random, `kills` times, four at a time on each spec, and checks the union of what they logged.
fn kill_workers(config: &str, specs: &[String], kills: usize) -> usize {
    let mut total = 0;
    for spec in specs {
        let folder = tempfile::tempdir().expect("a folder");
        let log = |n: usize| folder.path().join(format!("{n}.ids"));
        let begin = |n: usize| {
            worker::start("mill::a_worker_process_takes_until_it_is_killed", config, spec, &log(n))
        };
        let mut running: Vec<_> = (0..4).map(|n| (n, begin(n))).collect();
        for kill in 0..kills / specs.len() {
            let victim = fastrand::usize(..running.len());
            let (n, mut child) = running.swap_remove(victim);
            // The worker must have begun, and is then killed at a random moment.
            until(&format!("worker {n} takes ids"), || {
                if let Ok(Some(status)) = child.try_wait() {
                    let why = std::fs::read_to_string(log(n).with_extension("stderr")).unwrap_or_default();
                    panic!("worker {n} ended by itself: {status}\n{why}");
                }
                std::fs::metadata(log(n)).is_ok_and(|m| m.len() > 0)
            });
            thread::sleep(Duration::from_micros(fastrand::u64(..20_000)));
            child.kill().expect("a worker can be killed");
            child.wait().expect("a killed worker ends");
            running.push((kill + 4, begin(kill + 4)));
        }
        for (_, mut child) in running {
            child.kill().expect("a worker can be killed");
            child.wait().expect("a killed worker ends");
        }
        let ids = worker::count_distinct(folder.path());
        println!("{spec}: {} kills, {ids} ids, 0 duplicates", kills / specs.len());
        total += ids;
    }
    total
}

#[test]
fn two_hundred_kills_on_sqlite_leave_no_duplicate() {
    let folder = tempfile::tempdir().expect("a folder");
    let specs = [
        "segment:orders?min_step=50".to_owned(),
        "segment:threads?order=thread&block=16&min_step=64".to_owned(),
        "serial:cust_info/custid?number=0000000000&step=100".to_owned(),
        "serial:own/scheme?number=0000000000&scheme=keymill&step=50".to_owned(),
    ];
    assert!(kill_workers(&file(&folder), &specs, 200) > 1000);
}

#[test]
fn fifty_kills_on_mariadb_leave_no_duplicate() {
    let specs = [
        format!("segment:{}?min_step=50", unique("orders")),
        format!("serial:{}/custid?number=0000000000&step=100", unique("cust")),
    ];
    let mill = open(&patient(&mariadb::url()));
    let names: Vec<&str> = specs.iter().map(String::as_str).collect();
    mill.init(&names, Change::Apply).expect("init");
    // The first turn of a worker is twenty ids or one serial; a busy machine may leave no time for another.
    assert!(kill_workers(&mariadb::url(), &specs, 50) > 500);
}

// ---- answers lost ----

fn through(proxy: &Proxy, timeout: &str) -> String {
    let (host, port) = proxy.address();
    let url = mariadb::url();
    let (login, place) = url.rsplit_once('@').expect("a login");
    let database = place.split_once('/').expect("a database").1;
    format!("{login}@{host}:{port}/{database}?timeout={timeout}&connect_timeout={timeout}")
}

#[test]
fn a_lost_answer_burns_its_range_and_no_number_comes_twice() {
    let proxy = Proxy::start(mariadb::options().hosts[0].clone());
    let mill = open(&through(&proxy, "20s"));
    mill.init(&[], Change::Apply).expect("init");
    let orders = source(&mill, &format!("segment:{}?step=10&buffer=1ms&deadline=60s", unique("cut")));
    let mut got = HashSet::new();
    for round in 0..40 {
        proxy.set(Answers::CutAfter(round % 5));
        for id in orders.take(25).expect("ids in spite of cut answers") {
            assert!(got.insert(id), "{id} was handed out twice");
        }
    }
    assert!(got.iter().max() > Some(&1000), "no range was burnt, so nothing was tested");
}

#[test]
fn a_silent_server_delays_no_caller_past_its_deadline() {
    let proxy = Proxy::start(mariadb::options().hosts[0].clone());
    let mill = open(&through(&proxy, "500ms"));
    persistently(|| mill.init(&[], Change::Apply)).expect("init");
    let orders = source(&mill, &format!("segment:{}?deadline=60s", unique("silent")));
    orders.next().expect("the first id");
    let cold = source(&mill, &format!("segment:{}?deadline=400ms", unique("cold")));
    proxy.set(Answers::Hold);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                let asked = Instant::now();
                let error = cold.next().expect_err("nobody answers");
                assert!(matches!(error.code, Code::Deadline | Code::StoreUnavailable), "{error}");
                // The machine may be busy; the server stays silent as long as a caller waits.
                assert!(asked.elapsed() < Duration::from_secs(30), "waited {:?}", asked.elapsed());
                assert!(error.retry_after.is_some());
            });
        }
    });
    // Numbers in memory are still issued.
    assert!(orders.next().is_ok());
    proxy.set(Answers::Pass);
    until("the cold source has an id", || cold.next().is_ok());
}

// ---- rows that another mill has begun anew ----

#[test]
fn what_a_mill_has_left_at_its_end_is_not_returned_to_a_row_that_another_one_began_anew() {
    for spec in [
        "segment:orders?deadline=60s&step=100",
        "serial:cust_info/custid?number=000000&zone=UTC&scheme=keymill&deadline=60s&step=100",
        "business:order?counters=1&deadline=60s&step=100",
    ] {
        for deletes_file in [false, true] {
            let folder = tempfile::tempdir().expect("a folder");
            let first = open(&file(&folder));
            let take = |mill: &Mill, count| {
                let source = source(mill, spec);
                let next = |_| match source.kind() {
                    Kind::Serial => source.next_text(),
                    Kind::Business => source.next_for(7_u64).map(|id| id.to_string()),
                    _ => source.next().map(|id| id.to_string()),
                };
                (0..count).map(next).collect::<Result<Vec<_>, _>>().expect("ids")
            };
            take(&first, 1);
            if deletes_file {
                for end in ["", "-wal", "-shm"] {
                    let _ = std::fs::remove_file(folder.path().join(format!("ids.db{end}")));
                }
            } else {
                let db = rusqlite::Connection::open(folder.path().join("ids.db")).expect("the file opens");
                db.execute("DELETE FROM keymill_segment", []).expect("the rows are deleted");
            }
            let second = open(&file(&folder));
            let mut ids = take(&second, 90);
            first.close();
            ids.extend(take(&open(&file(&folder)), 90));
            let distinct: HashSet<_> = ids.iter().collect();
            assert_eq!(distinct.len(), ids.len(), "{spec}, file deleted: {deletes_file}");
        }
    }
}

// ---- rows that went backwards, under a running mill ----

#[test]
fn a_row_set_back_or_deleted_under_a_running_mill_is_refused_until_it_is_repaired() {
    let folder = tempfile::tempdir().expect("a folder");
    let mill = open(&file(&folder));
    let spec = "segment:orders?deadline=60s&step=10";
    let orders = source(&mill, spec);
    assert_eq!(orders.take(15).expect("ids").last(), Some(&15));
    let db = rusqlite::Connection::open(folder.path().join("ids.db")).expect("the file opens");
    db.busy_timeout(PATIENCE).expect("a timeout");
    db.execute("UPDATE keymill_segment SET next = 3", []).expect("the row is set back");
    orders.take(5).expect("what is in memory is still good");
    let error = (0..10_000).find_map(|_| orders.next().err()).expect("the row went backwards");
    assert_eq!(error.code, Code::StoreWentBackwards, "{error}");
    let command = format!("`keymill --mill '{}' repair '{spec}' --to N --yes`", file(&folder));
    assert!(error.message.contains(&command), "{error}");
    let row: i64 = db.query_row("SELECT next FROM keymill_segment", [], |r| r.get(0)).expect("the row");
    assert_eq!(row, 3, "a refused row is left as it is");
    orders.repair(100_000, Change::Apply).expect("repair");
    until("the repaired row serves", || orders.next().is_ok_and(|id| id >= 100_000));
    db.execute("DELETE FROM keymill_segment", []).expect("the row is deleted");
    until("the deleted row is noticed", || orders.next().is_err_and(|e| e.code == Code::StoreWentBackwards));
}

// ---- clocks ----

/// 2026-11-20T23:59:50Z
const BEFORE_MIDNIGHT: i64 = 1_795_219_190_000;
const DAY_MS: i64 = 86_400_000;

/// Stops takers when it is dropped, in a failed test too: a scope waits for its threads.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn midnight_over(config: &str, spec: &str) {
    let mill = open(&format!("{config}?clock=manual@{BEFORE_MIDNIGHT}"));
    let serials = source(&mill, &format!("{spec}&deadline=60s"));
    let got = Mutex::new(Vec::new());
    let stop = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..8 {
            scope.spawn(|| {
                let mut mine = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    mine.push(serials.next_text().expect("a serial"));
                    count.fetch_add(1, Ordering::Relaxed);
                    if mine.len().is_multiple_of(8) {
                        // Eight threads at full speed would keep the clock's thread from a processor.
                        thread::sleep(Duration::from_micros(50));
                    }
                }
                assert!(mine.is_sorted_by(|a, b| a[..8] <= b[..8]), "a thread saw the date go back");
                got.lock().expect("no taker panics").extend(mine);
            });
        }
        for _ in 0..150 {
            let before = count.load(Ordering::Relaxed);
            until("serials flow", || count.load(Ordering::Relaxed) > before + 100);
            mill.advance_clock(100).expect("a manual clock");
        }
    });
    let got = got.into_inner().expect("no taker panics");
    let distinct: HashSet<_> = got.iter().collect();
    assert_eq!(distinct.len(), got.len(), "a serial was handed out twice");
    let of_day = |day: &str| got.iter().filter(|s| s.starts_with(day)).count();
    assert!(of_day("20261120") > 1000 && of_day("20261121") > 1000);
    assert_eq!(of_day("20261120") + of_day("20261121"), got.len());
    // A number between two segments may be lost, so under eight threads the very first may be missing.
    let first = got.iter().filter(|s| s.starts_with("20261121")).min().expect("serials of the new day");
    assert!(first[8..] < *"0000000050", "a new day starts at 1, not at {first}");
}

#[test]
fn midnight_under_eight_threads_gives_each_serial_once_and_under_its_own_day() {
    let folder = tempfile::tempdir().expect("a folder");
    for spec in [
        "serial:a/b?zone=UTC&number=0000000000",
        "serial:a/c?zone=UTC&number=0000000000&order=thread&block=32",
        "serial:a/d?zone=UTC&number=0000000000&scheme=keymill",
    ] {
        midnight_over("memory:", spec);
        midnight_over(&file(&folder), spec);
    }
}

#[test]
fn two_mills_share_a_serial_over_midnight_with_clocks_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let clock = |ms: i64| format!("{}?clock=manual@{ms}", file(&folder));
    let early = open(&clock(BEFORE_MIDNIGHT + 9_900));
    let late = open(&clock(BEFORE_MIDNIGHT + 7_000));
    let spec = "serial:a/b?zone=UTC&number=000000&step=5&skew=5s&deadline=60s";
    let (at_early, at_late) = (source(&early, spec), source(&late, spec));
    let mut got = HashSet::new();
    for _ in 0..60 {
        for serials in [&at_early, &at_late] {
            for _ in 0..7 {
                let serial = serials.next_text().expect("a serial");
                assert!(got.insert(serial.clone()), "{serial} was handed out twice");
            }
        }
        early.advance_clock(100).expect("a manual clock");
        late.advance_clock(100).expect("a manual clock");
    }
    assert!(got.iter().any(|s| s.starts_with("20261120")) && got.iter().any(|s| s.starts_with("20261121")));
}

#[test]
fn a_clock_set_back_a_little_goes_on_and_by_more_than_the_skew_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let after = BEFORE_MIDNIGHT + 10_500;
    let mill = open(&format!("{}?clock=manual@{after}", file(&folder)));
    let serials = source(&mill, "serial:a/b?zone=UTC&number=000000&step=5&deadline=60s");
    let mut got = HashSet::new();
    let mut take = |n: usize| -> Result<(), keymill::Error> {
        for _ in 0..n {
            let serial = serials.next_text()?;
            assert!(serial.starts_with("20261121"), "{serial}");
            assert!(got.insert(serial.clone()), "{serial} was handed out twice");
        }
        Ok(())
    };
    take(12).expect("serials");
    // Half a second before midnight again: within the skew, the row's day is used.
    mill.set_clock(after - 1_000).expect("a manual clock");
    take(12).expect("a step back of one second is within the skew");
    for back in [600_000, 2 * DAY_MS] {
        mill.set_clock(after - back).expect("a manual clock");
        let error = take(100_000).expect_err("the clock is far behind the row");
        assert_eq!(error.code, Code::ClockBehind, "{error}");
        mill.set_clock(after + back / 1000).expect("a manual clock");
        mill.advance_clock(10_000).expect("a manual clock");
        until("the clock is right again", || take(12).is_ok());
    }
}

#[test]
fn a_snowflake_restarted_after_leading_the_clock_repeats_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let now = BEFORE_MIDNIGHT;
    let mut got = HashSet::new();
    // Its clock does not advance, so every id beyond the first tick leads it.
    for (round, wall) in [now, now + 1, now + 40, now - 1_000].into_iter().enumerate() {
        let mill = open(&format!("{}?clock=manual@{wall}", file(&folder)));
        // The later ones wait in vain for their clock, as long as that.
        let deadline = if round == 0 { "60s" } else { "3s" };
        let tx = source(&mill, &format!("snowflake:tx?worker=3&deadline={deadline}"));
        let mut mine = 0;
        while let Ok(id) = tx.next() {
            assert!(got.insert(id), "round {round}: {id} was handed out twice");
            mine += 1;
            if mine == 200_000 {
                break;
            }
        }
        assert!(round > 0 || mine == 200_000, "round {round}: {mine} ids");
        // A crash: nothing is closed, nothing is given back.
        std::mem::forget(tx);
        std::mem::forget(mill);
    }
    for back in [600_000, 2 * DAY_MS] {
        let mill = open(&format!("{}?clock=manual@{}", file(&folder), now - back));
        let tx = source(&mill, "snowflake:tx?worker=3&deadline=3s");
        let error = persistently(|| tx.next()).expect_err("the clock is far behind");
        assert_eq!(error.code, Code::ClockBehind, "{error}");
    }
}

#[test]
fn a_second_process_with_the_same_worker_is_noticed() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("{}?clock=manual@{BEFORE_MIDNIGHT}", file(&folder));
    let (one, two) = (open(&config), open(&config));
    let spec = "snowflake:tx?worker=3&deadline=3s";
    let (first, second) = (source(&one, spec), source(&two, spec));
    persistently(|| first.next()).expect("the first mill's id");
    // It begins above the first one's mark, which is three seconds ahead.
    two.advance_clock(4_000).expect("a manual clock");
    persistently(|| second.next()).expect("the second mill's id");
    until("the first mill stops", || {
        one.advance_clock(1_500).expect("a manual clock");
        first.next().is_err_and(|e| e.code == Code::LeaseLost)
    });
}

// ---- close ----

#[test]
fn closing_under_sixteen_threads_answers_closed_to_all_and_returns_only_unused_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut all = HashSet::new();
    for _ in 0..10 {
        let mill = open(&file(&folder));
        let orders = source(&mill, "segment:orders?deadline=60s");
        let got = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for taker in 0..16 {
                let (orders, got) = (&orders, &got);
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    let error = loop {
                        let taken =
                            if taker % 2 == 0 { orders.next().map(|id| vec![id]) } else { orders.take(33) };
                        match taken {
                            Ok(ids) => mine.extend(ids),
                            Err(error) => break error,
                        }
                    };
                    assert_eq!(error.code, Code::Closed, "{error}");
                    got.lock().expect("no taker panics").extend(mine);
                });
            }
            until("ids flow", || orders.stats().is_ok_and(|s| s.issued > 10_000));
            mill.close();
        });
        for id in got.into_inner().expect("no taker panics") {
            assert!(all.insert(id), "{id} was handed out twice");
        }
    }
}

#[test]
fn a_thousand_cold_sources_at_once_all_get_their_first_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let mill = open(&file(&folder));
    let worst = Mutex::new(Duration::ZERO);
    thread::scope(|scope| {
        for taker in 0..8 {
            let (mill, worst) = (&mill, &worst);
            scope.spawn(move || {
                for n in 0..125 {
                    let asked = Instant::now();
                    let cold = source(mill, &format!("segment:cold-{taker}-{n}?deadline=60s"));
                    cold.next().expect("a first id");
                    let mut worst = worst.lock().expect("no taker panics");
                    *worst = worst.max(asked.elapsed());
                }
            });
        }
    });
    println!("1000 cold sources, worst first id {:?}", worst.into_inner().expect("no taker panics"));
}

#[test]
fn a_mill_opens_although_its_store_is_down() {
    let mill = open("mysql://app:topsecret@127.0.0.1:1/ids");
    let error = source(&mill, "segment:orders?deadline=10s").next().expect_err("no server listens");
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    assert!(!format!("{error:?} {:?} {:?}", mill, mill.events()).contains("topsecret"));
}

// ---- findings that were mended; each test showed its bug first ----

#[test]
fn a_block_dies_at_midnight_even_where_its_segment_was_used_up() {
    let mill = open("memory:?clock=manual@1767308400000"); // 2026-01-01T23:00Z
    let serials = source(&mill, "serial:t/c?number=0&zone=UTC&step=9&deadline=20s");
    let mut mine = serials.handle();
    assert_eq!(mine.next_text().expect("a serial"), "202601011");
    // The handle's block is the whole segment, so another caller leaves the cell empty.
    assert!(serials.next_text().is_err());
    mill.advance_clock(2 * 3_600_000).expect("a manual clock");
    let late = mine.next_text().expect("a serial of the new day");
    assert!(late.starts_with("20260102"), "a handle went on with yesterday's date: {late}");
}

#[test]
fn a_forked_child_does_not_use_its_parents_worker() {
    if !worker::in_a_process_of_its_own("mill::a_forked_child_does_not_use_its_parents_worker") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mill = open(&file(&folder));
    let spec = "snowflake:tx?worker=3&deadline=60s";
    let tx = source(&mill, spec);
    tx.next().expect("an id");
    // SAFETY: the child calls keymill, which supports this, and ends without running the test's destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let codes = [tx.next().map_err(|e| e.code), mill.source(spec).map(|_| 0).map_err(|e| e.code)];
        let right = codes.iter().all(|c| *c == Err(Code::Forked));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: `child` is our child; `status` is writable.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the child answers FORKED");
    tx.next().expect("the parent goes on");
}

#[test]
fn two_spellings_of_one_snowflake_are_one_generator_and_two_settings_are_refused() {
    let mill = open("memory:");
    let one = source(&mill, "snowflake:tx?worker=5&deadline=60s");
    let two = source(&mill, "snowflake:tx?worker=5&layout=twitter&max_lead=3s&deadline=60s");
    let first = one.next().expect("an id");
    assert!(two.next().expect("an id of the same generator") > first);
    let error =
        mill.source("snowflake:tx?worker=5&max_lead=2s").expect_err("another setting of a worker in use");
    assert_eq!(error.code, Code::InvalidConfig);
}

#[test]
fn batches_of_snowflakes_keep_the_stored_mark_ahead_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let mill = open(&file(&folder));
    let tx = source(&mill, "snowflake:tx?worker=3&max_lead=300ms&deadline=60s");
    let stands = || tx.row().expect("a row").map(|row| row.mark.next);
    tx.take(3).expect("ids");
    let before = stands();
    until("the mark moves on", || tx.take(3).is_ok() && stands() > before);
}

#[test]
fn a_deleted_log_of_sqlite_is_noticed_before_a_number_comes_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let mill = open(&file(&folder));
    let orders = source(&mill, "segment:orders?step=10&buffer=1ms&deadline=60s");
    let mut got: HashSet<u64> = orders.take(105).expect("ids").into_iter().collect();
    std::fs::remove_file(folder.path().join("ids.db-wal")).expect("SQLite's log");
    // The refusal may have come earlier, if a refill found the log missing.
    let _ = std::fs::remove_file(folder.path().join("ids.db-shm"));
    let error = (0..10_000).find_map(|_| orders.next().map(|id| assert!(got.insert(id))).err());
    assert_eq!(error.expect("the store went backwards").code, Code::StoreWentBackwards);
}

#[test]
fn a_sqlite_file_with_two_names_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    open(&file(&folder)).init(&[], Change::Apply).expect("init");
    std::fs::hard_link(folder.path().join("ids.db"), folder.path().join("link.db")).expect("a link");
    let mill = open(&format!("sqlite:{}", folder.path().join("link.db").display()));
    let error = source(&mill, "segment:orders?deadline=60s").next().expect_err("two names");
    assert_eq!(error.code, Code::StoreUnsafe, "{error}");
}

/// Each release has a folder with a link to the application's file.
#[test]
fn a_sqlite_file_beside_a_link_to_the_applications_file_is_refused_and_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let (shared, release) = (folder.path().join("shared"), folder.path().join("release"));
    for directory in [&shared, &release] {
        std::fs::create_dir(directory).expect("a folder");
    }
    std::fs::write(shared.join("shop.db"), "").expect("a file");
    std::os::unix::fs::symlink(shared.join("shop.db"), release.join("shop.db")).expect("a link");
    let store_at = |at: &std::path::Path| {
        keymill::store_of(&format!("sqlite:///{}", at.join("shop.db").display()), &[]).expect("a store")
    };
    let first = |store: &str| {
        let mill = open(store);
        mill.init(&[], Change::Apply)?;
        source(&mill, "segment:orders?deadline=60s").next()
    };
    let error = first(&store_at(&release)).expect_err("another release has another link");
    assert_eq!(error.code, Code::StoreUnsafe, "{error}");
    let named = error.message.split("use `").nth(1).and_then(|rest| rest.split('`').next()).expect("a store");
    assert_eq!(first(named).expect("the store that is named"), 1);
    let real = std::fs::canonicalize(&shared).expect("a folder");
    assert_eq!(named, store_at(&real));
    assert!(!release.join("shop.db.keymill").exists());
}

#[test]
fn init_max_reads_numbers_kept_as_integers() {
    let folder = tempfile::tempdir().expect("a folder");
    let mill = open(&file(&folder));
    let spec = "serial:orders/id?date=&number=0&overflow=widen&init=max&deadline=60s";
    mill.init(&[spec], Change::Apply).expect("init");
    let db = rusqlite::Connection::open(folder.path().join("ids.db")).expect("the file opens");
    db.execute_batch("CREATE TABLE orders(id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1), (3), (41)")
        .expect("rows");
    assert_eq!(source(&mill, spec).next_text().expect("a serial"), "42");
}

/// A file that another user made, or may write, can hold any.
#[test]
fn a_trigger_on_a_table_of_a_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = "segment:orders?deadline=60s";
    let take = || {
        let mill = open(&file(&folder));
        source(&mill, spec).next()
    };
    assert_eq!(take().expect("an id"), 1);
    let db = rusqlite::Connection::open(folder.path().join("ids.db")).expect("the file opens");
    db.execute_batch(
        "CREATE TRIGGER back AFTER UPDATE ON keymill_segment BEGIN UPDATE keymill_segment SET next = 1; END",
    )
    .expect("a trigger");
    let error = take().expect_err("it would set the row back");
    assert_eq!(error.code, Code::StoreRefused, "{error}");
    assert!(error.message.contains("has trigger `back`"), "{error}");
    db.execute_batch("DROP TRIGGER back").expect("it goes");
    let mill = open(&file(&folder));
    source(&mill, spec).repair(5_000, Change::Apply).expect("a repair");
    drop(mill);
    assert_eq!(take().expect("an id"), 5_000);
}

/// A server counts bytes of such a column; MySQL, which is not tested here, matches no pattern in it.
#[test]
fn init_max_reads_numbers_kept_as_bytes() {
    let table = format!("KEPT_{}", std::process::id());
    let mut sql = mariadb::connection();
    sql.query_drop(format!("CREATE TABLE {table} (ID VARBINARY(40))")).expect("a table");
    sql.query_drop(format!("INSERT INTO {table} VALUES ('客户000077'), ('客户000009'), (x'ff')"))
        .expect("rows");
    let mill = open(&patient(&mariadb::url()));
    let spec = format!("serial:{table}/id?date='客户'&number=000000&init=max&deadline=60s");
    mill.init(&[&spec], Change::Apply).expect("init");
    assert_eq!(source(&mill, &spec).next_text().expect("a serial"), "客户000078");
    sql.query_drop(format!("DROP TABLE {table}")).expect("it goes");

    let folder = tempfile::tempdir().expect("a folder");
    let mill = open(&file(&folder));
    mill.init(&[&spec], Change::Apply).expect("init");
    let db = rusqlite::Connection::open(folder.path().join("ids.db")).expect("the file opens");
    let rows = format!(
        "CREATE TABLE {table} (ID BLOB); INSERT INTO {table} VALUES (CAST('客户000077' AS BLOB)), (x'ff')"
    );
    db.execute_batch(&rows).expect("rows");
    assert_eq!(source(&mill, &spec).next_text().expect("a serial"), "客户000078");
}

/// A `?` in a value is no place for another value.
#[test]
fn init_max_reads_serials_whose_pattern_has_a_question_mark() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = unique("ASKED").to_uppercase();
    let spec = format!("serial:{table}/ID?date='A?'''-?&number=000000&init=max&deadline=60s");
    let mills = [patient(&mariadb::url()), patient(&postgres::url()), file(&folder)].map(|url| {
        let mill = open(&url);
        mill.init(&[&spec], Change::Apply).expect("init");
        mill
    });
    let mut sql = mariadb::connection();
    let postgres = postgres::Sql::shared();
    let db = rusqlite::Connection::open(folder.path().join("ids.db")).expect("the file opens");
    let mut say = |words: &str| {
        sql.query_drop(words).expect(words);
        postgres.say(words);
        db.execute_batch(words).expect(words);
    };
    say(&format!("CREATE TABLE {table} (ID VARCHAR(40))"));
    say(&format!("INSERT INTO {table} VALUES ('A?''-?000077'), ('A?''-?000009'), ('A1''-2000099')"));
    for mill in &mills {
        assert_eq!(source(mill, &spec).next_text().expect("a serial"), "A?'-?000078");
    }
    say(&format!("DROP TABLE {table}"));
}

#[test]
fn after_a_close_that_gave_up_on_the_store_no_caller_gets_a_number() {
    let proxy = Proxy::start(mariadb::options().hosts[0].clone());
    let mill = open(&through(&proxy, "1h"));
    mill.init(&[], Change::Apply).expect("init");
    let name = unique("stuck");
    let orders = source(&mill, &format!("segment:{name}?deadline=60s"));
    let mut mine = orders.handle();
    mine.next().expect("an id");
    proxy.set(Answers::Hold);
    let cold = source(&mill, &format!("segment:{name}-cold?deadline=100ms"));
    cold.next().expect_err("the keeper is stuck now");
    mill.close();
    assert_eq!(orders.next().expect_err("closed").code, Code::Closed);
    assert_eq!(mine.next().expect_err("closed").code, Code::Closed);
    proxy.set(Answers::Pass);
}

#[test]
fn a_mill_opens_no_more_sources_than_it_may() {
    let mill = open("memory:?max_sources=3");
    let three = ["a", "b", "c"].map(|name| source(&mill, &format!("segment:{name}?deadline=60s")));
    for (number, source) in three.iter().enumerate() {
        assert_eq!(source.next().expect("an id"), 1, "{number}");
    }
    let error =
        mill.source("segment:from-a-request").and_then(|source| source.next()).expect_err("a fourth source");
    assert_eq!(error.code, Code::InvalidArgument, "{error}");
    for part in ["segment:from-a-request", "max_sources=3"] {
        assert!(error.message.contains(part), "{error}");
    }
    assert_eq!(source(&mill, "segment:a?deadline=60s").next().expect("a source that is open"), 2);
    for bad in ["0", "-1", "many", "100000001"] {
        let error = Mill::open(&format!("memory:?max_sources={bad}")).expect_err(bad);
        assert_eq!(error.code, Code::InvalidConfig, "{error}");
    }
}

#[test]
fn a_manual_clock_has_moved_when_the_call_returns() {
    let mill = open(&format!("memory:?clock=manual@{BEFORE_MIDNIGHT}"));
    let serials = source(&mill, "serial:a/b?zone=UTC&number=000000&deadline=60s");
    for day in 0..50 {
        let serial = serials.next_text().expect("a serial");
        assert!(serial.ends_with("000001"), "day {day}: {serial}");
        mill.advance_clock(DAY_MS as u64).expect("a manual clock");
    }
    for wall in [i64::MIN, i64::MAX, 0, BEFORE_MIDNIGHT] {
        mill.set_clock(wall).expect("a manual clock");
        mill.advance_clock(u64::MAX).expect("a manual clock");
    }
}
