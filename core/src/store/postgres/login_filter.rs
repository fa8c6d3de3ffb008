//! The login: what a server may ask for before the driver sees it, and TLS.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::failed::Failed;
use crate::store::server::ServerOptions;
use crate::store::tls::{Mode, Protection};

/// The login messages that a server may send. They are read before the driver sees them, both as plain text and as
/// decrypted text.
pub(super) struct LoginFilter<S> {
    pub(super) stream: S,
    pub(super) stage: Stage,
}

/// The longest message of a login, in bytes: the driver keeps a message until it has all of it.
const LONGEST: usize = 1 << 16;

/// What a server may send until it has logged a client in: `Authentication…`, an error, a notice, the versions that it knows, parameters,
/// the key of the session, and that it is ready.
const KINDS: &[u8] = b"RENvSKZ";

/// How far the login is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The answer to `SSLRequest` follows: one byte.
    Offer { required: bool },
    /// Messages of the login: one byte for the kind, four bytes of length (itself included), and the body.
    Login { may_send: bool, head: [u8; 9], seen: usize, left: usize },
    /// Nothing is checked any more: logged in, or encrypted, where the decrypted text is checked in its place.
    Open,
}

impl Stage {
    /// The login over a connection with this protection.
    pub(super) fn login(mode: Mode, protection: Protection) -> Stage {
        Stage::Login { may_send: mode.may_send_password(protection), head: [0; 9], seen: 0, left: 0 }
    }

    /// The login after TLS was not offered: only `prefer` gets here.
    const UNPROTECTED: Stage = Stage::Login { may_send: false, head: [0; 9], seen: 0, left: 0 };

    /// Checks bytes from the server.
    fn see(&mut self, bytes: &[u8]) -> Result<(), Objection> {
        for byte in bytes {
            match self {
                Stage::Open => break,
                Stage::Offer { .. } if *byte == b'S' => *self = Stage::Open,
                Stage::Offer { .. } if !matches!(byte, b'N' | b'E') => return Err(Objection::NotPostgres),
                Stage::Offer { required: true } => return Err(Objection::NoTls),
                Stage::Offer { required: false } => *self = Stage::UNPROTECTED,
                Stage::Login { left, .. } if *left > 0 => *left -= 1,
                Stage::Login { may_send, head, seen, left } => {
                    head[*seen] = *byte;
                    *seen += 1;
                    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                    // `AuthenticationCleartextPassword`, `AuthenticationOk`; every other message is skipped.
                    match (*head, *seen) {
                        ([b'R', _, _, _, _, 0, 0, 0, 3], 9) if !*may_send => return Err(Objection::Password),
                        ([b'R', _, _, _, _, 0, 0, 0, 0], 9) => *self = Stage::Open,
                        ([kind, ..], 1) if !KINDS.contains(&kind) => return Err(Objection::NotPostgres),
                        (_, 5) if length > LONGEST => return Err(Objection::TooLong),
                        ([b'R', ..], 5..9) if length >= 8 => {}
                        (_, 5..) => (*seen, *left) = (0, (length + 1).saturating_sub(*seen)),
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// Why this end stops a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objection {
    /// The server wants the password itself, which `tls=` does not allow.
    Password,
    /// The server offers no TLS, and `tls=` demands it.
    NoTls,
    /// A message that no server sends.
    TooLong,
    /// An answer of another protocol.
    NotPostgres,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Objection::Password => "the server wants the password in clear",
            Objection::NoTls => "the server offers no TLS",
            Objection::TooLong => {
                "the server began a message of more than 64 KiB before the login; is it a PostgreSQL server?"
            }
            Objection::NotPostgres => {
                "the answer is not of the PostgreSQL protocol; is it a PostgreSQL server?"
            }
        })
    }
}

impl std::error::Error for Objection {}

impl<S: AsyncRead + Unpin> AsyncRead for LoginFilter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.stage == Stage::Open {
            return read;
        }
        if let Poll::Ready(Ok(())) = read
            && let Err(objection) = self.stage.see(&buffer.filled()[before..])
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::PermissionDenied, objection)));
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LoginFilter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

pub(super) use encrypted::TlsConnector;

/// TLS by `tokio-postgres-rustls`, which binds the password's proof (SCRAM) to the server's certificate.
mod encrypted {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::io::{AsyncRead, AsyncWrite};
    use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
    use tokio_postgres_rustls::MakeRustlsConnect;

    use super::{Failed, LoginFilter, ServerOptions, Stage};
    use crate::store::tls::{self, Mode};

    /// Which authorities are trusted, and what may be sent then.
    pub(in super::super) struct TlsConnector {
        maker: MakeRustlsConnect,
        name: String,
        stage: Stage,
        used: Arc<AtomicBool>,
    }

