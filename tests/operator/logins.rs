//! Every login that the page about privileges documents, made by the page's own statements, tries everything that the others may: a
//! table for each server, printed and compared with what the page promises.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use keymill::store::Scheme;
use keymill::{Change, Code, Mill};
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, postgres, redis, schemes};

use super::page::{code_spans, grants, hide_passwords, redis_router, redis_user, root};

/// A login of the page.
struct Login {
    name: String,
    /// The page's statements, for the user `ids`; of Redis the words of its rights.
    rights: Vec<String>,
}

impl Login {
    fn new(name: impl Into<String>, rights: Vec<String>) -> Login {
        Login { name: name.into(), rights }
    }

    fn user(&self) -> String {
        format!("login{}_{}", std::process::id(), self.name.replace(' ', "_"))
    }
}

/// What a login tries at the store of a URL. An error is the server's, or that of a mill that was refused.
struct Attempt {
    name: String,
    run: Run,
}

type Run = Box<dyn Fn(&str) -> Result<(), String>>;

impl Attempt {
    fn new(name: &str, run: impl Fn(&str) -> Result<(), String> + 'static) -> Attempt {
        Attempt { name: name.to_owned(), run: Box::new(run) }
    }

    /// By a mill.
    fn mill(name: &str, run: impl Fn(&Mill) -> keymill::Result<()> + 'static) -> Attempt {
        Attempt::new(name, move |url| {
            let mill = Mill::open(&patient(url)).expect("a mill");
            let answer = run(&mill);
            mill.close();
            answer.map_err(|error| {
                // A missing right is no outage, and no missing table.
                if error.code == Code::StoreRefused { error.message } else { format!("WRONG CODE {error}") }
            })
        })
    }

    fn next(name: &str, spec: &str) -> Attempt {
        let spec = spec.to_owned();
        Attempt::mill(name, move |mill| mill.source(&spec)?.next_text().map(drop))
    }
}

const WORKER: &str = "snowflake:leased?slots=0-0&deadline=60s";
const FIXED: &str = "snowflake:fixed?worker=5&deadline=60s";
const DISPOSABLE: &str = "snowflake:disposable?worker=disposable&deadline=60s";

/// A version or number above those of every call before.
fn higher() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1);
    // ordering: every call gets another value, and no memory belongs to it.
    LAST.fetch_add(1, Ordering::Relaxed)
}

/// The spec by which a source of this scheme is opened.
fn spec_of(scheme: Scheme) -> String {
    let source = if scheme.keeps_segments() { "segment:orders" } else { "serial:cust_info/custid" };
    let unsafe_on = if scheme.is_sequence() { "&unsafe=on" } else { "" };
    let table = if scheme == Scheme::JpaSequence { "&table=orders_seq" } else { "" };
    format!("{source}?scheme={scheme}&deadline=60s{}{unsafe_on}{table}", schemes::option(scheme))
}

fn put(mill: &Mill) -> keymill::Result<()> {
    let table = format!("version = {}\n[[range]]\nupper = 65535\nshard = \"s1\"\n", higher());
    mill.put_routes("orders", &table, Change::Apply).map(drop)
}

/// A source of each scheme, workers, routers and what an operator does.
fn by_keymill(schemes: impl Iterator<Item = Scheme>) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> =
        schemes.map(|scheme| Attempt::next(scheme.name(), &spec_of(scheme))).collect();
    attempts.extend([
        Attempt::next("lease", WORKER),
        Attempt::next("fixed", FIXED),
        Attempt::mill("table", |mill| mill.route_table("orders").map(drop)),
        Attempt::mill("follow", |mill| mill.router("orders").map(drop)),
        Attempt::mill("list", |mill| mill.stored_routers().map(drop)),
        Attempt::mill("put", put),
        Attempt::mill("repair", |mill| {
            mill.source("segment:orders")?.repair(higher() * 1_000_000, Change::Apply).map(drop)
        }),
    ]);
    attempts
}

/// What a login could do without keymill to keymill's own tables. A statement of SQL changes no row.
const BY_HAND: [(&str, &str); 8] = [
    ("change segment", "UPDATE keymill_segment SET next = 1 WHERE 1 = 0"),
    ("delete segment", "DELETE FROM keymill_segment WHERE 1 = 0"),
    ("change worker", "UPDATE keymill_worker SET mark = 1 WHERE 1 = 0"),
    ("delete worker", "DELETE FROM keymill_worker WHERE 1 = 0"),
    ("change route", "UPDATE keymill_route SET version = 1 WHERE 1 = 0"),
    ("delete route", "DELETE FROM keymill_route WHERE 1 = 0"),
    ("change reader", "UPDATE keymill_reader SET mark = 1 WHERE 1 = 0"),
    ("delete reader", "DELETE FROM keymill_reader WHERE 1 = 0"),
];

