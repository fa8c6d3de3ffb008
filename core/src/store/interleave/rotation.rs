//! Whose turn a source's next reservation is, and who rests.

use std::time::{Duration, Instant};

use crate::store::Fault;

/// The shortest and the longest rest of a store that failed. A frozen one costs its timeout once a rest, and only where the
/// turn is its own.
const REST: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// What counts as at once where only stores that rest are left.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Why a store, or a source's row in it, is not asked for now.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    pub(super) until: Instant,
    pub(super) failures: u32,
    pub(super) fault: Fault,
}

impl Rest {
    /// After another failure; the rests grow, with half of each left to chance.
    pub(super) fn after(before: Option<&Rest>, fault: Fault) -> Rest {
        let failures = before.map_or(0, |rest| rest.failures);
        let whole = REST.0.saturating_mul(1 << failures.min(16)).min(REST.1);
        let until = Instant::now() + whole.mul_f64(0.5 + fastrand::f64() / 2.0);
        Rest { until, failures: failures + 1, fault }
    }
}

pub(super) fn rests(rest: Option<&Rest>) -> bool {
    rest.is_some_and(|rest| Instant::now() < rest.until)
}

/// Asks stores that rest, when nobody else is left, one after the other while they answer at once: any of them may be back,
/// and one that is frozen costs its timeout once.
#[derive(Debug, Default)]
pub(super) struct LastResorts(Option<Instant>);

impl LastResorts {
    /// Whether one more is asked.
    pub(super) fn another(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() < AT_ONCE
    }
}

/// A source's row in one of the stores.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberRow {
    /// What is recorded there has been compared.
    pub(super) known: bool,
    /// One past the last own number that this process was given; 0: none yet.
    pub(super) seen: u64,
    pub(super) rest: Option<Rest>,
}

/// Own numbers `[lo, hi)` of a store, reserved and not issued yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOver {
    pub(super) member: usize,
    pub(super) lo: u64,
    pub(super) hi: u64,
    pub(super) since: Instant,
    pub(super) ttl_ms: Option<u64>,
}

/// One source's rotation.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    /// Every store has been asked whether it is the right one.
    pub(super) begun: bool,
    pub(super) turn: usize,
    pub(super) rows: Vec<MemberRow>,
    pub(super) left_over: Option<LeftOver>,
}
