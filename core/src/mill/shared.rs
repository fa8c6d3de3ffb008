//! What the copies of a mill and of a source share, and how they come to life again in a forked child. (floor 3)
//!
//! The child must not touch anything its parent's threads may have been holding: not the old engine's locks, not its
//! queues, not its connections. So the child builds a new engine and leaves the old one where it is, for ever. Which
//! process one is in is told by a word the kernel wiped at the fork (see [`crate::revocation`]).

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crossbeam::utils::Backoff;

use crate::config::{Fork, MillConfig};
use crate::error::{Code, Error, Result};
use crate::events::Event;
use crate::spec::{Body, Order, Spec};
use crate::time::{Clock, ManualClock};
use crate::well::Well;

use super::engine::Engine;

pub(crate) struct SharedMill {
    pub(crate) config: Arc<MillConfig>,
    clock: Clock,
    /// The present life, from `Arc::into_raw`; never null.
    engine: AtomicPtr<Engine>,
    /// The process that is replacing `engine`; 0: nobody is. A value of another process is a fork's leftover.
    reviving: AtomicU64,
    closed: AtomicBool,
}

impl SharedMill {
    pub(crate) fn open(config: MillConfig) -> Result<Self> {
        let clock =
            config.manual_clock.map_or(Clock::System, |ms| Clock::Manual(Arc::new(ManualClock::new(ms))));
        let config = Arc::new(config);
        let engine = Arc::new(Engine::start(&config, clock.clone(), false)?);
        Ok(SharedMill {
            config,
            clock,
            engine: AtomicPtr::new(Arc::into_raw(engine).cast_mut()),
            reviving: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The engine of this process.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        // ordering: Acquire — pairs with the release in `revive`.
        let engine = self.engine.load(Ordering::Acquire);
        // SAFETY: the pointer came from `Arc::into_raw`; an engine is dropped only with this struct, and one that was
        // replaced after a fork is never dropped.
        let engine = unsafe { &*engine };
        if engine.is_ours() { Ok(engine) } else { self.revive() }
    }

    #[cold]
    fn revive(&self) -> Result<&Engine> {
        if self.config.fork == Fork::Error {
            return Err(Error::new(
                Code::Forked,
                "this process is a fork of the one that opened the mill, and fork=error: open a mill in the child",
            ));
        }
        if self.config.store.is_in_memory() {
            return Err(Error::new(
                Code::Forked,
                "this process is a fork of the one that opened the mill, and numbers kept in memory cannot be shared by processes; use sqlite:FILE or a server",
            ));
        }
        let me = u64::from(std::process::id());
        let backoff = Backoff::new();
        loop {
            // ordering: Acquire — pairs with the release below.
            let engine = self.engine.load(Ordering::Acquire);
            // SAFETY: as in `engine`.
            let engine = unsafe { &*engine };
            if engine.is_ours() {
                return Ok(engine);
            }
            // ordering: Relaxed — the exchange decides.
            let holder = self.reviving.load(Ordering::Relaxed);
            if holder != me
                // ordering: Acquire — what a reviver before us did comes first. Relaxed on failure.
                && self.reviving.compare_exchange(holder, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                let answer = self.start_anew(engine);
                // ordering: Release — the new engine is in place.
                self.reviving.store(0, Ordering::Release);
                return answer;
            }
            backoff.snooze();
        }
    }

    fn start_anew(&self, old: &Engine) -> Result<&Engine> {
        // ordering: Acquire — pairs with the release below.
        let now = self.engine.load(Ordering::Acquire);
        if !ptr::eq(now, old) {
            // Somebody was quicker.
            // SAFETY: as in `engine`.
            return Ok(unsafe { &*now });
        }
        let fresh = Arc::new(Engine::start(&self.config, self.clock.clone(), true)?);
        fresh
            .events
            .push(Event::new("revived", "a forked child started with segments and connections of its own"));
        // ordering: Acquire — pairs with the release in `close`.
        if self.closed.load(Ordering::Acquire) {
            fresh.close();
        }
        let fresh = Arc::into_raw(fresh).cast_mut();
        // ordering: Release — publishes the engine. The old one is left as it is: see the top of this file.
        self.engine.store(fresh, Ordering::Release);
        // SAFETY: just made; as in `engine`.
        Ok(unsafe { &*fresh })
    }

    pub(crate) fn close(&self) {
        // ordering: Release — pairs with `start_anew`: a child of ours opens closed.
        self.closed.store(true, Ordering::Release);
        // ordering: Acquire — as in `engine`.
        let engine = self.engine.load(Ordering::Acquire);
        // SAFETY: as in `engine`.
        let engine = unsafe { &*engine };
        if engine.is_ours() {
            engine.close();
        }
    }
}

impl Drop for SharedMill {
    fn drop(&mut self) {
        let engine = *self.engine.get_mut();
        // SAFETY: as in `engine`; nobody else can reach it any more.
        if unsafe { &*engine }.is_ours() {
            // SAFETY: the pointer came from `Arc::into_raw` and is not used again.
            drop(unsafe { Arc::from_raw(engine) });
        }
    }
}

/// What a source hands out and from where, settled once so that the id path asks one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Numbers of the shared counter.
    Shared,
    /// Numbers of the calling thread's own block.
    Thread,
    /// Ids of a clock and a worker.
    Time,
    /// Every delta-th number: counted by the shared counter or by the thread, and made an id on its way out.
    Strided,
    /// Texts, numbered by the shared counter.
    SharedText,
    /// Texts, numbered by the calling thread's own block.
    ThreadText,
}

pub(crate) struct SharedSource {
    pub(crate) mill: Arc<SharedMill>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) way: Way,
    /// The most bytes a text can have.
    pub(crate) text_len: usize,
    /// The well of the present life, from `Arc::into_raw`; never null.
    well: AtomicPtr<Well>,
}

