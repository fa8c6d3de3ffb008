//! The executor: the keeper's thread. It carries batches and store tasks to the store, and sleeps until a source is queued or due.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};

use crate::bank::{BankAnswer, BankAsk};
use crate::error::fault::FaultKind;
use crate::error::task_error::TaskError;
use crate::error::{Code, Error};
use crate::monitoring::events::{Event, EventKind, Events};
use crate::monitoring::mill_counters::MillCounters;
use crate::planner::{Answer, Ask, Batch, SourceIndex};
use crate::process::thread::panic_words;
use crate::request::bank_spec::counter_key;
use crate::request::reservation::{Fault, GiveBack};
use crate::request::worker::Renewed;
use crate::router::LiveTable;
use crate::store::contained_store::ContainedStore;
use crate::store::{Catalogue, Store};
use crate::time::Clock;

use super::closing::Closing;
use super::expiry::{Ending, Expiry};
use super::followers::Followers;
use super::{BankRest, Keeper, KeptSource};

/// The longest sleep of the keeper, so that it notices a wall clock that was set, and a lost wake-up heals.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// How many ranges a close gives back in one statement.
const GIVEN_BACK_AT_ONCE: usize = 100;
/// The same for counters of banks, which are tens of thousands.
const COUNTERS_GIVEN_BACK_AT_ONCE: usize = 512;
/// How long a close gives back: less than a caller of `close` waits.
const GIVE_BACK_TIME: Duration = Duration::from_secs(8);

/// How long the keeper rests after a defect in keymill, the first time and at most: callers get the error, and a defect that
/// recurs at once does not take a core of the host.
const DEFECT_REST: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Defects that lie further apart than this do not add up.
const DEFECT_MEMORY: Duration = Duration::from_secs(60);
/// How often the store's warnings are read.
const WARNINGS_EVERY: Duration = Duration::from_secs(1);

/// Work for the store that is no batch: `status`, `init`, `repair`.
pub(crate) type StoreTask = Box<dyn FnOnce(&mut ContainedStore) + Send>;

/// What callers ask of the thread.
pub(crate) enum Command {
    Add(KeptSource),
    Run(StoreTask),
    /// Open the router of this name.
    OpenRouter(String, Sender<Result<Option<Arc<LiveTable>>, TaskError>>),
    /// The clock was set by hand; the answer comes when every source that depends on it has been checked.
    ClockMoved(Sender<()>),
    /// Give back the unused numbers and end; the answer comes when that is done.
    Close(Closing),
}

pub(crate) struct Executor {
    pub(crate) keeper: Keeper,
    /// `None` once the mill was closed.
    pub(crate) store: Option<ContainedStore>,
    pub(crate) clock: Clock,
    pub(crate) commands: Receiver<Command>,
    pub(crate) counters: Arc<MillCounters>,
    pub(crate) events: Arc<Events>,
    pub(crate) health: Health,
    pub(crate) followers: Followers,
    /// Started with the first source whose numbers can end by themselves.
    pub(crate) expiry: Option<Expiry>,
}

/// What the executor remembers of warnings and defects.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// The warnings that were reported last, and when they were read.
    warned: Option<(Vec<String>, Instant)>,
    /// Defects in keymill that followed each other, and the last one.
    defects: u32,
    last_defect: Option<Instant>,
    rests_until: Option<Instant>,
}

/// How the store answered, for events and figures.
struct StoreAnswers<'a> {
    /// A request was carried out: the store's warnings are worth a look.
    is_well: bool,
    /// Faults of one event.
    together: Vec<&'a Fault>,
    /// What it says of all but the first of them.
    others_failed: &'static str,
    /// Faults of an event each.
    apart: Vec<&'a Fault>,
}

impl<'a> StoreAnswers<'a> {
    /// Of requests that the store answered one by one. An outage is one event for all that failed with it.
    fn new(
        answers: impl IntoIterator<Item = Result<(), &'a Fault>>,
        others_failed: &'static str,
    ) -> StoreAnswers<'a> {
        let mut outcome =
            StoreAnswers { is_well: false, together: Vec::new(), others_failed, apart: Vec::new() };
        for answer in answers {
            match answer {
                Ok(()) => outcome.is_well = true,
                Err(fault) if fault.kind.is_outage() => outcome.together.push(fault),
                Err(fault) => outcome.apart.push(fault),
            }
        }
        outcome
    }
}

