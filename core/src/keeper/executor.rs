//! The executor: the keeper's thread, which carries batches to the store and sleeps until a source is queued.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};

use crate::base::error::{Code, Error};
use crate::base::reservation::Fault;
use crate::base::thread::panic_words;
use crate::engine::events::{Event, Events};
use crate::engine::metrics::MillCounters;
use crate::store::Store;
use crate::time::Clock;
use crate::well::Well;

use super::Keeper;
use super::expiry::Expiry;
use crate::planner::{Answer, Ask, Batch, Now};

/// The keeper never sleeps longer than this: a wall clock that was set is noticed, a lost wake-up heals.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// How many ranges a close gives back in one go, and how long it gives back at most: less than a caller of `close` waits.
const GIVEN_BACK_AT_ONCE: usize = 100;
const LAST_WORDS: Duration = Duration::from_secs(8);

/// How long the keeper rests after a defect of keymill's own, the first time and at most: callers hear of the defect, and a
/// defect that comes back at once does not take a core of the host.
const DEFECT_REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Defects that lie further apart than this do not add up.
const DEFECT_MEMORY: Duration = Duration::from_secs(60);
/// How often the store's warnings are looked at.
const WARNINGS_EVERY: Duration = Duration::from_secs(1);

/// Work that needs the store and is not a batch: `status`, `init`, `repair`.
pub(crate) type StoreTask = Box<dyn FnOnce(&mut dyn Store) + Send>;

/// What callers ask of the thread.
pub(crate) enum Command {
    Add(Arc<Well>),
    Run(StoreTask),
    /// The sender is told when everything that hangs on the clock has been looked at.
    ClockMoved(Sender<()>),
    /// Give back what was not used, and end; the sender is told when that is done.
    Close(Sender<()>),
}

pub(crate) struct Executor {
    pub(crate) keeper: Keeper,
    /// `None` once the mill was closed.
    pub(crate) store: Option<Box<dyn Store>>,
    pub(crate) clock: Clock,
    pub(crate) commands: Receiver<Command>,
    pub(crate) counters: Arc<MillCounters>,
    pub(crate) events: Arc<Events>,
    pub(crate) health: Health,
    /// Started with the first source whose numbers can end by themselves.
    pub(crate) expiry: Option<Expiry>,
}

/// What the executor remembers of warnings and defects.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The warnings that were told last, and when they were looked at.
    warned: Option<(Vec<String>, Instant)>,
    /// Defects of keymill's own that followed each other, and the last one.
    defects: u32,
    last_defect: Option<Instant>,
    rests_until: Option<Instant>,
}

