//! Workers that are used once: rows of uid-generator's `WORKER_NODE`, which its own nodes insert beside ours.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Mill};
use keymill_tests::ci::patient;
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, worker};
use mysql::prelude::Queryable;

/// Opens a mill and takes an id: its worker, and the id.
fn begin(config: &str, spec: &str) -> keymill::Result<(u64, u64)> {
    let source = Mill::open(config)?.source(&format!("{spec}&deadline=60s"))?;
    let id = source.next()?;
    Ok((source.parse(id)?.worker.expect("a worker"), id))
}

/// As uid-generator's mapper inserts a node; answers with its number.
fn insert_of_uid_generator(connection: &mut mysql::Conn, table: &str) -> u64 {
    connection
        .exec_drop(
            format!(
                "INSERT INTO {table} (HOST_NAME, PORT, TYPE, LAUNCH_DATE, MODIFIED, CREATED) VALUES (?, ?, ?, ?, NOW(), NOW())"
            ),
            ("10.0.0.7", "1763683200123-4711", 2, "2026-11-23"),
        )
        .expect("a row");
    connection.last_insert_id()
}

#[test]
fn each_start_uses_up_a_number_of_the_table_beside_the_nodes_of_uid_generator() {
    let table = format!("WORKER_NODE_{}", fastrand::u32(..));
    let spec = format!("snowflake:tx?layout=uid&epoch=2026-01-01&worker=disposable&table={table}");
    let config = patient(&mariadb::url());
    let refused = begin(&config, &spec).expect_err("the table is missing");
    assert_eq!(refused.code, Code::StoreRefused, "{refused}");
    assert!(refused.message.contains("keymill") && refused.message.contains("init"), "{refused}");
    let made = Mill::open(&config).and_then(|mill| mill.init(&[&spec], Change::Apply)).expect("the table");
    assert!(made.iter().any(|statement| statement.contains(&table)), "{made:?}");
    let mut connection = mariadb::connection();
    let mut ids = BTreeSet::new();
    for round in 0..5 {
        let theirs = insert_of_uid_generator(&mut connection, &table);
        let (ours, id) = begin(&config, &spec).expect("an id");
        assert_eq!((theirs, ours), (2 * round + 1, 2 * round + 2));
        assert!(ids.insert(id), "{id} was issued twice");
    }
    let rows: Vec<(u64, String, i32)> =
        connection.query(format!("SELECT ID, HOST_NAME, TYPE FROM {table} ORDER BY ID")).expect("the rows");
    assert_eq!(rows.len(), 10);
    assert!(rows.iter().all(|(_, host, kind)| !host.is_empty() && *kind == 2), "{rows:?}");
    connection.query_drop(format!("DROP TABLE {table}")).expect("dropped");
}

#[test]
fn a_number_that_does_not_fit_the_layout_is_refused_and_no_further_row_is_used_up() {
    let table = format!("WORKER_NODE_{}", fastrand::u32(..));
    let spec = format!("snowflake:tx?worker=disposable&deadline=60s&table={table}");
    let config = patient(&mariadb::url());
    Mill::open(&config).and_then(|mill| mill.init(&[&spec], Change::Apply)).expect("the table");
    let mut connection = mariadb::connection();
    // As another server of a TiDB counts.
    connection.query_drop(format!("ALTER TABLE {table} AUTO_INCREMENT = 30001")).expect("altered");
    let source = Mill::open(&config).and_then(|mill| mill.source(&spec)).expect("a source");
    for _ in 0..3 {
        let refused = source.next().expect_err("30001 does not fit 10 bits");
        assert_eq!(refused.code, Code::NoWorkerFree, "{refused}");
        for says in [
            "30001",
            "0 to 1023",
            "TiDB",
            "AUTO_ID_CACHE 1",
            "every node of uid-generator",
            "`--to now --yes`",
        ] {
            assert!(refused.message.contains(says), "{refused}");
        }
    }
    let rows: Option<u64> = connection.query_first(format!("SELECT COUNT(*) FROM {table}")).expect("a count");
    assert_eq!(rows, Some(1));
    connection.query_drop(format!("DROP TABLE {table}")).expect("dropped");
}

