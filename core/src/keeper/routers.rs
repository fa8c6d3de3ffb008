//! The routers whose tables are in the store. The keeper reads the tables again from time to time, often while a range moves.
//!
//! Routers are added and never removed, as sources are, without a lock: a forked child finds a list that is whole, and its own
//! keeper goes on with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use once_cell::race::OnceBox;

use crate::error::task_error::TaskError;
use crate::error::{Error, Result};
use crate::monitoring::events::{Event, EventKind, Events};
use crate::request::reservation::Key;
use crate::router::LiveTable;
use crate::store::StoredTable;
use crate::store::contained_store::ContainedStore;
use crate::time::Clock;

use super::own_readers::OwnReaders;

/// How often a table is read.
const EVERY_MS: u64 = 10_000;
/// … while one of its ranges moves.
const EVERY_MS_MOVING: u64 = 1_000;
/// … at least, while the store fails.
const EVERY_MS_FAILING: u64 = 60_000;
/// … while the store fails and one of its ranges moves: the cut-over is not missed for longer.
const EVERY_MS_FAILING_MOVING: u64 = EVERY_MS;
/// How often the text of a table is read whose version is the known one: it may be another text, as after a restored backup.
const WHOLE_EVERY_MS: u64 = 60_000;

/// A router and the table in the store that it follows.
#[derive(Debug)]
pub(crate) struct Follower {
    pub(crate) name: String,
    pub(crate) live: Arc<LiveTable>,
    key: Key,
    /// Under which its readers are kept.
    pub(super) readers: Arc<Key>,
    /// Boot time at which the row of this process is renewed.
    renew_due_ms: AtomicU64,
    /// Renewals in a row that failed.
    renewals_failed: AtomicU32,
    /// A range of its table moves.
    moves: AtomicBool,
    /// Boot time of the next reading.
    due_ms: AtomicU64,
    /// Readings in a row that failed.
    failures: AtomicU32,
    /// Boot time at which the text is read again, of whatever version.
    whole_due_ms: AtomicU64,
}

impl Follower {
    pub(crate) fn new(name: &str, stored: &StoredTable, clock: Clock, boot_ms: u64) -> Result<Follower> {
        let table = stored.table(name)?;
        let live = Arc::new(LiveTable::of_store(&table, name, clock)?);
        live.confirm(boot_ms);
        let follower = Follower {
            name: name.to_owned(),
            live,
            key: Key::of_route(name),
            readers: Arc::new(Key::of_readers(name)),
            renew_due_ms: AtomicU64::new(0),
            renewals_failed: AtomicU32::new(0),
            moves: AtomicBool::new(table.moves()),
            due_ms: AtomicU64::new(0),
            failures: AtomicU32::new(0),
            whole_due_ms: AtomicU64::new(boot_ms + WHOLE_EVERY_MS),
        };
        follower.wait(boot_ms);
        Ok(follower)
    }

    /// Sets when the table is read next.
    fn wait(&self, boot_ms: u64) {
        // ordering: Relaxed, as of everything here — the keeper alone reads and writes it once the router is in the list.
        let failures = self.failures.load(Ordering::Relaxed);
        // ordering: Relaxed — as above.
        let (every, failing) = if self.moves.load(Ordering::Relaxed) {
            (EVERY_MS_MOVING, EVERY_MS_FAILING_MOVING)
        } else {
            (EVERY_MS, EVERY_MS_FAILING)
        };
        let pause = if failures == 0 { every } else { (every << failures.min(10)).min(failing) };
        // ordering: Relaxed — as above.
        self.due_ms.store(boot_ms + pause, Ordering::Relaxed);
    }

    /// The boot time at which there is something to do.
    fn due_at(&self) -> u64 {
        // ordering: Relaxed — see `wait`.
        self.due_ms.load(Ordering::Relaxed).min(self.renew_due_ms.load(Ordering::Relaxed))
    }

    /// The row of this process is renewed at this boot time.
    pub(super) fn renew_at(&self, boot_ms: u64) {
        // ordering: Relaxed — see `wait`.
        self.renew_due_ms.store(boot_ms, Ordering::Relaxed);
    }

