//! Other objects and settings in a PostgreSQL: of the server and the role, of other clients of a pooler, of other schemas
//! and their owners. No number comes twice because of them, or the refusal names what to change.
//!
//! Each test has a server of its own, started by `ci/servers/postgres`, and a PgBouncer in front of it where it needs one.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use keymill::serial::SerialPattern;
use keymill::store::postgres::ServerOptions;
use keymill::store::{
    Catalogue, Durability, Fault, FaultKind, GiveBack, Key, Mark, Request, RowStore, Scheme, SerialKey, Store,
};
use keymill_tests::ci::patient;
use keymill_tests::postgres::{Private, Sql, store};
use keymill_tests::takers::until;
use keymill_tests::{assert_disjoint, request, schemes};

const PATIENCE: Duration = Duration::from_secs(180);
const DAY: u64 = 20_261_120_000_000_000;

/// A source of this scheme on its default table.
pub(super) fn key(scheme: Scheme, name: &str) -> Arc<Key> {
    let serial = (scheme == Scheme::KeyProducer).then(|| SerialKey {
        table: name.to_owned(),
        column: "id".to_owned(),
        pattern: SerialPattern::new("yyyyMMdd", "0000", "UTC").unwrap(),
        init_max: false,
    });
    Arc::new(schemes::key(scheme, scheme.default_table(), name, serial))
}

/// Reserves ten numbers for a process that has seen this mark.
pub(super) fn ten(key: &Arc<Key>, seen: u64) -> Request {
    let period = if key.serial.is_some() { DAY } else { 0 };
    let high_water = if seen == 0 { Mark::default() } else { Mark { period, next: seen } };
    Request { period, period_max: period, high_water, ..request(key, 10) }
}

/// A process that counts on from the numbers it has seen.
struct Counting {
    key: Arc<Key>,
    seen: u64,
    ranges: Vec<(u64, u64)>,
}

impl Counting {
    fn new(scheme: Scheme, name: &str) -> Counting {
        Counting { key: key(scheme, name), seen: 0, ranges: Vec::new() }
    }

    fn next(&mut self, store: &mut dyn Store) -> Result<(), Fault> {
        let got = store.reserve(&ten(&self.key, self.seen))?;
        self.seen = got.hi;
        self.ranges.push((got.lo, got.hi));
        Ok(())
    }
}

pub(super) fn refused(answer: Result<impl std::fmt::Debug, Fault>, says: &[&str]) {
    let fault = answer.expect_err("it is refused");
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    for word in says {
        assert!(fault.to_string().contains(word), "{word}: {fault}");
    }
}

#[test]
fn another_clients_synchronous_commit_off_in_the_pool_loses_no_number() {
    let server = Private::start("-c wal_writer_delay=10s");
    let pooled = server.pooler(&[]);
    let mut mine = store(pooled.clone());
    let mut counting: Vec<_> = schemes::on_postgres().map(|scheme| Counting::new(scheme, "orders")).collect();
    let more: Vec<_> = (0..3).map(|n| key(Scheme::Keymill, &format!("more{n}"))).collect();
    let mut ranges: Vec<Vec<(u64, u64)>> = vec![Vec::new(); more.len()];
    for one in &mut counting {
        mine.init(&[Arc::clone(&one.key)], false).unwrap();
        one.next(&mut mine).unwrap();
    }
    for (key, ranges) in more.iter().zip(&mut ranges) {
        ranges.push(mine.reserve(&ten(key, 0)).map(|got| (got.lo, got.hi)).unwrap());
    }
    let other = Sql::to(&pooled);
    other.say("SET synchronous_commit = off");
    let mut late = store(pooled);
    for _ in 0..6 {
        for one in &mut counting {
            one.next(&mut mine).unwrap();
        }
        let requests: Vec<_> =
            more.iter().zip(&ranges).map(|(key, ranges)| ten(key, ranges.last().unwrap().1)).collect();
        for (ranges, got) in ranges.iter_mut().zip(mine.reserve_all(&requests)) {
            ranges.push(got.expect("they go together").map(|got| (got.lo, got.hi)).unwrap());
        }
    }
    // A new connection does not see the other client's setting.
    for one in &mut counting {
        one.next(&mut late).unwrap();
    }
    assert!(late.facts().unwrap().warnings.is_empty(), "{:?}", late.facts());
    assert_eq!(other.rows("SHOW synchronous_commit"), [["off"]], "one connection for all of them");
    server.kill();
    server.start_again();
    let mut next = store(server.options());
    for mut one in counting {
        one.seen = 0;
        one.next(&mut next).unwrap();
        assert_disjoint(one.ranges);
    }
    for (key, mut ranges) in more.iter().zip(ranges) {
        ranges.push(next.reserve(&ten(key, 0)).map(|got| (got.lo, got.hi)).unwrap());
        assert_disjoint(ranges);
    }
}

