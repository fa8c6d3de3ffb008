//! The line between the MySQL driver and a server: keymill encrypts it, inspects its login, and ends it when it is late.
//!
//! The driver accepts no stream of ours. Its own TLS installs a cipher provider in the whole process, trusts public
//! authorities beside the configured ones, and sends the plain password to any server that ends the encryption. Its reads
//! have a timeout each, so a server that sends a byte now and then would hold it for ever. So it connects to a socket file,
//! and a thread forwards its packets to the server, under the deadlines of [`Socket`].
//!
//! The thread negotiates TLS as the protocol wants it (the greeting comes in clear, then `SSLRequest`), verifies what `tls=`
//! says, and inspects each packet of the login: the password itself (full `caching_sha2_password`, `mysql_clear_password`) goes
//! only where [`Mode::may_send_password`] allows it. The driver takes its end for a socket file and hands the password over in
//! clear. A server that is asked without encryption wants the password of `caching_sha2_password` under its own key, and the thread
//! encrypts it. The driver itself refuses `sha256_password`. After the login the thread forwards bytes.
//!
//! The thread ends with either end of the connection, and is joined.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use zeroize::Zeroizing;

use super::mysql_error::{IS_IT, IS_X, NOT_MYSQL, UNHEARD};
use super::packets::{self, CLIENT_MULTI_STATEMENTS, CLIENT_SSL, LOGIN_HEAD, Packets, PasswordRequest};
use crate::process::thread;
use crate::store::server::{self, ServerOptions, Target, unreached};
use crate::store::socket::{AT_LEAST, Socket};
use crate::store::time_budget::{self, Budget};
use crate::store::tls::{self, Mode, Protection};
use crate::store::{Fault, FaultKind, Secret};
use crate::system::MeetingPlace;
use crate::system::driver_listener::{self, DriverListener, DriverStream};

/// What the thread has found out.
#[derive(Debug, Default)]
struct LoginOutcome {
    protection: Option<Protection>,
    /// Why this end ended the login, if it did.
    fault: Option<Fault>,
    /// The server's greeting came.
    greeted: bool,
    /// The server offers TLS.
    offers_tls: bool,
    /// The login needs the password, and the connection is not encrypted.
    withheld: bool,
    /// The server's answer came too late, and this end ended the connection.
    late: bool,
    /// The thread's end of the driver's connection.
    driver: Option<Arc<DriverStream>>,
    /// The conversation with one of several stores that the driver's thread has.
    budget: Option<Budget>,
}

/// A thread between the driver and a server.
#[derive(Debug)]
pub(super) struct Tunnel {
    /// Where the driver is to connect.
    meeting_place: MeetingPlace,
    /// Another handle of the server's end, to shut it down.
    server: std::net::TcpStream,
    found: Arc<Mutex<LoginOutcome>>,
    carrier: Option<JoinHandle<()>>,
    /// How long an exchange may take.
    limit: Duration,
}

