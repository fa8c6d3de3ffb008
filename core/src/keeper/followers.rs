//! The routers of a mill, as its keeper's thread follows them: each one's table and the row of this process, one at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::task_error::TaskError;
use crate::monitoring::events::Events;
use crate::request::reservation::Key;
use crate::router::LiveTable;
use crate::store::contained_store::ContainedStore;

use super::follower::Follower;
use super::own_readers::OwnReaders;
use super::routers::Routers;

/// How often a table is read again because another version was stored meanwhile.
const ATTEMPTS: u32 = 10;

/// What the keeper's thread follows.
#[derive(Debug)]
pub(crate) struct Followers {
    /// As many as `routers` has.
    all: Vec<Follower>,
    /// When each of them has something to do, on the boot clock, with its place in `all`.
    due: BTreeSet<(u64, usize)>,
    pub(super) own: OwnReaders,
    /// What callers find.
    routers: Arc<Routers>,
}

impl Followers {
    /// Follows the routers of this mill. A forked child finds its parent's routers.
    pub(crate) fn new(own: OwnReaders, routers: Arc<Routers>) -> Followers {
        let all: Vec<Follower> = routers.iter().cloned().map(Follower::new).collect();
        let due = all.iter().enumerate().map(|(at, follower)| (follower.due_at(), at)).collect();
        Followers { all, due, own, routers }
    }

    /// Opens the router of this name: its table, and a row of this process. `None`: the store has no such table.
    pub(super) fn open(
        &mut self,
        store: &mut ContainedStore,
        name: &str,
    ) -> Result<Option<Arc<LiveTable>>, TaskError> {
        let Followers { all, due, own, routers } = self;
        let known = all.iter_mut().enumerate().find(|(_, follower)| follower.table.router() == name);
        if let Some((at, follower)) = known {
            let was_due_at = follower.due_at();
            let until_ms = follower.renewed(store, own);
            due.remove(&(was_due_at, at));
            due.insert((follower.due_at(), at));
            // Without a lease it still answers for ranges that do not move.
            follower.table.lease(until_ms.unwrap_or(0));
            return Ok(Some(follower.table.clone()));
        }
        let key = Key::of_route(name);
        let mut highest = 0;
        for _ in 0..ATTEMPTS {
            let Some(stored) = store.ask(|store| store.read_route(&key, 0))? else { break };
            let mut follower =
                Follower::begin(name, &stored.table(name)?, own.clock.clone(), own.clock.boot_ms())?;
            let written = follower.write(store, own)?;
            highest = written.highest.max(highest);
            // A step that was made before the row was there is one too many.
            if follower.is_present(store)? {
                if let Some(error) = follower.went_back(highest) {
                    own.remove(store, name);
                    return Err(error.into());
                }
                follower.lease(written.until_ms, own);
                let table = follower.table.clone();
                due.insert((follower.due_at(), all.len()));
                all.push(follower);
                routers.add(table.clone());
                return Ok(Some(table));
            }
        }
        own.remove(store, name);
        Ok(None)
    }

    /// The boot time of the next reading or renewal.
    pub(crate) fn due_at(&self) -> Option<u64> {
        self.due.first().map(|(due_at, _)| *due_at)
    }

    /// Reads the table that is due for longest, or renews its row; `false` where none is.
    pub(super) fn poll(&mut self, store: &mut ContainedStore, boot_ms: u64, events: &Events) -> bool {
        let Some(&(due_at, at)) = self.due.first() else { return false };
        let Some(first) = self.all.get_mut(at).filter(|_| due_at <= boot_ms) else { return false };
        first.poll(store, &mut self.own, boot_ms, events);
        // Afterwards: a keeper that goes on after a panic polls it again.
        self.due.remove(&(due_at, at));
        self.due.insert((first.due_at(), at));
        true
    }

