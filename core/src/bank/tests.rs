//! A bank behind a keeper without a thread: one store in memory, and a clock that stands still.

use crate::store::{BankStore, RowStore};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{BankAnswer, BankAsk, BankSource};
use crate::callers::waker::ReadyQueue;
use crate::config::MillConfig;
use crate::error::{Code, Error};
use crate::gene::Gene;
use crate::keeper::{BankRest, Keeper, KeptSource};
use crate::planner::Batch;
use crate::request::bank_spec::BankSpec;
use crate::store::memory::{Memory, MemoryStore, Step};
use crate::store::{Fault, FaultKind, GiveBack, Mark};
use crate::time::{Clock, ManualClock, Now};

pub(super) struct Stage {
    memory: Arc<Memory>,
    pub(super) store: MemoryStore,
    pub(super) keeper: Keeper,
    pub(super) clock: Arc<ManualClock>,
    pub(super) bank: Arc<BankSource>,
    /// How many counters each batch had.
    batches: Vec<usize>,
}

impl Stage {
    pub(super) fn new(spec: &str) -> Stage {
        Stage::on(&Memory::new(), spec)
    }

    fn on(memory: &Arc<Memory>, spec: &str) -> Stage {
        let ready = Arc::new(ReadyQueue::default());
        let mut keeper = Keeper::new(1, ready);
        let clock = Arc::new(ManualClock::new(1_795_218_600_000));
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
        let kept = keeper.open(0, Arc::new(spec), Clock::Manual(clock.clone())).expect("a bank");
        let KeptSource::Bank(bank) = kept else { panic!("no bank") };
        let store = MemoryStore::new(memory.clone());
        Stage { memory: memory.clone(), store, keeper, clock, bank, batches: Vec::new() }
    }

    pub(super) fn now(&self) -> Now {
        Clock::Manual(self.clock.clone()).now()
    }

    /// Carries batches to the store until there is none.
    fn run(&mut self) {
        while let Some(batch) = self.keeper.poll(self.now(), 1) {
            let Batch::Bank(slot, ask) = batch else { panic!("{batch:?}") };
            let answer = match ask {
                BankAsk::Open { key, bank } => BankAnswer::Opened(self.store.open_bank(&key, bank)),
                BankAsk::Reserve { indexes, requests } => {
                    self.batches.push(requests.len());
                    BankAnswer::Reserved(indexes, self.store.reserve_counters(&requests))
                }
            };
            self.keeper.complete_bank(slot, answer, self.now());
        }
    }

    /// A number of a gene, brought by the keeper if none is in memory.
    pub(super) fn next(&mut self, gene: u16) -> Result<u64, Error> {
        if let Ok(taken) = self.bank.try_take(Gene::from(gene), 1, 1) {
            return Ok(taken.start);
        }
        self.run();
        self.bank.try_take(Gene::from(gene), 1, 1).map(|taken| taken.start)
    }

    pub(super) fn numbers(&mut self, gene: u16, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.next(gene).expect("a number")).collect()
    }

    fn row(&mut self, counters: u32, index: u32) -> Option<u64> {
        let key = crate::request::bank_spec::counter_key(&self.bank.spec().key, counters, index);
        self.store.look(&key).expect("the memory answers").map(|row| row.mark.next)
    }
}

#[test]
fn each_counter_counts_from_1_and_reserves_the_least_step() {
    let mut stage = Stage::new("business:order?counters=65536");
    for gene in [0, 1, 7, 65_535] {
        assert_eq!(stage.numbers(gene, 3), [1, 2, 3]);
        assert_eq!(stage.row(65_536, u32::from(gene)), Some(17));
    }
    assert_eq!(stage.row(65_536, 2), None, "a counter that was not used has no row");
    assert_eq!(stage.bank.issued_and_left(), (12, 52));
}

#[test]
fn neighbouring_genes_share_a_counter() {
    let mut stage = Stage::new("business:order?counters=2");
    let taken: Vec<_> = [0, 32_767, 32_768, 65_535, 1].map(|gene| stage.next(gene).expect("a number")).into();
    assert_eq!(taken, [1, 2, 1, 2, 3]);
}

