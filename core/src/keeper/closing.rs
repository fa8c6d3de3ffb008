//! Closes under way, and the end of the process.
//!
//! A mill's keeper carries out its close. `close` waits for it; a mill that is dropped while the process ends does not. One wait at the
//! end is for all of them, so an exit takes as long as one silent store, not as long as all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, Sender};
use once_cell::sync::OnceCell;

use crate::process::revocation::ForkWord;
use crate::system::exit;

/// How long the end of a process waits for the stores of all its mills together to take numbers back.
const EXIT_WAIT: Duration = Duration::from_secs(2);
/// How often it looks whether they have. A condition that another thread holds at a fork would be held in the child for ever.
const LOOKS_EVERY: Duration = Duration::from_millis(1);

/// How many closes are under way. A forked child has none of its parent's.
static UNDER_WAY: OnceCell<ForkWord> = OnceCell::new();

static PROCESS_ENDS: AtomicBool = AtomicBool::new(false);

fn count(change: impl Fn(u64) -> u64) -> u64 {
    let word = UNDER_WAY.get_or_init(|| ForkWord::new(0)).shared();
    let changed = |value: u64| Some(change(value & !ForkWord::OURS) | ForkWord::OURS);
    // ordering: AcqRel — what a keeper did before its close ended comes before the end of the wait for it.
    let before = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
    before.unwrap_or_else(|value| value) & !ForkWord::OURS
}

/// A close that is under way until this is dropped.
pub(crate) struct Closing {
    done: Sender<()>,
}

impl Closing {
    /// Begins one. The receiver hears when it is done.
    pub(crate) fn begin() -> (Closing, Receiver<()>) {
        count(|under_way| under_way + 1);
        let (done, wait) = channel::bounded(1);
        (Closing { done }, wait)
    }

    /// It is done. The caller may have given up waiting.
    pub(crate) fn done(self) {
        let _ = self.done.send(());
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // In a child that was forked meanwhile it was counted by the parent.
        count(|under_way| under_way.saturating_sub(1));
    }
}

/// Whether the process ends.
pub(crate) fn process_ends() -> bool {
    // ordering: Relaxed — nothing is published by it.
    PROCESS_ENDS.load(Ordering::Relaxed)
}

/// From now on no mill that is dropped waits for its close.
pub(crate) fn process_begins_to_end() {
    // ordering: Relaxed — as above.
    PROCESS_ENDS.store(true, Ordering::Relaxed);
}

/// Waits for every close that is under way, if the threads that carry them out are there.
pub(crate) fn wait_for_all() {
    let give_up_at = Instant::now() + EXIT_WAIT;
    while count(|under_way| under_way) > 0 && !exit::have_threads_ended() && Instant::now() < give_up_at {
        thread::sleep(LOOKS_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_forked_child_does_not_wait_for_the_closes_of_its_parent() {
        let (closing, _wait) = Closing::begin();
        // SAFETY: the child only uses atomics and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let others = count(|under_way| under_way);
            let (own, _) = Closing::begin();
            let with_own = count(|under_way| under_way);
            drop(own);
            let status = i32::from((others, with_own) != (0, 1));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(status) };
        }
        let mut status = 0;
        // SAFETY: `pid` is our child; `status` is writable.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
        assert!(count(|under_way| under_way) > 0);
        drop(closing);
    }
}
