//! Timeouts of sockets. Servers for Windows listen on named pipes instead of socket files, and no driver here speaks those.

use std::io;
use std::net::TcpStream;
use std::path::Path;

/// How long sent bytes may stay unacknowledged before the connection counts as broken, in whole seconds. Windows before 10 (1607) does
/// not know the option and breaks the connection by its own count.
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) fn give_up_after(stream: &TcpStream, limit: std::time::Duration) -> io::Result<()> {
    use windows_sys::Win32::Networking::WinSock::{IPPROTO_TCP, TCP_MAXRT, WSAEINVAL, WSAENOPROTOOPT};
    let seconds = u32::try_from(limit.as_millis().div_ceil(1000)).unwrap_or(u32::MAX - 1).max(1);
    match set_option(stream, IPPROTO_TCP, TCP_MAXRT, seconds) {
        Err(error) if matches!(error.raw_os_error(), Some(WSAENOPROTOOPT | WSAEINVAL)) => Ok(()),
        done => done,
    }
}

/// Sets an option of a socket that is a number.
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(super) fn set_option(
    socket: &impl std::os::windows::io::AsRawSocket,
    level: i32,
    option: i32,
    value: u32,
) -> io::Result<()> {
    use windows_sys::Win32::Networking::WinSock::{SOCKET, setsockopt};
    // SAFETY: the option's value is a number of this size, and `value` lives through the call.
    let set = unsafe {
        setsockopt(
            socket.as_raw_socket() as SOCKET,
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as i32,
        )
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn no_socket_files() -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        "keymill connects to no socket files on Windows; name a host and a port",
    )
}

/// Refuses.
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) fn connect_to_file(_path: &Path, _limit: std::time::Duration) -> io::Result<TcpStream> {
    Err(no_socket_files())
}

/// A connection that is never made.
#[cfg(feature = "postgres")]
pub(crate) type FileStream = tokio::net::TcpStream;

/// Refuses.
#[cfg(feature = "postgres")]
#[expect(clippy::unused_async, reason = "as on Unix")]
pub(crate) async fn connect_to_file_in_runtime(_path: &Path) -> io::Result<(FileStream, TcpStream)> {
    Err(no_socket_files())
}