#[test]
fn the_first_ids_of_every_counter_take_few_conversations() {
    let mut stage = Stage::new("business:order?counters=65536");
    for gene in 0..=65_535 {
        assert!(stage.bank.try_take(Gene::from(gene), 1, 1).is_err());
    }
    stage.run();
    for gene in 0..=65_535 {
        assert_eq!(stage.bank.try_take(Gene::from(gene), 1, 1).expect("a number"), 1..2);
    }
    assert!(stage.batches.len() <= 128, "{} batches", stage.batches.len());
}

#[test]
fn a_counter_that_is_refused_does_not_open_the_bank_again() {
    let mut stage = Stage::new("business:order?counters=4");
    stage.next(0).expect("a number");
    stage.memory.fail_next(Step::Refused("no".to_owned()));
    stage.next(60_000).expect_err("it is refused");
    stage.clock.advance(2_000);
    let before = stage.memory.asked();
    stage.next(60_000).expect("a number");
    assert_eq!(stage.memory.asked() - before, 1, "one reservation, and the record is not read");
}

#[test]
fn a_counter_that_is_used_quickly_gets_longer_steps_and_a_second_segment() {
    let mut stage = Stage::new("business:order?counters=4");
    stage.clock.advance(1_000);
    let mut refills = 0;
    let mut before = stage.bank.issued_and_left();
    for number in 1..=200_000 {
        assert_eq!(stage.next(9).expect("a number"), number);
        if number % 1_000 == 0 {
            stage.clock.advance(1);
        }
        // What a caller that moves the second segment asks for is brought before the rest is used up.
        stage.run();
        let now = stage.bank.issued_and_left();
        refills += u32::from(now.0 + now.1 > before.0 + before.1);
        before = now;
    }
    assert!(refills < 20, "{refills} refills for 200 000 numbers");
    assert!(before.1 > 100_000, "{} numbers are in memory", before.1);
}

#[test]
fn memory_holds_what_a_hot_counter_needs_for_its_buffer_and_serves_it_while_the_store_is_down() {
    let mut stage = Stage::new("business:order?counters=4&buffer=10s");
    for second in 0..20 {
        for number in 1..=100_000 {
            assert_eq!(stage.next(9).expect("a number"), second * 100_000 + number);
            if number % 1_000 == 0 {
                stage.clock.advance(10);
            }
            stage.run();
        }
    }
    stage.memory.set_down(true);
    let mut served = 0;
    while stage.next(9).is_ok() {
        served += 1;
    }
    assert!(served >= 1_000_000, "10 s at 100 000 a second: {served}");
}

#[test]
fn a_batch_takes_what_it_lacks_across_segments() {
    let mut stage = Stage::new("business:order?counters=4");
    let mut all = Vec::new();
    while all.len() < 1_000_000 {
        let lacking = 1_000_000 - all.len() as u64;
        match stage.bank.try_take(Gene::from(3), lacking, lacking) {
            Ok(taken) => all.extend(taken),
            Err(_) => stage.run(),
        }
    }
    assert_eq!(all, (1..=1_000_000).collect::<Vec<u64>>());
    assert_eq!(stage.row(4, 0), Some(1_000_001), "no more than was lacking was reserved");
}

#[test]
fn a_batch_that_no_counter_can_give_is_refused_at_once() {
    for spec in ["business:order?counters=4", "business:order?wide=on"] {
        let mut stage = Stage::new(spec);
        for count in [1 << 47, 1 << 60, u64::MAX] {
            let took = stage.bank.take_all(Gene::from(3), count, |_| panic!("it takes nothing"));
            for refused in [took, stage.bank.try_take(Gene::from(3), count, count).map(drop)] {
                assert_eq!(refused.expect_err("too many").code, Code::InvalidArgument);
            }
        }
        assert_eq!(stage.next(3), Ok(1), "nothing was lost, and nothing waits");
    }
}

#[test]
fn the_last_number_is_issued_and_then_the_counter_is_exhausted_and_others_go_on() {
    let last = (1u64 << 47) - 1;
    let mut stage = Stage::new(&format!("business:order?counters=4&start={}", last - 2));
    assert_eq!(stage.numbers(0, 3), [last - 2, last - 1, last]);
    assert_eq!(stage.next(0).expect_err("none is left").code, Code::Exhausted);
    assert_eq!(stage.next(65_535).expect("another counter"), last - 2);
    assert_eq!(stage.next(0).expect_err("none is left").code, Code::Exhausted);
    let mut wide = Stage::new("business:order?wide=on&start=9223372036854775806");
    assert_eq!(wide.numbers(5, 2), [(1 << 63) - 2, (1 << 63) - 1]);
    assert_eq!(wide.next(5).expect_err("none is left").code, Code::Exhausted);
}

