//! Every scheme with rows by its name in a spec, as users write it, on a store in memory.

use keymill::{Code, Mill};
use keymill_tests::schemes;

fn specs() -> impl Iterator<Item = String> {
    schemes::in_rows()
        .filter(|scheme| scheme.keeps_segments())
        .map(|scheme| format!("segment:orders?scheme={scheme}{}&step=10&buffer=1ms", schemes::option(scheme)))
}

#[test]
fn a_source_of_each_scheme_counts_from_1_on() {
    for spec in specs() {
        let mill = Mill::open("memory:?clock=manual").unwrap();
        let orders = mill.source(&spec).unwrap();
        assert_eq!(orders.take(12).unwrap(), (1..=12).collect::<Vec<u64>>(), "{spec}");
        assert_eq!(orders.next().unwrap(), 13, "{spec}");
    }
}

#[test]
fn a_row_of_each_scheme_that_was_set_back_is_refused() {
    for spec in specs() {
        let mill = Mill::open("memory:?clock=manual&script=ack,at:3").unwrap();
        let orders = mill.source(&spec).unwrap();
        assert_eq!(orders.take(10).unwrap(), (1..=10).collect::<Vec<u64>>(), "{spec}");
        let refused = orders.next().unwrap_err();
        assert_eq!(refused.code, Code::StoreWentBackwards, "{spec}: {refused}");
        let remedy = "keymill repair 'segment:orders' --to N --yes";
        assert!(refused.message.contains(remedy), "{spec}: {refused}");
    }
}
