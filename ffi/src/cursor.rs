//! A cursor: a block of numbers that C counts through inline, without a call.
//!
//! The inline half, `km_cursor_next`, stands in `cbindgen.toml`, and with it what a cursor's fields mean. The technique is
//! the core's own (`keymill::binding::Lease`): a number of the block may be issued while the revocation word reads what it read
//! when the block was leased.

use std::sync::atomic::Ordering;

use crate::error::{enter, km_code};
use crate::handle::{Out, held, km_source, null};

/// A cursor over a source of numbers, owned by one thread at a time: the fastest way to ids one by one. Make it with
/// KM_CURSOR_INIT(source), take with km_cursor_next. Nothing is to be freed; what is left in it is lost. The source is not
/// freed while cursors over it are used. Do not copy one: both copies would give the same numbers. The fields are the
/// library's own.
#[repr(C)]
#[derive(Debug)]
pub struct km_cursor {
    /// The next number.
    pub next: u64,
    /// One past the last.
    pub end: u64,
    /// The numbers may be issued while `*word == leased_at`; readable for ever.
    pub word: *const u64,
    /// See word.
    pub leased_at: u64,
    /// Where new blocks come from.
    pub source: *mut km_source,
    /// How many numbers to lease at a time; 0: as many as the source's block= says. May be set by the caller.
    pub count: u64,
    /// 0.
    pub reserved: [u64; 2],
}

/// Leases the cursor's next block and takes its first id. km_cursor_next calls it when the block is used up, the mill was
/// closed or the process forked; no program needs to.
///
/// As km_source_next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_cursor_refill(cursor: *mut km_cursor, id: *mut u64) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let id = unsafe { Out::new(id, "id") }?;
        if cursor.is_null() {
            return Err(null("cursor"));
        }
        // SAFETY: not NULL, and the caller's alone until the call ends.
        let cursor = unsafe { &mut *cursor };
        // SAFETY: the conventions page.
        let source = unsafe { held(cursor.source) }?;
        loop {
            let lease = source.lease_block(cursor.count)?;
            // ordering: Relaxed — as in every cursor: the numbers are ours, revocation may be seen a moment late.
            if lease.word.load(Ordering::Relaxed) == lease.leased_at {
                cursor.next = lease.lo + 1;
                cursor.end = lease.hi;
                cursor.word = lease.word.as_ptr();
                cursor.leased_at = lease.leased_at;
                id.set(lease.lo);
                return Ok(());
            }
        }
    })
}
