//! Revocation words: one word a source, which every cursor compares with a plain load.
//!
//! A word is raised when numbers that were already taken must no longer be issued: a period ended, a segment grew too
//! old, the source was closed. And it is **zero in a forked child**: words live on pages that the kernel wipes at a fork
//! (`MADV_WIPEONFORK`, Linux 4.14; at a raw `clone` too), so parent and child cannot both issue the numbers in memory. Where
//! the kernel cannot wipe, a `pthread_atfork` hook in the child does. The same technique: BoringSSL `fork_detect.c`, s2n-tls `s2n_fork_detection.c`.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crossbeam::utils::Backoff;
use once_cell::sync::OnceCell;

use crate::system::forks;

const PAGE: usize = 16 * 1024;
const WORDS: usize = PAGE / size_of::<AtomicU64>();
/// Slot 0 of a page links to the page before it; the others are words.
const FIRST_WORD: usize = 1;

/// The newest page, which links to the older ones. Pages are never unmapped: a word outlives every cursor that may read it.
static PAGES: AtomicPtr<Page> = AtomicPtr::new(ptr::null_mut());

/// Free words, as a linked list.
static FREE: AtomicPtr<Free> = AtomicPtr::new(ptr::null_mut());

/// The value at which the next word starts.
static STARTS: AtomicU64 = AtomicU64::new(1);

/// The distance between the starts of two words: no word is revoked so often.
const START_DISTANCE: u64 = 1 << 32;

/// Registered once for the process.
static HOOK: OnceCell<()> = OnceCell::new();

struct Page {
    words: &'static [AtomicU64],
    used: AtomicUsize,
    older: *mut Page,
}

struct Free {
    word: &'static AtomicU64,
    next: *mut Free,
}

/// A revocation word. It starts at a value no word before it ever had, rises with each revocation, and is 0 in a
/// forked child.
pub(crate) struct RevocationWord {
    word: &'static AtomicU64,
}

impl RevocationWord {
    /// A fresh word. A cursor that outlived the word's last owner, in this process or one forked from it, never finds
    /// its own value again.
    pub(crate) fn new() -> Self {
        let word = reuse().unwrap_or_else(allocate);
        // ordering: Relaxed — only uniqueness matters.
        let start = STARTS.fetch_add(START_DISTANCE, Ordering::Relaxed);
        // ordering: Release — the word is live before it is shared.
        word.store(start, Ordering::Release);
        RevocationWord { word }
    }

    /// The present value; 0: this process was forked after the word was made.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // ordering: Acquire — pairs with the release in `revoke`: a thread that sees the new value sees why.
        self.word.load(Ordering::Acquire)
    }

    /// Whether this process made the word, and not one it was forked from: one load.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        // ordering: Relaxed — a process is a fork from its first instruction on; nothing is published by the wipe.
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Numbers taken so far must no longer be issued.
    pub(crate) fn revoke(&self) {
        // A forked child's word stays zero.
        let mut now = self.get();
        while now != 0 {
            // ordering: AcqRel — pairs with the acquire in `get`.
            match self.word.compare_exchange_weak(now, now + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(seen) => now = seen,
            }
        }
    }

    /// For cursors that live longer than a borrow: the address stays readable for ever.
    #[inline]
    pub(crate) fn shared(&self) -> &'static AtomicU64 {
        self.word
    }
}

impl Drop for RevocationWord {
    fn drop(&mut self) {
        // A cursor may still compare the word after its source is gone (C's does): it finds the word revoked, and the next owner
        // of the word starts above any value that the cursor can hold.
        self.revoke();
        push_free(Box::into_raw(Box::new(Free { word: self.word, next: ptr::null_mut() })));
    }
}

/// Puts one word on the list of free words.
fn push_free(free: *mut Free) {
    // ordering: Relaxed — the exchange below decides.
    let mut head = FREE.load(Ordering::Relaxed);
    loop {
        // SAFETY: the link is ours alone until the exchange below succeeds.
        unsafe { (*free).next = head };
        // ordering: Release — publishes the link; pairs with the acquire in `reuse`.
        match FREE.compare_exchange_weak(head, free, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(seen) => head = seen,
        }
    }
}

/// Puts a list back that was taken whole. Nearly always nothing was freed meanwhile, and one exchange is all: the list is
/// not walked, or opening n sources after a close would take n² steps.
fn put_back(mut list: *mut Free) {
    // ordering: Release — publishes the list; pairs with the acquire in `reuse`. Relaxed on failure: nothing is read.
    while FREE.compare_exchange(ptr::null_mut(), list, Ordering::Release, Ordering::Relaxed).is_err() {
        // ordering: Acquire — pairs with the release in `push_free` and above.
        list = joined(list, FREE.swap(ptr::null_mut(), Ordering::Acquire));
    }
}

