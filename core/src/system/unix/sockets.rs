//! Timeouts of sockets, and socket files.

use std::io;
use std::net::TcpStream;
use std::path::Path;

#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) use super::own::give_up_after;

/// Connects to a socket file. The standard library would wait without a limit for a server that accepts no connection.
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) fn connect_to_file(path: &Path, limit: std::time::Duration) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None)?;
    // The kernel waits for a full queue as long as a write may.
    socket.set_write_timeout(Some(limit))?;
    socket.connect(&socket2::SockAddr::unix(path)?)?;
    Ok(TcpStream::from(std::os::fd::OwnedFd::from(socket)))
}

/// The connection of an asynchronous driver to a socket file.
#[cfg(feature = "postgres")]
pub(crate) type FileStream = tokio::net::UnixStream;

/// Connects to a socket file; answers with the connection, and with another handle of it.
#[cfg(feature = "postgres")]
pub(crate) async fn connect_to_file_in_runtime(path: &Path) -> io::Result<(FileStream, TcpStream)> {
    use std::os::fd::AsFd;
    let stream = FileStream::connect(path).await?;
    let again = stream.as_fd().try_clone_to_owned()?;
    Ok((stream, TcpStream::from(again)))
}
