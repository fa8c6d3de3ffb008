//! A bit for each counter of a bank: those that want numbers. Setting one allocates nothing and takes no lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A set of counters.
pub(super) struct Bits {
    words: Box<[AtomicU64]>,
    /// Where the next search begins, so that every counter has its turn. The keeper's own.
    from: AtomicU32,
}

impl Bits {
    pub(super) fn new(count: u32) -> Bits {
        let words = (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Bits { words, from: AtomicU32::new(0) }
    }

    fn word(&self, index: u32) -> Option<(&AtomicU64, u64)> {
        Some((self.words.get(index as usize / 64)?, 1 << (index % 64)))
    }

    pub(super) fn set(&self, index: u32) {
        if let Some((word, bit)) = self.word(index) {
            // ordering: Relaxed — `Waker::wake` publishes it.
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Clears a bit; answers whether it was set.
    pub(super) fn clear(&self, index: u32) -> bool {
        // ordering: Relaxed — acquired with the wake.
        self.word(index).is_some_and(|(word, bit)| word.fetch_and(!bit, Ordering::Relaxed) & bit != 0)
    }

    pub(super) fn has_any(&self) -> bool {
        // ordering: Relaxed — acquired with the wake.
        self.words.iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    pub(super) fn clear_all(&self) {
        for word in &self.words {
            // ordering: Relaxed — a wish of the same moment is made again.
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Up to `most` counters of the set, beginning behind those of the last call.
    pub(super) fn some(&self, most: usize) -> Vec<u32> {
        let count = self.words.len();
        // ordering: Relaxed — the keeper's own.
        let from = self.from.load(Ordering::Relaxed) as usize;
        let mut found = Vec::new();
        for step in 0..count {
            let at = (from + step) % count;
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
    }
}
