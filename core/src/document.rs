//! The only reader of TOML and JSON: route tables, plans, key files, configuration. Other programs and other logins write these texts, so
//! a text is bounded in length and depth before any code recurses over it.
//!
//! The `toml` crate limits nested values to 80 and the parts of a dotted key to 80, but not their product: inline tables of dotted keys
//! in 4 kB make 6 000 levels, and each level takes stack where the document is built, converted and dropped. A first pass here counts the
//! levels of the parser's own events.
//!
//! The length bounds no memory either: a table of one key takes a kilobyte and may be written in two bytes (`a.`). So the same pass counts
//! tables and values, and refuses a text with too many before any of them is built.

use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use toml_parser::decoder::Encoding;
use toml_parser::parser::{EventReceiver, RecursionGuard, parse_document};
use toml_parser::{ErrorSink, Source, Span};

use crate::error::{shown, shown_to};

/// How many levels of lists and tables a text may have. The deepest of our documents has 4: `steps` of a range of a route table.
const MOST_LEVELS: usize = 16;

/// How many tables a text may have, and the parts of dotted keys that make one. The largest route table has 65 536 ranges, each a table.
const MOST_TABLES: usize = 150_000;

/// How many values a text may have, tables and lists among them.
const MOST_VALUES: usize = 1_000_000;

/// The longest message of a parser, in bytes.
const LONGEST_MESSAGE: usize = 600;

/// A parser's message as it may stand in a message: it may quote the text whole.
pub(crate) fn said(says: &str) -> String {
    shown_to(says, LONGEST_MESSAGE)
}

/// How many faults of one text are listed. Reading stops there: a text that another login wrote may have a fault in each byte.
const MOST_FAULTS: usize = 100;

/// Why a text is no document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// The text has this many bytes, and the longest one has fewer.
    TooLong { bytes: usize, longest: usize },
    /// In this line, lists and tables stand in each other deeper than [`MOST_LEVELS`].
    TooDeep { line: usize },
    /// Up to this line, the text has more of these than it may.
    TooMany { what: DocumentPart, line: usize },
    /// The parser refuses this line. Its message is one line, and may quote the text.
    Malformed { syntax: Syntax, line: usize, says: String },
}

/// What a text may have only so many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentPart {
    /// [`MOST_TABLES`].
    Tables,
    /// [`MOST_VALUES`].
    Values,
}

impl std::fmt::Display for DocumentPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DocumentPart::Tables => write!(f, "{MOST_TABLES} tables"),
            DocumentPart::Values => write!(f, "{MOST_VALUES} values"),
        }
    }
}

/// The language of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syntax {
    Toml,
    Json,
}

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unreadable::TooLong { bytes, longest } => {
                write!(f, "has {bytes} bytes; the longest has {longest}")
            }
            Unreadable::TooDeep { line } => {
                write!(f, "has more than {MOST_LEVELS} levels of lists and tables in line {line}")
            }
            Unreadable::TooMany { what, line } => write!(f, "has more than {what} up to line {line}"),
            Unreadable::Malformed { syntax: Syntax::Toml, line, says } => {
                write!(f, "is not TOML: line {line}: {}", said(says))
            }
            // Its message names line and column.
            Unreadable::Malformed { syntax: Syntax::Json, says, .. } => {
                write!(f, "is not JSON: {}", said(says))
            }
        }
    }
}

/// Reads a text of TOML that has at most `longest` bytes.
pub(crate) fn read_toml<T: DeserializeOwned>(text: &str, longest: usize) -> Result<T, Unreadable> {
    let text = bounded(text, longest)?;
    let mut levels = Levels::default();
    // The parser goes one level further, where `Levels` counts one too many.
    parse_document(
        &Source::new(text).lex().into_vec(),
        &mut RecursionGuard::new(&mut levels, MOST_LEVELS as u32),
        &mut (),
    );
    if let Some(at) = levels.too_deep_at {
        return Err(Unreadable::TooDeep { line: line_of(text, at) });
    }
    levels.size.check(text)?;
    toml::from_str(text).map_err(|e| Unreadable::Malformed {
        syntax: Syntax::Toml,
        line: line_of(text, e.span().map_or(0, |span| span.start)),
        says: e.message().replace('\n', "; "),
    })
}

