//! `ddl`, `split-sql` and `spread`, and `layout` with a demand. These commands print and ask no store.

use crate::common::Home;

const SCATTERED: &str = "snowflake:tx?worker=5&scatter=1";

#[test]
fn the_advice_for_many_servers_is_a_form_that_the_layout_takes() {
    let home = Home::new();
    let spec = |scatter| format!("snowflake:tx?layout=js53&worker=5&scatter={scatter}");
    let script = home.run(&["split-sql", &spec("1"), "t_tx", "--tikv", "1000"]).done();
    assert!(script.contains("scatter=3 or scatter=high:7."), "{script}");
    home.run(&["split-sql", &spec("high:7"), "t_tx"]).done();
}

#[test]
fn a_table_is_split_into_the_parts_of_this_first_digit_and_of_the_next() {
    let home = Home::new();
    let script = home.run(&["split-sql", SCATTERED, "t_tx", "--tikv", "12"]).done();
    let splits: Vec<&str> =
        script.lines().filter(|line| line.starts_with("SPLIT TABLE `t_tx` BETWEEN (")).collect();
    assert_eq!(splits.len(), 2, "{script}");
    assert!(splits.iter().all(|split| split.ends_with("00000000000000) REGIONS 10;")), "{script}");
    assert_eq!(script.matches("\n-- Ids made from 20").count(), 2, "{script}");
    for line in [
        "SET SESSION tidb_wait_split_region_finish = ON;",
        "ALTER TABLE `t_tx` ATTRIBUTES 'merge_option=deny';",
    ] {
        assert!(script.lines().any(|found| found == line), "{line} in {script}");
    }
    assert!(script.contains("-- 12 TiKV servers: scatter=1 or scatter=high:4."), "{script}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "no store was touched");

    // A new id lies in the first window.
    let answer = home.run(&["--json", "split-sql", SCATTERED, "t_tx"]).json();
    let bound = |name: &str| answer["windows"][0][name].as_str().unwrap().parse::<u64>().unwrap();
    let id = home.run(&["next", SCATTERED]).ids()[0];
    assert!((bound("lo")..bound("hi")).contains(&id), "{id} in {answer}");
    assert_eq!(answer["windows"][0]["hi"], answer["windows"][1]["lo"]);
    assert_eq!(answer["windows"][0]["until"], answer["windows"][1]["from"]);
}

#[test]
fn no_statement_makes_more_than_a_thousand_regions_and_none_is_left_out() {
    let home = Home::new();
    let spec = "snowflake:tx?worker=5&scatter=high:12";
    let script = home.run(&["split-sql", spec, "s.t`x", "--index", "PRIMARY"]).done();
    let mut made = 0;
    let mut end = None;
    for line in script.lines().filter(|line| line.starts_with("SPLIT")) {
        let words: Vec<&str> =
            line.trim_end_matches(';').split(&['(', ')', ' '][..]).filter(|w| !w.is_empty()).collect();
        assert_eq!(words[..5], ["SPLIT", "TABLE", "`s`.`t``x`", "INDEX", "`PRIMARY`"], "{line}");
        let (lo, hi): (u64, u64) = (words[6].parse().unwrap(), words[8].parse().unwrap());
        let regions: u64 = words[10].parse().unwrap();
        assert!(regions <= 1000, "{line}");
        // The bounds of a statement are no splits: the next one begins a region before the end.
        if let Some(end) = end.replace(hi) {
            assert_eq!((end - lo) >> 51, 1, "{line}");
            made -= 1;
        }
        made += regions;
    }
    assert_eq!((made, end), (4096, Some(i64::MAX as u64)), "{script}");
}

#[test]
fn what_cannot_be_split_is_refused_with_what_to_do() {
    let home = Home::new();
    for (args, says) in [
        (&["split-sql", "segment:orders", "t"][..], "use a snowflake with scatter=1"),
        (&["split-sql", "business:order", "t"], "begin with the gene of their key"),
        (&["spread", "business:order"], "`keymill heat` shows"),
        (&["spread", "snowflake:tx?layout=time:41@1ms,worker:1,seq:21", "--workers", "3"], "it has 2"),
        (
            &["ddl", "business:order?wide=on", "--dialect", "tidb", "--variant", "text"],
            "clustered and nonclustered",
        ),
        (&["split-sql", "snowflake:tx?worker=5", "t"], "open it with scatter=1, 2, 3 or high:BITS"),
        (&["split-sql", SCATTERED, "t", "--regions", "1"], "2 regions or more"),
        (&["split-sql", SCATTERED, ""], "write TABLE or SCHEMA.TABLE"),
        (&["ddl", "segment:orders", "shop.", "--dialect", "mysql"], "write TABLE or SCHEMA.TABLE"),
        (&["split-sql", SCATTERED, "t", "--regions", "18446744073709551615"], "at least 1000 ids each"),
        (
            &["ddl", "segment:orders", "--dialect", "mysql", "--variant", "text"],
            "--variant is for --dialect tidb",
        ),
        (
            &["ddl", "serial:t/c?number=000000", "--dialect", "tidb", "--variant", "clustered"],
            "nonclustered and text",
        ),
        (&["layout", "--years", "100", "--workers", "1000000000", "--rate", "1000000"], "more than 63 bits"),
        (&["layout", "--years", "0", "--workers", "1", "--rate", "1"], "at least 1"),
    ] {
        let error = home.run(args).refused("INVALID_ARGUMENT");
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

#[test]
fn a_table_holds_the_ids_of_its_source() {
    let home = Home::new();
    home.run(&["ddl", "segment:or\"d", "--dialect", "sqlite"]).done();
    let sqlite = home.run(&["ddl", "serial:t/c?number=000000", "t2", "--dialect", "sqlite"]).done();
    let database = rusqlite::Connection::open_in_memory().unwrap();
    database.execute_batch(&sqlite).unwrap();
    database.execute_batch(&home.run(&["ddl", "segment:or\"d", "--dialect", "sqlite"]).done()).unwrap();
    database.execute("INSERT INTO \"or\"\"d\" (id) VALUES (9223372036854775807)", []).unwrap();
    database.execute("INSERT INTO t2 (id) VALUES ('20261120000001')", []).unwrap();
    for (variant, holds) in [
        ("clustered", "id BIGINT NOT NULL PRIMARY KEY CLUSTERED,"),
        ("nonclustered", ") SHARD_ROW_ID_BITS = 4 PRE_SPLIT_REGIONS = 4;"),
        ("text", "id VARCHAR(19) NOT NULL PRIMARY KEY NONCLUSTERED,"),
        ("auto-random", "id BIGINT NOT NULL PRIMARY KEY CLUSTERED AUTO_RANDOM(5),"),
    ] {
        let sql = home.run(&["ddl", SCATTERED, "--dialect", "tidb", "--variant", variant]).done();
        assert!(sql.contains("CREATE TABLE `tx` (\n") && sql.contains(holds), "{variant}: {sql}");
    }
    // The default follows the source.
    assert!(home.run(&["ddl", SCATTERED, "--dialect", "tidb"]).done().contains(" CLUSTERED"));
    assert!(
        home.run(&["ddl", "segment:a", "--dialect", "tidb"])
            .done()
            .contains("BIGINT NOT NULL PRIMARY KEY NONCLUSTERED")
    );
    assert!(
        home.run(&["ddl", "serial:t/c?number=000000", "--dialect", "tidb"]).done().contains("VARCHAR(14)")
    );
    assert!(
        home.run(&["ddl", "business:order", "--dialect", "tidb"])
            .done()
            .contains("order_id BIGINT NOT NULL PRIMARY KEY CLUSTERED")
    );
}

#[test]
fn the_key_of_wide_ids_has_16_bytes() {
    let home = Home::new();
    for (dialect, holds) in [
        ("tidb", "order_id VARBINARY(16) NOT NULL PRIMARY KEY CLUSTERED,"),
        ("mysql", "order_id VARBINARY(16) NOT NULL PRIMARY KEY,"),
        ("mariadb", "order_id VARBINARY(16) NOT NULL PRIMARY KEY,"),
        ("postgres", "order_id bytea NOT NULL PRIMARY KEY,"),
        ("sqlite", "order_id BLOB NOT NULL PRIMARY KEY,"),
    ] {
        let sql = home.run(&["ddl", "business:order?wide=on", "--dialect", dialect]).done();
        assert!(sql.contains(holds), "{dialect}: {sql}");
    }
}

#[test]
fn layouts_are_proposed_for_what_they_must_hold() {
    let home = Home::new();
    let table = home.run(&["layout", "--years", "50", "--workers", "1000", "--rate", "100000"]).done();
    let first: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(first[..4], ["time:41@1ms,worker:10,seq:12", "69.7", "1024", "4096000"]);
    let small = home.run(&["layout", "--years", "30", "--workers", "32", "--rate", "10"]).done();
    let last: Vec<&str> = small.lines().last().expect("a row").split_whitespace().collect();
    assert_eq!((last[0], last[4]), ("time:40@1ms,worker:5,seq:8", "yes"), "{small}");
    let one = home.run(&["layout", "time:41@1ms,worker:1,seq:21"]).done();
    assert!(one.contains("\nworker: 1 bit, 0 to 1\n"), "{one}");
    let half = home.run(&["layout", "--workers", "10", "--rate", "10"]);
    assert!(
        half.code == Some(2) && half.err.contains("--years <Y>") && !half.err.contains("<NAME_OR_SPEC>\n"),
        "{half:?}"
    );
    let uneven = home.run(&["layout", "sonyflake"]).done();
    assert!(uneven.contains("\nnote: the sequence does not stand last"), "{uneven}");
    let scattered = home.run(&["layout", "twitter", "--scatter", "2"]).done();
    for line in ["ends: 2092-12-30", "scatter: 2", "regions of one moment: 100"] {
        assert!(scattered.lines().any(|found| found == line), "{line} in {scattered}");
    }
}

#[test]
fn ids_that_rise_have_one_hot_region_and_scattered_ones_have_none() {
    let home = Home::new();
    let share = |args: &[&str]| -> f64 {
        let answer = home.run(&[&["--json", "spread"], args].concat()).json();
        let text = answer["hottest_share_of_a_second"].as_str().unwrap().to_owned();
        text.trim_end_matches(" %").parse().unwrap()
    };
    assert!(share(&["snowflake:tx?worker=5"]) > 80.0);
    assert!(share(&["snowflake:tx?worker=5", "--workers", "2"]) > 80.0, "ids of one moment are neighbours");
    assert!(share(&["snowflake:tx?slots=8-15"]) > 80.0, "a worker that would be leased");
    assert!(share(&["segment:orders"]) > 80.0);
    for spec in [SCATTERED, "snowflake:tx?worker=5&scatter=high:3"] {
        let hottest = share(&[spec, "--workers", "4"]);
        assert!(hottest < 20.0, "{spec}: {hottest}");
    }
    assert!(share(&["snowflake:tx?worker=5", "--modulo", "10"]) < 20.0);

    let file = home.path().join("spread.svg");
    let text = home.run(&["spread", SCATTERED, "--svg", file.to_str().unwrap()]).done();
    assert!(text.starts_with("10 regions of the table, 60 seconds\n│"), "{text}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("</svg>"));
    let error = home.run(&["spread", "serial:t/c"]).refused("INVALID_ARGUMENT");
    assert!(error.contains("texts"), "{error}");
    let error = home.run(&["spread", SCATTERED, "--svg", "/no/folder/x.svg"]).refused("INVALID_ARGUMENT");
    assert!(error.contains("cannot be drawn"), "{error}");
}
