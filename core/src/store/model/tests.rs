//! What each verb of a store does to a row, where another process is in between, and how rows are kept.

use std::sync::Arc;

use super::counter::CounterRow;
use super::rows::{self, Digits, ProducerKey, Rows, StoredRow};
use crate::config::MillConfig;
use crate::store::{
    Fault, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Partition, Request, Reserved, Row, RowMark, Scheme,
    SerialKey,
};

const DAY: u64 = 20_261_121_000_000_000;
const PRODUCER: &str = "serial:cust/id?scheme=key_producer&date=yyyyMMdd&number=000&zone=UTC";

pub(super) fn key(spec: &str) -> Arc<Key> {
    MillConfig::parse("mysql://app@db/ids").and_then(|config| config.spec(spec)).expect("a spec").key
}

pub(super) fn message(fault: Fault) -> String {
    fault.to_string()
}

fn kind<T>(result: Result<T, Fault>) -> Option<FaultKind> {
    result.err().map(|fault| fault.kind)
}

const fn mark(period: u64, next: u64) -> Mark {
    Mark { period, next }
}

/// A table of one row.
#[derive(Default)]
pub(super) struct Table {
    pub(super) row: Option<StoredRow>,
    /// Another process is faster: nothing is written.
    outrun: bool,
    /// The largest digits in the business table, and what was asked for.
    largest: Option<String>,
    asked: Option<(String, usize, usize)>,
    /// The store's clock.
    clock_ms: Option<u64>,
    locked: bool,
    writes: u32,
}

impl Table {
    pub(super) fn of(row: StoredRow) -> Table {
        Table { row: Some(row), ..Table::default() }
    }

    fn at(next: u64) -> Table {
        Table::of(StoredRow::Segment(RowMark::open(None, next)))
    }

    fn next(&self) -> Option<u64> {
        match self.row {
            Some(StoredRow::Segment(row)) => Some(row.mark.next),
            _ => None,
        }
    }
}

impl Rows for Table {
    fn read(&mut self, _key: &Key, lock: bool) -> Result<Option<StoredRow>, Fault> {
        self.locked |= lock;
        Ok(self.row.clone())
    }

    fn insert(&mut self, _key: &Key, new: &StoredRow) -> Result<bool, Fault> {
        assert!(self.row.is_none(), "there is a row");
        Ok(self.write(new.clone()))
    }

    fn replace(&mut self, _key: &Key, old: &StoredRow, new: &StoredRow) -> Result<bool, Fault> {
        assert_eq!(self.row.as_ref(), Some(old));
        Ok(self.write(new.clone().after(Some(old))))
    }

    fn clock_ms(&mut self, _: u64) -> Result<Option<u64>, Fault> {
        Ok(self.clock_ms)
    }

    fn largest(&mut self, _: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        self.asked = Some((prefix.to_owned(), digits.shortest, digits.longest));
        Ok(self.largest.clone())
    }

    fn new_owner(&mut self, _: &Key, _: &str) -> Result<Option<String>, Fault> {
        Ok(None)
    }
}

impl Table {
    /// Whether the row was written.
    fn write(&mut self, new: StoredRow) -> bool {
        self.writes += 1;
        if !self.outrun {
            self.row = Some(new);
        }
        !self.outrun
    }
}

fn range(reserved: Result<Option<Reserved>, Fault>) -> Option<(u64, u64)> {
    reserved.expect("no fault").map(|reserved| (reserved.lo, reserved.hi))
}

mod reserving {
    use super::*;

    #[test]
    fn a_reservation_makes_the_row_or_moves_it() {
        let orders = key("segment:orders");
        let mut table = Table::default();
        assert_eq!(range(rows::reserve(&mut table, &Request::new(&orders, 10))), Some((1, 11)));
        assert_eq!(range(rows::reserve(&mut table, &Request::new(&orders, 5))), Some((11, 16)));
        assert_eq!((table.next(), table.locked), (Some(16), true));
    }

    #[test]
    fn a_reservation_that_another_process_outran_is_to_be_begun_again() {
        let orders = key("segment:orders");
        for row in [None, Some(StoredRow::Segment(RowMark::open(None, 7)))] {
            let mut table = Table { row, outrun: true, ..Table::default() };
            assert_eq!(range(rows::reserve(&mut table, &Request::new(&orders, 10))), None);
        }
    }

