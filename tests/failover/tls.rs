//! One table: each protocol, each `tls=`, each server. It says which logins succeed, what is encrypted, and that no server gets the
//! password in clear or under a key of its own. Real servers have a table of theirs, `logins.rs`.
//!
//! Without `tls=` an address of this machine's own network is exempt, so every case uses an address in a network namespace
//! that the test creates.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Mill};
use keymill_tests::authority::Authority;
use keymill_tests::ci::patient;
use keymill_tests::impostor::{Asks, Impostor, Protocol, Sent};
use keymill_tests::{mariadb, postgres, redis};
use mysql::prelude::Queryable;

const PASSWORD: &str = "T0pSecretPw";
/// An address that is not a loopback address.
const THERE: &str = "10.77.0.1";
const INSIDE: &str = "KEYMILL_TEST_IN_A_NETWORK_OF_ITS_OWN";
/// The variable that replaces the distribution's authorities.
const SYSTEM: &str = "SSL_CERT_FILE";

/// The certificate that a server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offers {
    NoTls,
    /// By the authority that the client trusts, for the address that it connects to.
    Right,
    /// By another authority of the same name.
    Stranger,
    /// By the trusted authority, for another host.
    WrongName,
}

/// The outcome of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It succeeds in clear.
    Clear,
    /// It succeeds encrypted.
    Encrypted,
    /// It ends where the server asks for the password itself.
    Withheld,
    /// There is no TLS.
    NoTls,
    /// The certificate is not trusted.
    NotBelieved,
    /// The protocols do not match.
    Nothing,
}

use Offers::{NoTls as Plain, Right, Stranger, WrongName};
use Outcome::{Clear, Encrypted, NoTls, NotBelieved, Nothing, Withheld};

/// `tls=`, the server's offer; the outcome of a login by proof, and of a login by the password itself.
const NEGOTIATED: &[(&str, Offers, Outcome, Outcome)] = &[
    // A server without TLS, or a proxy that takes the offer out of a greeting.
    ("", Plain, Clear, Withheld),
    // A server with TLS of its own gets the password: nothing proves who it is.
    ("", Right, Encrypted, Encrypted),
    ("", Stranger, Encrypted, Encrypted),
    ("", WrongName, Encrypted, Encrypted),
    ("tls=prefer", Plain, Clear, Withheld),
    ("tls=prefer", Right, Encrypted, Encrypted),
    ("tls=prefer", Stranger, Encrypted, Encrypted),
    ("tls=prefer", WrongName, Encrypted, Encrypted),
    ("tls=require", Plain, NoTls, NoTls),
    ("tls=require", Right, Encrypted, Encrypted),
    ("tls=require", Stranger, Encrypted, Encrypted),
    ("tls=require", WrongName, Encrypted, Encrypted),
    ("tls=verify-ca", Plain, NoTls, NoTls),
    ("tls=verify-ca", Right, Encrypted, Encrypted),
    ("tls=verify-ca", Stranger, NotBelieved, NotBelieved),
    ("tls=verify-ca", WrongName, Encrypted, Encrypted),
    ("tls=verify", Plain, NoTls, NoTls),
    ("tls=verify", Right, Encrypted, Encrypted),
    ("tls=verify", Stranger, NotBelieved, NotBelieved),
    ("tls=verify", WrongName, NotBelieved, NotBelieved),
    ("tls=off", Plain, Clear, Clear),
    ("tls=off", Right, Clear, Clear),
    ("tls=off", Stranger, Clear, Clear),
];

/// Loopback: a proof is sent without encryption, and the password by a second try inside TLS.
const LOOPBACK: &[(&str, Offers, Outcome, Outcome)] = &[
    ("", Plain, Clear, Withheld),
    ("", Right, Clear, Encrypted),
    ("", Stranger, Clear, Encrypted),
    ("tls=prefer", Plain, Clear, Withheld),
    ("tls=prefer", Right, Encrypted, Encrypted),
    ("tls=require", Plain, NoTls, NoTls),
    ("tls=verify-ca", Plain, NoTls, NoTls),
    ("tls=verify-ca", Stranger, NotBelieved, NotBelieved),
    ("tls=verify", Plain, NoTls, NoTls),
    ("tls=verify", Right, Encrypted, Encrypted),
    ("tls=off", Right, Clear, Clear),
];

