//! Threads that receive no signal of the host program.

use std::io;

pub(crate) use super::own::pin;

/// Signals that report a fault of the running instruction. They go to the thread that caused them; blocked, they would end the
/// process instead of reaching the handler of a Java machine, a sanitizer, a debugger or a system-call filter.
const SYNCHRONOUS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// While it lives, the calling thread receives no asynchronous signal. Miri has no signals at all.
pub(crate) struct Blocked {
    before: Option<libc::sigset_t>,
}

impl Blocked {
    /// Blocks the signals of the calling thread, which a thread that it starts inherits.
    pub(crate) fn new() -> io::Result<Self> {
        if cfg!(miri) {
            return Ok(Blocked { before: None });
        }
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
            0 => Ok(Blocked { before: Some(before) }),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // SAFETY: `before` was filled in by `new`. The call cannot fail: the set came from the same thread.
            unsafe {
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::from_ref(before), std::ptr::null_mut())
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::thread::{not_started, spawn};

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
