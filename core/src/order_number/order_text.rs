//! Order numbers as text: Crockford's base 32 (<https://www.crockford.com/base32.html>), the most significant digit first.
//!
//! 16 bytes have 26 characters; the first is 0 to 7. 8 bytes have 13 characters, the first 0 to 7, and a check symbol: the
//! number modulo 37. Small letters are read too, `i` and `l` as 1, `o` as 0.

use crate::error::{Error, Result, shown};
use crate::text_form::{CROCKFORD, crockford_digit as digit};

/// The characters of an order number of 16 bytes.
pub const TEXT_LENGTH: usize = 26;

/// The characters of an order number of 8 bytes, its check symbol included.
pub const TEXT8_LENGTH: usize = 14;

/// The order number of 16 bytes as text.
pub(crate) fn text_of(order_no: &[u8; 16]) -> [u8; TEXT_LENGTH] {
    let number = u128::from_be_bytes(*order_no);
    std::array::from_fn(|at| CROCKFORD[(number >> (5 * (TEXT_LENGTH - 1 - at))) as usize & 31])
}

/// The order number of 8 bytes as text.
pub(crate) fn text8_of(order_no: u64) -> [u8; TEXT8_LENGTH] {
    std::array::from_fn(|at| match TEXT8_LENGTH - 1 - at {
        0 => CROCKFORD[(order_no % 37) as usize],
        left => CROCKFORD[(order_no >> (5 * (left - 1))) as usize & 31],
    })
}

/// Reads the text of an order number of 16 bytes.
///
/// # Errors
/// `INVALID_ARGUMENT`: the length or a character.
pub fn read_text(text: &str) -> Result<[u8; 16]> {
    let length = text.chars().count();
    if length != TEXT_LENGTH {
        return Err(Error::argument(format!(
            "`{}` has {length} characters; an order number of 16 bytes has {TEXT_LENGTH}, and one of 8 bytes {TEXT8_LENGTH}",
            shown(text)
        )));
    }
    let mut number: u128 = 0;
    for (at, c) in text.bytes().enumerate() {
        let digit = digit(c).ok_or_else(|| wrong_character(text, at))?;
        if at == 0 && digit > 7 {
            return Err(Error::argument(format!(
                "`{}` is no order number of 16 bytes: its first character is 0 to 7",
                shown(text)
            )));
        }
        number = number << 5 | u128::from(digit);
    }
    Ok(number.to_be_bytes())
}

/// Reads the text of an order number of 8 bytes.
///
/// # Errors
/// `INVALID_ARGUMENT`: the length, a character, or the check symbol.
pub fn read_text8(text: &str) -> Result<u64> {
    let length = text.chars().count();
    if length != TEXT8_LENGTH {
        return Err(Error::argument(format!(
            "`{}` has {length} characters; an order number of 8 bytes has {TEXT8_LENGTH}, and one of 16 bytes {TEXT_LENGTH}",
            shown(text)
        )));
    }
    let (digits, check) = text.as_bytes().split_at(TEXT8_LENGTH - 1);
    let mut number: u64 = 0;
    for (at, c) in digits.iter().enumerate() {
        let digit = digit(*c).ok_or_else(|| wrong_character(text, at))?;
        if at == 0 && digit > 7 {
            return Err(Error::argument(format!(
                "`{}` is no order number of 8 bytes: its first character is 0 to 7",
                shown(text)
            )));
        }
        number = number << 5 | u64::from(digit);
    }
    let given = digit(check[0]).map(usize::from).or_else(|| {
        CROCKFORD
            .iter()
            .skip(32)
            .position(|symbol| *symbol == check[0].to_ascii_uppercase())
            .map(|at| 32 + at)
    });
    if given != Some((number % 37) as usize) {
        return Err(Error::argument(format!(
            "`{}` is mistyped: its last character, the check symbol, does not fit the others",
            shown(text)
        )));
    }
    Ok(number)
}

#[cold]
fn wrong_character(text: &str, at: usize) -> Error {
    let found = text.get(at..).and_then(|rest| rest.chars().next()).unwrap_or(char::REPLACEMENT_CHARACTER);
    Error::argument(format!(
        "`{}` is no order number: character {} is `{}`, and only digits and letters but U are used",
        shown(text),
        at + 1,
        shown(&found.to_string())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn utf8(text: &[u8]) -> &str {
        std::str::from_utf8(text).expect("ASCII")
    }

    #[test]
    fn the_ends_of_the_numbers_have_all_their_characters() {
        assert_eq!(utf8(&text_of(&[0; 16])), "00000000000000000000000000");
        assert_eq!(utf8(&text_of(&[255; 16])), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        // 32 is the first check symbol that is no digit: 32 modulo 37, and 36 is the last.
        for (number, text) in [
            (0, "00000000000000"),
            (1, "00000000000011"),
            (32, "0000000000010*"),
            (36, "0000000000014U"),
            (37, "00000000000150"),
            (i64::MAX as u64, "7ZZZZZZZZZZZZ5"),
        ] {
            assert_eq!(utf8(&text8_of(number)), text);
            assert_eq!(read_text8(text), Ok(number));
            assert_eq!(read_text8(&text.to_lowercase()), Ok(number));
        }
    }

    #[test]
    fn letters_that_look_like_digits_are_read_as_such() {
        assert_eq!(
            read_text("0oOiIlL00000000000000000ab"),
            read_text("00011110000000000000000 0AB".replace(' ', "").as_str())
        );
    }

    #[test]
    fn other_lengths_and_characters_are_refused_with_what_was_seen() {
        for (text, told) in [
            ("", "has 0 characters"),
            ("0000000000000000000000000", "has 25 characters"),
            ("8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "its first character is 0 to 7"),
            ("0000000000000000000000000U", "character 26 is `U`"),
            ("000000-0000000000000000000", "character 7 is `-`"),
            ("é00000000000000000000000é", "has 25 characters"),
            ("00é0000000000000000000000!", "character 3 is `é`"),
        ] {
            let error = read_text(text).expect_err(text);
            assert!(error.message.contains(told), "{error}");
        }
        for (text, told) in [
            ("0000000000000", "has 13 characters"),
            ("80000000000000", "its first character is 0 to 7"),
            ("0000000000000!", "is mistyped"),
            ("00000000000012", "is mistyped"),
            ("000000000000*0", "character 13 is `*`"),
        ] {
            let error = read_text8(text).expect_err(text);
            assert!(error.message.contains(told), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: [u8; 16], number in 0..1_u64 << 63) {
            prop_assert_eq!(read_text(utf8(&text_of(&bytes))), Ok(bytes));
            prop_assert_eq!(read_text8(utf8(&text8_of(number))), Ok(number));
        }

        #[test]
        fn a_check_symbol_finds_each_wrong_digit_and_each_swap_of_neighbours(number in 0..1_u64 << 63, at in 0..13_usize, digit in 0..32_usize) {
            let text = text8_of(number);
            let mut wrong = text;
            wrong[at] = CROCKFORD[digit];
            prop_assert!(wrong == text || read_text8(utf8(&wrong)).is_err());
            let mut swapped = text;
            swapped.swap(at, (at + 1).min(12));
            prop_assert!(swapped == text || read_text8(utf8(&swapped)).is_err());
        }
    }
}
