//! Rows of every delta-th number, as tinyid has them: its nodes on the same row, databases that divide the numbers among
//! them, killed processes, and rows whose stride is not the source's.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL` and `KEYMILL_TEST_POSTGRES` (`ci/servers/mariadb run ci/servers/postgres run cargo test …`).

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use keymill::store::{Catalogue, GiveBack, Key, Mark, Request, RowStore, Scheme, Stride};
use keymill::{Change, Code, Mill, Source};
use keymill_tests::ci::patient;
use keymill_tests::disguise::Disguise;
use keymill_tests::rivals::tinyid_ids;
use keymill_tests::takers::{Ends, until};
use keymill_tests::{in_time, mariadb, postgres, request, worker};
use mysql::prelude::Queryable;

/// A row's stride, and the step in it: some that match, some that do not, and a step without an id.
const ROWS: [(u64, u64, u64, u64); 6] =
    [(2, 1, 50, 0), (2, 0, 7, 1), (3, 2, 7, 1000), (5, 0, 1, 3), (1000, 7, 50, 0), (1, 0, 7, 0)];

fn key(table: &str, stride: Stride) -> Arc<Key> {
    Arc::new(Key { step: 10, stride, ..Key::segment(Scheme::TinyIdInfo, table, "orders") })
}

/// A table of tinyid's on MariaDB, gone with the value.
struct Table {
    name: String,
    key: Arc<Key>,
}

impl Table {
    /// Without a row.
    fn of(delta: u64, remainder: u64) -> Table {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let name = format!("s_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let key = key(&name, Stride::new(delta, remainder).unwrap());
        mariadb::store(mariadb::options()).init(&[Arc::clone(&key)], false).unwrap();
        Table { name, key }
    }

    /// With the row that an operator of tinyid makes.
    fn with_row(delta: u64, remainder: u64, step: u64, max_id: u64) -> Table {
        let table = Table::of(delta, remainder);
        table.say(&format!(
            "INSERT INTO {{t}} (biz_type, max_id, step, delta, remainder) VALUES ('orders', {max_id}, {step}, {delta}, \
             {remainder})"
        ));
        table
    }

    fn say(&self, sql: &str) {
        mariadb::connection().query_drop(sql.replace("{t}", &self.name)).unwrap();
    }

    fn max_id(&self) -> u64 {
        let select = format!("SELECT max_id FROM {} WHERE biz_type = 'orders'", self.name);
        mariadb::connection().query_first(select).unwrap().unwrap()
    }

    fn owns(&self, id: u64) -> bool {
        self.key.stride.owns(id)
    }

    fn spec(&self) -> String {
        let (delta, remainder) = (self.key.stride.delta(), self.key.stride.remainder());
        format!("segment:orders?scheme=tiny_id_info&table={}&delta={delta}&remainder={remainder}", self.name)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.say("DROP TABLE {t}");
        }
    }
}

/// The keeper's request for `len` ids.
fn asked(key: &Arc<Key>, len: u64, seen: u64) -> Request {
    let high_water = Mark { period: 0, next: seen };
    Request { high_water, ..request(key, len) }.of_the_row()
}

#[test]
fn old_nodes_and_ours_on_one_row_leave_no_id_out_and_issue_none_twice() {
    const ROUNDS: usize = 60;
    for (delta, remainder, step, max_id) in ROWS {
        let table = Table::with_row(delta, remainder, step, max_id);
        let mut ids: Vec<u64> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for n in 0..8 {
                let table = &table;
                threads.push(scope.spawn(move || {
                    let mut ids = Vec::new();
                    if n % 2 == 0 {
                        let mut connection = mariadb::connection();
                        (0..ROUNDS).for_each(|_| ids.extend(tinyid_ids(&mut connection, &table.name)));
                        return ids;
                    }
                    let stride = table.key.stride;
                    let mut store = mariadb::store(mariadb::options());
                    let mut seen = 0;
                    for round in 0..ROUNDS {
                        let len = 1 + n as u64 * 5;
                        let got = in_time(|| store.reserve(&asked(&table.key, len, seen))).unwrap();
                        let got = got.of_the_source(stride);
                        assert!(got.hi - got.lo >= len, "at least what was asked for: {got:?}");
                        assert!(got.lo >= seen, "they rise");
                        seen = got.hi;
                        let middle = got.lo + (got.hi - got.lo) / 2;
                        let (lo, hi) = (stride.nth(middle), stride.nth(got.hi));
                        if round % 10 == 0
                            && middle < got.hi
                            && in_time(|| store.give_back(&GiveBack::new(&table.key, 0, lo, hi))).unwrap()
                        {
                            seen = middle;
                        }
                        ids.extend((got.lo..seen).map(|n| stride.nth(n)));
                    }
                    ids
                }));
            }
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        ids.sort_unstable();
        let all: Vec<u64> = (max_id + 1..=table.max_id()).filter(|id| id % delta == remainder).collect();
        assert!(
            ids == all,
            "delta={delta} remainder={remainder} step={step}: {} of {}",
            ids.len(),
            all.len()
        );
    }
}

