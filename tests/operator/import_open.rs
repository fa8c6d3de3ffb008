//! `keymill import` while mills have the old row or the new one open, with numbers in memory: on MariaDB and on a SQLite
//! file.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keymill::store::PARKED_AT;
use keymill::{Change, Code, Error, Import, Mill, OldRow, Scheme, Source};
use keymill_tests::ci::patient;
use keymill_tests::takers::{Takers, persistently, until};
use keymill_tests::{mariadb, schemes};

/// Two tables of one test, and the configuration of mills on them.
struct Place {
    url: String,
    old: String,
    new: String,
    scheme: Scheme,
    /// The folder of a SQLite file, which lives as long.
    folder: Option<tempfile::TempDir>,
}

impl Place {
    /// One for each scheme on each store.
    fn all() -> Vec<Place> {
        schemes::counters().flat_map(|scheme| [Place::on_mariadb(scheme), Place::on_sqlite(scheme)]).collect()
    }

    fn on_mariadb(scheme: Scheme) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |kind| format!("{kind}_{}_{n}", std::process::id());
        let place = Place { url: mariadb::url(), old: name("oo"), new: name("on"), scheme, folder: None };
        place.with_tables()
    }

    fn on_sqlite(scheme: Scheme) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("ids.db").display());
        let (old, new) = ("old_rows".to_owned(), "new_rows".to_owned());
        Place { url, old, new, scheme, folder: Some(folder) }.with_tables()
    }

    fn with_tables(self) -> Place {
        self.mill().init(&[&self.old_spec(""), &self.new_spec("")], Change::Apply).unwrap();
        self
    }

    fn mill(&self) -> Mill {
        Mill::open(&patient(&self.url)).unwrap()
    }

    /// The other program's row, as a mill beside that program opens it.
    fn old_spec(&self, more: &str) -> String {
        format!(
            "segment:orders?scheme={}&table={}&min_step=50&max_step=400&deadline=60s{}{more}",
            self.scheme,
            self.old,
            schemes::option(self.scheme)
        )
    }

    fn new_spec(&self, more: &str) -> String {
        format!("segment:orders?table={}&min_step=50&max_step=400&deadline=60s{more}", self.new)
    }

    fn import_into(&self, source: &Source) -> keymill::Result<Import> {
        let old = OldRow::of(self.scheme).table(self.old.as_str());
        persistently(|| source.import(&old, Change::Apply))
    }

    /// Imports in another process, as the command does.
    fn import(&self) -> keymill::Result<Import> {
        let mill = self.mill();
        let imported = self.import_into(&mill.source(&self.new_spec("")).unwrap());
        mill.close();
        imported
    }

    fn drop_tables(&self) {
        if self.folder.is_none() {
            mariadb::say(&format!("DROP TABLE {}, {}", self.old, self.new));
        }
    }
}

#[track_caller]
fn assert_unique(ids: impl IntoIterator<Item = u64>, place: &Place) {
    let mut seen = HashSet::new();
    for id in ids {
        assert!(seen.insert(id), "{id} came twice ({}, {})", place.scheme, place.url);
    }
}

#[track_caller]
fn no_errors(takers: &Takers) {
    let errors: Vec<(Duration, Error)> = takers.errors();
    assert!(errors.is_empty(), "{errors:?}");
}

/// In every place: a mill with the old row open, another with the new source, with these options.
fn with_both_open(options: &str, play: impl Fn(&Place, &Source, &Source)) {
    for place in Place::all() {
        let mills = [place.mill(), place.mill()];
        let old = mills[0].source(&place.old_spec("")).unwrap();
        let new = mills[1].source(&place.new_spec(options)).unwrap();
        play(&place, &old, &new);
        mills.iter().for_each(Mill::close);
        place.drop_tables();
    }
}

#[test]
fn a_mill_with_the_old_row_open_uses_up_what_it_has_and_goes_on_far_away() {
    with_both_open("", |place, old, new| {
        let (theirs, ours) = (Takers::default(), Takers::default());
        let mut imported = None;
        theirs.beside(&[old, old], 17, Duration::from_millis(1), || {
            until("the old row is in use", Duration::from_secs(300), || theirs.count() > 500);
            imported = Some(place.import().unwrap());
            ours.beside(&[new, new], 17, Duration::from_millis(1), || {
                until("the new row is in use", Duration::from_secs(300), || ours.count() > 1000);
                until("the old one is too", Duration::from_secs(300), || theirs.highest() > PARKED_AT);
            });
        });
        no_errors(&theirs);
        no_errors(&ours);
        let first = imported.unwrap().new_after.mark.next;
        let (theirs, mut ours) = (theirs.got(), ours.got());
        ours.sort_unstable();
        assert_eq!(ours[0], first);
        assert!(ours.last().is_some_and(|last| *last < PARKED_AT));
        // Numbers in memory are below, later ones far above.
        assert!(theirs.iter().all(|id| *id < first || *id > PARKED_AT), "{}", place.scheme);
        // Numbers returned at its close are far away as well: the new row is not lowered, and only its own mill raises it.
        let stands = || new.status().unwrap().row.unwrap().mark.next;
        let before = stands();
        old.mill().close();
        assert!((before..PARKED_AT).contains(&stands()));
        let after = new.take(2000).unwrap();
        assert_unique(theirs.into_iter().chain(ours).chain(after), place);
    });
}

#[test]
fn a_mill_with_the_new_source_open_and_not_asked_yet_begins_where_the_old_row_stood() {
    with_both_open("", |place, old, new| {
        let mut ids = old.take(120).unwrap();
        let imported = place.import().unwrap();
        ids.extend(new.take(700).unwrap());
        assert_eq!(ids[120], imported.new_after.mark.next, "{}", place.scheme);
        ids.extend(old.take(700).unwrap());
        assert_unique(ids, place);
    });
}

