//! What another role plants in a PostgreSQL under the names of the server's own operators, functions, types, casts and tables. No verb
//! of the command runs any of it, with the login's search path at its worst: the other role's schemas come before the server's own.
//! `planted_mysql` does the same with the stored functions of a MariaDB.
//!
//! The server is found by `KEYMILL_TEST_POSTGRES`; the database and the roles are the test's own.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use keymill::Scheme;

use crate::common::{Home, PATIENT, Ran};

/// What the other role runs.
const PLANT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/planted.sql");

/// How a planted object reports that the login has run it.
const WATCH: &str = "CREATE SEQUENCE public.hit_count; CREATE TABLE public.hit_list (what text); \
    GRANT ALL ON SEQUENCE public.hit_count TO PUBLIC; GRANT ALL ON public.hit_list TO PUBLIC; \
    CREATE FUNCTION public.hit(what text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS $$ BEGIN \
    IF session_user::text = current_setting('planted.victim') THEN \
    PERFORM nextval('public.hit_count'::regclass); RAISE LOG 'planted: % has run', what; \
    INSERT INTO public.hit_list VALUES (what); END IF; END $$; \
    CREATE FUNCTION public.hits(what text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS $$ BEGIN \
    PERFORM public.hit(what); RETURN true; END $$";

/// A server where another role has planted all that it can.
pub(crate) trait Planted {
    /// A word of `status`.
    fn engine(&self) -> &'static str;

    /// Fails where a planted object has run.
    fn assert_untouched(&self, after: &str);

    /// Runs statements as the login, in its own schema.
    fn own(&self, sql: &str);

    /// The shard that rows move to, for a mill of this URL.
    fn new_shard(&self, url: &str) -> String;

    /// Makes a table in both shards, with 300 rows in the old one.
    fn make_rows(&self, table: &str);

    /// A table of the other role that the login finds before its own, and why a move refuses it.
    fn stolen(&self, turn: usize) -> Option<(String, String)>;

    /// Makes three rows of the new shard differ.
    fn spoil(&self, table: &str);
}

/// A database where another role has planted all that it can.
struct Field {
    host: String,
    port: String,
    /// The login, its password and its own schema.
    app: String,
    evil: String,
    database: String,
}

impl Field {
    fn new() -> Field {
        let url = std::env::var("KEYMILL_TEST_POSTGRES").expect(
            "KEYMILL_TEST_POSTGRES is not set; run `ci/servers/postgres run cargo test -p keymill-cli`",
        );
        let place = url.rsplit_once('@').unwrap().1;
        let (host, port) = place.split('/').next().unwrap().rsplit_once(':').unwrap();
        let process = std::process::id();
        let field = Field {
            host: host.to_owned(),
            port: port.to_owned(),
            app: format!("app_{process}"),
            evil: format!("evil_{process}"),
            database: format!("planted_{process}"),
        };
        let Field { app, evil, database, .. } = &field;
        let root = |database: &str, sql: &str| field.say("postgres", "root", database, &[], &["-c", sql]);
        for sql in [
            &format!("CREATE ROLE {evil} LOGIN PASSWORD '{evil}'"),
            &format!("CREATE ROLE {app} LOGIN PASSWORD '{app}'"),
            &format!("CREATE DATABASE {database}"),
            // Where the server's own come last, the planted ones win whatever their arguments are.
            &format!("ALTER ROLE {app} SET search_path = \"$user\", public, pg_catalog"),
            &format!("ALTER DATABASE {database} SET planted.victim = '{app}'"),
        ] {
            root("postgres", sql);
        }
        root(
            database,
            &format!(
                "GRANT CREATE ON SCHEMA public TO PUBLIC; CREATE SCHEMA {app}; GRANT USAGE, CREATE ON SCHEMA {app} TO {app}, {evil}; \
                 CREATE SCHEMA new_shard AUTHORIZATION {app}; {WATCH}"
            ),
        );
        for schema in ["public", app] {
            let options = format!("-c planted.schema={schema} -c client_min_messages=error");
            let began = Instant::now();
            let counts = field.say(
                evil,
                evil,
                database,
                &[("PGOPTIONS", &options)],
                &["--single-transaction", "-f", PLANT],
            );
            println!(
                "planted in {schema}: {:?} in {:?}",
                counts.lines().collect::<Vec<_>>(),
                began.elapsed()
            );
            let counts: Vec<u64> = counts.lines().map(|count| count.parse().unwrap()).collect();
            assert!(counts.iter().zip([700, 2500, 100, 50]).all(|(made, least)| *made > least), "{counts:?}");
        }
        field
    }

