//! A database in memory, of MySQL's or of PostgreSQL's kind, with the tables `t` and `c`: transactions with undo, locks of rows, locks of ids,
//! waits, deadlocks and lock wait timeouts. Its isolation is READ COMMITTED: a row that is not there is locked by nothing.
//!
//! A waiter gets its lock in any order among those that wait, which includes the order of a real server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;

use crate::shards::{ShardFailure, ShardKind};

/// A table: `t (id, n)` is the root, `c (id, at, seat)` its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Table {
    Root,
    Child,
}

/// A primary key; `at` is 0 in the root.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) table: Table,
    pub(super) id: u64,
    pub(super) at: u64,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (gene, number) = (self.id >> 47, self.id & 0xffff);
        match self.table {
            Table::Root => write!(f, "t {gene}.{number}"),
            Table::Child => write!(f, "c {gene}.{number} {}", self.at),
        }
    }
}

/// `n` of the root, `seat` of a child; `None` is NULL.
pub(super) type Value = Option<u64>;

/// A transaction.
pub(super) type Number = u64;

/// Locks of a row, as PostgreSQL has them. MySQL has `Share` and `Update` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lock {
    KeyShare,
    Share,
    NoKeyUpdate,
    Update,
}

impl Lock {
    fn excludes(self, other: Lock) -> bool {
        match self.min(other) {
            Lock::KeyShare => self.max(other) == Lock::Update,
            Lock::Share => self.max(other) >= Lock::NoKeyUpdate,
            Lock::NoKeyUpdate | Lock::Update => true,
        }
    }
}

/// Which rows a statement is about.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scope {
    Ids(Table, Vec<u64>),
    Keys(Vec<Key>),
}

impl Scope {
    fn has(&self, key: Key) -> bool {
        match self {
            Scope::Ids(table, ids) => key.table == *table && ids.contains(&key.id),
            Scope::Keys(keys) => keys.contains(&key),
        }
    }
}

/// What a database is asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Statement {
    /// A question to the catalogue.
    Catalogue(Vec<Vec<&'static str>>),
    /// PostgreSQL: locks an id and marks the transaction with it. `None`: the lock is left out.
    LockId(Option<String>, String),
    /// PostgreSQL: asks for the mark.
    PinOld,
    /// PostgreSQL: locks an id, and sets `lock_timeout`.
    PinNew(Option<String>),
    Savepoint,
    Release,
    /// Whether the root has a row: `SELECT '1'`.
    Probe {
        id: u64,
        lock: Option<Lock>,
        waits: bool,
    },
    Select(Scope, Option<Lock>),
    Update(Key, Value),
    Delete(Scope),
    Insert {
        rows: Vec<(Key, Value)>,
        /// A row with this key is updated.
        or_replace: bool,
    },
    CheckConstraints,
    Commit,
}

#[derive(Clone, Copy, Debug)]
struct Version {
    value: Value,
    /// PostgreSQL: a row that was deleted and inserted again is another row.
    born: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    by: Number,
    row: Option<Version>,
}

#[derive(Debug, Default)]
struct Slot {
    committed: Option<Version>,
    pending: Option<Pending>,
    locks: Vec<(Number, Lock)>,
}

impl Slot {
    fn is_there(&self) -> bool {
        self.committed.is_some() || self.pending.is_some()
    }
}

/// A constraint that is checked at the end of a statement, or later.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Check {
    ParentOf(Key),
    ChildrenOf(Key),
    Seat(Key),
}

#[derive(Debug, Default)]
struct Transaction {
    connection: usize,
    undo: Vec<(Key, Option<Pending>)>,
    has_savepoint: bool,
    mark: String,
    has_lock_timeout: bool,
    checks_at_once: bool,
    checks: Vec<Check>,
}

