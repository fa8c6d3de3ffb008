//! What the languages of this repository need beside the public verbs: leases and batches for languages that count, make texts or
//! wait by themselves, and threads that take no signals of the host program.
//!
//! Not for other programs: nothing here is stable, and a new version may change or remove any of it without notice.

use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::bank::{BankSource, narrow, wide};
use crate::callers::counters::Counters;
pub use crate::callers::notifier::Notifier;
use crate::callers::notifier::RegisteredKey;
pub use crate::config::Environment;
use crate::config::StoreConfig;
pub use crate::engine::metrics::labels as metrics_labels;
use crate::engine::{IdPath, SharedMill};
use crate::error::fault::{CommandLine, quoted};
pub use crate::error::printable;
use crate::error::{Code, Error, Result, shown};
use crate::gene::Gene;
use crate::keeper::closing;
use crate::process::revocation::RevocationWord;
pub use crate::process::thread::{quiet_panics, spawn};
use crate::request::reservation::BELIEVED_MS;
pub use crate::request::stride::Stride;
pub use crate::segment::LastBlock;
use crate::segment::{SegmentSource, TakenRange};
use crate::serial::{MAX_TEXT, Prefix, SerialPattern, write_serial};

pub use crate::api::router::read_document;
use crate::api::text::ascii;
use crate::api::{Kind, Mill, OrderNumbers, Parts, Route, Router, Source, StoredRouter, room};
use crate::layout::scatter::Scatter;
use crate::layout::{parse_time, rfc3339};
pub use crate::order_number::{read_text as order_no_bytes, read_text8 as order_no_number};
use crate::order_number::{text_of, text8_of};
#[cfg(all(feature = "moves", any(feature = "mysql", feature = "postgres")))]
pub use crate::shards::{Misuse, NoConnection, ShardAction, ShardAnswer, ShardTables, ShardWrite, Side};
use crate::store::{Scheme, operators_clock_ms};
use crate::system::{self, files, interrupt, symbols};
use crate::text_form::TextForm;

/// A time such as `500ms`, `3s`, `5m`, `1h` or `2d`; `None` for anything else.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    crate::time::duration(text).map(Duration::from_millis)
}

/// From now on `remember` is called with the number of the first signal, or event of the console, that asks this process to end; the
/// second one ends it. `remember` may only do what is safe in a handler of signals.
pub fn remember_interrupt(remember: extern "C" fn(i32)) {
    interrupt::listen(remember);
}

/// A function of this name that the program around this library, or one of its libraries, exports; NULL: there is none. `neighbour` is
/// the address of something in the library that has it.
#[must_use]
pub fn exported(name: &CStr, neighbour: *const c_void) -> *mut c_void {
    symbols::exported(name, neighbour)
}

/// Has this run at the end of the process; the library has to stay loaded until then. `false`: there is no memory.
pub fn at_exit(run: extern "C" fn()) -> bool {
    system::exit::at_exit(run)
}

/// Creates a file that only this user can read.
///
/// # Errors
/// It is there already, or cannot be created.
pub fn create_private(path: &Path) -> io::Result<File> {
    files::create_private(path)
}

/// [`Mill::open`] where the language's threads have environments of their own.
///
/// # Errors
/// As [`Mill::open`].
pub fn open_in(config: &str, environment: &Environment) -> Result<Mill> {
    Mill::open_in(config, environment)
}

/// [`OrderNumbers::from_env`] with what the environment of a language's thread has as `KEYMILL_ORDER_KEYS`.
///
/// # Errors
/// As [`OrderNumbers::from_env`].
pub fn order_numbers_from_variable(keys: Option<String>, tenant: &str, table: &str) -> Result<OrderNumbers> {
    OrderNumbers::from_variable(keys.ok_or(std::env::VarError::NotPresent), tenant, table)
}

/// [`Mill::source`] where the language has a zone of its own: what `zone=local` means in this program.
///
/// # Errors
/// As [`Mill::source`].
pub fn source_in_zone(mill: &Mill, spec: &str, program_zone: &str) -> Result<Source> {
    mill.source_in(spec, Some(program_zone))
}

/// Kind and name as a spec writes them, percent-encoded and without options: [`Source::label`] of `segment:a%3Fb` is `segment:a?b`, which
/// is the spec of another source.
#[must_use]
pub fn encoded_label(source: &Source) -> &str {
    let text = source.shared.spec.text.as_str();
    text.split_once('?').map_or(text, |(label, _)| label)
}

/// The error of a caller for whom [`spawn`] started no thread.
#[must_use]
pub fn not_started(purpose: &str, error: &std::io::Error) -> Error {
    crate::process::thread::not_started(purpose, error)
}

/// [`Mill::stored_routers`]; the inner error: this login may not read their table, as is right where its programs use no router.
///
/// # Errors
/// As [`Mill::stored_routers`].
pub fn routers_if_permitted(mill: &Mill) -> Result<Result<Vec<StoredRouter>>> {
    mill.routers_if_permitted()
}

/// The mills that a language has opened. It keeps none of them open.
#[derive(Debug, Default)]
pub struct OpenMills(Vec<Weak<SharedMill>>);

