//! Cursors: each counts through a block, a part of a segment that is leased to one thread or one handle.
//!
//! Each number costs one add and one compare with the revocation word. The word ends a block when a period ends, when the
//! segment that callers are served from grows too old, when the mill closes, and in a forked child. (`ttl` bounds the age of
//! what a source serves, not of a block that a cursor holds.)

use std::cell::RefCell;
use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::serial::Prefix;

use super::{LastBlock, SegmentSource};

/// Counts through a block for one owner.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    next: u64,
    end: u64,
    /// The revocation word of the block's source.
    word: &'static AtomicU64,
    /// The value of the word when the block was leased.
    leased_at: u64,
    /// The block itself, by which the next one is sized.
    last: LastBlock,
    /// The text before a serial's number.
    pub(crate) prefix: Prefix,
}

/// The word of a cursor without a block. It is 0 and stays so, and such a cursor has `leased_at` 1: it never counts.
static NO_WORD: AtomicU64 = AtomicU64::new(0);

impl Cursor {
    pub(crate) const EMPTY: Cursor = Cursor {
        next: 0,
        end: 0,
        word: &NO_WORD,
        leased_at: 1,
        last: LastBlock::NONE,
        prefix: Prefix::EMPTY,
    };

    /// The next number; `None` when a new block is needed.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        let number = self.next;
        // ordering: Relaxed — the numbers belong to this cursor, so a revocation that is seen late cannot cause a duplicate. In a
        // forked child the page was wiped before the child's first instruction.
        if number < self.end && self.word.load(Ordering::Relaxed) == self.leased_at {
            self.next = number + 1;
            return Some(number);
        }
        None
    }

    /// Copies numbers to the front of `out`, as many as there are and as fit. [`Cursor::skip`] takes them.
    fn copy(&self, out: &mut [u64]) -> usize {
        // ordering: Relaxed — as in `next`.
        if self.word.load(Ordering::Relaxed) != self.leased_at {
            return 0;
        }
        let mut count = 0;
        for (slot, number) in out.iter_mut().zip(self.next..self.end) {
            *slot = number;
            count += 1;
        }
        count
    }

    fn skip(&mut self, count: usize) {
        self.next += count as u64;
    }

    /// Leases a new block from `source`; the old one is used up, or revoked and lost.
    #[cold]
    fn refill(&mut self, source: &SegmentSource) -> Result<()> {
        let word = source.word();
        if std::ptr::eq(self.word, word.shared()) {
            source.callers.counters.lose(self.end - self.next);
            self.next = self.end;
        } else {
            *self = Cursor::EMPTY;
        }
        loop {
            // Read before the lease: a revocation that comes between ends the block.
            let leased_at = word.get();
            let taken =
                source.lease_block(&mut self.last, source.spec().block, 1, |len| source.lease(len))?;
            let prefix = if source.spec().pattern().is_some() {
                match source.prefix(&taken) {
                    Some(prefix) => prefix,
                    None => {
                        source.callers.counters.lose(taken.len());
                        continue;
                    }
                }
            } else {
                Prefix::EMPTY
            };
            let (word, last) = (word.shared(), self.last);
            *self = Cursor { next: taken.lo, end: taken.hi, word, leased_at, last, prefix };
            return Ok(());
        }
    }

    /// The next number; leases blocks until there is one.
    pub(crate) fn next_or_refill(&mut self, source: &SegmentSource) -> Result<u64> {
        loop {
            if let Some(number) = self.next() {
                return Ok(number);
            }
            self.refill(source)?;
        }
    }

    /// Gives back what is left of the block.
    pub(crate) fn give_back(&mut self, source: &SegmentSource) {
        let Cursor { next, end, word, leased_at, last, .. } = std::mem::replace(self, Cursor::EMPTY);
        if std::ptr::eq(word, source.word().shared()) {
            source.give_back(leased_at, next, end, last);
        }
    }
}

/// How many sources' cursors a thread keeps besides the one it used last; the one used longest ago makes room.
const MOST_OTHERS: usize = 63;

thread_local! {
    /// The cursor used last and its source's id. A variable of its own because nothing in it needs a destructor: it is an
    /// offset from a register, and no state of it is checked.
    static LATEST: RefCell<(u64, Cursor)> = const { RefCell::new((0, Cursor::EMPTY)) };
    static KEPT: RefCell<ThreadCursors> = const { RefCell::new(ThreadCursors { others: Vec::new(), latest: Weak::new() }) };
}

/// A thread's other cursors, and the sources of all of them: what is left goes back when the thread ends.
struct ThreadCursors {
    others: Vec<OtherCursor>,
    /// The source of [`LATEST`].
    latest: Weak<SegmentSource>,
}

/// A cursor that is not the one used last.
struct OtherCursor {
    id: u64,
    cursor: Cursor,
    source: Weak<SegmentSource>,
}

