//! Servers that only accept logins, like an attacker between a program and its server: they offer TLS or not, with any
//! certificate, ask for a password in a chosen way, and record what they receive.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::authority::Authority;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// MySQL's, version 10.
    Mysql,
    /// PostgreSQL's, version 3.
    Postgres,
    /// Redis' protocol, RESP.
    Redis,
}

/// How an impostor asks for a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// For a proof of it: the fast way of `caching_sha2_password`, SCRAM. Redis: for nothing.
    Proof,
    /// For a weak proof: `mysql_native_password`, `md5`.
    WeakProof,
    /// For the password itself, in the way that the protocol's usual login has for it: full `caching_sha2_password`,
    /// `AuthenticationCleartextPassword`, `AUTH`.
    Password,
    /// The same in another way: `mysql_clear_password`.
    OtherPassword,
    /// The same in a third way: `sha256_password`.
    ThirdPassword,
}

/// What it received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Every byte, decrypted.
    pub bytes: Vec<u8>,
    /// Whether the client encrypted.
    pub encrypted: bool,
    /// Whether the client logged in, or sent what it was asked for.
    pub logged_in: bool,
    /// Whether the client asked for a key under which to send its password.
    pub asked_for_a_key: bool,
}

impl Sent {
    /// Whether the client sent this text, or was going to under a key of the impostor's.
    #[must_use]
    pub fn discloses(&self, password: &str) -> bool {
        self.asked_for_a_key || self.says(password)
    }

    /// Whether the client sent this text.
    #[must_use]
    pub fn says(&self, text: &str) -> bool {
        self.bytes.windows(text.len()).any(|part| part == text.as_bytes())
    }
}

/// A listening impostor.
#[derive(Debug)]
pub struct Impostor {
    port: u16,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Impostor {
    /// Listens on every address of this machine; it shows the server's certificate of this authority, or offers no TLS.
    ///
    /// # Panics
    /// Where there is no free port, or no certificate.
    #[must_use]
    pub fn start(protocol: Protocol, asks: Asks, authority: Option<&Authority>) -> Impostor {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let tls = authority.map(|authority| {
            let chain = CertificateDer::pem_file_iter(authority.file("server.pem"))
                .and_then(Iterator::collect)
                .expect("a certificate");
            let key = PrivateKeyDer::from_pem_file(authority.file("server.key")).expect("a key");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
                .expect("a TLS configuration");
            Arc::new(config)
        });
        let sent = Arc::<Mutex<Vec<Sent>>>::default();
        let of_thread = Arc::clone(&sent);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (tls, all) = (tls.clone(), Arc::clone(&of_thread));
                std::thread::spawn(move || {
                    let mut line = Line { stream: Stream::Plain(client), sent: Sent::default() };
                    // Only the received bytes count, however the connection ends.
                    let _ = line.serve(protocol, asks, tls);
                    all.lock().unwrap_or_else(PoisonError::into_inner).push(line.sent.clone());
                    drop(line);
                });
            }
        });
        Impostor { port, sent }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The bytes of each connection that has ended.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
    Gone,
}

struct Line {
    stream: Stream,
    sent: Sent,
}

impl Read for Line {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.stream {
            Stream::Plain(stream) => stream.read(bytes),
            Stream::Tls(stream) => stream.read(bytes),
            Stream::Gone => Ok(0),
        }?;
        self.sent.bytes.extend_from_slice(&bytes[..read]);
        Ok(read)
    }
}

