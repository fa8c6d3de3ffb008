//! What another user plants in a MariaDB: stored functions with the names of the server's own and of its words, where the login's
//! tables are; tables and views with keymill's names in a database of its own; triggers on keymill's tables. No verb of the command runs
//! any of it, whatever the server's `sql_mode` says of a space before a bracket.
//!
//! The server is the test's own, started by `ci/servers/mariadb`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{PATIENT, Ran};
use crate::planted::{Planted, Verbs, assert_complete};

/// What the server's `sql_mode` is while a turn runs. `ORACLE` and `ANSI` change how names are read; both have `IGNORE_SPACE`.
const MODES: [&str; 3] = ["", "IGNORE_SPACE", "ORACLE,ANSI"];

/// The databases and users; a planted object reports that the login has run it to a table that keeps rows through a rollback.
const MAKE: &str = "CREATE DATABASE app_db; CREATE DATABASE new_shard; CREATE DATABASE planted;
CREATE TABLE planted.hit_list (what TEXT) ENGINE=MyISAM;
DELIMITER //
CREATE FUNCTION planted.hit(what TEXT) RETURNS BIGINT SQL SECURITY DEFINER
BEGIN IF USER() LIKE 'app@%' THEN INSERT INTO planted.hit_list VALUES (what); END IF; RETURN 1; END//
DELIMITER ;
CREATE USER app@'%' IDENTIFIED BY 'app'; CREATE USER evil@'%' IDENTIFIED BY 'evil';
GRANT ALL ON app_db.* TO app@'%'; GRANT ALL ON new_shard.* TO app@'%'; GRANT EXECUTE, SELECT ON planted.* TO app@'%';
GRANT ALL ON planted.* TO evil@'%'; GRANT CREATE ROUTINE, CREATE VIEW, CREATE, TRIGGER, SELECT ON app_db.* TO evil@'%';
GRANT CREATE ROUTINE, CREATE VIEW, CREATE, TRIGGER, SELECT ON new_shard.* TO evil@'%';";

/// keymill's own tables, which the other user has too.
const TABLES: [&str; 4] = ["keymill_segment", "keymill_worker", "keymill_reader", "keymill_route"];

fn server(folder: &tempfile::TempDir, words: &[&str]) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/servers/mariadb");
    let mut command = Command::new(script);
    command.env("KEYMILL_CI_DIR", folder.path()).args(words).stdin(Stdio::null());
    command
}

/// A server where another user has planted all that it can.
struct Field {
    folder: tempfile::TempDir,
    host: String,
    port: String,
}

impl Field {
    fn new() -> Field {
        let folder = tempfile::tempdir().unwrap();
        let url = Ran::from(server(&folder, &["start"]).output().unwrap()).done();
        let (host, port) =
            url.trim().rsplit_once('@').unwrap().1.split_once('/').unwrap().0.split_once(':').unwrap();
        let field = Field { host: host.to_owned(), port: port.to_owned(), folder };
        field.root(MAKE);
        field.plant();
        field
    }

    /// Plants a function of every name; with the wrong number of arguments a call fails, and so does the verb.
    fn plant(&self) {
        let names = self.root(
            "SELECT FUNCTION FROM information_schema.SQL_FUNCTIONS UNION SELECT WORD FROM information_schema.KEYWORDS \
             UNION SELECT name FROM mysql.help_topic WHERE name REGEXP '^[A-Za-z_0-9]+$'",
        );
        let names: Vec<_> =
            names.lines().filter(|name| !name.contains(['`', '(', ' ', '<', '>', '|', '&', ':'])).collect();
        for schema in ["app_db", "new_shard"] {
            let functions = names.iter().map(|name| {
                format!(
                    "CREATE FUNCTION {schema}.`{name}`(a TEXT) RETURNS BIGINT SQL SECURITY INVOKER RETURN planted.hit('{name}');\n"
                )
            });
            self.evil(&functions.collect::<String>());
            let planted = self.root(&format!(
                "SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = '{schema}' AND DEFINER = 'evil@%'"
            ));
            let planted: usize = planted.parse().unwrap();
            println!("planted in {schema}: {planted} functions of {} names", names.len());
            assert!(planted > 700, "{planted}");
        }
        for table in TABLES {
            self.evil(&format!(
                "CREATE TABLE planted.{table} (name VARBINARY(512)); CREATE VIEW planted.view_{table} AS SELECT planted.hit('{table}') AS name"
            ));
        }
        // The functions are found: a space before the bracket is enough.
        self.app("SELECT COUNT (1); SELECT UPPER (1)");
        let hits = self
            .root("SELECT GROUP_CONCAT(what ORDER BY 1) FROM planted.hit_list; DELETE FROM planted.hit_list");
        assert_eq!(hits, "COUNT", "what the other user planted does not report");
    }

    /// What a client answers to this script.
    fn client(&self, user: &str, database: &str, script: &str) -> String {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-N", "-h", &self.host, "-P", &self.port, "-u", user]);
        client.arg(format!("-p{user}")).arg(database);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::answer(client, script)
    }

    fn answer(mut client: Command, script: &str) -> String {
        let mut client = client.spawn().unwrap();
        let mut input = client.stdin.take().unwrap();
        input.write_all(script.as_bytes()).unwrap();
        drop(input);
        let ran = Ran::from(client.wait_with_output().unwrap());
        assert_eq!(ran.code, Some(0), "{script}: {ran:?}");
        ran.out.trim().to_owned()
    }

