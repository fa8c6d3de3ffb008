//! One source over several stores: `stores = ["mysql://a/ids", "mysql://b/ids"]`. One of them may die, and ids go on.
//!
//!
//! It is a [`Store`] over other stores, so keeper, planner and callers know nothing of it. Each store owns every N-th chunk
//! of the numbers (`share`) and counts its own in a row of its own, so no two of them can reserve the same number, dead or
//! alive, in touch with each other or not. What is here only chooses whom to ask:
//!
//! * **Turns.** A source begins at a store drawn at random and stays there to the end of a chunk; then the next store has the
//!   turn, whose next chunk is the one that follows. So a process's numbers rise without gaps although the stores alternate,
//!   and processes spread over the stores. A store that fails passes its turn on at once, within the same call.
//! * **Order.** Numbers of a process rise, so a store whose row lies below what the caller has seen is raised first: in the
//!   same statement, as `backwards=heal` does, but by exactly what lies between where this process saw that row last and
//!   where it is to stand. A row that was set back needs a larger jump than that, and is refused.
//! * **Who is who.** Which share of how many a row holds is kept with it (`record`) and compared before the first number.

mod record;
mod turns;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::rows;
use super::share::Share;
pub(crate) use super::share::{MOST_STORES, WIDEST_CHUNK};
use super::{Facts, Fault, FaultKind, Key, MAX_NUMBER, Mark, Request, Reserved, Row, Store};
use record::Found;
use turns::{LastResorts, LeftOver, Rest, Turns, View, rests};

/// `chunk=`, unless given: as wide as the largest step, so that every adaptive step fits into one chunk.
pub(crate) const DEFAULT_CHUNK: u64 = 10_000_000;
/// The narrowest chunk: a narrower one would end with every reservation.
pub(crate) const NARROWEST_CHUNK: u64 = 1000;

/// What is left of a reservation that ran over its chunk's end is issued within this time, or not at all: ids follow time.
const LEFT_OVER: Duration = Duration::from_secs(30);
/// How often a ticket's counter is raised for one reservation before others are called too quick.
const RAISES: u32 = 3;

/// One of the stores.
struct Seat {
    store: Box<dyn Store>,
    share: Share,
    /// `store 2 of 2 (mysql://b:3306/ids)`.
    name: String,
    rest: Option<Rest>,
}

impl Seat {
    fn said(&self, fault: Fault) -> Fault {
        Fault { message: format!("{}: {}", self.name, fault.message), ..fault }
    }
}

/// Several stores that serve each source together.
pub struct Interleaved {
    seats: Vec<Seat>,
    sources: HashMap<String, Turns>,
    news: Vec<Fault>,
}

impl fmt::Debug for Interleaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.seats.iter().map(|seat| &seat.name).collect();
        f.debug_struct("Interleaved").field("stores", &names).finish_non_exhaustive()
    }
}

impl Interleaved {
    /// The stores in their order, each with the name that messages call it by (never a user or a password), and the chunk.
    ///
    /// The order and the chunk belong to the numbers: whoever opens the same stores in another order is refused.
    #[must_use]
    pub fn new(stores: Vec<(String, Box<dyn Store>)>, chunk: u64) -> Interleaved {
        let of = stores.len();
        let seats = stores.into_iter().enumerate().map(|(index, (name, store))| Seat {
            store,
            share: Share { stores: of as u64, index: index as u64, chunk: chunk.clamp(1, WIDEST_CHUNK) },
            name: format!("store {} of {of} ({name})", index + 1),
            rest: None,
        });
        Interleaved { seats: seats.collect(), sources: HashMap::new(), news: Vec::new() }
    }

    fn turns_of(&mut self, key: &Key) -> Turns {
        self.sources.remove(&record::identity(key)).unwrap_or_else(|| Turns {
            begun: false,
            turn: fastrand::usize(..self.seats.len().max(1)),
            views: vec![View::default(); self.seats.len()],
            left_over: None,
        })
    }

