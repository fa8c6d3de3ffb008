//! Order within a thread: with `order=thread` whatever verbs a thread mixes, what it gets rises.

use std::time::{Duration, Instant};

use keymill::{Code, Error, Mill, Result, Source};

/// A `try_` verb until it has an answer.
fn tried<T>(verb: impl Fn() -> Result<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match verb() {
            Ok(answer) => return answer,
            Err(Error { code: Code::NotReady, .. }) if Instant::now() < until => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Every verb of numbers, mixed.
fn mixed(source: &Source, rounds: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    for round in 0..rounds {
        ids.push(source.next().expect("an id"));
        ids.extend(source.take(round % 7).expect("a batch"));
        ids.push(source.next().expect("an id"));
        ids.push(tried(|| source.try_next()));
        let mut buffer = [0; 5];
        source.fill(&mut buffer).expect("a buffer");
        ids.extend(buffer);
        ids.push(source.next_text().expect("a text").parse().expect("a number"));
        ids.push(tried(|| source.try_next_text()).parse().expect("a number"));
        ids.extend(
            source.take_text(3).expect("texts").iter().map(|text| text.parse::<u64>().expect("a number")),
        );
        // More than a block holds.
        ids.extend(source.take(40).expect("a batch"));
    }
    ids
}

fn rise<T: PartialOrd + std::fmt::Debug>(all: &[T]) {
    let fell = all.windows(2).find(|pair| pair[0] >= pair[1]);
    assert!(fell.is_none(), "{fell:?} in {all:?}");
}

#[test]
fn the_ids_of_a_thread_rise_whatever_verbs_it_mixes() {
    let mill = Mill::open("memory:").expect("a mill");
    for options in ["order=thread&block=32", "order=thread&block=1", "order=process"] {
        let source = mill.source(&format!("segment:orders?{options}")).expect("a source");
        // Another source's block is the one used last, now and then.
        let other = mill.source("segment:other?order=thread").expect("a source");
        let mut ids = mixed(&source, 5);
        other.next().expect("an id");
        ids.push(tried(|| source.try_next()));
        other.next().expect("an id");
        ids.extend(source.take(2).expect("a batch"));
        ids.extend(mixed(&source, 5));
        rise(&ids);
    }
}

#[test]
fn the_ids_of_a_thread_with_a_stride_rise_and_stay_its_own() {
    let mill = Mill::open("memory:").expect("a mill");
    let spec = "segment:orders?scheme=tiny_id_info&step=100&delta=3&remainder=2&order=thread&block=32";
    let source = mill.source(spec).expect("a source");
    let ids = mixed(&source, 8);
    rise(&ids);
    assert!(ids.iter().all(|id| id % 3 == 2), "{ids:?}");
}

#[test]
fn the_texts_of_a_thread_rise_whatever_verbs_it_mixes() {
    let mill = Mill::open("memory:?clock=manual").expect("a mill");
    let source = mill.source("serial:t/c?order=thread&block=32").expect("a source");
    let mut texts = Vec::new();
    for _ in 0..8 {
        texts.push(source.next_text().expect("a text"));
        texts.push(tried(|| source.try_next_text()));
        texts.extend(source.take_text(5).expect("texts"));
    }
    rise(&texts);
}

#[test]
fn a_thread_skips_no_number_of_its_block_for_a_batch() {
    let mill = Mill::open("memory:").expect("a mill");
    let source = mill.source("segment:orders?order=thread&block=100").expect("a source");
    assert_eq!(source.next().expect("an id"), 1);
    assert_eq!(source.take(3).expect("a batch"), [2, 3, 4]);
    assert_eq!(tried(|| source.try_next()), 5);
    assert_eq!(source.next().expect("an id"), 6);
    let all = source.take(100).expect("a batch");
    assert_eq!(all, (7..107).collect::<Vec<_>>(), "the block's rest, then what follows it");
}

#[test]
fn a_batch_that_is_refused_costs_a_thread_nothing_of_its_block() {
    let mill = Mill::open("memory:").expect("a mill");
    let spec = "segment:orders?order=thread&block=10&start=9223372036854775798";
    let source = mill.source(spec).expect("a source");
    assert_eq!(source.next().expect("an id"), 9_223_372_036_854_775_798);
    let mut buffer = [7; 20];
    assert_eq!(source.fill(&mut buffer).expect_err("too many").code, Code::Exhausted);
    assert_eq!(source.next().expect("an id"), 9_223_372_036_854_775_799);
    assert_eq!(source.take(8).expect("the rest").last(), Some(&9_223_372_036_854_775_807));
}
