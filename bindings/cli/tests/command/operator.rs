//! What an operator does and sees: tables made and told apart from those that were there, one table of where things stand,
//! metrics that Prometheus reads, rows raised and taken over.
//!
//! `promtool` comes with the distribution's package `prometheus` (`ci/steps/setup` installs it).

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{Home, Ran};
use serde_json::json;

const MONTH: &str = "serial:t/c?date=yyyyMM&number=0000&zone=UTC";

/// What `promtool check metrics` says of a text: nothing.
#[track_caller]
fn assert_prometheus_reads(text: &str) {
    let mut tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool can be run: `ci/steps/setup` installs it (package prometheus)");
    tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ran = Ran::from(tool.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", ""), "{text}");
    // What promtool does not look for: one sample twice.
    let samples =
        || text.lines().filter(|line| !line.starts_with('#')).map(|line| line.rsplit_once(' ').unwrap().0);
    let mut seen = std::collections::HashSet::new();
    for sample in samples() {
        assert!(seen.insert(sample), "{sample} comes twice");
    }
}

#[test]
fn init_says_what_it_creates_and_what_was_there() {
    let home = Home::new();
    assert_eq!(
        home.run(&["init", "segment:a"]).done(),
        "store: sqlite:keymill.db\ncreated: keymill_segment\n"
    );
    let sources = ["segment:a", "segment:b", "segment:c?scheme=cosid", "serial:t/c"];
    let script = home.run(&[&["init", "--dry-run"][..], &sources].concat()).done();
    assert!(
        script.starts_with("-- keymill_segment exists\nCREATE TABLE IF NOT EXISTS \"cosid\""),
        "{script}"
    );
    assert_eq!(script.matches("CREATE TABLE").count(), 2, "{script}");
    let json = home.run(&[&["init", "--dry-run", "--json"][..], &sources].concat()).json();
    assert_eq!(json["statements"].as_array().unwrap().len(), 2);
    assert_eq!(
        json["tables"][0],
        json!({"name": "keymill_segment", "scheme": "keymill", "statements": [], "existed": true})
    );
    let made = home.run(&[&["init"][..], &sources].concat()).done();
    let lines: Vec<&str> = made.lines().skip(1).collect();
    assert_eq!(lines, ["exists: keymill_segment", "created: cosid", "created: key_producer"]);
    let script = home.run(&[&["init", "--dry-run"][..], &sources].concat()).done();
    assert_eq!(script, "-- keymill_segment exists\n-- cosid exists\n-- key_producer exists\n");
    assert_eq!(
        home.run(&["--mill", "memory:", "init"]).done(),
        "store: memory:\nready: this store needs no tables\n"
    );
}

#[test]
fn a_dry_run_prints_everything_where_nothing_can_be_looked_at() {
    let home = Home::new();
    let ran = home.run(&["--mill", "mysql://nobody:hunter22@127.0.0.1:1/ids", "init", "--dry-run"]).done();
    let (comment, script) = ran.split_once('\n').unwrap();
    assert!(
        comment.starts_with("-- The tables that exist could not be read: STORE_UNAVAILABLE: "),
        "{comment}"
    );
    for table in ["keymill_route", "keymill_reader", "keymill_segment", "keymill_worker"] {
        assert!(script.contains(&format!("CREATE TABLE IF NOT EXISTS `{table}`")), "{script}");
    }
    assert!(!ran.contains("hunter22"));
}

#[test]
fn a_dry_run_that_is_refused_was_not_creating_anything() {
    let home = Home::new();
    let db = rusqlite::Connection::open(home.path().join("keymill.db")).unwrap();
    db.execute("CREATE TABLE keymill_segment (name TEXT)", []).unwrap();
    for mill in ["sqlite:keymill.db", "memory:"] {
        let source = if mill == "memory:" { "segment:a?scheme=ticket" } else { "segment:a" };
        let dry = home.run(&["--mill", mill, "init", "--dry-run", source]).refused("STORE_REFUSED");
        assert!(dry.starts_with("looking for tables failed: "), "{dry}");
        let wet = home.run(&["--mill", mill, "init", source]).refused("STORE_REFUSED");
        assert!(wet.starts_with("creating tables failed: "), "{wet}");
    }
}

#[test]
fn status_is_one_table_of_what_the_store_knows() {
    let home = Home::new();
    home.run(&["take", "segment:a", "5"]).done();
    home.run(&["next", MONTH]).done();
    let specs = ["segment:a", "segment:none", MONTH, "snowflake:x?worker=3"];
    let text = home.run(&[&["status"][..], &specs].concat()).done();
    let head = text.lines().position(|line| line.starts_with("SOURCE ")).unwrap();
    let columns: Vec<&str> =
        text.lines().nth(head).unwrap().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
    assert_eq!(
        columns,
        [
            "SOURCE",
            "SCHEME",
            "STORE",
            "RESERVED",
            "USED",
            "LOST",
            "STEP",
            "RUNWAY",
            "LAST REFILL",
            "DURABILITY"
        ]
    );
    let cells = |name: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
    };
    let row = cells("segment:a");
    assert_eq!(
        row[..7],
        ["segment:a", "keymill", "sqlite:keymill_segment", "5", "-", "-", "800 to 10000000"]
    );
    assert!(row[7] == "-" && row[8].ends_with(" s ago") && row[9] == "crash-safe", "{row:?}");
    assert_eq!(cells("segment:none")[3], "none yet");
    assert!(cells("serial:t/c")[3].ends_with("0001"), "{text}");
    let json = home.run(&[&["status", "--json"][..], &specs].concat()).json();
    let sources = json["sources"].as_array().unwrap();
    assert_eq!((&sources[0]["used"], &sources[0]["runway_seconds"]), (&json!(null), &json!(null)));
    assert_eq!((&sources[0]["is_of_now"], &sources[0]["durability"]), (&json!(true), &json!("crash-safe")));
    assert!(sources[0]["last_refill_seconds_ago"].as_u64().is_some_and(|age| age < 100), "{json}");
}

