//! The answers to a packet of statements.
//!
//! The driver panics on some malformed packets, and its iterators read on when they are dropped. Dropped while such a panic
//! unwinds, they may panic once more, and a second panic ends the process. So they are never dropped: they hold no memory once
//! the last answer was read.

use std::mem::ManuallyDrop;

use mysql::prelude::Queryable;
use mysql::{Conn, Error, Row};

use super::mysql_values::cells;
use crate::store::model::value::ColumnValue;
use crate::store::sql::Changed;

/// Sends statements and reads every answer: how many rows each statement changed, with every row passed to `row`. The server carries out no
/// statement after a failed one, so the error belongs to the statement after the last count.
pub(super) fn read(
    connection: &mut Conn,
    statements: &str,
    mut row: impl FnMut(Vec<ColumnValue>),
) -> (Vec<Changed>, Result<(), Error>) {
    read_raw(connection, statements, |answer| row(cells(&answer)))
}

/// The same with the rows as the driver has them.
pub(super) fn read_raw(
    connection: &mut Conn,
    statements: &str,
    mut row: impl FnMut(Row),
) -> (Vec<Changed>, Result<(), Error>) {
    let mut changed = Vec::new();
    let mut results = match connection.query_iter(statements) {
        Ok(results) => ManuallyDrop::new(results),
        Err(error) => return (changed, Err(error)),
    };
    loop {
        let (rows, id) = (results.affected_rows(), results.last_insert_id());
        let Some(set) = results.iter() else { return (changed, Ok(())) };
        for answer in &mut *ManuallyDrop::new(set) {
            match answer {
                Ok(answer) => row(answer),
                Err(error) => return (changed, Err(error)),
            }
        }
        changed.push(Changed { rows, number: Some(id.unwrap_or(0)) });
    }
}

/// The same for statements whose counts are not needed.
pub(super) fn carry_out(connection: &mut Conn, statements: &str) -> Result<(), Error> {
    read(connection, statements, drop).1
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use mysql::OptsBuilder;

    use super::*;

    fn send(client: &mut TcpStream, number: u8, payload: &[u8]) -> io::Result<()> {
        let len = u32::try_from(payload.len()).expect("a short packet").to_le_bytes();
        client.write_all(&[&len[..3], &[number], payload].concat())
    }

    fn receive(client: &mut TcpStream) -> io::Result<()> {
        let mut head = [0; 4];
        client.read_exact(&mut head)?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize;
        client.read_exact(&mut vec![0; len])
    }

    /// A server that accepts every login, and answers the first statements with these packets.
    fn serve(listener: &TcpListener, answers: &[&[u8]]) -> io::Result<()> {
        const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
        let (mut client, _) = listener.accept()?;
        let greeting = [
            b"\x0a8.0.0\0".as_slice(),
            &[1, 0, 0, 0],
            b"saltsalt\0",
            // Protocol 4.1, transactions, logins by plugin, several statements in a packet.
            &[0x00, 0xa2, 45, 2, 0, 0x0b, 0x00, 21],
            &[0; 10],
            b"saltsaltsalt\0mysql_native_password\0",
        ];
        send(&mut client, 0, &greeting.concat())?;
        receive(&mut client)?;
        send(&mut client, 2, OK)?;
        receive(&mut client)?;
        for (number, answer) in (1..).zip(answers) {
            send(&mut client, number, answer)?;
        }
        // Until the client disconnects.
        let _ = client.read(&mut [0; 64]);
        Ok(())
    }

    /// Whether reading these answers panics; a second panic would end the process.
    fn panics(answers: &'static [&'static [u8]]) -> bool {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("its address");
        let server = std::thread::spawn(move || serve(&listener, answers));
        let options = OptsBuilder::new()
            .ip_or_hostname(Some("127.0.0.1"))
            .tcp_port(address.port())
            .user(Some("u"))
            .prefer_socket(false)
            .max_allowed_packet(Some(1 << 24));
        let mut connection = Conn::new(options).expect("a connection");
        let read = catch_unwind(AssertUnwindSafe(|| read(&mut connection, "SELECT 1; SELECT 2", drop)));
        drop(connection);
        server.join().expect("the server").expect("its client");
        read.is_err()
    }

    #[test]
    fn a_driver_that_panics_on_an_empty_packet_panics_once() {
        const DONE_AND_MORE: &[u8] = &[0, 0, 0, 10, 0, 0, 0];
        const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x3f\0\x01\0\0\0\x08\0\0\0\0\0";
        const END: &[u8] = &[0xfe, 0, 0, 2, 0];
        // Instead of the second statement's answer, and instead of a row.
        assert!(panics(&[DONE_AND_MORE, &[], &[], &[]]));
        assert!(panics(&[&[1], COLUMN, END, &[], &[], &[]]));
    }
}
