//! A connection: the socket, its encryption, and the task that reads it, on a runtime of its own.
//!
//! The runtime has no threads; it runs while the keeper waits for an answer, and each wait has a limit. A failed connection
//! drops its runtime too, so that no late answer can be taken for the next one.

use std::fmt;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::stream::TryReadyChunksError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, SimpleQueryMessage, SimpleQueryRow, Statement};

use super::failed::Failed;
use super::login_filter::{LoginFilter, Stage, TlsConnector};
use super::postgres_dialect::{PIN, PIN_SESSION, translated};
use super::postgres_values::{cells, raw_cells, type_of, typed, written_out};
use crate::store::model::value::{ColumnValue, Value};
use crate::store::server::{ServerOptions, Target};
use crate::store::time_budget;
use crate::store::tls::{Mode, Protection};
use crate::system::sockets;

/// How long any connection may take.
const AT_LEAST: Duration = Duration::from_millis(1);
/// The most rows that are taken together. They have arrived, so they wait for nothing.
const ARRIVED_ROWS: usize = 64;

/// What a statement answered with.
#[derive(Debug, Default)]
pub(super) struct ServerAnswer {
    pub(super) rows: Vec<Vec<ColumnValue>>,
    /// How many rows it changed.
    pub(super) changed: u64,
}

