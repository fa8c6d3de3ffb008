//! Processes that lease workers from one store: more of them than slots, in virtual time, with clocks that move, answers that are
//! lost, processes that are stopped and killed, and a table that is restored.
//!
//! Keeper, planner, generator and the rules of the store are those that ship. [`run`] checks each id against the store and against
//! every id before it.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use keymill::Code;
use keymill::keeper::{Keeper, KeptSource};
use keymill::planner::{Answer, Ask, Batch, Now, SourceIndex};
use keymill::simulation::{MillConfig, ReadyQueue, Spec};
use keymill::store::memory::{Memory, MemoryBackup, MemoryStore};
use keymill::store::{Fault, FaultKind, Left, Renewal, Renewed, SlotStore, Take};
use keymill::time::{Clock, ManualClock};

/// Virtual time moves in steps of so many milliseconds.
const STEP_MS: u64 = 100;
/// The lease of each source.
const LEASE_MS: u64 = 10_000;
const MAX_LEAD_MS: u64 = 3_000;
/// 2026-11-21.
const BEGIN_MS: i64 = 1_795_218_600_000;

/// How many processes, slots and steps a run has.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Processes.
    pub processes: usize,
    /// Workers of the pool.
    pub slots: u64,
    /// Steps of virtual time.
    pub steps: u64,
}

/// A defect that a run has to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Leases begin and are renewed without raising the mark.
    MarkNotRaised,
    /// A renewal succeeds after another process has taken the slot, too.
    TokenNotCompared,
    /// A new owner begins at the present and not at the mark.
    StartsBelowTheMark,
    /// The process uses a lease for longer than the store keeps it.
    StopsTooLate,
}

/// What a run has seen.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Broken promises, the first few.
    pub violations: Vec<String>,
    /// Ids issued.
    pub ids: usize,
    /// Processes that were started, and those that issued an id.
    pub lives: usize,
    /// Of those, the ones that issued an id.
    pub served: usize,
    /// Leases that were lost and replaced within the life of a source.
    pub replaced: usize,
    /// Statements that the store was sent.
    pub statements: u64,
    /// Calls refused by code.
    pub refused: HashMap<String, usize>,
}

struct Process {
    keeper: Keeper,
    source: KeptSource,
    clock: Arc<ManualClock>,
    life: usize,
    synced_ms: u64,
    /// No step before this time.
    frozen_until: u64,
    /// It was stopped since its keeper ran last.
    was_frozen: bool,
    ends_at: u64,
    /// An answer that was on its way when the process was stopped.
    late: Option<Late>,
    worker: Option<u64>,
    served: bool,
}

enum Late {
    One(SourceIndex, Result<Answer, Fault>),
    Renewed(Vec<SourceIndex>, Result<Renewed, Fault>),
}

struct World {
    rng: fastrand::Rng,
    memory: Arc<Memory>,
    store: MemoryStore,
    store_clock: Arc<ManualClock>,
    spec: Arc<Spec>,
    mutant: Option<Mutant>,
    now_ms: u64,
    down_until: u64,
    backup: Option<MemoryBackup>,
    restored_at: Option<u64>,
    /// Who owns a tick of a worker.
    owners: HashMap<(u64, u64), (usize, u64)>,
    ids: BTreeSet<u64>,
    outcome: Outcome,
}

/// Runs one history.
///
/// # Panics
/// If the source cannot be made: a defect of this file.
#[must_use]
pub fn run(seed: u64, scale: Scale, mutant: Option<Mutant>) -> Outcome {
    fastrand::seed(seed);
    let memory = Memory::new();
    let store_clock = Arc::new(ManualClock::new(BEGIN_MS));
    memory.set_clock(Clock::Manual(store_clock.clone()));
    let text =
        format!("snowflake:tx?lease={LEASE_MS}ms&max_lead={MAX_LEAD_MS}ms&slots=0-{}", scale.slots - 1);
    let spec = MillConfig::parse("memory:").and_then(|config| config.spec(&text)).expect("a spec");
    let mut world = World {
        rng: fastrand::Rng::with_seed(seed),
        store: MemoryStore::new(memory.clone()),
        memory,
        store_clock,
        spec: Arc::new(spec),
        mutant,
        now_ms: 0,
        down_until: 0,
        backup: None,
        restored_at: None,
        owners: HashMap::new(),
        ids: BTreeSet::new(),
        outcome: Outcome::default(),
    };
    let mut processes: Vec<Process> = (0..scale.processes).map(|_| world.start()).collect();
    for _ in 0..scale.steps {
        world.step(&mut processes);
    }
    world.outcome.ids = world.ids.len();
    world.outcome
}

