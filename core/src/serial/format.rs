//! Writes a serial number: date part, then the zero-padded number. No allocation, no `format!`.
//!
//! Eight digits are made in one machine word ("SWAR"), after Paul Khuong, "How to print integers really fast"
//! (<https://pvk.ca/Blog/2017/12/22/appnexus-common-framework-its-out-also-how-to-print-integers-faster/>).

use std::fmt;

/// The longest rendered date part, in bytes.
pub const MAX_PREFIX: usize = 56;

/// The longest text of a serial number, in bytes: a date part and the twenty digits a `u64` can have. No text of an id is longer.
pub const MAX_TEXT: usize = MAX_PREFIX + 20;

/// The powers of ten that fit a `u64`; the index is the number of zeros.
pub(super) const POW10: [u64; 20] = {
    let mut table = [1; 20];
    let mut zeros = 1;
    while zeros < table.len() {
        table[zeros] = table[zeros - 1] * 10;
        zeros += 1;
    }
    table
};

/// The rendered date part of one period, quoted literals included: `CUST20261120`.
///
/// It is a plain value of eight words and a length, so that a range can carry it in a cell of atomics.
///
/// ```
/// use keymill::serial::{Prefix, SerialPattern};
/// let pattern = SerialPattern::new("'CUST'yyyyMMdd", "000000", "UTC")?;
/// let prefix = pattern.prefix(20261120000000000);
/// assert_eq!(prefix.as_str(), "CUST20261120");
/// let (words, len) = prefix.to_words();
/// assert_eq!(Prefix::from_words(words, len), prefix);
/// # Ok::<(), keymill::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// The bytes past `len` are zero, so equal prefixes have equal words.
    bytes: [u8; 64],
    /// At most [`MAX_PREFIX`].
    len: u8,
}

impl Prefix {
    /// The date part of a pattern that has none.
    pub const EMPTY: Prefix = Prefix { bytes: [0; 64], len: 0 };

