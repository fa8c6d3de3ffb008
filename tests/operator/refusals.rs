//! What a user of the store is told who lacks a right: what to do, in the words of the page about privileges. Routers that may not be
//! listed are an error, which `keymill status --json` shows, and not an empty list.

use keymill::{Change, Code, Mill};
use keymill_tests::ci::patient;
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, postgres, redis};

use super::page::root;

const TABLE: &str = "version = 7\n[[range]]\nupper = 65535\nshard = \"s1\"\n";

/// The names of the routers that this mill lists, or why it lists none.
fn listed(url: &str) -> Result<Vec<String>, String> {
    let mill = Mill::open(&patient(url)).unwrap();
    match persistently(|| mill.stored_routers()) {
        Ok(routers) => Ok(routers.into_iter().map(|router| router.name).collect()),
        Err(error) => {
            assert_eq!(error.code, Code::StoreRefused, "{error}");
            Err(error.to_string())
        }
    }
}

fn store_router(url: &str, name: &str) {
    Mill::open(&patient(url)).unwrap().put_routes(name, TABLE, Change::Apply).unwrap();
}

/// The URL for another user, and for another database where one is named.
fn url_of(url: &str, user: &str, database: Option<&str>) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (host, own) = rest.rsplit_once('@').unwrap().1.split_once('/').unwrap();
    format!("{scheme}://{user}:secret@{host}/{}", database.unwrap_or(own))
}

#[test]
fn routers_that_a_user_of_mariadb_may_not_read_are_refused() {
    let (shop, user) = (format!("routes_{}", std::process::id()), format!("clerk{}", std::process::id()));
    root(&format!(
        "CREATE DATABASE {shop}; GRANT ALL ON {shop}.* TO keymill@'%'; CREATE USER {user}@'%' IDENTIFIED BY 'secret'; \
         CREATE TABLE {shop}.keymill_segment (x INT); GRANT SELECT ON {shop}.keymill_segment TO {user}@'%'"
    ));
    let owner = url_of(&mariadb::url(), "keymill", Some(&shop));
    let clerk = url_of(&mariadb::url(), &user, Some(&shop));
    assert_eq!(listed(&owner), Ok(Vec::new()), "there is no table, and this user may know it");
    let refused = |when: &str| {
        let message = listed(&clerk).expect_err(when);
        assert!(message.contains("SELECT command denied") && message.contains("keymill_route"), "{message}");
        assert!(message.contains("grant this user SELECT on the table to list its rows"), "{message}");
    };
    refused("without a table");
    store_router(&owner, "orders");
    refused("with a table");
    root(&format!("GRANT SELECT ON {shop}.keymill_route TO {user}@'%'"));
    assert_eq!(listed(&clerk), Ok(vec!["orders".to_owned()]), "the right of the page is enough");
    root(&format!("DROP USER {user}@'%'; DROP DATABASE {shop}"));
}

#[test]
fn a_right_on_some_columns_of_a_table_of_mariadb_is_a_missing_right() {
    let (shop, user) = (format!("columns_{}", std::process::id()), format!("part{}", std::process::id()));
    root(&format!(
        "CREATE DATABASE {shop}; GRANT ALL ON {shop}.* TO keymill@'%'; CREATE USER {user}@'%' IDENTIFIED BY 'secret'"
    ));
    let owner = Mill::open(&patient(&url_of(&mariadb::url(), "keymill", Some(&shop)))).unwrap();
    owner.init(&["snowflake:orders?worker=1", "snowflake:leased"], Change::Apply).unwrap();
    root(&format!(
        "GRANT SELECT, INSERT, UPDATE ON {shop}.keymill_segment TO {user}@'%'; \
         GRANT SELECT (pool) ON {shop}.keymill_worker TO {user}@'%'"
    ));
    let clerk = Mill::open(&patient(&url_of(&mariadb::url(), &user, Some(&shop)))).unwrap();
    let fixed = clerk.source("snowflake:orders?worker=1").and_then(|source| source.next());
    assert!(fixed.is_ok(), "a table that it may not read keeps it from nothing: {fixed:?}");
    let leased = clerk.source("snowflake:leased").and_then(|source| source.next());
    let message = leased.expect_err("without the rights").to_string();
    assert!(message.contains("command denied") && !message.contains("is missing"), "{message}");
    root(&format!("DROP USER {user}@'%'; DROP DATABASE {shop}"));
}

#[test]
fn routers_that_a_user_of_postgresql_may_not_read_are_refused() {
    let private = postgres::Private::start("");
    let root = postgres::Sql::root(&private.url());
    root.say("CREATE ROLE clerk LOGIN PASSWORD 'secret'");
    let (owner, clerk) = (private.url(), url_of(&private.url(), "clerk", None));
    assert_eq!(listed(&clerk), Ok(Vec::new()), "there is no table, and every user may know it");
    store_router(&owner, "orders");
    let message = listed(&clerk).expect_err("without the right");
    assert!(message.contains("keymill_route") && message.contains("grant this user"), "{message}");
    assert!(!message.contains("UPDATE"), "SELECT is enough: {message}");
    root.say("GRANT SELECT ON keymill_route TO clerk");
    assert_eq!(listed(&clerk), Ok(vec!["orders".to_owned()]), "the right of the page is enough");
}

