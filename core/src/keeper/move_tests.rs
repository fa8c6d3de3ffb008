//! Moves with up to a hundred processes, over a store that loses answers: real readers, tables and steps, on a clock by hand. Processes
//! are frozen, killed, closed and opened at any moment; programs write to both shards and read; operators make steps, undo them, and are
//! late between reading and storing. Every read must find what was acknowledged before.
//!
//! Each rule is switched off once, and the simulation has to notice.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::Router;
use crate::monitoring::events::Events;
use crate::moves::{MoveStep, PlannedMove, follow, move_of};
use crate::request::reader::Readers;
use crate::request::reservation::Key;
use crate::router::{By, LiveTable, RouteTable};
use crate::store::contained_store::ContainedStore;
use crate::store::memory::{Memory, MemoryStore, Step};
use crate::store::{ReaderStore, RouteStore, Store};
use crate::time::{Clock, ManualClock};

use super::followers::Followers;
use super::own_readers::{OwnReaders, WrittenRow};

/// The rule that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// A step does not wait for one of the living readers.
    OneReaderIsNotWaitedFor,
    /// A reader whose lease has ended answers for ranges that move.
    LapsedReaderAnswers,
    /// Readers that were lost before the move do not hold it up.
    LostReadersAreForgotten,
    /// A lease that ended is granted again with the old table.
    LeaseWithoutReading,
    /// Both shards are compared at once, and not after `settle`.
    ComparedAtOnce,
}

const TICK_MS: u64 = 100;
const SETTLE_MS: u64 = 2_000;
const LEASE_MS: u64 = 3_000;
const WATCH_MS: u64 = 1_500;
const IDS: u64 = 40;
const SHARDS: [&str; 2] = ["a", "b"];

struct Process {
    store: ContainedStore,
    followers: Followers,
    router: Arc<LiveTable>,
    frozen_until: u64,
    /// It runs, and the store does not answer it.
    cut_off_until: u64,
    /// Writes whose route was taken: when, which id, the shards, and when they are made.
    writes: Vec<(u64, u64, Vec<String>, u64)>,
}

/// What an operator is about to do: it has read the table, and stores the next one later.
struct Late {
    new: RouteTable,
    old: u64,
    at: u64,
    /// Comparing takes its time; the rows are copied when it begins.
    copies: bool,
}

struct World {
    mutant: Mutant,
    random: fastrand::Rng,
    clock: Arc<ManualClock>,
    memory: Arc<Memory>,
    processes: Vec<Process>,
    /// Rows of processes that were killed: an operator knows that they run no more.
    killed: Vec<Arc<str>>,
    opened: u64,
    /// The newest write of each id, by shard.
    rows: HashMap<(String, u64), u64>,
    acknowledged: HashMap<u64, u64>,
    written: u64,
    late: Vec<Late>,
    /// What was seen: steps by their phase, refusals, reads.
    owner: String,
    steps: u64,
    finished: u64,
    undone: u64,
    refused: u64,
    read: u64,
    violation: Option<String>,
}

fn readers() -> Arc<Key> {
    Arc::new(Key::of_readers("orders"))
}

fn is_living(reader: &crate::request::reader::Reader) -> bool {
    reader.is_living()
}

impl World {
    fn new(seed: u64, mutant: Mutant) -> World {
        let clock = Arc::new(ManualClock::new(1_000_000_000));
        let memory = Memory::new();
        memory.set_clock(Clock::Manual(clock.clone()));
        let text =
            format!("version = 1\nsettle = \"{SETTLE_MS}ms\"\n[[range]]\nupper = 65535\nshard = \"a\"\n");
        let put = MemoryStore::new(memory.clone()).replace_route(&Key::of_route("orders"), None, (1, &text));
        assert_eq!(put, Ok(true));
        World {
            mutant,
            random: fastrand::Rng::with_seed(seed),
            clock,
            memory,
            processes: Vec::new(),
            killed: Vec::new(),
            opened: 0,
            rows: HashMap::new(),
            acknowledged: HashMap::new(),
            written: 0,
            late: Vec::new(),
            owner: "a".to_owned(),
            steps: 0,
            finished: 0,
            undone: 0,
            refused: 0,
            read: 0,
            violation: None,
        }
    }

