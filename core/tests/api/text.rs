//! Texts from every kind of source, through the public API.

use keymill::binding::LastBlock;
use keymill::{Code, Mill};

#[test]
#[cfg(feature = "sqlite")]
fn trying_for_a_text_never_waits_whatever_the_kind() {
    let mill = Mill::open("sqlite:/nowhere/at/all/keymill.db").unwrap();
    for spec in ["segment:orders?deadline=30s", "serial:orders/no?number=0000&deadline=30s"] {
        let source = mill.source(spec).unwrap();
        let error = source.try_next_text().unwrap_err();
        assert!(matches!(error.code, Code::NotReady | Code::StoreRefused), "{error}");
        let error = source.try_write_text(&mut [0; 80]).unwrap_err();
        assert!(matches!(error.code, Code::NotReady | Code::StoreRefused), "{error}");
        assert_eq!(source.stats().unwrap().waits, 0, "{spec}");
    }
}

#[test]
fn text_of_a_source_of_numbers_is_the_number_in_its_order() {
    let mill = Mill::open("memory:").unwrap();
    let orders = mill.source("segment:orders?order=thread&block=10").unwrap();
    assert_eq!(orders.next().unwrap(), 1);
    assert_eq!(orders.next_text().unwrap(), "2");
}

#[test]
fn a_block_belongs_to_its_cursor_until_the_mill_closes() {
    let mill = Mill::open("memory:").unwrap();
    let orders = mill.source("segment:orders").unwrap();
    let block = orders.lease_block(&mut LastBlock::default(), 10).unwrap();
    let now = || block.word.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((block.lo, block.hi), (1, 11));
    assert_eq!(orders.next().unwrap(), 11);
    assert_eq!(now(), block.leased_at);
    mill.close();
    assert_ne!(now(), block.leased_at);
    assert_eq!(orders.lease_block(&mut LastBlock::default(), 10).unwrap_err().code, Code::Closed);
}

#[test]
fn many_texts_at_once_are_those_that_would_have_come_one_by_one() {
    let mill = Mill::open("memory:").unwrap();
    for order in ["process", "thread"] {
        let spec = format!("serial:orders/{order}?date=yyyyMMdd&number=0000&zone=UTC&step=7&order={order}");
        let source = mill.source(&spec).unwrap();
        let first = source.next_text().unwrap();
        let texts = source.take_text(40).unwrap();
        assert_eq!(texts.len(), 40);
        let day = &first[..8];
        for (text, number) in texts.iter().zip(2..) {
            assert_eq!(*text, format!("{day}{number:04}"), "{order}");
        }
        assert_eq!(source.next_text().unwrap(), format!("{day}0042"), "{order}");
        assert_eq!(source.take_text(0).unwrap(), Vec::<String>::new());
    }
    let numbers = mill.source("segment:orders").unwrap();
    assert_eq!(numbers.take_text(3).unwrap(), ["1", "2", "3"]);
}

#[test]
fn texts_that_do_not_all_fit_their_period_are_an_error() {
    let mill = Mill::open("memory:").unwrap();
    let source = mill.source("serial:orders/no?number=00&zone=UTC&step=10").unwrap();
    assert_eq!(source.take_text(100).unwrap_err().code, Code::NumberOverflow);
    assert_eq!(source.take_text(usize::MAX).unwrap_err().code, Code::InvalidArgument);
}

#[test]
fn a_thread_keeps_the_blocks_of_many_sources_apart() {
    let mill = Mill::open("memory:").unwrap();
    let open = |i| mill.source(&format!("segment:s{i}?order=thread&block=1000")).unwrap();
    let sources: Vec<_> = (0..100).map(open).collect();
    for round in 1..=5 {
        // As many as a thread remembers: every number of every block comes.
        for source in &sources[..60] {
            assert_eq!(source.next().unwrap(), round);
        }
    }
    // More than that: blocks are given up for new ones, and still no number comes twice.
    let mut last = vec![0; sources.len()];
    for _ in 0..3 {
        for (source, last) in sources.iter().zip(&mut last) {
            let id = source.next().unwrap();
            assert!(id > *last);
            *last = id;
        }
    }
}

