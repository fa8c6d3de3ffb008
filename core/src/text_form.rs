//! Ids as text: `text=crockford&prefix=ord_`. A form has a fixed width, so texts are ordered as their numbers are; decimal has none.
//!
//! | form | characters | digits |
//! |---|---|---|
//! | `decimal` | 1 to 20 | `0`–`9` |
//! | `crockford` | 13 | Crockford's base 32 (<https://www.crockford.com/base32.html>): `0`–`9`, `A`–`Z` without `I L O U`. Small letters are read too, `i` and `l` as 1, `o` as 0 |
//! | `base62` | 11 | `0`–`9`, `A`–`Z`, `a`–`z`, the order of ASCII |
//! | `base36` | 13 | `0`–`9`, `a`–`z`. Capitals are read too |

use std::fmt;

use crate::error::{Error, Result, shown};
use crate::serial::write_number;

/// The longest prefix.
pub(crate) const LONGEST_PREFIX: usize = 16;

/// Crockford's digits, and behind them the symbols that only the check symbol of an order number is.
pub(crate) const CROCKFORD: &[u8; 37] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ*~$=U";

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const BASE36: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The value of one of Crockford's 32 digits, as people write them.
pub(crate) fn crockford_digit(c: u8) -> Option<u8> {
    let c = match c.to_ascii_uppercase() {
        b'I' | b'L' => b'1',
        b'O' => b'0',
        c => c,
    };
    CROCKFORD.iter().take(32).position(|symbol| *symbol == c).map(|at| at as u8)
}

/// The digits of an id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IdDigits {
    #[default]
    Decimal,
    Crockford,
    Base62,
    Base36,
}

impl IdDigits {
    /// By their names, the default first.
    pub(crate) const ALL: [(&'static str, IdDigits); 4] = [
        ("decimal", IdDigits::Decimal),
        ("crockford", IdDigits::Crockford),
        ("base62", IdDigits::Base62),
        ("base36", IdDigits::Base36),
    ];

    pub(crate) fn name(self) -> &'static str {
        IdDigits::ALL.iter().find(|(_, digits)| *digits == self).map_or("", |(name, _)| name)
    }

    /// How many characters an id has; `None`: as many as it needs.
    pub(crate) fn width(self) -> Option<usize> {
        match self {
            IdDigits::Decimal => None,
            IdDigits::Crockford | IdDigits::Base36 => Some(13),
            IdDigits::Base62 => Some(11),
        }
    }

    fn base(self) -> u64 {
        match self {
            IdDigits::Decimal => 10,
            IdDigits::Crockford => 32,
            IdDigits::Base62 => 62,
            IdDigits::Base36 => 36,
        }
    }

    /// The digits, the lowest first, for languages that write ids by themselves.
    pub(crate) fn alphabet(self) -> &'static str {
        let digits: &[u8] = match self {
            IdDigits::Decimal => &BASE36[..10],
            IdDigits::Crockford => &CROCKFORD[..32],
            IdDigits::Base62 => BASE62,
            IdDigits::Base36 => BASE36,
        };
        std::str::from_utf8(digits).unwrap_or_default()
    }

    fn digit(self, c: u8) -> Option<u8> {
        match self {
            IdDigits::Crockford => crockford_digit(c),
            IdDigits::Base36 => (c as char).to_digit(36).map(|digit| digit as u8),
            IdDigits::Decimal => (c as char).to_digit(10).map(|digit| digit as u8),
            IdDigits::Base62 => match c {
                b'0'..=b'9' => Some(c - b'0'),
                b'A'..=b'Z' => Some(c - b'A' + 10),
                b'a'..=b'z' => Some(c - b'a' + 36),
                _ => None,
            },
        }
    }
}

/// How ids of a source are written as text.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TextForm {
    pub(crate) digits: IdDigits,
    prefix: [u8; LONGEST_PREFIX],
    prefix_len: u8,
}

impl fmt::Debug for TextForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.prefix(), self.digits)
    }
}

impl TextForm {
    /// # Errors
    /// `INVALID_CONFIG`: a prefix that is too long or has other characters, or that a number could begin with.
    pub(crate) fn new(digits: IdDigits, prefix: &str) -> Result<TextForm> {
        let is_allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
        if prefix.len() > LONGEST_PREFIX || !prefix.bytes().all(is_allowed) {
            return Err(Error::config(format!(
                "option `prefix={}` is not valid: a prefix has at most {LONGEST_PREFIX} small letters, digits and `_`",
                shown(prefix)
            )));
        }
        if !prefix.is_empty() && prefix.bytes().all(|c| c.is_ascii_digit()) {
            return Err(Error::config(format!(
                "option `prefix={prefix}` is not valid: a text could not be told from a number; a prefix has a letter or `_`"
            )));
        }
        let mut form = TextForm { digits, prefix: [0; LONGEST_PREFIX], prefix_len: prefix.len() as u8 };
        for (to, from) in form.prefix.iter_mut().zip(prefix.bytes()) {
            *to = from;
        }
        Ok(form)
    }

