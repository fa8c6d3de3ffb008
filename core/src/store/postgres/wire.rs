//! A connection: the socket, its encryption, and the task that reads it, on a runtime of its own. (floor 2)
//!
//! The runtime has no threads; it runs while the keeper waits for an answer, and each wait has an end. What ends a
//! connection ends its runtime with it, so that no late answer is left anywhere to be taken for the next one.

use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::Severity;
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Row, Statement};

use crate::store::server::{Options, Target, Tls};
use crate::store::{Fault, FaultKind};

/// How long any connection may take.
const AT_LEAST: Duration = Duration::from_millis(1);

/// Why a connection could not be made.
#[derive(Debug)]
pub(super) enum Failed {
    /// By the server or the protocol.
    Postgres(tokio_postgres::Error),
    /// By the network or this machine.
    Io(io::Error),
    /// Nobody answered in time.
    Silent,
    /// Said already.
    Fault(Fault),
}

impl Failed {
    /// The SQLSTATE of a server that goes on with this connection.
    pub(super) fn code(&self) -> Option<&str> {
        let Failed::Postgres(error) = self else { return None };
        let said = error.as_db_error()?;
        (said.parsed_severity() == Some(Severity::Error)).then(|| said.code().code())
    }

    /// Whether these are the server's own words.
    pub(super) fn is_said(&self) -> bool {
        matches!(self, Failed::Postgres(error) if error.as_db_error().is_some())
    }
}

/// A statement's values, each with the type its placeholder is given.
pub(super) type Values<'v> = Vec<(&'v (dyn ToSql + Sync), Type)>;

/// A statement and its values.
pub(super) enum Said<'v> {
    /// Its text.
    Plain(String, Values<'v>),
    /// What the driver has prepared of it.
    Kept(Statement, Vec<&'v (dyn ToSql + Sync)>),
}

impl Said<'_> {
    async fn to(&self, client: &Client) -> Result<Vec<Row>, tokio_postgres::Error> {
        match self {
            Said::Plain(words, values) => client.query_typed(words, values).await,
            Said::Kept(statement, values) => client.query(statement, values).await,
        }
    }
}

/// What was heard beside the answers.
#[derive(Debug, Default)]
struct Heard {
    /// A commit was let go before its standby had it.
    unreplicated: bool,
    /// Why the connection ended.
    end: Option<tokio_postgres::Error>,
}

/// A live connection.
pub(super) struct Wire {
    client: Client,
    runtime: Runtime,
    reader: JoinHandle<()>,
    heard: Arc<Mutex<Heard>>,
    /// The same socket once more, of whatever family. It is cut when we go: a forked child may hold a copy, and the server
    /// would wait for both.
    socket: TcpStream,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Wire {
    /// Connects and logs in, each within its timeout.
    pub(super) fn open(options: &Options, target: &Target) -> Result<Wire, Failed> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().map_err(Failed::Io)?;
        let mut config = Config::new();
        config
            .user(&options.user)
            .dbname(&options.database)
            .password(options.password.reveal())
            .application_name("keymill")
            .ssl_mode(if options.tls == Tls::Off { SslMode::Disable } else { SslMode::Require });
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (client, reader, socket) = match target {
            Target::Tcp(host, port) => {
                let stream = dial(host, *port, options.connect_timeout.max(AT_LEAST)).map_err(Failed::Io)?;
                let socket = stream.try_clone().map_err(Failed::Io)?;
                stream.set_nonblocking(true).map_err(Failed::Io)?;
                let stream = {
                    let _inside = runtime.enter();
                    tokio::net::TcpStream::from_std(stream).map_err(Failed::Io)?
                };
                let tls = Tunnel::to(host, &options.tls)?;
                let (client, reader) = greet(&runtime, options, &config, stream, tls, &heard)?;
                (client, reader, socket)
            }
            Target::Socket(path) => {
                // As `psql -h` takes it: the folder of the socket.
                let port = options.hosts.first().map_or(5432, |(_, port)| *port);
                let path = if path.is_dir() { path.join(format!(".s.PGSQL.{port}")) } else { path.clone() };
                let stream = timely(&runtime, options.connect_timeout, async {
                    plug(&path).await.map_err(Failed::Io)
                })?;
                let socket = TcpStream::from(OwnedFd::from(stream.try_clone().map_err(Failed::Io)?));
                let stream = {
                    let _inside = runtime.enter();
                    tokio::net::UnixStream::from_std(stream).map_err(Failed::Io)?
                };
                // A socket does not leave the machine.
                config.ssl_mode(SslMode::Disable);
                let (client, reader) = greet(&runtime, options, &config, stream, NoTls, &heard)?;
                (client, reader, socket)
            }
        };
        Ok(Wire { client, runtime, reader, heard, socket })
    }

