//! What the documents repeat is what the code says: tables of options, codes, metrics and statements are written by this test
//! (`UPDATE_DOCS=1 cargo test -p keymill-tests --test house documents::the_tables`), and figures are those of the measured tables.
//!
//! A table stands between `<!-- generated: NAME -->` and `<!-- end -->`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use keymill::options::{self, Described};
use keymill::store::Scheme;
use keymill::{Change, Code, FigureKind, Mill, Stats};
use keymill_tests::schemes;

use super::adversaries;
use super::literals::literals;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The TOML file of the page on configuration offers a table of defaults for each kind of source.
#[test]
fn the_page_on_configuration_offers_the_tables_of_kinds_that_there_are() {
    let page = read("docs/configuration.md");
    let listed = page.split("# defaults for a kind: ").nth(1).and_then(|rest| rest.lines().next());
    for kind in listed.expect("the list of kinds").split(", ") {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, format!("store = \"memory:\"\n[{kind}]\ndeadline = \"5s\"\n")).expect("a file");
        let opened = Mill::open(&format!("file:{}", file.path().display()));
        assert!(opened.is_ok(), "[{kind}]: {opened:?}");
    }
}

/// Each document with generated tables, and their names.
const DOCUMENTS: [(&str, &[&str]); 10] = [
    ("README.md", &["speed"]),
    ("docs/performance.md", &["speed"]),
    ("docs/guarantees.md", &["faults", "proof", "codes"]),
    (
        "docs/configuration.md",
        &[
            "mill",
            "memory",
            "sqlite",
            "server",
            "postgres",
            "redis",
            "source",
            "text",
            "supply",
            "segment",
            "serial",
            "snowflake",
            "business",
        ],
    ),
    ("docs/application-database.md", &["words", "parameters"]),
    ("docs/schemes.md", &["pairs"]),
    ("docs/operations/privileges.md", &["grants"]),
    ("docs/operations/tables.md", &["mysql", "sqlite", "postgres"]),
    ("docs/operations/monitoring.md", &["metrics"]),
    ("docs/languages/rust.md", &["features"]),
];

fn generated(document: &str, name: &str) -> String {
    match (document, name) {
        ("docs/operations/tables.md", dialect) => statements(dialect),
        (_, "pairs") => pairs(),
        (_, "words") => words(),
        (_, "parameters") => parameters(),
        (_, "grants") => grants(),
        (_, "speed") => speed(),
        (_, "codes") => codes(),
        (_, "faults") => adversaries::faults(),
        (_, "proof") => adversaries::proof(),
        (_, "metrics") => metrics(),
        (_, "features") => features(),
        ("docs/configuration.md", group) => option_table(group),
        _ => panic!("{document} has no table `{name}`"),
    }
}

#[test]
fn the_tables_of_the_documents_are_what_the_code_says() {
    let mut behind = Vec::new();
    for (document, names) in DOCUMENTS {
        let before = read(document);
        let mut after = before.clone();
        for name in names {
            let begin = format!("<!-- generated: {name} -->\n");
            let from =
                after.find(&begin).unwrap_or_else(|| panic!("{document} has no {begin}")) + begin.len();
            let to = from + after[from..].find("<!-- end -->").expect("its end");
            after.replace_range(from..to, &generated(document, name));
        }
        let marks = before.matches("<!-- generated: ").count();
        assert_eq!(marks, names.len(), "{document} has a table that this test does not write");
        if before != after {
            if std::env::var_os("UPDATE_DOCS").is_some() {
                fs::write(root().join(document), &after).expect("written");
            } else {
                behind.push(document);
            }
        }
    }
    assert!(
        behind.is_empty(),
        "{behind:?} are behind the code; run `UPDATE_DOCS=1 cargo test -p keymill-tests --test house documents::the_tables`"
    );
}

fn option_table(group: &str) -> String {
    let options: &[Described] = match group {
        "mill" => options::MILL,
        "memory" => options::MEMORY,
        "sqlite" => options::SQLITE,
        "server" => options::SERVER,
        "postgres" => options::POSTGRES,
        "redis" => options::REDIS,
        "source" => options::SOURCE,
        "text" => options::TEXT,
        "supply" => options::SUPPLY,
        "segment" => options::SEGMENT,
        "serial" => options::SERIAL,
        "snowflake" => options::SNOWFLAKE,
        "business" => options::BUSINESS,
        other => panic!("no options are called `{other}`"),
    };
    let mut text = "| option | default | values | what it does |\n|---|---|---|---|\n".to_owned();
    for Described { name, default, values, about } in options {
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        let _ = writeln!(text, "| `{name}` | {default} | {values} | {about} |");
    }
    text
}