    #[test]
    fn a_row_with_a_step_is_moved_by_whole_steps_and_keeps_the_rest() {
        let leaf = key("segment:orders?scheme=leaf_alloc&step=50");
        let mut table = Table::default();
        assert_eq!(range(rows::reserve(&mut table, &Request::new(&leaf, 1))), Some((1, 51)));
        let row = CounterRow { maximum: 51, step: 50, ttl_s: 0, version: 0, stride: (1, 0) };
        assert_eq!(table.row, Some(StoredRow::Counter(row)));
        let row = CounterRow { step: 200, version: 6, ..row };
        let mut table = Table::of(StoredRow::Counter(row));
        assert_eq!(range(rows::reserve(&mut table, &Request::new(&leaf, 1))), Some((51, 251)));
        assert_eq!(table.row, Some(StoredRow::Counter(CounterRow { maximum: 251, version: 7, ..row })));
        let timed = key("segment:orders?scheme=sequence_table");
        let mut table = Table::of(StoredRow::Counter(CounterRow { ttl_s: 3, ..row }));
        let reserved =
            rows::reserve(&mut table, &Request::new(&timed, 1)).expect("no fault").expect("a range");
        assert_eq!((reserved.lo, reserved.hi, reserved.ttl_ms), (52, 252, Some(3_000)));
        table.outrun = true;
        assert_eq!(range(rows::reserve(&mut table, &Request::new(&timed, 1))), None);
        assert_eq!(
            kind(rows::reserve(&mut Table::default(), &Request { start: 0, ..Request::new(&leaf, 1) })),
            Some(FaultKind::Refused)
        );
    }

    #[test]
    fn a_row_of_another_stride_is_refused() {
        let tiny = key("segment:orders?scheme=tiny_id_info&delta=3&remainder=1");
        let row = CounterRow { maximum: 0, step: 6, ttl_s: 0, version: 0, stride: (3, 2) };
        assert_eq!(
            kind(rows::reserve(&mut Table::of(StoredRow::Counter(row)), &Request::new(&tiny, 1))),
            Some(FaultKind::Refused)
        );
        let row = CounterRow { stride: (3, 1), ..row };
        let mut table = Table::of(StoredRow::Counter(row));
        assert_eq!(range(rows::reserve(&mut table, &Request::new(&tiny, 1))), Some((1, 7)));
    }

    #[test]
    fn a_row_of_key_producer_that_says_nothing_is_refused_unless_it_says_init() {
        let producer = key(PRODUCER);
        let today = Request { period: DAY, period_max: DAY, last: 999, ..Request::new(&producer, 10) };
        let serial = |text: Option<&str>| Table::of(StoredRow::Serial(text.map(str::to_owned)));
        for (text, says) in [(None, "holds NULL"), (Some(""), "holds an empty text")] {
            let told = rows::reserve(&mut serial(text), &today).expect_err("it is refused");
            assert_eq!(told.kind, FaultKind::Refused);
            assert!(told.to_string().contains(says), "{told}");
            // To a process that has seen numbers it went backwards.
            let seen = Request { high_water: mark(DAY, 7), ..today.clone() };
            assert_eq!(kind(rows::reserve(&mut serial(text), &seen)), Some(FaultKind::WentBackwards));
        }
        let mut table = serial(Some("INIT"));
        assert_eq!(range(rows::reserve(&mut table, &today)), Some((1, 11)));
        assert_eq!(table.row, Some(StoredRow::Serial(Some("20261121010".to_owned()))));
        assert_eq!(range(rows::reserve(&mut table, &today)), Some((11, 21)));
        let odd = rows::reserve(&mut serial(Some("x")), &today);
        assert!(odd.is_err_and(|fault| fault.to_string().contains("holds `x`")));
    }

