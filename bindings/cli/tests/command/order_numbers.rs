//! `seal`, `unseal` and `route --order-no`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::common::{Home, Ran};

const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const OTHER: &str = "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";
const ID: &str = "7943646055239778305";
const TEXT: &str = "6WFC0Z3J6MZTAKV7NK3VWK76VB";

/// A folder with `keys.toml`, of which version 1 seals, and `two.toml`, of which version 2 does.
fn home() -> Home {
    let home = Home::new();
    for (name, text) in [
        ("keys.toml", format!("seal_with = 1\n[key]\n1 = \"{SECRET}\"\n")),
        ("two.toml", format!("seal_with = 2\n[key]\n1 = \"{SECRET}\"\n2 = \"{OTHER}\"\n")),
    ] {
        let path = home.file(name, &text);
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }
    home
}

/// The verb with keys of acme's orders.
fn with(home: &Home, keys: &str, words: &[&str]) -> Ran {
    let mut all = words.to_vec();
    all.extend(["--keys", keys, "--tenant", "acme", "--table", "orders"]);
    home.run(&all)
}

#[test]
fn an_id_and_its_order_number_are_printed_alone() {
    let home = home();
    assert_eq!(with(&home, "keys.toml", &["seal", ID]).done(), format!("{TEXT}\n"));
    assert_eq!(with(&home, "keys.toml", &["unseal", TEXT]).done(), format!("{ID}\n"));
    let hex = "0xdc7b01f1c8d4fe953d9eb31ef9339b6b";
    for form in [hex, "6wfcoz3j6mztakv7nk3vwk76vb"] {
        assert_eq!(with(&home, "keys.toml", &["unseal", form]).done(), format!("{ID}\n"));
    }
    let long = with(&home, "keys.toml", &["seal", ID, "--json"]).json();
    let expected = json!({"order_no": TEXT, "text": TEXT, "bytes": hex, "gene": "56443", "key_version": "1"});
    assert_eq!(long, expected);
    let short = with(&home, "keys.toml", &["seal", ID, "--form", "8", "--json"]).json();
    let expected = json!({
        "order_no": "7943719833957099537", "text": "6WFE337S3ST0HS", "bytes": "0x6e3dc319f23ce811", "gene": "56443",
        "key_version": "1",
    });
    assert_eq!(short, expected);
    for form in ["7943719833957099537", "6WFE337S3ST0HS", "0x6e3dc319f23ce811"] {
        assert_eq!(with(&home, "keys.toml", &["unseal", form, "--json"]).json(), json!(ID));
    }
}

#[test]
fn each_line_of_standard_input_is_sealed_and_opened_up_to_the_first_that_is_wrong() {
    let home = home();
    let run_verb = |verb: &str, input: &str| {
        home.file("in", input);
        home.shell(&format!("$K {verb} - --keys keys.toml --tenant acme --table orders < in"))
    };
    let ids: Vec<_> = (0..20_000).map(|number| ((7_u64 << 47) + number).to_string()).collect();
    let ids = ids.join("\n") + "\n";
    let sealed = run_verb("seal", &ids).done();
    assert_eq!(sealed.lines().count(), 20_000);
    assert_eq!(run_verb("unseal", &sealed).done(), ids);
    let wrong = run_verb("seal", &format!("{ID}\nx\n{ID}\n"));
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(1), &*format!("{TEXT}\n")));
    assert!(wrong.err.starts_with("keymill: INVALID_ARGUMENT: line 2: `x` is no id"), "{}", wrong.err);
    assert_eq!(run_verb("unseal", "").done(), "");
    assert_eq!(run_verb("seal", ID).done(), format!("{TEXT}\n"), "the last line has no end");
    let endless = home.shell("$K seal - --keys keys.toml < /dev/zero");
    assert!(endless.err.contains("line 1: it has more than 256 bytes"), "{}", endless.err);
}

#[test]
fn a_key_where_the_files_name_belongs_is_not_repeated() {
    let home = home();
    for file in [SECRET, &*format!("seal_with = 1\n[key]\n1 = \"{SECRET}\"")] {
        let refused = with(&home, file, &["seal", ID]).refused("INVALID_ARGUMENT");
        assert!(refused.contains("not shown") && !refused.contains(&SECRET[..8]), "{refused}");
    }
}

#[test]
fn an_id_of_128_bits_is_sealed_and_opened_as_such_only() {
    let home = home();
    let wide = "146534405793140637927796774191939715071";
    let sealed = with(&home, "keys.toml", &["seal", wide, "--wide"]).done();
    assert_eq!(sealed, "6WFC0QCJY4T29ASHYW1RZFQZJX\n");
    assert_eq!(with(&home, "keys.toml", &["unseal", sealed.trim(), "--wide"]).done(), format!("{wide}\n"));
    with(&home, "keys.toml", &["unseal", sealed.trim()]).refused("FORGED");
    with(&home, "keys.toml", &["unseal", TEXT, "--wide"]).refused("FORGED");
    assert!(with(&home, "keys.toml", &["seal", wide]).refused("INVALID_ARGUMENT").contains("--wide"));
    assert!(
        with(&home, "keys.toml", &["unseal", "5", "--wide"]).refused("INVALID_ARGUMENT").contains("8 bytes")
    );
    assert_eq!(with(&home, "keys.toml", &["seal", ID, "--wide", "--form", "8"]).code, Some(2));
}