#[test]
fn settings_left_by_another_client_of_a_pooler_change_no_number() {
    let server = Private::start("");
    let pooled = server.pooler(&[]);
    Sql::root(&server.url()).say(
        "CREATE SCHEMA other AUTHORIZATION keymill; CREATE SCHEMA evil; GRANT USAGE ON SCHEMA evil TO keymill; \
         CREATE ROLE guest; GRANT guest TO keymill",
    );
    let mut mine = store(pooled.clone());
    let mut counting: Vec<_> =
        schemes::on_postgres().map(|scheme| Counting::new(scheme, "größe's 'x\\")).collect();
    for one in counting.iter_mut().filter(|one| one.key.serial.is_none()) {
        mine.init(&[Arc::clone(&one.key)], false).unwrap();
        one.next(&mut mine).unwrap();
    }
    let mut serial = Counting::new(Scheme::KeyProducer, "groesse");
    mine.init(&[Arc::clone(&serial.key)], false).unwrap();
    let other = Sql::to(&pooled);
    let asked =
        ["lock_timeout", "statement_timeout", "client_min_messages", "search_path", "synchronous_commit"];
    let standing = || asked.map(|name| other.rows(&format!("SHOW {name}"))[0][0].clone());
    let untouched = standing();
    for setting in [
        "SET search_path = other, public",
        "SET default_transaction_isolation = serializable",
        "SET default_transaction_deferrable = on",
        "SET client_min_messages = error",
        "SET client_encoding = latin1",
        "SET standard_conforming_strings = off",
        "SET transform_null_equals = on",
        "SET row_security = off",
        "SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Tokyo'",
        "SET lock_timeout = 0; SET statement_timeout = 0",
        "CREATE TEMP TABLE keymill_segment (LIKE public.keymill_segment INCLUDING ALL)",
        "CREATE TEMP TABLE leaf_alloc (LIKE public.leaf_alloc INCLUDING ALL)",
        "CREATE TEMP SEQUENCE keymill_sequence INCREMENT BY 10",
        "CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (VALUE = 'x'); \
         CREATE DOMAIN pg_temp.int8 AS pg_catalog.int8 CHECK (VALUE = 0)",
        "SET plan_cache_mode = force_generic_plan",
    ] {
        other.say(setting);
        let mut late = store(pooled.clone());
        for one in counting.iter_mut().filter(|one| one.key.serial.is_none()).chain([&mut serial]) {
            for store in [&mut mine, &mut late] {
                one.next(store).unwrap_or_else(|fault| panic!("{setting}, {}: {fault}", one.key.name));
            }
        }
    }
    for mut one in counting.into_iter().filter(|one| one.key.serial.is_none()).chain([serial]) {
        let (count, last) = (one.ranges.len() as u64, one.seen);
        assert_eq!(last, 1 + 10 * count, "{} is one row", one.key.name);
        one.seen = 0;
        one.next(&mut store(server.options())).unwrap();
        assert_eq!(one.ranges.last(), Some(&(last, last + 10)));
        assert_disjoint(one.ranges);
    }
    // Nor do keymill's settings remain.
    other.say("RESET ALL");
    assert_eq!(standing(), untouched);
    // A read-only setting is respected, whichever client made it. PgBouncer 1.26 keeps it to the client that made it.
    other.say("SET default_transaction_read_only = on");
    let is_shared = Sql::to(&pooled).rows("SHOW default_transaction_read_only") == [["on"]];
    println!("pooler   another client's read-only setting is shared: {is_shared}");
    match mine.reserve(&ten(&key(Scheme::Keymill, "new"), 0)) {
        Err(fault) => assert!(is_shared && fault.kind == FaultKind::Unavailable, "{fault}"),
        Ok(_) => assert!(!is_shared, "the session is read-only"),
    }
    // Another role cannot write, and sees no other row.
    other.say("SET default_transaction_read_only = off; SET ROLE guest");
    let fault = store(pooled).reserve(&ten(&key(Scheme::Keymill, "new"), 0)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
}

#[test]
fn settings_of_the_role_change_no_number() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    let mut counting: Vec<_> = schemes::on_postgres().map(|scheme| Counting::new(scheme, "orders")).collect();
    for one in &counting {
        store(server.options()).init(&[Arc::clone(&one.key)], false).unwrap();
    }
    for setting in [
        "default_transaction_isolation = serializable",
        "default_transaction_deferrable = on",
        "client_min_messages = error",
        "standard_conforming_strings = off",
        "row_security = off",
        "session_replication_role = replica",
        "search_path = nowhere, public",
        "synchronous_commit = local",
        "synchronous_commit = remote_apply",
        "quote_all_identifiers = on",
        "bytea_output = escape",
    ] {
        root.say(&format!("ALTER ROLE keymill SET {setting}"));
        let mut store = store(server.options());
        for one in &mut counting {
            for _ in 0..2 {
                one.next(&mut store).unwrap_or_else(|fault| panic!("{setting}: {fault}"));
            }
        }
    }
    for one in counting {
        assert_eq!(one.seen, 1 + 10 * one.ranges.len() as u64, "{}", one.key.name);
        assert_disjoint(one.ranges);
    }
}