#[test]
fn status_says_the_step_that_the_row_has() {
    let home = Home::new();
    for (scheme, columns) in
        [("leaf_alloc", ""), ("tiny_id_info", "&columns=step:by,max_id:step"), ("cosid", "")]
    {
        let made = format!("segment:{scheme}?scheme={scheme}{columns}&step=70");
        home.run(&["next", &made]).done();
        let opened = format!("segment:{scheme}?scheme={scheme}{columns}&min_step=100&max_step=500");
        let step =
            if scheme == "cosid" { "100 to 500" } else { "140 to 560 in multiples of 70, the row's step" };
        let text = home.run(&["status", &opened]).done();
        assert!(text.lines().last().is_some_and(|line| line.contains(&format!("  {step}  "))), "{text}");
        assert_eq!(home.run(&["status", &opened, "--json"]).json()["sources"][0]["step"], step);
    }
}

#[test]
fn a_row_of_another_month_is_marked_and_a_pattern_nearly_used_up_is_warned_of() {
    let home = Home::new();
    home.run(&["next", MONTH]).done();
    let db = rusqlite::Connection::open(home.path().join("keymill.db")).unwrap();
    db.execute("UPDATE key_producer SET MAXSERIALNO = '2026010500'", []).unwrap();
    let month = home.shell("date -u +%Y%m").done();
    let text = home.run(&["status", MONTH]).done();
    assert!(text.contains(&format!("2026010500 (row of 202601, now {})", month.trim())), "{text}");
    let json = home.run(&["status", MONTH, "--json"]).json();
    assert_eq!(
        (&json["sources"][0]["is_of_now"], &json["sources"][0]["row_date"]),
        (&json!(false), &json!("202601"))
    );
    let metrics = home.run(&["metrics", MONTH]).done();
    assert!(metrics.contains("keymill_store_used_ratio{source=\"serial:t/c\"} 0\n"), "{metrics}");
    db.execute("UPDATE key_producer SET MAXSERIALNO = ?", [format!("{}9000", month.trim())]).unwrap();
    let text = home.run(&["status", MONTH]).done();
    assert!(
        text.contains("warning: serial:t/c: 90 % of its number pattern's numbers are reserved\n"),
        "{text}"
    );
    db.execute("UPDATE key_producer SET MAXSERIALNO = '9999120001'", []).unwrap();
    let text = home.run(&["status", MONTH]).done();
    assert!(
        text.contains("warning: serial:t/c: its row stands in 999912, and this machine's clock says"),
        "{text}"
    );
}

