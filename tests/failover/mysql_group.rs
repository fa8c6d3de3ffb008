//! MySQL Group Replication with three members: a killed primary, one that is cut off, a lost quorum, and a group in which every
//! member takes writes.
//!
//! `KEYMILL_TEST_MYSQL_GROUP` names the group, and `ci/servers/mysql-group run` sets it; the tests stop its members, so they
//! run one after the other.

use std::time::Instant;

use keymill::{Code, Mill};
use keymill_tests::{assert_disjoint, schemes};

use crate::cluster::Cluster;

const GROUP: Cluster = Cluster { script: "mysql-group", variable: "KEYMILL_TEST_MYSQL_GROUP" };

#[test]
fn a_primary_that_is_killed_three_times_is_replaced_and_no_id_comes_twice() {
    GROUP.kill_the_primary_three_times();
}

#[test]
fn a_primary_that_is_cut_off_gives_no_number_when_it_is_back() {
    GROUP.cut_the_primary_off();
}

#[test]
fn a_lost_quorum_is_an_outage_that_heals_by_itself() {
    GROUP.freeze_the_others();
}

/// Outside its group a member takes writes unless its settings say otherwise, and the group goes on without it.
#[test]
fn a_member_that_has_left_its_group_and_takes_writes_gives_no_number() {
    let left = GROUP.primary();
    let url = GROUP.url_from(left, 2);
    let spec = "segment:left?step=10&deadline=240s";
    let mill = Mill::open(&url).expect("a mill");
    let source = mill.source(spec).expect("a source");
    let mut ids = source.take(100).expect("ids");
    GROUP.run("leave", left);
    ids.extend(source.take(100).expect("the others go on"));
    let alone = Mill::open(&GROUP.url_from(left, 0)).expect("a mill");
    let refused =
        alone.source("segment:left?deadline=5s").and_then(|source| source.take(1)).expect_err("no number");
    assert!(
        refused.code == Code::StoreUnavailable && refused.message.contains("not in the group"),
        "{refused}"
    );
    let other = Mill::open(&url).expect("a mill");
    ids.extend(other.source(spec).expect("a source").take(100).expect("ids"));
    GROUP.run("start-member", left);
    ids.extend(source.take(100).expect("ids"));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 400, "none comes twice");
}

/// Run on a group in which every member takes writes (`group_replication_single_primary_mode=OFF`).
#[test]
fn several_primaries_that_write_one_row_at_once_give_no_number_twice() {
    for scheme in schemes::on_mysql() {
        let key = GROUP.key(scheme, &[1, 2, 3]);
        let began = Instant::now();
        let ranges = GROUP.nine_writers(&key, 40, |_| false);
        let rate = ranges.len() as f64 / began.elapsed().as_secs_f64();
        println!(
            "mysql-group: {}: 9 writers on 3 primaries, {rate:.0} reservations a second, {} numbers, 0 twice",
            scheme.name(),
            assert_disjoint(ranges)
        );
    }
}
