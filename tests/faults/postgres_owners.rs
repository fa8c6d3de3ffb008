//! Tables, functions, policies and triggers of other roles in a PostgreSQL. keymill uses only what its own role, a role it belongs
//! to, the database's owner or a superuser owns: all else may be planted, and would run with keymill's rights or count instead of
//! its table. A refusal names the owner and the statements that help, and no login without rights stops a mill.
//!
//! Each test has a server of its own, started by `ci/servers/postgres`.

use std::sync::Arc;

use keymill::store::postgres::ServerOptions;
use keymill::store::{Catalogue, FaultKind, RowStore, Scheme, Secret};
use keymill::{Code, Mill};
use keymill_tests::ci::patient;
use keymill_tests::postgres::{Private, Sql, store};
use keymill_tests::schemes;

use super::postgres_options::{key, refused, ten};

/// A server where every role may create in `public`, as PostgreSQL before version 15 is installed, and its superuser.
fn open_to_all() -> (Private, Sql) {
    let server = Private::start("");
    let root = Sql::root(&server.url());
    root.say("CREATE ROLE evil LOGIN PASSWORD 'evil'; GRANT CREATE ON SCHEMA public TO PUBLIC");
    (server, root)
}

fn login(server: &Private, user: &str) -> ServerOptions {
    ServerOptions { user: user.to_owned(), password: Secret::new(user), ..server.options() }
}

/// The role without rights.
fn evil(server: &Private) -> Sql {
    Sql::to(&login(server, "evil"))
}

/// A function of the role that speaks: it sets every counter to 1 where it runs with keymill's rights.
const THEFT: &str = "CREATE FUNCTION public.theft() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN \
     IF current_user <> 'evil' THEN UPDATE public.keymill_segment SET next = 1; END IF; RETURN true; END $$";

fn counts_at(root: &Sql) -> String {
    root.rows("SELECT next FROM public.keymill_segment")[0][0].clone()
}

