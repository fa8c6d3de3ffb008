//! The rows that say which version of each route table this process runs, and the leases that they give.
//!
//! A step of a move is stored only when every reader with a row that has not ended runs the version before. So while its row lasts, a
//! process is one version behind at most. It counts that time on its own boot clock, and a little shorter; when it is over, the process
//! answers for no range that moves. A row that was renewed in time goes on. After one that was not, steps may have been made: the
//! process writes its row, reads the table after that, and only then answers again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Code, Error, shown};
use crate::monitoring::events::{Event, EventKind, Events};
use crate::request::reservation::{Fault, Key};
use crate::store::contained_store::ContainedStore;
use crate::store::{KeepReader, OwnReader, StoreIndex};
use crate::time::Clock;

use super::routers::{Follower, Routers};

/// Each row is renewed so many times while it lasts.
const RENEWALS: u64 = 3;

/// The part of a lease that is used: the clocks of two machines do not run alike.
const USED: (u64, u64) = (15, 16);

/// The first pause after a renewal that failed; later ones are longer, up to that of a renewal.
const FAILING_MS: u64 = 250;

/// How often a table is read again because another version was stored meanwhile.
const ATTEMPTS: u32 = 10;

/// Why a router was not opened.
#[derive(Debug)]
pub(crate) enum NotOpened {
    Failed(Fault),
    /// The table has faults.
    Refused(Error),
}

impl From<Fault> for NotOpened {
    fn from(fault: Fault) -> NotOpened {
        NotOpened::Failed(fault)
    }
}

/// The rows of one process. The keeper's thread has them; a forked child begins without.
#[derive(Debug)]
pub(crate) struct OwnReaders {
    rows: HashMap<String, OwnReader>,
    lease_ms: u64,
    owner: Arc<str>,
    /// Routers age by the system's clock, also where a test sets the mill's by hand.
    pub(super) clock: Clock,
}

impl OwnReaders {
    pub(crate) fn new(lease_ms: u64, owner: Arc<str>) -> OwnReaders {
        OwnReaders { rows: HashMap::new(), lease_ms, owner, clock: Clock::System }
    }

    /// Writes the row of a router with this version; answers with the boot time up to which that counts, and with the highest version of
    /// a living reader.
    pub(super) fn write(
        &mut self,
        store: &mut ContainedStore,
        key: &Arc<Key>,
        version: u64,
    ) -> Result<(u64, u64), Fault> {
        let keep = KeepReader {
            version,
            lease_ms: self.lease_ms,
            owner: self.owner.clone(),
            store: StoreIndex::ONLY,
        };
        let own = self.rows.entry(key.name.clone()).or_default();
        let began_ms = self.clock.boot_ms();
        let highest = store.ask(|store| store.keep_reader(key, own, &keep))?;
        Ok((began_ms + self.lease_ms * USED.0 / USED.1, highest))
    }

    /// The process, for people.
    #[cfg(test)]
    pub(super) fn owner(&self) -> Arc<str> {
        self.owner.clone()
    }

    /// When a row is renewed that was written now.
    fn renewal_ms(&self) -> u64 {
        self.lease_ms / RENEWALS
    }

    fn after_failures(&self, failures: u32) -> u64 {
        (FAILING_MS << failures.min(16)).min(self.renewal_ms().max(FAILING_MS))
    }

    /// Renews the row of a router; answers with when to do so again.
    pub(super) fn renew(
        &mut self,
        store: &mut ContainedStore,
        of: &Follower,
        failures: u32,
        events: &Events,
    ) -> Result<u64, u64> {
        let (was_until_ms, was_outdated) = (of.live.leased_until_ms(), of.live.is_outdated());
        match self.renewed(store, of, was_until_ms) {
            Ok(until_ms) => {
                of.live.lease(until_ms);
                Ok(self.renewal_ms())
            }
            Err(why) => {
                of.live.expire(self.clock.boot_ms());
                if of.live.is_outdated() {
                    if !was_outdated {
                        let message = format!("{why}; router `{}` answers nothing until then", of.name);
                        events.push(Event::new(EventKind::RouteRefused, message));
                    }
                } else if failures == 0 {
                    let message = format!(
                        "router `{}` could not renew its row in `keymill_reader`: {why}; without it, ranges that move are refused",
                        of.name
                    );
                    events.push(Event::new(EventKind::ReaderNotRenewed, message));
                }
                Err(self.after_failures(failures))
            }
        }
    }

