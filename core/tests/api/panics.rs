//! A driver that panics costs one answer and one connection, through the public API.

use keymill::{Change, Code, Mill};

fn metric(mill: &Mill, name: &str) -> Option<u64> {
    mill.metrics().lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

#[test]
fn a_driver_that_panics_costs_its_range_and_the_caller_only_waits() {
    let mill = Mill::open("memory:?script=panic").unwrap();
    let orders = mill.source("segment:orders?step=1000&deadline=20s").unwrap();
    // 1 to 1000 were reserved, but whether they were nobody knows.
    assert_eq!(orders.next().unwrap(), 1001);
    assert_eq!(metric(&mill, "keymill_driver_panics_total"), Some(1));
    assert_eq!(metric(&mill, "keymill_keeper_restarts_total"), Some(0));
    assert_eq!(metric(&mill, "keymill_refills_failed_total"), Some(1));
    let events = mill.events();
    let told = events.iter().find(|event| event.kind == keymill::EventKind::DriverPanicked).unwrap();
    assert!(told.message.contains("scripted to panic") && told.message.contains("report"), "{told}");
}

#[test]
fn a_driver_that_panics_each_time_is_an_outage_within_the_deadline() {
    let mill = Mill::open(&format!("memory:?script={}", ["panic"; 50].join(","))).unwrap();
    let orders = mill.source("segment:orders?deadline=200ms").unwrap();
    let error = orders.next().unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    assert!(error.message.contains("panicked"), "{error}");
    mill.close();
    assert_eq!(orders.next().unwrap_err().code, Code::Closed);
}

#[test]
fn a_call_whose_driver_panics_answers_and_the_next_one_works() {
    let mill = Mill::open("memory:?script=ack,panic").unwrap();
    let orders = mill.source("segment:orders?step=10").unwrap();
    assert_eq!(orders.next().unwrap(), 1);
    let error = orders.repair(5000, Change::Apply).unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    assert!(error.message.contains("panicked"), "{error}");
    assert!(orders.row().unwrap().is_some());
    assert_eq!(metric(&mill, "keymill_driver_panics_total"), Some(1));
}

#[test]
fn of_several_stores_one_whose_driver_panics_is_skipped_in_the_same_call() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mill.toml");
    let panics = ["panic"; 20].join(",");
    std::fs::write(&file, format!("stores = [\"memory:a?script={panics}\", \"memory:b?script={panics}\"]\n"))
        .unwrap();
    let both = Mill::open(&format!("file:{}", file.display())).unwrap();
    let error = both.source("segment:orders?deadline=200ms").unwrap().next().unwrap_err();
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    assert!(error.message.contains("panicked"), "{error}");
    std::fs::write(&file, format!("stores = [\"memory:c?script={panics}\", \"memory:d\"]\n")).unwrap();
    let one = Mill::open(&format!("file:{}", file.display())).unwrap();
    let orders = one.source("segment:orders?deadline=20s").unwrap();
    let ids: Vec<u64> = (0..50).map(|_| orders.next().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[test]
fn the_settings_that_a_store_is_warned_about_are_a_figure() {
    let mill = Mill::open("memory:").unwrap();
    assert_eq!(metric(&mill, "keymill_store_warnings"), None, "nobody has asked the store yet");
    mill.source("segment:orders").unwrap().next().unwrap();
    let warnings = mill.facts().unwrap().warnings.len() as u64;
    assert_eq!(metric(&mill, "keymill_store_warnings"), Some(warnings));
}
