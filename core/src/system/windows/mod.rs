//! Windows.
//!
//! It has no fork, no signals of threads and no socket files that a driver here speaks; those functions say so and do nothing, or
//! refuse. A second SQLite library in one process drops no locks here: a lock belongs to the handle that took it.

pub(crate) mod clock;
#[cfg(feature = "mysql")]
pub(crate) mod driver_listener;
pub(crate) mod exit;
pub(crate) mod file_rights;
pub(crate) mod files;
pub(crate) mod forks;
pub(crate) mod host;
pub(crate) mod interrupt;
#[cfg(feature = "_server")]
pub(crate) mod sockets;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite_descriptors;
pub(crate) mod symbols;
pub(crate) mod threads;
