//! `keymill move copy`, `verify` and `clean` on two databases of a MariaDB and of a PostgreSQL, which `KEYMILL_TEST_MYSQL` and
//! `KEYMILL_TEST_POSTGRES` name.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Home, Ran};
use crate::restore::Server;

/// A router of which half moves from `s1` to `s2`, and the databases of both.
struct Shop {
    home: Home,
    old: Server,
    new: Server,
}

const ORDERS: &str =
    "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, version BIGINT NOT NULL, buyer VARCHAR(40))";

impl Shop {
    fn new(old: Server, new: Server, table: &str) -> Shop {
        for server in [&old, &new] {
            server.say(table);
        }
        Shop { home: Home::new(), old, new }.planned(1, "100ms")
    }

    /// Stores a route table with this `settle`, and plans the move.
    fn planned(self, version: u32, settle: &str) -> Shop {
        let table =
            format!("version = {version}\nsettle = \"{settle}\"\n[[range]]\nupper = 65535\nshard = \"s1\"\n");
        self.home.file("routes.toml", &table);
        self.home.run(&["route", "put", "orders", "routes.toml", "--yes"]).done();
        self.home.run(&["move", "plan", "orders", "--shards", "s1,s2", "--out", "plan.toml"]).done();
        self
    }

    /// Another `settle`, before the move begins.
    fn settling(self, settle: &str) -> Shop {
        self.planned(2, settle)
    }

    fn mariadb(name: &str, table: &str) -> Shop {
        Shop::new(Server::mariadb(&format!("{name}_a")), Server::mariadb(&format!("{name}_b")), table)
    }

    fn postgres(name: &str, table: &str) -> Shop {
        Shop::new(Server::postgres(&format!("{name}_a")), Server::postgres(&format!("{name}_b")), table)
    }

    fn started(self) -> Shop {
        self.home.run(&["move", "start", "orders", "--plan", "plan.toml", "--watch", "0s", "--yes"]).done();
        self
    }

    /// As many rows in the range that moves, and as many that stay.
    fn filled(self, rows: u32) -> Shop {
        let from = match &self.old {
            // MySQL has no sequences.
            Server::MariaDb { .. } => {
                let digits = "(SELECT 0 AS d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
                let number = "(a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 1)";
                format!(
                    "{number} AS n FROM {digits} a, {digits} b, {digits} c, {digits} e WHERE {number} <= {rows}"
                )
            }
            Server::Postgres { .. } => format!("n FROM pg_catalog.generate_series(1, {rows}) n"),
        };
        for first in [0, 32_768] {
            self.old.say(&format!(
                "INSERT INTO t_order (order_id, version, buyer) SELECT ({first} + n % 1000) * 140737488355328 + n, 1, CONCAT('buyer ', n) FROM (SELECT {from}) rows_of_it"
            ));
        }
        self
    }

    fn words(&self, verb: &str, more: &[&str]) -> Vec<String> {
        let (from, to) = (format!("s1={}", self.old.url()), format!("s2={}", self.new.url()));
        let mut words: Vec<String> =
            ["move", verb, "orders", "--from", &from, "--to", &to].map(str::to_owned).into();
        let table = ["--table", "t_order", "--key", "order_id"];
        words.extend(
            if more.contains(&"--table") { &[][..] } else { &table[..] }
                .iter()
                .map(|word| (*word).to_owned()),
        );
        words.extend(more.iter().map(|word| (*word).to_owned()));
        words
    }

