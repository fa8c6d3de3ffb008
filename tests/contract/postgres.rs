//! Tests for PostgreSQL alone: rights, lost answers, broken connections, settings that lose commits.

use std::process::Command;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use keymill::store::memory::Memory;
use keymill::store::postgres::{ServerOptions, Tls, TlsMode};
use keymill::store::{Catalogue, Durability, FaultKind, Mark, Request, RowStore, Secret};
use keymill_tests::ci::patient;
use keymill_tests::postgres::{self, Private, Sql};
use keymill_tests::proxy::Proxy;
use keymill_tests::worker::in_a_process_of_its_own;

use crate::bench::*;
use crate::sqlite::{forked, ranges_of};
use crate::{assert_disjoint, kind, reserve_many};

/// How long a test waits for a condition.
const PATIENCE: Duration = Duration::from_secs(120);

/// The default table, for servers of one test.
fn own() -> Bench {
    Bench { kind: Kind::Segment, place: Place::Memory(Memory::new()), table: "keymill_segment".into() }
}

#[test]
fn a_missing_table_names_the_command() {
    for kind in Kind::all() {
        let bench = Bench::postgres(kind);
        bench.tamper("DROP TABLE {t}", &[]);
        let mut store = bench.open();
        let request = bench.request("orders", 2000);
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert_eq!(
            fault.to_string(),
            format!(
                "reserving 2000 for `{}` failed: table `{}` is missing; run `keymill init`",
                request.key.name, bench.table
            )
        );
        // The same connection continues once the table exists.
        assert_eq!(store.init(&[bench.key("orders")], true).unwrap().len(), 1);
        assert_eq!(self::kind(store.reserve(&request)), FaultKind::Refused);
        store.init(&[bench.key("orders"), bench.key("invoices")], false).unwrap();
        store.init(&[bench.key("orders")], false).unwrap();
        let got = store.reserve(&request).unwrap();
        assert_eq!(got.lo, 1);
        // A table that was dropped and created again under a live connection does not begin again.
        bench.tamper("DROP TABLE {t}", &[]);
        assert_eq!(self::kind(store.reserve(&request)), FaultKind::Refused);
        bench.open().init(&[bench.key("orders")], false).unwrap();
        let seen = Request { high_water: bench.mark(got.hi), ..request };
        assert_eq!(self::kind(store.reserve(&seen)), FaultKind::WentBackwards);
    }
}

/// Without its unique key the first two users of a name would each make a row.
#[test]
fn a_table_created_again_without_its_key_is_refused_on_the_live_connection() {
    let bench = Bench::postgres(Kind::Segment);
    let mut store = bench.open();
    let request = bench.request("orders", 10);
    assert_eq!(store.reserve(&request).unwrap().lo, 1);
    bench.tamper("CREATE TABLE {t}_keyless AS SELECT * FROM {t} WHERE false", &[]);
    bench.tamper("DROP TABLE {t}", &[]);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Refused);
    bench.tamper("ALTER TABLE {t}_keyless RENAME TO {t}", &[]);
    let fault = store.reserve(&request).unwrap_err();
    assert!(fault.kind == FaultKind::Refused && fault.to_string().contains("no primary key"), "{fault}");
}

#[test]
fn init_max_reads_numbers_kept_as_bytes() {
    let bench = Bench::postgres(Kind::Serial);
    let business = unique("CUST");
    bench.tamper(&format!("CREATE TABLE {business} (id BYTEA)"), &[]);
    let kept = format!("INSERT INTO {business} VALUES (CONVERT_TO('202611200077', 'UTF8'))");
    bench.tamper(&kept, &[]);
    let key = bench.kind.key(&bench.table, &business, true);
    let request = Request { key, ..bench.request("x", 1) };
    assert_eq!(bench.open().reserve(&request).unwrap().lo, 78);
    bench.tamper(&format!("DROP TABLE {business}"), &[]);
}

