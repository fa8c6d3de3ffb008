//! MySQL Group Replication with three members: a killed primary, one that is cut off, a lost quorum, and a group in which every
//! member takes writes.
//!
//! `KEYMILL_TEST_MYSQL_GROUP` names the group, and `ci/servers/mysql-group run` sets it; the tests stop its members, so they
//! run one after the other.

use std::thread;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Mill, Source};
use keymill_tests::takers::{Takers, persistently, until};
use keymill_tests::{assert_disjoint, schemes};

use crate::cluster::{Cluster, all_reserve, unique};

const GROUP: Cluster = Cluster { script: "mysql-group", variable: "KEYMILL_TEST_MYSQL_GROUP" };

/// The member that takes writes.
fn primary() -> usize {
    let mut found = None;
    until("the group has a primary", Duration::from_secs(240), || {
        found = GROUP.try_run(&["primary"]).ok().and_then(|member| member.parse().ok());
        found.is_some()
    });
    found.expect("a member")
}

/// Takers of three mills beside `work`, which gets their sources.
fn beside(name: &str, options: &str, work: impl FnOnce(&str, &[Source], &Takers)) -> usize {
    let mills = GROUP.three_mills();
    persistently(|| mills[0].init(&[], Change::Apply)).expect("init");
    let spec = format!("segment:{}?{options}", unique(name));
    let sources: Vec<Source> = mills.iter().map(|mill| mill.source(&spec).expect("a source")).collect();
    let takers = Takers::default();
    takers.beside(&sources.iter().collect::<Vec<_>>(), 20, Duration::from_millis(5), || {
        work(&spec, &sources, &takers)
    })
}

#[test]
fn a_primary_that_is_killed_three_times_is_replaced_and_no_id_comes_twice() {
    let ids = beside("killed", "min_step=100&buffer=200ms", |_, sources, takers| {
        for _ in 0..3 {
            all_reserve(sources);
            let old = primary();
            let before = takers.count();
            GROUP.run("kill", old);
            let killed = Instant::now();
            until("another member is primary", Duration::from_secs(240), || primary() != old);
            let elected = killed.elapsed();
            all_reserve(sources);
            println!(
                "mysql-group: primary {old} killed, another one after {elected:.1?}, every mill has reserved again after {:.1?}, {} ids meanwhile",
                killed.elapsed(),
                takers.count() - before
            );
            GROUP.run("start-member", old);
        }
        for (_, error) in takers.errors() {
            assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
        }
    });
    println!("mysql-group: {ids} ids round three killed primaries, none twice");
}

#[test]
fn a_primary_that_is_cut_off_gives_no_number_when_it_is_back() {
    let ids = beside("cut", "min_step=100&buffer=200ms", |spec, sources, takers| {
        all_reserve(sources);
        let old = primary();
        GROUP.run("freeze", old);
        let frozen = Instant::now();
        all_reserve(sources);
        println!(
            "mysql-group: primary {old} frozen, every mill has reserved again after {:.1?}",
            frozen.elapsed()
        );
        // A mill that knows only the old one is asked while that one learns that it was expelled.
        let alone = Mill::open(&GROUP.url_from(old, 0)).expect("a mill");
        let stale = alone.source(&format!("{spec}&deadline=10s")).expect("a source");
        let asking = thread::spawn(move || stale.take(10));
        GROUP.run("thaw", old);
        let got = asking.join().expect("no panic");
        println!(
            "mysql-group: thawed, and asked for numbers, it answers {:?}",
            got.as_ref().map(|_| "numbers")
        );
        if let Ok(ids) = got {
            assert!(ids.iter().all(|id| !takers.got().contains(id)), "the old primary repeats ids");
        }
        GROUP.run("start-member", old);
        all_reserve(sources);
    });
    println!("mysql-group: {ids} ids round a primary that was cut off, none twice");
}

#[test]
fn a_lost_quorum_is_an_outage_that_heals_by_itself() {
    let ids = beside("quorum", "min_step=10&buffer=100ms&deadline=1s", |_, sources, takers| {
        all_reserve(sources);
        let first = primary();
        let others: Vec<usize> = (1..=3).filter(|member| *member != first).collect();
        others.iter().for_each(|member| GROUP.run("freeze", *member));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("callers are told", Duration::from_secs(240), || takers.met(Code::StoreUnavailable, ""));
        }));
        others.iter().for_each(|member| GROUP.run("thaw", *member));
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let thawed = Instant::now();
        all_reserve(sources);
        println!("mysql-group: quorum back, every mill has reserved again after {:.1?}", thawed.elapsed());
        for (waited, error) in takers.errors() {
            assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
            // A thread may wake up late on a busy machine; the quorum is lost for longer.
            assert!(waited < Duration::from_secs(20), "a caller waited {waited:?} with a deadline of 1 s");
        }
    });
    println!("mysql-group: {ids} ids round a lost quorum, none twice");
}

/// Run on a group in which every member takes writes (`group_replication_single_primary_mode=OFF`).
#[test]
fn several_primaries_that_write_one_row_at_once_give_no_number_twice() {
    for scheme in schemes::on_mysql() {
        let key = GROUP.key(scheme, &[1, 2, 3]);
        let began = Instant::now();
        let ranges = GROUP.nine_writers(&key, 40, |_| false);
        let rate = ranges.len() as f64 / began.elapsed().as_secs_f64();
        println!(
            "mysql-group: {}: 9 writers on 3 primaries, {rate:.0} reservations a second, {} numbers, 0 twice",
            scheme.name(),
            assert_disjoint(ranges)
        );
    }
}
