//! The listener at which the MySQL driver meets its tunnel, and the wait for either end.
//!
//! The driver speaks no named pipes, so it connects to a port of 127.0.0.1. Any login of the machine can do that: the listener asks the
//! system which process each connection is from, and closes the connections of others.

use std::io;
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener};
use std::os::windows::io::{AsRawSocket, RawSocket};
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::{ERROR_INSUFFICIENT_BUFFER, NO_ERROR};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    GetExtendedTcpTable, MIB_TCPROW_OWNER_PID, TCP_TABLE_OWNER_PID_CONNECTIONS,
};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, POLLRDNORM, SO_EXCLUSIVEADDRUSE, SOCKET, SOL_SOCKET, WSAPOLLFD, WSAPoll,
};

use super::sockets::set_option;
use crate::system::MeetingPlace;

/// The system's handle of a socket.
pub(crate) type SocketHandle = RawSocket;

/// The driver's connection, as the listener accepts it.
pub(crate) type DriverStream = std::net::TcpStream;

/// The handle of this socket, which is open as long as the socket lives.
pub(crate) fn handle(socket: &impl AsRawSocket) -> SocketHandle {
    socket.as_raw_socket()
}

/// Ends a wait for the driver's bytes. The driver has closed its end by now, which no other process can hold open: the wait ends by that.
pub(crate) fn end_reading(_driver: &DriverStream) {}

/// A port of 127.0.0.1, for one connection of this process.
#[derive(Debug)]
pub(crate) struct DriverListener {
    listener: TcpListener,
    address: SocketAddrV4,
}

impl DriverListener {
    /// Listens on a free port.
    pub(crate) fn open() -> io::Result<DriverListener> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        // Without it another program may listen on the same port and take the driver's connection, which has the login in it.
        set_option(&socket, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, 1)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
        socket.listen(8)?;
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        let SocketAddr::V4(address) = listener.local_addr()? else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        Ok(DriverListener { listener, address })
    }

    /// Where the driver is to connect.
    pub(crate) fn place(&self) -> MeetingPlace {
        MeetingPlace::Port(self.address.port())
    }

    /// Waits for the driver. Connections of other processes are closed unread.
    pub(crate) fn accept(&self, limit: Duration) -> io::Result<DriverStream> {
        let until = Instant::now() + limit;
        loop {
            readable(&[handle(&self.listener)], Some(until.saturating_duration_since(Instant::now())))?;
            let (driver, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                // Somebody else's connection, which has ended meanwhile.
                Err(error) if is_gone(error.kind()) => continue,
                Err(error) => return Err(error),
            };
            let SocketAddr::V4(peer) = peer else { continue };
            if process_of(peer, self.address)? != Some(std::process::id()) {
                let _ = driver.shutdown(Shutdown::Both);
                continue;
            }
            driver.set_nonblocking(false)?;
            driver.set_nodelay(true)?;
            return Ok(driver);
        }
    }
}

fn is_gone(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, WouldBlock};
    matches!(kind, ConnectionAborted | ConnectionReset | WouldBlock)
}

/// The process whose end of a connection has the address `from`; `None`: it has closed it.
fn process_of(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<Option<u32>> {
    let table = connections()?;
    // A port stands in the lower half of a number, its bytes in the order of the network.
    let port = |number: u32| u16::from_be(number as u16);
    let is_it = |row: &&MIB_TCPROW_OWNER_PID| {
        (row.dwLocalAddr.to_ne_bytes(), port(row.dwLocalPort)) == (from.ip().octets(), from.port())
            && (row.dwRemoteAddr.to_ne_bytes(), port(row.dwRemotePort)) == (to.ip().octets(), to.port())
    };
    Ok(table.iter().find(is_it).map(|row| row.dwOwningPid))
}

/// The connections of this machine over IPv4, with their processes.
fn connections() -> io::Result<Vec<MIB_TCPROW_OWNER_PID>> {
    let mut bytes = 64 << 10;
    // The table may grow between two calls.
    for _ in 0..8 {
        let mut table = vec![0u32; (bytes as usize).div_ceil(4)];
        // SAFETY: the memory is as long as is said, and `bytes` is writable.
        let answer = unsafe {
            GetExtendedTcpTable(
                table.as_mut_ptr().cast(),
                &raw mut bytes,
                0,
                u32::from(AF_INET),
                TCP_TABLE_OWNER_PID_CONNECTIONS,
                0,
            )
        };
        match answer {
            NO_ERROR => {
                let most = (table.len() - 1) * 4 / size_of::<MIB_TCPROW_OWNER_PID>();
                let rows = (table[0] as usize).min(most);
                let first = table[1..].as_ptr().cast::<MIB_TCPROW_OWNER_PID>();
                // SAFETY: the count is followed by so many rows, which are numbers of 32 bits each, and lie inside `table`.
                return Ok(unsafe { std::slice::from_raw_parts(first, rows) }.to_vec());
            }
            // With room for connections that come meanwhile.
            ERROR_INSUFFICIENT_BUFFER => bytes += 16 << 10,
            error => return Err(io::Error::from_raw_os_error(error as i32)),
        }
    }
    Err(io::ErrorKind::OutOfMemory.into())
}

/// Waits until one of the ends can be read or has ended; answers which.
pub(crate) fn readable(ends: &[SocketHandle], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<_> =
        ends.iter().map(|end| WSAPOLLFD { fd: *end as SOCKET, events: POLLRDNORM, revents: 0 }).collect();
    let limit = limit.map_or(-1, |limit| i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1));
    // SAFETY: `polled` has the stated length, and lives through the call.
    match unsafe { WSAPoll(polled.as_mut_ptr(), polled.len() as u32, limit) } {
        0 => Err(io::ErrorKind::TimedOut.into()),
        1.. => Ok(polled.iter().map(|end| end.revents != 0).collect()),
        _ => Err(io::Error::last_os_error()),
    }
}