/// How many slots are used by `kills` processes that are each killed after their first id, a second apart.
///
/// # Panics
/// If one of them finds no worker.
#[must_use]
pub fn slots_after_kills(kills: u64) -> usize {
    let memory = Memory::new();
    let store_clock = Arc::new(ManualClock::new(BEGIN_MS));
    memory.set_clock(Clock::Manual(store_clock.clone()));
    let mut store = MemoryStore::new(memory);
    let text = format!("snowflake:tx?lease={LEASE_MS}ms&max_lead={MAX_LEAD_MS}ms");
    let spec = MillConfig::parse("memory:").and_then(|config| config.spec(&text)).expect("a spec");
    let spec = Arc::new(spec);
    let mut ids = BTreeSet::new();
    for life in 0..kills {
        let clock = Arc::new(ManualClock::new(store_clock.wall_ms()));
        let now = Now { boot_ms: clock.boot_ms(), wall_ms: clock.wall_ms() };
        let mut keeper = Keeper::new(life, Arc::new(ReadyQueue::default()));
        let source = keeper.open(0, spec.clone(), Clock::Manual(clock)).expect("a source");
        assert!(source.try_next().is_err(), "nothing is leased yet");
        let Some(Batch::One(slot, Ask::Take(take))) = keeper.poll(now, 1) else {
            panic!("it asks for a worker")
        };
        keeper.complete(slot, store.take_slot(&take).map(Answer::Taken), now);
        assert!(ids.insert(source.try_next().expect("an id")), "an id was issued twice");
        store_clock.advance(1_000);
    }
    store.slots(&spec.key).expect("the rows").slots.len()
}

impl World {
    fn start(&mut self) -> Process {
        self.outcome.lives += 1;
        let wall_ms = BEGIN_MS + self.now_ms as i64 + self.rng.i64(-500..500);
        let clock = Arc::new(ManualClock::new(wall_ms));
        let ready = Arc::new(ReadyQueue::default());
        let mut keeper = Keeper::new(self.rng.u64(..), ready);
        keeper.set_owner(format!("life {}", self.outcome.lives).into());
        let source = keeper.open(0, self.spec.clone(), Clock::Manual(clock.clone())).expect("a source");
        Process {
            keeper,
            source,
            clock,
            life: self.outcome.lives,
            synced_ms: self.now_ms,
            frozen_until: 0,
            was_frozen: false,
            ends_at: self.now_ms + self.rng.u64(5_000..60_000),
            late: None,
            worker: None,
            served: false,
        }
    }

    fn violate(&mut self, what: &str) {
        if self.outcome.violations.len() < 5 {
            self.outcome.violations.push(format!("at {} ms: {what}", self.now_ms));
        }
    }

    fn step(&mut self, processes: &mut [Process]) {
        self.now_ms += STEP_MS;
        self.store_clock.advance(STEP_MS);
        self.trouble(processes);
        for process in processes {
            if process.frozen_until > self.now_ms {
                continue;
            }
            if process.ends_at <= self.now_ms {
                self.end(process);
                continue;
            }
            process.clock.advance(self.now_ms - process.synced_ms);
            process.synced_ms = self.now_ms;
            // Callers of a process that wakes may come before its keeper.
            if process.was_frozen && self.rng.bool() {
                self.call(process);
            }
            self.keep(process);
            process.was_frozen = false;
            self.call(process);
        }
    }

