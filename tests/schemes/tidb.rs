//! keymill's statements and error handling for TiDB, with a scripted server that answers as one: version, error numbers at
//! every statement, the value of a rolled-back attempt. The MariaDB behind it keeps the rows, so this proves what keymill
//! does with such answers, and nothing about a TiDB. No TiDB was available; `ci/steps/tidb` says what runs against one.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use keymill::store::mysql::{MysqlStore, ServerOptions};
use keymill::store::{Catalogue, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Request, RowStore, Scheme};
use keymill_tests::disguise::{self, Answer, Disguise, TIDB};
use keymill_tests::{mariadb, schemes};
use mysql::prelude::Queryable;

/// The schemes whose reservation is a transaction on a row.
fn rows() -> impl Iterator<Item = Scheme> {
    schemes::on_mysql().filter(|scheme| scheme.keeps_segments())
}

/// A table behind a scripted server, dropped with the value.
struct Table {
    disguise: Disguise,
    key: Arc<Key>,
}

fn key(scheme: Scheme, table: &str) -> Arc<Key> {
    Arc::new(schemes::key(scheme, table, "orders", None))
}

impl Table {
    fn new(scheme: Scheme) -> Table {
        Table::behind(Disguise::tidb(mariadb::options().hosts[0].clone()), scheme)
    }

    fn behind(disguise: Disguise, scheme: Scheme) -> Table {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let name = format!("d_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let table = Table { disguise, key: key(scheme, &name) };
        table.open().init(&[Arc::clone(&table.key)], false).unwrap();
        table
    }

    fn open(&self) -> MysqlStore {
        self.open_for(mariadb::options().read_timeout)
    }

    /// A store with a short time limit for answers.
    fn open_for(&self, read_timeout: Duration) -> MysqlStore {
        let hosts = vec![self.disguise.address()];
        mariadb::store(ServerOptions { hosts, read_timeout, ..mariadb::options() })
    }

    fn request(&self, next: u64) -> Request {
        Request { high_water: Mark { period: 0, next }, ..keymill_tests::request(&self.key, 10) }
    }

    fn say(&self, sql: &str) {
        mariadb::connection().query_drop(sql.replace("{t}", &self.key.table)).unwrap();
    }

    /// The next number, read without the scripted server.
    fn next(&self) -> u64 {
        let mut store = mariadb::store(mariadb::options());
        store.look(&self.key).unwrap().map_or(1, |row| row.mark.next)
    }

    /// The statement by which a reservation of this scheme changes its row.
    fn verb(&self) -> &'static str {
        match self.key.scheme {
            Scheme::AutoIncrement => "INSERT INTO",
            Scheme::Ticket => "REPLACE INTO",
            _ => "UPDATE `",
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.say("DROP TABLE IF EXISTS {t}");
        }
    }
}

#[test]
fn a_tidb_is_asked_for_one_reservation_at_a_time() {
    let table = Table::new(Scheme::Keymill);
    let mut store = table.open();
    store.reserve(&table.request(0)).unwrap();
    drop(table.disguise.said());
    assert_eq!(store.batch(), 1);
    let requests = vec![table.request(11); 3];
    assert!(store.reserve_all(&requests).iter().all(Option::is_none), "each is to be asked alone");
    assert!(table.disguise.said().is_empty());
    assert_eq!(table.next(), 11);
}

#[test]
fn a_tidb_is_known_by_its_version() {
    let table = Table::new(Scheme::Keymill);
    let facts = table.open().facts().unwrap();
    assert_eq!((facts.dialect.as_str(), facts.version.as_str()), ("tidb", TIDB));
    assert!(facts.warnings.is_empty(), "{facts:?}");
}

