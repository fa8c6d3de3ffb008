//! Hibernate and EclipseLink themselves beside keymill on one row of their table generators, and on one of their sequences: two of their nodes, two mills and
//! mills that come and go, no id twice.
//!
//! `ci/steps/jpa` compiles the nodes and names them in `KEYMILL_TEST_JPA`, the class path of `JpaNodes`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use keymill::Mill;
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, postgres};

/// The provider, its setting, what it says of itself, what each node takes, and how keymill's source names its table.
const CASES: [(&str, &str, &str, usize, &str); 4] = [
    ("hibernate", "pooled", "PooledOptimizer", 6_000, "jpa_table&allocation=50&step=100&table=orders"),
    ("hibernate", "pooled-lo", "PooledLoOptimizer", 6_000, "jpa_table&allocation=50&step=100&table=orders"),
    ("hibernate", "none", "NoopOptimizer", 400, "jpa_table&allocation=50&step=100&table=orders"),
    (
        "eclipselink",
        "",
        "EntityManagerFactoryImpl",
        6_000,
        "jpa_table&allocation=50&step=100&table=SEQUENCE&columns=sequence_name:SEQ_NAME,next_val:SEQ_COUNT",
    ),
];

/// The same for sequences.
const SEQUENCES: [(&str, &str, &str, usize, &str); 4] = [
    ("hibernate", "pooled", "PooledOptimizer", 6_000, "jpa_sequence&allocation=50&table=jpa_orders_seq"),
    (
        "hibernate",
        "pooled-lo",
        "PooledLoOptimizer",
        6_000,
        "jpa_sequence&allocation=50&table=jpa_orders_seq&optimizer=pooled-lo",
    ),
    ("hibernate", "none", "NoopOptimizer", 400, "jpa_sequence&allocation=1&table=jpa_orders_seq"),
    ("eclipselink", "", "EntityManagerFactoryImpl", 6_000, "jpa_sequence&allocation=50&table=jpa_orders_seq"),
];

