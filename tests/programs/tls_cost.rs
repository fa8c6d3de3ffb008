//! What TLS adds to a reservation on loopback: one counter, one row, one connection, beside the cheapest statement of the same server.
//!
//! ```text
//! cargo run --release -p keymill-tests --example tls_cost [-- [--quick] [SERVER…]]
//! ```
//!
//! Each server is measured twice: as keymill wants it, and then with commits that do not wait for the disk, which leaves what the wire costs.
//!
//! A SERVER is `mariadb`, `postgres` or `redis`, or one of another version that `ci/servers/versions` lists: `mariadb=mysql-9.7`. Each is
//! started for itself, with a certificate, and stopped. All rows take turns within each round, in a new order, so what the machine does
//! beside falls on all of them. A ratio is the median of the rounds' own, with its quartiles. Beside the time stands the processor time of
//! this program, which other programs on the machine do not lengthen by waiting. A figure is no test: the program never fails for one.

use std::process::Command;
use std::time::{Duration, Instant};

use keymill::store::mysql::MysqlStore;
use keymill::store::postgres::PostgresStore;
use keymill::store::redis::RedisStore;
use keymill::store::server::{ServerOptions, Tls, TlsMode};
use keymill::store::{Durability, Key, Mark, Request, Scheme, Store};
use keymill_tests::authority::Authority;
use keymill_tests::{mariadb, postgres, redis};
use mysql::prelude::Queryable;

/// Numbers of one reservation.
const STEP: u64 = 100;
/// How long a row's turn is.
const TURN: Duration = Duration::from_millis(25);
/// What TLS may add, as a part of a reservation without it.
const GOAL: f64 = 1.15;
/// Where the rows stand that others are compared with.
const CHEAPEST: usize = 0;
const PLAIN: usize = 1;
const DEFAULT: [&str; 4] = ["mariadb", "mariadb=mysql-9.7", "postgres", "redis"];

struct Row {
    name: &'static str,
    /// The connection's protection.
    protection: String,
    work: Box<dyn FnMut()>,
}

/// A started server.
struct Bed {
    _server: Box<dyn std::any::Any>,
    /// Lets commits be acknowledged before they are on the disk.
    leave_the_disk_out: Box<dyn Fn()>,
    cheapest: (&'static str, Box<dyn FnMut()>),
    /// keymill's store with these options.
    store: fn(ServerOptions) -> Box<dyn Store>,
    /// Without TLS, and inside it.
    plain: ServerOptions,
    encrypted: ServerOptions,
}

fn mariadb_bed(authority: &Authority) -> Bed {
    let server = mariadb::Private::encrypted(authority, "");
    let mut bare = mariadb::connection_of(&server.url());
    for sql in [
        "CREATE TABLE bench_update (k VARCHAR(128) CHARACTER SET ascii PRIMARY KEY, n BIGINT NOT NULL)",
        "INSERT INTO bench_update VALUES ('one', 0)",
    ] {
        bare.query_drop(sql).expect("a table");
    }
    let update = bare.prep("UPDATE bench_update SET n = n + ? WHERE k = ?").expect("a statement");
    let plain = mariadb::options_of(&server.url());
    let root = std::cell::RefCell::new(server.root());
    Bed {
        _server: Box::new(server),
        leave_the_disk_out: Box::new(move || {
            let set = "SET GLOBAL innodb_flush_log_at_trx_commit = 2";
            root.borrow_mut().query_drop(set).expect("a setting");
        }),
        cheapest: (
            "one `UPDATE`, bare client",
            Box::new(move || bare.exec_drop(&update, (STEP, "one")).expect("an answer")),
        ),
        store: |options| Box::new(MysqlStore::new(options)),
        encrypted: plain.clone(),
        plain,
    }
}

fn postgres_bed() -> Bed {
    let (server, authority) = postgres::Private::encrypted();
    let plain = server.options();
    let root = postgres::Sql::root(&server.url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut config = tokio_postgres::Config::new();
    config.user(&plain.user).password(plain.password.reveal()).dbname(&plain.database);
    let (bare, update) = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(plain.hosts[0].clone()).await.expect("a server");
        stream.set_nodelay(true).expect("an option");
        let (bare, connection) =
            config.connect_raw(stream, tokio_postgres::NoTls).await.expect("the server lets us in");
        tokio::spawn(connection);
        let table = "CREATE TABLE bench_update (k text PRIMARY KEY, n bigint NOT NULL); \
                     INSERT INTO bench_update VALUES ('one', 0)";
        bare.batch_execute(table).await.expect("a table");
        let update = bare.prepare("UPDATE bench_update SET n = n + $1 WHERE k = $2").await;
        (bare, update.expect("a statement"))
    });
    Bed {
        _server: Box::new((server, authority)),
        leave_the_disk_out: Box::new(move || {
            root.say("ALTER SYSTEM SET fsync = off");
            let _ = root.rows("SELECT pg_reload_conf()");
            while root.rows("SHOW fsync") != [["off"]] {
                std::thread::sleep(Duration::from_millis(1));
            }
        }),
        cheapest: (
            "one `UPDATE`, bare client",
            Box::new(move || {
                let done = runtime.block_on(bare.execute(&update, &[&(STEP as i64), &"one"]));
                assert_eq!(done.expect("an answer"), 1);
            }),
        ),
        store: |options| Box::new(PostgresStore::new(options)),
        encrypted: plain.clone(),
        plain,
    }
}

