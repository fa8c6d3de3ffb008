//! Texts from every kind of source, through the public API.

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
    let block = orders.lease_block(10).unwrap();
    let now = || block.word.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((block.lo, block.hi), (1, 11));
    assert_eq!(orders.next().unwrap(), 11);
    assert_eq!(now(), block.leased_at);
    mill.close();
    assert_ne!(now(), block.leased_at);
    assert_eq!(orders.lease_block(10).unwrap_err().code, Code::Closed);
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
