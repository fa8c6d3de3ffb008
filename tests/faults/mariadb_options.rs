//! Options of a MariaDB that change what a statement means, at the login or while a mill runs: no number comes twice, or the
//! reservation is refused with the option's name. And what a mill leaves behind on a server: connections and statements.
//!
//! Each test has servers of its own, started by `ci/mariadb`.

use std::time::Duration;

use keymill::Mill;
use keymill_tests::mariadb::Private;
use keymill_tests::takers::until;
use mysql::prelude::Queryable;

const PATIENCE: Duration = Duration::from_secs(90);

/// A counter of the server.
fn status(root: &mut mysql::Conn, name: &str) -> u64 {
    let found = root.query_first::<(String, u64), _>(format!("SHOW GLOBAL STATUS LIKE '{name}'"));
    found.expect("a status").expect("a row").1
}

/// How many connections user `keymill` has.
fn connections(root: &mut mysql::Conn) -> u64 {
    let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'keymill'";
    root.query_first(sql).expect("a list").expect("a number")
}

#[test]
fn an_idle_connection_is_closed_by_the_client_and_no_aborted_one_is_counted() {
    let server = Private::start("");
    let mut root = server.root();
    let mill = Mill::open(&format!("{}?idle_timeout=300ms", server.url())).expect("a mill");
    mill.init(&["segment:orders"], false).expect("init");
    let source = mill.source("segment:orders?step=10&max_step=10&buffer=1ms").expect("a source");
    let aborted = status(&mut root, "Aborted_clients");
    for round in 0..3 {
        assert_eq!(source.take(10).expect("ids").len(), 10, "round {round}");
        until("the idle connection is closed", PATIENCE, || connections(&mut root) == 0);
    }
    assert_eq!(status(&mut root, "Aborted_clients"), aborted);
    // Nothing is left that would wake the server up again.
    assert_eq!(connections(&mut root), 0);
    mill.close();
}
