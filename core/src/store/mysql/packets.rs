//! The packets of a MySQL login, as far as they are inspected.

use std::io;

/// `CLIENT_SSL` of the protocol's capabilities.
pub(super) const CLIENT_SSL: u32 = 0x0800;
/// `CLIENT_MULTI_STATEMENTS`.
pub(super) const CLIENT_MULTI_STATEMENTS: u32 = 0x0001_0000;
/// The common head of `SSLRequest` and the login: capabilities, longest packet, character set, filler.
pub(super) const LOGIN_HEAD: usize = 32;
/// The most rounds of `parsec`, 1024 << this: about 50 ms. A server names them, and MariaDB's own say 0.
const MOST_ROUNDS: u8 = 6;
/// The longest key of a server, in bytes of PEM: it has 4096 bits at most.
const LONGEST_KEY: usize = 1024;
/// The longest packet of a login; a longer one belongs to another protocol.
const LONGEST: usize = 1 << 16;

/// Splits one direction's bytes into packets: three bytes of length, one byte with the packet's number in the exchange.
#[derive(Debug, Default)]
pub(super) struct Packets {
    pub(super) kept: Vec<u8>,
    /// The number of the last packet.
    pub(super) number: u8,
}

impl Packets {
    pub(super) fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
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

    pub(super) fn framed(number: u8, packet: &[u8]) -> Vec<u8> {
        let length = (packet.len() as u32).to_le_bytes();
        let mut bytes = vec![length[0], length[1], length[2], number];
        bytes.extend_from_slice(packet);
        bytes
    }
}

/// The first packet of MySQL's X protocol, as the classic one reads it: a notice of kind 5, `ServerHello`.
pub(super) const GREETING_OF_X: [u8; 5] = [0x0b, 0x08, 0x05, 0x1a, 0x00];

/// The capabilities in a server's greeting; `None` if it is no greeting of version 10.
pub(super) fn capabilities(greeting: &[u8]) -> Option<u32> {
    let (10, rest) = greeting.split_first()? else { return None };
    let after_version = rest.iter().position(|byte| *byte == 0)? + 1;
    // Connection 4, first part of the scramble 8, filler 1.
    let low = rest.get(after_version + 13..after_version + 15)?;
    Some(u32::from(low[0]) | u32::from(low[1]) << 8)
}

/// The scramble in a server's greeting, with which the driver proves the password: eight bytes, and the rest behind the
/// capabilities.
pub(super) fn scramble_in(greeting: &[u8]) -> Vec<u8> {
    let version = greeting.iter().skip(1).position(|byte| *byte == 0).map_or(0, |at| at + 1);
    let rest = greeting.get(version + 1..).unwrap_or_default();
    let (first, second) = (rest.get(4..12).unwrap_or_default(), rest.get(31..43).unwrap_or_default());
    [first, second].concat()
}

/// The scramble in a packet that asks for another method.
pub(super) fn scramble_of(switch: &[u8]) -> Vec<u8> {
    let name = switch.iter().position(|byte| *byte == 0).unwrap_or(switch.len());
    let data = switch.get(name + 1..).unwrap_or_default();
    data.strip_suffix(&[0]).unwrap_or(data).to_vec()
}

/// How a server asks for the password itself. To every other packet of a login the driver answers with a proof, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PasswordRequest {
    /// Full `caching_sha2_password`: the server does not have the user in its cache.
    CachingSha2,
    /// `mysql_clear_password`, for LDAP and PAM.
    Clear,
}

impl PasswordRequest {
    /// The request in a packet of the server, behind its greeting.
    pub(super) fn in_packet(packet: &[u8]) -> Option<PasswordRequest> {
        match packet {
            [0x01, 0x04, ..] => Some(PasswordRequest::CachingSha2),
            [0xfe, method @ ..] if method.starts_with(b"mysql_clear_password") => {
                Some(PasswordRequest::Clear)
            }
            _ => None,
        }
    }

    /// For messages: what the server wants, over a connection `in_clear` or not.
    pub(super) fn how(self, in_clear: bool) -> &'static str {
        match self {
            PasswordRequest::CachingSha2 if in_clear => {
                "the password under a key of its own (full `caching_sha2_password`)"
            }
            PasswordRequest::CachingSha2 => "the password itself (full `caching_sha2_password`)",
            PasswordRequest::Clear => "the password itself (`mysql_clear_password`)",
        }
    }
}

/// A server's packet as the driver reads it right. The driver takes a zero at the end of a switch of method for a terminator, and
/// MariaDB's `ed25519` and `parsec` send 32 random bytes without one: every 256th login would be refused.
pub(super) fn terminated(mut packet: Vec<u8>) -> Vec<u8> {
    let nonce = [&b"client_ed25519\0"[..], b"parsec\0"]
        .iter()
        .find_map(|method| packet.strip_prefix(&[0xfe])?.strip_prefix(*method));
    if nonce.is_some_and(|nonce| nonce.len() == 32) {
        packet.push(0);
    }
    packet
}

/// Whether this packet asks for more computing than a login takes: nothing ends it, and a false server may ask for it.
pub(super) fn asks_for_too_much(packet: &[u8]) -> bool {
    match packet {
        // The salt of `parsec`, with or without the byte that marks more data. No other packet of a login begins so.
        [0x01, b'P', rounds, ..] | [b'P', rounds, ..] => *rounds > MOST_ROUNDS,
        _ => false,
    }
}

