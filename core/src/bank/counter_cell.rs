//! The cell of one counter: two segments in 32 bytes, counted by compare-and-set.
//!
//! `word` is the segment that callers count in, `spare` the next one. Both are packed: how many numbers are left (17 bits)
//! above the next number (47 bits, from `base` on). A caller that takes numbers subtracts them from the upper part and adds
//! them to the lower one. When `word` is used up, a caller moves `spare` into it.
//!
//! Why no number is handed out twice.
//! * Segments are published in rising order and do not overlap, by one thread at a time. Every change of `word` raises its number:
//!   taking numbers does, and so does a new segment in the place of an empty one. A new segment begins at or above the end of
//!   every earlier one, and the caller that moves it takes its first number in the same step. So `word` never has a value
//!   twice, and a compare-and-set succeeds only if nothing happened in between.
//! * Between a move and its removal `spare` still holds the segment that was moved. That segment begins below the number of
//!   `word`. A segment that was not moved begins at or above it. So callers recognise a moved segment, and the first of them
//!   removes it. The same value never comes back into `spare` either.
//! * A close writes a value without numbers into both words, above every number. It takes `word` first. It finds a segment that
//!   was moved before in `word`, and afterwards no segment can be moved.

use crate::process::sync::{AtomicU32, AtomicU64, Ordering};

/// Bits of the next number.
const NUMBER_BITS: u32 = 47;
const ONE_LEFT: u64 = 1 << NUMBER_BITS;
const NUMBER: u64 = ONE_LEFT - 1;

/// The number that is 0 in the cells of 64-bit ids.
pub(super) const FIRST: u64 = 1;

/// The most numbers of one segment in a cell.
pub(super) const MOST: u64 = (1 << (64 - NUMBER_BITS)) - 1;

/// One past the highest number that a cell can hold, from its base on.
pub(super) const END: u64 = NUMBER;

/// A closed word: nothing is left, and no segment begins above it.
const CLOSED: u64 = NUMBER;

/// One counter of a bank. All zero: nothing was published yet.
#[repr(C, align(32))]
pub(super) struct CounterCell {
    word: AtomicU64,
    spare: AtomicU64,
    /// The number that is 0 here; set before the first segment is published.
    base: AtomicU64,
    /// How many numbers callers lack.
    wanted: AtomicU32,
    /// The keeper's own note about the last refill.
    note: AtomicU32,
}

const _: () = assert!(cfg!(loom) || size_of::<CounterCell>() == 32);

const fn left(word: u64) -> u64 {
    word >> NUMBER_BITS
}

const fn next(word: u64) -> u64 {
    word & NUMBER
}

const fn after(word: u64, taken: u64) -> u64 {
    // The lower part cannot overflow: a segment ends at `END` at the latest.
    word - taken * ONE_LEFT + taken
}

/// Whether `spare` holds a segment that was not moved yet.
const fn is_fresh(spare: u64, word: u64) -> bool {
    left(spare) > 0 && next(spare) >= next(word)
}

/// Numbers that were taken, from the base on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) lo: u64,
    pub(super) hi: u64,
    /// The spare segment was used: the keeper should bring another one.
    pub(super) moved: bool,
}

/// What a cell holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CellContents {
    /// How many numbers are left.
    pub(super) left: u64,
    /// How many more segments can be published.
    pub(super) room: u32,
    /// One past the highest number that was published; 0: none was.
    pub(super) end: u64,
}

impl CounterCell {
    #[cfg(any(test, loom))]
    pub(super) fn new() -> CounterCell {
        CounterCell {
            word: AtomicU64::new(0),
            spare: AtomicU64::new(0),
            base: AtomicU64::new(0),
            wanted: AtomicU32::new(0),
            note: AtomicU32::new(0),
        }
    }

    /// The next number, from the base on; `None`: the segment is used up, and [`CounterCell::take`] looks further.
    #[inline]
    pub(super) fn take_one(&self) -> Option<u64> {
        // ordering: Acquire — pairs with the release that published or moved the segment: its base is visible.
        let mut word = self.word.load(Ordering::Acquire);
        while word >= ONE_LEFT {
            // ordering: AcqRel — keeps the release sequence of the publication; Acquire on failure as for the load.
            match self.word.compare_exchange_weak(word, after(word, 1), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(next(word)),
                Err(seen) => word = seen,
            }
        }
        None
    }

