//! The engine of a mill: a keeper thread with its store, and the sources that it serves. A forked child starts an engine of its own.

pub(crate) mod metrics;
mod shared;
pub(crate) mod stats;

pub(crate) use shared::{IdPath, Live, SharedMill, SharedSource};

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam::channel::{self, Receiver, Sender};

use crate::callers::waker::ReadyQueue;
use crate::config::{MillConfig, StoreConfig};
use crate::engine::stats::Stats;
use crate::error::task_error::TaskError;
use crate::error::{Code, Error, Result, shown};
use crate::keeper::closing::{self, Closing};
use crate::keeper::executor::{Command, Executor, Health};
use crate::keeper::followers::Followers;
use crate::keeper::own_readers::OwnReaders;
use crate::keeper::routers::Routers;
use crate::keeper::{Keeper, KeptSource};
use crate::monitoring::events::{Event, EventKind, Events};
use crate::monitoring::mill_counters::MillCounters;
use crate::process::revocation::RevocationWord;
use crate::process::thread;
use crate::router::LiveTable;
use crate::segment::cursor;
use crate::spec::{Order, SnowflakeSpec, Spec, Worker};
use crate::store::contained_store::{ContainedStore, MakeStore, OnPanic};
use crate::store::{Store, interleave, memory};
use crate::time::Clock;

/// How long `close` waits for the keeper: a batch's own timeouts are shorter.
const CLOSE_WAIT: Duration = Duration::from_secs(10);
/// How long a store task may wait for the keeper and the store.
const TASK_WAIT: Duration = Duration::from_secs(30);

pub(crate) struct Engine {
    clock: Clock,
    ready: Arc<ReadyQueue>,
    commands: Sender<Command>,
    sources: Mutex<OpenSources>,
    next_index: AtomicUsize,
    closed: AtomicBool,
    pub(crate) counters: Arc<MillCounters>,
    pub(crate) events: Arc<Events>,
    max_sources: usize,
    /// Zero in a forked child.
    word: RevocationWord,
    /// It was started in a forked child.
    revived: bool,
}

#[derive(Default)]
struct OpenSources {
    /// By [`Spec::identity`].
    all: HashMap<String, KeptSource>,
    /// The fixed workers among them ([`Spec::fixed_worker`]). A set, so that opening many is not quadratic.
    snowflakes: HashSet<String>,
}

/// The store that a configuration names; nothing is connected yet. A panic is caught for each driver by itself, so
/// it fails one of several stores only.
fn store_for(
    config: &StoreConfig,
    folder: &Path,
    clock: &Clock,
    on_panic: &OnPanic,
) -> Result<ContainedStore> {
    if let StoreConfig::Interleaved { stores, chunk } = config {
        let each = stores.iter().map(|store| Ok((store.shown(), store_for(store, folder, clock, on_panic)?)));
        let several: Box<dyn Store> =
            Box::new(interleave::Interleaved::new(each.collect::<Result<_>>()?, *chunk));
        return Ok(several.into());
    }
    Ok(ContainedStore::new(maker_for(config, folder, clock)?, on_panic.clone()))
}

