//! One write of one id, or a read: what to do on which connection, step by step.
//!
//! `docs/live-moves.md` describes the protocol: the work runs on the shard that decides, in a transaction that holds the id's lock; the
//! rows of the new shard become what they are on the old one; the route is asked whether it is still current; the old shard commits first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Code, Error, Result, shown};
use crate::gene::Gene;
use crate::rows::{Column, Id, ShardKind, TakenAlong, taken_along};

use super::ShardTables;
use super::carried::{self, Changes, Sides, Unread};
use super::failure::ShardFailure;
use super::known_shards::{KnownShard, Learning, texts};

/// How long to wait where a range pauses, or another writer was in the way.
const PAUSE: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_millis(5);

/// A row as bytes; `None` is NULL.
pub type ShardRow = Vec<Option<Vec<u8>>>;

/// A connection of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// To the shard that decides.
    Old,
    /// To the shard that follows.
    New,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardAction {
    /// Open a connection to this shard. Answered by [`ShardAnswer::Opened`].
    Open(Side, String),
    /// Begin a transaction.
    Begin(Side),
    /// Run a statement. Answered by its rows, which may be none.
    Ask(Side, String),
    /// Do the program's work on the old side.
    Work,
    /// Commit. PostgreSQL rolls back where a statement has failed, and calls that no error: it is one here.
    Commit(Side),
    /// Roll back.
    Rollback(Side),
    /// Give a connection back; `true`: end it, so that nobody gets it again.
    Close(Side, bool),
    /// Wait.
    Wait(Duration),
    /// The work has failed, and nothing is left of it: pass its error on.
    Throw,
    /// The write is acknowledged.
    Done,
}

/// What came of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardAnswer {
    /// It is done.
    Ready,
    /// The connection is there, to a server of this kind.
    Opened(ShardKind),
    /// The rows of a statement.
    Rows(Vec<ShardRow>),
    /// The database has failed, or the work has.
    Failed(ShardFailure),
    /// There is no connection for [`ShardAction::Open`], and trying again does not help.
    NotOpened(NoConnection),
    /// The action cannot be done for another reason, and trying again does not help.
    Refused(Error),
    /// The work is done, and its connection is in no state for a commit.
    Misused(Misuse),
}

/// Why a write has no connection to a shard. The text says what to do about it in the program's language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoConnection {
    /// The program has named none for this shard.
    Unnamed(String),
    /// It is the connection that the other shard has.
    Shared(String),
    /// Another write or read has not ended on it.
    InUse,
}

/// What a work has done with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// It has left rows of a result unread, or has not waited for a statement.
    UnreadRows,
    /// It has closed the connection, or ended the transaction.
    EndedTransaction,
    /// It went on after a failure, and the transaction can only be rolled back.
    FailedTransaction,
}

/// Where an id is written.
#[derive(Clone, Debug)]
struct WrittenTo {
    gene: Gene,
    write: String,
    mirror: Option<String>,
}

#[derive(Debug)]
enum WriteStage {
    Route,
    Open(Side),
    Begin(Side),
    Learn(Side, Learning),
    EndLearning(Side),
    LockOld,
    MarkOld,
    Work,
    CheckMark,
    PinOld,
    ReadOld,
    PinNew,
    ReadNew,
    AskOldAgain,
    /// What rows of the new shard take along where they are deleted, table by table.
    AskChildren,
    Change(VecDeque<String>),
    UndoChanges,
    BeginAgain,
    /// The write is refused, which is its error if the old shard still holds the id's lock.
    CheckLock {
        refusal: Error,
        /// The root had a row of the id when it was read.
        had_root: bool,
    },
    CommitOld,
    CommitNew,
    Ending(VecDeque<ShardAction>, End),
    Over,
}

/// A cell of the first row.
fn cell(rows: &[ShardRow], at: usize) -> &[u8] {
    rows.first().and_then(|row| row.get(at)).and_then(Option::as_deref).unwrap_or_default()
}

/// How an attempt ends, after its connections were given back.
#[derive(Debug)]
enum End {
    Done,
    Again(Duration),
    Throw,
    Fail(Error),
}

#[derive(Debug, Default)]
struct Held {
    kind: Option<ShardKind>,
    in_transaction: bool,
    is_spoilt: bool,
}

/// One write.
#[derive(Debug)]
pub struct ShardWrite {
    shards: ShardTables,
    id: Id,
    began: Instant,
    /// Nothing is written.
    only_reads: bool,
    /// The work cannot be run again.
    runs_once: bool,
    has_run: bool,
    /// How often it was tried again.
    attempts: u32,
    /// The tables were not alike, and were asked for again.
    has_asked_again: bool,
    stage: WriteStage,
    place: Option<WrittenTo>,
    held: [Held; 2],
    known: [Option<Arc<KnownShard>>; 2],
    rows: [Vec<Vec<ShardRow>>; 2],
    /// The rows of the id are written anew, because two of them exchange a value that may be there once, or a
    /// parent gets another key.
    replaces: bool,
    /// What rows of the new shard take along where they are deleted: of each table, or not asked for yet.
    along: Vec<TakenAlong>,
    /// The rows of the new shard were written, and are read again, because a trigger or a foreign key may have changed them.
    reads_again: bool,
}

