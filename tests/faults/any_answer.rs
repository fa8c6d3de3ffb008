//! Every answer that a server may give, at each of its statements: no number comes twice, no unanswered range is used, the
//! next reservation works, and no error claims wrongly that a row went backwards or that numbers ran out.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keymill::serial::SerialPattern;
use keymill::store::mysql::MysqlStore;
use keymill::store::{
    Catalogue, Fault, FaultKind, Key, Mark, Request, Reserved, RowStore, Scheme, SerialKey, Stride,
};
use keymill_tests::disguise::{Answer, Disguise};
use keymill_tests::{assert_disjoint, mariadb, request, schemes};
use mysql::prelude::Queryable;

const DAY: u64 = 20_261_120_000_000_000;

/// Answers that servers, clusters and proxies are known to give to any statement.
const ERRORS: [(u16, &str); 24] = [
    (1213, "Deadlock found"),
    (1205, "Lock wait timeout exceeded"),
    (1020, "Record has changed since last read"),
    (1047, "WSREP has not yet prepared node for application use"),
    (1317, "Query execution was interrupted"),
    (1927, "Connection was killed"),
    (1053, "Server shutdown in progress"),
    (1969, "max_statement_time exceeded"),
    (1180, "Got error during COMMIT"),
    (1290, "running with the --read-only option"),
    (1792, "Cannot execute statement in a READ ONLY transaction"),
    (1836, "Running in read-only mode"),
    (1021, "Disk full"),
    (1114, "The table is full"),
    (1030, "Got error 28 from storage engine"),
    (1105, "Unknown error"),
    (1461, "Can't create more than max_prepared_stmt_count statements"),
    (1615, "Prepared statement needs to be re-prepared"),
    (1243, "Unknown prepared statement handler"),
    (1637, "Too many active concurrent transactions"),
    (1206, "The total number of locks exceeds the lock table size"),
    (1037, "Out of memory"),
    (1062, "Duplicate entry"),
    (9001, "PD server timeout"),
];

/// A table, and the scripted server in front of it.
struct Table {
    disguise: Disguise,
    scheme: Scheme,
    serial: bool,
    name: String,
    stride: Stride,
}

impl Table {
    fn new(scheme: Scheme, serial: bool) -> Table {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let name = format!("w_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
        let stride = if scheme == Scheme::TinyIdInfo { Stride::new(3, 2).unwrap() } else { Stride::EVERY };
        let table = Table { disguise, scheme, serial, name, stride };
        direct().init(&[table.key("first")], false).unwrap();
        table
    }

    fn key(&self, name: &str) -> Arc<Key> {
        let serial = self.serial.then(|| SerialKey {
            table: "cust".to_owned(),
            column: name.to_owned(),
            pattern: SerialPattern::new("yyyyMMdd", "000000", "UTC").unwrap(),
            init_max: false,
        });
        Arc::new(Key { step: 10, stride: self.stride, ..schemes::key(self.scheme, &self.name, name, serial) })
    }

    fn open(&self) -> MysqlStore {
        let mut options = mariadb::options();
        options.hosts = vec![self.disguise.address()];
        mariadb::store(options)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            mariadb::say(&format!("DROP TABLE {}", self.name));
        }
    }
}

fn direct() -> MysqlStore {
    mariadb::store(mariadb::options())
}

/// A source: the ranges it received and the highest number it has seen.
struct Node {
    key: Arc<Key>,
    seen: Mark,
    given: Vec<(u64, u64)>,
}

impl Node {
    fn new(key: Arc<Key>) -> Node {
        Node { key, seen: Mark::default(), given: Vec::new() }
    }

    fn asked(&self) -> Request {
        let period = if self.key.serial.is_some() { DAY } else { 0 };
        Request { period, period_max: period, high_water: self.seen, ..request(&self.key, 10) }
    }

