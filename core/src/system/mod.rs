//! What keymill asks of the operating system, behind the same functions on each of them.
//!
//! A platform is a folder: `unix` (Linux and macOS, with a folder each for what differs between the two) and `windows`. Both
//! have the same modules with the same functions, and the compiler finds a missing one. Nothing above this room
//! says `cfg(unix)` or `cfg(windows)`; `tests/house/floors.rs` checks that. `docs/architecture.md` says how a platform is
//! added.
//!
//! * [`clock`]: wall time and the time since the machine was started.
//! * [`exit`]: what runs at the end of the process.
//! * [`files`]: which file a path is, its names, its file system, locks on its bytes.
//! * [`file_rights`]: which other users can read or change a file, or make one of that name.
//! * [`forks`]: functions that run around a fork, and memory that a forked child finds wiped.
//! * [`threads`]: threads that receive no signal, in a library that stays loaded.
//! * [`host`]: the name of this machine, and the addresses of its interfaces.
//! * [`sockets`]: timeouts of sockets, and socket files.
//! * [`driver_listener`]: where the MySQL driver meets its tunnel.
//! * [`sqlite_descriptors`]: what this copy of SQLite has open, and locks that another copy cannot drop.
//! * [`interrupt`] and [`symbols`]: what only the command and the bindings ask.

use std::net::IpAddr;
#[cfg(feature = "mysql")]
use std::path::PathBuf;

#[cfg(not(all(target_pointer_width = "64", any(target_os = "linux", target_os = "macos", windows))))]
compile_error!(
    "keymill is for Linux, macOS and Windows of 64 bits; `docs/architecture.md` says how a system is added"
);

#[cfg(unix)]
mod unix;
#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
mod windows;
#[cfg(windows)]
use windows as platform;

#[cfg(feature = "mysql")]
pub(crate) use platform::driver_listener;
#[cfg(feature = "_server")]
pub(crate) use platform::sockets;
#[cfg(feature = "sqlite")]
pub(crate) use platform::sqlite_descriptors;
pub(crate) use platform::{clock, exit, file_rights, files, forks, host, interrupt, symbols, threads};

/// Device and number of a file: two paths with the same pair lead to one file.
pub(crate) type FileId = (u64, u64);

/// Kinds of file systems that lose or split commits, with the name; a local disk is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// Shared by several machines; each sees its own log.
    Network(&'static str),
    /// Lost when the machine stops.
    Memory(&'static str),
    /// Lost with the container.
    Layer(&'static str),
    /// Unknown: any of these is possible.
    Doubtful(&'static str),
}

/// Why a file may not hold a secret, or may not say where one goes.
#[derive(Debug)]
pub(crate) struct Rights {
    /// Which other users can read it and what to run, as the end of a sentence that names the file.
    pub(crate) exposed: Option<String>,
    /// Which other users can change it and what to run, as the end of a sentence that names the file.
    pub(crate) changeable: Option<String>,
}

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    /// The interface: `eth0`.
    pub(crate) interface: String,
    /// The address.
    pub(crate) ip: IpAddr,
    /// The interface is a bridge, such as `docker0`, whose address other machines have too.
    pub(crate) is_bridge: bool,
}

/// Where a driver that takes no stream of ours is to connect.
#[cfg(feature = "mysql")]
#[derive(Debug)]
#[expect(dead_code, reason = "each system has one of the two")]
pub(crate) enum MeetingPlace {
    /// A socket file, which only this user can reach.
    File(PathBuf),
    /// A port of 127.0.0.1. Any login can connect to it, so the listener asks which process did.
    Port(u16),
}

/// Who has no further descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// This process has as many as it may have.
    Process,
    /// The machine has no more.
    Machine,
}

/// A random number of the operating system. `None`: it gives none, which no known one does.
pub(crate) fn random() -> Option<u64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}
