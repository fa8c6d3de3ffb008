//! The public verbs, which every language translates. No language has verbs of its own.
//!
//! Each verb begins in `enter.rs`: it asks whether this process is a fork (a word that the kernel wipes) and whether the mill is
//! closed, runs the verb, and counts the error.
//! Only plain types cross: `u64`, UTF-8 text, buffers of the caller, an opaque mill and source. Configuration crosses as one
//! string, so no language can lack an option.

mod business;
mod enter;
mod handle;
#[cfg(feature = "moves")]
mod moves;
mod operate;
mod order_numbers;
pub(crate) mod router;
mod source;
pub(crate) mod text;

use std::fmt;
use std::sync::{Arc, Weak};

use crate::config::{Environment, MillConfig, default_mill};
use crate::engine::metrics;
use crate::engine::stats::Stats;
use crate::engine::{SharedMill, SharedSource};
use crate::error::fault::Absence;
use crate::error::{Error, Result, printable};
use crate::monitoring::events::Event;
use crate::monitoring::mill_counters::{Latency, MillCounters};
use crate::request::reservation::{Key, Scheme};
use crate::store::{Facts, Fault};
use crate::time::Clock;

pub use crate::spec::Kind;
pub use crate::store::ListedRow;
pub use business::Heat;
pub use handle::{Handle, Iter};
#[cfg(feature = "moves")]
pub use moves::{FinishedMove, MoveOptions, MoveStatus, Moves, Moving};
pub use operate::{Change, OldRow, Periods, Repair, ReservedAhead, SourceStatus};
pub use order_numbers::{ORDER_KEYS_VARIABLE, OrderNo, OrderNumbers};
pub use router::{Route, Router, Stored, StoredRouter};

/// How many rows of a table are listed.
const MOST_LISTED: usize = 1000;

