//! Another client locks some rows for long: callers of the mill's other sources get their numbers all the same.
//!
//! `ci/servers/mariadb run ci/servers/postgres run cargo test …` names the servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keymill::serial::SerialPattern;
use keymill::store::server::ServerOptions;
use keymill::store::{
    Fault, FaultKind, KeepReader, Key, Left, OwnReader, OwnSlot, Renewal, Renewed, Request, Scheme,
    SerialKey, Store, StoreIndex,
};
use keymill::{Change, Code, Mill, Source};
use keymill_tests::disguise::Disguise;
use keymill_tests::takers::persistently;
use keymill_tests::{in_time, lease, mariadb, postgres, request, schemes};

/// The reason that callers of a held row are told.
const HELD: &str = "another transaction holds its row";

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
    persistently(|| mill.init(&[&format!("segment:{name}-000")], Change::Apply)).expect("init");
    for source in &sources {
        persistently(|| source.take(1)).expect("ids");
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
    if kind != "postgres" && mariadb::ends_waits_late() {
        return;
    }
    for (held, free) in [(1, 1), (3, 20), (60, 4)] {
        let in_time = || {
            let (worst, errors, served) = waits(kind, held, free);
            println!(
                "{kind}: {held} held, {free} free: {served} times served, after {worst:?} at worst; {errors:?}"
            );
            // The deadline of each is 3 s.
            errors.is_empty() && served >= free * 3
        };
        // A busy machine delays callers, too: they have twenty chances.
        assert!((0..20).any(|_| in_time()), "{kind}: {held} held, {free} free: not served in time");
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

/// One counter of a bank stays locked: its callers learn at their deadline why they get no id, and callers of the other counters get
/// theirs.
fn other_counters_are_served(kind: &str) {
    if kind != "postgres" && mariadb::ends_waits_late() {
        return;
    }
    let url = if kind == "postgres" { postgres::url() } else { mariadb::url() };
    let mill = Mill::open(&url).expect("a mill");
    let name = format!("held-{kind}-{}", std::process::id());
    let spec = format!("business:{name}?counters=256&min_step=10&buffer=1ms&deadline=30s");
    let orders = mill.source(&spec).expect("a source");
    persistently(|| mill.init(&[&spec], Change::Apply)).expect("init");
    let gene = |counter: u16| (counter << 8).into();
    for counter in 0..40 {
        let mut ids = [0; 10];
        orders.fill_of(gene(counter), &mut ids).expect("ids");
    }
    let mut holder = Holder::new(kind);
    holder.say("BEGIN");
    holder.say(&format!("SELECT next FROM keymill_segment WHERE name = 'business:{name}/256/7' FOR UPDATE"));
    thread::scope(|scope| {
        let (orders, began) = (&orders, Instant::now());
        let held = scope.spawn(move || {
            // What was reserved before, which is no more than three steps, and then nothing.
            let mut taken = (0..=30).map(|_| orders.next_of(gene(7)));
            let refused = taken.find_map(Result::err).expect("its row is locked");
            (refused, began.elapsed())
        });
        // Beside it: counters that have a row, and some that get theirs now. More than lies in memory.
        let others: Vec<_> = (0..60)
            .filter(|counter| *counter != 7)
            .map(|counter| {
                scope.spawn(move || orders.fill_of(gene(counter), &mut [0; 40]).map(|()| began.elapsed()))
            })
            .collect();
        let mut worst = Duration::ZERO;
        for other in others {
            worst = worst.max(other.join().expect("it ends").expect("an id"));
        }
        println!("{kind}: 59 counters beside a locked one were served after {worst:?} at worst");
        let (refused, waited) = held.join().expect("it ends");
        println!("{kind}: {refused} (after {waited:?})");
        assert!(matches!(refused.code, Code::Deadline | Code::StoreUnavailable), "{refused}");
        assert!(refused.message.contains(HELD), "it says why: {refused}");
        assert!(waited < Duration::from_secs(90), "{waited:?}");
        // Not counter 60: its new row would lie in the gap before the held one by name, and InnoDB gives that gap to the holder too
        // where a page is split there.
        orders.next_of(gene(100)).expect("others go on");
    });
    holder.say("ROLLBACK");
    let until = Instant::now() + Duration::from_secs(120);
    while orders.next_of(gene(7)).is_err() {
        assert!(Instant::now() < until, "the row is free again");
    }
}

#[test]
fn callers_of_other_counters_of_a_bank_are_served_while_one_is_held_on_mariadb() {
    other_counters_are_served("mariadb");
}

#[test]
fn callers_of_other_counters_of_a_bank_are_served_while_one_is_held_on_postgres() {
    other_counters_are_served("postgres");
}

/// How often each of five sources is refused while the row of the middle one's leased worker is locked for six seconds, which is twice
/// its lease; and what that one says.
fn refusals(kind: &str, chance: usize) -> (Vec<usize>, String) {
    let url = if kind == "postgres" { postgres::url() } else { mariadb::url() };
    let mill = Mill::open(&url).expect("a mill");
    let name = format!("held-{kind}-{}-{chance}", std::process::id());
    let spec = |n: usize| format!("snowflake:{name}-{n}?lease=3s&deadline=500ms");
    persistently(|| mill.init(&[&spec(0)], Change::Apply)).expect("init");
    let sources: Vec<Source> = (0..5).map(|n| mill.source(&spec(n)).expect("a source")).collect();
    for source in &sources {
        let until = Instant::now() + Duration::from_secs(120);
        while source.next().is_err() {
            assert!(Instant::now() < until, "a worker is leased");
        }
    }
    let mut holder = Holder::new(kind);
    holder.say("BEGIN");
    holder.say(&format!("SELECT mark FROM keymill_worker WHERE pool = '{name}-2' AND slot = 0 FOR UPDATE"));
    let (until, mut refused) = (Instant::now() + Duration::from_secs(6), vec![0; sources.len()]);
    let mut said = String::new();
    // Longer where a busy machine comes late to the refusal, or to its reason.
    let give_up = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until || !said.contains(HELD) && Instant::now() < give_up {
        for (n, source) in sources.iter().enumerate() {
            if let Err(error) = source.next() {
                refused[n] += 1;
                if n == 2 && !said.contains(HELD) {
                    said = error.to_string();
                }
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    holder.say("ROLLBACK");
    let until = Instant::now() + Duration::from_secs(120);
    while sources[2].next().is_err() {
        assert!(Instant::now() < until, "the row is free again");
    }
    (refused, said)
}

fn other_leases_are_renewed(kind: &str) {
    if kind != "postgres" && mariadb::ends_waits_late() {
        return;
    }
    let in_time = |chance| {
        let (refused, said) = refusals(kind, chance);
        println!("{kind}: {refused:?} refused; {said}");
        assert!(refused[2] > 0, "a lease that cannot be renewed ends");
        assert!(said.contains(HELD), "the error says why: {said}");
        refused.iter().sum::<usize>() == refused[2]
    };
    // A busy machine renews late: there are twenty chances.
    assert!((0..20).any(in_time), "{kind}: the other sources lost their workers");
}

#[test]
fn workers_of_other_sources_are_renewed_while_the_row_of_one_is_held_on_mariadb() {
    other_leases_are_renewed("mariadb");
}

#[test]
fn workers_of_other_sources_are_renewed_while_the_row_of_one_is_held_on_postgres() {
    other_leases_are_renewed("postgres");
}

/// The row of a worker that is free, and that the next process would lease, is locked: the process leases another one.
fn another_worker_is_leased(kind: &str) {
    let url = if kind == "postgres" { postgres::url() } else { mariadb::url() };
    // A wait for a lock is half of the first; the other half is for a busy machine.
    let url = format!("{url}?timeout=10s&connect_timeout=25s");
    let spec = format!("snowflake:held-free-{kind}-{}?deadline=60s", std::process::id());
    let leased = || {
        let mill = Mill::open(&url).expect("a mill");
        mill.init(&[&spec], Change::Apply).expect("init");
        let source = mill.source(&spec).expect("a source");
        let id = source.next().expect("an id");
        let parts = source.parse(id).expect("its parts");
        mill.close();
        parts.worker
    };
    assert_eq!(leased(), Some(0));
    let mut holder = Holder::new(kind);
    holder.say("BEGIN");
    let pool = format!("held-free-{kind}-{}", std::process::id());
    holder.say(&format!("SELECT mark FROM keymill_worker WHERE pool = '{pool}' AND slot = 0 FOR UPDATE"));
    assert_eq!(leased(), Some(1), "{kind}");
    holder.say("ROLLBACK");
    assert_eq!(leased(), Some(0), "{kind}: the row is free again");
}

#[test]
fn a_process_leases_another_worker_while_the_row_of_a_free_one_is_held_on_mariadb() {
    another_worker_is_leased("mariadb");
}

#[test]
fn a_process_leases_another_worker_while_the_row_of_a_free_one_is_held_on_postgres() {
    another_worker_is_leased("postgres");
}

/// How long a lock is waited for in the tests of single requests: half the limit of an answer.
const LOCK_WAIT: Duration = Duration::from_secs(6);

/// Makes one request four times while `hold` is in force: the first waits for the lock once, the others do not wait. All sources of a
/// mill share its connection, so they wait as long.
fn waits_once(
    kind: &str,
    what: &str,
    store: &mut dyn Store,
    hold: &[String],
    mut request: impl FnMut(&mut dyn Store) -> Result<(), Fault>,
) {
    let mut holder = Holder::new(kind);
    for statement in hold {
        holder.say(statement);
    }
    let times = [(); 4].map(|()| {
        let began = Instant::now();
        let fault = request(store).expect_err("another session holds it");
        assert_eq!(fault.kind, FaultKind::Locked, "{kind}, {what}: {fault}");
        began.elapsed()
    });
    println!("{kind}, {what}: {times:?}");
    assert!(times[0] < LOCK_WAIT * 3 / 2, "{kind}, {what}: more than one lock timeout: {times:?}");
    // A longer wait of one of them is due to the machine.
    let shortest = times[1..].iter().min();
    assert!(shortest < Some(&(LOCK_WAIT / 4)), "{kind}, {what}: each request waits for the lock: {times:?}");
    holder.say("ROLLBACK");
    if kind != "postgres" {
        holder.say("UNLOCK TABLES");
    }
    in_time(|| request(store)).expect("it is free again");
}

/// A store with a table of its own, and what its test makes there.
struct Held {
    kind: &'static str,
    table: String,
    store: Box<dyn Store>,
}

impl Held {
    fn new(kind: &'static str, what: &str) -> Held {
        let read_timeout = LOCK_WAIT * 2;
        let store: Box<dyn Store> = if kind == "postgres" {
            Box::new(postgres::store(ServerOptions { read_timeout, ..postgres::options() }))
        } else {
            Box::new(mariadb::store(ServerOptions { read_timeout, ..mariadb::options() }))
        };
        Held { kind, table: format!("held_{what}_{}", std::process::id()), store }
    }

    fn init(&mut self, key: &Arc<Key>) {
        self.store.init(std::slice::from_ref(key), false).expect("the table");
    }

    /// Locks a row of a pool.
    fn row(&self, pool: &str, slot: &str) -> [String; 2] {
        let table = &self.table;
        let lock = format!("SELECT mark FROM {table} WHERE pool = '{pool}' AND slot = {slot} FOR UPDATE");
        ["BEGIN".to_owned(), lock]
    }

    /// Locks a table, for readers too.
    fn whole(&self, table: &str) -> Vec<String> {
        if self.kind == "postgres" {
            return vec!["BEGIN".to_owned(), format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")];
        }
        vec![format!("LOCK TABLES {table} WRITE")]
    }
}

/// The lease of worker 0 of a new pool, and how it is renewed.
fn renew(held: &mut Held) -> impl FnMut(&mut dyn Store) -> Result<(), Fault> + use<> {
    let key = Arc::new(Key::pool(&held.table, "pool"));
    held.init(&key);
    let taken = held.store.take_slot(&lease::take(key.clone(), 11)).expect("a worker");
    let mut left = vec![Left { token: 11, mark: taken.mark }];
    move |store| {
        let to = Left { token: left[0].token + 1, mark: taken.mark + left[0].token };
        let own = OwnSlot { key: key.clone(), slot: 0, left: left.clone(), source: "".into() };
        let Renewed { marks, .. } = store.renew_slots(&[Renewal { own, to, lease_ms: lease::LEASE_MS }])?;
        marks.into_iter().next().expect("an answer")?;
        left = vec![to];
        Ok(())
    }
}

/// The row of a process that follows a route table, and how it is renewed.
fn keep(held: &mut Held) -> impl FnMut(&mut dyn Store) -> Result<(), Fault> + use<> {
    let key = Arc::new(Key { table: held.table.clone(), ..Key::of_readers("orders") });
    held.init(&key);
    let mut own = OwnReader::default();
    let keep = || KeepReader {
        version: 3,
        lease_ms: lease::LEASE_MS,
        owner: "host:7".into(),
        store: StoreIndex::ONLY,
    };
    held.store.keep_reader(&key, &mut own, &keep()).expect("kept");
    move |store| store.keep_reader(&key, &mut own, &keep()).map(drop)
}

fn a_held_worker_costs_one_lock_timeout(kind: &'static str) {
    let mut held = Held::new(kind, "worker");
    let renew = renew(&mut held);
    let hold = held.row("pool", "0");
    waits_once(kind, "a worker's row", &mut *held.store, &hold, renew);
}

fn a_held_table_of_workers_costs_one_lock_timeout(kind: &'static str) {
    let mut held = Held::new(kind, "workers");
    let renew = renew(&mut held);
    let hold = held.whole(&held.table);
    waits_once(kind, "the table of workers", &mut *held.store, &hold, renew);
}

fn a_held_reader_costs_one_lock_timeout(kind: &'static str) {
    let mut held = Held::new(kind, "reader");
    let keep = keep(&mut held);
    let member = held.store.readers(&Key { table: held.table.clone(), ..Key::of_readers("orders") });
    let member = member.expect("an answer").all[0].member;
    let hold = held.row("orders", &member.to_string());
    waits_once(kind, "a reader's row", &mut *held.store, &hold, keep);
}

/// A new process adds its row beside the record of the pool, which it locks.
fn a_held_record_of_readers_costs_one_lock_timeout(kind: &'static str) {
    let mut held = Held::new(kind, "readers");
    drop(keep(&mut held));
    let key = Arc::new(Key { table: held.table.clone(), ..Key::of_readers("orders") });
    let keep =
        KeepReader { version: 3, lease_ms: lease::LEASE_MS, owner: "host:8".into(), store: StoreIndex::ONLY };
    let hold = held.row("orders", &(1_u64 << 62).to_string());
    let add = |store: &mut dyn Store| store.keep_reader(&key, &mut OwnReader::default(), &keep).map(drop);
    waits_once(kind, "the record of a router's readers", &mut *held.store, &hold, add);
}

/// A follower reads the table of its router again and again, and a step those of its readers.
fn a_held_table_that_is_read_costs_one_lock_timeout(kind: &'static str) {
    let mut held = Held::new(kind, "routes");
    let routes = Arc::new(Key { table: held.table.clone(), ..Key::of_route("orders") });
    held.init(&routes);
    assert_eq!(held.store.replace_route(&routes, None, (1, "one")), Ok(true));
    let hold = held.whole(&held.table);
    let read = |store: &mut dyn Store| store.read_route(&routes, 0).map(drop);
    waits_once(kind, "the table of routes", &mut *held.store, &hold, read);
    let list = |store: &mut dyn Store| store.list_routes(&routes).map(drop);
    waits_once(kind, "the list of routes", &mut *held.store, &hold, list);
    let mut held = Held::new(kind, "listed");
    drop(keep(&mut held));
    let readers = Key { table: held.table.clone(), ..Key::of_readers("orders") };
    let hold = held.whole(&held.table);
    let list = |store: &mut dyn Store| store.readers(&readers).map(drop);
    waits_once(kind, "the table of readers", &mut *held.store, &hold, list);
}

/// `init=max` reads the business table.
fn a_held_business_table_costs_one_lock_timeout(kind: &'static str) {
    let mut held = Held::new(kind, "serial");
    let business = format!("{}_cust", held.table);
    let create = format!("CREATE TABLE {business} (id VARCHAR(40) NOT NULL PRIMARY KEY)");
    let serial = SerialKey {
        table: business.clone(),
        column: "id".to_owned(),
        pattern: SerialPattern::new("yyyyMMdd", "0000", "UTC").expect("a pattern"),
        init_max: true,
    };
    let key = Arc::new(schemes::key(Scheme::Keymill, &held.table, "cust", Some(serial)));
    held.init(&key);
    Holder::new(kind).say(&create);
    let hold = held.whole(&business);
    let (period, last) = (20_261_120_000_000_000, 9_999);
    let request = Request { period, period_max: period, last, ..request(&key, 10) };
    let reserve = |store: &mut dyn Store| store.reserve(&request).map(drop);
    waits_once(kind, "the table of init=max", &mut *held.store, &hold, reserve);
}

#[test]
fn a_held_row_of_a_worker_costs_one_lock_timeout_on_mariadb() {
    a_held_worker_costs_one_lock_timeout("mariadb");
}

#[test]
fn a_held_row_of_a_worker_costs_one_lock_timeout_on_postgres() {
    a_held_worker_costs_one_lock_timeout("postgres");
}

#[test]
fn a_locked_table_of_workers_costs_one_lock_timeout_on_mariadb() {
    a_held_table_of_workers_costs_one_lock_timeout("mariadb");
}

#[test]
fn a_locked_table_of_workers_costs_one_lock_timeout_on_postgres() {
    a_held_table_of_workers_costs_one_lock_timeout("postgres");
}

#[test]
fn a_held_row_of_a_reader_costs_one_lock_timeout_on_mariadb() {
    a_held_reader_costs_one_lock_timeout("mariadb");
}

#[test]
fn a_held_row_of_a_reader_costs_one_lock_timeout_on_postgres() {
    a_held_reader_costs_one_lock_timeout("postgres");
}

#[test]
fn a_held_record_of_readers_costs_one_lock_timeout_on_mariadb() {
    a_held_record_of_readers_costs_one_lock_timeout("mariadb");
}

#[test]
fn a_held_record_of_readers_costs_one_lock_timeout_on_postgres() {
    a_held_record_of_readers_costs_one_lock_timeout("postgres");
}

#[test]
fn a_locked_table_of_init_max_costs_one_lock_timeout_on_mariadb() {
    a_held_business_table_costs_one_lock_timeout("mariadb");
}

#[test]
fn a_locked_table_of_init_max_costs_one_lock_timeout_on_postgres() {
    a_held_business_table_costs_one_lock_timeout("postgres");
}

#[test]
fn a_locked_table_that_is_read_costs_one_lock_timeout_on_mariadb() {
    a_held_table_that_is_read_costs_one_lock_timeout("mariadb");
}

#[test]
fn a_locked_table_that_is_read_costs_one_lock_timeout_on_postgres() {
    a_held_table_that_is_read_costs_one_lock_timeout("postgres");
}
