//! Strings in, text out.

use std::ffi::{CStr, c_char};

use keymill_core::{Code, Error, Result};

use crate::handle::{Out, bytes, null};

/// A string of the caller's.
///
/// # Safety
/// `text` is NULL or NUL-terminated, and does not change until the call ends.
pub(crate) unsafe fn text_in<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: by the contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| {
        Error::argument(format!("`{name}` is not UTF-8: the byte at offset {} is wrong", e.valid_up_to()))
    })
}

/// A buffer of the caller's for text and its NUL.
pub(crate) struct TextOut {
    buf: *mut c_char,
    size: usize,
    len: Out<usize>,
}

impl TextOut {
    /// # Safety
    /// `buf` and `len` are NULL or may be written until the call ends, `buf` for `size` bytes.
    pub(crate) unsafe fn new(buf: *mut c_char, size: usize, len: *mut usize) -> Result<Self> {
        // SAFETY: by the contract.
        let len = unsafe { Out::new(len, "len") }?;
        if buf.is_null() {
            return Err(null("buf"));
        }
        Ok(TextOut { buf, size, len })
    }

    /// Has `write` write a text of at most `most` bytes. A smaller buffer is refused before `write` spends anything.
    pub(crate) fn write(&self, most: usize, write: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<()> {
        let needed = most + 1;
        if self.size < needed {
            self.len.set(needed);
            return Err(Error::new(
                Code::BufferTooSmall,
                format!("the text and its NUL need {needed} bytes, the buffer has {}", self.size),
            ));
        }
        // SAFETY: by the contract of `new`; `needed` is no more than `size`, and no more than memory holds.
        let buffer = unsafe { bytes(self.buf, needed) };
        let len = write(&mut buffer[..most])?.min(most);
        buffer[len] = 0;
        self.len.set(len);
        Ok(())
    }

    /// Writes a text that is already there.
    pub(crate) fn put(&self, text: &str) -> Result<()> {
        self.write(text.len(), |buffer| {
            buffer.copy_from_slice(text.as_bytes());
            Ok(text.len())
        })
    }

    /// The room for text, without its NUL.
    pub(crate) fn room(&self) -> usize {
        self.size.saturating_sub(1)
    }
}

/// A buffer of the caller's for many texts, each in a stride of its own with a NUL behind it.
pub(crate) struct TextsOut {
    buf: *mut c_char,
    stride: usize,
    size: usize,
}

impl TextsOut {
    /// # Safety
    /// `buf` is NULL or may be written for `count` times `stride` bytes until the call ends.
    pub(crate) unsafe fn new(buf: *mut c_char, stride: usize, count: usize) -> Result<Self> {
        if buf.is_null() {
            return Err(null("buf"));
        }
        let size =
            stride.checked_mul(count).filter(|size| isize::try_from(*size).is_ok()).ok_or_else(|| {
                Error::argument(format!("{count} texts of {stride} bytes do not fit into memory"))
            })?;
        Ok(TextsOut { buf, stride, size })
    }

    /// Writes the texts that `take` gives, each of at most `most` bytes. A smaller stride is refused before `take` spends
    /// anything.
    pub(crate) fn write(&self, most: usize, take: impl FnOnce() -> Result<Vec<String>>) -> Result<()> {
        if self.stride <= most {
            return Err(Error::new(
                Code::BufferTooSmall,
                format!("a text and its NUL need {} bytes, the stride is {}", most + 1, self.stride),
            ));
        }
        let texts = take()?;
        // SAFETY: by the contract of `new`.
        let buffer = unsafe { bytes(self.buf, self.size) };
        for (place, text) in buffer.chunks_exact_mut(self.stride).zip(&texts) {
            place[..text.len()].copy_from_slice(text.as_bytes());
            place[text.len()] = 0;
        }
        Ok(())
    }
}
