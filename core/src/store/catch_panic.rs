//! Protects the keeper from a driver that panics: a panic costs one answer and one connection.
//!
//! A driver parses bytes of a server, and some parsers panic on unexpected ones. The panicking call may or may not have
//! changed the store, so its fault is `Unknown` and its range is never used. The driver's state is unknown too: the store
//! is dropped with its connection, and the next call makes a new one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{
    BankChange, BankRows, BankStore, BeginMark, Catalogue, Facts, Fault, FaultKind, GiveBack, Import, Key,
    Mark, PoolRows, RaisePool, Release, Renewal, Renewed, Request, Reserved, RouteStore, Row, RowStore,
    RowsWork, SlotStore, SlotWork, Store, StoredTable, Take, Taken, Work,
};
use crate::process::thread::panic_words;
use crate::request::bank_spec::{BankSpec, OpenBank};

/// Makes a store that is not connected yet.
pub(crate) type MakeStore = Box<dyn Fn() -> Box<dyn Store> + Send>;
/// Called with the text of each panic.
pub(crate) type OnPanic = Arc<dyn Fn(&str) + Send + Sync>;

pub(crate) struct CatchPanic {
    make: MakeStore,
    store: Option<Box<dyn Store>>,
    on_panic: OnPanic,
}

impl CatchPanic {
    pub(crate) fn new(make: MakeStore, on_panic: OnPanic) -> CatchPanic {
        CatchPanic { make, store: None, on_panic }
    }

    fn run<T>(&mut self, work: impl FnOnce(&mut dyn Store) -> T) -> Result<T, Fault> {
        let CatchPanic { make, store, .. } = self;
        // Unwind safety: the state that the panic left behind is in the store, which is dropped below.
        match catch_unwind(AssertUnwindSafe(|| work(&mut **store.get_or_insert_with(make)))) {
            Ok(answer) => Ok(answer),
            Err(payload) => {
                let message = format!(
                    "the store's driver panicked ({}); its connection was dropped and the next try makes a new one; please report it",
                    panic_words(payload)
                );
                self.discard();
                (self.on_panic)(&message);
                Err(Fault::new(FaultKind::Unknown, message))
            }
        }
    }

    fn ask<T>(&mut self, work: impl FnOnce(&mut dyn Store) -> Result<T, Fault>) -> Result<T, Fault> {
        self.run(work).and_then(|answer| answer)
    }

    fn discard(&mut self) {
        let store = self.store.take();
        // Dropping a driver sends a last packet, and may panic over the same state again.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(store))) {
            drop(panic_words(payload));
        }
    }
}

impl Drop for CatchPanic {
    fn drop(&mut self) {
        self.discard();
    }
}

// Every method is overridden, those with a default included: the defaults would skip the inner store.

impl RowStore for CatchPanic {
    fn transact(&mut self, key: &Key, period: u64, work: &mut Work<'_>) -> Result<(), Fault> {
        self.ask(|store| store.transact(key, period, work))
    }

    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.ask(|store| store.reserve(request))
    }

    fn batch(&self) -> usize {
        let batch = self.store.as_ref().map(|store| catch_unwind(AssertUnwindSafe(|| store.batch())));
        batch.map_or_else(|| (self.make)().batch(), |batch| batch.unwrap_or(1))
    }

    fn reserve_all(&mut self, requests: &[Request]) -> Vec<Option<Result<Reserved, Fault>>> {
        let answers = self.run(|store| store.reserve_all(requests));
        answers.unwrap_or_else(|fault| vec![Some(Err(fault)); requests.len()])
    }

    fn look_rows(&mut self, keys: &[Arc<Key>]) -> Result<Vec<Option<Mark>>, Fault> {
        self.ask(|store| store.look_rows(keys))
    }

    fn change_rows(&mut self, keys: &[Arc<Key>], work: &mut RowsWork<'_>) -> Result<Vec<bool>, Fault> {
        self.ask(|store| store.change_rows(keys, work))
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        self.ask(|store| store.give_back(key, period, lo, hi))
    }

    fn give_back_all(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        self.ask(|store| store.give_back_all(ranges))
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.ask(|store| store.raise(key, expect, to))
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        self.ask(|store| store.look(key))
    }

    fn age(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        self.ask(|store| store.age(key))
    }

    fn warnings_of(&mut self, key: &Key) -> Result<Vec<Fault>, Fault> {
        self.ask(|store| store.warnings_of(key))
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        self.ask(|store| store.repair(key, to))
    }

    fn would_repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        self.ask(|store| store.would_repair(key, to))
    }

    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        self.ask(|store| store.import(old, new, period))
    }

    fn new_owner(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        self.ask(|store| store.new_owner(old, new))
    }
}

impl SlotStore for CatchPanic {
    fn begin_mark(&mut self, begin: &BeginMark) -> Result<u64, Fault> {
        self.ask(|store| store.begin_mark(begin))
    }

    fn repair_mark(
        &mut self,
        begin: &BeginMark,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        self.ask(|store| store.repair_mark(begin, to, dry_run))
    }

