//! Which bits of a snowflake mean what: time, worker, sequence, and the day on which the time field is over.
//!
//! A layout is data, written `time:41@1ms,worker:10,seq:12`, most significant field first. The presets are Twitter's
//! (<https://github.com/twitter-archive/snowflake>), uid-generator's (<https://github.com/baidu/uid-generator>),
//! Sonyflake's (<https://github.com/sony/sonyflake>), and `js53`, which stays exact in a JavaScript number.
//!
//! Everything here is arithmetic on values that `parse` has checked once, so nothing can overflow or wrap later.

use std::fmt;

use jiff::{Timestamp, civil, tz::TimeZone};

use super::scatter::{Scatter, lower_bits, move_digits, raise_bits, restore_digits, unit_of};
use crate::base::error::{Code, Error, Result};

/// The epoch of a layout that names none.
pub const DEFAULT_EPOCH: &str = "2025-01-01";

/// The presets: name and layout.
pub const PRESETS: [(&str, &str); 4] = [
    ("twitter", "time:41@1ms,worker:10,seq:12"),
    ("uid", "time:28@1s,worker:22,seq:13"),
    ("sonyflake", "time:39@10ms,seq:8,worker:16"),
    ("js53", "time:41@1ms,worker:5,seq:7"),
];

/// The most bits of all three fields together; the sign bit of a 64-bit integer stays clear, for Java and for `BIGINT`.
const MAX_BITS: u32 = 63;

/// The longest tick, a day: longer ones are typing errors.
const MAX_UNIT_MS: i64 = 86_400_000;

const YEAR_MS: i64 = 365 * 86_400_000;

/// A year of the calendar, on average.
const MEAN_YEAR_MS: u128 = 31_556_952_000;

const FORM: &str = "valid are twitter, uid, sonyflake, js53 or time:BITS@UNIT,worker:BITS,seq:BITS \
                    with UNIT like 1ms, 10ms or 1s and at most 63 bits in all";

/// The shape of an id. Made by [`Layout::parse`] only, which keeps these invariants:
/// `time_bits ≥ 1`, `seq_bits ≥ 1`, the sum is at most 63, `unit_ms` is 1 to 86 400 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    time_bits: u32,
    /// Upper part of the worker field where it is written `A+B`; 0 otherwise.
    center_bits: u32,
    worker_bits: u32,
    seq_bits: u32,
    /// False for Sonyflake's order: time, sequence, worker.
    seq_last: bool,
    unit_ms: i64,
    epoch_ms: i64,
    /// The form of the ids.
    scatter: Scatter,
    /// The last tick whose ids have that form.
    last_tick: u64,
}

/// The fields of one id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Fields {
    /// Ticks since the layout's epoch.
    pub tick: u64,
    /// The worker, data centre included.
    pub worker: u64,
    /// The sequence within the tick.
    pub seq: u64,
}

/// Ids of one scattered form that lie next to each other, and the time in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// The lowest id that may lie here.
    pub lo: u64,
    /// No id here is this high.
    pub hi: u64,
    /// When the first of them is made, milliseconds since 1970.
    pub from_ms: i64,
    /// When they are used up, milliseconds since 1970.
    pub until_ms: i64,
}

impl Layout {
    /// Reads a layout and its epoch.
    ///
    /// `layout` is a preset (`twitter`, `uid`, `sonyflake`, `js53`) or `time:BITS@UNIT,worker:BITS,seq:BITS`: time first,
    /// since ids must rise with it, then worker and sequence in either order. The unit is a whole number of `us`, `ms` or
    /// `s`, at least 1 ms and a whole number of milliseconds. The worker may be split, `dc-worker:5+5` or `worker:5+5`;
    /// it is still one number, the data centre being its upper bits.
    /// `epoch` is `YYYY-MM-DD` (midnight UTC) or an RFC 3339 timestamp; empty means [`DEFAULT_EPOCH`].
    ///
    /// `INVALID_CONFIG` says what is wrong and what is valid.
    ///
    /// ```
    /// use keymill::snowflake::Layout;
    /// let layout = Layout::parse("twitter", "2025-01-01")?;
    /// assert_eq!(layout.to_string(), "time:41@1ms,worker:10,seq:12");
    /// assert_eq!(layout.end_date(), "2094-09-07");
    /// # Ok::<(), keymill::Error>(())
    /// ```
    pub fn parse(layout: &str, epoch: &str) -> Result<Layout> {
        let wanted = layout.trim();
        let text = PRESETS.iter().find(|(name, _)| *name == wanted).map_or(wanted, |(_, text)| *text);
        if !text.contains(':') {
            return Err(Error::config(format!("layout {} is not known; {FORM}", quoted(wanted))));
        }
        let mut time: Option<(u32, i64)> = None;
        let mut worker: Option<(u32, u32)> = None;
        let mut seq: Option<u32> = None;
        let mut seq_last = false;
        for (place, field) in text.split(',').enumerate() {
            let (name, value) = field.split_once(':').ok_or_else(|| {
                Error::config(format!("layout field {} has no width; {FORM}", quoted(field)))
            })?;
            let (name, value) = (name.trim(), value.trim());
            let twice = match name {
                "time" if place != 0 => {
                    return Err(Error::config(format!(
                        "layout {}: time must stand first, because ids rise with their most significant field",
                        quoted(wanted)
                    )));
                }
                "time" => time.replace(time_field(value)?).is_some(),
                "worker" | "dc-worker" => worker.replace(worker_field(name, value)?).is_some(),
                "seq" => {
                    seq_last = true;
                    seq.replace(bits("seq", value, 1)?).is_some()
                }
                _ => {
                    return Err(Error::config(format!("layout field {} is not known; {FORM}", quoted(name))));
                }
            };
            if twice {
                return Err(Error::config(format!("layout {}: field {name} is given twice", quoted(wanted))));
            }
            seq_last &= name == "seq";
        }
        let missing = |name: &str| {
            let first = if name == "time" { " and must stand first, because ids rise with it" } else { "" };
            Error::config(format!("layout {}: field {name} is missing{first}; {FORM}", quoted(wanted)))
        };
        let (time_bits, unit_ms) = time.ok_or_else(|| missing("time"))?;
        let (center_bits, worker_bits) = worker.ok_or_else(|| missing("worker"))?;
        let seq_bits = seq.ok_or_else(|| missing("seq"))?;
        // Each width is at most 63, so the sum cannot overflow.
        let sum = time_bits + worker_bits + seq_bits;
        if sum > MAX_BITS {
            return Err(Error::config(format!(
                "layout {}: {time_bits} + {worker_bits} + {seq_bits} = {sum} bits, at most {MAX_BITS} fit a positive 64-bit integer",
                quoted(wanted)
            )));
        }
        let epoch_ms = parse_epoch(epoch)?;
        Ok(Layout {
            time_bits,
            center_bits,
            worker_bits,
            seq_bits,
            seq_last,
            unit_ms,
            epoch_ms,
            scatter: Scatter::None,
            last_tick: mask(time_bits),
        })
    }

