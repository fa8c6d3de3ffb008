//! The verbs of a mill.

use std::ffi::c_char;

use keymill_core::{Event, Mill};

use crate::error::{enter, km_code};
use crate::handle::{Out, free, give, held, km_mill, km_source};
use crate::text::{TextOut, text_in};

/// A buffer of this many bytes holds any one event, its newline and NUL included: see km_mill_events.
pub const KM_EVENT_SIZE: usize = 1024;

/// Opens a mill from one string: "sqlite:FILE", "memory:", "mysql://user:password@host:port/database", "postgres://…" and
/// "redis://…" alike, or "file:CONFIG.toml". An empty string gives KM_INVALID_CONFIG, because it is usually a missing setting:
/// see km_mill_open_default. Nothing is connected until a source needs it, so a store that is down does not keep a program from
/// starting. `*mill` is the caller's, who frees it with km_mill_free.
///
/// KM_INVALID_ARGUMENT, KM_INVALID_CONFIG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_open(config: *const c_char, mill: *mut *mut km_mill) -> km_code {
    enter(|| {
        keymill_core::binding::quiet_panics();
        // SAFETY: the conventions page; so below.
        let (config, mill) = unsafe { (text_in(config, "config")?, Out::new(mill, "mill")?) };
        mill.set(give(Mill::open(config)?));
        Ok(())
    })
}

/// Opens the mill that the environment variable KEYMILL_CONFIG names, and without the variable "sqlite:keymill.db" in the
/// working folder. An empty variable gives KM_INVALID_CONFIG. `*mill` is the caller's, who frees it with km_mill_free.
///
/// KM_INVALID_ARGUMENT, KM_INVALID_CONFIG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_open_default(mill: *mut *mut km_mill) -> km_code {
    enter(|| {
        keymill_core::binding::quiet_panics();
        // SAFETY: the conventions page.
        let mill = unsafe { Out::new(mill, "mill")? };
        mill.set(give(Mill::open_default()?));
        Ok(())
    })
}

/// A source, named by one string: "segment:orders?step=1000", "snowflake:tx?worker=5",
/// "serial:cust_info/custid?date=yyyyMMdd&number=000000". Asking again gives another handle of the same source. `*source`
/// is the caller's, who frees it with km_source_free, before or after the mill.
///
/// KM_INVALID_ARGUMENT, KM_INVALID_CONFIG, KM_LAYOUT_ENDED, KM_CLOSED, KM_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_source(
    mill: *mut km_mill,
    spec: *const c_char,
    source: *mut *mut km_source,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (mill, spec, source) =
            unsafe { (held(mill)?, text_in(spec, "spec")?, Out::new(source, "source")?) };
        source.set(give(mill.source(spec)?));
        Ok(())
    })
}

/// Closes a mill for good: every later call on it and its sources answers KM_CLOSED, callers that wait are woken, unused
/// numbers go back to the store where they can. May be called while other threads use the mill. Closing twice is
/// nothing.
///
/// KM_INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_close(mill: *mut km_mill) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        unsafe { held(mill) }?.close();
        Ok(())
    })
}

/// Closes the mill if it is open and frees it. Its sources stay valid handles, each to be freed by its owner, and answer
/// KM_CLOSED. NULL is nothing.
///
/// KM_INVALID_ARGUMENT when it was freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_free(mill: *mut km_mill) -> km_code {
    // SAFETY: the conventions page.
    enter(|| unsafe { free(mill, Mill::close) })
}

/// Writes every figure of the mill as Prometheus text, with a NUL. Figures grow between two calls: after
/// KM_BUFFER_TOO_SMALL come with a little more than `*len`.
///
/// KM_INVALID_ARGUMENT, KM_BUFFER_TOO_SMALL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_metrics(
    mill: *const km_mill,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (mill, out) = unsafe { (held(mill)?, TextOut::new(buf, size, len)?) };
        out.put(&mill.metrics())
    })
}

/// Takes what happened since the last call, one line per event, oldest first: "2026-11-21T08:30:00.123Z refill_failed:
/// ...". Call until `*len` is 0: a call writes as many events as surely fit, those it did not write stay. The mill keeps
/// the last 256. A line longer than KM_EVENT_SIZE is cut.
///
/// KM_INVALID_ARGUMENT, KM_BUFFER_TOO_SMALL for a buffer below KM_EVENT_SIZE; no event is lost by that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_events(
    mill: *mut km_mill,
    buf: *mut c_char,
    size: usize,
    len: *mut usize,
) -> km_code {
    enter(|| {
        // SAFETY: the conventions page.
        let (mill, out) = unsafe { (held(mill)?, TextOut::new(buf, size, len)?) };
        let mut lines = String::new();
        if size < KM_EVENT_SIZE {
            return out.write(KM_EVENT_SIZE - 1, |_| Ok(0));
        }
        while out.room() - lines.len() >= KM_EVENT_SIZE - 1
            && let Some(event) = mill.next_event()
        {
            push_line(&mut lines, &event);
        }
        out.put(&lines)
    })
}

/// Appends an event and a newline: less than `KM_EVENT_SIZE` bytes.
fn push_line(lines: &mut String, event: &Event) {
    let line = event.to_string();
    let mut end = line.len().min(KM_EVENT_SIZE - 2);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    lines.push_str(&line[..end]);
    lines.push('\n');
}

/// Moves the clock of a mill opened with clock=manual forward by milliseconds. For tests.
///
/// KM_INVALID_ARGUMENT on a mill that runs on the machine's clock; KM_CLOSED, KM_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_clock_advance(mill: *mut km_mill, ms: u64) -> km_code {
    // SAFETY: the conventions page.
    enter(|| unsafe { held(mill) }?.advance_clock(ms))
}

/// Sets the clock of a mill opened with clock=manual to milliseconds since 1970, in either direction. For tests.
///
/// KM_INVALID_ARGUMENT on a mill that runs on the machine's clock; KM_CLOSED, KM_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn km_mill_clock_set(mill: *mut km_mill, wall_ms: i64) -> km_code {
    // SAFETY: the conventions page.
    enter(|| unsafe { held(mill) }?.set_clock(wall_ms))
}
