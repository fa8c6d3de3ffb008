//! The rows of a range that moves: copied from the old shard to the new one, compared, repaired, and in the end removed.
//!
//! The ids of a range of genes are one range of the primary key, so everything goes chunk by chunk along the key.

mod children;
mod clean;
mod compare;
mod copy;
mod digest;
mod key;
mod pace;
mod progress;
mod repair;
mod script;
mod sides;
mod sql;
mod table;
mod verify;

pub use clean::{Clean, clean};
pub use verify::{Repairs, verify};

use std::time::{Duration, Instant};

use keymill::binding::{Cells, Shard, ShardKind};
use keymill::{Code, Error, Mill, MovePhase, MoveStatus, Moving, PlannedMove, Result, Router};

use crate::move_args::{How, RowsArgs};
use crate::{moves, print, signal};
use key::IdRange;
use sides::check_sides;
use table::Table;

/// How long a statement is tried again that a lock, a deadlock or a lost connection stopped.
const PATIENCE: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// One table on both shards.
pub struct Both {
    from: Shard,
    to: Shard,
    /// The table as the old shard has it.
    old: Table,
    /// The same columns in the same order, as the new shard has it.
    new: Table,
    /// The longest statement that both servers take.
    longest: usize,
}

impl Both {
    fn open(rows: &RowsArgs, of: &PlannedMove, name: &str, key: &str) -> Result<Both> {
        let (from, to) = (url_of("--from", &rows.from, &of.from, of)?, url_of("--to", &rows.to, &of.to, of)?);
        let (mut from, mut to) = (Shard::open("--from", from)?, Shard::open("--to", to)?);
        if from.kind() != to.kind() {
            return Err(Error::config(format!(
                "--from ({}) is {:?} and --to ({}) is {:?}: rows are moved between databases of one kind",
                from.at(),
                from.kind(),
                to.at(),
                to.kind()
            )));
        }
        let old = Table::read(&mut from, name, key)?;
        let mut new = Table::read(&mut to, name, key)?;
        check_apart(&mut from, &mut to, &old, &new)?;
        old.check_alike(&from.at(), &new, &to.at())?;
        new.in_order_of(&old);
        let longest = longest(&mut from)?.min(longest(&mut to)?);
        Ok(Both { from, to, old, new, longest })
    }
}

/// How long a statement may be, with room for what the protocol adds.
fn longest(shard: &mut Shard) -> Result<usize> {
    Ok(match shard.kind() {
        ShardKind::MySql => copy::number(shard, "SELECT @@max_allowed_packet")?.saturating_sub(1024) as usize,
        ShardKind::Postgres => 1 << 30,
    })
}

/// A row that does not fit into a statement.
fn too_long(at: &str, table: &Table, row: Cells<'_>, bytes: usize) -> Error {
    let primary = table.primary_of(row).map_or_else(String::new, |primary| table.shown(&primary));
    Error::new(
        Code::StoreRefused,
        format!(
            "{at}: row {primary} of `{}` needs a statement of {bytes} bytes, and a server takes none longer than its `max_allowed_packet`; raise that, on both shards, and run the same command again",
            table.name
        ),
    )
}

/// The URL behind `NAME=`, if this name stands there.
fn url<'u>(word: &'u str, shard: &str) -> Option<&'u str> {
    word.strip_prefix(shard)?.strip_prefix('=')
}

/// The URL of a shard, whose name may stand in front.
fn url_of<'u>(option: &str, word: &'u str, shard: &str, of: &PlannedMove) -> Result<&'u str> {
    if let Some(url) = url(word, shard) {
        return Ok(url);
    }
    match word.split_once('=') {
        // No URL has an `=` before its first colon.
        Some((other, _)) if !other.contains(':') => Err(Error::argument(format!(
            "{option} names shard `{}`; the move is from `{}` to `{}`",
            print::one_line(other),
            print::one_line(&of.from),
            print::one_line(&of.to)
        ))),
        _ => Ok(word),
    }
}

/// Refuses one table under two names. A lock shows it, whatever the spelling: host names, sockets and proxies say nothing.
fn check_apart(from: &mut Shard, to: &mut Shard, old: &Table, new: &Table) -> Result<()> {
    let secret = format!("keymill move {:016x}", drawn());
    let is_one = match from.kind() {
        ShardKind::MySql => {
            let lock = sql::text_literal(ShardKind::MySql, &secret);
            from.read(&format!("SELECT GET_LOCK({lock}, 0)"), |_| {})?;
            let held = copy::number(to, &format!("SELECT IS_USED_LOCK({lock}) IS NOT NULL"))? == 1;
            from.read(&format!("SELECT RELEASE_LOCK({lock})"), |_| {})?;
            let name = "SELECT IF(@@lower_case_table_names, LOWER(DATABASE()), DATABASE())";
            let cluster = "SHOW GLOBAL STATUS LIKE 'wsrep_cluster_state_uuid'";
            let of_cluster = table::texts(from, cluster)?;
            let one_server = held || !of_cluster.is_empty() && of_cluster == table::texts(to, cluster)?;
            one_server && table::texts(from, name)? == table::texts(to, name)?
        }
        ShardKind::Postgres => {
            let lock = format!("pg_catalog.hashtextextended('{secret}', 0)");
            from.read(&format!("BEGIN; SELECT pg_catalog.pg_advisory_xact_lock({lock})"), |_| {})?;
            let free = copy::number(to, &format!("SELECT pg_catalog.pg_try_advisory_xact_lock({lock})::int"));
            from.read("ROLLBACK", |_| {})?;
            free? == 0 && old.quoted == new.quoted
        }
    };
    if is_one {
        return Err(Error::config(format!(
            "--from ({}) and --to ({}) are one database: `{}` would be copied into itself; name the databases of the two shards",
            from.at(),
            to.at(),
            old.name
        )));
    }
    Ok(())
}