impl ThreadCursors {
    fn remove(&mut self, id: u64) -> Option<OtherCursor> {
        let at = self.others.iter().position(|other| other.id == id)?;
        Some(self.others.remove(at))
    }
}

impl Drop for ThreadCursors {
    fn drop(&mut self) {
        // `LATEST` has no destructor, so it is still there.
        if let Some(source) = self.latest.upgrade() {
            LATEST.with_borrow_mut(|(id, cursor)| {
                if *id == source.callers.id {
                    cursor.give_back(&source);
                }
            });
        }
        for OtherCursor { mut cursor, source, .. } in self.others.drain(..) {
            if let Some(source) = source.upgrade() {
                cursor.give_back(&source);
            }
        }
    }
}

/// Gives back what is left of this thread's block of `source`.
pub(crate) fn give_back_of_thread(source: &SegmentSource) {
    LATEST.with_borrow_mut(|(id, cursor)| {
        if *id == source.callers.id {
            cursor.give_back(source);
        }
    });
    // A thread that is ending has given them back already.
    let other = KEPT.try_with(|kept| kept.borrow_mut().remove(source.callers.id));
    if let Ok(Some(mut other)) = other {
        other.cursor.give_back(source);
    }
}

/// The next number of this thread's own cursor of `source`, passed to `with` together with its date part.
#[inline]
pub(crate) fn next_of_thread<T>(source: &SegmentSource, with: impl FnOnce(u64, &Prefix) -> T) -> Result<T> {
    LATEST.with_borrow_mut(|latest| {
        let (id, cursor) = latest;
        let number = if *id == source.callers.id { cursor.next() } else { None };
        let number = match number {
            Some(number) => number,
            None => next_of_other(latest, source)?,
        };
        Ok(with(number, &latest.1.prefix))
    })
}

/// The next number of this thread's cursor of `source`, if that is the cursor it used last and it holds one.
#[inline]
pub(crate) fn quick(source: &SegmentSource) -> Option<u64> {
    LATEST.with_borrow_mut(|(id, cursor)| if *id == source.callers.id { cursor.next() } else { None })
}

/// As [`next_of_thread`], but only what the cursor still holds: leases nothing.
#[inline]
pub(crate) fn rest_of_thread<T>(source: &SegmentSource, with: impl FnOnce(u64, &Prefix) -> T) -> Option<T> {
    LATEST.with_borrow_mut(|latest| {
        if latest.0 != source.callers.id {
            bring_forward(latest, source);
        }
        let number = latest.1.next()?;
        Some(with(number, &latest.1.prefix))
    })
}

/// Fills the front of `out` with what this thread's own cursor of `source` still holds; `more` fills the rest, all of it, or
/// returns an error, and then the cursor is as it was. So a batch rises with the ids that the thread takes one by one.
pub(crate) fn fill_of_thread(
    source: &SegmentSource,
    out: &mut [u64],
    more: impl FnOnce(&mut [u64]) -> Result<()>,
) -> Result<()> {
    let count = LATEST.with_borrow_mut(|latest| {
        bring_forward(latest, source);
        latest.1.copy(out)
    });
    let (_, rest) = out.split_at_mut(count);
    if !rest.is_empty() {
        more(rest)?;
    }
    LATEST.with_borrow_mut(|latest| {
        if latest.0 == source.callers.id {
            latest.1.skip(count);
        }
    });
    Ok(())
}

/// Makes this thread's cursor of `source` the one used last; an empty one where it has none.
#[cold]
fn bring_forward(latest: &mut (u64, Cursor), source: &SegmentSource) {
    if latest.0 == source.callers.id {
        return;
    }
    let fresh = (source.callers.id, Cursor::EMPTY);
    // A thread that is ending has dropped the others already; what it still takes, it takes block by block.
    let found = KEPT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        let found = kept.remove(source.callers.id);
        let before = std::mem::take(&mut kept.latest);
        if latest.0 != 0 {
            kept.others.truncate(MOST_OTHERS - 1);
            kept.others.insert(0, OtherCursor { id: latest.0, cursor: latest.1.clone(), source: before });
        }
        let OtherCursor { id, cursor, source } = found?;
        kept.latest = source;
        Some((id, cursor))
    });
    *latest = found.ok().flatten().unwrap_or(fresh);
}

#[cold]
fn next_of_other(latest: &mut (u64, Cursor), source: &SegmentSource) -> Result<u64> {
    bring_forward(latest, source);
    if let Some(number) = latest.1.next() {
        return Ok(number);
    }
    // A thread that is ending has given back its blocks already: the rest of this one is lost.
    let _ = KEPT.try_with(|kept| {
        let latest = &mut kept.borrow_mut().latest;
        if !std::ptr::eq(latest.as_ptr(), source) {
            *latest = source.weak();
        }
    });
    latest.1.next_or_refill(source)
}

