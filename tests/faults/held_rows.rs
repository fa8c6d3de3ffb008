//! Another client locks some rows for long: callers of the mill's other sources get their numbers all the same.
//!
//! `ci/servers/mariadb run ci/servers/postgres run cargo test …` names the servers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keymill::{Change, Mill, Source};
use keymill_tests::disguise::Disguise;
use keymill_tests::{mariadb, postgres};

/// A transaction on a connection of its own.
struct Holder(Option<postgres::Sql>, mysql::Conn);

impl Holder {
    fn new(kind: &str) -> Holder {
        Holder((kind == "postgres").then(postgres::Sql::shared), mariadb::connection())
    }

    fn say(&mut self, statement: &str) {
        use mysql::prelude::Queryable;
        match &self.0 {
            Some(sql) => drop(sql.try_say(statement).expect("a statement")),
            None => self.1.query_drop(statement).expect("a statement"),
        }
    }
}

/// The longest wait of a caller of one of `free` sources, and how many of them get an error, while `held` other rows are
/// locked for six seconds.
fn waits(kind: &str, held: usize, free: usize) -> (Duration, Vec<String>, usize) {
    let mysql = Disguise::plain(mariadb::options().hosts[0].clone());
    mysql.instead("SELECT @@version", "SELECT '8.0.33'");
    let url = match kind {
        "postgres" => postgres::url(),
        "mysql" => mysql.in_front_of(&mariadb::url()),
        _ => mariadb::url(),
    };
    let mill = Mill::open(&url).expect("a mill");
    let name = format!("held-{kind}-{held}-{}", std::process::id());
    let source = |n: usize| -> Source {
        mill.source(&format!("segment:{name}-{n:03}?min_step=10&buffer=1ms")).expect("a source")
    };
    let sources: Vec<Source> = (0..held + free).map(source).collect();
    mill.init(&[&format!("segment:{name}-000")], Change::Apply).expect("init");
    for source in &sources {
        source.take(1).expect("ids");
    }
    let mut holder = Holder::new(kind);
    holder.say("BEGIN");
    // One by one: a search for many scans the table, and MariaDB would lock the free rows too.
    for n in 0..held {
        holder.say(&format!(
            "SELECT next FROM keymill_segment WHERE name = 'segment:{name}-{n:03}' FOR UPDATE"
        ));
    }
    let over = AtomicBool::new(false);
    let (mut worst, mut errors, mut served) = (Duration::ZERO, Vec::new(), 0);
    thread::scope(|scope| {
        // ordering: Relaxed — a flag of a test.
        let (is_over, sources) = (|| over.load(Ordering::Relaxed), &sources);
        for source in &sources[..held] {
            scope.spawn(move || {
                while !is_over() {
                    if source.take(10).is_err() {
                        // As the error's hint says: sixty callers that retry at once would be a load of their own.
                        thread::sleep(Duration::from_millis(50));
                    }
                }
            });
        }
        thread::sleep(Duration::from_millis(5));
        let takers: Vec<_> = sources[held..]
            .iter()
            .map(|source| {
                scope.spawn(move || {
                    let (mut worst, mut errors, mut served) = (Duration::ZERO, Vec::new(), 0);
                    let until = Instant::now() + Duration::from_secs(6);
                    while Instant::now() < until {
                        let began = Instant::now();
                        match source.take(10) {
                            Ok(_) => served += 1,
                            Err(error) => errors.push(error.to_string()),
                        }
                        worst = worst.max(began.elapsed());
                        thread::sleep(Duration::from_millis(20));
                    }
                    (worst, errors, served)
                })
            })
            .collect();
        for taker in takers {
            let (wait, met, got) = taker.join().expect("no taker panics");
            worst = worst.max(wait);
            errors.extend(met);
            served += got;
        }
        // ordering: Relaxed — as above.
        over.store(true, Ordering::Relaxed);
        holder.say("ROLLBACK");
    });
    (worst, errors, served)
}

fn are_served(kind: &str) {
    for (held, free) in [(1, 1), (3, 20), (60, 4)] {
        let (worst, errors, served) = waits(kind, held, free);
        println!("{kind}: {held} held, {free} free: {served} times served, after {worst:?} at worst");
        // The deadline of each is 3 s.
        assert_eq!(errors, Vec::<String>::new(), "{held} held, {free} free");
        assert!(served >= free * 3, "{held} held, {free} free: served {served} times in six seconds");
    }
}

#[test]
fn callers_of_free_rows_are_served_in_time_while_others_are_held_on_mariadb() {
    are_served("mariadb");
}

/// Sessions of this server have no setting for NOWAIT, but statements have the clause. MariaDB accepts it too.
#[test]
fn callers_of_free_rows_are_served_in_time_while_others_are_held_on_a_server_that_says_it_is_mysql() {
    are_served("mysql");
}

#[test]
fn callers_of_free_rows_are_served_in_time_while_others_are_held_on_postgres() {
    are_served("postgres");
}
