//! The router: a table of shards over the ring of 65 536 genes, replaced as a whole while readers go on.
//!
//! * `table` reads and checks tables, `table_reader` their fields. Pure.
//! * `ring` holds the words of the present table; readers never lock.
//! * `names` keeps the names of shards by number.
//!
//! [`LiveTable`] joins them. A table is replaced only by one of a higher version, and a bad one is refused with all its
//! faults: the old one stays.

#[cfg(all(test, loom))]
mod loom;
mod moved;
mod names;
mod progress;
mod ring;
mod table;
mod table_reader;
mod table_text;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use once_cell::race::OnceBox;

use crate::error::{Code, Error, Result};
use crate::gene::Gene;
use crate::process::revocation::{ForkLock, ForkWord};
use crate::time::Clock;

pub(crate) use moved::Moved;
use names::Names;
pub(crate) use progress::{Progress, check_steps};
use ring::Ring;
pub use table::LONGEST_TEXT;
pub(crate) use table::{By, Move, Range, RouteTable, RouteWord, is_shard_name};
pub(crate) use table_reader::LONGEST_TIME_MS;

/// Gives a forked child a keeper and a table of its own.
type Revival = Box<dyn Fn() -> Result<()> + Send + Sync>;

/// The present table.
pub(crate) struct LiveTable {
    ring: Ring,
    names: Names,
    /// Held while a table is replaced.
    writer: ForkLock,
    /// Boot time at which the store said last that the table is the present one; 0: it is not from a store.
    confirmed_ms: AtomicU64,
    /// Boot time until which this process may answer for ranges that move: so long the store knows which version it runs. A forked child
    /// has no lease. A table that is not from a store answers always, and has no word.
    lease: Option<ForkWord>,
    /// The machine's clock, or a simulation's. A process that stood still asks it before another thread of the mill had its turn.
    clock: Clock,
    /// The kernel's tick in which the lease was last seen to last.
    seen_in: AtomicU64,
    /// The router's name in the store.
    name: Option<Box<str>>,
    /// A version that another process runs, while the store has a lower one: a table below it is not the present one. 0: none.
    outdated_below: AtomicU64,
    /// The highest version that was replaced by [`refuse_below`](LiveTable::refuse_below).
    ran: AtomicU64,
    revival: OnceBox<Revival>,
}

