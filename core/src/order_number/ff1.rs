//! FF1 of NIST SP 800-38G (<https://doi.org/10.6028/NIST.SP.800-38G>): a keyed permutation of the numbers of one length, which a tweak
//! changes.
//!
//! Ten rounds of a Feistel network over two halves. A round encrypts `P || Q` as CBC-MAC does and adds the result to one half. Only the
//! last block holds the round and the other half; the value before it, [`Shape::start`], is computed once for each key. What is left
//! is one block of AES a round.
//!
//! The rounds run inside the cipher's own call ([`BlockCipherEncClosure`]), so the processor's AES instructions are inlined into them, and
//! several numbers are on their way at once: the cipher gets the blocks of all of them together.
//!
//! The rounds are the same for every radix. keymill uses radix 2; the tests run NIST's samples of radix 10 and 36 through them.

use aes::Block;
use aes::cipher::consts::U16;
use aes::cipher::inout::InOutBuf;
use aes::cipher::{BlockCipherEncBackend, BlockCipherEncClosure, BlockCipherEncrypt, BlockSizeUser};

const ROUNDS: u32 = 10;

/// How many numbers of a batch are on their way at once: as many as the widest processor encrypts together.
pub(super) const LANES: usize = 64;

/// Into the permutation, or out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Forth,
    Back,
}

/// How the halves of a number are added: what depends on the radix.
pub(super) trait Halves: Copy {
    /// `half + y`, or `half - y` on the way back, modulo what the half of this round can be.
    fn combine(self, round: u32, half: u64, y: u128, way: Way) -> u64;
}

/// Halves of bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct BinaryHalves {
    /// The bits of the half that even rounds change, and of the other one.
    masks: [u64; 2],
}

impl Halves for BinaryHalves {
    #[expect(
        clippy::inline_always,
        reason = "it belongs into the function that has the processor's AES instructions"
    )]
    #[inline(always)]
    fn combine(self, round: u32, half: u64, y: u128, way: Way) -> u64 {
        let y = y as u64;
        let sum = match way {
            Way::Forth => half.wrapping_add(y),
            Way::Back => half.wrapping_sub(y),
        };
        sum & self.masks[(round & 1) as usize]
    }
}

/// What depends on the length and the radix of the numbers only.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape<H> {
    halves: H,
    radix: u32,
    digits: u32,
    /// Where the round's number is in the last block: left of the bytes of a half.
    round_shift: u32,
    /// How many bits of an encrypted block follow those that are added.
    y_shift: u32,
}

impl Shape<BinaryHalves> {
    /// Numbers of so many bits, at most 112.
    pub(super) const fn of_bits(bits: u32) -> Shape<BinaryHalves> {
        let (left, right) = (bits / 2, bits - bits / 2);
        let halves = BinaryHalves { masks: [(1 << left) - 1, (1 << right) - 1] };
        Shape::new(halves, 2, bits, right.div_ceil(8))
    }
}

impl<H: Copy> Shape<H> {
    /// `half_bytes`: how many bytes the longer half has as a number, at most 7.
    const fn new(halves: H, radix: u32, digits: u32, half_bytes: u32) -> Shape<H> {
        let y_bytes = 4 * half_bytes.div_ceil(4) + 4;
        Shape { halves, radix, digits, round_shift: 8 * half_bytes, y_shift: 128 - 8 * y_bytes }
    }

    /// The block P, encrypted: where the chain of each number begins whose tweak has so many bytes.
    pub(super) fn start<C>(&self, cipher: &C, tweak_bytes: u32) -> u128
    where
        C: BlockCipherEncrypt<BlockSize = U16>,
    {
        const VERSION_METHOD_ADDITION: u128 = 0x01_02_01;
        let left = self.digits / 2;
        let first = VERSION_METHOD_ADDITION << 104
            | u128::from(self.radix) << 80
            | u128::from(ROUNDS) << 72
            | u128::from(left as u8) << 64
            | u128::from(self.digits) << 32
            | u128::from(tweak_bytes);
        encrypted(cipher, first)
    }
}

