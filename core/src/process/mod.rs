//! What the process gives: threads, random numbers, words that a fork wipes, and atomics that the model checker can follow.

pub(crate) mod random;
pub(crate) mod revocation;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod wiped_words;
