//! Route tables as text: what a step of a move stores.

use std::fmt::Write as _;

use crate::time::in_units;

use super::moved::Moved;
use super::progress::Progress;
use super::table::{By, Move, RouteTable};

/// A text in quotes: a string of JSON is one of TOML, too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl RouteTable {
    /// The table as TOML.
    pub(crate) fn to_text(&self) -> String {
        let mut text = format!("# Stored by `keymill move`.\nversion = {}\n", self.version);
        let mut put = |line: std::fmt::Arguments<'_>| {
            // A String takes whatever is written.
            let _ = text.write_fmt(line);
        };
        if let Some(shards) = &self.shards {
            let names: Vec<_> = shards.iter().map(|name| quoted(name)).collect();
            put(format_args!("shards = [{}]\n", names.join(", ")));
        }
        put(format_args!("settle = \"{}\"\n", in_units(self.settle_ms)));
        for range in &self.ranges {
            put(format_args!("[[range]]\nupper = {}\nshard = {}\n", range.upper, quoted(&range.shard)));
            let Some(Move { to, percent, is_paused, by, progress }) = &range.moves else { continue };
            let by = match by {
                By::Number => "number",
                By::Gene => "gene",
            };
            put(format_args!("to = {}\npercent = {percent}\nby = \"{by}\"\n", quoted(to)));
            if *is_paused {
                put(format_args!("paused = true\n"));
            }
            let Progress { since, steps, watch_ms, stored_at, verify_from, verified_at, finish_from } =
                progress;
            put(format_args!("steps = {steps:?}\nwatch = \"{}\"\n", in_units(*watch_ms)));
            for (field, number) in [
                ("since", since),
                ("stored_at", stored_at),
                ("verify_from", verify_from),
                ("verified_at", verified_at),
                ("finish_from", finish_from),
            ] {
                if let Some(number) = number {
                    put(format_args!("{field} = {number}\n"));
                }
            }
        }
        for Moved { first, last, from, to, finished_at } in &self.moved {
            put(format_args!(
                "[[moved]]\nfirst = {first}\nlast = {last}\nfrom = {}\nto = {}\n",
                quoted(from),
                quoted(to)
            ));
            put(format_args!("finished_at = {finished_at}\n"));
        }
        text
    }
}
