//! The socket of a connection: one deadline around every read and every write.
//!
//! A socket's own timeout begins anew with each read, so a server that sends a byte now and then could hold the keeper's
//! thread for ever. [`Socket::begin`] sets the moment by which an exchange has to be over, and each read and write waits for
//! no longer than what is left. TLS reads through the same socket. PostgreSQL's driver is asynchronous, and each of its
//! waits has a timer around it instead (`postgres/wire.rs`).

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::server::{ServerOptions, Target};
use super::time_budget::{self, Budget};
#[cfg(feature = "mysql")]
use crate::system::driver_listener::{self, SocketHandle};
use crate::system::sockets;

/// A timeout of zero would mean none.
pub(crate) const AT_LEAST: Duration = Duration::from_millis(1);

/// A connected socket, of whatever family.
#[derive(Debug)]
pub(crate) struct Socket {
    /// The standard library's stream types differ in how they connect only.
    stream: TcpStream,
    until: Instant,
}

impl Socket {
    /// Connects; the first exchange begins.
    pub(crate) fn connect(target: &Target, options: &ServerOptions) -> io::Result<Socket> {
        let limit = options.time_to_connect();
        let stream = match target {
            Target::Tcp { address, .. } => {
                let stream = TcpStream::connect_timeout(address, limit)?;
                stream.set_nodelay(true)?;
                sockets::give_up_after(&stream, options.read_timeout)?;
                stream
            }
            Target::Socket(path) => sockets::connect_to_file(path, limit)?,
        };
        let mut socket = Socket { stream, until: Instant::now() };
        socket.begin(options.read_timeout);
        Ok(socket)
    }

    /// Begins an exchange, which may take this long.
    pub(crate) fn begin(&mut self, limit: Duration) {
        self.begin_in(limit, time_budget::budget(limit));
    }

    /// The same, in a conversation of another thread.
    pub(crate) fn begin_in(&mut self, limit: Duration, budget: Option<Budget>) {
        self.until = time_budget::end_of_exchange(limit.max(AT_LEAST), budget);
    }

    /// Whether the exchange has taken too long.
    pub(crate) fn is_late(&self) -> bool {
        self.left().is_err()
    }

    fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left.max(AT_LEAST)),
        }
    }

    /// The kernel counts in ticks of its own and may end a wait a little early: the exchange is over all the same.
    fn timed<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        if done
            .as_ref()
            .is_err_and(|e| matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
        {
            self.until = self.until.min(Instant::now());
        }
        done
    }

    /// Ends the connection for every holder of the socket: a forked child may have a copy.
    pub(crate) fn end(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Whether the other end has closed the connection.
    pub(crate) fn has_ended(&self) -> bool {
        match self.stream.peek(&mut [0]) {
            Ok(read) => read == 0,
            // Nothing to read is no end.
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }

    /// The system's handle, to wait for it.
    #[cfg(feature = "mysql")]
    pub(crate) fn handle(&self) -> SocketHandle {
        driver_listener::handle(&self.stream)
    }

    /// Another handle of the same socket.
    pub(crate) fn again(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        let read = self.stream.read(bytes);
        self.timed(read)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        let written = self.stream.write(bytes);
        self.timed(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn options(limit: Duration) -> ServerOptions {
        ServerOptions { connect_timeout: limit, read_timeout: limit, ..ServerOptions::default() }
    }

    /// A server that is stopped accepts nothing, and its queue is full at some time.
    #[test]
    fn a_socket_file_whose_queue_is_full_is_given_up() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path)?;
        // SAFETY: the descriptor is the listener's; the call only shortens its queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let target = Target::Socket(path);
        let limit = Duration::from_millis(100);
        let mut held = Vec::new();
        let error = loop {
            match Socket::connect(&target, &options(limit)) {
                Ok(socket) => held.push(socket),
                Err(error) => break error,
            }
            assert!(held.len() < 100, "a queue without an end");
        };
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error:?}");
        Ok(())
    }

    #[test]
    fn an_exchange_ends_at_its_deadline_although_each_read_gets_a_byte() -> io::Result<()> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let server = std::thread::spawn(move || -> io::Result<()> {
            let (mut client, _) = listener.accept()?;
            for _ in 0..3000 {
                client.write_all(b"x")?;
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        });
        let target = Target::Tcp { host: "localhost".to_owned(), address };
        let mut socket = Socket::connect(&target, &options(Duration::from_secs(60)))?;
        socket.begin(Duration::from_millis(200));
        let error = io::copy(&mut socket, &mut io::sink()).expect_err("a deadline");
        assert!(matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{error:?}");
        assert!(socket.is_late() && !socket.has_ended());
        // The next exchange has a time of its own.
        socket.begin(Duration::from_secs(60));
        socket.read_exact(&mut [0])?;
        socket.end();
        assert!(server.join().expect("the server").is_err(), "the connection was ended");
        Ok(())
    }
}
