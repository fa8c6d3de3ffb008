//! The cell: one shared counter over a segment that is replaced while callers count.
//!
//! A sequence lock whose readers also write: a taker loads the version, counts with one `fetch_add`, and accepts the
//! number only if the version has not changed. (Sequence locks: Boehm, "Can seqlocks get along with programming language
//! memory models?", <https://doi.org/10.1145/2247684.2247688>.) The counter has a cache line of its own; the fields that takers
//! only read are on another one, so that counting does not invalidate it.
//!
//! Why an accepted number belongs to one taker alone. Let `v` be the version that was loaded twice.
//! * The first load of `v` acquires the release that published segment `v`, so the `fetch_add` counts at or after that
//!   segment's start, never in an older one.
//! * A thread that replaces a segment first sets `LOCKED`, then writes `next` with release. A `fetch_add` that counted in the
//!   new segment acquired that write, so the second load sees at least `LOCKED` and the number is dropped.
//! * `fetch_add` gives each number of one segment to one taker.
//!
//! Only counting is lock-free: while a segment is being replaced (a few instructions, no I/O), takers spin.

use crate::process::sync::{AtomicU64, Backoff, CachePadded, Ordering, fence};
use crate::serial::Prefix;

use super::Segment;

/// Version word: bit 0 `LOCKED` (being replaced), bit 1 `EMPTY` (no segment), bit 2 `CLOSED`; above them a count of
/// replacements, so that a version never comes back.
pub(super) const LOCKED: u64 = 1;
pub(super) const EMPTY: u64 = 2;
pub(super) const CLOSED: u64 = 4;
const STATE: u64 = LOCKED | EMPTY | CLOSED;
const ONE_REPLACEMENT: u64 = 8;

/// The value of `next` while there is no segment: far above every `hi`, with room for lost counts.
const NOWHERE: u64 = 1 << 63;

/// The most numbers of one count, so that lost counts cannot carry `next` past 2^64.
const LARGEST_COUNT: u64 = 1 << 40;

/// A rendered date part as words: eight of text, one of length.
const PREFIX_WORDS: usize = 9;

/// The fields that takers only read.
struct Head {
    version: AtomicU64,
    /// The low-water mark: a taker of one number at or above it wakes the keeper.
    low_water: AtomicU64,
    /// One past the last number.
    hi: AtomicU64,
    lo: AtomicU64,
    period: AtomicU64,
    born_ms: AtomicU64,
    /// Since this version the date part has been each segment's own.
    dated_since: AtomicU64,
    /// The date part of a serial source's segment. It fills cache lines that are there anyway and that takers do not write.
    prefix: [AtomicU64; PREFIX_WORDS],
    /// Whether there is a date part.
    dated: bool,
}

pub(super) struct Cell {
    next: CachePadded<AtomicU64>,
    head: CachePadded<Head>,
}

/// The outcome of one count.
pub(super) enum Count {
    /// `[lo, hi)` belongs to the caller. `crossed`: the low-water mark was crossed.
    Got { lo: u64, hi: u64, version: u64, crossed: bool },
    /// The segment of this version is used up.
    UsedUp { version: u64 },
    /// No segment.
    Empty { version: u64 },
    /// The cell is closed for good.
    Closed,
    /// The segment was replaced meanwhile; count again.
    Again,
}

/// A count that the id path did not accept, in two words, so that the path stays short. [`Cell::explain`] settles it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Miss {
    /// With a bit of `STATE` set: nothing was counted.
    version: u64,
    number: u64,
}

/// The state of a cell at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CellSnapshot {
    pub(super) lo: u64,
    pub(super) next: u64,
    pub(super) hi: u64,
    pub(super) period: u64,
    pub(super) born_ms: u64,
}

/// The right to replace the segment: held for a few instructions, released by `install`, `empty`, `close` or `keep`.
pub(super) struct Replacing {
    version: u64,
}

impl Replacing {
    /// The version of the segment that is put in place.
    fn next_version(&self) -> u64 {
        (self.version & !STATE) + ONE_REPLACEMENT
    }
}

/// Reads a date part. It may be used only if the version has not changed afterwards.
#[inline]
fn read_prefix(words: &[AtomicU64; PREFIX_WORDS]) -> Prefix {
    // ordering: Acquire on each — a word of a later segment makes that replacement's LOCKED visible.
    let len = words[PREFIX_WORDS - 1].load(Ordering::Acquire) as u8;
    Prefix::from_words_read(len, |word| words[word].load(Ordering::Acquire))
}

