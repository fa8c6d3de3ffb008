//! `layout`: what a snowflake layout can do, and until when.

use std::time::{SystemTime, UNIX_EPOCH};

use keymill::scatter::Scatter;
use keymill::snowflake::layout::rfc3339;
use keymill::{Code, Layout, Result};
use serde_json::Value;

use crate::print;

/// Fields, capacity, the end, and a warning if that is near or past.
pub fn explain(layout: &str, epoch: &str, scatter: &str, json: bool) -> Result<()> {
    let layout = Layout::parse(layout, epoch)?.scattered(Scatter::parse(scatter)?)?;
    let warning = match layout.check_life(now_ms()) {
        Err(over) if over.code == Code::LayoutEnded => Some(over.message),
        checked => checked?,
    };
    let mut fields = vec![
        ("layout", layout.describe()),
        ("bits", bits(layout.max_id()).to_string()),
        (
            "time",
            format!("{}, one tick is {}", in_bits(layout.max_tick()), print::duration(layout.unit_ms())),
        ),
        ("worker", field(layout.max_worker())),
        ("sequence", field(layout.max_seq())),
        ("epoch", rfc3339(layout.epoch_ms())),
        ("ends", layout.end_date()),
        ("life used", format!("{:.1} %", 100.0 * layout.life_used(now_ms()))),
        ("ids per second and worker", layout.ids_per_second().to_string()),
        (
            "largest id",
            match layout.scatter() {
                // The moved digits decide, not the time.
                Scatter::Digits(_) => "depends on the moved digits; below 2^63".to_owned(),
                _ => layout.max_id().to_string(),
            },
        ),
        (
            "exact in JavaScript numbers",
            if layout.max_id() < 1 << 53 { "yes" } else { "no, use strings or bigint" }.to_owned(),
        ),
    ];
    if layout.scatter() != Scatter::None {
        fields.push(("scatter", layout.scatter().to_string()));
        fields.push(("regions of one moment", layout.scatter().regions().to_string()));
    }
    fields.extend(warning.map(|warning| ("warning", warning)));
    if !layout.ends_in_seq() {
        let uneven = "the sequence does not stand last, so low bits and last digits of ids are not even: do not share out rows by id modulo a number";
        fields.push(("note", uneven.to_owned()));
    }
    print::fields(json, &fields)
}

/// Layouts for a demand, each as a spec writes it, with what it holds.
pub fn propose(years: u32, workers: u64, rate: u64, json: bool) -> Result<()> {
    let layouts = Layout::propose(years, workers, rate)?;
    let columns = ["layout", "years", "workers", "ids per second and worker", "exact in JavaScript numbers"];
    let rows = layouts.iter().map(|layout| {
        let life_ms = layout.ends_at_ms().saturating_sub(layout.epoch_ms());
        vec![
            layout.describe(),
            format!("{:.1}", life_ms as f64 / (365.2425 * 86_400_000.0)),
            (layout.max_worker() + 1).to_string(),
            layout.ids_per_second().to_string(),
            if layout.max_id() < 1 << 53 { "yes" } else { "no" }.to_owned(),
        ]
    });
    if json {
        let objects = rows.map(|row| {
            let names = columns.iter().map(|name| name.replace(' ', "_"));
            Value::Object(names.zip(row.into_iter().map(Value::from)).collect())
        });
        return print::json(&objects.collect());
    }
    let head = vec![columns.map(str::to_owned).to_vec()];
    print::text(&print::table(&head.into_iter().chain(rows).collect::<Vec<_>>()))
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn bits(largest: u64) -> u32 {
    u64::BITS - largest.leading_zeros()
}

fn in_bits(largest: u64) -> String {
    match bits(largest) {
        1 => "1 bit".to_owned(),
        many => format!("{many} bits"),
    }
}

fn field(largest: u64) -> String {
    format!("{}, 0 to {largest}", in_bits(largest))
}