#[test]
fn wide_numbers_begin_anywhere_and_go_on_in_the_next_process() {
    let memory = Memory::new();
    let spec = "business:order?wide=on&counters=2&start=5000000000000000000";
    let first = 5_000_000_000_000_000_000;
    assert_eq!(Stage::on(&memory, spec).numbers(0, 3), [first, first + 1, first + 2]);
    assert_eq!(Stage::on(&memory, spec).numbers(0, 2), [first + 16, first + 17]);
}

#[test]
fn another_number_of_counters_is_refused_with_the_command_that_changes_it() {
    let memory = Memory::new();
    assert_eq!(Stage::on(&memory, "business:order?counters=4").numbers(0, 1), [1]);
    let refused = Stage::on(&memory, "business:order?counters=8").next(0).expect_err("it is refused");
    assert_eq!(refused.code, Code::StoreRefused);
    assert!(
        refused.message.contains("counters=4") && refused.message.contains("--counters 8 --yes"),
        "{refused}"
    );
    assert_eq!(Stage::on(&memory, "business:order?counters=4").numbers(0, 1), [17], "nothing was changed");
    assert_eq!(Stage::on(&memory, "business:other?counters=8").numbers(0, 1), [1]);
}

#[test]
fn a_source_that_names_no_number_of_counters_has_those_that_are_recorded() {
    let memory = Memory::new();
    let mut named = Stage::on(&memory, "business:order?counters=65536");
    assert_eq!(named.numbers(7, 2), [1, 2]);
    let mut unnamed = Stage::on(&memory, "business:order");
    assert_eq!(unnamed.bank.bank().counters, 1, "the store was not asked yet");
    assert_eq!(unnamed.bank.take_one(Gene::from(7)), None);
    assert_eq!((unnamed.numbers(7, 1), unnamed.numbers(8, 1)), (vec![17], vec![1]));
    assert_eq!(unnamed.bank.bank().counters, 65_536);
    assert_eq!((unnamed.row(65_536, 0), unnamed.row(1, 0)), (None, None), "no other counter was used");
    assert_eq!(unnamed.batches, [1, 1]);
    // What was adopted counts as named: a change is refused.
    change(&mut named, 16);
    assert_eq!(unnamed.numbers(7, 15).last(), Some(&32));
    assert_eq!(unnamed.next(7).expect_err("another C").code, Code::StoreRefused);
    unnamed.clock.advance(2_000);
    let refused = unnamed.next(9).expect_err("another C");
    assert!(refused.message.contains("counters=16"), "{refused}");
    let mut again = Stage::on(&memory, "business:order");
    assert_eq!(again.next(7), Ok(33), "above every counter of before");
    assert_eq!(again.bank.bank().counters, 16);
    // Where nothing is recorded it is 1, for every process.
    assert_eq!(Stage::on(&memory, "business:other").next(9), Ok(1));
    let refused = Stage::on(&memory, "business:other?counters=2").next(9).expect_err("another C");
    assert!(refused.message.contains("counters=1,"), "{refused}");
}

#[test]
fn every_caller_that_came_before_the_number_of_counters_was_known_gets_its_number() {
    let memory = Memory::new();
    Stage::on(&memory, "business:order?counters=256").numbers(0, 1);
    let mut stage = Stage::on(&memory, "business:order");
    let genes = (0..=65_535).step_by(999).map(Gene::from);
    for gene in genes.clone() {
        assert_eq!(stage.bank.try_take(gene, 20, 20).expect_err("it is cold").code, Code::NotReady);
    }
    stage.run();
    for gene in genes {
        let taken = stage.bank.try_take(gene, 20, 20).expect("as many as were asked for");
        assert_eq!(taken.end - taken.start, 20);
    }
    assert_eq!(stage.batches, [66], "one conversation for all");
}

