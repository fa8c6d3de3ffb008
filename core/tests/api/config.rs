//! No configuration string and no spec, whatever it holds, does more than answer with one clear line.

use keymill::{Code, simulation::MillConfig};
use proptest::prelude::*;

#[test]
fn a_mill_of_the_applications_settings_names_what_it_ignores_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("app.db");
    let properties = [("journal_mode", "wal"), ("cache_size", "5"), ("journal_mode", "wal")];
    let config = keymill::store_of(&format!("jdbc:sqlite:{}", file.display()), &properties).expect("a mill");
    let mill = keymill::Mill::open(&config).expect("a mill");
    mill.source("segment:orders").expect("a source").next().expect("an id");
    let about = |event: &keymill::Event| event.kind == keymill::EventKind::SettingsIgnored;
    let events: Vec<_> = mill.events().into_iter().filter(about).collect();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].message.ends_with("database: journal_mode, cache_size"), "{}", events[0].message);
    assert_eq!(mill.ignored(), ["journal_mode", "cache_size"]);
    // Nor does a message that says what to run repeat them.
    let other = keymill::Mill::open(&config.replace("app.db", "no/app.db")).expect("a mill");
    let error =
        other.source("segment:orders?deadline=10ms").expect("a source").next().expect_err("no folder");
    assert!(!error.message.contains("journal_mode"), "{error}");
    let wrong = keymill::Mill::open("sqlite:a.db?ignored=a%26b,c").expect_err("no name");
    assert!(wrong.message.contains("`ignored=`"), "{wrong}");
}

#[test]
fn a_row_has_one_zone_in_a_mill_and_an_event_names_the_programs() {
    let mill = keymill::Mill::open("memory:?clock=manual").expect("a mill");
    let zone = |spec: &str| mill.source(spec).and_then(|source| source.stats()).map(|stats| stats.zone);
    assert_eq!(zone("serial:a/b?zone=Asia/Shanghai"), Ok(Some("Asia/Shanghai".to_owned())));
    assert_eq!(zone("serial:a/b?zone=Asia/Shanghai&date=yyMM"), Ok(Some("Asia/Shanghai".to_owned())));
    // Without dates there are no days.
    assert_eq!(zone("serial:a/b?zone=UTC&date="), Ok(None));
    assert_eq!(zone("serial:a/other?zone=UTC"), Ok(Some("UTC".to_owned())));
    assert!(mill.events().is_empty());
    let other = zone("serial:a/b?zone=UTC").expect_err("two zones");
    assert_eq!(other.code, Code::InvalidConfig);
    for part in ["`serial:a/b`", "`zone=Asia/Shanghai`", "`zone=UTC`"] {
        assert!(other.message.contains(part), "{other}");
    }
    // One zone has several names.
    for (first, alias) in [("Asia/Shanghai", "PRC"), ("UTC", "Etc/UTC"), ("Etc/UTC", "+00:00")] {
        let named = |name: &str| zone(&format!("serial:alias/{}?zone={name}", first.replace('/', "_")));
        assert_eq!((named(first), named(alias)), (Ok(Some(first.to_owned())), Ok(Some(alias.to_owned()))));
    }
    zone("serial:alias/Asia_Shanghai?zone=Asia/Singapore").expect_err("other hours before 1991");
    let program = zone("serial:c/d").expect("the program's").expect("a zone");
    let events = mill.events();
    let told = |event: &keymill::Event| event.kind == keymill::EventKind::LocalZone;
    assert!(events.iter().any(|event| told(event) && event.message.contains(&program)), "{events:?}");
    assert_eq!(zone("serial:c/d?zone=local&date="), Ok(None));
    assert!(mill.events().is_empty());
}