#[test]
fn an_empty_copy_of_a_table_in_another_schema_is_not_counted_in() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    for scheme in schemes::on_postgres() {
        let mut one = Counting::new(scheme, "orders");
        let table = one.key.table.clone();
        let mut live = store(server.options());
        live.init(&[Arc::clone(&one.key)], false).unwrap();
        one.next(&mut live).unwrap();
        let copy = match scheme {
            Scheme::Sequence | Scheme::JpaSequence => {
                format!("CREATE SEQUENCE keymill.{table} INCREMENT BY 10")
            }
            _ => format!("CREATE TABLE keymill.{table} (LIKE public.{table} INCLUDING ALL)"),
        };
        let what = if scheme.is_sequence() { "SEQUENCE" } else { "TABLE" };
        root.say(&format!(
            "CREATE SCHEMA keymill AUTHORIZATION keymill; {copy}; \
             ALTER {what} keymill.{table} OWNER TO keymill"
        ));
        // A process that has counted stays with its table, on a new connection too.
        one.next(&mut live).unwrap();
        root.end_sessions();
        one.next(&mut live).unwrap();
        assert_eq!(one.seen, 31);
        assert_eq!(live.facts().unwrap().tables, [format!("public.{table}")]);
        // A new process gets an error.
        let both = ["`keymill`, `public`", "schema=NAME"];
        refused(store(server.options()).reserve(&ten(&one.key, 0)), &both);
        refused(store(server.options()).look(&one.key), &both);
        refused(store(server.options()).init(&[Arc::clone(&one.key)], false), &both);
        let named = |schema: &str| ServerOptions { schema: Some(schema.to_owned()), ..server.options() };
        assert_eq!(store(named("public")).reserve(&ten(&one.key, 0)).unwrap().lo, 31);
        assert_eq!(store(named("keymill")).reserve(&ten(&one.key, 0)).unwrap().lo, 1);
        // A `search_path` without the table creates no other table.
        root.say(&format!(
            "DROP {what} keymill.{table}; ALTER ROLE keymill SET search_path = nowhere, keymill"
        ));
        for _ in 0..2 {
            refused(store(server.options()).reserve(&ten(&one.key, 0)), &["`schema=public`"]);
            refused(store(server.options()).init(&[Arc::clone(&one.key)], false), &["`schema=public`"]);
        }
        root.say("ALTER ROLE keymill RESET search_path; DROP SCHEMA keymill");
        assert_eq!(store(server.options()).reserve(&ten(&one.key, 0)).unwrap().lo, 41);
    }
}

#[test]
fn tables_are_created_in_the_schema_that_the_url_names_or_the_first_of_the_search_path() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    root.say("CREATE SCHEMA \"My \"\"Shop\"\"\" AUTHORIZATION keymill; CREATE SCHEMA keymill AUTHORIZATION keymill");
    for scheme in schemes::on_postgres() {
        let keys = [key(scheme, "orders")];
        let named = ServerOptions { schema: Some("My \"Shop\"".to_owned()), ..server.options() };
        let mut there = store(named.clone());
        let statements = there.init(&keys, true).unwrap();
        assert!(statements[0].contains(" \"My \"\"Shop\"\"\".\""), "{statements:?}");
        refused(there.reserve(&ten(&keys[0], 0)), &["is missing"]);
        there.init(&keys, false).unwrap();
        assert_eq!(there.reserve(&ten(&keys[0], 0)).unwrap().lo, 1);
        assert_eq!(there.reserve(&ten(&keys[0], 0)).unwrap().lo, 11);
        let shown = format!("My \"Shop\".{}", keys[0].table);
        assert!(there.facts().unwrap().tables.contains(&shown), "{:?}", there.facts());
        // Statements of another `search_path` would not find it.
        refused(store(server.options()).reserve(&ten(&keys[0], 0)), &["schema=My \"Shop\""]);
        let statements =
            root.rows("SELECT count(*) FROM pg_tables WHERE schemaname IN ('public', 'keymill')");
        assert_eq!(statements, [["0"]], "none is made elsewhere");
    }
    let other = Key { table: "by_path".to_owned(), ..(*key(Scheme::Keymill, "orders")).clone() };
    let mut by_path = store(server.options());
    let statements = by_path.init(&[Arc::new(other)], false).unwrap();
    assert!(statements[0].contains("\"keymill\".\"by_path\""), "{statements:?}");
    let nowhere = ServerOptions { schema: Some("nowhere".to_owned()), ..server.options() };
    refused(store(nowhere).init(&[key(Scheme::Keymill, "orders")], false), &["nowhere", "schema="]);
    for path in ["''", "nowhere", "pg_catalog", "information_schema"] {
        root.say(&format!("ALTER ROLE keymill SET search_path = {path}"));
        let other = Key { table: "by_no_path".to_owned(), ..(*key(Scheme::Keymill, "orders")).clone() };
        let without = store(server.options()).init(&[Arc::new(other)], false);
        refused(without, &["search_path has no schema", "`by_no_path`", "`schema=NAME`"]);
    }
}