#[cfg(test)]
mod tests {
    use crate::{Mill, Source};

    fn sources(mill: &Mill, count: usize) -> Vec<Source> {
        let open =
            |n| mill.source(&format!("segment:s{n}?order=thread&block=10&deadline=60s")).expect("a source");
        (0..count).map(open).collect()
    }

    #[test]
    fn a_thread_that_changes_between_sources_goes_on_in_each_block() {
        let mill = Mill::open("memory:").expect("a mill");
        let sources = sources(&mill, 3);
        for number in 1..=12 {
            for source in &sources {
                assert_eq!(source.next().expect("a number"), number);
            }
        }
    }

    #[test]
    fn a_thread_keeps_the_blocks_of_the_64_sources_it_used_last() {
        for (count, after) in [(64, 2), (65, 11)] {
            let mill = Mill::open("memory:").expect("a mill");
            let sources = sources(&mill, count);
            for source in &sources {
                assert_eq!(source.next().expect("a number"), 1);
            }
            assert_eq!(sources[0].next().expect("a number"), after, "of {count} sources");
        }
    }

    #[test]
    fn the_rest_of_a_handles_block_is_handed_out_again_or_counted_as_lost_once() {
        let mill = Mill::open("memory:").expect("a mill");
        let orders = mill.source("segment:orders?block=10").expect("a source");
        let mut handle = orders.handle();
        for number in 1..=13 {
            assert_eq!(handle.next().expect("a number"), number);
        }
        assert_eq!(orders.stats().expect("figures").lost, 0, "the first block is used up, the second in use");
        drop(handle);
        let mut handle = orders.handle();
        for number in 14..=16 {
            assert_eq!(handle.next().expect("a number"), number, "nothing was taken after the block");
        }
        assert_eq!(orders.next().expect("a number"), 24, "after the handle's block");
        assert_eq!(orders.stats().expect("figures").lost, 0);
        drop(handle);
        assert_eq!(orders.stats().expect("figures").lost, 7);
        drop(orders.handle());
        assert_eq!(orders.stats().expect("figures").lost, 7, "a handle that leased nothing");
        assert_eq!(orders.next().expect("a number"), 25);
    }

    /// How far the row of the only source rose, when a mill in this file was closed cleanly.
    #[cfg(feature = "sqlite")]
    fn next_of(file: &str) -> u64 {
        let mill = Mill::open(file).expect("a mill");
        mill.source("segment:s?deadline=60s").expect("a source").next().expect("a number")
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn blocks_that_are_given_back_before_a_close_go_back_to_the_store_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = format!("sqlite:{}", folder.path().join("keymill.db").display());
        let mill = Mill::open(&file).expect("a mill");
        mill.init(&[], crate::Change::Apply).expect("tables");
        let source = mill.source("segment:s?order=thread&deadline=60s").expect("a source");
        // The main thread's block is the last one; the other cursors' blocks end below it, one after the other.
        let handles: Vec<_> = (0..4).map(|_| source.handle()).collect();
        let mut handles: Vec<_> = handles
            .into_iter()
            .map(|mut handle| {
                handle.next().expect("a number");
                handle
            })
            .collect();
        for number in [2, 3, 4] {
            assert_eq!(handles[0].next().expect("a number"), number);
        }
        // Joined: a scope does not wait for what a thread does at its end.
        let other = source.clone();
        let thread = std::thread::spawn(move || other.next().expect("a number"));
        assert_eq!(thread.join().expect("no panic"), 65);
        assert_eq!(source.next().expect("a number"), 66, "the rest of the thread that has ended");
        // The highest of them comes back first, so all but the first meet the row's end.
        while handles.len() > 1 {
            drop(handles.pop());
        }
        mill.close();
        drop(handles);
        assert_eq!(next_of(&file), 67, "66 is the highest that was issued");
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn the_rests_of_handles_are_given_back_as_far_as_they_meet_the_end_of_the_row() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = format!("sqlite:{}", folder.path().join("keymill.db").display());
        let mill = Mill::open(&file).expect("a mill");
        mill.init(&[], crate::Change::Apply).expect("tables");
        let source = mill.source("segment:s?deadline=60s").expect("a source");
        let mut handles = [source.handle(), source.handle(), source.handle()];
        for (handle, first) in handles.iter_mut().zip([1, 17, 33]) {
            assert_eq!(handle.next().expect("a number"), first);
        }
        let [first, second, third] = handles;
        // The first cannot be counted through again, nor can the second; the third can.
        drop(first);
        drop(second);
        drop(third);
        assert_eq!(source.stats().expect("figures").lost, 30);
        mill.close();
        assert_eq!(next_of(&file), 34, "33 is the highest that was issued");
    }
}
