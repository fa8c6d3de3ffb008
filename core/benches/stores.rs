//! What a reservation costs on each store and scheme, beside the cheapest statements of the same server; what large batches
//! and floods of new sources cost. How it is measured and what is to be reached: `docs/performance-stores.md`.
//!
//! `ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo bench -p keymill --all-features --bench stores`; `-- --quick` for a first look, `-- --only batch` for one section.
//! A server whose variable is not set is named and left out.

mod leaf;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keymill::Mill;
use keymill::store::mysql::MysqlStore;
use keymill::store::postgres::PostgresStore;
use keymill::store::redis::RedisStore;
use keymill::store::server::ServerOptions;
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Key, MAX_NUMBER, MOST_AT_ONCE, Mark, Request, Scheme, Secret, Store};
use mysql::prelude::Queryable;
use serde_json::{Value, json};
use tokio_postgres::types::{ToSql, Type};

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
    let key = Key { step: STEP, ..Key::segment(scheme, scheme.default_table(), name) };
    Request::new(&Arc::new(key), STEP)
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

/// `scheme://user:password@host:port/database`, as the scripts of `ci/servers/` print it.
fn options(url: &str) -> ServerOptions {
    let parts = || {
        let (_, rest) = url.split_once("://")?;
        let (login, place) = rest.rsplit_once('@')?;
        let (user, password) = login.split_once(':')?;
        let (hosts, database) = place.split_once('/')?;
        let (host, port) = hosts.split_once(':')?;
        Some(ServerOptions {
            hosts: vec![(host.to_owned(), port.parse().ok()?)],
            user: user.to_owned(),
            password: Secret::new(password),
            database: database.to_owned(),
            ..ServerOptions::default()
        })
    };
    parts().unwrap_or_else(|| panic!("`{url}` is not scheme://user:password@host:port/database"))
}

/// The name of the row in which the bare client says a scheme's own statement: what it lacks to one `UPDATE` is the server's,
/// and what the scheme's row lacks to it is keymill's.
fn of_bare(scheme: Scheme) -> String {
    format!("{}'s statement, bare client", scheme.name())
}

/// Bounds of a row that is far from both of its ends.
const BOUNDS: (u64, u64) = (1, MAX_NUMBER / 2);

/// What `store/mysql` says in the common case, word for word, to the rows that the schemes' own turns have made.
fn mysql_statements() -> Vec<(Scheme, &'static str, Vec<mysql::Value>)> {
    let (lowest, highest) = BOUNDS;
    let values = |name: &str, more: &[u64]| {
        let mut values: Vec<mysql::Value> = vec![STEP.into(), name.into()];
        values.extend(more.iter().map(|number| mysql::Value::from(*number)));
        values
    };
    vec![
        (
            Scheme::Keymill,
            "UPDATE `keymill_segment` SET `next` = LAST_INSERT_ID(`next`) + ? WHERE `name` = ? AND `period` = ? \
             AND `next` >= ? AND `next` <= ?",
            values("segment:bench", &[0, lowest, highest]),
        ),
        (
            Scheme::SequenceTable,
            "UPDATE `sequence_table` SET `cur_id` = LAST_INSERT_ID(`cur_id` + ?) WHERE `biz_type` = ? \
             AND `cur_id` >= ? AND `cur_id` <= ? AND `step` = ? AND `time_to_live` = ?",
            values("bench", &[lowest, highest, STEP, 0]),
        ),
        (
            Scheme::LeafAlloc,
            "UPDATE `leaf_alloc` SET `max_id` = LAST_INSERT_ID(`max_id` + ?), `update_time` = CURRENT_TIMESTAMP \
             WHERE `biz_tag` = ? AND `max_id` >= ? AND `max_id` <= ? AND `step` = ?",
            values("bench", &[lowest, highest, STEP]),
        ),
        (
            Scheme::TinyIdInfo,
            "UPDATE `tiny_id_info` SET `max_id` = LAST_INSERT_ID(`max_id` + ?), `version` = `version` + 1, \
             `update_time` = CURRENT_TIMESTAMP WHERE `biz_type` = ? AND `max_id` >= ? AND `max_id` <= ? AND `step` = ? \
             AND `delta` = ? AND `remainder` = ?",
            values("bench", &[lowest, highest, STEP, 1, 0]),
        ),
        (
            Scheme::Cosid,
            "UPDATE `cosid` SET `last_max_id` = LAST_INSERT_ID(`last_max_id` + ?), `last_fetch_time` = UNIX_TIMESTAMP() \
             WHERE `name` = ? AND `last_max_id` >= ? AND `last_max_id` <= ?",
            values("bench", &[lowest, highest]),
        ),
    ]
}

