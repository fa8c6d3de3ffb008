//! Encrypted connections and socket files on a real MariaDB: a certificate is believed only for its name and from its
//! authority, and nobody falls back to plain text.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use keymill::{Code, Error, Mill};
use keymill_tests::mariadb::{self, Private};
use mysql::prelude::Queryable;

/// An authority, and a certificate of it for a server named `localhost`.
struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> Authority {
        Authority::with("subjectAltName=DNS:localhost")
    }

    /// The server's certificate has this extension.
    fn with(extension: &str) -> Authority {
        let folder = tempfile::tempdir().expect("a folder");
        // The server is another user.
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("a mode");
        let authority = Authority { folder };
        authority.openssl(
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=keymill-tests \
             -addext basicConstraints=critical,CA:TRUE",
        );
        authority
            .openssl("req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=localhost");
        std::fs::write(authority.file("names"), extension).expect("a file");
        authority.openssl(
            "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out server.pem -days 2 -extfile names",
        );
        std::fs::set_permissions(authority.file("server.key"), PermissionsExt::from_mode(0o644))
            .expect("a mode");
        authority
    }

    fn openssl(&self, arguments: &str) {
        let run = Command::new("openssl").args(arguments.split(' ')).current_dir(self.folder.path()).output();
        let run = run.expect("`openssl` is installed (`ci/setup`)");
        assert!(run.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&run.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server with this certificate.
    fn server(&self, more: &str) -> Private {
        let (cert, key) = (self.file("server.pem"), self.file("server.key"));
        Private::start(&format!("--ssl-cert={} --ssl-key={} {more}", cert.display(), key.display()))
    }
}

/// The first id through this URL.
fn first_id(url: &str) -> Result<u64, Error> {
    let mill = Mill::open(url).expect("a mill opens lazily");
    mill.init(&[], false)?;
    mill.source("segment:orders?deadline=5s")?.next()
}

fn assert_refused(url: &str, says: &str) {
    let error = first_id(url).expect_err("refused");
    assert_eq!(error.code, Code::StoreRefused, "{error}");
    assert!(error.message.contains(says), "{error}");
    assert!(!error.message.contains("secret"), "{error}");
    println!("tls: {}", error.message);
}

fn verified(url: &str, ca: &Path) -> String {
    format!("{url}?tls=verify&ca={}", ca.display())
}

#[test]
fn a_certificate_is_believed_for_its_name_and_from_its_authority_only() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = authority.server("");
    let by_address = server.url();
    let by_name = by_address.replace("127.0.0.1", "localhost");
    let ca = authority.file("ca.pem");
    // What the server says of it, not what we asked for.
    let mut root = server.root();
    let mut encrypted = || -> u64 {
        let status = "SHOW GLOBAL STATUS LIKE 'Ssl_finished_accepts'";
        root.query_first::<(String, u64), _>(status).expect("a status").expect("a row").1
    };
    let before = encrypted();
    assert!(first_id(&verified(&by_name, &ca)).expect("a certificate for `localhost`") >= 1);
    assert_eq!(encrypted(), before + 1, "one mill, one connection, encrypted");
    first_id(&by_address).expect("a server that does not insist");
    assert_eq!(encrypted(), before + 1, "`tls=off` is not encrypted");
    assert_refused(&verified(&by_address, &ca), "write the host as the certificate has it");
    assert_refused(&verified(&by_name, &other.file("ca.pem")), "ca=FILE.pem");
    assert_refused(&format!("{by_name}?tls=verify"), "ca=FILE.pem");
    assert_refused(&verified(&by_name, &authority.file("none.pem")), "cannot be read");
    std::fs::write(authority.file("odd.pem"), "no certificate").expect("a file");
    assert_refused(&verified(&by_name, &authority.file("odd.pem")), "has to be a PEM file");
}

#[test]
fn a_certificate_without_a_host_as_mysql_makes_them_is_refused_with_what_to_do() {
    let authority = Authority::with("basicConstraints=CA:FALSE");
    let server = authority.server("");
    assert_refused(
        &verified(&server.url(), &authority.file("ca.pem")),
        "with the host as its subjectAltName",
    );
}

#[test]
fn a_server_without_tls_is_refused_and_one_that_demands_it_says_so() {
    let authority = Authority::new();
    let plain = Private::start("--skip-ssl");
    let ca = authority.file("ca.pem");
    assert_refused(&verified(&plain.url(), &ca), "the server offers no TLS");
    drop(plain);
    let strict = authority.server("--require-secure-transport=ON");
    assert_refused(&strict.url(), "tls=verify");
    assert!(first_id(&verified(&strict.url().replace("127.0.0.1", "localhost"), &ca)).is_ok());
}

#[test]
fn a_socket_file_is_used_instead_of_a_host() {
    let server = Private::start("--skip-networking");
    let url = format!("mysql://keymill:secret@localhost/ids?socket={}", server.socket().display());
    assert_eq!(first_id(&url).expect("an id"), 1);
    let error = first_id(&server.url()).expect_err("nobody listens");
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    let missing = format!("mysql://keymill:secret@localhost/ids?socket={}x", server.socket().display());
    let error = first_id(&missing).expect_err("no such file");
    assert_eq!(error.code, Code::StoreUnavailable, "{error}");
    assert!(error.message.contains("sockx"), "{error}");
    // The shared server is still told by host and port.
    assert!(first_id(&mariadb::url()).is_ok());
}
