//! Periods: civil local time cut to what a date pattern shows, and when each begins and ends.
//!
//! Time zones and calendar are jiff's. What is added here is that a period never falls: where clocks go back, the
//! hour that comes twice belongs to the latest period already reached, as the row's does.

use std::sync::LazyLock;

use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Span, Timestamp};

use crate::error::{Error, Result};

/// The fields of a date, coarse to fine; the order is the order of a period's decimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DateField {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Milli,
}

impl DateField {
    pub(super) const ALL: [DateField; 7] = [
        DateField::Year,
        DateField::Month,
        DateField::Day,
        DateField::Hour,
        DateField::Minute,
        DateField::Second,
        DateField::Milli,
    ];

    /// The part's lowest digit in a period: `yyyyMMddHHmmssSSS` read as one decimal number.
    const fn unit(self) -> u64 {
        match self {
            DateField::Year => 10_000_000_000_000,
            DateField::Month => 100_000_000_000,
            DateField::Day => 1_000_000_000,
            DateField::Hour => 10_000_000,
            DateField::Minute => 100_000,
            DateField::Second => 1_000,
            DateField::Milli => 1,
        }
    }

    /// The part's value in a period.
    pub(super) const fn value_in(self, period: u64) -> u64 {
        let above = match self {
            DateField::Year => return period / DateField::Year.unit(),
            DateField::Month => DateField::Year,
            DateField::Day => DateField::Month,
            DateField::Hour => DateField::Day,
            DateField::Minute => DateField::Hour,
            DateField::Second => DateField::Minute,
            DateField::Milli => DateField::Second,
        };
        period % above.unit() / self.unit()
    }

    /// A period that holds this value in this part and nothing else.
    pub(super) const fn shifted(self, value: u64) -> u64 {
        value.saturating_mul(self.unit())
    }
}

/// The longest time before an instant in which a fall of the local clock still matters: offsets lie within 26 hours
/// of UTC, so no clock is behind a reading older than twice that.
const MEMORY: SignedDuration = SignedDuration::from_hours(52);

/// The furthest local time is from UTC, rounded up.
const FURTHEST: SignedDuration = SignedDuration::from_hours(26);

/// Periods of one precision in one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Calendar {
    zone: TimeZone,
    /// The finest part the pattern shows; `None`: one period without an end, 0.
    finest: Option<DateField>,
    /// The years the pattern can show: 1 to 9999, with `yy` 2000 to 2099. Outside, the clock's time is the nearest
    /// that can be shown, so an early or late clock makes neither a panic nor an old period come back.
    years: (i16, i16),
}

impl Calendar {
    pub(super) fn new(zone: TimeZone, finest: Option<DateField>, short_year: bool) -> Self {
        Calendar { zone, finest, years: if short_year { (2000, 2099) } else { (1, 9999) } }
    }

    pub(super) fn period_at(&self, wall_ms: i64) -> u64 {
        let Some(finest) = self.finest else { return 0 };
        let latest = self.latest(instant(wall_ms));
        let (first, last) = self.years;
        if latest.year() < first {
            pack(DateTime::new(first, 1, 1, 0, 0, 0, 0).unwrap_or(DateTime::MIN), finest)
        } else if latest.year() > last {
            pack(DateTime::new(last, 12, 31, 23, 59, 59, 999_000_000).unwrap_or(DateTime::MAX), finest)
        } else {
            pack(latest, finest)
        }
    }

    pub(super) fn start_ms(&self, period: u64) -> Option<i64> {
        self.first_ms(self.civil(period)?)
    }

    pub(super) fn end_ms(&self, period: u64) -> Option<i64> {
        let step = match self.finest? {
            DateField::Year => Span::new().years(1),
            DateField::Month => Span::new().months(1),
            DateField::Day => Span::new().days(1),
            DateField::Hour => Span::new().hours(1),
            DateField::Minute => Span::new().minutes(1),
            DateField::Second => Span::new().seconds(1),
            DateField::Milli => Span::new().milliseconds(1),
        };
        let next = self.civil(period)?.checked_add(step).ok()?;
        if next.year() > self.years.1 { None } else { self.first_ms(next) }
    }

