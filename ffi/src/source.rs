//! The verbs of a source.

use std::ffi::c_char;

use keymill_core::{Code, Error, Kind, Parts, Result, Stats};

use crate::business::km_wide;
use crate::error::{enter, km_code};
use crate::handle::{Out, copy_front, free, held, hinted, ids, km_source};
use crate::text::{TextOut, TextsOut, text_in};

/// The next id; waits at most the source's deadline when none is in memory.
///
/// KM_INVALID_ARGUMENT (a serial's numbers are handed out as text: km_source_next_text; business ids need a key:
/// km_source_next_for_u64), KM_DEADLINE, KM_STORE_...,
/// KM_EXHAUSTED, KM_CLOCK_BEHIND, KM_LAYOUT_ENDED, KM_LEASE_LOST, KM_NO_WORKER_FREE, KM_CLOSED, KM_FORKED. Where the text
/// below says "as km_source_next", these are meant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_next(source: *mut km_source, id: *mut u64) -> km_code {
    enter(|| {
        // SAFETY: the conventions page; so below.
        let (source, id) = unsafe { (held(source)?, Out::new(id, "id")?) };
        id.set(source.next()?);
        Ok(())
    })
}

/// The next id if one is in memory; never blocks. On KM_NOT_READY `*retry_ms` says after how many milliseconds to ask
/// again, at least 1.
///
/// KM_NOT_READY, and as km_source_next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_try_next(
    source: *mut km_source,
    id: *mut u64,
    retry_ms: *mut u32,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, id, retry) =
            unsafe { (held(source)?, Out::new(id, "id")?, Out::new(retry_ms, "retry_ms")?) };
        id.set(hinted(source.try_next(), &retry)?);
        Ok(())
    })
}

/// Fills an array with `count` ids: all of it, or none and an error. By far the fastest way to many ids. 0 ids are
/// nothing.
///
/// As km_source_next; KM_INVALID_ARGUMENT for a count that no memory holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_fill(source: *mut km_source, ids: *mut u64, count: usize) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, ids) = unsafe { (held(source)?, self::ids(ids, count)?) };
        if source.kind() == Kind::Snowflake {
            // A snowflake writes what its clock gives, before it knows whether all of it will come.
            ids.copy_from_slice(&source.take(count)?);
            return Ok(());
        }
        source.fill(ids)
    })
}

/// Leases [`*lo`, `*hi`) to the caller alone: at least one number and at most `count`; one where ids do not follow each
/// other (`delta=`). What is not used is lost.
///
/// As km_source_next; KM_INVALID_ARGUMENT for a count of 0 and for snowflakes, which have no ranges.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_lease(
    source: *mut km_source,
    count: u64,
    lo: *mut u64,
    hi: *mut u64,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, lo, hi) = unsafe { (held(source)?, Out::new(lo, "lo")?, Out::new(hi, "hi")?) };
        let leased = source.lease(count)?;
        lo.set(leased.start);
        hi.set(leased.end);
        Ok(())
    })
}

/// Writes the next serial number as text with a NUL; of other kinds of sources the next id, in the form that `text=` and
/// `prefix=` say, in decimal unless they are given. Waits as km_source_next. No number is spent on a buffer below km_source_text_len.
///
/// KM_BUFFER_TOO_SMALL, KM_NUMBER_OVERFLOW, and as km_source_next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_next_text(
    source: *mut km_source,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, out) = unsafe { (held(source)?, TextOut::new(buf, size, len)?) };
        out.write(source.text_len(), |buffer| source.write_text(buffer))
    })
}

/// As km_source_next_text, but never blocks; on KM_NOT_READY `*retry_ms` says after how many milliseconds to ask again.
///
/// KM_NOT_READY, and as km_source_next_text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_try_next_text(
    source: *mut km_source,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
    retry_ms: *mut u32,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, out, retry) =
            unsafe { (held(source)?, TextOut::new(buf, size, len)?, Out::new(retry_ms, "retry_ms")?) };
        hinted(out.write(source.text_len(), |buffer| source.try_write_text(buffer)), &retry)
    })
}

