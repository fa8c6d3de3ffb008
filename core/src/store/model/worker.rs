//! Which slot of a pool a process gets, and when a lease is renewed or freed. Every store decides alike.
//!
//! A change is one compare-and-set on token, mark and end of a row, inside a transaction that reads without locks: two processes that
//! choose the same slot are told apart by it, on a server that detects the conflict only at the commit too.

use crate::base::worker::{PoolRows, Release, Renewal, Renewed, SlotRow, Take, Taken};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Row};

/// The row of a pool that records its layout, in the place of a slot. No worker field holds so many.
pub(crate) const POOL_ROW: u64 = 1 << 62;

/// A process that was too late for the lowest unused slot chooses among this many.
const SPREAD: usize = 16;

/// How many holders a message names.
const NAMED: usize = 5;

/// The rows of one pool inside a transaction.
pub(crate) trait SlotRows {
    /// The pool's rows and the store's clock.
    fn read_pool(&mut self, key: &Key) -> Result<PoolRows, Fault>;

    /// Creates a row; `false`: another process has just done so.
    fn insert_slot(&mut self, key: &Key, new: &SlotRow, layout: &str) -> Result<bool, Fault>;

    /// Changes the row that is `old`, compared by token, mark and end; `false`: it has changed.
    fn replace_slot(&mut self, key: &Key, old: &SlotRow, new: &SlotRow) -> Result<bool, Fault>;
}

/// Takes a slot; `None`: another process was faster. `attempt` counts those.
pub(crate) fn take(rows: &mut dyn SlotRows, take: &Take, attempt: usize) -> Result<Option<Taken>, Fault> {
    let Some(pool) = begin(rows, take)? else { return Ok(None) };
    let (old, slot) = match choose(&pool, take, attempt) {
        Some(Choice::Used(row)) => (Some(row), row.slot),
        Some(Choice::New(slot)) => (None, slot),
        None => return Err(none_free(&pool, take)),
    };
    let start = old.map_or(0, |row| row.mark);
    let new = SlotRow {
        slot,
        token: take.token,
        mark: take.mark.max(start),
        ends_at: ends_at(pool.now_ms, take.lease_ms),
        owner: take.owner.to_string(),
    };
    let done = match old {
        Some(old) => rows.replace_slot(&take.key, old, &new)?,
        None => rows.insert_slot(&take.key, &new, "")?,
    };
    Ok(done.then_some(Taken { slot, start, mark: new.mark, now_ms: pool.now_ms }))
}

/// Records the layout of a pool that is new, and refuses another one; answers with the pool. `None`: another process was faster.
pub(crate) fn begin(rows: &mut dyn SlotRows, take: &Take) -> Result<Option<PoolRows>, Fault> {
    let pool = rows.read_pool(&take.key)?;
    check_layout(take, &pool)?;
    if pool.layout.is_none() {
        let record = SlotRow { slot: POOL_ROW, ..SlotRow::default() };
        if !rows.insert_slot(&take.key, &record, &recorded(take))? {
            return Ok(None);
        }
    }
    Ok(Some(pool))
}

/// Refuses a pool that was begun with another layout.
pub(crate) fn check_layout(take: &Take, pool: &PoolRows) -> Result<(), Fault> {
    let wanted = recorded(take);
    match &pool.layout {
        Some(found) if *found != wanted => Err(other_layout(take, found, &wanted)),
        _ => Ok(()),
    }
}

/// Renews leases, of which each belongs to this process or to another one.
pub(crate) fn renew(rows: &mut dyn SlotRows, renewals: &[Renewal]) -> Result<Option<Renewed>, Fault> {
    let mut renewed = Renewed { marks: Vec::with_capacity(renewals.len()), now_ms: 0 };
    for renewal in renewals {
        let pool = rows.read_pool(&renewal.key)?;
        renewed.now_ms = pool.now_ms;
        let owned = own(&pool, renewal.slot, renewal.token, &renewal.expect);
        let Ok(old) = owned.map_err(|why| renewed.marks.push(Err(lost(&renewal.key, renewal.slot, &why))))
        else {
            continue;
        };
        let mark = renewal.to.max(old.mark);
        let new = SlotRow { mark, ends_at: ends_at(pool.now_ms, renewal.lease_ms), ..old.clone() };
        if !rows.replace_slot(&renewal.key, old, &new)? {
            return Ok(None);
        }
        renewed.marks.push(Ok(mark));
    }
    Ok(Some(renewed))
}

