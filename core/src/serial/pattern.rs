//! Reads a date pattern and a number pattern, and refuses what could make one text twice.
//!
//! The letters are the letters of Java's `SimpleDateFormat`
//! (<https://docs.oracle.com/javase/8/docs/api/java/text/SimpleDateFormat.html>), as far as every date gets the same
//! number of characters: then a serial's text can be parsed unambiguously, and two dates never have the same text.

use super::calendar::DateField;
use super::format::{MAX_PREFIX, Prefix};
use crate::error::{Error, Result, shown};

/// The longest date pattern, in bytes.
const MAX_PATTERN: usize = 64;

/// The widest number pattern: the largest such number still fits a signed 64-bit column.
const MAX_WIDTH: usize = 18;

/// The widest year: nine digits; five are zero for the next eight thousand years.
const MAX_YEAR_WIDTH: u32 = 9;

/// One stretch of a date pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Field(DateField, u32),
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
    pub(super) fn finest(&self) -> Option<DateField> {
        self.fields().map(|(part, _)| part).max()
    }

    /// Whether the year is shown with two digits.
    pub(super) fn short_year(&self) -> bool {
        self.fields().any(|field| field == (DateField::Year, 2))
    }

    fn fields(&self) -> impl Iterator<Item = (DateField, u32)> {
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
                Piece::Field(part, width) => prefix.push_digits(part.value_in(period), *width),
            }
        }
        prefix
    }

    /// Splits the date part off the front of `text`: the period it shows, which need not be a date that exists, and the rest.
    pub(super) fn read<'t>(&self, text: &'t str) -> Option<(u64, &'t str)> {
        let mut rest = text;
        let mut period: u64 = 0;
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => rest = rest.strip_prefix(literal.as_str())?,
                Piece::Field(part, width) => {
                    let (digits, after) = rest.split_at_checked(*width as usize)?;
                    let value = number(digits)?;
                    let value = if (*part, *width) == (DateField::Year, 2) { 2000 + value } else { value };
                    if *part == DateField::Year && value > 9999 {
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

/// The error says what is wrong with the pattern; the caller adds which pattern.
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

/// A field: one letter repeated. A field whose width would depend on the date is refused.
fn field(letter: char, count: u32) -> std::result::Result<Piece, String> {
    let part = match letter {
        'y' => {
            return match count {
                2 => Ok(Piece::Field(DateField::Year, 2)),
                1..=4 => Ok(Piece::Field(DateField::Year, 4)),
                5..=MAX_YEAR_WIDTH => Ok(Piece::Field(DateField::Year, count)),
                _ => Err(format!("{count} letters `y`; at most {MAX_YEAR_WIDTH} are allowed")),
            };
        }
        'M' => DateField::Month,
        'd' => DateField::Day,
        'H' => DateField::Hour,
        'm' => DateField::Minute,
        's' => DateField::Second,
        'S' => DateField::Milli,
        _ => {
            return Err(format!(
                "the letter `{letter}` is not supported; use y M d H m s S, or quote text as '{letter}'"
            ));
        }
    };
    let width = if part == DateField::Milli { 3 } else { 2 };
    let run = letter.to_string().repeat(count.min(MAX_PATTERN as u32) as usize);
    let right = letter.to_string().repeat(width as usize);
    if count == width {
        Ok(Piece::Field(part, width))
    } else if part == DateField::Month && count > 2 {
        Err(format!("`{run}` is a month's name, which differs by language; write `MM`"))
    } else if count < width {
        Err(format!("`{run}` has no fixed width, so two dates could make one text; write `{right}`"))
    } else {
        Err(format!("`{run}` has more digits than any date needs; write `{right}`"))
    }
}

/// A part without all coarser ones recurs, and its serials with it: `MMdd` each year.
fn check_chain(date: &DatePattern) -> std::result::Result<(), String> {
    let Some(finest) = date.finest() else { return Ok(()) };
    let missing =
        DateField::ALL.into_iter().find(|part| *part < finest && !date.fields().any(|f| f.0 == *part));
    let Some(missing) = missing else { return Ok(()) };
    let hint =
        if missing == DateField::Month && finest == DateField::Minute { " (`mm` is minutes)" } else { "" };
    Err(format!(
        "it shows the {} but not the {}, so the same date part would come again and serials would repeat; add `{}`{hint}",
        name(finest).1,
        name(missing).1,
        name(missing).0
    ))
}

/// How a part is written, and what it is called.
fn name(part: DateField) -> (&'static str, &'static str) {
    match part {
        DateField::Year => ("yyyy", "year"),
        DateField::Month => ("MM", "month"),
        DateField::Day => ("dd", "day"),
        DateField::Hour => ("HH", "hour"),
        DateField::Minute => ("mm", "minute"),
        DateField::Second => ("ss", "second"),
        DateField::Milli => ("SSS", "millisecond"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Code;

    /// 2026-11-20 16:30:05.123
    const PERIOD: u64 = 20_261_120_163_005_123;

    fn rendered(pattern: &str) -> String {
        DatePattern::parse(pattern).expect(pattern).render(PERIOD).as_str().to_owned()
    }

    fn refused(pattern: &str) -> String {
        let error = DatePattern::parse(pattern).expect_err(pattern);
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(!error.message.contains(char::is_control), "one line only: {}", error.message);
        error.message
    }

    #[test]
    fn a_date_is_written_as_simple_date_format_writes_it() {
        // Right: the output of Java's SimpleDateFormat for this moment.
        for (pattern, text) in [
            ("yyyyMMdd", "20261120"),
            ("yyyyMMddHHmmssSSS", "20261120163005123"),
            ("yyMMdd", "261120"),
            ("y", "2026"),
            ("yyy", "2026"),
            ("yyyyy", "02026"),
            ("'CUST'yyyyMMdd", "CUST20261120"),
            ("yyyy-MM-dd", "2026-11-20"),
            ("''yyyy''", "'2026'"),
            ("'it''s 'yyyy", "it's 2026"),
            ("'a'''yyyy", "a'2026"),
            ("''''yyyy", "''2026"),
            ("'''x'yyyy", "'x2026"),
            ("'y''y'yyyy", "y'y2026"),
            ("yyyy'年'MM'月'dd", "2026年11月20"),
            ("yyyy年MM月dd", "2026年11月20"),
            ("ddMMyyyy", "20112026"),
            ("HH:mm:ss.SSS dd/MM/yy", "16:30:05.123 20/11/26"),
            ("yyyy'Z'MM", "2026Z11"),
            ("MM''dd''yyyy", "11'20'2026"),
            ("", ""),
            ("'CUST'", "CUST"),
            ("-", "-"),
        ] {
            assert_eq!(rendered(pattern), text, "{pattern}");
        }
    }

    #[test]
    fn a_letter_that_is_not_supported_is_refused_by_name() {
        assert_eq!(
            refused("YYYY"),
            "date pattern `YYYY`: the letter `Y` is not supported; use y M d H m s S, or quote text as 'Y'"
        );
        for letter in ('a'..='z').chain('A'..='Z').filter(|letter| !"yMdHmsS".contains(*letter)) {
            let message = refused(&format!("yyyyMMdd{letter}"));
            assert!(message.contains(&format!("the letter `{letter}` is not supported")), "{message}");
        }
    }

    #[test]
    fn a_letter_count_without_a_fixed_width_is_refused_with_the_right_one() {
        for (pattern, right) in [
            ("yyyyM", "write `MM`"),
            ("yyyyMMd", "write `dd`"),
            ("yyyyMMddH", "write `HH`"),
            ("yyyyMMddHHm", "write `mm`"),
            ("yyyyMMddHHmms", "write `ss`"),
            ("yyyyMMddHHmmssS", "write `SSS`"),
            ("yyyyMMddHHmmssSS", "write `SSS`"),
            ("yyyyMMddHHmmssSSSS", "write `SSS`"),
            ("yyyyMMM", "month's name"),
            ("yyyyMMddd", "write `dd`"),
            ("yyyyyyyyyy", "at most 9"),
        ] {
            let message = refused(pattern);
            assert!(message.contains(right), "{message}");
        }
    }

    #[test]
    fn a_date_part_that_would_come_back_is_refused() {
        for (pattern, add) in [
            ("MMdd", "add `yyyy`"),
            ("dd", "add `yyyy`"),
            ("SSS", "add `yyyy`"),
            ("yyyydd", "add `MM`"),
            ("yyyymmdd", "add `MM` (`mm` is minutes)"),
            ("yyyyMMHH", "add `dd`"),
            ("yyyyMMddmm", "add `HH`"),
            ("yyyyMMddHHss", "add `mm`"),
            ("yyyyMMddHHmmSSS", "add `ss`"),
        ] {
            let message = refused(pattern);
            assert!(message.contains(add) && message.contains("would repeat"), "{message}");
        }
    }

    #[test]
    fn a_pattern_that_cannot_be_read_is_refused() {
        assert!(refused("yyyy'").contains("a quote is not closed"));
        assert!(refused("'yyyy").contains("a quote is not closed"));
        assert!(refused("'").contains("a quote is not closed"));
        assert!(refused("yyyy-yyyy").contains("`y` stands in it twice"));
        assert!(refused("yyyy''yyyy").contains("twice"));
        assert!(refused("'a\n'yyyy").contains("U+000A"));
        assert!(refused("yyyy\u{85}").contains("U+0085"));
        assert!(refused(&"-".repeat(65)).contains("at most 64"));
        assert!(refused(&"-".repeat(57)).contains("would have 57 bytes; at most 56"));
        assert_eq!(rendered(&"-".repeat(56)), "-".repeat(56));
    }

    #[test]
    fn a_number_pattern_is_only_zeros() {
        assert_eq!(width("0"), Ok(1));
        assert_eq!(width("000000"), Ok(6));
        assert_eq!(width(&"0".repeat(18)), Ok(18));
        for wrong in ["", "######", "0000#", "6", "0.0", "０００", " 000", &"0".repeat(19)] {
            let error = width(wrong).expect_err(wrong);
            assert_eq!(error.code, Code::InvalidConfig);
            assert!(error.message.contains("only zeros, one for each digit"), "{}", error.message);
        }
    }

    #[test]
    fn a_number_that_no_signed_column_holds_is_not_read() {
        assert_eq!(number("0"), Some(0));
        assert_eq!(number("9223372036854775807"), Some(i64::MAX as u64));
        assert_eq!(number("00000000000000000000000009223372036854775807"), Some(i64::MAX as u64));
        for wrong in ["", "9223372036854775808", "18446744073709551616", "+1", "-1", "1 ", "١"] {
            assert_eq!(number(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_or_refused_in_one_line(text in "\\PC{0,70}|[yMdHmsS'\\-a-z\u{0}-\u{20}]{0,70}") {
            match DatePattern::parse(&text) {
                Ok(date) => {
                    let _ = date.render(u64::MAX);
                    let prefix = date.render(PERIOD);
                    let (period, rest) = date.read(prefix.as_str()).expect("its own text");
                    prop_assert_eq!(rest, "");
                    prop_assert_eq!(date.render(period), prefix);
                }
                Err(error) => prop_assert!(!error.message.contains(char::is_control)),
            }
            let _ = width(&text);
        }
    }
}