    #[test]
    fn a_missing_row_begins_after_the_largest_serial_of_the_business_table() {
        let producer = key(&format!("{PRODUCER}&init=max"));
        let today = Request { period: DAY, period_max: DAY, last: 999, ..Request::new(&producer, 10) };
        for (largest, begins) in
            [(None, 1), (Some("000"), 1), (Some("001"), 2), (Some("500"), 501), (Some("0"), 1)]
        {
            let mut table = Table { largest: largest.map(str::to_owned), ..Table::default() };
            assert_eq!(range(rows::reserve(&mut table, &today)), Some((begins, begins + 10)), "{largest:?}");
            assert_eq!(table.asked, Some(("20261121".to_owned(), 3, 3)));
        }
        let wide = Request { last: 99_999, ..today.clone() };
        let mut table = Table { largest: Some("1234".to_owned()), ..Table::default() };
        assert_eq!(range(rows::reserve(&mut table, &wide)), Some((1235, 1245)));
        assert_eq!(table.asked, Some(("20261121".to_owned(), 3, 5)));
        // A row that stands decides by itself.
        let mut table = Table::of(StoredRow::Serial(Some("20261121007".to_owned())));
        assert_eq!(range(rows::reserve(&mut table, &today)), Some((8, 18)));
        assert_eq!(table.asked, None);
        let mut table = Table { largest: Some("999".to_owned()), ..Table::default() };
        assert_eq!(kind(rows::reserve(&mut table, &today)), Some(FaultKind::Exhausted));
        let endless = Request { last: MAX_NUMBER, ..today.clone() };
        for beyond in [(MAX_NUMBER + 1).to_string(), "99999999999999999999".to_owned()] {
            let mut table = Table { largest: Some(beyond), ..Table::default() };
            assert_eq!(kind(rows::reserve(&mut table, &endless)), Some(FaultKind::Refused));
        }
        let mut table = Table { largest: Some(MAX_NUMBER.to_string()), ..Table::default() };
        assert_eq!(kind(rows::reserve(&mut table, &endless)), Some(FaultKind::Exhausted));
        let without = key(PRODUCER);
        let mut table = Table { largest: Some("500".to_owned()), ..Table::default() };
        assert_eq!(range(rows::reserve(&mut table, &Request { key: without, ..today })), Some((1, 11)));
    }

    #[test]
    fn the_business_table_and_column_must_be_identifiers() {
        for (name, sound) in [
            ("cust", true),
            ("_c$9", true),
            ("9c", false),
            ("$c", false),
            ("cu-st", false),
            ("", false),
            ("ä", false),
        ] {
            assert_eq!(rows::is_identifier(name), sound, "{name}");
        }
        assert!(rows::is_identifier(&"n".repeat(64)) && !rows::is_identifier(&"n".repeat(65)));
        for (table, column) in [("cu st", "id"), ("cust", "i d")] {
            let mut producer = Key::clone(&key(&format!("{PRODUCER}&init=max")));
            if let Some(serial) = &mut producer.serial {
                (serial.table, serial.column) = (table.to_owned(), column.to_owned());
            }
            let today = Request { period: DAY, period_max: DAY, ..Request::new(&Arc::new(producer), 10) };
            let told = rows::reserve(&mut Table::default(), &today).expect_err("it is refused");
            assert!(told.to_string().contains("not an identifier"), "{told}");
        }
    }
}

mod giving_back {
    use super::*;

    #[test]
    fn only_a_row_that_still_ends_there_takes_a_range_back() {
        let orders = key("segment:orders");
        for (lo, hi, stands, back) in [
            (40, 101, 101, true),
            (100, 101, 101, true),
            (40, 101, 102, false),
            (40, 101, 100, false),
            (101, 101, 101, false),
            (102, 101, 101, false),
            (0, 101, 101, false),
        ] {
            let mut table = Table::at(stands);
            assert_eq!(
                rows::give_back(&mut table, &GiveBack::new(&orders, 0, lo, hi)),
                Ok(back),
                "{lo}..{hi} at {stands}"
            );
            assert_eq!(table.next(), Some(if back { lo } else { stands }));
        }
        assert_eq!(
            rows::give_back(&mut Table::at(101), &GiveBack::new(&orders, 1, 40, 101)),
            Ok(false),
            "another period"
        );
        assert_eq!(
            rows::give_back(&mut Table::default(), &GiveBack::new(&orders, 0, 40, 101)),
            Ok(false),
            "no row"
        );
        let mut outrun = Table { outrun: true, ..Table::at(101) };
        assert_eq!(rows::give_back(&mut outrun, &GiveBack::new(&orders, 0, 40, 101)), Ok(false));
    }

