//! One connection: opened with its timeouts set, asked, and never used again after anything but an answer. (floor 2)

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, Connection, ConnectionAddr, IntoConnectionInfo, RedisError, Value};

use super::meaning;
use crate::store::server::{Target, Tls, hide, unreached};
use crate::store::{Fault, FaultKind, Secret, server};

/// What a command that is cut off leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing was to be changed.
    Ask,
    /// A change: whether it was made is unknown until it is answered.
    Commit,
}

pub(super) struct Wire {
    connection: Connection,
    password: Secret,
    /// How long one answer may take.
    limit: Duration,
    encrypted: bool,
    /// Not to be used again.
    pub(super) broken: bool,
    /// The server closed it.
    pub(super) hung_up: bool,
}

impl Wire {
    /// Connects; nothing is said yet.
    pub(super) fn open(target: &Target, options: &server::Options) -> Result<Wire, Fault> {
        let at_least = Duration::from_millis(1); // a timeout of zero would mean none
        let timeout = options.read_timeout.max(at_least);
        let opened = client(target, options)?
            .get_connection_with_timeout(options.connect_timeout.max(at_least))
            .and_then(|connection| {
                connection.set_read_timeout(Some(timeout))?;
                connection.set_write_timeout(Some(timeout))?;
                Ok(connection)
            });
        match opened {
            Ok(connection) => Ok(Wire {
                connection,
                password: options.password.clone(),
                limit: timeout,
                encrypted: options.tls != Tls::Off,
                broken: false,
                hung_up: false,
            }),
            Err(error) => {
                Err(Fault::new(FaultKind::Unavailable, hide(&plain_words(&error), &options.password)))
            }
        }
    }

    /// What it may mean that nothing was ever answered.
    pub(super) fn silence(&self) -> &'static str {
        if self.encrypted {
            "; does the server speak TLS on this port?"
        } else if self.hung_up {
            // What a full server says before it closes is mostly lost with the connection.
            "; the server may have too many clients (`maxclients`), demand TLS (`rediss://`), or be no Redis server"
        } else {
            "; is it a Redis server, and awake?"
        }
    }

    /// Says all commands at once and reads an answer to each. Error answers are among them, for the caller to judge.
    pub(super) fn exchange(&mut self, commands: &[Cmd], phase: Phase) -> Result<Vec<Value>, Fault> {
        match self.exchange_until_cut(commands, phase) {
            (answers, None) => Ok(answers),
            (_, Some(fault)) => Err(fault),
        }
    }

    /// The same, with the answers that came before the connection was cut off. All together take no longer than two may.
    pub(super) fn exchange_until_cut(
        &mut self,
        commands: &[Cmd],
        phase: Phase,
    ) -> (Vec<Value>, Option<Fault>) {
        let mut packed = Vec::new();
        for command in commands {
            command.write_packed_command(&mut packed);
        }
        let mut answers = Vec::with_capacity(commands.len());
        let began = Instant::now();
        if let Err(error) = self.connection.send_packed_command(&packed) {
            return (answers, Some(self.cut(&error, phase)));
        }
        for _ in commands {
            let answer = if began.elapsed() > self.limit {
                Err(io::Error::from(io::ErrorKind::TimedOut).into())
            } else {
                self.connection.recv_response()
            };
            match answer {
                Ok(answer) => answers.push(answer),
                Err(error) => return (answers, Some(self.cut(&error, phase))),
            }
        }
        (answers, None)
    }

    /// One command; an error answer is a fault.
    pub(super) fn ask(&mut self, command: Cmd) -> Result<Value, Fault> {
        let mut answers = self.exchange(&[command], Phase::Ask)?;
        let answer = answers.pop().unwrap_or_default();
        self.answer(answer)
    }

    /// The answer, or the fault that it is.
    pub(super) fn answer(&mut self, answer: Value) -> Result<Value, Fault> {
        let Value::ServerError(error) = answer else { return Ok(answer) };
        let details = error.details().unwrap_or_default();
        let meaning = meaning::of(error.code(), details);
        self.broken |= meaning.reconnect;
        // A script's error ends in the script's name and line, which say nothing to whoever reads this.
        let said = details.split(" script: ").next().unwrap_or_default();
        let said = hide(format!("{}: {said}", error.code()).trim_end_matches(": "), &self.password);
        let message = if meaning.advice.is_empty() { said } else { format!("{said}; {}", meaning.advice) };
        Err(Fault::new(meaning.kind, message))
    }

    /// Anything but an answer breaks the connection.
    fn cut(&mut self, error: &RedisError, phase: Phase) -> Fault {
        self.broken = true;
        let message = hide(&plain_words(error), &self.password);
        let io = io_error(error).map(io::Error::kind);
        self.hung_up |= matches!(
            io,
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe)
        );
        if self.encrypted && io == Some(io::ErrorKind::InvalidData) {
            // The handshake: nothing has been said yet. A certificate that is not trusted stays so.
            let advice =
                "the host has to be the certificate's, and `ca=FILE.pem` names an authority of one's own";
            return Fault::new(FaultKind::Refused, format!("{message}; {advice}"));
        }
        match phase {
            Phase::Ask => Fault::new(FaultKind::Unavailable, message),
            Phase::Commit => Fault::new(
                FaultKind::Unknown,
                format!("{message}; whether it was done is unknown, so that range is never used"),
            ),
        }
    }
}

