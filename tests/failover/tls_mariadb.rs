//! Encrypted connections and socket files on a real MariaDB: a certificate is trusted only for its name and from its
//! authority, and no connection falls back to plain text.

use std::path::Path;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Error, Mill};
use keymill_tests::authority::Authority;
use keymill_tests::ci::patient;
use keymill_tests::mariadb::{self, Private};
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::takers::persistently;
use keymill_tests::worker::in_a_process_of_its_own;
use mysql::prelude::Queryable;

/// The first id through this URL.
fn first_id(url: &str) -> Result<u64, Error> {
    let mill = Mill::open(&patient(url)).expect("a mill opens lazily");
    mill.init(&[], Change::Apply)?;
    mill.source("segment:orders?deadline=60s")?.next()
}

fn assert_refused(url: &str, says: &str) {
    let error = first_id(url).expect_err("refused");
    assert_eq!(error.code, Code::StoreRefused, "{error}");
    assert!(error.message.contains(says), "{error}");
    assert!(!error.message.contains("secret"), "{error}");
    println!("tls: {}", error.message);
}

fn verified(url: &str, ca: &Path) -> String {
    format!("{url}?tls=verify&ca={}", ca.display())
}

#[test]
fn a_certificate_is_trusted_for_its_name_and_from_its_authority_only() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = Private::encrypted(&authority, "");
    let by_address = server.url();
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let ca = authority.file("ca.pem");
    // The server's report, not our request.
    let mut root = server.root();
    let mut encrypted = || -> u64 {
        let status = "SHOW GLOBAL STATUS LIKE 'Ssl_finished_accepts'";
        root.query_first::<(String, u64), _>(status).expect("a status").expect("a row").1
    };
    let before = encrypted();
    assert!(first_id(&verified(&by_name, &ca)).expect("a certificate for `localhost`") >= 1);
    assert_eq!(encrypted(), before + 1, "one mill, one connection, encrypted");
    first_id(&by_address).expect("a server that does not insist");
    assert_eq!(encrypted(), before + 1, "`tls=off` is not encrypted");
    assert_refused(&verified(&by_address, &ca), "write the host as the certificate has it");
    assert_refused(&verified(&by_name, &other.file("ca.pem")), "ca=FILE.pem");
    assert_refused(&format!("{by_name}?tls=verify"), "ca=FILE.pem");
    assert_refused(&verified(&by_name, &authority.file("none.pem")), "cannot be read");
    std::fs::write(authority.file("odd.pem"), "no certificate").expect("a file");
    assert_refused(&verified(&by_name, &authority.file("odd.pem")), "has to be a PEM file");
}

#[test]
fn a_certificate_without_a_host_as_mysql_makes_them_is_refused_with_what_to_do() {
    let authority = Authority::with("basicConstraints=CA:FALSE");
    let server = Private::encrypted(&authority, "");
    assert_refused(
        &verified(&server.url(), &authority.file("ca.pem")),
        "with the host as its subjectAltName",
    );
    // What MySQL's own `ca.pem` can prove.
    let ca = authority.file("ca.pem");
    assert_refused(
        &verified(&server.url(), &ca),
        "write `tls=verify-ca` with `ca=` the server's own `ca.pem`",
    );
    let by_authority = |ca: &Path| format!("{}?tls=verify-ca&ca={}", server.url(), ca.display());
    first_id(&by_authority(&ca)).expect("a certificate by the authority");
    assert_refused(&by_authority(&Authority::new().file("ca.pem")), "invalid peer certificate");
}

#[test]
fn a_server_without_tls_is_refused_and_one_that_demands_it_says_so() {
    let authority = Authority::new();
    let plain = Private::start("--skip-ssl");
    let ca = authority.file("ca.pem");
    assert_refused(&verified(&plain.url(), &ca), "the server offers no TLS");
    drop(plain);
    let strict = Private::encrypted(&authority, "--require-secure-transport=ON");
    assert_refused(&format!("{}?tls=off", strict.url()), "the server demands TLS: `tls=require`");
    assert!(first_id(&strict.url()).is_ok(), "on loopback by the second try");
    assert!(first_id(&format!("{}?tls=require", strict.url())).is_ok());
    assert!(first_id(&verified(&strict.url().replace("127.0.0.1", "localhost"), &ca)).is_ok());
}

#[test]
fn a_socket_file_is_used_instead_of_a_host() {
    let server = Private::start("--skip-networking");
    let url = format!("mysql://keymill:secret@localhost/ids?socket={}", server.socket().display());
    assert_eq!(first_id(&url).expect("an id"), 1);
    let error = first_id(&server.url()).expect_err("no server listens");
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    let missing = format!("mysql://keymill:secret@localhost/ids?socket={}x", server.socket().display());
    let error = first_id(&missing).expect_err("no such file");
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    assert!(error.message.contains("sockx"), "{error}");
    // The shared server's URL still names host and port.
    assert!(first_id(&mariadb::url()).is_ok());
}

