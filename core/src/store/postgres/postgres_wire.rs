//! A connection: the socket, its encryption, and the task that reads it, on a runtime of its own.
//!
//! The runtime has no threads; it runs while the keeper waits for an answer, and each wait has a limit. A failed connection
//! drops its runtime too, so that no late answer can be taken for the next one.

use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::Severity;
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{
    AsyncMessage, Client, Config, NoTls, Row, SimpleQueryMessage, SimpleQueryRow, Statement,
};

use crate::store::Fault;
use crate::store::server::{ServerOptions, Target};
use crate::store::time_budget;
use crate::store::tls::{Mode, Protection};

/// How long any connection may take.
const AT_LEAST: Duration = Duration::from_millis(1);

/// Why a connection could not be made.
#[derive(Debug)]
pub(super) enum Failed {
    /// The server or the protocol refused it.
    Postgres(tokio_postgres::Error),
    /// The network or this machine refused it.
    Io(io::Error),
    /// No answer in time.
    Silent,
    /// The fault is complete.
    Fault(Fault),
}

impl Failed {
    /// The SQLSTATE of an error after which the connection is still usable.
    pub(super) fn code(&self) -> Option<&str> {
        let Failed::Postgres(error) = self else { return None };
        let said = error.as_db_error()?;
        (said.parsed_severity() == Some(Severity::Error)).then(|| said.code().code())
    }

    /// Whether the server itself reported the error.
    pub(super) fn is_said(&self) -> bool {
        matches!(self, Failed::Postgres(error) if error.as_db_error().is_some())
    }
}

/// A statement's values, each with the type of its placeholder.
pub(super) type Values<'v> = Vec<(&'v (dyn ToSql + Sync), Type)>;

/// A statement and its values.
pub(super) enum SentStatement<'v> {
    /// Its text.
    Plain(String, Values<'v>),
    /// The driver's prepared statement.
    Kept(Statement, Vec<&'v (dyn ToSql + Sync)>),
}

impl SentStatement<'_> {
    async fn run_on(&self, client: &Client) -> Result<Vec<Row>, tokio_postgres::Error> {
        match self {
            SentStatement::Plain(words, values) => client.query_typed(words, values).await,
            SentStatement::Kept(statement, values) => client.query(statement, values).await,
        }
    }
}

/// Notices and the end of the connection, which arrive beside the answers.
#[derive(Debug, Default)]
struct ConnectionEvents {
    /// A commit did not wait for its standby.
    unreplicated: bool,
    /// Why the connection ended.
    end: Option<tokio_postgres::Error>,
}

/// A live connection.
pub(super) struct PostgresWire {
    client: Client,
    runtime: Runtime,
    reader: JoinHandle<()>,
    events: Arc<Mutex<ConnectionEvents>>,
    /// Another handle of the same socket, of whatever family, to shut it down: a forked child may hold a copy, and the
    /// server would wait for both.
    socket: TcpStream,
    pub(super) protection: Protection,
}

impl fmt::Debug for PostgresWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresWire").finish_non_exhaustive()
    }
}

impl Drop for PostgresWire {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl PostgresWire {
    /// Connects and logs in, each within its timeout.
    pub(super) fn open(options: &ServerOptions, target: &Target) -> Result<PostgresWire, Failed> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(Failed::Io)?;
        let mut config = Config::new();
        config
            .user(&options.user)
            .dbname(&options.database)
            .password(options.password.reveal())
            .application_name("keymill")
            .ssl_mode(SslMode::Disable);
        let events = Arc::new(Mutex::new(ConnectionEvents::default()));
        let mut protection = Protection::None;
        let (client, reader, socket) = match target {
            Target::Tcp { address, .. } => {
                let stream =
                    TcpStream::connect_timeout(address, options.time_to_connect()).map_err(Failed::Io)?;
                stream.set_nodelay(true).map_err(Failed::Io)?;
                let socket = stream.try_clone().map_err(Failed::Io)?;
                stream.set_nonblocking(true).map_err(Failed::Io)?;
                let stream = {
                    let _inside = runtime.enter();
                    tokio::net::TcpStream::from_std(stream).map_err(Failed::Io)?
                };
                let (client, reader);
                (client, reader, protection) =
                    log_in_over_tcp(&runtime, options, &mut config, stream, target, &events)?;
                (client, reader, socket)
            }
            Target::Socket(path) => {
                // As `psql -h` takes it: the folder of the socket.
                let port = options.hosts.first().map_or(5432, |(_, port)| *port);
                let path = if path.is_dir() { path.join(format!(".s.PGSQL.{port}")) } else { path.clone() };
                let stream = timely(&runtime, options.connect_timeout, async {
                    connect_socket(&path).await.map_err(Failed::Io)
                })?;
                let socket = TcpStream::from(OwnedFd::from(stream.try_clone().map_err(Failed::Io)?));
                let stream = {
                    let _inside = runtime.enter();
                    tokio::net::UnixStream::from_std(stream).map_err(Failed::Io)?
                };
                // A socket file's data does not leave the machine.
                let stream = LoginFilter { stream, stage: Stage::in_clear(Mode::of(options, target)) };
                let (client, reader) = log_in(&runtime, options, &config, stream, NoTls, &events)?;
                (client, reader, socket)
            }
        };
        Ok(PostgresWire { client, runtime, reader, events, socket, protection })
    }

