//! Statements in flight: sent, carried out or not, answered or not, and delivered to the keeper.
//!
//! A batch has the semantics of its store: one transaction, which is carried out whole or not at all and whose answers
//! arrive together (SQLite, MariaDB, PostgreSQL), or one statement after another, where any statement or answer may be the
//! last one (Redis).

use keymill::planner::{self, Answer, Ask, SourceIndex};
use keymill::store::Fault as Refusal;

use super::{Event, World};
use crate::simulation::check::{Grant, KeyId, Life, clock};
use crate::simulation::store::{Applied, MS, Micros, unavailable, unknown};

/// One source's statement.
struct Leg {
    slot: SourceIndex,
    holder: usize,
    row: KeyId,
    ask: Ask,
    /// The store refuses to carry it out in a batch.
    alone: bool,
    answer: Option<Result<Answer, Refusal>>,
    grant: Option<Grant>,
}

/// Statements on their way.
pub(super) struct InFlight {
    life: Life,
    db: usize,
    legs: Vec<Leg>,
    /// How many of them have been carried out, or skipped.
    done: usize,
    /// How many answers arrived before the connection broke.
    heard: usize,
    epoch: u32,
    fate: Fate,
    /// The answers, or one fault for all that did not arrive.
    answer: Option<Result<(), Refusal>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    /// Applied, answer lost.
    Lost,
    /// It never arrives.
    Cut,
    /// The server refuses at the moment.
    Refused,
}

impl World {
    pub(super) fn send(&mut self, life: Life, planned: planner::Batch) {
        let Some(process) = &mut self.processes[life] else { return };
        let (db, machine) = (process.db, process.machine);
        if let planner::Batch::One(_, ask) = &planned
            && self.saboteur.swallows(ask)
        {
            self.attend_at(life, self.now + 1, true);
            return;
        }
        let batch = self.in_flight.len();
        process.in_flight = Some(batch);
        let asks = match planned {
            planner::Batch::One(slot, ask) => vec![(slot, ask)],
            planner::Batch::Several(slots, requests) => {
                slots.into_iter().zip(requests.into_iter().map(Ask::Reserve)).collect()
            }
            planner::Batch::Bank(..) => unreachable!("banks have a world of their own, `banks`"),
            planner::Batch::Renew(..) => unreachable!("leased workers have a world of their own, `workers`"),
        };
        let sources = &process.sources;
        let mut legs: Vec<Leg> = asks
            .into_iter()
            .map(|(slot, ask)| {
                let (holder, row) = (sources[slot].holder, sources[slot].row);
                Leg { slot, holder, row, ask, alone: false, answer: None, grant: None }
            })
            .collect();
        let storm = self.dbs[db].storm;
        let luck = self.rng.u32(0..1_000_000);
        let fate = if self.machines[machine].cut_until > self.now || luck < storm.cut {
            Fate::Cut
        } else if luck < storm.cut + storm.lose {
            Fate::Lost
        } else if luck < storm.cut + storm.lose + storm.refuse {
            Fate::Refused
        } else {
            Fate::Fine
        };
        if legs.len() > 1 {
            self.outcome.together.0 += 1;
            self.outcome.together.1 += legs.len() as u64;
            // An unusual row; or a conflict, which fails the whole transaction.
            let conflict = self.as_one && self.rng.u32(0..16) == 0;
            for leg in &mut legs {
                leg.alone = conflict || self.rng.u32(0..8) == 0;
            }
        }
        for (at, leg) in legs.iter_mut().enumerate() {
            self.ledger.asked(leg.holder, self.now);
            self.saboteur.corrupt_ask(&mut leg.ask);
            if self.logs && self.logs_statements {
                use std::fmt::Write as _;
                let (slot, ask) = (leg.slot, &leg.ask);
                let _ = writeln!(
                    self.outcome.story,
                    "{} process {life} sends {at} {slot} {ask:?}",
                    clock(self.now)
                );
            }
        }
        for (at, leg) in legs.iter().enumerate() {
            if legs[..at].iter().any(|other| other.slot == leg.slot) {
                self.ledger.twice_in_a_batch(leg.holder, self.now);
            }
        }
        let epoch = self.dbs[db].epoch;
        self.in_flight.push(Some(InFlight { life, db, legs, done: 0, heard: 0, epoch, fate, answer: None }));
        self.at(self.now + self.scenario.timeout, Event::GiveUp(batch));
        let way = self.way(db);
        if fate != Fate::Cut {
            self.at(self.now + way, Event::Arrive(batch));
        } else if self.rng.bool() {
            // A reset, instead of silence.
            self.count("request cut");
            self.reply(batch, way, Err(unknown()));
        } else {
            self.count("request cut");
        }
    }

