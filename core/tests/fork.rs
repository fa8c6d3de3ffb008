//! A forked child never issues what its parent's memory held, on any of the quick paths, through the public API.
#![cfg(unix)]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;

use keymill::{Mill, Source};

/// Texts of a source, one by one.
fn texts(source: &Source, count: usize) -> Vec<String> {
    (0..count).map(|_| source.next_text().unwrap_or_else(|e| e.to_string())).collect()
}

/// What a forked child makes of the source, read through a pipe.
fn in_a_child(source: &Source, count: usize) -> Vec<String> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child uses the mill, which is made for that, writes and exits.
    let pid = unsafe { libc::fork() };
    // SAFETY: both descriptors are ours; each process closes its copies.
    let [mut from, mut to] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
    if pid == 0 {
        let written = to.write_all(texts(source, count).join("\n").as_bytes());
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
        "segment:orders",
        "segment:orders?order=thread",
        "serial:orders/no?zone=UTC",
        "serial:bills/no?zone=UTC&order=thread",
    ] {
        mill.init(&[spec], false).expect("a table");
        let source = mill.source(spec).expect("a source");
        // The memory of both holds what comes next.
        let mut all = texts(&source, 3);
        let child = in_a_child(&source, 40);
        assert_eq!(child.len(), 40);
        all.extend(child);
        all.extend(texts(&source, 40));
        assert!(all.iter().all(|text| text.bytes().all(|b| b.is_ascii_digit())), "{spec}: {all:?}");
        let different: HashSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{spec}: {all:?}");
    }
}
