//! Live moves through the public API: what each step waits for, and what a reader answers that was cut off.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::{KeepReader, Key, OwnReader, ReaderStore, RouteStore, Scheme, StoreIndex};
use keymill::{Change, Code, Error, Mill, MoveOptions, MovePhase, MovePlan, MoveStatus, Moves, Router};

const SETTLE_MS: u64 = 50;

fn table() -> String {
    format!(
        "version = 1\nsettle = \"{SETTLE_MS}ms\"\n[[range]]\nupper = 32767\nshard = \"a\"\n[[range]]\nupper = 65535\nshard = \"b\"\n"
    )
}

/// Asks again while the answer is `NOT_READY`: readers follow within a second.
fn in_time<T>(mut ask: impl FnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error) if error.code == Code::NotReady && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

struct Operator {
    mill: Mill,
    moves: Moves,
    plan: MovePlan,
}

impl Operator {
    /// Half of the genes of `b` are to go to `c`.
    fn new(store: &str) -> Operator {
        let mill = Mill::open(store).expect("a mill");
        mill.put_routes("orders", &table(), Change::Apply).expect("stored");
        let moves = mill.moves("orders").expect("a name");
        let plan = moves.plan(&[("a", 2), ("b", 1), ("c", 1)], None).expect("a plan");
        assert_eq!((plan.moves.len(), plan.moves[0].first, plan.moves[0].last), (1, 49_152, 65_535));
        Operator { mill, moves, plan }
    }

    fn start(&self) -> MoveStatus {
        let options = MoveOptions { watch: Duration::ZERO, ..MoveOptions::default() };
        in_time(|| self.moves.start(&self.plan, 1, &options, Change::Apply))
    }

    fn verify(&self) {
        let status = in_time(|| self.moves.begin_verify(Change::Apply));
        self.compare(&status);
    }

    fn compare(&self, status: &MoveStatus) {
        let began_at = status.moving.as_ref().and_then(|moving| moving.verify_from).expect("a time");
        assert_eq!(began_at, status.now_ms + SETTLE_MS);
        while self.moves.status().expect("a status").now_ms < began_at {
            std::thread::sleep(Duration::from_millis(5));
        }
        in_time(|| self.moves.verified(began_at, Change::Apply));
    }

