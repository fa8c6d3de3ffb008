//! A process with a leased worker that is copied with its memory, as the snapshot of a machine is: both copies know the same row. They
//! run on a store of any kind, each with a connection of its own, in virtual time.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use keymill::Code;
use keymill::keeper::{Keeper, KeptSource};
use keymill::planner::{Answer, Ask, Batch, Now};
use keymill::simulation::{MillConfig, ReadyQueue, Spec};
use keymill::store::{Fault, Renewed, Store, Taken};
use keymill::time::{Clock, ManualClock};

/// The lease of the source.
pub const LEASE_MS: u64 = 10_000;

/// Layouts of ticks of 1 ms, 10 ms, a second and a minute.
pub const LAYOUTS: [(&str, u64); 4] = [
    ("twitter", 1),
    ("time:38@10ms,worker:10,seq:12", 10),
    ("uid", 1_000),
    ("time:28@60s,worker:10,seq:20", 60_000),
];

/// When a process is copied, and how far apart the copies run: not at all, and up to a tick.
#[must_use]
pub fn moments(tick_ms: u64) -> Vec<(u64, u64)> {
    let apart: BTreeSet<u64> = [0, 1, 5, tick_ms / 2, tick_ms].into();
    let mut moments: Vec<_> = apart.into_iter().map(|apart_ms| (100, apart_ms)).collect();
    moments.extend([1, 3_332, 3_334, 5_000, 9_999, 12_345].map(|at_ms| (at_ms, 0)));
    moments
}

/// How a process is copied.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// When, after the first copy's start.
    pub at_ms: u64,
    /// How much later the second copy does everything: it was resumed later. Its wall clock is right.
    pub apart_ms: u64,
    /// A renewal was on its way, so the first one after the copy is the same request of both.
    pub in_flight: bool,
    /// A defect that has to be noticed.
    pub mutant: Option<Mutant>,
}

/// A defect of the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A renewal writes the token that the row has.
    TokenKept,
    /// A renewal writes a token that the copy draws too: it comes from the process's memory.
    TokenCopied,
}

/// What became of the copies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// How long after the copy each of them was told that it has lost the worker, by its own clock.
    pub told_ms: [Option<u64>; 2],
    /// Ids that both issued, and one of them before one was told: the other may come to it a little later.
    pub equal: usize,
    /// Ids that both issued after that.
    pub later: usize,
}

impl Outcome {
    /// When one of the two was told, if exactly one was.
    #[must_use]
    pub fn told_ms(&self) -> Option<u64> {
        match self.told_ms {
            [Some(told_ms), None] | [None, Some(told_ms)] => Some(told_ms),
            _ => None,
        }
    }
}

/// The source of both copies; `and` are further options.
///
/// # Panics
/// If there is no such source.
#[must_use]
pub fn spec(layout: &str, and: &str) -> Arc<Spec> {
    let text = format!("snowflake:tx?lease={LEASE_MS}ms&max_lead=3s&layout={layout}{and}");
    Arc::new(MillConfig::parse("memory:").and_then(|config| config.spec(&text)).expect("a spec"))
}

thread_local! {
    /// The state from which the copy that runs draws its tokens.
    static TOKENS: Cell<u64> = const { Cell::new(0) };
}

fn draw() -> u64 {
    // Knuth's MMIX generator.
    let next = TOKENS.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    TOKENS.set(next);
    (next >> 1).max(1)
}

struct Twin {
    keeper: Keeper,
    source: KeptSource,
    clock: Arc<ManualClock>,
    store: Box<dyn Store>,
    /// As in [`TOKENS`].
    tokens: u64,
}

/// What the store answered to the first of the two, which is what both know until the copy is made.
#[derive(Clone)]
enum Answered {
    Taken(Result<Taken, Fault>),
    Renewed(Result<Renewed, Fault>),
}

impl Twin {
    fn now(&self) -> Now {
        Now { boot_ms: self.clock.boot_ms(), wall_ms: self.clock.wall_ms() }
    }

    /// From here on its tokens are its own.
    fn diverge(&mut self, copy: Copy) {
        if copy.mutant != Some(Mutant::TokenCopied) {
            self.tokens = !self.tokens;
        }
    }

