//! Callers: when they come, what they take, how long they wait, and whether a refusal is excused.

use keymill::planner::SourceIndex;
use keymill::{Code, Error, Kind};

use super::super::check::{Excuses, Life};
use super::super::process::Caller;
use super::super::store::{MS, Micros, SECOND};
use super::{Event, LONGEST_REST, World};

/// A caller whose request is in flight tries again after this long, as a blocked caller is woken by the answer.
const LOOK_AGAIN: Micros = 20 * MS;

/// A snowflake's mark covers an id at most this long after it was issued.
const LONGEST_UNCOVERED: Micros = 2 * SECOND;

/// At most this many callers wait at one source; further ones only try.
const MOST_WAITING: usize = 4;

/// A clock that is wrong by more goes into no mark.
const FAR_MS: u64 = 600_000;

impl World {
    pub(super) fn pause_between_calls(&mut self, life: Life, slot: SourceIndex) -> Micros {
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

    pub(super) fn call(&mut self, life: Life, slot: SourceIndex) {
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
        let patience = if waits { source.kept.spec().deadline.as_micros() as u64 } else { 0 };
        let handle = self.rng.usize(0..3);
        let caller =
            Caller { id: self.callers, since: self.now, deadline: self.now + patience, lacks, handle };
        self.serve(life, slot, caller);
    }

    pub(super) fn retry(&mut self, life: Life, slot: SourceIndex, id: u64) {
        let Some(process) = &mut self.processes[life] else { return };
        let callers = &mut process.sources[slot].callers;
        let Some(at) = callers.iter().position(|c| c.id == id) else { return };
        let caller = callers.remove(at);
        if !process.closing {
            self.serve(life, slot, caller);
        }
    }

    fn serve(&mut self, life: Life, slot: SourceIndex, mut caller: Caller) {
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
        self.check_cover(life, slot);
        match answer {
            Ok(()) => {
                if self.measures {
                    self.outcome.waits.push(self.now - caller.since);
                }
            }
            Err(error) => self.wait_or_go(life, slot, caller, &error),
        }
        self.serve_ready(life);
    }

    /// Ids above the stored mark are a few round trips old at most, unless a fault prevents it.
    fn check_cover(&mut self, life: Life, slot: SourceIndex) {
        let Some(process) = &self.processes[life] else { return };
        let (machine, db, holder) = (process.machine, process.db, process.sources[slot].holder);
        let Some(since) = self.ledger.uncovered_since(holder) else { return };
        if self.now > since + LONGEST_UNCOVERED
            && !self.was_troubled(machine, db, since)
            && self.machines[machine].clock_set_at.is_none()
        {
            self.ledger.left_uncovered(holder, since, self.now);
        }
    }

    /// A caller that got `NOT_READY` waits as `next` does, or gives up.
    fn wait_or_go(&mut self, life: Life, slot: SourceIndex, caller: Caller, error: &Error) {
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

    fn go_away(&mut self, life: Life, slot: SourceIndex, caller: Caller, error: &Error) {
        let Some(process) = &mut self.processes[life] else { return };
        let (machine, db) = (process.machine, process.db);
        let source = &process.sources[slot];
        let (holder, spec) = (source.holder, source.kept.spec().clone());
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
            ahead: spec.kind() == Kind::Serial && self.was_clock_ahead(machine, FAR_MS.max(spec.skew_ms)),
            tick: spec.snowflake.is_some_and(|snowflake| {
                let unit_ms = snowflake.layout.unit_ms().unsigned_abs();
                unit_ms >= 1_000 && (unit_ms > snowflake.max_lead_ms || !self.ledger.has_begun(holder))
            }),
        };
        self.ledger.refused(holder, error.code, &error.message, excuses, self.now);
    }

    /// Whether store or process had a fault, or had one so recently that the store is still paused.
    fn was_troubled(&self, machine: usize, db: usize, since: Micros) -> bool {
        let from = since.saturating_sub(2 * (LONGEST_REST + self.scenario.timeout));
        // A slow message counts if it may take longer than a caller waits.
        let slow = self.dbs[db].weather.slow > 0 && self.dbs[db].weather.slow_way > 500 * MS;
        let machine = &self.machines[machine];
        slow || self.dbs[db].was_troubled(from, self.now)
            || machine.troubles.iter().any(|(begin, end)| *begin <= self.now && *end >= from)
    }

    /// Whether a clock is ahead of the stores' by more than `by_ms`, or was set so recently that the refusal may still stand.
    fn was_clock_ahead(&self, machine: usize, by_ms: u64) -> bool {
        let machine = &self.machines[machine];
        let is_recent = |at: Micros| self.now < at + LONGEST_REST + self.scenario.timeout;
        machine.ahead_ms > by_ms as i64 || machine.clock_set_at.is_some_and(is_recent)
    }

    /// Whether `CLOCK_BEHIND` can be right: a clock was ahead of this one by more than the source allows.
    fn was_clock_wrong(&mut self, machine: usize, spec: &keymill::simulation::Spec) -> bool {
        let mine = self.machines[machine].sync(self.now).wall_ms;
        // A refusal lasts until the keeper tries again, though the clocks agree by then.
        let then = mine - ((LONGEST_REST + self.scenario.timeout) / MS) as i64;
        let wrong = match spec.kind() {
            Kind::Serial => {
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
                highest.unwrap_or(mine) + 2_000 > then + spec.skew_ms as i64
            }
            // A process that began with one wrong clock and goes on with another knows of no right one.
            _ => {
                self.machines[machine].highest_ms > mine
                    || self.machines[machine].ahead_ms.unsigned_abs() > FAR_MS
            }
        };
        wrong
            || self.machines[machine]
                .clock_set_at
                .is_some_and(|at| self.now < at + LONGEST_REST + self.scenario.timeout)
    }
}