    fn run(&self, verb: &str, more: &[&str]) -> Ran {
        let words = self.words(verb, more);
        self.home.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs on; the caller ends or awaits it.
    fn spawn(&self, verb: &str, more: &[&str]) -> Child {
        let words = self.words(verb, more);
        let mut command = self.home.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// `rows copied`, `rows alike before`.
    fn copied(&self, more: &[&str]) -> (u64, u64) {
        let said = self.run("copy", &[&["--yes", "--json"], more].concat()).json();
        let number = |name: &str| said[0][name].as_u64().unwrap();
        (number("rows_copied"), number("rows_alike_before"))
    }

    /// The rows of the range that moves, in each database.
    fn moving(&self, columns: &str) -> [String; 2] {
        let question =
            format!("SELECT {columns} FROM t_order WHERE order_id >= 4611686018427387904 ORDER BY order_id");
        [&self.old, &self.new].map(|server| {
            let mut rows: Vec<_> = server.say(&question).lines().map(str::to_owned).collect();
            rows.sort();
            rows.join("\n")
        })
    }

    #[track_caller]
    fn assert_alike(&self) {
        let [old, new] = self.moving("order_id, version, buyer");
        assert_eq!(old, new);
    }
}

fn count(server: &Server) -> u32 {
    server.say("SELECT COUNT(*) FROM t_order").parse().unwrap()
}

/// The last line of a verb that was refused once it had begun.
#[track_caller]
fn refused_late(ran: &Ran) -> String {
    let last = ran.err.lines().last().unwrap_or_default().to_owned();
    assert!(ran.code == Some(1) && last.starts_with("keymill: STORE_REFUSED: "), "{ran:?}");
    last
}

/// Waits for a condition.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < give_up, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The n-th id of the range that moves, as [`Shop::filled`] makes them.
fn id(n: u64) -> u64 {
    (32_768 + n % 1000) * (1 << 47) + n
}

#[test]
fn rows_are_copied_compared_cut_over_and_removed_on_mariadb() {
    whole_move(&Shop::mariadb("rows_whole", ORDERS).filled(9000));
}

#[test]
fn rows_are_copied_compared_cut_over_and_removed_on_postgresql() {
    whole_move(&Shop::postgres("rows_whole", ORDERS).filled(9000));
}

fn whole_move(shop: &Shop) {
    let refused = shop.run("copy", &["--yes"]).refused("INVALID_CONFIG");
    assert!(refused.contains("keymill move start"), "{refused}");
    let early = shop.run("copy", &[]);
    assert!(early.out.contains("rows to copy: 0\n") && early.err.contains("no range moves yet"), "{early:?}");
    shop.new.say("ALTER TABLE t_order ADD COLUMN more INT");
    let unlike = shop.run("copy", &[]).refused("STORE_REFUSED");
    assert!(unlike.contains("column `more` of `t_order`"), "{unlike}");
    shop.new.say("ALTER TABLE t_order DROP COLUMN more");
    let words = ["move", "copy", "orders", "--table", "t_order", "--key", "order_id"];
    let (from, to) = (shop.old.url(), shop.new.url());
    let unnamed = shop.home.run(&[&words[..], &["--from", &from, "--to", &to]].concat());
    assert!(unnamed.refused("INVALID_ARGUMENT").contains("the URL of --from"));
    shop.home.run(&["move", "start", "orders", "--plan", "plan.toml", "--watch", "0s", "--yes"]).done();
    let dry = shop.run("copy", &[]);
    assert!(dry.out.contains("rows to copy: 9000\n") && dry.err.contains("--yes writes it"), "{dry:?}");
    assert_eq!(count(&shop.new), 0);
    assert_eq!(shop.copied(&["--rows-per-second", "1000000"]), (9000, 0));
    shop.assert_alike();
    assert_eq!(count(&shop.new), 9000, "only the range that moves");
    assert_eq!(shop.copied(&["--rows-per-second", "1000000"]), (0, 9000), "typed twice");
    // Only looked at: the first ids may not be cut over.
    let dry = shop.run("verify", &[]).done();
    assert!(dry.contains("rows: 9000\nrepaired: 0\ndiffer: 0\n"), "{dry}");
    shop.home.run(&["move", "next", "orders", "--yes"]).refused("INVALID_CONFIG");
    let verified = shop.run("verify", &["--wait", "--yes"]).done();
    assert!(verified.contains("verified: yes\n"), "{verified}");
    let early = shop.run("clean", &["--older-than", "0s", "--yes"]).refused("INVALID_CONFIG");
    assert!(early.contains("no finished move"), "{early}");
    for _ in 0..4 {
        shop.home.run(&["move", "next", "orders", "--wait", "--yes"]).done();
    }
    let early = shop.home.run(&["move", "finish", "orders", "--wait", "--yes"]).refused("INVALID_CONFIG");
    assert!(early.contains("since all ids are read from the new shard"), "{early}");
    shop.run("verify", &["--wait", "--yes"]).done();
    shop.home.run(&["move", "finish", "orders", "--wait", "--yes"]).done();
    shop.run("copy", &["--yes"]).refused("INVALID_CONFIG");
    cleaned(shop);
}

/// Removes the old shard's rows, and refuses whatever could lose one.
fn cleaned(shop: &Shop) {
    let early = shop.run("clean", &["--yes"]).refused("NOT_READY");
    assert!(early.contains("--older-than"), "{early}");
    let now = ["--older-than", "0s", "--yes"];
    // A row that only the old shard has, and one that is newer there.
    let one = id(7);
    let [lacks, differs] =
        ["does not have these rows of `t_order`", "these rows of `t_order` with other values"];
    for (says, broken, mended) in [
        (
            lacks,
            format!("INSERT INTO t_order (order_id, version) VALUES ({}, 1)", id(5) + 500_000),
            format!("DELETE FROM t_order WHERE order_id = {}", id(5) + 500_000),
        ),
        (
            differs,
            format!("UPDATE t_order SET version = 9 WHERE order_id = {one}"),
            format!("UPDATE t_order SET version = 1 WHERE order_id = {one}"),
        ),
        (
            differs,
            format!("UPDATE t_order SET buyer = 'another' WHERE order_id = {one}"),
            format!("UPDATE t_order SET buyer = 'buyer 7' WHERE order_id = {one}"),
        ),
    ] {
        shop.old.say(&broken);
        let refused = shop.run("clean", &now).refused("STORE_REFUSED");
        assert!(refused.contains(says), "{refused}");
        assert!(count(&shop.old) >= 18_000, "nothing was removed: {broken}");
        shop.old.say(&mended);
    }
    // The new shard's row went on since.
    shop.new.say(&format!("UPDATE t_order SET version = 2 WHERE order_id = {one}"));
    let refused = shop.run("clean", &now).refused("STORE_REFUSED");
    assert!(refused.contains(differs) && refused.contains("`--changed-too`"), "{refused}");
    let dry = shop.run("clean", &["--older-than", "0s", "--changed-too"]);
    assert!(dry.out.contains("rows to remove: 9000\n") && dry.err.contains("nothing was removed"), "{dry:?}");
    // Without the shards' names, with others, and with both mixed up.
    let (old, new) = (shop.old.url(), shop.new.url());
    for (from, to) in [
        (old.clone(), new.clone()),
        (format!("s3={old}"), format!("s2={new}")),
        (format!("s2={new}"), format!("s1={old}")),
    ] {
        let words = [
            "move", "clean", "orders", "--table", "t_order", "--key", "order_id", "--from", &from, "--to",
            &to,
        ];
        let refused = shop.home.run(&[&words[..], &now].concat()).refused("INVALID_ARGUMENT");
        assert!(refused.contains("--from 's1=URL' and --to 's2=URL'"), "{refused}");
    }
    // The new shard has lost its rows.
    for sql in ["CREATE TABLE kept AS SELECT * FROM t_order", "DELETE FROM t_order WHERE order_id % 3 <> 0"] {
        shop.new.say(sql);
    }
    let lost = shop.run("clean", &[&now[..], &["--changed-too"]].concat()).refused("STORE_REFUSED");
    assert!(lost.contains("of 9000 rows of `t_order`: has it lost them?"), "{lost}");
    for sql in ["DELETE FROM t_order", "INSERT INTO t_order SELECT * FROM kept", "DROP TABLE kept"] {
        shop.new.say(sql);
    }
    // The right names in front of the wrong databases, of which the old one lacks nothing.
    shop.new.say(&format!("UPDATE t_order SET version = 1 WHERE order_id = {one}"));
    let (from, to) = (format!("s1={new}"), format!("s2={old}"));
    let words =
        ["move", "clean", "orders", "--table", "t_order", "--key", "order_id", "--from", &from, "--to", &to];
    let refused = shop.home.run(&[&words[..], &now].concat()).refused("STORE_REFUSED");
    assert!(refused.contains("are the databases mixed up?"), "{refused}");
    assert_eq!(count(&shop.new), 9000, "nothing was removed");
    let done = shop.run("clean", &[&now[..], &["--rows-per-second", "1000000"]].concat()).done();
    assert!(done.contains("rows removed: 9000\n"), "{done}");
    assert_eq!((count(&shop.old), count(&shop.new)), (9000, 9000));
    let done = shop.run("clean", &now).done();
    assert!(done.contains("rows removed: 0\n"), "typed twice: {done}");
}

#[test]
fn a_copy_that_is_killed_goes_on_where_it_was() {
    for shop in [Shop::mariadb("rows_kill", ORDERS), Shop::postgres("rows_kill", ORDERS)] {
        let shop = shop.filled(6000).started();
        // A thousand rows are a chunk, and the next one comes a second later.
        let mut copy = shop.spawn("copy", &["--yes", "--rows-per-second", "1000"]);
        until("a chunk", || count(&shop.new) >= 1000);
        copy.kill().unwrap();
        copy.wait().unwrap();
        let before = u64::from(count(&shop.new));
        assert!(before < 6000, "killed half-way");
        let (copied, alike) = shop.copied(&["--rows-per-second", "1500"]);
        assert_eq!(copied + alike, 6000);
        // A chunk of the second run may be half of the first run's and half not.
        assert!(alike + 1500 > before, "{alike} of {before}");
        assert!(alike >= before, "the half that was there is alike too: {alike} of {before}");
        shop.assert_alike();
    }
}

/// The server goes on with a statement that waits for a lock when its sender is dead, and the locks of the old shard are gone by then.
#[test]
fn a_copy_that_is_killed_while_its_statement_waits_writes_nothing_afterwards() {
    for (shop, waiting) in [
        (
            Shop::mariadb("rows_waits", ORDERS),
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Update' AND db = DATABASE()",
        ),
        (
            Shop::postgres("rows_waits", ORDERS),
            "SELECT COUNT(*) FROM pg_catalog.pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_catalog.pg_locks WHERE relation = 't_order'::regclass)",
        ),
    ] {
        // A statement waits for a lock for half of it.
        let shop = shop.settling("20s").filled(10).started();
        shop.new.say(&format!("INSERT INTO t_order VALUES ({}, 1, 'held')", id(10)));
        let held = format!("BEGIN; SELECT order_id FROM t_order WHERE order_id = {} FOR UPDATE;", id(10));
        let mut holder = shop.new.session(&held);
        let mut copy = shop.spawn("copy", &["--wait", "--yes"]);
        until("a statement that waits", || shop.new.say(waiting) == "1");
        copy.kill().unwrap();
        copy.wait().unwrap();
        // A program may delete what the copy has read.
        shop.old.say("DELETE FROM t_order WHERE version = 1");
        holder.kill().unwrap();
        holder.wait().unwrap();
        // Its locks go when it is over.
        let limit = match &shop.new {
            Server::MariaDb { .. } => "SET innodb_lock_wait_timeout = 60",
            Server::Postgres { .. } => "SET lock_timeout = '60s'",
        };
        shop.new.say(&format!("{limit}; UPDATE t_order SET buyer = 'new' WHERE order_id = {}", id(10)));
        until("the end of the statement", || shop.new.say(waiting) == "0");
        assert_eq!(count(&shop.new), 1, "deleted rows are back");
    }
}

/// Orders with a buyer of any length.
const LONG: &str = "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, version BIGINT NOT NULL, buyer TEXT)";

#[test]
fn a_copy_that_stands_still_in_a_chunk_holds_its_locks_for_seconds_on_mariadb() {
    stands_still(Shop::mariadb("rows_stopped", LONG), 10);
}

#[test]
fn a_copy_that_stands_still_in_a_chunk_holds_its_locks_for_seconds_on_postgresql() {
    stands_still(Shop::postgres("rows_stopped", LONG), 10);
}

#[test]
fn a_copy_that_stands_still_in_a_chunk_of_long_rows_holds_its_locks_for_seconds_on_mariadb() {
    stands_still(Shop::mariadb("rows_stopped_long", LONG), 6000);
}

#[test]
fn a_copy_that_stands_still_in_a_chunk_of_long_rows_holds_its_locks_for_seconds_on_postgresql() {
    stands_still(Shop::postgres("rows_stopped_long", LONG), 6000);
}

/// Ctrl-Z, or a laptop that sleeps: the server ends the transaction of a client that is silent. It has sent the whole of a chunk of short
/// rows and waits for the client; of long rows, it waits until it can send the rest.
fn stands_still(shop: Shop, length: usize) {
    // A statement waits for a lock for half of it.
    let shop = shop.settling("2s").filled(3000).started();
    shop.old.say(&format!("UPDATE t_order SET buyer = REPEAT('x', {length})"));
    let is_mariadb = matches!(shop.old, Server::MariaDb { .. });
    let is_locked = |server: &Server, n: u64| {
        let look =
            format!("BEGIN; SELECT order_id FROM t_order WHERE order_id = {} FOR UPDATE NOWAIT", id(n));
        server.try_say(&look).is_err()
    };
    // The first row of the range: the copy stands still where it waits for this one.
    shop.new.say(&format!("INSERT INTO t_order VALUES ({}, 1, 'held')", id(1000)));
    let held = format!("BEGIN; SELECT order_id FROM t_order WHERE order_id = {} FOR UPDATE;", id(1000));
    let mut holder = shop.new.session(&held);
    until("a row that is held", || is_locked(&shop.new, 1000));
    let copy = shop.spawn("copy", &["--wait", "--yes"]);
    let signal = |signal| {
        // SAFETY: sends a signal to a child that this test has started and not yet waited for.
        assert_eq!(unsafe { libc::kill(copy.id().cast_signed(), signal) }, 0);
    };
    // It is stopped only once it has locks: on a busy machine it would not come as far between two stops.
    until("a copy that stands still with locks", || {
        is_locked(&shop.old, 1000) && {
            signal(libc::SIGSTOP);
            is_locked(&shop.old, 1000) || {
                signal(libc::SIGCONT);
                false
            }
        }
    });
    holder.kill().unwrap();
    holder.wait().unwrap();
    let limit = if is_mariadb { "SET innodb_lock_wait_timeout = 20" } else { "SET lock_timeout = '20s'" };
    shop.old.say(&format!("{limit}; UPDATE t_order SET buyer = 'new' WHERE order_id = {}", id(1000)));
    signal(libc::SIGCONT);
    assert!(copy.wait_with_output().unwrap().status.success());
    shop.assert_alike();
}

#[test]
fn a_row_that_is_there_becomes_what_it_is_in_the_old_shard_whatever_its_version() {
    for shop in [Shop::mariadb("rows_newer", ORDERS), Shop::postgres("rows_newer", ORDERS)] {
        let shop = shop.filled(100).started();
        for (n, version) in [(1, 0), (2, 1), (3, 2)] {
            shop.new.say(&format!("INSERT INTO t_order VALUES ({}, {version}, 'mirrored')", id(n)));
        }
        assert_eq!(shop.copied(&[]), (100, 0));
        let buyers =
            [1, 2, 3].map(|n| shop.new.say(&format!("SELECT buyer FROM t_order WHERE order_id = {}", id(n))));
        assert_eq!(buyers, ["buyer 1", "buyer 2", "buyer 3"]);
        shop.run("verify", &[]).done();
    }
}

/// A shop with items of its orders, which go with them, moved to its end.
fn with_items(shop: Shop) -> Shop {
    let shop = shop.filled(3).started();
    for server in [&shop.old, &shop.new] {
        server.say(
            "CREATE TABLE t_item (item_of BIGINT NOT NULL, line INT NOT NULL, version BIGINT NOT NULL, PRIMARY KEY (item_of, line), \
             FOREIGN KEY (item_of) REFERENCES t_order (order_id) ON DELETE CASCADE)",
        );
    }
    shop.old.say("INSERT INTO t_item SELECT order_id, 1, 1 FROM t_order");
    shop.run("copy", &[&ITEMS[..], &["--wait", "--yes"]].concat()).done();
    shop.run("verify", &[&ITEMS[..], &["--wait", "--yes"]].concat()).done();
    for _ in 0..4 {
        shop.home.run(&["move", "next", "orders", "--wait", "--yes"]).done();
    }
    let late = shop.run("copy", &[&ITEMS[..], &["--yes"]].concat()).refused("INVALID_CONFIG");
    assert!(late.contains("cut over already"), "{late}");
    shop.run("verify", &[&ITEMS[..], &["--wait", "--yes"]].concat()).done();
    shop.home.run(&["move", "finish", "orders", "--wait", "--yes"]).done();
    shop
}

const ITEMS: [&str; 8] = ["--table", "t_order", "--key", "order_id", "--table", "t_item", "--key", "item_of"];

#[test]
fn rows_that_go_with_others_are_compared_before_the_first_one_is_removed() {
    for shop in [Shop::mariadb("rows_items", ORDERS), Shop::postgres("rows_items", ORDERS)] {
        let shop = with_items(shop);
        let now = ["--older-than", "0s", "--yes"];
        let items = |server: &Server| server.say("SELECT COUNT(*) FROM t_item");
        let alone = shop.run("clean", &now).refused("STORE_REFUSED");
        assert!(alone.contains("t_item") && alone.contains("name that table too"), "{alone}");
        let turned = ["--table", "t_item", "--key", "item_of", "--table", "t_order", "--key", "order_id"];
        let turned = shop.run("clean", &[&turned[..], &now].concat()).refused("STORE_REFUSED");
        assert!(turned.contains("name that table behind this one"), "{turned}");
        // The new shard has lost an item, whose order it has.
        shop.new.say(&format!("DELETE FROM t_item WHERE item_of = {}", id(2)));
        let lost = shop.run("clean", &[&ITEMS[..], &now].concat()).refused("STORE_REFUSED");
        assert!(lost.contains("does not have these rows of `t_item`"), "{lost}");
        assert_eq!((count(&shop.old), items(&shop.old)), (6, "6".to_owned()), "nothing was removed");
        // A program has deleted it.
        let done = shop.run("clean", &[&ITEMS[..], &now, &["--changed-too"]].concat()).done();
        assert!(done.contains("table: t_order\nrows removed: 3\ntable: t_item\nrows removed: 3\n"), "{done}");
        assert_eq!((count(&shop.old), items(&shop.old)), (3, "3".to_owned()));
        assert_eq!((count(&shop.new), items(&shop.new)), (3, "2".to_owned()));
    }
}

#[test]
fn rows_that_only_the_new_shard_has_go_with_those_that_refer_to_them() {
    for rule in ["", " ON DELETE CASCADE"] {
        for shop in [Shop::mariadb("rows_orphans", ORDERS), Shop::postgres("rows_orphans", ORDERS)] {
            let shop = shop.filled(3).started();
            for server in [&shop.old, &shop.new] {
                server.say(&format!(
                    "CREATE TABLE t_item (item_of BIGINT NOT NULL, line INT NOT NULL, PRIMARY KEY (item_of, line), FOREIGN KEY (item_of) REFERENCES t_order (order_id){rule})"
                ));
            }
            shop.old.say("INSERT INTO t_item SELECT order_id, 1 FROM t_order");
            for verb in ["copy", "verify"] {
                let refused = shop.run(verb, &["--wait", "--yes"]).refused("STORE_REFUSED");
                assert!(refused.contains("t_item") && refused.contains("would stay behind"), "{refused}");
            }
            shop.run("copy", &[&ITEMS[..], &["--wait", "--yes"]].concat()).done();
            shop.new.say(&format!("INSERT INTO t_order (order_id, version) VALUES ({}, 1)", id(50)));
            for seq in [50, 2] {
                shop.new.say(&format!("INSERT INTO t_item VALUES ({}, 7)", id(seq)));
            }
            let repairs = ["--repair", "--delete", "--wait", "--yes"];
            let repaired = shop.run("verify", &[&ITEMS[..], &repairs].concat()).done();
            assert!(repaired.contains("repaired: 1\n") && repaired.contains("repaired: 2\n"), "{repaired}");
            assert_eq!((count(&shop.new), shop.new.say("SELECT COUNT(*) FROM t_item")), (3, "3".to_owned()));
        }
    }
}

#[test]
fn rows_that_row_security_hides_are_not_passed_over() {
    let shop = Shop::postgres("rows_hidden", ORDERS).filled(10).started();
    shop.old.say("ALTER TABLE t_order ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY");
    shop.old.say("CREATE POLICY few ON t_order USING (buyer < 'buyer 3')");
    for (verb, more) in [("copy", &["--yes"][..]), ("verify", &["--wait", "--yes"])] {
        let refused = shop.run(verb, more);
        assert!(refused.code == Some(1) && refused.err.contains("row-level security"), "{refused:?}");
    }
}

#[test]
fn a_row_that_is_longer_than_a_statement_is_named() {
    let table =
        "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, version BIGINT NOT NULL, picture LONGBLOB)";
    let shop = Shop::mariadb("rows_long", table).started();
    // As hexadecimal digits it is longer than a packet.
    shop.old.say(&format!(
        "INSERT INTO t_order VALUES ({}, 1, REPEAT(X'00', @@max_allowed_packet DIV 16 * 9))",
        id(1)
    ));
    let refused = shop.run("copy", &["--yes"]);
    let says = |word: &str| refused.err.contains(word);
    assert!(refused.code == Some(1) && says("STORE_REFUSED"), "{refused:?}");
    assert!(says(&format!("row {}", id(1))) && says("max_allowed_packet"), "{refused:?}");
}

#[test]
fn databases_that_are_mixed_up_behind_the_right_names_lose_no_row() {
    for shop in [Shop::mariadb("rows_mixed", ORDERS), Shop::postgres("rows_mixed", ORDERS)] {
        let shop = shop.filled(100).started();
        let (from, to) = (format!("s1={}", shop.new.url()), format!("s2={}", shop.old.url()));
        let mixed = |verb: &str, more: &[&str]| {
            let words = ["move", verb, "orders", "--from", &from, "--to", &to];
            shop.home.run(&[&words[..], &["--table", "t_order", "--key", "order_id"], more].concat())
        };
        for (verb, more) in
            [("copy", &["--yes"][..]), ("verify", &["--repair", "--delete", "--wait", "--yes"])]
        {
            let refused = mixed(verb, more).refused("STORE_REFUSED");
            assert!(
                refused.contains("are the databases mixed up?") && refused.contains("--to ("),
                "{refused}"
            );
        }
        // Without rows of genes that stay only their number tells.
        shop.old.say("DELETE FROM t_order WHERE order_id < 4611686018427387904");
        let refused = mixed("verify", &["--repair", "--delete", "--wait", "--yes"]).refused("STORE_REFUSED");
        assert!(refused.contains("more would be deleted"), "{refused}");
        assert_eq!((count(&shop.old), count(&shop.new)), (100, 0));
    }
}

#[test]
fn a_mirror_write_that_failed_is_found_and_repaired() {
    for shop in [Shop::mariadb("rows_mirror", ORDERS), Shop::postgres("rows_mirror", ORDERS)] {
        let shop = shop.filled(3000).started();
        shop.copied(&["--rows-per-second", "1000000"]);
        let extra = id(4000);
        for (server, sql) in [
            (&shop.old, format!("INSERT INTO t_order VALUES ({}, 1, 'lost')", id(3001))),
            (&shop.old, format!("UPDATE t_order SET version = 2, buyer = 'lost' WHERE order_id = {}", id(5))),
            (
                &shop.new,
                format!("UPDATE t_order SET version = 2, buyer = 'only here' WHERE order_id = {}", id(6)),
            ),
            (
                &shop.new,
                format!("UPDATE t_order SET buyer = 'a default of its own' WHERE order_id = {}", id(7)),
            ),
            (&shop.new, format!("INSERT INTO t_order VALUES ({extra}, 1, 'deleted in the old one')")),
        ] {
            server.say(&sql);
        }
        let found = shop.run("verify", &["--wait", "--yes"]);
        assert_eq!(found.code, Some(1), "{found:?}");
        assert!(found.err.contains("NOT_READY: 5 rows are not alike"), "{found:?}");
        for (n, how) in [
            (3001, "missing in the new shard"),
            (5, "other values in the new shard"),
            (6, "other values in the new shard"),
            (7, "other values in the new shard"),
            (4000, "only in the new shard"),
        ] {
            assert!(found.out.contains(&format!("row {}: {how}\n", id(n))), "{found:?}");
        }
        shop.home.run(&["move", "next", "orders", "--yes"]).refused("INVALID_CONFIG");
        let dry = shop.run("verify", &["--repair"]);
        assert!(dry.code == Some(1) && dry.out.contains("repaired: 0\ndiffer: 5\n"), "{dry:?}");
        let some = shop.run("verify", &["--repair", "--wait", "--yes"]);
        assert!(
            some.out.contains(&format!("repaired: 4\ndiffer: 1\nrow {extra}: only in the new shard")),
            "{some:?}"
        );
        let all = shop.run("verify", &["--repair", "--delete", "--wait", "--yes"]).done();
        assert!(all.contains("repaired: 1\ndiffer: 0\n") && all.contains("verified: yes"), "{all}");
        shop.assert_alike();
        for n in [6, 7] {
            let buyer = format!("SELECT buyer FROM t_order WHERE order_id = {}", id(n));
            assert_eq!(shop.old.say(&buyer), format!("buyer {n}"), "the old shard decides");
        }
    }
}

#[test]
fn the_old_shard_decides_after_the_cut_over_too_and_is_never_written_to() {
    let shop = Shop::mariadb("rows_counts", ORDERS).filled(300).started();
    shop.copied(&[]);
    shop.run("verify", &["--wait", "--yes"]).done();
    shop.home.run(&["move", "next", "orders", "--wait", "--yes"]).done();
    let between = shop.run("verify", &["--yes"]);
    assert!(between.err.contains("nothing is recorded between the first percentage"), "{between:?}");
    for _ in 0..3 {
        shop.home.run(&["move", "next", "orders", "--wait", "--yes"]).done();
    }
    let [before, _] = shop.moving("*");
    shop.new.say(&format!("UPDATE t_order SET buyer = 'new', version = 9 WHERE order_id = {}", id(7)));
    shop.new.say(&format!("INSERT INTO t_order VALUES ({}, 1, 'new')", id(900)));
    shop.new.say(&format!("DELETE FROM t_order WHERE order_id = {}", id(8)));
    let all = shop.run("verify", &["--repair", "--delete", "--wait", "--yes"]).done();
    assert!(all.contains("repaired: 3\ndiffer: 0\n") && all.contains("verified: yes\n"), "{all}");
    assert_eq!(shop.moving("*"), [before.clone(), before]);
}

#[test]
fn rows_that_are_written_during_the_copy_are_alike_after_it() {
    for shop in [Shop::mariadb("rows_during", ORDERS), Shop::postgres("rows_during", ORDERS)] {
        let shop = shop.filled(4000).started();
        let copy = shop.spawn("copy", &["--yes", "--rows-per-second", "2000"]);
        // As a program writes them: whole rows, to both shards.
        let upsert = |n: u64, version: u64| {
            let end = match &shop.new {
                Server::MariaDb { .. } => {
                    "ON DUPLICATE KEY UPDATE version = VALUES(version), buyer = VALUES(buyer)"
                }
                Server::Postgres { .. } => {
                    "ON CONFLICT (order_id) DO UPDATE SET version = EXCLUDED.version, buyer = EXCLUDED.buyer"
                }
            };
            let sql = format!("INSERT INTO t_order VALUES ({}, {version}, 'written {version}') {end}", id(n));
            shop.old.say(&sql);
            shop.new.say(&sql);
        };
        for n in 0..40 {
            upsert(n * 100 + 1, 2);
            upsert(4001 + n, 1);
        }
        let ran: Ran = copy.wait_with_output().unwrap().into();
        ran.done();
        shop.run("verify", &["--wait", "--yes"]).done();
        shop.assert_alike();
        assert!(
            shop.new
                .say(&format!("SELECT buyer FROM t_order WHERE order_id = {}", id(101)))
                .contains("written 2")
        );
    }
}

#[test]
fn a_range_without_rows_is_copied_compared_and_removed() {
    for shop in [Shop::mariadb("rows_none", ORDERS), Shop::postgres("rows_none", ORDERS)] {
        let shop = shop.started();
        assert_eq!(shop.copied(&[]), (0, 0));
        let none = shop.run("verify", &["--wait", "--yes"]).done();
        assert!(
            none.contains("rows: 0\nrepaired: 0\ndiffer: 0\n") && none.contains("verified: yes"),
            "{none}"
        );
    }
}

/// The types of a UUID and of an address. MariaDB has the first one since 10.7; MySQL has neither.
fn newer_types() -> (&'static str, &'static str) {
    let version = Server::mariadb("rows_version").say("SELECT VERSION()");
    let numbers: Vec<u32> = version.split(['.', '-']).map_while(|part| part.parse().ok()).collect();
    match version.contains("MariaDB") {
        true if numbers >= vec![10, 7] => ("UUID", "INET6"),
        true => ("CHAR(36)", "INET6"),
        false => ("CHAR(36)", "VARCHAR(45)"),
    }
}

#[test]
fn columns_of_any_type_and_name_are_copied_exactly_on_mariadb() {
    let (uuid, inet6) = newer_types();
    let table = &format!(
        "CREATE TABLE t_order (`a``b \"c\" ü` VARBINARY(300), order_id BIGINT UNSIGNED, line SMALLINT, version INT UNSIGNED NOT NULL, \
                 twice BIGINT AS (line * 2) STORED, virt BIGINT AS (line * 3) VIRTUAL, txt VARCHAR(200) CHARACTER SET latin1, sj VARCHAR(50) CHARACTER SET sjis, emoji TEXT CHARACTER SET utf8mb4, js JSON, \
                 dec_ DECIMAL(40,20), bit_ BIT(33), f FLOAT, d DOUBLE, at TIMESTAMP(6) NULL, dt DATETIME(3), day DATE, tm TIME(6), y YEAR, e ENUM('a','b''c'), s SET('x','y'), \
                 u {uuid}, ip {inet6}, g GEOMETRY, bl LONGBLOB, upd TIMESTAMP NULL ON UPDATE CURRENT_TIMESTAMP, `select` INT INVISIBLE, PRIMARY KEY (order_id, line))"
    );
    let shop = Shop::mariadb("rows_types", table).started();
    let (key, bytes) = (id(1), (0..=255_u8).fold(String::new(), |all, byte| format!("{all}{byte:02x}")));
    let row = |line: i32, values: &str| {
        format!(
            "INSERT INTO t_order (order_id, line, version, `a``b \"c\" ü`, txt, sj, emoji, js, dec_, bit_, f, d, at, dt, day, tm, y, e, s, u, ip, g, bl, `select`) VALUES ({key}, {line}, 1, {values})"
        )
    };
    for sql in [
        format!(
            "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+05:30'; {}",
            row(
                1,
                &format!(
                    "X'{bytes}', _latin1 X'e4f6a7', _utf8mb4 '日本', '😀''\\\\ \\n', '{{\"a\": [1, \"ü\"]}}', 12345678901234567890.12345678901234567890, b'100000000000000000000000000000101', 0.1, 1e-300, '2026-03-29 02:30:00.123456', '2026-02-31 00:00:00.001', '0000-00-00', '-838:59:59.5', 1999, 'b''c', 'x,y', UUID(), '::1', ST_GeomFromText('POINT(1 2)', 4326), REPEAT(X'00ff27', 400000), 7"
                )
            )
        ),
        row(-2, &["NULL"; 21].join(", ")),
        row(
            3,
            "'', '', '', '', 'null', 0, 0, -0.0, 16777217, '1970-01-01 00:00:01', NULL, '9999-12-31', '00:00:00', 0, 'a', '', NULL, NULL, NULL, '', NULL",
        ),
    ] {
        shop.old.say(&sql);
    }
    shop.old.say("UPDATE t_order SET upd = '2001-02-03 04:05:06'");
    assert_eq!(shop.copied(&[]), (3, 0));
    let all = "line, version, twice, virt, HEX(`a``b \"c\" ü`), HEX(txt), HEX(sj), HEX(emoji), js, dec_, HEX(bit_), f + 0e0, d, at, dt, day, tm, y, e + 0, s + 0, u, ip, ST_AsText(g), ST_SRID(g), SHA2(bl, 256), upd, `select`";
    let [old, new] = shop.moving(all);
    assert_eq!(old, new);
    assert_eq!(old.lines().count(), 3);
    shop.run("verify", &["--wait", "--yes"]).done();
    // One bit of one value is a difference.
    for (column, value) in [
        ("bit_", "b'1'"),
        ("twice", ""),
        ("f", "0.1000001"),
        ("bl", "X'00'"),
        ("`select`", "8"),
        ("sj", "''"),
    ] {
        if value.is_empty() {
            continue;
        }
        shop.new.say(&format!(
            "SET time_zone = '+00:00'; UPDATE t_order SET {column} = {value}, upd = upd WHERE line = 1"
        ));
        let found = shop.run("verify", &["--repair", "--yes"]).done();
        assert!(found.contains("repaired: 1\ndiffer: 0\n"), "{column}: {found}");
    }
    let [old, new] = shop.moving(all);
    assert_eq!(old, new);
}

#[test]
fn columns_of_any_type_and_name_are_copied_exactly_on_postgresql() {
    let table = "CREATE TYPE mood AS ENUM ('sad', 'it''s'); CREATE TYPE pair AS (x INT, y TEXT); CREATE TABLE t_order (\"a\"\"b `c` ü\" BYTEA, order_id BIGINT, line TEXT, version INT NOT NULL, n BIGINT GENERATED ALWAYS AS IDENTITY, \
                 twice BIGINT GENERATED ALWAYS AS (version * 2) STORED, txt TEXT, js JSON, jb JSONB, dec_ NUMERIC, bit_ BIT(9), f REAL, d DOUBLE PRECISION, at TIMESTAMPTZ, dt TIMESTAMP, day DATE, \
                 iv INTERVAL, b BOOLEAN, arr TEXT[], m mood, pr pair, ip INET, u UUID, r INT4RANGE, c CHAR(5), cash MONEY, PRIMARY KEY (order_id, line))";
    let shop = Shop::postgres("rows_types", table).started();
    let key = id(1);
    shop.old.say(&format!(
        "INSERT INTO t_order (\"a\"\"b `c` ü\", order_id, line, version, txt, js, jb, dec_, bit_, f, d, at, dt, day, iv, b, arr, m, pr, ip, u, r, c, cash) VALUES \
         ('\\x00ff27', {key}, 'it''s \\ one', 1, E'tab\\t''quote\\\\ 😀', '{{\"b\": 1,  \"a\": 2}}', '{{\"b\": 1}}', 'NaN', B'100000001', 0.1, 1e-300, '2026-03-29 02:30:00.123456+02', '-infinity', '0044-03-15 BC', \
          '1 mon -2 days 03:04:05.678', true, ARRAY['a,b', NULL, '\"'], 'it''s', ROW(1, '\"')::pair, '::1/64', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '[1,5)', 'ab', '$1,234.50'), \
         (NULL, {key}, '', 1, '', NULL, 'null', 12345678901234567890.1234567890, NULL, 'Infinity', 'NaN', NULL, NULL, NULL, NULL, false, '{{}}', NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    ));
    shop.old.say(&format!(
        "INSERT INTO t_order (order_id, line, version, txt, c) VALUES ({key}, '{{\"a\",NULL}}', 2, 'NULL', '\\\\''\"')"
    ));
    assert_eq!(shop.copied(&[]), (3, 0));
    let [old, new] = shop.moving("t_order.*");
    assert_eq!(old, new);
    assert_eq!(old.lines().count(), 3, "{old}");
    shop.run("verify", &["--wait", "--yes"]).done();
    for (column, value) in [("js", "'{\"b\": 1, \"a\": 2}'"), ("d", "2e-300"), ("arr", "NULL"), ("cash", "1")]
    {
        shop.new.say(&format!("UPDATE t_order SET {column} = {value} WHERE line LIKE 'it%'"));
        let found = shop.run("verify", &["--repair", "--yes"]).done();
        assert!(found.contains("repaired: 1\ndiffer: 0\n"), "{column}: {found}");
    }
    let [old, new] = shop.moving("t_order.*");
    assert_eq!(old, new);
    // Where no column is an array, nor has a composite type, a statement has the values of each column in one.
    for server in [&shop.old, &shop.new] {
        server.say("ALTER TABLE t_order DROP COLUMN arr");
    }
    for column in ["pr", "c"] {
        for rows in ["t_order", "t_order WHERE line = ''"] {
            shop.new.say(&format!("DELETE FROM {rows}"));
            shop.run("copy", &["--yes"]).done();
            let [old, new] = shop.moving("t_order.*");
            assert_eq!(old, new);
            assert_eq!(old.lines().count(), 3, "{old}");
        }
        for server in [&shop.old, &shop.new] {
            server.say(&format!("ALTER TABLE t_order DROP COLUMN {column}"));
        }
    }
}

#[test]
fn a_row_that_a_program_inserts_while_its_chunk_is_copied_becomes_what_it_is_in_the_old_shard() {
    for shop in [Shop::mariadb("rows_meanwhile", ORDERS), Shop::postgres("rows_meanwhile", ORDERS)] {
        let shop = shop.filled(100).started();
        // The copy sees no row of it, and waits for it.
        let sleep = if matches!(shop.old, Server::MariaDb { .. }) { "SLEEP" } else { "pg_sleep" };
        let insert = format!("INSERT INTO t_order VALUES ({}, 0, 'mirrored')", id(50));
        let mut program =
            shop.new.session(&format!("BEGIN; {insert}; SELECT {sleep}(2); COMMIT; SELECT {sleep}(600);"));
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(shop.copied(&[]), (100, 0));
        program.kill().unwrap();
        program.wait().unwrap();
        shop.assert_alike();
    }
}

#[test]
fn keys_of_8_and_of_16_bytes_move_in_one_column() {
    for shop in [
        Shop::mariadb(
            "rows_wide",
            "CREATE TABLE t_order (order_id VARBINARY(16) PRIMARY KEY, version INT NOT NULL, buyer TEXT)",
        ),
        Shop::postgres(
            "rows_wide",
            "CREATE TABLE t_order (order_id BYTEA PRIMARY KEY, version INT NOT NULL, buyer TEXT)",
        ),
    ] {
        let shop = shop.started();
        let literal = |digits: String| match &shop.old {
            Server::MariaDb { .. } => format!("X'{digits}'"),
            Server::Postgres { .. } => format!("'\\x{digits}'"),
        };
        for n in 1..=20_u64 {
            for gene in [9_u64, 32_768, 65_535] {
                let narrow = format!("{:016x}", gene << 47 | n);
                let wide = format!("{:032x}", u128::from(gene) << 111 | u128::from(n));
                for key in [narrow, wide] {
                    shop.old.say(&format!("INSERT INTO t_order VALUES ({}, 1, '{n}')", literal(key)));
                }
            }
        }
        assert_eq!(shop.copied(&["--rows-per-second", "7"]), (80, 0), "in chunks of seven");
        assert_eq!(count(&shop.new), 80);
        shop.run("verify", &["--wait", "--yes"]).done();
        shop.new.say(&format!(
            "DELETE FROM t_order WHERE order_id = {}",
            literal(format!("{:016x}", 65_535_u64 << 47 | 3))
        ));
        let found = shop.run("verify", &["--repair", "--yes", "--wait"]).done();
        assert!(found.contains("repaired: 1\ndiffer: 0\n"), "{found}");
    }
}

#[test]
fn several_tables_are_verified_together() {
    let tables = "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, version INT NOT NULL); CREATE TABLE t_item (item_of BIGINT, line INT, version INT NOT NULL, PRIMARY KEY (item_of, line))";
    let shop = Shop::mariadb("rows_tables", tables).started();
    shop.old.say(&format!(
        "INSERT INTO t_order VALUES ({0}, 1); INSERT INTO t_item VALUES ({0}, 1, 1), ({0}, 2, 1)",
        id(1)
    ));
    let both = ["--table", "t_order", "--key", "order_id", "--table", "t_item", "--key", "item_of", "--yes"];
    let copied = shop.run("copy", &both).done();
    assert!(
        copied.contains("table: t_order\nrows copied: 1\n")
            && copied.contains("table: t_item\nrows copied: 2\n"),
        "{copied}"
    );
    shop.new.say("DELETE FROM t_item WHERE line = 2");
    let found = shop.run("verify", &[&both[..], &["--wait"]].concat());
    assert!(
        found.code == Some(1) && found.out.contains(&format!("row {}/2: missing in the new shard", id(1))),
        "{found:?}"
    );
    shop.home.run(&["move", "next", "orders", "--yes"]).refused("INVALID_CONFIG");
    shop.run("verify", &[&both[..], &["--wait", "--repair"]].concat()).done();
    shop.home.run(&["move", "next", "orders", "--yes"]).done();
}

#[test]
fn a_row_that_anothers_unique_value_keeps_out_overwrites_none_and_is_named() {
    let table =
        "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, version INT NOT NULL, order_no INT UNIQUE)";
    for shop in [Shop::mariadb("rows_unique", table), Shop::postgres("rows_unique", table)] {
        let shop = shop.started();
        shop.old.say(&format!("INSERT INTO t_order VALUES ({}, 5, 77), ({}, 1, 78)", id(1), id(2)));
        shop.new.say(&format!("INSERT INTO t_order VALUES ({}, 1, 77)", id(900)));
        let refused = refused_late(&shop.run("copy", &["--yes"]));
        let named = format!("row {} of `t_order`", id(1));
        assert!(refused.contains(&named) && refused.contains("one of its unique values"), "{refused}");
        assert!(refused.contains("`keymill move verify --repair --delete`"), "{refused}");
        assert_eq!(shop.new.say(&format!("SELECT version FROM t_order WHERE order_id = {}", id(900))), "1");
        let found = shop.run("verify", &["--repair", "--yes", "--wait"]);
        assert_eq!(found.code, Some(1), "{found:?}");
        assert!(found.err.contains("one of its unique values"), "{found:?}");
        assert!(found.out.contains(&format!("row {}: missing in the new shard", id(1))), "{found:?}");
        assert!(found.out.contains(&format!("row {}: only in the new shard", id(900))), "{found:?}");
        // What the refusal advises.
        shop.run("verify", &["--repair", "--delete", "--yes", "--wait"]).done();
        assert_eq!(shop.copied(&[]), (0, 2));
        let [old, new] = shop.moving("*");
        assert_eq!(old, new);
    }
}

#[test]
fn tables_whose_rows_refer_to_rows_that_are_not_there_yet_are_refused_by_name() {
    for shop in [Shop::mariadb("rows_parents", ORDERS), Shop::postgres("rows_parents", ORDERS)] {
        let shop = shop.filled(3).started();
        for server in [&shop.old, &shop.new] {
            server.say("CREATE TABLE t_item (item_of BIGINT NOT NULL, line INT NOT NULL, PRIMARY KEY (item_of, line), CONSTRAINT of_order FOREIGN KEY (item_of) REFERENCES t_order (order_id))");
            server.say("CREATE TABLE t_tree (item_of BIGINT PRIMARY KEY, parent BIGINT, CONSTRAINT of_parent FOREIGN KEY (parent) REFERENCES t_tree (item_of))");
        }
        shop.old.say("INSERT INTO t_item SELECT order_id, 1 FROM t_order");
        let item = ["--table", "t_item", "--key", "item_of"];
        let first = [&item[..], &["--table", "t_order", "--key", "order_id", "--yes"]].concat();
        let refused = shop.run("copy", &first).refused("STORE_REFUSED");
        assert!(refused.contains("`of_order`") && refused.contains("name that table first"), "{refused}");
        let tree = ["--table", "t_tree", "--key", "item_of", "--yes"];
        let refused = shop.run("copy", &tree).refused("STORE_REFUSED");
        assert!(refused.contains("`t_tree` refers to itself (`of_parent`)"), "{refused}");
        // As advised.
        shop.new.say(match &shop.new {
            Server::MariaDb { .. } => "ALTER TABLE t_tree DROP FOREIGN KEY of_parent",
            Server::Postgres { .. } => "ALTER TABLE t_tree DROP CONSTRAINT of_parent",
        });
        shop.run("copy", &tree).done();
        let refused = refused_late(&shop.run("copy", &[&item[..], &["--yes"]].concat()));
        assert!(refused.contains(&format!("row {}/1 of `t_item`", id(1))), "{refused}");
        assert!(refused.contains("lacks the row that it refers to"), "{refused}");
        shop.run("copy", &[&ITEMS[..], &["--yes"]].concat()).done();
        assert_eq!(shop.new.say("SELECT COUNT(*) FROM t_item"), "3");
        // In neither order each row comes behind the row that it refers to.
        for server in [&shop.old, &shop.new] {
            server.say("ALTER TABLE t_item ADD UNIQUE (item_of)");
            server.say("ALTER TABLE t_order ADD CONSTRAINT of_item FOREIGN KEY (order_id) REFERENCES t_item (item_of)");
        }
        for (tables, key) in [(&first[..], "`of_order`"), (&[&ITEMS[..], &["--yes"]].concat(), "`of_item`")] {
            let refused = shop.run("copy", tables).refused("STORE_REFUSED");
            assert!(refused.contains(key) && refused.contains("lead from there back"), "{refused}");
        }
    }
}

/// The commit says then that a row lacks the one that it refers to.
#[test]
fn a_row_whose_parent_is_looked_for_by_the_commit_is_named_and_copied_once_the_parent_is_there() {
    let shop = Shop::postgres("rows_deferred", ORDERS).filled(3).started();
    for server in [&shop.old, &shop.new] {
        server.say("CREATE TABLE t_item (item_of BIGINT NOT NULL, line INT NOT NULL, PRIMARY KEY (item_of, line), CONSTRAINT of_order FOREIGN KEY (item_of) REFERENCES t_order (order_id) DEFERRABLE INITIALLY DEFERRED)");
    }
    shop.old.say("INSERT INTO t_item SELECT order_id, 1 FROM t_order");
    let refused = refused_late(&shop.run("copy", &["--table", "t_item", "--key", "item_of", "--yes"]));
    assert!(refused.contains("lacks the row that it refers to"), "{refused}");
    shop.run("copy", &[&ITEMS[..], &["--yes"]].concat()).done();
    assert_eq!(shop.new.say("SELECT COUNT(*) FROM t_item"), "3");
}

/// What a trigger says at the commit tells no row.
#[test]
fn a_row_that_a_trigger_refuses_at_the_commit_is_named() {
    let shop = Shop::postgres("rows_late_trigger", ORDERS).filled(30).started();
    shop.new.say(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no such buyer'; END $$",
    );
    shop.new.say(&format!(
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON t_order DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.order_id = {}) EXECUTE FUNCTION refuse()",
        id(7)
    ));
    let refused = refused_late(&shop.run("copy", &["--yes"]));
    assert!(refused.contains("no such buyer"), "{refused}");
    assert!(refused.contains(&format!("row {} of `t_order`", id(7))), "{refused}");
    shop.new.say("DROP TRIGGER late ON t_order");
    shop.run("copy", &["--yes"]).done();
    shop.assert_alike();
}

/// A table of keys only, a partitioned one, a key whose texts are alike in other letters, and long values.
#[test]
fn tables_of_other_shapes_are_copied_exactly() {
    let keys = "CREATE TABLE t_tag (order_id BIGINT, tag VARCHAR(20), PRIMARY KEY (order_id, tag))";
    let mariadb = format!(
        "{keys} DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_general_ci; \
         CREATE TABLE t_part (order_id BIGINT PRIMARY KEY, e ENUM('a', 'b')) PARTITION BY RANGE (order_id) (PARTITION p0 VALUES LESS THAN (4611826755915743232), PARTITION p1 VALUES LESS THAN MAXVALUE); \
         CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, picture LONGBLOB)"
    );
    let postgres = format!(
        "{keys}; CREATE TABLE t_part (order_id BIGINT PRIMARY KEY, e TEXT) PARTITION BY RANGE (order_id); \
         CREATE TABLE p0 PARTITION OF t_part FOR VALUES FROM (MINVALUE) TO (4611826755915743232); CREATE TABLE p1 PARTITION OF t_part DEFAULT; \
         CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, picture TEXT)"
    );
    for shop in [Shop::mariadb("rows_shapes", &mariadb), Shop::postgres("rows_shapes", &postgres)] {
        // A statement of 10 MiB has to be there within half of it.
        let shop = shop.settling("2s").started();
        for n in 1..=4 {
            shop.old.say(&format!("INSERT INTO t_tag VALUES ({0}, 'A'), ({0}, 'b')", id(n)));
            shop.old.say(&format!("INSERT INTO t_part VALUES ({}, 'a')", id(n)));
        }
        shop.old.say(&format!("INSERT INTO t_order VALUES ({}, REPEAT('ten bytes ', 1024 * 1024))", id(1)));
        let tables = ["--key", "order_id", "--table", "t_tag", "--table", "t_part", "--table", "t_order"];
        let run = |verb: &str, more: &[&str]| shop.run(verb, &[&tables[..], more].concat());
        let is_ci = matches!(shop.new, Server::MariaDb { .. });
        if is_ci {
            // The same key in other letters.
            shop.new.say(&format!("INSERT INTO t_tag VALUES ({}, 'a')", id(1)));
        }
        let copied = run("copy", &["--yes"]).done();
        assert!(copied.contains("rows copied: 8\n") && copied.contains("rows copied: 4\n"), "{copied}");
        run("verify", &["--wait", "--yes"]).done();
        for question in ["SELECT COUNT(*) FROM t_part", "SELECT SUM(LENGTH(picture)) FROM t_order"] {
            assert_eq!(shop.old.say(question), shop.new.say(question));
        }
        shop.new.say(&format!("DELETE FROM t_tag WHERE order_id = {}", id(2)));
        if is_ci {
            shop.new.say(&format!("UPDATE t_tag SET tag = 'B' WHERE tag = 'b' AND order_id = {}", id(3)));
        }
        let found = run("verify", &["--repair", "--wait", "--yes"]);
        assert_eq!(found.code, Some(0), "{found:?}");
        if is_ci {
            // The value of an enum that had an error. It reads as an empty text, which is none of its values.
            shop.old
                .say(&format!("SET sql_mode = ''; UPDATE t_part SET e = 'none' WHERE order_id = {}", id(4)));
            let refused = refused_late(&run("copy", &["--yes"]));
            assert!(refused.contains("for column 'e'") && refused.contains("of `t_part`"), "{refused}");
        }
    }
}

#[test]
fn what_cannot_be_moved_is_refused_and_nothing_is_written() {
    for shop in [Shop::mariadb("rows_refuse", ORDERS), Shop::postgres("rows_refuse", ORDERS)] {
        let shop = shop.filled(3).started();
        for server in [&shop.old, &shop.new] {
            server.say("CREATE TABLE other_key (id INT PRIMARY KEY, order_id BIGINT, version INT NOT NULL)");
            server.say("CREATE TABLE text_key (order_id VARCHAR(40) PRIMARY KEY, version INT NOT NULL)");
            server.say("CREATE VIEW a_view AS SELECT * FROM t_order");
        }
        shop.old.say("CREATE TABLE only_old (order_id BIGINT PRIMARY KEY, version INT NOT NULL)");
        shop.old
            .say("CREATE TABLE narrower (order_id BIGINT PRIMARY KEY, version INT NOT NULL, t VARCHAR(20))");
        shop.new
            .say("CREATE TABLE narrower (order_id BIGINT PRIMARY KEY, version INT NOT NULL, t VARCHAR(10))");
        for (table, says) in [
            ("other_key", "not the first column of the primary key of `other_key`, which is (id)"),
            ("text_key", "a key of business ids is a BIGINT, or 16 bytes"),
            ("a_view", "`a_view` is no table"),
            ("only_old", "there is no table `only_old`"),
            ("no_such", "there is no table `no_such`"),
            ("narrower", "column `t` of `narrower`"),
            ("x'; DROP TABLE t_order; --", "there is no table"),
        ] {
            let refused =
                shop.run("copy", &["--table", table, "--key", "order_id", "--yes"]).refused("STORE_REFUSED");
            assert!(refused.contains(says), "{table}: {refused}");
        }
        let (create, says) = match &shop.old {
            Server::MariaDb { .. } => {
                ("CREATE TABLE shaped (order_id BIGINT PRIMARY KEY) ENGINE = MyISAM", "is kept by MyISAM")
            }
            Server::Postgres { .. } => (
                "CREATE TABLE shaped (order_id BIGINT PRIMARY KEY); CREATE TABLE heir () INHERITS (shaped)",
                "`heir` inherits from `shaped`",
            ),
        };
        for server in [&shop.old, &shop.new] {
            server.say(create);
        }
        let shaped = ["--table", "shaped", "--key", "order_id", "--yes"];
        let refused = shop.run("copy", &shaped).refused("STORE_REFUSED");
        assert!(refused.contains(says), "{refused}");
        // As advised.
        for server in [&shop.old, &shop.new] {
            server.say(match server {
                Server::MariaDb { .. } => "ALTER TABLE shaped ENGINE = InnoDB",
                Server::Postgres { .. } => "ALTER TABLE heir NO INHERIT shaped",
            });
        }
        shop.run("copy", &shaped).done();
        let refused = shop.run("verify", &["--table", "t_order", "--key", "none"]).refused("STORE_REFUSED");
        assert!(refused.contains("has no column `none`"), "{refused}");
        refused_places(&shop);
        assert_eq!((count(&shop.old), count(&shop.new)), (6, 0));
    }
}

#[test]
fn keys_that_postgresql_cannot_replace_rows_by_and_those_that_lead_to_a_partition_are_refused() {
    let shop = Shop::postgres(
        "rows_keys",
        "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, version BIGINT NOT NULL, buyer VARCHAR(40)) PARTITION BY RANGE (order_id); \
         CREATE TABLE all_of_them PARTITION OF t_order DEFAULT; \
         CREATE TABLE late (order_id BIGINT PRIMARY KEY DEFERRABLE); \
         CREATE TABLE twice (order_id BIGINT, n INT, two INT GENERATED ALWAYS AS (n * 2) STORED, PRIMARY KEY (order_id, two))",
    );
    let shop = shop.filled(3).started();
    let note =
        "CREATE TABLE note (id BIGINT PRIMARY KEY, order_id BIGINT REFERENCES all_of_them ON DELETE CASCADE)";
    shop.old.say(note);
    for (table, says) in [
        ("t_order", ".\"note\" refer to rows of `t_order`"),
        ("late", "(`late_pkey`) is DEFERRABLE"),
        ("twice", "column `two` of the primary key of `twice` is generated"),
    ] {
        let refused =
            shop.run("copy", &["--table", table, "--key", "order_id", "--yes"]).refused("STORE_REFUSED");
        assert!(refused.contains(says), "{table}: {refused}");
    }
    // As advised.
    shop.new.say("ALTER TABLE late DROP CONSTRAINT late_pkey, ADD PRIMARY KEY (order_id)");
    shop.run("copy", &["--table", "late", "--key", "order_id", "--yes"]).done();
}

/// Values of a key that are one and have two texts.
#[test]
fn a_row_whose_key_has_another_text_in_the_new_shard_gets_that_of_the_old_one() {
    let shop = Shop::postgres(
        "rows_texts",
        "CREATE TABLE t_order (order_id BIGINT, n NUMERIC, i INTERVAL, PRIMARY KEY (order_id, n, i))",
    );
    let shop = shop.started();
    for (server, key) in [(&shop.old, "1.0, '1 day'"), (&shop.new, "1.00, '24:00:00'")] {
        server.say(&format!("INSERT INTO t_order VALUES ({}, {key})", id(1)));
    }
    shop.run("copy", &["--yes"]).done();
    let verified = shop.run("verify", &["--wait", "--yes"]).done();
    assert!(verified.contains("rows: 1\nrepaired: 0\ndiffer: 0\n"), "{verified}");
    assert_eq!(shop.new.say("SELECT n FROM t_order"), "1.0");
}

/// What is left in the old shard says less and less about the new one.
#[test]
fn a_clean_that_is_killed_goes_on_also_where_the_new_shard_lacks_rows() {
    for shop in [Shop::mariadb("rows_clean_kill", ORDERS), Shop::postgres("rows_clean_kill", ORDERS)] {
        let shop = shop.filled(3000).started();
        shop.run("copy", &["--yes"]).done();
        shop.run("verify", &["--wait", "--yes"]).done();
        for _ in 0..4 {
            shop.home.run(&["move", "next", "orders", "--wait", "--yes"]).done();
        }
        shop.run("verify", &["--wait", "--yes"]).done();
        shop.home.run(&["move", "finish", "orders", "--wait", "--yes"]).done();
        // Programs delete the last tenths.
        shop.new.say(&format!("DELETE FROM t_order WHERE order_id >= {}", id(700)));
        let now = ["--older-than", "0s", "--yes", "--changed-too"];
        let mut clean = shop.spawn("clean", &[&now[..], &["--rows-per-second", "500"]].concat());
        // Another 3000 rows stay.
        until("a half", || count(&shop.old) <= 4500);
        clean.kill().unwrap();
        clean.wait().unwrap();
        assert!(count(&shop.old) > 3000, "killed half-way");
        shop.run("clean", &now).done();
        assert_eq!(count(&shop.old), 3000);
    }
}

/// The owner of the old table makes a number a text while its rows are copied, and writes statements for the new shard into it.
#[test]
fn a_number_that_holds_statements_of_the_old_shards_owner_runs_none_in_the_new_one() {
    for shop in [Shop::mariadb("rows_inject", ORDERS), Shop::postgres("rows_inject", ORDERS)] {
        let shop = shop.started().filled(20);
        shop.new.say("CREATE TABLE accounts (balance BIGINT NOT NULL)");
        shop.new.say("INSERT INTO accounts VALUES (100)");
        let copy = shop.spawn("copy", &["--yes", "--rows-per-second", "2"]);
        until("a row", || count(&shop.new) > 0);
        let injected = "1, 'x'); UPDATE accounts SET balance = 0; INSERT INTO t_order (order_id, version, buyer) VALUES (1, 1";
        let other = "(SELECT balance FROM accounts)";
        match shop.old {
            Server::MariaDb { .. } => {
                shop.old.say("ALTER TABLE t_order MODIFY version VARCHAR(200) NOT NULL")
            }
            Server::Postgres { .. } => shop.old.say("ALTER TABLE t_order ALTER version TYPE VARCHAR(200)"),
        };
        shop.old.say(&format!(
            "UPDATE t_order SET version = CASE WHEN order_id % 2 = 0 THEN '{}' ELSE '{other}' END",
            injected.replace('\'', "''")
        ));
        let ran = Ran::from(copy.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("STORE_REFUSED") && ran.err.contains("were in one statement"), "{ran:?}");
        assert_eq!(shop.new.say("SELECT balance FROM accounts"), "100");
        assert_eq!(shop.new.say("SELECT COUNT(*) FROM t_order WHERE version <> 1"), "0");
    }
}

/// As above, in the key, which stands in statements without quotes.
#[test]
fn a_key_that_holds_statements_of_the_old_shards_owner_runs_none_in_the_new_one() {
    let shop = Shop::mariadb("rows_key_text", ORDERS).started().filled(20);
    shop.new.say("CREATE TABLE accounts (balance BIGINT NOT NULL)");
    shop.new.say("INSERT INTO accounts VALUES (100)");
    let copy = shop.spawn("copy", &["--yes", "--rows-per-second", "2"]);
    until("a row", || count(&shop.new) > 0);
    shop.old.say("ALTER TABLE t_order MODIFY order_id VARCHAR(200) NOT NULL");
    // MariaDB reads a number in the range out of it.
    shop.old.say(
        "UPDATE t_order SET order_id = CONCAT(order_id, ', 1, ''x''); UPDATE accounts SET balance = 0; SELECT (1')",
    );
    let ran = Ran::from(copy.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("STORE_REFUSED"), "{ran:?}");
    assert_eq!(shop.new.say("SELECT balance FROM accounts"), "100");
}

/// Nothing counts the changes of a row: what differs is found, repaired and removed all the same, with keys of numbers and of bytes.
#[test]
fn tables_without_a_version_are_copied_compared_repaired_and_removed() {
    let servers = |name: &str| {
        let (items, rest) = (
            "CREATE TABLE t_item (item_of BIGINT NOT NULL, line VARCHAR(20) NOT NULL, what TEXT, PRIMARY KEY (item_of, line))",
            "what TEXT, PRIMARY KEY (id))",
        );
        [
            Shop::mariadb(name, &format!("{items}; CREATE TABLE t_order (id VARBINARY(16) NOT NULL, {rest}")),
            Shop::postgres(name, &format!("{items}; CREATE TABLE t_order (id BYTEA NOT NULL, {rest}")),
        ]
    };
    for shop in servers("rows_plain") {
        let shop = shop.started();
        let bytes = |n: u64| {
            let digits = format!("{:032x}", (40_000_u128 << 111) + u128::from(n));
            match &shop.old {
                Server::MariaDb { .. } => format!("X'{digits}'"),
                Server::Postgres { .. } => format!("'\\x{digits}'"),
            }
        };
        for n in 1..=30 {
            shop.old.say(&format!("INSERT INTO t_order VALUES ({}, 'order {n}')", bytes(n)));
            shop.old.say(&format!("INSERT INTO t_item VALUES ({0}, 'a', 'x'), ({0}, 'b', NULL)", id(n)));
        }
        let tables = ["--table", "t_order", "--key", "id", "--table", "t_item", "--key", "item_of"];
        let run = |verb: &str, more: &[&str]| shop.run(verb, &[&tables[..], more].concat());
        let copied = run("copy", &["--wait", "--yes"]).done();
        assert!(copied.contains("rows copied: 30\n") && copied.contains("rows copied: 60\n"), "{copied}");
        for sql in [
            format!("UPDATE t_order SET what = 'other' WHERE id = {}", bytes(3)),
            format!("DELETE FROM t_order WHERE id = {}", bytes(4)),
            format!("UPDATE t_item SET what = '' WHERE item_of = {} AND line = 'b'", id(5)),
            format!("INSERT INTO t_item VALUES ({}, 'c', 'only new')", id(6)),
        ] {
            shop.new.say(&sql);
        }
        let found = run("verify", &["--wait", "--yes"]);
        let differs = format!("row {}/b: other values in the new shard\n", id(5));
        assert!(found.code == Some(1) && found.out.contains(&differs), "{found:?}");
        let all = run("verify", &["--repair", "--delete", "--wait", "--yes"]).done();
        assert_eq!(all.matches("repaired: 2\ndiffer: 0\n").count(), 2, "{all}");
        for _ in 0..4 {
            shop.home.run(&["move", "next", "orders", "--wait", "--yes"]).done();
        }
        run("verify", &["--wait", "--yes"]).done();
        shop.home.run(&["move", "finish", "orders", "--wait", "--yes"]).done();
        shop.new.say(&format!("UPDATE t_item SET what = 'went on' WHERE item_of = {}", id(7)));
        let clean = ["--older-than", "0s", "--yes"];
        let refused = run("clean", &clean).refused("STORE_REFUSED");
        assert!(refused.contains(&format!("{}/a", id(7))) && refused.contains("--changed-too"), "{refused}");
        assert_eq!(count(&shop.old), 30, "nothing was removed");
        let done = run("clean", &[&clean[..], &["--changed-too"]].concat()).done();
        assert!(done.contains("rows removed: 30\n") && done.contains("rows removed: 60\n"), "{done}");
        assert_eq!((count(&shop.old), count(&shop.new)), (0, 30));
    }
}

#[test]
fn the_environments_password_is_not_sent_to_the_server_of_another_user() {
    let shop = Shop::mariadb("password_of", ORDERS).started();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let other = format!("mysql://mover@127.0.0.1:{}/x?tls=off", listener.local_addr().unwrap().port());
    let own = format!("{}?tls=off", shop.old.url().replace(":secret@", "@"));
    let run = |from: &str, to: &str| {
        let words =
            ["move", "copy", "orders", "--table", "t_order", "--key", "order_id", "--from", from, "--to", to];
        Ran::from(shop.home.command(&words).env("KEYMILL_PASSWORD", "secret").output().unwrap())
    };
    let refused = run(&own, &other).refused("INVALID_CONFIG");
    assert!(refused.contains("--to") && refused.contains("`keymill` and `mover`"), "{refused}");
    assert!(!refused.contains("secret"), "{refused}");
    let reached = listener.accept().map(drop).map_err(|error| error.kind());
    assert_eq!(reached, Err(std::io::ErrorKind::WouldBlock), "the server of another user was reached");
    // One user of both shards: the variable is for both.
    let second = format!("{}?tls=off", shop.new.url().replace(":secret@", "@"));
    run(&own, &second).done();
}

/// One database under two names, shards of another move, and what is no database.
fn refused_places(shop: &Shop) {
    let (old, new) = (shop.old.url(), shop.new.url());
    let spelled = old
        .replace("127.0.0.1", "localhost")
        .replace("mysql:", "mariadb:")
        .replace("postgres:", "postgresql:");
    let run = |from: &str, to: &str| {
        shop.home.run(&[
            "move", "copy", "orders", "--table", "t_order", "--key", "order_id", "--from", from, "--to", to,
            "--yes",
        ])
    };
    for to in [&old, &spelled] {
        let refused = run(&old, to).refused("INVALID_CONFIG");
        assert!(refused.contains("are one database"), "{refused}");
    }
    let refused = run(&format!("s2={old}"), &new).refused("INVALID_ARGUMENT");
    assert!(refused.contains("--from names shard `s2`; the move is from `s1` to `s2`"), "{refused}");
    let refused = run("sqlite:a.db", &new).refused("INVALID_CONFIG");
    assert!(refused.contains("is no shard"), "{refused}");
    let wrong = new.replace(":secret@", ":wrong-password@");
    let refused = run(&old, &wrong);
    assert!(refused.code == Some(1) && !refused.err.contains("wrong-password"), "{refused:?}");
    let uneven = ["--table", "t_order", "--table", "b", "--table", "c", "--key", "order_id", "--key", "k"];
    let refused = shop.run("copy", &uneven).refused("INVALID_ARGUMENT");
    assert!(refused.contains("3 tables and 2 keys"), "{refused}");
    for words in [&["--rows-per-second", "0"][..], &["--yes", "--older-than", "x"]] {
        assert_eq!(shop.run("copy", words).code, Some(2), "{words:?}");
    }
}
