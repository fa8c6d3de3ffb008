//! The router: which shard an id or a business key belongs to. Reading takes no lock and does no I/O.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::config::check_name;
use crate::engine::{Engine, SharedMill};
use crate::error::fault::{Absence, Fault, FaultKind};
use crate::error::task_error::TaskError;
use crate::error::{Error, Result, shown};
use crate::gene::{Gene, GeneKey, NUMBER_BITS};
use crate::request::reader::{LARGEST_VERSION, Reader};
use crate::request::reservation::Key;
use crate::router::{LONGEST_TEXT, LiveTable, RouteTable, RouteWord};
use crate::store::{StoredTable, no_stored_table, stored_table};
use crate::time::Clock;

use super::{Change, Mill};

/// Which shard an id or a business key belongs to, by a table of ranges over the 65 536 genes.
///
/// Copies are one router. A new table replaces the old one as a whole while other threads read; a bad table, or one of a lower
/// version, is refused and the old one stays.
///
/// ```
/// let router = keymill::Router::from_text(
///     r#"
///     version = 7
///     shards = ["s1", "s2"]
///     [[range]]
///     upper = 16383
///     shard = "s1"
///     [[range]]
///     upper = 65535
///     shard = "s2"
///     "#,
/// )?;
/// let route = router.route_key("buyer-42")?;
/// assert_eq!((route.gene.get(), route.shard, route.version), (56443, "s2", 7));
/// let id = 56443 << 47 | 1;
/// assert_eq!(router.route(id)?.shard, "s2");
/// # Ok::<(), keymill::Error>(())
/// ```
#[derive(Clone)]
pub struct Router {
    pub(crate) live: Arc<LiveTable>,
}

/// Where an id or a business key belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route<'r> {
    /// The gene: the virtual node of the ring.
    pub gene: Gene,
    /// The shard of the gene's range, as the table says it. While the range moves, the shard that it leaves.
    pub shard: &'r str,
    /// The shard to read from. It differs from `shard` once the range moves and this id has been cut over.
    pub read: &'r str,
    /// The shard that decides a write: `shard`, until a move is finished. `None` while the route is [`paused`](Route::paused).
    pub write: Option<&'r str>,
    /// While the range moves, the second shard to write to: it follows `write`, and a write is acknowledged when both have it. See
    /// [`Router::is_current`].
    pub mirror: Option<&'r str>,
    /// Whether writes of the range wait, because its move is about to be finished: for about two polls, a second at most where all
    /// processes live. Take another route then; reads go on.
    pub paused: bool,
    /// A second shard that may serve ids of this key: only for a key whose range moves by number, where each id decides.
    pub also: Option<&'r str>,
    /// The version of the table.
    pub version: u64,
    /// The numbers of the names: `shard`, `read`, and `mirror`.
    pub(crate) numbers: (u16, u16, Option<u16>),
}

impl Route<'_> {
    /// The parts as `name, value`, in the order people read them.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![
            ("gene", self.gene.to_string()),
            ("shard", self.shard.to_owned()),
            ("read", self.read.to_owned()),
        ];
        fields.extend(self.write.map(|write| ("write", write.to_owned())));
        fields.extend(self.paused.then(|| ("paused", "yes".to_owned())));
        fields.extend(self.mirror.map(|mirror| ("mirror", mirror.to_owned())));
        fields.extend(self.also.map(|also| ("also", also.to_owned())));
        fields.push(("version", self.version.to_string()));
        fields
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router").field("version", &self.version()).finish_non_exhaustive()
    }
}

impl Router {
    /// A router whose table is in a file, TOML or JSON. The file is read once; [`Router::load`] replaces the table.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the file cannot be read. `INVALID_CONFIG`: every fault of the table.
    pub fn open(file: impl AsRef<Path>) -> Result<Router> {
        let file = file.as_ref();
        let in_file = |error: Error| Error {
            message: format!("`{}`: {}", shown(&file.to_string_lossy()), error.message),
            ..error
        };
        let text = read_document(file)
            .map_err(|e| in_file(Error::argument(format!("reading the route table failed: {e}"))))?;
        Router::from_text(&text).map_err(in_file)
    }

    /// A router with this table: TOML, or JSON if the text begins with a brace.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: every fault of the table.
    pub fn from_text(text: &str) -> Result<Router> {
        Ok(Router { live: Arc::new(LiveTable::new(&RouteTable::parse(text)?)?) })
    }