impl Executor {
    /// Works until the mill is closed. A panic of a driver never gets here ([`ContainedStore`]); a panic of keymill's own code
    /// ends the planner, not the thread.
    pub(crate) fn run(mut self) {
        crate::process::random::seed();
        while let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            // Unwind safety: the planner is replaced; a close that has begun is completed by its caller.
            if self.store.is_none() {
                return;
            }
            if catch_unwind(AssertUnwindSafe(|| self.start_anew(payload))).is_err() {
                // Waiting callers end with their deadlines, and store tasks at once.
                return;
            }
        }
    }

    fn work(&mut self) {
        loop {
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Add(source) => self.add(source),
                    Command::Run(task) => {
                        self.run_task(task);
                        // One a turn, so that sources do not wait for all of them.
                        break;
                    }
                    Command::OpenRouter(name, answer) => {
                        let opened = self.open_router(&name);
                        // The caller may have given up waiting.
                        let _ = answer.send(opened);
                        break;
                    }
                    Command::ClockMoved(done) => {
                        self.keeper.clock_moved();
                        while self.turn() {}
                        // The caller may have given up waiting.
                        let _ = done.send(());
                    }
                    Command::Close(closing) => {
                        // Taken out, so that nothing is begun after a panic in here. Its connection ends before the answer: a
                        // caller who knows that the mill is closed may delete SQLite's file, and a last checkpoint would then
                        // delete the log of the file that came after it.
                        let mut store = self.store.take();
                        self.close(store.as_mut());
                        drop(store);
                        closing.done();
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
            // Connections and routers age by the system's clock, also where a test sets the mill's clock by hand.
            let system_ms = Clock::System.boot_ms();
            // One table a turn, so that neither routers nor sources wait for all of the others.
            let has_read = self.poll_router(system_ms);
            if self.turn() || has_read {
                continue;
            }
            let store = self.store.as_mut();
            let idle_at = store.and_then(|store| store.without_asking(|store| store.release_idle(system_ms)));
            if self.commands.is_empty() {
                let due_at = idle_at.into_iter().chain(self.followers.due_at()).min();
                self.sleep(due_at.map(|at| at.saturating_sub(system_ms)));
            }
        }
    }

    fn add(&mut self, source: KeptSource) {
        if source.has_ends() {
            self.expire(Ending::Source(source.clone()));
        }
        self.keeper.add(source);
    }

    /// Ends this while the keeper waits for the store, too.
    fn expire(&mut self, ending: Ending) {
        // A manual clock moves by a command, which the keeper carries out.
        if !matches!(self.clock, Clock::System) {
            return;
        }
        if self.expiry.is_none() {
            self.expiry = Expiry::start(self.clock.clone());
        }
        if let Some(expiry) = &self.expiry {
            expiry.add(ending);
        }
    }

    /// The store is about to be asked: the expiry thread ends dates meanwhile.
    fn about_to_wait(&self) {
        if let Some(expiry) = &self.expiry {
            expiry.keeper_waits();
        }
    }

    /// Reads the route table that is due for longest; `false` where none is.
    fn poll_router(&mut self, system_ms: u64) -> bool {
        if self.followers.due_at().is_none_or(|at| at > system_ms) {
            return false;
        }
        self.about_to_wait();
        let Some(store) = self.store.as_mut() else { return false };
        self.followers.poll(store, system_ms, &self.events)
    }

    fn open_router(&mut self, name: &str) -> Result<Option<Arc<LiveTable>>, TaskError> {
        self.about_to_wait();
        let Some(store) = self.store.as_mut() else { return Ok(None) };
        let opened = self.followers.open(store, name)?;
        if let Some(table) = &opened {
            self.expire(Ending::Router(table.clone()));
        }
        self.report_created();
        Ok(opened)
    }

    /// A panic in a task affects only its caller, whose answer channel is closed.
    fn run_task(&mut self, task: StoreTask) {
        self.about_to_wait();
        let Some(store) = self.store.as_mut() else { return };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(store))) {
            self.defect("a call", payload);
        }
        self.report_created();
    }

    fn defect(&self, what: &str, payload: Box<dyn Any + Send>) -> String {
        let message = format!(
            "{what} panicked: {}; this is a defect in keymill, please report it",
            panic_words(payload)
        );
        self.events.push(Event::new(EventKind::KeeperRestarted, message.clone()));
        self.counters.keeper_restarted();
        message
    }

    /// Goes on after a panic in the planner or in this file: every source gets the error, and after a rest a new planner checks
    /// each of them.
    fn start_anew(&mut self, payload: Box<dyn Any + Send>) {
        let message = self.defect("the keeper", payload);
        let now = Instant::now();
        let goes_on = self.health.last_defect.is_some_and(|last| now - last < DEFECT_MEMORY);
        self.health.defects = if goes_on { self.health.defects.saturating_add(1) } else { 0 };
        self.health.last_defect = Some(now);
        let rest = (DEFECT_REST.0 * (1 << self.health.defects.min(10))).min(DEFECT_REST.1);
        self.health.rests_until = Some(now + rest);
        let error = Error::new(Code::Internal, message).after(rest);
        self.keeper.start_anew(crate::process::random::u64(), &error, self.clock.now());
    }

    /// Carries the next batch to the store. Returns whether there was one.
    pub(super) fn turn(&mut self) -> bool {
        let most = match self.store.as_mut() {
            Some(store) => store.batch(),
            None => return false,
        };
        let Some(batch) = self.keeper.poll(self.clock.now(), most) else { return false };
        self.about_to_wait();
        let Some(store) = self.store.as_mut() else { return false };
        let started = Instant::now();
        match batch {
            Batch::Renew(indexes, renewals) => {
                let answer = store.ask(|store| store.renew_slots(&renewals));
                self.renewed(&indexes, answer);
            }
            Batch::Bank(index, ask) => {
                let answer = match ask {
                    BankAsk::Open { key, bank } => {
                        BankAnswer::Opened(store.ask(|store| store.open_bank(&key, bank)))
                    }
                    BankAsk::Reserve { indexes, requests } => {
                        let count = requests.len();
                        let answers =
                            store.ask_for_all(count, |store| store.reserve_counters(&requests), Err);
                        BankAnswer::Reserved(indexes, answers)
                    }
                };
                self.answered_bank(index, answer, started.elapsed());
            }
            Batch::One(index, ask) => {
                let answer = store.ask(|store| execute(store, &ask));
                self.answered(vec![index], vec![Some(answer)], started.elapsed());
            }
            Batch::Several(indexes, requests) => {
                let failed = |fault| Some(Err(fault));
                let reserved = store
                    .ask_for_all(requests.len(), |store| store.reserve_all(&requests), failed)
                    .into_iter();
                let answers =
                    reserved.map(|answer| answer.map(|range| range.map(Answer::Reserved))).collect();
                self.answered(indexes, answers, started.elapsed());
            }
        }
        true
    }

    /// The store answered requests of sources; `None`: it would not serve this one together with others.
    fn answered(
        &mut self,
        indexes: Vec<SourceIndex>,
        answers: Vec<Option<Result<Answer, Fault>>>,
        took: Duration,
    ) {
        for answer in answers.iter().flatten() {
            // Every source of a batch has waited for all of it.
            self.counters.refilled(took, answer.is_ok());
        }
        let outcome = StoreAnswers::new(
            answers.iter().flatten().map(|answer| answer.as_ref().map(drop)),
            "requests of this batch failed with it",
        );
        self.conversed(&outcome);
        let now = self.clock.now();
        // A store that answered too few requests has said nothing about the rest, which are retried.
        let answers = answers.into_iter().chain(std::iter::repeat_with(|| None));
        for (index, answer) in indexes.into_iter().zip(answers) {
            match answer {
                Some(answer) => self.keeper.complete(index, answer, now),
                None => self.keeper.retry_alone(index),
            }
        }
        self.counters.set_skew(self.keeper.skew_ms(now));
    }

    /// The store answered a bank.
    fn answered_bank(&mut self, index: SourceIndex, answer: BankAnswer, took: Duration) {
        let faults: Vec<&Fault> = match &answer {
            BankAnswer::Opened(opened) => opened.as_ref().err().into_iter().collect(),
            BankAnswer::Reserved(_, answers) => {
                self.counters.refilled(took, answers.iter().any(Result::is_ok));
                // A row that another process changed first is asked for again at once.
                let faults = answers.iter().filter_map(|answer| answer.as_ref().err());
                faults.filter(|fault| fault.kind != FaultKind::Conflict).collect()
            }
        };
        self.conversed(&StoreAnswers {
            is_well: faults.is_empty(),
            together: faults,
            others_failed: "counters of this batch failed",
            apart: Vec::new(),
        });
        let now = self.clock.now();
        self.keeper.complete_bank(index, answer, now);
    }

    /// Counts the round trip, then reports warnings, created files and faults, including those that another store covered.
    fn conversed(&mut self, outcome: &StoreAnswers<'_>) {
        self.counters.count_round_trip();
        let news = self.tell(Catalogue::news);
        if outcome.is_well {
            self.watch_warnings();
        }
        self.report_created();
        if let [first, others @ ..] = outcome.together.as_slice() {
            let mut event = Event::refusal(first);
            if !others.is_empty() {
                event.message.push_str(&format!(" ({} more {})", others.len(), outcome.others_failed));
            }
            self.events.push(event);
        }
        for fault in &outcome.apart {
            self.events.push(Event::refusal(fault));
        }
        for fault in news {
            self.counters.failed();
            self.events.push(Event::refusal(&fault));
        }
    }

    /// The store answered the renewal of the leased workers.
    fn renewed(&mut self, indexes: &[SourceIndex], answer: Result<Renewed, Fault>) {
        const OTHERS_FAILED: &str = "renewals of this batch failed with it";
        let outcome = match &answer {
            Ok(renewed) => {
                StoreAnswers::new(renewed.marks.iter().map(|mark| mark.as_ref().map(drop)), OTHERS_FAILED)
            }
            Err(fault) => StoreAnswers::new([Err(fault)], OTHERS_FAILED),
        };
        // A worker that another process has is an answer.
        let is_answered = outcome.apart.iter().all(|fault| fault.kind == FaultKind::Taken);
        self.counters.renewed(outcome.together.is_empty() && is_answered);
        self.conversed(&outcome);
        let now = self.clock.now();
        self.keeper.renewed(indexes, answer, now);
        self.counters.set_skew(self.keeper.skew_ms(now));
    }

    /// What the store has to tell since the last call.
    fn tell<T: Default>(&mut self, verb: impl FnOnce(&mut (dyn Store + 'static)) -> T) -> T {
        self.store.as_mut().map(|store| store.without_asking(verb)).unwrap_or_default()
    }

    /// A missing configuration opens a new file without an error: the event shows it.
    fn report_created(&mut self) {
        let created = self.tell(Catalogue::created);
        for created in created {
            self.events.push(Event::new(EventKind::StoreCreated, created));
        }
    }

    /// Makes the store's warnings a figure, and each new one an event.
    fn watch_warnings(&mut self) {
        let Some(store) = self.store.as_mut() else { return };
        let reported = match &self.health.warned {
            Some((_, at)) if at.elapsed() < WARNINGS_EVERY => return,
            Some((reported, _)) => reported.as_slice(),
            None => &[],
        };
        let first = self.health.warned.is_none();
        let warnings = match store.without_asking(Catalogue::warnings) {
            Some(warnings) => warnings,
            None if first => store.ask(Catalogue::facts).map(|facts| facts.warnings).unwrap_or_default(),
            None => reported.to_vec(),
        };
        for warning in warnings.iter().filter(|warning| !reported.contains(warning)) {
            self.events.push(Event::new(EventKind::StoreWarning, warning.clone()));
        }
        self.counters.set_warnings(warnings.len());
        self.health.warned = Some((warnings, Instant::now()));
    }

    /// Sleeps until a source is due, a connection has been idle for long enough, or another thread unparks this one.
    fn sleep(&self, idle_in_ms: Option<u64>) {
        let now = self.clock.now();
        let due_in_ms = self.keeper.wake_at(now).map(|at| at.saturating_sub(now.boot_ms));
        let pause = [due_in_ms, idle_in_ms].into_iter().flatten().min();
        let pause = pause.map_or(LONGEST_SLEEP, Duration::from_millis);
        thread::park_timeout(pause.clamp(Duration::from_micros(100), LONGEST_SLEEP));
    }

    fn close(&mut self, mut store: Option<&mut ContainedStore>) {
        let last = self.keeper.close();
        let is_well = self.keeper.failures() == 0;
        self.followers.close(store.as_deref_mut().filter(|_| is_well));
        let Some(store) = store else { return };
        store.without_asking(Catalogue::closing);
        let until = Instant::now() + GIVE_BACK_TIME;
        for ask in &last.raise {
            // Tried even where the store failed a moment ago: without it an id may come twice.
            if let Err(fault) = store.ask(|store| execute(store, ask)) {
                self.events.push(Event::refusal(&fault));
                if fault.is_outage() {
                    return;
                }
            }
        }
        // Each give-back to a store that is down would wait for its timeout; the numbers are lost instead.
        if self.keeper.failures() > 0 {
            return;
        }
        if !last.free.is_empty()
            && let Err(fault) = store.ask(|store| store.free_slots(&last.free))
        {
            self.events.push(Event::refusal(&fault));
            if fault.is_outage() {
                return;
            }
        }
        let ranges = last.give_back.chunks(GIVEN_BACK_AT_ONCE).map(<[GiveBack]>::to_vec);
        let of_banks = last.banks.iter().flat_map(|BankRest { key, counters, ranges, writer }| {
            ranges.chunks(COUNTERS_GIVEN_BACK_AT_ONCE).map(|rest| {
                let range = |&(index, lo, hi): &(u32, u64, u64)| GiveBack {
                    key: counter_key(key, *counters, index),
                    period: 0,
                    lo,
                    hi,
                    writer: *writer,
                };
                rest.iter().map(range).collect::<Vec<_>>()
            })
        });
        let ranges = ranges.map(|ranges| (false, ranges)).chain(of_banks.map(|ranges| (true, ranges)));
        for (is_bank, ranges) in ranges {
            if Instant::now() >= until {
                return;
            }
            let ranges = ranges.as_slice();
            let given = store.ask(|store| {
                if is_bank { store.give_back_counters(ranges) } else { store.give_back_all(ranges) }
            });
            match given {
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

/// Carries out the request of one source.
pub(super) fn execute(store: &mut dyn Store, ask: &Ask) -> Result<Answer, Fault> {
    match ask {
        Ask::Reserve(request) => store.reserve(request).map(Answer::Reserved),
        Ask::Raise { key, expect, to, clock: false, .. } => {
            store.raise(key, *expect, *to).map(Answer::Raised)
        }
        Ask::Raise { key, expect, to, clock: true, begin } => {
            // A user of the store may lack the right to read its clock: then marks follow this machine's.
            let store_ms = match store.clock_ms(key) {
                Err(fault) if fault.kind == FaultKind::Refused => 0,
                answer => answer?,
            };
            let before = match begin {
                Some(begin) => store.begin_mark(begin),
                None => store.raise(key, *expect, *to),
            };
            before.map(|before| Answer::RaisedAt { before, store_ms })
        }
        Ask::Take(take) => store.take_slot(take).map(Answer::Taken),
        Ask::Node { key, owner } => {
            // Two columns of 64 characters.
            let (host, process) = owner.rsplit_once(':').unwrap_or((owner, ""));
            let host: String = host.chars().take(64).collect();
            let process = format!("{process}-{}", crate::process::random::u64());
            store.make_node(key, &host, &process).map(Answer::Node)
        }
    }
}
