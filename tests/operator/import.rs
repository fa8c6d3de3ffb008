//! `keymill import`: rows of other programs' tables are imported while old nodes work, with the connection cut at every
//! point, and a second time.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it), PostgreSQL by `KEYMILL_TEST_POSTGRES`
//! (`ci/servers/postgres run …`).

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use keymill::store::PARKED_AT;
use keymill::{Change, Code, Holds, Import, Mill, OldRow, Scheme, Source};
use keymill_tests::ci::patient;
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::rivals::{self, PROGRAMS, Program, program};
use keymill_tests::takers::{self, persistently};
use keymill_tests::{mariadb, postgres, schemes};
use mysql::prelude::Queryable;

/// The row with the source's own name in this table.
fn from<'a>(scheme: &str, table: &'a str) -> OldRow<'a> {
    OldRow::of(scheme.parse().unwrap()).table(table)
}

/// Two tables of this test's own on MariaDB, gone with the value.
struct Tables {
    old: String,
    new: String,
}

impl Tables {
    fn new(scheme: &str) -> Tables {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let tables = Tables {
            old: format!("io_{}_{n}", std::process::id()),
            new: format!("in_{}_{n}", std::process::id()),
        };
        let kind = if scheme == "key_producer" { "serial:cust/id" } else { "segment:orders" };
        let old = format!("{kind}?scheme={scheme}&table={}", tables.old);
        let mill = Mill::open(&patient(&mariadb::url())).unwrap();
        mill.init(&[&old, &tables.orders()], Change::Apply).unwrap();
        tables
    }

    /// The new source.
    fn orders(&self) -> String {
        format!("segment:orders?table={}&min_step=10&max_step=1000&deadline=60s", self.new)
    }

    fn say(&self, sql: &str) {
        let sql = sql.replace("{old}", &self.old).replace("{new}", &self.new);
        mariadb::connection().query_drop(sql).unwrap();
    }

    /// The maximum of the old row, and `next` of the new one.
    fn rows(&self, maximum: &str) -> (u64, Option<u64>) {
        let mut connection = mariadb::connection();
        let old = connection.query_first(format!("SELECT {maximum} FROM {}", self.old)).unwrap().unwrap();
        let new = format!("SELECT next FROM {} WHERE name = 'segment:orders'", self.new);
        (old, connection.query_first(new).unwrap())
    }

    fn make_row(&self, program: &Program) {
        self.say(&format!("INSERT INTO {{old}} ({}) VALUES ({})", program.row.0, program.row.1));
    }

    fn import(&self, program: &Program, source: &Source, change: Change) -> keymill::Result<Import> {
        source.import(&from(program.scheme.name(), &self.old), change)
    }
}

impl Drop for Tables {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.say("DROP TABLE {old}, {new}");
        }
    }
}

/// Sets a flag when it is dropped, also by a panic: the threads that watch it end, and the panic is reported.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        // ordering: Relaxed — a flag.
        self.0.store(true, Ordering::Relaxed);
    }
}

fn until(what: &str, done: impl FnMut() -> bool) {
    takers::until(what, Duration::from_secs(300), done);
}