impl Executor {
    /// Works until the mill is closed. A panic of a driver never gets here (`store::guarded`); one of keymill's own code ends
    /// the planner, not the thread.
    pub(crate) fn run(mut self) {
        crate::base::random::seed();
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            // Unwind safety: the planner is replaced; a close that has begun is completed by its caller.
            if self.store.is_none() {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| self.start_anew(payload))).is_err() {
                // Nothing helps. Callers are told by their deadlines, and errands at once.
                return;
            }
        }
    }

    fn work(&mut self) {
        loop {
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Add(well) => self.add(well),
                    Command::Run(task) => self.run_task(task),
                    Command::ClockMoved(done) => {
                        self.keeper.clock_moved();
                        while self.turn() {}
                        // Nobody may be waiting any more.
                        let _ = done.send(());
                    }
                    Command::Close(done) => {
                        // Taken out, so that nothing is begun after a panic in here. Its connection ends first: who was told
                        // that the mill is closed may delete SQLite's file, and a last checkpoint would then delete the log
                        // of the file that came after it.
                        let mut store = self.store.take();
                        self.close(store.as_deref_mut());
                        drop(store);
                        // Nobody may be waiting any more: then nobody needs to know.
                        let _ = done.send(());
                        return;
                    }
                }
            }
            if let Some(left) =
                self.health.rests_until.and_then(|at| at.checked_duration_since(Instant::now()))
            {
                thread::park_timeout(left);
                continue;
            }
            if self.turn() {
                continue;
            }
            // Connections live by the system's clock, also where a test sets the mill's clock by hand.
            let system_ms = Clock::System.boot_ms();
            let idle_at = self.store.as_deref_mut().and_then(|store| store.release_idle(system_ms));
            let now = self.now();
            if self.commands.is_empty() {
                self.sleep(now, idle_at.map(|at| at.saturating_sub(system_ms)));
            }
        }
    }

    fn add(&mut self, well: Arc<Well>) {
        // A manual clock moves by a call, which the keeper answers.
        if well.spec.has_ends() && matches!(self.clock, Clock::System) {
            if self.expiry.is_none() {
                self.expiry = Expiry::start(self.clock.clone());
            }
            if let Some(expiry) = &self.expiry {
                expiry.add(well.clone());
            }
        }
        self.keeper.add(well);
    }

    /// The store is about to be asked: dates are ended by the other thread meanwhile.
    fn about_to_wait(&self) {
        if let Some(expiry) = &self.expiry {
            expiry.keeper_waits();
        }
    }

    /// A panic in an task affects only its caller, whose answer channel is closed.
    fn run_task(&mut self, task: StoreTask) {
        self.about_to_wait();
        let Some(store) = self.store.as_deref_mut() else { return };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(store))) {
            self.defect("a call", payload);
        }
        self.tell_created();
    }

    fn defect(&self, of: &str, payload: Box<dyn Any + Send>) -> String {
        let message =
            format!("{of} panicked: {}; this is a defect in keymill, please report it", panic_words(payload));
        self.events.push(Event::new("keeper_restarted", message.clone()));
        self.counters.keeper_restarted();
        message
    }

    /// Goes on after a panic in the planner or in what carries it out: every source is told, and after a rest a new planner
    /// looks at each of them.
    fn start_anew(&mut self, payload: Box<dyn Any + Send>) {
        let message = self.defect("the keeper", payload);
        let now = Instant::now();
        let goes_on = self.health.last_defect.is_some_and(|last| now - last < DEFECT_MEMORY);
        self.health.defects = if goes_on { self.health.defects.saturating_add(1) } else { 0 };
        self.health.last_defect = Some(now);
        let rest = (DEFECT_REST.0 * (1 << self.health.defects.min(10))).min(DEFECT_REST.1);
        self.health.rests_until = Some(now + rest);
        self.keeper.start_anew(
            crate::base::random::u64(),
            &Error::new(Code::Internal, message).after(rest),
            self.now(),
        );
    }

    /// Serves the sources that are queued or due, and carries one batch; `false` when there was none.
    pub(super) fn turn(&mut self) -> bool {
        let now = self.now();
        let Some(store) = self.store.as_deref_mut() else { return false };
        let Some(batch) = self.keeper.poll(now, store.batch()) else { return false };
        if let Some(expiry) = &self.expiry {
            expiry.keeper_waits();
        }
        let started = Instant::now();
        let (slots, answers) = match batch {
            Batch::One(slot, ask) => (vec![slot], vec![Some(execute(store, &ask))]),
            Batch::Several(slots, requests) => {
                let reserved = store.reserve_all(&requests).into_iter();
                (slots, reserved.map(|answer| answer.map(|range| range.map(Answer::Reserved))).collect())
            }
        };
        let took = started.elapsed();
        let news = store.news();
        self.counters.count_round_trip();
        for answer in answers.iter().flatten() {
            // Whoever was taken along has waited for all of it.
            self.counters.refilled(took, answer.is_ok());
        }
        if answers.iter().flatten().any(Result::is_ok) {
            self.watch_warnings();
        }
        self.tell_created();
        self.tell_refusals(&answers);
        for fault in news {
            self.counters.failed();
            self.events.push(Event::refusal(&fault));
        }
        let now = self.now();
        // A store that answered too few of them has said nothing about the rest, which then asks anew.
        for (slot, answer) in
            slots.into_iter().zip(answers.into_iter().chain(std::iter::repeat_with(|| None)))
        {
            match answer {
                Some(answer) => self.keeper.complete(slot, answer, now),
                None => self.keeper.retry_alone(slot),
            }
        }
        true
    }

    /// An event for each refusal; where the store itself failed, one for the whole batch.
    fn tell_refusals(&self, answers: &[Option<Result<Answer, Fault>>]) {
        let (outages, refusals): (Vec<_>, Vec<_>) = answers
            .iter()
            .flatten()
            .filter_map(|answer| answer.as_ref().err())
            .partition(|fault| fault.kind.is_outage());
        if let [first, others @ ..] = outages.as_slice() {
            let mut event = Event::refusal(first);
            if !others.is_empty() {
                event.message.push_str(&format!(" (and so did {} more that went with it)", others.len()));
            }
            self.events.push(event);
        }
        for fault in refusals {
            self.events.push(Event::refusal(fault));
        }
    }

    fn now(&self) -> Now {
        Now { boot_ms: self.clock.boot_ms(), wall_ms: self.clock.wall_ms() }
    }

    /// A missing configuration opens a new file without an error: the event shows it.
    fn tell_created(&mut self) {
        let created = self.store.as_deref_mut().map(Store::created).unwrap_or_default();
        for created in created {
            self.events.push(Event::new("store_created", created));
        }
    }

    /// What the store's settings leave to be wished for is a figure, and each new warning an event.
    fn watch_warnings(&mut self) {
        let Some(store) = self.store.as_deref_mut() else { return };
        let told = match &self.health.warned {
            Some((_, at)) if at.elapsed() < WARNINGS_EVERY => return,
            Some((told, _)) => told.as_slice(),
            None => &[],
        };
        let first = self.health.warned.is_none();
        let warnings = match store.warnings() {
            Some(warnings) => warnings,
            None if first => store.facts().map(|facts| facts.warnings).unwrap_or_default(),
            None => told.to_vec(),
        };
        for warning in warnings.iter().filter(|warning| !told.contains(warning)) {
            self.events.push(Event::new("store_warning", warning.clone()));
        }
        self.counters.set_warnings(warnings.len());
        self.health.warned = Some((warnings, Instant::now()));
    }

    /// Sleeps until a source is due, a connection has been idle for long enough, or another thread wakes it.
    fn sleep(&self, now: Now, idle_in_ms: Option<u64>) {
        let due_in_ms = self.keeper.wake_at(now).map(|at| at.saturating_sub(now.boot_ms));
        let pause = [due_in_ms, idle_in_ms].into_iter().flatten().min();
        let pause = pause.map_or(LONGEST_SLEEP, Duration::from_millis);
        thread::park_timeout(pause.clamp(Duration::from_micros(100), LONGEST_SLEEP));
    }

    fn close(&mut self, store: Option<&mut (dyn Store + 'static)>) {
        let last = self.keeper.close();
        let Some(store) = store else { return };
        let until = Instant::now() + LAST_WORDS;
        for ask in &last.raise {
            // Tried even where the store failed a moment ago: an id may come twice without it.
            if let Err(fault) = execute(store, ask) {
                self.events.push(Event::refusal(&fault));
                if fault.kind.is_outage() {
                    return;
                }
            }
        }
        // A store that is down now would make every give-back wait its timeout: the numbers are lost instead.
        if self.keeper.failures() > 0 {
            return;
        }
        for ranges in last.give_back.chunks(GIVEN_BACK_AT_ONCE) {
            if Instant::now() >= until {
                return;
            }
            match store.give_back_all(ranges) {
                Ok(taken) => {
                    for (range, _) in ranges.iter().zip(taken).filter(|(_, taken)| *taken) {
                        self.counters.gave_back(range.count());
                    }
                }
                Err(fault) => {
                    self.events.push(Event::refusal(&fault));
                    return;
                }
            }
        }
    }
}

fn execute(store: &mut dyn Store, ask: &Ask) -> Result<Answer, Fault> {
    match ask {
        Ask::Reserve(request) => store.reserve(request).map(Answer::Reserved),
        Ask::Raise { key, expect, to } => store.raise(key, *expect, *to).map(Answer::Raised),
    }
}
