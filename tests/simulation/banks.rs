//! Processes that take business ids from one bank, in virtual time: answers that are lost, late or never come, a store that is down,
//! processes that are killed, stopped and closed, and a change of the number of counters while they run.
//!
//! Keeper, planner, bank and the rules of the store are those that ship. [`run`] checks every id against all before it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use keymill::keeper::{Keeper, KeptSource};
use keymill::planner::{Batch, Now, SourceIndex};
use keymill::simulation::{BankAnswer, BankAsk, BankSource, MillConfig, ReadyQueue, Spec, counter_key};
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::{BankStore, Fault, FaultKind, GiveBack};
use keymill::time::{Clock, ManualClock};
use keymill::{Code, Gene};

/// Virtual time moves in steps of so many milliseconds.
const STEP_MS: u64 = 100;
/// 2026-11-21.
const BEGIN_MS: i64 = 1_795_218_600_000;
/// Of these genes most ids are taken: neighbours share a counter, and some are far apart.
const GENES: [u16; 8] = [0, 1, 63, 64, 30_000, 30_001, 65_534, 65_535];

/// How many processes and steps a run has.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Processes at a time.
    pub processes: usize,
    /// Steps of virtual time.
    pub steps: u64,
}

/// A defect that a run has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// An answer that was lost is used after all, and its range is reserved again for another process.
    NotApplied,
    /// A clean close gives back numbers that were handed out.
    GivesBackTooMuch,
    /// A change of counters forgets to close the old rows, and begins the new ones at 1.
    ForgetsTheOldRows,
}

/// What a run has seen.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Broken promises, the first few.
    pub violations: Vec<String>,
    /// Ids issued.
    pub ids: usize,
    /// Processes that were started.
    pub lives: usize,
    /// Of those, the ones that issued an id.
    pub served: usize,
    /// Processes that closed cleanly.
    pub closed: usize,
    /// Ranges that they gave back.
    pub given_back: usize,
    /// Conversations with the store.
    pub conversations: u64,
    /// Calls refused by code.
    pub refused: HashMap<String, usize>,
}

struct Process {
    keeper: Keeper,
    bank: Arc<BankSource>,
    clock: Arc<ManualClock>,
    synced_ms: u64,
    life: usize,
    /// No step before this time.
    frozen_until: u64,
    ends_at: u64,
    closes: bool,
    /// An answer that is on its way, and when it arrives.
    answer: Option<(u64, SourceIndex, BankAnswer)>,
    /// The highest number of each gene.
    highest: HashMap<u16, u64>,
    served: bool,
}

struct World {
    rng: fastrand::Rng,
    memory: Arc<Memory>,
    store: MemoryStore,
    mutant: Option<Mutant>,
    now_ms: u64,
    down_until: u64,
    seen: HashSet<(u16, u64)>,
    outcome: Outcome,
}

fn spec(text: &str) -> Arc<Spec> {
    Arc::new(MillConfig::parse("memory:").and_then(|config| config.spec(text)).expect("a spec"))
}

/// Runs a seed.
///
/// # Panics
/// If the code under test does.
#[must_use]
pub fn run(seed: u64, scale: Scale, mutant: Option<Mutant>) -> Outcome {
    let memory = Memory::new();
    let mut world = World {
        rng: fastrand::Rng::with_seed(seed),
        store: MemoryStore::new(memory.clone()),
        memory,
        mutant,
        now_ms: 0,
        down_until: 0,
        seen: HashSet::new(),
        outcome: Outcome::default(),
    };
    // The first process names the number of counters; the others have what is recorded.
    let mut processes = vec![world.start("business:order?counters=1024&buffer=2s", scale.steps)];
    let changes_at = scale.steps / 2;
    for step in 0..scale.steps {
        world.now_ms = step * STEP_MS;
        if step == 5 {
            while processes.len() < scale.processes {
                processes.push(world.start("business:order?buffer=2s", scale.steps));
            }
        }
        if world.rng.u32(..100) == 0 {
            world.down_until = world.now_ms + STEP_MS * world.rng.u64(1..30);
        }
        if step == changes_at {
            world.change();
        }
        for process in &mut processes {
            if !world.step(process) {
                *process = world.start("business:order?buffer=2s", scale.steps);
            }
        }
    }
    world.outcome
}

impl World {
    fn start(&mut self, text: &str, steps: u64) -> Process {
        self.outcome.lives += 1;
        let clock = Arc::new(ManualClock::new(BEGIN_MS));
        clock.advance(self.now_ms);
        let mut keeper = Keeper::new(self.rng.u64(..), Arc::new(ReadyQueue::default()));
        let source = keeper.open(0, spec(text), Clock::Manual(clock.clone())).expect("a source");
        let KeptSource::Bank(bank) = source else { unreachable!("a bank") };
        Process {
            keeper,
            bank,
            clock,
            synced_ms: self.now_ms,
            life: self.outcome.lives,
            frozen_until: self.now_ms + STEP_MS * self.rng.u64(..10),
            ends_at: self.now_ms + STEP_MS * self.rng.u64(1..2 * steps),
            closes: self.rng.bool(),
            answer: None,
            highest: HashMap::new(),
            served: false,
        }
    }