#[test]
fn old_nodes_under_load_through_an_import_never_take_a_number_of_ours() {
    for program in PROGRAMS {
        let tables = Tables::new(program.scheme.name());
        tables.make_row(program);
        let stop = AtomicBool::new(false);
        let taken = AtomicU32::new(0);
        let mill = Mill::open(&patient(&mariadb::url())).unwrap();
        let orders = mill.source(&tables.orders()).unwrap();
        let (mut ranges, ours, imported) = std::thread::scope(|scope| {
            let ends = Stops(&stop);
            let nodes: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut connection = mariadb::connection();
                        let mut ranges = Vec::new();
                        // ordering: Relaxed — a flag and a count.
                        while !stop.load(Ordering::Relaxed) {
                            ranges.push((program.node)(&mut connection, &tables.old));
                            taken.fetch_add(1, Ordering::Relaxed);
                        }
                        ranges
                    })
                })
                .collect();
            let more = |count: u32| {
                // ordering: Relaxed — as above.
                let from = taken.load(Ordering::Relaxed);
                until("old nodes take ranges", || taken.load(Ordering::Relaxed) >= from + count);
            };
            more(100);
            let imported = persistently(|| tables.import(program, &orders, Change::Apply)).unwrap();
            let mut ours = Vec::new();
            for _ in 0..50 {
                ours.extend(orders.take(100).unwrap());
            }
            more(100);
            drop(ends);
            let ranges: Vec<_> = nodes.into_iter().flat_map(|node| node.join().unwrap()).collect();
            (ranges, ours, imported)
        });
        ranges.sort_unstable();
        let before: Vec<_> = ranges.iter().filter(|(lo, _)| *lo < PARKED_AT).collect();
        let after = ranges.len() - before.len();
        assert!(before.len() >= 100 && after >= 50, "{} before, {after} after", before.len());
        // No overlap, and no number between the last old one and the first new one is lost.
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{:?}: {:?} and {:?}", program.scheme, pair[0], pair[1]);
        }
        assert_eq!(
            before.last().unwrap().1,
            imported.new_after.mark.next,
            "{:?}: {imported:?}",
            program.scheme
        );
        assert_eq!(ours.first(), Some(&imported.new_after.mark.next));
        assert!(ours.windows(2).all(|pair| pair[0] < pair[1]) && *ours.last().unwrap() < PARKED_AT);
        assert_eq!(imported.old_after.mark.next, imported.old.mark.next + PARKED_AT);
        println!(
            "import   {}: {} old ranges before, {after} after, {} of ours from {}",
            program.scheme.name(),
            before.len(),
            ours.len(),
            ours[0]
        );
    }
}

#[test]
fn a_connection_cut_at_any_answer_leaves_both_rows_or_neither() {
    for program in PROGRAMS {
        let tables = Tables::new(program.scheme.name());
        let mut options = mariadb::options();
        let proxy = Proxy::start(options.hosts.remove(0));
        let (host, port) = proxy.address();
        let url = patient(&format!("mysql://keymill:secret@{host}:{port}/ids"));
        let (mut undone, mut done) = (0, 0);
        for cut in 0..60 {
            tables.say("DELETE FROM {old}");
            tables.say("DELETE FROM {new}");
            tables.make_row(program);
            let mill = Mill::open(&url).unwrap();
            let orders = mill.source(&tables.orders()).unwrap();
            proxy.set(Answers::CutAfter(cut));
            let answer = tables.import(program, &orders, Change::Apply);
            proxy.set(Answers::Pass);
            let (old, new) = tables.rows(program.maximum);
            let neither = new.is_none() && old < PARKED_AT && answer.is_err();
            let both = new == Some(1) && old >= PARKED_AT;
            assert!(neither || both, "{:?} cut {cut}: {old} {new:?} {answer:?}", program.scheme);
            undone += u32::from(neither);
            done += u32::from(both);
            // Whatever the cut left, the next run completes it.
            tables.import(program, &orders, Change::Apply).unwrap();
            assert_eq!(orders.next().unwrap(), 1);
            mill.close();
            if answer.is_ok() {
                break;
            }
        }
        assert!(undone >= 5 && done >= 1, "{:?}: {undone} undone, {done} done", program.scheme);
        println!("import   {}: cut at {} answers, {done} of them done", program.scheme.name(), undone + done);
    }
}

#[test]
fn a_second_import_reports_the_first_and_changes_nothing() {
    for program in PROGRAMS {
        let tables = Tables::new(program.scheme.name());
        tables.make_row(program);
        tables.say(&format!("UPDATE {{old}} SET {} = 7000", program.maximum));
        let mill = Mill::open(&patient(&mariadb::url())).unwrap();
        let orders = mill.source(&tables.orders()).unwrap();
        let shown = tables.import(program, &orders, Change::DryRun).unwrap();
        assert_eq!(tables.rows(program.maximum), (7000, None), "a dry run writes nothing");
        let imported = tables.import(program, &orders, Change::Apply).unwrap();
        assert_eq!(shown, imported, "what is shown is what is done");
        assert!(!imported.was_done());
        let first = orders.next().unwrap();
        assert_eq!(first, imported.old.mark.next);
        // An old node continues far away, and the second import does not change that.
        let far = (program.node)(&mut mariadb::connection(), &tables.old).0;
        assert_eq!(far, first + PARKED_AT);
        let stands = tables.rows(program.maximum);
        for change in [Change::DryRun, Change::Apply] {
            assert!(tables.import(program, &orders, change).unwrap().was_done());
        }
        assert_eq!(tables.rows(program.maximum), stands);
    }
}