    #[test]
    fn a_row_of_every_third_number_takes_back_up_to_its_next_own_number() {
        let tiny = key("segment:orders?scheme=tiny_id_info&delta=3&remainder=1");
        let row = CounterRow { maximum: 18, step: 6, ttl_s: 0, version: 2, stride: (3, 1) };
        let mut table = Table::of(StoredRow::Counter(row));
        // The next own number is 19, wherever the maximum stands between 16 and 19.
        assert_eq!(rows::give_back(&mut table, &GiveBack::new(&tiny, 0, 10, 17)), Ok(true));
        assert_eq!(table.row, Some(StoredRow::Counter(CounterRow { maximum: 9, version: 3, ..row })));
    }
}

mod raising {
    use super::*;

    #[test]
    fn a_mark_is_raised_from_where_it_is_expected() {
        let flakes = key("snowflake:f?worker=1");
        for (row, expect, to, before, stands) in [
            (None, None, 50, 0, Some(50)),
            (None, Some(0), 50, 0, Some(50)),
            (None, None, 0, 0, None),
            (Some(40), None, 50, 40, Some(50)),
            (Some(40), Some(40), 41, 40, Some(41)),
            (Some(40), Some(40), 40, 40, Some(40)),
            (Some(40), None, 30, 40, Some(40)),
        ] {
            let mut table = Table {
                row: row.map(|next| StoredRow::Segment(RowMark::open(None, next))),
                ..Table::default()
            };
            assert_eq!(rows::raise(&mut table, &flakes, expect, to), Ok(Some(before)), "{row:?} to {to}");
            assert_eq!(table.next(), stands);
            assert_eq!(table.writes, u32::from(to > before));
        }
        let mut outrun = Table { outrun: true, ..Table::at(40) };
        assert_eq!(rows::raise(&mut outrun, &flakes, None, 50), Ok(None));
    }

    #[test]
    fn the_mark_of_a_worker_that_is_leased_or_begun_anew_is_raised_by_no_process_that_had_it() {
        let flakes = key("snowflake:f?worker=1");
        for state in [
            crate::store::RowState::Leased,
            crate::store::RowState::Beginning,
            crate::store::RowState::Closed,
        ] {
            for expect in [None, Some(40)] {
                let row = StoredRow::Segment(RowMark::open(None, 40).in_state(state));
                let mut table = Table { row: Some(row), ..Table::default() };
                assert_eq!(kind(rows::raise(&mut table, &flakes, expect, 50)), Some(FaultKind::Taken));
                assert_eq!((table.next(), table.writes), (Some(40), 0), "{state:?} {expect:?}");
            }
        }
    }

    #[test]
    fn a_mark_that_stands_elsewhere_is_anothers_and_other_schemes_keep_none() {
        let flakes = key("snowflake:f?worker=1");
        for expect in [39, 41] {
            let mut table = Table::at(40);
            assert_eq!(kind(rows::raise(&mut table, &flakes, Some(expect), 50)), Some(FaultKind::Taken));
            assert_eq!(table.next(), Some(40));
        }
        let leaf = key("segment:orders?scheme=leaf_alloc");
        let told = rows::raise(&mut Table::default(), &leaf, None, 50).expect_err("it is refused");
        assert!(told.to_string().contains("`leaf_alloc` keeps no marks"), "{told}");
    }
}

mod repairing {
    use super::*;

    fn texts(repaired: Option<(Option<Row>, Row)>) -> (Option<String>, String) {
        let (before, after) = repaired.expect("it was not outrun");
        (before.map(|row| row.text), after.text)
    }

    #[test]
    fn a_repair_makes_a_row_or_raises_it_and_never_lowers_it() {
        let orders = key("segment:orders");
        let repair = |table: &mut Table, next| rows::repair(table, &orders, mark(0, next));
        let mut table = Table::default();
        assert_eq!(texts(repair(&mut table, 500).unwrap()), (None, "next=500".to_owned()));
        assert_eq!(
            texts(repair(&mut table, 600).unwrap()),
            (Some("next=500".to_owned()), "next=600".to_owned())
        );
        assert_eq!((table.next(), table.writes), (Some(600), 2));
        repair(&mut table, 600).unwrap().expect("it stands there already");
        assert_eq!(table.writes, 2);
        let told = repair(&mut table, 599).expect_err("it is refused");
        assert_eq!(told.kind, FaultKind::Refused);
        assert!(told.to_string().contains("stands at 600, above 599"), "{told}");
        assert_eq!(kind(repair(&mut table, 0)), Some(FaultKind::Refused));
        table.outrun = true;
        assert_eq!(repair(&mut table, 700), Ok(None));
    }