#[test]
fn a_wrong_password_or_right_or_place_is_refused_and_never_shown() {
    let bench = Bench::postgres(Kind::Segment);
    let request = bench.request("orders", 1);
    let refused = |options: ServerOptions| {
        let mut store = postgres::store(options.clone());
        let fault = store.reserve(&request).unwrap_err();
        let shown = format!("{fault} {fault:?} {options:?} {store:?}");
        assert!(!shown.contains("wrong-horse"), "{shown}");
        (fault.kind, fault.to_string())
    };
    let password = Secret::new("wrong-horse-battery");
    let (kind, message) = refused(ServerOptions { password, ..postgres::options() });
    assert!(kind == FaultKind::Refused && message.contains("check user and password"), "{message}");
    let (kind, message) = refused(ServerOptions { database: "no_such".into(), ..postgres::options() });
    assert!(kind == FaultKind::Refused && message.contains("create the database"), "{message}");
    let root = Sql::root(&postgres::url());
    root.say(&format!(
        "DROP ROLE IF EXISTS clerk; CREATE ROLE clerk LOGIN PASSWORD 'clerk'; GRANT SELECT ON {} TO clerk",
        bench.table
    ));
    let clerk = ServerOptions { user: "clerk".into(), password: Secret::new("clerk"), ..postgres::options() };
    let (kind, message) = refused(clerk.clone());
    assert!(kind == FaultKind::Refused && message.contains("grant this user"), "{message}");
    root.say(&format!("GRANT INSERT, UPDATE ON {} TO clerk", bench.table));
    assert_eq!(postgres::store(clerk.clone()).reserve(&request).unwrap().lo, 1, "these grants are enough");
    let elsewhere = Kind::Segment.key("no_such_table", "orders", false);
    let fault = postgres::store(clerk.clone()).init(&[elsewhere], false).unwrap_err();
    assert!(fault.kind == FaultKind::Refused && fault.to_string().contains("init --dry-run"), "{fault}");
    root.say("ALTER ROLE clerk NOLOGIN");
    let (kind, message) = refused(clerk);
    assert!(kind == FaultKind::Refused && message.contains("`clerk`"), "{message}");
    assert!(
        message.contains("is not permitted to log in"),
        "the server knows better than the password: {message}"
    );
    root.say("DROP OWNED BY clerk; DROP ROLE clerk");
    let hosts = vec![("127.0.0.1".to_owned(), 1), ("no-such-host.invalid".to_owned(), 5432)];
    let (kind, message) = refused(ServerOptions { hosts, ..postgres::options() });
    assert_eq!(kind, FaultKind::Unavailable, "{message}");
}

#[test]
fn a_connection_ended_by_the_server_is_replaced_without_a_fault() {
    let private = Private::start("");
    let root = Sql::root(&private.url());
    for kind in [Kind::Segment, Kind::Serial, Kind::LEAF] {
        let bench = Bench { kind, place: Place::Memory(Memory::new()), table: unique("t") };
        let mut store = postgres::store(private.options());
        let request = bench.request("orders", 10);
        store.init(&[Arc::clone(&request.key)], false).unwrap();
        for round in 0..3 {
            assert_eq!(store.reserve(&request).unwrap().lo, 1 + 10 * round, "nothing is lost");
            assert_ne!(root.end_sessions(), 0);
        }
    }
}

/// Like a pooler in transaction mode, where the next transaction is on another connection. The driver's statement names,
/// which other processes use too, are safe only on a direct connection.
#[test]
fn lost_prepared_statements_fall_back_to_text_and_lose_no_number() {
    for (kind, between) in Kind::all().flat_map(|kind| [(kind, false), (kind, true)]) {
        let bench = Bench::postgres(kind);
        let mut options = postgres::options();
        let proxy = Proxy::start(options.hosts[0].clone());
        if between {
            options.hosts = vec![proxy.address()];
        }
        let mut store = bench.counting(Box::new(postgres::store(options)));
        let mut request = bench.request("orders", 10);
        let sql = Sql::shared();
        let mut reserve = |rounds: std::ops::Range<u64>| {
            for round in rounds {
                let got =
                    store.reserve(&request).unwrap_or_else(|fault| panic!("{kind:?}, {round}: {fault}"));
                assert_eq!((got.lo, got.hi), (1 + 10 * round, 11 + 10 * round), "{kind:?}");
                request.high_water = Mark { period: got.period, next: got.hi };
            }
        };
        reserve(0..10);
        let table = &bench.table;
        sql.say(&format!("CREATE TABLE names_{table} (name text)"));
        sql.say(&format!(
            "CREATE FUNCTION forget_{table}() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS \
             $$ BEGIN INSERT INTO names_{table} SELECT name FROM pg_prepared_statements; \
             EXECUTE 'DEALLOCATE ALL'; RETURN NULL; END $$; \
             CREATE CONSTRAINT TRIGGER forget AFTER UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION forget_{table}()"
        ));
        reserve(10..20);
        sql.say(&format!("DROP FUNCTION forget_{table} CASCADE"));
        reserve(20..30);
        let names = sql.rows(&format!("SELECT name FROM names_{table}"));
        assert!(names.iter().all(|name| name[0].starts_with("keymill_") == between), "{kind:?}: {names:?}");
        assert!(!names.is_empty() || bench.kind.is_serial(), "{kind:?} has a name");
        sql.say(&format!("DROP TABLE names_{table}"));
    }
}

