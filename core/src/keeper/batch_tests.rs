//! Tests of batches for several sources: which are served together, and how a failure of the batch counts.

use crate::store::{BankStore, Catalogue, GiveBack, ReaderStore, RouteStore, RowStore, SlotStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{self, Receiver, Sender};

use super::closing::Closing;
use super::executor::{Command, Executor};
use super::followers::Followers;
use super::own_readers::OwnReaders;
use super::{Keeper, KeptSource};
use crate::bank::BankView;
use crate::callers::waker::ReadyQueue;
use crate::config::MillConfig;
use crate::planner::{Action, Answer, Ask, Batch, Now, Planner, SourceIndex, View};
use crate::process::random::token;
use crate::request::reservation::{Fault, FaultKind, Key, Mark, Request, Reserved};
use crate::segment::{SegmentAction, SegmentSource, Snapshot};
use crate::snowflake::SnowflakeView;
use crate::store::{Facts, Row};
use crate::time::{Clock, ManualClock};

fn spec(text: &str) -> Arc<crate::spec::Spec> {
    Arc::new(MillConfig::parse("memory:").and_then(|config| config.spec(text)).expect("a spec"))
}

/// A planner of so many segments.
fn planner(sources: usize) -> Planner {
    let mut planner = Planner::new(1);
    for index in 0..sources {
        planner.add(index, spec(&format!("segment:s{index}?min_step=10&max_step=1000")));
    }
    planner
}

fn at(boot_ms: u64) -> Now {
    Now { boot_ms, wall_ms: 1_795_218_600_000 }
}

/// A caller waits for a number of this source.
fn lack(planner: &mut Planner, index: SourceIndex, now: Now) {
    let dry = View::Segments(Snapshot { wanted: 1, room: 8, ..Snapshot::default() });
    planner.check(index, &dry, now);
}

/// This source runs low, and no caller waits for it.
fn run_low(planner: &mut Planner, index: SourceIndex, now: Now) {
    let low = View::Segments(Snapshot { left: 1, room: 8, issued: 10 * now.boot_ms, ..Snapshot::default() });
    planner.check(index, &low, now);
}

fn together(batch: Option<Batch<()>>) -> Vec<SourceIndex> {
    match batch {
        Some(Batch::Several(indexes, requests)) => {
            assert_eq!(indexes.len(), requests.len());
            indexes
        }
        other => panic!("not one batch: {other:?}"),
    }
}

fn alone(batch: Option<Batch<()>>) -> SourceIndex {
    match batch {
        Some(Batch::One(index, _)) => index,
        other => panic!("not one source alone: {other:?}"),
    }
}

fn reserved(lo: u64) -> Answer {
    Answer::Reserved(Reserved { lo, hi: lo + 10, period: 0, ttl_ms: None })
}

fn lost() -> Result<Answer, Fault> {
    Err(Fault::new(FaultKind::Unknown, "lost"))
}

#[test]
fn sources_that_are_due_together_fly_together_as_many_as_the_store_takes() {
    let mut planner = planner(5);
    for index in 0..5 {
        lack(&mut planner, index, at(0));
    }
    assert_eq!(together(planner.next_batch(at(0), 3, token)), [0, 1, 2]);
    assert_eq!(together(planner.next_batch(at(0), 3, token)), [3, 4]);
    assert!(planner.next_batch(at(0), 3, token).is_none());
}

#[test]
fn one_source_or_a_store_that_takes_one_flies_as_ever() {
    let mut planner = planner(2);
    lack(&mut planner, 0, at(0));
    assert_eq!(alone(planner.next_batch(at(0), 64, token)), 0);
    lack(&mut planner, 1, at(0));
    planner.complete(0, Ok(reserved(1)), at(0));
    lack(&mut planner, 0, at(0));
    assert_eq!(alone(planner.next_batch(at(0), 1, token)), 1);
    assert_eq!(alone(planner.next_batch(at(0), 0, token)), 0);
}

#[test]
fn a_source_that_stands_in_both_lines_flies_once() {
    let mut planner = planner(2);
    for now in [at(0), at(1_000)] {
        for index in 0..2 {
            run_low(&mut planner, index, now);
        }
    }
    for index in 0..2 {
        lack(&mut planner, index, at(1_000));
    }
    assert_eq!(together(planner.next_batch(at(1_000), 64, token)), [0, 1]);
    assert!(planner.next_batch(at(1_000), 64, token).is_none(), "both are on their way");
}

#[test]
fn urgent_and_background_requests_are_never_batched_together() {
    let mut planner = planner(5);
    for now in [at(0), at(1_000)] {
        for index in [0, 2, 4] {
            run_low(&mut planner, index, now);
        }
    }
    for index in [1, 3] {
        lack(&mut planner, index, at(1_000));
    }
    assert_eq!(together(planner.next_batch(at(1_000), 64, token)), [1, 3]);
    assert_eq!(together(planner.next_batch(at(1_000), 64, token)), [0, 2, 4]);
}

/// Callers wait for a bank all the time, or it wants numbers and none waits.
fn want(planner: &mut Planner, index: SourceIndex, waiting: bool, now: Now) {
    planner.check(index, &View::Bank(BankView { wants: true, waiting, reserved: 0, due_ms: None }), now);
}

#[test]
fn a_bank_whose_callers_always_wait_lets_every_other_source_go_first_after_each_turn() {
    let mut planner = planner(6);
    for index in [6, 7] {
        planner.add(index, spec("business:order?counters=65536"));
    }
    let served = |planner: &mut Planner, now: Now| match planner.next_batch(now, 2, token) {
        Some(Batch::Bank(index, ())) => {
            planner.complete(index, Ok(Answer::Counters), now);
            want(planner, index, true, now);
            vec![index]
        }
        Some(Batch::One(index, _)) => {
            planner.complete(index, Ok(reserved(1 + now.boot_ms)), now);
            vec![index]
        }
        Some(Batch::Several(indexes, _)) => {
            for index in &indexes {
                planner.complete(*index, Ok(reserved(1 + now.boot_ms)), now);
            }
            indexes
        }
        other => panic!("{other:?}"),
    };
    want(&mut planner, 6, true, at(0));
    for index in 0..5 {
        run_low(&mut planner, index, at(0));
        run_low(&mut planner, index, at(1_000));
    }
    let turns: Vec<_> = (0..8).map(|_| served(&mut planner, at(1_000))).collect();
    assert_eq!(turns, [vec![6], vec![0, 1], vec![6], vec![2, 3], vec![6], vec![4], vec![6], vec![6]]);
    // A caller who comes while the bank is served waits for that conversation only, also beside two banks.
    want(&mut planner, 7, true, at(1_000));
    let Some(Batch::Bank(6, ())) = planner.next_batch(at(1_000), 2, token) else { panic!("the first bank") };
    lack(&mut planner, 5, at(1_000));
    planner.complete(6, Ok(Answer::Counters), at(1_000));
    want(&mut planner, 6, true, at(1_000));
    assert_eq!(served(&mut planner, at(1_000)), [7]);
    assert_eq!(served(&mut planner, at(1_000)), [5]);
    assert_eq!(served(&mut planner, at(1_000)), [6]);
}

#[test]
fn a_snowflakes_mark_flies_alone_and_keeps_its_place() {
    let mut planner = planner(4);
    planner.add(4, spec("snowflake:f?worker=1"));
    for index in [0, 1] {
        lack(&mut planner, index, at(0));
    }
    planner.check(4, &View::Snowflake(SnowflakeView::Mark { wanted: Some(0), waiting: true }), at(0));
    for index in [2, 3] {
        lack(&mut planner, index, at(0));
    }
    assert_eq!(together(planner.next_batch(at(0), 64, token)), [0, 1]);
    assert!(matches!(planner.next_batch(at(0), 64, token), Some(Batch::One(4, Ask::Raise { .. }))));
    assert_eq!(together(planner.next_batch(at(0), 64, token)), [2, 3]);
}

#[test]
fn a_source_that_the_store_serves_only_alone_is_retried_alone_once_and_overtakes_no_caller() {
    let mut planner = planner(6);
    for now in [at(0), at(1_000)] {
        for index in 0..3 {
            run_low(&mut planner, index, now);
        }
    }
    assert_eq!(together(planner.next_batch(at(1_000), 64, token)), [0, 1, 2]);
    lack(&mut planner, 3, at(1_000));
    lack(&mut planner, 4, at(1_000));
    planner.complete(0, Ok(reserved(1)), at(1_000));
    planner.retry_alone(1);
    planner.retry_alone(2);
    assert_eq!(together(planner.next_batch(at(1_000), 64, token)), [3, 4], "callers wait for these");
    assert_eq!(alone(planner.next_batch(at(1_000), 64, token)), 1);
    planner.complete(1, Ok(reserved(1)), at(1_000));
    assert_eq!(alone(planner.next_batch(at(1_000), 64, token)), 2);
    planner.complete(2, Ok(reserved(1)), at(1_000));
    for index in 1..3 {
        lack(&mut planner, index, at(2_000));
    }
    assert_eq!(together(planner.next_batch(at(2_000), 64, token)), [1, 2], "together again");
}

#[test]
fn a_source_that_fails_alone_is_retried_alone_and_delays_no_other() {
    let mut planner = planner(3);
    for index in 0..3 {
        lack(&mut planner, index, at(0));
    }
    assert_eq!(together(planner.next_batch(at(0), 64, token)), [0, 1, 2]);
    for index in 0..3 {
        planner.retry_alone(index);
    }
    for index in 0..3 {
        assert_eq!(alone(planner.next_batch(at(0), 64, token)), index);
        // The last one's row is locked.
        planner.complete(index, if index == 2 { lost() } else { Ok(reserved(1)) }, at(0));
    }
    for index in 0..2 {
        lack(&mut planner, index, at(60_000));
    }
    assert_eq!(alone(planner.next_batch(at(60_000), 64, token)), 2, "it has waited for longest");
    assert_eq!(together(planner.next_batch(at(60_000), 64, token)), [0, 1]);
}

#[test]
fn a_batch_that_fails_is_one_failure_however_many_it_carried() {
    let mut planner = planner(64);
    for index in 0..64 {
        lack(&mut planner, index, at(0));
    }
    for failures in 1..4 {
        let now = at(u64::from(failures) * 60_000);
        let indexes = together(planner.next_batch(now, 64, token));
        let pauses: Vec<Duration> = indexes
            .iter()
            .map(|index| match &planner.complete(*index, lost(), now)[..] {
                [Action::Fail(error)] => error.retry_after.expect("a hint"),
                other => panic!("its callers get no error: {other:?}"),
            })
            .collect();
        assert_eq!((indexes.len(), planner.failures()), (64, failures));
        assert!(pauses.iter().all(|pause| *pause == pauses[0]), "one backoff for all: {pauses:?}");
        // 50 ms doubled each time, half of it left to chance.
        assert!(pauses[0] <= Duration::from_millis(50 << (failures - 1)), "{pauses:?}");
        assert!(planner.next_batch(now, 64, token).is_none(), "the store is backed off from");
    }
}

#[test]
fn answers_before_the_connection_died_count_and_the_store_is_backed_off_from() {
    for order in [[0, 1, 2], [2, 1, 0]] {
        let mut planner = planner(3);
        for index in 0..3 {
            lack(&mut planner, index, at(0));
        }
        for _ in 0..3 {
            planner.next_batch(at(0), 1, token);
        }
        for index in 0..3 {
            drop(planner.complete(index, lost(), at(0)));
        }
        assert_eq!(together(planner.next_batch(at(60_000), 64, token)), [0, 1, 2]);
        for index in order {
            let answer = if index == 0 { Ok(reserved(1)) } else { lost() };
            let actions = planner.complete(index, answer, at(60_000));
            let failed = if index == 0 {
                matches!(actions[..], [.., Action::Segment(SegmentAction::Publish(_))])
            } else {
                matches!(actions[..], [Action::Fail(_)])
            };
            assert!(failed, "{actions:?}");
        }
        assert_eq!(planner.failures(), 1, "it has answered, and then failed");
        assert!(planner.next_batch(at(60_000), 64, token).is_none(), "the store is backed off from");
        assert_eq!((planner.seen(0).next, planner.seen(1)), (11, Mark::default()));
    }
}

/// A store with scripted answers that counts its requests.
struct Scripted {
    answer: fn(usize) -> Option<Result<Reserved, Fault>>,
    /// Answers of a batch to leave out.
    short: usize,
    asked: Arc<AtomicU64>,
}

fn no<T>() -> Result<T, Fault> {
    Err(Fault::new(FaultKind::Refused, "not here"))
}

impl RowStore for Scripted {
    fn reserve(&mut self, _: &Request) -> Result<Reserved, Fault> {
        // ordering: Relaxed — a count.
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(Reserved { lo: 1, hi: 11, period: 0, ttl_ms: None })
    }

    fn batch(&self) -> usize {
        64
    }

    fn reserve_all(&mut self, requests: &[Request]) -> Vec<Option<Result<Reserved, Fault>>> {
        // ordering: Relaxed — a count.
        self.asked.fetch_add(1, Ordering::Relaxed);
        (0..requests.len() - self.short).map(self.answer).collect()
    }

    fn give_back(&mut self, _: &GiveBack) -> Result<bool, Fault> {
        no()
    }

    fn raise(&mut self, _: &Key, _: Option<u64>, _: u64) -> Result<u64, Fault> {
        no()
    }

    fn look(&mut self, _: &Key) -> Result<Option<Row>, Fault> {
        no()
    }

    fn repair(&mut self, _: &Key, _: Mark) -> Result<(Option<Row>, Row), Fault> {
        no()
    }
}

impl SlotStore for Scripted {}

impl BankStore for Scripted {}

impl RouteStore for Scripted {}

impl ReaderStore for Scripted {}

impl Catalogue for Scripted {
    fn init(&mut self, _: &[Arc<Key>], _: bool) -> Result<Vec<String>, Fault> {
        no()
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        no()
    }
}

/// An executor of eight sources, each with a caller that lacks a number, and how often its store was asked.
fn executor(
    answer: fn(usize) -> Option<Result<Reserved, Fault>>,
    short: usize,
) -> (Executor, Arc<AtomicU64>, channel::Sender<Command>) {
    let ready = Arc::new(ReadyQueue::default());
    let clock = Clock::Manual(Arc::new(ManualClock::new(0)));
    let mut keeper = Keeper::new(1, ready);
    for index in 0..8 {
        let source = keeper.open(index, spec(&format!("segment:s{index}")), clock.clone()).expect("a source");
        assert!(source.try_next().is_err(), "nothing is in memory, so the caller asks");
    }
    let asked = Arc::new(AtomicU64::new(0));
    let (sender, commands) = channel::unbounded();
    let store: Box<dyn crate::store::Store> = Box::new(Scripted { answer, short, asked: asked.clone() });
    let executor = Executor {
        keeper,
        store: Some(store.into()),
        clock,
        commands,
        counters: Arc::default(),
        events: Arc::new(crate::monitoring::events::Events::new()),
        health: crate::keeper::executor::Health::default(),
        followers: Followers::new(OwnReaders::new(10_000, "test".into()), Arc::default()),
        expiry: None,
    };
    (executor, asked, sender)
}

#[test]
fn each_reservation_is_counted_and_the_trip_once() {
    let range = |_| Some(Ok(Reserved { lo: 1, hi: 11, period: 0, ttl_ms: None }));
    let (mut executor, asked, _sender) = executor(range, 0);
    while executor.turn() {}
    let latency = executor.counters.latency();
    assert_eq!((latency.count, latency.failed, latency.trips), (8, 0, 1));
    // ordering: Relaxed — a count of this thread.
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn an_outage_of_many_is_one_event_and_a_refusal_is_its_sources_own() {
    let answer = |n| {
        let kind = if n < 2 { FaultKind::WentBackwards } else { FaultKind::Unknown };
        Some(Err(Fault::new(kind, format!("number {n}"))))
    };
    let (mut executor, _, _sender) = executor(answer, 0);
    assert!(executor.turn() && !executor.turn(), "then the store is backed off from");
    let events: Vec<String> = executor.events.drain().into_iter().map(|event| event.message).collect();
    assert_eq!(events, ["number 2 (5 more requests of this batch failed with it)", "number 0", "number 1"]);
    let latency = executor.counters.latency();
    assert_eq!((latency.count, latency.failed, latency.trips), (8, 8, 1));
    assert_eq!(executor.keeper.failures(), 1);
}

#[test]
fn a_request_without_an_answer_is_retried_alone() {
    let range = |n| (n != 3).then_some(Ok(Reserved { lo: 1, hi: 11, period: 0, ttl_ms: None }));
    let (mut executor, asked, _sender) = executor(range, 2);
    while executor.turn() {}
    // ordering: Relaxed — a count of this thread.
    assert_eq!(asked.load(Ordering::Relaxed), 1 + 3, "the fourth, and the last two");
    assert_eq!(executor.counters.latency().count, 8);
}

/// A store that serves one source and is silent for every other until the test lets it go.
struct Silent {
    asked: Sender<()>,
    goes_on: Receiver<()>,
    next: u64,
}

impl RowStore for Silent {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        if request.key.serial.is_none() && !request.key.name.contains("aging") {
            let _ = self.asked.send(());
            let _ = self.goes_on.recv();
            return Err(Fault::new(FaultKind::Unavailable, "silent"));
        }
        let lo = self.next;
        self.next += request.len;
        Ok(Reserved { lo, hi: lo + request.len, period: request.period, ttl_ms: None })
    }

    fn give_back(&mut self, _: &GiveBack) -> Result<bool, Fault> {
        Ok(true)
    }

    fn raise(&mut self, _: &Key, _: Option<u64>, _: u64) -> Result<u64, Fault> {
        Ok(0)
    }

    fn look(&mut self, _: &Key) -> Result<Option<Row>, Fault> {
        Ok(None)
    }

    fn repair(&mut self, _: &Key, _: Mark) -> Result<(Option<Row>, Row), Fault> {
        Err(Fault::new(FaultKind::Refused, "nothing is repaired here"))
    }
}

impl SlotStore for Silent {}

impl BankStore for Silent {}

impl RouteStore for Silent {}

impl ReaderStore for Silent {}

impl Catalogue for Silent {
    fn init(&mut self, _: &[Arc<Key>], _: bool) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        Ok(Facts::default())
    }
}

