//! Several programs write the same ids while their range is moved there and back: no acknowledged write is lost.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keymill::{Change, Code, Error, MovePhase, RowRepair, ShardConnection, Shards, WorkError};

use super::databases::{Database, FIRST, MariaDb, Postgres, Stage, ask, goes_on, in_time};

const IDS: u64 = 12;
const PROGRAMS: usize = 2;
const THREADS: usize = 3;

/// What is known of an item: its number, which no other item has.
#[derive(Default)]
struct Log {
    inserted: BTreeSet<(u64, u64)>,
    deleted: BTreeSet<(u64, u64)>,
    /// A write that was not acknowledged may have deleted them.
    maybe_deleted: BTreeSet<(u64, u64)>,
    writes: u64,
    unacknowledged: u64,
    longest: Duration,
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// What one write did, if it is acknowledged.
#[derive(Default)]
struct Done {
    inserted: Vec<u64>,
    deleted: Vec<u64>,
}

fn numbers<C: ShardConnection>(connection: &mut C, sql: &str) -> Result<Vec<u64>, WorkError> {
    let rows = connection.ask(sql)?;
    let number = |row: Vec<Option<Vec<u8>>>| {
        let text =
            String::from_utf8(row.into_iter().next().flatten().unwrap_or_default()).unwrap_or_default();
        text.parse().unwrap_or(0)
    };
    Ok(rows.into_iter().map(number).collect())
}

/// A change of the order and its items: rows come, change, exchange their seats, go, and come back.
fn work<C: ShardConnection>(connection: &mut C, id: u64) -> Result<Done, WorkError> {
    let mut done = Done::default();
    // Half of the programs lock nothing by themselves.
    let lock = if fastrand::bool() { " FOR UPDATE" } else { "" };
    let root = numbers(connection, &format!("SELECT order_id FROM t_order WHERE order_id = {id}{lock}"))?;
    let is_there = !root.is_empty();
    if !is_there {
        connection.ask(&format!(
            "INSERT INTO t_order (order_id, note, amount, ratio, at, bytes) VALUES ({id}, 'caf\u{e9} ''{}', {}.25, 0.1, '2026-10-25 02:30:00.123456', '\\\\x00')",
            fastrand::u32(..),
            fastrand::u32(..)
        ))?;
    }
    // A process that is frozen for as long as a step takes.
    if fastrand::u8(..50) == 0 {
        std::thread::sleep(Duration::from_millis(fastrand::u64(300..1500)));
    }
    let items = numbers(connection, &format!("SELECT n FROM t_item WHERE item_of = {id} ORDER BY n"))?;
    match fastrand::u8(..10) {
        // The whole order goes.
        0 if is_there => {
            // Those that it has seen: another program's item makes the delete of the order fail.
            for n in &items {
                connection.ask(&format!("DELETE FROM t_item WHERE item_of = {id} AND n = {n}"))?;
            }
            connection.ask(&format!("DELETE FROM t_order WHERE order_id = {id}"))?;
            done.deleted = items;
        }
        1 if !items.is_empty() => {
            let n = items[fastrand::usize(..items.len())];
            connection.ask(&format!("DELETE FROM t_item WHERE item_of = {id} AND n = {n}"))?;
            done.deleted.push(n);
        }
        2 | 3 if items.len() > 1 => {
            let seat = |n: u64| format!("SELECT seat FROM t_item WHERE item_of = {id} AND n = {n}");
            let (one, two) = (items[0], items[items.len() - 1]);
            let (a, b) = (numbers(connection, &seat(one))?, numbers(connection, &seat(two))?);
            let ([a], [b]) = (&a[..], &b[..]) else { return Ok(done) };
            for (n, seat) in [(one, "NULL".to_owned()), (two, a.to_string()), (one, b.to_string())] {
                connection
                    .ask(&format!("UPDATE t_item SET seat = {seat} WHERE item_of = {id} AND n = {n}"))?;
            }
        }
        4 | 5 => {
            connection.ask(&format!(
                "UPDATE t_order SET amount = {}, version = version + 1 WHERE order_id = {id}",
                fastrand::u32(..)
            ))?;
        }
        _ => {
            // ordering: Relaxed — each number is drawn once.
            let n = NUMBER.fetch_add(1, Ordering::Relaxed);
            connection.ask(&format!(
                "INSERT INTO t_item (item_of, n, seat, name) VALUES ({id}, {n}, {n}, '\u{540d}{n}')"
            ))?;
            done.inserted.push(n);
        }
    }
    Ok(done)
}

fn write<C: ShardConnection>(shards: &Shards<C>, ends: &AtomicBool) -> Log {
    let mut log = Log::default();
    // The longest pause between two writes. In the short run a writer leaves processors to other steps.
    let pause_ms = if keymill_tests::ci::is_full_run() { 0 } else { 20 };
    // ordering: Relaxed — a flag that carries nothing else.
    while !ends.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(fastrand::u64(..=pause_ms)));
        let id = FIRST + fastrand::u64(..IDS);
        let began = Instant::now();
        let mut last = Done::default();
        let answer = shards.write(id, |connection| {
            last = work(connection, id)?;
            Ok(())
        });
        log.longest = log.longest.max(began.elapsed());
        match answer {
            Ok(()) => {
                log.writes += 1;
                log.inserted.extend(last.inserted.iter().map(|n| (id, *n)));
                log.deleted.extend(last.deleted.iter().map(|n| (id, *n)));
            }
            Err(error) => {
                // The work's own errors are two programs that insert one id at once.
                let ours = error.downcast_ref::<Error>();
                assert!(
                    ours.is_none_or(|ours| matches!(ours.code, Code::StoreUnavailable | Code::NotReady)),
                    "{error}"
                );
                if ours.is_some() {
                    println!("{id}: {error}");
                }
                log.unacknowledged += 1;
                // A server that is away is away for a moment.
                std::thread::sleep(Duration::from_millis(20));
                log.maybe_deleted.extend(last.deleted.iter().map(|n| (id, *n)));
            }
        }
    }
    log
}

