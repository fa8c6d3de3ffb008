//! Order numbers: what a business id is called outside. The gene stays readable, so that a number is routed without a key; the number in
//! the id is encrypted, so that it tells neither how many orders there are nor which came first.
//!
//! | form | gene | key version | encrypted |
//! |---|---|---|---|
//! | 16 bytes | bytes 0 and 1 | byte 2, never 0 | bytes 3 to 15: 48 bits of number, 56 zero bits; of a wide id 64 and 40 |
//! | 8 bytes | bits 47 to 62 | – | bits 0 to 46: the number |
//!
//! The encrypted bits are permuted by FF1 (`ff1`), whose tweak is the gene and the version, and for a wide id a byte 0x01 behind them. So
//! the zero bits come back only where gene, version, form, key and every bit are those that were sealed. Each tenant, table, version and
//! form has a key of its own, which HKDF-SHA256 derives from the key of the file. Pure: the file is read by `api`.

mod ff1;
mod key_file;
mod order_text;

use std::fmt;

use aes::Aes256Enc;
use aes::cipher::KeyInit;
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

use crate::error::{Code, Error, Result, is_obeyed, shown};
use crate::gene::{Gene, NUMBER_BITS, WIDE_SHIFT};

use ff1::{BinaryHalves, LANES, Lane, Shape, Way, permute, permute_all};
pub(crate) use key_file::{KeyFile, LONGEST_KEY_FILE};
pub use order_text::{TEXT_LENGTH, TEXT8_LENGTH, read_text, read_text8};
pub(crate) use order_text::{text_of, text8_of};

/// The longest tenant and the longest table, in bytes.
const LONGEST_NAME: usize = 128;

/// Between the parts of what a key is for; no tenant and no table has it.
const SEPARATOR: u8 = 0x1F;

const SALT: &[u8] = b"keymill order number";

/// What is encrypted in 16 bytes.
const LONG: Shape<BinaryHalves> = Shape::of_bits(104);

/// What is encrypted in 8 bytes.
const SHORT: Shape<BinaryHalves> = Shape::of_bits(NUMBER_BITS);

const HALF_OF_LONG: u32 = 52;
const RIGHT_OF_SHORT: u32 = 24;

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// One version of the keys of a tenant's table.
pub(crate) struct SealingKey {
    version: u8,
    long: Aes256Enc,
    /// Where the chain of a number begins, with the version in its place: of 16 bytes, of a wide id, of 8 bytes.
    narrow_start: u128,
    wide_start: u128,
    short: Aes256Enc,
    short_start: u128,
}

impl Drop for SealingKey {
    fn drop(&mut self) {
        // The ciphers wipe themselves.
        self.narrow_start.zeroize();
        self.wide_start.zeroize();
        self.short_start.zeroize();
    }
}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealingKey").field("version", &self.version).finish_non_exhaustive()
    }
}

impl SealingKey {
    fn derive(secret: &[u8; 32], tenant: &str, table: &str, version: u8) -> SealingKey {
        let derived = Hkdf::<Sha256>::new(Some(SALT), secret);
        let cipher = |form: &[u8]| {
            let mut key = Zeroizing::new([0; 32]);
            let info = [tenant.as_bytes(), &[SEPARATOR], table.as_bytes(), &[SEPARATOR, version], form];
            // It fails for more than 255 hashes only.
            let _ = derived.expand_multi_info(&info, &mut *key);
            Aes256Enc::new((&*key).into())
        };
        let (long, short) = (cipher(&[]), cipher(&[0x08]));
        let in_place = u128::from(version) << 104;
        SealingKey {
            version,
            narrow_start: LONG.start(&long, 3) ^ in_place,
            wide_start: LONG.start(&long, 4) ^ in_place ^ 0x01 << 96,
            short_start: SHORT.start(&short, 3) ^ in_place,
            long,
            short,
        }
    }

    /// A number of this gene at the head of its way.
    fn lane(start: u128, gene: u16, left: u64, right: u64) -> Lane {
        Lane { high: (start >> 64) as u64 ^ u64::from(gene) << 48, left, right }
    }

