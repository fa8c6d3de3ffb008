//! What the copies of a mill and of a source share, and how a forked child starts them anew.
//!
//! The child must not touch anything that its parent's threads may have held: not the old engine's locks, queues or connections.
//! So the child builds a new engine and never drops the old one. A word that the kernel wipes at the fork shows which process this
//! is (see [`crate::process::revocation`]).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::bank::BankSource;
use crate::callers::Callers;
use crate::config::{Fork, MillConfig};
use crate::error::{Code, Error, Result};
use crate::keeper::KeptSource;
use crate::keeper::routers::Routers;
use crate::monitoring::events::{Event, EventKind};
use crate::process::revocation::{ForkLock, RevocationWord};
use crate::segment::SegmentSource;
use crate::snowflake::SnowflakeSource;
use crate::spec::{Kind, Order, Spec};
use crate::time::{Clock, ManualClock};

use super::Engine;

pub(crate) struct SharedMill {
    pub(crate) config: Arc<MillConfig>,
    clock: Clock,
    /// The working folder when the mill was opened. Relative paths keep their meaning when a daemon changes its folder and a forked
    /// child opens the store anew.
    folder: PathBuf,
    /// The present engine, from `Arc::into_raw`; never null.
    engine: AtomicPtr<Engine>,
    /// Held by the thread that replaces `engine`.
    reviving: ForkLock,
    closed: AtomicBool,
    /// The same for every engine of this mill: a forked child's keeper goes on with its parent's.
    pub(crate) routers: Arc<Routers>,
}

impl SharedMill {
    pub(crate) fn open(config: MillConfig) -> Result<Self> {
        let clock =
            config.manual_clock.map_or(Clock::System, |ms| Clock::Manual(Arc::new(ManualClock::new(ms))));
        let config = Arc::new(config);
        // Without a working folder the store reports that a relative path cannot be opened.
        let folder = std::env::current_dir().unwrap_or_default();
        let routers = Arc::new(Routers::default());
        let engine = Arc::new(Engine::start(&config, &folder, clock.clone(), routers.clone(), false)?);
        Ok(SharedMill {
            config,
            clock,
            folder,
            engine: AtomicPtr::new(Arc::into_raw(engine).cast_mut()),
            reviving: ForkLock::new(),
            closed: AtomicBool::new(false),
            routers,
        })
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The engine of this process; in a forked child this starts one.
    pub(crate) fn engine(&self) -> Result<&Engine> {
        self.present().map_or_else(|| self.revive(), Ok)
    }

    /// The engine of this process, if it has one. A forked child has none before its first call; a child that only reads figures
    /// or drops handles needs none.
    pub(crate) fn present(&self) -> Option<&Engine> {
        // ordering: SeqCst — pairs with the store in `start_anew`; see `close`.
        let engine = self.engine.load(Ordering::SeqCst);
        // SAFETY: the pointer came from `Arc::into_raw`; an engine is dropped only with this struct, or never if a fork replaced it.
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
            return Err(Engine::closed_error(None));
        }
        let _held = self.reviving.lock();
        // Another thread may have done it meanwhile.
        self.present().map_or_else(|| self.start_anew(), Ok)
    }

    fn start_anew(&self) -> Result<&Engine> {
        self.routers.begin_anew();
        let fresh = Arc::new(Engine::start(
            &self.config,
            &self.folder,
            self.clock.clone(),
            self.routers.clone(),
            true,
        )?);
        fresh.events.push(Event::new(
            EventKind::Revived,
            "a forked child started with segments and connections of its own",
        ));
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
        if let Some(engine) = self.closed_engine() {
            engine.close();
        }
    }

    /// As [`SharedMill::close`], without waiting for the store.
    pub(crate) fn begin_close(&self) {
        if let Some(engine) = self.closed_engine() {
            engine.begin_close();
        }
    }

    /// No later call begins anything. The engine to close, if there is one.
    fn closed_engine(&self) -> Option<&Engine> {
        // ordering: SeqCst — with `start_anew`, which stores the engine and then loads the flag: either this close finds the
        // engine of a child that has just started, or that child finds the flag.
        self.closed.store(true, Ordering::SeqCst);
        self.present()
    }
}

impl Drop for SharedMill {
    fn drop(&mut self) {
        let engine = *self.engine.get_mut();
        // SAFETY: as in `engine`; no other reference leads to it any more.
        if unsafe { &*engine }.is_ours() {
            // SAFETY: the pointer came from `Arc::into_raw` and is not used again.
            drop(unsafe { Arc::from_raw(engine) });
        }
    }
}

/// A source's state in the present engine of its mill. In a forked child this is the parent's until the child's first call.
pub(crate) struct Live<T: SourceState> {
    /// From `Arc::into_raw`; never null.
    state: AtomicPtr<T>,
    /// The word of this state, or of a state that it has replaced: the id path need not wait for the state's address to read it.
    word: AtomicPtr<AtomicU64>,
}