/// Reads a text of JSON that has at most `longest` bytes. An object that has a field twice is refused; `serde_json` itself takes the last
/// one.
pub(crate) fn read_json(text: &str, longest: usize) -> Result<Value, Unreadable> {
    let text = bounded(text, longest)?;
    check_json(text)?;
    serde_json::from_str(text).map(|Unrepeated(value)| value).map_err(|e| Unreadable::Malformed {
        syntax: Syntax::Json,
        line: e.line(),
        says: e.to_string(),
    })
}

/// Reads JSON if the text begins with a brace, else TOML.
pub(crate) fn read_either(text: &str, longest: usize) -> Result<Value, Unreadable> {
    let json = text.trim_start_matches('\u{feff}').trim_start().starts_with('{');
    if json { read_json(text, longest) } else { read_toml(text, longest) }
}

/// The text without a byte order mark.
fn bounded(text: &str, longest: usize) -> Result<&str, Unreadable> {
    if text.len() > longest {
        return Err(Unreadable::TooLong { bytes: text.len(), longest });
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Refuses a text of JSON with too many levels, tables or values. It is right up to the first fault of the text, where the parser stops.
fn check_json(text: &str) -> Result<(), Unreadable> {
    let (mut level, mut in_text, mut escaped, mut size) = (0_usize, false, false, Size::default());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                level += 1;
                if level > MOST_LEVELS {
                    return Err(Unreadable::TooDeep { line: line_of(text, at) });
                }
                // One for itself, and a comma counts each value in it but the first.
                size.add_value(at);
                if byte == b'{' {
                    size.add_table(at);
                }
            }
            b',' if !in_text => size.add_value(at),
            b']' | b'}' if !in_text => level = level.saturating_sub(1),
            _ => {}
        }
    }
    size.check(text)
}

/// How many tables and values a text has so far.
#[derive(Default)]
struct Size {
    tables: usize,
    values: usize,
    /// What there are too many of, and where the first of them is.
    too_many: Option<(DocumentPart, usize)>,
}

impl Size {
    fn add_table(&mut self, at: usize) {
        self.tables += 1;
        if self.tables > MOST_TABLES {
            self.too_many.get_or_insert((DocumentPart::Tables, at));
        }
    }

    fn add_value(&mut self, at: usize) {
        self.values += 1;
        if self.values > MOST_VALUES {
            self.too_many.get_or_insert((DocumentPart::Values, at));
        }
    }

    fn check(&self, text: &str) -> Result<(), Unreadable> {
        match self.too_many {
            Some((what, at)) => Err(Unreadable::TooMany { what, line: line_of(text, at) }),
            None => Ok(()),
        }
    }
}

/// Counts the levels, tables and values of a text of TOML from its parser's events, so that both agree about every malformed text too.
#[derive(Default)]
struct Levels {
    /// The level of the table whose header was read last.
    header: usize,
    /// How many levels each part of a header adds: the table, and the list that it may be in.
    in_header: Option<usize>,
    /// The parts of the key that is being read.
    parts: usize,
    /// The levels of the open lists and inline tables.
    open: Vec<usize>,
    too_deep_at: Option<usize>,
    size: Size,
}

impl Levels {
    fn level(&self) -> usize {
        self.open.last().copied().unwrap_or(self.header) + self.parts
    }

    /// Notes a level.
    fn note(&mut self, level: usize, span: Span) {
        if level > MOST_LEVELS && self.too_deep_at.is_none() {
            self.too_deep_at = Some(span.start());
        }
    }

    /// Opens a list or an inline table. Whether the parser may go into it.
    fn enter(&mut self, span: Span) -> bool {
        let level = self.level() + 1;
        self.note(level, span);
        self.size.add_value(span.start());
        self.open.push(level);
        self.parts = 0;
        self.too_deep_at.is_none()
    }

    fn leave(&mut self) {
        self.open.pop();
        self.parts = 0;
    }

    fn begin_header(&mut self, each: usize) {
        // A header ends what an unclosed value left open.
        self.open.clear();
        (self.header, self.parts, self.in_header) = (0, 0, Some(each));
    }

    fn end_header(&mut self) {
        if let Some(each) = self.in_header.take() {
            (self.header, self.parts) = (self.parts * each, 0);
        }
    }
}

impl EventReceiver for Levels {
    fn std_table_open(&mut self, span: Span, _error: &mut dyn ErrorSink) {
        self.size.add_table(span.start());
        // A part may name a table of a list: `[range.steps]` below `[[range]]`.
        self.begin_header(2);
    }

