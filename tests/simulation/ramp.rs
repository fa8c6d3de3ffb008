//! How a cold source reaches its rate: its statements, and how long its callers wait meanwhile.

use std::fmt::Write as _;

use super::scale::calm;
use super::scenario::{Fault, Planned};
use super::store::{MS, Micros, SECOND};
use super::world::World;

/// Callers come this often, each for the numbers that were needed since.
const EVERY: Micros = 500;

/// One ramp.
#[derive(Clone, Copy, Debug)]
pub struct Ramp {
    /// Statements that the database carried out.
    pub refills: u64,
    /// Callers who waited, and how long all of them together.
    pub waited: u64,
    /// Microseconds.
    pub waits: Micros,
    /// Callers who were refused with a hint to retry.
    pub refused: u64,
}

/// A cold source from which this many ids a second are taken for this long, at this distance of the network.
///
/// # Panics
/// If the ledger finds a violation.
#[must_use]
pub fn ramp(spec: &str, rate: u64, way: Micros, length: Micros) -> Ramp {
    let scenario = calm((1, spec), (EVERY, rate * EVERY / SECOND), way, length);
    let mut world = World::new(scenario, None);
    world.measures = true;
    let outcome = world.run();
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    Ramp {
        refills: outcome.statements,
        waited: outcome.waits.iter().filter(|wait| **wait > 0).count() as u64,
        waits: outcome.waits.iter().sum(),
        refused: outcome.refusals.values().sum(),
    }
}

/// Round trips a million ids of a source, at a steady 100 000 ids a second.
///
/// # Panics
/// If the ledger finds a violation.
#[must_use]
pub fn trips_a_million(spec: &str) -> f64 {
    let statements = |length| {
        let every = 10 * MS;
        let scenario = calm((1, spec), (every, 100_000 * every / SECOND), 300, length);
        let outcome = World::new(scenario, None).run();
        assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
        outcome.statements
    };
    // Between the 40th and the 140th second: ten million ids.
    (statements(140 * SECOND) - statements(40 * SECOND)) as f64 / 10.0
}

/// An outage of a source from which ids are taken at a steady rate: the refused callers, and those who waited.
///
/// # Panics
/// If the ledger finds a violation.
#[must_use]
pub fn outage(rate: u64, buffer: &str, begins: Micros, length: Micros) -> (u64, u64) {
    let every = 10 * MS;
    let mut scenario = calm(
        (1, &format!("segment:orders?buffer={buffer}")),
        (every, rate * every / SECOND),
        300,
        begins + length,
    );
    scenario.faults.push(Planned { at: begins, fault: Fault::Crash { db: 0, length: 2 * length } });
    let mut world = World::new(scenario, None);
    world.measures = true;
    let outcome = world.run();
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    // The very first callers wait for the first reservation.
    let settled = outcome.waits.len() / 4;
    let waited = outcome.waits.iter().skip(settled).filter(|wait| **wait > 0).count() as u64;
    (outcome.refusals.values().sum(), waited)
}

/// The table: rate × buffer × distance, the first two seconds.
#[must_use]
pub fn table() -> String {
    let mut out = String::from(
        "one cold source, its first 2 s\n   ids/s  buffer  way ms  refills  waited  waits ms  told to come again\n",
    );
    for buffer in ["30s", "1s"] {
        for rate in [2_000, 100_000, 5_000_000u64] {
            for way in [150, 1_000, 10_000] {
                let Ramp { refills, waited, waits, refused } =
                    ramp(&format!("segment:orders?buffer={buffer}"), rate, way, 2 * SECOND);
                let (way, waits) = (way as f64 / MS as f64, waits as f64 / MS as f64);
                let _ = writeln!(
                    out,
                    "{rate:>8} {buffer:>7} {way:>7.2} {refills:>8} {waited:>7} {waits:>9.1} {refused:>19}"
                );
            }
        }
    }
    out
}
