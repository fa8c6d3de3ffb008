//! Rows of leased workers: a hash for each pool, `keymill_worker:POOL`. Its field `layout` holds what the pool records, `floor` the first
//! tick of any slot after a repair, and the field of a slot `token mark ends_at owner`.

use std::sync::LazyLock;

use redis::{Value, cmd};

use super::redis_session::{RedisSession, Script, place, text};
use super::redis_wire::CommandKind;
use crate::store::model::pool_rows::SlotRows;
use crate::store::model::slot_rows::POOL_ROW;
use crate::store::{Fault, FaultKind, Key, Left, OwnSlot, PoolRows, Renewal, SlotRow};

static SLOT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("slot.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("renew.lua")));

/// The field of what a pool records.
const LAYOUT: &str = "layout";
/// The field of the first tick of any slot, after a repair.
const FLOOR: &str = "floor";

/// Rows of an open session. Each change is a compare-and-set of one slot, and so a commit.
pub(super) struct RedisSlots<'a> {
    pub(super) session: &'a mut RedisSession,
}

fn written(row: &SlotRow) -> String {
    let SlotRow { token, mark, ends_at, owner, .. } = row;
    format!("{token} {mark} {ends_at} {owner}")
}

/// A floor as its field has it; 0: there is no field.
fn floor_text(floor: u64) -> String {
    if floor == 0 { String::new() } else { floor.to_string() }
}

fn read_slot(field: &str, kept: &str) -> Option<SlotRow> {
    let mut parts = kept.splitn(4, ' ');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (token, mark, ends_at) = (number()?, number()?, number()?);
    let row = SlotRow {
        slot: field.parse().ok()?,
        token,
        mark,
        ends_at,
        owner: parts.next().unwrap_or_default().to_owned(),
    };
    // As the scripts compare it.
    (written(&row) == kept).then_some(row)
}

impl RedisSlots<'_> {
    fn set(&mut self, key: &Key, field: &str, old: &str, new: String) -> Result<bool, Fault> {
        self.set_if(key, vec![field.to_owned(), old.to_owned(), new])
    }

    fn set_if(&mut self, key: &Key, values: Vec<String>) -> Result<bool, Fault> {
        let done = Value::Int(1);
        Ok(self.session.run(&SLOT, key, &values, |answer| *answer == done)? == done)
    }
}

impl SlotRows for RedisSlots<'_> {
    fn read_pool(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let at = place(key);
        let commands = [cmd("TIME"), cmd("PTTL").arg(&at).take(), cmd("HGETALL").arg(&at).take()];
        let mut answers = self.session.wire.exchange(&commands, CommandKind::Query)?.into_iter();
        let mut next = || answers.next().unwrap_or_default();
        let (time, expires, fields) = (next(), next(), next());
        let time = self.session.wire.answer(time)?;
        let expires = self.session.wire.answer(expires)?;
        let fields = self.session.wire.answer(fields)?;
        if !matches!(expires, Value::Int(-2 | -1)) {
            return Err(Fault::new(
                FaultKind::Unsafe,
                format!("its key `{at}` expires, and its workers would be leased twice; run `PERSIST {at}`"),
            ));
        }
        let mut pool = PoolRows { now_ms: millis(&time)?, ..PoolRows::default() };
        for (field, kept) in pairs(&fields) {
            if field == LAYOUT {
                pool.layout = Some(kept);
                continue;
            }
            if let (FLOOR, Ok(floor)) = (field.as_str(), kept.parse()) {
                pool.floor = floor;
                continue;
            }
            let row = read_slot(&field, &kept).ok_or_else(|| {
                Fault::new(
                    FaultKind::Refused,
                    format!("its key `{at}` has a field `{field}` that is no slot of keymill's; delete it"),
                )
            })?;
            pool.add(row);
        }
        pool.slots.sort_by_key(|row| row.slot);
        Ok(pool)
    }

    fn insert_pool(&mut self, key: &Key, new: &SlotRow, layout: &str) -> Result<bool, Fault> {
        if new.slot != POOL_ROW {
            return self.set(key, &new.slot.to_string(), "", written(new));
        }
        // The floor first: a pool with a layout is used.
        let has_floor = new.mark == 0 || self.set(key, FLOOR, "", new.mark.to_string())?;
        Ok(has_floor && self.set(key, LAYOUT, "", layout.to_owned())?)
    }

    fn insert_slot(&mut self, key: &Key, new: &SlotRow, floor: u64) -> Result<bool, Fault> {
        self.set_if(key, vec![new.slot.to_string(), String::new(), written(new), floor_text(floor)])
    }

    fn replace_slot(&mut self, key: &Key, old: &SlotRow, new: &SlotRow) -> Result<bool, Fault> {
        if new.slot == POOL_ROW {
            return self.set(key, FLOOR, &floor_text(old.mark), new.mark.to_string());
        }
        self.set(key, &new.slot.to_string(), &written(old), written(new))
    }

    fn delete_slot(&mut self, key: &Key, old: &SlotRow) -> Result<bool, Fault> {
        self.set(key, &old.slot.to_string(), &written(old), String::new())
    }
}