#[test]
fn status_says_once_what_is_wrong_with_a_table() {
    let home = Home::new();
    let file = rusqlite::Connection::open(home.path().join("keymill.db")).unwrap();
    file.execute_batch(
        "CREATE TABLE keymill_segment (name TEXT NOT NULL PRIMARY KEY, period INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL);
         CREATE TABLE keymill_worker (pool TEXT, slot INTEGER, token INTEGER, mark INTEGER, ends_at INTEGER, owner TEXT, layout TEXT, PRIMARY KEY (pool, slot))",
    )
    .unwrap();
    drop(file);
    let sources = ["segment:a", "business:b", "snowflake:c?worker=3", "snowflake:d", "snowflake:e"];
    let ran = home.run(&[&["status"][..], &sources].concat());
    let warnings: Vec<_> = ran.out.lines().filter(|line| line.contains("made by an earlier build")).collect();
    assert_eq!(warnings.len(), 2, "one a table: {}", ran.out);
    for (warning, sources) in
        warnings.iter().zip(["segment:a, business:b, snowflake:c", "snowflake:d, snowflake:e"])
    {
        assert!(
            warning.starts_with(&format!("warning: {sources}: STORE_REFUSED: table `keymill_")),
            "{warning}"
        );
    }
    assert!(
        ran.err.starts_with("keymill: STORE_REFUSED: segment:a: table `keymill_segment` in "),
        "{}",
        ran.err
    );
    assert_ne!(ran.code, Some(0));
}

#[test]
fn a_repair_that_raises_a_pool_below_its_highest_slot_says_that_it_wrote() {
    let home = Home::new();
    let spec = "snowflake:pool?max_lead=1h";
    home.run(&["next", spec]).done();
    // The mark of the slot is a lease ahead.
    let to = (crate::common::now_ms() + 5_000).to_string();
    let to = home.shell(&format!("date -u -d @$(({to} / 1000)) +%Y-%m-%dT%H:%M:%SZ")).done();
    let repair = ["repair", spec, "--to", to.trim()];
    let first = home.run(&[&repair[..], &["--yes"]].concat()).done();
    assert!(first.contains("written: yes"), "{first}");
    let second = home.run(&[&repair[..], &["--yes"]].concat()).done();
    assert!(second.contains("written: no"), "{second}");
}

#[test]
fn metrics_are_read_by_prometheus_whatever_the_sources_are_called() {
    let home = Home::new();
    let odd = r#"segment:a"b\c{d%3D"e"}号"#;
    let specs = [
        "segment:a",
        "segment:a?scheme=leaf_alloc",
        "segment:a?order=thread",
        odd,
        "serial:t/c?date=yyyyMM&number=0000",
        "snowflake:x?worker=3",
        "snowflake:x?worker=4",
    ];
    for spec in specs {
        home.run(&["next", spec]).done();
    }
    let text = home.run(&[&["metrics"][..], &specs].concat()).done();
    assert_prometheus_reads(&text);
    assert!(text.contains(r#"keymill_store_next{source="segment:a\"b\\c{d=\"e\"}号"} 2"#), "{text}");
    // Two sources of one name are two series.
    assert!(text.contains("keymill_store_next{source=\"segment:a?scheme=leaf_alloc\"} 2\n"), "{text}");
    // As a program prints them, with figures of its own.
    let mill = keymill::Mill::open(&format!("sqlite:{}", home.path().join("keymill.db").display())).unwrap();
    for spec in specs {
        let source = mill.source(spec).unwrap();
        if source.kind() == keymill::Kind::Serial {
            source.take_text(100).unwrap();
        } else {
            source.take(100).unwrap();
        }
    }
    assert!(mill.source("segment:a?scheme=nonsense").is_err());
    assert!(mill.source("segment:a\nb").is_err(), "a name that would break a line is refused");
    let text = mill.metrics();
    assert_prometheus_reads(&text);
    for sample in [
        "keymill_issued_total{source=\"segment:a?scheme=leaf_alloc\"} 100\n",
        "keymill_step{source=\"serial:t/c\"} ",
        "keymill_last_refill_timestamp_seconds{source=\"serial:t/c\"} 1",
        "keymill_refill_seconds_count ",
    ] {
        assert!(text.contains(sample), "{sample} is not in {text}");
    }
    for line in text.lines() {
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
    }
    let latency = mill.latency();
    assert!(
        latency.count >= 7 && latency.sum_seconds > 0.0 && latency.buckets.last().unwrap().1 == latency.count
    );
}

#[test]
fn metrics_are_what_the_store_says_and_no_counters_of_the_command() {
    let home = Home::new();
    home.run(&["next", "segment:a?deadline=60s"]).done();
    let json = home.run(&["metrics", "segment:a", "--json"]).json();
    assert_eq!(json["sources"][0]["next"], "2");
    let fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["sources", "store"]);
    let text = home.run(&["metrics", "segment:a", "snowflake:x?worker=3"]).done();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge"));
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "keymill_store_warnings",
            "keymill_store_next",
            "keymill_store_used_ratio",
            "keymill_store_last_refill_age_seconds",
            "keymill_layout_end_timestamp_seconds"
        ]
    );
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    assert!(samples.clone().count() >= 5, "{text}");
    for sample in samples {
        assert!(
            sample.starts_with("keymill_store_") || sample.starts_with("keymill_layout_end_"),
            "{sample}"
        );
    }
}