/// The kinds of state that a source may have.
pub(crate) trait SourceState: Sized {
    fn word(&self) -> &RevocationWord;
    /// The state, if the source is of this kind.
    fn of(source: KeptSource) -> Option<Arc<Self>>;
}

impl SourceState for SegmentSource {
    #[inline]
    fn word(&self) -> &RevocationWord {
        self.word()
    }
    fn of(source: KeptSource) -> Option<Arc<Self>> {
        if let KeptSource::Segment(state) = source { Some(state) } else { None }
    }
}

impl SourceState for BankSource {
    #[inline]
    fn word(&self) -> &RevocationWord {
        self.word()
    }
    fn of(source: KeptSource) -> Option<Arc<Self>> {
        if let KeptSource::Bank(state) = source { Some(state) } else { None }
    }
}

impl SourceState for SnowflakeSource {
    #[inline]
    fn word(&self) -> &RevocationWord {
        self.word()
    }
    fn of(source: KeptSource) -> Option<Arc<Self>> {
        if let KeptSource::Snowflake(state) = source { Some(state) } else { None }
    }
}

impl<T: SourceState> Live<T> {
    fn new(state: Arc<T>) -> Self {
        let word = AtomicPtr::new(Self::word_of(&state));
        Live { state: AtomicPtr::new(Arc::into_raw(state).cast_mut()), word }
    }

    fn word_of(state: &T) -> *mut AtomicU64 {
        std::ptr::from_ref(state.word().shared()).cast_mut()
    }

    /// Whether [`Live::last`], called after this, is of this process.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        // ordering: Acquire — pairs with the Release in `revive`: a thread that sees a word sees its state, or a later one.
        let word = self.word.load(Ordering::Acquire);
        // SAFETY: words are never freed.
        let word = unsafe { &*word };
        // ordering: Relaxed — as in `RevocationWord::is_ours`.
        word.load(Ordering::Relaxed) != 0
    }

    /// The state that was used last. What is taken from it may be handed out only if its word [`RevocationWord::is_ours`]. The id path asks
    /// that *after* it has counted: a count in the child's copy of a dead source harms nothing, and the load does not delay the
    /// count.
    #[inline]
    pub(crate) fn last(&self) -> &T {
        // ordering: Acquire — pairs with the release in `revive`.
        let state = self.state.load(Ordering::Acquire);
        // SAFETY: the pointer came from `Arc::into_raw`; a state is dropped only with this struct, or never if a fork replaced it.
        unsafe { &*state }
    }

    /// The state of this process; in a forked child this starts its mill anew.
    #[inline]
    pub(crate) fn get(&self, source: &SharedSource) -> Result<&T> {
        let state = self.last();
        if state.word().is_ours() { Ok(state) } else { self.revive(source) }
    }

    #[cold]
    fn revive(&self, source: &SharedSource) -> Result<&T> {
        // Any number of threads may come here at once; the engine gives them all the same state.
        let fresh = T::of(source.mill.engine()?.source(&source.spec)?)
            .ok_or_else(|| Error::new(Code::Internal, "a source changed its kind"))?;
        let fresh = Arc::into_raw(fresh).cast_mut();
        // ordering: AcqRel — publishes the state; pairs with the load in `last`.
        let old = self.state.swap(fresh, Ordering::AcqRel);
        // SAFETY: as in `last`.
        let word = Self::word_of(unsafe { &*fresh });
        // ordering: Release — after the state; pairs with the load in `is_ours`.
        self.word.store(word, Ordering::Release);
        // SAFETY: as in `last`: whichever thread stored the old one, it still stands.
        if unsafe { &*old }.word().is_ours() {
            // Another thread of this process had stored the same state; the engine keeps it alive, so this count of it can go. A
            // reader that holds the reference reads what the engine holds.
            // SAFETY: `old` came from `Arc::into_raw` and its place in `self.state` is taken.
            drop(unsafe { Arc::from_raw(old) });
        }
        // SAFETY: as in `last`.
        Ok(unsafe { &*fresh })
    }
}

impl<T: SourceState> Drop for Live<T> {
    fn drop(&mut self) {
        let state = *self.state.get_mut();
        // SAFETY: as in `last`; no other reference leads to it through this struct any more.
        if unsafe { &*state }.word().is_ours() {
            // SAFETY: the pointer came from `Arc::into_raw` and is not used again.
            drop(unsafe { Arc::from_raw(state) });
        }
    }
}

/// The id path of a source: decided once, so that each call tests one word.
pub(crate) enum IdPath {
    /// Numbers of the shared counter.
    Shared(Live<SegmentSource>),
    /// Numbers of the calling thread's own block.
    Thread(Live<SegmentSource>),
    /// Ids of the machine's clock and a worker.
    Time(Live<SnowflakeSource>),
    /// The same, scattered, or by a clock that a test moves.
    AnyTime(Live<SnowflakeSource>),
    /// Every delta-th number: counted by the shared counter or by the thread, and converted to an id when it is handed out.
    Strided(Live<SegmentSource>),
    /// Texts, numbered by the shared counter.
    SharedText(Live<SegmentSource>),
    /// Texts, numbered by the calling thread's own block.
    ThreadText(Live<SegmentSource>),
    /// Ids of 64 bits with the gene of a key, numbered by its counter.
    Bank(Live<BankSource>),
    /// Such ids of 128 bits.
    WideBank(Live<BankSource>),
}

