//! Many sources of one mill: they share a connection, and reservations that are due at the same time go to the store as a
//! batch. Each source is as safe as on its own.
//!
//! `ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo test …` names the servers.

use std::collections::HashSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use keymill::serial::SerialPattern;
use keymill::store::server::ServerOptions;
use keymill::store::{
    Durability, FaultKind, Key, MOST_AT_ONCE, Mark, Request, Reserved, Scheme, SerialKey, Store, sqlite,
};
use keymill::{Change, Code, Mill, Source};
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::{assert_disjoint, mariadb, postgres, redis, request, schemes, takers};

const PATIENCE: Duration = Duration::from_secs(120);
const DAY: u64 = 20_261_120_000_000_000;

/// A store, and how a test changes its rows.
struct Place {
    kind: &'static str,
    /// The server's address, or `None` for a file.
    address: Option<(String, u16)>,
    path: PathBuf,
    /// Dropped with the test.
    folder: Option<tempfile::TempDir>,
    table: String,
}

impl Place {
    fn new(kind: &'static str) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let table = format!("many_{}_{count}", std::process::id());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ids.db");
        let mut place = Place::known(kind, table, path);
        place.folder = Some(folder);
        place
    }

    /// An existing store.
    fn known(kind: &'static str, table: String, path: PathBuf) -> Place {
        let address = match kind {
            "mariadb" => Some(mariadb::options().hosts[0].clone()),
            "postgres" => Some(postgres::options().hosts[0].clone()),
            "redis" => Some(redis::options().server.hosts[0].clone()),
            _ => None,
        };
        Place { kind, address, path, folder: None, table }
    }

    /// The schemes that it keeps as rows.
    fn schemes(&self) -> Vec<Scheme> {
        if self.kind == "redis" { vec![Scheme::Keymill] } else { schemes::in_rows().collect() }
    }

    fn open(&self) -> Box<dyn Store> {
        match &self.address {
            Some(address) => self.open_at(address.clone()),
            None => {
                let options = sqlite::SqliteOptions { durability: Durability::Warn, busy: PATIENCE };
                Box::new(sqlite::SqliteStore::new(self.path.clone(), options))
            }
        }
    }

    fn open_at(&self, address: (String, u16)) -> Box<dyn Store> {
        self.open_for(address, mariadb::options().read_timeout)
    }

    /// A store with a short time limit for answers.
    fn open_for(&self, address: (String, u16), read_timeout: Duration) -> Box<dyn Store> {
        let told = |options: ServerOptions| ServerOptions { hosts: vec![address], read_timeout, ..options };
        match self.kind {
            "mariadb" => Box::new(mariadb::store(told(mariadb::options()))),
            "postgres" => Box::new(postgres::store(told(postgres::options()))),
            _ => {
                let options = redis::options();
                Box::new(redis::store(redis::RedisOptions { server: told(options.server), ..options }))
            }
        }
    }

    fn key(&self, scheme: Scheme, n: usize) -> Arc<Key> {
        let serial = (scheme == Scheme::KeyProducer).then(|| SerialKey {
            table: format!("cust{n}"),
            column: "id".to_owned(),
            pattern: SerialPattern::new("yyyyMMdd", "000000", "UTC").expect("a pattern"),
            init_max: false,
        });
        Arc::new(schemes::key(
            scheme,
            &format!("{}_{}", self.table, scheme.name()),
            &format!("source{n:04}"),
            serial,
        ))
    }

    /// This many sources with existing rows.
    fn sources(&self, scheme: Scheme, count: usize) -> Sources {
        let keys: Vec<_> = (0..count).map(|n| self.key(scheme, n)).collect();
        let mut store = self.open();
        store.init(&keys, false).expect("tables");
        let mut sources = Sources { keys, seen: vec![Mark::default(); count] };
        for n in 0..count {
            let got = store.reserve(&sources.request(n)).expect("a row");
            sources.note(n, got);
        }
        sources
    }

