//! MariaDB's sequences begin again after a crash: refused, unless the risk is accepted.

use std::sync::Arc;

use keymill::store::FaultKind;
use keymill_tests::ci::patient;
use keymill_tests::mariadb;

use super::{Sequence, Server, at, key, request};

pub(super) const SERVER: Server =
    Server { open: || Box::new(mariadb::store(mariadb::options())), say: mariadb::say, unsafe_on: true };

#[test]
fn mariadb_is_refused_with_the_reason_unless_the_risk_is_accepted() {
    let sequence = Sequence::missing(SERVER);
    let key = key(&sequence.name, 100, false);
    let open = SERVER.open;
    for answer in [
        open().reserve(&request(&key, 0)).map(drop),
        open().init(&[Arc::clone(&key)], false).map(drop),
        open().look(&key).map(drop),
        open().repair(&key, at(5)).map(drop),
    ] {
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
        for part in ["again after a crash", "scheme=keymill", "unsafe=on"] {
            assert!(fault.to_string().contains(part), "{fault}");
        }
    }
    let mill = keymill::Mill::open(&patient(&mariadb::url())).unwrap();
    let error = mill.source("segment:orders?scheme=sequence&deadline=60s").unwrap().next().unwrap_err();
    assert_eq!(error.code, keymill::Code::StoreUnsafe, "{}", error.message);
    mill.close();
}