/// Writes `count` texts, each with a NUL, the first at `buf` and each next one `stride` bytes further: all of them, or
/// none and an error. `stride` is at least km_source_text_len, and `buf` has room for `count * stride` bytes. What lies
/// between a NUL and the next text stays as it was. The fast way to many serial numbers; 0 texts are nothing.
///
/// KM_BUFFER_TOO_SMALL where the stride is, before a number is spent; KM_INVALID_ARGUMENT for more than memory holds; and
/// as km_source_next_text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_take_text(
    source: *mut km_source,
    buf: *mut c_char,
    stride: usize,
    count: usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, out) = unsafe { (held(source)?, TextsOut::new(buf, stride, count)?) };
        out.write(source.text_len(), || source.take_text(count))
    })
}

/// Writes an id of this source as its texts are written, with a NUL: what km_source_next_text would have given for it.
///
/// KM_BUFFER_TOO_SMALL; KM_INVALID_ARGUMENT for a serial, whose text has a date.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_text_of(
    source: *const km_source,
    id: u64,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, out) = unsafe { (held(source)?, TextOut::new(buf, size, len)?) };
        out.write(source.text_len(), |buffer| source.write_text_of(id, buffer))
    })
}

/// The size of a buffer that holds any text of this source, its NUL included.
///
/// KM_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_text_len(source: *const km_source, len: *mut usize) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, len) = unsafe { (held(source)?, Out::new(len, "len")?) };
        len.set(source.text_len() + 1);
        Ok(())
    })
}

/// km_parts.present: when a snowflake was made.
pub const KM_PART_TIME: u32 = 1;
/// km_parts.present: a snowflake's worker.
pub const KM_PART_WORKER: u32 = 2;
/// km_parts.present: a snowflake's sequence.
pub const KM_PART_SEQUENCE: u32 = 4;
/// km_parts.present: a segment's id, or the number of a serial or of a business id.
pub const KM_PART_NUMBER: u32 = 8;
/// km_parts.present: a serial's date part.
pub const KM_PART_DATE: u32 = 16;
/// km_parts.present: the data centre of a snowflake whose source was given its worker as DC+N.
pub const KM_PART_DATACENTER: u32 = 32;
/// km_parts.present: the gene of a business id.
pub const KM_PART_GENE: u32 = 64;

/// What an id is made of. The caller sets struct_size to sizeof(km_parts) before the call (KM_PARTS_INIT does); the
/// struct may grow at its end in later versions.
#[repr(C)]
#[derive(Debug)]
pub struct km_parts {
    /// sizeof(km_parts), set by the caller.
    pub struct_size: u32,
    /// KM_PART_...: which of the fields below the id has. The others are 0 and empty.
    pub present: u32,
    /// Milliseconds since 1970.
    pub time_ms: i64,
    /// The worker.
    pub worker: u64,
    /// The sequence.
    pub sequence: u64,
    /// The number.
    pub number: u64,
    /// The date part, NUL-terminated.
    pub date: [c_char; 64],
    /// The data centre; worker is then the worker within it.
    pub datacenter: u64,
    /// The gene.
    pub gene: u64,
}

/// The size of km_parts.date.
const DATE_ROOM: usize = 64;

/// km_stats.present: last_refill_ms.
pub const KM_STAT_LAST_REFILL: u32 = 1;
/// km_stats.present: runway_seconds.
pub const KM_STAT_RUNWAY: u32 = 2;
/// km_stats.present: lead_ms.
pub const KM_STAT_LEAD: u32 = 4;
/// km_stats.present: ends_at_ms.
pub const KM_STAT_END: u32 = 8;
/// km_stats.present: refusal.
pub const KM_STAT_REFUSAL: u32 = 16;
/// km_stats.present: lease_age_ms.
pub const KM_STAT_LEASE_AGE: u32 = 32;
/// km_stats.present: zone.
pub const KM_STAT_ZONE: u32 = 64;

