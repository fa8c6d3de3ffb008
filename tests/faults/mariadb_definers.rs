//! Triggers and views of other users in a MariaDB. A trigger runs with the rights of its definer and changes what keymill writes, so
//! it is accepted only from keymill's own user and from the server's administrator; a view is no table. What keymill's user may
//! not see is not judged.
//!
//! Each test has a server of its own, started by `ci/servers/mariadb`.

use keymill::store::mysql::ServerOptions;
use keymill::store::{Catalogue, Fault, FaultKind, Key, RowStore, Scheme, Store};
use keymill_tests::lease;
use keymill_tests::mariadb::{self, Private};
use mysql::prelude::Queryable;

use super::mariadb_options::{SCHEMES, ask, key};

/// A server whose database another user may fill with triggers and views, its administrator, and that user.
fn shared_database() -> (Private, mysql::Conn, mysql::Conn) {
    let server = Private::start("");
    let mut root = server.root();
    root.query_drop("CREATE USER evil@'%' IDENTIFIED BY 'secret'").expect("a user");
    root.query_drop("GRANT SELECT, CREATE, TRIGGER, CREATE VIEW ON ids.* TO evil@'%'").expect("rights");
    let evil = mariadb::connection_of(&server.url().replace("keymill:", "evil:"));
    (server, root, evil)
}

fn refused(answer: Result<impl std::fmt::Debug, Fault>, says: &[&str]) -> String {
    let fault = answer.expect_err("it is refused");
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    for word in says {
        assert!(fault.to_string().contains(word), "{word}: {fault}");
    }
    fault.to_string()
}

/// The first statement in a message that begins with this word.
fn statement(message: &str, verb: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    quoted.find(|text| text.starts_with(verb)).expect("a statement").to_owned()
}

#[test]
fn a_trigger_of_another_user_is_refused_and_one_of_the_administrator_is_not() {
    let (server, mut root, mut evil) = shared_database();
    let mut own = mariadb::connection_of(&server.url());
    let options = mariadb::options_of(&server.url());
    for scheme in SCHEMES {
        let orders = key(scheme, "orders");
        let table = &orders.table;
        mariadb::store(options.clone()).init(std::slice::from_ref(&orders), false).expect("init");
        let mut next = mariadb::store(options.clone()).reserve(&ask(&orders, 0)).expect("a range").hi;
        let make = format!("CREATE TRIGGER t BEFORE UPDATE ON ids.{table} FOR EACH ROW SET @x = 1");
        for user in [&mut own, &mut root] {
            user.query_drop(&make).expect("a trigger");
            let mut store = mariadb::store(options.clone());
            let got = store.reserve(&ask(&orders, next)).or_else(|_| store.reserve(&ask(&orders, next)));
            next = got.expect("its own trigger and root's are trusted").hi;
            user.query_drop("DROP TRIGGER ids.t").expect("dropped");
        }
        // It sets the counter back with each change.
        let column = if scheme == Scheme::Keymill { "next" } else { "step" };
        let back = if scheme.is_ticket() {
            format!("CREATE TRIGGER back BEFORE INSERT ON ids.{table} FOR EACH ROW SET NEW.id = 1")
        } else {
            format!(
                "CREATE TRIGGER back BEFORE UPDATE ON ids.{table} FOR EACH ROW SET NEW.{column} = OLD.{column}"
            )
        };
        evil.query_drop(back).expect("a trigger");
        let says = ["trigger `back`", "`evil@%`", &format!("`{table}`")];
        let message = refused(mariadb::store(options.clone()).reserve(&ask(&orders, next)), &says);
        refused(mariadb::store(options.clone()).look(&orders), &says);
        refused(mariadb::store(options.clone()).init(std::slice::from_ref(&orders), false), &says);
        root.query_drop(statement(&message, "DROP TRIGGER")).expect("the statement is carried out");
        let got = mariadb::store(options.clone()).reserve(&ask(&orders, next)).expect("a range");
        assert!(got.lo >= next, "{got:?} after {next}");
    }
}

#[test]
fn a_view_of_another_user_is_refused_with_its_definer() {
    let (server, mut root, mut evil) = shared_database();
    let options = mariadb::options_of(&server.url());
    let orders = key(Scheme::Keymill, "orders");
    evil.query_drop("CREATE TABLE ids.hidden (name VARCHAR(255) PRIMARY KEY, date BIGINT, next BIGINT UNSIGNED, updated_at DATETIME)")
        .expect("a table");
    evil.query_drop(format!("CREATE VIEW ids.{} AS SELECT * FROM ids.hidden", orders.table)).expect("a view");
    let careless = ServerOptions { durability: keymill::store::Durability::Warn, ..options.clone() };
    for options in [&options, &careless] {
        let message = refused(
            mariadb::store(options.clone()).reserve(&ask(&orders, 0)),
            &["no table, but a view", "`evil@%`"],
        );
        refused(
            mariadb::store(options.clone()).init(std::slice::from_ref(&orders), false),
            &["no table, but a view"],
        );
        assert_eq!(statement(&message, "DROP"), format!("DROP VIEW {}", orders.table));
    }
    root.query_drop(format!("DROP VIEW ids.{}", orders.table)).expect("dropped");
    mariadb::store(options.clone()).init(std::slice::from_ref(&orders), false).expect("init");
    assert_eq!(mariadb::store(options).reserve(&ask(&orders, 0)).expect("a range").lo, 1);
}

