//! The insert test of PingCAP's article on serial numbers in TiDB: each transaction writes 20 rows into one table and 100 into another, with
//! snowflakes as primary keys, here from four processes at once on a MariaDB. By turns with plain and with scattered ids, each into tables
//! of its own.
//!
//! ```text
//! ci/servers/mariadb run sh -c 'cargo run --release -p keymill-tests --example inserts -- "$KEYMILL_TEST_MYSQL" [SECONDS [ROUNDS]]'
//! ```
//!
//! It prints transactions a second of each form, and the ratio to plain ids. The article's figures are TiDB's: there rising keys go to one
//! region of one server. On a MariaDB, which has one tree for a table, rising keys are the best case.

use std::fmt::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use keymill::{Change, Mill, Source};
use mysql::prelude::Queryable;

const PROCESSES: usize = 4;
const GLOBAL: usize = 20;
const BRANCH: usize = 100;

/// The forms of ids, each with its turns.
const FORMS: [&str; 5] = ["", "scatter=1", "scatter=2", "scatter=3", "scatter=high:4"];

/// The article's tables.
const TABLES: [&str; 2] = [
    "CREATE TABLE `T_TX_GLOBAL_LIST` (
        `global_tx_id` varchar(32) NOT NULL, `global_tx_no` bigint NOT NULL, `trace_id` varchar(18) NOT NULL,
        `busi_unique_seq` varchar(18) NOT NULL, `as_code` varchar(10) NOT NULL, `as_version` varchar(5) NOT NULL,
        `framework_type` char(1) NOT NULL, `tx_stat` char(1) NOT NULL, `code` char(2) DEFAULT NULL, `msg` varchar(32) DEFAULT NULL,
        `create_time` timestamp NOT NULL, `update_time` timestamp NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP,
        PRIMARY KEY (`global_tx_no`), KEY `index1` (`create_time`,`tx_stat`)) ENGINE=InnoDB",
    "CREATE TABLE `T_TX_BRANCH_LIST` (
        `branch_tx_id` varchar(32) NOT NULL, `branch_tx_no` bigint NOT NULL, `global_tx_no` bigint NOT NULL,
        `trace_id` varchar(18) NOT NULL, `busi_unique_seq` varchar(18) NOT NULL, `ms_code` varchar(10) NOT NULL,
        `ms_version` varchar(5) NOT NULL, `framework_type` char(1) NOT NULL, `tx_stat` char(1) NOT NULL,
        `code` char(2) DEFAULT NULL, `msg` varchar(32) DEFAULT NULL, `input_data` longtext NOT NULL,
        `create_time` timestamp NOT NULL, `update_time` timestamp NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP,
        PRIMARY KEY (`branch_tx_no`), KEY `index1` (`create_time`,`tx_stat`), KEY `index3` (`global_tx_no`)) ENGINE=InnoDB",
];

fn connect(url: &str) -> mysql::Conn {
    mysql::Conn::new(format!("{url}?prefer_socket=false").as_str()).expect("the server answers")
}

/// The tables of a form.
fn names(form: usize) -> [String; 2] {
    [format!("inserts_global_{form}"), format!("inserts_branch_{form}")]
}

fn source(mill: &Mill, form: usize) -> Source {
    let more = FORMS[form];
    mill.source(&format!("snowflake:inserts{form}?deadline=60s&{more}")).expect("a source")
}