/// A verb that an operator types again where a server was away.
fn typed_again<T>(repair: RowRepair, mut verb: impl FnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + Duration::from_secs(240);
    loop {
        match verb() {
            Ok(answer) => return answer,
            Err(error) if error.code == Code::StoreUnavailable && repair != RowRepair::Named => {
                println!("{error}");
                assert!(Instant::now() < until, "{error}");
                std::thread::sleep(Duration::from_millis(100));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Both shards are alike. Nothing is repaired, unless connections were broken between two commits.
fn alike<D: Database>(stage: &Stage<D>, repair: RowRepair) {
    let mut found = None;
    for _ in 0..20 {
        let compared =
            typed_again(repair, || stage.moves.verify(&stage.rows, repair, Change::Apply, &mut goes_on));
        if compared.is_alike() {
            return;
        }
        found = Some(compared);
        if repair == RowRepair::Named {
            break;
        }
    }
    panic!("the shards are not alike: {found:?}");
}

fn cut_over<D: Database>(stage: &Stage<D>) {
    for percent in [5, 25, 50, 100] {
        let after = in_time(|| stage.moves.next(None, Change::Apply));
        assert_eq!(after.moving.expect("it moves").phase, MovePhase::CutOver(percent));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn steps<D: Database>(stage: &Stage<D>, repair: RowRepair) {
    let pause = Duration::from_millis(300);
    std::thread::sleep(pause);
    stage.start();
    std::thread::sleep(pause);
    typed_again(repair, || stage.moves.copy(&stage.rows, Change::Apply, &mut goes_on));
    alike(stage, repair);
    cut_over(stage);
    in_time(|| stage.moves.back(Change::Apply));
    std::thread::sleep(pause);
    alike(stage, repair);
    cut_over(stage);
    alike(stage, repair);
    while in_time(|| stage.moves.finish(None, Change::Apply)).moving.is_some() {}
    std::thread::sleep(pause);
}

pub fn no_acknowledged_write_is_lost<D: Database>(database: D, breaks: bool) {
    let stage = &Stage::settling(database, "1s");
    let ends = &AtomicBool::new(false);
    let repair = if breaks { RowRepair::BringAndDelete } else { RowRepair::Named };
    let logs: Vec<Log> = std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for _ in 0..PROGRAMS {
            let mill = stage.mill();
            let router = mill.router("orders").expect("a router");
            for _ in 0..THREADS {
                let (shards, mill) = (stage.shards(&router), mill.clone());
                writers.push(scope.spawn(move || {
                    let _mill = mill;
                    write(&shards, ends)
                }));
            }
        }
        if breaks {
            scope.spawn(|| {
                // ordering: Relaxed — see `write`.
                while !ends.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(fastrand::u64(1..60)));
                    stage.database.break_one();
                }
            });
        }
        let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| steps(stage, repair)));
        // ordering: Relaxed — see `write`.
        ends.store(true, Ordering::Relaxed);
        let logs = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
        if let Err(panic) = moved {
            std::panic::resume_unwind(panic);
        }
        logs
    });
    let mut there = BTreeSet::new();
    for row in ask(&stage.database, 1, "SELECT item_of, n FROM t_item") {
        there.insert((row[0].parse().expect("an id"), row[1].parse().expect("a number")));
    }
    let all = |part: fn(&Log) -> &BTreeSet<(u64, u64)>| -> BTreeSet<(u64, u64)> {
        logs.iter().flat_map(|log| part(log).iter().copied()).collect()
    };
    let (inserted, deleted) = (all(|log| &log.inserted), all(|log| &log.deleted));
    let maybe = all(|log| &log.maybe_deleted);
    let lost: Vec<_> = inserted
        .iter()
        .filter(|item| !deleted.contains(item) && !maybe.contains(item) && !there.contains(item))
        .collect();
    let back: Vec<_> = deleted.iter().filter(|item| there.contains(item)).collect();
    let (writes, failed): (u64, u64) =
        (logs.iter().map(|log| log.writes).sum(), logs.iter().map(|log| log.unacknowledged).sum());
    let longest = logs.iter().map(|log| log.longest).max().unwrap_or_default();
    println!("{writes} writes, {failed} not acknowledged, the longest took {longest:?}");
    assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
    assert!(back.is_empty(), "deleted and there: {back:?}");
    assert!(writes > 50 && inserted.len() > 10 && deleted.len() > 5, "{writes} writes");
}

#[test]
fn no_acknowledged_write_is_lost_while_a_range_moves_on_mariadb() {
    no_acknowledged_write_is_lost(MariaDb::new(), false);
}

#[test]
fn no_acknowledged_write_is_lost_while_a_range_moves_on_postgresql() {
    no_acknowledged_write_is_lost(Postgres::new(), false);
}

#[test]
fn no_acknowledged_write_is_lost_where_connections_break_on_mariadb() {
    no_acknowledged_write_is_lost(MariaDb::new(), true);
}

#[test]
fn no_acknowledged_write_is_lost_where_connections_break_on_postgresql() {
    no_acknowledged_write_is_lost(Postgres::new(), true);
}