#[test]
fn a_trigger_is_judged_where_the_user_has_the_right_to_see_it() {
    let (server, mut root, mut evil) = shared_database();
    let orders = key(Scheme::Keymill, "orders");
    mariadb::store(mariadb::options_of(&server.url()))
        .init(std::slice::from_ref(&orders), false)
        .expect("init");
    evil.query_drop(format!(
        "CREATE TRIGGER t BEFORE UPDATE ON ids.{} FOR EACH ROW SET @x = 1",
        orders.table
    ))
    .expect("a trigger");
    root.query_drop("CREATE USER clerk@'%' IDENTIFIED BY 'secret'").expect("a user");
    root.query_drop(format!("GRANT SELECT, INSERT, UPDATE ON ids.{} TO clerk@'%'", orders.table))
        .expect("rights");
    let clerk = ServerOptions { user: "clerk".to_owned(), ..mariadb::options_of(&server.url()) };
    let mut store = mariadb::store(clerk.clone());
    store.reserve(&ask(&orders, 0)).expect("it does not see the definer");
    let facts = store.facts().expect("facts");
    // MySQL and MariaDB 10.5 do not show such a user that there is a trigger.
    let is_shown = !mariadb::is_mysql(&mut root) && !mariadb::is_before_10_6(&mut root);
    let warns = facts.warnings.iter().any(|warning| warning.contains("grant it TRIGGER"));
    assert_eq!(warns, is_shown, "{facts:?}");
    root.query_drop(format!("GRANT TRIGGER ON ids.{} TO clerk@'%'", orders.table)).expect("a right");
    refused(mariadb::store(clerk).reserve(&ask(&orders, 0)), &["trigger `t`", "`evil@%`"]);
}

/// A trigger that takes a worker, a number or a shard from its owner: the tables of workers, of nodes and of routes are judged as those
/// of counters are.
#[test]
fn a_trigger_of_another_user_at_the_tables_of_workers_and_routes_is_refused_and_decides_nothing() {
    let (server, mut root, mut evil) = shared_database();
    let options = mariadb::options_of(&server.url());
    let key_of = |scheme: Scheme| {
        let key =
            Key { scheme, table: format!("t_{}", scheme.name()), ..Key::clone(&key(Scheme::Keymill, "tx")) };
        std::sync::Arc::new(key)
    };
    let (pool, node, route) = (key_of(Scheme::Worker), key_of(Scheme::WorkerNode), key_of(Scheme::Route));
    let open = || -> Box<dyn Store> { Box::new(mariadb::store(options.clone())) };
    for key in [&pool, &node, &route] {
        open().init(std::slice::from_ref(key), false).expect("init");
    }
    open().take_slot(&lease::take(pool.clone(), 7)).expect("a worker");
    assert_eq!(open().make_node(&node, "host", "1").expect("a node"), 1);
    assert_eq!(open().replace_route(&route, None, (1, "one")), Ok(true));
    for (table, event, sets) in [
        (&pool.table, "INSERT", "NEW.mark = 1"),
        (&pool.table, "UPDATE", "NEW.mark = 1"),
        (&node.table, "INSERT", "NEW.ID = NEW.ID"),
        (&route.table, "UPDATE", "NEW.table_text = 'evil'"),
    ] {
        evil.query_drop(format!("CREATE TRIGGER back BEFORE {event} ON ids.{table} FOR EACH ROW SET {sets}"))
            .expect("a trigger");
        let says = ["trigger `back`", "`evil@%`", table.as_str()];
        let message = if *table == pool.table {
            refused(open().slots(&pool), &says);
            refused(open().take_slot(&lease::take(pool.clone(), 8)), &says)
        } else if *table == node.table {
            refused(open().make_node(&node, "host", "1"), &says)
        } else {
            refused(open().read_route(&route, 0), &says);
            refused(open().replace_route(&route, Some(1), (2, "two")), &says)
        };
        root.query_drop(statement(&message, "DROP TRIGGER")).expect("the statement is carried out");
    }
    assert_eq!(open().slots(&pool).expect("the pool").slots.len(), 1, "nothing was taken");
    assert_eq!(open().make_node(&node, "host", "1").expect("a node"), 2, "no row was made");
    assert_eq!(open().read_route(&route, 0).expect("a table").expect("it is there").version, 1);
}