/// Rust, Java, Python and Node ignore SIGPIPE; a C program dies of it. rustls writes by `writev`, which raises it.
#[test]
fn a_server_that_ends_under_tls_raises_no_sigpipe_in_its_clients_process() {
    const NAME: &str = "tls_mariadb::a_server_that_ends_under_tls_raises_no_sigpipe_in_its_clients_process";
    if !in_a_process_of_its_own(NAME) {
        return;
    }
    // SAFETY: the default action, as a C program has it; no handler of ours is involved.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let authority = Authority::new();
    let server = Private::encrypted(&authority, "");
    let url = verified(&server.url().replace("127.0.0.1", "localhost"), &authority.file("ca.pem"));
    let mill = Mill::open(&format!("{url}&connect_timeout=1s&timeout=1s")).expect("a mill opens lazily");
    persistently(|| mill.init(&[], Change::Apply)).expect("a table");
    // Each of them has open statements on the connection, which are closed one by one when it is dropped.
    let sources: Vec<_> = (0..4)
        .map(|n| mill.source(&format!("segment:s{n}?step=1&max_step=1&deadline=300ms")).expect("a source"))
        .collect();
    let all = |ok: bool| {
        let deadline = Instant::now() + Duration::from_secs(180);
        for source in &sources {
            loop {
                let answer = source.next();
                if answer.is_ok() == ok {
                    break;
                }
                assert!(
                    Instant::now() < deadline,
                    "the server's end, or its return, is not noticed: {answer:?}"
                );
            }
        }
    };
    for orderly in [false, true, false] {
        all(true);
        assert!(signals_are_blocked() >= 1, "no thread of keymill's was found");
        if orderly {
            server.root().query_drop("SHUTDOWN").expect("root may");
            all(false);
        }
        // The killed process may still be writing its pages.
        server.kill();
        all(false);
        server.start_again();
    }
    all(true);
}

/// The tunnel's thread waits for the driver to close its end. A forked child has a copy of that end, so closing is not enough.
#[test]
fn a_connection_that_is_given_up_after_a_fork_ends_although_its_server_is_silent() {
    const NAME: &str =
        "tls_mariadb::a_connection_that_is_given_up_after_a_fork_ends_although_its_server_is_silent";
    if !in_a_process_of_its_own(NAME) {
        return;
    }
    let authority = Authority::new();
    let server = Private::encrypted(&authority, "");
    let hosts = mariadb::options_of(&server.url()).hosts;
    let proxy = Proxy::start(hosts[0].clone());
    let (host, port) = proxy.address();
    let direct = format!("{}:{}", hosts[0].0, hosts[0].1);
    let url = server.url().replace(&direct, &format!("{host}:{port},{direct}"));
    let mill = Mill::open(&format!("{url}?tls=require&timeout=500ms")).expect("a mill opens lazily");
    persistently(|| mill.init(&[], Change::Apply)).expect("a table");
    let source = mill.source("segment:orders?step=1&max_step=1&deadline=300ms").expect("a source");
    persistently(|| source.next()).expect("an id by the first host");
    // SAFETY: the child only sleeps and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above; nothing of the parent's is touched.
        unsafe {
            libc::sleep(600);
            libc::_exit(0);
        }
    }
    proxy.set(Answers::Hold);
    let deadline = Instant::now() + Duration::from_secs(180);
    let found = loop {
        let answer = source.next();
        if answer.is_ok() || Instant::now() > deadline {
            break answer;
        }
    };
    // SAFETY: `pid` is our child, which was not waited for yet.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, std::ptr::null_mut(), 0);
    }
    found.expect("an id by the second host");
}

#[test]
fn a_mill_closed_under_tls_does_not_count_as_an_aborted_client() {
    let authority = Authority::new();
    let server = Private::encrypted(&authority, "");
    let mut root = server.root();
    let mut status = |name: &str| -> u64 {
        let question = format!("SHOW GLOBAL STATUS LIKE '{name}'");
        root.query_first::<(String, u64), _>(question).expect("a status").expect("a row").1
    };
    for _ in 0..20 {
        first_id(&format!("{}?tls=require", server.url())).expect("an id");
    }
    let deadline = Instant::now() + Duration::from_secs(180);
    while status("Threads_connected") > 1 {
        assert!(Instant::now() < deadline, "a connection stays");
    }
    assert_eq!(status("Aborted_clients"), 0);
}

/// That each of keymill's threads in this process blocks SIGPIPE and SIGTERM; how many there are.
fn signals_are_blocked() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads").flatten();
    // A thread may end while its file is read.
    let statuses = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let ours: Vec<String> = statuses.filter(|status| status.starts_with("Name:\tkeymill-")).collect();
    for status in &ours {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).expect("a mask").trim();
        let mask = u64::from_str_radix(mask, 16).expect("a mask");
        for signal in [libc::SIGPIPE, libc::SIGTERM] {
            assert!(mask & 1 << (signal - 1) != 0, "signal {signal} is not blocked in: {status}");
        }
    }
    ours.len()
}
