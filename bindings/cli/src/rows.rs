//! `move copy`, `verify` and `clean`: words in, verbs of [`keymill::Moves`], lines out.

use std::ops::ControlFlow;
use std::time::Duration;

use keymill::{Code, Comparison, Differs, Error, Mill, MovedRows, Result, RowRepair, RowsEvent, RowsTask};
use serde_json::{Map, Value, json};

use crate::move_args::{How, RowsArgs};
use crate::move_status::show;
use crate::operate::change;
use crate::progress::Progress;
use crate::waiting::{Waiting, forget};
use crate::{print, signal};

/// Above so many rows a comparison ends early.
const MANY: usize = 1000;

impl RowsArgs {
    /// The tables, each with its key, on both shards.
    fn rows(&self, per_second: u64) -> Result<MovedRows> {
        let (tables, keys) = (&self.table, &self.key);
        if tables.is_empty() || keys.is_empty() {
            return Err(Error::argument("name the table and the column of its ids: --table T --key COLUMN"));
        }
        if keys.len() != 1 && keys.len() != tables.len() {
            return Err(Error::argument(format!(
                "{} tables and {} keys: write one --key for all tables, or one for each",
                tables.len(),
                keys.len()
            )));
        }
        let mut rows = MovedRows::new(&self.from, &self.to).rows_per_second(per_second).named_by_options();
        for (at, table) in tables.iter().enumerate() {
            rows = rows.table(table, keys.get(at).or(keys.first()).map_or("", String::as_str));
        }
        Ok(rows)
    }
}

/// A comparison counts once these routes are no longer used.
pub fn note_settling(settle: Duration) {
    print::note(&format!(
        "keymill: every reader writes to both shards; routes that were handed out before are waited for, {} ms",
        settle.as_millis()
    ));
}

/// What is seen of a verb while it runs.
struct Shown {
    /// Whether readers are waited for.
    waits: bool,
    waiting: Waiting,
    progress: Option<(RowsTask, String, f64, Progress)>,
}

impl Shown {
    fn new(waits: bool) -> Shown {
        signal::listen();
        Shown { waits, waiting: Waiting::default(), progress: None }
    }

