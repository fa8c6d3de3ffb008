//! The waist: every language translates these verbs and nothing else. (floor 4)
//!
//! One door: is this process a fork (a word the kernel wipes) → is the mill closed → the verb → count the error.
//! Types that cross are plain: `u64`, UTF-8 text, buffers of the caller, an opaque mill and source. Configuration
//! crosses as one string, so no language can forget an option.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crate::block::{self, Block};
use crate::config::MillConfig;
use crate::error::{Code, Error, Result, shown};
use crate::events::Event;
use crate::metrics::{self, Stats};
use crate::mill::{SharedMill, SharedSource, Way};
use crate::reservation::{Key, Mark};
use crate::segment::{Miss, Taken};
use crate::serial::{MAX_TEXT, Prefix, SerialPattern, write_number, write_serial};
use crate::spec::{Body, Order, Spec};
use crate::store::{Facts, Row};
use crate::time::Clock;
use crate::well::{Spring, Tally, Well};

/// The version of keymill, the same in every language.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An engine that hands out identifiers: one configuration, one background thread, any number of sources.
///
/// Copies are one mill. It closes when [`Mill::close`] is called or the last copy, sources included, is gone.
///
/// ```
/// let mill = keymill::Mill::open("memory:")?;
/// let orders = mill.source("segment:orders")?;
/// assert_eq!(orders.next()?, 1);
/// assert_eq!(orders.take(3)?, [2, 3, 4]);
/// # Ok::<(), keymill::Error>(())
/// ```
#[derive(Clone)]
pub struct Mill {
    shared: Arc<SharedMill>,
}

impl fmt::Debug for Mill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mill").field("store", &self.shared.config.store.shown()).finish_non_exhaustive()
    }
}

impl Mill {
    /// Opens a mill from one string: `sqlite:FILE`, `memory:`, `mysql://user:password@host:port/database`, or
    /// `file:CONFIG.toml`. An empty string is `sqlite:keymill.db`. Nothing is connected until a source needs it, so a
    /// store that is down does not keep a program from starting.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: what is wrong and what is valid.
    pub fn open(config: &str) -> Result<Mill> {
        let shared = SharedMill::open(MillConfig::parse(config)?)?;
        Ok(Mill { shared: Arc::new(shared) })
    }

    /// Opens the mill that `KEYMILL_CONFIG` names, else `sqlite:keymill.db`.
    ///
    /// # Errors
    /// As [`Mill::open`].
    pub fn open_default() -> Result<Mill> {
        match std::env::var(crate::config::MILL_VARIABLE) {
            Ok(config) => Mill::open(&config),
            Err(std::env::VarError::NotPresent) => Mill::open(""),
            // The default instead would count from another row.
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(Error::config(format!("{} is not UTF-8", crate::config::MILL_VARIABLE)))
            }
        }
    }

    /// A source, named by one string: `segment:orders?step=1000`, `snowflake:tx?worker=5`,
    /// `serial:cust_info/custid?date=yyyyMMdd&number=000000`. Asking again gives the same source.
    ///
    /// # Errors
    /// `INVALID_CONFIG` with the valid kinds, options or values; `LAYOUT_ENDED`; `CLOSED`.
    pub fn source(&self, spec: &str) -> Result<Source> {
        let spec = self.shared.config.spec(spec)?;
        let shared = SharedSource::open(&self.shared, spec)?;
        Ok(Source { shared: Arc::new(shared) })
    }

    /// Closes for good: every later call answers `CLOSED`; what nobody used goes back to the store where it can.
    /// Closing twice is nothing.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Whether the mill was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.engine().is_ok_and(crate::mill::Engine::is_closed)
    }

    /// Every figure as Prometheus text.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.shared.engine().map_or_else(|_| String::new(), |e| metrics::render(&e.tally, &e.all_stats()))
    }

    /// Every open source's figures, by name.
    #[must_use]
    pub fn stats(&self) -> Vec<Stats> {
        self.shared.engine().map_or_else(|_| Vec::new(), crate::mill::Engine::all_stats)
    }

    /// Takes the events that happened since the last call; at most the last 256 are kept.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.shared.engine().map_or_else(|_| Vec::new(), |e| e.events.drain())
    }

    /// Takes the oldest event that nobody has taken yet, for callers with room for one at a time.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        self.shared.engine().ok()?.events.pop()
    }

    /// The store as it may be shown: never a user or a password.
    #[must_use]
    pub fn store(&self) -> String {
        self.shared.config.store.shown()
    }

    /// The sources a TOML file declares.
    #[must_use]
    pub fn declared(&self) -> Vec<String> {
        self.shared.config.sources.keys().cloned().collect()
    }

    /// What the store says about itself: dialect, version, durability.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_REFUSED`, `CLOSED`.
    pub fn facts(&self) -> Result<Facts> {
        self.shared.engine()?.errand(|store| store.facts())
    }

    /// Creates what these sources need in the store; with none, keymill's own table. Answers with the statements;
    /// `dry_run` only answers. What exists is left alone.
    ///
    /// # Errors
    /// `INVALID_CONFIG` for a bad spec, `STORE_UNAVAILABLE`, `STORE_REFUSED` (a missing right, a table of another shape).
    pub fn init(&self, specs: &[&str], dry_run: bool) -> Result<Vec<String>> {
        let mut keys = Vec::new();
        for spec in specs {
            keys.push(self.shared.config.spec(spec)?.key);
        }
        if keys.is_empty() {
            keys.push(self.shared.config.spec("segment:keymill")?.key);
        }
        self.shared.engine()?.errand(move |store| store.init(&keys, dry_run))
    }

    /// Moves a manual clock (`clock=manual`) forward by milliseconds.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` on a mill that runs on the machine's clock.
    pub fn advance_clock(&self, ms: u64) -> Result<()> {
        self.with_manual_clock(|clock| clock.advance(ms))
    }

    /// Sets a manual clock's wall time, in milliseconds since 1970, in either direction.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` on a mill that runs on the machine's clock.
    pub fn set_clock(&self, wall_ms: i64) -> Result<()> {
        self.with_manual_clock(|clock| clock.set_wall(wall_ms))
    }

    fn with_manual_clock(&self, move_it: impl FnOnce(&crate::time::ManualClock)) -> Result<()> {
        match self.shared.clock() {
            Clock::Manual(clock) => {
                move_it(clock);
                self.shared.engine()?.clock_moved()
            }
            Clock::System => {
                Err(Error::argument("this mill runs on the machine's clock; open it with clock=manual"))
            }
        }
    }
}