    /// What `psql` answers.
    fn say(
        &self,
        user: &str,
        password: &str,
        database: &str,
        environment: &[(&str, &str)],
        words: &[&str],
    ) -> String {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]).args(words).stdin(Stdio::null());
        psql.envs([
            ("PGHOST", &*self.host),
            ("PGPORT", &self.port),
            ("PGUSER", user),
            ("PGPASSWORD", password),
        ]);
        psql.env("PGDATABASE", database).envs(environment.iter().copied());
        let ran = Ran::from(psql.output().unwrap());
        assert_eq!(ran.code, Some(0), "{words:?}: {ran:?}");
        ran.out.trim().to_owned()
    }

    /// What the superuser is answered, who sees the server's own objects only.
    fn root(&self, sql: &str) -> String {
        let options = [("PGOPTIONS", "-c search_path=pg_catalog")];
        self.say("postgres", "root", &self.database, &options, &["-c", sql])
    }

    /// A session that keymill knows for its own, and one that it takes for shared: by a file it does not see the server's end.
    fn urls(&self) -> [String; 2] {
        let Field { host, port, app, database, .. } = self;
        let folder = self.root("SHOW unix_socket_directories");
        assert!(Path::new(&folder).is_dir(), "{folder}");
        [
            format!("postgres://{app}:{app}@{host}:{port}/{database}?{PATIENT}"),
            format!("postgres://{app}:{app}@{host}:{port}/{database}?{PATIENT}&socket={folder}"),
        ]
    }

    fn in_catalogue(&self, user: &str, sql: &str) {
        let path = [("PGOPTIONS", "-c search_path=pg_catalog")];
        self.say(user, user, &self.database, &path, &["-c", sql]);
    }
}

impl Planted for Field {
    fn engine(&self) -> &'static str {
        "postgresql"
    }

    #[track_caller]
    fn assert_untouched(&self, after: &str) {
        let seen = self.root("SELECT is_called FROM public.hit_count");
        let list = self.root("SELECT DISTINCT what FROM public.hit_list ORDER BY 1");
        assert_eq!((seen.as_str(), list.as_str()), ("f", ""), "a planted object has run: {after}");
    }

    fn own(&self, sql: &str) {
        let path = format!("-c search_path={}", self.app);
        self.say(&self.app, &self.app, &self.database, &[("PGOPTIONS", &path)], &["-c", sql]);
    }

    fn new_shard(&self, url: &str) -> String {
        format!("{url}&schema=new_shard")
    }

    fn make_rows(&self, table: &str) {
        let app = &self.app;
        let make = format!(
            "CREATE TABLE %.\"{table}\" (order_id bigint, line text, version int NOT NULL, at timestamptz DEFAULT now(), PRIMARY KEY (order_id, line))"
        );
        let fill = format!(
            "INSERT INTO {app}.\"{table}\" (order_id, line, version) SELECT (g % 2 * 32768 + g) * 140737488355328 + g, 'it''s ' || g, 1 FROM generate_series(1, 300) g"
        );
        for sql in [make.replace('%', app), make.replace('%', "new_shard"), fill] {
            self.in_catalogue(app, &sql);
        }
    }

    fn stolen(&self, turn: usize) -> Option<(String, String)> {
        let Field { app, evil, .. } = self;
        let own =
            format!("CREATE TABLE {{}}.stolen{turn} (order_id bigint PRIMARY KEY, version int NOT NULL)");
        let planted = format!("{}; GRANT ALL ON {app}.stolen{turn} TO {app}", own.replace("{}", app));
        self.in_catalogue(evil, &planted);
        for schema in ["public", "new_shard"] {
            self.in_catalogue(app, &own.replace("{}", schema));
        }
        let table = format!("stolen{turn}");
        let why = format!("`{app}.{table}` belongs to role `{evil}`");
        Some((table, why))
    }

    fn spoil(&self, table: &str) {
        let spoil = format!(
            "UPDATE new_shard.\"{table}\" SET version = 0 WHERE order_id = (SELECT max(order_id) FROM new_shard.\"{table}\"); \
             DELETE FROM new_shard.\"{table}\" WHERE order_id = (SELECT min(order_id) FROM new_shard.\"{table}\"); \
             INSERT INTO new_shard.\"{table}\" SELECT order_id, 'more', 1 FROM new_shard.\"{table}\" ORDER BY 1 LIMIT 1"
        );
        self.in_catalogue(&self.app, &spoil);
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let sql = format!("DROP DATABASE {} WITH (FORCE)", self.database);
            self.say("postgres", "root", "postgres", &[], &["-c", &sql]);
        }
    }
}

