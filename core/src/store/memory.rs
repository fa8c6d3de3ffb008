//! Reservations in memory: for tests, vectors, the simulation, and programs that need ids of one run only.
//!
//! A [`Memory`] is the "server"; any number of [`MemoryStore`]s are its clients. A script decides the outcome of each
//! request, so that a test chooses when an answer is lost or a backup is restored.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::model::counter::Counter;
use super::model::pool_rows::SlotRows;
use super::model::rows::{self, Digits, ProducerKey, Rows, StoredRow};
use super::{
    BankStore, Catalogue, Facts, Fault, FaultKind, Key, ListedRow, MAX_NUMBER, Mark, PoolRows, ReaderStore,
    Request, Reserved, RouteStore, Row, RowMark, RowStore, RowsWork, Scheme, SerialKey, SlotRow, SlotStore,
    SlotWork, StoredTable, Subject, Work,
};
use crate::time::{Clock, ManualClock};

/// The outcome of the next request that writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Done and answered.
    Ack,
    /// Done, but the answer is lost: `Unknown`.
    Lost,
    /// Not done, and the answer is lost: `Unknown` too. A client cannot tell it from [`Step::Lost`].
    Cut,
    /// Not done, and the store says so: `Unavailable`.
    NotApplied,
    /// Not done, as no server was reached: `Unavailable`.
    Unreached,
    /// Not done, `Refused` with this message.
    Refused(String),
    /// Silent for this long in real time, then the next step.
    Frozen(Duration),
    /// The requested row is set to this position (a restored backup), then the next step.
    At(u64),
    /// The requested row is deleted, then the next step.
    Gone,
    /// Done, and then the client panics, like a driver on an answer that it cannot parse.
    Panic,
}

impl Step {
    /// A script's syntax, for messages.
    pub const FORM: &str = "steps for the next requests that write, with commas between: ack, ack:N, lost, cut, down, down:N, away, away:N, refused, silent:TIME, at:N, gone, panic";

    /// Parses a script such as `ack:2,lost,down:3,at:1`; `None` if it is malformed.
    pub(crate) fn parse_script(text: &str, time: impl Fn(&str) -> Option<Duration>) -> Option<Vec<Step>> {
        /// No timeout is longer.
        const MOST: u64 = 10_000;
        let mut script = Vec::new();
        for word in text.split(',') {
            let (name, value) =
                word.split_once(':').map_or((word, None), |(name, value)| (name, Some(value)));
            let number = || value.map_or(Some(1), |value| value.parse::<u64>().ok());
            let times = || number().filter(|n| (1..=MOST).contains(n)).map(|n| n as usize);
            match name {
                "ack" => script.extend(vec![Step::Ack; times()?]),
                "down" => script.extend(vec![Step::NotApplied; times()?]),
                "away" => script.extend(vec![Step::Unreached; times()?]),
                "lost" if value.is_none() => script.push(Step::Lost),
                "cut" if value.is_none() => script.push(Step::Cut),
                "refused" if value.is_none() => {
                    script.push(Step::Refused("the memory store is scripted to refuse".to_owned()));
                }
                "gone" if value.is_none() => script.push(Step::Gone),
                "panic" if value.is_none() => script.push(Step::Panic),
                "silent" => script.push(Step::Frozen(time(value?)?)),
                "at" => script.push(Step::At(value?.parse().ok().filter(|n| *n <= MAX_NUMBER)?)),
                _ => return None,
            }
        }
        Some(script)
    }
}

#[derive(Debug, Default)]
struct MemoryState {
    rows: BTreeMap<String, StoredRow>,
    /// Leased workers, by table, pool and slot.
    slots: BTreeMap<(String, String, u64), SlotRow>,
    /// How many rows the tables of workers that are used once have.
    nodes: BTreeMap<String, u64>,
    /// Route tables by name: version and text.
    routes: BTreeMap<String, (u64, String)>,
    /// The clock by which leases end, unless it is the machine's.
    clock: Option<Clock>,
    script: VecDeque<Step>,
    down: bool,
    silent: Option<Silence>,
    /// How many requests have come.
    asked: u64,
    reservations: u64,
}

