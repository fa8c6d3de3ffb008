//! The listener at which the MySQL driver meets its tunnel, and the wait for either end.

use std::fs::DirBuilder;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;

use crate::system::{MeetingPlace, random};

/// The system's handle of a socket.
pub(crate) type SocketHandle = RawFd;

/// The driver's connection, as the listener accepts it.
pub(crate) type DriverStream = std::os::unix::net::UnixStream;

/// The handle of this socket, which is open as long as the socket lives.
pub(crate) fn handle(socket: &impl AsRawFd) -> SocketHandle {
    socket.as_raw_fd()
}

/// Ends a wait for the driver's bytes, although a forked child may have a copy of the driver's end. Its last packet is still read.
pub(crate) fn end_reading(driver: &DriverStream) {
    let _ = driver.shutdown(Shutdown::Read);
}

/// A listening socket file in a folder that only this user may enter. Both are removed with it.
#[derive(Debug)]
pub(crate) struct DriverListener {
    folder: PathBuf,
    listener: UnixListener,
}

const SOCKET: &str = "s";

impl DriverListener {
    /// Makes the file.
    pub(crate) fn open() -> io::Result<DriverListener> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        // A container's file system may be read-only but for its shared memory; and a socket's path may have 107 bytes at most.
        for parent in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
            let folder = parent.join(format!("keymill-{:016x}", random().unwrap_or_default()));
            let made = DirBuilder::new().mode(0o700).create(&folder).and_then(|()| {
                let listener = UnixListener::bind(folder.join(SOCKET)).inspect_err(|_| {
                    let _ = std::fs::remove_dir(&folder);
                })?;
                let listening = DriverListener { folder, listener };
                listening.listener.set_nonblocking(true)?;
                Ok(listening)
            });
            match made {
                Ok(listening) => return Ok(listening),
                Err(error) => {
                    let why = format!(
                        "no socket file can be made in `{}`: {error}; set `TMPDIR` to a folder that this process can write to",
                        parent.display()
                    );
                    last = io::Error::new(error.kind(), why);
                }
            }
        }
        Err(last)
    }

    fn path(&self) -> PathBuf {
        self.folder.join(SOCKET)
    }

    /// Where the driver is to connect.
    pub(crate) fn place(&self) -> MeetingPlace {
        MeetingPlace::File(self.path())
    }

    /// Waits for the driver.
    pub(crate) fn accept(&self, limit: Duration) -> io::Result<DriverStream> {
        readable(&[handle(&self.listener)], Some(limit))?;
        let (driver, _) = self.listener.accept()?;
        driver.set_nonblocking(false)?;
        Ok(driver)
    }
}

impl Drop for DriverListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Waits until one of the ends can be read or has ended; answers which.
pub(crate) fn readable(ends: &[SocketHandle], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<_> =
        ends.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let limit = limit.map_or(-1, |limit| i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1));
    loop {
        // SAFETY: `polled` has the stated length, and lives through the call.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit) };
        match ready {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            1.. => return Ok(polled.iter().map(|end| end.revents != 0).collect()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