    #[test]
    fn a_repair_keeps_what_else_is_in_a_row_and_says_what_will_be() {
        let leaf = key("segment:orders?scheme=leaf_alloc&step=50");
        let row = CounterRow { maximum: 51, step: 200, ttl_s: 0, version: 0, stride: (1, 0) };
        let mut table = Table::of(StoredRow::Counter(row));
        let repaired = rows::repair(&mut table, &leaf, mark(0, 500)).unwrap();
        assert_eq!(
            texts(repaired),
            (Some("max_id=51 step=200".to_owned()), "max_id=500 step=200".to_owned())
        );
        let Some(StoredRow::Counter(now)) = table.row else { panic!("{:?}", table.row) };
        assert_eq!((now.maximum, now.step), (500, 200));
        let mut table = Table::default();
        let repaired = rows::repair(&mut table, &leaf, mark(0, 500)).unwrap();
        assert_eq!(texts(repaired), (None, "max_id=500 step=50".to_owned()));
        let Some(StoredRow::Counter(now)) = table.row else { panic!("{:?}", table.row) };
        assert_eq!((now.maximum, now.step), (500, 50), "a new row has its key's step");
    }

    #[test]
    fn a_row_of_several_stores_is_not_repaired_alone() {
        let orders = key("segment:orders");
        let partition = Partition { stores: 2, index: 0, chunk: 10 };
        let mut table = Table::of(StoredRow::Segment(RowMark::open(Some(partition), 5)));
        for to in [mark(0, 9), mark(1, 9)] {
            let told = rows::repair(&mut table, &orders, to).expect_err("it is refused");
            assert!(told.to_string().contains("one of several"), "{told}");
        }
        let other = Key { partition: Some(Partition { index: 1, ..partition }), ..Key::clone(&orders) };
        let told = rows::repair(&mut table, &other, mark(0, 9)).expect_err("it is refused");
        assert!(told.to_string().contains("recorded as store 1 of 2"), "{told}");
        let own = Key { partition: Some(partition), ..Key::clone(&orders) };
        assert!(rows::repair(&mut table, &own, mark(0, 9)).is_ok());
        assert_eq!(table.next(), Some(9));
    }

    #[test]
    fn a_ticket_is_repaired_by_whole_steps() {
        let ticket = key("segment:orders?scheme=ticket&step=10");
        for (next, id, then) in [(1, 0, 1), (2, 1, 11), (11, 1, 11), (12, 2, 21)] {
            let row = rows::moved(&ticket, None, mark(0, next)).expect("a row");
            assert_eq!((row.text, row.mark), (format!("id={id} step=10"), mark(0, then)), "{next}");
        }
        let sequence = key("segment:orders?scheme=sequence&step=10");
        let row = rows::moved(&sequence, None, mark(0, 12)).expect("a row");
        assert_eq!(row.text, "next value=21");
        let row = rows::moved(&ticket, None, mark(0, MAX_NUMBER)).expect("a row");
        assert_eq!(row.mark.next, MAX_NUMBER + 1);
    }

    #[test]
    fn a_rows_own_step_is_said_where_its_table_has_one() {
        let counter = CounterRow { maximum: 51, step: 200, ttl_s: 0, version: 0, stride: (1, 0) };
        let step =
            |spec: &str, counter| rows::step_of(&key(spec), &Row { counter, ..Row::at(1, String::new()) });
        assert_eq!(step("segment:orders?scheme=leaf_alloc", Some(counter)), Some(200));
        assert_eq!(step("segment:orders?scheme=leaf_alloc", None), None);
        assert_eq!(step("segment:orders?scheme=cosid", Some(counter)), None);
        assert_eq!(step("segment:orders", Some(counter)), None);
    }
}

mod keeping {
    use super::*;