    fn root(&self, script: &str) -> String {
        let mut client = server(&self.folder, &["root", "-N"]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::answer(client, script)
    }

    fn evil(&self, script: &str) -> String {
        self.client("evil", "planted", script)
    }

    fn app(&self, script: &str) -> String {
        self.client("app", "app_db", script)
    }

    fn url(&self, database: &str) -> String {
        format!("mysql://app:app@{}:{}/{database}?{PATIENT}", self.host, self.port)
    }
}

impl Planted for Field {
    fn engine(&self) -> &'static str {
        "mariadb"
    }

    #[track_caller]
    fn assert_untouched(&self, after: &str) {
        let hits = self.root("SELECT DISTINCT what FROM planted.hit_list ORDER BY 1");
        assert_eq!(hits, "", "a planted object has run: {after}");
    }

    fn own(&self, sql: &str) {
        self.app(sql);
    }

    fn new_shard(&self, _: &str) -> String {
        self.url("new_shard")
    }

    fn make_rows(&self, table: &str) {
        let make = |database: &str| {
            format!(
                "CREATE TABLE {database}.{table} (order_id BIGINT, line VARCHAR(40), version INT NOT NULL, at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, PRIMARY KEY (order_id, line));\n"
            )
        };
        self.app(&format!(
            "SET sql_mode = ''; {}{}INSERT INTO app_db.{table} (order_id, line, version) WITH RECURSIVE g AS (SELECT 1 AS g UNION ALL SELECT g + 1 FROM g WHERE g < 300) \
             SELECT (g % 2 * 32768 + g) * 140737488355328 + g, CONCAT('it''s ', g), 1 FROM g",
            make("app_db"),
            make("new_shard")
        ));
    }

    /// A table has no owner here.
    fn stolen(&self, _: usize) -> Option<(String, String)> {
        None
    }

    fn spoil(&self, table: &str) {
        self.app(&format!(
            "SET sql_mode = ''; USE new_shard; SELECT MIN(order_id), MAX(order_id) INTO @first, @last FROM {table}; \
             UPDATE {table} SET version = 0 WHERE order_id = @last; DELETE FROM {table} WHERE order_id = @first; \
             INSERT INTO {table} (order_id, line, version) SELECT order_id, 'more', 1 FROM {table} ORDER BY 1 LIMIT 1"
        ));
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        let _ = server(&self.folder, &["stop"]).output();
    }
}

#[test]
fn no_verb_runs_a_function_that_another_user_has_planted() {
    let field = Field::new();
    for (turn, mode) in MODES.into_iter().enumerate() {
        field.root(&format!("SET GLOBAL sql_mode = '{mode}'"));
        assert_complete(&Verbs::new(&field, field.url("app_db")).run_all(turn));
    }
}

/// Each verb is refused, with the trigger's name, or has not written to its table.
#[test]
fn no_verb_runs_a_trigger_that_another_user_has_planted() {
    let field = Field::new();
    let mut verbs = Verbs::new(&field, field.url("app_db"));
    let sources = [
        "segment:orders?step=10&max_step=10",
        "snowflake:fixed?worker=5",
        "snowflake:leased",
        "business:bank?counters=2",
    ];
    verbs
        .home
        .file("routes.toml", "version = 1\nsettle = \"100ms\"\n[[range]]\nupper = 65535\nshard = \"s1\"\n");
    verbs.run(&[&["init"][..], &sources].concat()).done();
    verbs.run(&["init"]).done();
    verbs.run(&["route", "put", "orders", "routes.toml", "--yes"]).done();
    for source in &sources[..3] {
        verbs.run(&["take", source, "20"]).done();
    }
    verbs.run(&["next", sources[3], "--key", "1"]).done();
    for table in TABLES {
        for event in ["INSERT", "UPDATE", "DELETE"] {
            field.evil(&format!(
                "CREATE TRIGGER app_db.evil_{table}_{event} BEFORE {event} ON app_db.{table} FOR EACH ROW SET @hit = planted.hit('{table} {event}')"
            ));
        }
    }
    verbs
        .home
        .file("next.toml", "version = 2\nsettle = \"100ms\"\n[[range]]\nupper = 65535\nshard = \"s2\"\n");
    let mut refusals = 0;
    for source in sources {
        let key: &[&str] = if source.starts_with("business") { &["--key", "1"] } else { &[] };
        let to = if source.starts_with("snowflake") { "2020-01-01T00:00:00Z" } else { "90000" };
        for words in [
            &[&["next", source][..], key].concat()[..],
            &[&["take", source, "20"][..], key].concat(),
            &["init", source],
            &["status", source],
            &["repair", source, "--to", to, "--yes"],
            &["import", source, "--from", "leaf_alloc", "--yes"],
        ] {
            let ran = verbs.run(words);
            assert!(ran.code == Some(0) || ran.err.starts_with("keymill: "), "{words:?}: {ran:?}");
            refusals += usize::from(ran.err.contains("trigger `evil_"));
        }
    }
    for words in [
        &["init"][..],
        &["status"],
        &["route", "7", "orders"],
        &["route", "put", "orders", "next.toml", "--yes"],
        &["move", "plan", "orders", "--shards", "s1,s2", "--out", "plan.toml"],
        &["move", "status", "orders"],
        &["bench", "segment:bench", "--threads", "1", "--seconds", "1"],
    ] {
        let ran = verbs.run(words);
        refusals += usize::from(format!("{}{}", ran.out, ran.err).contains("trigger `evil_"));
    }
    println!("{refusals} verbs named a trigger");
    assert!(refusals > 10, "{refusals}");
}