#[test]
fn a_worker_takes_every_second_number_until_it_is_killed() {
    worker::work();
}

/// A node of tinyid that logs its ids until it is stopped.
fn old_node(table: &str, log: &Path, over: &AtomicBool) {
    let mut log = OpenOptions::new().create(true).append(true).open(log).unwrap();
    let mut connection = mariadb::connection();
    // ordering: Relaxed — a flag.
    while !over.load(Ordering::Relaxed) {
        let ids = tinyid_ids(&mut connection, table);
        log.write_all(ids.iter().fold(String::new(), |text, id| text + &format!("{id}\n")).as_bytes())
            .unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The whole lines of a log.
fn logged(log: &Path) -> Vec<u64> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn two_databases_share_the_numbers_out_while_processes_are_killed_and_old_nodes_work_beside_them() {
    const KILLS: usize = 6;
    let databases = [Table::with_row(2, 0, 50, 0), Table::with_row(2, 1, 33, 0)];
    let folder = tempfile::tempdir().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The old nodes end too if this thread panics.
        let _ends = Ends(&over);
        for (n, database) in databases.iter().enumerate() {
            for old in 0..2 {
                let (log, over) = (folder.path().join(format!("{n}-old{old}.ids")), &over);
                scope.spawn(move || old_node(&database.name, &log, over));
            }
        }
        let begin = |n: usize, life: usize| {
            let log = folder.path().join(format!("{n}-life{life}.ids"));
            let spec = format!("{}&min_step=20&max_step=100", databases[n].spec());
            let name = "strides::a_worker_takes_every_second_number_until_it_is_killed";
            (log.clone(), worker::start(name, &patient(&mariadb::url()), &spec, &log))
        };
        let mut running: Vec<_> = (0..4).map(|life| (life % 2, begin(life % 2, life))).collect();
        for life in 4..4 + KILLS {
            let (n, (log, mut child)) = running.remove(0);
            until("a worker takes ids", Duration::from_secs(300), || logged(&log).len() > 300);
            child.kill().unwrap();
            child.wait().unwrap();
            running.push((n, begin(n, life)));
        }
        for (_, (log, mut child)) in running {
            until("a worker takes ids", Duration::from_secs(300), || logged(&log).len() > 300);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    });
    let mut count = 0;
    for entry in fs::read_dir(folder.path()).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.extension().is_some_and(|extension| extension == "ids") {
            let ids = logged(&path);
            count += ids.len();
            let database = &databases[usize::from(name.starts_with('1'))];
            assert!(ids.iter().all(|id| database.owns(*id)), "{name}: an id of the other database");
            assert!(ids.is_sorted_by(|one, next| one < next), "{name}: ids rise in each process");
        }
    }
    assert_eq!(worker::count_distinct(folder.path()), count);
    assert!(count > 10 * 300, "{count}");
}

#[test]
fn a_reservation_is_one_statement_and_moves_the_row_by_whole_steps_wherever_it_stands() {
    for (delta, remainder, step, max_id) in ROWS {
        let table = Table::with_row(delta, remainder, step, max_id);
        let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
        let mut options = mariadb::options();
        options.hosts = vec![disguise.address()];
        let mut store = mariadb::store(options);
        let stride = table.key.stride;
        let mut seen = 0;
        for round in 0..20 {
            let before = table.max_id();
            drop(disguise.said());
            let got = store.reserve(&asked(&table.key, 4, seen)).unwrap().of_the_source(stride);
            let after = table.max_id();
            let trips = disguise.round_trips();
            assert!(round == 0 || trips == 1, "{delta}, {remainder}: {:?}", disguise.said());
            let whole = (4 * delta).div_ceil(step) * step;
            assert_eq!(after, before + whole, "{delta}, {remainder}, {step}");
            assert!(stride.nth(got.lo) > before && stride.nth(got.hi - 1) <= after);
            assert!(got.hi - got.lo >= 4 && (seen == 0 || got.lo == seen), "no id is left out: {got:?}");
            seen = got.hi;
        }
    }
}