/// A server that accepts requests and never answers.
#[derive(Clone, Debug)]
pub struct Silence {
    /// The clock on which a client waits.
    pub clock: Arc<ManualClock>,
    /// How long it waits.
    pub timeout_ms: u64,
}

/// Rows that several stores share.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<MemoryState>,
}

/// Every row, to be put back later: a backup.
#[derive(Clone, Debug, Default)]
pub struct MemoryBackup {
    rows: BTreeMap<String, StoredRow>,
    slots: BTreeMap<(String, String, u64), SlotRow>,
    routes: BTreeMap<String, (u64, String)>,
}

static NAMED: LazyLock<Mutex<HashMap<String, Weak<Memory>>>> = LazyLock::new(Mutex::default);

impl Memory {
    /// A memory of its own.
    #[must_use]
    pub fn new() -> Arc<Memory> {
        Arc::default()
    }

    /// The memory of this name, shared while at least one handle of it exists.
    #[must_use]
    pub fn named(name: &str) -> Arc<Memory> {
        let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = named.get(name).and_then(Weak::upgrade) {
            return memory;
        }
        named.retain(|_, memory| memory.strong_count() > 0);
        let memory = Memory::new();
        named.insert(name.to_owned(), Arc::downgrade(&memory));
        memory
    }

    /// What happens to the next requests that write, one step each; [`Step::Ack`] when the script is over.
    pub fn script(&self, steps: impl IntoIterator<Item = Step>) {
        self.state().script.extend(steps);
    }

    /// The next request that writes ends like this, before anything scripted earlier.
    pub fn fail_next(&self, step: Step) {
        self.state().script.push_front(step);
    }

    /// Drops the rest of the script; answers with its number of steps.
    pub fn clear_script(&self) -> usize {
        std::mem::take(&mut self.state().script).len()
    }

    /// Until lifted, every request fails as `Unavailable` and changes nothing.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// Until lifted, every client waits for its timeout, and gets no answer.
    pub fn set_silent(&self, silence: Option<Silence>) {
        self.state().silent = silence;
    }

