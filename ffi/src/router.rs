//! Genes and routers: which shard an id or a business key belongs to.

use std::ffi::{CStr, c_char};

use keymill_core::binding::close_at_exit;
use keymill_core::{Gene, Route, Router};

use crate::business::{bytes_in, km_wide};
use crate::error::{enter, km_code};
use crate::handle::{Out, free, give, held, km_mill, km_router, null, values};
use crate::source::{Grows, StructOut};
use crate::text::text_in;

/// Where an id or a business key belongs. The caller sets struct_size to sizeof(km_route) before the call (KM_ROUTE_INIT does); the
/// struct may grow at its end in later versions. The names are NUL-terminated, and readable until the router is freed,
/// whatever tables are loaded.
#[repr(C)]
#[derive(Debug)]
pub struct km_route {
    /// sizeof(km_route), set by the caller.
    pub struct_size: u32,
    /// The gene, 0 to 65535.
    pub gene: u32,
    /// The version of the table.
    pub version: u64,
    /// The shard of the gene's range. While the range moves, the shard that it leaves.
    pub shard: *const c_char,
    /// The shard to read from.
    pub read: *const c_char,
    /// The shard that decides a write: `shard`, until a move is finished. NULL while the route is paused.
    pub write: *const c_char,
    /// A second shard that may serve ids of this key, for a key whose range moves by number; else NULL.
    pub also: *const c_char,
    /// While the range moves, the second shard to write to; else NULL. It follows `write`, and a write is acknowledged when both have it:
    /// see km_router_is_current.
    pub mirror: *const c_char,
    /// 1: writes of the range wait, because its move is about to be finished, for a second at most where all processes live. Take another
    /// route then; reads go on. Else 0.
    pub paused: u32,
}

impl Grows for km_route {
    const FIRST: usize = size_of::<km_route>();
}

impl km_route {
    /// A route that a call here wrote.
    ///
    /// # Safety
    /// `route` is NULL or may be read for as many bytes as its first field says.
    unsafe fn given<'r>(route: *const km_route) -> keymill_core::Result<&'r km_route> {
        if route.is_null() {
            return Err(null("route"));
        }
        // SAFETY: by the contract.
        let size = unsafe { route.cast::<u32>().read() };
        if (size as usize) < km_route::FIRST {
            let what = format!(
                "route.struct_size is {size}; give a route that km_router_route or its like has written"
            );
            return Err(keymill_core::Error::argument(what));
        }
        // SAFETY: by the contract, and it is as long as the struct.
        Ok(unsafe { &*route })
    }
}

/// # Safety
/// `name` is NULL, or ends with a NUL and may be read.
unsafe fn name_of<'n>(name: *const c_char) -> Option<&'n str> {
    // SAFETY: by the contract.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }).and_then(|name| name.to_str().ok())
}

impl StructOut<km_route> {
    fn set(&self, route: &Route<'_>) {
        let [shard, read, write, also, mirror] = route.c_names();
        self.put(&km_route {
            struct_size: self.size,
            gene: u32::from(route.gene.get()),
            version: route.version,
            shard,
            read,
            write,
            also,
            mirror,
            paused: u32::from(route.paused),
        });
    }
}

/// The gene of an integer key, 0 to 65535: (xxhash64(key, 0) ^ murmurhash64A(key, 0)) & 0xFFFF over its 8 bytes in little-endian order. A
/// negative key is its two's complement, (uint64_t)key.
///
/// KM_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_gene_u64(key: u64, gene: *mut u16) -> km_code {
    enter(|| {
        // SAFETY: the conventions page; so below.
        let gene = unsafe { Out::new(gene, "gene") }?;
        gene.set(Gene::of_number(key).get());
        Ok(())
    })
}

/// The gene of a text key, as km_gene_u64 over its `len` bytes.
///
/// KM_INVALID_ARGUMENT for a key of more than 64 KiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_gene_text(key: *const c_char, len: usize, gene: *mut u16) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (key, gene) = unsafe { (bytes_in(key, len)?, Out::new(gene, "gene")?) };
        gene.set(Gene::of(key)?.get());
        Ok(())
    })
}

