//! What the table of `tests/vectors/application.json` cannot hold: properties of every input.

use proptest::prelude::*;

use crate::config::{MillConfig, StoreConfig, store_of};
use crate::store::server::TlsMode;

const CANARY: &str = "s3cr-Kanarienvogel";

#[test]
fn a_jdbc_url_is_a_mill() {
    let mill =
        store_of("jdbc:mysql://db:3306/shop?useUnicode=true", &[("user", "app"), ("password", "a@b:c/?#&%")]);
    assert_eq!(mill.expect("a mill"), "mysql://app:a%40b%3Ac%2F%3F%23%26%25@db:3306/shop?tls=prefer");
}
