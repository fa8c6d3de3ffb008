//! A router and the table in the store that it follows: when the table is read, and when the row of this process is renewed.
//!
//! A step of a move is stored only when every reader with a row that has not ended runs the version before. So while its row lasts, a
//! process is one version behind at most. It counts that time on its own boot clock, and a little shorter; when it is over, the process
//! answers for no range that moves. A row that was renewed in time goes on. After a row that was not, steps may have been made: the
//! process writes its row, reads the table after that, and only then answers again.

use std::sync::Arc;

use crate::error::task_error::TaskError;
use crate::error::{Code, Error, shown};
use crate::monitoring::events::{Event, EventKind, Events};
use crate::request::reservation::{Fault, Key};
use crate::router::{LiveTable, RouteTable};
use crate::store::contained_store::ContainedStore;
use crate::time::Clock;

use super::own_readers::{OwnReaders, WrittenRow};

/// How far above the store's version another process's is, so that it is more probably false than lost by the store.
const FAR: u64 = 1 << 32;

/// How often a table is read.
const EVERY_MS: u64 = 10_000;
/// … while one of its ranges moves.
const EVERY_MS_MOVING: u64 = 1_000;
/// … while writes of a range wait, or will with the next step: they wait for two readings.
const EVERY_MS_PAUSING: u64 = 200;
/// … at least, while the store fails.
const EVERY_MS_FAILING: u64 = 60_000;
/// … while the store fails and one of its ranges moves: the cut-over is not missed for longer.
const EVERY_MS_FAILING_MOVING: u64 = EVERY_MS;
/// How often the text of a table is read whose version is the known one: it may be another text, as after a restored backup.
const WHOLE_EVERY_MS: u64 = 60_000;

/// A router, as the keeper's thread follows it. Callers have its table only.
#[derive(Debug)]
pub(super) struct Follower {
    pub(super) table: Arc<LiveTable>,
    key: Key,
    /// Under which its readers are kept.
    readers: Arc<Key>,
    /// Boot time at which the row of this process is renewed.
    renew_due_ms: u64,
    /// Renewals in a row that failed.
    renewals_failed: u32,
    /// A range of its table moves, or the table is not known: it is read often.
    moves: bool,
    /// As [`RouteTable::pauses`].
    pauses: bool,
    /// Boot time of the next reading.
    due_ms: u64,
    /// Readings in a row that the store failed.
    failures: u32,
    /// Why the table was not read the last time, as it was reported.
    reported: Option<Reported>,
    /// The table of the store that was refused last.
    refused: Option<RefusedTable>,
    /// Boot time at which the text is read again, of whatever version.
    whole_due_ms: u64,
}

/// Why a table was not read.
#[derive(Debug, PartialEq, Eq)]
enum Reported {
    /// The store failed: one event for the whole time. The metric says how long it lasts.
    Outage,
    /// What the store has is refused.
    Refused(String),
}

/// A table that was refused. It is not parsed again.
#[derive(Debug)]
struct RefusedTable {
    version: u64,
    text: String,
    /// The lowest version that was accepted then.
    least: u64,
    error: Error,
}

impl Follower {
    /// Follows the table of a router that this process has not opened itself, but its parent: all is due.
    pub(super) fn new(table: Arc<LiveTable>) -> Follower {
        let name = table.router();
        Follower {
            key: Key::of_route(name),
            readers: Arc::new(Key::of_readers(name)),
            renew_due_ms: 0,
            renewals_failed: 0,
            moves: true,
            pauses: false,
            due_ms: 0,
            failures: 0,
            reported: None,
            refused: None,
            whole_due_ms: 0,
            table,
        }
    }

    /// Follows the table that was read at this boot time.
    pub(super) fn begin(
        name: &str,
        read: &RouteTable,
        clock: Clock,
        boot_ms: u64,
    ) -> Result<Follower, Error> {
        let table = LiveTable::of_store(read, name, clock)?;
        table.confirm(boot_ms);
        let mut follower = Follower {
            moves: read.moves(),
            pauses: read.pauses(),
            whole_due_ms: boot_ms + WHOLE_EVERY_MS,
            ..Follower::new(Arc::new(table))
        };
        follower.wait(boot_ms);
        Ok(follower)
    }

