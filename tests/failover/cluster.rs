//! A cluster of three servers that a script of `ci/servers` runs; its tests stop members, so they run one after the other.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use keymill::serial::SerialPattern;
use keymill::store::mysql::MysqlStore;
use keymill::store::{Catalogue, Key, Mark, Request, RowStore, Scheme, SerialKey};
use keymill::{Change, Code, Mill, Source};
use keymill_tests::takers::{Takers, persistently, until};
use keymill_tests::{mariadb, schemes};

/// The script's name, and the variable that its `run` sets.
pub struct Cluster {
    pub script: &'static str,
    pub variable: &'static str,
}

impl Cluster {
    /// The cluster's URL: three hosts.
    pub fn url(&self) -> String {
        let Cluster { script, variable } = self;
        std::env::var(variable)
            .unwrap_or_else(|_| panic!("{variable} is not set; run `ci/servers/{script} run`"))
    }

    /// The URL with this member first, followed by `others` of them.
    pub fn url_from(&self, member: usize, others: usize) -> String {
        let url = self.url();
        let (login, place) = url.rsplit_once('@').expect("a login");
        let (hosts, database) = place.split_once('/').expect("a database");
        let mut hosts: Vec<&str> = hosts.split(',').collect();
        hosts.rotate_left(member - 1);
        format!("{login}@{}/{database}", hosts[..=others].join(","))
    }

    pub fn store_at(&self, member: usize) -> MysqlStore {
        mariadb::store(mariadb::options_of(&self.url_from(member, 0)))
    }

