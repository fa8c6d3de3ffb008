//! PostgreSQL under Patroni with quorum commit: a killed primary, one that is cut off, and commits that no other member confirms.
//!
//! `KEYMILL_TEST_PATRONI` names the cluster, and `ci/servers/patroni run` sets it; the tests stop its members, so they run one
//! after the other.

use crate::cluster::Cluster;

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
    PATRONI.freeze_the_others();
}