    /// Sets when the table is read next.
    fn wait(&mut self, boot_ms: u64) {
        let (every, failing) = match (self.moves, self.pauses) {
            (_, true) => (EVERY_MS_PAUSING, EVERY_MS_MOVING),
            (true, false) => (EVERY_MS_MOVING, EVERY_MS_FAILING_MOVING),
            (false, false) => (EVERY_MS, EVERY_MS_FAILING),
        };
        let pause = if self.failures == 0 { every } else { (every << self.failures.min(10)).min(failing) };
        self.due_ms = boot_ms + pause;
    }

    /// The boot time at which there is something to do.
    pub(super) fn due_at(&self) -> u64 {
        self.due_ms.min(self.renew_due_ms)
    }

    /// Does what is due: reads the table, and renews the row of this process, which a newer table needs at once.
    pub(super) fn poll(
        &mut self,
        store: &mut ContainedStore,
        own: &mut OwnReaders,
        boot_ms: u64,
        events: &Events,
    ) {
        let is_new = self.due_ms <= boot_ms && self.read(store, boot_ms, events);
        if is_new || self.renew_due_ms <= boot_ms {
            self.renew(store, own, events);
        }
    }

    /// Reads the table; whether it is a newer one.
    fn read(&mut self, store: &mut ContainedStore, boot_ms: u64, events: &Events) -> bool {
        let followed = self.follow(store, boot_ms);
        let is_new = matches!(followed, Ok(true));
        match followed {
            Ok(_) => {
                if is_new {
                    let (name, version) = (self.table.router(), self.table.version());
                    let message = format!("router `{name}` has table version {version}");
                    events.push(Event::new(EventKind::RouteLoaded, message));
                }
                self.failures = 0;
                self.reported = None;
            }
            Err(why) => {
                // What the store answered is no outage, also where it is refused.
                let is_outage = matches!(&why, TaskError::Fault(fault) if fault.kind.is_outage());
                self.failures = if is_outage { self.failures.saturating_add(1) } else { 0 };
                let reason = if is_outage { Reported::Outage } else { Reported::Refused(why.to_string()) };
                if self.reported.as_ref() != Some(&reason) && !self.table.is_outdated() {
                    let (name, version) = (self.table.router(), self.table.version());
                    let message = format!("{why}; router `{name}` goes on with version {version}");
                    events.push(Event::new(EventKind::RouteRefused, message));
                }
                self.reported = Some(reason);
            }
        }
        self.wait(boot_ms);
        is_new
    }

    /// Reads the table in the store and takes it over if it is newer; whether it is.
    pub(super) fn follow(&mut self, store: &mut ContainedStore, boot_ms: u64) -> Result<bool, TaskError> {
        // After a failure, and from time to time, the text is compared too: a version says nothing about it.
        let is_whole = self.failures > 0 || self.whole_due_ms <= boot_ms;
        let present = self.refused.as_ref().map_or(self.table.version(), |refused| refused.version);
        let known = if is_whole { 0 } else { present };
        let name = self.table.router();
        let stored = store.ask(|store| store.read_route(&self.key, known))?;
        let stored =
            stored.ok_or_else(|| Error::config(format!("route table `{name}` is gone from the store")))?;
        let least = self.table.least();
        if stored.version < least {
            let error = Error::config(format!(
                "route table `{name}` of the store went back to version {}; version {least} is the present one",
                stored.version
            ));
            return Err(error.into());
        }
        if stored.text.is_some() {
            self.whole_due_ms = boot_ms + WHOLE_EVERY_MS;
        }
        let is_refused = |refused: &&RefusedTable| {
            let is_same = stored.text.as_ref().is_none_or(|text| *text == refused.text);
            is_same && stored.refused.is_none() && (refused.version, refused.least) == (stored.version, least)
        };
        if let Some(refused) = self.refused.as_ref().filter(is_refused) {
            return Err(refused.error.clone().into());
        }
        let mut is_new = false;
        if let Some(text) = &stored.text {
            let read = stored.table(name).and_then(|read| Ok((self.table.replace(&read)?, read)));
            match read {
                Ok((replaced, read)) => {
                    (is_new, self.moves, self.pauses) = (replaced, read.moves(), read.pauses());
                }
                Err(error) => {
                    self.refused = stored.refused.is_none().then(|| RefusedTable {
                        version: stored.version,
                        text: text.clone(),
                        least,
                        error: error.clone(),
                    });
                    return Err(error.into());
                }
            }
        }
        self.refused = None;
        self.table.confirm(boot_ms);
        Ok(is_new)
    }

