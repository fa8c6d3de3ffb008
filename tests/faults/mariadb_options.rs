//! Options of a MariaDB that change the meaning of a statement, at the login or while a mill runs: no number comes twice,
//! or the reservation is refused with the option's name. And the traces of a mill on a server: connections and statements.
//!
//! Each test has servers of its own, started by `ci/servers/mariadb`.

use std::sync::Arc;
use std::time::Duration;

use keymill::store::mysql::{MysqlStore, Secret, ServerOptions};
use keymill::store::{
    Catalogue, Durability, Fault, FaultKind, GiveBack, Key, Mark, Request, RowStore, Scheme,
};
use keymill::{Change, Mill};
use keymill_tests::ci::patient;
use keymill_tests::disguise::Disguise;
use keymill_tests::mariadb::Private;
use keymill_tests::takers::until;
use keymill_tests::{mariadb, request};
use mysql::prelude::Queryable;

const PATIENCE: Duration = Duration::from_secs(180);

/// A counter of the server.
fn status(root: &mut mysql::Conn, name: &str) -> u64 {
    let found = root.query_first::<(String, u64), _>(format!("SHOW GLOBAL STATUS LIKE '{name}'"));
    found.expect("a status").expect("a row").1
}

/// How many connections user `keymill` has.
fn connections(root: &mut mysql::Conn) -> u64 {
    let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'keymill'";
    root.query_first(sql).expect("a list").expect("a number")
}

#[test]
fn an_idle_connection_is_closed_by_the_client_and_no_aborted_one_is_counted() {
    let server = Private::start("");
    let mut root = server.root();
    let mill = Mill::open(&format!("{}&idle_timeout=300ms", patient(&server.url()))).expect("a mill");
    mill.init(&["segment:orders"], Change::Apply).expect("init");
    let source = mill.source("segment:orders?step=10&max_step=10&buffer=1ms&deadline=60s").expect("a source");
    let aborted = status(&mut root, "Aborted_clients");
    for round in 0..3 {
        assert_eq!(source.take(10).expect("ids").len(), 10, "round {round}");
        until("the idle connection is closed", PATIENCE, || connections(&mut root) == 0);
    }
    assert_eq!(status(&mut root, "Aborted_clients"), aborted);
    // No later timer would contact the server again.
    assert_eq!(connections(&mut root), 0);
    mill.close();
}

/// A table of this scheme; tickets are worth ten numbers.
pub(super) fn key(scheme: Scheme, name: &str) -> Arc<Key> {
    Arc::new(Key { step: 10, ..Key::segment(scheme, &format!("t_{}", scheme.name()), name) })
}

/// Each way to reserve on MariaDB: a row of keymill's own, another program's row, both kinds of tickets.
pub(super) const SCHEMES: [Scheme; 4] =
    [Scheme::Keymill, Scheme::LeafAlloc, Scheme::AutoIncrement, Scheme::Ticket];

pub(super) fn ask(key: &Arc<Key>, next: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request(key, 10) }
}

/// The row as another connection sees it: the lowest number that is not reserved.
fn committed(options: &ServerOptions, key: &Key) -> u64 {
    let durability = Durability::Warn;
    mariadb::store(ServerOptions { durability, ..options.clone() })
        .look(key)
        .expect("a look")
        .expect("a row")
        .mark
        .next
}

/// A user who may write in spite of `read_only`.
fn boss(server: &Private) -> ServerOptions {
    let mut root = server.root();
    root.query_drop("CREATE USER IF NOT EXISTS boss@'%' IDENTIFIED BY 'secret'").expect("a user");
    root.query_drop("GRANT ALL ON *.* TO boss@'%'").expect("rights");
    ServerOptions { user: "boss".to_owned(), ..mariadb::options_of(&server.url()) }
}

