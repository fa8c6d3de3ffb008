//! The command as people use it: every verb, on files in a temporary folder.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::common::{Home, now_ms};
use keymill::snowflake::layout::rfc3339;
use serde_json::json;

#[test]
fn five_ids_then_five_more_leave_no_gap() {
    let home = Home::new();
    assert_eq!(home.run(&["take", "segment:order", "5"]).done(), "1\n2\n3\n4\n5\n");
    assert_eq!(home.run(&["take", "segment:order", "5"]).done(), "6\n7\n8\n9\n10\n");
    assert_eq!(home.run(&["next", "segment:order"]).done(), "11\n");
    assert_eq!(home.run(&["next", "segment:order", "--json"]).json(), json!("12"));
    assert!(home.path().join("keymill.db").exists());
}

#[test]
fn a_take_is_silent_on_standard_error() {
    let home = Home::new();
    let ran = home.run(&["--mill", "sqlite:ids.db", "take", "segment:order", "100000"]);
    assert_eq!(ran.err, "");
    assert_eq!(ran.ids(), (1..=100_000).collect::<Vec<_>>());
}

#[test]
fn no_ids_are_no_lines_and_an_empty_array() {
    let home = Home::new();
    assert_eq!(home.run(&["take", "segment:order", "0"]).done(), "");
    assert_eq!(home.run(&["take", "segment:order", "0", "--json"]).json(), json!([]));
    assert_eq!(home.run(&["next", "segment:order"]).done(), "1\n");
}