/// For which words a name that keymill does not know is refused.
fn words() -> String {
    let mut text = "| a name with one of these | may say |\n|---|---|\n".to_owned();
    for (about, words) in keymill::application_words() {
        let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
        let _ = writeln!(text, "| {} | {about} |", words.join(", "));
    }
    text
}

/// What each known parameter of the application's database means for a store.
fn parameters() -> String {
    let mut text = String::new();
    for (title, rows) in keymill::application_parameters() {
        let _ = writeln!(text, "\n### {title}\n\n| parameter | what it is for the mill |\n|---|---|");
        for (names, about) in rows {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            let _ = writeln!(text, "| {} | {about} |", names.join(", "));
        }
    }
    text.push('\n');
    text
}

/// Which store keeps which scheme; `tests/contract/matrix.rs` asks the stores.
fn pairs() -> String {
    let mut text = format!(
        "| scheme | {} |\n|{}\n",
        schemes::STORES.join(" | "),
        "---|".repeat(schemes::STORES.len() + 1)
    );
    for scheme in Scheme::ALL {
        let cells = schemes::STORES.map(|store| if schemes::keeps(store, scheme) { "yes" } else { "no" });
        let _ = writeln!(text, "| `{}` | {} |", scheme.name(), cells.join(" | "));
    }
    text
}

/// The rights of each scheme; `tests/operator/page.rs` reads the page and tries each with and without.
fn grants() -> String {
    let mut text = "| scheme | statement |\n|---|---|\n".to_owned();
    for scheme in Scheme::ALL {
        let rights = match scheme {
            // `NEXTVAL` inserts into the sequence.
            _ if scheme.is_sequence() => "SELECT, INSERT",
            _ if scheme.is_ticket() => "SELECT, INSERT, DELETE",
            _ => "SELECT, INSERT, UPDATE",
        };
        let table = scheme.default_table();
        let _ = writeln!(text, "| `{}` | `GRANT {rights} ON shop.{table} TO ids@'%'` |", scheme.name());
    }
    text
}

/// Codes with the first sentence of their documentation.
fn codes() -> String {
    let source = read("core/src/error/mod.rs");
    let body = source.split_once("pub enum Code {").expect("the codes").1;
    let mut text = "| code | number | what it means |\n|---|---:|---|\n".to_owned();
    for code in Code::ALL {
        let end = body.find(&format!(" = {},", code.number())).expect("its line");
        let above: Vec<&str> = body[..end].lines().rev().skip(1).collect();
        let mut lines: Vec<&str> = above.iter().map_while(|line| line.trim().strip_prefix("/// ")).collect();
        lines.reverse();
        assert!(!lines.is_empty(), "{code} has no documentation");
        let _ = writeln!(text, "| `{}` | {} | {} |", code.name(), code.number(), lines.join(" "));
    }
    text
}

/// The crate's features that users choose from.
fn features() -> String {
    let manifest: toml::Table = read("core/Cargo.toml").parse().expect("a manifest");
    let features = manifest["features"].as_table().expect("features");
    let default = features["default"].as_array().expect("a list");
    let mut text = "| feature | | default |\n|---|---|---|\n".to_owned();
    let others = ["default", "internals"];
    for name in features.keys().filter(|name| !name.starts_with('_') && !others.contains(&name.as_str())) {
        let about = match name.as_str() {
            "sqlite" => "SQLite, bundled",
            "mysql" => "MySQL, MariaDB, TiDB, with TLS",
            "postgres" => "PostgreSQL, with TLS",
            "redis" => "Redis, Valkey, with TLS",
            "moves" => {
                "ranges [move](#a-move-in-a-program) between shards, and their rows; [`Shards`](#shards) writes meanwhile"
            }
            "postgres-client" => "[`Shards`](#shards) over the clients of the crate `postgres`",
            other => panic!("`{other}` is a feature without a word about it"),
        };
        let is_default = if default.iter().any(|one| one.as_str() == Some(name)) { "yes" } else { "" };
        let _ = writeln!(text, "| `{name}` | {about} | {is_default} |");
    }
    text
}