    /// The date part as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let bytes = self.as_bytes();
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            // Only torn words (`from_words`) are not UTF-8; the valid part is returned.
            Err(broken) => bytes
                .get(..broken.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok())
                .unwrap_or_default(),
        }
    }

    /// The date part as UTF-8 bytes.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// How many bytes the date part has.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is no date part.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Eight words and the length, for a cell of atomics.
    #[must_use]
    pub fn to_words(&self) -> ([u64; 8], u8) {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(self.bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        (words, self.len)
    }

    /// The prefix of these words. Torn words (from a racing read) make some prefix, never a panic: the length is cut to
    /// [`MAX_PREFIX`] and bytes past it are dropped.
    #[inline]
    #[must_use]
    pub fn from_words(words: [u64; 8], len: u8) -> Prefix {
        let mut prefix = Prefix { bytes: [0; 64], len: len.min(MAX_PREFIX as u8) };
        for (bytes, word) in prefix.bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        let len = prefix.len();
        if let Some(rest) = prefix.bytes.get_mut(len..) {
            rest.fill(0);
        }
        prefix
    }

    /// The prefix of words that are read one by one, only as many as `len` needs.
    ///
    /// Torn words make some prefix, as in [`Prefix::from_words`], which must not be used then: bytes past `len` may
    /// not be zero.
    #[inline]
    pub(crate) fn from_words_read(len: u8, word: impl Fn(usize) -> u64) -> Prefix {
        let mut prefix = Prefix { bytes: [0; 64], len: len.min(MAX_PREFIX as u8) };
        let used = prefix.len().div_ceil(8);
        for (at, bytes) in prefix.bytes.as_chunks_mut::<8>().0.iter_mut().enumerate().take(used) {
            *bytes = word(at).to_le_bytes();
        }
        prefix
    }

    /// Eight bytes from `at`, which is at most 56.
    #[inline]
    fn word_at(&self, at: usize) -> [u8; 8] {
        self.bytes.get(at..).and_then(<[u8]>::first_chunk::<8>).copied().unwrap_or_default()
    }

    /// Appends text; bytes past [`MAX_PREFIX`] are dropped, which a checked pattern never reaches.
    pub(super) fn push_str(&mut self, text: &str) {
        for byte in text.bytes() {
            self.push_byte(byte);
        }
    }

    /// Appends the lowest `width` digits of `value`.
    pub(super) fn push_digits(&mut self, value: u64, width: u32) {
        for place in (0..width).rev() {
            let power = POW10.get(place as usize).copied().unwrap_or(u64::MAX);
            self.push_byte(b'0' + (value / power % 10) as u8);
        }
    }

    fn push_byte(&mut self, byte: u8) {
        if let Some(place) =
            self.bytes.get_mut(..MAX_PREFIX).and_then(|bytes| bytes.get_mut(usize::from(self.len)))
        {
            *place = byte;
            self.len += 1;
        }
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Prefix::EMPTY
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Prefix").field(&self.as_str()).finish()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Writes `number` with at least `width` digits at the front of `out` and returns how many bytes that took; `None`, with `out`
/// untouched, where it does not fit.
///
/// A number with more digits is written in full, as `DecimalFormat` does; a caller that forbids this checks before.
///
/// ```
/// let mut out = [0; 20];
/// assert_eq!(keymill::serial::write_number(&mut out, 42, 6), Some(6));
/// assert_eq!(&out[..6], b"000042");
/// assert_eq!(keymill::serial::write_number(&mut out, 1_000_000, 6), Some(7));
/// assert_eq!(keymill::serial::write_number(&mut out[..5], 42, 6), None);
/// ```
#[inline]
#[must_use]
pub fn write_number(out: &mut [u8], number: u64, width: u32) -> Option<usize> {
    let digits = digits(number, width);
    write_digits(out.get_mut(..digits)?, number);
    Some(digits)
}

/// Writes the date part and the number at the front of `out` and returns how many bytes that took; `None`, with `out` untouched,
/// where it does not fit. [`MAX_TEXT`] bytes are always enough for a `width` of up to 20.
///
/// ```
/// use keymill::serial::{SerialPattern, write_serial};
/// let pattern = SerialPattern::new("yyyyMMdd", "000000", "UTC")?;
/// let mut out = [0; 32];
/// let len = write_serial(&mut out, &pattern.prefix(20261120000000000), 1, pattern.width());
/// assert_eq!(&out[..len.unwrap_or(0)], b"20261120000001");
/// # Ok::<(), keymill::Error>(())
/// ```
#[inline]
#[must_use]
pub fn write_serial(out: &mut [u8], prefix: &Prefix, number: u64, width: u32) -> Option<usize> {
    let (date, digits) = (prefix.len(), width as usize);
    // The usual patterns, `yyyyMMdd` before up to eight digits: three stores of a word, independent of the number of digits. All eight
    // digits go to the end, then the date part overwrites those in excess.
    if let Some(&limit) = BELOW.get(digits)
        && number < limit
        && (8..=16).contains(&date)
        && let Some(out) = out.get_mut(..date + digits)
        && let Some(end) = out.last_chunk_mut::<8>()
    {
        *end = eight_digits(number as u32);
        if let Some(end) = out.get_mut(date - 8..).and_then(<[u8]>::first_chunk_mut::<8>) {
            *end = prefix.word_at(date - 8);
        }
        if let Some(start) = out.first_chunk_mut::<8>() {
            *start = prefix.word_at(0);
        }
        return Some(date + digits);
    }
    write_any(out, prefix, number, width)
}

/// The exclusive upper bound of numbers of up to eight digits, by width; 0 for a width of 0, which is not usual.
const BELOW: [u64; 9] = {
    let mut table = [0; 9];
    let mut digits = 1;
    while digits < table.len() {
        table[digits] = POW10[digits];
        digits += 1;
    }
    table
};

/// Any date part before any number.
#[inline(never)]
fn write_any(out: &mut [u8], prefix: &Prefix, number: u64, width: u32) -> Option<usize> {
    let date = prefix.as_bytes();
    let total = date.len() + digits(number, width);
    let (head, tail) = out.get_mut(..total)?.split_at_mut_checked(date.len())?;
    copy(head, date);
    write_digits(tail, number);
    Some(total)
}

/// Appends the date part and the number to `out`.
///
/// ```
/// use keymill::serial::{SerialPattern, push_serial};
/// let pattern = SerialPattern::new("yyyyMMdd", "000000", "UTC")?;
/// let mut out = String::new();
/// push_serial(&mut out, &pattern.prefix(20261120000000000), 1, pattern.width());
/// assert_eq!(out, "20261120000001");
/// # Ok::<(), keymill::Error>(())
/// ```
#[inline]
pub fn push_serial(out: &mut String, prefix: &Prefix, number: u64, width: u32) {
    // In one piece if it fits, which every width of a number pattern does.
    let mut buffer = [0; MAX_TEXT];
    let written = write_serial(&mut buffer, prefix, number, width).and_then(|len| buffer.get(..len));
    if let Some(Ok(text)) = written.map(std::str::from_utf8) {
        out.push_str(text);
    } else {
        out.push_str(prefix.as_str());
        push_wide(out, number, width);
    }
}

/// Any width, digit by digit.
#[cold]
fn push_wide(out: &mut String, number: u64, width: u32) {
    let mut buffer = [0; 20];
    let len = write_number(&mut buffer, number, 1).unwrap_or(0);
    out.extend(std::iter::repeat_n('0', (width as usize).saturating_sub(len)));
    out.extend(buffer.iter().take(len).map(|&digit| char::from(digit)));
}

/// How many digits `number` is written with.
#[inline]
fn digits(number: u64, width: u32) -> usize {
    match POW10.get(width as usize) {
        Some(&limit) if number < limit && width > 0 => width as usize,
        _ => (number.checked_ilog10().unwrap_or(0) as usize + 1).max(width as usize),
    }
}

/// Fills `out` with the digits of `number`, which has no more than that.
#[inline]
fn write_digits(out: &mut [u8], number: u64) {
    if let Some(unused) = 8_usize.checked_sub(out.len()) {
        // The usual number pattern: one word; its last digits are taken. No division by 10^8.
        if let Some(last) = eight_digits(number as u32).get(unused..) {
            copy(out, last);
        }
    } else {
        write_long(out, number);
    }
}

/// More than eight digits: words of eight from the end, and what is left in front.
fn write_long(out: &mut [u8], mut number: u64) {
    let (front, eights) = out.as_rchunks_mut::<8>();
    for eight in eights.iter_mut().rev() {
        *eight = eight_digits((number % POW10[8]) as u32);
        number /= POW10[8];
    }
    write_digits(front, number);
}

/// Copies between slices of one length. Short ones go in two overlapping words instead of a call of `memcpy`, which
/// would cost more than making the digits does.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() != from.len() {
        return;
    }
    if to.len() <= 16 {
        if ends::<8>(to, from) || ends::<4>(to, from) || ends::<2>(to, from) {
            return;
        }
        if let (Some(to), Some(from)) = (to.first_mut(), from.first()) {
            *to = *from;
        }
        return;
    }
    to.copy_from_slice(from);
}

