//! Numbers of segments, as integers and as text.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crossbeam::utils::CachePadded;
use keymill::Mill;
use keymill::serial::{SerialPattern, write_serial};

use super::harness::{Outcome, Rounds, Row, bare_add, consume, measure};
use super::{BATCH, ENDLESS, each, in_batches, open};

/// As much of eight digits as one reservation may take, and no second one.
const ONE_PERIOD: &str = "zone=UTC&min_step=99000000&max_step=99000000&buffer=1ms";

pub fn segments(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
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
        Row::new("Source::fill, 1000 at once", move || in_batches(batched.clone())).goal(
            "Source::next, order=process",
            0.05,
            0.05,
        ),
    ];
    measure(&rows, rounds)
}

pub fn serials(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
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

/// Ids of 19 decimal digits as text, in each form.
pub fn texts(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    const BASE: &str = "Source::write_text, decimal";
    let of = |form: &str| {
        let spec =
            format!("segment:text-{form}?start=5000000000000000000&step=10000000&text={form}&prefix=ord_");
        let source = mill.source(&spec).expect("a source");
        source.next().expect("it is warm");
        source
    };
    let row = |name: &'static str, form: &str| {
        let source = of(form);
        Row::new(name, move || {
            let (source, mut buffer) = (source.clone(), [0; 64]);
            move |n| {
                for _ in 0..n {
                    consume(source.write_text(&mut buffer).expect("a text") as u64);
                    consume(buffer.as_ptr() as u64);
                }
            }
        })
    };
    let rows = [
        row(BASE, "decimal"),
        row("Source::write_text, crockford", "crockford").goal(BASE, 1.1, None),
        row("Source::write_text, base62", "base62").goal(BASE, 1.1, None),
        row("Source::write_text, base36", "base36").goal(BASE, 1.1, None),
    ];
    measure(&rows, rounds)
}
