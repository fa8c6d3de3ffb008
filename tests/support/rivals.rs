//! The programs that keymill replaces, as their nodes speak to MySQL or MariaDB: their own SQL on their own tables.

use std::sync::Arc;

use keymill::store::{GiveBack, Key, Request, Scheme, Store};
use mysql::Conn;
use mysql::prelude::Queryable;

/// Another program's table, and how one of its nodes takes a range.
#[derive(Debug)]
pub struct Program {
    /// Its scheme.
    pub scheme: Scheme,
    /// The column of the name.
    pub by: &'static str,
    /// The column of the maximum.
    pub maximum: &'static str,
    /// The columns that an operator fills when creating a row, and their values: step 50 where there is one.
    pub row: (&'static str, &'static str),
    /// A reservation as the program makes it; answers with `[lo, hi)`.
    pub node: fn(&mut Conn, &str) -> (u64, u64),
}

/// A node of keymill's beside those of another program: reserves `len` numbers so many times, and gives the upper half of every
/// `every`-th range back, if no other node has reserved since. Answers with what it used.
///
/// # Panics
/// Where the store refuses.
pub fn reserve_and_give_back(
    store: &mut dyn Store,
    key: &Arc<Key>,
    len: u64,
    rounds: usize,
    every: usize,
) -> Vec<(u64, u64)> {
    let mut ask = Request::new(key, len);
    let used = (0..rounds).map(|round| {
        let got = crate::in_time(|| store.reserve(&ask)).expect("a range");
        let middle = got.lo + (got.hi - got.lo) / 2;
        let is_half = round % every == 0
            && crate::in_time(|| store.give_back(&GiveBack::new(key, 0, middle, got.hi))).expect("an answer");
        ask.high_water.next = if is_half { middle } else { got.hi };
        (got.lo, ask.high_water.next)
    });
    used.collect()
}

/// The programs with one row a name; the row is `orders`, its step 50, its first number 1.
pub const PROGRAMS: &[Program] = &[
    Program {
        scheme: Scheme::SequenceTable,
        by: "biz_type",
        maximum: "cur_id",
        row: ("biz_type, cur_id, step, time_to_live", "'orders', 0, 50, 60"),
        node: snowman,
    },
    Program {
        scheme: Scheme::LeafAlloc,
        by: "biz_tag",
        maximum: "max_id",
        row: ("biz_tag, max_id, step", "'orders', 1, 50"),
        node: leaf,
    },
    Program {
        scheme: Scheme::TinyIdInfo,
        by: "biz_type",
        maximum: "max_id",
        row: ("biz_type, max_id, step", "'orders', 0, 50"),
        node: tinyid,
    },
    Program {
        scheme: Scheme::Cosid,
        by: "name",
        maximum: "last_max_id",
        row: ("name, last_max_id, last_fetch_time", "'orders', 0, 0"),
        node: cosid,
    },
];

/// The program of this scheme.
///
/// # Panics
/// Where it is not among them.
#[must_use]
pub fn program(scheme: Scheme) -> &'static Program {
    PROGRAMS.iter().find(|program| program.scheme == scheme).expect("its program")
}

/// IDSnowman: one autocommitted statement, and the batch's end from the session.
fn snowman(connection: &mut Conn, table: &str) -> (u64, u64) {
    let update =
        format!("UPDATE {table} SET cur_id = LAST_INSERT_ID(cur_id + step) WHERE biz_type = 'orders'");
    connection.query_drop(update).unwrap();
    let end = connection.last_insert_id();
    let step: u64 = connection.query_first(format!("SELECT step FROM {table}")).unwrap().unwrap();
    (end - step + 1, end + 1)
}