    fn trouble(&mut self, processes: &mut [Process]) {
        let at = self.rng.usize(..processes.len());
        match self.rng.u32(0..2_000) {
            0..20 => {
                // Stopped for less than a lease, or for longer.
                let process = &mut processes[at];
                process.frozen_until = self.now_ms + self.rng.u64(100..3 * LEASE_MS);
                process.was_frozen = true;
            }
            20..26 => {
                let by = [-1_000, 1_000, -600_000, 600_000, -172_800_000, 31_536_000_000];
                let by = by[self.rng.usize(..by.len())];
                let clock = &processes[at].clock;
                clock.set_wall(clock.wall_ms() + by);
                // A person sets it right, or the process ends.
                processes[at].ends_at = processes[at].ends_at.min(self.now_ms + 20_000);
            }
            26..29 => {
                let by = [-30_000, -2_000, 2_000, 30_000][self.rng.usize(..4)];
                self.store_clock.set_wall(self.store_clock.wall_ms() + by);
            }
            29..32 => self.down_until = self.now_ms + self.rng.u64(500..2 * LEASE_MS),
            32..34 => self.backup = Some(self.memory.snapshot()),
            34 => {
                if let Some(backup) = self.backup.take() {
                    self.memory.restore(&backup);
                    self.restored_at = Some(self.now_ms);
                }
            }
            _ => {}
        }
    }

    /// A clean close, or the end of a killed process; then another one begins.
    fn end(&mut self, process: &mut Process) {
        if self.rng.bool() {
            let last = process.keeper.close();
            if self.down_until <= self.now_ms {
                let _ = self.store.free_slots(&last.free);
            }
        }
        *process = self.start();
    }

    fn now(process: &Process) -> Now {
        Now { boot_ms: process.clock.boot_ms(), wall_ms: process.clock.wall_ms() }
    }

    /// What the keeper's thread does.
    fn keep(&mut self, process: &mut Process) {
        match process.late.take() {
            Some(Late::One(slot, answer)) => process.keeper.complete(slot, answer, Self::now(process)),
            Some(Late::Renewed(slots, answer)) => process.keeper.renewed(&slots, answer, Self::now(process)),
            None => {}
        }
        while let Some(batch) = process.keeper.poll(Self::now(process), 1) {
            self.outcome.statements += 1;
            let late = match batch {
                Batch::One(slot, Ask::Take(take)) => {
                    Late::One(slot, self.fate(|world| world.take(&take)).map(Answer::Taken))
                }
                Batch::Renew(slots, renewals) => {
                    Late::Renewed(slots, self.fate(|world| world.renew(&renewals)))
                }
                other => unreachable!("a leased source asks for {other:?}"),
            };
            if self.rng.u32(0..200) == 0 {
                // Stopped with the answer on its way.
                process.frozen_until = self.now_ms + self.rng.u64(100..2 * LEASE_MS);
                process.was_frozen = true;
                process.late = Some(late);
                return;
            }
            match late {
                Late::One(slot, answer) => process.keeper.complete(slot, answer, Self::now(process)),
                Late::Renewed(slots, answer) => {
                    process.keeper.renewed(&slots, answer, Self::now(process));
                }
            }
        }
    }

    /// Whether a request arrives, and its answer.
    fn fate<T>(&mut self, ask: impl FnOnce(&mut World) -> Result<T, Fault>) -> Result<T, Fault> {
        if self.down_until > self.now_ms {
            return Err(Fault::new(FaultKind::Unavailable, "the store is down"));
        }
        match self.rng.u32(0..40) {
            0 => Err(Fault::new(FaultKind::Unknown, "the request was lost")),
            1 => ask(self).and_then(|_| Err(Fault::new(FaultKind::Unknown, "the answer was lost"))),
            _ => ask(self),
        }
    }

    fn take(&mut self, take: &Take) -> Result<keymill::store::Taken, Fault> {
        let mut asked = take.clone();
        match self.mutant {
            Some(Mutant::MarkNotRaised) => asked.mark = 0,
            Some(Mutant::StopsTooLate) => {
                asked.lease_ms /= 4;
                // The mark of a worker that is taken too early is ahead of every right clock, and the worker would be passed over.
                asked.latest_mark = u64::MAX;
            }
            _ => {}
        }
        let mut taken = self.store.take_slot(&asked)?;
        match self.mutant {
            Some(Mutant::MarkNotRaised) => taken.mark = take.mark,
            Some(Mutant::StartsBelowTheMark) => taken.start = 0,
            _ => {}
        }
        Ok(taken)
    }

