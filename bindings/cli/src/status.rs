//! `status` and `metrics`.
//!
//! This process has just opened its mill: what others have used or lost it cannot know, and says `-`. What it can know is
//! what the store's rows say.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use keymill::binding;
use keymill::snowflake::layout::rfc3339;
use keymill::{
    Code, Error, Facts, Figure, Heat, Layout, ListedRow, Mill, Periods, Result, Source, SourceStatus, Stats,
    StoredRouter, StoredRows,
};
use serde_json::{Map, Value, json};

use crate::heat;
use crate::layout::now_ms;
use crate::operate::named_or_declared;
use crate::print;

/// From this share of its numbers on a source is warned about.
const NEARLY_ALL: f64 = 0.8;

/// One source as `status` and `metrics` see it.
struct ShownSource {
    stats: Stats,
    settings: Vec<(&'static str, String)>,
    layout: Option<Layout>,
    /// The spec names no zone: this shell's is shown, and the programs may have another one.
    has_zone_of_shell: bool,
    standing: Result<SourceStatus>,
    /// How many seconds each of the hottest counters lasts at its present rate, where that was measured.
    lasts: Vec<Option<f64>>,
}

impl ShownSource {
    fn of(source: &Source) -> ShownSource {
        let stats = source.stats().unwrap_or_default();
        let (settings, layout) = (source.settings(), source.layout());
        let has_zone_of_shell = source.takes_program_zone();
        let standing = source.status();
        ShownSource { stats, settings, layout, has_zone_of_shell, standing, lasts: Vec::new() }
    }

    /// Compares the hottest counters with what they were so many seconds before.
    fn measure(&mut self, before: &[Heat], seconds: f64) {
        let lasts = |counter: &Heat| {
            let was = before.iter().find(|was| was.genes == counter.genes).map_or(0, |was| was.reserved);
            let rate = counter.reserved.saturating_sub(was) as f64 / seconds.max(0.001);
            (rate > 0.0).then(|| counter.left as f64 / rate)
        };
        self.lasts =
            self.seen().map(|standing| standing.hottest.iter().map(lasts).collect()).unwrap_or_default();
    }

    fn setting(&self, wanted: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
    }

    fn shown(&self, wanted: &str) -> String {
        print::one_line(self.setting(wanted).unwrap_or("-"))
    }

    /// Its row as the store shows it, or this word where there is none; where the store did not say, the code of its error.
    fn row_or<'s>(&'s self, without: &'s str) -> &'s str {
        match &self.standing {
            Ok(standing) => standing.row.as_ref().map_or(without, |row| &row.text),
            Err(error) => error.code.name(),
        }
    }

    /// Why nothing is known of its row, with the name of the source in front.
    fn refusal(&self) -> Option<Error> {
        let mut error = self.standing.as_ref().err().cloned()?;
        error.message = format!("{}: {}", self.shown("source"), error.message);
        Some(error)
    }

    fn seen(&self) -> Option<&SourceStatus> {
        self.standing.as_ref().ok()
    }

    /// How far the store has promised: the highest number or serial reserved, or a snowflake's time.
    fn reserved_to(&self) -> Option<String> {
        let standing = self.seen()?;
        match self.layout {
            Some(layout) => {
                let highest = standing.row.as_ref()?.mark.next.saturating_sub(1);
                Some(rfc3339(layout.wall_ms_of(highest)))
            }
            None => standing.reserved_to.clone(),
        }
    }

    /// The share of its period's numbers that is reserved; none of a period that has not begun.
    fn used_ratio(&self) -> Option<f64> {
        let standing = self.seen().filter(|_| self.layout.is_none())?;
        standing.row.as_ref()?;
        let used = if standing.other_period.is_some() { 0 } else { standing.used };
        Some(used as f64 / standing.capacity as f64)
    }

    /// The steps as the row allows them.
    fn step(&self) -> Option<&str> {
        self.setting("step").and_then(|_| self.seen()).map(|standing| standing.step.as_str())
    }

    /// The counters of business ids with most reserved numbers: `0-15 (31), 61760-61775 (16)`, and how long they last.
    fn hottest(&self) -> Option<String> {
        let hottest = &self.seen()?.hottest;
        let each = hottest.iter().enumerate().map(|(at, counter)| {
            let lasts = match self.lasts.get(at) {
                Some(Some(seconds)) => format!(", lasts {}", heat::in_words(*seconds)),
                Some(None) => ", no id meanwhile".to_owned(),
                None => String::new(),
            };
            format!("{}-{} ({}{lasts})", counter.genes.start, counter.genes.end - 1, counter.reserved)
        });
        (!hottest.is_empty()).then(|| each.collect::<Vec<_>>().join(", "))
    }