    /// In a forked child: it has no row yet, and its parent's table may be old.
    fn begin_anew(&self) {
        self.live.begin_anew();
        // ordering: Relaxed, both — the child's keeper has not started.
        self.renew_due_ms.store(0, Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.due_ms.store(0, Ordering::Relaxed);
    }

    /// Reads the table; whether it is a newer one.
    pub(super) fn read_again(
        &self,
        store: &mut ContainedStore,
        boot_ms: u64,
    ) -> std::result::Result<bool, TaskError> {
        self.follow(store, boot_ms)
    }

    /// A living process runs this version, and the store has a lower one: the router answers nothing before the store has that version.
    pub(super) fn refuse_below(&self, least: u64) {
        self.live.refuse_below(least);
        // ordering: Relaxed — see `wait`. The table is looked for as often as that of a range that moves.
        self.moves.store(true, Ordering::Relaxed);
    }

    /// Renews the row of this process where that is due, or where the table `is_new`.
    fn renew(
        &self,
        store: &mut ContainedStore,
        own: &mut OwnReaders,
        is_new: bool,
        boot_ms: u64,
        events: &Events,
    ) {
        // ordering: Relaxed — see `wait`.
        if !is_new && self.renew_due_ms.load(Ordering::Relaxed) > boot_ms {
            return;
        }
        // ordering: Relaxed — see `wait`.
        let failures = self.renewals_failed.load(Ordering::Relaxed);
        let (failures, pause_ms) = match own.renew(store, self, failures, events) {
            Ok(pause_ms) => (0, pause_ms),
            Err(pause_ms) => (failures.saturating_add(1), pause_ms),
        };
        // ordering: Relaxed — see `wait`.
        self.renewals_failed.store(failures, Ordering::Relaxed);
        self.renew_at(own.clock.boot_ms() + pause_ms);
    }

    /// Reads the table in the store and takes it over if it is newer.
    fn follow(&self, store: &mut ContainedStore, boot_ms: u64) -> std::result::Result<bool, TaskError> {
        // After a failure, and from time to time, the text is compared too: a version says nothing about it.
        // ordering: Relaxed — see `wait`.
        let is_whole = self.failures.load(Ordering::Relaxed) > 0
            // ordering: Relaxed — see `wait`.
            || self.whole_due_ms.load(Ordering::Relaxed) <= boot_ms;
        let known = if is_whole { 0 } else { self.live.version() };
        let stored = store.ask(|store| store.read_route(&self.key, known))?;
        let stored = stored
            .ok_or_else(|| Error::config(format!("route table `{}` is gone from the store", self.name)))?;
        let least = self.live.least();
        if stored.version < least {
            return Err(TaskError::Error(Error::config(format!(
                "route table `{}` of the store went back to version {}; version {least} is the present one",
                self.name, stored.version
            ))));
        }
        let mut is_new = false;
        if stored.text.is_some() {
            let table = stored.table(&self.name)?;
            is_new = self.live.replace(&table)?;
            // ordering: Relaxed — see `wait`.
            self.moves.store(table.moves(), Ordering::Relaxed);
            // ordering: Relaxed — see `wait`.
            self.whole_due_ms.store(boot_ms + WHOLE_EVERY_MS, Ordering::Relaxed);
        }
        self.live.confirm(boot_ms);
        Ok(is_new)
    }

    fn poll(&self, store: &mut ContainedStore, own: &mut OwnReaders, boot_ms: u64, events: &Events) {
        // ordering: Relaxed — see `wait`.
        let is_due = self.due_ms.load(Ordering::Relaxed) <= boot_ms;
        let is_new = is_due && self.read(store, boot_ms, events);
        self.renew(store, own, is_new, boot_ms, events);
    }

    /// Reads the table; whether it is a newer one.
    fn read(&self, store: &mut ContainedStore, boot_ms: u64, events: &Events) -> bool {
        let followed = self.follow(store, boot_ms);
        let has_followed = matches!(followed, Ok(true));
        match followed {
            Ok(is_new) => {
                if is_new {
                    let message = format!("router `{}` has table version {}", self.name, self.live.version());
                    events.push(Event::new(EventKind::RouteLoaded, message));
                }
                // ordering: Relaxed — see `wait`.
                self.failures.store(0, Ordering::Relaxed);
            }
            Err(why) => {
                // ordering: Relaxed — see `wait`.
                let failed = self.failures.fetch_add(1, Ordering::Relaxed);
                // One event for the whole time: the metric says how long it lasts.
                if failed == 0 && !self.live.is_outdated() {
                    let version = self.live.version();
                    let message = format!("{why}; router `{}` goes on with version {version}", self.name);
                    events.push(Event::new(EventKind::RouteRefused, message));
                }
            }
        }
        self.wait(boot_ms);
        has_followed
    }
}

#[derive(Debug)]
struct Link {
    follower: Arc<Follower>,
    next: OnceBox<Link>,
}

/// The routers of a mill, in the order in which they were opened.
#[derive(Debug, Default)]
pub(crate) struct Routers {
    first: OnceBox<Link>,
}

impl Routers {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Follower>> {
        let mut at = &self.first;
        std::iter::from_fn(move || {
            let link = at.get()?;
            at = &link.next;
            Some(&link.follower)
        })
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Follower>> {
        self.iter().find(|follower| follower.name == name)
    }

