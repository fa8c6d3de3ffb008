//! The executor: the keeper's thread, which carries flights to the store and sleeps until somebody rings. (floor 3)

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};

use crate::events::{Event, Events};
use crate::metrics::MillTally;
use crate::reservation::Fault;
use crate::store::Store;
use crate::time::Clock;
use crate::well::Well;

use super::Keeper;
use super::plan::{Answer, Ask, Flight, Now};

/// The keeper never sleeps longer than this: a wall clock that was set is noticed, a lost wake-up heals.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// How many ranges a close gives back in one go, and how long it gives back at most: less than a caller of `close` waits.
const GIVEN_BACK_AT_ONCE: usize = 100;
const LAST_WORDS: Duration = Duration::from_secs(8);

/// Work that needs the store and is not a flight: `status`, `init`, `repair`.
pub(crate) type Errand = Box<dyn FnOnce(&mut dyn Store) + Send>;

/// What callers ask of the thread.
pub(crate) enum Command {
    Add(Arc<Well>),
    Run(Errand),
    /// The sender is told when everything that hangs on the clock has been looked at.
    ClockMoved(Sender<()>),
    /// Give back what was not used, and end; the sender is told when that is done.
    Close(Sender<()>),
}

pub(crate) struct Executor {
    pub(crate) keeper: Keeper,
    pub(crate) store: Box<dyn Store>,
    pub(crate) clock: Clock,
    pub(crate) commands: Receiver<Command>,
    pub(crate) tally: Arc<MillTally>,
    pub(crate) events: Arc<Events>,
    /// The store's warnings have been told.
    pub(crate) warned: bool,
}

impl Executor {
    pub(crate) fn run(mut self) {
        crate::random::seed();
        loop {
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Add(well) => self.keeper.add(well),
                    Command::Run(errand) => errand(&mut *self.store),
                    Command::ClockMoved(done) => {
                        self.keeper.clock_moved();
                        while self.turn() {}
                        // Nobody may be waiting any more.
                        let _ = done.send(());
                    }
                    Command::Close(done) => {
                        self.close();
                        // First the connection: who was told that the mill is closed may delete SQLite's file, and a
                        // last checkpoint would then delete the log of the file that came after it.
                        drop(self.store);
                        // Nobody may be waiting any more: then nobody needs to know.
                        let _ = done.send(());
                        return;
                    }
                }
            }
            if self.turn() {
                continue;
            }
            // Connections live by the system's clock, also where a test sets the mill's clock by hand.
            let system_ms = Clock::System.boot_ms();
            let idle_at = self.store.release_idle(system_ms);
            let now = self.now();
            if self.commands.is_empty() {
                self.sleep(now, idle_at.map(|at| at.saturating_sub(system_ms)));
            }
        }
    }

    /// Attends to whoever rang or is due, and carries one flight; `false` when there was none.
    pub(super) fn turn(&mut self) -> bool {
        let Some(flight) = self.keeper.attend(self.now(), self.store.batch()) else { return false };
        let started = Instant::now();
        let (slots, answers) = match flight {
            Flight::Alone(slot, ask) => (vec![slot], vec![Some(self.fly(&ask))]),
            Flight::Together(slots, requests) => {
                let reserved = self.store.reserve_all(&requests).into_iter();
                (slots, reserved.map(|answer| answer.map(|range| range.map(Answer::Reserved))).collect())
            }
        };
        let took = started.elapsed();
        self.tally.flew();
        for answer in answers.iter().flatten() {
            // Whoever was taken along has waited for all of it.
            self.tally.refilled(took, answer.is_ok());
        }
        if answers.iter().flatten().any(Result::is_ok) {
            self.warn_once();
        }
        self.tell_refusals(&answers);
        for fault in self.store.news() {
            self.tally.failed();
            self.events.push(Event::refusal(&fault));
        }
        let now = self.now();
        // A store that answered too few of them has said nothing about the rest, which then asks anew.
        for (slot, answer) in
            slots.into_iter().zip(answers.into_iter().chain(std::iter::repeat_with(|| None)))
        {
            match answer {
                Some(answer) => self.keeper.land(slot, answer, now),
                None => self.keeper.fly_alone(slot),
            }
        }
        true
    }

    /// An event for each refusal; where the store itself failed, one for the whole flight.
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

    fn fly(&mut self, ask: &Ask) -> Result<Answer, Fault> {
        match ask {
            Ask::Reserve(request) => self.store.reserve(request).map(Answer::Reserved),
            Ask::Raise { key, expect, to } => self.store.raise(key, *expect, *to).map(Answer::Raised),
        }
    }

    /// After the first answer, what the store's settings leave to be wished for becomes an event.
    fn warn_once(&mut self) {
        if std::mem::replace(&mut self.warned, true) {
            return;
        }
        for warning in self.store.facts().map(|facts| facts.warnings).unwrap_or_default() {
            self.events.push(Event::new("store_warning", warning));
        }
    }

    /// Sleeps until a source is due, a connection has been idle for long enough, or somebody wakes the thread.
    fn sleep(&self, now: Now, idle_in_ms: Option<u64>) {
        let due_in_ms = self.keeper.wake_at(now).map(|at| at.saturating_sub(now.boot_ms));
        let pause = [due_in_ms, idle_in_ms].into_iter().flatten().min();
        let pause = pause.map_or(LONGEST_SLEEP, Duration::from_millis);
        thread::park_timeout(pause.clamp(Duration::from_micros(100), LONGEST_SLEEP));
    }

    fn close(&mut self) {
        let last = self.keeper.close();
        let until = Instant::now() + LAST_WORDS;
        for ask in &last.raise {
            // Tried even where the store failed a moment ago: an id may come twice without it.
            if let Err(fault) = self.fly(ask) {
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
            match self.store.give_back_all(ranges) {
                Ok(taken) => {
                    for (range, _) in ranges.iter().zip(taken).filter(|(_, taken)| *taken) {
                        self.tally.gave_back(range.count());
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