    fn keep(&mut self, key: &Key, turns: Turns) {
        self.sources.insert(record::identity(key), turns);
    }

    /// Makes the store, or this source's row there, rest; and tells it.
    fn leave_out(&mut self, turns: &mut Turns, at: usize, fault: Fault) {
        let (seat, view) = (&mut self.seats[at], &mut turns.views[at]);
        // What is wrong with a server is wrong for every source.
        let rest = if gone(fault.kind) { &mut seat.rest } else { &mut view.rest };
        if fault.kind != FaultKind::Exhausted {
            let told = format!("{}; the other stores go on", fault.message);
            self.news.push(Fault::new(fault.kind, format!("{}: {told}", seat.name)));
        }
        // Whoever has spoken of a row is there; of numbers that are used up nobody was asked.
        let is_there = !gone(fault.kind) && fault.kind != FaultKind::Exhausted;
        *rest = Some(Rest::after(rest.as_ref(), fault));
        if is_there {
            seat.rest = None;
        }
    }

    /// Refuses a number below every row: nothing would be raised, and somebody has mistyped.
    fn not_lower(&self, found: &[Found], to: u64) -> Result<(), Fault> {
        let rows: Option<Vec<_>> = self
            .seats
            .iter()
            .zip(found)
            .map(|(seat, row)| match row {
                Found::Ours { next } => Some((seat.share.stands(*next), &seat.name)),
                _ => None,
            })
            .collect();
        match rows.and_then(|rows| rows.into_iter().min()) {
            Some((lowest, name)) if lowest > to => Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "the lowest of its rows, that of {name}, stands at {lowest}, above {to}, and repair never lowers a row"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Why a store is not asked now.
    fn why<'a>(&'a self, turns: &'a Turns, at: usize) -> Option<&'a Rest> {
        let (seat, view) = (self.seats[at].rest.as_ref(), turns.views[at].rest.as_ref());
        if rests(seat) { seat } else { view.or(seat) }
    }

    fn is_resting(&self, turns: &Turns, at: usize) -> bool {
        rests(self.seats[at].rest.as_ref()) || rests(turns.views[at].rest.as_ref())
    }

    /// Whom to ask, from store `first` on: those who do not rest; and the others, when nobody else is left, in the order in
    /// which their rests end.
    fn line(&self, turns: &Turns, first: usize) -> (Vec<usize>, Vec<usize>) {
        let count = self.seats.len();
        let all = (0..count).map(|after| (first + after) % count);
        let (mut resting, ready): (Vec<_>, Vec<_>) = all.partition(|&at| self.is_resting(turns, at));
        resting.sort_by_key(|&at| self.why(turns, at).map(|rest| rest.until));
        (ready, resting)
    }

    /// No store had a number.
    fn none(&self, turns: &Turns, doing: &str) -> Fault {
        let faults: Vec<(&str, &Fault)> = (0..self.seats.len())
            .filter_map(|at| Some((self.seats[at].name.as_str(), &self.why(turns, at)?.fault)))
            .collect();
        let kinds = || faults.iter().map(|(_, fault)| fault.kind);
        let kind = if kinds().any(gone) {
            FaultKind::Unavailable
        } else {
            // One that has no numbers left says less than one that could have some.
            kinds().find(|kind| *kind != FaultKind::Exhausted).unwrap_or(FaultKind::Exhausted)
        };
        let each: Vec<_> = faults.iter().map(|(name, fault)| format!("{name}: {fault}")).collect();
        rows::during(doing, Fault::new(kind, each.join("; ")))
    }

    fn reserve_in_turn(&mut self, turns: &mut Turns, request: &Request) -> Result<Reserved, Fault> {
        if let Some(reserved) = self.left_over(turns, request) {
            return Ok(reserved);
        }
        if !turns.begun {
            self.begin(turns, request)?;
        }
        let (ready, resting) = self.line(turns, turns.turn);
        let mut last_resorts = LastResorts::default();
        for at in ready.into_iter().chain(resting.into_iter().take_while(|_| last_resorts.another())) {
            match self.draw(turns, at, request) {
                Ok(reserved) => return Ok(reserved),
                Err(fault) => self.leave_out(turns, at, fault),
            }
        }
        Err(self.none(turns, &rows::reserving(request)))
    }

    /// The next range of what an earlier reservation left over.
    fn left_over(&mut self, turns: &mut Turns, request: &Request) -> Option<Reserved> {
        let left = turns.left_over.take()?;
        let waited = left.since.elapsed();
        let ttl_ms = left.ttl_ms.map(|ttl| ttl.saturating_sub(waited.as_millis() as u64));
        if waited > LEFT_OVER || ttl_ms == Some(0) {
            return None;
        }
        self.issue(turns, left, request).map(|reserved| Reserved { ttl_ms, ..reserved })
    }

    /// Cuts the first range that the caller may have from own numbers of a store, up to the end of its chunk; the rest
    /// stays for the next call.
    fn issue(&self, turns: &mut Turns, own: LeftOver, request: &Request) -> Option<Reserved> {
        let share = self.seats[own.seat].share;
        let lo = own.lo.max(share.first(request.high_water.next));
        if lo >= own.hi {
            return None;
        }
        let end = own.hi.min(lo + share.left(lo));
        turns.left_over = (end < own.hi).then_some(LeftOver { lo: end, ..own });
        let chunk_is_over = end == own.hi && share.left(end) == share.chunk;
        turns.turn = if chunk_is_over { (own.seat + 1) % self.seats.len() } else { own.seat };
        // Both lie in one chunk, so the range is as long out here as in there.
        let (first, last) = (share.global(lo)?, share.global(end - 1)?);
        Some(Reserved { lo: first, hi: last + 1, period: 0, ttl_ms: own.ttl_ms })
    }

    /// Compares what every store has recorded, before the first number: a store that was added, left out or has changed
    /// places would give numbers that another one owns.
    fn begin(&mut self, turns: &mut Turns, request: &Request) -> Result<(), Fault> {
        let doing = rows::reserving(request);
        let key = &request.key;
        let mut found: Vec<Option<Found>> = vec![None; self.seats.len()];
        let (ready, mut resting) = self.line(turns, 0);
        if !ready.is_empty() {
            resting.clear();
        }
        let mut last_resorts = LastResorts::default();
        for at in ready.into_iter().chain(resting.into_iter().take_while(|_| last_resorts.another())) {
            match self.seats[at].inspect_from(key, request.start) {
                Ok(row) => found[at] = Some(row),
                Err(fault) => self.leave_out(turns, at, fault),
            }
        }
        for (seat, row) in self.seats.iter().zip(&found) {
            if let Some(why) = row.as_ref().and_then(|row| seat.refusal(key, row)) {
                return Err(rows::during(&doing, seat.said(Fault::new(FaultKind::Refused, why))));
            }
        }
        let issued = |row: &Option<Found>, seat: &Seat| match row {
            Some(Found::Ours { next }) => *next > seat.first(key, request.start),
            // Nobody knows how far a row stood that is gone.
            Some(Found::Lost) => true,
            _ => false,
        };
        let in_use = found.iter().zip(&self.seats).any(|(row, seat)| issued(row, seat));
        if !in_use && found.iter().all(Option::is_none) {
            return Err(self.none(turns, &doing));
        }
        // Records are made from the first store to the last: one that is missing in front of another has been lost.
        let nothing = found.iter().position(|row| *row == Some(Found::Nothing));
        let is_ours = |row: &Option<Found>| matches!(row, Some(Found::Ours { .. }));
        let is_new = !in_use && nothing.is_some_and(|at| !found[at..].iter().any(is_ours));
        if is_new {
            self.found_source(turns, request, &found)?;
            found.fill(Some(Found::Ours { next: 0 }));
        }
        if !in_use {
            // The first numbers are the first store's, if it answers: then the loss of any one row is noticed from now on.
            turns.turn = 0;
        }
        for (at, row) in found.iter().enumerate() {
            match row {
                Some(Found::Ours { .. }) => turns.views[at].known = true,
                // Its siblings have numbers out, and nobody gets a number before every store has its record. But that
                // may have come about since this one was looked at.
                Some(Found::Nothing | Found::Lost) => match self.seats[at].know(key) {
                    Ok(()) => turns.views[at].known = true,
                    Err(fault) => self.leave_out(turns, at, fault),
                },
                _ => {}
            }
        }
        turns.begun = true;
        Ok(())
    }

    /// A new source: every store records its share before any of them gives a number. So a store without a record beside
    /// one with numbers has lost it.
    fn found_source(
        &mut self,
        turns: &Turns,
        request: &Request,
        found: &[Option<Found>],
    ) -> Result<(), Fault> {
        let doing = format!("beginning `{}`", request.key.name);
        if let Some(at) = found.iter().position(Option::is_none) {
            let why = self.why(turns, at).map_or_else(String::new, |rest| format!(": {}", rest.fault));
            // Not `Unavailable`: other sources, which have begun, are not to be held up by this one.
            let missing = format!(
                "a new source begins when every store answers, and {} does not{why}; sources that have begun go on",
                self.seats[at].name
            );
            return Err(rows::during(&doing, Fault::new(FaultKind::Refused, missing)));
        }
        // All rows before the first record: a record says that its row was made.
        for (seat, row) in self.seats.iter_mut().zip(found) {
            if matches!(row, Some(Found::Nothing)) && !record::in_row(&request.key) {
                let made = seat.make_row(&request.key, request.start);
                made.map_err(|fault| rows::during(&doing, seat.said(fault)))?;
            }
        }
        let mut plain = 0;
        for (seat, row) in self.seats.iter_mut().zip(found) {
            if matches!(row, Some(Found::Nothing)) {
                let start = seat.share.first(request.start);
                let recorded = seat.record(&request.key, start);
                plain = plain.max(recorded.map_err(|fault| rows::during(&doing, seat.said(fault)))?);
            }
        }
        if plain > 1 {
            // A mill with one store has begun the same source meanwhile. It is refused from now on, and its numbers are left out.
            for seat in &mut self.seats {
                match seat.raise_to(&request.key, &Found::Ours { next: 0 }, plain) {
                    Err(fault) if fault.kind != FaultKind::Refused => {
                        return Err(rows::during(&doing, seat.said(fault)));
                    }
                    _ => {}
                }
            }
        }
        // When all have recorded: another process may have been quicker, and two of the names may mean one store.
        for seat in &mut self.seats {
            seat.know(&request.key).map_err(|fault| rows::during(&doing, seat.said(fault)))?;
        }
        Ok(())
    }

    /// Reserves from one store.
    fn draw(&mut self, turns: &mut Turns, at: usize, request: &Request) -> Result<Reserved, Fault> {
        let (seat, view) = (&mut self.seats[at], &mut turns.views[at]);
        if !view.known {
            seat.know(&request.key)?;
            view.known = true;
        }
        let share = seat.share;
        let last = share.last(request.last.min(MAX_NUMBER));
        // The lowest own number that the caller may have.
        let lowest = share.first(request.high_water.next.max(1));
        if lowest > last {
            return Err(Fault::new(FaultKind::Exhausted, "every number of its share has been reserved"));
        }
        for _ in 0..RAISES {
            let asked = seat.request_for(request, view.seen, lowest, last);
            let got = match seat.store.reserve(&asked) {
                Ok(got) => got,
                Err(fault) => return Err(seat.explain(request, &asked, view, fault)),
            };
            if got.lo < view.seen.max(1) || got.hi <= got.lo || got.period != asked.period {
                let what = format!("it answered with {}..{}, not above {}", got.lo, got.hi, view.seen);
                return Err(Fault::new(FaultKind::WentBackwards, what));
            }
            view.seen = got.hi;
            (seat.rest, view.rest) = (None, None);
            if got.hi > lowest {
                let since = Instant::now();
                let own = LeftOver { seat: at, lo: got.lo, hi: got.hi, since, ttl_ms: got.ttl_ms };
                return self.issue(turns, own, request).ok_or_else(rows::moved_on);
            }
            // A server's own count cannot be raised by the way: in a step of its own, and then once more.
            match seat.store.repair(&request.key, Mark { period: 0, next: lowest }) {
                Err(fault) if fault.kind != FaultKind::Refused => return Err(fault),
                _ => {}
            }
        }
        Err(rows::moved_on())
    }

    /// Every store's word on a source: those that answer, and why the others do not.
    fn inspect_all(&mut self, key: &Key) -> Vec<Result<Found, Fault>> {
        self.seats.iter_mut().map(|seat| seat.inspect(key).map_err(|fault| seat.said(fault))).collect()
    }

    /// The store that keeps what cannot be shared: snowflakes' marks, which rise under the eyes of one judge.
    fn first(&mut self) -> Result<&mut Seat, Fault> {
        self.seats.first_mut().ok_or_else(|| Fault::new(FaultKind::Refused, "there are no stores"))
    }
}

/// Whether the server is to blame, and not one row of it.
fn gone(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Unavailable | FaultKind::Unknown)
}

/// A snowflake's mark, which is no counter.
fn is_mark(key: &Key) -> bool {
    key.name.starts_with("snowflake:")
}

fn check_shared(key: &Key) -> Result<(), Fault> {
    if key.serial.is_none() {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "`{}`: serial numbers count each period from 1 in one row, so several `stores` cannot serve them; open them in a \
             mill with one store",
            key.name
        ),
    ))
}

