//! One connection: it has every timeout set, and is not used again after anything but an answer.

use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Parser, RedisError, Value};

use super::meaning::ErrorMeaning;
use crate::error::shown;
use crate::store::server::{Target, hide, unreached};
use crate::store::socket::Socket;
use crate::store::tls::{Mode, Protection, auth_withheld};
use crate::store::{Fault, FaultKind, Remedy, Secret, server};

/// Whether a command changes something: it decides what a connection that breaks leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandKind {
    /// Nothing was to be changed.
    Query,
    /// The outcome is unknown until the answer.
    Change,
}

/// The bytes to and from a server, plain or encrypted. The library's own TLS would install its provider in the whole process,
/// and trust authorities of its choice.
trait Stream: Read + Write + Send {
    /// Begins an exchange, which may take this long.
    fn begin(&mut self, limit: Duration);
}

impl Stream for Socket {
    fn begin(&mut self, limit: Duration) {
        Socket::begin(self, limit);
    }
}

impl Stream for rustls::StreamOwned<rustls::ClientConnection, Socket> {
    fn begin(&mut self, limit: Duration) {
        self.sock.begin(limit);
    }
}

/// The most bytes of the answers to one exchange. The longest is a route table, or the list of a router's readers.
const LONGEST: usize = 32 << 20;

/// What a server may send: the library keeps an answer until it has all of it.
struct Bounded<'s> {
    stream: &'s mut dyn Stream,
    left: usize,
}

impl Read for Bounded<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let words =
                format!("the server's answer has more than {} MiB; is it a Redis server?", LONGEST >> 20);
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let most = bytes.len().min(self.left);
        let read = self.stream.read(&mut bytes[..most])?;
        self.left -= read;
        Ok(read)
    }
}

pub(super) struct RedisWire {
    stream: Box<dyn Stream>,
    parser: Parser,
    pub(super) protection: Protection,
    password: Secret,
    /// How long one answer may take.
    limit: Duration,
    /// Not to be used again.
    pub(super) broken: bool,
    /// The server closed it.
    pub(super) hung_up: bool,
    /// TLS has reported why.
    refused: bool,
}

impl RedisWire {
    /// Connects; sends nothing yet.
    pub(super) fn open(target: &Target, options: &server::ServerOptions) -> Result<RedisWire, Fault> {
        let limit = options.read_timeout;
        let mode = Mode::of(options, target);
        let dial = || Socket::connect(target, options).map_err(|error| unconnected(&error));
        let plain = |socket| -> (Box<dyn Stream>, _) { (Box::new(socket), Protection::None) };
        let (stream, protection) = match (mode, target) {
            // A port either speaks TLS or does not, and no server announces it. Without `tls=` the URL's scheme decides.
            (Mode::Prefer, _) if options.tls.mode == server::TlsMode::Default => plain(dial()?),
            (_, Target::Socket(_)) => plain(dial()?),
            (mode, _) if mode.is_plain() => plain(dial()?),
            (_, Target::Tcp { host, address }) => match encrypted(dial()?, host, *address, options, mode) {
                Ok(stream) => (stream, mode.encrypted()),
                Err(_) if mode == Mode::Prefer => plain(dial()?),
                Err(fault) => return Err(fault),
            },
        };
        if !options.password.reveal().is_empty() && !mode.may_send_auth(protection) {
            return Err(auth_withheld());
        }
        Ok(RedisWire {
            stream,
            parser: Parser::new(),
            protection,
            password: options.password.clone(),
            limit,
            broken: false,
            hung_up: false,
            refused: false,
        })
    }

