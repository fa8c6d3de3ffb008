//! What an operator types twice, what sixteen type at once, what is killed half-way and typed again, and what is typed with the last
//! number that there is. On every store.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL`, `KEYMILL_TEST_POSTGRES` and `KEYMILL_TEST_REDIS`.

use std::process::{Child, Command, Stdio};
use std::time::Instant;

use keymill::snowflake::layout::rfc3339;

use crate::common::{BINARY, Home, Ran, now_ms};
use crate::restore::{Server, patiently};

const MANY: [&str; 6] = [
    "segment:orders",
    "serial:cust_info/custid?number=000000&zone=UTC",
    "business:order?counters=4",
    "snowflake:tx",
    "segment:tickets?scheme=leaf_alloc",
    "segment:others?scheme=cosid",
];

fn table(version: u32) -> String {
    format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"s1\"\n")
}

/// Types each verb that changes the store, and types it again.
fn typed_twice(url: &str, has_tables_of_others: bool) {
    let home = Home::new();
    home.file("routes.toml", &table(7));
    let run = |args: &[&str]| patiently(&home, &[&["--mill", url][..], args].concat());
    let specs = if has_tables_of_others { &MANY[..] } else { &MANY[..4] };
    let init = [&["init"][..], specs].concat();
    run(&init).done();
    let again = run(&init).done();
    assert!(!again.contains("created"), "{again}");
    for spec in specs.iter().filter(|spec| !spec.starts_with("snowflake")) {
        let key: &[&str] = if spec.starts_with("business") { &["--key-text", "a"] } else { &[] };
        run(&[&["take", spec, "3"][..], key].concat()).done();
    }
    // As far ahead as `repair` raises a mark.
    let ahead = rfc3339(now_ms() + 900_000);
    let mut verbs: Vec<Vec<&str>> = vec![
        vec!["repair", "segment:orders", "--to", "5000", "--yes"],
        vec!["repair", MANY[1], "--to", "5000", "--yes"],
        vec!["repair", "business:order", "--to", "5000", "--yes"],
        vec!["repair", "business:order", "--counters", "8", "--yes"],
        vec!["repair", "snowflake:tx", "--to", &ahead, "--yes"],
        vec!["repair", "snowflake:tx?worker=5", "--to", &ahead, "--yes"],
        vec!["route", "put", "orders", "routes.toml", "--yes"],
    ];
    if has_tables_of_others {
        verbs.push(vec!["import", "segment:tickets", "--from", "leaf_alloc", "--yes"]);
        verbs.push(vec!["repair", MANY[5], "--to", "5000", "--yes"]);
    }
    for verb in &verbs {
        let first = run(verb).done();
        assert!(first.contains("written: yes") || first.contains('7'), "{verb:?}: {first}");
        let second = run(verb);
        let is_refused =
            second.err.contains("repair never lowers a row") || second.err.contains("raises none of them");
        assert!(is_refused || second.code == Some(0), "{verb:?}: {second:?}");
        // What it left the first time is where the second one began.
        let part = |text: &str, begin: &str| {
            text.lines().filter_map(|line| line.strip_prefix(begin).map(str::to_owned)).collect::<Vec<_>>()
        };
        if second.code == Some(0) && verb[0] == "repair" {
            assert_eq!(part(&second.out, "before:"), part(&first, "after:"), "{verb:?}");
            assert_eq!(part(&second.out, "after:"), part(&first, "after:"), "{verb:?}");
            if verb.contains(&"--to") {
                assert_eq!(part(&second.out, "written:"), [" no"], "{verb:?}: {second:?}");
                assert!(second.err.contains("stands there already"), "{verb:?}: {second:?}");
                // A program's last range may end at a row of another program's table.
                let gives_back = verb[1] == MANY[5] || has_tables_of_others && verb[1].starts_with("serial:");
                assert_eq!(second.err.contains("may lower the row"), gives_back, "{verb:?}: {second:?}");
            }
        }
    }
    assert_eq!(run(&["next", "segment:orders"]).ids(), [5000]);
    assert!(run(&["next", MANY[1]]).done().trim().ends_with("005000"));
    assert!(run(&["next", "business:order", "--key-text", "a"]).ids()[0] & ((1 << 47) - 1) >= 5000);
    if has_tables_of_others {
        assert_eq!(run(&["next", "segment:tickets"]).ids(), [4]);
        assert_eq!(run(&["next", MANY[5]]).ids(), [5000]);
    }
}