/// Redis negotiates nothing: a port speaks TLS or it does not. Without a password, and with one.
const REDIS: &[(&str, Offers, Outcome, Outcome)] = &[
    ("", Plain, Clear, Withheld),
    ("", Right, Nothing, Withheld),
    ("tls=prefer", Plain, Clear, Withheld),
    ("tls=prefer", Right, Encrypted, Encrypted),
    ("tls=prefer", Stranger, Encrypted, Encrypted),
    ("tls=require", Plain, NoTls, NoTls),
    ("tls=require", Right, Encrypted, Encrypted),
    ("tls=require", Stranger, Encrypted, Encrypted),
    ("tls=verify-ca", Plain, NoTls, NoTls),
    ("tls=verify-ca", Right, Encrypted, Encrypted),
    ("tls=verify-ca", Stranger, NotBelieved, NotBelieved),
    ("tls=verify-ca", WrongName, Encrypted, Encrypted),
    ("tls=verify", Plain, NoTls, NoTls),
    ("tls=verify", Right, Encrypted, Encrypted),
    ("tls=verify", Stranger, NotBelieved, NotBelieved),
    ("tls=verify", WrongName, NotBelieved, NotBelieved),
    ("tls=off", Plain, Clear, Clear),
    ("tls=off", Right, Nothing, Nothing),
];

/// `tls=verify` without `ca=`.
const BY_THE_SYSTEM: &str = "tls=verify&";

struct Certificates {
    right: Authority,
    stranger: Authority,
    wrong_name: Authority,
}

impl Certificates {
    fn offered(&self, offers: Offers) -> Option<&Authority> {
        match offers {
            Plain => None,
            Right => Some(&self.right),
            Stranger => Some(&self.stranger),
            WrongName => Some(&self.wrong_name),
        }
    }

    /// The authority that the client trusts.
    fn known(&self, offers: Offers) -> &Authority {
        if offers == WrongName { &self.wrong_name } else { &self.right }
    }
}

/// One login at an impostor: its outcome, the error, and the bytes it sent.
fn login(
    protocol: Protocol,
    host: &str,
    tls: &str,
    asks: Asks,
    offers: Offers,
    certificates: &Certificates,
) -> (Outcome, String) {
    let impostor = Impostor::start(protocol, asks, certificates.offered(offers));
    let (scheme, login, database) = match (protocol, asks) {
        (Protocol::Mysql, _) => ("mysql", format!("keymill:{PASSWORD}@"), "/ids"),
        (Protocol::Postgres, _) => ("postgres", format!("keymill:{PASSWORD}@"), "/ids"),
        (Protocol::Redis, Asks::Proof) => ("redis", String::new(), ""),
        (Protocol::Redis, _) => ("redis", format!("keymill:{PASSWORD}@"), ""),
    };
    let ca = match tls {
        "tls=verify" | "tls=verify-ca" => {
            format!("&ca={}", certificates.known(offers).file("ca.pem").display())
        }
        _ => String::new(),
    };
    let url = format!("{scheme}://{login}{host}:{}{database}?{tls}{ca}&timeout=20s", impostor.port());
    let mill = Mill::open(&url).expect("a mill opens lazily");
    let error = mill.facts().expect_err("an impostor answers no question").message;
    mill.close();
    assert!(!error.contains(PASSWORD), "{url}: {error}");
    // An impostor has recorded everything once it has read the end of the connection.
    let deadline = Instant::now() + Duration::from_secs(60);
    let refused = ["it was not sent", "offers no TLS", "certificate", "speak TLS"];
    let asks_for_password = matches!(asks, Asks::Password | Asks::OtherPassword);
    let tries_again = tls.is_empty() && host != THERE && asks_for_password && offers != Plain;
    let expected = if tries_again && protocol != Protocol::Redis { 2 } else { 1 };
    while impostor.sent().len() < expected {
        assert!(Instant::now() < deadline, "{url}: nobody came; {error}");
        std::thread::sleep(Duration::from_millis(1));
    }
    let sent = impostor.sent();
    let disclosed = sent.iter().any(|sent| sent.discloses(PASSWORD));
    for sent in sent.iter().filter(|sent| sent.discloses(PASSWORD)) {
        let allowed = match tls {
            "tls=off" => true,
            "tls=verify" => sent.encrypted && offers == Right,
            "tls=verify-ca" => sent.encrypted && offers != Stranger,
            BY_THE_SYSTEM => sent.encrypted && offers == Stranger,
            _ => sent.encrypted || (protocol == Protocol::Redis && host != THERE),
        };
        let under_its_key = sent.asked_for_a_key && tls != "tls=off";
        assert!(allowed && !under_its_key, "{url} {asks:?} {offers:?}: the password was sent: {sent:?}");
    }
    let outcome = match sent.iter().rfind(|sent: &&Sent| sent.logged_in) {
        Some(sent) if sent.encrypted => Encrypted,
        Some(_) => Clear,
        None if error.contains(refused[0]) => Withheld,
        None if error.contains(refused[1]) => NoTls,
        None if error.contains("invalid peer certificate") => NotBelieved,
        None if error.contains(refused[3]) && tls != "tls=off" && !tls.is_empty() => NoTls,
        None => Nothing,
    };
    if (protocol, asks, outcome) == (Protocol::Postgres, Asks::Proof, Encrypted) {
        // For another certificate the same proof is worthless.
        assert!(sent.iter().any(|sent| sent.says("p=tls-server-end-point")), "{url}: no channel binding");
    }
    if asks_for_password && matches!(outcome, Clear | Encrypted) {
        assert!(disclosed, "{url} {offers:?}: it was logged in without what was asked for");
    }
    (outcome, error)
}