    /// The 16 bytes of a number that is encrypted.
    fn bytes(&self, gene: u16, lane: Lane) -> [u8; 16] {
        let clear = u128::from(gene) << 112 | u128::from(self.version) << 104;
        (clear | u128::from(lane.left) << HALF_OF_LONG | u128::from(lane.right)).to_be_bytes()
    }

    /// The gene and the encrypted number in 16 bytes.
    fn split(start: u128, order_no: &[u8; 16]) -> (u16, Lane) {
        let bits = u128::from_be_bytes(*order_no);
        let gene = (bits >> 112) as u16;
        let half = low(HALF_OF_LONG);
        (gene, SealingKey::lane(start, gene, (bits >> HALF_OF_LONG) as u64 & half, bits as u64 & half))
    }

    fn narrow_lane(&self, id: u64) -> Result<(u16, Lane)> {
        let gene = Gene::of_id(id)?.get();
        Ok((gene, SealingKey::lane(self.narrow_start, gene, (id & low(NUMBER_BITS)) << 4, 0)))
    }

    fn narrow_id(gene: u16, lane: Lane) -> Result<u64> {
        // All bits that have to be zero at once, so that the time does not reveal which bits they are.
        if lane.right | lane.left & (1 << (HALF_OF_LONG - 1) | low(4)) != 0 {
            return Err(forged());
        }
        Ok(u64::from(gene) << NUMBER_BITS | lane.left >> 4)
    }

    /// The order number of an id of 64 bits.
    pub(crate) fn seal(&self, id: u64) -> Result<[u8; 16]> {
        let (gene, mut lane) = self.narrow_lane(id)?;
        permute(&self.long, &LONG, self.narrow_start as u64, Way::Forth, &mut lane);
        Ok(self.bytes(gene, lane))
    }

    /// The id of 64 bits.
    pub(crate) fn unseal(&self, order_no: &[u8; 16]) -> Result<u64> {
        let (gene, mut lane) = SealingKey::split(self.narrow_start, order_no);
        permute(&self.long, &LONG, self.narrow_start as u64, Way::Back, &mut lane);
        SealingKey::narrow_id(gene, lane)
    }

    /// The order number of an id of 128 bits.
    pub(crate) fn seal_wide(&self, id: u128) -> Result<[u8; 16]> {
        let gene = Gene::of_wide(id)?.get();
        let number = id as u64;
        let mut lane = SealingKey::lane(self.wide_start, gene, number >> 12, (number & low(12)) << 40);
        permute(&self.long, &LONG, self.wide_start as u64, Way::Forth, &mut lane);
        Ok(self.bytes(gene, lane))
    }

    /// The id of 128 bits.
    pub(crate) fn unseal_wide(&self, order_no: &[u8; 16]) -> Result<u128> {
        let (gene, mut lane) = SealingKey::split(self.wide_start, order_no);
        permute(&self.long, &LONG, self.wide_start as u64, Way::Back, &mut lane);
        // As in `narrow_id`.
        if lane.right & low(40) | lane.left & 1 << (HALF_OF_LONG - 1) != 0 {
            return Err(forged());
        }
        let number = lane.left << 12 | lane.right >> 40;
        Ok(u128::from(gene) << WIDE_SHIFT | u128::from(number))
    }

    /// The gene and the number in 8 bytes.
    fn short_lane(&self, bits: u64) -> Result<(u16, Lane)> {
        let gene = Gene::of_id(bits)?.get();
        let left = (bits & low(NUMBER_BITS)) >> RIGHT_OF_SHORT;
        Ok((gene, SealingKey::lane(self.short_start, gene, left, bits & low(RIGHT_OF_SHORT))))
    }

    fn short_bits(gene: u16, lane: Lane) -> u64 {
        u64::from(gene) << NUMBER_BITS | lane.left << RIGHT_OF_SHORT | lane.right
    }

    fn turn8(&self, bits: u64, way: Way) -> Result<u64> {
        let (gene, mut lane) = self.short_lane(bits)?;
        permute(&self.short, &SHORT, self.short_start as u64, way, &mut lane);
        Ok(SealingKey::short_bits(gene, lane))
    }

