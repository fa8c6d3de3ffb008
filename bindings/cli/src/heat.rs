//! `heat`: which ranges of genes take most business ids.

use std::time::{Duration, Instant};

use keymill::{Heat, Result, Source};
use serde_json::json;

use crate::print;

/// How many counters are named.
const HOTTEST: usize = 10;

/// How many genes there are.
const GENES: u32 = 1 << 16;

/// A range of genes: how many numbers were reserved for it, and how many a second.
#[derive(Clone, Debug, Default)]
struct GeneRange {
    first: u32,
    end: u32,
    ids: u64,
    per_second: Option<f64>,
    left: u64,
}

/// Reads the counters, with `seconds` twice, and shows them by ranges.
pub fn show(source: &Source, ranges: u32, seconds: Option<u16>, json: bool) -> Result<()> {
    let mut heat = source.heat()?;
    let mut measured = None;
    if let Some(seconds) = seconds {
        let began = Instant::now();
        std::thread::sleep(Duration::from_secs(u64::from(seconds)));
        let before = std::mem::replace(&mut heat, source.heat()?);
        measured = Some((before, began.elapsed().as_secs_f64()));
    }
    let counters: Vec<GeneRange> = heat.iter().map(|counter| part_of(counter, measured.as_ref())).collect();
    let count = counters
        .first()
        .map_or(source.counters().unwrap_or(1), |range| GENES / (range.end - range.first).max(1));
    let parts = by_ranges(&counters, ranges.min(count).max(1), measured.is_some());
    let mut hottest = counters.clone();
    let by_rate = |range: &GeneRange| range.per_second.unwrap_or(0.0);
    hottest.sort_by(|a, b| by_rate(b).total_cmp(&by_rate(a)).then(b.ids.cmp(&a.ids)));
    hottest.truncate(HOTTEST);
    let all: u64 = counters.iter().map(|range| range.ids).sum();
    let lasts = lasts_seconds(&counters);
    if json {
        let shown = |range: &GeneRange| {
            json!({
                "first": range.first,
                "last": range.end - 1,
                "ids": range.ids.to_string(),
                "per_second": range.per_second,
            })
        };
        return print::json(&json!({
            "source": source.label(),
            "ids": all.to_string(),
            "ranges": parts.iter().map(shown).collect::<Vec<_>>(),
            "hottest": hottest.iter().map(shown).collect::<Vec<_>>(),
            "lasts_seconds": lasts,
        }));
    }
    let mut text = table(&parts, all);
    if !hottest.is_empty() {
        text.push_str("\nThe counters that take most:\n");
        text.push_str(&table(&hottest, all));
    }
    if let Some(lasts) = lasts {
        text.push_str(&format!("\nAt this rate the first counter is exhausted in {}.\n", in_words(lasts)));
    }
    print::text(&text)
}

/// The sums of so many ranges of genes. A range has whole counters: what several genes share cannot be divided.
fn by_ranges(counters: &[GeneRange], ranges: u32, is_measured: bool) -> Vec<GeneRange> {
    let bound = |at: u32| (u64::from(at) * u64::from(GENES) / u64::from(ranges)) as u32;
    let mut parts: Vec<GeneRange> = (0..ranges)
        .map(|at| GeneRange {
            first: bound(at),
            end: bound(at + 1),
            per_second: is_measured.then_some(0.0),
            left: u64::MAX,
            ..GeneRange::default()
        })
        .collect();
    for counter in counters {
        let at = parts.partition_point(|part| part.end <= counter.first);
        if let Some(part) = parts.get_mut(at) {
            part.ids += counter.ids;
            part.left = part.left.min(counter.left);
            part.per_second = part.per_second.map(|rate| rate + counter.per_second.unwrap_or(0.0));
        }
    }
    parts
}

fn table(parts: &[GeneRange], all: u64) -> String {
    let head = ["GENES", "IDS", "SHARE", "A SECOND"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(parts.iter().map(|part| row(part, all)));
    print::table(&rows)
}

fn part_of(heat: &Heat, measured: Option<&(Vec<Heat>, f64)>) -> GeneRange {
    let per_second = measured.map(|(before, seconds)| {
        // In the order of their genes.
        let at = before.binary_search_by_key(&heat.genes.start, |earlier| earlier.genes.start);
        let was = at.ok().and_then(|at| before.get(at)).map_or(0, |earlier| earlier.reserved);
        heat.reserved.saturating_sub(was) as f64 / seconds.max(0.001)
    });
    GeneRange {
        first: heat.genes.start,
        end: heat.genes.end,
        ids: heat.reserved,
        per_second,
        left: heat.left,
    }
}

fn row(part: &GeneRange, all: u64) -> Vec<String> {
    vec![
        format!("{}-{}", part.first, part.end - 1),
        part.ids.to_string(),
        if all == 0 { "-".to_owned() } else { format!("{:.1} %", part.ids as f64 * 100.0 / all as f64) },
        part.per_second.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}")),
    ]
}

/// How long the counter lasts that is exhausted first; `None` where no rate was measured.
fn lasts_seconds(counters: &[GeneRange]) -> Option<f64> {
    let each = counters
        .iter()
        .filter_map(|range| Some(range.left as f64 / range.per_second.filter(|rate| *rate > 0.0)?));
    each.min_by(f64::total_cmp)
}

/// `4 years`, `12 days`, `3 hours`.
pub fn in_words(seconds: f64) -> String {
    const DAY: f64 = 86_400.0;
    match seconds {
        _ if seconds >= 730.0 * DAY => format!("{:.0} years", seconds / (365.25 * DAY)),
        _ if seconds >= 2.0 * DAY => format!("{:.0} days", seconds / DAY),
        _ => format!("{:.0} hours", seconds / 3600.0),
    }
}