    /// This layout with ids of a scattered form. With decimal digits it ends earlier where ids would exceed 2^63.
    ///
    /// # Errors
    /// `INVALID_CONFIG` where the sequence has fewer bits than are to be moved, or no tick is left.
    pub fn scattered(self, scatter: Scatter) -> Result<Layout> {
        if let Scatter::High(bits) = scatter
            && bits > self.seq_bits
        {
            return Err(Error::config(format!(
                "scatter={scatter} does not fit layout {self}: its sequence has {} bits",
                self.seq_bits
            )));
        }
        let ticks = scatter.limit(self.max_id()) >> self.time_shift();
        match ticks.checked_sub(1) {
            Some(last_tick) => Ok(Layout { scatter, last_tick, ..self }),
            None => Err(Error::config(format!("scatter={scatter} leaves no time to layout {self}"))),
        }
    }

    /// The form of the ids.
    #[must_use]
    pub fn scatter(&self) -> Scatter {
        self.scatter
    }

    /// The scattered form of an id that [`Layout::pack`] made.
    #[inline]
    #[must_use]
    pub fn write(&self, id: u64) -> u64 {
        if self.scatter == Scatter::None { id } else { self.moved(id) }
    }

    /// Not inlined: its divisions would take registers from the ids that are not scattered.
    #[inline(never)]
    fn moved(&self, id: u64) -> u64 {
        match self.scatter {
            Scatter::None => id,
            Scatter::Digits(digits) => move_digits(id, digits),
            Scatter::High(bits) => raise_bits(id, bits, self.seq_shift(), self.bits()),
        }
    }

    /// The id of these fields. Bits beyond a field's width are cut off; the generator checks its ranges before.
    #[inline]
    #[must_use]
    pub fn pack(&self, tick: u64, worker: u64, seq: u64) -> u64 {
        ((tick & mask(self.time_bits)) << self.time_shift())
            | ((worker & self.max_worker()) << self.worker_shift())
            | ((seq & self.max_seq()) << self.seq_shift())
    }

    /// Where the ids of this wall time lie, in which [`Scatter::regions`] parts of equal size have equally many. With decimal digits
    /// these are the ids of one first digit; with high bits, all. `None` where ids are not scattered, before the epoch, or after the
    /// end.
    #[must_use]
    pub fn window(&self, wall_ms: i64) -> Option<Window> {
        let tick = u64::try_from(self.tick_at(wall_ms)).ok().filter(|tick| *tick <= self.last_tick)?;
        let (from_ms, until_ms) = (self.wall_ms_of(0), self.ends_at_ms());
        match self.scatter {
            Scatter::None => None,
            Scatter::High(_) => Some(Window { lo: 0, hi: self.max_id() + 1, from_ms, until_ms }),
            Scatter::Digits(digits) => {
                // The last id of the tick, so that a window begins with the first tick that has only its ids.
                let last = self.pack(tick, self.max_worker(), self.max_seq());
                let unit = unit_of(last, digits).unwrap_or(10_u64.pow(digits + 1));
                let (lo, hi) = (last / unit * unit, last / unit * unit + unit);
                let at = |id: u64| self.wall_ms_of(id >> self.time_shift());
                Some(Window { lo, hi, from_ms: at(lo).max(from_ms), until_ms: at(hi).min(until_ms) })
            }
        }
    }