fn by_hand(run: fn(&str, &str) -> Result<(), String>) -> impl Iterator<Item = Attempt> {
    BY_HAND.into_iter().map(move |(name, sql)| Attempt::new(name, move |url| run(url, sql)))
}

/// Every attempt as every login: a line for each login with what it may, and nothing else. `around` carries out an attempt, so that a server can be
/// prepared for it.
fn tried(
    logins: &[Login],
    attempts: &[Attempt],
    url: impl Fn(&Login) -> String,
    around: impl Fn(&Attempt, &mut dyn FnMut()),
) -> String {
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for login in logins {
        let (mut may, mut may_not) = (Vec::new(), Vec::new());
        for attempt in attempts {
            let mut answer = Ok(());
            around(attempt, &mut || answer = (attempt.run)(&url(login)));
            match answer {
                Ok(()) => may.push(attempt.name.as_str()),
                Err(error) => {
                    may_not.push(attempt.name.as_str());
                    let said = format!("{}, {}: {error}", login.name, attempt.name);
                    // The server's word for a missing right.
                    let names_a_right =
                        ["denied", "permission", "NOPERM"].iter().any(|word| error.contains(word));
                    // Advice that is followed gives a login that reads routes no right to store them.
                    let gives_more = ["table", "list"].contains(&attempt.name.as_str())
                        && ["INSERT", "UPDATE", "+hset"].iter().any(|right| error.contains(right));
                    if error.starts_with("WRONG CODE") || !names_a_right || gives_more {
                        wrong.push(said);
                    }
                }
            }
        }
        println!("{} | may {} | may not {}", login.name, may.join(", "), may_not.join(", "));
        writeln!(text, "{}: {}", login.name, may.join(", ")).expect("a text");
    }
    assert!(wrong.is_empty(), "these are not refused as missing rights:\n{}", wrong.join("\n"));
    text
}

/// The page's statement that gives rights on this table, beginning with these words.
fn statement(begin: &str, on: &str) -> String {
    let spans = code_spans();
    let ends = [format!(".{on} TO ids@'%'"), format!(".{on} TO ids")];
    let found =
        spans.iter().find(|span| span.starts_with(begin) && ends.iter().any(|end| span.ends_with(end)));
    found.unwrap_or_else(|| panic!("`{begin} … {on}` is on the page: {spans:#?}")).clone()
}

/// The logins of every SQL database but those for `init`: of schemes, workers and routers.
fn of_sql(keeps: &str) -> Vec<Login> {
    let of_schemes = grants().into_iter().filter(|(scheme, _)| schemes::keeps(keeps, *scheme));
    let mut logins: Vec<Login> =
        of_schemes.map(|(scheme, grant)| Login::new(scheme.name(), vec![grant])).collect();
    let reads = statement("GRANT SELECT ON", "keymill_route");
    let is_reader = statement("GRANT SELECT, INSERT, UPDATE, DELETE ON", "keymill_reader");
    logins.extend([
        Login::new("leased workers", vec![statement("GRANT SELECT, INSERT, UPDATE ON", "keymill_worker")]),
        Login::new("routers", vec![reads.clone(), is_reader.clone()]),
        Login::new("status of routers", vec![reads, statement("GRANT SELECT ON", "keymill_reader")]),
        Login::new(
            "route put",
            vec![statement("GRANT SELECT, INSERT, UPDATE ON", "keymill_route"), is_reader],
        ),
    ]);
    logins
}