    /// Replaces the table of a router from a file or a text. `false`: this table is the present one, and nothing was changed.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the router follows the table of a store. `INVALID_CONFIG`: every fault of the table, or its version is not higher
    /// than the present one. The old table stays.
    pub fn load(&self, text: &str) -> Result<bool> {
        // Another version than the store's would say that the store went back.
        if !self.live.router().is_empty() {
            return Err(Error::argument(format!(
                "router `{}` follows the table of its store; store another one with `keymill route put`",
                shown(self.live.router())
            )));
        }
        self.live.replace(&RouteTable::parse(text)?)
    }

    /// Where an id of 64 bits belongs. The type says the form: [`Router::route_wide`] is for ids of 128 bits, the small ones of gene 0
    /// included.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the id is 2^63 or more. `LEASE_LOST`: its range moves to another shard, and this process could not tell the
    /// store in time that it follows, so it may have missed a step. `STORE_WENT_BACKWARDS`: another process runs a later table than the
    /// store has.
    #[inline]
    pub fn route(&self, id: u64) -> Result<Route<'_>> {
        self.served(Gene::of_id(id)?, id & ((1 << NUMBER_BITS) - 1))
    }

    /// Where an id of 128 bits belongs.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the id has not the form of a wide id. `LEASE_LOST` and `STORE_WENT_BACKWARDS` as [`Router::route`].
    #[inline]
    pub fn route_wide(&self, id: u128) -> Result<Route<'_>> {
        self.served(Gene::of_wide(id)?, id as u64 & i64::MAX as u64)
    }

    /// Where an id belongs whose bytes are in big-endian order: 8 of them, or 16 of a wide id.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: another length, or not the form of an id. `LEASE_LOST` and `STORE_WENT_BACKWARDS` as [`Router::route`].
    pub fn route_bytes(&self, id: &[u8]) -> Result<Route<'_>> {
        if let Ok(id) = id.try_into() {
            return self.route(u64::from_be_bytes(id));
        }
        match id.try_into() {
            Ok(id) => self.route_wide(u128::from_be_bytes(id)),
            Err(_) => Err(Error::argument(format!(
                "an id of {} bytes; ids have 8 bytes, or 16 where the source is `wide=on`",
                id.len()
            ))),
        }
    }

    /// Where the ids of a business key belong.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the key is too long. `LEASE_LOST` and `STORE_WENT_BACKWARDS` as [`Router::route`].
    #[inline]
    pub fn route_key<'k>(&self, key: impl Into<GeneKey<'k>>) -> Result<Route<'_>> {
        self.route_gene(Gene::of(key)?)
    }

    /// Where the ids of a gene belong.
    ///
    /// # Errors
    /// `LEASE_LOST` and `STORE_WENT_BACKWARDS` as [`Router::route`].
    #[inline]
    pub fn route_gene(&self, gene: Gene) -> Result<Route<'_>> {
        let (word, version) = self.live.word(gene);
        if word.moves() {
            return self.moving(gene, word, version, None);
        }
        Ok(self.staying(gene, word, version))
    }

    #[inline]
    fn served(&self, gene: Gene, number: u64) -> Result<Route<'_>> {
        let (word, version) = self.live.word(gene);
        if word.moves() {
            return self.moving(gene, word, version, Some(number));
        }
        Ok(self.staying(gene, word, version))
    }

    #[inline]
    fn staying(&self, gene: Gene, word: RouteWord, version: u64) -> Route<'_> {
        let number = word.shard();
        let shard = self.live.name(number);
        Route {
            gene,
            shard,
            read: shard,
            write: Some(shard),
            mirror: None,
            paused: false,
            also: None,
            version,
            numbers: (number, number, None),
        }
    }

    /// Of a range that moves; without a number the answer for a key, where the number in an id may decide.
    #[inline]
    fn moving(&self, gene: Gene, word: RouteWord, version: u64, number: Option<u64>) -> Result<Route<'_>> {
        if !self.live.is_leased() {
            return self.unleased(gene, number);
        }
        let (read, number_decides) = match number {
            Some(number) => (word.read(number + u64::from(gene.get())), false),
            None => word.read_gene(),
        };
        let (old, new) = (self.live.name(word.shard()), self.live.name(word.to()));
        let paused = word.is_paused();
        Ok(Route {
            gene,
            shard: old,
            read: if read == word.shard() { old } else { new },
            write: (!paused).then_some(old),
            mirror: (!paused).then_some(new),
            paused,
            also: number_decides.then_some(new),
            version,
            numbers: (word.shard(), read, (!paused).then_some(word.to())),
        })
    }

    /// Whether a write by this route may still be committed: the present table says the same about where the ids of its gene are written,
    /// and while the range moves, this process may answer for it. Steps that move only reads do not count. Asks no store and takes no lock.
    ///
    /// A write while the range moves holds a transaction open on both shards, and asks this before it commits them, the one of
    /// [`Route::write`] first: see *A write while its range moves* on the page `moving-a-shard.md`. If the answer is no, roll both back, take
    /// a new route, and do the work again. A paused route is never current.
    ///
    /// ```
    /// let moving = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\nto = \"s2\"\n";
    /// let router = keymill::Router::from_text(moving)?;
    /// let route = router.route(5)?;
    /// assert_eq!((route.write, route.mirror), (Some("s1"), Some("s2")));
    /// assert!(router.is_current(&route));
    /// router.load("version = 2\n[[range]]\nupper = 65535\nshard = \"s2\"\n")?;
    /// assert!(!router.is_current(&route));
    /// # Ok::<(), keymill::Error>(())
    /// ```
    #[must_use]
    pub fn is_current(&self, route: &Route<'_>) -> bool {
        self.writes(route.gene, route.write, route.mirror)
    }

    /// Whether the ids of this gene are written to these shards now.
    pub(crate) fn writes(&self, gene: Gene, write: Option<&str>, mirror: Option<&str>) -> bool {
        let (word, _) = self.live.word(gene);
        let to = word.moves().then(|| self.live.name(word.to()));
        write == Some(self.live.name(word.shard()))
            && mirror == to
            && (to.is_none() || !word.is_paused() && self.live.is_leased())
    }

    /// The answer without a lease: a forked child gets a table of its own, another process is refused.
    #[cold]
    fn unleased(&self, gene: Gene, number: Option<u64>) -> Result<Route<'_>> {
        if self.live.revive()? {
            return number.map_or_else(|| self.route_gene(gene), |number| self.served(gene, number));
        }
        Err(self.live.lease_lost(gene))
    }

    /// The version of the present table.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.live.version()
    }

    /// How long ago the store confirmed the present table; `None` where the table is not from a store.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.live.age_ms(Clock::System.boot_ms()).map(Duration::from_millis)
    }
}