#[test]
fn a_lock_held_too_long_ends_in_the_servers_own_answer() {
    for kind in [Kind::Segment, Kind::Serial] {
        let bench = Bench::postgres(kind);
        // The server's limit is half of it; the other half is for a busy machine.
        let read_timeout = Duration::from_secs(20);
        let mut store = postgres::store(ServerOptions { read_timeout, ..postgres::options() });
        let request = bench.request("orders", 10);
        store.reserve(&request).unwrap();
        let holder = Sql::shared();
        holder.say(&format!("BEGIN; SELECT * FROM {} FOR UPDATE", bench.table));
        let began = Instant::now();
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Locked, "nothing is unknown: {fault}");
        assert!(fault.to_string().contains("55P03"), "{fault}");
        assert!(began.elapsed() < 5 * read_timeout, "{:?}", began.elapsed());
        holder.say("ROLLBACK");
        assert_eq!(store.reserve(&request).unwrap().lo, 11);
    }
}

#[test]
fn settings_that_lose_commits_are_refused_or_warned_about() {
    let private = Private::start("-c full_page_writes=off");
    let mut options = private.options();
    let root = Sql::root(&private.url());
    let bench = own();
    let request = bench.request("orders", 10);
    let refused = |setting: &str| {
        let fault = postgres::store(private.options()).reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
        assert!(
            fault.to_string().contains(setting) && fault.to_string().contains("durability=warn"),
            "{fault}"
        );
    };
    refused("full_page_writes=off");
    options.durability = Durability::Warn;
    let mut store = postgres::store(options.clone());
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    assert_eq!(store.reserve(&request).unwrap().lo, 1);
    let facts = store.facts().unwrap();
    assert_eq!((facts.dialect.as_str(), facts.warnings.len()), ("postgresql", 1), "{facts:?}");
    assert!(facts.durability.iter().any(|line| line == "synchronous_commit=on"), "{facts:?}");
    root.say("ALTER ROLE keymill SET synchronous_commit = off");
    refused("synchronous_commit=off");
    let asked = postgres::store(private.options()).facts().unwrap();
    assert_eq!(asked.warnings.len(), 2, "asking is safe: {asked:?}");
    root.say("ALTER ROLE keymill SET synchronous_commit = local");
    root.say(&format!("ALTER TABLE {} SET UNLOGGED", bench.table));
    let mut warned = postgres::store(options);
    warned.look(&request.key).unwrap();
    assert_eq!(warned.facts().unwrap().warnings.len(), 2, "the table and full_page_writes");
}

#[test]
fn synchronous_commit_turned_off_loses_no_number_of_live_connections() {
    let private = Private::start("-c wal_writer_delay=10s -c wal_writer_flush_after=0");
    let bench = own();
    let request = bench.request("orders", 10);
    let mut store = postgres::store(private.options());
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    let mut ranges = vec![store.reserve(&request).map(|got| (got.lo, got.hi)).unwrap()];
    let root = Sql::root(&private.url());
    root.say("ALTER SYSTEM SET synchronous_commit = off");
    root.say("SELECT pg_reload_conf()");
    let deadline = Instant::now() + PATIENCE;
    while root.rows("SHOW synchronous_commit") != [["off"]] {
        assert!(Instant::now() < deadline, "the setting arrives");
    }
    // Each backend reads the file between two questions.
    for _ in 0..20 {
        ranges.push(store.reserve(&request).map(|got| (got.lo, got.hi)).unwrap());
    }
    private.kill();
    private.start_again();
    let fault = postgres::store(private.options()).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsafe, "a new connection is told: {fault}");
    let options = ServerOptions { durability: Durability::Warn, ..private.options() };
    ranges.push(postgres::store(options).reserve(&request).map(|got| (got.lo, got.hi)).unwrap());
    assert_disjoint(ranges);
}