    fn now(&self) -> u64 {
        Clock::Manual(self.clock.clone()).boot_ms()
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.random.u64(0..many) == 0
    }

    fn open(&mut self) {
        let client: Box<dyn Store> = Box::new(MemoryStore::new(self.memory.clone()));
        self.opened += 1;
        let owner: Arc<str> = format!("process {}", self.opened).into();
        let mut own = OwnReaders::new(LEASE_MS, owner);
        own.clock = Clock::Manual(self.clock.clone());
        let (mut store, mut followers) = (ContainedStore::from(client), Followers::new(own, Arc::default()));
        // A request of it may fail; then there is no such process.
        if let Ok(Some(router)) = followers.open(&mut store, "orders") {
            self.processes.push(Process {
                store,
                followers,
                router,
                frozen_until: 0,
                cut_off_until: 0,
                writes: Vec::new(),
            });
        } else {
            self.killed.push(format!("process {}", self.opened).into());
        }
    }

    /// What a program of the process asks, if it is answered.
    fn route(&self, at: usize, id: u64) -> Option<(String, Vec<String>)> {
        let live = &self.processes[at].router;
        let until = live.leased_until_ms();
        if self.mutant == Mutant::LapsedReaderAnswers && until <= self.now() {
            live.lease(u64::MAX >> 1);
        }
        let router = Router { live: live.clone() };
        let route = router.route(id).ok().map(|route| {
            let shards = std::iter::once(route.write).chain(route.mirror).map(str::to_owned);
            (route.read.to_owned(), shards.collect())
        });
        if live.leased_until_ms() == u64::MAX >> 1 {
            live.lease(until);
        }
        route
    }

    fn run_process(&mut self, at: usize) {
        let now = self.now();
        if self.processes[at].frozen_until > now {
            return;
        }
        let events = Events::new();
        let process = &mut self.processes[at];
        let was_leased = process.router.is_leased();
        let mut is_cut_off = process.cut_off_until > now;
        if self.mutant == Mutant::LeaseWithoutReading && !was_leased && !is_cut_off {
            let version = process.router.version();
            let written = process.followers.own.write(&mut process.store, &readers(), version);
            if let Ok(WrittenRow { until_ms, .. }) = written {
                process.router.lease(until_ms);
                // The table is read with the next turn.
                is_cut_off = true;
            }
        }
        while !is_cut_off && process.followers.poll(&mut process.store, now, &events) {
            if process.followers.due_at().is_none_or(|due| due > now) {
                break;
            }
        }
        let due: Vec<_> = {
            let (due, later) = process.writes.drain(..).partition(|(_, _, _, at)| *at <= now);
            process.writes = later;
            due
        };
        for (taken, id, shards, _) in due {
            // A program's writes have a deadline, and `settle` is longer.
            if now - taken > SETTLE_MS - TICK_MS {
                continue;
            }
            self.written += 1;
            let number = self.written;
            let mut reached = 0;
            for shard in &shards {
                if self.one_in(20) {
                    break;
                }
                self.rows.insert((shard.clone(), id), number);
                reached += 1;
            }
            if reached == shards.len() {
                self.acknowledged.insert(id, number);
            }
        }
        for _ in 0..2 {
            let id = self.random.u64(0..IDS);
            let Some((read, shards)) = self.route(at, id) else {
                self.refused += 1;
                continue;
            };
            if self.random.bool() {
                let later = now + self.random.u64(0..SETTLE_MS - TICK_MS);
                self.processes[at].writes.push((now, id, shards, later));
                continue;
            }
            self.read += 1;
            let found = self.rows.get(&(read.clone(), id)).copied().unwrap_or(0);
            let acknowledged = self.acknowledged.get(&id).copied().unwrap_or(0);
            if found < acknowledged && self.violation.is_none() {
                self.violation = Some(format!(
                    "id {id}: write {acknowledged} was acknowledged, and `{read}` has {found}; version {} of {:?}",
                    self.processes[at].router.version(),
                    self.seen().map(|(table, _)| table.version())
                ));
            }
        }
    }

