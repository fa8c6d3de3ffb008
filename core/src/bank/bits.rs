//! A bit for each counter of a bank: those that want numbers. Setting one allocates nothing and takes no lock.
//!
//! A second level has a bit for each word of the first that may have members, so the keeper looks at the members of a set and at no
//! others: of 65 536 counters the second level is 16 words. Callers set a bit of the first level before the bit of the second; the keeper
//! clears them in the other order.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A set of counters. Any thread adds members; the keeper alone removes them.
pub(super) struct Bits {
    words: Box<[AtomicU64]>,
    /// The words that may not be 0.
    summary: Box<[AtomicU64]>,
    /// The word at which the next search begins, so that every counter has its turn. The keeper's own.
    from: AtomicU32,
}

/// Where a bit is.
fn place(index: usize) -> (usize, u64) {
    (index / 64, 1 << (index % 64))
}

/// Words without members, for so many bits.
fn words(count: usize) -> Box<[AtomicU64]> {
    (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

impl Bits {
    pub(super) fn new(count: u32) -> Bits {
        let words = words(count as usize);
        Bits { summary: self::words(words.len()), words, from: AtomicU32::new(0) }
    }

    pub(super) fn set(&self, index: u32) {
        let (at, bit) = place(index as usize);
        let Some(word) = self.words.get(at) else { return };
        // ordering: Relaxed — released by the summary's bit.
        word.fetch_or(bit, Ordering::Relaxed);
        self.summarize(at);
    }

    fn summarize(&self, at: usize) {
        let (summary, bit) = place(at);
        // ordering: Release — pairs with `unsummarize`: the keeper that removes this bit sees what was set before.
        self.summary[summary].fetch_or(bit, Ordering::Release);
    }

    /// A word was empty: it is not looked at again, unless a member was added meanwhile.
    fn unsummarize(&self, at: usize) {
        let (summary, bit) = place(at);
        // ordering: Acquire — pairs with `summarize`: a member whose bit of the summary goes here is seen below.
        self.summary[summary].fetch_and(!bit, Ordering::Acquire);
        // ordering: Relaxed — as above.
        if self.words[at].load(Ordering::Relaxed) != 0 {
            self.summarize(at);
        }
    }

    /// Clears a bit; answers whether it was set.
    pub(super) fn clear(&self, index: u32) -> bool {
        let (at, bit) = place(index as usize);
        let Some(word) = self.words.get(at) else { return false };
        // ordering: Relaxed — acquired with the wake.
        let before = word.fetch_and(!bit, Ordering::Relaxed);
        if before == bit {
            self.unsummarize(at);
        }
        before & bit != 0
    }

    pub(super) fn has_any(&self) -> bool {
        // ordering: Relaxed — acquired with the wake.
        self.summary.iter().any(|summary| summary.load(Ordering::Relaxed) != 0)
    }

    pub(super) fn clear_all(&self) {
        for at in self.full_words(0) {
            // ordering: Relaxed — a wish of the same moment is made again.
            self.words[at].store(0, Ordering::Relaxed);
            self.unsummarize(at);
        }
    }

    /// The words that may have members, from this one on and round to it.
    fn full_words(&self, from: usize) -> impl Iterator<Item = usize> {
        let (first, bit) = place(from);
        let below = bit - 1;
        let count = self.summary.len();
        (0..=count).flat_map(move |step| {
            let at = (first + step) % count;
            // The first one has its upper part at the beginning, and its lower part at the end.
            let part = if step == 0 {
                !below
            } else if step == count {
                below
            } else {
                !0
            };
            // ordering: Relaxed — acquired with the wake.
            let mut left = self.summary[at].load(Ordering::Relaxed) & part;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(at * 64 + bit)
            })
        })
    }

    /// Up to `most` counters of the set, beginning where the last call ended.
    pub(super) fn some(&self, most: usize) -> Vec<u32> {
        // ordering: Relaxed — the keeper's own.
        let from = self.from.load(Ordering::Relaxed) as usize;
        let mut found = Vec::new();
        for at in self.full_words(from) {
            // ordering: Relaxed — acquired with the wake.
            let mut word = self.words[at].load(Ordering::Relaxed);
            while word != 0 {
                if found.len() >= most {
                    // ordering: Relaxed — the keeper's own.
                    self.from.store(at as u32, Ordering::Relaxed);
                    return found;
                }
                found.push(at as u32 * 64 + word.trailing_zeros());
                word &= word - 1;
            }
        }
        found
    }

    /// Removes every member.
    pub(super) fn take_all(&self) -> Vec<u32> {
        let mut taken = Vec::new();
        for at in self.full_words(0) {
            // ordering: Relaxed — acquired with the wake.
            let mut word = self.words[at].swap(0, Ordering::Relaxed);
            self.unsummarize(at);
            while word != 0 {
                taken.push(at as u32 * 64 + word.trailing_zeros());
                word &= word - 1;
            }
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_of_the_set_has_its_turn() {
        let bits = Bits::new(65_536);
        assert!(!bits.has_any() && bits.some(10).is_empty());
        let members = [0, 63, 64, 70, 1_000, 65_535];
        for member in members {
            bits.set(member);
        }
        assert!(bits.has_any());
        let mut found = Vec::new();
        while bits.has_any() {
            for member in bits.some(2) {
                assert!(bits.clear(member));
                found.push(member);
            }
        }
        found.sort_unstable();
        assert_eq!(found, members);
        assert!(!bits.clear(64) && !bits.clear(70_000));
        bits.set(5);
        bits.clear_all();
        assert!(!bits.has_any());
        assert!(bits.take_all().is_empty());
    }

    #[test]
    fn a_search_looks_at_the_words_of_members_and_at_no_others() {
        let bits = Bits::new(65_536);
        for member in [7, 4_096, 4_100, 65_535] {
            bits.set(member);
        }
        assert_eq!(bits.full_words(0).collect::<Vec<_>>(), [0, 64, 1_023]);
        assert_eq!(bits.full_words(65).collect::<Vec<_>>(), [1_023, 0, 64]);
        assert!(bits.clear(4_096));
        assert_eq!(bits.full_words(64).collect::<Vec<_>>(), [64, 1_023, 0]);
        assert!(bits.clear(4_100));
        assert_eq!(bits.take_all(), [7, 65_535]);
        assert_eq!(bits.full_words(0).count(), 0);
        // A set of one word.
        let few = Bits::new(3);
        few.set(2);
        assert_eq!((few.some(9), few.some(9), few.take_all()), (vec![2], vec![2], vec![2]));
    }

    /// Else a counter would wait until another one of its 64 wants numbers.
    #[test]
    fn a_member_that_is_added_while_others_are_removed_is_found() {
        const ROUNDS: u32 = 20_000;
        let bits = Bits::new(128);
        std::thread::scope(|scope| {
            let keeper = scope.spawn(|| {
                let mut found = 0;
                while found < ROUNDS {
                    found += if found % 2 == 0 {
                        bits.take_all().len() as u32
                    } else {
                        bits.some(1).into_iter().filter(|member| bits.clear(*member)).count() as u32
                    };
                }
            });
            for round in 0..ROUNDS {
                let member = round % 3;
                // Added once it was removed: each is found by itself.
                // ordering: Relaxed — the bit is compared with itself.
                while bits.words[0].load(Ordering::Relaxed) & (1 << member) != 0 {
                    std::hint::spin_loop();
                }
                bits.set(member);
            }
            keeper.join().expect("every member was found");
        });
    }
}