/// A statement under way.
#[derive(Debug)]
struct Running {
    statement: Statement,
    /// Where a statement of MySQL has come to in the index.
    after: Option<Key>,
    /// The rows that a statement of PostgreSQL saw when it began.
    snapshot: Option<Vec<(Key, u64)>>,
    /// The row that is locked and not yet changed.
    current: Option<Key>,
    /// The row of an insert, and whether its key is inserted.
    at: usize,
    is_half: bool,
    rows: Vec<(Key, Value)>,
    checks: Vec<Check>,
    undo: usize,
}

/// Why a statement does not go on.
#[derive(Debug)]
enum Stop {
    Wait(Vec<Number>),
    Fail(ShardFailure),
}

#[derive(Debug, Default)]
pub(super) struct Connection {
    transaction: Option<Number>,
    running: Option<Running>,
    /// The server has ended its transaction while its statement waited.
    failed: Option<ShardFailure>,
    /// PostgreSQL: only a rollback is possible.
    pub(super) is_aborted: bool,
    /// The server has ended a transaction that this connection had begun.
    pub(super) is_undone: bool,
    /// It is gone.
    pub(super) is_broken: bool,
    /// A transaction was begun and not ended by the program.
    pub(super) is_begun: bool,
    /// It has set how long a statement waits.
    pub(super) limits_waits: bool,
}

#[derive(Debug)]
pub(super) struct Database {
    pub(super) kind: ShardKind,
    /// `c.id` refers to `t.id`.
    pub(super) has_foreign_key: bool,
    /// PostgreSQL: the constraints are checked when a transaction commits.
    pub(super) defers: bool,
    slots: BTreeMap<Key, Slot>,
    ids: BTreeMap<String, Number>,
    transactions: BTreeMap<Number, Transaction>,
    pub(super) connections: Vec<Connection>,
    waits: BTreeMap<Number, Vec<Number>>,
    counter: u64,
    random: fastrand::Rng,
    /// What transactions have committed since it was asked: the connection, and the ids.
    pub(super) committed: Vec<(usize, BTreeSet<u64>)>,
    pub(super) deadlocks: u64,
}

/// The rows of an id: `n`, and the seats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content(pub(super) BTreeMap<Key, Value>);

pub(super) fn failure(number: u32, state: &str, message: &str) -> ShardFailure {
    ShardFailure { state: state.to_owned(), number, message: message.to_owned(), is_broken: false }
}

impl Connection {
    /// Its transaction is aborted, and the program was told so.
    pub(super) fn has_aborted(&self) -> bool {
        self.is_aborted && self.failed.is_none()
    }
}

impl Database {
    pub(super) fn new(kind: ShardKind, seed: u64) -> Database {
        Database {
            kind,
            has_foreign_key: true,
            defers: false,
            slots: BTreeMap::new(),
            ids: BTreeMap::new(),
            transactions: BTreeMap::new(),
            connections: Vec::new(),
            waits: BTreeMap::new(),
            counter: 0,
            random: fastrand::Rng::with_seed(seed),
            committed: Vec::new(),
            deadlocks: 0,
        }
    }

    pub(super) fn connect(&mut self) -> usize {
        self.connections.push(Connection::default());
        self.connections.len() - 1
    }

    fn next(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }

    fn is_mysql(&self) -> bool {
        self.kind == ShardKind::MySql
    }

    fn error(&self, mysql: u32, postgres: &str, message: &str) -> ShardFailure {
        if self.is_mysql() {
            return failure(mysql, if mysql == 1213 { "40001" } else { "HY000" }, message);
        }
        failure(0, postgres, message)
    }

    fn start(&mut self, connection: usize) -> Number {
        let number = self.next();
        self.transactions.insert(number, Transaction { connection, ..Transaction::default() });
        self.connections[connection].transaction = Some(number);
        number
    }

    pub(super) fn begin(&mut self, connection: usize) {
        assert!(self.connections[connection].transaction.is_none(), "a transaction begins in another one");
        let session = &mut self.connections[connection];
        (session.is_aborted, session.is_undone, session.is_begun) = (false, false, true);
        self.start(connection);
    }

