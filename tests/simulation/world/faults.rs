//! Faults, and their repair.

use keymill::store::Mark;

use super::super::check::{KeyId, Life};
use super::super::mutant::Mutant;
use super::super::scenario::Fault;
use super::super::store::{Database, MS, Micros, SECOND, Storm};
use super::{Event, World};

impl World {
    pub(super) fn begin(&mut self, n: usize) {
        let fault = self.scenario.faults[n].fault;
        self.log(|| format!("fault: {fault:?}"));
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

    pub(super) fn end(&mut self, n: usize) {
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

    /// A defect: the last few commits were never on disk, and the server does not report it.
    fn lose_commits(&mut self, db: usize) {
        for (key, owner_db) in self.rows.clone() {
            if owner_db == db
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
        self.log(|| format!("process {parent} forks: process {child}"));
        if self.saboteur.is(Mutant::KeepsBlocksInFork)
            && let (Some(mut process), Some(old)) = (self.processes[child].take(), &self.processes[parent])
        {
            process.inherit_blocks(old);
            self.processes[child] = Some(process);
        }
    }

    /// Makes a database forget, records it, and sends an operator to repair rows that do not heal.
    fn go_back(&mut self, db: usize, forget: impl FnOnce(&mut Database)) {
        let rows: Vec<_> = (0..self.rows.len()).filter(|row| self.rows[*row].1 == db).collect();
        let before: Vec<_> = rows.iter().map(|row| self.dbs[db].mark(&self.rows[*row].0)).collect();
        forget(&mut self.dbs[db]);
        for (row, before) in rows.into_iter().zip(before) {
            let after = self.dbs[db].mark(&self.rows[row].0);
            if before != after {
                self.log(|| format!("row {row} went from {before:?} to {after:?}"));
                self.ledger.forgot(row, before, after, self.now);
                let patience = self.rng.u64(SECOND..60 * SECOND);
                self.at(self.now + patience, Event::Repair(row));
            }
        }
    }

    pub(super) fn repair(&mut self, row: KeyId) {
        let (key, db) = self.rows[row].clone();
        let to = self.ledger.highest(row);
        if to != Mark::default() && !self.dbs[db].down {
            self.log(|| format!("row {row} is repaired to {to:?}"));
            self.dbs[db].repair(&key, to);
        }
    }

    /// An old node reads the row, adds its step, writes it, and issues: one transaction under the row's lock.
    pub(super) fn old_node(&mut self, n: usize) {
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