    fn next(&self) -> MoveStatus {
        in_time(|| self.moves.next(None, Change::Apply))
    }
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn a_move_is_finished_by_two_steps_after_a_comparison_of_its_own_and_goes_back_before_the_second() {
    let operator = Operator::new("memory:moves_last");
    let mill = Mill::open("memory:moves_last").expect("a mill");
    let router = mill.router("orders").expect("a router");
    operator.start();
    operator.verify();
    let cut_over =
        || while operator.next().moving.is_none_or(|moving| moving.phase != MovePhase::CutOver(100)) {};
    cut_over();
    let finish = || operator.moves.finish(Some(Duration::ZERO), Change::Apply);
    let early = in_time_or(Code::InvalidConfig, finish);
    assert!(early.message.contains("since all ids are read from the new shard"), "{early}");
    operator.verify();
    let pausing = in_time(finish);
    assert_eq!(phase(&pausing), Some(MovePhase::Pausing));
    follows(&router, pausing.version);
    let route = router.route(50_000 << 47).expect("a route");
    assert_eq!((route.read, route.write, route.mirror, route.paused), ("c", None, None, true));
    assert_eq!(phase(&in_time(|| operator.moves.back(Change::Apply))), Some(MovePhase::Mirror));
    operator.verify();
    cut_over();
    operator.verify();
    assert_eq!(phase(&in_time(finish)), Some(MovePhase::Pausing));
    assert_eq!(in_time(finish).moving, None);
}

/// The error of this code, once no reader lags any more.
fn in_time_or(code: Code, ask: impl Fn() -> Result<MoveStatus, Error>) -> Error {
    in_time(|| match ask() {
        Err(error) if error.code == code => Ok(error),
        Err(error) => Err(error),
        Ok(status) => panic!("{status:?}"),
    })
}

#[test]
fn no_step_stores_a_version_above_the_largest() {
    let operator = Operator::new("memory:moves-largest");
    let largest = 1_u64 << 52;
    let before = table().replace("version = 1", &format!("version = {}", largest - 1));
    operator.mill.put_routes("orders", &before, Change::Apply).expect("stored");
    let plan = operator.moves.plan(&[("a", 2), ("b", 1), ("c", 1)], None).expect("a plan");
    let operator = Operator { plan, ..operator };
    assert_eq!(operator.start().version, largest);
    let refused = operator.moves.back(Change::Apply).expect_err("no version is left");
    assert!(refused.code == Code::StoreRefused && refused.message.contains("2^52"), "{refused}");
    assert_eq!(operator.moves.status().map(|status| status.version), Ok(largest));
}

fn follows(router: &Router, version: u64) {
    let not_yet = || Error::new(Code::NotReady, "it has not followed");
    in_time(|| if router.version() == version { Ok(()) } else { Err(not_yet()) });
}

fn phase(status: &MoveStatus) -> Option<MovePhase> {
    status.moving.as_ref().map(|moving| moving.phase)
}

/// Which share of the ids that move a router reads from the new shard, and whether each is written to both.
fn share(router: &Router) -> f64 {
    const IDS: u64 = 10_000;
    let new = (0..IDS).filter(|number| {
        let route = router.route(50_000 << 47 | number).expect("a route");
        assert_eq!((route.write, route.mirror), (Some("b"), Some("c")));
        route.read == "c"
    });
    new.count() as f64 / IDS as f64
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn a_shard_is_split_while_a_reader_follows_and_each_id_goes_over_once() {
    let operator = Operator::new("memory:moves-split");
    let mill = Mill::open("memory:moves-split").expect("a mill");
    let router = mill.router("orders").expect("a router");
    assert_eq!(operator.moves.status().expect("a status").readers.len(), 1);
    let begun = operator.start();
    assert_eq!((phase(&begun), begun.version), (Some(MovePhase::Mirror), 2));
    let moved = operator.moves.next(None, Change::Apply).expect_err("nothing was compared");
    assert!(moved.code == Code::InvalidConfig && moved.message.contains("move verify"), "{moved}");
    operator.verify();
    let (mut served, mut last) = (vec![false; 100], 0.0);
    for percent in [5, 25, 50, 100] {
        let dry = in_time(|| operator.moves.next(None, Change::DryRun));
        assert_eq!(phase(&dry), Some(MovePhase::CutOver(percent)));
        assert!(operator.moves.status().expect("a status").version < dry.version, "nothing was stored");
        let status = operator.next();
        follows(&router, status.version);
        let share = share(&router);
        assert!((share * 100.0 - f64::from(percent)).abs() <= 0.5 && share > last, "{share} at {percent} %");
        last = share;
        for (number, was) in (0..).zip(&mut served) {
            let is = router.route(60_000 << 47 | number).expect("a route").read == "c";
            assert!(is || !*was, "number {number} went back");
            *was = is;
        }
        assert_eq!(router.route(40_000 << 47).expect("a route").mirror, None, "the others stay");
    }
    operator.verify();
    assert_eq!(phase(&in_time(|| operator.moves.finish(None, Change::Apply))), Some(MovePhase::Pausing));
    let ended = in_time(|| operator.moves.finish(None, Change::Apply));
    assert_eq!(ended.moving, None);
    follows(&router, ended.version);
    let route = router.route(50_000 << 47).expect("a route");
    assert_eq!((route.shard, route.read, route.mirror), ("c", "c", None));
    // The plan is done, and its moves are those of a table that is gone.
    let again = operator.start_again().expect_err("it was made");
    assert_eq!(again.code, Code::InvalidConfig, "{again}");
    mill.close();
    assert_eq!(operator.moves.status().expect("a status").readers, [], "a clean close removes the row");
}

impl Operator {
    fn start_again(&self) -> Result<MoveStatus, Error> {
        self.moves.start(&self.plan, 1, &MoveOptions::default(), Change::Apply)
    }
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn of_two_operators_at_once_one_makes_the_step() {
    let operator = Operator::new("memory:moves-two");
    operator.start();
    let made: usize = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8).map(|_| scope.spawn(|| operator.moves.back(Change::Apply))).collect();
        tries
            .into_iter()
            .map(|made| match made.join().expect("an answer") {
                Ok(status) => {
                    assert_eq!((status.version, status.moving), (3, None));
                    1
                }
                Err(error) => {
                    assert!(matches!(error.code, Code::InvalidConfig | Code::StoreRefused), "{error}");
                    0
                }
            })
            .sum()
    });
    assert_eq!(made, 1);
    for (nth, says) in [(0, "no move 0"), (2, "no move 2")] {
        let error = operator.moves.start(&operator.plan, nth, &MoveOptions::default(), Change::Apply);
        assert!(error.expect_err(says).message.contains(says));
    }
    assert_eq!(
        operator.mill.moves("none").and_then(|none| none.status()).expect_err("no table").code,
        Code::StoreRefused
    );
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn a_step_of_an_operator_who_saw_an_earlier_phase_is_refused_wherever_the_move_has_come_since() {
    let operator = Operator::new("memory:moves-seen");
    let nothing = operator.moves.status().expect("a status");
    let mirrored = operator.start();
    operator.verify();
    let refused = |seen: &MoveStatus, from: &str, to: &str| {
        let moves = operator.moves.only_from(seen);
        for error in
            [moves.back(Change::Apply), moves.next(None, Change::Apply), moves.finish(None, Change::DryRun)]
        {
            let error = error.expect_err("another operator was faster");
            let says =
                format!("another operator has made a step of router `orders` meanwhile, from {from} to {to}");
            assert!(error.code == Code::StoreRefused && error.message.contains(&says), "{error}");
        }
    };
    refused(&nothing, "no move", "`mirror`");
    // A comparison takes no step.
    let first = in_time(|| operator.moves.only_from(&mirrored).next(None, Change::Apply));
    refused(&mirrored, "`mirror`", "`cut over 5 %`");
    in_time(|| operator.moves.only_from(&first).back(Change::Apply));
    // The same phase, reached a second time.
    refused(&mirrored, "`mirror`", "`mirror`");
    refused(&first, "`cut over 5 %`", "`mirror`");
    operator.moves.back(Change::Apply).expect("nothing moves");
    refused(&first, "`cut over 5 %`", "no move");
    // The same phase of another move.
    let again = operator.moves.plan(&[("a", 2), ("b", 1), ("c", 1)], None).expect("a plan");
    in_time(|| operator.moves.start(&again, 1, &MoveOptions::default(), Change::Apply));
    refused(&mirrored, "`mirror`", "`mirror`");
}

/// It refuses ids of the range that moves, and answers for the others.
fn has_lost(router: &Router) -> bool {
    assert_eq!(router.route(40_000 << 47).expect("a range that stays").read, "b");
    match router.route(50_000 << 47) {
        Ok(route) => {
            assert_eq!((route.read, route.mirror), ("b", Some("c")));
            false
        }
        Err(lost) => {
            assert_eq!((lost.code, lost.retry_after().is_some()), (Code::LeaseLost, true), "{lost}");
            assert!(lost.message.contains("gene 50000") && lost.message.contains("`orders`"), "{lost}");
            for key in [router.route_wide(50_000 << 111), router.route_gene(50_000.into())] {
                assert_eq!(key.expect_err("it moves").code, Code::LeaseLost);
            }
            true
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn a_router_of_a_closed_mill_refuses_what_moves_and_answers_for_the_rest() {
    let operator = Operator::new("memory:moves-closed");
    operator.start();
    let mill = Mill::open("memory:moves-closed").expect("a mill");
    let router = mill.router("orders").expect("a router");
    assert!(!has_lost(&router));
    mill.close();
    assert!(has_lost(&router), "the store does not know this process any more");
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn a_reader_whose_renewals_fail_or_are_not_answered_refuses_what_moves_in_time_and_comes_back() {
    // The first request adds the row.
    for (name, script) in [("down", "ack,down:20"), ("silent", "ack,silent:60s")] {
        let store = format!("memory:moves-{name}");
        let operator = Operator::new(&store);
        operator.start();
        let mill = Mill::open(&format!("{store}?reader_lease=1s&script={script}")).expect("a mill");
        let router = mill.router("orders").expect("a router");
        let began = Instant::now();
        while !has_lost(&router) {
            assert!(began.elapsed() < Duration::from_secs(50), "{name}: its lease has not ended");
            std::thread::sleep(Duration::from_millis(20));
        }
        if name == "silent" {
            // The keeper still waits for the store, and a close would wait for it.
            std::mem::forget(mill);
            continue;
        }
        let told = || mill.events().iter().any(|event| event.kind.name() == "reader_not_renewed");
        assert!(told(), "an event tells why");
        while has_lost(&router) {
            assert!(began.elapsed() < Duration::from_secs(120), "the store answers again");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn key() -> Key {
    Key::of_readers("orders")
}

/// Writes the row of a process, as its mill would.
fn keep_row(own: &mut OwnReader, version: u64, lease_ms: u64) {
    let key = Arc::new(key());
    let keep = KeepReader { version, lease_ms, owner: "host:7".into(), store: StoreIndex::ONLY };
    MemoryStore::new(Memory::named("moves-lost")).keep_reader(&key, own, &keep).expect("kept");
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn a_step_waits_for_a_reader_that_has_not_followed_and_for_one_that_was_lost_before_the_move() {
    let operator = Operator::new("memory:moves-lost");
    let (mut follows, mut lost) = (OwnReader::default(), OwnReader::default());
    for own in [&mut follows, &mut lost] {
        keep_row(own, 1, 600_000);
    }
    operator.start();
    let error = operator.moves.begin_verify(Change::Apply).expect_err("none has followed");
    assert!(
        error.code == Code::NotReady && error.message.contains("2 readers are not yet at version 2"),
        "{error}"
    );
    assert!(error.retry_after().is_some());
    keep_row(&mut follows, 2, 600_000);
    // It runs the table of before, and is not heard of any more.
    keep_row(&mut lost, 1, 1);
    let ended =
        || operator.moves.status().expect("a status").readers.into_iter().find(|reader| !reader.is_living());
    let gone = loop {
        if let Some(gone) = ended() {
            break gone;
        }
    };
    assert_eq!((gone.version, gone.owner.as_str()), (1, "host:7"));
    let error = operator.moves.begin_verify(Change::Apply).expect_err("it would write to the old shard only");
    assert!(error.code == Code::NotReady && error.message.contains("--gone"), "{error}");
    assert_eq!(error.retry_after(), None, "waiting does not help");
    assert_eq!(operator.moves.forget(&[gone.member, 7]), Ok(vec![gone.member]));
    let status = in_time(|| operator.moves.begin_verify(Change::Apply));
    keep_row(&mut follows, 3, 600_000);
    operator.compare(&status);
    keep_row(&mut follows, 4, 600_000);
    assert_eq!(phase(&operator.next()), Some(MovePhase::CutOver(5)));
    // One that was lost since knows of the move, and refuses what moves.
    keep_row(&mut follows, 4, 1);
    while ended().is_none() {}
    assert_eq!(phase(&operator.next()), Some(MovePhase::CutOver(25)));
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn a_store_that_is_restored_from_before_the_move_makes_no_step_until_a_higher_version_is_stored() {
    let operator = Operator::new("memory:moves-restored");
    let backup = operator.mill.route_table("orders").expect("a table");
    let mill = Mill::open("memory:moves-restored").expect("a mill");
    let router = mill.router("orders").expect("a router");
    operator.start();
    follows(&router, 2);
    operator.verify();
    operator.next();
    follows(&router, 5);
    let served = (0..100).map(|number| router.route(50_000 << 47 | number).expect("a route").read.to_owned());
    let served: Vec<String> = served.collect();
    let orders = Key { scheme: Scheme::Route, table: "keymill_route".to_owned(), ..key() };
    let mut store = MemoryStore::new(Memory::named("moves-restored"));
    assert_eq!(store.replace_route(&orders, Some(5), (1, &backup)), Ok(true));
    let error = operator.start_again().expect_err("a reader knows more than the store");
    assert!(error.code == Code::StoreRefused && error.message.contains("restored from a backup"), "{error}");
    for (number, read) in (0..).zip(&served) {
        assert_eq!(router.route(50_000 << 47 | number).expect("a route").read, *read, "it goes on as it was");
    }
    let late = Mill::open("memory:moves-restored").expect("a mill");
    let error = late.router("orders").expect_err("it would not know of the move");
    assert_eq!(error.code, Code::StoreWentBackwards, "{error}");
    assert_eq!(operator.moves.status().expect("a status").readers.len(), 1, "it left no row");
    let above = backup.replace("version = 1", "version = 6");
    operator.mill.put_routes("orders", &above, Change::Apply).expect("stored");
    follows(&router, 6);
    assert_eq!(late.router("orders").expect("a router").version(), 6);
    let plan = operator.moves.plan(&[("a", 2), ("b", 1), ("c", 1)], None).expect("a plan");
    in_time(|| operator.moves.start(&plan, 1, &MoveOptions::default(), Change::Apply));
}