    #[test]
    fn a_place_is_kept_as_its_scheme_does_and_reads_back() {
        for (spec, at, text) in [
            ("segment:orders", mark(0, 7), "next=7"),
            ("segment:orders", mark(3, 7), "date=3 next=7"),
            (PRODUCER, mark(DAY, 7), "MAXSERIALNO=20261121006"),
            (PRODUCER, mark(DAY, 1), "MAXSERIALNO=20261121000"),
            ("segment:orders?scheme=cosid", mark(0, 7), "last_max_id=6"),
        ] {
            let key = key(spec);
            let stored = rows::stored_at(&key, at).expect("it can be kept");
            assert_eq!(rows::mark_of(&key, &stored), Ok(Some(at)), "{spec}");
            let row = rows::row_of(&key, &stored).expect("a row");
            assert_eq!((row.text.as_str(), row.mark), (text, at));
            assert_eq!(row.counter.is_some(), spec.contains("cosid"));
        }
    }

    #[test]
    fn a_place_beyond_the_last_number_or_that_does_not_read_back_is_not_kept() {
        let orders = key("segment:orders");
        assert!(rows::stored_at(&orders, mark(0, MAX_NUMBER + 1)).is_ok());
        assert_eq!(kind(rows::stored_at(&orders, mark(0, MAX_NUMBER + 2))), Some(FaultKind::Refused));
        let producer = key(PRODUCER);
        // Widened by a digit it reads back; a day that is none does not.
        assert!(rows::stored_at(&producer, mark(DAY, 1001)).is_ok());
        assert_eq!(kind(rows::stored_at(&producer, mark(7, 1))), Some(FaultKind::Refused));
    }

    #[test]
    fn a_row_that_says_nothing_has_no_place() {
        let producer = key(PRODUCER);
        for text in [None, Some(""), Some("INIT")] {
            let stored = StoredRow::Serial(text.map(str::to_owned));
            assert_eq!(rows::mark_of(&producer, &stored), Ok(None), "{text:?}");
            let row = rows::row_of(&producer, &stored).expect("a row");
            assert_eq!(row.mark, Mark::default());
            assert_eq!(
                row.text,
                text.map_or("MAXSERIALNO is NULL".to_owned(), |text| format!("MAXSERIALNO={text}"))
            );
        }
        let beyond = StoredRow::Serial(Some(format!("20261121{}", MAX_NUMBER + 1)));
        assert_eq!(kind(rows::mark_of(&producer, &beyond)), Some(FaultKind::Refused));
        let last = StoredRow::Serial(Some(format!("20261121{}", "9".repeat(18))));
        assert_eq!(rows::mark_of(&producer, &last), Ok(Some(mark(DAY, 1_000_000_000_000_000_000))));
        let plain = Key { serial: None, ..Key::clone(&producer) };
        assert_eq!(kind(rows::mark_of(&plain, &last)), Some(FaultKind::Refused), "no serial number");
    }

    #[test]
    fn a_look_locks_nothing() {
        let orders = key("segment:orders");
        let mut table = Table::at(7);
        let row = rows::look(&mut table, &orders).expect("no fault").expect("a row");
        assert_eq!((row.mark, table.locked), (mark(0, 7), false));
        assert_eq!(rows::look(&mut Table::default(), &orders), Ok(None));
    }

    #[test]
    fn the_names_of_a_producers_row_fit_their_columns_in_capitals() {
        let made = |table: usize, column: usize| {
            let mut key = Key::clone(&key(PRODUCER));
            if let Some(serial) = &mut key.serial {
                (serial.table, serial.column) = ("t".repeat(table), "c".repeat(column));
            }
            ProducerKey::new(key.serial.as_ref().expect("a serial"))
        };
        let row = made(2, 3).expect("a row");
        assert_eq!(
            (row.table, row.column, row.date, row.number),
            ("TT".into(), "CCC".into(), "yyyyMMdd".into(), "000".into())
        );
        assert!(made(80, 80).is_ok());
        assert!(made(81, 1).is_err_and(|fault| fault.to_string().contains("80 characters of `TABLENAME`")));
        assert!(made(1, 81).is_err_and(|fault| fault.to_string().contains("80 characters of `COLUMNNAME`")));
        for (words, fits) in [(10, true), (11, false)] {
            let made = ProducerKey::new(
                key(&format!(
                    "serial:cust/id?scheme=key_producer&zone=UTC&date=yyyyMMdd'{}'",
                    "d".repeat(words)
                ))
                .serial
                .as_ref()
                .expect("a serial"),
            );
            assert_eq!(made.is_ok(), fits, "a date pattern of {} characters", 10 + words);
        }
    }