/// What an id or a serial number is made of. Parts that its kind does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parts {
    /// When a snowflake was made: milliseconds since 1970.
    pub time_ms: Option<i64>,
    /// A snowflake's worker.
    pub worker: Option<u64>,
    /// A snowflake's sequence.
    pub sequence: Option<u64>,
    /// A serial number's date part.
    pub date: Option<String>,
    /// A segment id, or the number of a serial.
    pub number: Option<u64>,
}

impl Parts {
    /// The parts as `name, value`, in the order people read them; time as RFC 3339.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        if let Some(ms) = self.time_ms {
            fields.push(("time", crate::snowflake::layout::rfc3339(ms)));
        }
        let texts = [
            ("worker", self.worker.map(|n| n.to_string())),
            ("sequence", self.sequence.map(|n| n.to_string())),
            ("date", self.date.clone()),
            ("number", self.number.map(|n| n.to_string())),
        ];
        fields.extend(texts.into_iter().filter_map(|(name, value)| Some((name, value?))));
        fields
    }
}

/// Numbers leased to the caller alone, with the word that revokes them: all a language needs to count by itself.
///
/// A number of `lo..hi` may be issued while `word` reads `leased_at`: one plain load. Once it reads anything else the
/// rest is dropped and a new block leased: the mill was closed, a period ended, or this is a forked child.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// The first number.
    pub lo: u64,
    /// One past the last.
    pub hi: u64,
    /// Readable for ever, whatever becomes of the source.
    pub word: &'static AtomicU64,
    /// What the word read when the block was leased; never 0.
    pub leased_at: u64,
    /// A serial's date part, which belongs to these numbers; empty for the other kinds.
    pub prefix: Prefix,
    /// How many digits a serial's number has at least, zeros in front; 1 for the other kinds.
    pub width: u32,
}

/// What a source hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Numbers.
    Segment,
    /// Numbers made of time, worker and sequence.
    Snowflake,
    /// Texts made of a date part and a number.
    Serial,
}

/// A named generator inside a mill. Copies are one source; any thread may use any copy.
#[derive(Clone)]
pub struct Source {
    shared: Arc<SharedSource>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("spec", &self.spec().text).finish_non_exhaustive()
    }
}

impl Source {
    fn spec(&self) -> &Spec {
        &self.shared.spec
    }