    /// Runs the script with these words; answers with what it prints.
    pub fn try_run(&self, words: &[&str]) -> Result<String, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/servers").join(self.script);
        let output = Command::new(script).args(words).output().expect("the script can be run");
        let said = if output.status.success() { &output.stdout } else { &output.stderr };
        let said = String::from_utf8_lossy(said).trim().to_owned();
        if output.status.success() { Ok(said) } else { Err(said) }
    }

    /// The script's `VERB MEMBER`.
    pub fn run(&self, verb: &str, member: usize) {
        self.try_run(&[verb, &member.to_string()]).unwrap_or_else(|error| panic!("{error}"));
    }

    /// A key of this scheme in a table of its own, which exists on every one of these members.
    pub fn key(&self, scheme: Scheme, members: &[usize]) -> Arc<Key> {
        let serial = scheme == Scheme::KeyProducer;
        let pattern = || SerialPattern::new("", "000000000000", "UTC").expect("a pattern");
        let serial = serial.then(|| SerialKey {
            table: "cust".to_owned(),
            column: "id".to_owned(),
            pattern: pattern(),
            init_max: false,
        });
        let key = Arc::new(schemes::key(scheme, &unique("t"), "orders", serial));
        // On each: a member may answer before it has applied another one's `CREATE TABLE`.
        for member in members {
            self.store_at(*member).init(&[Arc::clone(&key)], false).expect("init");
        }
        key
    }

    /// Nine writers on three members, each of which reserves `each` ranges at least, and more while `goes_on`.
    pub fn nine_writers(
        &self,
        key: &Arc<Key>,
        each: usize,
        goes_on: impl Fn(usize) -> bool + Sync,
    ) -> Vec<(u64, u64)> {
        let together = Barrier::new(9);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..9)
                .map(|writer| {
                    let (together, goes_on) = (&together, &goes_on);
                    scope.spawn(move || {
                        // A conflict is repeated as long as an answer may take; on a busy machine a writer may lose for
                        // seconds.
                        let mut options = mariadb::options_of(&self.url_from(writer % 3 + 1, 0));
                        options.read_timeout = Duration::from_secs(60);
                        let mut store = mariadb::store(options);
                        let mut request = keymill_tests::request(key, 10);
                        together.wait();
                        let mut ranges = Vec::new();
                        while ranges.len() < each || goes_on(ranges.len()) {
                            let got = store.reserve(&request).expect("a conflict is tried again");
                            request = seen(&request, got.hi);
                            ranges.push((got.lo, got.hi));
                        }
                        ranges
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a writer")).collect()
        })
    }

    /// Three mills, each of which names another member first.
    pub fn three_mills(&self) -> Vec<Mill> {
        (1..=3).map(|member| Mill::open(&self.url_from(member, 2)).expect("a mill")).collect()
    }

    /// The member that takes writes.
    pub fn primary(&self) -> usize {
        let mut found = None;
        until("the cluster has a primary", Duration::from_secs(240), || {
            found = self.try_run(&["primary"]).ok().and_then(|member| member.parse().ok());
            found.is_some()
        });
        found.expect("a member")
    }

    /// Takers of three mills beside `work`, which gets their sources.
    pub fn beside(&self, name: &str, options: &str, work: impl FnOnce(&str, &[Source], &Takers)) -> usize {
        let mills = self.three_mills();
        persistently(|| mills[0].init(&[], Change::Apply)).expect("init");
        let spec = format!("segment:{}?{options}", unique(name));
        let sources: Vec<Source> = mills.iter().map(|mill| mill.source(&spec).expect("a source")).collect();
        let takers = Takers::default();
        takers.beside(&sources.iter().collect::<Vec<_>>(), 20, Duration::from_millis(5), || {
            work(&spec, &sources, &takers);
        })
    }

    /// The primary is killed three times: another member takes over, and no id comes twice.
    pub fn kill_the_primary_three_times(&self) {
        let ids = self.beside("killed", "min_step=100&buffer=200ms", |_, sources, takers| {
        for _ in 0..3 {
            all_reserve(sources);
            let old = self.primary();
            let before = takers.count();
            self.run("kill", old);
            let killed = Instant::now();
            until("another member is primary", Duration::from_secs(240), || self.primary() != old);
            let elected = killed.elapsed();
            all_reserve(sources);
            println!(
                "{}: primary {old} killed, another one after {elected:.1?}, every mill has reserved again after {:.1?}, {} ids meanwhile",
 self.script,
                killed.elapsed(),
                takers.count() - before
            );
            self.run("start-member", old);
        }
        for (_, error) in takers.errors() {
            assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
        }
    });
        println!("{}: {ids} ids round three killed primaries, none twice", self.script);
    }

    /// The primary is frozen until another member has taken over, and goes on: it gives no number that the other gives.
    pub fn cut_the_primary_off(&self) {
        let ids = self.beside("cut", "min_step=100&buffer=200ms", |spec, sources, takers| {
            all_reserve(sources);
            let old = self.primary();
            self.run("freeze", old);
            let frozen = Instant::now();
            all_reserve(sources);
            println!(
                "{}: primary {old} frozen, every mill has reserved again after {:.1?}",
                self.script,
                frozen.elapsed()
            );
            // A mill that knows only the old one is asked while that one learns that it was expelled.
            let alone = Mill::open(&self.url_from(old, 0)).expect("a mill");
            let stale = alone.source(&format!("{spec}&deadline=10s")).expect("a source");
            let asking = thread::spawn(move || stale.take(10));
            self.run("thaw", old);
            let got = asking.join().expect("no panic");
            println!(
                "{}: thawed, and asked for numbers, it answers {:?}",
                self.script,
                got.as_ref().map(|_| "numbers")
            );
            if let Ok(ids) = got {
                assert!(ids.iter().all(|id| !takers.got().contains(id)), "the old primary repeats ids");
            }
            self.run("start-member", old);
            all_reserve(sources);
        });
        println!("{}: {ids} ids round a primary that was cut off, none twice", self.script);
    }

    /// All members but the primary are frozen, so no commit is confirmed: an outage, which heals by itself.
    pub fn freeze_the_others(&self) {
        let ids = self.beside("alone", "min_step=10&buffer=100ms&deadline=1s", |_, sources, takers| {
            all_reserve(sources);
            let first = self.primary();
            let others: Vec<usize> = (1..=3).filter(|member| *member != first).collect();
            for member in &others {
                self.run("freeze", *member);
            }
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                until("callers are told", Duration::from_secs(240), || {
                    takers.met(Code::StoreUnavailable, "")
                });
            }));
            for member in &others {
                self.run("thaw", *member);
            }
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let thawed = Instant::now();
            all_reserve(sources);
            println!(
                "{}: the others are back, every mill has reserved again after {:.1?}",
                self.script,
                thawed.elapsed()
            );
            for (waited, error) in takers.errors() {
                assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
                // A thread may wake up late on a busy machine; the quorum is lost for longer.
                assert!(
                    waited < Duration::from_secs(20),
                    "a caller waited {waited:?} with a deadline of 1 s"
                );
            }
        });
        println!("{}: {ids} ids round frozen members, none twice", self.script);
    }
}

/// A name of its own for each test, because all share one cluster.
pub fn unique(name: &str) -> String {
    format!("{name}_{}", fastrand::u32(..))
}

/// The request of a process that has seen numbers up to `next`.
pub fn seen(request: &Request, next: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request.clone() }
}

pub fn reserved_by(source: &Source) -> u64 {
    source.stats().map_or(0, |stats| stats.reserved)
}

/// Waits until every source has reserved once more.
pub fn all_reserve(sources: &[Source]) {
    let before: Vec<u64> = sources.iter().map(reserved_by).collect();
    until("every mill has reserved again", Duration::from_secs(240), || {
        sources.iter().zip(&before).all(|(source, before)| reserved_by(source) > *before)
    });
}