    fn reply(&mut self, batch: usize, way: Micros, answer: Result<(), Refusal>) {
        if let Some(f) = &mut self.in_flight[batch] {
            f.answer = Some(answer);
            self.at(self.now + way, Event::Reply(batch));
        }
    }

    pub(super) fn arrive(&mut self, batch: usize) {
        let Some(f) = &self.in_flight[batch] else { return };
        let (db, epoch, fate) = (f.db, f.epoch, f.fate);
        let statements = if self.as_one { f.legs.len() } else { 1 };
        let way = self.way(db);
        if self.dbs[db].epoch != epoch {
            self.hear_some(batch);
            self.reply(batch, way, Err(unknown()));
        } else if self.dbs[db].down {
            self.reply(batch, way, Err(unavailable()));
        } else if self.dbs[db].frozen_until > self.now {
            let at = self.dbs[db].frozen_until + self.rng.u64(0..5 * MS);
            self.at(at, Event::Arrive(batch));
        } else if fate == Fate::Refused {
            self.count("request refused");
            self.reply(batch, way, Err(unavailable()));
        } else {
            let at = (0..statements).map(|_| self.dbs[db].carried_out_at(self.now)).last();
            self.at(at.unwrap_or(self.now), Event::Carry(batch));
        }
    }

    /// The connection breaks: of statements carried out one by one, some answers may have arrived before.
    fn hear_some(&mut self, batch: usize) {
        let Some(f) = &mut self.in_flight[batch] else { return };
        if f.legs.len() > 1 && !self.as_one {
            f.heard = self.rng.usize(0..=f.done);
            if f.done > 0 {
                self.count("cut amid a batch");
            }
        }
    }

    pub(super) fn carry(&mut self, batch: usize) {
        let Some(f) = &self.in_flight[batch] else { return };
        let (db, life, epoch, done, all) = (f.db, f.life, f.epoch, f.done, f.legs.len());
        if self.dbs[db].epoch != epoch || self.dbs[db].frozen_until > self.now {
            self.arrive(batch);
            return;
        }
        let to = if self.as_one { all } else { done + 1 };
        let waited_for = self.processes[life].as_ref().is_some_and(|p| p.in_flight == Some(batch));
        for at in done..to {
            self.carry_leg(batch, at, waited_for);
        }
        if !waited_for {
            self.count("applied after giving up");
        }
        let Some(f) = &mut self.in_flight[batch] else { return };
        f.done = to;
        if to < all {
            let at = self.dbs[db].carried_out_at(self.now);
            self.at(at, Event::Carry(batch));
            return;
        }
        if f.fate == Fate::Lost {
            self.count("answer lost");
            self.hear_some(batch);
            if self.rng.bool() {
                let way = self.way(db);
                self.reply(batch, way, Err(unknown()));
            }
            return;
        }
        let way = self.way(db);
        self.reply(batch, way, Ok(()));
    }

    fn carry_leg(&mut self, batch: usize, at: usize, waited_for: bool) {
        let Some(f) = &mut self.in_flight[batch] else { return };
        let (db, life, leg) = (f.db, f.life, &mut f.legs[at]);
        if leg.alone {
            return;
        }
        let stands = self.dbs[db].mark(&self.rows[leg.row].0);
        let done = if let Some(lie) = self.saboteur.raise_nothing(leg.row, &leg.ask, stands) {
            Applied { before: stands, after: stands, answer: Ok(lie) }
        } else if let Some((stale, lie)) = self.saboteur.stale_mark(leg.row, &leg.ask, stands) {
            Applied { answer: Ok(lie), ..self.dbs[db].apply(&stale, self.now) }
        } else {
            self.dbs[db].apply(&leg.ask, self.now)
        };
        leg.grant = self.ledger.applied(leg.holder, &leg.ask, &done, !waited_for, self.now);
        if self.processes[life].is_none() && matches!(leg.ask, Ask::Raise { .. }) && done.before != done.after
        {
            self.ledger.moved_by_others(leg.row);
        }
        leg.answer = Some(done.answer);
    }

