//! A TCP proxy that loses answers, or parts client and server.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What the proxy does with the server's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// It forwards them.
    Pass,
    /// It forwards this many; it drops the next one and cuts its connection. Then it forwards again.
    CutAfter(u32),
    /// It forwards this many bytes, and then cuts the connection. Then it forwards again.
    CutAt(usize),
    /// It forwards this many, and then holds.
    HoldAfter(u32),
    /// It forwards each this much later.
    Late(Duration),
    /// It holds them until this changes.
    Hold,
    /// It holds questions, too: a network that is parted. A client that has gone leaves questions that come late.
    HoldAll,
}

#[derive(Debug)]
struct Shared {
    answers: Mutex<Answers>,
    changed: Condvar,
    connections: AtomicU64,
    turns: AtomicU64,
}

/// A proxy in front of one server.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1 and forwards to `server`.
    ///
    /// # Panics
    /// Where there is no free port.
    #[must_use]
    pub fn start(server: (String, u16)) -> Proxy {
        Proxy::start_at(Ipv4Addr::LOCALHOST.into(), server)
    }

    /// The same on another address of this machine.
    ///
    /// # Panics
    /// Where there is no free port.
    #[must_use]
    pub fn start_at(host: IpAddr, server: (String, u16)) -> Proxy {
        let listener = TcpListener::bind((host, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared {
            answers: Mutex::new(Answers::Pass),
            changed: Condvar::new(),
            connections: AtomicU64::new(0),
            turns: AtomicU64::new(0),
        });
        let of_threads = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                for stream in [&client, &upstream] {
                    let _ = stream.set_nodelay(true);
                }
                let (Ok(client_again), Ok(upstream_again)) = (client.try_clone(), upstream.try_clone())
                else {
                    continue;
                };
                // ordering: Relaxed — counters and flags of a test, here and below; nothing hangs on them.
                of_threads.connections.fetch_add(1, Ordering::Relaxed);
                let asked = Arc::new(AtomicBool::new(false));
                let asking = Arc::clone(&asked);
                let shared = Arc::clone(&of_threads);
                thread::spawn(move || shared.questions(client_again, upstream_again, &asking));
                let shared = Arc::clone(&of_threads);
                thread::spawn(move || shared.answers(upstream, client, &asked));
            }
        });
        Proxy { address, shared }
    }

    /// Where to connect to.
    #[must_use]
    pub fn address(&self) -> (String, u16) {
        (self.address.ip().to_string(), self.address.port())
    }

    /// From now on.
    pub fn set(&self, answers: Answers) {
        *self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
        self.shared.changed.notify_all();
    }

    /// How many connections there were.
    #[must_use]
    pub fn connections(&self) -> u64 {
        // ordering: Relaxed — see `start`.
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Round trips: how often an answer followed queries. An answer in several pieces counts once, and so do several
    /// queries sent at once.
    #[must_use]
    pub fn turns(&self) -> u64 {
        // ordering: Relaxed — see `start`.
        self.shared.turns.load(Ordering::Relaxed)
    }

    /// The present setting.
    #[must_use]
    pub fn now(&self) -> Answers {
        *self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// The setting, as soon as it is none of these.
    fn other_than(&self, held: &[Answers]) -> MutexGuard<'_, Answers> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        while held.contains(&answers) {
            answers = self.changed.wait(answers).unwrap_or_else(PoisonError::into_inner);
        }
        answers
    }

    fn questions(&self, mut from: TcpStream, mut to: TcpStream, asked: &AtomicBool) {
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            drop(self.other_than(&[Answers::HoldAll]));
            // ordering: Relaxed — see `start`.
            asked.store(true, Ordering::Relaxed);
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }

    fn answers(&self, mut from: TcpStream, mut to: TcpStream, asked: &AtomicBool) {
        let mut buffer = vec![0; 65_536];
        while let Ok(read @ 1..) = from.read(&mut buffer) {
            // ordering: Relaxed — see `start`.
            let is_first = asked.swap(false, Ordering::Relaxed);
            if is_first {
                self.turns.fetch_add(1, Ordering::Relaxed);
            }
            let mut answers = self.other_than(&[Answers::Hold, Answers::HoldAll]);
            if *answers == Answers::HoldAfter(0) {
                *answers = Answers::Hold;
                drop(answers);
                answers = self.other_than(&[Answers::Hold, Answers::HoldAll]);
            }
            if let Answers::Late(wait) = *answers {
                drop(answers);
                if is_first {
                    thread::sleep(wait);
                }
                answers = self.other_than(&[Answers::Hold, Answers::HoldAll]);
            }
            match *answers {
                Answers::CutAt(bytes) if bytes < read => {
                    *answers = Answers::Pass;
                    let _ = to.write_all(&buffer[..bytes]);
                    break;
                }
                Answers::CutAt(bytes) => *answers = Answers::CutAt(bytes - read),
                Answers::CutAfter(0) => {
                    *answers = Answers::Pass;
                    break;
                }
                Answers::CutAfter(more) => *answers = Answers::CutAfter(more - 1),
                Answers::HoldAfter(more) => *answers = Answers::HoldAfter(more.saturating_sub(1)),
                Answers::Pass | Answers::Late(_) | Answers::Hold | Answers::HoldAll => {}
            }
            drop(answers);
            if to.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