#[test]
fn a_row_that_went_backwards_stops_its_counter_only() {
    let mut stage = Stage::new("business:order?counters=4");
    assert_eq!((stage.numbers(0, 16).len(), stage.numbers(65_535, 16).len()), (16, 16));
    let key = crate::request::bank_spec::counter_key(&stage.bank.spec().key, 4, 0);
    stage.memory.set_row(&key, Mark { period: 0, next: 5 }).expect("a row");
    while stage.bank.try_take(Gene::from(0), 1, 1).is_ok() {}
    assert_eq!(stage.next(0).expect_err("it went backwards").code, Code::StoreWentBackwards);
    assert_eq!(stage.next(65_535).expect("another counter"), 17);
    stage.memory.delete_row(&key);
    stage.clock.advance(2_000);
    assert_eq!(stage.next(0).expect_err("it is gone").code, Code::StoreWentBackwards);
    stage.memory.set_row(&key, Mark { period: 0, next: 900 }).expect("a row");
    stage.clock.advance(2_000);
    assert_eq!(stage.next(0).expect("it was repaired"), 900);
}

#[test]
fn a_range_whose_answer_was_lost_is_never_used() {
    let mut stage = Stage::new("business:order?counters=4");
    assert_eq!(stage.numbers(0, 16).last(), Some(&16));
    stage.memory.script([Step::Lost]);
    assert_eq!(stage.next(0).expect_err("the answer was lost").code, Code::StoreUnavailable);
    stage.clock.advance(1_000);
    let next = stage.next(0).expect("a number");
    assert!(next > 17, "{next} may have been reserved by the lost request");
}

#[test]
fn a_close_gives_back_the_unused_end_of_every_counter() {
    let mut stage = Stage::new("business:order?counters=65536");
    let mut used = BTreeMap::new();
    for (gene, count) in [(0u16, 1), (5, 16), (6, 40), (65_535, 3)] {
        stage.numbers(gene, count);
        used.insert(u32::from(gene), count as u64);
    }
    let last = stage.keeper.close();
    let BankRest { key, counters, ranges, writer } = last.banks.first().expect("a bank").clone();
    assert_eq!(counters, 65_536);
    for (index, lo, hi) in ranges {
        let range = GiveBack {
            key: crate::request::bank_spec::counter_key(&key, counters, index),
            period: 0,
            lo,
            hi,
            writer,
        };
        assert_eq!(stage.store.give_back_all(&[range]).expect("it answers"), [true]);
    }
    for (index, count) in used {
        assert_eq!(stage.row(65_536, index), Some(count + 1), "counter {index}");
    }
    assert_eq!(stage.bank.try_take(Gene::from(0), 1, 1).expect_err("closed").code, Code::Closed);
    assert_eq!(stage.bank.take_one(Gene::from(0)), None);
    assert_eq!(stage.bank.issued_and_left().1, 0);
}

#[test]
fn a_counter_costs_at_most_32_bytes_in_its_cell() {
    assert_eq!(size_of::<super::counter_cell::CounterCell>(), 32);
}

/// What `repair --counters` does to the stage's store.
fn change(stage: &mut Stage, counters: u32) -> crate::store::BankChange {
    let key = stage.bank.spec().key.clone();
    stage.store.change_counters(&key, counters, false).expect("it is changed")
}

#[test]
fn a_bank_that_gets_other_counters_gives_no_number_of_a_gene_twice() {
    let memory = Memory::new();
    let spec = |counters: u32| format!("business:order?counters={counters}");
    let mut old = Stage::on(&memory, &spec(4));
    let mut seen: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
    let genes = [0u16, 1, 20_000, 40_000, 65_535];
    let mut take = |stage: &mut Stage, count| {
        for gene in genes {
            seen.entry(gene).or_default().extend(stage.numbers(gene, count));
        }
    };
    take(&mut old, 40);
    let done = change(&mut old, 16);
    assert_eq!((done.before, done.after, done.rows), (Some(4), 16, 4));
    let mut new = Stage::on(&memory, &spec(16));
    take(&mut new, 40);
    // What the old process has in memory stays unique; then it is refused, also for a counter that it never used.
    for gene in genes {
        while let Ok(taken) = old.bank.try_take(Gene::from(gene), 1, 1) {
            seen.entry(gene).or_default().push(taken.start);
        }
    }
    for gene in [0, 1, 30_000] {
        let refused = old.next(gene).expect_err("its counter is closed");
        assert_eq!(refused.code, Code::StoreRefused, "{refused}");
        old.clock.advance(2_000);
    }
    let refused = old.next(0).expect_err("its bank has other counters");
    assert!(refused.message.contains("counters=16"), "{refused}");
    // And back: the old rows open again, above everything.
    change(&mut new, 4);
    let mut take = |stage: &mut Stage, count| {
        for gene in genes {
            seen.entry(gene).or_default().extend(stage.numbers(gene, count));
        }
    };
    take(&mut Stage::on(&memory, &spec(4)), 40);
    old.clock.advance(2_000);
    take(&mut old, 40);
    for gene in genes {
        while let Ok(taken) = new.bank.try_take(Gene::from(gene), 1, 1) {
            seen.entry(gene).or_default().push(taken.start);
        }
    }
    new.clock.advance(2_000);
    assert_eq!(new.next(30_000).expect_err("closed").code, Code::StoreRefused);
    for (gene, mut numbers) in seen {
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "a number of gene {gene} came twice");
    }
}