/// Leaf's `IDAllocDaoImpl.updateMaxIdAndGetLeafAlloc`: two statements in one transaction, counting below `max_id`.
fn leaf(connection: &mut Conn, table: &str) -> (u64, u64) {
    connection.query_drop("BEGIN").unwrap();
    connection
        .query_drop(format!("UPDATE {table} SET max_id = max_id + step WHERE biz_tag = 'orders'"))
        .unwrap();
    let select = format!("SELECT max_id, step FROM {table} WHERE biz_tag = 'orders'");
    let (max, step): (u64, u64) = connection.query_first(select).unwrap().unwrap();
    connection.query_drop("COMMIT").unwrap();
    (max - step, max)
}

/// tinyid's `DbSegmentIdServiceImpl`: an optimistic update, repeated after a conflict.
fn tinyid(connection: &mut Conn, table: &str) -> (u64, u64) {
    let select = format!("SELECT id, max_id, step, version FROM {table} WHERE biz_type = 'orders'");
    let update = format!(
        "UPDATE {table} SET max_id = ?, update_time = now(), version = version + 1 WHERE id = ? AND max_id = ? \
         AND version = ? AND biz_type = 'orders'"
    );
    loop {
        let (id, max, step, version): (u64, u64, u64, u64) =
            connection.query_first(&select).unwrap().unwrap();
        connection.exec_drop(&update, (max + step, id, max, version)).unwrap();
        if connection.affected_rows() == 1 {
            return (max + 1, max + step + 1);
        }
    }
}

/// The ids that a node of tinyid issues from a row of any delta and remainder: its `SegmentId`, which first goes up to the
/// remainder, then by delta for as long as it is not above the segment's `max_id`.
///
/// # Panics
/// If the server refuses.
pub fn tinyid_ids(connection: &mut Conn, table: &str) -> Vec<u64> {
    let select = format!("SELECT delta, remainder FROM {table} WHERE biz_type = 'orders'");
    let (delta, remainder): (u64, u64) = connection.query_first(select).unwrap().unwrap();
    let (lo, hi) = tinyid(connection, table);
    let mut current = lo - 1;
    while current % delta != remainder {
        current += 1;
    }
    // Another node issued the row's own `currentId` with the segment before.
    let first = if current == lo - 1 { current + delta } else { current };
    (first..hi).step_by(delta as usize).collect()
}

/// CosId's `JdbcIdSegmentDistributor.nextMaxId`.
fn cosid(connection: &mut Conn, table: &str) -> (u64, u64) {
    connection.query_drop("BEGIN").unwrap();
    let update = format!(
        "update {table} set last_max_id=(last_max_id + 50),last_fetch_time=unix_timestamp() where name = 'orders'"
    );
    connection.query_drop(update).unwrap();
    let select = format!("select last_max_id from {table} where name = 'orders'");
    let max: u64 = connection.query_first(select).unwrap().unwrap();
    connection.query_drop("COMMIT").unwrap();
    (max - 49, max + 1)
}

/// The hand-written KeyFactory's `getSerialNoFromDB`: a range of 50 of this table and column, date and first number;
/// `None` where another node was faster. A row of another date begins at 1; a number has this many digits.
///
/// # Panics
/// If the server refuses.
pub fn key_factory(
    connection: &mut Conn,
    table: &str,
    (today, digits): (&str, usize),
    row: (&str, &str),
) -> Option<(u64, u64)> {
    let which = format!("TABLENAME = '{}' AND COLUMNNAME = '{}'", row.0, row.1);
    connection.query_drop("BEGIN").unwrap();
    let select = format!("SELECT MAXSERIALNO FROM {table} WHERE {which} FOR UPDATE");
    let old: String = connection.query_first(select).unwrap().unwrap();
    let start: u64 = old.strip_prefix(today).map_or(0, |number| number.parse().unwrap());
    let update = format!("UPDATE {table} SET MAXSERIALNO = ? WHERE {which} AND MAXSERIALNO = ?");
    connection.exec_drop(update, (format!("{today}{:0digits$}", start + 50), old)).unwrap();
    let changed = connection.affected_rows();
    connection.query_drop(if changed == 1 { "COMMIT" } else { "ROLLBACK" }).unwrap();
    (changed == 1).then_some((start + 1, start + 51))
}
