//! A proxy that corrupts messages of a server: which ones and how, its seed decides.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The protocol of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Mysql,
    Postgres,
    Redis,
}

/// The corruption of one message.
#[derive(Clone, Debug)]
enum Corruption {
    /// Some bits are turned.
    Bits(u32),
    /// One byte, or a few in a row, become these.
    Bytes(Vec<u8>),
    /// The length that the message begins with is another one.
    Length(u32),
    /// It ends early, and its length still says otherwise.
    Short,
    /// It is shorter or longer, and its length says so: right in form, of no meaning.
    Cropped(usize),
    /// More bytes follow.
    Long(Vec<u8>),
    /// It is not sent.
    Missing,
    /// It is sent twice.
    Twice,
    /// It is sent after the one that follows.
    Later,
    /// Another message instead: right in form, wrong in this place.
    Other(Vec<u8>),
    /// Nothing but noise.
    Noise(Vec<u8>),
    /// The connection ends within it.
    Cut,
    /// It is sent a byte now and then.
    Drip,
}

/// The pause between two bytes of such a message: each byte is in time.
const DRIP: Duration = Duration::from_millis(300);

/// How a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Whole,
    Half,
    Dripping,
}

/// Plugins that a server may ask a client to log in with.
const PLUGINS: [&str; 9] = [
    "mysql_native_password",
    "caching_sha2_password",
    "client_ed25519",
    "parsec",
    "sha256_password",
    "mysql_clear_password",
    "dialog",
    "auth_gssapi_client",
    "",
];

fn bytes(rng: &mut fastrand::Rng, most: usize) -> Vec<u8> {
    let kind = rng.u8(0..4);
    (0..rng.usize(1..=most))
        .map(|_| match kind {
            0 => 0,
            1 => 0xff,
            2 => *rng.choice(b"0123456789$*+-:_,\r\n").unwrap_or(&b'0'),
            _ => rng.u8(..),
        })
        .collect()
}

