//! Bad input, table by table: one clear line, the right exit code, nothing on standard output, and no id lost.

use crate::common::{BINARY, Home, Ran};

/// After a refusal the source goes on where it stood.
#[track_caller]
fn goes_on(home: &Home, at: u64) {
    assert_eq!(home.run(&["next", "segment:orders"]).ids(), [at]);
}

#[test]
fn a_tz_that_is_no_time_zone_is_refused_by_name_and_a_good_one_is_shown() {
    let home = Home::new();
    let run = |zone: &str, args: &[&str]| -> Ran {
        home.command(args).env("TZ", zone).output().expect("the command runs").into()
    };
    let take = ["--mill", "memory:", "take", "serial:t/c", "1"];
    for wrong in ["Asia/Shangai", "\"Asia/Shanghai\"", "China", "+08:00", "/etc/passwd", "\u{e9}"] {
        let message = run(wrong, &take).refused("INVALID_CONFIG");
        assert!(message.contains("is no time zone") && message.contains(wrong), "{wrong}: {message}");
    }
    let status = ["--mill", "memory:", "status", "serial:t/c"];
    let zones = [
        ("Asia/Shanghai", "Asia/Shanghai"),
        (":Europe/Rome", "Europe/Rome"),
        ("", "UTC"),
        ("CST-8", "local"),
    ];
    for (given, shown) in zones {
        let text = run(given, &status).done();
        assert!(
            text.lines()
                .any(|line| line.trim() == format!("zone: serial:t/c: {shown}, the zone of this shell")),
            "{given}: {text}"
        );
    }
    let text = run("Asia/Shanghai", &["--mill", "memory:", "status", "serial:t/c?zone=PRC"]).done();
    assert!(text.lines().any(|line| line.trim() == "zone: serial:t/c: PRC"), "{text}");
    // A source that names its zone, or has no dates, needs no `TZ`.
    for spec in ["serial:t/c?zone=UTC", "serial:t/c?date=", "segment:orders"] {
        run("China", &["--mill", "memory:", "take", spec, "1"]).done();
    }
}

#[test]
fn a_spec_that_is_wrong_is_refused_with_what_is_valid() {
    let home = Home::new();
    home.run(&["take", "segment:orders", "3"]).done();
    let long = format!("segment:{}", "x".repeat(5000));
    let long_name = format!("segment:{}", "x".repeat(129));
    let table: &[(&str, &str)] = &[
        ("orders", "kind:name"),
        ("", "kind:name"),
        ("sequence:orders", "valid kinds: segment, snowflake, serial, business"),
        ("business:orders?counters=3", "a power of two"),
        ("segment:", "1 to 128"),
        (&long, "at most 4096"),
        (&long_name, "1 to 128"),
        ("segment:or\u{1b}[2Jders", "control character"),
        ("segment:or\nders", "control character"),
        ("segment:or%00ders", "control character"),
        ("segment:%zz", "%25"),
        ("segment:%ff", "UTF-8"),
        ("segment:orders?stepp=5", "valid options: "),
        ("segment:orders?step", "option=value"),
        ("segment:orders?step=0", "from 1 to"),
        ("segment:orders?step=-1", "from 1 to"),
        ("segment:orders?step=1.5", "from 1 to"),
        ("segment:orders?step=99999999999999999999999", "from 1 to"),
        ("segment:orders?step=5&step=6", "twice"),
        ("segment:orders?min_step=10&max_step=5", "min_step=10 is larger than max_step=5"),
        ("segment:orders?order=random", "process, thread"),
        ("segment:orders?deadline=soon", "500ms"),
        ("segment:orders?scheme=leaf", "keymill"),
        ("segment:orders?table=x;drop", "identifier"),
        ("segment:orders&step=5", "follow a `?`"),
        ("snowflake:tx?slots=5-1024", "from 0 to 1023"),
        ("snowflake:tx?slots=6-5", "the lower one first"),
        ("snowflake:tx?slots=", "A-B"),
        ("snowflake:tx?lease=10ms", "from 1s to 1h"),
        ("snowflake:tx?pool=", "is empty"),
        ("snowflake:tx?worker=5&pool=other", "for worker=lease"),
        ("snowflake:tx?worker=ordinal:web", "does not end in `-` and a number"),
        ("snowflake:tx?worker=disposable", "for one store of MySQL, MariaDB or TiDB"),
        ("snowflake:tx?worker=5&layout=time:41@1ms,worker:11,seq:12", "64 bits, at most 63"),
        ("snowflake:tx?worker=5&layout=twiter", "twitter, uid, sonyflake, js53"),
        ("snowflake:tx?worker=1024", "0 to 1023"),
        ("snowflake:tx?worker=5&epoch=yesterday", "2025-01-01"),
        ("serial:cust", "serial:TABLE/COLUMN"),
        ("serial:cust/id?date=yyyyMMddQQ", "Q"),
        ("serial:cust/id?date=MMdd", "y"),
        ("serial:cust/id?number=abc", "0"),
        ("serial:cust/id?number=0000000000000000000", "18"),
        ("serial:cust/id?zone=Mars/Olympus", "zone"),
    ];
    for (spec, hint) in table {
        for verb in [&["next", *spec][..], &["take", *spec, "5"], &["status", *spec], &["parse", *spec, "5"]]
        {
            let message = home.run(verb).refused("INVALID_CONFIG");
            assert!(message.contains(hint), "{spec}: {hint:?} not in {message:?}");
            assert!(message.len() < 400 && !message.contains('\u{1b}'), "{message:?}");
        }
    }
    goes_on(&home, 4);
}

