//! Looks host names up on a thread of its own, so that a silent name server costs no more than the time limit.
//!
//! The system's look-up cannot be given a time limit, and it cannot be relied on in a forked child: glibc reads its
//! configuration under a lock, and if a thread of the parent held that lock at the moment of the fork, every look-up in the
//! child waits for ever. So each look-up runs on a helper thread, and the addresses of the last successful one lie in memory
//! that a child inherits. They are used only in a child, and only where its own look-up does not answer: in the process that
//! looked them up they could name a primary that has been replaced since.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use crossbeam::channel::{self, Receiver, RecvTimeoutError};

use crate::process::thread;

/// The result of a look-up.
type Addresses = io::Result<Vec<IpAddr>>;

/// Why a host has no address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LookUpError {
    pub(crate) why: String,
    /// The name service answered, and does not know the name.
    pub(crate) is_unknown: bool,
}

impl From<String> for LookUpError {
    fn from(why: String) -> LookUpError {
        LookUpError { why, is_unknown: false }
    }
}

/// Addresses of one name.
#[derive(Clone, Debug)]
struct Known {
    host: String,
    addresses: Vec<IpAddr>,
    /// The process that resolved them.
    by: u32,
}

/// A look-up in progress.
struct Running {
    host: String,
    answer: Receiver<Addresses>,
}

/// Resolves host names. Clones share the remembered addresses.
#[derive(Default)]
pub struct Resolver {
    /// Two copies, written one after the other. A fork that happens while a thread of the parent writes leaves the child one
    /// lock that is never released, and the other copy whole.
    known: Arc<[Mutex<Vec<Known>>; 2]>,
    /// Used only by the thread that uses the store.
    running: Mutex<Vec<Running>>,
    #[cfg(test)]
    instead: Option<fn(&str) -> Addresses>,
}

