//! Helpers of the system tests: servers, faults on the wire, processes that are killed.

pub mod proxy;
pub mod server;
#[path = "../simulation/mod.rs"]
pub mod simulation;
pub mod vectors;
pub mod worker;