/// The figures of a source. The caller sets struct_size to sizeof(km_stats) before the call (KM_STATS_INIT does); the
/// struct may grow at its end in later versions.
#[repr(C)]
#[derive(Debug)]
pub struct km_stats {
    /// sizeof(km_stats), set by the caller.
    pub struct_size: u32,
    /// KM_STAT_...: which of the fields below are known. The others are 0 and empty.
    pub present: u32,
    /// Ids handed out; the numbers of a block count when the block is leased.
    pub issued: u64,
    /// Numbers reserved from the store.
    pub reserved: u64,
    /// Numbers in memory.
    pub left: u64,
    /// Numbers that were reserved and are issued to no caller.
    pub lost: u64,
    /// Reservations that were answered.
    pub refills: u64,
    /// Calls that had to wait.
    pub waits: u64,
    /// How many numbers the last reservation was.
    pub step: u64,
    /// When the last reservation was answered, in milliseconds since 1970.
    pub last_refill_ms: i64,
    /// Ids a second.
    pub rate: f64,
    /// How many seconds the numbers in memory last at that rate; 0 where none are left and callers get an error.
    pub runway_seconds: f64,
    /// How far a snowflake's time leads the wall clock, in milliseconds.
    pub lead_ms: i64,
    /// When a snowflake's layout ends, in milliseconds since 1970.
    pub ends_at_ms: i64,
    /// The error that callers get now, NUL-terminated; cut where it is longer.
    pub refusal: [c_char; 256],
    /// How long ago the lease of a snowflake's worker was renewed, in milliseconds.
    pub lease_age_ms: u64,
    /// The time zone of a serial's dates, NUL-terminated; with zone=local it is the program's zone.
    pub zone: [c_char; 64],
}

/// Takes an id of 64 bits of this source apart.
///
/// KM_INVALID_ARGUMENT for an id this source cannot have made, and for a serial (km_source_parse_text).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_parse(source: *const km_source, id: u64, parts: *mut km_parts) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, out) = unsafe { (held(source)?, StructOut::new(parts, "parts", "km_parts")?) };
        out.set(&source.parse(id)?)
    })
}

/// Takes an id of 128 bits of this source apart.
///
/// KM_INVALID_ARGUMENT for an id this source cannot have made, and for a source without wide=on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_parse_wide(
    source: *const km_source,
    id: km_wide,
    parts: *mut km_parts,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, out) = unsafe { (held(source)?, StructOut::new(parts, "parts", "km_parts")?) };
        out.set(&source.parse_wide(id.into())?)
    })
}

/// Takes a text of this source apart: a serial number, or an id in the source's form or in decimal.
///
/// KM_INVALID_ARGUMENT for a text this source cannot have made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_parse_text(
    source: *const km_source,
    text: *const c_char,
    parts: *mut km_parts,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, text, out) =
            unsafe { (held(source)?, text_in(text, "text")?, StructOut::new(parts, "parts", "km_parts")?) };
        out.set(&source.parse_text(text)?)
    })
}

/// The figures of this source since its mill was opened. They are read one by one while other threads take ids, so they may
/// differ by what happened in between.
///
/// KM_INVALID_ARGUMENT, KM_CLOSED, KM_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_stats(source: *const km_source, stats: *mut km_stats) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (source, out) = unsafe { (held(source)?, StructOut::new(stats, "stats", "km_stats")?) };
        out.set_stats(&source.stats()?);
        Ok(())
    })
}

/// A struct that may grow at its end: a program that knows less of it than this library gets what it knows.
pub(crate) trait Grows {
    /// Its size in the first version that had it.
    const FIRST: usize;
}

impl Grows for km_parts {
    const FIRST: usize = std::mem::offset_of!(km_parts, datacenter);
}

impl Grows for km_stats {
    const FIRST: usize = size_of::<km_stats>();
}

/// A struct of the caller's, of the size that the caller knows: its first field.
pub(crate) struct StructOut<T> {
    place: *mut T,
    pub(crate) size: u32,
}

impl<T: Grows> StructOut<T> {
    /// # Safety
    /// `place` is NULL or may be written until the call ends, for as many bytes as its first field, a `u32`, says.
    pub(crate) unsafe fn new(place: *mut T, name: &str, kind: &str) -> Result<Self> {
        if place.is_null() {
            return Err(crate::handle::null(name));
        }
        // SAFETY: by the contract.
        let size = unsafe { place.cast::<u32>().read() };
        if (size as usize) < T::FIRST {
            return Err(Error::argument(format!(
                "{name}.struct_size is {size}; set it to sizeof({kind}) before the call"
            )));
        }
        Ok(StructOut { place, size })
    }

