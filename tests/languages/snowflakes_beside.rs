//! The snowflakes of uid-generator, CosId and yitter, made by their own jars, beside leased workers of keymill in the same layout: no
//! id twice, and each is read with its worker and its time.
//!
//! `ci/steps/cosid` compiles `SnowflakeNode` and names its class path in `KEYMILL_TEST_COSID`.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use keymill::Mill;

/// How many ids the other generator makes.
const COUNT: usize = 100_000;

/// How far the time of an id may be from the present one: a `CachedUidGenerator` takes seconds that have not come yet.
const NEAR_MS: u64 = 600_000;

fn beside(generator: &str, worker: u64, slots: &str, layout: &str) {
    let classes =
        std::env::var("KEYMILL_TEST_COSID").expect("KEYMILL_TEST_COSID is not set; run `ci/steps/cosid`");
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("sqlite:{}?durability=warn", folder.path().join("ids.db").display());
    let spec = format!("snowflake:tx?{layout}&slots={slots}&deadline=60s");
    let mills: Vec<Mill> = (0..2).map(|_| Mill::open(&config).expect("a mill")).collect();
    let sources: Vec<_> = mills.iter().map(|mill| mill.source(&spec).expect("a source")).collect();
    let over = AtomicBool::new(false);
    let (node, ours) = thread::scope(|scope| {
        let ours = sources.iter().map(|source| {
            let over = &over;
            scope.spawn(move || super::ids_until(over, source))
        });
        let ours: Vec<_> = ours.collect();
        let mut java = Command::new("java");
        java.args(["-Duser.timezone=UTC", "-cp", &classes, "SnowflakeNode", generator]);
        java.args([worker.to_string(), COUNT.to_string()]).stdout(Stdio::piped());
        let node = java.output().expect("java runs");
        // ordering: Relaxed — a flag.
        over.store(true, Ordering::Relaxed);
        let ours: Vec<Vec<u64>> = ours.into_iter().map(|taker| taker.join().expect("a taker")).collect();
        (node, ours)
    });
    assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as i64;
    let lines = String::from_utf8(node.stdout).expect("numbers");
    let theirs: Vec<u64> = lines.lines().map(|line| line.parse().expect("a positive number")).collect();
    assert_eq!(theirs.len(), COUNT);
    for id in &theirs {
        let parts = sources[0].parse(*id).expect("an id of this layout");
        assert_eq!(parts.worker, Some(worker), "{generator}: {id}");
        let time_ms = parts.time_ms.expect("a time");
        assert!(time_ms.abs_diff(now_ms) < NEAR_MS, "{generator}: {id} is of {time_ms}, and it is {now_ms}");
    }
    let own: usize = ours.iter().map(Vec::len).sum();
    let distinct: HashSet<u64> = theirs.into_iter().chain(ours.into_iter().flatten()).collect();
    assert_eq!(distinct.len(), COUNT + own, "{generator}: an id came twice");
    println!(
        "ids  {generator}: {COUNT} of its own as worker {worker}, {own} by two mills in slots {slots}, none twice"
    );
}

#[test]
fn uid_generator_and_leased_workers_share_a_layout() {
    beside("uid-generator", 42, "4194048-4194303", "layout=uid&epoch=2026-01-01");
}

#[test]
fn cosid_and_leased_workers_share_a_layout() {
    beside("cosid", 5, "512-1023", "epoch=2019-12-24T16:00:00Z");
}

#[test]
fn yitter_and_leased_workers_share_a_layout() {
    beside("yitter", 7, "32-63", "layout=time:51@1ms,worker:6,seq:6&epoch=2020-02-19T18:20:02Z");
}
