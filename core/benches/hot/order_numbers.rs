//! Order numbers beside the crate `fpe`, batches beside one by one, and whether the time of an opening depends on what is opened.

use std::hint::black_box;

use aes::Aes256;
use fpe::ff1::{BinaryNumeralString, FF1};
use keymill::{Mill, OrderNumbers};

use super::BATCH;
use super::facts::Fact;
use super::harness::{Outcome, Rounds, Row, consume, cpu_time, measure};

const KEY: [u8; 32] = [7; 32];

/// How many measurements the timing run has, of both classes together.
const TIMED: usize = 100_000;

fn numbers() -> OrderNumbers {
    OrderNumbers::from_keys(&[(1, &KEY)], 1, "acme", "orders").expect("a key")
}

/// Ids of any gene, as many as a batch.
fn ids() -> Vec<u64> {
    let mut seed = fastrand::Rng::with_seed(7);
    (0..BATCH).map(|_| seed.u64(..) >> 1).collect()
}

fn each<T>(all: Vec<T>, mut work: impl FnMut(&T) -> u64) -> impl FnMut(u64) {
    move |n| (0..n).for_each(|i| consume(work(black_box(&all[i as usize % BATCH]))))
}

/// A thousand at once.
fn together(mut work: impl FnMut() -> u64) -> impl FnMut(u64) {
    move |n| (0..n / BATCH as u64).for_each(|_| consume(work()))
}

fn word(order_no: &[u8; 16]) -> u64 {
    u64::from(order_no[15])
}

pub fn seals(_: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const OTHER: &str = "fpe 0.7, FF1 over 104 bits";
    const SEAL: &str = "seal";
    let rows = [
        Row::new(OTHER, || {
            let other = FF1::<Aes256>::new(&KEY, 2).expect("radix 2");
            each(ids(), move |id| {
                let mut bytes = [0; 13];
                bytes[..6].copy_from_slice(&id.to_be_bytes()[2..]);
                let tweak = [bytes[0], bytes[1], 1];
                let sealed =
                    other.encrypt(&tweak, &BinaryNumeralString::from_bytes_le(&bytes)).expect("bits");
                u64::from(sealed.to_bytes_le()[12])
            })
        }),
        Row::new(SEAL, || {
            let numbers = numbers();
            each(ids(), move |id| word(&numbers.seal(*id).expect("an id")))
        })
        .goal(OTHER, 0.1, 0.1),
        Row::new("unseal", || {
            let numbers = numbers();
            let sealed = numbers.seal_all(&ids()).expect("ids");
            each(sealed, move |no| numbers.unseal(no).expect("sealed"))
        })
        .goal(OTHER, 0.1, 0.1),
        Row::new("seal8", || {
            let numbers = numbers();
            each(ids(), move |id| numbers.seal8(*id).expect("an id"))
        })
        .goal(OTHER, 0.1, 0.1),
        Row::new("seal_text", || {
            let numbers = numbers();
            each(ids(), move |id| numbers.seal_text(*id).expect("an id").len() as u64)
        })
        .beside(SEAL),
        Row::new("seal_all, 1000 ids", || {
            let (numbers, ids) = (numbers(), ids());
            together(move || word(&numbers.seal_all(black_box(&ids)).expect("ids")[BATCH - 1]))
        })
        .goal(SEAL, 0.333, 0.333),
        Row::new("unseal_all, 1000 numbers", || {
            let numbers = numbers();
            let sealed = numbers.seal_all(&ids()).expect("ids");
            together(move || numbers.unseal_all(black_box(&sealed)).expect("sealed")[BATCH - 1])
        })
        .goal("unseal", 0.333, 0.333),
        Row::new("seal8_all, 1000 ids", || {
            let (numbers, ids) = (numbers(), ids());
            together(move || numbers.seal8_all(black_box(&ids)).expect("ids")[BATCH - 1])
        })
        .goal("seal8", 0.333, 0.333),
    ];
    measure(&rows, rounds)
}

/// Mean, variance and count, one value at a time.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let from_mean = value - self.mean;
        self.mean += from_mean / self.count;
        self.squares += from_mean * (value - self.mean);
    }

    fn error(&self) -> f64 {
        self.squares / (self.count - 1.0) / self.count
    }
}

/// Welch's t of two classes in random turns; the slowest tenth, which the machine disturbed, is left out (dudect, Reparaz, Balasch and
/// Verbauwhede 2016). Beyond 4.5 the times differ.
fn welch(numbers: &OrderNumbers, first: &[[u8; 16]], second: &[[u8; 16]]) -> f64 {
    let mut seed = fastrand::Rng::with_seed(11);
    let timed: Vec<(bool, u64)> = (0..TIMED)
        .map(|turn| {
            let is_first = seed.bool();
            let class = if is_first { first } else { second };
            // Chosen before the time is taken, and at one place in memory.
            let order_no = black_box(class[turn % class.len()]);
            let before = cpu_time();
            for _ in 0..8 {
                _ = black_box(numbers.unseal(black_box(&order_no)));
            }
            (is_first, cpu_time().saturating_sub(before).as_nanos() as u64)
        })
        .collect();
    let mut times: Vec<u64> = timed.iter().map(|(_, time)| *time).collect();
    times.sort_unstable();
    let most = times[TIMED * 9 / 10];
    let mut classes = [Moments::default(); 2];
    for (is_first, time) in timed.into_iter().filter(|(_, time)| *time <= most) {
        classes[usize::from(is_first)].add(time as f64);
    }
    (classes[0].mean - classes[1].mean) / (classes[0].error() + classes[1].error()).sqrt()
}

/// Whether the time says something of the number: reported, and no goal, because a machine that does other work too decides it.
pub fn timing() -> Vec<Fact> {
    let numbers = numbers();
    let mut seed = fastrand::Rng::with_seed(13);
    let mut any = || {
        let mut bytes = seed.u128(..).to_be_bytes();
        bytes[2] = 1;
        bytes
    };
    let forged: Vec<_> = (0..1024).map(|_| any()).collect();
    // One bit of an order number flipped each time: what comes out is wrong anywhere.
    let sealed = numbers.seal(5).expect("an id");
    let flipped: Vec<_> = (24..128)
        .map(|bit| {
            let mut bytes = sealed;
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            bytes
        })
        .collect();
    let ids = ids();
    let opened = numbers.seal_all(&ids).expect("ids");
    let unit = "(Welch's t)";
    let fact =
        |name, first: &[[u8; 16]], second: &[[u8; 16]]| Fact::new(name, welch(&numbers, first, second), unit);
    vec![
        fact("forged: one number, and random ones", &forged[..1], &forged),
        fact("forged: random ones, and one bit flipped", &forged[..flipped.len()], &flipped),
        fact("sealed: one number, and random ones", &opened[..1], &opened),
    ]
}
