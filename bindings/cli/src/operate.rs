//! `init`, `status`, `metrics`, `repair`: what an operator asks and does.

use std::fmt::Write as _;

use keymill::snowflake::layout::rfc3339;
use keymill::{Facts, Row};
use keymill::{Layout, Mill, Result, Source, Stats};
use serde_json::{Map, Value, json};

use crate::layout::now_ms;
use crate::print;

/// The sources named, else those a TOML file declares.
fn named_or_declared(mill: &Mill, sources: &[String]) -> Vec<String> {
    if sources.is_empty() { mill.declared() } else { sources.to_vec() }
}

/// Creates what the sources need; `dry_run` prints the statements instead.
pub fn init(mill: &Mill, sources: &[String], dry_run: bool, json: bool) -> Result<()> {
    let sources = named_or_declared(mill, sources);
    let specs: Vec<&str> = sources.iter().map(String::as_str).collect();
    let statements = mill.init(&specs, dry_run)?;
    if json {
        return print::json(&json!({ "store": mill.store(), "dry_run": dry_run, "statements": statements }));
    }
    if dry_run {
        let script: Vec<String> =
            statements.iter().map(|s| format!("{};\n", s.trim_end_matches(';'))).collect();
        return print::text(&script.concat());
    }
    let mut fields = vec![("store", mill.store())];
    if statements.is_empty() {
        fields.push(("ready", "this store needs no tables".to_owned()));
    }
    fields.extend(statements.iter().map(|s| ("ready", what_it_creates(s))));
    print::fields(false, &fields)
}

/// `table "keymill_segment"` of a statement; all of it where it has no such shape.
fn what_it_creates(statement: &str) -> String {
    let head = statement.split('(').next().unwrap_or(statement);
    let words: Vec<&str> = head.split_whitespace().collect();
    match words.as_slice() {
        ["CREATE", kind, "IF", "NOT", "EXISTS", name] | ["CREATE", kind, name] => {
            format!("{} {}", kind.to_lowercase(), name.trim_matches(['"', '`']))
        }
        _ => statement.to_owned(),
    }
}

/// One source as `status` and `metrics` see it.
struct Sight {
    settings: Vec<(&'static str, String)>,
    row: Result<Option<Row>>,
    stats: Stats,
}

impl Sight {
    fn of(source: &Source) -> Result<Sight> {
        Ok(Sight { settings: source.settings(), row: source.row(), stats: source.stats()? })
    }

    fn setting(&self, wanted: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_str())
    }

    fn shown(&self, wanted: &str) -> String {
        print::one_line(self.setting(wanted).unwrap_or("-"))
    }

    fn layout(&self) -> Option<Layout> {
        Layout::parse(self.setting("layout")?, self.setting("epoch")?).ok()
    }

    /// How far the store has promised: the highest number reserved, or a snowflake's time.
    fn reserved_to(&self) -> Option<String> {
        let next = self.row.as_ref().ok()?.as_ref()?.mark.next;
        let highest = next.saturating_sub(1);
        Some(self.layout().map_or_else(|| highest.to_string(), |layout| rfc3339(layout.wall_ms_of(highest))))
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Err(error) = &self.row {
            warnings.push(error.to_string());
        }
        warnings.extend(self.stats.refusal.clone());
        if let Some(layout) = self.layout() {
            match layout.check_life(now_ms()) {
                Ok(warning) => warnings.extend(warning),
                Err(error) => warnings.push(error.to_string()),
            }
        }
        warnings
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        for (name, value) in &self.settings {
            object.insert((*name).to_owned(), json!(value));
        }
        let row = self.row.as_ref().ok().and_then(Option::as_ref);
        object.insert("row".to_owned(), json!(row.map(|row| row.text.clone())));
        object.insert("next".to_owned(), json!(row.map(|row| row.mark.next.to_string())));
        object.insert("reserved_to".to_owned(), json!(self.reserved_to()));
        object.insert("ends".to_owned(), json!(self.layout().map(|layout| layout.end_date())));
        let stats = &self.stats;
        let here = json!({
            "issued": stats.issued.to_string(),
            "reserved": stats.reserved.to_string(),
            "left": stats.left.to_string(),
            "lost": stats.lost.to_string(),
            "refills": stats.refills.to_string(),
            "runway_seconds": stats.runway_seconds,
        });
        object.insert("this_process".to_owned(), here);
        object.insert("warnings".to_owned(), json!(self.warnings()));
        Value::Object(object)
    }

    fn columns(&self) -> Vec<String> {
        let row = match &self.row {
            Ok(Some(row)) => print::one_line(&row.text),
            Ok(None) => "none yet".to_owned(),
            Err(error) => error.code.to_string(),
        };
        let supply = match (self.setting("step"), self.layout()) {
            (Some(step), _) => format!("step {step}"),
            (None, Some(layout)) => format!("worker {}, ends {}", self.shown("worker"), layout.end_date()),
            (None, None) => "-".to_owned(),
        };
        vec![
            self.shown("source"),
            self.shown("scheme"),
            self.shown("table"),
            row,
            self.reserved_to().unwrap_or_else(|| "-".to_owned()),
            supply,
        ]
    }
}

