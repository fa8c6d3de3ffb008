//! Order numbers: what business ids are called outside. All work is in memory; a key file is read once.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use zeroize::Zeroizing;

use crate::error::{Error, Result, shown};
use crate::gene::Gene;
use crate::order_number::{
    KeyFile, KeyRing, LONGEST_KEY_FILE, SealingKey, gene_of, read_text, read_text8, sixteen, text_of,
    text8_of,
};
use crate::store::secret_file;

use super::router::{Route, Router};
use super::text::ascii;

/// The environment variable that [`OrderNumbers::from_env`] reads.
pub const ORDER_KEYS_VARIABLE: &str = "KEYMILL_ORDER_KEYS";

/// Turns business ids into order numbers, which may be shown to anyone, and back. The gene in an order number stays readable; the number
/// is encrypted, with keys of this tenant and this table.
///
/// Copies share their keys, which are wiped with the last of them. Any number of threads may use one.
///
/// ```
/// use keymill::{Code, OrderNumbers};
///
/// let secret = [7; 32]; // of a key file: OrderNumbers::open("keys.toml", "tenant", "orders")?
/// let numbers = OrderNumbers::from_keys(&[(1, &secret)], 1, "tenant", "orders")?;
/// let id = 7943646055239778305;
/// let mut no: [u8; 16] = numbers.seal(id)?;
/// assert_eq!(numbers.unseal(&no)?, id);
/// assert_eq!(numbers.unseal_text(&numbers.seal_text(id)?)?, id);
///
/// no[15] ^= 1;
/// assert_eq!(numbers.unseal(&no).unwrap_err().code, Code::Forged);
/// # Ok::<(), keymill::Error>(())
/// ```
#[derive(Clone)]
pub struct OrderNumbers {
    ring: Arc<KeyRing>,
    /// The only version that is used, where one was chosen.
    chosen: Option<u8>,
}

impl fmt::Debug for OrderNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrderNumbers").field("ring", &self.ring).field("chosen", &self.chosen).finish()
    }
}

/// A path for messages. A key, or the text of a key file, where the path belongs is not repeated.
fn path_shown(path: &str) -> String {
    let digits = path.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max().unwrap_or_default();
    if digits >= 32 || path.contains(['\n', '=']) {
        return "(not shown: it may be a key)".to_owned();
    }
    shown(path)
}

impl OrderNumbers {
    /// With the keys of a file, for one tenant and one table; either may be empty. The file has `seal_with = 2` and, below `[key]`, lines
    /// such as `2 = "64 hexadecimal digits"`. Other users must not be able to read it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the file cannot be read. `INVALID_CONFIG`: other users can read or change it, or what is wrong in it.
    pub fn open(file: impl AsRef<Path>, tenant: &str, table: &str) -> Result<OrderNumbers> {
        let file = file.as_ref();
        let path = || path_shown(&file.to_string_lossy());
        let found = secret_file::read(file, LONGEST_KEY_FILE as u64)
            .map_err(|e| Error::argument(format!("reading the key file `{}` failed: {e}", path())))?;
        if let Some(exposed) = found.exposed {
            return Err(Error::config(format!("the key file `{}` {exposed}", path())));
        }
        let keys = KeyFile::parse(&found.text)
            .map_err(|e| Error { message: format!("`{}`: {}", path(), e.message), ..e })?;
        OrderNumbers::of(&keys, tenant, table)
    }

    /// With the keys in the environment variable `KEYMILL_ORDER_KEYS`, which has the text of a key file.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: it is not set, or what is wrong in it.
    pub fn from_env(tenant: &str, table: &str) -> Result<OrderNumbers> {
        OrderNumbers::from_variable(std::env::var(ORDER_KEYS_VARIABLE), tenant, table)
    }

    /// As [`OrderNumbers::from_env`], with what an environment has as the variable.
    pub(crate) fn from_variable(
        variable: std::result::Result<String, std::env::VarError>,
        tenant: &str,
        table: &str,
    ) -> Result<OrderNumbers> {
        let text = variable.map(Zeroizing::new).map_err(|e| {
            let why = match e {
                std::env::VarError::NotPresent => "is not set",
                std::env::VarError::NotUnicode(_) => "is not UTF-8",
            };
            Error::config(format!(
                "the environment variable {ORDER_KEYS_VARIABLE} {why}: it has the text of a key file"
            ))
        })?;
        let keys = KeyFile::parse(&text)
            .map_err(|e| Error { message: format!("{ORDER_KEYS_VARIABLE}: {}", e.message), ..e })?;
        OrderNumbers::of(&keys, tenant, table)
    }

