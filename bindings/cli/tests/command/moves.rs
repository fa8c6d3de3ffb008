//! `keymill move`: a shard is split by the commands of the page, and what they refuse.

use crate::common::{Home, Ran};

const TABLE: &str = "version = 1\nsettle = \"100ms\"\n[[range]]\nupper = 65535\nshard = \"s1\"\n";

/// A store with a table, and a plan that gives half of its genes to `s2`.
fn planned() -> Home {
    let home = Home::new();
    home.file("routes.toml", TABLE);
    home.run(&["route", "put", "orders", "routes.toml", "--yes"]).done();
    let plan = home
        .run(&["move", "plan", "orders", "--shards", "s1,s2", "--out", "plan.toml", "--key", "no"])
        .done();
    assert!(plan.contains("share: 50.00 %\n"), "{plan}");
    assert!(plan.contains("ids: no BETWEEN 4611686018427387904 AND 9223372036854775807\n"), "{plan}");
    home
}

fn step(home: &Home, words: &[&str]) -> Ran {
    home.run(&[&["move"], words].concat())
}

fn phase(home: &Home) -> String {
    let status = step(home, &["status", "orders", "--json"]).json();
    status["moving"]["phase"].as_str().unwrap_or("none").to_owned()
}

fn began(home: &Home) -> String {
    let said = step(home, &["verify", "orders", "--wait", "--yes", "--json"]).json();
    said["began"].as_str().expect("a time").to_owned()
}

#[test]
fn a_shard_is_split_by_the_commands_of_the_page() {
    let home = planned();
    let start = ["start", "orders", "--plan", "plan.toml", "--watch", "0s", "--steps", "5,50,100"];
    let dry = step(&home, &start);
    assert!(dry.out.contains("phase: mirror\n") && dry.err.contains("nothing was written"), "{dry:?}");
    assert!(!dry.out.contains("stored: ") && dry.err.contains("this is what would be"), "{dry:?}");
    assert_eq!(phase(&home), "none");
    step(&home, &[&start[..], &["--yes"]].concat()).done();
    let status = step(&home, &["status", "orders"]).done();
    assert!(status.contains("by: number\n") && status.contains("stored: "), "{status}");
    let route = home.run(&["route", "9223372036854775807", "orders"]).done();
    assert!(route.contains("read: s1\nwrite: s1\nmirror: s2\n"), "{route}");
    let refused = step(&home, &["next", "orders", "--yes"]).refused("INVALID_CONFIG");
    assert!(refused.contains("keymill move verify"), "{refused}");
    let began = began(&home);
    step(&home, &["verify", "orders", "--began", &began, "--yes"]).done();
    let mut phases = Vec::new();
    let compare = || {
        let began = self::began(&home);
        step(&home, &["verify", "orders", "--began", &began, "--yes"]).done();
    };
    for verb in ["next", "next", "back", "verify", "next", "next", "next"] {
        if verb == "verify" {
            compare();
            continue;
        }
        step(&home, &[verb, "orders", "--wait", "--yes"]).done();
        phases.push(phase(&home));
    }
    let each = ["cut over 5 %", "cut over 50 %", "mirror", "cut over 5 %", "cut over 50 %", "cut over 100 %"];
    assert_eq!(phases, each);
    let refused = step(&home, &["next", "orders", "--yes"]).refused("INVALID_CONFIG");
    assert!(refused.contains("keymill move finish"), "{refused}");
    let refused = step(&home, &["finish", "orders", "--wait", "--yes"]).refused("INVALID_CONFIG");
    assert!(
        refused.contains("since all ids are read from the new shard; run `keymill move verify`"),
        "{refused}"
    );
    compare();
    let dry = step(&home, &["finish", "orders", "--wait"]).done();
    assert!(dry.contains("phase: pausing\n"), "{dry}");
    let finished = step(&home, &["finish", "orders", "--wait", "--yes"]).done();
    assert!(finished.contains("phase: nothing moves\n"), "{finished}");
    // What the store has, as it can be put again.
    let table = home.run(&["route", "get", "orders"]).done();
    home.file("stored.toml", &table);
    let again = home.run(&["route", "put", "orders", "stored.toml", "--yes"]).done();
    assert!(again.contains("before: 16\nafter: 16\n"), "{again}");
    let route = home.run(&["route", "9223372036854775807", "orders"]).done();
    assert!(route.contains("shard: s2\nread: s2\nwrite: s2\nversion: 16\n"), "{route}");
    // Typed again, nothing is left to do.
    step(&home, &["finish", "orders", "--yes"]).refused("INVALID_CONFIG");
    step(&home, &[&start[..], &["--yes"]].concat()).refused("INVALID_CONFIG");
}

