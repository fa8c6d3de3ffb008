//! Whether rows may be written now.
//!
//! A verb of rows reads where the move stands, decides, and writes. Between the last two it may stand still for any time: a process that is
//! stopped wakes after the move was finished. So a write is good for `settle` only, and the database that carries it out sees to that:
//! its clock is read, then the move is looked at, then the statement is sent, which the database refuses once its clock is half of `settle`
//! on. For the other half it waits for a lock.
//! The old shard decides until a move is finished, and that waits for `settle` after a comparison, which forgets none of the looks before.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::shard::{Shard, ShardKind};
use super::watch::{PATIENCE, Watch};
use crate::error::{Code, Error, Result};

/// So often a write is sent again that came too late, within [`PATIENCE`].
const ATTEMPTS: u32 = 200;

/// How much longer than `settle` the server that is written to waits for this process, which may be busy with the other one. The server
/// whose rows are locked waits for twice as long: a process that stood still and wakes finds that its writes went before its locks.
const SLOW: Duration = Duration::from_secs(5);

/// Bytes that the condition adds to a statement.
pub(super) const CONDITION: usize = 320;

/// Leave to write.
pub(super) struct Permit<'p> {
    /// Refuses where the move does not stand where it stood when the verb began.
    still: &'p dyn Fn() -> Result<()>,
    /// How long an answer may be used.
    settle: Duration,
    /// What each database was last given, and when: a database says itself when it is over.
    given: RefCell<BTreeMap<String, (Until, Instant)>>,
}

/// The end of a permit, by the clock of a database: microseconds since 1970.
#[derive(Clone)]
pub(super) struct Until {
    kind: ShardKind,
    at_us: u64,
}

/// The time of a statement on the database: microseconds since 1970.
fn time_of_statement(kind: ShardKind) -> &'static str {
    match kind {
        ShardKind::MySql => "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        ShardKind::Postgres => {
            "CAST(EXTRACT(EPOCH FROM pg_catalog.statement_timestamp()) * 1000000 AS pg_catalog.int8)"
        }
    }
}

impl Until {
    fn read(shard: &mut Shard, time: Duration) -> Result<Until> {
        let kind = shard.kind();
        let now_us = shard.number(&format!("SELECT {}", time_of_statement(kind)))?;
        if now_us == 0 {
            let what = format!("{}: the server does not tell its time", shard.at());
            return Err(Error::new(Code::StoreRefused, what));
        }
        let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Ok(Until { kind, at_us: now_us.saturating_add(time_us) })
    }

    /// The condition that it is not over when the statement begins.
    pub(super) fn condition(&self) -> String {
        format!("{} < {}", time_of_statement(self.kind), self.at_us)
    }

    /// An id as a value, which is an error once the permit is over: the statement then changes nothing.
    pub(super) fn guarded(&self, id: &str, is_bytes: bool) -> String {
        let (condition, late) = (self.condition(), self.late(is_bytes));
        match (self.kind, is_bytes) {
            (ShardKind::MySql, _) => format!("IF({condition}, {id}, {late})"),
            (ShardKind::Postgres, false) => {
                format!("CASE WHEN {condition} THEN '{id}'::pg_catalog.int8 ELSE {late} END")
            }
            (ShardKind::Postgres, true) => format!("CASE WHEN {condition} THEN {id} ELSE {late} END"),
        }
    }

    /// What stands before and after an array of ids of PostgreSQL, so that it is an error once the permit is over.
    pub(super) fn around_array(&self, is_bytes: bool) -> [String; 2] {
        [format!("CASE WHEN {} THEN ", self.condition()), format!(" ELSE ARRAY[{}] END", self.late(is_bytes))]
    }

    /// An error where it is evaluated, of the type of an id: a subquery of two rows, and a division by 0.
    fn late(&self, is_bytes: bool) -> &'static str {
        match (self.kind, is_bytes) {
            (ShardKind::MySql, false) => "(SELECT 1 UNION ALL SELECT 2)",
            (ShardKind::MySql, true) => "(SELECT X'01' UNION ALL SELECT X'02')",
            (ShardKind::Postgres, false) => {
                "1 / (pg_catalog.date_part('year', pg_catalog.statement_timestamp())::pg_catalog.int8 * 0)"
            }
            (ShardKind::Postgres, true) => {
                "pg_catalog.int8send(1 / (pg_catalog.date_part('year', pg_catalog.statement_timestamp())::pg_catalog.int8 * 0))"
            }
        }
    }

    fn is_over(&self, shard: &mut Shard) -> Result<bool> {
        // The time of this statement, as of the one before.
        let question = match self.kind {
            ShardKind::MySql => format!("SELECT IF({}, 0, 1)", self.condition()),
            ShardKind::Postgres => format!("SELECT CASE WHEN {} THEN 0 ELSE 1 END", self.condition()),
        };
        Ok(shard.number(&question)? == 1)
    }
}

