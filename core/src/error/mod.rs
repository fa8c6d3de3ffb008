//! The one list of error codes, and the error every verb answers with.
//!
//! The numbers are part of every language's interface: new ones are added, none is changed or used twice.

#[cfg_attr(not(all(feature = "mysql", feature = "redis")), allow(dead_code))] // what servers say
pub(crate) mod fault;
pub(crate) mod task_error;

use std::fmt::{self, Write as _};
use std::time::Duration;

/// What went wrong, as a number that is the same in every language.
#[repr(i32)]
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// An argument of the call itself is wrong: NULL, too long, not of the right kind.
    InvalidArgument = 1,
    /// A configuration string, a source's spec or a TOML file is wrong.
    InvalidConfig = 2,
    /// The mill was closed.
    Closed = 3,
    /// The caller's deadline passed before the store answered.
    Deadline = 4,
    /// Nothing is in memory right now; `retry_after` says when to ask again.
    NotReady = 5,
    /// The numbers of this source are used up; nothing wraps.
    Exhausted = 6,
    /// The store cannot be reached or does not answer.
    StoreUnavailable = 7,
    /// The store answered with a refusal: a missing table, a missing right, a row that makes no sense.
    StoreRefused = 8,
    /// The store holds less than this process has already seen: a restored backup, a deleted row, a lost failover.
    StoreWentBackwards = 9,
    /// The store's settings lose commits, so a reservation could be handed out twice.
    StoreUnsafe = 10,
    /// The next number is wider than the number pattern.
    NumberOverflow = 11,
    /// This machine's clock is behind what has already been issued or reserved.
    ClockBehind = 12,
    /// The worker id is no longer this process's own.
    LeaseLost = 13,
    /// Every worker id is taken.
    NoWorkerFree = 14,
    /// The layout's time field is over.
    LayoutEnded = 15,
    /// The process was forked and the mill is configured not to start anew in the child.
    Forked = 16,
    /// An order number that this key did not make.
    Forged = 17,
    /// The caller's buffer is too small; the length needed is given.
    BufferTooSmall = 18,
    /// A defect in keymill itself, or the system starts no thread: the message says which.
    Internal = 19,
}

impl Code {
    /// Every code, in the order of its number.
    pub const ALL: [Code; 19] = [
        Code::InvalidArgument,
        Code::InvalidConfig,
        Code::Closed,
        Code::Deadline,
        Code::NotReady,
        Code::Exhausted,
        Code::StoreUnavailable,
        Code::StoreRefused,
        Code::StoreWentBackwards,
        Code::StoreUnsafe,
        Code::NumberOverflow,
        Code::ClockBehind,
        Code::LeaseLost,
        Code::NoWorkerFree,
        Code::LayoutEnded,
        Code::Forked,
        Code::Forged,
        Code::BufferTooSmall,
        Code::Internal,
    ];

    /// The name that every language prints: `STORE_UNAVAILABLE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Code::InvalidArgument => "INVALID_ARGUMENT",
            Code::InvalidConfig => "INVALID_CONFIG",
            Code::Closed => "CLOSED",
            Code::Deadline => "DEADLINE",
            Code::NotReady => "NOT_READY",
            Code::Exhausted => "EXHAUSTED",
            Code::StoreUnavailable => "STORE_UNAVAILABLE",
            Code::StoreRefused => "STORE_REFUSED",
            Code::StoreWentBackwards => "STORE_WENT_BACKWARDS",
            Code::StoreUnsafe => "STORE_UNSAFE",
            Code::NumberOverflow => "NUMBER_OVERFLOW",
            Code::ClockBehind => "CLOCK_BEHIND",
            Code::LeaseLost => "LEASE_LOST",
            Code::NoWorkerFree => "NO_WORKER_FREE",
            Code::LayoutEnded => "LAYOUT_ENDED",
            Code::Forked => "FORKED",
            Code::Forged => "FORGED",
            Code::BufferTooSmall => "BUFFER_TOO_SMALL",
            Code::Internal => "INTERNAL",
        }
    }

    /// The number every language uses for this code; 0, which no code has, is success in C.
    #[must_use]
    pub const fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An error: its code, one line that says what was being done, what was seen and what to do, and when to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Error {
    /// The code, the same number in every language.
    pub code: Code,
    /// One line for a person. Never holds a secret.
    pub message: String,
    /// How long to wait before the call may succeed, where that is known.
    pub retry_after: Option<Duration>,
    /// Callers do not wait for the next try: no server was reached twice, and no number of the source was ever in memory.
    pub(crate) is_told_at_once: bool,
}

