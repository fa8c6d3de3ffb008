//! How much many processes ask of one database: statements, waits, unused numbers.

use std::fmt::Write as _;

use super::scenario::Scenario;
use super::store::{MS, Micros, SECOND, Weather};
use super::world::World;

/// Virtual time of each line.
const LENGTH: Micros = 30 * SECOND;
/// Callers of a process come this often, each for the numbers that were needed since.
const EVERY: Micros = 400 * MS;

/// The table: processes × rate on one database with one row.
///
/// # Panics
/// If the ledger finds a violation.
#[must_use]
pub fn table() -> String {
    let mut out = String::from(
        "one database, one row, 0.3 ms a way, 0.1 ms a statement, all processes start at once, 30 s\n\
         processes  ids/s each  statements/s  worst wait ms  p99 wait ms      ids  unused at the end\n",
    );
    for processes in [10, 1_000, 10_000usize] {
        for rate in [10, 1_000, 100_000u64] {
            line(&mut out, processes, rate);
        }
    }
    out
}

/// This many processes of one source on one database at this distance, without faults: a call every `every`, each for
/// `want` numbers.
#[must_use]
pub fn calm(
    (processes, spec): (usize, &str),
    (every, want): (Micros, u64),
    way: Micros,
    length: Micros,
) -> Scenario {
    let mut scenario = Scenario {
        seed: 1,
        length,
        wall_ms: 1_795_218_600_000,
        weather: vec![Weather { way, slow: 0, slow_way: 0, service: 100 }],
        timeout: 5 * SECOND,
        skews_ms: vec![0; processes],
        sources: Vec::new(),
        rows: 0,
        old: Vec::new(),
        faults: Vec::new(),
        even: true,
        together: 1,
        as_one: false,
    };
    scenario.add_source(spec, every, want);
    scenario
}

fn line(out: &mut String, processes: usize, rate: u64) {
    let calls = (EVERY, rate * EVERY / SECOND);
    let scenario = calm((processes, "segment:orders"), calls, 300, LENGTH);
    let mut world = World::new(scenario, None);
    world.measures = true;
    let mut outcome = world.run();
    assert!(outcome.violations.is_empty(), "{:?}", outcome.violations);
    outcome.waits.sort_unstable();
    let worst = outcome.waits.last().copied().unwrap_or(0);
    let p99 = outcome.waits.get(outcome.waits.len() * 99 / 100).copied().unwrap_or(0);
    let figures = outcome.figures;
    let _ = writeln!(
        out,
        "{processes:>9} {rate:>11} {:>13.1} {:>14.1} {:>12.1} {:>8} {:>18}",
        outcome.statements as f64 / (LENGTH / SECOND) as f64,
        worst as f64 / 1000.0,
        p99 as f64 / 1000.0,
        short(figures.ids),
        short(figures.reserved - figures.given_back - figures.ids),
    );
}

fn short(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..10_000_000 => format!("{}k", n / 1000),
        10_000_000..10_000_000_000 => format!("{}M", n / 1_000_000),
        _ => format!("{}G", n / 1_000_000_000),
    }
}
