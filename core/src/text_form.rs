//! The text of an id of 64 bits: a prefix, and behind it decimal digits or one of three forms of a fixed width.
//!
//! | form | characters | width |
//! |---|---|---|
//! | crockford | Crockford's base 32 (<https://www.crockford.com/base32.html>) | 13 |
//! | base36 | `0-9a-z` | 13 |
//! | base62 | `0-9A-Za-z` | 11 |
//!
//! Each alphabet rises in ASCII and each width holds 64 bits, so texts of a form have the order of their numbers. A width is one digit and
//! two groups: the groups are made side by side, of 32 bits each.

use std::fmt;

use crate::error::{Error, Result, shown};
use crate::serial::write_number;

/// The characters of Crockford's base 32, which order numbers are written in too.
pub(crate) const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The longest prefix.
const MAX_PREFIX: usize = 16;

/// No digit of an alphabet.
const NONE: u8 = u8::MAX;

/// Which digit each byte is.
type DigitTable = [u8; 256];

static CROCKFORD_VALUES: DigitTable = {
    let mut values = values(CROCKFORD, true);
    let mut at = 0;
    let alike = [(b'i', 1), (b'I', 1), (b'l', 1), (b'L', 1), (b'o', 0), (b'O', 0)];
    while at < alike.len() {
        values[alike[at].0 as usize] = alike[at].1;
        at += 1;
    }
    values
};

static BASE36_VALUES: DigitTable = values(BASE36, true);

static BASE62_VALUES: DigitTable = values(BASE62, false);

const fn values(alphabet: &[u8], any_case: bool) -> DigitTable {
    let mut values = [NONE; 256];
    let mut at = 0;
    while at < alphabet.len() {
        let c = alphabet[at];
        values[c as usize] = at as u8;
        if any_case {
            values[c.to_ascii_lowercase() as usize] = at as u8;
            values[c.to_ascii_uppercase() as usize] = at as u8;
        }
        at += 1;
    }
    values
}

/// The digit that a character is in Crockford's base 32: small letters too, `i` and `l` as 1, `o` as 0.
pub(crate) fn crockford_digit(c: u8) -> Option<u8> {
    Some(CROCKFORD_VALUES[usize::from(c)]).filter(|digit| *digit != NONE)
}

/// `text=decimal|crockford|base62|base36`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    Decimal,
    Crockford,
    Base62,
    Base36,
}

impl Alphabet {
    /// The names that `text=` takes, the default first.
    pub(crate) const ALL: [(&str, Alphabet); 4] = [
        ("decimal", Alphabet::Decimal),
        ("crockford", Alphabet::Crockford),
        ("base62", Alphabet::Base62),
        ("base36", Alphabet::Base36),
    ];

    fn name(self) -> &'static str {
        Alphabet::ALL.iter().find(|(_, digits)| *digits == self).map_or("", |(name, _)| name)
    }

    fn characters(self) -> &'static [u8] {
        match self {
            Alphabet::Decimal => &BASE36[..10],
            Alphabet::Crockford => CROCKFORD,
            Alphabet::Base62 => BASE62,
            Alphabet::Base36 => BASE36,
        }
    }

    /// How many characters every text has; `None`: as many as the number needs.
    fn width(self) -> Option<usize> {
        match self {
            Alphabet::Decimal => None,
            Alphabet::Crockford | Alphabet::Base36 => Some(13),
            Alphabet::Base62 => Some(11),
        }
    }

    /// The characters that are read, for people.
    fn in_words(self) -> &'static str {
        match self {
            Alphabet::Decimal => "digits",
            Alphabet::Crockford => "digits and letters but U",
            Alphabet::Base62 | Alphabet::Base36 => "digits and letters",
        }
    }
}

/// How a source writes its ids, and reads them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextForm {
    digits: Alphabet,
    /// The bytes past `prefix_len` are zero.
    prefix: [u8; MAX_PREFIX],
    prefix_len: u8,
}

