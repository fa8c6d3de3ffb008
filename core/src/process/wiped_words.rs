//! A large array of words that a forked child finds at 0: on Linux pages of their own, which the kernel wipes (`MADV_WIPEONFORK`).
//! Elsewhere the array is an ordinary one, which a child inherits.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use crate::system::forks;

/// `WORDS` words, 0 at first.
pub(crate) struct WipedWords<const WORDS: usize> {
    words: NonNull<[AtomicU64; WORDS]>,
    /// They are a mapping, and not a box.
    is_mapped: bool,
}

// SAFETY: it owns its words, which are atomics.
unsafe impl<const WORDS: usize> Send for WipedWords<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for WipedWords<WORDS> {}

impl<const WORDS: usize> WipedWords<WORDS> {
    /// Words that a child inherits.
    pub(crate) fn inherited() -> Self {
        let words: Box<[AtomicU64]> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let words: Box<[AtomicU64; WORDS]> = words.try_into().unwrap_or_else(|_| unreachable!("as many"));
        WipedWords { words: NonNull::from(Box::leak(words)), is_mapped: false }
    }

    /// Words that a child finds at 0, where the system can do that.
    pub(crate) fn wiped() -> Self {
        let pages = forks::wiped_pages(WORDS * size_of::<AtomicU64>());
        pages.map_or_else(Self::inherited, |pages| WipedWords { words: pages.cast(), is_mapped: true })
    }
}

impl<const WORDS: usize> Deref for WipedWords<WORDS> {
    type Target = [AtomicU64; WORDS];

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: zeroed, aligned and as long as the array says, in a box or in a mapping that ends with this value.
        unsafe { self.words.as_ref() }
    }
}

impl<const WORDS: usize> Drop for WipedWords<WORDS> {
    fn drop(&mut self) {
        if self.is_mapped {
            // SAFETY: the pages that `wiped` asked for, whole; no reference to them is left.
            unsafe { forks::unmap(self.words.cast(), WORDS * size_of::<AtomicU64>()) };
        } else {
            // SAFETY: from `Box::leak`, and dropped once.
            drop(unsafe { Box::from_raw(self.words.as_ptr()) });
        }
    }
}