    fn std_table_close(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.end_header();
    }

    fn array_table_open(&mut self, span: Span, _error: &mut dyn ErrorSink) {
        self.size.add_table(span.start());
        self.begin_header(2);
    }

    fn array_table_close(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.end_header();
    }

    fn inline_table_open(&mut self, span: Span, _error: &mut dyn ErrorSink) -> bool {
        self.size.add_table(span.start());
        self.enter(span)
    }

    fn inline_table_close(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.leave();
    }

    fn array_open(&mut self, span: Span, _error: &mut dyn ErrorSink) -> bool {
        self.enter(span)
    }

    fn array_close(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.leave();
    }

    fn simple_key(&mut self, span: Span, _kind: Option<Encoding>, _error: &mut dyn ErrorSink) {
        self.parts += 1;
        let level = if let Some(each) = self.in_header { self.parts * each } else { self.level() };
        self.note(level, span);
    }

    fn key_sep(&mut self, span: Span, _error: &mut dyn ErrorSink) {
        // The part before it names a table, which may be a new one.
        self.size.add_table(span.start());
    }

    fn scalar(&mut self, span: Span, _kind: Option<Encoding>, _error: &mut dyn ErrorSink) {
        self.size.add_value(span.start());
    }

    fn value_sep(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        self.parts = 0;
    }

    fn newline(&mut self, _span: Span, _error: &mut dyn ErrorSink) {
        // Inside of a value a comma ends a key, not a new line.
        if self.open.is_empty() {
            self.end_header();
            self.parts = 0;
        }
    }
}

/// The faults of one text, up to [`MOST_FAULTS`].
#[derive(Default)]
pub(crate) struct Faults {
    listed: Vec<String>,
    is_more: bool,
}

impl Faults {
    /// Lists a fault, unless there are enough.
    pub(crate) fn push(&mut self, fault: String) {
        if self.is_full() {
            self.is_more = true;
        } else {
            self.listed.push(fault);
        }
    }

    /// Says that there may be more faults than are listed.
    pub(crate) fn note_more(&mut self) {
        self.is_more = true;
    }

    /// Whether there are so many that the reader stops. It asks before each entry of a list of the text.
    pub(crate) fn is_full(&self) -> bool {
        self.listed.len() >= MOST_FAULTS
    }

    /// The faults in one line; `None` where there is none.
    pub(crate) fn in_one_line(self) -> Option<String> {
        let more = if self.is_more { "; and more faults" } else { "" };
        (!self.listed.is_empty()).then(|| self.listed.join("; ") + more)
    }
}

/// A value of JSON in which no object has a field twice.
struct Unrepeated(Value);

impl<'de> Deserialize<'de> for Unrepeated {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UnrepeatedVisitor).map(Unrepeated)
    }
}

struct UnrepeatedVisitor;