#[test]
fn a_conflict_is_begun_again_and_moves_the_row_once() {
    for scheme in rows() {
        let table = Table::new(scheme);
        let mut store = table.open();
        let mut next = store.reserve(&table.request(0)).unwrap().hi;
        for code in [9007, 8002, 8022, 8027, 8028, 3572, 1205, 1213] {
            for statement in ["SELECT ", table.verb(), "COMMIT"] {
                // The first query of a connection is in no transaction; the connection has made it here.
                table.disguise.answer(statement, 3, Answer::Refused(code, "Write conflict, txnStartTS=1"));
                let got = store.reserve(&table.request(next)).unwrap();
                // A ticket of a rolled-back attempt is not drawn again.
                let lost = if scheme.is_ticket() && statement != "SELECT " {
                    (got.lo - next) % 30
                } else {
                    got.lo - next
                };
                assert_eq!(
                    (lost, got.hi - got.lo),
                    (0, 10),
                    "{scheme:?}: {code} at {statement}: {got:?} after {next}"
                );
                assert_eq!(table.disguise.to_come(), 0);
                next = got.hi;
            }
        }
        assert_eq!(table.next(), next);
    }
}

#[test]
fn a_row_that_another_node_has_just_made_is_found_at_the_commit_and_gone_on_from() {
    // If inserts are checked only at the commit, as in an optimistic transaction.
    for scheme in rows().filter(|scheme| !scheme.is_ticket()) {
        let table = Table::new(scheme);
        let mut store = table.open();
        assert_eq!(store.look(&table.key).unwrap(), None);
        table.disguise.answer(
            "COMMIT",
            2,
            Answer::Refused(1062, "Duplicate entry 'orders' for key 'PRIMARY'"),
        );
        let got = store.reserve(&table.request(0)).unwrap();
        assert_eq!((got.lo, table.disguise.to_come()), (1, 0), "{scheme:?}");
    }
}

#[test]
fn a_conflict_without_end_is_an_outage_within_the_deadline() {
    for scheme in rows() {
        let table = Table::new(scheme);
        let next = table.open().reserve(&table.request(0)).unwrap().hi;
        let mut store = table.open_for(Duration::from_secs(2));
        table.disguise.answer("COMMIT", u32::MAX, Answer::Refused(9007, "Write conflict"));
        let began = Instant::now();
        let fault = store.reserve(&table.request(next)).unwrap_err();
        // The deadline is two seconds; the machine may be busy.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
        assert!(fault.to_string().contains("9007"), "{fault}");
        assert_eq!(table.next(), next, "{scheme:?}");
    }
}

/// TiDB's answers to a commit with unknown outcome.
const UNDETERMINED: [(u16, &str); 6] = [
    (1105, "[global:2]execution result undetermined"),
    (8501, "execution result Undetermined"),
    (9001, "PD Server is timeout"),
    (9002, "TiKV Server is timeout"),
    (9004, "Resolve lock timeout"),
    (9005, "Region is unavailable"),
];

#[test]
fn a_commit_whose_outcome_is_unknown_is_never_used() {
    for scheme in rows() {
        let table = Table::new(scheme);
        let mut store = table.open_for(Duration::from_secs(3));
        let mut next = store.reserve(&table.request(0)).unwrap().hi;
        for (code, message) in UNDETERMINED {
            for answer in [Answer::DoneBut(code, message), Answer::Refused(code, message)] {
                let done = matches!(answer, Answer::DoneBut(..));
                table.disguise.answer("COMMIT", 1, answer);
                let fault = store.reserve(&table.request(next)).unwrap_err();
                assert_eq!(fault.kind, FaultKind::Unknown, "{scheme:?}: {code}: {fault}");
                assert!(fault.to_string().contains("never used"), "{fault}");
                let got = store.reserve(&table.request(next)).unwrap();
                if done {
                    assert_eq!(got.lo, next + 10, "{scheme:?}: what was committed is a gap");
                }
                assert!(got.lo >= next);
                next = got.hi;
            }
        }
        for (answer, kind) in [
            (Answer::Cut, FaultKind::Unknown),
            (Answer::DoneAndCut, FaultKind::Unknown),
            (Answer::Silence(Duration::from_millis(3500)), FaultKind::Unknown),
        ] {
            table.disguise.answer("COMMIT", 1, answer.clone());
            let fault = store.reserve(&table.request(next)).unwrap_err();
            assert_eq!(fault.kind, kind, "{scheme:?}: {answer:?}: {fault}");
            next = store.reserve(&table.request(next)).unwrap().hi;
            if matches!(answer, Answer::DoneAndCut) && scheme != Scheme::Keymill {
                break; // one silence is enough for all
            }
        }
    }
}

