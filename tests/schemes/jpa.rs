//! Rows of JPA table generators: Hibernate with each of its optimizers, and EclipseLink, as their nodes speak to a server,
//! beside keymill on one row. `ci/steps/jpa` does the same with their own jars.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL` and `KEYMILL_TEST_POSTGRES`
//! (`ci/servers/mariadb run ci/servers/postgres run cargo test …`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keymill::store::{Columns, FaultKind, Key, Mark, Scheme, Store};
use keymill_tests::rivals::reserve_and_give_back;
use keymill_tests::{assert_disjoint, mariadb, postgres, request};
use mysql::prelude::Queryable;

/// The default of JPA.
const ALLOCATION: u64 = 50;

/// Sends a statement; answers with the number in the first column of its first row.
type Say = dyn FnMut(&str) -> Option<u64>;

/// A program with a table generator.
struct Program {
    /// The program and its settings.
    name: &'static str,
    /// Whether it is EclipseLink.
    updates_first: bool,
    /// The numbers that it issues after it has moved its row from the one number on by the other.
    owns: fn(u64, u64) -> (u64, u64),
}

const PROGRAMS: [Program; 7] = [
    Program { name: "EclipseLink", updates_first: true, owns: |m, a| (m + 1, m + a + 1) },
    Program {
        name: "Hibernate, pooled",
        updates_first: false,
        owns: |m, a| ((m + 2).saturating_sub(a).max(1), m + 2),
    },
    Program { name: "Hibernate, pooled-lo", updates_first: false, owns: |m, a| (m + 1, m + a + 1) },
    Program { name: "Hibernate, none", updates_first: false, owns: |m, _| (m + 1, m + 2) },
    Program {
        name: "Hibernate, pooled, stored_last_used=false",
        updates_first: false,
        owns: |m, a| ((m + 1).saturating_sub(a).max(1), m + 1),
    },
    Program {
        name: "Hibernate, pooled-lo, stored_last_used=false",
        updates_first: false,
        owns: |m, a| (m.max(1), (m + a).max(1)),
    },
    Program {
        name: "Hibernate, pooled, before HHH-9287",
        updates_first: false,
        owns: |m, a| (m.saturating_sub(a).max(1), m.max(1)),
    },
];

impl Program {
    fn columns(&self) -> (&'static str, &'static str) {
        if self.updates_first { ("SEQ_NAME", "SEQ_COUNT") } else { ("sequence_name", "next_val") }
    }

    /// One allocation, in the program's own statements; the range that it issues.
    fn allocate(&self, say: &mut Say, table: &str) -> (u64, u64) {
        say("BEGIN");
        let before = if self.updates_first {
            say(&format!(
                "UPDATE {table} SET SEQ_COUNT = SEQ_COUNT + {ALLOCATION} WHERE SEQ_NAME = 'orders'"
            ));
            let after = say(&format!("SELECT SEQ_COUNT FROM {table} WHERE SEQ_NAME = 'orders'")).unwrap();
            after - ALLOCATION
        } else {
            let select = "select tbl.next_val from {t} tbl where tbl.sequence_name='orders' for update";
            let before = say(&select.replace("{t}", table)).unwrap();
            let after = before + ALLOCATION;
            say(&format!(
                "update {table} set next_val={after} where next_val={before} and sequence_name='orders'"
            ));
            before
        };
        say("COMMIT");
        (self.owns)(before, ALLOCATION)
    }
}

/// A server, with a table of its own for each program.
struct Server {
    open: fn() -> Box<dyn Store>,
    /// A connection past the store.
    connect: fn() -> Box<Say>,
}

const MARIADB: Server = Server {
    open: || Box::new(mariadb::store(mariadb::options())),
    connect: || {
        let mut connection = mariadb::connection();
        // As text: the driver reads no decimal as an integer.
        Box::new(move |sql| {
            let first: Option<Option<String>> = connection.query_first(sql).unwrap();
            first.flatten().and_then(|text| text.parse().ok())
        })
    },
};

const POSTGRES: Server = Server {
    open: || Box::new(postgres::store(postgres::options())),
    connect: || {
        let sql = postgres::Sql::shared();
        Box::new(move |text| sql.try_say(text).unwrap().0.first()?.first()?.parse().ok())
    },
};

