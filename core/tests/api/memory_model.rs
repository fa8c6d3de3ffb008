//! Threads that take, lease, close and drop at the same time, on the store in memory: small enough for Miri (`ci/steps/miri`), and what
//! ThreadSanitizer (`ci/steps/tsan`) and an ordinary run do at length.

use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use keymill::binding::LastBlock;
use keymill::{Code, Mill, Source};

const THREADS: usize = 3;

/// How many ids each thread takes. Some of the sources reserve ten at a time, so that the keeper works beside the takers.
const IDS: usize = if cfg!(miri) { 6 } else { 3_000 };

const SPECS: [&str; 4] = [
    "segment:orders?step=10&deadline=5m",
    "segment:items?order=thread&block=5&deadline=5m",
    "snowflake:tx?worker=3&deadline=5m",
    "snowflake:ty?layout=js53&worker=1&order=thread&block=3&deadline=5m",
];

/// Ids of one thread by every verb in turn.
fn take(source: &Source) -> Vec<u64> {
    let mut handle = source.handle();
    let mut ids = Vec::new();
    let mut buffer = [0; 3];
    while ids.len() < IDS {
        ids.push(source.next().expect("an id"));
        ids.extend(source.take(2).expect("ids"));
        source.fill(&mut buffer).expect("ids");
        ids.extend(buffer);
        ids.push(handle.next().expect("an id"));
        // Nothing in memory is no error here.
        ids.extend(source.try_next());
        ids.extend(source.lease(2).unwrap_or_default());
    }
    ids
}

#[test]
fn threads_that_take_by_every_verb_share_no_id() {
    let mill = Mill::open("memory:").expect("a mill");
    for spec in SPECS {
        let source = mill.source(spec).expect("a source");
        let together = Barrier::new(THREADS);
        let taken: Vec<Vec<u64>> = thread::scope(|scope| {
            let taker = || {
                together.wait();
                take(&source)
            };
            let takers: Vec<_> = (0..THREADS).map(|_| scope.spawn(taker)).collect();
            takers.into_iter().map(|taker| taker.join().expect("no panic")).collect()
        });
        let count: usize = taken.iter().map(Vec::len).sum();
        let distinct: HashSet<u64> = taken.into_iter().flatten().collect();
        assert_eq!(distinct.len(), count, "{spec}");
    }
}

#[test]
fn threads_that_take_serials_share_no_text() {
    let mill = Mill::open("memory:").expect("a mill");
    for order in ["process", "thread"] {
        let spec = format!("serial:t/{order}?number=00000000&zone=UTC&step=10&order={order}&deadline=5m");
        let source = mill.source(&spec).expect("a source");
        let taker = || {
            let mut handle = source.handle();
            let mut texts = Vec::new();
            while texts.len() < IDS {
                texts.push(source.next_text().expect("a serial"));
                texts.push(handle.next_text().expect("a serial"));
                texts.extend(source.take_text(2).expect("serials"));
            }
            texts
        };
        let taken: Vec<Vec<String>> = thread::scope(|scope| {
            let takers: Vec<_> = (0..THREADS).map(|_| scope.spawn(taker)).collect();
            takers.into_iter().map(|taker| taker.join().expect("no panic")).collect()
        });
        let count: usize = taken.iter().map(Vec::len).sum();
        let distinct: HashSet<String> = taken.into_iter().flatten().collect();
        assert_eq!(distinct.len(), count, "{spec}");
    }
}

#[test]
fn a_close_ends_every_thread_that_takes_and_every_lease() {
    for spec in SPECS {
        let mill = Mill::open("memory:").expect("a mill");
        let source = mill.source(spec).expect("a source");
        let taken = AtomicUsize::new(0);
        thread::scope(|scope| {
            let taker = || {
                let mut handle = source.handle();
                loop {
                    let ids = [source.next(), handle.next()];
                    if let Some(error) = ids.iter().find_map(|id| id.as_ref().err()) {
                        assert_eq!(error.code, Code::Closed, "{spec}: {error}");
                        return;
                    }
                    // ordering: Relaxed — a count.
                    taken.fetch_add(2, Ordering::Relaxed);
                }
            };
            let takers: Vec<_> = (0..THREADS).map(|_| scope.spawn(taker)).collect();
            // ordering: Relaxed — a count.
            while taken.load(Ordering::Relaxed) < IDS
                && !takers.iter().any(thread::ScopedJoinHandle::is_finished)
            {
                thread::yield_now();
            }
            mill.close();
        });
        assert_eq!(source.next().expect_err("the mill is closed").code, Code::Closed, "{spec}");
    }
}

#[test]
fn a_lease_is_seen_to_end_by_a_thread_that_only_reads_its_word() {
    let mill = Mill::open("memory:").expect("a mill");
    let source = mill.source("segment:orders?step=10&deadline=5m").expect("a source");
    let lease = source.lease_block(&mut LastBlock::default(), 5).expect("a lease");
    thread::scope(|scope| {
        scope.spawn(|| {
            // ordering: Relaxed — a lease ends at some time; nothing else is read by it.
            while lease.word.load(Ordering::Relaxed) == lease.leased_at {
                thread::yield_now();
            }
        });
        scope.spawn(|| mill.close());
    });
}

#[test]
fn mills_that_are_opened_and_dropped_by_several_threads_leave_nothing_behind() {
    thread::scope(|scope| {
        for n in 0..THREADS {
            scope.spawn(move || {
                let mill = Mill::open("memory:").expect("a mill");
                let source = mill.source("segment:orders?step=10&deadline=5m").expect("a source");
                let copy = source.clone();
                drop(mill);
                drop(source);
                assert_eq!(copy.next().expect("an id"), 1);
                if n == 0 {
                    copy.mill().close();
                }
            });
        }
    });
}
