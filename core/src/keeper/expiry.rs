//! The expiry thread of a mill: it ends dates, times to live and leases (of workers, and of routers) while the keeper's thread waits for a
//! store.
//!
//! The keeper does the same whenever it checks a source; but a silent store holds it for its timeout, and a number must not bear
//! yesterday's date for so long. The thread starts with the first source whose numbers can end. It sleeps until the next end, and
//! is woken when the keeper begins to wait, because an end may be nearer by then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError, Sender};

use crate::process::thread::spawn;
use crate::router::LiveTable;
use crate::time::{Clock, Now};

use super::KeptSource;

/// While an end is to come, the wall clock is read this often: it may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A pass over all sources takes at most one part in so many of this thread's time: the keeper may wait thousands of times a
/// second, and a mill may have a hundred thousand sources.
const SHARE: u32 = 10;

/// What can end by itself.
pub(super) enum Ending {
    Source(KeptSource),
    /// The right to answer for ranges that move.
    Router(Arc<LiveTable>),
}

impl Ending {
    /// Ends what is over by now. Answers with the milliseconds until the next end, where there is one.
    fn expire(&self, now: Now) -> Option<u64> {
        match self {
            Ending::Source(source) => source.expire(now),
            Ending::Router(table) => table.expire(now.boot_ms),
        }
    }
}

/// The channel to the thread, which ends when this is dropped.
pub(crate) struct Expiry {
    to_thread: Sender<Option<Ending>>,
}

impl Expiry {
    /// Starts the thread. `None` where the system starts no further one: then the keeper alone ends dates.
    pub(crate) fn start(clock: Clock) -> Option<Expiry> {
        let (to_thread, inbox) = channel::unbounded();
        spawn("keymill-expiry", move || run(&inbox, &clock)).ok()?;
        Some(Expiry { to_thread })
    }

    /// Takes a source or a router in.
    pub(super) fn add(&self, ending: Ending) {
        // If the thread has ended, the keeper still ends dates whenever it checks a source, and leases whenever it renews one.
        let _ = self.to_thread.send(Some(ending));
    }

    /// The keeper is about to wait for a store.
    pub(crate) fn keeper_waits(&self) {
        let _ = self.to_thread.send(None);
    }
}

fn run(inbox: &Receiver<Option<Ending>>, clock: &Clock) {
    let mut sources: Vec<Ending> = Vec::new();
    loop {
        let began = Instant::now();
        let now = clock.now();
        let next = sources.iter().filter_map(|source| source.expire(now)).min();
        let ended = Instant::now();
        let due = next.map(|ms| ended + Duration::from_millis(ms).min(LONGEST_SLEEP));
        let message = match due {
            Some(due) => inbox.recv_deadline(due),
            None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match message {
            Ok(source) => sources.extend(source),
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // The keeper may have begun several waits meanwhile: one pass serves them all.
        let rested = ended + (ended - began) * SHARE;
        let until = due.map_or(rested, |due| due.min(rested));
        loop {
            match inbox.recv_deadline(until) {
                Ok(source) => sources.extend(source),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}