#[test]
fn every_answered_range_is_committed_whatever_the_login_sets() {
    let server = Private::start("");
    let mut root = server.root();
    let options = mariadb::options_of(&server.url());
    for scheme in SCHEMES {
        mariadb::store(options.clone()).init(&[key(scheme, "orders")], false).expect("init");
    }
    for (round, setting) in [
        "completion_type = 1",
        "completion_type = 2",
        "autocommit = 0",
        "autocommit = 0, completion_type = 1",
        "sql_select_limit = 0",
        "sql_safe_updates = 1",
        "unique_checks = 0",
        "sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "character_set_client = latin1, character_set_connection = latin1, character_set_results = latin1",
    ]
    .into_iter()
    .enumerate()
    {
        root.query_drop(format!("SET GLOBAL init_connect = \"SET {setting}\"")).expect("root may set that");
        for scheme in SCHEMES {
            let key = key(scheme, &format!("orders{round}"));
            let mut store = mariadb::store(options.clone());
            let mut next = 0;
            for _ in 0..4 {
                let got =
                    store.reserve(&ask(&key, next)).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
                assert!(got.lo >= next.max(1), "{setting}, {scheme:?}: {got:?} after {next}");
                next = got.hi;
                assert_eq!(
                    committed(&options, &key),
                    next,
                    "{setting}, {scheme:?}: answered and not committed"
                );
            }
        }
        let open: Option<u64> =
            root.query_first("SELECT COUNT(*) FROM information_schema.INNODB_TRX").expect("a number");
        assert_eq!(open, Some(0), "{setting}: no transaction is left open");
    }
}

#[test]
fn a_trigger_on_the_table_stops_no_source_and_costs_one_range() {
    let server = Private::start("");
    let mut root = server.root();
    root.query_drop("CREATE TABLE ids.audit (id BIGINT AUTO_INCREMENT PRIMARY KEY, what TEXT)")
        .expect("a table");
    let options = mariadb::options_of(&server.url());
    for scheme in SCHEMES {
        let keys = [key(scheme, "orders"), key(scheme, "bills")];
        let mut store = mariadb::store(options.clone());
        store.init(&keys, false).expect("init");
        let mut next = [0, 0];
        for round in 0..12 {
            if round == 3 {
                root.query_drop(format!(
                    "CREATE TRIGGER ids.{0}_audit AFTER UPDATE ON ids.{0} FOR EACH ROW INSERT INTO audit (what) VALUES (NEW.{1})",
                    keys[0].table,
                    if scheme == Scheme::Keymill { "next" } else { "step" }
                ))
                .expect("a trigger");
            }
            let requests = [ask(&keys[0], next[0]), ask(&keys[1], next[1])];
            // Together and alone in turn.
            let mut answers = if round % 2 == 0 { store.reserve_all(&requests) } else { vec![None, None] };
            for (at, request) in requests.iter().enumerate() {
                let mut answer = answers[at].take().unwrap_or_else(|| store.reserve(request));
                // The first answer without a number may be that to another question: it costs the range and the connection.
                if (round, at) == (3, 0)
                    && answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Unknown)
                {
                    answer = store.reserve(request);
                }
                let got = answer.unwrap_or_else(|fault| panic!("{scheme:?}, round {round}: {fault}"));
                // All tickets of a table come from one counter.
                let skipped = if scheme.is_ticket() { 30 } else { 10 * u64::from((round, at) == (3, 0)) };
                assert!(
                    (next[at].max(1)..=next[at].max(1) + skipped).contains(&got.lo),
                    "{scheme:?}, round {round}: {got:?} after {}",
                    next[at]
                );
                next[at] = got.hi;
                if !scheme.is_ticket() {
                    assert_eq!(committed(&options, &keys[at]), got.hi);
                }
            }
        }
    }
}

#[test]
fn a_read_only_primary_is_not_written_even_by_privileged_users() {
    let (old, new) = std::thread::scope(|scope| {
        let new = scope.spawn(|| Private::start(""));
        (Private::start(""), new.join().expect("a server"))
    });
    let (at_old, at_new) = (boss(&old), boss(&new));
    let both =
        ServerOptions { hosts: [at_old.hosts.clone(), at_new.hosts.clone()].concat(), ..at_old.clone() };
    for scheme in SCHEMES {
        old.root().query_drop("SET GLOBAL read_only = 0").expect("root may set that");
        let key = key(scheme, "orders");
        for options in [&at_old, &at_new] {
            mariadb::store(options.clone()).init(&[Arc::clone(&key)], false).expect("init");
        }
        let mut first = mariadb::store(both.clone());
        let mut next = 0;
        for _ in 0..3 {
            next = first.reserve(&ask(&key, next)).expect("a range").hi;
        }
        // The move of hosts that the page describes.
        old.root().query_drop("SET GLOBAL read_only = 1").expect("root may set that");
        mariadb::store(at_new.clone()).repair(&key, Mark { period: 0, next }).expect("the row is copied");
        let mut given = Vec::new();
        let mut second = mariadb::store(both.clone());
        for round in 0..6 {
            let (store, seen) = if round % 2 == 0 { (&mut first, next) } else { (&mut second, 0) };
            let got = match store.reserve(&ask(&key, seen)) {
                Ok(got) => got,
                // Once, because it was connected to the old one.
                Err(fault) => {
                    assert_eq!((fault.kind, round), (FaultKind::Unavailable, 0), "{scheme:?}: {fault}");
                    assert!(fault.to_string().contains("read-only"), "{fault}");
                    store.reserve(&ask(&key, seen)).expect("from the new one")
                }
            };
            assert!(got.lo >= next, "{scheme:?}: {got:?} after {next}");
            given.push((got.lo, got.hi));
        }
        given.sort_unstable();
        assert!(given.windows(2).all(|two| two[0].1 <= two[1].0), "{scheme:?}: twice: {given:?}");
        assert_eq!(committed(&at_old, &key), next, "{scheme:?}: the old one was not written to");
    }
}