#[test]
fn a_region_that_is_away_before_the_commit_costs_nothing() {
    for scheme in rows() {
        let table = Table::new(scheme);
        let mut store = table.open();
        let mut next = store.reserve(&table.request(0)).unwrap().hi;
        for code in [9001, 9002, 9003, 9005] {
            for statement in ["SELECT ", table.verb()] {
                table.disguise.answer(statement, 1, Answer::Refused(code, "Region is unavailable"));
                let fault = store.reserve(&table.request(next)).unwrap_err();
                assert_eq!(fault.kind, FaultKind::Unavailable, "{scheme:?}: {code} at {statement}: {fault}");
                let got = store.reserve(&table.request(next)).unwrap();
                // A drawn ticket is not drawn again.
                let lost = if scheme.is_ticket() { 10 } else { 0 };
                assert!(got.lo == next || got.lo == next + lost, "{scheme:?}: {got:?} after {next}");
                next = got.hi;
            }
        }
    }
}

/// Galera reports a lost certification in the answer to the next statement; here that is the rollback.
#[test]
fn who_is_told_at_the_rollback_that_another_node_was_faster_tries_again_on_the_same_connection() {
    for scheme in rows() {
        let table = Table::behind(Disguise::plain(mariadb::options().hosts[0].clone()), scheme);
        let mut store = table.open();
        let next = store.reserve(&table.request(0)).unwrap().hi;
        table.disguise.answer("COMMIT", 1, Answer::Refused(1213, "Deadlock found"));
        table.disguise.answer("ROLLBACK", 1, Answer::DoneBut(1213, "Deadlock found"));
        drop(table.disguise.said());
        let raised = store.repair(&table.key, Mark { period: 0, next: next + 100 });
        assert!(raised.is_ok(), "{scheme:?}: {raised:?}");
        assert_eq!(table.disguise.to_come(), 0, "{scheme:?}");
        let said = table.disguise.said();
        assert!(!said.iter().any(|sql| sql.contains("@@version")), "{scheme:?}: a new connection: {said:?}");
        assert!(table.next() >= next + 100, "{scheme:?}");
    }
}

/// pingcap/tidb #69796: the session still has the value of a rolled-back attempt.
#[test]
fn the_last_insert_id_of_a_rolled_back_attempt_is_never_used() {
    for scheme in rows() {
        let table = Table::new(scheme);
        let mut store = table.open();
        let next = store.reserve(&table.request(0)).unwrap().hi;
        drop(table.disguise.said());
        table.disguise.answer(table.verb(), 2, Answer::Ok(0, 99));
        let got = store.reserve(&table.request(next)).unwrap();
        assert_eq!((got.lo, got.hi), (next, next + 10), "{scheme:?}");
        assert_eq!(table.disguise.to_come(), 0, "{scheme:?}");
        let said = table.disguise.said();
        assert!(!said.iter().any(|sql| sql.contains("LAST_INSERT_ID")), "{said:?}");
    }
    // On MariaDB and MySQL, which use the fast path, this holds as well.
    for scheme in rows().filter(|scheme| !scheme.is_ticket()) {
        let table = Table::behind(Disguise::plain(mariadb::options().hosts[0].clone()), scheme);
        let mut store = table.open();
        store.reserve(&table.request(0)).unwrap();
        let next = store.reserve(&table.request(0)).unwrap().hi;
        table.disguise.answer("LAST_INSERT_ID", 1, Answer::Ok(0, 99));
        let got = store.reserve(&table.request(next)).unwrap();
        assert_eq!((got.lo, got.hi), (next, next + 10), "{scheme:?}");
        assert_eq!(table.disguise.to_come(), 0, "{scheme:?}");
    }
}

