//! Connections: hosts, sockets, certificates, and those that the server ends.

use keymill::store::server::Tls;
use keymill::store::{FaultKind, RowStore};
use keymill_tests::ci::patient;
use keymill_tests::redis::{self, Private};

use super::{at, free_port, request, says};

#[test]
fn the_second_host_a_socket_and_another_database_serve() {
    let private = Private::start("");
    let mut options = redis::options_of(&private.url());
    options.server.hosts.insert(0, ("127.0.0.1".to_owned(), 1));
    options.server.hosts.insert(0, ("no-such-host.invalid".to_owned(), 6379));
    assert_eq!(redis::store(options).reserve(&request(1)).unwrap().lo, 1);
    let mut admin = redis::connection_of(&private.url());
    let socket: Vec<String> = redis::say(&mut admin, &["CONFIG", "GET", "unixsocket"]);
    let mut options = redis::options_of(&private.url());
    options.server.hosts.clear();
    options.server.socket = Some(socket[1].clone().into());
    assert_eq!(redis::store(options.clone()).reserve(&request(1)).unwrap().lo, 2);
    options.server.database = "5".to_owned();
    assert_eq!(redis::store(options.clone()).reserve(&request(1)).unwrap().lo, 1);
    options.server.socket = Some("/no/such/socket".into());
    says(redis::store(options).reserve(&request(1)), FaultKind::Unavailable, &["/no/such/socket"]);
    // As a URL.
    let url = format!("redis://default:secret@localhost/5?socket={}", socket[1]);
    let mill = keymill::Mill::open(&patient(&url)).unwrap();
    assert_eq!(mill.source("segment:orders?step=1&deadline=60s").unwrap().next().unwrap(), 2);
}

#[test]
fn a_connection_ended_by_the_server_is_replaced() {
    let private = Private::start("");
    let mut store = at(&private.url());
    store.reserve(&request(10)).unwrap();
    let mut admin = redis::connection_of(&private.url());
    let ended: i64 = redis::say(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    assert_eq!(ended, 1);
    let fault = store.reserve(&request(10)).unwrap_err();
    // The client cannot know that the connection was closed before the script was sent.
    assert_eq!(fault.kind, FaultKind::Unknown, "{fault}");
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 11);
}

#[test]
fn tls_is_verified_against_the_authority_and_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let openssl = |line: &str| {
        let done = std::process::Command::new("openssl")
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .output()
            .expect("openssl can be run");
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    };
    for ca in ["ca", "other"] {
        openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={ca} -keyout {ca}.key -out {ca}.pem \
             -addext basicConstraints=critical,CA:TRUE"
        ));
    }
    openssl("req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr");
    std::fs::write(file("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    let port = free_port();
    let private = Private::start(&format!(
        "--tls-port {port} --tls-cert-file {} --tls-key-file {} --tls-ca-cert-file {} --tls-auth-clients no",
        file("server.pem"),
        file("server.key"),
        file("ca.pem")
    ));
    let open = |host: &str, port: u16, ca: Option<&str>| {
        let mut options = redis::options_of(&private.url());
        options.server.hosts = vec![(host.to_owned(), port)];
        options.server.tls = Tls::verify(ca.map(|name| file(name).into()));
        redis::store(options)
    };
    assert_eq!(open("localhost", port, Some("ca.pem")).reserve(&request(10)).unwrap().lo, 1);
    let url = format!("rediss://default:secret@localhost:{port}?ca={}", file("ca.pem"));
    let mill = keymill::Mill::open(&patient(&url)).unwrap();
    assert_eq!(mill.source("segment:orders?step=10&deadline=60s").unwrap().next().unwrap(), 11);
    drop(mill);
    for (host, ca, part) in [
        ("localhost", Some("other.pem"), "ca=FILE"),
        ("localhost", None, "ca=FILE"),
        ("127.0.0.1", Some("ca.pem"), "certificate"),
        ("localhost", Some("missing.pem"), "missing.pem"),
        ("localhost", Some("server.key"), "PEM"),
    ] {
        says(open(host, port, ca).reserve(&request(10)), FaultKind::Refused, &[part]);
    }
    let plain = redis::options_of(&private.url()).server.hosts[0].1;
    says(
        open("localhost", plain, Some("ca.pem")).reserve(&request(10)),
        FaultKind::Unavailable,
        &["speak TLS"],
    );
    let mut unencrypted = redis::options_of(&private.url());
    unencrypted.server.hosts = vec![("localhost".to_owned(), port)];
    says(redis::store(unencrypted).reserve(&request(10)), FaultKind::Unavailable, &["rediss://"]);
}
