//! Defects, put between keeper and store: what the ledger must notice.
//!
//! No production code knows of them. Each is a bug that a planner, an executor or a store could have and some have had.

use std::collections::HashMap;

use keymill::planner::{Answer, Ask};
use keymill::store::{Fault, FaultKind, Mark, Reserved};

use super::check::KeyId;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The store is not told what was seen.
    ForgetsHighWater,
    /// A range whose reservation ended in "unknown" is guessed and used.
    TrustsUnknown,
    /// The connection answers with somebody else's last answer.
    CrossesAnswers,
    /// The connection answers with the answer before, once more.
    RepeatsAnswers,
    /// One number too many at the end of a range.
    WidensAnswers,
    /// One number too many at the start of a range.
    LowersAnswers,
    /// Ten numbers too many are given back.
    GivesBackUsed,
    /// A range is issued under today's date, whatever it was reserved for.
    RelabelsPeriods,
    /// A forked child goes on with its parent's blocks.
    KeepsBlocksInFork,
    /// The store answers before a commit is durable.
    LosesCommits,
    /// A snowflake's mark is acknowledged and not stored.
    ForgetsMarks,
    /// Of a batch for several sources some answers were lost, and are guessed.
    GuessesTheRest,
    /// The answers of a batch for several sources are each their neighbour's.
    ShiftsAnswers,
    /// A batch that failed for several sources serves one of them all the same, with numbers that nobody reserved.
    ServesOneOfNone,
    /// A snowflake's mark is raised once and, after an idle moment, never again.
    StopsRaising,
    /// A snowflake's mark is stored one renewal late.
    StoresStaleMarks,
    /// A close leaves a mark that is lower than the last id.
    LeavesLowMarks,
}

impl Mutant {
    /// Every defect.
    pub const ALL: [Mutant; 17] = [
        Mutant::ForgetsHighWater,
        Mutant::TrustsUnknown,
        Mutant::CrossesAnswers,
        Mutant::RepeatsAnswers,
        Mutant::WidensAnswers,
        Mutant::LowersAnswers,
        Mutant::GivesBackUsed,
        Mutant::RelabelsPeriods,
        Mutant::KeepsBlocksInFork,
        Mutant::LosesCommits,
        Mutant::ForgetsMarks,
        Mutant::GuessesTheRest,
        Mutant::ShiftsAnswers,
        Mutant::ServesOneOfNone,
        Mutant::StopsRaising,
        Mutant::StoresStaleMarks,
        Mutant::LeavesLowMarks,
    ];
}

/// A defect at work, with what it remembers.
#[derive(Debug, Default)]
pub struct Saboteur {
    /// Which; `None`: an honest world.
    pub mutant: Option<Mutant>,
    /// The last answer: of anybody about a row, or of one source.
    last: HashMap<usize, Reserved>,
    /// Where marks stand that were never stored.
    marks: HashMap<KeyId, u64>,
    rng: fastrand::Rng,
}

impl Saboteur {
    /// A world with this defect, or none.
    #[must_use]
    pub fn new(mutant: Option<Mutant>, seed: u64) -> Saboteur {
        Saboteur { mutant, rng: fastrand::Rng::with_seed(seed), ..Saboteur::default() }
    }

    /// Whether this defect is at work.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// What reaches the store of what was asked.
    pub fn corrupt_ask(&mut self, ask: &mut Ask) {
        if let (true, Ask::Reserve(request)) = (self.is(Mutant::ForgetsHighWater), ask) {
            request.high_water = Mark::default();
        }
    }