    /// With keys of the caller's: versions 1 to 255 with 32 random bytes each; version `seal_with` seals.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: no key, a key that has not 32 bytes, a version that is 0 or there twice, or no key of `seal_with`.
    pub fn from_keys(keys: &[(u8, &[u8])], seal_with: u8, tenant: &str, table: &str) -> Result<OrderNumbers> {
        OrderNumbers::of(&KeyFile::of_keys(keys, seal_with)?, tenant, table)
    }

    fn of(keys: &KeyFile, tenant: &str, table: &str) -> Result<OrderNumbers> {
        Ok(OrderNumbers { ring: Arc::new(KeyRing::derive(keys, tenant, table)?), chosen: None })
    }

    /// The same keys, with only this version in use: it seals, it opens order numbers of 8 bytes, and order numbers of 16 bytes have to be
    /// of this version.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: it is 0 or not loaded.
    pub fn with_version(&self, version: u8) -> Result<OrderNumbers> {
        self.ring.key(version)?;
        Ok(OrderNumbers { ring: self.ring.clone(), chosen: Some(version) })
    }

    /// The version that seals, which belongs into a column beside order numbers of 8 bytes.
    #[must_use]
    pub fn version(&self) -> u8 {
        self.chosen.unwrap_or_else(|| self.ring.seal_with())
    }

    #[inline]
    fn sealing_key(&self) -> Result<&SealingKey> {
        self.ring.key(self.version())
    }

    fn key8(&self) -> Result<&SealingKey> {
        self.chosen.map_or_else(|| self.ring.only_key(), |version| self.ring.key(version))
    }

    /// The order number of an id of 64 bits: 16 bytes, for a `VARBINARY(16)`. The same id has the same order number for as long as the same
    /// version seals.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the id is 2^63 or more.
    #[inline]
    pub fn seal(&self, id: u64) -> Result<[u8; 16]> {
        self.sealing_key()?.seal(id)
    }

    /// The id in an order number of 16 bytes.
    ///
    /// # Errors
    /// `FORGED`: it was not sealed with these keys for this tenant and this table, or is the order number of a wide id.
    /// `INVALID_ARGUMENT`: it has not 16 bytes, or its key version is 0 or not loaded.
    #[inline]
    pub fn unseal(&self, order_no: &[u8]) -> Result<u64> {
        let order_no = sixteen(order_no)?;
        self.ring.key_of(order_no, self.chosen)?.unseal(order_no)
    }

    /// The order number of an id of 128 bits.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the id has not the form of a wide id.
    pub fn seal_wide(&self, id: u128) -> Result<[u8; 16]> {
        self.sealing_key()?.seal_wide(id)
    }

    /// The id of 128 bits in an order number.
    ///
    /// # Errors
    /// As [`OrderNumbers::unseal`]; `FORGED` for the order number of an id of 64 bits.
    pub fn unseal_wide(&self, order_no: &[u8]) -> Result<u128> {
        let order_no = sixteen(order_no)?;
        self.ring.key_of(order_no, self.chosen)?.unseal_wide(order_no)
    }

    /// The order number of 8 bytes: a number below 2^63, for a `BIGINT`. It hides the number in the id, and has no room for a check: every
    /// number below 2^63 opens as some id. [`OrderNumbers::version`] says the version to keep beside it.
    ///
    /// # Errors
    /// As [`OrderNumbers::seal`].
    #[inline]
    pub fn seal8(&self, id: u64) -> Result<u64> {
        self.sealing_key()?.seal8(id)
    }

    /// The id in an order number of 8 bytes. Its key version is the version of [`OrderNumbers::with_version`], or the only loaded version.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: several versions are loaded and none was chosen, or the number is 2^63 or more.
    #[inline]
    pub fn unseal8(&self, order_no: u64) -> Result<u64> {
        self.key8()?.unseal8(order_no)
    }

    /// The order numbers of many ids, several times as fast as one by one.
    ///
    /// # Errors
    /// As [`OrderNumbers::seal`], with the place of the first wrong id.
    pub fn seal_all(&self, ids: &[u64]) -> Result<Vec<[u8; 16]>> {
        self.sealing_key()?.seal_all(ids)
    }

    /// The ids in many order numbers of 16 bytes: all of them, or an error that names a wrong number.
    ///
    /// # Errors
    /// As [`OrderNumbers::unseal`].
    pub fn unseal_all(&self, order_nos: &[[u8; 16]]) -> Result<Vec<u64>> {
        self.ring.unseal_all(order_nos, self.chosen)
    }

    /// The order numbers of 8 bytes of many ids.
    ///
    /// # Errors
    /// As [`OrderNumbers::seal_all`].
    pub fn seal8_all(&self, ids: &[u64]) -> Result<Vec<u64>> {
        self.sealing_key()?.seal8_all(ids)
    }

