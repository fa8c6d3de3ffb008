//! The vectors through the command: each case is a scenario that `keymill steps` plays.

use std::process::{Command, Output};

use serde_json::Value;
use support::{Answer, Case, held_against};

#[path = "../../../../tests/support/vectors.rs"]
mod support;

/// What `keymill steps` says to these lines.
fn steps(lines: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("steps");
    std::fs::write(&file, lines).expect("the steps are written");
    Command::new(crate::common::BINARY.as_str())
        .arg("steps")
        .current_dir(folder.path())
        .env_remove("KEYMILL_CONFIG")
        .stdin(std::fs::File::open(&file).expect("the steps"))
        .output()
        .expect("the command runs")
}

/// What each step of the case answered.
fn played(case: &Case) -> Vec<Answer> {
    let lines: Vec<String> = case.steps.iter().map(Value::to_string).collect();
    let out = steps(&lines.join("\n"));
    assert!(out.status.success(), "{}: {}", case.name, String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8").lines().map(answer).collect()
}

fn answer(line: &str) -> Answer {
    let answer: Value = serde_json::from_str(line).expect("an answer is JSON");
    match (answer["error"].as_str(), answer["says"].as_str()) {
        (Some(code), Some(message)) => Err((code.to_owned(), message.to_owned())),
        _ => Ok(answer.get("is").cloned()),
    }
}

#[test]
fn every_case_is_as_it_says() {
    let mut wrong = Vec::new();
    for case in support::cases() {
        let answers = played(&case);
        assert_eq!(answers.len(), case.steps.len(), "{}: one answer a step", case.name);
        let broken =
            case.steps.iter().zip(&answers).find_map(|(step, answer)| held_against(step, answer).err());
        match broken {
            Some(broken) => wrong.push(format!("{}: {broken}", case.name)),
            None => support::ran(&case),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_line_that_is_no_step_ends_the_scenario() {
    for wrong in [r#"{"do":"fly"}"#, r#"{"do":"next","of":"nobody"}"#, "next", r#"{"do":"close"}"#] {
        let out = steps(&format!("{wrong}\n"));
        let says = String::from_utf8(out.stderr).expect("UTF-8");
        assert_eq!(out.status.code(), Some(1), "{wrong}: {says}");
        assert!(says.starts_with("keymill: INVALID_ARGUMENT: line 1:"), "{says}");
    }
}
