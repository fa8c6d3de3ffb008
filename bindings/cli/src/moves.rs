//! `move`: ranges of genes go from one shard to another while programs go on.

use std::path::Path;
use std::time::{Duration, Instant};

use keymill::binding::read_document;
use keymill::{
    Change, Code, Error, Mill, MoveOptions, MovePhase, MovePlan, MoveStatus, Moves, Result, Router, RowRepair,
};
use serde_json::{Value, json};

use crate::move_args::{How, MoveVerb};
use crate::move_status::show;
use crate::operate::change;
use crate::waiting::{Waiting, forget};
use crate::{print, rows};

/// The longest pause between two tries of a step that waits.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A reader that has died is waited for until its row ends, which is earlier unless `reader_lease` is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Makes a step, or shows one.
pub fn run(mill: &Mill, verb: &MoveVerb, json: bool) -> Result<()> {
    match verb {
        MoveVerb::Plan { router, shards, hot, key, out } => {
            let hot = hot.as_deref().map(|spec| mill.source(spec)).transpose()?;
            let shards: Vec<(&str, u32)> =
                shards.iter().map(|(name, weight)| (name.as_str(), *weight)).collect();
            let plan = mill.moves(router)?.plan(&shards, hot.as_ref())?;
            name_new_shards(&Router::from_text(&mill.route_table(router)?)?, &plan)?;
            if let Some(file) = out {
                std::fs::write(file, plan.to_text()).map_err(|e| of_file(file, "writing the plan", &e))?;
            }
            show_plan(&plan, key, json)
        }
        MoveVerb::Start { router, plan: file, nth, steps, watch, by, how } => {
            let text = read_document(file).map_err(|e| of_file(file, "reading the plan", &e))?;
            let plan = MovePlan::from_text(&text)?;
            let options = MoveOptions { steps: steps.clone(), watch: *watch, by_gene: by == "gene" };
            step(mill, router, how, json, |moves, change| moves.start(&plan, *nth, &options, change))
        }
        MoveVerb::Copy { router, rows: row_args, rows_per_second, how } => {
            rows::copy(mill, router, row_args, *rows_per_second, how, json)
        }
        MoveVerb::Verify { router, rows: Some(row_args), repair, delete, how, .. } => {
            let repair = match (repair, delete) {
                (false, _) => RowRepair::Named,
                (true, false) => RowRepair::Bring,
                (true, true) => RowRepair::BringAndDelete,
            };
            rows::verify(mill, router, row_args, repair, how, json)
        }
        MoveVerb::Verify { router, began: Some(began), how, .. } => {
            step(mill, router, how, json, |moves, change| moves.verified(*began, change))
        }
        MoveVerb::Verify { router, began: None, how, .. } => begin_verify(mill, router, how, json),
        MoveVerb::Next { router, watch, how } => {
            // Of two operators who send the same step, one makes it.
            let seen = mill.moves(router)?.status()?;
            step(mill, router, how, json, |moves, change| moves.only_from(&seen).next(*watch, change))
        }
        MoveVerb::Back { router, how } => {
            // Of two operators who send the same step, one makes it.
            let seen = mill.moves(router)?.status()?;
            step(mill, router, how, json, |moves, change| moves.only_from(&seen).back(change))
        }
        MoveVerb::Finish { router, watch, how } => finish(mill, router, *watch, how, json),
        MoveVerb::Clean { router, rows: row_args, older_than, changed_too, rows_per_second, yes } => {
            rows::clean(mill, router, row_args, *older_than, *rows_per_second, (*changed_too, *yes), json)
        }
        MoveVerb::Status { router } => show(router, &mill.moves(router)?.status()?, json),
    }
}

/// Makes the two last steps. Writes of the range wait from the first to the second, so this command makes both.
fn finish(mill: &Mill, router: &str, watch: Option<Duration>, how: &How, json: bool) -> Result<()> {
    let moves = mill.moves(router)?;
    forget(&moves, how)?;
    // Of two operators who send the same step, one makes it.
    let seen = moves.only_from(&moves.status()?);
    let mut after = patiently(how, || seen.finish(watch, change(how.yes)))?;
    // Another operator may go back from the pause, and come as far again.
    let paused = moves.only_from(&after);
    let (began, mut told) = (Instant::now(), String::new());
    while how.yes && after.moving.is_some() {
        match paused.finish(watch, Change::Apply) {
            Ok(status) => after = status,
            Err(error) if error.code == Code::NotReady && began.elapsed() < LONGEST_PAUSE => {
                if began.elapsed() > LOOK_AGAIN && told != error.message {
                    print::note(&format!("keymill: writes of the range wait: {}", error.message));
                    told = error.message;
                }
                std::thread::sleep(error.retry_after.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN));
            }
            Err(error) => {
                let now = moves.status();
                match now.as_ref().map(|now| now.moving.as_ref().map(|moving| moving.phase)) {
                    // Another operator has made the step.
                    Ok(None) => {
                        after = now?;
                        continue;
                    }
                    Ok(Some(MovePhase::Mirror | MovePhase::CutOver(_))) => {}
                    // It pauses, or the store does not say.
                    Ok(Some(_)) | Err(_) => print::note(
                        "keymill: writes of the range wait; the same command continues the move, and `keymill move back` ends the pause",
                    ),
                }
                return Err(error);
            }
        }
    }
    show_step(router, after, how, json)
}

