//! `next`, `take`, `parse`: ids out, ids in.
//!
//! `take` streams. Numbers come in chunks through `fill` into one buffer that is used again, and leave as one write a
//! chunk. Chunks begin small, so that the first line is there at once and a reader that wants three lines costs few
//! numbers, and double up to the size where a write costs nothing against the digits.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use keymill::serial::MAX_TEXT;
use keymill::{Error, Gene, Kind, Layout, Mill, Result, Source};
use serde_json::{Value, json};

use crate::args::KeyArgs;
use crate::print::{self, Reader};
use crate::signal;

/// Ids of the first and of the largest chunk.
const CHUNK: (usize, usize) = (1024, 64 * 1024);
/// A snowflake's chunk is what its layout makes in a twentieth of a second: a fill is all or none within the deadline.
const CHUNKS_A_SECOND: u64 = 20;
/// Shorter work shows no progress bar.
const SHOW_AFTER: Duration = Duration::from_millis(500);

/// A source whose ids are taken. With `init=max` that may make a row, in a date that decides where the programs go on.
///
/// # Errors
/// As [`Mill::source`], and [`Source::check_zone_is_written`].
pub fn source(mill: &Mill, spec: &str) -> Result<Source> {
    let source = mill.source(spec)?;
    if source.reads_business_table() {
        source.check_zone_is_written()?;
    }
    Ok(source)
}

/// The gene of a key on the command line; `None`: there is no key.
///
/// # Errors
/// `INVALID_ARGUMENT` for an integer that has no 64 bits, and for a text of more than 64 KiB.
pub fn gene(key: &KeyArgs) -> Result<Option<Gene>> {
    match (key.key, &key.key_text) {
        (Some(number), _) => {
            let negative = || i64::try_from(number).map(|number| number as u64);
            let number = u64::try_from(number).or_else(|_| negative()).map_err(|_| {
                Error::argument(format!(
                    "{number} is no key: an integer key has 64 bits, from -9223372036854775808 to 18446744073709551615"
                ))
            })?;
            Ok(Some(Gene::of_number(number)))
        }
        (None, Some(text)) => Gene::of(text).map(Some),
        (None, None) => Ok(None),
    }
}

/// Whether `text=` or `prefix=` says how ids are written.
fn has_form(source: &Source) -> bool {
    source.settings().iter().any(|(name, _)| *name == "text")
}

/// An id and its text.
fn both(id: u64, text: &str) -> Value {
    json!({ "id": id.to_string(), "text": text })
}

/// One id.
pub fn next(source: &Source, gene: Option<Gene>, json: bool) -> Result<()> {
    if has_form(source) {
        let id = match gene {
            None => source.next()?,
            Some(gene) => source.next_of(gene)?,
        };
        let text = source.text_of(id)?;
        return if json { print::json(&both(id, &text)) } else { print::text(&format!("{text}\n")) };
    }
    let id = match gene {
        None => source.next_text()?,
        Some(gene) if source.is_wide() => source.next_wide_of(gene)?.to_string(),
        Some(gene) => source.next_of(gene)?.to_string(),
    };
    if json { print::json(&Value::from(id)) } else { print::text(&format!("{id}\n")) }
}

/// What an id is made of.
pub fn parse(source: &Source, id: &str, json: bool) -> Result<()> {
    print::fields(json, &source.parse_text(id)?.fields())
}

/// `count` ids, one a line; a JSON array with `json`.
pub fn take(source: &Source, gene: Option<Gene>, count: u64, json: bool) -> Result<()> {
    signal::listen();
    let mut stream = Stream::new(source, gene, count, json);
    let answer = stream.run();
    stream.progress.finish();
    let closing = stream.close(answer.is_ok());
    answer.and(closing)
}

/// A `take` under way.
struct Stream<'a> {
    source: &'a Source,
    gene: Option<Gene>,
    left: u64,
    chunk: usize,
    largest_chunk: usize,
    ids: Vec<u64>,
    /// What the next write takes.
    text: Vec<u8>,
    json: bool,
    has_form: bool,
    /// The array's opening bracket has been written.
    begun: bool,
    reader: Reader,
    progress: Progress,
}

impl<'a> Stream<'a> {
    fn new(source: &'a Source, gene: Option<Gene>, count: u64, json: bool) -> Self {
        let largest_chunk = largest_chunk(source);
        Stream {
            source,
            gene,
            left: count,
            chunk: CHUNK.0.min(largest_chunk),
            largest_chunk,
            ids: Vec::new(),
            text: Vec::new(),
            json,
            has_form: has_form(source),
            begun: false,
            reader: Reader::Listens,
            progress: Progress::new(count),
        }
    }

    fn run(&mut self) -> Result<()> {
        let texts = self.source.kind() == Kind::Serial;
        while self.left > 0 && self.reader == Reader::Listens && signal::exit_code().is_none() {
            let wanted = usize::try_from(self.left).map_or(self.chunk, |left| left.min(self.chunk));
            let (got, answer) = match self.gene {
                Some(gene) => self.business(gene, wanted),
                None if texts => self.texts(wanted),
                None => self.numbers(wanted),
            };
            // What was taken is written even where the rest could not be had: an id that is not printed is lost.
            self.write()?;
            answer?;
            self.left -= got as u64;
            self.progress.at(self.left);
            self.chunk = (self.chunk * 2).min(self.largest_chunk);
        }
        Ok(())
    }