fn redis_bed(authority: &Authority) -> Bed {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let server = redis::Private::start(&format!(
        "--tls-port {port} --tls-cert-file {} --tls-key-file {} --tls-ca-cert-file {} --tls-auth-clients no",
        authority.file("server.pem").display(),
        authority.file("server.key").display(),
        authority.file("ca.pem").display()
    ));
    let mut bare = redis::connection_of(&server.url());
    let url = server.url();
    let plain = redis::options_of(&server.url()).server;
    let encrypted = ServerOptions { hosts: vec![(plain.hosts[0].0.clone(), port)], ..plain.clone() };
    Bed {
        _server: Box::new(server),
        leave_the_disk_out: Box::new(move || {
            let _: ::redis::Value =
                redis::say(&mut redis::connection_of(&url), &["CONFIG", "SET", "appendfsync", "no"]);
        }),
        cheapest: (
            "one `INCRBY`, bare client",
            Box::new(move || {
                let _: u64 = redis::say(&mut bare, &["INCRBY", "bench_update", "100"]);
            }),
        ),
        store: |server| {
            Box::new(RedisStore::new(redis::RedisOptions { server, sentinel: None, wait_replicas: 0 }))
        },
        plain,
        encrypted,
    }
}

/// Reserves again and again from a row of its own, as a mill's keeper does.
fn reserving(bed: &Bed, name: &'static str, mode: TlsMode, source: &str) -> Row {
    let encrypted = mode == TlsMode::Require;
    let options = if encrypted { &bed.encrypted } else { &bed.plain };
    let mut store = (bed.store)(ServerOptions {
        tls: Tls::new(mode),
        // The second half of the run has settings that lose commits.
        durability: Durability::Warn,
        ..options.clone()
    });
    let key = Key { step: STEP, ..Key::segment(Scheme::Keymill, Scheme::Keymill.default_table(), source) };
    let mut request = Request::new(&std::sync::Arc::new(key), STEP);
    store.init(&[request.key.clone()], false).unwrap_or_else(|fault| panic!("{fault}"));
    let facts = store.facts().unwrap_or_else(|fault| panic!("{fault}"));
    let protection = facts.tls.split([',', ' ']).next().unwrap_or_default().to_owned();
    let work = move || {
        let got = store.reserve(&request).unwrap_or_else(|fault| panic!("{fault}"));
        request.high_water = Mark { period: got.period, next: got.hi };
    };
    Row { name, protection, work: Box::new(work) }
}

/// The version as the server says it.
fn version(bed: &Bed) -> String {
    let facts = (bed.store)(bed.plain.clone()).facts().unwrap_or_else(|fault| panic!("{fault}"));
    format!("{} {}", facts.dialect, facts.version)
}

/// The processor time of this process so far, in microseconds: its thread of the connection, where it has one, counts too.
fn processor_us() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0, "the kernel keeps this clock");
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// The quartiles: a fourth is below the first, half below the second, a fourth above the third.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|at| values.get(values.len() * at / 4).copied().unwrap_or(f64::NAN))
}

fn load() -> String {
    let all = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    all.split(' ').next().unwrap_or_default().to_owned()
}

