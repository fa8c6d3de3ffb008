//! Sources of every delta-th number, through the public API: ids one by one, in batches, by handle, iterator and lease.

use std::collections::BTreeSet;
use std::time::Duration;

use keymill::binding::LastBlock;
use keymill::{Change, Code, Mill, Source};

/// Nothing is reserved ahead, so that figures are exact.
const SPEC: &str = "segment:orders?scheme=tiny_id_info&step=10&buffer=1ms";

fn source(config: &str, options: &str) -> (Mill, Source) {
    let mill = Mill::open(config).unwrap();
    let source = mill.source(&format!("{SPEC}&{options}")).unwrap();
    (mill, source)
}

fn max_id(source: &Source) -> String {
    source.row().unwrap().unwrap().text
}

/// `try_next` as a language would wait for it.
fn tried(source: &Source) -> u64 {
    loop {
        match source.try_next() {
            Ok(id) => return id,
            Err(refusal) => std::thread::sleep(source.patience(refusal, Duration::ZERO).unwrap()),
        }
    }
}

#[test]
fn every_verb_gives_ids_of_its_own_remainder_in_turn() {
    for order in ["process", "thread"] {
        let (mill, orders) = source("memory:", &format!("delta=3&remainder=1&order={order}&block=4"));
        let mut handle = orders.handle();
        let mut ids = vec![orders.next().unwrap(), tried(&orders)];
        ids.extend(orders.take(40).unwrap());
        let mut buffer = [0; 3];
        orders.fill(&mut buffer).unwrap();
        ids.extend(buffer);
        ids.extend((0..3).map(|_| handle.next().unwrap()));
        ids.extend(orders.iter().take(3).map(Result::unwrap));
        ids.extend(orders.take_text(2).unwrap().iter().map(|text| text.parse::<u64>().unwrap()));
        let mut pending = orders.ask(3).unwrap();
        while let Some(pause) = pending.poll().unwrap() {
            std::thread::sleep(pause);
        }
        let mut batch = [7; 4];
        pending.write(&mut batch);
        assert_eq!(batch[3], 7, "what is beyond the batch is left alone");
        ids.extend(&batch[..3]);
        // A lease that a language counts through holds one.
        assert!(!orders.counts());
        let leased = orders.lease_block(&mut LastBlock::default(), 0).unwrap();
        let alone = orders.lease(100).unwrap();
        assert_eq!((leased.hi - leased.lo, alone.end - alone.start), (1, 1));
        ids.extend([leased.lo, alone.start, orders.try_lease(5, 1).unwrap().lo]);
        for id in &ids {
            assert_eq!(id % 3, 1, "{order}: {ids:?}");
        }
        if order == "process" {
            assert_eq!(ids, (0..ids.len() as u64).map(|n| 1 + 3 * n).collect::<Vec<_>>());
        }
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        mill.close();
    }
}

#[test]
fn texts_of_a_batch_are_its_ids_in_decimal() {
    let (_mill, orders) = source("memory:", "delta=2&remainder=0");
    let mut pending = orders.ask(3).unwrap();
    while let Some(pause) = pending.poll().unwrap() {
        std::thread::sleep(pause);
    }
    let mut texts = Vec::new();
    pending.texts(|text| texts.push(text.to_owned()));
    assert_eq!(texts, ["2", "4", "6"]);
}

#[test]
fn errors_and_figures_are_in_ids() {
    let (mill, orders) = source("memory:", "delta=2&remainder=1");
    assert_eq!(orders.take(3).unwrap(), [1, 3, 5]);
    assert_eq!(max_id(&orders), "max_id=20 step=20 delta=2 remainder=1 version=0");
    assert_eq!(orders.row().unwrap().unwrap().mark.next, 21);
    let standing = orders.status().unwrap();
    assert_eq!(
        (standing.reserved_to.as_deref(), standing.used, standing.capacity),
        (Some("19"), 10, 1 << 62)
    );
    let stats = orders.stats().unwrap();
    assert_eq!((stats.issued, stats.left, stats.reserved), (3, 7, 10));
    assert_eq!(
        orders.settings().iter().filter(|(name, _)| matches!(*name, "delta" | "remainder")).count(),
        2
    );

    let refusal = orders.parse(4).unwrap_err();
    assert_eq!(refusal.code, Code::InvalidArgument);
    assert!(
        refusal.message.contains("4 is no id of `segment:orders`: divided by 2 it leaves 0"),
        "{refusal}"
    );
    assert_eq!(orders.parse(5).unwrap().number, Some(5));
    assert_eq!(orders.parse_text("7").unwrap().number, Some(7));

    // The first id from there on, however often it is said.
    for change in [Change::DryRun, Change::Apply, Change::Apply] {
        assert_eq!(orders.repair(1000, change).unwrap().after.mark.next, 1001);
    }
    assert!(orders.repair(900, Change::Apply).unwrap_err().message.contains("stands at 1001, above 901"));
    assert_eq!(orders.take(8).unwrap()[6..], [19, 1001]);
    mill.close();
}

