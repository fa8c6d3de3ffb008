//! Starts keymill's own threads so that none of them receives a signal of the host program.
//!
//! A signal that is sent to a process is delivered to any thread that does not block it. Without this module the keeper would
//! be such a thread: a program that blocks `SIGTERM` and waits for it with `signalfd` would be terminated, a handler would run
//! beside the code that blocked its signal, and a write to a closed socket would end a C program with `SIGPIPE`. The mask is
//! set before the thread is created, because a new thread inherits the mask of its creator: no signal can arrive in between.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::io;
use std::panic;
use std::sync::Once;
use std::thread::{Builder, JoinHandle};

use crate::error::{Code, Error, shown};
use crate::system::host::host_name;
use crate::system::threads;

thread_local! {
    /// The thread was started by [`spawn`].
    static OURS: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of such a thread happened, once [`quiet_panics`] was called.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Starts a thread with every signal blocked but the synchronous ones. The caller's own mask is the same afterwards.
///
/// # Errors
/// The system starts no further thread (`RLIMIT_NPROC`, a limit of the container, no memory). `work` is dropped.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    threads::pin();
    let _blocked = threads::Blocked::new()?;
    Builder::new().name(name.to_owned()).spawn(move || {
        OURS.set(true);
        work()
    })
}

/// The error of a caller whose thread the system does not start.
pub(crate) fn not_started(purpose: &str, error: &io::Error) -> Error {
    let advice = match error.kind() {
        // EPERM. A runtime of containers that knows a call answers ENOSYS where it forbids it, and the C library takes an older call.
        io::ErrorKind::PermissionDenied => {
            "a system call filter forbids `clone3`, as Docker's filter did before 20.10.10: update the container runtime"
        }
        _ => {
            "raise the limit of processes and threads (`ulimit -u`, the container's pids limit) or free memory"
        }
    };
    Error::new(Code::Internal, format!("the system starts no thread for {purpose}: {error}; {advice}"))
}

/// `host:process`, for people who look at what this process has leased.
pub(crate) fn process_name() -> String {
    format!("{}:{}", host_name().unwrap_or_else(|| "?".to_owned()), std::process::id())
}

/// From now on a panic on one of keymill's own threads prints nothing: it becomes an error and an event, and standard error
/// belongs to the host program. For the libraries and addons, which carry a standard library of their own and so a panic hook
/// of their own; a Rust program's hook is left alone.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if OURS.try_with(Cell::get).unwrap_or(false) {
                let place = info.location().map(ToString::to_string);
                // A thread that is ending needs no place.
                let _ = PANICKED_AT.try_with(|at| at.try_borrow_mut().map(|mut at| *at = place));
            } else {
                others(info);
            }
        }));
    });
}

/// The message of a panic, fit for an error or an event: short, without control characters, with its place in the code where
/// [`quiet_panics`] recorded it.
pub(crate) fn panic_words(payload: Box<dyn Any + Send>) -> String {
    let said =
        payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
    let said = said.map_or_else(|| "without a message".to_owned(), shown);
    // Dropped, a payload of another type could panic again.
    std::mem::forget(payload);
    match PANICKED_AT.take() {
        Some(place) => {
            // The package and the file, without the folders of the machine that built it.
            let parts: Vec<&str> = place.split('/').collect();
            format!("{said}, at {}", shown(&parts[parts.len().saturating_sub(4)..].join("/")))
        }
        None => said,
    }
}
