//! A JPA sequence as other programs leave it: raised, altered, dropped, named otherwise, at its end, in the hands of another role.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keymill::store::postgres::ServerOptions;
use keymill::store::{Catalogue, FaultKind, Key, RowStore, Scheme, Secret};
use keymill::{Change, Code, Mill};
use keymill_tests::ci::patient;
use keymill_tests::postgres::{self, Private, Sql};
use keymill_tests::{assert_disjoint, in_time};
use mysql::prelude::Queryable;

use super::jpa::{drawer, key, request};
use super::{SERVERS, Sequence, Server, at, mariadb};

/// The numbers that a node of Hibernate with `pooled` issues for a value that is not its first.
fn pooled(value: u64) -> (u64, u64) {
    (value - 9, value + 1)
}

/// Draws many values at a time, without a pause between them.
fn crowd(server: &Server, name: &str) -> Box<dyn FnMut() -> Vec<u64>> {
    if server.unsafe_on {
        let (mut connection, sql) =
            (keymill_tests::mariadb::connection(), format!("SELECT NEXTVAL({name}) FROM seq_1_to_100"));
        return Box::new(move || connection.query(&sql).expect("values"));
    }
    let (sql, say) = (format!("SELECT nextval('{name}') FROM generate_series(1, 300)"), Sql::shared());
    Box::new(move || say.rows(&sql).iter().map(|row| row[0].parse().expect("a number")).collect())
}

/// A lock of keymill's own would not stop them: other programs draw with a bare `nextval`.
#[test]
fn a_sequence_that_is_raised_while_other_programs_draw_names_no_value_twice() {
    for server in SERVERS {
        let sequence = Sequence::missing(server);
        let key = key(&sequence, true);
        let mut store = sequence.open();
        store.init(std::slice::from_ref(&key), false).unwrap();
        // The first value is its own range, and the second one is not for keymill.
        let mut draw = drawer(&server, &sequence.name);
        assert_eq!((draw(), draw()), (1, 11));
        let over = AtomicBool::new(false);
        let drawn: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let _over = Over(&over);
            let theirs: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut draw = crowd(&sequence.server, &sequence.name);
                        let mut drawn = Vec::new();
                        // ordering: Relaxed — a flag.
                        while !over.load(Ordering::Relaxed) {
                            drawn.extend(draw().into_iter().map(pooled));
                        }
                        drawn
                    })
                })
                .collect();
            let mut drawn = Vec::new();
            for round in 0..100 {
                let next = store.look(&key).unwrap().unwrap().mark.next;
                // Where the others are about to draw. They may have drawn beyond it since.
                match in_time(|| store.repair(&key, at(next + round * 397 % 8000))) {
                    Err(fault) if fault.kind != FaultKind::Refused => panic!("{fault}"),
                    _ => {}
                }
                let range = in_time(|| store.reserve(&request(&key, 0))).unwrap();
                drawn.push((range.lo, range.hi));
            }
            // ordering: Relaxed — a flag.
            over.store(true, Ordering::Relaxed);
            drawn.extend(theirs.into_iter().flat_map(|theirs| theirs.join().unwrap()));
            drawn
        });
        assert_disjoint(drawn);
    }
}

/// An open `ALTER SEQUENCE` lets everyone wait: the other programs' draws first, and behind them the repair, which has seen the sequence
/// before they went on.
#[test]
fn a_repair_that_waited_behind_other_programs_lowers_nothing() {
    let sequence = Sequence::missing(super::postgres::SERVER);
    let key = key(&sequence, true);
    let mut store = sequence.open();
    store.init(std::slice::from_ref(&key), false).unwrap();
    let (name, sql) = (&sequence.name, Sql::shared());
    assert_eq!(sql.rows(&format!("SELECT nextval('{name}') FROM generate_series(1, 2)")).len(), 2);
    let waiting =
        format!("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{name}'::regclass");
    let mut drawn = Vec::new();
    for _ in 0..3 {
        let next = store.look(&key).unwrap().unwrap().mark.next;
        let holder = Sql::shared();
        holder.say(&format!("BEGIN; ALTER SEQUENCE {name} CACHE 1"));
        // Whether so many wait; after a minute they never will.
        let until = |count: &str| {
            let give_up = Instant::now() + Duration::from_secs(60);
            while sql.rows(&waiting)[0][0] != count && Instant::now() < give_up {
                std::thread::sleep(Duration::from_millis(1));
            }
            sql.rows(&waiting)[0][0] == count
        };
        std::thread::scope(|scope| {
            let theirs = scope.spawn(|| {
                let draws = format!("SELECT nextval('{name}') FROM generate_series(1, 20000)");
                let rows = Sql::shared().rows(&draws);
                rows.iter().map(|row| pooled(row[0].parse().expect("a number"))).collect::<Vec<_>>()
            });
            let begun = until("1");
            let ours = scope.spawn(|| in_time(|| sequence.open().repair(&key, at(next + 500))));
            let repairs = until("2");
            holder.say("COMMIT");
            drawn.extend(theirs.join().unwrap());
            ours.join().unwrap().unwrap();
            assert!(begun && repairs, "they wait for the sequence");
        });
        for _ in 0..20 {
            let range = store.reserve(&request(&key, 0)).unwrap();
            drawn.push((range.lo, range.hi));
        }
    }
    assert_disjoint(drawn);
}