/// Nothing waits any more, and `keymill move back` would end the move.
#[test]
fn a_finish_from_whose_pause_another_operator_went_back_does_not_say_that_writes_wait() {
    let home = planned();
    let start = ["start", "orders", "--plan", "plan.toml", "--watch", "0s", "--steps", "100", "--yes"];
    step(&home, &start).done();
    for _ in 0..2 {
        step(&home, &["verify", "orders", "--began", &began(&home), "--yes"]).done();
        if phase(&home) == "mirror" {
            step(&home, &["next", "orders", "--wait", "--yes"]).done();
        }
    }
    // A program that lives and does not follow.
    let store = format!("sqlite:{}", home.path().join("keymill.db").display());
    let mill = keymill::Mill::open(&store).unwrap();
    let _router = mill.router("orders").unwrap();
    let file = rusqlite::Connection::open(home.path().join("keymill.db")).unwrap();
    file.busy_timeout(std::time::Duration::from_secs(60)).unwrap();
    let stands_still = "INSERT INTO keymill_reader SELECT pool, slot / 2, token, mark, ends_at + 60000, state, source, process, layout, stores, store FROM keymill_reader WHERE state = 'leased'";
    assert_eq!(file.execute(stands_still, []).unwrap(), 1);
    let mut finish = home.command(&["move", "finish", "orders", "--wait", "--yes"]);
    let finish = finish.stderr(std::process::Stdio::piped()).spawn().unwrap();
    while phase(&home) != "pausing" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let table = "version = 90\n[[range]]\nupper = 65535\nshard = \"s1\"\nto = \"s2\"\n";
    home.file("back.toml", table);
    home.run(&["route", "put", "orders", "back.toml", "--yes"]).done();
    let ran = Ran::from(finish.wait_with_output().unwrap());
    let says = "STORE_REFUSED: another operator has made a step of router `orders` meanwhile, from `pausing` to `mirror`";
    assert!(ran.code == Some(1) && ran.err.contains(says), "{ran:?}");
    assert!(!ran.err.contains("keymill move back"), "{ran:?}");
}

#[test]
fn a_hot_shard_is_split_by_the_ids_that_were_reserved() {
    let home = planned();
    // All ids are in two of 64 counters, those of genes 61763 and 28748.
    home.run(&["take", "business:order?counters=64", "1000", "--key", "42"]).ids();
    home.run(&["take", "business:order", "1000", "--key", "7"]).ids();
    let plan =
        step(&home, &["plan", "orders", "--shards", "s1,s2", "--hot", "business:order", "--json"]).json();
    let share = plan["share"].as_f64().expect("a share");
    assert!((share - 0.5).abs() < 0.05, "{plan}");
    let moved = |gene: u64| {
        let moves = plan["moves"].as_array().expect("moves").iter();
        moves
            .filter(|planned| {
                planned["first"].as_u64() <= Some(gene) && Some(gene) <= planned["last"].as_u64()
            })
            .count()
    };
    let genes = ["42", "7"].map(|key| {
        let said = home.run(&["gene", "--key", key]).done();
        said.trim().rsplit(' ').next().expect("a gene").parse::<u64>().expect("a number")
    });
    assert_eq!(moved(genes[0]) + moved(genes[1]), 1, "one of the two buyers moves: {plan}");
}