#[test]
fn a_clean_close_gives_back_unused_numbers_and_the_next_mill_starts_there() {
    for (remainder, first, next) in [(0, 5, 15), (2, 2, 12)] {
        let config = format!("memory:given{remainder}");
        let (keep, _) = source(&config, "delta=1");
        let (mill, orders) = source(&config, &format!("delta=5&remainder={remainder}"));
        assert_eq!(orders.take(2).unwrap(), [first, first + 5]);
        mill.close();
        let (mill, orders) = source(&config, &format!("delta=5&remainder={remainder}"));
        assert_eq!(orders.next().unwrap(), next);
        drop((mill, keep));
    }
}

#[test]
fn a_source_of_another_stride_is_refused_with_the_options_to_write() {
    let (_mill, orders) = source("memory:others", "delta=2&remainder=1");
    orders.next().unwrap();
    let row = max_id(&orders);
    for options in ["delta=1", "delta=2&remainder=0", "delta=4&remainder=1"] {
        let (_other, other) = source("memory:others", options);
        for refusal in [
            other.next().unwrap_err(),
            other.row().unwrap_err(),
            other.repair(500, Change::Apply).unwrap_err(),
        ] {
            assert_eq!(refusal.code, Code::StoreRefused, "{refusal}");
            assert!(refusal.message.contains("delta=2 and remainder=1, this source is written"), "{refusal}");
            assert!(
                refusal.message.contains("write `delta=2&remainder=1`; nothing was changed"),
                "{refusal}"
            );
        }
        assert_eq!(max_id(&orders), row);
    }
}

#[test]
fn strides_are_refused_where_they_make_no_sense() {
    let mill = Mill::open("memory:").unwrap();
    for (spec, says) in [
        ("segment:a?delta=2", "option `delta` is for scheme=tiny_id_info"),
        ("segment:a?scheme=leaf_alloc&remainder=0", "option `remainder` is for scheme=tiny_id_info"),
        ("segment:a?scheme=tiny_id_info&delta=0", "a whole number from 1 to 2147483647"),
        ("segment:a?scheme=tiny_id_info&delta=2147483648", "a whole number from 1 to 2147483647"),
        ("segment:a?scheme=tiny_id_info&remainder=1", "a whole number from 0 to 0"),
        ("segment:a?scheme=tiny_id_info&delta=2&remainder=2", "a whole number from 0 to 1"),
        ("snowflake:a?worker=1&delta=2", "unknown option `delta` of `snowflake`"),
        ("serial:a/b?delta=2", "unknown option `delta` of `serial`"),
    ] {
        let refusal = mill.source(spec).map(drop).unwrap_err();
        assert_eq!(refusal.code, Code::InvalidConfig, "{refusal}");
        assert!(refusal.message.contains(says), "{spec}: {refusal}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keymill.toml");
    std::fs::write(&file, "stores = [\"memory:a\", \"memory:b\"]\n").unwrap();
    let mill = Mill::open(&format!("file:{}", file.display())).unwrap();
    let refusal = mill.source(&format!("{SPEC}&delta=2")).map(drop).unwrap_err();
    assert_eq!(refusal.code, Code::InvalidConfig);
    assert!(refusal.message.contains("open a mill with one store for each database"), "{refusal}");
}

#[test]
fn the_last_id_is_given_and_nothing_wraps() {
    for (options, last) in [
        ("delta=2&remainder=1", 9_223_372_036_854_775_807),
        ("delta=2&remainder=0", 9_223_372_036_854_775_806),
        ("delta=2147483647&remainder=2147483646", 9_223_372_036_854_775_805),
        ("delta=1000&remainder=0", 9_223_372_036_854_775_000),
    ] {
        let (mill, orders) = source("memory:", options);
        let stride: u64 = options.split(['=', '&']).nth(1).unwrap().parse().unwrap();
        orders.next().unwrap();
        orders.repair(last - stride, Change::Apply).unwrap();
        let rest: Vec<_> = orders.iter().skip(9).take(3).collect();
        assert_eq!(rest[0].as_ref().unwrap(), &(last - stride), "{options}");
        assert_eq!(rest[1].as_ref().unwrap(), &last, "{options}");
        assert_eq!(rest[2].as_ref().unwrap_err().code, Code::Exhausted, "{options}");
        mill.close();
    }
}

#[test]
fn a_row_that_was_set_back_is_refused_and_healed_where_that_is_asked() {
    let (_mill, orders) = source("memory:?script=ack,at:2,ack", "delta=2&remainder=1&max_step=10");
    orders.take(10).unwrap();
    let refusal = orders.next().unwrap_err();
    assert_eq!(refusal.code, Code::StoreWentBackwards);
    assert!(refusal.message.contains("its row stands at 3, this process has seen 21"), "{refusal}");

    let (_mill, orders) =
        source("memory:?script=ack,at:2,ack", "delta=2&remainder=1&max_step=10&backwards=heal");
    orders.take(10).unwrap();
    assert_eq!(orders.next().unwrap(), 21);
}
