//! `simulation SEED` replays one seed; `simulation --seeds N [--from S]` runs many; `simulation --scale` prints what scale and cold sources ask.

use std::process::ExitCode;
use std::time::Instant;

use keymill_tests::simulation::{crowd, ramp, report, scale};

const USAGE: &str = "simulation SEED | --seeds N [--from S] | --scale";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    match arguments.as_slice() {
        ["--scale"] => {
            print!("{}\n{}\n{}", scale::table(), ramp::table(), crowd::table());
            ExitCode::SUCCESS
        }
        ["--seeds", count] => many(number(count), Some(1)),
        ["--seeds", count, "--from", first] => many(number(count), number(first)),
        [seed] => match number(seed) {
            Some(seed) => one(seed),
            None => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn one(seed: u64) -> ExitCode {
    let outcome = report::run(seed, None, true);
    print!("{}", report::one(seed, &outcome));
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(count: Option<u64>, first: Option<u64>) -> ExitCode {
    let (Some(count), Some(first)) = (count, first) else { return usage() };
    let started = Instant::now();
    let total = report::run_many(first, count, None);
    print!("{}", report::many(&total));
    println!("{:.1} s", started.elapsed().as_secs_f64());
    if total.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