/// The same of `store/postgres`, with the values after the step.
fn postgres_statements() -> Vec<(Scheme, &'static str, &'static str, Vec<i64>)> {
    let (lowest, highest) = (BOUNDS.0 as i64, BOUNDS.1 as i64);
    let step = STEP as i64;
    vec![
        (
            Scheme::Keymill,
            "UPDATE keymill_segment SET next = next + $1, updated_at = now() WHERE name = $2 AND period = $3 \
             AND next >= $4 AND next <= $5 RETURNING next",
            "segment:bench",
            vec![0, lowest, highest],
        ),
        (
            Scheme::SequenceTable,
            "UPDATE sequence_table SET cur_id = cur_id + $1 WHERE biz_type = $2 AND cur_id >= $3 AND cur_id <= $4 \
             AND step = $5 AND time_to_live = $6 RETURNING cur_id",
            "bench",
            vec![lowest, highest, step, 0],
        ),
        (
            Scheme::LeafAlloc,
            "UPDATE leaf_alloc SET max_id = max_id + $1, update_time = CURRENT_TIMESTAMP WHERE biz_tag = $2 \
             AND max_id >= $3 AND max_id <= $4 AND step = $5 RETURNING max_id",
            "bench",
            vec![lowest, highest, step],
        ),
        (
            Scheme::TinyIdInfo,
            "UPDATE tiny_id_info SET max_id = max_id + $1, version = version + 1, update_time = CURRENT_TIMESTAMP \
             WHERE biz_type = $2 AND max_id >= $3 AND max_id <= $4 AND step = $5 AND delta = $6 AND remainder = $7 \
             RETURNING max_id",
            "bench",
            vec![lowest, highest, step, 1, 0],
        ),
        (
            Scheme::Cosid,
            "UPDATE cosid SET last_max_id = last_max_id + $1, last_fetch_time = CAST(EXTRACT(EPOCH FROM now()) AS BIGINT) \
             WHERE name = $2 AND last_max_id >= $3 AND last_max_id <= $4 RETURNING last_max_id",
            "bench",
            vec![lowest, highest],
        ),
    ]
}

