//! A MariaDB primary and its replica; the primary dies and the replica is promoted. Processes that have seen more refuse a
//! replica that lacks writes; `backwards=heal` raises it, or an operator repairs it. A complete replica just serves.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use keymill::{Change, Code, Mill, Source};
use keymill_tests::mariadb::{Private, is_mysql};
use keymill_tests::takers::{Takers, until};
use mysql::prelude::Queryable;

const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(2);

pub(super) struct Pair {
    pub(super) primary: Private,
    pub(super) replica: Private,
    /// The URL of a mill that prefers the primary.
    url: String,
}

impl Pair {
    pub(super) fn start() -> Pair {
        let arguments = |id| format!("--log-bin=bin --sync-binlog=1 --server-id={id}");
        let (primary, replica) = std::thread::scope(|scope| {
            let replica = scope.spawn(|| Private::start(&arguments(2)));
            (Private::start(&arguments(1)), replica.join().expect("a replica"))
        });
        replica.follow(&primary);
        replica.root().query_drop("SET GLOBAL read_only = 1").expect("root may set that");
        let host = |server: &Private| {
            let (host, port) = keymill_tests::mariadb::options_of(&server.url()).hosts[0].clone();
            format!("{host}:{port}")
        };
        let hosts = format!("{},{}", host(&primary), host(&replica));
        let url = format!("mysql://keymill:secret@{hosts}/ids?connect_timeout=1s&timeout=1s");
        Pair { primary, replica, url }
    }

    /// A mill with tables on both servers.
    pub(super) fn open(&self, specs: &[&str]) -> Mill {
        let patient =
            Mill::open(&format!("{}&timeout=20s", self.url.replace("&timeout=1s", ""))).expect("a mill");
        patient.init(specs, Change::Apply).expect("init");
        patient.close();
        until("the replica follows", PATIENCE, || {
            let found = self.replica.root().query_first::<u64, _>(
                "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'keymill_segment'",
            );
            found.expect("a count") == Some(1)
        });
        Mill::open(&self.url).expect("a mill")
    }

    /// From now on the replica receives nothing.
    fn cut(&self) {
        self.replica.root().query_drop("STOP REPLICA").expect("it stops");
    }

    /// The primary dies, the replica takes its place.
    pub(super) fn fail_over(&self) {
        self.primary.kill();
        let mut root = self.replica.root();
        // A promotion waits until the replica has applied everything that it received.
        root.query_drop("STOP REPLICA IO_THREAD").expect("it stops");
        until("what was received is carried out", PATIENCE, || {
            let [runs, read, carried_out, read_file, file] = self.replica.replica_status([
                "Replica_SQL_Running",
                "Read_Source_Log_Pos",
                "Exec_Source_Log_Pos",
                "Source_Log_File",
                "Relay_Source_Log_File",
            ]);
            runs == "No" || read == carried_out && read_file == file
        });
        root.query_drop("STOP REPLICA").expect("it stops");
        root.query_drop("SET GLOBAL read_only = 0").expect("root may set that");
    }

    /// From now on a commit waits until the replica has it, without a limit.
    pub(super) fn wait_for_the_replica(&self) {
        let (mut primary, mut replica) = (self.primary.root(), self.replica.root());
        let is_mysql = is_mysql(&mut primary);
        let (source, follower) = if is_mysql {
            for (root, side) in [(&mut primary, "source"), (&mut replica, "replica")] {
                let install = format!("INSTALL PLUGIN rpl_semi_sync_{side} SONAME 'semisync_{side}.so'");
                root.query_drop(install).expect("root may install");
            }
            ("source", "replica")
        } else {
            ("master", "slave")
        };
        for (option, value) in [("timeout", "600000"), ("wait_point", "AFTER_SYNC"), ("enabled", "1")] {
            let sql = format!("SET GLOBAL rpl_semi_sync_{source}_{option} = {value}");
            primary.query_drop(sql).expect("root may set that");
        }
        replica
            .query_drop(format!("SET GLOBAL rpl_semi_sync_{follower}_enabled = 1"))
            .expect("root may set that");
        replica.query_drop("STOP REPLICA").expect("it stops");
        replica.query_drop("START REPLICA").expect("it follows");
        let status = format!("SHOW STATUS LIKE 'Rpl_semi_sync_{source}_clients'");
        until("the replica is waited for", PATIENCE, || {
            let clients = primary.query_first::<(String, String), _>(&status).expect("a status");
            clients.expect("a row").1 == "1"
        });
    }

    fn next_at_replica(&self, name: &str) -> Option<u64> {
        let sql = "SELECT next FROM ids.keymill_segment WHERE name = ?";
        self.replica.root().exec_first(sql, (name,)).expect("a read")
    }
}

