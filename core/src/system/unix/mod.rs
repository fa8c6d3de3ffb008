//! Linux and macOS: what POSIX has. `linux` and `macos` have what differs between the two, again behind the same functions.

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
pub(crate) mod symbols;
pub(crate) mod threads;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as own;
#[cfg(not(target_os = "linux"))]
mod macos;
#[cfg(not(target_os = "linux"))]
use macos as own;

#[cfg(feature = "sqlite")]
pub(crate) use own::sqlite_descriptors;
