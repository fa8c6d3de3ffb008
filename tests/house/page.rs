//! The page for the people who run the database, `core/src/store/README.md`: its tables are what `init --dry-run` prints, its
//! grants are enough and none too many, and its alerts name metrics that exist. Its shell blocks are run by `ci/examples`.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/mariadb run cargo test …` sets it).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use keymill::serial::SerialPattern;
use keymill::store::mysql::MysqlStore;
use keymill::store::{Columns, Key, MAX_NUMBER, Mark, Request, Scheme, Secret, SerialKey, Store};
use keymill::{Code, Mill};
use keymill_tests::mariadb;

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/src/store/README.md")
}

fn page() -> String {
    std::fs::read_to_string(path()).unwrap()
}

/// A source of this scheme, as its spec.
fn spec(scheme: Scheme) -> String {
    let source = if scheme.keeps_segments() { "segment:orders" } else { "serial:cust_info/custid" };
    format!("{source}?scheme={}", scheme.name())
}

/// The statements of a dialect, as the page shows them. No server is needed: what cannot be looked at is printed.
fn tables(mill: &str) -> String {
    let mill = Mill::open(mill).unwrap();
    let mut text = String::new();
    for scheme in Scheme::ALL {
        match mill.init(&[&spec(scheme)], true) {
            Ok(statements) => {
                let _ = write!(text, "\nScheme `{}`:\n```sql\n", scheme.name());
                for statement in statements {
                    let _ = writeln!(text, "{statement};");
                }
                text.push_str("```\n");
            }
            // A scheme that this store has not.
            Err(error) => assert_eq!(error.code, Code::StoreRefused, "{error}"),
        }
    }
    text.push('\n');
    text
}

#[test]
fn the_tables_on_the_page_are_those_that_init_prints() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("none.db").display());
    let dialects = [
        ("mysql", "mysql://nobody:none@127.0.0.1:1/shop"),
        ("sqlite", file.as_str()),
        ("postgres", "postgres://nobody:none@127.0.0.1:1/shop"),
    ];
    let mut written = page();
    for (dialect, mill) in dialects {
        let begin = format!("<!-- ddl: {dialect} -->\n");
        let from = written.find(&begin).unwrap_or_else(|| panic!("{begin} is not on the page")) + begin.len();
        let to = from + written[from..].find("<!-- end -->").unwrap();
        written.replace_range(from..to, &tables(mill));
    }
    if std::env::var_os("UPDATE_PAGE").is_some() {
        std::fs::write(path(), &written).unwrap();
    }
    assert!(
        page() == written,
        "core/src/store/README.md is behind the code; run `UPDATE_PAGE=1 cargo test -p keymill-tests --test house page::`"
    );
}

/// What the page's table of rights says: scheme and statement.
fn grants() -> Vec<(Scheme, String)> {
    let page = page();
    let cells = |line: &str| -> Option<(Scheme, String)> {
        let (scheme, grant) = line.strip_prefix("| `")?.strip_suffix("` |")?.split_once("` | `")?;
        let scheme = Scheme::ALL.into_iter().find(|of| of.name() == scheme)?;
        grant.starts_with("GRANT ").then(|| (scheme, grant.to_owned()))
    };
    page.lines().filter_map(cells).collect()
}

fn root(sql: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/mariadb");
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
    let name = if serial.is_some() { "serial:cust_info/custid" } else { "segment:orders" };
    Arc::new(Key {
        scheme,
        table: scheme.default_table().to_owned(),
        name: name.to_owned(),
        serial,
        step: 10,
        unsafe_on: scheme == Scheme::Sequence,
        stride: keymill::store::Stride::EVERY,
        columns: Columns::default(),
    })
}

/// All that a program and its operator ask of a store but `init`; the first complaint, warnings included.
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
        heal: false,
        max_jump: 0,
    };
    // Long enough for tickets that are purged.
    for _ in 0..70 {
        let got = store.reserve(&request).map_err(|fault| fault.message)?;
        request.high_water = Mark { period, next: got.hi };
        if store.give_back(&key, period, got.hi - 1, got.hi).map_err(|fault| fault.message)? {
            request.high_water.next -= 1;
        }
    }
    store.look(&key).map_err(|fault| fault.message)?.ok_or("no row")?;
    store.age(&key).map_err(|fault| fault.message)?;
    let to = Mark { period, next: request.high_water.next + 1000 };
    store.repair(&key, to).map_err(|fault| fault.message)?;
    let facts = store.facts().map_err(|fault| fault.message)?;
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
        // Each time another first use of the name: a right that only that needs would else not be missed.
        let empty = || {
            let table = scheme.default_table();
            let statement =
                if scheme == Scheme::Sequence { "DO SETVAL(shop.{t}, 1)" } else { "DELETE FROM shop.{t}" };
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
        // `init` creates nothing where all is there, and says what it lacks where it is not.
        assert!(mariadb::store(options.clone()).init(&[key(scheme)], false).unwrap().is_empty());
        let missing = Arc::new(Key { table: "missing".to_owned(), ..(*key(scheme)).clone() });
        let fault = mariadb::store(options).init(&[missing], false).unwrap_err();
        assert!(fault.message.contains("CREATE command denied"), "{fault}");
        root(&format!("DROP USER {user}@'%'"));
    }
    root(&format!("DROP DATABASE {shop}"));
}

#[test]
fn every_alert_on_the_page_names_metrics_that_exist_and_is_read_by_promtool() {
    let page = page();
    let rules = page.split("<!-- rules -->\n```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, rules).unwrap();
    let checked = Command::new("promtool").args(["check", "rules"]).arg(&file).output();
    let checked = checked.expect("promtool can be run: `ci/setup` installs it (package prometheus)");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let mill = Mill::open("memory:").unwrap();
    mill.source("segment:orders").unwrap().take(5000).unwrap();
    mill.source("snowflake:tx?worker=1").unwrap().take(5).unwrap();
    // Those of `keymill metrics`, which `bindings/cli` tests.
    let mut known = mill.metrics();
    known.push_str("\nkeymill_store_used_ratio ");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !known.contains("\nkeymill_runway_seconds") {
        // Known once the keeper has measured a rate.
        assert!(std::time::Instant::now() < deadline, "no rate was measured");
        mill.source("segment:orders").unwrap().take(5000).unwrap();
        known.push_str(&mill.metrics());
    }
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for name in rules.split(|c| !word(c)).filter(|name| name.starts_with("keymill_")) {
        let there = known.contains(&format!("\n{name} ")) || known.contains(&format!("\n{name}{{"));
        assert!(there, "{name} is no metric");
    }
}
