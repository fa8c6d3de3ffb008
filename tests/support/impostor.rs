//! Servers that only accept logins, like an attacker between a program and its server: they offer TLS or not, with any
//! certificate, ask for a password in a chosen way, and record what they receive.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
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

/// How an impostor departs from its protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// It does not.
    #[default]
    Usual,
    /// From this moment on it sends a byte now and then of a message that never ends.
    Drips(Moment),
    /// It sends these bytes in clear right before a TLS handshake: behind MySQL's greeting, behind PostgreSQL's `S`.
    Injects(&'static [u8]),
    /// It has an RSA key, decrypts the password that it gets under it, and lets the client in.
    Decrypts,
    /// It offers TLS to the first client only.
    DeniesTlsNext,
    /// Its own proof that it knows the password, which SCRAM ends with, is a wrong one.
    ProvesFalsely,
}

/// A moment of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server's first message.
    Greeting,
    /// Its part of the TLS handshake.
    Handshake,
    /// Its answer to the login; encrypted, in the middle of a TLS record.
    Login,
    /// Its answer to the first statement; encrypted, each byte is a TLS record.
    Answer,
}

/// The pause between two bytes of an impostor that drips.
const DRIP: Duration = Duration::from_millis(200);

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
        Impostor::with(Manner::Usual, protocol, asks, authority)
    }

    /// The same, but it departs from its protocol.
    ///
    /// # Panics
    /// Where there is no free port, or no certificate.
    #[must_use]
    pub fn with(manner: Manner, protocol: Protocol, asks: Asks, authority: Option<&Authority>) -> Impostor {
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
            for (number, client) in listener.incoming().flatten().enumerate() {
                let offers_tls = number == 0 || manner != Manner::DeniesTlsNext;
                let (tls, all) = (tls.clone().filter(|_| offers_tls), Arc::clone(&of_thread));
                std::thread::spawn(move || {
                    let mut line = Line { stream: Stream::Plain(client), sent: Sent::default(), manner };
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
    manner: Manner,
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

    /// Bytes behind `message`, where it injects some.
    fn with_injected(&self, message: &[u8]) -> Vec<u8> {
        match self.manner {
            Manner::Injects(bytes) => [message, bytes].concat(),
            _ => message.to_vec(),
        }
    }

    fn drips_at(&self, moment: Moment) -> bool {
        self.manner == Manner::Drips(moment)
    }

    /// Sends this and then a byte now and then, until the client has gone.
    fn drip(&mut self, head: &[u8]) -> io::Result<()> {
        self.say(head)?;
        loop {
            self.say(b"x")?;
            std::thread::sleep(DRIP);
        }
    }

    /// The same below the encryption: a TLS record of this kind that never ends.
    fn drip_record(&mut self, kind: u8) -> io::Result<()> {
        let stream = match &mut self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => &mut stream.sock,
            Stream::Gone => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        stream.write_all(&[kind, 3, 3, 0x30, 0])?;
        loop {
            stream.write_all(b"x")?;
            std::thread::sleep(DRIP);
        }
    }

    /// Drips if this is the moment.
    fn maybe_drip(&mut self, moment: Moment, head: &[u8]) -> io::Result<()> {
        match moment {
            _ if !self.drips_at(moment) => Ok(()),
            Moment::Login if self.sent.encrypted => self.drip_record(0x17),
            _ => self.drip(head),
        }
    }

    fn encrypt(&mut self, tls: Arc<ServerConfig>) -> io::Result<()> {
        let Stream::Plain(mut stream) = std::mem::replace(&mut self.stream, Stream::Gone) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        if self.drips_at(Moment::Handshake) {
            self.stream = Stream::Plain(stream);
            return self.drip_record(0x16);
        }
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
        let mut message = [&length[..3], &[number], packet].concat();
        if number == 0 {
            message = self.with_injected(&message);
        }
        self.say(&message)
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
        self.maybe_drip(Moment::Greeting, &[0xff, 0x3f, 0, 0, 10])?;
        self.mysql_say(0, &greeting)?;
        let (mut number, packet) = self.mysql_packet()?;
        if packet.len() == 32
            && let Some(tls) = tls
        {
            self.encrypt(tls)?;
            number = self.mysql_packet()?.0;
        }
        let an_error = |number: u8| [0xff, 0x3f, 0, number, 0xff, 0x15, 0x04];
        self.maybe_drip(Moment::Login, &an_error(number + 1))?;
        let scramble = b"abcdefghabcdefghijkl\0";
        match asks {
            Asks::Proof => self.mysql_say(number + 1, &[1, 3])?,
            Asks::WeakProof => {}
            Asks::Password => {
                self.mysql_say(number + 1, &[1, 4])?;
                let (at, answer) = self.mysql_packet()?;
                self.sent.asked_for_a_key = answer == [2];
                number = at;
                if self.sent.asked_for_a_key && self.manner == Manner::Decrypts {
                    number = self.decrypt_password(number, scramble)?;
                } else if self.sent.asked_for_a_key {
                    self.sent.logged_in = true;
                    return Ok(());
                }
                self.sent.logged_in = true;
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
        self.maybe_drip(Moment::Answer, &an_error(1))
    }

    /// Sends a key of its own and decrypts what comes back, as a server with `caching_sha2_password` does; answers with the
    /// number of the last packet. The decrypted bytes count as received.
    fn decrypt_password(&mut self, number: u8, scramble: &[u8]) -> io::Result<u8> {
        let folder = tempfile::tempdir()?;
        let openssl = |arguments: &[&str]| -> io::Result<Vec<u8>> {
            let ran = Command::new("openssl").current_dir(&folder).args(arguments).output()?;
            if ran.status.success() { Ok(ran.stdout) } else { Err(io::Error::other(format!("{ran:?}"))) }
        };
        openssl(&["genrsa", "-out", "key.pem", "2048"])?;
        let key = openssl(&["rsa", "-in", "key.pem", "-pubout"])?;
        self.mysql_say(number + 1, &[b"\x01", key.as_slice()].concat())?;
        let (number, encrypted) = self.mysql_packet()?;
        std::fs::write(folder.path().join("sent"), encrypted)?;
        let padding = ["-pkeyopt", "rsa_padding_mode:oaep"];
        let decrypt = [&["pkeyutl", "-decrypt", "-inkey", "key.pem", "-in", "sent"][..], &padding].concat();
        let covered = openssl(&decrypt)?;
        let scramble = scramble.iter().filter(|byte| **byte != 0).cycle();
        self.sent.bytes.extend(covered.iter().zip(scramble).map(|(byte, cover)| byte ^ cover));
        Ok(number)
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
                    let offer = self.with_injected(b"S");
                    self.say(&offer)?;
                    self.encrypt(Arc::clone(tls))?;
                }
                None => self.say(b"N")?,
            }
        }
        let an_error = b"E\0\0\x3f\xffS";
        self.maybe_drip(Moment::Greeting, an_error)?;
        self.maybe_drip(Moment::Login, an_error)?;
        if self.drips_at(Moment::Answer) {
            self.say(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I")?;
            self.take(5)?;
            self.sent.logged_in = true;
            return self.maybe_drip(Moment::Answer, an_error);
        }
        let asked: &[u8] = match asks {
            Asks::Proof if self.sent.encrypted => b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0",
            Asks::Proof => b"\0\0\0\x0aSCRAM-SHA-256\0\0",
            Asks::WeakProof => b"\0\0\0\x05salt",
            _ => b"\0\0\0\x03",
        };
        self.postgres_say(asked)?;
        let head = self.take(5)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
        let first = self.take(length as usize - 4)?;
        self.sent.logged_in = head[0] == b'p';
        if self.manner == Manner::ProvesFalsely {
            let nonce = first.windows(2).rposition(|two| two == b"r=").map_or(&[][..], |at| &first[at + 2..]);
            let salted = [b"r=", nonce, b"more,s=c2FsdA==,i=4096"].concat();
            self.postgres_say(&[&[0, 0, 0, 11], &salted[..]].concat())?;
            let head = self.take(5)?;
            self.take(u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4)?;
            // 32 bytes, as a right proof has.
            let proof = b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
            self.postgres_say(&[&[0, 0, 0, 12], &proof[..]].concat())?;
            self.postgres_say(&[0; 4])?;
        }
        Ok(())
    }

    /// A message of the login.
    fn postgres_say(&mut self, body: &[u8]) -> io::Result<()> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        self.say(&[b"R", &length[..], body].concat())
    }

    fn redis(&mut self, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        if let Some(tls) = tls {
            let injected = self.with_injected(b"");
            self.say(&injected)?;
            self.encrypt(tls)?;
        }
        let mut bytes = [0; 4096];
        let read = self.read(&mut bytes)?;
        self.sent.logged_in = read > 0 && bytes[0] == b'*';
        self.maybe_drip(Moment::Greeting, b"-ERR ")?;
        self.maybe_drip(Moment::Login, b"-ERR ")?;
        self.maybe_drip(Moment::Answer, b"$100000\r\n")?;
        if !self.sent.logged_in {
            // As Redis answers the start of a handshake.
            self.say(b"-ERR Protocol error: unbalanced quotes in request\r\n")?;
        }
        Ok(())
    }
}
