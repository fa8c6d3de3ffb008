//! Reads a date pattern and a number pattern, and refuses what could make one text twice. (floor 0)
//!
//! The letters are those of Java's `SimpleDateFormat`
//! (<https://docs.oracle.com/javase/8/docs/api/java/text/SimpleDateFormat.html>), as far as every date gets the same
//! number of characters: then a serial's text can be read back without a doubt, and two dates never look alike.

use super::format::{MAX_PREFIX, Prefix};
use super::period::Part;
use crate::error::{Error, Result};

/// The longest date pattern, in bytes.
const MAX_PATTERN: usize = 64;

/// The widest number pattern: the largest such number still fits a signed 64-bit column.
const MAX_WIDTH: usize = 18;

/// The widest year: nine digits, of which five are zero for the next eight thousand years.
const MAX_YEAR_WIDTH: u32 = 9;

/// One stretch of a date pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Field(Part, u32),
}

/// A date pattern, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DatePattern {
    pieces: Vec<Piece>,
}

impl DatePattern {
    pub(super) fn parse(pattern: &str) -> Result<DatePattern> {
        parse(pattern).map_err(|reason| Error::config(format!("date pattern `{}`: {reason}", shown(pattern))))
    }

    /// The finest part that is shown; `None` without date letters.
    pub(super) fn finest(&self) -> Option<Part> {
        self.fields().map(|(part, _)| part).max()
    }

    /// Whether the year is shown with two digits.
    pub(super) fn short_year(&self) -> bool {
        self.fields().any(|field| field == (Part::Year, 2))
    }

    fn fields(&self) -> impl Iterator<Item = (Part, u32)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Field(part, width) => Some((*part, *width)),
            Piece::Literal(_) => None,
        })
    }

    pub(super) fn render(&self, period: u64) -> Prefix {
        let mut prefix = Prefix::EMPTY;
        for piece in &self.pieces {
            match piece {
                Piece::Literal(text) => prefix.push_str(text),
                Piece::Field(part, width) => prefix.push_digits(part.of(period), *width),
            }
        }
        prefix
    }

    /// Takes the date part off the front of `text`: the period it shows, not yet known to be a date that exists, and
    /// the rest.
    pub(super) fn read<'t>(&self, text: &'t str) -> Option<(u64, &'t str)> {
        let mut rest = text;
        let mut period: u64 = 0;
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Piece::Field(part, width) => {
                    let (digits, after) = rest.split_at_checked(*width as usize)?;
                    let value = number(digits)?;
                    let value = if (*part, *width) == (Part::Year, 2) { 2000 + value } else { value };
                    if *part == Part::Year && value > 9999 {
                        return None;
                    }
                    period += part.shifted(value);
                    rest = after;
                }
            }
        }
        Some((period, rest))
    }
}

/// A number of decimal digits, at least one, that fits a signed 64-bit column.
pub(super) fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for byte in digits.bytes() {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
    }
    i64::try_from(value).ok().map(|_| value)
}

/// The number of digits of a number pattern.
pub(super) fn width(pattern: &str) -> Result<u32> {
    if (1..=MAX_WIDTH).contains(&pattern.len()) && pattern.bytes().all(|byte| byte == b'0') {
        return Ok(pattern.len() as u32);
    }
    Err(Error::config(format!(
        "number pattern `{}`: only zeros, one for each digit, 1 to {MAX_WIDTH} of them, such as `000000`",
        shown(pattern)
    )))
}

/// A text from outside as a message may show it: one line, not too long.
pub(super) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(80).is_some() {
        out.push('…');
    }
    out
}

/// The reason is what is wrong with the pattern; the caller says which pattern.
fn parse(pattern: &str) -> std::result::Result<DatePattern, String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!("it has {} bytes; at most {MAX_PATTERN} are allowed", pattern.len()));
    }
    if let Some(control) = pattern.chars().find(|c| c.is_control()) {
        return Err(format!("the control character U+{:04X} cannot stand in it", u32::from(control)));
    }
    let date = DatePattern { pieces: pieces(pattern)? };
    check_chain(&date)?;
    let len: usize = date
        .pieces
        .iter()
        .map(|piece| match piece {
            Piece::Literal(text) => text.len(),
            Piece::Field(_, width) => *width as usize,
        })
        .sum();
    if len > MAX_PREFIX {
        return Err(format!("the date part would have {len} bytes; at most {MAX_PREFIX} are allowed"));
    }
    Ok(date)
}