    #[test]
    fn a_server_counts_tickets_and_no_other_store() {
        for scheme in Scheme::ALL {
            let key = Key { scheme, ..Key::clone(&key("segment:orders")) };
            let told = rows::check_kept_here(&key).map_err(message);
            match scheme {
                Scheme::Sequence | Scheme::JpaSequence => {
                    assert!(told.is_err_and(|told| told.contains("PostgreSQL or TiDB")));
                }
                Scheme::Ticket | Scheme::AutoIncrement => {
                    assert!(told.is_err_and(|told| told.contains("MySQL")));
                }
                _ => assert_eq!(told, Ok(())),
            }
        }
    }
}

mod saying {
    use super::*;

    #[test]
    fn messages_count_a_reservation_in_the_sources_own_numbers() {
        assert_eq!(
            rows::reserving(&Request::new(&key("segment:orders"), 2000)),
            "reserving 2000 for `segment:orders`"
        );
        let tiny = key("segment:orders?scheme=tiny_id_info&delta=3&remainder=1");
        assert!(rows::reserving(&Request::new(&tiny, 9)).starts_with("reserving 3 for"));
        assert!(rows::reserving(&Request::new(&tiny, 10)).starts_with("reserving 4 for"));
        assert_eq!((rows::creating(true), rows::creating(false)), ("looking for tables", "creating tables"));
        let fault = Fault::new(FaultKind::Refused, "no table").with_context("a look");
        assert_eq!(fault.to_string(), "a look failed: no table");
        let fault = rows::would_fail(&key("segment:orders"), Fault::new(FaultKind::Refused, "no table"));
        assert_eq!(fault.to_string(), "repairing `segment:orders` would fail: no table");
        assert_eq!(rows::moved_on().kind, FaultKind::Conflict);
        assert!(!FaultKind::Conflict.is_outage());
    }

    #[cfg(any(feature = "_sql", feature = "_server"))]
    #[test]
    fn a_batchs_fault_answers_every_request_and_answers_keep_their_order() {
        let requests = ["a", "b", "c"].map(|name| Request::new(&key(&format!("segment:{name}")), 5));
        let down = rows::in_context(&requests, Err(Fault::new(FaultKind::Unavailable, "down")));
        let told =
            down.into_iter().map(|answer| answer.expect("an answer").expect_err("a fault").to_string());
        assert_eq!(
            told.collect::<Vec<_>>(),
            ["a", "b", "c"].map(|name| format!("reserving 5 for `segment:{name}` failed: down"))
        );
        let range = Reserved { lo: 1, hi: 6, period: 0, ttl_ms: None };
        let some = vec![Some(Ok(range)), None, Some(Err(Fault::new(FaultKind::Refused, "no")))];
        let told = rows::in_context(&requests, Ok(some));
        assert_eq!(told[0], Some(Ok(range)));
        assert_eq!(told[1], None);
        assert!(
            matches!(&told[2], Some(Err(fault)) if fault.to_string() == "reserving 5 for `segment:c` failed: no")
        );
    }

    #[cfg(feature = "_sql")]
    #[test]
    fn the_time_of_a_change_stands_in_its_schemes_column() {
        use super::super::row_layout::RowLayout;
        for (spec, column) in [
            ("segment:orders", Some(("updated_at", false))),
            (PRODUCER, Some(("update_time", false))),
            ("segment:orders?scheme=leaf_alloc", Some(("update_time", false))),
            ("segment:orders?scheme=cosid", Some(("last_fetch_time", true))),
            ("segment:orders?scheme=sequence_table", None),
            ("segment:orders?scheme=ticket", None),
        ] {
            let key = key(spec);
            let touched = RowLayout::of(&key).touched().map(|(column, touched)| (column, touched.in_seconds));
            assert_eq!(touched, column, "{spec}");
        }
    }
}