    /// The order number of 8 bytes.
    pub(crate) fn seal8(&self, id: u64) -> Result<u64> {
        self.turn8(id, Way::Forth)
    }

    /// The id in an order number of 8 bytes. Every number below 2^63 is one.
    pub(crate) fn unseal8(&self, order_no: u64) -> Result<u64> {
        self.turn8(order_no, Way::Back)
    }

    /// The order numbers of ids, 16 bytes each.
    pub(crate) fn seal_all(&self, ids: &[u64]) -> Result<Vec<[u8; 16]>> {
        let mut sealed = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(LANES) {
            let mut lanes = [Lane::default(); LANES];
            for (at, (id, place)) in chunk.iter().zip(&mut lanes).enumerate() {
                (_, *place) =
                    self.narrow_lane(*id).map_err(|e| in_batch(e, "id", sealed.len() + at, ids.len()))?;
            }
            let lanes = &mut lanes[..chunk.len()];
            permute_all(&self.long, &LONG, self.narrow_start as u64, Way::Forth, lanes);
            sealed.extend(
                chunk.iter().zip(lanes).map(|(id, lane)| self.bytes((id >> NUMBER_BITS) as u16, *lane)),
            );
        }
        Ok(sealed)
    }

    fn turn8_all(&self, all: &[u64], what: &str, way: Way) -> Result<Vec<u64>> {
        let mut turned = Vec::with_capacity(all.len());
        for chunk in all.chunks(LANES) {
            let mut lanes = [Lane::default(); LANES];
            for (at, (bits, place)) in chunk.iter().zip(&mut lanes).enumerate() {
                (_, *place) =
                    self.short_lane(*bits).map_err(|e| in_batch(e, what, turned.len() + at, all.len()))?;
            }
            let lanes = &mut lanes[..chunk.len()];
            permute_all(&self.short, &SHORT, self.short_start as u64, way, lanes);
            let each = chunk.iter().zip(lanes);
            turned
                .extend(each.map(|(bits, lane)| SealingKey::short_bits((bits >> NUMBER_BITS) as u16, *lane)));
        }
        Ok(turned)
    }

    /// The order numbers of ids, 8 bytes each.
    pub(crate) fn seal8_all(&self, ids: &[u64]) -> Result<Vec<u64>> {
        self.turn8_all(ids, "id", Way::Forth)
    }

    /// The ids in order numbers of 8 bytes.
    pub(crate) fn unseal8_all(&self, order_nos: &[u64]) -> Result<Vec<u64>> {
        self.turn8_all(order_nos, "order number", Way::Back)
    }
}

/// Every version of the keys of a tenant's table.
pub(crate) struct KeyRing {
    /// By rising version.
    keys: Vec<SealingKey>,
    seal_with: u8,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("keys", &self.keys).field("seal_with", &self.seal_with).finish()
    }
}

impl KeyRing {
    /// The keys of a file for one tenant's table; either name may be empty.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: a name that is too long, or has control characters.
    pub(crate) fn derive(file: &KeyFile, tenant: &str, table: &str) -> Result<KeyRing> {
        for (what, name) in [("tenant", tenant), ("table", table)] {
            if name.len() > LONGEST_NAME || name.contains(is_obeyed) {
                return Err(Error::argument(format!(
                    "the {what} `{}` cannot be used: a {what} has at most {LONGEST_NAME} bytes and no control characters",
                    shown(name)
                )));
            }
        }
        let keys =
            file.keys.iter().map(|(version, secret)| SealingKey::derive(secret, tenant, table, *version));
        Ok(KeyRing { keys: keys.collect(), seal_with: file.seal_with })
    }

    /// The version that seals.
    pub(crate) fn seal_with(&self) -> u8 {
        self.seal_with
    }

    /// The key of a version.
    #[inline]
    pub(crate) fn key(&self, version: u8) -> Result<&SealingKey> {
        match self.keys.iter().find(|key| key.version == version) {
            Some(key) => Ok(key),
            None => Err(self.not_loaded(version)),
        }
    }