    /// Up to `want` numbers of one segment, at least one; `None`: there is none.
    pub(super) fn take(&self, want: u64) -> Option<Got> {
        let want = want.max(1);
        loop {
            // ordering: Acquire — as in `take_one`.
            let word = self.word.load(Ordering::Acquire);
            if left(word) > 0 {
                let count = left(word).min(want);
                // ordering: AcqRel — as in `take_one`. Relaxed on failure: the loop loads again.
                let taken =
                    self.word.compare_exchange(word, after(word, count), Ordering::AcqRel, Ordering::Relaxed);
                if taken.is_ok() {
                    return Some(Got { lo: next(word), hi: next(word) + count, moved: false });
                }
                continue;
            }
            // ordering: Acquire — pairs with the release in `publish`: the base is visible.
            let spare = self.spare.load(Ordering::Acquire);
            // A closed cell's spare segment is for the thread that closes it.
            if left(spare) == 0 || word == CLOSED {
                return None;
            }
            if !is_fresh(spare, word) {
                // It was moved already.
                self.remove(spare);
                continue;
            }
            let count = left(spare).min(want);
            // ordering: AcqRel — publishes the segment for other takers; Relaxed on failure as above.
            let moved =
                self.word.compare_exchange(word, after(spare, count), Ordering::AcqRel, Ordering::Relaxed);
            if moved.is_ok() {
                self.remove(spare);
                return Some(Got { lo: next(spare), hi: next(spare) + count, moved: true });
            }
        }
    }

