//! Settings of a login and of a server, for what is not a segment: leased workers, marks, banks and routes. Whatever is answered is
//! committed and means the same.
//!
//! Each test has a server of its own.

use std::sync::Arc;

use keymill::simulation::counter_key;
use keymill::store::{
    BankSpec, Catalogue, FaultKind, GiveBack, Key, Left, OwnSlot, Release, Renewal, SlotStore, Store,
};
use keymill_tests::{lease, mariadb, postgres};
use mysql::prelude::Queryable;

/// The key, in the table that these tests make for its scheme.
fn placed(key: Key) -> Arc<Key> {
    Arc::new(Key { table: format!("t_{}", key.scheme.name()), ..key })
}

/// Takes, renews and frees a worker, reserves from a bank and gives back, begins a mark and stores a table of routes. After each step
/// `other`, a connection without these settings, sees what was answered.
fn every_conversation(setting: &str, store: &mut dyn Store, other: &mut dyn Store, round: usize) {
    let told = |what: &str| format!("{setting}: {what}");
    let pool = placed(Key::pool("", &format!("tx{round}")));
    let taken =
        store.take_slot(&lease::take(pool.clone(), 7)).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    let row = |other: &mut dyn Store| other.slots(&pool).expect("the pool").slots.first().cloned();
    let seen = row(other).unwrap_or_else(|| panic!("{}", told("taken and not committed")));
    assert_eq!((seen.slot, seen.token, seen.mark), (taken.slot, 7, lease::MARK), "{setting}");
    let off = taken.now_ms.abs_diff(other.clock_ms(&pool).expect("a clock"));
    assert!(off < 600_000, "{}", told("another clock"));
    let own = |token, mark| OwnSlot {
        key: pool.clone(),
        slot: taken.slot,
        left: vec![Left { token, mark }],
        source: "".into(),
    };
    let renewal = Renewal {
        own: own(7, lease::MARK),
        to: Left { token: 8, mark: lease::MARK + 100 },
        lease_ms: lease::LEASE_MS,
    };
    let renewed = store.renew_slots(&[renewal]).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    assert_eq!(renewed.marks.first().map(Result::is_ok), Some(true), "{setting}");
    assert_eq!(row(other).map(|row| (row.token, row.mark)), Some((8, lease::MARK + 100)), "{setting}");
    let release = Release { own: own(8, lease::MARK + 100), used: lease::MARK + 50 };
    assert_eq!(store.free_slots(&[release]), Ok(vec![true]), "{setting}");
    assert_eq!(row(other).map(|row| (row.ends_at, row.mark)), Some((0, lease::MARK + 50)), "{setting}");

    let bank = placed(Key::bank("", &format!("order{round}")));
    let with = BankSpec { counters: 4, is_named: true, wide: false };
    store.open_bank(&bank, with).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    let others = other.open_bank(&bank, BankSpec { counters: 8, ..with }).map(drop);
    assert_eq!(others.expect_err("the record").kind, FaultKind::Refused, "{setting}");
    let counters: Vec<Arc<Key>> = (0..4).map(|at| counter_key(&bank, 4, at)).collect();
    let requests: Vec<_> = counters.iter().map(|counter| keymill_tests::request(counter, 16)).collect();
    let stands = |other: &mut dyn Store, at: usize| {
        other.look(&counters[at]).expect("a look").map(|row| row.mark.next)
    };
    for (at, got) in store.reserve_counters(&requests).into_iter().enumerate() {
        let got = got.unwrap_or_else(|fault| panic!("{setting}: {fault}"));
        assert_eq!(stands(other, at), Some(got.hi), "{}", told("reserved and not committed"));
        let back = GiveBack { key: counters[at].clone(), period: 0, lo: got.lo + 4, hi: got.hi, writer: 0 };
        assert_eq!(store.give_back_counters(&[back]), Ok(vec![true]), "{setting}");
        assert_eq!(stands(other, at), Some(got.lo + 4), "{}", told("given back and not committed"));
    }

    let mark = placed(Key::mark("", &format!("tx{round}"), "L", 5));
    store.raise(&mark, None, 4711).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
    let raised = other.look(&mark).expect("a look").map(|row| row.mark.next);
    assert_eq!(raised, Some(4711), "{}", told("raised and not committed"));

    let route = placed(Key::of_route(&format!("r{round}")));
    let text = "a 'quoted' \\ \"text\" % ?\u{e9}";
    assert_eq!(store.replace_route(&route, None, (7, text)), Ok(true), "{setting}");
    let read = other.read_route(&route, 0).expect("a look").expect("the table");
    assert_eq!((read.version, read.text.as_deref()), (7, Some(text)), "{}", told("another text"));
    let again = store.read_route(&route, 0).expect("a look").expect("the table");
    assert_eq!(again, read, "{}", told("another text"));
}

