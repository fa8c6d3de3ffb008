//! What a caller is told when there is no number, and that two spellings of one column are one column.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Error, Mill, Source};

/// 2026-11-20 00:00:00 UTC; ten hours of that day are over in most tests.
const DAY_MS: i64 = 1_795_132_800_000;
const HOUR_MS: i64 = 3_600_000;

fn open(mill: &str, spec: &str) -> (Mill, Source) {
    let mill = Mill::open(mill).unwrap();
    let source = mill.source(spec).unwrap();
    (mill, source)
}

fn manual(at_ms: i64) -> String {
    format!("memory:?clock=manual@{at_ms}")
}

/// What an operator carries over from another table may be used up: the number above the last one says so.
#[test]
fn a_source_that_is_used_up_is_carried_over_as_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    let mut mills = vec!["memory:"];
    if cfg!(feature = "sqlite") {
        mills.push(&file);
    }
    let sources = [
        ("serial:c/i?date=yyyyMMdd&number=00", 100),
        ("serial:c/i?date=yyyyMMdd&number=00&scheme=keymill", 100),
        ("segment:s", 1 << 63),
    ];
    for (mill, (spec, all)) in mills.iter().flat_map(|mill| sources.map(|source| (mill, source))) {
        let (mill, source) = open(mill, spec);
        let above = source.repair(all + 1, Change::Apply).unwrap_err();
        assert!(above.message.contains(&format!("give one from 1 to {all}")), "{above}");
        for change in [Change::DryRun, Change::Apply, Change::Apply] {
            assert_eq!(source.repair(all, change).unwrap().after.mark.next, all, "{spec}");
        }
        let code = if spec.starts_with("serial") { Code::NumberOverflow } else { Code::Exhausted };
        assert_eq!(source.next_text().unwrap_err().code, code, "{spec}");
        mill.close();
    }
}

/// The alert of the page looks at the runway: an outage must not end it while callers get errors.
#[test]
fn a_source_that_has_no_numbers_left_in_an_outage_has_a_runway_of_zero() {
    let (mill, source) = open("memory:?script=down:10000", "segment:orders?deadline=100ms");
    assert_eq!(source.stats().unwrap().runway_seconds, None, "before the first call");
    let deadline = Instant::now() + Duration::from_secs(180);
    while source.stats().unwrap().refusal.is_none() {
        assert!(Instant::now() < deadline, "no outage was noticed");
        source.next().unwrap_err();
    }
    let stats = source.stats().unwrap();
    assert_eq!((stats.rate, stats.runway_seconds), (0.0, Some(0.0)));
    assert!(
        mill.metrics().contains("\nkeymill_runway_seconds{source=\"segment:orders\"} 0.000\n"),
        "{}",
        mill.metrics()
    );
}

#[test]
fn two_spellings_of_one_column_never_give_one_serial_twice() {
    let mut all = HashSet::new();
    for scheme in ["keymill", "key_producer"] {
        let mill = Mill::open("memory:spellings").unwrap();
        let other = Mill::open("memory:spellings").unwrap();
        for (mill, name) in [(&mill, "cust/id"), (&mill, "CUST/ID"), (&other, "Cust/Id")] {
            let spec = format!("serial:{name}?date=&number=0000&scheme={scheme}&step=5&table=rows_{scheme}");
            for text in mill.source(&spec).unwrap().take_text(20).unwrap() {
                assert!(all.insert((scheme, text.clone())), "{text} of {name} came twice under {scheme}");
            }
        }
    }
    // Other patterns, columns and tables of rows are other rows.
    let mill = Mill::open("memory:").unwrap();
    for spec in [
        "serial:cust/id?date=&number=0000",
        "serial:cust/id?date=&number=00000",
        "serial:cust/id?date='x'&number=0000",
        "serial:cust/id?date='X'&number=0000",
        "serial:cust/no?date=&number=0000",
        "serial:custi/d?date=&number=0000",
        "serial:cust/id?date=&number=0000&table=other",
    ] {
        assert!(mill.source(spec).unwrap().next_text().unwrap().ends_with("0001"), "{spec}");
    }
    // A segment's name is no column's.
    let numbers =
        ["orders", "Orders"].map(|name| mill.source(&format!("segment:{name}")).unwrap().next().unwrap());
    assert_eq!(numbers, [1, 1]);
}

#[test]
fn numbers_that_ended_for_good_carry_no_hint_when_to_ask_again() {
    let (_mill, orders) = open("memory:", "segment:orders?start=9223372036854775807");
    orders.next().unwrap();
    let (_other, endless) = open("memory:", "serial:t/c?date=&number=0&step=3&max_step=3");
    endless.take_text(9).unwrap();
    for _ in 0..2 {
        let errors: [Error; 3] =
            [orders.next().unwrap_err(), endless.next_text().unwrap_err(), endless.take_text(2).unwrap_err()];
        for (error, code) in errors.iter().zip([Code::Exhausted, Code::NumberOverflow, Code::NumberOverflow])
        {
            assert_eq!((error.code, error.retry_after), (code, None), "{error}");
        }
        assert!(errors[0].message.contains("use a source of another name"), "{}", errors[0]);
        assert!(errors[1].message.contains("`overflow=widen`"), "{}", errors[1]);
    }
}