impl OpenMills {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        OpenMills(Vec::new())
    }

    /// Takes one in.
    pub fn add(&mut self, mill: &Mill) {
        // Before the list would grow, so that a program that opens mills for ever keeps no more than twice those that are there.
        if self.0.len() == self.0.capacity() {
            self.0.retain(|mill| mill.strong_count() > 0);
        }
        self.0.push(mill.downgrade());
    }

    /// Those that are still there.
    #[must_use]
    pub fn take(&mut self) -> Vec<Mill> {
        self.0.drain(..).filter_map(|mill| Mill::upgrade(&mill)).collect()
    }
}

/// The process ends: from now on no mill that is dropped waits for its close, and [`close_all`] comes last.
pub fn process_ends() {
    closing::process_begins_to_end();
}

/// The last that a process does: begins to close these mills, and waits for every close under way, 2 s at most for all together.
pub fn close_all(mills: impl IntoIterator<Item = Mill>) {
    process_ends();
    for mill in mills {
        mill.begin_close();
    }
    closing::wait_for_all();
}

/// Has this mill closed when the process exits, if it is open then, so that the row goes which says that this process follows a route table.
/// All such mills together are waited for 2 s at most. A process that calls this first registers a handler of the C library's `exit`,
/// which also runs where the library is unloaded before.
pub fn close_at_exit(mill: &Mill) {
    static OPEN: Mutex<OpenMills> = Mutex::new(OpenMills::new());
    static REGISTERED: Once = Once::new();
    extern "C" fn close() {
        let _ = std::panic::catch_unwind(|| {
            // In a child that was forked under the lock nobody gives it back, and the mills are the parent's.
            let open = OPEN.try_lock().map(|mut open| open.take());
            close_all(open.unwrap_or_default());
        });
    }
    OPEN.lock().unwrap_or_else(PoisonError::into_inner).add(mill);
    REGISTERED.call_once(|| {
        let _is_registered = at_exit(close);
    });
}

/// The text of an order number of 16 bytes.
#[must_use]
pub fn order_no_text(order_no: &[u8; 16]) -> String {
    ascii(&text_of(order_no)).to_owned()
}

/// The text of an order number of 8 bytes.
#[must_use]
pub fn order_no_text8(order_no: u64) -> String {
    ascii(&text8_of(order_no)).to_owned()
}

/// Numbers leased to the caller alone, with the word that revokes them: all a language needs to count by itself.
///
/// A number of `lo..hi` may be issued while `word` reads `leased_at`: one plain load. Once it reads anything else the
/// rest must be dropped and a new block leased: the mill was closed, a period ended, or this is a forked child.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// The first number.
    pub lo: u64,
    /// One past the last.
    pub hi: u64,
    /// Readable for ever, even after the source is gone.
    pub word: &'static AtomicU64,
    /// What the word read when the block was leased; never 0.
    pub leased_at: u64,
    /// A serial's date part, which belongs to these numbers; empty for the other kinds.
    pub prefix: Prefix,
    /// How many digits a serial's number has at least, zeros in front; 1 for the other kinds.
    pub width: u32,
}

impl Lease {
    fn new(lo: u64, hi: u64, word: &RevocationWord, leased_at: u64) -> Lease {
        Lease { lo, hi, word: word.shared(), leased_at, prefix: Prefix::EMPTY, width: 1 }
    }
}

#[doc(hidden)] // as this module
impl Route<'_> {
    /// The names as C reads them, NUL-terminated: the shard and the one to read from, then `write`, `also` and `mirror` or null. They are
    /// readable as long as the router is.
    #[must_use]
    pub fn c_names(&self) -> [*const std::ffi::c_char; 5] {
        let or_null = |name: Option<&str>| name.map_or(std::ptr::null(), |name| name.as_ptr().cast());
        let [shard, read] = [self.shard, self.read].map(|name| name.as_ptr().cast());
        [shard, read, or_null(self.write), or_null(self.also), or_null(self.mirror)]
    }

    /// The numbers of the names, which stay the same for the life of the router: `shard`, which `write` equals where there is one, `read`,
    /// and `mirror`, which `also` equals where there is one. A language that keeps names as objects of its own keeps them by number.
    #[must_use]
    pub fn numbers(&self) -> (u16, u16, Option<u16>) {
        self.numbers
    }
}

#[doc(hidden)] // as this module
impl Router {
    /// The name with this number of [`Route::numbers`].
    #[must_use]
    pub fn name(&self, number: u16) -> &str {
        self.live.name(number)
    }

    /// As [`Router::is_current`], for a language that has the parts of a route.
    #[must_use]
    pub fn writes_to(&self, gene: u16, write: Option<&str>, mirror: Option<&str>) -> bool {
        self.writes(Gene::from(gene), write, mirror)
    }
}

#[doc(hidden)] // as this module
impl Source {
    /// Whether its ids follow each other, so that a language may count through a [`Lease`] by itself. Where not, a lease holds one
    /// id, and the core makes batches: snowflakes have gaps, and so do the ids of a stride.
    #[must_use]
    pub fn counts(&self) -> bool {
        !matches!(
            self.shared.path,
            IdPath::Time(_) | IdPath::AnyTime(_) | IdPath::Strided(_) | IdPath::Bank(_) | IdPath::WideBank(_)
        )
    }