/// Pieces that specs and URLs are made of, joined at random: closer to the edges than plain noise.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("segment:"),
        Just("serial:"),
        Just("snowflake:"),
        Just("business:"),
        Just("orders"),
        Just("a/b"),
        Just("?"),
        Just("&"),
        Just("="),
        Just("%"),
        Just("%41"),
        Just("%zz"),
        Just("%ff"),
        Just("step=1"),
        Just("step=-1"),
        Just("step=0"),
        Just("min_step=9"),
        Just("max_step=3"),
        Just("worker=5"),
        Just("worker=lease"),
        Just("layout=time:41@1ms,worker:10,seq:12"),
        Just("layout=time:64@1ms"),
        Just("epoch=1970-01-01"),
        Just("date=yyyyMMdd"),
        Just("date='x"),
        Just("date=YYYY"),
        Just("number=0000"),
        Just("number=9"),
        Just("zone=UTC"),
        Just("zone=Moon/Base"),
        Just("ttl=1h"),
        Just("deadline=3s"),
        Just("deadline=9999999999999999999s"),
        Just("\u{0}"),
        Just("'; DROP TABLE x; --"),
        Just("号段"),
        Just("memory:"),
        Just("sqlite:"),
        Just("mysql://"),
        Just("u:p@h:1/d"),
        Just("[::1]"),
        Just("@"),
        Just(":"),
        Just("/"),
        Just("clock=manual@"),
        Just("fork=error"),
        Just("9223372036854775808"),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|all| all.concat())
}

fn is_one_clear_line(error: &keymill::Error) -> bool {
    matches!(error.code, Code::InvalidConfig | Code::LayoutEnded)
        && !error.message.is_empty()
        && !error.message.contains(['\n', '\u{0}'])
        && error.message.len() < 2000
}

proptest! {
    #[test]
    fn any_spec_is_read_or_refused_in_one_line(spec in prop_oneof![pieces(), any::<String>()]) {
        let config = MillConfig::parse("memory:").expect("a memory mill");
        if let Err(error) = config.spec(&spec) {
            prop_assert!(is_one_clear_line(&error), "{error}");
        }
    }

    #[test]
    fn any_configuration_is_read_or_refused_in_one_line(text in prop_oneof![pieces(), any::<String>()]) {
        prop_assume!(!text.starts_with("file:"));
        if let Err(error) = MillConfig::parse(&text) {
            prop_assert!(is_one_clear_line(&error), "{error}");
        }
    }

    #[test]
    fn a_password_is_in_no_message(rest in pieces()) {
        let text = format!("mysql://app:hunter2hunter2@{rest}");
        if let Err(error) = MillConfig::parse(&text) {
            prop_assert!(!error.to_string().contains("hunter2hunter2"), "{error}");
        }
    }

    #[test]
    fn any_toml_file_is_read_or_refused_in_one_line(text in prop_oneof![
        any::<String>(),
        Just("store = 5".to_owned()),
        Just("stroe = \"memory:\"".to_owned()),
        Just("[segment]\nstepp = 4".to_owned()),
        Just("[source.\"segment:a\"]\nstep = 0".to_owned()),
        Just("store = \"memory:\"\n[source.\"segment:a\"]\nstep = 10".to_owned()),
    ]) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mill.toml");
        std::fs::write(&path, &text).expect("a file");
        if let Err(error) = MillConfig::parse(&format!("file:{}", path.display())) {
            prop_assert!(is_one_clear_line(&error), "{error}");
        }
    }
}

#[test]
fn a_valid_spec_and_its_file_are_read() {
    let config = MillConfig::parse("memory:").expect("a memory mill");
    for good in [
        "segment:orders",
        "segment:o'rders; DROP TABLE x",
        "segment:100%25",
        "serial:cust_info/custid?date='C'yyyyMMdd&number=000000&step=500",
        "snowflake:tx?worker=5&layout=time:28@1s,worker:22,seq:13",
        "snowflake:tx?worker=1&layout=time:44@1ms,worker:7,seq:12",
    ] {
        config.spec(good).unwrap_or_else(|e| panic!("{good}: {e}"));
    }
}

#[test]
fn a_configuration_that_names_no_file_says_what_to_write() {
    for (config, hint) in [("file:", "write file:keymill.toml"), ("sqlite:", "write sqlite:keymill.db")] {
        let error = MillConfig::parse(config).expect_err("no file is named");
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.message.contains(hint), "{}", error.message);
    }
}
