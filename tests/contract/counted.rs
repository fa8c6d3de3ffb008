//! A store as a source with a stride uses it: requests and answers are in the source's own count, from 1 for its first id.
//! So the suite can use the same numbers as for every other source.

use std::sync::Arc;

use keymill::store::{
    BankStore, Catalogue, Facts, Fault, GiveBack, Import, Key, Mark, ReaderStore, Request, Reserved,
    RouteStore, Row, RowStore, SlotStore, Store,
};

pub struct Counted(pub Box<dyn Store>);

fn counted(key: &Key, mut row: Row) -> Row {
    row.mark.next = key.stride.counted(row.mark.next);
    row
}

fn of_the_row(key: &Key, mark: Mark) -> Mark {
    Mark { next: key.stride.nth(mark.next), ..mark }
}

impl RowStore for Counted {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        let stride = request.key.stride;
        // Options of a spec are in ids; the suite's numbers are the source's own count.
        let (start, last) = (stride.nth(request.start), stride.nth(request.last));
        let asked = Request { start, last, ..request.clone().of_the_row() };
        self.0.reserve(&asked).map(|reserved| reserved.of_the_source(stride))
    }

    fn give_back(&mut self, range: &GiveBack) -> Result<bool, Fault> {
        let [lo, hi] = [range.lo, range.hi].map(|number| range.key.stride.nth(number));
        self.0.give_back(&GiveBack { lo, hi, ..range.clone() })
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.0.raise(key, expect, to)
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        Ok(self.0.look(key)?.map(|row| counted(key, row)))
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        let (before, after) = self.0.repair(key, of_the_row(key, to))?;
        Ok((before.map(|row| counted(key, row)), counted(key, after)))
    }

    fn would_repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        let (before, after) = self.0.would_repair(key, of_the_row(key, to))?;
        Ok((before.map(|row| counted(key, row)), counted(key, after)))
    }

    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        self.0.import(old, new, period)
    }
}

impl SlotStore for Counted {}

impl BankStore for Counted {}

impl RouteStore for Counted {}
impl ReaderStore for Counted {}

impl Catalogue for Counted {
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        self.0.init(keys, dry_run)
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        self.0.release_idle(now_ms)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        self.0.facts()
    }
}
