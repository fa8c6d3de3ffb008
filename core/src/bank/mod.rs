//! Banks of counters: the state of a source of business ids.
//!
//! An id carries the gene of its key and a number of the counter that the gene belongs to. A bank has up to 65 536 counters, so
//! what each of them costs matters more than anything else here: 32 bytes of a cell ([`counter_cell`]), a bit in two sets ([`bits`])
//! and a count. Nothing is allocated for a counter before it is used.
//!
//! * A number of a counter is handed out at most once, and the numbers of one counter rise: `counter_cell` has the argument, and
//!   `loom` checks it.
//! * The keeper serves a bank as one source: one place in its queues, one conversation with the store for many counters.

mod bank_source;
mod bits;
mod counter_cell;
#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod refused_tests;
mod step;
mod supply;
#[cfg(all(test, not(loom)))]
mod tests;

pub use bank_source::BankSource;
pub(crate) use bank_source::{narrow, wide};
pub(crate) use supply::BankView;
pub use supply::{BankAnswer, BankAsk};
