//! A million ids of each scheme on each store, by eight processes at once: none twice, and how many round trips that took.
//!
//! Servers are found by their variables (`ci/servers/mariadb run cargo test …` sets `KEYMILL_TEST_MYSQL`).

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use keymill::{Change, Mill, Scheme};
use keymill_tests::ci::patient;
use keymill_tests::schemes;

const PROCESSES: usize = 8;
const EACH: usize = 125_000;

/// The variable that makes this test binary a worker: `CONFIG|SPEC|FILE`.
const WORKER: &str = "KEYMILL_TEST_MILLION";

/// Takes `EACH` ids, alternately one by one and in batches, and writes them to a file, with the number of refills last.
#[test]
fn a_worker_process_takes_its_part() {
    let Ok(order) = std::env::var(WORKER) else { return };
    let parts: Vec<&str> = order.split('|').collect();
    let [config, spec, file] = parts[..] else { panic!("{WORKER}={order} is not CONFIG|SPEC|FILE") };
    let mill = Mill::open(config).unwrap();
    let source = mill.source(spec).unwrap();
    let serial = spec.starts_with("serial:");
    let mut ids: Vec<u64> = Vec::with_capacity(EACH + 1);
    while ids.len() < EACH {
        let batch = ids.len().is_multiple_of(1000);
        match (serial, batch) {
            (true, true) => {
                ids.extend(source.take_text(500).unwrap().iter().map(|text| text.parse::<u64>().unwrap()));
            }
            (true, false) => ids.push(source.next_text().unwrap().parse().unwrap()),
            (false, true) => ids.extend(source.take(500).unwrap()),
            (false, false) => ids.push(source.next().unwrap()),
        }
    }
    ids.truncate(EACH);
    ids.push(source.stats().unwrap().refills);
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    File::create(file).unwrap().write_all(&bytes).unwrap();
}

fn numbers(file: &Path) -> Vec<u64> {
    let mut bytes = Vec::new();
    File::open(file).unwrap().read_to_end(&mut bytes).unwrap();
    bytes.chunks_exact(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect()
}

/// A million ids of one source; prints the round trips.
fn million(store: &str, config: &str, spec: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = |n: usize| folder.path().join(format!("{n}.ids"));
    let config = &patient(config);
    Mill::open(config).unwrap().init(&[spec], Change::Apply).unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|n| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "million::a_worker_process_takes_its_part"])
                .env(WORKER, format!("{config}|{spec}&deadline=5m|{}", file(n).display()))
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success(), "{store} {spec}: a worker failed");
    }
    let mut all = Vec::with_capacity(PROCESSES * EACH);
    let mut refills = 0;
    for n in 0..PROCESSES {
        let mut ids = numbers(&file(n));
        refills += ids.pop().unwrap();
        assert!(ids.is_sorted_by(|a, b| a < b), "{store} {spec}: ids of one process rise");
        all.append(&mut ids);
    }
    assert_eq!(all.len(), PROCESSES * EACH);
    #[expect(clippy::stable_sort_primitive, reason = "a stable sort merges the eight sorted lists")]
    all.sort();
    let twice = all.windows(2).filter(|pair| pair[0] == pair[1]).count();
    println!("million  {store:<10} {spec:<92} {refills:>5} reservations, {twice} ids twice");
    assert_eq!(twice, 0, "{store} {spec}");
}

/// The source of each scheme, with a name of its own: runs may share a server.
fn specs(schemes: impl Iterator<Item = Scheme> + Clone) -> Vec<String> {
    let run = std::process::id();
    // A ticket's range has the step of its table, which other tests choose for themselves.
    let table = |scheme: Scheme| {
        if scheme.is_ticket() { format!("&table=million_{scheme}_{run}") } else { String::new() }
    };
    let segments = schemes.clone().filter(|scheme| scheme.keeps_segments()).map(|scheme| {
        format!("segment:million{run}?scheme={scheme}{}{}", table(scheme), schemes::option(scheme))
    });
    let serials = schemes.filter(|scheme| scheme.keeps_serials()).map(|scheme| {
        format!("serial:million{run}/id?scheme={scheme}&number=00000000000&zone=UTC&date=yyyyMM")
    });
    segments.chain(serials).collect()
}

fn server(variable: &str, command: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set; run `{command} run cargo test -p keymill-tests --test schemes million::`"
        )
    })
}

#[test]
fn a_million_ids_of_each_scheme_on_sqlite_and_none_twice() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("sqlite:{}", folder.path().join("ids.db").display());
    for spec in specs(schemes::in_rows()) {
        million("sqlite", &config, &spec);
    }
}

#[test]
fn a_million_ids_of_each_scheme_on_mariadb_and_none_twice() {
    let config = server("KEYMILL_TEST_MYSQL", "ci/servers/mariadb");
    for spec in specs(schemes::on_mysql()) {
        million("mariadb", &config, &spec);
    }
}

#[test]
fn a_million_ids_of_each_scheme_on_postgresql_and_none_twice() {
    let config = server("KEYMILL_TEST_POSTGRES", "ci/servers/postgres");
    for spec in specs(schemes::on_postgres()) {
        million("postgres", &config, &spec);
    }
}

#[test]
fn a_million_ids_of_each_scheme_on_redis_and_none_twice() {
    let config = server("KEYMILL_TEST_REDIS", "ci/servers/redis");
    for spec in specs([Scheme::Keymill].into_iter()) {
        million("redis", &config, &spec);
    }
}
