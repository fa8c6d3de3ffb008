//! A cursor: numbers leased ahead and counted through without a locked instruction.
//!
//! The interpreter's lock is what makes it right: no verb lets go of the lock between reading `next` and writing it
//! back, so of two threads one comes first. One cursor serves all copies of a source, so ids rise over all threads of
//! the process as from one shared counter; a batch empties the cursor before it asks the core for more.
//!
//! Each number costs a compare with the revocation word. The word is zero in a forked child however it was forked
//! (`os.fork`, a raw `clone` in C), and raised when the mill is closed or a segment is dropped: then the rest of the
//! cursor is dead. That is why iteration is this cursor and not a chain of `range` objects, which would be a little
//! faster and would hand out the parent's numbers in the child.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use keymill::binding::{LastBlock, Lease};
use keymill::{Result, Source};
use pyo3::prelude::*;

/// Whether this is an interpreter that always has the lock cursors rely on. Asked once, when the module is loaded.
static LOCKED: AtomicBool = AtomicBool::new(true);

/// Asks whether this build of the interpreter can do without its lock.
pub(crate) fn ask_for_the_lock(py: Python<'_>) -> PyResult<()> {
    let flags = py.import("sys")?.getattr("abiflags");
    let flags: String = flags.and_then(|flags| flags.extract()).unwrap_or_default();
    // ordering: Relaxed — written under the import lock, before any source exists.
    LOCKED.store(!flags.contains('t'), Ordering::Relaxed);
    Ok(())
}

/// Whether cursors count at all: they rely on the interpreter's lock.
pub(crate) fn is_locked() -> bool {
    // ordering: Relaxed — written under the import lock, before any source exists.
    LOCKED.load(Ordering::Relaxed)
}

/// The word of a cursor without numbers; it never has the value that such a cursor compares.
static NO_WORD: AtomicU64 = AtomicU64::new(0);

/// Numbers of one source, for the thread that holds the interpreter's lock.
///
/// All orderings are Relaxed: the interpreter's lock orders everything. The fields are atomics so that a cursor is
/// `Sync`; without the lock they would be wrong, never undefined.
#[derive(Debug)]
pub(crate) struct Cursor {
    next: AtomicU64,
    end: AtomicU64,
    word: AtomicPtr<AtomicU64>,
    leased_at: AtomicU64,
    /// What was leased last, by which the core sizes the next block.
    last_len: AtomicU64,
    last_ms: AtomicU64,
}

/// A part of a lease: `lo..hi`, and the word that says whether this process may still issue them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leased {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    word: &'static AtomicU64,
}

impl Leased {
    pub(crate) fn len(&self) -> u64 {
        self.hi - self.lo
    }

    /// False in a child that was forked after the numbers were taken.
    pub(crate) fn is_ours(&self) -> bool {
        // ordering: Relaxed — the page was wiped before the child's first instruction.
        self.word.load(Ordering::Relaxed) != 0
    }
}

impl From<Lease> for Leased {
    fn from(lease: Lease) -> Leased {
        Leased { lo: lease.lo, hi: lease.hi, word: lease.word }
    }
}

impl Cursor {
    pub(crate) fn new() -> Self {
        Cursor {
            next: AtomicU64::new(0),
            end: AtomicU64::new(0),
            word: AtomicPtr::new(ptr::from_ref(&NO_WORD).cast_mut()),
            leased_at: AtomicU64::new(1),
            last_len: AtomicU64::new(0),
            last_ms: AtomicU64::new(0),
        }
    }

    fn word(&self) -> &'static AtomicU64 {
        // ordering: Relaxed — the interpreter's lock, see above.
        let word = self.word.load(Ordering::Relaxed);
        // SAFETY: `NO_WORD` or a lease's word: both are readable for ever.
        unsafe { &*word }
    }

    /// The next number, if there is one and this process may still issue it.
    #[inline]
    pub(crate) fn next(&self) -> Option<u64> {
        // ordering: Relaxed — the interpreter's lock, see above; so below.
        let next = self.next.load(Ordering::Relaxed);
        let alive = self.word().load(Ordering::Relaxed) == self.leased_at.load(Ordering::Relaxed);
        if next < self.end.load(Ordering::Relaxed) && alive {
            self.next.store(next + 1, Ordering::Relaxed);
            return Some(next);
        }
        None
    }

    /// Up to `most` numbers, which this process may still issue.
    pub(crate) fn drain(&self, most: u64) -> Option<Leased> {
        let lo = self.next.load(Ordering::Relaxed); // ordering: Relaxed — the interpreter's lock; so below.
        let hi = lo + self.left().min(most);
        self.next.store(hi, Ordering::Relaxed);
        (lo < hi).then(|| Leased { lo, hi, word: self.word() })
    }

    /// How many numbers it holds that may still be issued.
    pub(crate) fn left(&self) -> u64 {
        // ordering: Relaxed — the interpreter's lock; so below.
        if self.word().load(Ordering::Relaxed) != self.leased_at.load(Ordering::Relaxed) {
            return 0;
        }
        self.end.load(Ordering::Relaxed) - self.next.load(Ordering::Relaxed)
    }

    /// The next number of a segment; never blocks. Called when [`Cursor::next`] found none.
    #[cold]
    pub(crate) fn refill(&self, source: &Source) -> Result<u64> {
        if !is_locked() {
            return source.try_next();
        }
        let mut last = self.last();
        let lease = source.try_lease_block(&mut last, 1)?;
        self.set_last(last);
        // ordering: Relaxed — the interpreter's lock; so below.
        self.word.store(ptr::from_ref(lease.word).cast_mut(), Ordering::Relaxed);
        self.leased_at.store(lease.leased_at, Ordering::Relaxed);
        self.next.store(lease.lo + 1, Ordering::Relaxed);
        self.end.store(lease.hi, Ordering::Relaxed);
        Ok(lease.lo)
    }

    /// Gives back what is left, in the process that leased it. Called with the interpreter's lock, so no other thread counts meanwhile.
    pub(crate) fn give_back(&self, source: &Source) {
        // ordering: Relaxed — the interpreter's lock; so below.
        let (next, end) = (self.next.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        if self.last_len.load(Ordering::Relaxed) == 0 {
            return;
        }
        // ordering: Relaxed — as above. First: no number of it is issued from here on.
        self.next.store(end, Ordering::Relaxed);
        let last = self.last();
        self.set_last(LastBlock::default());
        source.give_back(self.leased_at.load(Ordering::Relaxed), next, end, last);
    }

    fn last(&self) -> LastBlock {
        // ordering: Relaxed — the interpreter's lock; so below.
        let len = self.last_len.load(Ordering::Relaxed);
        LastBlock { len, leased_ms: self.last_ms.load(Ordering::Relaxed) }
    }

    fn set_last(&self, last: LastBlock) {
        // ordering: Relaxed — the interpreter's lock; so below.
        self.last_len.store(last.len, Ordering::Relaxed);
        self.last_ms.store(last.leased_ms, Ordering::Relaxed);
    }
}
