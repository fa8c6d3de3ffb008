//! The machine against databases that are played: it fails at every step in every way, and no connection is left behind.

use std::time::Duration;

use crate::api::Router;
use crate::error::{Code, Error};

use super::{ShardAction, ShardAnswer, ShardFailure, ShardKind, ShardTables, ShardWrite, Side};

const ID: u64 = 7 << 47 | 1;
const STAYS: &str = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\n";
const MOVES: &str = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\nto = \"s2\"\n";

/// How one action fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fails {
    Broken,
    Conflict,
    NotUnique,
    Schema,
    Refused,
    ByItself,
}

const ALL: [Fails; 6] =
    [Fails::Broken, Fails::Conflict, Fails::NotUnique, Fails::Schema, Fails::Refused, Fails::ByItself];

impl Fails {
    fn answer(self, kind: ShardKind) -> ShardAnswer {
        let (number, state) = match (self, kind) {
            (Fails::Broken | Fails::ByItself, _) => (0, ""),
            (Fails::Conflict, ShardKind::MySql) => (1213, "40001"),
            (Fails::Conflict, ShardKind::Postgres) => (0, "40P01"),
            (Fails::NotUnique, ShardKind::MySql) => (1062, "23000"),
            (Fails::NotUnique, ShardKind::Postgres) => (0, "23505"),
            (Fails::Schema, ShardKind::MySql) => (1054, "42S22"),
            (Fails::Schema, ShardKind::Postgres) => (0, "42703"),
            (Fails::Refused, ShardKind::MySql) => (1142, "42000"),
            (Fails::Refused, ShardKind::Postgres) => (0, "42501"),
        };
        if self == Fails::ByItself {
            return ShardAnswer::Refused(Error::config("there is no such connection"));
        }
        ShardAnswer::Failed(ShardFailure {
            state: state.to_owned(),
            number,
            message: format!("{self:?}"),
            is_broken: self == Fails::Broken,
        })
    }
}

/// A connection as a driver sees it.
#[derive(Debug, Default)]
struct Connection {
    is_open: bool,
    in_transaction: bool,
    has_committed: bool,
    /// Something failed on it, after which only an end is sure.
    is_broken: bool,
}

/// Plays both databases. `t` has the columns `id` and `n`; the old shard has the row (ID, 1), the new one (ID, 0).
struct Play {
    kind: ShardKind,
    sides: [Connection; 2],
    /// All actions, in order.
    said: Vec<ShardAction>,
    works: usize,
    /// The name of one on the new shard, which changes nothing; or none.
    trigger: &'static str,
    /// Of PostgreSQL.
    encoding: &'static str,
}

enum Ends {
    Done,
    Threw,
    Failed(Error),
}

impl Play {
    fn new(kind: ShardKind) -> Play {
        Play { kind, sides: Default::default(), said: Vec::new(), works: 0, trigger: "", encoding: "UTF8" }
    }

    fn on(&mut self, side: Side) -> &mut Connection {
        let [old, new] = &mut self.sides;
        if side == Side::Old { old } else { new }
    }