/// The text literals of a source.
fn texts_of(source: &str) -> Vec<String> {
    literals(source).into_iter().map(|literal| literal.text).collect()
}

fn metrics() -> String {
    let mut text = "| metric | kind | what it says |\n|---|---|---|\n".to_owned();
    for figure in Stats::default().fields() {
        let kind = if figure.kind == FigureKind::Counter { "counter" } else { "gauge" };
        let _ = figure.metric.map(|metric| writeln!(text, "| `{metric}` | {kind} | {} |", figure.help));
    }
    let core = read("core/src/engine/metrics.rs");
    for row in texts_of(&core).windows(3).filter(|row| row[0].starts_with("keymill_")) {
        let _ = writeln!(text, "| `{}` | {} | {} |", row[0], row[1], row[2]);
    }
    let command = read("bindings/cli/src/status.rs");
    for row in texts_of(&command).windows(2).filter(|row| row[0].starts_with("keymill_store_")) {
        let _ = writeln!(text, "| `{}` | gauge, of `keymill metrics` | {} |", row[0], row[1]);
    }
    text
}

/// The statements of a dialect, as `init --dry-run` prints them. No server is needed: what cannot be looked at is printed.
fn statements(dialect: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mill = match dialect {
        "mysql" => "mysql://nobody:none@127.0.0.1:1/shop".to_owned(),
        "postgres" => "postgres://nobody:none@127.0.0.1:1/shop".to_owned(),
        _ => format!("sqlite:{}", folder.path().join("none.db").display()),
    };
    let mill = Mill::open(&mill).expect("a mill");
    let mut text = String::new();
    for scheme in Scheme::ALL {
        let source = if scheme.keeps_segments() { "segment:orders" } else { "serial:cust_info/custid" };
        let allocation = if scheme.keeps_allocation() { "&allocation=50" } else { "" };
        match mill.init(&[&format!("{source}?scheme={}{allocation}", scheme.name())], Change::DryRun) {
            Ok(statements) => {
                let _ = write!(text, "\nScheme `{}`:\n```sql\n", scheme.name());
                for statement in statements {
                    let _ = writeln!(text, "{statement};");
                }
                text.push_str("```\n");
            }
            // A scheme that this store does not keep.
            Err(error) => assert_eq!(error.code, Code::StoreRefused, "{error}"),
        }
    }
    let statements = mill.init(&["snowflake:tx"], Change::DryRun).expect("the table of leased workers");
    let _ = write!(text, "\nLeased workers of snowflakes:\n```sql\n{};\n```\n", statements.join(";\n"));
    match mill.init(&["snowflake:tx?worker=disposable"], Change::DryRun) {
        Ok(statements) => {
            let statements = statements.join(";\n");
            let _ = write!(
                text,
                "\nWorkers that are used once, in uid-generator's table:\n```sql\n{statements};\n```\n"
            );
        }
        Err(error) => assert_eq!(error.code, Code::InvalidConfig, "{error}"),
    }
    let all = mill.init(&[], Change::DryRun).expect("keymill's own tables");
    let one = |table: &str| all.iter().find(|statement| statement.contains(table)).expect("its statement");
    let (routes, readers) = (one("keymill_route"), one("keymill_reader"));
    let _ = write!(text, "\nTables of [routers](../business-ids.md#routers):\n```sql\n{routes};\n```\n");
    let _ = write!(
        text,
        "\nTheir readers: `pool` is the router, `slot` a number that each process draws, `mark` the version that it runs:\n```sql\n{readers};\n```\n"
    );
    text.push('\n');
    text
}

#[test]
fn the_page_of_schemes_says_of_each_what_its_row_means() {
    let page = read("docs/schemes.md");
    let (table, _) = page.split_once("<!-- generated: pairs -->").expect("the table of pairs");
    for scheme in Scheme::ALL {
        let row = format!("| `{}` | ", scheme.name());
        assert!(table.contains(&row), "docs/schemes.md has no row `{row}…` about the rows of {scheme}");
    }
}

