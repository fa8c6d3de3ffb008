//! The `keymill` command: words in, verbs of the crate `keymill`, lines out. It decides nothing the library decides.
//!
//! One way through: parse the words (clap; wrong ones end with 2), open the mill, run one verb, close the mill so that
//! unused numbers go back, and only then exit: 0, or 1 after `keymill: CODE: message`.

mod args;
mod bench;
mod digits;
mod ids;
mod layout;
mod operate;
mod print;
mod signal;
mod status;
mod steps;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use keymill::{DEFAULT_MILL, EventKind, MILL_VARIABLE, Mill, OldRow, Result, Scheme};

use args::{Args, Verb};

fn main() -> ExitCode {
    let args = Args::parse();
    keymill::binding::quiet_panics();
    let mut notes = Vec::new();
    let code = match run(&args, &mut notes) {
        Ok(()) => signal::exit_code().map_or(ExitCode::SUCCESS, ExitCode::from),
        Err(error) => {
            print::error(&error);
            ExitCode::FAILURE
        }
    };
    // Behind the error, whose line is the first.
    for note in &notes {
        print::note(note);
    }
    code
}

/// Runs the verb; `notes` are for standard error.
fn run(args: &Args, notes: &mut Vec<String>) -> Result<()> {
    match &args.verb {
        Verb::Layout { layout, epoch } => layout::explain(layout, epoch, args.json),
        Verb::Completions { shell } => completions(*shell),
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
        Verb::Next { source } => ids::next(&mill.source(source)?, json),
        Verb::Take { source, count } => ids::take(&mill.source(source)?, *count, json),
        Verb::Parse { source, id } => ids::parse(&mill.source(source)?, id, json),
        Verb::Init { sources, dry_run } => operate::init(mill, sources, *dry_run, json),
        Verb::Status { sources } => status::status(mill, sources, json),
        Verb::Metrics { sources } => status::metrics(mill, sources, json),
        Verb::Repair { source, to, yes } => operate::repair(&mill.source(source)?, *to, *yes, json),
        Verb::Import { source, from, table, row, columns, dry_run: _, yes } => {
            let from = from.parse::<Scheme>()?;
            let old =
                OldRow::of(from).table(table.as_deref()).row(row.as_deref()).columns(columns.as_deref());
            operate::import(&mill.source(source)?, &old, *yes, json)
        }
        Verb::Bench { source, threads, seconds } => {
            bench::run(&mill.source(source)?, *threads, *seconds, json)
        }
        // These need no mill; `run` has answered them.
        Verb::Layout { .. } | Verb::Completions { .. } | Verb::Steps => Ok(()),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "keymill", &mut script);
    print::out(&script).map(drop)
}
