//! The figures of a mill, and its metrics as Prometheus text.
//!
//! Ids are not counted one by one: the counter they come from is the count.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::bank::BankSource;
use crate::callers::Callers;
use crate::callers::counters::Counters;
use crate::error::Code;
use crate::gene::GENES;
use crate::keeper::KeptSource;
use crate::keeper::routers::Routers;
use crate::monitoring::mill_counters::{Latency, MillCounters, get};
use crate::router::LiveTable;
use crate::segment::SegmentSource;
use crate::snowflake::SnowflakeSource;
use crate::time::Clock;

/// One source's figures, as `stats` and the metrics show them.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The source: `segment:orders`.
    pub source: String,
    /// Its spec, options included, which distinguishes two sources of one name.
    pub spec: String,
    /// Ids handed out. Numbers that a thread, a handle or a language's own cursor leased count from the lease on, even if they are
    /// never taken.
    pub issued: u64,
    /// Numbers reserved from the store.
    pub reserved: u64,
    /// Numbers in memory.
    pub left: u64,
    /// Numbers that were reserved and will not be handed out.
    pub lost: u64,
    /// Reservations that came back.
    pub refills: u64,
    /// Calls that had to wait.
    pub waits: u64,
    /// How many numbers the last reservation was.
    pub step: u64,
    /// When it came: milliseconds since 1970; `None` before the first.
    pub last_refill_ms: Option<i64>,
    /// Ids a second, as the keeper measured them last.
    pub rate: f64,
    /// How many seconds the numbers in memory last at that rate; `None` at a rate of 0.
    pub runway_seconds: Option<f64>,
    /// How far a snowflake's time leads the wall clock, in milliseconds.
    pub lead_ms: Option<i64>,
    /// When a snowflake's layout ends: milliseconds since 1970.
    pub ends_at_ms: Option<i64>,
    /// How long ago the lease of a snowflake's worker was renewed, in milliseconds; `None` without a lease.
    pub lease_age_ms: Option<u64>,
    /// Of business ids: how many numbers were reserved for each range of genes that has any.
    pub(crate) heat: Vec<((u32, u32), u64)>,
    /// The error that callers get now.
    pub refusal: Option<String>,
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
        Stats {
            issued,
            left,
            rate,
            runway_seconds: (rate > 0.0).then(|| left as f64 / rate),
            ..Stats::of_callers(callers)
        }
    }

    pub(crate) fn of_snowflakes(source: &SnowflakeSource) -> Stats {
        let generator = &source.generator;
        let issued = generator.issued();
        Stats {
            issued,
            // Before its first id a generator has no time of its own.
            lead_ms: (issued > 0).then(|| generator.lead_ms()),
            ends_at_ms: Some(generator.layout().ends_at_ms()),
            lease_age_ms: source.lease_age_ms(),
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
            ..Stats::default()
        }
    }
}

/// Into how many ranges of genes the heat of a bank is divided in the metrics.
const HEAT_RANGES: u32 = 16;

fn heat(source: &BankSource) -> Vec<((u32, u32), u64)> {
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
    let bounds = (0..ranges).map(|at| (at * each, (at + 1) * each - 1));
    bounds.zip(heat).filter(|(_, reserved)| *reserved > 0).collect()
}

fn quoted(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// One series; nothing at all where it has no values.
fn series(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    rows: impl IntoIterator<Item = (String, String)>,
) {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return;
    }
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in rows {
        let _ = writeln!(out, "{name}{labels} {value}");
    }
}

fn seconds(ms: Option<i64>) -> Option<String> {
    ms.map(|ms| format!("{:.3}", ms as f64 / 1000.0))
}