    /// How many requests have come, answered or not.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.state().asked
    }

    /// Sets the store's clock, by which leases of workers end.
    pub fn set_clock(&self, clock: Clock) {
        self.state().clock = Some(clock);
    }

    /// How many reservations have been applied, answered or not.
    #[must_use]
    pub fn reservations(&self) -> u64 {
        self.state().reservations
    }

    /// Sets the mark of a row, wherever it stood before. A new row is open.
    ///
    /// # Errors
    /// `Refused` where the place cannot be kept under this key.
    pub fn set_row(&self, key: &Key, mark: Mark) -> Result<(), Fault> {
        let id = identity(key)?;
        let mut state = self.state();
        let status = match state.rows.get(&id) {
            Some(StoredRow::Segment(row)) => row.status,
            _ => key.open(),
        };
        state.put(id, rows::stored_as(key, RowMark { mark, status, writer: 0 })?);
        Ok(())
    }

    /// Sets a row and its status, whatever it said before.
    ///
    /// # Errors
    /// `Refused` where the place cannot be kept under this key.
    pub fn set_row_mark(&self, key: &Key, row: RowMark) -> Result<(), Fault> {
        let stored = rows::stored_as(key, row)?;
        self.state().put(identity(key)?, stored);
        Ok(())
    }

    /// Sets `MAXSERIALNO` of a `key_producer` row to any value, NULL included.
    ///
    /// # Errors
    /// `Refused` where the key is not a serial's.
    pub fn set_text(&self, key: &Key, text: Option<&str>) -> Result<(), Fault> {
        let id = identity(key)?;
        self.state().rows.insert(id, StoredRow::Serial(text.map(str::to_owned)));
        Ok(())
    }

    /// Deletes a row. `false`: there was none.
    pub fn delete_row(&self, key: &Key) -> bool {
        identity(key).is_ok_and(|id| self.state().rows.remove(&id).is_some())
    }

    /// Takes a backup.
    #[must_use]
    pub fn snapshot(&self) -> MemoryBackup {
        let state = self.state();
        MemoryBackup { rows: state.rows.clone(), slots: state.slots.clone(), routes: state.routes.clone() }
    }

    /// Restores a backup: every change since is forgotten.
    pub fn restore(&self, snapshot: &MemoryBackup) {
        let mut state = self.state();
        state.rows.clone_from(&snapshot.rows);
        state.slots.clone_from(&snapshot.slots);
        state.routes.clone_from(&snapshot.routes);
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        // A panic of another thread leaves no row half-written: every change is one insert or remove.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the script's next step around a request that writes. `apply` never answers `None`: no other client can hold the
    /// lock meanwhile. `period` is the one in which a missing row would begin.
    fn carry_out<T>(
        &self,
        key: &Key,
        period: u64,
        apply: impl FnOnce(&mut MemoryState) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault> {
        let step = loop {
            let mut state = self.state();
            match state.script.pop_front() {
                Some(Step::Frozen(pause)) => {
                    // Without the lock: a frozen client does not freeze the others.
                    drop(state);
                    std::thread::sleep(pause);
                }
                Some(Step::At(next)) => state.set_back(key, period, next)?,
                Some(Step::Gone) => {
                    state.rows.remove(&identity(key)?);
                }
                other => break other.unwrap_or(Step::Ack),
            }
        };
        let mut state = self.state();
        state.heard()?;
        match step {
            Step::NotApplied => {
                return Err(Fault::new(FaultKind::Unavailable, "the memory store is scripted not to do it"));
            }
            Step::Unreached => {
                let fault = Fault::new(FaultKind::Unavailable, "the memory store is scripted to be away");
                return Err(fault.of_unreached_server());
            }
            Step::Cut => return Err(lost()),
            Step::Refused(message) => return Err(Fault::new(FaultKind::Refused, message)),
            Step::Ack | Step::Lost | Step::Panic | Step::Frozen(_) | Step::At(_) | Step::Gone => {}
        }
        let answer = apply(&mut state)?.ok_or_else(rows::moved_on)?;
        drop(state);
        assert!(step != Step::Panic, "the memory store is scripted to panic");
        if step == Step::Lost { Err(lost()) } else { Ok(answer) }
    }
}

fn lost() -> Fault {
    Fault::new(FaultKind::Unknown, "the memory store is scripted to lose the answer")
}

fn down() -> Fault {
    Fault::new(FaultKind::Unavailable, "the memory store is scripted to be down")
}

/// A row's identity: the same two keys share a row here that would share one in a database.
fn identity(key: &Key) -> Result<String, Fault> {
    match key.scheme {
        Scheme::Keymill => Ok(format!("{}\n{}", key.table, key.name)),
        Scheme::KeyProducer => {
            let producer = ProducerKey::new(rows::serial_of(key)?)?;
            Ok([key.table.as_str(), &producer.table, &producer.column, &producer.date, &producer.number]
                .join("\n"))
        }
        _ => {
            rows::check_kept_here(key)?;
            let name = Counter::of(key).map_or(Ok(key.name.as_str()), |counter| counter.row_name())?;
            Ok(format!("{}\n{name}", key.table))
        }
    }
}

impl MemoryState {
    /// A request has come; an error if it is not answered.
    fn heard(&mut self) -> Result<(), Fault> {
        self.asked += 1;
        if let Some(Silence { clock, timeout_ms }) = &self.silent {
            clock.advance(*timeout_ms);
            return Err(Fault::new(FaultKind::Unavailable, "the memory store is scripted to be silent"));
        }
        if self.down { Err(down()) } else { Ok(()) }
    }

    /// Sets the row of `key` to `next`, in its present period.
    fn set_back(&mut self, key: &Key, period: u64, next: u64) -> Result<(), Fault> {
        let stored =
            self.rows.get(&identity(key)?).map(|stored| rows::row_mark_of(key, stored)).transpose()?;
        let row = stored.flatten().unwrap_or_else(|| key.row_at(Mark { period, next }));
        self.put(identity(key)?, rows::stored_as(key, row.at(next))?);
        Ok(())
    }

    fn put(&mut self, id: String, new: StoredRow) {
        let new = new.after(self.rows.get(&id));
        self.rows.insert(id, new);
    }
}

impl Rows for MemoryState {
    fn read(&mut self, key: &Key, _lock: bool) -> Result<Option<StoredRow>, Fault> {
        Ok(self.rows.get(&identity(key)?).cloned())
    }

    fn insert(&mut self, key: &Key, new: &StoredRow) -> Result<bool, Fault> {
        self.put(identity(key)?, new.clone());
        Ok(true)
    }

    fn replace(&mut self, key: &Key, _old: &StoredRow, new: &StoredRow) -> Result<bool, Fault> {
        self.insert(key, new)
    }

    fn clock_ms(&mut self, _enough_ms: u64) -> Result<Option<u64>, Fault> {
        // Without a clock of its own it has the machine's.
        Ok(self.clock.as_ref().map(|_| self.now_ms()))
    }

    fn largest(
        &mut self,
        _serial: &SerialKey,
        _prefix: &str,
        _digits: Digits,
    ) -> Result<Option<String>, Fault> {
        // There are no business tables in memory.
        Ok(None)
    }

    fn new_owner(&mut self, key: &Key, record: &str) -> Result<Option<String>, Fault> {
        let record = Subject::Import { record: record.to_owned(), owner: String::new() };
        let begins = identity(&Key { name: record.into(), ..key.clone() })?;
        Ok(self.rows.keys().filter_map(|id| id.strip_prefix(&begins)).min().map(str::to_owned))
    }
}

impl MemoryState {
    /// The clock, milliseconds since 1970.
    fn now_ms(&self) -> u64 {
        let now_ms = self.clock.as_ref().unwrap_or(&Clock::System).wall_ms();
        u64::try_from(now_ms).unwrap_or(0)
    }

    fn slot(&mut self, key: &Key, slot: u64) -> &mut SlotRow {
        self.slots.entry((key.table.clone(), key.name.to_string(), slot)).or_default()
    }
}

impl SlotRows for MemoryState {
    fn read_pool(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let from = (key.table.clone(), key.name.to_string(), 0);
        let to = (key.table.clone(), key.name.to_string(), u64::MAX);
        let mut pool = PoolRows { now_ms: self.now_ms(), ..PoolRows::default() };
        for row in self.slots.range(from..=to).map(|(_, row)| row) {
            pool.add(key, row.clone())?;
        }
        Ok(pool)
    }

    fn insert_pool(&mut self, key: &Key, new: &SlotRow) -> Result<bool, Fault> {
        *self.slot(key, new.slot) = new.clone();
        Ok(true)
    }

    fn insert_slot(&mut self, key: &Key, new: &SlotRow, _floor: u64) -> Result<bool, Fault> {
        *self.slot(key, new.slot) = new.clone();
        Ok(true)
    }

    fn replace_slot(&mut self, key: &Key, _old: &SlotRow, new: &SlotRow) -> Result<bool, Fault> {
        *self.slot(key, new.slot) = new.clone();
        Ok(true)
    }

    fn delete_slot(&mut self, key: &Key, old: &SlotRow) -> Result<bool, Fault> {
        Ok(self.slots.remove(&(key.table.clone(), key.name.to_string(), old.slot)).is_some())
    }
}

/// One client of a [`Memory`].
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Memory>,
}