impl Clone for Resolver {
    fn clone(&self) -> Resolver {
        Resolver {
            known: Arc::clone(&self.known),
            running: Mutex::default(),
            #[cfg(test)]
            instead: self.instead,
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

/// Remembered addresses are no part of a configuration's `Debug` output.
impl PartialEq for Resolver {
    fn eq(&self, _: &Resolver) -> bool {
        true
    }
}

impl Eq for Resolver {}

impl Resolver {
    /// The addresses of each host, in the order of the hosts; all are resolved at the same time, within one `limit`.
    pub(crate) fn look_up(&self, hosts: &[&str], limit: Duration) -> Vec<Result<Vec<IpAddr>, LookUpError>> {
        let until = Instant::now() + limit;
        let started: Vec<_> = hosts.iter().map(|host| self.start(host)).collect();
        hosts.iter().zip(started).map(|(host, started)| self.finish(host, started, until, limit)).collect()
    }

    fn start(&self, host: &str) -> Result<Lookup, String> {
        if let Ok(address) = host.parse() {
            return Ok(Lookup::Literal(address));
        }
        let mut running = match self.running.try_lock() {
            Ok(running) => running,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err("its look-up is in use by another thread".to_owned()),
        };
        // A look-up that timed out may still answer; a second one would only wait beside it.
        if let Some(at) = running.iter().position(|running| running.host == host) {
            return Ok(Lookup::Overdue(running.swap_remove(at).answer));
        }
        let (sender, answer) = channel::bounded(1);
        let name = host.to_owned();
        #[cfg(test)]
        let look_up = self.instead.unwrap_or(system);
        #[cfg(not(test))]
        let look_up = system;
        thread::spawn("keymill-resolve", move || {
            // The receiver is gone if the store was dropped.
            let _ = sender.send(look_up(&name));
        })
        .map_err(|error| format!("no thread can be started to look the name up: {error}"))?;
        Ok(Lookup::New(answer))
    }

    fn finish(
        &self,
        host: &str,
        started: Result<Lookup, String>,
        until: Instant,
        limit: Duration,
    ) -> Result<Vec<IpAddr>, LookUpError> {
        let inherited = || self.inherited(host);
        let (answer, until) = match started? {
            Lookup::Literal(address) => return Ok(vec![address]),
            // The full limit was spent once; if there are addresses to use, it is not spent again.
            Lookup::Overdue(answer) if inherited().is_some() => (answer, Instant::now()),
            Lookup::New(answer) | Lookup::Overdue(answer) => (answer, until),
        };
        match answer.recv_deadline(until) {
            Ok(Ok(addresses)) => {
                self.remember(host, &addresses);
                Ok(addresses)
            }
            Ok(Err(error)) => {
                Err(LookUpError { why: format!("the name is not known ({error})"), is_unknown: true })
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err("the look-up of its name ended without an answer".to_owned().into())
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Ok(mut running) = self.running.try_lock() {
                    running.push(Running { host: host.to_owned(), answer });
                }
                inherited().ok_or_else(|| {
                    let why =
                        format!("its name was not looked up within {limit:?}: is the name server reachable?");
                    why.into()
                })
            }
        }
    }

    /// Addresses that the parent process resolved before the fork.
    fn inherited(&self, host: &str) -> Option<Vec<IpAddr>> {
        let copy = self.known.iter().find_map(|copy| copy.try_lock().ok())?;
        let known = copy.iter().find(|known| known.host == host)?;
        (known.by != std::process::id()).then(|| known.addresses.clone())
    }

    fn remember(&self, host: &str, addresses: &[IpAddr]) {
        for copy in self.known.iter() {
            // A lock that a thread of the parent held at the fork is never released.
            let Ok(mut copy) = copy.try_lock() else { continue };
            copy.retain(|known| known.host != host);
            copy.push(Known { host: host.to_owned(), addresses: addresses.to_vec(), by: std::process::id() });
        }
    }
}

enum Lookup {
    Literal(IpAddr),
    New(Receiver<Addresses>),
    /// Begun by an earlier call, which timed out.
    Overdue(Receiver<Addresses>),
}

/// The system's resolver: `/etc/hosts`, DNS, and the other sources of `nsswitch.conf`.
fn system(host: &str) -> Addresses {
    let mut addresses: Vec<_> = (host, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
    addresses.dedup();
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const BRIEF: Duration = Duration::from_millis(20);

    fn never(_: &str) -> Addresses {
        loop {
            std::thread::park();
        }
    }

    fn one(resolver: &Resolver, host: &str) -> Result<Vec<IpAddr>, LookUpError> {
        resolver.look_up(&[host], BRIEF).remove(0)
    }

    #[test]
    fn a_look_up_without_an_answer_ends_in_its_time_and_is_begun_once() {
        let resolver = Resolver { instead: Some(never), ..Resolver::default() };
        for _ in 0..3 {
            let error = one(&resolver, "db").unwrap_err();
            assert!(error.why.contains("not looked up within 20ms"), "{error:?}");
            assert!(!error.is_unknown, "the name server may come back");
            assert_eq!(resolver.running.lock().unwrap().len(), 1);
        }
        assert_eq!(one(&resolver, "127.0.0.1"), Ok(vec![HERE]), "an address needs no look-up");
        assert_eq!(one(&resolver, "::1"), Ok(vec!["::1".parse().unwrap()]));
    }

    #[test]
    fn all_hosts_are_looked_up_within_one_limit() {
        let resolver = Resolver { instead: Some(never), ..Resolver::default() };
        let hosts: Vec<_> = (0..100).map(|at| format!("db{at}")).collect();
        let hosts: Vec<_> = hosts.iter().map(String::as_str).collect();
        let limit = Duration::from_secs(1);
        let began = Instant::now();
        assert!(resolver.look_up(&hosts, limit).iter().all(Result::is_err));
        assert!(began.elapsed() < limit * 50, "{:?}", began.elapsed());
    }

    #[test]
    fn addresses_of_the_parent_process_are_used_when_a_look_up_does_not_answer_and_those_of_this_one_are_not()
    {
        let resolver = Resolver { instead: Some(never), ..Resolver::default() };
        resolver.remember("db", &[HERE]);
        assert!(one(&resolver, "db").is_err(), "they may name a primary that has been replaced");
        for copy in resolver.known.iter() {
            copy.lock().unwrap()[0].by = std::process::id() + 1;
        }
        let child = resolver.clone();
        assert_eq!(one(&child, "db"), Ok(vec![HERE]));
        // A writer of the parent died with its lock.
        let _held = child.known[0].lock().unwrap();
        assert_eq!(one(&child, "db"), Ok(vec![HERE]));
        child.remember("db", &[HERE]);
        assert!(one(&child, "db").is_err(), "now they are this process's own");
    }

    #[test]
    fn an_unknown_name_is_an_error_at_once_whatever_is_remembered() {
        fn unknown(_: &str) -> Addresses {
            Err(io::Error::other("no such name"))
        }
        let resolver = Resolver { instead: Some(unknown), ..Resolver::default() };
        let error = resolver.look_up(&["db"], Duration::from_secs(60)).remove(0).unwrap_err();
        assert!(error.why.contains("is not known (no such name)"), "{error:?}");
        assert!(error.is_unknown);
    }
}