    /// Adds a router; if another thread has added one of this name meanwhile, that one is the answer.
    pub(crate) fn add(&self, follower: Follower) -> &Arc<Follower> {
        let name = follower.name.clone();
        let mut own = Some(Box::new(Link { follower: Arc::new(follower), next: OnceBox::new() }));
        let mut at = &self.first;
        loop {
            if at.get().is_none()
                && let Some(link) = own.take()
                && let Err(link) = at.set(link)
            {
                // Another thread was faster at this place.
                own = Some(link);
            }
            if let Some(there) = at.get() {
                if there.follower.name == name {
                    return &there.follower;
                }
                at = &there.next;
            }
        }
    }

    /// The boot time of the next reading or renewal.
    pub(crate) fn due_at(&self) -> Option<u64> {
        self.iter().map(|follower| follower.due_at()).min()
    }

    /// A forked child starts its keeper.
    pub(crate) fn begin_anew(&self) {
        self.iter().for_each(|follower| follower.begin_anew());
    }

    /// Reads the table that is due for longest, or renews its row; `false` where none is.
    pub(crate) fn poll(
        &self,
        store: &mut ContainedStore,
        own: &mut OwnReaders,
        boot_ms: u64,
        events: &Events,
    ) -> bool {
        let due = |follower: &&Arc<Follower>| follower.due_at();
        let Some(first) = self.iter().min_by_key(due).filter(|first| due(first) <= boot_ms) else {
            return false;
        };
        first.poll(store, own, boot_ms, events);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::store::RouteStore;
    use crate::store::Store;
    use crate::store::memory::{Memory, MemoryStore};

    fn text(version: u64, shard: &str) -> String {
        format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"{shard}\"\n")
    }

    fn put(store: &mut MemoryStore, old: Option<u64>, version: u64, text: &str) {
        let put = store.replace_route(&Key::of_route("orders"), old, (version, text));
        assert_eq!(put, Ok(true));
    }

    fn follower(store: &mut MemoryStore) -> Follower {
        let stored = store.read_route(&Key::of_route("orders"), 0).expect("an answer").expect("a table");
        Follower::new("orders", &stored, Clock::System, 1000).expect("a table without faults")
    }

    /// Reads the table that is due; rows of readers are for other tests.
    fn poll(routers: &Routers, store: &mut ContainedStore, at: u64, events: &Events) {
        let mut own = OwnReaders::new(10_000, "test".into());
        routers.poll(store, &mut own, at, events);
        // ordering: Relaxed — one thread.
        routers.iter().for_each(|follower| follower.renew_due_ms.store(u64::MAX, Ordering::Relaxed));
    }

    fn asked(memory: &std::sync::Arc<Memory>) -> ContainedStore {
        let store: Box<dyn Store> = Box::new(MemoryStore::new(memory.clone()));
        store.into()
    }

    fn shard(follower: &Follower) -> String {
        let (word, _) = follower.live.word(crate::Gene::from(0));
        follower.live.name(word.shard()).to_owned()
    }

    #[test]
    fn a_newer_table_is_taken_over_and_a_bad_or_older_one_is_not() {
        let memory = Memory::new();
        let (mut store, mut polled) = (MemoryStore::new(memory.clone()), asked(&memory));
        put(&mut store, None, 5, &text(5, "a"));
        let router = follower(&mut store);
        let events = Events::new();
        router.read(&mut polled, 2000, &events);
        assert_eq!((router.live.version(), router.live.age_ms(2500)), (5, Some(500)));
        put(&mut store, Some(5), 6, &text(6, "b"));
        router.read(&mut polled, 3000, &events);
        assert_eq!((router.live.version(), shard(&router).as_str()), (6, "b"));
        put(&mut store, Some(6), 7, "version = 7");
        router.read(&mut polled, 4000, &events);
        put(&mut store, Some(7), 8, &text(9, "c"));
        router.read(&mut polled, 5000, &events);
        put(&mut store, Some(8), 4, &text(4, "c"));
        router.read(&mut polled, 6000, &events);
        memory.set_down(true);
        router.read(&mut polled, 7000, &events);
        assert_eq!((router.live.version(), shard(&router).as_str()), (6, "b"));
        assert_eq!(router.live.age_ms(7000), Some(4000), "confirmed last at 3000");
        memory.set_down(false);
        put(&mut store, Some(4), 10, &text(10, "d"));
        router.read(&mut polled, 8000, &events);
        assert_eq!((router.live.version(), shard(&router).as_str()), (10, "d"));
        let kinds: Vec<_> = events.drain().iter().map(|event| event.kind.name()).collect();
        assert_eq!(
            kinds,
            ["route_loaded", "route_refused", "route_loaded"],
            "one event for a time of failures"
        );
    }

