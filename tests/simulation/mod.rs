//! A deterministic simulation: from one seed, many mills in virtual time on stores that fail.
//!
//! The code simulated is the code that ships: [`keymill::keeper::Keeper`] with its planner, the sources callers take from,
//! and the memory store's row code. Replaced are the thread that carries in_flight, the wire, and the time. Every history
//! is checked by [`check::Ledger`]; the same seed makes the same history, byte by byte. The way FoundationDB and
//! TigerBeetle test.
//!
//! * [`scenario`] draws from the seed what the world is made of and which faults come when;
//! * [`world`] is the clockwork: a queue of events and what each of them does;
//! * [`process`] is one process: a keeper, its sources, its callers;
//! * [`store`] is a database with a wire in front of it;
//! * [`check`] is the ledger that no two histories may fool;
//! * [`mutant`] corrupts what passes between keeper and store, to prove that the ledger would notice;
//! * [`scale`] answers how much 10 000 processes ask of one database, [`ramp`] what one cold source asks and waits.

#![allow(missing_debug_implementations, reason = "nobody prints a world")]

pub mod check;
pub mod mutant;
pub mod process;
pub mod ramp;
pub mod report;
pub mod scale;
pub mod scenario;
pub mod store;
pub mod world;
