//! Routers: what answers say, which tables are refused, and tables that are replaced while threads read.

use std::fmt::Write as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use keymill::{Change, Code, Gene, Mill, Router};

/// A table in which every shard's name begins with the version.
fn table(version: u64) -> String {
    let mut text = format!("version = {version}\n");
    for upper in [9_999, 32_767, 32_768, 60_000] {
        let _ = write!(text, "[[range]]\nupper = {upper}\nshard = \"{version}-{upper}\"\n");
    }
    text
}

/// The upper bound of a gene's range, looked for by hand.
fn upper(gene: u16) -> u16 {
    [9_999, 32_767, 32_768, 60_000].into_iter().find(|upper| *upper >= gene).unwrap_or(9_999)
}

#[test]
fn tables_are_replaced_as_a_whole_under_eight_readers_and_versions_never_fall() {
    const READERS: usize = 8;
    const TABLES: u64 = if cfg!(miri) {
        4
    } else if cfg!(debug_assertions) {
        200
    } else {
        2_000
    };
    let router = Router::from_text(&table(1)).expect("a table");
    let (begin, ended) = (Barrier::new(READERS + 1), AtomicBool::new(false));
    let seen: u64 = thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let (router, begin, ended) = (&router, &begin, &ended);
                scope.spawn(move || {
                    begin.wait();
                    let (mut last, mut changes, mut gene) = (1, 0, (reader * 8191) as u16);
                    // ordering: Relaxed — when to stop, nothing more.
                    while !ended.load(Ordering::Relaxed) || last < TABLES {
                        gene = gene.wrapping_mul(25_173).wrapping_add(13_849);
                        let route = router.route(u64::from(gene) << 47 | 5).expect("a route");
                        assert_eq!(route.gene.get(), gene);
                        assert_eq!(route.shard, format!("{}-{}", route.version, upper(gene)));
                        assert!(route.version >= last, "version {} after {last}", route.version);
                        changes += u64::from(route.version > last);
                        last = route.version;
                    }
                    changes
                })
            })
            .collect();
        begin.wait();
        for version in 2..=TABLES {
            assert_eq!(router.load(&table(version)), Ok(true));
            if !cfg!(miri) {
                thread::sleep(Duration::from_micros(500));
            }
        }
        // ordering: Relaxed — as above.
        ended.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("a reader")).sum()
    });
    assert!(seen >= READERS as u64, "each reader saw a new table");
    assert_eq!(router.version(), TABLES);
}

#[test]
fn a_bad_table_is_refused_and_the_old_one_stays() {
    let router = Router::from_text(&table(7)).expect("a table");
    let other = table(7).replace("7-", "x-");
    for (text, says) in [
        (table(6), "its version 6 is lower than 7"),
        (other, "both are version 7; raise `version`"),
        ("version = 8".to_owned(), "it has no range"),
        (
            "version = 8\n[[range]]\nupper = 5\nshard = \"a\"\nto = \"a\"\npercent = 200".to_owned(),
            "`percent` is 200",
        ),
        ("{".to_owned(), "is not JSON"),
    ] {
        let error = router.load(&text).expect_err(&text);
        assert_eq!(error.code, Code::InvalidConfig, "{text}");
        assert!(error.message.contains(says), "{error}");
        assert_eq!((router.version(), router.route(1).expect("a route").shard), (7, "7-9999"));
    }
    assert_eq!(router.load(&table(7)), Ok(false), "the present table again");
    assert_eq!(router.load(&table(8)), Ok(true));
}

#[test]
fn an_answer_outlives_the_table_it_is_from() {
    let router = Router::from_text(&table(1)).expect("a table");
    let old = router.route_key("buyer-42").expect("a route");
    router.load(&table(2)).expect("a newer one");
    assert_eq!((old.shard, old.version), ("1-60000", 1));
    assert_eq!(router.route_key("buyer-42").expect("a route").shard, "2-60000");
}

