//! `layout`: what a snowflake layout can do, and until when.

use std::time::{SystemTime, UNIX_EPOCH};

use keymill::snowflake::layout::rfc3339;
use keymill::{Code, Layout, Result};

use crate::print;

/// Fields, capacity, the end, and a warning if that is near or past.
pub fn explain(layout: &str, epoch: &str, json: bool) -> Result<()> {
    let layout = Layout::parse(layout, epoch)?;
    let warning = match layout.check_life(now_ms()) {
        Err(over) if over.code == Code::LayoutEnded => Some(over.message),
        checked => checked?,
    };
    let mut fields = vec![
        ("layout", layout.describe()),
        ("bits", bits(layout.max_id()).to_string()),
        (
            "time",
            format!("{} bits, one tick is {}", bits(layout.max_tick()), print::duration(layout.unit_ms())),
        ),
        ("worker", field(layout.max_worker())),
        ("sequence", field(layout.max_seq())),
        ("epoch", rfc3339(layout.epoch_ms())),
        ("ends", layout.end_date()),
        ("ids per second and worker", layout.ids_per_second().to_string()),
        ("largest id", layout.max_id().to_string()),
        (
            "exact in JavaScript numbers",
            if layout.max_id() < 1 << 53 { "yes" } else { "no, use strings or bigint" }.to_owned(),
        ),
    ];
    fields.extend(warning.map(|warning| ("warning", warning)));
    print::fields(json, &fields)
}

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn bits(largest: u64) -> u32 {
    u64::BITS - largest.leading_zeros()
}

fn field(largest: u64) -> String {
    format!("{} bits, 0 to {largest}", bits(largest))
}