    pub(crate) fn prefix(&self) -> &str {
        let bytes = self.prefix.get(..usize::from(self.prefix_len)).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Decimal digits, and nothing before them.
    pub(crate) fn is_plain(&self) -> bool {
        *self == TextForm::default()
    }

    /// The most bytes of a text whose number has so many decimal digits.
    pub(crate) fn longest(&self, decimal: usize) -> usize {
        usize::from(self.prefix_len) + self.digits.width().unwrap_or(decimal)
    }

    /// Writes an id at the front of `out` and returns how many bytes that took; `None`, with `out` untouched, where it does not fit.
    #[inline]
    pub(crate) fn write(&self, out: &mut [u8], id: u64) -> Option<usize> {
        let before = usize::from(self.prefix_len);
        let Some(width) = self.digits.width() else {
            if before == 0 {
                return write_number(out, id, 1);
            }
            let digits = write_number(out.get_mut(before..)?, id, 1)?;
            out.get_mut(..before)?.copy_from_slice(self.prefix.get(..before)?);
            return Some(before + digits);
        };
        let out = out.get_mut(..before + width)?;
        let (prefix, digits) = out.split_at_mut(before);
        prefix.copy_from_slice(self.prefix.get(..before)?);
        match self.digits {
            IdDigits::Crockford => {
                write_halves::<32, 6, 13, _>(&CROCKFORD_PAIRS, digits.first_chunk_mut()?, id);
            }
            IdDigits::Base62 => write_halves::<62, 5, 11, _>(&BASE62_PAIRS, digits.first_chunk_mut()?, id),
            IdDigits::Base36 => write_halves::<36, 6, 13, _>(&BASE36_PAIRS, digits.first_chunk_mut()?, id),
            IdDigits::Decimal => {}
        }
        Some(before + width)
    }

    /// Reads a text: of this form, with its prefix; or a number in decimal digits. A number has no zeros in front: keymill writes none, and
    /// an id that two texts stand for is two keys of a table.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: another prefix, width or character, or more than 64 bits.
    pub(crate) fn read(&self, text: &str) -> Result<u64> {
        let prefix = self.prefix();
        let has_zeros = |digits: &str| digits.len() > 1 && digits.starts_with('0');
        let is_number = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()) && !has_zeros(text);
        match text.strip_prefix(prefix) {
            Some(digits) if self.digits.width() == Some(digits.len()) => self.of_digits(text, digits),
            Some(digits) if self.digits == IdDigits::Decimal && has_zeros(digits) => {
                Err(Error::argument(format!("`{}` is no id: a number has no zeros in front", shown(text))))
            }
            Some(digits) if self.digits == IdDigits::Decimal && !digits.is_empty() => {
                self.of_digits(text, digits)
            }
            _ if is_number => text.parse().map_err(|_| too_large(text)),
            Some(digits) if prefix.is_empty() || !digits.is_empty() => Err(self.wrong_width(text, digits)),
            _ => Err(Error::argument(format!(
                "`{}` is no id: a text begins with `{prefix}`, and a number has decimal digits only",
                shown(text)
            ))),
        }
    }

    fn of_digits(&self, text: &str, digits: &str) -> Result<u64> {
        let mut id: u64 = 0;
        for c in digits.chars() {
            let digit = u8::try_from(c).ok().and_then(|c| self.digits.digit(c));
            let Some(digit) = digit else {
                if self.is_plain() {
                    return Err(self.wrong_width(text, digits));
                }
                return Err(Error::argument(format!(
                    "`{}` is no id: `{}` is no digit of {}",
                    shown(text),
                    shown(&c.to_string()),
                    self.digits.name()
                )));
            };
            let next = id.checked_mul(self.digits.base()).and_then(|id| id.checked_add(u64::from(digit)));
            id = next.ok_or_else(|| too_large(text))?;
        }
        Ok(id)
    }

    #[cold]
    fn wrong_width(&self, text: &str, digits: &str) -> Error {
        let found = digits.chars().count();
        Error::argument(match self.digits.width() {
            Some(width) => format!(
                "`{}` is no id: it has {found} characters{}, and {} has {width}",
                shown(text),
                if self.prefix_len == 0 { "" } else { " behind the prefix" },
                self.digits.name()
            ),
            None => {
                format!("`{}` is not an id: an id is a positive whole number, in decimal digits", shown(text))
            }
        })
    }
}