#[test]
fn ids_of_either_length_and_keys_find_the_same_shard() {
    let router = Router::from_text(&table(1)).expect("a table");
    for key in [0, 1, 42, -1, i64::MIN] {
        let gene = Gene::of(key).expect("a gene");
        let by_key = router.route_key(key).expect("a route");
        let (id, wide) = (u64::from(gene.get()) << 47 | 9, u128::from(gene.get()) << 111 | 9);
        for by_id in [
            router.route(id),
            router.route_wide(wide),
            router.route_bytes(&id.to_be_bytes()),
            router.route_bytes(&wide.to_be_bytes()),
        ] {
            assert_eq!(by_id, Ok(by_key), "{key}");
        }
    }
}

#[test]
fn ids_of_the_wrong_form_and_keys_that_are_too_long_are_refused() {
    let router = Router::from_text(&table(1)).expect("a table");
    let long = vec![0; keymill::gene::LONGEST_KEY + 1];
    for (answer, says) in [
        (router.route(1 << 63), "bit 63"),
        (router.route_wide(1 << 127), "128 bits"),
        (router.route_wide(1 << 70), "128 bits"),
        (router.route_bytes(&[1; 7]), "an id of 7 bytes"),
        (router.route_bytes(&[]), "an id of 0 bytes"),
        (router.route_key(&long[..]), "65537 bytes"),
    ] {
        let error = answer.expect_err(says);
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains(says), "{error}");
    }
}

#[test]
fn a_range_that_moves_by_number_is_served_by_both_shards() {
    let text =
        "version = 1\n[[range]]\nupper = 65535\nshard = \"old\"\nto = \"new\"\npercent = 25\nby = \"number\"";
    let router = Router::from_text(text).expect("a table");
    let routed = |number: u64| router.route(7 << 47 | number).expect("a route");
    assert_eq!(
        (routed(117).shard, routed(117).read, routed(118).read, routed(117).also),
        ("old", "new", "old", None)
    );
    for number in [117, 118] {
        let (write, mirror) = (routed(number).write, routed(number).mirror);
        assert_eq!(
            (write, mirror),
            (Some("old"), Some("new")),
            "the old shard decides until the move is finished"
        );
    }
    let wide = router.route_wide(7 << 111 | 0x13d).expect("a route");
    assert_eq!((wide.read, wide.gene.get()), ("new", 7));
    let key = router.route_key(42).expect("a route");
    assert_eq!((key.read, key.mirror, key.also), ("old", Some("new"), Some("new")));
    let by_gene = text.replace("version = 1", "version = 2").replace("number\"", "gene\"");
    router.load(&by_gene).expect("a newer table");
    // The first quarter of the ring has moved, whatever the number is.
    assert_eq!((routed(1).read, router.route(20_000 << 47 | 1).expect("a route").read), ("new", "old"));
    assert_eq!(router.route_key(42).expect("a route").also, None);
    let mirrored = text.replace("version = 1", "version = 3").replace("25", "0");
    router.load(&mirrored).expect("a newer table");
    assert_eq!((routed(0).read, routed(0).write, routed(0).mirror), ("old", Some("old"), Some("new")));
    router.load("version = 4\n[[range]]\nupper = 65535\nshard = \"new\"").expect("a newer table");
    assert_eq!((routed(0).read, routed(0).write, routed(0).mirror), ("new", Some("new"), None));
}

