//! `gene` and `route`: the shard of a business key or of an id, and the tables that say it.

use std::path::Path;

use keymill::{Error, Mill, Result, Route, Router};

use crate::args::KeyArgs;
use crate::hex;
use crate::operate::change;
use crate::order_numbers::OrderNumber;
use crate::{ids, print};

/// What to look up: an order number, an id, else a key.
pub struct Lookup<'a> {
    order_no: Option<&'a str>,
    id: Option<&'a str>,
    key: &'a KeyArgs,
    /// The id is one of 128 bits.
    wide: bool,
    /// The router's name.
    pub name: &'a str,
}

impl<'a> Lookup<'a> {
    /// From the words of the command line: the id unless a key or an order number is given, then the name.
    pub fn new(
        words: &'a [String],
        key: &'a KeyArgs,
        order_no: Option<&'a str>,
        wide: bool,
    ) -> Result<Lookup<'a>> {
        let (id, rest) = if key.is_given() || order_no.is_some() {
            (None, words)
        } else {
            (words.first(), words.get(1..).unwrap_or_default())
        };
        if rest.len() > 1 {
            return Err(Error::argument(format!(
                "`{}` is one word too many: a key, then the router's name",
                rest[1]
            )));
        }
        let name = rest.first().map_or(DEFAULT_ROUTER, String::as_str);
        Ok(Lookup { order_no, id: id.map(String::as_str), key, wide, name })
    }
}

/// The router that is asked where none is named.
const DEFAULT_ROUTER: &str = "default";

/// The gene of a key. clap sees to it that there is one.
pub fn gene(key: &KeyArgs, json: bool) -> Result<()> {
    let gene = ids::gene(key)?.ok_or_else(|| Error::argument("no key is given"))?;
    print::fields(json, &[("gene", gene.to_string())])
}

/// Where the order number, the id or the key belongs.
pub fn route(router: &Router, wanted: &Lookup<'_>, json: bool) -> Result<()> {
    let route = match (wanted.order_no, wanted.id) {
        (Some(order_no), _) => match OrderNumber::read(order_no)? {
            OrderNumber::Long(bytes) => router.route_order_no(&bytes)?,
            OrderNumber::Short(number) => router.route_order_no(number)?,
        },
        (None, Some(id)) => of_id(router, id, wanted.wide)?,
        (None, None) => router.route_gene(
            ids::gene(wanted.key)?.ok_or_else(|| Error::argument("no id and no key is given"))?,
        )?,
    };
    print::fields(json, &route.fields())
}

/// Prints a table as it is stored, for `put` to read.
pub fn get(mill: &Mill, name: &str, json: bool) -> Result<()> {
    let table = mill.route_table(name)?;
    if json {
        return print::json(&serde_json::json!({ "table": table }));
    }
    // To the byte: `put` of the same table again is nothing.
    print::out(table.as_bytes()).map(drop)
}

/// Stores a table; without `yes` only says what would be.
pub fn put(mill: &Mill, name: &str, file: &Path, yes: bool, json: bool) -> Result<()> {
    let text = keymill::binding::read_document(file)
        .map_err(|e| Error::argument(format!("`{}`: reading the route table failed: {e}", file.display())))?;
    // Where there is no table yet, nothing moves.
    let moving = mill.moves(name)?.status().ok().and_then(|status| status.moving);
    let stored = mill.put_routes(name, &text, change(yes))?;
    if let Some(moving) = moving.filter(|_| stored.before != Some(stored.after)) {
        print::note(&format!(
            "keymill: genes {}-{} move from `{}` to `{}` ({}): the new table {} that move without comparing the two; `keymill move back` undoes it step by step",
            moving.planned.first,
            moving.planned.last,
            moving.planned.from,
            moving.planned.to,
            moving.phase,
            if yes { "has replaced" } else { "replaces" }
        ));
    }
    let before = stored.before.map_or("none".to_owned(), |version| version.to_string());
    print::fields(json, &[("before", before), ("after", stored.after.to_string())])?;
    if !yes {
        print::note("keymill: nothing was written; --yes writes it");
    }
    Ok(())
}

fn of_id<'r>(router: &'r Router, id: &str, wide: bool) -> Result<Route<'r>> {
    let wrong = || {
        Error::argument(format!("`{id}` is no id: a decimal number, or 0x and 16 or 32 hexadecimal digits"))
    };
    if let Some(digits) = id.strip_prefix("0x") {
        return router.route_bytes(&hex::bytes(digits).ok_or_else(wrong)?);
    }
    let number: u128 = id.parse().map_err(|_| wrong())?;
    if wide {
        return router.route_wide(number);
    }
    // The size of a number does not say its form: an id of 128 bits with gene 0 is small.
    match u64::try_from(number) {
        Ok(id) => router.route(id),
        Err(_) => {
            Err(Error::argument(format!("`{id}` has more than 64 bits; add --wide for ids of 128 bits")))
        }
    }
}
