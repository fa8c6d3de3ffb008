//! What a reservation costs on each store and scheme, beside the cheapest statements of the same server; what large batches
//! and floods of new sources cost. How it is measured and what is to be reached: `README.md` beside this file.
//!
//! `ci/mariadb run ci/postgres run ci/redis run cargo bench -p keymill --bench stores`; `-- --quick` for a first look, `-- --only batch` for one section.
//! A server whose variable is not set is named and left out.

mod leaf;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keymill::Mill;
use keymill::store::mysql::MysqlStore;
use keymill::store::postgres::PostgresStore;
use keymill::store::redis::RedisStore;
use keymill::store::server::Options;
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Columns, Key, MAX_NUMBER, MOST_AT_ONCE, Mark, Request, Scheme, Secret, Store};
use mysql::prelude::Queryable;
use serde_json::{Value, json};

/// Numbers of one reservation.
const STEP: u64 = 100;

/// One line of the table of reservations: does one statement, or one reservation.
struct Row {
    name: String,
    /// Of the rate of the row named `UPDATE`; nothing where there is no goal.
    goal: Option<f64>,
    work: Box<dyn FnMut() + Send>,
}

/// A server and how to make its rows.
struct Bed {
    name: &'static str,
    make: Box<dyn Fn() -> Vec<Row> + Sync>,
}

fn request(scheme: Scheme, name: &str) -> Request {
    let key = Key {
        scheme,
        table: scheme.default_table().to_owned(),
        name: format!("segment:{name}"),
        columns: Columns::default(),
        serial: None,
        step: STEP,
        unsafe_on: false,
    };
    Request {
        key: Arc::new(key),
        len: STEP,
        high_water: Mark::default(),
        start: 1,
        last: MAX_NUMBER,
        period: 0,
        period_max: 0,
        heal: false,
        max_jump: 0,
    }
}

/// A scheme's row: reserves again and again, as a mill's keeper does.
fn reserving(mut store: Box<dyn Store>, scheme: Scheme, name: &str, goal: f64) -> Row {
    let mut request = request(scheme, name);
    store.init(&[request.key.clone()], false).unwrap_or_else(|fault| panic!("{fault}"));
    let work = move || {
        let got = store.reserve(&request).unwrap_or_else(|fault| panic!("{fault}"));
        request.high_water = Mark { period: got.period, next: got.hi };
    };
    Row { name: format!("scheme={}", scheme.name()), goal: Some(goal), work: Box::new(work) }
}

/// The row that the others are compared with.
const UPDATE: &str = "UPDATE";
/// Single statements are to reach 0.9 of one UPDATE, transactions 0.45.
const STATEMENT: f64 = 0.9;
const TRANSACTION: f64 = 0.45;

/// `scheme://user:password@host:port/database`, as the scripts of `ci/` print it.
fn options(url: &str) -> Options {
    let parts = || {
        let (_, rest) = url.split_once("://")?;
        let (login, place) = rest.rsplit_once('@')?;
        let (user, password) = login.split_once(':')?;
        let (hosts, database) = place.split_once('/')?;
        let (host, port) = hosts.split_once(':')?;
        Some(Options {
            hosts: vec![(host.to_owned(), port.parse().ok()?)],
            user: user.to_owned(),
            password: Secret::new(password),
            database: database.to_owned(),
            ..Options::default()
        })
    };
    parts().unwrap_or_else(|| panic!("`{url}` is not scheme://user:password@host:port/database"))
}

