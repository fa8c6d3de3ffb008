//! The simulation as a test: seeds hold, replays are exact, and defects are noticed.

use std::sync::Arc;

use keymill::store::Store;
use keymill::store::memory::{Memory, MemoryStore};
use keymill::time::{Clock, ManualClock};
use keymill_tests::simulation::copies::{self, Copy};
use keymill_tests::simulation::mutant::Mutant;
use keymill_tests::simulation::ramp::{self, Ramp, ramp};
use keymill_tests::simulation::workers::{self, Scale};
use keymill_tests::simulation::{banks, crowd, days, report, scale};

/// Enough for every kind of fault to come up, few enough for an unoptimised build. `ci/steps/simulate` names many more.
fn seeds() -> u64 {
    std::env::var("KEYMILL_SIMULATION_SEEDS").map_or(20, |seeds| seeds.parse().expect("a number of seeds"))
}

/// Seeds that failed once, each for its own reason.
const ONCE_FAILED: [u64; 12] = [1, 4, 22, 40, 45, 1202, 1413, 1634, 1900, 1966, 3352, 101_897];

#[test]
fn no_history_of_these_seeds_breaks_a_promise() {
    let total = report::run_many(1, seeds(), None);
    println!("{}", report::many(&total));
    assert!(total.failed.is_empty(), "{}", report::many(&total));
    assert!(total.figures.ids > 0 && total.faults.len() >= 15, "{:?}", total.faults);
    assert!(total.together.1 > 2 * total.together.0, "sources go together: {:?}", total.together);
}

#[test]
fn seeds_that_once_failed_hold() {
    for seed in ONCE_FAILED {
        let outcome = report::run(seed, None, false);
        assert!(outcome.violations.is_empty(), "{}", report::one(seed, &outcome));
    }
}

#[test]
fn the_same_seed_gives_the_same_log_byte_by_byte() {
    for seed in [3, 7, 40] {
        let story = || report::one(seed, &report::run(seed, None, true));
        assert_eq!(story(), story());
    }
}

/// Each defect, and how many seeds it may take at most to notice it.
fn noticed(mutant: Mutant, within: u64) {
    let found = (1..=within).find(|&seed| !report::run(seed, Some(mutant), false).violations.is_empty());
    let Some(seed) = found else { panic!("{mutant:?} went unnoticed for {within} seeds") };
    println!("{mutant:?}: seed {seed}: {}", report::run(seed, Some(mutant), false).violations[0]);
}

#[test]
fn a_request_without_its_high_water_mark_is_noticed() {
    noticed(Mutant::ForgetsHighWater, 60);
}

#[test]
fn a_range_used_after_an_unknown_answer_is_noticed() {
    noticed(Mutant::TrustsUnknown, 60);
}

#[test]
fn an_answer_to_another_request_is_noticed() {
    noticed(Mutant::CrossesAnswers, 60);
}

#[test]
fn an_answer_given_twice_is_noticed() {
    noticed(Mutant::RepeatsAnswers, 60);
}

#[test]
fn a_range_one_number_too_long_is_noticed() {
    noticed(Mutant::WidensAnswers, 60);
}

#[test]
fn a_range_that_begins_one_number_too_low_is_noticed() {
    noticed(Mutant::LowersAnswers, 60);
}

#[test]
fn numbers_given_back_after_they_were_used_are_noticed() {
    noticed(Mutant::GivesBackUsed, 60);
}

#[test]
fn a_serial_under_a_date_it_was_not_reserved_for_is_noticed() {
    noticed(Mutant::RelabelsPeriods, 120);
}

#[test]
fn a_child_that_goes_on_with_its_parents_block_is_noticed() {
    noticed(Mutant::KeepsBlocksInFork, 60);
}

#[test]
fn commits_that_a_crash_forgets_are_noticed() {
    noticed(Mutant::LosesCommits, 60);
}

#[test]
fn a_snowflake_mark_that_is_not_stored_is_noticed() {
    noticed(Mutant::ForgetsMarks, 300);
}

#[test]
fn a_snowflake_whose_mark_is_not_raised_after_an_idle_moment_is_noticed() {
    noticed(Mutant::StopsRaising, 120);
}

#[test]
fn a_snowflake_mark_that_is_stored_one_renewal_late_is_noticed() {
    noticed(Mutant::StoresStaleMarks, 300);
}