impl MemoryStore {
    /// A client of this memory.
    #[must_use]
    pub fn new(shared: Arc<Memory>) -> MemoryStore {
        MemoryStore { shared }
    }
}

impl RowStore for MemoryStore {
    fn transact(&mut self, key: &Key, period: u64, work: &mut Work<'_>) -> Result<(), Fault> {
        self.shared.carry_out(key, period, |state| Ok(work.run(state)?.then_some(())))
    }

    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        let reserved = self.shared.carry_out(&request.key, request.period, |state| {
            let reserved = rows::reserve(state, request)?;
            state.reservations += 1;
            Ok(reserved)
        });
        reserved.map_err(|fault| fault.with_context(&rows::reserving(request)))
    }

    fn change_rows(&mut self, keys: &[Arc<Key>], work: &mut RowsWork<'_>) -> Result<Vec<bool>, Fault> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        self.shared.carry_out(first, 0, |state| {
            for (at, key) in keys.iter().enumerate() {
                let id = identity(key)?;
                let row = state.rows.get(&id).map_or(Ok(None), |stored| rows::row_mark_of(key, stored));
                let before = row.as_ref().ok().copied().flatten();
                if let Some(after) = work.run(at, row).filter(|after| Some(*after) != before) {
                    state.put(id, rows::stored_as(key, after)?);
                    state.reservations += 1;
                }
            }
            Ok(Some(vec![true; keys.len()]))
        })
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        let mut state = self.shared.state();
        let row = state.heard().and_then(|()| rows::look(&mut *state, key));
        row.map_err(|fault| fault.with_context(&format!("looking at `{}`", key.name)))
    }
}