impl ShardTables {
    /// A write of an id of 64 bits.
    #[must_use]
    pub fn write(&self, id: u64) -> ShardWrite {
        self.begin(Id::Number(id))
    }

    /// A write of an id of 128 bits.
    #[must_use]
    pub fn write_wide(&self, id: u128) -> ShardWrite {
        self.begin(Id::Bytes(id.to_be_bytes().to_vec()))
    }

    /// Reads an id of 64 bits: the work runs on the shard from which it is read.
    #[must_use]
    pub fn read(&self, id: u64) -> ShardWrite {
        ShardWrite { only_reads: true, ..self.begin(Id::Number(id)) }
    }

    /// Reads an id of 128 bits.
    #[must_use]
    pub fn read_wide(&self, id: u128) -> ShardWrite {
        ShardWrite { only_reads: true, ..self.begin(Id::Bytes(id.to_be_bytes().to_vec())) }
    }

    fn begin(&self, id: Id) -> ShardWrite {
        ShardWrite {
            shards: self.clone(),
            id,
            began: Instant::now(),
            only_reads: false,
            runs_once: false,
            has_run: false,
            attempts: 0,
            has_asked_again: false,
            stage: WriteStage::Route,
            place: None,
            held: Default::default(),
            known: [None, None],
            rows: [Vec::new(), Vec::new()],
            replaces: false,
            along: Vec::new(),
            reads_again: false,
        }
    }
}

impl ShardWrite {
    /// The work runs once at most: where it would have to run again, the write ends with `NOT_READY` and nothing of it is left.
    #[must_use]
    pub fn once(mut self) -> ShardWrite {
        self.runs_once = true;
        self
    }

    /// The name of the shard on this side.
    #[must_use]
    pub fn shard(&self, side: Side) -> &str {
        let place = self.place.as_ref();
        match side {
            Side::Old => place.map_or("", |place| &place.write),
            Side::New => place.and_then(|place| place.mirror.as_deref()).unwrap_or_default(),
        }
    }

    /// What to do next. The first answer is [`ShardAnswer::Ready`]. After [`ShardAction::Done`], [`ShardAction::Throw`] and an error it is
    /// over, and no connection is held.
    ///
    /// # Errors
    /// `NOT_READY`: a step of the move came in between, and the deadline has passed. `LEASE_LOST`: the deadline has
    /// passed, and this process could not tell the store that it follows. `STORE_REFUSED`: a shard refuses the rows or a statement, and
    /// would refuse them again; nothing was written.
    /// `STORE_UNAVAILABLE`: a shard does not answer, has ended the statements, or has no room, or it is not known whether it has committed.
    /// `INVALID_CONFIG`: the isolation of a transaction. `INVALID_ARGUMENT`: the work has ended its transaction, went on after an error,
    /// or left rows unread.
    pub fn next(&mut self, answer: ShardAnswer) -> Result<ShardAction> {
        let done = match answer {
            ShardAnswer::Failed(failure) => return self.failure(&failure),
            ShardAnswer::NotOpened(why) => Err(self.not_opened(&why)),
            ShardAnswer::Refused(error) => Err(error),
            ShardAnswer::Misused(misuse) => {
                self.held_mut(Side::Old).is_spoilt |= misuse != Misuse::FailedTransaction;
                Err(self.misused(misuse))
            }
            answer => self.step(answer),
        };
        done.or_else(|error| self.end(End::Fail(error)))
    }