    /// `segment:orders`: kind and name, without options.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.spec().label
    }

    /// Counts an error on its way out; the store that asks for `keymill init` knows a table, only the source its spec.
    #[cold]
    fn failed(&self, mut error: Error) -> Error {
        const INIT: &str = "`keymill init`";
        if error.message.contains(INIT) {
            let spec = self.spec().text.replace('\'', r"'\''");
            error.message = error.message.replace(INIT, &format!("`keymill init '{spec}'`"));
        }
        if let Ok(engine) = self.shared.mill.engine() {
            engine.tally.error(error.code);
        }
        error
    }

    #[cold]
    fn wants_text(&self) -> Error {
        Error::argument(format!(
            "`{}` hands out text, a number without its date would not be unique; use next_text or take_text",
            self.label()
        ))
    }

    /// The well, if this source hands out numbers.
    #[inline]
    fn numbers(&self) -> Result<&Well> {
        if matches!(self.shared.way, Way::SharedText | Way::ThreadText) {
            return Err(self.wants_text());
        }
        self.shared.well()
    }

    /// The next id; waits at most the source's deadline when none is in memory.
    ///
    /// # Errors
    /// `DEADLINE`, `STORE_*`, `EXHAUSTED`, `CLOCK_BEHIND`, `LAYOUT_ENDED`, `CLOSED`, `FORKED`.
    #[expect(
        clippy::inline_always,
        reason = "a call returns the large Result through memory, and a locked instruction waits for every store before it"
    )]
    #[inline(always)]
    pub fn next(&self) -> Result<u64> {
        // Not a `match`: of that the compiler makes a jump table, and the locked instruction waits for the jump.
        let way = self.shared.way;
        if way == Way::Shared {
            let well = self.shared.last_well();
            return match well.quick() {
                Ok(number) if well.is_ours() => Ok(number),
                Ok(_) => self.next_after(None),
                Err(miss) => self.next_after(miss),
            };
        }
        let quick = match way {
            // A block of another process is dead: its word is not what it was.
            Way::Thread => block::quick(self.shared.last_well()),
            Way::Time => self.quick_time(),
            _ => None,
        };
        match quick {
            Some(id) => Ok(id),
            None => self.next_otherwise(),
        }
    }

    /// An id of the generator, quietly, answering in registers.
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    fn quick_time(&self) -> Option<u64> {
        let well = self.shared.last_well();
        if well.is_ours() { well.quick_time() } else { None }
    }

    /// After a miss, or a number that a forked child counted in its parent's well.
    #[cold]
    fn next_after(&self, miss: Option<Miss>) -> Result<u64> {
        let taken = self.well_after(miss).and_then(|(well, miss)| well.lease_after(miss));
        taken.map(|taken| taken.lo).map_err(|e| self.failed(e))
    }

    /// The well of this process, and the miss if it happened there.
    fn well_after(&self, miss: Option<Miss>) -> Result<(&Well, Option<Miss>)> {
        let well = self.shared.last_well();
        if well.is_ours() { Ok((well, miss)) } else { Ok((self.shared.well()?, None)) }
    }

    #[cold]
    fn next_otherwise(&self) -> Result<u64> {
        let id = self.numbers().and_then(|well| match self.shared.way {
            Way::Thread => block::next_of_thread(well, |number, _| number),
            _ => well.next(),
        });
        id.map_err(|e| self.failed(e))
    }

    /// The next id if one is in memory; never blocks.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::next`].
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    pub fn try_next(&self) -> Result<u64> {
        if matches!(self.shared.way, Way::Shared | Way::Thread) {
            let well = self.shared.last_well();
            return match well.quick() {
                Ok(number) if well.is_ours() => Ok(number),
                Ok(_) => self.try_next_after(None),
                Err(miss) => self.try_next_after(miss),
            };
        }
        self.numbers().and_then(Well::try_next).map_err(|e| self.failed(e))
    }

    #[cold]
    fn try_next_after(&self, miss: Option<Miss>) -> Result<u64> {
        let taken = self.well_after(miss).and_then(|(well, miss)| well.try_take_after(miss));
        taken.map(|taken| taken.lo).map_err(|e| self.failed(e))
    }

    /// `count` ids: one count instead of `count`, so by far the fastest way to many.
    ///
    /// # Errors
    /// As [`Source::next`]; `INVALID_ARGUMENT` for more than memory holds.
    pub fn take(&self, count: usize) -> Result<Vec<u64>> {
        let mut ids = Vec::new();
        if ids.try_reserve_exact(count).is_err() {
            return Err(self
                .failed(Error::argument(format!("{count} ids do not fit into memory; take them in parts"))));
        }
        ids.resize(count, 0);
        self.fill(&mut ids)?;
        Ok(ids)
    }

    /// Fills a buffer with ids: all of it, or none and an error.
    ///
    /// # Errors
    /// As [`Source::next`].
    pub fn fill(&self, buffer: &mut [u64]) -> Result<()> {
        self.numbers().and_then(|well| well.fill(buffer)).map_err(|e| self.failed(e))
    }

    /// Leases `[lo, hi)`, at least one and at most `count` numbers, to the caller alone. What is not used is lost.
    ///
    /// # Errors
    /// As [`Source::next`]; `INVALID_ARGUMENT` for a count of 0 and for snowflakes.
    pub fn lease(&self, count: u64) -> Result<(u64, u64)> {
        if count == 0 {
            return Err(self.failed(Error::argument("a lease of 0 numbers; ask for at least 1")));
        }
        let taken = self.numbers().and_then(|well| well.lease(count)).map_err(|e| self.failed(e))?;
        Ok((taken.lo, taken.hi))
    }

    /// Leases at most `count` numbers (0: as many as the source's `block=` says) for a cursor of the caller's own. A
    /// snowflake gives one id, so that a cursor works on every source of numbers.
    ///
    /// # Errors
    /// As [`Source::next`].
    pub fn lease_block(&self, count: u64) -> Result<Lease> {
        let leased = self.numbers().and_then(|well| {
            let word = well.word();
            // Read before the lease: a revocation that comes between kills the block.
            let leased_at = word.get();
            let (lo, hi) = match well.spring {
                Spring::Numbers(_) => {
                    let taken = well.lease(if count == 0 { well.spec.block } else { count })?;
                    (taken.lo, taken.hi)
                }
                Spring::Time { .. } => well.next().map(|id| (id, id + 1))?,
            };
            Ok(Lease { lo, hi, word: word.shared(), leased_at, prefix: Prefix::EMPTY, width: 1 })
        });
        leased.map_err(|e| self.failed(e))
    }

    /// Leases at most `count` numbers (0: as many as the source's `block=` says) without waiting, for a language that
    /// counts, makes texts and waits by itself. `enough` is how many must be in memory before any is taken, so that a
    /// batch costs no numbers while its store is down. A serial's numbers come with the date part they belong to.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::next`]; [`Source::patience`] judges them. `INVALID_ARGUMENT` for
    /// snowflakes.
    pub fn try_lease(&self, count: u64, enough: u64) -> Result<Lease> {
        let leased = self.shared.well().and_then(|well| {
            let word = well.word();
            let width = self.spec().pattern().map_or(1, SerialPattern::width);
            let count = if count == 0 { well.spec.block } else { count };
            loop {
                // Read before the lease: a revocation that comes between kills the block.
                let leased_at = word.get();
                let taken = well.try_take_enough(count, enough.min(count))?;
                let prefix =
                    if self.kind() == Kind::Serial { well.prefix(&taken) } else { Some(Prefix::EMPTY) };
                if let Some(prefix) = prefix {
                    return Ok(Lease {
                        lo: taken.lo,
                        hi: taken.hi,
                        word: word.shared(),
                        leased_at,
                        prefix,
                        width,
                    });
                }
                // The period ended between the count and the look: nobody gets these numbers.
                Tally::add(&well.tally.lost, taken.len());
            }
        });
        leased.map_err(|e| self.failed(e))
    }

    /// What a caller that waits in its own way does after a `try_` verb was refused, having waited `waited` in all: the
    /// pause before the next try, or the error to give up with. (`CLOSED`, `EXHAUSTED` and their like come back at once,
    /// `NOT_READY` becomes `DEADLINE` at the deadline.)
    ///
    /// # Errors
    /// `refusal`, or `DEADLINE`.
    pub fn patience(&self, refusal: Error, waited: Duration) -> Result<Duration> {
        self.shared.well().and_then(|well| well.patience(refusal, waited))
    }

    /// Begins a batch of `count` ids or texts that a language waits for in its own way; see [`Pending::poll`].
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for more than memory holds.
    pub fn ask(&self, count: usize) -> Result<Pending> {
        Pending::new(self.clone(), count).map_err(|e| self.failed(e))
    }

    /// What this source hands out.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.shared.way {
            Way::Shared | Way::Thread => Kind::Segment,
            Way::Time => Kind::Snowflake,
            Way::SharedText | Way::ThreadText => Kind::Serial,
        }
    }

    /// Whether each thread counts through a block of its own (`order=thread`).
    #[must_use]
    pub fn by_thread(&self) -> bool {
        self.spec().order == Order::Thread
    }

    /// How long a call may wait.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.spec().deadline
    }

    /// How many numbers a thread or a handle leases at a time (`block=`), which bounds what it can lose.
    #[must_use]
    pub fn block(&self) -> u64 {
        self.spec().block
    }

    /// Whether numbers in memory may end by themselves: a period ends, or they outlive `ttl`. Where not, only a close
    /// revokes a [`Lease`] (and a fork): a language that sees every close itself need not compare the word.
    #[must_use]
    pub fn expires(&self) -> bool {
        let spec = self.spec();
        // The period of a pattern without a date is 0 at any time.
        spec.rules.ttl_ms.is_some() || spec.pattern().is_some_and(|pattern| pattern.period_at(0) != 0)
    }

    /// The same for every copy of one source, and for no other source of this process: a language that keeps a cursor
    /// of its own keeps one per identity. 0 where the mill is closed or this process is its fork.
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.shared.well().map_or(0, |well| well.id)
    }

    /// The next serial number as text; the decimal id for the other kinds.
    ///
    /// # Errors
    /// As [`Source::next`], and `NUMBER_OVERFLOW`.
    pub fn next_text(&self) -> Result<String> {
        let mut buffer = [0; MAX_TEXT];
        let len = self.write_next(&mut buffer)?;
        Ok(ascii(&buffer[..len]).to_owned())
    }

    /// Appends the next serial number to `out`; allocates only if `out` must grow.
    ///
    /// # Errors
    /// As [`Source::next_text`]; `out` is unchanged then.
    pub fn push_text(&self, out: &mut String) -> Result<()> {
        let mut buffer = [0; MAX_TEXT];
        let len = self.write_next(&mut buffer)?;
        out.push_str(ascii(&buffer[..len]));
        Ok(())
    }

    /// Writes the next serial number into `buffer` and answers with its length. No number is spent on a buffer that is
    /// too small.
    ///
    /// # Errors
    /// As [`Source::next_text`]; `BUFFER_TOO_SMALL` for a buffer shorter than [`Source::text_len`].
    #[inline]
    pub fn write_text(&self, buffer: &mut [u8]) -> Result<usize> {
        self.check_room(buffer.len())?;
        self.write_next(buffer)
    }

    /// The next text into a buffer that has room for it.
    #[inline]
    fn write_next(&self, buffer: &mut [u8]) -> Result<usize> {
        let Some(pattern) = self.spec().pattern() else { return self.write_decimal(buffer, self.next()?) };
        let width = pattern.width();
        let written = if self.shared.way == Way::ThreadText {
            let well = self.shared.well().map_err(|e| self.failed(e))?;
            block::next_of_thread(well, |number, prefix| write_serial(buffer, prefix, number, width))
                .map_err(|e| self.failed(e))?
        } else {
            let well = self.shared.last_well();
            let (number, prefix) = match well.quick_dated() {
                Ok(serial) if well.is_ours() => serial,
                Ok(_) => self.dated_after(None, Well::lease_after)?,
                Err(miss) => self.dated_after(miss, Well::lease_after)?,
            };
            write_serial(buffer, &prefix, number, width)
        };
        self.fitted(written)
    }

    /// A number with the date part that belongs to it, after a miss; `take` waits for it, or does not.
    #[cold]
    fn dated_after(
        &self,
        miss: Option<Miss>,
        take: impl Fn(&Well, Option<Miss>) -> Result<Taken>,
    ) -> Result<(u64, Prefix)> {
        let serial = self.well_after(miss).and_then(|(well, mut miss)| {
            loop {
                let taken = take(well, miss.take())?;
                match well.prefix(&taken) {
                    Some(prefix) => return Ok((taken.lo, prefix)),
                    // The period ended between the count and the look: nobody gets this number.
                    None => Tally::add(&well.tally.lost, 1),
                }
            }
        });
        serial.map_err(|e| self.failed(e))
    }

    fn write_decimal(&self, buffer: &mut [u8], id: u64) -> Result<usize> {
        self.fitted(write_number(buffer, id, 1))
    }

    #[inline]
    fn fitted(&self, written: Option<usize>) -> Result<usize> {
        #[cold]
        fn too_long(source: &Source) -> Error {
            source.failed(Error::new(Code::Internal, "a serial number did not fit a buffer of its length"))
        }
        written.ok_or_else(|| too_long(self))
    }

    /// [`Source::write_text`] if a number is in memory; never blocks.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::write_text`].
    pub fn try_write_text(&self, buffer: &mut [u8]) -> Result<usize> {
        self.check_room(buffer.len())?;
        let Some(pattern) = self.spec().pattern() else {
            return self.write_decimal(buffer, self.try_next()?);
        };
        let well = self.shared.last_well();
        let (number, prefix) = match well.quick_dated() {
            Ok(serial) if well.is_ours() => serial,
            Ok(_) => self.dated_after(None, Well::try_take_after)?,
            Err(miss) => self.dated_after(miss, Well::try_take_after)?,
        };
        self.fitted(write_serial(buffer, &prefix, number, pattern.width()))
    }

    /// The next serial number if one is in memory; never blocks.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::next_text`].
    pub fn try_next_text(&self) -> Result<String> {
        let mut buffer = [0; MAX_TEXT];
        let len = self.try_write_text(&mut buffer)?;
        Ok(ascii(&buffer[..len]).to_owned())
    }

    /// `count` texts: all of them, or an error. In process order whole runs of numbers are taken at once.
    ///
    /// # Errors
    /// As [`Source::next_text`]; `INVALID_ARGUMENT` for more than memory holds.
    pub fn take_text(&self, count: usize) -> Result<Vec<String>> {
        let mut texts = Vec::new();
        if texts.try_reserve_exact(count).is_err() {
            return Err(self.failed(Error::argument(format!(
                "{count} texts do not fit into memory; take them in parts"
            ))));
        }
        match self.spec().pattern() {
            Some(pattern) if self.shared.way == Way::SharedText => {
                let mut buffer = [0; MAX_TEXT];
                let taken = self.shared.well().and_then(|well| {
                    well.take_dated(count as u64, |numbers, prefix| {
                        texts.extend(numbers.map(|number| {
                            let len = write_serial(&mut buffer, prefix, number, pattern.width()).unwrap_or(0);
                            ascii(&buffer[..len]).to_owned()
                        }));
                    })
                });
                taken.map_err(|e| self.failed(e))?;
            }
            _ => {
                for _ in 0..count {
                    texts.push(self.next_text()?);
                }
            }
        }
        Ok(texts)
    }

    #[inline]
    fn check_room(&self, room: usize) -> Result<()> {
        if room >= self.shared.text_len { Ok(()) } else { Err(self.too_small(room)) }
    }

    #[cold]
    fn too_small(&self, room: usize) -> Error {
        let needed = self.shared.text_len;
        self.failed(Error::new(
            Code::BufferTooSmall,
            format!("a text of `{}` needs {needed} bytes, the buffer has {room}", self.label()),
        ))
    }

    /// The most bytes a text of this source can have.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.shared.text_len
    }

    /// A handle that counts through blocks of its own: the fastest loop, for one thread at a time. Ids rise within it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { source: self.clone(), block: Block::EMPTY }
    }

    /// Takes an id apart.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a number this source cannot have made.
    pub fn parse(&self, id: u64) -> Result<Parts> {
        match &self.spec().body {
            Body::Serial { .. } => Err(self.failed(self.wants_text())),
            Body::Segment if id == 0 || id > crate::reservation::MAX_NUMBER => {
                Err(self.failed(Error::argument(format!(
                    "{id} is no id of `{}`: ids lie from 1 to 9223372036854775807",
                    self.label()
                ))))
            }
            Body::Segment => Ok(Parts { number: Some(id), ..Parts::default() }),
            Body::Snowflake { layout, .. } => {
                let parts = layout.read(id).map_err(|e| self.failed(e))?;
                Ok(Parts {
                    time_ms: Some(layout.wall_ms_of(parts.tick)),
                    worker: Some(parts.worker),
                    sequence: Some(parts.seq),
                    ..Parts::default()
                })
            }
        }
    }

    /// Takes a text apart: a serial number, or an id in decimal.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a text this source cannot have made.
    pub fn parse_text(&self, text: &str) -> Result<Parts> {
        let Some(pattern) = self.spec().pattern() else {
            let id = text.parse().map_err(|_| {
                self.failed(Error::argument(format!(
                    "`{}` is not an id: write it in decimal digits",
                    shown(text)
                )))
            })?;
            return self.parse(id);
        };
        match pattern.split(text) {
            Some((period, number)) => Ok(Parts {
                date: Some(pattern.prefix(period).as_str().to_owned()),
                number: Some(number),
                ..Parts::default()
            }),
            None => Err(self.failed(Error::argument(format!(
                "`{}` does not fit date={} number={}",
                shown(text),
                pattern.date_pattern(),
                pattern.number_pattern()
            )))),
        }
    }

    /// What the source is, as `name, value`, every default filled in: scheme, table, step, layout …
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        self.spec().settings()
    }

    /// This source's figures.
    ///
    /// # Errors
    /// `FORKED`, `CLOSED`.
    pub fn stats(&self) -> Result<Stats> {
        let well = self.shared.well()?;
        Ok(crate::mill::Engine::stats(well))
    }

    /// What the store's row says; `None` where there is none yet.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_REFUSED`, `CLOSED`.
    pub fn row(&self) -> Result<Option<Row>> {
        let key = self.key();
        self.shared.mill.engine()?.errand(move |store| store.look(&key)).map_err(|e| self.failed(e))
    }

    /// Raises the store's row so that `next` is the next number; never lowers it. Answers with the row before and
    /// after. With `dry_run` nothing is written, and "after" is what would be.
    ///
    /// # Errors
    /// `STORE_REFUSED` where the row stands higher, `STORE_UNAVAILABLE`, `INVALID_ARGUMENT`.
    pub fn repair(&self, next: u64, dry_run: bool) -> Result<(Option<Row>, Option<Row>)> {
        if next == 0 || next > self.spec().last {
            return Err(self.failed(Error::argument(format!(
                "{next} cannot be the next number of `{}`; give one from 1 to {}",
                self.label(),
                self.spec().last
            ))));
        }
        let period = self.spec().pattern().map_or(0, |p| p.period_at(self.shared.mill.clock().wall_ms()));
        let key = self.key();
        let to = Mark { period, next };
        let answer = self.shared.mill.engine()?.errand(move |store| {
            if dry_run {
                let before = store.look(&key)?;
                let after = crate::store::repaired(&key, before.as_ref(), to).map_err(|mut fault| {
                    fault.message = format!("repairing `{}` would fail: {}", key.name, fault.message);
                    fault
                })?;
                return Ok((before, Some(after)));
            }
            let (before, after) = store.repair(&key, to)?;
            Ok((before, Some(after)))
        });
        answer.map_err(|e| self.failed(e))
    }

    fn key(&self) -> Arc<Key> {
        self.spec().key.clone()
    }

    /// The mill this source belongs to.
    #[must_use]
    pub fn mill(&self) -> Mill {
        Mill { shared: self.shared.mill.clone() }
    }

    /// Ids without end; an error ends the iteration after it was given.
    pub fn iter(&self) -> Iter {
        Iter { handle: self.handle(), process_order: self.spec().order == Order::Process, ended: false }
    }
}