    pub(super) fn rollback(&mut self, connection: usize) {
        let session = &mut self.connections[connection];
        (session.running, session.failed, session.is_aborted, session.is_begun) = (None, None, false, false);
        if let Some(number) = session.transaction {
            self.end(number, false);
        }
    }

    /// The connection is gone, and its transaction.
    pub(super) fn cut(&mut self, connection: usize) {
        self.rollback(connection);
        self.connections[connection].is_broken = true;
    }

    /// Whether a statement that waits may fail because it has waited long.
    pub(super) fn may_time_out(&self, connection: usize) -> bool {
        let number = self.connections[connection].transaction;
        self.connections[connection].running.is_some()
            && (self.is_mysql()
                || self.connections[connection].limits_waits
                || number
                    .and_then(|number| self.transactions.get(&number))
                    .is_some_and(|transaction| transaction.has_lock_timeout))
    }

    /// A statement that waits fails. MySQL undoes the statement only.
    pub(super) fn time_out(&mut self, connection: usize) -> ShardFailure {
        let error = self.error(1205, "55P03", "Lock wait timeout");
        self.fail(connection, &error);
        error
    }

    fn fail(&mut self, connection: usize, error: &ShardFailure) {
        let session = &mut self.connections[connection];
        let running = session.running.take();
        let Some(number) = session.transaction else { return };
        self.waits.remove(&number);
        let is_autocommit = !self.connections[connection].is_begun;
        if self.is_mysql() && error.number != 1213 && !is_autocommit {
            let mark = running.map_or(0, |running| running.undo);
            self.undo(number, mark);
        } else {
            self.end(number, false);
            let is_mysql = self.is_mysql();
            let session = &mut self.connections[connection];
            session.is_undone |= !is_autocommit;
            session.is_aborted = !is_mysql && !is_autocommit;
            // MySQL's later statements commit by themselves.
            session.is_begun &= !is_mysql;
        }
    }

    fn undo(&mut self, number: Number, mark: usize) {
        let Some(transaction) = self.transactions.get_mut(&number) else { return };
        for (key, before) in transaction.undo.split_off(mark).into_iter().rev() {
            if let Some(slot) = self.slots.get_mut(&key) {
                slot.pending = before;
            }
        }
        self.slots.retain(|_, slot| slot.is_there());
    }

    fn end(&mut self, number: Number, commits: bool) {
        if !commits {
            self.undo(number, 0);
        }
        let mut ids = BTreeSet::new();
        for (key, slot) in &mut self.slots {
            if let Some(pending) = slot.pending.filter(|pending| pending.by == number) {
                ids.insert(key.id);
                slot.committed = pending.row;
                slot.pending = None;
            }
            slot.locks.retain(|(by, _)| *by != number);
        }
        self.slots.retain(|_, slot| slot.is_there());
        self.ids.retain(|_, by| *by != number);
        self.waits.remove(&number);
        self.waits.values_mut().for_each(|all| all.retain(|awaited| *awaited != number));
        if let Some(transaction) = self.transactions.remove(&number) {
            let connection = &mut self.connections[transaction.connection];
            connection.transaction = None;
            if commits {
                self.committed.push((transaction.connection, ids));
            }
        }
    }

    /// Whether somebody holds anything.
    pub(super) fn is_quiet(&self) -> bool {
        self.transactions.is_empty()
            && self.ids.is_empty()
            && self.slots.values().all(|slot| slot.locks.is_empty() && slot.pending.is_none())
    }

    pub(super) fn content(&self, id: u64) -> Content {
        let rows = self.slots.iter().filter(|(key, _)| key.id == id);
        Content(rows.filter_map(|(key, slot)| Some((*key, slot.committed?.value))).collect())
    }

    /// What is wrong with the committed rows.
    pub(super) fn violated(&self) -> Option<String> {
        let mut seats = BTreeMap::new();
        for (key, slot) in self.slots.iter().filter(|(key, _)| key.table == Table::Child) {
            let Some(row) = slot.committed else { continue };
            if let Some(other) = row.value.and_then(|seat| seats.insert(seat, key)) {
                return Some(format!("{key:?} and {other:?} have one seat"));
            }
            let root = self.slots.get(&Key { table: Table::Root, id: key.id, at: 0 });
            if self.has_foreign_key && root.is_none_or(|root| root.committed.is_none()) {
                return Some(format!("{key:?} has no root"));
            }
        }
        None
    }