    fn took(&mut self, got: &Reserved) {
        assert!(got.lo >= self.seen.next, "{got:?} below {:?}", self.seen);
        self.seen = Mark { period: got.period, next: got.hi };
        self.given.push((got.lo, got.hi));
    }
}

/// The reservation at which the odd answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// The first reservation of a new connection, whose row is missing.
    First,
    /// A later one, of a row that is where this process left it.
    Later,
    /// A later one, of a row that another process has moved.
    Moved,
    /// Later ones of three rows, asked for together.
    Together,
}

const MOMENTS: [Moment; 4] = [Moment::First, Moment::Later, Moment::Moved, Moment::Together];

struct Scene {
    store: MysqlStore,
    nodes: Vec<Node>,
}

impl Scene {
    fn new(table: &Table, moment: Moment, other: &mut MysqlStore, count: &mut u32) -> Scene {
        let mut store = table.open();
        *count += 1;
        let several = if moment == Moment::Together { 3 } else { 1 };
        let mut nodes: Vec<_> =
            (0..several).map(|at| Node::new(table.key(&format!("n{count}_{at}")))).collect();
        if moment != Moment::First {
            for node in &mut nodes {
                for _ in 0..2 {
                    let got = store.reserve(&node.asked()).unwrap();
                    node.took(&got);
                }
            }
        }
        if moment == Moment::Moved {
            for node in &mut nodes {
                let got = other.reserve(&node.asked()).unwrap();
                node.given.push((got.lo, got.hi));
            }
        }
        Scene { store, nodes }
    }

    /// As the keeper does: as a batch, and then each unanswered request on its own.
    fn reserve(&mut self) -> Vec<Result<(), Fault>> {
        let requests: Vec<_> = self.nodes.iter().map(Node::asked).collect();
        let answers = if requests.len() > 1 { self.store.reserve_all(&requests) } else { vec![None] };
        let mut outcome = Vec::new();
        for (node, answer) in self.nodes.iter_mut().zip(answers) {
            let answer = answer.unwrap_or_else(|| self.store.reserve(&node.asked()));
            outcome.push(answer.map(|got| node.took(&got)));
        }
        outcome
    }
}

fn has_rows(statement: &str) -> bool {
    statement.starts_with("SELECT") || statement.starts_with("SHOW")
}

/// Whether a conflict in the answer to this statement is repeated: a connection's first statements may fail with it.
fn is_repeated(statement: &str) -> bool {
    !["SELECT @@", "SHOW GLOBAL", "SET ", "information_schema"].iter().any(|part| statement.contains(part))
}

/// Reserves with this odd answer to come, and once more without; answers with the error of the first attempt.
fn play(table: &Table, mut scene: Scene, other: &mut MysqlStore, place: &str) -> Vec<Option<FaultKind>> {
    let outcome = scene.reserve();
    table.disguise.nothing_more();
    for (outcome, node) in outcome.iter().zip(&scene.nodes) {
        match outcome {
            Ok(()) => {
                let row = other.look(&node.key).unwrap().unwrap();
                assert!(row.mark.next >= node.seen.next, "{place}: given and not kept: {row:?}");
            }
            Err(fault) => assert!(
                matches!(
                    fault.kind,
                    FaultKind::Unavailable
                        | FaultKind::Unknown
                        | FaultKind::Refused
                        | FaultKind::Locked
                        | FaultKind::Conflict
                ),
                "{place}: {:?}: {fault}",
                fault.kind
            ),
        }
    }
    let mut answers = scene.reserve();
    // The server of a busy machine may answer too late, and is asked again.
    let is_late = |answer: &Result<(), Fault>| matches!(answer, Err(fault) if matches!(fault.kind, FaultKind::Unavailable | FaultKind::Conflict));
    for _ in 0..10 {
        if !answers.iter().any(is_late) {
            break;
        }
        answers = scene.reserve();
    }
    for again in answers {
        assert!(again.is_ok(), "{place}: first {outcome:?}, then {again:?}");
    }
    for node in &mut scene.nodes {
        let got = other.reserve(&node.asked()).unwrap();
        node.given.push((got.lo, got.hi));
        assert_disjoint(node.given.clone());
    }
    outcome.into_iter().map(|outcome| outcome.err().map(|fault| fault.kind)).collect()
}

