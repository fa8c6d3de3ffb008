//! Handles: what C holds for a mill, a source, a router or keys of order numbers. The only place where pointers change their type.
//!
//! A handle is a small header. `free` drops what it holds and marks it, so a handle that is used after its free, or freed
//! twice, or passed as the other kind, is an error instead of undefined behaviour. The memory of a freed header is used again
//! for a new handle once [`KEPT`] handles were freed after it. A free that races a call on the same handle is the caller's
//! mistake, as is a pointer that never was a handle.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use keymill_core::{Code, Error, Mill, OrderNumbers, Result, Router, Source};

use crate::error::retry_ms;

/// A mill: one store, one background thread, any number of sources. Opaque.
#[derive(Debug)]
pub struct km_mill {
    _opaque: [u8; 0],
}

/// A source of ids inside a mill. Opaque.
#[derive(Debug)]
pub struct km_source {
    _opaque: [u8; 0],
}

/// Which shard an id or a business key belongs to. Opaque.
#[derive(Debug)]
pub struct km_router {
    _opaque: [u8; 0],
}

/// Keys that turn business ids into order numbers and back. Opaque.
#[derive(Debug)]
pub struct km_numbers {
    _opaque: [u8; 0],
}

/// "keymill" and a digit: what the header's mark reads.
const MILL: u64 = u64::from_be_bytes(*b"keymill1");
const SOURCE: u64 = u64::from_be_bytes(*b"keymill2");
const ROUTER: u64 = u64::from_be_bytes(*b"keymill3");
const NUMBERS: u64 = u64::from_be_bytes(*b"keymill4");
const FREED: u64 = u64::from_be_bytes(*b"keymill0");

/// So many of the handles that were freed last answer that they were freed.
const KEPT: usize = 1024;

struct Header {
    /// `MILL`, `SOURCE`, `ROUTER`, `NUMBERS` or `FREED`.
    mark: AtomicU64,
    /// Written before the header is given out and by the thread that turned the mark to `FREED`; else only read.
    object: UnsafeCell<Object>,
}

pub(crate) enum Object {
    Nothing,
    Mill(Mill),
    Source(Source),
    Router(Router),
    Numbers(OrderNumbers),
}

/// A header that was freed: `FREED`, without an object.
struct Freed(NonNull<Header>);

// SAFETY: a freed header holds no object, and only the queue's owner uses it again.
unsafe impl Send for Freed {}

/// The freed headers, the oldest first. Only ever tried, never waited for: in a forked child it may be locked for good by a
/// thread that is not there. A header that does not come in or out that way costs 24 bytes.
static FREED_HEADERS: Mutex<VecDeque<Freed>> = Mutex::new(VecDeque::new());