    /// Writes the row of this process.
    pub(super) fn write(
        &self,
        store: &mut ContainedStore,
        own: &mut OwnReaders,
    ) -> Result<WrittenRow, Fault> {
        own.write(store, &self.readers, self.table.version())
    }

    /// Whether the store has still this table, and no other one was stored since it was read.
    pub(super) fn is_present(&self, store: &mut ContainedStore) -> Result<bool, Fault> {
        let version = self.table.version();
        let now = store.ask(|store| store.read_route(&self.key, version))?;
        Ok(now.is_some_and(|now| now.version == version && now.text.is_none()))
    }

    /// The row of this process was written: the table answers for ranges that move until then.
    pub(super) fn lease(&mut self, until_ms: u64, own: &OwnReaders) {
        self.table.lease(until_ms);
        self.renew_due_ms = own.clock.boot_ms() + own.renewal_ms();
    }

    /// Renews the row of this process; whether it could.
    pub(super) fn renew(
        &mut self,
        store: &mut ContainedStore,
        own: &mut OwnReaders,
        events: &Events,
    ) -> bool {
        let was_outdated = self.table.is_outdated();
        let why = match self.renewed(store, own) {
            Ok(until_ms) => {
                self.renewals_failed = 0;
                if was_outdated {
                    let (name, version) = (self.table.router(), self.table.version());
                    let message = format!("router `{name}` answers again, with table version {version}");
                    events.push(Event::new(EventKind::RouteLoaded, message));
                }
                self.lease(until_ms, own);
                return true;
            }
            Err(why) => why,
        };
        self.table.expire(own.clock.boot_ms());
        let name = self.table.router();
        if self.table.is_outdated() {
            if !was_outdated {
                let message = format!("{why}; router `{name}` answers nothing until then");
                events.push(Event::new(EventKind::RouteRefused, message));
            }
        } else if self.renewals_failed == 0 {
            let message = format!(
                "router `{name}` could not renew its row in `keymill_reader`: {why}; without it, ranges that move are refused"
            );
            events.push(Event::new(EventKind::ReaderNotRenewed, message));
        }
        self.renew_due_ms = own.clock.boot_ms() + own.after_failures(self.renewals_failed);
        self.renewals_failed = self.renewals_failed.saturating_add(1);
        false
    }

    /// Renews the row of this process; answers with the boot time up to which that counts.
    pub(super) fn renewed(
        &mut self,
        store: &mut ContainedStore,
        own: &mut OwnReaders,
    ) -> Result<u64, TaskError> {
        let was_until_ms = self.table.leased_until_ms();
        let is_outdated = self.table.is_outdated();
        if is_outdated {
            own.watch(self.table.router());
        }
        let WrittenRow { mut until_ms, highest } = self.write(store, own)?;
        if is_outdated {
            self.table.lower_least(highest);
        }
        let in_time = own.clock.boot_ms() < was_until_ms;
        if in_time && highest <= self.table.version() {
            return Ok(until_ms);
        }
        if !in_time {
            // Steps may have been made meanwhile. From now on there is one at most.
            self.table.lease(0);
        }
        if self.follow(store, own.clock.boot_ms())? {
            until_ms = self.write(store, own)?.until_ms;
        }
        let version = self.table.version();
        if in_time && highest <= version + 1 {
            return Ok(until_ms);
        }
        let Some(error) = self.went_back(highest) else { return Ok(until_ms) };
        if highest > version + 1 {
            // Its table is from before a move, or from another step of it: ranges that stay in it may have moved. The router answers
            // nothing before the store has that version, and looks for it as often as for the version of a range that moves.
            self.table.refuse_below(highest);
            self.moves = true;
        }
        Err(error.into())
    }

