//! Genes: 16 bits of a business key that an id carries, so that the id alone says its shard.
//!
//! `gene = (xxhash64(key, 0) ^ murmurhash64A(key, 0)) & 0xFFFF`. A text key is its UTF-8 bytes, an integer key its 8 bytes
//! little-endian, so `42` and `"42"` have different genes. The 65 536 genes are the virtual nodes of the ring that a
//! router divides into shards.
//!
//! An id with a gene has one of two forms. Both are positive numbers, ordered by their genes first:
//!
//! * 64 bits: a zero, the gene in 16 bits, a number in 47.
//! * 128 bits: a zero, the gene in 16 bits, a number below 2^63 in the 111 bits that are left.

pub(crate) mod hash;

use std::fmt;

use crate::error::{Error, Result};

/// The longest key in bytes.
pub const LONGEST_KEY: usize = 64 << 10;

/// How many virtual nodes the ring has: one for each gene.
pub const GENES: u32 = 1 << 16;

/// Bits of the number in an id of 64 bits; the gene stands above them.
pub(crate) const NUMBER_BITS: u32 = 47;

/// Where the gene of an id of 128 bits begins.
pub(crate) const WIDE_SHIFT: u32 = 111;

/// The gene of a business key: a virtual node of the ring, 0 to 65535.
///
/// ```
/// use keymill::Gene;
/// let gene = Gene::of("buyer-42")?;
/// assert_eq!(gene.get(), 56443);
/// assert_eq!(Gene::of_id(u64::from(gene.get()) << 47 | 17)?, gene);
/// # Ok::<(), keymill::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gene(u16);

impl Gene {
    /// The gene of a key: a text, bytes, or an integer.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the key is longer than [`LONGEST_KEY`] bytes. An integer never is.
    #[inline]
    pub fn of<'k>(key: impl Into<GeneKey<'k>>) -> Result<Gene> {
        match key.into() {
            GeneKey::Number(key) => Ok(Gene::of_number(key)),
            GeneKey::Text(key) if key.len() <= LONGEST_KEY => {
                Ok(Gene((hash::xxhash64(key) ^ hash::murmurhash64a(key)) as u16))
            }
            GeneKey::Text(key) => Err(too_long(key.len())),
        }
    }

    /// The gene of an integer key; a negative one is given as its two's complement, `-1_i64 as u64`.
    #[inline]
    #[must_use]
    pub const fn of_number(key: u64) -> Gene {
        Gene((hash::xxhash64_of_word(key) ^ hash::murmurhash64a_of_word(key)) as u16)
    }

    /// The gene in an id of 64 bits.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the id is 2^63 or more, which no id with a gene is.
    #[inline]
    pub fn of_id(id: u64) -> Result<Gene> {
        if id >> 63 != 0 {
            return Err(no_id(id));
        }
        Ok(Gene((id >> NUMBER_BITS) as u16))
    }

    /// The gene in an id of 128 bits.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the id is negative as a signed number, or the number in it is 2^63 or more.
    #[inline]
    pub fn of_wide(id: u128) -> Result<Gene> {
        if id >> 127 != 0 || (id >> 63) as u64 & ((1 << (WIDE_SHIFT - 63)) - 1) != 0 {
            return Err(no_wide_id(id));
        }
        Ok(Gene((id >> WIDE_SHIFT) as u16))
    }

    /// The gene as a number.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Which of `parts` equal parts of the ring the gene belongs to, from 0. `parts` is 1 to [`GENES`].
    #[inline]
    #[must_use]
    pub const fn part(self, parts: u32) -> u32 {
        ((self.0 as u64 * parts as u64) >> 16) as u32
    }
}

impl From<u16> for Gene {
    fn from(gene: u16) -> Gene {
        Gene(gene)
    }
}

impl From<Gene> for u16 {
    fn from(gene: Gene) -> u16 {
        gene.0
    }
}

impl fmt::Display for Gene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A business key, such as a buyer's number or name. Made from integers, texts and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GeneKey<'k> {
    /// An integer; a negative one as its two's complement.
    Number(u64),
    /// The UTF-8 bytes of a text.
    Text(&'k [u8]),
}

impl From<u64> for GeneKey<'_> {
    #[inline]
    fn from(key: u64) -> Self {
        GeneKey::Number(key)
    }
}

impl From<i64> for GeneKey<'_> {
    #[inline]
    fn from(key: i64) -> Self {
        GeneKey::Number(key as u64)
    }
}