/// Functions, operators, types and tables in schema `public` with the names of the server's own. Each fails with its name
/// if it is used. Their owner is no superuser.
const TRAPS: &str = r"
CREATE FUNCTION public.trap(what pg_catalog.text) RETURNS bool LANGUAGE plpgsql AS
  $$ BEGIN RAISE EXCEPTION 'captured as %: %', current_user, what USING ERRCODE = 'XX000'; END $$;
DO $$
DECLARE f record;
BEGIN
  FOR f IN SELECT p.oid, p.proname, pg_get_function_identity_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result
           FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN PERFORM public.trap(%L); END $f$',
                     f.proname, f.arguments, f.result, f.oid::regprocedure);
    EXCEPTION WHEN OTHERS THEN NULL; -- pseudo-types
    END;
  END LOOP;
  FOR f IN SELECT oid, oprname, oprleft::regtype AS l, oprright::regtype AS r, oprresult::regtype AS result FROM pg_operator
           WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b' LOOP
    BEGIN
      EXECUTE format('CREATE FUNCTION public.op_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN PERFORM public.trap(%L); END $f$',
                     f.oid, f.l, f.r, f.result, f.oid::regoperator);
      EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.op_%s)', f.oprname, f.l, f.r, f.oid);
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END LOOP;
END $$;
-- Those that fit better than the server's own, wherever they come in the search_path.
DO $$
DECLARE types pg_catalog.text[] := '{text,varchar,bpchar,name,int2,int4,int8,oid,numeric}'; l pg_catalog.text; r pg_catalog.text; o pg_catalog.text;
BEGIN
  FOREACH l IN ARRAY types LOOP FOREACH r IN ARRAY types LOOP
    EXECUTE format('CREATE FUNCTION public.fit(%s, %s) RETURNS bool LANGUAGE plpgsql AS $f$ BEGIN RETURN public.trap(%L); END $f$', l, r, l || r);
    FOREACH o IN ARRAY '{=,<>,<,>,<=,>=,~~,!~,~,+,-,||}'::pg_catalog.text[] LOOP
      BEGIN
        EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.fit)', o, l, r);
      EXCEPTION WHEN OTHERS THEN NULL;
      END;
    END LOOP;
  END LOOP; END LOOP;
