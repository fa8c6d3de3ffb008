//! The page about backup and restore: its statements and commands, word for word, after a real backup was put back. No id that comes
//! then came before.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL` and `KEYMILL_TEST_POSTGRES`; the Redis is the test's own.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use keymill::Scheme;

use crate::common::{BINARY, Home, PATIENT, Ran};

const PAGE: &str = include_str!("../../../../docs/operations/restore.md");

/// The text of the block behind this mark.
fn block(mark: &str) -> &'static str {
    let behind = PAGE.split(&format!("<!-- {mark} -->\n```")).nth(1).unwrap_or_else(|| panic!("no {mark}"));
    behind.split("```").next().unwrap().split_once('\n').unwrap().1
}

/// The page's statements for a dialect, by the source that each is for.
fn statements(dialect: &str) -> BTreeMap<&'static str, &'static str> {
    let parts = block(&format!("statements: {dialect}")).split("-- ").skip(1);
    parts.map(|part| part.split_once('\n').unwrap()).map(|(source, sql)| (source, sql.trim())).collect()
}

/// The page's command for a source.
fn command(source: &str) -> &'static str {
    let lines = || block("run: restore").lines();
    let is_for_source = |line: &&str| line.split_whitespace().nth(2).unwrap().trim_matches('\'') == source;
    lines().find(is_for_source).unwrap_or_else(|| panic!("no command for {source}"))
}

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/servers").join(name))
}

