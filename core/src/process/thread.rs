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

thread_local! {
    /// The thread was started by [`spawn`].
    static OURS: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of such a thread happened, once [`quiet_panics`] was called.
    static PANICKED_AT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Signals that report a fault of the running instruction. They go to the thread that caused them; blocked, they would end the
/// process instead of reaching the handler of a Java machine, a sanitizer, a debugger or a system-call filter.
#[cfg(all(unix, not(miri)))]
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread with every signal blocked but the synchronous ones. The caller's own mask is the same afterwards.
///
/// # Errors
/// The system starts no further thread (`RLIMIT_NPROC`, a limit of the container, no memory). `work` is dropped.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let _blocked = Blocked::new()?;
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
            "a filter of system calls forbids `clone3`, as that of Docker before 20.10.10 does: update the runtime of the containers"
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

/// The name of this machine, as it calls itself.
#[cfg(all(unix, not(miri)))]
pub(crate) fn host_name() -> Option<String> {
    let mut name = [0u8; 128];
    // SAFETY: the pointer and the length are those of `name`.
    if unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) } != 0 {
        return None;
    }
    let name = name.split(|byte| *byte == 0).next()?;
    Some(shown(&String::from_utf8_lossy(name)))
}

#[cfg(not(all(unix, not(miri))))]
pub(crate) fn host_name() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
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

/// While it lives, the calling thread receives no asynchronous signal.
#[cfg(all(unix, not(miri)))]
struct Blocked {
    before: libc::sigset_t,
}

#[cfg(all(unix, not(miri)))]
impl Blocked {
    fn new() -> io::Result<Self> {
        // SAFETY: all-zero bytes are a valid `sigset_t`, which `sigfillset` then sets as a whole.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `all` is writable.
        unsafe { libc::sigfillset(&raw mut all) };
        for signal in SYNCHRONOUS {
            // SAFETY: `all` was initialised above; each number is a valid signal.
            unsafe { libc::sigdelset(&raw mut all, signal) };
        }
        let mut before = all;
        // SAFETY: both sets are valid, and `before` is writable.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) } {
            0 => Ok(Blocked { before }),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

#[cfg(all(unix, not(miri)))]
impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` was filled in by `new`. The call cannot fail: the set came from the same thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// Other systems have no signals per thread. Miri has no signals at all.
#[cfg(not(all(unix, not(miri))))]
struct Blocked;

#[cfg(not(all(unix, not(miri))))]
impl Blocked {
    #[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
    fn new() -> io::Result<Self> {
        Ok(Blocked)
    }
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use super::*;

    /// The signals that the calling thread blocks.
    fn blocked() -> Vec<libc::c_int> {
        // SAFETY: as in `Blocked::new`.
        let mut mask: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: with no new set the call only fills in the present one.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &raw mut mask) };
        // SAFETY: the set was filled in.
        (1..=libc::SIGRTMAX()).filter(|&s| unsafe { libc::sigismember(&raw const mask, s) } == 1).collect()
    }

    #[test]
    fn a_thread_blocks_every_signal_but_the_synchronous_ones() {
        let theirs = spawn("quiet", blocked).expect("a thread").join().expect("its mask");
        let realtime = libc::SIGRTMIN()..=libc::SIGRTMAX();
        for signal in (1..32).chain(realtime) {
            let cannot = [libc::SIGKILL, libc::SIGSTOP].contains(&signal);
            assert_eq!(theirs.contains(&signal), !cannot && !SYNCHRONOUS.contains(&signal), "{signal}");
        }
    }

    #[test]
    fn the_error_of_a_forbidden_thread_names_the_filter_and_that_of_a_full_process_the_limits() {
        let forbidden = not_started("the mill", &io::Error::from_raw_os_error(libc::EPERM));
        assert!(forbidden.message.contains("forbids `clone3`"), "{forbidden}");
        assert!(!forbidden.message.contains("ulimit"), "{forbidden}");
        let full = not_started("the mill", &io::Error::from_raw_os_error(libc::EAGAIN));
        assert!(full.message.contains("ulimit") && !full.message.contains("clone3"), "{full}");
    }

    #[test]
    fn the_callers_mask_is_the_same_afterwards() {
        let before = blocked();
        let other = std::thread::spawn(|| {
            // SAFETY: as in `Blocked::new`.
            let mut one: libc::sigset_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is writable and becomes the mask of this thread only.
            unsafe {
                libc::sigemptyset(&raw mut one);
                libc::sigaddset(&raw mut one, libc::SIGUSR2);
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const one, std::ptr::null_mut());
            }
            drop(spawn("quiet", || ()));
            blocked()
        });
        assert_eq!(other.join().expect("a mask"), [libc::SIGUSR2]);
        drop(spawn("quiet", || ()));
        assert_eq!(blocked(), before);
    }
}