/// Every verb that changes a row.
fn changes(store: &mut MysqlStore, key: &Arc<Key>, next: u64) -> Vec<(&'static str, Fault)> {
    let mut told = Vec::new();
    let mut tell = |verb, answer: Result<(), Fault>| told.extend(answer.err().map(|fault| (verb, fault)));
    tell("reserve", store.reserve(&ask(key, next)).map(drop));
    // A row that another process has moved, or that is missing: a transaction decides.
    tell("reserve anew", store.reserve(&request(key, 10)).map(drop));
    for answer in store.reserve_all(&[ask(key, next), ask(key, next)]) {
        tell("reserve together", answer.map_or(Ok(()), |answer| answer.map(drop)));
    }
    tell("repair", store.repair(key, Mark { period: 0, next: next + 1000 }).map(drop));
    if !key.scheme.is_ticket() {
        tell("give back", store.give_back(&GiveBack::new(key, 0, next - 5, next)).map(drop));
    }
    if key.scheme == Scheme::Keymill {
        tell("raise", store.raise(key, None, next + 5000).map(drop));
    }
    if key.scheme == Scheme::LeafAlloc {
        let new = self::key(Scheme::Keymill, "imported");
        tell("import", store.import(key, &new, 0).map(drop));
    }
    told
}

#[test]
fn settings_changed_under_load_are_seen_before_the_next_range_is_used() {
    let server = Private::start("--log-bin=bin --sync-binlog=1 --server-id=1");
    let (mut root, options) = (server.root(), boss(&server));
    for (setting, unsafe_value, kind, says) in [
        ("innodb_flush_log_at_trx_commit", "0", FaultKind::Unsafe, "innodb_flush_log_at_trx_commit=0"),
        ("innodb_flush_log_at_trx_commit", "2", FaultKind::Unsafe, "innodb_flush_log_at_trx_commit=2"),
        ("sync_binlog", "0", FaultKind::Unsafe, "sync_binlog=0"),
        ("sync_binlog", "100", FaultKind::Unsafe, "sync_binlog=100"),
        ("read_only", "1", FaultKind::Unavailable, "read-only"),
    ] {
        let safe: String =
            root.query_first(format!("SELECT @@GLOBAL.{setting}")).expect("a value").expect("a value");
        for scheme in SCHEMES {
            let key = key(scheme, "orders");
            mariadb::store(options.clone())
                .init(&[Arc::clone(&key), self::key(Scheme::Keymill, "imported")], false)
                .expect("init");
            let mut store = mariadb::store(options.clone());
            let mut next = committed_or_0(&options, &key);
            for _ in 0..3 {
                next = store.reserve(&ask(&key, next)).expect("a range").hi;
            }
            root.query_drop(format!("SET GLOBAL {setting} = {unsafe_value}")).expect("root may set that");
            // On the existing connection, and on a new one.
            for round in 0..2 {
                let told = changes(&mut store, &key, next);
                let verbs: Vec<_> = told.iter().map(|(verb, _)| *verb).collect();
                let all = match scheme {
                    Scheme::Keymill => ["reserve", "reserve anew", "repair", "give back", "raise"].as_slice(),
                    Scheme::LeafAlloc => &["reserve", "reserve anew", "repair", "give back", "import"],
                    _ => &["reserve", "reserve anew", "repair"],
                };
                for verb in all {
                    assert!(
                        verbs.contains(verb),
                        "{setting}={unsafe_value}, {scheme:?}: {verb} was done: {verbs:?}"
                    );
                }
                for (verb, fault) in told {
                    assert_eq!(
                        fault.kind, kind,
                        "{setting}={unsafe_value}, {scheme:?}, {verb}, {round}: {fault}"
                    );
                    assert!(fault.to_string().contains(says), "{verb}: {fault}");
                }
            }
            // Nothing was changed, and a mill with `durability=warn` continues.
            assert_eq!(committed(&options, &key), next, "{setting}={unsafe_value}, {scheme:?}");
            if kind == FaultKind::Unsafe {
                let mut careless =
                    mariadb::store(ServerOptions { durability: Durability::Warn, ..options.clone() });
                next = careless.reserve(&ask(&key, next)).expect("a range").hi;
            }
            root.query_drop(format!("SET GLOBAL {setting} = {safe}")).expect("root may set that");
            next = store.reserve(&ask(&key, next)).expect("a range").hi;
            assert_eq!(committed(&options, &key), next);
        }
    }
    if mariadb::is_mysql(&mut root) {
        return;
    }
    // MariaDB alone has a value that is stricter than 1.
    root.query_drop("SET GLOBAL innodb_flush_log_at_trx_commit = 3").expect("root may set that");
    let facts = mariadb::store(options.clone()).facts().expect("facts");
    assert!(facts.warnings.is_empty(), "{facts:?}");
    mariadb::store(options).reserve(&request(&key(Scheme::Keymill, "orders"), 10)).expect("a range");
}