#[test]
fn a_step_waits_for_its_time_and_says_how_long() {
    let home = planned();
    step(&home, &["start", "orders", "--plan", "plan.toml", "--watch", "1h", "--yes"]).done();
    let began = began(&home);
    step(&home, &["verify", "orders", "--began", &began, "--yes"]).done();
    step(&home, &["next", "orders", "--yes"]).done();
    let refused = step(&home, &["next", "orders", "--yes"]).refused("NOT_READY");
    assert!(refused.contains("cut over 5 % is watched for another"), "{refused}");
    step(&home, &["next", "orders", "--watch", "0s", "--yes"]).done();
    assert_eq!(phase(&home), "cut over 25 %");
}

#[test]
fn a_shard_that_is_new_is_told_as_one() {
    let home = planned();
    let plan = step(&home, &["plan", "orders", "--shards", "s1,S1"]);
    assert_eq!(plan.err, "keymill: `S1` is a new shard: no range of the table has this name\n", "{plan:?}");
    let known = step(&home, &["plan", "orders", "--shards", "s1"]);
    assert!(!known.err.contains("new shard"), "{known:?}");
}

#[test]
fn a_move_by_genes_is_told_as_one_and_goes_back() {
    let home = planned();
    let start = ["start", "orders", "--plan", "plan.toml", "--watch", "0s", "--by", "gene", "--yes"];
    step(&home, &start).done();
    let status = step(&home, &["status", "orders"]).done();
    assert!(status.contains("by: gene\n"), "{status}");
    let back = step(&home, &["back", "orders", "--yes"]).done();
    assert!(back.contains("phase: nothing moves\n"), "{back}");
}

#[test]
fn what_a_move_cannot_be_told_is_refused() {
    let home = planned();
    for (words, code, says) in [
        (&["status", "none"][..], "STORE_REFUSED", "no route table `none`"),
        (
            &["start", "orders", "--plan", "none.toml"],
            "INVALID_ARGUMENT",
            "`none.toml`: reading the plan failed",
        ),
        (&["start", "orders", "--plan", "routes.toml"], "INVALID_CONFIG", "this is no plan of moves"),
        (&["start", "orders", "--plan", "plan.toml", "--move", "2"], "INVALID_ARGUMENT", "no move 2"),
        (
            &["start", "orders", "--plan", "plan.toml", "--steps", "50,25,100"],
            "INVALID_CONFIG",
            "percentages",
        ),
        (&["start", "orders", "--plan", "plan.toml", "--watch", "8d"], "INVALID_ARGUMENT", "7 days"),
        (&["plan", "orders", "--shards", "s1,s1"], "INVALID_ARGUMENT", "named twice"),
        (&["plan", "orders", "--shards", "s1=0"], "INVALID_ARGUMENT", "weight 0"),
        (&["plan", "orders", "--shards", "s1", "--hot", "segment:x"], "INVALID_ARGUMENT", "segment:x"),
        (&["next", "orders", "--gone", "7"], "INVALID_ARGUMENT", "no reader has the number `7`"),
        (&["next", "orders"], "INVALID_CONFIG", "keymill move start"),
        (&["back", "orders"], "INVALID_CONFIG", "keymill move start"),
        (&["finish", "orders"], "INVALID_CONFIG", "keymill move start"),
        (&["verify", "orders"], "INVALID_CONFIG", "keymill move start"),
    ] {
        let message = step(&home, words).refused(code);
        assert!(message.contains(says), "{words:?}: {message}");
    }
    for words in
        [&["start", "orders"][..], &["plan", "orders"], &["next"], &["next", "orders", "--watch", "x"]]
    {
        assert_eq!(step(&home, words).code, Some(2), "{words:?}");
    }
    // A table that changed since has no use for the plan.
    home.file("other.toml", &TABLE.replace("version = 1", "version = 2").replace("s1", "s3"));
    home.run(&["route", "put", "orders", "other.toml", "--yes"]).done();
    let message = step(&home, &["start", "orders", "--plan", "plan.toml", "--yes"]).refused("INVALID_CONFIG");
    assert!(message.contains("make a new plan"), "{message}");
}