#[test]
fn an_import_that_could_repeat_a_number_is_refused_and_changes_nothing() {
    let program = program(Scheme::LeafAlloc);
    let tables = Tables::new(program.scheme.name());
    let mill = Mill::open(&patient(&mariadb::url())).unwrap();
    let orders = mill.source(&tables.orders()).unwrap();
    let refused = |says: &str| {
        for change in [Change::DryRun, Change::Apply] {
            let before =
                mariadb::connection().query::<mysql::Row, _>(format!("SELECT * FROM {}", tables.new));
            let error = tables.import(program, &orders, change).unwrap_err();
            assert_eq!(error.code, Code::StoreRefused, "{error}");
            assert!(error.message.contains(says) && error.message.contains("nothing was changed"), "{error}");
            let after = mariadb::connection().query::<mysql::Row, _>(format!("SELECT * FROM {}", tables.new));
            assert_eq!(format!("{before:?}"), format!("{after:?}"));
        }
    };
    refused("says no number yet");
    tables.make_row(program);
    tables.say("UPDATE {old} SET max_id = 5000");
    // The new row has counted the same numbers as the old one.
    tables.say("INSERT INTO {new} (name, next) VALUES ('segment:orders', 4999)");
    refused("stands at 4999, below 5000");
    // The new row is above: it stays, and the old row is moved.
    tables.say("UPDATE {new} SET next = 5001");
    let imported = tables.import(program, &orders, Change::Apply).unwrap();
    assert_eq!((imported.new_after.mark.next, imported.old_after.mark.next), (5001, 5000 + PARKED_AT));
    // A deleted new row is not made again.
    tables.say("DELETE FROM {new} WHERE name = 'segment:orders'");
    refused("is gone");
    // An old row that reached such numbers by itself is not an import.
    tables.say("UPDATE {old} SET max_id = -1");
    let error = tables.import(program, &orders, Change::Apply).unwrap_err();
    assert!(error.message.contains("holds -1 in `max_id`"), "{error}");
    // A row in the parked range without a record of its import.
    tables.say("DELETE FROM {new}");
    tables.say("UPDATE {old} SET max_id = 4611686018427400000");
    refused("has no import record");
    tables.say("INSERT INTO {new} (name, next) VALUES ('segment:orders', 5001)");
    refused("has no import record");
    for (scheme, says) in
        [(Scheme::Keymill, "leaf_alloc, tiny_id_info"), (Scheme::Ticket, "leaf_alloc, tiny_id_info")]
    {
        let error = orders.import(&OldRow::of(scheme), Change::DryRun).unwrap_err();
        assert!(error.message.contains(says), "{error}");
    }
    let error = mill
        .source("snowflake:tx?worker=1")
        .unwrap()
        .import(&OldRow::of(Scheme::Cosid), Change::DryRun)
        .unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument, "{error}");
    let own = mill.source(&format!("segment:orders?scheme=leaf_alloc&table={}", tables.old)).unwrap();
    let error = own.import(&OldRow::of(Scheme::Cosid), Change::DryRun).unwrap_err();
    assert!(error.message.contains("scheme=keymill"), "{error}");
}