    /// The only key, where there is one.
    pub(crate) fn only_key(&self) -> Result<&SealingKey> {
        match &*self.keys {
            [only] => Ok(only),
            _ => Err(Error::argument(format!(
                "an order number of 8 bytes does not say its key version, and the keys of versions {} are loaded; say which one sealed it (`with_version`, or `--key-version`)",
                self.versions()
            ))),
        }
    }

    fn versions(&self) -> String {
        key_file::versions(self.keys.iter().map(|key| &key.version))
    }

    #[cold]
    fn not_loaded(&self, version: u8) -> Error {
        if version == 0 {
            return Error::argument(
                "key version 0, which is reserved: order numbers have 1 to 255 in their third byte; is this the id itself?",
            );
        }
        Error::argument(format!(
            "the key of version {version} is not loaded, only {}; add it to the key file",
            self.versions()
        ))
    }

    /// The key of an order number of 16 bytes, which has to be `chosen` where that is given.
    #[inline]
    pub(crate) fn key_of(&self, order_no: &[u8; 16], chosen: Option<u8>) -> Result<&SealingKey> {
        let key = self.key(order_no[2])?;
        match chosen {
            Some(chosen) if chosen != key.version => Err(Error::argument(format!(
                "this order number has key version {}, and {chosen} was asked for",
                key.version
            ))),
            _ => Ok(key),
        }
    }

    /// The ids in order numbers of 16 bytes. Order numbers of one version are opened together.
    pub(crate) fn unseal_all(&self, order_nos: &[[u8; 16]], chosen: Option<u8>) -> Result<Vec<u64>> {
        let mut ids = vec![0; order_nos.len()];
        for (part, (chunk, ids)) in order_nos.chunks(LANES).zip(ids.chunks_mut(LANES)).enumerate() {
            let wrong = |error, at| in_batch(error, "order number", part * LANES + at, order_nos.len());
            let mut left = u64::MAX >> (LANES - chunk.len());
            while left != 0 {
                let first = left.trailing_zeros() as usize;
                let key = self.key_of(&chunk[first], chosen).map_err(|e| wrong(e, first))?;
                let mut lanes = [Lane::default(); LANES];
                let mut places = [(0, 0); LANES];
                let mut count = 0;
                for (at, order_no) in chunk.iter().enumerate() {
                    if order_no[2] == key.version {
                        let (gene, lane) = SealingKey::split(key.narrow_start, order_no);
                        (lanes[count], places[count]) = (lane, (at, gene));
                        count += 1;
                        left &= !(1 << at);
                    }
                }
                let lanes = &mut lanes[..count];
                permute_all(&key.long, &LONG, key.narrow_start as u64, Way::Back, lanes);
                for (lane, (at, gene)) in lanes.iter().zip(places) {
                    ids[at] = SealingKey::narrow_id(gene, *lane).map_err(|e| wrong(e, at))?;
                }
            }
        }
        Ok(ids)
    }
}

/// The gene of an order number of 16 bytes, which needs no key.
pub(crate) fn gene_of(order_no: &[u8; 16]) -> Result<Gene> {
    if order_no[2] == 0 {
        return Err(Error::argument(
            "the third byte is 0, and an order number has its key version there, 1 to 255; the bytes of an id are for `route`",
        ));
    }
    Ok(Gene::from(u16::from_be_bytes([order_no[0], order_no[1]])))
}

/// An order number of 16 bytes.
pub(crate) fn sixteen(order_no: &[u8]) -> Result<&[u8; 16]> {
    order_no.try_into().map_err(|_| {
        let advice = match order_no.len() {
            8 => "; one of 8 bytes is a whole number, for `unseal8`",
            TEXT_LENGTH => "; a text is for `unseal_text`",
            _ => "",
        };
        Error::argument(format!("an order number has 16 bytes, and this one {}{advice}", order_no.len()))
    })
}

#[cold]
fn in_batch(error: Error, what: &str, at: usize, count: usize) -> Error {
    Error { message: format!("{what} {} of {count}: {}", at + 1, error.message), ..error }
}

#[cold]
fn forged() -> Error {
    Error::new(
        Code::Forged,
        "these keys did not seal this order number: it was mistyped or made up, or sealed for another tenant, table or width of ids",
    )
}

#[cfg(test)]
mod tests;