    fn renew(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let mut asked = renewals.to_vec();
        let rows = self.store.slots(&self.spec.key)?;
        for renewal in &mut asked {
            let Some(row) = rows.slots.iter().find(|row| row.slot == renewal.own.slot) else { continue };
            match self.mutant {
                Some(Mutant::MarkNotRaised) => {
                    renewal.to.mark = row.mark;
                    renewal.own.left.iter_mut().for_each(|left| left.mark = row.mark);
                }
                Some(Mutant::TokenNotCompared) => {
                    renewal.own.left = vec![Left { token: row.token, mark: row.mark }];
                }
                Some(Mutant::StopsTooLate) => renewal.lease_ms /= 4,
                _ => {}
            }
        }
        let mut renewed = self.store.renew_slots(&asked)?;
        if self.mutant == Some(Mutant::MarkNotRaised) {
            for (mark, renewal) in renewed.marks.iter_mut().zip(renewals) {
                if mark.is_ok() {
                    *mark = Ok(renewal.to.mark);
                }
            }
        }
        Ok(renewed)
    }

    /// Some callers take ids, without waiting.
    fn call(&mut self, process: &mut Process) {
        for _ in 0..self.rng.u32(0..3) {
            match process.source.try_next() {
                Ok(id) => self.check(process, id),
                Err(error) => {
                    let expected = [
                        Code::NotReady,
                        Code::LeaseLost,
                        Code::NoWorkerFree,
                        Code::StoreUnavailable,
                        Code::ClockBehind,
                    ];
                    if !expected.contains(&error.code) {
                        self.violate(&format!("life {} got {error:?}", process.life));
                    }
                    *self.outcome.refused.entry(error.code.name().to_owned()).or_default() += 1;
                    return;
                }
            }
        }
    }

    fn check(&mut self, process: &mut Process, id: u64) {
        let layout = self.spec.snowflake.expect("a snowflake").layout;
        let fields = layout.unpack(id);
        let (worker, tick) = (fields.worker, fields.tick);
        if process.worker.is_some_and(|before| before != worker) {
            self.outcome.replaced += 1;
        }
        process.worker = Some(worker);
        if !process.served {
            process.served = true;
            self.outcome.served += 1;
        }
        // After a restored table ids may repeat until the next renewal, which may have to be tried again.
        let excused =
            self.restored_at.is_some_and(|at| self.now_ms <= at + LEASE_MS + MAX_LEAD_MS + 2 * LEASE_MS);
        if excused {
            self.ids.insert(id);
            return;
        }
        let mut problems = String::new();
        if !self.ids.insert(id) {
            let _ = write!(problems, "id {id} was issued twice; ");
        }
        let owner = *self.owners.entry((worker, tick)).or_insert((process.life, self.now_ms));
        if owner.0 != process.life {
            let _ = write!(problems, "tick {tick} of worker {worker} belongs to life {}; ", owner.0);
        }
        let rows = self.store.slots(&self.spec.key).expect("the rows");
        match rows.slots.iter().find(|row| row.slot == worker) {
            Some(row) if tick >= row.mark => {
                let _ =
                    write!(problems, "tick {tick} of worker {worker} is not below its mark {}; ", row.mark);
            }
            Some(row) if row.owner != format!("life {}", process.life) && !process.was_frozen => {
                let moved = self.store_clock.wall_ms() - BEGIN_MS - self.now_ms as i64;
                if moved == 0 {
                    let _ = write!(problems, "worker {worker} was taken by {}; ", row.owner);
                }
            }
            Some(_) => {}
            None => problems.push_str("its worker has no row; "),
        }
        if !problems.is_empty() {
            self.violate(&format!("life {}: {problems}", process.life));
        }
    }
}
