//! `split-sql`: the statements that cut a TiDB table into regions as scattered ids need them.

use std::fmt::Write as _;

use keymill::scatter::Scatter;
use keymill::snowflake::layout::{Window, rfc3339};
use keymill::{Error, Kind, Layout, Result, Source};
use serde_json::json;

use crate::dialect::{named, quoted};
use crate::layout::now_ms;
use crate::print;

/// The most regions of one `SPLIT` statement: TiDB's `split-region-max-num`.
const MOST_AT_ONCE: u64 = 1000;
/// A region of fewer ids is refused by TiDB.
const LEAST_IDS: u64 = 1000;

/// What is to be cut.
#[derive(Clone, Copy, Debug)]
pub struct SplitOptions<'a> {
    /// The table, as SQL names it.
    pub table: &'a str,
    /// The index that holds the ids, where it is not the clustered primary key.
    pub index: Option<&'a str>,
    /// How many regions.
    pub regions: Option<u64>,
    /// How many TiKV servers there are, for advice.
    pub tikv: Option<u64>,
}

/// Prints the statements for this window of ids and the next.
pub fn sql(source: &Source, wanted: SplitOptions<'_>, json: bool) -> Result<()> {
    let layout = source
        .layout()
        .filter(|layout| layout.scatter() != Scatter::None)
        .ok_or_else(|| unscattered(source))?;
    let windows = windows(&layout)?;
    named(wanted.table)?;
    let regions = wanted.regions.unwrap_or_else(|| layout.scatter().regions());
    if regions < 2 || windows.iter().any(|window| (window.hi - window.lo) / regions < LEAST_IDS) {
        return Err(Error::argument(format!(
            "--regions {regions} is not possible: a table is split into 2 regions or more, of at least {LEAST_IDS} ids each"
        )));
    }
    let statements: Vec<(Window, Vec<String>)> =
        windows.iter().map(|window| (*window, split(window, regions, wanted))).collect();
    let notes = notes(&layout, regions, wanted.tikv);
    let before = "SET SESSION tidb_wait_split_region_finish = ON";
    let keep = format!("ALTER TABLE {} ATTRIBUTES 'merge_option=deny'", quoted(wanted.table, '`'));
    if json {
        let windows = statements.iter().map(|(window, statements)| {
            json!({
                "from": rfc3339(window.from_ms), "until": rfc3339(window.until_ms),
                "lo": window.lo.to_string(), "hi": window.hi.to_string(), "statements": statements,
            })
        });
        return print::json(&json!({
            "source": source.label(), "regions": regions.to_string(), "before": [before], "windows": windows.collect::<Vec<_>>(),
            "after": [keep], "notes": notes,
        }));
    }
    let mut script = String::new();
    for note in &notes {
        let _ = writeln!(script, "-- {note}");
    }
    let _ = writeln!(
        script,
        "-- A statement ends when the regions and their leaders are on several servers.\n{before};"
    );
    for (window, statements) in &statements {
        let _ =
            writeln!(script, "-- Ids made from {} to {}:", rfc3339(window.from_ms), rfc3339(window.until_ms));
        for statement in statements {
            let _ = writeln!(script, "{statement};");
        }
    }
    let _ = writeln!(script, "-- Regions without rows would be merged again:\n{keep};");
    print::text(&script)
}

fn unscattered(source: &Source) -> Error {
    if source.kind() == Kind::Business {
        return Error::argument(format!(
            "ids of `{}` begin with the gene of their key, not with a time: TiDB splits the table by itself where rows are many; `split-sql` is for snowflakes with scatter=1, 2, 3 or high:BITS",
            source.label()
        ));
    }
    let why = if source.layout().is_some() {
        "its ids rise with time, so all new rows are in one region, wherever a table is split; open it with scatter=1, 2, 3 or high:BITS"
    } else {
        "its numbers rise, so all new rows are in one region, wherever a table is split; use a snowflake with scatter=1, or a table of `keymill ddl --variant nonclustered`"
    };
    Error::argument(format!("`{}` has no scatter: {why}", source.label()))
}

/// The window of now and the next window, if there is one.
fn windows(layout: &Layout) -> Result<Vec<Window>> {
    let now = layout.window(now_ms()).ok_or_else(|| match layout.check_life(now_ms()) {
        Err(error) => error,
        Ok(_) => layout.ended(),
    })?;
    Ok(std::iter::once(now).chain(layout.window(now.until_ms)).collect())
}

/// The statements for one window. Each makes at most [`MOST_AT_ONCE`] regions.
fn split(window: &Window, regions: u64, wanted: SplitOptions<'_>) -> Vec<String> {
    let table = quoted(wanted.table, '`');
    let index = wanted.index.map_or(String::new(), |index| format!(" INDEX {}", quoted(index, '`')));
    // No split at the lower end: regions below it belong to the window before. A BIGINT ends at 2^63-1.
    let bound = |part: u64| {
        let size = window.hi - window.lo;
        let at = u128::from(window.lo) + u128::from(size) * u128::from(part) / u128::from(regions);
        u64::try_from(at).unwrap_or(u64::MAX).min(i64::MAX as u64)
    };
    let mut statements = Vec::new();
    let mut first = 0;
    while first + 1 < regions {
        // A statement splits between its bounds, not at them: the next one begins a region earlier.
        let last = regions.min(first + MOST_AT_ONCE);
        statements.push(format!(
            "SPLIT TABLE {table}{index} BETWEEN ({}) AND ({}) REGIONS {}",
            bound(first),
            bound(last),
            last - first
        ));
        if last == regions {
            break;
        }
        first = last - 1;
    }
    statements
}

fn notes(layout: &Layout, regions: u64, tikv: Option<u64>) -> Vec<String> {
    let scatter = layout.scatter();
    let mut notes = vec![format!(
        "The ids of one moment lie in {} parts of equal size (scatter={scatter}); {regions} regions.",
        scatter.regions()
    )];
    if let Some(servers) = tikv {
        notes.push(advice(servers, layout.max_seq().count_ones()));
    }
    if !regions.is_multiple_of(scatter.regions()) && !scatter.regions().is_multiple_of(regions) {
        notes.push(format!(
            "{regions} regions have unequal shares: {} parts cannot be divided evenly among them.",
            scatter.regions()
        ));
    }
    notes.push("An index on a column that rises, such as the time of creation, has one hot region whatever the ids are.".to_owned());
    notes
}

/// Which form suits so many servers; the sequence has so many bits to move.
fn advice(servers: u64, most_bits: u32) -> String {
    // As many parts as servers, by the nearest power.
    let digits = if servers < 32 {
        1
    } else if servers < 317 {
        2
    } else {
        3
    };
    let bits = ((servers.max(2) as f64).log2().round() as u32).min(most_bits);
    format!(
        "{servers} TiKV servers: scatter={digits} or scatter=high:{bits}. More parts than servers made writes slower in PingCAP's test."
    )
}