impl fmt::Debug for TextForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.prefix(), self.name())
    }
}

impl TextForm {
    /// Decimal digits and nothing before them.
    pub(crate) const PLAIN: TextForm =
        TextForm { digits: Alphabet::Decimal, prefix: [0; MAX_PREFIX], prefix_len: 0 };

    /// `None` where the prefix has another character than `[a-z0-9_]`, or more than 16.
    pub(crate) fn new(digits: Alphabet, prefix: &str) -> Option<TextForm> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
        let mut form = TextForm { digits, prefix_len: prefix.len() as u8, ..TextForm::PLAIN };
        form.prefix.get_mut(..prefix.len())?.copy_from_slice(prefix.as_bytes());
        prefix.bytes().all(allowed).then_some(form)
    }

    /// Whether a text is its decimal number and nothing more.
    pub(crate) fn is_plain(&self) -> bool {
        *self == TextForm::PLAIN
    }

    /// What `text=` calls it.
    pub(crate) fn name(&self) -> &'static str {
        self.digits.name()
    }

    pub(crate) fn prefix(&self) -> &str {
        let bytes = self.prefix.get(..usize::from(self.prefix_len));
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
    }

    /// The characters of its digits, the lowest first, and how many of them a text has at least.
    pub(crate) fn alphabet(&self) -> (&'static str, usize) {
        (std::str::from_utf8(self.digits.characters()).unwrap_or_default(), self.digits.width().unwrap_or(1))
    }

    /// The most bytes of a text whose number is at most 2^63-1.
    pub(crate) fn text_len(&self) -> usize {
        /// Digits of 2^63-1.
        const MOST_DIGITS: usize = 19;
        usize::from(self.prefix_len) + self.digits.width().unwrap_or(MOST_DIGITS)
    }

    /// Writes a number at the front of `out` and returns how many bytes that took; `None` where it does not fit.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8], number: u64) -> Option<usize> {
        let front = usize::from(self.prefix_len);
        if front > 0 {
            if let Some(out) = out.first_chunk_mut::<MAX_PREFIX>() {
                // All of it is quicker than so many bytes; the digits come over the rest.
                *out = self.prefix;
            } else {
                out.get_mut(..front)?.copy_from_slice(self.prefix.get(..front)?);
            }
        }
        let out = out.get_mut(front..)?;
        let width = match self.digits {
            Alphabet::Decimal => write_number(out, number, 1)?,
            Alphabet::Crockford => write_groups::<32, 6, 13, _>(&CROCKFORD_PAIRS, out, number)?,
            Alphabet::Base36 => write_groups::<36, 6, 13, _>(&BASE36_PAIRS, out, number)?,
            Alphabet::Base62 => write_groups::<62, 5, 11, _>(&BASE62_PAIRS, out, number)?,
        };
        Some(front + width)
    }

    /// Reads what [`TextForm::write`] has written. Behind the prefix a text of another width that is a decimal number without zeros in front
    /// is read as one: a source that wrote its ids so before reads them.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the prefix, the width, a character, or more than 64 bits.
    pub(crate) fn read(&self, text: &str, label: &str) -> Result<u64> {
        let refuse =
            |why: String| Error::argument(format!("`{}` is no text of `{label}`: {why}", shown(text)));
        let Some(rest) = text.strip_prefix(self.prefix()) else {
            return Err(refuse(format!("it does not begin with `{}`", self.prefix())));
        };
        let is_decimal = !rest.is_empty()
            && rest.bytes().all(|c| c.is_ascii_digit())
            && (rest == "0" || !rest.starts_with('0'));
        let (digits, values) = match self.digits.width() {
            Some(width) if rest.chars().count() == width => (self.digits, self.digits.values()),
            _ if is_decimal => (Alphabet::Decimal, &BASE62_VALUES),
            Some(width) => {
                return Err(refuse(format!(
                    "{} has {width} characters{}; this has {} and is no decimal number",
                    self.name(),
                    if self.prefix_len > 0 { " behind the prefix" } else { "" },
                    rest.chars().count()
                )));
            }
            None => {
                return Err(refuse(
                    "it is no decimal number: digits only, and no 0 in front of others".to_owned(),
                ));
            }
        };
        let radix = digits.characters().len() as u64;
        let mut number: u64 = 0;
        for (at, c) in rest.chars().enumerate() {
            let digit = u8::try_from(c).map_or(NONE, |c| values[usize::from(c)]);
            if u64::from(digit) >= radix {
                return Err(refuse(format!(
                    "character {} is `{}`, and {} has only {}",
                    usize::from(self.prefix_len) + at + 1,
                    shown(&c.to_string()),
                    digits.name(),
                    digits.in_words()
                )));
            }
            let longer = number.checked_mul(radix).and_then(|number| number.checked_add(u64::from(digit)));
            number = longer.ok_or_else(|| refuse("it is more than 64 bits".to_owned()))?;
        }
        Ok(number)
    }
}