impl Wire {
    /// A message that this server may send somewhere.
    fn other(self, rng: &mut fastrand::Rng) -> Vec<u8> {
        match self {
            Wire::Mysql => {
                let payload = match rng.u8(0..6) {
                    0 => b"\x00\x00\x00\x02\x00\x00\x00".to_vec(),
                    1 => b"\xff\x28\x04#HY000odd".to_vec(),
                    2 => b"\xfe\x00\x00\x02\x00".to_vec(),
                    3 => b"\xfb/etc/passwd".to_vec(),
                    4 => vec![0x01, *rng.choice(&[2u8, 3, 4]).unwrap_or(&4)],
                    _ => {
                        let plugin = rng.choice(PLUGINS).unwrap_or_default();
                        let salt: Vec<u8> = (0..rng.usize(0..40)).map(|_| rng.u8(1..)).collect();
                        [b"\xfe".as_slice(), plugin.as_bytes(), b"\0", &salt, b"\0"].concat()
                    }
                };
                let len = (payload.len() as u32).to_le_bytes();
                [&len[..3], &[rng.u8(0..8)], &payload].concat()
            }
            Wire::Postgres => {
                let (kind, body): (u8, Vec<u8>) = match rng.u8(0..8) {
                    0 => (b'Z', vec![*rng.choice(b"ITE?").unwrap_or(&b'I')]),
                    1 => (b'E', b"SERROR\0C40001\0Modd\0\0".to_vec()),
                    2 => (b'R', rng.u32(0..16).to_be_bytes().to_vec()),
                    3 => (b'C', b"UPDATE 2\0".to_vec()),
                    4 => (
                        b'D',
                        [&1u16.to_be_bytes()[..], &8u32.to_be_bytes(), &rng.u64(..).to_be_bytes()].concat(),
                    ),
                    5 => (b'T', rng.u16(..).to_be_bytes().to_vec()),
                    6 => (b'S', b"client_encoding\0SQL_ASCII\0".to_vec()),
                    _ => (rng.u8(b'A'..b'z'), bytes(rng, 20)),
                };
                [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), &body].concat()
            }
            Wire::Redis => {
                let values = [
                    "+OK\r\n",
                    "-ERR odd\r\n",
                    "-NOSCRIPT no\r\n",
                    "-READONLY no\r\n",
                    "$-1\r\n",
                    "*-1\r\n",
                    ":7\r\n",
                    ":9223372036854775807\r\n",
                    "*1000000\r\n",
                    "*2\r\n:1\r\n:2\r\n",
                    "$5\r\nabc",
                    "%1\r\n+a\r\n:1\r\n",
                    ">1\r\n+push\r\n",
                    "(99999999999999999999\r\n",
                    ",nan\r\n",
                    "#t\r\n",
                    "_\r\n",
                    "$999999999999\r\n",
                ];
                rng.choice(values).unwrap_or("+OK\r\n").as_bytes().to_vec()
            }
        }
    }

    fn corrupt(self, rng: &mut fastrand::Rng) -> Corruption {
        match rng.u8(0..17) {
            0 | 1 => Corruption::Bits(rng.u32(1..5)),
            2 | 3 => Corruption::Bytes(bytes(rng, 8)),
            4 => Corruption::Length(
                *rng.choice(&[0u32, 1, 2, 3, 4, 5, 250, 255, 65_535, 0x00ff_ffff, u32::MAX]).unwrap_or(&0),
            ),
            5 => Corruption::Short,
            6 => Corruption::Long(bytes(rng, 40)),
            7 => Corruption::Missing,
            8 => Corruption::Twice,
            9 => Corruption::Later,
            10 => Corruption::Noise(bytes(rng, 300)),
            11 => Corruption::Cut,
            16 => Corruption::Drip,
            12 | 13 => Corruption::Cropped(*rng.choice(&[0, 1, 2, 3, 5, 8, 20]).unwrap_or(&0)),
            _ => Corruption::Other(self.other(rng)),
        }
    }

    /// The first whole message of what has arrived: how long it is. Redis's answers are taken as they arrive.
    fn whole(self, arrived: &[u8]) -> Option<usize> {
        let len = match self {
            Wire::Mysql => {
                let head = arrived.get(..4)?;
                4 + u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize
            }
            Wire::Postgres => {
                let head = arrived.get(..5)?;
                1 + u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize
            }
            Wire::Redis => arrived.len(),
        };
        (len > 0 && len <= arrived.len()).then_some(len)
    }
}

struct Shared {
    wire: Wire,
    /// Messages of the whole seed, over all its connections, by their number; corrupted when their turn comes.
    plan: Mutex<BTreeMap<u64, Corruption>>,
    rng: Mutex<fastrand::Rng>,
    messages: AtomicU64,
    corrupted: AtomicU64,
    ended: AtomicBool,
}

/// A corrupting proxy in front of one server.
pub struct Corrupter {
    port: u16,
    shared: Arc<Shared>,
}

