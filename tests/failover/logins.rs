//! Logins at real servers that were just started: each method to log in × each word of `tls=` × each place. A server's cache of logins
//! is empty then, which is when MySQL 8 and 9 ask for the password itself. Impostors have a table of theirs, `tls.rs`.
//!
//! The server of MySQL's protocol is the version that `ci/servers/mariadb --version` names, of PostgreSQL and Redis too.

use std::net::{IpAddr, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use keymill::{Change, Code, Mill};
use keymill_tests::authority::Authority;
use keymill_tests::ci::patient;
use keymill_tests::proxy::Proxy;
use keymill_tests::{mariadb, postgres, redis};
use mysql::prelude::Queryable;

/// What `status` says of a connection.
const NONE: &str = "none";
const ENCRYPTED: &str = "encrypted, server not authenticated";
const BY_AUTHORITY: &str = "verified by the authority, whatever host";
const VERIFIED: &str = "verified";

/// Where the client finds the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Loopback,
    /// Another address of this machine: a proxy there forwards to the server.
    Network,
    Socket,
}
use Place::{Loopback, Network, Socket};

/// How a user logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Login {
    /// With a proof.
    Proof,
    /// With the password the first time after a start of the server, with a proof later.
    PasswordOnce,
    /// With the password each time.
    Password,
}

/// `tls=`, the place; the protection of a login by proof, and of one by the password itself.
const TABLE: &[(&str, Place, &str, &str)] = &[
    ("", Loopback, NONE, ENCRYPTED),
    ("prefer", Loopback, ENCRYPTED, ENCRYPTED),
    ("require", Loopback, ENCRYPTED, ENCRYPTED),
    ("verify-ca", Loopback, BY_AUTHORITY, BY_AUTHORITY),
    ("verify", Loopback, VERIFIED, VERIFIED),
    ("off", Loopback, NONE, NONE),
    ("", Network, ENCRYPTED, ENCRYPTED),
    ("prefer", Network, ENCRYPTED, ENCRYPTED),
    ("require", Network, ENCRYPTED, ENCRYPTED),
    ("verify-ca", Network, BY_AUTHORITY, BY_AUTHORITY),
    ("verify", Network, VERIFIED, VERIFIED),
    ("off", Network, NONE, NONE),
    ("", Socket, NONE, NONE),
    ("prefer", Socket, NONE, NONE),
    ("off", Socket, NONE, NONE),
];

/// An address of this machine that is not a loopback address. Nothing is sent.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// A socket file in a folder of this login's own, which forwards to a server's: the server's folder belongs to another user of the machine,
/// and stands in `/tmp`, where keymill does not trust it.
fn forwarded(socket: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("s");
    let listener = UnixListener::bind(&own).expect("a socket file");
    let server = socket.to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(upstream) = UnixStream::connect(&server) else { continue };
            let (Ok(from), Ok(to)) = (client.try_clone(), upstream.try_clone()) else { continue };
            std::thread::spawn(move || forward(from, to));
            std::thread::spawn(move || forward(upstream, client));
        }
    });
    (folder, own)
}

