//! What every layer above builds on: errors, specs, keys and requests, callers that wait, words that a fork wipes, threads,
//! random numbers.

pub(crate) mod bank;
pub(crate) mod callers;
pub(crate) mod counters;
pub(crate) mod error;
#[cfg_attr(not(all(feature = "mysql", feature = "redis")), allow(dead_code))] // what servers say
pub(crate) mod fault;
pub(crate) mod random;
pub(crate) mod reservation;
pub(crate) mod revocation;
pub(crate) mod scheme;
pub(crate) mod spec;
pub(crate) mod stride;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod waker;
pub(crate) mod worker;
