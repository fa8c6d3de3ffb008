//! Every fast path of the Rust core beside its limit and its rivals, in one run. What a row means, what is to be reached
//! and how it is measured: `docs/performance.md`.
//!
//! `cargo bench -p keymill --bench hot`; `-- --quick` for a first look, `-- --only text` for one section.

mod harness;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam::utils::CachePadded;
use ferroid::generator::AtomicSnowflakeGenerator;
use ferroid::time::MonotonicClock;
use keymill::scatter::move_digits;
use keymill::serial::{SerialPattern, write_serial};
use keymill::{Mill, Source};
use serde_json::{Value, json};

use harness::{Outcome, Rounds, Row, bare_add, coarse_seconds, consume, cpu_time, measure, median};

/// One segment that lasts for the whole run: the path is measured, not the store.
const ENDLESS: &str = "min_step=1099511627776&max_step=1099511627776";
/// As much of eight digits as one reservation may take, and no second one.
const ONE_PERIOD: &str = "zone=UTC&min_step=99000000&max_step=99000000&buffer=1ms";

/// Wide enough that no rate reaches its end.
const UNCAPPED: &str = "time:41@1ms,worker:1,seq:21";
const TWITTER_PER_MS: f64 = 4096.0;
const BATCH: usize = 1000;

/// What ferroid's macro makes has no documentation.
#[allow(missing_docs)]
mod wide {
    ferroid::define_snowflake_id!(
        /// [`UNCAPPED`](super::UNCAPPED) in ferroid.
        Wide, u64, reserved: 1, timestamp: 41, machine_id: 1, sequence: 21
    );
}
use wide::Wide;

type Ferroid<Id> = AtomicSnowflakeGenerator<Id, MonotonicClock>;

fn open(mill: &Mill, spec: &str) -> Source {
    mill.source(spec).unwrap_or_else(|e| panic!("{spec}: {e}"))
}

