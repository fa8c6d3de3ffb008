//! What programs that write feel of a copy: how long a write through `Shards` takes while the rows of its range are copied, and while none are.
//!
//! ```text
//! cargo run --release -p keymill-tests --example copy_cost [-- --rows N]
//! ```
//!
//! Three threads change rows anywhere in the range, and one changes rows in front of the copy, where it is about to lock; each pauses for 5 ms
//! after a write. MariaDB and PostgreSQL are started for the program. A figure is no test: the program never fails for one.

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keymill::{
    Change, Mill, MoveOptions, MovedRows, Moves, Router, RowsEvent, ShardConnection, ShardFailure, ShardKind,
    ShardRow, Shards,
};
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, postgres};
use mysql::prelude::Queryable;

/// The first id of the range that moves: genes 32768 to 65535.
const FIRST: u64 = 32_768 << 47;
const WRITERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(5);
/// Without a copy, and the part of a copy at the usual rate that is measured.
const TURN: Duration = Duration::from_secs(8);
/// So many rows in front of a copy one of the writers writes.
const NEAR: u64 = 4000;

/// A connection that goes back to its pool.
struct Pooled<C> {
    connection: Option<C>,
    pool: Arc<Mutex<Vec<C>>>,
}

impl<C> Drop for Pooled<C> {
    fn drop(&mut self) {
        self.pool.lock().expect("no panic").extend(self.connection.take());
    }
}

impl<C: ShardConnection> ShardConnection for Pooled<C> {
    fn kind(&self) -> ShardKind {
        self.connection.as_ref().expect("it is there").kind()
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<ShardRow>, ShardFailure> {
        self.connection.as_mut().expect("it is there").ask(sql)
    }

    fn failure(error: &(dyn StdError + 'static)) -> Option<ShardFailure> {
        C::failure(error)
    }
}

type Open<C> = Arc<dyn Fn(usize) -> C + Send + Sync>;

fn shards<C: ShardConnection + Send + 'static>(router: &Router, open: &Open<C>) -> Shards<Pooled<C>> {
    let pool = |shard| {
        let pool = Arc::new(Mutex::new((0..WRITERS).map(|_| open(shard)).collect::<Vec<_>>()));
        move || {
            let connection = pool.lock().expect("no panic").pop();
            Ok::<_, std::fmt::Error>(Pooled { connection, pool: Arc::clone(&pool) })
        }
    };
    Shards::new(router).shard("s1", pool(0)).shard("s2", pool(1)).table("t_order", "order_id")
}

struct Stage<C> {
    _folder: tempfile::TempDir,
    _mill: Mill,
    moves: Moves,
    rows: MovedRows,
    shards: Shards<Pooled<C>>,
    count: u64,
}

/// The id of a row.
fn id(row: u64, count: u64) -> u64 {
    FIRST + (1 << 62) / count * row
}

impl<C: ShardConnection + Send + 'static> Stage<C> {
    fn new(urls: &[String; 2], open: &Open<C>, count: u64) -> Stage<C> {
        let folder = tempfile::tempdir().expect("a folder");
        let mill = Mill::open(&patient(&format!("sqlite:{}/routes.keymill", folder.path().display())));
        let mill = mill.expect("a mill");
        let table = "version = 1\nsettle = \"1s\"\n[[range]]\nupper = 65535\nshard = \"s1\"\n";
        mill.put_routes("orders", table, Change::Apply).expect("stored");
        let moves = mill.moves("orders").expect("a name");
        let plan = moves.plan(&[("s1", 1), ("s2", 1)], None).expect("a plan");
        let options = MoveOptions { watch: Duration::ZERO, ..MoveOptions::default() };
        moves.start(&plan, 1, &options, Change::Apply).expect("a range moves");
        let [from, to] = urls;
        let rows = MovedRows::new(&format!("s1={from}"), &format!("s2={to}")).table("t_order", "order_id");
        let router = mill.router("orders").expect("a router");
        Stage { _folder: folder, _mill: mill, moves, rows, shards: shards(&router, open), count }
    }

    /// How long each write took, those anywhere and those near, while `work` goes on. It says where a copy is.
    fn during(&self, work: impl FnOnce(&AtomicU64)) -> [Vec<f64>; 2] {
        let (ends, place) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (ends, place) = (&ends, &place);
                    scope.spawn(move || {
                        let mut times = Vec::new();
                        // ordering: Relaxed — a flag, and a place that is not exact.
                        while !ends.load(Ordering::Relaxed) {
                            let row = if writer == 0 {
                                place.load(Ordering::Relaxed) + fastrand::u64(..NEAR)
                            } else {
                                fastrand::u64(..self.count)
                            };
                            let id = id(row.min(self.count - 1), self.count);
                            let change =
                                format!("UPDATE t_order SET amount = amount + 1 WHERE order_id = {id}");
                            let began = Instant::now();
                            self.shards
                                .write(id, |connection| Ok(connection.ask(&change)?))
                                .expect("a write");
                            times.push(began.elapsed().as_secs_f64() * 1e3);
                            std::thread::sleep(PAUSE);
                        }
                        times
                    })
                })
                .collect();
            work(&place);
            // ordering: Relaxed — see above.
            ends.store(true, Ordering::Relaxed);
            let mut all = writers.into_iter().map(|writer| writer.join().expect("a writer"));
            let near = all.next().expect("writers");
            [all.flatten().collect(), near]
        })
    }

    /// A copy, for so long at the most; answers with how many rows it had done.
    fn copy(&self, per_second: u64, most: Duration, place: &AtomicU64) -> u64 {
        let (began, mut done) = (Instant::now(), 0);
        let mut on_event = |event: RowsEvent<'_>| {
            if let RowsEvent::Progress { share, rows, .. } = event {
                done = rows;
                // ordering: Relaxed — see above.
                place.store((share * self.count as f64) as u64, Ordering::Relaxed);
            }
            if began.elapsed() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let rows = self.rows.clone().rows_per_second(per_second);
        let _ = self.moves.copy(&rows, Change::Apply, &mut on_event);
        done
    }
}

fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

fn show(what: &str, [mut all, mut near]: [Vec<f64>; 2], more: &str) {
    let line = |times: &mut Vec<f64>| {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| percentile(times, share));
        format!("{p50:7.2} {p99:7.2} {max:7.1}")
    };
    println!(
        "{what:38} {}   {}   {:6} writes {more}",
        line(&mut all),
        line(&mut near),
        all.len() + near.len()
    );
}

fn measure<C: ShardConnection + Send + 'static>(title: &str, stage: &Stage<C>, mut empty: impl FnMut()) {
    println!("\n{title}: milliseconds of a write, p50, p99 and the longest: anywhere; in front of the copy");
    for _ in 0..2 {
        let without = stage.during(|_| std::thread::sleep(TURN));
        show("no copy", without, "");
        for (what, per_second, most) in [
            ("copy, 10 000 rows a second", 10_000, TURN),
            ("copy, as quick as it can", u64::MAX, Duration::from_secs(30)),
        ] {
            let (mut rows, mut took) = (0, Duration::ZERO);
            let times = stage.during(|place| {
                let began = Instant::now();
                rows = stage.copy(per_second, most, place);
                took = began.elapsed();
            });
            show(what, times, &format!("{:.0} rows a second", rows as f64 / took.as_secs_f64()));
            empty();
        }
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let count = words
        .windows(2)
        .find(|pair| pair[0] == "--rows")
        .map_or(1_000_000, |pair| pair[1].parse().expect("a number of rows"));
    let columns = "order_id BIGINT PRIMARY KEY, version BIGINT NOT NULL, buyer BIGINT, state VARCHAR(20), amount DECIMAL(12,2), note VARCHAR(200)";
    let step = (1_u64 << 62) / count;
    {
        let server = mariadb::Private::start("");
        let mut root = server.root();
        let url = server.url();
        let base = url.rsplit_once('/').expect("a database").0.to_owned();
        let urls = ["a", "b"].map(|name| format!("{base}/{name}"));
        for name in ["a", "b"] {
            root.query_drop(format!("CREATE DATABASE {name}")).expect("a database");
            root.query_drop(format!("GRANT ALL ON {name}.* TO keymill@'%'")).expect("a grant");
            root.query_drop(format!("CREATE TABLE {name}.t_order ({columns}, KEY (buyer))"))
                .expect("a table");
        }
        root.query_drop(format!("INSERT INTO a.t_order SELECT {FIRST} + {step} * (seq - 1), 1, seq % 65536, 'paid', seq / 100, REPEAT('n', seq % 150) FROM ids.seq_1_to_{count}"))
            .expect("rows");
        let of_shards = urls.clone();
        let open: Open<mysql::Conn> = Arc::new(move |shard| mariadb::connection_of(&of_shards[shard]));
        let stage = Stage::new(&urls, &open, count);
        measure("MariaDB", &stage, || root.query_drop("TRUNCATE b.t_order").expect("it is empty"));
    }
    let server = postgres::Private::start("");
    let url = server.url();
    let root = postgres::Sql::to(&server.options());
    for name in ["a", "b"] {
        root.say(&format!("CREATE SCHEMA {name}; CREATE TABLE {name}.t_order ({columns}); CREATE INDEX ON {name}.t_order (buyer)"));
    }
    root.say(&format!("INSERT INTO a.t_order SELECT {FIRST} + {step} * (n - 1), 1, n % 65536, 'paid', n / 100, repeat('n', (n % 150)::int) FROM generate_series(1, {count}::bigint) n; ANALYZE a.t_order"));
    let urls = ["a", "b"].map(|name| format!("{url}?schema={name}"));
    let open: Open<::postgres::Client> = Arc::new(move |shard| {
        let mut client = ::postgres::Client::connect(&url, ::postgres::NoTls).expect("a client");
        client.batch_execute(&format!("SET search_path = {}", ["a", "b"][shard])).expect("a schema");
        client
    });
    let stage = Stage::new(&urls, &open, count);
    measure("PostgreSQL", &stage, || _ = root.say("TRUNCATE b.t_order"));
}
