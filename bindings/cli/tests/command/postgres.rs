//! An operator's verbs on a PostgreSQL server, found by `KEYMILL_TEST_POSTGRES` (`ci/servers/postgres run cargo test …` sets it).

use crate::common::{Home, PATIENT};

#[test]
fn init_status_and_repair_work_on_postgresql() {
    let url = std::env::var("KEYMILL_TEST_POSTGRES")
        .expect("KEYMILL_TEST_POSTGRES is not set; run `ci/servers/postgres run cargo test -p keymill-cli`");
    let url = format!("{url}?{PATIENT}");
    let home = Home::new();
    let spec = format!("segment:orders?table=cli_{}", std::process::id());
    let mill = |args: &[&str]| home.run(&[&["--mill", url.as_str()], args].concat());
    let missing = mill(&["next", &spec]).refused("STORE_REFUSED");
    assert!(missing.contains("init 'segment:orders?table=cli_"), "{missing}");
    let script = mill(&["init", "--dry-run", &spec]).done();
    assert!(
        script.starts_with("CREATE TABLE IF NOT EXISTS \"public\".\"cli_")
            && script.contains("(fillfactor = 50);\n")
            && script.ends_with(concat!(" IS 'keymill ", env!("CARGO_PKG_VERSION"), "';\n")),
        "{script}"
    );
    for said in ["created: cli_", "exists: cli_"] {
        assert!(mill(&["init", &spec]).done().contains(said), "{said}");
    }
    assert_eq!(mill(&["take", &spec, "3"]).ids(), [1, 2, 3]);
    let status = mill(&["status", &spec]).done();
    assert!(status.contains("dialect: postgresql") && status.contains("synchronous_commit=on"), "{status}");
    assert!(!status.contains("secret"), "no password: {status}");
    // What the column and the settings say is one statement.
    assert!(
        status.contains("no standby is waited for: a failover to one may lose commits")
            && status.contains("  crash-safe\n"),
        "{status}"
    );
    assert!(mill(&["repair", &spec, "--to", "500", "--yes"]).done().contains("written: yes"));
    mill(&["repair", &spec, "--to", "400", "--yes"]).refused("STORE_REFUSED");
    assert_eq!(mill(&["next", &spec]).ids(), [500]);
}