/// What [`Mill::put_routes`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// The version that the store had; `None` where it had no table of this name.
    pub before: Option<u64>,
    /// The version that it has now, or would have.
    pub after: u64,
}

/// A route table that the store has: see [`Mill::stored_routers`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRouter {
    /// The router's name.
    pub name: String,
    /// The version of its table.
    pub version: u64,
    /// The shards that its ranges name, or the faults of the table.
    pub shards: Result<Vec<String>>,
    /// The processes that follow it.
    pub readers: Result<Vec<Reader>>,
}

/// How often a table is stored again after another process has changed it meanwhile.
const ATTEMPTS: u32 = 10;

impl Mill {
    /// The router of this name, whose table is in the store. The mill reads the table every 10 s, every second while one of its
    /// ranges moves, and keeps a row that says which version it runs (`reader_lease=10s`). Asking again gives the same router. If the
    /// store is lost, the router goes on with the table that it has (see [`Router::age`]), except for ranges that move.
    ///
    /// # Errors
    /// `STORE_REFUSED`: the store has no table of this name; `INVALID_CONFIG`: every fault of the table; `STORE_UNAVAILABLE`,
    /// `CLOSED`.
    pub fn router(&self, name: &str) -> Result<Router> {
        self.shared.enter(|engine| {
            check_name(name, "the router's name")?;
            let routers = &self.shared.routers;
            if let Some(table) = routers.find(name).filter(|table| table.is_leased()) {
                return Ok(Router { live: table.clone() });
            }
            if routers.find(name).is_none() && routers.iter().count() >= engine.max_sources() {
                return Err(Error::argument(format!(
                    "router `{}` exceeds `max_sources={}`; do not make names from user input",
                    shown(name),
                    engine.max_sources()
                )));
            }
            let line = self.shared.config.command_line();
            let opened = match engine.open_router(name) {
                Ok(table) => table,
                // A forked child, or a process that the store has not heard for long: it has a table.
                Err(TaskError::Fault(_)) if routers.find(name).is_some() => routers.find(name).cloned(),
                Err(failed) => return Err(failed.error(line)),
            };
            let live = opened.ok_or_else(|| no_stored_table(name).error(line))?;
            let (mill, name) = (Arc::downgrade(&self.shared), name.to_owned());
            live.set_revival(Box::new(move || {
                let mill = mill.upgrade().ok_or_else(|| Engine::closed_error(None))?;
                let line = mill.config.command_line();
                mill.enter(|engine| engine.open_router(&name).map(drop).map_err(|failed| failed.error(line)))
            }));
            Ok(Router { live })
        })
    }

