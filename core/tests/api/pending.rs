//! The verbs for languages that wait in their own way: `try_lease`, `ask` and `patience`, through the public API.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use keymill::binding::{Lease, Notifier, Pending};
use keymill::{Code, Error, Gene, Kind, Mill, Parts, Result, Source};

fn source(config: &str, spec: &str) -> (Mill, Source) {
    let mill = Mill::open(config).unwrap();
    let source = mill.source(spec).unwrap();
    (mill, source)
}

/// Polls as a language would, by sleeping.
fn complete(mut batch: Pending) -> Result<Pending> {
    while let Some(pause) = batch.poll()? {
        std::thread::sleep(pause);
    }
    Ok(batch)
}

/// Leases as a language would.
fn lease(source: &Source, count: u64, enough: u64) -> Result<Lease> {
    let since = Instant::now();
    loop {
        match source.try_lease(count, enough) {
            Ok(lease) => return Ok(lease),
            Err(refusal) => std::thread::sleep(source.patience(refusal, since.elapsed())?),
        }
    }
}

fn ids(batch: Pending, count: usize) -> Vec<u64> {
    let mut ids = vec![0; count];
    batch.write(&mut ids);
    ids
}

#[test]
fn a_batch_of_every_kind_is_complete_and_in_order() {
    let (mill, orders) = source("memory:", "segment:orders?min_step=1000&max_step=1000");
    // More than memory holds at a time.
    let batch = complete(orders.ask(50_000).unwrap()).unwrap();
    assert_eq!(ids(batch, 50_000), (1..=50_000).collect::<Vec<u64>>());

    let serials = mill.source("serial:cust/id?date=&number=0000").unwrap();
    let mut texts = Vec::new();
    complete(serials.ask(3).unwrap()).unwrap().texts(|text| texts.push(text.to_owned()));
    assert_eq!(texts, ["0001", "0002", "0003"]);

    let tx = mill.source("snowflake:tx?worker=5").unwrap();
    let made = ids(complete(tx.ask(10_000).unwrap()).unwrap(), 10_000);
    assert!(made.is_sorted_by(|a, b| a < b));
    assert_eq!(tx.parse(made[9_999]).unwrap().worker, Some(5));
    assert_eq!([orders.kind(), serials.kind(), tx.kind()], [Kind::Segment, Kind::Serial, Kind::Snowflake]);
}

/// Polls when there are news for the token 7; answers with how often, too.
fn complete_by_news(mut batch: Pending, notifier: &Notifier) -> Result<(Pending, u32)> {
    for polls in 1.. {
        let Some(pause) = batch.poll_or_register(notifier, 7)? else { return Ok((batch, polls)) };
        assert!(notifier.wait(pause).iter().all(|token| *token == 7));
    }
    unreachable!("each poll is counted");
}

#[test]
fn a_batch_of_every_kind_that_waits_is_told_of_its_ids_and_not_polled_meanwhile() {
    let kinds = [
        "segment:orders?",
        "serial:cust/id?date=&number=0000&",
        "snowflake:tx?worker=5&",
        "snowflake:tx?worker=lease&",
        "business:order?counters=16&",
        "business:order?",
    ];
    for kind in kinds {
        let notifier = Notifier::new(|| ());
        let (mill, ids) = source("memory:?script=silent:500ms", &format!("{kind}deadline=60s"));
        let batch = match ids.kind() {
            Kind::Business => ids.ask_of(Gene::from(7), 1),
            _ => ids.ask(1),
        };
        let (_, polls) = complete_by_news(batch.unwrap(), &notifier).unwrap();
        assert!(polls <= 10, "{kind}: {polls} polls");
        mill.close();
    }
}

