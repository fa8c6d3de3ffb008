//! The clockwork: a queue of events in virtual time, and what each of them does.

mod flight;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write as _;
use std::sync::Arc;

use keymill::keeper::plan::Slot;
use keymill::store::{Key, Mark};
use keymill::{Code, Error};

use super::check::{Excuses, Figures, KeyId, Ledger, Life, clock};
use super::mutant::{Mutant, Saboteur};
use super::process::{Caller, Machine, Process};
use super::scenario::{Fault, Scenario};
use super::store::{Database, MS, Micros, SECOND, Storm};
use flight::Flight;

/// The keeper never sleeps longer, as in the executor.
const LONGEST_SLEEP: Micros = 5 * SECOND;
/// Who waits for a keeper in flight looks again after this long, as a blocked caller is woken by the answer.
const LOOK_AGAIN: Micros = 20 * MS;
/// More callers than this do not wait at one source: they try and go.
const MOST_WAITING: usize = 4;
/// The longest that a planner lets a store rest, and with it a caller.
const LONGEST_REST: Micros = 5 * SECOND;

/// Something that happens.
#[derive(Clone, Debug)]
enum Event {
    Attend(Life),
    Arrive(usize),
    Carry(usize),
    Reply(usize),
    GiveUp(usize),
    Call(Life, Slot),
    Retry(Life, Slot, u64),
    Begin(usize),
    End(usize),
    Copy(usize),
    Start(usize),
    Repair(KeyId),
    GiveBack { db: usize, holder: usize, key: Arc<Key>, range: (u64, u64, u64), epoch: u32 },
    Old(usize),
    Restart(Life),
}

/// An event's place in time; ties in the order of asking.
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

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What must never be and was; empty: all is well.
    pub violations: Vec<String>,
    /// Totals of the ledger.
    pub figures: Figures,
    /// Faults by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Callers who gave up, by code.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Statements that databases carried out.
    pub statements: u64,
    /// Flights for several sources, and the sources that they carried.
    pub together: (u64, u64),
    /// How long each caller waited, where that was asked for.
    pub waits: Vec<Micros>,
    /// The story, where that was asked for.
    pub story: String,
    /// Virtual time.
    pub length: Micros,
}

/// A world at work.
pub struct World {
    now: Micros,
    queue: BinaryHeap<Reverse<Timed>>,
    numbers: u64,
    scenario: Scenario,
    rng: fastrand::Rng,
    dbs: Vec<Database>,
    machines: Vec<Machine>,
    processes: Vec<Option<Process>>,
    flights: Vec<Option<Flight>>,
    /// Each row's key and database.
    rows: Vec<(Arc<Key>, usize)>,
    /// Sources of processes that were killed, by machine: what a clock set back later may repeat.
    dead: Vec<Vec<usize>>,
    old_holders: Vec<usize>,
    ledger: Ledger,
    saboteur: Saboteur,
    callers: u64,
    outcome: Outcome,
    /// How many requests a store takes in one go, and whether it carries them out as one transaction.
    together: usize,
    as_one: bool,
    tells: bool,
    /// Tells every statement too.
    chatters: bool,
    /// Write down how long each caller waited.
    pub measures: bool,
}