    #[test]
    fn a_table_is_read_often_while_a_range_moves_and_seldom_while_the_store_fails() {
        let memory = Memory::new();
        let (mut store, mut polled) = (MemoryStore::new(memory.clone()), asked(&memory));
        put(&mut store, None, 5, &text(5, "a"));
        let routers = Routers::default();
        routers.add(follower(&mut store));
        let events = Events::new();
        poll(&routers, &mut polled, 1_000, &events);
        assert_eq!(routers.due_at(), Some(11_000));
        put(&mut store, Some(5), 6, &format!("{}to = \"b\"\n", text(6, "a")));
        poll(&routers, &mut polled, 10_999, &events);
        assert_eq!(routers.due_at(), Some(11_000), "it was not due");
        poll(&routers, &mut polled, 11_000, &events);
        assert_eq!(routers.due_at(), Some(12_000));
        memory.set_down(true);
        for (at, next) in [(12_000, 14_000), (14_000, 18_000), (1_000_000, 1_008_000)] {
            poll(&routers, &mut polled, at, &events);
            assert_eq!(routers.due_at(), Some(next));
        }
        poll(&routers, &mut polled, 2_000_000, &events);
        poll(&routers, &mut polled, 3_000_000, &events);
        poll(&routers, &mut polled, 4_000_000, &events);
        assert_eq!(routers.due_at(), Some(4_000_000 + EVERY_MS), "soon, because a range moves");
        memory.set_down(false);
        put(&mut store, Some(6), 7, &text(7, "b"));
        poll(&routers, &mut polled, 5_000_000, &events);
        memory.set_down(true);
        for at in (6..10).map(|n| n * 1_000_000) {
            poll(&routers, &mut polled, at, &events);
        }
        assert_eq!(routers.due_at(), Some(9_060_000));
    }

    #[test]
    fn another_text_of_the_known_version_is_told_within_a_minute_and_the_router_keeps_its_own() {
        let memory = Memory::new();
        let (mut store, mut polled) = (MemoryStore::new(memory.clone()), asked(&memory));
        put(&mut store, None, 6, &text(6, "a"));
        let router = follower(&mut store);
        let events = Events::new();
        // The backup has version 5, and an operator stores another table of version 6 before this process looks again.
        put(&mut store, Some(6), 5, &text(5, "a"));
        put(&mut store, Some(5), 6, &text(6, "b"));
        for at in (1..=6).map(|n| 1_000 + n * EVERY_MS) {
            router.read(&mut polled, at, &events);
        }
        let told = events.drain();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].message.contains("both are version 6"), "{}", told[0].message);
        assert_eq!(shard(&router), "a");
        assert_eq!(router.live.age_ms(1_000 + 6 * EVERY_MS), Some(EVERY_MS), "it is not confirmed");
        put(&mut store, Some(6), 7, &text(7, "b"));
        router.read(&mut polled, 1_000_000, &events);
        assert_eq!(shard(&router), "b");
    }

    #[test]
    fn stores_with_two_texts_of_one_version_open_no_router() {
        let split = Some("two texts".to_owned());
        let stored = StoredTable { split, ..StoredTable::new(5, Some(text(5, "a"))) };
        let refused = Follower::new("orders", &stored, Clock::System, 1000).expect_err("which of them?");
        assert_eq!((refused.code, refused.message.contains("two texts")), (Code::StoreRefused, true));
    }

    #[test]
    fn a_name_has_one_router() {
        let mut store = MemoryStore::new(Memory::new());
        put(&mut store, None, 5, &text(5, "a"));
        let routers = Routers::default();
        let first = routers.add(follower(&mut store)).clone();
        assert!(Arc::ptr_eq(routers.add(follower(&mut store)), &first));
        let mut other = follower(&mut store);
        other.name = "other".to_owned();
        assert!(!Arc::ptr_eq(routers.add(other), &first));
        assert_eq!(routers.iter().count(), 2);
    }
}
