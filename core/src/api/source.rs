//! The verbs of a source: ids one by one and in batches, parsing, figures, repair.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::stats::Stats;
use crate::engine::{IdPath, Live, SharedSource};
use crate::error::{Error, Result, shown};
use crate::layout::{Layout, rfc3339};
use crate::process::random;
use crate::request::reservation::BELIEVED_MS;
use crate::request::reservation::{Key, MAX_NUMBER, Mark};
use crate::segment::cursor::{self, Cursor};
use crate::segment::{Miss, SegmentSource};
use crate::snowflake::SnowflakeSource;
use crate::spec::{Kind, Order, SnowflakeSpec, Spec};
use crate::store::{
    Fault, FaultKind, RaisePool, Row, Store, StoreIndex, check_not_ahead, highest_next, look,
    operators_clock_ms, periods_to_write, shown_pool,
};

use super::{Change, Handle, Iter, Mill, Parts, Repair, ReservedAhead, room};

/// A named generator inside a mill. Copies are one source; any thread may use any copy.
#[derive(Clone)]
pub struct Source {
    pub(crate) shared: Arc<SharedSource>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("spec", &self.spec().text).finish_non_exhaustive()
    }
}

impl Source {
    pub(crate) fn spec(&self) -> &Spec {
        &self.shared.spec
    }