/// The rows of one of keymill's own tables: see [`Mill::stored_rows`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRows {
    /// The table.
    pub table: String,
    /// Its rows, without those that a bank has beside its record; of `keymill_worker` the pools.
    pub rows: Vec<ListedRow>,
    /// Whether the table has more.
    pub has_more: bool,
}
pub use source::Source;

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
    /// Opens a mill from one string: `sqlite:FILE`, `memory:`, `mysql://user:password@host:port/database`, `postgres://…` and
    /// `redis://…` alike, or `file:CONFIG.toml`. An empty string is refused, because it is usually a missing setting. Nothing is
    /// connected until a source needs it, so a program starts even if its store is down.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: what is wrong and what is valid.
    pub fn open(config: &str) -> Result<Mill> {
        Mill::open_in(config, &Environment::of_process())
    }

    /// As [`Mill::open`], in an environment that is not the process's.
    pub(crate) fn open_in(config: &str, environment: &Environment) -> Result<Mill> {
        let shared = SharedMill::open(MillConfig::parse_in(config, environment)?)?;
        Ok(Mill { shared: Arc::new(shared) })
    }

    /// Opens the mill that `KEYMILL_CONFIG` names, else `sqlite:keymill.db`; an empty variable is refused. A file that is created
    /// gives an event, `store_created`.
    ///
    /// # Errors
    /// As [`Mill::open`].
    pub fn open_default() -> Result<Mill> {
        Mill::open(&default_mill()?)
    }

    /// A source, named by one string: `segment:orders?step=1000`, `snowflake:tx?worker=5`,
    /// `serial:cust_info/custid?date=yyyyMMdd&number=000000`. Asking again gives the same source.
    ///
    /// # Errors
    /// `INVALID_CONFIG` with the valid kinds, options or values; `LAYOUT_ENDED`; `CLOSED`.
    pub fn source(&self, spec: &str) -> Result<Source> {
        self.source_in(spec, None)
    }

    /// As [`Mill::source`], for a program with a time zone of its own.
    pub(crate) fn source_in(&self, spec: &str, program_zone: Option<&str>) -> Result<Source> {
        self.shared.enter(|_| {
            let spec = self.shared.config.spec_in(spec, program_zone)?;
            let shared = SharedSource::open(&self.shared, spec)?;
            Ok(Source { shared: Arc::new(shared) })
        })
    }

    /// Closes for good: every later call answers `CLOSED`; unused numbers go back to the store where they can.
    /// A second close does nothing.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Keeps no mill open.
    pub(crate) fn downgrade(&self) -> Weak<SharedMill> {
        Arc::downgrade(&self.shared)
    }

    /// `None`: its last copy, source and handle are gone.
    pub(crate) fn upgrade(mill: &Weak<SharedMill>) -> Option<Mill> {
        mill.upgrade().map(|shared| Mill { shared })
    }

    /// As [`Mill::close`], without waiting for the store.
    pub(crate) fn begin_close(&self) {
        self.shared.begin_close();
    }

    /// Whether the mill was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Every figure as Prometheus text. In a forked child the figures begin with its first call.
    #[must_use]
    pub fn metrics(&self) -> String {
        let routers = &self.shared.routers;
        let figures =
            self.shared.figures(|engine| metrics::render(&engine.counters, &engine.all_stats(), routers));
        figures.unwrap_or_else(|| metrics::render(&MillCounters::default(), &[], routers))
    }

    /// How long reservations took.
    #[must_use]
    pub fn latency(&self) -> Latency {
        self.shared.figures(|engine| engine.counters.latency()).unwrap_or_default()
    }

    /// Every open source's figures, by name.
    #[must_use]
    pub fn stats(&self) -> Vec<Stats> {
        self.shared.figures(crate::engine::Engine::all_stats).unwrap_or_default()
    }

    /// Takes the events that happened since the last call; at most the last 256 are kept.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.shared.figures(|engine| engine.events.drain()).unwrap_or_default()
    }

    /// Takes the oldest event that was not taken yet, for callers with room for one at a time.
    #[must_use]
    pub fn next_event(&self) -> Option<Event> {
        self.shared.figures(|engine| engine.events.pop())?
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

    /// The settings of the application's database that [`store_of`](crate::store_of) ignored, by their names; `+N`: so many more.
    #[must_use]
    pub fn ignored(&self) -> &[String] {
        &self.shared.config.ignored
    }

    /// What the store says about itself: dialect, version, durability.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_REFUSED`, `CLOSED`.
    pub fn facts(&self) -> Result<Facts> {
        let mut facts =
            self.shared.on_store(self.shared.config.command_line(), |store| Ok(store.facts()?))?;
        // Texts of a server.
        for text in [&mut facts.version].into_iter().chain(&mut facts.durability).chain(&mut facts.warnings) {
            *text = printable(std::mem::take(text));
        }
        Ok(facts)
    }

    /// The rows that the store has in keymill's own tables of sources and of leased workers, in the order of their names, 1000 of each
    /// table at most. For a look from outside: creates nothing, and a table that is not there has no row. Tables of other names and of
    /// other programs are not looked at. A table that this login may not read is left out.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_REFUSED` (this login may read neither table), `CLOSED`.
    pub fn stored_rows(&self) -> Result<Vec<StoredRows>> {
        let keys = [
            Key::segment(Scheme::Keymill, Scheme::Keymill.default_table(), ""),
            Key::pool(Scheme::Worker.default_table(), ""),
        ];
        self.shared.on_store(self.shared.config.command_line(), move |store| {
            let mut listed = Vec::with_capacity(keys.len());
            let mut forbidden = None;
            for key in &keys {
                let mut rows = match store.list_rows(key, MOST_LISTED + 1) {
                    // MySQL and MariaDB say this of a table that is not there, too.
                    Err(fault) if fault.absence() == Some(Absence::Forbidden) => {
                        forbidden = Some(fault);
                        continue;
                    }
                    rows => rows?,
                };
                let has_more = rows.len() > MOST_LISTED;
                rows.truncate(MOST_LISTED);
                for row in &mut rows {
                    row.name = printable(std::mem::take(&mut row.name));
                }
                listed.push(StoredRows { table: key.table.clone(), rows, has_more });
            }
            match forbidden {
                Some(fault) if listed.is_empty() => Err(fault.into()),
                _ => Ok(listed),
            }
        })
    }

    /// Creates the tables that these sources lack in the store; without sources, keymill's own tables. Returns the statements that
    /// were carried out; of a dry run those that would be, which are all where the store cannot be read.
    ///
    /// # Errors
    /// `INVALID_CONFIG` for a bad spec, `STORE_UNAVAILABLE`, `STORE_REFUSED` (a missing right, a table of another shape).
    pub fn init(&self, specs: &[&str], change: Change) -> Result<Vec<String>> {
        Ok(self.tables(specs, change)?.into_iter().flat_map(|table| table.statements).collect())
    }

    /// As [`Mill::init`], table by table, existing ones included.
    ///
    /// # Errors
    /// As [`Mill::init`].
    pub fn tables(&self, specs: &[&str], change: Change) -> Result<Vec<Table>> {
        let mut keys: Vec<Arc<Key>> = Vec::new();
        if specs.is_empty() {
            keys.extend([Key::of_route("keymill"), Key::of_readers("keymill")].map(Arc::new));
        }
        for spec in if specs.is_empty() { &["segment:keymill", "snowflake:keymill"] } else { specs } {
            let key = self.shared.catch_panic(|| self.shared.config.spec(spec))?.key;
            // A ticket's step is part of its table's definition; a table with another step is refused.
            let table =
                |key: &Key| (key.scheme, key.table.clone(), key.scheme.is_ticket().then_some(key.step));
            if keys.iter().all(|known| table(known) != table(&key)) {
                keys.push(key);
            }
        }
        let has_tables = self.shared.config.store.is_sql();
        self.shared.on_store(self.shared.config.command_line(), move |store| {
            let mut tables: Vec<Table> = Vec::new();
            if !change.is_dry() {
                // A table that is refused is found before another one is made.
                for key in &keys {
                    let looked = store.init(std::slice::from_ref(key), true);
                    looked.map_err(|fault| fault.without_context().with_context("creating tables"))?;
                }
            }
            for key in &keys {
                // One at a time, so that each statement has its table.
                let made = store.init(std::slice::from_ref(key), change.is_dry());
                let statements =
                    made.map_err(|fault| if change.is_dry() { fault } else { naming_made(fault, &tables) })?;
                tables.push(Table { scheme: key.scheme, name: key.table.clone(), statements });
            }
            if !has_tables {
                tables.clear();
            }
            Ok(tables)
        })
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
        self.shared.enter(|engine| match self.shared.clock() {
            Clock::Manual(clock) => {
                move_it(clock);
                engine.clock_moved()
            }
            Clock::System => {
                Err(Error::argument("this mill runs on the machine's clock; open it with clock=manual"))
            }
        })
    }
}

