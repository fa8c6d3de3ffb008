//! Where a move stands, and who follows it.

use keymill::{FinishedMove, MoveStatus, PlannedMove, Reader, Result};
use serde_json::{Value, json};

use crate::print;

/// The readers of a router as JSON.
pub fn readers_json(readers: &[Reader]) -> Value {
    let one = |reader: &Reader| {
        json!({
            "member": reader.member.to_string(),
            "owner": reader.owner,
            "version": reader.version,
            "left_ms": reader.left_ms,
            "warning": reader.fault(),
        })
    };
    readers.iter().map(one).collect()
}

fn finished_json(status: &MoveStatus) -> Value {
    let one = |moved: &FinishedMove| {
        json!({
            "first": moved.planned.first, "last": moved.planned.last, "from": moved.planned.from, "to": moved.planned.to,
            "finished_at": moved.finished_at,
        })
    };
    status.finished.iter().map(one).collect()
}

/// A reader in words.
pub fn reader_text(reader: &Reader) -> String {
    let end = match reader.fault() {
        Some(fault) => format!("row ends in {} s, which is impossible: {fault}", reader.left_ms / 1000),
        None if reader.is_living() => format!("row ends in {} s", reader.left_ms / 1000),
        None => format!("row ended {} s ago", reader.left_ms.unsigned_abs() / 1000),
    };
    format!("{} {}: version {}, {end}", reader.member, reader.owner, reader.version)
}

/// What is cut over first.
fn by(gene: bool) -> &'static str {
    if gene { "gene" } else { "number" }
}

pub fn show(router: &str, status: &MoveStatus, json: bool) -> Result<()> {
    if json {
        let moving = status.moving.as_ref().map(|moving| {
            json!({
                "phase": moving.phase.to_string(),
                "first": moving.planned.first, "last": moving.planned.last,
                "from": moving.planned.from, "to": moving.planned.to, "share": moving.planned.share,
                "steps": moving.options.steps, "watch_ms": moving.options.watch.as_millis() as u64,
                "by": by(moving.options.by_gene),
                "since": moving.since, "stored_at": moving.stored_at,
                "verify_from": moving.verify_from, "verified_at": moving.verified_at,
            })
        });
        return print::json(&json!({
            "router": router, "version": status.version, "settle_ms": status.settle.as_millis() as u64,
            "now_ms": status.now_ms, "moving": moving, "finished": finished_json(status), "readers": readers_json(&status.readers),
        }));
    }
    let mut fields = vec![("router", router.to_owned()), ("version", status.version.to_string())];
    match &status.moving {
        None => fields.push(("phase", "nothing moves".to_owned())),
        Some(moving) => {
            fields.push(("phase", moving.phase.to_string()));
            fields.push(("genes", format!("{}-{}", moving.planned.first, moving.planned.last)));
            fields.push(("from", moving.planned.from.clone()));
            fields.push(("to", moving.planned.to.clone()));
            let steps: Vec<_> = moving.options.steps.iter().map(ToString::to_string).collect();
            fields.push(("steps", steps.join(", ")));
            fields.push(("by", by(moving.options.by_gene).to_owned()));
            fields.push(("watch", print::duration(moving.options.watch.as_millis() as i64)));
            if let Some(at) = moving.stored_at {
                let seconds = status.now_ms.saturating_sub(at) / 1000;
                fields.push(("stored", format!("{seconds} s ago")));
            }
            fields.push(("verified", if moving.verified_at.is_some() { "yes" } else { "no" }.to_owned()));
        }
    }
    fields.extend(status.finished.iter().map(|moved| {
        let age_s = status.now_ms.saturating_sub(moved.finished_at) / 1000;
        let PlannedMove { first, last, from, to, .. } = &moved.planned;
        ("finished", format!("genes {first}-{last}, {from} to {to}, {age_s} s ago"))
    }));
    fields.extend(status.readers.iter().map(|reader| ("reader", reader_text(reader))));
    print::fields(false, &fields)
}