#[test]
fn rows_are_locked_and_changed_in_pessimistic_transactions_only() {
    for scheme in rows() {
        let table = Table::new(scheme);
        let mut store = table.open();
        let mut next = 0;
        for _ in 0..70 {
            next = store.reserve(&table.request(next)).unwrap().hi;
        }
        let (to, key) = (Mark { period: 0, next: next + 100 }, &table.key);
        if !scheme.is_ticket() {
            assert!(store.give_back(&GiveBack::new(key, 0, next - 5, next)).unwrap());
            store.repair(key, to).unwrap();
        }
        let mut open = false;
        let mut locks = 0;
        for statement in table.disguise.said() {
            match statement.as_str() {
                "BEGIN PESSIMISTIC" => open = true,
                "COMMIT" | "ROLLBACK" => open = false,
                "START TRANSACTION" => panic!("a transaction of whatever mode"),
                other => {
                    let changes = ["UPDATE", "INSERT", "REPLACE"].iter().any(|verb| other.starts_with(verb));
                    assert!(open || !(changes || other.contains("FOR UPDATE")), "{scheme:?}: {other}");
                    locks += u32::from(other.contains("FOR UPDATE"));
                }
            }
        }
        assert!(locks >= 70 || scheme == Scheme::AutoIncrement, "{scheme:?}: {locks}");
    }
}

#[test]
fn a_jump_of_thirty_thousand_tickets_is_a_gap_and_nothing_else() {
    for scheme in [Scheme::AutoIncrement, Scheme::Ticket] {
        let table = Table::new(scheme);
        let mut store = table.open();
        let mut next = store.reserve(&table.request(0)).unwrap().hi;
        // Each restart of a TiDB forgets its stock of 30 000.
        for restart in 1..=200_u64 {
            table.say(&format!("ALTER TABLE {{t}} AUTO_INCREMENT = {}", restart * 30_000 + 1));
            let got = store.reserve(&table.request(next)).unwrap();
            assert_eq!((got.lo, got.hi), (restart * 300_000 + 1, restart * 300_000 + 11));
            next = got.hi;
        }
        // Tickets beyond the last number: the sum is refused and does not wrap.
        let last = MAX_NUMBER / 10;
        table.say(&format!("ALTER TABLE {{t}} AUTO_INCREMENT = {}", last + 1));
        let got = store.reserve(&table.request(next)).unwrap();
        assert_eq!((got.lo, got.hi), (last * 10 + 1, MAX_NUMBER + 1));
        for jump in [last + 30_000, MAX_NUMBER - 1] {
            table.say(&format!("ALTER TABLE {{t}} AUTO_INCREMENT = {jump}"));
            let fault = store.reserve(&table.request(next)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Exhausted, "{fault}");
        }
    }
}

