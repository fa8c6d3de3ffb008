//! Route tables: which shard owns which range of genes. Read from TOML or JSON, checked as a whole.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use crate::document;
use crate::error::{Error, Result, shown};
use crate::request::reader::LARGEST_VERSION;

use super::moved::Moved;
use super::progress::Progress;
use super::ring::GENES;
use super::table_reader::{TableReader, said, whole};

/// The longest text of a table, in bytes. Stores keep the text in one row.
pub const LONGEST_TEXT: usize = 4 << 20;

/// The longest name of a shard, in bytes.
pub const LONGEST_NAME: usize = 255;

/// What decides which ids of a moving range are served by its new shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The number in the id, modulo 100.
    Number,
    /// The gene: the first genes of the range go first, so all ids of an owner stay together.
    Gene,
}

/// A range that moves to another shard. Until the move is finished the old shard decides, and every write goes to both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    pub(crate) to: String,
    /// How much of the range is read from `to`, 0 to 100.
    pub(crate) percent: u8,
    /// The move is about to be finished: writes of the range wait. All of it is read from `to`.
    pub(crate) is_paused: bool,
    pub(crate) by: By,
    pub(crate) progress: Progress,
}

/// A range of genes, from the one after the range before it up to `upper`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) upper: u16,
    pub(crate) shard: String,
    pub(crate) moves: Option<Move>,
}

/// A table without faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteTable {
    pub(crate) version: u64,
    /// The names that may occur; `None`: any.
    pub(crate) shards: Option<Vec<String>>,
    /// How long a route may be used after it was asked for.
    pub(crate) settle_ms: u64,
    /// By rising `upper`; at least one.
    pub(crate) ranges: Vec<Range>,
    pub(crate) moved: Vec<Moved>,
}

/// `settle`, unless the table says another time.
pub(crate) const SETTLE_MS: u64 = 10_000;

/// The word of a gene in the ring: the number of the shard's name in bits 0 to 15, of the name that it moves to in bits 16 to 31, in
/// bits 32 to 38 how much of the gene's ids are read there, in percent, and in bit 39 whether their writes wait. Bit 63 is set where the
/// gene does not move, and bits 16 to 39 are 0 then: one test finds what most ids need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteWord(pub(crate) u64);

const STAYS: u64 = 1 << 63;
const PAUSED: u64 = 1 << 39;

impl RouteWord {
    fn staying(shard: u16) -> RouteWord {
        RouteWord(u64::from(shard) | STAYS)
    }

    fn moving(shard: u16, to: u16, percent: u8) -> RouteWord {
        RouteWord(u64::from(shard) | u64::from(to) << 16 | u64::from(percent) << 32)
    }

    fn paused(shard: u16, to: u16) -> RouteWord {
        RouteWord(RouteWord::moving(shard, to, 100).0 | PAUSED)
    }

    /// Whether the gene's range moves to another shard.
    #[inline]
    pub(crate) fn moves(self) -> bool {
        self.0 & STAYS == 0
    }

    #[inline]
    pub(crate) fn shard(self) -> u16 {
        self.0 as u16
    }

    #[inline]
    pub(crate) fn to(self) -> u16 {
        (self.0 >> 16) as u16
    }

    #[inline]
    fn percent(self) -> u64 {
        self.0 >> 32 & 0x7f
    }

    /// Whether writes of a gene that moves wait.
    #[inline]
    pub(crate) fn is_paused(self) -> bool {
        self.0 & PAUSED != 0
    }

    /// Of a gene that moves, the shard from which an id is read. `place` is its gene and its number, added: the first ids of many genes have the
    /// same few numbers.
    #[inline]
    pub(crate) fn read(self, place: u64) -> u16 {
        if place % 100 < self.percent() { self.to() } else { self.shard() }
    }

    /// The shard from which the ids of a key are read that are cut over last, and whether the place of an id decides.
    #[inline]
    pub(crate) fn read_gene(self) -> (u16, bool) {
        (self.read(99), (1..100).contains(&self.percent()))
    }
}

