//! `init`, `repair`, `import`: what an operator does.

use keymill::snowflake::layout::rfc3339;
use keymill::{Change, Mill, OldRow, Result, Scheme, Source};
use serde_json::{Value, json};

use crate::heat;
use crate::layout::now_ms;
use crate::print;

/// The sources named, else those a TOML file declares.
pub fn named_or_declared(mill: &Mill, sources: &[String]) -> Vec<String> {
    if sources.is_empty() { mill.declared() } else { sources.to_vec() }
}

/// Creates what the sources need and is not there; `dry_run` prints the statements instead.
pub fn init(mill: &Mill, sources: &[String], dry_run: bool, json: bool) -> Result<()> {
    let sources = named_or_declared(mill, sources);
    let specs: Vec<&str> = sources.iter().map(String::as_str).collect();
    let tables = mill.tables(&specs, change(!dry_run))?;
    // A dry run is wanted before there is a server, or a user who may log in to it; then nothing can be known to exist.
    let unseen = if dry_run && !tables.is_empty() { mill.facts().err() } else { None };
    if json {
        let tables = tables.iter().map(|table| {
            json!({
                "name": table.name,
                "scheme": table.scheme.name(),
                "statements": table.statements,
                "existed": if unseen.is_some() { Value::Null } else { table.statements.is_empty().into() },
            })
        });
        return print::json(&json!({
            "store": mill.store(),
            "dry_run": dry_run,
            "statements": tables.clone().flat_map(|t| t["statements"].as_array().cloned().unwrap_or_default()).collect::<Vec<_>>(),
            "tables": tables.collect::<Vec<_>>(),
        }));
    }
    if dry_run {
        let mut script = String::new();
        if let Some(error) = unseen {
            script
                .push_str(&print::one_line(&format!("-- The tables that exist could not be read: {error}")));
            script.push('\n');
        }
        for table in &tables {
            if table.statements.is_empty() {
                script.push_str(&format!("-- {} exists\n", table.name));
            }
            for statement in &table.statements {
                let end = if statement.starts_with("--") { "" } else { ";" };
                script.push_str(&format!("{}{end}\n", statement.trim_end_matches(';')));
            }
        }
        return print::text(&script);
    }
    let mut fields = vec![("store", mill.store())];
    if tables.is_empty() {
        fields.push(("ready", "this store needs no tables".to_owned()));
    }
    let is_created = tables.iter().any(|table| !table.statements.is_empty());
    for table in tables {
        fields.push((if table.statements.is_empty() { "exists" } else { "created" }, table.name));
    }
    print::fields(false, &fields)?;
    if is_created {
        print::note(BEGIN);
    }
    Ok(())
}

/// What `init` says beside the tables that it made.
const BEGIN: &str = "ids of a new table begin at the first one; where ids of its sources were issued before, run `keymill repair` for each before any program starts";

/// What `--yes` says.
pub fn change(written: bool) -> Change {
    if written { Change::Apply } else { Change::DryRun }
}

/// Raises a row, or sets it back; without `yes` only shows what would be.
pub fn repair(source: &Source, to: &str, set_back: bool, yes: bool, json: bool) -> Result<()> {
    source.check_zone_is_written()?;
    let target = source.repair_target(to)?;
    let repair =
        if set_back { source.set_back(target, change(yes)) } else { source.repair(target, change(yes)) }?;
    let stands = !repair.is_change();
    let is_written = yes && !stands;
    let (before, after, set_back) = (repair.before, repair.after, repair.set_back);
    let from =
        source.layout().map(|layout| Ok(layout.wall_ms_of(layout.read(target)?.tick + 1))).transpose()?;
    if json {
        let mut answer = json!({
            "source": source.label(),
            "before": before.as_ref().map(|row| row.text.clone()),
            "after": after.text,
            "written": is_written,
        });
        if let Some(from) = from {
            answer["ids_from"] = rfc3339(from).into();
        }
        if let Some(ahead) = set_back {
            answer["reserved_ahead"] = json!({ "first": ahead.first, "last": ahead.last });
        }
        return print::json(&answer);
    }
    let mut fields = vec![("source", source.label().to_owned())];
    // The row gets a date of this zone.
    fields.extend(source.settings().into_iter().filter(|(name, _)| *name == "zone"));
    fields.extend([
        ("before", before.as_ref().map_or("no row yet".to_owned(), |row| row.text.clone())),
        ("after", after.text),
    ]);
    fields.extend(from.map(|from| ("ids from", rfc3339(from))));
    let ahead = set_back.as_ref().map(|ahead| format!("{} to {}", ahead.first, ahead.last));
    fields.extend(ahead.map(|ahead| ("reserved ahead", ahead)));
    fields.push(("written", if is_written { "yes" } else { "no" }.to_owned()));
    print::fields(false, &fields)?;
    // To set a row back, all programs have to stop for another reason too, which is said below.
    if yes && set_back.is_none() && source.may_be_lowered_after_repair() {
        print::note(
            "A program that still runs may lower the row by numbers that it has not issued: stop every program that uses this source before the row is raised",
        );
    }
    if stands {
        print::note(&format!("Nothing was written: the row of `{}` stands there already.", source.label()));
    } else if let Some(ahead) = set_back {
        let begins = ahead.begins_ms.map_or_else(|| "at no time".to_owned(), rfc3339);
        print::note(&format!(
            "{} The row of `{}` stands in a period that begins {begins}, ahead of the store's clock. Serials {} to {} of that period are reserved, and its numbers count from 1 again when it begins: give the rows that have these serials other serials. Stop every program that uses this source before you set the row back. A program may hold numbers of the present period in memory, which no row shows, so give a number above every serial of the present period",
            if yes { "The row was set back." } else { "Nothing was written; --yes sets the row back." },
            source.label(),
            ahead.first,
            ahead.last,
        ));
    } else if let Some(from) = from.filter(|_| !yes) {
        print::note(&format!(
            "Nothing was written. {} If that is what you want, add --yes",
            raised_time(source, from)
        ));
    } else if !yes {
        let next = after.mark.next;
        let from = before.filter(|row| row.mark.period == after.mark.period);
        // Of a row with a stride only every so many-th number is an id.
        let count = |next: u64| source.stride().counted(next);
        let skipped = count(next).saturating_sub(count(from.map_or(1, |row| row.mark.next)));
        let what = if source.stride().is_every() { "numbers" } else { "of its ids" };
        print::note(&format!(
            "Nothing was written. {next} would be the next number of `{}`, and {skipped} {what} below it, which the row calls free, would never be handed out. A row is never lowered again. If that is what you want, add --yes",
            source.label()
        ));
    }
    Ok(())
}

