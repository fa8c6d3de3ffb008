//! The regions of scattered ids: a table of MariaDB, partitioned by the bounds that `keymill split-sql` prints, gets parts
//! of equal size.

use std::time::{SystemTime, UNIX_EPOCH};

use keymill::Mill;
use keymill_tests::mariadb;
use mysql::prelude::Queryable;

const IDS: usize = 1_000_000;

#[test]
fn a_million_scattered_ids_fill_the_partitions_of_a_table_evenly() {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64;
    let mut server = mariadb::connection();
    // How fast it writes to the disk is not looked at.
    server.query_drop("SET SESSION unique_checks = 0").expect("a setting");
    for scatter in ["1", "2", "3", "high:5"] {
        let mill = Mill::open("memory:").expect("a mill");
        let spec = format!("snowflake:tx?worker=5&scatter={scatter}&deadline=5m");
        let source = mill.source(&spec).expect("a source");
        let layout = source.layout().expect("a snowflake");
        let window = layout.window(now_ms).expect("scattered ids");
        let regions = layout.scatter().regions();
        let table = format!("scatter_{}_{}", std::process::id(), scatter.replace(':', "_"));
        let partitions: Vec<String> = (1..=regions)
            .map(|part| {
                let bound = u128::from(window.lo)
                    + u128::from(window.hi - window.lo) * u128::from(part) / u128::from(regions);
                format!("PARTITION p{part} VALUES LESS THAN ({bound})")
            })
            .collect();
        server
            .query_drop(format!(
                "CREATE TABLE {table} (id BIGINT UNSIGNED NOT NULL PRIMARY KEY) PARTITION BY RANGE (id) ({})",
                partitions.join(", ")
            ))
            .expect("a table");
        let ids = source.take(IDS).expect("ids");
        for rows in ids.chunks(10_000) {
            let rows: Vec<String> = rows.iter().map(|id| format!("({id})")).collect();
            server
                .query_drop(format!("INSERT INTO {table} VALUES {}", rows.join(",")))
                .expect("rows, none twice");
        }
        let mut in_partition = |part| -> u64 {
            let count = server.query_first(format!("SELECT COUNT(*) FROM {table} PARTITION (p{part})"));
            count.expect("an answer").expect("a count")
        };
        let counts: Vec<u64> = (1..=regions).map(&mut in_partition).collect();
        server.query_drop(format!("DROP TABLE {table}")).expect("dropped");
        let even = IDS as f64 / regions as f64;
        let furthest = counts.iter().map(|count| (*count as f64 / even - 1.0).abs()).fold(0.0, f64::max);
        assert!(
            furthest < 0.05,
            "scatter={scatter}: a partition is {:.1} % off: {counts:?}",
            100.0 * furthest
        );
    }
}