#[test]
fn each_command_typed_twice_leaves_the_same_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    typed_twice(&format!("sqlite:{}", folder.path().join("ids.db").display()), true);
}

#[test]
fn each_command_typed_twice_leaves_the_same_on_mariadb() {
    typed_twice(&Server::mariadb("twice").url(), true);
}

#[test]
fn each_command_typed_twice_leaves_the_same_on_postgresql() {
    typed_twice(&Server::postgres("twice").url(), true);
}

#[test]
fn each_command_typed_twice_leaves_the_same_on_redis() {
    let url =
        std::env::var("KEYMILL_TEST_REDIS").expect("KEYMILL_TEST_REDIS, which `ci/servers/redis run` sets");
    // A database that no other test uses, and that an earlier run may have left full.
    let own = format!("{}/7", url.rsplit_once('/').unwrap().0);
    let emptied =
        Command::new("redis-cli").args(["--no-auth-warning", "-u", &own, "FLUSHDB"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&emptied.stdout).trim(), "OK", "{emptied:?}");
    typed_twice(&own, false);
}

/// A program returns nothing to the server's own counter.
fn repair_says_nothing_of_programs_that_lower_the_row(url: &str, specs: &[&str]) {
    let home = Home::new();
    let run = |args: &[&str]| patiently(&home, &[&["--mill", url][..], args].concat());
    run(&[&["init"][..], specs].concat()).done();
    for spec in specs {
        run(&["take", spec, "3"]).done();
        let raised = run(&["repair", spec, "--to", "5001", "--yes"]);
        assert!(raised.out.ends_with("written: yes\n"), "{spec}: {raised:?}");
        assert!(!raised.err.contains("lower the row"), "{spec}: {raised:?}");
    }
}

#[test]
fn repair_of_tickets_does_not_ask_to_stop_programs_that_return_none() {
    let specs = ["segment:a?scheme=ticket", "segment:b?scheme=auto_increment"];
    repair_says_nothing_of_programs_that_lower_the_row(&Server::mariadb("drawn").url(), &specs);
}

#[test]
fn repair_of_a_sequence_does_not_ask_to_stop_programs_that_return_none() {
    let specs = ["segment:a?scheme=sequence"];
    repair_says_nothing_of_programs_that_lower_the_row(&Server::postgres("drawn").url(), &specs);
}

// ---- init ----

