//! Compares the period of a serial with the store's clock. A period only moves forward, so one machine whose clock is a year ahead would
//! stop the serial for every other machine until that date.
//!
//! Instants are compared, not dates: a period begins when its date begins in the zone of the serial.

use crate::layout::rfc3339;
use crate::store::{Fault, FaultKind, Key, Mark, PeriodClock, Remedy, Request, Store};

use super::rows::Rows;

/// How far apart two zones may be: UTC+14 and UTC-12.
const ZONES_MS: i64 = 26 * 3_600_000;

/// When a period of this key begins, milliseconds since 1970. `None`: the key has no such period.
fn begins_ms(key: &Key, period: u64) -> Option<i64> {
    key.serial.as_ref()?.pattern.period_start_ms(period)
}

/// The earliest time of the store's clock at which a row may move to `period`. `None`: at any time.
fn allowed_from_ms(request: &Request, period: u64) -> Option<u64> {
    let clock = request.clock?;
    let from_ms = begins_ms(&request.key, period)?.saturating_sub_unsigned(clock.ahead_ms());
    u64::try_from(from_ms).ok()
}

/// Whether the store's clock, which has shown `seen_ms`, lets a row move to `period`.
#[cfg_attr(not(feature = "_sql"), allow(dead_code))]
pub(crate) fn is_reached(request: &Request, period: u64, seen_ms: u64) -> bool {
    allowed_from_ms(request, period).is_none_or(|from_ms| seen_ms >= from_ms)
}

/// Refuses to move a row to `period`, which it does not stand in, if that begins later than the store's clock allows.
///
/// # Errors
/// `Refused`, with both clocks; the faults of reading the store's clock.
pub(crate) fn check_begin(rows: &mut dyn Rows, request: &Request, period: u64) -> Result<(), Fault> {
    let (Some(clock), Some(from_ms)) = (request.clock, allowed_from_ms(request, period)) else {
        return Ok(());
    };
    match rows.clock_ms(from_ms)? {
        Some(store_ms) if store_ms < from_ms => Err(ahead(&request.key, clock, period, store_ms)),
        _ => Ok(()),
    }
}

fn ahead(key: &Key, clock: PeriodClock, period: u64, store_ms: u64) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "this machine's clock says {}, and the store's {}, which is too early for {}: it begins at {}, and may begin {} s after the store's clock at most. Nothing was changed: compare both with a third clock, and set right the one that is wrong",
            rfc3339(clock.wall_ms),
            shown(store_ms),
            named(key, period),
            begin(key, period),
            clock.ahead_ms() / 1000,
        ),
    )
}

/// Why a request for an earlier period than the row's is refused, by the store's clock where it has one.
///
/// # Errors
/// As for reading the store's clock.
pub(crate) fn behind(rows: &mut dyn Rows, request: &Request, at: Mark, fault: Fault) -> Result<Fault, Fault> {
    let key = &request.key;
    let (Some(clock), Some(begins_ms)) = (request.clock, begins_ms(key, at.period)) else {
        return Ok(fault);
    };
    let Some(store_ms) = rows.clock_ms(u64::MAX)? else {
        // Another zone explains it.
        if begins_ms <= could_begin_ms(clock.wall_ms, clock) {
            return Ok(fault);
        }
        let cause = format!(
            "its row stands in {}, which begins at {}; this machine's clock says {}, and this store has no clock that keymill may ask. If this machine's clock is right, a machine whose clock was ahead has reserved numbers of that period",
            named(key, at.period),
            begin(key, at.period),
            rfc3339(clock.wall_ms)
        );
        return Ok(
            Fault::new(FaultKind::ClockBehind, cause).with_remedy(Remedy::SetBack(key.name.to_string()))
        );
    };
    let row =
        format!("its row stands in {}, which begins at {}", named(key, at.period), begin(key, at.period));
    let clocks =
        format!("the store's clock says {}, this machine's {}", shown(store_ms), rfc3339(clock.wall_ms));
    let present_ms = i64::try_from(store_ms).unwrap_or(i64::MAX);
    let advice = if present_ms >= begins_ms {
        "compare both with a third clock, and set right the one that is wrong, or raise `skew` if nodes may differ by that much"
    } else if begins_ms <= could_begin_ms(present_ms, clock) {
        // The row is right for another zone, or was moved a few minutes early: nothing is to be repaired.
        "a program in a zone east of this one, or a machine whose clock is ahead, has begun that period. Give all programs of this serial one `zone=`, and each machine the right time; or wait until the period begins here"
    } else {
        let cause = format!(
            "{row}; {clocks}. Compare both with a third clock first: if they are right, a machine whose clock was ahead has reserved numbers of that period"
        );
        return Ok(
            Fault::new(FaultKind::ClockBehind, cause).with_remedy(Remedy::SetBack(key.name.to_string()))
        );
    };
    Ok(Fault::new(FaultKind::ClockBehind, format!("{row}; {clocks}: {advice}")))
}

