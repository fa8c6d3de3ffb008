//! The event loop: a queue of events in virtual time, and the effect of each.

mod callers;
mod faults;
mod in_flight;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;
use std::sync::Arc;

use keymill::planner::{Answer, Ask, SourceIndex};
use keymill::store::{GiveBack, Key};

use super::check::{Figures, KeyId, Ledger, Life, clock};
use super::mutant::{Mutant, Saboteur};
use super::process::{Machine, Process};
use super::scenario::{Fault, Scenario};
use super::store::{Database, MS, Micros, SECOND};
use in_flight::InFlight;

/// The keeper never sleeps longer, as in the executor.
const LONGEST_SLEEP: Micros = 5 * SECOND;
/// The longest pause of a store while a caller waits.
const LONGEST_REST: Micros = 10 * SECOND;

/// An event.
#[derive(Clone, Debug)]
enum Event {
    Attend(Life),
    Arrive(usize),
    Carry(usize),
    Reply(usize),
    GiveUp(usize),
    Call(Life, SourceIndex),
    Retry(Life, SourceIndex, u64),
    Begin(usize),
    End(usize),
    Copy(usize),
    Start(usize),
    Repair(KeyId),
    LastRaise { db: usize, holder: usize, ask: Ask, epoch: u32 },
    GiveBack { db: usize, holder: usize, range: GiveBack, epoch: u32 },
    Old(usize),
    Restart(Life),
}

/// An event's place in time; simultaneous events come in the order of scheduling.
struct Timed {
    at: Micros,
    number: u64,
    event: Event,
}

impl PartialEq for Timed {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timed {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The violations; empty: all promises hold.
    pub violations: Vec<String>,
    /// Totals of the ledger.
    pub figures: Figures,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Callers who gave up, by code.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Statements that databases carried out.
    pub statements: u64,
    /// Batches for several sources, and the sources in them.
    pub together: (u64, u64),
    /// How long each caller waited, if recorded.
    pub waits: Vec<Micros>,
    /// The log of the run, if recorded.
    pub story: String,
    /// Virtual time.
    pub length: Micros,
}

/// A running world.
pub struct World {
    now: Micros,
    queue: BinaryHeap<Reverse<Timed>>,
    numbers: u64,
    scenario: Scenario,
    rng: fastrand::Rng,
    dbs: Vec<Database>,
    machines: Vec<Machine>,
    processes: Vec<Option<Process>>,
    in_flight: Vec<Option<InFlight>>,
    /// Each row's key and database.
    rows: Vec<(Arc<Key>, usize)>,
    /// Sources of killed processes, by machine: their ids may be repeated if a clock is set back later.
    dead: Vec<Vec<usize>>,
    old_holders: Vec<usize>,
    ledger: Ledger,
    saboteur: Saboteur,
    callers: u64,
    outcome: Outcome,
    /// How many requests a store takes in one batch, and whether it carries them out as one transaction.
    together: usize,
    as_one: bool,
    logs: bool,
    /// Logs every statement too.
    logs_statements: bool,
    /// Records how long each caller waited.
    pub measures: bool,
}

impl World {
    /// A world of this scenario, with or without a defect.
    #[must_use]
    pub fn new(scenario: Scenario, mutant: Option<Mutant>) -> World {
        let dbs: Vec<_> =
            scenario.weather.iter().map(|weather| Database::new(*weather, scenario.wall_ms)).collect();
        let machines: Vec<_> =
            scenario.skews_ms.iter().map(|skew| Machine::new(scenario.wall_ms + skew)).collect();
        let mut rows: Vec<Option<(Arc<Key>, usize)>> = vec![None; scenario.rows];
        for source in &scenario.sources {
            for machine in 0..machines.len() {
                let db = machine % dbs.len();
                let row = source.row(machine, db);
                rows[row].get_or_insert_with(|| (source.spec(machine).key.clone(), db));
            }
        }
        // A row that no machine uses, where there are more databases than machines: any key stands for it.
        let key = scenario.sources[0].spec(0).key.clone();
        let rows: Vec<_> = rows.into_iter().map(|row| row.unwrap_or_else(|| (key.clone(), 0))).collect();
        let mut ledger = Ledger::new(rows.len());
        let old_holders = scenario
            .old
            .iter()
            .map(|old| {
                let source = &scenario.sources[old.source];
                ledger.open(source.first_row + old.db, usize::MAX, source.spec(0))
            })
            .collect();
        World {
            now: 0,
            queue: BinaryHeap::new(),
            numbers: 0,
            rng: fastrand::Rng::with_seed(scenario.seed ^ 0x5eed),
            saboteur: Saboteur::new(mutant, scenario.seed),
            dead: vec![Vec::new(); machines.len()],
            dbs,
            machines,
            processes: Vec::new(),
            in_flight: Vec::new(),
            rows,
            old_holders,
            ledger,
            callers: 0,
            outcome: Outcome::default(),
            together: scenario.together,
            as_one: scenario.as_one,
            logs: false,
            logs_statements: std::env::var_os("KEYMILL_SIMULATION_STATEMENTS").is_some(),
            measures: false,
            scenario,
        }
    }