/// Something that goes to the server. No other form exists, so nothing is looked up through the login's `search_path`: see
/// [`PostgresWire`].
pub(super) enum WireStatement<'v> {
    /// A statement of the shared code, with its values. Its answer has rows.
    Question(&'v str, &'v [Value]),
    /// A change of the shared code, with its values. Its answer says how many rows it changed.
    Change(&'v str, &'v [Value]),
    /// Statements in PostgreSQL's own syntax.
    Words(&'v str),
    /// The driver's prepared statement, on a pinned session only.
    Kept(Statement, &'v [Value]),
    /// `BEGIN`, then these statements in PostgreSQL's own syntax, in one message.
    Begin(&'v str),
    Commit,
    RollBack,
}

impl WireStatement<'_> {
    async fn send(&self, client: &Client, pinned: bool) -> Result<ServerAnswer, tokio_postgres::Error> {
        let found = match self {
            WireStatement::Question(sql, values) if pinned => {
                client.query_typed(&translated(sql), &typed(values)).await?
            }
            WireStatement::Change(sql, values) if pinned => {
                let changed = client.execute_typed(&translated(sql), &typed(values)).await?;
                return Ok(ServerAnswer { rows: Vec::new(), changed });
            }
            WireStatement::Kept(statement, values) => {
                let values: Vec<_> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                client.query(statement, &values).await?
            }
            WireStatement::Words(words) if pinned => return said(client, words).await,
            WireStatement::Words(words) => return said(client, &format!("{PIN}{words}")).await,
            WireStatement::Question(sql, values) | WireStatement::Change(sql, values) => {
                return said(client, &format!("{PIN}{}", written_out(sql, values))).await;
            }
            WireStatement::Begin(words) => {
                return said(client, &format!("BEGIN ISOLATION LEVEL READ COMMITTED; {PIN}{words}")).await;
            }
            WireStatement::Commit => return said(client, "COMMIT").await,
            WireStatement::RollBack => return said(client, "ROLLBACK").await,
        };
        Ok(ServerAnswer { rows: found.iter().map(cells).collect(), changed: 0 })
    }
}

/// The rows of the last statement with rows, by the simple protocol. Several statements in one message are one transaction
/// unless they say otherwise, and none is carried out after a failed one.
async fn said(client: &Client, words: &str) -> Result<ServerAnswer, tokio_postgres::Error> {
    let mut answer = ServerAnswer::default();
    for message in client.simple_query(words).await? {
        match message {
            SimpleQueryMessage::RowDescription(_) => answer.rows.clear(),
            SimpleQueryMessage::Row(row) => answer.rows.push(raw_cells(&row)),
            SimpleQueryMessage::CommandComplete(changed) => answer.changed = changed,
            _ => {}
        }
    }
    Ok(answer)
}

/// Notices and the end of the connection, which arrive beside the answers.
#[derive(Debug, Default)]
struct ConnectionEvents {
    /// A commit did not wait for its standby.
    unreplicated: bool,
    /// Why the connection ended.
    end: Option<tokio_postgres::Error>,
}

/// A live connection, and the only way to it.
///
/// Whatever a statement names without a schema (an operator, a function, a type, a collation) PostgreSQL looks up along the
/// `search_path`. A role that may create in a schema of that path can plant a better match than the server's own, which then
/// runs with keymill's rights. So every statement is carried out under [`PIN`]: tables have their schema in front of them,
/// everything else is the server's own.
///
/// On a [pinned](PostgresWire::pin) session the path is set once. Other sessions may be shared: a pooler hands the connection
/// behind them to other clients between two transactions, and `SET` would be lost. There the path is set in the same message
/// as the statement, in its transaction.
pub(super) struct PostgresWire {
    client: Client,
    /// The session has the path of [`PIN`], and no other client sets another one.
    pinned: bool,
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
    pub(super) fn open(options: &ServerOptions, target: &Target, mode: Mode) -> Result<PostgresWire, Failed> {
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
                    log_in_over_tcp(&runtime, options, &mut config, stream, (target, mode), &events)?;
                (client, reader, socket)
            }
            Target::Socket(path) => {
                // As `psql -h` takes it: the folder of the socket.
                let port = options.hosts.first().map_or(5432, |(_, port)| *port);
                let path = if path.is_dir() { path.join(format!(".s.PGSQL.{port}")) } else { path.clone() };
                let (stream, socket) = timely(&runtime, options.connect_timeout, async {
                    sockets::connect_to_file_in_runtime(&path).await.map_err(Failed::Io)
                })?;
                // A socket file's data does not leave the machine.
                let stream = LoginFilter { stream, stage: Stage::login(mode, Protection::None) };
                let (client, reader) = log_in(&runtime, options, &config, stream, NoTls, &events)?;
                (client, reader, socket)
            }
        };
        Ok(PostgresWire { client, pinned: false, runtime, reader, events, socket, protection })
    }

    /// Pins the search path of a session that no other client shares, and sets it up. The settings belong to one session, in PostgreSQL's
    /// own syntax.
    pub(super) fn pin(&mut self, limit: Duration, settings: &str) -> Result<(), Failed> {
        let words = format!("{PIN_SESSION}{settings}");
        self.ask(limit, |client| said(client, &words))?;
        self.pinned = true;
        Ok(())
    }

    /// Whether [`PostgresWire::pin`] was called.
    pub(super) fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Sends one statement and waits for `ReadyForQuery`, which follows its commit.
    pub(super) fn send(
        &self,
        limit: Duration,
        statement: &WireStatement<'_>,
    ) -> Result<ServerAnswer, Failed> {
        self.ask(limit, |client| statement.send(client, self.pinned))
    }

    /// Has the driver prepare a statement, on a pinned session. The server parses it again whenever the path has changed.
    pub(super) fn prepare(&self, limit: Duration, sql: &str, values: &[Value]) -> Result<Statement, Failed> {
        let (words, types) = (translated(sql), values.iter().map(type_of).collect::<Vec<_>>());
        self.ask(limit, |client| client.prepare_typed(&words, &types))
    }

    /// Whether the server still answers.
    pub(super) fn answers(&self, limit: Duration) -> bool {
        self.ask(limit, Client::check_connection).is_ok()
    }

    fn ask<'c, T, F>(&'c self, limit: Duration, question: impl FnOnce(&'c Client) -> F) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, tokio_postgres::Error>>,
    {
        let answer =
            timely(&self.runtime, limit, async { question(&self.client).await.map_err(Failed::Postgres) });
        match answer {
            Err(Failed::Postgres(error)) => Err(self.ended(error)),
            other => other,
        }
    }

    /// The reason of a closed connection arrived earlier, as a notice: `terminating connection due to administrator command`.
    fn ended(&self, error: tokio_postgres::Error) -> Failed {
        if !error.is_closed() {
            return Failed::Postgres(error);
        }
        let said = self.events.lock().unwrap_or_else(PoisonError::into_inner).end.take();
        Failed::Postgres(said.unwrap_or(error))
    }

    /// Sends all statements at once and waits for all answers, under one limit. The server carries them out in their order,
    /// each on its own.
    pub(super) fn send_all(
        &self,
        limit: Duration,
        statements: &[WireStatement<'_>],
    ) -> Result<Vec<Result<ServerAnswer, Failed>>, Failed> {
        timely(&self.runtime, limit, async {
            let mut asked: Vec<_> = statements
                .iter()
                .map(|statement| Box::pin(statement.send(&self.client, self.pinned)))
                .collect();
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

    /// Statements without values, by the simple protocol, with each row passed to `row` as it arrives. The limit holds for each wait.
    pub(super) fn stream(
        &self,
        limit: Duration,
        statements: &str,
        mut row: impl FnMut(&SimpleQueryRow),
    ) -> Result<u64, Failed> {
        let words = format!("{PIN}{statements}");
        let answers = self.ask(limit, |client| client.simple_query_raw(&words))?;
        // Each wait starts the runtime, which costs more than a row.
        let mut answers = Box::pin(answers.try_ready_chunks(ARRIVED_ROWS));
        let mut done = 0;
        loop {
            let mut failed = None;
            let arrived = self.ask(limit, |_| async {
                answers.try_next().await.or_else(|TryReadyChunksError(messages, error)| {
                    failed = Some(error);
                    Ok(Some(messages))
                })
            })?;
            let Some(messages) = arrived else { return Ok(done) };
            for message in messages {
                match message {
                    SimpleQueryMessage::Row(found) => row(&found),
                    SimpleQueryMessage::CommandComplete(rows) => done = rows,
                    _ => {}
                }
            }
            if let Some(error) = failed {
                return Err(self.ended(error));
            }
        }
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

/// Logs in over TCP, encrypted and verified as the mode says.
fn log_in_over_tcp(
    runtime: &Runtime,
    options: &ServerOptions,
    config: &mut Config,
    stream: tokio::net::TcpStream,
    (target, mode): (&Target, Mode),
    events: &Arc<Mutex<ConnectionEvents>>,
) -> Result<(Client, JoinHandle<()>, Protection), Failed> {
    let (Target::Tcp { host, address }, false) = (target, mode.is_plain()) else {
        let stream = LoginFilter { stream, stage: Stage::login(mode, Protection::None) };
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