fn freed_headers() -> Option<MutexGuard<'static, VecDeque<Freed>>> {
    match FREED_HEADERS.try_lock() {
        Ok(freed) => Some(freed),
        Err(TryLockError::Poisoned(freed)) => Some(freed.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

fn new_header(mark: u64, object: Object) -> *mut Header {
    let again = freed_headers().filter(|freed| freed.len() > KEPT).and_then(|mut freed| freed.pop_front());
    let Some(Freed(header)) = again else {
        return Box::into_raw(Box::new(Header {
            mark: AtomicU64::new(mark),
            object: UnsafeCell::new(object),
        }));
    };
    // SAFETY: the header came from a box that was never dropped.
    let fields = unsafe { header.as_ref() };
    // SAFETY: the mark is `FREED`, so no call reads the object, and the header is out of the queue.
    unsafe { *fields.object.get() = object };
    // ordering: Release pairs with the load in `held`: the mark says that the object stands.
    fields.mark.store(mark, Ordering::Release);
    header.as_ptr()
}

/// A kind of handle: its C type, its mark, its object.
pub(crate) trait Kind: Sized {
    type Held;
    const MARK: u64;
    const NAME: &'static str;
    fn wrap(held: Self::Held) -> Object;
    fn held(object: &Object) -> Option<&Self::Held>;
}

impl Kind for km_mill {
    type Held = Mill;
    const MARK: u64 = MILL;
    const NAME: &'static str = "mill";
    fn wrap(held: Mill) -> Object {
        Object::Mill(held)
    }
    #[inline]
    fn held(object: &Object) -> Option<&Mill> {
        if let Object::Mill(mill) = object { Some(mill) } else { None }
    }
}

impl Kind for km_source {
    type Held = Source;
    const MARK: u64 = SOURCE;
    const NAME: &'static str = "source";
    fn wrap(held: Source) -> Object {
        Object::Source(held)
    }
    #[inline]
    fn held(object: &Object) -> Option<&Source> {
        if let Object::Source(source) = object { Some(source) } else { None }
    }
}

impl Kind for km_router {
    type Held = Router;
    const MARK: u64 = ROUTER;
    const NAME: &'static str = "router";
    fn wrap(held: Router) -> Object {
        Object::Router(held)
    }
    #[inline]
    fn held(object: &Object) -> Option<&Router> {
        if let Object::Router(router) = object { Some(router) } else { None }
    }
}

impl Kind for km_numbers {
    type Held = OrderNumbers;
    const MARK: u64 = NUMBERS;
    const NAME: &'static str = "numbers";
    fn wrap(held: OrderNumbers) -> Object {
        Object::Numbers(held)
    }
    #[inline]
    fn held(object: &Object) -> Option<&OrderNumbers> {
        if let Object::Numbers(numbers) = object { Some(numbers) } else { None }
    }
}

/// A handle for C to hold until it is freed.
pub(crate) fn give<K: Kind>(held: K::Held) -> *mut K {
    new_header(K::MARK, K::wrap(held)).cast()
}

/// What a handle holds.
///
/// # Safety
/// `handle` is NULL or came from [`give`] of any kind, and is not freed before the answer was used.
#[inline]
pub(crate) unsafe fn held<'a, K: Kind>(handle: *const K) -> Result<&'a K::Held> {
    if handle.is_null() {
        return Err(null(K::NAME));
    }
    // SAFETY: by the contract a header, whose memory is never given back.
    let header = unsafe { &*handle.cast::<Header>() };
    // ordering: Acquire — pairs with the exchange in `free` and the store in `new_header`.
    let mark = header.mark.load(Ordering::Acquire);
    if mark != K::MARK {
        return Err(wrong::<K>(mark));
    }
    // SAFETY: the mark says that the object stands; by the contract no other call frees it now.
    K::held(unsafe { &*header.object.get() }).ok_or_else(|| wrong::<K>(FREED))
}

/// Drops what a handle holds, after `before` has seen it. NULL is nothing.
///
/// # Safety
/// `handle` is NULL or came from [`give`] of any kind; no other call is using it.
pub(crate) unsafe fn free<K: Kind>(handle: *mut K, before: impl FnOnce(&K::Held)) -> Result<()> {
    if handle.is_null() {
        return Ok(());
    }
    // SAFETY: as in `held`.
    let header = unsafe { &*handle.cast::<Header>() };
    // ordering: AcqRel — of two threads that free, one wins; pairs with `held`.
    header.mark.compare_exchange(K::MARK, FREED, Ordering::AcqRel, Ordering::Acquire).map_err(wrong::<K>)?;
    // SAFETY: the exchange made the object ours alone.
    let object = unsafe { ptr::replace(header.object.get(), Object::Nothing) };
    if let Some(held) = K::held(&object) {
        before(held);
    }
    if let Some(mut freed) = freed_headers() {
        freed.push_back(Freed(NonNull::from(header)));
    }
    Ok(())
}

#[cold]
fn wrong<K: Kind>(mark: u64) -> Error {
    let wanted = K::NAME;
    Error::argument(match mark {
        FREED => format!("this {wanted} was freed"),
        MILL => format!("a mill was passed where a {wanted} belongs"),
        SOURCE => format!("a source was passed where a {wanted} belongs"),
        ROUTER => format!("a router was passed where a {wanted} belongs"),
        NUMBERS => format!("a numbers handle was passed where a {wanted} belongs"),
        _ => format!("the {wanted} is no handle that keymill gave out"),
    })
}

#[cold]
pub(crate) fn null(name: &str) -> Error {
    Error::argument(format!("`{name}` is NULL"))
}

/// A place where C wants an answer.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// `place` is NULL or may be written until the call ends.
    #[inline]
    pub(crate) unsafe fn new(place: *mut T, name: &str) -> Result<Self> {
        if place.is_null() { Err(null(name)) } else { Ok(Out(place)) }
    }

    #[inline]
    pub(crate) fn set(&self, value: T) {
        // SAFETY: by the contract of `new`.
        unsafe { self.0.write(value) }
    }
}

/// Writes after how many milliseconds to ask again.
pub(crate) fn hinted<T>(answer: Result<T>, retry: &Out<u32>) -> Result<T> {
    answer.inspect_err(|error| {
        if error.code == Code::NotReady {
            retry.set(retry_ms(error).max(1));
        }
    })
}

/// A caller's array of ids.
///
/// # Safety
/// `ids` is NULL or may be written for `count` ids until the call ends, by this call alone.
pub(crate) unsafe fn ids<'a, T: Copy>(ids: *mut T, count: usize) -> Result<&'a mut [T]> {
    if ids.is_null() {
        return Err(null("ids"));
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Error::argument(format!("an array of {count} ids does not fit into memory")));
    }
    // SAFETY: by the contract, and no longer than an object can be.
    Ok(unsafe { std::slice::from_raw_parts_mut(ids, count) })
}

/// A caller's values that are read, `count` of them.
///
/// # Safety
/// `values` is NULL or may be read for `count` values, which do not change until the call ends.
pub(crate) unsafe fn values<'a, T: Copy>(values: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if values.is_null() {
        return Err(null(name));
    }
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Error::argument(format!("`{name}`: {count} values do not fit into memory")));
    }
    // SAFETY: by the contract, and no longer than an object can be.
    Ok(unsafe { std::slice::from_raw_parts(values, count) })
}

/// A caller's buffer, as bytes.
///
/// # Safety
/// `buf` is not NULL and may be written for `size` bytes until the call ends, by this call alone.
pub(crate) unsafe fn bytes<'a>(buf: *mut std::ffi::c_char, size: usize) -> &'a mut [u8] {
    // SAFETY: by the contract.
    unsafe { std::slice::from_raw_parts_mut(buf.cast(), size) }
}

/// Writes the front of `value` over a caller's struct that may be older and shorter: `size` bytes at most.
///
/// # Safety
/// `place` may be written for `size` bytes; `T` is `repr(C)`.
pub(crate) unsafe fn copy_front<T>(value: &T, place: *mut T, size: usize) {
    let size = size.min(size_of::<T>());
    // SAFETY: by the contract; a value of ours and a struct of the caller do not overlap.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(value).cast::<u8>(), place.cast::<u8>(), size) }
}