    /// Table and readers, as an operator reads them.
    fn seen(&self) -> Option<(RouteTable, Readers)> {
        let mut store = MemoryStore::new(self.memory.clone());
        let stored = store.read_route(&Key::of_route("orders"), 0).ok()??;
        let table = RouteTable::parse(&stored.text?).ok()?;
        Some((table, store.readers(&readers()).ok()?))
    }

    fn operate(&mut self) {
        let now = self.now();
        let Some((mut table, mut readers)) = self.seen() else { return };
        if self.mutant == Mutant::ComparedAtOnce {
            table.settle_ms = 0;
        }
        let gone: Vec<_> = readers
            .all
            .iter()
            .filter(|reader| !reader.is_living() && self.killed.iter().any(|of| **of == *reader.owner))
            .map(|reader| reader.member)
            .collect();
        // What the operator says of processes that he knows to have ended.
        readers.all.retain(|reader| !gone.contains(&reader.member));
        match self.mutant {
            Mutant::OneReaderIsNotWaitedFor => {
                let lagging = |reader: &crate::request::reader::Reader| reader.version < table.version();
                if let Some(one) = readers.all.iter().position(|reader| is_living(reader) && lagging(reader))
                {
                    readers.all.remove(one);
                }
            }
            Mutant::LostReadersAreForgotten => readers.all.retain(is_living),
            _ => {}
        }
        let mut copies = false;
        let new = if table.moves() {
            let (moves, ..) = move_of(&table).expect("one range moves");
            let is_mirrored = moves.percent == 0 && moves.progress.verified_at.is_none();
            let step = match self.random.u8(0..25) {
                0 => MoveStep::Back,
                _ if moves.percent == 100 => MoveStep::Finish { watch_ms: None },
                _ if is_mirrored => match moves.progress.verify_from {
                    None => MoveStep::BeginVerify,
                    Some(from) if readers.now_ms >= from => {
                        copies = true;
                        MoveStep::Verified { began_at: readers.now_ms }
                    }
                    Some(_) => return,
                },
                _ => MoveStep::Next { watch_ms: None },
            };
            follow(&table, &step, &readers)
        } else {
            let from = table.ranges[0].shard.clone();
            let to = SHARDS.into_iter().find(|shard| *shard != from).unwrap_or_default().to_owned();
            let of = PlannedMove { first: 0, last: u16::MAX, from, to, share: 1.0 };
            let step = MoveStep::Start { of: &of, by: By::Number, steps: &[30, 100], watch_ms: WATCH_MS };
            follow(&table, &step, &readers)
        };
        if let Ok(new) = new {
            let at = if self.one_in(5) { now + self.random.u64(0..20_000) } else { now };
            self.late.push(Late { new, old: table.version(), at, copies });
        }
    }

