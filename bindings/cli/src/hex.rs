//! Bytes in hexadecimal digits.

/// The bytes that hexadecimal digits write.
pub fn bytes(digits: &str) -> Option<Vec<u8>> {
    // `from_str_radix` allows a sign.
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok()
        })
        .collect()
}