#[test]
fn an_unlogged_table_is_refused() {
    let bench = Bench::postgres(Kind::Segment);
    bench.tamper("ALTER TABLE {t} SET UNLOGGED", &[]);
    let fault = bench.open().reserve(&bench.request("orders", 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
    assert!(fault.to_string().contains("a crash empties it"), "{fault}");
}

#[test]
fn a_read_only_server_answers_questions_and_reserves_nothing() {
    let private = Private::start("");
    let bench = own();
    let request = bench.request("orders", 10);
    let mut store = postgres::store(private.options());
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    store.reserve(&request).unwrap();
    let root = Sql::root(&private.url());
    root.say("ALTER ROLE keymill SET default_transaction_read_only = on");
    let mut replica = postgres::store(private.options());
    assert_eq!(replica.look(&request.key).unwrap().unwrap().mark.next, 11);
    assert_eq!(replica.facts().unwrap().warnings.len(), 1);
    let fault = replica.reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
    assert!(fault.to_string().contains("read-only"), "{fault}");
    // Changed under a live connection: the server itself refuses, and the next connection is another one.
    root.say("ALTER ROLE keymill RESET default_transaction_read_only");
    root.say("SET default_transaction_read_only = off");
    root.say("ALTER SYSTEM SET default_transaction_read_only = on");
    root.say("SELECT pg_reload_conf()");
    let deadline = Instant::now() + PATIENCE;
    let fault = loop {
        match store.reserve(&request) {
            Ok(_) => assert!(Instant::now() < deadline, "the setting arrives"),
            Err(fault) => break fault,
        }
    };
    assert!(fault.kind == FaultKind::Unavailable && fault.to_string().contains("read-only"), "{fault}");
    root.say("ALTER SYSTEM RESET default_transaction_read_only");
    root.say("SELECT pg_reload_conf()");
    let lo = loop {
        match replica.reserve(&request) {
            Ok(got) => break got.lo,
            Err(fault) => assert!(Instant::now() < deadline, "{fault}"),
        }
    };
    assert!(lo >= 11);
}

#[test]
fn too_many_connections_are_waited_out() {
    let private = Private::start("-c max_connections=8 -c superuser_reserved_connections=3");
    let bench = own();
    let request = bench.request("orders", 10);
    postgres::store(private.options()).init(&[Arc::clone(&request.key)], false).unwrap();
    let mut others = Vec::new();
    let fault = loop {
        let mut store = postgres::store(private.options());
        match store.reserve(&request) {
            Ok(_) => others.push(store),
            Err(fault) => break fault,
        }
        assert!(others.len() < 8, "there are only so many");
    };
    assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
    assert!(fault.to_string().contains("too many connections"), "{fault}");
    let taken = others.len() as u64;
    others.pop();
    let mut store = postgres::store(private.options());
    let deadline = Instant::now() + PATIENCE;
    let got = loop {
        match store.reserve(&request) {
            Ok(got) => break got,
            Err(fault) => assert!(Instant::now() < deadline, "{fault}"),
        }
    };
    assert_eq!(got.lo, 1 + 10 * taken, "a store that was closed has let go of its connection");
}

#[test]
fn a_server_frozen_for_longer_than_the_deadline_costs_the_deadline_and_no_number() {
    // Longer than a busy disk takes for an answer, shorter than the test waits.
    const TIMEOUT: Duration = Duration::from_millis(1500);
    let private = Private::start("");
    let mut options = private.options();
    (options.read_timeout, options.connect_timeout) = (TIMEOUT, TIMEOUT);
    let bench = own();
    let mut request = bench.request("orders", 10);
    let mut store = postgres::store(options);
    postgres::store(private.options()).init(&[Arc::clone(&request.key)], false).unwrap();
    let mut ranges = Vec::new();
    for _ in 0..3 {
        // An answer may come late too; its range is never used.
        let deadline = Instant::now() + PATIENCE;
        let got = loop {
            match store.reserve(&request) {
                Ok(got) => break got,
                Err(fault) => {
                    let passes = fault.kind.is_outage() || fault.kind == FaultKind::Locked;
                    assert!(passes && Instant::now() < deadline, "{fault}");
                }
            }
        };
        request.high_water = Mark { period: 0, next: got.hi };
        ranges.push((got.lo, got.hi));
        private.ci(&["freeze"]);
        for expected in [FaultKind::Unknown, FaultKind::Unavailable] {
            let began = Instant::now();
            let fault = store.reserve(&request).unwrap_err();
            assert_eq!(fault.kind, expected, "{fault}");
            assert!(fault.to_string().contains("did not answer in time"), "{fault}");
            // The machine may be busy; the server stays frozen.
            assert!(began.elapsed() < 40 * TIMEOUT, "{:?}", began.elapsed());
        }
        private.ci(&["thaw"]);
    }
    // The server has to catch up first.
    ranges.extend(reserve_many(&mut postgres::store(private.options()), &request, 1));
    assert_disjoint(ranges);
}

/// An authority, and a certificate that it signed for this name.
fn certify(folder: &std::path::Path, authority: &str, name: &str) {
    std::fs::create_dir_all(folder).unwrap();
    let openssl = |arguments: &str| {
        let output = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -days 2 -keyout ca.key -out ca.pem -subj /CN={authority}"));
    openssl(&format!("req {key} -keyout server.key -out server.csr -subj /CN={name}"));
    std::fs::write(folder.join("names"), format!("subjectAltName=DNS:{name}")).unwrap();
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out server.crt -extfile names",
    );
}

#[test]
fn a_certificate_is_verified_for_its_authority_and_its_name() {
    let private = Private::prepare("");
    let own_authority = private.folder().join("tls");
    certify(&own_authority, "own", "localhost");
    let stranger = tempfile::tempdir().unwrap();
    certify(stranger.path(), "stranger", "localhost");
    private.start_again();
    let bench = own();
    let request = bench.request("orders", 10);
    let port = private.options().hosts[0].1;
    let with = |host: &str, tls: Tls| {
        let mut options = private.options();
        options.hosts = vec![(host.to_owned(), port)];
        options.tls = tls;
        postgres::store(options)
    };
    let by = |folder: &std::path::Path| Tls::verify(Some(folder.join("ca.pem")));
    let mut store = with("localhost", by(&own_authority));
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    assert_eq!(store.reserve(&request).unwrap().lo, 1);
    let ssl = Sql::root(&private.url()).rows(
        "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity USING (pid) WHERE application_name = 'keymill'",
    );
    assert_eq!(ssl, [["t"]], "the connection is encrypted");
    for (host, tls, says) in [
        ("localhost", by(stranger.path()), "UnknownIssuer"),
        ("localhost", Tls::verify(None), "UnknownIssuer"),
        ("127.0.0.1", by(&own_authority), "not valid for name"),
        ("localhost", by(std::path::Path::new("/nowhere")), "cannot be read"),
    ] {
        let fault = with(host, tls).reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(fault.to_string().contains(says), "{says}: {fault}");
    }
    // A server that accepts only clients with a certificate.
    let root = Sql::root(&private.url());
    let rules = root.rows("SHOW hba_file");
    std::fs::write(&rules[0][0], "local all postgres trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n")
        .unwrap();
    root.say("SELECT pg_reload_conf()");
    let deadline = Instant::now() + PATIENCE;
    let fault = loop {
        match with("127.0.0.1", Tls::new(TlsMode::Off)).reserve(&request) {
            Ok(_) => assert!(Instant::now() < deadline, "the rule arrives"),
            Err(fault) => break fault,
        }
    };
    assert!(fault.kind == FaultKind::Refused && fault.to_string().contains("tls=verify"), "{fault}");
    assert!(with("localhost", by(&own_authority)).reserve(&request).is_ok());
}

#[test]
fn a_server_without_tls_is_refused_where_it_is_wanted() {
    let bench = Bench::postgres(Kind::Segment);
    let options = ServerOptions { tls: Tls::verify(None), ..postgres::options() };
    let fault = postgres::store(options).reserve(&bench.request("orders", 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    assert!(fault.to_string().contains("TLS"), "{fault}");
}

#[test]
fn a_socket_is_as_good_as_a_host() {
    let private = Private::start("");
    let bench = own();
    let request = bench.request("orders", 10);
    let folder = std::path::PathBuf::from(private.ci(&["socket"]));
    let port = private.options().hosts[0].1;
    let file = folder.join(format!(".s.PGSQL.{port}"));
    for (at, socket) in [folder, file].into_iter().enumerate() {
        let options = ServerOptions { socket: Some(socket), ..private.options() };
        let mut store = postgres::store(options);
        store.init(&[Arc::clone(&request.key)], false).unwrap();
        assert_eq!(store.reserve(&request).unwrap().lo, 1 + 10 * at as u64);
    }
    let url = format!("postgresql://keymill:secret@localhost:{port}/ids?socket={}", private.ci(&["socket"]));
    let mill = keymill::Mill::open(&patient(&url)).unwrap();
    mill.source("segment:orders?deadline=60s").unwrap().next().unwrap();
    mill.close();
}

#[test]
fn forked_children_open_connections_of_their_own_and_leave_the_parents_alone() {
    if !in_a_process_of_its_own(
        "postgres::forked_children_open_connections_of_their_own_and_leave_the_parents_alone",
    ) {
        return;
    }
    let private = Private::start("");
    let url = private.url();
    let root = Sql::root(&url);
    let spec = "segment:orders?min_step=10&max_step=10&deadline=60s";
    let mill = keymill::Mill::open(&patient(&url)).unwrap();
    mill.init(&[spec], keymill::Change::Apply).unwrap();
    let source = mill.source(spec).unwrap();
    let take = |count: usize| -> Vec<(u64, u64)> {
        (0..count).map(|_| source.next().unwrap()).map(|id| (id, id + 1)).collect()
    };
    let mut ids = take(25);
    let backends = || {
        root.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'keymill' AND state IS NOT NULL")
    };
    // The server notices late that a connection was closed.
    let deadline = Instant::now() + PATIENCE;
    let parents = loop {
        let parents = backends();
        if parents.len() == 1 {
            break parents;
        }
        assert!(Instant::now() < deadline, "{parents:?}");
    };
    // The keeper works while the process forks.
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let mut ids = Vec::new();
            // ordering: Relaxed — a flag, nothing hangs on it.
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                ids.extend(take(10));
            }
            ids
        });
        let children: Vec<_> = (0..8).map(|_| forked(|| take(55))).collect();
        ids.extend(children.into_iter().flat_map(ranges_of));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        ids.extend(busy.join().unwrap());
    });
    ids.extend(take(25));
    assert_disjoint(ids);
    assert!(backends().contains(&parents[0]), "the parent still has the connection it had");
    mill.close();
}