END $$;
CREATE FUNCTION public.format_type(oid, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM public.trap('format_type'); END $$;
CREATE FUNCTION public.to_regclass(varchar) RETURNS regclass LANGUAGE plpgsql AS $$ BEGIN PERFORM public.trap('to_regclass'); END $$;
DO $$
DECLARE name pg_catalog.text;
BEGIN
  FOREACH name IN ARRAY '{text,int2,int4,int8,oid,bool,name,regclass,regtype,varchar,timestamptz,timestamp,numeric}'::pg_catalog.text[] LOOP
    EXECUTE format('CREATE DOMAIN public.%1$I AS pg_catalog.%1$I CHECK (public.trap(%2$L))', name, 'type ' || name);
  END LOOP;
  FOREACH name IN ARRAY '{pg_class,pg_namespace,pg_attribute,pg_index,pg_settings,pg_sequence,pg_inherits,pg_rewrite,pg_subscription,pg_type,pg_range,pg_enum}'::pg_catalog.text[] LOOP
    EXECUTE format('CREATE VIEW public.%I AS SELECT public.trap(%L)', name, 'table ' || name);
  END LOOP;
END $$;
";

fn failed(doing: &str, round: u64, fault: &Fault) -> ! {
    panic!("{doing}, round {round}: {fault}")
}

/// Every statement of a store, at least once.
fn exercise(options: &ServerOptions, round: u64) {
    let mut store = store(options.clone());
    let facts = store.facts().unwrap_or_else(|fault| failed("facts", round, &fault));
    assert!(facts.warnings.is_empty(), "{facts:?}");
    for scheme in schemes::on_postgres() {
        let mut one = Counting::new(scheme, &format!("orders{round}"));
        store.init(&[Arc::clone(&one.key)], false).unwrap_or_else(|fault| failed("init", round, &fault));
        let stood = store
            .look(&one.key)
            .unwrap_or_else(|fault| failed("look", round, &fault))
            .map_or(1, |row| row.mark.next);
        for _ in 0..6 {
            one.next(&mut store).unwrap_or_else(|fault| failed(scheme.name(), round, &fault));
        }
        assert_eq!(one.seen, stood + 60, "{scheme:?}");
        let period = ten(&one.key, 0).period;
        store.age(&one.key).unwrap_or_else(|fault| failed("age", round, &fault));
        let last = *one.ranges.last().unwrap();
        let back = store
            .give_back(&GiveBack::new(&one.key, period, last.0, last.1))
            .unwrap_or_else(|fault| failed("give back", round, &fault));
        assert_eq!(back, !scheme.is_sequence());
        store
            .repair(&one.key, Mark { period, next: one.seen + 1000 })
            .unwrap_or_else(|fault| failed("repair", round, &fault));
        if scheme == Scheme::LeafAlloc || scheme == Scheme::KeyProducer {
            let new = Arc::new(Key {
                scheme: Scheme::Keymill,
                table: "keymill_segment".into(),
                ..(*one.key).clone()
            });
            store.import(&one.key, &new, period).unwrap_or_else(|fault| failed("import", round, &fault));
            store.new_owner(&one.key, &new).unwrap_or_else(|fault| failed("new owner", round, &fault));
        }
    }
    store
        .raise(&key(Scheme::Keymill, &format!("mark{round}")), None, 7)
        .unwrap_or_else(|fault| failed("raise", round, &fault));
    let together: Vec<_> = (0..2).map(|n| ten(&key(Scheme::Keymill, &format!("together{n}")), 0)).collect();
    for request in &together {
        store.reserve(request).unwrap_or_else(|fault| failed("reserve", round, &fault));
    }
    assert!(store.reserve_all(&together).into_iter().all(|got| got.is_some_and(|got| got.is_ok())));
    for business in ["cust_text", "cust_bytes"] {
        let patterns = SerialPattern::new("yyyyMMdd", &"0".repeat(4 + round as usize), "UTC").unwrap();
        let serial = SerialKey {
            table: business.to_owned(),
            column: "id".to_owned(),
            pattern: patterns,
            init_max: true,
        };
        let (scheme, table) = (Scheme::KeyProducer, Scheme::KeyProducer.default_table());
        let got = store
            .reserve(&ten(&Arc::new(schemes::key(scheme, table, business, Some(serial))), 0))
            .unwrap_or_else(|fault| failed("init=max", round, &fault));
        assert_eq!(got.lo, if round == 0 { 78 } else { 1 }, "the largest serial of this pattern");
    }
}

#[test]
fn objects_of_another_role_are_not_used_instead_of_the_servers_own() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    root.say(
        "CREATE ROLE evil LOGIN PASSWORD 'evil'; GRANT CREATE, USAGE ON SCHEMA public TO PUBLIC; \
         CREATE TABLE cust_text (id varchar(64)); INSERT INTO cust_text VALUES ('202611200077'); \
         CREATE TABLE cust_bytes (id bytea); INSERT INTO cust_bytes VALUES ('202611200077'); \
         GRANT SELECT ON cust_text, cust_bytes TO keymill",
    );
    let evil = ServerOptions {
        user: "evil".into(),
        password: keymill::store::Secret::new("evil"),
        ..server.options()
    };
    Sql::to(&evil).say(TRAPS);
    let caught = root.try_say("SET search_path = public, pg_catalog; SELECT 1 = 1").unwrap_err();
    assert!(format!("{caught:?}").contains("captured as postgres"), "the traps work: {caught:?}");
    root.say("SET search_path = pg_catalog");
    exercise(&server.options(), 0);
    root.say("ALTER ROLE keymill SET search_path = public, pg_catalog");
    exercise(&server.options(), 1);
    // Behind a pooler the statements differ.
    let pooled = server.pooler(&[]);
    exercise(&pooled, 2);
    Sql::to(&pooled).say("SET search_path = public, pg_catalog, pg_temp");
    exercise(&pooled, 3);
}