    /// The share of the layout's life that is over: 0 at the epoch, 1 at the end.
    #[must_use]
    pub fn life_used(&self, now_ms: i64) -> f64 {
        let life = self.ends_at_ms().saturating_sub(self.epoch_ms) as f64;
        (now_ms.saturating_sub(self.epoch_ms) as f64 / life).clamp(0.0, 1.0)
    }

    /// Whether the sequence stands last, so that the low bits and digits of ids are even at any rate.
    #[must_use]
    pub fn ends_in_seq(&self) -> bool {
        self.seq_last
    }

    /// Layouts for so many years, workers, and ids per second of one worker, the finest tick first: with ticks of 1 ms, 10 ms and
    /// 1 s, as far as they fit 63 bits. Bits that are left go to the sequence.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` where no layout fits, or for a demand of 0.
    ///
    /// ```
    /// use keymill::Layout;
    /// let layouts = Layout::propose(50, 1000, 100_000)?;
    /// assert_eq!(layouts[0].to_string(), "time:41@1ms,worker:10,seq:12");
    /// # Ok::<(), keymill::Error>(())
    /// ```
    pub fn propose(years: u32, workers: u64, per_second: u64) -> Result<Vec<Layout>> {
        if years == 0 || workers == 0 || per_second == 0 {
            return Err(Error::argument("years, workers and rate are at least 1"));
        }
        let bits = |values: u128| (u128::BITS - (values - 1).leading_zeros()).max(1);
        let fits = [("1ms", 1), ("10ms", 10), ("1s", 1000)].into_iter().filter_map(|(unit, unit_ms)| {
            let time = bits(u128::from(years) * MEAN_YEAR_MS.div_ceil(unit_ms));
            let seq = bits((u128::from(per_second) * unit_ms).div_ceil(1000));
            let worker = bits(u128::from(workers));
            let rest = MAX_BITS.checked_sub(time + worker + seq)?;
            Layout::parse(&format!("time:{time}@{unit},worker:{worker},seq:{}", seq + rest), "").ok()
        });
        let layouts: Vec<_> = fits.collect();
        if layouts.is_empty() {
            return Err(Error::argument(format!(
                "{years} years, {workers} workers and {per_second} ids per second and worker need more than {MAX_BITS} bits, \
                 even in ticks of a second; ask for fewer of one of them"
            )));
        }
        Ok(layouts)
    }

    /// The fields of an id. Bits above the layout are ignored; [`Layout::read`] refuses them,
    /// and reads the scattered form.
    #[inline]
    #[must_use]
    pub fn unpack(&self, id: u64) -> Fields {
        Fields {
            tick: (id >> self.time_shift()) & mask(self.time_bits),
            worker: (id >> self.worker_shift()) & self.max_worker(),
            seq: (id >> self.seq_shift()) & self.max_seq(),
        }
    }

    /// The fields of an id from outside; `INVALID_ARGUMENT` where no id of this layout has this value.
    pub fn read(&self, id: u64) -> Result<Fields> {
        let plain = match self.scatter {
            Scatter::None => id,
            // Beyond, moved digits may lead beyond 2^64.
            Scatter::Digits(_) if id > mask(MAX_BITS) => 0,
            Scatter::Digits(digits) => restore_digits(id, digits),
            Scatter::High(_) if id > self.max_id() => 0,
            Scatter::High(bits) => lower_bits(id, bits, self.seq_shift(), self.bits()),
        };
        if plain == 0 || plain > self.max_id() || self.unpack(plain).tick > self.last_tick {
            let range = match self.scatter {
                Scatter::Digits(_) => String::new(),
                _ => format!(": its ids are 1 to {}", self.max_id()),
            };
            return Err(Error::argument(format!("{id} is not an id of layout {}{range}", self.with_form())));
        }
        Ok(self.unpack(plain))
    }

    /// The tick at this wall time: negative before the epoch, above [`Layout::max_tick`] after the end of the time field.
    #[inline]
    #[must_use]
    pub fn tick_at(&self, wall_ms: i64) -> i64 {
        wall_ms.saturating_sub(self.epoch_ms).div_euclid(self.unit_ms)
    }

    /// The wall time at which a tick begins, milliseconds since 1970; saturates where `i64` ends.
    #[must_use]
    pub fn wall_ms_of(&self, tick: u64) -> i64 {
        let wall = i128::from(self.epoch_ms) + i128::from(tick) * i128::from(self.unit_ms);
        i64::try_from(wall).unwrap_or(i64::MAX)
    }

    /// The first millisecond beyond the time field.
    #[must_use]
    pub fn ends_at_ms(&self) -> i64 {
        self.wall_ms_of(self.max_tick() + 1)
    }

    /// The day (UTC) on which the time field ends: `2094-09-07`, or `after 9999-12-31`.
    #[must_use]
    pub fn end_date(&self) -> String {
        match Timestamp::from_millisecond(self.ends_at_ms()) {
            Ok(end) => end.to_zoned(TimeZone::UTC).date().to_string(),
            Err(_) => "after 9999-12-31".to_owned(),
        }
    }