    /// `(row of 20261120, now 20261121)`.
    fn other_period(&self) -> Option<String> {
        let periods = self.seen()?.other_period.as_ref()?;
        Some(format!("(row of {}, now {})", periods.row, periods.present))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Err(error) = &self.standing {
            warnings.push(error.to_string());
        }
        warnings.extend(self.seen().into_iter().flat_map(|seen| seen.warnings.iter().cloned()));
        if let Some(ratio) = self.used_ratio().filter(|ratio| *ratio >= NEARLY_ALL) {
            let whose = if self.setting("number").is_some() { "its number pattern's" } else { "all" };
            warnings.push(format!("{:.0} % of {whose} numbers are reserved", ratio * 100.0));
        }
        if let Some(Periods { row, present, .. }) = self.seen().and_then(|seen| seen.other_period.as_ref())
            && row > present
        {
            warnings.push(format!("its row stands in {row}, and this machine's clock says {present}"));
        }
        if let Some(layout) = self.layout {
            match layout.check_life(now_ms()) {
                Ok(warning) => warnings.extend(warning),
                Err(error) => warnings.push(error.to_string()),
            }
        }
        warnings
    }

    fn json(&self, facts: &Facts) -> Value {
        let mut object = Map::new();
        for (name, value) in &self.settings {
            object.insert((*name).to_owned(), json!(value));
        }
        let standing = self.seen();
        let row = standing.and_then(|standing| standing.row.as_ref());
        let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
        if self.has_zone_of_shell {
            put("zone_is_of_this_shell", json!(true));
        }
        if let Some(step) = self.step() {
            put("step", json!(step));
        }
        put("store", json!(facts.dialect));
        put("row", json!(row.map(|row| row.text.clone())));
        put("next", json!(row.map(|row| row.mark.next.to_string())));
        put("reserved_to", json!(self.reserved_to()));
        put("used_ratio", json!(self.used_ratio()));
        put("last_refill_seconds_ago", json!(standing.and_then(|standing| standing.changed_seconds_ago)));
        put(
            "row_date",
            json!(standing.and_then(|s| s.other_period.as_ref().map(|periods| periods.row.clone()))),
        );
        put("is_of_now", json!(standing.map(|standing| standing.other_period.is_none())));
        put("ends", json!(self.layout.map(|layout| layout.end_date())));
        put("durability", json!(durability(facts)));
        // Only the processes that use the source know these.
        for unknown in ["used", "lost", "runway_seconds"] {
            put(unknown, Value::Null);
        }
        if self.setting("counters").is_some() {
            let hottest = standing.into_iter().flat_map(|standing| &standing.hottest);
            let hottest = hottest.enumerate().map(|(at, counter)| {
                json!({
                    "first": counter.genes.start,
                    "last": counter.genes.end - 1,
                    "reserved": counter.reserved.to_string(),
                    "left": counter.left.to_string(),
                    "lasts_seconds": self.lasts.get(at).copied().flatten(),
                })
            });
            put("hottest", Value::Array(hottest.collect()));
            put("recorded_counters", json!(standing.and_then(|standing| standing.counters)));
        }
        put("warnings", json!(self.warnings()));
        Value::Object(object)
    }

    /// The table, with its schema where the store has schemas and has found it.
    fn table(&self, facts: &Facts) -> String {
        let table = self.shown("table");
        let own = format!(".{}", table.to_ascii_lowercase());
        let mut found = facts.tables.iter().filter(|_| !is_interleaved(facts));
        found.find(|found| found.ends_with(&own)).cloned().unwrap_or(table)
    }