/// The latest time at which a period may begin, by this zone, that has begun in some zone by the store's clock.
fn could_begin_ms(store_ms: i64, clock: PeriodClock) -> i64 {
    store_ms.saturating_add(ZONES_MS).saturating_add_unsigned(clock.ahead_ms())
}

/// The periods of a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresentPeriods {
    /// By this machine's clock, unless [`periods_to_write`] says otherwise.
    pub(crate) present: u64,
    /// The latest period that the store's clock allows in any zone: the programs' zone may differ from the operator's.
    /// A login that may not read the clock lets a row stand in any.
    pub(crate) latest: u64,
}

/// The periods of the present moment for an operator's verb.
///
/// # Errors
/// `Refused` where this machine's clock is ahead; the faults of reading the store's clock.
pub(crate) fn present_periods(
    store: &mut dyn Store,
    key: &Key,
    clock: PeriodClock,
) -> Result<PresentPeriods, Fault> {
    let store_ms = operators_clock_ms(store, key, clock.wall_ms)?;
    periods_at(key, clock, store_ms)
}

/// As [`present_periods`], where the row is written in `present`: never in a period that is over by the store's clock, or the programs would
/// begin the present one at 1. Where clocks are near each other, the later period is the present one.
///
/// # Errors
/// As `present_periods`; `Refused` where this machine's clock is behind.
pub(crate) fn periods_to_write(
    store: &mut dyn Store,
    key: &Key,
    clock: PeriodClock,
) -> Result<PresentPeriods, Fault> {
    let store_ms = operators_clock_ms(store, key, clock.wall_ms)?;
    let periods = periods_at(key, clock, store_ms)?;
    let (Some(store_ms), Some(serial)) = (store_ms, &key.serial) else { return Ok(periods) };
    let of_store = serial.pattern.period_at(store_ms);
    if of_store <= periods.present {
        return Ok(periods);
    }
    if store_ms > clock.wall_ms.saturating_add_unsigned(clock.ahead_ms()) {
        return Err(far_behind(key, clock, store_ms));
    }
    Ok(PresentPeriods { present: of_store, ..periods })
}

fn periods_at(key: &Key, clock: PeriodClock, store_ms: Option<i64>) -> Result<PresentPeriods, Fault> {
    let Some(serial) = &key.serial else { return Ok(PresentPeriods { present: 0, latest: u64::MAX }) };
    let present = serial.pattern.period_at(clock.wall_ms);
    let Some(store_ms) = store_ms else { return Ok(PresentPeriods { present, latest: u64::MAX }) };
    if present > serial.pattern.period_at(store_ms.saturating_add_unsigned(clock.ahead_ms())) {
        return Err(ahead(key, clock, present, store_ms as u64));
    }
    Ok(PresentPeriods { present, latest: serial.pattern.period_at(could_begin_ms(store_ms, clock)) })
}