/// Copies the first and the last `N` bytes; `false` where there are fewer than `N`.
#[inline]
fn ends<const N: usize>(to: &mut [u8], from: &[u8]) -> bool {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else {
        return false;
    };
    if let Some(to) = to.first_chunk_mut::<N>() {
        *to = *first;
    }
    if let Some(to) = to.last_chunk_mut::<N>() {
        *to = *last;
    }
    true
}

/// The eight digits of a number below 10^8, the highest first.
///
/// The word is cut in halves until every byte holds one digit: two lanes of four digits, four of two, eight of one.
/// The divisions by 100 and 10 are multiplications by rounded reciprocals, exact for what a lane can hold
/// (10486 / 2^20 below 10 000, 103 / 2^10 below 100).
#[inline]
fn eight_digits(number: u32) -> [u8; 8] {
    let fours = u64::from(number / 10_000) | u64::from(number % 10_000) << 32;
    let high = ((fours * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let twos = high | (fours - high * 100) << 16;
    let high = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    let ones = high | (twos - high * 10) << 8;
    (ones | 0x3030_3030_3030_3030).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(number: u64, width: u32) -> String {
        let mut out = [b'#'; 64];
        let len = write_number(&mut out, number, width).expect("64 bytes are enough");
        assert!(out[len..].iter().all(|&byte| byte == b'#'), "bytes past the answer were touched");
        String::from_utf8(out[..len].to_vec()).expect("digits")
    }

    fn prefix(text: &str) -> Prefix {
        let mut prefix = Prefix::EMPTY;
        prefix.push_str(text);
        prefix
    }

    #[test]
    fn a_number_is_padded_as_decimal_format_pads_it() {
        // Left: what Java's DecimalFormat gives for the pattern of as many zeros.
        for (text, number, width) in [
            ("0", 0, 1),
            ("42", 42, 1),
            ("000000", 0, 6),
            ("000042", 42, 6),
            ("999999", 999_999, 6),
            ("1000000", 1_000_000, 6),
            ("000000000001000000", 1_000_000, 18),
            ("9223372036854775807", i64::MAX as u64, 18),
            ("18446744073709551615", u64::MAX, 18),
        ] {
            assert_eq!(written(number, width), text);
        }
    }

    #[test]
    fn every_lane_of_the_word_makes_every_digit() {
        for half in 0..10_000 {
            assert_eq!(written(half, 8), format!("{half:08}"));
            assert_eq!(written(half * 10_000, 8), format!("{:08}", half * 10_000));
            assert_eq!(written(half * 10_000 + 9_999, 8), format!("{:08}", half * 10_000 + 9_999));
        }
    }

    #[test]
    fn both_sides_of_every_power_of_ten_are_right_at_every_width() {
        for power in POW10 {
            for number in [power - 1, power, power + 1] {
                for width in 0..=24 {
                    assert_eq!(written(number, width), format!("{number:0width$}", width = width as usize));
                }
            }
        }
    }

    #[test]
    fn a_buffer_one_byte_too_small_is_left_untouched() {
        let date = prefix("20261120");
        for (number, width) in [(1, 6), (1, 8), (1, 18), (1_000_000, 6), (u64::MAX, 1)] {
            let len = format!("{number:0width$}", width = width as usize).len();
            let mut out = vec![b'#'; len - 1];
            assert_eq!(write_number(&mut out, number, width), None);
            assert!(out.iter().all(|&byte| byte == b'#'));
            let mut out = vec![b'#'; date.len() + len - 1];
            assert_eq!(write_serial(&mut out, &date, number, width), None);
            assert!(out.iter().all(|&byte| byte == b'#'));
            let mut out = vec![b'#'; date.len() + len];
            assert_eq!(write_serial(&mut out, &date, number, width), Some(out.len()));
        }
    }

    #[test]
    fn a_date_part_of_any_length_stands_before_the_number() {
        let letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123";
        for len in 0..=MAX_PREFIX {
            let date = prefix(&letters[..len]);
            let mut out = [b'#'; 96];
            let end = write_serial(&mut out, &date, 7, 6).expect("96 bytes are enough");
            assert_eq!(&out[..end], format!("{}000007", &letters[..len]).as_bytes());
            assert!(out[end..].iter().all(|&byte| byte == b'#'));
        }
    }

    #[test]
    fn a_width_beyond_every_pattern_is_padded_and_does_not_panic() {
        let mut out = String::new();
        push_serial(&mut out, &prefix("A"), 7, 200);
        assert_eq!(out, format!("A{:0200}", 7));
        assert_eq!(write_number(&mut [0; 64], 7, u32::MAX), None);
        assert_eq!(write_serial(&mut [0; 64], &prefix("A"), 7, u32::MAX), None);
    }

    #[test]
    fn a_date_part_survives_its_words_and_broken_words_do_no_harm() {
        let date = prefix("客户20261120");
        let (words, len) = date.to_words();
        assert_eq!(Prefix::from_words(words, len), date);
        let torn = Prefix::from_words([u64::MAX; 8], u8::MAX);
        assert_eq!(torn.len(), MAX_PREFIX);
        assert_eq!(torn.as_str(), "");
        let mut out = String::new();
        push_serial(&mut out, &torn, 1, 3);
        assert_eq!(out, "001");
        // Bytes past the length do not make two equal prefixes differ.
        assert_eq!(Prefix::from_words([u64::from_le_bytes(*b"20261120"); 8], 8), prefix("20261120"));
    }

    proptest! {
        #[test]
        fn a_number_equals_what_format_writes(number: u64, shift in 0..64_u32, width in 0..=20_u32) {
            let number = number >> shift;
            prop_assert_eq!(written(number, width), format!("{number:0width$}", width = width as usize));
        }

        #[test]
        fn any_words_and_any_length_are_some_date_part(words: [u64; 8], len: u8, number: u64, width in 0..40_u32) {
            let date = Prefix::from_words(words, len);
            let mut out = [0; 128];
            let end = write_serial(&mut out, &date, number, width);
            prop_assert_eq!(end, Some(date.len() + written(number, width).len()));
            let mut text = String::new();
            push_serial(&mut text, &date, number, width);
        }
    }
}
