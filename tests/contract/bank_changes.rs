//! Two commands that change one bank at once, one of them anywhere in the midst of the other, while programs draw numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use keymill::simulation::counter_key;
use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::{
    BankSpec, BankStore, Catalogue, Facts, Fault, Key, Mark, ReaderStore, Request, RouteStore, Row, RowMark,
    RowStore, RowsWork, SlotStore, Store, Work,
};

use crate::banks::key;
use crate::bench::{Bench, Kind};

/// What is done in the midst of a command.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// One store, or several.
type Parts = Vec<Box<dyn Store>>;

/// A store that is left alone for `left` conversations; then something else happens.
struct Interrupted {
    store: Box<dyn Store>,
    left: u32,
    then: Option<Meanwhile>,
}

impl Interrupted {
    fn asked(&mut self) -> &mut dyn Store {
        if self.left == 0
            && let Some(then) = self.then.take()
        {
            then();
        }
        self.left = self.left.saturating_sub(1);
        &mut *self.store
    }
}

impl RowStore for Interrupted {
    fn transact(&mut self, key: &Key, period: u64, work: &mut Work<'_>) -> Result<(), Fault> {
        self.asked().transact(key, period, work)
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.asked().raise(key, expect, to)
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        self.asked().look(key)
    }

    fn look_rows(&mut self, keys: &[Arc<Key>]) -> Result<Vec<Option<RowMark>>, Fault> {
        self.asked().look_rows(keys)
    }

    fn change_rows(&mut self, keys: &[Arc<Key>], work: &mut RowsWork<'_>) -> Result<Vec<bool>, Fault> {
        self.asked().change_rows(keys, work)
    }
}

impl SlotStore for Interrupted {}

impl BankStore for Interrupted {}

impl RouteStore for Interrupted {}
impl ReaderStore for Interrupted {}

impl Catalogue for Interrupted {
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        self.store.init(keys, dry_run)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        self.store.facts()
    }
}

/// What an operator types.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Counters(u32),
    RepairTo(u64),
}

const VERBS: [Verb; 4] = [Verb::Counters(2), Verb::Counters(4), Verb::Counters(8), Verb::RepairTo(5_000)];

impl Verb {
    fn type_in(self, store: &mut dyn Store, bank: &Arc<Key>) -> Result<(), Fault> {
        match self {
            Verb::Counters(counters) => store.change_counters(bank, counters, false).map(drop),
            Verb::RepairTo(to) => store.repair_bank(bank, with(4, false), to, false).map(drop),
        }
    }
}

fn with(counters: u32, is_named: bool) -> BankSpec {
    BankSpec { counters, is_named, wide: false }
}

/// The programs of a bank: those of one number of counters draw wherever they ever began.
#[derive(Default)]
struct Programs {
    /// By the number of counters: where a counter without a row begins, and what was seen last of each counter.
    begun: BTreeMap<u32, (u64, Vec<u64>)>,
    /// The first and the last number of each range, by the eighth of the genes that it is for.
    given: BTreeMap<u32, Vec<(u64, u64)>>,
}

impl Programs {
    /// A program of each number of counters starts where it may, and each that ever began draws from all of its counters.
    fn draw(&mut self, store: &mut dyn Store, bank: &Arc<Key>) {
        for counters in [2, 4, 8] {
            if let Ok(open) = store.open_bank(bank, with(counters, true)) {
                let begin = (0, vec![0; counters as usize]);
                self.begun.entry(counters).or_insert(begin).0 = open.floor.max(1);
            }
        }
        for (&counters, (start, seen)) in &mut self.begun {
            for index in 0..counters {
                let high = &mut seen[index as usize];
                let request = Request {
                    start: *start,
                    high_water: Mark { period: 0, next: *high },
                    ..Request::new(&counter_key(bank, counters, index), 10)
                };
                let Some(Ok(range)) = store.reserve_counters(&[request]).pop() else { continue };
                *high = range.hi;
                let eighths = 8 / counters;
                for eighth in index * eighths..(index + 1) * eighths {
                    self.given.entry(eighth).or_default().push((range.lo, range.hi - 1));
                }
            }
        }
    }

    fn assert_distinct(&self, said: &str) {
        for (eighth, given) in &self.given {
            let mut given = given.clone();
            given.sort_unstable();
            for two in given.windows(2) {
                assert!(two[0].1 < two[1].0, "{said}: genes of eighth {eighth} got {two:?}");
            }
        }
    }
}

