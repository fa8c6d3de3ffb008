//! Which bits of a snowflake mean what: time, worker, sequence, and the day on which the time field is over.
//!
//! A layout is data, written `time:41@1ms,worker:10,seq:12`, most significant field first. The presets are Twitter's
//! (<https://github.com/twitter-archive/snowflake>), uid-generator's (<https://github.com/baidu/uid-generator>),
//! Sonyflake's (<https://github.com/sony/sonyflake>), and `js53`, which stays exact in a JavaScript number.
//!
//! Everything here is arithmetic on values that `parse` has checked once, so nothing can overflow or wrap later.

pub mod scatter;

use std::fmt;

use jiff::{Timestamp, civil, tz::TimeZone};

use crate::error::{Code, Error, Result};

use scatter::{Scatter, lower_bits, move_digits, raise_bits, restore_digits, unit_of};

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

/// Numbers of so many bits are exact in JavaScript.
const JS_BITS: u32 = 53;

/// The longest tick, a day: longer ones are typing errors.
const MAX_UNIT_MS: i64 = 86_400_000;

const YEAR_MS: i64 = 365 * 86_400_000;

/// A year of the calendar, on average.
const MEAN_YEAR_MS: u128 = 31_556_952_000;

const FORM: &str = "valid are twitter, uid, sonyflake, js53 or time:BITS@UNIT,worker:BITS,seq:BITS with UNIT like 1ms, 10ms or 1s and at most 63 bits in all";

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
        let Widths { time, worker, seq, seq_last } = Widths::read(wanted, text)?;
        let missing = |name: &str| {
            let first = if name == "time" { " and must stand first, because ids rise with it" } else { "" };
            Error::config(format!("layout {}: field {name} is missing{first}; {FORM}", quoted(wanted)))
        };
        let TimeField { bits: time_bits, unit_ms } = time.ok_or_else(|| missing("time"))?;
        let WorkerField { center_bits, bits: worker_bits } = worker.ok_or_else(|| missing("worker"))?;
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
    /// 1 s, as far as they fit 63 bits. Bits that are left go to the sequence. The last one has 53 bits, if they are enough: its ids are
    /// exact in JavaScript.
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
        let fits = [("1ms", 1), ("10ms", 10), ("1s", 1000)].into_iter().map(|(unit, unit_ms)| {
            let time = bits(u128::from(years) * MEAN_YEAR_MS.div_ceil(unit_ms));
            let seq = bits((u128::from(per_second) * unit_ms).div_ceil(1000));
            let worker = bits(u128::from(workers));
            (time, unit, worker, seq)
        });
        let fits: Vec<_> = fits.collect();
        let filled = |bits: u32| {
            fits.iter().filter_map(move |(time, unit, worker, seq)| {
                let rest = bits.checked_sub(time + worker + seq)?;
                Layout::parse(&format!("time:{time}@{unit},worker:{worker},seq:{}", seq + rest), "").ok()
            })
        };
        let layouts: Vec<_> = filled(MAX_BITS).chain(filled(JS_BITS).take(1)).collect();
        if layouts.is_empty() {
            return Err(Error::argument(format!(
                "{years} years, {workers} workers and {per_second} ids per second and worker need more than {MAX_BITS} bits, even in ticks of a second; ask for fewer of one of them"
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
                "layout {} with epoch {} ends on {}: move to a wider time field before that day, under a new source name and in a new column: its ids may equal those of this one",
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
                "layout {} with epoch {} ended on {}: nothing wraps, so no id can follow; use a new source with a later epoch or a wider time field, and a new column: its ids may equal those of this one",
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

    /// Every text of a layout with the same bits, in the form of [`Layout::describe`]: the canonical one, whose worker is one number, and
    /// those that split the worker.
    pub(crate) fn spellings(&self) -> Vec<String> {
        let orders = if self.worker_bits == 0 { vec![true, false] } else { vec![self.seq_last] };
        let splits = || 0..self.worker_bits.max(1);
        let spelled = |seq_last, center_bits| Layout { center_bits, seq_last, ..*self }.describe();
        orders.into_iter().flat_map(|last| splits().map(move |center| spelled(last, center))).collect()
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

/// The fields of a layout as far as they are written.
struct Widths {
    time: Option<TimeField>,
    worker: Option<WorkerField>,
    seq: Option<u32>,
    /// The sequence is the last field.
    seq_last: bool,
}

/// `time:41@1ms`.
#[derive(Clone, Copy)]
struct TimeField {
    bits: u32,
    /// Milliseconds of a tick.
    unit_ms: i64,
}

/// `worker:10`, or `dc-worker:5+5`.
#[derive(Clone, Copy)]
struct WorkerField {
    /// Bits of the data centre; 0: there is none.
    center_bits: u32,
    /// All bits, including the data centre's.
    bits: u32,
}

impl Widths {
    /// Reads `text`, which stands for the layout that is `wanted`.
    fn read(wanted: &str, text: &str) -> Result<Widths> {
        let mut widths = Widths { time: None, worker: None, seq: None, seq_last: false };
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
                "time" => widths.time.replace(time_field(value)?).is_some(),
                "worker" | "dc-worker" => widths.worker.replace(worker_field(name, value)?).is_some(),
                "seq" => widths.seq.replace(bits("seq", value, 1)?).is_some(),
                _ => {
                    return Err(Error::config(format!("layout field {} is not known; {FORM}", quoted(name))));
                }
            };
            if twice {
                return Err(Error::config(format!("layout {}: field {name} is given twice", quoted(wanted))));
            }
            widths.seq_last = name == "seq";
        }
        Ok(widths)
    }
}

fn time_field(value: &str) -> Result<TimeField> {
    let (width, unit) = value.split_once('@').ok_or_else(|| {
        Error::config(format!("layout field time: {} has no unit; write it like 41@1ms", quoted(value)))
    })?;
    Ok(TimeField { bits: bits("time", width, 1)?, unit_ms: unit_ms(unit)? })
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

fn worker_field(name: &str, value: &str) -> Result<WorkerField> {
    match value.split_once('+') {
        Some((center, worker)) => {
            let (center, worker) = (bits(name, center, 1)?, bits(name, worker, 1)?);
            Ok(WorkerField { center_bits: center, bits: center + worker })
        }
        None if name == "dc-worker" => Err(Error::config(format!(
            "layout field dc-worker: {} is not split; write it like 5+5",
            quoted(value)
        ))),
        None => Ok(WorkerField { center_bits: 0, bits: bits(name, value, 0)? }),
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
    parse_time(text).ok_or_else(wrong)
}

/// Whether a text begins with the widths of a layout, as a pool records them. Only their own spellings are: another one is another text to
/// every process that compares it.
pub(crate) fn is_recorded(text: &str) -> bool {
    let Some((widths, _)) = text.split_once(' ') else { return false };
    Layout::parse(widths, "").is_ok_and(|layout| layout.spellings().iter().any(|one| one == widths))
}

/// Milliseconds since 1970 from a date, or a time with its offset.
pub(crate) fn parse_time(text: &str) -> Option<i64> {
    // A bare date is exactly ten characters; jiff would read more forms than the messages promise.
    let time = if text.len() == 10 {
        text.parse::<civil::Date>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp()
    } else {
        text.parse::<Timestamp>().ok()?
    };
    Some(time.as_millisecond())
}

#[cfg(all(test, not(loom)))]
mod tests;