fn client(target: &Target, options: &server::Options) -> Result<Client, Fault> {
    let address = match target {
        Target::Socket(path) => ConnectionAddr::Unix(path.clone()),
        Target::Tcp(host, port) if options.tls == Tls::Off => ConnectionAddr::Tcp(host.clone(), *port),
        Target::Tcp(host, port) => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
    };
    let settings = TcpSettings::default().set_nodelay(true);
    #[cfg(target_os = "linux")]
    let settings = settings.set_user_timeout(options.read_timeout);
    // Login and database are said by `Session`, which knows what their refusals mean.
    let redis = redis::RedisConnectionInfo::default().set_skip_set_lib_name();
    let info = address
        .into_connection_info()
        .map(|info| info.set_tcp_settings(settings).set_redis_settings(redis))
        .map_err(|error| refused(&error))?;
    match &options.tls {
        Tls::Verify { ca } if matches!(target, Target::Tcp(..)) => encrypted(info, ca.as_deref()),
        _ => Client::open(info).map_err(|error| refused(&error)),
    }
}

fn refused(error: &RedisError) -> Fault {
    Fault::new(FaultKind::Refused, plain_words(error))
}

#[cfg(feature = "rustls")]
fn encrypted(info: redis::ConnectionInfo, ca: Option<&Path>) -> Result<Client, Fault> {
    // The library takes whatever provider of ciphers the process has, and panics where there are two to choose from.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error says that another thread has just done it.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let Some(file) = ca else { return Client::open(info).map_err(|error| refused(&error)) };
    let unreadable = |error: &dyn std::fmt::Display| {
        let file = file.display();
        Fault::new(
            FaultKind::Refused,
            format!("the authority's certificate `{file}` cannot be read: {error}"),
        )
    };
    let authority = std::fs::read(file).map_err(|error| unreadable(&error))?;
    let certificates = redis::TlsCertificates { client_tls: None, root_cert: Some(authority) };
    Client::build_with_tls(info, certificates).map_err(|error| unreadable(&error))
}

#[cfg(not(feature = "rustls"))]
fn encrypted(_info: redis::ConnectionInfo, _ca: Option<&Path>) -> Result<Client, Fault> {
    Err(Fault::new(
        FaultKind::Refused,
        "this build of keymill has no TLS; build it with feature `rustls`, or use `tls=off`",
    ))
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    // The driver keeps it in an `Arc`, and that is what it shows as its source.
    let kept = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    kept.downcast_ref()
}

/// A driver's error in words, without its debug output.
fn plain_words(error: &RedisError) -> String {
    match io_error(error) {
        Some(io) if matches!(io.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => {
            "the server did not answer in time".to_owned()
        }
        Some(io) if io.kind() == io::ErrorKind::InvalidData => io.to_string(),
        Some(io) => {
            unreached(io.kind(), &io.to_string()).unwrap_or_else(|| format!("the connection broke: {io}"))
        }
        // A full server closes what it has just accepted, and what it says of that may be lost.
        None if error.is_io_error() || error.is_connection_dropped() => {
            format!("the connection broke: {error}; is `maxclients` reached?")
        }
        // What the library found instead is a byte's number.
        None if error.kind() == redis::ErrorKind::Parse => {
            "the answer is not of the Redis protocol".to_owned()
        }
        None => format!("the answer is not of the Redis protocol: {error}"),
    }
}
