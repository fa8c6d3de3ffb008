//! Mills over two servers, one of which accepts and answers never or late: a real listener in front of it holds everything.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keymill::{Change, Mill, Source};
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, postgres, write_private};

use super::{PATIENCE, unique, until};

/// Longer than a busy disk takes for most answers.
const TIMES: &str = "timeout=2s&connect_timeout=2s";

/// A server's URL with another host and port, and these times.
fn through(url: &str, proxy: &Proxy) -> String {
    let (host, port) = proxy.address();
    let (login, place) = url.rsplit_once('@').expect("a login");
    let (_, database) = place.split_once('/').expect("a database");
    let join = if database.contains('?') { '&' } else { '?' };
    format!("{login}@{host}:{port}/{database}{join}{TIMES}")
}

fn address(url: &str) -> (String, u16) {
    let place = url.rsplit_once('@').expect("a login").1;
    let (host, port) = place.split('/').next().and_then(|place| place.rsplit_once(':')).expect("a port");
    (host.to_owned(), port.parse().expect("a port"))
}

/// Two servers, and which of them falls silent.
struct Servers {
    proxies: [Proxy; 2],
    folder: tempfile::TempDir,
    silent: usize,
}

impl Servers {
    fn start(silent: usize) -> Servers {
        let urls = [mariadb::url(), postgres::url()];
        let proxies = urls.each_ref().map(|url| Proxy::start(address(url)));
        let folder = tempfile::tempdir().expect("a folder");
        let stores: Vec<String> =
            urls.iter().zip(&proxies).map(|(url, proxy)| format!("{:?}", through(url, proxy))).collect();
        let text = format!("stores = [{}]\nchunk = 1000\n", stores.join(", "));
        write_private(&folder.path().join("keymill.toml"), &text);
        Servers { proxies, folder, silent }
    }

    fn config(&self) -> String {
        let file: &Path = &self.folder.path().join("keymill.toml");
        format!("file:{}", file.display())
    }

    fn silence(&self) {
        self.proxies[self.silent].set(Answers::HoldAll);
    }

    /// How often a client connected to the silent server.
    fn connections(&self) -> u64 {
        self.proxies[self.silent].connections()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.proxies.iter().for_each(|proxy| proxy.set(Answers::Pass));
    }
}

/// Takes ids of these keys from several threads until `work` ends; answers with how many, and panics at an error.
fn beside(source: &Source, keys: u64, work: impl FnOnce(&AtomicU64)) -> u64 {
    let (taken, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    // ordering: Relaxed — counters and a flag of a test; nothing hangs on them.
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    source.next_for(fastrand::u64(..keys)).expect("the other store serves");
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        work(&taken);
        is_over.store(true, Ordering::Relaxed);
    });
    taken.into_inner()
}

/// Whether both servers record that the bank of 1024 counters is complete.
fn is_complete(table: &str) -> bool {
    use mysql::prelude::Queryable;
    let sql = |table: &str| format!("SELECT name FROM {table} WHERE name = 'business:order/1024/complete'");
    let of_mariadb: Option<String> =
        mariadb::connection().query_first(sql(&format!("`{table}`"))).expect("an answer");
    of_mariadb.is_some() && !postgres::Sql::shared().rows(&sql(&format!("\"{table}\""))).is_empty()
}

#[test]
fn a_bank_and_a_segment_of_one_mill_go_on_beside_a_silent_server() {
    for silent in 0..2 {
        let servers = Servers::start(silent);
        let mill = Mill::open(&servers.config()).expect("a mill");
        let table = unique("mills");
        let bank = format!("business:order?counters=1024&deadline=60s&table={table}");
        let segment = format!("segment:orders?step=100&max_step=100&buffer=1ms&deadline=60s&table={table}");
        persistently(|| mill.init(&[&bank, &segment], Change::Apply)).expect("its table");
        let (bank, segment) =
            (mill.source(&bank).expect("a bank"), mill.source(&segment).expect("a segment"));
        persistently(|| segment.next()).expect("an id");
        // Most counters are not used before the silence. The bank is complete after a few conversations.
        until("the bank is complete", || {
            persistently(|| bank.next_for(fastrand::u64(..20))).expect("an id");
            is_complete(&table)
        });
        servers.silence();
        let before = servers.connections();
        let began = Instant::now();
        let taken = beside(&bank, 1_000_000, |taken| {
            // ordering: Relaxed — as above.
            while began.elapsed() < Duration::from_secs(6) || taken.load(Ordering::Relaxed) < 3_000 {
                assert!(began.elapsed() < PATIENCE);
                segment.take(100).expect("the other store serves");
            }
        });
        let (took, tried) = (began.elapsed(), servers.connections() - before);
        println!(
            "silent: {silent}: {taken} ids of the bank in {took:?}; the silent server was tried {tried} times"
        );
        // A pause is 40 s at least, but a busy disk may be slower than the timeout of the other store.
        assert!(tried <= 4 + took.as_secs() / 8, "{tried} connections in {took:?}");
    }
}