impl IntoIterator for &Source {
    type Item = Result<u64>;
    type IntoIter = Iter;
    fn into_iter(self) -> Iter {
        self.iter()
    }
}

/// The writers of `serial` write UTF-8 only: a date part that was checked, then digits.
fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Ids of a source without end.
#[derive(Debug)]
pub struct Iter {
    handle: Handle,
    process_order: bool,
    ended: bool,
}

impl Iterator for Iter {
    type Item = Result<u64>;
    #[inline]
    fn next(&mut self) -> Option<Result<u64>> {
        if self.ended {
            return None;
        }
        match if self.process_order { self.handle.source.next() } else { self.handle.next() } {
            Ok(id) => Some(Ok(id)),
            Err(error) => Some(Err(self.end(error))),
        }
    }
}

impl Iter {
    #[cold]
    fn end(&mut self, error: Error) -> Error {
        self.ended = true;
        error
    }
}

/// A batch that a language waits for in its own way: parking, an event loop, a check for signals.
///
/// ```
/// let mill = keymill::Mill::open("memory:")?;
/// let mut batch = mill.source("segment:orders")?.ask(3)?;
/// while let Some(pause) = batch.poll()? {
///     std::thread::sleep(pause);
/// }
/// let mut ids = [0; 3];
/// batch.write(&mut ids);
/// assert_eq!(ids, [1, 2, 3]);
/// # Ok::<(), keymill::Error>(())
/// ```
#[derive(Debug)]
pub struct Pending {
    source: Source,
    since: Instant,
    count: usize,
    lacking: usize,
    /// The identity of the source while this was collected.
    life: u64,
    /// Runs of numbers, a serial's with their date part.
    runs: Vec<(u64, u64, Prefix)>,
    /// A snowflake's ids: the runs of a clock are short.
    ids: Vec<u64>,
}