    /// The ids in many order numbers of 8 bytes, which one version has sealed.
    ///
    /// # Errors
    /// As [`OrderNumbers::unseal8`].
    pub fn unseal8_all(&self, order_nos: &[u64]) -> Result<Vec<u64>> {
        self.key8()?.unseal8_all(order_nos)
    }

    /// The order number of an id of 64 bits as text: 26 characters of Crockford's base 32.
    ///
    /// # Errors
    /// As [`OrderNumbers::seal`].
    pub fn seal_text(&self, id: u64) -> Result<String> {
        Ok(ascii(&text_of(&self.seal(id)?)).to_owned())
    }

    /// The id in the text of an order number of 16 bytes. Small letters are read too, and `i`, `l`, `o` as the digits that they look like.
    ///
    /// # Errors
    /// As [`OrderNumbers::unseal`]; `INVALID_ARGUMENT` for a text of another length or with other characters.
    pub fn unseal_text(&self, text: &str) -> Result<u64> {
        self.unseal(&read_text(text)?)
    }

    /// The order number of an id of 128 bits as text of 26 characters.
    ///
    /// # Errors
    /// As [`OrderNumbers::seal_wide`].
    pub fn seal_wide_text(&self, id: u128) -> Result<String> {
        Ok(ascii(&text_of(&self.seal_wide(id)?)).to_owned())
    }

    /// The id of 128 bits in the text of an order number.
    ///
    /// # Errors
    /// As [`OrderNumbers::unseal_text`] and [`OrderNumbers::unseal_wide`].
    pub fn unseal_wide_text(&self, text: &str) -> Result<u128> {
        self.unseal_wide(&read_text(text)?)
    }

    /// The order number of 8 bytes as text: 13 characters of Crockford's base 32 and his check symbol, which finds each wrong character and
    /// each swap of two neighbours.
    ///
    /// # Errors
    /// As [`OrderNumbers::seal8`].
    pub fn seal8_text(&self, id: u64) -> Result<String> {
        Ok(ascii(&text8_of(self.seal8(id)?)).to_owned())
    }

    /// The id in the text of an order number of 8 bytes.
    ///
    /// # Errors
    /// As [`OrderNumbers::unseal8`]; `INVALID_ARGUMENT` for a text of another length, with other characters, or with another check symbol.
    pub fn unseal8_text(&self, text: &str) -> Result<u64> {
        self.unseal8(read_text8(text)?)
    }
}

/// An order number as [`Router::route_order_no`] takes it. Made from bytes, whole numbers and texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderNo<'n> {
    /// 16 bytes, or the 8 bytes of a number in big-endian order.
    Bytes(&'n [u8]),
    /// One of 8 bytes, as a number.
    Number(u64),
    /// 26 characters, or 14.
    Text(&'n str),
}

impl OrderNo<'_> {
    fn gene(self) -> Result<Gene> {
        match self {
            OrderNo::Number(number) => Gene::of_id(number),
            OrderNo::Bytes(bytes) => match bytes.try_into() {
                Ok(number) => Gene::of_id(u64::from_be_bytes(number)),
                Err(_) => gene_of(sixteen(bytes)?),
            },
            OrderNo::Text(text) if text.len() == crate::order_number::TEXT8_LENGTH => {
                Gene::of_id(read_text8(text)?)
            }
            OrderNo::Text(text) => gene_of(&read_text(text)?),
        }
    }
}

impl<'n> From<&'n [u8]> for OrderNo<'n> {
    fn from(bytes: &'n [u8]) -> Self {
        OrderNo::Bytes(bytes)
    }
}

impl<'n, const N: usize> From<&'n [u8; N]> for OrderNo<'n> {
    fn from(bytes: &'n [u8; N]) -> Self {
        OrderNo::Bytes(bytes)
    }
}

impl From<u64> for OrderNo<'_> {
    fn from(number: u64) -> Self {
        OrderNo::Number(number)
    }
}

impl<'n> From<&'n str> for OrderNo<'n> {
    fn from(text: &'n str) -> Self {
        OrderNo::Text(text)
    }
}

impl<'n> From<&'n String> for OrderNo<'n> {
    fn from(text: &'n String) -> Self {
        OrderNo::Text(text)
    }
}

impl Router {
    /// Where the order belongs that has this order number: its gene is readable without a key. Where a range moves by number, only the id
    /// decides, which is encrypted: the answer has the second shard in `also`, as that for a key has. [`Router::route`] with the unsealed id
    /// names one shard.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: it has not the form of an order number.
    pub fn route_order_no<'n>(&self, order_no: impl Into<OrderNo<'n>>) -> Result<Route<'_>> {
        self.route_gene(order_no.into().gene()?)
    }
}
