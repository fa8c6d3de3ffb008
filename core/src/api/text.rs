//! Serial numbers, and ids in the form of their source, as text.

use crate::engine::{IdPath, Live};
use crate::error::{Code, Error, Result};
use crate::gene::GeneKey;
use crate::segment::cursor;
use crate::segment::{Miss, SegmentSource, TakenRange};
use crate::serial::{MAX_TEXT, Prefix, write_serial};

use super::{Source, room};

/// How a number is taken after a miss: waiting, or at once.
type TakeAfter = fn(&SegmentSource, Option<Miss>) -> Result<TakenRange>;

/// What the writers of `serial` wrote, which is UTF-8: a date part that was checked, then digits.
pub(crate) fn ascii(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[cold]
fn no_date() -> Error {
    Error::argument("a serial's text has a date, and its number does not; use `next_text`")
}

impl Source {
    /// The next serial number as text; for the other kinds the id in the form that `text=` and `prefix=` say, decimal digits unless they are
    /// given.
    ///
    /// ```
    /// let mill = keymill::Mill::open("memory:")?;
    /// let orders = mill.source("segment:orders?text=crockford&prefix=ord_")?;
    /// let text = orders.next_text()?;
    /// assert_eq!(text, "ord_0000000000001");
    /// assert_eq!(orders.parse_text(&text)?.number, Some(1));
    /// # Ok::<(), keymill::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Source::next`], and `NUMBER_OVERFLOW`.
    pub fn next_text(&self) -> Result<String> {
        let mut buffer = [0; MAX_TEXT];
        let len = self.write_next(&mut buffer)?;
        Ok(ascii(&buffer[..len]).to_owned())
    }

    /// Appends the next serial number to `out`; allocates only if `out` must grow.
    ///
    /// # Errors
    /// As [`Source::next_text`]; `out` is unchanged then.
    pub fn push_text(&self, out: &mut String) -> Result<()> {
        let mut buffer = [0; MAX_TEXT];
        let len = self.write_next(&mut buffer)?;
        out.push_str(ascii(&buffer[..len]));
        Ok(())
    }

    /// Writes the next serial number into `buffer` and returns its length. A buffer that is too small
    /// costs no number.
    ///
    /// # Errors
    /// As [`Source::next_text`]; `BUFFER_TOO_SMALL` for a buffer shorter than [`Source::text_len`].
    #[inline]
    pub fn write_text(&self, buffer: &mut [u8]) -> Result<usize> {
        self.check_room(buffer.len())?;
        self.write_next(buffer)
    }

    /// The next text into a buffer that has room for it.
    #[inline]
    fn write_next(&self, buffer: &mut [u8]) -> Result<usize> {
        let Some(pattern) = self.spec().pattern() else { return self.write_id(buffer, self.next()?) };
        let width = pattern.width();
        let written = if let IdPath::SharedText(live) = &self.shared.path {
            self.write_dated(live, SegmentSource::lease_after, buffer, width)?
        } else {
            let source = self.shared.segments().map_err(|e| self.failed(e))?;
            cursor::next_of_thread(source, |number, prefix| write_serial(buffer, prefix, number, width))
                .map_err(|e| self.failed(e))?
        };
        self.fitted(written)
    }

    /// Writes a number of the shared counter with the date part that belongs to it; after a miss `take` waits for it, or does
    /// not. The number and its date part are written where they were read: to return them would copy them.
    #[inline]
    fn write_dated(
        &self,
        live: &Live<SegmentSource>,
        take: TakeAfter,
        buffer: &mut [u8],
        width: u32,
    ) -> Result<Option<usize>> {
        let source = live.last();
        let (number, prefix) = match source.take_one_dated() {
            Ok(serial) if source.word().is_ours() => serial,
            Ok(_) => self.dated_after(live, None, take)?,
            Err(miss) => self.dated_after(live, Some(miss), take)?,
        };
        Ok(write_serial(buffer, &prefix, number, width))
    }

    #[cold]
    fn dated_after(
        &self,
        live: &Live<SegmentSource>,
        miss: Option<Miss>,
        take: TakeAfter,
    ) -> Result<(u64, Prefix)> {
        self.enter(|| {
            let (source, mut miss) = self.with_miss(live, miss)?;
            loop {
                let taken = take(source, miss.take())?;
                match source.prefix(&taken) {
                    Some(prefix) => return Ok((taken.lo, prefix)),
                    // The period ended before its date part was read.
                    None => source.callers.counters.lose(1),
                }
            }
        })
    }

    fn write_id(&self, buffer: &mut [u8], id: u64) -> Result<usize> {
        self.fitted(self.spec().form.write(buffer, id))
    }

    /// An id as this source writes it: what [`Source::next_text`] would have given for it. Of serials `INVALID_ARGUMENT`: their text has a
    /// date, which a number does not tell.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    pub fn text_of(&self, id: u64) -> Result<String> {
        let mut buffer = [0; MAX_TEXT];
        let len = self.write_text_of(id, &mut buffer)?;
        Ok(ascii(&buffer[..len]).to_owned())
    }

    /// Writes what [`Source::text_of`] answers into `buffer`, and returns its length.
    ///
    /// # Errors
    /// As [`Source::text_of`]; `BUFFER_TOO_SMALL` for a buffer shorter than the text.
    pub fn write_text_of(&self, id: u64, buffer: &mut [u8]) -> Result<usize> {
        if self.spec().pattern().is_some() {
            return Err(self.failed(no_date()));
        }
        self.spec().form.write(buffer, id).ok_or_else(|| self.too_small(buffer.len()))
    }

    /// The next id for a key as text, of a source of business ids with 64 bits.
    ///
    /// # Errors
    /// As [`Source::next_for`].
    pub fn next_text_for<'k>(&self, key: impl Into<GeneKey<'k>>) -> Result<String> {
        self.text_of(self.next_for(key)?)
    }

    /// `count` ids for a key as texts.
    ///
    /// # Errors
    /// As [`Source::take_for`].
    pub fn take_text_for<'k>(&self, key: impl Into<GeneKey<'k>>, count: usize) -> Result<Vec<String>> {
        self.take_for(key, count)?.into_iter().map(|id| self.text_of(id)).collect()
    }

    /// The id that a text of this source stands for: its own form, or decimal digits.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: another prefix, width or character, and a serial's text, which is no single number.
    pub fn id_of_text(&self, text: &str) -> Result<u64> {
        if self.spec().pattern().is_some() {
            return Err(self.failed(Error::argument("a serial's text is no id; use `parse_text`")));
        }
        self.spec().form.read(text).map_err(|e| self.failed(e))
    }

    #[inline]
    fn fitted(&self, written: Option<usize>) -> Result<usize> {
        #[cold]
        fn too_long(source: &Source) -> Error {
            source.failed(Error::new(Code::Internal, "a serial number did not fit a buffer of its length"))
        }
        written.ok_or_else(|| too_long(self))
    }

    /// [`Source::write_text`] if a number is in memory; never blocks.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::write_text`].
    pub fn try_write_text(&self, buffer: &mut [u8]) -> Result<usize> {
        self.check_room(buffer.len())?;
        let Some(pattern) = self.spec().pattern() else {
            return self.write_id(buffer, self.try_next()?);
        };
        let width = pattern.width();
        let Some(live) = self.shared.live_segments() else { return Err(self.failed(self.wants_text())) };
        if let IdPath::ThreadText(live) = &self.shared.path {
            let source = live.get(&self.shared).map_err(|e| self.failed(e))?;
            // The rest of the thread's own block comes first, or the texts of one thread would not rise.
            let write = |number, prefix: &Prefix| write_serial(&mut *buffer, prefix, number, width);
            if let Some(written) = cursor::rest_of_thread(source, write) {
                return self.fitted(written);
            }
        }
        let written = self.write_dated(live, SegmentSource::try_take_after, buffer, width)?;
        self.fitted(written)
    }

    /// The next serial number if one is in memory; never blocks.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::next_text`].
    pub fn try_next_text(&self) -> Result<String> {
        let mut buffer = [0; MAX_TEXT];
        let len = self.try_write_text(&mut buffer)?;
        Ok(ascii(&buffer[..len]).to_owned())
    }

    /// `count` texts: all of them, or an error. In process order whole ranges are taken at once.
    ///
    /// # Errors
    /// As [`Source::next_text`]; `INVALID_ARGUMENT` for more than memory holds.
    pub fn take_text(&self, count: usize) -> Result<Vec<String>> {
        let mut texts = room(count, "texts").map_err(|error| self.failed(error))?;
        match self.spec().pattern() {
            Some(pattern) if !self.by_thread() => {
                let mut buffer = [0; MAX_TEXT];
                let taken = self.shared.segments().and_then(|source| {
                    source.take_dated(count as u64, |numbers, prefix| {
                        texts.extend(numbers.map(|number| {
                            let len = write_serial(&mut buffer, prefix, number, pattern.width()).unwrap_or(0);
                            ascii(&buffer[..len]).to_owned()
                        }));
                    })
                });
                taken.map_err(|e| self.failed(e))?;
            }
            Some(_) => {
                for _ in 0..count {
                    texts.push(self.next_text()?);
                }
            }
            None => {
                for id in self.take(count)? {
                    texts.push(self.text_of(id)?);
                }
            }
        }
        Ok(texts)
    }

    #[inline]
    fn check_room(&self, room: usize) -> Result<()> {
        if room >= self.shared.text_len { Ok(()) } else { Err(self.too_small(room)) }
    }

    #[cold]
    fn too_small(&self, room: usize) -> Error {
        let needed = self.shared.text_len;
        self.failed(Error::new(
            Code::BufferTooSmall,
            format!("a text of `{}` needs {needed} bytes, the buffer has {room}", self.label()),
        ))
    }

    /// The most bytes a text of this source can have.
    #[must_use]
    pub fn text_len(&self) -> usize {
        self.shared.text_len
    }
}