    /// Runs one query until `ReadyForQuery`, which follows its commit.
    pub(super) fn ask<'c, T, F>(
        &'c self,
        limit: Duration,
        question: impl FnOnce(&'c Client) -> F,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let answer =
            timely(&self.runtime, limit, async { question(&self.client).await.map_err(Failed::Postgres) });
        match answer {
            // The reason arrived earlier, as a notice: `terminating connection due to administrator command`.
            Err(Failed::Postgres(error)) if error.is_closed() => {
                let said = self.events.lock().unwrap_or_else(PoisonError::into_inner).end.take();
                Err(Failed::Postgres(said.unwrap_or(error)))
            }
            other => other,
        }
    }

    /// Sends all statements at once and waits for all answers, under one limit. The server carries them out in their order,
    /// each on its own.
    pub(super) fn ask_all(
        &self,
        limit: Duration,
        statements: &[SentStatement<'_>],
    ) -> Result<Vec<Result<Vec<Row>, Failed>>, Failed> {
        timely(&self.runtime, limit, async {
            let mut asked: Vec<_> =
                statements.iter().map(|statement| Box::pin(statement.run_on(&self.client))).collect();
            let mut answers: Vec<_> = statements.iter().map(|_| None).collect();
            // The first future to be polled is sent first.
            std::future::poll_fn(|context| {
                let mut all = Poll::Ready(());
                for (question, answer) in
                    asked.iter_mut().zip(&mut answers).filter(|(_, answer)| answer.is_none())
                {
                    match question.as_mut().poll(context) {
                        Poll::Ready(done) => *answer = Some(done.map_err(Failed::Postgres)),
                        Poll::Pending => all = Poll::Pending,
                    }
                }
                all
            })
            .await;
            Ok(answers.into_iter().flatten().collect())
        })
    }

    /// Statements without values, by the simple protocol, with each row passed to `row` as it arrives. The limit is that of each wait.
    pub(super) fn stream(
        &self,
        limit: Duration,
        statements: &str,
        mut row: impl FnMut(&SimpleQueryRow),
    ) -> Result<u64, Failed> {
        let mut answers = Box::pin(self.ask(limit, |client| client.simple_query_raw(statements))?);
        let mut done = 0;
        while let Some(message) = self.ask(limit, |_| answers.try_next())? {
            match message {
                SimpleQueryMessage::Row(found) => row(&found),
                SimpleQueryMessage::CommandComplete(rows) => done = rows,
                _ => {}
            }
        }
        Ok(done)
    }

    /// Whether a commit since the last query did not wait for its standby. The server reports that in a warning, and calls
    /// the commit a success.
    pub(super) fn unreplicated(&self) -> bool {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner).unreplicated)
    }

    /// Whether the server has closed the connection: a statement sent into a closed connection would count as unknown. The
    /// runtime runs only if bytes have arrived since the last query: that costs as much as half a query.
    pub(super) fn is_closed(&self) -> bool {
        match self.socket.peek(&mut [0]) {
            Ok(0) => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => self.runtime.block_on(async {
                for _ in 0..2 {
                    tokio::task::yield_now().await;
                }
            }),
        }
        self.reader.is_finished() || self.client.is_closed()
    }

    /// The two ends of the connection; `None` for a Unix socket.
    pub(super) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.socket.local_addr().ok()?, self.socket.peer_addr().ok()?))
    }
}

/// Waits for a future, with a limit.
fn timely<T>(
    runtime: &Runtime,
    limit: Duration,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    let end = time_budget::end_of_exchange(limit.max(AT_LEAST), time_budget::budget(limit));
    runtime.block_on(async {
        match tokio::time::timeout_at(end.into(), work).await {
            Ok(done) => done,
            Err(_) => Err(Failed::Silent),
        }
    })
}

async fn connect_socket(path: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    tokio::net::UnixStream::connect(path).await?.into_std()
}

/// Logs in over TCP, encrypted and verified as the configuration says.
fn log_in_over_tcp(
    runtime: &Runtime,
    options: &ServerOptions,
    config: &mut Config,
    stream: tokio::net::TcpStream,
    target: &Target,
    events: &Arc<Mutex<ConnectionEvents>>,
) -> Result<(Client, JoinHandle<()>, Protection), Failed> {
    let mode = Mode::of(options, target);
    let (Target::Tcp { host, address }, false) = (target, mode.is_plain()) else {
        let stream = LoginFilter { stream, stage: Stage::in_clear(mode) };
        let (client, reader) = log_in(runtime, options, config, stream, NoTls, events)?;
        return Ok((client, reader, Protection::None));
    };
    let encrypted = Arc::new(AtomicBool::new(false));
    let tls = TlsConnector::to(host, *address, options, mode, Arc::clone(&encrypted))?;
    config.ssl_mode(if mode == Mode::Prefer { SslMode::Prefer } else { SslMode::Require });
    let stream = LoginFilter { stream, stage: Stage::Offer { required: mode != Mode::Prefer } };
    let (client, reader) = log_in(runtime, options, config, stream, tls, events)?;
    // ordering: Relaxed — written by this thread.
    let protection = if encrypted.load(Ordering::Relaxed) { mode.encrypted() } else { Protection::None };
    Ok((client, reader, protection))
}