    /// Logs the run.
    #[must_use]
    pub fn logging(mut self) -> World {
        self.logs = true;
        self
    }

    /// Counts only violations that contain this text.
    #[must_use]
    pub fn minding_only(mut self, only: Option<&'static str>) -> World {
        self.ledger.only = only;
        self
    }

    /// Runs all events.
    #[must_use]
    pub fn run(mut self) -> Outcome {
        self.set_out();
        while let Some(Reverse(Timed { at, event, .. })) = self.queue.pop() {
            if at > self.scenario.length || !self.ledger.violations.is_empty() {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.close_all();
        self.outcome.violations = self.ledger.violations;
        self.outcome.figures = self.ledger.figures;
        self.outcome.statements = self.dbs.iter().map(|db| db.statements).sum();
        self.outcome.length = self.scenario.length;
        self.outcome
    }

    fn set_out(&mut self) {
        for n in 0..self.scenario.sources.len() {
            let plan = &self.scenario.sources[n];
            let line = format!("{} every {} ms up to {}", plan.spec(0).text, plan.every / MS, plan.want);
            self.log(|| line);
        }
        let Scenario { weather, timeout, skews_ms, old, .. } = &self.scenario;
        let line = format!(
            "{} machines, skews {:?} ms, {} databases, {:?}, timeout {} ms, {} old nodes",
            skews_ms.len(),
            &skews_ms[..skews_ms.len().min(8)],
            weather.len(),
            weather[0],
            timeout / MS,
            old.len()
        );
        self.log(|| line);
        for machine in 0..self.machines.len() {
            // Processes of one service come up within a second of each other.
            let at = if self.scenario.even { 0 } else { self.rng.u64(0..SECOND) };
            self.at(at, Event::Start(machine));
        }
        for n in 0..self.scenario.faults.len() {
            let planned = self.scenario.faults[n];
            self.at(planned.at, Event::Begin(n));
            match planned.fault {
                Fault::Failover { lag, .. } => self.at(planned.at.saturating_sub(lag), Event::Copy(n)),
                Fault::Restore { age, .. } => self.at(planned.at.saturating_sub(age), Event::Copy(n)),
                _ => {}
            }
        }
        for n in 0..self.scenario.old.len() {
            self.at(self.scenario.old[n].every, Event::Old(n));
        }
    }

    /// Every process closes cleanly at the end; the numbers it returns must be unused.
    fn close_all(&mut self) {
        for life in 0..self.processes.len() {
            if self.ledger.violations.is_empty()
                && self.processes[life].as_ref().is_some_and(|p| p.in_flight.is_none())
            {
                self.close(life);
            }
        }
        while let Some(Reverse(Timed { at, event, .. })) = self.queue.pop() {
            if let Event::GiveBack { .. } | Event::LastRaise { .. } = event {
                self.now = self.now.max(at);
                self.happen(event);
            }
        }
    }

    fn at(&mut self, at: Micros, event: Event) {
        self.numbers += 1;
        self.queue.push(Reverse(Timed { at: at.max(self.now), number: self.numbers, event }));
    }

    fn log(&mut self, what: impl FnOnce() -> String) {
        if self.logs {
            let _ = writeln!(self.outcome.story, "{} {}", clock(self.now), what());
        }
    }

    fn count(&mut self, name: &'static str) {
        *self.outcome.faults.entry(name).or_default() += 1;
    }

    #[allow(clippy::needless_pass_by_value, reason = "an event happens once")]
    fn happen(&mut self, event: Event) {
        match event {
            Event::Attend(life) => {
                if !self.is_paused(life, &event)
                    && self.processes[life].as_ref().is_some_and(|p| p.attend_at == self.now)
                {
                    self.attend(life);
                }
            }
            Event::Call(life, slot) => {
                if !self.is_paused(life, &event) {
                    self.call(life, slot);
                }
            }
            Event::Retry(life, slot, caller) => {
                if !self.is_paused(life, &event) {
                    self.retry(life, slot, caller);
                }
            }
            Event::Arrive(batch) => self.arrive(batch),
            Event::Carry(batch) => self.carry(batch),
            Event::Reply(batch) | Event::GiveUp(batch) => self.come_back(batch, &event),
            Event::Begin(n) => self.begin(n),
            Event::End(n) => self.end(n),
            Event::Copy(n) => {
                let (Fault::Failover { db, .. } | Fault::Restore { db, .. }) = self.scenario.faults[n].fault
                else {
                    return;
                };
                self.dbs[db].copy(n);
            }
            Event::Start(machine) => self.start(machine),
            Event::Restart(life) => self.restart(life),
            Event::Repair(row) => self.repair(row),
            Event::GiveBack { db, holder, ref range, epoch } => {
                let range = range.clone();
                self.give_back(db, holder, range, epoch);
            }
            Event::LastRaise { db, holder, ref ask, epoch } => self.last_raise(db, holder, ask, epoch),
            Event::Old(n) => self.old_node(n),
        }
    }

    /// Events of a stopped process wait for it; those of a dead process are dropped.
    fn is_paused(&mut self, life: Life, event: &Event) -> bool {
        let Some(process) = &mut self.processes[life] else { return true };
        let until = process.paused_until;
        if until <= self.now {
            return false;
        }
        if let Event::Attend(_) = event {
            if process.attend_at != self.now {
                return true;
            }
            process.attend_at = until;
        }
        self.at(until, event.clone());
        true
    }

    // ---- processes

    fn start(&mut self, machine: usize) {
        if self.machines[machine].process.is_none() {
            let life = self.bring_up(machine, false);
            self.machines[machine].process = Some(life);
            self.log(|| format!("process {life} starts on machine {machine}"));
        }
    }

    /// A new process. A forked one opens no snowflakes: its worker id is its parent's.
    fn bring_up(&mut self, machine: usize, forked: bool) -> Life {
        let life = self.processes.len();
        self.machines[machine].sync(self.now);
        let db = machine % self.dbs.len();
        let seed = self.rng.u64(..);
        let mut process = Process::start(machine, db, &self.machines[machine], seed);
        for (n, plan) in self.scenario.sources.iter().enumerate() {
            if !(forked && plan.per_machine) {
                process.open(n, plan, life, &mut self.ledger);
            }
        }
        let slots = process.sources.len();
        self.processes.push(Some(process));
        for slot in 0..slots {
            let pause = self.pause_between_calls(life, slot);
            self.at(self.now + pause, Event::Call(life, slot));
        }
        life
    }

    fn kill(&mut self, life: Life) {
        let Some(process) = self.processes[life].take() else { return };
        for source in &process.sources {
            self.ledger.died(source.holder);
            self.dead[process.machine].push(source.holder);
        }
        self.forget(process.machine, life);
    }

    fn forget(&mut self, machine: usize, life: Life) {
        let machine = &mut self.machines[machine];
        machine.process = machine.process.filter(|l| *l != life);
        machine.children.retain(|l| *l != life);
    }

    /// A clean close: unused numbers are returned, unless the store is failing.
    fn close(&mut self, life: Life) {
        let Some(process) = &mut self.processes[life] else { return };
        process.closing = true;
        if process.in_flight.is_some() {
            return; // the keeper's thread reads the command when its batch is over
        }
        let Some(mut process) = self.processes[life].take() else { return };
        self.machines[process.machine].sync(self.now);
        let last = process.keeper.close();
        let db = process.db;
        let reached = self.machines[process.machine].cut_until <= self.now;
        for source in &process.sources {
            if !self.ledger.is_by_clock(source.holder) {
                continue;
            }
            let own = |ask: &Ask| match ask {
                Ask::Raise { key, to, .. } if Arc::ptr_eq(key, &source.kept.spec().key) => Some(*to),
                _ => None,
            };
            let asks = last.raise.iter().find_map(own);
            let asks = asks.filter(|_| !self.saboteur.is(Mutant::LeavesLowMarks));
            self.ledger.closes(source.holder, asks, self.now);
        }
        for ask in last.raise {
            let Ask::Raise { key, .. } = &ask else { continue };
            let Some(holder) = process.holder_of(key) else { continue };
            // Until the store has it, this close is like a kill.
            self.ledger.died(holder);
            self.dead[process.machine].push(holder);
            if reached {
                let (at, epoch) = (self.now + self.way(db), self.dbs[db].epoch);
                self.at(at, Event::LastRaise { db, holder, ask, epoch });
            }
        }
        if process.keeper.failures() == 0 && self.machines[process.machine].cut_until <= self.now {
            let mut at = self.now;
            for range in last.give_back {
                let Some(holder) = process.holder_of(&range.key) else { continue };
                at += self.way(db) * 2;
                let range = GiveBack { lo: self.saboteur.corrupt_give_back(range.lo), ..range };
                let epoch = self.dbs[db].epoch;
                self.at(at, Event::GiveBack { db, holder, range, epoch });
            }
        }
        self.forget(process.machine, life);
    }

    fn give_back(&mut self, db: usize, holder: usize, range: GiveBack, epoch: u32) {
        let database = &mut self.dbs[db];
        if database.down || database.epoch != epoch {
            return;
        }
        if database.frozen_until > self.now {
            let at = database.frozen_until + self.rng.u64(0..MS);
            self.at(at, Event::GiveBack { db, holder, range, epoch });
            return;
        }
        if self.rng.u32(0..1_000_000) < database.storm.cut {
            return;
        }
        if database.give_back(&range) == Ok(true) {
            self.ledger.given_back(holder, range.period, range.lo, range.hi, self.now);
        }
    }

    /// The mark of a snowflake that was closed.
    fn last_raise(&mut self, db: usize, holder: usize, ask: &Ask, epoch: u32) {
        let database = &mut self.dbs[db];
        let lost = self.rng.u32(0..1_000_000) < database.storm.cut;
        if database.down || database.epoch != epoch || database.frozen_until > self.now || lost {
            return;
        }
        let done = database.apply(ask, self.now);
        self.ledger.applied(holder, ask, &done, true, self.now);
        if let (Ok(Answer::Raised(before) | Answer::RaisedAt { before, .. }), Ask::Raise { to, .. }) =
            (&done.answer, ask)
        {
            self.ledger.raised(holder, *before.max(to));
            self.ledger.covered(holder);
        }
    }

    /// An operator restarts a process whose worker id was lost.
    fn restart(&mut self, life: Life) {
        let Some(process) = &self.processes[life] else { return };
        let machine = process.machine;
        self.log(|| format!("process {life} is restarted: its worker id was lost"));
        self.close(life);
        self.at(self.now + 2 * SECOND, Event::Start(machine));
    }

    fn attend(&mut self, life: Life) {
        let Some(process) = &mut self.processes[life] else { return };
        if process.in_flight.is_some() {
            return;
        }
        let now = self.machines[process.machine].sync(self.now);
        if let Some(batch) = process.keeper.poll(now, self.together) {
            self.send(life, batch);
            return;
        }
        let wake = process.keeper.wake_at(now).map(|at| self.machines[process.machine].at_boot_ms(at));
        // A planner that asks to wake at once has more requests in the same millisecond.
        let wake = wake.unwrap_or(Micros::MAX).clamp(self.now + 100, self.now + LONGEST_SLEEP);
        self.attend_at(life, wake, true);
    }

    /// The keeper wakes at this time; earlier than planned, or as newly planned.
    fn attend_at(&mut self, life: Life, at: Micros, anew: bool) {
        let Some(process) = &mut self.processes[life] else { return };
        if anew || at < process.attend_at || process.attend_at < self.now {
            process.attend_at = at;
            self.at(at, Event::Attend(life));
        }
    }

    /// After callers were served: they may have queued a source.
    fn serve_ready(&mut self, life: Life) {
        let Some(process) = &self.processes[life] else { return };
        if process.in_flight.is_none() && process.is_called() {
            let wakes_in = self.rng.u64(20..300);
            self.attend_at(life, self.now + wakes_in, false);
        }
    }

    // ---- statements

    fn way(&mut self, db: usize) -> Micros {
        let weather = self.dbs[db].weather;
        if weather.slow > 0 && self.rng.u32(0..1_000_000) < weather.slow {
            return self.rng.u64(weather.way..=weather.slow_way.max(weather.way));
        }
        weather.way + self.rng.u64(0..=weather.way / 2)
    }
}