#[test]
fn routers_that_a_user_of_redis_may_not_list_are_refused_with_the_rights_of_the_page() {
    let private = redis::Private::start("");
    store_router(&private.url(), "orders");
    let mut admin = redis::connection_of(&private.url());
    let clerk = url_of(&private.url(), "clerk", Some("0"));
    let mut allow = |rights: &[&str]| {
        let line = ["ACL", "SETUSER", "clerk", "reset", "on", ">secret", "+info", "+config|get"];
        redis::say::<()>(&mut admin, &[&line[..], rights].concat());
    };
    allow(&[]);
    let message = listed(&clerk).expect_err("without rights");
    let rights = message.split('`').find(|part| part.starts_with("%R~keymill_route")).expect("the rights");
    let page = include_str!("../../docs/operations/privileges.md");
    assert!(page.contains(&format!("`{rights}`")), "the page names the same rights: {rights}");
    let rights: Vec<&str> = rights.split(' ').collect();
    for without in &rights {
        let fewer: Vec<&str> = rights.iter().copied().filter(|right| right != without).collect();
        allow(&fewer);
        let message = listed(&clerk).expect_err(without);
        assert!(message.contains(without), "without {without}: {message}");
    }
    allow(&rights);
    assert_eq!(listed(&clerk), Ok(vec!["orders".to_owned()]), "the rights of the page are enough");
}

#[test]
fn a_user_of_redis_who_may_not_lease_workers_is_told_the_rights_of_the_page() {
    let private = redis::Private::start("");
    let mut admin = redis::connection_of(&private.url());
    let clerk = url_of(&private.url(), "clerk", Some("0"));
    let page = include_str!("../../docs/operations/privileges.md");
    let line = page.split('`').find(|part| part.starts_with("ACL SETUSER ids")).expect("the page's line");
    let mut allow = |more: &[&str]| {
        let line = line.split(' ').map(|part| match part {
            "ids" => "clerk",
            part => part,
        });
        redis::say::<()>(&mut admin, &line.chain(more.iter().copied()).collect::<Vec<_>>());
    };
    allow(&[]);
    let next = || Mill::open(&patient(&clerk)).unwrap().source("snowflake:tx?deadline=60s").unwrap().next();
    let refused = next().expect_err("without the rights");
    assert_eq!(refused.code, Code::StoreRefused, "{refused}");
    let rights =
        refused.message.split('`').find(|part| part.starts_with("~keymill_worker")).expect("the rights");
    assert!(page.contains(&format!("`{rights}`")), "the page names the same rights: {rights}");
    allow(&rights.split(' ').collect::<Vec<_>>());
    next().expect("the rights of the page are enough");
}

/// Opens a router, which adds and removes a row in `keymill_reader`.
fn followed(url: &str) -> Result<(), String> {
    let mill = Mill::open(&patient(url)).unwrap();
    let opened = persistently(|| mill.router("orders").map(drop));
    mill.close();
    opened.map_err(|error| {
        assert_eq!(error.code, Code::StoreRefused, "{error}");
        error.to_string()
    })
}