    /// Runs a statement, or goes on with it; `None`: it waits.
    pub(super) fn run(
        &mut self,
        connection: usize,
        statement: &Statement,
    ) -> Option<Result<Vec<(Key, Value)>, ShardFailure>> {
        let session = &mut self.connections[connection];
        assert!(!session.is_broken, "a statement on a connection that is gone");
        if let Some(failed) = session.failed.take() {
            session.running = None;
            return Some(Err(failed));
        }
        if session.is_aborted {
            if *statement == Statement::Commit {
                self.rollback(connection);
                return Some(Err(failure(0, "25P02", "the transaction was rolled back")));
            }
            return Some(Err(failure(0, "25P02", "current transaction is aborted")));
        }
        if *statement == Statement::Commit && session.transaction.is_none() {
            session.is_begun = false;
            return Some(Ok(Vec::new()));
        }
        let number = session.transaction.unwrap_or_else(|| self.start(connection));
        let undo = self.transactions.get(&number).map_or(0, |transaction| transaction.undo.len());
        let new = || Running {
            statement: statement.clone(),
            after: None,
            snapshot: None,
            current: None,
            at: 0,
            is_half: false,
            rows: Vec::new(),
            checks: Vec::new(),
            undo,
        };
        let mut running = self.connections[connection].running.take().unwrap_or_else(new);
        assert_eq!(running.statement, *statement, "another statement waits");
        match self.go_on(number, &mut running) {
            Ok(()) => {
                self.waits.remove(&number);
                let is_commit = *statement == Statement::Commit;
                if is_commit {
                    self.connections[connection].is_begun = false;
                }
                if is_commit || !self.connections[connection].is_begun {
                    self.end(number, true);
                }
                Some(Ok(running.rows))
            }
            Err(Stop::Fail(error)) => {
                self.connections[connection].running = Some(running);
                self.fail(connection, &error);
                if *statement == Statement::Commit {
                    self.rollback(connection);
                }
                Some(Err(error))
            }
            Err(Stop::Wait(others)) => {
                if matches!(statement, Statement::Probe { waits: false, .. }) {
                    let error = failure(3572, "HY000", "lock(s) could not be acquired immediately");
                    self.connections[connection].running = Some(running);
                    self.fail(connection, &error);
                    return Some(Err(error));
                }
                self.connections[connection].running = Some(running);
                self.waits.insert(number, others);
                self.break_circle(number);
                let failed = self.connections[connection].failed.take();
                if failed.is_some() {
                    self.connections[connection].running = None;
                }
                failed.map(Err)
            }
        }
    }

    /// One of those that wait in a circle fails.
    fn break_circle(&mut self, from: Number) {
        let mut path = vec![from];
        if !self.leads_to(from, from, &mut path, &mut BTreeSet::new()) {
            return;
        }
        self.deadlocks += 1;
        let victim = path[self.random.usize(0..path.len())];
        let Some(connection) = self.transactions.get(&victim).map(|transaction| transaction.connection)
        else {
            return;
        };
        let error = self.error(1213, "40P01", "Deadlock found");
        self.fail(connection, &error);
        self.connections[connection].failed = Some(error);
    }

    fn leads_to(&self, at: Number, to: Number, path: &mut Vec<Number>, seen: &mut BTreeSet<Number>) -> bool {
        for next in self.waits.get(&at).into_iter().flatten() {
            if *next == to {
                return true;
            }
            if seen.insert(*next) {
                path.push(*next);
                if self.leads_to(*next, to, path, seen) {
                    return true;
                }
                path.pop();
            }
        }
        false
    }

