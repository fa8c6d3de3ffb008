//! What a verb of rows tells its caller meanwhile, and whether the caller wants it to go on.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::error::{Code, Error, Result};

/// How long a statement is tried again that a lock, a deadlock or a lost connection stopped.
pub const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Readers that have not followed are looked at again so often.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What is done to rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsTask {
    /// They are copied to the new shard.
    Copying,
    /// They are compared in both shards.
    Comparing,
    /// The old shard's rows are looked up in the new one before the first is removed.
    Checking,
    /// They are removed from the old shard.
    Removing,
}

/// What happens while rows are copied, compared or removed. The answer says whether to go on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RowsEvent<'a> {
    /// A chunk is done. Told after each; `Break` ends the verb with `NOT_READY`, and the same call goes on from there.
    #[non_exhaustive]
    Progress {
        /// What is done.
        task: RowsTask,
        /// The table.
        table: &'a str,
        /// How much of the range is done, 0 to 1.
        share: f64,
        /// How many rows were looked at.
        rows: u64,
        /// The old shard's replies are slow, and the pauses longer for it.
        is_easing: bool,
    },
    /// Readers do not write to both shards yet, as this `NOT_READY` says. `Continue` waits and looks again; `Break` ends the verb with
    /// this error.
    Waits(&'a Error),
    /// Every reader writes to both shards; routes that were handed out before are waited for so long.
    Settles(Duration),
    /// A lock or a lost connection stopped a statement, and it is sent again.
    Retries(&'a Error),
    /// A row that differs stays as it was, for this reason.
    NotRepaired(&'a Error),
}

/// What a caller does with events.
pub type OnEvent<'c> = dyn FnMut(RowsEvent<'_>) -> ControlFlow<()> + 'c;

/// The caller that is told, and whether it has said stop.
pub struct Watch<'c> {
    on_event: RefCell<&'c mut OnEvent<'c>>,
    is_stopped: Cell<bool>,
}

impl<'c> Watch<'c> {
    pub fn new(on_event: &'c mut OnEvent<'c>) -> Watch<'c> {
        Watch { on_event: RefCell::new(on_event), is_stopped: Cell::new(false) }
    }

    /// Tells the caller.
    pub fn say(&self, event: RowsEvent<'_>) {
        // A caller that comes back here out of its own answer is not asked again.
        let Ok(mut on_event) = self.on_event.try_borrow_mut() else { return };
        if on_event(event).is_break() {
            self.is_stopped.set(true);
        }
    }

    /// Waits until the routes of before are no longer used.
    pub fn settle(&self, settle: Duration) {
        self.say(RowsEvent::Settles(settle));
        std::thread::sleep(settle);
    }

    /// Whether the caller has said stop.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    /// Refuses once the caller has said stop.
    pub fn go_on(&self, remedy: &str) -> Result<()> {
        if self.is_stopped.get() {
            return Err(Error::new(Code::NotReady, format!("stopped; {remedy}")));
        }
        Ok(())
    }

    /// Tries again what a lock or a lost connection stopped. What is sent here may be sent twice.
    pub fn persist<T>(&self, work: impl FnMut() -> Result<T>) -> Result<T> {
        self.persist_for(PATIENCE, work)
    }

    /// As [`Watch::persist`], for another time.
    pub fn persist_for<T>(&self, patience: Duration, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let (began, mut pause) = (Instant::now(), Duration::from_millis(20));
        loop {
            match work() {
                Err(error)
                    if error.code == Code::StoreUnavailable
                        && began.elapsed() < patience
                        && !self.is_stopped.get() =>
                {
                    self.say(RowsEvent::Retries(&error));
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Asks the store of routes, and asks again while readers have not followed and the caller waits for them. A store that cannot be reached is
    /// tried as [`Watch::persist`] does.
    pub fn patiently<T>(&self, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            match self.persist(&mut ask) {
                Err(error) if error.code == Code::NotReady => {
                    let Some(pause) = error.retry_after else { return Err(error) };
                    self.say(RowsEvent::Waits(&error));
                    if self.is_stopped.get() {
                        return Err(error);
                    }
                    std::thread::sleep(pause.clamp(LOOK_AGAIN.0, LOOK_AGAIN.1));
                }
                answer => return answer,
            }
        }
    }
}