    /// One step of a process. `false`: its life is over.
    fn step(&mut self, process: &mut Process) -> bool {
        if self.now_ms < process.frozen_until {
            return true;
        }
        if self.rng.u32(..400) == 0 {
            process.frozen_until = self.now_ms + STEP_MS * self.rng.u64(1..60);
            return true;
        }
        process.clock.advance(self.now_ms - process.synced_ms);
        process.synced_ms = self.now_ms;
        let now = Now { boot_ms: process.clock.boot_ms(), wall_ms: process.clock.wall_ms() };
        if self.now_ms >= process.ends_at {
            if process.closes {
                self.close(process);
            }
            return false;
        }
        if process.answer.as_ref().is_some_and(|(at, ..)| *at <= self.now_ms)
            && let Some((_, slot, answer)) = process.answer.take()
        {
            process.keeper.complete_bank(slot, answer, now);
        }
        for _ in 0..self.rng.u32(..4) {
            self.take(process);
        }
        if process.answer.is_none()
            && let Some(batch) = process.keeper.poll(now, 1)
        {
            let Batch::Bank(slot, ask) = batch else { unreachable!("a bank asks for {batch:?}") };
            let answer = self.carry(&ask);
            // Most answers come at once; some come when the process has been stopped meanwhile.
            let late = if self.rng.u32(..20) == 0 { self.rng.u64(1..30) } else { 0 };
            if late == 0 {
                process.keeper.complete_bank(slot, answer, now);
                self.take(process);
            } else {
                process.answer = Some((self.now_ms + late * STEP_MS, slot, answer));
            }
        }
        true
    }

    /// Takes one id or a batch.
    fn take(&mut self, process: &mut Process) {
        let gene =
            if self.rng.u32(..4) == 0 { self.rng.u16(..) } else { GENES[self.rng.usize(..GENES.len())] };
        let count = if self.rng.u32(..10) == 0 { self.rng.u64(1..100) } else { 1 };
        match process.bank.try_take(Gene::from(gene), count, count) {
            Ok(numbers) => {
                if !std::mem::replace(&mut process.served, true) {
                    self.outcome.served += 1;
                }
                for number in numbers {
                    self.outcome.ids += 1;
                    let highest = process.highest.entry(gene).or_default();
                    if number <= *highest {
                        self.violation(format!(
                            "life {}: gene {gene}: {number} after {}",
                            process.life, process.highest[&gene]
                        ));
                    }
                    process.highest.insert(gene, number);
                    if !self.seen.insert((gene, number)) {
                        self.violation(format!("life {}: gene {gene}: {number} came twice", process.life));
                    }
                }
            }
            Err(refusal) if refusal.code == Code::NotReady => {}
            Err(refusal) => {
                *self.outcome.refused.entry(refusal.code.to_string()).or_default() += 1;
            }
        }
    }

    fn violation(&mut self, what: String) {
        if self.outcome.violations.len() < 10 {
            self.outcome.violations.push(format!("at {} ms: {what}", self.now_ms));
        }
    }

    /// Carries a conversation to the store.
    fn carry(&mut self, ask: &BankAsk) -> BankAnswer {
        self.outcome.conversations += 1;
        if self.now_ms < self.down_until {
            return failed(ask, FaultKind::Unavailable);
        }
        let is_lost = self.rng.u32(..50) == 0;
        if is_lost && self.rng.bool() {
            return failed(ask, FaultKind::Unknown);
        }
        let undone = is_lost && self.mutant == Some(Mutant::NotApplied);
        let before = undone.then(|| self.memory.snapshot());
        let answer = match ask {
            BankAsk::Open { key, bank } => BankAnswer::Opened(self.store.open_bank(key, *bank)),
            BankAsk::Reserve { indexes, requests } => {
                BankAnswer::Reserved(indexes.clone(), self.store.reserve_counters(requests))
            }
        };
        if let Some(before) = before {
            self.memory.restore(&before);
            return answer;
        }
        if is_lost { failed(ask, FaultKind::Unknown) } else { answer }
    }

    fn close(&mut self, process: &mut Process) {
        self.outcome.closed += 1;
        let last = process.keeper.close();
        if self.now_ms < self.down_until {
            return;
        }
        for rest in last.banks {
            let ranges: Vec<_> = rest
                .ranges
                .iter()
                .map(|&(index, lo, hi)| GiveBack {
                    key: counter_key(&rest.key, rest.counters, index),
                    period: 0,
                    lo: if self.mutant == Some(Mutant::GivesBackTooMuch) {
                        lo.saturating_sub(1).max(1)
                    } else {
                        lo
                    },
                    hi,
                    writer: rest.writer,
                })
                .collect();
            let given = self.store.give_back_counters(&ranges).expect("the store answers");
            self.outcome.given_back += given.into_iter().filter(|given| *given).count();
        }
        // A closed bank gives no number.
        if process.bank.try_take(Gene::from(GENES[0]), 1, 1).is_ok() {
            self.violation(format!("life {}: an id after the close", process.life));
        }
    }

    /// What `keymill repair --counters` does.
    fn change(&mut self) {
        let key = spec("business:order").key.clone();
        if self.mutant == Some(Mutant::ForgetsTheOldRows) {
            self.memory.delete_row(&key);
            self.memory.delete_row(&counter_key(&key, 1024, 0));
            return;
        }
        self.store.change_counters(&key, 4096, false).expect("the store answers");
    }
}

fn failed(ask: &BankAsk, kind: FaultKind) -> BankAnswer {
    let fault = Fault::new(kind, "the simulated store has a fault");
    match ask {
        BankAsk::Open { .. } => BankAnswer::Opened(Err(fault)),
        BankAsk::Reserve { indexes, .. } => {
            BankAnswer::Reserved(indexes.clone(), indexes.iter().map(|_| Err(fault.clone())).collect())
        }
    }
}