/// Whether this packet of a login is of another protocol, and the driver would panic at it.
pub(super) fn is_malformed(packet: &[u8]) -> bool {
    /// The random bytes with which `parsec` begins.
    const NONCE: usize = 32;
    match packet {
        [] | [0x01] => true,
        // The driver takes a zero at the end for a terminator.
        [0xfe, b'p', b'a', b'r', b's', b'e', b'c', 0, nonce @ ..] => {
            nonce.strip_suffix(&[0]).unwrap_or(nonce).len() != NONCE
        }
        _ => false,
    }
}

/// Whether a server wants a login that the driver has no answer to without a password.
pub(super) fn asks_for_parsec(packet: &[u8]) -> bool {
    packet.starts_with(b"\xfeparsec\0")
}

/// Whether a server's key is too long for the same reason.
pub(super) fn is_key_too_long(key: &[u8]) -> bool {
    key.len() > LONGEST_KEY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_cut_as_they_come() {
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
        assert_eq!(Packets::framed(packets.number, b"x"), [1, 0, 0, 2, b'x']);
        packets.kept = vec![0, 0, 2, 0];
        assert!(packets.next().is_err(), "no login is so long");
    }

    #[test]
    fn a_server_may_not_ask_for_more_computing_than_a_login_takes() {
        for (rounds, is_too_much) in [(0, false), (6, false), (7, true), (20, true), (255, true)] {
            let salt = [&[b'P', rounds][..], &[b's'; 18]].concat();
            assert_eq!(asks_for_too_much(&salt), is_too_much, "{rounds}");
            assert_eq!(asks_for_too_much(&[&[0x01][..], &salt].concat()), is_too_much, "{rounds}");
        }
        for other in [&b""[..], b"\x01", b"P", b"\x01P", b"\x01\x03", b"\x01\x04", b"\xfeparsec\0", b"\0\0\0"]
        {
            assert!(!asks_for_too_much(other), "{other:?}");
        }
        // PEM of 4096 bits, and of 16384.
        assert!(!is_key_too_long(&[b'A'; 800]));
        assert!(is_key_too_long(&[b'A'; 2_900]));
    }

    #[test]
    fn a_packet_at_which_the_driver_would_panic_is_known() {
        let parsec = |nonce: &[u8]| [b"\xfeparsec\0", nonce].concat();
        for length in [0, 1, 31, 33, 64] {
            assert!(is_malformed(&terminated(parsec(&vec![7; length]))), "{length}");
        }
        // With a terminator and without one, and with a zero of the nonce's own.
        for right in [vec![7; 32], [vec![7; 32], vec![0]].concat(), [vec![7; 31], vec![0]].concat()] {
            assert!(!is_malformed(&terminated(parsec(&right))), "{right:?}");
            assert!(asks_for_parsec(&parsec(&right)));
        }
        assert!(is_malformed(b"") && is_malformed(b"\x01"));
        for other in [&b"\x01\x03"[..], b"\xfe", b"\0\0\0", b"\xff", b"\xfeclient_ed25519\0n"] {
            assert!(!is_malformed(other) && !asks_for_parsec(other), "{other:?}");
        }
    }

    #[test]
    fn a_request_for_the_password_is_known_in_every_form_that_the_driver_answers() {
        use PasswordRequest::{CachingSha2, Clear};
        for (packet, asked) in [
            (&b"\x01\x04"[..], Some(CachingSha2)),
            (b"\x01\x04more", Some(CachingSha2)),
            (b"\xfemysql_clear_password\0", Some(Clear)),
            (b"\xfemysql_clear_password\0abcdefghijklmnopqrst\0", Some(Clear)),
            (b"\xfemysql_clear_password", Some(Clear)),
            (b"\x01\x03", None),
            (b"\xfemysql_native_password\0abcdefghijklmnopqrst\0", None),
            (b"\xfe", None),
            (b"\0\0\0\x02\0\0\0", None),
            (b"", None),
        ] {
            assert_eq!(PasswordRequest::in_packet(packet), asked, "{packet:?}");
        }
    }

    #[test]
    fn a_nonce_that_ends_in_a_zero_reaches_the_driver_whole() {
        use mysql_common::io::ParseBuf;
        use mysql_common::packets::AuthSwitchRequest;
        for (method, length) in [("client_ed25519", 32), ("parsec", 32), ("mysql_native_password", 20)] {
            for last in [0, 1, 255] {
                let mut nonce = vec![7; length];
                *nonce.last_mut().unwrap() = last;
                let mut packet = [b"\xfe", method.as_bytes(), b"\0", &nonce].concat();
                if length == 20 {
                    nonce[19] = 7; // no server sends a zero within
                    packet = [b"\xfe", method.as_bytes(), b"\0", &nonce, b"\0"].concat();
                }
                let packet = terminated(packet);
                let read: AuthSwitchRequest<'_> = ParseBuf(&packet).parse(()).unwrap();
                assert_eq!(read.plugin_data(), nonce, "{method} {last}");
            }
        }
        for other in [&b"\xfe"[..], b"\xfeparsec\0short", b"\0\0\0", b""] {
            assert_eq!(terminated(other.to_vec()), other);
        }
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
    #[test]
    fn the_scramble_is_found_in_a_greeting_and_in_a_switch() {
        let greeting =
            [b"\x0a8.0.36\0\x01\0\0\0abcdefgh\0".as_slice(), &[0; 18], b"ijklmnopqrst\0plugin\0"].concat();
        assert_eq!(scramble_in(&greeting), b"abcdefghijklmnopqrst");
        assert_eq!(
            scramble_of(b"\xfecaching_sha2_password\0abcdefghijklmnopqrst\0"),
            b"abcdefghijklmnopqrst"
        );
        for short in 0..greeting.len() {
            scramble_in(&greeting[..short]);
            scramble_of(&greeting[..short]);
        }
    }
}