#[test]
fn each_login_of_the_page_may_on_mariadb_what_the_page_says_and_nothing_else() {
    let shop = format!("logins_{}", std::process::id());
    root(&format!("CREATE DATABASE {shop}; GRANT ALL ON {shop}.* TO keymill@'%'"));
    let server = mariadb::url();
    let place = server.rsplit_once('@').and_then(|(_, place)| place.split_once('/')).expect("a place").0;
    let owner = Mill::open(&patient(&format!("mysql://keymill:secret@{place}/{shop}"))).unwrap();
    let specs: Vec<String> = schemes::on_mysql().map(spec_of).collect();
    let specs: Vec<&str> = specs.iter().map(String::as_str).chain([WORKER, FIXED, DISPOSABLE]).collect();
    owner.init(&specs, Change::Apply).unwrap();
    put(&owner).unwrap();
    owner.close();
    let mut logins = of_sql("MariaDB");
    logins.extend([
        Login::new("disposable workers", vec![statement("GRANT INSERT ON", "WORKER_NODE")]),
        Login::new("init", vec![statement("GRANT CREATE, SELECT ON", "keymill_segment")]),
    ]);
    for login in &logins {
        let user = format!("{}@'%'", login.user());
        root(&format!("CREATE USER {user} IDENTIFIED BY 'secret'"));
        for right in &login.rights {
            root(&right.replace("shop.", &format!("{shop}.")).replace("ids@'%'", &user));
        }
    }
    let mut attempts = by_keymill(schemes::on_mysql());
    attempts.push(Attempt::next("disposable", DISPOSABLE));
    attempts.push(Attempt::mill("init", |mill| mill.init(&["segment:orders"], Change::Apply).map(drop)));
    attempts.extend(by_hand(|url, sql| {
        use mysql::prelude::Queryable;
        mariadb::connection_of(url).query_drop(sql).map_err(|error| error.to_string())
    }));
    let url = |login: &Login| format!("mysql://{}:secret@{place}/{shop}", login.user());
    let table = format!("{shop}.keymill_segment");
    let seen = tried(&logins, &attempts, url, |attempt, run| {
        let is_init = attempt.name == "init";
        if is_init {
            root(&format!("RENAME TABLE {table} TO {table}_kept"));
        }
        run();
        if is_init {
            root(&format!("DROP TABLE IF EXISTS {table}; RENAME TABLE {table}_kept TO {table}"));
        }
    });
    for login in &logins {
        root(&format!("DROP USER {}@'%'", login.user()));
    }
    root(&format!("DROP DATABASE {shop}"));
    assert_eq!(seen, own_table(schemes::on_mysql()) + ON_MARIADB);
}

/// What the login of each scheme may: use its own table. `keymill` is the login of segments, and a number of its row is also a mark of a
/// fixed worker.
fn own_table(schemes: impl Iterator<Item = Scheme>) -> String {
    let line = |scheme| match scheme {
        Scheme::Keymill => "keymill: keymill, fixed, repair, change segment\n".to_owned(),
        _ => format!("{scheme}: {scheme}\n"),
    };
    schemes.map(line).collect()
}

/// What the other logins may.
const ON_MARIADB: &str = "\
leased workers: lease, change worker
routers: table, follow, list, change reader, delete reader
status of routers: table, list
route put: table, follow, list, put, change route, change reader, delete reader
disposable workers: disposable
init: init
";

#[test]
fn each_login_of_the_page_may_on_postgresql_what_the_page_says_and_nothing_else() {
    let private = postgres::Private::start("");
    let root = postgres::Sql::root(&private.url());
    let owner = Mill::open(&patient(&format!("{}?schema=public", private.url()))).unwrap();
    let specs: Vec<String> = schemes::on_postgres().map(spec_of).collect();
    let specs: Vec<&str> = specs.iter().map(String::as_str).chain([WORKER, FIXED]).collect();
    owner.init(&specs, Change::Apply).unwrap();
    put(&owner).unwrap();
    owner.close();
    let spans = code_spans();
    let on_schema = |begin: &str| {
        let found = spans.iter().find(|span| span.starts_with(begin) && span.ends_with(" TO ids"));
        found.expect("the statement is on the page").clone()
    };
    let mut logins = of_sql("PostgreSQL");
    for login in &mut logins {
        match login.name.as_str() {
            "sequence" => {
                login.rights = vec![statement("GRANT SELECT, UPDATE ON SEQUENCE", "keymill_sequence")];
            }
            "jpa_sequence" => {
                login.rights = vec![statement("GRANT SELECT, USAGE ON SEQUENCE", "orders_seq")];
            }
            _ => {}
        }
    }
    logins.push(Login::new("init", vec![on_schema("GRANT CREATE ON SCHEMA")]));
    for login in &logins {
        root.say(&format!("CREATE ROLE {} LOGIN PASSWORD 'secret'", login.user()));
        for right in [&on_schema("GRANT USAGE ON SCHEMA")].into_iter().chain(&login.rights) {
            let right = right.replace("shop.", "public.").replace("@'%'", "");
            root.say(&right.replace(" TO ids", &format!(" TO {}", login.user())));
        }
    }
    let mut attempts = by_keymill(schemes::on_postgres());
    attempts.push(Attempt::mill("init", |mill| mill.init(&["segment:orders"], Change::Apply).map(drop)));
    attempts.extend(by_hand(|url, sql| {
        let place = url.split_once('?').map_or(url, |(place, _)| place);
        let said = postgres::Sql::to(&postgres::options_of(place)).try_say(sql);
        said.map(drop).map_err(|error| format!("{error:?}"))
    }));
    let place = private.url().rsplit_once('@').expect("a place").1.to_owned();
    let url = |login: &Login| format!("postgres://{}:secret@{place}?schema=public", login.user());
    let seen = tried(&logins, &attempts, url, |attempt, run| {
        let is_init = attempt.name == "init";
        if is_init {
            root.say("ALTER TABLE public.keymill_segment RENAME TO keymill_segment_kept");
            root.say("ALTER INDEX public.keymill_segment_pkey RENAME TO keymill_segment_kept_pkey");
        }
        run();
        if is_init {
            root.say("DROP TABLE IF EXISTS public.keymill_segment");
            root.say("ALTER TABLE public.keymill_segment_kept RENAME TO keymill_segment");
            root.say("ALTER INDEX public.keymill_segment_kept_pkey RENAME TO keymill_segment_pkey");
        }
    });
    assert_eq!(seen, own_table(schemes::on_postgres()) + ON_POSTGRESQL);
}