/// Ends the threads, also where the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        // ordering: Relaxed — a flag.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// No value of it was drawn yet.
#[test]
fn a_new_sequence_is_raised_to_whatever_number() {
    for server in SERVERS {
        for to in [2, 3, 10, 11, 12, 20, 21, 99, 100, 101] {
            for is_pooled in [true, false] {
                let sequence = Sequence::missing(server);
                let key = key(&sequence, is_pooled);
                let mut store = sequence.open();
                store.init(std::slice::from_ref(&key), false).unwrap();
                let (before, after) = store.repair(&key, at(to)).unwrap();
                assert_eq!(before.unwrap().mark, at(1));
                assert!(after.mark >= at(to) && after.mark < at(to + 10), "{to}: {after:?}");
                assert_eq!(store.reserve(&request(&key, to)).unwrap().lo, after.mark.next);
            }
            let plain = Sequence::new(server);
            let (_, after) = plain.open().repair(&plain.key(100), at(to)).unwrap();
            assert!(after.mark >= at(to), "{to}: {after:?}");
            assert_eq!(plain.open().reserve(&plain.request(to)).unwrap().lo, after.mark.next);
        }
    }
}

#[test]
fn a_sequence_that_is_altered_dropped_or_made_anew_gives_no_number() {
    for server in SERVERS {
        let sequence = Sequence::missing(server);
        let key = key(&sequence, true);
        let (mut store, name) = (sequence.open(), &sequence.name);
        store.init(std::slice::from_ref(&key), false).unwrap();
        let mut seen = 0;
        for _ in 0..3 {
            seen = store.reserve(&request(&key, seen)).unwrap().hi;
        }
        for (statement, kind, says) in [
            (format!("ALTER SEQUENCE {name} INCREMENT BY 1"), FaultKind::Refused, "INCREMENT BY 10`"),
            (format!("ALTER SEQUENCE {name} INCREMENT BY 10 CYCLE"), FaultKind::Refused, "starts over"),
            (format!("DROP SEQUENCE {name}"), FaultKind::Refused, "is missing"),
            // As Hibernate does at its start, where it is told to.
            (
                format!("CREATE SEQUENCE {name} START WITH 1 INCREMENT BY 10 {}", server.nocache()),
                FaultKind::WentBackwards,
                "stands at 1",
            ),
        ] {
            (server.say)(&statement);
            for _ in 0..3 {
                let fault = store.reserve(&request(&key, seen)).unwrap_err();
                assert_eq!(fault.kind, kind, "{statement}: {fault}");
                assert!(fault.to_string().contains(says), "{statement}: {fault}");
            }
        }
        store.repair(&key, at(seen)).unwrap();
        assert!(store.reserve(&request(&key, seen)).unwrap().lo >= seen);
    }
}