/// As the refusal of a number that does not fit says: leased workers begin after every id of the numbers that were used once.
#[test]
fn a_source_that_is_given_leased_workers_as_the_message_says_makes_no_id_until_the_old_ones_are_over() {
    let table = format!("WORKER_NODE_{}", fastrand::u32(..));
    let name = format!("tx{}", fastrand::u32(..));
    let once = format!("snowflake:{name}?worker=disposable&deadline=60s&table={table}");
    let leased = format!("snowflake:{name}?max_lead=3s&lease=30s&deadline=2s");
    let mill = Mill::open(&patient(&mariadb::url())).expect("a mill");
    mill.init(&[&once, &leased], Change::Apply).expect("the tables");
    mill.source(&once).and_then(|source| source.next()).expect("an id");
    let source = mill.source(&leased).expect("a source");
    let now = source.repair_target("now").expect("a time");
    source.repair(now, Change::Apply).expect("raised");
    assert_eq!(source.next().expect_err("no worker is free yet").code, Code::NoWorkerFree);
    mariadb::connection().query_drop(format!("DROP TABLE {table}")).expect("dropped");
}

#[test]
fn mills_on_one_memory_use_numbers_up_too() {
    let config = format!("memory:nodes{}", fastrand::u32(..));
    let spec = "snowflake:tx?worker=disposable";
    let kept = Mill::open(&config).expect("a mill");
    assert_eq!(begin(&config, spec).expect("an id").0, 1);
    assert_eq!(begin(&config, spec).expect("an id").0, 2);
    let error = kept.source(spec).and_then(|source| source.repair(1 << 40, Change::Apply)).map(drop);
    assert_eq!(error.expect_err("there is no row to repair").code, Code::InvalidArgument);
    let other = Mill::open("sqlite:nowhere.db").and_then(|mill| mill.source(spec)).map(drop);
    assert_eq!(other.expect_err("only where uid-generator keeps its table").code, Code::InvalidConfig);
}

#[test]
fn a_worker_without_a_mark_leaves_no_row_and_needs_no_store() {
    let config = format!("memory:unmarked{}?script=down:100", fastrand::u32(..));
    let mill = Mill::open(&config).expect("a mill");
    let source = mill.source("snowflake:tx?worker=ordinal:tx-7&mark=none").expect("a source");
    let ids = source.take(1_000).expect("ids although the store is down");
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(source.parse(ids[0]).expect("parts").worker, Some(7));
    let settings = source.settings();
    let setting =
        |name: &str| settings.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
    assert_eq!(setting("worker").as_deref(), Some("7, the number of the host name tx-7"));
    assert_eq!(setting("mark").as_deref(), Some("none"));
    mill.close();
}

/// A mill on the shared server through a proxy, with this limit for an answer.
fn through(proxy: &Proxy, limit: &str) -> Mill {
    let (host, port) = proxy.address();
    let url = mariadb::url();
    let (login, rest) = url.rsplit_once('@').expect("a login");
    let database = rest.split_once('/').expect("a database").1;
    Mill::open(&format!("{login}@{host}:{port}/{database}?timeout={limit}&connect_timeout={limit}"))
        .expect("a mill")
}

#[test]
fn a_row_whose_answer_was_lost_is_no_process_s_worker() {
    let table = format!("WORKER_NODE_{}", fastrand::u32(..));
    let spec = format!("snowflake:tx?worker=disposable&deadline=60s&table={table}");
    Mill::open(&patient(&mariadb::url()))
        .and_then(|mill| mill.init(&[&spec], Change::Apply))
        .expect("the table");
    let proxy = Proxy::start(mariadb::options().hosts[0].clone());
    let (mut workers, mut ids, mut cuts) = (BTreeSet::new(), BTreeSet::new(), 0);
    for at in 0..40 {
        let mill = through(&proxy, "25s");
        proxy.set(Answers::CutAfter(at));
        // The caller waits for the next attempt.
        let source = mill.source(&spec).expect("a source");
        for id in source.take(1_000).expect("ids") {
            assert!(ids.insert(id), "{id} was issued twice");
            workers.insert(source.parse(id).expect("parts").worker.expect("a worker"));
        }
        let was_cut = proxy.now() == Answers::Pass;
        proxy.set(Answers::Pass);
        mill.close();
        if !was_cut {
            break;
        }
        cuts += 1;
        assert_eq!(workers.len(), cuts, "each process has a worker of its own");
    }
    assert!(cuts > 2, "only {cuts} answers");
    let mut connection = mariadb::connection();
    let rows: Option<usize> =
        connection.query_first(format!("SELECT COUNT(*) FROM {table}")).expect("a count");
    assert!(
        rows > Some(workers.len()),
        "{rows:?} rows of {} workers: no answer was lost behind a row",
        workers.len()
    );
    connection.query_drop(format!("DROP TABLE {table}")).expect("dropped");
}

