//! TLS for the MySQL driver: keymill encrypts the connection itself.
//!
//! The driver's own TLS installs a cipher provider in the whole process, trusts public authorities beside the configured
//! ones, and sends the plain password to any server that ends the encryption. The driver accepts no stream of ours. So it
//! connects to a socket file, and a thread forwards its packets to the server. The thread negotiates TLS as the protocol
//! wants it (the greeting comes in clear, then `SSLRequest`), verifies what `tls=` says, and inspects each packet of the
//! login: it forwards the plain password (full `caching_sha2_password`) only to a server whose certificate was verified.
//! The driver itself refuses the other methods that send a password (`mysql_clear_password`, `sha256_password`). After the
//! login the thread forwards bytes.
//!
//! The thread ends with either end of the connection, and is joined.

use std::fs::DirBuilder;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::error::UNHEARD;
use crate::base::thread;
use crate::store::server::{ServerOptions, Target, unreached};
use crate::store::tls::{self, Mode, Protection};
use crate::store::{Fault, FaultKind};

/// `CLIENT_SSL` of the protocol's capabilities.
const CLIENT_SSL: u32 = 0x0800;
/// The common head of `SSLRequest` and the login: capabilities, longest packet, character set, filler.
const LOGIN_HEAD: usize = 32;
/// The longest packet of a login; a longer one belongs to another protocol.
const LONGEST: usize = 1 << 16;

/// The outcome of the login.
#[derive(Debug, Default)]
struct Found {
    protection: Option<Protection>,
    /// Why this end ended the login, if it did.
    fault: Option<Fault>,
    /// Another handle of the thread's end of the driver's connection.
    driver: Option<UnixStream>,
}

/// A thread between the driver and a server.
#[derive(Debug)]
pub(super) struct Tunnel {
    folder: Option<PathBuf>,
    /// Another handle of the server's end, to shut it down.
    server: TcpStream,
    found: Arc<Mutex<Found>>,
    carrier: Option<JoinHandle<()>>,
}

impl Tunnel {
    /// Connects to the server and waits for the driver at [`Tunnel::socket`].
    pub(super) fn open(options: &ServerOptions, target: &Target, mode: Mode) -> Result<Tunnel, Fault> {
        let Target::Tcp { host, address } = target else {
            return Err(Fault::new(FaultKind::Refused, "a socket file is never encrypted"));
        };
        let limit = options.read_timeout.max(Duration::from_millis(1));
        let config = tls::client_config(&options.tls, mode)?;
        let name = tls::server_name(host, *address, mode)?;
        let server = dial(*address, options).map_err(|error| not_dialled(&error))?;
        let here = |error: io::Error| {
            Fault::new(FaultKind::Unavailable, format!("the encrypted connection cannot be set up: {error}"))
        };
        let (folder, listener) = private_socket().map_err(here)?;
        let found = Arc::<Mutex<Found>>::default();
        let again = server.try_clone().map_err(here)?;
        let mut tunnel =
            Tunnel { folder: Some(folder), server: again, found: Arc::clone(&found), carrier: None };
        let carrier = thread::spawn("keymill-tls", move || {
            let ended = accept(&listener, limit).and_then(|driver| {
                drop(listener);
                let again = driver.try_clone()?;
                note(&found, |found| found.driver = Some(again));
                let mut carrier = Carrier::new(driver, server, limit)?;
                carrier.log_in(config, name, mode, &found)?;
                carrier.carry()
            });
            // The end of a connection is not reported: the driver's own error says what it means for the request.
            if let Err(error) = ended
                && let Some(fault) = tls::refusal(&error)
            {
                note(&found, |found| {
                    found.fault.get_or_insert(fault);
                });
            }
        });
        tunnel.carrier = Some(carrier.map_err(here)?);
        Ok(tunnel)
    }

    /// Where the driver is to connect.
    pub(super) fn socket(&self) -> String {
        let folder = self.folder.as_deref().unwrap_or(Path::new(""));
        folder.join(SOCKET).display().to_string()
    }

