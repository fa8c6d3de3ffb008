//! What a row with a maximum becomes, for each table that keeps one.

use super::counter::{Counter, CounterRow, not_imported};
use super::tests::{key, message};
use crate::store::{
    Fault, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Partition, Request, RowMark, RowState, RowStatus,
    Scheme, Stride,
};

const SEQUENCE_TABLE: &str = "segment:orders?scheme=sequence_table";
const LEAF: &str = "segment:orders?scheme=leaf_alloc";
const TINY: &str = "segment:orders?scheme=tiny_id_info&delta=3&remainder=1";
const EVERY_TINY: &str = "segment:orders?scheme=tiny_id_info";
const COSID: &str = "segment:orders?scheme=cosid";

fn counter(key: &Key) -> Counter<'_> {
    Counter::of(key).expect("a table with a maximum")
}

fn row(maximum: u64, step: u64) -> CounterRow {
    CounterRow { maximum, step, ttl_s: 0, version: 0, stride: (1, 0) }
}

fn next(next: u64) -> Mark {
    Mark { period: 0, next }
}

#[test]
fn only_the_tables_with_a_maximum_are_counters() {
    for scheme in Scheme::ALL {
        let is_counter = scheme.is_of_another_program() && scheme.keeps_segments();
        assert_eq!(
            scheme.counter().is_some_and(|columns| !columns.maximum.is_empty()),
            is_counter,
            "{scheme}"
        );
    }
    assert!(Counter::of(&key("segment:orders")).is_none());
}

#[test]
fn a_maximum_is_the_last_number_or_the_next_one() {
    for (spec, maximum, then) in
        [(SEQUENCE_TABLE, 800, 801), (LEAF, 800, 800), (COSID, 800, 801), (LEAF, 0, 0), (COSID, 0, 1)]
    {
        let key = key(spec);
        assert_eq!(counter(&key).mark(&row(maximum, 200)), next(then), "{spec}");
    }
    // Of every third number from 1 on, the next one is the same between two of them.
    let key = key(TINY);
    let nexts = (0..5).map(|maximum| counter(&key).mark(&row(maximum, 200)).next);
    assert_eq!(nexts.collect::<Vec<_>>(), [1, 4, 4, 4, 7]);
}

#[test]
fn a_row_is_found_by_the_sources_name_without_its_kind() {
    let found = |spec: &str| {
        let key = key(spec);
        counter(&key).row_name().map(str::to_owned).map_err(message)
    };
    assert_eq!(found(LEAF), Ok("orders".to_owned()));
    // Characters, not bytes.
    assert!(found(&format!("segment:{}?scheme=sequence_table", "ä".repeat(50))).is_ok());
    for (scheme, most) in [("sequence_table", 50), ("tiny_id_info", 63), ("cosid", 100)] {
        assert!(found(&format!("segment:{}?scheme={scheme}", "n".repeat(most))).is_ok(), "{scheme}");
        let refused = found(&format!("segment:{}?scheme={scheme}", "n".repeat(most + 1)));
        assert!(
            refused.is_err_and(|message| message.contains(&format!("the {most} characters"))),
            "{scheme}"
        );
    }
    assert!(found("segment:\u{ffff}?scheme=cosid").is_ok());
    let wide = found("segment:\u{10000}?scheme=cosid");
    assert!(wide.is_err_and(|message| message.contains("three-byte")));
}

