//! A deterministic simulation: from one seed, many mills in virtual time on stores that fail.
//!
//! The simulated code is the shipped code: [`keymill::keeper::Keeper`] with its planner, the sources callers take from, and
//! the memory store's row code. Only the keeper's thread, the wire, and the time are replaced. [`check::Ledger`] checks
//! every history; the same seed makes the same history, byte by byte. FoundationDB and TigerBeetle are tested like this.
//!
//! * [`scenario`] draws the world and its faults from the seed;
//! * [`world`] is the event loop: a queue of events and the effect of each;
//! * [`process`] is one process: a keeper, its sources, its callers;
//! * [`store`] is a database with a wire in front of it;
//! * [`check`] is the ledger, which finds violations;
//! * [`mutant`] corrupts messages between keeper and store, to prove that the ledger notices;
//! * [`banks`] is a world of processes that take business ids from one bank;
//! * [`workers`] is a smaller world, of processes that lease the workers of one pool;
//! * [`copies`] are two processes of one memory, on a store of any kind;
//! * [`days`] is what many processes leave of a day of serials;
//! * [`scale`] measures how much 10 000 processes ask of one database, [`ramp`] how much a cold source asks and waits.

#![allow(missing_debug_implementations, reason = "no caller prints a world")]

pub mod banks;
pub mod check;
pub mod copies;
pub mod crowd;
pub mod days;
pub mod mutant;
pub mod process;
pub mod ramp;
pub mod report;
pub mod scale;
pub mod scenario;
pub mod store;
pub mod workers;
pub mod world;
