//! Atomics and spinning, taken from std or, under `--cfg loom`, from the model checker.
//!
//! Every algorithm of the id path imports its atomics from here, so the code that loom explores is the code that ships.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use crossbeam::queue::ArrayQueue;
#[cfg(not(loom))]
pub(crate) use crossbeam::utils::{Backoff, CachePadded};

/// loom's scheduler needs a yield where real code would spin.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Backoff;

#[cfg(loom)]
impl Backoff {
    pub(crate) fn new() -> Self {
        Backoff
    }
    pub(crate) fn snooze(&self) {
        loom::thread::yield_now();
    }
}

/// The model checker has no cache lines.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct CachePadded<T>(T);

#[cfg(loom)]
impl<T> CachePadded<T> {
    pub(crate) fn new(value: T) -> Self {
        CachePadded(value)
    }
}

#[cfg(loom)]
impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// crossbeam's queue is not modelled: here it is a queue behind a lock.
#[cfg(loom)]
pub(crate) struct ArrayQueue<T> {
    queue: loom::sync::Mutex<std::collections::VecDeque<T>>,
    most: usize,
}

#[cfg(loom)]
impl<T> ArrayQueue<T> {
    pub(crate) fn new(most: usize) -> Self {
        ArrayQueue { queue: loom::sync::Mutex::default(), most }
    }
    fn with<R>(&self, what: impl FnOnce(&mut std::collections::VecDeque<T>) -> R) -> R {
        what(&mut self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
    pub(crate) fn push(&self, value: T) -> Result<(), T> {
        self.with(|queue| {
            if queue.len() == self.most {
                return Err(value);
            }
            queue.push_back(value);
            Ok(())
        })
    }
    pub(crate) fn pop(&self) -> Option<T> {
        self.with(std::collections::VecDeque::pop_front)
    }
    pub(crate) fn len(&self) -> usize {
        self.with(|queue| queue.len())
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