#[test]
fn a_setting_that_loses_commits_is_noticed_by_the_next_statement() {
    for setting in ["fsync", "full_page_writes"] {
        let server = Private::start("");
        let root = Sql::root(&server.url());
        let now = |value: &str| {
            root.say(&format!("ALTER SYSTEM SET {setting} = {value}"));
            root.say("SELECT pg_reload_conf()");
            until("the setting arrives", PATIENCE, || root.rows(&format!("SHOW {setting}")) == [[value]]);
        };
        for scheme in [Scheme::Keymill, Scheme::KeyProducer, Scheme::Sequence] {
            let mut one = Counting::new(scheme, "orders");
            let mut live = store(server.options());
            live.init(&[Arc::clone(&one.key)], false).unwrap();
            let mut warned = store(ServerOptions { durability: Durability::Warn, ..server.options() });
            for _ in 0..3 {
                one.next(&mut live).unwrap();
                one.next(&mut warned).unwrap();
            }
            now("off");
            let deadline = Instant::now() + PATIENCE;
            let fault = loop {
                // Each backend receives the signal on its own.
                match one.next(&mut live) {
                    Ok(()) => assert!(Instant::now() < deadline, "it is noticed"),
                    Err(fault) => break fault,
                }
            };
            assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
            assert!(fault.to_string().contains(&format!("{setting}=off")), "{fault}");
            assert_eq!(
                one.next(&mut live).unwrap_err().kind,
                FaultKind::Unsafe,
                "a new connection is refused"
            );
            until("the setting is warned of", PATIENCE, || {
                one.next(&mut warned).unwrap();
                warned
                    .facts()
                    .unwrap()
                    .warnings
                    .iter()
                    .any(|warning| warning.contains(&format!("{setting}=off")))
            });
            now("on");
            until("it is used again", PATIENCE, || one.next(&mut live).is_ok());
            assert_disjoint(one.ranges);
        }
    }
}

#[test]
fn unawaited_standbys_are_reported() {
    let server = Private::start("-c wal_level=replica");
    let root = Sql::root(&server.url());
    server.ci(&["replica", "sync"]);
    let mut one = Counting::new(Scheme::Keymill, "orders");
    let mut live = store(server.options());
    live.init(&[Arc::clone(&one.key)], false).unwrap();
    one.next(&mut live).unwrap();
    assert!(live.facts().unwrap().warnings.is_empty());
    root.say("ALTER SYSTEM SET synchronous_standby_names = ''");
    root.say("SELECT pg_reload_conf()");
    until("it is told", PATIENCE, || {
        one.next(&mut live).unwrap();
        live.facts().unwrap().warnings.iter().any(|warning| warning.contains("wait for no standby any more"))
    });
}

