//! A server that speaks the protocol of Redis and gives the answers of a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Maps a command, with its first word in upper case, to the bytes of its answer.
type Answers = dyn Fn(&[String]) -> String + Send + Sync;

/// The state that [`Fake`] and its threads share.
struct Shared {
    answers: Box<Answers>,
    accepted: AtomicUsize,
    open: Mutex<Vec<TcpStream>>,
}

/// The server; its connections end with it.
pub struct Fake {
    port: u16,
    shared: Arc<Shared>,
    listens: Option<JoinHandle<()>>,
}

pub fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

pub fn array(words: &[&str]) -> String {
    words.iter().fold(format!("*{}\r\n", words.len()), |text, word| text + &bulk(word))
}

impl Fake {
    pub fn start(answers: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (accepted, open) = (AtomicUsize::new(0), Mutex::default());
        let shared = Arc::new(Shared { answers: Box::new(answers), accepted, open });
        let of_thread = Arc::clone(&shared);
        let listens = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut first = [0];
                if stream.peek(&mut first).unwrap_or(0) == 0 || first[0] == b'\0' {
                    return;
                }
                // ordering: Relaxed — a count, nothing hangs on it.
                of_thread.accepted.fetch_add(1, Ordering::Relaxed);
                of_thread.open.lock().unwrap().push(stream.try_clone().unwrap());
                let shared = Arc::clone(&of_thread);
                std::thread::spawn(move || while serve(&stream, &shared).is_some() {});
            }
        });
        Fake { port, shared, listens: Some(listens) }
    }

    pub fn place(&self) -> (String, u16) {
        ("127.0.0.1".to_owned(), self.port)
    }

    /// How many connections were opened and used.
    pub fn accepted(&self) -> usize {
        // ordering: Relaxed — a count, nothing hangs on it.
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Closes every connection, like a restarted server.
    pub fn hang_up(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.hang_up();
        // Wakes the listening thread so that it ends.
        if let Ok(mut last) = TcpStream::connect(("127.0.0.1", self.port)) {
            let _ = last.write_all(b"\0");
        }
        if let Some(listens) = self.listens.take() {
            let _ = listens.join();
        }
    }
}

/// Reads commands until the connection ends, and answers each.
fn serve(stream: &TcpStream, shared: &Shared) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    loop {
        let count = header(&mut reader, '*')?;
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let mut word = vec![0; header(&mut reader, '$')? + 2];
            reader.read_exact(&mut word).ok()?;
            words.push(String::from_utf8_lossy(&word[..word.len() - 2]).into_owned());
        }
        words[0].make_ascii_uppercase();
        writer.write_all((shared.answers)(&words).as_bytes()).ok()?;
    }
}

fn header(reader: &mut impl BufRead, kind: char) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.strip_prefix(kind)?.trim_end().parse().ok()
}