#[cold]
fn too_large(text: &str) -> Error {
    Error::argument(format!("`{}` is no id: it has more than 64 bits", shown(text)))
}

/// All pairs of digits of an alphabet, in their order.
const fn pairs<const PAIRS: usize>(alphabet: &[u8], base: usize) -> [[u8; 2]; PAIRS] {
    let mut pairs = [[0; 2]; PAIRS];
    let mut at = 0;
    while at < PAIRS {
        pairs[at] = [alphabet[at / base], alphabet[at % base]];
        at += 1;
    }
    pairs
}

static CROCKFORD_PAIRS: [[u8; 2]; 32 * 32] = pairs(CROCKFORD, 32);
static BASE62_PAIRS: [[u8; 2]; 62 * 62] = pairs(BASE62, 62);
static BASE36_PAIRS: [[u8; 2]; 36 * 36] = pairs(BASE36, 36);

/// Writes an id in `WIDTH` digits: one, and two halves of `HALF`. A half fits 32 bits, so its divisions are short and do not wait for the
/// other half's; it is made pair by pair from its end.
#[inline]
fn write_halves<const BASE: u32, const HALF: usize, const WIDTH: usize, const PAIRS: usize>(
    pairs: &[[u8; 2]; PAIRS],
    out: &mut [u8; WIDTH],
    id: u64,
) {
    let power = const { (BASE as u64).pow(HALF as u32) };
    let (upper, two) = (id / power, (id % power) as u32);
    let (first, one) = ((upper / power) as u32, (upper % power) as u32);
    let (mut one, mut two, mut at) = (one, two, HALF);
    while at > 1 {
        let pair = |digits: u32| pairs[(digits % (BASE * BASE)) as usize];
        [out[at - 1], out[at]] = pair(one);
        [out[HALF + at - 1], out[HALF + at]] = pair(two);
        (one, two) = (one / (BASE * BASE), two / (BASE * BASE));
        at -= 2;
    }
    // A digit is the second of the pair that begins with 0.
    let digit = |digit: u32| pairs[(digit % BASE) as usize][1];
    if at == 1 {
        (out[1], out[HALF + 1]) = (digit(one), digit(two));
    }
    out[0] = digit(first);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn form(digits: IdDigits, prefix: &str) -> TextForm {
        TextForm::new(digits, prefix).expect("a form")
    }

    fn text(form: TextForm, id: u64) -> String {
        let mut out = [0; crate::serial::MAX_TEXT];
        let len = form.write(&mut out, id).expect("it fits");
        assert!(len <= form.longest(20));
        std::str::from_utf8(&out[..len]).expect("ASCII").to_owned()
    }

    #[test]
    fn the_ends_of_the_numbers_have_all_their_characters() {
        for (digits, zero, one, most) in [
            (IdDigits::Crockford, "0000000000000", "0000000000001", "FZZZZZZZZZZZZ"),
            (IdDigits::Base62, "00000000000", "00000000001", "LygHa16AHYF"),
            (IdDigits::Base36, "0000000000000", "0000000000001", "3w5e11264sgsf"),
            (IdDigits::Decimal, "0", "1", "18446744073709551615"),
        ] {
            for (id, wanted) in [(0, zero), (1, one), (u64::MAX, most)] {
                assert_eq!(text(form(digits, ""), id), wanted);
                assert_eq!(text(form(digits, "ord_"), id), format!("ord_{wanted}"));
            }
        }
    }

    #[test]
    fn what_is_no_text_of_the_form_is_refused_with_what_was_seen() {
        let crockford = form(IdDigits::Crockford, "ord_");
        assert_eq!(crockford.read("ord_ooooooooooooi"), Ok(1), "letters that look like digits");
        assert_eq!(crockford.read("ord_000000000000a"), Ok(10));
        assert_eq!(
            crockford.read("1234567890123"),
            Ok(1_234_567_890_123),
            "without the prefix it is a number"
        );
        assert_eq!(
            form(IdDigits::Crockford, "").read("1234567890123"),
            Ok(1_228_503_247_364_293_699),
            "it has the width"
        );
        assert_eq!(form(IdDigits::Crockford, "").read("123"), Ok(123));
        assert_eq!(
            form(IdDigits::Base36, "").read("ZZ"),
            Err(Error::argument("`ZZ` is no id: it has 2 characters, and base36 has 13"))
        );
        assert_eq!(form(IdDigits::Base36, "").read("3W5E11264SGSF"), Ok(u64::MAX));
        for (form, text, told) in [
            (crockford, "0RD_0000000000001", "begins with `ord_`"),
            (crockford, "ord_", "begins with `ord_`"),
            (crockford, "", "begins with `ord_`"),
            (crockford, "ord_000000000001", "has 12 characters behind the prefix, and crockford has 13"),
            (crockford, "ord_000000000000u", "`u` is no digit of crockford"),
            (crockford, "ord_00000000000\u{e9}", "`é` is no digit of crockford"),
            (crockford, "ord_G000000000000", "more than 64 bits"),
            (crockford, "18446744073709551616", "more than 64 bits"),
            (form(IdDigits::Crockford, ""), "000000000012", "has 12 characters, and crockford has 13"),
            (form(IdDigits::Base62, ""), "0000000012", "has 10 characters, and base62 has 11"),
            (form(IdDigits::Base36, ""), "00000000000012", "has 14 characters, and base36 has 13"),
            (form(IdDigits::Base62, ""), "LygHa16AHYG", "more than 64 bits"),
            (form(IdDigits::Base62, ""), "zzzzzzzzzzz", "more than 64 bits"),
            (form(IdDigits::Base62, ""), "0000000000-", "`-` is no digit of base62"),
            (form(IdDigits::Base36, "a"), "b0000000000000", "begins with `a`"),
            (form(IdDigits::Decimal, "no_"), "no_12x", "`x` is no digit of decimal"),
            (form(IdDigits::Decimal, ""), "007", "no zeros in front"),
            (form(IdDigits::Decimal, ""), "00", "no zeros in front"),
            (form(IdDigits::Decimal, "no_"), "no_007", "no zeros in front"),
            (form(IdDigits::Decimal, "no_"), "007", "begins with `no_`"),
            (form(IdDigits::Decimal, ""), "+5", "positive whole number"),
            (form(IdDigits::Decimal, ""), "", "positive whole number"),
        ] {
            let error = form.read(text).expect_err(text);
            assert!(error.message.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn a_prefix_is_short_plain_and_no_number() {
        for prefix in ["Ord", "or-", "é", "a23456789_1234567", "12", " "] {
            assert!(TextForm::new(IdDigits::Base62, prefix).is_err(), "{prefix}");
        }
        assert_eq!(text(form(IdDigits::Decimal, "a1"), 23), "a123");
        assert_eq!(form(IdDigits::Decimal, "a1").read("a123"), Ok(23));
    }

    fn digits() -> impl Strategy<Value = IdDigits> {
        prop::sample::select(IdDigits::ALL.map(|(_, digits)| digits).to_vec())
    }

    /// Decoders of other libraries.
    fn decoded(digits: IdDigits, text: &str) -> u64 {
        match digits {
            IdDigits::Decimal => text.parse().expect("decimal digits"),
            IdDigits::Base36 => u64::from_str_radix(text, 36).expect("base 36"),
            IdDigits::Base62 => u64::try_from(base62::decode(text).expect("base 62")).expect("64 bits"),
            IdDigits::Crockford => {
                let mut base32 = data_encoding::Specification::new();
                base32.symbols.push_str("0123456789ABCDEFGHJKMNPQRSTVWXYZ");
                // It decodes whole bytes from the left: three digits in front make 80 bits.
                let bytes = base32.encoding().expect("an encoding").decode(format!("000{text}").as_bytes());
                u64::from_be_bytes(bytes.expect("base 32")[2..].try_into().expect("ten bytes"))
            }
        }
    }

    proptest! {
        #[test]
        fn other_libraries_read_what_is_written(digits in digits(), id: u64, shift in 0..64_u32) {
            for id in [id >> shift, !(id >> shift)] {
                prop_assert_eq!(decoded(digits, &text(form(digits, ""), id)), id);
            }
        }

        #[test]
        fn what_is_written_is_read(digits in digits(), prefix in "([a-z_][a-z0-9_]{0,15})?", id: u64) {
            let form = form(digits, &prefix);
            prop_assert_eq!(form.read(&text(form, id)), Ok(id));
        }

        #[test]
        fn the_order_of_texts_is_that_of_numbers(digits in digits(), one: u64, two: u64) {
            prop_assume!(digits != IdDigits::Decimal);
            let form = form(digits, "x_");
            prop_assert_eq!(text(form, one).cmp(&text(form, two)), one.cmp(&two));
        }

        #[test]
        fn no_text_is_a_panic(digits in digits(), prefix in "([a-z_]{1,4})?", text in ".{0,20}") {
            let _ = form(digits, &prefix).read(&text);
        }
    }
}
