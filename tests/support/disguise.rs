//! A scripted server in front of the test's MariaDB. It speaks the MySQL protocol packet by packet, and plays answers that
//! MariaDB does not give: another server's version and statements, TiDB's error numbers at a chosen statement, malformed
//! answers. The MariaDB behind it keeps the rows. It records every statement. A packet of several statements is split, so
//! that each has its own answer.
//!
//! Written by hand because the list of error numbers in the crate `opensrv-mysql` is closed and has none of TiDB's (9007,
//! 8002, 8022, 8028), and the crate brings 170 packages for the four commands that are needed here.
//!
//! It imitates only TiDB's answers. It proves nothing about a TiDB.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// What `@@version` says on a TiDB.
pub const TIDB: &str = "8.0.11-TiDB-v8.5.1";

/// The environment variable that names the file to which statements are written.
pub const STATEMENTS: &str = "KEYMILL_TIDB_STATEMENTS";

/// The outcome of a statement.
#[derive(Clone, Debug)]
pub enum Answer {
    /// It is not carried out; the client gets this error.
    Refused(u16, &'static str),
    /// It is carried out, and the client gets this error all the same. For statements without rows.
    DoneBut(u16, &'static str),
    /// It is not carried out; the client gets this count and this last insert id.
    Ok(u64, u64),
    /// It is carried out, and answered with these numbers. For statements without rows.
    DoneWith(u64, u64),
    /// It is not carried out, and the connection breaks.
    Cut,
    /// It is carried out, and the connection breaks before the answer.
    DoneAndCut,
    /// It is not carried out, and no answer comes for this long; then the connection breaks.
    Silence(Duration),
}

struct Rule {
    part: String,
    skip: u32,
    times: u32,
    answer: Answer,
}

#[derive(Default)]
struct Script {
    rules: Vec<Rule>,
    /// A statement that contains the first text is forwarded with the second text instead.
    words: Vec<(String, String)>,
    /// The same, for the next one only.
    words_once: Option<(String, String)>,
    said: Vec<String>,
    /// The number of queries so far; a packet of several statements counts once.
    packets: usize,
    /// The session is reset before the next query.
    reset: bool,
    /// Statements are for TiDB, and written to the file of [`STATEMENTS`].
    for_tidb: bool,
}

/// A server in disguise.
pub struct Disguise {
    port: u16,
    script: Arc<Mutex<Script>>,
}

impl std::fmt::Debug for Disguise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disguise").field("port", &self.port).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disguise {
    /// Forwards to `server` without changes.
    ///
    /// # Panics
    /// Where there is no free port.
    #[must_use]
    pub fn plain(server: (String, u16)) -> Disguise {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let script = Arc::<Mutex<Script>>::default();
        let of_thread = Arc::clone(&script);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                for stream in [&client, &upstream] {
                    let _ = stream.set_nodelay(true);
                }
                let _ = Connection::serve(client, upstream, Arc::clone(&of_thread));
            }
        });
        Disguise { port, script }
    }

    /// As a TiDB: its version, and its own statements translated for MariaDB.
    ///
    /// # Panics
    /// Where there is no free port.
    #[must_use]
    pub fn tidb(server: (String, u16)) -> Disguise {
        let disguise = Disguise::plain(server);
        locked(&disguise.script).for_tidb = true;
        disguise.instead("SELECT @@version", &format!("SELECT '{TIDB}'"));
        disguise.instead("BEGIN PESSIMISTIC", "START TRANSACTION");
        disguise
    }

    /// Where to connect to.
    #[must_use]
    pub fn address(&self) -> (String, u16) {
        ("127.0.0.1".to_owned(), self.port)
    }

    /// The URL of the server behind, with this server's address.
    ///
    /// # Panics
    /// Where the URL names no port.
    #[must_use]
    pub fn in_front_of(&self, url: &str) -> String {
        let (login, place) = url.rsplit_once('@').expect("a login");
        let (_, database) = place.split_once('/').expect("a database");
        format!("{login}@127.0.0.1:{}/{database}", self.port)
    }

    /// From now on replaces this part of statements by `other`.
    pub fn instead(&self, part: &str, other: &str) {
        locked(&self.script).words.insert(0, (part.to_owned(), other.to_owned()));
    }

    /// Replaces this part of the next statement by `other`.
    pub fn instead_once(&self, part: &str, other: &str) {
        locked(&self.script).words_once = Some((part.to_owned(), other.to_owned()));
    }

    /// Answers the next `times` statements with this part like this.
    pub fn answer(&self, part: &str, times: u32, answer: Answer) {
        self.answer_after(part, 0, times, answer);
    }

    /// The same, after this many undisturbed ones.
    pub fn answer_after(&self, part: &str, skip: u32, times: u32, answer: Answer) {
        locked(&self.script).rules.push(Rule { part: part.to_owned(), skip, times, answer });
    }

    /// From the next query on the session is another one, as behind a proxy that sends each query to any free session: the
    /// client's settings are gone.
    pub fn other_session(&self) {
        locked(&self.script).reset = true;
    }

    /// How many of the set answers have not been given yet.
    #[must_use]
    pub fn to_come(&self) -> u32 {
        let script = locked(&self.script);
        script.rules.iter().map(|rule| rule.times).sum::<u32>() + u32::from(script.words_once.is_some())
    }

    /// Drops the set answers that have not been given yet.
    pub fn nothing_more(&self) {
        let mut script = locked(&self.script);
        script.rules.clear();
    }

    /// The statements since the last call.
    #[must_use]
    pub fn said(&self) -> Vec<String> {
        let mut script = locked(&self.script);
        script.packets = 0;
        std::mem::take(&mut script.said)
    }

    /// The number of round trips since the last call of `said`.
    #[must_use]
    pub fn round_trips(&self) -> usize {
        locked(&self.script).packets
    }
}

