//! The vectors in Rust, on the public API: `keymill steps` runs them by the same code.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use keymill_tests::vectors::{self, Answer, Case, held_against};
use serde_json::Value;

#[path = "../../bindings/cli/src/steps/stage.rs"]
mod stage;

/// Cases that wait for a deadline run beside the others.
const THREADS: usize = 8;

fn run(case: &Case) -> Result<(), String> {
    let mut stage = stage::Stage::new(None);
    for step in &case.steps {
        let answer = stage.step(step).map_err(|wrong| format!("{}: {step}: {wrong}", case.name))?;
        let answer: Answer = answer.map_err(|error| (error.code.name().to_owned(), error.message));
        held_against(step, &answer).map_err(|wrong| format!("{}: {wrong}", case.name))?;
    }
    stage.close();
    Ok(())
}

/// `KEYMILL_VECTORS_TIMES=200` shows that no case depends on how threads are scheduled.
fn times() -> usize {
    std::env::var("KEYMILL_VECTORS_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

#[test]
fn every_case_is_as_it_says() {
    let cases = vectors::cases();
    let next = AtomicUsize::new(0);
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                // ordering: Relaxed — a number for each, nothing more.
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let broken: Vec<String> = (0..times()).filter_map(|_| run(case).err()).collect();
                    if let Some(first) = broken.first() {
                        let line = format!("{} of {} times: {first}", broken.len(), times());
                        wrong.lock().expect("no panic").push(line);
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    cases.iter().for_each(vectors::ran);
}

/// Whether every scalar is a text: a number of 64 bits is not the same number in every language's JSON.
fn is_all_text(value: &Value) -> bool {
    match value {
        Value::String(_) => true,
        Value::Array(list) => list.iter().all(is_all_text),
        Value::Object(fields) => fields.values().all(is_all_text),
        _ => false,
    }
}

#[test]
fn every_case_has_a_name_of_its_own_and_steps_of_texts() {
    let mut names = BTreeSet::new();
    for case in vectors::cases() {
        assert!(names.insert(case.name.clone()), "{} stands there twice", case.name);
        assert!(!case.steps.is_empty(), "{} does nothing", case.name);
        assert!(case.steps.iter().all(is_all_text), "{}: all scalars are texts", case.name);
    }
    assert!(names.len() >= 80, "{} cases are too few", names.len());
}