    fn columns(&self, facts: &Facts) -> Vec<String> {
        let mut reserved = match &self.standing {
            Ok(standing) if standing.row.is_none() => "none yet".to_owned(),
            // Each store's row stands elsewhere; they are shown above the table.
            Ok(_) if is_interleaved(facts) => "see rows".to_owned(),
            Ok(_) => self.reserved_to().map_or_else(|| "nothing yet".to_owned(), |to| print::one_line(&to)),
            Err(error) => error.code.to_string(),
        };
        if let Some(other) = self.other_period() {
            reserved = format!("{reserved} {other}");
        }
        let step = match (self.setting("step"), self.layout) {
            (Some(step), _) => self.step().unwrap_or(step).to_owned(),
            (None, Some(layout)) => format!("worker {}, ends {}", self.shown("worker"), layout.end_date()),
            (None, None) => "-".to_owned(),
        };
        let refill = self.seen().and_then(|standing| standing.changed_seconds_ago);
        let unknown = || "-".to_owned();
        vec![
            self.shown("source"),
            self.shown("scheme"),
            format!("{}:{}", facts.dialect, self.table(facts)),
            reserved,
            unknown(),
            unknown(),
            step,
            unknown(),
            refill.map_or_else(unknown, ago),
            durability(facts).to_owned(),
        ]
    }
}

/// `4 s ago`, `3 min ago`, `2 h ago`, `5 d ago`.
fn ago(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s ago"),
        120..=7_199 => format!("{} min ago", seconds / 60),
        7_200..=172_799 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// What a commit survives, in a word. What a failover to another server does to it is said of the server.
fn durability(facts: &Facts) -> &'static str {
    if facts.dialect == "memory" {
        "none"
    } else if facts.durability.is_empty() {
        "-"
    } else if facts.warnings.is_empty() {
        "crash-safe"
    } else {
        "warned"
    }
}

fn opened(mill: &Mill, sources: &[String]) -> Result<Vec<Source>> {
    named_or_declared(mill, sources).iter().map(|source| mill.source(source)).collect()
}

/// What the store says about itself, then where each source stands in it.
pub fn status(mill: &Mill, sources: &[String], seconds: Option<u16>, json: bool) -> Result<()> {
    // A spec that is wrong is said before anything is asked or printed.
    let opened = opened(mill, sources)?;
    // A store that does not answer is not asked for each source.
    mill.facts()?;
    let before: Vec<Vec<Heat>> = match seconds {
        Some(_) => opened.iter().map(|source| source.heat().unwrap_or_default()).collect(),
        None => Vec::new(),
    };
    let began = Instant::now();
    if let Some(seconds) = seconds {
        std::thread::sleep(Duration::from_secs(u64::from(seconds)));
    }
    let mut statuses: Vec<ShownSource> = opened.iter().map(ShownSource::of).collect();
    for (status, before) in statuses.iter_mut().zip(&before) {
        status.measure(before, began.elapsed().as_secs_f64());
    }
    let (routers, unlisted) = match binding::routers_if_permitted(mill) {
        Ok(Err(error)) => (Vec::new(), Some(Unlisted { why: error.to_string(), is_usual: true })),
        Err(error) if error.code == Code::StoreRefused => {
            (Vec::new(), Some(Unlisted { why: error.to_string(), is_usual: false }))
        }
        routers => (routers??, None),
    };
    // Without a source, what the store has: its names are names of sources.
    let (stored, unread) = match sources.is_empty().then(|| mill.stored_rows()) {
        Some(Err(error)) if error.code == Code::StoreRefused => (Vec::new(), Some(error.to_string())),
        stored => (stored.transpose()?.unwrap_or_default(), None),
    };
    // Now the tables of the sources have been looked for.
    let facts = mill.facts()?;
    if json {
        print::json(&json!({
            "version": keymill::VERSION,
            "store": mill.store(),
            "dialect": facts.dialect,
            "store_version": facts.version,
            "durability": facts.durability,
            "tls": facts.tls,
            "tables": facts.tables,
            "ignored": mill.ignored(),
            "warnings": facts.warnings,
            "routers": routers.iter().map(router_json).collect::<Vec<_>>(),
            "routers_warning": unlisted.map(|unlisted| unlisted.why),
            "rows": stored.iter().flat_map(rows_json).collect::<Vec<_>>(),
            "rows_warning": unread,
            "sources": statuses.iter().map(|status| status.json(&facts)).collect::<Vec<_>>(),
        }))?;
    } else {
        let listed = Listed { routers, unlisted, stored, unread };
        print::text(&status_text(mill, &facts, &listed, &statuses))?;
    }
    // A row that could not be read is no answer, whatever else was.
    statuses.iter().find_map(ShownSource::refusal).map_or(Ok(()), Err)
}

/// What the store has beside the sources that were asked for.
struct Listed {
    routers: Vec<StoredRouter>,
    unlisted: Option<Unlisted>,
    stored: Vec<StoredRows>,
    /// Why rows are not listed.
    unread: Option<String>,
}

/// Why routers are not listed.
struct Unlisted {
    why: String,
    /// The login lacks the right, which programs without routers do not need. MySQL and MariaDB say so also where there is no table.
    is_usual: bool,
}

fn rows_json(stored: &StoredRows) -> Vec<Value> {
    let row = |row: &ListedRow| {
        json!({
            "table": stored.table,
            "name": row.name,
            "date": (row.date != 0).then(|| row.date.to_string()),
            "next": row.next.map(|next| next.to_string()),
        })
    };
    stored.rows.iter().map(row).collect()
}

fn router_json(router: &StoredRouter) -> Value {
    json!({
        "name": router.name,
        "version": router.version,
        "shards": router.shards.as_ref().ok(),
        "warning": router.shards.as_ref().err().map(ToString::to_string),
        "readers": router.readers.as_ref().ok().map(|readers| crate::move_status::readers_json(readers)),
        "readers_warning": router.readers.as_ref().err().map(ToString::to_string),
    })
}

fn is_interleaved(facts: &Facts) -> bool {
    facts.dialect == "interleaved"
}

/// Lines of `name: value`.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.0, "{name}: {}", print::one_line(value));
    }

    fn add_store(&mut self, mill: &Mill, facts: &Facts) {
        self.add("store", &mill.store());
        self.add("dialect", format!("{} {}", facts.dialect, facts.version).trim_end());
        if !facts.durability.is_empty() {
            self.add("durability", &facts.durability.join(", "));
        }
        if !facts.tls.is_empty() {
            self.add("tls", &facts.tls);
        }
        if !facts.tables.is_empty() {
            self.add("tables", &facts.tables.join(", "));
        }
        if !mill.ignored().is_empty() {
            self.add("ignored", &mill.ignored().join(", "));
        }
    }

    fn add_routers(&mut self, routers: &[StoredRouter], unlisted: Option<&Unlisted>) {
        if let Some(Unlisted { why, .. }) = unlisted.filter(|unlisted| !unlisted.is_usual) {
            self.add("warning", &format!("routers are not listed: {why}"));
        }
        for StoredRouter { name, version, shards, readers, .. } in routers {
            match shards {
                Ok(shards) => {
                    self.add("router", &format!("{name}: version {version}, shards {}", shards.join(", ")));
                }
                Err(error) => self.add("warning", &format!("router {name}: {error}")),
            }
            match readers {
                Ok(readers) => {
                    for reader in readers {
                        self.add("reader", &format!("{name}: {}", crate::move_status::reader_text(reader)));
                    }
                }
                Err(error) => {
                    self.add("warning", &format!("router {name}: its readers are not listed: {error}"));
                }
            }
        }
    }

    fn add_stored(&mut self, stored: &[StoredRows], unread: Option<&str>) {
        if let Some(reason) = unread {
            self.add("warning", &format!("the rows of the store are not listed: {reason}"));
        }
        for StoredRows { table, rows, has_more, .. } in stored {
            for row in rows {
                let date = if row.date == 0 { String::new() } else { format!(" date={}", row.date) };
                let next = row.next.map_or_else(String::new, |next| format!(" next={next}"));
                self.add("row", &format!("{table}: {}{date}{next}", row.name));
            }
            if *has_more {
                self.add("note", &format!("{table} has more rows than these {}", rows.len()));
            }
        }
    }

    /// The rows that the sources have in the store.
    fn add_rows(&mut self, facts: &Facts, statuses: &[ShownSource]) {
        let (leased, others): (Vec<_>, Vec<_>) =
            statuses.iter().partition(|status| status.setting("scheme") == Some("worker"));
        for status in others.into_iter().filter(|_| is_interleaved(facts)) {
            self.add("rows", &format!("{}: {}", status.shown("source"), status.row_or("none")));
        }
        for status in leased {
            self.add("slots", &format!("{}: {}", status.shown("source"), status.row_or("none taken")));
        }
    }
}