/// The fault of `init`, with the tables that it has made before.
fn naming_made(fault: Fault, tables: &[Table]) -> Fault {
    let made = tables.iter().filter(|table| !table.statements.is_empty());
    let names: Vec<_> = made.map(|table| format!("`{}`", table.name)).collect();
    if names.is_empty() { fault } else { fault.and(&format!("; made before that: {}", names.join(", "))) }
}

/// An empty list with room for `count` of these.
pub(crate) fn room<T>(count: usize, what: &str) -> Result<Vec<T>> {
    let mut list = Vec::new();
    match list.try_reserve_exact(count) {
        Ok(()) => Ok(list),
        Err(_) => Err(Error::argument(format!("{count} {what} do not fit into memory; take them in parts"))),
    }
}

/// A table, or a sequence, that sources need.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// How it keeps numbers.
    pub scheme: Scheme,
    /// Its name.
    pub name: String,
    /// The statements that create it, comments that begin with `--` included: one, or with several stores one for each that lacks
    /// it. Empty where the table exists.
    pub statements: Vec<String>,
}

/// What an id or a serial number is made of. Parts that its kind does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Parts {
    /// When a snowflake was made: milliseconds since 1970.
    pub time_ms: Option<i64>,
    /// The data centre of a snowflake whose source was given its worker as `DC+N`.
    pub datacenter: Option<u64>,
    /// A snowflake's worker; within its data centre where there is one.
    pub worker: Option<u64>,
    /// A snowflake's sequence.
    pub sequence: Option<u64>,
    /// The gene of a business id.
    pub gene: Option<u16>,
    /// A serial number's date part.
    pub date: Option<String>,
    /// A segment id, or the number of a serial or of a business id.
    pub number: Option<u64>,
}

impl Parts {
    /// The parts as `name, value`, in the order people read them; time as RFC 3339.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = Vec::new();
        if let Some(ms) = self.time_ms {
            fields.push(("time", crate::layout::rfc3339(ms)));
        }
        let texts = [
            ("datacenter", self.datacenter.map(|n| n.to_string())),
            ("worker", self.worker.map(|n| n.to_string())),
            ("sequence", self.sequence.map(|n| n.to_string())),
            ("gene", self.gene.map(|n| n.to_string())),
            ("date", self.date.clone()),
            ("number", self.number.map(|n| n.to_string())),
        ];
        fields.extend(texts.into_iter().filter_map(|(name, value)| Some((name, value?))));
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::FaultKind;

    #[test]
    fn an_init_that_fails_half_way_names_the_tables_that_it_has_made() {
        let table = |name: &str, statements: &[&str]| Table {
            scheme: Scheme::Keymill,
            name: name.to_owned(),
            statements: statements.iter().map(|statement| (*statement).to_owned()).collect(),
        };
        let fault = || Fault::new(FaultKind::Refused, "the table is refused; nothing was changed");
        let there = [table("a", &[])];
        assert_eq!(naming_made(fault(), &there), fault());
        let made = [table("a", &[]), table("b", &["CREATE TABLE b"]), table("c", &["CREATE TABLE c"])];
        let message = naming_made(fault(), &made).to_string();
        assert!(message.ends_with("; made before that: `b`, `c`"), "{message}");
    }
}
