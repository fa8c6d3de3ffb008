//! PgBouncer of other versions than this machine's; and HAProxy in TCP mode in front of a PostgreSQL, a MariaDB and a Redis: a server behind it that restarts, is replaced by its promoted
//! replica, or is not there; connections that the proxy closes because they were idle or waited. No id comes twice, and callers
//! are told why they wait. Each test has its own servers and proxy; the scripts of `ci/servers` start them.

use std::time::Duration;

use keymill::{Change, Code, Mill, Source};
use keymill_tests::ci::{Server, patient};
use keymill_tests::postgres::Sql;
use keymill_tests::takers::{Takers, persistently, until};
use keymill_tests::victim::Victim;
use keymill_tests::{mariadb, postgres, redis};
use mysql::prelude::Queryable;

use super::mariadb::Pair;

const PATIENCE: Duration = Duration::from_secs(240);
const PAUSE: Duration = Duration::from_millis(2);
/// Every few ids come from the store, and callers soon hear what is wrong.
const SPEC: &str = "segment:orders?min_step=10&max_step=10&buffer=200ms&deadline=500ms";

/// A HAProxy of one test.
struct Haproxy(Server);

impl Haproxy {
    /// In front of the first of these servers that accepts connections, with these settings of its defaults.
    fn start(settings: &str, behind: &[(String, u16)]) -> Haproxy {
        let proxy = Haproxy(Server::prepare("haproxy", settings));
        let places: Vec<String> = behind.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        proxy.0.ci(&[&["start"], &*places.iter().map(String::as_str).collect::<Vec<_>>()].concat());
        proxy
    }

    /// This URL of a server with the proxy's address in it.
    fn url(&self, of_server: &str) -> String {
        let (login, rest) = of_server.split_once('@').expect("a URL with a login");
        let (_, database) = rest.split_once('/').expect("a URL with a database");
        patient(&format!("{login}@{}/{database}", self.0.url()))
    }
}

/// A server of each kind.
fn each(test: impl Fn(&str, &dyn Victim) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        scope.spawn(|| test("postgres", &postgres::Private::start("")));
        scope.spawn(|| test("mysql", &mariadb::Private::start("")));
        scope.spawn(|| test("redis", &redis::Private::start("")));
    });
}

/// Two mills, as two processes would have them, with a row in the store.
fn two_mills(url: &str) -> [Mill; 2] {
    let mills = [url, url].map(|url| Mill::open(url).unwrap());
    persistently(|| mills[0].init(&[SPEC], Change::Apply)).unwrap();
    mills
}

fn orders(mills: &[Mill; 2]) -> [Source; 2] {
    [&mills[0], &mills[1]].map(|mill| mill.source(SPEC).unwrap())
}

fn flow(takers: &Takers, ids: u64) {
    let before = takers.count();
    until("ids flow", PATIENCE, || takers.count() > before + ids);
}

/// What the callers were told, each text once, and the longest wait.
fn told(what: &str, takers: &Takers) {
    let errors = takers.errors();
    let longest = errors.iter().map(|(waited, _)| *waited).max().unwrap_or_default();
    let texts: std::collections::BTreeSet<_> = errors.iter().map(|(_, error)| error.to_string()).collect();
    println!(
        "proxy    {what}: {} ids, {} errors, none waited for longer than {longest:?}",
        takers.count(),
        errors.len()
    );
    for text in &texts {
        println!("    {text}");
        assert!(!text.contains('\n'), "{text}");
    }
}

/// What a caller is told where the proxy has no server behind it.
fn no_server(kind: &str) -> &'static str {
    match kind {
        "redis" => "a proxy may have no server behind it",
        _ => "a proxy does that where no server is behind it",
    }
}

/// The version of PgBouncer that the environment names, or the newest one in `ci/servers/versions`.
fn pgbouncer_version() -> String {
    std::env::var("KEYMILL_CI_PGBOUNCER_VERSION").unwrap_or_else(|_| "1.26".to_owned())
}

/// The URL of a pooler of this version in front of the server.
fn pgbouncer(server: &postgres::Private, version: &str, settings: &[&str]) -> String {
    server.ci(&[&["pooler", "--version", version], settings].concat())
}

#[test]
fn a_pooler_that_keeps_prepared_statements_or_keeps_none_gives_no_id_twice() {
    let version = &pgbouncer_version();
    for kept in ["0", "2", "200"] {
        let server = postgres::Private::start("");
        let kept = format!("max_prepared_statements = {kept}");
        let url = pgbouncer(&server, version, &[&kept, "default_pool_size = 3"]);
        let mills = two_mills(&patient(&url));
        let sources = orders(&mills);
        let takers = Takers::default();
        takers.beside(&[&sources[0], &sources[1]], 5, PAUSE, || {
            flow(&takers, 500);
            server.kill();
            let met = takers.errors().len();
            until("callers are told", PATIENCE, || takers.errors().len() > met + 2);
            server.start_again();
            flow(&takers, 500);
        });
        assert!(!takers.met(Code::StoreWentBackwards, ""), "{:?}", takers.errors());
        told(&format!("PgBouncer {version}, {kept}, a kill"), &takers);
        mills.iter().for_each(Mill::close);
    }
}