#[test]
fn a_change_of_counters_that_was_cut_off_is_completed_by_the_next_one_and_stops_both_until_then() {
    // A change may end after each of its steps.
    for cut in 0..40 {
        let memory = Memory::new();
        let mut old = Stage::on(&memory, "business:order?counters=4");
        let mut seen: Vec<u64> = old.numbers(0, 20);
        memory.script(std::iter::repeat_n(Step::Ack, cut).chain([Step::Lost]));
        let key = old.bank.spec().key.clone();
        let finished = old.store.change_counters(&key, 2, false).is_ok();
        memory.clear_script();
        // Whatever the state, no process of either kind gives a number of the gene that another one gave.
        for counters in [4, 2] {
            let mut stage = Stage::on(&memory, &format!("business:order?counters={counters}"));
            seen.extend((0..20).map_while(|_| stage.next(0).ok()));
        }
        old.store.change_counters(&key, 2, false).expect("it is completed");
        seen.extend(Stage::on(&memory, "business:order?counters=2").numbers(0, 20));
        old.clock.advance(10_000);
        while let Ok(taken) = old.bank.try_take(Gene::from(0), 1, 1) {
            seen.push(taken.start);
        }
        assert_eq!(old.next(0).expect_err("it has the old number of counters").code, Code::StoreRefused);
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "cut after {cut} steps: a number came twice");
        if finished {
            return;
        }
    }
    panic!("no change was ever completed");
}

#[test]
fn repair_raises_every_counter_and_makes_those_that_a_backup_had_lost() {
    let memory = Memory::new();
    let mut stage = Stage::on(&memory, "business:order?counters=4");
    let backup = memory.snapshot();
    assert_eq!(stage.numbers(0, 20).last(), Some(&20));
    memory.restore(&backup);
    stage.clock.advance(2_000);
    while stage.bank.try_take(Gene::from(0), 1, 1).is_ok() {}
    assert_eq!(stage.next(0).expect_err("its row is gone").code, Code::StoreWentBackwards);
    let (key, bank) = (stage.bank.spec().key.clone(), stage.bank.bank());
    let (before, after) = stage.store.repair_bank(&key, bank, 1_000, false).expect("it is repaired");
    assert!(before.is_none() && after.mark.next == 1_000, "{after:?}");
    stage.clock.advance(2_000);
    assert_eq!(stage.next(0).expect("a number"), 1_000);
    assert_eq!(stage.next(65_535).expect("a number"), 1_000);
    let refused = stage.store.repair_bank(&key, bank, 5, false).expect_err("they stand higher");
    assert_eq!(refused.kind, FaultKind::Refused);
}

#[test]
fn repair_raises_counters_without_a_row_though_every_row_stands_higher() {
    let memory = Memory::new();
    let mut stage = Stage::on(&memory, "business:order?counters=4");
    let backup_of = |stage: &mut Stage| assert_eq!(stage.numbers(0, 20).last(), Some(&20));
    backup_of(&mut stage);
    let backup = memory.snapshot();
    // A counter that the backup has no row of, and fewer numbers than the other one has reserved.
    assert_eq!(stage.numbers(65_535, 3), [1, 2, 3]);
    memory.restore(&backup);
    let (key, bank) = (stage.bank.spec().key.clone(), stage.bank.bank());
    let (before, _) = stage.store.repair_bank(&key, bank, 4, false).expect("it is repaired");
    assert!(before.is_some_and(|row| row.text.starts_with("counters=4 rows=1 next=")));
    let mut stage = Stage::on(&memory, "business:order?counters=4");
    assert_eq!(stage.next(65_535), Ok(4), "1 to 3 were issued before");
}