    /// Removes the socket file: the driver has connected, or never will.
    pub(super) fn taken(&mut self) {
        if let Some(folder) = self.folder.take() {
            let _ = std::fs::remove_file(folder.join(SOCKET));
            let _ = std::fs::remove_dir(folder);
        }
    }

    /// Why this end ended the login.
    pub(super) fn fault(&mut self) -> Option<Fault> {
        self.taken();
        // The driver has given up; a server that sends a byte now and then is not waited for.
        let _ = self.server.shutdown(Shutdown::Both);
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
        note(&self.found, |found| found.fault.take())
    }

    /// Known once the driver is logged in.
    pub(super) fn protection(&self) -> Protection {
        note(&self.found, |found| found.protection).unwrap_or(Protection::None)
    }
}

impl Drop for Tunnel {
    /// Dropped after the driver, whose end of the connection is closed by now.
    fn drop(&mut self) {
        self.taken();
        // A forked child may have a copy of the driver's end, so closing it may end nothing. The driver's last packet
        // (`COM_QUIT`) is still forwarded.
        if let Some(driver) = note(&self.found, |found| found.driver.take()) {
            let _ = driver.shutdown(Shutdown::Read);
        }
        if let Some(carrier) = self.carrier.take() {
            // A thread that runs on could outlive the library it runs.
            let _ = carrier.join();
        }
    }
}

fn note<T>(found: &Mutex<Found>, what: impl FnOnce(&mut Found) -> T) -> T {
    what(&mut found.lock().unwrap_or_else(PoisonError::into_inner))
}

fn not_dialled(error: &io::Error) -> Fault {
    let words = match error.kind() {
        io::ErrorKind::TimedOut => UNHEARD.to_owned(),
        kind => unreached(kind, &error.to_string()).unwrap_or_else(|| error.to_string()),
    };
    Fault::new(FaultKind::Unavailable, words)
}

fn dial(address: std::net::SocketAddr, options: &ServerOptions) -> io::Result<TcpStream> {
    let server = TcpStream::connect_timeout(&address, options.connect_timeout.max(Duration::from_millis(1)))?;
    server.set_nodelay(true)?;
    crate::store::server::give_up_after(&server, options.read_timeout)?;
    Ok(server)
}

const SOCKET: &str = "s";

