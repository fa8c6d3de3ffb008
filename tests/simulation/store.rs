//! A simulated database: the memory store's own rows, behind a wire that loses, delays and cuts, and a server that
//! freezes, crashes, fails over and forgets.

use std::sync::Arc;

use keymill::planner::{Answer, Ask};
use keymill::store::memory::{Memory, MemoryBackup, MemoryStore};
use keymill::store::{Fault, FaultKind, GiveBack, Key, Mark, RowStore, SlotStore};
use keymill::time::{Clock, ManualClock};

/// Microseconds of virtual time.
pub type Micros = u64;

/// A millisecond.
pub const MS: Micros = 1_000;
/// A second.
pub const SECOND: Micros = 1_000_000;

/// The behaviour of the wire and the server.
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    /// The shortest latency, one direction.
    pub way: Micros,
    /// How often, in a million, a message takes up to [`Weather::slow_way`].
    pub slow: u32,
    /// The longest latency.
    pub slow_way: Micros,
    /// How long one statement holds the row.
    pub service: Micros,
}

/// Faults of requests, each in a million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Storm {
    /// Applied, answer lost.
    pub lose: u32,
    /// Not applied, and the answer is lost.
    pub cut: u32,
    /// Not applied, and the server reports it.
    pub refuse: u32,
}

/// One database.
pub struct Database {
    memory: Arc<Memory>,
    /// The server's clock, which is right, and what it showed at the start.
    clock: Arc<ManualClock>,
    begin_ms: i64,
    client: MemoryStore,
    /// Its usual behaviour.
    pub weather: Weather,
    /// Its present faults.
    pub storm: Storm,
    /// Nothing is answered.
    pub down: bool,
    /// Nothing is applied before this time.
    pub frozen_until: Micros,
    /// Connections of an earlier epoch are dead.
    pub epoch: u32,
    /// Backups and replicas, by the number of the fault that will restore them.
    copies: Vec<(usize, MemoryBackup)>,
    busy_until: Micros,
    /// Statements applied or refused.
    pub statements: u64,
    /// Times at which it had a fault.
    pub troubles: Vec<(Micros, Micros)>,
}

/// The effect of a statement: the row before, the answer, the row after.
pub struct Applied {
    /// The position before; `None`: there was no row, or it held none.
    pub before: Option<Mark>,
    /// The present position.
    pub after: Option<Mark>,
    /// The server's answer.
    pub answer: Result<Answer, Fault>,
}

impl Database {
    /// A database with this behaviour, whose clock shows `begin_ms`.
    #[must_use]
    pub fn new(weather: Weather, begin_ms: i64) -> Database {
        let (memory, clock) = (Memory::new(), Arc::new(ManualClock::new(begin_ms)));
        memory.set_clock(Clock::Manual(clock.clone()));
        Database {
            clock,
            begin_ms,
            client: MemoryStore::new(memory.clone()),
            memory,
            weather,
            storm: Storm::default(),
            down: false,
            frozen_until: 0,
            epoch: 0,
            copies: Vec::new(),
            busy_until: 0,
            statements: 0,
            troubles: Vec::new(),
        }
    }

    /// The position of a row.
    pub fn mark(&mut self, key: &Key) -> Option<Mark> {
        self.client.look(key).ok().flatten().map(|row| row.mark).filter(|mark| *mark != Mark::default())
    }

    /// When a statement that arrives now will have been carried out: statements wait for each other.
    pub fn carried_out_at(&mut self, now: Micros) -> Micros {
        self.busy_until = self.busy_until.max(now) + self.weather.service;
        self.busy_until
    }

    /// Carries out a statement.
    pub fn apply(&mut self, ask: &Ask, now: Micros) -> Applied {
        self.statements += 1;
        self.clock.set_wall(self.begin_ms + (now / MS) as i64);
        let key = match ask {
            Ask::Reserve(request) => &request.key,
            Ask::Raise { key, .. } | Ask::Node { key, .. } => key,
            Ask::Take(take) => &take.key,
        };
        let before = self.mark(key);
        let answer = match ask {
            Ask::Reserve(request) => self.client.reserve(request).map(Answer::Reserved),
            Ask::Raise { key, expect, to, clock, .. } => {
                let now_ms = clock.then(|| self.client.clock_ms(key).unwrap_or_default());
                let raised = self.client.raise(key, *expect, *to);
                raised.map(|before| match now_ms {
                    Some(store_ms) => Answer::RaisedAt { before, store_ms },
                    None => Answer::Raised(before),
                })
            }
            Ask::Take(take) => self.client.take_slot(take).map(Answer::Taken),
            Ask::Node { key, owner } => self.client.make_node(key, owner, "").map(Answer::Node),
        };
        let after = self.mark(key);
        Applied { before, after, answer }
    }

    /// Carries out the return of a range.
    pub fn give_back(&mut self, range: &GiveBack) -> Result<bool, Fault> {
        self.statements += 1;
        self.client.give_back(range)
    }

    /// An operator raises a row. A row at or above the number stays as it is.
    pub fn repair(&mut self, key: &Key, to: Mark) {
        // `Refused` means that the row is higher by now, which is as good.
        let _ = self.client.repair(key, to);
    }

    /// Sets a row from outside, as an old KeyFactory node does.
    ///
    /// # Panics
    /// If the key cannot be kept: a defect of the scenario.
    pub fn set(&mut self, key: &Key, mark: Mark) {
        self.statements += 1;
        self.memory.set_row(key, mark).expect("a row that can be kept");
    }

    /// Deletes a row.
    pub fn delete(&mut self, key: &Key) {
        self.memory.delete_row(key);
    }

    /// Takes a backup, or stops a replica, for the fault of this number.
    pub fn copy(&mut self, fault: usize) {
        self.copies.push((fault, self.memory.snapshot()));
    }

    /// Puts the copy of this fault in place.
    pub fn put_back(&mut self, fault: usize) {
        if let Some(at) = self.copies.iter().position(|(n, _)| *n == fault) {
            let (_, snapshot) = self.copies.swap_remove(at);
            self.memory.restore(&snapshot);
        }
    }

    /// Whether it had a fault between these times.
    #[must_use]
    pub fn was_troubled(&self, from: Micros, to: Micros) -> bool {
        self.troubles.iter().any(|(begin, end)| *begin <= to && *end >= from)
    }
}

/// The connection broke or timed out during a request.
#[must_use]
pub fn unknown() -> Fault {
    Fault::new(FaultKind::Unknown, "the connection died in mid-flight")
}

/// The server cannot be reached.
#[must_use]
pub fn unavailable() -> Fault {
    Fault::new(FaultKind::Unavailable, "the server cannot be reached")
}