#[test]
fn a_policy_on_a_planted_route_table_does_not_run_when_routers_are_listed() {
    let (server, root) = open_to_all();
    let spec = "segment:orders?step=100&max_step=100&deadline=60s";
    let mill = Mill::open(&patient(&server.url())).unwrap();
    mill.init(&[spec], keymill::Change::Apply).unwrap();
    let source = mill.source(spec).unwrap();
    source.take(301).unwrap();
    let evil = evil(&server);
    evil.say(&format!(
        "{THEFT}; CREATE TABLE public.keymill_route (name text PRIMARY KEY, version bigint, table_text text); \
         ALTER TABLE public.keymill_route ENABLE ROW LEVEL SECURITY; \
         CREATE POLICY p ON public.keymill_route USING (public.theft()); GRANT ALL ON public.keymill_route TO PUBLIC; \
         INSERT INTO public.keymill_route VALUES ('a', 1, '')"
    ));
    let listed = mill.stored_routers();
    assert_ne!(counts_at(&root), "1", "nothing of the other role has run");
    let error = listed.expect_err("it is refused");
    assert_eq!(error.code, Code::StoreRefused, "{error}");
    for word in ["`public.keymill_route`", "`evil`", "`DROP TABLE \"public\".\"keymill_route\"`"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    source.take(301).expect("the sources go on");
    mill.close();
}

#[test]
fn a_trigger_on_a_planted_worker_table_does_not_run() {
    let (server, root) = open_to_all();
    store(server.options()).init(&[key(Scheme::Keymill, "orders")], false).unwrap();
    assert_eq!(store(server.options()).reserve(&ten(&key(Scheme::Keymill, "orders"), 0)).unwrap().hi, 11);
    evil(&server).say(
        "CREATE FUNCTION public.theft() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         UPDATE public.keymill_segment SET next = 1; RETURN NEW; END $$; \
         CREATE TABLE public.keymill_worker (pool text NOT NULL, slot bigint NOT NULL, token bigint, mark bigint, ends_at bigint, \
         state text, source text, process text, layout text, stores bigint, store bigint, PRIMARY KEY (pool, slot)); GRANT ALL ON public.keymill_worker TO PUBLIC; \
         CREATE TRIGGER t BEFORE INSERT OR UPDATE ON public.keymill_worker FOR EACH ROW EXECUTE FUNCTION public.theft()",
    );
    let mill = Mill::open(&patient(&server.url())).unwrap();
    let answer = mill.source("snowflake:tx?deadline=60s").and_then(|source| source.next());
    assert_eq!(counts_at(&root), "11", "nothing of the other role has run");
    let error = answer.expect_err("it is refused");
    assert_eq!(error.code, Code::StoreRefused, "{error}");
    assert!(error.to_string().contains("`public.keymill_worker`"), "{error}");
    assert!(error.to_string().contains("`evil`"), "{error}");
    mill.close();
}

/// A counter's table, as `init` makes it.
fn shape(server: &Private) -> String {
    let ddl = store(server.options()).init(&[key(Scheme::Keymill, "orders")], true).unwrap();
    ddl[0].replace("IF NOT EXISTS ", "")
}

/// The statements in a message, each in backticks.
fn statements(message: &str, verb: &str) -> Vec<String> {
    let quoted = message.split('`').skip(1).step_by(2);
    quoted.filter(|text| text.starts_with(verb)).map(str::to_owned).collect()
}

#[test]
fn a_table_is_used_only_if_its_owner_may_decide_what_keymill_does() {
    let (server, root) = open_to_all();
    let orders = key(Scheme::Keymill, "orders");
    root.say(&format!(
        "{}; GRANT SELECT, INSERT, UPDATE, DELETE ON public.keymill_segment TO PUBLIC; \
         CREATE ROLE chief; CREATE ROLE direct; CREATE ROLE far; CREATE ROLE admin CREATEROLE; \
         CREATE ROLE by_admin; GRANT by_admin TO admin WITH ADMIN OPTION; CREATE ROLE keyless NOINHERIT; CREATE ROLE boss SUPERUSER; CREATE ROLE below; \
         ALTER DATABASE ids OWNER TO chief; GRANT direct TO keymill; GRANT far TO direct; GRANT keymill TO below; \
         GRANT by_admin TO keymill GRANTED BY admin; GRANT evil TO chief; \
         CREATE ROLE keeper; GRANT keymill TO keeper WITH ADMIN OPTION; \
         CREATE ROLE by_keeper; GRANT by_keeper TO keeper WITH ADMIN OPTION; GRANT by_keeper TO keymill GRANTED BY keeper; \
         CREATE ROLE of_boss; GRANT of_boss TO boss; CREATE ROLE fellow; GRANT chief TO fellow; CREATE ROLE past; GRANT past TO evil",
        shape(&server)
    ));
    // From 16 on CREATEROLE alone grants no role that is there already.
    let may_grant_all = root.version() < 16;
    root.say("CREATE ROLE sly");
    let grantor = if may_grant_all {
        // As each login may do it before PostgreSQL 15, for itself and for a role that keymill belongs to.
        root.say("GRANT sly TO direct GRANTED BY sly");
        "evil"
    } else {
        // As a role with CREATEROLE may do it with each role that it has made.
        root.say("GRANT evil TO sly WITH ADMIN OPTION");
        "sly"
    };
    root.say(&format!("GRANT evil TO keymill GRANTED BY {grantor}"));
    for (owner, is_used) in [
        ("keymill", true),
        ("direct", true),
        ("far", true),
        ("by_admin", may_grant_all),
        ("by_keeper", true),
        // They may make themselves keymill's role.
        ("admin", may_grant_all),
        ("keeper", true),
        ("chief", true),
        ("fellow", true),
        ("postgres", true),
        ("boss", true),
        ("pg_database_owner", true),
        ("evil", false),
        ("sly", false),
        ("past", false),
        ("of_boss", false),
        ("keyless", false),
        ("below", false),
    ] {
        if owner == "pg_database_owner" && root.version() < 14 {
            continue;
        }
        root.say(&format!("ALTER TABLE public.keymill_segment OWNER TO {owner}"));
        let answer = store(server.options()).reserve(&ten(&orders, 0));
        if is_used {
            answer.unwrap_or_else(|fault| panic!("{owner}: {fault}"));
            continue;
        }
        let role = format!("role `{owner}`");
        refused(answer, &["`public.keymill_segment`", &role]);
        refused(store(server.options()).look(&orders), &[&role]);
        refused(store(server.options()).init(&[Arc::clone(&orders)], false), &[&role]);
        refused(
            store(server.options()).repair(&orders, keymill::store::Mark { period: 0, next: 500 }),
            &[&role],
        );
        let named = ServerOptions { schema: Some("public".to_owned()), ..server.options() };
        refused(store(named).reserve(&ten(&orders, 0)), &[&role]);
    }
    // A superuser belongs to every role, and is not fooled either.
    root.say("ALTER TABLE public.keymill_segment OWNER TO evil");
    let superuser =
        ServerOptions { user: "postgres".into(), password: Secret::new("root"), ..server.options() };
    refused(store(superuser.clone()).reserve(&ten(&orders, 0)), &["role `evil`"]);
    // Each remedy of the message helps.
    let message = store(server.options()).reserve(&ten(&orders, 0)).unwrap_err().to_string();
    for verb in ["ALTER TABLE", "GRANT"] {
        let run = statements(&message, verb);
        assert_eq!(run.len(), 1, "{verb}: {message}");
        root.say(&format!(
            "ALTER TABLE public.keymill_segment OWNER TO evil; REVOKE evil FROM keymill GRANTED BY {grantor}"
        ));
        root.say(&run[0]);
        store(server.options()).reserve(&ten(&orders, 0)).unwrap_or_else(|fault| panic!("{verb}: {fault}"));
        root.say(&format!("GRANT evil TO keymill GRANTED BY {grantor}; REVOKE evil FROM keymill"));
    }
    root.say("ALTER TABLE public.keymill_segment OWNER TO evil");
    for verb in ["DROP TABLE", "REVOKE CREATE"] {
        let run = statements(&message, verb);
        assert_eq!(run.len(), 1, "{verb}: {message}");
        root.say(&run[0]);
    }
    assert!(
        evil(&server).try_say("CREATE TABLE public.keymill_segment ()").is_err(),
        "it cannot plant again"
    );
    refused(store(server.options()).reserve(&ten(&orders, 0)), &["is missing"]);
}

#[test]
fn a_planted_table_stops_no_mill_whose_own_table_is_there() {
    let (server, root) = open_to_all();
    root.say("GRANT CREATE ON DATABASE ids TO evil; CREATE SCHEMA first; GRANT USAGE, CREATE ON SCHEMA first TO PUBLIC");
    root.say("ALTER ROLE keymill SET search_path = first, public");
    let evil = evil(&server);
    evil.say("CREATE SCHEMA far; GRANT USAGE ON SCHEMA far TO PUBLIC");
    for scheme in schemes::on_postgres() {
        let orders = key(scheme, "orders");
        let table = &orders.table;
        let named = ServerOptions { schema: Some("public".to_owned()), ..server.options() };
        store(named).init(&[Arc::clone(&orders)], false).unwrap();
        assert_eq!(store(server.options()).reserve(&ten(&orders, 0)).unwrap().lo, 1);
        for schema in ["first", "far"] {
            evil.say(&match scheme {
                Scheme::Sequence | Scheme::JpaSequence => format!(
                    "CREATE SEQUENCE {schema}.{table} INCREMENT BY 10; GRANT ALL ON SEQUENCE {schema}.{table} TO PUBLIC"
                ),
                _ => format!("CREATE TABLE {schema}.{table} (x bigint); GRANT ALL ON {schema}.{table} TO PUBLIC"),
            });
            let mut fresh = store(server.options());
            let got = fresh
                .reserve(&ten(&orders, 0))
                .unwrap_or_else(|fault| panic!("{scheme:?}, {schema}: {fault}"));
            assert!(got.lo > 10, "{scheme:?}: {got:?}");
            fresh.look(&orders).unwrap().expect("the row of its own table");
            assert_eq!(fresh.init(&[Arc::clone(&orders)], false).unwrap(), Vec::<String>::new());
            assert_eq!(fresh.facts().unwrap().tables, [format!("public.{table}")]);
        }
        // Alone it is refused, on the search_path and elsewhere: it may be the old table under a wrong role.
        let what = if scheme.is_sequence() { "SEQUENCE" } else { "TABLE" };
        root.say(&format!("DROP {what} public.{table}"));
        for schema in ["first", "far"] {
            let place = format!("`{schema}.{table}`");
            let drop = format!("`DROP {what} \"{schema}\".\"{table}\"`");
            refused(
                store(server.options()).reserve(&ten(&orders, 0)),
                &[&place, "role `evil`", &drop, "`schema=`"],
            );
            refused(store(server.options()).init(&[Arc::clone(&orders)], false), &[&place, "role `evil`"]);
            root.say(&format!("DROP {what} {schema}.{table}"));
        }
        refused(store(server.options()).reserve(&ten(&orders, 0)), &["is missing"]);
    }
}

#[test]
fn a_table_that_another_role_planted_off_the_path_stops_no_fixed_worker() {
    let (server, root) = open_to_all();
    root.say("CREATE SCHEMA evil AUTHORIZATION evil; CREATE SCHEMA hid; GRANT USAGE ON SCHEMA hid TO PUBLIC");
    let owner = Mill::open(&patient(&server.url())).unwrap();
    owner.init(&["snowflake:orders?worker=1"], keymill::Change::Apply).unwrap();
    owner.close();
    root.say("DROP TABLE IF EXISTS public.keymill_worker");
    let begin = |when: &str| {
        let mill = Mill::open(&patient(&server.url())).unwrap();
        let source = mill.source("snowflake:orders?worker=1&deadline=60s");
        let id = source.and_then(|source| source.next()).unwrap_or_else(|error| panic!("{when}: {error}"));
        mill.close();
        id
    };
    let mut last = begin("without another table");
    evil(&server).say(
        "GRANT USAGE ON SCHEMA evil TO PUBLIC; CREATE TABLE evil.keymill_worker (x int); \
         GRANT SELECT ON evil.keymill_worker TO PUBLIC",
    );
    let mut next = |when: &str| {
        let id = begin(when);
        assert!(id > last, "{when}: {id} after {last}");
        last = id;
    };
    next("another role's table");
    next("the same again");
    // A trusted role's, which the search path does not find.
    root.say("DROP TABLE evil.keymill_worker; CREATE TABLE hid.keymill_worker (x int); GRANT SELECT ON hid.keymill_worker TO PUBLIC");
    next("a table off the path");
    let leased = Mill::open(&patient(&server.url())).unwrap();
    let error = leased.source("snowflake:other?deadline=60s").and_then(|source| source.next());
    assert_eq!(error.expect_err("the table that it needs is refused").code, Code::StoreRefused);
    leased.close();
}

#[test]
fn init_without_a_schema_in_the_path_says_to_name_one() {
    let (server, root) = open_to_all();
    root.say("ALTER ROLE keymill SET search_path = nowhere");
    let orders = key(Scheme::Keymill, "orders");
    refused(
        store(server.options()).init(&[Arc::clone(&orders)], false),
        &["`keymill_segment`", "write `schema=NAME` in the store's URL"],
    );
    let named = ServerOptions { schema: Some("public".to_owned()), ..server.options() };
    assert_eq!(store(named).init(&[orders], false).unwrap().len(), 1);
}

/// Functions, types and relations of the other role. Each function fails where it runs.
const TOOLS: &str = "CREATE SCHEMA e; GRANT USAGE ON SCHEMA e TO PUBLIC; \
     CREATE FUNCTION e.hit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it has run'; END $$; \
     CREATE FUNCTION e.yes(text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN \
     IF current_user = 'keymill' THEN RAISE EXCEPTION 'it has run'; END IF; RETURN true; END $$; \
     CREATE FUNCTION e.one() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it has run'; END $$; \
     CREATE FUNCTION e.compare(text, text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it has run'; END $$; \
     CREATE FUNCTION e.same(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it has run'; END $$; \
     CREATE OPERATOR e.=== (LEFTARG = text, RIGHTARG = text, FUNCTION = e.same); \
     CREATE DOMAIN e.id AS bigint DEFAULT 0; CREATE DOMAIN e.ids AS bigint[]; \
     CREATE VIEW e.rows AS SELECT true AS yes; CREATE TABLE e.lines (yes boolean); \
     CREATE TABLE e.part (LIKE public.keymill_segment INCLUDING ALL)";

#[test]
fn a_function_of_another_role_at_a_sound_table_is_refused_and_does_not_run() {
    let (server, root) = open_to_all();
    root.say("GRANT CREATE ON DATABASE ids TO evil");
    let orders = key(Scheme::Keymill, "orders");
    let make = format!(
        "{}; GRANT SELECT, INSERT, UPDATE, DELETE ON public.keymill_segment TO PUBLIC",
        shape(&server)
    );
    root.say(&make);
    evil(&server).say(TOOLS);
    let drop_trigger = "`DROP TRIGGER t on public.keymill_segment`";
    let drop_policy = "`DROP POLICY p on public.keymill_segment`";
    let of_table = "ALTER TABLE public.keymill_segment";
    let secure = "ALTER TABLE public.keymill_segment ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON public.keymill_segment";
    for (sql, says) in [
        (
            "GRANT TRIGGER ON public.keymill_segment TO evil; SET ROLE evil; \
             CREATE TRIGGER t BEFORE INSERT OR UPDATE ON public.keymill_segment FOR EACH ROW EXECUTE FUNCTION e.hit(); \
             RESET ROLE; REVOKE TRIGGER ON public.keymill_segment FROM evil"
                .to_owned(),
            ["trigger `t on public.keymill_segment`", "function `e.hit()`", drop_trigger],
        ),
        (
            "GRANT TRIGGER ON public.keymill_segment TO evil; SET ROLE evil; CREATE CONSTRAINT TRIGGER t AFTER UPDATE ON public.keymill_segment FOR EACH ROW \
             EXECUTE FUNCTION e.hit(); RESET ROLE; REVOKE TRIGGER ON public.keymill_segment FROM evil"
                .to_owned(),
            ["trigger `t on public.keymill_segment`", "function `e.hit()`", drop_trigger],
        ),
        (format!("{secure} USING (e.yes(name))"), ["policy `p on", "function `e.yes(", drop_policy]),
        (format!("{secure} USING (name OPERATOR(e.===) 'x')"), ["policy `p on", "function `e.same(", drop_policy]),
        (format!("{secure} USING ((SELECT yes FROM e.rows))"), ["policy `p on", "view `e.rows`", drop_policy]),
        (format!("{secure} USING (EXISTS (SELECT FROM e.lines))"), ["policy `p on", "table `e.lines`", drop_policy]),
        (
            format!("CREATE VIEW public.v AS SELECT e.yes('') AS yes; {secure} USING ((SELECT yes FROM public.v))"),
            ["policy `p on", "function `e.yes(", drop_policy],
        ),
        (
            format!(
                "CREATE FUNCTION public.wrapped(text) RETURNS boolean LANGUAGE sql BEGIN ATOMIC SELECT e.yes($1); END; \
                 {secure} USING (public.wrapped(name))"
            ),
            ["policy `p on", "function `e.yes(", drop_policy],
        ),
        (format!("{of_table} ALTER date SET DEFAULT e.one()"), ["default value", "function `e.one()`", "alter the table"]),
        (format!("{of_table} ADD CHECK (e.yes(name))"), ["table constraint", "function `e.yes(", "alter the table"]),
        (
            format!("{of_table} ADD more boolean GENERATED ALWAYS AS (e.yes(name)) STORED"),
            ["default value", "function `e.yes(", "alter the table"],
        ),
        (
            "CREATE INDEX public_i ON public.keymill_segment (e.yes(name))".to_owned(),
            ["index `public.public_i`", "function `e.yes(", "alter the table"],
        ),
        (
            "CREATE OPERATOR CLASS public.c FOR TYPE text USING btree AS FUNCTION 1 e.compare(text, text); \
             CREATE INDEX public_i ON public.keymill_segment (name public.c)"
                .to_owned(),
            ["index `public.public_i`", "function `e.compare(", "alter the table"],
        ),
        (format!("{of_table} ADD more e.id"), ["uses type `e.id` of role `evil`", "`ALTER TYPE e.id OWNER TO \"keymill\"`", "alter"]),
        // Its owner may add a check at any time.
        (format!("{of_table} ADD more e.ids"), ["uses type `e.ids` of role `evil`", "`ALTER TYPE e.ids OWNER TO \"keymill\"`", "alter"]),
        (
            format!("CREATE DOMAIN public.id AS bigint CHECK (e.yes('')); {of_table} ADD more public.id"),
            ["type `public.id`", "function `e.yes(", "alter the table"],
        ),
        (
            "DROP TABLE public.keymill_segment; CREATE TABLE public.keymill_segment (LIKE e.part INCLUDING DEFAULTS INCLUDING INDEXES) \
             PARTITION BY HASH (name); \
             ALTER TABLE public.keymill_segment ATTACH PARTITION e.part FOR VALUES WITH (MODULUS 1, REMAINDER 0); \
             GRANT SELECT, INSERT, UPDATE, DELETE ON public.keymill_segment TO PUBLIC"
                .to_owned(),
            ["table `e.part` of role `evil`", "`ALTER TABLE e.part OWNER TO \"keymill\"`", "GRANT"],
        ),
    ] {
        if sql.contains("BEGIN ATOMIC") && root.version() < 14 {
            continue;
        }
        root.say(&sql);
        let answer = store(server.options()).reserve(&ten(&orders, 0));
        let fault = answer.expect_err(&sql);
        assert_eq!(fault.kind, FaultKind::Refused, "{sql}: {fault}");
        // PostgreSQL 13 keeps a generated column's function with the column.
        let is_said = |word: &&str| root.version() >= 14 || !sql.contains("GENERATED") || *word != "default value";
        let says: Vec<&str> = says.into_iter().filter(is_said).collect();
        for word in says.iter().chain(&["role `evil`"]) {
            assert!(fault.to_string().contains(word), "{sql}: {word}: {fault}");
        }
        assert!(!fault.to_string().contains("it has run"), "{sql}: {fault}");
        refused(store(server.options()).look(&orders), &says);
        // What the message says helps.
        for statement in statements(&fault.to_string(), "DROP") {
            root.say(&statement);
            root.say("ALTER TABLE public.keymill_segment DISABLE ROW LEVEL SECURITY");
            store(server.options()).reserve(&ten(&orders, 0)).unwrap_or_else(|fault| panic!("{sql}: {fault}"));
        }
        root.say("DROP TABLE public.keymill_segment CASCADE; DROP VIEW IF EXISTS public.v; DROP FUNCTION IF EXISTS public.wrapped; \
                  DROP DOMAIN IF EXISTS public.id; DROP OPERATOR CLASS IF EXISTS public.c USING btree");
        root.say(&make);
    }
    // A foreign key of the other role's table runs nothing with keymill's rights.
    root.say("GRANT REFERENCES ON public.keymill_segment TO evil");
    evil(&server)
        .say("CREATE TABLE e.referring (name text REFERENCES public.keymill_segment ON UPDATE CASCADE)");
    store(server.options()).reserve(&ten(&orders, 0)).unwrap();
}

#[test]
fn another_roles_objects_are_refused_by_init_import_and_the_search_for_the_largest_serial() {
    let (server, root) = open_to_all();
    let evil = evil(&server);
    let orders = key(Scheme::Keymill, "orders");
    for (make, drop) in [
        ("CREATE TABLE public.keymill_segment (x int)", "TABLE"),
        ("CREATE VIEW public.keymill_segment AS SELECT 1 AS x", "VIEW"),
        ("CREATE MATERIALIZED VIEW public.keymill_segment AS SELECT 1 AS x", "MATERIALIZED VIEW"),
        ("CREATE SEQUENCE public.keymill_segment", "SEQUENCE"),
        ("CREATE TYPE public.keymill_segment AS (x int)", "TYPE"),
        ("CREATE TABLE public.of (x int); CREATE INDEX keymill_segment ON public.of (x)", "INDEX"),
    ] {
        evil.say(make);
        let init = store(server.options()).init(&[Arc::clone(&orders)], false);
        let run = format!("DROP {drop} \"public\".\"keymill_segment\"");
        refused(init, &["role `evil`", &run]);
        root.say(&run);
    }
    // The tables of other programs, and the business table, as the row of a serial reads it.
    let keymill = [Arc::clone(&orders), key(Scheme::KeyProducer, "cust")];
    store(server.options()).init(&keymill, false).unwrap();
    evil.say(
        "CREATE TABLE public.leaf_alloc (biz_tag varchar(128) PRIMARY KEY, max_id bigint, step int, description text, \
         update_time timestamptz); GRANT ALL ON public.leaf_alloc TO PUBLIC; \
         INSERT INTO public.leaf_alloc VALUES ('segment:orders', 1000000, 1); \
         CREATE FUNCTION public.run() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it has run'; END $$; \
         CREATE VIEW public.cust AS SELECT public.run() AS id; GRANT SELECT ON public.cust TO PUBLIC",
    );
    let old = key(Scheme::LeafAlloc, "orders");
    refused(store(server.options()).import(&old, &orders, 0), &["`public.leaf_alloc`", "role `evil`"]);
    assert_eq!(store(server.options()).look(&orders).unwrap(), None);
    let mut serial = (*keymill[1]).clone();
    serial.serial.as_mut().unwrap().init_max = true;
    let serial = Arc::new(serial);
    refused(
        store(server.options()).reserve(&ten(&serial, 0)),
        &["`public.cust`", "role `evil`", "DROP VIEW"],
    );
    // A view of a trusted role over that function, and a sound one.
    root.say("DROP VIEW public.cust; CREATE VIEW public.cust AS SELECT public.run() AS id; GRANT SELECT ON public.cust TO PUBLIC");
    refused(store(server.options()).reserve(&ten(&serial, 0)), &["function `public.run()`", "role `evil`"]);
    root.say("DROP VIEW public.cust; CREATE VIEW public.cust AS SELECT '202611200077'::text AS id; GRANT SELECT ON public.cust TO PUBLIC");
    assert_eq!(store(server.options()).reserve(&ten(&serial, 0)).unwrap().lo, 78);
}

#[test]
fn a_triggers_condition_runs_no_sql_of_another_role() {
    let (server, root) = open_to_all();
    let orders = key(Scheme::Keymill, "orders");
    root.say(&format!("{}; GRANT SELECT, INSERT, UPDATE ON public.keymill_segment TO keymill; GRANT SELECT ON public.keymill_segment TO evil", shape(&server)));
    assert_eq!(store(server.options()).reserve(&ten(&orders, 0)).unwrap().hi, 11);
    // A right that a trigger can be made with at any time.
    for (role, named) in [("PUBLIC", "PUBLIC holds"), ("evil", "role `evil` holds")] {
        root.say(&format!("GRANT TRIGGER ON public.keymill_segment TO {role}"));
        let quoted = if role == "evil" { "\"evil\"" } else { role };
        let revoke = format!("REVOKE TRIGGER ON \"public\".\"keymill_segment\" FROM {quoted}");
        refused(store(server.options()).reserve(&ten(&orders, 0)), &[named, &revoke]);
        root.say(&revoke);
        assert_eq!(store(server.options()).reserve(&ten(&orders, 0)).map(drop), Ok(()), "after {revoke}");
    }
    root.say("GRANT TRIGGER ON public.keymill_segment TO evil");
    root.say("CREATE SCHEMA planted AUTHORIZATION evil");
    let evil = evil(&server);
    evil.say(THEFT);
    for schema in ["planted", "pg_temp"] {
        let rewrite = "(LEFTARG = tsquery, RIGHTARG = text, FUNCTION = pg_catalog.ts_rewrite)";
        evil.say(&format!("CREATE OPERATOR {schema}.## {rewrite}"));
    }
    for condition in [
        "ts_rewrite('a'::tsquery, 'SELECT ''a''::tsquery, ''a''::tsquery WHERE public.theft()') IS NOT NULL",
        "query_to_xml('SELECT public.theft()', true, true, '') IS NOT NULL",
        "set_config('synchronous_commit', 'off', false) IS NOT NULL",
        "('a'::tsquery OPERATOR(planted.##) 'SELECT ''a''::tsquery, ''a''::tsquery WHERE public.theft()') IS NOT NULL",
        "('a'::tsquery OPERATOR(pg_temp.##) 'SELECT ''a''::tsquery, ''a''::tsquery WHERE public.theft()') IS NOT NULL",
    ] {
        evil.say(&format!(
            "CREATE TRIGGER t BEFORE UPDATE ON public.keymill_segment FOR EACH ROW WHEN ({condition}) \
             EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()"
        ));
        let drop = "DROP TRIGGER t on public.keymill_segment";
        refused(
            store(server.options()).reserve(&ten(&orders, 0)),
            &["trigger `t on public.keymill_segment`", "`WHEN`", drop],
        );
        assert_ne!(counts_at(&root), "1", "{condition} has run");
        root.say(drop);
    }
    root.say("REVOKE TRIGGER ON public.keymill_segment FROM evil");
    root.say(
        "CREATE TRIGGER t BEFORE UPDATE ON public.keymill_segment FOR EACH ROW \
         WHEN (OLD.* IS DISTINCT FROM NEW.* AND pg_trigger_depth() < 1 AND lower(NEW.name) <> 'x' AND now() > '2020-01-01') \
         EXECUTE FUNCTION pg_catalog.suppress_redundant_updates_trigger()",
    );
    assert_eq!(store(server.options()).reserve(&ten(&orders, 0)).unwrap().hi, 41, "an ordinary condition");
}

#[test]
fn the_right_to_make_triggers_on_a_partition_is_that_on_the_table() {
    let (server, root) = open_to_all();
    let orders = key(Scheme::Keymill, "orders");
    root.say(&format!(
        "{}; ALTER TABLE public.keymill_segment RENAME TO whole; \
         CREATE TABLE public.keymill_segment (LIKE public.whole INCLUDING DEFAULTS INCLUDING INDEXES) PARTITION BY HASH (name); \
         CREATE TABLE public.part PARTITION OF public.keymill_segment FOR VALUES WITH (MODULUS 1, REMAINDER 0) PARTITION BY HASH (name); \
         CREATE TABLE public.\"Leaf\" PARTITION OF public.part FOR VALUES WITH (MODULUS 1, REMAINDER 0); \
         GRANT SELECT, INSERT, UPDATE ON public.keymill_segment TO keymill",
        shape(&server)
    ));
    assert_eq!(store(server.options()).reserve(&ten(&orders, 0)).unwrap().hi, 11);
    root.say("GRANT TRIGGER ON public.\"Leaf\" TO evil");
    let revoke = "REVOKE TRIGGER ON public.\"Leaf\" FROM \"evil\"";
    refused(
        store(server.options()).reserve(&ten(&orders, 0)),
        &["role `evil` holds", revoke, "what it made stays"],
    );
    root.say(revoke);
    assert_eq!(store(server.options()).reserve(&ten(&orders, 0)).unwrap().hi, 21);
}

/// `refint` is a trusted extension's function in other clusters: it runs its arguments as SQL, whoever made the trigger.
#[test]
fn a_trigger_that_hands_arguments_to_a_function_in_c_is_refused() {
    let (server, root) = open_to_all();
    let orders = key(Scheme::Keymill, "orders");
    root.say(&format!(
        "{}; GRANT SELECT, INSERT, UPDATE ON public.keymill_segment TO keymill",
        shape(&server)
    ));
    root.say("CREATE EXTENSION refint; CREATE EXTENSION moddatetime; CREATE TABLE public.log (name text)");
    assert_eq!(store(server.options()).reserve(&ten(&orders, 0)).unwrap().hi, 11);
    root.say(
        "GRANT TRIGGER ON public.keymill_segment TO evil; SET ROLE evil; \
         CREATE TRIGGER t BEFORE UPDATE ON public.keymill_segment FOR EACH ROW \
         EXECUTE FUNCTION public.check_primary_key('name', 'log; SELECT evil.run() -- ', 'name'); \
         RESET ROLE; REVOKE TRIGGER ON public.keymill_segment FROM evil",
    );
    refused(
        store(server.options()).reserve(&ten(&orders, 0)),
        &[
            "trigger `t on public.keymill_segment`",
            "check_primary_key",
            "`DROP TRIGGER t on public.keymill_segment`",
        ],
    );
    root.say("DROP TRIGGER t ON public.keymill_segment");
    root.say(
        "ALTER TABLE public.keymill_segment ADD COLUMN seen timestamptz; \
         CREATE TRIGGER t BEFORE UPDATE ON public.keymill_segment FOR EACH ROW EXECUTE FUNCTION public.moddatetime('seen')",
    );
    assert_eq!(
        store(server.options()).reserve(&ten(&orders, 0)).unwrap().hi,
        21,
        "it only writes its column"
    );
}

/// A row of another table that refers to a row of keymill's holds `FOR KEY SHARE` on it, with the right `REFERENCES` alone.
#[test]
fn a_row_that_refers_to_keymills_row_holds_no_reservation_up() {
    let (server, root) = open_to_all();
    let orders = key(Scheme::Keymill, "orders");
    root.say(&format!(
        "{}; GRANT SELECT, INSERT, UPDATE ON public.keymill_segment TO keymill",
        shape(&server)
    ));
    let mut ids = store(server.options());
    assert_eq!(ids.reserve(&ten(&orders, 0)).unwrap().hi, 11);
    root.say("GRANT REFERENCES ON public.keymill_segment TO evil; CREATE SCHEMA held AUTHORIZATION evil");
    let evil = evil(&server);
    evil.say(
        "CREATE TABLE held.child (name varchar(190) COLLATE \"C\" REFERENCES public.keymill_segment (name))",
    );
    evil.say("BEGIN");
    evil.say("INSERT INTO held.child SELECT 'segment:orders'");
    let before = ids.look(&orders).unwrap().unwrap().mark.next;
    assert_eq!(ids.reserve(&ten(&orders, 0)).unwrap().hi, 21);
    // The row is read for a repair with a lock.
    let (_, after) =
        ids.repair(&orders, keymill::Mark { period: 0, next: before + 100 }).expect("no lock is waited for");
    assert_eq!(after.mark.next, before + 100);
    evil.say("ROLLBACK");
}

#[test]
fn a_trigger_that_keymill_does_not_fire_is_not_judged() {
    let (server, root) = open_to_all();
    let evil = evil(&server);
    evil.say(
        "CREATE FUNCTION public.audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$",
    );
    // The sequence of a column, whose table is audited.
    root.say(
        "CREATE TABLE public.sale (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY); \
         CREATE TRIGGER a BEFORE INSERT ON public.sale FOR EACH ROW EXECUTE FUNCTION public.audit(); \
         GRANT SELECT, UPDATE ON SEQUENCE public.sale_id_seq TO PUBLIC",
    );
    let mill = Mill::open(&patient(&server.url())).unwrap();
    let source = mill.source("segment:sale?scheme=sequence&table=sale_id_seq&step=1&deadline=60s").unwrap();
    assert_eq!(source.take(3).unwrap(), [1, 2, 3]);
    mill.close();
    // The business table of a serial is read only, and may have a partition for each day.
    root.say(
        "SET search_path = public; CREATE TABLE cust (id varchar(20), day int, note text) PARTITION BY RANGE (day); \
         CREATE INDEX ON cust (id text_pattern_ops); CREATE INDEX ON cust (note); \
         DO $$ BEGIN FOR day IN 0..399 LOOP \
         EXECUTE format('CREATE TABLE cust_%1$s PARTITION OF cust FOR VALUES FROM (%1$s) TO (%2$s)', day, day + 1); END LOOP; END $$; \
         CREATE TRIGGER a AFTER INSERT ON cust FOR EACH ROW EXECUTE FUNCTION public.audit(); GRANT SELECT ON cust TO PUBLIC; \
         INSERT INTO cust VALUES ('202611200077', 5)",
    );
    let mut serial = (*key(Scheme::KeyProducer, "cust")).clone();
    serial.serial.as_mut().unwrap().init_max = true;
    let serial = Arc::new(serial);
    store(server.options()).init(&[Arc::clone(&serial)], false).unwrap();
    assert_eq!(store(server.options()).reserve(&ten(&serial, 0)).unwrap().lo, 78);
}

#[test]
fn the_grant_in_a_refusal_helps_where_the_membership_is_there_already() {
    let (server, root) = open_to_all();
    let orders = key(Scheme::Keymill, "orders");
    root.say(&format!(
        "{}; CREATE ROLE shop; CREATE ROLE lead; GRANT shop TO lead WITH ADMIN OPTION; GRANT shop TO keymill GRANTED BY lead; \
         ALTER DATABASE ids OWNER TO postgres; ALTER TABLE public.keymill_segment OWNER TO shop; \
         GRANT ALL ON public.keymill_segment TO keymill",
        shape(&server)
    ));
    let message = store(server.options()).reserve(&ten(&orders, 0)).unwrap_err().to_string();
    for statement in statements(&message, "REVOKE \"shop\"").iter().chain(&statements(&message, "GRANT")) {
        root.say(statement);
    }
    store(server.options()).reserve(&ten(&orders, 0)).expect("the statement of the message has helped");
}
