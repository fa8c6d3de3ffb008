//! The documentation for operators: its grants are enough and none is superfluous, and its alerts name metrics that exist.
//! `ci/steps/docs` runs its shell blocks, `tests/house/documents.rs` writes its tables.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it); the Redis is the test's own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use keymill::Mill;
use keymill::serial::SerialPattern;
use keymill::store::mysql::MysqlStore;
use keymill::store::{
    Catalogue, GiveBack, KeepReader, Key, MAX_NUMBER, Mark, OwnReader, ReaderStore, Request, RouteStore,
    RowStore, Scheme, Secret, SerialKey, StoreIndex,
};
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, redis, schemes};

fn page(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The page's table of rights: scheme and statement.
pub fn grants() -> Vec<(Scheme, String)> {
    let page = page("privileges.md");
    let cells = |line: &str| -> Option<(Scheme, String)> {
        let (scheme, grant) = line.strip_prefix("| `")?.strip_suffix("` |")?.split_once("` | `")?;
        let scheme = Scheme::ALL.into_iter().find(|known| known.name() == scheme)?;
        grant.starts_with("GRANT ").then(|| (scheme, grant.to_owned()))
    };
    page.lines().filter_map(cells).collect()
}

/// What stands as code in the lines of the page about privileges.
pub fn code_spans() -> Vec<String> {
    let page = page("privileges.md");
    let words = |span: &str| span.split_whitespace().collect::<Vec<_>>().join(" ");
    page.split('`').skip(1).step_by(2).map(words).collect()
}

pub fn root(sql: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/servers/mariadb");
    let output = Command::new(script).args(["root", "-e", sql]).output().unwrap();
    assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
}

fn key(scheme: Scheme) -> Arc<Key> {
    let serial = (!scheme.keeps_segments()).then(|| SerialKey {
        table: "cust_info".to_owned(),
        column: "custid".to_owned(),
        pattern: SerialPattern::new("yyyyMMdd", "00000000", "UTC").unwrap(),
        init_max: false,
    });
    Arc::new(Key {
        step: 10,
        unsafe_on: scheme.is_sequence(),
        ..schemes::key(scheme, scheme.default_table(), "orders", serial)
    })
}

/// Everything that a program and its operator ask of a store except `init`; answers with the first error or warning.
fn job(store: &mut MysqlStore, scheme: Scheme) -> Result<(), String> {
    let key = key(scheme);
    let period = if scheme.keeps_segments() { 0 } else { 20_261_120_000_000_000 };
    let mut request = Request {
        key: Arc::clone(&key),
        len: 10,
        high_water: Mark::default(),
        start: 1,
        last: MAX_NUMBER,
        period,
        period_max: period,
        clock: None,
        heal: false,
        max_jump: 0,
        single: 0,
        writer: 0,
    };
    // Long enough for purged tickets.
    for _ in 0..70 {
        let got = store.reserve(&request).map_err(|fault| fault.to_string())?;
        request.high_water = Mark { period, next: got.hi };
        if store
            .give_back(&GiveBack::new(&key, period, got.hi - 1, got.hi))
            .map_err(|fault| fault.to_string())?
        {
            request.high_water.next -= 1;
        }
    }
    store.look(&key).map_err(|fault| fault.to_string())?.ok_or("no row")?;
    store.age(&key).map_err(|fault| fault.to_string())?;
    let to = Mark { period, next: request.high_water.next + 1000 };
    store.repair(&key, to).map_err(|fault| fault.to_string())?;
    let facts = store.facts().map_err(|fault| fault.to_string())?;
    facts.warnings.first().map_or(Ok(()), |warning| Err(warning.clone()))
}

#[test]
fn the_grants_on_the_page_are_enough_and_without_one_the_error_says_so() {
    let grants = grants();
    assert_eq!(grants.len(), Scheme::ALL.len(), "a line for each scheme");
    let shop = format!("shop_{}", std::process::id());
    root(&format!("CREATE DATABASE {shop}; GRANT ALL ON {shop}.* TO keymill@'%'"));
    let mut owner = mariadb::options();
    owner.database.clone_from(&shop);
    for (scheme, grant) in grants {
        mariadb::store(owner.clone()).init(&[key(scheme)], false).unwrap();
        let user = format!("u{}_{}", std::process::id(), scheme.name());
        let here = |sql: &str| sql.replace("shop.", &format!("{shop}.")).replace("ids@", &format!("{user}@"));
        root(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'secret'"));
        root(&here(&grant));
        let mut options = owner.clone();
        options.user.clone_from(&user);
        options.password = Secret::new("secret");
        // A new first use of the name each time: a right that only a first use needs would otherwise not be missed.
        let empty = || {
            let table = scheme.default_table();
            let statement =
                if scheme.is_sequence() { "DO SETVAL(shop.{t}, 1)" } else { "DELETE FROM shop.{t}" };
            root(&here(&statement.replace("{t}", table)));
        };
        assert_eq!(job(&mut mariadb::store(options.clone()), scheme), Ok(()), "{}", scheme.name());
        let (rights, on) = grant.strip_prefix("GRANT ").unwrap().split_once(" ON ").unwrap();
        for right in rights.split(", ") {
            root(&here(&format!("REVOKE {right} ON {}", on.replace(" TO ", " FROM "))));
            empty();
            let complaint = job(&mut mariadb::store(options.clone()), scheme);
            let complaint = complaint.expect_err(&format!("{} without {right} does its job", scheme.name()));
            assert!(
                complaint.contains("command denied") && complaint.contains(right),
                "{} without {right}: {complaint}",
                scheme.name()
            );
            root(&here(&format!("GRANT {right} ON {on}")));
        }
        empty();
        assert_eq!(job(&mut mariadb::store(options.clone()), scheme), Ok(()), "{} again", scheme.name());
        // `init` creates nothing if everything exists, and otherwise names the missing right.
        assert!(mariadb::store(options.clone()).init(&[key(scheme)], false).unwrap().is_empty());
        let missing = Arc::new(Key { table: "missing".to_owned(), ..(*key(scheme)).clone() });
        let fault = mariadb::store(options).init(&[missing], false).unwrap_err();
        assert!(fault.to_string().contains("CREATE command denied"), "{fault}");
        root(&format!("DROP USER {user}@'%'"));
    }
    root(&format!("DROP DATABASE {shop}"));
}

/// The rights that the page gives for workers, with the table of each.
#[test]
fn the_grants_for_workers_are_enough_and_without_one_the_error_says_so() {
    let page = page("privileges.md");
    let shop = format!("workers_{}", std::process::id());
    root(&format!("CREATE DATABASE {shop}; GRANT ALL ON {shop}.* TO keymill@'%'"));
    let server = std::env::var("KEYMILL_TEST_MYSQL").expect("`ci/servers/mariadb run` sets it");
    let (login, place) = server.rsplit_once('@').expect("a login");
    let place = place.split_once('/').expect("a database").0;
    let owner = Mill::open(&patient(&format!("{login}@{place}/{shop}"))).unwrap();
    for (at, (spec, grant)) in [
        (
            "snowflake:tx?slots=0-0&deadline=60s",
            "GRANT SELECT, INSERT, UPDATE ON shop.keymill_worker TO ids@'%'",
        ),
        (
            "snowflake:tx?worker=5&deadline=60s",
            "GRANT SELECT, INSERT, UPDATE ON shop.keymill_segment TO ids@'%'",
        ),
        ("snowflake:tx?worker=disposable&deadline=60s", "GRANT INSERT ON shop.WORKER_NODE TO ids@'%'"),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(page.contains(grant), "{grant}");
        owner.init(&[spec], keymill::Change::Apply).unwrap();
        let user = format!("w{at}_{}", std::process::id());
        let here = |sql: &str| sql.replace("shop.", &format!("{shop}.")).replace("ids@", &format!("{user}@"));
        root(&format!("CREATE USER {user}@'%' IDENTIFIED BY 'secret'"));
        root(&here(grant));
        let try_it = || {
            let mill = Mill::open(&patient(&format!("mysql://{user}:secret@{place}/{shop}")))?;
            mill.source(spec)?.next().map(|_| ())
        };
        try_it().unwrap();
        let (rights, on) = grant.strip_prefix("GRANT ").unwrap().split_once(" ON ").unwrap();
        for right in rights.split(", ") {
            root(&here(&format!("REVOKE {right} ON {}", on.replace(" TO ", " FROM "))));
            // Only a first use needs INSERT, and only a later one UPDATE.
            if right == "INSERT" {
                root(&here(&format!("DELETE FROM {}", on.split(' ').next().unwrap())));
            }
            let error = try_it().expect_err(&format!("`{spec}` works without {right}"));
            assert!(
                error.code == keymill::Code::StoreRefused && error.message.contains(right),
                "{spec} without {right}: {error}"
            );
            root(&here(&format!("GRANT {right} ON {on}")));
            try_it().unwrap();
        }
        root(&format!("DROP USER {user}@'%'"));
    }
    owner.close();
    root(&format!("DROP DATABASE {shop}"));
}

// ---- Redis ----

/// The words of `ACL SETUSER ids …` on the page.
pub fn redis_user() -> Vec<String> {
    let page = page("privileges.md");
    let line =
        page.split("`ACL SETUSER ids ").nth(1).expect("the user is on the page").split('`').next().unwrap();
    line.split(' ').map(str::to_owned).collect()
}

/// Carries out the page's commands that keep the server's passwords out of its settings. The administrator's stays `secret`.
pub fn hide_passwords(admin: &mut ::redis::Connection, of_replicas: bool) {
    let page = page("privileges.md");
    let words = |line: &str| -> Vec<String> {
        let typed = line.replace("ADMIN", "secret").replace("REPLICA", "other");
        typed.split(' ').map(|word| if word == "\"\"" { String::new() } else { word.to_owned() }).collect()
    };
    let block = |first: &str| -> Vec<Vec<String>> {
        let lines = page.split(&format!("```\n{first}")).nth(1).expect("the block is on the page");
        let lines = format!("{first}{}", lines.split("```").next().unwrap());
        // The tests' server has no file of its own to write into.
        lines.lines().filter(|line| *line != "CONFIG REWRITE").map(words).collect()
    };
    let lines = if of_replicas { block("ACL SETUSER replica") } else { block("MULTI") };
    for line in lines {
        redis::say::<::redis::Value>(admin, &line.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn status_warns_while_the_user_on_the_page_can_read_a_password_and_the_page_says_how_to_hide_it() {
    let private = redis::Private::start("");
    let replica = private.replica();
    let mut admin = redis::connection_of(&private.url());
    let words = redis_user();
    let line = ["ACL", "SETUSER", "ids", "reset"].into_iter().chain(words.iter().map(String::as_str));
    redis::say::<()>(&mut admin, &line.collect::<Vec<_>>());
    let mut options = redis::options_of(&private.url());
    let of_admin = options.clone();
    options.server.user = "ids".to_owned();
    options.server.password = Secret::new("secret");
    let warnings = |options: &redis::RedisOptions| -> Vec<String> {
        let found = redis::store(options.clone()).facts().expect("facts").warnings;
        found.into_iter().filter(|warning| warning.contains("CONFIG GET")).collect()
    };
    let found = warnings(&options);
    assert!(matches!(&found[..], [one] if one.contains("requirepass and masterauth")), "{found:?}");
    assert!(!found[0].contains("secret"), "{found:?}");
    assert_eq!(warnings(&of_admin), Vec::<String>::new(), "`default` knows its own password");
    hide_passwords(&mut admin, false);
    let found = warnings(&options);
    assert!(matches!(&found[..], [one] if !one.contains("requirepass")), "{found:?}");
    let (host, port) = options.server.hosts[0].clone();
    let without = ::redis::Client::open(format!("redis://{host}:{port}/0")).unwrap();
    let answer = without.get_connection().and_then(|mut user| ::redis::cmd("PING").query::<()>(&mut user));
    assert_eq!(answer.unwrap_err().code(), Some("NOAUTH"), "`default` still has a password");
    hide_passwords(&mut admin, true);
    assert_eq!(warnings(&options), Vec::<String>::new());
    // A replica with that user follows.
    let mut of_replica = redis::connection_of(&replica);
    hide_passwords(&mut of_replica, true);
    redis::say::<()>(&mut admin, &["CLIENT", "KILL", "TYPE", "replica"]);
    redis::say::<()>(&mut admin, &["SET", "follows", "1"]);
    keymill_tests::takers::until("the replica follows", Duration::from_secs(60), || {
        redis::say::<Option<String>>(&mut of_replica, &["GET", "follows"]).is_some()
    });
    // What the user read before is of no use.
    let answer = ::redis::cmd("CONFIG")
        .arg("GET")
        .arg("requirepass")
        .query::<Vec<String>>(&mut redis::connection_of(&format!("redis://ids:secret@{host}:{port}/0")));
    assert_eq!(answer.unwrap(), ["requirepass", ""]);
}

/// Carries out the page's lines for the shell that make the Redis user. The administrator's password stays `secret`.
fn make_the_user_of_install(private: &redis::Private) {
    let page = page("install.md");
    let block = page.split("<!-- run: redis -->\n```sh\n").nth(1).expect("the block is on the page");
    let lines = block.split("export KEYMILL_CONFIG").next().unwrap().replace(">ADMIN", ">secret");
    let port = store_host(&private.url()).1.to_string();
    let client = format!("redis-cli() {{ command redis-cli -e -p {port} \"$@\"; }}\n{lines}");
    let mut shell = Command::new("bash");
    let ran =
        shell.args(["-euo", "pipefail", "-c", &client]).env("REDISCLI_AUTH", "secret").output().unwrap();
    assert!(ran.status.success(), "{lines}: {}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn the_redis_user_that_the_page_makes_reads_no_password_of_the_server() {
    let private = redis::Private::start("");
    let url = private.url();
    let mut admin = redis::connection_of(&url);
    // A server without replicas has none.
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "masterauth", ""]);
    make_the_user_of_install(&private);
    let (host, port) = store_host(&url);
    let mut user = redis::connection_of(&format!("redis://ids:secret@{host}:{port}/0"));
    let settings = redis::say::<Vec<(String, String)>>(&mut user, &["CONFIG", "GET", "*"]);
    assert!(settings.contains(&("requirepass".to_owned(), String::new())), "{settings:?}");
    // The administrator still has the password, and no setting is one.
    assert_eq!(redis::say::<String>(&mut redis::connection_of(&url), &["PING"]), "PONG");
    for (name, value) in settings {
        let mut login = ::redis::cmd("AUTH");
        let answer = login.arg("default").arg(value).query::<()>(&mut user);
        assert_eq!(answer.expect_err(&name).code(), Some("WRONGPASS"), "{name}");
    }
    let mut options = redis::options_of(&url);
    (options.server.user, options.server.password) = ("ids".to_owned(), Secret::new("secret"));
    assert_eq!(redis_job(&options), Ok(()), "the user may do its job, and no warning is left");
}

/// Everything that a program and its operator ask of a Redis; answers with the first error.
fn redis_job(options: &redis::RedisOptions) -> Result<(), String> {
    let mut store = redis::store(options.clone());
    let key = key(Scheme::Keymill);
    let mut request = keymill_tests::request(&key, 10);
    for _ in 0..3 {
        let got = store.reserve(&request).map_err(|fault| fault.to_string())?;
        request.high_water = Mark { period: 0, next: got.hi };
    }
    store
        .give_back(&GiveBack::new(&key, 0, request.high_water.next - 5, request.high_water.next))
        .map_err(|fault| fault.to_string())?;
    store.look(&key).map_err(|fault| fault.to_string())?.ok_or("no row")?;
    store.repair(&key, Mark { period: 0, next: 1000 }).map_err(|fault| fault.to_string())?;
    let facts = store.facts().map_err(|fault| fault.to_string())?;
    facts.warnings.first().map_or(Ok(()), |warning| Err(warning.clone()))
}

/// The rights of a router beside those of its ids.
pub fn redis_router() -> Vec<String> {
    let page = page("privileges.md");
    let line = page.split("* Routers also need `%R").nth(1).expect("routers are on the page");
    let line = format!("%R{}", line.split(';').next().unwrap());
    line.replace("` and `", " ").trim_end_matches('`').split(' ').map(str::to_owned).collect()
}

#[test]
fn a_router_with_the_rights_on_the_page_follows_a_table_on_redis_and_cannot_store_one() {
    let private = redis::Private::start("");
    let mut admin = redis::connection_of(&private.url());
    let words = [redis_user(), redis_router()].concat();
    let line = ["ACL", "SETUSER", "ids", "reset"].into_iter().chain(words.iter().map(String::as_str));
    redis::say::<()>(&mut admin, &line.collect::<Vec<_>>());
    let options = redis::options_of(&private.url());
    let (key, readers) = (Key::of_route("orders"), Arc::new(Key::of_readers("orders")));
    assert_eq!(redis::store(options.clone()).replace_route(&key, None, (1, "one")), Ok(true));
    let mut of_router = options;
    of_router.server.user = "ids".to_owned();
    of_router.server.password = Secret::new("secret");
    let mut store = redis::store(of_router);
    let table = store.read_route(&key, 0).expect("it may read").expect("a table");
    assert_eq!((table.version, table.text.as_deref()), (1, Some("one")));
    let (mut own, one) = (OwnReader::default(), StoreIndex::ONLY);
    for version in [1, 2] {
        let keep = KeepReader { version, lease_ms: 10_000, owner: "host:7".into(), store: one };
        store.keep_reader(&readers, &mut own, &keep).expect("it may write its row");
    }
    store.remove_reader(&readers, &own).expect("and delete it");
    let refused = store.replace_route(&key, Some(1), (2, "two")).expect_err("it may not store a table");
    assert!(
        refused.to_string().contains("NOPERM") || refused.to_string().contains("permission"),
        "{refused}"
    );
    let (host, port) = store_host(&private.url());
    let mut plain = redis::connection_of(&format!("redis://ids:secret@{host}:{port}/0"));
    let set = ::redis::cmd("HSET").arg("keymill_route:orders").arg("version").arg(9).query::<()>(&mut plain);
    assert_eq!(set.expect_err("the key is for reading").code(), Some("NOPERM"));
}

fn store_host(url: &str) -> (String, u16) {
    redis::options_of(url).server.hosts[0].clone()
}

#[test]
fn the_redis_user_on_the_page_needs_each_right_and_can_do_nothing_else() {
    let private = redis::Private::start("");
    let _replica = private.replica();
    let mut admin = redis::connection_of(&private.url());
    hide_passwords(&mut admin, false);
    hide_passwords(&mut admin, true);
    let words = redis_user();
    let mut allow = |words: &[String]| {
        let line = ["ACL", "SETUSER", "ids", "reset"].into_iter().chain(words.iter().map(String::as_str));
        redis::say::<()>(&mut admin, &line.collect::<Vec<_>>());
        // The next job begins with a server without scripts and row.
        redis::say::<()>(&mut admin, &["SCRIPT", "FLUSH"]);
        redis::say::<()>(&mut admin, &["FLUSHALL"]);
    };
    let mut options = redis::options_of(&private.url());
    options.server.user = "ids".to_owned();
    options.server.password = Secret::new("secret");
    options.server.database = "3".to_owned();
    options.wait_replicas = 1;
    allow(&words);
    assert_eq!(redis_job(&options), Ok(()));
    for (at, right) in words.iter().enumerate().skip(2) {
        let fewer: Vec<String> =
            words.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, w)| w.clone()).collect();
        allow(&fewer);
        let answer = redis_job(&options);
        println!("without {right}: {answer:?}");
        match right.as_str() {
            "+client|setname" => assert_eq!(answer, Ok(()), "a name is no need"),
            "~keymill_segment:*" => {
                assert!(answer.is_err_and(|complaint| complaint.contains("~keymill_segment:*")));
            }
            right => {
                let complaint = answer.expect_err(&format!("without {right} it does its job"));
                let names = complaint.contains(right) || complaint.contains(&format!("'{}'", &right[1..]));
                assert!(names, "without {right}: {complaint}");
            }
        }
    }
    allow(&words);
    assert_eq!(redis_job(&options), Ok(()), "again");
    let (host, port) = options.server.hosts[0].clone();
    let mut user = redis::connection_of(&format!("redis://ids:secret@{host}:{port}/3"));
    let row = "keymill_segment:segment:orders";
    for line in [
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB 0 3",
        "CLIENT PAUSE 1",
        "CLIENT KILL TYPE normal",
        "CLIENT LIST",
        "CLIENT NO-EVICT on",
        "FUNCTION FLUSH",
        "FUNCTION LIST",
        "SCRIPT FLUSH",
        "SCRIPT KILL",
        "KEYS *",
        "SCAN 0",
        "RANDOMKEY",
        "DBSIZE",
        "MONITOR",
        "CONFIG SET appendonly no",
        "CONFIG REWRITE",
        "CONFIG RESETSTAT",
        "ACL LIST",
        "ACL SETUSER ids +@all",
        "SHUTDOWN NOSAVE",
        "REPLICAOF NO ONE",
        "FAILOVER",
        "SAVE",
        "BGSAVE",
        "BGREWRITEAOF",
        "MODULE LIST",
        "SLOWLOG RESET",
        "LATENCY RESET",
        "MULTI",
        "SUBSCRIBE x",
        "PUBLISH x y",
        "GET x",
        "SET x y",
        "COPY x y",
        &format!("DEL {row}"),
        &format!("UNLINK {row}"),
        &format!("EXPIRE {row} 1"),
        &format!("RENAME {row} x"),
        &format!("DUMP {row}"),
        &format!("RESTORE {row} 0 x REPLACE"),
        &format!("MIGRATE 127.0.0.1 1 {row} 0 1"),
        &format!("MOVE {row} 1"),
        &format!("HDEL {row} next"),
        &format!("HGETALL {row}"),
        &format!("SORT {row}"),
        "HSET others next 1",
        "HMGET others next",
        "HINCRBY others next 1",
        "EXISTS others",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = ::redis::cmd(words[0]);
        let answer = command.arg(&words[1..]).query::<::redis::Value>(&mut user);
        let error = answer.expect_err(line);
        assert_eq!(error.code(), Some("NOPERM"), "{line}: {error}");
    }
    for script in [
        "return redis.call('DEL', KEYS[1])",
        "return redis.call('FLUSHALL')",
        "return redis.call('HSET', 'x', 'next', 1)",
    ] {
        let mut command = ::redis::cmd("EVAL");
        let answer = command.arg(script).arg(1).arg(row).query::<::redis::Value>(&mut user);
        assert!(
            answer.is_err_and(|error| error.to_string().contains("The user executing the script can't")),
            "{script}"
        );
    }
    assert_eq!(
        redis_job(&options).map_err(|complaint| complaint.contains("1000")),
        Err(true),
        "the row stands, above 1000"
    );
}

#[test]
fn every_alert_on_the_page_names_metrics_that_exist_and_is_read_by_promtool() {
    let page = page("monitoring.md");
    let rules = page.split("<!-- rules -->\n```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, rules).unwrap();
    let checked = Command::new("promtool").args(["check", "rules"]).arg(&file).output();
    let checked = checked.expect("promtool can be run: `ci/steps/setup` installs it (package prometheus)");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mill = Mill::open("memory:").unwrap();
    mill.source("segment:orders?deadline=60s").unwrap().take(5000).unwrap();
    mill.source("snowflake:tx?worker=1&deadline=60s").unwrap().take(5).unwrap();
    // The metrics of `keymill metrics`, which `bindings/cli` tests.
    let mut known = mill.metrics();
    known.push_str("\nkeymill_store_used_ratio ");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    while !known.contains("\nkeymill_runway_seconds") {
        // Known once the keeper has measured a rate.
        assert!(std::time::Instant::now() < deadline, "no rate was measured");
        mill.source("segment:orders?deadline=60s").unwrap().take(5000).unwrap();
        known.push_str(&mill.metrics());
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for name in rules.split(|c| !word(c)).filter(|name| name.starts_with("keymill_")) {
        let there = known.contains(&format!("\n{name} ")) || known.contains(&format!("\n{name}{{"));
        assert!(there, "{name} is no metric");
    }
}
