//! `move verify`: compares the tables of a range, repairs them if asked to, and records that both shards are alike.

use std::time::Instant;

use keymill::{Change, Code, Error, Mill, MovePhase, Result, Router};
use serde_json::json;

use super::compare::{Compared, compare};
use super::key::IdRange;
use super::pace::Pace;
use super::progress::Progress;
use super::repair::repair;
use super::sides::{check_deletes, check_sides};
use super::{Both, moving, tables};
use crate::move_args::{How, RowsArgs};
use crate::{moves, print, signal};

/// So many rows are named.
const NAMED: usize = 1000;

/// What is done to rows that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repairs {
    pub repair: bool,
    pub delete: bool,
}

/// `move verify`.
pub fn verify(
    mill: &Mill,
    router: &str,
    rows: &RowsArgs,
    repairs: Repairs,
    how: &How,
    json: bool,
) -> Result<()> {
    let (before, status) = moving(mill, router)?;
    let routes = Router::from_text(&mill.route_table(router)?)?;
    let mut all = Vec::new();
    for (name, key) in tables(rows)? {
        let mut both = Both::open(rows, &before.of, name, key)?;
        check_sides(&mut both, &routes, &before.of, &status.finished)?;
        if repairs.delete {
            check_deletes(&mut both, &before.of)?;
        }
        all.push(both);
    }
    if rows.print {
        for both in &all {
            let ranges = IdRange::of(&before.of, both.old.is_wide);
            print::text(&super::script::of_verify(both, &ranges))?;
        }
        return Ok(());
    }
    // Later there is nothing to record: both shards were alike before the first ids were cut over.
    let began =
        if before.phase == MovePhase::Mirror && how.yes { moves::begin(mill, router, how)?.1 } else { None };
    signal::listen();
    let mut found = Vec::new();
    for both in &mut all {
        found.push(of_table(mill, router, both, repairs, how.yes)?);
    }
    report(&all, &found, json)?;
    let left: usize = found.iter().map(|of| of.left.len()).sum();
    if left > 0 {
        let remedy = match (repairs.repair && how.yes, repairs.delete) {
            (false, _) => "--repair --yes brings the newer ones over",
            (true, false) => "rows that only the new shard has are deleted there by --repair --delete",
            (true, true) => "what keeps them out is said above; run it again",
        };
        return Err(Error::new(
            Code::NotReady,
            format!("{} rows are not alike in both shards; {remedy}", more_than(left)),
        ));
    }
    let Some(began) = began else {
        if before.phase == MovePhase::Mirror {
            print::note("keymill: both shards are alike, and nothing was recorded; --yes records it");
        }
        return Ok(());
    };
    let status = mill.moves(router)?.verified(began, Change::Apply)?;
    if !json {
        moves::show(router, &status, json)?;
    }
    Ok(())
}

fn more_than(left: usize) -> String {
    if left >= NAMED { format!("{left} or more") } else { left.to_string() }
}

fn of_table(mill: &Mill, router: &str, both: &mut Both, repairs: Repairs, yes: bool) -> Result<Compared> {
    let status = mill.moves(router)?.status()?;
    let Some(moving) = status.moving else {
        return Err(Error::config("the move has ended meanwhile; nothing was recorded"));
    };
    let routes = Router::from_text(&mill.route_table(router)?)?;
    let mut pace = Pace::new(u64::MAX, Instant::now());
    let mut whole = Compared::default();
    for range in IdRange::of(&moving.of, both.old.is_wide) {
        let mut progress = Progress::new(format!("comparing `{}`", both.old.name));
        let of =
            compare(both, &range, status.settle, &mut pace, &mut progress, NAMED, &mut |both, found| {
                if !(repairs.repair && yes) {
                    return Ok(found);
                }
                repair(both, &found, &routes, &moving.of.to, repairs.delete)
            })?;
        whole.rows += of.rows;
        whole.repaired += of.repaired;
        whole.left.extend(of.left);
    }
    Ok(whole)
}

fn report(all: &[Both], found: &[Compared], json: bool) -> Result<()> {
    let mut text = String::new();
    let mut answers = Vec::new();
    for (both, of) in all.iter().zip(found) {
        let table = &both.old;
        let row = |left: &super::compare::Difference| (table.shown(&left.primary), left.how.words());
        if json {
            let rows: Vec<_> =
                of.left.iter().map(row).map(|(row, how)| json!({ "row": row, "differs": how })).collect();
            answers.push(
                json!({ "table": table.name, "rows": of.rows, "repaired": of.repaired, "differ": rows }),
            );
            continue;
        }
        let name = print::one_line(&table.name);
        text.push_str(&format!(
            "table: {name}\nrows: {}\nrepaired: {}\ndiffer: {}\n",
            of.rows,
            of.repaired,
            of.left.len()
        ));
        for (row, how) in of.left.iter().map(row) {
            text.push_str(&format!("row {}: {how}\n", print::one_line(&row)));
        }
    }
    if json { print::json(&json!(answers)) } else { print::text(&text) }
}
