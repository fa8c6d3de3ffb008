//! Doubtful marks, and places in line.

use super::*;
use crate::config::MillConfig;
use crate::reservation::{Fault, FaultKind};

fn planner_of(spec: &str) -> Planner {
    let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
    let mut planner = Planner::new(1);
    planner.add(0, Arc::new(spec));
    planner
}

fn at(boot_ms: u64) -> Now {
    Now { boot_ms, wall_ms: 1_795_218_600_000 }
}

fn next(planner: &mut Planner, now: Now) -> Option<(Slot, Ask)> {
    planner.next_flight(now, 1).map(|flight| match flight {
        Flight::Alone(slot, ask) => (slot, ask),
        Flight::Together(slots, _) => panic!("{slots:?} fly together"),
    })
}

fn lost() -> Result<Answer, Fault> {
    Err(Fault::new(FaultKind::Unknown, "lost"))
}

/// Found by `tests/simulation`, seed 1: a server that froze for two timeouts cost the process its worker id.
#[test]
fn two_lost_answers_in_a_row_leave_a_mark_that_may_stand_in_either_place() {
    let mut planner = planner_of("snowflake:f?worker=1");
    let mut boot = 0;
    let mut raise = |planner: &mut Planner, to: u64, answer: Result<Answer, Fault>| {
        boot += 60_000;
        planner.look(0, &View::Time { wanted_mark: Some(to), waiting: false }, at(boot));
        let (slot, ask) = next(planner, at(boot)).expect("a flight");
        (ask, planner.answer(slot, answer, at(boot)))
    };
    raise(&mut planner, 0, Ok(Answer::Raised(0)));
    raise(&mut planner, 100, Ok(Answer::Raised(0)));
    raise(&mut planner, 200, lost()); // carried out
    let (ask, _) = raise(&mut planner, 300, lost()); // held back
    assert!(matches!(ask, Ask::Raise { expect: None, to: 300, .. }));
    let (_, actions) = raise(&mut planner, 250, Ok(Answer::Raised(200)));
    assert!(matches!(actions[..], [Action::Mark(250)]), "{actions:?}");
    // Now the one that was held back comes through.
    let (_, actions) = raise(&mut planner, 400, Ok(Answer::Raised(300)));
    assert!(matches!(actions[..], [Action::Mark(400)]), "{actions:?}");
    let (ask, _) = raise(&mut planner, 500, Ok(Answer::Raised(400)));
    assert!(matches!(ask, Ask::Raise { expect: Some(400), .. }), "nothing is in doubt any more: {ask:?}");
}

#[test]
fn callers_who_ring_while_the_store_rests_take_one_place_in_line() {
    let mut planner = planner_of("segment:orders");
    let dry = View::Supply(Sight { wanted: 1, room: 8, ..Sight::default() });
    planner.look(0, &dry, at(0));
    let (slot, _) = next(&mut planner, at(0)).expect("a flight");
    planner.answer(slot, lost(), at(0));
    for _ in 0..1000 {
        planner.look(0, &dry, at(1));
        assert!(next(&mut planner, at(1)).is_none());
    }
    assert!(planner.urgent.len() + planner.line.len() <= 2, "{} places", planner.urgent.len());
}
