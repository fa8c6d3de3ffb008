//! Helpers of the system tests: servers, faults on the wire, processes that are killed.

pub mod proxy;
pub mod server;
pub mod worker;