/// A router whose table is in a file, TOML or JSON. The file is read once; km_router_load replaces the table. `*router` is the
/// caller's, who frees it with km_router_free.
///
/// KM_INVALID_ARGUMENT where the file cannot be read, KM_INVALID_CONFIG with every fault of the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_open_file(file: *const c_char, router: *mut *mut km_router) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (file, router) = unsafe { (text_in(file, "file")?, Out::new(router, "router")?) };
        router.set(give(Router::open(file)?));
        Ok(())
    })
}

/// A router with this table: TOML, or JSON if the text begins with a brace. `*router` is the caller's, who frees it with
/// km_router_free.
///
/// KM_INVALID_ARGUMENT, KM_INVALID_CONFIG with every fault of the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_open_text(text: *const c_char, router: *mut *mut km_router) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (text, router) = unsafe { (text_in(text, "text")?, Out::new(router, "router")?) };
        router.set(give(Router::from_text(text)?));
        Ok(())
    })
}

/// The router whose table the mill's store has under this name. The mill reads the table every 10 s, every second while a range
/// moves. A router goes on with its table when the store is lost and when its mill is closed. A mill that is open when the program
/// exits is closed then, within 2 s, so that no move waits for this program. `*router` is the caller's, who frees it with
/// km_router_free.
///
/// KM_INVALID_ARGUMENT, KM_INVALID_CONFIG, KM_STORE_REFUSED where the store has no such table, KM_STORE_UNAVAILABLE,
/// KM_DEADLINE, KM_CLOSED, KM_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_router(
    mill: *mut km_mill,
    name: *const c_char,
    router: *mut *mut km_router,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (mill, name, router) =
            unsafe { (held(mill)?, text_in(name, "name")?, Out::new(router, "router")?) };
        let opened = mill.router(name)?;
        close_at_exit(mill);
        router.set(give(opened));
        Ok(())
    })
}

/// Replaces the table while other threads read. The present table again is nothing.
///
/// KM_INVALID_ARGUMENT, KM_INVALID_CONFIG with every fault of the table, or where its version is not higher than the present
/// one: the old table stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_load(router: *mut km_router, text: *const c_char) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, text) = unsafe { (held(router)?, text_in(text, "text")?) };
        router.load(text).map(drop)
    })
}

/// Where an id of 64 bits belongs.
///
/// KM_INVALID_ARGUMENT for an id of 2^63 or more. KM_LEASE_LOST where its range moves to another shard and this process could not
/// tell the store in time that it follows, so that it may have missed a step; KM_STORE_WENT_BACKWARDS where another process runs a
/// later table than the store has. Where the text below says "as km_router_route", the last two are meant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_route(router: *const km_router, id: u64, route: *mut km_route) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, out) = unsafe { (held(router)?, StructOut::new(route, "route", "km_route")?) };
        out.set(&router.route(id)?);
        Ok(())
    })
}

/// Where an id of 128 bits belongs.
///
/// KM_INVALID_ARGUMENT for an id of another form; as km_router_route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_route_wide(
    router: *const km_router,
    id: km_wide,
    route: *mut km_route,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, out) = unsafe { (held(router)?, StructOut::new(route, "route", "km_route")?) };
        out.set(&router.route_wide(u128::from(id.hi) << 64 | u128::from(id.lo))?);
        Ok(())
    })
}

/// Where the ids of an integer key belong.
///
/// KM_INVALID_ARGUMENT; as km_router_route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_route_key_u64(
    router: *const km_router,
    key: u64,
    route: *mut km_route,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, out) = unsafe { (held(router)?, StructOut::new(route, "route", "km_route")?) };
        out.set(&router.route_key(key)?);
        Ok(())
    })
}