impl SharedSource {
    pub(crate) fn open(mill: &Arc<SharedMill>, spec: Spec) -> Result<Self> {
        let spec = Arc::new(spec);
        let well = mill.engine()?.well(&spec)?;
        let way = match (&spec.body, spec.order) {
            (Body::Snowflake { .. }, _) => Way::Time,
            (Body::Segment, _) if !spec.key.stride.is_every() => Way::Strided,
            (Body::Segment, Order::Process) => Way::Shared,
            (Body::Segment, Order::Thread) => Way::Thread,
            (Body::Serial { .. }, Order::Process) => Way::SharedText,
            (Body::Serial { .. }, Order::Thread) => Way::ThreadText,
        };
        Ok(SharedSource {
            mill: mill.clone(),
            way,
            text_len: spec.text_len(),
            spec,
            well: AtomicPtr::new(Arc::into_raw(well).cast_mut()),
        })
    }

    /// The well of this process.
    #[inline]
    pub(crate) fn well(&self) -> Result<&Well> {
        let well = self.last_well();
        if well.is_ours() { Ok(well) } else { self.revive() }
    }

    /// The well that was used last: in a forked child its parent's, until the child's first call. What is taken from it
    /// may be handed out only if [`Well::is_ours`], which the id path asks *after* it has counted: a count in the
    /// child's copy of a dead well harms nobody, and the load no longer stands before the count.
    #[inline]
    pub(crate) fn last_well(&self) -> &Well {
        // ordering: Acquire — pairs with the release in `revive`.
        let well = self.well.load(Ordering::Acquire);
        // SAFETY: the pointer came from `Arc::into_raw`; a well is dropped only with this struct, and one that was
        // replaced after a fork is never dropped.
        unsafe { &*well }
    }

    #[cold]
    fn revive(&self) -> Result<&Well> {
        // Any number of threads may come here at once; the engine gives them all the same well.
        let fresh = self.mill.engine()?.well(&self.spec)?;
        let fresh = Arc::into_raw(fresh).cast_mut();
        // ordering: AcqRel — publishes the well; pairs with the load above.
        let old = self.well.swap(fresh, Ordering::AcqRel);
        // SAFETY: as in `well`: the old one still stands, whoever put it there.
        if unsafe { &*old }.is_ours() {
            // Another thread of this process had put the same well there; the engine keeps it alive, so its count of
            // ours can go. A reader that holds the reference reads what the engine holds.
            // SAFETY: `old` came from `Arc::into_raw` and its place in `self.well` is taken.
            drop(unsafe { Arc::from_raw(old) });
        }
        // SAFETY: as in `well`.
        Ok(unsafe { &*fresh })
    }
}

impl Drop for SharedSource {
    fn drop(&mut self) {
        let well = *self.well.get_mut();
        // SAFETY: as in `well`; nobody else can reach it through this struct any more.
        if unsafe { &*well }.is_ours() {
            // SAFETY: the pointer came from `Arc::into_raw` and is not used again.
            drop(unsafe { Arc::from_raw(well) });
        }
    }
}