fn init(url: &str) -> Child {
    let mut command = Command::new(BINARY.as_str());
    command.args(["--mill", url, "init"]).args(MANY).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

fn sixteen_at_once(url: &str) {
    let all: Vec<Child> = (0..16).map(|_| init(url)).collect();
    for one in all {
        let output = one.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let home = Home::new();
    for spec in ["segment:orders", MANY[4], MANY[5]] {
        assert_eq!(patiently(&home, &["--mill", url, "take", spec, "2"]).ids(), [1, 2], "{spec}");
    }
}

#[test]
fn sixteen_that_init_an_empty_database_at_once_make_its_tables_once() {
    let folder = tempfile::tempdir().unwrap();
    sixteen_at_once(&format!("sqlite:{}?busy=5s", folder.path().join("ids.db").display()));
    let (mariadb, postgres) = (Server::mariadb("sixteen"), Server::postgres("sixteen"));
    sixteen_at_once(&mariadb.patient_url());
    sixteen_at_once(&postgres.patient_url());
}

#[test]
fn an_init_that_was_killed_is_typed_again() {
    for (server, quote) in [(Server::mariadb("killed"), '`'), (Server::postgres("killed"), '"')] {
        let home = Home::new();
        let url = server.patient_url();
        let began = Instant::now();
        assert!(init(&url).wait_with_output().unwrap().status.success());
        let whole = began.elapsed();
        for round in 0..20u32 {
            for table in ["keymill_segment", "key_producer", "keymill_worker", "leaf_alloc", "cosid"] {
                server.say(&format!("DROP TABLE IF EXISTS {quote}{table}{quote}"));
            }
            let mut killed = init(&url);
            std::thread::sleep(whole * round / 20);
            killed.kill().unwrap();
            killed.wait().unwrap();
            let again = init(&url).wait_with_output().unwrap();
            assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
            assert_eq!(patiently(&home, &["--mill", &url, "next", MANY[5]]).ids(), [1]);
        }
    }
}

// ---- a time that a wrong clock has made ----

/// An operator's machine, or the hand that types, is a year ahead.
fn raises_no_mark_to_next_year(url: &str) {
    let home = Home::new();
    let run = |args: &[&str]| patiently(&home, &[&["--mill", url][..], args].concat());
    for spec in ["snowflake:tx?max_lead=15m", "snowflake:fixed?max_lead=15m&worker=5"] {
        run(&["init", spec]).done();
        let first = run(&["next", spec]).ids();
        let next_year = rfc3339(now_ms() + 366 * 86_400_000);
        for words in [&[][..], &["--yes"][..]] {
            let message =
                run(&[&["repair", spec, "--to", &next_year][..], words].concat()).refused("STORE_REFUSED");
            assert!(
                message.contains("this machine's clock says ") && message.contains("the store's "),
                "{message}"
            );
        }
        let next = run(&["next", spec]).ids();
        assert!(next > first, "{spec}: {next:?} after {first:?}");
        // `now` is after every id that a machine ten minutes ahead may have made.
        // How far ids lead the clock is written, as the programs have it.
        let with = |lead: &str| spec.replace("max_lead=15m", lead);
        let (unwritten, written) = if spec.contains("worker=") {
            (with("clock_back=wait"), with("max_lead=3s"))
        } else {
            (with("max_lead=3s"), with("max_lead=3s&lease=30s"))
        };
        for seconds in [now_ms() / 1000, now_ms()] {
            let time = seconds.to_string();
            let message = run(&["repair", &written, "--to", &time, "--yes"]).refused("INVALID_ARGUMENT");
            assert!(message.contains("may be the time since 1970"), "{message}");
        }
        let message = run(&["repair", &unwritten, "--to", "now", "--yes"]).refused("INVALID_CONFIG");
        assert!(message.contains("Write the largest that any of them has, as `max_lead=3s"), "{message}");
        let raised = run(&["repair", &written, "--to", "now", "--yes"]).done();
        assert!(raised.contains("written: yes"), "{raised}");
        let ahead = rfc3339(now_ms() + 600_000);
        let after = run(&["next", spec]).ids()[0].to_string();
        let parsed = run(&["parse", spec, &after]).done();
        let time = parsed.lines().find_map(|line| line.strip_prefix("time: ")).unwrap();
        assert!(time > ahead.as_str(), "{time} is not after {ahead}");
    }
}

#[test]
fn repair_raises_no_snowflake_to_next_year_and_now_is_after_every_id() {
    let folder = tempfile::tempdir().unwrap();
    raises_no_mark_to_next_year(&format!("sqlite:{}", folder.path().join("ids.db").display()));
    raises_no_mark_to_next_year(&Server::mariadb("next_year").url());
    raises_no_mark_to_next_year(&Server::postgres("next_year").url());
}

// ---- a row of another zone ----

/// 26 hours lie between the two zones, so their dates always differ.
#[test]
fn repair_sets_back_no_row_of_a_program_in_another_zone() {
    let home = Home::new();
    let spec = |zone: &str| format!("serial:inv/no?number=000000&zone={zone}");
    let (programs, operators) = (spec("Etc/GMT-14"), spec("Etc/GMT+12"));
    let taken = home.run(&["take", &programs, "3"]).done();
    for words in [&["--yes"][..], &["--set-back", "--yes"][..], &["--set-back"][..]] {
        home.run(&[&["repair", &operators, "--to", "1000"][..], words].concat()).refused("STORE_REFUSED");
    }
    home.run(&["next", &operators]).refused("CLOCK_BEHIND");
    let fourth = home.run(&["next", &programs]).done();
    assert!(!taken.contains(fourth.trim()) && fourth.trim().ends_with('4'), "{fourth} after {taken}");
}

/// An operator's shell is in another zone than the programs, and the spec does not say which.
fn writes_no_date_of_an_operators_zone(url: &str) {
    let home = Home::new();
    let run = |zone: &str, args: &[&str]| -> Ran {
        let args = [&["--mill", url][..], args].concat();
        home.command(&args).env("TZ", zone).output().expect("the command runs").into()
    };
    // 26 hours lie between the two, so their dates always differ.
    let (programs, operators) = ("Etc/GMT-14", "Etc/GMT+12");
    let spec = "serial:inv/no?number=000000&deadline=60s";
    run(programs, &["init", spec]).done();
    let taken = run(programs, &["take", spec, "3"]).done();
    let largest = format!("{spec}&init=max");
    for verb in [
        &["repair", spec, "--to", "900"][..],
        &["repair", spec, "--to", "900", "--yes"],
        &["repair", spec, "--to", "900", "--set-back"],
        &["repair", spec, "--to", "900", "--set-back", "--yes"],
        &["import", "serial:inv/no?number=000000&scheme=keymill", "--from", "key_producer"],
        &["next", &largest],
        &["take", &largest, "2"],
        &["bench", &largest],
    ] {
        let message = run(operators, verb).refused("INVALID_CONFIG");
        assert!(message.contains(operators) && message.contains("`zone="), "{verb:?}: {message}");
        // Where the zone is a rule, it has no name.
        run("CST-8", verb).refused("INVALID_CONFIG");
    }
    let named = format!("{spec}&zone={programs}");
    run(operators, &["repair", &named, "--to", "900", "--yes"]).done();
    let next = run(programs, &["next", spec]).done();
    assert!(next.trim().ends_with("000900") && next[..8] == taken[..8], "{next} after {taken}");
    // A serial without dates has no zone.
    run(operators, &["repair", "serial:inv/plain?date=&number=000000", "--to", "9", "--yes"]).done();
    // SQLite makes the table that is missing.
    if url.starts_with("sqlite:") {
        return;
    }
    // A command that a message prints can be copied into a shell of any zone.
    let wrong = "serial:inv/wrong?number=000000&table=no_such_table";
    let error = run(programs, &["next", wrong]).refused("STORE_REFUSED");
    assert!(error.contains(&format!("{wrong}&zone={programs}'")), "{error}");
}

/// In a container the host's `/etc/localtime` may be mounted over the file of `Etc/UTC`.
#[test]
fn a_zone_whose_file_holds_another_one_has_no_name() {
    let home = Home::new();
    std::fs::create_dir_all(home.path().join("zones/Etc")).unwrap();
    let file = std::fs::read("/usr/share/zoneinfo/Asia/Shanghai").expect("the system's zones");
    for name in ["Etc/UTC", "localtime"] {
        std::fs::write(home.path().join("zones").join(name), &file).unwrap();
    }
    let run = |zone: &str, args: &[&str]| -> Ran {
        let mut command = home.command(args);
        command.env("TZDIR", home.path().join("zones")).env("TZ", zone);
        command.output().expect("the command runs").into()
    };
    let spec = "serial:inv/no?number=000000";
    let shanghai = home.command(&["next", spec]).env("TZ", "Asia/Shanghai").output().unwrap();
    let first = Ran::from(shanghai).done();
    for zone in ["Etc/UTC", "localtime"] {
        let next = run(zone, &["next", spec]).done();
        assert_eq!(next[..8], first[..8], "its days are those of the file");
        let message = run(zone, &["repair", spec, "--to", "900", "--yes"]).refused("INVALID_CONFIG");
        assert!(
            !message.contains(&format!("={zone}")) && !message.contains(&format!(" {zone},")),
            "{message}"
        );
    }
    // A name in a source means the same on every machine.
    let hour = |zone: &str| {
        run("Asia/Shanghai", &["next", &format!("serial:inv/{}?date=yyyyMMddHH&zone={zone}", zone.len())])
            .done()
    };
    assert_eq!(hour("Etc/UTC")[..10], hour("UTC")[..10]);
    run("UTC", &["next", &format!("{spec}&zone=localtime")]).refused("INVALID_CONFIG");
    home.run(&["repair", &format!("{spec}&zone=right/UTC"), "--to", "900"]).refused("INVALID_CONFIG");
}

#[test]
fn a_command_that_writes_a_date_is_told_the_zone_of_the_programs() {
    let folder = tempfile::tempdir().unwrap();
    writes_no_date_of_an_operators_zone(&format!("sqlite:{}", folder.path().join("ids.db").display()));
    writes_no_date_of_an_operators_zone(&Server::mariadb("zones").url());
    writes_no_date_of_an_operators_zone(&Server::postgres("zones").url());
}

#[test]
fn repair_sets_a_row_back_from_a_date_that_has_begun_nowhere_and_only_where_that_is_asked() {
    let home = Home::new();
    let spec = "serial:inv/no?number=000000&scheme=keymill&zone=UTC";
    home.run(&["take", spec, "3"]).done();
    let file = rusqlite::Connection::open(home.path().join("keymill.db")).unwrap();
    let ahead = "UPDATE keymill_segment SET date = date + 10000000000000";
    assert_eq!(file.execute(ahead, []).unwrap(), 1, "a year ahead");
    drop(file);
    let behind = home.run(&["next", spec]).refused("CLOCK_BEHIND");
    assert!(behind.contains("--set-back --yes"), "{behind}");
    let raised = home.run(&["repair", spec, "--to", "900", "--yes"]).refused("STORE_REFUSED");
    assert!(raised.contains("--set-back --yes"), "{raised}");
    let shown = home.run(&["repair", spec, "--to", "900", "--set-back"]).done();
    assert!(shown.contains("reserved ahead: ") && shown.ends_with("written: no\n"), "{shown}");
    assert!(
        home.run(&["repair", spec, "--to", "900", "--set-back", "--yes"]).done().ends_with("written: yes\n")
    );
    assert!(home.run(&["next", spec]).done().trim().ends_with("000900"));
    home.run(&["repair", spec, "--to", "950", "--set-back", "--yes"]).refused("STORE_REFUSED");
    home.run(&["repair", "segment:orders", "--to", "950", "--set-back", "--yes"]).refused("INVALID_ARGUMENT");
}

#[test]
fn repair_that_sets_a_row_of_key_factory_back_asks_once_to_stop_every_program() {
    let home = Home::new();
    let spec = "serial:inv/no?number=000000&zone=UTC";
    home.run(&["take", spec, "3"]).done();
    let file = rusqlite::Connection::open(home.path().join("keymill.db")).unwrap();
    let ahead = "UPDATE key_producer SET MAXSERIALNO = MAXSERIALNO + 10000000000";
    assert_eq!(file.execute(ahead, []).unwrap(), 1, "a year ahead");
    drop(file);
    let back = home.run(&["repair", spec, "--to", "900", "--set-back", "--yes"]);
    assert!(back.out.ends_with("written: yes\n"), "{back:?}");
    assert_eq!(back.err.to_lowercase().matches("stop every program").count(), 1, "{back:?}");
}

// ---- the last number ----

#[test]
fn repair_raises_to_the_number_after_the_last_and_no_further() {
    let home = Home::new();
    let mill = ["--mill", "sqlite:ids.db"];
    let run = |args: &[&str]| home.run(&[&mill[..], args].concat());
    for (spec, last, beyond) in [
        ("segment:orders", "9223372036854775807", "9223372036854775809"),
        ("segment:leaf?scheme=leaf_alloc&step=1", "9223372036854775806", "9223372036854775808"),
        ("segment:cosid?scheme=cosid&step=1", "9223372036854775807", "9223372036854775809"),
        ("serial:cust_info/custid?number=00&zone=UTC", "99", "101"),
        ("business:order?counters=2", "140737488355327", "140737488355328"),
    ] {
        run(&["init", spec]).done();
        let key: &[&str] = if spec.starts_with("business") { &["--key-text", "a"] } else { &[] };
        run(&[&["next", spec][..], key].concat()).done();
        for yes in [&[][..], &["--yes"][..]] {
            let refused = run(&[&["repair", spec, "--to", beyond][..], yes].concat());
            assert!(refused.code != Some(0) && refused.out.is_empty(), "{spec}: {refused:?}");
        }
        let raised = run(&["repair", spec, "--to", last, "--yes"]).done();
        assert!(raised.ends_with("written: yes\n"), "{spec}: {raised}");
        let given = run(&[&["next", spec][..], key].concat()).done();
        assert!(
            given.trim().ends_with(last) || spec.starts_with("business"),
            "{spec}: {given} after a repair to {last}"
        );
        let ended = run(&[&["next", spec][..], key].concat());
        let codes = ["EXHAUSTED", "NUMBER_OVERFLOW"];
        assert!(codes.iter().any(|code| ended.err.contains(code)), "{spec}: {ended:?}");
        run(&["status", spec]).done();
        // The number after the last: a source that was used up elsewhere is carried over, and stays used up.
        if !spec.starts_with("business") {
            let used_up = (last.parse::<u64>().unwrap() + 1).to_string();
            run(&["repair", spec, "--to", &used_up, "--yes"]).done();
            let ended = run(&["next", spec]);
            assert!(codes.iter().any(|code| ended.err.contains(code)), "{spec}: {ended:?}");
        }
    }
}
