//! Callers that wait without a thread of their own: tasks of an event loop, promises, virtual threads.
//!
//! An event loop has one [`Notifier`]. A caller that found no number registers with its source and tries once more; if there is nothing
//! still, it goes back to its loop. When the keeper has news for callers of the source (numbers, an error, a close), it moves their tokens
//! to their notifiers, and signals each notifier once, however many of its callers are concerned. The news end a registration: a caller
//! that finds nothing again registers again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Tells one event loop which of its callers have news. Clones are the same notifier.
#[derive(Clone)]
pub struct Notifier {
    inbox: Arc<Inbox>,
}

struct Inbox {
    /// The callers that have news and were not told yet.
    tokens: Mutex<Vec<u64>>,
    arrived: Condvar,
    signal: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").finish_non_exhaustive()
    }
}

impl Notifier {
    /// A notifier whose loop is woken by `signal`. It runs on a thread of keymill when the first token arrives after a
    /// [`Notifier::take`]; it must neither block nor panic.
    #[must_use]
    pub fn new(signal: impl Fn() + Send + Sync + 'static) -> Notifier {
        let (tokens, arrived, signal) = (Mutex::default(), Condvar::new(), Box::new(signal));
        Notifier { inbox: Arc::new(Inbox { tokens, arrived, signal }) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.inbox.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The callers that have news, in the order of the news. Never blocks.
    #[must_use]
    pub fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.lock())
    }

    /// As [`Notifier::take`]; waits at most for `longest` until there is one. For a thread that tells a loop which takes no signals.
    #[must_use]
    pub fn wait(&self, longest: Duration) -> Vec<u64> {
        let until = Instant::now() + longest;
        let mut tokens = self.lock();
        while tokens.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            tokens = self.inbox.arrived.wait_timeout(tokens, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut *tokens)
    }

    /// Adds a token, as if its caller had news. Signals as the keeper does.
    pub fn notify(&self, token: u64) {
        if self.push(token) {
            self.signal();
        }
    }

    /// Answers whether the loop has to be signalled.
    fn push(&self, token: u64) -> bool {
        let mut tokens = self.lock();
        tokens.push(token);
        tokens.len() == 1
    }

    fn signal(&self) {
        self.inbox.arrived.notify_one();
        (self.inbox.signal)();
    }
}

/// A place among the registered callers of a source: the counter of a bank (`None`: any news), and a number that is never used twice.
pub(crate) type RegisteredKey = (Option<u32>, u64);

struct Registered {
    notifier: Notifier,
    token: u64,
}

/// The registered callers of a source.
#[derive(Default)]
pub(crate) struct RegisteredCallers {
    callers: Mutex<Registry>,
    /// How many there are, so that a keeper without any takes no lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct Registry {
    by_counter: BTreeMap<RegisteredKey, Registered>,
    next: u64,
}

