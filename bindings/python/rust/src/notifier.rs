//! How a loop of asyncio learns which of its tasks have news: a socket that becomes readable, or a thread that waits.
//!
//! The keeper's thread writes one byte, however many tasks have news, and never takes the interpreter's lock.

use std::time::Duration;

use keymill::binding::Notifier as CoreNotifier;
use pyo3::prelude::*;

/// The notifier of one loop, in the process that made it.
#[pyclass(frozen, module = "keymill._keymill", name = "_Notifier")]
pub(crate) struct Notifier {
    pub(crate) core: CoreNotifier,
    /// Readable while tasks have news.
    #[cfg(unix)]
    reader: std::os::unix::net::UnixStream,
}

#[pymethods]
impl Notifier {
    #[new]
    #[cfg_attr(not(unix), allow(clippy::unnecessary_wraps))] // only a socket can fail
    fn new() -> PyResult<Notifier> {
        #[cfg(unix)]
        {
            use std::io::Write;
            let pair = std::os::unix::net::UnixStream::pair().and_then(|(writer, reader)| {
                writer.set_nonblocking(true)?;
                reader.set_nonblocking(true)?;
                Ok((writer, reader))
            });
            let (writer, reader) = pair.map_err(no_socket)?;
            // A full socket is readable, and a loop that has ended reads nothing.
            let core = CoreNotifier::new(move || drop((&writer).write(&[1])));
            Ok(Notifier { core, reader })
        }
        #[cfg(not(unix))]
        Ok(Notifier { core: CoreNotifier::new(|| ()) })
    }

    /// The descriptor that is readable while tasks have news; -1 where the system has no such descriptor.
    #[cfg_attr(not(unix), allow(clippy::unused_self))] // the answer is the same for each
    fn fileno(&self) -> i32 {
        #[cfg(unix)]
        return std::os::fd::AsRawFd::as_raw_fd(&self.reader);
        #[cfg(not(unix))]
        -1
    }

    /// The tasks that have news; never blocks.
    fn take(&self) -> Vec<u64> {
        // First, so that the byte of news that come after them stays.
        #[cfg(unix)]
        {
            use std::io::Read;
            let _ = (&self.reader).read(&mut [0; 8]);
        }
        self.core.take()
    }

    /// The tasks that have news; waits for them at most so many seconds, without the interpreter's lock.
    fn wait(&self, py: Python<'_>, seconds: f64) -> Vec<u64> {
        py.detach(|| self.core.wait(Duration::from_secs_f64(seconds.clamp(0.0, 60.0))))
    }
}

#[cfg(unix)]
fn no_socket(error: std::io::Error) -> PyErr {
    let message = format!(
        "asyncio waits for ids through a pair of sockets, and the system gives none: {error}; raise the limit of open files (`ulimit -n`)"
    );
    crate::error::raised(keymill::Error::new(keymill::Code::Internal, message))
}