#[test]
fn repair_shows_the_same_before_and_after_it_writes_on_every_scheme() {
    let home = Home::new();
    let rows =
        keymill::Scheme::ALL.into_iter().filter(|scheme| scheme.keeps_segments() && !scheme.is_ticket());
    for scheme in rows {
        let allocation = if scheme.keeps_allocation() { "&allocation=0" } else { "" };
        let spec = format!("segment:orders?scheme={scheme}&step=10{allocation}");
        home.run(&["next", &spec]).done();
        let shown = home.run(&["repair", &spec, "--to", "5001"]).done();
        let written = home.run(&["repair", &spec, "--to", "5001", "--yes"]).done();
        assert_eq!(shown.replace("written: no", "written: yes"), written, "{scheme}");
        assert_eq!(home.run(&["next", &spec]).done(), "5001\n", "{scheme}");
        let lower = home.run(&["repair", &spec, "--to", "17", "--yes"]).refused("STORE_REFUSED");
        assert!(lower.contains("never lowers"), "{lower}");
    }
    for scheme in ["keymill", "key_producer"] {
        let spec = format!("serial:t/c?number=000000&zone=UTC&scheme={scheme}");
        home.run(&["next", &spec]).done();
        let shown = home.run(&["repair", &spec, "--to", "731"]).done();
        let written = home.run(&["repair", &spec, "--to", "731", "--yes"]).done();
        assert_eq!(shown.replace("written: no", "written: yes"), written, "{scheme}");
        assert!(home.run(&["next", &spec]).done().ends_with("000731\n"), "{scheme}");
    }
}

#[test]
fn a_row_of_every_second_number_is_spoken_of_in_ids() {
    let home = Home::new();
    let spec = "segment:orders?scheme=tiny_id_info&step=10&delta=2&remainder=1";
    assert_eq!(home.run(&["take", spec, "4"]).done(), "1\n3\n5\n7\n");
    let json = home.run(&["status", spec, "--json"]).json();
    let source = &json["sources"][0];
    assert_eq!((&source["next"], &source["reserved_to"]), (&json!("9"), &json!("7")));
    assert_eq!((&source["delta"], &source["remainder"]), (&json!("2"), &json!("1")));
    let row = source["row"].as_str().expect("a text");
    // A slow command may have reserved more, and given it back.
    assert!(row.starts_with("max_id=8 step=20 delta=2 remainder=1 version="), "{row}");
    let step = source["step"].as_str().expect("a text");
    assert!(step.starts_with("20 to ") && step.ends_with("the row's step, an id in every 2"), "{step}");
    assert_eq!(home.run(&["parse", spec, "7"]).done(), "number: 7\n");
    home.run(&["parse", spec, "8"]).refused("INVALID_ARGUMENT");
    // The first id from there on.
    let ran = home.run(&["repair", spec, "--to", "5000"]);
    // 9, 11, … 4999.
    assert!(
        ran.err.contains("5001 would be the next number") && ran.err.contains("2496 of its ids below it"),
        "{ran:?}"
    );
    let shown = ran.done();
    assert_eq!(
        home.run(&["repair", spec, "--to", "5000", "--yes"]).done(),
        shown.replace("written: no", "written: yes")
    );
    assert!(shown.contains("max_id=5000 step=20 delta=2 remainder=1"), "{shown}");
    assert_eq!(home.run(&["next", spec]).done(), "5001\n");

    let other = home.run(&["next", "segment:orders?scheme=tiny_id_info&delta=2"]).refused("STORE_REFUSED");
    assert!(other.contains("write `delta=2&remainder=1`; nothing was changed"), "{other}");
    let import =
        home.run(&["import", "segment:orders", "--from", "tiny_id_info", "--yes"]).refused("STORE_REFUSED");
    assert!(import.contains("delta=2 and remainder=1: other databases issue the other numbers"), "{import}");
    assert!(!import.contains("write `delta"), "{import}");
    assert_eq!(home.run(&["next", spec]).done(), "5003\n");
}