impl<'p> Permit<'p> {
    pub(super) fn new(still: &'p dyn Fn() -> Result<()>, settle: Duration) -> Permit<'p> {
        Permit { still, settle, given: RefCell::default() }
    }

    /// # Errors
    /// The move stands elsewhere, or the store does not say.
    pub(super) fn ask(&self) -> Result<()> {
        (self.still)()
    }

    /// Does work, and does it again while locks are not had. The store of routes is asked before that, so that no row is locked while it is silent.
    pub(super) fn persist<T>(
        &self,
        watch: &Watch<'_>,
        patience: Duration,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let mut is_again = false;
        watch.persist_for(patience, || {
            if std::mem::replace(&mut is_again, true) {
                self.ask()?;
            }
            work()
        })
    }

    /// Leave that is not nearly over.
    pub(super) fn until(&self, shard: &mut Shard) -> Result<Until> {
        let at = shard.at();
        if let Some((until, asked)) = self.given.borrow().get(&at)
            && asked.elapsed() < self.settle / 4
        {
            return Ok(until.clone());
        }
        self.limit_writes(shard)?;
        let asked = Instant::now();
        let until = Until::read(shard, self.settle / 2)?;
        self.ask()?;
        self.given.borrow_mut().insert(at, (until.clone(), asked));
        Ok(until)
    }

    /// Before rows are locked on this shard that are written to the other one.
    pub(super) fn limit_locks(&self, shard: &mut Shard) -> Result<()> {
        self.limit_waits(shard, (self.settle + SLOW) * 2)
    }

    /// Before a transaction on this shard that writes.
    pub(super) fn limit_writes(&self, shard: &mut Shard) -> Result<()> {
        self.limit_waits(shard, self.settle + SLOW)
    }

    /// What waits for a lock has begun, and is carried out when the lock is free, whether its sender lives or not.
    fn limit_waits(&self, shard: &mut Shard, for_client: Duration) -> Result<()> {
        shard.limit_waits(self.settle / 2, for_client)
    }

    /// Writes with leave, in a transaction of its own or in the open one; answers with how many rows were changed. A statement that came too
    /// late is sent again with new leave.
    pub(super) fn write(
        &self,
        shard: &mut Shard,
        watch: &Watch<'_>,
        statement: &dyn Fn(&Until) -> String,
    ) -> Result<u64> {
        self.in_time(shard, watch, |shard| self.write_once(shard, statement), |changed| *changed == 0)
    }

    /// Writes with leave. A statement that came too late is an error, or changes nothing.
    pub(super) fn write_once(&self, shard: &mut Shard, statement: &dyn Fn(&Until) -> String) -> Result<u64> {
        let statement = statement(&self.until(shard)?);
        shard.write(&statement)
    }

    /// Does work, and does it again where a statement of it came too late. `is_nothing` says of an answer that it may come from such a statement. In between the shard is in no transaction that has failed.
    pub(super) fn in_time<T>(
        &self,
        shard: &mut Shard,
        watch: &Watch<'_>,
        mut work: impl FnMut(&mut Shard) -> Result<T>,
        is_nothing: impl Fn(&T) -> bool,
    ) -> Result<T> {
        let began = Instant::now();
        for _ in 0..ATTEMPTS {
            let done = work(shard);
            let may_be_late = match &done {
                Ok(answer) => is_nothing(answer),
                Err(error) => error.code == Code::StoreRefused && shard.take_lateness(),
            };
            let given = self.given.borrow().get(&shard.at()).map(|(until, _)| until.clone());
            let Some(until) = given.filter(|_| may_be_late) else { return done };
            if !until.is_over(shard)? {
                return done;
            }
            self.given.borrow_mut().clear();
            if began.elapsed() > PATIENCE {
                break;
            }
            watch.go_on("the same call goes on from here")?;
        }
        Err(Error::new(
            Code::StoreRefused,
            format!(
                "{}: no statement came through within half of `settle` of the route table, which is {} ms, of the look at the move; a longer `settle` is needed, longer than the longest write",
                shard.at(),
                self.settle.as_millis()
            ),
        ))
    }
}