#[test]
fn leased_workers_routes_and_status_of_one_mill_go_on_beside_a_silent_server() {
    for silent in 0..2 {
        let servers = Servers::start(silent);
        let (name, table) = (unique("many"), unique("mills"));
        let specs: Vec<String> = (0..20)
            .map(|n| format!("snowflake:{name}{n}?worker=lease&deadline=60s"))
            .chain([format!("segment:{name}?step=100&max_step=100&buffer=1ms&deadline=60s&table={table}")])
            .collect();
        let all: Vec<&str> = specs.iter().map(String::as_str).collect();
        {
            let mill = Mill::open(&servers.config()).expect("a mill");
            persistently(|| mill.init(&all, Change::Apply)).expect("its tables");
            for spec in &specs {
                let source = mill.source(spec).expect("a source");
                // A busy server may not answer in time, and then rests.
                persistently(|| source.next()).expect("an id");
            }
            mill.close();
        }
        servers.silence();
        let mill = Mill::open(&servers.config()).expect("a mill");
        let before = servers.connections();
        let began = Instant::now();
        for spec in &specs {
            mill.source(spec).expect("a source").next().expect("an id of the other store");
        }
        mill.facts().expect("the other store answers");
        mill.close();
        let (took, tried) = (began.elapsed(), servers.connections() - before);
        println!(
            "silent: {silent}: 20 leased workers in {took:?}; the silent server was tried {tried} times"
        );
        assert!(tried <= 4 + took.as_secs() / 8, "{tried} connections in {took:?}");
    }
}

#[test]
fn leased_workers_of_a_server_that_falls_silent_move_to_the_other_when_their_leases_are_over() {
    for silent in 0..2 {
        let servers = Servers::start(silent);
        let name = unique("moves");
        let spec = |n: usize| format!("snowflake:{name}{n}?worker=lease&lease=6s&deadline=60s");
        let mill = Mill::open(&servers.config()).expect("a mill");
        persistently(|| mill.init(&[&spec(0)], Change::Apply)).expect("its table");
        let is_of_other = |source: &Source| {
            let id = persistently(|| source.next()).expect("an id");
            source.parse(id).expect("its parts").worker.expect("a worker") % 2 != silent as u64
        };
        let mut sources: Vec<Source> = Vec::new();
        until("the server leases workers", || {
            sources.push(mill.source(&spec(sources.len())).expect("a source"));
            sources.iter().filter(|source| !is_of_other(source)).count() >= 2
        });
        servers.silence();
        until("every source has a worker of the other server", || sources.iter().all(is_of_other));
        mill.close();
    }
}

#[test]
fn a_server_that_gives_each_answer_just_in_time_is_left_after_one_timeout() {
    for late in 0..2 {
        let servers = Servers::start(late);
        let table = unique("mills");
        let spec = format!("segment:orders?step=10&max_step=10&buffer=1ms&deadline=60s&table={table}");
        {
            let mill = Mill::open(&servers.config()).expect("a mill");
            persistently(|| mill.init(&[&spec], Change::Apply)).expect("its tables");
            persistently(|| mill.source(&spec).expect("a source").next()).expect("an id");
            mill.close();
        }
        let proxy = &servers.proxies[late];
        let before = (proxy.connections(), proxy.turns());
        // Each answer comes within the timeout of 2 s; a login with its first statements has more than two.
        proxy.set(Answers::Late(Duration::from_millis(1_200)));
        until("the late server was asked", || {
            // A mill begins with a server drawn at random.
            let mill = Mill::open(&servers.config()).expect("a mill");
            persistently(|| mill.source(&spec).expect("a source").next()).expect("an id of the other server");
            mill.close();
            proxy.connections() - before.0 >= 2
        });
        let (connections, turns) = (proxy.connections() - before.0, proxy.turns() - before.1);
        println!("late: {late}: {turns} answers in {connections} connections");
        assert!(turns <= 2 * connections, "{turns} answers in {connections} connections");
    }
}