    /// How a language that makes texts by itself writes an id of 64 bits: the digits, the lowest first, how many of them a text has (0: as
    /// many as it needs), and what stands before them.
    #[must_use]
    pub fn text_form(&self) -> (&'static str, usize, &str) {
        let form = &self.spec().form;
        (form.digits.alphabet(), form.digits.width().unwrap_or(0), form.prefix())
    }

    /// As [`Source::parse_text`] of an id that is a number in its language, here in decimal or as `0x` and its digits: it is no text of the
    /// source's form, whatever width it has.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    pub fn parse_number(&self, number: &str) -> Result<Parts> {
        if self.spec().pattern().is_some() {
            return self.parse_text(number);
        }
        if let Some(bank) = self.spec().bank {
            return self.parse_business_text(bank, number).map_err(|e| self.failed(e));
        }
        self.parse(TextForm::default().read(number).map_err(|e| self.failed(e))?)
    }

    /// Whether numbers in memory may end by themselves: a period ends, or they outlive `ttl`. Where not, only a close
    /// revokes a [`Lease`] (and a fork): a language that sees every close itself need not compare the word.
    #[must_use]
    pub fn expires(&self) -> bool {
        self.spec().has_ends()
    }

    /// The same for every copy of one source, and for no other source of this process: a language that keeps a cursor
    /// of its own keeps one per identity. A forked child has another one, and 0 where it may not go on (`FORKED`).
    #[must_use]
    pub fn identity(&self) -> u64 {
        self.shared.callers().map_or(0, |callers| callers.id)
    }

    /// Which numbers are its ids: the n-th number that a source with a stride counts is [`Stride::nth`].
    #[must_use]
    pub fn stride(&self) -> Stride {
        self.spec().key.stride
    }

    /// Refuses a serial whose dates follow this process's zone, for a command that writes a row in a date: its zone may be another
    /// one than the programs', and a row in an earlier date lets them begin theirs at 1 again.
    ///
    /// # Errors
    /// `INVALID_CONFIG`.
    pub fn check_zone_is_written(&self) -> Result<()> {
        let Some(zone) = self.spec().zone().filter(|_| self.spec().takes_program_zone) else { return Ok(()) };
        Err(self.failed(Error::config(format!(
            "`{}`: the row would get the date in this command's time zone, {}, and the programs may have another zone. Write the zone of the programs that use this serial, as `zone=Asia/Shanghai`; their event `local_zone` names it",
            self.label(),
            shown(zone)
        ))))
    }

    /// Whether its zone is the one of this program, because its spec names none: other programs may have another one.
    #[must_use]
    pub fn takes_program_zone(&self) -> bool {
        self.spec().takes_program_zone
    }

    /// Whether a program that ends may lower the row after a repair. It returns its unused numbers where the row ends as its last
    /// reservation left it. keymill's own row names the mill that reserved last, and repair deletes that name; a server's own counter is
    /// never lowered.
    #[must_use]
    pub fn may_be_lowered_after_repair(&self) -> bool {
        let scheme = self.spec().key.scheme;
        self.layout().is_none() && scheme != Scheme::Keymill && !scheme.is_ticket()
    }

    /// Why this segment would give keys that a table has, and what to do; `None` where it gives none of them.
    ///
    /// `highest` is the table's highest key, read before this call. A program that takes its keys from the source has reserved them before,
    /// so the row's next number is above each of them, whatever other processes do meanwhile. `from` is a number that was given to this
    /// process where the table has keys from there on; 0: none was. The rows of several stores stand apart: without `from` only a source
    /// that has no row yet is judged there.
    ///
    /// # Errors
    /// As [`Source::row`].
    pub fn refusal_of_keys(&self, table: &str, highest: u64, from: u64) -> Result<Option<String>> {
        let spec = self.spec();
        let config = &self.shared.mill.config;
        // The table may have ids of the other remainders.
        if !self.stride().is_every() {
            return Ok(None);
        }
        let next = match self.row_for_keys(from)? {
            Some(next) if next <= highest => next,
            _ => return Ok(None),
        };
        let after = highest.saturating_add(1);
        let advice = if highest >= spec.last {
            "above which the source has no id; give that row another key".to_owned()
        } else if config.store.is_in_memory() {
            format!(
                "and a store in memory begins anew with its programs; write `start={after}` or higher in the source's spec"
            )
        } else {
            let CommandLine { keymill, source } = spec.command_line();
            let source = quoted(source.unwrap_or(&spec.label));
            format!(
                "which this source did not give; stop every program that takes from it, run `{keymill} repair {source} --to {after} --yes`, and start them again"
            )
        };
        let label = self.label();
        let table = shown(table);
        Ok(Some(format!(
            "{label} goes on at {next}, and the table {table} has keys up to {highest}, {advice}"
        )))
    }

    /// The number from which on a table's keys are not this source's; `None` where the rows do not say.
    fn row_for_keys(&self, from: u64) -> Result<Option<u64>> {
        if from > 0 {
            return Ok(Some(from));
        }
        let next = self.row()?.map_or(0, |row| row.mark.next);
        let is_shared = matches!(self.shared.mill.config.store, StoreConfig::Interleaved { .. });
        Ok(match next {
            0 => Some(self.spec().start),
            _ if is_shared => None,
            next => Some(next),
        })
    }

    /// Refuses `now` for a snowflake whose spec does not say how far ids lead the clock: the programs may have another `max_lead` than the
    /// default, and ids after the time that the default gives.
    fn check_lead_is_written(&self) -> Result<()> {
        let Some(unwritten) = self.spec().unwritten_lead() else { return Ok(()) };
        Err(self.failed(Error::config(format!(
            "`{}`: `now` adds the programs' `max_lead`{}, and this spec does not say it. Write the largest that any of them has, as `{unwritten}`",
            self.label(),
            if self.spec().is_leased() { " and the `lease`" } else { "" },
        ))))
    }

    /// Refuses a number for a snowflake that would be the present time in seconds or milliseconds since 1970: as an id it stands for a time
    /// long before, and the mark would be raised there.
    fn check_is_no_unix_time(&self, number: u64) -> Result<()> {
        const YEAR_MS: u64 = 31_557_600_000;
        let wall_ms = self.shared.mill.clock().wall_ms();
        let is_now = |ms: u64| i64::try_from(ms).is_ok_and(|ms| ms.abs_diff(wall_ms) < YEAR_MS);
        if self.layout().is_none() || !(is_now(number) || is_now(number.saturating_mul(1000))) {
            return Ok(());
        }
        Err(self.failed(Error::argument(format!(
            "`{number}` may be the time since 1970 or an id of `{}`; give a time, such as {}. `keymill parse` shows the time of an id",
            self.label(),
            rfc3339(wall_ms)
        ))))
    }

    /// Whether a missing row begins after the largest serial of the business table (`init=max`).
    #[must_use]
    pub fn reads_business_table(&self) -> bool {
        self.spec().key.serial.as_ref().is_some_and(|serial| serial.init_max)
    }

    /// Reads what `repair --to` was given: a number, or for a snowflake a time, which stands for its last id before. `now` is a time after
    /// every id that a process may have made by now, by the store's clock.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`; for `now` the errors of reading the store's clock, `INVALID_CONFIG` where the spec does not say how far ids lead
    /// the clock, and `STORE_REFUSED` where the store's clock and this machine's are ten minutes apart.
    pub fn repair_target(&self, text: &str) -> Result<u64> {
        let now;
        let text = if text == "now" && self.layout().is_some() {
            self.check_lead_is_written()?;
            let (key, wall_ms) = (self.spec().key.clone(), self.shared.mill.clock().wall_ms());
            let clock_ms = self.on_store(move |store| Ok(operators_clock_ms(store, &key, wall_ms)?))?;
            if let Some(store_ms) = clock_ms.filter(|store_ms| store_ms.abs_diff(wall_ms) > BELIEVED_MS) {
                return Err(self.failed(Error::new(
                    Code::StoreRefused,
                    format!(
                        "this machine's clock says {}, and the store's {}, and `now` would be before the newest ids, or far ahead of them. Nothing was changed: compare both with a third clock, and set right the one that is wrong, or give a time that is after every id",
                        rfc3339(wall_ms),
                        rfc3339(store_ms)
                    ),
                )));
            }
            let latest_ms =
                clock_ms.unwrap_or(wall_ms).saturating_add_unsigned(self.spec().furthest_lead_ms());
            now = rfc3339(latest_ms);
            now.as_str()
        } else {
            text
        };
        if let Ok(number) = text.parse() {
            self.check_is_no_unix_time(number)?;
            // The digits of a scattered id are moved: the highest one is of any time.
            if let Some(layout) = self.layout().filter(|layout| layout.scatter() != Scatter::None) {
                return Err(self.failed(Error::argument(format!(
                    "an id, `{}`, cannot say what `{}` is raised to: its ids are scattered (`scatter={}`), so the highest id is not the latest; give a time, such as {}",
                    shown(text),
                    self.label(),
                    layout.scatter(),
                    rfc3339(self.shared.mill.clock().wall_ms())
                ))));
            }
            return Ok(number);
        }
        let tick = self.layout().and_then(|layout| {
            let wall_ms = parse_time(text)?;
            let tick = u64::try_from(layout.tick_at(wall_ms))
                .ok()
                .filter(|tick| (1..=layout.max_tick()).contains(tick))?;
            Some(layout.write(layout.pack(tick - 1, 0, layout.max_seq())))
        });
        tick.ok_or_else(|| {
            let forms = if self.layout().is_some() {
                "a number, `now`, or a time within the layout, such as 2026-11-23T08:30:00Z"
            } else {
                "a number"
            };
            self.failed(Error::argument(format!(
                "`{}` is not a value that `{}` can be raised to; give {forms}",
                shown(text),
                self.label()
            )))
        })
    }

    /// Leases the next block for a cursor of the caller's own, at most `most` numbers (0: as many as the source's `block=` says). Blocks
    /// grow with use: `last` is what the cursor leased last, and is written anew. A snowflake gives one id, and so does a source with a
    /// stride, so that a cursor works on every source of numbers.
    ///
    /// # Errors
    /// As [`Source::next`].
    pub fn lease_block(&self, last: &mut LastBlock, most: u64) -> Result<Lease> {
        let leased = match self.shared.live_snowflake() {
            Some(live) => live.get(&self.shared).and_then(|source| {
                let leased_at = source.word().get();
                let id = source.next()?;
                Ok(Lease::new(id, id + 1, source.word(), leased_at))
            }),
            None => self.numbers().and_then(|source| {
                // Read before the lease: a revocation that comes between ends the block.
                let leased_at = source.word().get();
                let most = self.at_most(if most == 0 { self.block() } else { most });
                let taken = source.lease_block(last, most, 1, |len| source.lease(len))?;
                let (lo, hi) = self.ids_of(taken.lo, taken.hi);
                Ok(Lease::new(lo, hi, source.word(), leased_at))
            }),
        };
        leased.map_err(|e| self.failed(e))
    }

    /// Leases at most `count` numbers (0: as many as the source's `block=` says) without waiting, for a language that
    /// counts, makes texts and waits by itself. `enough` is how many must be in memory before any is taken, so that a
    /// batch costs no numbers while its store is down. A serial's numbers come with the date part they belong to.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::next`]; [`Source::patience`] decides about them. `INVALID_ARGUMENT` for
    /// snowflakes.
    pub fn try_lease(&self, count: u64, enough: u64) -> Result<Lease> {
        let count = if count == 0 { self.block() } else { count };
        let mut lease = self.try_counted(self.at_most(count), enough)?;
        (lease.lo, lease.hi) = self.ids_of(lease.lo, lease.hi);
        Ok(lease)
    }

    /// Leases the next block for a cursor of the caller's own, as [`Source::lease_block`], without waiting, as [`Source::try_lease`]. A
    /// batch that needs half a block or more gets just what it needs.
    ///
    /// # Errors
    /// As [`Source::try_lease`].
    pub fn try_lease_block(&self, last: &mut LastBlock, enough: u64) -> Result<Lease> {
        let most = self.at_most(self.block());
        let mut lease = self.try_counted_by(|source| {
            if enough > most / 2 {
                return source.try_take_enough(enough, enough);
            }
            source.lease_block(last, most, enough, |len| source.try_take_enough(len, enough))
        })?;
        (lease.lo, lease.hi) = self.ids_of(lease.lo, lease.hi);
        Ok(lease)
    }

    /// Takes back the ids `[next, hi)` of a block that [`Source::lease_block`] or [`Source::try_lease_block`] leased while the word read
    /// `leased_at`, in this process or in an ancestor of this fork. They may be issued again at once, so the caller has issued none of
    /// them, keeps none of them, and gives each back once.
    pub fn give_back(&self, leased_at: u64, next: u64, hi: u64, last: LastBlock) {
        if self.counts()
            && let Some(live) = self.shared.live_segments()
        {
            live.last().give_back(leased_at, next, hi, last);
        }
    }

    /// A lease of what the source counts: with a stride, no ids yet.
    fn try_counted(&self, count: u64, enough: u64) -> Result<Lease> {
        self.try_counted_by(|source| source.try_take_enough(count, enough.min(count)))
    }

    fn try_counted_by(&self, mut take: impl FnMut(&SegmentSource) -> Result<TakenRange>) -> Result<Lease> {
        let leased = self.shared.segments().and_then(|source| {
            loop {
                // Read before the lease: a revocation that comes between ends the block.
                let leased_at = source.word().get();
                let taken = take(source)?;
                let lease = Lease::new(taken.lo, taken.hi, source.word(), leased_at);
                let Some(pattern) = self.spec().pattern() else { return Ok(lease) };
                if let Some(prefix) = source.prefix(&taken) {
                    return Ok(Lease { prefix, width: pattern.width(), ..lease });
                }
                // The period ended before its date part was read.
                source.callers.counters.lose(taken.len());
            }
        });
        leased.map_err(|e| self.failed(e))
    }

    /// What a caller with a wait of its own does after a `try_` verb failed: the pause before the next try, or the error to give
    /// up with. `waited` is how long it has waited in all; a wait is counted at its beginning, with a `waited` of zero.
    /// (`CLOSED`, `EXHAUSTED` and similar errors are returned at once, `NOT_READY` becomes `DEADLINE` at the deadline.)
    ///
    /// # Errors
    /// `refusal`, or `DEADLINE`.
    pub fn patience(&self, refusal: Error, waited: Duration) -> Result<Duration> {
        self.shared.callers().and_then(|callers| callers.patience(refusal, waited, false))
    }

    /// As [`Source::patience`], for a registered caller: it tries again when it is told of news, or after the pause, which is the longer
    /// one.
    ///
    /// # Errors
    /// `refusal`, or `DEADLINE`.
    pub fn patience_until_news(&self, refusal: Error, waited: Duration) -> Result<Duration> {
        // A snowflake that has a worker waits for its clock, which sends no news.
        let by_news = match self.shared.live_snowflake() {
            Some(live) => live.get(&self.shared)?.has_no_worker(),
            None => true,
        };
        self.shared.callers().and_then(|callers| callers.patience(refusal, waited, by_news))
    }

    /// Registers a caller whose `try_` verb failed: `notifier` gets `token` once when there are news for it, so that it need not look again
    /// before. `gene`: of the key, in a source of business ids. The verb is to be tried once more after this call, as
    /// the news may have come just before; then [`Source::patience_until_news`] decides.
    ///
    /// # Errors
    /// `CLOSED` and `FORKED`.
    pub fn register(&self, gene: Option<Gene>, notifier: &Notifier, token: u64) -> Result<Registration> {
        let registered = self.shared.callers().map(|callers| {
            let counter = gene.and_then(|gene| self.shared.bank().ok()?.index(gene));
            let key = callers.registered.register(counter, notifier, token);
            Registration { source: self.clone(), identity: callers.id, key }
        });
        registered.map_err(|e| self.failed(e))
    }

    /// [`Source::next_for`] with the gene of the key.
    ///
    /// # Errors
    /// As [`Source::next_for`].
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    pub fn next_of(&self, gene: Gene) -> Result<u64> {
        match self.quick_of(gene) {
            Some(id) => Ok(id),
            None => self.next_of_otherwise(gene),
        }
    }

    /// An id of the bank's counter, if it is in memory.
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    fn quick_of(&self, gene: Gene) -> Option<u64> {
        if let IdPath::Bank(live) = &self.shared.path {
            let bank = live.last();
            // As for `next`: a count in a forked child's copy of a dead source harms nothing.
            if let Some(id) = bank.take_one(gene)
                && bank.word().is_ours()
            {
                return Some(id);
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn next_of_otherwise(&self, gene: Gene) -> Result<u64> {
        self.enter(|| Ok(narrow(gene, self.narrow_bank()?.next(gene)?)))
    }

    /// [`Source::try_next_for`] with the gene of the key.
    ///
    /// # Errors
    /// As [`Source::try_next_for`].
    #[inline]
    pub fn try_next_of(&self, gene: Gene) -> Result<u64> {
        match self.quick_of(gene) {
            Some(id) => Ok(id),
            None => self.enter(|| Ok(narrow(gene, self.narrow_bank()?.try_take(gene, 1, 1)?.start))),
        }
    }

    /// [`Source::fill_for`] with the gene of the key.
    ///
    /// # Errors
    /// As [`Source::fill_for`].
    pub fn fill_of(&self, gene: Gene, buffer: &mut [u64]) -> Result<()> {
        self.enter(|| fill_from(self.narrow_bank()?, gene, buffer, narrow))
    }

    /// [`Source::next_wide_for`] with the gene of the key.
    ///
    /// # Errors
    /// As [`Source::next_wide_for`].
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    pub fn next_wide_of(&self, gene: Gene) -> Result<u128> {
        if let IdPath::WideBank(live) = &self.shared.path {
            let bank = live.last();
            if let Some(id) = bank.take_one_wide(gene)
                && bank.word().is_ours()
            {
                return Ok(id);
            }
        }
        self.next_wide_of_otherwise(gene)
    }

    #[cold]
    #[inline(never)]
    fn next_wide_of_otherwise(&self, gene: Gene) -> Result<u128> {
        self.enter(|| Ok(wide(gene, self.wide_bank()?.next(gene)?)))
    }

    /// [`Source::try_next_wide_for`] with the gene of the key.
    ///
    /// # Errors
    /// As [`Source::try_next_wide_for`].
    pub fn try_next_wide_of(&self, gene: Gene) -> Result<u128> {
        self.enter(|| Ok(wide(gene, self.wide_bank()?.try_take(gene, 1, 1)?.start)))
    }

    /// [`Source::fill_wide_for`] with the gene of the key.
    ///
    /// # Errors
    /// As [`Source::fill_wide_for`].
    pub fn fill_wide_of(&self, gene: Gene, buffer: &mut [u128]) -> Result<()> {
        self.enter(|| fill_from(self.wide_bank()?, gene, buffer, wide))
    }

    /// As [`Source::ask`], for a key with this gene; with `wide=on` [`Source::ask_wide_of`].
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for more than memory holds, for another kind of source, and with `wide=on`.
    pub fn ask_of(&self, gene: Gene, count: usize) -> Result<Pending> {
        self.narrow_bank()
            .and_then(|_| Pending::new(self.clone(), count, Some(gene)))
            .map_err(|e| self.failed(e))
    }

    /// As [`Source::ask_of`] for ids of 128 bits, which [`Pending::write_wide`] writes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for more than memory holds, for another kind of source, and without `wide=on`.
    pub fn ask_wide_of(&self, gene: Gene, count: usize) -> Result<Pending> {
        self.wide_bank()
            .and_then(|_| Pending::new(self.clone(), count, Some(gene)))
            .map_err(|e| self.failed(e))
    }

    /// Begins a batch of `count` ids or texts whose wait the language implements; see [`Pending::poll`].
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for more than memory holds.
    pub fn ask(&self, count: usize) -> Result<Pending> {
        Pending::new(self.clone(), count, None).map_err(|e| self.failed(e))
    }
}

/// Fills a buffer with ids of a gene's counter, which `id` makes of gene and number: all of it, or none and an error.
fn fill_from<T>(bank: &BankSource, gene: Gene, buffer: &mut [T], id: fn(Gene, u64) -> T) -> Result<()> {
    let mut ranges = Vec::new();
    bank.take_all(gene, buffer.len() as u64, |range| ranges.push(range))?;
    for (slot, number) in buffer.iter_mut().zip(ranges.into_iter().flatten()) {
        *slot = id(gene, number);
    }
    Ok(())
}

/// A caller that is told of news, until there are some or this is dropped.
#[derive(Debug)]
pub struct Registration {
    source: Source,
    /// [`Source::identity`] at that time.
    identity: u64,
    key: RegisteredKey,
}

impl Drop for Registration {
    fn drop(&mut self) {
        // In a forked child another thread of the parent may have held the lock for ever.
        if let Some(callers) = self.source.shared.present_callers()
            && callers.id == self.identity
        {
            callers.registered.remove(self.key);
        }
    }
}

/// A batch whose wait the language implements: parking, an event loop, a check for signals.
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
    /// Whether its wait was counted.
    waited: bool,
    count: usize,
    lacking: usize,
    /// [`Source::identity`] while this was collected.
    identity: u64,
    /// Numbers that follow each other.
    leases: Vec<Lease>,
    /// Ids that do not follow each other: a snowflake's ids, or the ids of a source with a stride.
    ids: Vec<u64>,
    /// The gene of business ids, whose numbers `ids` holds.
    gene: Option<Gene>,
    /// While it waits to be told of news.
    registration: Option<Registration>,
}

impl Pending {
    fn new(source: Source, count: usize, gene: Option<Gene>) -> Result<Pending> {
        let ids = if source.counts() { Vec::new() } else { room(count, "ids")? };
        let identity = source.identity();
        Ok(Pending {
            source,
            since: Instant::now(),
            waited: false,
            count,
            lacking: count,
            identity,
            leases: Vec::new(),
            ids,
            gene,
            registration: None,
        })
    }

    /// Takes what is there. `None`: the batch is complete; `Some`: poll again after this pause. Never blocks.
    ///
    /// # Errors
    /// As [`Source::next`], `DEADLINE` included; what the batch had is lost then.
    pub fn poll(&mut self) -> Result<Option<Duration>> {
        self.registration = None;
        match self.take() {
            Ok(()) => Ok(None),
            Err(refusal) => self.pause(refusal).map(Some),
        }
    }

    /// As [`Pending::poll`]; where it has to wait, `notifier` gets `token` when the batch is worth another poll, before the pause is
    /// over. Only the last call's token counts.
    ///
    /// # Errors
    /// As [`Pending::poll`].
    pub fn poll_or_register(&mut self, notifier: &Notifier, token: u64) -> Result<Option<Duration>> {
        self.registration = None;
        if self.take().is_ok() {
            return Ok(None);
        }
        self.registration = Some(self.source.register(self.gene, notifier, token)?);
        match self.take() {
            Ok(()) => {
                self.registration = None;
                Ok(None)
            }
            Err(refusal) => self.pause(refusal).map(Some),
        }
    }

    /// Takes what lacks; the error says why it is not all there.
    fn take(&mut self) -> Result<()> {
        let identity = self.source.identity();
        if identity != self.identity {
            // This is a child that was forked during the wait: the numbers belong to the parent.
            self.leases.clear();
            self.ids.clear();
            (self.lacking, self.identity) = (self.count, identity);
        }
        while self.lacking > 0 {
            match (self.source.kind(), self.gene) {
                (Kind::Snowflake, _) => self.take_ids(),
                (Kind::Business, Some(gene)) => self.take_of(gene),
                _ => self.take_counted(),
            }?;
        }
        Ok(())
    }

    /// The pause before the next try, or the error to give up with.
    fn pause(&mut self, refusal: Error) -> Result<Duration> {
        let waited = self.since.elapsed().max(Duration::from_nanos(1));
        let pause = match &self.registration {
            Some(_) => self.source.patience_until_news(refusal, waited),
            None => self.source.patience(refusal, waited),
        }?;
        if !std::mem::replace(&mut self.waited, true)
            && let Ok(callers) = self.source.shared.callers()
        {
            Counters::add(&callers.counters.waits, 1);
        }
        Ok(pause)
    }

    fn take_counted(&mut self) -> Result<()> {
        let lacking = self.lacking as u64;
        let lease = self.source.try_counted(lacking, lacking)?;
        self.lacking -= (lease.hi - lease.lo) as usize;
        if self.source.counts() {
            self.leases.push(lease);
        } else {
            let stride = self.source.stride();
            self.ids.extend((lease.lo..lease.hi).map(|n| stride.nth(n)));
        }
        Ok(())
    }

    fn take_of(&mut self, gene: Gene) -> Result<()> {
        let lacking = self.lacking as u64;
        let taken = self.source.shared.bank().and_then(|bank| bank.try_take(gene, lacking, lacking));
        let taken = taken.map_err(|e| self.source.failed(e))?;
        self.lacking -= (taken.end - taken.start) as usize;
        self.ids.extend(taken);
        Ok(())
    }

    fn take_ids(&mut self) -> Result<()> {
        let Some(live) = self.source.shared.live_snowflake() else { return Ok(()) };
        let source = live.get(&self.source.shared)?;
        let before = self.ids.len();
        self.ids.resize(before + self.lacking, 0);
        let taken = source.try_fill(&mut self.ids[before..]);
        self.ids.truncate(before + taken.as_ref().map_or(0, |n| *n));
        self.lacking -= taken.map_err(|e| self.source.failed(e))?;
        Ok(())
    }

    /// The ids of a complete batch of numbers, as many as `out` holds.
    pub fn write(mut self, out: &mut [u64]) {
        let leases = std::mem::take(&mut self.leases);
        let ids = std::mem::take(&mut self.ids);
        let ids = ids.into_iter().map(|id| self.gene.map_or(id, |gene| narrow(gene, id)));
        let numbers = leases.iter().flat_map(|lease| lease.lo..lease.hi).chain(ids);
        for (slot, id) in out.iter_mut().zip(numbers) {
            *slot = id;
        }
    }

    /// The ids of a complete batch of a source with `wide=on`, as many as `out` holds.
    pub fn write_wide(mut self, out: &mut [u128]) {
        let numbers = std::mem::take(&mut self.ids);
        let Some(gene) = self.gene else { return };
        for (slot, number) in out.iter_mut().zip(numbers) {
            *slot = wide(gene, number);
        }
    }

    /// The texts of a complete batch: serial numbers, or ids in decimal.
    pub fn texts(mut self, mut with: impl FnMut(&str)) {
        let width = self.source.spec().pattern().map_or(1, SerialPattern::width);
        let mut buffer = [0; MAX_TEXT];
        let ids = std::mem::take(&mut self.ids);
        let mut write = |number, prefix: &Prefix| {
            let len = write_serial(&mut buffer, prefix, number, width).unwrap_or(0);
            with(ascii(&buffer[..len]));
        };
        for lease in std::mem::take(&mut self.leases) {
            for number in lease.lo..lease.hi {
                write(number, &lease.prefix);
            }
        }
        for id in ids {
            write(id, &Prefix::EMPTY);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // A batch that was given up loses what it had.
        let strided = matches!(self.source.shared.path, IdPath::Strided(_)) || self.gene.is_some();
        let lost = self.leases.iter().map(|lease| lease.hi - lease.lo).sum::<u64>()
            + if strided { self.ids.len() as u64 } else { 0 };
        if lost > 0 {
            self.source.shared.lose(lost);
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;

    #[test]
    fn keys_from_the_rows_next_number_on_are_refused() -> Result<()> {
        let mill = Mill::open("memory:")?;
        let refused = |spec: &str, highest, from| mill.source(spec)?.refusal_of_keys("orders", highest, from);
        let said = refused("segment:a", 7, 0)?;
        assert_eq!(
            said.as_deref(),
            Some(
                "segment:a goes on at 1, and the table orders has keys up to 7, and a store in memory begins anew with its programs; write `start=8` or higher in the source's spec"
            )
        );
        assert_eq!(refused("segment:b?start=8", 7, 0)?, None);
        assert!(refused("segment:b?start=8", 8, 0)?.is_some());
        let source = mill.source("segment:c")?;
        source.next()?;
        let next = source.row()?.expect("a row").mark.next;
        assert_eq!(source.refusal_of_keys("orders", next - 1, 0)?, None, "it may be another process's");
        assert!(source.refusal_of_keys("orders", next, 0)?.is_some());
        assert!(
            source.refusal_of_keys("orders", next - 1, 1)?.is_some(),
            "what this process was given is not"
        );
        let last = refused("segment:a", i64::MAX as u64, 0)?.expect("a refusal");
        assert!(last.ends_with("above which the source has no id; give that row another key"), "{last}");
        Ok(())
    }

    #[test]
    fn keys_of_other_stores_are_not_judged_by_the_lowest_row() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
        let file = folder.path().join("mill.toml");
        std::fs::write(&file, format!("stores = [\"{}\", \"{}\"]\n", at("a.db"), at("b.db")))
            .expect("a file");
        let mill = Mill::open(&format!("file:{}", file.display()))?;
        let source = mill.source("segment:a")?;
        let said = source.refusal_of_keys("orders", 7, 0)?.expect("a refusal");
        assert!(
            said.contains("stop every program") && said.contains("repair 'segment:a' --to 8 --yes"),
            "{said}"
        );
        source.next()?;
        assert_eq!(
            source.refusal_of_keys("orders", 90_000_000, 0)?,
            None,
            "the other store's row is above it"
        );
        Ok(())
    }
}
