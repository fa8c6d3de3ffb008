//! Low digits of ids are even at any rate.

use std::collections::BTreeSet;

use super::super::*;
use super::Rig;

/// Some process's.
const SALT: u64 = 0xFF50_2B44_9091_F0B8;

/// Pearson's statistic, and where it is improbable: six standard deviations.
fn chi_square(ids: &[u64], modulus: u64) -> (f64, f64) {
    let mut counts = vec![0u64; modulus as usize];
    for id in ids {
        counts[(id % modulus) as usize] += 1;
    }
    let expected = ids.len() as f64 / modulus as f64;
    let sum = counts.iter().map(|n| (*n as f64 - expected).powi(2) / expected).sum();
    let freedom = modulus as f64 - 1.0;
    (sum, freedom + 6.0 * (2.0 * freedom).sqrt())
}

#[test]
fn low_bits_and_last_digits_are_even_at_any_rate() {
    let layouts = ["twitter", "uid", "js53", "time:41@1ms,worker:2,seq:20"];
    // Without a salt, and with some process's.
    for (layout, salt) in layouts.into_iter().flat_map(|layout| [0, SALT].map(|salt| (layout, salt))) {
        // Ids in a row, then ticks until the next: one a tick, one in a hundred and in a thousand, some, half and all of a tick.
        let full = Layout::parse(layout, "").unwrap().max_seq() + 1;
        for (ids_at_once, ticks) in
            [(1, 1), (1, 5), (1, 100), (1, 1000), (3, 1), (37.min(full), 2), (full / 2, 1), (full, 1)]
        {
            // The ids of a run are no independent draws, for which the bound is: within 60 000 ids it holds for most salts only.
            if salt != 0 && (4..full / 2).contains(&ids_at_once) {
                continue;
            }
            // 128 sequences have no room for a few ids and a free start, and are not a multiple of 5, which the
            // rotation by the tick would make good if the ticks were not all multiples of 5 here.
            if full < 1024 && (ticks % 5 == 0 || (2..full).contains(&ids_at_once)) {
                continue;
            }
            let mut rig = Rig::salted(layout, ClockBack::Borrow, 10_000, salt);
            let mut ids = Vec::new();
            while ids.len() < 60_000 {
                for _ in 0..ids_at_once.min(60_000) {
                    ids.push(rig.id());
                }
                rig.clock.advance(ticks * rig.layout.unit_ms() as u64);
                rig.keeper();
            }
            for modulus in 2..=128 {
                let (sum, bound) = chi_square(&ids, modulus);
                assert!(
                    sum < bound,
                    "{layout}, salt {salt}, {ids_at_once} in {ticks}: mod {modulus} gives {sum:.0} > {bound:.0}"
                );
            }
        }
    }
}

/// Two processes that use worker 1 by accident, each in every tick: how many of their ids are equal, of so many.
fn equal_ids(layout: &str, ids_a_tick: u64, ticks: u64, salts: [u64; 2]) -> u64 {
    let [mut one, mut two] = salts.map(|salt| Rig::salted(layout, ClockBack::Borrow, 10_000, salt));
    let mut equal = 0;
    for _ in 0..ticks {
        let ids: [BTreeSet<u64>; 2] = [&one, &two].map(|rig| (0..ids_a_tick).map(|_| rig.id()).collect());
        equal += ids[0].intersection(&ids[1]).count() as u64;
        for rig in [&mut one, &mut two] {
            rig.clock.advance(rig.layout.unit_ms() as u64);
            rig.keeper();
        }
    }
    equal
}

#[test]
fn two_processes_with_one_worker_share_few_ids_at_a_low_rate_and_not_all() {
    const TICKS: u64 = 20_000;
    // One in so many is equal: half of a wide sequence is free for the start, and all of a narrow one.
    for (layout, one_in) in [
        ("twitter", 2_048),
        ("uid", 4_096),
        ("time:40@1ms,worker:14,seq:9", 256),
        ("time:41@1ms,worker:14,seq:6", 64),
    ] {
        let equal = equal_ids(layout, 1, TICKS, [SALT, SALT.rotate_left(7)]);
        println!("{layout}: {equal} of {TICKS} ids are equal, one in {one_in} is expected");
        let expected = TICKS / one_in;
        assert!(equal <= 3 * expected + 10, "{layout}: {equal} of {TICKS}, and {expected} expected");
    }
    assert_eq!(equal_ids("twitter", 1, 1_000, [SALT, SALT]), 1_000, "the salt alone makes the difference");
    // At a higher rate the runs of a tick meet more often: n ids of 2048 places, about one in 2048 / n.
    let equal = equal_ids("twitter", 20, 2_000, [SALT, SALT.rotate_left(7)]);
    println!("twitter, 20 ids a tick: {equal} of 40000 are equal");
    assert!(equal < 2_000, "{equal}");
}

/// CosId's `ModSpec`: a standard deviation of 100 at most, over the residues modulo 4 of 99 999 ids. It pauses after each id for as long
/// as a thread sleeps at least, some 60 microseconds.
#[test]
fn residues_modulo_4_stay_within_the_bound_of_cosids_own_test() {
    for (least, most) in [(8, 12), (14, 20), (30, 60), (4096, 4096)] {
        let mut worst: f64 = 0.0;
        for seed in 1..=10 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut rig = Rig::twitter();
            // Other ticks for each seed.
            for _ in 0..seed {
                rig.id();
                rig.clock.advance(1_000);
                rig.keeper();
            }
            let mut hits = [0u64; 4];
            let mut left = 99_999;
            while left > 0 {
                for _ in 0..rng.u64(least..=most).min(left) {
                    hits[(rig.id() % 4) as usize] += 1;
                    left -= 1;
                }
                rig.clock.advance(1);
                rig.keeper();
            }
            let squares = hits.iter().map(|count| (*count as f64 - 24_999.0).powi(2));
            worst = worst.max((squares.sum::<f64>() / 4.0).sqrt());
        }
        println!("{least} to {most} ids a millisecond: deviation {worst:.0} at most");
        assert!(worst <= 100.0, "{least} to {most} ids a millisecond: {worst:.0}");
    }
}
