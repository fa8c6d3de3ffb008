//! A forked child never issues what its parent's memory held, on any of the quick paths, through the public API.
#![cfg(unix)]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keymill::binding::Pending;
use keymill::{Change, Mill, Router, Source};

/// Texts of a source, one by one.
fn texts(source: &Source, count: usize) -> Vec<String> {
    (0..count).map(|_| source.next_text().unwrap_or_else(|e| e.to_string())).collect()
}

/// The texts that a forked child makes, read through a pipe.
fn in_a_child(make: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child uses the mill, which is made for that, writes and exits.
    let pid = unsafe { libc::fork() };
    // SAFETY: both descriptors are ours; each process closes its copies.
    let [mut from, mut to] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
    if pid == 0 {
        let written = to.write_all(make().join("\n").as_bytes());
        // SAFETY: ends the child at once, without its parent's destructors.
        unsafe { libc::_exit(i32::from(written.is_err())) };
    }
    drop(to);
    let mut all = String::new();
    from.read_to_string(&mut all).expect("the child's texts");
    // SAFETY: `pid` is our child; nobody wants its status.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    all.lines().map(str::to_owned).collect()
}

#[test]
fn parent_and_child_share_no_id_whatever_the_path() {
    let folder = tempfile::tempdir().expect("a directory");
    let mill = Mill::open(&format!("sqlite:{}", folder.path().join("ids.db").display())).expect("a mill");
    for spec in [
        "segment:orders?deadline=60s",
        "segment:orders?order=thread&deadline=60s",
        "segment:odd?scheme=tiny_id_info&delta=2&remainder=1&deadline=60s",
        "segment:even?scheme=tiny_id_info&delta=2&order=thread&deadline=60s",
        "serial:orders/no?zone=UTC&deadline=60s",
        "serial:bills/no?zone=UTC&order=thread&deadline=60s",
    ] {
        mill.init(&[spec], Change::Apply).expect("a table");
        let source = mill.source(spec).expect("a source");
        // The memory of both holds what comes next.
        let mut all = texts(&source, 3);
        let child = in_a_child(|| texts(&source, 40));
        assert_eq!(child.len(), 40);
        all.extend(child);
        all.extend(texts(&source, 40));
        assert!(all.iter().all(|text| text.bytes().all(|b| b.is_ascii_digit())), "{spec}: {all:?}");
        let different: HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{spec}: {all:?}");
    }
}

/// The texts of a batch that may have been waiting for a while.
fn complete(mut batch: Pending) -> Vec<String> {
    while let Some(pause) = batch.poll().expect("a batch") {
        std::thread::sleep(pause);
    }
    let mut texts = Vec::new();
    batch.texts(|text| texts.push(text.to_owned()));
    texts
}

#[test]
fn a_batch_that_waits_through_a_fork_is_collected_anew_in_the_child() {
    let folder = tempfile::tempdir().expect("a directory");
    let mill = Mill::open(&format!("sqlite:{}", folder.path().join("ids.db").display())).expect("a mill");
    let source = mill.source("segment:orders?step=10&max_step=10&deadline=60s").expect("a source");
    // More than memory holds at a time: some of it is there when the process is forked.
    let mut batch = source.ask(2000).expect("a batch");
    let give_up = Instant::now() + Duration::from_secs(120);
    while source.stats().expect("figures").issued == 0 {
        assert!(Instant::now() < give_up, "nothing is there");
        if let Some(pause) = batch.poll().expect("a batch") {
            std::thread::sleep(pause);
        }
    }
    // The batch lies in both processes; only one of them may go on with what it has.
    let mut batch = Some(batch);
    let child = in_a_child(|| complete(batch.take().expect("a batch")));
    let parent = complete(batch.expect("a batch"));
    assert_eq!((child.len(), parent.len()), (2000, 2000));
    let different: HashSet<_> = child.iter().chain(&parent).collect();
    assert_eq!(different.len(), 4000);
}

/// How many threads this process has.
#[cfg(target_os = "linux")]
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("its threads").count()
}

#[test]
#[cfg(target_os = "linux")]
fn a_child_that_only_asks_prints_and_drops_starts_no_thread() {
    let folder = tempfile::tempdir().expect("a directory");
    let mill = Mill::open(&format!("sqlite:{}", folder.path().join("ids.db").display())).expect("a mill");
    let source = mill.source("segment:orders?deadline=60s").expect("a source");
    let mut handle = source.handle();
    handle.next().expect("an id");
    let batch = source.ask(5).expect("a batch");
    let mut things = Some((mill.clone(), source.clone(), handle, batch));
    let counts = in_a_child(|| {
        let (mill, source, handle, batch) = things.take().expect("everything");
        let mut counts = vec![threads()];
        let mut note = |_: String| counts.push(threads());
        note(mill.is_closed().to_string());
        note(format!("{mill:?} {source:?} {handle:?}"));
        note(mill.metrics());
        note(format!("{:?} {:?}", mill.stats(), mill.latency()));
        note(format!("{:?} {:?}", mill.events(), mill.next_event().is_some()));
        note(source.parse_text("x").map_err(|e| e.to_string()).err().unwrap_or_default());
        drop(handle);
        drop(batch);
        note(String::new());
        mill.close();
        note(mill.is_closed().to_string());
        note(source.next().unwrap_err().to_string());
        drop((mill, source));
        counts.push(threads());
        counts.iter().map(usize::to_string).collect()
    });
    assert!(counts.len() == 11 && counts.iter().all(|count| count == "1"), "{counts:?}");
    // The parent's mill is as it was.
    assert!(!mill.is_closed());
    source.next().expect("an id");
}