fn key(table: &str, program: &Program) -> Arc<Key> {
    let (name, maximum) = program.columns();
    let columns = [("sequence_name", name), ("next_val", maximum)];
    Arc::new(Key {
        columns: Columns::new(columns.map(|(standard, own)| (standard.to_owned(), own.to_owned())).to_vec()),
        step: ALLOCATION,
        ..Key::segment(Scheme::JpaTable, table, "orders")
    })
}

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // ordering: Relaxed — a number for each, nothing more.
    format!("jpa_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// A table as the program makes it, with a row that nothing was taken from.
fn make(server: &Server, program: &Program) -> String {
    let table = unique();
    let mut say = (server.connect)();
    let columns = if program.updates_first {
        "SEQ_NAME VARCHAR(50) NOT NULL, SEQ_COUNT DECIMAL(38), PRIMARY KEY (SEQ_NAME)"
    } else {
        "next_val bigint, sequence_name varchar(255) not null, primary key (sequence_name)"
    };
    say(&format!("create table {table} ({columns})"));
    let (name, maximum) = program.columns();
    say(&format!("insert into {table} ({name}, {maximum}) values ('orders', 0)"));
    table
}

fn no_number_comes_twice(server: &Server) {
    const ROUNDS: usize = 60;
    for program in &PROGRAMS {
        let table = make(server, program);
        let key = key(&table, program);
        let ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for n in 0..6 {
                let (key, table) = (&key, &table);
                threads.push(scope.spawn(move || {
                    if n % 2 == 0 {
                        let mut say = (server.connect)();
                        return (0..ROUNDS).map(|_| program.allocate(&mut *say, table)).collect();
                    }
                    let mut store = (server.open)();
                    reserve_and_give_back(&mut *store, key, 1 + n * 30, ROUNDS, 5)
                }));
            }
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        println!("{}: {} ranges", program.name, ranges.len());
        assert_eq!(ranges.len(), 6 * ROUNDS);
        assert_disjoint(ranges.into_iter().filter(|(lo, hi)| lo < hi).collect());
        (server.connect)()(&format!("drop table {table}"));
    }
}

#[test]
fn nodes_of_hibernate_and_eclipselink_and_ours_never_take_the_same_number_on_mariadb() {
    no_number_comes_twice(&MARIADB);
}

#[test]
fn nodes_of_hibernate_and_eclipselink_and_ours_never_take_the_same_number_on_postgres() {
    no_number_comes_twice(&POSTGRES);
}

/// A row that says no number, and columns that cannot hold every number or hold fractions.
fn what_is_no_row_of_a_generator_is_refused(server: &Server) {
    for (column, value, says) in [
        ("bigint", "null", "holds NULL in `next_val`"),
        ("bigint", "-1", "holds -1 in `next_val`"),
        ("decimal(38)", "-1", "holds -1 in `next_val`"),
        ("decimal(18)", "0", "too narrow for `bigint`"),
        ("decimal(38,2)", "0", "too narrow for `bigint`"),
        ("integer", "0", "too narrow for `bigint`"),
    ] {
        let table = unique();
        let mut say = (server.connect)();
        say(&format!("create table {table} (sequence_name varchar(255) primary key, next_val {column})"));
        say(&format!("insert into {table} values ('orders', {value})"));
        let fault = (server.open)().reserve(&request(&key(&table, &PROGRAMS[1]), 10)).unwrap_err();
        assert!(fault.kind == FaultKind::Refused && fault.to_string().contains(says), "{fault}");
        say(&format!("drop table {table}"));
    }
}

#[test]
fn what_is_no_row_of_a_generator_is_refused_on_both_servers() {
    what_is_no_row_of_a_generator_is_refused(&MARIADB);
    what_is_no_row_of_a_generator_is_refused(&POSTGRES);
}

#[test]
fn a_decimal_of_eclipselink_holds_the_last_number() {
    for server in [MARIADB, POSTGRES] {
        let table = make(&server, &PROGRAMS[0]);
        let alone = Arc::new(Key { step: 0, ..Key::clone(&key(&table, &PROGRAMS[0])) });
        let last = keymill::store::MAX_NUMBER;
        let mut store = (server.open)();
        store.repair(&alone, Mark { period: 0, next: last - 20 }).unwrap();
        let got = store.reserve(&request(&alone, 10)).unwrap();
        assert_eq!((got.lo, got.hi), (last - 20, last - 10));
        let got = store.reserve(&request(&alone, 100)).unwrap();
        assert_eq!((got.lo, got.hi), (last - 10, last + 1));
        assert_eq!(store.reserve(&request(&alone, 1)).unwrap_err().kind, FaultKind::Exhausted);
        (server.connect)()(&format!("drop table {table}"));
    }
}