/// One block.
fn encrypted<C: BlockCipherEncrypt<BlockSize = U16>>(cipher: &C, block: u128) -> u128 {
    let mut block = Block::from(block.to_be_bytes());
    cipher.encrypt_block(&mut block);
    u128::from_be_bytes(block.0)
}

/// A number on its way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lane {
    /// The upper half of the last block, where the tweak is, with the chain's value before it: see [`Shape::start`].
    pub(super) high: u64,
    /// The number's left half.
    pub(super) left: u64,
    /// Its right half.
    pub(super) right: u64,
}

/// Moves one number through the permutation. `low` is the lower half of the chain's value. Not inlined: the rounds without AES instructions
/// would be in each caller.
#[inline(never)]
pub(super) fn permute<C, H>(cipher: &C, shape: &Shape<H>, low: u64, way: Way, lane: &mut Lane)
where
    C: BlockCipherEncrypt<BlockSize = U16>,
    H: Halves,
{
    cipher.encrypt_with_backend(Rounds::<H, 1> { shape, low, way, lanes: std::slice::from_mut(lane) });
}

/// Moves up to [`LANES`] numbers through the permutation together.
pub(super) fn permute_all<C, H>(cipher: &C, shape: &Shape<H>, low: u64, way: Way, lanes: &mut [Lane])
where
    C: BlockCipherEncrypt<BlockSize = U16>,
    H: Halves,
{
    for lanes in lanes.chunks_mut(LANES) {
        cipher.encrypt_with_backend(Rounds::<H, LANES> { shape, low, way, lanes });
    }
}

/// All rounds of up to `N` numbers.
struct Rounds<'a, H, const N: usize> {
    shape: &'a Shape<H>,
    low: u64,
    way: Way,
    lanes: &'a mut [Lane],
}

impl<H, const N: usize> BlockSizeUser for Rounds<'_, H, N> {
    type BlockSize = U16;
}

impl<H: Halves, const N: usize> BlockCipherEncClosure for Rounds<'_, H, N> {
    #[expect(
        clippy::inline_always,
        reason = "the caller has the processor's AES instructions, and only what is inlined there"
    )]
    #[inline(always)]
    fn call<B: BlockCipherEncBackend<BlockSize = U16>>(self, backend: &B) {
        let Rounds { shape, low, way, lanes } = self;
        let mut blocks = [Block::default(); N];
        let count = lanes.len().min(N);
        let (blocks, lanes) = (&mut blocks[..count], &mut lanes[..count]);
        // On the way back the halves change places: then each round is the same but for its sign.
        let turn = |lanes: &mut [Lane]| {
            if way == Way::Back {
                for lane in lanes {
                    std::mem::swap(&mut lane.left, &mut lane.right);
                }
            }
        };
        turn(lanes);
        for step in 0..ROUNDS {
            let round = match way {
                Way::Forth => step,
                Way::Back => ROUNDS - 1 - step,
            };
            let low = low ^ u64::from(round) << shape.round_shift;
            for (block, lane) in blocks.iter_mut().zip(&*lanes) {
                let last = u128::from(lane.high) << 64 | u128::from(low ^ lane.right);
                *block = Block::from(last.to_be_bytes());
            }
            encrypt::<B, N>(backend, blocks);
            for (block, lane) in blocks.iter().zip(&mut *lanes) {
                let y = u128::from_be_bytes(block.0) >> shape.y_shift;
                let next = shape.halves.combine(round, lane.left, y, way);
                (lane.left, lane.right) = (lane.right, next);
            }
        }
        turn(lanes);
    }
}

