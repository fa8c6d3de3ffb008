//! The rotation of a source over its stores, and the pauses of stores that failed.

use std::time::{Duration, Instant};

use crate::store::Fault;

/// The shortest and the longest pause of a store that failed. A frozen store costs its timeout once a pause, and only when
/// its turn comes.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// An answer within this time counts as immediate while only paused stores are left.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Why a store, or a source's row in it, is not asked now.
#[derive(Clone, Debug)]
pub(super) struct Pause {
    pub(super) until: Instant,
    pub(super) failures: u32,
    pub(super) fault: Fault,
}

impl Pause {
    /// After another failure: pauses double, and half of each is random.
    pub(super) fn after(before: Option<&Pause>, fault: Fault) -> Pause {
        let failures = before.map_or(0, |pause| pause.failures);
        let whole = PAUSE.0.saturating_mul(1 << failures.min(16)).min(PAUSE.1);
        let until = Instant::now() + whole.mul_f64(0.5 + fastrand::f64() / 2.0);
        Pause { until, failures: failures + 1, fault }
    }
}

/// Whether a pause has not ended.
pub(super) fn is_active(pause: Option<&Pause>) -> bool {
    pause.is_some_and(|pause| Instant::now() < pause.until)
}

/// Asks paused stores when no other is left, one after the other while they answer at once: any of them may be back, and a
/// frozen store costs its timeout only once.
#[derive(Debug, Default)]
pub(super) struct LastResorts(Option<Instant>);

impl LastResorts {
    /// Whether to ask one more.
    pub(super) fn another(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() < AT_ONCE
    }
}

/// A source's row in one of the stores.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberRow {
    /// Its record has been compared.
    pub(super) known: bool,
    /// One past the last own number that this process received; 0: none yet.
    pub(super) seen: u64,
    pub(super) pause: Option<Pause>,
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
    /// The records of all stores have been compared.
    pub(super) begun: bool,
    pub(super) turn: usize,
    pub(super) rows: Vec<MemberRow>,
    pub(super) left_over: Option<LeftOver>,
}