#[test]
fn serials_continue_where_key_factory_stood_and_its_nodes_count_far_away_until_the_day_ends() {
    let tables = Tables::new("key_producer");
    let mill = Mill::open(&format!("{}&clock=manual", patient(&mariadb::url()))).unwrap();
    let spec = "serial:cust/id?number=000000&zone=UTC&scheme=keymill&deadline=60s";
    let serials = mill.source(&format!("{spec}&table={}", tables.new)).unwrap();
    let today = "20260101";
    let import = |change| serials.import(&from("key_producer", &tables.old), change);
    tables.say(
        "INSERT INTO {old} (TABLENAME, COLUMNNAME, DATEFMT, NOFMT, MAXSERIALNO) \
         VALUES ('CUST', 'ID', 'yyyyMMdd', '000000', 'INIT')",
    );
    assert!(import(Change::Apply).unwrap_err().message.contains("says no number yet"));
    // NULL and an empty text do not say whether there were serials: counting may not begin at 1 there.
    for (blank, said) in [("NULL", "NULL"), ("''", "an empty text")] {
        tables.say(&format!("UPDATE {{old}} SET MAXSERIALNO = {blank}"));
        for change in [Change::DryRun, Change::Apply] {
            let error = import(change).unwrap_err();
            assert_eq!(error.code, Code::StoreRefused, "{error}");
            assert!(
                error.message.contains(&format!(
                    "holds {said} in `MAXSERIALNO`: stop every program that uses it, then set it to"
                )),
                "{error}"
            );
        }
    }
    tables.say("UPDATE {old} SET MAXSERIALNO = 'INIT'");
    let mut texts = HashSet::new();
    let old_node = |texts: &mut HashSet<String>, count| {
        let mut connection = mariadb::connection();
        for _ in 0..count {
            let (lo, hi) =
                rivals::key_factory(&mut connection, &tables.old, (today, 6), ("CUST", "ID")).expect("alone");
            for number in lo..hi {
                assert!(texts.insert(format!("{today}{number:06}")), "{number} came twice");
            }
        }
    };
    old_node(&mut texts, 3);
    let imported = import(Change::Apply).unwrap();
    assert_eq!(imported.old.text, "MAXSERIALNO=20260101000150");
    assert_eq!(imported.new_after.mark.next, 151);
    old_node(&mut texts, 3);
    let ours = serials.take_text(2000).unwrap();
    assert_eq!(ours[0], "20260101000151");
    for text in ours {
        assert!(texts.insert(text.clone()), "{text} came twice");
    }
    assert!(import(Change::Apply).unwrap().was_done());
    // A mill that still uses the old row gets an error before it issues anything.
    let late = format!("serial:cust/id?number=000000&zone=UTC&deadline=60s&table={}", tables.old);
    let late = mill.source(&late).unwrap();
    let told = late.next_text().unwrap_err();
    assert!(told.code == Code::StoreRefused && told.message.contains("it was imported"), "{told}");
    // Tomorrow begins at 1. The old row belongs to a past day, for which old nodes begin at 1 too: they have to be stopped
    // by then.
    mill.advance_clock(86_400_000).unwrap();
    assert_eq!(serials.next_text().unwrap(), "20260102000001");
    let told = late.next_text().unwrap_err();
    assert!(told.message.contains("Open this one with `scheme=keymill`"), "{told}");
}

#[test]
fn a_file_s_rows_are_imported_while_an_old_node_writes_them() {
    for program in PROGRAMS {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ids.db");
        let mill = Mill::open(&patient(&format!("sqlite:{}", file.display()))).unwrap();
        let (scheme, table) = (program.scheme.name(), program.scheme.default_table());
        mill.init(&[&format!("segment:orders?scheme={scheme}"), "segment:orders"], Change::Apply).unwrap();
        let node = rusqlite::Connection::open(&file).unwrap();
        node.busy_timeout(Duration::from_secs(120)).unwrap();
        let (columns, values) = program.row;
        node.execute(&format!("INSERT INTO {table} ({columns}) VALUES ({values})"), []).unwrap();
        let stop = AtomicBool::new(false);
        let orders = mill.source("segment:orders?deadline=60s").unwrap();
        let (mut old, ours) = std::thread::scope(|scope| {
            let (stop, ends) = (&stop, Stops(&stop));
            let (sender, progress) = std::sync::mpsc::channel();
            let node = scope.spawn(move || {
                let maximum = program.maximum;
                let mut ends = Vec::new();
                // ordering: Relaxed — a flag.
                while !stop.load(Ordering::Relaxed) {
                    let sql = format!("UPDATE {table} SET {maximum} = {maximum} + 50 RETURNING {maximum}");
                    node.execute_batch("BEGIN IMMEDIATE").unwrap();
                    let end: i64 = node.query_one(&sql, [], |row| row.get(0)).unwrap();
                    node.execute_batch("COMMIT").unwrap();
                    ends.push(end as u64);
                    let _ = sender.send(());
                    // The lock is free for a moment: the file is flushed while it is held.
                    std::thread::sleep(Duration::from_millis(1));
                }
                ends
            });
            let more = |count| (0..count).for_each(|_| progress.recv().unwrap());
            more(20);
            persistently(|| orders.import(&from(scheme, table), Change::Apply)).unwrap();
            let ours = orders.take(5000).unwrap();
            more(20);
            drop(ends);
            (node.join().unwrap(), ours)
        });
        old.sort_unstable();
        let stood = *old.iter().rfind(|end| **end < PARKED_AT).unwrap();
        let first = if schemes::columns(program.scheme).holds == Holds::Next { stood } else { stood + 1 };
        assert_eq!((ours[0], ours[4999]), (first, first + 4999), "{scheme}");
        assert!(
            old.last().is_some_and(|end| *end > PARKED_AT)
                && orders.import(&from(scheme, table), Change::Apply).unwrap().was_done()
        );
    }
}