#[test]
fn a_bank_without_a_record_is_repaired_only_where_its_counters_are_named() {
    let mut stage = Stage::on(&Memory::new(), "business:order?counters=4");
    assert_eq!(stage.next(0), Ok(1));
    let key = stage.bank.spec().key.clone();
    let empty = Memory::new();
    let mut store = crate::store::memory::MemoryStore::new(empty);
    let unnamed = BankSpec { counters: 1, is_named: false, wide: false };
    let refused = store.repair_bank(&key, unnamed, 1_000, false).expect_err("how many counters?").to_string();
    assert!(refused.contains("write `counters=C`"), "{refused}");
    assert_eq!(store.look_bank(&key, 1), Ok(None), "nothing was written");
    let (_, after) = stage.store.repair_bank(&key, unnamed, 1_000, true).expect("its record says 4");
    assert!(after.text.starts_with("counters=4 "), "{}", after.text);
}

#[test]
fn every_refused_counter_rests_however_many_there_are() {
    let stage = Stage::on(&Memory::new(), "business:order?counters=4096");
    let now = stage.now();
    let callers = &stage.bank.callers;
    for index in 0..4_096 {
        callers.post_each(vec![(index, Error::config("refused").after(Duration::from_secs(5)))], now);
    }
    assert!((0..4_096).all(|index| callers.rests_until(index, now).is_some()));
}

/// Takes a number of each of these genes at every `pause_ms`, for so long. The keeper works in between.
fn take_steadily(stage: &mut Stage, genes: &[u16], pause_ms: u64, length_ms: u64) {
    for _ in 0..length_ms / pause_ms {
        for gene in genes {
            stage.next(*gene).expect("a number");
        }
        stage.run();
        stage.clock.advance(pause_ms);
    }
}

#[test]
fn cold_counters_serve_their_callers_while_the_store_is_down_for_the_buffer() {
    let genes: Vec<u16> = (0..10).map(|at| at * 6_000).collect();
    // From 0.1 to 2 a second; the outage begins at every stage of a refill.
    for pause_ms in [10_000, 2_500, 2_000, 1_700, 1_000, 500] {
        for warm_ms in (100_000..220_000).step_by(1_900) {
            let mut stage = Stage::new("business:order?counters=65536");
            take_steadily(&mut stage, &genes, pause_ms, warm_ms);
            stage.memory.set_down(true);
            take_steadily(&mut stage, &genes, pause_ms, 30_000);
            stage.memory.set_down(false);
            stage.clock.advance(60_000);
            // What the outage used up is brought without a caller who waits.
            stage.run();
            take_steadily(&mut stage, &genes, pause_ms, 30_000);
        }
    }
}

#[test]
fn a_counter_that_is_used_once_or_never_again_reserves_once() {
    let mut stage = Stage::new("business:order?counters=65536");
    for gene in 0..100 {
        stage.numbers(gene, 8);
    }
    for _ in 0..100 {
        stage.clock.advance(60_000);
        stage.run();
    }
    assert_eq!(stage.batches, [1; 100], "half of a step is no reason for another one");
    assert_eq!(stage.numbers(7, 1), [9]);
    stage.run();
    assert_eq!((stage.batches.len(), stage.row(65_536, 7)), (101, Some(33)));
}

#[test]
fn a_row_that_another_process_changed_first_is_asked_for_again_at_once_and_is_no_outage() {
    let mut stage = Stage::new("business:order?counters=4");
    let genes = [0, 20_000, 40_000, 65_535];
    stage.numbers(genes[0], 1);
    for gene in genes {
        while stage.bank.try_take(Gene::from(gene), 1, 1).is_ok() {}
    }
    for round in 0..20 {
        let Some(Batch::Bank(slot, ask)) = stage.keeper.poll(stage.now(), 1) else { panic!("no batch") };
        let BankAsk::Reserve { indexes, requests } = ask else { panic!("{ask:?}") };
        let lacking = if round == 0 { vec![0, 1, 2, 3] } else { vec![1] };
        assert_eq!(indexes, lacking, "the lost row only");
        let mut answers = stage.store.reserve_counters(&requests);
        let lost = indexes.iter().position(|index| *index == 1).expect("it is asked for");
        answers[lost] = Err(Fault::new(FaultKind::Conflict, "another process"));
        stage.keeper.complete_bank(slot, BankAnswer::Reserved(indexes, answers), stage.now());
        assert_eq!(stage.keeper.failures(), 0, "the store is well");
        assert_eq!(stage.bank.callers.posted_error(), None, "no caller is told");
        if round == 0 {
            assert_eq!(stage.bank.try_take(Gene::from(40_000), 1, 1), Ok(1..2));
        }
        let refused = stage.bank.try_take(Gene::from(20_000), 1, 1).expect_err("it has no number yet");
        assert_eq!(refused.code, Code::NotReady);
    }
    stage.run();
    assert!(stage.bank.try_take(Gene::from(20_000), 1, 1).is_ok());
}