#[test]
fn a_mill_that_uses_the_new_source_above_the_old_row_goes_on_unchanged() {
    with_both_open("&start=100000", |place, old, new| {
        let mut ids = old.take(120).unwrap();
        let takers = Takers::default();
        takers.beside(&[new, new], 17, Duration::from_millis(1), || {
            until("the new row is in use", Duration::from_secs(300), || takers.count() > 500);
            let imported = place.import().unwrap();
            assert!(imported.new_after.mark.next > 100_000 && imported.old_after.mark.next > PARKED_AT);
            let so_far = takers.count();
            until("it still is", Duration::from_secs(300), || takers.count() > so_far + 1000);
        });
        no_errors(&takers);
        ids.extend(takers.got());
        assert!(ids.iter().all(|id| *id < PARKED_AT));
        ids.extend(old.take(700).unwrap());
        assert_unique(ids, place);
    });
}

#[test]
fn a_mill_that_uses_the_new_source_below_the_old_row_has_to_be_closed_before_the_row_is_raised() {
    for place in Place::all() {
        let (old_mill, new_mill) = (place.mill(), place.mill());
        let old = old_mill.source(&place.old_spec("")).unwrap();
        let mut ids = old.take(500).unwrap();
        // Numbers that the old row has issued too: they came from a trial and are discarded.
        let trial = new_mill.source(&place.new_spec("")).unwrap();
        trial.take(10).unwrap();
        let error = place.import().unwrap_err();
        assert_eq!(error.code, Code::StoreRefused, "{error}");
        assert!(
            error.message.contains("close every mill that has it open")
                && error.message.contains("nothing was changed"),
            "{error}"
        );
        // The old row continues where it was.
        ids.extend(old.take(500).unwrap());
        assert!(ids.iter().all(|id| *id < PARKED_AT));
        new_mill.close();
        let new_mill = place.mill();
        let new = new_mill.source(&place.new_spec("")).unwrap();
        new.repair(5000, Change::Apply).unwrap();
        place.import().unwrap();
        assert_eq!(new.next().unwrap(), 5000);
        ids.extend(new.take(700).unwrap());
        ids.extend(old.take(700).unwrap());
        assert_unique(ids, &place);
        old_mill.close();
        new_mill.close();
        place.drop_tables();
    }
}

#[test]
fn a_first_id_and_an_import_at_once_leave_one_of_two_outcomes() {
    let (mut first, mut second) = (0, 0);
    for place in Place::all() {
        for _ in 0..6 {
            let (old_mill, new_mill) = (place.mill(), place.mill());
            let name = fastrand::u64(..).to_string();
            let named = |spec: String| spec.replacen("orders", &name, 1);
            let old = old_mill.source(&named(place.old_spec(""))).unwrap();
            let new = new_mill.source(&named(place.new_spec(""))).unwrap();
            let mut ids = old.take(500).unwrap();
            let other = place.mill();
            let into = other.source(&named(place.new_spec(""))).unwrap();
            // Both are connected: each of the following is one transaction.
            into.status().unwrap();
            new.status().unwrap();
            let (one, imported) = std::thread::scope(|scope| {
                let one = scope.spawn(|| new.next().unwrap());
                let imported = place.import_into(&into);
                (one.join().unwrap(), imported)
            });
            match imported {
                Ok(imported) => {
                    assert!(one >= imported.new_after.mark.next && one > 500, "{one} {imported:?}");
                    ids.push(one);
                    ids.extend(new.take(700).unwrap());
                    first += 1;
                }
                // The source began by itself, from 1.
                Err(error) => {
                    assert_eq!((one, error.code), (1, Code::StoreRefused), "{error}");
                    assert!(error.message.contains("counted the same numbers"), "{error}");
                    second += 1;
                }
            }
            ids.extend(old.take(700).unwrap());
            assert_unique(ids, &place);
            for mill in [old_mill, new_mill, other] {
                mill.close();
            }
        }
        place.drop_tables();
    }
    println!("import   begun at once: the import was first {first} times, the id {second} times");
}

#[test]
fn of_two_sources_that_import_one_row_at_once_the_second_is_refused_with_the_firsts_name() {
    for place in Place::all() {
        let mut ids = Vec::new();
        for round in 0..4 {
            let row = format!("row_{round}");
            let old_mill = place.mill();
            let old = old_mill.source(&place.old_spec("").replacen("orders", &row, 1)).unwrap();
            old.take(10).unwrap();
            old_mill.close();
            let mills = [place.mill(), place.mill()];
            let sources = [0, 1].map(|n| {
                let spec = place.new_spec("").replacen("orders", &format!("taker_{round}_{n}"), 1);
                let source = mills[n].source(&spec).unwrap();
                source.status().unwrap();
                source
            });
            let old = OldRow::of(place.scheme).table(place.old.as_str()).row(row.as_str());
            let imported = std::thread::scope(|scope| {
                let threads = sources
                    .each_ref()
                    .map(|source| scope.spawn(|| persistently(|| source.import(&old, Change::Apply))));
                threads.map(|thread| thread.join().unwrap())
            });
            let won = imported.iter().position(Result::is_ok).expect("one of them has it");
            let error = imported[1 - won].as_ref().expect_err("one of them has it not");
            assert_eq!(error.code, Code::StoreRefused, "{error}");
            let says = format!("was imported into `segment:taker_{round}_{won}` before");
            assert!(error.message.contains(&says), "{error}");
            ids.push(sources[won].next().unwrap());
            mills.iter().for_each(Mill::close);
        }
        assert_eq!(ids, [11; 4], "{}", place.scheme);
        place.drop_tables();
    }
}
