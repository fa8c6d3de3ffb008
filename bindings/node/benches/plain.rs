//! A plain napi call, for `bench.mjs` to compare with: a free function that answers with a BigInt.

use std::sync::atomic::{AtomicU64, Ordering};

use napi_derive::napi;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The next number.
#[napi]
pub fn plain() -> u64 {
    // ordering: Relaxed — a counter.
    NEXT.fetch_add(1, Ordering::Relaxed)
}