    /// Sets or deletes a row of scheme `keymill`.
    fn set(&self, key: &Key, next: Option<u64>) {
        let (table, name) = (&key.table, &key.name);
        let sql = match next {
            Some(next) => format!("UPDATE {table} SET next = {next} WHERE name = '{name}'"),
            None => format!("DELETE FROM {table} WHERE name = '{name}'"),
        };
        match self.kind {
            "mariadb" => mariadb::say(&sql),
            "postgres" => assert_eq!(postgres::Sql::shared().say(&sql), 1),
            "sqlite" => {
                let file = rusqlite::Connection::open(&self.path).expect("the file");
                file.busy_timeout(PATIENCE).expect("a timeout");
                assert_eq!(file.execute(&sql, []).expect("a statement"), 1);
            }
            _ => {
                let mut connection = redis::connection_of(&redis::url());
                let at = format!("{table}:{name}");
                let changed: i64 = match next {
                    Some(next) => redis::say(&mut connection, &["HSET", &at, "next", &next.to_string()]),
                    None => redis::say(&mut connection, &["DEL", &at]),
                };
                assert_eq!(changed, i64::from(next.is_none()));
            }
        }
    }

    /// Places of each kind: the kind's part of a URL.
    fn url_at(&self, (host, port): &(String, u16)) -> String {
        let url = match self.kind {
            "mariadb" => mariadb::url(),
            "postgres" => postgres::url(),
            _ => redis::url(),
        };
        let (own_host, own_port) = self.address.clone().expect("a server");
        url.replace(&format!("{own_host}:{own_port}"), &format!("{host}:{port}"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if thread::panicking() || self.folder.is_none() {
            return;
        }
        for scheme in self.schemes() {
            let drop = format!("DROP TABLE IF EXISTS {}_{}", self.table, scheme.name());
            match self.kind {
                "mariadb" => mariadb::say(&drop),
                "postgres" => {
                    postgres::Sql::shared().say(&drop);
                }
                _ => {}
            }
        }
    }
}

/// Sources, with the highest number that each has seen.
struct Sources {
    keys: Vec<Arc<Key>>,
    seen: Vec<Mark>,
}

impl Sources {
    fn request(&self, n: usize) -> Request {
        let period = if self.keys[n].serial.is_some() { DAY } else { 0 };
        Request { period, period_max: period, high_water: self.seen[n], ..request(&self.keys[n], 10) }
    }

    fn requests(&self) -> Vec<Request> {
        (0..self.keys.len()).map(|n| self.request(n)).collect()
    }

    fn note(&mut self, n: usize, got: Reserved) -> (u64, u64) {
        self.seen[n] = Mark { period: got.period, next: got.hi };
        (got.lo, got.hi)
    }
}

/// Defines each function as a test for each place.
macro_rules! places {
    ($($module:ident $kind:literal: $($name:ident)*;)*) => {
        $(mod $module {
            $(#[test] fn $name() { super::$name(&super::Place::new($kind)) })*
        })*
    };
}

places! {
    on_mariadb "mariadb": a_locked_row_delays_the_others_once_and_briefly a_batch_takes_one_round_trip a_refused_row_does_not_affect_the_rest_of_its_batch
        a_connection_cut_at_any_answer_loses_numbers_and_gives_none_twice rivals_on_the_same_rows_get_numbers_of_their_own_and_no_error
        a_batch_waits_for_a_silent_server_as_long_as_one_request a_thousand_sources_due_at_once_go_in_few_trips
        callers_of_every_source_get_an_outages_error_in_time_and_are_served_after_it;
    on_postgres "postgres": a_locked_row_delays_the_others_once_and_briefly a_batch_takes_one_round_trip a_refused_row_does_not_affect_the_rest_of_its_batch
        a_connection_cut_at_any_answer_loses_numbers_and_gives_none_twice rivals_on_the_same_rows_get_numbers_of_their_own_and_no_error
        a_batch_waits_for_a_silent_server_as_long_as_one_request a_thousand_sources_due_at_once_go_in_few_trips
        callers_of_every_source_get_an_outages_error_in_time_and_are_served_after_it;
    on_redis "redis": a_batch_takes_one_round_trip a_refused_row_does_not_affect_the_rest_of_its_batch
        a_connection_cut_at_any_answer_loses_numbers_and_gives_none_twice rivals_on_the_same_rows_get_numbers_of_their_own_and_no_error
        a_batch_waits_for_a_silent_server_as_long_as_one_request a_thousand_sources_due_at_once_go_in_few_trips
        callers_of_every_source_get_an_outages_error_in_time_and_are_served_after_it;
    on_sqlite "sqlite": a_batch_takes_one_round_trip a_refused_row_does_not_affect_the_rest_of_its_batch
        rivals_on_the_same_rows_get_numbers_of_their_own_and_no_error;
}

fn a_batch_takes_one_round_trip(place: &Place) {
    const ROUNDS: u32 = 20;
    for scheme in place.schemes() {
        let mut sources = place.sources(scheme, MOST_AT_ONCE);
        let proxy = place.address.clone().map(Proxy::start);
        let mut store = proxy.as_ref().map_or_else(|| place.open(), |proxy| place.open_at(proxy.address()));
        // IDSnowman's rows are read once on each connection, and PostgreSQL prepares its statements.
        for n in 0..sources.keys.len() {
            let got = store.reserve(&sources.request(n)).expect("a range");
            sources.note(n, got);
        }
        let mut turns = 0;
        let mut began = Instant::now();
        for round in 0..=ROUNDS {
            if round == 1 {
                (turns, began) = (proxy.as_ref().map_or(0, Proxy::turns), Instant::now());
            }
            let answers = store.reserve_all(&sources.requests());
            assert_eq!(answers.len(), MOST_AT_ONCE);
            for (n, answer) in answers.into_iter().enumerate() {
                // Serials continue in a batch only if the store has one statement for them.
                let alone = scheme == Scheme::KeyProducer && place.kind == "postgres";
                let got = match answer {
                    None if alone => store.reserve(&sources.request(n)).expect("a range"),
                    answer => answer.unwrap_or_else(|| panic!("{scheme:?} {n} alone")).expect("a range"),
                };
                assert_eq!((got.lo, got.hi - got.lo), (sources.seen[n].next, 10), "{scheme:?} {n}");
                sources.note(n, got);
            }
        }
        let took = began.elapsed() / ROUNDS / MOST_AT_ONCE as u32;
        let turns = proxy.as_ref().map_or(0, Proxy::turns) - turns;
        println!(
            "{}, {}: {took:?} each through a proxy, {turns} round trips for {}",
            place.kind,
            scheme.name(),
            ROUNDS as usize * MOST_AT_ONCE
        );
        if scheme != Scheme::KeyProducer {
            // A long packet may arrive in two pieces, with an answer in between.
            assert!(turns <= u64::from(ROUNDS) * 3, "{turns} round trips");
        }
    }
}

fn a_refused_row_does_not_affect_the_rest_of_its_batch(place: &Place) {
    let mut sources = place.sources(Scheme::Keymill, 12);
    let mut store = place.open();
    place.set(&sources.keys[3], Some(4)); // set back
    place.set(&sources.keys[5], None); // gone
    let mut requests = sources.requests();
    requests[7].last = 10; // used up
    requests[8].last = 14; // less than is asked for
    requests[9].high_water = Mark { period: 0, next: 12 }; // another place than it was left at: behind what was seen
    requests.push(Request { high_water: Mark::default(), ..request(&place.key(Scheme::Keymill, 99), 10) }); // new
    let answers = store.reserve_all(&requests);
    assert_eq!(answers.len(), 13);
    let mut told = Vec::new();
    for (n, (request, answer)) in requests.iter().zip(answers).enumerate() {
        let alone = answer.is_none();
        let answer = answer.unwrap_or_else(|| store.reserve(request));
        let kind = answer.as_ref().err().map(|fault| fault.kind);
        told.push((n, alone, kind));
        match n {
            3 | 5 | 9 => assert_eq!(kind, Some(FaultKind::WentBackwards), "{n}: {answer:?}"),
            7 => assert_eq!(kind, Some(FaultKind::Exhausted), "{answer:?}"),
            8 => assert_eq!(answer.map(|got| (got.lo, got.hi)).expect("the last four"), (11, 15)),
            12 => assert_eq!(answer.expect("a new row").lo, 1),
            _ => {
                assert!(!alone, "{n} could have gone with the others");
                let got = answer.expect("a range");
                assert_eq!((got.lo, got.hi), (11, 21), "{n}");
                sources.note(n, got);
            }
        }
        if let Err(fault) = &store
            .reserve_all(std::slice::from_ref(request))
            .pop()
            .flatten()
            .unwrap_or(Ok(Reserved { lo: 0, hi: 0, period: 0, ttl_ms: None }))
        {
            assert!(fault.to_string().contains(request.key.name.as_str()), "{fault}");
        }
    }
    println!("{}: (source, alone, fault) {told:?}", place.kind);
    assert_eq!(store.look(&sources.keys[3]).expect("a row").expect("a row").mark.next, 4, "left alone");
    assert_eq!(store.look(&sources.keys[5]).expect("no fault"), None, "not made anew");
}

fn a_locked_row_delays_the_others_once_and_briefly(place: &Place) {
    let mut sources = place.sources(Scheme::Keymill, 12);
    let mut store = place.open_for(place.address.clone().expect("a server"), Duration::from_secs(16));
    let (table, name) = (&sources.keys[5].table, &sources.keys[5].name);
    let hold = format!("SELECT next FROM {table} WHERE name = '{name}' FOR UPDATE");
    let (mut connection, sql) =
        (mariadb::connection(), (place.kind == "postgres").then(postgres::Sql::shared));
    let mut say = |statement: &str| {
        use mysql::prelude::Queryable;
        match &sql {
            Some(sql) => drop(sql.try_say(statement).expect("a statement")),
            None => connection.query_drop(statement).expect("a statement"),
        }
    };
    say("BEGIN");
    say(&hold);
    let began = Instant::now();
    let answers = store.reserve_all(&sources.requests());
    let took = began.elapsed();
    for (n, answer) in answers.into_iter().enumerate() {
        match answer {
            None => assert_eq!(n, 5, "nobody holds this one"),
            Some(got) => assert_eq!(sources.note(n, got.expect("a range")), (11, 21), "{n}"),
        }
    }
    // From now on callers of the locked row get the error soon.
    let times = [(); 5].map(|()| {
        let began = Instant::now();
        let fault = store.reserve(&sources.request(5)).expect_err("somebody holds it");
        assert_eq!(fault.kind, FaultKind::Locked, "{fault}");
        began.elapsed()
    });
    // A longer wait of one of them is due to the machine.
    assert!(times.iter().min() < Some(&Duration::from_millis(500)), "{times:?}");
    // One wait for a lock, of two seconds at most, or of eight on MariaDB: not one for each of twelve.
    assert!(took < Duration::from_secs(if sql.is_some() { 11 } else { 40 }), "{took:?}");
    for n in (0..12).filter(|n| *n != 5) {
        let got = store.reserve(&sources.request(n)).expect("nobody holds this one");
        assert_eq!(sources.note(n, got), (21, 31));
    }
    say("ROLLBACK");
    let got = store.reserve(&sources.request(5)).expect("nobody holds it any more");
    assert_eq!(sources.note(5, got), (11, 21), "nothing was reserved before");
    for (n, answer) in store.reserve_all(&sources.requests()).into_iter().enumerate() {
        let got = answer.expect("together again").expect("a range");
        assert_eq!(sources.note(n, got).0, if n == 5 { 21 } else { 31 });
    }
    println!("{}: held up for {took:?}", place.kind);
}

fn a_connection_cut_at_any_answer_loses_numbers_and_gives_none_twice(place: &Place) {
    let mut sources = place.sources(Scheme::Keymill, 10);
    let proxy = Proxy::start(place.address.clone().expect("a server"));
    let mut store = place.open_at(proxy.address());
    let mut ranges = vec![Vec::new(); 10];
    let (mut unknown, mut known_beside, mut answered) = (0, 0, 0);
    for round in 0..60 {
        for answers in [Answers::Pass, Answers::CutAfter(round % 6), Answers::CutAt(round as usize * 7 % 200)]
        {
            proxy.set(answers);
            let (mut lost, mut got_some) = (0, 0);
            for (n, answer) in store.reserve_all(&sources.requests()).into_iter().enumerate() {
                match answer {
                    Some(Ok(got)) => {
                        ranges[n].push(sources.note(n, got));
                        got_some += 1;
                    }
                    Some(Err(fault)) if fault.kind == FaultKind::Unknown => lost += 1,
                    Some(Err(fault)) => assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}"),
                    None => {}
                }
            }
            unknown += lost;
            answered += got_some;
            known_beside += usize::from(lost > 0 && got_some > 0);
        }
    }
    proxy.set(Answers::Pass);
    for (n, ranges) in ranges.iter_mut().enumerate() {
        let got = store.reserve(&sources.request(n)).expect("a range");
        assert!(ranges.iter().all(|(_, hi)| *hi <= got.lo), "what was answered lies behind: {got:?}");
        ranges.push((got.lo, got.hi));
        assert_disjoint(ranges.clone());
    }
    println!("{}: {answered} answered, {unknown} unknown, {known_beside} times some of each", place.kind);
    assert!(unknown > 0 && answered >= 600, "{unknown} unknown, {answered} answered");
    // A transaction is answered by its commit; on Redis no range counts before the server has reported, after the last
    // script, that it keeps its writes.
    assert_eq!(known_beside, 0);
}

/// Sources that rivals share.
const SHARED: usize = 100;
/// How often each rival reserves a batch.
const ROUNDS: usize = 20;

/// The environment variable that makes this binary a rival: kind, table, file.
const RIVAL: &str = "KEYMILL_MANY_RIVAL";

fn rivals_on_the_same_rows_get_numbers_of_their_own_and_no_error(place: &Place) {
    const RIVALS: usize = 4;
    place.sources(Scheme::Keymill, SHARED);
    let began = Instant::now();
    let rivals: Vec<_> = (0..RIVALS)
        .map(|_| {
            Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", "many::a_rival_in_a_process_of_its_own", "--nocapture", "--test-threads=1"])
                .env(RIVAL, format!("{}|{}|{}", place.kind, place.table, place.path.display()))
                .stdout(Stdio::piped())
                .spawn()
                .expect("a process")
        })
        .collect();
    let mut ranges = vec![Vec::new(); SHARED];
    let mut alone = 0;
    for rival in rivals {
        let output = rival.wait_with_output().expect("its words");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
        for line in said.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["range", n, lo, hi] = words[..] {
                let [n, lo, hi] = [n, lo, hi].map(|number| number.parse::<u64>().expect("a number"));
                ranges[n as usize].push((lo, hi));
            }
            alone += usize::from(line == "alone");
        }
    }
    let total: usize = ranges.iter().map(Vec::len).sum();
    assert_eq!(total, RIVALS * ROUNDS * MOST_AT_ONCE);
    for ranges in ranges {
        assert_disjoint(ranges);
    }
    let kind = place.kind;
    println!(
        "{kind}: {total} reservations by {RIVALS} processes in {:?}, {alone} of them alone",
        began.elapsed()
    );
}

/// Not a test of its own: the test before starts it. Without its variable it does nothing.
#[test]
fn a_rival_in_a_process_of_its_own() {
    let Ok(task) = std::env::var(RIVAL) else { return };
    let mut parts = task.split('|');
    let kind = match parts.next().expect("a kind") {
        "mariadb" => "mariadb",
        "postgres" => "postgres",
        "redis" => "redis",
        _ => "sqlite",
    };
    let (table, path) = (parts.next().expect("a table"), parts.next().expect("a path"));
    let place = Place::known(kind, table.to_owned(), path.into());
    let mut store = place.open();
    let keys = (0..SHARED).map(|n| place.key(Scheme::Keymill, n)).collect();
    let mut sources = Sources { keys, seen: vec![Mark::default(); SHARED] };
    for _ in 0..ROUNDS {
        let mut order: Vec<usize> = (0..SHARED).collect();
        fastrand::shuffle(&mut order);
        let order = &order[..MOST_AT_ONCE];
        let requests: Vec<_> = order.iter().map(|n| sources.request(*n)).collect();
        let answers = store.reserve_all(&requests);
        for (n, answer) in order.iter().zip(answers) {
            let answer = answer.unwrap_or_else(|| {
                println!("\nalone");
                store.reserve(&sources.request(*n))
            });
            let got = answer.expect("no rival is told of another");
            let (lo, hi) = sources.note(*n, got);
            println!("\nrange {n} {lo} {hi}");
        }
    }
}

fn a_batch_waits_for_a_silent_server_as_long_as_one_request(place: &Place) {
    let mut sources = place.sources(Scheme::Keymill, MOST_AT_ONCE);
    let proxy = Proxy::start(place.address.clone().expect("a server"));
    let timeout = Duration::from_secs(5);
    let mut store = place.open_for(proxy.address(), timeout);
    takers::until("a batch is answered in time", PATIENCE, || {
        let answers = store.reserve_all(&sources.requests());
        let in_time = answers.iter().all(|answer| matches!(answer, Some(Ok(_))));
        if !in_time {
            // A batch is of rows that are where they were left.
            for n in 0..MOST_AT_ONCE {
                if let Ok(got) = store.reserve(&sources.request(n)) {
                    sources.note(n, got);
                }
            }
        }
        in_time
    });
    proxy.set(Answers::Hold);
    let began = Instant::now();
    let answers = store.reserve_all(&sources.requests());
    let took = began.elapsed();
    proxy.set(Answers::Pass);
    println!("{}: told after {took:?}", place.kind);
    assert!(
        answers.iter().all(|answer| matches!(answer, Some(Err(fault)) if fault.kind == FaultKind::Unknown))
    );
    // The time of one answer, not of 64.
    assert!(took < 10 * timeout, "{took:?}");
}

fn a_thousand_sources_due_at_once_go_in_few_trips(place: &Place) {
    const SOURCES: usize = 1000;
    let proxy = Proxy::start(place.address.clone().expect("a server"));
    let url = format!("{}?timeout=5m&connect_timeout=1m", place.url_at(&proxy.address()));
    let mill = Mill::open(&url).expect("a mill");
    let name = &place.table;
    let specs: Vec<String> =
        (0..SOURCES).map(|n| format!("segment:{name}-{n}?min_step=10&buffer=1ms&deadline=5m")).collect();
    mill.init(&[&specs[0]], Change::Apply).expect("init");
    let sources: Vec<Source> = specs.iter().map(|spec| mill.source(spec).expect("a source")).collect();
    let waits = || sources.iter().map(|source| source.stats().expect("figures").waits).sum::<u64>();
    // With `held` the first answers are held until every source is due, however late its thread runs.
    let took_all = |count: usize, held: bool| -> (Vec<Vec<u64>>, Duration) {
        let before = waits();
        proxy.set(if held { Answers::Hold } else { Answers::Pass });
        let start = Barrier::new(SOURCES + 1);
        thread::scope(|scope| {
            let takers: Vec<_> = sources
                .iter()
                .map(|source| {
                    let start = &start;
                    let taker = thread::Builder::new().stack_size(1 << 17);
                    taker
                        .spawn_scoped(scope, move || {
                            start.wait();
                            source.take(count).expect("ids")
                        })
                        .expect("a thread")
                })
                .collect();
            start.wait();
            let began = Instant::now();
            let give_up = began + PATIENCE;
            while held && waits() < before + SOURCES as u64 && Instant::now() < give_up {
                thread::sleep(Duration::from_millis(5));
            }
            proxy.set(Answers::Pass);
            let ids = takers.into_iter().map(|taker| taker.join().expect("no taker panics")).collect();
            (ids, began.elapsed())
        })
    };
    let (first, cold) = took_all(1, false);
    let connections = proxy.connections();
    let before = (mill.latency(), proxy.turns());
    // Each needs more numbers than it has.
    let (second, warm) = took_all(10, true);
    let after = (mill.latency(), proxy.turns());
    let (refills, trips, turns) =
        (after.0.count - before.0.count, after.0.trips - before.0.trips, after.1 - before.1);
    println!(
        "{}: 1000 sources, one connection: new in {cold:?}; then {refills} refills in {trips} trips, {turns} round trips, \
         {warm:?}: {:?} each",
        place.kind,
        warm / u32::try_from(refills).expect("few")
    );
    for (first, second) in first.iter().zip(&second) {
        let ids: HashSet<u64> = first.iter().chain(second).copied().collect();
        assert_eq!(ids.len(), 11, "{first:?} {second:?}");
    }
    assert_eq!(connections, 1);
    assert_eq!(proxy.connections(), connections, "they share one connection");
    assert_eq!(after.0.failed, 0, "{:?}", mill.events());
    assert!(refills >= SOURCES as u64, "each was refilled: {refills}");
    assert!(
        trips * 8 <= refills && turns * 8 <= refills,
        "{refills} refills in {trips} trips, {turns} round trips"
    );
}

fn callers_of_every_source_get_an_outages_error_in_time_and_are_served_after_it(place: &Place) {
    const SOURCES: usize = 150;
    const DEADLINE: Duration = Duration::from_secs(3);
    let proxy = Proxy::start(place.address.clone().expect("a server"));
    let options = if place.kind == "redis" { "" } else { "?timeout=1s" };
    let mill = Mill::open(&format!("{}{options}", place.url_at(&proxy.address()))).expect("a mill");
    let name = &place.table;
    let source = |n| mill.source(&format!("segment:{name}-{n}?min_step=10&buffer=1ms")).expect("a source");
    let sources: Vec<Source> = (0..SOURCES).map(source).collect();
    takers::persistently(|| mill.init(&[&format!("segment:{name}-0")], Change::Apply)).expect("init");
    let take_all = |count: usize| -> Vec<(keymill::Result<Vec<u64>>, Duration)> {
        thread::scope(|scope| {
            let takers: Vec<_> = sources
                .iter()
                .map(|source| {
                    scope.spawn(move || {
                        let began = Instant::now();
                        (source.take(count), began.elapsed())
                    })
                })
                .collect();
            takers.into_iter().map(|taker| taker.join().expect("no taker panics")).collect()
        })
    };
    // A new source's first reservation goes alone, and a disk may be slow.
    let first: Vec<_> = sources
        .iter()
        .map(|source| {
            let mut ids = Vec::new();
            takers::until("a first id", PATIENCE, || {
                ids = source.take(1).unwrap_or_default();
                !ids.is_empty()
            });
            ids
        })
        .collect();
    proxy.set(Answers::Hold);
    let told = take_all(10);
    proxy.set(Answers::Pass);
    let worst = told.iter().map(|(_, took)| *took).max().unwrap_or_default();
    for (ids, _) in &told {
        let error = ids.as_ref().expect_err("the server is silent");
        assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
    }
    // The machine may be busy; a caller that waited for all earlier answers would get its error after a minute.
    assert!(worst < DEADLINE + Duration::from_secs(40), "{worst:?}");
    let until = Instant::now() + 2 * PATIENCE;
    let mut second = take_all(10);
    while second.iter().any(|(ids, _)| ids.is_err()) {
        assert!(Instant::now() < until, "{:?}", mill.events().pop());
        second = take_all(10);
    }
    for (first, (second, _)) in first.iter().zip(second) {
        let ids: HashSet<u64> = first.iter().copied().chain(second.expect("ids")).collect();
        assert_eq!(ids.len(), 11, "{first:?}");
    }
    let outages = mill.latency();
    println!("{}: every caller was told within {worst:?}; {outages:?}", place.kind);
}