#[test]
fn a_close_that_leaves_a_mark_below_the_last_id_is_noticed() {
    noticed(Mutant::LeavesLowMarks, 400);
}

#[test]
fn a_lost_answer_of_a_batch_that_is_guessed_is_noticed() {
    noticed(Mutant::GuessesTheRest, 200);
}

#[test]
fn an_answer_that_is_its_neighbours_is_noticed() {
    noticed(Mutant::ShiftsAnswers, 60);
}

#[test]
fn a_source_that_is_served_by_a_batch_that_failed_is_noticed() {
    noticed(Mutant::ServesOneOfNone, 200);
}

#[test]
fn serials_reserved_beyond_what_was_used_are_noticed() {
    noticed(Mutant::ReservesUnearned, 60);
    let minding = |seed| report::run_minding(seed, Mutant::ReservesUnearned, "numbers lie reserved, and");
    assert!(
        (1..=60).any(|seed| !minding(seed).violations.is_empty()),
        "the check of what was used noticed nothing"
    );
}

/// With every newer check switched off, the first check of all still notices double ids on its own.
#[test]
fn ids_issued_twice_are_noticed_without_any_other_check() {
    let twice = "issued twice";
    for (mutant, within) in [
        (Mutant::TrustsUnknown, 60),
        (Mutant::CrossesAnswers, 60),
        (Mutant::WidensAnswers, 60),
        (Mutant::LowersAnswers, 60),
        (Mutant::GivesBackUsed, 200),
        (Mutant::KeepsBlocksInFork, 120),
        (Mutant::LosesCommits, 120),
        (Mutant::ForgetsMarks, 400),
        (Mutant::GuessesTheRest, 400),
        (Mutant::ShiftsAnswers, 200),
        (Mutant::ServesOneOfNone, 400),
    ] {
        let found =
            (1..=within).find(|&seed| !report::run_minding(seed, mutant, twice).violations.is_empty());
        println!("{mutant:?}: seed {found:?}");
        assert!(found.is_some(), "{mutant:?} made no duplicate that was noticed in {within} seeds");
    }
}

#[test]
fn every_defect_has_its_test() {
    let here = include_str!("test.rs");
    for mutant in Mutant::ALL {
        assert!(here.contains(&format!("noticed(Mutant::{mutant:?}")), "{mutant:?}");
    }
}

#[test]
fn ten_thousand_processes_on_one_database_are_printed_as_a_table() {
    if cfg!(debug_assertions) {
        println!("the scale table is made in optimised builds only");
        return;
    }
    let table = scale::table();
    let leased = crowd::table();
    println!("{table}\n{}\n{leased}", ramp::table());
    assert_eq!((table.lines().count(), leased.lines().count()), (2 + 9, 2 + 5));
}

#[test]
fn a_thousand_processes_get_a_worker_each_and_then_send_one_statement_in_a_third_of_a_lease() {
    let crowd = crowd::crowd(1_000, "30s");
    println!("{crowd:?}");
    // 1000 every ten seconds, at any moment of them.
    assert!((99.0..110.0).contains(&crowd.statements.0), "{crowd:?}");
    assert!(crowd.statements.1 < 200, "{crowd:?}");
}

#[test]
fn an_outage_as_long_as_the_buffer_is_served_from_memory_whenever_it_begins() {
    for (rate, buffer, seconds) in [(100_000, "6s", 6), (2_000, "6s", 6), (100_000, "30s", 30)] {
        for tenth in 0..12 {
            let cycle = seconds * 1_000_000 / 6;
            let begins = 2 * seconds * 1_000_000 + 5_000_000 + cycle * tenth / 11;
            let (refused, waited) = ramp::outage(rate, buffer, begins, seconds * 1_000_000);
            assert_eq!(
                (refused, waited),
                (0, 0),
                "{rate}/s, buffer={buffer}, the store is down from {begins} us on"
            );
        }
    }
}

#[test]
fn a_million_ids_at_100_000_a_second_cost_at_most_two_round_trips() {
    let trips = ramp::trips_a_million("segment:orders?buffer=30s");
    assert!(trips <= 2.0, "{trips} round trips a million ids");
}