#[test]
fn a_batch_that_waits_for_news_ends_with_the_deadline_and_with_a_close() {
    let notifier = Notifier::new(|| ());
    let (mill, orders) = source("memory:?script=silent:2s", "segment:orders?deadline=300ms");
    let mut batch = orders.ask(1).unwrap();
    let pause = batch.poll_or_register(&notifier, 7).unwrap().unwrap();
    assert!((Duration::from_millis(200)..=Duration::from_millis(300)).contains(&pause), "{pause:?}");
    assert_eq!(complete_by_news(batch, &notifier).unwrap_err().code, Code::Deadline);

    let patient = mill.source("segment:orders?deadline=60s").unwrap();
    let mut given_up = patient.ask(1).unwrap();
    given_up.poll_or_register(&notifier, 8).unwrap().unwrap();
    drop(given_up);
    let mut batch = patient.ask(1).unwrap();
    batch.poll_or_register(&notifier, 7).unwrap().unwrap();
    mill.close();
    assert_eq!(notifier.wait(Duration::from_secs(60)), [7], "a batch that was dropped is told nothing");
    assert_eq!(batch.poll_or_register(&notifier, 7).unwrap_err().code, Code::Closed);
}

#[test]
#[cfg(feature = "mysql")]
fn polling_never_blocks_and_ends_with_the_deadline() {
    let down = "mysql://nobody@127.0.0.1:1/ids?connect_timeout=1s";
    let (_mill, orders) = source(down, "segment:orders?deadline=2s");
    let mut batch = orders.ask(5).unwrap();
    let started = Instant::now();
    assert!(batch.poll().unwrap().is_some());
    assert!(started.elapsed() < Duration::from_millis(1500), "a poll took {:?}", started.elapsed());
    let error = complete(batch).unwrap_err();
    assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_lease_lives_until_its_word_changes() {
    let (mill, orders) = source("memory:", "segment:orders?block=10");
    let lease = lease(&orders, 0, 1).unwrap();
    assert_eq!((lease.lo, lease.hi, lease.prefix.as_str(), lease.width), (1, 11, "", 1));
    assert_eq!(lease.word.load(Ordering::Acquire), lease.leased_at);
    mill.close();
    assert_ne!(lease.word.load(Ordering::Acquire), lease.leased_at);
    assert_eq!(orders.try_lease(1, 1).unwrap_err().code, Code::Closed);
}

#[test]
fn a_serials_lease_carries_its_date_and_dies_with_the_day() {
    // 2026-01-01T00:00:00Z.
    let spec = "serial:cust/id?date=yyyyMMdd&number=000000&zone=UTC";
    let (mill, serials) = source("memory:?clock=manual", spec);
    let today = lease(&serials, 5, 1).unwrap();
    assert_eq!((today.prefix.as_str(), today.width, today.lo), ("20260101", 6, 1));
    mill.advance_clock(86_400_000).unwrap();
    let tomorrow = lease(&serials, 5, 1).unwrap();
    assert_eq!((tomorrow.prefix.as_str(), tomorrow.lo), ("20260102", 1));
    assert_ne!(today.word.load(Ordering::Acquire), today.leased_at);
}

#[test]
fn patience_waits_while_waiting_helps_and_ends_with_the_deadline() {
    let (_mill, orders) = source("memory:", "segment:orders?deadline=1s");
    let ms = Duration::from_millis;
    let not_ready = || Error::new(Code::NotReady, "").after(ms(5));
    assert_eq!(orders.patience(not_ready(), ms(0)).unwrap(), ms(5));
    assert_eq!(orders.patience(not_ready(), ms(998)).unwrap(), ms(2));
    assert_eq!(orders.patience(not_ready(), ms(1000)).unwrap_err().code, Code::Deadline);
    let exhausted = Error::new(Code::Exhausted, "");
    assert_eq!(orders.patience(exhausted, ms(0)).unwrap_err().code, Code::Exhausted);
    let down = Error::new(Code::StoreUnavailable, "").after(ms(2000));
    assert_eq!(orders.patience(down, ms(0)).unwrap_err().code, Code::StoreUnavailable);
}

#[test]
fn a_batch_that_is_never_collected_counts_as_lost() {
    let (_mill, orders) = source("memory:", "segment:orders");
    drop(complete(orders.ask(500).unwrap()).unwrap());
    assert_eq!(orders.stats().unwrap().lost, 500);
}

#[test]
fn copies_of_one_source_have_one_identity() {
    let (mill, orders) = source("memory:", "segment:orders");
    assert_eq!(orders.identity(), mill.source("segment:orders").unwrap().identity());
    assert_ne!(orders.identity(), mill.source("segment:other").unwrap().identity());
    assert!(!orders.by_thread() && orders.deadline() == Duration::from_secs(3));
    mill.close();
    assert_eq!(mill.source("segment:orders").unwrap_err().code, Code::Closed);
}

#[test]
fn numbers_expire_by_a_ttl_or_a_date_and_else_only_a_close_ends_them() {
    let mill = Mill::open("memory:").unwrap();
    let expires = |spec: &str| mill.source(spec).unwrap().expires();
    assert!(!expires("segment:a"));
    assert!(!expires("segment:b?order=thread"));
    assert!(expires("segment:c?ttl=1s"));
    assert!(expires("serial:t/a?date=yyyyMMdd"));
    assert!(expires("serial:t/b?date='C'yyyy"));
    assert!(!expires("serial:t/c?date="));
    assert!(!expires("serial:t/d?date='C'"));
    assert!(expires("serial:t/e?date=&ttl=1s"));
}

#[test]
fn a_caller_that_waits_in_its_own_way_for_a_clock_gets_its_reason() {
    let (mill, tx) = source(
        "memory:?clock=manual",
        "snowflake:tx?layout=time:40@10ms,worker:10,seq:1&max_lead=1ms&worker=5&deadline=50ms&clock_back=wait",
    );
    mill.set_clock(1_750_000_000_000).unwrap();
    // The generator starts once the store has answered and the clock goes on.
    let give_up = Instant::now() + Duration::from_secs(20);
    while tx.try_next().is_err() {
        assert!(Instant::now() < give_up);
        mill.advance_clock(10).unwrap();
    }
    mill.set_clock(1_749_999_990_000).unwrap();
    let refused = complete(tx.ask(1).unwrap()).unwrap_err();
    let blocked = tx.next().unwrap_err();
    assert_eq!((refused.code, blocked.code), (Code::Deadline, Code::Deadline));
    assert!(refused.message.contains("clock_back=wait"), "{}", refused.message);
    assert_eq!(refused.message, blocked.message);
}

#[test]
fn a_call_that_waits_in_its_own_way_is_counted_once() {
    let mill = Mill::open("memory:").unwrap();
    let orders = mill.source("segment:orders").unwrap();
    let waits = |source: &Source| source.stats().unwrap().waits;
    let mut waited = Duration::ZERO;
    while let Err(refusal) = orders.try_next() {
        let pause = orders.patience(refusal, waited).unwrap();
        std::thread::sleep(pause);
        waited += pause;
    }
    assert!(waited > Duration::ZERO, "a cold source has nothing in memory");
    assert_eq!(waits(&orders), 1);

    let invoices = mill.source("segment:invoices").unwrap();
    let mut batch = invoices.ask(500_000).unwrap();
    let mut pauses = 0;
    while let Some(pause) = batch.poll().unwrap() {
        std::thread::sleep(pause);
        pauses += 1;
    }
    assert!(pauses > 0, "a cold source has nothing in memory");
    assert_eq!(waits(&invoices), 1);
    complete(orders.ask(1).unwrap()).unwrap();
    assert_eq!(waits(&orders), 1, "who finds its ids in memory does not wait");
}

#[test]
fn figures_and_metrics_say_how_long_ago_a_lease_was_renewed() {
    let mill = Mill::open("memory:?clock=manual").unwrap();
    let sources = ["snowflake:fixed?worker=1", "snowflake:leased"].map(|spec| mill.source(spec).unwrap());
    for source in &sources {
        source.next().unwrap();
    }
    // Before the first renewal.
    mill.advance_clock(1_000).unwrap();
    assert_eq!(sources.each_ref().map(|source| source.stats().unwrap().lease_age_ms), [None, Some(1_000)]);
    let metrics = mill.metrics();
    let ages: Vec<_> = metrics.lines().filter(|line| line.starts_with("keymill_lease_age_seconds")).collect();
    assert_eq!(ages, ["keymill_lease_age_seconds{source=\"snowflake:leased\"} 1.000"]);
}

#[test]
fn a_batch_for_a_key_is_of_the_form_that_the_source_makes() {
    let mill = Mill::open("memory:").unwrap();
    let narrow = mill.source("business:narrow").unwrap();
    let wide = mill.source("business:wide?wide=on").unwrap();
    let gene = Gene::of_number(42);
    for refused in [wide.ask_of(gene, 3), narrow.ask_wide_of(gene, 3)] {
        assert_eq!(refused.unwrap_err().code, Code::InvalidArgument);
    }
    let (mut ids, mut wides) = ([0; 3], [0; 3]);
    complete(narrow.ask_of(gene, 3).unwrap()).unwrap().write(&mut ids);
    complete(wide.ask_wide_of(gene, 3).unwrap()).unwrap().write_wide(&mut wides);
    assert_eq!(ids, [1, 2, 3].map(|number| 61_763 << 47 | number));
    assert_eq!(wides, [1, 2, 3].map(|number| 61_763 << 111 | number));
}

#[test]
fn the_type_or_the_length_says_the_form_of_an_id_and_never_its_size() {
    let mill = Mill::open("memory:").unwrap();
    let orders = mill.source("business:order?wide=on").unwrap();
    let parts = |parts: Result<Parts>| parts.map(|parts| (parts.gene.unwrap(), parts.number.unwrap()));
    for (gene, number) in [(1, 1), (61_763, 7), (65_535, (1 << 47) - 1)] {
        let id: u64 = gene << 47 | number;
        assert_eq!(parts(orders.parse(id)), Ok((gene as u16, number)));
        assert_eq!(parts(orders.parse_bytes(&id.to_be_bytes())), Ok((gene as u16, number)));
        assert_eq!(parts(orders.parse_wide(id.into())), Ok((0, id)));
        assert_eq!(parts(orders.parse_bytes(&u128::from(id).to_be_bytes())), Ok((0, id)));
        let refused = orders.parse_text(&id.to_string()).unwrap_err();
        assert_eq!(refused.code, Code::InvalidArgument);
        for (form, read) in
            [(format!("0x{id:016x}"), (gene as u16, number)), (format!("0x{id:032x}"), (0, id))]
        {
            assert!(refused.message.contains(&form), "{refused}");
            assert_eq!(parts(orders.parse_text(&form)), Ok(read));
        }
    }
    for wrong in [&[0_u8; 0][..], &[0; 7], &[0; 15], &[0; 17]] {
        assert_eq!(orders.parse_bytes(wrong).unwrap_err().code, Code::InvalidArgument);
    }
}

#[test]
fn a_caller_that_waits_for_the_clock_wakes_soon_after_it_is_right() {
    // Two ids a minute and no tick ahead: the third one waits for the next tick.
    let spec = "snowflake:tx?worker=1&layout=time:31@60s,worker:10,seq:1&max_lead=1s&deadline=90s";
    let (mill, tx) = source("memory:?clock=manual", spec);
    for _ in 0..1_000 {
        if tx.try_next().is_ok() {
            break;
        }
        // The source begins with a tick of its own.
        mill.advance_clock(60_000).expect("a manual clock");
        std::thread::sleep(Duration::from_millis(20));
    }
    while tx.try_next().is_ok() {}
    let since = Instant::now();
    let waiting = std::thread::spawn({
        let tx = tx.clone();
        move || tx.next()
    });
    std::thread::sleep(Duration::from_millis(300));
    mill.advance_clock(60_000).expect("a manual clock");
    waiting.join().expect("no panic").expect("an id");
    // Not after the minute that the clock lacked when the caller began to wait.
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    let refused = loop {
        if let Err(refused) = tx.try_next() {
            break refused;
        }
    };
    let pause = tx.patience(refused, Duration::ZERO).expect("worth waiting for");
    assert!(pause < Duration::from_secs(1), "{pause:?}");
}