fn source(mill: &Mill, spec: &str) -> Source {
    mill.source(spec).expect("a source")
}

#[test]
fn a_promoted_replica_that_lacks_writes_is_refused_healed_where_asked_for_and_repaired() {
    const REFUSING: &str = "segment:refusing?step=10&buffer=200ms&deadline=500ms";
    const HEALING: &str = "segment:healing?step=10&buffer=200ms&deadline=500ms&backwards=heal";
    let pair = Pair::start();
    let mill = pair.open(&[REFUSING, HEALING]);
    let (refusing, healing) = (source(&mill, REFUSING), source(&mill, HEALING));
    let (at_refusing, at_healing) = (Takers::default(), Takers::default());
    at_refusing.beside(&[&refusing], 5, PAUSE, || {
        at_healing.beside(&[&healing], 5, PAUSE, || {
            let both = |more: u64| {
                let before = (at_refusing.count(), at_healing.count());
                until("ids flow", PATIENCE, || {
                    at_refusing.count() > before.0 + more && at_healing.count() > before.1 + more
                });
            };
            both(500);
            until("the replica follows", PATIENCE, || pair.next_at_replica("segment:refusing") > Some(300));
            pair.cut();
            let lacks = pair.next_at_replica("segment:refusing").expect("a row");
            both(500);
            pair.fail_over();
            until("it is refused", PATIENCE, || {
                at_refusing.met(Code::StoreWentBackwards, "a failover lost writes")
            });
            let before = at_healing.count();
            until("the other heals", PATIENCE, || at_healing.count() > before + 500);
            assert_eq!(pair.next_at_replica("segment:refusing"), Some(lacks), "a refused row is left alone");
            // The operator repairs it by the command. Marks of other processes would count as well; here there are none.
            let to = at_refusing.highest() + 10_000;
            let patient = pair.url.replace("=1s", "=25s");
            let repaired = keymill_command(&patient, &["repair", REFUSING, "--to", &to.to_string(), "--yes"]);
            println!("failover: {}", repaired.trim().replace('\n', " / "));
            until("the repaired row serves", PATIENCE, || at_refusing.highest() >= to);
        });
    });
    assert!(!at_healing.met(Code::StoreWentBackwards, ""), "{:?}", at_healing.errors());
    println!(
        "failover: a replica without the last writes: {} ids repaired, {} healed, none twice",
        at_refusing.distinct(),
        at_healing.distinct()
    );
}

#[test]
fn a_semi_synchronous_replica_serves_and_a_returning_read_only_primary_is_not_written() {
    // A taker at full pace uses 5 000 a second: these last, whatever rate a busy machine had before.
    const RICH: &str = "segment:rich?buffer=30s&min_step=1000000";
    const LEAN: &str = "segment:lean?step=10&buffer=200ms&deadline=500ms";
    let pair = Pair::start();
    let mill = pair.open(&[RICH, LEAN]);
    pair.wait_for_the_replica();
    let (rich, lean) = (source(&mill, RICH), source(&mill, LEAN));
    let (at_rich, at_lean) = (Takers::default(), Takers::default());
    at_rich.beside(&[&rich], 10, PAUSE, || {
        at_lean.beside(&[&lean], 5, PAUSE, || {
            until("there is supply for twenty seconds", PATIENCE, || {
                at_lean.count() > 4000
                    && rich.stats().is_ok_and(|s| s.runway_seconds.is_some_and(|r| r > 20.0))
            });
            let met = at_rich.errors().len();
            pair.fail_over();
            let flow = || {
                let before = at_lean.count();
                until("ids flow on", PATIENCE, || at_lean.count() > before + 1000);
            };
            flow();
            // The preferred host is back and has missed all writes since: it is tried after the next break, and skipped.
            pair.primary.start_again_with("--read-only=1");
            pair.replica.disconnect("keymill");
            flow();
            assert_eq!(at_rich.errors().len(), met, "{:?}", at_rich.errors());
        });
    });
    assert!(!at_lean.met(Code::StoreWentBackwards, ""), "{:?}", at_lean.errors());
    println!(
        "failover: semi-synchronous: {} ids without an error, {} ids beside {} errors, none twice",
        at_rich.distinct(),
        at_lean.distinct(),
        at_lean.errors().len()
    );
}

/// The `keymill` command on this store; answers with what it printed.
fn keymill_command(url: &str, arguments: &[&str]) -> String {
    let binary = std::env::current_exe().expect("this test has a path");
    let binary = binary.ancestors().nth(2).expect("the target folder").join("keymill");
    assert!(Path::new(&binary).exists(), "run `cargo build --bin keymill` first");
    let output = Command::new(binary).args(["--mill", url]).args(arguments).output().expect("keymill runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}