    /// Checks that the time field is usable now: `LAYOUT_ENDED` when it is over, `INVALID_CONFIG` when the epoch is in the future,
    /// a warning when it ends within 365 days.
    pub fn check_life(&self, now_ms: i64) -> Result<Option<String>> {
        if now_ms < self.epoch_ms {
            return Err(Error::config(format!(
                "epoch {} of layout {self} is in the future: this machine's clock shows {}; give an epoch that has passed",
                rfc3339(self.epoch_ms),
                rfc3339(now_ms)
            )));
        }
        let end = self.ends_at_ms();
        if end <= now_ms {
            return Err(self.ended());
        }
        if end.saturating_sub(now_ms) <= YEAR_MS {
            return Ok(Some(format!(
                "layout {} with epoch {} ends on {}: move to a wider time field before that day, under a new source name",
                self.with_form(),
                rfc3339(self.epoch_ms),
                self.end_date()
            )));
        }
        Ok(None)
    }

    /// The error after the last tick.
    #[must_use]
    pub fn ended(&self) -> Error {
        Error::new(
            Code::LayoutEnded,
            format!(
                "layout {} with epoch {} ended on {}: nothing wraps, so no id can follow; \
                 use a new source with a later epoch or a wider time field",
                self.with_form(),
                rfc3339(self.epoch_ms),
                self.end_date()
            ),
        )
    }

    /// The layout's text, with its scattered form.
    pub(crate) fn with_form(&self) -> String {
        match self.scatter {
            Scatter::None => self.describe(),
            scatter => format!("{self} with scatter={scatter}"),
        }
    }

    /// Canonical text, without the scattered form: `time:41@1ms,worker:10,seq:12`. Parsing it gives the same layout, presets included.
    #[must_use]
    pub fn describe(&self) -> String {
        let unit = if self.unit_ms % 1000 == 0 {
            format!("{}s", self.unit_ms / 1000)
        } else {
            format!("{}ms", self.unit_ms)
        };
        let worker = if self.center_bits > 0 {
            format!("dc-worker:{}+{}", self.center_bits, self.worker_bits - self.center_bits)
        } else {
            format!("worker:{}", self.worker_bits)
        };
        if self.seq_last {
            format!("time:{}@{unit},{worker},seq:{}", self.time_bits, self.seq_bits)
        } else {
            format!("time:{}@{unit},seq:{},{worker}", self.time_bits, self.seq_bits)
        }
    }

    /// The epoch, milliseconds since 1970.
    #[must_use]
    pub fn epoch_ms(&self) -> i64 {
        self.epoch_ms
    }

    /// The length of one tick in milliseconds.
    #[must_use]
    pub fn unit_ms(&self) -> i64 {
        self.unit_ms
    }

    /// The largest tick: the time field's, or the last one whose ids have the scattered form.
    #[inline]
    #[must_use]
    pub fn max_tick(&self) -> u64 {
        self.last_tick
    }

    /// The largest worker; 0 where the layout has no worker bits.
    #[inline]
    #[must_use]
    pub fn max_worker(&self) -> u64 {
        mask(self.worker_bits)
    }

    /// The largest sequence.
    #[inline]
    #[must_use]
    pub fn max_seq(&self) -> u64 {
        mask(self.seq_bits)
    }

    /// The largest id.
    #[must_use]
    pub fn max_id(&self) -> u64 {
        mask(self.bits())
    }

    /// The width of all fields together.
    #[inline]
    fn bits(&self) -> u32 {
        self.time_bits + self.worker_bits + self.seq_bits
    }

    /// The width of the sequence.
    #[inline]
    #[must_use]
    pub fn seq_bits(&self) -> u32 {
        self.seq_bits
    }

    /// Ids that one worker can make in a second of wall time.
    #[must_use]
    pub fn ids_per_second(&self) -> u64 {
        let ids = (u128::from(self.max_seq()) + 1) * 1000 / u128::from(self.unit_ms.unsigned_abs().max(1));
        u64::try_from(ids).unwrap_or(u64::MAX)
    }

    /// The worker as data centre and worker, where the layout splits it.
    #[must_use]
    pub fn split_worker(&self, worker: u64) -> Option<(u64, u64)> {
        let low = self.worker_bits - self.center_bits;
        (self.center_bits > 0).then(|| ((worker & self.max_worker()) >> low, worker & mask(low)))
    }

    /// This layout with its worker as data centre and worker. A worker of 10 bits that the layout does not split has 5 bits of
    /// each, as Twitter's has.
    ///
    /// # Errors
    /// `INVALID_CONFIG` where the layout does not split a worker of another width.
    pub fn with_data_centre(self) -> Result<Layout> {
        match (self.center_bits, self.worker_bits) {
            (0, 10) => Ok(Layout { center_bits: 5, ..self }),
            (0, _) => self.join_worker(0, 0).map(|_| self),
            _ => Ok(self),
        }
    }