/// Appends statements to the file that [`STATEMENTS`] names, each once and on one line.
///
/// # Panics
/// Where the file cannot be written.
pub fn write_down(statements: &[String]) {
    static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Ok(file) = std::env::var(STATEMENTS) else { return };
    let mut written = locked(&WRITTEN);
    for statement in statements {
        // Tables of one test run have names of their own, which make no new statement.
        let line = statement.replace('\n', " ");
        if !written.insert(line.clone()) {
            continue;
        }
        let mut file =
            std::fs::OpenOptions::new().create(true).append(true).open(&file).expect("it can be opened");
        // One write: other processes append to it too.
        file.write_all(format!("{line}\n").as_bytes()).expect("it can be written");
    }
}

/// What the reading thread does with the next packet of the server.
enum Next {
    Pass,
    /// Passes it to the thread that reads the queries.
    Hand(Sender<Vec<u8>>),
    /// Sends this to the client instead, with the packet's number.
    Instead(Vec<u8>),
    /// Sends nothing more to the client.
    Cut,
}

struct Connection {
    script: Arc<Mutex<Script>>,
    next: Mutex<Next>,
}

impl Connection {
    fn serve(client: TcpStream, upstream: TcpStream, script: Arc<Mutex<Script>>) -> std::io::Result<()> {
        let connection = Arc::new(Connection { script, next: Mutex::new(Next::Pass) });
        let (from_client, to_upstream) = (client.try_clone()?, upstream.try_clone()?);
        let to_client = client.try_clone()?;
        let answering = Arc::clone(&connection);
        thread::spawn(move || {
            let _ = connection.questions(from_client, to_client, &to_upstream);
            let _ = to_upstream.shutdown(Shutdown::Both);
        });
        thread::spawn(move || {
            let _ = answering.answers(upstream, &client);
            let _ = client.shutdown(Shutdown::Both);
        });
        Ok(())
    }

    fn answers(&self, mut upstream: TcpStream, mut client: &TcpStream) -> std::io::Result<()> {
        loop {
            let (number, body) = read_packet(&mut upstream)?;
            match std::mem::replace(&mut *locked(&self.next), Next::Pass) {
                Next::Pass => write_packet(&mut client, number, &body)?,
                Next::Hand(to) => drop(to.send(body)),
                Next::Instead(other) => write_packet(&mut client, number, &other)?,
                Next::Cut => return Ok(()),
            }
        }
    }

    fn questions(
        &self,
        mut client: TcpStream,
        mut back: TcpStream,
        mut upstream: &TcpStream,
    ) -> std::io::Result<()> {
        loop {
            let (number, mut body) = read_packet(&mut client)?;
            // A command restarts the packet numbers; a client's other packets belong to the handshake.
            let command = if number == 0 { body.first().copied() } else { None };
            if command != Some(QUERY) {
                write_packet(&mut upstream, number, &body)?;
                continue;
            }
            let text = String::from_utf8_lossy(&body[1..]).into_owned();
            if self.counts_and_resets() {
                self.handed(upstream, &[RESET])?;
            }
            if locked(&self.script).for_tidb {
                write_down(std::slice::from_ref(&text));
            }
            let other = self.in_other_words(&text);
            let statements: Vec<&str> = other.split("; ").collect();
            // An answer of several packets is not split.
            if statements.len() > 1 && !statements.iter().any(|statement| statement.starts_with("SELECT ")) {
                if !self.one_by_one(&statements, &mut back, upstream)? {
                    return Ok(());
                }
                continue;
            }
            body.truncate(1);
            body.extend(other.into_bytes());
            let answer = self.answer_to(&text);
            let (done, packet) = match answer {
                None => (true, None),
                Some(Answer::Refused(code, message)) => (false, Some(error_packet(code, message))),
                Some(Answer::DoneBut(code, message)) => (true, Some(error_packet(code, message))),
                Some(Answer::Ok(rows, id)) => (false, Some(ok_packet(rows, id))),
                Some(Answer::DoneWith(rows, id)) => (true, Some(ok_packet(rows, id))),
                Some(Answer::Cut) => return Ok(()),
                Some(Answer::DoneAndCut) => {
                    *locked(&self.next) = Next::Cut;
                    (true, None)
                }
                Some(Answer::Silence(pause)) => {
                    thread::sleep(pause);
                    return Ok(());
                }
            };
            match (done, packet) {
                (true, None) => write_packet(&mut upstream, number, &body)?,
                (true, Some(packet)) => {
                    *locked(&self.next) = Next::Instead(packet);
                    write_packet(&mut upstream, number, &body)?;
                }
                // The server is silent between a client's queries, so no other thread writes now.
                (false, Some(packet)) => write_packet(&mut back, 1, &packet)?,
                (false, None) => {}
            }
        }
    }

