//! Rows of leased workers: a hash for each pool, `keymill_worker:POOL`. Its field `record` holds what the pool records, as
//! `STORES STORE LAYOUT`, `floor` the first tick of any slot after a repair, and the field of a slot
//! `TOKEN MARK ENDS_AT STATE STORES STORE SOURCE OWNER`: the columns of the table, with one space between them. A space in the source is
//! `%20`, and a `%` is `%25`; the owner is the rest.

use std::sync::LazyLock;

use redis::{Value, cmd};

use super::redis_session::{RedisSession, Script, place, text};
use super::redis_wire::CommandKind;
use crate::error::shown;
use crate::store::model::pool_rows::SlotRows;
use crate::store::model::rows;
use crate::store::model::slot_columns::{state_of, store_of};
use crate::store::{Fault, FaultKind, Key, Left, OwnSlot, PoolRecord, PoolRows, Renewal, SlotRow, SlotState};

static SLOT: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("slot.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("renew.lua")));

/// The longest field of a slot, or of what a pool records: a source of 512 bytes, each escaped, and a process of 255.
const LONGEST_FIELD: usize = 2048;

/// The field of what a pool records. The builds before 0.2.0 refuse a pool with a field of this name.
const RECORD: &str = "record";
/// What they called it.
const EARLIER_RECORD: &str = "layout";
/// The field of the first tick of any slot, after a repair.
const FLOOR: &str = "floor";

/// Rows of an open session. Each change is a compare-and-set of one slot, and so a commit.
pub(super) struct RedisSlots<'a> {
    pub(super) session: &'a mut RedisSession,
}

/// A slot as its field has it.
fn written(row: &SlotRow) -> String {
    let SlotRow { token, mark, ends_at, state, owner, .. } = row;
    let [stores, store] = row.store.columns();
    format!("{token} {mark} {ends_at} {} {stores} {store} {} {owner}", state.word(), escaped(&row.source))
}

/// A source as a part of a field: a word.
fn escaped(source: &str) -> String {
    source.replace('%', "%25").replace(' ', "%20")
}

/// What a pool records as its field has it.
fn record_text(record: &SlotRow) -> String {
    let [stores, store] = record.store.columns();
    format!("{stores} {store} {}", record.layout)
}

/// A floor as its field has it; 0: there is no field.
fn floor_text(floor: u64) -> String {
    if floor == 0 { String::new() } else { floor.to_string() }
}

/// A field that is no longer than what this build writes.
fn as_written(kept: &str) -> Option<&str> {
    (kept.len() <= LONGEST_FIELD).then_some(kept)
}

/// The next number of a field; `None`: it has another form, as an earlier build wrote it.
fn number<'f>(parts: &mut impl Iterator<Item = &'f str>) -> Option<u64> {
    parts.next()?.parse().ok()
}

/// The store and the layout in the field of what a pool records; `None` as in [`number`].
fn read_record(key: &Key, kept: &str) -> Option<Result<PoolRecord, Fault>> {
    let mut parts = as_written(kept)?.splitn(3, ' ');
    let columns = [number(&mut parts)?, number(&mut parts)?];
    let layout = parts.next()?.to_owned();
    Some(store_of(key, columns).map(|store| PoolRecord { layout, store }))
}

/// The slot in a field; `None` as in [`number`].
fn read_slot(key: &Key, slot: u64, kept: &str) -> Option<Result<SlotRow, Fault>> {
    let mut parts = as_written(kept)?.splitn(8, ' ');
    let (token, mark, ends_at) = (number(&mut parts)?, number(&mut parts)?, number(&mut parts)?);
    let word = parts.next()?;
    let columns = [number(&mut parts)?, number(&mut parts)?];
    let source = parts.next()?.replace("%20", " ").replace("%25", "%");
    let owner = parts.next()?.to_owned();
    let (state, store) = match (state_of(key, word), store_of(key, columns)) {
        (Ok(state), Ok(store)) => (state, store),
        (Err(fault), _) | (_, Err(fault)) => return Some(Err(fault)),
    };
    let row = SlotRow { slot, token, mark, ends_at, state, source, owner, layout: String::new(), store };
    // As the scripts compare it.
    (written(&row) == kept).then_some(Ok(row))
}