/// Takes from a source whose keeper waits for a silent store, until nothing is left.
fn left_while_the_store_is_silent(spec_of_the_source: &str) {
    let (asked, is_asked) = channel::unbounded();
    let (lets_go, goes_on) = channel::unbounded();
    let (commands, inbox) = channel::unbounded();
    let ready = Arc::new(ReadyQueue::default());
    let executor = Executor {
        keeper: Keeper::new(1, ready.clone()),
        store: Some((Box::new(Silent { asked, goes_on, next: 1 }) as Box<dyn crate::store::Store>).into()),
        clock: Clock::System,
        commands: inbox,
        counters: Arc::default(),
        events: Arc::new(crate::monitoring::events::Events::new()),
        health: crate::keeper::executor::Health::default(),
        followers: Followers::new(OwnReaders::new(10_000, "test".into()), Arc::default()),
        expiry: None,
    };
    let thread = std::thread::spawn(move || executor.run());
    ready.set_keeper(thread.thread().clone());
    let open = |text: &str, index| {
        let source = SegmentSource::new(spec(text), ready.clone(), index, Clock::System);
        commands.send(Command::Add(KeptSource::Segment(source.clone()))).expect("a keeper");
        ready.unpark();
        source
    };
    let dated = open(spec_of_the_source, 0);
    dated.lease(1).expect("a number");
    let other = open("segment:other", 1);
    assert!(other.try_next().is_err());
    is_asked.recv_timeout(Duration::from_secs(30)).expect("the keeper asks the store, which is silent");
    // Far more than the source's numbers live, far less than they would last.
    let began = std::time::Instant::now();
    while matches!(dated.take_if(1, 1), Ok(Some(_))) {
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{spec_of_the_source}: numbers outlive their time"
        );
        std::thread::yield_now();
    }
    drop(lets_go);
    let (closing, wait) = Closing::begin();
    commands.send(Command::Close(closing)).expect("a keeper");
    ready.unpark();
    wait.recv_timeout(Duration::from_secs(30)).expect("a close");
    thread.join().expect("no panic");
}

#[test]
fn a_date_ends_while_the_keeper_waits_for_a_silent_store() {
    left_while_the_store_is_silent("serial:t/c?date=yyyyMMddHHmmss&step=900000000&number=0000000000");
}

#[test]
fn a_time_to_live_ends_while_the_keeper_waits_for_a_silent_store() {
    left_while_the_store_is_silent("segment:aging?step=900000000&ttl=1s");
}