/// `parts` opens the parts of a store, and `join` makes one store of them.
fn whatever_two_commands_do(
    pairs: &[(Verb, Verb)],
    parts: &(dyn Fn() -> Parts + Sync),
    join: fn(Parts) -> Box<dyn Store>,
    bank_of: impl Fn() -> Arc<Key>,
) {
    for &(first, second) in pairs {
        for cut in 0.. {
            let (bank, said) = (bank_of(), format!("{second:?} after {cut} steps of {first:?}"));
            let mut store = join(parts());
            let mut programs = Programs::default();
            // Rows of other numbers of counters are there, closed.
            for counters in [8, 2, 4] {
                store.change_counters(&bank, counters, false).expect("it is changed");
                programs.draw(&mut *store, &bank);
            }
            let done = Arc::new(Mutex::new(None));
            let then: Meanwhile = {
                let (done, bank) = (Arc::clone(&done), Arc::clone(&bank));
                let (mut other, mut programs) = (join(parts()), std::mem::take(&mut programs));
                Box::new(move || {
                    programs.draw(&mut *other, &bank);
                    let _ = second.type_in(&mut *other, &bank);
                    programs.draw(&mut *other, &bank);
                    *done.lock().expect("one thread") = Some(programs);
                })
            };
            // The last part is where the conversations are counted: it is asked last in each step.
            let mut interrupted = parts();
            let last = interrupted.pop().expect("a store");
            interrupted.push(Box::new(Interrupted { store: last, left: cut, then: Some(then) }));
            let _ = first.type_in(&mut *join(interrupted), &bank);
            let Some(mut programs) = done.lock().expect("one thread").take() else { break };
            programs.draw(&mut *store, &bank);
            programs.assert_distinct(&said);
            for verb in [second, first] {
                let typed = verb.type_in(&mut *store, &bank);
                assert!(typed.is_ok() || matches!(verb, Verb::RepairTo(_)), "{said}, again: {typed:?}");
                programs.draw(&mut *store, &bank);
            }
            // Whatever became of them, one number of counters is recorded, and its programs go on.
            Verb::Counters(4).type_in(&mut *store, &bank).expect("it is changed");
            let before = programs.given.values().map(Vec::len).sum::<usize>();
            programs.draw(&mut *store, &bank);
            assert_eq!(programs.given.values().map(Vec::len).sum::<usize>(), before + 8, "{said}");
            programs.assert_distinct(&said);
        }
    }
}

fn every_pair() -> Vec<(Verb, Verb)> {
    VERBS.iter().flat_map(|&first| VERBS.map(|second| (first, second))).collect()
}

/// Each step of a command is a conversation, which takes its time on a server.
const SOME: [(Verb, Verb); 2] =
    [(Verb::Counters(8), Verb::Counters(4)), (Verb::RepairTo(5_000), Verb::Counters(2))];

fn on_one_store(pairs: &[(Verb, Verb)], bench: &Bench) {
    whatever_two_commands_do(pairs, &|| vec![bench.open()], |mut parts| parts.remove(0), || key(bench));
}

#[test]
fn two_commands_that_change_a_bank_at_once_give_no_number_twice() {
    on_one_store(&every_pair(), &Bench::memory(Kind::Segment));
    on_one_store(&SOME, &Bench::sqlite(Kind::Segment));
}

#[test]
fn two_commands_that_change_a_bank_on_a_server_at_once_give_no_number_twice() {
    on_one_store(&SOME, &Bench::mariadb(Kind::Segment));
    on_one_store(&SOME, &Bench::postgres(Kind::Segment));
    on_one_store(&SOME, &Bench::redis(Kind::Segment));
}

#[test]
fn two_commands_that_change_a_bank_of_two_stores_at_once_give_no_number_twice() {
    let memories = [Memory::new(), Memory::new()];
    let parts = || -> Parts {
        memories.iter().map(|memory| Box::new(MemoryStore::new(Arc::clone(memory))) as _).collect()
    };
    let join = |parts: Parts| -> Box<dyn Store> {
        let named = parts.into_iter().map(|store| ("memory:".to_owned(), store));
        Box::new(Interleaved::new(named.collect(), 1_000))
    };
    let bench = Bench::memory(Kind::Segment);
    whatever_two_commands_do(&every_pair(), &parts, join, || key(&bench));
}
