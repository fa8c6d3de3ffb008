//! The expiry thread of a mill: it ends dates and times to live while the keeper's thread waits for a store.
//!
//! The keeper does the same at each of its looks; but a store that is silent holds it for its timeout, and a number must not
//! bear yesterday's date for so long. The thread is started with the first source whose numbers can end. It sleeps until the
//! next end and is woken when the keeper begins to wait, because an end may be nearer by then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender};

use crate::base::thread::spawn;
use crate::time::Clock;
use crate::well::Well;

use crate::planner::Now;

/// The wall clock is looked at this often while an end is to come: it may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The way to the thread, which ends when this is dropped.
pub(crate) struct Expiry {
    to_thread: Sender<Option<Arc<Well>>>,
}

impl Expiry {
    /// Starts the thread. `None` where the system starts no further one: then the keeper alone ends dates.
    pub(crate) fn start(clock: Clock) -> Option<Expiry> {
        let (to_thread, inbox) = channel::unbounded();
        spawn("keymill-expiry", move || run(&inbox, &clock)).ok()?;
        Some(Expiry { to_thread })
    }

    /// Takes a source in.
    pub(crate) fn add(&self, well: Arc<Well>) {
        // If the thread has ended, the keeper still ends dates at each of its looks.
        let _ = self.to_thread.send(Some(well));
    }

    /// The keeper is about to wait for a store.
    pub(crate) fn keeper_waits(&self) {
        let _ = self.to_thread.send(None);
    }
}

/// A look at all sources takes one part in so many of this thread's time at most: the keeper may wait thousands of times a
/// second, and a mill may have a hundred thousand sources.
const SHARE: u32 = 10;

fn run(inbox: &Receiver<Option<Arc<Well>>>, clock: &Clock) {
    let mut wells: Vec<Arc<Well>> = Vec::new();
    loop {
        let began = Instant::now();
        let now = Now { boot_ms: clock.boot_ms(), wall_ms: clock.wall_ms() };
        let next = wells.iter().filter_map(|well| well.expire(now)).min();
        let looked = Instant::now();
        let due = next.map(|ms| looked + Duration::from_millis(ms).min(LONGEST_SLEEP));
        let message = match due {
            Some(due) => inbox.recv_deadline(due),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(well) => wells.extend(well),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // Many batches may have begun meanwhile: one look is enough for all of them.
        let rested = looked + (looked - began) * SHARE;
        let until = due.map_or(rested, |due| due.min(rested));
        loop {
            match inbox.recv_deadline(until) {
                Ok(well) => wells.extend(well),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