impl SlotStore for MemoryStore {
    fn clock_ms(&mut self, _key: &Key) -> Result<u64, Fault> {
        let mut state = self.shared.state();
        state.heard().map(|()| state.now_ms())
    }

    fn transact_slots(&mut self, key: &Key, work: &mut SlotWork<'_>) -> Result<(), Fault> {
        self.shared.carry_out(key, 0, |state| Ok(work.run(state)?.then_some(())))
    }

    fn make_node(&mut self, key: &Key, _host: &str, _process: &str) -> Result<u64, Fault> {
        let made = self.shared.carry_out(key, 0, |state| {
            let nodes = state.nodes.entry(key.table.clone()).or_default();
            *nodes += 1;
            Ok(Some(*nodes))
        });
        made.map_err(|fault| fault.with_context(&super::making_a_node(key)))
    }
}

impl BankStore for MemoryStore {}
impl ReaderStore for MemoryStore {}

impl RouteStore for MemoryStore {
    fn list_routes(&mut self, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        let mut state = self.shared.state();
        state.heard().map_err(|fault| fault.with_context(&super::listing_routes(key)))?;
        let stored = |(version, text): &(u64, String)| StoredTable::new(*version, Some(text.clone()));
        Ok(state.routes.iter().map(|(name, table)| (name.clone(), stored(table))).collect())
    }

    fn read_route(&mut self, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
        let mut state = self.shared.state();
        state.heard().map_err(|fault| fault.with_context(&super::reading_route(key)))?;
        let stored = |(version, text): &(u64, String)| {
            StoredTable::new(*version, (*version != known).then(|| text.clone()))
        };
        Ok(state.routes.get(key.name.as_str()).map(stored))
    }

    fn replace_route(&mut self, key: &Key, old: Option<u64>, new: (u64, &str)) -> Result<bool, Fault> {
        let replaced = self.shared.carry_out(key, 0, |state| {
            let is_old = state.routes.get(key.name.as_str()).map(|(version, _)| *version) == old;
            if is_old {
                state.routes.insert(key.name.to_string(), (new.0, new.1.to_owned()));
            }
            Ok(Some(is_old))
        });
        replaced.map_err(|fault| fault.with_context(&super::replacing_route(key)))
    }
}