    fn lock(&mut self, number: Number, key: Key, lock: Lock) -> Result<(), Stop> {
        let Some(slot) = self.slots.get_mut(&key) else { return Ok(()) };
        let others: Vec<Number> = slot
            .locks
            .iter()
            .filter(|(by, held)| *by != number && held.excludes(lock))
            .map(|(by, _)| *by)
            .collect();
        if !others.is_empty() {
            return Err(Stop::Wait(others));
        }
        if !slot.locks.iter().any(|(by, held)| *by == number && *held >= lock) {
            slot.locks.push((number, lock));
        }
        Ok(())
    }

    /// What a transaction sees of a row: its own, or what is committed.
    fn seen(&self, number: Number, key: Key) -> Option<Version> {
        let slot = self.slots.get(&key)?;
        match slot.pending.filter(|pending| pending.by == number) {
            Some(pending) => pending.row,
            None => slot.committed,
        }
    }

    /// Another transaction has changed this row.
    fn changed_by_other(&self, number: Number, key: Key) -> Option<Number> {
        let pending = self.slots.get(&key)?.pending?;
        (pending.by != number).then_some(pending.by)
    }

    fn put(&mut self, number: Number, key: Key, value: Option<Value>) {
        let born = match self.seen(number, key) {
            Some(version) => version.born,
            None => self.next(),
        };
        let slot = self.slots.entry(key).or_default();
        let before =
            slot.pending.replace(Pending { by: number, row: value.map(|value| Version { value, born }) });
        if let Some(transaction) = self.transactions.get_mut(&number) {
            transaction.undo.push((key, before));
        }
    }

    fn own(&mut self, number: Number) -> &mut Transaction {
        self.transactions.get_mut(&number).expect("a transaction")
    }

    fn go_on(&mut self, number: Number, run: &mut Running) -> Result<(), Stop> {
        match run.statement.clone() {
            Statement::LockId(id, mark) => {
                self.lock_id(number, id)?;
                self.own(number).mark = mark;
            }
            // What they ask for is known without a step.
            Statement::Catalogue(_) | Statement::PinOld => {}
            Statement::PinNew(id) => {
                self.own(number).has_lock_timeout = true;
                self.lock_id(number, id)?;
            }
            Statement::Savepoint => self.own(number).has_savepoint = true,
            Statement::Release => {
                if !std::mem::take(&mut self.own(number).has_savepoint) {
                    return Err(Stop::Fail(failure(1305, "42000", "SAVEPOINT keymill does not exist")));
                }
            }
            Statement::Probe { id, lock, .. } => {
                self.select(number, run, &Scope::Ids(Table::Root, vec![id]), lock)?;
            }
            Statement::Select(scope, lock) => self.select(number, run, &scope, lock)?,
            Statement::Update(key, value) => {
                let is_key = key.table == Table::Child;
                let lock = if is_key || self.is_mysql() { Lock::Update } else { Lock::NoKeyUpdate };
                while let Some(key) = self.locked(number, run, &Scope::Keys(vec![key]), lock)? {
                    self.change(number, run, key, value)?;
                    run.current = None;
                }
            }
            Statement::Delete(scope) => {
                while let Some(key) = self.locked(number, run, &scope, Lock::Update)? {
                    if key.table == Table::Root && self.is_mysql() {
                        self.check(number, Check::ChildrenOf(key))?;
                    }
                    self.put(number, key, None);
                    run.checks.push(Check::ChildrenOf(key));
                    run.current = None;
                }
            }
            Statement::Insert { rows, or_replace } => {
                while let Some((key, value)) = rows.get(run.at).copied() {
                    self.insert(number, run, key, value, or_replace)?;
                    (run.at, run.is_half) = (run.at + 1, false);
                }
            }
            Statement::CheckConstraints => {
                self.own(number).checks_at_once = true;
                self.late_checks(number)?;
            }
            Statement::Commit => self.late_checks(number)?,
        }
        // PostgreSQL checks foreign keys at the end of a statement.
        if !self.is_mysql() {
            let connection = self.own(number).connection;
            let late =
                self.defers && !self.own(number).checks_at_once && self.connections[connection].is_begun;
            while let Some(check) = run.checks.last().copied() {
                if late {
                    self.own(number).checks.push(check);
                } else {
                    self.check(number, check)?;
                }
                run.checks.pop();
            }
        }
        Ok(())
    }

