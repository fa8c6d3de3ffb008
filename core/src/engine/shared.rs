//! What the copies of a mill and of a source share, and how they come to life again in a forked child.
//!
//! The child must not touch anything its parent's threads may have been holding: not the old engine's locks, not its
//! queues, not its connections. So the child builds a new engine and leaves the old one where it is, for ever. Which
//! process one is in is told by a word the kernel wiped at the fork (see [`crate::base::revocation`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::base::error::{Code, Error, Result};
use crate::base::revocation::ForkLock;
use crate::config::{Fork, MillConfig};
use crate::engine::events::Event;
use crate::planner::spec::{Body, Order, Spec};
use crate::time::{Clock, ManualClock};
use crate::well::Well;

use super::Engine;

pub(crate) struct SharedMill {
    pub(crate) config: Arc<MillConfig>,
    clock: Clock,
    /// The working folder at the time of the opening, from which a relative path is taken for good: a daemon changes its
    /// folder, and a forked child opens the store anew.
    folder: PathBuf,
    /// The present life, from `Arc::into_raw`; never null.
    engine: AtomicPtr<Engine>,
    /// Held by the thread that replaces `engine`.
    reviving: ForkLock,
    closed: AtomicBool,
}

impl SharedMill {
    pub(crate) fn open(config: MillConfig) -> Result<Self> {
        let clock =
            config.manual_clock.map_or(Clock::System, |ms| Clock::Manual(Arc::new(ManualClock::new(ms))));
        let config = Arc::new(config);
        // Without a working folder a relative path is no path, and the store says so.
        let folder = std::env::current_dir().unwrap_or_default();
        let engine = Arc::new(Engine::start(&config, &folder, clock.clone(), false)?);
        Ok(SharedMill {
            config,
            clock,
            folder,
            engine: AtomicPtr::new(Arc::into_raw(engine).cast_mut()),
            reviving: ForkLock::new(),
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The engine of this process; in a forked child this starts one.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        self.present().map_or_else(|| self.revive(), Ok)
    }

    /// The engine of this process, if it has one: a forked child has none before its first call, and one that only asks, prints
    /// or drops something needs none.
    pub(crate) fn present(&self) -> Option<&Engine> {
        // ordering: SeqCst — pairs with the store in `start_anew`; see `close`.
        let engine = self.engine.load(Ordering::SeqCst);
        // SAFETY: the pointer came from `Arc::into_raw`; an engine is dropped only with this struct, and one that was
        // replaced after a fork is never dropped.
        let engine = unsafe { &*engine };
        engine.is_ours().then_some(engine)
    }

    pub(crate) fn is_closed(&self) -> bool {
        // ordering: SeqCst — see `close`.
        self.closed.load(Ordering::SeqCst)
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
        if self.is_closed() {
            return Err(Error::new(Code::Closed, "the mill was closed"));
        }
        let _held = self.reviving.lock();
        // Another thread may have been quicker.
        self.present().map_or_else(|| self.start_anew(), Ok)
    }

    fn start_anew(&self) -> Result<&Engine> {
        let fresh = Arc::new(Engine::start(&self.config, &self.folder, self.clock.clone(), true)?);
        fresh
            .events
            .push(Event::new("revived", "a forked child started with segments and connections of its own"));
        let fresh = Arc::into_raw(fresh).cast_mut();
        // The old one is left as it is: see the top of this file.
        // ordering: SeqCst — publishes the engine; see `close`.
        self.engine.store(fresh, Ordering::SeqCst);
        // SAFETY: just made; as in `present`.
        let fresh = unsafe { &*fresh };
        if self.is_closed() {
            fresh.close();
        }
        Ok(fresh)
    }

    pub(crate) fn close(&self) {
        // ordering: SeqCst — with `start_anew`, which stores the engine and then loads the flag: either this close finds the
        // engine of a child that has just started, or that child finds the flag.
        self.closed.store(true, Ordering::SeqCst);
        if let Some(engine) = self.present() {
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
