//! The two hashes behind a gene, both with seed 0 and both defined over little-endian words.
//!
//! * xxhash64 is Yann Collet's (<https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>).
//! * murmurhash64A is Austin Appleby's (<https://github.com/aappleby/smhasher/blob/master/src/MurmurHash2.cpp>).
//!
//! They are written out here because a key is hashed for each id: calls into a crate are not inlined, and packages build
//! their crates for size. Tests compare both with the crates `twox-hash` and `murmur2` over every length.

const P1: u64 = 0x9E37_79B1_85EB_CA87;
const P2: u64 = 0xC2B2_AE3D_27D4_EB4F;
const P3: u64 = 0x1656_67B1_9E37_79F9;
const P4: u64 = 0x85EB_CA77_C2B2_AE63;
const P5: u64 = 0x27D4_EB2F_1656_67C5;

/// xxhash64 of `key`, seed 0.
#[inline]
pub(crate) fn xxhash64(key: &[u8]) -> u64 {
    let start = if key.len() < 32 { P5 } else { stripes(key) };
    let mut hash = start.wrapping_add(key.len() as u64);
    let (words, rest) = key[key.len() & !31..].as_chunks::<8>();
    for word in words {
        hash = xx_word(hash, u64::from_le_bytes(*word));
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        hash ^= u64::from(u32::from_le_bytes(*half)).wrapping_mul(P1);
        hash = hash.rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(P5);
        hash = hash.rotate_left(11).wrapping_mul(P1);
    }
    xx_end(hash)
}

/// [`xxhash64`] of the 8 bytes of `key`, little-endian.
#[inline]
pub(super) const fn xxhash64_of_word(key: u64) -> u64 {
    xx_end(xx_word(P5.wrapping_add(8), key))
}

/// What the whole stripes of 32 bytes give; `key` has one at least.
#[inline(never)]
fn stripes(key: &[u8]) -> u64 {
    let mut lanes = [P1.wrapping_add(P2), P2, 0, 0_u64.wrapping_sub(P1)];
    for stripe in key.as_chunks::<32>().0 {
        for (lane, word) in lanes.iter_mut().zip(stripe.as_chunks::<8>().0) {
            *lane = xx_round(*lane, u64::from_le_bytes(*word));
        }
    }
    let [a, b, c, d] = lanes;
    let mut hash = a.rotate_left(1);
    hash =
        hash.wrapping_add(b.rotate_left(7)).wrapping_add(c.rotate_left(12)).wrapping_add(d.rotate_left(18));
    for lane in lanes {
        hash = (hash ^ xx_round(0, lane)).wrapping_mul(P1).wrapping_add(P4);
    }
    hash
}

#[inline]
const fn xx_round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

#[inline]
const fn xx_word(hash: u64, word: u64) -> u64 {
    (hash ^ xx_round(0, word)).rotate_left(27).wrapping_mul(P1).wrapping_add(P4)
}

#[inline]
const fn xx_end(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 33).wrapping_mul(P2);
    hash = (hash ^ hash >> 29).wrapping_mul(P3);
    hash ^ hash >> 32
}

const M: u64 = 0xC6A4_A793_5BD1_E995;

/// murmurhash64A of `key`, seed 0.
#[inline]
pub(super) fn murmurhash64a(key: &[u8]) -> u64 {
    let mut hash = M.wrapping_mul(key.len() as u64);
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = murmur_word(hash, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    murmur_end(hash)
}

/// [`murmurhash64a`] of the 8 bytes of `key`, little-endian.
#[inline]
pub(super) const fn murmurhash64a_of_word(key: u64) -> u64 {
    murmur_end(murmur_word(M.wrapping_mul(8), key))
}

#[inline]
const fn murmur_word(hash: u64, word: u64) -> u64 {
    let word = word.wrapping_mul(M);
    (hash ^ (word ^ word >> 47).wrapping_mul(M)).wrapping_mul(M)
}

#[inline]
const fn murmur_end(mut hash: u64) -> u64 {
    hash = (hash ^ hash >> 47).wrapping_mul(M);
    hash ^ hash >> 47
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The values of murmurhash64A are from the tests of pyfasthash and of the Python package `murmurhash`.
    #[test]
    fn values_that_others_publish() {
        assert_eq!(xxhash64(b""), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxhash64(b"a"), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxhash64(b"abc"), 0x44BC_2CF5_AD77_0999);
        assert_eq!(xxhash64(b"Nobody inspects the spammish repetition"), 0xFBCE_A83C_8A37_8BF1);
        assert_eq!(murmurhash64a(b""), 0);
        assert_eq!(murmurhash64a(b"test"), 3_407_684_658_384_555_107);
        assert_eq!(murmurhash64a(b"abracadabra"), 17_521_050_468_336_101_133);
    }

    #[test]
    fn every_length_hashes_as_the_crates_do() {
        let bytes: Vec<u8> = (0..600_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in 0..bytes.len() {
            let key = &bytes[..length];
            assert_eq!(xxhash64(key), twox_hash::XxHash64::oneshot(0, key), "{length}");
            assert_eq!(murmurhash64a(key), murmur2::murmur64a(key, 0), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_key_hashes_as_the_crates_do(key in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(xxhash64(&key), twox_hash::XxHash64::oneshot(0, &key));
            prop_assert_eq!(murmurhash64a(&key), murmur2::murmur64a(&key, 0));
        }

        #[test]
        fn a_word_hashes_as_its_bytes(key: u64) {
            prop_assert_eq!(xxhash64_of_word(key), xxhash64(&key.to_le_bytes()));
            prop_assert_eq!(murmurhash64a_of_word(key), murmurhash64a(&key.to_le_bytes()));
        }
    }
}