    /// The route table that the store has under this name, as text, for one look: this process is not noted as a reader, so do not
    /// route the writes of a program by it.
    ///
    /// # Errors
    /// `STORE_REFUSED`: the store has no table of this name, or two. `INVALID_CONFIG`: every fault of the table. `STORE_UNAVAILABLE`,
    /// `CLOSED`.
    pub fn route_table(&self, router: &str) -> Result<String> {
        self.shared.catch_panic(|| check_name(router, "the router's name"))?;
        self.shared.route_table(router)
    }

    /// The route tables that the store has, in the order of their names. For a look from outside: creates nothing.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`, `STORE_REFUSED`, `CLOSED`.
    pub fn stored_routers(&self) -> Result<Vec<StoredRouter>> {
        self.routers_if_permitted()?
    }

    /// The same; the inner error: this login may not read the table.
    pub(crate) fn routers_if_permitted(&self) -> Result<Result<Vec<StoredRouter>>> {
        let key = Key::of_route("");
        let line = self.shared.config.command_line();
        let listed = self.shared.on_store(line, move |store| {
            let listed = match store.list_routes(&key) {
                Err(fault) if fault.absence() == Some(Absence::Forbidden) => return Ok(Err(fault)),
                listed => listed?,
            };
            // A store that is gone is asked once, and not for each of its routers.
            let mut outage: Option<Fault> = None;
            let with_readers = |(name, stored): (String, StoredTable)| {
                let readers = match &outage {
                    Some(fault) => Err(fault.clone()),
                    None => store.readers(&Key::of_readers(&name)),
                };
                outage = readers.as_ref().err().filter(|fault| fault.kind.is_outage()).cloned();
                (name, stored, readers)
            };
            Ok(Ok(listed.into_iter().map(with_readers).collect::<Vec<_>>()))
        })?;
        let listed = match listed {
            Ok(listed) => listed,
            Err(fault) => return Ok(Err(self.shared.failed(fault.error(line)))),
        };
        let routers = listed.into_iter().map(|(name, stored, readers)| {
            let shards = stored.table(&name).map(|table| {
                let names: std::collections::BTreeSet<&str> = table.names().collect();
                names.into_iter().map(str::to_owned).collect()
            });
            let readers = readers.map(|readers| readers.all).map_err(|fault| fault.error(line));
            StoredRouter { name, version: stored.version, shards, readers }
        });
        Ok(Ok(routers.collect()))
    }

    /// Stores a route table under a name, for every process that asks [`Mill::router`] for it. The version of the table has to be
    /// higher than the one in the store: of two processes that change a table at once, one is refused. Where the store's row has a
    /// version above 2^52, which no table may have, it has to be higher than the version of every process that follows the table. Creates the
    /// database's table if it is missing.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: every fault of the table, or its version is not high enough; `STORE_UNAVAILABLE`,
    /// `STORE_REFUSED`, `CLOSED`.
    pub fn put_routes(&self, name: &str, table: &str, change: Change) -> Result<Stored> {
        self.shared.catch_panic(|| check_name(name, "the router's name"))?;
        let after = self.shared.catch_panic(|| RouteTable::parse(table))?.version();
        let (key, text) = (Arc::new(Key::of_route(name)), table.to_owned());
        let readers = Arc::new(Key::of_readers(name));
        let stored = self.shared.on_store(self.shared.config.command_line(), move |store| {
            for _ in 0..ATTEMPTS {
                // A dry run creates nothing, and a table that is not there yet has no row.
                let is_missing = !store.init(std::slice::from_ref(&key), change.is_dry())?.is_empty();
                // For the processes that will follow it.
                let lacks_readers = !store.init(std::slice::from_ref(&readers), change.is_dry())?.is_empty()
                    && change.is_dry();
                let found = if is_missing && change.is_dry() { None } else { store.read_route(&key, 0)? };
                let before = found.as_ref().map(|found| found.version);
                // No table may have such a version, so none could be stored above it.
                let is_lost = before > Some(LARGEST_VERSION);
                let followed = if is_lost && !lacks_readers { store.readers(&readers)?.highest() } else { 0 };
                let above = if is_lost { Some(followed) } else { before };
                let refused = found.as_ref().and_then(|found| found.refused.clone());
                if let Some(refused) = refused.filter(|_| above >= Some(after)) {
                    return Err(Fault::new(FaultKind::Refused, refused).into());
                }
                let is_there =
                    found.is_some_and(|found| found.version == after && found.text.as_deref() == Some(&text));
                if !is_there && let Some(above) = above.filter(|above| *above >= after) {
                    return Ok(Put::TooLow { above, is_followed: is_lost });
                }
                // A table that is there is stored again: of several stores one may lack it.
                if change.is_dry() || store.replace_route(&key, before, (after, &text))? {
                    return Ok(Put::Done(Stored { before, after }));
                }
            }
            Err(Fault::new(
                FaultKind::Unavailable,
                "other processes changed the route table again and again; nothing was stored",
            )
            .into())
        });
        match stored? {
            Put::Done(stored) => Ok(stored),
            Put::TooLow { above, is_followed } => self.shared.catch_panic(|| {
                Err(Error::config(format!(
                    "{} version {above} of route table `{}`, and this one is {}version {after}; raise `version` above it",
                    if is_followed { "a living process runs" } else { "the store has" },
                    shown(name),
                    if above == after { "another table of " } else { "" }
                )))
            }),
        }
    }
}

