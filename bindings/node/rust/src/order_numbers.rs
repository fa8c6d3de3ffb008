//! Order numbers.

use keymill::binding::order_numbers_from_variable;
use keymill::{Error, OrderNumbers};
use napi::bindgen_prelude::{BigInt, BigUint64Array, Buffer, External, Uint8Array};
use napi_derive::napi;

use crate::errors::{Thrown, enter};
use crate::router::{wide, word};

type Result<T> = napi::Result<T, Thrown>;

/// Keys that turn ids into order numbers and back.
pub struct NumbersBox(OrderNumbers);

fn boxed(numbers: OrderNumbers) -> External<NumbersBox> {
    External::new(NumbersBox(numbers))
}

fn version_of(version: u32) -> keymill::Result<u8> {
    u8::try_from(version)
        .map_err(|_| Error::argument(format!("{version} is no key version; versions are 1 to 255")))
}

/// With the keys of a file.
#[napi]
pub fn open_numbers(file: String, tenant: String, table: String) -> Result<External<NumbersBox>> {
    enter(|| OrderNumbers::open(&file, &tenant, &table).map(boxed))
}

/// What the environment of the calling context has.
#[napi(object, object_to_js = false)]
pub struct OrderKeys {
    /// `KEYMILL_ORDER_KEYS`.
    pub keys: Option<String>,
}

/// With the keys in the environment of the calling context. Without `given`, the environment of the process is read.
#[napi]
pub fn numbers_from_variable(
    given: Option<OrderKeys>,
    tenant: String,
    table: String,
) -> Result<External<NumbersBox>> {
    enter(|| {
        let numbers = match given {
            Some(OrderKeys { keys }) => order_numbers_from_variable(keys, &tenant, &table),
            None => OrderNumbers::from_env(&tenant, &table),
        };
        numbers.map(boxed)
    })
}

/// With keys of the caller's.
#[napi]
pub fn numbers_from_keys(
    versions: Vec<u32>,
    keys: Vec<Uint8Array>,
    seal_with: u32,
    tenant: String,
    table: String,
) -> Result<External<NumbersBox>> {
    enter(|| {
        let keys = versions.iter().zip(&keys).map(|(version, key)| Ok((version_of(*version)?, &key[..])));
        let keys = keys.collect::<keymill::Result<Vec<_>>>()?;
        OrderNumbers::from_keys(&keys, version_of(seal_with)?, &tenant, &table).map(boxed)
    })
}

/// The same keys, with one version in use.
#[napi]
pub fn numbers_with_version(numbers: &External<NumbersBox>, version: u32) -> Result<External<NumbersBox>> {
    enter(|| numbers.0.with_version(version_of(version)?).map(boxed))
}

/// The version that seals.
#[napi]
pub fn numbers_version(numbers: &External<NumbersBox>) -> u32 {
    u32::from(numbers.0.version())
}

/// The order number of an id of 64 bits.
#[napi]
pub fn seal(numbers: &External<NumbersBox>, id: BigInt) -> Result<Buffer> {
    enter(|| Ok(numbers.0.seal(word(&id))?.to_vec().into()))
}

/// The id in an order number.
#[napi]
pub fn unseal(numbers: &External<NumbersBox>, order_no: Uint8Array) -> Result<BigInt> {
    enter(|| numbers.0.unseal(&order_no).map(BigInt::from))
}

/// The order number of an id of 128 bits.
#[napi]
pub fn seal_wide(numbers: &External<NumbersBox>, id: BigInt) -> Result<Buffer> {
    enter(|| Ok(numbers.0.seal_wide(wide(&id)?)?.to_vec().into()))
}

/// The id of 128 bits in an order number.
#[napi]
pub fn unseal_wide(numbers: &External<NumbersBox>, order_no: Uint8Array) -> Result<BigInt> {
    enter(|| numbers.0.unseal_wide(&order_no).map(BigInt::from))
}

/// The order number of 8 bytes.
#[napi]
pub fn seal8(numbers: &External<NumbersBox>, id: BigInt) -> Result<BigInt> {
    enter(|| numbers.0.seal8(word(&id)).map(BigInt::from))
}

/// The id in an order number of 8 bytes.
#[napi]
pub fn unseal8(numbers: &External<NumbersBox>, order_no: BigInt) -> Result<BigInt> {
    enter(|| numbers.0.unseal8(word(&order_no)).map(BigInt::from))
}

/// The order numbers of many ids, one behind the other.
#[napi]
pub fn seal_all(numbers: &External<NumbersBox>, ids: BigUint64Array) -> Result<Buffer> {
    enter(|| Ok(numbers.0.seal_all(&ids)?.into_flattened().into()))
}

/// The ids in many order numbers, which are one behind the other.
#[napi]
pub fn unseal_all(numbers: &External<NumbersBox>, order_nos: Uint8Array) -> Result<BigUint64Array> {
    enter(|| Ok(numbers.0.unseal_all(order_nos.as_chunks().0)?.into()))
}

/// The order numbers of 8 bytes of many ids.
#[napi]
pub fn seal8_all(numbers: &External<NumbersBox>, ids: BigUint64Array) -> Result<BigUint64Array> {
    enter(|| Ok(numbers.0.seal8_all(&ids)?.into()))
}

/// The ids in many order numbers of 8 bytes.
#[napi]
pub fn unseal8_all(numbers: &External<NumbersBox>, order_nos: BigUint64Array) -> Result<BigUint64Array> {
    enter(|| Ok(numbers.0.unseal8_all(&order_nos)?.into()))
}

/// The order number of an id of 64 bits as text.
#[napi]
pub fn seal_text(numbers: &External<NumbersBox>, id: BigInt) -> Result<String> {
    enter(|| numbers.0.seal_text(word(&id)))
}

/// The id in the text of an order number.
#[napi]
pub fn unseal_text(numbers: &External<NumbersBox>, text: String) -> Result<BigInt> {
    enter(|| numbers.0.unseal_text(&text).map(BigInt::from))
}

/// The order number of an id of 128 bits as text.
#[napi]
pub fn seal_wide_text(numbers: &External<NumbersBox>, id: BigInt) -> Result<String> {
    enter(|| numbers.0.seal_wide_text(wide(&id)?))
}

/// The id of 128 bits in the text of an order number.
#[napi]
pub fn unseal_wide_text(numbers: &External<NumbersBox>, text: String) -> Result<BigInt> {
    enter(|| numbers.0.unseal_wide_text(&text).map(BigInt::from))
}

/// The order number of 8 bytes as text.
#[napi]
pub fn seal8_text(numbers: &External<NumbersBox>, id: BigInt) -> Result<String> {
    enter(|| numbers.0.seal8_text(word(&id)))
}

/// The id in the text of an order number of 8 bytes.
#[napi]
pub fn unseal8_text(numbers: &External<NumbersBox>, text: String) -> Result<BigInt> {
    enter(|| numbers.0.unseal8_text(&text).map(BigInt::from))
}
