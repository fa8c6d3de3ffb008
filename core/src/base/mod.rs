//! What every layer above builds on: errors, keys and requests, words that a fork wipes, threads, random numbers.

pub(crate) mod error;
pub(crate) mod random;
pub(crate) mod reservation;
pub(crate) mod revocation;
pub(crate) mod stride;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod waker;