/// The same on PostgreSQL, where a login for `init` owns what it makes.
const ON_POSTGRESQL: &str = "\
leased workers: lease, change worker
routers: table, follow, list, change reader, delete reader
status of routers: table, list
route put: table, follow, list, put, change route, change reader, delete reader
init: init
";

/// The same changes on Redis.
const BY_HAND_ON_REDIS: [(&str, &str); 9] = [
    ("change segment", "HSET keymill_segment:of_nothing next 1"),
    ("delete segment", "DEL keymill_segment:of_nothing"),
    ("change worker", "HSET keymill_worker:of_nothing 1 1"),
    ("delete worker", "DEL keymill_worker:of_nothing"),
    ("change route", "HSET keymill_route:of_nothing other 1"),
    ("delete route", "DEL keymill_route:of_nothing"),
    ("change reader", "HSET keymill_reader:of_nothing 1 1"),
    ("delete reader", "HDEL keymill_reader:of_nothing 1"),
    ("other keys", "HSET other:of_nothing 1 1"),
];

#[test]
fn each_login_of_the_page_may_on_redis_what_the_page_says_and_nothing_else() {
    let private = redis::Private::start("");
    let mut admin = redis::connection_of(&private.url());
    hide_passwords(&mut admin, false);
    hide_passwords(&mut admin, true);
    let owner = Mill::open(&patient(&private.url())).unwrap();
    put(&owner).unwrap();
    owner.close();
    let base = redis_user();
    let with = |begin: &str| -> Vec<String> {
        let spans = code_spans();
        let span = spans.iter().find(|span| span.starts_with(begin)).expect("the rights are on the page");
        base.iter().cloned().chain(span.split(' ').map(str::to_owned)).collect()
    };
    // In place of its keys, as the page says.
    let puts = with("~keymill_route:*").into_iter().filter(|word| word != "~keymill_segment:*").collect();
    let logins = [
        Login::new("keymill", base.clone()),
        Login::new("leased workers", with("~keymill_worker:*")),
        Login::new("routers", [base.clone(), redis_router()].concat()),
        Login::new("status of routers", with("%R~keymill_route:* +hmget +scan")),
        Login::new("route put", puts),
    ];
    for login in &logins {
        let user = login.user();
        let line = ["ACL", "SETUSER", &user, "reset"].into_iter();
        let line: Vec<&str> = line.chain(login.rights.iter().map(String::as_str)).collect();
        redis::say::<()>(&mut admin, &line);
    }
    let mut attempts = by_keymill([Scheme::Keymill].into_iter());
    attempts.push(Attempt::next("serial", "serial:cust_info/custid?number=000000&deadline=60s"));
    attempts.extend(BY_HAND_ON_REDIS.into_iter().map(|(name, line)| {
        Attempt::new(name, move |url| {
            let words: Vec<&str> = line.split(' ').collect();
            let mut command = ::redis::cmd(words[0]);
            let answer = command.arg(&words[1..]).query::<::redis::Value>(&mut redis::connection_of(url));
            answer.map(drop).map_err(|error| format!("{:?} {error}", error.code()))
        })
    }));
    let place = private.url().rsplit_once('@').expect("a place").1.to_owned();
    let url = |login: &Login| format!("redis://{}:secret@{place}", login.user());
    let seen = tried(&logins, &attempts, url, |_, run| run());
    assert_eq!(seen, ON_REDIS);
}

/// The same on Redis, where the rights of workers and routers stand beside those of segments.
const ON_REDIS: &str = "\
keymill: keymill, fixed, repair, serial, change segment
leased workers: keymill, lease, fixed, repair, serial, change segment, change worker
routers: keymill, fixed, table, follow, repair, serial, change segment, change reader, delete reader
status of routers: keymill, fixed, table, list, repair, serial, change segment
route put: table, put, change route
";
