//! Runs seeds and reports their results.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check::Figures;
use super::mutant::Mutant;
use super::scenario::Scenario;
use super::store::SECOND;
use super::world::{Outcome, World};

/// Runs one seed; a panic in it is a violation like any other.
#[must_use]
pub fn run(seed: u64, mutant: Option<Mutant>, logs: bool) -> Outcome {
    guarded(|| {
        let world = World::new(Scenario::new(seed), mutant);
        if logs { world.logging().run() } else { world.run() }
    })
}

/// Runs one seed with a defect; only violations that contain this text count.
#[must_use]
pub fn run_minding(seed: u64, mutant: Mutant, only: &'static str) -> Outcome {
    guarded(|| World::new(Scenario::new(seed), Some(mutant)).minding_only(Some(only)).run())
}

fn guarded(run: impl FnOnce() -> Outcome) -> Outcome {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().map(String::as_str);
        let what = what.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of another type");
        Outcome { violations: vec![format!("a panic: {what}")], ..Outcome::default() }
    })
}

/// The totals of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Total {
    /// How many seeds ran.
    pub seeds: u64,
    /// Sums of the ledgers.
    pub figures: Figures,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Callers who gave up, by code.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Statements.
    pub statements: u64,
    /// Batches for several sources, and the sources in them.
    pub together: (u64, u64),
    /// Virtual seconds.
    pub seconds: u64,
    /// Seeds that failed, each with its first violation.
    pub failed: Vec<(u64, String)>,
}

impl Total {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.seeds += 1;
        self.figures.ids += outcome.figures.ids;
        self.figures.reserved += outcome.figures.reserved;
        self.figures.given_back += outcome.figures.given_back;
        self.figures.twice_after_loss += outcome.figures.twice_after_loss;
        self.figures.twice_uncovered += outcome.figures.twice_uncovered;
        self.statements += outcome.statements;
        self.together.0 += outcome.together.0;
        self.together.1 += outcome.together.1;
        self.seconds += outcome.length / SECOND;
        for (name, n) in outcome.faults {
            *self.faults.entry(name).or_default() += n;
        }
        for (name, n) in outcome.refusals {
            *self.refusals.entry(name).or_default() += n;
        }
        if let Some(first) = outcome.violations.into_iter().next() {
            self.failed.push((seed, first));
        }
    }
}

/// Runs seeds `from ..  from + count` on all processors.
///
/// # Panics
/// If a thread dies outside a seed.
#[must_use]
pub fn run_many(from: u64, count: u64, mutant: Option<Mutant>) -> Total {
    let next = AtomicU64::new(from);
    let total = Mutex::new(Total::default());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + count {
                        return;
                    }
                    let outcome = run(seed, mutant, false);
                    if let Some(first) = outcome.violations.first() {
                        // At once, so that an interrupted run has reported it.
                        eprintln!("seed {seed}: {first}");
                    }
                    total.lock().expect("no thread panics").add(seed, outcome);
                }
            });
        }
    });
    let mut total = total.into_inner().expect("no thread panics");
    total.failed.sort();
    total
}

fn list(counts: &BTreeMap<&'static str, u64>) -> String {
    let all: Vec<_> = counts.iter().map(|(name, n)| format!("{name} {n}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(" · ") }
}

/// One seed's story, figures and verdict.
#[must_use]
pub fn one(seed: u64, outcome: &Outcome) -> String {
    let mut out = outcome.story.clone();
    let figures = outcome.figures;
    let _ = writeln!(out, "faults    {}", list(&outcome.faults));
    let _ = writeln!(out, "refusals  {}", list(&outcome.refusals));
    let _ = writeln!(
        out,
        "ids       {} of {} reserved in {} statements, {} given back; {} twice after a loss, {} twice uncovered",
        figures.ids,
        figures.reserved,
        outcome.statements,
        figures.given_back,
        figures.twice_after_loss,
        figures.twice_uncovered
    );
    for violation in &outcome.violations {
        let _ = writeln!(out, "VIOLATION {violation}");
    }
    let verdict = if outcome.violations.is_empty() { "holds" } else { "FAILS" };
    let _ = writeln!(out, "seed {seed} {verdict}");
    out
}

/// Many seeds' figures, and how to replay what failed.
#[must_use]
pub fn many(total: &Total) -> String {
    let mut out = String::new();
    let figures = total.figures;
    let _ = writeln!(
        out,
        "{} seeds, {} virtual hours, {} statements",
        total.seeds,
        total.seconds / 3600,
        total.statements
    );
    let _ = writeln!(
        out,
        "ids       {} of {} reserved, {} given back; {} twice after a loss, {} twice uncovered",
        figures.ids, figures.reserved, figures.given_back, figures.twice_after_loss, figures.twice_uncovered
    );
    let (in_flight, sources) = total.together;
    let _ = writeln!(out, "company   {in_flight} in_flight for several sources, {sources} in all");
    let _ = writeln!(out, "faults    {}", list(&total.faults));
    let _ = writeln!(out, "refusals  {}", list(&total.refusals));
    for (seed, violation) in total.failed.iter().take(10) {
        let _ =
            writeln!(out, "FAILED    seed {seed}: {violation}\n          replay: ci/steps/simulate {seed}");
    }
    let _ = writeln!(out, "{} of {} seeds failed", total.failed.len(), total.seeds);
    out
}
