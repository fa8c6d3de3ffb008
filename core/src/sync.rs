//! Atomics and spinning, taken from std or, under `--cfg loom`, from the model checker. (floor 0)
//!
//! Every algorithm of the id path imports its atomics from here, so the code that loom explores is the code that ships.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// Padding means nothing to a model.
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