/// keymill's own store on a server that the scripts of `ci/servers/` started.
fn store_of(server: &str, url: &str) -> Box<dyn Store> {
    let options = options(url);
    match server {
        "MariaDB" => Box::new(MysqlStore::new(options)),
        "PostgreSQL" => Box::new(PostgresStore::new(options)),
        _ => Box::new(RedisStore::new(keymill::store::redis::RedisOptions {
            server: options,
            sentinel: None,
            wait_replicas: 0,
        })),
    }
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
        let store = || store_of("MariaDB", &url);
        for (scheme, sql, values) in mysql_statements() {
            rows.push(reserving(store(), scheme, "bench", STATEMENT));
            let mut bare = connect();
            let statement = bare.prep(sql).expect("a statement");
            let work = move || bare.exec_drop(&statement, &values).expect("an answer");
            rows.push(Row { name: of_bare(scheme), goal: None, work: Box::new(work) });
        }
        for (scheme, goal, verb, lock) in [
            (Scheme::AutoIncrement, STATEMENT, "INSERT", ""),
            (Scheme::Ticket, TRANSACTION, "REPLACE", " FOR UPDATE"),
        ] {
            rows.push(reserving(store(), scheme, "bench", goal));
            let (mut bare, table) = (connect(), scheme.default_table());
            let first = format!("REPLACE INTO `{table}` (`stub`, `step`) VALUES ('bare', {STEP})");
            bare.query_drop(first).expect("a row");
            let mut ticket = bare.last_insert_id();
            let sql = format!(
                "{verb} INTO `{table}` (`stub`, `step`) SELECT `stub`, ? FROM `{table}` WHERE `stub` = ? AND `id` = ?{lock}"
            );
            let statement = bare.prep(sql).expect("a statement");
            let work = move || {
                bare.exec_drop(&statement, (STEP, "bare", ticket)).expect("an answer");
                ticket = bare.last_insert_id();
            };
            rows.push(Row { name: of_bare(scheme), goal: None, work: Box::new(work) });
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
        let store = || store_of("PostgreSQL", &url);
        for (scheme, sql, name, more) in postgres_statements() {
            rows.push(reserving(store(), scheme, "bench", STATEMENT));
            let (runtime, bare) = connect();
            let mut types = vec![Type::INT8, Type::TEXT];
            types.resize(2 + more.len(), Type::INT8);
            let statement = runtime.block_on(bare.prepare_typed(sql, &types)).expect("a statement");
            let work = move || {
                let step = STEP as i64;
                let mut values: Vec<&(dyn ToSql + Sync)> = vec![&step, &name];
                values.extend(more.iter().map(|number| number as &(dyn ToSql + Sync)));
                let rows = runtime.block_on(bare.query(&statement, &values)).expect("an answer");
                assert_eq!(rows.len(), 1, "its row is there");
            };
            rows.push(Row { name: of_bare(scheme), goal: None, work: Box::new(work) });
        }
        rows.push(reserving(store(), Scheme::Sequence, "bench", STATEMENT));
        let (runtime, bare) = connect();
        let table = Scheme::Sequence.default_table();
        let sql = format!(
            "SELECT pg_advisory_xact_lock_shared((1801812333::bigint << 32) | to_regclass($1)::oid::bigint)::text, \
             nextval(to_regclass($2)), pg_logical_emit_message(true, 'keymill', '')::text FROM {table} s \
             WHERE s.last_value >= CASE WHEN s.is_called THEN $3 ELSE $4 END"
        );
        let types = [Type::TEXT, Type::TEXT, Type::INT8, Type::INT8];
        let statement = runtime.block_on(bare.prepare_typed(&sql, &types)).expect("a statement");
        let work = move || {
            let values: [&(dyn ToSql + Sync); 4] = [&table, &table, &0i64, &1i64];
            let rows = runtime.block_on(bare.query(&statement, &values)).expect("an answer");
            assert_eq!(rows.len(), 1, "a value is drawn");
        };
        rows.push(Row { name: of_bare(Scheme::Sequence), goal: None, work: Box::new(work) });
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
        let (mut asking, mut updating, mut bare) = (connect(), connect(), connect());
        let script: String = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(include_str!("../src/store/redis/reserve.lua"))
            .query(&mut bare)
            .expect("a script");
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
            reserving(store_of("Redis", &url), Scheme::Keymill, "bench", STATEMENT),
            Row {
                name: of_bare(Scheme::Keymill),
                goal: None,
                work: Box::new(move || {
                    let mut command = redis::cmd("EVALSHA");
                    command.arg(&script).arg(1).arg("keymill_segment:segment:bench");
                    command.arg(0).arg(BOUNDS.0).arg(BOUNDS.1).arg(STEP);
                    let lo: Option<u64> = command.query(&mut bare).expect("an answer");
                    assert!(lo.is_some(), "its row is there");
                }),
            },
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
        let store = || Box::new(SqliteStore::new(path.clone(), sqlite::SqliteOptions::default()));
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
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..rounds {
        // Nobody always comes after the same neighbour, whose writes the server may still be at.
        rng.shuffle(&mut order);
        for &at in &order {
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

/// How many new sources come at once, and how long each is asked.
const SOURCES: usize = 100;
const LASTS: Duration = Duration::from_secs(2);

/// A hundred new sources at once, each asked by a thread that goes on for two seconds.
fn flood(url: &str) -> Vec<leaf::Seen> {
    let mill = Mill::open(url).unwrap_or_else(|e| panic!("{e}"));
    mill.init(&[], keymill::Change::Apply).unwrap_or_else(|e| panic!("{e}"));
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
    std::thread::scope(|scope| {
        let threads: Vec<_> = names.iter().map(|name| scope.spawn(|| ask(name))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
    })
}

/// On every server, and beside a double buffer as Leaf's on the one that has its table.
fn floods(servers: &[(&str, String)]) -> Value {
    println!("\n### A flood on {SOURCES} new sources at once, a thread each, two seconds\n");
    println!("| row | worst first id, ms | ids | failed calls | |\n|---|---:|---:|---:|---|");
    let mut all = BTreeMap::new();
    let mut row = |name: String, goal: bool, seen: &[leaf::Seen]| {
        let worst =
            seen.iter().map(|one| one.first.unwrap_or(LASTS)).max().unwrap_or_default().as_secs_f64() * 1e3;
        let ids: u64 = seen.iter().map(|one| one.ids).sum();
        let failed: u64 = seen.iter().map(|one| one.failed).sum();
        let verdict = match goal {
            true if worst < 2000.0 && failed == 0 => "met",
            true => "missed",
            false => "",
        };
        println!("| {name} | {worst:.1} | {ids} | {failed} | {verdict} |");
        all.insert(name, json!({"worst_first_ms": worst, "ids": ids, "failed": failed}));
    };
    for (server, url) in servers {
        row(format!("keymill on {server}, default options"), true, &flood(url));
        if *server == "MariaDB" {
            let seen = leaf::flood(url, SOURCES, LASTS, 2000);
            row(format!("double buffer of Leaf on {server}, step 2000"), false, &seen);
        }
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
            "a benchmark, not a test: ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo bench -p keymill --all-features --bench stores"
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
    let servers: Vec<(&str, String)> = [
        ("MariaDB", "KEYMILL_TEST_MYSQL"),
        ("PostgreSQL", "KEYMILL_TEST_POSTGRES"),
        ("Redis", "KEYMILL_TEST_REDIS"),
    ]
    .into_iter()
    .filter_map(|(server, name)| Some((server, variable(name)?)))
    .collect();
    if wanted("reservations") {
        let mut beds = vec![sqlite_bed(&folder)];
        beds.extend(servers.iter().cloned().map(|(server, url)| match server {
            "MariaDB" => mysql_bed(url),
            "PostgreSQL" => postgres_bed(url),
            _ => redis_bed(url),
        }));
        for bed in &beds {
            all.insert(format!("reservations {}", bed.name), reservations(bed, rounds));
        }
    }
    if let Some((server, url)) = servers.first().filter(|(server, _)| *server == "MariaDB" && wanted("batch"))
    {
        all.insert("batch".to_owned(), batches(server, url));
    }
    if wanted("together") {
        println!("\n### {MOST_AT_ONCE} sources due at the same time, µs a reservation\n");
        println!("| store | one after another | in one go | times |\n|---|---:|---:|---:|");
        let path = folder.path().join("together.db");
        let mut stores: Vec<(&str, Box<dyn Store>)> =
            vec![("SQLite", Box::new(SqliteStore::new(path, sqlite::SqliteOptions::default())))];
        stores.extend(servers.iter().map(|(server, url)| (*server, store_of(server, url))));
        for (name, store) in stores {
            all.insert(format!("together {name}"), together(name, store, rounds));
        }
    }
    if wanted("flood") {
        all.insert("flood".to_owned(), floods(&servers));
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