/// Frees slots; those of another owner stay as they are. Answers which were freed.
pub(crate) fn free(rows: &mut dyn SlotRows, releases: &[Release]) -> Result<Option<Vec<bool>>, Fault> {
    let mut freed = Vec::with_capacity(releases.len());
    for release in releases {
        let pool = rows.read_pool(&release.key)?;
        let Ok(old) = own(&pool, release.slot, release.token, &release.expect) else {
            freed.push(false);
            continue;
        };
        let new = SlotRow { mark: release.used.min(old.mark), ends_at: 0, ..old.clone() };
        if !rows.replace_slot(&release.key, old, &new)? {
            return Ok(None);
        }
        freed.push(true);
    }
    Ok(Some(freed))
}

/// The row of a slot, where it is still this owner's; else what was seen.
fn own<'p>(pool: &'p PoolRows, slot: u64, token: u64, expect: &[u64]) -> Result<&'p SlotRow, String> {
    let Some(row) = pool.slots.iter().find(|row| row.slot == slot) else {
        return Err("its row is gone: the table was emptied or restored from a backup".to_owned());
    };
    if row.token != token {
        return Err(format!("`{}` has taken it", row.owner));
    }
    if !expect.contains(&row.mark) {
        return Err(format!(
            "its mark stands at {}, not at {} where this process left it: the table was restored from a backup, or this process was cloned",
            row.mark,
            expect.first().copied().unwrap_or_default()
        ));
    }
    Ok(row)
}

fn lost(key: &Key, slot: u64, why: &str) -> Fault {
    Fault::new(FaultKind::Taken, format!("worker {slot} of pool `{}` is no longer leased: {why}", key.name))
}

/// 2^63-1 at most, which is the column's.
fn ends_at(now_ms: u64, lease_ms: u64) -> u64 {
    now_ms.saturating_add(lease_ms).min(MAX_NUMBER)
}

/// What a pool records about its ids: they are unique only if all of its processes agree on it.
pub(crate) fn recorded(take: &Take) -> String {
    let (of, index) = take.member;
    let member = if of > 1 { format!(" store {} of {of}", index + 1) } else { String::new() };
    format!("{}{member}", take.layout)
}

fn other_layout(take: &Take, found: &str, wanted: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "pool `{}` was begun with `{found}`, and this source has `{wanted}`: ids of both could be equal; give this source a pool of its own, \
             `pool=NAME`, or the same layout, epoch and stores",
            take.key.name
        ),
    )
}

enum Choice<'p> {
    Used(&'p SlotRow),
    New(u64),
}

fn is_offered(take: &Take, slot: u64) -> bool {
    let (of, index) = take.member;
    (take.slots.first..=take.slots.last).contains(&slot) && slot % of.max(1) == index
}

/// The best slot: among free ones the lowest mark; without a free one, the lowest slot without a row.
fn choose<'p>(pool: &'p PoolRows, take: &Take, attempt: usize) -> Option<Choice<'p>> {
    let usable = |row: &&SlotRow| {
        is_offered(take, row.slot) && !row.is_held(pool.now_ms) && row.mark <= take.latest_mark
    };
    // A slot whose owner closed it before one whose lease ran out; and marks that no caller has to wait for are equal.
    let order = |row: &&SlotRow| (row.ends_at != 0, row.mark.max(take.present));
    if let Some(best) = pool.slots.iter().filter(usable).min_by_key(order) {
        let equals: Vec<_> =
            pool.slots.iter().filter(usable).filter(|row| order(row) == order(&best)).collect();
        // At random, so that processes that start together do not all choose the same one.
        let at = if attempt == 0 { 0 } else { fastrand::usize(..equals.len()) };
        return equals.get(at).map(|row| Choice::Used(row));
    }
    let (of, index) = take.member;
    let of = of.max(1);
    let first = take.slots.first + (index + of - take.slots.first % of) % of;
    let mut used: Vec<u64> = pool.slots.iter().map(|row| row.slot).collect();
    used.sort_unstable();
    let window = if attempt == 0 { 1 } else { SPREAD };
    let unused = (first..=take.slots.last).step_by(usize::try_from(of).unwrap_or(usize::MAX));
    let unused: Vec<u64> = unused.filter(|slot| used.binary_search(slot).is_err()).take(window).collect();
    let at = if unused.is_empty() { 0 } else { fastrand::usize(..unused.len()) };
    unused.get(at).map(|slot| Choice::New(*slot))
}

