//! The metrics of a mill as Prometheus text.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::engine::stats::{FigureKind, Stats, seconds};
use crate::error::Code;
use crate::keeper::routers::Routers;
use crate::monitoring::mill_counters::{Latency, MillCounters, get};
use crate::router::LiveTable;
use crate::time::Clock;

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

/// The Prometheus text of a mill; the same bytes for the same figures.
pub(crate) fn render(counters: &MillCounters, stats: &[Stats], routers: &Routers) -> String {
    let mut out = String::new();
    let labels = labels(stats);
    source_series(&mut out, &labels, stats);
    router_series(&mut out, routers);
    heat_series(&mut out, &labels, stats);
    let latency = counters.latency();
    mill_series(&mut out, counters, latency.failed);
    latency_series(&mut out, &latency);
    error_series(&mut out, counters);
    out
}

/// The figures of the sources that are metrics.
fn source_series(out: &mut String, labels: &[String], stats: &[Stats]) {
    for figure in Stats::default().fields() {
        let Some(metric) = figure.metric else { continue };
        let kind = if figure.kind == FigureKind::Counter { "counter" } else { "gauge" };
        let rows = labels
            .iter()
            .zip(stats)
            .filter_map(|(label, stats)| Some((label.clone(), stats.field(figure.name)?.metric_value()?)));
        series(out, metric, kind, figure.help, rows);
    }
}

/// The label `{source="…"}` of each source: its name, unless another source has the same name or a spec that reads like it; then its
/// own spec. A label that occurs twice would make the whole text invalid. Two sources of one name are, say, a row that is moved to
/// another scheme.
#[must_use]
pub fn labels<'a>(stats: impl IntoIterator<Item = &'a Stats>) -> Vec<String> {
    let stats: Vec<&Stats> = stats.into_iter().collect();
    let mut sources: HashMap<&str, usize> = HashMap::new();
    for s in &stats {
        *sources.entry(&s.source).or_default() += 1;
        if s.spec != s.source {
            *sources.entry(&s.spec).or_default() += 1;
        }
    }
    stats
        .iter()
        .map(|s| if sources[s.source.as_str()] == 1 { &s.source } else { &s.spec })
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
        "How long ago the store confirmed that a router's table is current.",
        routers.iter().filter_map(|table| Some((labelled(table), seconds(table.age_ms(now_ms)? as i64)))),
    );
}

fn heat_series(out: &mut String, labels: &[String], stats: &[Stats]) {
    let heat = labels.iter().zip(stats).flat_map(|(label, s)| {
        s.heat.iter().map(move |range| {
            let genes = format!("{}-{}", range.first, range.last);
            (format!("{},genes=\"{genes}\"}}", label.trim_end_matches('}')), range.reserved.to_string())
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
    if let Some(skew) = counters.skew_ms().map(seconds) {
        series(
            out,
            "keymill_clock_skew_seconds",
            "gauge",
            "How far the wall clock was ahead of the store's clock at the last renewal of a leased worker or mark of a fixed worker.",
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