    fn renewed(
        &mut self,
        store: &mut ContainedStore,
        of: &Follower,
        was_until_ms: u64,
    ) -> Result<u64, String> {
        let told = |fault: Fault| fault.to_string();
        let (mut until_ms, highest) = self.write(store, &of.readers, of.live.version()).map_err(told)?;
        let in_time = self.clock.boot_ms() < was_until_ms;
        if in_time && highest <= of.live.version() {
            return Ok(until_ms);
        }
        if !in_time {
            // Steps may have been made meanwhile. From now on there is one at most.
            of.live.lease(0);
        }
        if of.read_again(store, self.clock.boot_ms()).map_err(|why| why.to_string())? {
            until_ms = self.write(store, &of.readers, of.live.version()).map_err(told)?.0;
        }
        let version = of.live.version();
        if in_time && highest <= version + 1 {
            return Ok(until_ms);
        }
        let Some(error) = went_back(&of.name, version, highest) else { return Ok(until_ms) };
        if highest > version + 1 {
            // Its table is from before a move, or from another step of it: ranges that stay in it may have moved.
            of.refuse_below(highest);
        }
        Err(error.message)
    }

    /// Opens the router of this name: its table, and a row of this process. `None`: the store has no such table.
    pub(super) fn open(
        &mut self,
        store: &mut ContainedStore,
        routers: &Routers,
        name: &str,
    ) -> Result<Option<Arc<Follower>>, NotOpened> {
        if let Some(of) = routers.find(name) {
            let until_ms = self.renewed(store, of, of.live.leased_until_ms());
            // Without a lease it still answers for ranges that do not move.
            of.live.lease(until_ms.unwrap_or(0));
            return Ok(Some(of.clone()));
        }
        let (key, readers) = (Key::of_route(name), Arc::new(Key::of_readers(name)));
        let mut highest = 0;
        for _ in 0..ATTEMPTS {
            let Some(stored) = store.ask(|store| store.read_route(&key, 0))? else { break };
            let follower = Follower::new(name, &stored, self.clock.clone(), self.clock.boot_ms())
                .map_err(NotOpened::Refused)?;
            let version = follower.live.version();
            let (until_ms, seen) = self.write(store, &readers, version)?;
            highest = seen.max(highest);
            // A step that was made before the row was there is one too many.
            let now = store.ask(|store| store.read_route(&key, version))?;
            if now.is_some_and(|now| now.version == version && now.text.is_none()) {
                if let Some(error) = went_back(name, version, highest) {
                    self.remove(store, name);
                    return Err(NotOpened::Refused(error));
                }
                follower.live.lease(until_ms);
                follower.renew_at(self.clock.boot_ms() + self.renewal_ms());
                return Ok(Some(routers.add(follower).clone()));
            }
        }
        self.remove(store, name);
        Ok(None)
    }

    fn remove(&mut self, store: &mut ContainedStore, name: &str) -> bool {
        let Some(own) = self.rows.remove(name) else { return true };
        // A row that is not removed ends by itself.
        store.ask(|store| store.remove_reader(&Key::of_readers(name), &own)).is_ok()
    }

    /// The mill closes: nothing is answered any more for ranges that move, and the rows go.
    pub(super) fn close(&mut self, store: Option<&mut ContainedStore>, routers: &Routers) {
        routers.iter().for_each(|of| of.live.lease(0));
        let Some(store) = store else { return };
        let names: Vec<String> = self.rows.keys().cloned().collect();
        for name in names {
            // Each try of a store that is down would wait for its timeout.
            if !self.remove(store, &name) {
                return;
            }
        }
    }
}