impl Pending {
    fn new(source: Source, count: usize) -> Result<Pending> {
        let mut ids = Vec::new();
        let fits = source.kind() != Kind::Snowflake || ids.try_reserve_exact(count).is_ok();
        if !fits {
            return Err(Error::argument(format!("{count} ids do not fit into memory; take them in parts")));
        }
        let life = source.identity();
        Ok(Pending { source, since: Instant::now(), count, lacking: count, life, runs: Vec::new(), ids })
    }

    /// Takes what is there. `None`: the batch is complete; `Some`: poll again after this pause. Never blocks.
    ///
    /// # Errors
    /// As [`Source::next`], `DEADLINE` included; what the batch had is lost then.
    pub fn poll(&mut self) -> Result<Option<Duration>> {
        let life = self.source.identity();
        if life != self.life {
            // The process was forked while it waited, and this is the child: what there is belongs to the parent.
            self.runs.clear();
            self.ids.clear();
            (self.lacking, self.life) = (self.count, life);
        }
        while self.lacking > 0 {
            let taken = if self.source.kind() == Kind::Snowflake { self.take_ids() } else { self.take_run() };
            if let Err(refusal) = taken {
                return self.source.patience(refusal, self.since.elapsed()).map(Some);
            }
        }
        Ok(None)
    }