#[test]
fn a_million_serials_at_100_000_a_second_cost_at_most_three_round_trips() {
    let trips = ramp::trips_a_million("serial:orders/no?date=yyyy&number=0000000000&buffer=30s");
    println!("{trips} round trips a million serials");
    assert!(trips <= 3.0, "{trips} round trips a million serials");
}

#[test]
fn a_hundred_processes_in_bursts_raise_a_row_by_twice_what_they_use_and_two_steps_each() {
    for (number, step) in [("00000000", 500), ("000000", 500), ("0000000000", 20)] {
        let days::Day { used, raised, .. } = days::bursts(100, number, step, None);
        println!("{number}, step={step}: {used} used, the row rose by {raised}");
        assert!(used > 100 * 2 * step, "{used} used are few beside the steps");
        assert!(raised <= 2 * used + 100 * 2 * step, "{number}, step={step}: {used} used, {raised} raised");
    }
}

#[test]
fn a_process_that_reserves_by_its_rate_alone_is_noticed_by_where_the_row_stands() {
    let days::Day { used, raised, .. } = days::bursts(100, "00000000", 500, Some(Mutant::ReservesUnearned));
    println!("{used} used, the row rose by {raised}");
    assert!(raised > 2 * used + 100 * 2 * 500, "{used} used, {raised} raised");
}

#[test]
fn a_day_is_used_up_to_its_last_number_by_a_hundred_processes() {
    let days::Day { used, raised, overflows } = days::used_up(100, "00000");
    println!("{used} used, the row rose by {raised}, {overflows} callers were told NUMBER_OVERFLOW");
    assert_eq!((used, raised), (99_999, 99_999));
    assert!(overflows > 100, "{overflows}");
}

/// How long callers waited when no refill rested, in microseconds, by rate, buffer and distance.
const WITHOUT_REST: [(u64, &str, u64, u64); 12] = [
    (2_000, "30s", 150, 1_000),
    (2_000, "30s", 10_000, 92_400),
    (100_000, "30s", 150, 1_000),
    (100_000, "30s", 10_000, 168_700),
    (5_000_000, "30s", 150, 1_800),
    (5_000_000, "30s", 10_000, 246_000),
    (2_000, "1s", 150, 1_000),
    (2_000, "1s", 10_000, 92_400),
    (100_000, "1s", 150, 1_000),
    (100_000, "1s", 10_000, 383_900),
    (5_000_000, "1s", 150, 2_700),
    (5_000_000, "1s", 10_000, 923_000),
];

#[test]
fn a_cold_source_settles_within_few_refills_and_no_caller_waits_longer_for_it() {
    for (rate, buffer, way, longest) in WITHOUT_REST {
        let Ramp { refills, waits, .. } =
            ramp(&format!("segment:orders?buffer={buffer}"), rate, way, 1_200_000);
        let few = if buffer == "30s" { 10 } else { 22 };
        assert!(refills <= few, "{rate}/s, {buffer}, {way} us: {refills} refills");
        assert!(waits < longest + 100, "{rate}/s, {buffer}, {way} us: {waits} us waited, {longest} before");
    }
}

/// Twice as many processes as workers, for four minutes of virtual time.
const CROWD: Scale = Scale { processes: 64, slots: 32, steps: 2_400 };

#[test]
fn no_tick_of_a_leased_worker_has_two_owners_and_every_process_gets_a_turn() {
    let mut replaced = 0;
    for seed in 1..=seeds() / 4 {
        let outcome = workers::run(seed, CROWD, None);
        println!("seed {seed}: {outcome:?}");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        // Half of the processes wait at any time, and many are killed meanwhile.
        assert!(outcome.served * 3 > outcome.lives, "seed {seed}: {outcome:?}");
        replaced += outcome.replaced;
    }
    assert!(replaced > 0, "no lease was lost and replaced");
}

#[test]
fn a_defect_of_leased_workers_is_noticed() {
    use workers::Mutant::{MarkNotRaised, StartsBelowTheMark, StopsTooLate, TokenNotCompared};
    for mutant in [MarkNotRaised, TokenNotCompared, StartsBelowTheMark, StopsTooLate] {
        let noticed = (1..=20).find(|seed| !workers::run(*seed, CROWD, Some(mutant)).violations.is_empty());
        println!("{mutant:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?} was not noticed");
    }
}