/// The store's clock, milliseconds since 1970, for an operator's verb; `wall_ms`, this machine's, where the store has none. `None`: this
/// login may not read it.
///
/// # Errors
/// As for reading the clock.
pub(crate) fn operators_clock_ms(
    store: &mut dyn Store,
    key: &Key,
    wall_ms: i64,
) -> Result<Option<i64>, Fault> {
    match store.clock_ms(key) {
        Ok(0) => Ok(Some(wall_ms)),
        Ok(store_ms) => Ok(Some(i64::try_from(store_ms).unwrap_or(i64::MAX))),
        Err(fault) if fault.native.as_deref() == Some("NOPERM") => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// A row that is written in the period of a clock that is behind lets the programs begin their period at 1.
fn far_behind(key: &Key, clock: PeriodClock, store_ms: i64) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "this machine's clock says {}, and the store's {}: the row of `{}` would be written in a period that is over. Nothing was changed: compare both with a third clock, and set right the one that is wrong",
            rfc3339(clock.wall_ms),
            rfc3339(store_ms),
            key.name
        ),
    )
}

/// The period in which `init=max` makes a missing row: what the business table holds of it counts, and a later period begins at 1. So the
/// row is made in the period of the store's clock, if that is at most `period_max`, which this machine's clock allows.
///
/// # Errors
/// `ClockBehind`, with both clocks; the faults of reading the store's clock.
pub(crate) fn period_of_new_row(rows: &mut dyn Rows, request: &Request, period: u64) -> Result<u64, Fault> {
    let (Some(clock), Some(serial)) = (request.clock, request.key.serial.as_ref()) else { return Ok(period) };
    let Some(store_ms) = rows.clock_ms(u64::MAX)? else { return Ok(period) };
    let of_store = serial.pattern.period_at(i64::try_from(store_ms).unwrap_or(i64::MAX));
    if of_store <= request.period_max {
        return Ok(period.max(of_store));
    }
    Err(Fault::new(
        FaultKind::ClockBehind,
        format!(
            "this machine's clock says {}, and the store's {}: `init=max` would make the row in {}, and the later period would begin at 1, although `{}` may hold numbers of it. Nothing was changed: compare both with a third clock, and set right the one that is wrong",
            rfc3339(clock.wall_ms),
            shown(store_ms),
            named(&request.key, period),
            serial.table
        ),
    ))
}

/// Refuses to raise a row that a wrong clock has moved to a period after `latest`.
///
/// # Errors
/// `Refused`, with the command that sets it back.
pub(crate) fn check_not_ahead(key: &Key, stands: Mark, latest: u64) -> Result<(), Fault> {
    if stands.period <= latest {
        return Ok(());
    }
    let cause = format!(
        "its row stands in {}, which begins at {} and by the store's clock has not begun in any zone",
        named(key, stands.period),
        begin(key, stands.period)
    );
    Err(Fault::new(FaultKind::Refused, cause).with_remedy(Remedy::SetBack(key.name.to_string())))
}

/// Refuses to set back a row that no wrong clock has moved: one whose period is `latest` or earlier.
///
/// # Errors
/// `Refused`.
pub(crate) fn check_set_back(key: &Key, stands: Mark, to: Mark, latest: u64) -> Result<(), Fault> {
    if stands.period > latest && to.period <= latest && to.next > 0 {
        return Ok(());
    }
    // See `PresentPeriods::latest`.
    if latest == u64::MAX {
        let cause = "a row is set back by the store's clock, which this login may not read; on Redis run this as a user with `+time`; nothing was changed";
        return Err(Fault::new(FaultKind::Refused, cause));
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "its row stands in {}, and is set back only if by the store's clock that period has not begun in any zone; nothing was changed",
            named(key, stands.period)
        ),
    ))
}

fn begin(key: &Key, period: u64) -> String {
    begins_ms(key, period).map_or_else(|| "no known time".to_owned(), rfc3339)
}

fn shown(store_ms: u64) -> String {
    rfc3339(i64::try_from(store_ms).unwrap_or(i64::MAX))
}

/// A period as its serials show it.
fn named(key: &Key, period: u64) -> String {
    let shown = key.serial.as_ref().map(|serial| serial.pattern.prefix(period));
    shown.map_or_else(|| format!("period {period}"), |shown| format!("period `{}`", shown.as_str()))
}