fn the_table() {
    let san = |names: &str| Authority::with(&format!("subjectAltName={names}"));
    let certificates = Certificates {
        right: san(&format!("IP:{THERE},IP:127.0.0.1")),
        // The system trusts the impostor's authority: that does not count if `ca=` names another one.
        stranger: Authority::at(
            PathBuf::from(std::env::var_os(INSIDE).expect("a folder")),
            &format!("subjectAltName=IP:{THERE}"),
        ),
        wrong_name: san("IP:10.77.0.2,DNS:db1"),
    };
    let mut tried = 0;
    let mut check = |protocol, host, tls, asks, offers, expected| {
        let (outcome, words) = login(protocol, host, tls, asks, offers, &certificates);
        assert_eq!(outcome, expected, "{protocol:?} {host} {tls} {offers:?} {asks:?}: {words}");
        tried += 1;
    };
    for protocol in [Protocol::Mysql, Protocol::Postgres] {
        for &(tls, offers, proof, password) in NEGOTIATED {
            check(protocol, THERE, tls, Asks::Proof, offers, proof);
            check(protocol, THERE, tls, Asks::WeakProof, offers, proof);
            check(protocol, THERE, tls, Asks::Password, offers, password);
            if protocol == Protocol::Mysql {
                check(protocol, THERE, tls, Asks::OtherPassword, offers, password);
            }
        }
        for &(tls, offers, proof, password) in LOOPBACK {
            check(protocol, "127.0.0.1", tls, Asks::Proof, offers, proof);
            check(protocol, "127.0.0.1", tls, Asks::WeakProof, offers, proof);
            check(protocol, "127.0.0.1", tls, Asks::Password, offers, password);
            if protocol == Protocol::Mysql {
                check(protocol, "127.0.0.1", tls, Asks::OtherPassword, offers, password);
            }
        }
    }
    for &(tls, offers, without, with) in REDIS {
        check(Protocol::Redis, THERE, tls, Asks::Proof, offers, without);
        check(Protocol::Redis, THERE, tls, Asks::Password, offers, with);
    }
    check(Protocol::Redis, "127.0.0.1", "", Asks::Password, Plain, Clear);
    for protocol in [Protocol::Mysql, Protocol::Postgres, Protocol::Redis] {
        check(protocol, THERE, BY_THE_SYSTEM, Asks::Password, Stranger, Encrypted);
        check(protocol, THERE, BY_THE_SYSTEM, Asks::Password, Right, NotBelieved);
    }
    // The driver never sends a password for this method, whatever the options say.
    for (tls, offers) in [("", Plain), ("tls=require", Right), ("tls=verify", Right), ("tls=off", Plain)] {
        check(Protocol::Mysql, THERE, tls, Asks::ThirdPassword, offers, Nothing);
    }
    println!("tls: {tried} logins");
    // No provider was installed in this process, although all three drivers have used TLS.
    rustls::crypto::ring::default_provider()
        .install_default()
        .expect("a host program's own provider is the first of its process");
}

#[test]
fn no_server_gets_a_password_in_clear_or_under_its_own_key() {
    if std::env::var_os(INSIDE).is_some() {
        return the_table();
    }
    let inside = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--net", "sh", "-ec", command]);
        unshare
    };
    let network = format!("ip link set lo up; ip address add {THERE}/32 dev lo");
    let made = inside(&network).output();
    if !made.as_ref().is_ok_and(|made| made.status.success()) {
        println!("not run: this machine allows no network namespace: {made:?}");
        return;
    }
    let system = tempfile::tempdir().expect("a folder");
    let test = std::env::current_exe().expect("this program");
    let name = "tls::no_server_gets_a_password_in_clear_or_under_its_own_key";
    let ran = inside(&format!("{network}; exec \"$0\" --exact {name} --nocapture"))
        .arg(test)
        .env(INSIDE, system.path())
        .env(SYSTEM, system.path().join("ca.pem"))
        .env_remove("SSL_CERT_DIR")
        .output()
        .expect("it runs");
    print!("{}", String::from_utf8_lossy(&ran.stdout));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains(" logins"), "the test ran inside");
}