fn tables() -> Vec<Arc<Key>> {
    [Key::pool("", "x"), Key::bank("", "x"), Key::of_route("x")].map(placed).into()
}

#[test]
fn workers_banks_and_routes_are_committed_whatever_a_login_of_mariadb_sets() {
    let server = mariadb::Private::start("");
    let mut root = server.root();
    let options = mariadb::options_of(&server.url());
    let mut other = mariadb::store(options.clone());
    let _ = other.init(&tables(), false).expect("the tables");
    for (round, setting) in [
        "completion_type = 1",
        "completion_type = 2",
        "autocommit = 0",
        "autocommit = 0, completion_type = 1",
        "SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
        "SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "sql_select_limit = 0",
        "sql_safe_updates = 1",
        "time_zone = '+13:00'",
        "sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'",
        "character_set_client = latin1, character_set_connection = latin1, character_set_results = latin1",
        "div_precision_increment = 0, group_concat_max_len = 4",
    ]
    .into_iter()
    .enumerate()
    {
        root.query_drop(format!("SET GLOBAL init_connect = \"SET {setting}\"")).expect("root may set that");
        every_conversation(setting, &mut mariadb::store(options.clone()), &mut other, round);
        let open: Option<u64> =
            root.query_first("SELECT COUNT(*) FROM information_schema.INNODB_TRX").expect("a number");
        assert_eq!(open, Some(0), "{setting}: no transaction is left open");
    }
}

#[test]
fn a_login_of_mariadb_for_which_the_clock_stands_still_gets_no_worker_and_is_told_why() {
    let server = mariadb::Private::start("");
    let mut root = server.root();
    let options = mariadb::options_of(&server.url());
    let _ = mariadb::store(options.clone()).init(&tables(), false).expect("the tables");
    let pool = placed(Key::pool("", "still"));
    for timestamp in ["1000000000", "UNIX_TIMESTAMP() + 86400"] {
        root.query_drop(format!("SET GLOBAL init_connect = 'SET timestamp = {timestamp}'"))
            .expect("root may set that");
        let mut store = mariadb::store(options.clone());
        let refused =
            [store.take_slot(&lease::take(pool.clone(), 7)).map(drop), store.clock_ms(&pool).map(drop)];
        for refused in refused {
            let fault = refused.expect_err("a clock that stands still");
            assert_eq!(fault.kind, FaultKind::Unsafe, "{timestamp}: {fault}");
            assert!(fault.to_string().contains("SET timestamp = DEFAULT"), "{timestamp}: {fault}");
        }
    }
    root.query_drop("SET GLOBAL init_connect = 'SET timestamp = DEFAULT'").expect("root may set that");
    let mut store = mariadb::store(options);
    let slots = store.slots(&pool).expect("the pool").slots;
    assert!(slots.is_empty(), "no worker was leased: {slots:?}");
    let _ = store.take_slot(&lease::take(pool, 7)).expect("the clock moves");
}

#[test]
fn a_login_of_mariadb_whose_init_connect_fails_is_told_so_and_served_when_it_is_corrected() {
    let server = mariadb::Private::start("");
    let mut root = server.root();
    let mut store = mariadb::store(mariadb::options_of(&server.url()));
    let pool = placed(Key::pool("", "init"));
    mariadb::store(mariadb::options_of(&server.url())).init(&tables(), false).expect("the tables");
    root.query_drop("SET GLOBAL init_connect = 'SET no_such_option = 1'").expect("root may set that");
    let fault = store.slots(&pool).expect_err("the server ends the connection");
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    for part in ["init_connect fails for this user", "as an administrator"] {
        assert!(fault.to_string().contains(part), "{part}: {fault}");
    }
    root.query_drop("SET GLOBAL init_connect = ''").expect("root may set that");
    assert!(store.slots(&pool).expect("the pool").slots.is_empty());
}

#[test]
fn workers_banks_and_routes_are_committed_whatever_a_role_of_postgresql_sets() {
    let server = postgres::Private::start("");
    let root = postgres::Sql::root(&server.url());
    let mut other = postgres::store(server.options());
    let _ = other.init(&tables(), false).expect("the tables");
    for (round, setting) in [
        "default_transaction_isolation = serializable",
        "default_transaction_isolation = 'repeatable read'",
        "default_transaction_deferrable = on",
        "standard_conforming_strings = off",
        "row_security = off",
        "session_replication_role = replica",
        "search_path = nowhere, public",
        "timezone = 'Asia/Kathmandu'",
        "datestyle = 'SQL, DMY'",
        "synchronous_commit = local",
        "quote_all_identifiers = on",
        "extra_float_digits = -15",
        "enable_seqscan = off",
        "jit_above_cost = 0",
    ]
    .into_iter()
    .enumerate()
    {
        root.say(&format!("ALTER ROLE keymill SET {setting}"));
        every_conversation(setting, &mut postgres::store(server.options()), &mut other, round);
    }
}