    fn rows(&self, side: Side, sql: &str) -> Vec<Vec<Option<Vec<u8>>>> {
        let row =
            |cells: &[&str]| cells.iter().map(|cell| Some(cell.as_bytes().to_vec())).collect::<Vec<_>>();
        let is_written = |said: &ShardAction| matches!(said, ShardAction::Ask(Side::New, sql) if sql.starts_with("UPDATE"));
        let n = if side == Side::Old || !self.trigger.is_empty() && self.said.iter().any(is_written) {
            "1"
        } else {
            "0"
        };
        let id = ID.to_string();
        match self.kind {
            ShardKind::MySql if sql.contains("TABLE_TYPE") => {
                vec![row(&["db", "BASE TABLE", "0", "3", "MySQL", "", self.trigger, "false", "99999"])]
            }
            ShardKind::MySql if sql.contains("DATA_TYPE") => vec![
                row(&["id", "bigint", "bigint", "", "", "NO"]),
                row(&["n", "int", "int", "", "", "NO"]),
                row(&["version", "int", "int", "", "", "NO"]),
            ],
            ShardKind::MySql if sql.contains("STATISTICS") => vec![row(&["id"])],
            ShardKind::MySql if sql.ends_with("FOR UPDATE NOWAIT") => vec![row(&["1"])],
            ShardKind::MySql if sql.contains("CAST(") => vec![row(&[&id, n, "0", "000+00:00", "0"])],
            ShardKind::Postgres if sql.contains("to_regclass") => {
                vec![row(&["public", "r", "1", "77", "", "", self.trigger, "true", "", self.encoding])]
            }
            ShardKind::Postgres if sql.contains("format_type") => vec![
                row(&["id", "bigint", "t", "", "N", "int8"]),
                row(&["n", "integer", "t", "", "N", "int4"]),
                row(&["version", "integer", "t", "", "N", "int4"]),
            ],
            ShardKind::Postgres if sql.contains("indisprimary") => vec![row(&["id"])],
            ShardKind::Postgres if sql.contains("transaction_isolation") => {
                vec![row(&["read committed", "77"])]
            }
            ShardKind::Postgres if sql.contains("current_setting('keymill.id'") => vec![row(&[&id, "77"])],
            ShardKind::Postgres if sql.contains("FROM \"public\".\"t\"") => {
                vec![row(&[&id, n, "0"])]
            }
            ShardKind::MySql | ShardKind::Postgres => Vec::new(),
        }
    }

    /// Runs a write, in which the action with this number fails, and checks what every driver relies on.
    fn run(&mut self, write: ShardWrite, fails: Option<(usize, Fails)>) -> Ends {
        self.run_with(write, fails.as_slice())
    }

    /// The same, where several actions fail.
    fn run_with(&mut self, mut write: ShardWrite, fails: &[(usize, Fails)]) -> Ends {
        let mut answer = ShardAnswer::Ready;
        for at in 0.. {
            assert!(at < 200, "it does not end: {:?}", self.said);
            let action = match write.next(answer) {
                Ok(action) => action,
                Err(error) => {
                    self.nothing_is_held();
                    return Ends::Failed(error);
                }
            };
            self.said.push(action.clone());
            let failure = fails.iter().find(|(step, _)| *step == at).map(|(_, how)| *how);
            if let Some(how) = failure.filter(|_| {
                !matches!(
                    action,
                    ShardAction::Close(..) | ShardAction::Wait(_) | ShardAction::Done | ShardAction::Throw
                )
            }) {
                if let ShardAction::Ask(side, _)
                | ShardAction::Begin(side)
                | ShardAction::Commit(side)
                | ShardAction::Rollback(side) = action
                {
                    self.on(side).is_broken |= how == Fails::Broken;
                }
                answer = how.answer(self.kind);
                continue;
            }
            answer = ShardAnswer::Ready;
            match action {
                ShardAction::Open(side, shard) => {
                    assert_eq!(shard, if side == Side::Old { "s1" } else { "s2" });
                    assert!(!self.on(side).is_open, "{side:?} is opened twice");
                    *self.on(side) = Connection { is_open: true, ..Connection::default() };
                    answer = ShardAnswer::Opened(self.kind);
                }
                ShardAction::Begin(side) => {
                    assert!(self.on(side).is_open && !self.on(side).in_transaction, "{:?}", self.said);
                    self.on(side).in_transaction = true;
                }
                ShardAction::Ask(side, sql) => {
                    assert!(self.on(side).is_open, "{:?}", self.said);
                    assert!(self.on(side).in_transaction, "{sql} outside of a transaction");
                    answer = ShardAnswer::Rows(self.rows(side, &sql));
                }
                ShardAction::Work => {
                    assert!(self.on(Side::Old).in_transaction && !self.on(Side::New).is_open);
                    self.works += 1;
                }
                ShardAction::Commit(side) => {
                    assert!(self.on(side).in_transaction);
                    assert!(
                        side == Side::Old || self.on(Side::Old).has_committed,
                        "the old shard commits first"
                    );
                    self.on(side).in_transaction = false;
                    self.on(side).has_committed = true;
                }
                ShardAction::Rollback(side) => self.on(side).in_transaction = false,
                ShardAction::Close(side, ends) => {
                    let connection = self.on(side);
                    assert!(connection.is_open);
                    let is_clean = !connection.in_transaction && !connection.is_broken;
                    assert!(ends || is_clean, "{side:?} is given back: {connection:?}");
                    *self.on(side) =
                        Connection { has_committed: self.on(side).has_committed, ..Connection::default() };
                }
                ShardAction::Wait(_) => self.nothing_is_held(),
                ShardAction::Throw => {
                    self.nothing_is_held();
                    assert!(!self.on(Side::Old).has_committed);
                    return Ends::Threw;
                }
                ShardAction::Done => {
                    self.nothing_is_held();
                    return Ends::Done;
                }
            }
        }
        unreachable!("it has ended")
    }