    /// The one worker number of a data centre and a worker. `INVALID_CONFIG` where the layout does not split or a part is too large.
    pub fn join_worker(&self, center: u64, worker: u64) -> Result<u64> {
        let low = self.worker_bits - self.center_bits;
        if self.center_bits == 0 {
            return Err(Error::config(format!(
                "layout {self} has no data centre; write its worker as two widths, such as dc-worker:5+5"
            )));
        }
        if center > mask(self.center_bits) || worker > mask(low) {
            return Err(Error::config(format!(
                "data centre {center}, worker {worker} do not fit layout {self}: valid are 0 to {} and 0 to {}",
                mask(self.center_bits),
                mask(low)
            )));
        }
        Ok(center << low | worker)
    }

    /// How far the tick is shifted. Time stands first, so everything else is below it.
    #[inline]
    pub(crate) fn time_shift(&self) -> u32 {
        self.worker_bits + self.seq_bits
    }

    /// How far the worker is shifted.
    #[inline]
    pub(crate) fn worker_shift(&self) -> u32 {
        if self.seq_last { self.seq_bits } else { 0 }
    }

    /// How far the sequence is shifted.
    #[inline]
    pub(crate) fn seq_shift(&self) -> u32 {
        if self.seq_last { 0 } else { self.worker_bits }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

/// Wall time for people: `2026-11-21T08:30:00.123Z`. Times after the year 9999 are written as milliseconds.
#[must_use]
pub fn rfc3339(wall_ms: i64) -> String {
    match Timestamp::from_millisecond(wall_ms) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => format!("{wall_ms} ms since 1970"),
    }
}

/// The low `bits` bits; `bits` is at most 63 everywhere in this file.
#[inline]
const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Input in a message: one line, of a bounded length.
fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{:?}…", &text[..cut]),
        None => format!("{text:?}"),
    }
}

fn bits(field: &str, value: &str, least: u32) -> Result<u32> {
    let digits = !value.is_empty() && value.len() <= 3 && value.bytes().all(|b| b.is_ascii_digit());
    match value.parse::<u32>() {
        Ok(bits) if digits && (least..=MAX_BITS).contains(&bits) => Ok(bits),
        _ => Err(Error::config(format!(
            "layout field {field}: {} is not a width; valid are {least} to {MAX_BITS} bits",
            quoted(value)
        ))),
    }
}

fn time_field(value: &str) -> Result<(u32, i64)> {
    let (width, unit) = value.split_once('@').ok_or_else(|| {
        Error::config(format!("layout field time: {} has no unit; write it like 41@1ms", quoted(value)))
    })?;
    Ok((bits("time", width, 1)?, unit_ms(unit)?))
}