/// Each statement of a reservation gets each answer; the error numbers take turns.
fn nothing_comes_twice(scheme: Scheme, serial: bool) {
    let table = Table::new(scheme, serial);
    let (mut other, mut count, mut errors) = (direct(), 0, ERRORS.into_iter().cycle());
    for moment in MOMENTS {
        let mut scene = Scene::new(&table, moment, &mut other, &mut count);
        drop(table.disguise.said());
        scene.reserve().into_iter().for_each(|outcome| outcome.unwrap());
        for (at, statement) in (0..).zip(table.disguise.said()) {
            let mut error = || errors.next().unwrap();
            let (one, another) = (error(), error());
            let mut answers = vec![
                Answer::Refused(1213, "Deadlock found"),
                Answer::Refused(one.0, one.1),
                Answer::Refused(another.0, another.1),
                Answer::Cut,
                Answer::DoneAndCut,
            ];
            if !has_rows(&statement) && !statement.contains(';') {
                let (code, message) = error();
                answers.push(Answer::DoneBut(code, message));
            }
            for answer in answers {
                let place = format!("{scheme:?} {moment:?}, {at}: {answer:?} to {statement}");
                let scene = Scene::new(&table, moment, &mut other, &mut count);
                table.disguise.answer_after("", at, 1, answer.clone());
                let outcome = play(&table, scene, &mut other, &place);
                if matches!(answer, Answer::Refused(1213, _)) && is_repeated(&statement) {
                    assert!(
                        outcome.iter().all(Option::is_none),
                        "{place}: a conflict is no fault: {outcome:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn no_number_of_segments_comes_twice() {
    nothing_comes_twice(Scheme::Keymill, false);
}

#[test]
fn no_number_of_serials_comes_twice() {
    nothing_comes_twice(Scheme::Keymill, true);
    nothing_comes_twice(Scheme::KeyProducer, true);
}

#[test]
fn no_number_of_counters_comes_twice() {
    nothing_comes_twice(Scheme::SequenceTable, false);
    nothing_comes_twice(Scheme::LeafAlloc, false);
    nothing_comes_twice(Scheme::Cosid, false);
}

#[test]
fn no_number_of_strided_rows_comes_twice() {
    nothing_comes_twice(Scheme::TinyIdInfo, false);
}

#[test]
fn no_number_of_tickets_comes_twice() {
    nothing_comes_twice(Scheme::AutoIncrement, false);
    nothing_comes_twice(Scheme::Ticket, false);
}

/// The end of a batch's transaction.
const COMMIT: &str = "; COMMIT AND NO CHAIN NO RELEASE";

/// Inside the packet of a batch: at its beginning, after the second of three rows, at its commit.
#[test]
fn no_number_of_batches_comes_twice() {
    for (scheme, serial) in [
        (Scheme::Keymill, false),
        (Scheme::Keymill, true),
        (Scheme::TinyIdInfo, false),
        (Scheme::SequenceTable, false),
    ] {
        let table = Table::new(scheme, serial);
        let (mut other, mut count) = (direct(), 0);
        // How the name of the second row ends.
        let second = if serial { "_1?date=yyyyMMdd&number=000000'" } else { "_1'" };
        for (code, message) in ERRORS {
            let signal = format!("SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'x'");
            for (part, instead) in [
                ("START TRANSACTION; ", format!("{signal}; ")),
                (second, format!("{second}; {signal}; DO 1")),
                (COMMIT, format!("; {signal}")),
            ] {
                let place = format!("{scheme:?} {code} {message} at {part}");
                let scene = Scene::new(&table, Moment::Together, &mut other, &mut count);
                table.disguise.instead_once(part, &instead);
                play(&table, scene, &mut other, &place);
                assert_eq!(table.disguise.to_come(), 0, "{place}: not said");
            }
        }
    }
}

#[test]
fn after_a_failed_rollback_the_connection_is_not_used() {
    let table = Table::new(Scheme::Keymill, false);
    let (mut other, mut count) = (direct(), 0);
    for (code, message) in
        [(1317, "Query execution was interrupted"), (1047, "WSREP has not yet prepared node")]
    {
        let mut scene = Scene::new(&table, Moment::First, &mut other, &mut count);
        table.disguise.answer("INSERT INTO", 1, Answer::Refused(1062, "Duplicate entry"));
        table.disguise.answer("ROLLBACK", 1, Answer::Refused(code, message));
        drop(table.disguise.said());
        let outcome = scene.reserve().remove(0).unwrap_err();
        assert_eq!(outcome.kind, FaultKind::Unavailable, "{outcome}");
        assert!(outcome.to_string().contains("nothing was changed"), "{outcome}");
        let said = table.disguise.said();
        assert!(said.last().unwrap().starts_with("ROLLBACK"), "{said:?}");
        play(&table, scene, &mut other, "after it");
    }
}

/// Galera: a node that has not caught up in time answers with the error number of a lock wait.
#[test]
fn a_transaction_that_does_not_begin_is_not_reported_as_a_locked_row() {
    let table = Table::new(Scheme::Keymill, false);
    let (mut other, mut count) = (direct(), 0);
    let mut scene = Scene::new(&table, Moment::First, &mut other, &mut count);
    table.disguise.answer("START TRANSACTION", 2, Answer::Refused(1205, "Lock wait timeout exceeded"));
    scene.reserve().remove(0).unwrap();
    assert_eq!(table.disguise.to_come(), 0);
    let mut scene = Scene::new(&table, Moment::First, &mut other, &mut count);
    table.disguise.answer("START TRANSACTION", 10_000, Answer::Refused(1205, "Lock wait timeout exceeded"));
    let outcome = scene.reserve().remove(0).unwrap_err();
    assert_eq!(outcome.kind, FaultKind::Unavailable, "{outcome}");
    assert!(
        outcome.to_string().contains("lags behind") && !outcome.to_string().contains("holds its row"),
        "{outcome}"
    );
    table.disguise.nothing_more();
    play(&table, scene, &mut other, "after it");
}

#[test]
fn nowait_ends_with_a_failed_batch() {
    let table = Table::new(Scheme::Keymill, false);
    let (mut other, mut count) = (direct(), 0);
    let mut scene = Scene::new(&table, Moment::Together, &mut other, &mut count);
    // Another client holds the first row; then the commit of the others finds the disk full.
    let mut holder = mariadb::connection();
    holder.query_drop("START TRANSACTION").unwrap();
    let name = &scene.nodes[0].key.name;
    holder.query_drop(format!("SELECT * FROM {} WHERE name = '{name}' FOR UPDATE", table.name)).unwrap();
    let signal = "; SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'The table is full'";
    table.disguise.instead(COMMIT, signal);
    drop(table.disguise.said());
    let requests: Vec<_> = scene.nodes.iter().map(Node::asked).collect();
    let outcome = scene.store.reserve_all(&requests);
    assert!(outcome.iter().all(|outcome| !matches!(outcome, Some(Ok(_)))), "{outcome:?}");
    let said = table.disguise.said();
    let waits: Vec<_> =
        said.iter().filter(|said| said.contains("SESSION innodb_lock_wait_timeout")).collect();
    assert!(waits.iter().any(|wait| wait.ends_with("= 0")), "no haste, so nothing is tested: {said:?}");
    assert!(!waits.last().unwrap().ends_with("= 0"), "{waits:?}");
    holder.query_drop("ROLLBACK").unwrap();
    table.disguise.instead(COMMIT, COMMIT);
    play(&table, scene, &mut other, "after it");
}
