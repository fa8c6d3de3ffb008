//! Helpers of the system tests: servers, faults on the wire.

pub mod server;
#[path = "../simulation/mod.rs"]
pub mod simulation;