#[test]
fn a_rotated_file_opens_old_numbers_and_the_version_of_eight_bytes_is_said() {
    let home = home();
    assert_eq!(with(&home, "two.toml", &["unseal", TEXT]).done(), format!("{ID}\n"));
    assert_eq!(with(&home, "two.toml", &["seal", ID]).done(), "6WFC1FGK565XV6H5A58FVE10GZ\n");
    assert_eq!(with(&home, "two.toml", &["seal", ID, "--key-version", "1"]).done(), format!("{TEXT}\n"));
    let refused = with(&home, "two.toml", &["unseal", "6WFE337S3ST0HS"]).refused("INVALID_ARGUMENT");
    assert!(refused.contains("--key-version"), "{refused}");
    let opened = with(&home, "two.toml", &["unseal", "6WFE337S3ST0HS", "--key-version", "1"]).done();
    assert_eq!(opened, format!("{ID}\n"));
    for (version, told) in
        [("2", "has key version 1, and 2 was asked for"), ("3", "not loaded"), ("0", "reserved")]
    {
        let refused =
            with(&home, "two.toml", &["unseal", TEXT, "--key-version", version]).refused("INVALID_ARGUMENT");
        assert!(refused.contains(told), "{refused}");
    }
}

#[test]
fn what_is_no_order_number_is_refused_with_the_forms_that_are() {
    let home = home();
    for (order_no, told) in [
        ("hello", "26 or 14 characters"),
        ("0x12", "26 or 14 characters"),
        ("0xzz", "26 or 14 characters"),
        ("99999999999999999999", "below 2^63"),
        ("9223372036854775808", "2^63"),
        ("12345678901235", "write it as 0x00000b3a73ce2ff3"),
        ("6WFE337S3ST0HT", "check symbol"),
        ("8WFC0Z3J6MZTAKV7NK3VWK76VB", "0 to 7"),
    ] {
        let refused = with(&home, "keys.toml", &["unseal", order_no]).refused("INVALID_ARGUMENT");
        assert!(refused.contains(told), "{order_no}: {refused}");
    }
    with(&home, "keys.toml", &["unseal", "6WFC0Z3J6MZTAKV7NK3VWK76VC"]).refused("FORGED");
    home.run(&["unseal", TEXT, "--keys", "keys.toml", "--tenant", "acme"]).refused("FORGED");
    for id in ["abc", "", "+5", "9223372036854775808"] {
        with(&home, "keys.toml", &["seal", id]).refused("INVALID_ARGUMENT");
    }
}

#[test]
fn keys_come_from_a_private_file_or_from_the_environment() {
    let home = home();
    fs::set_permissions(home.path().join("keys.toml"), Permissions::from_mode(0o644)).unwrap();
    let refused = with(&home, "keys.toml", &["seal", ID]).refused("INVALID_CONFIG");
    assert!(refused.contains("chmod 600 keys.toml") && !refused.contains(&SECRET[..8]), "{refused}");
    assert!(with(&home, "none.toml", &["seal", ID]).refused("INVALID_ARGUMENT").contains("none.toml"));
    let words = ["seal", ID, "--tenant", "acme", "--table", "orders"];
    let refused = home.run(&words).refused("INVALID_CONFIG");
    assert!(
        refused.contains("no --keys FILE") && refused.contains("KEYMILL_ORDER_KEYS is not set"),
        "{refused}"
    );
    let in_environment =
        |keys: &str| Ran::from(home.command(&words).env("KEYMILL_ORDER_KEYS", keys).output().unwrap());
    let text = fs::read_to_string(home.path().join("keys.toml")).unwrap();
    assert_eq!(in_environment(&text).done(), format!("{TEXT}\n"));
    for wrong in ["", "keys.toml", SECRET, &format!("1 = \"{SECRET}\"")] {
        let refused = in_environment(wrong).refused("INVALID_CONFIG");
        assert!(refused.contains("KEYMILL_ORDER_KEYS") && !refused.contains(&SECRET[..8]), "{refused}");
    }
    assert!(!home.path().join("keymill.db").exists(), "no mill is opened");
}

#[test]
fn an_order_number_is_routed_without_a_key() {
    let home = home();
    let table =
        "version = 7\n[[range]]\nupper = 56442\nshard = \"s1\"\n[[range]]\nupper = 65535\nshard = \"s2\"\n";
    home.file("routes.toml", table);
    let route = |order_no: &str| home.run(&["route", "--order-no", order_no, "--table", "routes.toml"]);
    for order_no in [TEXT, "0xdc7b01f1c8d4fe953d9eb31ef9339b6b", "7943719833957099537", "6WFE337S3ST0HS"] {
        let answer = route(order_no).done();
        assert_eq!(answer, "gene: 56443\nshard: s2\nread: s2\nwrite: s2\nversion: 7\n", "{order_no}");
    }
    route("0x00000000000000000000000000000001").refused("INVALID_ARGUMENT");
    route("hello").refused("INVALID_ARGUMENT");
    home.run(&["route", "put", "orders", "routes.toml", "--yes"]).done();
    assert!(home.run(&["route", "--order-no", TEXT, "orders"]).done().contains("shard: s2"));
    assert_eq!(home.run(&["route", "--order-no", TEXT, "--key", "42"]).code, Some(2));
}
