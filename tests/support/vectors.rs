//! The cases of `tests/vectors`, and the comparison of a step's answer. The command's tests share this file.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::Value;

/// One case: steps on a mill of its own.
#[derive(Debug)]
pub struct Case {
    /// `FILE_STEM/CASE NAME`.
    pub name: String,
    /// Every step, the opening of the case's mill included.
    pub steps: Vec<Value>,
}

/// Every case of every file, in the order of the files' names.
///
/// # Panics
/// Where a file is not as `tests/vectors/README.md` says.
#[must_use]
pub fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|up| up.join("tests/vectors"));
    let folder = folder.into_iter().find(|folder| folder.is_dir()).expect("tests/vectors");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("tests/vectors is read")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect();
    files.sort();
    files.iter().flat_map(|file| cases_of(file)).collect()
}

fn cases_of(file: &Path) -> Vec<Case> {
    let text = fs::read_to_string(file).expect("a file of vectors");
    let all: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let stem = file.file_stem().expect("a name").to_string_lossy();
    let cases = all["cases"].as_array().expect("a list of cases");
    cases
        .iter()
        .map(|case| {
            let name = format!("{stem}/{}", case["name"].as_str().expect("a case has a name"));
            let mut steps = case["steps"].as_array().unwrap_or_else(|| panic!("{name} has no steps")).clone();
            if let Some(config) = case.get("mill") {
                steps.insert(0, serde_json::json!({ "do": "open", "config": config }));
            }
            Case { name, steps }
        })
        .collect()
}

/// The answer of a step: a value, nothing, or code and message of an error.
pub type Answer = Result<Option<Value>, (String, String)>;

/// Compares the answer with the step's expectation; `Err` describes the difference.
///
/// # Errors
/// One line for a person.
pub fn held_against(step: &Value, answer: &Answer) -> Result<(), String> {
    let wrong = |expected: String| Err(format!("{step}: expected {expected}, got {answer:?}"));
    if let Err((_, message)) = answer
        && message.contains(char::is_control)
    {
        return wrong("a message of one line".to_owned());
    }
    match (step.get("is"), step.get("error").and_then(Value::as_str), answer) {
        (Some(expected), None, Ok(Some(value))) if value == expected => Ok(()),
        (Some(expected), _, _) => wrong(expected.to_string()),
        (None, Some(code), Err((found, message))) if found == code => {
            match step.get("says").and_then(Value::as_str) {
                Some(says) if !message.contains(says) => wrong(format!("a message with `{says}`")),
                _ => Ok(()),
            }
        }
        (None, Some(code), _) => wrong(code.to_owned()),
        (None, None, Ok(_)) => Ok(()),
        (None, None, Err(_)) => wrong("no error".to_owned()),
    }
}

/// Records that a case was run, in the file that `KEYMILL_VECTORS_RAN` names; `ci/steps/vectors` compares the lists.
///
/// # Panics
/// Where the file cannot be written.
pub fn ran(case: &Case) {
    let Some(list) = std::env::var_os("KEYMILL_VECTORS_RAN") else { return };
    let file = fs::OpenOptions::new().create(true).append(true).open(list);
    let written = file.and_then(|mut file| writeln!(file, "{}", case.name));
    written.expect("the list of cases that ran is written");
}