#[test]
fn a_user_who_may_read_a_route_table_and_not_say_which_version_it_runs_is_refused() {
    let (shop, user) = (format!("readers_{}", std::process::id()), format!("reader{}", std::process::id()));
    root(&format!(
        "CREATE DATABASE {shop}; GRANT ALL ON {shop}.* TO keymill@'%'; CREATE USER {user}@'%' IDENTIFIED BY 'secret'"
    ));
    store_router(&url_of(&mariadb::url(), "keymill", Some(&shop)), "orders");
    let clerk = url_of(&mariadb::url(), &user, Some(&shop));
    root(&format!("GRANT SELECT ON {shop}.keymill_route TO {user}@'%'"));
    let message = followed(&clerk).expect_err("without the right");
    assert!(message.contains("keymill_reader"), "{message}");
    root(&format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {shop}.keymill_reader TO {user}@'%'"));
    assert_eq!(followed(&clerk), Ok(()), "the rights of the page are enough");
    root(&format!("DROP USER {user}@'%'; DROP DATABASE {shop}"));

    let private = postgres::Private::start("");
    let admin = postgres::Sql::root(&private.url());
    admin.say("CREATE ROLE clerk LOGIN PASSWORD 'secret'");
    store_router(&private.url(), "orders");
    admin.say("GRANT SELECT ON keymill_route TO clerk");
    let clerk = url_of(&private.url(), "clerk", None);
    let message = followed(&clerk).expect_err("without the right");
    assert!(message.contains("keymill_reader"), "{message}");
    admin.say("GRANT SELECT, INSERT, UPDATE, DELETE ON keymill_reader TO clerk");
    assert_eq!(followed(&clerk), Ok(()), "the rights of the page are enough");
}

#[test]
fn a_user_of_redis_who_may_not_say_which_version_it_runs_is_told_the_rights_of_the_page() {
    let private = redis::Private::start("");
    store_router(&private.url(), "orders");
    let mut admin = redis::connection_of(&private.url());
    let clerk = url_of(&private.url(), "clerk", Some("0"));
    let page = include_str!("../../docs/operations/privileges.md");
    let line = page.split('`').find(|part| part.starts_with("ACL SETUSER ids")).expect("the page's line");
    let mut allow = |more: &[&str]| {
        let line = line.split(' ').map(|part| if part == "ids" { "clerk" } else { part });
        redis::say::<()>(&mut admin, &line.chain(more.iter().copied()).collect::<Vec<_>>());
    };
    allow(&["~keymill_route:*", "+hmget"]);
    let refused = followed(&clerk).expect_err("without the rights");
    let rights = refused.split('`').find(|part| part.starts_with("~keymill_reader")).expect("the rights");
    assert!(page.contains(&format!("`{rights}`")), "the page names the same rights: {rights}");
    allow(&rights.split(' ').collect::<Vec<_>>());
    assert_eq!(followed(&clerk), Ok(()), "the rights of the page are enough");
}

/// The programs would begin the present day at 1 again.
#[test]
fn an_operator_whose_clock_is_a_day_behind_writes_no_row_of_a_day_that_is_over() {
    for url in [mariadb::url(), postgres::url()] {
        let url = patient(&url);
        let spec = format!("serial:behind{}/no?number=000000&zone=UTC&deadline=60s", std::process::id());
        let programs = Mill::open(&url).unwrap();
        programs.init(&[&spec], Change::Apply).unwrap();
        let source = programs.source(&spec).unwrap();
        let first = persistently(|| source.next_text()).unwrap();
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let yesterday_ms = since.as_millis() - 86_400_000;
        let and = if url.contains('?') { '&' } else { '?' };
        let operators = Mill::open(&format!("{url}{and}clock=manual%40{yesterday_ms}")).unwrap();
        let operators = operators.source(&spec).unwrap();
        for change in [Change::DryRun, Change::Apply] {
            for refused in [operators.repair(900, change), operators.set_back(900, change)] {
                let refused = refused.expect_err("a row of yesterday");
                assert_eq!(refused.code, Code::StoreRefused, "{refused}");
                assert!(refused.message.contains("this machine's clock says"), "{refused}");
            }
        }
        let next = persistently(|| source.next_text()).unwrap();
        assert!(next > first && next.ends_with("000002"), "{next} after {first}");
    }
}

#[test]
fn a_user_from_whom_postgresql_may_hide_workers_or_readers_is_refused() {
    let private = postgres::Private::start("");
    let admin = postgres::Sql::root(&private.url());
    let owner = Mill::open(&patient(&private.url())).unwrap();
    owner.init(&["snowflake:leased"], Change::Apply).unwrap();
    owner.source("snowflake:leased").and_then(|source| source.next()).unwrap();
    store_router(&private.url(), "orders");
    admin.say("CREATE ROLE clerk LOGIN PASSWORD 'secret'");
    for (table, rights) in [("worker", "SELECT, INSERT, UPDATE"), ("reader", "ALL"), ("route", "SELECT")] {
        admin.say(&format!("GRANT {rights} ON keymill_{table} TO clerk"));
    }
    let clerk = url_of(&private.url(), "clerk", None);
    let leased = || {
        let mill = Mill::open(&patient(&clerk)).unwrap();
        persistently(|| mill.source("snowflake:leased").and_then(|source| source.next()))
    };
    leased().unwrap();
    assert_eq!(followed(&clerk), Ok(()));
    for table in ["worker", "reader"] {
        admin.say(&format!("ALTER TABLE keymill_{table} ENABLE ROW LEVEL SECURITY"));
        admin.say(&format!("CREATE POLICY even ON keymill_{table} USING (mark % 2 = 0) WITH CHECK (true)"));
    }
    let error = leased().expect_err("some rows are hidden");
    assert!(error.code == Code::StoreRefused && error.message.contains("ROW LEVEL SECURITY"), "{error}");
    let refused = followed(&clerk).expect_err("some rows are hidden");
    assert!(refused.contains("ROW LEVEL SECURITY"), "{refused}");
    admin.say("ALTER ROLE clerk BYPASSRLS");
    leased().unwrap();
    assert_eq!(followed(&clerk), Ok(()));
}