    fn nothing_is_held(&self) {
        assert!(self.sides.iter().all(|side| !side.is_open), "{:?}", self.said);
    }
}

fn tables(routes: &str) -> ShardTables {
    tables_by(&Router::from_text(routes).expect("a table"))
}

/// New tables: no column of theirs is known yet.
fn tables_by(router: &Router) -> ShardTables {
    let tables = ShardTables::new(router, vec![("t".to_owned(), "id".to_owned())]).expect("tables");
    tables.with_deadline(Duration::from_secs(60))
}

#[test]
fn wherever_a_write_fails_no_connection_is_left_and_what_it_says_is_true() {
    for (kind, trigger) in [
        (ShardKind::MySql, ""),
        (ShardKind::Postgres, ""),
        (ShardKind::MySql, "tr"),
        (ShardKind::Postgres, "tr"),
    ] {
        for routes in [STAYS, MOVES] {
            // Each play has tables of its own; to read the routes takes longer than to play.
            let router = Router::from_text(routes).expect("a table");
            let mut whole = Play { trigger, ..Play::new(kind) };
            assert!(matches!(whole.run(tables_by(&router).write(ID), None), Ends::Done));
            assert_eq!(whole.works, 1);
            let is_mirrored = routes == MOVES;
            assert_eq!(
                whole.said.iter().filter(|said| matches!(said, ShardAction::Commit(_))).count(),
                1 + usize::from(is_mirrored)
            );
            for step in 0..whole.said.len() {
                for how in ALL {
                    for once in [false, true] {
                        let mut play = Play { trigger, ..Play::new(kind) };
                        let write = tables_by(&router).write(ID);
                        let write = if once { write.once() } else { write };
                        let ends = play.run(write, Some((step, how)));
                        let shown = format!(
                            "{kind:?} {how:?} at {step}, {:?}: {:?}",
                            whole.said.get(step),
                            play.said
                        );
                        let committed = [Side::Old, Side::New].map(|side| play.on(side).has_committed);
                        assert!(play.works < 2 || !once, "it ran twice: {shown}");
                        match ends {
                            Ends::Done => assert_eq!(committed, [true, is_mirrored], "{shown}"),
                            Ends::Threw => assert!(matches!(whole.said[step], ShardAction::Work), "{shown}"),
                            Ends::Failed(error) if error.message.contains("nothing was written") => {
                                assert_eq!(committed, [false, false], "{error}: {shown}");
                            }
                            Ends::Failed(error) => {
                                let is_commit = matches!(whole.said[step], ShardAction::Commit(_));
                                let unknown = error.code == Code::StoreUnavailable
                                    && error.message.contains("not acknowledged");
                                assert!(how == Fails::ByItself || is_commit && unknown, "{error}: {shown}");
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_read_that_fails_does_not_speak_of_a_write_that_may_be_there() {
    for kind in [ShardKind::MySql, ShardKind::Postgres] {
        let mut whole = Play::new(kind);
        assert!(matches!(whole.run(tables(MOVES).read(ID), None), Ends::Done));
        for step in 0..whole.said.len() {
            for how in ALL {
                if let Ends::Failed(error) = Play::new(kind).run(tables(MOVES).read(ID), Some((step, how))) {
                    assert!(!error.message.contains("not acknowledged"), "{:?}: {error}", whole.said[step]);
                }
            }
        }
    }
}

#[test]
fn a_row_that_differs_is_updated_and_the_old_shard_commits_first() {
    let mut play = Play::new(ShardKind::MySql);
    assert!(matches!(play.run(tables(MOVES).write(ID), None), Ends::Done));
    let said: Vec<String> = play
        .said
        .iter()
        .filter_map(|action| match action {
            ShardAction::Ask(Side::New, sql) if sql.starts_with("UPDATE") => Some(sql.clone()),
            ShardAction::Commit(side) => Some(format!("{side:?}")),
            _ => None,
        })
        .collect();
    let settings = "/*+ SET_VAR(time_zone = '+00:00') SET_VAR(sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES') */";
    let update = format!(
        "UPDATE {settings} `db`.`t` SET `n` = _latin1 '1', `version` = _latin1 '0' WHERE `id` = _latin1 '{ID}'"
    );
    assert_eq!(said, [update.as_str(), "Old", "New"]);
}

#[test]
fn two_rows_that_exchange_a_value_are_written_anew() {
    let mut play = Play::new(ShardKind::Postgres);
    let mut whole = Play::new(ShardKind::Postgres);
    assert!(matches!(whole.run(tables(MOVES).write(ID), None), Ends::Done));
    let is_update =
        |said: &ShardAction| matches!(said, ShardAction::Ask(Side::New, sql) if sql.starts_with("UPDATE"));
    let at = whole.said.iter().position(is_update).expect("an update");
    assert!(matches!(play.run(tables(MOVES).write(ID), Some((at, Fails::NotUnique))), Ends::Done));
    let written: Vec<&str> = play
        .said
        .iter()
        .skip(at + 1)
        .filter_map(|action| match action {
            ShardAction::Ask(Side::New, sql) => sql.split(' ').next(),
            ShardAction::Rollback(Side::New) => Some("ROLLBACK"),
            ShardAction::Begin(Side::New) => Some("BEGIN"),
            _ => None,
        })
        .collect();
    assert_eq!(written, ["ROLLBACK", "BEGIN", "SELECT", "SELECT", "SELECT", "DELETE", "INSERT", "SET"]);
}

/// A server may have ended the transaction on the old shard, and with it the id's lock. Then the new shard may refuse a row of this very id.
#[test]
fn a_refusal_of_the_new_shard_is_told_only_while_the_id_is_locked() {
    for kind in [ShardKind::MySql, ShardKind::Postgres] {
        let played = |fails: &[(usize, Fails)]| {
            let mut play = Play::new(kind);
            let ends = play.run_with(tables(MOVES).write(ID), fails);
            (ends, play)
        };
        let next_after = |play: &Play, from: usize, is_it: fn(&ShardAction) -> bool| {
            from + play.said.iter().skip(from).position(is_it).expect("such an action")
        };
        let is_write = |said: &ShardAction| matches!(said, ShardAction::Ask(Side::New, sql) if ["UPDATE", "DELETE", "INSERT"].iter().any(|verb| sql.starts_with(verb)));
        let first = next_after(&played(&[]).1, 0, is_write);
        let mut fails = vec![(first, Fails::NotUnique)];
        fails.push((next_after(&played(&fails).1, first + 1, is_write), Fails::NotUnique));
        let (ends, play) = played(&fails);
        let Ends::Failed(error) = ends else { panic!("{kind:?}: it is refused: {:?}", play.said) };
        assert_eq!(error.code, Code::StoreRefused, "{error}");
        assert!(error.message.contains("a row of another id has this value there"), "{error}");
        assert_eq!(play.works, 1);
        let asked = fails[1].0 + 1;
        assert!(matches!(play.said[asked], ShardAction::Ask(Side::Old, _)), "{:?}", play.said[asked]);
        fails.push((asked, Fails::Broken));
        let (ends, play) = played(&fails);
        assert!(matches!(ends, Ends::Done), "{kind:?}: {:?}", play.said);
        assert_eq!(play.works, 2);
        let is_delete = |said: &ShardAction| matches!(said, ShardAction::Ask(Side::New, sql) if sql.starts_with("DELETE"));
        let is_anew = play.said.iter().skip(asked).any(is_delete);
        assert!(!is_anew, "rows are written anew in one attempt only, {kind:?}: {:?}", play.said);
        fails[2] = (asked, Fails::Refused);
        let (ends, play) = played(&fails);
        assert!(matches!(ends, Ends::Done), "an error says nothing of the lock, {kind:?}: {:?}", play.said);
    }
}

/// A root that is absent locks nothing in MySQL: another program may insert the id between the reads of two tables.
#[test]
fn rows_without_a_root_are_refused_only_if_the_root_is_still_absent() {
    for is_there_now in [false, true] {
        let router = Router::from_text(MOVES).expect("a table");
        let named = ["t", "i"].map(|name| (name.to_owned(), "id".to_owned()));
        let tables = ShardTables::new(&router, named.to_vec()).expect("tables");
        let mut write = tables.with_deadline(Duration::from_secs(60)).write(ID);
        let play = Play::new(ShardKind::MySql);
        let (mut answer, mut works) = (ShardAnswer::Ready, 0);
        let ended = loop {
            answer = match write.next(answer) {
                Ok(ShardAction::Open(..)) => ShardAnswer::Opened(ShardKind::MySql),
                Ok(ShardAction::Ask(_, sql)) if sql.ends_with("NOWAIT") => {
                    ShardAnswer::Rows(if is_there_now { vec![vec![Some(b"1".to_vec())]] } else { Vec::new() })
                }
                Ok(ShardAction::Ask(_, sql)) if sql.contains("CAST(`id`") && sql.contains("`db`.`t`") => {
                    ShardAnswer::Rows(Vec::new())
                }
                Ok(ShardAction::Ask(side, sql)) => ShardAnswer::Rows(play.rows(side, &sql)),
                Ok(ShardAction::Work) if works == 1 => break None,
                Ok(ShardAction::Work) => {
                    works += 1;
                    ShardAnswer::Ready
                }
                Ok(_) => ShardAnswer::Ready,
                Err(error) => break Some(error),
            };
        };
        match ended {
            None => assert!(is_there_now, "the work runs again although the rows are its own"),
            Some(error) => assert!(
                !is_there_now && error.code == Code::StoreRefused && error.message.contains("none in `t`"),
                "{error}"
            ),
        }
    }
}

#[test]
fn what_a_server_ended_or_has_no_room_for_may_succeed_later() {
    let failure = |state: &str, number| ShardFailure {
        state: state.to_owned(),
        number,
        message: "words".to_owned(),
        is_broken: false,
    };
    for state in ["57014", "25P03", "25P04", "53300", "53100", "25006", "57P01", "08006", "40001", "55P03"] {
        assert!(failure(state, 0).is_temporary(ShardKind::Postgres), "{state}");
    }
    for number in [1317, 1927, 1969, 3024, 4031, 1040, 1203, 1226, 1290, 1114, 1213, 1205, 1047, 2013] {
        assert!(failure("HY000", number).is_temporary(ShardKind::MySql), "{number}");
    }
    for state in ["23505", "23503", "23514", "22001", "42501"] {
        assert!(!failure(state, 0).is_temporary(ShardKind::Postgres), "{state}");
    }
    for number in [1062, 1451, 1452, 3819, 4025, 1406, 1142] {
        assert!(!failure("HY000", number).is_temporary(ShardKind::MySql), "{number}");
    }
    assert!(failure("57014", 0).is_unknown_commit(ShardKind::Postgres));
    assert!(failure("70100", 1317).is_unknown_commit(ShardKind::MySql));
    assert!(!failure("25P03", 0).is_unknown_commit(ShardKind::Postgres), "the session was idle");
    assert!(!failure("23503", 0).is_unknown_commit(ShardKind::Postgres));
}

/// A serialization failure of PostgreSQL may be told at the commit, and a cluster of MySQL's always is.
#[test]
fn a_conflict_at_the_commit_is_tried_again_with_and_without_a_move() {
    for kind in [ShardKind::MySql, ShardKind::Postgres] {
        for routes in [STAYS, MOVES] {
            let mut play = Play::new(kind);
            assert!(matches!(play.run(tables(routes).write(ID), None), Ends::Done));
            let commit = play.said.iter().position(|said| *said == ShardAction::Commit(Side::Old));
            let commit = commit.expect("a commit");
            // Before it the tables are looked at, in a transaction of its own.
            let mut play = Play::new(kind);
            let ends = play.run(tables(routes).write(ID), Some((commit, Fails::Conflict)));
            assert!(matches!(ends, Ends::Done), "{kind:?}: {:?}", play.said);
            assert_eq!(play.works, if play.said[..commit].contains(&ShardAction::Work) { 2 } else { 1 });
            let mut play = Play::new(kind);
            let ends = play.run(tables(routes).write(ID).once(), Some((commit, Fails::Conflict)));
            let Ends::Failed(error) = ends else { panic!("{kind:?}: {:?}", play.said) };
            assert!(error.code == Code::NotReady && error.message.contains("nothing was written"), "{error}");
        }
    }
}

#[test]
fn what_a_read_writes_is_rolled_back() {
    let mut play = Play::new(ShardKind::MySql);
    assert!(matches!(play.run(tables(STAYS).read(ID), None), Ends::Done));
    let after = play.said.iter().skip_while(|said| **said != ShardAction::Work).nth(1);
    assert_eq!(after, Some(&ShardAction::Rollback(Side::Old)));
}

#[test]
fn a_work_that_leaves_rows_unread_is_told_so() {
    for (routes, words) in [(STAYS, "COMMIT"), (MOVES, "RELEASE")] {
        let (play, mut write) = (Play::new(ShardKind::MySql), tables(routes).write(ID));
        let unread =
            || ShardFailure { number: 2014, message: "out of sync".to_owned(), ..Default::default() };
        let (mut answer, mut has_worked) = (ShardAnswer::Ready, false);
        let error = loop {
            answer = match write.next(answer) {
                Ok(ShardAction::Open(..)) => ShardAnswer::Opened(ShardKind::MySql),
                Ok(ShardAction::Work) => {
                    assert!(!std::mem::replace(&mut has_worked, true), "it fails the next time as well");
                    ShardAnswer::Ready
                }
                Ok(ShardAction::Ask(Side::Old, sql)) if has_worked && sql.starts_with(words) => {
                    ShardAnswer::Failed(unread())
                }
                Ok(ShardAction::Ask(side, sql)) => ShardAnswer::Rows(play.rows(side, &sql)),
                Ok(ShardAction::Commit(Side::Old)) if has_worked => ShardAnswer::Failed(unread()),
                Ok(ShardAction::Done | ShardAction::Throw) => panic!("it is acknowledged"),
                Ok(_) => ShardAnswer::Ready,
                Err(error) => break error,
            };
        };
        assert_eq!(error.code, Code::InvalidArgument, "{error}");
        assert!(error.message.contains("left rows of a result unread on shard `s1`"), "{error}");
    }
}

#[test]
fn rows_that_a_trigger_of_the_new_shard_may_change_are_read_again() {
    for kind in [ShardKind::MySql, ShardKind::Postgres] {
        let reads = |trigger| {
            let mut play = Play { trigger, ..Play::new(kind) };
            assert!(matches!(play.run(tables(MOVES).write(ID), None), Ends::Done));
            let is_read = |said: &&ShardAction| matches!(said, ShardAction::Ask(Side::New, sql) if sql.contains(" FOR UPDATE"));
            play.said.iter().filter(is_read).count()
        };
        assert_eq!(reads("tr"), reads("") + 1, "{kind:?}");
    }
}

/// A driver makes other letters of bytes that are none, or none at all.
#[test]
fn texts_of_no_known_letters_are_not_written() {
    let mut play = Play { encoding: "SQL_ASCII", ..Play::new(ShardKind::Postgres) };
    let Ends::Failed(error) = play.run(tables(MOVES).write(ID), None) else { panic!("it is refused") };
    assert!(error.code == Code::StoreRefused && error.message.contains("SQL_ASCII"), "{error}");
    assert_eq!(play.works, 0);
}
