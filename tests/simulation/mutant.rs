//! Defects between keeper and store, which the ledger must notice.
//!
//! No production code knows of them. Each is a possible bug of a planner, an executor or a store.

use std::collections::HashMap;

use keymill::planner::{Answer, Ask};
use keymill::store::{Fault, FaultKind, Mark, Reserved};

use super::check::KeyId;

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// The store does not receive the highest number seen.
    ForgetsHighWater,
    /// A range whose reservation ended in "unknown" is guessed and used.
    TrustsUnknown,
    /// The connection answers with the last answer of another source.
    CrossesAnswers,
    /// The connection repeats its previous answer.
    RepeatsAnswers,
    /// One number too many at the end of a range.
    WidensAnswers,
    /// One number too many at the start of a range.
    LowersAnswers,
    /// Ten numbers too many are given back.
    GivesBackUsed,
    /// A range is issued under today's date, whatever it was reserved for.
    RelabelsPeriods,
    /// A forked child continues with its parent's blocks.
    KeepsBlocksInFork,
    /// The store answers before a commit is durable.
    LosesCommits,
    /// A snowflake's mark is acknowledged and not stored.
    ForgetsMarks,
    /// Some answers of a batch were lost, and are guessed.
    GuessesTheRest,
    /// The answers of a batch are shifted by one source.
    ShiftsAnswers,
    /// A failed batch serves one of its sources all the same, with numbers that were never reserved.
    ServesOneOfNone,
    /// A snowflake's mark is raised once and, after an idle moment, never again.
    StopsRaising,
    /// A snowflake's mark is stored one renewal late.
    StoresStaleMarks,
    /// A close leaves a mark that is lower than the last id.
    LeavesLowMarks,
    /// A process reserves eight times as many serials as it may keep ahead.
    ReservesUnearned,
}

impl Mutant {
    /// Every defect.
    pub const ALL: [Mutant; 18] = [
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
        Mutant::ReservesUnearned,
    ];
}

/// An active defect, with its state.
#[derive(Debug, Default)]
pub struct Saboteur {
    /// The defect; `None`: the world has none.
    pub mutant: Option<Mutant>,
    /// The last answer: of any source about a row, or of one source.
    last: HashMap<usize, Reserved>,
    /// The positions of marks that were never stored.
    marks: HashMap<KeyId, u64>,
    rng: fastrand::Rng,
}

impl Saboteur {
    /// A world with this defect, or none.
    #[must_use]
    pub fn new(mutant: Option<Mutant>, seed: u64) -> Saboteur {
        Saboteur { mutant, rng: fastrand::Rng::with_seed(seed), ..Saboteur::default() }
    }

    /// Whether this defect is active.
    #[must_use]
    pub fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// The request as it reaches the store.
    pub fn corrupt_ask(&mut self, ask: &mut Ask) {
        match (self.mutant, ask) {
            (Some(Mutant::ForgetsHighWater), Ask::Reserve(request)) => request.high_water = Mark::default(),
            (Some(Mutant::ReservesUnearned), Ask::Reserve(request)) if request.single > 0 => {
                request.len = request.len.saturating_mul(8);
            }
            _ => {}
        }
    }

    /// The answer as it reaches the keeper. `row` is the row's position.
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

    /// A batch's answers as they reach the keeper: the requests, the positions of the rows, and the answers.
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
            Ask::Raise { .. } | Ask::Take(_) | Ask::Node { .. } => None,
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

    /// The answer of a store that stores no marks; `None`: the real store is asked.
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

    /// The mark that is stored instead, and the store's answer.
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
        let key = key.clone();
        Some((
            Ask::Raise { key, expect: None, to: before, clock: false, begin: None },
            Answer::Raised(before),
        ))
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