fn status_text(mill: &Mill, facts: &Facts, listed: &Listed, statuses: &[ShownSource]) -> String {
    let mut lines = Lines::default();
    lines.add_store(mill, facts);
    lines.add_routers(&listed.routers, listed.unlisted.as_ref());
    lines.add_stored(&listed.stored, listed.unread.as_deref());
    for status in statuses {
        if let Some(zone) = status.setting("zone") {
            let whose = if status.has_zone_of_shell { ", the zone of this shell" } else { "" };
            lines.add("zone", &format!("{}: {zone}{whose}", status.shown("source")));
        }
        if let Some(counters) = status.seen().and_then(|standing| standing.counters) {
            lines.add("counters", &format!("{}: {counters}", status.shown("source")));
        }
        if let Some(hottest) = status.hottest() {
            lines.add("hottest genes", &format!("{}: {hottest}", status.shown("source")));
        }
    }
    for warning in &facts.warnings {
        lines.add("warning", warning);
    }
    for (warning, sources) in by_warning(statuses) {
        lines.add("warning", &format!("{}: {warning}", sources.join(", ")));
    }
    lines.add_rows(facts, statuses);
    if !statuses.is_empty() {
        lines.add(
            "note",
            "a `-` is a figure that only the programs that use the source know: source.stats(), mill.metrics()",
        );
        lines.0.push('\n');
        lines.0.push_str(&source_table(facts, statuses));
    }
    lines.0
}

