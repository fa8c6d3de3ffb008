//! Many ids: from many threads, at many rates, after any steps.

use std::collections::HashSet;
use std::sync::Barrier;

use proptest::prelude::*;

use super::super::*;
use super::{Rig, rises};

#[test]
fn eight_threads_never_get_the_same_id() {
    // The last two run into the end of the tick all the time.
    let cases = [
        ("time:41@1ms,worker:1,seq:21", 3000, 50_000),
        ("twitter", 3000, 50_000),
        ("twitter", 0, 20_000),
        ("js53", 1, 1000),
    ];
    for (layout, lead, count) in cases {
        let generator =
            Generator::new(Layout::parse(layout, "").unwrap(), 1, ClockBack::Borrow, lead, Clock::System)
                .unwrap();
        generator.start(0).unwrap();
        generator.raise_mark(u64::MAX);
        let barrier = Barrier::new(8);
        let ids: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let mut mine = Vec::with_capacity(60_000);
                        let mut batch = [0; 100];
                        while mine.len() < count {
                            if let Ok(id) = generator.try_next() {
                                mine.push(id);
                            }
                            if mine.len() % 1000 == 0
                                && let Ok(count) = generator.try_take(&mut batch)
                            {
                                mine.extend_from_slice(&batch[..count]);
                            }
                        }
                        mine
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|mine| rises(mine)));
        let all: HashSet<u64> = ids.iter().flatten().copied().collect();
        assert_eq!(all.len(), ids.iter().map(Vec::len).sum::<usize>());
        assert_eq!(generator.issued(), all.len() as u64);
    }
}

#[test]
fn closing_under_load_leaves_every_id_below_the_last_mark() {
    for _ in 0..50 {
        let generator =
            Generator::new(Layout::parse("twitter", "").unwrap(), 1, ClockBack::Borrow, 3000, Clock::System)
                .unwrap();
        generator.start(0).unwrap();
        generator.raise_mark(u64::MAX);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut last = 0;
                        loop {
                            match generator.try_next() {
                                Ok(id) => last = id,
                                Err(Refusal::Closed) => return last,
                                Err(_) => std::thread::yield_now(),
                            }
                        }
                    })
                })
                .collect();
            while generator.issued() < 1000 {
                std::thread::yield_now();
            }
            let mark = generator.close().unwrap();
            for thread in threads {
                assert!(generator.layout().unpack(thread.join().unwrap()).tick < mark);
            }
        });
    }
}

#[derive(Clone, Debug)]
enum Step {
    Next(u16),
    Take(u16),
    Advance(u32),
    Jump(i64),
    Keeper,
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u16..400).prop_map(Step::Next),
        (1u16..2000).prop_map(Step::Take),
        (0u32..5000).prop_map(Step::Advance),
        (-20_000i64..20_000).prop_map(Step::Jump),
        Just(Step::Keeper),
        Just(Step::Restart),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_ids_rise_and_lead_no_more_than_allowed(
        layout in prop::sample::select(vec!["twitter", "uid", "sonyflake", "js53", "time:41@1ms,worker:1,seq:1"]),
        back in prop::sample::select(vec![ClockBack::Borrow, ClockBack::Wait, ClockBack::Error]),
        lead in prop::sample::select(vec![0u64, 1, 10, 500, 3000, 20_000]),
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let mut rig = Rig::new(layout, back, lead);
        let mut last = 0;
        let mut batch = vec![0; 2000];
        let mut running = true;
        let mut highest = rig.clock.wall_ms();
        for step in steps {
            let mut ids = Vec::new();
            match step {
                Step::Next(n) if running => {
                    for _ in 0..n {
                        ids.extend(rig.generator.try_next());
                    }
                }
                Step::Take(n) if running => {
                    if let Ok(count) = rig.generator.try_take(&mut batch[..usize::from(n)]) {
                        prop_assert!(count >= 1);
                        ids.extend_from_slice(&batch[..count]);
                    }
                }
                Step::Advance(ms) => rig.clock.advance(u64::from(ms)),
                Step::Jump(ms) => {
                    // What a clock that is wrong can do to ids no mark has covered yet is not promised.
                    if running {
                        rig.keeper();
                    }
                    rig.clock.set_wall(rig.clock.wall_ms() + ms);
                }
                Step::Keeper if running => {
                    rig.keeper();
                }
                Step::Restart => {
                    if running {
                        rig.keeper();
                    }
                    running = rig.restart().is_ok();
                }
                _ => {}
            }
            for id in ids {
                prop_assert!(id > last, "{} after {}", id, last);
                last = id;
                let tick = rig.layout.unpack(id).tick;
                // A step back is seen by the next reading of the precise clock, so the highest time counts.
                prop_assert!(rig.layout.wall_ms_of(tick) <= highest + lead as i64, "{}", id);
            }
            highest = highest.max(rig.clock.wall_ms());
        }
    }
}
