//! Every fast path of the Rust core beside its limit and its rivals, in one run. What a row means, what is to be reached
//! and how it is measured: `docs/performance-core.md`.
//!
//! `cargo bench -p keymill --bench hot`; `-- --quick` for a first look, `-- --only text` for one section.

mod facts;
mod harness;
mod keys;
mod order_numbers;
mod segments;
mod snowflakes;
mod text_forms;
mod wakes;

use std::path::PathBuf;

use keymill::{Mill, Source};
use serde_json::Value;

use facts::Fact;
use harness::{Outcome, Rounds, consume};

/// One segment that lasts for the whole run: the path is measured, not the store.
const ENDLESS: &str = "min_step=1099511627776&max_step=1099511627776";
const BATCH: usize = 1000;

fn open(mill: &Mill, spec: &str) -> Source {
    mill.source(spec).unwrap_or_else(|e| panic!("{spec}: {e}"))
}

/// The work of a row that takes ids one by one.
fn each(mut next: impl FnMut() -> keymill::Result<u64> + Send) -> impl FnMut(u64) + Send {
    move |n| {
        for _ in 0..n {
            match next() {
                Ok(id) => consume(id),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// The work of a row that takes a thousand ids at once.
fn in_batches(source: Source) -> impl FnMut(u64) + Send {
    let mut ids = vec![0; BATCH];
    move |n| {
        for _ in 0..n / BATCH as u64 {
            source.fill(&mut ids).unwrap_or_else(|e| panic!("{e}"));
            ids.iter().step_by(100).for_each(|&id| consume(id));
        }
    }
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(v) if v >= 100.0 => format!("{v:.0}"),
        Some(v) if v >= 10.0 => format!("{v:.1}"),
        Some(v) if v >= 1.0 => format!("{v:.2}"),
        Some(v) => format!("{v:.3}"),
    }
}

fn print_outcomes(title: &str, outcomes: &[Outcome], rounds: Rounds) {
    println!("\n### {title}\n");
    println!(
        "| row | against | 1 thread ns | ratio | 2 threads ns | ratio | goal | |\n|---|---|---:|---:|---:|---:|---|---|"
    );
    for o in outcomes {
        let against = o.against.unwrap_or_default();
        let goal = match (against.alone, against.paired) {
            (Some(one), Some(two)) => format!("≤ {one} / {two}"),
            (Some(one), None) => format!("≤ {one}"),
            _ => String::new(),
        };
        println!(
            "| {} | {} | {} | {} | {} | {} | {goal} | {} |",
            o.name,
            against.base,
            number(o.ns),
            number(o.ratio),
            number(o.pair_ns),
            number(o.pair_ratio),
            o.verdict(),
        );
    }
    let kept: Vec<_> = outcomes.iter().filter(|o| o.pair_ns.is_some()).map(|o| o.kept).collect();
    if let (Some(least), Some(most)) = (kept.iter().min(), kept.iter().max()) {
        println!("\nTwo-thread rounds kept: {least} to {most} of {} a row.", rounds.paired);
    }
}

fn print_facts(title: &str, facts: &[Fact]) {
    println!("\n### {title}\n\n| row | value | goal | |\n|---|---:|---|---|");
    for f in facts {
        println!("| {} | {} {} | {} | {} |", f.name, number(Some(f.value)), f.unit, f.goal, f.verdict());
    }
}

/// `target/bench/hot.json`, wherever the target directory is.
fn json_path() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().find(|a| a.ends_with("deps")).and_then(|deps| deps.ancestors().nth(2));
    target.map_or_else(|| PathBuf::from("target"), PathBuf::from).join("bench").join("hot.json")
}

type Section = fn(&Mill, Rounds) -> Vec<Outcome>;
type Facts<'a> = dyn Fn() -> Vec<Fact> + 'a;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let given = |flag: &str| args.iter().any(|a| a == flag);
    if !given("--bench") {
        println!("a benchmark, not a test: cargo bench -p keymill --bench hot");
        return;
    }
    let rounds =
        if given("--quick") { Rounds { alone: 9, paired: 7 } } else { Rounds { alone: 61, paired: 41 } };
    let only = args.iter().position(|a| a == "--only").and_then(|at| args.get(at + 1));
    let wanted = |section: &str| only.is_none_or(|only| only == section);
    let mut all = serde_json::Map::new();

    // First, while the process is small.
    if wanted("many") {
        let facts = facts::many_sources();
        print_facts("Many sources", &facts);
        all.insert("many".into(), facts.iter().map(Fact::json).collect());
    }
    let mill = Mill::open("memory:").expect("a mill");
    let sections: [(&str, &str, Section); 11] = [
        ("segment", "Segments", segments::segments),
        ("snowflake", "Snowflakes, time:41@1ms,worker:1,seq:21", snowflakes::snowflakes),
        ("burst", "Snowflakes, 41/10/12, 1000 ids of a fresh millisecond", snowflakes::bursts),
        ("scatter", "Scattered ids of 19 digits", snowflakes::scatters),
        ("gene", "Genes of 16-byte keys", keys::genes),
        ("business", "Ids for keys, 65 536 counters", keys::business),
        ("route", "Routes of random ids", keys::routes),
        ("seal", "Order numbers", order_numbers::seals),
        ("text", "Serial numbers, eight characters of date and eight digits", segments::serials),
        ("large_text", "Text forms, ids of 19 digits", text_forms::large),
        ("small_text", "Text forms, ids from 1", text_forms::small),
    ];
    for (name, title, section) in sections {
        if wanted(name) {
            let outcomes = section(&mill, rounds);
            print_outcomes(title, &outcomes, rounds);
            all.insert(name.into(), outcomes.iter().map(Outcome::json).collect());
        }
    }
    let facts: [(&str, &str, &Facts); 6] = [
        ("wakes", "A wake of the keeper", &wakes::wakes),
        ("outage", "An outage of the store, 20 000 ids a second", &facts::outage),
        ("sustained", "Snowflakes, 41/10/12, sustained", &|| snowflakes::caps(&mill)),
        ("default", "Default options", &facts::defaults),
        ("timing", "Order numbers: does the time depend on the number?", &order_numbers::timing),
        ("large", "Large batches", &|| facts::large_batches(&mill)),
    ];
    for (name, title, section) in facts {
        if wanted(name) {
            let facts = section();
            print_facts(title, &facts);
            all.insert(name.into(), facts.iter().map(Fact::json).collect());
        }
    }
    let path = json_path();
    let written = path
        .parent()
        .map_or(Ok(()), std::fs::create_dir_all)
        .and_then(|()| std::fs::write(&path, format!("{:#}\n", Value::Object(all))));
    match written {
        Ok(()) => println!("\n{}", path.display()),
        Err(error) => println!("\n{} was not written: {error}", path.display()),
    }
}
