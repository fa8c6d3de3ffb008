//! PostgreSQL's sequences: values survive a crash, whichever client drew or rolled back at the same time.

use std::sync::Arc;

use keymill::store::{Catalogue, FaultKind, Key, RowStore, Scheme};
use keymill_tests::postgres::{self, Private, Sql};
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::{assert_disjoint, in_time};

use super::{Sequence, Server, at};

pub(super) const SERVER: Server = Server {
    open: || Box::new(postgres::store(postgres::options())),
    say: |sql| {
        Sql::shared().say(sql);
    },
    unsafe_on: false,
};

fn key(name: &str, step: u64) -> Arc<Key> {
    super::key(name, step, false)
}

/// PostgreSQL logs 32 values at a time, and only the transaction that wrote the record waits for the disk. Here another
/// client always writes it and rolls back, so that only keymill's own commit flushes the log.
#[test]
fn values_drawn_after_another_clients_rollback_survive_a_killed_server() {
    for more in ["", "-c wal_level=minimal -c max_wal_senders=0"] {
        // The log writer, which would flush within 0.2 s, sleeps.
        let sleepy = "-c wal_writer_delay=10s -c wal_writer_flush_after=0 -c bgwriter_lru_maxpages=0";
        let private = Private::start(&format!("{sleepy} {more}"));
        postgres::store(private.options()).init(&[key("orders", 100)], false).unwrap();
        let mut ranges = Vec::new();
        for round in 0..2 {
            let other = Sql::to(&private.options());
            // The first draw after a start writes a log record, which is done here.
            other.say("SELECT nextval('orders')");
            Sql::root(&private.url()).say("CHECKPOINT");
            other.say("BEGIN; SELECT nextval('orders') FROM generate_series(1, 40); ROLLBACK");
            let mut store = postgres::store(private.options());
            for _ in 0..5 + round * 17 {
                // The process has seen nothing: a high water would hide a loss, and another process would not have it.
                let got = store.reserve(&super::request(&key("orders", 100), 0)).unwrap();
                ranges.push((got.lo, got.hi));
            }
            private.kill();
            private.start_again();
        }
        assert_disjoint(ranges);
    }
}

#[test]
fn a_swallowed_answer_is_an_unknown_outcome_and_its_value_is_never_used() {
    let sequence = Sequence::new(SERVER);
    let mut options = postgres::options();
    let proxy = Proxy::start(options.hosts[0].clone());
    options.hosts = vec![proxy.address()];
    let mut store = postgres::store(options);
    let (mut ranges, mut seen, mut unknown) = (Vec::new(), 0, 0);
    for _ in 0..40 {
        for answers in [Answers::Pass, Answers::CutAfter(0)] {
            proxy.set(answers);
            match store.reserve(&sequence.request(seen)) {
                Ok(got) => {
                    seen = got.hi;
                    ranges.push((got.lo, got.hi));
                }
                Err(fault) => {
                    assert_eq!(fault.kind, FaultKind::Unknown, "{fault}");
                    unknown += 1;
                }
            }
        }
    }
    assert_eq!((ranges.len(), unknown), (40, 40));
    assert_eq!(seen, 1 + 100 * (40 + 39), "each unknown value is a gap, but the last");
    assert_disjoint(ranges);
}

#[test]
fn tickets_are_another_servers() {
    for scheme in [Scheme::AutoIncrement, Scheme::Ticket] {
        let key = Arc::new(Key { scheme, ..key("tickets", 100).as_ref().clone() });
        let (open, request) = (SERVER.open, super::request(&key, 0));
        for answer in [
            open().reserve(&request).map(drop),
            open().init(&[Arc::clone(&key)], true).map(drop),
            open().look(&key).map(drop),
            open().repair(&key, at(5)).map(drop),
        ] {
            let fault = answer.unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(fault.to_string().contains("scheme=keymill"), "{fault}");
        }
    }
}

#[test]
fn a_sequence_that_is_raised_while_others_draw_names_no_value_twice() {
    let sequence = Sequence::new(SERVER);
    let start = std::sync::Barrier::new(8);
    let rounds = 150_u64;
    let drawn: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (sequence, start) = (&sequence, &start);
                scope.spawn(move || {
                    let mut store = sequence.open();
                    let mut drawn = Vec::new();
                    for round in 1..=rounds {
                        start.wait();
                        // As several stores behind one source do when a chunk begins.
                        let to = at(round * 10_000 + 1);
                        match in_time(|| store.repair(&sequence.request(0).key, to)) {
                            Err(fault) if fault.kind != FaultKind::Refused => panic!("{fault}"),
                            _ => {}
                        }
                        for _ in 0..3 {
                            let range = in_time(|| store.reserve(&sequence.request(0))).unwrap();
                            drawn.push((range.lo, range.hi));
                        }
                    }
                    drawn
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_disjoint(drawn);
}

#[test]
fn a_sequence_that_counts_downwards_is_refused() {
    let sequence = Sequence::missing(SERVER);
    (SERVER.say)(&format!("CREATE SEQUENCE {} INCREMENT BY -100", sequence.name));
    let fault = sequence.open().reserve(&sequence.request(0)).unwrap_err();
    assert!(fault.kind == FaultKind::Refused && fault.to_string().contains("counts downwards"), "{fault}");
}