/// A number that no other process has.
fn drawn() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Tries again what a lock or a lost connection stopped. What is sent here may be sent twice.
fn persist<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    let (began, mut pause) = (Instant::now(), Duration::from_millis(20));
    loop {
        match work() {
            Err(error)
                if error.code == Code::StoreUnavailable
                    && began.elapsed() < PATIENCE
                    && !is_asked_to_end() =>
            {
                print::note(&format!("keymill: tried again: {}", error.message));
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            done => return done,
        }
    }
}

/// Whether a signal came.
fn is_asked_to_end() -> bool {
    signal::exit_code().is_some()
}

/// The tables, each with its key.
fn tables(rows: &RowsArgs) -> Result<Vec<(&str, &str)>> {
    let (tables, keys) = (&rows.table, &rows.key);
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
    let key = |at: usize| keys.get(at).or(keys.first()).map_or("", String::as_str);
    Ok(tables.iter().enumerate().map(|(at, table)| (table.as_str(), key(at))).collect())
}

/// The range that moves, and where all moves stand.
fn moving(mill: &Mill, router: &str) -> Result<(Moving, MoveStatus)> {
    let status = mill.moves(router)?.status()?;
    let moving = status.moving.clone().ok_or_else(|| {
        Error::config(format!(
            "no range of router `{}` moves, so programs write to one shard only, and a copy would miss what they write meanwhile; begin with `keymill move start`",
            print::one_line(router)
        ))
    })?;
    Ok((moving, status))
}

/// What was done to each table.
#[derive(Default)]
struct Answer(Vec<(String, Vec<(&'static str, u64)>)>);

impl Answer {
    fn table(&mut self, name: &str, numbers: &[(&'static str, u64)]) {
        self.0.push((name.to_owned(), numbers.to_vec()));
    }

    fn say(&self, json: bool) -> Result<()> {
        if json {
            let of = |(name, numbers): &(String, Vec<(&str, u64)>)| {
                let mut fields = serde_json::Map::new();
                fields.insert("table".to_owned(), name.as_str().into());
                fields
                    .extend(numbers.iter().map(|(what, number)| (what.replace(' ', "_"), (*number).into())));
                serde_json::Value::Object(fields)
            };
            return print::json(&self.0.iter().map(of).collect());
        }
        let mut text = String::new();
        for (name, numbers) in &self.0 {
            text.push_str(&format!("table: {}\n", print::one_line(name)));
            for (what, number) in numbers {
                text.push_str(&format!("{what}: {number}\n"));
            }
        }
        print::text(&text)
    }
}

/// `move copy`.
pub fn copy(
    mill: &Mill,
    router: &str,
    rows: &RowsArgs,
    per_second: u64,
    how: &How,
    json: bool,
) -> Result<()> {
    let (moving, status) = moving(mill, router)?;
    let yes = how.yes;
    if yes && moving.phase != MovePhase::Mirror {
        return Err(Error::config(format!(
            "ids of router `{}` are cut over already: a row that a program deletes meanwhile would come back; `keymill move verify --repair` brings over what differs, and `keymill move back` goes back to where rows are copied",
            print::one_line(router)
        )));
    }
    let each = tables(rows)?.into_iter().map(|(name, key)| Both::open(rows, &moving.of, name, key));
    let mut all: Vec<Both> = each.collect::<Result<_>>()?;
    let routes = Router::from_text(&mill.route_table(router)?)?;
    for both in &mut all {
        check_sides(both, &routes, &moving.of, &status.finished)?;
    }
    if rows.print {
        for both in &all {
            print::text(&script::of_copy(both, &IdRange::of(&moving.of, both.old.is_wide)))?;
        }
        return Ok(());
    }
    // A row that a program writes to the old shard only, behind the place where the copy is, would be missed.
    let is_mirrored = moving.verify_from.is_some_and(|from| from <= status.now_ms);
    if yes && !is_mirrored {
        moves::begin(mill, router, how)?;
    }
    signal::listen();
    let mut answer = Answer::default();
    for mut both in all {
        let mut copied = copy::Copied::default();
        for range in &IdRange::of(&moving.of, both.old.is_wide) {
            let of = if yes {
                copy::whole(&mut both, range, per_second)?
            } else {
                copy::counted(&mut both, range)?
            };
            copied.sent += of.sent;
            copied.alike += of.alike;
        }
        let [sent, alike] = if yes {
            ["rows copied", "rows alike before"]
        } else {
            ["rows to copy", "rows in the new shard"]
        };
        answer.table(&both.old.name, &[(sent, copied.sent), (alike, copied.alike)]);
    }
    answer.say(json)?;
    if !yes {
        print::note("keymill: nothing was written; --yes writes it");
    }
    Ok(())
}