fn committed_or_0(options: &ServerOptions, key: &Key) -> u64 {
    mariadb::store(options.clone()).look(key).expect("a look").map_or(0, |row| row.mark.next)
}

#[test]
fn a_user_who_logs_in_by_ed25519_gets_ids() {
    let server = Private::start("");
    let mut root = server.root();
    if mariadb::is_mysql_without("login by ed25519", &mut root) {
        return;
    }
    for sql in [
        "INSTALL SONAME 'auth_ed25519'",
        "CREATE USER edward@'%' IDENTIFIED VIA ed25519 USING PASSWORD('secret')",
        "GRANT ALL ON ids.* TO edward@'%'",
    ] {
        root.query_drop(sql).expect("root may do that");
    }
    let options = ServerOptions { user: "edward".to_owned(), ..mariadb::options_of(&server.url()) };
    let key = key(Scheme::Keymill, "orders");
    let mut store = mariadb::store(options.clone());
    store.init(&[Arc::clone(&key)], false).expect("init");
    assert_eq!(store.reserve(&request(&key, 10)).expect("a range").lo, 1);
    let wrong = ServerOptions { password: Secret::new("guessed"), ..options };
    let fault = mariadb::store(wrong).reserve(&request(&key, 10)).expect_err("another password");
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
}

#[test]
fn a_server_without_room_for_prepared_statements_serves_many_mills() {
    let server = Private::start("--performance-schema=ON");
    let mut root = server.root();
    root.query_drop("SET GLOBAL max_prepared_stmt_count = 0").expect("root may set that");
    let prepared = status(&mut root, "Com_stmt_prepare");
    let specs = [
        "segment:orders",
        "serial:cust/id?number=00000000",
        "segment:leaf?scheme=leaf_alloc",
        "segment:ticket?scheme=ticket",
        "segment:row?scheme=auto_increment",
    ];
    let mills: Vec<_> = (0..8).map(|_| Mill::open(&patient(&server.url())).expect("a mill")).collect();
    for mill in &mills {
        mill.init(&specs, Change::Apply).expect("init");
        for spec in specs {
            let glue = if spec.contains('?') { '&' } else { '?' };
            let source = mill.source(&format!("{spec}{glue}deadline=60s")).expect("a source");
            if spec.starts_with("serial") {
                source.next_text().expect("a serial");
            } else {
                source.take(3000).expect("ids");
            }
        }
    }
    assert_eq!(status(&mut root, "Com_stmt_prepare"), prepared);
    assert_eq!(status(&mut root, "Prepared_stmt_count"), 0);
    // The sessions have a name, if the server keeps it.
    let names: Vec<String> = root
        .query(
            "SELECT ATTR_VALUE FROM performance_schema.session_connect_attrs AS attr \
             JOIN information_schema.PROCESSLIST AS list ON attr.PROCESSLIST_ID = list.ID \
             WHERE ATTR_NAME = 'program_name' AND list.USER = 'keymill'",
        )
        .expect("names");
    assert_eq!(names, vec!["keymill"; mills.len()]);
    for mill in mills {
        mill.close();
    }
}