impl Alphabet {
    fn values(self) -> &'static DigitTable {
        match self {
            Alphabet::Crockford => &CROCKFORD_VALUES,
            Alphabet::Base36 => &BASE36_VALUES,
            Alphabet::Decimal | Alphabet::Base62 => &BASE62_VALUES,
        }
    }
}

/// All pairs of digits of an alphabet, in their order.
const fn pairs<const PAIRS: usize>(alphabet: &[u8]) -> [[u8; 2]; PAIRS] {
    let mut pairs = [[0; 2]; PAIRS];
    let mut at = 0;
    while at < PAIRS {
        pairs[at] = [alphabet[at / alphabet.len()], alphabet[at % alphabet.len()]];
        at += 1;
    }
    pairs
}

static CROCKFORD_PAIRS: [[u8; 2]; 32 * 32] = pairs(CROCKFORD);

static BASE36_PAIRS: [[u8; 2]; 36 * 36] = pairs(BASE36);

static BASE62_PAIRS: [[u8; 2]; 62 * 62] = pairs(BASE62);

/// Writes a number in `WIDTH` digits, which are one and two groups of `GROUP`, each made pair by pair from its end.
#[inline]
fn write_groups<const RADIX: u32, const GROUP: usize, const WIDTH: usize, const PAIRS: usize>(
    pairs: &[[u8; 2]; PAIRS],
    out: &mut [u8],
    number: u64,
) -> Option<usize> {
    let power = const { (RADIX as u64).pow(GROUP as u32) };
    let out = out.first_chunk_mut::<WIDTH>()?;
    let (upper, low) = (number / power, number % power);
    let (first, high) = (upper / power, upper % power);
    let (mut high, mut low) = (high as u32, low as u32);
    let mut at = GROUP;
    while at > 1 {
        let pair = |digits: u32| pairs[(digits % (RADIX * RADIX)) as usize];
        [out[at - 1], out[at]] = pair(high);
        [out[GROUP + at - 1], out[GROUP + at]] = pair(low);
        (high, low) = (high / (RADIX * RADIX), low / (RADIX * RADIX));
        at -= 2;
    }
    // A digit is the second of the pair that begins with 0.
    let digit = |digit: u32| pairs[(digit % RADIX) as usize][1];
    if at == 1 {
        (out[1], out[GROUP + 1]) = (digit(high), digit(low));
    }
    out[0] = digit(first as u32);
    Some(WIDTH)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIXED: [Alphabet; 3] = [Alphabet::Crockford, Alphabet::Base62, Alphabet::Base36];

    fn form(digits: Alphabet, prefix: &str) -> TextForm {
        TextForm::new(digits, prefix).expect("a form")
    }

    fn written(form: TextForm, number: u64) -> String {
        let mut out = [b'#'; 40];
        let len = form.write(&mut out, number).expect("40 bytes are enough");
        String::from_utf8(out[..len].to_vec()).expect("ASCII")
    }

    fn read(form: TextForm, text: &str) -> std::result::Result<u64, String> {
        form.read(text, "segment:a").map_err(|error| error.message)
    }

    #[test]
    fn the_ends_of_the_numbers_have_all_their_characters() {
        for (digits, texts) in [
            (
                Alphabet::Crockford,
                ["0000000000000", "0000000000001", "007ZZZZZZZZZZ", "7ZZZZZZZZZZZZ", "FZZZZZZZZZZZZ"],
            ),
            (Alphabet::Base62, ["00000000000", "00000000001", "00fFgnDxSe7", "AzL8n0Y58m7", "LygHa16AHYF"]),
            (
                Alphabet::Base36,
                ["0000000000000", "0000000000001", "002gosa7pa2gv", "1y2p0ij32e8e7", "3w5e11264sgsf"],
            ),
            (
                Alphabet::Decimal,
                ["0", "1", "9007199254740991", "9223372036854775807", "18446744073709551615"],
            ),
        ] {
            for (number, text) in [0, 1, (1 << 53) - 1, (1 << 63) - 1, u64::MAX].into_iter().zip(texts) {
                assert_eq!(written(form(digits, ""), number), text);
                assert_eq!(written(form(digits, "ord_"), number), format!("ord_{text}"));
                assert_eq!(read(form(digits, "ord_"), &format!("ord_{text}")), Ok(number));
                assert_eq!(read(form(digits, ""), text), Ok(number));
            }
        }
    }

    #[test]
    fn a_buffer_of_just_the_length_is_enough_and_a_shorter_one_stays_as_it_is() {
        for digits in FIXED {
            for prefix in ["", "a", "sixteen_letters_"] {
                let form = form(digits, prefix);
                let mut out = vec![b'#'; form.text_len()];
                assert_eq!(form.write(&mut out, 71), Some(out.len()), "{form:?}");
                assert_eq!(out, written(form, 71).into_bytes());
                out.pop();
                assert_eq!(form.write(&mut out, 71), None, "{form:?}");
            }
        }
    }

    #[test]
    fn crockford_reads_letters_that_look_like_digits_and_base36_reads_both_cases() {
        let crockford = form(Alphabet::Crockford, "");
        assert_eq!(read(crockford, "0oOiIlLabcdef"), read(crockford, "0001111ABCDEF"));
        assert_eq!(read(form(Alphabet::Base36, ""), "1Y2P0IJ32E8E7"), Ok((1 << 63) - 1));
        assert_ne!(
            read(form(Alphabet::Base62, ""), "0000000000a"),
            read(form(Alphabet::Base62, ""), "0000000000A")
        );
    }

    #[test]
    fn a_decimal_number_is_read_where_it_has_another_width() {
        for digits in FIXED {
            assert_eq!(read(form(digits, ""), "42"), Ok(42));
            assert_eq!(read(form(digits, "ord_"), "ord_9223372036854775807"), Ok((1 << 63) - 1));
        }
        assert_eq!(
            read(form(Alphabet::Crockford, ""), "1000000000000"),
            Ok(1 << 60),
            "13 digits are the form"
        );
        assert_eq!(read(form(Alphabet::Base62, ""), "1000000000000"), Ok(1_000_000_000_000));
    }

    #[test]
    fn what_no_source_wrote_is_refused_with_what_was_seen() {
        for (digits, text, told) in [
            (Alphabet::Crockford, "42", "does not begin with `ord_`"),
            (Alphabet::Crockford, "ORD_0000000000001", "does not begin with `ord_`"),
            (Alphabet::Crockford, "", "does not begin with `ord_`"),
            (Alphabet::Crockford, "ord_", "has 13 characters behind the prefix; this has 0"),
            (Alphabet::Crockford, "ord_000000000001", "this has 12 and is no decimal number"),
            (Alphabet::Crockford, "ord_00000000000001", "this has 14 and"),
            (Alphabet::Crockford, "ord_000000000000U", "character 17 is `U`"),
            (Alphabet::Crockford, "ord_GZZZZZZZZZZZZ", "more than 64 bits"),
            (Alphabet::Crockford, "ord_\u{e9}00000000000\u{e9}", "character 5 is `\u{e9}`"),
            (Alphabet::Crockford, "ord_99999999999999999999", "more than 64 bits"),
            (Alphabet::Base62, "ord_LygHa16AHYG", "more than 64 bits"),
            (Alphabet::Base62, "ord_0000000000-", "character 15 is `-`"),
            (Alphabet::Base36, "ord_3w5e11264sgsg", "more than 64 bits"),
            (Alphabet::Base36, "ord_000000000000_", "character 17 is `_`"),
            (Alphabet::Decimal, "ord_", "no decimal number"),
            (Alphabet::Decimal, "ord_042", "no decimal number"),
            (Alphabet::Decimal, "ord_+42", "no decimal number"),
            (Alphabet::Decimal, "ord_18446744073709551616", "more than 64 bits"),
        ] {
            let refused = read(form(digits, "ord_"), text).expect_err(text);
            assert!(refused.contains(told) && refused.contains("segment:a"), "{text}: {refused}");
        }
    }

    #[test]
    fn a_prefix_has_at_most_sixteen_small_letters_digits_and_underscores() {
        for prefix in ["seventeen_letters", "Ord_", "ord-", "\u{e9}", "a b", "a%"] {
            assert_eq!(TextForm::new(Alphabet::Base62, prefix), None, "{prefix}");
        }
        assert_eq!(form(Alphabet::Base62, "sixteen_letters_").prefix(), "sixteen_letters_");
    }

    /// Decoders of other libraries.
    fn decoded(digits: Alphabet, text: &str) -> u64 {
        match digits {
            Alphabet::Decimal => text.parse().expect("decimal digits"),
            Alphabet::Base36 => u64::from_str_radix(text, 36).expect("base 36"),
            Alphabet::Base62 => u64::try_from(base62::decode(text).expect("base 62")).expect("64 bits"),
            Alphabet::Crockford => {
                let mut of = data_encoding::Specification::new();
                of.symbols.push_str("0123456789ABCDEFGHJKMNPQRSTVWXYZ");
                // It decodes whole bytes from the left: three digits in front make 80 bits.
                let bytes = of
                    .encoding()
                    .and_then(|of| Ok(of.decode(format!("000{text}").as_bytes()).expect("base 32")));
                let bytes = bytes.expect("an encoding");
                u64::from_be_bytes(bytes[2..].try_into().expect("ten bytes"))
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_here_and_by_other_libraries(number: u64, prefix in "[a-z0-9_]{0,16}") {
            for digits in [Alphabet::Decimal, Alphabet::Crockford, Alphabet::Base62, Alphabet::Base36] {
                let text = written(form(digits, &prefix), number);
                prop_assert_eq!(read(form(digits, &prefix), &text), Ok(number));
                prop_assert_eq!(decoded(digits, &text[prefix.len()..]), number);
            }
        }

        #[test]
        fn texts_have_the_order_of_their_numbers(one: u64, other: u64, shift in 0..64_u32) {
            for (one, other) in [(one, other), (one >> shift, one.wrapping_add(1) >> shift), (one >> shift, other)] {
                for digits in FIXED {
                    let texts = (written(form(digits, "t_"), one), written(form(digits, "t_"), other));
                    prop_assert_eq!(texts.0.cmp(&texts.1), one.cmp(&other), "{:?}", texts);
                }
            }
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC{0,24}") {
            for digits in [Alphabet::Decimal, Alphabet::Crockford, Alphabet::Base62, Alphabet::Base36] {
                for prefix in ["", "0", "a_"] {
                    let _ = read(form(digits, prefix), &text);
                }
            }
        }
    }
}