/// How the thread logs in.
struct Terms {
    mode: Mode,
    /// `None`: TLS is not used, whatever the server offers.
    tls: Option<(ClientConfig, ServerName<'static>)>,
    /// The server listens on a socket file, and takes that for as good as encrypted.
    by_file: bool,
    /// The server is told that a packet has one statement. The driver always says that it may have several.
    one_by_one: bool,
    /// The end of a login that cannot be made without a password, where there is none.
    without_password: Option<Fault>,
    /// The driver comes here over TCP, by which it sends no password. This end sends it.
    own_password: Option<Secret>,
}

/// A request of the server to which this end lets the driver not answer.
enum Unanswered {
    /// The password may not be sent here.
    Withheld(PasswordRequest),
    /// There is no password.
    NoPassword(Fault),
}

impl Tunnel {
    /// Connects to the server and waits for the driver at [`Tunnel::meeting_place`]. With `one_by_one` the server refuses a packet of several
    /// statements.
    pub(super) fn open(
        options: &ServerOptions,
        target: &Target,
        mode: Mode,
        one_by_one: bool,
    ) -> Result<Tunnel, Fault> {
        let limit = options.read_timeout.max(AT_LEAST);
        let tls = match (mode, target) {
            (mode, Target::Tcp { host, address }) if !mode.is_plain() => {
                let config = tls::client_config(&options.tls, mode)?;
                Some((config, tls::server_name(host, *address, mode)?))
            }
            _ => None,
        };
        let without_password = options
            .password
            .reveal()
            .is_empty()
            .then(|| Fault::new(FaultKind::Refused, tls::login_refused(options, mode)));
        let by_file = matches!(target, Target::Socket(_));
        let server = Socket::connect(target, options).map_err(|error| not_dialled(&error))?;
        let here = |error: io::Error| {
            Fault::new(FaultKind::Unavailable, format!("the connection cannot be set up: {error}"))
        };
        let listening = DriverListener::open().map_err(here)?;
        let meeting_place = listening.place();
        let over_tcp = matches!(meeting_place, MeetingPlace::Port(_));
        let own_password = over_tcp.then(|| options.password.clone());
        let terms = Terms { mode, tls, by_file, one_by_one, without_password, own_password };
        let found = Arc::new(Mutex::new(LoginOutcome {
            budget: time_budget::budget(limit),
            ..LoginOutcome::default()
        }));
        let again = server.again().map_err(here)?;
        let mut tunnel =
            Tunnel { meeting_place, server: again, found: Arc::clone(&found), carrier: None, limit };
        let carrier = thread::spawn("keymill-mysql", move || {
            let accepted = listening.accept(limit);
            // A process that is killed from now on leaves no file behind.
            drop(listening);
            let ended = accepted.and_then(|driver| {
                let driver = Arc::new(driver);
                note(&found, |found| found.driver = Some(Arc::clone(&driver)));
                let mut carrier = Carrier::new(driver, server, limit, Arc::clone(&found))?;
                let carried = carrier.log_in(terms, &found).and_then(|()| carrier.carry());
                // Before the driver learns of the end.
                note(&found, |found| found.late = carrier.server.is_late() && carried.is_err());
                carried
            });
            // The end of a connection is not reported: the driver's own error says what it means for the request.
            let Err(error) = ended else { return };
            let not_mysql = || {
                (error.kind() == io::ErrorKind::InvalidData)
                    .then(|| Fault::new(FaultKind::Unavailable, format!("{NOT_MYSQL}; {IS_IT}")))
            };
            if let Some(fault) = tls::refusal(&error).or_else(not_mysql) {
                note(&found, |found| {
                    found.fault.get_or_insert(fault);
                });
            }
        });
        tunnel.carrier = Some(carrier.map_err(here)?);
        Ok(tunnel)
    }

    /// The next exchanges belong to this thread's conversation.
    pub(super) fn begin_conversation(&self) {
        note(&self.found, |found| found.budget = time_budget::budget(self.limit));
    }

    /// Where the driver is to connect, once.
    pub(super) fn meeting_place(&self) -> &MeetingPlace {
        &self.meeting_place
    }

    /// Why this end ended the login.
    pub(super) fn fault(&mut self) -> Option<Fault> {
        // The driver has given up; a server that sends a byte now and then is not waited for.
        let _ = self.server.shutdown(Shutdown::Both);
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
        note(&self.found, |found| found.fault.take())
    }

    /// Whether the same login may succeed inside TLS: the server offers it, and has refused the login or needs the password itself.
    pub(super) fn needs_tls(&self, is_refused: bool) -> bool {
        note(&self.found, |found| found.offers_tls && (found.withheld || is_refused))
    }

    /// Whether the server's greeting came.
    pub(super) fn was_greeted(&self) -> bool {
        note(&self.found, |found| found.greeted)
    }

    /// The driver's error if this end ended the connection because the server's answer came too late: the driver has only
    /// seen the end.
    pub(super) fn late_error(&self) -> Option<mysql::Error> {
        note(&self.found, |found| found.late).then(|| io::Error::from(io::ErrorKind::TimedOut).into())
    }

    /// Known once the driver is logged in.
    pub(super) fn protection(&self) -> Protection {
        note(&self.found, |found| found.protection).unwrap_or(Protection::None)
    }
}

impl Drop for Tunnel {
    /// Dropped after the driver, whose end of the connection is closed by now.
    fn drop(&mut self) {
        // A forked child may have a copy of the driver's end, so closing it may end nothing. The driver's last packet
        // (`COM_QUIT`) is still forwarded.
        if let Some(driver) = note(&self.found, |found| found.driver.take()) {
            driver_listener::end_reading(&driver);
        }
        if let Some(carrier) = self.carrier.take() {
            // A thread that runs on could outlive the library it runs.
            let _ = carrier.join();
        }
    }
}

fn note<T>(found: &Mutex<LoginOutcome>, what: impl FnOnce(&mut LoginOutcome) -> T) -> T {
    what(&mut found.lock().unwrap_or_else(PoisonError::into_inner))
}

fn not_dialled(error: &io::Error) -> Fault {
    let words = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => UNHEARD.to_owned(),
        kind => unreached(kind, &error.to_string()).unwrap_or_else(|| error.to_string()),
    };
    server::not_dialled(error, words)
}