    /// An answer, or the client's own timeout, whichever comes first.
    pub(super) fn come_back(&mut self, batch: usize, event: &Event) {
        let Some(f) = &self.in_flight[batch] else { return };
        let life = f.life;
        if self.processes[life].as_ref().is_none_or(|p| p.in_flight != Some(batch)) {
            if let Event::Reply(_) = event {
                self.in_flight[batch] = None;
            }
            return;
        }
        if self.is_paused(life, event) {
            return;
        }
        let Some(process) = &mut self.processes[life] else { return };
        let f = self.in_flight[batch].as_mut().expect("seen above");
        process.in_flight = None;
        let dead_wire =
            self.dbs[f.db].epoch != f.epoch || self.machines[process.machine].cut_until > self.now;
        let whole = match (event, f.answer.take()) {
            (Event::Reply(_), Some(answer)) if !dead_wire => answer,
            _ => Err(unknown()),
        };
        let mut answers = Vec::with_capacity(f.legs.len());
        for (at, leg) in f.legs.iter_mut().enumerate() {
            let mut own = leg.answer.take();
            if f.done > 1 && matches!(&own, Some(Err(fault)) if !fault.kind.is_outage()) && self.rng.bool() {
                own = None; // Refused: many stores say so only to a request on its own.
            }
            answers.push(match &whole {
                Err(fault) if at >= f.heard => Some(Err(fault.clone())),
                _ => own,
            });
        }
        let stand: Vec<_> = f.legs.iter().map(|leg| self.dbs[f.db].mark(&self.rows[leg.row].0)).collect();
        if f.legs.len() > 1 {
            let asks: Vec<_> = f.legs.iter().map(|leg| &leg.ask).zip(stand.iter().copied()).collect();
            self.saboteur.corrupt_request(&asks, &mut answers);
        }
        let now = self.machines[process.machine].sync(self.now);
        let mut shown = String::new();
        for ((leg, stands), answer) in f.legs.iter().zip(stand).zip(answers) {
            let Some(answer) = answer else {
                self.ledger.answered(leg.holder, None, self.now);
                process.keeper.retry_alone(leg.slot);
                continue;
            };
            let answer = self.saboteur.corrupt_answer(leg.row, leg.holder, &leg.ask, stands, answer);
            self.ledger.answered(leg.holder, answer.as_ref().err().map(|fault| fault.kind), self.now);
            match &answer {
                Ok(Answer::Reserved(_)) => {
                    if let Some(grant) = leg.grant {
                        self.ledger.landed(leg.holder, grant, self.now);
                    }
                }
                Ok(Answer::Raised(before) | Answer::RaisedAt { before, .. }) => {
                    if let Ask::Raise { to, .. } = leg.ask {
                        self.ledger.raised(leg.holder, to.max(*before));
                    }
                }
                Ok(Answer::Taken(_) | Answer::Node(_) | Answer::Counters) | Err(_) => {}
            }
            if self.logs && self.logs_statements {
                use std::fmt::Write as _;
                let _ = writeln!(shown, "{} process {life} hears {} {answer:?}", clock(self.now), leg.slot);
            }
            process.keeper.complete(leg.slot, answer, now);
        }
        self.outcome.story.push_str(&shown);
        let slots: Vec<SourceIndex> = f.legs.iter().map(|leg| leg.slot).collect();
        if let Event::Reply(_) = event {
            self.in_flight[batch] = None;
        }
        if process.closing {
            self.close(life);
            return;
        }
        // The callers of these sources are woken, and the keeper continues at once.
        let waiting = |slot: &SourceIndex| {
            let callers = process.sources[*slot].callers.iter();
            callers.map(|caller| (*slot, caller.id)).collect::<Vec<_>>()
        };
        let waiting: Vec<_> = slots.iter().flat_map(waiting).collect();
        for (slot, caller) in waiting {
            self.retry(life, slot, caller);
        }
        self.attend_at(life, self.now + 1, true);
    }
}