#[test]
fn every_verb_of_texts_writes_the_form_of_the_source() {
    let mill = Mill::open("memory:").unwrap();
    for order in ["process", "thread"] {
        let spec = format!("segment:{order}?order={order}&block=100&text=base36&prefix=id_");
        let source = mill.source(&spec).unwrap();
        let mut buffer = [b'#'; 80];
        let mut text = String::from("first ");
        assert_eq!(source.text_len(), 16);
        assert_eq!(source.next_text().unwrap(), "id_0000000000001");
        source.push_text(&mut text).unwrap();
        assert_eq!(text, "first id_0000000000002");
        let len = source.write_text(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"id_0000000000003");
        assert_eq!(source.try_next_text().unwrap(), "id_0000000000004");
        assert_eq!(source.take_text(2).unwrap(), ["id_0000000000005", "id_0000000000006"]);
        assert_eq!(source.next().unwrap(), 7);
        let mut handle = source.handle();
        let text = handle.next_text().unwrap();
        assert_eq!(source.parse_text(&text).unwrap().number, Some(handle.next().unwrap() - 1));
    }
}

#[test]
fn a_buffer_that_is_too_small_for_the_form_costs_no_number() {
    let mill = Mill::open("memory:").unwrap();
    let source = mill.source("segment:a?text=crockford&prefix=ord_").unwrap();
    for refused in [
        source.write_text(&mut [0; 16]),
        source.try_write_text(&mut [0; 16]),
        source.write_text_of(7, &mut [0; 16]),
    ] {
        assert_eq!(refused.unwrap_err().code, Code::BufferTooSmall);
    }
    let mut just = [0; 17];
    assert_eq!(source.write_text(&mut just).unwrap(), 17);
    assert_eq!(&just, b"ord_0000000000001");
}

#[test]
fn two_forms_of_one_source_in_one_mill_share_no_number() {
    let mill = Mill::open("memory:").unwrap();
    let forms =
        ["segment:a", "segment:a?text=base62", "segment:a?text=base62&prefix=a_", "segment:a?text=decimal"];
    let sources = forms.map(|spec| mill.source(spec).unwrap());
    let mut ids: Vec<_> = sources.iter().flat_map(|source| source.take(3000).unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4 * 3000);
    // One worker cannot be counted twice, and the default form is no other one.
    let plain = mill.source("snowflake:tx?worker=5").unwrap();
    assert!(mill.source("snowflake:tx?worker=5&text=decimal").is_ok());
    let refused = mill.source("snowflake:tx?worker=5&text=base62").unwrap_err();
    assert_eq!(refused.code, Code::InvalidConfig);
    assert!(plain.next().is_ok());
}

#[test]
fn the_settings_name_a_form_that_is_not_the_default() {
    let mill = Mill::open("memory:").unwrap();
    let named = |spec: &str| {
        let settings = mill.source(spec).unwrap().settings().into_iter();
        settings
            .filter(|(name, _)| ["text", "prefix"].contains(name))
            .map(|(_, value)| value)
            .collect::<Vec<_>>()
    };
    assert_eq!(named("segment:a?text=base62&prefix=a_"), ["base62", "a_"]);
    assert_eq!(named("business:a?prefix=b_"), ["decimal", "b_"]);
    assert_eq!(named("snowflake:a?worker=1&text=decimal"), [""; 0]);
}

#[test]
fn the_text_of_an_id_is_that_with_which_it_was_taken() {
    let mill = Mill::open("memory:").unwrap();
    for spec in
        ["snowflake:tx?worker=5&text=base62", "snowflake:sc?worker=5&scatter=2&text=crockford&prefix=s_"]
    {
        let source = mill.source(spec).unwrap();
        let texts = source.take_text(100).unwrap();
        let ids = source.take(100).unwrap();
        for id in ids {
            let text = source.text_of(id).unwrap();
            assert_eq!(source.parse_text(&text), source.parse(id));
            assert!(!texts.contains(&text));
        }
    }
    let serial = mill.source("serial:a/b").unwrap();
    assert_eq!(serial.text_of(1).unwrap_err().code, Code::InvalidArgument);
}