#[test]
fn rows_on_postgres_are_imported_while_mills_still_write_the_old_one() {
    let mill = Mill::open(&patient(&postgres::url())).unwrap();
    for program in PROGRAMS {
        let scheme = program.scheme.name();
        let (old, new) =
            (format!("pio_{}_{scheme}", std::process::id()), format!("pin_{}", std::process::id()));
        let before = format!("segment:{scheme}?scheme={scheme}&table={old}&step=50&deadline=60s");
        let ours = format!("segment:{scheme}?table={new}&deadline=60s");
        mill.init(&[&before, &ours], Change::Apply).unwrap();
        // Another process's mill, which continues on the old row.
        let other = Mill::open(&patient(&postgres::url())).unwrap();
        let late = other.source(&before).unwrap();
        assert_eq!(late.take(120).unwrap(), (1..=120).collect::<Vec<u64>>());
        let orders = mill.source(&ours).unwrap();
        let import = |change| orders.import(&from(scheme, &old), change).unwrap();
        let shown = import(Change::DryRun);
        let imported = import(Change::Apply);
        // The other mill may reserve ahead in between.
        assert!(
            shown.old.mark <= imported.old.mark && shown.new == imported.new,
            "{scheme}: {shown:?} {imported:?}"
        );
        let first = orders.next().unwrap();
        assert!(first > 120 && first == imported.old.mark.next, "{scheme}: {first}");
        // The numbers that it had in memory, and then numbers far away.
        let rest = late.take(5000).unwrap();
        assert!(rest.iter().all(|id| *id < first || *id > PARKED_AT), "{scheme}");
        assert!(rest.last().is_some_and(|id| *id > PARKED_AT), "{scheme}");
        assert!(import(Change::Apply).was_done());
        let standing = orders.status().unwrap();
        assert!(standing.changed_seconds_ago.is_some_and(|age| age < 3600), "{scheme}: {standing:?}");
        other.close();
    }
    mill.close();
}

