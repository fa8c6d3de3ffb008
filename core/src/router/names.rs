//! The names of shards, each kept once and by number, for as long as the router: an answer borrows them, whichever table is
//! loaded meanwhile.
//!
//! Names are added one by one and never removed. No reader waits: a name is there before the ring has its number. There is no
//! lock inside, so a forked child finds a list that is whole.

use std::collections::HashMap;
use std::fmt;

use once_cell::race::OnceBox;

use crate::error::{Error, Result};

const CHUNK: usize = 256;

/// The name with a NUL behind it, which C reads.
type Name = Box<str>;

/// The most names of one router, names of old tables included.
pub(super) const MOST_NAMES: usize = CHUNK * CHUNK;

type Chunk = [OnceBox<Name>; CHUNK];

pub(super) struct Names {
    chunks: [OnceBox<Chunk>; CHUNK],
}

impl Names {
    pub(super) fn new() -> Names {
        Names { chunks: [const { OnceBox::new() }; CHUNK] }
    }

    /// The name with this number. Numbers come from the ring, so the name is there.
    #[inline]
    pub(super) fn get(&self, number: u16) -> &str {
        self.find(usize::from(number)).unwrap_or_default()
    }

    #[inline]
    fn find(&self, number: usize) -> Option<&str> {
        let name = self.chunks.get(number / CHUNK)?.get()?[number % CHUNK].get()?;
        name.get(..name.len() - 1)
    }

    /// All names, by number.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..MOST_NAMES).map_while(|number| self.find(number))
    }

    /// The numbers of these names; new ones are added. The caller keeps other writers away.
    pub(super) fn numbers<'n>(&self, wanted: impl Iterator<Item = &'n str>) -> Result<HashMap<&'n str, u16>> {
        let known: HashMap<&str, usize> =
            self.iter().enumerate().map(|(number, name)| (name, number)).collect();
        let mut numbers = HashMap::new();
        let mut next = known.len();
        for name in wanted {
            if numbers.contains_key(name) {
                continue;
            }
            let number = known.get(name).copied().unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            if number >= MOST_NAMES {
                return Err(Error::config(format!(
                    "this router has had {MOST_NAMES} names of shards; open another one"
                )));
            }
            numbers.insert(name, number as u16);
        }
        // Only now: a table that is refused adds no name.
        for (name, number) in &numbers {
            let number = usize::from(*number);
            if number < known.len() {
                continue;
            }
            let chunk =
                self.chunks[number / CHUNK].get_or_init(|| Box::new([const { OnceBox::new() }; CHUNK]));
            // There is one writer, and the number is free.
            let _ = chunk[number % CHUNK].set(Box::new(format!("{name}\0").into_boxed_str()));
        }
        Ok(numbers)
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_and_the_list_ends() -> Result<()> {
        let names = Names::new();
        let all: Vec<String> = (0..MOST_NAMES).map(|n| format!("s{n}")).collect();
        let first = names.numbers(["s7", "s8", "s7"].into_iter())?;
        assert_eq!((first["s7"], first["s8"]), (0, 1));
        let numbers = names.numbers(all.iter().map(String::as_str))?;
        assert_eq!((numbers["s7"], numbers["s8"]), (0, 1));
        for (name, number) in &numbers {
            assert_eq!(names.get(*number), *name);
        }
        assert_eq!(names.iter().count(), MOST_NAMES);
        let error = names.numbers(["s1", "another"].into_iter()).expect_err("one more");
        assert!(error.message.contains("65536 names"), "{error}");
        Ok(())
    }
}