/// What a snowflake that is raised to this time does then.
fn raised_time(source: &Source, from_ms: i64) -> String {
    let (label, time) = (source.label(), rfc3339(from_ms));
    let is_leased =
        source.settings().iter().any(|(name, value)| *name == "worker" && value.starts_with("leased"));
    let mut text = if is_leased {
        format!(
            "Every worker of `{label}` would begin at {time} or later, and processes that lease one now would lease anew."
        )
    } else {
        format!(
            "This worker of `{label}` would begin at {time} or later, and a process that uses it now would stop with LEASE_LOST."
        )
    };
    text.push_str(" A mark is never lowered again.");
    let ahead_s = from_ms.saturating_sub(now_ms()) / 1000;
    if ahead_s > 0 {
        let ahead = match ahead_s {
            ..120 => format!("{ahead_s} s"),
            120..7200 => format!("{} minutes", ahead_s / 60),
            _ => heat::in_words(ahead_s as f64),
        };
        text.push_str(&format!(
            " That is {ahead} ahead of this machine's clock, and until the clock has come near, no id is made."
        ));
    }
    text
}

/// Gives a bank another number of counters; without `yes` only shows what would be.
pub fn change_counters(source: &Source, counters: u32, yes: bool, json: bool) -> Result<()> {
    let done = source.change_counters(counters, change(yes))?;
    let before = done.before.map(|before| before.to_string());
    if json {
        return print::json(&json!({
            "source": source.label(),
            "counters_before": before,
            "counters_after": counters.to_string(),
            "rows": done.rows.to_string(),
            "floor": done.floor.to_string(),
            "written": yes,
        }));
    }
    let fields = [
        ("source", source.label().to_owned()),
        ("counters before", before.unwrap_or_else(|| "not recorded yet".to_owned())),
        ("counters after", counters.to_string()),
        ("every counter begins at or above", done.floor.to_string()),
        ("written", if yes { "yes" } else { "no" }.to_owned()),
    ];
    print::fields(false, &fields)?;
    if !yes {
        print::note(
            "Nothing was written. Programs that still have the old number of counters are refused at their next reservation, so change their configuration with it. If that is what you want, add --yes",
        );
    }
    Ok(())
}

/// Takes another program's row over; without `yes` only shows what would be.
pub fn import(source: &Source, old: &OldRow<'_>, yes: bool, json: bool) -> Result<()> {
    source.check_zone_is_written()?;
    let imported = source.import(old, change(yes))?;
    let done_before = imported.was_done();
    let new = imported.new.as_ref().map(|row| row.text.clone());
    let state = match (done_before, yes) {
        (true, _) => "already imported",
        (false, true) => "yes",
        (false, false) => "no",
    };
    if json {
        return print::json(&json!({
            "source": source.label(),
            "from": old.scheme().name(),
            "old": { "before": imported.old.text, "after": imported.old_after.text },
            "new": { "before": new, "after": imported.new_after.text },
            "already_imported": done_before,
            "written": yes && !done_before,
        }));
    }
    let fields = [
        ("source", source.label().to_owned()),
        ("from", old.scheme().to_string()),
        ("old row before", imported.old.text),
        ("old row after", imported.old_after.text),
        ("new row before", new.unwrap_or_else(|| "no row yet".to_owned())),
        ("new row after", imported.new_after.text),
        ("written", state.to_owned()),
    ];
    print::fields(false, &fields)?;
    if !done_before && !yes {
        print::note(&format!(
            "Nothing was written. To move the old row 2^62 numbers away and let `{}` go on where it stands now, add --yes",
            source.label()
        ));
    }
    if old.scheme() == Scheme::KeyProducer && !done_before {
        print::note(
            "Old KeyFactory nodes begin at 1 with every new date, whatever their row says: stop them before the date changes.",
        );
    }
    Ok(())
}