    /// Whether the period is one of this calendar's: a date that exists, in a year that can be shown, with nothing
    /// below the precision.
    pub(super) fn has(&self, period: u64) -> bool {
        if self.finest.is_none() { period == 0 } else { self.civil(period).is_some() }
    }

    /// The civil time a period begins with.
    fn civil(&self, period: u64) -> Option<DateTime> {
        if !period.is_multiple_of(self.finest?.unit()) {
            return None;
        }
        let year = i16::try_from(DateField::Year.value_in(period)).ok()?;
        if year < self.years.0 || year > self.years.1 {
            return None;
        }
        // A part the pattern does not show is 0 in a period; a month and a day count from 1.
        let shown = |part: DateField| self.finest >= Some(part);
        let from_one = |part: DateField| if shown(part) { part.value_in(period) as i8 } else { 1 };
        let date = Date::new(year, from_one(DateField::Month), from_one(DateField::Day)).ok()?;
        let part = |part: DateField| part.value_in(period);
        DateTime::new(
            date.year(),
            date.month(),
            date.day(),
            part(DateField::Hour) as i8,
            part(DateField::Minute) as i8,
            part(DateField::Second) as i8,
            part(DateField::Milli) as i32 * 1_000_000,
        )
        .ok()
    }

    /// Whether both have the same hours from 1970 on, as the names of one zone have.
    pub(super) fn has_hours_of(&self, other: &Calendar) -> bool {
        // A zone changes its clocks twice a year: this reaches beyond the year 2150.
        const CHANGES: usize = 400;
        let hours = |zone: &TimeZone| -> Vec<(Timestamp, Offset)> {
            let first = (Timestamp::UNIX_EPOCH, zone.to_offset(Timestamp::UNIX_EPOCH));
            let later = zone.following(Timestamp::UNIX_EPOCH).take(CHANGES);
            std::iter::once(first).chain(later.map(|change| (change.timestamp(), change.offset()))).collect()
        };
        hours(&self.zone) == hours(&other.zone)
    }

    /// The latest local time reached by this instant: local time itself, but for the hours after clocks went back.
    fn latest(&self, at: Timestamp) -> DateTime {
        let mut latest = self.zone.to_datetime(at);
        let Ok(after) = at.checked_add(SignedDuration::from_nanos(1)) else { return latest };
        for change in self.zone.preceding(after) {
            if at.duration_since(change.timestamp()) > MEMORY {
                break;
            }
            if let Ok(before) = change.timestamp().checked_sub(SignedDuration::from_millis(1)) {
                latest = latest.max(self.zone.to_datetime(before));
            }
        }
        latest
    }

    /// The first millisecond at which local time has reached `civil`.
    fn first_ms(&self, civil: DateTime) -> Option<i64> {
        let reached = |ms: i64| self.latest(instant(ms)) >= civil;
        // jiff's answer is right where this local time occurs once or twice. It is checked, because where clocks jump over it the
        // moment of the jump is wanted.
        if let Ok(guess) = self.zone.to_ambiguous_timestamp(civil).earlier() {
            let guess = guess.as_millisecond();
            if reached(guess) && !reached(guess - 1) {
                return Some(guess);
            }
        }
        // `latest` never falls, so the moment can be found by bisection.
        let utc = Offset::UTC.to_timestamp(civil).ok()?;
        let mut before = utc.saturating_sub(FURTHEST).ok()?.as_millisecond() - 1;
        let mut after = utc.saturating_add(FURTHEST).ok()?.as_millisecond();
        if !reached(after) {
            return None;
        }
        while after - before > 1 {
            let middle = before.midpoint(after);
            if reached(middle) { after = middle } else { before = middle }
        }
        Some(after)
    }
}