#[test]
fn a_sequence_that_caches_values_is_refused_with_the_remedy() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    let pooled = server.pooler(&["default_pool_size = 3"]);
    let key = key(Scheme::Sequence, "orders");
    store(server.options()).init(&[Arc::clone(&key)], false).unwrap();
    root.say("ALTER SEQUENCE public.keymill_sequence CACHE 20");
    for options in [server.options(), pooled.clone()] {
        refused(
            store(options).reserve(&ten(&key, 0)),
            &["CACHE 20", "`ALTER SEQUENCE \"public\".\"keymill_sequence\" CACHE 1`"],
        );
    }
    root.say("ALTER SEQUENCE public.keymill_sequence CACHE 1");
    let ranges = std::thread::scope(|scope| {
        let draw = || {
            let mut one = Counting { key: Arc::clone(&key), seen: 0, ranges: Vec::new() };
            let mut store = store(pooled.clone());
            (0..30).for_each(|_| one.next(&mut store).unwrap());
            one.ranges
        };
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(ranges.len(), 90);
    assert_disjoint(ranges);
}

#[test]
fn a_search_for_the_largest_serial_that_takes_too_long_ends_on_the_server_and_is_not_repeated_at_once() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    let pooled = server.pooler(&[]);
    // Each row takes a second to read.
    root.say(
        "CREATE TABLE rows_of_cust (id varchar(64)); INSERT INTO rows_of_cust SELECT '20261120' || to_char(n, 'FM0000') \
         FROM generate_series(1, 100) AS n; \
         CREATE VIEW cust AS SELECT CASE WHEN pg_sleep(1) IS NULL THEN '' ELSE id END AS id FROM rows_of_cust; \
         GRANT SELECT ON cust, rows_of_cust TO keymill",
    );
    let mut cust = (*key(Scheme::KeyProducer, "cust")).clone();
    cust.serial.as_mut().unwrap().init_max = true;
    let cust = Arc::new(cust);
    store(server.options()).init(&[Arc::clone(&cust)], false).unwrap();
    for options in [server.options(), pooled] {
        let mut store = store(ServerOptions { read_timeout: Duration::from_secs(10), ..options });
        let running = || {
            root.rows("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND usename = 'keymill'")
                [0][0]
                .clone()
        };
        let fault = store.reserve(&ten(&cust, 0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
        assert!(fault.to_string().contains("CREATE INDEX ON \"public\".\"cust\""), "{fault}");
        until("nothing goes on there", PATIENCE, || running() == "0");
        for _ in 0..5 {
            let again = store.reserve(&ten(&cust, 0)).unwrap_err();
            assert_eq!(again.to_string(), fault.to_string());
            assert_eq!(running(), "0", "it is not asked again");
        }
        // The mill's other sources continue.
        assert!(store.reserve(&ten(&key(Scheme::KeyProducer, "others"), 0)).is_ok());
    }
}

#[test]
fn the_index_that_the_message_names_is_used() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    for (of_type, index) in [
        ("varchar(64)", "id text_pattern_ops"),
        ("text", "id text_pattern_ops"),
        ("bigint", "(CAST(id AS pg_catalog.text)) text_pattern_ops"),
    ] {
        root.say(&format!(
            "DROP TABLE IF EXISTS cust; CREATE TABLE cust (id {of_type}); \
             INSERT INTO cust SELECT CAST('20261119' || to_char(n, 'FM00000000') AS {of_type}) FROM generate_series(1, 50000) AS n; \
             CREATE INDEX ON cust ({index}); ANALYZE cust"
        ));
        let plan = root.rows(
            "EXPLAIN SELECT 1 FROM public.cust WHERE CAST(\"id\" AS pg_catalog.text) OPERATOR(pg_catalog.~~) \
             pg_catalog.like_escape('20261120%', '|')",
        );
        assert!(format!("{plan:?}").contains("Index"), "{of_type}: {plan:?}");
    }
}

#[test]
fn a_table_whose_statements_change_other_rows_is_refused() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    let key = key(Scheme::Keymill, "orders");
    let ddl = store(server.options()).init(&[Arc::clone(&key)], false).unwrap()[0].clone();
    let shape = "(name TEXT COLLATE \"C\" NOT NULL PRIMARY KEY, date BIGINT NOT NULL DEFAULT 0, next BIGINT NOT NULL, \
                 state TEXT COLLATE \"C\" NOT NULL DEFAULT 'open', stores BIGINT NOT NULL DEFAULT 1, \
                 store BIGINT NOT NULL DEFAULT 1, chunk BIGINT NOT NULL DEFAULT 0, writer BIGINT NOT NULL DEFAULT 0, \
                 updated_at TIMESTAMPTZ NOT NULL DEFAULT now())";
    for (make, says) in [
        (format!("{ddl}; CREATE RULE r AS ON UPDATE TO keymill_segment DO INSTEAD NOTHING"), "rule"),
        (format!("{ddl}; CREATE TABLE child () INHERITS (keymill_segment)"), "inherit"),
        ("CREATE VIEW keymill_segment AS SELECT 'a' AS name, 1 AS next".to_owned(), "is no table"),
        (
            format!(
                "CREATE TABLE keymill_segment {shape} PARTITION BY HASH (name); \
                 CREATE UNLOGGED TABLE part PARTITION OF keymill_segment FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
            ),
            "UNLOGGED",
        ),
        (
            format!(
                "{ddl}; CREATE SUBSCRIPTION far CONNECTION 'host=127.0.0.1 port=1 dbname=x' PUBLICATION p \
                 WITH (connect = false); ALTER SUBSCRIPTION far ENABLE"
            ),
            "",
        ),
    ] {
        root.say("DROP TABLE IF EXISTS keymill_segment CASCADE");
        root.say(&make);
        root.say("GRANT ALL ON keymill_segment TO keymill");
        let answer = store(server.options()).reserve(&ten(&key, 0));
        if says.is_empty() {
            assert_eq!(answer.unwrap().lo, 1, "a subscription that does not have the table");
            // As a refresh of the publication inserts it.
            root.say(
                "SET allow_system_table_mods = on; INSERT INTO pg_subscription_rel SELECT oid, 'keymill_segment'::regclass, 'r' \
                 FROM pg_subscription",
            );
            let fault = store(server.options()).reserve(&ten(&key, 0)).unwrap_err();
            assert!(
                fault.kind == FaultKind::Unsafe && fault.to_string().contains("subscription `far`"),
                "{fault}"
            );
            continue;
        }
        let fault = answer.expect_err(says);
        assert!(matches!(fault.kind, FaultKind::Refused | FaultKind::Unsafe), "{fault}");
        assert!(fault.to_string().contains(says), "{says}: {fault}");
        if says == "is no table" {
            root.say("DROP VIEW keymill_segment");
        }
    }
    root.say("ALTER SUBSCRIPTION far DISABLE; ALTER SUBSCRIPTION far SET (slot_name = NONE); DROP SUBSCRIPTION far");
    // Sound tables work: permanent partitions, row security that permits the rows, an audit trigger.
    root.say("DROP TABLE keymill_segment");
    root.say(&format!(
        "CREATE TABLE keymill_segment {shape} PARTITION BY HASH (name); \
         CREATE TABLE part PARTITION OF keymill_segment FOR VALUES WITH (MODULUS 1, REMAINDER 0); \
         ALTER TABLE keymill_segment ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON keymill_segment USING (true); \
         CREATE TABLE audit (next bigint); CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS \
         $$ BEGIN INSERT INTO audit VALUES (NEW.next); RETURN NULL; END $$; \
         CREATE TRIGGER audit AFTER UPDATE ON keymill_segment FOR EACH ROW EXECUTE FUNCTION audit(); \
         GRANT ALL ON keymill_segment, audit TO keymill"
    ));
    let mut one = Counting::new(Scheme::Keymill, "orders");
    let mut live = store(server.options());
    (0..6).for_each(|_| one.next(&mut live).unwrap());
    assert_eq!((one.seen, root.rows("SELECT count(*) FROM audit")), (61, vec![vec!["5".to_owned()]]));
    // The function that relies on its caller's `search_path` is told what to do.
    root.say("ALTER FUNCTION audit() RESET search_path");
    let fault = store(server.options()).reserve(&ten(&key, 0)).unwrap_err().to_string();
    assert!(fault.contains("`ALTER FUNCTION … SET search_path = …`") && !fault.contains("init"), "{fault}");
    root.say("ALTER FUNCTION audit() SET search_path = public");
    // Row security that hides the row causes an error, and no second row.
    root.say("DROP POLICY p ON keymill_segment; CREATE POLICY p ON keymill_segment USING (false) WITH CHECK (true)");
    assert!(store(server.options()).reserve(&ten(&key, 0)).is_err());
    assert_eq!(root.rows("SELECT next FROM keymill_segment"), [["61"]]);
}