#[test]
fn a_row_of_another_stride_is_refused_with_what_to_write() {
    let told = |spec: &str, stride| {
        let key = key(spec);
        counter(&key).check_stride(&CounterRow { stride, ..row(1, 1) }).map_err(message)
    };
    assert_eq!(told(TINY, (3, 1)), Ok(()));
    assert_eq!(told(EVERY_TINY, (1, 0)), Ok(()));
    assert_eq!(told(LEAF, (7, 3)), Ok(()), "its table has no stride");
    for (spec, stride, says) in [
        (TINY, (1, 0), "leave both options out"),
        (TINY, (3, 2), "write `delta=3&remainder=2`"),
        (TINY, (2, 1), "is written with `delta=3&remainder=1`"),
        (TINY, (3, 3), "no number fits both"),
        (EVERY_TINY, (3, 1), "written without them"),
    ] {
        let message = told(spec, stride).expect_err("it is refused");
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn a_row_of_a_few_numbers_cannot_be_imported_and_another_refusal_stays_as_it_is() {
    let key = key(EVERY_TINY);
    let refused = counter(&key).check_stride(&CounterRow { stride: (3, 1), ..row(1, 1) });
    let told = message(not_imported(&key, refused.expect_err("it is refused")));
    assert!(told.contains("other databases issue") && !told.contains("leave"), "{told}");
    let other = Fault::new(FaultKind::Refused, "no table");
    assert_eq!(not_imported(&key, other.clone()), other);
}

#[test]
fn a_new_row_has_its_position_and_the_step_of_its_key() {
    for (spec, maximum) in [(SEQUENCE_TABLE, 800), (LEAF, 801), (COSID, 800)] {
        let key = key(spec);
        let made = counter(&key).row_at(next(801), 200).expect("a row");
        let step = if spec == COSID { 1 } else { 200 };
        assert_eq!(made, CounterRow { maximum, step, ttl_s: 0, version: 0, stride: (1, 0) }, "{spec}");
        assert_eq!(counter(&key).mark(&made), next(801));
    }
    let leaf = key(LEAF);
    assert_eq!(counter(&leaf).row_at(next(1), 0).map(|row| row.step), Ok(1));
    assert_eq!(counter(&leaf).row_at(next(1), u64::MAX).map(|row| row.step), Ok(i32::MAX as u64));
    let tiny = key(TINY);
    let made = counter(&tiny).row_at(next(4), 200).expect("a row");
    assert_eq!((made.maximum, made.step, made.stride), (3, 600, (3, 1)));
    assert_eq!(counter(&leaf).row_at(next(0), 1).map(|row| row.maximum), Ok(0));
    assert_eq!(counter(&tiny).row_at(next(0), 1).map(|row| row.maximum), Ok(0));
}

#[test]
fn the_last_number_is_what_a_signed_column_can_say() {
    for (spec, last) in [(SEQUENCE_TABLE, MAX_NUMBER), (LEAF, MAX_NUMBER - 1), (COSID, MAX_NUMBER)] {
        let key = key(spec);
        let counter = counter(&key);
        assert_eq!(counter.last(), last, "{spec}");
        assert_eq!(counter.row_at(next(last + 1), 1).map(|row| row.maximum), Ok(MAX_NUMBER), "{spec}");
        let beyond = counter.row_at(next(last + 2), 1).map_err(message);
        assert!(beyond.is_err_and(|message| message.contains("signed 64-bit")), "{spec}");
    }
}

#[test]
fn a_request_is_for_whole_steps_of_the_row() {
    let lens = |spec: &str, step: u64, wanted: &[u64]| {
        let key = key(spec);
        let fitted =
            wanted.iter().map(|len| counter(&key).fitted(&Request::new(&key, *len), &row(0, step)).len);
        fitted.collect::<Vec<_>>()
    };
    assert_eq!(lens(LEAF, 200, &[0, 1, 200, 201, 400]), [200, 200, 200, 400, 400]);
    assert_eq!(lens(COSID, 1, &[0, 1, 7]), [1, 1, 7]);
    // At least one number of its own: three in a row hold one.
    assert_eq!(lens(TINY, 1, &[1, 3, 4]), [3, 3, 4]);
    assert_eq!(lens(LEAF, 2, &[u64::MAX]), [u64::MAX]);
}

#[test]
fn numbers_of_others_below_the_first_own_one_count_as_moved() {
    let key = key(TINY);
    // The maximum is 4, so the range begins after it; the first number of its own is 7, two further on.
    let fitted = counter(&key).fitted(&Request::new(&key, 10), &row(4, 5));
    assert_eq!(fitted.len, 10 - 2);
    let fitted = counter(&key).fitted(&Request::new(&key, 10), &row(3, 5));
    assert_eq!(fitted.len, 10, "4 is its own");
}

#[test]
fn a_request_begins_and_ends_within_the_table() {
    let tiny = key(TINY);
    let fitted = |start, last| {
        let fitted = counter(&tiny).fitted(&Request { start, last, ..Request::new(&tiny, 10) }, &row(0, 1));
        (fitted.start, fitted.last)
    };
    assert_eq!(fitted(0, 100), (0, 100), "a missing row is not made");
    assert_eq!((fitted(1, 100), fitted(2, 100)), ((1, 100), (4, 100)));
    let leaf = key(LEAF);
    let fitted = counter(&leaf).fitted(&Request::new(&leaf, 10), &row(1, 1));
    assert_eq!(fitted.last, MAX_NUMBER - 1);
}

#[test]
fn a_time_to_live_is_in_seconds_and_none_is_without_end() {
    let lives = |ttl_s| Counter::ttl_ms(&CounterRow { ttl_s, ..row(1, 1) });
    assert_eq!((lives(0), lives(1), lives(60)), (None, Some(1_000), Some(60_000)));
    assert_eq!(lives(u64::MAX), Some(u64::MAX));
}

#[test]
fn a_moved_row_keeps_all_but_its_maximum_and_counts_the_change_where_it_has_a_version() {
    let before = CounterRow { maximum: 10, step: 7, ttl_s: 9, version: 4, stride: (3, 1) };
    let tiny = key(TINY);
    let moved = counter(&tiny).moved(&before, next(22));
    assert_eq!(moved, Ok(CounterRow { maximum: 21, version: 5, ..before }));
    let leaf = key(LEAF);
    let moved = counter(&leaf).moved(&before, next(22));
    assert_eq!(moved, Ok(CounterRow { maximum: 22, ..before }));
    assert!(counter(&leaf).moved(&before, next(MAX_NUMBER + 1)).is_err());
}

#[test]
fn a_row_is_described_by_the_columns_it_has() {
    let row = CounterRow { maximum: 10, step: 7, ttl_s: 9, version: 4, stride: (3, 1) };
    for (spec, text) in [
        (SEQUENCE_TABLE, "cur_id=10 step=7 time_to_live=9"),
        (LEAF, "max_id=10 step=7"),
        (EVERY_TINY, "max_id=10 step=7 version=4"),
        (TINY, "max_id=10 step=7 delta=3 remainder=1 version=4"),
        (COSID, "last_max_id=10"),
        ("segment:orders?scheme=leaf_alloc&columns=max_id:highest", "highest=10 step=7"),
    ] {
        let key = key(spec);
        assert_eq!(counter(&key).describe(&row), text, "{spec}");
    }
}

#[test]
fn a_schemes_columns_are_those_its_table_must_have() {
    assert_eq!(Scheme::SequenceTable.renamable(), ["biz_type", "cur_id", "step", "time_to_live"]);
    assert_eq!(Scheme::LeafAlloc.renamable(), ["biz_tag", "max_id", "step", "update_time"]);
    assert_eq!(
        Scheme::TinyIdInfo.renamable(),
        ["biz_type", "max_id", "step", "version", "delta", "remainder", "update_time"]
    );
    assert_eq!(Scheme::Cosid.renamable(), ["name", "last_max_id", "last_fetch_time"]);
    assert_eq!(Scheme::JpaTable.renamable(), ["sequence_name", "next_val"]);
    assert_eq!(Scheme::KeyProducer.renamable().len(), 6);
    assert!(Scheme::Keymill.renamable().is_empty());
}

#[cfg(feature = "_sql")]
mod cells {
    use super::super::row_layout::RowLayout;
    use super::super::rows::StoredRow;
    use super::super::value::{ColumnValue, Value};
    use super::*;

    fn numbers(cells: &[i128]) -> Vec<ColumnValue> {
        cells.iter().map(|number| ColumnValue::Number(*number)).collect()
    }

    fn read(spec: &str, cells: &[ColumnValue]) -> Result<CounterRow, String> {
        let key = key(spec);
        match RowLayout::of(&key).decode(cells).map_err(message)? {
            StoredRow::Counter(row) => Ok(row),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn cells_are_read_in_the_order_in_which_they_are_asked_for() {
        assert_eq!(read(SEQUENCE_TABLE, &numbers(&[10, 7, 9])), Ok(CounterRow { ttl_s: 9, ..row(10, 7) }));
        assert_eq!(read(LEAF, &numbers(&[10, 7])), Ok(row(10, 7)));
        assert_eq!(read(COSID, &numbers(&[10])), Ok(row(10, 1)));
        assert_eq!(
            read(TINY, &numbers(&[10, 7, 4, 3, 1])),
            Ok(CounterRow { version: 4, stride: (3, 1), ..row(10, 7) })
        );
    }

    #[test]
    fn a_cell_that_is_no_number_of_its_column_is_refused_with_what_to_do() {
        const MAX: i128 = MAX_NUMBER as i128;
        assert_eq!(read(LEAF, &numbers(&[0, 1])), Ok(row(0, 1)));
        assert_eq!(read(LEAF, &numbers(&[MAX, MAX])), Ok(row(MAX_NUMBER, MAX_NUMBER)));
        for (spec, cells, says) in [
            (LEAF, numbers(&[-1, 1]), "holds -1 in `max_id`, where a whole number from 0"),
            (LEAF, numbers(&[MAX + 1, 1]), "set it to the lowest number that was never issued"),
            (COSID, numbers(&[MAX + 1]), "set it to the highest number that was ever issued"),
            (LEAF, numbers(&[1, 0]), "holds 0 in `step`, where a whole number from 1"),
            (LEAF, numbers(&[1, MAX + 1]), "mend the row"),
            (LEAF, vec![ColumnValue::Null, ColumnValue::Number(1)], "holds NULL in `max_id`"),
            (LEAF, vec![ColumnValue::Number(1)], "holds NULL in `step`"),
            (LEAF, vec![ColumnValue::Text("x".into()), ColumnValue::Number(1)], "holds `x` in `max_id`"),
            (TINY, numbers(&[1, 1, 1, 0, 0]), "holds 0 in `delta`"),
            (TINY, numbers(&[1, 1, 1, 3, -1]), "holds -1 in `remainder`"),
            (TINY, numbers(&[1, 1, -1, 3, 1]), "holds -1 in `version`"),
            (SEQUENCE_TABLE, numbers(&[1, 1, -1]), "holds -1 in `time_to_live`"),
        ] {
            let told = read(spec, &cells).expect_err("it is refused");
            assert!(told.contains(says), "{told}");
        }
        assert!(read(TINY, &numbers(&[0, 1, 0, 1, 0])).is_ok());
    }

    /// A row of keymill's own table: its numbers before the state, the state, and those behind it.
    fn segment(before: &[i128], state: &str, after: &[i128]) -> Result<RowMark, String> {
        let cells = [numbers(before), vec![ColumnValue::Text(state.to_owned())], numbers(after)].concat();
        match RowLayout::of(&key("segment:orders")).decode(&cells).map_err(message)? {
            StoredRow::Segment(row) => Ok(row),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_of_keymills_own_table_may_be_one_past_the_last_number() {
        let read = |cells: &[i128]| segment(cells, "open", &[1, 1, 0, 0]).map(|row| row.mark);
        let last = i128::from(MAX_NUMBER);
        assert_eq!(read(&[0, 0]), Ok(next(0)));
        assert_eq!(read(&[7, 5]), Ok(Mark { period: 7, next: 5 }));
        assert_eq!(read(&[last, last + 1]), Ok(Mark { period: MAX_NUMBER, next: MAX_NUMBER + 1 }));
        for (cells, says) in [
            (vec![last + 1, 1], "in `date`"),
            (vec![-1, 1], "mend the row"),
            (vec![0, last + 2], "in `next`"),
            (vec![0], "set it to the lowest number that was never issued"),
            (vec![], "in `date`"),
        ] {
            let told = read(&cells).expect_err("it is refused");
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn a_state_and_a_partition_that_no_build_writes_are_refused_by_name() {
        let key = key("segment:orders");
        for state in RowState::ALL {
            for partition in [None, Some(Partition { stores: 3, index: 1, chunk: 1000 })] {
                let row = RowMark { mark: next(5), status: RowStatus { state, partition }, writer: 0 };
                let cells: Vec<ColumnValue> = RowLayout::of(&key)
                    .encode(&StoredRow::Segment(row))
                    .into_iter()
                    .map(|(_, value)| match value {
                        Value::Number(number) => ColumnValue::Number(number.into()),
                        Value::Text(text) => ColumnValue::Text(text),
                        Value::Null => ColumnValue::Null,
                    })
                    .collect();
                assert_eq!(RowLayout::of(&key).decode(&cells), Ok(StoredRow::Segment(row)));
            }
        }
        for word in ["", "OPEN", "open ", "shut"] {
            let told = segment(&[0, 5], word, &[1, 1, 0, 0]).expect_err("it is refused");
            assert!(
                told.contains(&format!("holds `{word}` in `state`")) && told.contains("`closed`"),
                "{told}"
            );
        }
        for (columns, says) in [
            ([2, 3, 1000], "stores=2 store=3 chunk=1000"),
            ([2, 1, 0], "stores=2 store=1 chunk=0"),
            ([1, 1, 1000], "stores=1 store=1 chunk=1000"),
            ([0, 0, 0], "stores=0 store=0 chunk=0"),
            ([2, -1, 1000], "holds -1 in `store`"),
        ] {
            let told = segment(&[0, 5], "open", &columns).expect_err("it is refused");
            assert!(told.contains(says) && told.contains("mend the row"), "{told}");
        }
    }
}

#[cfg(feature = "_sql")]
mod one_statement {
    use super::*;

    /// How many numbers, and from which maxima.
    fn addition(
        spec: &str,
        request: impl FnOnce(&mut Request),
        known: CounterRow,
    ) -> Option<(u64, (u64, u64))> {
        let key = key(spec);
        let mut asked = Request::new(&key, 10);
        request(&mut asked);
        counter(&key).addition(&asked, &known)
    }

    #[test]
    fn a_statement_moves_the_row_from_what_was_seen_to_the_last_number_at_most() {
        let highest = MAX_NUMBER - 200;
        assert_eq!(addition(COSID, |_| {}, row(5, 200)), Some((200, (0, highest))));
        // Leaf's maximum is the next number, and has to be kept itself.
        assert_eq!(addition(LEAF, |_| {}, row(5, 200)), Some((200, (1, highest))));
        let seen = |asked: &mut Request| asked.high_water = next(101);
        assert_eq!(addition(COSID, seen, row(5, 200)), Some((200, (100, highest))));
        assert_eq!(addition(LEAF, seen, row(5, 200)), Some((200, (101, highest))));
        // Of every third number from 1 on, 100 was seen: the maximum may stand anywhere below 103.
        let seen = |asked: &mut Request| asked.high_water = next(103);
        assert_eq!(addition(TINY, seen, row(5, 6)).map(|addition| addition.1.0), Some(100));
    }

    #[test]
    fn a_statement_is_not_enough_for_periods_and_at_the_end_of_the_numbers() {
        assert_eq!(addition(COSID, |asked| asked.len = 0, row(5, 200)), None);
        assert_eq!(addition(COSID, |asked| asked.period = 1, row(5, 200)), None);
        assert_eq!(addition(COSID, |asked| asked.high_water.period = 1, row(5, 200)), None);
        assert_eq!(addition(COSID, |asked| asked.last = 199, row(5, 200)), None);
        assert_eq!(addition(COSID, |asked| asked.last = 200, row(5, 200)), Some((200, (0, 0))));
        let ends = |asked: &mut Request| (asked.last, asked.high_water) = (300, next(102));
        assert_eq!(addition(COSID, ends, row(5, 200)), None);
        let ends = |asked: &mut Request| (asked.last, asked.high_water) = (300, next(101));
        assert_eq!(addition(COSID, ends, row(5, 200)), Some((200, (100, 100))));
    }

    #[test]
    fn the_range_ends_where_the_maximum_stands_afterwards() {
        for (spec, before, range) in [
            (COSID, 100, (101, 301)),
            (LEAF, 100, (100, 300)),
            (COSID, MAX_NUMBER - 200, (MAX_NUMBER - 199, MAX_NUMBER + 1)),
        ] {
            let key = key(spec);
            let known = CounterRow { ttl_s: 3, ..row(5, 200) };
            let reserved = counter(&key).added(before, 200, &known).expect("a range");
            assert_eq!((reserved.lo, reserved.hi), range, "{spec} {before}");
            assert_eq!((reserved.period, reserved.ttl_ms), (0, Some(3_000)));
        }
        // The range begins with the source's own number; where there is none in it, nothing was reserved.
        let key = key(TINY);
        let (len, _) = counter(&key).addition(&Request::new(&key, 10), &row(0, 6)).expect("a statement");
        let reserved = counter(&key).added(17 - len, len, &row(0, 6)).expect("a range");
        assert_eq!((reserved.lo, reserved.hi), (7, 18));
        assert_eq!(counter(&key).added(1, 2, &row(0, 1)), None, "2 and 3 are others'");
        assert!(counter(&key).added(2, 2, &row(0, 1)).is_some(), "4 is its own");
    }
}

/// Beside programs that allocate as JPA's table generators do.
#[cfg(feature = "_sql")]
mod allocations {
    use std::collections::HashMap;

    use super::super::rows::{self, StoredRow};
    use super::super::tests::Table;
    use super::*;

    /// The first and the last number that a program issues after it has moved the row from `m` to `m + a`.
    type Owns = fn(m: i64, a: i64) -> (i64, i64);

    const PROGRAMS: [(&str, Owns); 7] = [
        ("EclipseLink, and Hibernate with pooled-lo", |m, a| (m + 1, m + a)),
        ("Hibernate with none", |m, _| (m + 1, m + 1)),
        ("Hibernate with pooled", |m, a| (m + 2 - a, m + 1)),
        ("pooled-lo, stored_last_used=false", |m, a| (m, m + a - 1)),
        ("none, stored_last_used=false", |m, _| (m, m)),
        ("pooled, stored_last_used=false", |m, a| (m + 1 - a, m)),
        ("pooled before HHH-9287", |m, a| (m - a, m - 1)),
    ];

    /// A row, and who has which number.
    struct World {
        key: std::sync::Arc<Key>,
        table: Table,
        owners: HashMap<u64, String>,
    }

    impl World {
        fn maximum(&self) -> Option<u64> {
            match self.table.row {
                Some(StoredRow::Counter(row)) => Some(row.maximum),
                _ => None,
            }
        }

        fn move_to(&mut self, maximum: u64) {
            self.table.row = Some(StoredRow::Counter(row(maximum, 1)));
        }

        fn take(&mut self, owner: &str, numbers: std::ops::Range<u64>) {
            for number in numbers {
                let other = self.owners.insert(number, owner.to_owned());
                assert_eq!(other, None, "{number} is {owner}'s too");
            }
        }

        /// One of the other program's allocations.
        fn allocate(&mut self, (name, owns): (&str, Owns), allocation: u64) {
            let m = self.maximum().unwrap_or(0);
            self.move_to(m + allocation);
            let (first, last) = owns(m.cast_signed(), allocation.cast_signed());
            self.take(name, first.max(1).cast_unsigned()..(last + 1).max(1).cast_unsigned());
        }

        /// A reservation of keymill's, in a transaction or by one statement where that can; some of it is given back.
        fn reserve(&mut self, seen: &mut Mark, random: &mut fastrand::Rng) {
            let request = Request { high_water: *seen, ..Request::new(&self.key, random.u64(1..120)) };
            let own = self.key.clone();
            let by_statement = self.maximum().filter(|_| random.bool()).and_then(|maximum| {
                let (len, from) = counter(&own).addition(&request, &row(0, 1))?;
                let reserved = (from.0..=from.1)
                    .contains(&maximum)
                    .then(|| counter(&own).added(maximum, len, &row(0, 1)));
                self.move_to(maximum + reserved.map(|_| len)?);
                reserved?
            });
            let reserved =
                by_statement.or_else(|| rows::reserve(&mut self.table, &request).expect("no fault"));
            let reserved = reserved.expect("no other process is in between");
            assert!(reserved.hi > reserved.lo && reserved.hi - reserved.lo >= request.len, "{reserved:?}");
            let used = if random.bool() { random.u64(reserved.lo..=reserved.hi) } else { reserved.hi };
            self.take("keymill", reserved.lo..used);
            if used < reserved.hi {
                let given = rows::give_back(&mut self.table, &GiveBack::new(&self.key, 0, used, reserved.hi));
                assert_eq!(given, Ok(true), "no other process is in between");
            }
            seen.next = used;
        }
    }

    #[test]
    fn a_number_of_another_programs_is_never_reserved_whichever_way_it_allocates() {
        for (program, seed) in
            PROGRAMS.into_iter().flat_map(|program| (0..200).map(move |seed| (program, seed)))
        {
            let mut random = fastrand::Rng::with_seed(seed);
            let most = [1, 2, 10, 50][random.usize(0..4)];
            let key = key(&format!("segment:orders?scheme=jpa_table&allocation={most}"));
            let mut world = World { key, table: Table::default(), owners: HashMap::new() };
            let allocation = if random.bool() { most } else { random.u64(1..=most) };
            if random.bool() {
                world.move_to(random.u64(0..3 * most));
            }
            let mut seen = [Mark::default(); 2];
            for _ in 0..40 {
                match random.usize(0..4) {
                    process @ 0..2 => world.reserve(&mut seen[process], &mut random),
                    _ => world.allocate(program, allocation),
                }
            }
        }
    }

    #[test]
    fn a_range_lies_between_what_the_last_and_the_next_program_may_own() {
        let orders = key("segment:orders?scheme=jpa_table&allocation=50");
        let known = row(0, 1);
        let (len, from) = counter(&orders).addition(&Request::new(&orders, 10), &known).expect("a statement");
        assert_eq!((len, from), (61, (51, MAX_NUMBER - 61)));
        let reserved = counter(&orders).added(1000, len, &known).expect("a range");
        assert_eq!((reserved.lo, reserved.hi), (1001, 1011), "the row stands at 1061 now");
        // A row that no program has begun, by a transaction.
        let mut table = Table::of(StoredRow::Counter(row(0, 1)));
        let reserved = rows::reserve(&mut table, &Request::new(&orders, 10));
        assert_eq!(reserved.map(|range| range.map(|range| (range.lo, range.hi))), Ok(Some((52, 62))));
        assert_eq!(table.row, Some(StoredRow::Counter(CounterRow { version: 1, ..row(112, 1) })));
        // A row that is not there.
        let mut table = Table::default();
        let reserved = rows::reserve(&mut table, &Request::new(&orders, 10));
        assert_eq!(reserved.map(|range| range.map(|range| (range.lo, range.hi))), Ok(Some((1, 11))));
        assert_eq!(table.row, Some(StoredRow::Counter(row(61, 1))));
        // No other program is left.
        let alone = key("segment:orders?scheme=jpa_table&allocation=0");
        assert_eq!(counter(&alone).mark(&row(61, 1)), next(62));
        assert_eq!((counter(&alone).last(), counter(&orders).last()), (MAX_NUMBER, MAX_NUMBER - 51));
    }
}

#[test]
fn a_key_counts_with_its_own_columns_and_stride() {
    let key =
        key("segment:orders?scheme=tiny_id_info&delta=3&remainder=1&columns=max_id:highest,delta:every");
    let counter = counter(&key);
    assert_eq!((counter.maximum(), counter.stride()), ("highest", Some(("every", "remainder"))));
    assert_eq!(key.stride, Stride::new(3, 1).expect("a stride"));
}