    impl TlsConnector {
        /// For this host; `used` becomes true once the connection is encrypted.
        pub(in super::super) fn to(
            host: &str,
            address: std::net::SocketAddr,
            options: &ServerOptions,
            mode: Mode,
            used: Arc<AtomicBool>,
        ) -> Result<TlsConnector, Failed> {
            let config = tls::client_config(&options.tls, mode).map_err(Failed::Fault)?;
            let name = tls::server_name(host, address, mode).map_err(Failed::Fault)?.to_str().into_owned();
            let stage = Stage::login(mode, mode.encrypted());
            Ok(TlsConnector { maker: MakeRustlsConnect::new(config), name, stage, used })
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for TlsConnector {
        type Stream = LoginFilter<<MakeRustlsConnect as MakeTlsConnect<S>>::Stream>;
        type Error = io::Error;
        type Future = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

        fn connect(mut self, stream: S) -> Self::Future {
            Box::pin(async move {
                let connector = MakeTlsConnect::<S>::make_tls_connect(&mut self.maker, &self.name)
                    .map_err(io::Error::other)?;
                let stream = connector.connect(stream).await?;
                // ordering: Relaxed — read by the same thread, after the login.
                self.used.store(true, Ordering::Relaxed);
                Ok(LoginFilter { stream, stage: self.stage })
            })
        }
    }

    impl<S: TlsStream + Unpin> TlsStream for LoginFilter<S> {
        fn channel_binding(&self) -> ChannelBinding {
            self.stream.channel_binding()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[kind][..], &length, body].concat()
    }

    /// Bytes may arrive in pieces of any size.
    fn seen(stage: Stage, bytes: &[u8]) -> (Stage, bool) {
        let mut last = None;
        for piece in [1, 2, 3, 7, bytes.len().max(1)] {
            let mut stage = stage;
            let refused = bytes.chunks(piece).any(|bytes| stage.see(bytes).is_err());
            let found = (stage, refused);
            assert_eq!(*last.get_or_insert(found), found, "in pieces of {piece}");
        }
        last.unwrap()
    }

    #[test]
    fn only_a_server_that_asks_for_the_password_itself_is_stopped() {
        let clear = message(b'R', &[0, 0, 0, 3]);
        let md5 = message(b'R', &[0, 0, 0, 5, 1, 2, 3, 4]);
        let sasl = message(b'R', b"\0\0\0\nSCRAM-SHA-256\0\0");
        let logged_in = message(b'R', &[0; 4]);
        let error = message(b'E', b"R\0\0\0\x08\0\0\0\x03\0");
        let notice = message(b'N', b"");
        assert!(seen(Stage::UNPROTECTED, &clear).1);
        for before in [&notice, &error, &md5, &sasl] {
            assert!(!seen(Stage::UNPROTECTED, before).1);
            assert!(seen(Stage::UNPROTECTED, &[before.as_slice(), &clear].concat()).1);
        }
        // After the login a message may hold anything.
        assert_eq!(seen(Stage::UNPROTECTED, &[logged_in, clear.clone()].concat()), (Stage::Open, false));
        let [offer, demand] = [false, true].map(|required| Stage::Offer { required });
        assert!(seen(offer, &[b"N", clear.as_slice()].concat()).1, "TLS is not offered");
        assert_eq!(seen(offer, &[b"S", clear.as_slice()].concat()), (Stage::Open, false));
        assert_eq!(seen(demand, b"S"), (Stage::Open, false));
        assert!(seen(demand, b"N").1);
        // The first bytes of a MySQL, of its X protocol, of a Redis and of HTTP.
        for other in
            [&b"\x4a\0\0\0\x0a9.7.4"[..], b"\x05\0\0\0\x0b\x08\x05\x1a\0", b"-ERR unknown", b"HTTP/1.1 400"]
        {
            for mut stage in
                [offer, demand, Stage::UNPROTECTED, Stage::login(Mode::Require, Protection::Encrypted)]
            {
                assert_eq!(stage.see(other), Err(Objection::NotPostgres), "{stage:?}");
            }
        }
        // The driver would wait for all of it.
        let long = [b'E', 0x7f, 0xff, 0xff, 0xff];
        assert!(seen(Stage::UNPROTECTED, &long).1);
        assert!(!seen(Stage::UNPROTECTED, &message(b'E', &vec![b'x'; LONGEST - 4])).1);
        // The password may be sent: nothing else differs.
        let inside_tls = Stage::login(Mode::Require, Protection::Encrypted);
        assert!(!seen(inside_tls, &clear).1);
        assert!(seen(inside_tls, &[clear.as_slice(), &long].concat()).1);
        assert_eq!(
            seen(inside_tls, &[clear.as_slice(), &message(b'R', &[0; 4]), &long].concat()),
            (Stage::Open, false)
        );
        // An impossible length: what follows begins no message.
        assert!(seen(Stage::UNPROTECTED, &[b'R', 0, 0, 0, 0, 0, 0, 0, 3]).1);
    }
}