/// Makes a store: once for an engine, and again after a panic of its driver.
#[cfg_attr(not(feature = "sqlite"), allow(unused_variables))]
fn maker_for(config: &StoreConfig, folder: &Path, clock: &Clock) -> Result<MakeStore> {
    match config {
        StoreConfig::Memory { name, script } => {
            // Made once: the rows outlive a store that panicked.
            let memory = if name.is_empty() { memory::Memory::new() } else { memory::Memory::named(name) };
            memory.script(script.iter().cloned());
            if let Clock::Manual(_) = clock {
                memory.set_clock(clock.clone());
            }
            Ok(Box::new(move || Box::new(memory::MemoryStore::new(memory.clone()))))
        }
        #[cfg(feature = "sqlite")]
        StoreConfig::Sqlite { path, durability, busy } => {
            let options = crate::store::sqlite::SqliteOptions { durability: *durability, busy: *busy };
            let path = folder.join(path);
            Ok(Box::new(move || {
                Box::new(crate::store::sqlite::SqliteStore::new(path.clone(), options.clone()))
            }))
        }
        #[cfg(not(feature = "sqlite"))]
        StoreConfig::Sqlite { .. } => Err(without("SQLite", "sqlite")),
        #[cfg(feature = "mysql")]
        StoreConfig::Mysql(server) => {
            let server = server.clone();
            Ok(Box::new(move || Box::new(crate::store::mysql::MysqlStore::new(server.clone()))))
        }
        #[cfg(not(feature = "mysql"))]
        StoreConfig::Mysql(_) => Err(without("MySQL", "mysql")),
        StoreConfig::Interleaved { .. } => {
            Err(Error::new(Code::Internal, "several stores are made one by one"))
        }
        #[cfg(feature = "postgres")]
        StoreConfig::Postgres(server) => {
            let server = server.clone();
            Ok(Box::new(move || Box::new(crate::store::postgres::PostgresStore::new(server.clone()))))
        }
        #[cfg(not(feature = "postgres"))]
        StoreConfig::Postgres(_) => Err(without("PostgreSQL", "postgres")),
        #[cfg(feature = "redis")]
        StoreConfig::Redis { server, sentinel, wait_replicas } => {
            let options = crate::store::redis::RedisOptions {
                server: server.clone(),
                sentinel: sentinel.clone(),
                wait_replicas: *wait_replicas,
            };
            Ok(Box::new(move || Box::new(crate::store::redis::RedisStore::new(options.clone()))))
        }
        #[cfg(not(feature = "redis"))]
        StoreConfig::Redis { .. } => Err(without("Redis", "redis")),
    }
}

/// The driver of this store is not in the program, because a feature of the crate is off.
#[cfg(not(all(feature = "sqlite", feature = "mysql", feature = "postgres", feature = "redis")))]
fn without(store: &str, feature: &str) -> Error {
    Error::config(format!(
        "this program was built without {store}: add the feature `{feature}` of the crate keymill in its Cargo.toml, `keymill = {{ version = \"{}\", features = [\"{feature}\"] }}`",
        env!("CARGO_PKG_VERSION")
    ))
}

impl Engine {
    pub(crate) fn start(
        config: &MillConfig,
        folder: &Path,
        clock: Clock,
        routers: Arc<Routers>,
        revived: bool,
    ) -> Result<Self> {
        let ready = Arc::new(ReadyQueue::default());
        let (commands, inbox) = channel::unbounded();
        let engine = Engine {
            clock: clock.clone(),
            ready: ready.clone(),
            commands,
            sources: Mutex::default(),
            next_index: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            counters: Arc::default(),
            events: Arc::new(Events::new()),
            max_sources: config.max_sources,
            word: RevocationWord::new(),
            revived,
        };
        let (counters, events) = (engine.counters.clone(), engine.events.clone());
        let on_panic: OnPanic = Arc::new(move |message| {
            counters.driver_panicked();
            events.push(Event::new(EventKind::DriverPanicked, message));
        });
        if !config.ignored.is_empty() && !revived {
            engine.events.push(Event::new(
                EventKind::SettingsIgnored,
                format!(
                    "a store does not need these settings of the application's database: {}",
                    config.ignored.join(", ")
                ),
            ));
        }
        let mut keeper = Keeper::new(crate::process::random::u64(), ready.clone());
        keeper.set_owner(thread::process_name().into());
        let executor = Executor {
            keeper,
            store: Some(store_for(&config.store, folder, &clock, &on_panic)?),
            clock,
            commands: inbox,
            counters: engine.counters.clone(),
            events: engine.events.clone(),
            expiry: None,
            health: Health::default(),
            followers: Followers::new(
                OwnReaders::new(config.reader_lease_ms, thread::process_name().into()),
                routers,
            ),
        };
        let thread = thread::spawn("keymill-keeper", move || executor.run())
            .map_err(|error| thread::not_started("the mill", &error))?;
        ready.set_keeper(thread.thread().clone());
        Ok(engine)
    }