/// Behind the pooler's words where it lets nobody in.
const LOGIN: &str = "of the user, the password or the database, or of the server behind it";

#[test]
fn what_a_pooler_refuses_is_told_in_its_own_words() {
    let version = &pgbouncer_version();
    let server = postgres::Private::start("");
    let url = pgbouncer(&server, version, &["query_wait_timeout = 1"]);
    let told = |url: &str, words: &str| {
        let mill = Mill::open(&patient(url)).unwrap();
        let error = persistently_told(&mill, words);
        println!("proxy    PgBouncer {version}: {error}");
        assert!(!error.message.contains("T0pSecretPw") && !error.message.contains('\n'), "{error}");
        mill.close();
    };
    told(&url.replace(":secret", ":T0pSecretPw"), LOGIN);
    told(&url.replace("/ids", "/no_such"), LOGIN);
    // The pool's only connection is another client's.
    let other = Sql::to(&postgres::options_of(&url));
    other.say("BEGIN");
    told(&url, "its pool has no free connection");
    other.say("COMMIT");
    server.kill();
    told(&url, "where no server is behind it");
}

/// The error of a question with these words in it. While a server dies, others come first.
fn persistently_told(mill: &Mill, words: &str) -> keymill::Error {
    let (mut found, mut last) = (None, String::new());
    let give_up = std::time::Instant::now() + PATIENCE;
    while found.is_none() {
        assert!(std::time::Instant::now() < give_up, "{words}: {last}");
        match mill.facts() {
            Err(error) if error.message.contains(words) => found = Some(error),
            other => last = format!("{other:?}"),
        }
    }
    found.expect("the loop found it")
}

#[test]
fn a_server_that_restarts_behind_a_proxy_is_used_again_and_no_id_comes_twice() {
    each(|kind, server| {
        let proxy = Haproxy::start("", &[server.address()]);
        let mills = two_mills(&proxy.url(&server.url()));
        let sources = orders(&mills);
        let takers = Takers::default();
        takers.beside(&[&sources[0], &sources[1]], 5, PAUSE, || {
            for round in 1..=3 {
                flow(&takers, 500);
                server.kill();
                let met = takers.errors().len();
                until("callers are told", PATIENCE, || takers.errors().len() > met + 2);
                until("the proxy is named", PATIENCE, || {
                    takers.met(Code::StoreUnavailable, no_server(kind))
                        || takers.met(Code::Deadline, no_server(kind))
                });
                server.start_again();
                println!("proxy    {kind}: restart {round}");
            }
            flow(&takers, 500);
        });
        assert!(!takers.met(Code::StoreWentBackwards, ""), "{:?}", takers.errors());
        told(&format!("{kind}, three kills"), &takers);
        mills.iter().for_each(Mill::close);
    });
}

#[test]
fn a_proxy_without_a_server_is_reported_in_one_line() {
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Haproxy::start("", &[("127.0.0.1".to_owned(), nowhere.port())]);
    for kind in ["mysql", "postgres", "redis"] {
        let database = if kind == "redis" { "0" } else { "ids" };
        let mill = Mill::open(&proxy.url(&format!("{kind}://app:secret@127.0.0.1:1/{database}"))).unwrap();
        let error = mill.source("segment:orders").unwrap().status().unwrap_err();
        println!("proxy    nothing behind it: {error}");
        assert_eq!(error.code, Code::StoreUnavailable, "{error}");
        assert!(error.message.contains(no_server(kind)) && !error.message.contains('\n'), "{error}");
        mill.close();
    }
}

/// How many connections keymill has to this server.
fn connections(kind: &str, server: &dyn Victim) -> u64 {
    match kind {
        "postgres" => {
            let asks = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'keymill'";
            Sql::root(&server.url()).rows(asks)[0][0].parse().expect("a count")
        }
        "mysql" => {
            let asks = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'keymill'";
            let mut root = mariadb::connection_of(&server.url().replace("keymill:secret", "root:"));
            root.query_first(asks).expect("a count").expect("a row")
        }
        _ => {
            let mut connection = redis::connection_of(&server.url());
            let clients: String = redis::say(&mut connection, &["CLIENT", "LIST"]);
            clients.lines().filter(|client| client.contains("name=keymill")).count() as u64
        }
    }
}

#[test]
fn a_connection_that_a_proxy_closes_because_it_was_idle_costs_no_id_and_no_error() {
    each(|kind, server| {
        let proxy = Haproxy::start("    timeout client 2s;    timeout server 2s", &[server.address()]);
        let mill = Mill::open(&proxy.url(&server.url())).unwrap();
        let spec = "segment:orders?min_step=10&max_step=10&buffer=200ms&deadline=60s";
        persistently(|| mill.init(&[spec], Change::Apply)).unwrap();
        let source = mill.source(spec).unwrap();
        let mut ids = Vec::new();
        for _ in 0..4 {
            // More than is in memory, so that the store is asked.
            for _ in 0..200 {
                ids.push(source.next().unwrap_or_else(|error| panic!("{kind}: {error}")));
            }
            until("the proxy has closed the connection", PATIENCE, || connections(kind, server) == 0);
        }
        let last = *ids.last().unwrap();
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len(), "{kind}: an id came twice");
        println!("proxy    {kind}, idle three times: {} ids up to {last}, no error", ids.len());
        mill.close();
    });
}

