//! CosId's own segments beside keymill's on one row of its table: two nodes, two mills, and no number twice.
//!
//! `ci/steps/cosid` compiles the node and names it in `KEYMILL_TEST_COSID`, the class path of `CosidNode`.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use keymill::{Change, Mill};
use keymill_tests::ci::patient;
use keymill_tests::mariadb;

/// How many ids each of CosId's nodes takes, and how far its row moves at a time.
const COUNT: u64 = 200_000;
const STEP: u64 = 100;

#[test]
fn two_nodes_of_cosid_and_two_mills_on_one_row_never_take_a_number_twice() {
    let classes =
        std::env::var("KEYMILL_TEST_COSID").expect("KEYMILL_TEST_COSID is not set; run `ci/steps/cosid`");
    let (config, name) = (mariadb::url(), format!("orders{}", fastrand::u32(..)));
    let spec = format!("segment:shop.{name}?scheme=cosid&step={STEP}&buffer=20ms&deadline=60s");
    let mills: Vec<Mill> = (0..2).map(|_| Mill::open(&patient(&config)).expect("a mill")).collect();
    mills[0].init(&[&spec], Change::Apply).expect("init");
    let sources: Vec<_> = mills.iter().map(|mill| mill.source(&spec).expect("a source")).collect();
    // keymill makes the row first: CosId's nodes need an existing one.
    let mut taken: Vec<(&str, Vec<u64>)> = vec![("keymill", vec![sources[0].next().expect("an id")])];
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let ours: Vec<_> = sources
            .iter()
            .map(|source| {
                let over = &over;
                scope.spawn(move || super::ids_until(over, source))
            })
            .collect();
        let nodes: Vec<_> = (0..2)
            .map(|_| {
                let mut node = Command::new("java");
                node.args(["-cp", &classes, "CosidNode", &config, "shop", &name]);
                node.args([STEP, COUNT].map(|number| number.to_string())).stdout(Stdio::piped());
                scope.spawn(move || node.output().expect("java runs"))
            })
            .collect();
        let ended: Vec<_> = nodes.into_iter().map(|node| node.join().expect("a node")).collect();
        // ordering: Relaxed — a flag.
        over.store(true, Ordering::Relaxed);
        for ids in ours {
            taken.push(("keymill", ids.join().expect("a mill's taker")));
        }
        for node in ended {
            assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
            let lines = String::from_utf8(node.stdout).expect("numbers");
            taken.push(("cosid", lines.lines().map(|line| line.parse().expect("a number")).collect()));
        }
    });
    let mut seen: HashMap<u64, usize> = HashMap::new();
    for (at, (who, ids)) in taken.iter().enumerate() {
        for id in ids {
            if let Some(other) = seen.insert(*id, at) {
                panic!("{id} was taken by {who} ({at}) and by {} ({other})", taken[other].0);
            }
        }
    }
    let count_of =
        |who: &str| taken.iter().filter(|(taker, _)| *taker == who).flat_map(|(_, ids)| ids).count();
    // The order of ranges on the row, by program.
    let mut turns: Vec<(u64, usize)> = seen.into_iter().collect();
    turns.sort_unstable();
    let turns = turns.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    println!(
        "ids  cosid: {} by two of its nodes, {} by two mills, {turns} turns on one row, none twice",
        count_of("cosid"),
        count_of("keymill")
    );
    assert_eq!(count_of("cosid"), 2 * COUNT as usize);
    assert!(turns > 50, "they have not met on the row");
}