    fn step(&mut self, answer: ShardAnswer) -> Result<ShardAction> {
        let rows = match answer {
            ShardAnswer::Rows(rows) => rows,
            ShardAnswer::Opened(kind) => {
                *self.held_mut(self.side()) = Held { kind: Some(kind), ..Held::default() };
                Vec::new()
            }
            ShardAnswer::Ready
            | ShardAnswer::Failed(_)
            | ShardAnswer::NotOpened(_)
            | ShardAnswer::Refused(_)
            | ShardAnswer::Misused(_) => Vec::new(),
        };
        match std::mem::replace(&mut self.stage, WriteStage::Over) {
            WriteStage::Route => self.route(),
            WriteStage::Open(side) => {
                self.stage = WriteStage::Begin(side);
                Ok(ShardAction::Begin(side))
            }
            WriteStage::Begin(side) => self.begun(side),
            WriteStage::Learn(side, mut learning) => {
                learning.answer(&self.shards.tables, &rows)?;
                Ok(self.learn(side, learning))
            }
            WriteStage::EndLearning(side) => {
                self.held_mut(side).in_transaction = false;
                self.stage = WriteStage::Begin(side);
                Ok(ShardAction::Begin(side))
            }
            WriteStage::LockOld if self.held(Side::Old).kind == Some(ShardKind::MySql) => {
                Ok(self.ask(Side::Old, carried::SAVEPOINT.to_owned(), WriteStage::MarkOld))
            }
            WriteStage::LockOld => {
                self.check_isolation(Side::Old, &rows)?;
                Ok(self.work())
            }
            WriteStage::MarkOld => Ok(self.work()),
            WriteStage::Work => self.worked(),
            WriteStage::CheckMark => Ok(self.read(Side::Old)),
            WriteStage::PinOld => {
                if cell(&rows, 0) != self.id.to_string().as_bytes() {
                    return Err(self.misused(Misuse::EndedTransaction));
                }
                if self.has_other_signature(Side::Old, &rows) {
                    return self.has_changed(Side::Old);
                }
                Ok(self.read(Side::Old))
            }
            WriteStage::ReadOld => self.have_read(Side::Old, rows),
            WriteStage::PinNew => {
                self.check_isolation(Side::New, &rows)?;
                if self.has_other_signature(Side::New, &rows) {
                    return self.has_changed(Side::New);
                }
                Ok(self.read(Side::New))
            }
            WriteStage::ReadNew => self.have_read(Side::New, rows),
            WriteStage::AskOldAgain if !rows.is_empty() => self.again("another program has inserted the id"),
            WriteStage::AskOldAgain => self.change(),
            WriteStage::AskChildren => {
                let named = self.known(Side::New).map(|known| known.tables.iter().map(|known| &known.table));
                let along = named.map(|named| taken_along(&texts(&rows), named)).unwrap_or_default();
                self.along.push(along);
                self.change()
            }
            WriteStage::Change(left) => self.changing(left),
            WriteStage::UndoChanges => {
                self.stage = WriteStage::BeginAgain;
                Ok(ShardAction::Begin(Side::New))
            }
            WriteStage::BeginAgain => {
                self.held_mut(Side::New).in_transaction = true;
                self.reads_again = false;
                let [_, new] = &mut self.rows;
                new.clear();
                Ok(self.lock_new())
            }
            WriteStage::CheckLock { had_root, .. } if rows.is_empty() == had_root => {
                self.again("another program has written the id")
            }
            WriteStage::CheckLock { refusal, .. } => self.give_back(End::Fail(refusal)),
            WriteStage::CommitOld => {
                self.held_mut(Side::Old).in_transaction = false;
                if self.is_mirrored() {
                    self.stage = WriteStage::CommitNew;
                    return Ok(ShardAction::Commit(Side::New));
                }
                self.end(End::Done)
            }
            WriteStage::CommitNew => {
                self.held_mut(Side::New).in_transaction = false;
                self.end(End::Done)
            }
            WriteStage::Ending(left, end) => self.ending(left, end),
            WriteStage::Over => Err(Error::new(Code::Closed, "this write is over")),
        }
    }

    fn held(&self, side: Side) -> &Held {
        let [old, new] = &self.held;
        if side == Side::Old { old } else { new }
    }

    fn held_mut(&mut self, side: Side) -> &mut Held {
        let [old, new] = &mut self.held;
        if side == Side::Old { old } else { new }
    }

    fn known(&self, side: Side) -> Option<&Arc<KnownShard>> {
        let [old, new] = &self.known;
        if side == Side::Old { old.as_ref() } else { new.as_ref() }
    }

    fn set_known(&mut self, side: Side, known: Arc<KnownShard>) {
        let [old, new] = &mut self.known;
        *(if side == Side::Old { old } else { new }) = Some(known);
    }