/// Two lists as one: as many steps as the shorter one has links.
fn joined(one: *mut Free, other: *mut Free) -> *mut Free {
    if one.is_null() || other.is_null() {
        return if one.is_null() { other } else { one };
    }
    let (mut a, mut b) = (one, other);
    loop {
        #[cfg(test)]
        tests::STEPS.set(tests::STEPS.get() + 1);
        // SAFETY: both lists are ours alone; each link came from `Box::into_raw`, and none of these two is null.
        let (after_a, after_b) = unsafe { ((*a).next, (*b).next) };
        if after_a.is_null() {
            // SAFETY: as above.
            unsafe { (*a).next = other };
            return one;
        }
        if after_b.is_null() {
            // SAFETY: as above.
            unsafe { (*b).next = one };
            return other;
        }
        (a, b) = (after_a, after_b);
    }
}

/// Takes one free word: the whole list is taken and the rest put back, so no link can be reused meanwhile.
fn reuse() -> Option<&'static AtomicU64> {
    // ordering: Acquire — pairs with the release in `push_free`.
    let first = FREE.swap(ptr::null_mut(), Ordering::Acquire);
    if first.is_null() {
        return None;
    }
    // SAFETY: the swap made the whole list ours; each link came from `Box::into_raw`.
    let free = unsafe { Box::from_raw(first) };
    if !free.next.is_null() {
        put_back(free.next);
    }
    Some(free.word)
}

/// A lock that is free in a forked child, even if a thread of the parent held it at the fork. It spins: for short and rare work.
pub(crate) struct ForkLock {
    word: &'static AtomicU64,
}

/// No [`RevocationWord`] ever has this value, so a cursor that outlived the word's owner does not take the lock for it.
const HELD: u64 = u64::MAX;

impl ForkLock {
    pub(crate) fn new() -> Self {
        let word = reuse().unwrap_or_else(allocate);
        // ordering: Relaxed — the lock is not shared yet.
        word.store(0, Ordering::Relaxed);
        ForkLock { word }
    }

    /// Waits for the lock; free again when the guard is dropped.
    pub(crate) fn lock(&self) -> ForkGuard<'_> {
        let backoff = Backoff::new();
        // ordering: Acquire — what the holder before us did comes first; pairs with the release in the guard.
        while self.word.compare_exchange_weak(0, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            backoff.snooze();
        }
        ForkGuard { lock: self }
    }
}

impl Drop for ForkLock {
    fn drop(&mut self) {
        let free = Box::into_raw(Box::new(Free { word: self.word, next: ptr::null_mut() }));
        push_free(free);
    }
}

/// The lock is held.
pub(crate) struct ForkGuard<'a> {
    lock: &'a ForkLock,
}

impl Drop for ForkGuard<'_> {
    fn drop(&mut self) {
        // ordering: Release — pairs with the acquire in `lock`.
        self.lock.word.store(0, Ordering::Release);
    }
}

/// A word that a forked child finds at 0, whatever its parent wrote.
pub(crate) struct ForkWord {
    word: &'static AtomicU64,
}

impl ForkWord {
    /// No [`RevocationWord`] has a value with this bit, so a cursor that outlived the word's owner does not take this one for its own.
    pub(crate) const OURS: u64 = 1 << 63;

    /// A word with a value that has the bit [`OURS`](ForkWord::OURS).
    pub(crate) fn new(value: u64) -> Self {
        let word = reuse().unwrap_or_else(allocate);
        // ordering: Relaxed — the word is not shared yet.
        word.store(value | Self::OURS, Ordering::Relaxed);
        ForkWord { word }
    }

    /// The word, which stays readable for ever.
    #[inline]
    pub(crate) fn shared(&self) -> &'static AtomicU64 {
        self.word
    }
}

impl Drop for ForkWord {
    fn drop(&mut self) {
        push_free(Box::into_raw(Box::new(Free { word: self.word, next: ptr::null_mut() })));
    }
}

fn allocate() -> &'static AtomicU64 {
    // `wipe` only stores to atomics of pages that are never freed: safe between fork and exec.
    HOOK.get_or_init(|| forks::in_child(wipe));
    loop {
        // ordering: Acquire — pairs with the release below: a page is mapped before it is shown.
        let newest = PAGES.load(Ordering::Acquire);
        if !newest.is_null() {
            // SAFETY: pages are never freed.
            let page = unsafe { &*newest };
            // ordering: Relaxed — only the count's uniqueness matters.
            let slot = page.used.fetch_add(1, Ordering::Relaxed);
            if slot < WORDS {
                return &page.words[slot];
            }
        }
        let page =
            Box::into_raw(Box::new(Page { words: map(), used: AtomicUsize::new(FIRST_WORD), older: newest }));
        // ordering: Release — publishes the page; Relaxed on failure: another page is there, and is used instead.
        if PAGES.compare_exchange(newest, page, Ordering::Release, Ordering::Relaxed).is_err() {
            // SAFETY: the page was never shared. Its mapping is small and stays, unused.
            drop(unsafe { Box::from_raw(page) });
        }
    }
}

