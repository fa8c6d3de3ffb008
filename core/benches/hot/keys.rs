//! Ids that carry the gene of a key: the gene, the ids, their routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keymill::Mill;

use super::harness::{Outcome, Rounds, Row, consume, measure};

/// Keys of 16 bytes, as many as a power of two.
fn keys() -> Vec<[u8; 16]> {
    let mut seed = fastrand::Rng::with_seed(7);
    (0..1024).map(|_| seed.u128(..).to_le_bytes()).collect()
}

fn of_keys<T>(
    mut hash: impl FnMut(&[u8; 16]) -> T + Send,
    number: impl Fn(T) -> u64 + Send,
) -> impl FnMut(u64) + Send {
    let keys = keys();
    move |n| (0..n).for_each(|i| consume(number(hash(&keys[i as usize % 1024]))))
}

pub fn genes(_: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const BASE: &str = "twox-hash 2.1 and murmur2 0.1";
    let rows = [
        Row::new(BASE, || {
            of_keys(
                |key| twox_hash::XxHash64::oneshot(0, key) ^ murmur2::murmur64a(key, 0),
                |hash| hash & 0xFFFF,
            )
        }),
        Row::new("xxhash-rust 0.8 and murmur2 0.1", || {
            of_keys(
                |key| xxhash_rust::xxh64::xxh64(key, 0) ^ murmur2::murmur64a(key, 0),
                |hash| hash & 0xFFFF,
            )
        })
        .beside(BASE),
        Row::new("Gene::of", || {
            of_keys(|key| keymill::Gene::of(key), |gene| u64::from(gene.map_or(0, keymill::Gene::get)))
        })
        .goal(BASE, 1.3, 1.3),
    ];
    measure(&rows, rounds)
}

/// Ids for keys, whose counters lie on different cache lines in two threads.
pub fn business(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const BOUND: &str = "compare-and-set, a line for each thread";
    /// Keeps the lines of two threads apart, those that a processor fetches together too.
    #[repr(align(256))]
    struct Line(AtomicU64);
    // ordering: Relaxed — a number for each.
    let turn = |turns: &AtomicU64| turns.fetch_add(1, Ordering::Relaxed);
    let (lines, turns): (Arc<[Line; 2]>, Arc<AtomicU64>) =
        (Arc::new([0, 1].map(|n| Line(AtomicU64::new(n)))), Arc::default());
    let open = |spec: &str| mill.source(spec).expect("a source");
    let orders = open("business:order?counters=65536&step=10000000");
    let wide = open("business:wide?counters=65536&step=10000000&wide=on");
    let (texts, others) = (orders.clone(), turns.clone());
    let (numbers, wides) = (turns.clone(), turns.clone());
    let genes = turns.clone();
    let rows = [
        Row::new(BOUND, move || {
            let (lines, at) = (lines.clone(), turn(&turns) as usize % 2);
            move |n| {
                let line = &lines[at].0;
                for _ in 0..n {
                    // ordering: Acquire, and AcqRel below — as the cell of a counter.
                    let mut word = line.load(Ordering::Acquire);
                    while let Err(seen) =
                        // ordering: as above.
                        line.compare_exchange_weak(
                            word,
                            word + 1,
                            Ordering::AcqRel,
                            Ordering::Acquire,
                        )
                    {
                        word = seen;
                    }
                    consume(word);
                }
            }
        }),
        Row::new("Gene::of_number", move || {
            let key = 42 + 7 * turn(&genes);
            move |n| {
                (0..n).for_each(|_| {
                    consume(u64::from(keymill::Gene::of_number(std::hint::black_box(key)).get()));
                });
            }
        })
        .beside(BOUND),
        Row::new("next_for(u64)", move || {
            let (orders, key) = (orders.clone(), 42 + 7 * turn(&numbers));
            move |n| (0..n).for_each(|_| consume(orders.next_for(std::hint::black_box(key)).expect("an id")))
        })
        .beside(BOUND),
        Row::new("next_for(text of 16 bytes)", move || {
            let (orders, key) = (texts.clone(), format!("buyer-{:010}", 42 + 7 * turn(&others)));
            move |n| (0..n).for_each(|_| consume(orders.next_for(std::hint::black_box(&key)).expect("an id")))
        })
        .beside(BOUND),
        Row::new("next_wide_for(u64)", move || {
            let (orders, key) = (wide.clone(), 42 + 7 * turn(&wides));
            move |n| {
                (0..n).for_each(|_| {
                    consume(orders.next_wide_for(std::hint::black_box(key)).expect("an id") as u64);
                });
            }
        })
        .beside(BOUND),
    ];
    measure(&rows, rounds)
}

/// A table of 64 ranges.
fn route_table(version: u64) -> String {
    let ranges =
        (1..=64_u32).map(|n| format!("[[range]]\nupper = {}\nshard = \"s{}\"\n", n * 1024 - 1, n % 16));
    format!("version = {version}\n{}", ranges.collect::<String>())
}

/// The same, in which a quarter of the last range's ids have moved.
fn moving_table() -> String {
    format!("{}to = \"s1\"\npercent = 25\n", route_table(1))
}

pub fn routes(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const BASE: &str = "a bare array of names by gene";
    const STILL: &str = "Router::route";
    let names: Arc<Vec<String>> = Arc::new((0..16).map(|n| format!("s{n}")).collect());
    let array: Arc<Vec<u16>> = Arc::new((0..65536_u32).map(|gene| (gene / 1024 % 16) as u16).collect());
    let still = keymill::Router::from_text(&route_table(1)).expect("a table");
    let reloaded = still.clone();
    // Of a store: an answer for the range that moves looks whether the store knows of this process.
    mill.put_routes("moving", &moving_table(), keymill::Change::Apply).expect("stored");
    let moving = mill.router("moving").expect("a router");
    // An id of any gene.
    let next = |id: u64| id.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let routed = move |router: keymill::Router| {
        move |n| {
            let mut id = 1;
            for _ in 0..n {
                id = next(id);
                consume(router.route(id >> 1).map_or(0, |route| route.read.len() as u64));
            }
        }
    };
    let reloads = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ends = reloads.clone();
    let rows = [
        Row::new(BASE, move || {
            let (names, array) = (names.clone(), array.clone());
            move |n| {
                let mut id = 1;
                for _ in 0..n {
                    id = next(id);
                    let gene = (id >> 48) as usize;
                    consume(names[usize::from(array[gene])].len() as u64);
                }
            }
        }),
        Row::new(STILL, move || routed(still.clone())).goal(BASE, 5.0, 5.0),
        Row::new("Router::route, one of 64 ranges moves", move || routed(moving.clone()))
            .goal(STILL, 1.1, 1.1),
    ];
    let mut outcomes = measure(&rows, rounds);
    // A thousand tables a second, by a thread of its own.
    let router = reloaded.clone();
    let writer = std::thread::spawn(move || {
        let mut version = 1;
        while !ends.load(std::sync::atomic::Ordering::Relaxed) {
            version += 1;
            router.load(&route_table(version)).expect("a newer table");
            std::thread::sleep(Duration::from_micros(500));
        }
    });
    let rows = [Row::new("Router::route, reloaded 1000 times a second", move || routed(reloaded.clone()))];
    outcomes.extend(measure(&rows, rounds));
    reloads.store(true, std::sync::atomic::Ordering::Relaxed);
    writer.join().expect("a writer");
    outcomes
}