#[test]
fn a_counter_whose_bit_is_set_while_a_batch_is_made_is_in_it_once() {
    let stage = Stage::new("business:order?counters=65536");
    let bank = &stage.bank;
    for index in [7, 300, 65_535] {
        bank.urgent.set(index);
    }
    for index in [5, 7, 65_535, 9] {
        bank.background.set(index);
    }
    assert_eq!(bank.wanted(512), [7, 300, 65_535, 5, 9]);
    assert_eq!(bank.wanted(2).len(), 2);
}

#[test]
fn a_used_counter_lasts_for_its_buffer_whatever_its_rate_and_whenever_the_outage_begins() {
    for pause_ms in [10_000, 2_500, 2_000, 1_900, 1_500, 1_000, 500, 200, 100, 20] {
        for warm_ms in (100_000..170_000).step_by(7_700) {
            let mut stage = Stage::new("business:order?counters=65536");
            take_steadily(&mut stage, &[7], pause_ms, warm_ms);
            let (_, left) = stage.bank.issued_and_left();
            assert!(left * pause_ms <= 75_000 || left <= 32, "{left} in memory at one in {pause_ms} ms");
            stage.memory.set_down(true);
            let mut lasted_ms = 0;
            while stage.next(7).is_ok() {
                stage.run();
                stage.clock.advance(pause_ms);
                lasted_ms += pause_ms;
            }
            assert!(lasted_ms >= 30_000, "one in {pause_ms} ms, down after {warm_ms}: {lasted_ms} ms");
        }
    }
}

/// A bank whose counters were used twice, so that each has numbers ahead.
fn warm(counters: u32) -> Stage {
    let mut stage = Stage::new(&format!("business:order?counters={counters}&min_step=64&max_step=1000000"));
    let genes = || (0..counters).map(|index| Gene::from((index * (65_536 / counters)) as u16));
    for _ in 0..2 {
        for gene in genes() {
            // More than a cell holds.
            let _ = stage.bank.try_take(gene, 1, 300_000);
        }
        stage.run();
        for gene in genes() {
            stage.bank.try_take(gene, 1, 1).expect("a number");
        }
        stage.run();
    }
    assert!(stage.bank.has_ahead());
    stage
}

/// What the checks of a warm bank look at, when one counter wants numbers.
#[test]
fn the_keeper_looks_at_the_counters_that_want_numbers_and_at_no_others() {
    for counters in [16, 1_024, 65_536] {
        let mut stage = warm(counters);
        let visited = |stage: &Stage| stage.bank.lock().visited;
        let before = visited(&stage);
        stage.keeper.check(0, stage.now());
        assert_eq!(visited(&stage), before, "no counter wants any");
        let index = counters / 2 + 1;
        let gene = Gene::from((index * (65_536 / counters)) as u16);
        // All that its cell holds.
        for _ in 0..2 {
            stage.bank.try_take(gene, u64::MAX, 1).expect("numbers");
        }
        stage.run();
        let wanted = visited(&stage) - before;
        assert!((1..=2).contains(&wanted), "{wanted} of {counters} counters");
        // While the keeper has the supply, its callers cannot bring the counter what lies ahead.
        let before = visited(&stage);
        {
            let _supply = stage.bank.lock();
            while stage.bank.try_take(gene, u64::MAX, 1).is_ok() {}
        }
        stage.keeper.check(0, stage.now());
        assert_eq!(visited(&stage) - before, 1, "of {counters} counters");
        stage.bank.try_take(gene, 1, 1).expect("the keeper has brought it");
    }
}