#[test]
fn a_bad_id_or_layout_is_refused() {
    let home = Home::new();
    for (spec, id) in [
        ("segment:a", "0"),
        ("segment:a", "abc"),
        ("segment:a", "99999999999999999999"),
        ("segment:a", "9223372036854775808"),
        ("snowflake:a?worker=1&layout=js53", "9007199254740992"),
        ("serial:a/b", "2026112000000001x"),
        ("serial:a/b", "20261399000000001"),
        ("serial:a/b", "\u{1b}[2J"),
    ] {
        home.run(&["parse", spec, id]).refused("INVALID_ARGUMENT");
    }
    for (layout, epoch) in [
        ("time:41@1ms,worker:11,seq:12", "2025-01-01"),
        ("nope", "2025-01-01"),
        ("twitter", "soon"),
        ("twitter", "2199-01-01"),
    ] {
        home.run(&["layout", layout, "--epoch", epoch]).refused("INVALID_CONFIG");
    }
}

#[test]
fn quotes_and_sql_in_a_name_are_just_a_name() {
    let home = Home::new();
    for name in
        ["o'rders", "\"x\"", "a;DROP TABLE keymill_segment;--", "号段", "`", "\\", "$(id)", "a%2Fb", "%27"]
    {
        let spec = format!("segment:{name}");
        assert_eq!(home.run(&["take", &spec, "2"]).done(), "1\n2\n", "{name}");
        assert_eq!(home.run(&["next", &spec]).done(), "3\n", "{name}");
        assert!(home.run(&["status", &spec, "--json"]).done().contains("next=4"), "{name}");
        home.run(&["metrics", &spec]).done();
    }
    let spec = "serial:cust'; DROP TABLE key_producer;--/id\"?number=0000&zone=UTC";
    assert!(home.run(&["next", spec]).done().ends_with("0001\n"));
    assert!(home.run(&["next", spec]).done().ends_with("0002\n"));
}

