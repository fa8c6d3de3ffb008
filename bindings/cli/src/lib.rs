//! The `keymill` command: words in, verbs of the crate `keymill`, lines out. It decides nothing the library decides.
//!
//! Each run takes the same steps: parse the words (clap; wrong ones end with 2), open the mill, run one verb, close the mill so that
//! unused numbers go back, and only then exit: 0, or 1 after `keymill: CODE: message`.
//!
//! A library, because the Python package brings the command along: its entry is [`run`], which ends no process.

mod args;
mod bench;
mod ddl;
mod dialect;
mod heat;
mod hex;
mod ids;
mod layout;
mod move_args;
mod move_status;
mod moves;
mod operate;
mod order_numbers;
mod order_table;
mod print;
mod progress;
mod route;
mod rows;
mod signal;
mod split;
mod spread;
mod status;
mod steps;
mod waiting;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use keymill::{DEFAULT_MILL, EventKind, MILL_VARIABLE, Mill, OldRow, Result, Scheme};

use args::{Args, RouteVerb, Verb};

/// Runs the command with these words. The first is the program's name. The answer is the exit code of the process.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) => {
            // As for every answer, a reader that has gone away is no error.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    keymill::binding::quiet_panics();
    let mut notes = Vec::new();
    let code = match answer(&args, &mut notes) {
        Ok(()) => signal::exit_code().unwrap_or(0),
        Err(error) => {
            print::error(&error);
            1
        }
    };
    // Behind the error, whose line is the first.
    for note in &notes {
        print::note(note);
    }
    code
}

/// The verbs and options, for the manual's pages.
#[doc(hidden)]
#[must_use]
pub fn command() -> clap::Command {
    Args::command()
}

/// Runs the verb; `notes` are for standard error.
fn answer(args: &Args, notes: &mut Vec<String>) -> Result<()> {
    match &args.verb {
        Verb::Layout { layout, epoch, scatter, years, workers, rate } => match (layout, years) {
            (Some(layout), _) => layout::explain(layout, epoch, scatter, args.json),
            // clap has all three or none.
            (None, years) => layout::propose(
                years.unwrap_or_default(),
                workers.unwrap_or_default(),
                rate.unwrap_or_default(),
                args.json,
            ),
        },
        Verb::Completions { shell } => completions(*shell),
        Verb::Gene { key } => route::gene(key, args.json),
        Verb::Seal { id, keys, form } => order_numbers::seal(id, keys, form == "8", args.json),
        Verb::Unseal { order_no, keys } => order_numbers::unseal(order_no, keys, args.json),
        Verb::Route { verb: None, words, key, order_no, wide, table: Some(table) } => {
            let wanted = route::Lookup::new(words, key, order_no.as_deref(), *wide)?;
            route::route(&keymill::Router::open(table)?, &wanted, args.json)
        }
        Verb::Spread { source, regions, modulo, workers, svg } => {
            let wanted = spread::SpreadOptions {
                regions: *regions,
                modulo: *modulo,
                workers: *workers,
                svg: svg.as_deref(),
            };
            spread::show(source, wanted, args.json)
        }
        Verb::Steps => steps::run(args.mill.as_deref().map(Mill::open).transpose()?),
        _ => {
            let mill = match &args.mill {
                Some(config) => Mill::open(config)?,
                None => Mill::open_default()?,
            };
            let answer = with_mill(&mill, args);
            let config = args.mill.clone().or_else(|| std::env::var(MILL_VARIABLE).ok());
            match config.as_deref() {
                None => {
                    let why = format!("neither --mill nor {MILL_VARIABLE} names a mill");
                    notes.extend(created(&mill, &why));
                }
                // A TOML file may leave the store out.
                Some(file) if file.starts_with("file:") && mill.store() == DEFAULT_MILL => {
                    notes.extend(created(&mill, &format!("`{file}` names no other store")));
                }
                Some(_) => {}
            }
            mill.close();
            answer
        }
    }
}

/// The default mill made a new file: perhaps a setting is missing, or the working folder is another one than it was.
fn created(mill: &Mill, why: &str) -> Vec<String> {
    let events = mill.events();
    let created = events.iter().filter(|event| event.kind == EventKind::StoreCreated);
    let note = |event: &keymill::Event| {
        format!("keymill: {}; {why}, so it is the default one of this folder", event.message)
    };
    created.map(note).collect()
}

fn with_mill(mill: &Mill, args: &Args) -> Result<()> {
    let json = args.json;
    match &args.verb {
        Verb::Next { source, key } => ids::next(&ids::source(mill, source)?, ids::gene(key)?, json),
        Verb::Take { source, count, key } => {
            ids::take(&ids::source(mill, source)?, ids::gene(key)?, *count, json)
        }
        Verb::Parse { source, id } => ids::parse(&mill.source(source)?, id, json),
        Verb::Init { sources, dry_run } => operate::init(mill, sources, *dry_run, json),
        Verb::Status { sources, seconds } => status::status(mill, sources, *seconds, json),
        Verb::Metrics { sources } => status::metrics(mill, sources, json),
        Verb::Repair { source, to, counters, set_back, yes } => match counters {
            Some(counters) => operate::change_counters(&mill.source(source)?, *counters, *yes, json),
            // clap has one of them.
            None => {
                let to = to.as_deref().unwrap_or_default();
                operate::repair(&mill.source(source)?, to, *set_back, *yes, json)
            }
        },
        Verb::Heat { source, ranges, seconds } => heat::show(&mill.source(source)?, *ranges, *seconds, json),
        Verb::Import { source, from, table, row, columns, dry_run: _, yes } => {
            let from = from.parse::<Scheme>()?;
            let old =
                OldRow::of(from).table(table.as_deref()).row(row.as_deref()).columns(columns.as_deref());
            operate::import(&mill.source(source)?, &old, *yes, json)
        }
        Verb::Ddl { source, table, dialect, variant } => {
            ddl::table(&mill.source(source)?, table.as_deref(), *dialect, *variant, json)
        }
        Verb::SplitSql { source, table, index, regions, tikv } => {
            let wanted =
                split::SplitOptions { table, index: index.as_deref(), regions: *regions, tikv: *tikv };
            split::sql(&mill.source(source)?, wanted, json)
        }
        Verb::Route { verb: Some(RouteVerb::Put { name, file, yes }), .. } => {
            route::put(mill, name, file, *yes, json)
        }
        Verb::Route { verb: Some(RouteVerb::Get { name }), .. } => route::get(mill, name, json),
        Verb::Route { verb: None, words, key, order_no, wide, table: None } => {
            let wanted = route::Lookup::new(words, key, order_no.as_deref(), *wide)?;
            route::route(&keymill::Router::from_text(&mill.route_table(wanted.name)?)?, &wanted, json)
        }
        Verb::Move { verb } => moves::run(mill, verb, json),
        Verb::Bench { source, threads, seconds } => {
            bench::run(&ids::source(mill, source)?, *threads, *seconds, json)
        }
        // These need no mill; `run` has answered them.
        Verb::Layout { .. }
        | Verb::Completions { .. }
        | Verb::Spread { .. }
        | Verb::Steps
        | Verb::Gene { .. }
        | Verb::Seal { .. }
        | Verb::Unseal { .. }
        | Verb::Route { verb: None, table: Some(_), .. } => Ok(()),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "keymill", &mut script);
    print::out(&script).map(drop)
}
