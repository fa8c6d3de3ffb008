//! Repair of a pool of leased workers while processes use it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Mill};
use keymill_tests::takers::persistently;

fn memory() -> String {
    format!("memory:pool{}", fastrand::u32(..))
}

#[test]
fn a_process_whose_pool_is_repaired_leases_another_worker_and_repeats_nothing() {
    let config = memory();
    let spec = "snowflake:tx?lease=1s&deadline=60s";
    let (running, operator) = (Mill::open(&config).unwrap(), Mill::open(&config).unwrap());
    let source = running.source(spec).unwrap();
    let mut ids = BTreeSet::from([source.next().unwrap()]);
    let worker_of = |id: u64| source.parse(id).unwrap().worker;
    let highest = *ids.last().unwrap();
    operator.source(spec).unwrap().repair(highest, Change::Apply).unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let id = source.next().unwrap();
        assert!(ids.insert(id), "{id} was issued twice");
        if worker_of(id) != worker_of(highest) {
            break;
        }
        assert!(Instant::now() < give_up, "the process never noticed");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn no_worker_begins_before_the_time_to_which_its_pool_was_raised() {
    let mill = Mill::open(&memory()).unwrap();
    let source = mill.source("snowflake:tx?deadline=100ms").unwrap();
    let later = source.layout().unwrap();
    let ahead = later.pack(later.tick_at(now_ms() + 900_000).unsigned_abs(), 0, 0);
    source.repair(ahead, Change::Apply).unwrap();
    // The mill's own thread has to ask first.
    let refused = persistently(|| source.next()).unwrap_err();
    assert_eq!(refused.code, Code::NoWorkerFree, "{refused}");
    assert!(refused.message.contains("`repair` raised the pool"), "{refused}");
    let lower = later.pack(1, 0, 0);
    assert_eq!(source.repair(lower, Change::Apply).unwrap_err().code, Code::StoreRefused);
    let no_id = source.repair(u64::MAX, Change::Apply).unwrap_err();
    assert_eq!(no_id.code, Code::InvalidArgument, "{no_id}");
}

fn now_ms() -> i64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64
}
