//! What many processes that take serials in bursts leave of a day.

use keymill::Code;

use super::mutant::Mutant;
use super::scale::calm;
use super::store::{MS, Micros, SECOND};
use super::world::World;

/// A day of one row.
#[derive(Clone, Copy, Debug)]
pub struct Day {
    /// Serials that callers got.
    pub used: u64,
    /// Serials by which the row rose.
    pub raised: u64,
    /// Callers who were told that the day has no more.
    pub overflows: u64,
}

/// This many processes whose callers come in bursts between lulls, with up to 1000 serials a call.
///
/// # Panics
/// If the ledger finds a violation, where the world has no defect.
#[must_use]
pub fn bursts(processes: usize, number: &str, step: u64, mutant: Option<Mutant>) -> Day {
    let spec = format!("serial:orders/no?zone=UTC&number={number}&step={step}");
    // A mean of 5 serials a process and millisecond, in bursts: a tenth of a second in most, and lulls of minutes.
    let scenario = |length: Micros| {
        let mut scenario = calm((processes, &spec), (100 * MS, 1_000), 300, length);
        scenario.even = false;
        scenario
    };
    // As long as a day of so few numbers lasts.
    let length = if number.len() < 8 { SECOND } else { 4 * SECOND };
    run(World::new(scenario(length), mutant), mutant.is_some())
}

/// This many processes that take one serial after the other until the day has no more, and go on asking.
///
/// # Panics
/// If the ledger finds a violation.
#[must_use]
pub fn used_up(processes: usize, number: &str) -> Day {
    let spec = format!("serial:orders/no?zone=UTC&number={number}");
    run(World::new(calm((processes, &spec), (MS, 1), 300, 20 * SECOND), None), false)
}

fn run(world: World, has_defect: bool) -> Day {
    // Only the ids themselves count in a world with a defect.
    let world = if has_defect { world.minding_only(Some("issued twice")) } else { world };
    let outcome = world.run();
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    let overflows = outcome.refusals.get(Code::NumberOverflow.name()).copied().unwrap_or(0);
    Day {
        used: outcome.figures.ids,
        raised: outcome.figures.reserved - outcome.figures.given_back,
        overflows,
    }
}
