//! The figures of a source: one list; metrics and every language's figures are translations of it.
//!
//! Ids are not counted one by one: the counter they come from is the count.

use std::fmt;

use crate::bank::BankSource;
use crate::callers::Callers;
use crate::callers::counters::Counters;
use crate::gene::GENES;
use crate::keeper::KeptSource;
use crate::segment::SegmentSource;
use crate::snowflake::SnowflakeSource;

/// A figure of a source: an entry of [`Stats::fields`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Figure<'a> {
    /// The field of [`Stats`], such as `runway_seconds`. Other languages use the same words.
    pub name: &'static str,
    /// Whether it counts, measures or names.
    pub kind: FigureKind,
    /// What its value is counted in.
    pub unit: FigureUnit,
    /// Its metric in [`Mill::metrics`](crate::Mill::metrics), in seconds where it is a time or a duration; `None` if it is no metric.
    pub metric: Option<&'static str>,
    /// What it says, in a sentence.
    pub help: &'static str,
    /// `None` where it is not known, or its kind of source has none.
    pub value: Option<FigureValue<'a>>,
}

/// Whether a figure counts, measures or names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FigureKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// A text.
    Text,
}

/// What a figure is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FigureUnit {
    /// Nothing: it is a text.
    None,
    /// Ids or numbers.
    Numbers,
    /// Reservations or calls.
    Events,
    /// Ids a second.
    PerSecond,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Milliseconds since 1970.
    UnixMilliseconds,
}

/// The value of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FigureValue<'a> {
    /// How many.
    Count(u64),
    /// Milliseconds: a duration, or a time since 1970.
    Milliseconds(i64),
    /// A measure.
    Real(f64),
    /// A text.
    Text(&'a str),
}

impl fmt::Display for FigureValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FigureValue::Count(count) => count.fmt(f),
            FigureValue::Milliseconds(ms) => ms.fmt(f),
            FigureValue::Real(value) => value.fmt(f),
            FigureValue::Text(text) => text.fmt(f),
        }
    }
}

impl Figure<'_> {
    /// The value as the metric shows it; `None` where the metric has no value.
    #[must_use]
    pub fn metric_value(&self) -> Option<String> {
        match self.value? {
            // No reservation came yet, or none ever comes: a snowflake has no step.
            FigureValue::Count(0) if self.name == "step" => None,
            FigureValue::Milliseconds(ms) => Some(seconds(ms)),
            FigureValue::Real(value) => Some(format!("{value:.3}")),
            value => Some(value.to_string()),
        }
    }
}

/// Milliseconds as seconds.
pub(crate) fn seconds(ms: i64) -> String {
    format!("{:.3}", ms as f64 / 1000.0)
}

/// The types of figures.
trait AsFigure {
    fn value(&self) -> Option<FigureValue<'_>>;
}

impl AsFigure for u64 {
    fn value(&self) -> Option<FigureValue<'_>> {
        Some(FigureValue::Count(*self))
    }
}

impl AsFigure for f64 {
    fn value(&self) -> Option<FigureValue<'_>> {
        Some(FigureValue::Real(*self))
    }
}

impl AsFigure for i64 {
    fn value(&self) -> Option<FigureValue<'_>> {
        Some(FigureValue::Milliseconds(*self))
    }
}

impl AsFigure for String {
    fn value(&self) -> Option<FigureValue<'_>> {
        Some(FigureValue::Text(self))
    }
}

impl<T: AsFigure> AsFigure for Option<T> {
    fn value(&self) -> Option<FigureValue<'_>> {
        self.as_ref()?.value()
    }
}

/// Declares [`Stats`] and its list. A row is: name, type, kind, unit, metric, help; the lines above it are only in the documentation of
/// Rust.
macro_rules! figures {
    ($($(#[$more:meta])* $name:ident: $type:ty, $kind:ident, $unit:ident, $metric:expr, $help:literal;)*) => {
        /// One source's figures, as `stats` and the metrics show them.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct Stats {
            $(#[doc = $help] $(#[$more])* pub $name: $type,)*
            /// Of business ids: how many numbers were reserved for each range of genes that has any.
            pub(crate) heat: Vec<ReservedInRange>,
        }

        impl Stats {
            /// The figures in their order, each with its name, kind, unit and meaning: for programs that show all of them.
            ///
            /// ```
            /// let orders = keymill::Mill::open("memory:")?.source("segment:orders")?;
            /// orders.take(7)?;
            /// let stats = orders.stats()?;
            /// let first = stats.fields().find(|figure| figure.unit == keymill::FigureUnit::Numbers);
            /// assert_eq!(first.and_then(|figure| figure.value), Some(keymill::FigureValue::Count(7)));
            /// # Ok::<(), keymill::Error>(())
            /// ```
            pub fn fields(&self) -> impl Iterator<Item = Figure<'_>> {
                [$(Figure {
                    name: stringify!($name),
                    kind: FigureKind::$kind,
                    unit: FigureUnit::$unit,
                    metric: $metric,
                    help: $help,
                    value: self.$name.value(),
                }),*].into_iter()
            }

            /// The figure of a name.
            #[must_use]
            pub fn field(&self, name: &str) -> Option<Figure<'_>> {
                self.fields().find(|figure| figure.name == name)
            }
        }
    };
}