#[test]
fn a_relative_path_is_taken_from_the_folder_of_the_opening_in_a_child_too() {
    let (home, elsewhere) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let told = in_a_child(|| {
        std::env::set_current_dir(home.path()).expect("a folder");
        let mill = Mill::open("sqlite:ids.db").expect("a mill");
        let source = mill.source("segment:orders?step=10&deadline=60s").expect("a source");
        // A daemon does that, before and after its first number.
        std::env::set_current_dir(elsewhere.path()).expect("a folder");
        let mut told = texts(&source, 1);
        told.extend(in_a_child(|| texts(&source, 1)));
        told
    });
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0] != told[1] && told.iter().all(|id| id.parse::<u64>().is_ok()), "{told:?}");
    assert_eq!(std::fs::read_dir(elsewhere.path()).expect("a folder").count(), 0);
}

/// A table whose shard is named after its version.
fn routes(version: u64) -> String {
    format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"s{version}\"\nto = \"new\"\n")
}

#[test]
fn a_router_whose_parent_loads_tables_is_whole_in_a_child_which_loads_its_own() {
    let router = Router::from_text(&routes(1)).expect("a table");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut version = 1;
            // ordering: Relaxed — when to stop, nothing more.
            while !ended.load(Ordering::Relaxed) {
                version += 1;
                router.load(&routes(version)).expect("a newer table");
            }
        });
        for _ in 0..20 {
            let child = in_a_child(|| {
                let old = router.route(5).expect("a route");
                let whole = old.shard == format!("s{}", old.version);
                router.load(&routes(1 << 40)).expect("a newer table");
                let new = router.route(u64::MAX >> 1).expect("a route");
                vec![whole.to_string(), new.shard.to_owned(), new.version.to_string()]
            });
            assert_eq!(child, ["true", &format!("s{}", 1_u64 << 40), &(1_u64 << 40).to_string()]);
        }
        // ordering: Relaxed — as above.
        ended.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_child_follows_the_table_of_its_parents_router() {
    let folder = tempfile::tempdir().expect("a directory");
    let mill = Mill::open(&format!("sqlite:{}", folder.path().join("ids.db").display())).expect("a mill");
    mill.put_routes("orders", &routes(1), Change::Apply).expect("stored");
    let router = mill.router("orders").expect("a router");
    let child = in_a_child(|| {
        // A verb of the mill starts the child's own keeper.
        mill.put_routes("orders", &routes(2), Change::Apply).expect("stored");
        let until = Instant::now() + Duration::from_secs(60);
        while router.version() < 2 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        vec![router.route(1).expect("a route").shard.to_owned()]
    });
    assert_eq!(child, ["s2"]);
}

#[test]
fn a_child_that_only_routes_reads_the_table_and_is_a_reader_of_its_own() {
    let folder = tempfile::tempdir().expect("a directory");
    let store = format!("sqlite:{}", folder.path().join("ids.db").display());
    let (mill, operator) = (Mill::open(&store).expect("a mill"), Mill::open(&store).expect("a mill"));
    let table = |version: u64, rest: &str| {
        format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"old\"\n{rest}")
    };
    operator.put_routes("orders", &table(1, ""), Change::Apply).expect("stored");
    let router = mill.router("orders").expect("a router");
    operator.put_routes("orders", &table(2, "to = \"new\"\npercent = 100"), Change::Apply).expect("stored");
    // Its parent may know the first table still.
    let child = in_a_child(|| {
        let route = router.route(1).expect("a route");
        let (read, mirror) = (route.read.to_owned(), route.mirror.unwrap_or_default().to_owned());
        let readers = mill.moves("orders").and_then(|moves| moves.status()).expect("a status").readers;
        let own = format!(":{}", std::process::id());
        let owners = readers.iter().filter(|reader| reader.owner.ends_with(&own)).count();
        vec![read, mirror, readers.len().to_string(), owners.to_string()]
    });
    assert_eq!(child, ["new", "new", "2", "1"]);
    mill.close();
    let refused = in_a_child(|| {
        vec![router.route(1).map_or_else(|error| error.code.to_string(), |_| "a route".to_owned())]
    });
    assert_eq!(refused, ["CLOSED"]);
}

#[test]
fn a_bank_and_a_leased_worker_of_a_parent_are_not_its_childs() {
    let folder = tempfile::tempdir().expect("a directory");
    let mill = Mill::open(&format!("sqlite:{}", folder.path().join("ids.db").display())).expect("a mill");
    for spec in [
        "business:order?counters=2&min_step=1000&deadline=60s",
        "business:order?counters=2&min_step=1000&deadline=60s&wide=on",
        "snowflake:tx?deadline=60s",
    ] {
        let source = mill.source(spec).expect("a source");
        let next = || {
            let id = match (spec.contains("wide"), spec.starts_with("business")) {
                (true, _) => source.next_wide_for("buyer").map(|id| id.to_string()),
                (false, true) => source.next_for("buyer").map(|id| id.to_string()),
                (false, false) => source.next().map(|id| id.to_string()),
            };
            id.unwrap_or_else(|error| error.to_string())
        };
        // The memory of both holds what comes next.
        let mut all = vec![next()];
        let child = in_a_child(|| (0..40).map(|_| next()).collect());
        assert_eq!(child.len(), 40);
        all.extend(child);
        all.extend((0..40).map(|_| next()));
        assert!(all.iter().all(|id| id.bytes().all(|b| b.is_ascii_digit())), "{spec}: {all:?}");
        let different: HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{spec}: {all:?}");
    }
}