#[test]
fn a_write_is_current_while_the_same_shards_are_written_to_and_never_while_its_range_pauses() {
    let moving = |version: u64, rest: &str| {
        format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"old\"\nto = \"new\"\n{rest}")
    };
    let router =
        Router::from_text("version = 1\n[[range]]\nupper = 65535\nshard = \"old\"").expect("a table");
    let id = 7 << 47 | 5;
    let before = router.route(id).expect("a route");
    assert!(router.is_current(&before));
    router.load(&moving(2, "")).expect("a newer table");
    let mirrored = router.route(id).expect("a route");
    assert_eq!((router.is_current(&before), router.is_current(&mirrored)), (false, true));
    // Reads move, and writes go on as they were.
    router.load(&moving(3, "percent = 100")).expect("a newer table");
    assert!(router.is_current(&mirrored) && router.is_current(&router.route(id).expect("a route")));
    router.load(&moving(4, "percent = 100\npaused = true")).expect("a newer table");
    let paused = router.route(id).expect("a route");
    assert_eq!((paused.read, paused.write, paused.mirror, paused.paused), ("new", None, None, true));
    assert_eq!((router.is_current(&mirrored), router.is_current(&paused)), (false, false));
    router.load("version = 5\n[[range]]\nupper = 65535\nshard = \"new\"").expect("a newer table");
    let finished = router.route(id).expect("a route");
    assert_eq!((finished.write, router.is_current(&finished)), (Some("new"), true));
    for old in [before, mirrored, paused] {
        assert!(!router.is_current(&old), "{old:?}");
    }
    let refused =
        router.load(&moving(6, "percent = 50\npaused = true")).expect_err("half is read from the old shard");
    assert!(refused.message.contains("`paused` with `percent` 50"), "{refused}");
}

#[test]
fn a_file_is_read_and_one_that_cannot_be_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("routes.toml");
    let missing = Router::open(&file).expect_err("no file");
    assert_eq!(missing.code, Code::InvalidArgument);
    assert!(missing.message.contains("routes.toml"), "{missing}");
    std::fs::write(&file, table(3)).expect("written");
    assert_eq!(Router::open(&file).expect("a table").version(), 3);
    std::fs::write(&file, "version = 3").expect("written");
    let bad = Router::open(&file).expect_err("no range");
    assert!(bad.code == Code::InvalidConfig && bad.message.contains("routes.toml"), "{bad}");
}

#[test]
fn a_mill_keeps_tables_by_compare_and_set_of_their_version() {
    let mill = Mill::open("memory:").expect("a mill");
    let missing = mill.router("orders").expect_err("no table");
    assert_eq!(missing.code, Code::StoreRefused);
    assert!(missing.message.contains("route put 'orders' FILE --yes"), "{missing}");
    let put = |version, change| mill.put_routes("orders", &table(version), change);
    let dry = put(3, Change::DryRun).expect("an answer");
    assert_eq!((dry.before, dry.after), (None, 3));
    assert!(mill.router("orders").is_err(), "nothing was written");
    assert_eq!(put(3, Change::Apply).expect("stored").before, None);
    let again = put(3, Change::Apply).expect("the same table again");
    assert_eq!((again.before, again.after), (Some(3), 3));
    let router = mill.router("orders").expect("a router");
    assert_eq!(router.version(), 3);
    assert!(router.age().is_some_and(|age| age < Duration::from_secs(60)));
    assert_eq!(put(4, Change::Apply).expect("stored").before, Some(3));
    for (text, says) in [
        (table(2), "has version 4"),
        (table(4).replace("4-", "x-"), "has version 4"),
        ("version = 9".to_owned(), "no range"),
    ] {
        let error = mill.put_routes("orders", &text, Change::Apply).expect_err(says);
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.message.contains(says), "{error}");
    }
    assert_eq!(mill.router("orders").expect("the same router").version(), router.version());
    assert!(mill.metrics().contains("keymill_router_version{router=\"orders\"} "), "{}", mill.metrics());
    assert!(mill.metrics().contains("keymill_router_age_seconds{router=\"orders\"} "), "{}", mill.metrics());
    mill.close();
    assert_eq!(mill.router("orders").expect_err("closed").code, Code::Closed);
    assert_eq!(router.route(1).expect("a router goes on").shard, format!("{}-9999", router.version()));
}