fn mysql_bed(url: String) -> Bed {
    let make = move || {
        let connect = || {
            let opts = mysql::OptsBuilder::from_opts(mysql::Opts::from_url(&url).expect("a mysql URL"));
            mysql::Conn::new(opts.prefer_socket(false).tcp_nodelay(true)).expect("the server answers")
        };
        let mut asking = connect();
        let select = asking.prep("SELECT 1").expect("a statement");
        let mut updating = connect();
        for sql in [
            "CREATE TABLE IF NOT EXISTS bench_update (k VARCHAR(128) CHARACTER SET ascii PRIMARY KEY, n BIGINT NOT NULL)",
            "INSERT IGNORE INTO bench_update VALUES ('one', 0)",
        ] {
            updating.query_drop(sql).expect("a table");
        }
        let update = updating.prep("UPDATE bench_update SET n = n + ? WHERE k = ?").expect("a statement");
        let mut rows = vec![
            Row {
                name: "SELECT 1".to_owned(),
                goal: None,
                work: Box::new(move || asking.exec_drop(&select, ()).expect("an answer")),
            },
            Row {
                name: UPDATE.to_owned(),
                goal: None,
                work: Box::new(move || updating.exec_drop(&update, (STEP, "one")).expect("an answer")),
            },
        ];
        let store = || Box::new(MysqlStore::new(options(&url)));
        for (scheme, goal) in [
            (Scheme::Keymill, STATEMENT),
            (Scheme::SequenceTable, STATEMENT),
            (Scheme::LeafAlloc, STATEMENT),
            (Scheme::TinyIdInfo, STATEMENT),
            (Scheme::Cosid, STATEMENT),
            (Scheme::AutoIncrement, STATEMENT),
            (Scheme::Ticket, TRANSACTION),
        ] {
            rows.push(reserving(store(), scheme, "bench", goal));
        }
        rows
    };
    Bed { name: "MariaDB", make: Box::new(make) }
}

fn postgres_bed(url: String) -> Bed {
    let make = move || {
        let connect = || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let options = options(&url);
            let mut config = tokio_postgres::Config::new();
            config.user(&options.user).password(options.password.reveal()).dbname(&options.database);
            let client = runtime.block_on(async {
                let stream =
                    tokio::net::TcpStream::connect(options.hosts[0].clone()).await.expect("a server");
                stream.set_nodelay(true).expect("an option");
                let (client, connection) =
                    config.connect_raw(stream, tokio_postgres::NoTls).await.expect("the server lets us in");
                tokio::spawn(connection);
                client
            });
            (runtime, client)
        };
        let ((asking, asked), (updating, updated)) = (connect(), connect());
        let select = asking.block_on(asked.prepare("SELECT 1")).expect("a statement");
        let table = "CREATE TABLE IF NOT EXISTS bench_update (k text PRIMARY KEY, n bigint NOT NULL); \
                     INSERT INTO bench_update VALUES ('one', 0) ON CONFLICT DO NOTHING";
        updating.block_on(updated.batch_execute(table)).expect("a table");
        let update = "UPDATE bench_update SET n = n + $1 WHERE k = $2";
        let update = updating.block_on(updated.prepare(update)).expect("a statement");
        let mut rows = vec![
            Row {
                name: "SELECT 1".to_owned(),
                goal: None,
                work: Box::new(move || {
                    asking.block_on(asked.query(&select, &[])).expect("an answer");
                }),
            },
            Row {
                name: UPDATE.to_owned(),
                goal: None,
                work: Box::new(move || {
                    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&(STEP as i64), &"one"];
                    updating.block_on(updated.execute(&update, &values)).expect("an answer");
                }),
            },
        ];
        for (scheme, goal) in [
            (Scheme::Keymill, STATEMENT),
            (Scheme::SequenceTable, STATEMENT),
            (Scheme::LeafAlloc, STATEMENT),
            (Scheme::TinyIdInfo, STATEMENT),
            (Scheme::Cosid, STATEMENT),
            (Scheme::Sequence, STATEMENT),
        ] {
            rows.push(reserving(Box::new(PostgresStore::new(options(&url))), scheme, "bench", goal));
        }
        rows
    };
    Bed { name: "PostgreSQL", make: Box::new(make) }
}

/// What PING is to Redis, `SELECT 1` is to a database; a counter raised by one INCRBY is its one-row UPDATE.
fn redis_bed(url: String) -> Bed {
    let make = move || {
        let connect = || {
            let client = redis::Client::open(url.as_str()).expect("a Redis URL");
            client.get_connection().expect("the server answers")
        };
        let (mut asking, mut updating) = (connect(), connect());
        let store = RedisStore::new(keymill::store::redis::Options {
            server: options(&url),
            sentinel: None,
            wait_replicas: 0,
        });
        vec![
            Row {
                name: "PING (SELECT 1)".to_owned(),
                goal: None,
                work: Box::new(move || redis::cmd("PING").exec(&mut asking).expect("an answer")),
            },
            Row {
                name: UPDATE.to_owned(),
                goal: None,
                work: Box::new(move || {
                    redis::cmd("INCRBY")
                        .arg("bench_update")
                        .arg(STEP)
                        .exec(&mut updating)
                        .expect("an answer");
                }),
            },
            reserving(Box::new(store), Scheme::Keymill, "bench", STATEMENT),
        ]
    };
    Bed { name: "Redis", make: Box::new(make) }
}