/// Where the ids of a text key of `len` bytes belong.
///
/// KM_INVALID_ARGUMENT for a key of more than 64 KiB; as km_router_route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_route_key_text(
    router: *const km_router,
    key: *const c_char,
    len: usize,
    route: *mut km_route,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, out) = unsafe { (held(router)?, StructOut::new(route, "route", "km_route")?) };
        // SAFETY: as above.
        let key = unsafe { bytes_in(key, len) }?;
        out.set(&router.route_key(key)?);
        Ok(())
    })
}

/// Where the order belongs that has this order number, which needs no key: `len` is 16, or 8 for the bytes of a number in big-endian
/// order. Where a range moves by number, the id decides, which is encrypted: `also` names the second shard then. Use km_router_route with
/// the unsealed id to get one.
///
/// KM_INVALID_ARGUMENT for another length, and for what is no order number; as km_router_route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_route_order_no(
    router: *const km_router,
    order_no: *const u8,
    len: usize,
    route: *mut km_route,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, out) = unsafe { (held(router)?, StructOut::new(route, "route", "km_route")?) };
        // SAFETY: as above.
        let order_no = unsafe { values(order_no, len, "order_no") }?;
        out.set(&router.route_order_no(order_no)?);
        Ok(())
    })
}

/// As km_router_route_order_no for an order number of 8 bytes.
///
/// KM_INVALID_ARGUMENT for a number of 2^63 or more; as km_router_route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_route_order_no8(
    router: *const km_router,
    order_no: u64,
    route: *mut km_route,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, out) = unsafe { (held(router)?, StructOut::new(route, "route", "km_route")?) };
        out.set(&router.route_order_no(order_no)?);
        Ok(())
    })
}

/// As km_router_route_order_no for the text of an order number, of 26 or of 14 characters.
///
/// KM_INVALID_ARGUMENT for another length or other characters; as km_router_route.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_route_order_no_text(
    router: *const km_router,
    text: *const c_char,
    route: *mut km_route,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, out) = unsafe { (held(router)?, StructOut::new(route, "route", "km_route")?) };
        // SAFETY: as above.
        let text = unsafe { text_in(text, "text") }?;
        out.set(&router.route_order_no(text)?);
        Ok(())
    })
}

/// Whether a write by this route may still be committed: the present table says the same about where the ids of its gene are written, and
/// while the range moves, this process may answer for it. Steps that move only reads do not count. Asks no store and takes no lock.
///
/// A write while the range moves holds a transaction open on both shards, and asks this before it commits `write`, then `mirror`. If the
/// answer is 0, roll both back, take a new route, and do the work again. A paused route is never current.
///
/// KM_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_is_current(
    router: *const km_router,
    route: *const km_route,
    is_current: *mut i32,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, out) = unsafe { (held(router)?, Out::new(is_current, "is_current")?) };
        // SAFETY: as above.
        let route = unsafe { km_route::given(route) }?;
        // SAFETY: names of a route belong to its router and end with a NUL, or are NULL.
        let (write, mirror) = unsafe { (name_of(route.write), name_of(route.mirror)) };
        out.set(i32::from(router.writes_to(route.gene as u16, write, mirror)));
        Ok(())
    })
}

/// The version of the present table.
///
/// KM_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_version(router: *const km_router, version: *mut u64) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, version) = unsafe { (held(router)?, Out::new(version, "version")?) };
        version.set(router.version());
        Ok(())
    })
}

/// How many milliseconds ago the store said that the table is the present one; -1 where the table is not from a store.
///
/// KM_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_age(router: *const km_router, age_ms: *mut i64) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (router, age_ms) = unsafe { (held(router)?, Out::new(age_ms, "age_ms")?) };
        age_ms.set(router.age().map_or(-1, |age| i64::try_from(age.as_millis()).unwrap_or(i64::MAX)));
        Ok(())
    })
}

/// Frees a router. NULL is nothing.
///
/// KM_INVALID_ARGUMENT when it was freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_router_free(router: *mut km_router) -> km_code {
    // SAFETY: the conventions page.
    enter(|| unsafe { free(router, |_| ()) })
}