#[expect(clippy::inline_always, reason = "as the rounds")]
#[inline(always)]
fn encrypt<B: BlockCipherEncBackend<BlockSize = U16>, const N: usize>(backend: &B, blocks: &mut [Block]) {
    if N == 1 {
        for block in blocks {
            backend.encrypt_block(block.into());
        }
        return;
    }
    let (chunks, rest) = InOutBuf::from(blocks).into_chunks();
    for chunk in chunks {
        backend.encrypt_par_blocks(chunk);
    }
    // The processor overlaps them by itself: none waits for another.
    for block in rest {
        backend.encrypt_block(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::KeyInit;
    use aes::{Aes128Enc, Aes192Enc, Aes256Enc};
    use fpe::ff1::{FF1, FlexibleNumeralString};
    use proptest::prelude::*;

    /// Halves of digits.
    #[derive(Clone, Copy)]
    struct Digits {
        /// The radix to the power of the digits of the half that even rounds change, and of the other one.
        powers: [u64; 2],
    }

    impl Halves for Digits {
        fn combine(self, round: u32, half: u64, y: u128, way: Way) -> u64 {
            let power = self.powers[(round & 1) as usize];
            let y = (y % u128::from(power)) as u64;
            match way {
                Way::Forth => (half + y) % power,
                Way::Back => (half + power - y) % power,
            }
        }
    }

    /// The number that these digits write.
    fn number(digits: &[u16], radix: u16) -> u64 {
        digits.iter().fold(0, |number, digit| number * u64::from(radix) + u64::from(*digit))
    }

    /// `count` digits of a number.
    fn digits(mut number: u64, radix: u16, count: usize) -> Vec<u16> {
        let mut digits = vec![0; count];
        for digit in digits.iter_mut().rev() {
            *digit = (number % u64::from(radix)) as u16;
            number /= u64::from(radix);
        }
        digits
    }

    /// A number of any radix through the rounds.
    fn permuted<C>(cipher: &C, radix: u16, tweak: &[u8], text: &[u16], way: Way) -> Vec<u16>
    where
        C: BlockCipherEncrypt<BlockSize = U16>,
    {
        let (left, right) = text.split_at(text.len() / 2);
        let power = |half: &[u16]| u64::from(radix).pow(half.len() as u32);
        let halves = Digits { powers: [power(left), power(right)] };
        let half_bytes = (power(right) - 1).ilog2() / 8 + 1;
        let shape = Shape::new(halves, u32::from(radix), text.len() as u32, half_bytes);
        // The tweak ends left of the round's number; zeros are in front of that.
        let mut q = tweak.to_vec();
        q.resize((tweak.len() + 1 + half_bytes as usize).next_multiple_of(16), 0);
        let blocks = q.chunks(16).map(|block| u128::from_be_bytes(block.try_into().expect("16 bytes")));
        let mut chain = shape.start(cipher, tweak.len() as u32);
        let mut last = 0;
        for (at, block) in blocks.enumerate() {
            if at > 0 {
                chain = encrypted(cipher, last);
            }
            last = chain ^ block;
        }
        let mut lane =
            Lane { high: (last >> 64) as u64, left: number(left, radix), right: number(right, radix) };
        permute(cipher, &shape, last as u64, way, &mut lane);
        [digits(lane.left, radix, left.len()), digits(lane.right, radix, right.len())].concat()
    }

    const KEY: [u8; 32] = [
        0x2B, 0x7E, 0x15, 0x16, 0x28, 0xAE, 0xD2, 0xA6, 0xAB, 0xF7, 0x15, 0x88, 0x09, 0xCF, 0x4F, 0x3C, 0xEF,
        0x43, 0x59, 0xD8, 0xD5, 0x80, 0xAA, 0x4F, 0x7F, 0x03, 0x6D, 0x6F, 0x04, 0xFC, 0x6A, 0x94,
    ];

    /// Digits as NIST writes them, `0` to `9` and `a` to `z`.
    fn read(text: &str) -> Vec<u16> {
        text.chars().map(|c| c.to_digit(36).expect("a digit") as u16).collect()
    }

    fn sample<C: BlockCipherEncrypt<BlockSize = U16>>(
        cipher: &C,
        radix: u16,
        tweak: &[u8],
        plain: &str,
        sealed: &str,
    ) {
        let (plain, sealed) = (read(plain), read(sealed));
        assert_eq!(permuted(cipher, radix, tweak, &plain, Way::Forth), sealed, "{plain:?}");
        assert_eq!(permuted(cipher, radix, tweak, &sealed, Way::Back), plain, "{sealed:?}");
    }

    /// The samples of NIST, FF1samples.pdf: keys of 128, 192 and 256 bits, radix 10 and 36, tweaks of 0, 10 and 11 bytes.
    #[test]
    fn the_nine_samples_of_nist() {
        let digits = "0123456789";
        let longer = "0123456789abcdefghi";
        let (long, odd) = (b"9876543210".as_slice(), b"7777pqrs777".as_slice());
        let cipher = Aes128Enc::new_from_slice(&KEY[..16]).expect("a key");
        sample(&cipher, 10, b"", digits, "2433477484");
        sample(&cipher, 10, long, digits, "6124200773");
        sample(&cipher, 36, odd, longer, "a9tv40mll9kdu509eum");
        let cipher = Aes192Enc::new_from_slice(&KEY[..24]).expect("a key");
        sample(&cipher, 10, b"", digits, "2830668132");
        sample(&cipher, 10, long, digits, "2496655549");
        sample(&cipher, 36, odd, longer, "xbj3kv35jrawxv32ysr");
        let cipher = Aes256Enc::new_from_slice(&KEY).expect("a key");
        sample(&cipher, 10, b"", digits, "6657667009");
        sample(&cipher, 10, long, digits, "1001623463");
        sample(&cipher, 36, odd, longer, "xs8a0azh2avyalyzuwd");
    }

    /// BinaryHalves through keymill's rounds, and through the crate `fpe`.
    fn both(key: [u8; 32], tweak: &[u8], bits: &[u16], way: Way) -> (Vec<u16>, Vec<u16>) {
        let other = FF1::<aes::Aes256>::new(&key, 2).expect("radix 2");
        let numerals = FlexibleNumeralString::from(bits.to_vec());
        let other = match way {
            Way::Forth => other.encrypt(tweak, &numerals),
            Way::Back => other.decrypt(tweak, &numerals),
        };
        let other = Vec::from(other.expect("bits"));

        let cipher = Aes256Enc::new(&key.into());
        let shape = Shape::of_bits(bits.len() as u32);
        let start = shape.start(&cipher, tweak.len() as u32);
        let mut upper = [0; 8];
        upper[..tweak.len()].copy_from_slice(tweak);
        let (left, right) = bits.split_at(bits.len() / 2);
        let lane = Lane {
            high: (start >> 64) as u64 ^ u64::from_be_bytes(upper),
            left: number(left, 2),
            right: number(right, 2),
        };
        // One by one and in a batch, whatever its length.
        let mut alone = lane;
        permute(&cipher, &shape, start as u64, way, &mut alone);
        let mut lanes = [Lane { left: 1, ..lane }; 2 * LANES + 3];
        for at in [0, 1, LANES - 1, LANES, 2 * LANES + 2] {
            lanes[at] = lane;
        }
        permute_all(&cipher, &shape, start as u64, way, &mut lanes);
        for at in [0, 1, LANES - 1, LANES, 2 * LANES + 2] {
            assert_eq!((lanes[at].left, lanes[at].right), (alone.left, alone.right), "at {at}");
        }
        ([digits(alone.left, 2, left.len()), digits(alone.right, 2, right.len())].concat(), other)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn bits_are_permuted_as_the_crate_fpe_permutes_them(
            key: [u8; 32],
            tweak in prop_oneof![Just(3_usize), Just(4)].prop_flat_map(|len| prop::collection::vec(any::<u8>(), len)),
            bits in prop_oneof![Just(47_usize), Just(104), 24..=104_usize].prop_flat_map(|len| prop::collection::vec(0..=1_u16, len)),
        ) {
            for way in [Way::Forth, Way::Back] {
                let (ours, other) = both(key, &tweak, &bits, way);
                prop_assert_eq!(ours, other);
            }
        }
    }
}