impl Error {
    /// An error without a hint when to retry.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: words(message), retry_after: None, is_told_at_once: false }
    }

    /// `INVALID_CONFIG` with this message.
    #[must_use]
    pub fn config(message: impl Into<String>) -> Self {
        Error::new(Code::InvalidConfig, message)
    }

    /// `INVALID_ARGUMENT` with this message.
    #[must_use]
    pub fn argument(message: impl Into<String>) -> Self {
        Error::new(Code::InvalidArgument, message)
    }

    /// How long to wait before the call may succeed, where that is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The same error with a hint when to ask again.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Error {}

/// What every fallible verb returns.
pub type Result<T> = std::result::Result<T, Error>;

/// A character that a terminal or a log viewer may act on instead of showing it: the control characters C0, DEL and C1
/// (escape sequences begin with ESC or CSI), line and paragraph separators, and those that change the direction of writing.
pub(crate) fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text of an error or a fault.
pub(crate) fn words(text: impl Into<String>) -> String {
    #[cfg(feature = "internals")]
    // ordering: Relaxed — a switch that is turned before anything else happens.
    if BLANK.load(std::sync::atomic::Ordering::Relaxed) {
        return "x".to_owned();
    }
    printable(text.into())
}

#[cfg(feature = "internals")]
static BLANK: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// From now on every message of this process is `x`. A test runs the tests of behaviour like that, so that nothing comes to depend
/// on words.
#[cfg(feature = "internals")]
pub fn blank_messages() {
    // ordering: Relaxed — as in `words`.
    BLANK.store(true, std::sync::atomic::Ordering::Relaxed);
}

/// A text as one line that can be printed. A text from a server, a file or a row must not move a cursor, set a window's title or
/// fake a line in a log. White space becomes a space, every other such character U+FFFD.
#[must_use]
pub fn printable(text: String) -> String {
    if !text.contains(is_obeyed) {
        return text;
    }
    let replace = |c: char| match c {
        c if !is_obeyed(c) => c,
        c if c.is_whitespace() => ' ',
        _ => char::REPLACEMENT_CHARACTER,
    };
    text.chars().map(replace).collect()
}

/// The longest text from outside that a message quotes whole, in bytes.
const LONGEST_SHOWN: usize = 80;

/// A text from outside as it may stand in a message: without control characters, and cut where it is long.
pub(crate) fn shown(text: &str) -> String {
    shown_to(text, LONGEST_SHOWN)
}

/// The same, cut at this many bytes.
pub(crate) fn shown_to(text: &str, longest: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() > longest {
            let _ = write!(out, "… ({} bytes)", text.len());
            break;
        }
        if is_obeyed(c) {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_stands_in_a_message() {
        for (given, shown) in [
            ("plain, größer, 订单, 🍎", "plain, größer, 订单, 🍎"),
            ("two\nlines\r\nand\ta tab", "two lines  and a tab"),
            ("\u{1b}]0;title\u{7}\u{1b}[2Jgone\u{7f}", "\u{fffd}]0;title\u{fffd}\u{fffd}[2Jgone\u{fffd}"),
            ("\u{9b}31mred\u{85}next", "\u{fffd}31mred next"),
            ("abc\u{202e}cba\u{2066}x\u{2069}\u{200f}", "abc\u{fffd}cba\u{fffd}x\u{fffd}\u{fffd}"),
            ("one\u{2028}two\u{2029}", "one two "),
        ] {
            assert_eq!(Error::config(given).message, shown);
            assert!(!super::shown(given).contains(is_obeyed), "{given:?}");
        }
    }

    #[test]
    fn every_code_keeps_its_number_and_has_a_name_of_its_own() {
        for (position, code) in Code::ALL.iter().enumerate() {
            assert_eq!(code.number(), position as i32 + 1);
        }
        let mut names: Vec<_> = Code::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
    }
}