    fn take_run(&mut self) -> Result<()> {
        let lacking = self.lacking as u64;
        let lease = self.source.try_lease(lacking, lacking)?;
        self.lacking -= (lease.hi - lease.lo) as usize;
        self.runs.push((lease.lo, lease.hi, lease.prefix));
        Ok(())
    }

    fn take_ids(&mut self) -> Result<()> {
        let well = self.source.shared.well()?;
        let Spring::Time { generator, .. } = &well.spring else { return Ok(()) };
        let before = self.ids.len();
        self.ids.resize(before + self.lacking, 0);
        let taken = well.try_fill_time(generator, &mut self.ids[before..]);
        self.ids.truncate(before + taken.as_ref().map_or(0, |n| *n));
        self.lacking -= taken.map_err(|e| self.source.failed(e))?;
        Ok(())
    }

    /// The ids of a complete batch of numbers, as many as `out` holds.
    pub fn write(mut self, out: &mut [u64]) {
        let runs = std::mem::take(&mut self.runs);
        let numbers = runs.iter().flat_map(|(lo, hi, _)| *lo..*hi).chain(self.ids.iter().copied());
        for (slot, id) in out.iter_mut().zip(numbers) {
            *slot = id;
        }
    }

    /// The texts of a complete batch: serial numbers, or ids in decimal.
    pub fn texts(mut self, mut with: impl FnMut(&str)) {
        let width = self.source.spec().pattern().map_or(1, SerialPattern::width);
        let mut buffer = [0; MAX_TEXT];
        let ids = self.ids.iter().map(|id| (*id, *id + 1, Prefix::EMPTY));
        for (lo, hi, prefix) in std::mem::take(&mut self.runs).into_iter().chain(ids) {
            for number in lo..hi {
                let len = write_serial(&mut buffer, &prefix, number, width).unwrap_or(0);
                with(ascii(&buffer[..len]));
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Given up: what it had, nobody gets.
        if !self.runs.is_empty()
            && let Ok(well) = self.source.shared.well()
        {
            Tally::add(&well.tally.lost, self.runs.iter().map(|(lo, hi, _)| hi - lo).sum());
        }
    }
}

/// A block owned by whoever holds it: see [`Source::handle`].
#[derive(Debug)]
pub struct Handle {
    source: Source,
    block: Block,
}

impl Handle {
    /// The next id of this handle's block; a new block is leased when it is used up or revoked.
    ///
    /// # Errors
    /// As [`Source::next`].
    #[expect(clippy::should_implement_trait, reason = "the verb has this name in every language")]
    #[expect(
        clippy::inline_always,
        reason = "a call returns the large Result through memory, which is most of the cost"
    )]
    #[inline(always)]
    pub fn next(&mut self) -> Result<u64> {
        match self.block.next() {
            Some(number) => Ok(number),
            None => match self.next_of_time() {
                Some(id) => Ok(id),
                None => self.next_block(),
            },
        }
    }