/// Whether a table may have this name of a shard.
pub(crate) fn is_shard_name(name: &str) -> bool {
    !name.is_empty()
        && name.trim() == name
        && name.len() <= LONGEST_NAME
        && !name.chars().any(char::is_control)
}

impl RouteTable {
    /// Reads a table: JSON if the text begins with a brace, else TOML.
    ///
    /// # Errors
    /// `INVALID_CONFIG` with the faults of the table, 100 at most.
    pub(crate) fn parse(text: &str) -> Result<RouteTable> {
        let value = document::read_either(text, LONGEST_TEXT)
            .map_err(|unreadable| Error::config(format!("the route table {unreadable}")))?;
        let mut reader = TableReader::default();
        let table = reader.table(&value);
        match reader.faults.in_one_line() {
            None => Ok(table),
            Some(faults) => Err(Error::config(format!("the route table is refused: {faults}"))),
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The names of all shards that ranges name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.ranges.iter().flat_map(|range| {
            std::iter::once(&*range.shard).chain(range.moves.as_ref().map(|moves| &*moves.to))
        })
    }

    /// Whether a range moves.
    pub(crate) fn moves(&self) -> bool {
        self.ranges.iter().any(|range| range.moves.is_some())
    }

    /// Whether writes of a range wait, or will with the next step.
    pub(crate) fn pauses(&self) -> bool {
        let mut moves = self.ranges.iter().filter_map(|range| range.moves.as_ref());
        moves.any(|moves| moves.is_paused || moves.percent == 100 && moves.progress.verified_at.is_some())
    }

    /// A word for each gene, with the numbers of names.
    pub(crate) fn words(&self, numbers: &HashMap<&str, u16>) -> Vec<u64> {
        let number = |name: &str| numbers.get(name).copied().unwrap_or_default();
        let mut words = vec![0; GENES];
        // The first range begins behind the last one.
        let mut begin = self.ranges.last().map_or(0, |last| (usize::from(last.upper) + 1) % GENES);
        for range in &self.ranges {
            let upper = usize::from(range.upper).min(GENES - 1);
            let length = (upper + GENES - begin) % GENES + 1;
            let shard = number(&range.shard);
            match &range.moves {
                None => fill(&mut words, begin, length, RouteWord::staying(shard)),
                Some(Move { to, is_paused: true, .. }) => {
                    fill(&mut words, begin, length, RouteWord::paused(shard, number(to)));
                }
                Some(Move { to, percent, by: By::Number, .. }) => {
                    fill(&mut words, begin, length, RouteWord::moving(shard, number(to), *percent));
                }
                Some(Move { to, percent, by: By::Gene, .. }) => {
                    let served = (usize::from(*percent) * length).div_ceil(100);
                    fill(&mut words, begin, served, RouteWord::moving(shard, number(to), 100));
                    let rest = (begin + served) % GENES;
                    fill(&mut words, rest, length - served, RouteWord::moving(shard, number(to), 0));
                }
            }
            begin = (upper + 1) % GENES;
        }
        words
    }
}

/// Sets `length` words from `begin` on; behind the last gene comes the first one.
fn fill(words: &mut [u64], begin: usize, length: usize, word: RouteWord) {
    let end = (begin + length).min(words.len());
    let wrapped = begin + length - end;
    words[begin..end].fill(word.0);
    words[..wrapped].fill(word.0);
}

impl TableReader {
    fn table(&mut self, value: &Value) -> RouteTable {
        let empty = Map::new();
        let fields = value.as_object().unwrap_or(&empty);
        self.unknown("the table", fields, &["version", "shards", "settle", "range", "moved"]);
        let version = match fields.get("version") {
            None => {
                self.fault("`version` is missing");
                0
            }
            Some(value) => {
                value.as_u64().filter(|n| (1..=LARGEST_VERSION).contains(n)).unwrap_or_else(|| {
                    self.fault(format!("`version` is {}, not a whole number from 1 to 2^52", said(value)));
                    0
                })
            }
        };
        let listed = fields.get("shards").map(|value| self.shards(value));
        let settle_ms = fields.get("settle").map_or(SETTLE_MS, |value| self.time("`settle`", value));
        let ranges = match fields.get("range") {
            Some(Value::Array(list)) if !list.is_empty() => list.as_slice(),
            None => {
                self.fault("it has no range; write `[[range]]` with `upper` and `shard`");
                &[]
            }
            Some(Value::Array(_)) => {
                self.fault("it has no range: `range` is empty");
                &[]
            }
            Some(other) => {
                self.fault(format!("`range` is {}, not a list of tables", said(other)));
                &[]
            }
        };
        let mut read: Vec<Range> = Vec::new();
        let mut last: Option<u64> = None;
        for (at, value) in ranges.iter().enumerate() {
            if self.is_full() {
                self.faults.note_more();
                break;
            }
            let entry = format!("range {}", at + 1);
            let Some(fields) = value.as_object() else {
                self.fault(format!("{entry} is {}, not a table with `upper` and `shard`", said(value)));
                continue;
            };
            let range = self.range(&entry, fields, listed.as_ref());
            if let Some(upper) = fields.get("upper").and_then(Value::as_u64) {
                match last {
                    Some(before) if before == upper => {
                        self.fault(format!("{entry} has the same `upper` as the one before, {upper}"));
                    }
                    Some(before) if before > upper => {
                        self.fault(format!("{entry} has `upper` {upper} below {before} of the one before; sort the ranges by `upper`"));
                    }
                    _ => {}
                }
                last = Some(upper);
            }
            read.push(range);
        }
        let shards = listed.map(|names| names.into_iter().map(str::to_owned).collect());
        let moved = self.moved(fields.get("moved"));
        RouteTable { version, shards, settle_ms, ranges: read, moved }
    }