/// The driver's end, the server's end, and the encryption of the latter once there is one.
struct Carrier {
    driver: Arc<DriverStream>,
    server: Socket,
    tls: Option<Box<ClientConnection>>,
    /// How long an exchange may take.
    limit: Duration,
    found: Arc<Mutex<LoginOutcome>>,
    /// Packets of the login that the driver does not know of: the two sides number theirs differently.
    unseen: u8,
}

impl Drop for Carrier {
    /// Shuts both ends down: a forked child may hold copies, so closing them would not end the connection.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.server);
        }
        self.server.end();
        let _ = self.driver.shutdown(Shutdown::Both);
    }
}

impl Carrier {
    fn new(
        driver: Arc<DriverStream>,
        server: Socket,
        limit: Duration,
        found: Arc<Mutex<LoginOutcome>>,
    ) -> io::Result<Carrier> {
        driver.set_write_timeout(Some(limit))?;
        driver.set_read_timeout(Some(limit))?;
        let mut carrier = Carrier { driver, server, tls: None, limit, found, unseen: 0 };
        carrier.begin();
        Ok(carrier)
    }

    /// Begins an exchange.
    fn begin(&mut self) {
        let budget = note(&self.found, |found| found.budget);
        self.server.begin_in(self.limit, budget);
    }