/// The first id through this URL, and the protection of the connection.
fn first_id(url: &str) -> Result<(u64, String), keymill::Error> {
    let mill = Mill::open(&patient(url)).expect("a mill opens lazily");
    mill.init(&[], Change::Apply)?;
    let id = mill.source("segment:orders?deadline=60s")?.next()?;
    Ok((id, mill.facts()?.tls))
}

/// A server that requires a client certificate: a client without one is refused, and so is a wrong name of the server.
fn wants_a_certificate(url: &str, authority: &Authority) {
    let ca = format!("ca={}", authority.file("ca.pem").display());
    let client = authority.client();
    let (_, verified) = first_id(&format!("{url}?tls=verify&{ca}&{client}")).expect("a client it knows");
    assert_eq!(verified, "verified");
    let error = first_id(&format!("{url}?tls=verify&{ca}")).expect_err("a client without a certificate");
    assert_eq!(error.code, Code::StoreRefused, "{error}");
    println!("tls: {}", error.message);
    let refused = |client: &str, says: &str| {
        let error = first_id(&format!("{url}?tls=verify&{ca}&{client}")).expect_err(says);
        assert_eq!(error.code, Code::StoreRefused, "{error}");
        assert!(error.message.contains(says), "{says}: {error}");
    };
    let stranger = Authority::new();
    // The server's error about a certificate of an unknown authority differs by server.
    refused(&stranger.client(), "server");
    refused(&client.replace("client.key", "none.key"), "none.key` cannot be read");
    let of_another = client.replace(
        &authority.file("client.key").display().to_string(),
        &stranger.file("client.key").display().to_string(),
    );
    refused(&of_another, "cannot be used together");
    refused(&client.replace("client.key", "server.key"), "has mode 644");
}

#[test]
fn mariadb_lets_a_user_in_who_shows_a_certificate() {
    let authority = Authority::new();
    let server = mariadb::Private::encrypted(&authority, "");
    let url = server.url().replace("127.0.0.1", "localhost");
    let (_, protection) = first_id(&format!("{url}?tls=require")).expect("a server with TLS");
    assert!(protection.starts_with("encrypted, server not authenticated (`tls=verify`"), "{protection}");
    assert_eq!(first_id(&url).expect("loopback").1, "none");
    let mut root = server.root();
    for statement in
        ["CREATE USER shown@'%' IDENTIFIED BY 'secret' REQUIRE X509", "GRANT ALL ON ids.* TO shown@'%'"]
    {
        root.query_drop(statement).expect("a user");
    }
    let shown = url.replace("keymill:secret", "shown:secret");
    wants_a_certificate(&shown, &authority);
    // The server takes a proof for what it is.
    let error =
        first_id(&format!("{}?tls=require", url.replace(":secret", ":wrong"))).expect_err("a wrong password");
    assert_eq!(error.code, Code::StoreRefused, "{error}");
}

#[test]
fn postgresql_lets_a_user_in_who_shows_a_certificate_and_binds_its_proof_to_the_servers() {
    let (server, authority) = postgres::Private::encrypted();
    let url = server.url().replace("127.0.0.1", "localhost");
    let (_, protection) = first_id(&format!("{url}?tls=require")).expect("a server with TLS");
    assert!(protection.starts_with("encrypted, server not authenticated (`tls=verify`"), "{protection}");
    let root = postgres::Sql::root(&server.url());
    let rules = root.rows("SHOW hba_file");
    std::fs::write(
        &rules[0][0],
        "local all postgres trust\nhostssl all all all scram-sha-256 clientcert=verify-ca\n",
    )
    .expect("the rules");
    let ca = authority.file("ca.pem");
    root.say(&format!("ALTER SYSTEM SET ssl_ca_file = '{}'", ca.display()));
    root.say("SELECT pg_reload_conf()");
    let deadline = Instant::now() + Duration::from_secs(120);
    while first_id(&format!("{url}?tls=require")).is_ok() {
        assert!(Instant::now() < deadline, "the rule arrives");
    }
    wants_a_certificate(&url, &authority);
}

#[test]
fn redis_lets_a_client_in_that_shows_a_certificate() {
    let authority = Authority::new();
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .expect("a free port")
        .port();
    let server = redis::Private::start(&format!(
        "--tls-port {port} --tls-cert-file {} --tls-key-file {} --tls-ca-cert-file {} --tls-auth-clients yes",
        authority.file("server.pem").display(),
        authority.file("server.key").display(),
        authority.file("ca.pem").display()
    ));
    let (login, _) =
        server.url().rsplit_once('@').map(|(a, b)| (a.to_owned(), b.to_owned())).expect("a login");
    wants_a_certificate(&format!("{login}@localhost:{port}"), &authority);
}