impl From<u32> for GeneKey<'_> {
    #[inline]
    fn from(key: u32) -> Self {
        GeneKey::Number(u64::from(key))
    }
}

impl From<i32> for GeneKey<'_> {
    #[inline]
    fn from(key: i32) -> Self {
        GeneKey::from(i64::from(key))
    }
}

impl<'k> From<&'k str> for GeneKey<'k> {
    #[inline]
    fn from(key: &'k str) -> Self {
        GeneKey::Text(key.as_bytes())
    }
}

impl<'k> From<&'k String> for GeneKey<'k> {
    #[inline]
    fn from(key: &'k String) -> Self {
        GeneKey::Text(key.as_bytes())
    }
}

impl<'k> From<&'k [u8]> for GeneKey<'k> {
    #[inline]
    fn from(key: &'k [u8]) -> Self {
        GeneKey::Text(key)
    }
}

impl<'k, const N: usize> From<&'k [u8; N]> for GeneKey<'k> {
    #[inline]
    fn from(key: &'k [u8; N]) -> Self {
        GeneKey::Text(key)
    }
}

#[cold]
fn too_long(length: usize) -> Error {
    Error::argument(format!("a business key of {length} bytes; the longest has {LONGEST_KEY} bytes"))
}

#[cold]
fn no_id(id: u64) -> Error {
    Error::argument(format!("{id} is no business id: it is 2^63 or more, and bit 63 of an id is always 0"))
}

#[cold]
fn no_wide_id(id: u128) -> Error {
    Error::argument(format!(
        "{id} is no business id of 128 bits: the highest bit is 0, the next 16 are the gene, and the rest is a number below 2^63"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use proptest::prelude::*;

    #[test]
    fn a_key_of_64_kib_is_hashed_and_a_longer_one_is_refused_with_its_length() {
        let key = vec![b'x'; LONGEST_KEY + 1];
        assert!(Gene::of(&key[1..]).is_ok());
        let error = Gene::of(&key[..]).expect_err("too long");
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains("65537 bytes"), "{error}");
    }

    #[test]
    fn an_integer_key_is_its_eight_bytes_little_endian() {
        for key in [0, 1, 42, i64::MAX, i64::MIN, -1] {
            assert_eq!(Gene::of(key), Gene::of(&key.to_le_bytes()), "{key}");
            assert_eq!(Gene::of(key), Gene::of(key as u64), "{key}");
        }
        assert_eq!(Gene::of(-1), Gene::of(-1_i64));
        assert_eq!(Gene::of(42_u32), Gene::of(42_u64));
        assert_ne!(Gene::of(42), Gene::of("42"));
    }

    /// Computed in Python by the package `xxhash` and by libstdc++, whose `std::_Hash_bytes` is murmurhash64A.
    #[test]
    fn genes_computed_apart() {
        for (key, gene) in [("", 59801), ("42", 48683), ("buyer-42", 56443)] {
            assert_eq!(Gene::of(key), Ok(Gene(gene)), "{key}");
        }
        for (key, gene) in [(0, 13882), (42, 61763), (-1, 45076)] {
            assert_eq!(Gene::of(key), Ok(Gene(gene)), "{key}");
        }
    }

    #[test]
    fn ids_of_the_wrong_form_are_refused() {
        assert_eq!(Gene::of_id((1 << 63) - 1), Ok(Gene(0xFFFF)));
        assert_eq!(Gene::of_wide(0xFFFF << 111 | ((1 << 63) - 1)), Ok(Gene(0xFFFF)));
        for error in
            [Gene::of_id(1 << 63), Gene::of_wide(1 << 127), Gene::of_wide(1 << 63), Gene::of_wide(1 << 110)]
        {
            assert_eq!(error.expect_err("of the wrong form").code, Code::InvalidArgument);
        }
    }

    proptest! {
        #[test]
        fn the_gene_of_an_id_is_the_one_it_was_made_with(gene: u16, number in 0..1_u64 << 47, wide in 0..1_u128 << 63) {
            prop_assert_eq!(Gene::of_id(u64::from(gene) << 47 | number), Ok(Gene(gene)));
            prop_assert_eq!(Gene::of_wide(u128::from(gene) << 111 | wide), Ok(Gene(gene)));
        }

        #[test]
        fn neighbouring_genes_share_a_part(gene: u16, bits in 0..=16_u32) {
            prop_assert_eq!(Gene(gene).part(1 << bits), u32::from(gene) >> (16 - bits));
        }
    }
}
