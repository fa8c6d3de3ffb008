//! Handles and iterators.

use std::iter::FusedIterator;

use crate::engine::{IdPath, Live};
use crate::error::{Error, Result};
use crate::segment::cursor::Cursor;
use crate::serial::{MAX_TEXT, write_serial};

use super::Source;
use super::source::quick_time;
use super::text::ascii;

/// Counts through a block of its own: see [`Source::handle`]. It may be sent to another thread; its verbs need it for themselves.
#[derive(Debug)]
#[must_use = "the rest of its block is given back when it is dropped"]
pub struct Handle {
    pub(super) source: Source,
    pub(super) cursor: Cursor,
}

impl Handle {
    /// The next id of this handle's block; a new block is leased when it is used up or revoked.
    ///
    /// # Errors
    /// As [`Source::next`].
    #[expect(clippy::should_implement_trait, reason = "the verb has this name in every language")]
    #[expect(
        clippy::inline_always,
        reason = "a call returns the large Result through memory, which is most of the cost"
    )]
    #[inline(always)]
    pub fn next(&mut self) -> Result<u64> {
        match self.cursor.next() {
            Some(number) => Ok(number),
            None => match self.next_of_time() {
                Some(id) => Ok(id),
                None => self.next_block(),
            },
        }
    }

    /// There are no blocks of time: a snowflake's handle takes ids one by one. A call, so that counting through a block
    /// stays short.
    #[inline(never)]
    fn next_of_time(&self) -> Option<u64> {
        if let IdPath::Time(live) = &self.source.shared.path { quick_time(live) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn next_block(&mut self) -> Result<u64> {
        if let IdPath::Strided(_) | IdPath::Time(_) | IdPath::AnyTime(_) = self.source.shared.path {
            // A block counts, and with a stride a count is no id, so these are taken one by one too.
            return self.source.next();
        }
        let Handle { source, cursor } = self;
        source.enter(|| cursor.next_or_refill(source.numbers()?))
    }

    /// The next serial number of this handle's block, as text.
    ///
    /// # Errors
    /// As [`Source::next_text`].
    pub fn next_text(&mut self) -> Result<String> {
        let Some(pattern) = self.source.spec().pattern() else { return self.next().map(|id| id.to_string()) };
        let width = pattern.width();
        let number = match self.cursor.next() {
            Some(number) => number,
            None => {
                let Handle { source, cursor } = &mut *self;
                source.enter(|| cursor.next_or_refill(source.shared.segments()?))?
            }
        };
        let mut buffer = [0; MAX_TEXT];
        let len = write_serial(&mut buffer, &self.cursor.prefix, number, width).unwrap_or(0);
        Ok(ascii(&buffer[..len]).to_owned())
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child the block is dead, and no mill is started only to count its rest as lost.
        if let Some(state) = self.source.shared.live_segments().map(Live::last)
            && state.word().is_ours()
        {
            self.cursor.give_back(state);
        }
    }
}

/// Ids of a source, until the first error: see [`Source::iter`].
#[derive(Debug)]
#[must_use = "ids are taken only as the iterator is advanced"]
pub struct Iter {
    pub(super) handle: Handle,
    pub(super) process_order: bool,
    pub(super) ended: bool,
}

impl Iterator for Iter {
    type Item = Result<u64>;
    #[inline]
    fn next(&mut self) -> Option<Result<u64>> {
        if self.ended {
            return None;
        }
        match if self.process_order { self.handle.source.next() } else { self.handle.next() } {
            Ok(id) => Some(Ok(id)),
            Err(error) => Some(Err(self.end(error))),
        }
    }
}

impl FusedIterator for Iter {}

impl Iter {
    #[cold]
    fn end(&mut self, error: Error) -> Error {
        self.ended = true;
        error
    }
}
