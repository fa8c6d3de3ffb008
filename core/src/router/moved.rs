//! Ranges whose move is finished: their rows are still in the old shard until an operator removes them.

use serde_json::{Map, Value};

use super::table_reader::{LARGEST_NUMBER, TableReader, said, whole};

/// How many finished moves a table remembers.
const REMEMBERED: usize = 64;

/// A range that was moved. Where it begins behind its end, it goes on at gene 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) from: String,
    pub(crate) to: String,
    /// When it was finished, by the store's clock, milliseconds since 1970.
    pub(crate) finished_at: u64,
}

impl Moved {
    fn covers(&self, gene: u16) -> bool {
        gene.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }

    /// Adds a finished move. Older moves are forgotten if it covers all of their genes: what they left behind has been moved again since.
    pub(crate) fn note(all: &mut Vec<Moved>, new: Moved) {
        all.retain(|moved| {
            !(new.covers(moved.first) && new.covers(moved.last) && (new.covers_more_than(moved)))
        });
        let spare = (all.len() + 1).saturating_sub(REMEMBERED);
        all.drain(..spare);
        all.push(new);
    }

    fn covers_more_than(&self, other: &Moved) -> bool {
        self.last.wrapping_sub(self.first) >= other.last.wrapping_sub(other.first)
    }
}

impl TableReader {
    pub(super) fn moved(&mut self, value: Option<&Value>) -> Vec<Moved> {
        let Some(value) = value else { return Vec::new() };
        let Some(list) = value.as_array() else {
            self.fault(format!("`moved` is {}, not a list of tables", said(value)));
            return Vec::new();
        };
        let mut all = Vec::new();
        for (at, value) in list.iter().enumerate() {
            if self.is_full() {
                break;
            }
            let entry = format!("moved {}", at + 1);
            let empty = Map::new();
            let fields = value.as_object().unwrap_or(&empty);
            self.unknown(&entry, fields, &["first", "last", "from", "to", "finished_at"]);
            let number = |field: &str, most| fields.get(field).and_then(|value| whole(value, most));
            let name = |field: &str| fields.get(field).and_then(Value::as_str).map(str::to_owned);
            let gene = |field: &str| number(field, u64::from(u16::MAX)).map(|gene| gene as u16);
            let read = || {
                Some(Moved {
                    first: gene("first")?,
                    last: gene("last")?,
                    from: name("from")?,
                    to: name("to")?,
                    finished_at: number("finished_at", LARGEST_NUMBER)?,
                })
            };
            match read() {
                Some(moved) => all.push(moved),
                None => self.fault(format!(
                    "{entry} is no finished move, with genes `first` and `last`, shards `from` and `to` and the time `finished_at`"
                )),
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::RouteTable;

    fn moved(first: u16, last: u16) -> Moved {
        Moved { first, last, from: "a".into(), to: "b \"".into(), finished_at: 5 }
    }

    #[test]
    fn a_move_that_has_all_genes_of_an_earlier_one_takes_its_place() {
        let mut all = vec![moved(10, 20), moved(30, 40), moved(65_000, 5)];
        Moved::note(&mut all, moved(15, 45));
        assert_eq!(all, [moved(10, 20), moved(65_000, 5), moved(15, 45)]);
        Moved::note(&mut all, moved(64_000, 20));
        assert_eq!(all, [moved(15, 45), moved(64_000, 20)]);
        for gene in 0..100 {
            Moved::note(&mut all, moved(100 + gene, 100 + gene));
        }
        assert_eq!(all.len(), REMEMBERED);
    }

    #[test]
    fn finished_moves_are_read_as_they_were_written() {
        let mut table =
            RouteTable::parse("version = 1\n[[range]]\nupper = 9\nshard = \"a\"\n").expect("a table");
        table.moved = vec![moved(65_000, 5), moved(10, 20)];
        assert_eq!(RouteTable::parse(&table.to_text()), Ok(table));
        let wrong = "version = 1\n[[range]]\nupper = 9\nshard = \"a\"\n[[moved]]\nfirst = 70000\nsize = 1\n";
        let error = RouteTable::parse(wrong).expect_err("no move");
        assert!(
            error.message.contains("moved 1 is no finished move") && error.message.contains("`size`"),
            "{error}"
        );
    }
}