    /// The mill closes: nothing is answered any more for ranges that move, and the rows go.
    pub(super) fn close(&mut self, store: Option<&mut ContainedStore>) {
        self.all.iter().for_each(|follower| follower.table.lease(0));
        if let Some(store) = store {
            self.own.close(store);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::store::memory::{Memory, MemoryStore, Step};
    use crate::store::{KeepReader, OwnReader, ReaderStore, RouteStore, Store, StoreIndex};
    use crate::time::{Clock, ManualClock};

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

    fn followers(lease_ms: u64, clock: Clock) -> Followers {
        let mut own = OwnReaders::new(lease_ms, "host:7".into());
        own.clock = clock;
        Followers::new(own, Arc::default())
    }

    /// A process that has a router, with leases of 16 s, by a clock that the test moves.
    struct Process {
        store: ContainedStore,
        followers: Followers,
        router: Arc<LiveTable>,
        clock: Arc<ManualClock>,
        events: Events,
    }

    impl Process {
        fn new(memory: &Arc<Memory>) -> Process {
            let client: Box<dyn Store> = Box::new(MemoryStore::new(memory.clone()));
            let clock = Arc::new(ManualClock::new(1_000_000_000));
            let (mut store, mut followers) = (client.into(), followers(16_000, Clock::Manual(clock.clone())));
            let router = followers.open(&mut store, "orders").expect("opened").expect("a table");
            Process { store, followers, router, clock, events: Events::new() }
        }

        /// Renews its row; whether it could.
        fn renew(&mut self) -> bool {
            let Followers { all, own, .. } = &mut self.followers;
            all[0].renew(&mut self.store, own, &self.events)
        }

        fn told(&self) -> Vec<&'static str> {
            self.events.drain().iter().map(|event| event.kind.name()).collect()
        }
    }

    #[test]
    fn a_row_is_there_before_the_router_answers_and_a_table_without_one_opens_none() {
        let memory = Memory::new();
        let client: Box<dyn Store> = Box::new(MemoryStore::new(memory.clone()));
        let (mut store, mut followers) = (client.into(), followers(60_000, Clock::System));
        assert!(matches!(followers.open(&mut store, "orders"), Ok(None)));
        put(&memory, 3);
        memory.fail_next(Step::NotApplied);
        assert!(matches!(followers.open(&mut store, "orders"), Err(TaskError::Fault(_))));
        assert_eq!((followers.routers.iter().count(), versions(&memory)), (0, vec![]));
        let router = followers.open(&mut store, "orders").expect("opened").expect("a table");
        assert_eq!((router.is_leased(), versions(&memory)), (true, vec![3]));
        followers.close(Some(&mut store));
        assert_eq!((router.is_leased(), versions(&memory)), (false, vec![]));
    }

    /// Threads of a process that was frozen go on in any order.
    #[test]
    fn a_lease_that_is_over_is_noticed_before_any_thread_of_the_mill_has_its_turn() {
        let memory = Memory::new();
        put(&memory, 3);
        let Process { router, clock, .. } = Process::new(&memory);
        clock.advance(14_999);
        assert!(router.is_leased());
        clock.advance(1);
        assert!(!router.is_leased());
    }

    #[test]
    fn a_lease_that_ended_is_granted_again_only_with_the_present_table() {
        let memory = Memory::new();
        put(&memory, 3);
        let mut process = Process::new(&memory);
        let (router, clock) = (process.router.clone(), process.clock.clone());
        clock.advance(16_000);
        assert!(!router.is_leased());
        // Its row has ended, so steps were made.
        put(&memory, 4);
        put(&memory, 5);
        assert!(process.renew(), "renewed");
        assert_eq!((router.version(), router.is_leased()), (5, true));
        assert_eq!(versions(&memory), [5]);
        clock.advance(16_000);
        memory.set_down(true);
        assert!(!process.renew(), "the store is down");
        assert!(!process.renew(), "the store is down");
        assert!(!router.is_leased());
        assert_eq!(process.told(), ["reader_not_renewed"]);
        memory.set_down(false);
        assert!(process.renew(), "renewed");
        assert!(router.is_leased());
    }

    /// The row of another process.
    fn keep(version: u64) -> KeepReader {
        KeepReader { version, lease_ms: 16_000, owner: "other".into(), store: StoreIndex::ONLY }
    }

    fn serves(process: &Process) -> Result<String, Code> {
        let router = crate::api::Router { live: process.router.clone() };
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
        stays(1, "a");
        let backup = memory.snapshot();
        let mut old = Process::new(&memory);
        stays(3, "b");
        assert!(old.renew(), "renewed");
        assert_eq!(old.followers.all[0].follow(&mut old.store, 0).ok(), Some(true));
        // The backup has neither the version nor the row of the process that runs it.
        memory.restore(&backup);
        let mut new = Process::new(&memory);
        assert_eq!((serves(&new), serves(&old)), (Ok("a".into()), Ok("b".into())));
        assert!(old.renew(), "a new row");
        assert_eq!((old.told(), new.told()), (vec![], vec![]));
        assert!(!new.renew(), "the table is older");
        assert_eq!((serves(&new), serves(&old)), (Err(Code::StoreWentBackwards), Ok("b".into())));
        assert_eq!((old.told(), new.told()), (vec![], vec!["route_refused"]));
        assert!(!new.renew(), "the other process lives");
        assert_eq!((serves(&new), new.told()), (Err(Code::StoreWentBackwards), vec![]));
        // No living process has the later version any more: the store's table holds, as for a process that begins now.
        memory.restore(&backup);
        new.clock.advance(60_000);
        assert!(new.renew(), "no living process has a later version");
        assert_eq!((serves(&new), new.told()), (Ok("a".into()), vec!["route_loaded"]));
        stays(4, "b");
        assert_eq!(new.followers.all[0].follow(&mut new.store, 0).ok(), Some(true));
        assert!(new.renew(), "renewed");
        assert_eq!((serves(&new), new.router.version()), (Ok("b".into()), 4));
        // A forked child begins without a table, and that is no older one.
        new.router.begin_anew();
        assert_eq!(new.router.lease_lost(crate::Gene::from(0)).code, Code::LeaseLost);
    }

    /// A login that may write rows of readers may write any version. A possible version counts while its row lasts; an impossible one never
    /// does.
    #[test]
    fn a_false_version_of_a_reader_stops_other_processes_no_longer_than_its_row_lasts() {
        let memory = Memory::new();
        put(&memory, 3);
        let mut process = Process::new(&memory);
        let mut other = MemoryStore::new(memory.clone());
        let key = Arc::new(Key::of_readers("orders"));
        let mut keep_other = |version| {
            let mut row = OwnReader::default();
            other.keep_reader(&key, &mut row, &keep(version)).expect("kept");
            row
        };
        keep_other((1 << 53) - 1);
        assert!(process.renew(), "no table has this version");
        let row = keep_other(90);
        assert!(!process.renew(), "a process that lives runs a later table");
        assert_eq!(serves(&process), Err(Code::StoreWentBackwards));
        MemoryStore::new(memory.clone()).remove_reader(&key, &row).expect("removed");
        assert!(process.renew(), "no process that lives runs a later table");
        assert_eq!(serves(&process), Ok("a".into()));
        assert_eq!(process.told(), ["route_refused", "route_loaded"]);
    }

    /// A step is stored while every reader runs the version before, and stores that answer may be one step behind the silent ones.
    #[test]
    fn a_router_one_version_behind_another_process_goes_on() {
        let memory = Memory::new();
        put(&memory, 3);
        let mut process = Process::new(&memory);
        let router = process.router.clone();
        let mut other = MemoryStore::new(memory.clone());
        let (key, mut row) = (Arc::new(Key::of_readers("orders")), OwnReader::default());
        other.keep_reader(&key, &mut row, &keep(4)).expect("kept");
        assert!(process.renew(), "renewed");
        assert_eq!((router.version(), router.is_leased()), (3, true));
        put(&memory, 4);
        assert!(process.renew(), "renewed");
        assert_eq!((router.version(), router.is_leased()), (4, true));
        other.keep_reader(&key, &mut row, &keep(6)).expect("kept");
        assert!(!process.renew(), "two steps behind");
        put(&memory, 6);
        assert!(process.renew(), "the version of the other process is enough");
        assert_eq!((router.version(), router.is_leased()), (6, true));
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
        let mut process = Process::new(&memory);
        let router = process.router.clone();
        for _ in 0..3 {
            memory.fail_next(Step::Lost);
            assert!(!process.renew(), "the answer is lost");
            assert!(router.is_leased(), "the old lease goes on");
        }
        assert!(process.renew(), "renewed");
        assert_eq!(versions(&memory), [3]);
        memory.restore(&crate::store::memory::MemoryBackup::default());
        assert!(process.renew(), "a new row");
        assert_eq!(versions(&memory), [3]);
    }

    #[test]
    fn a_name_has_one_router() {
        let memory = Memory::new();
        put(&memory, 3);
        let mut process = Process::new(&memory);
        MemoryStore::new(memory.clone())
            .replace_route(
                &Key::of_route("other"),
                None,
                (1, "version = 1\n[[range]]\nupper = 9\nshard = \"a\""),
            )
            .expect("stored");
        let mut open =
            |name: &str| process.followers.open(&mut process.store, name).expect("opened").expect("a table");
        assert!(Arc::ptr_eq(&open("orders"), &process.router));
        assert!(!Arc::ptr_eq(&open("other"), &process.router));
        let Followers { all, routers, .. } = &process.followers;
        assert_eq!((all.len(), routers.iter().count()), (2, 2));
    }
}