/// CosId's own statements, as its JDBC distributor sends them.
fn cosid_node(sql: &Sql, table: &str, step: u64) -> (u64, u64) {
    let rows = sql.rows(&format!(
        "BEGIN; UPDATE {table} SET last_max_id=(last_max_id + {step}),last_fetch_time=1 WHERE name = 'orders'; \
         SELECT last_max_id FROM {table} WHERE name = 'orders'; COMMIT"
    ));
    let last: u64 = rows[0][0].parse().unwrap();
    (last - step + 1, last + 1)
}

#[test]
fn cosid_nodes_on_the_same_row_never_overlap_with_ours() {
    let bench = Bench::postgres(Kind::COSID);
    bench.open().reserve(&bench.request("orders", 5)).unwrap();
    let ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let bench = &bench;
                scope.spawn(move || {
                    if n % 2 == 0 {
                        return reserve_many(bench.open().as_mut(), &bench.request("orders", 5), 50);
                    }
                    let sql = Sql::shared();
                    (0..50).map(|_| cosid_node(&sql, &bench.table, 7)).collect()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ranges.len(), 400);
    assert_disjoint(ranges);
    assert_eq!(bench.stands_at("orders"), Some(6 + 200 * 5 + 200 * 7));
}

/// The server reports a table that another session commits in the same moment in three ways, by how far it came.
#[test]
fn sessions_that_create_the_same_table_at_once_all_succeed() {
    const SESSIONS: usize = 12;
    const ROUNDS: usize = 40;
    let table = unique("at_once");
    let start = Barrier::new(SESSIONS);
    let failed: Vec<_> = std::thread::scope(|scope| {
        let session = || {
            let mut store = postgres::store(postgres::options());
            let init = |round| {
                let key = Kind::Segment.key(&format!("{table}_{round}"), "orders", false);
                start.wait();
                store.init(&[key], false).err()
            };
            (0..ROUNDS).filter_map(init).collect::<Vec<_>>()
        };
        let sessions: Vec<_> = (0..SESSIONS).map(|_| scope.spawn(session)).collect();
        sessions.into_iter().flat_map(|session| session.join().unwrap()).collect()
    });
    let root = Sql::root(&postgres::url());
    for round in 0..ROUNDS {
        root.say(&format!("DROP TABLE {table}_{round}"));
    }
    assert!(failed.is_empty(), "{failed:?}");
}
