//! A source as its keeper serves it, of any kind.

use std::sync::Arc;

use crate::bank::BankSource;
use crate::callers::Callers;
use crate::callers::waker::ReadyQueue;
use crate::error::{Error, Result};
use crate::gene::Gene;
use crate::planner::{Action, View};
use crate::segment::SegmentSource;
use crate::snowflake::SnowflakeSource;
use crate::spec::Spec;
use crate::time::{Clock, Now};

/// What a source's callers and its keeper share.
#[derive(Clone, Debug)]
pub enum KeptSource {
    /// It counts through segments.
    Segment(Arc<SegmentSource>),
    /// It makes ids of a clock and a worker.
    Snowflake(Arc<SnowflakeSource>),
    /// It counts through the counters of a bank.
    Bank(Arc<BankSource>),
}

impl KeptSource {
    /// A source without ids yet.
    pub(crate) fn new(spec: Arc<Spec>, ready: Arc<ReadyQueue>, index: usize, clock: Clock) -> Result<Self> {
        if let Some(bank) = spec.bank {
            return Ok(KeptSource::Bank(Arc::new(BankSource::new(spec, bank, ready, index, clock))));
        }
        Ok(match spec.snowflake {
            Some(snowflake) => {
                KeptSource::Snowflake(Arc::new(SnowflakeSource::new(spec, snowflake, ready, index, clock)?))
            }
            None => KeptSource::Segment(SegmentSource::new(spec, ready, index, clock)),
        })
    }

    pub(crate) fn callers(&self) -> &Callers {
        match self {
            KeptSource::Segment(source) => &source.callers,
            KeptSource::Snowflake(source) => &source.callers,
            KeptSource::Bank(source) => &source.callers,
        }
    }

    /// What the source is.
    #[must_use]
    pub fn spec(&self) -> &Arc<Spec> {
        &self.callers().spec
    }

    /// One id, or why not, at once; of a bank a number of its first counter.
    ///
    /// # Errors
    /// `NOT_READY`, and what the keeper posted.
    pub fn try_next(&self) -> Result<u64> {
        match self {
            KeptSource::Segment(source) => source.try_next(),
            KeptSource::Snowflake(source) => source.try_next(),
            KeptSource::Bank(source) => source.try_take(Gene::from(0), 1, 1).map(|taken| taken.start),
        }
    }

    /// One id; waits until the deadline at most.
    #[cfg(test)]
    pub(super) fn next(&self) -> Result<u64> {
        match self {
            KeptSource::Segment(source) => source.next(),
            KeptSource::Snowflake(source) => source.next(),
            KeptSource::Bank(source) => source.next(Gene::from(0)),
        }
    }

    pub(super) fn view(&self, now: Now) -> View {
        match self {
            KeptSource::Segment(source) => View::Segments(source.view()),
            KeptSource::Snowflake(source) => View::Snowflake(source.view()),
            KeptSource::Bank(source) => View::Bank(source.view(now)),
        }
    }

    /// Carries out what the planner decided. It decides by the source's own view and answers, so an action is of the source's kind.
    pub(super) fn act(&self, action: Action, now: Now) {
        match (self, action) {
            (source, Action::Fail(error)) => source.fail(error, now),
            (source, Action::Tell(error)) => source.callers().post(error, now),
            (KeptSource::Segment(source), Action::Segment(action)) => source.act(action, now),
            (KeptSource::Snowflake(source), Action::Snowflake(action)) => source.act(action, now),
            (source, action) => debug_assert!(false, "{action:?} for {source:?}"),
        }
    }

    /// Callers who find nothing get this error; its retry hint is when the next try is due.
    pub(super) fn fail(&self, error: Error, now: Now) {
        match self {
            KeptSource::Segment(source) => source.fail(error, now),
            KeptSource::Snowflake(source) => source.fail(error, now),
            KeptSource::Bank(source) => source.fail(error, now),
        }
    }

    pub(super) fn is_waited_for(&self) -> bool {
        match self {
            KeptSource::Segment(source) => source.is_waited_for(),
            KeptSource::Snowflake(source) => source.is_waited_for(),
            KeptSource::Bank(source) => source.is_waited_for(),
        }
    }

    /// Ends what is over by now: dates, times to live, leases. Answers with the milliseconds until the next end, where there is one.
    pub(super) fn expire(&self, now: Now) -> Option<u64> {
        match self {
            KeptSource::Segment(source) => source.expire(now),
            KeptSource::Snowflake(source) => source.expire(now),
            KeptSource::Bank(_) => None,
        }
    }

    /// Whether what it hands out can end by itself.
    pub(super) fn has_ends(&self) -> bool {
        self.spec().has_ends() || self.spec().is_leased()
    }

    /// Closes for good, without giving anything back.
    pub(crate) fn close(&self) {
        match self {
            KeptSource::Segment(source) => drop(source.close()),
            KeptSource::Snowflake(source) => drop(source.close()),
            KeptSource::Bank(source) => drop(source.close()),
        }
    }
}