impl Cell {
    pub(super) fn new(with_text: bool) -> Self {
        Cell {
            next: CachePadded::new(AtomicU64::new(NOWHERE)),
            head: CachePadded::new(Head {
                version: AtomicU64::new(EMPTY),
                low_water: AtomicU64::new(0),
                hi: AtomicU64::new(0),
                lo: AtomicU64::new(0),
                period: AtomicU64::new(0),
                born_ms: AtomicU64::new(0),
                dated_since: AtomicU64::new(0),
                prefix: std::array::from_fn(|_| AtomicU64::new(0)),
                dated: with_text,
            }),
        }
    }

    /// One number, without a call or a loop. [`Cell::explain`] settles a miss.
    #[inline]
    pub(super) fn take_one(&self) -> Result<u64, Miss> {
        let (version, number) = self.count_one()?;
        self.accept(version, number)?;
        Ok(number)
    }

    /// One number and the date part of its segment, without a call or a loop; for cells with text.
    ///
    /// Number and date part are accepted or dropped together: the words are read between the two loads of the version, so if it
    /// has not changed, the segment was not replaced from before the count until after the last word was read. One `Acquire` on
    /// each word is enough, as it is for the low-water mark: a word of a later segment was stored after that replacement's
    /// `LOCKED`, so a thread that reads it sees at least `LOCKED` in the second load.
    #[inline]
    pub(super) fn take_one_dated(&self) -> Result<(u64, Prefix), Miss> {
        let (version, number) = self.count_one()?;
        let prefix = read_prefix(&self.head.prefix);
        self.accept(version, number)?;
        Ok((number, prefix))
    }

    #[inline]
    fn count_one(&self) -> Result<(u64, u64), Miss> {
        // ordering: Acquire — pairs with the release in `Cell::publish`; the count below is of this segment or a later one.
        let version = self.head.version.load(Ordering::Acquire);
        if version & STATE != 0 {
            return Err(Miss { version, number: 0 });
        }
        // ordering: AcqRel — acquire pairs with the write of `next` in `lock_out`; release keeps the release sequence whole.
        Ok((version, self.next.fetch_add(1, Ordering::AcqRel)))
    }

    /// Accepts `number`, counted under `version`, if it lies below the low-water mark and the version has not changed.
    #[inline]
    fn accept(&self, version: u64, number: u64) -> Result<(), Miss> {
        // ordering: Acquire — a mark written by a later replacement makes its LOCKED visible to the load below.
        let low_water = self.head.low_water.load(Ordering::Acquire);
        // ordering: Acquire — cannot move before the count; pairs with the release in `Cell::replacing`.
        if number < low_water && self.head.version.load(Ordering::Acquire) == version {
            return Ok(());
        }
        Err(Miss { version, number })
    }

    /// Settles a miss. A number that was counted and not accepted may still be handed out.
    #[cold]
    pub(super) fn explain(&self, miss: Miss) -> Count {
        if miss.version & STATE != 0 {
            return Self::state_of(miss.version);
        }
        self.settle(miss.version, miss.number, 1)
    }

    /// Up to `want` numbers in one count.
    pub(super) fn count(&self, want: u64) -> Count {
        // ordering: Acquire — as in `take_one`.
        let version = self.head.version.load(Ordering::Acquire);
        if version & STATE != 0 {
            return Self::state_of(version);
        }
        let want = want.clamp(1, LARGEST_COUNT);
        // ordering: AcqRel — as in `take_one`.
        let number = self.next.fetch_add(want, Ordering::AcqRel);
        self.settle(version, number, want)
    }

    fn state_of(version: u64) -> Count {
        if version & CLOSED != 0 {
            Count::Closed
        } else if version & LOCKED != 0 {
            Count::Again
        } else {
            Count::Empty { version }
        }
    }