    /// There are no blocks of time: a snowflake's handle takes ids one by one. A call, so that counting through a block
    /// stays short.
    #[inline(never)]
    fn next_of_time(&self) -> Option<u64> {
        if self.source.shared.way == Way::Time { self.source.quick_time() } else { None }
    }

    #[cold]
    #[inline(never)]
    fn next_block(&mut self) -> Result<u64> {
        let answer = self.source.numbers().and_then(|well| {
            if let Spring::Time { .. } = well.spring {
                return well.next();
            }
            loop {
                self.block.refill(well, well.spec.block)?;
                if let Some(number) = self.block.next() {
                    return Ok(number);
                }
            }
        });
        answer.map_err(|e| self.source.failed(e))
    }

    /// The next serial number of this handle's block, as text.
    ///
    /// # Errors
    /// As [`Source::next_text`].
    pub fn next_text(&mut self) -> Result<String> {
        let Some(pattern) = self.source.spec().pattern() else { return self.next().map(|id| id.to_string()) };
        let width = pattern.width();
        let number = match self.block.next() {
            Some(number) => number,
            None => {
                let refilled = self.source.shared.well().and_then(|well| {
                    loop {
                        self.block.refill(well, well.spec.block)?;
                        if let Some(number) = self.block.next() {
                            return Ok(number);
                        }
                    }
                });
                refilled.map_err(|e| self.source.failed(e))?
            }
        };
        let mut buffer = [0; MAX_TEXT];
        let len = write_serial(&mut buffer, &self.block.prefix, number, width).unwrap_or(0);
        Ok(ascii(&buffer[..len]).to_owned())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Ok(well) = self.source.shared.well() {
            self.block.forget(well);
        }
    }
}