#[test]
fn a_missing_sequence_may_have_another_name() {
    for server in SERVERS {
        let sequence = Sequence::missing(server);
        let fault = sequence.open().reserve(&request(&key(&sequence, true), 0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        for part in ["is missing", "another name", "`table=NAME`", "keymill init"] {
            assert!(fault.to_string().contains(part), "{fault}");
        }
    }
}

#[test]
fn the_end_of_a_sequence_is_said_and_nothing_wraps() {
    for server in SERVERS {
        let sequence = Sequence::missing(server);
        (server.say)(&format!(
            "CREATE SEQUENCE {} START WITH 1 INCREMENT BY 10 MINVALUE 1 MAXVALUE 37 {}",
            sequence.name,
            server.nocache()
        ));
        for (is_pooled, wanted) in [
            (true, &[(1, 2), (2, 12), (12, 22), (22, 32)][..]),
            (false, &[(1, 11), (11, 21), (21, 31), (31, 41)]),
        ] {
            (server.say)(&format!("ALTER SEQUENCE {} RESTART WITH 1", sequence.name));
            let key = key(&sequence, is_pooled);
            let (mut store, mut seen, mut ends) = (sequence.open(), 0, Vec::new());
            let fault = loop {
                match store.reserve(&request(&key, seen)) {
                    Ok(got) => {
                        seen = got.hi;
                        ends.push((got.lo, got.hi));
                    }
                    Err(fault) => break fault,
                }
            };
            assert_eq!(ends, wanted);
            assert_eq!(fault.kind, FaultKind::Exhausted, "{fault}");
            assert!(fault.to_string().contains("MAXVALUE"), "{fault}");
            let fault = store.repair(&key, at(500)).unwrap_err();
            assert!(matches!(fault.kind, FaultKind::Exhausted | FaultKind::Refused), "{fault}");
        }
        // The column of an `int` is not for keymill to know: a sequence of 64 bits ends at the last number.
        let long = Sequence::missing(server);
        (server.say)(&format!(
            "CREATE SEQUENCE {} START WITH 9223372036854775790 INCREMENT BY 10 {}",
            long.name,
            server.nocache()
        ));
        for is_pooled in [true, false] {
            let key = super::jpa::key(&long, is_pooled);
            let mut store = long.open();
            while let Ok(got) = store.reserve(&request(&key, 0)) {
                assert!(got.lo < got.hi && got.hi <= 1 << 63, "{got:?}");
            }
        }
    }
}

#[test]
fn a_sequence_that_starts_with_0_gives_the_numbers_from_1_on() {
    for server in SERVERS {
        for (is_pooled, wanted) in [(true, (1, 11)), (false, (10, 20))] {
            let sequence = Sequence::missing(server);
            (server.say)(&format!(
                "CREATE SEQUENCE {} START WITH 0 MINVALUE 0 INCREMENT BY 10 {}",
                sequence.name,
                server.nocache()
            ));
            let key = key(&sequence, is_pooled);
            let mut store = sequence.open();
            let got = store.reserve(&request(&key, 0)).unwrap();
            assert_eq!((got.lo, got.hi), wanted);
        }
    }
}

#[test]
fn cached_sequences_of_mariadb_and_those_of_the_servers_own_increment_are_refused() {
    if keymill_tests::mariadb::is_mysql_without("sequences", &mut keymill_tests::mariadb::connection()) {
        return;
    }
    for (options, says) in [
        ("INCREMENT BY 10", "NOCACHE"),
        ("INCREMENT BY 10 CACHE 20", "(CACHE 20)"),
        ("INCREMENT BY 0 NOCACHE", "auto_increment_increment"),
        ("INCREMENT BY -10 NOCACHE", "counts downwards"),
    ] {
        let sequence = Sequence::missing(mariadb::SERVER);
        (mariadb::SERVER.say)(&format!("CREATE SEQUENCE {} {options}", sequence.name));
        let key = key(&sequence, true);
        for _ in 0..2 {
            let fault = sequence.open().reserve(&request(&key, 0)).unwrap_err();
            assert!(
                fault.kind == FaultKind::Refused && fault.to_string().contains(says),
                "{options}: {fault}"
            );
        }
        if !options.contains('-') {
            assert_eq!(drawer(&mariadb::SERVER, &sequence.name)(), 1, "nothing was drawn");
        }
    }
}

fn named(name: &str) -> Arc<Key> {
    let key = Key { scheme: Scheme::JpaSequence, is_pooled: true, ..(*super::key(name, 10, false)).clone() };
    Arc::new(key)
}

/// Hibernate quotes names with `globally_quoted_identifiers`, and names in back quotes.
#[test]
fn a_sequence_is_found_as_it_is_spelled_and_none_is_made_beside_it() {
    let private = Private::start("");
    let sql = Sql::to(&private.options());
    sql.say("CREATE SEQUENCE \"Bills_SEQ\" START WITH 5001 INCREMENT BY 10; CREATE SEQUENCE orders_seq INCREMENT BY 10");
    let open = || postgres::store(private.options());
    assert_eq!(open().reserve(&request(&named("Bills_SEQ"), 0)).unwrap().lo, 5001);
    assert_eq!(open().reserve(&request(&named("ORDERS_SEQ"), 0)).unwrap().lo, 1);
    for other in ["bills_seq", "BILLS_SEQ"] {
        for answer in [
            open().reserve(&request(&named(other), 0)).map(drop),
            open().init(&[named(other)], false).map(drop),
            open().repair(&named(other), at(7000)).map(drop),
        ] {
            let fault = answer.unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(fault.to_string().contains("write `table=Bills_SEQ`"), "{fault}");
        }
    }
    assert_eq!(sql.rows("SELECT count(*) FROM pg_sequences")[0][0], "2");
    sql.say("CREATE SEQUENCE bills_seq INCREMENT BY 10");
    let fault = open().reserve(&request(&named("Bills_SEQ"), 0)).unwrap_err();
    assert!(fault.to_string().contains("two sequences, `Bills_SEQ` and `bills_seq`"), "{fault}");
    assert_eq!(open().reserve(&request(&named("bills_seq"), 0)).unwrap().lo, 1);
    sql.say("CREATE SCHEMA \"My shop\"; CREATE SEQUENCE \"My shop\".\"Sent\" START WITH 71 INCREMENT BY 10");
    let in_schema = ServerOptions { schema: Some("My shop".to_owned()), ..private.options() };
    assert_eq!(postgres::store(in_schema).reserve(&request(&named("Sent"), 0)).unwrap().lo, 71);
}

#[test]
fn a_role_that_may_not_draw_is_told_the_grant_and_can_draw_with_it() {
    let private = Private::start("");
    let (root, url) = (Sql::root(&private.url()), private.url());
    root.say("CREATE ROLE \"Few\" LOGIN PASSWORD 'few'; CREATE SEQUENCE orders_seq INCREMENT BY 50");
    for rights in [
        "",
        "GRANT SELECT ON SEQUENCE orders_seq TO \"Few\"",
        "REVOKE ALL ON SEQUENCE orders_seq FROM \"Few\"; GRANT USAGE ON SEQUENCE orders_seq TO \"Few\"",
    ] {
        root.say(rights);
        let options = ServerOptions { user: "Few".into(), password: Secret::new("few"), ..private.options() };
        let key = Key { step: 50, ..(*named("orders_seq")).clone() };
        let fault = postgres::store(options).reserve(&request(&Arc::new(key), 0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{rights}: {fault}");
        let grant = "GRANT USAGE, SELECT ON SEQUENCE \"public\".\"orders_seq\" TO \"Few\"";
        assert!(fault.to_string().contains(grant), "{rights}: {fault}");
    }
    root.say("GRANT USAGE, SELECT ON SEQUENCE \"public\".\"orders_seq\" TO \"Few\"");
    let few = url.replacen("keymill:", "Few:", 1).replacen(":secret@", ":few@", 1);
    let mill = Mill::open(&patient(&few)).unwrap();
    let source = mill.source("segment:orders?scheme=jpa_sequence&allocation=50&deadline=60s").unwrap();
    assert_eq!(source.take(120).unwrap(), (1..=120).collect::<Vec<u64>>());
    mill.close();
}

#[test]
fn a_mill_reads_one_sequence_in_one_way() {
    let sequence = Sequence::missing(super::postgres::SERVER);
    let mill = Mill::open(&patient(&postgres::url())).unwrap();
    let spec = |name: &str, optimizer: &str| {
        format!(
            "segment:{name}?scheme=jpa_sequence&allocation=50&deadline=60s&table={}{optimizer}",
            sequence.name
        )
    };
    mill.init(&[&spec("orders", "")], Change::Apply).unwrap();
    mill.source(&spec("orders", "")).unwrap();
    mill.source(&spec("bills", "&optimizer=pooled")).unwrap();
    for name in ["orders", "returns"] {
        let error = mill.source(&spec(name, "&optimizer=pooled-lo")).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig, "{}", error.message);
        assert!(error.message.contains("`optimizer=pooled`"), "{}", error.message);
    }
    mill.close();
}