    /// A living reader runs version `highest`, and the store has a lower one: who began with the store's would not know of the moves in
    /// between.
    pub(super) fn went_back(&self, highest: u64) -> Option<Error> {
        let version = self.table.version();
        if highest <= version {
            return None;
        }
        // A login that follows tables may write any version. A table that is stored above a false one would leave little room for the next.
        let advice = if highest - version > FAR {
            format!(
                "if no table of that version was ever stored, the process's row is forged: `keymill move status {}` names it; take the right from the login that wrote it, and delete the row",
                shown(self.table.router())
            )
        } else {
            format!("store the present table with a version above {highest}, `keymill route put`")
        };
        Some(Error::new(
            Code::StoreWentBackwards,
            format!(
                "route table `{}` of the store has version {version}, and a living process runs version {highest}: the store was restored from a backup or has lost a change; {advice}",
                shown(self.table.router())
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::{Memory, MemoryStore};
    use crate::store::{RouteStore, Store};

    fn text(version: u64, shard: &str) -> String {
        format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"{shard}\"\n")
    }

    fn put(store: &mut MemoryStore, old: Option<u64>, version: u64, text: &str) {
        let put = store.replace_route(&Key::of_route("orders"), old, (version, text));
        assert_eq!(put, Ok(true));
    }

    fn follower(store: &mut MemoryStore) -> Follower {
        let stored = store.read_route(&Key::of_route("orders"), 0).expect("an answer").expect("a table");
        let table = stored.table("orders").expect("a table without faults");
        Follower::begin("orders", &table, Clock::System, 1000).expect("a follower")
    }

    /// A follower of the table `a` of version 5, and what it reads it from.
    struct Following {
        memory: std::sync::Arc<Memory>,
        store: MemoryStore,
        polled: ContainedStore,
        router: Follower,
    }

    fn following() -> Following {
        let memory = Memory::new();
        let (mut store, polled) = (MemoryStore::new(memory.clone()), asked(&memory));
        put(&mut store, None, 5, &text(5, "a"));
        let router = follower(&mut store);
        Following { memory, store, polled, router }
    }

    /// Reads the table if that is due; rows of readers are for other tests.
    fn poll(follower: &mut Follower, store: &mut ContainedStore, at: u64, events: &Events) {
        follower.poll(store, &mut OwnReaders::new(10_000, "test".into()), at, events);
        follower.renew_due_ms = u64::MAX;
    }

    fn asked(memory: &std::sync::Arc<Memory>) -> ContainedStore {
        let store: Box<dyn Store> = Box::new(MemoryStore::new(memory.clone()));
        store.into()
    }

    fn shard(follower: &Follower) -> String {
        let (word, _) = follower.table.word(crate::Gene::from(0));
        follower.table.name(word.shard()).to_owned()
    }

    #[test]
    fn a_newer_table_is_taken_over_and_a_bad_or_older_one_is_not() {
        let Following { memory, mut store, mut polled, mut router } = following();
        let events = Events::new();
        router.read(&mut polled, 2000, &events);
        assert_eq!((router.table.version(), router.table.age_ms(2500)), (5, Some(500)));
        put(&mut store, Some(5), 6, &text(6, "b"));
        router.read(&mut polled, 3000, &events);
        assert_eq!((router.table.version(), shard(&router).as_str()), (6, "b"));
        put(&mut store, Some(6), 7, "version = 7");
        router.read(&mut polled, 4000, &events);
        put(&mut store, Some(7), 8, &text(9, "c"));
        router.read(&mut polled, 5000, &events);
        put(&mut store, Some(8), 4, &text(4, "c"));
        router.read(&mut polled, 6000, &events);
        memory.set_down(true);
        router.read(&mut polled, 7000, &events);
        assert_eq!((router.table.version(), shard(&router).as_str()), (6, "b"));
        assert_eq!(router.table.age_ms(7000), Some(4000), "confirmed last at 3000");
        memory.set_down(false);
        put(&mut store, Some(4), 10, &text(10, "d"));
        router.read(&mut polled, 8000, &events);
        assert_eq!((router.table.version(), shard(&router).as_str()), (10, "d"));
        let kinds: Vec<_> = events.drain().iter().map(|event| event.kind.name()).collect();
        let four = ["route_refused"; 4];
        let expected: Vec<_> = ["route_loaded"].into_iter().chain(four).chain(["route_loaded"]).collect();
        assert_eq!(kinds, expected, "one event for each reason");
    }

    #[test]
    fn a_refused_table_is_read_as_often_as_a_good_one_and_each_reason_is_reported_once() {
        let Following { mut store, mut polled, mut router, .. } = following();
        let events = Events::new();
        put(&mut store, Some(5), 6, "version = 6");
        for at in (2..20).map(|n| n * EVERY_MS) {
            poll(&mut router, &mut polled, at, &events);
            assert_eq!(router.due_at(), at + EVERY_MS, "the store has answered");
        }
        put(&mut store, Some(6), 7, &text(8, "b"));
        for at in [20 * EVERY_MS, 21 * EVERY_MS] {
            poll(&mut router, &mut polled, at, &events);
        }
        put(&mut store, Some(7), 9, &text(9, "b"));
        poll(&mut router, &mut polled, 22 * EVERY_MS, &events);
        assert_eq!((router.table.version(), shard(&router).as_str()), (9, "b"));
        let mut told = events.drain();
        told.retain(|event| event.kind == EventKind::RouteRefused);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|event| event.message.contains("goes on with version 5")), "{told:?}");
        assert!(told[1].message.contains("its row says version 7, and its text version 8"), "{told:?}");
    }

    #[test]
    fn a_refused_text_is_parsed_once() {
        let Following { mut store, mut polled, mut router, .. } = following();
        put(&mut store, Some(5), 6, "version = 6");
        let first = router.follow(&mut polled, 2_000).expect_err("it has no ranges");
        // A text that is parsed again is kept anew.
        let kept = |router: &Follower| router.refused.as_ref().map(|refused| refused.text.as_ptr());
        let at_first = kept(&router);
        for at in 0..20 {
            assert_eq!(router.follow(&mut polled, 3_000 + at * WHOLE_EVERY_MS), Err(first.clone()));
            assert_eq!(kept(&router), at_first);
        }
    }

    #[test]
    fn a_table_is_read_often_while_a_range_moves_and_seldom_while_the_store_fails() {
        let Following { memory, mut store, mut polled, mut router } = following();
        let events = Events::new();
        poll(&mut router, &mut polled, 1_000, &events);
        assert_eq!(router.due_at(), 11_000);
        put(&mut store, Some(5), 6, &format!("{}to = \"b\"\n", text(6, "a")));
        poll(&mut router, &mut polled, 10_999, &events);
        assert_eq!(router.due_at(), 11_000, "it was not due");
        poll(&mut router, &mut polled, 11_000, &events);
        assert_eq!(router.due_at(), 12_000);
        memory.set_down(true);
        for (at, next) in [(12_000, 14_000), (14_000, 18_000), (1_000_000, 1_008_000)] {
            poll(&mut router, &mut polled, at, &events);
            assert_eq!(router.due_at(), next);
        }
        poll(&mut router, &mut polled, 2_000_000, &events);
        poll(&mut router, &mut polled, 3_000_000, &events);
        poll(&mut router, &mut polled, 4_000_000, &events);
        assert_eq!(router.due_at(), 4_000_000 + EVERY_MS, "soon, because a range moves");
        memory.set_down(false);
        put(&mut store, Some(6), 7, &text(7, "b"));
        poll(&mut router, &mut polled, 5_000_000, &events);
        memory.set_down(true);
        for at in (6..10).map(|n| n * 1_000_000) {
            poll(&mut router, &mut polled, at, &events);
        }
        assert_eq!(router.due_at(), 9_060_000);
    }

    #[test]
    fn a_version_far_above_the_stores_is_looked_into_before_a_table_is_stored_above_it() {
        let Following { router, .. } = following();
        let told = |highest| router.went_back(highest).map(|error| error.message).unwrap_or_default();
        assert_eq!(told(5), "");
        assert!(told(9).contains("store the present table with a version above 9"));
        let far = told((1 << 52) - 1);
        assert!(!far.contains("store the present table") && far.contains("row is forged"), "{far}");
    }

    #[test]
    fn a_false_higher_version_does_not_make_a_process_go_back_below_its_own() {
        let Following { mut store, mut polled, mut router, .. } = following();
        put(&mut store, Some(5), 4, &text(4, "before"));
        router.table.refuse_below(100);
        router.table.lower_least(0);
        assert_eq!((router.table.version(), router.table.least()), (0, 5));
        let refused = router.follow(&mut polled, 2_000).expect_err("the store went back");
        assert!(refused.to_string().contains("went back to version 4"), "{refused}");
        put(&mut store, Some(4), 6, &text(6, "after"));
        assert_eq!(router.follow(&mut polled, 3_000), Ok(true));
        assert_eq!(shard(&router), "after");
    }

    #[test]
    fn another_text_of_the_known_version_is_told_within_a_minute_and_the_router_keeps_its_own() {
        let memory = Memory::new();
        let (mut store, mut polled) = (MemoryStore::new(memory.clone()), asked(&memory));
        put(&mut store, None, 6, &text(6, "a"));
        let mut router = follower(&mut store);
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
        assert_eq!(router.table.age_ms(1_000 + 6 * EVERY_MS), Some(EVERY_MS), "it is not confirmed");
        put(&mut store, Some(6), 7, &text(7, "b"));
        router.read(&mut polled, 1_000_000, &events);
        assert_eq!(shard(&router), "b");
    }
}