/// The instant of a wall clock reading, the nearest one jiff knows where it is out of range.
fn instant(wall_ms: i64) -> Timestamp {
    Timestamp::from_millisecond(wall_ms).unwrap_or(if wall_ms < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Local time cut to `finest`, as one decimal number. The year is in 1..=9999.
fn pack(civil: DateTime, finest: DateField) -> u64 {
    let parts = [
        civil.year().unsigned_abs().into(),
        civil.month().unsigned_abs().into(),
        civil.day().unsigned_abs().into(),
        civil.hour().unsigned_abs().into(),
        civil.minute().unsigned_abs().into(),
        civil.second().unsigned_abs().into(),
        civil.millisecond().unsigned_abs().into(),
    ];
    DateField::ALL
        .into_iter()
        .zip(parts)
        .filter(|(part, _)| *part <= finest)
        .map(|(part, n)| part.shifted(n))
        .sum()
}

/// The zone that the environment's `TZ` names, else the machine's; UTC where it has none, as for the C library. What the program has set
/// since the last call counts.
fn local() -> Result<TimeZone> {
    jiff::tz::reset_system_time_zone_cache();
    let found = TimeZone::try_system().ok().filter(|zone| !zone.is_unknown());
    match (found, std::env::var_os("TZ")) {
        (Some(zone), _) => Ok(zone),
        (None, None) => Ok(TimeZone::UTC),
        (None, Some(given)) => Err(Error::config(format!(
            "`zone=local` is the zone of the environment's `TZ`, and `{}` is no time zone; set `TZ` to a name such as `Asia/Shanghai`, or write `zone=` in the source",
            crate::error::shown(&given.to_string_lossy())
        ))),
    }
}

/// `local`, `UTC`, a name of the IANA database, or a fixed offset.
pub(super) fn zone(name: &str) -> Result<TimeZone> {
    let unknown = || {
        Error::config(format!(
            "zone `{}` is not known; use `local`, `UTC`, a name such as `Asia/Shanghai`, or an offset such as `+08:00`",
            crate::error::shown(name)
        ))
    };
    match name {
        "local" => local(),
        "UTC" => Ok(TimeZone::UTC),
        _ if name.starts_with(['+', '-']) => offset(name).map(Offset::to_time_zone).ok_or_else(unknown),
        _ => {
            let found =
                TimeZone::get(name).ok().filter(|zone| !zone.is_unknown() && is_of_all_machines(name));
            let found = found.ok_or_else(unknown)?;
            // A name means the same in each program: not the file that is mounted over its own on this machine.
            let known = if is_named(&found, name) { None } else { bundled().get(name).ok() };
            Ok(known.unwrap_or(found))
        }
    }
}

/// The name that another machine knows this zone by. `None` for a rule, for a file without a name, and where the file of that name holds
/// another zone.
pub(super) fn name_of(zone: &TimeZone) -> Option<&str> {
    zone.iana_name().filter(|name| is_of_all_machines(name) && is_named(zone, name))
}

/// Whether a name of the zone database means one zone on every machine.
fn is_of_all_machines(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_own = ["localtime", "posixrules"].contains(&name.rsplit('/').next().unwrap_or_default());
    !is_own && !name.starts_with("posix/") && !name.starts_with("right/")
}

/// The database that is compiled in.
fn bundled() -> &'static TimeZoneDatabase {
    static BUNDLED: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);
    &BUNDLED
}

/// Whether a zone has the hours that its name has in the database which is compiled in. A container may have the host's `/etc/localtime`
/// mounted over the file of another zone, to which its own was a link. Hours of the past are compared, which no new law changes.
fn is_named(zone: &TimeZone, name: &str) -> bool {
    const FROM_S: i64 = 631_152_000; // 1990
    const QUARTER_S: i64 = 91 * 86_400;
    let Ok(known) = bundled().get(name) else { return true };
    (0..120)
        .filter_map(|quarter| Timestamp::from_second(FROM_S + quarter * QUARTER_S).ok())
        .all(|at| zone.to_offset(at) == known.to_offset(at))
}

/// `+HH:MM` or `-HH:MM`, at most 18 hours as in Java's `ZoneOffset`.
fn offset(text: &str) -> Option<Offset> {
    let [sign, h1, h2, b':', m1, m2] = *text.as_bytes() else { return None };
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i32::from(byte - b'0'));
    let hours = digit(h1)? * 10 + digit(h2)?;
    let minutes = digit(m1)? * 10 + digit(m2)?;
    let total = hours * 60 + minutes;
    if minutes > 59 || total > 18 * 60 {
        return None;
    }
    Offset::from_seconds(if sign == b'-' { -total * 60 } else { total * 60 }).ok()
}