/// One process: transactions until the time is over. Prints how many.
fn insert(url: &str, form: usize, length: Duration) {
    let mill = Mill::open(url).expect("a mill");
    let ids = source(&mill, form);
    let mut connection = connect(url);
    let [global, branch] = names(form);
    let input = "x".repeat(100);
    let ends = Instant::now() + length;
    let mut count = 0;
    while Instant::now() < ends {
        let globals = ids.take(GLOBAL).expect("ids");
        let branches = ids.take(BRANCH).expect("ids");
        let mut first = format!("INSERT INTO {global} VALUES ");
        for (at, id) in globals.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ =
                write!(first, "{comma}('g{id}',{id},'trace','unique','as','1','A','0',NULL,NULL,NOW(),NULL)");
        }
        let mut second = format!("INSERT INTO {branch} VALUES ");
        for (at, id) in branches.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let global = globals[at * GLOBAL / BRANCH];
            let _ = write!(
                second,
                "{comma}('b{id}',{id},{global},'trace','unique','ms','1','A','0',NULL,NULL,'{input}',NOW(),NULL)"
            );
        }
        for statement in ["BEGIN", &first, &second, "COMMIT"] {
            connection.query_drop(statement).expect("no key comes twice");
        }
        count += 1;
    }
    println!("{count}");
}

/// A turn of all processes: transactions together.
fn turn(url: &str, form: usize, seconds: u64) -> u64 {
    let program = std::env::current_exe().expect("this program has a path");
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut command = Command::new(&program);
            command.args(["insert", url, &form.to_string(), &seconds.to_string()]).stdout(Stdio::piped());
            command.spawn().expect("a process starts")
        })
        .collect();
    let outputs = children.into_iter().map(|child| child.wait_with_output().expect("a process ends"));
    outputs
        .map(|output| {
            assert!(output.status.success(), "a process failed");
            String::from_utf8_lossy(&output.stdout).trim().parse::<u64>().expect("a count")
        })
        .sum()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    match args[..] {
        ["insert", url, form, seconds] => {
            insert(url, number(form) as usize, Duration::from_secs(number(seconds)));
        }
        [url] => measure(url, 5, 5),
        [url, seconds] => measure(url, number(seconds), 5),
        [url, seconds, rounds] => measure(url, number(seconds), number(rounds)),
        _ => eprintln!("inserts URL [SECONDS [ROUNDS]]"),
    }
}

fn measure(url: &str, seconds: u64, rounds: u64) {
    let mut root = connect(url);
    let mill = Mill::open(url).expect("a mill");
    for (form, options) in FORMS.iter().enumerate() {
        for (name, table) in names(form).iter().zip(TABLES) {
            root.query_drop(format!("DROP TABLE IF EXISTS {name}")).expect("dropped");
            let (_, rest) = table.split_once(" (").expect("a table");
            root.query_drop(format!("CREATE TABLE {name} ({rest}")).expect("created");
        }
        mill.init(&[&format!("snowflake:inserts{form}?{options}")], Change::Apply).expect("the pool");
    }
    let mut counts = vec![Vec::new(); FORMS.len()];
    for round in 0..rounds {
        for at in 0..FORMS.len() {
            // Another first form in each round.
            let form = (at + round as usize) % FORMS.len();
            counts[form].push(turn(url, form, seconds));
        }
    }
    println!(
        "{PROCESSES} processes, {GLOBAL} + {BRANCH} rows a transaction, {rounds} turns of {seconds} s each\n"
    );
    println!("| ids | transactions/s | rows/s | of plain ids |\n|---|---:|---:|---:|");
    for (form, turns) in counts.iter().enumerate() {
        let all: u64 = turns.iter().sum();
        for (name, rows) in names(form).iter().zip([GLOBAL, BRANCH]) {
            let found: Option<u64> =
                root.query_first(format!("SELECT COUNT(*) FROM {name}")).expect("a count");
            assert_eq!(found, Some(all * rows as u64), "rows of {name}");
        }
        let mut ratios: Vec<f64> =
            turns.iter().zip(&counts[0]).map(|(count, plain)| *count as f64 / *plain as f64).collect();
        ratios.sort_by(f64::total_cmp);
        let a_second = all as f64 / (rounds * seconds) as f64;
        let name = if FORMS[form].is_empty() { "plain" } else { FORMS[form] };
        println!(
            "| {name} | {a_second:.0} | {:.0} | {:.2} |",
            a_second * (GLOBAL + BRANCH) as f64,
            ratios[ratios.len() / 2]
        );
    }
}