fn sqlite_bed(folder: &tempfile::TempDir) -> Bed {
    let path = folder.path().join("ids.db");
    let make = move || {
        let connect = || {
            let connection = rusqlite::Connection::open(&path).expect("a file");
            connection
                .execute_batch("PRAGMA busy_timeout = 2000; PRAGMA synchronous = FULL")
                .expect("settings");
            connection
        };
        let store = || Box::new(SqliteStore::new(path.clone(), sqlite::Options::default()));
        // The store's own first: it says how the file's log is kept.
        let mut schemes: Vec<Row> =
            [Scheme::Keymill, Scheme::SequenceTable, Scheme::LeafAlloc, Scheme::TinyIdInfo, Scheme::Cosid]
                .into_iter()
                .map(|scheme| reserving(store(), scheme, "bench", TRANSACTION))
                .collect();
        let (asking, updating) = (connect(), connect());
        updating
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS bench_update (k TEXT PRIMARY KEY, n INTEGER NOT NULL);
                 INSERT OR IGNORE INTO bench_update VALUES ('one', 0)",
            )
            .expect("a table");
        let mut rows = vec![
            Row {
                name: "SELECT 1".to_owned(),
                goal: None,
                work: Box::new(move || {
                    let mut statement = asking.prepare_cached("SELECT 1").expect("a statement");
                    let _: i64 = statement.query_row((), |row| row.get(0)).expect("an answer");
                }),
            },
            Row {
                name: UPDATE.to_owned(),
                goal: None,
                work: Box::new(move || {
                    let mut statement = updating
                        .prepare_cached("UPDATE bench_update SET n = n + ? WHERE k = ?")
                        .expect("a statement");
                    statement.execute((STEP as i64, "one")).expect("an answer");
                }),
            },
        ];
        rows.append(&mut schemes);
        rows
    };
    Bed { name: "SQLite", make: Box::new(make) }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Turns of all rows within each round; the ratio is the median of the rounds' own.
fn reservations(bed: &Bed, rounds: usize) -> Value {
    const TURN: Duration = Duration::from_millis(25);
    let mut rows = (bed.make)();
    for row in &mut rows {
        (0..50).for_each(|_| (row.work)());
    }
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    for round in 0..rounds {
        for at in 0..rows.len() {
            // Nobody is always first after the same neighbour.
            let at = (at * 5 + round) % rows.len();
            let (began, mut done) = (Instant::now(), 0u32);
            while began.elapsed() < TURN {
                (rows[at].work)();
                done += 1;
            }
            rates[at].push(f64::from(done) / began.elapsed().as_secs_f64());
        }
    }
    let update = rows.iter().position(|row| row.name == UPDATE).expect("a row to compare with");
    let base = rates[update].clone();
    println!("\n### Reservations on {}, one connection\n", bed.name);
    println!("| row | a second | of one UPDATE | goal | |\n|---|---:|---:|---|---|");
    let mut all = Vec::new();
    for (row, rates) in rows.iter().zip(&mut rates) {
        let ratio = median(&mut rates.iter().zip(&base).map(|(own, base)| own / base).collect::<Vec<_>>());
        let rate = median(rates);
        let goal = row.goal.map_or_else(String::new, |goal| format!("≥ {goal}"));
        let verdict = row.goal.map_or("", |goal| if ratio >= goal { "met" } else { "missed" });
        println!("| {} | {rate:.0} | {ratio:.2} | {goal} | {verdict} |", row.name);
        all.push(json!({"row": row.name, "per_second": rate, "of_update": ratio, "goal": row.goal}));
    }
    Value::Array(all)
}

