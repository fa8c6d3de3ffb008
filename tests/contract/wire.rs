//! Faults of a wire, and how every store behind one reacts.

use std::time::{Duration, Instant};

use keymill::store::server::ServerOptions;
use keymill::store::{FaultKind, Mark, Store};
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::{assert_disjoint, mariadb, postgres, redis};

use crate::bench::{Bench, Kind, Place};
use crate::kind;

/// Every kind on every server that supports it.
fn benches() -> Vec<Bench> {
    let sql = Kind::all().flat_map(|kind| [Bench::mariadb(kind), Bench::postgres(kind)]);
    sql.chain([Kind::Segment, Kind::Serial].map(Bench::redis)).collect()
}

/// Ranges of consecutive reservations.
fn on_each_server(promise: impl Fn(&Bench)) {
    for bench in benches() {
        promise(&bench);
    }
}

/// A store on this bench's server, with these options changed.
fn open(bench: &Bench, change: impl FnOnce(&mut ServerOptions)) -> Box<dyn Store> {
    if let Place::Redis = bench.place {
        let mut options = redis::options();
        change(&mut options.server);
        return Box::new(redis::store(options));
    }
    let mut options = if bench.is_mysql() { mariadb::options() } else { postgres::options() };
    change(&mut options);
    bench.counting(if bench.is_mysql() {
        Box::new(mariadb::store(options))
    } else {
        Box::new(postgres::store(options))
    })
}

/// The same through a proxy.
fn open_through(bench: &Bench, change: impl FnOnce(&mut ServerOptions)) -> (Proxy, Box<dyn Store>) {
    let mut proxy = None;
    let store = open(bench, |options| {
        let between = Proxy::start(options.hosts[0].clone());
        options.hosts = vec![between.address()];
        change(options);
        proxy = Some(between);
    });
    (proxy.expect("it was started"), store)
}

#[test]
fn the_second_host_serves_when_the_first_does_not() {
    for bench in [Bench::mariadb(Kind::Segment), Bench::postgres(Kind::Segment), Bench::redis(Kind::Segment)]
    {
        let mut store = open(&bench, |options| {
            options.hosts.insert(0, ("127.0.0.1".to_owned(), 1));
            options.hosts.insert(0, ("no-such-host.invalid".to_owned(), 1));
        });
        assert_eq!(store.reserve(&bench.request("orders", 1)).unwrap().lo, 1);
    }
}

/// Reserves through a proxy, undisturbed and cut at each answer in turn; returns the number of unknown outcomes, and all
/// answered ranges. The last reservation is undisturbed.
fn cut_by_turns(
    store: &mut dyn Store,
    bench: &Bench,
    proxy: &Proxy,
    answers_each: u32,
) -> (u64, Vec<(u64, u64)>) {
    let mut request = bench.request("orders", 10);
    let mut ranges = Vec::new();
    let mut unknown = 0;
    for round in 0..80 {
        for answers in [Answers::Pass, Answers::CutAfter(round % answers_each)] {
            proxy.set(answers);
            match store.reserve(&request) {
                Ok(got) => {
                    request.high_water = Mark { period: got.period, next: got.hi };
                    ranges.push((got.lo, got.hi));
                }
                Err(fault) if fault.kind == FaultKind::Unknown => unknown += 1,
                Err(fault) => assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}"),
            }
        }
    }
    proxy.set(Answers::Pass);
    let got = store.reserve(&request).unwrap();
    ranges.push((got.lo, got.hi));
    println!("{:?}: {} reserved, {unknown} unknown, the row stands at {}", bench.kind, ranges.len(), got.hi);
    (unknown, ranges)
}

#[test]
fn a_swallowed_answer_is_an_unknown_outcome_and_its_range_is_never_used() {
    on_each_server(|bench| {
        let (proxy, mut store) = open_through(bench, |_| {});
        let is_redis = matches!(bench.place, Place::Redis);
        let (unknown, ranges) = cut_by_turns(&mut *store, bench, &proxy, if is_redis { 3 } else { 5 });
        // Of sixteen rounds cut at the first answer; a serial's first one is the answer to a preparation.
        assert!(unknown >= 15 && ranges.len() > 80);
        // Ranges with an unknown outcome are gaps: some of them were applied, and all of the Redis scripts.
        let (end, answered) = (ranges[ranges.len() - 1].1, 10 * ranges.len() as u64);
        assert!(end > answered + 1, "no applied range was lost");
        assert!(!is_redis || end == answered + 10 * unknown + 1, "{end}");
        assert_disjoint(ranges);
    });
}

#[test]
fn an_answer_that_comes_too_late_is_never_taken_for_the_next_one() {
    // Longer than a busy disk takes for an undisturbed answer, although twenty ask it at once.
    const TIMEOUT: Duration = Duration::from_secs(15);
    let promise = |bench: &Bench| {
        let (proxy, mut store) = open_through(bench, |options| {
            (options.connect_timeout, options.read_timeout) = (TIMEOUT, TIMEOUT);
        });
        let (orders, invoices) = (bench.request("orders", 10), bench.request("invoices", 10));
        // By then the row has been read: if one statement is enough, one is sent.
        for start in [&orders, &invoices].repeat(3) {
            store.reserve(start).unwrap();
        }
        bench.set_row("orders", bench.mark(1_000_001));
        proxy.set(Answers::Hold);
        let began = Instant::now();
        let fault = store.reserve(&orders).unwrap_err();
        let took = began.elapsed();
        assert!(took < TIMEOUT * 4, "a silent server held the caller for {took:?}");
        // A single statement or script may have been applied; a transaction has not even begun.
        let in_one = matches!(bench.place, Place::Redis) || !bench.kind.is_serial();
        let expected = if in_one { FaultKind::Unknown } else { FaultKind::Unavailable };
        assert_eq!(fault.kind, expected, "{:?}: {fault}", bench.kind);
        assert!(fault.to_string().contains("did not answer in time"), "{fault}");
        // While the server is silent, a new connection fails too, within the same time.
        assert_eq!(kind(store.reserve(&invoices)), FaultKind::Unavailable);
        proxy.set(Answers::Pass); // now the held answers arrive, wherever they belong
        assert_eq!(store.reserve(&invoices).unwrap().lo, 31, "never the range of `orders`");
        let again = store.reserve(&orders).unwrap().lo;
        assert!(again == 1_000_001 || (in_one && again == 1_000_011), "{again}");
    };
    // All at once: the threads mostly wait.
    let promise = &promise;
    let benches = benches();
    std::thread::scope(|scope| benches.iter().for_each(|bench| drop(scope.spawn(move || promise(bench)))));
}