    fn clock_ms(&mut self, key: &Key) -> Result<u64, Fault> {
        self.ask(|store| store.clock_ms(key))
    }

    fn transact_slots(&mut self, key: &Key, work: &mut SlotWork<'_>) -> Result<(), Fault> {
        self.ask(|store| store.transact_slots(key, work))
    }

    fn make_node(&mut self, key: &Key, host: &str, process: &str) -> Result<u64, Fault> {
        self.ask(|store| store.make_node(key, host, process))
    }

    fn take_slot(&mut self, take: &Take) -> Result<Taken, Fault> {
        self.ask(|store| store.take_slot(take))
    }

    fn renew_slots(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        self.ask(|store| store.renew_slots(renewals))
    }

    fn free_slots(&mut self, releases: &[Release]) -> Result<Vec<bool>, Fault> {
        self.ask(|store| store.free_slots(releases))
    }

    fn raise_pool(&mut self, raise: &RaisePool) -> Result<(PoolRows, PoolRows), Fault> {
        self.ask(|store| store.raise_pool(raise))
    }

    fn would_raise_pool(&mut self, raise: &RaisePool) -> Result<(PoolRows, PoolRows), Fault> {
        self.ask(|store| store.would_raise_pool(raise))
    }

    fn slots(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        self.ask(|store| store.slots(key))
    }
}

impl BankStore for CatchPanic {
    fn open_bank(&mut self, key: &Arc<Key>, bank: BankSpec) -> Result<OpenBank, Fault> {
        self.ask(|store| store.open_bank(key, bank))
    }

    fn reserve_counters(&mut self, requests: &[Request]) -> Vec<Result<Reserved, Fault>> {
        let answers = self.run(|store| store.reserve_counters(requests));
        answers.unwrap_or_else(|fault| vec![Err(fault); requests.len()])
    }

    fn change_counters(&mut self, key: &Arc<Key>, counters: u32, dry_run: bool) -> Result<BankChange, Fault> {
        self.ask(|store| store.change_counters(key, counters, dry_run))
    }

    fn repair_bank(
        &mut self,
        key: &Arc<Key>,
        bank: BankSpec,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        self.ask(|store| store.repair_bank(key, bank, to, dry_run))
    }

    fn look_bank(&mut self, key: &Key, start: u64) -> Result<Option<BankRows>, Fault> {
        self.ask(|store| store.look_bank(key, start))
    }

    fn give_back_counters(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        self.ask(|store| store.give_back_counters(ranges))
    }
}

impl RouteStore for CatchPanic {
    fn read_route(&mut self, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
        self.ask(|store| store.read_route(key, known))
    }

    fn list_routes(&mut self, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        self.ask(|store| store.list_routes(key))
    }

    fn replace_route(&mut self, key: &Key, old: Option<u64>, new: (u64, &str)) -> Result<bool, Fault> {
        self.ask(|store| store.replace_route(key, old, new))
    }
}

impl Catalogue for CatchPanic {
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        self.ask(|store| store.init(keys, dry_run))
    }

    fn writable(&mut self) -> Result<(), Fault> {
        self.ask(|store| store.writable())
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        self.ask(|store| store.facts())
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        // A store that was never made has no connection to close.
        self.store.as_ref()?;
        self.run(|store| store.release_idle(now_ms)).ok().flatten()
    }

    fn closing(&mut self) {
        if self.store.is_some() {
            let _ = self.run(|store| store.closing());
        }
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        self.run(|store| store.warnings()).ok().flatten()
    }

    fn created(&mut self) -> Vec<String> {
        // A store that was never made has created nothing.
        if self.store.is_none() {
            return Vec::new();
        }
        self.run(|store| store.created()).unwrap_or_default()
    }

    fn news(&mut self) -> Vec<Fault> {
        self.run(|store| store.news()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// The methods of a trait or an implementation, which end with a brace at the margin.
    fn methods(text: &'static str, begin: &str) -> BTreeSet<&'static str> {
        let body = text.split(begin).nth(1).and_then(|rest| rest.split("\n}\n").next()).expect("a block");
        body.lines().filter_map(|line| line.trim().strip_prefix("fn ")?.split('(').next()).collect()
    }

    #[test]
    fn every_method_of_a_store_is_passed_on() {
        let traits = [
            ("RowStore", include_str!("verbs/row_store.rs")),
            ("SlotStore", include_str!("verbs/slot_store.rs")),
            ("BankStore", include_str!("verbs/bank_store.rs")),
            ("RouteStore", include_str!("verbs/route_store.rs")),
            ("Catalogue", include_str!("verbs/catalogue.rs")),
        ];
        for (name, text) in traits {
            let asked = methods(text, &format!("pub trait {name}: "));
            let passed_on =
                methods(include_str!("catch_panic.rs"), &format!("impl {name} for CatchPanic {{"));
            assert!(!asked.is_empty());
            assert_eq!(asked, passed_on, "a method with a default would be lost silently behind it");
        }
    }
}