/// Cuts a pattern into fields and literals, with Java's rules for quotes.
fn pieces(pattern: &str) -> std::result::Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut seen: Vec<char> = Vec::new();
    let mut quoted = false;
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\'' {
            // Two quotes are one, inside quoted text and outside.
            if chars.next_if_eq(&'\'').is_some() {
                push_literal(&mut pieces, '\'');
            } else {
                quoted = !quoted;
            }
        } else if quoted || !c.is_ascii_alphabetic() {
            push_literal(&mut pieces, c);
        } else {
            let mut count = 1;
            while chars.next_if_eq(&c).is_some() {
                count += 1;
            }
            let field = field(c, count)?;
            if seen.contains(&c) {
                return Err(format!("the letter `{c}` stands in it twice; once is enough"));
            }
            seen.push(c);
            pieces.push(field);
        }
    }
    if quoted { Err("a quote is not closed".to_owned()) } else { Ok(pieces) }
}

fn push_literal(pieces: &mut Vec<Piece>, c: char) {
    if let Some(Piece::Literal(text)) = pieces.last_mut() {
        text.push(c);
    } else {
        pieces.push(Piece::Literal(c.to_string()));
    }
}

/// A run of one letter. What would have a width of its own for each date is refused.
fn field(letter: char, count: u32) -> std::result::Result<Piece, String> {
    let part = match letter {
        'y' => {
            return match count {
                2 => Ok(Piece::Field(Part::Year, 2)),
                1..=4 => Ok(Piece::Field(Part::Year, 4)),
                5..=MAX_YEAR_WIDTH => Ok(Piece::Field(Part::Year, count)),
                _ => Err(format!("{count} letters `y`; at most {MAX_YEAR_WIDTH} are allowed")),
            };
        }
        'M' => Part::Month,
        'd' => Part::Day,
        'H' => Part::Hour,
        'm' => Part::Minute,
        's' => Part::Second,
        'S' => Part::Milli,
        _ => {
            return Err(format!(
                "the letter `{letter}` is not supported; use y M d H m s S, or quote text as '{letter}'"
            ));
        }
    };
    let width = if part == Part::Milli { 3 } else { 2 };
    let run = letter.to_string().repeat(count.min(MAX_PATTERN as u32) as usize);
    let right = letter.to_string().repeat(width as usize);
    if count == width {
        Ok(Piece::Field(part, width))
    } else if part == Part::Month && count > 2 {
        Err(format!("`{run}` is a month's name, which differs by language; write `MM`"))
    } else if count < width {
        Err(format!("`{run}` has no fixed width, so two dates could make one text; write `{right}`"))
    } else {
        Err(format!("`{run}` has more digits than any date needs; write `{right}`"))
    }
}

/// A part without all the coarser ones comes back, and the serials with it: `MMdd` each year.
fn check_chain(date: &DatePattern) -> std::result::Result<(), String> {
    let Some(finest) = date.finest() else { return Ok(()) };
    let missing = Part::ALL.into_iter().find(|part| *part < finest && !date.fields().any(|f| f.0 == *part));
    let Some(missing) = missing else { return Ok(()) };
    let hint = if missing == Part::Month && finest == Part::Minute { " (`mm` is minutes)" } else { "" };
    Err(format!(
        "it shows the {} but not the {}, so the date part would come back and serials would repeat; add `{}`{hint}",
        name(finest).1,
        name(missing).1,
        name(missing).0
    ))
}

/// How a part is written, and what it is called.
fn name(part: Part) -> (&'static str, &'static str) {
    match part {
        Part::Year => ("yyyy", "year"),
        Part::Month => ("MM", "month"),
        Part::Day => ("dd", "day"),
        Part::Hour => ("HH", "hour"),
        Part::Minute => ("mm", "minute"),
        Part::Second => ("ss", "second"),
        Part::Milli => ("SSS", "millisecond"),
    }
}