/// What the store says about itself, then where each source stands in it.
pub fn status(mill: &Mill, sources: &[String], json: bool) -> Result<()> {
    // A spec that is wrong is said before anything is asked or printed.
    let opened: Vec<Source> =
        named_or_declared(mill, sources).iter().map(|s| mill.source(s)).collect::<Result<_>>()?;
    let facts = mill.facts()?;
    let sights: Vec<Sight> = opened.iter().map(Sight::of).collect::<Result<_>>()?;
    if json {
        print::json(&json!({
            "version": keymill::VERSION,
            "store": mill.store(),
            "dialect": facts.dialect,
            "store_version": facts.version,
            "durability": facts.durability,
            "warnings": facts.warnings,
            "sources": sights.iter().map(Sight::json).collect::<Vec<_>>(),
        }))?;
    } else {
        print::text(&status_text(&mill.store(), &facts, &sights))?;
    }
    // A row that could not be read is no answer, whatever else was.
    sights.into_iter().find_map(|sight| sight.row.err()).map_or(Ok(()), Err)
}

fn status_text(store: &str, facts: &Facts, sights: &[Sight]) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name}: {}", print::one_line(value));
    };
    line("store", store);
    line("dialect", format!("{} {}", facts.dialect, facts.version).trim_end());
    if !facts.durability.is_empty() {
        line("durability", &facts.durability.join(", "));
    }
    for warning in &facts.warnings {
        line("warning", warning);
    }
    for sight in sights {
        for warning in sight.warnings() {
            line("warning", &format!("{}: {warning}", sight.shown("source")));
        }
    }
    if !sights.is_empty() {
        let head = ["SOURCE", "SCHEME", "TABLE", "ROW", "RESERVED TO", "SUPPLY"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(sights.iter().map(Sight::columns));
        text.push('\n');
        text.push_str(&print::table(&rows));
    }
    text
}

/// Prometheus text: this process's figures, and where the rows stand.
pub fn metrics(mill: &Mill, sources: &[String], json: bool) -> Result<()> {
    let opened: Vec<Source> =
        named_or_declared(mill, sources).iter().map(|s| mill.source(s)).collect::<Result<_>>()?;
    let mut rows = Vec::new();
    for source in &opened {
        if let Some(row) = source.row()? {
            rows.push((source.label().to_owned(), row.mark.next));
        }
    }
    if json {
        let sources: Vec<Value> =
            opened.iter().map(|source| Sight::of(source).map(|sight| sight.json())).collect::<Result<_>>()?;
        return print::json(&json!({ "store": mill.store(), "sources": sources }));
    }
    let mut text = mill.metrics();
    if !rows.is_empty() {
        text.push_str("# HELP keymill_store_next Lowest number the store has not reserved.\n");
        text.push_str("# TYPE keymill_store_next gauge\n");
    }
    for (label, next) in rows {
        let label = label.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(text, "keymill_store_next{{source=\"{label}\"}} {next}");
    }
    print::text(&text)
}

/// Raises a row; without `yes` only shows what would be.
pub fn repair(source: &Source, to: u64, yes: bool, json: bool) -> Result<()> {
    let (before, after) = source.repair(to, !yes)?;
    let shown = |row: &Option<Row>| row.as_ref().map_or("no row yet".to_owned(), |row| row.text.clone());
    if json {
        return print::json(&json!({
            "source": source.label(),
            "before": before.as_ref().map(|row| row.text.clone()),
            "after": after.as_ref().map(|row| row.text.clone()),
            "written": yes,
        }));
    }
    let fields = [
        ("source", source.label().to_owned()),
        ("before", shown(&before)),
        ("after", shown(&after)),
        ("written", if yes { "yes" } else { "no" }.to_owned()),
    ];
    print::fields(false, &fields)?;
    if !yes {
        print::note(&format!(
            "Nothing was written. {to} would be the next number of `{}`; every number below it is then never handed \
             out. If that is what you want, add --yes",
            source.label()
        ));
    }
    Ok(())
}

/// The row of another program.
pub struct Old<'a> {
    pub scheme: &'a str,
    pub table: Option<&'a str>,
    pub row: Option<&'a str>,
}

/// Takes another program's row over; without `yes` only shows what would be.
pub fn import(source: &Source, old: &Old, yes: bool, json: bool) -> Result<()> {
    let handed = source.import(old.scheme, old.table, old.row, !yes)?;
    let done_before = handed.was_done();
    let new = handed.new.as_ref().map(|row| row.text.clone());
    let state = match (done_before, yes) {
        (true, _) => "already imported",
        (false, true) => "yes",
        (false, false) => "no",
    };
    if json {
        return print::json(&json!({
            "source": source.label(),
            "from": old.scheme,
            "old": { "before": handed.old.text, "after": handed.old_after.text },
            "new": { "before": new, "after": handed.new_after.text },
            "already_imported": done_before,
            "written": yes && !done_before,
        }));
    }
    let fields = [
        ("source", source.label().to_owned()),
        ("from", old.scheme.to_owned()),
        ("old row before", handed.old.text),
        ("old row after", handed.old_after.text),
        ("new row before", new.unwrap_or_else(|| "no row yet".to_owned())),
        ("new row after", handed.new_after.text),
        ("written", state.to_owned()),
    ];
    print::fields(false, &fields)?;
    if !done_before && !yes {
        print::note(&format!(
            "Nothing was written. The old row would be moved out of the way and `{}` go on where it stands. If that is \
             what you want, add --yes",
            source.label()
        ));
    }
    if old.scheme == "key_producer" && !done_before {
        print::note(
            "Old KeyFactory nodes begin at 1 with every new date, whatever their row says: stop them before the date \
             changes.",
        );
    }
    Ok(())
}