/// A living reader runs a higher version than the store has: who began with the store's would not know of the moves in between.
fn went_back(name: &str, version: u64, highest: u64) -> Option<Error> {
    (highest > version).then(|| {
        Error::new(
            Code::StoreWentBackwards,
            format!(
                "route table `{}` of the store has version {version}, and a process that lives runs version {highest}: the store was restored from a backup or has lost a change; store the present table with a version above {highest}, `keymill route put`",
                shown(name)
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::{Memory, MemoryStore, Step};
    use crate::store::{ReaderStore, RouteStore, Store};
    use crate::time::ManualClock;

    fn put(memory: &Arc<Memory>, version: u64) {
        let text = format!("version = {version}\n[[range]]\nupper = 9\nshard = \"a\"\nto = \"b\"");
        let mut store = MemoryStore::new(memory.clone());
        let old = store.read_route(&Key::of_route("orders"), 0).expect("an answer").map(|old| old.version);
        assert_eq!(store.replace_route(&Key::of_route("orders"), old, (version, &text)), Ok(true));
    }

    fn versions(memory: &Arc<Memory>) -> Vec<u64> {
        let readers = MemoryStore::new(memory.clone()).readers(&Key::of_readers("orders"));
        readers.expect("an answer").all.iter().map(|reader| reader.version).collect()
    }

    /// With leases of 16 s, by a clock that the test moves.
    fn opened(memory: &Arc<Memory>) -> (ContainedStore, OwnReaders, Arc<Follower>, Arc<ManualClock>) {
        let client: Box<dyn Store> = Box::new(MemoryStore::new(memory.clone()));
        let clock = Arc::new(ManualClock::new(1_000_000_000));
        let (mut store, mut own) = (client.into(), OwnReaders::new(16_000, "host:7".into()));
        own.clock = Clock::Manual(clock.clone());
        let router = own.open(&mut store, &Routers::default(), "orders").expect("opened").expect("a table");
        (store, own, router, clock)
    }

    #[test]
    fn a_row_is_there_before_the_router_answers_and_a_table_without_one_opens_none() {
        let memory = Memory::new();
        let client: Box<dyn Store> = Box::new(MemoryStore::new(memory.clone()));
        let (mut store, mut own, routers) =
            (client.into(), OwnReaders::new(60_000, "host:7".into()), Routers::default());
        assert!(matches!(own.open(&mut store, &routers, "orders"), Ok(None)));
        put(&memory, 3);
        memory.fail_next(Step::NotApplied);
        assert!(matches!(own.open(&mut store, &routers, "orders"), Err(NotOpened::Failed(_))));
        assert_eq!((routers.iter().count(), versions(&memory)), (0, vec![]));
        let router = own.open(&mut store, &routers, "orders").expect("opened").expect("a table");
        assert_eq!((router.live.is_leased(), versions(&memory)), (true, vec![3]));
        own.close(Some(&mut store), &routers);
        assert_eq!((router.live.is_leased(), versions(&memory)), (false, vec![]));
    }

    /// Threads of a process that was frozen go on in any order.
    #[test]
    fn a_lease_that_is_over_is_noticed_before_any_thread_of_the_mill_has_its_turn() {
        let memory = Memory::new();
        put(&memory, 3);
        let (_store, _own, router, clock) = opened(&memory);
        clock.advance(14_999);
        assert!(router.live.is_leased());
        clock.advance(1);
        assert!(!router.live.is_leased());
    }

    #[test]
    fn a_lease_that_ended_is_granted_again_only_with_the_present_table() {
        let memory = Memory::new();
        put(&memory, 3);
        let events = Events::new();
        let (mut store, mut own, router, clock) = opened(&memory);
        clock.advance(16_000);
        assert!(!router.live.is_leased());
        // Its row has ended, so steps were made.
        put(&memory, 4);
        put(&memory, 5);
        own.renew(&mut store, &router, 0, &events).expect("renewed");
        assert_eq!((router.live.version(), router.live.is_leased()), (5, true));
        assert_eq!(versions(&memory), [5]);
        clock.advance(16_000);
        memory.set_down(true);
        own.renew(&mut store, &router, 0, &events).expect_err("the store is down");
        own.renew(&mut store, &router, 1, &events).expect_err("the store is down");
        assert!(!router.live.is_leased());
        assert_eq!(
            events.drain().iter().map(|event| event.kind.name()).collect::<Vec<_>>(),
            ["reader_not_renewed"]
        );
        memory.set_down(false);
        own.renew(&mut store, &router, 2, &events).expect("renewed");
        assert!(router.live.is_leased());
    }

    /// The row of another process.
    fn keep(version: u64) -> KeepReader {
        KeepReader { version, lease_ms: 16_000, owner: "other".into(), store: StoreIndex::ONLY }
    }

    fn serves(router: &Follower) -> Result<String, Code> {
        let router = crate::api::Router { live: router.live.clone() };
        router.route_gene(crate::Gene::from(0)).map(|route| route.read.to_owned()).map_err(|error| error.code)
    }

    #[test]
    fn a_router_of_a_restored_store_refuses_every_gene_once_a_process_with_a_higher_version_is_heard() {
        let memory = Memory::new();
        let stays = |version: u64, shard: &str| {
            let text = format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"{shard}\"");
            let mut store = MemoryStore::new(memory.clone());
            let key = Key::of_route("orders");
            let old = store.read_route(&key, 0).expect("an answer").map(|old| old.version);
            assert_eq!(store.replace_route(&key, old, (version, &text)), Ok(true));
        };
        let events = Events::new();
        let told = || events.drain().iter().map(|event| event.kind.name()).collect::<Vec<_>>();
        stays(1, "a");
        let backup = memory.snapshot();
        let (mut old_store, mut old_own, old, _clock) = opened(&memory);
        stays(3, "b");
        old_own.renew(&mut old_store, &old, 0, &events).expect("renewed");
        assert_eq!(old.read_again(&mut old_store, 0).ok(), Some(true));
        // The backup has neither the version nor the row of the process that runs it.
        memory.restore(&backup);
        let (mut store, mut own, router, clock) = opened(&memory);
        assert_eq!((serves(&router), serves(&old)), (Ok("a".into()), Ok("b".into())));
        old_own.renew(&mut old_store, &old, 0, &events).expect("a new row");
        assert_eq!(told(), [""; 0]);
        own.renew(&mut store, &router, 0, &events).expect_err("the table is older");
        assert_eq!((serves(&router), serves(&old)), (Err(Code::StoreWentBackwards), Ok("b".into())));
        assert_eq!(told(), ["route_refused"]);
        // Once the other process is gone, nothing else knows of the later version.
        memory.restore(&backup);
        clock.advance(60_000);
        own.renew(&mut store, &router, 1, &events).expect_err("the table is older");
        assert_eq!((serves(&router), told()), (Err(Code::StoreWentBackwards), vec![]));
        stays(4, "b");
        own.renew(&mut store, &router, 2, &events).expect("renewed");
        assert_eq!((serves(&router), router.live.version()), (Ok("b".into()), 4));
        // A forked child begins without a table, and that is no older one.
        router.live.begin_anew();
        assert_eq!(router.live.lease_lost(crate::Gene::from(0)).code, Code::LeaseLost);
    }

    /// A step is stored while every reader runs the version before, and stores that answer may be one step behind the silent ones.
    #[test]
    fn a_router_one_version_behind_another_process_goes_on() {
        let memory = Memory::new();
        put(&memory, 3);
        let events = Events::new();
        let (mut store, mut own, router, _clock) = opened(&memory);
        let mut other = MemoryStore::new(memory.clone());
        let (key, mut row) = (Arc::new(Key::of_readers("orders")), OwnReader::default());
        other.keep_reader(&key, &mut row, &keep(4)).expect("kept");
        own.renew(&mut store, &router, 0, &events).expect("renewed");
        assert_eq!((router.live.version(), router.live.is_leased()), (3, true));
        put(&memory, 4);
        own.renew(&mut store, &router, 0, &events).expect("renewed");
        assert_eq!((router.live.version(), router.live.is_leased()), (4, true));
        other.keep_reader(&key, &mut row, &keep(6)).expect("kept");
        own.renew(&mut store, &router, 0, &events).expect_err("two steps behind");
        put(&memory, 6);
        own.renew(&mut store, &router, 1, &events).expect("the version of the other process is enough");
        assert_eq!((router.live.version(), router.live.is_leased()), (6, true));
    }

    /// Otherwise the rows that a thousand processes read would grow with their square.
    #[test]
    fn among_many_readers_only_some_renewals_look_at_all_rows() {
        let mut store = MemoryStore::new(Memory::new());
        let key = Arc::new(Key::of_readers("orders"));
        let mut kept =
            |own: &mut OwnReader, version| store.keep_reader(&key, own, &keep(version)).expect("kept");
        for _ in 0..128 {
            kept(&mut OwnReader::default(), 3);
        }
        let mut own = OwnReader::default();
        let answers: Vec<u64> = (0..6).map(|_| kept(&mut own, 1)).collect();
        assert_eq!(answers, [3, 3, 0, 0, 3, 0]);
    }

    #[test]
    fn a_lost_answer_and_a_row_that_was_deleted_leave_one_row() {
        let memory = Memory::new();
        put(&memory, 3);
        let events = Events::new();
        let (mut store, mut own, router, _clock) = opened(&memory);
        for _ in 0..3 {
            memory.fail_next(Step::Lost);
            own.renew(&mut store, &router, 0, &events).expect_err("the answer is lost");
            assert!(router.live.is_leased(), "the old lease goes on");
        }
        own.renew(&mut store, &router, 0, &events).expect("renewed");
        assert_eq!(versions(&memory), [3]);
        memory.restore(&crate::store::memory::MemoryBackup::default());
        own.renew(&mut store, &router, 0, &events).expect("a new row");
        assert_eq!(versions(&memory), [3]);
    }
}