/// What the copies of a source share.
pub(crate) struct SharedSource {
    pub(crate) mill: Arc<SharedMill>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) path: IdPath,
    /// The most bytes a text can have.
    pub(crate) text_len: usize,
}

impl SharedSource {
    pub(crate) fn open(mill: &Arc<SharedMill>, spec: Spec) -> Result<Self> {
        let spec = Arc::new(spec);
        let path = match mill.engine()?.source(&spec)? {
            KeptSource::Snowflake(state) if state.is_plain() => IdPath::Time(Live::new(state)),
            KeptSource::Snowflake(state) => IdPath::AnyTime(Live::new(state)),
            KeptSource::Bank(state) if state.bank().wide => IdPath::WideBank(Live::new(state)),
            KeptSource::Bank(state) => IdPath::Bank(Live::new(state)),
            KeptSource::Segment(state) => {
                let live = Live::new(state);
                match (spec.kind(), spec.order) {
                    (Kind::Serial, Order::Process) => IdPath::SharedText(live),
                    (Kind::Serial, Order::Thread) => IdPath::ThreadText(live),
                    _ if !spec.key.stride.is_every() => IdPath::Strided(live),
                    (_, Order::Process) => IdPath::Shared(live),
                    (_, Order::Thread) => IdPath::Thread(live),
                }
            }
        };
        Ok(SharedSource { mill: mill.clone(), path, text_len: spec.text_len(), spec })
    }

    /// The state of a source that counts; `None` for a snowflake.
    #[inline]
    pub(crate) fn live_segments(&self) -> Option<&Live<SegmentSource>> {
        match &self.path {
            IdPath::Shared(live)
            | IdPath::Thread(live)
            | IdPath::Strided(live)
            | IdPath::SharedText(live)
            | IdPath::ThreadText(live) => Some(live),
            IdPath::Time(_) | IdPath::AnyTime(_) | IdPath::Bank(_) | IdPath::WideBank(_) => None,
        }
    }

    /// The state of a snowflake; `None` for the other kinds.
    #[inline]
    pub(crate) fn live_snowflake(&self) -> Option<&Live<SnowflakeSource>> {
        match &self.path {
            IdPath::Time(live) | IdPath::AnyTime(live) => Some(live),
            _ => None,
        }
    }

    /// The state of a bank, of this process; an error for the other kinds.
    pub(crate) fn bank(&self) -> Result<&BankSource> {
        match &self.path {
            IdPath::Bank(live) | IdPath::WideBank(live) => live.get(self),
            _ => Err(Error::argument(format!("`{}` has no keys; take its ids without one", self.spec.label))),
        }
    }

    /// The state of a source that counts, of this process.
    pub(crate) fn segments(&self) -> Result<&SegmentSource> {
        let live = self.live_segments().ok_or_else(|| {
            if matches!(self.path, IdPath::Bank(_) | IdPath::WideBank(_)) {
                return Error::argument(format!(
                    "an id of `{}` carries the shard of its key; take its ids with the key",
                    self.spec.label
                ));
            }
            Error::argument(format!(
                "`{}` has no ranges to lease; take ids one by one or in batches",
                self.spec.label
            ))
        })?;
        live.get(self)
    }

    /// The callers of this source, of this process.
    pub(crate) fn callers(&self) -> Result<&Callers> {
        match &self.path {
            IdPath::Time(live) | IdPath::AnyTime(live) => live.get(self).map(|state| &state.callers),
            IdPath::Bank(live) | IdPath::WideBank(live) => live.get(self).map(|state| &state.callers),
            _ => self.segments().map(|state| &state.callers),
        }
    }

    /// As [`SharedSource::callers`]; `None` in a forked child that has not used the source yet.
    pub(crate) fn present_callers(&self) -> Option<&Callers> {
        fn ours<T: SourceState>(live: &Live<T>, callers: impl FnOnce(&T) -> &Callers) -> Option<&Callers> {
            let state = live.last();
            state.word().is_ours().then(|| callers(state))
        }
        match &self.path {
            IdPath::Time(live) | IdPath::AnyTime(live) => ours(live, |state| &state.callers),
            IdPath::Bank(live) | IdPath::WideBank(live) => ours(live, |state| &state.callers),
            _ => ours(self.live_segments()?, |state| &state.callers),
        }
    }

    /// Counts numbers that were taken and not used, in the process that took them.
    pub(crate) fn lose(&self, numbers: u64) {
        if let Some(state) = self.live_segments().map(Live::last)
            && state.word().is_ours()
        {
            state.callers.counters.lose(numbers);
        }
        if let IdPath::Bank(live) | IdPath::WideBank(live) = &self.path
            && live.last().word().is_ours()
        {
            live.last().callers.counters.lose(numbers);
        }
    }
}