    /// `segment:orders`: kind and name, without options.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.spec().label
    }

    #[cold]
    pub(crate) fn wants_text(&self) -> Error {
        Error::argument(format!(
            "`{}` hands out texts, not numbers: a number without its date would not be unique; ask it for texts",
            self.label()
        ))
    }

    /// The state of a source that counts numbers, of this process; an error for texts and for snowflakes.
    #[inline]
    pub(crate) fn numbers(&self) -> Result<&SegmentSource> {
        if self.kind() == Kind::Serial {
            return Err(self.wants_text());
        }
        self.shared.segments()
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
        if let IdPath::Shared(live) = &self.shared.path {
            return self.next_shared(live);
        }
        let quick = if let IdPath::Time(live) = &self.shared.path {
            quick_time(live)
        } else if let IdPath::Thread(live) = &self.shared.path {
            // A block of another process is revoked: its word has changed.
            cursor::quick(live.last())
        } else {
            None
        };
        match quick {
            Some(id) => Ok(id),
            None => self.next_otherwise(),
        }
    }

    /// The next number of the shared counter.
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    fn next_shared(&self, live: &Live<SegmentSource>) -> Result<u64> {
        let source = live.last();
        match source.take_one() {
            Ok(number) if source.word().is_ours() => Ok(number),
            Ok(_) => self.next_after(live, None),
            Err(miss) => self.next_after(live, Some(miss)),
        }
    }

    /// After a miss, or a number that a forked child counted in its parent's source.
    #[cold]
    fn next_after(&self, live: &Live<SegmentSource>, miss: Option<Miss>) -> Result<u64> {
        self.enter(|| {
            let (source, miss) = self.with_miss(live, miss)?;
            source.lease_after(miss).map(|taken| taken.lo)
        })
    }

    /// The state of this process, and the miss if it happened there.
    pub(crate) fn with_miss<'a>(
        &self,
        live: &'a Live<SegmentSource>,
        miss: Option<Miss>,
    ) -> Result<(&'a SegmentSource, Option<Miss>)> {
        let source = live.last();
        if source.word().is_ours() { Ok((source, miss)) } else { Ok((live.get(&self.shared)?, None)) }
    }

    #[cold]
    fn next_otherwise(&self) -> Result<u64> {
        if let IdPath::Strided(live) = &self.shared.path {
            if !self.by_thread() {
                return self.next_shared(live).map(|n| self.stride().nth(n));
            }
            if let Some(n) = cursor::quick(live.last()) {
                return Ok(self.stride().nth(n));
            }
        }
        self.enter(|| match &self.shared.path {
            IdPath::Time(live) | IdPath::AnyTime(live) => live.get(&self.shared)?.next(),
            IdPath::Thread(live) => cursor::next_of_thread(live.get(&self.shared)?, |number, _| number),
            IdPath::Strided(live) => {
                cursor::next_of_thread(live.get(&self.shared)?, |n, _| self.stride().nth(n))
            }
            _ => self.numbers()?.next(),
        })
    }

    /// The next id if one is in memory; never blocks.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::next`].
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    pub fn try_next(&self) -> Result<u64> {
        if let IdPath::Shared(live) | IdPath::Thread(live) = &self.shared.path {
            let source = live.last();
            // The rest of the thread's own block comes first, or the ids of one thread would not rise.
            if matches!(self.shared.path, IdPath::Thread(_))
                && let Some(id) = cursor::rest_of_thread(source, |id, _| id)
            {
                return Ok(id);
            }
            return match source.take_one() {
                Ok(number) if source.word().is_ours() => Ok(number),
                Ok(_) => self.try_next_after(live, None),
                Err(miss) => self.try_next_after(live, Some(miss)),
            };
        }
        if let IdPath::Time(live) = &self.shared.path
            && let Some(id) = quick_time(live)
        {
            return Ok(id);
        }
        self.try_next_otherwise()
    }

    #[cold]
    fn try_next_otherwise(&self) -> Result<u64> {
        self.enter(|| match &self.shared.path {
            IdPath::Time(live) | IdPath::AnyTime(live) => live.get(&self.shared)?.try_next(),
            _ => {
                let source = self.numbers()?;
                let rest = if self.by_thread() { cursor::rest_of_thread(source, |n, _| n) } else { None };
                rest.map_or_else(|| source.try_next(), Ok).map(|n| self.stride().nth(n))
            }
        })
    }

    #[cold]
    fn try_next_after(&self, live: &Live<SegmentSource>, miss: Option<Miss>) -> Result<u64> {
        self.enter(|| {
            let (source, miss) = self.with_miss(live, miss)?;
            source.try_take_after(miss).map(|taken| taken.lo)
        })
    }

    /// `count` ids: one count instead of `count`, so by far the fastest way to many.
    ///
    /// # Errors
    /// As [`Source::next`]; `INVALID_ARGUMENT` for more than memory holds.
    pub fn take(&self, count: usize) -> Result<Vec<u64>> {
        self.take_with(count, |ids| self.fill(ids))
    }

    /// `count` ids that `fill` writes: all of them, or none and an error.
    pub(super) fn take_with<T: Clone + Default>(
        &self,
        count: usize,
        fill: impl FnOnce(&mut [T]) -> Result<()>,
    ) -> Result<Vec<T>> {
        let mut ids = room(count, "ids").map_err(|error| self.failed(error))?;
        ids.resize(count, T::default());
        fill(&mut ids)?;
        Ok(ids)
    }

    /// Fills a buffer with ids: all of it, or none and an error.
    ///
    /// # Errors
    /// As [`Source::next`].
    pub fn fill(&self, buffer: &mut [u64]) -> Result<()> {
        let filled = match &self.shared.path {
            IdPath::Shared(live) => live.get(&self.shared).and_then(|source| source.fill(buffer)),
            IdPath::Time(live) | IdPath::AnyTime(live) => {
                live.get(&self.shared).and_then(|source| source.fill(buffer))
            }
            _ => self.fill_otherwise(buffer),
        };
        filled.map_err(|e| self.failed(e))
    }

    #[cold]
    fn fill_otherwise(&self, buffer: &mut [u64]) -> Result<()> {
        let source = self.numbers()?;
        if self.by_thread() {
            cursor::fill_of_thread(source, buffer, |rest| source.fill(rest))?;
        } else {
            source.fill(buffer)?;
        }
        if let IdPath::Strided(_) = self.shared.path {
            let stride = self.stride();
            for n in buffer {
                *n = stride.nth(*n);
            }
        }
        Ok(())
    }

    /// Leases a range, at least one and at most `count` numbers, to the caller alone: one, where ids do not follow each
    /// other (`delta=`). Unused numbers are lost.
    ///
    /// # Errors
    /// As [`Source::next`]; `INVALID_ARGUMENT` for a count of 0 and for snowflakes.
    pub fn lease(&self, count: u64) -> Result<Range<u64>> {
        self.enter(|| {
            if count == 0 {
                return Err(Error::argument("a lease of 0 numbers; ask for at least 1"));
            }
            let taken = self.numbers()?.lease(self.at_most(count))?;
            let (lo, hi) = self.ids_of(taken.lo, taken.hi);
            Ok(lo..hi)
        })
    }

    /// How many of `count` numbers are consecutive ids.
    pub(crate) fn at_most(&self, count: u64) -> u64 {
        if let IdPath::Strided(_) = self.shared.path { 1 } else { count }
    }

    /// The ids of a counted range: with a stride it is one number, and so one id.
    pub(crate) fn ids_of(&self, lo: u64, hi: u64) -> (u64, u64) {
        if let IdPath::Strided(_) = self.shared.path {
            let id = self.stride().nth(lo);
            (id, id + 1)
        } else {
            (lo, hi)
        }
    }

    /// What this source hands out.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.spec().kind()
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

    /// A handle that counts through blocks of its own: the fastest loop, for one thread at a time. Ids rise within it.
    pub fn handle(&self) -> Handle {
        Handle { source: self.clone(), cursor: Cursor::EMPTY }
    }

    /// The layout of a snowflake, with the form of its ids; `None` for other kinds.
    #[must_use]
    pub fn layout(&self) -> Option<Layout> {
        self.spec().snowflake.map(|snowflake| snowflake.layout)
    }

    /// Parses an id.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a number this source cannot have made.
    pub fn parse(&self, id: u64) -> Result<Parts> {
        let stride = self.stride();
        if let Some(SnowflakeSpec { layout, by_data_centre, .. }) = &self.spec().snowflake {
            let fields = layout.read(id).map_err(|e| self.failed(e))?;
            let split = layout.split_worker(fields.worker).filter(|_| *by_data_centre);
            return Ok(Parts {
                time_ms: Some(layout.wall_ms_of(fields.tick)),
                datacenter: split.map(|(center, _)| center),
                worker: Some(split.map_or(fields.worker, |(_, worker)| worker)),
                sequence: Some(fields.seq),
                ..Parts::default()
            });
        }
        if self.spec().bank.is_some() {
            return self.parse_business(id).map_err(|e| self.failed(e));
        }
        if self.kind() == Kind::Serial {
            return Err(self.failed(self.wants_text()));
        }
        if id == 0 || id > MAX_NUMBER {
            return Err(self.failed(Error::argument(format!(
                "{id} is no id of `{}`: ids lie from 1 to 9223372036854775807",
                self.label()
            ))));
        }
        if !stride.owns(id) {
            return Err(self.failed(Error::argument(format!(
                "{id} is no id of `{}`: divided by {} it leaves {}, and its ids leave {}",
                self.label(),
                stride.delta(),
                id % stride.delta(),
                stride.remainder()
            ))));
        }
        Ok(Parts { number: Some(id), ..Parts::default() })
    }

    /// Parses a text: a serial number, or an id in the form of the source or in decimal. A business id may also be `0x` and its 16 or 32 hexadecimal digits, whose
    /// number tells an id of 64 bits from one of 128.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a text this source cannot have made; with `wide=on` also for a decimal number that may be an id of 64 bits
    /// or another one of 128.
    pub fn parse_text(&self, text: &str) -> Result<Parts> {
        let Some(pattern) = self.spec().pattern() else {
            let form = &self.spec().form;
            let Some(bank) = self.spec().bank else { return self.parse(self.id_of_text(text)?) };
            // A text of the form comes first: it may begin with `0x` too.
            return match form.read(text) {
                Ok(id) if !form.is_plain() => self.parse(id),
                Err(error) if !form.is_plain() && !text.starts_with("0x") => Err(self.failed(error)),
                _ => self.parse_business_text(bank, text).map_err(|e| self.failed(e)),
            };
        };
        match pattern.split(text) {
            // A text that was cut off has fewer digits than its number is written with.
            Some((period, number)) if pattern.text(period, number) == text => Ok(Parts {
                date: Some(pattern.prefix(period).as_str().to_owned()),
                number: Some(number),
                ..Parts::default()
            }),
            _ => Err(self.failed(Error::argument(format!(
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
        let mut settings = self.spec().settings();
        if let Some(counters) = self.counters()
            && let Some((_, value)) = settings.iter_mut().find(|(name, _)| *name == "counters")
        {
            *value = counters.to_string();
        }
        settings
    }

    /// This source's figures.
    ///
    /// # Errors
    /// `FORKED`. A closed mill keeps its figures.
    pub fn stats(&self) -> Result<Stats> {
        self.shared.mill.catch_panic(|| {
            Ok(match &self.shared.path {
                IdPath::Time(live) | IdPath::AnyTime(live) => Stats::of_snowflakes(live.get(&self.shared)?),
                IdPath::Bank(live) | IdPath::WideBank(live) => Stats::of_bank(live.get(&self.shared)?),
                _ => Stats::of_segments(self.shared.segments()?),
            })
        })
    }

    /// What the store's row says; `None` where there is none yet.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_REFUSED`, `CLOSED`.
    pub fn row(&self) -> Result<Option<Row>> {
        let key = self.key();
        self.on_store(move |store| Ok(look(store, &key)?))
    }

    /// Raises the store's row so that `next` is the next number, or with a stride the first id from there on; never lowers it
    /// ([`Source::set_back`] does, of a serial).
    ///
    /// Of a snowflake `next` is an id: its worker begins no more at its time or earlier. With leased workers this holds for each of the
    /// pool, and every process that uses one now loses it at its next renewal and leases anew.
    ///
    /// # Errors
    /// `STORE_REFUSED` where the row stands higher, `STORE_UNAVAILABLE`, `INVALID_ARGUMENT`.
    pub fn repair(&self, next: u64, change: Change) -> Result<Repair> {
        if self.spec().finds_worker() {
            return self.repair_pool(next, change);
        }
        if self.spec().snowflake.as_ref().is_some_and(|flake| !flake.is_marked) {
            return Err(self.failed(Error::argument(format!(
                "`{}` keeps no mark that could be raised: its spec says `mark=none`",
                self.label()
            ))));
        }
        // A tick is far below any id of today. So an id that was taken for a tick would raise the mark beyond the layout's end, for ever.
        let next = match self.layout() {
            Some(layout) => layout.read(next).map_err(|e| self.failed(e))?.tick + 1,
            None => next,
        };
        let first = self.checked_next(next)?;
        if let Some(bank) = self.spec().bank {
            return self.repair_bank(bank, next, change);
        }
        if let Some(begin) = self.spec().begin_mark() {
            let bound = self.time_bound(first);
            return self.on_store(move |store| {
                bound.check(store, &begin.key, |store| {
                    let (before, after) = store.repair_mark(&begin, first, true)?;
                    Ok(before.as_ref() == Some(&after))
                })?;
                let (before, after) = store.repair_mark(&begin, first, change.is_dry())?;
                Ok(Repair { before, after, set_back: None, changes_more: false })
            });
        }
        let key = self.key();
        let present = self.present();
        self.on_store(move |store| {
            let mut to = Mark { period: 0, next: first };
            if let Some(clock) = present {
                let stands = look(store, &key)?.map(|row| row.mark).unwrap_or_default();
                let periods = periods_to_write(store, &key, clock)?;
                to.period = periods.present;
                check_not_ahead(&key, stands, periods.latest)?;
            }
            let (before, after) =
                if change.is_dry() { store.would_repair(&key, to)? } else { store.repair(&key, to)? };
            Ok(Repair { before, after, set_back: None, changes_more: false })
        })
    }

    /// Sets the row of a serial back to the present period, in which `next` is the next number. This is the only call that lowers a row. It
    /// is refused unless the row stands in a period that has begun in no zone by the store's clock (by this machine's, on SQLite): a
    /// machine whose clock was ahead has reserved numbers of it ([`Repair::set_back`]). When that period begins, its numbers count from 1
    /// again.
    ///
    /// Stop every program that uses the serial first: numbers of the present period that one holds in memory are in no row.
    ///
    /// # Errors
    /// `STORE_REFUSED` where the row stands in another period, or this login may not read the store's clock; `STORE_UNAVAILABLE`,
    /// `INVALID_ARGUMENT` for a source without dates.
    pub fn set_back(&self, next: u64, change: Change) -> Result<Repair> {
        let Some(clock) = self.present() else {
            let message = format!("`{}` has no dates, and its row is never set back", self.label());
            return Err(self.failed(Error::argument(message)));
        };
        let first = self.checked_next(next)?;
        let key = self.key();
        self.on_store(move |store| {
            let periods = periods_to_write(store, &key, clock)?;
            let to = Mark { period: periods.present, next: first };
            let (before, after) = store.set_back(&key, to, periods.latest, change.is_dry())?;
            let set_back = before.as_ref().and_then(|row| ReservedAhead::new(&key, row.mark));
            Ok(Repair { before, after, set_back, changes_more: false })
        })
    }

    /// The first number from `next` on that can be the next one of the row.
    fn checked_next(&self, next: u64) -> Result<u64> {
        let first = self.stride().at_least(next);
        // One above the last number: all of them are reserved, as after the last reservation.
        let counts_all = self.layout().is_none() && self.spec().bank.is_none() && self.stride().is_every();
        let highest = (self.spec().last + u64::from(counts_all)).min(highest_next(&self.key()));
        if next == 0 || first > highest {
            return Err(self.failed(Error::argument(format!(
                "{next} cannot be the next number of `{}`; give one from 1 to {highest}",
                self.label(),
            ))));
        }
        Ok(first)
    }

    fn repair_pool(&self, id: u64, change: Change) -> Result<Repair> {
        let (Some(layout), true) = (self.layout(), self.spec().is_leased()) else {
            return Err(self.failed(Error::argument(format!(
                "`{}` uses each worker once, so it has no mark to raise",
                self.label()
            ))));
        };
        let to = layout.read(id).map_err(|e| self.failed(e))?.tick + 1;
        let raise = RaisePool {
            key: self.key(),
            layout: self.spec().pool_layout().into(),
            store: StoreIndex::ONLY,
            to,
            token: random::token(),
        };
        let bound = self.time_bound(to);
        self.on_store(move |store| {
            bound.check(store, &raise.key, |store| {
                let (before, after) = store.would_raise_pool(&raise)?;
                Ok(before.is_like(&after))
            })?;
            let (before, after) =
                if change.is_dry() { store.would_raise_pool(&raise)? } else { store.raise_pool(&raise)? };
            Ok(Repair {
                before: before.record.is_some().then(|| shown_pool(&before)),
                after: shown_pool(&after),
                set_back: None,
                changes_more: !before.is_like(&after),
            })
        })
    }

    /// What a mark may be raised to: a tick in which no id lies yet.
    fn time_bound(&self, tick: u64) -> TimeBound {
        TimeBound {
            to_ms: self.layout().map_or(0, |layout| layout.wall_ms_of(tick)),
            // An operator's clock may be ahead as much as a program's.
            lead: Duration::from_millis(self.spec().furthest_lead_ms() + BELIEVED_MS),
            wall_ms: self.shared.mill.clock().wall_ms(),
        }
    }

    fn key(&self) -> Arc<Key> {
        self.spec().key.clone()
    }

    /// The mill this source belongs to.
    #[must_use]
    pub fn mill(&self) -> Mill {
        Mill { shared: self.shared.mill.clone() }
    }

    /// Ids without end; an error ends the iteration after it was returned.
    pub fn iter(&self) -> Iter {
        Iter { handle: self.handle(), process_order: self.spec().order == Order::Process, ended: false }
    }
}

/// The time that a mark is to be raised to, and how far it may be ahead of the store's clock. A mark is never lowered, so a mark made by a
/// wrong clock would stop its workers until that time.
struct TimeBound {
    to_ms: i64,
    lead: Duration,
    wall_ms: i64,
}

impl TimeBound {
    /// Refuses a time that is too far ahead, unless the mark `stands` there already. A login that may not read the clock is not refused.
    fn check(
        &self,
        store: &mut dyn Store,
        key: &Key,
        stands: impl FnOnce(&mut dyn Store) -> std::result::Result<bool, Fault>,
    ) -> std::result::Result<(), Fault> {
        let Some(store_ms) = operators_clock_ms(store, key, self.wall_ms)? else { return Ok(()) };
        if self.to_ms <= store_ms.saturating_add_unsigned(self.lead.as_millis() as u64) || stands(store)? {
            return Ok(());
        }
        Err(Fault::new(
            FaultKind::Refused,
            format!(
                "{} is too far ahead: this machine's clock says {}, the store's {}, and `repair` raises a mark to at most {} s after that. Nothing was changed: compare both with a third clock, and set right the one that is wrong, or give `--to now`",
                rfc3339(self.to_ms),
                rfc3339(self.wall_ms),
                rfc3339(store_ms),
                self.lead.as_secs()
            ),
        ))
    }
}

/// An id of the generator without waiting, returned in registers.
#[expect(clippy::inline_always, reason = "as for `next`")]
#[inline(always)]
pub(crate) fn quick_time(live: &Live<SnowflakeSource>) -> Option<u64> {
    if live.is_ours() { live.last().quick() } else { None }
}

impl IntoIterator for &Source {
    type Item = Result<u64>;
    type IntoIter = Iter;
    fn into_iter(self) -> Iter {
        self.iter()
    }
}

#[cfg(all(test, feature = "sqlite", feature = "mysql"))]
mod tests {
    use super::*;
    use crate::store::Remedy;

    fn message(mill: &str, spec: &str, remedy: Remedy) -> String {
        let source = Mill::open(mill).and_then(|mill| mill.source(spec)).expect("a source");
        let fault = Fault::new(FaultKind::Refused, "it is missing").with_remedy(remedy);
        fault.message(source.spec().command_line())
    }

    #[test]
    fn a_command_names_the_mill_without_its_login() {
        let spec = "segment:it's?table=mine";
        for (mill, named) in [
            ("mysql://app:hush@db:3307/ids", "KEYMILL_CONFIG='mysql://USER:PASSWORD@db:3307/ids' keymill"),
            (
                "mysql://app:hush@x/ids?socket=/my",
                "KEYMILL_CONFIG='mysql://USER:PASSWORD@x/ids?socket=/my' keymill",
            ),
            ("mysql://app@db/ids?password_file=pw", "keymill --mill 'mysql://USER@db/ids?password_file=pw'"),
            ("sqlite:/srv/100%25%3F.db", "keymill --mill 'sqlite:/srv/100%25%3F.db'"),
        ] {
            assert_eq!(
                message(mill, spec, Remedy::INIT),
                format!(r"it is missing; run `{named} init 'segment:it'\''s?table=mine'`")
            );
        }
        let serial = "serial:t/c?number=000000&scheme=keymill&zone=UTC";
        let name = "serial:T/C?date=yyyyMMdd&number=000000";
        let command = "`keymill --mill 'sqlite:a.db' repair 'serial:t/c?number=000000&scheme=keymill&zone=UTC' --to N --yes`";
        for row in [None, Some(name.to_owned())] {
            let repair = Remedy::Repair { first: "restore it and ", row, above: "it", seen: 601 };
            assert_eq!(
                message("sqlite:a.db", serial, repair),
                format!(
                    "it is missing; stop every program that uses it, restore it and run {command}, N above it and at least 601"
                )
            );
        }
        assert_eq!(
            message("memory:", spec, Remedy::INIT),
            "it is missing; run `keymill init`",
            "no other process reaches it"
        );
    }
}