impl<'de> Visitor<'de> for UnrepeatedVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value of JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Unrepeated(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            if fields.contains_key(&name) {
                return Err(serde::de::Error::custom(format_args!(
                    "the field `{}` is there twice",
                    shown(&name)
                )));
            }
            let Unrepeated(value) = object.next_value()?;
            fields.insert(name, value);
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fmt::Write as _;
    use std::thread;

    const LONGEST: usize = 64 << 10;

    /// Runs `work` where 3 886 bytes of TOML used to overflow a stack eight times as large.
    fn on_a_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let small = thread::Builder::new().stack_size(256 << 10);
            small.spawn_scoped(scope, work).expect("a thread").join().expect("no panic")
        })
    }

    /// `lists` lists, or inline tables whose key has `parts` parts, in each other.
    fn nested(levels: usize, parts: usize) -> String {
        let key = vec!["a"; parts].join(".");
        let (open, close) = if parts == 0 { ("[".to_owned(), "]") } else { (format!("{{{key}="), "}") };
        format!("a = {}0{}", open.repeat(levels), close.repeat(levels))
    }

    /// How deep lists and tables stand in a value, counted without recursion.
    fn levels(value: &Value) -> usize {
        let (mut deepest, mut left) = (0, vec![(value, 0)]);
        while let Some((value, above)) = left.pop() {
            deepest = deepest.max(above);
            match value {
                Value::Array(list) => left.extend(list.iter().map(|value| (value, above + 1))),
                Value::Object(fields) => left.extend(fields.values().map(|value| (value, above + 1))),
                _ => {}
            }
        }
        deepest
    }

    #[test]
    fn depth_by_lists_by_dotted_keys_by_headers_and_by_their_product_is_refused_in_one_line() {
        let mut deep = vec![
            format!("[{}]\nb = 1", vec!["a"; 79].join(".")),
            format!("[[{}]]\nb = 1", vec!["a"; 79].join(".")),
            format!("{} = 1", vec!["a"; 79].join(".")),
        ];
        // Each `[[…]]` makes a list of its last part, and the next header goes into its table.
        let header = |parts| format!("[[{}]]\n", vec!["a"; parts].join("."));
        deep.push((1..60).map(header).collect());
        for (lists, parts) in [(17, 0), (79, 0), (5_000, 0), (79, 79), (9, 2), (79, 1), (2, 79), (5_000, 3)] {
            deep.push(nested(lists, parts));
            // What is never closed, and what is malformed behind it.
            deep.push(nested(lists, parts).replace(['}', ']'], ""));
            deep.push(nested(lists, parts).replace("0}", "= ="));
            deep.push(format!("[x.y.z]\n{}", nested(lists, parts)));
        }
        for text in &deep {
            let refused = on_a_small_stack(|| read_toml::<Value>(text, usize::MAX).map(drop));
            let said = refused.expect_err(text).to_string();
            assert!(said.contains("more than 16 levels of lists and tables in line "), "{said}: {text:.80}");
        }
        for levels in [17, 127, 100_000] {
            for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
                for text in [
                    format!("{}0{}", open.repeat(levels), close.repeat(levels)),
                    open.repeat(levels),
                    format!("{{\"\\\"[\":\n{}", open.repeat(levels)),
                ] {
                    let refused = on_a_small_stack(|| read_json(&text, usize::MAX).map(drop));
                    assert!(
                        matches!(refused, Err(Unreadable::TooDeep { line: 1 | 2 })),
                        "{refused:?}: {text:.80}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_has_the_most_levels_is_read() {
        for (lists, parts) in [(15, 0), (7, 1), (1, 14), (0, 0)] {
            let text = nested(lists, parts);
            assert!(on_a_small_stack(|| read_toml::<Value>(&text, LONGEST)).is_ok(), "{text}");
        }
        let text = format!("{}0{}", "[".repeat(16), "]".repeat(16));
        assert!(on_a_small_stack(|| read_json(&text, LONGEST)).is_ok());
        assert!(
            read_json("[[[\"[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[\"]]]", LONGEST).is_ok(),
            "brackets in a text"
        );
        assert!(read_toml::<Value>("a = '[[[[[[[[[[[[[[[[[[[[' # [[[[[[[[[[[[[[[[[[[", LONGEST).is_ok());
    }

    #[test]
    fn a_wide_text_stays_within_its_length_and_stops_at_a_hundred_faults() {
        for unit in ["{},", "[],", "0,", "{a.b.c=1},", "\"\","] {
            let text = format!("a = [{}]", unit.repeat(LONGEST / unit.len() + 1));
            assert!(on_a_small_stack(|| read_toml::<Value>(&text, 2 * LONGEST)).is_ok());
            let refused = read_toml::<Value>(&text, LONGEST).map(drop);
            assert_eq!(
                refused.expect_err(unit).to_string(),
                format!("has {} bytes; the longest has {LONGEST}", text.len())
            );
        }
        let mut faults = Faults::default();
        for at in 0..1_000_000 {
            faults.push(at.to_string());
        }
        assert_eq!(faults.listed.len(), MOST_FAULTS);
        assert!(faults.in_one_line().expect("faults").ends_with("; 98; 99; and more faults"));
        assert_eq!(Faults::default().in_one_line(), None);
    }

    #[test]
    fn a_text_that_would_take_a_kilobyte_a_byte_is_refused_before_it_is_built() {
        let list = |unit: &str, times: usize| format!("x = [{}]", format!("{unit},\n").repeat(times));
        let mut refused = vec![
            (list("{a.b.c.d.e.f.g.h.i.j.k.l.m=1}", 130_000), "150000 tables"),
            (list("{}", 150_001), "150000 tables"),
            ("[[a]]\n".repeat(150_001), "150000 tables"),
            ((0..75_001).map(|n| format!("[a{n}.b]\n")).collect::<Vec<_>>().concat(), "150000 tables"),
            ((0..75_001).map(|n| format!("a{n}.b.c = 0\n")).collect::<Vec<_>>().concat(), "150000 tables"),
            (list("0", 1_000_000), "1000000 values"),
            (list("[]", 1_000_000), "1000000 values"),
        ];
        let json = |unit: &str, times: usize| format!("{{\"x\":[{}]}}", vec![unit; times].join(",\n"));
        let in_json = [(json("{}", 150_000), "150000 tables"), (json("0", 1_000_000), "1000000 values")];
        refused.extend(in_json);
        for (text, says) in refused {
            let said = read_either(&text, usize::MAX).map(drop).expect_err(says).to_string();
            assert!(said.starts_with(&format!("has more than {says} up to line ")), "{said}");
            assert!(!said.contains(char::is_control), "{said:?}");
        }
        // The largest route table, and one whose ranges all move.
        let range = "[[range]]\nupper = 65535\nshard = \"s\"\nto = \"t\"\nsteps = [1, 5, 50, 100]\n";
        assert!(read_toml::<Value>(&range.repeat(65_536), usize::MAX).is_ok());
        let range = r#"{"upper":65535,"shard":"s","to":"t","steps":[1,5,50,100]}"#;
        assert!(read_json(&json(range, 65_536), usize::MAX).is_ok());
        assert!(read_json(&format!("[\"{}\"]", "{,[".repeat(1_000_000)), usize::MAX).is_ok(), "in a text");
    }

    #[test]
    fn a_refusal_is_one_line() {
        let mut texts =
            vec!["a = \u{1}".to_owned(), "\"a\\nb\" = 1\n\"a\\nb\" = 2".to_owned(), "a = \"\n\"".to_owned()];
        for at in 0..200_u32 {
            let mut text = String::new();
            let _ = write!(text, "k{at} = [1,\n{{x = \"{}\" \n", char::from_u32(at).unwrap_or('x'));
            texts.push(text);
        }
        for text in texts {
            for said in [
                read_toml::<Value>(&text, LONGEST).expect_err(&text).to_string(),
                read_json(&text, LONGEST).expect_err(&text).to_string(),
            ] {
                assert!(!said.contains(char::is_control), "{said:?} of {text:?}");
            }
        }
    }

    /// A text of the tokens that decide about levels, with and without sense.
    fn tokens() -> impl Strategy<Value = String> {
        let token = prop::sample::select(vec![
            "[",
            "]",
            "[[",
            "]]",
            "{",
            "}",
            "a",
            "b",
            "\"c\"",
            ".",
            ".",
            "=",
            "=",
            ",",
            "\n",
            "\n",
            "1",
            "1.5",
            "'x'",
            "\"\"\"",
            "#",
            " ",
            "a.a",
            "a.b = {",
            "a = [",
            "[a.b]\n",
            "[[a]]\n",
            "1979-05-27T07:32:00.5Z",
            "\u{feff}",
        ]);
        proptest::collection::vec(token, 0..160).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        /// Whatever is read has no more levels than are allowed, and nothing overflows the stack.
        #[test]
        fn tokens_in_any_order_are_read_or_refused_within_the_levels(text in tokens(), wrap in 0..12_usize, parts in 1..9_usize) {
            let key = vec!["a"; parts].join(".");
            let text = format!("{}{text}", format!("a = {{{key} = [").repeat(wrap).replacen("a = {", "x = {", 1));
            let read = on_a_small_stack(|| read_toml::<Value>(&text, LONGEST));
            if let Ok(value) = read {
                prop_assert!(levels(&value) <= MOST_LEVELS, "{text}");
            }
            let _ = on_a_small_stack(|| read_json(&text, LONGEST));
        }

        /// The first pass never counts fewer levels than the document has.
        #[test]
        fn the_levels_that_are_counted_are_those_of_the_document(text in tokens()) {
            if let Ok(value) = text.parse::<toml::Table>().map_err(drop).and_then(|table| serde_json::to_value(table).map_err(drop)) {
                let is_read = read_toml::<Value>(&text, LONGEST).is_ok();
                prop_assert!(is_read || levels(&value) > MOST_LEVELS / 2, "{text}");
                prop_assert!(!is_read || levels(&value) <= MOST_LEVELS, "{text}");
            }
        }
    }
}
