//! Genes and routers.

use keymill::{Error, Gene, Route, Router};
use napi::bindgen_prelude::{BigInt, External, Uint8Array};
use napi_derive::napi;

use crate::errors::{Thrown, enter};
use crate::mill::MillBox;

type Result<T> = napi::Result<T, Thrown>;

/// A router.
pub struct RouterBox(Router);

impl RouterBox {
    /// The core's router.
    pub fn router(&self) -> &Router {
        &self.0
    }
}

/// Where an id or a business key belongs.
#[napi(object)]
pub struct RouteParts {
    pub gene: u32,
    pub shard: String,
    pub read: String,
    pub write: Option<String>,
    pub mirror: Option<String>,
    pub paused: bool,
    pub also: Option<String>,
    pub version: f64,
}

fn answer(route: &Route<'_>) -> RouteParts {
    RouteParts {
        gene: u32::from(route.gene.get()),
        shard: route.shard.to_owned(),
        read: route.read.to_owned(),
        write: route.write.map(str::to_owned),
        mirror: route.mirror.map(str::to_owned),
        paused: route.paused,
        also: route.also.map(str::to_owned),
        // Versions are below 2^53.
        version: route.version as f64,
    }
}

/// A number of 64 bits; JavaScript has checked its range.
pub fn word(number: &BigInt) -> u64 {
    let bits = number.words.first().copied().unwrap_or(0);
    if number.sign_bit { bits.wrapping_neg() } else { bits }
}

/// A number of 128 bits.
pub fn wide(number: &BigInt) -> keymill::Result<u128> {
    let part = |at: usize| u128::from(number.words.get(at).copied().unwrap_or(0));
    if number.sign_bit && number.words.iter().any(|word| *word != 0)
        || number.words.iter().skip(2).any(|word| *word != 0)
    {
        return Err(Error::argument("an id of 128 bits is a bigint from 0n to 2n ** 128n - 1n"));
    }
    Ok(part(1) << 64 | part(0))
}

/// The gene of an integer key.
#[napi]
pub fn gene_number(key: BigInt) -> Result<u32> {
    enter(|| Ok(u32::from(Gene::of_number(word(&key)).get())))
}

/// The gene of a text key.
#[napi]
pub fn gene_text(key: String) -> Result<u32> {
    enter(|| Ok(u32::from(Gene::of(&key)?.get())))
}

/// A router whose table is in a file.
#[napi]
pub fn open_router(file: String) -> Result<External<RouterBox>> {
    enter(|| Ok(External::new(RouterBox(Router::open(&file)?))))
}

/// A router with this table.
#[napi]
pub fn router_from_text(table: String) -> Result<External<RouterBox>> {
    enter(|| Ok(External::new(RouterBox(Router::from_text(&table)?))))
}

/// The router whose table the store has under this name.
#[napi]
pub fn mill_router(mill: &External<MillBox>, name: String) -> Result<External<RouterBox>> {
    enter(|| Ok(External::new(RouterBox(mill.get()?.router(&name)?))))
}

/// Replaces the table; false: it is the present one.
#[napi]
pub fn load_table(router: &External<RouterBox>, table: String) -> Result<bool> {
    enter(|| router.0.load(&table))
}

/// Where an id of 64 bits belongs.
#[napi]
pub fn route_id(router: &External<RouterBox>, id: BigInt) -> Result<RouteParts> {
    enter(|| router.0.route(word(&id)).map(|route| answer(&route)))
}

/// Where an id of 128 bits belongs.
#[napi]
pub fn route_wide(router: &External<RouterBox>, id: BigInt) -> Result<RouteParts> {
    enter(|| router.0.route_wide(wide(&id)?).map(|route| answer(&route)))
}

/// Where an id of 8 or 16 bytes belongs.
#[napi]
pub fn route_bytes(router: &External<RouterBox>, id: Uint8Array) -> Result<RouteParts> {
    enter(|| router.0.route_bytes(&id).map(|route| answer(&route)))
}

/// Where the ids of an integer key belong.
#[napi]
pub fn route_number(router: &External<RouterBox>, key: BigInt) -> Result<RouteParts> {
    enter(|| router.0.route_key(word(&key)).map(|route| answer(&route)))
}

/// Where the ids of a text key belong.
#[napi]
pub fn route_text(router: &External<RouterBox>, key: String) -> Result<RouteParts> {
    enter(|| router.0.route_key(&key).map(|route| answer(&route)))
}

/// Where the order belongs that has this order number of 16 or 8 bytes.
#[napi]
pub fn route_order_no(router: &External<RouterBox>, order_no: Uint8Array) -> Result<RouteParts> {
    enter(|| router.0.route_order_no(&order_no[..]).map(|route| answer(&route)))
}

/// Where the order belongs that has this order number of 8 bytes.
#[napi]
pub fn route_order_no8(router: &External<RouterBox>, order_no: BigInt) -> Result<RouteParts> {
    enter(|| router.0.route_order_no(word(&order_no)).map(|route| answer(&route)))
}

/// Where the order belongs whose order number has this text.
#[napi]
pub fn route_order_no_text(router: &External<RouterBox>, text: String) -> Result<RouteParts> {
    enter(|| router.0.route_order_no(&text).map(|route| answer(&route)))
}

/// Whether the ids of this gene are written to these shards now.
#[napi]
pub fn route_is_current(
    router: &External<RouterBox>,
    gene: u32,
    write: Option<String>,
    mirror: Option<String>,
) -> bool {
    router.0.writes_to(gene as u16, write.as_deref(), mirror.as_deref())
}

/// The version of the present table.
#[napi]
pub fn router_version(router: &External<RouterBox>) -> f64 {
    router.0.version() as f64
}

/// How many milliseconds ago the store said that the table is the present one; nothing where it is not from a store.
#[napi]
pub fn router_age(router: &External<RouterBox>) -> Option<f64> {
    router.0.age().map(|age| age.as_millis() as f64)
}