/// A name that is new may be a misspelt one.
fn name_new_shards(router: &Router, plan: &MovePlan) -> Result<()> {
    let mut known = std::collections::BTreeSet::new();
    for gene in 0..=u64::from(u16::MAX) {
        known.insert(router.route(gene << 47)?.shard);
    }
    let new: std::collections::BTreeSet<&str> =
        plan.moves.iter().map(|planned| planned.to.as_str()).filter(|name| !known.contains(name)).collect();
    for name in new {
        print::note(&format!("keymill: `{name}` is a new shard: no range of the table has this name"));
    }
    Ok(())
}

fn of_file(file: &Path, doing: &str, error: &std::io::Error) -> Error {
    Error::argument(format!("`{}`: {doing} failed: {error}", file.display()))
}

fn step(
    mill: &Mill,
    router: &str,
    how: &How,
    json: bool,
    make: impl Fn(&Moves, Change) -> Result<MoveStatus>,
) -> Result<()> {
    let moves = mill.moves(router)?;
    forget(&moves, how)?;
    let change = change(how.yes);
    let after = patiently(how, || make(&moves, change))?;
    show_step(router, after, how, json)
}

fn show_step(router: &str, mut after: MoveStatus, how: &How, json: bool) -> Result<()> {
    if let Some(moving) = after.moving.as_mut().filter(|_| !how.yes) {
        moving.stored_at = None;
    }
    show(router, &after, json)?;
    if !how.yes {
        print::note("keymill: nothing was written: this is what would be; --yes writes it");
    }
    Ok(())
}

/// With `--wait` tries again while waiting helps.
fn patiently<T>(how: &How, make: impl Fn() -> Result<T>) -> Result<T> {
    let mut waiting = Waiting::default();
    loop {
        match make() {
            Err(error) if how.wait && error.code == Code::NotReady => {
                let Some(pause) = error.retry_after else { return Err(error) };
                waiting.say(&error);
                std::thread::sleep(pause.clamp(Duration::from_millis(50), LOOK_AGAIN));
            }
            answer => return answer,
        }
    }
}

fn begin_verify(mill: &Mill, router: &str, how: &How, json: bool) -> Result<()> {
    let moves = mill.moves(router)?;
    forget(&moves, how)?;
    let change = change(how.yes);
    let status = patiently(how, || moves.begin_verify(change))?;
    let began = status.moving.as_ref().and_then(|moving| moving.verify_from).filter(|_| how.yes);
    if let Some(began) = began {
        let settle = Duration::from_millis(began.saturating_sub(status.now_ms));
        rows::note_settling(settle);
        std::thread::sleep(settle);
    }
    let Some((moving, began)) = status.moving.as_ref().zip(began) else {
        show(router, &status, json)?;
        print::note("keymill: nothing was written: this is what would be; --yes writes it");
        return Ok(());
    };
    print::fields(
        json,
        &[
            ("began", began.to_string()),
            ("from", moving.planned.from.clone()),
            ("to", moving.planned.to.clone()),
            ("ids", moving.planned.predicate("order_id")),
            ("wide ids", moving.planned.wide_predicate("order_id")),
        ],
    )?;
    print::note(&format!(
        "keymill: compare these rows of both shards now; where they are alike: keymill move verify {router} --began {began} --yes"
    ));
    Ok(())
}

fn show_plan(plan: &MovePlan, key: &str, json: bool) -> Result<()> {
    if plan.moves.is_empty() {
        print::note("keymill: nothing has to move: each shard has its share");
    }
    if json {
        let shown = |at: usize, planned: &keymill::PlannedMove| {
            json!({
                "move": at + 1, "first": planned.first, "last": planned.last, "from": planned.from, "to": planned.to, "share": planned.share,
                "ids": planned.predicate(key), "wide_ids": planned.wide_predicate(key),
            })
        };
        let moves: Vec<Value> = plan.moves.iter().enumerate().map(|(at, one)| shown(at, one)).collect();
        return print::json(&json!({ "version": plan.version, "share": plan.share(), "moves": moves }));
    }
    let mut text = format!("version: {}\nshare: {:.2} %\n", plan.version, plan.share() * 100.0);
    for (at, planned) in plan.moves.iter().enumerate() {
        let names = print::one_line(&format!("{} to {}", planned.from, planned.to));
        text.push_str(&format!(
            "move {}: genes {}-{}, {names}, {:.2} %\nids: {}\nwide ids: {}\n",
            at + 1,
            planned.first,
            planned.last,
            planned.share * 100.0,
            planned.predicate(key),
            planned.wide_predicate(key)
        ));
    }
    print::text(&text)
}