    /// Steps whose operators have read and store now.
    fn store(&mut self) {
        let now = self.now();
        let (due, later): (Vec<_>, Vec<_>) = self.late.drain(..).partition(|late| late.at <= now);
        self.late = later;
        for Late { new, old, copies, .. } in due {
            if copies {
                let Some((table, _)) = self.seen().filter(|(table, _)| table.version() == old) else {
                    continue;
                };
                let (moves, ..) = move_of(&table).expect("it is mirrored");
                let from = table.ranges[0].shard.clone();
                for id in 0..IDS {
                    let newest = self.rows.get(&(from.clone(), id)).copied().unwrap_or(0);
                    let row = self.rows.entry((moves.to.clone(), id)).or_default();
                    *row = newest.max(*row);
                }
            }
            let text = new.to_text();
            let made = MemoryStore::new(self.memory.clone()).replace_route(
                &Key::of_route("orders"),
                Some(old),
                (new.version(), &text),
            );
            if made == Ok(true) {
                self.steps += 1;
                self.finished += u64::from(!new.moves() && new.ranges[0].shard != self.owner);
                self.owner.clone_from(&new.ranges[0].shard);
                self.undone += u64::from(
                    new.moves()
                        && new.ranges.iter().any(|range| {
                            range.moves.as_ref().is_some_and(|moves| {
                                moves.percent == 0
                                    && moves.progress.since.is_some_and(|since| since < new.version() - 1)
                            })
                        }),
                );
            }
        }
    }

    fn tick(&mut self, most: usize) {
        self.clock.advance(TICK_MS);
        if self.one_in(8) {
            let step = [Step::Lost, Step::Cut, Step::NotApplied][self.random.usize(0..3)].clone();
            self.memory.fail_next(step);
        }
        if self.processes.len() < most && (self.one_in(10) || self.processes.len() < most / 2) {
            self.open();
        }
        if !self.processes.is_empty() {
            let at = self.random.usize(0..self.processes.len());
            let now = self.now();
            match self.random.u16(0..400) {
                0 => {
                    let gone = self.processes.swap_remove(at);
                    self.killed.push(gone.followers.own.owner());
                }
                1 => {
                    let mut gone = self.processes.swap_remove(at);
                    gone.followers.close(Some(&mut gone.store));
                    self.killed.push(gone.followers.own.owner());
                }
                2..5 => self.processes[at].frozen_until = now + self.random.u64(0..40_000),
                5..8 => self.processes[at].cut_off_until = now + self.random.u64(0..40_000),
                _ => {}
            }
        }
        for at in 0..self.processes.len() {
            self.run_process(at);
        }
        for _ in 0..2 {
            if self.one_in(4) {
                self.operate();
            }
        }
        self.store();
    }
}

fn run(seed: u64, most: usize, ticks: u64, mutant: Mutant) -> World {
    let mut world = World::new(seed, mutant);
    for _ in 0..ticks {
        world.tick(most);
        if world.violation.is_some() {
            break;
        }
    }
    world
}

#[test]
fn with_frozen_killed_and_late_processes_no_acknowledged_write_is_unread() {
    let (mut steps, mut finished, mut undone, mut refused, mut read) = (0, 0, 0, 0, 0);
    for (seed, most, ticks) in (1..=12).map(|seed| (seed, 8, 3_000)).chain([(100, 100, 1_500)]) {
        let world = run(seed, most, ticks, Mutant::None);
        assert_eq!(world.violation, None, "seed {seed}");
        (steps, finished, undone) = (steps + world.steps, finished + world.finished, undone + world.undone);
        (refused, read) = (refused + world.refused, read + world.read);
    }
    println!(
        "{steps} steps, {finished} moves to the other shard, {undone} back to mirrored, {refused} refused, {read} reads"
    );
    assert!(steps > 100 && finished > 10 && refused > 100 && read > 10_000, "something was simulated");
}

#[test]
fn each_rule_that_does_not_hold_is_noticed() {
    for mutant in [
        Mutant::OneReaderIsNotWaitedFor,
        Mutant::LapsedReaderAnswers,
        Mutant::LostReadersAreForgotten,
        Mutant::LeaseWithoutReading,
        Mutant::ComparedAtOnce,
    ] {
        let noticed = (1..=60).find(|seed| run(*seed, 8, 3_000, mutant).violation.is_some());
        println!("{mutant:?}: seed {noticed:?}");
        assert!(noticed.is_some(), "{mutant:?} goes unnoticed");
    }
}