    /// What reaches the keeper of what was answered. `row` says where the row stands.
    pub fn corrupt_answer(
        &mut self,
        row: KeyId,
        holder: usize,
        ask: &Ask,
        stands: Option<Mark>,
        answer: Result<Answer, Fault>,
    ) -> Result<Answer, Fault> {
        let (Some(mutant), Ask::Reserve(request)) = (self.mutant, ask) else { return answer };
        let honest = match &answer {
            Ok(Answer::Reserved(range)) => *range,
            Err(fault) if fault.kind == FaultKind::Unknown && mutant == Mutant::TrustsUnknown => {
                let lo = stands.map_or(request.start, |mark| mark.next);
                let period = stands.map_or(request.period, |mark| mark.period);
                return Ok(Answer::Reserved(Reserved { lo, hi: lo + request.len, period, ttl_ms: None }));
            }
            _ => return answer,
        };
        let whose = if mutant == Mutant::RepeatsAnswers { holder } else { row };
        let before = self.last.insert(whose, honest);
        let range = match mutant {
            Mutant::CrossesAnswers | Mutant::RepeatsAnswers if self.rng.u32(0..10) == 0 => {
                before.unwrap_or(honest)
            }
            Mutant::WidensAnswers => Reserved { hi: honest.hi + 1, ..honest },
            Mutant::LowersAnswers if honest.lo > 1 => Reserved { lo: honest.lo - 1, ..honest },
            Mutant::RelabelsPeriods => Reserved { period: request.period, ..honest },
            _ => honest,
        };
        Ok(Answer::Reserved(range))
    }

    /// What reaches the keeper of a batch for several sources: what each asked, where its row stands, and the answer.
    pub fn corrupt_request(
        &self,
        asks: &[(&Ask, Option<Mark>)],
        answers: &mut [Option<Result<Answer, Fault>>],
    ) {
        let unknown = |answer: &Option<Result<Answer, Fault>>| matches!(answer, Some(Err(fault)) if fault.kind == FaultKind::Unknown);
        let guess = |(ask, stands): &(&Ask, Option<Mark>)| match ask {
            Ask::Reserve(request) => {
                let lo = stands.map_or(request.start, |mark| mark.next);
                let period = stands.map_or(request.period, |mark| mark.period);
                Some(Ok(Answer::Reserved(Reserved { lo, hi: lo + request.len, period, ttl_ms: None })))
            }
            Ask::Raise { .. } => None,
        };
        match self.mutant {
            Some(Mutant::GuessesTheRest) if answers.iter().any(|answer| matches!(answer, Some(Ok(_)))) => {
                for (answer, ask) in answers.iter_mut().zip(asks).filter(|(answer, _)| unknown(answer)) {
                    *answer = guess(ask);
                }
            }
            Some(Mutant::ServesOneOfNone) if answers.iter().all(unknown) => {
                if let (Some(answer), Some(ask)) = (answers.first_mut(), asks.first()) {
                    *answer = guess(ask);
                }
            }
            Some(Mutant::ShiftsAnswers) => answers.rotate_right(1),
            _ => {}
        }
    }

    /// What a store that keeps no marks answers to one that is raised; `None`: it is asked and tells the truth.
    pub fn raise_nothing(&mut self, row: KeyId, ask: &Ask, stands: Option<Mark>) -> Option<Answer> {
        let (true, Ask::Raise { to, .. }) = (self.is(Mutant::ForgetsMarks), ask) else { return None };
        let stands = stands.map_or(0, |mark| mark.next);
        if *to == 0 {
            self.marks.insert(row, stands);
            return None;
        }
        let mark = self.marks.entry(row).or_insert(stands);
        let before = *mark;
        *mark = before.max(*to);
        Some(Answer::Raised(before))
    }

    /// What is stored instead of this mark, and what the store answers.
    pub fn stale_mark(&mut self, row: KeyId, ask: &Ask, stands: Option<Mark>) -> Option<(Ask, Answer)> {
        let (true, Ask::Raise { key, to, .. }) = (self.is(Mutant::StoresStaleMarks), ask) else {
            return None;
        };
        let stands = stands.map_or(0, |mark| mark.next);
        if *to == 0 {
            self.marks.insert(row, stands);
            return None;
        }
        let before = self.marks.insert(row, *to).unwrap_or(stands);
        Some((Ask::Raise { key: key.clone(), expect: None, to: before }, Answer::Raised(before)))
    }

    /// Whether this mark never leaves the process.
    pub fn swallows(&mut self, ask: &Ask) -> bool {
        self.is(Mutant::StopsRaising)
            && matches!(ask, Ask::Raise { to, .. } if *to > 0)
            && self.rng.u32(0..4) == 0
    }

    /// Where a give-back begins.
    #[must_use]
    pub fn corrupt_give_back(&self, lo: u64) -> u64 {
        if self.is(Mutant::GivesBackUsed) { lo.saturating_sub(10).max(1) } else { lo }
    }
}