/// The work of a row that takes ids one by one.
fn each(mut next: impl FnMut() -> keymill::Result<u64> + Send) -> impl FnMut(u64) + Send {
    move |n| {
        for _ in 0..n {
            match next() {
                Ok(id) => consume(id),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn segments(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    let counter = Arc::new(CachePadded::new(AtomicU64::new(0)));
    let shared = open(mill, &format!("segment:shared?{ENDLESS}"));
    let owned = open(mill, &format!("segment:owned?{ENDLESS}"));
    let threads = open(mill, &format!("segment:threads?order=thread&{ENDLESS}"));
    let (tried, iterated, batched) = (shared.clone(), shared.clone(), shared.clone());
    let rows = [
        Row::new("lock xadd, bare and shared", move || {
            let counter = counter.clone();
            move |n| (0..n).for_each(|_| consume(bare_add(&counter)))
        }),
        Row::new("Source::next, order=process", move || {
            let source = shared.clone();
            each(move || source.next())
        })
        .goal("lock xadd, bare and shared", 1.4, 1.25),
        Row::new("Source::try_next, order=process", move || {
            let source = tried.clone();
            each(move || source.try_next())
        })
        .beside("lock xadd, bare and shared"),
        Row::new("Source::iter, order=process", move || {
            let mut ids = iterated.iter();
            each(move || ids.next().expect("ids without end"))
        })
        .beside("lock xadd, bare and shared"),
        Row::new("Handle::next, block of 1024", move || {
            let mut handle = owned.handle();
            each(move || handle.next())
        })
        .goal("lock xadd, bare and shared", 0.12, 0.05),
        Row::new("Source::next, order=thread", move || {
            let source = threads.clone();
            each(move || source.next())
        })
        .beside("lock xadd, bare and shared"),
        Row::new("Source::fill, 1000 at once", move || {
            let source = batched.clone();
            let mut ids = vec![0; BATCH];
            move |n| {
                for _ in 0..n / BATCH as u64 {
                    source.fill(&mut ids).unwrap_or_else(|e| panic!("{e}"));
                    ids.iter().step_by(100).for_each(|&id| consume(id));
                }
            }
        })
        .goal("Source::next, order=process", 0.05, 0.05),
    ];
    measure(&rows, rounds)
}

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

fn genes(_: &Mill, rounds: Rounds) -> Vec<Outcome> {
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
fn business(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
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

fn routes(_: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const BASE: &str = "a bare array of names by gene";
    let names: Arc<Vec<String>> = Arc::new((0..16).map(|n| format!("s{n}")).collect());
    let array: Arc<Vec<u16>> = Arc::new((0..65536_u32).map(|gene| (gene / 1024 % 16) as u16).collect());
    let still = keymill::Router::from_text(&route_table(1)).expect("a table");
    let reloaded = still.clone();
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
        Row::new("Router::route", move || routed(still.clone())).goal(BASE, 5.0, 5.0),
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

fn ferroid<Id: ferroid::id::SnowflakeId<Ty = u64>>(machine: u64) -> Arc<Ferroid<Id>> {
    Arc::new(Ferroid::new(machine, MonotonicClock::with_epoch(ferroid::time::TWITTER_EPOCH)))
}

fn yitter(worker_bits: u8, seq_bits: u8) -> idgenerator::CoreIdGenerator {
    let options = idgenerator::IdGeneratorOptions::new()
        .worker_id(1)
        .worker_id_bit_len(worker_bits)
        .seq_bit_len(seq_bits);
    let mut generator = idgenerator::CoreIdGenerator::default();
    generator.init(options).expect("valid options");
    generator
}

fn snowflakes(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const BASE: &str = "coarse clock, then lock xadd";
    let source = open(mill, &format!("snowflake:wide?worker=1&layout={UNCAPPED}"));
    let owned = source.clone();
    let batched = source.clone();
    let rival = ferroid::<Wide>(1);
    let (bare, clocked) =
        (Arc::new(CachePadded::new(AtomicU64::new(0))), Arc::new(CachePadded::new(AtomicU64::new(0))));
    let rows = [
        Row::new(BASE, move || {
            let counter = clocked.clone();
            move |n| {
                for _ in 0..n {
                    consume(coarse_seconds());
                    consume(bare_add(&counter));
                }
            }
        }),
        Row::new("Source::next", move || {
            let source = source.clone();
            each(move || source.next())
        })
        .goal(BASE, 1.15, 1.1),
        Row::new("Handle::next (no blocks of time)", move || {
            let mut handle = owned.handle();
            each(move || handle.next())
        })
        .beside(BASE),
        Row::new("Source::fill, 1000 at once", move || {
            let source = batched.clone();
            let mut ids = vec![0; BATCH];
            move |n| {
                for _ in 0..n / BATCH as u64 {
                    source.fill(&mut ids).unwrap_or_else(|e| panic!("{e}"));
                    ids.iter().step_by(100).for_each(|&id| consume(id));
                }
            }
        })
        .beside(BASE),
        Row::new("lock xadd, bare and shared", move || {
            let counter = bare.clone();
            move |n| (0..n).for_each(|_| consume(bare_add(&counter)))
        })
        .beside(BASE),
        Row::new("ferroid 2.0 Atomic, MonotonicClock", move || {
            let rival = rival.clone();
            move |n| (0..n).for_each(|_| consume(rival.next_id(|_| std::hint::spin_loop()).to_raw()))
        })
        .beside(BASE),
        Row::new("idgenerator 2.0 (yitter), owned", || {
            let mut rival = yitter(1, 21);
            move |n| (0..n).for_each(|_| consume(rival.next_id() as u64))
        })
        .beside(BASE)
        .alone(),
    ];
    measure(&rows, rounds)
}

/// The digits of ids of a running clock, moved: by arithmetic, and as the article that has the idea does it.
fn scatters(_: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const BASE: &str = "text of the id, three slices put together, read back";
    fn by_text(id: u64) -> u64 {
        let text = id.to_string();
        let (rest, last) = text.split_at(text.len() - 1);
        let (head, middle) = rest.split_at(1);
        let mut moved = String::from(head);
        moved.push_str(last);
        moved.push_str(middle);
        moved.parse().expect("its digits")
    }
    /// Ids of 19 digits, each some milliseconds after the one before.
    fn of_ids(mut move_of: impl FnMut(u64) -> u64 + Send) -> impl FnMut(u64) + Send {
        let mut id = 1_561_632_371_724_517_376;
        move |n| {
            for _ in 0..n {
                id += 12_582_919;
                consume(move_of(std::hint::black_box(id)));
            }
        }
    }
    let rows = [
        Row::new(BASE, || of_ids(by_text)),
        Row::new("move_digits, 1 digit", || of_ids(|id| move_digits(id, 1))).goal(BASE, 0.08, 0.08),
        Row::new("move_digits, 2 digits", || of_ids(|id| move_digits(id, 2))).goal(BASE, 0.08, 0.08),
        Row::new("move_digits, 3 digits", || of_ids(|id| move_digits(id, 3))).goal(BASE, 0.08, 0.08),
    ];
    measure(&rows, rounds)
}

fn serials(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const BASE: &str = "format!(\"{}{:08}\") of a ready number";
    let pattern = SerialPattern::new("yyyyMMdd", "00000000", "UTC").expect("a valid pattern");
    let prefix = pattern.prefix(pattern.period_at(1_795_219_200_000));
    let width = pattern.width();
    // Eight digits are used up by a hundred million numbers: each row has a period of its own.
    let own = |name: &str| open(mill, &format!("serial:{name}/id?{ONE_PERIOD}"));
    let (next, push, write, take) = (own("next"), own("push"), own("write"), own("take"));
    let handle = own("handle");
    let threads = open(mill, &format!("serial:threads/id?order=thread&{ONE_PERIOD}"));
    let counter = Arc::new(CachePadded::new(AtomicU64::new(0)));
    let numbers = Arc::new(CachePadded::new(AtomicU64::new(0)));
    let rows = [
        Row::new(BASE, move || {
            let (date, mut number) = (prefix.as_str().to_owned(), 0_u64);
            move |n| {
                for _ in 0..n {
                    number = if number == 99_999_999 { 0 } else { number + 1 };
                    let text = format!("{date}{number:08}");
                    consume(text.as_ptr() as u64);
                }
            }
        }),
        Row::new("write_serial into a buffer", move || {
            let (mut buffer, mut number) = ([0; 32], 0_u64);
            move |n| {
                for _ in 0..n {
                    number = if number == 99_999_999 { 0 } else { number + 1 };
                    let len = write_serial(&mut buffer, &prefix, number, width);
                    consume(buffer.as_ptr() as u64);
                    consume(len.unwrap_or(0) as u64);
                }
            }
        })
        .goal(BASE, 0.06, None),
        Row::new("lock xadd, bare and shared", move || {
            let counter = counter.clone();
            move |n| (0..n).for_each(|_| consume(bare_add(&counter)))
        })
        .beside(BASE),
        Row::new("lock xadd, then write_serial", move || {
            let (counter, mut buffer) = (numbers.clone(), [0; 32]);
            move |n| {
                for _ in 0..n {
                    let len = write_serial(&mut buffer, &prefix, bare_add(&counter), width);
                    consume(buffer.as_ptr() as u64);
                    consume(len.unwrap_or(0) as u64);
                }
            }
        })
        .beside(BASE),
        Row::new("Source::next_text, order=process", move || {
            let source = next.clone();
            move |n| (0..n).for_each(|_| consume(source.next_text().expect("a serial").as_ptr() as u64))
        })
        .beside(BASE),
        Row::new("Source::push_text, order=process", move || {
            let (source, mut text) = (push.clone(), String::with_capacity(64));
            move |n| {
                for _ in 0..n {
                    text.clear();
                    source.push_text(&mut text).expect("a serial");
                    consume(text.as_ptr() as u64);
                }
            }
        })
        .beside(BASE),
        Row::new("Source::write_text, order=process", move || {
            let (source, mut buffer) = (write.clone(), [0; 64]);
            move |n| {
                for _ in 0..n {
                    consume(source.write_text(&mut buffer).expect("a serial") as u64);
                    consume(buffer.as_ptr() as u64);
                }
            }
        })
        .beside(BASE),
        Row::new("Source::write_text, order=thread", move || {
            let (source, mut buffer) = (threads.clone(), [0; 64]);
            move |n| {
                for _ in 0..n {
                    consume(source.write_text(&mut buffer).expect("a serial") as u64);
                    consume(buffer.as_ptr() as u64);
                }
            }
        })
        .beside(BASE),
        Row::new("Handle::next_text", move || {
            let mut handle = handle.handle();
            move |n| (0..n).for_each(|_| consume(handle.next_text().expect("a serial").as_ptr() as u64))
        })
        .beside(BASE),
        Row::new("Source::take_text, 1000 at once", move || {
            let source = take.clone();
            move |n| {
                for _ in 0..n / BATCH as u64 {
                    consume(source.take_text(BATCH).expect("serials").as_ptr() as u64);
                }
            }
        })
        .beside(BASE),
    ];
    measure(&rows, rounds)
}

type Next<'a> = Box<dyn FnMut() -> u64 + 'a>;

/// A thousand ids just after a millisecond began: below every cap, so the cost of the path itself.
fn bursts(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const IDS: u64 = 1000;
    let source = open(mill, "snowflake:burst?worker=1");
    let ferroid = ferroid::<ferroid::id::SnowflakeTwitterId>(1);
    let snowflaked = snowflaked::sync::Generator::new(1);
    let mut yitter = yitter(10, 12);
    let mut real_time = snowflake::SnowflakeIdGenerator::new(1, 1);
    let counter = CachePadded::new(AtomicU64::new(0));
    let mut rows: Vec<(&str, Next)> = vec![
        ("lock xadd, bare", Box::new(|| bare_add(&counter))),
        ("Source::next", Box::new(|| source.next().expect("an id"))),
        ("ferroid 2.0 Atomic", Box::new(|| ferroid.next_id(|_| std::hint::spin_loop()).to_raw())),
        ("snowflaked 1.0, sync", Box::new(|| snowflaked.generate())),
        ("idgenerator 2.0 (yitter), owned", Box::new(|| yitter.next_id() as u64)),
        ("rs-snowflake 0.6, real_time, owned", Box::new(|| real_time.real_time_generate() as u64)),
    ];
    let mut figures = vec![Vec::new(); rows.len()];
    for _ in 0..rounds.alone * 4 {
        for ((_, next), figures) in rows.iter_mut().zip(&mut figures) {
            let ms = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
            let now = ms();
            while ms() == now {}
            consume(next());
            let before = cpu_time();
            for _ in 0..IDS {
                consume(next());
            }
            figures.push(cpu_time().saturating_sub(before).as_nanos() as f64 / IDS as f64);
        }
    }
    let base = figures[0].clone();
    let outcome = |((name, _), mut figures): (&(&str, _), Vec<f64>)| {
        let mut ratios: Vec<_> = figures.iter().zip(&base).map(|(f, b)| f / b).collect();
        Outcome {
            name: (*name).to_owned(),
            against: Some(harness::Against { base: "lock xadd, bare", ..Default::default() }),
            ns: median(&mut figures),
            ratio: median(&mut ratios),
            ..Outcome::default()
        }
    };
    rows.iter().zip(figures).map(outcome).collect()
}

/// A figure that is no ratio of two rows: name, value, unit, the goal as text, and whether it is met.
struct Fact {
    name: String,
    value: f64,
    unit: &'static str,
    goal: &'static str,
    met: Option<bool>,
}

impl Fact {
    fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Fact {
        Fact { name: name.into(), value, unit, goal: "", met: None }
    }

    fn goal(self, goal: &'static str, met: bool) -> Fact {
        Fact { goal, met: Some(met), ..self }
    }

    fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }

    fn json(&self) -> Value {
        json!({ "row": self.name, "value": self.value, "unit": self.unit, "goal": self.goal, "verdict": self.verdict() })
    }
}

/// Ids per wall second of a loop, after a time that is not counted.
fn sustained(before: Duration, counted: Duration, mut next: impl FnMut() -> u64) -> f64 {
    let mut run = |time: Duration| {
        let (started, mut ids) = (Instant::now(), 0_u64);
        while started.elapsed() < time {
            for _ in 0..64 {
                consume(next());
            }
            ids += 64;
        }
        ids as f64 / started.elapsed().as_secs_f64()
    };
    run(before);
    run(counted)
}

/// Snowflakes of 41/10/12 as a share of what the layout holds.
fn caps(mill: &Mill) -> Vec<Fact> {
    let (short, long) = (Duration::from_millis(300), Duration::from_secs(2));
    let share = |rate: f64| rate / 1000.0 / TWITTER_PER_MS;
    let source = open(mill, "snowflake:capped?worker=1");
    // The lead, 3 s of ids, goes first: it is a loan, not a rate.
    let ours = share(sustained(Duration::from_secs(1), long, || source.next().expect("an id")));
    let ferroid = ferroid::<ferroid::id::SnowflakeTwitterId>(1);
    let snowflaked = snowflaked::sync::Generator::new(1);
    let mut yitter = yitter(10, 12);
    let mut rs = snowflake::SnowflakeIdGenerator::new(1, 1);
    let fact = |name: &str, share: f64| Fact::new(format!("{name}: share of 4096 ids/ms"), share, "");
    vec![
        fact("Source::next, after the lead", ours).goal("≥ 0.99", ours >= 0.99),
        fact(
            "ferroid 2.0 Atomic",
            share(sustained(short, long, || ferroid.next_id(|_| std::hint::spin_loop()).to_raw())),
        ),
        fact("snowflaked 1.0, sync", share(sustained(short, long, || snowflaked.generate()))),
        fact("idgenerator 2.0 (yitter)", share(sustained(long, long, || yitter.next_id() as u64))),
        fact("rs-snowflake 0.6, real_time", share(sustained(short, long, || rs.real_time_generate() as u64))),
    ]
}

/// Nobody sets options first: a fresh source, two seconds, refills and all.
fn defaults() -> Vec<Fact> {
    let mill = Mill::open("memory:").expect("a mill");
    let mut facts = Vec::new();
    for (spec, text) in [
        ("segment:cold", false),
        ("segment:cold_thread?order=thread", false),
        ("serial:cold/id?zone=UTC&number=000000000000000", true),
    ] {
        let source = open(&mill, spec);
        let mut buffer = [0; 64];
        let cpu = cpu_time();
        let counted = Duration::from_secs(2);
        let rate = sustained(Duration::ZERO, counted, || {
            if text {
                source.write_text(&mut buffer).expect("a serial") as u64
            } else {
                source.next().expect("an id")
            }
        });
        let busy = cpu_time().saturating_sub(cpu).as_secs_f64() / counted.as_secs_f64();
        let stats = source.stats().expect("stats");
        facts.push(Fact::new(format!("{spec}, from cold, 1 thread: wall"), 1e9 / rate, "ns/id"));
        facts.push(Fact::new(format!("{spec}: CPU of the caller"), 1e9 * busy / rate, "ns/id"));
        facts.push(Fact::new(
            format!("{spec}: refills per million ids"),
            stats.refills as f64 / (stats.issued as f64 / 1e6),
            "",
        ));
    }
    facts
}

/// An id from memory while the store answers, and while it does not: 20 000 a second, as a program takes them.
fn outage() -> Vec<Fact> {
    let mut facts = Vec::new();
    // The first segment lasts five seconds at this rate. It is less than the source wants in stock, so the keeper asks for more.
    for (state, script) in [("the store answers", "ack"), ("the store is down", "ack,down:10000")] {
        let mill = Mill::open(&format!("memory:?script={script}")).expect("a mill");
        let source = open(&mill, "segment:outage?min_step=100000");
        consume(source.next().expect("an id"));
        let (rounds, each) = (3000_u32, 20);
        let ids = f64::from(rounds * each);
        let (process, thread, switches) = (process_time(), cpu_time(), keeper_switches());
        let mut caller = Duration::ZERO;
        let began = Instant::now();
        for round in 1..=rounds {
            let before = cpu_time();
            for _ in 0..each {
                consume(source.next().expect("an id from memory"));
            }
            caller += cpu_time().saturating_sub(before);
            let next = Duration::from_millis(1) * round;
            std::thread::sleep(next.saturating_sub(began.elapsed()));
        }
        let seconds = began.elapsed().as_secs_f64();
        let others =
            (process_time().saturating_sub(process)).saturating_sub(cpu_time().saturating_sub(thread));
        let nanos = |time: Duration| time.as_secs_f64() * 1e9 / ids;
        facts.push(Fact::new(format!("{state}: CPU of the caller, clock included"), nanos(caller), "ns/id"));
        facts.push(Fact::new(format!("{state}: CPU of the keeper"), nanos(others), "ns/id"));
        if let (Some(before), Some(after)) = (switches, keeper_switches()) {
            facts.push(Fact::new(
                format!("{state}: the keeper wakes"),
                (after - before) / seconds,
                "times/s",
            ));
        }
    }
    facts
}

/// CPU time of all threads of this process.
fn process_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Unix and `time` is writable.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How often the newest keeper of this process has gone to sleep.
fn keeper_switches() -> Option<f64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let newest = tasks
        .filter_map(|task| {
            let path = task.ok()?.path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let number: u64 = path.file_name()?.to_str()?.parse().ok()?;
            (name.trim_end() == "keymill-keeper").then_some((number, path))
        })
        .max()?
        .1;
    let status = std::fs::read_to_string(newest.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

/// Memory that this process has in use.
fn resident_bytes() -> Option<f64> {
    let pages: f64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: reads a constant of the system.
    Some(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64)
}

const MANY: usize = 10_000;

fn many_sources() -> Vec<Fact> {
    let mut facts = Vec::new();
    let before = resident_bytes();
    let mill = Mill::open("memory:").expect("a mill");
    let sources: Vec<_> = (0..MANY).map(|i| open(&mill, &format!("segment:many{i}"))).collect();
    // Each has given an id and holds the rest of its first segment.
    for source in &sources {
        consume(source.next().expect("an id"));
    }
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        let grown = (after - before) / f64::from(1 << 20);
        facts.push(
            Fact::new("10 000 idle segment sources: memory", grown, "MiB").goal("< 50 MiB", grown < 50.0),
        );
    }
    drop((sources, mill));

    #[cfg(feature = "sqlite")]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let started = Instant::now();
        let mill =
            Mill::open(&format!("sqlite:{}", directory.path().join("many.db").display())).expect("a mill");
        let sources: Vec<_> = (0..MANY).map(|i| open(&mill, &format!("segment:many{i}"))).collect();
        let opened = started.elapsed().as_secs_f64();
        facts.push(Fact::new("10 000 sources on SQLite: open", opened, "s").goal("< 5 s", opened < 5.0));
        let started = Instant::now();
        for source in &sources {
            consume(source.next().expect("an id"));
        }
        let first = started.elapsed().as_secs_f64();
        facts.push(Fact::new("10 000 sources on SQLite: first id of each, one after the other", first, "s"));
        let started = Instant::now();
        drop((sources, mill));
        facts.push(Fact::new(
            "10 000 sources on SQLite: close and give back",
            started.elapsed().as_secs_f64(),
            "s",
        ));
    }
    facts
}

fn large_batches(mill: &Mill) -> Vec<Fact> {
    const TEN_MILLION: usize = 10_000_000;
    let source = open(mill, &format!("segment:large?{ENDLESS}"));
    let cold = open(mill, "segment:large_cold");
    let measure = |name: &str, take: &mut dyn FnMut()| {
        let mut times: Vec<f64> = (0..5)
            .map(|_| {
                let started = Instant::now();
                take();
                started.elapsed().as_secs_f64() * 1e9 / TEN_MILLION as f64
            })
            .collect();
        Fact::new(name, median(&mut times).unwrap_or(0.0), "ns/id")
    };
    let mut buffer = vec![1; TEN_MILLION];
    vec![
        measure("take(10 000 000), fresh memory included", &mut || {
            consume(source.take(TEN_MILLION).expect("ids")[TEN_MILLION - 1]);
        }),
        measure("take(10 000 000), default options", &mut || {
            consume(cold.take(TEN_MILLION).expect("ids")[TEN_MILLION - 1]);
        }),
        measure("fill of 10 000 000 in a warm buffer", &mut || {
            source.fill(&mut buffer).expect("ids");
            consume(buffer[TEN_MILLION - 1]);
        }),
    ]
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(v) if v >= 100.0 => format!("{v:.0}"),
        Some(v) if v >= 10.0 => format!("{v:.1}"),
        Some(v) if v >= 1.0 => format!("{v:.2}"),
        Some(v) => format!("{v:.3}"),
    }
}

fn print_outcomes(title: &str, outcomes: &[Outcome], rounds: Rounds) {
    println!("\n### {title}\n");
    println!(
        "| row | against | 1 thread ns | ratio | 2 threads ns | ratio | goal | |\n|---|---|---:|---:|---:|---:|---|---|"
    );
    for o in outcomes {
        let against = o.against.unwrap_or_default();
        let goal = match (against.alone, against.paired) {
            (Some(one), Some(two)) => format!("≤ {one} / {two}"),
            (Some(one), None) => format!("≤ {one}"),
            _ => String::new(),
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {goal} | {} |",
            o.name,
            against.base,
            number(o.ns),
            number(o.ratio),
            number(o.pair_ns),
            number(o.pair_ratio),
            o.verdict(),
        );
    }
    let kept: Vec<_> = outcomes.iter().filter(|o| o.pair_ns.is_some()).map(|o| o.kept).collect();
    if let (Some(least), Some(most)) = (kept.iter().min(), kept.iter().max()) {
        println!("\nTwo-thread rounds kept: {least} to {most} of {} a row.", rounds.paired);
    }
}

fn print_facts(title: &str, facts: &[Fact]) {
    println!("\n### {title}\n\n| row | value | goal | |\n|---|---:|---|---|");
    for f in facts {
        println!("| {} | {} {} | {} | {} |", f.name, number(Some(f.value)), f.unit, f.goal, f.verdict());
    }
}

/// `target/bench/hot.json`, wherever the target directory is.
fn json_path() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|a| a.ends_with("deps")).and_then(|deps| deps.ancestors().nth(2));
    target.map_or_else(|| PathBuf::from("target"), PathBuf::from).join("bench").join("hot.json")
}

type Section = fn(&Mill, Rounds) -> Vec<Outcome>;
type Facts<'a> = dyn Fn() -> Vec<Fact> + 'a;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = |flag: &str| args.iter().any(|a| a == flag);
    if !given("--bench") {
        println!("a benchmark, not a test: cargo bench -p keymill --bench hot");
        return;
    }
    let rounds =
        if given("--quick") { Rounds { alone: 9, paired: 7 } } else { Rounds { alone: 61, paired: 41 } };
    let only = args.iter().position(|a| a == "--only").and_then(|at| args.get(at + 1));
    let wanted = |section: &str| only.is_none_or(|only| only == section);
    let mut all = serde_json::Map::new();

    // First, while the process is small.
    if wanted("many") {
        let facts = many_sources();
        print_facts("Many sources", &facts);
        all.insert("many".into(), facts.iter().map(Fact::json).collect());
    }
    let mill = Mill::open("memory:").expect("a mill");
    let sections: [(&str, &str, Section); 8] = [
        ("segment", "Segments", segments),
        ("snowflake", "Snowflakes, time:41@1ms,worker:1,seq:21", snowflakes),
        ("burst", "Snowflakes, 41/10/12, 1000 ids of a fresh millisecond", bursts),
        ("scatter", "Scattered ids of 19 digits", scatters),
        ("gene", "Genes of 16-byte keys", genes),
        ("business", "Ids for keys, 65 536 counters", business),
        ("route", "Routes of random ids", routes),
        ("text", "Serial numbers, eight characters of date and eight digits", serials),
    ];
    for (name, title, section) in sections {
        if wanted(name) {
            let outcomes = section(&mill, rounds);
            print_outcomes(title, &outcomes, rounds);
            all.insert(name.into(), outcomes.iter().map(Outcome::json).collect());
        }
    }
    let facts: [(&str, &str, &Facts); 4] = [
        ("outage", "An outage of the store, 20 000 ids a second", &outage),
        ("sustained", "Snowflakes, 41/10/12, sustained", &|| caps(&mill)),
        ("default", "Default options", &defaults),
        ("large", "Large batches", &|| large_batches(&mill)),
    ];
    for (name, title, section) in facts {
        if wanted(name) {
            let facts = section();
            print_facts(title, &facts);
            all.insert(name.into(), facts.iter().map(Fact::json).collect());
        }
    }
    let path = json_path();
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&path, format!("{:#}\n", Value::Object(all))));
    match written {
        Ok(()) => println!("\n{}", path.display()),
        Err(error) => println!("\n{} was not written: {error}", path.display()),
    }
}