    /// Forwards and inspects the packets of the login.
    fn log_in(&mut self, terms: Terms, found: &Mutex<LoginOutcome>) -> io::Result<()> {
        let mut from_server = Packets::default();
        let mut from_driver = Packets::default();
        let greeting = self.server_packet(&mut from_server)?;
        let refuse = |fault| {
            note(found, |found| found.fault = Some(fault));
            Err(io::ErrorKind::ConnectionAborted.into())
        };
        let Some(known) = packets::capabilities(&greeting) else {
            if greeting == packets::GREETING_OF_X {
                return refuse(Fault::new(FaultKind::Unavailable, IS_X));
            }
            // An error: the driver reports it.
            return match greeting.first() {
                Some(0xff) => self.send_driver(&from_server, &greeting),
                _ => Err(io::ErrorKind::InvalidData.into()),
            };
        };
        note(found, |found| {
            found.greeted = true;
            found.offers_tls = known & CLIENT_SSL != 0;
        });
        self.send_driver(&from_server, &greeting)?;
        let mut login = self.driver_packet(&mut from_driver)?;
        let Terms { mode, tls, by_file, one_by_one, without_password, own_password } = terms;
        if one_by_one {
            // Low bytes first: bit 16 is in the third byte.
            let Some(third) = login.get_mut(2) else { return Err(io::ErrorKind::InvalidData.into()) };
            *third &= !((CLIENT_MULTI_STATEMENTS >> 16) as u8);
        }
        let protection = match tls {
            Some(tls) if known & CLIENT_SSL != 0 => {
                if login.len() < LOGIN_HEAD {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                // Bytes in clear behind the greeting would be taken for answers to the login, which is encrypted.
                if !from_server.kept.is_empty() {
                    return refuse(tls::spoke_too_early());
                }
                self.encrypt(tls, &from_driver, &mut login)?;
                mode.encrypted()
            }
            Some(_) if mode != Mode::Prefer => return refuse(tls::not_offered()),
            _ => Protection::None,
        };
        note(found, |found| found.protection = Some(protection));
        self.send_server(&from_driver, &login)?;
        let scramble = packets::scramble_in(&greeting);
        let in_clear = protection == Protection::None && !by_file;
        let may_send = mode.may_send_password(protection);
        let packets = (&mut from_server, &mut from_driver);
        match self.authenticate(
            packets,
            scramble,
            (in_clear, may_send),
            without_password,
            own_password.as_ref(),
        )? {
            Some(Unanswered::Withheld(asked)) => {
                note(found, |found| found.withheld = true);
                return refuse(tls::password_withheld(asked.how(in_clear), mode));
            }
            Some(Unanswered::NoPassword(fault)) => return refuse(fault),
            None => {}
        }
        // Bytes that arrived before the login was over belong to no login.
        if from_server.kept.is_empty() && from_driver.kept.is_empty() {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
    }

    /// Asks the server for TLS, with the head of the driver's login, and shakes hands.
    fn encrypt(
        &mut self,
        (config, name): (ClientConfig, ServerName<'static>),
        from_driver: &Packets,
        login: &mut [u8],
    ) -> io::Result<()> {
        // Low bytes first: bit 11 is in the second byte.
        login[1] |= (CLIENT_SSL >> 8) as u8;
        let request = login[..LOGIN_HEAD].to_vec();
        self.send_server(from_driver, &request)?;
        self.unseen += 1;
        let mut tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut self.server)?;
        }
        self.tls = Some(Box::new(tls));
        self.begin();
        Ok(())
    }

    /// Forwards what follows the driver's login until the server has accepted or refused it. Answers with the request that stops it, if
    /// there is one.
    fn authenticate(
        &mut self,
        (from_server, from_driver): (&mut Packets, &mut Packets),
        mut scramble: Vec<u8>,
        (in_clear, may_send): (bool, bool),
        mut without_password: Option<Fault>,
        own_password: Option<&Secret>,
    ) -> io::Result<Option<Unanswered>> {
        loop {
            let packet = packets::terminated(self.server_packet(from_server)?);
            let asked = PasswordRequest::in_packet(&packet);
            if let Some(asked) = asked.filter(|_| !may_send) {
                return Ok(Some(Unanswered::Withheld(asked)));
            }
            if let Some(fault) = without_password.take_if(|_| packets::asks_for_parsec(&packet)) {
                return Ok(Some(Unanswered::NoPassword(fault)));
            }
            if let (Some(asked), Some(password)) = (asked, own_password) {
                // The driver learns of neither the request nor the answer.
                self.unseen += 2;
                if let Some(0xfe) = packet.first() {
                    scramble = packets::scramble_of(&packet);
                }
                let mut answer = Zeroizing::new(password.reveal().as_bytes().to_vec());
                answer.push(0);
                if asked == PasswordRequest::CachingSha2 && in_clear {
                    self.send_under_key(from_server, from_driver, &answer, &scramble)?;
                } else {
                    self.send_server(from_driver, &answer)?;
                }
                continue;
            }
            if packets::asks_for_too_much(&packet) || packets::is_malformed(&packet) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.send_driver(from_server, &packet)?;
            match packet.first() {
                // Logged in, or refused. Packet numbers begin anew.
                Some(0x00 | 0xff) | None => return Ok(None),
                // The fast path succeeded: the server's next packet follows without a request.
                _ if packet == [0x01, 0x03] => {}
                _ => {
                    if let Some(0xfe) = packet.first() {
                        scramble = packets::scramble_of(&packet);
                    }
                    let answer = self.driver_packet(from_driver)?;
                    if asked == Some(PasswordRequest::CachingSha2) && in_clear {
                        self.send_under_key(from_server, from_driver, &answer, &scramble)?;
                    } else {
                        self.send_server(from_driver, &answer)?;
                    }
                }
            }
        }
    }

    /// Asks for the server's key and sends the password under it.
    fn send_under_key(
        &mut self,
        from_server: &mut Packets,
        from_driver: &Packets,
        password: &[u8],
        scramble: &[u8],
    ) -> io::Result<()> {
        self.send_server(from_driver, &[0x02])?;
        let key = self.server_packet(from_server)?;
        self.unseen += 2;
        let (Some((0x01, key)), false) = (key.split_first(), scramble.is_empty()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        if packets::is_key_too_long(key) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let covered: Vec<u8> =
            password.iter().zip(scramble.iter().cycle()).map(|(byte, cover)| byte ^ cover).collect();
        // It panics if the bytes are no key, or if the key is too short.
        let sent = catch_unwind(|| mysql_common::crypto::encrypt(&covered, key))
            .map_err(|payload| io::Error::new(io::ErrorKind::InvalidData, thread::panic_words(payload)))?;
        self.send_server(from_driver, &sent)
    }

    fn server_packet(&mut self, packets: &mut Packets) -> io::Result<Vec<u8>> {
        loop {
            if let Some(packet) = packets.next()? {
                return Ok(packet);
            }
            let read = self.read_server(&mut packets.kept)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn driver_packet(&mut self, packets: &mut Packets) -> io::Result<Vec<u8>> {
        loop {
            if let Some(packet) = packets.next()? {
                return Ok(packet);
            }
            let mut bytes = [0; 4096];
            let read = (&*self.driver).read(&mut bytes)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            packets.kept.extend_from_slice(&bytes[..read]);
        }
    }

    fn send_server(&mut self, from_driver: &Packets, packet: &[u8]) -> io::Result<()> {
        self.write_server(&Packets::framed(from_driver.number.wrapping_add(self.unseen), packet))
    }

    fn send_driver(&mut self, from_server: &Packets, packet: &[u8]) -> io::Result<()> {
        (&*self.driver).write_all(&Packets::framed(from_server.number.wrapping_sub(self.unseen), packet))
    }

    /// Received bytes, decrypted; blocks until there are some. 0: the server has ended the connection.
    fn read_server(&mut self, into: &mut Vec<u8>) -> io::Result<usize> {
        let mut bytes = [0; 16384];
        let Some(tls) = &mut self.tls else {
            let read = self.server.read(&mut bytes)?;
            into.extend_from_slice(&bytes[..read]);
            return Ok(read);
        };
        loop {
            match tls.reader().read(&mut bytes) {
                Ok(read) => {
                    into.extend_from_slice(&bytes[..read]);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if tls.read_tls(&mut self.server)? == 0 {
                return Ok(0);
            }
            let state = tls.process_new_packets();
            while tls.wants_write() {
                tls.write_tls(&mut self.server)?;
            }
            state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    fn write_server(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.server.write_all(bytes) };
        while !bytes.is_empty() {
            let taken = tls.writer().write(bytes)?;
            bytes = &bytes[taken..];
            while tls.wants_write() {
                tls.write_tls(&mut self.server)?;
            }
        }
        Ok(())
    }

    /// Forwards bytes until one end has no more. The driver's first bytes after an answer begin an exchange; bytes of the
    /// server that come after its deadline end the connection. Of a server that sends none the driver itself has a limit.
    fn carry(&mut self) -> io::Result<()> {
        let mut answered = true;
        let mut bytes = [0; 16384];
        let mut answer = Vec::new();
        loop {
            // Bytes that were decrypted together with the last packet of the login do not make the socket readable again.
            if let Some(tls) = &mut self.tls {
                loop {
                    match tls.reader().read(&mut bytes) {
                        Ok(0) => return Ok(()),
                        Ok(read) => (&*self.driver).write_all(&bytes[..read])?,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
            }
            let ready = driver_listener::readable(
                &[driver_listener::handle(&*self.driver), self.server.handle()],
                None,
            )?;
            if ready[0] {
                let read = (&*self.driver).read(&mut bytes)?;
                if read == 0 {
                    return Ok(());
                }
                if std::mem::take(&mut answered) {
                    self.begin();
                }
                self.write_server(&bytes[..read])?;
            }
            if ready[1] {
                if self.server.is_late() && self.server.has_ended() {
                    return Ok(());
                }
                answered = true;
                answer.clear();
                if !self.read_some(&mut answer)? {
                    return Ok(());
                }
                (&*self.driver).write_all(&answer)?;
            }
        }
    }

    /// One read of the server's socket, which is ready; it may yield no plain text yet. `false`: the server has ended.
    fn read_some(&mut self, into: &mut Vec<u8>) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(self.read_server(into)? > 0) };
        let read = tls.read_tls(&mut self.server)?;
        let state = tls.process_new_packets();
        while tls.wants_write() {
            tls.write_tls(&mut self.server)?;
        }
        state.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(read > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_socket_file_is_gone_while_a_server_still_says_nothing() -> io::Result<()> {
        let silent = TcpListener::bind(("127.0.0.1", 0))?;
        let target = Target::Tcp { host: "127.0.0.1".to_owned(), address: silent.local_addr()? };
        let limit = Duration::from_secs(60);
        let options =
            ServerOptions { connect_timeout: limit, read_timeout: limit, ..ServerOptions::default() };
        let mut tunnel = Tunnel::open(&options, &target, Mode::Off, false).expect("a connection");
        let MeetingPlace::File(socket) = tunnel.meeting_place() else { panic!("a port") };
        let folder = socket.parent().expect("a folder").to_owned();
        assert!(folder.exists());
        let driver = DriverStream::connect(socket)?;
        let until = Instant::now() + limit / 2;
        while folder.exists() {
            assert!(Instant::now() < until, "{} is left", folder.display());
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(driver);
        assert!(tunnel.fault().is_none());
        Ok(())
    }
}