impl Corrupter {
    pub fn start(wire: Wire, server: (String, u16), rng: &mut fastrand::Rng) -> Corrupter {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let mut plan = BTreeMap::new();
        for _ in 0..rng.u32(1..8) {
            // The first messages are the login, where most can go wrong.
            let most = *rng.choice(&[3u64, 6, 30, 150]).unwrap_or(&30);
            plan.insert(rng.u64(0..most), wire.corrupt(rng));
        }
        let shared = Arc::new(Shared {
            wire,
            plan: Mutex::new(plan),
            rng: Mutex::new(rng.fork()),
            messages: AtomicU64::new(0),
            corrupted: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let of_threads = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // ordering: Relaxed — the connection that wakes this thread comes after the flag.
                if of_threads.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                let (Ok(client_again), Ok(upstream_again)) = (client.try_clone(), upstream.try_clone())
                else {
                    continue;
                };
                thread::spawn(move || pass_on(client_again, upstream_again));
                let shared = of_threads.clone();
                thread::spawn(move || shared.answers(upstream, &client));
            }
        });
        Corrupter { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on nothing is corrupted.
    pub fn heal(&self) {
        self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How many messages were corrupted.
    pub fn corrupted(&self) -> u64 {
        // ordering: Relaxed — a count.
        self.shared.corrupted.load(Ordering::Relaxed)
    }
}

impl Drop for Corrupter {
    fn drop(&mut self) {
        // ordering: Relaxed — see the listener.
        self.shared.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

impl Shared {
    fn answers(&self, mut from: TcpStream, mut to: &TcpStream) {
        let mut arrived = Vec::new();
        let mut later: Option<Vec<u8>> = None;
        let mut buffer = vec![0; 65_536];
        'connection: while let Ok(read @ 1..) = from.read(&mut buffer) {
            arrived.extend_from_slice(&buffer[..read]);
            while let Some(len) = self.wire.whole(&arrived) {
                let message: Vec<u8> = arrived.drain(..len).collect();
                let (out, sent) = self.corrupt(message, &mut later);
                let done = match sent {
                    Sent::Whole => to.write_all(&out),
                    // The part that arrives before the cut.
                    Sent::Half => to
                        .write_all(&out[..out.len() / 2])
                        .and(Err(std::io::ErrorKind::ConnectionAborted.into())),
                    Sent::Dripping => out.chunks(1).try_for_each(|byte| {
                        thread::sleep(DRIP);
                        to.write_all(byte)
                    }),
                };
                if done.is_err() {
                    break 'connection;
                }
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }

    /// What is sent instead of a message, and how.
    fn corrupt(&self, mut message: Vec<u8>, later: &mut Option<Vec<u8>>) -> (Vec<u8>, Sent) {
        // ordering: Relaxed — a count.
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        let corrupt = self.plan.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        let before = later.take();
        let mut sent = Sent::Whole;
        if let Some(corrupt) = corrupt {
            // ordering: Relaxed — a count.
            self.corrupted.fetch_add(1, Ordering::Relaxed);
            let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
            let head = match self.wire {
                Wire::Mysql => 3,
                Wire::Postgres => 5,
                Wire::Redis => 1,
            };
            // What stands behind the head decides more often than what stands far behind.
            let len = message.len();
            let mut place = || {
                let most = if rng.bool() { len.min(12) } else { len };
                rng.usize(0..most)
            };
            match corrupt {
                Corruption::Bits(count) => {
                    for _ in 0..count {
                        let at = place();
                        message[at] ^= 1 << (at % 8);
                    }
                }
                Corruption::Bytes(bytes) => {
                    let at = place();
                    for (slot, byte) in message[at..].iter_mut().zip(bytes) {
                        *slot = byte;
                    }
                }
                Corruption::Length(len) => match self.wire {
                    Wire::Mysql if message.len() >= 3 => {
                        message[..3].copy_from_slice(&len.to_le_bytes()[..3]);
                    }
                    Wire::Postgres if message.len() >= 5 => message[1..5].copy_from_slice(&len.to_be_bytes()),
                    _ => message = format!("${len}\r\n").into_bytes(),
                },
                Corruption::Short => message.truncate(place().max(1)),
                Corruption::Cropped(len) => {
                    let head = if self.wire == Wire::Mysql { 4 } else { head };
                    message.resize(head + len, 0);
                    match self.wire {
                        Wire::Mysql => message[..3].copy_from_slice(&(len as u32).to_le_bytes()[..3]),
                        Wire::Postgres => message[1..5].copy_from_slice(&(len as u32 + 4).to_be_bytes()),
                        Wire::Redis => message.extend(b"\r\n"),
                    }
                }
                Corruption::Long(bytes) => message.extend(bytes),
                Corruption::Missing => message.clear(),
                Corruption::Twice => message.extend(message.clone()),
                Corruption::Later => *later = Some(std::mem::take(&mut message)),
                Corruption::Other(other) => message = other,
                Corruption::Noise(bytes) => {
                    message.truncate(head);
                    message.extend(bytes);
                }
                Corruption::Cut => sent = Sent::Half,
                Corruption::Drip => sent = Sent::Dripping,
            }
        }
        message.extend(before.into_iter().flatten());
        (message, sent)
    }
}
