//! Decides the range of a request from a row: the one place for every store and scheme. Pure: no I/O, no clock.

use crate::request::bank_spec::bank_of;
use crate::store::{
    Fault, FaultKind, Key, MAX_NUMBER, Mark, PARKED_AT, Partition, Remedy, Request, Reserved, RowMark,
    RowState, RowStatus, Scheme,
};

/// The range that `request` gets from a row at `row` (`None`: no row, or a row that says nothing).
///
/// The row has to be moved to `Mark { period: reserved.period, next: reserved.hi }`, with the status of its key, before the range may
/// be used.
///
/// # Errors
/// `WentBackwards`, `ClockBehind`, `Exhausted`, `Closed`, or `Refused` for a row of another partition or in another state, and for a row
/// that makes no sense. The row has to stay as it is.
pub(crate) fn decide(row: Option<RowMark>, request: &Request) -> Result<Reserved, Fault> {
    let row = row.map(|row| judged(&request.key, row)).transpose()?;
    // No day has so many serials. (A serial that may be widened stays unique there until the day ends.)
    let far = |row: Mark| row.next > PARKED_AT && (request.last <= PARKED_AT || row.period < request.period);
    if request.key.scheme == Scheme::KeyProducer && row.is_some_and(far) {
        return Err(imported(request));
    }
    let fresh = Mark { period: request.period, next: request.start };
    let mut at = row.unwrap_or(fresh);
    if request.high_water != Mark::default() && row.is_none_or(|row| row < request.high_water) {
        at = healed(row, request)?;
    }
    if at.period > request.period_max {
        return Err(behind(at, request));
    }
    if at.period < request.period {
        at = fresh;
    }
    range(at, request)
}

/// The position to which a row that went backwards is raised, if the caller allows it and the jump is small enough.
fn healed(row: Option<Mark>, request: &Request) -> Result<Mark, Fault> {
    let seen = request.high_water;
    // In another period, or without a row, counting would begin at `start`: the jump is measured from there.
    let from = row.filter(|row| row.period == seen.period).map_or(request.start, |row| row.next);
    let jump = seen.next.saturating_sub(from);
    if request.heal && jump <= request.max_jump {
        return Ok(seen);
    }
    let found = match row {
        Some(row) => format!("its row stands at {}", place(row)),
        None => "its row is gone or empty".to_owned(),
    };
    let refused = if request.heal {
        format!(
            "; raising it by {jump} is more than the {} that `backwards=heal` may raise",
            request.max_jump
        )
    } else {
        String::new()
    };
    Err(Fault::new(
        FaultKind::WentBackwards,
        format!(
            "{found}, this process has seen {}: a backup was restored, a failover lost writes or the row was deleted{refused}; nothing was changed",
            place(seen),
        ),
    )
    .with_remedy(Remedy::repair(&request.key.name, request.seen_of_period())))
}

/// The mark of a row, if the row is open and of the key's partition.
pub(crate) fn judged(key: &Key, row: RowMark) -> Result<Mark, Fault> {
    if row.status == key.open() { Ok(row.mark) } else { Err(misplaced(key, row.status)) }
}

/// Why a row that is not open, or of another partition than its key, is refused.
pub(crate) fn misplaced(key: &Key, found: RowStatus) -> Fault {
    match (found.state, found.partition, key.partition) {
        (RowState::Closed, ..) if key.is_counter() => closed_counter(key),
        (_, Some(found), None) => one_of_several(found),
        (_, found, Some(own)) if found != Some(own) => other_partition(found, own),
        (state, ..) => in_state(state),
    }
}

/// Why a row in a state that its key does not have is refused.
pub(crate) fn in_state(state: RowState) -> Fault {
    Fault::new(FaultKind::Refused, format!("its row is in state `{}`; nothing was changed", state.word()))
}

/// Why a mill with one store is refused on a row that several stores share.
fn one_of_several(found: Partition) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "its row is one of several: {found}; alone it would give numbers of the other stores too; nothing was changed. Open it with the TOML file that lists its `stores`"
        ),
    )
}

/// Why one of several stores is refused on a row that counts other numbers.
pub(crate) fn other_partition(found: Option<Partition>, own: Partition) -> Fault {
    let found = found.map_or_else(|| "that of one store".to_owned(), |found| found.to_string());
    Fault::new(
        FaultKind::Refused,
        format!(
            "its row was recorded as {found}, and this mill opens it as {own}: with other `stores`, another order or another `chunk` numbers would come twice; nothing was changed. Open it with the `stores` and the `chunk` it was begun with"
        ),
    )
}