    /// Possible reasons why the server never answered.
    pub(super) fn silence(&self) -> &'static str {
        if self.refused {
            ""
        } else if self.protection != Protection::None {
            "; does the server speak TLS on this port?"
        } else if self.hung_up {
            // A full server's error is mostly lost when it closes the connection.
            "; the server may have too many clients (`maxclients`), demand TLS (`rediss://`), or be no Redis server; a proxy may have no server behind it"
        } else {
            "; is it a Redis server, and awake?"
        }
    }

    /// Sends all commands at once and reads an answer to each. Error answers are among them; the caller judges them.
    pub(super) fn exchange(&mut self, commands: &[Cmd], kind: CommandKind) -> Result<Vec<Value>, Fault> {
        match self.exchange_until_cut(commands, kind) {
            (answers, None) => Ok(answers),
            (_, Some(fault)) => Err(fault),
        }
    }

    /// The same, with the answers that arrived before the connection broke. All together take no longer than one answer
    /// may.
    pub(super) fn exchange_until_cut(
        &mut self,
        commands: &[Cmd],
        kind: CommandKind,
    ) -> (Vec<Value>, Option<Fault>) {
        let mut packed = Vec::new();
        for command in commands {
            command.write_packed_command(&mut packed);
        }
        let mut answers = Vec::with_capacity(commands.len());
        self.stream.begin(self.limit);
        if let Err(error) = self.stream.write_all(&packed).and_then(|()| self.stream.flush()) {
            return (answers, Some(self.cut(&error.into(), kind)));
        }
        let mut stream = Bounded { stream: &mut *self.stream, left: LONGEST };
        for command in commands {
            match self.parser.parse_value(&mut stream) {
                Ok(answer) => answers.push(answer),
                Err(_) if stream.left == 0 && kind == CommandKind::Query => {
                    self.broken = true;
                    return (answers, Some(too_long(command)));
                }
                Err(error) => return (answers, Some(self.cut(&error, kind))),
            }
        }
        (answers, None)
    }

    /// One command; an error answer is a fault.
    pub(super) fn ask(&mut self, command: Cmd) -> Result<Value, Fault> {
        let mut answers = self.exchange(&[command], CommandKind::Query)?;
        let answer = answers.pop().unwrap_or_default();
        self.answer(answer)
    }

    /// The answer, or its error as a fault.
    pub(super) fn answer(&mut self, answer: Value) -> Result<Value, Fault> {
        let Value::ServerError(error) = answer else { return Ok(answer) };
        let details = error.details().unwrap_or_default();
        let meaning = ErrorMeaning::of(error.code(), details);
        self.broken |= meaning.reconnect;
        // A script's error ends in the script's name and line, which mean nothing to a user.
        let said = details.split(" script: ").next().unwrap_or_default();
        let said = hide(format!("{}: {said}", error.code()).trim_end_matches(": "), &self.password);
        let fault = Fault::new(meaning.kind, said).with_native(error.code()).with_absence(meaning.absence);
        Err(if meaning.advice.is_empty() { fault } else { fault.with_remedy(Remedy::Text(meaning.advice)) })
    }

    /// Anything but an answer breaks the connection.
    fn cut(&mut self, error: &RedisError, kind: CommandKind) -> Fault {
        self.broken = true;
        let message = hide(&plain_words(error), &self.password);
        let io = io_error(error).map(io::Error::kind);
        self.hung_up |= matches!(
            io,
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe)
        );
        if let Some(refused) = io_error(error).and_then(crate::store::tls::refusal)
            && kind == CommandKind::Query
        {
            // A server that requires a client certificate says so after the handshake.
            self.refused = true;
            return refused;
        }
        match kind {
            CommandKind::Query => Fault::new(FaultKind::Unavailable, message),
            CommandKind::Change => Fault::new(
                FaultKind::Unknown,
                format!(
                    "{message}; whether it was done is unknown, and what it may have reserved is never used"
                ),
            ),
        }
    }
}

/// The answer to this command is longer than what keymill keeps.
fn too_long(command: &Cmd) -> Fault {
    let words = command.args_iter().take(2).filter_map(|word| match word {
        redis::Arg::Simple(word) => Some(shown(&String::from_utf8_lossy(word))),
        _ => None,
    });
    let asked = words.collect::<Vec<_>>().join(" ");
    Fault::new(
        FaultKind::Refused,
        format!(
            "the answer to `{asked}` has more than {} MiB, and keymill keeps nothing so long; nothing was changed: another program has written there, or it is no Redis server",
            LONGEST >> 20
        ),
    )
}

fn unconnected(error: &io::Error) -> Fault {
    server::not_dialled(error, words_of(error))
}