    /// Whether this engine belongs to this process, and not to its parent before a fork.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.word.is_ours()
    }

    fn sources(&self) -> MutexGuard<'_, OpenSources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn max_sources(&self) -> usize {
        self.max_sources
    }

    pub(crate) fn closed_error(label: Option<&str>) -> Error {
        let whose = label.map_or_else(String::new, |label| format!(" of `{label}`"));
        Error::new(Code::Closed, format!("the mill{whose} was closed"))
    }

    /// Why the keeper does not answer.
    fn no_keeper(&self) -> Error {
        if self.is_closed() {
            return Self::closed_error(None);
        }
        Error::new(
            Code::Internal,
            "the keeper of this mill has ended by a defect in keymill; open the mill again, and please report it",
        )
    }

    fn command(&self, command: Command) -> Result<()> {
        self.commands.send(command).map_err(|_| self.no_keeper())?;
        self.ready.unpark();
        Ok(())
    }

    /// The source of a spec; two spellings of one spec share it.
    pub(crate) fn source(&self, spec: &Arc<Spec>) -> Result<KeptSource> {
        let mut sources = self.sources();
        if self.is_closed() {
            return Err(Self::closed_error(None));
        }
        let identity = spec.identity();
        if let Some(source) = sources.all.get(&identity) {
            return Ok(source.clone());
        }
        if sources.all.len() >= self.max_sources {
            return Err(Error::argument(format!(
                "`{}` exceeds `max_sources={}`. Each source keeps its memory until the mill is closed, so do not make names from user input; if so many sources are intended, raise `max_sources`",
                shown(&spec.label),
                self.max_sources
            )));
        }
        if let Some(other) =
            sources.all.values().map(KeptSource::spec).find(|other| other.key.contradicts(&spec.key))
        {
            return Err(Error::config(format!(
                "`{}`: `{}` of this mill reads the same sequence, `{}`, with `optimizer={}`: each would issue numbers of the other; write the same `optimizer` in both",
                spec.label,
                other.label,
                other.key.table,
                other.key.optimizer()
            )));
        }
        if let Some(zone) = sources.all.values().find_map(|other| spec.other_zone(other.spec())) {
            return Err(Error::config(format!(
                "`{}` is open in this mill with `zone={}`, and this is `zone={}`: a day would begin twice. Write the same `zone=` in both; the zone of a program has to be set before its first serial",
                spec.label,
                shown(zone),
                shown(spec.zone().unwrap_or_default())
            )));
        }
        if spec.takes_program_zone {
            let zone = shown(spec.zone().unwrap_or_default());
            let message = format!("{}: its dates are in the program's time zone, {zone}", spec.label);
            self.events.push(Event::new(EventKind::LocalZone, message));
        }
        if let Some(SnowflakeSpec { layout, worker, .. }) = &spec.snowflake {
            if let (true, Worker::Fixed(worker)) = (self.revived, worker) {
                return Err(Error::new(
                    Code::Forked,
                    format!(
                        "`{}`: this process was forked, and its parent may be using worker {worker}; open a mill in the child with a worker of its own",
                        spec.label
                    ),
                ));
            }
            if let Worker::Fixed(worker) = worker
                && spec.fixed_worker().is_some_and(|own| sources.snowflakes.contains(&own))
            {
                return Err(Error::config(format!(
                    "worker {worker} of `{}` is open in this mill with other options; one generator serves one worker",
                    spec.label
                )));
            }
            match layout.check_life(self.clock.wall_ms()) {
                Ok(Some(warning)) => {
                    self.events
                        .push(Event::new(EventKind::LayoutEnding, format!("{}: {warning}", spec.label)));
                }
                // The source of an ended layout can be opened: its first call fails, and its old ids can still be parsed.
                Err(error) if error.code != Code::LayoutEnded => return Err(error),
                _ => {}
            }
        }
        // ordering: Relaxed — only uniqueness matters.
        let index = self.next_index.fetch_add(1, Ordering::Relaxed);
        let source = KeptSource::new(spec.clone(), self.ready.clone(), index, self.clock.clone())?;
        self.command(Command::Add(source.clone()))?;
        sources.snowflakes.extend(spec.fixed_worker());
        sources.all.insert(identity, source.clone());
        Ok(source)
    }

    /// Runs `task` with the store, on the keeper's thread, and answers with what it returned.
    pub(crate) fn run_on_store<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut dyn Store) -> std::result::Result<T, TaskError> + Send + 'static,
    ) -> std::result::Result<T, TaskError> {
        let (sender, answer) = channel::bounded(1);
        self.command(Command::Run(Box::new(move |store| {
            // The caller may have given up waiting.
            let _ = sender.send(store.ask(|store| task(store)));
        })))?;
        self.wait_for(&answer)?
    }

    /// Opens the router of this name on the keeper's thread; `None`: the store has no such table.
    pub(crate) fn open_router(&self, name: &str) -> std::result::Result<Option<Arc<LiveTable>>, TaskError> {
        let (sender, answer) = channel::bounded(1);
        self.command(Command::OpenRouter(name.to_owned(), sender))?;
        self.wait_for(&answer)?
    }

    fn wait_for<T>(&self, answer: &Receiver<T>) -> Result<T> {
        answer.recv_timeout(TASK_WAIT).map_err(|error| match error {
            channel::RecvTimeoutError::Timeout => {
                Error::new(Code::Deadline, "the store did not answer within 30 s; try again")
            }
            channel::RecvTimeoutError::Disconnected => self.no_keeper(),
        })
    }

    /// A manual clock was moved: waits until every source that depends on it has been checked.
    pub(crate) fn clock_moved(&self) -> Result<()> {
        let (done, wait) = channel::bounded(1);
        self.command(Command::ClockMoved(done))?;
        // A keeper that waits for a store reads the clock afterwards.
        let _ = wait.recv_timeout(CLOSE_WAIT);
        Ok(())
    }

    pub(crate) fn is_closed(&self) -> bool {
        // ordering: Acquire — pairs with the swap in `close`.
        self.closed.load(Ordering::Acquire)
    }

    /// Closes for good: every later call answers `CLOSED`, unused numbers go back, the keeper ends.
    pub(crate) fn close(&self) {
        // A keeper that waits for a silent store ends by itself later; the caller does not wait for it.
        if self.begin_close().is_some_and(|done| done.recv_timeout(CLOSE_WAIT).is_err()) {
            self.close_sources();
        }
    }

    /// As [`Engine::close`], without waiting for the keeper. The receiver hears when it has ended; `None`: there is nothing to wait for.
    pub(crate) fn begin_close(&self) -> Option<Receiver<()>> {
        // Counted before the mill is closed, so that the end of the process misses none that another thread has begun.
        let (closing, done) = Closing::begin();
        {
            // Under the lock, so that no source is added after the close.
            let _sources = self.sources();
            // ordering: AcqRel — one closer; pairs with `is_closed`.
            if self.closed.swap(true, Ordering::AcqRel) {
                return None;
            }
        }
        self.give_back_blocks_of_thread();
        if self.command(Command::Close(closing)).is_err() {
            self.close_sources();
            return None;
        }
        Some(done)
    }

    /// What the keeper would have given back is lost. But after a close no caller gets a number, even without a keeper.
    fn close_sources(&self) {
        self.sources().all.values().for_each(KeptSource::close);
    }

    /// Gives back what is left of the closing thread's own blocks. (Another thread's blocks may be in use.)
    fn give_back_blocks_of_thread(&self) {
        let sources: Vec<_> = self.sources().all.values().cloned().collect();
        for source in sources {
            if let KeptSource::Segment(source) = source
                && source.spec().order == Order::Thread
            {
                cursor::give_back_of_thread(&source);
            }
        }
    }

    /// The figures of every source, by name.
    pub(crate) fn all_stats(&self) -> Vec<Stats> {
        let sources: Vec<_> = self.sources().all.values().cloned().collect();
        let mut stats: Vec<_> = sources.iter().map(Stats::of).collect();
        stats.sort_by(|a, b| (&a.source, &a.spec).cmp(&(&b.source, &b.spec)));
        stats
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // A forked child must not touch the engine of its parent.
        if !self.is_ours() {
            return;
        }
        if closing::process_ends() {
            // One wait comes for all mills.
            self.begin_close();
        } else {
            self.close();
        }
    }
}