#[test]
#[cfg_attr(miri, ignore = "files")]
fn several_stores_have_a_copy_each_and_the_newest_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = |name: &str| format!("sqlite:{}?durability=warn", folder.path().join(name).display());
    let config = folder.path().join("keymill.toml");
    std::fs::write(&config, format!("stores = [\"{}\", \"{}\"]\n", store("a.db"), store("b.db")))
        .expect("written");
    let open = |config: &str| Mill::open(config).expect("a mill");
    let (both, second) = (open(&format!("file:{}", config.display())), open(&store("b.db")));
    let put = |mill: &Mill, version| {
        mill.put_routes("orders", &table(version), Change::Apply).map(|put| put.before)
    };
    // A look from outside: a router would be refused beside those that list other stores.
    let version = |mill: &Mill| mill.stored_routers().expect("an answer").remove(0).version;
    assert_eq!(put(&both, 3), Ok(None));
    assert_eq!(version(&second), 3);
    // The first store misses a change.
    assert_eq!(put(&second, 4), Ok(Some(3)));
    assert_eq!(version(&both), 4);
    assert_eq!(put(&both, 4), Ok(Some(4)), "the same table, which one store lacks");
    assert_eq!(version(&open(&store("a.db"))), 4);
    assert_eq!(put(&both, 5), Ok(Some(4)));
    for name in ["a.db", "b.db"] {
        assert_eq!(version(&open(&store(name))), 5, "{name}");
    }
    assert_eq!(put(&both, 4).expect_err("an older one").code, Code::InvalidConfig);
    assert_eq!(both.router("orders").expect("a router").version(), 5);
    let refused = second.router("orders").expect_err("it lists one of the stores");
    assert_eq!(refused.code, Code::StoreRefused, "{refused}");
}

#[test]
#[cfg_attr(miri, ignore = "seconds of the clock")]
fn a_keeper_that_is_never_idle_reads_a_table_while_a_range_moves() {
    const REQUESTS: usize = 200;
    // Each reservation takes 40 ms, and eight sources want one for each id.
    let script = vec!["silent:40ms,ack"; REQUESTS].join(",");
    let operator = Mill::open("memory:busy-routes").expect("a mill");
    let moving =
        |version| format!("version = {version}\n[[range]]\nupper = 65535\nshard = \"a\"\nto = \"b\"\n");
    operator.put_routes("orders", &moving(1), Change::Apply).expect("stored");
    let mill = Mill::open(&format!("memory:busy-routes?script={script}")).expect("a mill");
    let router = mill.router("orders").expect("a router");
    let ids = AtomicUsize::new(0);
    let seen_after = thread::scope(|scope| {
        for n in 0..8 {
            let source =
                mill.source(&format!("segment:s{n}?min_step=1&max_step=1&deadline=5m")).expect("a source");
            let ids = &ids;
            scope.spawn(move || {
                // ordering: Relaxed — a count.
                while ids.fetch_add(1, Ordering::Relaxed) < REQUESTS {
                    source.next().expect("an id");
                }
            });
        }
        operator.put_routes("orders", &moving(2), Change::Apply).expect("stored");
        loop {
            // ordering: Relaxed — a count.
            let issued = ids.load(Ordering::Relaxed);
            if router.version() == 2 || issued >= REQUESTS {
                break issued;
            }
            thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(seen_after < REQUESTS, "the router had version 1 for as long as the keeper had work");
}

#[test]
fn a_router_that_follows_a_store_is_given_no_other_table() {
    let mill = Mill::open("memory:router-loaded").expect("a mill");
    mill.put_routes("orders", &table(1), Change::Apply).expect("stored");
    let router = mill.router("orders").expect("a router");
    let refused = router.load(&table(9)).expect_err("the store has version 1");
    assert!(
        refused.code == Code::InvalidArgument && refused.message.contains("keymill route put"),
        "{refused}"
    );
    assert_eq!(router.version(), 1);
}