#[test]
fn import_shows_then_writes_then_says_that_it_is_done() {
    let home = Home::new();
    home.run(&["take", "segment:orders?scheme=leaf_alloc&step=50", "120"]).done();
    let import =
        |more: &[&str]| home.run(&[&["import", "segment:orders", "--from", "leaf_alloc"][..], more].concat());
    let shown = import(&[]);
    assert!(shown.err.contains("add --yes"), "{shown:?}");
    let shown = shown.done();
    assert_eq!(
        shown,
        "source: segment:orders\nfrom: leaf_alloc\nold row before: max_id=121 step=50\n\
         old row after: max_id=4611686018427388025 step=50\nnew row before: no row yet\nnew row after: next=121\nwritten: no\n"
    );
    assert_eq!(import(&["--dry-run"]).done(), shown);
    assert_eq!(import(&["--dry-run", "--yes"]).code, Some(2));
    assert_eq!(import(&["--yes"]).done(), shown.replace("written: no", "written: yes"));
    assert!(import(&["--yes"]).done().ends_with("written: already imported\n"));
    assert_eq!(home.run(&["next", "segment:orders"]).done(), "121\n");
    assert_eq!(home.run(&["import", "segment:a", "--from", "leaf"]).code, Some(2));
    // Another source's, whatever that has of its own.
    home.run(&["take", "segment:b", "5"]).done();
    for more in [&[][..], &["--yes"][..]] {
        let other = ["import", "segment:b", "--from", "leaf_alloc", "--row", "orders"];
        let taken = home.run(&[&other[..], more].concat()).refused("STORE_REFUSED");
        assert!(taken.contains("was imported into `segment:orders` before"), "{taken}");
    }
    let renamed = "segment:c?scheme=cosid&table=ours&columns=last_max_id:highest,name:who";
    home.run(&["take", renamed, "5"]).done();
    let import = |more: &[&str]| {
        let words = ["import", "segment:c", "--from", "cosid", "--table", "ours", "--yes"];
        home.run(&[&words[..], more].concat())
    };
    assert!(import(&[]).refused("STORE_REFUSED").contains("say so with `columns=`"));
    assert!(import(&["--columns", "max_id:m"]).refused("INVALID_CONFIG").contains("last_max_id"));
    let said = import(&["--columns", "last_max_id:highest,name:who"]).done();
    assert!(said.contains("old row before: highest=5\n") && said.ends_with("written: yes\n"), "{said}");
    home.run(&["import", "segment:orders", "--from", "leaf_alloc", "--row", "nobody"])
        .refused("STORE_REFUSED");
    let serial = "serial:t/c?number=0000&zone=UTC";
    home.run(&["next", serial]).done();
    let ran = home.run(&["import", serial, "--from", "key_producer"]).refused("STORE_REFUSED");
    assert!(ran.contains("write `scheme=keymill`"), "{ran}");
    let moved = format!("{serial}&scheme=keymill");
    let ran = home.run(&["import", &moved, "--from", "key_producer", "--yes"]);
    assert!(ran.err.contains("stop them before the date changes"), "{ran:?}");
    assert!(home.run(&["next", &moved]).done().ends_with("0002\n"));
}

#[test]
fn repair_takes_every_number_that_it_offers() {
    let home = Home::new();
    for spec in ["segment:a", "segment:b?scheme=leaf_alloc", "segment:c?scheme=cosid"] {
        home.run(&["next", spec]).done();
        let offered = home.run(&["repair", spec, "--to", "18446744073709551615"]).refused("INVALID_ARGUMENT");
        let (_, highest) = offered.rsplit_once("from 1 to ").expect("a range");
        assert!(
            home.run(&["repair", spec, "--to", highest, "--yes"]).done().contains("written: yes"),
            "{spec}"
        );
    }
}

#[test]
fn a_url_of_a_driver_says_what_to_write() {
    let home = Home::new();
    for (url, says) in [
        ("jdbc:mysql://db/ids", "mysql://user@host:port/database"),
        ("mysql+pymysql://app:hush@db/ids", "mysql://user@host:port/database"),
        ("postgresql+psycopg://app:hush@db/ids", "postgres://user@host:port/database"),
        ("postgres://app@db/ids?channel_binding=require", "`tls=verify`"),
        ("mysql://app@db/ids?sslaccept=strict", "`tls=verify`"),
    ] {
        let refused = home.run(&["--mill", url, "next", "segment:a"]).refused("INVALID_CONFIG");
        assert!(
            refused.contains(says) && refused.contains("`store_of`") && !refused.contains("hush"),
            "{refused}"
        );
    }
}

#[test]
fn a_period_of_a_millisecond_is_refused_where_a_store_has_to_answer_within_it() {
    let home = Home::new();
    let spec = "serial:t/c?date=yyyyMMddHHmmssSSS&number=0000";
    assert!(home.run(&["next", spec]).refused("INVALID_CONFIG").contains("`ss`"));
    home.run(&["next", "serial:t/c?date=yyyyMMddHHmmss&number=0000"]).done();
    home.run(&["--mill", "memory:?clock=manual", "next", spec]).done();
}
