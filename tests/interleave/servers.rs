//! Real stores behind one source: one of two servers killed under load, one frozen.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::sqlite::SqliteStore;
use keymill::store::{Catalogue, Key, Scheme, Store, Subject, sqlite};
use keymill::{Change, Code, Mill};
use keymill_tests::ci::patient;
use keymill_tests::mariadb::Private;
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, worker};

use super::{CHUNK, assert_disjoint, key, owner, shared, take, unique, until};

/// A table of its own on the shared MariaDB.
fn table(scheme: Scheme) -> Arc<Key> {
    Arc::new(Key {
        table: unique("i"),
        name: Subject::Segment(unique("orders")).into(),
        ..(*key(scheme, "x")).clone()
    })
}

#[test]
fn stores_of_different_kinds_serve_every_scheme_together() {
    let folder = tempfile::tempdir().unwrap();
    for scheme in shared() {
        let key = table(scheme);
        let memory = Memory::new();
        let open = || {
            let mysql: Box<dyn Store> = Box::new(mariadb::store(mariadb::options()));
            let file = folder.path().join("ids.db");
            // A new source begins when every store answers, and six processes write this file at once.
            let options = sqlite::SqliteOptions { busy: Duration::from_secs(60), ..Default::default() };
            let sqlite: Box<dyn Store> = Box::new(SqliteStore::new(file, options));
            let memory: Box<dyn Store> = Box::new(MemoryStore::new(Arc::clone(&memory)));
            let stores = [("mysql", mysql), ("sqlite", sqlite), ("memory", memory)];
            Interleaved::new(
                stores.into_iter().map(|(name, store)| (name.to_owned(), store)).collect(),
                CHUNK,
            )
        };
        let statements = open().init(std::slice::from_ref(&key), false).unwrap();
        assert!(statements.iter().any(|line| line == "-- store 1 of 3 (mysql)"), "{statements:?}");
        let ranges: Vec<(u64, u64)> = thread::scope(|scope| {
            let clients: Vec<_> = (0..6)
                .map(|_| {
                    let (open, request) = (&open, keymill_tests::request(&key, 170));
                    scope.spawn(move || take(&mut open(), &mut request.clone(), 40))
                })
                .collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let owners: BTreeSet<u64> = ranges.iter().map(|(lo, _)| owner(*lo, 3)).collect();
        assert_eq!(owners.len(), 3, "{scheme:?}");
        assert!(assert_disjoint(ranges) > 0);
        mariadb::say(&format!("DROP TABLE `{}`", key.table));
    }
}

#[test]
fn tickets_of_two_servers_are_shared_by_chunks() {
    let other = Private::start("");
    for scheme in [Scheme::AutoIncrement, Scheme::Ticket] {
        let key = table(scheme);
        let open = || {
            let stores = [mariadb::options(), mariadb::options_of(&other.url())].map(|options| {
                let store: Box<dyn Store> = Box::new(mariadb::store(options));
                ("mysql".to_owned(), store)
            });
            Interleaved::new(stores.into(), CHUNK)
        };
        open().init(std::slice::from_ref(&key), false).unwrap();
        let mut ranges = Vec::new();
        for _ in 0..6 {
            ranges.extend(take(&mut open(), &mut keymill_tests::request(&key, 100), 40));
        }
        let owners: BTreeSet<u64> = ranges.iter().map(|(lo, _)| owner(*lo, 2)).collect();
        assert_eq!(owners.len(), 2, "{scheme:?}");
        println!("{}: {} numbers of two servers, 0 twice", scheme.name(), assert_disjoint(ranges));
        mariadb::say(&format!("DROP TABLE `{}`", key.table));
    }
}

// ---- mills ----

fn config(folder: &Path, name: &str, stores: &[String], more: &str) -> String {
    let list: Vec<String> = stores.iter().map(|store| format!("\"{store}\"")).collect();
    let file = folder.join(name);
    keymill_tests::write_private(&file, &format!("stores = [{}]\n{more}", list.join(", ")));
    format!("file:{}", file.display())
}

#[test]
fn the_ids_of_one_process_rise_over_all_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let stores = ["a", "b"].map(|name| patient(&format!("sqlite:{}", folder.path().join(name).display())));
    let mill = Mill::open(&config(folder.path(), "keymill.toml", &stores, "chunk = 1000")).unwrap();
    let orders = mill.source("segment:orders?min_step=100&buffer=1ms&deadline=60s").unwrap();
    let newest = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let mut newest = newest.lock().unwrap();
                    let id = orders.next().unwrap();
                    assert!(id > *newest, "{id} after {newest}");
                    *newest = id;
                }
            });
        }
    });
    assert!(*newest.lock().unwrap() < 20_000 + 1000, "alone a process leaves few gaps");
    let error = mill.source("serial:cust_info/custid").map(drop).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig, "{error}");
    mill.source("snowflake:tx?worker=3&deadline=60s").unwrap().next().unwrap();
    let shown = mill.store();
    assert!(shown.starts_with("[sqlite:") && shown.contains(", sqlite:"), "{shown}");
}

#[test]
fn a_worker_takes_from_several_stores_until_it_is_killed() {
    worker::work();
}

/// How many bytes the logs of a folder hold.
fn logged(folder: &Path) -> u64 {
    let logs = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let ids = logs.filter(|path| path.extension().is_some_and(|e| e == "ids"));
    ids.map(|path| std::fs::metadata(path).map_or(0, |file| file.len())).sum()
}