    /// Runs one question to its end: until the server is ready for the next one, which is after its commit.
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
            // The reason came before, by itself: `terminating connection due to administrator command`.
            Err(Failed::Postgres(error)) if error.is_closed() => {
                let said = self.heard.lock().unwrap_or_else(PoisonError::into_inner).end.take();
                Err(Failed::Postgres(said.unwrap_or(error)))
            }
            other => other,
        }
    }

    /// Says all statements at once and waits for the answers to all of them, under one limit. The server carries them out in
    /// their order, each as if it were alone.
    pub(super) fn ask_all(
        &self,
        limit: Duration,
        statements: &[Said<'_>],
    ) -> Result<Vec<Result<Vec<Row>, Failed>>, Failed> {
        timely(&self.runtime, limit, async {
            let mut asked: Vec<_> = statements.iter().map(|said| Box::pin(said.to(&self.client))).collect();
            let mut answers: Vec<_> = statements.iter().map(|_| None).collect();
            // What is polled first is said first.
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

    /// Whether a commit since the last question was let go before its standby had it. The server says that in a warning and
    /// calls the commit a success.
    pub(super) fn unreplicated(&self) -> bool {
        std::mem::take(&mut self.heard.lock().unwrap_or_else(PoisonError::into_inner).unreplicated)
    }

    /// Whether the server has hung up: a statement that is sent into a closed connection would count as unknown. The runtime
    /// is set going only where something has come since the last question: that costs as much as half a question.
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

    /// Our end of the connection and the other one; none of a Unix socket.
    pub(super) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        Some((self.socket.local_addr().ok()?, self.socket.peer_addr().ok()?))
    }
}

/// Waits for one thing, but not for ever.
fn timely<T>(
    runtime: &Runtime,
    limit: Duration,
    work: impl Future<Output = Result<T, Failed>>,
) -> Result<T, Failed> {
    runtime.block_on(async {
        match tokio::time::timeout(limit.max(AT_LEAST), work).await {
            Ok(done) => done,
            Err(_) => Err(Failed::Silent),
        }
    })
}

/// The first of a name's addresses that answers; the last one's error.
fn dial(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in std::net::ToSocketAddrs::to_socket_addrs(&(host, port))? {
        match TcpStream::connect_timeout(&address, limit) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn plug(path: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    tokio::net::UnixStream::connect(path).await?.into_std()
}

/// Logs in and starts the task that reads the answers.
fn greet<S, T>(
    runtime: &Runtime,
    options: &Options,
    config: &Config,
    stream: S,
    tls: T,
    heard: &Arc<Mutex<Heard>>,
) -> Result<(Client, JoinHandle<()>), Failed>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: TlsConnect<S>,
    T::Stream: Send + 'static,
{
    let (client, mut connection) = timely(runtime, options.read_timeout, async {
        config.connect_raw(stream, tls).await.map_err(Failed::Postgres)
    })?;
    let heard = Arc::clone(heard);
    let reader = runtime.spawn(async move {
        loop {
            let message = std::future::poll_fn(|context| connection.poll_message(context)).await;
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            match message {
                // By the function's name: the words are in the server's language.
                Some(Ok(AsyncMessage::Notice(notice))) => {
                    heard.unreplicated |= notice.routine() == Some("SyncRepWaitForLSN");
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    heard.end = Some(error);
                    return;
                }
                None => return,
            }
        }
    });
    Ok((client, reader))
}

#[cfg(not(feature = "rustls"))]
struct Tunnel;

#[cfg(not(feature = "rustls"))]
impl Tunnel {
    fn to(_host: &str, tls: &Tls) -> Result<NoTls, Failed> {
        match tls {
            Tls::Off => Ok(NoTls),
            Tls::Verify { .. } => Err(Failed::Fault(Fault::new(
                FaultKind::Refused,
                "this build of keymill has no TLS; build it with feature `rustls`, or use `tls=off`",
            ))),
        }
    }
}

#[cfg(feature = "rustls")]
use encrypted::Tunnel;

/// TLS by rustls: the certificate is checked against the host's name, and its authority against the public ones or the
/// given one.
#[cfg(feature = "rustls")]
mod encrypted {
    use std::io;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
    use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::{Failed, Fault, FaultKind, Tls};

    /// A host's name and whom to believe; `None` where nothing is encrypted.
    pub(super) struct Tunnel(Option<(TlsConnector, ServerName<'static>)>);

    impl Tunnel {
        pub(super) fn to(host: &str, tls: &Tls) -> Result<Tunnel, Failed> {
            let refused = |message| Failed::Fault(Fault::new(FaultKind::Refused, message));
            let Tls::Verify { ca } = tls else { return Ok(Tunnel(None)) };
            let mut authorities = RootCertStore::empty();
            match ca {
                None => authorities.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
                Some(file) => {
                    let wrong = |error: &dyn std::fmt::Display| {
                        refused(format!(
                            "the authority's certificate `{}` cannot be read: {error}",
                            file.display()
                        ))
                    };
                    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))? {
                        let certificate = certificate.map_err(|error| wrong(&error))?;
                        authorities.add(certificate).map_err(|error| wrong(&error))?;
                    }
                    if authorities.is_empty() {
                        return Err(wrong(&"it holds no certificate in PEM"));
                    }
                }
            }
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| refused(format!("TLS cannot be set up: {error}")))?
                .with_root_certificates(authorities)
                .with_no_client_auth();
            let name = ServerName::try_from(host.to_owned())
                .map_err(|_| refused(format!("`{host}` is no name that a certificate can be for")))?;
            Ok(Tunnel(Some((TlsConnector::from(Arc::new(config)), name))))
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Tunnel {
        type Stream = Encrypted<S>;
        type Error = io::Error;
        type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

        fn connect(self, stream: S) -> Self::Future {
            Box::pin(async move {
                let Some((connector, name)) = self.0 else {
                    return Err(io::Error::other("the connection is not to be encrypted"));
                };
                Ok(Encrypted(connector.connect(name, stream).await?))
            })
        }
    }

    /// A stream whose other end has shown its certificate.
    pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

    impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
        // The certificate was verified for the name; binding the password's proof to it would add nothing we rely on.
        fn channel_binding(&self) -> ChannelBinding {
            ChannelBinding::none()
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_read(context, buffer)
        }
    }

    impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.0).poll_write(context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_flush(context)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.0).poll_shutdown(context)
        }
    }
}
