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
type Values = [u8; 256];

static CROCKFORD_VALUES: Values = {
    let mut values = values(CROCKFORD, true);
    let mut at = 0;
    let alike = [(b'i', 1), (b'I', 1), (b'l', 1), (b'L', 1), (b'o', 0), (b'O', 0)];
    while at < alike.len() {
        values[alike[at].0 as usize] = alike[at].1;
        at += 1;
    }
    values
};

static BASE36_VALUES: Values = values(BASE36, true);

static BASE62_VALUES: Values = values(BASE62, false);

const fn values(alphabet: &[u8], any_case: bool) -> Values {
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
pub(crate) enum Digits {
    Decimal,
    Crockford,
    Base62,
    Base36,
}

impl Digits {
    /// The names that `text=` takes, the default first.
    pub(crate) const ALL: [(&str, Digits); 4] = [
        ("decimal", Digits::Decimal),
        ("crockford", Digits::Crockford),
        ("base62", Digits::Base62),
        ("base36", Digits::Base36),
    ];

    fn name(self) -> &'static str {
        Digits::ALL.iter().find(|(_, digits)| *digits == self).map_or("", |(name, _)| name)
    }

    fn alphabet(self) -> &'static [u8] {
        match self {
            Digits::Decimal => &BASE36[..10],
            Digits::Crockford => CROCKFORD,
            Digits::Base62 => BASE62,
            Digits::Base36 => BASE36,
        }
    }

    /// How many characters every text has; `None`: as many as the number needs.
    fn width(self) -> Option<usize> {
        match self {
            Digits::Decimal => None,
            Digits::Crockford | Digits::Base36 => Some(13),
            Digits::Base62 => Some(11),
        }
    }

    /// The characters that are read, for people.
    fn in_words(self) -> &'static str {
        match self {
            Digits::Decimal => "digits",
            Digits::Crockford => "digits and letters but U",
            Digits::Base62 | Digits::Base36 => "digits and letters",
        }
    }
}

/// How a source writes its ids, and reads them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextForm {
    digits: Digits,
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
        TextForm { digits: Digits::Decimal, prefix: [0; MAX_PREFIX], prefix_len: 0 };

    /// `None` where the prefix has another character than `[a-z0-9_]`, or more than 16.
    pub(crate) fn new(digits: Digits, prefix: &str) -> Option<TextForm> {
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
        (std::str::from_utf8(self.digits.alphabet()).unwrap_or_default(), self.digits.width().unwrap_or(1))
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
            Digits::Decimal => write_number(out, number, 1)?,
            Digits::Crockford => write_groups::<32, 6, 13, _>(&CROCKFORD_PAIRS, out, number)?,
            Digits::Base36 => write_groups::<36, 6, 13, _>(&BASE36_PAIRS, out, number)?,
            Digits::Base62 => write_groups::<62, 5, 11, _>(&BASE62_PAIRS, out, number)?,
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
            _ if is_decimal => (Digits::Decimal, &BASE62_VALUES),
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
        let radix = digits.alphabet().len() as u64;
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

impl Digits {
    fn values(self) -> &'static Values {
        match self {
            Digits::Crockford => &CROCKFORD_VALUES,
            Digits::Base36 => &BASE36_VALUES,
            Digits::Decimal | Digits::Base62 => &BASE62_VALUES,
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