fn unit_ms(unit: &str) -> Result<i64> {
    let wrong = || {
        Error::config(format!(
            "layout field time: {} is not a unit; valid are whole milliseconds from 1ms to 86400s, like 1ms, 10ms, 5000us or 1s",
            quoted(unit)
        ))
    };
    let end = unit.bytes().position(|b| !b.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, suffix) = unit.split_at(end);
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let ms = match suffix {
        "us" if number % 1000 == 0 => number / 1000,
        "ms" => number,
        "s" => number.checked_mul(1000).ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    if (1..=MAX_UNIT_MS).contains(&ms) { Ok(ms) } else { Err(wrong()) }
}

/// `(data centre bits, all worker bits)`.
fn worker_field(name: &str, value: &str) -> Result<(u32, u32)> {
    match value.split_once('+') {
        Some((center, worker)) => {
            let (center, worker) = (bits(name, center, 1)?, bits(name, worker, 1)?);
            Ok((center, center + worker))
        }
        None if name == "dc-worker" => Err(Error::config(format!(
            "layout field dc-worker: {} is not split; write it like 5+5",
            quoted(value)
        ))),
        None => Ok((0, bits(name, value, 0)?)),
    }
}

fn parse_epoch(epoch: &str) -> Result<i64> {
    let text = if epoch.trim().is_empty() { DEFAULT_EPOCH } else { epoch.trim() };
    let wrong = || {
        Error::config(format!(
            "epoch {} is not a date; valid are 2025-01-01 or 2025-01-01T00:00:00Z",
            quoted(text)
        ))
    };
    // A bare date is exactly ten characters; jiff would read more forms than the message promises.
    let time = if text.len() == 10 {
        let date: civil::Date = text.parse().map_err(|_| wrong())?;
        date.to_zoned(TimeZone::UTC).map_err(|_| wrong())?.timestamp()
    } else {
        text.parse::<Timestamp>().map_err(|_| wrong())?
    };
    Ok(time.as_millisecond())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-21T08:30:00.123Z.
    const NOW: i64 = 1_795_249_800_123;

    fn layout(text: &str) -> Layout {
        Layout::parse(text, "").unwrap()
    }

    fn refusal(text: &str) -> String {
        let error = Layout::parse(text, "").unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(!error.message.contains('\n'), "{}", error.message);
        error.message
    }

    #[test]
    fn presets_have_the_bits_their_models_have() {
        for (name, text) in PRESETS {
            assert_eq!(layout(name), layout(text));
            assert_eq!(layout(name).describe(), text);
        }
        assert_eq!(layout("twitter").pack(1, 1, 1), 1 << 22 | 1 << 12 | 1);
        assert_eq!(layout("uid").pack(1, 1, 1), 1 << 35 | 1 << 13 | 1);
        assert_eq!(layout("sonyflake").pack(1, 1, 1), 1 << 24 | 1 << 16 | 1);
        assert_eq!(layout("js53").max_id(), (1 << 53) - 1);
    }

    #[test]
    fn scattered_digits_end_a_layout_before_ids_exceed_2_to_63_and_keep_a_53_bit_layout_exact() {
        let years = |text: &str, form: &str| {
            let layout = layout(text).scattered(Scatter::parse(form).expect(form)).expect(text);
            let last = layout.write(layout.pack(layout.max_tick(), layout.max_worker(), layout.max_seq()));
            assert!(last <= layout.max_id().max(last.min(9 * 10_u64.pow(18))), "{text} {form}: {last}");
            assert!(layout.max_id() >= 1 << 53 || last < 1 << 53, "{text} {form}: {last}");
            (layout.ends_at_ms() - layout.epoch_ms()) as f64 / (365.2425 * 86_400_000.0)
        };
        assert_eq!(format!("{:.1}", years("twitter", "0")), "69.7");
        for form in ["1", "2", "3"] {
            assert_eq!(format!("{:.1}", years("twitter", form)), "68.0");
            assert_eq!(format!("{:.2}", years("js53", form)), "69.63", "69.73 without");
            assert_eq!(
                format!("{:.1}", years("time:40@1ms,worker:10,seq:12", form)),
                "34.8",
                "it ends before"
            );
        }
        assert_eq!(format!("{:.1}", years("twitter", "high:12")), "69.7");
    }

    #[test]
    fn windows_follow_each_other_and_hold_the_ids_of_their_time() {
        for text in ["twitter", "uid", "sonyflake", "js53", "time:20@1s,worker:1,seq:3"] {
            for form in [Scatter::Digits(1), Scatter::Digits(2), Scatter::Digits(3), Scatter::High(2)] {
                let layout = layout(text).scattered(form).expect(text);
                let mut at = layout.epoch_ms();
                let mut windows = 0;
                while let Some(window) = layout.window(at) {
                    for (tick, seq) in
                        [(layout.tick_at(at), 0), (layout.tick_at(window.until_ms - 1), layout.max_seq())]
                    {
                        let id = layout.write(layout.pack(tick as u64, 1, seq));
                        // The first tick of a window may begin with ids of the one before.
                        let below = window.lo >> layout.time_shift() == tick as u64;
                        assert!(
                            id < window.hi && (below || id >= window.lo),
                            "{text} {form}: {id} {window:?}"
                        );
                    }
                    assert!(
                        window.from_ms <= at && at < window.until_ms,
                        "{text} {form}: {window:?} at {at}"
                    );
                    at = window.until_ms;
                    windows += 1;
                }
                assert_eq!(at, layout.ends_at_ms(), "{text} {form}");
                assert!(
                    windows < 200 && (windows == 1) == (form == Scatter::High(2)),
                    "{text} {form}: {windows}"
                );
            }
            assert_eq!(layout(text).window(layout(text).epoch_ms()), None);
        }
    }

    #[test]
    fn a_proposed_layout_holds_what_was_asked_for() {
        for (years, workers, rate) in
            [(1, 1, 1), (50, 1000, 100_000), (69, 1024, 4_096_000), (8, 4_000_000, 8000), (30, 32, 10)]
        {
            for layout in Layout::propose(years, workers, rate).expect("a layout") {
                let life_ms =
                    (u128::from(layout.max_tick()) + 1) * u128::from(layout.unit_ms().unsigned_abs());
                assert!(life_ms >= MEAN_YEAR_MS * u128::from(years), "{layout}");
                assert!(layout.max_worker() + 1 >= workers, "{layout}");
                assert!(layout.ids_per_second() >= rate, "{layout}");
                assert!(layout.ends_in_seq(), "{layout}");
            }
        }
        for (years, workers, rate) in
            [(0, 1, 1), (1, 0, 1), (1, 1, 0), (u32::MAX, u64::MAX, u64::MAX), (100, 1 << 30, 1 << 20)]
        {
            assert_eq!(
                Layout::propose(years, workers, rate).expect_err("too much").code,
                Code::InvalidArgument
            );
        }
    }

    #[test]
    fn an_id_of_another_form_or_beyond_the_end_is_refused() {
        let scattered = layout("twitter").scattered(Scatter::Digits(1)).expect("room");
        for id in [0, 9 * 10_u64.pow(18), u64::MAX >> 1, u64::MAX] {
            let error = scattered.read(id).expect_err("no id of this form");
            assert_eq!(error.code, Code::InvalidArgument);
            assert!(error.message.ends_with("seq:12 with scatter=1"), "{}", error.message);
        }
        let high = layout("twitter").scattered(Scatter::High(3)).expect("room");
        assert!(high.read(u64::MAX >> 1).is_ok());
        assert!(high.read(1 << 63).is_err());
        let error = layout("twitter").scattered(Scatter::High(13)).expect_err("12 bits");
        assert!(error.message.contains("has 12 bits"), "{}", error.message);
        let error = layout("time:1@1ms,worker:50,seq:12").scattered(Scatter::Digits(1)).map(|l| l.max_tick());
        assert_eq!(error.ok(), Some(0), "the second tick exceeds 9e18");
    }

    #[test]
    fn a_worker_may_be_split_into_data_centre_and_worker() {
        for text in ["time:41@1ms,dc-worker:5+5,seq:12", "time:41@1ms,worker:5+5,seq:12"] {
            let split = layout(text);
            assert_eq!(split.describe(), "time:41@1ms,dc-worker:5+5,seq:12");
            assert_eq!(split.join_worker(3, 7).unwrap(), 3 << 5 | 7);
            assert_eq!(split.split_worker(3 << 5 | 7), Some((3, 7)));
            assert_eq!(split.join_worker(32, 0).unwrap_err().code, Code::InvalidConfig);
        }
        assert_eq!(layout("twitter").split_worker(5), None);
    }

    #[test]
    fn a_wrong_layout_is_refused_and_the_message_says_what_is_valid() {
        assert!(refusal("twiter").contains("twitter, uid, sonyflake, js53"));
        assert!(refusal("").contains("valid are"));
        assert!(refusal("worker:10,time:41@1ms,seq:12").contains("time must stand first"));
        assert!(refusal("worker:10,seq:12").contains("must stand first"));
        assert!(refusal("time:41@1ms,time:41@1ms,seq:12").contains("time must stand first"));
        assert!(refusal("time:41@1ms,seq:12").contains("worker is missing"));
        assert!(refusal("time:41@1ms,worker:10").contains("seq is missing"));
        assert!(refusal("time:41@1ms,worker:10,worker:1,seq:2").contains("worker is given twice"));
        assert!(refusal("time:41@1ms,worker:10,seq:12,seq:1").contains("seq is given twice"));
        assert!(refusal("time:41@1ms,worker:11,seq:12").contains("64 bits, at most 63"));
        assert!(refusal("time:41,worker:10,seq:12").contains("41@1ms"));
        assert!(refusal("time:41@0ms,worker:10,seq:12").contains("not a unit"));
        assert!(refusal("time:41@500us,worker:10,seq:12").contains("not a unit"));
        assert!(refusal("time:41@1h,worker:10,seq:12").contains("not a unit"));
        assert!(refusal("time:41@99999999999999999999s,worker:10,seq:12").contains("not a unit"));
        assert!(refusal("time:0@1ms,worker:10,seq:12").contains("1 to 63"));
        assert!(refusal("time:41@1ms,worker:10,seq:0").contains("1 to 63"));
        assert!(refusal("time:41@1ms,worker:+1,seq:1").contains("not a width"));
        assert!(refusal("time:41@1ms,dc-worker:10,seq:12").contains("5+5"));
        assert!(refusal("time:41@1ms,colour:10,seq:12").contains("\"colour\" is not known"));
        assert!(refusal("time:41@1ms,worker:4000000000,seq:4000000000").contains("not a width"));
    }

    #[test]
    fn an_epoch_is_a_date_or_a_timestamp_and_2025_by_default() {
        let at = |epoch: &str| Layout::parse("twitter", epoch).map(|l| l.epoch_ms());
        assert_eq!(at("").unwrap(), 1_735_689_600_000);
        assert_eq!(at("2025-01-01"), at(""));
        assert_eq!(at("2025-01-01T01:00:00+01:00"), at(""));
        assert_eq!(at("2010-11-04T01:42:54.657Z").unwrap(), 1_288_834_974_657);
        for wrong in ["yesterday", "2025-13-01", "2025-1-1", "2025-01-01T00:00:00", "1735689600000"] {
            let error = at(wrong).unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig);
            assert!(error.message.contains("2025-01-01T00:00:00Z"), "{}", error.message);
        }
    }

    #[test]
    fn a_layout_whose_time_is_over_is_refused_by_name_and_date() {
        let uid = Layout::parse("uid", "2016-05-20").unwrap();
        let error = uid.check_life(NOW).unwrap_err();
        assert_eq!(error.code, Code::LayoutEnded);
        assert!(error.message.contains("time:28@1s,worker:22,seq:13"), "{}", error.message);
        assert!(error.message.contains("2024-11-20"), "{}", error.message);
        assert_eq!(uid.check_life(uid.ends_at_ms()).unwrap_err().code, Code::LayoutEnded);
        assert!(uid.check_life(uid.ends_at_ms() - 1).unwrap().is_some());
    }

    #[test]
    fn a_layout_that_ends_within_a_year_warns_with_the_date() {
        let uid = layout("uid");
        assert_eq!(uid.check_life(NOW).unwrap(), None);
        let warning = uid.check_life(uid.ends_at_ms() - YEAR_MS).unwrap().unwrap();
        assert!(warning.contains("2033-07-04"), "{warning}");
        assert_eq!(uid.check_life(uid.ends_at_ms() - YEAR_MS - 1).unwrap(), None);
    }

    #[test]
    fn an_epoch_in_the_future_is_refused() {
        let error = Layout::parse("twitter", "2030-01-01").unwrap().check_life(NOW).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(
            error.message.contains("2030-01-01") && error.message.contains("2026-11-21"),
            "{}",
            error.message
        );
    }

    #[test]
    fn time_is_printed_with_milliseconds() {
        assert_eq!(rfc3339(NOW), "2026-11-21T08:30:00.123Z");
        assert_eq!(rfc3339(1_735_689_600_000), "2025-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(i64::MAX), "9223372036854775807 ms since 1970");
        assert_eq!(layout("time:44@1s,worker:6,seq:13").end_date(), "after 9999-12-31");
    }

    #[test]
    fn ids_of_another_layout_are_refused() {
        assert_eq!(layout("js53").read(1 << 53).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(layout("js53").read(0).unwrap_err().code, Code::InvalidArgument);
        assert_eq!(
            layout("twitter").read(1 << 22 | 5 << 12 | 0x11).unwrap(),
            Fields { tick: 1, worker: 5, seq: 17 }
        );
    }

    /// Any layout that can be written.
    fn any_layout() -> impl Strategy<Value = Layout> {
        (1u32..=62)
            .prop_flat_map(|time| (Just(time), 1u32..=63 - time))
            .prop_flat_map(|(time, seq)| (Just(time), Just(seq), 0u32..=63 - time - seq))
            .prop_flat_map(|(time, seq, worker)| {
                (Just((time, seq, worker)), any::<bool>(), 1i64..=86_400_000, any::<u8>())
            })
            .prop_map(|((time, seq, worker), last, unit, year)| {
                let (a, b) = (format!("worker:{worker}"), format!("seq:{seq}"));
                let tail = if last { format!("{a},{b}") } else { format!("{b},{a}") };
                let epoch = format!("{}-03-01", 1900 + u32::from(year));
                Layout::parse(&format!("time:{time}@{unit}ms,{tail}"), &epoch).unwrap()
            })
    }

    proptest! {
        #[test]
        fn packing_and_unpacking_are_inverse_in_every_layout(layout in any_layout(), a: u64, b: u64, c: u64) {
            let parts = Fields { tick: a & layout.max_tick(), worker: b & layout.max_worker(), seq: c & layout.max_seq() };
            let id = layout.pack(parts.tick, parts.worker, parts.seq);
            prop_assert!(id <= layout.max_id() && i64::try_from(id).is_ok());
            prop_assert_eq!(layout.unpack(id), parts);
            prop_assert_eq!(Layout::parse(&layout.describe(), &rfc3339(layout.epoch_ms())).unwrap(), layout);
        }

        #[test]
        fn a_scattered_id_is_read_as_it_was_packed(layout in any_layout(), form in 0..20_u32, a: u64, b: u64, c: u64) {
            let form = if form < 4 { Scatter::Digits(form.max(1)) } else { Scatter::High((form - 3).min(layout.seq_bits())) };
            let Ok(layout) = layout.scattered(form) else { return Ok(()) };
            let fields = Fields { tick: a % (layout.max_tick() + 1), worker: b & layout.max_worker(), seq: c & layout.max_seq() };
            let plain = layout.pack(fields.tick, fields.worker, fields.seq);
            prop_assume!(plain > 0);
            let id = layout.write(plain);
            prop_assert!(id < 1 << 63);
            prop_assert_eq!(layout.read(id).ok(), Some(fields));
        }

        #[test]
        fn ids_rise_with_time(layout in any_layout(), a: u64, b: u64, c: u64, d: u64) {
            let tick = a & layout.max_tick();
            prop_assume!(tick < layout.max_tick());
            prop_assert!(layout.pack(tick, b, c) < layout.pack(tick + 1, d, 0));
        }

        #[test]
        fn ticks_and_wall_time_agree(layout in any_layout(), wall: i64, tick: u64) {
            let at = layout.tick_at(wall);
            if (0..=layout.max_tick() as i64).contains(&at) {
                prop_assert!(layout.wall_ms_of(at as u64) <= wall);
                prop_assert!(wall - layout.wall_ms_of(at as u64) < layout.unit_ms());
            }
            let tick = tick & layout.max_tick();
            if layout.wall_ms_of(tick) < i64::MAX / 2 {
                prop_assert_eq!(layout.tick_at(layout.wall_ms_of(tick)), tick as i64);
            }
        }

        #[test]
        fn no_input_makes_the_parser_panic(layout in "\\PC{0,80}", epoch in "\\PC{0,40}") {
            let _ = Layout::parse(&layout, &epoch);
            let _ = Layout::parse("twitter", &epoch);
        }

        #[test]
        fn near_misses_never_panic_either(
            layout in "(time|seq|worker|dc-worker)?:?[0-9]{0,22}(@[0-9]{0,22}(us|ms|s|h)?)?(,(time|seq|worker|dc-worker):[0-9+]{0,12}){0,4}",
            epoch in "[-+]?[0-9]{1,6}-[0-9]{1,2}-[0-9]{1,2}(T[0-9:.]{0,12}Z?)?",
            wall: i64,
        ) {
            if let Ok(layout) = Layout::parse(&layout, &epoch) {
                let _ = (layout.check_life(wall), layout.end_date(), layout.ids_per_second(), layout.tick_at(wall));
            }
        }
    }
}
