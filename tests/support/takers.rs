//! Threads that take ids at a steady pace during a fault, and the ids and errors they got.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use keymill::{Code, Error, Source};

/// Waits until a condition holds; panics with its name after a time limit.
///
/// # Panics
/// When it does not come true in time.
pub fn until(what: &str, patience: Duration, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + patience;
    while !is_true() {
        assert!(Instant::now() < give_up, "waited {patience:?} in vain until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sets its flag when it is dropped, so that a test's threads end when the test panics.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // ordering: Relaxed — a flag, nothing hangs on it.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes a call again for as long as the store does not answer in time; for calls that may be repeated. Any other answer is
/// the call's.
///
/// # Errors
/// The call's; after two minutes this one too.
pub fn persistently<T>(mut call: impl FnMut() -> keymill::Result<T>) -> keymill::Result<T> {
    let give_up = Instant::now() + Duration::from_secs(120);
    loop {
        match call() {
            Err(error)
                if matches!(error.code, Code::StoreUnavailable | Code::Deadline | Code::NotReady)
                    && Instant::now() < give_up =>
            {
                eprintln!("{error}");
                thread::sleep(Duration::from_millis(2));
            }
            answer => return answer,
        }
    }
}

/// The ids and errors of a group of takers.
#[derive(Debug, Default)]
pub struct Takers {
    got: Mutex<Vec<u64>>,
    errors: Mutex<Vec<(Duration, Error)>>,
    over: AtomicBool,
    count: AtomicU64,
}

impl Takers {
    fn take(&self, source: &Source, batch: usize, pause: Duration) {
        // ordering: Relaxed — a flag and a counter.
        while !self.over.load(Ordering::Relaxed) {
            let asked = Instant::now();
            match source.take(batch) {
                Ok(ids) => {
                    // ordering: Relaxed — as above.
                    self.count.fetch_add(ids.len() as u64, Ordering::Relaxed);
                    self.got.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
                }
                Err(error) => {
                    let met = (asked.elapsed(), error);
                    self.errors.lock().unwrap_or_else(PoisonError::into_inner).push(met);
                }
            }
            thread::sleep(pause);
        }
    }

    /// How many ids there are so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        // ordering: Relaxed — a counter.
        self.count.load(Ordering::Relaxed)
    }

    /// Every error so far, and how long its caller had waited.
    #[must_use]
    pub fn errors(&self) -> Vec<(Duration, Error)> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a caller got this code with these words.
    #[must_use]
    pub fn met(&self, code: Code, says: &str) -> bool {
        self.errors().iter().any(|(_, error)| error.code == code && error.message.contains(says))
    }

    /// The ids so far.
    #[must_use]
    pub fn got(&self) -> Vec<u64> {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The highest id so far.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.got.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().max().unwrap_or(0)
    }

    /// Runs `work` beside a taker on each of these sources and stops them whatever happens; answers with how many ids there
    /// were.
    ///
    /// # Panics
    /// Where an id came twice, or `work` panics.
    pub fn beside(&self, sources: &[&Source], batch: usize, pause: Duration, work: impl FnOnce()) -> usize {
        // ordering: Relaxed — a flag, here and below.
        self.over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            for source in sources {
                scope.spawn(move || self.take(source, batch, pause));
            }
            let outcome = catch_unwind(AssertUnwindSafe(work));
            if let (Err(_), Some((_, last))) = (&outcome, self.errors().last()) {
                println!("the takers' last error: {last}");
            }
            self.over.store(true, Ordering::Relaxed);
            outcome.unwrap_or_else(|panic| resume_unwind(panic));
        });
        self.distinct()
    }

    /// How many ids there are; panics if an id came twice.
    ///
    /// # Panics
    /// That is the point.
    pub fn distinct(&self) -> usize {
        let got = self.got.lock().unwrap_or_else(PoisonError::into_inner);
        let distinct: HashSet<_> = got.iter().collect();
        assert_eq!(distinct.len(), got.len(), "an id was handed out twice");
        got.len()
    }
}