#[test]
fn a_row_made_by_keymill_records_its_stride_and_old_nodes_follow_it() {
    let table = Table::of(3, 2);
    let mut store = mariadb::store(mariadb::options());
    let got = store.reserve(&asked(&table.key, 10, 0)).unwrap().of_the_source(table.key.stride);
    assert_eq!((got.lo, got.hi), (1, 11));
    let row = store.look(&table.key).unwrap().unwrap();
    assert_eq!(row.text, "max_id=30 step=30 delta=3 remainder=2 version=0");
    assert_eq!(row.mark.next, 32);
    // As the store answered: the range ended at 30, and the next id is 32.
    assert!(store.give_back(&GiveBack::new(&table.key, 0, 17, 31)).unwrap());
    assert_eq!(store.look(&table.key).unwrap().unwrap().mark.next, 17);
    store.repair(&table.key, Mark { period: 0, next: 31 }).unwrap();
    assert_eq!(tinyid_ids(&mut mariadb::connection(), &table.name), (32..=59).step_by(3).collect::<Vec<_>>());
}

/// A store whose row a test can change.
enum Place {
    MariaDb,
    Postgres,
    Sqlite(tempfile::TempDir),
}

impl Place {
    fn all() -> [Place; 3] {
        [Place::MariaDb, Place::Postgres, Place::Sqlite(tempfile::tempdir().unwrap())]
    }

    fn url(&self) -> String {
        match self {
            Place::MariaDb => mariadb::url(),
            Place::Postgres => postgres::url(),
            Place::Sqlite(folder) => format!("sqlite:{}", folder.path().join("ids.db").display()),
        }
    }

    fn say(&self, sql: &str) {
        match self {
            Place::MariaDb => mariadb::say(sql),
            Place::Postgres => drop(postgres::Sql::shared().say(sql)),
            Place::Sqlite(folder) => {
                let connection = rusqlite::Connection::open(folder.path().join("ids.db")).unwrap();
                connection.execute(sql, []).unwrap();
            }
        }
    }

    /// A table of its own, and a mill.
    fn open(&self) -> (Mill, String) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        (Mill::open(&patient(&self.url())).unwrap(), format!("p_{}_{count}", std::process::id()))
    }
}

fn text(source: &Source) -> String {
    source.row().unwrap().unwrap().text
}

#[test]
fn a_row_whose_stride_changes_is_refused_until_it_is_repaired() {
    for place in Place::all() {
        let (mill, table) = place.open();
        let spec = format!(
            "segment:orders?scheme=tiny_id_info&table={table}&step=10&max_step=10&deadline=60s&delta=2&remainder=1"
        );
        mill.init(&[&spec], Change::Apply).unwrap();
        let orders = mill.source(&spec).unwrap();
        // The store knows the row by now, and uses the fast path.
        let mut ids: BTreeSet<u64> = orders.take(35).unwrap().into_iter().collect();
        for (change, remedy) in [
            ("remainder = 0", "write `delta=2&remainder=0`"),
            ("delta = 4, remainder = 3", "write `delta=4&remainder=3`"),
            ("delta = 1, remainder = 0", "leave both options out"),
            ("delta = 2, remainder = 2", "mend the row"),
        ] {
            place.say(&format!("UPDATE {table} SET {change}"));
            // Numbers in memory were reserved before, and are issued.
            let refusal = (0..1000).find_map(|_| match orders.next() {
                Ok(id) => {
                    assert!(id % 2 == 1 && ids.insert(id));
                    None
                }
                Err(refusal) => Some(refusal),
            });
            let refusal = refusal.unwrap_or_else(|| panic!("{change} was not noticed"));
            assert_eq!(refusal.code, Code::StoreRefused, "{refusal}");
            let seen = "this source is written with `delta=2&remainder=1`";
            assert!(refusal.message.contains(seen) && refusal.message.contains(remedy), "{refusal}");
            assert!(refusal.message.contains("nothing was changed"), "{refusal}");
            place.say(&format!("UPDATE {table} SET delta = 2, remainder = 1"));
            until("it goes on", Duration::from_secs(300), || match orders.next() {
                Ok(id) => id % 2 == 1 && ids.insert(id),
                Err(_) => false,
            });
        }
        assert_eq!(ids.last(), Some(&(2 * ids.len() as u64 - 1)), "no id was left out");
        mill.close();
        place.say(&format!("DROP TABLE {table}"));
    }
}