impl RegisteredCallers {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is none. Called after the news were published.
    pub(crate) fn is_empty(&self) -> bool {
        // ordering: SeqCst fence — pairs with the one in `register`: either this load sees the caller, or that caller's next try sees
        // the news.
        std::sync::atomic::fence(Ordering::SeqCst);
        // ordering: Relaxed — see the fence.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Registers a caller of this counter of a bank, or of the whole source. It has to try once more afterwards: the news may have come
    /// just before.
    pub(crate) fn register(&self, counter: Option<u32>, notifier: &Notifier, token: u64) -> RegisteredKey {
        let mut registry = self.lock();
        registry.next += 1;
        let key = (counter, registry.next);
        registry.by_counter.insert(key, Registered { notifier: notifier.clone(), token });
        // ordering: Relaxed — written under the lock; see the fence.
        self.count.store(registry.by_counter.len(), Ordering::Relaxed);
        drop(registry);
        // ordering: SeqCst fence — pairs with the one in `is_empty`.
        std::sync::atomic::fence(Ordering::SeqCst);
        key
    }

    /// Removes a caller, unless the news were faster.
    pub(crate) fn remove(&self, key: RegisteredKey) {
        let mut registry = self.lock();
        registry.by_counter.remove(&key);
        // ordering: Relaxed — written under the lock.
        self.count.store(registry.by_counter.len(), Ordering::Relaxed);
    }

    /// Notifies every registered caller.
    pub(crate) fn notify_all(&self) {
        if self.is_empty() {
            return;
        }
        let mut registry = self.lock();
        let callers = std::mem::take(&mut registry.by_counter);
        // ordering: Relaxed — written under the lock.
        self.count.store(0, Ordering::Relaxed);
        drop(registry);
        notify(callers.into_values());
    }

    /// Notifies the callers of these counters of a bank, and no others.
    pub(crate) fn notify(&self, counters: &[u32]) {
        if self.is_empty() {
            return;
        }
        let mut registry = self.lock();
        let mut callers = Vec::new();
        for counter in counters {
            let all = (Some(*counter), 0)..=(Some(*counter), u64::MAX);
            while let Some((&key, _)) = registry.by_counter.range(all.clone()).next() {
                callers.extend(registry.by_counter.remove(&key));
            }
        }
        // ordering: Relaxed — written under the lock.
        self.count.store(registry.by_counter.len(), Ordering::Relaxed);
        drop(registry);
        notify(callers);
    }
}

/// Hands the tokens to their notifiers, then signals each of them once. No lock is held: a signal is the language's own code.
fn notify(callers: impl IntoIterator<Item = Registered>) {
    let with_news = |caller: Registered| caller.notifier.push(caller.token).then_some(caller.notifier);
    let signalled: Vec<Notifier> = callers.into_iter().filter_map(with_news).collect();
    signalled.iter().for_each(Notifier::signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting() -> (Notifier, Arc<AtomicUsize>) {
        let signals = Arc::new(AtomicUsize::new(0));
        let counted = signals.clone();
        // ordering: Relaxed — one thread.
        let notifier = Notifier::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        (notifier, signals)
    }

    #[test]
    fn news_reach_the_callers_of_their_counters_and_each_loop_is_signalled_once() {
        let callers = RegisteredCallers::default();
        let ((one, one_signals), (other, other_signals)) = (counting(), counting());
        // ordering: Relaxed — one thread.
        let signals = || (one_signals.load(Ordering::Relaxed), other_signals.load(Ordering::Relaxed));
        for token in 0..100 {
            callers.register(Some(7), &one, token);
        }
        callers.register(Some(8), &one, 100);
        callers.register(Some(9), &other, 101);
        callers.notify(&[6, 10]);
        assert_eq!((one.take(), other.take(), signals()), (vec![], vec![], (0, 0)));
        callers.notify(&[7, 9]);
        assert_eq!((one.take(), other.take(), signals()), ((0..100).collect(), vec![101], (1, 1)));
        callers.notify(&[7]);
        assert_eq!((one.take(), signals()), (vec![], (1, 1)), "a registration ends with the news");
        callers.notify_all();
        assert_eq!((one.take(), other.take(), signals()), (vec![100], vec![], (2, 1)));
    }

    #[test]
    fn a_loop_that_has_not_looked_yet_is_not_signalled_again() {
        let callers = RegisteredCallers::default();
        let (notifier, signals) = counting();
        for token in 0..3 {
            callers.register(None, &notifier, token);
            callers.notify_all();
        }
        // ordering: Relaxed — one thread.
        assert_eq!((signals.load(Ordering::Relaxed), notifier.take()), (1, vec![0, 1, 2]));
        notifier.notify(9);
        assert_eq!(notifier.wait(Duration::from_secs(10)), [9]);
        assert!(notifier.wait(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_caller_that_was_removed_gets_no_news() {
        let callers = RegisteredCallers::default();
        let (notifier, _) = counting();
        let (gone, stays) =
            (callers.register(Some(1), &notifier, 1), callers.register(Some(1), &notifier, 2));
        callers.remove(gone);
        callers.notify(&[1]);
        callers.remove(stays);
        assert_eq!(notifier.take(), [2]);
    }
}