/// A reader's row that no process of this build has written: it has ended, at this moment so that none is taken for old and deleted, and the
/// steps of a move wait for it. Its `layout`, which a slot of Redis has not, is what the field holds: so it can be deleted.
fn unreadable_reader(slot: u64, now_ms: u64, at: &str, kept: String) -> SlotRow {
    let owner = format!(
        "a row that cannot be read and that no process of this build has written; `HDEL {at} {slot}` deletes it"
    );
    SlotRow { slot, owner, ends_at: now_ms, layout: kept, ..SlotRow::default() }
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
            if key.is_of_readers() {
                let read = match field.as_str() {
                    RECORD => Some(read_record(key, &kept).and_then(Result::ok).unwrap_or_default().row(0)),
                    // A field such as `077` is none that a process writes or deletes.
                    _ => field.parse().ok().filter(|slot: &u64| slot.to_string() == field).map(|slot| {
                        let read = read_slot(key, slot, &kept).and_then(Result::ok);
                        read.unwrap_or_else(|| unreadable_reader(slot, pool.now_ms, &at, kept))
                    }),
                };
                read.map_or(Ok(()), |row| pool.add(key, row))?;
                continue;
            }
            let of_earlier_build = |found: &str| rows::of_earlier_build(&format!("its key `{at}`"), found);
            let has_another_form =
                || of_earlier_build(&format!("its field `{}` has another form", shown(&field)));
            if field == EARLIER_RECORD {
                return Err(of_earlier_build("it has `layout` in place of `record`"));
            }
            if field == RECORD {
                pool.record = Some(read_record(key, &kept).ok_or_else(has_another_form)??);
                continue;
            }
            if let (FLOOR, Ok(floor)) = (field.as_str(), kept.parse()) {
                pool.floor = floor;
                continue;
            }
            let slot = field.parse().map_err(|_| {
                Fault::new(
                    FaultKind::Refused,
                    format!(
                        "its key `{at}` has a field `{}` that is no slot of keymill's; delete it",
                        shown(&field)
                    ),
                )
            })?;
            pool.add(key, read_slot(key, slot, &kept).ok_or_else(has_another_form)??)?;
        }
        pool.slots.sort_by_key(|row| row.slot);
        Ok(pool)
    }

    fn insert_pool(&mut self, key: &Key, new: &SlotRow) -> Result<bool, Fault> {
        if new.state != SlotState::Pool {
            return self.set(key, &new.slot.to_string(), "", written(new));
        }
        // The floor first: a pool with a record is used.
        let has_floor = new.mark == 0 || self.set(key, FLOOR, "", new.mark.to_string())?;
        Ok(has_floor && self.set(key, RECORD, "", record_text(new))?)
    }

    fn insert_slot(&mut self, key: &Key, new: &SlotRow, floor: u64) -> Result<bool, Fault> {
        let mut values = vec![new.slot.to_string(), String::new(), written(new)];
        // Readers are never raised, so whatever stands in a field of that name is not theirs.
        if !key.is_of_readers() {
            values.push(floor_text(floor));
        }
        self.set_if(key, values)
    }

    fn replace_slot(&mut self, key: &Key, old: &SlotRow, new: &SlotRow) -> Result<bool, Fault> {
        if new.state == SlotState::Pool {
            return self.set(key, FLOOR, &floor_text(old.mark), new.mark.to_string());
        }
        self.set(key, &new.slot.to_string(), &written(old), written(new))
    }

    fn delete_slot(&mut self, key: &Key, old: &SlotRow) -> Result<bool, Fault> {
        let kept = if old.layout.is_empty() { written(old) } else { old.layout.clone() };
        self.set(key, &old.slot.to_string(), &kept, String::new())
    }
}

/// Renews one lease in one round trip; answers with the server's clock and the new mark. `None`: nothing was changed, and the row has to be read.
pub(super) fn renew(session: &mut RedisSession, renewal: &Renewal) -> Result<Option<(u64, u64)>, Fault> {
    let Renewal { own: OwnSlot { key, slot, left, source }, to: Left { token, mark: to }, lease_ms } =
        renewal;
    let to = left.iter().map(|left| left.mark).max().unwrap_or_default().max(*to);
    let left = left.iter().flat_map(|left| [left.token, left.mark]);
    let mut values: Vec<_> = [*slot, *token, to, *lease_ms].map(|value| value.to_string()).to_vec();
    values.push(escaped(source));
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
    use crate::store::StoreIndex;

    fn key() -> Key {
        Key::pool("keymill_worker", "tx")
    }

    fn row(source: &str, owner: &str) -> SlotRow {
        SlotRow {
            slot: 7,
            token: u64::MAX >> 1,
            mark: 42,
            source: source.to_owned(),
            owner: owner.to_owned(),
            store: StoreIndex { stores: 3, index: 1 },
            ..SlotRow::default()
        }
    }

    #[test]
    fn a_slot_reads_as_it_was_written() {
        for source in ["", "tx", "a b", "100 %", "a%20b", "%25 %", "订单 1"] {
            for owner in ["", "a host:12 3", "a for b store 2 of 3:7"] {
                let row = row(source, owner);
                assert_eq!(read_slot(&key(), 7, &written(&row)), Some(Ok(row)), "{source} {owner}");
            }
        }
        for state in SlotState::ALL {
            let row = SlotRow { state, ..row("tx", "host:1") };
            assert_eq!(read_slot(&key(), 7, &written(&row)), Some(Ok(row)));
        }
    }

    #[test]
    fn a_slot_of_another_form_is_none_and_an_unknown_state_is_refused_by_its_name() {
        for wrong in [
            "",
            "1 2",
            "1 2 0 host:12 for tx",
            "1 2 x leased 1 1 tx host",
            "01 2 3 leased 1 1 tx host",
            "1 2 3 leased 1 1",
        ] {
            assert_eq!(read_slot(&key(), 7, wrong), None, "{wrong}");
        }
        for (wrong, says) in [
            ("1 2 3 lent 1 1 tx host:1", "`lent` in `state`, which is none of `leased`"),
            ("1 2 3 leased 2 3 tx host:1", "stores=2 store=3"),
        ] {
            let fault = read_slot(&key(), 7, wrong).expect("its form is right").expect_err(wrong);
            assert!(fault.kind == FaultKind::Refused && fault.to_string().contains(says), "{fault}");
        }
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let record = PoolRecord {
            layout: "time:41@1ms,worker:10,seq:12 epoch E store 2 of 3".to_owned(),
            store: StoreIndex { stores: 2, index: 0 },
        };
        assert_eq!(read_record(&key(), &record_text(&record.row(0))), Some(Ok(record)));
        assert_eq!(read_record(&key(), "time:41@1ms,worker:10,seq:12 epoch E"), None);
        assert!(read_record(&key(), "0 1 time").is_some_and(|read| read.is_err()));
    }
}