#[test]
fn a_ticket_at_or_below_one_in_the_table_is_not_used() {
    for scheme in [Scheme::AutoIncrement, Scheme::Ticket] {
        let table = Table::new(scheme);
        let mut store = table.open();
        for _ in 0..9 {
            store.reserve(&table.request(0)).unwrap();
        }
        for ticket in [1, 5, 9] {
            // A node that has seen nothing asks another TiDB server, which counts from a stock of its own.
            let rows = if scheme == Scheme::Ticket { 2 } else { 1 };
            table.disguise.answer(table.verb(), 1, Answer::DoneWith(rows, ticket));
            let fault = table.open().reserve(&table.request(0)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            for part in [&format!("named ticket {ticket}"), "AUTO_ID_CACHE 1", "scheme=keymill"] {
                assert!(fault.to_string().contains(part), "{fault}");
            }
        }
        assert!(store.reserve(&table.request(91)).unwrap().lo >= 91);
    }
}

/// A sequence of MariaDB's, whose answers are translated into TiDB's.
fn sequence() -> Table {
    let disguise = Disguise::tidb(mariadb::options().hosts[0].clone());
    describe(&disguise, "1", "0");
    let table = Table::behind(disguise, Scheme::Sequence);
    let name = &table.key.table;
    // By TiDB's source it is one more than the value used last.
    table.disguise.instead(
        &format!("SHOW TABLE `{name}` NEXT_ROW_ID"),
        &format!(
            "SELECT 'ids', '{name}', '', GREATEST(next_not_cached_value - increment + 1, 1), 'SEQUENCE' FROM `{name}`"
        ),
    );
    table
}

/// An answer of TiDB's `information_schema.SEQUENCES`.
fn describe(disguise: &Disguise, start: &str, cache: &str) {
    disguise.instead(
        "SELECT `INCREMENT`, `CYCLE`, `START`, `CACHE` FROM information_schema.SEQUENCES WHERE SEQUENCE_SCHEMA = \
         DATABASE() AND SEQUENCE_NAME =",
        &format!(
            "SELECT '10', '0', '{start}', '{cache}' FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() \
             AND TABLE_NAME ="
        ),
    );
}

#[test]
fn a_sequence_counts_in_steps_and_is_seen_to_go_backwards() {
    let table = sequence();
    let mut store = table.open();
    let mut next = 0;
    for round in 0..20 {
        let got = store.reserve(&table.request(next)).unwrap();
        assert_eq!((got.lo, got.hi), (round * 10 + 1, round * 10 + 11));
        next = got.hi;
        assert_eq!(store.look(&table.key).unwrap().unwrap().mark.next, next);
    }
    let (_, after) = store.repair(&table.key, Mark { period: 0, next: 1000 }).unwrap();
    assert_eq!(after.mark.next, 1001);
    assert_eq!(store.reserve(&table.request(next)).unwrap().lo, 1001);
    table.say("ALTER SEQUENCE {t} RESTART 1");
    for _ in 0..20 {
        let fault = store.reserve(&table.request(1011)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::WentBackwards, "{fault}");
    }
    table.disguise.answer("NEXTVAL", 1, Answer::Refused(4135, "Sequence 'ids.s' has run out"));
    assert_eq!(store.reserve(&table.request(0)).unwrap_err().kind, FaultKind::Exhausted);
    table.disguise.answer("NEXTVAL", 1, Answer::DoneAndCut);
    assert_eq!(store.reserve(&table.request(0)).unwrap_err().kind, FaultKind::Unknown);
}

#[test]
fn a_sequence_of_another_start_or_with_a_cache_is_refused() {
    for (start, cache, says) in [("5", "0", "does not start with 1"), ("1", "1", "NOCACHE")] {
        let table = sequence();
        describe(&table.disguise, start, cache);
        let fault = table.open().reserve(&table.request(0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(fault.to_string().contains(says) && fault.to_string().contains("table="), "{fault}");
    }
}

#[test]
fn what_init_prints_is_written_down_for_the_grammar() {
    let nowhere = || {
        let mut options = mariadb::options();
        options.hosts = vec![("127.0.0.1".to_owned(), 1)];
        mariadb::store(options)
    };
    for scheme in Scheme::ALL {
        let printed = nowhere().init(&[key(scheme, scheme.default_table())], true).unwrap();
        assert_eq!(printed.len(), 1, "{scheme:?} needs no server to be printed");
        let own_allocator = printed[0].contains("/*T![auto_id_cache] AUTO_ID_CACHE=1 */");
        assert_eq!(own_allocator, matches!(scheme, Scheme::AutoIncrement | Scheme::Ticket), "{printed:?}");
        disguise::write_down(&printed);
    }
}

#[test]
fn a_mill_takes_ids_and_serials_by_the_statements_for_tidb() {
    let disguise = Disguise::tidb(mariadb::options().hosts[0].clone());
    let mill = keymill::Mill::open(&disguise.in_front_of(&mariadb::url())).unwrap();
    let table = format!("d_{}", std::process::id());
    let specs = [
        format!("segment:orders?table={table}_k"),
        format!("segment:orders?scheme=ticket&table={table}_t"),
        format!("segment:orders?scheme=auto_increment&table={table}_a"),
        format!("serial:cust/id?table={table}_p"),
    ];
    let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
    mill.init(&specs, keymill::Change::Apply).unwrap();
    for spec in &specs[..3] {
        let ids = mill.source(spec).unwrap().take(5000).unwrap();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{spec}");
    }
    let serial = mill.source(specs[3]).unwrap();
    assert!(serial.next_text().unwrap().ends_with("00000001"));
    assert!(mill.metrics().contains("keymill"));
    mill.close();
    let mut connection = mariadb::connection();
    for suffix in ["k", "t", "a", "p"] {
        connection.query_drop(format!("DROP TABLE {table}_{suffix}")).unwrap();
    }
}