#[test]
fn a_proxy_that_sends_each_statement_to_another_session_cannot_delay_a_commit() {
    let server = Private::start("");
    let mut root = server.root();
    let options = mariadb::options_of(&server.url());
    for scheme in SCHEMES {
        mariadb::store(options.clone()).init(&[key(scheme, "orders")], false).expect("init");
    }
    for (round, setting) in
        ["completion_type = 1", "autocommit = 0", "sql_select_limit = 0"].into_iter().enumerate()
    {
        root.query_drop(format!("SET GLOBAL {setting}")).expect("root may set that");
        for scheme in SCHEMES {
            let key = key(scheme, &format!("orders{round}"));
            let disguise = Disguise::plain(options.hosts[0].clone());
            let mut store =
                mariadb::store(ServerOptions { hosts: vec![disguise.address()], ..options.clone() });
            let mut next = 0;
            for _ in 0..5 {
                // The second time the row exists, and one statement is enough.
                let got =
                    store.reserve(&ask(&key, next)).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
                next = got.hi;
                assert_eq!(
                    committed(&options, &key),
                    next,
                    "{setting}, {scheme:?}: answered and not committed"
                );
                disguise.other_session();
            }
            drop(store);
        }
        let name = setting.split(' ').next().expect("a name");
        root.query_drop(format!("SET GLOBAL {name} = DEFAULT")).expect("root may set that");
    }
}

#[test]
fn a_search_for_the_largest_serial_is_ended_by_the_server_and_not_repeated_at_once() {
    let server = Private::start("");
    let mut root = server.root();
    // A text in a view keeps its maker's collation; this one is keymill's.
    root.query_drop("SET NAMES utf8mb4").expect("a character set");
    root.query_drop(
        "CREATE VIEW ids.slow AS WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 299) \
         SELECT CONCAT('20261120', LPAD(a.i * 300 + b.i + 1, 6, '0'), IF(SLEEP(0.01), '', '')) AS custid \
         FROM n AS a CROSS JOIN n AS b",
    )
    .expect("a view");
    let spec = "serial:slow/custid?number=000000&init=max&deadline=60s";
    // MySQL wants the first password inside TLS, which the disguise does not speak.
    Mill::open(&patient(&server.url())).and_then(|mill| mill.init(&[spec], Change::Apply)).expect("init");
    let disguise = Disguise::plain(mariadb::options_of(&server.url()).hosts[0].clone());
    let url = format!("{}?timeout=8s&connect_timeout=25s", disguise.in_front_of(&server.url()));
    let mill = Mill::open(&url).expect("a mill");
    let source = mill.source(spec).expect("a source");
    drop(disguise.said());
    for round in 0..20 {
        let error = source.next_text().expect_err("nobody knows the largest one");
        assert_eq!(error.code, keymill::Code::StoreRefused, "{round}: {error}");
        for part in ["`slow`.`custid`", "index", "keymill repair"] {
            assert!(error.message.contains(part), "{round}: {error}");
        }
    }
    let scans = disguise.said().iter().filter(|sql| sql.contains("FROM `slow`")).count();
    assert_eq!(scans, 1, "it is not repeated");
    // What the message advises makes the row, so nothing has to be looked for.
    mill.close();
    let repairing = Mill::open(&url).and_then(|mill| mill.source(spec)).expect("a source");
    repairing.repair(500, Change::Apply).expect("a repair");
    let next = Mill::open(&url).and_then(|mill| mill.source(spec)?.next_text()).expect("a serial");
    assert!(next.ends_with("000500"), "{next}");
    until("the server has ended the search", PATIENCE, || {
        let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%FROM `slow`%' \
                   AND ID <> CONNECTION_ID()";
        root.query_first::<u64, _>(sql).expect("a list") == Some(0)
    });
}