    fn shards<'v>(&mut self, value: &'v Value) -> BTreeSet<&'v str> {
        let Some(list) = value.as_array() else {
            self.fault(format!("`shards` is {}, not a list of names", said(value)));
            return BTreeSet::new();
        };
        let mut names = BTreeSet::new();
        for value in list {
            if self.is_full() {
                self.faults.note_more();
                break;
            }
            if let Some(name) = self.name("`shards`", value)
                && !names.insert(name)
            {
                self.fault(format!("`shards` lists `{}` twice", shown(name)));
            }
        }
        names
    }

    /// The name of a shard, by the rule of [`is_shard_name`] and with a message for each fault.
    fn name<'v>(&mut self, subject: &str, value: &'v Value) -> Option<&'v str> {
        let name = value.as_str().filter(|name| {
            !name.trim().is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control)
        });
        if let Some(name) = name.filter(|name| name.trim() != *name) {
            self.fault(format!(
                "{subject} has a blank at an end of the name `{}`; without it, it would be another shard",
                shown(name)
            ));
        }
        if name.is_none() {
            self.fault(format!(
                "{subject} has {} where a shard's name of 1 to {LONGEST_NAME} bytes is needed",
                said(value)
            ));
        }
        name
    }

    fn listed(
        &mut self,
        subject: &str,
        field: &str,
        fields: &Map<String, Value>,
        list: Option<&BTreeSet<&str>>,
    ) -> String {
        let Some(value) = fields.get(field) else {
            self.fault(format!("{subject} has no `{field}`"));
            return String::new();
        };
        let Some(name) = self.name(&format!("{subject}: `{field}`"), value) else { return String::new() };
        if list.is_some_and(|list| !list.contains(name)) {
            self.fault(format!("{subject}: `{field}` is `{}`, which is not in `shards`", shown(name)));
        }
        name.to_owned()
    }

    fn range(&mut self, subject: &str, fields: &Map<String, Value>, list: Option<&BTreeSet<&str>>) -> Range {
        self.unknown(subject, fields, &[&["upper", "shard"], OF_MOVES].concat());
        let upper = match fields.get("upper") {
            None => {
                self.fault(format!("{subject} has no `upper`"));
                0
            }
            Some(value) => whole(value, u64::from(u16::MAX)).unwrap_or_else(|| {
                self.fault(format!(
                    "{subject}: `upper` is {}, not a whole number from 0 to 65535",
                    said(value)
                ));
                0
            }),
        };
        let shard = self.listed(subject, "shard", fields, list);
        if !fields.contains_key("to") {
            for field in OF_MOVES.iter().filter(|field| fields.contains_key(**field)) {
                self.fault(format!("{subject} has `{field}` without `to`, so nothing moves"));
            }
            return Range { upper: upper as u16, shard, moves: None };
        }
        let to = self.listed(subject, "to", fields, list);
        if to == shard && !to.is_empty() {
            self.fault(format!("{subject}: `to` is `{}`, the range's own `shard`", shown(&to)));
        }
        let percent = fields.get("percent").map_or(0, |value| {
            whole(value, 100).unwrap_or_else(|| {
                self.fault(format!(
                    "{subject}: `percent` is {}, not a whole number from 0 to 100",
                    said(value)
                ));
                0
            })
        });
        let is_paused = fields.get("paused").is_some_and(|value| {
            value.as_bool().unwrap_or_else(|| {
                self.fault(format!("{subject}: `paused` is {}, not true or false", said(value)));
                false
            })
        });
        if is_paused && percent != 100 {
            self.fault(format!(
                "{subject}: `paused` with `percent` {percent}; writes wait only where 100 % are read from `to`"
            ));
        }
        let by = match fields.get("by").map(Value::as_str) {
            None | Some(Some("number")) => By::Number,
            Some(Some("gene")) => By::Gene,
            Some(_) => {
                self.fault(format!("{subject}: `by` is {}, not \"number\" or \"gene\"", said(&fields["by"])));
                By::Number
            }
        };
        let progress = self.progress(subject, fields);
        let moves = Move { to, percent: percent as u8, is_paused, by, progress };
        Range { upper: upper as u16, shard, moves: Some(moves) }
    }
}

