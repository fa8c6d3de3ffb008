//! Helpers of the system tests: servers, and faults on the wire.

pub mod proxy;
pub mod server;
