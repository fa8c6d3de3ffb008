//! A large array of words that a forked child finds at 0: on Linux pages of their own, which the kernel wipes (`MADV_WIPEONFORK`).
//! Elsewhere the array is an ordinary one, which a child inherits.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

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
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(crate) fn wiped() -> Self {
        // SAFETY: a fresh anonymous mapping; the arguments follow mmap(2).
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                WORDS * size_of::<AtomicU64>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        match NonNull::new(pages.cast::<[AtomicU64; WORDS]>()) {
            Some(words) if pages != libc::MAP_FAILED => {
                // SAFETY: the mapping above, whole. An old kernel refuses the advice, and a child inherits the words.
                unsafe { libc::madvise(pages, WORDS * size_of::<AtomicU64>(), libc::MADV_WIPEONFORK) };
                WipedWords { words, is_mapped: true }
            }
            _ => Self::inherited(),
        }
    }

    /// Words that a child inherits: this system does not wipe.
    #[cfg(not(all(target_os = "linux", not(miri))))]
    pub(crate) fn wiped() -> Self {
        Self::inherited()
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
            #[cfg(all(target_os = "linux", not(miri)))]
            // SAFETY: the mapping that `wiped` made, whole; no reference to it is left.
            unsafe {
                libc::munmap(self.words.as_ptr().cast(), WORDS * size_of::<AtomicU64>());
            }
        } else {
            // SAFETY: from `Box::leak`, and dropped once.
            drop(unsafe { Box::from_raw(self.words.as_ptr()) });
        }
    }
}