    fn counts_and_resets(&self) -> bool {
        let mut script = locked(&self.script);
        script.packets += 1;
        std::mem::take(&mut script.reset)
    }

    /// The server's answer, of one packet, to this command.
    fn handed(&self, mut upstream: &TcpStream, command: &[u8]) -> std::io::Result<Vec<u8>> {
        let (to, from) = channel();
        *locked(&self.next) = Next::Hand(to);
        write_packet(&mut upstream, 0, command)?;
        from.recv().map_err(std::io::Error::other)
    }

    /// Sends the statements of one packet one by one, until one fails. `false`: the connection has to break.
    fn one_by_one(
        &self,
        statements: &[&str],
        mut back: &mut TcpStream,
        upstream: &TcpStream,
    ) -> std::io::Result<bool> {
        for (at, statement) in statements.iter().enumerate() {
            let ask = || {
                let mut command = vec![QUERY];
                command.extend(statement.as_bytes());
                self.handed(upstream, &command)
            };
            let mut answer = match self.answer_to(statement) {
                None => ask()?,
                Some(Answer::Refused(code, message)) => error_packet(code, message),
                Some(Answer::DoneBut(code, message)) => {
                    ask()?;
                    error_packet(code, message)
                }
                Some(Answer::Ok(rows, id)) => ok_packet(rows, id),
                Some(Answer::DoneWith(rows, id)) => {
                    ask()?;
                    ok_packet(rows, id)
                }
                Some(Answer::Cut) => return Ok(false),
                Some(Answer::DoneAndCut) => {
                    ask()?;
                    return Ok(false);
                }
                Some(Answer::Silence(pause)) => {
                    thread::sleep(pause);
                    return Ok(false);
                }
            };
            let failed = answer.first() == Some(&0xff);
            if !failed && at + 1 < statements.len() {
                let status = status_of(&answer);
                answer[status] |= MORE_RESULTS;
            }
            write_packet(&mut back, at as u8 + 1, &answer)?;
            if failed {
                break;
            }
        }
        Ok(true)
    }

    fn in_other_words(&self, text: &str) -> String {
        let mut script = locked(&self.script);
        if let Some((part, other)) = script.words_once.take_if(|(part, _)| text.contains(part.as_str())) {
            return text.replace(&part, &other);
        }
        let other = script.words.iter().find(|(part, _)| text.contains(part.as_str()));
        other.map_or_else(|| text.to_owned(), |(part, other)| text.replace(part.as_str(), other))
    }

    fn answer_to(&self, text: &str) -> Option<Answer> {
        let mut script = locked(&self.script);
        script.said.push(text.to_owned());
        let rule = script.rules.iter_mut().find(|rule| rule.times > 0 && text.contains(&rule.part))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        rule.times -= 1;
        Some(rule.answer.clone())
    }
}

/// The protocol's command with a statement, and the one that makes a session what it was at the login.
const QUERY: u8 = 0x03;
const RESET: u8 = 0x1f;

/// In the status of an answer: another answer follows.
const MORE_RESULTS: u8 = 8;

/// The position of the status in an OK packet: after two length-encoded numbers.
fn status_of(packet: &[u8]) -> usize {
    let mut at = 1;
    for _ in 0..2 {
        at += match packet.get(at) {
            Some(0xfc) => 3,
            Some(0xfd) => 4,
            Some(0xfe) => 9,
            _ => 1,
        };
    }
    at
}

/// A packet: three bytes of length, a number that counts from the command on, the body.
fn read_packet(from: &mut TcpStream) -> std::io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let mut body = vec![0; u32::from_le_bytes([head[0], head[1], head[2], 0]) as usize];
    from.read_exact(&mut body)?;
    Ok((head[3], body))
}

fn write_packet(to: &mut impl Write, number: u8, body: &[u8]) -> std::io::Result<()> {
    let length = (body.len() as u32).to_le_bytes();
    let mut packet = vec![length[0], length[1], length[2], number];
    packet.extend(body);
    to.write_all(&packet)
}

fn error_packet(code: u16, message: &str) -> Vec<u8> {
    let mut body = vec![0xff];
    body.extend(code.to_le_bytes());
    body.extend(b"#HY000");
    body.extend(message.as_bytes());
    body
}

/// Two length-encoded numbers (0xfe: eight bytes follow), autocommit, no warnings.
fn ok_packet(rows: u64, id: u64) -> Vec<u8> {
    let mut body = vec![0];
    for number in [rows, id] {
        body.push(0xfe);
        body.extend(number.to_le_bytes());
    }
    body.extend([2, 0, 0, 0]);
    body
}