#[test]
fn one_of_two_servers_killed_under_load_and_ids_go_on_none_twice() {
    let folder = tempfile::tempdir().unwrap();
    let servers = [Private::start(""), Private::start("")];
    let urls: Vec<String> =
        servers.iter().map(|server| format!("{}?timeout=3s&connect_timeout=3s", server.url())).collect();
    let config = config(folder.path(), "keymill.toml", &urls, "chunk = 1000");
    let mill = Mill::open(&config).unwrap();
    // Five at a time: reservations are tested, and logs are read back.
    let spec = "segment:orders?step=5&max_step=5&buffer=1ms&deadline=60s";
    persistently(|| mill.init(&[spec], Change::Apply)).unwrap();
    let mine = mill.source(spec).unwrap();
    mine.next().unwrap();
    let mut workers: Vec<_> = (0..4)
        .map(|n| {
            let log = folder.path().join(format!("{n}.ids"));
            worker::start(
                "servers::a_worker_takes_from_several_stores_until_it_is_killed",
                &config,
                spec,
                &log,
            )
        })
        .collect();
    let next_of = |server: &Private| -> u64 {
        use mysql::prelude::Queryable;
        let mut connection = mariadb::connection_of(&server.url());
        connection.query_first("SELECT next FROM keymill_segment").unwrap().unwrap()
    };
    let mut alive = || {
        for (n, worker) in workers.iter_mut().enumerate() {
            if let Some(status) = worker.try_wait().unwrap() {
                let why = std::fs::read_to_string(folder.path().join(format!("{n}.stderr")));
                panic!("worker {n} ended by itself: {status}\n{}", why.unwrap_or_default());
            }
        }
    };
    let kept = Mutex::new(HashSet::new());
    let mut more = |what: &str| {
        let before = logged(folder.path());
        until(what, || {
            alive();
            kept.lock().unwrap().insert(mine.next().unwrap());
            thread::park_timeout(Duration::from_millis(1));
            logged(folder.path()) > before + 5000
        });
    };
    for round in 0..4 {
        let server = &servers[round % 2];
        more("workers take from both");
        server.kill();
        more("ids go on with one server");
        let other = next_of(&servers[(round + 1) % 2]);
        more("and on");
        assert!(next_of(&servers[(round + 1) % 2]) > other, "from the one that is left");
        server.start_again();
        let before = next_of(server);
        more("the server that came back serves again");
        until("its row moves", || {
            kept.lock().unwrap().insert(mine.next().unwrap());
            thread::park_timeout(Duration::from_millis(1));
            next_of(server) > before
        });
    }
    for worker in &mut workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    let log: String =
        kept.lock().unwrap().iter().fold(String::new(), |text, id| text + &id.to_string() + "\n");
    std::fs::write(folder.path().join("mine.ids"), log).unwrap();
    println!(
        "4 kills, {} ids of 5 processes and two servers, 0 duplicates",
        worker::count_distinct(folder.path())
    );
    assert!(mill.events().iter().any(|event| event.message.contains("store 2 of 2")), "an operator is told");
    let metrics = mill.metrics();
    assert!(!metrics.contains("keymill_refills_failed_total 0\n"), "{metrics}");

    for server in &servers {
        server.kill();
    }
    let quick = mill.source("segment:orders?step=5&max_step=5&buffer=1ms&deadline=700ms").unwrap();
    let error = loop {
        let asked = Instant::now();
        match quick.next() {
            Ok(_) => {}
            Err(error) => {
                // The machine may be busy; the servers stay down.
                assert!(asked.elapsed() < Duration::from_secs(60), "waited {:?}", asked.elapsed());
                break error;
            }
        }
    };
    assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
    until("the error names each store", || {
        let error = quick.next().unwrap_err();
        error.message.contains("store 1 of 2 (mysql://") && error.message.contains("store 2 of 2 (mysql://")
    });
    for server in &servers {
        server.start_again();
    }
    until("ids flow again", || quick.next().is_ok());
}

#[test]
fn a_frozen_store_costs_its_timeout_once_a_pause_and_not_at_every_refill() {
    let other = Private::start("");
    let proxy = Proxy::start(mariadb::options().hosts[0].clone());
    let folder = tempfile::tempdir().unwrap();
    let (host, port) = proxy.address();
    let url = mariadb::url();
    let (login, database) = (url.rsplit_once('@').unwrap().0, url.rsplit_once('/').unwrap().1);
    // Longer than a busy disk takes for most answers.
    let each = Duration::from_secs(2);
    let times = "timeout=2s&connect_timeout=2s";
    let stores = [format!("{login}@{host}:{port}/{database}?{times}"), format!("{}?{times}", other.url())];
    let mill = Mill::open(&config(folder.path(), "keymill.toml", &stores, "chunk = 1000")).unwrap();
    let spec = format!("segment:{}?step=100&buffer=1ms&deadline=5m", unique("frozen"));
    persistently(|| mill.init(&[&spec], Change::Apply)).unwrap();
    let orders = mill.source(&spec).unwrap();
    orders.take(5000).unwrap();
    proxy.set(Answers::Hold);
    let refills = || orders.stats().unwrap().refills;
    let (before, tried, began) = (refills(), proxy.connections(), Instant::now());
    let mut worst = Duration::ZERO;
    while refills() < before + 300 {
        let asked = Instant::now();
        orders.take(100).expect("the other store serves");
        worst = worst.max(asked.elapsed());
    }
    let (took, tried) = (began.elapsed(), proxy.connections() - tried);
    println!(
        "300 refills beside a frozen store took {took:?}, the slowest {worst:?}; its timeout is {each:?}"
    );
    // Each time that the frozen store is asked again is another connection. The time says nothing: the other store writes to a
    // shared disk.
    assert!(tried < 150, "{tried} connections, {took:?}: the timeout was paid at every refill");
    proxy.set(Answers::Pass);
}