    fn late_checks(&mut self, number: Number) -> Result<(), Stop> {
        while let Some(check) = self.own(number).checks.last().copied() {
            self.check(number, check)?;
            self.own(number).checks.pop();
        }
        Ok(())
    }

    fn lock_id(&mut self, number: Number, id: Option<String>) -> Result<(), Stop> {
        let Some(id) = id else { return Ok(()) };
        match *self.ids.entry(id).or_insert(number) {
            by if by == number => Ok(()),
            by => Err(Stop::Wait(vec![by])),
        }
    }

    /// The next row of a statement, with its lock.
    fn locked(
        &mut self,
        number: Number,
        run: &mut Running,
        scope: &Scope,
        lock: Lock,
    ) -> Result<Option<Key>, Stop> {
        if run.current.is_some() {
            return Ok(run.current);
        }
        if self.is_mysql() {
            loop {
                let from = run.after.map_or(Bound::Unbounded, Bound::Excluded);
                let mut rest = self.slots.range((from, Bound::Unbounded)).map(|(key, _)| *key);
                let Some(key) = rest.find(|key| scope.has(*key)) else { return Ok(None) };
                self.lock(number, key, lock)?;
                run.after = Some(key);
                if self.seen(number, key).is_some() {
                    run.current = Some(key);
                    return Ok(run.current);
                }
            }
        }
        if run.snapshot.is_none() {
            let keys = self.slots.keys().filter(|key| scope.has(**key));
            let all = keys.filter_map(|key| Some((*key, self.seen(number, *key)?.born)));
            run.snapshot = Some(all.collect::<Vec<_>>().into_iter().rev().collect());
        }
        while let Some((key, born)) = run.snapshot.as_ref().and_then(|all| all.last().copied()) {
            let is_it = |version: Option<Version>| version.is_some_and(|version| version.born == born);
            if is_it(self.seen(number, key)) {
                self.lock(number, key, lock)?;
                run.current = Some(key);
            }
            run.snapshot.as_mut().and_then(Vec::pop);
            if run.current.is_some() {
                return Ok(run.current);
            }
        }
        Ok(None)
    }

    fn select(
        &mut self,
        number: Number,
        run: &mut Running,
        scope: &Scope,
        lock: Option<Lock>,
    ) -> Result<(), Stop> {
        let Some(lock) = lock else {
            let keys = self.slots.keys().filter(|key| scope.has(**key));
            let rows = keys.filter_map(|key| Some((*key, self.seen(number, *key)?.value)));
            run.rows = rows.collect();
            return Ok(());
        };
        while let Some(key) = self.locked(number, run, scope, lock)? {
            run.rows.extend(self.seen(number, key).map(|version| (key, version.value)));
            run.current = None;
        }
        Ok(())
    }

    fn change(&mut self, number: Number, run: &mut Running, key: Key, value: Value) -> Result<(), Stop> {
        let is_same = self.seen(number, key).is_some_and(|is| is.value == value);
        if key.table == Table::Child && !is_same {
            self.seat(number, run, key, value)?;
        }
        self.put(number, key, Some(value));
        Ok(())
    }

    fn seat(&mut self, number: Number, run: &mut Running, key: Key, seat: Value) -> Result<(), Stop> {
        if self.defers {
            run.checks.push(Check::Seat(key));
            return Ok(());
        }
        self.is_free(number, key, seat)
    }