/// Renews one lease in one round trip; answers with the server's clock and the new mark. `None`: nothing was changed, and the row has to be read.
pub(super) fn renew(session: &mut RedisSession, renewal: &Renewal) -> Result<Option<(u64, u64)>, Fault> {
    let Renewal { own: OwnSlot { key, slot, left, owner }, to: Left { token, mark: to }, lease_ms } = renewal;
    let to = left.iter().map(|left| left.mark).max().unwrap_or_default().max(*to);
    let left = left.iter().flat_map(|left| [left.token, left.mark]);
    let mut values: Vec<_> = [*slot, *token, to, *lease_ms].map(|value| value.to_string()).to_vec();
    values.push(owner.to_string());
    values.extend(left.map(|value| value.to_string()));
    let answer = session.run(&RENEW, key, &values, |answer| *answer != Value::Nil)?;
    Ok(text(&answer).and_then(|now_ms| Some((now_ms.parse().ok()?, to))))
}

/// The server's clock, milliseconds since 1970.
pub(super) fn now_ms(session: &mut RedisSession) -> Result<u64, Fault> {
    let answers = session.wire.exchange(&[cmd("TIME")], CommandKind::Query)?;
    let time = session.wire.answer(answers.into_iter().next().unwrap_or_default())?;
    millis(&time)
}

/// `TIME`: seconds and microseconds.
fn millis(time: &Value) -> Result<u64, Fault> {
    let part = |at: usize| match time {
        Value::Array(parts) => text(parts.get(at)?)?.parse::<u64>().ok(),
        _ => None,
    };
    match (part(0), part(1)) {
        (Some(seconds), Some(micros)) => Ok(seconds.saturating_mul(1000).saturating_add(micros / 1000)),
        _ => Err(Fault::new(FaultKind::Refused, "the server's answer to TIME is no time")),
    }
}

/// The fields of a hash, in either version of the protocol.
fn pairs(fields: &Value) -> Vec<(String, String)> {
    match fields {
        Value::Array(flat) => {
            flat.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect()
        }
        Value::Map(pairs) => {
            pairs.iter().filter_map(|(field, kept)| Some((text(field)?, text(kept)?))).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_reads_as_it_was_written() {
        let row =
            SlotRow { slot: 7, token: u64::MAX >> 1, mark: 42, ends_at: 0, owner: "a host:12 3".to_owned() };
        assert_eq!(read_slot("7", &written(&row)), Some(row));
        for wrong in ["", "1 2", "1 2 x owner", "01 2 3 owner", "-1 2 3 owner"] {
            assert_eq!(read_slot("7", wrong), None, "{wrong}");
        }
    }
}