/// Ten million ids in one batch, at default options, from a server and from memory in turns.
fn batches(server: &str, url: &str) -> Value {
    const COUNT: usize = 10_000_000;
    let from = |config: &str, name: &str| {
        let mill = Mill::open(config).unwrap_or_else(|e| panic!("{e}"));
        let source = mill.source(&format!("segment:{name}")).unwrap_or_else(|e| panic!("{e}"));
        let began = Instant::now();
        assert_eq!(source.take(COUNT).unwrap_or_else(|e| panic!("{e}")).len(), COUNT);
        began.elapsed().as_secs_f64()
    };
    let mut ratios = Vec::new();
    let mut times = (Vec::new(), Vec::new());
    for round in 0..7 {
        let name = format!("batch_{}_{round}", std::process::id());
        let (memory, store) = (from("memory:", &name), from(url, &name));
        ratios.push(memory / store);
        times.0.push(memory);
        times.1.push(store);
    }
    let (memory, store, ratio) = (median(&mut times.0), median(&mut times.1), median(&mut ratios));
    println!("\n### `take(10 000 000)` from cold, default options\n");
    println!("| row | seconds | rate of memory's | goal | |\n|---|---:|---:|---|---|");
    println!("| memory | {memory:.3} | 1 | | |");
    let verdict = if ratio >= 0.9 { "met" } else { "missed" };
    println!("| {server} | {store:.3} | {ratio:.2} | ≥ 0.9 | {verdict} |");
    json!({"memory_s": memory, "store_s": store, "ratio": ratio, "goal": 0.9})
}

/// A hundred new sources at once, each asked by a thread that goes on for two seconds.
fn flood(url: &str) -> Value {
    const SOURCES: usize = 100;
    const LASTS: Duration = Duration::from_secs(2);
    let mill = Mill::open(url).unwrap_or_else(|e| panic!("{e}"));
    let names: Vec<_> = (0..SOURCES).map(|n| format!("flood_{}_{n}", std::process::id())).collect();
    let start = Arc::new(std::sync::Barrier::new(SOURCES));
    let ask = |name: &str| {
        let source = mill.source(&format!("segment:{name}")).unwrap_or_else(|e| panic!("{e}"));
        start.wait();
        let began = Instant::now();
        let mut seen = leaf::Seen::default();
        while began.elapsed() < LASTS {
            seen.count(source.next().map(|_| ()).map_err(|e| e.code.name().to_owned()), began);
        }
        seen
    };
    let ours: Vec<leaf::Seen> = std::thread::scope(|scope| {
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(|| ask(name))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    });
    let theirs = leaf::flood(url, SOURCES, LASTS, 2000);
    println!("\n### A flood on {SOURCES} new sources at once, a thread each, two seconds\n");
    println!("| row | worst first id, ms | ids | failed calls | |\n|---|---:|---:|---:|---|");
    let mut all = BTreeMap::new();
    for (row, seen) in [("keymill, default options", ours), ("double buffer of Leaf, step 2000", theirs)] {
        let worst =
            seen.iter().map(|one| one.first.unwrap_or(LASTS)).max().unwrap_or_default().as_secs_f64() * 1e3;
        let ids: u64 = seen.iter().map(|one| one.ids).sum();
        let failed: u64 = seen.iter().map(|one| one.failed).sum();
        let verdict = if row.starts_with("double") {
            ""
        } else if worst < 2000.0 && failed == 0 {
            "met"
        } else {
            "missed"
        };
        println!("| {row} | {worst:.1} | {ids} | {failed} | {verdict} |");
        all.insert(row, json!({"worst_first_ms": worst, "ids": ids, "failed": failed}));
    }
    json!(all)
}

