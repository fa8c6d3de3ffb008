//! Who is waited for in a move, and who no longer is.

use keymill::{Error, Moves, Reader, Result};

use crate::move_args::How;
use crate::print;

/// Deletes the rows of the readers that are gone.
pub fn forget(moves: &Moves, how: &How) -> Result<()> {
    if how.gone.is_empty() {
        return Ok(());
    }
    let readers = moves.status()?.readers;
    let ended = |reader: &&Reader| !reader.is_living();
    let mut members = Vec::new();
    for gone in &how.gone {
        if gone == "all" {
            members.extend(readers.iter().filter(ended).map(|reader| reader.member));
            continue;
        }
        let found = readers.iter().find(|reader| reader.member.to_string() == *gone);
        match found {
            Some(reader) if ended(&reader) => members.push(reader.member),
            Some(reader) => {
                return Err(Error::argument(format!(
                    "reader {gone} ({}) is alive: its row ends in {} ms; end the process first, or, if you are sure that no such process runs, delete its row",
                    reader.owner, reader.left_ms
                )));
            }
            None => {
                return Err(Error::argument(format!(
                    "no reader has the number `{gone}`; `keymill move status` lists them"
                )));
            }
        }
    }
    if how.yes {
        let gone = moves.forget(&members)?;
        print::note(&format!("keymill: {} readers are no longer waited for", gone.len()));
    }
    Ok(())
}

/// Says what is waited for, once.
#[derive(Default)]
pub struct Waiting(String);

impl Waiting {
    pub fn say(&mut self, error: &Error) {
        // What changes is the number of seconds.
        let what: String = error.message.chars().filter(|c| !c.is_ascii_digit()).collect();
        if what != self.0 {
            print::note(&format!("keymill: waiting: {}", error.message));
            self.0 = what;
        }
    }
}