#[test]
fn a_row_imported_by_another_source_is_refused_with_that_sources_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    for url in [mariadb::url(), postgres::url(), file].map(|url| patient(&url)) {
        let mill = Mill::open(&url).unwrap();
        let old_table = format!("io_taken_{}", std::process::id());
        let new_table = format!("in_taken_{}", std::process::id());
        let before = format!("segment:orders?scheme=leaf_alloc&table={old_table}&step=50&deadline=60s");
        let [first, second] =
            ["first", "second"].map(|name| format!("segment:{name}?table={new_table}&deadline=60s"));
        mill.init(&[&before, &first], Change::Apply).unwrap();
        let take = |spec: &str, count| {
            let ended = Mill::open(&url).unwrap();
            ended.source(spec).unwrap().take(count).unwrap();
            ended.close();
        };
        take(&before, 120);
        let [first, second] = [first, second].map(|spec| mill.source(&spec).unwrap());
        let row = from("leaf_alloc", &old_table).row("orders");
        first.import(&row, Change::Apply).unwrap();
        // It has a row of its own, above the old row's: that does not prove an import.
        second.repair(9_000, Change::Apply).unwrap();
        for change in [Change::DryRun, Change::Apply] {
            let error = second.import(&row, change).unwrap_err();
            assert_eq!(error.code, Code::StoreRefused, "{error}");
            assert!(error.message.contains("was imported into `segment:first` before"), "{error}");
            assert!(first.import(&row, change).unwrap().was_done());
        }
        // Another row of the same table is free.
        let other = "segment:more?scheme=leaf_alloc&step=50&deadline=60s";
        take(&format!("{other}&table={old_table}"), 9_500);
        let imported = second.import(&row.row("more"), Change::Apply).unwrap_err();
        assert!(imported.message.contains("stands at 9000, below 9501"), "{imported}");
        second.repair(10_000, Change::Apply).unwrap();
        second.import(&row.row("more"), Change::Apply).unwrap();
        assert_eq!((first.next().unwrap(), second.next().unwrap()), (121, 10_000));
        mill.close();
        if url.starts_with("mysql") {
            mariadb::say(&format!("DROP TABLE {old_table}, {new_table}"));
        } else if url.starts_with("postgres") {
            postgres::Sql::shared().say(&format!("DROP TABLE {old_table}, {new_table}"));
        }
    }
}

#[test]
fn a_row_with_renamed_columns_is_named_with_columns() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    for url in [mariadb::url(), postgres::url(), file].map(|url| patient(&url)) {
        for (scheme, columns) in [
            ("leaf_alloc", "max_id:current,biz_tag:name"),
            ("tiny_id_info", "max_id:highest,version:rev"),
            ("cosid", "last_max_id:m,name:n"),
            ("sequence_table", "cur_id:current_no,biz_type:kind"),
            ("key_producer", "MAXSERIALNO:highest,TABLENAME:t"),
        ] {
            let mill = Mill::open(&url).unwrap();
            let old_table = format!("io_columns_{}_{scheme}", std::process::id());
            let new_table = format!("in_columns_{}_{scheme}", std::process::id());
            // Serials of a month: the numbers of a day begin again at midnight.
            let name = if scheme == "key_producer" {
                "serial:cust/id?date=yyyyMM&number=000000&deadline=60s"
            } else {
                "segment:orders?deadline=60s"
            };
            let before = format!("{name}&scheme={scheme}&table={old_table}&columns={columns}&step=50");
            let source = mill.source(&format!("{name}&scheme=keymill&table={new_table}")).unwrap();
            mill.init(&[&before], Change::Apply).unwrap();
            mill.init(&[&format!("segment:x?table={new_table}")], Change::Apply).unwrap();
            // A process that has ended: it returned its unused numbers.
            let ended = Mill::open(&url).unwrap();
            let old = ended.source(&before).unwrap();
            if scheme == "key_producer" {
                assert!(old.take_text(7).unwrap()[6].ends_with("000007"));
            } else {
                assert_eq!(old.take(7).unwrap()[6], 7);
            }
            ended.close();
            let row = from(scheme, &old_table);
            let error = source.import(&row, Change::Apply).unwrap_err();
            assert!(error.message.contains("say so with `columns=`"), "{error}");
            let unknown = source.import(&row.columns("nothing:n"), Change::Apply).unwrap_err();
            assert_eq!(unknown.code, Code::InvalidConfig, "{unknown}");
            let row = row.columns(columns);
            let shown = source.import(&row, Change::DryRun).unwrap();
            let imported = source.import(&row, Change::Apply).unwrap();
            assert_eq!(shown, imported, "{scheme}");
            assert_eq!(imported.new_after.mark, imported.old.mark, "{scheme}: {imported:?}");
            assert_eq!(imported.new_after.mark.next, 8, "{scheme}: {imported:?}");
            assert!(source.import(&row, Change::Apply).unwrap().was_done());
            mill.close();
            if url.starts_with("mysql") {
                mariadb::say(&format!("DROP TABLE {old_table}, {new_table}"));
            } else if url.starts_with("postgres") {
                postgres::Sql::shared().say(&format!("DROP TABLE {old_table}, {new_table}"));
            }
        }
    }
}