/// A listening socket file in a folder that only this user may enter.
fn private_socket() -> io::Result<(PathBuf, UnixListener)> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    // A container's file system may be read-only but for its shared memory; and a socket's path may have 107 bytes at most.
    for parent in [std::env::temp_dir(), PathBuf::from("/dev/shm")] {
        let folder = parent.join(format!("keymill-{:016x}", crate::base::random::u64()));
        let made = DirBuilder::new().mode(0o700).create(&folder).and_then(|()| {
            let listener = UnixListener::bind(folder.join(SOCKET)).inspect_err(|_| {
                let _ = std::fs::remove_dir(&folder);
            })?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        match made {
            Ok(listener) => return Ok((folder, listener)),
            Err(error) => {
                last = io::Error::new(
                    error.kind(),
                    format!("no socket file can be made in `{}`: {error}", parent.display()),
                );
            }
        }
    }
    Err(last)
}

fn accept(listener: &UnixListener, limit: Duration) -> io::Result<UnixStream> {
    readable(&[listener.as_raw_fd()], Some(limit))?;
    let (driver, _) = listener.accept()?;
    driver.set_nonblocking(false)?;
    Ok(driver)
}

/// Waits until one of the ends can be read or has ended; answers which.
fn readable(ends: &[RawFd], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<_> =
        ends.iter().map(|fd| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 }).collect();
    let limit = limit.map_or(-1, |limit| i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1));
    loop {
        // SAFETY: `polled` has the stated length, and lives through the call.
        let ready = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, limit) };
        match ready {
            0 => return Err(io::ErrorKind::TimedOut.into()),
            1.. => return Ok(polled.iter().map(|end| end.revents != 0).collect()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// The driver's end, the server's end, and the encryption of the latter once there is one.
struct Carrier {
    driver: UnixStream,
    server: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Drop for Carrier {
    /// Shuts both ends down: a forked child may hold copies, so closing them would not end the connection.
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = tls.write_tls(&mut self.server);
        }
        let _ = self.server.shutdown(Shutdown::Both);
        let _ = self.driver.shutdown(Shutdown::Both);
    }
}

impl Carrier {
    fn new(driver: UnixStream, server: TcpStream, limit: Duration) -> io::Result<Carrier> {
        driver.set_write_timeout(Some(limit))?;
        driver.set_read_timeout(Some(limit))?;
        server.set_write_timeout(Some(limit))?;
        server.set_read_timeout(Some(limit))?;
        Ok(Carrier { driver, server, tls: None })
    }

    /// Forwards and inspects the packets of the login.
    fn log_in(
        &mut self,
        config: ClientConfig,
        name: ServerName<'static>,
        mode: Mode,
        found: &Mutex<Found>,
    ) -> io::Result<()> {
        let mut from_server = Packets::default();
        let mut from_driver = Packets::default();
        let greeting = self.server_packet(&mut from_server)?;
        let offers = capabilities(&greeting).is_some_and(|known| known & CLIENT_SSL != 0);
        self.send_driver(&mut from_server, &greeting)?;
        let Some(offered) = capabilities(&greeting).map(|_| offers) else {
            // An error, or another protocol: the driver reports it.
            return Ok(());
        };
        let mut login = self.driver_packet(&mut from_driver)?;
        let protection = if offered {
            if login.len() < LOGIN_HEAD {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // Low bytes first: bit 11 is in the second byte.
            login[1] |= (CLIENT_SSL >> 8) as u8;
            let request = login[..LOGIN_HEAD].to_vec();
            self.send_server(&mut from_driver, &request)?;
            let mut tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
            while tls.is_handshaking() {
                tls.complete_io(&mut self.server)?;
            }
            self.tls = Some(Box::new(tls));
            mode.encrypted()
        } else if mode == Mode::Prefer {
            Protection::None
        } else {
            note(found, |found| found.fault = Some(tls::not_offered()));
            return Err(io::ErrorKind::ConnectionAborted.into());
        };
        note(found, |found| found.protection = Some(protection));
        self.send_server(&mut from_driver, &login)?;
        loop {
            let packet = self.server_packet(&mut from_server)?;
            let wants_password = packet.starts_with(&[0x01, 0x04]);
            if wants_password && !mode.may_send_password(protection) {
                let fault = tls::password_withheld("the password itself (full `caching_sha2_password`)");
                note(found, |found| found.fault = Some(fault));
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            self.send_driver(&mut from_server, &packet)?;
            match packet.first() {
                // Logged in, or refused. Packet numbers begin anew.
                Some(0x00 | 0xff) | None => break,
                // The fast path succeeded: the server's next packet follows without a request.
                _ if packet == [0x01, 0x03] => {}
                _ => {
                    let answer = self.driver_packet(&mut from_driver)?;
                    self.send_server(&mut from_driver, &answer)?;
                }
            }
        }
        // Bytes that arrived before the login was over belong to no login.
        if from_server.kept.is_empty() && from_driver.kept.is_empty() {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidData.into())
        }
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
            let read = self.driver.read(&mut bytes)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            packets.kept.extend_from_slice(&bytes[..read]);
        }
    }

    /// The driver does not know of the `SSLRequest` packet: from here on the two sides number their packets differently.
    fn send_server(&mut self, from_driver: &mut Packets, packet: &[u8]) -> io::Result<()> {
        let bytes = from_driver.numbered(packet, self.tls.is_some());
        self.write_server(&bytes)
    }

    fn send_driver(&mut self, from_server: &mut Packets, packet: &[u8]) -> io::Result<()> {
        let bytes = from_server.renumbered(packet, self.tls.is_some());
        self.driver.write_all(&bytes)
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

    /// Forwards bytes until one end has no more.
    fn carry(&mut self) -> io::Result<()> {
        // The driver sets its own limits for answers.
        self.server.set_read_timeout(None)?;
        let mut bytes = [0; 16384];
        let mut answer = Vec::new();
        loop {
            // Bytes that were decrypted together with the last packet of the login do not make the socket readable again.
            if let Some(tls) = &mut self.tls {
                loop {
                    match tls.reader().read(&mut bytes) {
                        Ok(0) => return Ok(()),
                        Ok(read) => self.driver.write_all(&bytes[..read])?,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
            }
            let ready = readable(&[self.driver.as_raw_fd(), self.server.as_raw_fd()], None)?;
            if ready[0] {
                let read = self.driver.read(&mut bytes)?;
                if read == 0 {
                    return Ok(());
                }
                self.write_server(&bytes[..read])?;
            }
            if ready[1] {
                answer.clear();
                if !self.read_some(&mut answer)? {
                    return Ok(());
                }
                self.driver.write_all(&answer)?;
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

/// Splits one direction's bytes into packets: three bytes of length, one byte with the packet's number in the exchange.
#[derive(Debug, Default)]
struct Packets {
    kept: Vec<u8>,
    /// The number of the last packet.
    number: u8,
}

impl Packets {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(head) = self.kept.first_chunk::<4>() else { return Ok(None) };
        let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
        if length > LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if self.kept.len() < 4 + length {
            return Ok(None);
        }
        self.number = head[3];
        let packet = self.kept[4..4 + length].to_vec();
        self.kept.drain(..4 + length);
        Ok(Some(packet))
    }

    fn framed(number: u8, packet: &[u8]) -> Vec<u8> {
        let length = (packet.len() as u32).to_le_bytes();
        let mut bytes = vec![length[0], length[1], length[2], number];
        bytes.extend_from_slice(packet);
        bytes
    }

    /// From the driver: one further on after `SSLRequest`.
    fn numbered(&self, packet: &[u8], encrypted: bool) -> Vec<u8> {
        Packets::framed(self.number.wrapping_add(u8::from(encrypted)), packet)
    }

    /// From the server: one back.
    fn renumbered(&self, packet: &[u8], encrypted: bool) -> Vec<u8> {
        Packets::framed(self.number.wrapping_sub(u8::from(encrypted)), packet)
    }
}

/// The capabilities in a server's greeting; `None` if it is no greeting of version 10.
fn capabilities(greeting: &[u8]) -> Option<u32> {
    let (10, rest) = greeting.split_first()? else { return None };
    let after_version = rest.iter().position(|byte| *byte == 0)? + 1;
    // Connection 4, first part of the scramble 8, filler 1.
    let low = rest.get(after_version + 13..after_version + 15)?;
    Some(u32::from(low[0]) | u32::from(low[1]) << 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_cut_as_they_come_and_numbered_on() {
        let mut packets = Packets::default();
        let bytes = [Packets::framed(0, b"hello"), Packets::framed(2, b"")].concat();
        for byte in &bytes[..bytes.len() - 1] {
            packets.kept.push(*byte);
            if let Some(packet) = packets.next().unwrap() {
                assert_eq!(packet, b"hello");
            }
        }
        assert_eq!(packets.next().unwrap(), None);
        packets.kept.push(2);
        assert_eq!(packets.next().unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(packets.renumbered(b"x", true), [1, 0, 0, 1, b'x']);
        assert_eq!(packets.numbered(b"x", true), [1, 0, 0, 3, b'x']);
        assert_eq!(packets.numbered(b"x", false), [1, 0, 0, 2, b'x']);
        packets.kept = vec![0, 0, 2, 0];
        assert!(packets.next().is_err(), "no login is so long");
    }

    #[test]
    fn a_greeting_says_whether_tls_is_offered() {
        let mut greeting = vec![10];
        greeting.extend_from_slice(b"8.0.36\0");
        greeting.extend_from_slice(&[0; 13]);
        for (low, offered) in [([0xff, 0xff], true), ([0xff, 0xf7], false)] {
            let mut greeting = greeting.clone();
            greeting.extend_from_slice(&low);
            assert_eq!(capabilities(&greeting).map(|known| known & CLIENT_SSL != 0), Some(offered));
        }
        for short in 0..greeting.len() {
            assert_eq!(capabilities(&greeting[..short]), None);
        }
        assert_eq!(capabilities(&[0xff, 0x15, 0x04]), None);
    }
}