/// A series that each source has: name, kind, help, value.
type OfSource = (&'static str, &'static str, &'static str, fn(&Stats) -> Option<String>);

const OF_SOURCE: [OfSource; 12] = [
    (
        "keymill_issued_total",
        "counter",
        "Ids handed out; those leased by threads, handles and cursors (in Java, Node and Python every source has one) count from the lease on.",
        |s| Some(s.issued.to_string()),
    ),
    ("keymill_reserved_total", "counter", "Numbers reserved from the store.", |s| {
        Some(s.reserved.to_string())
    }),
    ("keymill_lost_total", "counter", "Numbers that were reserved and will not be handed out.", |s| {
        Some(s.lost.to_string())
    }),
    ("keymill_left", "gauge", "Numbers in memory.", |s| Some(s.left.to_string())),
    ("keymill_refills_total", "counter", "Reservations that came back.", |s| Some(s.refills.to_string())),
    ("keymill_waits_total", "counter", "Calls that had to wait.", |s| Some(s.waits.to_string())),
    ("keymill_step", "gauge", "Numbers of the last reservation.", |s| {
        (s.step > 0).then(|| s.step.to_string())
    }),
    ("keymill_last_refill_timestamp_seconds", "gauge", "When the last reservation came back.", |s| {
        seconds(s.last_refill_ms)
    }),
    ("keymill_runway_seconds", "gauge", "How long the numbers in memory last at the present rate.", |s| {
        s.runway_seconds.map(|r| format!("{r:.3}"))
    }),
    ("keymill_clock_lead_seconds", "gauge", "How far a snowflake's time leads the wall clock.", |s| {
        seconds(s.lead_ms)
    }),
    (
        "keymill_lease_age_seconds",
        "gauge",
        "How long ago the lease of a snowflake's worker was renewed.",
        |s| seconds(s.lease_age_ms.map(|ms| ms as i64)),
    ),
    ("keymill_layout_end_timestamp_seconds", "gauge", "When a snowflake's layout ends.", |s| {
        seconds(s.ends_at_ms)
    }),
];

/// The Prometheus text of a mill; the same bytes for the same figures.
pub(crate) fn render(counters: &MillCounters, stats: &[Stats], routers: &Routers) -> String {
    let mut out = String::new();
    let labels = labels(stats);
    for (name, kind, help, value) in OF_SOURCE {
        let rows = labels.iter().zip(stats).filter_map(|(label, s)| Some((label.clone(), value(s)?)));
        series(&mut out, name, kind, help, rows);
    }
    router_series(&mut out, routers);
    heat_series(&mut out, &labels, stats);
    let latency = counters.latency();
    mill_series(&mut out, counters, latency.failed);
    latency_series(&mut out, &latency);
    error_series(&mut out, counters);
    out
}

/// The label of each source. Two sources of one name, such as a row that is moved from one scheme to another, have their specs as
/// labels: a label that occurs twice would make the whole text invalid.
fn labels(stats: &[Stats]) -> Vec<String> {
    let mut names: HashMap<&str, usize> = HashMap::new();
    for s in stats {
        *names.entry(&s.source).or_default() += 1;
    }
    stats
        .iter()
        .map(|s| if names[s.source.as_str()] == 1 { &s.source } else { &s.spec })
        .map(|label| format!("{{source=\"{}\"}}", quoted(label)))
        .collect()
}

fn router_series(out: &mut String, routers: &Routers) {
    let labelled = |table: &LiveTable| format!("{{router=\"{}\"}}", quoted(table.router()));
    let now_ms = Clock::System.boot_ms();
    series(
        out,
        "keymill_router_version",
        "gauge",
        "The version of a router's table.",
        routers.iter().map(|table| (labelled(table), table.version().to_string())),
    );
    series(
        out,
        "keymill_router_age_seconds",
        "gauge",
        "How long ago the store said that a router's table is the present one.",
        routers
            .iter()
            .filter_map(|table| Some((labelled(table), seconds(table.age_ms(now_ms).map(|ms| ms as i64))?))),
    );
}

fn heat_series(out: &mut String, labels: &[String], stats: &[Stats]) {
    let heat = labels.iter().zip(stats).flat_map(|(label, s)| {
        s.heat.iter().map(move |((first, last), reserved)| {
            (format!("{},genes=\"{first}-{last}\"}}", label.trim_end_matches('}')), reserved.to_string())
        })
    });
    series(
        out,
        "keymill_heat_reserved_total",
        "counter",
        "Numbers of business ids reserved from the store, by range of genes.",
        heat,
    );
}

/// The mill's own counters; `failed`: how many reservations failed.
fn mill_series(out: &mut String, counters: &MillCounters, failed: u64) {
    let mut one = |name, kind, help, value: u64| {
        series(out, name, kind, help, [(String::new(), value.to_string())]);
    };
    one(
        "keymill_given_back_total",
        "counter",
        "Unused numbers returned at close.",
        get(&counters.given_back),
    );
    one("keymill_refills_failed_total", "counter", "Reservations that failed.", failed);
    one(
        "keymill_store_trips_total",
        "counter",
        "Round trips to the store, each for one reservation or for several that were due together.",
        get(&counters.round_trips),
    );
    one(
        "keymill_lease_renewals_total",
        "counter",
        "Renewals of leased workers, each for all of the mill.",
        get(&counters.renewals),
    );
    one(
        "keymill_lease_renewals_failed_total",
        "counter",
        "Renewals of leased workers that failed.",
        get(&counters.renewals_failed),
    );
    if let Some(count) = get(&counters.warnings).checked_sub(1) {
        one(
            "keymill_store_warnings",
            "gauge",
            "Warnings about the settings of the store, as `keymill status` lists them; no value before the first answer.",
            count,
        );
    }
    one(
        "keymill_driver_panics_total",
        "counter",
        "Panics of the store's driver: each cost a connection and the range that was being reserved.",
        get(&counters.driver_panics),
    );
    one(
        "keymill_keeper_restarts_total",
        "counter",
        "Times the keeper went on after a defect in keymill.",
        get(&counters.keeper_restarts),
    );
    if let Some(skew) = seconds(counters.skew_ms()) {
        series(
            out,
            "keymill_clock_skew_seconds",
            "gauge",
            "How far the wall clock is ahead of the store's, as the last renewal of a leased worker or the mark of a fixed one saw it.",
            [(String::new(), skew)],
        );
    }
}

fn latency_series(out: &mut String, latency: &Latency) {
    let buckets = latency.buckets.iter().map(|(bound, count)| {
        let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        (format!("_bucket{{le=\"{bound}\"}}"), count.to_string())
    });
    let sums = [
        ("_sum".to_owned(), format!("{:.6}", latency.sum_seconds)),
        ("_count".to_owned(), latency.count.to_string()),
    ];
    series(out, "keymill_refill_seconds", "histogram", "How long reservations took.", buckets.chain(sums));
}

fn error_series(out: &mut String, counters: &MillCounters) {
    let errors = Code::ALL.iter().zip(&counters.errors);
    let errors = errors.map(|(code, n)| (format!("{{code=\"{}\"}}", code.name()), get(n).to_string()));
    series(out, "keymill_errors_total", "counter", "Errors given to callers, by code.", errors);
}
