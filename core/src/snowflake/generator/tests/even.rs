//! Low digits of ids are even at any rate.

use super::super::*;
use super::Rig;

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
    for layout in ["twitter", "uid", "js53", "time:41@1ms,worker:2,seq:20"] {
        // Ids in a row, then ticks until the next: one a tick, one in a hundred and in a thousand, some, half and all of a tick.
        let full = Layout::parse(layout, "").unwrap().max_seq() + 1;
        for (ids_at_once, ticks) in
            [(1, 1), (1, 5), (1, 100), (1, 1000), (3, 1), (37.min(full), 2), (full / 2, 1), (full, 1)]
        {
            // 128 sequences have no room for a few ids and a free start, and are not a multiple of 5, which the
            // rotation by the tick would make good if the ticks were not all multiples of 5 here.
            if full < 1024 && (ticks % 5 == 0 || (2..full).contains(&ids_at_once)) {
                continue;
            }
            let mut rig = Rig::new(layout, ClockBack::Borrow, 10_000);
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
                    "{layout}, {ids_at_once} in {ticks}: mod {modulus} gives {sum:.0} > {bound:.0}"
                );
            }
        }
    }
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
