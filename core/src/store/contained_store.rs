//! A store whose driver may panic: a panic costs one answer and one connection.
//!
//! A driver parses bytes of a server, and some parsers panic on unexpected ones. The panicking call may or may not have
//! changed the store, so its fault is `Unknown` and its range is never used. The driver's state is unknown too: the store
//! is dropped with its connection, and the next call makes a new one.
//!
//! The keeper asks its store here, and several stores ask each of theirs here.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Fault, FaultKind, Store};
use crate::process::thread::panic_words;

/// Makes a store that is not connected yet.
pub(crate) type MakeStore = Box<dyn Fn() -> Box<dyn Store> + Send>;
/// Called with the text of each panic.
pub(crate) type OnPanic = Arc<dyn Fn(&str) + Send + Sync>;

/// A store, and what is done about its panics.
pub struct ContainedStore {
    store: Option<Box<dyn Store>>,
    /// `None`: the store is keymill's own code. Its panics are defects, and pass through.
    driver: Option<(MakeStore, OnPanic)>,
}

impl fmt::Debug for ContainedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainedStore").finish_non_exhaustive()
    }
}

impl From<Box<dyn Store>> for ContainedStore {
    /// A store of keymill's own code.
    fn from(store: Box<dyn Store>) -> ContainedStore {
        ContainedStore { store: Some(store), driver: None }
    }
}

impl ContainedStore {
    /// A store over a driver. It is made by the first call, and anew after a panic.
    pub(crate) fn new(make: MakeStore, on_panic: OnPanic) -> ContainedStore {
        ContainedStore { store: None, driver: Some((make, on_panic)) }
    }

    /// Asks the store.
    pub(crate) fn ask<T, E: From<Fault>>(
        &mut self,
        work: impl FnOnce(&mut (dyn Store + 'static)) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run(work)?
    }

    /// Asks the store for `count` things at once.
    pub(crate) fn ask_for_all<T>(
        &mut self,
        count: usize,
        work: impl FnOnce(&mut (dyn Store + 'static)) -> Vec<T>,
        failed: impl Fn(Fault) -> T,
    ) -> Vec<T> {
        self.run(work).unwrap_or_else(|fault| (0..count).map(|_| failed(fault.clone())).collect())
    }

    /// Calls a verb that sends nothing to the server. A store that was not made has no connection and nothing to tell.
    pub(crate) fn without_asking<T: Default>(
        &mut self,
        work: impl FnOnce(&mut (dyn Store + 'static)) -> T,
    ) -> T {
        if self.store.is_none() { T::default() } else { self.run(work).unwrap_or_default() }
    }

    /// How many requests the store takes at once.
    pub(crate) fn batch(&mut self) -> usize {
        self.run(|store| store.batch()).unwrap_or(1)
    }

    fn run<T>(&mut self, work: impl FnOnce(&mut (dyn Store + 'static)) -> T) -> Result<T, Fault> {
        let (mut work, mut answer) = (Some(work), None);
        self.catch(&mut |store| answer = work.take().map(|work| work(store)))?;
        answer.ok_or_else(closed)
    }

    /// Calls `work` once. One function for all kinds of answers, so that it is compiled once.
    fn catch(&mut self, work: &mut dyn FnMut(&mut (dyn Store + 'static))) -> Result<(), Fault> {
        let ContainedStore { store, driver } = self;
        let Some((make, on_panic)) = driver else {
            return store.as_deref_mut().map(work).ok_or_else(closed);
        };
        // Unwind safety: the state that the panic left behind is in the store, which is dropped below.
        match catch_unwind(AssertUnwindSafe(|| work(&mut **store.get_or_insert_with(make)))) {
            Ok(()) => Ok(()),
            Err(payload) => {
                let message = format!(
                    "the store's driver panicked ({}); its connection was dropped and the next try makes a new one; please report it",
                    panic_words(payload)
                );
                let on_panic = on_panic.clone();
                self.discard();
                on_panic(&message);
                Err(Fault::new(FaultKind::Unknown, message))
            }
        }
    }

    fn discard(&mut self) {
        let store = self.store.take();
        // Dropping a driver sends a last packet, and may panic over the same state again.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(store))) {
            drop(panic_words(payload));
        }
    }
}

impl Drop for ContainedStore {
    fn drop(&mut self) {
        self.discard();
    }
}

fn closed() -> Fault {
    Fault::new(FaultKind::Unavailable, "the store is closed")
}