impl Catalogue for MemoryStore {
    fn list_rows(&mut self, key: &Key, most: usize) -> Result<Vec<ListedRow>, Fault> {
        let mut state = self.shared.state();
        state.heard().map_err(|fault| fault.with_context(&super::listing_rows(key)))?;
        if key.scheme == Scheme::Worker {
            let pools = state.slots.keys().filter(|(table, ..)| *table == key.table);
            let names: BTreeSet<&String> = pools.map(|(_, pool, _)| pool).collect();
            return Ok(names.into_iter().take(most).map(|name| ListedRow::pool(name)).collect());
        }
        let begin = format!("{}\n", key.table);
        let listed = state.rows.iter().filter_map(|(id, row)| match (id.strip_prefix(&begin)?, row) {
            (name, StoredRow::Segment(row)) if !ListedRow::is_of_listed_bank(name) => {
                Some(ListedRow { name: name.to_owned(), date: row.mark.period, next: Some(row.mark.next) })
            }
            _ => None,
        });
        Ok(listed.take(most).collect())
    }

    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        let kept = keys.iter().try_for_each(|key| rows::check_kept_here(key));
        kept.map(|()| Vec::new()).map_err(|fault| fault.with_context(rows::creating(dry_run)))
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        let mut state = self.shared.state();
        if state.silent.is_some() {
            state.heard()?;
        }
        Ok(Facts {
            dialect: "memory".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            durability: vec!["memory=lost with the process".to_owned()],
            ..Facts::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;

    fn script(text: &str) -> Option<Vec<Step>> {
        Step::parse_script(text, |time| (time == "2s").then_some(Duration::from_secs(2)))
    }

    #[test]
    fn a_script_reads_as_the_steps_it_names() {
        let refused = Step::Refused("the memory store is scripted to refuse".to_owned());
        let steps = "ack,ack:2,lost,cut,down,away,refused,silent:2s,at:9223372036854775807,gone";
        assert_eq!(
            script(steps),
            Some(vec![
                Step::Ack,
                Step::Ack,
                Step::Ack,
                Step::Lost,
                Step::Cut,
                Step::NotApplied,
                Step::Unreached,
                refused,
                Step::Frozen(Duration::from_secs(2)),
                Step::At(MAX_NUMBER),
                Step::Gone,
            ])
        );
        assert_eq!(script("down:3").map(|steps| steps.len()), Some(3));
    }

    #[test]
    fn what_is_no_script_is_refused_with_its_form() {
        for wrong in [
            "",
            "ack,",
            "up",
            "ack:0",
            "ack:10001",
            "ack:x",
            "lost:2",
            "gone:1",
            "silent",
            "silent:1y",
            "at",
            "at:x",
            "at:9223372036854775808",
        ] {
            assert_eq!(script(wrong), None, "{wrong}");
            let error = MillConfig::parse(&format!("memory:?script={wrong}")).map(drop).unwrap_err();
            assert!(error.message.contains("silent:TIME"), "{}", error.message);
        }
    }

    #[test]
    fn a_row_that_is_set_back_keeps_its_period() -> Result<(), Fault> {
        let memory = Memory::new();
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec("segment:a")).expect("a spec");
        let mut store = MemoryStore::new(memory.clone());
        let ask = |high_water, period| Request {
            key: spec.key.clone(),
            len: 10,
            high_water,
            start: 1,
            last: MAX_NUMBER,
            period,
            period_max: period,
            clock: None,
            heal: false,
            max_jump: 0,
            single: 0,
            writer: 0,
        };
        memory.script([Step::At(500), Step::Ack, Step::At(7)]);
        assert_eq!(
            store.reserve(&ask(Mark::default(), 3))?,
            Reserved { lo: 500, hi: 510, period: 3, ttl_ms: None }
        );
        let fault = store.reserve(&ask(Mark { period: 3, next: 510 }, 4)).expect_err("the row was set back");
        assert_eq!(fault.kind, FaultKind::WentBackwards);
        assert_eq!(store.look(&spec.key)?.map(|row| row.mark), Some(Mark { period: 3, next: 7 }));
        Ok(())
    }
}