fn done(command: &mut Command) -> String {
    try_done(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn try_done(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// `user:password@host:port` of a URL.
fn login(url: &str) -> [String; 4] {
    let (user, place) = url.split_once("://").unwrap().1.rsplit_once('@').unwrap();
    let (user, password) = user.split_once(':').unwrap();
    let (host, port) = place.split('/').next().unwrap().rsplit_once(':').unwrap();
    [user, password, host, port].map(str::to_owned)
}

fn url_of(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set; run `ci/servers/mariadb run ci/servers/postgres run cargo test -p keymill-cli`")
    })
}

/// The clients of a server, and a database of this test's own in it.
pub(crate) enum Server {
    MariaDb { login: [String; 4], database: String },
    Postgres { login: [String; 4], database: String },
}

impl Server {
    pub(crate) fn mariadb(name: &str) -> Server {
        let (login, database) =
            (login(&url_of("KEYMILL_TEST_MYSQL")), format!("{name}_{}", std::process::id()));
        let sql = format!("CREATE DATABASE {database}; GRANT ALL ON {database}.* TO keymill@'%'");
        done(script("mariadb").args(["root", "-e", &sql]));
        Server::MariaDb { login, database }
    }

    /// A schema.
    pub(crate) fn postgres(name: &str) -> Server {
        let (login, database) =
            (login(&url_of("KEYMILL_TEST_POSTGRES")), format!("{name}_{}", std::process::id()));
        let server = Server::Postgres { login, database };
        server.say(&format!("CREATE SCHEMA {}", server.database()));
        server
    }

    fn database(&self) -> &str {
        let (Server::MariaDb { database, .. } | Server::Postgres { database, .. }) = self;
        database
    }

    pub(crate) fn url(&self) -> String {
        let (Server::MariaDb { login, database } | Server::Postgres { login, database }) = self;
        let [user, password, host, port] = login;
        match self {
            Server::MariaDb { .. } => format!("mysql://{user}:{password}@{host}:{port}/{database}"),
            Server::Postgres { .. } => {
                let own = url_of("KEYMILL_TEST_POSTGRES");
                let own = own.rsplit_once('/').unwrap().1;
                format!("postgres://{user}:{password}@{host}:{port}/{own}?schema={database}")
            }
        }
    }

    /// The same with [`PATIENT`].
    pub(crate) fn patient_url(&self) -> String {
        let url = self.url();
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}{PATIENT}")
    }

    /// A client of the server's own.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        match self {
            Server::MariaDb { login: [user, password, host, port], .. } => {
                command
                    .args(["--no-defaults", "-h", host, "-P", port, "-u", user])
                    .env("MYSQL_PWD", password);
            }
            Server::Postgres { login: [user, password, host, port], database } => {
                let own = url_of("KEYMILL_TEST_POSTGRES");
                command
                    .env("PGPASSWORD", password)
                    .env("PGHOST", host)
                    .env("PGPORT", port)
                    .env("PGUSER", user);
                command.env("PGDATABASE", own.rsplit_once('/').unwrap().1);
                command.env("PGOPTIONS", format!("-c search_path={database}"));
            }
        }
        command
    }

    fn statement(&self, sql: &str) -> Command {
        let mut client = match self {
            Server::MariaDb { .. } => self.client("mariadb"),
            Server::Postgres { .. } => self.client("psql"),
        };
        match self {
            Server::MariaDb { database, .. } => client.args(["-N", "-e", sql, database]),
            Server::Postgres { .. } => client.args(["-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]),
        };
        client
    }

    /// What a statement answers, one row a line.
    pub(crate) fn say(&self, sql: &str) -> String {
        self.try_say(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub(crate) fn try_say(&self, sql: &str) -> Result<String, String> {
        try_done(&mut self.statement(sql)).map(|answer| answer.trim().to_owned())
    }

    /// A session that has said this, and stays open until its client is killed.
    pub(crate) fn session(&self, sql: &str) -> Child {
        let mut client = match self {
            Server::MariaDb { database, .. } => {
                let mut client = self.client("mariadb");
                client.args(["--unbuffered", database]);
                client
            }
            Server::Postgres { .. } => self.client("psql"),
        };
        let mut client =
            client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let stdin = client.stdin.as_mut().unwrap();
        stdin.write_all(format!("{sql}\n").as_bytes()).unwrap();
        client
    }

    fn dump(&self) -> String {
        match self {
            Server::MariaDb { database, .. } => done(self.client("mariadb-dump").arg(database)),
            Server::Postgres { database, .. } => {
                done(self.client("pg_dump").args(["--clean", "--if-exists", "--no-owner", "-n", database]))
            }
        }
    }

    fn put_back(&self, dump: &Path) {
        let dump = std::fs::File::open(dump).unwrap();
        let mut client = match self {
            Server::MariaDb { database, .. } => {
                let mut client = self.client("mariadb");
                client.arg(database);
                client
            }
            Server::Postgres { .. } => {
                let mut client = self.client("psql");
                client.args(["-q", "-v", "ON_ERROR_STOP=1"]);
                client
            }
        };
        let output = client.stdin(dump).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn statements(&self) -> BTreeMap<&'static str, &'static str> {
        statements(if matches!(self, Server::MariaDb { .. }) { "mysql" } else { "postgres" })
    }

    /// The page's number for a source, of a table with these ids.
    fn number(&self, source: &str, ids: &[String]) -> String {
        let bytes = match self {
            Server::MariaDb { .. } => "VARBINARY(16)",
            Server::Postgres { .. } => "bytea",
        };
        let (table, column, kind) = match source {
            "serial:cust_info/custid?number=000000&zone=Asia/Shanghai" => {
                ("cust_info", "custid", "VARCHAR(40)")
            }
            "business:order?wide=on" => ("orders", "id", bytes),
            _ => ("orders", "id", "BIGINT"),
        };
        let value = |id: &String| match (kind, id.strip_prefix("0x")) {
            ("bytea", Some(digits)) => format!("('\\x{digits}')"),
            ("VARCHAR(40)", None) => format!("('{id}')"),
            _ => format!("({id})"),
        };
        self.say(&format!("DROP TABLE IF EXISTS {table}"));
        self.say(&format!("CREATE TABLE {table} ({column} {kind} PRIMARY KEY)"));
        for rows in ids.chunks(500) {
            let rows: Vec<_> = rows.iter().map(value).collect();
            self.say(&format!("INSERT INTO {table} VALUES {}", rows.join(",")));
        }
        let mut sql = self.statements()[source].to_owned();
        if let Some(first) = ids.first().filter(|_| source.starts_with("serial:")) {
            assert!(sql.contains("20261123"), "{sql}");
            sql = sql.replace("20261123", &first[..8]);
        }
        self.say(&sql)
    }
}

impl Drop for Server {
    /// A test that fails leaves nothing to the others either. What it started may still hold locks, and a second panic would end all tests.
    fn drop(&mut self) {
        let mut client = match &*self {
            Server::MariaDb { database, .. } => {
                let sql = format!("SET lock_wait_timeout = 10; DROP DATABASE {database}");
                let mut client = script("mariadb");
                client.args(["root", "-e", &sql]);
                client
            }
            Server::Postgres { database, .. } => {
                self.statement(&format!("SET lock_timeout = '10s'; DROP SCHEMA {database} CASCADE"))
            }
        };
        let dropped = client.stdin(Stdio::null()).output();
        if !std::thread::panicking() {
            let output = dropped.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

/// A source whose ids come before and after a restore.
struct Case {
    /// As the page names it.
    source: &'static str,
    /// As it is taken from; the page's name with options.
    spec: String,
    issued: Vec<String>,
}

impl Case {
    fn new(source: &'static str, spec: &str) -> Case {
        Case { source, spec: spec.to_owned(), issued: Vec::new() }
    }

    fn is_business(&self) -> bool {
        self.source.starts_with("business:")
    }

    /// Some more ids, none of which was there before. Business ids are of keys of every counter, some with many more numbers.
    fn take(&mut self, home: &Home, url: &str, round: usize) {
        let mut seen: HashSet<String> = self.issued.iter().cloned().collect();
        let takes: Vec<(usize, String)> = if self.is_business() {
            (0..12_usize).map(|key| (3 + 9 * ((key + round) % 4), format!("buyer-{key}"))).collect()
        } else {
            vec![(7, String::new()), (31, String::new())]
        };
        for (count, key) in takes {
            let count = count.to_string();
            let mut args = vec!["--mill", url, "take", &self.spec, &count];
            if !key.is_empty() {
                args.extend(["--key-text", &key]);
            }
            for id in patiently(home, &args).done().lines() {
                let id = if self.source.ends_with("wide=on") {
                    format!("0x{:032x}", id.parse::<u128>().unwrap())
                } else {
                    id.to_owned()
                };
                assert!(seen.insert(id.clone()), "{}: {id} came before", self.spec);
                self.issued.push(id);
            }
        }
    }

    /// The page's command, with this source's options, this mill and this number.
    fn repair(&self, home: &Home, url: &str, number: &str) -> Ran {
        // With this `max_lead` a snowflake gives ids without a wait of ten minutes. The command has the `max_lead` of the page.
        let spec = self.spec.replace("max_lead=15m", "max_lead=3s");
        let (name, options) = spec.split_once('?').unwrap_or((&spec, ""));
        let own = if options.is_empty() { name.to_owned() } else { format!("'{name}?{options}'") };
        let line = command(self.source);
        let named = line.split_whitespace().nth(2).unwrap();
        let line = line.replacen("keymill", "\"$K\"", 1).replacen(named, &own, 1);
        home.shell(&format!("export KEYMILL_CONFIG='{url}' N='{number}'; {line}"))
    }
}

/// Runs a command until a worker is free and the store answers.
pub(crate) fn patiently(home: &Home, args: &[&str]) -> Ran {
    let give_up = Instant::now() + Duration::from_secs(180);
    loop {
        let ran = home.run(args);
        let waits = ["NO_WORKER_FREE", "DEADLINE", "STORE_UNAVAILABLE", "CLOCK_BEHIND"]
            .iter()
            .any(|code| ran.err.starts_with(&format!("keymill: {code}: ")));
        if !waits || Instant::now() > give_up {
            return ran;
        }
    }
}

fn cases(url: &str, home: &Home) -> Vec<Case> {
    let mut cases = vec![
        Case::new("segment:orders", "segment:orders"),
        Case::new(
            "serial:cust_info/custid?number=000000&zone=Asia/Shanghai",
            "serial:cust_info/custid?number=000000&zone=Asia/Shanghai",
        ),
        Case::new("business:order", "business:order?counters=8"),
        Case::new("business:order?wide=on", "business:parcel?wide=on&counters=8"),
        Case::new("snowflake:tx?max_lead=3s&lease=30s", "snowflake:tx?max_lead=15m&lease=30s"),
        Case::new(
            "snowflake:tx?max_lead=3s&lease=30s",
            "snowflake:scattered?max_lead=15m&lease=30s&scatter=2",
        ),
        Case::new("snowflake:tx?worker=5&max_lead=3s", "snowflake:fixed?max_lead=15m&worker=5"),
        Case::new("snowflake:tx?worker=5&max_lead=3s", "snowflake:high?max_lead=15m&worker=6&scatter=high:4"),
    ];
    for scheme in Scheme::ALL.into_iter().filter(|scheme| scheme.keeps_segments()) {
        let steps = match scheme {
            _ if scheme.is_shared_sequence() => "&allocation=10",
            _ if scheme.keeps_allocation() => "&step=10&allocation=0",
            _ => "&step=10",
        };
        let table = format!("of_{scheme}");
        // MariaDB's sequences lose values in a crash of the server, of which there is none here.
        let accepted = if scheme.is_sequence() { "&unsafe=on" } else { "" };
        cases.push(Case::new(
            "segment:orders",
            &format!("segment:orders?scheme={scheme}&table={table}{steps}{accepted}"),
        ));
    }
    cases.retain(|case| {
        // A busy server may not answer in time; what was typed is typed again.
        let ran = (0..30)
            .map(|_| home.run(&["--mill", url, "init", &case.spec]))
            .find(|ran| !ran.err.starts_with("keymill: STORE_UNAVAILABLE"))
            .expect("an answer of the server");
        let is_other_dialects =
            ran.err.starts_with("keymill: INVALID_CONFIG") || ran.err.starts_with("keymill: STORE_REFUSED");
        if is_other_dialects {
            eprintln!("{}: {}", case.spec, ran.err);
            return false;
        }
        ran.done();
        true
    });
    cases
}

/// Ids before and after a backup; the restore; the page's numbers and commands; and ids that never came before.
fn follow_the_page(url: &str, app: &Server, least: usize, back_up: impl FnOnce(), put_back: impl FnOnce()) {
    let home = Home::new();
    let mut cases = cases(url, &home);
    assert!(cases.len() >= least, "{} cases", cases.len());
    for case in &mut cases {
        case.take(&home, url, 0);
    }
    back_up();
    for case in &mut cases {
        case.take(&home, url, 1);
        case.take(&home, url, 2);
    }
    put_back();
    for case in &cases {
        let number = if command(case.source).contains("$N") {
            app.number(case.source, &case.issued)
        } else {
            String::new()
        };
        assert!(
            !command(case.source).contains("$N") || number.parse::<u64>().is_ok(),
            "{}: {number}",
            case.spec
        );
        if case.spec.starts_with("snowflake:") && case.spec.contains("scatter") {
            let highest = case.issued.iter().max_by_key(|id| id.parse::<u64>().unwrap()).unwrap();
            let args = ["--mill", url, "repair", &case.spec, "--to", highest, "--yes"];
            let refused = home.run(&args).refused("INVALID_ARGUMENT");
            assert!(refused.contains("the highest id is not the latest"), "{refused}");
        }
        let first = case.repair(&home, url, &number).done();
        assert!(first.contains("written: yes"), "{first}");
        // Typed twice. A row that went up by a whole step stands higher than the number.
        let again = case.repair(&home, url, &number);
        // A command with the present time writes a later one, where a second has passed.
        let from = |out: &str| out.lines().find(|line| line.starts_with("ids from: ")).map(str::to_owned);
        let written = if from(&again.out) == from(&first) { "written: no" } else { "written: yes" };
        let is_same = again.code == Some(0) && again.out.contains(written);
        assert!(is_same || again.err.contains("repair never lowers a row"), "{}: {again:?}", case.spec);
    }
    for case in &mut cases {
        case.take(&home, url, 3);
        println!("{}: {} ids", case.spec, case.issued.len());
    }
}

#[test]
fn a_dump_of_mariadb_is_put_back_as_the_page_says_and_no_id_comes_again() {
    let (store, app) = (Server::mariadb("restored"), Server::mariadb("shop_of_restored"));
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("backup.sql");
    follow_the_page(
        &store.url(),
        &app,
        17,
        || std::fs::write(&dump, store.dump()).unwrap(),
        || store.put_back(&dump),
    );
}

#[test]
fn a_dump_of_postgresql_is_put_back_as_the_page_says_and_no_id_comes_again() {
    let (store, app) = (Server::postgres("restored"), Server::postgres("shop_of_restored"));
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("backup.sql");
    follow_the_page(
        &store.url(),
        &app,
        15,
        || std::fs::write(&dump, store.dump()).unwrap(),
        || store.put_back(&dump),
    );
}

#[test]
fn a_copy_of_a_sqlite_file_is_put_back_as_the_page_says_and_no_id_comes_again() {
    let app = Server::mariadb("shop_of_sqlite");
    let folder = tempfile::tempdir().unwrap();
    let (file, backup) = (folder.path().join("ids.db"), folder.path().join("backup.db"));
    let url = format!("sqlite:{}", file.display());
    follow_the_page(
        &url,
        &app,
        14,
        || assert!(std::fs::copy(&file, &backup).unwrap() > 0),
        || assert!(std::fs::copy(&backup, &file).unwrap() > 0),
    );
}

#[test]
fn the_files_of_a_redis_are_put_back_as_the_page_says_and_no_id_comes_again() {
    let app = Server::postgres("shop_of_redis");
    let folder = tempfile::tempdir().unwrap();
    let redis = |verb: &str| done(script("redis").arg(verb).env("KEYMILL_CI_DIR", folder.path()));
    let url = redis("start").trim().to_owned();
    follow_the_page(&url, &app, 9, || drop(redis("backup")), || drop(redis("restore")));
    redis("stop");
}

#[test]
fn two_operators_at_once_and_one_who_is_killed_leave_every_counter_raised() {
    let store = Server::mariadb("operators");
    let (home, url, spec) = (Home::new(), store.url(), "business:order?counters=4096");
    home.run(&["--mill", &url, "init", spec]).done();
    patiently(&home, &["--mill", &url, "take", spec, "5", "--key-text", "a"]).done();
    let args =
        |to: &'static str| ["--mill", url.as_str(), "repair", spec, "--to", to, "--yes"].map(str::to_owned);
    let spawn = |to: &'static str| {
        let mut command = Command::new(BINARY.as_str());
        command.args(args(to)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let lowest = || -> (u64, u64) {
        let sql = "SELECT COUNT(*), MIN(next) FROM keymill_segment WHERE name LIKE 'business:order/4096/%'";
        let answer = store.say(sql);
        let (count, next) = answer.split_once('\t').unwrap();
        (count.parse().unwrap(), next.parse().unwrap())
    };
    // Killed as soon as it has raised some.
    let mut killed = spawn("1000");
    let give_up = Instant::now() + Duration::from_secs(60);
    while lowest().0 < 600 && Instant::now() < give_up && killed.try_wait().unwrap().is_none() {}
    killed.kill().unwrap();
    killed.wait().unwrap();
    println!("killed after {} rows", lowest().0);
    for operator in [spawn("1000"), spawn("1000")] {
        let output = operator.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(lowest(), (4096, 1000));
    let number = |key: &str| -> u64 {
        let id = patiently(&home, &["--mill", &url, "next", spec, "--key-text", key]).ids()[0];
        id & ((1 << 47) - 1)
    };
    assert!(["a", "b", "c"].iter().all(|key| number(key) >= 1000));
}