    fn on(&mut self, event: RowsEvent<'_>) -> ControlFlow<()> {
        match event {
            RowsEvent::Progress { task, table, share, rows, is_easing, .. } => {
                self.at(task, table, share).at(share, rows, is_easing);
            }
            RowsEvent::Waits(_) if !self.waits => return ControlFlow::Break(()),
            RowsEvent::Waits(error) => self.waiting.say(error),
            RowsEvent::Settles(settle) => note_settling(settle),
            RowsEvent::Retries(error) => print::note(&format!("keymill: tried again: {}", error.message)),
            RowsEvent::NotRepaired(error) => {
                print::note(&format!("keymill: a row was not repaired: {}", error.message));
            }
            _ => {}
        }
        if signal::exit_code().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The bar of this task and table; a new one where another range begins.
    fn at(&mut self, task: RowsTask, table: &str, share: f64) -> &mut Progress {
        let goes_on = matches!(&self.progress, Some((shown, name, upto, _)) if *shown == task && name == table && *upto <= share);
        let bar = match self.progress.take().filter(|_| goes_on) {
            Some((.., bar)) => bar,
            None => {
                let doing = match task {
                    RowsTask::Copying => "copying",
                    RowsTask::Comparing => "comparing",
                    RowsTask::Checking => "checking",
                    RowsTask::Removing => "removing from",
                };
                Progress::new(format!("{doing} `{}`", print::one_line(table)))
            }
        };
        &mut self.progress.insert((task, table.to_owned(), share, bar)).3
    }
}

/// What was done to each table.
fn say(tables: &[(&str, Vec<(&str, u64)>)], as_json: bool) -> Result<()> {
    if as_json {
        let shown = |(name, numbers): &(&str, Vec<(&str, u64)>)| {
            let mut fields = Map::new();
            fields.insert("table".to_owned(), Value::from(*name));
            fields.extend(numbers.iter().map(|(what, number)| (what.replace(' ', "_"), (*number).into())));
            Value::Object(fields)
        };
        return print::json(&tables.iter().map(shown).collect());
    }
    let mut text = String::new();
    for (name, numbers) in tables {
        text.push_str(&format!("table: {}\n", print::one_line(name)));
        for (what, number) in numbers {
            text.push_str(&format!("{what}: {number}\n"));
        }
    }
    print::text(&text)
}

/// `move copy`.
pub fn copy(
    mill: &Mill,
    router: &str,
    args: &RowsArgs,
    per_second: u64,
    how: &How,
    json: bool,
) -> Result<()> {
    let (rows, moves) = (args.rows(per_second)?, mill.moves(router)?);
    forget(&moves, how)?;
    let mut shown = Shown::new(how.wait);
    let copied = moves.copy(&rows, change(how.yes), &mut |event| shown.on(event))?;
    drop(shown);
    let [sent, alike] = if how.yes {
        ["rows copied", "rows alike before"]
    } else {
        ["rows to copy", "rows in the new shard"]
    };
    let each =
        copied.iter().map(|table| (table.table.as_str(), vec![(sent, table.sent), (alike, table.alike)]));
    say(&each.collect::<Vec<_>>(), json)?;
    if !how.yes && moves.status()?.moving.is_none() {
        print::note(
            "keymill: no range moves yet; the tables can be copied once `keymill move start` has begun the move",
        );
    } else if !how.yes {
        print::note("keymill: nothing was written; --yes writes it");
    }
    Ok(())
}

/// `move verify`.
pub fn verify(
    mill: &Mill,
    router: &str,
    args: &RowsArgs,
    repair: RowRepair,
    how: &How,
    json: bool,
) -> Result<()> {
    let (rows, moves) = (args.rows(u64::MAX)?, mill.moves(router)?);
    forget(&moves, how)?;
    let mut shown = Shown::new(how.wait);
    let found = moves.verify(&rows, repair, change(how.yes), &mut |event| shown.on(event))?;
    drop(shown);
    report(&found, json)?;
    if !found.is_alike() {
        return Err(differ(&found, repair, how.yes));
    }
    match &found.recorded {
        Some(status) if !json => show(router, status, json),
        Some(_) => Ok(()),
        None => {
            print::note(if found.counts {
                "keymill: both shards are alike, and nothing was recorded; --yes records it"
            } else {
                "keymill: both shards are alike; nothing is recorded between the first percentage and the last one"
            });
            Ok(())
        }
    }
}

fn differ(found: &Comparison, repair: RowRepair, yes: bool) -> Error {
    let only_gone =
        found.tables.iter().flat_map(|table| &table.differ).all(|row| row.how == Differs::OnlyNew);
    let remedy = match repair {
        RowRepair::Bring if yes && only_gone => {
            "the old shard does not have them: they were deleted there, or their writes were not acknowledged; --repair --delete deletes them in the new one, too"
        }
        RowRepair::Bring | RowRepair::BringAndDelete if yes => {
            "what keeps them out is said above; change these rows by hand where it stays so, and run it again"
        }
        _ => "--repair --yes makes them what they are in the old shard",
    };
    let left: usize = found.tables.iter().map(|table| table.differ.len()).sum();
    let left = if left >= MANY { format!("{left} or more") } else { left.to_string() };
    Error::new(Code::NotReady, format!("{left} rows are not alike in both shards; {remedy}"))
}

fn report(found: &Comparison, as_json: bool) -> Result<()> {
    if as_json {
        let rows = |table: &keymill::ComparedRows| -> Vec<Value> {
            table.differ.iter().map(|row| json!({ "row": row.row, "differs": row.how.words() })).collect()
        };
        let tables = found.tables.iter().map(
            |table| json!({ "table": table.table, "rows": table.rows, "repaired": table.repaired, "differ": rows(table) }),
        );
        return print::json(&tables.collect());
    }
    let mut text = String::new();
    for table in &found.tables {
        let (name, differ) = (print::one_line(&table.table), table.differ.len());
        text.push_str(&format!(
            "table: {name}\nrows: {}\nrepaired: {}\ndiffer: {differ}\n",
            table.rows, table.repaired
        ));
        for row in &table.differ {
            text.push_str(&format!("row {}: {}\n", print::one_line(&row.row), row.how.words()));
        }
    }
    print::text(&text)
}

/// `move clean`.
pub fn clean(
    mill: &Mill,
    router: &str,
    args: &RowsArgs,
    older_than: Duration,
    per_second: u64,
    (changed, yes): (bool, bool),
    json: bool,
) -> Result<()> {
    let (mut rows, moves) = (args.rows(per_second)?, mill.moves(router)?);
    if changed {
        rows = rows.changed_too();
    }
    let mut shown = Shown::new(false);
    let removed = moves.clean(&rows, older_than, change(yes), &mut |event| shown.on(event))?;
    drop(shown);
    let what = if yes { "rows removed" } else { "rows to remove" };
    let each = removed.iter().map(|table| (table.table.as_str(), vec![(what, table.rows)]));
    say(&each.collect::<Vec<_>>(), json)?;
    if !yes {
        print::note("keymill: nothing was removed; --yes removes it");
    }
    Ok(())
}