figures! {
    source: String, Text, None, None, "The source: `segment:orders`.";
    spec: String, Text, None, None, "Its spec, options included, which distinguishes two sources of one name.";
    /// Numbers that are never taken from a lease count too.
    issued: u64, Counter, Numbers, Some("keymill_issued_total"),
        "Ids handed out. In Java, Node and Python, and in threads' blocks, handles and cursors, all ids of a lease count when it is taken.";
    reserved: u64, Counter, Numbers, Some("keymill_reserved_total"), "Numbers reserved from the store.";
    left: u64, Gauge, Numbers, Some("keymill_left"), "Numbers in memory.";
    lost: u64, Counter, Numbers, Some("keymill_lost_total"), "Numbers that were reserved and will not be handed out.";
    refills: u64, Counter, Events, Some("keymill_refills_total"), "Reservations that came back.";
    waits: u64, Counter, Events, Some("keymill_waits_total"), "Calls that had to wait.";
    step: u64, Gauge, Numbers, Some("keymill_step"), "Numbers of the last reservation.";
    /// Milliseconds since 1970; `None` before the first.
    last_refill_ms: Option<i64>, Gauge, UnixMilliseconds, Some("keymill_last_refill_timestamp_seconds"),
        "When the last reservation came back.";
    rate: f64, Gauge, PerSecond, None, "Ids a second, as the keeper measured them last.";
    /// `None` at a rate of 0, unless callers get an error.
    runway_seconds: Option<f64>, Gauge, Seconds, Some("keymill_runway_seconds"),
        "How long the numbers in memory last at the present rate; 0 where none are left and callers get an error.";
    /// In milliseconds.
    lead_ms: Option<i64>, Gauge, Milliseconds, Some("keymill_clock_lead_seconds"),
        "How far a snowflake's time leads the wall clock.";
    /// Milliseconds since 1970.
    ends_at_ms: Option<i64>, Gauge, UnixMilliseconds, Some("keymill_layout_end_timestamp_seconds"),
        "When a snowflake's layout ends.";
    /// In milliseconds; `None` without a lease.
    lease_age_ms: Option<i64>, Gauge, Milliseconds, Some("keymill_lease_age_seconds"),
        "How long ago the lease of a snowflake's worker was renewed.";
    refusal: Option<String>, Text, None, None, "The error that callers get now.";
    zone: Option<String>, Text, None, None, "The time zone of a serial's dates; with `zone=local` it is the program's zone.";
}

impl Stats {
    /// The figures of a source.
    pub(crate) fn of(source: &KeptSource) -> Stats {
        match source {
            KeptSource::Segment(source) => Stats::of_segments(source),
            KeptSource::Snowflake(source) => Stats::of_snowflakes(source),
            KeptSource::Bank(source) => Stats::of_bank(source),
        }
    }

    pub(crate) fn of_segments(source: &SegmentSource) -> Stats {
        Stats::of_numbers(&source.callers, source.issued_and_left())
    }

    pub(crate) fn of_bank(source: &BankSource) -> Stats {
        Stats { heat: heat(source), ..Stats::of_numbers(&source.callers, source.issued_and_left()) }
    }

    fn of_numbers(callers: &Callers, (issued, left): (u64, u64)) -> Stats {
        let rate = Counters::get(&callers.counters.rate_per_1000s) as f64 / 1000.0;
        let stats = Stats::of_callers(callers);
        // In an outage nothing is taken, so the rate falls to 0 while callers get errors.
        let none_left = left == 0 && stats.refusal.is_some();
        let runway_seconds = if none_left { Some(0.0) } else { (rate > 0.0).then(|| left as f64 / rate) };
        Stats { issued, left, rate, runway_seconds, ..stats }
    }

    pub(crate) fn of_snowflakes(source: &SnowflakeSource) -> Stats {
        let generator = &source.generator;
        let issued = generator.issued();
        Stats {
            issued,
            // Before its first id a generator has no time of its own.
            lead_ms: (issued > 0).then(|| generator.lead_ms()),
            ends_at_ms: Some(generator.layout().ends_at_ms()),
            lease_age_ms: source.lease_age_ms().map(|ms| ms as i64),
            ..Stats::of_callers(&source.callers)
        }
    }

    fn of_callers(callers: &Callers) -> Stats {
        let counters = &callers.counters;
        Stats {
            source: callers.spec.label.clone(),
            spec: callers.spec.text.clone(),
            reserved: Counters::get(&counters.reserved),
            lost: Counters::get(&counters.lost),
            refills: Counters::get(&counters.refills),
            waits: Counters::get(&counters.waits),
            step: Counters::get(&counters.last_step),
            last_refill_ms: Some(Counters::get(&counters.last_refill_ms) as i64).filter(|ms| *ms > 0),
            refusal: callers.posted_error().map(|error| error.to_string()),
            zone: callers.spec.zone().map(str::to_owned),
            ..Stats::default()
        }
    }
}

/// Into how many ranges of genes the heat of a bank is divided in the metrics.
const HEAT_RANGES: u32 = 16;

/// How many numbers were reserved for a range of genes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReservedInRange {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) reserved: u64,
}

fn heat(source: &BankSource) -> Vec<ReservedInRange> {
    let bank = source.bank();
    let ranges = HEAT_RANGES.min(bank.counters);
    let each = GENES / ranges;
    let mut heat = vec![0; ranges as usize];
    for (index, reserved) in source.reserved_by_counter() {
        let at = u32::from(bank.genes(index).0) / each;
        if let Some(range) = heat.get_mut(at as usize) {
            *range += reserved;
        }
    }
    let all = (0..ranges).zip(heat).map(|(at, reserved)| ReservedInRange {
        first: at * each,
        last: (at + 1) * each - 1,
        reserved,
    });
    all.filter(|range| range.reserved > 0).collect()
}
