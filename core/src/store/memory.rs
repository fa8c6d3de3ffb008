//! Reservations in memory: for tests, vectors, the simulation, and programs that need ids of one run only. (floor 2)
//!
//! A [`Memory`] is the "server"; any number of [`MemoryStore`]s are its clients. Its outcomes can be scripted, so that a
//! lost answer or a restored backup happens exactly where a test wants it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::rows::{self, Digits, ProducerKey, Rows, Stored};
use super::{Facts, Fault, FaultKind, Key, Mark, Request, Reserved, Row, Scheme, SerialKey, Store};

/// What happens to the next request that writes.
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
    /// Not done, `Refused` with this message.
    Refused(String),
    /// Silent for this long in real time, then as the script goes on.
    Frozen(Duration),
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<String, Stored>,
    script: VecDeque<Step>,
    down: bool,
    reservations: u64,
}

/// Rows that several stores share.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
}

/// Every row, to be put back later: a backup.
#[derive(Clone, Debug, Default)]
pub struct Snapshot(BTreeMap<String, Stored>);

static NAMED: LazyLock<Mutex<HashMap<String, Weak<Memory>>>> = LazyLock::new(Mutex::default);

impl Memory {
    /// A memory of one's own.
    #[must_use]
    pub fn new() -> Arc<Memory> {
        Arc::default()
    }

    /// The memory of this name, shared by whoever asks for it while anybody holds it.
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

    /// Until lifted, nothing is done and every request is `Unavailable`.
    pub fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// How many reservations have been applied, answered or not.
    #[must_use]
    pub fn reservations(&self) -> u64 {
        self.state().reservations
    }

    /// Sets a row, whatever it said before.
    ///
    /// # Errors
    /// `Refused` where the place cannot be kept under this key.
    pub fn set_row(&self, key: &Key, mark: Mark) -> Result<(), Fault> {
        let stored = rows::stored_at(key, mark)?;
        self.state().rows.insert(identity(key)?, stored);
        Ok(())
    }

    /// Sets `MAXSERIALNO` of a `key_producer` row: anything, NULL included.
    ///
    /// # Errors
    /// `Refused` where the key is not a serial's.
    pub fn set_text(&self, key: &Key, text: Option<&str>) -> Result<(), Fault> {
        let id = identity(key)?;
        self.state().rows.insert(id, Stored::Serial(text.map(str::to_owned)));
        Ok(())
    }

    /// Deletes a row. `false`: there was none.
    pub fn delete_row(&self, key: &Key) -> bool {
        identity(key).is_ok_and(|id| self.state().rows.remove(&id).is_some())
    }

    /// A backup.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.state().rows.clone())
    }

    /// The backup put back: everything since is forgotten.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.state().rows.clone_from(&snapshot.0);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic of another thread leaves no row half-written: every change is one insert or remove.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries one request that writes through the script. `apply` answers `None` never: nobody else holds the lock.
    fn carry_out<T>(&self, apply: impl FnOnce(&mut State) -> Result<Option<T>, Fault>) -> Result<T, Fault> {
        let step = loop {
            let mut state = self.state();
            match state.script.pop_front() {
                Some(Step::Frozen(pause)) => {
                    // Without the lock: other clients of a store are not frozen with this one.
                    drop(state);
                    std::thread::sleep(pause);
                }
                other => break other.unwrap_or(Step::Ack),
            }
        };
        let mut state = self.state();
        if state.down {
            return Err(down());
        }
        match step {
            Step::NotApplied => {
                return Err(Fault::new(FaultKind::Unavailable, "the memory store is scripted not to do it"));
            }
            Step::Cut => return Err(lost()),
            Step::Refused(message) => return Err(Fault::new(FaultKind::Refused, message)),
            Step::Ack | Step::Lost | Step::Frozen(_) => {}
        }
        let answer = apply(&mut state)?.ok_or_else(rows::moved_on)?;
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
            let of = ProducerKey::new(rows::serial_of(key)?)?;
            Ok([key.table.as_str(), &of.table, &of.column, &of.date, &of.number].join("\n"))
        }
    }
}

impl Rows for State {
    fn read(&mut self, key: &Key, _lock: bool) -> Result<Option<Stored>, Fault> {
        Ok(self.rows.get(&identity(key)?).cloned())
    }

    fn insert(&mut self, key: &Key, new: &Stored) -> Result<bool, Fault> {
        self.rows.insert(identity(key)?, new.clone());
        Ok(true)
    }

    fn replace(&mut self, key: &Key, _old: &Stored, new: &Stored) -> Result<bool, Fault> {
        self.insert(key, new)
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

impl Store for MemoryStore {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.shared
            .carry_out(|state| {
                let reserved = rows::reserve(state, request)?;
                state.reservations += 1;
                Ok(reserved)
            })
            .map_err(|fault| rows::during(&rows::reserving(request), fault))
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        self.shared
            .carry_out(|all| rows::give_back(all, key, period, lo, hi).map(Some))
            .map_err(|fault| rows::during(&format!("giving back [{lo}, {hi}) of `{}`", key.name), fault))
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.shared
            .carry_out(|all| rows::raise(all, key, expect, to))
            .map_err(|fault| rows::during(&format!("raising `{}` to {to}", key.name), fault))
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        let mut state = self.shared.state();
        if state.down {
            return Err(rows::during(&format!("looking at `{}`", key.name), down()));
        }
        rows::look(&mut *state, key)
            .map_err(|fault| rows::during(&format!("looking at `{}`", key.name), fault))
    }

    fn init(&mut self, _keys: &[Arc<Key>], _dry_run: bool) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        self.shared
            .carry_out(|all| rows::repair(all, key, to))
            .map_err(|fault| rows::during(&format!("repairing `{}`", key.name), fault))
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        Ok(Facts {
            dialect: "memory".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            durability: vec!["memory=lost with the process".to_owned()],
            warnings: Vec::new(),
        })
    }
}