    /// Decides how much of `[number, number + want)`, counted under `version`, belongs to the caller.
    #[cold]
    fn settle(&self, version: u64, number: u64, want: u64) -> Count {
        let backoff = Backoff::new();
        loop {
            // ordering: Acquire — as in `take_one`: the bounds read here belong to `version` if the load below returns it.
            let hi = self.head.hi.load(Ordering::Acquire);
            // ordering: Acquire — as above.
            let low_water = self.head.low_water.load(Ordering::Acquire);
            // ordering: Acquire — pairs with the release in `Cell::replacing`.
            let now = self.head.version.load(Ordering::Acquire);
            if now == version {
                if number >= hi {
                    return Count::UsedUp { version };
                }
                let end = hi.min(number.saturating_add(want));
                return Count::Got { lo: number, hi: end, version, crossed: end > low_water };
            }
            if now != version | LOCKED {
                // The segment was replaced, so the numbers may belong to either segment: they are lost.
                return Count::Again;
            }
            backoff.snooze();
        }
    }

    /// Takes the right to replace, if the version has not changed.
    pub(super) fn replacing(&self, version: u64) -> Option<Replacing> {
        debug_assert_eq!(version & LOCKED, 0);
        self.head
            .version
            // ordering: AcqRel — acquire pairs with the last replacement; release makes LOCKED visible with every
            // later write of ours. Relaxed on failure: nothing is read then.
            .compare_exchange(version, version | LOCKED, Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .map(|_| Replacing { version })
    }

    /// Takes the right to replace, waiting for another holder; `None` once the cell is closed.
    pub(super) fn replacing_now(&self) -> Option<Replacing> {
        let backoff = Backoff::new();
        loop {
            // ordering: Relaxed — `replacing` acquires.
            let version = self.head.version.load(Ordering::Relaxed);
            if version & CLOSED != 0 {
                return None;
            }
            if version & LOCKED == 0
                && let Some(right) = self.replacing(version)
            {
                return Some(right);
            }
            backoff.snooze();
        }
    }

    /// The state of the segment; `None` while there is none. Only for the holder of the right.
    pub(super) fn current(&self, right: &Replacing) -> Option<CellSnapshot> {
        if right.version & EMPTY != 0 { None } else { Some(self.read()) }
    }

    /// The period of the segment, or of the last one where there is none.
    pub(super) fn period(&self, _right: &Replacing) -> u64 {
        // ordering: Relaxed — read under the right.
        self.head.period.load(Ordering::Relaxed)
    }

    /// Counts from `to` on again if the count stands at `from`, both inside the segment; else changes nothing. The caller owns
    /// `[to, from)`, which were counted in this segment.
    ///
    /// Within a segment the count rises with each taker and falls only here, by numbers that come back unused. So a count that stands
    /// at `from` says that no taker has a number at or above it, and the exchange gives each taker after it one number of its own, as
    /// before. The segment stays, and with it the version.
    pub(super) fn move_back(&self, _right: &Replacing, from: u64, to: u64) -> bool {
        // ordering: AcqRel — release keeps the release sequence of the count whole; acquire: what the counts before did comes first.
        // Relaxed on failure: nothing is read.
        self.next.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn read(&self) -> CellSnapshot {
        // ordering: Relaxed — read under the right to replace, or checked by the caller against the version.
        let relaxed = Ordering::Relaxed;
        CellSnapshot {
            lo: self.head.lo.load(relaxed),
            next: self.next.load(relaxed),
            hi: self.head.hi.load(relaxed),
            period: self.head.period.load(relaxed),
            born_ms: self.head.born_ms.load(relaxed),
        }
    }

    /// Ends counting in the segment. Returns the lowest number that no taker can have.
    fn lock_out(&self, place: u64) -> u64 {
        // ordering: AcqRel — release: a taker that counts from `place` on acquires LOCKED; acquire: all counts in the old
        // segment come before.
        self.next.swap(place, Ordering::AcqRel)
    }

    fn publish(&self, right: &Replacing, state: u64) {
        // ordering: Release — publishes everything written under the right to replace.
        self.head.version.store(right.next_version() + state, Ordering::Release);
    }

    /// Numbers of earlier segments get no date part any more.
    pub(super) fn forget_dates(&self, right: &Replacing) {
        // ordering: Release — as in `install`.
        self.head.dated_since.store(right.next_version(), Ordering::Release);
    }

    /// Puts a segment in place; takers see all of it or nothing. The old segment must be used up or counted as lost.
    pub(super) fn install(&self, right: Replacing, segment: &Segment) {
        // ordering: Release on each — a taker that reads one of these too early also sees LOCKED.
        let release = Ordering::Release;
        self.head.low_water.store(segment.hi, release);
        self.head.hi.store(segment.hi, release);
        self.head.lo.store(segment.lo, release);
        // ordering: Relaxed — written under the right to replace only.
        if self.head.period.load(Ordering::Relaxed) != segment.period {
            self.forget_dates(&right);
        }
        self.head.period.store(segment.period, release);
        self.head.born_ms.store(segment.born_ms, release);
        if self.head.dated {
            let (text, len) = segment.prefix.to_words();
            for (word, value) in self.head.prefix.iter().zip(text.into_iter().chain([u64::from(len)])) {
                word.store(value, release);
            }
        }
        self.lock_out(segment.lo);
        self.publish(&right, 0);
    }

    /// Leaves the cell without a segment. Returns the next number that would have been counted.
    pub(super) fn empty(&self, right: Replacing) -> u64 {
        let reached = self.lock_out(NOWHERE);
        self.publish(&right, EMPTY);
        reached
    }

    /// Closes the cell for good. Returns the next number that would have been counted.
    pub(super) fn close(&self, right: Replacing) -> u64 {
        let reached = self.lock_out(NOWHERE);
        self.publish(&right, CLOSED);
        reached
    }

    /// Gives the right back; the segment and its version stay.
    pub(super) fn keep(&self, right: Replacing) {
        // ordering: Release — publishes a low-water mark that was set under the right.
        self.head.version.store(right.version, Ordering::Release);
    }

    /// Sets the low-water mark to `at`, inside the segment.
    pub(super) fn set_low_water(&self, _right: &Replacing, at: u64) {
        // ordering: Relaxed — read under the right.
        let hi = self.head.hi.load(Ordering::Relaxed);
        // ordering: Release — pairs with the acquire in `take_one`.
        self.head.low_water.store(at.min(hi), Ordering::Release);
    }

    /// The date part of the segment of `version`; `None` if that was dropped or replaced by one of another period, or the cell holds no
    /// text.
    pub(super) fn prefix(&self, version: u64) -> Option<(u64, Prefix)> {
        if !self.head.dated {
            return None;
        }
        let backoff = Backoff::new();
        loop {
            let prefix = read_prefix(&self.head.prefix);
            // ordering: Acquire — as for the words of the prefix.
            let period = self.head.period.load(Ordering::Acquire);
            // ordering: Acquire — pairs with the release in `Cell::replacing`.
            let now = self.head.version.load(Ordering::Acquire);
            if now == version {
                return Some((period, prefix));
            }
            if now & CLOSED != 0 {
                return None;
            }
            if now & LOCKED == 0 {
                // ordering: Acquire — a word of a later segment makes that replacement's LOCKED visible.
                let since = self.head.dated_since.load(Ordering::Acquire);
                let prefix = read_prefix(&self.head.prefix);
                // ordering: Acquire — as above.
                let period = self.head.period.load(Ordering::Acquire);
                // ordering: Relaxed — ordered by the acquire loads before it.
                if self.head.version.load(Ordering::Relaxed) == now {
                    return (since <= version).then_some((period, prefix));
                }
            }
            backoff.snooze();
        }
    }

    /// The state of the cell, read without the right to replace; `None` while there is no segment.
    pub(super) fn load(&self) -> Option<CellSnapshot> {
        let backoff = Backoff::new();
        loop {
            // ordering: Acquire — pairs with the release in `publish`.
            let version = self.head.version.load(Ordering::Acquire);
            if version & LOCKED == 0 {
                if version & STATE != 0 {
                    return None;
                }
                let current = self.read();
                // ordering: Acquire fence — the reads above come before the second load of the version.
                fence(Ordering::Acquire);
                // ordering: Relaxed — ordered by the fence.
                if self.head.version.load(Ordering::Relaxed) == version {
                    return Some(current);
                }
            }
            backoff.snooze();
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        // ordering: Relaxed — a hint; taking decides.
        self.head.version.load(Ordering::Relaxed) & CLOSED != 0
    }

    pub(super) fn is_live(&self) -> bool {
        // ordering: Relaxed — a hint; taking decides.
        self.head.version.load(Ordering::Relaxed) & STATE == 0
    }
}