/// The command on one URL; remembers which verbs were run.
pub(crate) struct Verbs<'f> {
    field: &'f dyn Planted,
    pub(crate) home: Home,
    url: String,
    seen: BTreeSet<String>,
}

impl<'f> Verbs<'f> {
    pub(crate) fn new(field: &'f dyn Planted, url: String) -> Verbs<'f> {
        Verbs { field, home: Home::new(), url, seen: BTreeSet::new() }
    }

    /// Runs every verb and every kind of source, and answers with the verbs; `turn` makes names of its own.
    pub(crate) fn run_all(mut self, turn: usize) -> BTreeSet<String> {
        every_source(&mut self, turn);
        counters_of_others(&mut self, turn);
        routes_and_rows(&mut self, turn);
        self.seen
    }

    #[track_caller]
    pub(crate) fn run(&mut self, words: &[&str]) -> Ran {
        self.seen.insert(words[0].to_owned());
        if words[0] == "move" {
            self.seen.insert(format!("move {}", words[1]));
        }
        let ran = self.home.run(&[&["--mill", self.url.as_str()], words].concat());
        self.field.assert_untouched(&format!("{words:?}: {ran:?}"));
        ran
    }

    #[track_caller]
    fn done(&mut self, words: &[&str]) -> String {
        self.run(words).done()
    }
}

/// The verbs in a text of help.
fn verbs_of(help: &str) -> BTreeSet<String> {
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let verb = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    list.lines().map(verb).filter(|verb| verb != "help").collect()
}

/// That no verb was left out, but for those that ask no store, or what other verbs ask.
pub(crate) fn assert_complete(seen: &BTreeSet<String>) {
    let offline =
        ["parse", "layout", "ddl", "spread", "split-sql", "seal", "unseal", "gene", "completions", "steps"];
    let home = Home::new();
    let all = verbs_of(&home.run(&["--help"]).done());
    let moves = verbs_of(&home.run(&["move", "--help"]).done());
    let all: BTreeSet<_> = all.into_iter().chain(moves.iter().map(|verb| format!("move {verb}"))).collect();
    let left: Vec<_> =
        all.iter().filter(|verb| !seen.contains(*verb) && !offline.contains(&verb.as_str())).collect();
    assert!(left.is_empty(), "verbs that this test does not run: {left:?}");
}

#[test]
fn no_verb_runs_what_another_role_has_planted() {
    let field = Field::new();
    for (turn, url) in field.urls().into_iter().enumerate() {
        assert_complete(&Verbs::new(&field, url).run_all(turn));
    }
}

/// Every kind of source, made, used, shown and raised.
fn every_source(verbs: &mut Verbs<'_>, turn: usize) {
    let own = |spec: &str| spec.replace('@', &turn.to_string());
    let specs = [
        // So small that a statement is sent often enough to be prepared.
        "segment:orders@?step=10&max_step=10",
        "serial:cust@/custid?date=yyyyMMdd&number=000000&init=max&zone=UTC",
        "snowflake:fixed@?worker=5",
        "snowflake:leased@",
    ]
    .map(own);
    if turn == 0 {
        let create = |turn| format!("CREATE TABLE cust{turn} (custid varchar(40))");
        verbs.field.own(&[0, 1, 2].map(create).join("; "));
    }
    for spec in &specs {
        verbs.done(&["init", "--dry-run", spec]);
        verbs.done(&["init", spec]);
        for _ in 0..2 {
            assert_eq!(verbs.done(&["take", spec, "100"]).lines().count(), 100, "{spec}");
        }
        verbs.done(&["next", spec]);
        assert!(verbs.done(&["status", spec]).contains(verbs.field.engine()));
        verbs.done(&["metrics", spec]);
    }
    verbs.done(&["repair", &specs[0], "--to", "5000", "--yes"]);
    verbs.done(&["repair", &specs[1], "--to", "7000", "--yes"]);
    for snowflake in &specs[2..] {
        // A mark is only raised.
        verbs.run(&["repair", snowflake, "--to", "2020-01-01T00:00:00Z", "--yes"]);
    }
    assert_eq!(verbs.done(&["next", &specs[0]]).trim(), "5000");
    let once = &own("snowflake:once@?worker=disposable");
    if verbs.field.engine() == "postgresql" {
        verbs.run(&["next", once]).refused("INVALID_CONFIG");
    } else {
        for verb in ["init", "next", "status"] {
            verbs.done(&[verb, once]);
        }
    }
    let bank = &own("business:bank@");
    verbs.done(&["init", bank]);
    for key in ["1", "77", "77"] {
        verbs.done(&["next", bank, "--key", key]);
    }
    verbs.done(&["status", bank]);
    verbs.done(&["heat", bank, "--seconds", "1"]);
    verbs.done(&["repair", bank, "--to", "9000", "--yes"]);
    verbs.done(&["bench", &own("segment:bench@"), "--threads", "1", "--seconds", "1"]);
}

/// The tables of other programs, counted in and taken over.
fn counters_of_others(verbs: &mut Verbs<'_>, turn: usize) {
    for scheme in Scheme::ALL {
        let spec = format!("segment:other{turn}?scheme={}", scheme.name());
        let made = verbs.run(&["init", &spec]);
        if made.code != Some(0) {
            assert!(made.err.starts_with("keymill: "), "{spec}: {made:?}");
            continue;
        }
        verbs.done(&["take", &spec, "300"]);
        verbs.done(&["take", &spec, "300"]);
        verbs.done(&["status", &spec]);
        verbs.run(&["repair", &spec, "--to", "100001", "--yes"]);
        let import = [
            "import",
            &format!("segment:taken{turn}_{}", scheme.name()),
            "--from",
            scheme.name(),
            "--row",
            &format!("other{turn}"),
            "--yes",
        ]
        .map(str::to_owned);
        if keymill::Source::IMPORTS.contains(&scheme) && scheme != Scheme::KeyProducer {
            verbs.done(&import.each_ref().map(String::as_str));
        }
    }
}

/// A route table, and a range of rows that moves from the schema that the login's path finds to another one.
fn routes_and_rows(verbs: &mut Verbs<'_>, turn: usize) {
    let router = &*format!("orders{turn}");
    let table = &*format!("T_Order{turn}");
    verbs.field.make_rows(table);
    verbs
        .home
        .file("routes.toml", "version = 1\nsettle = \"100ms\"\n[[range]]\nupper = 65535\nshard = \"s1\"\n");
    let (old, new) = (format!("s1={}", verbs.url), format!("s2={}", verbs.field.new_shard(&verbs.url)));
    let rows = ["--from", &old, "--to", &new, "--table", table, "--key", "order_id"];
    verbs.done(&["init"]);
    verbs.done(&["route", "put", router, "routes.toml", "--yes"]);
    verbs.done(&["route", "7", router]);
    verbs.done(&["status"]);
    verbs.done(&["move", "plan", router, "--shards", "s1,s2", "--out", "plan.toml"]);
    verbs.done(&["move", "start", router, "--plan", "plan.toml", "--watch", "0s", "--yes"]);
    verbs.done(&["move", "status", router]);
    verbs.done(&[&["move", "copy", router][..], &rows].concat());
    verbs.done(&[&["move", "copy", router, "--yes"][..], &rows].concat());
    if let Some((stolen, why)) = verbs.field.stolen(turn) {
        for verb in ["copy", "verify"] {
            let words = [
                "move", verb, router, "--from", &old, "--to", &new, "--table", &stolen, "--key", "order_id",
                "--yes",
            ];
            let refused = verbs.run(&words).refused("STORE_REFUSED");
            assert!(refused.contains(&why), "{refused}");
        }
    }
    verbs.field.spoil(table);
    let differ = verbs.run(&[&["move", "verify", router, "--yes"][..], &rows].concat());
    assert!(differ.out.contains("differ: 3"), "{differ:?}");
    verbs.done(&[&["move", "verify", router, "--repair", "--delete", "--yes"][..], &rows].concat());
    verbs.done(&["move", "next", router, "--yes"]);
    verbs.done(&["move", "back", router, "--yes"]);
    verbs.done(&[&["move", "verify", router, "--wait", "--yes"][..], &rows].concat());
    for _ in 0..4 {
        verbs.done(&["move", "next", router, "--wait", "--yes"]);
    }
    verbs.done(&[&["move", "verify", router, "--wait", "--yes"][..], &rows].concat());
    verbs.done(&["move", "finish", router, "--wait", "--yes"]);
    let cleaned =
        verbs.done(&[&["move", "clean", router, "--older-than", "0s", "--yes"][..], &rows].concat());
    assert!(cleaned.contains("150"), "{cleaned}");
}
