//! Snowflakes, and their digits scattered.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crossbeam::utils::CachePadded;
use ferroid::generator::AtomicSnowflakeGenerator;
use ferroid::time::MonotonicClock;
use keymill::Mill;
use keymill::scatter::move_digits;

use super::facts::{Fact, sustained};
use super::harness::{
    self, Outcome, Rounds, Row, bare_add, coarse_seconds, consume, cpu_time, measure, median,
};
use super::{each, in_batches, open};

/// Wide enough that no rate reaches its end.
const UNCAPPED: &str = "time:41@1ms,worker:1,seq:21";
const TWITTER_PER_MS: f64 = 4096.0;

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

pub fn snowflakes(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
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
        Row::new("Source::fill, 1000 at once", move || in_batches(batched.clone())).beside(BASE),
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
pub fn scatters(_: &Mill, rounds: Rounds) -> Vec<Outcome> {
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

type Next<'a> = Box<dyn FnMut() -> u64 + 'a>;

/// A thousand ids just after a millisecond began: below every cap, so the cost of the path itself.
pub fn bursts(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
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

/// Snowflakes of 41/10/12 as a share of what the layout holds.
pub fn caps(mill: &Mill) -> Vec<Fact> {
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
