//! The ring: a word for each gene, in two slots, so that a new table replaces the whole old one at once.
//!
//! Readers neither lock nor write. `turn` counts the tables; table `n` is in slot `n & 1`. A reader loads `turn`, then the
//! word of its gene and the version from that slot, and accepts both if `turn` is still the same. A writer fills the other
//! slot and then raises `turn`.
//!
//! Neighbouring genes mostly have the same word, so a slot has a short number for each gene and a list of the different words:
//! 128 KiB are in a processor's cache where 512 would not be.
//!
//! Why an accepted word belongs to table `n`. The writer of table `n` fills the slot before it stores `turn = n`, which the
//! first load of `turn` acquires: the reader sees that word or a later one. The next words in this slot belong to table `n + 2`, and are
//! stored after `turn = n + 1`. A reader that loads one of them acquires that store, so its second load of `turn` is not `n` any more, and
//! it reads again. Two slots suffice, and old tables need no reclamation.
//!
//! A reader repeats only if a whole table was published between its two loads; it never waits for a writer. (Sequence
//! locks, and why these loads and stores are acquire and release: Boehm, <https://doi.org/10.1145/2247684.2247688>.)

use std::collections::HashMap;

use crate::process::sync::{AtomicU16, AtomicU64, Ordering};
#[cfg(not(loom))]
use crate::process::wiped_words::WipedWords;

/// How many genes a ring has.
#[cfg(not(loom))]
pub(super) const GENES: usize = crate::gene::GENES as usize;
/// The model checker explores every order of every access: few words.
#[cfg(loom)]
pub(super) const GENES: usize = 2;

struct TableCopy {
    version: AtomicU64,
    /// For each gene the number of its word. A number that was read halfway through a change is within the list, too.
    numbers: Box<[AtomicU16; GENES]>,
    /// The words of a store's table are wiped in a forked child, so that it asks for its own table before it answers.
    #[cfg(not(loom))]
    words: WipedWords<GENES>,
    #[cfg(loom)]
    words: Words,
}

/// The model checker has atomics of its own.
#[cfg(loom)]
type Words = Box<[AtomicU64; GENES]>;

#[cfg(not(loom))]
fn words(are_wiped: bool) -> WipedWords<GENES> {
    if are_wiped { WipedWords::wiped() } else { WipedWords::inherited() }
}

#[cfg(loom)]
fn words(_are_wiped: bool) -> Words {
    boxed(|| AtomicU64::new(0))
}

fn boxed<T>(make: impl Fn() -> T) -> Box<[T; GENES]> {
    let all: Box<[T]> = (0..GENES).map(|_| make()).collect();
    all.try_into().unwrap_or_else(|_| unreachable!("as many as genes"))
}

impl TableCopy {
    fn new(are_wiped: bool) -> TableCopy {
        TableCopy {
            version: AtomicU64::new(0),
            numbers: boxed(|| AtomicU16::new(0)),
            words: words(are_wiped),
        }
    }
}

/// The words of the present table. Published by one thread at a time.
pub(super) struct Ring {
    /// How many tables were published: the low bit is the slot of the present one.
    turn: AtomicU64,
    slots: [TableCopy; 2],
}

impl Ring {
    /// A ring whose words are 0, in version 0. Where they `are_wiped`, they are 0 in a forked child too.
    pub(super) fn new(are_wiped: bool) -> Ring {
        Ring { turn: AtomicU64::new(0), slots: [TableCopy::new(are_wiped), TableCopy::new(are_wiped)] }
    }

    /// In a forked child, which has one thread: any table is newer than the one whose words were wiped.
    pub(super) fn begin_anew(&self) {
        // ordering: Relaxed, both — there is one thread.
        let slot = &self.slots[(self.turn.load(Ordering::Relaxed) & 1) as usize];
        // ordering: Relaxed — as above.
        slot.version.store(0, Ordering::Relaxed);
    }

    /// The word of a gene, and the version of its table.
    #[inline]
    pub(super) fn word(&self, gene: u16) -> (u64, u64) {
        self.read(|slot| {
            // ordering: Acquire, both — see `read`.
            let number = slot.numbers[usize::from(gene)].load(Ordering::Acquire);
            // ordering: as above.
            slot.words[usize::from(number)].load(Ordering::Acquire)
        })
    }

    /// The version of the present table.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.read(|_| ()).1
    }

    #[inline]
    fn read<T>(&self, read: impl Fn(&TableCopy) -> T) -> (T, u64) {
        loop {
            // ordering: Acquire — pairs with the release in `publish`: the slot was filled before.
            let turn = self.turn.load(Ordering::Acquire);
            let slot = &self.slots[(turn & 1) as usize];
            // ordering: Acquire, as of the words — pairs with the releases in `publish`: a later table's value brings its
            // turn along, which the load below then sees.
            let (version, read) = (slot.version.load(Ordering::Acquire), read(slot));
            // ordering: Relaxed — the loads above come first, because they acquire.
            if self.turn.load(Ordering::Relaxed) == turn {
                return (read, version);
            }
        }
    }

    /// Whether the present table has these words. The caller keeps other publishers away.
    pub(super) fn has(&self, words: &[u64]) -> bool {
        // ordering: Relaxed — the caller's lock keeps the writers away.
        let slot = &self.slots[(self.turn.load(Ordering::Relaxed) & 1) as usize];
        // ordering: Relaxed — as above.
        let word = |number: u16| slot.words[usize::from(number)].load(Ordering::Relaxed);
        // ordering: Relaxed — as above.
        slot.numbers.iter().zip(words).all(|(number, new)| word(number.load(Ordering::Relaxed)) == *new)
    }

    /// Replaces the table by these words, one for each gene. The caller keeps other publishers away.
    pub(super) fn publish(&self, words: &[u64], version: u64) {
        // ordering: Relaxed — the caller's lock keeps other writers away.
        let next = self.turn.load(Ordering::Relaxed) + 1;
        let slot = &self.slots[(next & 1) as usize];
        let mut known: HashMap<u64, u16> = HashMap::new();
        let mut last = None;
        for (place, word) in slot.numbers.iter().zip(words) {
            let number = match last {
                Some((same, number)) if same == *word => number,
                _ => {
                    let count = known.len() as u16;
                    let number = *known.entry(*word).or_insert(count);
                    if number == count {
                        // ordering: Release — with the acquire in `read`: a reader that sees the word sees the turn that
                        // ended this slot's last table.
                        slot.words[usize::from(number)].store(*word, Ordering::Release);
                    }
                    last = Some((*word, number));
                    number
                }
            };
            // ordering: Release — as above.
            place.store(number, Ordering::Release);
        }
        // ordering: Release — as above.
        slot.version.store(version, Ordering::Release);
        // ordering: Release — pairs with the first load in `read`.
        self.turn.store(next, Ordering::Release);
    }
}