    /// Removes a segment that was moved from `spare`, unless another thread has.
    fn remove(&self, moved: u64) {
        // ordering: Relaxed — what it held is published by `word`.
        let _ = self.spare.compare_exchange(moved, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Publishes `[lo, lo + len)`, from the base on: into `word` if that is empty, else as the spare segment. `false`: there is
    /// no room, or the cell is closed, and nothing was changed. One thread at a time, under the lock of the supply.
    pub(super) fn publish(&self, lo: u64, len: u64) -> bool {
        if len == 0 || len > MOST || lo > END - len {
            return false;
        }
        let segment = len << NUMBER_BITS | lo;
        loop {
            // ordering: Acquire on both — the value decides, and is compared again below.
            let spare = self.spare.load(Ordering::Acquire);
            // ordering: as above.
            let word = self.word.load(Ordering::Acquire);
            // Segments rise: one below what was published before was reserved by a store that went backwards.
            if is_fresh(spare, word) || lo < next(word) + left(word) {
                return false;
            }
            // ordering: Release — publishes the base and the segment. Relaxed on failure: the loop loads again.
            let published = if left(word) == 0 {
                self.word.compare_exchange(word, segment, Ordering::Release, Ordering::Relaxed)
            } else {
                self.spare.compare_exchange(spare, segment, Ordering::Release, Ordering::Relaxed)
            };
            if published.is_ok() {
                return true;
            }
        }
    }

    /// What the cell holds. What callers take meanwhile may be counted.
    pub(super) fn holds(&self) -> CellContents {
        // ordering: Acquire on both — `word` after `spare`: a segment that is moved in between is counted in `word` alone.
        let spare = self.spare.load(Ordering::Acquire);
        // ordering: as above.
        let word = self.word.load(Ordering::Acquire);
        let fresh = is_fresh(spare, word);
        let of_spare = if fresh { left(spare) } else { 0 };
        let end = if fresh { next(spare) + left(spare) } else { next(word) + left(word) };
        let room = u32::from(!fresh) + u32::from(!fresh && left(word) == 0);
        CellContents { left: left(word) + of_spare, room, end }
    }

    /// Closes for good. Returns what no caller got: ranges from the base on, in rising order.
    pub(super) fn close(&self) -> [Option<(u64, u64)>; 2] {
        // ordering: AcqRel — `word` first, see the top of this file.
        let word = self.word.swap(CLOSED, Ordering::AcqRel);
        // ordering: AcqRel — a segment that was published before is seen whole.
        let spare = self.spare.swap(CLOSED, Ordering::AcqRel);
        let range = |word: u64| (left(word) > 0).then(|| (next(word), next(word) + left(word)));
        [range(word), range(spare).filter(|_| is_fresh(spare, word))]
    }

    #[inline]
    pub(super) fn base(&self) -> u64 {
        // ordering: Relaxed — written once, before the first segment; acquired with that.
        self.base.load(Ordering::Relaxed)
    }

    /// Sets the base, before the first segment is published.
    pub(super) fn set_base(&self, base: u64) {
        // ordering: Relaxed — released with the first segment.
        self.base.store(base, Ordering::Relaxed);
    }

    /// A caller lacks so many numbers.
    pub(super) fn want(&self, numbers: u64) {
        let numbers = u32::try_from(numbers).unwrap_or(u32::MAX).max(1);
        // ordering: Relaxed — `Waker::wake` publishes it.
        self.wanted.fetch_max(numbers, Ordering::Relaxed);
    }

    /// How many numbers callers lack; from now on none.
    pub(super) fn take_wanted(&self) -> u64 {
        // ordering: Relaxed — acquired with the wake. A caller that still lacks numbers says so again.
        u64::from(self.wanted.swap(0, Ordering::Relaxed))
    }

    pub(super) fn note(&self) -> u32 {
        // ordering: Relaxed — the keeper's own.
        self.note.load(Ordering::Relaxed)
    }

    pub(super) fn set_note(&self, note: u32) {
        // ordering: Relaxed — the keeper's own.
        self.note.store(note, Ordering::Relaxed);
    }
}

/// Cells of nothing but zeros. The system hands out such memory without writing it, so a counter costs nothing before it is
/// used.
#[cfg(not(loom))]
pub(super) fn cells(count: usize) -> Box<[CounterCell]> {
    let Ok(layout) = std::alloc::Layout::array::<CounterCell>(count) else { return Box::new([]) };
    if layout.size() == 0 {
        return Box::new([]);
    }
    // SAFETY: the layout is not of size zero.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    if memory.is_null() {
        std::alloc::handle_alloc_error(layout);
    }
    #[expect(clippy::cast_ptr_alignment, reason = "the layout has the alignment of a cell")]
    let cells = std::ptr::slice_from_raw_parts_mut(memory.cast::<CounterCell>(), count);
    // SAFETY: allocated with the layout of this slice, and zeros are valid atomics.
    unsafe { Box::from_raw(cells) }
}

#[cfg(loom)]
pub(super) fn cells(count: usize) -> Box<[CounterCell]> {
    (0..count).map(|_| CounterCell::new()).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_taken_one_by_one_and_in_parts_from_both_segments() {
        let cell = CounterCell::new();
        assert_eq!((cell.take_one(), cell.take(5)), (None, None));
        assert!(cell.publish(0, 3) && cell.publish(10, 4));
        assert_eq!(cell.holds(), CellContents { left: 7, room: 0, end: 14 });
        assert!(!cell.publish(20, 1), "there is no room for a third one");
        assert_eq!(cell.take_one(), Some(0));
        assert_eq!(cell.take(9), Some(Got { lo: 1, hi: 3, moved: false }));
        assert_eq!(cell.take_one(), None);
        assert_eq!(cell.take(1), Some(Got { lo: 10, hi: 11, moved: true }));
        assert_eq!(cell.holds(), CellContents { left: 3, room: 1, end: 14 });
        assert_eq!(cell.take(9), Some(Got { lo: 11, hi: 14, moved: false }));
        assert_eq!(cell.holds(), CellContents { left: 0, room: 2, end: 14 });
        assert!(!cell.publish(13, 1), "below what was published before");
        assert!(cell.publish(14, MOST));
        assert_eq!(cell.take(u64::MAX), Some(Got { lo: 14, hi: 14 + MOST, moved: false }));
    }

    #[test]
    fn the_last_number_is_handed_out_and_nothing_wraps() {
        let cell = CounterCell::new();
        assert!(!cell.publish(END - 1, 2), "it would end beyond the last number");
        assert!(cell.publish(END - 2, 2));
        assert_eq!((cell.take_one(), cell.take_one(), cell.take_one()), (Some(END - 2), Some(END - 1), None));
        assert_eq!(cell.take(1), None);
        assert_eq!(cell.holds(), CellContents { left: 0, room: 2, end: END });
        assert!(!cell.publish(END, 1));
    }

    #[test]
    fn a_closed_cell_gives_back_what_is_left_and_takes_nothing_any_more() {
        let cell = CounterCell::new();
        assert!(cell.publish(0, 3) && cell.publish(3, 2));
        assert_eq!(cell.take_one(), Some(0));
        assert_eq!(cell.close(), [Some((1, 3)), Some((3, 5))]);
        assert_eq!((cell.take_one(), cell.take(1)), (None, None));
        assert!(!cell.publish(100, 1));
        assert_eq!(cell.close(), [None, None]);
        assert_eq!(CounterCell::new().close(), [None, None]);
    }

    #[derive(Clone, Debug)]
    enum CellMove {
        One,
        Take(u64),
        /// A segment so far above the last one, and so long.
        Publish(u64, u64),
        Close,
    }

    fn moves() -> impl Strategy<Value = Vec<CellMove>> {
        let each = prop_oneof![
            8 => Just(CellMove::One),
            4 => (1..40_u64).prop_map(CellMove::Take),
            6 => (0..50_u64, 1..60_u64).prop_map(|(gap, len)| CellMove::Publish(gap, len)),
            1 => (0..2 * END, 1..2 * MOST).prop_map(|(gap, len)| CellMove::Publish(gap, len)),
            1 => Just(CellMove::Close),
        ];
        proptest::collection::vec(each, 1..120)
    }

    proptest! {
        /// Beside two plain ranges: the range that callers count in, and the spare range, which a caller moves.
        #[test]
        fn a_cell_gives_what_was_published_once_and_in_order(moves in moves()) {
            let cell = CounterCell::new();
            let (mut word, mut spare): ((u64, u64), Option<(u64, u64)>) = ((0, 0), None);
            let (mut end, mut closed) = (0, false);
            for step in moves {
                match step {
                    CellMove::One => {
                        let expected = (word.0 < word.1).then_some(word.0);
                        prop_assert_eq!(cell.take_one(), expected);
                        word.0 += u64::from(expected.is_some());
                    }
                    CellMove::Take(want) => {
                        let moved = word.0 == word.1 && spare.is_some();
                        if moved {
                            word = spare.take().unwrap_or_default();
                        }
                        let hi = (word.0 + want).min(word.1);
                        let expected = (word.0 < hi).then_some(Got { lo: word.0, hi, moved });
                        prop_assert_eq!(cell.take(want), expected);
                        word.0 = hi;
                    }
                    CellMove::Publish(gap, len) => {
                        let lo = end + gap;
                        let fits = !closed && spare.is_none() && len <= MOST && lo <= END - len;
                        prop_assert_eq!(cell.publish(lo, len), fits, "{} at {}", len, lo);
                        if fits {
                            if word.0 == word.1 {
                                word = (lo, lo + len);
                            } else {
                                spare = Some((lo, lo + len));
                            }
                            end = lo + len;
                        }
                    }
                    CellMove::Close => {
                        let rest: Vec<_> = cell.close().into_iter().flatten().collect();
                        let expected: Vec<_> = Some(word).filter(|(lo, hi)| lo < hi).into_iter().chain(spare).collect();
                        prop_assert_eq!(rest, expected);
                        (word, spare, closed) = ((0, 0), None, true);
                    }
                }
                let left = word.1 - word.0 + spare.map_or(0, |(lo, hi)| hi - lo);
                prop_assert_eq!(cell.holds().left, left);
                prop_assert!(closed || cell.holds().end == end);
            }
        }
    }

    #[test]
    fn zeroed_cells_are_empty() {
        let cells = cells(3);
        assert_eq!(cells.len(), 3);
        assert!(cells.iter().all(|cell| cell.holds() == CellContents { left: 0, room: 2, end: 0 }));
        assert!(cells[2].publish(0, 1) && cells[1].take_one().is_none());
        assert_eq!(cells[2].take_one(), Some(0));
    }
}