/// Why a mill is refused on a row of KeyFactory that was imported. From the next date on it would begin at 1 beside the
/// source that continues these serials.
fn imported(request: &Request) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "its row in `{}` stands above 2^62: it was imported, and the source it was imported to goes on with its serials; nothing was changed. Open this one with `scheme=keymill`; `keymill import` says which has the row",
            request.key.table
        ),
    )
}

/// Why a counter of a bank is refused whose row was closed.
pub(crate) fn closed_counter(key: &Key) -> Fault {
    let counters = bank_of(key).map_or(0, |(_, counters)| counters);
    Fault::new(
        FaultKind::Closed,
        format!(
            "the number of counters has changed, and this counter was closed; nothing was changed now. Open the source with the `counters` that the store records; if it records counters={counters}, a change was interrupted and has to be run again"
        ),
    )
}

fn behind(at: Mark, request: &Request) -> Fault {
    if request.period == 0 && request.period_max == 0 {
        return Fault::new(
            FaultKind::Refused,
            format!(
                "its row stands in period {}, but this key has no periods; nothing was changed",
                at.period
            ),
        );
    }
    Fault::new(
        FaultKind::ClockBehind,
        format!(
            "its row stands in period {}, this machine's clock says {}: set the clock, or raise `skew` if nodes may differ by that much; where programs of several time zones use this row, give all of them one `zone=`",
            at.period, request.period
        ),
    )
}

fn range(at: Mark, request: &Request) -> Result<Reserved, Fault> {
    let lo = at.next;
    if lo == 0 {
        let zero = "its row says that 0 is the next number, and numbers begin at 1";
        let repair = Remedy::repair(&request.key.name, request.seen_of_period());
        return Err(Fault::new(FaultKind::Refused, zero).with_remedy(repair));
    }
    let last = request.last.min(MAX_NUMBER);
    let Some(beyond_first) = last.checked_sub(lo) else {
        return Err(exhausted(last, request));
    };
    // `beyond_first` is below 2^63, so neither sum can wrap.
    let len = request.most_from(at).min(beyond_first + 1);
    Ok(Reserved { lo, hi: lo + len, period: at.period, ttl_ms: None })
}

fn exhausted(last: u64, request: &Request) -> Fault {
    let advice = match &request.key.serial {
        None => "use a source of another name for another column: its ids begin at the first again",
        Some(serial) if last > serial.pattern.last() => "use a column of another name",
        Some(_) if request.period == 0 => "`overflow=widen` goes on with a digit more",
        Some(_) => "`overflow=widen` goes on with a digit more, else the next period begins at 1",
    };
    Fault::new(FaultKind::Exhausted, format!("every number up to {last} has been reserved; {advice}"))
}