#[test]
fn the_book_shows_every_statement_of_the_ddl_files() {
    let book = read("docs/operations/tables.md");
    let folder = root().join("core/src/store/sql/ddl");
    let files: Vec<_> = fs::read_dir(folder).expect("the folder of statements").flatten().collect();
    assert!(files.len() > 10, "only {} files: the reader is broken", files.len());
    for file in files {
        let statement = fs::read_to_string(file.path()).expect("a statement");
        let statement = statement.replace("VERSION", env!("CARGO_PKG_VERSION"));
        let statement = statement.trim_end().trim_end_matches(';');
        assert!(
            book.contains(statement),
            "docs/operations/tables.md does not show {}",
            file.path().display()
        );
    }
}

// ---- Speed ----

/// A figure of a measured table: the row that begins with this label, under this heading; columns count from the label.
fn figure(document: &str, heading: &str, label: &str, column: usize) -> f64 {
    let text = read(document);
    let under =
        text.split_once(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("{document}: {heading}")).1;
    let row = under
        .lines()
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('*').trim()).collect::<Vec<_>>())
        .find(|cells| cells.len() > column + 1 && cells[1] == label);
    let row = row.unwrap_or_else(|| panic!("{document}, {heading}: no row `{label}`"));
    row[column + 1].parse().unwrap_or_else(|_| panic!("{document}, {label}: `{}`", row[column + 1]))
}

/// Nanoseconds, with as many digits as mean something.
fn nanoseconds(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn speed() -> String {
    let core =
        |label, column| figure("docs/performance-core.md", "### Measured on an AMD EPYC", label, column);
    let stored = |label| {
        figure("docs/performance-stores.md", "#### Reservations on MariaDB, one connection", label, 1)
    };
    // Millions a second.
    let java = |label| 1000.0 / figure("docs/languages/java.md", "## Speed", label, 1);
    let python = |label| figure("docs/languages/python.md", "## Speed", label, 1);
    let node = |label| figure("docs/languages/node.md", "## Speed", label, 1);
    let ns = nanoseconds;
    let rows = [
        (
            "Rust `next`",
            core("Source::next, order=process", 2),
            vec![("a bare shared `lock xadd`", core("lock xadd, bare and shared", 2))],
        ),
        ("Rust, a handle", core("Handle::next, block of 1024", 2), vec![]),
        (
            "Rust snowflake",
            core("Source::next", 2),
            vec![
                ("ferroid", core("ferroid 2.0 Atomic, MonotonicClock", 2)),
                ("yitter", core("idgenerator 2.0 (yitter), owned", 2)),
            ],
        ),
        (
            "Java `next`",
            java("keymill `next`, `order=process`"),
            vec![("`AtomicLong`", java("`AtomicLong`")), ("CosId", java("CosId `SegmentChainId` 2.13.3"))],
        ),
        (
            "Java `KeyFactory`, a text",
            java("keymill `KeyFactory`, `order=process`"),
            vec![("the old `KeyFactory`", java("the old `KeyFactory`, date kept per range"))],
        ),
        (
            "Python `next()`",
            python("`next()`"),
            vec![
                ("the cheapest C method", python("the cheapest method of a C extension that gives an int")),
                ("`uuid7`", python("`uuid_utils.uuid7()`")),
                ("`python-ulid`", python("`python-ulid`")),
            ],
        ),
        (
            "Node `next()`",
            node("segment `next()`, order=process"),
            vec![("a plain native call", node("plain napi call")), ("flake-idgen", node("flake-idgen"))],
        ),
    ];
    let mut text = "| | ns an id | beside, in the same run |\n|---|---:|---|\n".to_owned();
    for (label, value, beside) in rows {
        let beside: Vec<_> = beside.iter().map(|(name, value)| format!("{name} {}", ns(*value))).collect();
        let _ = writeln!(text, "| {label} | {} | {} |", ns(value), beside.join(", "));
    }
    let _ = writeln!(
        text,
        "| a reservation on MariaDB | {} µs | one `UPDATE` {} µs |",
        ns(1e6 / stored("scheme=keymill")),
        ns(1e6 / stored("UPDATE"))
    );
    text
}

#[test]
fn the_readme_is_short() {
    assert!(read("README.md").lines().count() <= 130, "README.md says what there is; docs/ has the rest");
}
