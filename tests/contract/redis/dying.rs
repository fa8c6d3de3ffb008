//! Servers that freeze, die or forget, and processes that fork.

use std::time::{Duration, Instant};

use keymill::store::{FaultKind, Request, RowStore};
use keymill_tests::ci::patient;
use keymill_tests::redis::{self, Private};
use keymill_tests::takers::persistently;
use keymill_tests::worker::in_a_process_of_its_own;

use super::{ROW, at, process, request, says, seen, signal};
use crate::reserve_many;

/// A wait of a second that ends later than this does not end.
const BUSY: Duration = Duration::from_secs(60);

#[test]
fn a_server_that_freezes_costs_its_deadline_and_no_number_comes_twice() {
    let private = Private::start("");
    // Longer than a busy disk takes for most answers. One that comes later is an error of the source, which tries again.
    let url = format!("{}?timeout=2s&connect_timeout=2s", private.url());
    let mill = keymill::Mill::open(&url).unwrap();
    let source = mill.source("segment:orders?step=10&deadline=1s").unwrap();
    let mut ids = vec![persistently(|| source.next()).unwrap()];
    let id = process(&private.url());
    signal(id, libc::SIGSTOP);
    let began = Instant::now();
    let error = loop {
        match source.next() {
            Ok(id) => ids.push(id),
            Err(error) => break error,
        }
    };
    // The machine may be busy; the server stays frozen.
    assert!(began.elapsed() < BUSY, "{:?}", began.elapsed());
    println!("{} ids from memory, then {error} after {:?}", ids.len(), began.elapsed());
    // The kernel still accepts connections for the process, so a new client waits too, at most until its deadline.
    let began = Instant::now();
    source.next().unwrap_err();
    assert!(began.elapsed() < BUSY, "{:?}", began.elapsed());
    signal(id, libc::SIGCONT);
    let deadline = Instant::now() + Duration::from_secs(180);
    while ids.len() < 100 {
        ids.extend(source.next());
        assert!(Instant::now() < deadline, "it never came back");
    }
    let mut sorted = ids.clone();
    sorted.dedup();
    assert_eq!(sorted.len(), ids.len());
    assert!(ids.is_sorted());
}

#[test]
fn a_restored_backup_is_refused_by_a_process_that_has_seen_more() {
    let private = Private::start("");
    let mut admin = redis::connection_of(&private.url());
    let mut store = at(&private.url());
    assert_eq!(store.reserve(&request(10)).unwrap().hi, 11);
    let backup: Vec<u8> = redis::say(&mut admin, &["DUMP", ROW]);
    let got = reserve_many(&mut store, &request(10), 5);
    assert_eq!(got[4].1, 61);
    ::redis::cmd("RESTORE").arg(ROW).arg(0).arg(&backup).arg("REPLACE").exec(&mut admin).unwrap();
    says(store.reserve(&seen(61, 10)), FaultKind::WentBackwards, &["11", "61", "keymill repair"]);
    assert_eq!(redis::say::<String>(&mut admin, &["HGET", ROW, "next"]), "11", "the row was left alone");
    let healed = Request { heal: true, max_jump: 50, ..seen(61, 10) };
    assert_eq!(store.reserve(&healed).unwrap().lo, 61);
}

// ---- forks ----

#[test]
fn a_forked_child_takes_numbers_of_its_own_and_leaves_the_parents_connection_alone() {
    use std::io::{Read, Write};
    use std::os::fd::FromRawFd;
    if !in_a_process_of_its_own(
        "redis::dying::a_forked_child_takes_numbers_of_its_own_and_leaves_the_parents_connection_alone",
    ) {
        return;
    }
    let private = Private::start("");
    let mill = keymill::Mill::open(&patient(&private.url())).unwrap();
    let source = mill.source("segment:orders?step=10&deadline=60s").unwrap();
    let mut admin = redis::connection_of(&private.url());
    let mut connections = || {
        let list: String = redis::say(&mut admin, &["CLIENT", "LIST"]);
        list.lines()
            .filter(|line| line.contains(" name=keymill "))
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let mut ids = source.take(15).unwrap();
    let parents = connections();
    assert_eq!(parents.len(), 1, "{parents:?}");
    for _ in 0..8 {
        let mut ends = [0; 2];
        // SAFETY: `ends` has room for the two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: both descriptors were just opened and are used here only.
        let [mut reader, mut writer] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
        // SAFETY: the child leaves by `_exit` and runs no destructors or handlers of the parent's.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                let ids = source.take(25).unwrap();
                writer.write_all(format!("{ids:?}").as_bytes()).unwrap();
                mill.close();
            }));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(done.is_err())) };
        }
        drop(writer);
        ids.extend(source.take(15).unwrap()); // at the same time, on the parent's connection
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child succeeded");
        let list = text.trim_matches(['[', ']']).split(", ").map(|id| id.parse::<u64>().unwrap());
        let before = ids.len();
        ids.extend(list);
        assert_eq!(ids.len(), before + 25);
    }
    let total = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), total, "no id twice");
    let now = connections();
    assert!(
        now.contains(&parents[0]),
        "the parent's connection lived through 8 children: {parents:?}, {now:?}"
    );
}