#[test]
fn a_thousand_kills_use_up_no_workers() {
    // A killed process holds its worker until its lease of ten seconds ends.
    let slots = workers::slots_after_kills(1_000);
    assert!((10..=15).contains(&slots), "{slots} slots");
}

/// Two copies of a process on one memory.
fn copied(layout: &str, copy: Copy) -> copies::Outcome {
    const BEGIN_MS: i64 = 1_795_218_600_000;
    let memory = Memory::new();
    let clock = Arc::new(ManualClock::new(BEGIN_MS));
    memory.set_clock(Clock::Manual(clock.clone()));
    let open = || Box::new(MemoryStore::new(memory.clone())) as Box<dyn Store>;
    copies::copied(open, &copies::spec(layout, ""), BEGIN_MS, copy, || clock.advance(1))
}

#[test]
fn a_copy_of_a_process_is_told_a_third_of_a_lease_later_at_most_and_no_id_repeats_after_that() {
    let mut repeated = 0;
    for (layout, tick_ms) in copies::LAYOUTS {
        for (at_ms, apart_ms) in copies::moments(tick_ms) {
            let what = format!("{layout}, copied after {at_ms} ms, {apart_ms} ms apart");
            let outcome = copied(layout, Copy { at_ms, apart_ms, in_flight: false, mutant: None });
            println!("{what}: {outcome:?}");
            let told_ms = outcome.told_ms().unwrap_or_else(|| panic!("{what}: {outcome:?}"));
            assert!(told_ms <= 10_000 / 3 + 1, "{what}: told after {told_ms} ms");
            assert_eq!(outcome.later, 0, "{what}");
            repeated += outcome.equal;
        }
    }
    assert!(repeated > 0, "the copies used one worker");
}

#[test]
fn a_copy_that_was_made_while_a_renewal_was_on_its_way_is_told_by_the_one_after_it() {
    for (layout, tick_ms) in copies::LAYOUTS {
        for apart_ms in [0, 1, tick_ms] {
            let outcome = copied(layout, Copy { at_ms: 100, apart_ms, in_flight: true, mutant: None });
            println!("{layout}, {apart_ms} ms apart: {outcome:?}");
            let told_ms = outcome.told_ms().unwrap_or_else(|| panic!("{layout}, {apart_ms}: {outcome:?}"));
            assert!(told_ms <= 2 * 10_000 / 3 + 1, "{layout}, {apart_ms} ms apart: {outcome:?}");
            assert_eq!(outcome.later, 0, "{layout}, {apart_ms} ms apart");
        }
    }
}

#[test]
fn a_renewal_whose_token_a_copy_writes_too_is_noticed() {
    for mutant in [copies::Mutant::TokenKept, copies::Mutant::TokenCopied] {
        let never_told = copies::LAYOUTS.iter().filter(|(layout, _)| {
            copied(layout, Copy { at_ms: 100, apart_ms: 0, in_flight: false, mutant: Some(mutant) })
                .told_ms()
                .is_none()
        });
        assert_eq!(never_told.count(), copies::LAYOUTS.len(), "{mutant:?}");
    }
}

/// A thousand processes at a time, for half a minute of virtual time.
const BANKS: banks::Scale = banks::Scale { processes: 1_000, steps: 300 };

#[test]
fn no_business_id_comes_twice_and_those_of_a_gene_rise_in_each_of_a_thousand_processes() {
    let mut given_back = 0;
    for seed in 1..=(seeds() / 20).max(3) {
        let outcome = banks::run(seed, BANKS, None);
        println!("seed {seed}: {outcome:?}");
        assert!(outcome.violations.is_empty(), "seed {seed}: {:#?}", outcome.violations);
        assert!(outcome.served * 10 > outcome.lives * 9, "seed {seed}: {outcome:?}");
        given_back += outcome.given_back;
    }
    assert!(given_back > 0, "no range was given back");
}

#[test]
fn a_defect_of_banks_is_noticed() {
    use banks::Mutant::{ForgetsTheOldRows, GivesBackTooMuch, NotApplied};
    let few = banks::Scale { processes: 30, steps: 300 };
    for mutant in [NotApplied, GivesBackTooMuch, ForgetsTheOldRows] {
        let noticed = (1..=20).find(|seed| !banks::run(*seed, few, Some(mutant)).violations.is_empty());
        println!("{mutant:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?} was not noticed");
    }
}
