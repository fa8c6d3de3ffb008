//! Texts from every kind of source, through the public API.

use keymill::{Code, Mill};

#[test]
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
fn a_block_belongs_to_whoever_leased_it_until_the_mill_closes() {
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