impl Line {
    fn say(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.write_all(bytes),
            Stream::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Stream::Gone => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn encrypt(&mut self, tls: Arc<ServerConfig>) -> io::Result<()> {
        let Stream::Plain(mut stream) = std::mem::replace(&mut self.stream, Stream::Gone) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut connection = ServerConnection::new(tls).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        self.sent.encrypted = true;
        self.stream = Stream::Tls(Box::new(StreamOwned::new(connection, stream)));
        Ok(())
    }

    fn serve(&mut self, protocol: Protocol, asks: Asks, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        if let Stream::Plain(stream) = &self.stream {
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        }
        match protocol {
            Protocol::Mysql => self.mysql(asks, tls),
            Protocol::Postgres => self.postgres(asks, tls),
            Protocol::Redis => self.redis(tls),
        }
    }

    fn mysql_packet(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let head = self.take(4)?;
        let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
        Ok((head[3], self.take(length)?))
    }

    fn mysql_say(&mut self, number: u8, packet: &[u8]) -> io::Result<()> {
        let length = (packet.len() as u32).to_le_bytes();
        self.say(&[&length[..3], &[number], packet].concat())
    }

    fn mysql(&mut self, asks: Asks, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        // CLIENT_PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH, CONNECT_WITH_DB and what every server can.
        let mut can: u32 = 0x0008_a20d;
        if tls.is_some() {
            can |= 0x0800;
        }
        let can = can.to_le_bytes();
        let plugin: &[u8] =
            if asks == Asks::WeakProof { b"mysql_native_password\0" } else { b"caching_sha2_password\0" };
        let greeting = [
            &b"\x0a8.0.36\0\x01\0\0\0abcdefgh\0"[..],
            &can[..2],
            &[45, 2, 0],
            &can[2..],
            &[21],
            &[0; 10],
            b"abcdefghijkl\0",
            plugin,
        ]
        .concat();
        self.mysql_say(0, &greeting)?;
        let (mut number, packet) = self.mysql_packet()?;
        if packet.len() == 32
            && let Some(tls) = tls
        {
            self.encrypt(tls)?;
            number = self.mysql_packet()?.0;
        }
        let scramble = b"abcdefghabcdefghijkl\0";
        match asks {
            Asks::Proof => self.mysql_say(number + 1, &[1, 3])?,
            Asks::WeakProof => {}
            Asks::Password => {
                self.mysql_say(number + 1, &[1, 4])?;
                let (at, answer) = self.mysql_packet()?;
                self.sent.asked_for_a_key = answer == [2];
                self.sent.logged_in = true;
                if self.sent.asked_for_a_key {
                    return Ok(());
                }
                number = at;
            }
            Asks::OtherPassword | Asks::ThirdPassword => {
                let plugin: &[u8] = if asks == Asks::OtherPassword {
                    b"mysql_clear_password\0"
                } else {
                    b"sha256_password\0"
                };
                self.mysql_say(number + 1, &[&[0xfe], plugin, scramble].concat())?;
                // One byte is the client's `COM_QUIT`.
                self.sent.logged_in = self.mysql_packet()?.1.len() > 1;
                return Ok(());
            }
        }
        // A server's OK; the client's first statement shows that it accepted it.
        let number = if asks == Asks::Proof { number + 2 } else { number + 1 };
        self.mysql_say(number, &[0, 0, 0, 2, 0, 0, 0])?;
        self.mysql_packet()?;
        self.sent.logged_in = true;
        Ok(())
    }

    fn postgres(&mut self, asks: Asks, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        loop {
            let head = self.take(8)?;
            let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            if word(4) != 80_877_103 {
                self.take(word(0) as usize - 8)?;
                break;
            }
            match &tls {
                Some(tls) => {
                    self.say(b"S")?;
                    self.encrypt(Arc::clone(tls))?;
                }
                None => self.say(b"N")?,
            }
        }
        let asked: &[u8] = match asks {
            Asks::Proof if self.sent.encrypted => b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
            Asks::Proof => b"\0\0\0\x0aSCRAM-SHA-256\0\0",
            Asks::WeakProof => b"\0\0\0\x05salt",
            _ => b"\0\0\0\x03",
        };
        let length = (asked.len() as u32 + 4).to_be_bytes();
        self.say(&[b"R", &length[..], asked].concat())?;
        let head = self.take(5)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        self.take(length as usize - 4)?;
        self.sent.logged_in = head[0] == b'p';
        Ok(())
    }

    fn redis(&mut self, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        if let Some(tls) = tls {
            self.encrypt(tls)?;
        }
        let mut bytes = [0; 4096];
        let read = self.read(&mut bytes)?;
        self.sent.logged_in = read > 0 && bytes[0] == b'*';
        if !self.sent.logged_in {
            // As Redis answers the start of a handshake.
            self.say(b"-ERR Protocol error: unbalanced quotes in request\r\n")?;
        }
        Ok(())
    }
}