impl fmt::Debug for LiveTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTable")
            .field("version", &self.version())
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl LiveTable {
    pub(crate) fn new(table: &RouteTable) -> Result<LiveTable> {
        Self::with(table, None, Clock::System, None)
    }

    /// A table that a store has under this name. It answers for ranges that move while it is [leased](LiveTable::lease), and in a forked
    /// child it [begins anew](LiveTable::begin_anew).
    pub(crate) fn of_store(table: &RouteTable, name: &str, clock: Clock) -> Result<LiveTable> {
        Self::with(table, Some(ForkWord::new(0)), clock, Some(name.into()))
    }

    fn with(
        table: &RouteTable,
        lease: Option<ForkWord>,
        clock: Clock,
        name: Option<Box<str>>,
    ) -> Result<LiveTable> {
        let live = LiveTable {
            ring: Ring::new(lease.is_some()),
            names: Names::new(),
            writer: ForkLock::new(),
            confirmed_ms: AtomicU64::new(0),
            lease,
            clock,
            seen_in: AtomicU64::new(0),
            name,
            outdated_below: AtomicU64::new(0),
            ran: AtomicU64::new(0),
            revival: OnceBox::new(),
        };
        live.replace(table)?;
        Ok(live)
    }

    /// What a forked child does when it is asked for a route and has no table of its own yet.
    pub(crate) fn set_revival(&self, revival: Revival) {
        // Another caller may have been faster.
        let _ = self.revival.set(Box::new(revival));
    }

    /// Gives a forked child its table; `false`: this process has one, or had.
    #[cold]
    pub(crate) fn revive(&self) -> Result<bool> {
        // ordering: Relaxed — a process is a fork from its first instruction on.
        let word = self.lease.as_ref().map(|lease| lease.shared().load(Ordering::Relaxed));
        match self.revival.get() {
            Some(revive) if matches!(word, Some(0 | NOT_LEASED_YET)) => revive().map(|()| true),
            _ => Ok(false),
        }
    }

    /// In a forked child, which has one thread: it has no lease yet, and no table.
    pub(crate) fn begin_anew(&self) {
        self.lease(NOT_YET);
        self.ring.begin_anew();
    }

    /// Whether it may answer for ranges that move. The clock decides, once a tick of the kernel: the lease of a process that was frozen is
    /// over when it wakes, and a tick is less than the part of a lease that is not used.
    #[inline]
    pub(crate) fn is_leased(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| {
            // ordering: Relaxed — the word says only how long the lease lasts, and what follows does not depend on what came before.
            let until = lease.shared().load(Ordering::Relaxed);
            let tick = self.clock.coarse_stamp().to_bits();
            // ordering: Relaxed — a thread that misses the tick of another reads the clock itself.
            until > NOT_LEASED_YET
                && (self.seen_in.load(Ordering::Relaxed) == tick || self.lasts(until, tick))
        })
    }

    fn lasts(&self, until: u64, tick: u64) -> bool {
        let lasts = until > ForkWord::OURS | self.clock.boot_ms();
        if lasts {
            // ordering: Relaxed — as above.
            self.seen_in.store(tick, Ordering::Relaxed);
        }
        lasts
    }

    /// The boot time at which the lease ends; 0: it has.
    pub(crate) fn leased_until_ms(&self) -> u64 {
        // ordering: Relaxed — as above.
        self.lease.as_ref().map_or(0, |lease| lease.shared().load(Ordering::Relaxed) & !ForkWord::OURS)
    }

    /// The store knows which version this process runs, up to this boot time. 0 ends the lease.
    pub(crate) fn lease(&self, until_ms: u64) {
        if let Some(lease) = &self.lease {
            // ordering: Release — the table that was read comes first. A reader finds it by the ring's own order.
            lease.shared().store(until_ms | ForkWord::OURS, Ordering::Release);
        }
    }

    /// Ends a lease that is over. Answers with the milliseconds until it will be.
    pub(crate) fn expire(&self, boot_ms: u64) -> Option<u64> {
        let until_ms = self.leased_until_ms();
        if until_ms <= NOT_YET {
            return None;
        }
        if until_ms > boot_ms {
            return Some(until_ms - boot_ms);
        }
        let word = self.lease.as_ref()?.shared();
        // The keeper may have renewed it meanwhile.
        // ordering: Relaxed, both — as in `is_leased`.
        let _ = word.compare_exchange(
            until_ms | ForkWord::OURS,
            ForkWord::OURS,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        None
    }

    /// Another process runs this version, and the table is older: until it has that version it answers for no gene, as a table in which each
    /// range moves and that has no lease.
    pub(crate) fn refuse_below(&self, least: u64) {
        // ordering: Relaxed, all — the keeper alone writes them, and what a caller is refused for does not depend on what came before.
        if least <= self.outdated_below.load(Ordering::Relaxed) {
            return;
        }
        self.outdated_below.store(least, Ordering::Relaxed);
        self.ran.fetch_max(self.version(), Ordering::Relaxed);
        self.lease(0);
        let _held = self.writer.lock();
        self.ring.publish(&vec![0; ring::GENES], 0);
    }

    /// The highest version that a living process runs by now, of those that the store knows; 0: none. The table need not be newer.
    pub(crate) fn lower_least(&self, highest: u64) {
        // Not 0: until it has the store's table it is outdated. Nor below what this process has run: that a row was wrong says nothing about
        // its own table.
        // ordering: Relaxed, all — as in `refuse_below`.
        let least = highest.max(self.ran.load(Ordering::Relaxed)).max(1);
        if least < self.outdated_below.load(Ordering::Relaxed) {
            self.outdated_below.store(least, Ordering::Relaxed);
        }
    }

    /// Whether the store's table is known to be older than another process' table.
    pub(crate) fn is_outdated(&self) -> bool {
        self.version() < self.least()
    }

    /// The lowest version that may be the present one.
    pub(crate) fn least(&self) -> u64 {
        // ordering: Relaxed — see `refuse_below`.
        self.version().max(self.outdated_below.load(Ordering::Relaxed))
    }

    /// Why it does not answer for a gene whose range moves.
    #[cold]
    pub(crate) fn lease_lost(&self, gene: Gene) -> Error {
        let name = self.router();
        if self.is_outdated() {
            return Error::new(
                Code::StoreWentBackwards,
                format!(
                    "router `{name}`: the store's table is older than version {}, which another process runs: the store was restored from a backup or has lost a change; store the present table with a higher version, `keymill route put`",
                    self.least()
                ),
            );
        }
        if self.version() == 0 {
            return Error::new(
                Code::LeaseLost,
                format!("router `{name}`: this process is a fork that has not read the table yet; it answers as soon as the store does"),
            )
            .after(LOST_AGAIN);
        }
        Error::new(
            Code::LeaseLost,
            format!(
                "router `{name}`: the range of gene {gene} moves to another shard, and this process could not tell the store in time that it follows, so it may have missed a step; it answers again as soon as the store does (other ranges are not affected). If the mill was closed, open another one"
            ),
        )
        .after(LOST_AGAIN)
    }

    /// The word of a gene, and the version of its table.
    #[inline]
    pub(crate) fn word(&self, gene: Gene) -> (RouteWord, u64) {
        let (word, version) = self.ring.word(gene.get());
        (RouteWord(word), version)
    }

    /// The name with this number of a [`RouteWord`].
    #[inline]
    pub(crate) fn name(&self, number: u16) -> &str {
        self.names.get(number)
    }

    /// The router's name in the store; empty where the table is not from a store.
    pub(crate) fn router(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn version(&self) -> u64 {
        self.ring.version()
    }

    /// The store has said that this table is its own.
    pub(crate) fn confirm(&self, boot_ms: u64) {
        // ordering: Relaxed — a statistic.
        self.confirmed_ms.store(boot_ms.max(1), Ordering::Relaxed);
    }

    /// How long ago the store confirmed the table; `None` where it is not from a store.
    pub(crate) fn age_ms(&self, boot_ms: u64) -> Option<u64> {
        // ordering: Relaxed — a statistic.
        let confirmed = self.confirmed_ms.load(Ordering::Relaxed);
        (confirmed > 0).then(|| boot_ms.saturating_sub(confirmed))
    }

    /// Replaces the table. `false`: it is the present one.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: the version is lower, or it is the same and the table is another one. The old table stays.
    pub(crate) fn replace(&self, table: &RouteTable) -> Result<bool> {
        let _held = self.writer.lock();
        let (version, least) = (table.version(), self.least());
        if version < least {
            return Err(refused(&format!("its version {version} is lower than {least}, the present one")));
        }
        let numbers = self.names.numbers(table.names())?;
        let words = table.words(&numbers);
        if version == self.ring.version() {
            if self.ring.has(&words) {
                return Ok(false);
            }
            return Err(refused(&format!(
                "it differs from the present table, and both are version {version}; raise `version` with each change"
            )));
        }
        self.ring.publish(&words, version);
        // A forked child, which begins without a table, is not behind another process.
        // ordering: Relaxed — see `refuse_below`.
        self.outdated_below.store(0, Ordering::Relaxed);
        Ok(true)
    }
}

/// The end of a lease that a forked child has not had yet.
const NOT_YET: u64 = 1;
const NOT_LEASED_YET: u64 = ForkWord::OURS | NOT_YET;

/// When to ask again for a range that moves, after the lease was lost.
const LOST_AGAIN: std::time::Duration = std::time::Duration::from_millis(500);

fn refused(why: &str) -> Error {
    Error::new(Code::InvalidConfig, format!("the route table is refused: {why}"))
}
