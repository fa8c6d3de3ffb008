//! MariaDB's sequences begin again after a crash: refused, unless the risk is accepted. MySQL has none.

use std::sync::Arc;

use keymill::Code;
use keymill::store::FaultKind;
use keymill_tests::ci::patient;
use keymill_tests::mariadb;

use super::{Server, at, key, request, unique};

pub(super) const SERVER: Server =
    Server { open: || Box::new(mariadb::store(mariadb::options())), say: mariadb::say, unsafe_on: true };

#[test]
fn mariadb_is_refused_with_the_reason_unless_the_risk_is_accepted() {
    let key = key(&unique(), 100, false);
    let open = SERVER.open;
    let (kind, code, parts) = if mariadb::is_mysql(&mut mariadb::connection()) {
        (FaultKind::Refused, Code::StoreRefused, ["MySQL has no sequences", "scheme=keymill"].as_slice())
    } else {
        let parts = &["again after a crash", "scheme=keymill", "unsafe=on"];
        (FaultKind::Unsafe, Code::StoreUnsafe, parts.as_slice())
    };
    for answer in [
        open().reserve(&request(&key, 0)).map(drop),
        open().init(&[Arc::clone(&key)], false).map(drop),
        open().look(&key).map(drop),
        open().repair(&key, at(5)).map(drop),
    ] {
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, kind, "{fault}");
        for part in parts {
            assert!(fault.to_string().contains(part), "{fault}");
        }
    }
    let mill = keymill::Mill::open(&patient(&mariadb::url())).unwrap();
    let error = mill.source("segment:orders?scheme=sequence&deadline=60s").unwrap().next().unwrap_err();
    assert_eq!(error.code, code, "{}", error.message);
    mill.close();
}