#[test]
fn a_silent_server_keeps_a_caller_no_longer_than_its_deadline() {
    let table = format!("WORKER_NODE_{}", fastrand::u32(..));
    let spec = format!("snowflake:tx?worker=disposable&table={table}");
    Mill::open(&patient(&mariadb::url()))
        .and_then(|mill| mill.init(&[&spec], Change::Apply))
        .expect("the table");
    let proxy = Proxy::start(mariadb::options().hosts[0].clone());
    let mill = through(&proxy, "500ms");
    proxy.set(Answers::Hold);
    let source = mill.source(&format!("{spec}&deadline=400ms")).expect("a source");
    let asked = Instant::now();
    let error = source.next().expect_err("a silent server gave a worker");
    assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
    assert!(asked.elapsed() < Duration::from_secs(9), "a caller waited {:?}", asked.elapsed());
    proxy.set(Answers::Pass);
    persistently(|| source.next()).expect("it heals by itself");
    mill.close();
    mariadb::say(&format!("DROP TABLE {table}"));
}

#[test]
fn a_forked_child_uses_up_a_number_of_its_own() {
    if !worker::in_a_process_of_its_own("worker_node::a_forked_child_uses_up_a_number_of_its_own") {
        return;
    }
    let table = format!("WORKER_NODE_{}", fastrand::u32(..));
    let spec = format!("snowflake:tx?worker=disposable&deadline=60s&table={table}");
    let mill = Mill::open(&patient(&mariadb::url())).expect("a mill");
    mill.init(&[&spec], Change::Apply).expect("the table");
    let source = mill.source(&spec).expect("a source");
    let worker_of = |id: u64| source.parse(id).expect("parts").worker.expect("a worker");
    assert_eq!(worker_of(source.next().expect("an id")), 1);
    // SAFETY: the child takes an id and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = source.next().map_or(100, |id| worker_of(id) as libc::c_int);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 2, "the second row; 100: an error");
    assert_eq!(worker_of(source.next().expect("the parent goes on")), 1);
    mariadb::say(&format!("DROP TABLE {table}"));
}

#[test]
fn every_number_is_committed_whatever_the_login_and_the_server_set() {
    let server = mariadb::Private::start("");
    let mut root = server.root();
    let config = patient(&server.url());
    let spec = "snowflake:tx?worker=disposable";
    Mill::open(&config).and_then(|mill| mill.init(&[spec], Change::Apply)).expect("the table");
    let mut last = 0;
    for setting in [
        "completion_type = 1",
        "autocommit = 0",
        "autocommit = 0, completion_type = 2",
        "sql_mode = 'ANSI,NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES'",
        "sql_mode = '', time_zone = '+13:00', sql_select_limit = 0",
        "auto_increment_increment = 7, auto_increment_offset = 3",
    ] {
        root.query_drop(format!("SET GLOBAL init_connect = \"SET {setting}\"")).expect("root may set that");
        for _ in 0..3 {
            let (worker, _) = begin(&config, spec).unwrap_or_else(|error| panic!("{setting}: {error}"));
            assert!(worker > last, "{setting}: worker {worker} after {last}");
            last = worker;
            let highest: Option<u64> =
                root.query_first("SELECT MAX(ID) FROM ids.WORKER_NODE").expect("a number");
            assert_eq!(highest, Some(worker), "{setting}: used and not committed");
        }
    }
}