    pub(crate) fn put(&self, answer: &T) {
        // SAFETY: by the contract of `new`.
        unsafe { copy_front(answer, self.place, self.size as usize) };
    }
}

fn bit(there: bool, bit: u32) -> u32 {
    if there { bit } else { 0 }
}

/// The front of a text that has room beside its NUL.
fn text_of<const ROOM: usize>(text: &str) -> [c_char; ROOM] {
    let mut end = text.len().min(ROOM - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut chars = [0; ROOM];
    for (to, from) in chars.iter_mut().zip(text[..end].bytes().filter(|byte| *byte != 0)) {
        *to = from as c_char;
    }
    chars
}

impl StructOut<km_stats> {
    fn set_stats(&self, stats: &Stats) {
        self.put(&km_stats {
            struct_size: self.size,
            present: bit(stats.last_refill_ms.is_some(), KM_STAT_LAST_REFILL)
                | bit(stats.runway_seconds.is_some(), KM_STAT_RUNWAY)
                | bit(stats.lead_ms.is_some(), KM_STAT_LEAD)
                | bit(stats.ends_at_ms.is_some(), KM_STAT_END)
                | bit(stats.refusal.is_some(), KM_STAT_REFUSAL)
                | bit(stats.lease_age_ms.is_some(), KM_STAT_LEASE_AGE)
                | bit(stats.zone.is_some(), KM_STAT_ZONE),
            issued: stats.issued,
            reserved: stats.reserved,
            left: stats.left,
            lost: stats.lost,
            refills: stats.refills,
            waits: stats.waits,
            step: stats.step,
            last_refill_ms: stats.last_refill_ms.unwrap_or_default(),
            rate: stats.rate,
            runway_seconds: stats.runway_seconds.unwrap_or_default(),
            lead_ms: stats.lead_ms.unwrap_or_default(),
            ends_at_ms: stats.ends_at_ms.unwrap_or_default(),
            refusal: text_of(stats.refusal.as_deref().unwrap_or_default()),
            lease_age_ms: stats.lease_age_ms.unwrap_or_default().unsigned_abs(),
            zone: text_of(stats.zone.as_deref().unwrap_or_default()),
        });
    }
}

impl StructOut<km_parts> {
    fn set(&self, parts: &Parts) -> Result<()> {
        let text = parts.date.as_deref().unwrap_or_default();
        // One byte stays for the NUL.
        if text.len() >= DATE_ROOM {
            return Err(Error::new(Code::Internal, "a date part is longer than a pattern allows"));
        }
        let answer = km_parts {
            struct_size: self.size,
            present: bit(parts.time_ms.is_some(), KM_PART_TIME)
                | bit(parts.worker.is_some(), KM_PART_WORKER)
                | bit(parts.sequence.is_some(), KM_PART_SEQUENCE)
                | bit(parts.number.is_some(), KM_PART_NUMBER)
                | bit(parts.date.is_some(), KM_PART_DATE)
                | bit(parts.datacenter.is_some(), KM_PART_DATACENTER)
                | bit(parts.gene.is_some(), KM_PART_GENE),
            time_ms: parts.time_ms.unwrap_or_default(),
            worker: parts.worker.unwrap_or_default(),
            sequence: parts.sequence.unwrap_or_default(),
            number: parts.number.unwrap_or_default(),
            date: text_of(text),
            datacenter: parts.datacenter.unwrap_or_default(),
            gene: parts.gene.unwrap_or_default().into(),
        };
        self.put(&answer);
        Ok(())
    }
}

/// Frees a source; ids it handed out stay good. NULL is nothing.
///
/// KM_INVALID_ARGUMENT when it was freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_source_free(source: *mut km_source) -> km_code {
    // SAFETY: the conventions page.
    enter(|| unsafe { free(source, |_| ()) })
}