#[test]
fn a_replica_that_takes_writes_is_passed_over_or_refused_or_warned_about() {
    let arguments = |id| format!("--log-bin=bin --sync-binlog=1 --server-id={id}");
    let (primary, replica) = std::thread::scope(|scope| {
        let replica = scope.spawn(|| Private::start(&arguments(2)));
        (Private::start(&arguments(1)), replica.join().expect("a server"))
    });
    let (at_primary, at_replica) = (mariadb::options_of(&primary.url()), mariadb::options_of(&replica.url()));
    let mut root = replica.root();
    if mariadb::is_mysql(&mut root) {
        // MySQL shows only with this right that a server replicates.
        let right = "GRANT SELECT ON performance_schema.replication_connection_status TO keymill@'%'";
        for server in [&primary, &replica] {
            server.root().query_drop(right).expect("a right");
        }
    }
    replica.follow(&primary);
    until("it follows", PATIENCE, || {
        replica.replica_status(["Replica_IO_Running", "Replica_SQL_Running"]) == ["Yes", "Yes"]
    });
    let key = key(Scheme::Keymill, "orders");
    mariadb::store(at_primary.clone()).init(&[Arc::clone(&key)], false).expect("init");
    until("the table is there", PATIENCE, || {
        mariadb::store(at_replica.clone()).look(&key).is_ok_and(|row| row.is_none())
    });
    let hosts = |servers: &[&ServerOptions]| {
        servers.iter().flat_map(|options| options.hosts.clone()).collect::<Vec<_>>()
    };
    let dead = ServerOptions { hosts: vec![("127.0.0.1".to_owned(), 1)], ..at_primary.clone() };
    // The primary is named too: it is found at any position in the list.
    let both = ServerOptions { hosts: hosts(&[&at_replica, &at_primary]), ..at_primary.clone() };
    let next = mariadb::store(both).reserve(&ask(&key, 0)).expect("a range").hi;
    assert_eq!(committed(&at_primary, &key), next);
    until("the row is there", PATIENCE, || committed_or_0(&at_replica, &key) == next);
    // The primary cannot be reached from here, but still takes writes.
    let cut_off = ServerOptions { hosts: hosts(&[&dead, &at_replica]), ..at_primary.clone() };
    let mut store = mariadb::store(cut_off.clone());
    assert_eq!(store.look(&key).expect("a look").expect("a row").mark.next, next);
    let fault = store.reserve(&ask(&key, next)).expect_err("a replica");
    assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
    assert!(fault.to_string().contains("replicates from another server"), "{fault}");
    // A mill with `durability=warn`, and a mill with a single host, only warn.
    for options in [ServerOptions { durability: Durability::Warn, ..cut_off.clone() }, at_replica.clone()] {
        let mut store = mariadb::store(options);
        store.reserve(&ask(&key, next)).expect("a range");
        let facts = store.facts().expect("facts");
        assert!(facts.warnings.iter().any(|warning| warning.contains("replicates")), "{facts:?}");
    }
    // Promoted.
    root.query_drop("STOP REPLICA").expect("root may do that");
    let mut store = mariadb::store(cut_off);
    store.reserve(&ask(&key, next)).expect("a range");
    assert!(store.facts().expect("facts").warnings.is_empty());
}

#[test]
fn a_locked_table_ends_in_the_servers_own_error_and_leaves_no_statement_waiting() {
    let server = Private::start("");
    let mut options = mariadb::options_of(&server.url());
    // Each of six waits takes half of it.
    options.read_timeout = std::time::Duration::from_secs(10);
    let key = key(Scheme::Keymill, "orders");
    let mut store = mariadb::store(options.clone());
    store.init(&[Arc::clone(&key)], false).expect("init");
    let mut next = 0;
    for _ in 0..3 {
        next = store.reserve(&ask(&key, next)).expect("a range").hi;
    }
    let (mut root, mut watcher) = (server.root(), server.root());
    for lock in [format!("LOCK TABLES ids.{} WRITE", key.table), "FLUSH TABLES WITH READ LOCK".to_owned()] {
        root.query_drop(&lock).expect("root may do that");
        for _ in 0..3 {
            let fault = store.reserve(&ask(&key, next)).expect_err("the table is locked");
            assert!(
                matches!(fault.kind, FaultKind::Locked | FaultKind::Unavailable),
                "{lock}: {:?}: {fault}",
                fault.kind
            );
        }
        let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'keymill' AND COMMAND = 'Query'";
        let waiting: Option<u64> = watcher.query_first(sql).expect("a list");
        assert_eq!(waiting, Some(0), "{lock}");
        root.query_drop("UNLOCK TABLES").expect("root may do that");
        let got = store.reserve(&ask(&key, next)).expect("a range");
        assert_eq!(got.lo, next, "{lock}: nothing was reserved meanwhile");
        next = got.hi;
    }
}