/// What became of a table that was to be stored.
enum Put {
    Done(Stored),
    /// Its version is not above `above`: the version in the store, or, where that is too large for a table, the highest version that a
    /// process runs.
    TooLow {
        above: u64,
        is_followed: bool,
    },
}

impl SharedMill {
    /// The text of the table that the store has under this name.
    pub(super) fn route_table(&self, router: &str) -> Result<String> {
        let (line, router) = (self.config.command_line(), router.to_owned());
        self.on_store(line, move |store| {
            let stored = stored_table(store, &router)?;
            stored.table(&router)?;
            Ok(stored.text.unwrap_or_default())
        })
    }
}

/// The text of a file of a route table or a plan. No more than these may have is read: a longer one is refused by its length.
pub fn read_document(file: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(file)?.take(LONGEST_TEXT as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::store::RouteStore;
    use crate::store::memory::{Memory, MemoryStore};

    #[test]
    fn a_version_that_no_table_may_have_is_replaced_by_one_above_what_processes_run() {
        let mill = Mill::open("memory:too-large").expect("a mill");
        let mut store = MemoryStore::new(Memory::named("too-large"));
        let text = |version: u64| format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"a\"\n");
        mill.put_routes("orders", &text(7), Change::Apply).expect("a table");
        let router = mill.router("orders").expect("a router");
        let lost = LARGEST_VERSION + 1;
        let key = Key::of_route("orders");
        assert_eq!(store.replace_route(&key, Some(7), (lost, &text(lost))), Ok(true));
        let refused = mill.route_table("orders").expect_err("no table has this version");
        assert!(refused.message.contains("its `version` has to be above that of every process"), "{refused}");
        for version in [6, 7] {
            let refused =
                mill.put_routes("orders", &text(version), Change::Apply).expect_err("it is followed");
            assert!(refused.message.starts_with("a living process runs version 7 of"), "{refused}");
        }
        for change in [Change::DryRun, Change::Apply] {
            let stored = mill.put_routes("orders", &text(8), change).expect("it is above");
            assert_eq!((stored.before, stored.after), (Some(lost), 8));
        }
        assert_eq!(mill.route_table("orders"), Ok(text(8)));
        drop(router);
    }

    #[test]
    fn a_table_whose_row_says_another_version_than_its_text_is_refused_by_every_verb_that_reads_it() {
        let mill = Mill::open("memory:two-versions").expect("a mill");
        let mut store = MemoryStore::new(Memory::named("two-versions"));
        let text = "version = 7\n[[range]]\nupper = 65535\nshard = \"a\"\n";
        assert_eq!(store.replace_route(&Key::of_route("orders"), None, (8, text)), Ok(true));
        let says = "its row says version 8, and its text version 7; store it again with `keymill route put`";
        let listed = mill.stored_routers().expect("an answer").remove(0);
        assert_eq!((listed.name.as_str(), listed.version), ("orders", 8));
        for refused in [
            listed.shards.map(drop),
            mill.route_table("orders").map(drop),
            mill.router("orders").map(drop),
            mill.moves("orders").and_then(|moves| moves.status()).map(drop),
        ] {
            let refused = refused.expect_err("which version is it?");
            assert_eq!(refused.code, Code::InvalidConfig, "{refused}");
            assert!(refused.message.contains(says), "{refused}");
        }
        let missing = "the store has no route table `other`; store one: `keymill ";
        for refused in [
            mill.route_table("other").map(drop),
            mill.router("other").map(drop),
            mill.moves("other").and_then(|moves| moves.status()).map(drop),
        ] {
            let refused = refused.expect_err("there is none");
            assert_eq!(refused.code, Code::StoreRefused, "{refused}");
            assert!(refused.message.starts_with(missing), "{refused}");
            assert!(refused.message.ends_with("route put 'other' FILE --yes`"), "{refused}");
        }
    }
}