/// Every slot is held, or has a mark that is too far ahead.
fn none_free(pool: &PoolRows, take: &Take) -> Fault {
    let mut held: Vec<_> =
        pool.slots.iter().filter(|row| is_offered(take, row.slot) && row.is_held(pool.now_ms)).collect();
    held.sort_by_key(|row| row.ends_at);
    let ahead = pool
        .slots
        .iter()
        .filter(|row| is_offered(take, row.slot) && !row.is_held(pool.now_ms) && row.mark > take.latest_mark)
        .count();
    let mut message = format!(
        "no worker of pool `{}` is free in slots {}-{}: {} are leased",
        take.key.name,
        take.slots.first,
        take.slots.last,
        held.len()
    );
    let names: Vec<_> = held.iter().take(NAMED).map(|row| format!("{} by {}", row.slot, row.owner)).collect();
    if !names.is_empty() {
        let more = if held.len() > NAMED { ", …" } else { "" };
        message.push_str(&format!(" ({}{more})", names.join(", ")));
    }
    if let Some(first) = held.first() {
        let seconds = (first.ends_at - pool.now_ms).div_ceil(1000);
        message.push_str(&format!(", the first lease ends in {seconds} s unless it is renewed"));
    }
    if ahead > 0 {
        message.push_str(&format!(
            "; {ahead} are passed over because their marks are ahead of this machine's clock by more than max_lead"
        ));
    }
    message.push_str("; close processes that need none, or use a layout with more worker bits");
    Fault::new(FaultKind::NoneFree, message)
}