    /// A chunk of numbers: all or none.
    fn numbers(&mut self, wanted: usize) -> (usize, Result<()>) {
        self.ids.resize(wanted, 0);
        if let Err(error) = self.source.fill(&mut self.ids) {
            return (0, Err(error));
        }
        (wanted, self.append())
    }

    /// Appends the numbers that were taken, in the form of the source.
    fn append(&mut self) -> Result<()> {
        if !self.has_form {
            let (head, tail): (&[u8], &[u8]) = if self.json { (b"\"", b"\",\n") } else { (b"", b"\n") };
            let mut digits = itoa::Buffer::new();
            for id in &self.ids {
                for part in [head, digits.format(*id).as_bytes(), tail] {
                    self.text.extend_from_slice(part);
                }
            }
            return Ok(());
        }
        for id in &self.ids {
            let text = self.source.text_of(*id)?;
            let line = if self.json { format!("{},\n", both(*id, &text)) } else { format!("{text}\n") };
            self.text.extend_from_slice(line.as_bytes());
        }
        Ok(())
    }

    /// A chunk of business ids of a key: all or none.
    fn business(&mut self, gene: Gene, wanted: usize) -> (usize, Result<()>) {
        if !self.source.is_wide() {
            self.ids.resize(wanted, 0);
            if let Err(error) = self.source.fill_of(gene, &mut self.ids) {
                return (0, Err(error));
            }
            return (wanted, self.append());
        }
        let mut ids = vec![0_u128; wanted];
        if let Err(error) = self.source.fill_wide_of(gene, &mut ids) {
            return (0, Err(error));
        }
        let (quote, end) = if self.json { ("\"", ",") } else { ("", "") };
        for id in ids {
            self.text.extend_from_slice(format!("{quote}{id}{quote}{end}\n").as_bytes());
        }
        (wanted, Ok(()))
    }

    /// A chunk of serial numbers.
    fn texts(&mut self, wanted: usize) -> (usize, Result<()>) {
        let mut text = [0; MAX_TEXT];
        for got in 0..wanted {
            let serial = match self.source.write_text(&mut text) {
                Ok(len) => text.get(..len).unwrap_or_default(),
                Err(error) => return (got, Err(error)),
            };
            if self.json {
                // A date pattern may hold quotes of its own.
                let quoted = Value::from(String::from_utf8_lossy(serial)).to_string();
                self.text.extend_from_slice(quoted.as_bytes());
                self.text.extend_from_slice(b",\n");
            } else {
                self.text.extend_from_slice(serial);
                self.text.push(b'\n');
            }
        }
        (wanted, Ok(()))
    }

    /// Writes what is in `text`. The comma after a chunk is written when another chunk follows.
    fn write(&mut self) -> Result<()> {
        if self.text.is_empty() {
            return Ok(());
        }
        if self.json {
            let before: &[u8] = if self.begun { b",\n" } else { b"[" };
            self.begun = true;
            self.reader = print::out(before)?;
            self.text.truncate(self.text.len() - 2);
        }
        if self.reader == Reader::Listens {
            self.reader = print::out(&self.text)?;
        }
        self.text.clear();
        Ok(())
    }

    /// Ends the array, also where an error cut it short: what was written is valid JSON.
    fn close(&self, went_well: bool) -> Result<()> {
        if !self.json || self.reader == Reader::Gone {
            return Ok(());
        }
        match (self.begun, went_well) {
            (true, _) => print::text("]\n"),
            (false, true) => print::text("[]\n"),
            // Nothing was said, so there is nothing to end.
            (false, false) => Ok(()),
        }
    }
}

fn largest_chunk(source: &Source) -> usize {
    let settings = source.settings();
    let setting = |wanted: &str| settings.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value);
    let layout = setting("layout").and_then(|text| Layout::parse(text, setting("epoch")?).ok());
    layout.map_or(CHUNK.1, |layout| {
        let ids = (layout.ids_per_second() / CHUNKS_A_SECOND).max(1);
        usize::try_from(ids).map_or(CHUNK.1, |ids| ids.min(CHUNK.1))
    })
}

/// A bar on a terminal's standard error, for what lasts. Never beside ids on the same terminal.
struct Progress {
    count: u64,
    since: Instant,
    possible: bool,
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(count: u64) -> Self {
        let possible = std::io::stderr().is_terminal() && !std::io::stdout().is_terminal();
        Progress { count, since: Instant::now(), possible, bar: None }
    }

    fn at(&mut self, left: u64) {
        let elapsed = self.since.elapsed();
        if !self.possible || elapsed < SHOW_AFTER {
            return;
        }
        let done = self.count - left;
        // Over the whole run: chunks come in bursts, whose momentary speed says nothing.
        let seconds = elapsed.as_secs_f64() / done.max(1) as f64 * left as f64;
        let bar = self.bar.get_or_insert_with(|| bar(self.count));
        bar.set_message(format!("{seconds:.0} s left"));
        bar.set_position(done);
    }

    fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(count: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(count), ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {human_pos} of {human_len}  {msg}") {
        bar.set_style(style);
    }
    bar
}