impl World {
    /// A world of this scenario, honest or with a defect.
    #[must_use]
    pub fn new(scenario: Scenario, mutant: Option<Mutant>) -> World {
        let dbs: Vec<_> = scenario.weather.iter().map(|weather| Database::new(*weather)).collect();
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
            flights: Vec::new(),
            rows,
            old_holders,
            ledger,
            callers: 0,
            outcome: Outcome::default(),
            together: scenario.together,
            as_one: scenario.as_one,
            tells: false,
            chatters: std::env::var_os("KEYMILL_SIMULATION_STATEMENTS").is_some(),
            measures: false,
            scenario,
        }
    }

    /// Writes the story down as it happens.
    #[must_use]
    pub fn telling(mut self) -> World {
        self.tells = true;
        self
    }

    /// Minds only violations that say this.
    #[must_use]
    pub fn minding_only(mut self, only: Option<&'static str>) -> World {
        self.ledger.only = only;
        self
    }

    /// Lets everything happen.
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
            self.tell(|| line);
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
        self.tell(|| line);
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

    /// Every process closes cleanly at the end; what it gives back must be unused.
    fn close_all(&mut self) {
        for life in 0..self.processes.len() {
            if self.ledger.violations.is_empty()
                && self.processes[life].as_ref().is_some_and(|p| p.flight.is_none())
            {
                self.close(life);
            }
        }
        while let Some(Reverse(Timed { at, event, .. })) = self.queue.pop() {
            if let Event::GiveBack { .. } = event {
                self.now = self.now.max(at);
                self.happen(event);
            }
        }
    }

    fn at(&mut self, at: Micros, event: Event) {
        self.numbers += 1;
        self.queue.push(Reverse(Timed { at: at.max(self.now), number: self.numbers, event }));
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.tells {
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
            Event::Arrive(flight) => self.arrive(flight),
            Event::Carry(flight) => self.carry(flight),
            Event::Reply(flight) | Event::GiveUp(flight) => self.come_back(flight, &event),
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
            Event::GiveBack { db, holder, ref key, range, epoch } => {
                let key = key.clone();
                self.give_back(db, holder, &key, range, epoch);
            }
            Event::Old(n) => self.old_node(n),
        }
    }

    /// Events of a stopped process wait for it; those of a dead one are nothing.
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
            self.tell(|| format!("process {life} starts on machine {machine}"));
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

    /// A clean close: what was not used goes back, unless the store is failing.
    fn close(&mut self, life: Life) {
        let Some(process) = &mut self.processes[life] else { return };
        process.closing = true;
        if process.flight.is_some() {
            return; // the keeper's thread reads the command when its flight is over
        }
        let Some(mut process) = self.processes[life].take() else { return };
        self.machines[process.machine].sync(self.now);
        let back = process.keeper.close();
        let db = process.db;
        if process.keeper.failures() == 0 && self.machines[process.machine].cut_until <= self.now {
            let mut at = self.now;
            for (key, period, lo, hi) in back {
                let Some(holder) = process.holder_of(&key) else { continue };
                at += self.way(db) * 2;
                let range = (period, self.saboteur.corrupt_give_back(lo), hi);
                let epoch = self.dbs[db].epoch;
                self.at(at, Event::GiveBack { db, holder, key, range, epoch });
            }
        }
        self.forget(process.machine, life);
    }

    fn give_back(
        &mut self,
        db: usize,
        holder: usize,
        key: &Arc<Key>,
        (period, lo, hi): (u64, u64, u64),
        epoch: u32,
    ) {
        let database = &mut self.dbs[db];
        if database.down || database.epoch != epoch {
            return;
        }
        if database.frozen_until > self.now {
            let at = database.frozen_until + self.rng.u64(0..MS);
            self.at(at, Event::GiveBack { db, holder, key: key.clone(), range: (period, lo, hi), epoch });
            return;
        }
        if self.rng.u32(0..1_000_000) < database.storm.cut {
            return;
        }
        if database.give_back(key, period, lo, hi) == Ok(true) {
            self.ledger.given_back(holder, period, lo, hi, self.now);
        }
    }

    /// An operator restarts a process whose worker id was lost.
    fn restart(&mut self, life: Life) {
        let Some(process) = &self.processes[life] else { return };
        let machine = process.machine;
        self.tell(|| format!("process {life} is restarted: its worker id was lost"));
        self.close(life);
        self.at(self.now + 2 * SECOND, Event::Start(machine));
    }

    fn attend(&mut self, life: Life) {
        let Some(process) = &mut self.processes[life] else { return };
        if process.flight.is_some() {
            return;
        }
        let now = self.machines[process.machine].sync(self.now);
        if let Some(flight) = process.keeper.attend(now, self.together) {
            self.send(life, flight);
            return;
        }
        let wake = process.keeper.wake_at(now).map(|at| self.machines[process.machine].at_boot_ms(at));
        // A planner that asks to be woken at once has more to say in the same millisecond.
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

    /// After callers were served: somebody may have rung.
    fn answer_bell(&mut self, life: Life) {
        let Some(process) = &self.processes[life] else { return };
        if process.flight.is_none() && process.is_called() {
            let wakes_in = self.rng.u64(20..300);
            self.attend_at(life, self.now + wakes_in, false);
        }
    }

    // ---- callers

    fn pause_between_calls(&mut self, life: Life, slot: Slot) -> Micros {
        let Some(source) = self.processes[life].as_mut().map(|p| &mut p.sources[slot]) else { return SECOND };
        let mean = self.scenario.sources[source.plan].every;
        if self.scenario.even {
            return mean;
        }
        match self.rng.u32(0..400) {
            0 => source.pace = [10, 100, 100, 500][self.rng.usize(0..4)],
            1 => return self.rng.u64(SECOND..120 * SECOND),
            _ => {}
        }
        self.rng.u64(0..=2 * mean) * 100 / source.pace
    }

    fn call(&mut self, life: Life, slot: Slot) {
        let want_up_to = {
            let Some(process) = &self.processes[life] else { return };
            self.scenario.sources[process.sources[slot].plan].want
        };
        let lacks = if self.scenario.even { want_up_to } else { self.rng.u64(1..=want_up_to) };
        let pause = self.pause_between_calls(life, slot);
        self.at(self.now + pause, Event::Call(life, slot));
        self.callers += 1;
        let Some(process) = &mut self.processes[life] else { return };
        if process.closing {
            return;
        }
        let source = &mut process.sources[slot];
        let waits = source.callers.len() < MOST_WAITING;
        let patience = if waits { source.well.spec.deadline.as_micros() as u64 } else { 0 };
        let handle = self.rng.usize(0..3);
        let caller =
            Caller { id: self.callers, since: self.now, deadline: self.now + patience, lacks, handle };
        self.serve(life, slot, caller);
    }

    fn retry(&mut self, life: Life, slot: Slot, id: u64) {
        let Some(process) = &mut self.processes[life] else { return };
        let callers = &mut process.sources[slot].callers;
        let Some(at) = callers.iter().position(|c| c.id == id) else { return };
        let caller = callers.remove(at);
        if !process.closing {
            self.serve(life, slot, caller);
        }
    }

    fn serve(&mut self, life: Life, slot: Slot, mut caller: Caller) {
        let Some(process) = &mut self.processes[life] else { return };
        let machine = process.machine;
        self.machines[machine].sync(self.now);
        let source = &mut process.sources[slot];
        let holder = source.holder;
        let answer = source.serve(&mut caller, &mut self.ledger, self.now);
        let stopped =
            self.machines[machine].troubles.iter().any(|(from, to)| *from <= self.now && *to >= caller.since);
        if self.now > caller.deadline && !stopped {
            self.ledger.late(holder, self.now - caller.deadline, self.now);
        }
        match answer {
            Ok(()) => {
                if self.measures {
                    self.outcome.waits.push(self.now - caller.since);
                }
            }
            Err(error) => self.wait_or_go(life, slot, caller, &error),
        }
        self.answer_bell(life);
    }

    /// A caller that was told "not now" waits as `next` does, or gives up.
    fn wait_or_go(&mut self, life: Life, slot: Slot, caller: Caller, error: &Error) {
        let Some(process) = &mut self.processes[life] else { return };
        let source = &mut process.sources[slot];
        let may_end = matches!(error.code, Code::NotReady | Code::StoreUnavailable);
        let hint = error.retry_after.map_or(0, |wait| wait.as_micros() as u64);
        if may_end && (hint == 0 || error.code == Code::StoreUnavailable && hint > LONGEST_REST) {
            let holder = source.holder;
            self.ledger.refused(
                holder,
                Code::Internal,
                &format!("{error}, try again in {hint} us"),
                Excuses::default(),
                self.now,
            );
            return;
        }
        if may_end && self.now < caller.deadline {
            source.callers.push(caller);
            let again = (self.now + hint.max(LOOK_AGAIN)).min(caller.deadline);
            self.at(again, Event::Retry(life, slot, caller.id));
            return;
        }
        self.go_away(life, slot, caller, error);
    }

    fn go_away(&mut self, life: Life, slot: Slot, caller: Caller, error: &Error) {
        let Some(process) = &mut self.processes[life] else { return };
        let (machine, db) = (process.machine, process.db);
        let source = &process.sources[slot];
        let (holder, spec) = (source.holder, source.well.spec.clone());
        *self.outcome.refusals.entry(error.code.name()).or_default() += 1;
        if error.code == Code::NotReady && caller.deadline == caller.since {
            return; // `try_next` may always say so
        }
        if error.code == Code::LeaseLost && !process.complained {
            process.complained = true;
            self.at(self.now + 5 * SECOND, Event::Restart(life));
        }
        let excuses = Excuses {
            store: self.was_troubled(machine, db, caller.since),
            clock: self.was_clock_wrong(machine, &spec),
        };
        self.ledger.refused(holder, error.code, &error.message, excuses, self.now);
    }

    /// Whether store or process was in trouble, or had been so lately that the store was still given its rest.
    fn was_troubled(&self, machine: usize, db: usize, since: Micros) -> bool {
        let from = since.saturating_sub(2 * (LONGEST_REST + self.scenario.timeout));
        // A slow way alone is trouble, if it may be slower than a caller is patient.
        let slow = self.dbs[db].weather.slow > 0 && self.dbs[db].weather.slow_way > 500 * MS;
        let machine = &self.machines[machine];
        slow || self.dbs[db].was_troubled(from, self.now)
            || machine.troubles.iter().any(|(begin, end)| *begin <= self.now && *end >= from)
    }

    /// Whether `CLOCK_BEHIND` can be true: some clock was ahead of this one by more than its source allows.
    fn was_clock_wrong(&mut self, machine: usize, spec: &keymill::simulation::Spec) -> bool {
        let mine = self.machines[machine].sync(self.now).wall_ms;
        // A refusal stands until the keeper tries again, though the clocks agree by then.
        let then = mine - ((LONGEST_REST + self.scenario.timeout) / MS) as i64;
        let wrong = match &spec.body {
            keymill::simulation::Body::Serial { skew_ms } => {
                let now = self.now;
                let highest = self
                    .machines
                    .iter_mut()
                    .map(|m| {
                        m.sync(now);
                        m.highest_ms
                    })
                    .max();
                // The planner reserves a period two seconds before it begins.
                highest.unwrap_or(mine) + 2_000 > then + *skew_ms as i64
            }
            _ => self.machines[machine].highest_ms > mine,
        };
        wrong
            || self.machines[machine]
                .clock_set_at
                .is_some_and(|at| self.now < at + LONGEST_REST + self.scenario.timeout)
    }

    // ---- statements

    fn way(&mut self, db: usize) -> Micros {
        let weather = self.dbs[db].weather;
        if weather.slow > 0 && self.rng.u32(0..1_000_000) < weather.slow {
            return self.rng.u64(weather.way..=weather.slow_way.max(weather.way));
        }
        weather.way + self.rng.u64(0..=weather.way / 2)
    }

    // ---- faults

    fn begin(&mut self, n: usize) {
        let fault = self.scenario.faults[n].fault;
        self.tell(|| format!("fault: {fault:?}"));
        self.count(fault.name());
        let now = self.now;
        match fault {
            Fault::Storm { db, storm, length } => {
                self.dbs[db].storm = storm;
                self.trouble(db, length);
                self.at(now + length, Event::End(n));
            }
            Fault::SlowNet { db, way, length } => {
                self.dbs[db].weather.way = way;
                self.trouble(db, length + 2 * way);
                self.at(now + length, Event::End(n));
            }
            Fault::Freeze { db, length } => {
                let database = &mut self.dbs[db];
                database.frozen_until = database.frozen_until.max(now + length);
                self.trouble(db, length);
            }
            Fault::Crash { db, length } => {
                self.dbs[db].down = true;
                self.dbs[db].epoch += 1;
                self.dbs[db].frozen_until = 0;
                if self.saboteur.is(Mutant::LosesCommits) {
                    self.dbs[db].copy(usize::MAX);
                }
                self.trouble(db, length);
                self.at(now + length, Event::End(n));
            }
            Fault::Failover { db, .. } => {
                self.dbs[db].epoch += 1;
                self.trouble(db, 0);
                self.go_back(db, |database| database.put_back(n));
            }
            Fault::Restore { db, cuts, .. } => {
                self.dbs[db].epoch += u32::from(cuts);
                self.trouble(db, 0);
                self.go_back(db, |database| database.put_back(n));
            }
            Fault::Delete { row } => {
                let (key, db) = self.rows[row].clone();
                self.go_back(db, |database| database.delete(&key));
            }
            Fault::SetBack { row, by } => {
                let (key, db) = self.rows[row].clone();
                self.go_back(db, |database| {
                    if let Some(mark) = database.mark(&key) {
                        database.set(&key, Mark { next: mark.next.saturating_sub(by).max(1), ..mark });
                    }
                });
            }
            Fault::Clock { machine, by_ms } => {
                self.machines[machine].sync(now);
                self.machines[machine].set_clock(by_ms);
                self.machines[machine].clock_set_at = Some(now);
                self.machines[machine].sync(now);
                if by_ms < 0 {
                    self.ledger.clock_set_back(&self.dead[machine]);
                }
            }
            Fault::Kill { machine, length } => {
                self.everyone_on(machine).into_iter().for_each(|life| self.kill(life));
                self.at(now + length, Event::Start(machine));
            }
            Fault::Close { machine, length } => {
                self.everyone_on(machine).into_iter().for_each(|life| self.close(life));
                self.at(now + length, Event::Start(machine));
            }
            Fault::Fork { machine } => self.fork(machine),
            Fault::Pause { machine, length } => {
                for life in self.everyone_on(machine) {
                    if let Some(process) = &mut self.processes[life] {
                        process.paused_until = process.paused_until.max(now + length);
                    }
                }
                self.machines[machine].troubles.push((now, now + length));
            }
            Fault::Partition { machine, length } => {
                let machine = &mut self.machines[machine];
                machine.cut_until = machine.cut_until.max(now + length);
                machine.troubles.push((now, now + length));
            }
        }
    }

    fn trouble(&mut self, db: usize, length: Micros) {
        self.dbs[db].troubles.push((self.now, self.now + length));
    }

    fn end(&mut self, n: usize) {
        match self.scenario.faults[n].fault {
            Fault::Storm { db, .. } => self.dbs[db].storm = Storm::default(),
            Fault::SlowNet { db, .. } => self.dbs[db].weather.way = self.scenario.weather[db].way,
            Fault::Crash { db, .. } => {
                self.dbs[db].down = false;
                if self.saboteur.is(Mutant::LosesCommits) {
                    self.lose_commits(db);
                }
            }
            _ => {}
        }
    }

    /// A defect: a few of the last commits were never on disk, and nobody says so.
    fn lose_commits(&mut self, db: usize) {
        for (key, of) in self.rows.clone() {
            if of == db
                && let Some(mark) = self.dbs[db].mark(&key)
            {
                let lost = mark.next / 10;
                self.dbs[db].set(&key, Mark { next: (mark.next - lost).max(1), ..mark });
            }
        }
    }

    fn everyone_on(&self, machine: usize) -> Vec<Life> {
        let machine = &self.machines[machine];
        machine.process.into_iter().chain(machine.children.iter().copied()).collect()
    }

    fn fork(&mut self, machine: usize) {
        let Some(parent) = self.machines[machine].process else { return };
        if self.machines[machine].children.len() >= 4 {
            return;
        }
        let child = self.bring_up(machine, true);
        self.machines[machine].children.push(child);
        self.tell(|| format!("process {parent} forks: process {child}"));
        if self.saboteur.is(Mutant::KeepsBlocksInFork)
            && let (Some(mut process), Some(old)) = (self.processes[child].take(), &self.processes[parent])
        {
            process.inherit_blocks(old);
            self.processes[child] = Some(process);
        }
    }

    /// Lets a database forget, writes down what, and sends an operator to repair what is not healed.
    fn go_back(&mut self, db: usize, forget: impl FnOnce(&mut Database)) {
        let rows: Vec<_> = (0..self.rows.len()).filter(|row| self.rows[*row].1 == db).collect();
        let before: Vec<_> = rows.iter().map(|row| self.dbs[db].mark(&self.rows[*row].0)).collect();
        forget(&mut self.dbs[db]);
        for (row, before) in rows.into_iter().zip(before) {
            let after = self.dbs[db].mark(&self.rows[row].0);
            if before != after {
                self.tell(|| format!("row {row} went from {before:?} to {after:?}"));
                self.ledger.forgot(row, before, after, self.now);
                let patience = self.rng.u64(SECOND..60 * SECOND);
                self.at(self.now + patience, Event::Repair(row));
            }
        }
    }

    fn repair(&mut self, row: KeyId) {
        let (key, db) = self.rows[row].clone();
        let to = self.ledger.highest(row);
        if to != Mark::default() && !self.dbs[db].down {
            self.tell(|| format!("row {row} is repaired to {to:?}"));
            self.dbs[db].repair(&key, to);
        }
    }

    /// An old node reads the row, adds its step, writes it, and issues: one transaction under the row's lock.
    fn old_node(&mut self, n: usize) {
        let old = self.scenario.old[n];
        self.at(self.now + old.every, Event::Old(n));
        let database = &mut self.dbs[old.db];
        if database.down || database.frozen_until > self.now {
            return;
        }
        let spec = self.scenario.sources[old.source].spec(0).clone();
        let Some(pattern) = spec.pattern() else { return };
        let today = pattern.period_at(self.scenario.wall_ms + (self.now / MS) as i64);
        let next = database.mark(&spec.key).filter(|mark| mark.period == today).map_or(1, |mark| mark.next);
        let hi = next + old.step;
        if hi - 1 <= spec.last {
            database.set(&spec.key, Mark { period: today, next: hi });
            self.ledger.old_node(self.old_holders[n], today, next, hi, self.now);
        }
    }
}