/// The slots of a pool as one row: who holds which, for how long. Its position is the highest mark.
pub(crate) fn shown(pool: &PoolRows) -> Row {
    let (held, free): (Vec<_>, Vec<_>) = pool.slots.iter().partition(|row| row.is_held(pool.now_ms));
    let each = held.iter().map(|row| {
        format!("{} by {} for {} s", row.slot, row.owner, (row.ends_at - pool.now_ms).div_ceil(1000))
    });
    let mut text = format!("{} leased", held.len());
    for (at, holder) in each.enumerate() {
        text.push_str(if at == 0 { ": " } else { ", " });
        text.push_str(&holder);
    }
    if !free.is_empty() {
        let free: Vec<_> = free.iter().map(|row| row.slot.to_string()).collect();
        text.push_str(&format!("; free: {}", free.join(", ")));
    }
    let next = pool.slots.iter().map(|row| row.mark).max().unwrap_or(0);
    Row { mark: Mark { period: 0, next }, text, counter: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::worker::Slots;
    use crate::config::MillConfig;

    const NOW: u64 = 1_000_000;

    /// Rows in a vector, without other processes.
    #[derive(Default)]
    struct Table(PoolRows);

    impl SlotRows for Table {
        fn read_pool(&mut self, _key: &Key) -> Result<PoolRows, Fault> {
            Ok(PoolRows { now_ms: NOW, ..self.0.clone() })
        }
        fn insert_slot(&mut self, _key: &Key, new: &SlotRow, layout: &str) -> Result<bool, Fault> {
            if new.slot == POOL_ROW {
                self.0.layout = Some(layout.to_owned());
            } else {
                self.0.slots.push(new.clone());
            }
            Ok(true)
        }
        fn replace_slot(&mut self, _key: &Key, old: &SlotRow, new: &SlotRow) -> Result<bool, Fault> {
            let row = self.0.slots.iter_mut().find(|row| *row == old).expect("the row that was read");
            *row = new.clone();
            Ok(true)
        }
    }

    fn key() -> Arc<Key> {
        MillConfig::parse("memory:").and_then(|config| config.spec("snowflake:f")).expect("a spec").key
    }

    fn request(first: u64, last: u64) -> Take {
        Take {
            key: key(),
            layout: "a layout".into(),
            slots: Slots { first, last },
            member: (1, 0),
            latest_mark: 1_003,
            present: 1_000,
            mark: 1_033,
            lease_ms: 30_000,
            token: 7,
            owner: "here:1".into(),
        }
    }

    fn row(slot: u64, mark: u64, ends_at: u64) -> SlotRow {
        SlotRow { slot, token: 5, mark, ends_at, owner: format!("there:{slot}") }
    }

    fn taken(slots: Vec<SlotRow>, request: &Take) -> Result<Option<Taken>, Fault> {
        take(&mut Table(PoolRows { layout: Some(recorded(request)), slots, now_ms: 0 }), request, 0)
    }

    fn slot_of(slots: Vec<SlotRow>, request: &Take) -> (u64, u64) {
        let taken = taken(slots, request).expect("a slot").expect("no other process");
        (taken.slot, taken.start)
    }

    #[test]
    fn the_lowest_unused_slot_is_taken_where_none_was_given_back() {
        assert_eq!(slot_of(vec![], &request(0, 9)), (0, 0));
        assert_eq!(slot_of(vec![row(0, 900, NOW + 1), row(2, 900, NOW + 1)], &request(0, 9)), (1, 0));
        assert_eq!(slot_of(vec![row(5, 900, NOW + 1)], &request(5, 9)), (6, 0));
        assert_eq!(slot_of(vec![], &Take { member: (3, 1), ..request(5, 9) }), (7, 0));
    }

    #[test]
    fn a_freed_slot_comes_before_one_whose_lease_ran_out_and_that_before_an_unused_one() {
        let rows = vec![row(0, 900, NOW), row(1, 950, 0), row(2, 1_002, 0)];
        assert_eq!(slot_of(rows.clone(), &request(0, 9)), (1, 950));
        assert_eq!(slot_of(rows[..1].to_vec(), &request(0, 9)), (0, 900));
        assert_eq!(slot_of(rows[2..].to_vec(), &request(0, 9)), (2, 1_002), "a mark within max_lead");
    }

    #[test]
    fn a_slot_is_held_until_its_end_by_the_clock_of_the_store() {
        let request = request(0, 0);
        assert_eq!(taken(vec![row(0, 900, NOW + 1)], &request).expect_err("held").kind, FaultKind::NoneFree);
        assert_eq!(slot_of(vec![row(0, 900, NOW)], &request), (0, 900));
    }

    #[test]
    fn a_mark_too_far_ahead_is_passed_over_and_the_message_counts_it() {
        let refused = taken(vec![row(0, 1_004, 0), row(1, 900, NOW + 12_000)], &request(0, 1));
        let refused = refused.expect_err("nothing is free").to_string();
        assert!(refused.contains("1 by there:1") && refused.contains("ends in 12 s"), "{refused}");
        assert!(refused.contains("1 are passed over"), "{refused}");
    }

    #[test]
    fn a_mark_is_never_lowered_by_a_take() {
        let request = Take { mark: 990, ..request(0, 9) };
        let taken = taken(vec![row(0, 1_001, 0)], &request).expect("a slot").expect("no other process");
        assert_eq!((taken.start, taken.mark), (1_001, 1_001));
    }

    #[test]
    fn a_pool_of_another_layout_or_of_other_stores_is_refused() {
        let mut table = Table::default();
        assert!(take(&mut table, &request(0, 9), 0).is_ok());
        for other in
            [Take { layout: "another".into(), ..request(0, 9) }, Take { member: (2, 0), ..request(0, 9) }]
        {
            assert_eq!(take(&mut table, &other, 0).expect_err("refused").kind, FaultKind::Refused);
        }
    }

    fn renewal(token: u64, expect: &[u64]) -> Renewal {
        Renewal { key: key(), slot: 3, token, expect: expect.to_vec(), to: 1_050, lease_ms: 30_000 }
    }

    #[test]
    fn a_renewal_needs_the_token_and_a_mark_that_this_owner_left() {
        let pool = || PoolRows { slots: vec![row(3, 1_020, NOW + 1)], ..PoolRows::default() };
        let renewed = |renewal: Renewal| {
            let answer = renew(&mut Table(pool()), &[renewal]).expect("answers").expect("no other process");
            answer.marks.into_iter().next().expect("an answer").map_err(|fault| fault.kind)
        };
        assert_eq!(renewed(renewal(5, &[1_020])), Ok(1_050));
        assert_eq!(renewed(renewal(5, &[1_010, 1_020])), Ok(1_050), "an answer was lost");
        assert_eq!(renewed(renewal(5, &[1_010])), Err(FaultKind::Taken));
        assert_eq!(renewed(renewal(6, &[1_020])), Err(FaultKind::Taken));
        let lost = renewed(Renewal { slot: 4, ..renewal(5, &[1_020]) });
        assert_eq!(lost, Err(FaultKind::Taken), "its row is gone");
    }

    #[test]
    fn a_freed_slot_has_the_mark_that_was_used_and_the_next_owner_begins_there() {
        let mut table = Table(PoolRows { slots: vec![row(3, 1_020, NOW + 1)], ..PoolRows::default() });
        let release = Release { key: key(), slot: 3, token: 5, expect: vec![1_020], used: 980 };
        assert_eq!(free(&mut table, std::slice::from_ref(&release)).expect("freed"), Some(vec![true]));
        assert_eq!((table.0.slots[0].mark, table.0.slots[0].ends_at), (980, 0));
        let stranger = Release { token: 6, expect: vec![980], ..release };
        assert_eq!(free(&mut table, &[stranger]).expect("an answer"), Some(vec![false]));
    }
}