/// Prints one server's table.
fn measure(server: &str, rounds: usize) {
    let authority = Authority::new();
    let bed = match server {
        "mariadb" => mariadb_bed(&authority),
        "postgres" => postgres_bed(),
        "redis" => redis_bed(&authority),
        other => panic!("`{other}` is no server of ci/servers; use mariadb, postgres or redis"),
    };
    let title = version(&bed);
    // The row that TLS is compared with comes first; the second one's login needs no TLS, so it is to cost nothing.
    let mut rows = vec![
        reserving(&bed, "a reservation, `tls=off`", TlsMode::Off, "off"),
        reserving(&bed, "a reservation, no `tls=`", TlsMode::Default, "default"),
        reserving(&bed, "a reservation, `tls=require`", TlsMode::Require, "require"),
    ];
    let (name, work) = bed.cheapest;
    rows.insert(0, Row { name, protection: "none".to_owned(), work });
    let before = load();
    let on_disk = take_turns(&mut rows, rounds);
    (bed.leave_the_disk_out)();
    let without = take_turns(&mut rows, rounds);
    println!(
        "\n#### TLS on loopback: {title}\n\nLoad {before} before and {} after; {rounds} rounds each.\n",
        load()
    );
    println!(
        "| row | protection | µs | of the cheapest statement | of `tls=off` | goal | | without the disk, µs | of the cheapest statement | of `tls=off` | goal | | processor of the client, µs |"
    );
    println!("|---|---|---:|---:|---:|---|---|---:|---:|---:|---|---|---:|");
    for (at, row) in rows.iter().enumerate() {
        let goal = if row.protection == "none" { String::new() } else { format!("≤ {GOAL}") };
        let [disk, wire] = [&on_disk, &without].map(|turns| turns.columns(at, &goal));
        let [_, processor, _] = quartiles(without.processor[at].clone());
        println!("| {} | {} | {disk} | {wire} | {processor:.0} |", row.name, row.protection);
    }
}

/// What each row's turns took, in microseconds a statement.
struct Turns {
    took: Vec<Vec<f64>>,
    processor: Vec<Vec<f64>>,
}

impl Turns {
    /// The time of a row, and its ratios to two others with their quartiles.
    fn columns(&self, at: usize, goal: &str) -> String {
        let against = |base: usize| {
            quartiles(self.took[at].iter().zip(&self.took[base]).map(|(own, base)| own / base).collect())
        };
        let shown = |[low, median, high]: [f64; 3]| format!("{median:.2} ({low:.2}–{high:.2})");
        let [low, median, high] = quartiles(self.took[at].clone());
        let of_plain = against(PLAIN);
        let verdict = match goal {
            "" => "",
            _ if of_plain[1] <= GOAL => "met",
            _ => "missed",
        };
        let (of_cheapest, of_plain) = (shown(against(CHEAPEST)), shown(of_plain));
        format!("{median:.0} ({low:.0}–{high:.0}) | {of_cheapest} | {of_plain} | {goal} | {verdict}")
    }
}

fn take_turns(rows: &mut [Row], rounds: usize) -> Turns {
    for row in rows.iter_mut() {
        (0..50).for_each(|_| (row.work)());
    }
    let mut took: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    let mut processor = took.clone();
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..rounds {
        random.shuffle(&mut order);
        for &at in &order {
            let (began, used, mut done) = (Instant::now(), processor_us(), 0u32);
            while began.elapsed() < TURN {
                (rows[at].work)();
                done += 1;
            }
            took[at].push(began.elapsed().as_secs_f64() * 1e6 / f64::from(done));
            processor[at].push((processor_us() - used) / f64::from(done));
        }
    }
    Turns { took, processor }
}

fn main() {
    const ONE: &str = "--one";
    let mut given: Vec<String> = std::env::args().skip(1).collect();
    let is_quick = given.iter().any(|word| word == "--quick");
    given.retain(|word| word != "--quick");
    let rounds = if is_quick { 15 } else { 201 };
    if let [one, server] = given.as_slice()
        && one == ONE
    {
        return measure(server, rounds);
    }
    if given.is_empty() {
        given = DEFAULT.map(str::to_owned).to_vec();
    }
    let program = std::env::current_exe().expect("a path");
    for server in &given {
        // A process for each: the version is a variable of the scripts.
        let (name, version) = server.split_once('=').unwrap_or((server, ""));
        let mut one = Command::new(&program);
        one.args([ONE, name]).env(format!("KEYMILL_CI_{}_VERSION", name.to_uppercase()), version);
        let done = one.args(is_quick.then_some("--quick")).status().expect("the program");
        assert!(done.success(), "{server}: {done}");
    }
}