/// Logs in and starts the task that reads the answers.
fn log_in<S, T>(
    runtime: &Runtime,
    options: &ServerOptions,
    config: &Config,
    stream: S,
    tls: T,
    events: &Arc<Mutex<ConnectionEvents>>,
) -> Result<(Client, JoinHandle<()>), Failed>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: TlsConnect<S>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = timely(runtime, options.read_timeout, async {
        config.connect_raw(stream, tls).await.map_err(Failed::Postgres)
    })?;
    let events = Arc::clone(events);
    let reader = runtime.spawn(async move {
        loop {
            let message = std::future::poll_fn(|context| connection.poll_message(context)).await;
            let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
            match message {
                // By the function's name: the message is in the server's language.
                Some(Ok(AsyncMessage::Notice(notice))) => {
                    events.unreplicated |= notice.routine() == Some("SyncRepWaitForLSN");
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    events.end = Some(error);
                    return;
                }
                None => return,
            }
        }
    });
    Ok((client, reader))
}

/// The login messages that a server may send. They are read before the driver sees them, both as plain text and as
/// decrypted text.
struct LoginFilter<S> {
    stream: S,
    stage: Stage,
}

/// How far the login is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The answer to `SSLRequest` follows: one byte.
    Offer { required: bool },
    /// Messages of the login: one byte for the kind, four bytes of length (itself included), and the body.
    Login { head: [u8; 9], seen: usize, left: usize },
    /// Nothing is checked any more: encrypted, or logged in, or the password may be sent.
    Open,
}

impl Stage {
    const LOGIN: Stage = Stage::Login { head: [0; 9], seen: 0, left: 0 };

    /// The stage of a connection that is not encrypted.
    fn in_clear(mode: Mode) -> Stage {
        if mode.may_send_password(Protection::None) { Stage::Open } else { Stage::LOGIN }
    }

    /// Checks bytes from the server.
    fn see(&mut self, bytes: &[u8]) -> Result<(), Objection> {
        for byte in bytes {
            match self {
                Stage::Open => break,
                Stage::Offer { .. } if *byte == b'S' => *self = Stage::Open,
                Stage::Offer { required: true } => return Err(Objection::NoTls),
                Stage::Offer { required: false } => *self = Stage::LOGIN,
                Stage::Login { left, .. } if *left > 0 => *left -= 1,
                Stage::Login { head, seen, left } => {
                    head[*seen] = *byte;
                    *seen += 1;
                    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                    // `AuthenticationCleartextPassword`, `AuthenticationOk`; every other message is skipped.
                    match (*head, *seen) {
                        ([b'R', _, _, _, _, 0, 0, 0, 3], 9) => return Err(Objection::Password),
                        ([b'R', _, _, _, _, 0, 0, 0, 0], 9) => *self = Stage::Open,
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
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Objection::Password => "the server wants the password in clear",
            Objection::NoTls => "the server offers no TLS",
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

use encrypted::TlsConnector;

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
    pub(super) struct TlsConnector {
        maker: MakeRustlsConnect,
        name: String,
        stage: Stage,
        used: Arc<AtomicBool>,
    }

    impl TlsConnector {
        /// For this host; `used` becomes true once the connection is encrypted.
        pub(super) fn to(
            host: &str,
            address: std::net::SocketAddr,
            options: &ServerOptions,
            mode: Mode,
            used: Arc<AtomicBool>,
        ) -> Result<TlsConnector, Failed> {
            let config = tls::client_config(&options.tls, mode).map_err(Failed::Fault)?;
            let name = tls::server_name(host, address, mode).map_err(Failed::Fault)?.to_str().into_owned();
            let sent = mode.may_send_password(mode.encrypted());
            let stage = if sent { Stage::Open } else { Stage::LOGIN };
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
        assert!(seen(Stage::LOGIN, &clear).1);
        for before in [&notice, &error, &md5, &sasl] {
            assert!(!seen(Stage::LOGIN, before).1);
            assert!(seen(Stage::LOGIN, &[before.as_slice(), &clear].concat()).1);
        }
        // After the login a message may hold anything.
        assert_eq!(seen(Stage::LOGIN, &[logged_in, clear.clone()].concat()), (Stage::Open, false));
        let [offer, demand] = [false, true].map(|required| Stage::Offer { required });
        assert!(seen(offer, &[b"N", clear.as_slice()].concat()).1, "TLS is not offered");
        assert_eq!(seen(offer, &[b"S", clear.as_slice()].concat()), (Stage::Open, false));
        assert_eq!(seen(demand, b"S"), (Stage::Open, false));
        assert!(seen(demand, b"N").1);
        // An impossible length.
        assert!(!seen(Stage::LOGIN, &[b'R', 0, 0, 0, 0, 0, 0, 0, 3]).1);
    }
}