fn beside(
    cases: &[(&str, &str, &str, usize, &str)],
    config: &str,
    jdbc: &str,
    more: &str,
    say: &dyn Fn(&str),
) {
    let classes = std::env::var("KEYMILL_TEST_JPA").expect("KEYMILL_TEST_JPA is not set; run `ci/steps/jpa`");
    let (user, password) = config
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('@'))
        .map_or(("", ""), |(login, _)| login.split_once(':').unwrap_or((login, "")));
    for &(unit, optimizer, counts, count, scheme) in cases {
        for table in ["orders", "SEQUENCE", "jpa_orders", "jpa_sequenced"] {
            say(&format!("DROP TABLE IF EXISTS {table}"));
        }
        say("DROP SEQUENCE IF EXISTS jpa_orders_seq");
        let is_sequence = scheme.starts_with("jpa_sequence");
        let mut nodes = Command::new("java");
        nodes.args(["-XX:TieredStopAtLevel=1", "-cp", &classes, "JpaNodes", unit, jdbc, user, password, "2"]);
        nodes.arg(count.to_string());
        if is_sequence {
            nodes.arg("sequenced=yes");
        }
        nodes.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !optimizer.is_empty() {
            nodes.arg(format!("hibernate.id.optimizer.pooled.preferred={optimizer}"));
        }
        let mut nodes = nodes.spawn().expect("java runs");
        let mut out = BufReader::new(nodes.stdout.take().expect("its output"));
        let mut first = String::new();
        out.read_line(&mut first).expect("a line");
        if first.trim() != format!("counts {counts}") {
            let mut errors = String::new();
            let _ = nodes.stderr.take().map(|mut stderr| stderr.read_to_string(&mut errors));
            panic!("{unit} {optimizer}: {first}{errors}");
        }
        let spec = format!("segment:orders?scheme={scheme}&buffer=5ms&deadline=60s{more}");
        let mills: Vec<Mill> = (0..2).map(|_| Mill::open(&patient(config)).expect("a mill")).collect();
        let sources: Vec<_> = mills.iter().map(|mill| mill.source(&spec).expect("a source")).collect();
        let over = AtomicBool::new(false);
        // ordering: Relaxed — a flag.
        let goes_on = || !over.load(Ordering::Relaxed);
        let mut taken: Vec<(&str, Vec<u64>)> = Vec::new();
        thread::scope(|scope| {
            let goes_on = &goes_on;
            let stay = sources.iter().map(|source| {
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    while goes_on() {
                        ids.extend(source.take(25).expect("ids"));
                        thread::sleep(Duration::from_micros(300));
                    }
                    ids
                })
            });
            let mut ours: Vec<_> = stay.collect();
            // Each gives back what it has not used.
            let spec = &spec;
            ours.push(scope.spawn(move || {
                let mut ids = Vec::new();
                while goes_on() {
                    let mill = Mill::open(&patient(config)).expect("a mill");
                    ids.extend(mill.source(spec).and_then(|source| source.take(3)).expect("ids"));
                    mill.close();
                }
                ids
            }));
            let mut theirs = String::new();
            nodes.stdin.take().expect("its input").write_all(b"\n").expect("it listens");
            out.read_to_string(&mut theirs).expect("ids");
            // ordering: Relaxed — a flag.
            over.store(true, Ordering::Relaxed);
            for ids in ours {
                taken.push(("keymill", ids.join().expect("a mill's taker")));
            }
            let theirs = theirs.lines().map(|line| line.parse().expect("a number"));
            taken.push((unit, theirs.collect()));
        });
        assert!(nodes.wait().expect("it ends").success());
        let mut seen: HashMap<u64, usize> = HashMap::new();
        for (at, (who, ids)) in taken.iter().enumerate() {
            for id in ids {
                if let Some(other) = seen.insert(*id, at) {
                    panic!("{optimizer}: {id} was taken by {who} ({at}) and by {} ({other})", taken[other].0);
                }
            }
        }
        let count_of =
            |who: &str| taken.iter().filter(|(taker, _)| *taker == who).flat_map(|(_, ids)| ids).count();
        // Turns on the row: whose range comes after whose.
        let mut turns: Vec<(u64, usize)> = seen.into_iter().collect();
        turns.sort_unstable();
        let turns = turns.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
        println!(
            "ids  {unit} {optimizer}: {} by two of its nodes, {} by mills, {turns} turns on one row, none twice",
            count_of(unit),
            count_of("keymill")
        );
        assert_eq!(count_of(unit), 2 * (count + usize::from(is_sequence)));
        assert!(turns > 50, "they have not met on the row");
    }
}

#[test]
fn nodes_of_hibernate_and_eclipselink_and_mills_never_take_a_number_twice_on_mariadb() {
    let config = mariadb::url();
    let jdbc = format!("jdbc:mariadb://{}", config.split_once('@').expect("a login").1);
    beside(&CASES, &config, &jdbc, "", &mariadb::say);
}

/// MariaDB's sequences repeat values after a crash, which `unsafe=on` accepts; here nothing crashes.
#[test]
fn nodes_of_hibernate_and_mills_never_take_a_number_of_a_sequence_twice_on_mariadb() {
    let config = mariadb::url();
    let jdbc = format!("jdbc:mariadb://{}", config.split_once('@').expect("a login").1);
    beside(&SEQUENCES[..3], &config, &jdbc, "&unsafe=on", &mariadb::say);
}

#[test]
fn nodes_of_hibernate_and_eclipselink_and_mills_never_take_a_number_of_a_sequence_twice_on_postgres() {
    let config = postgres::url();
    let jdbc = format!("jdbc:postgresql://{}", config.split_once('@').expect("a login").1);
    let sql = postgres::Sql::shared();
    beside(&SEQUENCES, &config, &jdbc, "", &|text| {
        sql.say(text);
    });
}

#[test]
fn nodes_of_hibernate_and_eclipselink_and_mills_never_take_a_number_twice_on_postgres() {
    let config = postgres::url();
    let jdbc = format!("jdbc:postgresql://{}", config.split_once('@').expect("a login").1);
    let sql = postgres::Sql::shared();
    beside(&CASES, &config, &jdbc, "", &|text| {
        sql.say(text);
    });
}