/// Each warning with the sources that it is about: what is wrong with a table is said once.
fn by_warning(statuses: &[ShownSource]) -> Vec<(String, Vec<String>)> {
    let mut said: Vec<(String, Vec<String>)> = Vec::new();
    for status in statuses {
        for warning in status.warnings() {
            match said.iter_mut().find(|(known, _)| *known == warning) {
                Some((_, sources)) => sources.push(status.shown("source")),
                None => said.push((warning, vec![status.shown("source")])),
            }
        }
    }
    said
}

fn source_table(facts: &Facts, statuses: &[ShownSource]) -> String {
    let head = [
        "SOURCE",
        "SCHEME",
        "STORE",
        "RESERVED",
        "USED",
        "LOST",
        "STEP",
        "RUNWAY",
        "LAST REFILL",
        "DURABILITY",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(statuses.iter().map(|status| status.columns(facts)));
    print::table(&rows)
}

/// Prometheus text: the store's settings, and where the rows stand. This process's own counters say nothing: it issues no ids.
pub fn metrics(mill: &Mill, sources: &[String], json: bool) -> Result<()> {
    let opened = opened(mill, sources)?;
    let statuses: Vec<ShownSource> = opened.iter().map(ShownSource::of).collect();
    // A source that cannot be looked at does not hide the others; where none can, there is nothing to print.
    let failed = statuses.iter().find_map(ShownSource::refusal);
    if let Some(error) = &failed
        && statuses.iter().all(|status| status.standing.is_err())
    {
        return Err(error.clone());
    }
    if json {
        let facts = mill.facts()?;
        print::json(&json!({
            "store": mill.store(),
            "sources": statuses.iter().map(|status| status.json(&facts)).collect::<Vec<_>>(),
        }))?;
        return failed.map_or(Ok(()), Err);
    }
    let mut text = String::new();
    if let Ok(facts) = mill.facts() {
        let _ = writeln!(
            text,
            "# HELP keymill_store_warnings Warnings about the settings of the store, as `keymill status` lists them.\n\
             # TYPE keymill_store_warnings gauge\nkeymill_store_warnings {}",
            facts.warnings.len()
        );
    }
    let labels = keymill::binding::metrics_labels(statuses.iter().map(|status| &status.stats));
    let mut series = |name: &str, help: &str, value: &dyn Fn(&ShownSource) -> Option<String>| {
        let each = labels.iter().zip(&statuses);
        let rows: Vec<_> = each.filter_map(|(label, status)| Some((label, value(status)?))).collect();
        if !rows.is_empty() {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        }
        for (label, value) in rows {
            let _ = writeln!(text, "{name}{label} {value}");
        }
    };
    series("keymill_store_next", "Lowest number the store has not reserved.", &|status| {
        Some(status.seen()?.row.as_ref()?.mark.next.to_string())
    });
    series(
        "keymill_store_used_ratio",
        "Share of the present period's numbers that is reserved.",
        &|status| status.used_ratio().map(|ratio| ratio.to_string()),
    );
    series(
        "keymill_store_last_refill_age_seconds",
        "How long ago the row was last changed, by the store's clock.",
        &|status| status.seen()?.changed_seconds_ago.map(|seconds| seconds.to_string()),
    );
    let figures = Stats::default();
    if let Some(Figure { name, metric: Some(metric), help, .. }) = figures.field("ends_at_ms") {
        series(metric, help, &|status| status.stats.field(name)?.metric_value());
    }
    print::text(&text)?;
    failed.map_or(Ok(()), Err)
}
