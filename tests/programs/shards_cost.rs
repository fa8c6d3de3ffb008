//! What a write through `Shards` takes, beside the same transactions by hand: on the shard of an id that stays, and on both while its range moves.
//!
//! ```text
//! cargo run --release -p keymill-tests --example shards_cost [-- --quick]
//! ```
//!
//! An order with two items in two tables; a write changes the order. MariaDB and PostgreSQL are started for the program, and each is measured
//! with commits that wait for the disk and with commits that do not. All rows take turns within each round, in a new order. A ratio is the
//! median of the rounds' own, with its quartiles. A figure is no test: the program never fails for one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keymill::{Router, ShardConnection, ShardKind, Shards};
use keymill_tests::pooled::Pooled;
use keymill_tests::{mariadb, pooled, postgres};
use mysql::prelude::Queryable;

const TURN: Duration = Duration::from_millis(40);
const ID: u64 = 1 << 60;
const STAYS: &str = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\n";
const MOVES: &str = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\nto = \"s2\"\n";

type Open<C> = Arc<dyn Fn(usize) -> C + Send + Sync>;

fn shards<C: ShardConnection + Send + 'static>(router: &Router, open: &Open<C>) -> Shards<Pooled<C>> {
    let pool = |shard| {
        let open = Arc::clone(open);
        pooled::pool(move || Ok(open(shard)))
    };
    Shards::new(router)
        .shard("s1", pool(0))
        .shard("s2", pool(1))
        .table("t_order", "order_id")
        .table("t_item", "item_of")
}

struct Row {
    name: &'static str,
    work: Box<dyn FnMut()>,
}

fn rows<C: ShardConnection + Send + 'static>(open: &Open<C>) -> Vec<Row> {
    let change = format!("UPDATE t_order SET amount = amount + 1 WHERE order_id = {ID}");
    let (mut alone, mut old, mut new) = (open(0), open(0), open(1));
    let is_mysql = old.kind() == ShardKind::MySql;
    let one = change.clone();
    let by_hand = move |connection: &mut C| {
        for sql in ["BEGIN", &one, "COMMIT"] {
            connection.ask(sql).expect("an answer");
        }
    };
    let both = change.clone();
    let lock = if is_mysql { " FOR UPDATE" } else { "" };
    let order = format!("SELECT order_id, amount, note FROM t_order WHERE order_id = {ID}{lock}");
    let items = format!("SELECT item_of, n, name FROM t_item WHERE item_of = {ID}{lock}");
    let two = move || {
        let (lock_old, lock_new) = if is_mysql {
            (order.clone(), order.clone())
        } else {
            (format!("SELECT pg_advisory_xact_lock({ID})"), format!("SELECT pg_advisory_xact_lock(-{ID})"))
        };
        let ask = |connection: &mut C, sql: &str| connection.ask(sql).expect("an answer");
        for sql in ["BEGIN", &lock_old, &both, &order, &items] {
            ask(&mut old, sql);
        }
        for sql in ["BEGIN", &lock_new, &order, &items, &both, "COMMIT"] {
            if sql == "COMMIT" {
                ask(&mut old, sql);
            }
            ask(&mut new, sql);
        }
    };
    let (stays, moves) =
        (Router::from_text(STAYS).expect("a table"), Router::from_text(MOVES).expect("a table"));
    let (staying, moving) = (shards(&stays, open), shards(&moves, open));
    let again = change.clone();
    let work = move |connection: &mut Pooled<C>| {
        connection.ask(&change)?;
        Ok(())
    };
    let once = move |connection: &mut Pooled<C>| {
        connection.ask(&again)?;
        Ok(())
    };
    vec![
        Row { name: "one transaction by hand", work: Box::new(move || by_hand(&mut alone)) },
        Row {
            name: "Shards, the range stays",
            work: Box::new(move || staying.write(ID, work.clone()).expect("a write")),
        },
        Row { name: "both transactions by hand", work: Box::new(two) },
        Row {
            name: "Shards, the range moves",
            work: Box::new(move || moving.write(ID, once.clone()).expect("a write")),
        },
    ]
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|at| values[(values.len() - 1) * at / 4])
}

fn measure(title: &str, rows: &mut [Row], rounds: usize) {
    let mut times = vec![Vec::new(); rows.len()];
    for _ in 0..rounds {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        fastrand::shuffle(&mut order);
        for at in order {
            let (began, mut count) = (Instant::now(), 0);
            while began.elapsed() < TURN {
                (rows[at].work)();
                count += 1;
            }
            times[at].push(began.elapsed().as_secs_f64() * 1e6 / f64::from(count));
        }
    }
    println!("\n{title}");
    for (at, row) in rows.iter().enumerate() {
        let [_, median, _] = quartiles(times[at].clone());
        let beside = at - at % 2;
        let ratios = times[at].iter().zip(&times[beside]).map(|(one, other)| one / other).collect();
        let [low, ratio, high] = quartiles(ratios);
        println!("{:28} {median:8.0} µs   {ratio:.2} ({low:.2}–{high:.2})", row.name);
    }
}

fn main() {
    let rounds = if std::env::args().any(|word| word == "--quick") { 12 } else { 60 };
    let tables = [
        "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, amount BIGINT NOT NULL, note VARCHAR(40))".to_owned(),
        "CREATE TABLE t_item (item_of BIGINT REFERENCES t_order (order_id), n BIGINT, name VARCHAR(40), PRIMARY KEY (item_of, n))".to_owned(),
        format!("INSERT INTO t_order (order_id, amount, note) VALUES ({ID}, 0, 'a note')"),
        format!("INSERT INTO t_item (item_of, n, name) VALUES ({ID}, 1, 'one'), ({ID}, 2, 'two')"),
    ];
    {
        let server = mariadb::Private::start("");
        let mut root = server.root();
        for name in ["a", "b"] {
            root.query_drop(format!("CREATE DATABASE {name}")).expect("a database");
            root.query_drop(format!("GRANT ALL ON {name}.* TO keymill@'%'")).expect("a grant");
        }
        let url = server.url();
        let base = url.rsplit_once('/').expect("a database").0.to_owned();
        let open: Open<mysql::Conn> =
            Arc::new(move |shard| mariadb::connection_of(&format!("{base}/{}", ["a", "b"][shard])));
        for shard in [0, 1] {
            for sql in &tables {
                open(shard).query_drop(sql).expect("a table");
            }
        }
        let mut rows = rows(&open);
        measure("MariaDB", &mut rows, rounds);
        root.query_drop("SET GLOBAL innodb_flush_log_at_trx_commit = 2").expect("a setting");
        measure("MariaDB, commits that do not wait for the disk", &mut rows, rounds);
    }
    let server = postgres::Private::start("");
    let url = server.url();
    let open: Open<::postgres::Client> = Arc::new(move |shard| {
        let mut client = ::postgres::Client::connect(&url, ::postgres::NoTls).expect("a client");
        client
            .batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS s{shard}; SET search_path = s{shard}"))
            .expect("a schema");
        client
    });
    for shard in [0, 1] {
        for sql in &tables {
            open(shard).batch_execute(sql).expect("a table");
        }
    }
    let mut rows = rows(&open);
    measure("PostgreSQL", &mut rows, rounds);
    postgres::Sql::root(&server.url()).say("ALTER SYSTEM SET fsync = off");
    let _ = postgres::Sql::root(&server.url()).rows("SELECT pg_reload_conf()");
    std::thread::sleep(Duration::from_millis(300));
    measure("PostgreSQL, commits that do not wait for the disk", &mut rows, rounds);
}