#[test]
fn sources_of_every_third_number_that_are_due_together_keep_to_their_own() {
    const SOURCES: usize = 60;
    let table = Table::of(3, 1);
    let mills = [(); 2].map(|()| Mill::open(&patient(&mariadb::url())).unwrap());
    let sources: Vec<[Source; 2]> = (0..SOURCES)
        .map(|n| {
            let spec = format!("{}&min_step=10&buffer=1ms&deadline=60s", table.spec());
            let spec = spec.replace("segment:orders", &format!("segment:orders{n}"));
            [0, 1].map(|mill| mills[mill].source(&spec).unwrap())
        })
        .collect();
    let before = mills[0].latency();
    let start = std::sync::Barrier::new(SOURCES * 2);
    let take = |source: &Source| {
        let mut ids = Vec::new();
        for _ in 0..20 {
            start.wait();
            // A thread without a range fails at the end: the others wait for it here.
            ids.extend(source.take(25).map_err(|error| eprintln!("{error}")).unwrap_or_default());
        }
        ids
    };
    let take = &take;
    let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let takers: Vec<[_; 2]> = sources
            .iter()
            .map(|both| both.each_ref().map(|source| scope.spawn(move || take(source))))
            .collect();
        takers.into_iter().map(|both| both.map(|taker| taker.join().unwrap()).concat()).collect()
    });
    let after = mills[0].latency();
    let (refills, trips) = (after.count - before.count, after.trips - before.trips);
    println!("{refills} refills of one of two mills in {trips} trips");
    assert!(trips * 2 < refills, "{refills} refills in {trips} trips did not go together");
    for ids in taken {
        assert!(ids.iter().all(|id| table.owns(*id)), "{ids:?}");
        let once: BTreeSet<u64> = ids.iter().copied().collect();
        assert_eq!(once.len(), 2 * 20 * 25);
    }
}

#[test]
fn columns_may_have_a_shops_own_names() {
    for place in Place::all() {
        let (mill, table) = place.open();
        let columns = "delta:by,remainder:from_,max_id:select,step:order";
        let spec = format!(
            "segment:orders?scheme=tiny_id_info&table={table}&step=10&buffer=1ms&deadline=60s&delta=3&remainder=0&columns={columns}"
        );
        mill.init(&[&spec], Change::Apply).unwrap();
        let orders = mill.source(&spec).unwrap();
        assert_eq!(orders.take(25).unwrap(), (1..=25).map(|n| 3 * n).collect::<Vec<u64>>());
        assert!(text(&orders).starts_with("select=90 order=30 by=3 from_=0 version="), "{}", text(&orders));
        assert_eq!(orders.repair(500, Change::Apply).unwrap().after.mark.next, 501);
        // 26 to 30 are in memory.
        assert_eq!(orders.take(6).unwrap(), [78, 81, 84, 87, 90, 501]);
        mill.close();
        let (again, _) = place.open();
        assert_eq!(again.source(&spec).unwrap().next().unwrap(), 504, "what was not used was given back");
        again.close();
        place.say(&format!("DROP TABLE {table}"));
    }
}

#[test]
fn many_sources_of_one_mill_each_count_in_their_own_stride() {
    for place in Place::all() {
        let (mill, table) = place.open();
        let sources: Vec<(Stride, Source)> = (0..12)
            .map(|n| {
                let stride = Stride::new(1 + n % 4, n % (1 + n % 4)).unwrap();
                let (delta, remainder) = (stride.delta(), stride.remainder());
                let spec = format!(
                    "segment:of{n}?scheme=tiny_id_info&table={table}&step=7&deadline=60s&delta={delta}&remainder={remainder}"
                );
                mill.init(&[&spec], Change::Apply).unwrap();
                (stride, mill.source(&spec).unwrap())
            })
            .collect();
        // All at once, so that their reservations coincide.
        std::thread::scope(|scope| {
            for (stride, source) in &sources {
                scope.spawn(move || {
                    for n in 1..=200 {
                        assert_eq!(source.next().unwrap(), stride.nth(n), "{stride:?}");
                    }
                    let batch = source.take(100).unwrap();
                    assert_eq!(batch, (201..=300).map(|n| stride.nth(n)).collect::<Vec<_>>(), "{stride:?}");
                });
            }
        });
        mill.close();
        place.say(&format!("DROP TABLE {table}"));
    }
}
