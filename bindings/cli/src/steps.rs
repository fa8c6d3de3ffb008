//! `steps`: a scenario from standard input, one JSON object a line, each answered by one line.
//!
//! The steps are the steps of `tests/vectors`, whose Rust runner walks on the same stage. All scalars are strings.

mod stage;

use std::io::BufRead;

use keymill::{Error, Mill, Result};
use serde_json::{Map, Value, json};

use crate::print::{self, Reader};
use stage::Stage;

/// Carries out the steps of standard input until it ends. A step that the library refuses is answered with its error,
/// and the next one follows; a line that is no step ends it.
pub fn run(mill: Option<Mill>) -> Result<()> {
    let mut stage = Stage::new(mill);
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let wrong = |what: String| Error::argument(format!("line {}: {what}", number + 1));
        let line = line.map_err(|e| wrong(format!("standard input cannot be read: {e}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let step = serde_json::from_str(&line).map_err(|e| wrong(format!("not one JSON object: {e}")))?;
        let answer = stage.step(&step).map_err(wrong)?;
        if print::out(format!("{}\n", shown(answer)).as_bytes())? == Reader::Gone {
            break;
        }
    }
    stage.close();
    Ok(())
}

/// `{"is": …}`, `{}` for a step that answers nothing, or the error.
fn shown(answer: Result<Option<Value>>) -> Value {
    match answer {
        Ok(Some(value)) => json!({ "is": value }),
        Ok(None) => json!({}),
        Err(error) => {
            let mut fields = Map::new();
            fields.insert("error".to_owned(), error.code.name().into());
            fields.insert("says".to_owned(), error.message.into());
            if let Some(after) = error.retry_after {
                fields.insert("retry_after_ms".to_owned(), after.as_millis().to_string().into());
            }
            Value::Object(fields)
        }
    }
}