/// The fields of a range that has `to`.
const OF_MOVES: &[&str] = &[
    "to",
    "percent",
    "paused",
    "by",
    "since",
    "steps",
    "watch",
    "stored_at",
    "verify_from",
    "verified_at",
    "finish_from",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use proptest::prelude::*;
    use std::fmt::Write as _;

    fn faults(text: &str) -> String {
        let error = RouteTable::parse(text).expect_err(text);
        assert_eq!(error.code, Code::InvalidConfig, "{text}");
        error.message
    }

    #[test]
    fn a_table_reads_the_same_from_toml_and_from_json() -> Result<()> {
        let toml = "version = 7\nshards = [\"s1\", \"s2\", \"s3\"]\n[[range]]\nupper = 16383\nshard = \"s1\"\n\
                    [[range]]\nupper = 65535\nshard = \"s2\"\nto = \"s3\"\npercent = 25\nby = \"number\"\n";
        let json = r#" {"version": 7, "shards": ["s1", "s2", "s3"], "range": [{"upper": 16383, "shard": "s1"},
                    {"upper": 65535, "shard": "s2", "to": "s3", "percent": 25, "by": "number"}]}"#;
        let table = RouteTable::parse(toml)?;
        assert_eq!(table, RouteTable::parse(json)?);
        assert_eq!(table, RouteTable::parse(&format!("\u{feff}{toml}"))?);
        assert_eq!((table.version(), table.moves()), (7, true));
        assert_eq!(table.names().collect::<Vec<_>>(), ["s1", "s2", "s3"]);
        Ok(())
    }

    #[test]
    fn every_fault_of_a_table_is_in_one_message() {
        let message = faults(
            "version = 0\nshards = [\"s1\", \"s1\", \"\"]\ncolour = 1\n\
             [[range]]\nupper = 70000\nshard = \"s9\"\nsize = 2\n\
             [[range]]\nupper = 10\nshard = \"s1\"\nto = \"s1\"\npercent = 101\nby = \"hash\"\n\
             [[range]]\nupper = 10\nshard = \"s1\"\npercent = 5\n\
             [[range]]\nupper = 9\nwatch = \"60s\"\n\
             [[range]]\nupper = 11\nshard = \"s1\"\nto = \"s2\"\nsteps = [50, 25]\nwatch = 60\nsince = -1\n",
        );
        for part in [
            "`version` is 0",
            "lists `s1` twice",
            "`shards` has ``",
            "unknown field `colour`",
            "range 1: `upper` is 70000",
            "range 1: `shard` is `s9`, which is not in `shards`",
            "range 1 has an unknown field `size`",
            "range 2 has `upper` 10 below 70000",
            "range 2: `to` is `s1`, the range's own",
            "range 2: `percent` is 101",
            "range 2: `by` is `hash`",
            "range 3 has the same `upper` as the one before, 10",
            "range 3 has `percent` without `to`",
            "range 4 has `upper` 9 below 10",
            "range 4 has no `shard`",
            "range 4 has `watch` without `to`",
            "range 5: the steps [50, 25] are no percentages that rise",
            "range 5: `watch` is 60, not a time",
            "range 5: `since` is -1",
        ] {
            assert!(message.contains(part), "no `{part}` in {message}");
        }
    }

    #[test]
    fn a_field_that_is_there_twice_is_refused_in_json_too() {
        for twice in [
            r#"{"version": 7, "version": 8, "range": [{"upper": 65535, "shard": "s1"}]}"#,
            r#"{"version": 7, "range": [{"upper": 65535, "shard": "s1", "shard": "s2"}]}"#,
            r#"{"version": 7, "range": [{"upper": 65535, "shard": "s1"}], "range": [{"upper": 65535, "shard": "s2"}]}"#,
        ] {
            assert!(faults(twice).contains("is there twice"), "{}", faults(twice));
        }
    }

    #[test]
    fn a_name_with_a_blank_at_an_end_is_refused() {
        for name in [" s1", "s1 ", "\u{a0}s1"] {
            let table = format!("version = 7\n[[range]]\nupper = 65535\nshard = \"{name}\"\n");
            assert!(faults(&table).contains("a blank at an end"), "{}", faults(&table));
        }
        let inside = "version = 7\n[[range]]\nupper = 65535\nshard = \"shard 1\"\n";
        assert!(RouteTable::parse(inside).is_ok());
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for (text, part) in [
            ("", "`version` is missing; it has no range"),
            ("version = 1", "it has no range"),
            ("version = 1\nrange = []", "`range` is empty"),
            (
                "version = 1\nsettle = \"8d\"\n[[range]]\nupper = 1\nshard = \"a\"",
                "`settle` is `8d`, not a time up to 7d",
            ),
            ("version = 1\nrange = 3", "`range` is 3, not a list"),
            ("version = 1\nrange = [3]", "range 1 is 3, not a table"),
            ("version = -1\n[[range]]\nupper = 0\nshard = \"a\"", "`version` is -1"),
            ("version = 1.5\n[[range]]\nupper = 0\nshard = \"a\"", "`version` is 1.5"),
            ("version = \"1\"\n[[range]]\nupper = 0\nshard = \"a\"", "`version` is `1`"),
            ("version = 1\n[[range]]\nupper = -1\nshard = \"a\"", "`upper` is -1"),
            (
                "version = 1\n[[range]]\nupper = 1\nshard = \"a\"\nto = \"b\"\npercent = 2.5",
                "`percent` is 2.5",
            ),
            ("version = 1\n[[range]]\nupper = 1\nshard = 5", "`shard` has 5 where"),
            ("version = 1\nversion = 2", "is not TOML: line 2"),
            ("{\"version\": 1", "is not JSON"),
            ("version", "is not TOML: line 1"),
        ] {
            assert!(faults(text).contains(part), "no `{part}` in {}", faults(text));
        }
        assert!(faults(&" ".repeat(LONGEST_TEXT + 1)).contains("4194305 bytes"));
        let many = format!("version = 1\nrange = [{}]", "{},".repeat(200));
        assert!(faults(&many).ends_with("range 50 has no `shard`; and more faults"), "{}", faults(&many));
    }

    /// A table of these bounds, shard `s0`, `s1`, …
    fn table(uppers: &BTreeSet<u16>) -> RouteTable {
        let mut text = "version = 1\n".to_owned();
        for (at, upper) in uppers.iter().enumerate() {
            let _ = write!(text, "[[range]]\nupper = {upper}\nshard = \"s{at}\"\n");
        }
        RouteTable::parse(&text).expect("a table")
    }

    fn words(table: &RouteTable) -> Vec<RouteWord> {
        let names: BTreeSet<&str> = table.names().collect();
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_by_key(|name| name[1..].parse::<u32>().expect("a number"));
        let numbers = names.into_iter().enumerate().map(|(number, name)| (name, number as u16)).collect();
        table.words(&numbers).into_iter().map(RouteWord).collect()
    }

    proptest! {
        // Each case looks at all genes.
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Against a search for the first bound at or above the gene, unsigned, with wrap-around: what the article's
        /// `ceilingEntry` over signed shorts should have been.
        #[test]
        fn each_gene_belongs_to_the_first_range_at_or_above_it(uppers in proptest::collection::btree_set(any::<u16>(), 1..40)) {
            let words = words(&table(&uppers));
            prop_assert_eq!(words.len(), 65536);
            for (gene, word) in words.iter().enumerate() {
                let owner = uppers.iter().position(|upper| usize::from(*upper) >= gene).unwrap_or(0);
                prop_assert_eq!(usize::from(word.shard()), owner, "gene {}", gene);
                prop_assert!(!word.moves());
            }
        }

        #[test]
        fn a_range_moves_by_its_percentage_of_genes_the_first_ones_first(upper: u16, below in 1..2000_u16, percent in 0..=100_u8) {
            let begin = upper.wrapping_sub(below);
            let mut ranges = [(upper, "shard = \"s0\"\nto = \"s2\"\nby = \"gene\""), (begin, "shard = \"s1\"")];
            ranges.sort_by_key(|(upper, _)| *upper);
            let mut text = "version = 1\n".to_owned();
            for (bound, rest) in ranges {
                let _ = write!(text, "[[range]]\nupper = {bound}\n{rest}\n");
                if bound == upper {
                    let _ = writeln!(text, "percent = {percent}");
                }
            }
            let words = words(&RouteTable::parse(&text)?);
            let moved: Vec<bool> = (1..=below).map(|offset| words[usize::from(begin.wrapping_add(offset))].read(99) == 2).collect();
            let expected = (usize::from(percent) * usize::from(below)).div_ceil(100);
            prop_assert_eq!(moved.iter().filter(|moved| **moved).count(), expected);
            prop_assert!(moved.iter().rev().skip_while(|moved| !**moved).all(|moved| *moved), "the first ones first");
            prop_assert_eq!((words[usize::from(begin)].shard(), words[usize::from(begin)].moves()), (1, false));
        }

        #[test]
        fn a_range_moves_by_its_percentage_of_numbers(percent in 0..=100_u8, place in 0..1_u64 << 63) {
            let text = format!("version = 1\n[[range]]\nupper = 9\nshard = \"s0\"\nto = \"s1\"\npercent = {percent}\n");
            let word = words(&RouteTable::parse(&text)?)[40_000];
            let is_moved = place % 100 < u64::from(percent);
            prop_assert_eq!((word.read(place), word.shard(), word.to()), (u16::from(is_moved), 0, 1));
            let (read, place_decides) = word.read_gene();
            prop_assert_eq!(place_decides, (1..100).contains(&percent));
            prop_assert_eq!(read, u16::from(percent == 100));
        }
    }
}