#[test]
fn the_command_line_s_own_errors_are_exit_2() {
    let home = Home::new();
    for args in [
        &[][..],
        &["tkae", "segment:a", "5"],
        &["take"],
        &["take", "segment:a"],
        &["take", "segment:a", "many"],
        &["take", "segment:a", "-1"],
        &["take", "segment:a", "99999999999999999999"],
        &["next", "segment:a", "--colour"],
        &["repair", "segment:a"],
        &["bench", "segment:a", "--threads", "0"],
        &["completions", "dash"],
        &["next", "segment:a", "--mill"],
    ] {
        let ran = home.run(args);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert_eq!(ran.out, "", "{ran:?}");
        assert!(!ran.err.is_empty(), "{ran:?}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn a_store_that_is_wrong_is_refused_with_the_valid_ones() {
    let home = Home::new();
    let long = format!("sqlite:{}", "x".repeat(5000));
    for (config, hint) in [
        ("keymill.db", "valid stores"),
        ("oracle://x", "valid stores"),
        ("redis://h/ids", "numbers them from 0"),
        ("redis://h?sentinel=", "name of the master"),
        ("redis://h?colour=red", "valid options"),
        ("redis://h:x", "no port"),
        ("redis://[::1]:x", "no port"),
        ("redis://h?wait_replicas=many", "number of replicas"),
        ("rediss://h?tls=off", "always encrypted"),
        ("sqlite:", "sqlite:keymill.db"),
        ("sqlite:x.db?busy=never", "2s"),
        ("sqlite:x.db?colour=red", "valid options"),
        ("sqlite:x\u{7}.db", "control character"),
        (&long, "4096"),
        ("mysql://h/x", "names no user"),
        ("mysql://u@h", "names no database"),
        ("mysql://u@h:port/x", "host"),
        ("file:missing.toml", "missing.toml"),
    ] {
        let message = home.run(&["--mill", config, "next", "segment:a"]).refused("INVALID_CONFIG");
        assert!(message.contains(hint), "{config}: {hint:?} not in {message:?}");
    }
}

#[test]
fn a_typing_error_in_a_toml_file_is_said_with_its_place() {
    let home = Home::new();
    for (text, hint) in [
        ("[sorce.\"segment:a\"]\n", "sorce"),
        ("store = \"memory:\"\nstor = 1\n", "line 2"),
        ("store = \"memory:\"\n[source.\"segment:a\"]\nstepp = 5\n", "stepp"),
        ("store = \"memory:\"\n[source.\"segment:a\"]\nstep = 0\n", "step=0"),
        ("store = \"memory:\"\n[source.\"sequence:a\"]\nstep = 5\n", "valid kinds"),
        ("store = \"memory:\"\n[segment]\ncolour = 5\n", "valid options"),
        ("store = \"memory:\"\nfork = \"perhaps\"\n", "revive, error"),
        ("store = memory:\n", "line 1"),
        ("store = \"file:other.toml\"\n", "another file"),
    ] {
        home.file("keymill.toml", text);
        let message =
            home.run(&["--mill", "file:keymill.toml", "next", "segment:b"]).refused("INVALID_CONFIG");
        assert!(message.contains(hint) && message.contains("keymill.toml"), "{text}: {message}");
    }
}

#[test]
fn a_password_is_never_shown() {
    let home = Home::new();
    home.file("a.toml", "store = \"mysql://u:topsecret@127.0.0.1:1/x\"\n");
    home.file("b.toml", "stores = \"mysql://u:topsecret@127.0.0.1:1/x\"\n");
    home.file("c.toml", "store = \"mysql://u:topsecret@127.0.0.1:1/x?colour=red\"\n");
    for config in [
        "mysql://u:topsecret@127.0.0.1:1/x",
        "mysql://u:topsecret@127.0.0.1:1/x?durability=never",
        "mysql://u:topsecret@127.0.0.1:1",
        "mysql:u:topsecret@127.0.0.1:1/x",
        "mysql://u:topsecret@127.0.0.1:x/x",
        "mysql://u:pa?topsecret@127.0.0.1:1/x",
        "mysql://u:p@q?topsecret@127.0.0.1:1/x",
        "mysqll://u:topsecret@127.0.0.1:1/x",
        "redis://:topsecret@127.0.0.1:1",
        "redis://:topsecret@127.0.0.1:1/x",
        "redis://u:topsecret@127.0.0.1:1?colour=red",
        "redis://u:pa?topsecret@127.0.0.1:1",
        "redis://u:p?topsecret",
        "redis://u:1?topsecret=1",
        "redis://u:topsecret",
        "redis://u:topsecret?tls=off",
        "rediss://u:topsecret@127.0.0.1:1?tls=off",
        "//u:topsecret@127.0.0.1:1/x",
        "file:a.toml",
        "file:b.toml",
        "file:c.toml",
    ] {
        for verb in
            [&["next", "segment:a"][..], &["status", "segment:a"], &["init"], &["metrics", "segment:a"]]
        {
            let by_flag = home.run(&[&["--mill", config], verb].concat());
            let by_env: Ran = home.command(verb).env("KEYMILL_CONFIG", config).output().unwrap().into();
            for ran in [by_flag, by_env] {
                assert_eq!(ran.code, Some(1), "{config} {ran:?}");
                assert!(ran.err.starts_with("keymill: ") && ran.out.is_empty(), "{ran:?}");
                assert!(!ran.err.contains("topsecret"), "{config}: {ran:?}");
            }
        }
    }
    let help: Ran =
        home.command(&["--help"]).env("KEYMILL_CONFIG", "mysql://u:topsecret@h/x").output().unwrap().into();
    assert!(!help.done().contains("topsecret"));
}

#[test]
fn a_folder_that_is_missing_or_not_writable_is_refused() {
    let home = Home::new();
    for place in ["sqlite:no/such/folder/x.db", "sqlite:/dev/null/x.db", "sqlite:."] {
        for verb in [&["next", "segment:a"][..], &["take", "segment:a", "5"], &["init"]] {
            let ran = home.run(&[&["--mill", place], verb].concat());
            assert!(ran.err.starts_with("keymill: STORE_"), "{place} {ran:?}");
            assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{place}");
        }
    }
    if crate::common::is_root() {
        crate::common::skipped("a folder without the right to write: root may write everywhere");
        return;
    }
    let ran = home.shell("mkdir locked && chmod 555 locked && $K --mill sqlite:locked/x.db next segment:a");
    ran.refused("STORE_REFUSED");
}

#[test]
fn a_disk_that_takes_no_more_is_an_error_and_costs_no_id() {
    let home = Home::new();
    home.run(&["take", "segment:orders", "3"]).done();
    // A limit on file sizes instead of a full disk: the same answer to the write, and no right needed.
    for blocks in [0, 4, 8] {
        let ran = home.shell(&format!(
            "trap '' XFSZ; ulimit -f {blocks}; exec $K take 'segment:orders?deadline=10s' 5"
        ));
        assert!(ran.err.starts_with("keymill: STORE_UNAVAILABLE: "), "{ran:?}");
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    }
    goes_on(&home, 4);
    let ran =
        home.shell("trap '' XFSZ; ulimit -f 0; exec $K --mill sqlite:new.db next 'segment:a?deadline=10s'");
    ran.refused("STORE_UNAVAILABLE");
}

#[test]
fn standard_output_that_is_full_is_an_error() {
    let home = Home::new();
    for verb in [
        "take segment:orders 5",
        "next segment:orders",
        "layout uid",
        "status",
        "take segment:orders 5 --json",
    ] {
        let ran = home.shell(&format!("$K {verb} > /dev/full"));
        ran.refused("INVALID_ARGUMENT");
    }
}

#[test]
fn a_database_of_another_program_is_left_alone_by_init_too() {
    let home = Home::new();
    let path = home.path().join("app.db");
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE users (id INTEGER); INSERT INTO users VALUES (7)").unwrap();
    drop(db);
    let before = std::fs::read(&path).unwrap();
    for args in [
        &["take", "segment:orders", "5"][..],
        &["next", "segment:it's?table=mine"],
        &["init", "segment:orders"],
        &["init", "--dry-run", "serial:cust/id?table=kp&number=0000"],
    ] {
        let message = home.run(&[&["--mill", "sqlite:app.db"], args].concat()).refused("STORE_REFUSED");
        for part in ["table `users` of another program", "name a file of keymill's own"] {
            assert!(message.contains(part), "{message}");
        }
    }
    assert_eq!(std::fs::read(&path).unwrap(), before, "not a byte of it was changed");
}

#[test]
fn init_that_refuses_one_table_makes_no_other() {
    let home = Home::new();
    let db = rusqlite::Connection::open(home.path().join("ids.db")).unwrap();
    db.execute_batch("CREATE TABLE keymill_segment (name TEXT PRIMARY KEY, period INTEGER, next INTEGER)")
        .unwrap();
    for args in [&["init"][..], &["init", "segment:a?scheme=cosid", "segment:a"]] {
        let message = home.run(&[&["--mill", "sqlite:ids.db"], args].concat()).refused("STORE_REFUSED");
        assert!(message.contains("earlier build") && message.contains("nothing was changed"), "{message}");
    }
    let count: i64 = db
        .query_row("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 1, "nothing was changed");
}

#[test]
fn a_file_that_is_no_database_is_left_as_it_is() {
    let home = Home::new();
    let text = "not a database, and longer than the hundred bytes of a SQLite header, so that it is read as one: xxxxxxxxxxxx\n";
    let path = home.file("notes.txt", text);
    for verb in [&["next", "segment:a"][..], &["init"], &["status", "segment:a"]] {
        home.run(&[&["--mill", "sqlite:notes.txt"], verb].concat()).refused("STORE_REFUSED");
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn an_id_beyond_the_last_is_exhausted_and_what_was_taken_is_printed() {
    let home = Home::new();
    assert_eq!(home.run(&["next", "segment:a?start=9223372036854775807"]).ids(), [i64::MAX as u64]);
    home.run(&["next", "segment:a"]).refused("EXHAUSTED");
    // Two digits hold ninety-nine serials: they are printed, then the error comes.
    let ran = home.run(&["take", "serial:t/c?number=00&zone=UTC&deadline=60s", "200"]);
    assert_eq!((ran.code, ran.out.lines().count()), (Some(1), 99), "{ran:?}");
    assert!(ran.err.starts_with("keymill: NUMBER_OVERFLOW: "), "{ran:?}");
    let ran = home.run(&["take", "serial:t/d?number=00&zone=UTC&deadline=60s", "200", "--json"]);
    let array: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, array.as_array().unwrap().len()), (Some(1), 99));
}

#[test]
fn arguments_that_are_not_utf_8_are_refused() {
    let home = Home::new();
    let ran = home.shell(r"$K next $'segment:\xff'");
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""), "{ran:?} {}", *BINARY);
}

#[test]
fn the_environments_password_goes_nowhere_that_every_user_can_say() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let file = home.file("ids.toml", "store = \"mysql://ids@127.0.0.1:1/shop\"\n");
    let run = |mode: u32, password: &str| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = home.command(&["--mill", "file:ids.toml", "next", "segment:orders?deadline=100ms"]);
        if !password.is_empty() {
            command.env("KEYMILL_PASSWORD", password);
        }
        Ran::from(command.output().unwrap()).err
    };
    let refused = run(0o666, "secret");
    assert!(refused.contains("INVALID_CONFIG") && refused.contains("run `chmod o-w ids.toml`"), "{refused}");
    // It is read by others in many places, and without the password it gives nothing away.
    for (mode, password) in [(0o644, "secret"), (0o666, "")] {
        let err = run(mode, password);
        assert!(!err.contains("chmod"), "{mode:o}: {err}");
    }
}

#[test]
fn now_is_refused_where_the_stores_clock_is_far_from_this_machines() {
    let home = Home::new();
    let url = std::env::var("KEYMILL_TEST_POSTGRES").expect("`ci/servers/postgres run` names a server");
    let (joint, spec) = (if url.contains('?') { '&' } else { '?' }, "snowflake:far?worker=3&max_lead=3s");
    home.run(&["--mill", &url, "init", spec]).done();
    let at = |ms: i64| format!("{url}{joint}clock=manual%40{ms}");
    for far in [-700_000, 700_000] {
        let mill = at(crate::common::now_ms() + far);
        let message =
            home.run(&["--mill", &mill, "repair", spec, "--to", "now", "--yes"]).refused("STORE_REFUSED");
        assert!(message.contains("compare both with a third clock"), "{message}");
    }
    home.run(&["--mill", &at(crate::common::now_ms() + 60_000), "repair", spec, "--to", "now"]).done();
}