fn forward(mut from: UnixStream, mut to: UnixStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// The places of one server, and the authority that signed for each of them.
struct Places {
    scheme: &'static str,
    port: u16,
    socket: PathBuf,
    network: Option<Proxy>,
    ca: PathBuf,
    _folder: tempfile::TempDir,
}

impl Places {
    /// The certificate of a server in each of these places.
    fn names() -> String {
        let network = own_address().map_or(String::new(), |own| format!(",IP:{own}"));
        format!("subjectAltName=IP:127.0.0.1,DNS:localhost{network}")
    }

    fn new(scheme: &'static str, port: u16, socket: &Path, ca: &Path) -> Places {
        let network = own_address().map(|own| Proxy::start_at(own, ("127.0.0.1".to_owned(), port)));
        if network.is_none() {
            println!(
                "not run: logins at {scheme} over the network: this machine has no address but loopback"
            );
        }
        let (folder, socket) = forwarded(socket);
        Places { scheme, port, socket, network, ca: ca.to_owned(), _folder: folder }
    }

    /// The URL of a user; `None`: this machine has no such place.
    fn url(&self, login: &str, database: &str, word: &str, place: Place) -> Option<String> {
        let (host, port) = match place {
            Network => self.network.as_ref()?.address(),
            _ => ("127.0.0.1".to_owned(), self.port),
        };
        let mut options = Vec::new();
        if !word.is_empty() {
            options.push(format!("tls={word}"));
        }
        if word.starts_with("verify") {
            options.push(format!("ca={}", self.ca.display()));
        }
        if place == Socket {
            options.push(format!("socket={}", self.socket.display()));
        }
        Some(format!("{}://{login}@{host}:{port}/{database}?{}", self.scheme, options.join("&")))
    }
}

/// The protection of a login that gives an id, without the remedy.
fn logged_in(url: &str) -> Result<String, keymill::Error> {
    let mill = Mill::open(url).expect("a mill opens lazily");
    let answer = mill.facts().and_then(|facts| {
        mill.source("segment:orders?deadline=60s")?.next()?;
        Ok(facts)
    });
    mill.close();
    Ok(answer?.tls.split(" (").next().unwrap_or_default().to_owned())
}

/// Two logins of a user that has not logged in since the server's start.
fn check(
    places: &Places,
    user: &str,
    database: &str,
    login: Login,
    (word, place): (&str, Place),
    counted: &mut u32,
) {
    let (.., proof, password) =
        TABLE.iter().find(|row| (row.0, row.1) == (word, place)).expect("a row of the table");
    let Some(url) = places.url(user, database, word, place) else { return };
    let (first, second) = match login {
        Login::Proof => (proof, proof),
        Login::PasswordOnce => (password, proof),
        Login::Password => (password, password),
    };
    for (turn, wanted) in [("first", first), ("second", second)] {
        let found = logged_in(&patient(&url))
            .unwrap_or_else(|error| panic!("{turn} login {user} {word} {place:?}: {error}"));
        assert_eq!(found, *wanted, "{turn} login {user} {word} {place:?}");
        println!("login    {user} tls={word} {place:?}, {turn}: {found}");
        *counted += 1;
    }
}

#[test]
fn every_login_of_mysqls_protocol_works_after_a_start_of_the_server_as_the_table_says() {
    let authority = Authority::with(&Places::names());
    let server = mariadb::Private::encrypted(&authority, "");
    let say = |sql: &str| server.ci(&["root", "-N", "-e", sql]);
    let version = say("SELECT VERSION()");
    let is_mariadb = version.contains("MariaDB");
    // A server that was unpacked from its core package has no plugins, and `parsec` is one of MariaDB 11.6.
    let is_there = |method: &&str| match server.root().query_drop(format!("INSTALL SONAME 'auth_{method}'")) {
        Ok(()) => true,
        Err(error) => {
            println!("not run: {method} at {version}: {error}");
            false
        }
    };
    let methods: Vec<(&str, Login)> = if is_mariadb {
        let plugins = ["ed25519", "parsec"].into_iter().filter(is_there);
        std::iter::once("mysql_native_password").chain(plugins).map(|method| (method, Login::Proof)).collect()
    } else {
        vec![("caching_sha2_password", Login::PasswordOnce)]
    };
    let by = |method: &str| {
        if is_mariadb {
            format!("VIA {method} USING PASSWORD('T0pSecretPw')")
        } else {
            format!("WITH {method} BY 'T0pSecretPw'")
        }
    };
    // A server's cache knows users, so each row has one of its own.
    let users = methods.iter().flat_map(|(method, _)| (0..TABLE.len()).map(move |at| (method, at)));
    let statements = users.map(|(method, at)| {
        let user = format!("{method}_{at}@'%'");
        format!("CREATE USER {user} IDENTIFIED {}; GRANT ALL ON ids.* TO {user};", by(method))
    });
    say(&statements.collect::<String>());
    let own = Mill::open(&patient(&server.url())).expect("a mill");
    own.init(&[], Change::Apply).expect("the tables");
    own.close();
    server.kill();
    server.start_again();
    let port = mariadb::options_of(&server.url()).hosts[0].1;
    let places = Places::new("mysql", port, &server.socket(), &authority.file("ca.pem"));
    let mut counted = 0;
    for (method, login) in methods {
        for (at, (word, place, ..)) in TABLE.iter().enumerate() {
            let user = format!("{method}_{at}:T0pSecretPw");
            check(&places, &user, "ids", login, (word, *place), &mut counted);
        }
        let url = places.url(&format!("{method}_0"), "ids", "", Loopback).expect("a place");
        let error = logged_in(&patient(&url)).expect_err("no password");
        assert_eq!(error.code, Code::StoreRefused, "{method}: {error}");
        assert!(error.message.contains("without a password"), "{method}: {error}");
    }
    println!("logins: {counted} at {version}");
}

/// MySQL makes an authority and a certificate that names no host beside its data.
#[test]
fn a_mysql_as_installed_opens_in_one_try_and_by_its_own_authority() {
    let server = mariadb::Private::start("");
    let say = |sql: &str| server.ci(&["root", "-N", "-e", sql]);
    let version = say("SELECT VERSION()");
    let folder = server.socket().with_file_name("db");
    let ca = folder.join("ca.pem");
    if version.contains("MariaDB") {
        println!("not run: {version} makes no authority; `ci/servers/mysql run` gives this test a MySQL");
        return;
    }
    say("CREATE USER app@'%' IDENTIFIED BY 'secret'; GRANT ALL ON ids.* TO app@'%'");
    let url = server.url().replace("keymill:", "app:");
    let own = Mill::open(&patient(&url)).expect("a mill");
    own.init(&[], Change::Apply).expect("the tables, at the user's first login");
    own.close();
    for (options, first) in [
        ("", ENCRYPTED),
        (&*format!("?tls=verify-ca&ca={}", ca.display()), BY_AUTHORITY),
        ("?tls=require", ENCRYPTED),
        ("?tls=off", NONE),
    ] {
        server.kill();
        server.start_again();
        let found = logged_in(&patient(&format!("{url}{options}")));
        assert_eq!(found.unwrap_or_else(|error| panic!("{options}: {error}")), first, "{options}");
    }
    // Now the server knows the user, and a proof is enough.
    assert_eq!(logged_in(&patient(&url)).expect("a later login"), NONE);
    let error = logged_in(&patient(&format!("{url}?tls=verify&ca={}", ca.display()))).expect_err("no host");
    assert_eq!(error.code, Code::StoreRefused, "{error}");
    assert!(error.message.contains("write `tls=verify-ca`"), "{error}");
    println!("logins: 5 at {version} as installed");
}

/// `require_secure_transport`, and a user who may log in by TLS only: on loopback the second try is inside TLS, whatever the server's cache
/// of logins holds.
#[test]
fn a_mysql_that_demands_tls_opens_on_loopback_in_one_try() {
    let authority = Authority::with(&Places::names());
    let server = mariadb::Private::encrypted(&authority, "");
    let url = server.url();
    let own = Mill::open(&patient(&url)).expect("a mill");
    own.init(&[], Change::Apply).expect("the tables");
    own.close();
    let opens = |url: &str| {
        for _ in 0..3 {
            assert_eq!(logged_in(&patient(url)).expect("a login that needs no word about TLS"), ENCRYPTED);
        }
        let error = logged_in(&patient(&format!("{url}?tls=off"))).expect_err("a login without TLS");
        assert_eq!(error.code, Code::StoreRefused, "{error}");
        assert!(error.message.contains("the server demands TLS: `tls=require`"), "{error}");
    };
    let mut root = server.root();
    root.query_drop("CREATE USER app@'%' IDENTIFIED BY 'secret' REQUIRE SSL").expect("a user");
    root.query_drop("GRANT ALL ON ids.* TO app@'%'").expect("rights");
    opens(&url.replace("keymill:", "app:"));
    let wrong = logged_in(&patient(&url.replace("secret", "wrong"))).expect_err("a wrong password");
    assert!(wrong.code == Code::StoreRefused && wrong.message.contains("check user and password"), "{wrong}");
    root.query_drop("SET GLOBAL require_secure_transport = ON").expect("a setting");
    opens(&url);
}

#[test]
fn every_login_of_postgresql_works_after_a_start_of_the_server_as_the_table_says() {
    let server = postgres::Private::prepare("");
    let folder = server.folder().join("tls");
    std::fs::create_dir_all(&folder).expect("a folder");
    let authority = Authority::at(folder.clone(), &Places::names());
    std::fs::copy(authority.file("server.pem"), folder.join("server.crt")).expect("a certificate");
    server.start_again();
    let methods = [("scram-sha-256", Login::Proof), ("md5", Login::Proof), ("password", Login::Password)];
    let root = postgres::Sql::root(&server.url());
    let mut rules = "local all postgres trust\n".to_owned();
    for (at, (method, _)) in methods.iter().enumerate() {
        let kept = if *method == "md5" { "md5" } else { "scram-sha-256" };
        root.say(&format!("SET password_encryption = '{kept}'"));
        root.say(&format!("CREATE ROLE login_{at} LOGIN PASSWORD 'T0pSecretPw'"));
        root.say(&format!("GRANT keymill TO login_{at}"));
        root.say(&format!("ALTER ROLE login_{at} SET role = 'keymill'"));
        rules.push_str(&format!("local all login_{at} {method}\nhost all login_{at} all {method}\n"));
    }
    rules.push_str("host all all all scram-sha-256\n");
    std::fs::write(&root.rows("SHOW hba_file")[0][0], rules).expect("the rules");
    let own = Mill::open(&patient(&server.url())).expect("a mill");
    own.init(&[], Change::Apply).expect("the tables");
    own.close();
    let version = root.rows("SHOW server_version")[0][0].clone();
    let sockets = root.rows("SHOW unix_socket_directories")[0][0].clone();
    drop(root);
    server.kill();
    server.start_again();
    let port = server.options().hosts[0].1;
    let places = Places::new(
        "postgres",
        port,
        &Path::new(&sockets).join(format!(".s.PGSQL.{port}")),
        &authority.file("ca.pem"),
    );
    let mut counted = 0;
    for (at, (_, login)) in methods.iter().enumerate() {
        for (word, place, ..) in TABLE {
            let user = format!("login_{at}:T0pSecretPw");
            check(&places, &user, "ids", *login, (word, *place), &mut counted);
        }
    }
    println!("logins: {counted} at PostgreSQL {version}");
}

/// Why Redis' login was refused here.
const WITHHELD: &str = "`AUTH` would send the password in clear, and it was not sent";
const NOT_TLS: &str = "does the server speak TLS on this port?";

/// Redis' only login is the password. A port speaks TLS or it does not, and without `tls=` nothing is encrypted.
#[test]
fn every_login_of_redis_works_after_a_start_of_the_server_or_says_why_not() {
    let authority = Authority::with(&Places::names());
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let encrypted = free.expect("a free port").port();
    let users = tempfile::tempdir().expect("a folder");
    let rules = users.path().join("users.acl");
    std::fs::write(&rules, "user default on >secret ~* +@all\nuser app on >secret ~* +@all\n")
        .expect("the users");
    let server = redis::Private::start(&format!(
        "--tls-port {encrypted} --tls-cert-file {} --tls-key-file {} --tls-ca-cert-file {} --tls-auth-clients no --aclfile {}",
        authority.file("server.pem").display(),
        authority.file("server.key").display(),
        authority.file("ca.pem").display(),
        rules.display()
    ));
    let data = std::fs::read_to_string(server.folder().join("data")).expect("a server's folder");
    let socket = Path::new(data.trim()).join("sock");
    server.kill();
    server.start_again();
    let port = redis::options_of(&server.url()).server.hosts[0].1;
    let ca = authority.file("ca.pem");
    let (plain, tls) =
        (Places::new("redis", port, &socket, &ca), Places::new("redis", encrypted, &socket, &ca));
    let mut counted = 0;
    for user in ["default:secret", "app:secret"] {
        for (which, places, word, place, outcome) in [
            ("plain", &plain, "", Loopback, Ok(NONE)),
            ("plain", &plain, "off", Loopback, Ok(NONE)),
            ("plain", &plain, "prefer", Loopback, Err(WITHHELD)),
            ("plain", &plain, "require", Loopback, Err(NOT_TLS)),
            ("plain", &plain, "", Network, Err(WITHHELD)),
            ("plain", &plain, "prefer", Network, Err(WITHHELD)),
            ("plain", &plain, "off", Network, Ok(NONE)),
            ("plain", &plain, "", Socket, Ok(NONE)),
            ("plain", &plain, "off", Socket, Ok(NONE)),
            ("tls", &tls, "prefer", Loopback, Ok(ENCRYPTED)),
            ("tls", &tls, "require", Loopback, Ok(ENCRYPTED)),
            ("tls", &tls, "verify-ca", Loopback, Ok(BY_AUTHORITY)),
            ("tls", &tls, "verify", Loopback, Ok(VERIFIED)),
            ("tls", &tls, "", Network, Err(WITHHELD)),
            ("tls", &tls, "prefer", Network, Ok(ENCRYPTED)),
            ("tls", &tls, "require", Network, Ok(ENCRYPTED)),
            ("tls", &tls, "verify-ca", Network, Ok(BY_AUTHORITY)),
            ("tls", &tls, "verify", Network, Ok(VERIFIED)),
        ] {
            let Some(url) = places.url(user, "0", word, place) else { continue };
            // A plain port is silent to a handshake.
            let is_silent = places.port == port && matches!(word, "prefer" | "require");
            let url = if is_silent { format!("{url}&timeout=1s&connect_timeout=25s") } else { patient(&url) };
            let found = logged_in(&url);
            println!("login    redis, {which} port, {user} tls={word} {place:?}: {found:?}");
            match (&found, outcome) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{which} {word} {place:?}"),
                (Err(error), Err(says)) => {
                    let code = if says == NOT_TLS { Code::StoreUnavailable } else { Code::StoreRefused };
                    assert_eq!(error.code, code, "{which} {word} {place:?}: {error}");
                    assert!(error.message.contains(says), "{which} {word} {place:?}: {error}");
                }
                _ => panic!("{which} {word} {place:?}: {found:?}, not {outcome:?}"),
            }
            counted += 1;
        }
    }
    println!("logins: {counted} at Redis");
}