impl Store for Interleaved {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        check_shared(&request.key)?;
        let mut turns = self.turns_of(&request.key);
        let answer = self.reserve_in_turn(&mut turns, request);
        self.keep(&request.key, turns);
        answer
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        if is_mark(key) {
            return self.first()?.store.give_back(key, period, lo, hi);
        }
        let turns = self.turns_of(key);
        let left = turns.left_over;
        self.keep(key, turns);
        // From the top down, chunk by chunk, each to the store that owns it.
        let mut hi = hi;
        while lo < hi {
            let Some((at, share)) = self
                .seats
                .iter()
                .enumerate()
                .map(|(at, seat)| (at, seat.share))
                .find(|(_, share)| share.global(share.last(hi - 1)) == Some(hi - 1))
            else {
                return Ok(false);
            };
            let last = share.last(hi - 1);
            let begin = share.first(lo).max(last + share.left(last) - share.chunk);
            // What was left over lies right above, in the store's own counting.
            let end =
                left.filter(|left| (left.seat, left.lo) == (at, last + 1)).map_or(last + 1, |left| left.hi);
            let seat = &mut self.seats[at];
            let period = seat.period(key);
            // A store that is down would make every source wait: the numbers are lost instead.
            if rests(seat.rest.as_ref())
                || !seat.store.give_back(key, period, begin, end).map_err(|fault| seat.said(fault))?
            {
                return Ok(false);
            }
            if let Some(turns) = self.sources.get_mut(&record::identity(key)) {
                // What was left over is the store's again as well.
                turns.left_over = None;
            }
            let Some(begins) = share.global(begin) else { return Ok(false) };
            hi = begins;
        }
        Ok(true)
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        let seat = self.first()?;
        seat.store.raise(key, expect, to).map_err(|fault| seat.said(fault))
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        if is_mark(key) {
            return self.first()?.store.look(key);
        }
        check_shared(key)?;
        let found = self.inspect_all(key);
        if found.iter().all(Result::is_err) {
            return found.into_iter().find_map(Result::err).map_or(Ok(None), Err);
        }
        let stands = |(row, seat): (&Result<Found, Fault>, &Seat)| match row {
            Ok(Found::Ours { next }) if *next > 0 => Some(seat.share.stands(*next)),
            _ => None,
        };
        // The lowest number that no store has reserved.
        let next = found.iter().zip(&self.seats).filter_map(stands).min();
        if next.is_none() && found.iter().all(|row| matches!(row, Ok(Found::Nothing | Found::Ours { .. }))) {
            return Ok(None);
        }
        if next.is_none() && found.iter().any(|row| matches!(row, Ok(Found::Foreign { .. }))) {
            let refused = |(row, seat): (&Result<Found, Fault>, &Seat)| {
                seat.refusal(key, row.as_ref().ok()?)
                    .map(|why| seat.said(Fault::new(FaultKind::Refused, why)))
            };
            return found.iter().zip(&self.seats).find_map(refused).map_or(Ok(None), Err);
        }
        let each = found.iter().zip(&self.seats).map(|(row, seat)| match row {
            Ok(Found::Nothing) if next.is_some() => {
                format!("{}: {}", seat.name, seat.shown(key, &Found::Lost))
            }
            Ok(row) => format!("{}: {}", seat.name, seat.shown(key, row)),
            Err(fault) => fault.message.clone(),
        });
        let text = each.collect::<Vec<_>>().join("; ");
        Ok(Some(Row { mark: Mark { period: 0, next: next.unwrap_or(0) }, text, counter: None }))
    }

    fn warnings_of(&mut self, key: &Key) -> Result<Vec<String>, Fault> {
        if is_mark(key) {
            return Ok(Vec::new());
        }
        check_shared(key)?;
        let found = self.inspect_all(key);
        let in_use = found.iter().any(|row| matches!(row, Ok(Found::Ours { .. } | Found::Lost)));
        let warning = |(row, seat): (&Result<Found, Fault>, &Seat)| match row {
            Ok(Found::Nothing) if !in_use => None,
            Ok(Found::Nothing | Found::Lost) => Some(seat.said(record::lost(key)).message),
            Ok(row) => seat.refusal(key, row).map(|why| format!("{}: {why}", seat.name)),
            Err(fault) => Some(fault.message.clone()),
        };
        Ok(found.iter().zip(&self.seats).filter_map(warning).collect())
    }

    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        keys.iter().try_for_each(|key| check_shared(key))?;
        let keys = record::keys_with_records(keys);
        let mut statements = Vec::new();
        for seat in &mut self.seats {
            let own = seat.store.init(&keys, dry_run).map_err(|fault| seat.said(fault))?;
            if !own.is_empty() {
                statements.push(format!("-- {}", seat.name));
            }
            statements.extend(own);
        }
        Ok(statements)
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if is_mark(key) {
            return self.first()?.store.repair(key, to);
        }
        check_shared(key)?;
        let doing = format!("repairing `{}`", key.name);
        // All are asked before any is raised.
        let before = self.look(key)?;
        let found: Vec<Found> = self.inspect_all(key).into_iter().collect::<Result<_, _>>()?;
        for (seat, row) in self.seats.iter_mut().zip(&found) {
            seat.may_adopt(key, row, to.next).map_err(|fault| rows::during(&doing, seat.said(fault)))?;
        }
        self.not_lower(&found, to.next).map_err(|fault| rows::during(&doing, fault))?;
        let key = &Arc::new(key.clone());
        for (seat, row) in self.seats.iter_mut().zip(&found) {
            seat.raise_to(key, row, to.next).map_err(|fault| rows::during(&doing, seat.said(fault)))?;
        }
        // Whoever was left out for its row may be asked again.
        let mut turns = self.turns_of(key);
        turns.views.iter_mut().for_each(|view| *view = View { seen: view.seen, ..View::default() });
        self.keep(key, turns);
        let after = self.look(key)?;
        after.map(|after| (before, after)).ok_or_else(|| Fault::new(FaultKind::Refused, "no store has a row"))
    }

    fn would_repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if is_mark(key) {
            return self.first()?.store.would_repair(key, to);
        }
        check_shared(key)?;
        for seat in &mut self.seats {
            seat.store.writable().map_err(|fault| rows::would_fail(key, seat.said(fault)))?;
        }
        let before = self.look(key)?;
        let found: Vec<Found> = self.inspect_all(key).into_iter().collect::<Result<_, _>>()?;
        self.not_lower(&found, to.next).map_err(|fault| rows::would_fail(key, fault))?;
        let (mut next, mut each) = (u64::MAX, Vec::new());
        for (seat, row) in self.seats.iter().zip(&found) {
            seat.may_adopt(key, row, to.next).map_err(|fault| rows::would_fail(key, seat.said(fault)))?;
            let stands = seat.share.stands(seat.would_stand(key, row, to.next)?);
            next = next.min(stands);
            each.push(format!("{}: next={stands}", seat.name));
        }
        Ok((before, Row { mark: Mark { period: 0, next }, text: each.join("; "), counter: None }))
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        let told: Vec<_> =
            self.seats.iter_mut().map(|seat| (seat.name.clone(), seat.store.facts())).collect();
        if told.iter().all(|(_, facts)| facts.is_err()) {
            let each: Vec<_> = told
                .iter()
                .filter_map(|(name, facts)| Some(format!("{name}: {}", facts.as_ref().err()?)))
                .collect();
            return Err(Fault::new(FaultKind::Unavailable, each.join("; ")));
        }
        let chunk = self.seats.first().map_or(0, |seat| seat.share.chunk);
        let mut all = Facts {
            dialect: "interleaved".to_owned(),
            version: format!("over {} stores, chunk={chunk}", told.len()),
            ..Facts::default()
        };
        for (name, facts) in told {
            match facts {
                Ok(facts) => {
                    let kind = format!("{name}: {} {}", facts.dialect, facts.version);
                    all.durability.push(
                        format!("{} {}", kind.trim_end(), facts.durability.join(" ")).trim_end().to_owned(),
                    );
                    if !facts.tls.is_empty() {
                        let before = if all.tls.is_empty() { "" } else { "; " };
                        all.tls.push_str(&format!("{before}{name}: {}", facts.tls));
                    }
                    all.tables.extend(facts.tables.iter().map(|table| format!("{name}: {table}")));
                    all.warnings.extend(facts.warnings.iter().map(|warning| format!("{name}: {warning}")));
                }
                Err(fault) => all.warnings.push(format!("{name}: {fault}")),
            }
        }
        Ok(all)
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        self.seats.iter_mut().filter_map(|seat| seat.store.release_idle(now_ms)).min()
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        let of_seats: Vec<_> = self
            .seats
            .iter_mut()
            .filter_map(|seat| seat.store.warnings().map(|warnings| (&seat.name, warnings)))
            .collect();
        let named = |(name, warnings): &(&String, Vec<String>)| {
            warnings.iter().map(|warning| format!("{name}: {warning}")).collect::<Vec<_>>()
        };
        (!of_seats.is_empty()).then(|| of_seats.iter().flat_map(named).collect())
    }

    fn created(&mut self) -> Vec<String> {
        self.seats.iter_mut().flat_map(|seat| seat.store.created()).collect()
    }

    fn news(&mut self) -> Vec<Fault> {
        let mut news = std::mem::take(&mut self.news);
        news.extend(self.seats.iter_mut().flat_map(|seat| seat.store.news()));
        news
    }
}