    /// Whether no other row has a seat.
    fn is_free(&self, number: Number, key: Key, seat: Value) -> Result<(), Stop> {
        let Some(seat) = seat else { return Ok(()) };
        let mut others = Vec::new();
        for (other, slot) in
            self.slots.iter().filter(|(other, _)| other.table == Table::Child && **other != key)
        {
            let has = |version: Option<Version>| version.is_some_and(|version| version.value == Some(seat));
            match slot.pending {
                Some(pending) if pending.by != number => {
                    others.extend((has(slot.committed) || has(pending.row)).then_some(pending.by));
                }
                _ if has(self.seen(number, *other)) => {
                    return Err(Stop::Fail(self.error(1062, "23505", "Duplicate entry for a seat")));
                }
                _ => {}
            }
        }
        if others.is_empty() { Ok(()) } else { Err(Stop::Wait(others)) }
    }

    fn insert(
        &mut self,
        number: Number,
        run: &mut Running,
        key: Key,
        value: Value,
        or_replace: bool,
    ) -> Result<(), Stop> {
        if !run.is_half {
            if self.is_mysql() {
                self.check(number, Check::ParentOf(key))?;
                let lock = if or_replace { Lock::Update } else { Lock::Share };
                self.lock(number, key, lock)?;
            } else if let Some(other) = self.changed_by_other(number, key) {
                return Err(Stop::Wait(vec![other]));
            }
            if self.seen(number, key).is_some() {
                if or_replace {
                    let is_key = key.table == Table::Child;
                    let lock = if is_key || self.is_mysql() { Lock::Update } else { Lock::NoKeyUpdate };
                    self.lock(number, key, lock)?;
                    return self.change(number, run, key, value);
                }
                return Err(Stop::Fail(self.error(1062, "23505", "Duplicate entry for the primary key")));
            }
            // Another transaction's lock of a row that it has not changed ends with the row.
            self.put(number, key, Some(value.filter(|_| key.table == Table::Root)));
            self.lock(number, key, Lock::Update)?;
            run.is_half = true;
        }
        if key.table == Table::Child {
            self.seat(number, run, key, value)?;
            self.put(number, key, Some(value));
            run.checks.push(Check::ParentOf(key));
        }
        Ok(())
    }

    fn check(&mut self, number: Number, check: Check) -> Result<(), Stop> {
        match check {
            Check::Seat(key) => match self.seen(number, key) {
                Some(version) => self.is_free(number, key, version.value),
                None => Ok(()),
            },
            Check::ParentOf(key) if self.has_foreign_key && key.table == Table::Child => {
                let root = Key { table: Table::Root, id: key.id, at: 0 };
                let lock = if self.is_mysql() { Lock::Share } else { Lock::KeyShare };
                // MySQL waits for a root that another transaction inserts.
                if self.is_mysql() || self.seen(number, root).is_some() {
                    self.lock(number, root, lock)?;
                }
                if self.seen(number, root).is_some() || self.seen(number, key).is_none() && !self.is_mysql() {
                    return Ok(());
                }
                Err(Stop::Fail(self.error(1452, "23503", "a foreign key constraint fails: no such root")))
            }
            Check::ChildrenOf(key) if self.has_foreign_key && key.table == Table::Root => {
                if !self.is_mysql() && self.seen(number, key).is_some() {
                    return Ok(());
                }
                let children =
                    self.slots.iter().filter(|(child, _)| child.table == Table::Child && child.id == key.id);
                let children: Vec<Key> = children.map(|(child, _)| *child).collect();
                let lock = if self.is_mysql() { Lock::Share } else { Lock::KeyShare };
                for child in children {
                    if self.is_mysql() || self.seen(number, child).is_some() {
                        self.lock(number, child, lock)?;
                    }
                    if self.seen(number, child).is_some() {
                        let error =
                            self.error(1451, "23503", "a foreign key constraint fails: it has children");
                        return Err(Stop::Fail(error));
                    }
                }
                Ok(())
            }
            Check::ParentOf(_) | Check::ChildrenOf(_) => Ok(()),
        }
    }

    /// The id with which a connection's transaction is marked.
    pub(super) fn mark(&self, connection: usize) -> String {
        let number = self.connections[connection].transaction;
        number
            .and_then(|number| self.transactions.get(&number))
            .map_or_else(String::new, |transaction| transaction.mark.clone())
    }
}