    fn is_mirrored(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.mirror.is_some())
    }

    fn ask(&mut self, side: Side, sql: String, stage: WriteStage) -> ShardAction {
        self.stage = stage;
        ShardAction::Ask(side, sql)
    }

    /// For how long this is still tried again.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.shards.deadline.saturating_sub(self.began.elapsed())
    }

    /// Finds out where the id is written now.
    fn route(&mut self) -> Result<ShardAction> {
        let router = &self.shards.router;
        let route = match &self.id {
            Id::Number(id) => router.route(*id),
            Id::Bytes(bytes) => router.route_bytes(bytes),
        };
        let route = match route {
            Ok(route) => route,
            // This process may follow again in a moment.
            Err(error) if error.code == Code::LeaseLost && !self.left().is_zero() => {
                return Ok(self.wait(PAUSE));
            }
            Err(error) => return Err(error),
        };
        if self.only_reads {
            self.place = Some(WrittenTo { gene: route.gene, write: route.read.to_owned(), mirror: None });
            return Ok(self.open(Side::Old));
        }
        let Some(write) = route.write else {
            let error = Error::new(
                Code::NotReady,
                "writes of this range wait, because its move is about to be finished",
            );
            if self.left().is_zero() {
                return Err(error.after(PAUSE));
            }
            return Ok(self.wait(PAUSE));
        };
        self.place = Some(WrittenTo {
            gene: route.gene,
            write: write.to_owned(),
            mirror: route.mirror.map(str::to_owned),
        });
        Ok(self.open(Side::Old))
    }

    fn open(&mut self, side: Side) -> ShardAction {
        self.stage = WriteStage::Open(side);
        ShardAction::Open(side, self.shard(side).to_owned())
    }

    fn wait(&mut self, time: Duration) -> ShardAction {
        self.stage = WriteStage::Route;
        ShardAction::Wait(time.min(self.left().max(Duration::from_millis(1))))
    }

    /// A transaction has begun: what is not known of the shard's tables is asked for, before anything is locked.
    fn begun(&mut self, side: Side) -> Result<ShardAction> {
        self.held_mut(side).in_transaction = true;
        if !self.is_mirrored() {
            return Ok(self.work());
        }
        let Some(kind) = self.held(side).kind else {
            return Err(Error::argument("`Open` is answered with the kind of the server"));
        };
        let shard = self.shard(side).to_owned();
        // What this attempt has learned serves it, however long that took.
        let known = self.known(side).cloned().or_else(|| self.shards.known.get(&shard));
        let Some(known) = known else { return Ok(self.learn(side, Learning::new(kind, &shard))) };
        self.set_known(side, known);
        match side {
            Side::Old => {
                let Some(sql) = self.root(Side::Old).map(|root| carried::lock(&root.table, &self.id)) else {
                    return Ok(self.work());
                };
                Ok(self.ask(Side::Old, sql, WriteStage::LockOld))
            }
            Side::New => {
                if let Err(error) = self.check_alike() {
                    return self.not_alike(error);
                }
                Ok(self.lock_new())
            }
        }
    }

    fn root(&self, side: Side) -> Option<&super::known_shards::KnownTable> {
        self.known(side)?.tables.first()
    }

    fn learn(&mut self, side: Side, learning: Learning) -> ShardAction {
        match learning.question(&self.shards.tables) {
            Some(question) => self.ask(side, question, WriteStage::Learn(side, learning)),
            None => {
                let shard = self.shard(side).to_owned();
                let known = self.shards.known.set(&shard, learning.known());
                self.set_known(side, known);
                // A transaction that has read sees what was there then.
                self.stage = WriteStage::EndLearning(side);
                ShardAction::Rollback(side)
            }
        }
    }

    fn check_alike(&self) -> Result<()> {
        let (Some(old), Some(new)) = (self.known(Side::Old), self.known(Side::New)) else { return Ok(()) };
        if self.held(Side::Old).kind != self.held(Side::New).kind {
            return Err(Error::config(format!(
                "shard `{}` is {:?} and `{}` is {:?}: rows move between databases of one kind",
                self.shard(Side::Old),
                self.held(Side::Old).kind,
                self.shard(Side::New),
                self.held(Side::New).kind
            )));
        }
        let [at_old, at_new] = [Side::Old, Side::New].map(|side| format!("shard `{}`", self.shard(side)));
        // An application adds a column there first.
        let may_have_more = true;
        let mut tables = old.tables.iter().zip(&new.tables);
        tables.try_for_each(|(old, new)| old.table.check_alike(&at_old, &new.table, &at_new, may_have_more))
    }

    /// What is known may be of a moment ago: it is asked for once more.
    fn not_alike(&mut self, error: Error) -> Result<ShardAction> {
        for side in [Side::Old, Side::New] {
            self.shards.known.forget(self.shard(side));
        }
        if self.has_asked_again {
            return Err(error);
        }
        self.has_asked_again = true;
        self.again(&error.message)
    }

    /// What a program is told that has no connection to a shard.
    fn not_opened(&self, why: &NoConnection) -> Error {
        let shard = shown(self.shard(self.side()));
        Error::config(match why {
            NoConnection::Unnamed(advice) => {
                format!("the route table names shard `{shard}`, for which there is no connection: {advice}")
            }
            NoConnection::Shared(advice) => format!(
                "shard `{shard}` is given the connection of shard `{}`: {advice}",
                shown(self.shard(Side::Old))
            ),
            NoConnection::InUse => format!(
                "shard `{shard}` got a connection on which another write or read has not ended: each write and each read needs its own, so read before the write, or on the work's connection"
            ),
        })
    }

    /// What a program is told whose work has misused its connection.
    fn misused(&self, misuse: Misuse) -> Error {
        let old = self.shard(Side::Old);
        let nothing = if self.only_reads { "" } else { "nothing was written; " };
        let also = if self.is_mirrored() {
            format!(", while `{}` does not", self.shard(Side::New))
        } else {
            String::new()
        };
        Error::argument(match misuse {
            Misuse::UnreadRows => format!(
                "the work has left rows of a result unread on shard `{old}`, or has not waited for a statement, and no other one can be sent; {nothing}let the work read all rows and wait for all statements"
            ),
            Misuse::EndedTransaction => format!(
                "the work has ended its transaction on shard `{old}`, which may have its rows{also}: work must not commit, roll back, close its connection or change tables, and must not go on after a deadlock or a lost connection"
            ),
            Misuse::FailedTransaction => format!(
                "a statement or a block of the work has failed on shard `{old}`, and the work went on: nothing of such a transaction is kept; {nothing}roll back to a savepoint of the work's own, or pass the error on"
            ),
        })
    }

    fn check_isolation(&self, side: Side, rows: &[ShardRow]) -> Result<()> {
        if self.held(side).kind != Some(ShardKind::Postgres) {
            return Ok(());
        }
        let said = cell(rows, 0);
        if said == b"read committed" {
            return Ok(());
        }
        Err(Error::config(format!(
            "a transaction on shard `{}` is `{}`: while a range moves, its writes have to be READ COMMITTED, because an older snapshot would lose rows",
            self.shard(side),
            shown(&String::from_utf8_lossy(said))
        )))
    }

    fn work(&mut self) -> ShardAction {
        self.has_run = true;
        self.stage = WriteStage::Work;
        ShardAction::Work
    }

    fn worked(&mut self) -> Result<ShardAction> {
        if !self.is_mirrored() {
            return self.commit();
        }
        match self.known(Side::Old) {
            Some(known) if self.held(Side::Old).kind == Some(ShardKind::Postgres) => {
                let pin = carried::pin_old(&known.tables);
                Ok(self.ask(Side::Old, pin, WriteStage::PinOld))
            }
            _ => Ok(self.ask(Side::Old, carried::RELEASE.to_owned(), WriteStage::CheckMark)),
        }
    }

    /// Whether PostgreSQL's answer has another signature of the tables than the known one.
    fn has_other_signature(&self, side: Side, rows: &[ShardRow]) -> bool {
        self.held(side).kind == Some(ShardKind::Postgres)
            && self
                .known(side)
                .is_some_and(|known| cell(rows, 1) != carried::signature_of_all(&known.tables).as_bytes())
    }

    /// The tables of a shard have other columns than before.
    fn has_changed(&mut self, side: Side) -> Result<ShardAction> {
        let shard = self.shard(side).to_owned();
        self.shards.known.forget(&shard);
        self.again(&format!("`{shard}` has other columns than before"))
    }

    /// The columns that both shards have, in the order of the old one.
    fn shape(&self, table: usize) -> Vec<Column> {
        let known = self.known(Side::Old).and_then(|known| known.tables.get(table));
        known.map(|known| known.table.columns.clone()).unwrap_or_default()
    }

    /// Reads the next table of a side.
    fn read(&mut self, side: Side) -> ShardAction {
        let [old, new] = &self.rows;
        let table = if side == Side::Old { old.len() } else { new.len() };
        let shape = self.shape(table);
        let known = self.known(side).and_then(|known| known.tables.get(table));
        let sql =
            known.map(|known| carried::read(known, &shape, &self.id, side == Side::Old)).unwrap_or_default();
        self.ask(side, sql, if side == Side::Old { WriteStage::ReadOld } else { WriteStage::ReadNew })
    }

    fn have_read(&mut self, side: Side, rows: Vec<ShardRow>) -> Result<ShardAction> {
        let [old, new] = &self.rows;
        let at = if side == Side::Old { old.len() } else { new.len() };
        let shape = self.shape(at);
        let Some(known) = self.known(side).and_then(|known| known.tables.get(at)) else {
            return self.again("the tables have been forgotten");
        };
        let kind = known.table.kind;
        let rows = match carried::values(kind, &shape, side == Side::Old, rows) {
            Ok(rows) => rows,
            Err(Unread::Charset) => return self.has_changed(side),
            Err(Unread::Settings) => {
                return Err(Error::new(
                    Code::StoreRefused,
                    format!(
                        "shard `{}` does not return `{}` unchanged: a value is longer than its `max_allowed_packet`, or it takes no settings for one statement (MySQL from 8.0, MariaDB); nothing was written",
                        self.shard(side),
                        known.table.name
                    ),
                ));
            }
        };
        let [old, new] = &mut self.rows;
        let all = if side == Side::Old { old } else { new };
        all.push(rows);
        if all.len() < self.shards.tables.len() {
            return Ok(self.read(side));
        }
        if side == Side::Old {
            self.check_roots()?;
            return Ok(self.open(Side::New));
        }
        if self.reads_again {
            self.check_triggers()?;
            return self.commit();
        }
        self.ask_old_again()
    }

    /// The root's row is the lock of an id in MySQL.
    fn check_roots(&self) -> Result<()> {
        let [old, _] = &self.rows;
        let is_mysql = self.held(Side::Old).kind == Some(ShardKind::MySql);
        let Some((_, others)) = old.split_first().filter(|(root, _)| is_mysql && root.is_empty()) else {
            return Ok(());
        };
        match others.iter().position(|rows| !rows.is_empty()) {
            None => Ok(()),
            Some(at) => {
                let name = |at: usize| self.shards.tables.get(at).map_or("", |(name, _)| name.as_str());
                Err(Error::new(
                    Code::StoreRefused,
                    format!(
                        "the work leaves rows of id {} in `{}` and none in `{}`, whose row locks the id; nothing was written",
                        self.id,
                        name(at + 1),
                        name(0)
                    ),
                ))
            }
        }
    }

    /// What the new shard has of an id that the old one has not is locked now. Another writer may have inserted the id on the old shard before
    /// that: its row is not there for this write, and must not be deleted.
    fn ask_old_again(&mut self) -> Result<ShardAction> {
        let [old, new] = &self.rows;
        let is_mysql = self.held(Side::Old).kind == Some(ShardKind::MySql);
        let is_gone = old.iter().all(Vec::is_empty) && new.iter().any(|rows| !rows.is_empty());
        let sql = self.root(Side::Old).filter(|_| is_mysql && is_gone);
        match sql.map(|root| carried::is_absent(&root.table, &self.id)) {
            Some(sql) => Ok(self.ask(Side::Old, sql, WriteStage::AskOldAgain)),
            None => self.change(),
        }
    }

    fn lock_new(&mut self) -> ShardAction {
        match self.known(Side::New) {
            Some(known) if self.held(Side::New).kind == Some(ShardKind::Postgres) => {
                let sql = carried::pin_new(&known.tables, &self.id, self.left());
                self.ask(Side::New, sql, WriteStage::PinNew)
            }
            _ => self.read(Side::New),
        }
    }

    /// The rows of a table on both shards.
    fn sides(&self, table: usize) -> Sides<'_> {
        let [old, new] = &self.rows;
        let [old, new] = [old, new].map(|all| all.get(table).map_or(&[][..], Vec::as_slice));
        Sides { old, new }
    }

    /// What is to be done to each table of the new shard.
    fn changes(&self, shard: &KnownShard, replaces: bool) -> Vec<Changes> {
        let tables = shard.tables.iter().enumerate();
        tables
            .map(|(at, known)| carried::changes(known, &self.shape(at), &self.sides(at), replaces))
            .collect()
    }

    fn change(&mut self) -> Result<ShardAction> {
        let Some(shard) = self.known(Side::New).cloned() else { return self.commit() };
        let mut changes = self.changes(&shard, self.replaces);
        // A row that is deleted and inserted anew takes others along, which the old shard has kept.
        if changes.iter().any(Changes::writes_anew) {
            if let Some(known) = shard.tables.get(self.along.len()) {
                let sql = carried::ask_taken_along(&known.table);
                return Ok(self.ask(Side::New, sql, WriteStage::AskChildren));
            }
            let takes_own =
                |(changes, along): (&Changes, &TakenAlong)| changes.writes_anew() && along.takes_own;
            if changes.iter().zip(&self.along).any(takes_own) {
                self.replaces = true;
                changes = self.changes(&shard, true);
            }
            self.check_others(&changes)?;
        }
        // A foreign key of the new shard alone takes rows along.
        let [old, _] = &self.rows;
        let takes = |(at, changes): (usize, &Changes)| {
            !changes.deletes.is_empty() && old.iter().skip(at + 1).any(|rows| !rows.is_empty())
        };
        let may_change =
            changes.iter().enumerate().any(takes) || shard.tables.iter().any(|known| known.trigger.is_some());
        let (mut deletes, mut writes) = (Vec::new(), Vec::new());
        for (known, changes) in shard.tables.iter().zip(changes) {
            let longest = changes.all().map(String::len).max().unwrap_or(0);
            if longest >= known.longest_statement {
                return Err(Error::new(
                    Code::StoreRefused,
                    format!(
                        "a row of `{}` needs a statement of {longest} bytes, and `max_allowed_packet` of shard `{}` is {}; nothing was written",
                        known.table.name,
                        self.shard(Side::New),
                        known.longest_statement
                    ),
                ));
            }
            // Children go first.
            deletes.splice(0..0, changes.deletes);
            writes.extend(changes.updates);
            writes.extend(changes.inserts);
        }
        let mut all: VecDeque<String> = deletes.into_iter().chain(writes).collect();
        // A commit that fails here would come after the old shard's commit.
        if !all.is_empty() && shard.tables.iter().any(|known| known.is_deferrable) {
            all.push_back("SET CONSTRAINTS ALL IMMEDIATE".to_owned());
        }
        self.reads_again = !all.is_empty() && may_change;
        self.changing(all)
    }

    /// Refuses to delete and insert anew what takes rows of other ids along.
    fn check_others(&self, changes: &[Changes]) -> Result<()> {
        let mut anew = changes.iter().zip(&self.along).filter(|(changes, _)| changes.writes_anew());
        let Some(others) = anew.find_map(|(_, along)| along.others.as_deref()) else { return Ok(()) };
        Err(Error::new(
            Code::StoreRefused,
            format!(
                "rows of other ids in {} would be deleted or changed by ON DELETE: a unique value goes from one row of id {} to another, so keymill would delete a row on shard `{}` and insert it again; nothing was written",
                shown(others),
                self.id,
                self.shard(Side::New)
            ),
        ))
    }

    fn changing(&mut self, mut left: VecDeque<String>) -> Result<ShardAction> {
        match left.pop_front() {
            Some(sql) => Ok(self.ask(Side::New, sql, WriteStage::Change(left))),
            None if self.reads_again => {
                let [_, new] = &mut self.rows;
                new.clear();
                Ok(self.read(Side::New))
            }
            None => self.commit(),
        }
    }

    /// The rows of the new shard were read again after they were written.
    fn check_triggers(&self) -> Result<()> {
        let Some(shard) = self.known(Side::New) else { return Ok(()) };
        for (known, changes) in shard.tables.iter().zip(self.changes(shard, false)) {
            if changes.all().next().is_some() {
                let triggers: Vec<_> =
                    shard.tables.iter().filter_map(|known| known.trigger.as_deref()).collect();
                let (name, shard) = (&known.table.name, self.shard(Side::New));
                if triggers.is_empty() {
                    return Err(Error::new(
                        Code::StoreRefused,
                        format!(
                            "ON DELETE removes rows of `{name}` on shard `{shard}`, and not on shard `{}`: their foreign keys differ; nothing was written",
                            self.shard(Side::Old)
                        ),
                    ));
                }
                return Err(Error::new(
                    Code::StoreRefused,
                    format!(
                        "a trigger or a rule of shard `{}` (`{}`) changes the rows of `{}` that are written there; nothing was written; drop it in the new shard, and create it again after the move",
                        shard,
                        triggers.join("`, `"),
                        name
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Commits, if the route is unchanged since it was asked for.
    fn commit(&mut self) -> Result<ShardAction> {
        let is_current = self.place.as_ref().is_some_and(|place| {
            self.only_reads
                || self.shards.router.writes(place.gene, Some(&place.write), place.mirror.as_deref())
        });
        if !is_current {
            return self.again("a step of the move came in between");
        }
        self.stage = WriteStage::CommitOld;
        // What a read writes may be on a shard that does not decide.
        Ok(if self.only_reads { ShardAction::Rollback(Side::Old) } else { ShardAction::Commit(Side::Old) })
    }

    /// Ends this attempt, and begins another one within the deadline.
    fn again(&mut self, why: &str) -> Result<ShardAction> {
        if self.runs_once && self.has_run {
            return self.end(End::Fail(
                Error::new(Code::NotReady, format!("{why}; nothing was written")).after(SOON),
            ));
        }
        if self.left().is_zero() {
            return self.end(End::Fail(
                Error::new(
                    Code::NotReady,
                    format!("{why}, and the deadline has passed; nothing was written"),
                )
                .after(PAUSE),
            ));
        }
        // Others get on meanwhile, and a server that is away is not asked all the time.
        let wait = SOON * (1 << self.attempts.min(7));
        self.attempts += 1;
        self.end(End::Again(wait.min(self.left())))
    }

    /// Ends this attempt. What was refused because of the rows on both shards is checked first.
    fn end(&mut self, end: End) -> Result<ShardAction> {
        match end {
            End::Fail(refusal) if refusal.code == Code::StoreRefused && self.compares() => {
                Ok(self.check_lock(refusal))
            }
            end => self.give_back(end),
        }
    }

    /// The rows of the old shard were read, and nothing was committed.
    fn compares(&self) -> bool {
        let [old, _] = &self.rows;
        let held = self.held(Side::Old);
        let is_open = held.in_transaction && !held.is_spoilt && !matches!(self.stage, WriteStage::CommitOld);
        is_open && self.is_mirrored() && old.len() == self.shards.tables.len()
    }

    /// The server of the old shard may have ended the transaction, and with it the lock of the id; and MySQL's lock is the root's row, which an
    /// absent id lacks. Then another program may have written the id meanwhile, and the refusal is no reason to end the write. The
    /// refusal stands where the root has a row now if and only if it had one before. The question waits for no lock, because its holder may
    /// wait for this write.
    fn check_lock(&mut self, refusal: Error) -> ShardAction {
        let [old, _] = &self.rows;
        let had_root = old.first().is_some_and(|rows| !rows.is_empty());
        let is_mysql = self.held(Side::Old).kind == Some(ShardKind::MySql);
        let sql = self.root(Side::Old).map(|root| {
            if is_mysql {
                carried::is_absent(&root.table, &self.id)
            } else {
                carried::read(root, &self.shape(0), &self.id, true)
            }
        });
        self.ask(Side::Old, sql.unwrap_or_default(), WriteStage::CheckLock { refusal, had_root })
    }

    /// Gives both connections back, and does then what `end` says.
    fn give_back(&mut self, end: End) -> Result<ShardAction> {
        let mut left = VecDeque::new();
        for side in [Side::New, Side::Old] {
            let held = self.held(side);
            if held.kind.is_none() {
                continue;
            }
            if held.in_transaction && !held.is_spoilt {
                left.push_back(ShardAction::Rollback(side));
            }
            left.push_back(ShardAction::Close(side, held.is_spoilt));
        }
        self.ending(left, end)
    }

    fn ending(&mut self, mut left: VecDeque<ShardAction>, end: End) -> Result<ShardAction> {
        if let Some(action) = left.pop_front() {
            if let ShardAction::Close(side, _) = action {
                let spoilt = self.held(side).is_spoilt;
                *self.held_mut(side) = Held::default();
                self.stage = WriteStage::Ending(left, end);
                return Ok(ShardAction::Close(side, spoilt));
            }
            // Where this fails, the connection is ended.
            self.stage = WriteStage::Ending(left, end);
            return Ok(action);
        }
        self.rows = [Vec::new(), Vec::new()];
        self.known = [None, None];
        self.along.clear();
        self.replaces = false;
        self.reads_again = false;
        match end {
            End::Done => {
                self.stage = WriteStage::Over;
                Ok(ShardAction::Done)
            }
            End::Throw => {
                self.stage = WriteStage::Over;
                Ok(ShardAction::Throw)
            }
            End::Fail(error) => {
                self.stage = WriteStage::Over;
                Err(error)
            }
            End::Again(time) => {
                self.stage = WriteStage::Route;
                Ok(ShardAction::Wait(time))
            }
        }
    }

    /// On which side the present action runs.
    fn side(&self) -> Side {
        match &self.stage {
            WriteStage::Open(side)
            | WriteStage::Begin(side)
            | WriteStage::Learn(side, _)
            | WriteStage::EndLearning(side) => *side,
            WriteStage::PinNew
            | WriteStage::ReadNew
            | WriteStage::AskChildren
            | WriteStage::Change(_)
            | WriteStage::UndoChanges
            | WriteStage::BeginAgain
            | WriteStage::CommitNew => Side::New,
            _ => Side::Old,
        }
    }

    fn failure(&mut self, failure: &ShardFailure) -> Result<ShardAction> {
        let side = self.side();
        match std::mem::replace(&mut self.stage, WriteStage::Over) {
            // It is ended instead of given back.
            WriteStage::Ending(mut left, end) => {
                let side = left.iter().find_map(|action| match action {
                    ShardAction::Close(side, _) => Some(*side),
                    _ => None,
                });
                if let Some(side) = side {
                    self.held_mut(side).is_spoilt = true;
                    while left.front().is_some_and(|action| !matches!(action, ShardAction::Close(..))) {
                        left.pop_front();
                    }
                }
                self.ending(left, end)
            }
            WriteStage::Over => Err(Error::new(Code::Closed, "this write is over")),
            stage => {
                self.stage = stage;
                self.failed(side, failure)
            }
        }
    }

    fn failed(&mut self, side: Side, failure: &ShardFailure) -> Result<ShardAction> {
        let kind = self.held(side).kind.unwrap_or(ShardKind::MySql);
        let shard = self.shard(side).to_owned();
        let words = shown(&failure.message);
        // A work fails by itself too, and says nothing of the database then: the connection serves the next one.
        let is_the_works_own = matches!(self.stage, WriteStage::Work) && *failure == ShardFailure::default();
        if failure.is_unknown() && !is_the_works_own {
            self.held_mut(side).is_spoilt = true;
        }
        match self.stage {
            WriteStage::Work => {
                if failure.is_conflict(kind) && !self.runs_once && !self.left().is_zero() {
                    return self.again(&format!("shard `{shard}`: {words}"));
                }
                return self.end(End::Throw);
            }
            // The first statement after the work: without a move, the commit.
            WriteStage::CheckMark | WriteStage::CommitOld if failure.is_of_unread_rows(kind) => {
                return self.end(End::Fail(self.misused(Misuse::UnreadRows)));
            }
            WriteStage::CommitOld if failure.is_conflict_at_commit(kind) => {
                return self.again(&format!("shard `{shard}`: {words}"));
            }
            WriteStage::CommitOld if failure.is_unknown_commit(kind) && !self.only_reads => {
                let mut also = String::new();
                if self.is_mirrored() {
                    also = format!(", `{}` has not", self.shard(Side::New));
                }
                return self.end(End::Fail(Error::new(
                    Code::StoreUnavailable,
                    format!(
                        "shard `{shard}` did not answer the commit: {words}; the write is not acknowledged: `{shard}` may have it{also}; the next write of this id sees whether it is there, a read may not"
                    ),
                )));
            }
            WriteStage::CommitNew => {
                self.held_mut(side).is_spoilt = true;
                let old = self.shard(Side::Old).to_owned();
                return self.end(End::Fail(Error::new(
                    Code::StoreUnavailable,
                    format!(
                        "shard `{shard}` did not commit: {words}; the write is not acknowledged: `{old}` has it: the next write of this id sees it, a read may not; while the range moves, that write carries it over, or `keymill move verify --repair` does"
                    ),
                )));
            }
            WriteStage::CheckMark if failure.is_of_savepoint(kind) => {
                return self.end(End::Fail(self.misused(Misuse::EndedTransaction)));
            }
            WriteStage::PinOld | WriteStage::CommitOld if failure.is_of_aborted_transaction(kind) => {
                return self.end(End::Fail(self.misused(Misuse::FailedTransaction)));
            }
            WriteStage::CheckLock { ref refusal, .. } => {
                let why = format!("shard `{shard}`: {words}");
                if self.left().is_zero() {
                    let both = format!("{why}; before that {}", refusal.message);
                    return self.give_back(End::Fail(Error::new(Code::StoreUnavailable, both)));
                }
                return self.again(&why);
            }
            WriteStage::Change(_)
                if (failure.is_not_unique(kind) || failure.is_of_parents(kind)) && !self.replaces =>
            {
                self.replaces = true;
                self.held_mut(side).in_transaction = false;
                self.stage = WriteStage::UndoChanges;
                return Ok(ShardAction::Rollback(side));
            }
            _ => {}
        }
        if failure.is_of_schema(kind) {
            self.shards.known.forget(&shard);
        }
        let helps = failure.is_temporary(kind) && !failure.is_full(kind) || failure.is_of_schema(kind);
        // Without a move it is the program's own affair.
        if helps && self.is_mirrored() && !self.left().is_zero() {
            return self.again(&format!("shard `{shard}`: {words}"));
        }
        let (code, advice) = if failure.is_temporary(kind) {
            (Code::StoreUnavailable, "nothing was written")
        } else if failure.is_not_unique(kind) && side == Side::New {
            (
                Code::StoreRefused,
                "a row of another id has this value there; nothing was written; `keymill move verify --repair` brings that row over",
            )
        } else {
            (Code::StoreRefused, "nothing was written")
        };
        let error = Error::new(code, format!("shard `{shard}`: {words}; {advice}"));
        self.end(End::Fail(error))
    }
}