    /// What the keeper's thread does; `known` are the answers that are not asked for again. Returns all answers.
    fn keep(&mut self, known: Option<Vec<Answered>>, mutant: Option<Mutant>) -> Vec<Answered> {
        let is_told = known.is_some();
        let mut known = known.unwrap_or_default().into_iter();
        let mut answers = Vec::new();
        loop {
            TOKENS.set(self.tokens);
            let batch = self.keeper.poll(self.now(), 1);
            self.tokens = TOKENS.get();
            let Some(batch) = batch else { return answers };
            let now = self.now();
            let next = if is_told { Some(known.next().expect("both ask alike")) } else { None };
            let answer = match batch {
                Batch::One(slot, Ask::Take(take)) => {
                    let answer = next.unwrap_or_else(|| Answered::Taken(self.store.take_slot(&take)));
                    let Answered::Taken(taken) = &answer else { unreachable!("both ask alike") };
                    self.keeper.complete(slot, taken.clone().map(Answer::Taken), now);
                    answer
                }
                Batch::Renew(slots, mut renewals) => {
                    if mutant == Some(Mutant::TokenKept) {
                        for renewal in &mut renewals {
                            renewal.to.token = renewal.own.left[0].token;
                        }
                    }
                    let answer = next.unwrap_or_else(|| Answered::Renewed(self.store.renew_slots(&renewals)));
                    let Answered::Renewed(renewed) = &answer else { unreachable!("both ask alike") };
                    self.keeper.renewed(&slots, renewed.clone(), now);
                    answer
                }
                other => unreachable!("a leased source asks for {other:?}"),
            };
            answers.push(answer);
        }
    }
}

/// Copies a process and lets both copies run for a lease, which has three renewals; `open` makes a connection to their store, whose clock shows
/// `begin_ms` or later.
///
/// # Panics
/// If the source gets no worker, or the first copy's requests differ from the second's before the copy is made.
pub fn copied(
    mut open: impl FnMut() -> Box<dyn Store>,
    spec: &Arc<Spec>,
    begin_ms: i64,
    copy: Copy,
    mut passes: impl FnMut(),
) -> Outcome {
    let mut twins = [(); 2].map(|()| {
        let clock = Arc::new(ManualClock::new(begin_ms));
        // Of one seed, so that both do the same until the copy is made.
        let mut keeper = Keeper::new(1, Arc::new(ReadyQueue::default()));
        keeper.set_tokens(draw);
        let source = keeper.open(0, spec.clone(), Clock::Manual(clock.clone())).expect("a source");
        assert!(source.try_next().is_err(), "nothing is leased yet");
        Twin { keeper, source, clock, store: open(), tokens: 7 }
    });
    let mut outcome = Outcome::default();
    let mut seen = HashMap::new();
    for passed in 0..copy.at_ms + copy.apart_ms + LEASE_MS {
        let mut answers = None;
        if passed > 0 {
            passes();
        }
        if passed == copy.at_ms && !copy.in_flight {
            twins[1].diverge(copy);
        }
        let is_one = passed < copy.at_ms;
        for (at, twin) in twins.iter_mut().enumerate() {
            if at == 1 && (copy.at_ms..copy.at_ms + copy.apart_ms).contains(&passed) {
                continue;
            }
            if passed > 0 {
                twin.clock.advance(1);
            }
            if at == 1 && passed == copy.at_ms + copy.apart_ms {
                twin.clock.set_wall(begin_ms + passed as i64);
            }
            let mutant = copy.mutant.filter(|_| !is_one);
            let answered = twin.keep(answers.take().filter(|_| is_one), mutant);
            let is_renewed = answered.iter().any(|answer| matches!(answer, Answered::Renewed(_)));
            if at == 1 && !is_one && copy.in_flight && is_renewed {
                twin.diverge(copy);
            }
            answers = Some(answered);
            let is_told = outcome.told_ms != [None, None];
            match twin.source.try_next() {
                Ok(_) if is_one => {}
                Ok(id) => {
                    let twice = seen.insert(id, is_told);
                    outcome.equal += usize::from(twice == Some(false));
                    outcome.later += usize::from(twice == Some(true));
                }
                // With its next worker it begins in the next tick.
                Err(error) if error.code == Code::NotReady && outcome.told_ms[at].is_some() => {}
                Err(error) => {
                    assert_eq!(error.code, Code::LeaseLost, "{error}");
                    let since = passed - copy.at_ms - if at == 1 { copy.apart_ms } else { 0 };
                    outcome.told_ms[at].get_or_insert(since);
                }
            }
        }
    }
    outcome
}
