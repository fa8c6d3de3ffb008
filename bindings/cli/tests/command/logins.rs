//! What a login sees that has the rights of its programs and no others. The server is the test's own, started by `ci/servers/mariadb`.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{Home, PATIENT, Ran};

fn server(folder: &tempfile::TempDir, words: &[&str], script: &str) -> Ran {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/servers/mariadb"));
    command.env("KEYMILL_CI_DIR", folder.path()).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    running.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    Ran::from(running.wait_with_output().unwrap())
}

#[test]
fn status_says_nothing_of_tables_that_the_programs_of_a_login_do_not_use() {
    let folder = tempfile::tempdir().unwrap();
    let url = server(&folder, &["start"], "").done();
    let (place, home) = (url.trim().rsplit_once('@').unwrap().1.split_once('/').unwrap().0, Home::new());
    let root = |script: &str| server(&folder, &["root"], script).done();
    root(
        "CREATE DATABASE shop; CREATE USER owner@'%' IDENTIFIED BY 'secret'; GRANT ALL ON shop.* TO owner@'%'; \
         CREATE USER ids@'%' IDENTIFIED BY 'secret'",
    );
    let mill = |user: &str, args: &[&str]| {
        let url = format!("mysql://{user}:secret@{place}/shop?{PATIENT}");
        home.run(&[&["--mill", url.as_str()], args].concat())
    };
    mill("owner", &["init", "segment:orders"]).done();
    root("GRANT SELECT, INSERT, UPDATE ON shop.keymill_segment TO ids@'%'");
    mill("ids", &["take", "segment:orders", "3"]).done();
    for tables in ["are not there", "are there"] {
        let status = mill("ids", &["status"]).done();
        assert!(status.contains("row: keymill_segment: segment:orders next=4"), "{tables}: {status}");
        assert!(!status.contains("warning") && !status.contains("router"), "{tables}: {status}");
        // Programs that read the answer see why.
        let json = mill("ids", &["status", "--json"]).json();
        assert!(json["routers_warning"].as_str().unwrap().contains("keymill_route"), "{json}");
        assert_eq!(json["rows_warning"], serde_json::Value::Null, "{json}");
        mill("owner", &["init"]).done();
    }
    root("REVOKE SELECT ON shop.keymill_segment FROM ids@'%'");
    let status = mill("ids", &["status"]).done();
    assert!(status.contains("warning: the rows of the store are not listed: STORE_REFUSED: "), "{status}");
    server(&folder, &["stop"], "").done();
}