#[test]
fn taken_ids_as_json_are_one_array_of_strings_over_many_chunks() {
    let home = Home::new();
    let ids = home.run(&["take", "segment:order", "200001", "--json"]).json();
    let ids: Vec<&str> = ids.as_array().unwrap().iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!(ids.len(), 200_001);
    assert!((1..=200_001).map(|n: u64| n.to_string()).eq(ids));
    let serials = home.run(&["take", r#"serial:a/b?date='"\'yyyy&number=000"#, "2", "--json"]).json();
    assert!(serials[0].as_str().unwrap().starts_with(r#""\2"#), "{serials}");
    assert!(serials[1].as_str().unwrap().ends_with("002"), "{serials}");
}

#[test]
fn serial_sources_print_texts_and_parse_them_back() {
    let home = Home::new();
    let spec = "serial:cust_info/custid?date=yyyyMMdd&number=000000&step=500&zone=UTC";
    let out = home.run(&["take", spec, "3"]).done();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines.iter().all(|line| line.len() == 14), "{out}");
    assert!(lines[0].ends_with("000001") && lines[2].ends_with("000003"), "{out}");
    assert!(home.run(&["next", spec]).done().ends_with("000004\n"));
    let parts = home.run(&["parse", spec, "20261120000731"]).done();
    assert_eq!(parts, "date: 20261120\nnumber: 731\n");
}

#[test]
fn a_snowflake_is_taken_apart_into_time_worker_and_sequence() {
    let home = Home::new();
    let spec = "snowflake:tx?worker=5";
    let ids = home.run(&["take", spec, "20000"]).ids();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    let parts = home.run(&["parse", spec, &ids[0].to_string()]).done();
    let names: Vec<&str> = parts.lines().map(|line| line.split_once(": ").unwrap().0).collect();
    assert_eq!(names, ["time", "worker", "sequence"]);
    assert!(parts.contains("\nworker: 5\n"), "{parts}");
    let parts = home.run(&["--json", "parse", spec, "4194304"]).json();
    assert_eq!(parts, json!({ "time": "2025-01-01T00:00:00.001Z", "worker": "0", "sequence": "0" }));
}

#[test]
fn a_snowflake_of_two_ids_a_second_is_streamed_within_its_deadline() {
    let home = Home::new();
    let ids = home.run(&["take", "snowflake:slow?worker=1&layout=time:40@1s,worker:5,seq:1", "10"]).ids();
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 10);
}

#[test]
fn parsing_touches_no_store() {
    let home = Home::new();
    home.run(&["parse", "snowflake:tx?worker=5", "4194304"]).done();
    home.run(&["status", "segment:order"]).done();
    home.run(&["metrics", "segment:order"]).done();
    home.run(&["repair", "segment:order", "--to", "5"]).done();
    home.run(&["init", "--dry-run"]).done();
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn a_layout_is_explained_with_its_capacity_and_its_end() {
    let home = Home::new();
    let uid = home.run(&["layout", "uid"]).done();
    for line in ["layout: time:28@1s,worker:22,seq:13", "ends: 2033-07-04", "ids per second and worker: 8192"]
    {
        assert!(uid.lines().any(|found| found == line), "{line} in {uid}");
    }
    let free = home.run(&["layout", "time:41@1ms,dc-worker:5+5,seq:12", "--json"]).json();
    assert_eq!(free["ends"], "2094-09-07");
    assert_eq!(free["largest_id"], "9223372036854775807");
    // uid-generator's own epoch: over, explained all the same, its old ids can be read, and no new one is made.
    let ended = home.run(&["layout", "uid", "--epoch", "2016-05-20"]).done();
    assert!(
        ended.lines().any(|line| line.starts_with("warning: ") && line.contains("2024-11-20")),
        "{ended}"
    );
    let spec = "snowflake:old?worker=1&layout=uid&epoch=2016-05-20";
    let parsed = home.run(&["parse", spec, "4611686018427387904"]).done();
    assert!(parsed.contains("time: 20"), "{parsed}");
    let refused = home.run(&["next", spec]).refused("LAYOUT_ENDED");
    assert!(refused.contains("2024-11-20"), "{refused}");
}

#[test]
fn a_layout_that_ends_within_a_year_is_warned_of() {
    let home = Home::new();
    // 2^20 s are twelve days; the epoch is yesterday at the latest.
    let day = home.shell("date -u -d yesterday +%F").done();
    let ran = home.run(&["layout", "time:20@1s,worker:10,seq:12", "--epoch", day.trim()]).done();
    assert!(ran.lines().any(|line| line.starts_with("warning: ")), "{ran}");
}

#[test]
fn init_creates_tables_and_its_dry_run_only_prints_them() {
    let home = Home::new();
    let script = home.run(&["init", "--dry-run", "segment:a", "serial:t/c"]).done();
    assert_eq!(script.matches("CREATE TABLE").count(), 2, "{script}");
    assert!(script.contains("keymill_segment") && script.contains("key_producer"), "{script}");
    // What is printed is what a SQLite shell takes.
    let db = rusqlite::Connection::open(home.path().join("by-hand.db")).unwrap();
    db.execute_batch(&script).unwrap();
    drop(db);
    assert_eq!(home.run(&["--mill", "sqlite:by-hand.db", "next", "segment:a"]).done(), "1\n");
    let made = home.run(&["init"]).done();
    assert_eq!(
        made,
        "store: sqlite:keymill.db\ncreated: keymill_route\ncreated: keymill_reader\ncreated: keymill_segment\ncreated: keymill_worker\n"
    );
    assert_eq!(
        home.run(&["init"]).done(),
        "store: sqlite:keymill.db\nexists: keymill_route\nexists: keymill_reader\nexists: keymill_segment\nexists: keymill_worker\n"
    );
}

#[test]
fn status_says_store_facts_first_and_then_where_each_row_stands() {
    let home = Home::new();
    home.run(&["take", "segment:order", "5"]).done();
    let text = home.run(&["status", "segment:order", "segment:none", "serial:t/c"]).done();
    assert!(text.starts_with("store: sqlite:keymill.db\ndialect: sqlite "), "{text}");
    assert!(text.contains("\ndurability: journal_mode=wal, synchronous=FULL\n"), "{text}");
    let row = text.lines().find(|line| line.starts_with("segment:order ")).unwrap();
    assert!(row.contains("  5  ") && row.contains("800 to 10000000") && row.contains("s ago"), "{row}");
    assert!(
        text.lines().any(|line| line.starts_with("segment:none ") && line.contains("none yet")),
        "{text}"
    );
    assert!(
        text.lines().any(|line| line.starts_with("serial:t/c ") && line.contains("key_producer")),
        "{text}"
    );
    let json = home.run(&["status", "segment:order", "snowflake:tx?worker=3", "--json"]).json();
    assert_eq!(json["sources"][0]["reserved_to"], "5");
    assert_eq!(json["sources"][1]["ends"], "2094-09-07");
    // Looking reserves nothing.
    assert_eq!(home.run(&["next", "segment:order"]).done(), "6\n");
}

#[test]
fn status_without_a_source_lists_what_the_store_has() {
    let home = Home::new();
    assert_eq!(home.run(&["status", "--json"]).json()["rows"], serde_json::json!([]), "an empty store");
    home.run(&["take", "segment:order?step=10", "5"]).done();
    home.run(&["take", "business:buyer?counters=4", "300", "--key", "42"]).done();
    home.run(&["next", "serial:t/c?scheme=keymill&zone=UTC&number=0000"]).done();
    home.run(&["repair", "snowflake:tx?worker=lease", "--to", "2026-01-01T00:00:00Z", "--yes"]).done();
    let text = home.run(&["status"]).done();
    let rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("row: ")).collect();
    assert!(rows.contains(&"keymill_segment: segment:order next=6"), "{text}");
    assert!(rows.iter().any(|row| row.starts_with("keymill_segment: business:buyer next=")), "{text}");
    let serial = "keymill_segment: serial:T/C?date=yyyyMMdd&number=0000 date=20";
    assert!(rows.iter().any(|row| row.starts_with(serial)), "{text}");
    assert_eq!(rows.last(), Some(&"keymill_worker: tx"), "{text}");
    assert_eq!(rows.len(), 4, "the counters of the bank are left out: {text}");
    let json = home.run(&["status", "--json"]).json();
    assert_eq!(json["rows"][3]["name"], "tx");
    // With a source, only what was asked for.
    assert!(!home.run(&["status", "segment:order"]).done().contains("\nrow: "));
}

/// As `store_of` writes them.
#[test]
fn status_shows_the_settings_of_the_application_that_a_store_does_not_need() {
    let home = Home::new();
    home.run(&["next", "segment:order"]).done();
    let mill = "sqlite:keymill.db?ignored=useUnicode,poolName,+2";
    let text = home.run(&["--mill", mill, "status"]).done();
    assert!(text.contains("\nignored: useUnicode, poolName, +2\n"), "{text}");
    let json = home.run(&["--mill", mill, "status", "--json"]).json();
    assert_eq!(json["ignored"], serde_json::json!(["useUnicode", "poolName", "+2"]));
    let without = home.run(&["status", "--json"]).json();
    assert_eq!(without["ignored"], serde_json::json!([]));
}

#[test]
fn metrics_are_prometheus_text_with_the_store_s_word() {
    let home = Home::new();
    home.run(&["take", "segment:order", "5"]).done();
    let text = home.run(&["metrics", "segment:order"]).done();
    assert!(text.contains("keymill_store_next{source=\"segment:order\"} 6\n"), "{text}");
    assert!(text.contains("\nkeymill_store_warnings 0\n"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit_once(' ').map(|(_, value)| value.parse::<f64>());
        assert!(matches!(value, Some(Ok(_))), "{line}");
    }
    assert_eq!(home.run(&["metrics", "segment:order", "--json"]).json()["sources"][0]["next"], "6");
}

#[test]
fn repair_shows_then_writes_and_never_lowers() {
    let home = Home::new();
    home.run(&["take", "segment:order", "5"]).done();
    let shown = home.run(&["repair", "segment:order", "--to", "500"]);
    assert!(shown.err.contains("--yes"), "{shown:?}");
    let shown = shown.done();
    assert_eq!(shown, "source: segment:order\nbefore: next=6\nafter: next=500\nwritten: no\n");
    assert_eq!(home.run(&["next", "segment:order"]).done(), "6\n");
    let written = home.run(&["repair", "segment:order", "--to", "500", "--yes"]).done();
    assert_eq!(written, "source: segment:order\nbefore: next=7\nafter: next=500\nwritten: yes\n");
    assert_eq!(home.run(&["next", "segment:order"]).done(), "500\n");
    for yes in [&[][..], &["--yes"]] {
        let args = [&["repair", "segment:order", "--to", "5"], yes].concat();
        assert!(home.run(&args).refused("STORE_REFUSED").contains("segment:order"));
    }
    home.run(&["repair", "segment:order", "--to", "0"]).refused("INVALID_ARGUMENT");
    let json = home.run(&["repair", "segment:new", "--to", "9", "--json"]).json();
    assert_eq!(json, json!({"source": "segment:new", "before": null, "after": "next=9", "written": false}));
}

#[test]
fn today_s_serials_go_on_where_repair_says() {
    let home = Home::new();
    let spec = "serial:t/c?number=000000&zone=UTC";
    let shown = home.run(&["repair", spec, "--to", "731"]).done();
    let after = shown.lines().find(|line| line.starts_with("after: ")).unwrap().to_owned();
    assert!(after.ends_with("000730"), "{after}");
    let written = home.run(&["repair", spec, "--to", "731", "--yes"]).done();
    assert!(written.contains(&after), "{written}");
    assert!(home.run(&["next", spec]).done().ends_with("000731\n"));
}

#[test]
fn bench_gives_ratios_to_a_bare_counter() {
    let home = Home::new();
    let args = ["--mill", "memory:", "bench", "segment:b", "--threads", "2", "--seconds", "1", "--json"];
    let json = home.run(&args).json();
    let ways: Vec<&str> =
        json["ways"].as_array().unwrap().iter().map(|way| way["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["lock xadd", "next", "handle", "batch of 1000"]);
    assert_eq!(json["ways"][0]["ratio"], 1.0);
    assert!(json["ways"].as_array().unwrap().iter().all(|way| way["ns_per_id"].as_f64().unwrap() > 0.0));
    let text =
        home.run(&["--mill", "memory:", "bench", "serial:t/c?number=000000000000", "--seconds", "1"]).done();
    assert!(text.contains("\nWAY ") && text.contains("\ntext "), "{text}");
    // An error on one thread ends all of them: two digits are soon used up.
    let ran = home.run(&["--mill", "memory:", "bench", "serial:t/c?number=00", "--threads", "3"]);
    ran.refused("NUMBER_OVERFLOW");
}

#[test]
fn completions_are_made_for_every_shell() {
    let home = Home::new();
    for (shell, mark) in
        [("bash", "complete -F"), ("zsh", "#compdef keymill"), ("fish", "complete -c keymill")]
    {
        let script = home.run(&["completions", shell]).done();
        assert!(script.contains(mark) && script.contains("repair"), "{shell}");
    }
    let checked =
        home.shell("$K completions bash > k.bash && bash -n k.bash && . ./k.bash && complete -p keymill");
    assert!(checked.done().contains("_keymill"));
}

#[test]
fn every_verb_s_help_has_examples_that_run_the_verb() {
    let home = Home::new();
    let top = home.run(&["--help"]).done();
    assert!(top.contains("Five minutes:") && top.contains("KEYMILL_CONFIG"), "{top}");
    for verb in [
        "next",
        "take",
        "parse",
        "seal",
        "unseal",
        "layout",
        "init",
        "status",
        "metrics",
        "bench",
        "repair",
        "import",
        "completions",
    ] {
        assert!(top.contains(verb), "{verb}");
        let help = home.run(&[verb, "--help"]).done();
        assert_eq!(home.run(&["help", verb]).done(), help);
        assert!(help.contains("Examples:"), "{help}");
        let examples = help.lines().filter(|line| line.starts_with("  ") && line.contains("keymill "));
        assert!(examples.filter(|line| line.contains(verb)).count() >= 2, "{help}");
    }
    assert_eq!(home.run(&["--version"]).done(), format!("keymill {}\n", keymill::VERSION));
}

/// A label that occurs twice makes the whole text invalid.
#[test]
fn sources_with_names_like_other_sources_specs_have_labels_of_their_own() {
    let home = Home::new();
    // Two of one name have their specs as labels, and the name of the third is the spec of the first.
    let specs = [
        "segment:a?buffer=5s",
        "segment:a?buffer=6s&table=b",
        "segment:a%3Fbuffer%3D5s",
        "segment:a%253Fbuffer%253D5s",
    ];
    let text = home.run(&[&["metrics"][..], &specs].concat()).done();
    let mut seen = std::collections::BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let series = line.rsplit_once(' ').unwrap().0;
        assert!(seen.insert(series), "{series} stands there twice:\n{text}");
    }
    assert!(seen.iter().filter(|series| series.starts_with("keymill_store_next")).count() <= specs.len());
    for spec in &specs {
        home.run(&["next", spec]).done();
    }
    let text = home.run(&[&["metrics"][..], &specs].concat()).done();
    let series = text.lines().filter(|line| line.starts_with("keymill_store_next{"));
    let series: std::collections::BTreeSet<_> = series.map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert_eq!(series.len(), specs.len(), "{text}");
}

#[test]
fn the_environment_names_the_mill_unless_the_command_line_does() {
    let home = Home::new();
    let mill = |config: &str, args: &[&str]| {
        crate::common::Ran::from(home.command(args).env("KEYMILL_CONFIG", config).output().unwrap())
    };
    assert_eq!(mill("sqlite:other.db", &["take", "segment:a", "2"]).done(), "1\n2\n");
    assert!(home.path().join("other.db").exists() && !home.path().join("keymill.db").exists());
    assert_eq!(mill("sqlite:other.db", &["--mill", "memory:", "next", "segment:a"]).done(), "1\n");
    mill("", &["next", "segment:a"]).refused("INVALID_CONFIG");
    assert_eq!(mill("sqlite:other.db", &["--mill", "", "next", "segment:a"]).code, Some(1));
    assert!(!home.path().join("keymill.db").exists(), "an empty setting opens no default");
    mill("nonsense", &["next", "segment:a"]).refused("INVALID_CONFIG");
    let garbage = OsStr::from_bytes(&[0xff]);
    let ran: crate::common::Ran =
        home.command(&["next", "segment:a"]).env("KEYMILL_CONFIG", garbage).output().unwrap().into();
    ran.refused("INVALID_CONFIG");
}

#[test]
fn a_default_that_creates_a_file_says_so_once() {
    let home = Home::new();
    let first = home.run(&["next", "segment:a"]);
    for part in ["created `", "keymill.db`", "KEYMILL_CONFIG"] {
        assert!(first.err.contains(part), "{first:?}");
    }
    assert_eq!(first.done(), "1\n");
    assert_eq!(home.run(&["next", "segment:a"]).err, "");
    // A file that is named is meant.
    assert_eq!(home.run(&["--mill", "sqlite:named.db", "next", "segment:a"]).err, "");
}

#[test]
fn a_toml_file_without_a_store_says_that_the_default_file_is_created() {
    let home = Home::new();
    home.file("keymill.toml", "[segment]\nbuffer = \"10s\"\n");
    let next = ["--mill", "file:keymill.toml", "next", "segment:a"];
    let first = home.run(&next);
    assert!(first.err.contains("keymill.db`") && first.err.contains("`file:keymill.toml`"), "{first:?}");
    assert_eq!(home.run(&next).err, "");
}

#[test]
fn a_source_whose_layout_has_ended_creates_no_file() {
    let ended = "layout=uid&epoch=2016-05-20";
    for worker in ["worker=1", "worker=lease", "worker=1&mark=none"] {
        let spec = &*format!("snowflake:old?{worker}&{ended}");
        for words in [
            &["next", spec][..],
            &["take", spec, "3"],
            &["parse", spec, "4611686018427387904"],
            &["status", spec],
        ] {
            let home = Home::new();
            let ran = home.run(words);
            assert!(
                ran.code == Some(0) || ran.err.starts_with("keymill: LAYOUT_ENDED"),
                "{words:?}: {ran:?}"
            );
            assert!(!home.path().join("keymill.db").exists(), "{words:?}: {ran:?}");
        }
    }
}

#[test]
fn an_import_that_only_looks_creates_no_file() {
    let home = Home::new();
    let looked = home.run(&["import", "segment:a", "--from", "leaf_alloc"]);
    looked.refused("STORE_REFUSED");
    assert!(!home.path().join("keymill.db").exists());
}

#[test]
fn a_toml_file_declares_sources_for_status_and_init() {
    let home = Home::new();
    home.file(
        "keymill.toml",
        "store = \"sqlite:ids.db\"\n[segment]\nmin_step = 10\n[source.\"segment:orders\"]\nstart = 100\n\
         [source.\"serial:cust/id\"]\nnumber = \"0000\"\n",
    );
    let mill = |args: &[&str]| home.run(&[&["--mill", "file:keymill.toml"], args].concat());
    assert_eq!(mill(&["init"]).done().lines().count(), 3);
    assert_eq!(mill(&["take", "segment:orders", "2"]).done(), "100\n101\n");
    let status = mill(&["status", "--json"]).json();
    let sources: Vec<&str> =
        status["sources"].as_array().unwrap().iter().map(|s| s["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["segment:orders", "serial:cust/id"]);
    assert_eq!(status["sources"][0]["step"], "10 to 10000000");
    assert_eq!(status["sources"][0]["reserved_to"], "101");
    assert!(mill(&["metrics"]).done().contains("keymill_store_next{source=\"segment:orders\"} 102"));
}

#[test]
fn status_does_not_say_that_there_is_no_row_where_its_store_is_down() {
    let home = Home::new();
    home.file("keymill.toml", "stores = [\"sqlite:a.db\", \"mysql://u@127.0.0.1:1/x\"]\n");
    let status = |worker: &str| home.run(&["--mill", "file:keymill.toml", "status", worker]);
    // Worker 1 has its mark in the second store, and worker 2 in the first.
    let down = status("snowflake:tx?worker=1");
    assert!(down.out.contains("rows: snowflake:tx: STORE_UNAVAILABLE\n"), "{down:?}");
    let none = status("snowflake:tx?worker=2");
    assert!(none.out.contains("rows: snowflake:tx: none\n"), "{none:?}");
}

#[test]
fn several_stores_of_a_toml_file_are_made_shown_and_repaired_together() {
    let home = Home::new();
    let text = "stores = [\"sqlite:a.db\", \"sqlite:b.db\"]\nchunk = 1000\n[source.\"segment:orders\"]\nstep = 100\n";
    home.file("keymill.toml", text);
    let with = |verb: &[&str]| home.run(&[&["--mill", "file:keymill.toml"], verb].concat());
    let script = with(&["init", "--dry-run"]).done();
    assert!(
        script.contains("-- store 1 of 2 (sqlite:a.db)") && script.contains("-- store 2 of 2 (sqlite:b.db)")
    );
    assert_eq!(script.matches("CREATE TABLE").count(), 2, "{script}");
    with(&["init"]).done();
    let ids = with(&["take", "segment:orders", "2500"]).ids();
    assert!(ids.windows(2).all(|pair| pair[0] + 1 == pair[1]), "one process leaves no gaps: {ids:?}");
    let status = with(&["status"]).done();
    for part in [
        "store: [sqlite:a.db, sqlite:b.db]",
        "interleaved over 2 stores, chunk=1000",
        "store 2 of 2 (sqlite:b.db): next=",
    ] {
        assert!(status.contains(part), "`{part}` is not in:\n{status}");
    }
    assert!(!status.contains("warning:"), "{status}");
    home.shell("rm b.db*");
    with(&["init"]).done();
    let status = with(&["status"]).done();
    let warning = "warning: segment:orders: store 2 of 2 (sqlite:b.db): its row is gone";
    assert!(status.contains(warning), "{status}");
    let shown = with(&["repair", "segment:orders", "--to", "50000"]);
    assert!(shown.out.contains("written: no"), "{shown:?}");
    let done = with(&["repair", "segment:orders", "--to", "50000", "--yes"]).done();
    assert!(done.contains("next=50000") && done.contains("next=50001"), "{done}");
    let after = |text: &str| text.lines().find(|line| line.starts_with("after: ")).map(str::to_owned);
    assert_eq!(after(&shown.out), after(&done), "what was shown is what is done");
    assert!(with(&["take", "segment:orders", "5"]).ids()[0] >= 50_000);

    home.file("keymill.toml", &text.replace("a.db", "c.db").replace("b.db", "a.db").replace("c.db", "b.db"));
    let message = with(&["next", "segment:orders"]).refused("STORE_REFUSED");
    assert!(message.contains("recorded as store"), "{message}");
    let message = home.run(&["--mill", "sqlite:a.db", "next", "segment:orders"]).refused("STORE_REFUSED");
    assert!(message.contains("store 1 of 2") && message.contains("TOML file"), "{message}");
    for verb in [&["repair", "segment:orders", "--to", "99999"][..], &["status", "segment:orders"]] {
        let plain = home.run(&[&["--mill", "sqlite:a.db"], verb].concat());
        assert!(plain.code == Some(1) && plain.err.contains("TOML file"), "{plain:?}");
    }
    let status = with(&["status"]);
    assert!(status.code == Some(1) && status.err.contains("recorded as store"), "{status:?}");
    let message = with(&["next", "serial:a/b"]).refused("INVALID_CONFIG");
    assert!(message.contains("one store"), "{message}");
}

#[test]
fn a_reader_that_goes_away_ends_a_stream_without_an_error() {
    let home = Home::new();
    assert_eq!(home.run(&["next", "segment:order"]).done(), "1\n");
    for json in ["", " --json"] {
        let line = format!("$K take segment:order 100000000000{json} | head -3; exit ${{PIPESTATUS[0]}}");
        let ran = home.shell(&line);
        assert_eq!(ran.err, "");
        assert_eq!(ran.done().lines().count(), 3);
    }
    // What was reserved ahead went back: only what was in the pipe is gone.
    let next = home.run(&["next", "segment:order"]).ids()[0];
    assert!(next < 200_000, "{next}");
    let ran = home.shell("$K status segment:order | true; exit ${PIPESTATUS[0]}");
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
}

#[test]
fn the_first_ctrl_c_ends_a_stream_and_gives_back_the_rest() {
    let home = Home::new();
    let mut child =
        home.command(&["take", "segment:order", "100000000000"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut some = vec![0; 1 << 20];
    out.read_exact(&mut some).unwrap();
    // SAFETY: a signal to our own child, which has not been waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let last: u64 = rest.lines().last().unwrap().parse().unwrap();
    assert_eq!(home.run(&["next", "segment:order"]).ids(), [last + 1]);
}

#[test]
fn eight_processes_on_one_file_never_share_an_id() {
    let home = Home::new();
    home.run(&["init"]).done();
    let children: Vec<_> = (0..8)
        .map(|_| home.command(&["take", "segment:order", "5000"]).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    let mut ids = HashSet::new();
    for child in children {
        let taken = crate::common::Ran::from(child.wait_with_output().unwrap()).ids();
        assert_eq!(taken.len(), 5000);
        assert!(taken.windows(2).all(|pair| pair[0] < pair[1]));
        for id in taken {
            assert!(ids.insert(id), "{id} was handed out twice");
        }
    }
    assert_eq!(ids.len(), 40_000);
}

#[test]
fn the_page_about_the_command_has_a_line_for_each_verb() {
    let page = include_str!("../../../../docs/languages/command.md");
    let help = Home::new().run(&["--help"]).done();
    let verbs = help.split_once("Commands:\n").unwrap().1.split("\n\n").next().unwrap().lines();
    let verbs: Vec<&str> = verbs.map(|line| line.split_whitespace().next().unwrap()).collect();
    let shown = page.lines().filter_map(|line| line.strip_prefix("| `keymill ")?.split([' ', '`']).next());
    assert_eq!(shown.collect::<Vec<_>>(), verbs);
}

#[test]
fn a_snowflake_leases_a_worker_and_status_lists_the_slots() {
    let home = Home::new();
    let ids = home.run(&["take", "snowflake:tx", "3"]).ids();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    let parsed = home.run(&["parse", "snowflake:tx", &ids[0].to_string()]).done();
    assert!(parsed.contains("worker: 0\n"), "{parsed}");
    let status = home.run(&["status", "snowflake:tx"]).done();
    assert!(status.contains("slots: snowflake:tx: none leased; free, and used before: 0\n"), "{status}");
    let refused = home.run(&["next", "snowflake:tx?epoch=2020-01-01"]).refused("STORE_REFUSED");
    assert!(refused.contains("Write the `layout` and `epoch` that the pool records"), "{refused}");
    let refused =
        home.run(&["repair", "snowflake:tx", "--to", "yesterday", "--yes"]).refused("INVALID_ARGUMENT");
    assert!(refused.contains("a time within the layout"), "{refused}");
    let in_minutes = |minutes: i64| rfc3339(now_ms() + minutes * 60_000);
    let (earlier, later) = (in_minutes(14), in_minutes(15));
    let shown = home.run(&["repair", "snowflake:tx", "--to", &later]).done();
    assert!(shown.contains(&format!("ids from: {later}\nwritten: no\n")), "{shown}");
    assert_eq!(home.run(&["take", "snowflake:tx", "3"]).ids().len(), 3, "nothing was written");
    home.run(&["repair", "snowflake:tx", "--to", &later, "--yes"]).done();
    let refused = home.run(&["next", "snowflake:tx?deadline=200ms"]).refused("NO_WORKER_FREE");
    assert!(refused.contains("`repair` raised the pool"), "{refused}");
    let refused = home.run(&["repair", "snowflake:tx", "--to", &earlier, "--yes"]).refused("STORE_REFUSED");
    assert!(refused.contains("raises none of them"), "{refused}");
}

#[test]
fn a_fixed_worker_is_raised_to_an_id_or_a_time() {
    let home = Home::new();
    let spec = "snowflake:tx?worker=5&max_lead=1h";
    let id = home.run(&["next", spec]).ids()[0];
    // An id of a later time, as another process could have made it with a clock a minute ahead.
    let later = (id + (60_000 << 22)).to_string();
    let time = |spec: &str, id: &str| {
        let parsed = home.run(&["parse", spec, id]).done();
        parsed.lines().find_map(|line| line.strip_prefix("time: ")).unwrap().to_owned()
    };
    let shown = home.run(&["repair", spec, "--to", &later]);
    assert!(shown.err.contains("This worker of `snowflake:tx` would begin at "), "{}", shown.err);
    home.run(&["repair", spec, "--to", &later, "--yes"]).done();
    let next = home.run(&["next", spec]).ids()[0];
    assert!(next > later.parse().unwrap(), "{next} after {later}");
    let from = home.run(&["--json", "repair", spec, "--to", &next.to_string()]).json()["ids_from"].clone();
    assert!(from.as_str().unwrap() > time(spec, &next.to_string()).as_str(), "{from}: a tick later");
    home.run(&["repair", spec, "--to", "18446744073709551615", "--yes"]).refused("INVALID_ARGUMENT");
    let unmarked = "snowflake:tx?worker=6&mark=none";
    let refused = home.run(&["repair", unmarked, "--to", "2030-01-01", "--yes"]).refused("INVALID_ARGUMENT");
    assert!(refused.contains("keeps no mark"), "{refused}");
    let ahead = rfc3339(now_ms() + 900_000);
    let leased = home.run(&["repair", "snowflake:pool", "--to", &ahead]);
    assert!(leased.err.contains(&format!("Every worker of `snowflake:pool` would begin at {ahead}")));
    assert!(leased.err.contains("ahead of this machine's clock"), "{}", leased.err);
}

#[test]
fn an_error_about_a_worker_or_an_id_names_what_is_valid() {
    let home = Home::new();
    home.run(&["next", "snowflake:tx?slots=0-0"]).done();
    let held = home.run(&["status", "snowflake:tx?slots=0-0"]).done();
    assert!(held.contains("worker leased for 30s from 0 to 0"), "{held}");
    let refused = home.run(&["next", "snowflake:tx?worker=zookeeper"]).refused("INVALID_CONFIG");
    assert!(refused.contains("a data centre and a worker, as in 2+5; ordinal:NAME"), "{refused}");
    let refused =
        home.run(&["parse", "snowflake:tx", "--", "-9223372036854775807"]).refused("INVALID_ARGUMENT");
    assert!(refused.contains("positive"), "{refused}");
}

#[test]
fn status_lists_the_routers_of_the_store_and_what_is_recorded_of_a_bank() {
    let home = Home::new();
    let table =
        "version = 7\n[[range]]\nupper = 16383\nshard = \"s1\"\n[[range]]\nupper = 65535\nshard = \"s2\"\n";
    std::fs::write(home.path().join("routes.toml"), table).unwrap();
    let empty = home.run(&["status"]).done();
    assert!(!empty.contains("router: "), "{empty}");
    home.run(&["route", "put", "orders", "routes.toml", "--yes"]).done();
    home.run(&["take", "business:order?counters=4096", "3", "--key", "42"]).done();
    // The number of counters is what is recorded.
    let status = home.run(&["status", "business:order", "--seconds", "1"]).done();
    assert!(status.contains("router: orders: version 7, shards s1, s2\n"), "{status}");
    assert!(status.contains("counters: business:order: 4096\n"), "{status}");
    assert!(status.contains("hottest genes: business:order: 61760-61775 (3, no id meanwhile)\n"), "{status}");
    let json = home.run(&["status", "business:order", "--json"]).done();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["routers"][0],
        serde_json::json!({"name": "orders", "version": 7, "shards": ["s1", "s2"], "warning": null, "readers": [], "readers_warning": null})
    );
    assert_eq!(json["sources"][0]["recorded_counters"], 4096);
    // And the next program counts on with them.
    let id = home.run(&["next", "business:order", "--key", "42"]).ids()[0];
    assert_eq!(id, 61_763 << 47 | 4);
}

#[test]
fn status_shows_the_floor_of_a_bank_whose_counters_were_changed_and_not_used_since() {
    let home = Home::new();
    home.run(&["take", "business:order?counters=4", "300", "--key", "42"]).done();
    let before = home.run(&["status", "business:order", "--json"]).json();
    home.run(&["repair", "business:order", "--counters", "8", "--yes"]).done();
    let after = home.run(&["status", "business:order", "--json"]).json();
    assert_ne!(before["sources"][0]["reserved_to"], serde_json::Value::Null);
    assert_eq!(after["sources"][0]["reserved_to"], before["sources"][0]["reserved_to"]);
}

#[test]
fn status_warns_where_routers_cannot_be_listed() {
    let home = Home::new();
    home.run(&["next", "segment:orders"]).done();
    assert!(!home.run(&["status"]).done().contains("routers are not listed"), "there are none");
    let file = rusqlite::Connection::open(home.path().join("keymill.db")).unwrap();
    file.execute_batch("CREATE TABLE keymill_route (name TEXT PRIMARY KEY)").unwrap();
    drop(file);
    let status = home.run(&["status"]).done();
    assert!(status.contains("warning: routers are not listed: STORE_REFUSED: "), "{status}");
    assert!(status.contains("column `version` is missing"), "{status}");
    let json = home.run(&["status", "--json"]).json();
    assert_eq!(json["routers"], serde_json::json!([]));
    assert!(json["routers_warning"].as_str().unwrap().contains("column `version` is missing"), "{json}");
}

#[test]
fn the_command_decides_the_form_of_an_id_by_what_is_asked_and_never_by_its_size() {
    let home = Home::new();
    let table =
        "version = 1\n[[range]]\nupper = 0\nshard = \"zero\"\n[[range]]\nupper = 65535\nshard = \"other\"\n";
    std::fs::write(home.path().join("routes.toml"), table).unwrap();
    let route = |id: &[&str]| {
        let mut words = vec!["route", "--table", "routes.toml"];
        words.extend(id);
        home.run(&words)
    };
    let small = (1_u64 << 47 | 5).to_string();
    assert!(route(&[&small]).done().contains("shard: other\n"));
    assert!(route(&["--wide", &small]).done().contains("shard: zero\n"));
    let large = (1_u128 << 111 | 5).to_string();
    assert!(route(&["--wide", &large]).done().contains("gene: 1\n"));
    let refused = route(&[&large]).refused("INVALID_ARGUMENT");
    assert!(refused.contains("--wide"), "{refused}");
    assert!(route(&["0x00008000000000050000800000000005"]).refused("INVALID_ARGUMENT").contains("128 bits"));
    for signed in ["0x+1+1+1+1+1+1+1+1", "0x-1-1-1-1-1-1-1-1", "0x1 1 1 1 1 1 1 1 "] {
        assert!(route(&[signed]).refused("INVALID_ARGUMENT").contains("is no id"), "{signed}");
    }
    assert!(route(&["0x00000000000000000000800000000005"]).done().contains("shard: zero\n"));
    assert!(route(&["0x0000800000000005"]).done().contains("shard: other\n"));
}