/// What a reservation costs where many sources are due at the same time: one after another, and in one go, in turns.
fn together(name: &str, mut store: Box<dyn Store>, rounds: usize) -> Value {
    let mut requests: Vec<_> =
        (0..MOST_AT_ONCE).map(|n| request(Scheme::Keymill, &format!("together{n}"))).collect();
    store.init(&[requests[0].key.clone()], false).unwrap_or_else(|fault| panic!("{fault}"));
    let (mut alone, mut in_company) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let began = Instant::now();
        for request in &mut requests {
            let got = store.reserve(request).unwrap_or_else(|fault| panic!("{fault}"));
            request.high_water = Mark { period: got.period, next: got.hi };
        }
        alone.push(began.elapsed().as_secs_f64() * 1e6 / MOST_AT_ONCE as f64);
        let began = Instant::now();
        let answers = store.reserve_all(&requests);
        in_company.push(began.elapsed().as_secs_f64() * 1e6 / MOST_AT_ONCE as f64);
        for (request, answer) in requests.iter_mut().zip(answers) {
            let got = answer.expect("nothing is out of order").unwrap_or_else(|fault| panic!("{fault}"));
            request.high_water = Mark { period: got.period, next: got.hi };
        }
    }
    let (alone, in_company) = (median(&mut alone), median(&mut in_company));
    println!("| {name} | {alone:.0} | {in_company:.1} | {:.1} |", alone / in_company);
    json!({"alone_us": alone, "together_us": in_company})
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = |flag: &str| args.iter().any(|a| a == flag);
    if !given("--bench") {
        println!(
            "a benchmark, not a test: ci/mariadb run ci/postgres run ci/redis run cargo bench -p keymill --bench stores"
        );
        return;
    }
    let rounds = if given("--quick") { 15 } else { 101 };
    let only = args.iter().position(|a| a == "--only").and_then(|at| args.get(at + 1));
    let wanted = |section: &str| only.is_none_or(|only| only == section);
    let variable = |name: &str| {
        let url = std::env::var(name).ok();
        if url.is_none() {
            println!("{name} is not set: that server is left out");
        }
        url
    };
    let mut all = serde_json::Map::new();
    let folder = tempfile::tempdir_in(".").expect("a folder on a real disk");
    let mariadb = variable("KEYMILL_TEST_MYSQL");
    if wanted("reservations") {
        let mut beds = vec![sqlite_bed(&folder)];
        beds.extend(mariadb.clone().map(mysql_bed));
        beds.extend(variable("KEYMILL_TEST_POSTGRES").map(postgres_bed));
        beds.extend(variable("KEYMILL_TEST_REDIS").map(redis_bed));
        for bed in &beds {
            all.insert(format!("reservations {}", bed.name), reservations(bed, rounds));
        }
    }
    if wanted("together") {
        println!("\n### {MOST_AT_ONCE} sources due at the same time, µs a reservation\n");
        println!("| store | one after another | in one go | times |\n|---|---:|---:|---:|");
        let path = folder.path().join("together.db");
        let mut stores: Vec<(&str, Box<dyn Store>)> =
            vec![("SQLite", Box::new(SqliteStore::new(path, sqlite::Options::default())))];
        if let Some(url) = &mariadb {
            stores.push(("MariaDB", Box::new(MysqlStore::new(options(url)))));
        }
        if let Some(url) = variable("KEYMILL_TEST_POSTGRES") {
            stores.push(("PostgreSQL", Box::new(PostgresStore::new(options(&url)))));
        }
        if let Some(url) = variable("KEYMILL_TEST_REDIS") {
            let of =
                keymill::store::redis::Options { server: options(&url), sentinel: None, wait_replicas: 0 };
            stores.push(("Redis", Box::new(RedisStore::new(of))));
        }
        for (name, store) in stores {
            all.insert(format!("together {name}"), together(name, store, rounds));
        }
    }
    if let Some(url) = &mariadb {
        if wanted("batch") {
            all.insert("batch".to_owned(), batches("MariaDB", url));
        }
        if wanted("flood") {
            all.insert("flood".to_owned(), flood(url));
        }
    }
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|a| a.ends_with("deps")).and_then(|deps| deps.ancestors().nth(2));
    let path =
        target.map_or_else(|| "target".into(), std::path::PathBuf::from).join("bench").join("stores.json");
    let written = std::fs::create_dir_all(path.parent().unwrap_or(&path))
        .and_then(|()| std::fs::write(&path, format!("{:#}\n", Value::Object(all))));
    match written {
        Ok(()) => println!("\n{}", path.display()),
        Err(error) => println!("\n{} was not written: {error}", path.display()),
    }
}