/// Holds the row of `SPEC` while `work` runs.
fn holding(kind: &str, server: &dyn Victim, work: impl FnOnce()) {
    if kind == "postgres" {
        let other = Sql::to(&postgres::options_of(&server.url()));
        other.say("BEGIN; SELECT 1 FROM keymill_segment FOR UPDATE");
        work();
        other.say("COMMIT");
    } else {
        let mut other = mariadb::connection_of(&server.url());
        other.query_drop("BEGIN").expect("a transaction");
        other.query_drop("SELECT 1 FROM keymill_segment FOR UPDATE").expect("locked rows");
        work();
        other.query_drop("COMMIT").expect("an end");
    }
}

/// The server may carry out a statement whose client the proxy has cut off.
#[test]
fn a_reservation_that_a_proxy_cuts_off_while_it_waits_for_a_lock_gives_no_id_twice() {
    each(|kind, server| {
        // Redis has no locks.
        if kind == "redis" {
            return;
        }
        let proxy = Haproxy::start("    timeout client 1s;    timeout server 1s", &[server.address()]);
        let mills = two_mills(&proxy.url(&server.url()));
        let sources = orders(&mills);
        let takers = Takers::default();
        takers.beside(&[&sources[0], &sources[1]], 5, PAUSE, || {
            for _ in 0..3 {
                flow(&takers, 300);
                let met = takers.errors().len();
                holding(kind, server, || {
                    until("callers are told", PATIENCE, || {
                        takers.errors().iter().skip(met).any(|(_, error)| error.message.contains("broke"))
                    });
                });
            }
            flow(&takers, 300);
        });
        assert!(!takers.met(Code::StoreWentBackwards, ""), "{:?}", takers.errors());
        told(&format!("{kind}, cut off under a lock"), &takers);
        mills.iter().for_each(Mill::close);
    });
}

#[test]
fn a_promoted_postgresql_replica_behind_a_proxy_goes_on_and_the_old_primary_is_refused_by_who_has_seen_more()
{
    let server = postgres::Private::start("");
    server.ci(&["replica", "sync"]);
    let replica = postgres::options_of(&server.ci(&["url", "replica"])).hosts[0].clone();
    // The first server is used again as soon as it is back, as most settings of proxies have it.
    let proxy = Haproxy::start(
        "    default-server on-marked-up shutdown-backup-sessions",
        &[server.address(), replica],
    );
    let mills = two_mills(&proxy.url(&server.url()));
    let sources = orders(&mills);
    let first = Takers::default();
    first.beside(&[&sources[0], &sources[1]], 5, PAUSE, || {
        flow(&first, 500);
        server.kill();
        until("the replica is refused until it is promoted", PATIENCE, || {
            first.errors().iter().any(|(_, error)| error.message.contains("read-only"))
        });
        server.ci(&["promote"]);
        flow(&first, 1000);
    });
    assert!(!first.met(Code::StoreWentBackwards, ""), "{:?}", first.errors());
    told("postgres, a promoted replica", &first);
    // Two primaries: the old one lacks what the promoted one has given.
    let takers = Takers::default();
    let before = first.got();
    takers.beside(&[&sources[0], &sources[1]], 5, PAUSE, || {
        server.start_again();
        until("the old primary is refused", PATIENCE, || {
            takers.met(Code::StoreUnavailable, "it was replaced in a failover")
        });
    });
    told("postgres, the old primary is back and takes writes", &takers);
    let all: std::collections::HashSet<_> = before.iter().chain(&takers.got()).copied().collect();
    assert_eq!(all.len(), before.len() + takers.got().len(), "an id came twice");
    mills.iter().for_each(Mill::close);
}

#[test]
fn a_promoted_mariadb_replica_behind_a_proxy_goes_on_and_no_id_comes_twice() {
    let pair = Pair::start();
    pair.open(&[SPEC]).close();
    pair.wait_for_the_replica();
    let proxy = Haproxy::start("", &[pair.primary.address(), pair.replica.address()]);
    let mills = [(); 2].map(|()| Mill::open(&proxy.url(&pair.primary.url())).unwrap());
    let sources = orders(&mills);
    let takers = Takers::default();
    takers.beside(&[&sources[0], &sources[1]], 5, PAUSE, || {
        flow(&takers, 500);
        pair.primary.kill();
        until("the replica is refused until it is promoted", PATIENCE, || {
            takers.errors().iter().any(|(_, error)| error.message.contains("read-only"))
        });
        pair.fail_over();
        flow(&takers, 1000);
    });
    assert!(!takers.met(Code::StoreWentBackwards, ""), "{:?}", takers.errors());
    told("mysql, a promoted replica", &takers);
    mills.iter().for_each(Mill::close);
}
