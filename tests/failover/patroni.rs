//! PostgreSQL under Patroni with quorum commit: a killed primary, one that is cut off, and commits that no other member confirms.
//!
//! `KEYMILL_TEST_PATRONI` names the cluster, and `ci/servers/patroni run` sets it; the tests stop its members, so they run one
//! after the other.

use std::time::{Duration, Instant};

use keymill::Code;
use keymill_tests::takers::until;

use crate::cluster::{Cluster, all_reserve};

const PATRONI: Cluster = Cluster { script: "patroni", variable: "KEYMILL_TEST_PATRONI" };

#[test]
fn a_primary_that_is_killed_three_times_is_replaced_and_no_id_comes_twice() {
    PATRONI.kill_the_primary_three_times();
}

#[test]
fn a_primary_that_is_cut_off_gives_no_number_when_it_is_back() {
    PATRONI.cut_the_primary_off();
}

#[test]
fn commits_that_no_other_member_confirms_are_an_outage_that_heals_by_itself() {
    let ids = PATRONI.beside("alone", "min_step=10&buffer=100ms&deadline=1s", |_, sources, takers| {
        all_reserve(sources);
        let first = PATRONI.primary();
        let others: Vec<usize> = (1..=3).filter(|member| *member != first).collect();
        for member in &others {
            PATRONI.run("freeze", *member);
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("callers are told", Duration::from_secs(240), || takers.met(Code::StoreUnavailable, ""));
        }));
        for member in &others {
            PATRONI.run("thaw", *member);
        }
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let thawed = Instant::now();
        all_reserve(sources);
        println!(
            "patroni: the others are back, every mill has reserved again after {:.1?}",
            thawed.elapsed()
        );
        for (_, error) in takers.errors() {
            assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
        }
    });
    println!("patroni: {ids} ids round commits that nobody confirmed, none twice");
}