/// A mark as text.
pub(crate) fn place(mark: Mark) -> String {
    if mark.period == 0 { mark.next.to_string() } else { format!("{} of period {}", mark.next, mark.period) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::bank_spec::counter_key;
    use std::sync::Arc;

    fn request() -> Request {
        Request {
            key: Arc::new(Key::segment(Scheme::Keymill, "keymill_segment", "orders")),
            len: 10,
            high_water: Mark::default(),
            start: 1,
            last: MAX_NUMBER,
            period: 0,
            period_max: 0,
            clock: None,
            heal: false,
            max_jump: 100,
            single: 0,
            writer: 0,
        }
    }

    fn mark(period: u64, next: u64) -> Mark {
        Mark { period, next }
    }

    fn decide(mark: Option<Mark>, request: &Request) -> Result<Reserved, Fault> {
        super::decide(mark.map(|mark| request.key.row_at(mark)), request)
    }

    fn kind(result: Result<Reserved, Fault>) -> FaultKind {
        result.expect_err("a refusal was expected").kind
    }

    #[test]
    fn a_new_row_begins_at_the_start_and_an_old_one_goes_on() {
        assert_eq!(decide(None, &request()), Ok(Reserved { lo: 1, hi: 11, period: 0, ttl_ms: None }));
        assert_eq!(
            decide(Some(mark(0, 500)), &request()),
            Ok(Reserved { lo: 500, hi: 510, period: 0, ttl_ms: None })
        );
    }

    #[test]
    fn the_last_number_is_given_and_nothing_wraps() {
        let near = Some(mark(0, MAX_NUMBER - 2));
        assert_eq!(
            decide(near, &request()),
            Ok(Reserved { lo: MAX_NUMBER - 2, hi: 1 << 63, period: 0, ttl_ms: None })
        );
        assert_eq!(decide(Some(mark(0, MAX_NUMBER)), &request()).map(|r| r.hi - r.lo), Ok(1));
        assert_eq!(kind(decide(Some(mark(0, 1 << 63)), &request())), FaultKind::Exhausted);
        assert_eq!(kind(decide(Some(mark(0, u64::MAX)), &request())), FaultKind::Exhausted);
        let greedy = Request { len: u64::MAX, ..request() };
        assert_eq!(
            decide(Some(mark(0, 7)), &greedy),
            Ok(Reserved { lo: 7, hi: 1 << 63, period: 0, ttl_ms: None })
        );
    }

    #[test]
    fn a_row_below_the_high_water_or_gone_is_refused() {
        let seen = Request { high_water: mark(0, 600), ..request() };
        assert_eq!(kind(decide(Some(mark(0, 599)), &seen)), FaultKind::WentBackwards);
        assert_eq!(kind(decide(None, &seen)), FaultKind::WentBackwards);
        assert_eq!(decide(Some(mark(0, 600)), &seen).map(|r| r.lo), Ok(600));
    }

    #[test]
    fn healing_raises_to_the_high_water_but_not_by_more_than_allowed() {
        let seen = Request { high_water: mark(0, 600), heal: true, ..request() };
        assert_eq!(decide(Some(mark(0, 500)), &seen).map(|r| r.lo), Ok(600));
        assert_eq!(kind(decide(Some(mark(0, 499)), &seen)), FaultKind::WentBackwards);
        assert_eq!(kind(decide(None, &seen)), FaultKind::WentBackwards);
        let near = Request { high_water: mark(0, 90), heal: true, ..request() };
        assert_eq!(decide(None, &near).map(|r| r.lo), Ok(90));
    }

    #[test]
    fn a_period_moves_forward_only() {
        let today = Request { period: 20_261_121, period_max: 20_261_121, ..request() };
        assert_eq!(
            decide(Some(mark(20_261_120, 900)), &today),
            Ok(Reserved { lo: 1, hi: 11, period: 20_261_121, ttl_ms: None })
        );
        assert_eq!(decide(Some(mark(20_261_121, 900)), &today).map(|r| r.lo), Ok(900));
        assert_eq!(kind(decide(Some(mark(20_261_122, 5)), &today)), FaultKind::ClockBehind);
        let skewed = Request { period_max: 20_261_122, ..today };
        assert_eq!(
            decide(Some(mark(20_261_122, 5)), &skewed),
            Ok(Reserved { lo: 5, hi: 15, period: 20_261_122, ttl_ms: None })
        );
    }

    #[test]
    fn a_row_with_a_period_is_refused_where_the_key_has_none() {
        // 20 261 121 is a date.
        let fault = decide(Some(mark(20_261_121, 5)), &request()).expect_err("it is refused");
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(fault.to_string().contains("has no periods"), "{fault}");
    }

    #[test]
    fn only_an_open_row_of_the_keys_own_partition_gives_numbers() {
        let partition = |index, chunk| Some(Partition { stores: 2, index, chunk });
        let bank = Key::bank("keymill_segment", "orders");
        let keys = [
            Key::segment(Scheme::Keymill, "keymill_segment", "orders"),
            Key::clone(&counter_key(&bank, 4, 1)),
        ];
        for key in keys {
            for own in [None, partition(0, 10), partition(1, 10)] {
                let key = Arc::new(Key { partition: own, ..key.clone() });
                let asked = Request { key: Arc::clone(&key), ..request() };
                let seen = Request { high_water: mark(0, 600), ..asked.clone() };
                for of_row in [None, partition(0, 10), partition(1, 10), partition(0, 11)] {
                    for state in RowState::ALL {
                        let row = RowMark {
                            mark: mark(0, 500),
                            status: RowStatus { state, partition: of_row },
                            writer: 0,
                        };
                        let is_own = state == RowState::Open && of_row == own;
                        let answers = [&asked, &seen].map(|asked| super::decide(Some(row), asked));
                        assert_eq!(answers[0].is_ok(), is_own, "{row:?} for {own:?}");
                        let is_closed = state == RowState::Closed && key.is_counter();
                        let kind = if is_closed { FaultKind::Closed } else { FaultKind::Refused };
                        let kinds = answers.map(|answer| answer.err().map(|fault| fault.kind));
                        if !is_own {
                            assert_eq!(kinds, [Some(kind); 2], "{row:?} for {own:?}: its status comes first");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn yesterdays_row_below_the_high_water_is_a_sign_even_on_a_new_day() {
        let today = Request { period: 2, period_max: 2, high_water: mark(1, 600), ..request() };
        assert_eq!(kind(decide(Some(mark(1, 500)), &today)), FaultKind::WentBackwards);
    }

    #[test]
    fn an_imported_row_of_key_factory_is_refused_on_the_day_and_on_every_later_one() {
        let mut left = Request { period: 21, period_max: 21, last: 999_999, ..request() };
        Arc::make_mut(&mut left.key).scheme = Scheme::KeyProducer;
        for day in [20, 21] {
            let fault = decide(Some(mark(day, PARKED_AT + 1)), &left).expect_err("it was imported");
            assert_eq!(fault.kind, FaultKind::Refused);
            assert!(fault.to_string().contains("`scheme=keymill`"), "{fault}");
        }
        assert_eq!(decide(Some(mark(21, 7)), &left).map(|r| r.lo), Ok(7));
        left.last = MAX_NUMBER;
        assert_eq!(decide(Some(mark(21, PARKED_AT + 1)), &left).map(|r| r.lo), Ok(PARKED_AT + 1));
        assert_eq!(kind(decide(Some(mark(20, PARKED_AT + 1)), &left)), FaultKind::Refused);
    }

    #[test]
    fn a_row_that_says_nothing_sensible_is_refused() {
        assert_eq!(kind(decide(Some(mark(0, 0)), &request())), FaultKind::Refused);
        assert_eq!(kind(decide(Some(mark(3, 10)), &request())), FaultKind::Refused);
    }

    #[test]
    fn the_last_tenth_is_given_in_single_steps_and_to_its_last_number() {
        let serial = Request { len: 4_000, single: 50, last: 99_999, ..request() };
        let range = |lo, request: &Request| {
            decide(Some(mark(0, lo)), request).map(|reserved| reserved.hi - reserved.lo).ok()
        };
        assert_eq!(range(1, &serial), Some(4_000));
        // The last tenth begins at 90 001; a range ends before it, in whole steps.
        assert_eq!((range(86_001, &serial), range(86_002, &serial)), (Some(4_000), Some(3_950)));
        assert_eq!((range(89_999, &serial), range(90_001, &serial)), (Some(50), Some(50)));
        assert_eq!((range(99_950, &serial), range(99_951, &serial)), (Some(50), Some(49)));
        assert_eq!((range(99_999, &serial), range(100_000, &serial)), (Some(1), None));
        // A row whose period is ahead of the caller's.
        let behind = Request { period_max: 1, ..serial.clone() };
        assert_eq!(decide(Some(mark(1, 1)), &behind).map(|reserved| reserved.hi), Ok(51));
        // What a batch lacks is given as one.
        let batch = Request { single: 1_500, ..serial.clone() };
        assert_eq!((range(89_000, &batch), range(95_000, &batch)), (Some(1_500), Some(1_500)));
        let other = Request { single: 0, ..serial };
        assert_eq!(range(90_001, &other), Some(4_000));
    }

    #[test]
    fn a_range_that_ends_at_the_last_of_whole_ones_is_never_cut() {
        for (len, single, last) in
            [(4_000, 50, 99_999), (1_500, 1_000, 9_999), (7, 3, 99), (50, 50, 999), (2, 1, 9)]
        {
            let request = Request { len, last, single, ..request() };
            let highest = request.last_of_whole() + 1 - len;
            for lo in highest.saturating_sub(60).max(1)..=highest {
                assert_eq!(
                    decide(Some(mark(0, lo)), &request).map(|range| range.hi - range.lo),
                    Ok(len),
                    "{lo}"
                );
            }
        }
    }
}