#[test]
fn an_exhausted_day_says_to_retry_when_it_is_over() {
    let mill = manual(DAY_MS + 10 * HOUR_MS);
    let (mill, serial) = open(&mill, "serial:t/c?number=0&zone=UTC&step=9&max_step=9");
    serial.take_text(9).unwrap();
    let told = |hours: u64| {
        let error = serial.next_text().unwrap_err();
        let hint = Some(Duration::from_secs(hours * 3600));
        assert_eq!((error.code, error.retry_after), (Code::NumberOverflow, hint), "{error}");
        assert!(error.message.contains("the next period begins at 1"), "{error}");
        let error = serial.try_next_text().unwrap_err();
        assert_eq!((error.code, error.retry_after), (Code::NumberOverflow, hint), "{error}");
    };
    told(14);
    mill.advance_clock(10 * 3_600_000).unwrap();
    told(4);
    // The hint was right, however often it was asked in vain before.
    mill.advance_clock(4 * 3_600_000 - 60_000).unwrap();
    for pause in [5000; 11].into_iter().chain([4900, 100]) {
        serial.next_text().unwrap_err();
        mill.advance_clock(pause).unwrap();
    }
    assert_eq!(serial.next_text().unwrap(), "202611211");
    // Refused in a day's last moment, it is told in the next day only for the rest between two statements.
    serial.take_text(8).unwrap();
    mill.advance_clock(24 * 3_600_000 - 1).unwrap();
    serial.next_text().unwrap_err();
    mill.advance_clock(1).unwrap();
    let error = serial.next_text().unwrap_err();
    assert!(error.retry_after.is_some_and(|wait| wait <= Duration::from_millis(50)), "{error:?}");
    mill.advance_clock(50).unwrap();
    assert_eq!(serial.next_text().unwrap(), "202611221");
}

#[test]
fn a_batch_larger_than_the_rest_fails_with_the_number_left() {
    let (_mill, orders) = open("memory:", "segment:orders?start=9223372036854775800&step=10");
    let (_other, serial) = open("memory:", "serial:t/c?date=&number=0&step=3&max_step=3");
    let refused = [orders.take(20).unwrap_err(), orders.ask(20).unwrap().into_refusal()];
    for error in refused {
        assert_eq!(error.code, Code::Exhausted, "{error}");
        for part in [
            "`segment:orders` has 8 numbers left, and 20 more were asked for",
            "fewer at a time",
            "9223372036854775807",
        ] {
            assert!(error.message.contains(part), "{error}");
        }
    }
    let error = serial.take_text(10).unwrap_err();
    assert_eq!(error.code, Code::NumberOverflow);
    assert!(error.message.contains("has 9 numbers left, and 10 more were asked for"), "{error}");
    // Nothing was lost by that, and who asks for less gets it.
    assert_eq!(orders.take(8).unwrap().len(), 8);
    assert_eq!(serial.take_text(9).unwrap().len(), 9);
    let error = serial.take_text(10).unwrap_err();
    assert!(!error.message.contains("numbers left"), "none are left: {error}");
}

/// A batch that is polled until it is refused.
trait Refusal {
    fn into_refusal(self) -> Error;
}

impl Refusal for keymill::binding::Pending {
    fn into_refusal(mut self) -> Error {
        loop {
            match self.poll() {
                Ok(Some(pause)) => std::thread::sleep(pause),
                Ok(None) => panic!("the batch was granted"),
                Err(error) => return error,
            }
        }
    }
}

#[test]
fn a_source_of_texts_says_so_without_naming_a_verb_of_one_language() {
    let (_mill, serial) = open("memory:", "serial:t/c");
    let error = serial.next().unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.contains("ask it for texts") && !error.message.contains('_'), "{error}");
}

#[test]
fn leased_numbers_count_as_issued_in_the_metrics() {
    let (mill, orders) = open("memory:", "segment:orders");
    orders.lease(100).unwrap();
    let metrics = mill.metrics();
    assert!(metrics.contains("keymill_issued_total{source=\"segment:orders\"} 100"), "{metrics}");
    let help = metrics.lines().find(|line| line.starts_with("# HELP keymill_issued_total")).unwrap();
    assert!(help.ends_with("count when it is taken."), "{help}");
}

#[test]
fn a_configuration_file_that_is_missing_says_what_to_name() {
    let error = Mill::open("file:none.toml").map(drop).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig);
    for part in ["`none.toml`", "name a TOML file that can be read", "sqlite:keymill.db"] {
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
#[cfg(not(all(feature = "sqlite", feature = "mysql", feature = "postgres", feature = "redis")))]
fn a_store_that_was_not_built_in_is_refused_with_its_feature() {
    for (url, feature, built) in [
        ("sqlite:ids.db", "sqlite", cfg!(feature = "sqlite")),
        ("mysql://app@db/ids", "mysql", cfg!(feature = "mysql")),
        ("mariadb://app@db/ids", "mysql", cfg!(feature = "mysql")),
        ("postgres://app@db/ids", "postgres", cfg!(feature = "postgres")),
        ("rediss://db", "redis", cfg!(feature = "redis")),
    ] {
        match Mill::open(url) {
            Ok(_) => assert!(built, "{url}"),
            Err(error) => {
                assert!(!built && error.code == Code::InvalidConfig, "{url}: {error}");
                assert!(error.message.contains(&format!("features = [\"{feature}\"]")), "{url}: {error}");
            }
        }
    }
}