/// Zeroed words on a page that a forked child finds wiped, where the system can do that. Elsewhere [`wipe`] does it.
fn map() -> &'static [AtomicU64] {
    match forks::wiped_pages(PAGE) {
        // SAFETY: the pages are zeroed, WORDS words long and never unmapped.
        Some(page) => unsafe { std::slice::from_raw_parts(page.as_ptr().cast::<AtomicU64>(), WORDS) },
        None => on_heap(),
    }
}

fn on_heap() -> &'static [AtomicU64] {
    Box::leak((0..WORDS).map(|_| AtomicU64::new(0)).collect())
}

/// Runs in a forked child, where no other thread exists.
extern "C" fn wipe() {
    // ordering: Acquire — pairs with the release in `allocate`.
    let mut page = PAGES.load(Ordering::Acquire);
    while !page.is_null() {
        // SAFETY: pages are never freed.
        let this = unsafe { &*page };
        for word in this.words {
            // ordering: Relaxed — the child has one thread.
            word.store(0, Ordering::Relaxed);
        }
        page = this.older;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_starts_alive_and_rises_with_each_revocation() {
        let word = RevocationWord::new();
        let start = word.get();
        assert_ne!(start, 0);
        word.revoke();
        assert_eq!(word.get(), start + 1);
    }

    #[test]
    fn a_cursor_that_outlives_its_word_never_finds_its_value_again() {
        let word = RevocationWord::new();
        let (shared, leased_at) = (word.shared(), word.get());
        drop(word);
        assert_ne!(shared.load(Ordering::Relaxed), leased_at);
        let others: Vec<_> = (0..100).map(|_| RevocationWord::new()).collect();
        assert!(others.iter().all(|other| other.get() != leased_at));
    }

    #[test]
    fn words_that_live_at_the_same_time_are_different_words() {
        let words: Vec<_> = (0..5000).map(|_| RevocationWord::new()).collect();
        let mut addresses: Vec<_> = words.iter().map(|w| ptr::from_ref(w.shared()) as usize).collect();
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 5000);
    }

    thread_local! {
        /// Links that this thread walked over.
        pub(super) static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    #[test]
    fn words_are_used_again_in_as_many_steps_as_there_are_words() {
        // Miri is some thousand times slower.
        const WORDS: u64 = if cfg!(miri) { 100 } else { 20_000 };
        for round in 0..3 {
            let before = STEPS.get();
            let words: Vec<_> = (0..WORDS).map(|_| RevocationWord::new()).collect();
            let steps = STEPS.get() - before;
            // Other tests free words meanwhile, which costs a step each.
            assert!(steps <= WORDS, "round {round}: {steps} steps for {WORDS} words");
            drop(words);
        }
    }

    #[test]
    fn lists_of_free_words_are_joined_without_losing_one() {
        fn list(words: usize) -> *mut Free {
            let word = RevocationWord::new().shared();
            (0..words).fold(ptr::null_mut(), |next, _| Box::into_raw(Box::new(Free { word, next })))
        }
        for (one, other) in [(0, 0), (0, 3), (3, 0), (1, 1), (1, 5), (5, 1), (4, 4), (2, 9)] {
            let mut joined = joined(list(one), list(other));
            let mut links = 0;
            while !joined.is_null() {
                // SAFETY: a link of a list that is this test's alone.
                joined = unsafe { Box::from_raw(joined) }.next;
                links += 1;
            }
            assert_eq!(links, one + other);
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_lock_that_was_held_at_a_fork_is_free_in_the_child() {
        let lock = ForkLock::new();
        let held = lock.lock();
        // SAFETY: the child only uses atomics and exits; a lock that is not free would be ended by its alarm.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: an alarm, and the end of the child.
            unsafe {
                libc::alarm(10);
                drop(lock.lock());
                libc::_exit(0);
            }
        }
        let mut status = 0;
        // SAFETY: `pid` is our child; `status` is writable.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert!(
            libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
            "the child waited for its parent's lock"
        );
        drop(held);
        drop(lock.lock());
    }

    #[test]
    #[cfg(unix)]
    fn a_forked_child_reads_zero_and_its_parent_does_not() {
        let word = RevocationWord::new();
        let start = word.get();
        // SAFETY: the child only loads an atomic and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(word.get() != 0)) };
        }
        let mut status = 0;
        // SAFETY: `pid` is our child; `status` is writable.
        unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
        assert_eq!(word.get(), start);
    }
}
