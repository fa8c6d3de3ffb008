//! Readers: processes that follow a route table.

use std::sync::Arc;

use crate::request::reader::{OwnReader, Readers};
use crate::request::worker::{POOL_ROW, owner_shown};
use crate::store::model::reader_rows;
use crate::store::{Fault, FaultKind, Key, Left, OwnSlot, Renewal, SlotRow, StoreIndex};

use super::SlotStore;
use super::slot_store::on_slots;

/// Among fewer readers than this each renewal looks at the rows of all; among N times as many one renewal in N + 1 does.
const WATCHED: u64 = 64;

/// How many tokens of requests with lost answers are known again.
const MOST_LEFT: usize = 8;

/// A number that no other reader has, as slots have them.
pub(crate) fn drawn_member() -> u64 {
    crate::process::random::u64() % POOL_ROW
}

/// What the row of a reader shall say.
#[derive(Clone, Debug)]
pub struct KeepReader {
    /// The version of the table that the process runs.
    pub version: u64,
    /// How long the row lasts from now on.
    pub lease_ms: u64,
    /// The process, for people.
    pub owner: Arc<str>,
    /// The store that is asked, in the list of the process.
    pub store: StoreIndex,
}

/// The readers of route tables. The verbs are transactions on the rows of a pool.
pub trait ReaderStore: SlotStore {
    /// Writes the row of this process: adds it, or renews it. Each time it gets a new token, so that a copy of the process finds another
    /// one's row, and gets a row of its own. Answers with the highest version that a living reader runs; with 0 where it did not look.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` it may be written, and the next call knows it again.
    fn keep_reader(&mut self, key: &Arc<Key>, own: &mut OwnReader, keep: &KeepReader) -> Result<u64, Fault> {
        let to = Left { token: crate::process::random::token(), mark: keep.version };
        if let Some((member, left)) = &mut own.row {
            let before = left.clone();
            let renewal = Renewal {
                own: OwnSlot { key: key.clone(), slot: *member, left: before.clone(), source: "".into() },
                to,
                lease_ms: keep.lease_ms,
            };
            // The answer may be lost.
            left.push(to);
            let renewed = self.renew_slots(&[renewal]).and_then(|renewed| {
                renewed.marks.into_iter().next().unwrap_or_else(|| Err(crate::store::model::rows::moved_on()))
            });
            match renewed {
                Ok(mark) => {
                    *left = vec![Left { mark, ..to }];
                    if own.unwatched > 0 {
                        own.unwatched -= 1;
                        return Ok(0);
                    }
                    let all = self.slots(key)?;
                    own.unwatched = all.slots.len() as u64 / WATCHED;
                    return Ok(reader_rows::highest(&all));
                }
                // The row is gone, or belongs to a copy.
                Err(fault) if fault.kind == FaultKind::Taken => own.row = None,
                Err(fault) => {
                    if fault.kind != FaultKind::Unknown {
                        *left = before;
                    }
                    if left.len() > MOST_LEFT {
                        left.remove(0);
                    }
                    return Err(fault);
                }
            }
        }
        let member = own.number.take().unwrap_or_else(drawn_member);
        own.row = Some((member, vec![to]));
        let new = SlotRow {
            slot: member,
            token: to.token,
            mark: keep.version,
            ends_at: 0,
            owner: owner_shown(&keep.owner),
            store: keep.store,
            ..SlotRow::default()
        };
        let doing = format!("adding this process to the readers of router `{}`", key.name);
        let added = on_slots(self.as_slots(), key, &doing, |rows, _| reader_rows::add(rows, key, &new, keep));
        if added.as_ref().is_err_and(|fault| fault.kind != FaultKind::Unknown) {
            own.row = None;
        }
        added
    }

    /// Deletes the row of this process.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn remove_reader(&mut self, key: &Key, own: &OwnReader) -> Result<(), Fault> {
        if own.row.is_none() {
            return Ok(());
        }
        let doing = format!("removing this process from the readers of router `{}`", key.name);
        on_slots(self.as_slots(), key, &doing, |rows, _| reader_rows::remove(rows, key, own))
    }

    /// Every reader of a router, also those that have ended without removing their row.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where a living one lists other stores than this one.
    fn readers(&mut self, key: &Key) -> Result<Readers, Fault> {
        let found = self.all_readers(key)?;
        reader_rows::check_stores(&key.name, &found, 1)?;
        Ok(found)
    }

    /// The same, whatever stores they list.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn all_readers(&mut self, key: &Key) -> Result<Readers, Fault> {
        let mut pool = self.slots(key)?;
        if pool.now_ms == 0 {
            // There is no table yet, and so no row.
            pool.now_ms = self.clock_ms(key)?;
        }
        if pool.is_cut {
            return Err(reader_rows::too_many(key, pool.now_ms));
        }
        Ok(reader_rows::readers(&pool))
    }

    /// Deletes rows that have ended, by their numbers; answers with those that were deleted.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn forget_readers(&mut self, key: &Key, members: &[u64]) -> Result<Vec<u64>, Fault> {
        let doing = format!("deleting readers of router `{}`", key.name);
        on_slots(self.as_slots(), key, &doing, |rows, _| reader_rows::forget(rows, key, members))
    }
}