/// Encrypts a connection; the handshake may take as long as an answer.
fn encrypted(
    mut socket: Socket,
    host: &str,
    address: std::net::SocketAddr,
    options: &server::ServerOptions,
    mode: Mode,
) -> Result<Box<dyn Stream>, Fault> {
    use crate::store::tls::{client_config, refusal, server_name};
    let config = client_config(&options.tls, mode)?;
    let name = server_name(host, address, mode)?;
    let broke = |error: &io::Error| {
        refusal(error).unwrap_or_else(|| {
            let message = format!("{}; does the server speak TLS on this port?", words_of(error));
            Fault::new(FaultKind::Unavailable, message)
        })
    };
    let mut tls = rustls::ClientConnection::new(Arc::new(config), name)
        .map_err(|error| broke(&io::Error::other(error)))?;
    socket.begin(options.read_timeout);
    while tls.is_handshaking() {
        tls.complete_io(&mut socket).map_err(|error| broke(&error))?;
    }
    Ok(Box::new(rustls::StreamOwned::new(tls, socket)))
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    // The driver wraps it in an `Arc` and returns that as the source.
    let kept = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    kept.downcast_ref()
}

/// The text of a driver's error, without its debug output.
fn plain_words(error: &RedisError) -> String {
    match io_error(error) {
        Some(io) => words_of(io),
        // A full server closes a connection that it has just accepted, and its error may be lost.
        None if error.is_io_error() || error.is_connection_dropped() => {
            format!("the connection broke: {error}; is `maxclients` reached?")
        }
        // The library reports the byte that it found as a number.
        None if error.kind() == redis::ErrorKind::Parse => {
            "the answer is not of the Redis protocol".to_owned()
        }
        None => format!("the answer is not of the Redis protocol: {error}"),
    }
}

fn words_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "the server did not answer in time".to_owned(),
        io::ErrorKind::InvalidData => error.to_string(),
        kind => {
            unreached(kind, &error.to_string()).unwrap_or_else(|| format!("the connection broke: {error}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A server that answers with one long text, a byte each ten milliseconds: one second and a half in all.
    fn drip(listener: &TcpListener) -> io::Result<()> {
        let (mut client, _) = listener.accept()?;
        let answer = format!("$150\r\n{}\r\n", "x".repeat(150));
        for byte in answer.bytes() {
            client.write_all(&[byte])?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    #[test]
    fn an_answer_that_never_ends_is_not_kept() -> io::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let server = std::thread::spawn(move || -> io::Result<usize> {
            let (mut client, _) = listener.accept()?;
            client.write_all(b"$536870000\r\n")?;
            let (part, mut sent) = (vec![b'x'; 1 << 16], 0);
            while client.write_all(&part).is_ok() {
                sent += part.len();
            }
            Ok(sent)
        });
        let target = Target::Tcp { host: "localhost".to_owned(), address };
        let mut wire = RedisWire::open(&target, &server::ServerOptions::default()).expect("a connection");
        wire.limit = Duration::from_secs(60);
        let fault = wire.ask(redis::cmd("GET").arg("name").take()).expect_err("an answer that is too long");
        assert!(fault.to_string().contains("the answer to `GET name` has more than 32 MiB"), "{fault}");
        assert!(wire.broken && fault.kind == FaultKind::Refused, "{fault}");
        drop(wire);
        let sent = server.join().expect("no panic")?;
        assert!(sent < 2 * LONGEST, "{sent} bytes");
        Ok(())
    }

    #[test]
    fn an_answer_that_arrives_in_time_byte_by_byte_may_be_late_as_a_whole() -> io::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let server = std::thread::spawn(move || drip(&listener));
        let options =
            server::ServerOptions { read_timeout: Duration::from_millis(300), ..Default::default() };
        let target = Target::Tcp { host: "localhost".to_owned(), address };
        let mut wire = RedisWire::open(&target, &options).expect("a connection");
        let fault = wire.ask(redis::cmd("GET").arg("name").take()).expect_err("an answer that is too late");
        assert_eq!(fault.kind, FaultKind::Unavailable);
        assert!(wire.broken);
        drop(wire);
        // The server was cut off.
        let _ = server.join();
        Ok(())
    }
}
