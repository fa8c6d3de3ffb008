//! Leases that end against the will of their process: a store that is away for longer than a lease, a table that is restored, and a
//! process that was copied.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Error, Mill, Source};
use keymill_tests::ci::patient;
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, postgres, redis, worker};
use mysql::prelude::Queryable;

/// A lease of these tests. On a busy machine a renewal may be some seconds late.
const LEASE: Duration = Duration::from_secs(6);

fn source(mill: &Mill, pool: &str, more: &str) -> Source {
    let spec = format!("snowflake:{pool}?lease={}ms&deadline=60s{more}", LEASE.as_millis());
    persistently(|| mill.init(&[&spec], Change::Apply)).expect("the table");
    mill.source(&spec).expect("a source")
}

fn pool() -> String {
    format!("lost{}", fastrand::u32(..))
}

fn worker_of(source: &Source, id: u64) -> u64 {
    source.layout().expect("a layout").unpack(id).worker
}

/// Takes ids until a call is refused.
fn ids_until_refused(source: &Source) -> (Vec<u64>, Error) {
    let give_up = Instant::now() + Duration::from_secs(120);
    let mut ids = Vec::new();
    loop {
        match source.try_next() {
            Ok(id) => ids.push(id),
            // The mill's own thread is late.
            Err(error) if error.code == Code::NotReady => {}
            Err(error) => return (ids, error),
        }
        assert!(Instant::now() < give_up, "no call was refused");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn none_twice(parts: &[&[u64]]) {
    let mut seen = HashSet::new();
    for id in parts.iter().flat_map(|ids| ids.iter()) {
        assert!(seen.insert(*id), "{id} was handed out twice");
    }
}

// ---- a store that is away ----

/// A MariaDB that one process cannot reach for longer than its lease, while another one can.
fn away(how: Answers) {
    let proxy = Proxy::start(mariadb::options().hosts[0].clone());
    let (host, port) = proxy.address();
    let (login, place) =
        mariadb::url().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("a login");
    let database = place.split_once('/').expect("a database").1;
    let mill = Mill::open(&format!("{login}@{host}:{port}/{database}?timeout=500ms&connect_timeout=500ms"))
        .expect("a mill");
    let pool = pool();
    let ours = source(&mill, &pool, "&slots=0-1");
    let before = ours.take(100).expect("ids");
    // Worker 0, or the other one where the answer to the first request came too late.
    let worker = worker_of(&ours, before[0]);

    until_renewed(&mill, 1);
    proxy.set(how);
    let parted = Instant::now();
    let (during, refused) = ids_until_refused(&ours);
    // The lease was just renewed; two thirds of it may be lost to a machine that is busy.
    assert!(parted.elapsed() >= LEASE / 3, "ids ended after {:?}", parted.elapsed());
    let told = [Code::LeaseLost, Code::StoreUnavailable];
    assert!(told.contains(&refused.code), "{refused}");
    // It stays so.
    for _ in 0..100 {
        let refused = ours.try_next().expect_err("the lease is over");
        assert!(told.contains(&refused.code), "{refused}");
    }

    let reachable = Mill::open(&patient(&mariadb::url())).expect("a mill");
    let theirs = source(&reachable, &pool, &format!("&slots={worker}-{worker}"));
    let taken = theirs.take(1_000).expect("the worker is free when its lease has ended");
    assert_eq!(worker_of(&theirs, taken[0]), worker);

    proxy.set(Answers::Pass);
    let after = ours.take(1_000).expect("a new lease, by itself");
    assert_eq!(worker_of(&ours, after[0]), 1 - worker, "the other process has worker {worker}");
    let more = theirs.take(1_000).expect("ids");
    assert_eq!(worker_of(&theirs, more[999]), worker, "late requests of the first process changed nothing");
    none_twice(&[&before, &during, &taken, &after, &more]);
    println!(
        "ids  {how:?}: {} more after the server was gone, then {:?}; none twice",
        during.len(),
        refused.code
    );
}

#[test]
fn a_network_that_is_parted_for_longer_than_a_lease_costs_the_worker_and_repeats_nothing() {
    away(Answers::HoldAll);
}

#[test]
fn answers_that_are_lost_for_longer_than_a_lease_cost_the_worker_and_repeat_nothing() {
    away(Answers::Hold);
}

// ---- a table that is restored ----

/// A store whose rows of a pool can be copied, and put back.
enum Place {
    Sqlite(PathBuf, #[allow(dead_code)] tempfile::TempDir),
    MariaDb,
    Postgres,
    Redis,
}

impl Place {
    fn sqlite() -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        Place::Sqlite(folder.path().join("ids.db"), folder)
    }

    fn url(&self) -> String {
        match self {
            Place::Sqlite(file, _) => format!("sqlite:{}", file.display()),
            Place::MariaDb => mariadb::url(),
            Place::Postgres => postgres::url(),
            Place::Redis => redis::url(),
        }
    }

    /// Statements in one transaction.
    fn say(&self, statements: &[String]) {
        match self {
            Place::Sqlite(file, _) => {
                let database = rusqlite::Connection::open(file).expect("the database");
                database.busy_timeout(Duration::from_secs(60)).expect("a timeout");
                database
                    .execute_batch(&format!("BEGIN IMMEDIATE; {}; COMMIT", statements.join("; ")))
                    .expect("carried out");
            }
            Place::MariaDb => {
                let mut connection = mariadb::connection();
                connection.query_drop("START TRANSACTION").expect("a transaction");
                for statement in statements {
                    connection.query_drop(statement).expect("carried out");
                }
                connection.query_drop("COMMIT").expect("a commit");
            }
            Place::Postgres => {
                postgres::Sql::shared().say(&statements.join("; "));
            }
            Place::Redis => unreachable!("it has no statements"),
        }
    }

    fn backup(&self, pool: &str) {
        match self {
            Place::Redis => redis::copy(
                &mut redis::connection_of(&redis::url()),
                &format!("keymill_worker:{pool}"),
                &format!("backup:{pool}"),
            ),
            _ => self.say(&[format!(
                "CREATE TABLE backup_{pool} AS SELECT * FROM keymill_worker WHERE pool = '{pool}'"
            )]),
        }
    }

    fn restore(&self, pool: &str) {
        match self {
            Place::Redis => redis::copy(
                &mut redis::connection_of(&redis::url()),
                &format!("backup:{pool}"),
                &format!("keymill_worker:{pool}"),
            ),
            _ => self.say(&[
                format!("DELETE FROM keymill_worker WHERE pool = '{pool}'"),
                format!("INSERT INTO keymill_worker SELECT * FROM backup_{pool}"),
            ]),
        }
    }
}

fn renewals(mill: &Mill) -> u64 {
    let text = mill.metrics();
    let line =
        text.lines().find(|line| line.starts_with("keymill_lease_renewals_total")).expect("the metric");
    line.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a number")
}

fn until_renewed(mill: &Mill, times: u64) {
    let (from, give_up) = (renewals(mill), Instant::now() + Duration::from_secs(120));
    while renewals(mill) < from + times {
        assert!(Instant::now() < give_up, "no renewal");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The mark goes back under a process that has the worker: it is told by its next renewal, and leases anew.
fn an_older_row_comes_back(place: &Place) {
    let mill = Mill::open(&patient(&place.url())).expect("a mill");
    let pool = pool();
    let ours = source(&mill, &pool, "");
    let before = ours.take(100).expect("ids");
    place.backup(&pool);
    until_renewed(&mill, 2);
    let more = ours.take(100).expect("ids");
    place.restore(&pool);
    let count = renewals(&mill);
    let (during, refused) = ids_until_refused(&ours);
    assert_eq!(refused.code, Code::LeaseLost, "{refused}");
    // A renewal may have been on its way, and the refused renewal counts too.
    assert!(renewals(&mill) <= count + 2, "told by the next renewal: {count}, {}", renewals(&mill));
    let after = ours.take(100).expect("a new lease, by itself");
    none_twice(&[&before, &more, &during, &after]);
}

/// A backup from before the lease comes back, and another process takes the worker: the first one is told by its next renewal. Ids may
/// repeat until then, and not later.
fn a_row_from_before_the_lease_comes_back(place: &Place) {
    let pool = pool();
    let earlier = Mill::open(&patient(&place.url())).expect("a mill");
    let before = source(&earlier, &pool, "").take(100).expect("ids");
    earlier.close();
    place.backup(&pool);
    let mill = Mill::open(&patient(&place.url())).expect("a mill");
    let ours = source(&mill, &pool, "");
    let more = ours.take(100).expect("ids");
    place.restore(&pool);
    let count = renewals(&mill);
    let other = Mill::open(&patient(&place.url())).expect("a mill");
    let theirs = source(&other, &pool, "");
    let taken = theirs.take(100).expect("ids");
    let (_, refused) = ids_until_refused(&ours);
    assert_eq!(refused.code, Code::LeaseLost, "{refused}");
    assert!(renewals(&mill) <= count + 2, "told by the next renewal: {count}, {}", renewals(&mill));
    let after = ours.take(100).expect("a new lease, by itself");
    let last = theirs.take(100).expect("the other process keeps its own");
    none_twice(&[&before, &more, &after, &last]);
    none_twice(&[&before, &taken, &after, &last]);
    assert_ne!(worker_of(&ours, after[0]), worker_of(&theirs, last[0]));
}

macro_rules! restored {
    ($($module:ident $place:expr;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn a_process_whose_row_is_older_than_its_lease_is_told_by_its_next_renewal() {
                an_older_row_comes_back(&$place);
            }

            #[test]
            fn a_process_whose_lease_was_restored_away_is_told_by_its_next_renewal() {
                a_row_from_before_the_lease_comes_back(&$place);
            }
        }
    )*};
}

restored! {
    restored_sqlite Place::sqlite();
    restored_mariadb Place::MariaDb;
    restored_postgresql Place::Postgres;
    restored_redis Place::Redis;
}

// ---- a process that is copied ----

/// `fork` without its handlers, as a sandbox or another runtime may do it: the kernel wipes the word of the child.
#[test]
fn a_process_copied_by_a_raw_clone_leases_a_worker_of_its_own() {
    if !worker::in_a_process_of_its_own(
        "lease_losses::a_process_copied_by_a_raw_clone_leases_a_worker_of_its_own",
    ) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mill = Mill::open(&format!("sqlite:{}", folder.path().join("ids.db").display())).expect("a mill");
    let source = source(&mill, "tx", "");
    assert_eq!(worker_of(&source, source.next().expect("an id")), 0);
    // SAFETY: without flags `clone` is `fork`; the child takes one id and leaves by `_exit`.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t };
    if child == 0 {
        let code = match source.next() {
            Ok(id) => worker_of(&source, id) as libc::c_int,
            Err(error) if error.code == Code::Forked => 99,
            Err(_) => 100,
        };
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(libc::WEXITSTATUS(status), 1, "99: FORKED; 100: another error");
    assert_eq!(worker_of(&source, source.next().expect("the parent goes on")), 0);
}
