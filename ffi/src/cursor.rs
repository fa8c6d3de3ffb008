//! A cursor: a block of numbers that C counts through inline, without a call.
//!
//! The inline half, `km_cursor_next`, stands in `cbindgen.toml`, and with it what a cursor's fields mean. The technique is
//! the core's own (`keymill::binding::Lease`): a number of the block may be issued while the revocation word reads what it read
//! when the block was leased.

use std::sync::atomic::Ordering;

use keymill_core::binding::LastBlock;

use crate::error::{enter, km_code};
use crate::handle::{Out, held, km_source, null};

/// A cursor over a source of numbers, owned by one thread at a time: the fastest way to ids one by one. Make it with
/// KM_CURSOR_INIT(source), take with km_cursor_next. Nothing is to be freed. What is left in it goes
/// back with km_cursor_close before the mill is closed, and is lost without it. The source is not
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
    /// How many numbers to lease at a time at most; 0: as many as the source's block= says. May be set by the caller.
    pub count: u64,
    /// How many numbers the block had, and when it was leased: blocks grow with use. Zeros before the first.
    pub last: [u64; 2],
}

impl km_cursor {
    fn last_block(&self) -> LastBlock {
        LastBlock { len: self.last[0], leased_ms: self.last[1] }
    }
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
        let mut last = cursor.last_block();
        loop {
            let lease = source.lease_block(&mut last, cursor.count)?;
            cursor.last = [last.len, last.leased_ms];
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

/// Gives back what is left in the cursor, which is empty afterwards and may be used on. Before the mill is closed, and by the thread
/// that owns the cursor. In a forked child it empties the cursor.
///
/// KM_INVALID_ARGUMENT for NULL and for a source that was freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_cursor_close(cursor: *mut km_cursor) -> km_code {
    enter(|| {
        if cursor.is_null() {
            return Err(null("cursor"));
        }
        // SAFETY: not NULL, and the caller's alone until the call ends.
        let cursor = unsafe { &mut *cursor };
        let (next, end, last) = (cursor.next, cursor.end, cursor.last_block());
        // First: no number of it is issued from here on, whatever follows.
        (cursor.next, cursor.end, cursor.last) = (0, 0, [0, 0]);
        // SAFETY: the conventions page.
        let source = unsafe { held(cursor.source) }?;
        source.give_back(cursor.leased_at, next, end, last);
        Ok(())
    })
}
