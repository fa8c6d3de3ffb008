//! Keymill in several languages on one table, beside programs of other authors, and the vectors that each language runs.

mod cosid_jdbc;
mod jpa;
mod polyglot;
mod snowflakes_beside;
mod vectors;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use keymill::Source;

/// The ids of a source, in batches with a pause between them, until it is over.
fn ids_until(over: &AtomicBool, source: &Source) -> Vec<u64> {
    let mut ids = Vec::new();
    // ordering: Relaxed — a flag.
    while !over.load(Ordering::Relaxed) {
        ids.extend(source.take(25).expect("ids"));
        thread::sleep(Duration::from_micros(200));
    }
    ids
}