/// A subscription brings the rows that hold the other server's ids, and not where its sequences stand.
#[test]
fn a_sequence_of_a_logical_subscriber_is_refused() {
    let server = Private::start("-c wal_level=logical");
    let root = Sql::root(&server.url());
    root.say(
        "CREATE SEQUENCE orders_seq INCREMENT BY 10; GRANT USAGE, SELECT ON SEQUENCE orders_seq TO keymill; \
         CREATE SUBSCRIPTION far CONNECTION 'host=127.0.0.1 port=1 dbname=x' PUBLICATION p WITH (connect = false)",
    );
    let key = |scheme| Arc::new(Key { step: 10, ..schemes::key(scheme, "orders_seq", "orders", None) });
    for scheme in [Scheme::Sequence, Scheme::JpaSequence] {
        let key = key(scheme);
        assert!(store(server.options()).reserve(&ten(&key, 0)).is_ok(), "a subscription that is not enabled");
        root.say("ALTER SUBSCRIPTION far ENABLE");
        let before = root.rows("SELECT last_value FROM orders_seq");
        let fault = store(server.options()).reserve(&ten(&key, 0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
        assert!(fault.to_string().contains("subscription `far`"), "{fault}");
        assert_eq!(root.rows("SELECT last_value FROM orders_seq"), before, "nothing was drawn");
        root.say("ALTER SUBSCRIPTION far DISABLE");
    }
    root.say("ALTER SUBSCRIPTION far SET (slot_name = NONE); DROP SUBSCRIPTION far");
}

#[test]
fn a_connection_has_an_application_name_and_is_closed_when_idle() {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    let backends = || root.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'keymill'").len();
    let mill = keymill::Mill::open(&format!("{}&idle_timeout=300ms", patient(&server.url()))).unwrap();
    let spec = "segment:orders?step=10&max_step=10&buffer=1ms&deadline=60s";
    mill.init(&[spec], keymill::Change::Apply).unwrap();
    let source = mill.source(spec).unwrap();
    for _ in 0..2 {
        source.next().unwrap();
        until("the idle connection is closed", PATIENCE, || backends() == 0);
        source.take(20).unwrap();
    }
    mill.close();
}

#[test]
fn another_protocol_at_the_port_is_not_reported_as_a_certificate_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"R\x00\x00\x00\x03garbage garbage garbage\n");
        }
    });
    let options = ServerOptions {
        hosts: vec![("127.0.0.1".to_owned(), port)],
        user: "app".to_owned(),
        database: "ids".to_owned(),
        ..ServerOptions::default()
    };
    let fault = store(options).reserve(&ten(&key(Scheme::Keymill, "orders"), 0)).unwrap_err();
    assert!(!fault.to_string().contains("ca="), "{fault}");
    assert!(fault.to_string().contains("is it a PostgreSQL server?"), "{fault}");
}
