//! A server that is killed again and again under the reservations of every scheme it keeps: what was answered is never
//! answered again. Servers of their own; `ci/mariadb`, `ci/postgres` and `ci/redis` start them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keymill::store::{Columns, FaultKind, Key, Mark, Request, Scheme, Store};
use keymill_tests::victim::Victim;
use keymill_tests::{mariadb, postgres, redis};

const KILLS: usize = 10;
const NODES: usize = 2;

/// Sources that reserve together, beside those that reserve alone.
const COMPANY: usize = 16;

/// A range, and for the one who asks how two came to overlap: which node was answered, after how many kills.
type Answered = ((u64, u64), (usize, usize));

fn request(scheme: Scheme) -> Request {
    request_of(scheme, "orders")
}

fn request_of(scheme: Scheme, name: &str) -> Request {
    let key = Key {
        scheme,
        table: scheme.default_table().to_owned(),
        name: format!("segment:{name}"),
        columns: Columns::default(),
        serial: None,
        step: 100,
        unsafe_on: false,
        stride: keymill::store::Stride::EVERY,
    };
    keymill_tests::request(&Arc::new(key), 100)
}

#[test]
fn a_mariadb_killed_ten_times_under_load_answers_with_no_number_twice() {
    let schemes = segments(&[Scheme::Sequence]);
    let server = mariadb::Private::start("");
    let options = mariadb::options_of(&server.url());
    killed(&server, &schemes, &|| Box::new(mariadb::store(options.clone())));
}

#[test]
fn a_postgresql_killed_ten_times_under_load_answers_with_no_number_twice() {
    let schemes = segments(&[Scheme::AutoIncrement, Scheme::Ticket]);
    let server = postgres::Private::start("");
    let options = server.options();
    killed(&server, &schemes, &|| Box::new(postgres::store(options.clone())));
}

#[test]
fn a_redis_killed_ten_times_under_load_answers_with_no_number_twice() {
    let server = redis::Private::start("");
    let options = redis::options_of(&server.url());
    killed(&server, &[Scheme::Keymill], &|| Box::new(redis::store(options.clone())));
}

/// Every scheme of segments but these.
fn segments(but: &[Scheme]) -> Vec<Scheme> {
    Scheme::ALL.into_iter().filter(|scheme| scheme.keeps_segments() && !but.contains(scheme)).collect()
}

/// Sources of one node that reserve together until it is over; the ranges of each.
fn company(
    store: &mut dyn Store,
    over: &AtomicBool,
    count: &AtomicUsize,
    (node, kills): (usize, &AtomicUsize),
) -> Vec<Vec<Answered>> {
    let mut requests: Vec<_> = (0..COMPANY).map(|n| request_of(Scheme::Keymill, &format!("n{n}"))).collect();
    let mut ranges = vec![Vec::new(); COMPANY];
    let gone = [FaultKind::Unavailable, FaultKind::Unknown];
    // ordering: Relaxed — a flag and a counter, nothing hangs on them.
    while !over.load(Ordering::Relaxed) {
        let answers = store.reserve_all(&requests);
        let mut failed = answers.len() != COMPANY;
        for (n, answer) in answers.into_iter().enumerate() {
            // Who is new begins alone.
            match answer.unwrap_or_else(|| store.reserve(&requests[n])) {
                Ok(got) => {
                    requests[n].high_water = Mark { period: 0, next: got.hi };
                    // ordering: Relaxed — as above.
                    ranges[n].push(((got.lo, got.hi), (node, kills.load(Ordering::Relaxed))));
                    count.fetch_add(1, Ordering::Relaxed);
                }
                Err(fault) => {
                    assert!(gone.contains(&fault.kind), "together: {fault}");
                    failed = true;
                    if fault.message.contains("connection to") {
                        break; // nobody is there: the others would each wait for that
                    }
                }
            }
        }
        if failed {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    ranges
}

fn killed(server: &dyn Victim, schemes: &[Scheme], open: &(dyn Fn() -> Box<dyn Store> + Sync)) {
    let keys: Vec<_> = schemes.iter().map(|scheme| request(*scheme).key).collect();
    open().init(&keys, false).unwrap();
    let over = AtomicBool::new(false);
    let counts: Vec<AtomicUsize> = (0..=schemes.len()).map(|_| AtomicUsize::new(0)).collect();
    let kills = AtomicUsize::new(0);
    let mut ranges: BTreeMap<String, Vec<Answered>> = BTreeMap::new();
    std::thread::scope(|scope| {
        let (over, counts, kills) = (&over, &counts, &kills);
        let mut threads = Vec::new();
        for (at, scheme) in schemes.iter().enumerate() {
            for node in 0..NODES {
                threads.push((
                    vec![scheme.name().to_owned()],
                    scope.spawn(move || {
                        let mut store = open();
                        let mut request = request(*scheme);
                        let mut ranges = Vec::new();
                        // ordering: Relaxed — a flag and a counter, nothing hangs on them.
                        while !over.load(Ordering::Relaxed) {
                            match store.reserve(&request) {
                                Ok(got) => {
                                    request.high_water = Mark { period: 0, next: got.hi };
                                    // ordering: Relaxed — as above.
                                    ranges.push(((got.lo, got.hi), (node, kills.load(Ordering::Relaxed))));
                                    counts[at].fetch_add(1, Ordering::Relaxed);
                                }
                                Err(fault) => {
                                    let gone = [FaultKind::Unavailable, FaultKind::Unknown];
                                    assert!(gone.contains(&fault.kind), "{}: {fault}", scheme.name());
                                    std::thread::sleep(Duration::from_millis(5));
                                }
                            }
                        }
                        vec![ranges]
                    }),
                ));
            }
        }
        for node in 0..NODES {
            let count = &counts[schemes.len()];
            let names = (0..COMPANY).map(|n| format!("together {n}")).collect();
            threads.push((names, scope.spawn(move || company(open().as_mut(), over, count, (node, kills)))));
        }
        // Every scheme has got something since the server came.
        let progress = || {
            // ordering: Relaxed — counters.
            let before: Vec<usize> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
            let deadline = Instant::now() + Duration::from_secs(60);
            while counts
                .iter()
                .zip(&before)
                .any(|(count, before)| count.load(Ordering::Relaxed) < before + 20)
            {
                if Instant::now() > deadline || threads.iter().any(|(_, thread)| thread.is_finished()) {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            true
        };
        let mut going = true;
        for _ in 0..KILLS {
            going = going && progress();
            server.kill();
            // ordering: Relaxed — as above.
            kills.fetch_add(1, Ordering::Relaxed);
            server.start_again();
        }
        going = going && progress();
        // ordering: Relaxed — as above.
        over.store(true, Ordering::Relaxed);
        for (names, thread) in threads {
            for (name, own) in names.into_iter().zip(thread.join().unwrap()) {
                ranges.entry(name).or_default().extend(own);
            }
        }
        assert!(going, "every scheme goes on after each kill");
    });
    for (name, mut ranges) in ranges {
        ranges.sort_unstable();
        println!("{name}: {} reservations over {KILLS} kills", ranges.len());
        for pair in ranges.windows(2) {
            let ((_, hi), (lo, _)) = (pair[0].0, pair[1].0);
            assert!(
                hi <= lo,
                "{name}: {:?} and {:?} overlap: (range, (node, kills before))",
                pair[0],
                pair[1]
            );
        }
    }
}
