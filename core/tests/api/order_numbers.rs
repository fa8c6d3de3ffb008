//! Order numbers: key files, texts, and routes without a key.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use keymill::{Code, OrderNumbers, Router};

const SECRET: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const ID: u64 = 7_943_646_055_239_778_305;

/// A key file with this text and this mode.
fn key_file(folder: &tempfile::TempDir, text: &str, mode: u32) -> PathBuf {
    let path = folder.path().join("keys.toml");
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(mode)).expect("its mode");
    path
}

fn secret() -> [u8; 32] {
    std::array::from_fn(|at| at as u8)
}

fn numbers() -> OrderNumbers {
    OrderNumbers::from_keys(&[(1, &secret())], 1, "acme", "orders").expect("a key")
}

#[test]
fn a_key_file_gives_the_numbers_that_its_keys_give() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = key_file(&folder, &format!("seal_with = 1\n[key]\n1 = \"{SECRET}\"\n"), 0o600);
    let numbers_of_file = OrderNumbers::open(&path, "acme", "orders").expect("a key file");
    assert_eq!(numbers_of_file.seal(ID), numbers().seal(ID));
    assert_eq!(numbers_of_file.version(), 1);
}

#[test]
fn a_key_file_that_others_can_read_is_refused_with_what_to_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = format!("seal_with = 1\n[key]\n1 = \"{SECRET}\"\n");
    for mode in [0o644, 0o640, 0o604, 0o606, 0o660] {
        let path = key_file(&folder, &text, mode);
        let error = OrderNumbers::open(&path, "", "").expect_err("other users can read it");
        assert_eq!(error.code, Code::InvalidConfig, "{mode:o}: {error}");
        assert!(error.message.contains(&format!("chmod 600 {}", path.display())), "{error}");
        assert!(!error.message.contains(&SECRET[..8]), "{error}");
    }
}

#[test]
fn a_key_file_that_cannot_be_used_is_told_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = OrderNumbers::open(folder.path().join("none.toml"), "", "").expect_err("missing");
    assert_eq!(missing.code, Code::InvalidArgument);
    assert!(missing.message.contains("none.toml"), "{missing}");
    let is_a_folder = OrderNumbers::open(folder.path(), "", "").expect_err("a folder");
    assert_eq!(is_a_folder.code, Code::InvalidArgument, "{is_a_folder}");
    let path = key_file(&folder, &format!("seal_with = 2\n[key]\n1 = \"{SECRET}\"\n"), 0o600);
    let error = OrderNumbers::open(&path, "", "").expect_err("no key seals");
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.contains("keys.toml`: the key file is refused: `seal_with = 2`"), "{error}");
    let path = key_file(&folder, &"#".repeat(65 << 10), 0o600);
    assert!(OrderNumbers::open(&path, "", "").expect_err("long").message.contains("longer than 65536 bytes"));
}

#[test]
fn a_chosen_version_seals_and_is_the_only_one_that_opens() {
    let two = OrderNumbers::from_keys(&[(1, &secret()), (2, &[9; 32])], 2, "acme", "orders").expect("keys");
    let first = two.with_version(1).expect("loaded");
    assert_eq!((two.version(), first.version()), (2, 1));
    assert_eq!(first.seal(ID), numbers().seal(ID));
    assert_eq!(two.unseal(&numbers().seal(ID).expect("sealed")), Ok(ID), "both are loaded");
    for error in [
        first.unseal(&two.seal(ID).expect("sealed")).expect_err("of version 2"),
        first.unseal_all(&[two.seal(ID).expect("sealed")]).expect_err("of version 2"),
        two.unseal8(1).expect_err("of which version?"),
        two.unseal8_all(&[1]).expect_err("of which version?"),
        two.with_version(0).expect_err("reserved"),
        two.with_version(3).expect_err("not loaded"),
    ] {
        assert_eq!(error.code, Code::InvalidArgument, "{error}");
    }
    let short = numbers().seal8(ID).expect("sealed");
    assert_eq!(first.unseal8(short), Ok(ID));
    assert_eq!(first.unseal8_all(&[short]), Ok(vec![ID]));
    assert_eq!(numbers().unseal8(short), Ok(ID), "only one is loaded");
}

#[test]
fn bytes_of_another_length_are_no_order_number() {
    for (length, told) in
        [(0, "this one 0"), (8, "unseal8"), (15, "this one 15"), (17, "this one 17"), (26, "unseal_text")]
    {
        let error = numbers().unseal(&vec![1; length]).expect_err("another length");
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.contains(told), "{error}");
        assert_eq!(
            numbers().unseal_wide(&vec![1; length]).expect_err("another length").code,
            Code::InvalidArgument
        );
    }
    // An id where an order number belongs.
    assert_eq!(numbers().unseal(&ID.to_be_bytes()).expect_err("an id").code, Code::InvalidArgument);
    assert_eq!(numbers().unseal_text(&ID.to_string()).expect_err("an id").code, Code::InvalidArgument);
    assert_eq!(numbers().unseal8(1 << 63).expect_err("no number").code, Code::InvalidArgument);
    assert_eq!(numbers().seal(1 << 63).expect_err("no id").code, Code::InvalidArgument);
    assert_eq!(numbers().seal8(1 << 63).expect_err("no id").code, Code::InvalidArgument);
    assert_eq!(numbers().seal_wide(1 << 127).expect_err("no id").code, Code::InvalidArgument);
}

#[test]
fn texts_open_as_bytes_do() {
    let numbers = numbers();
    assert_eq!(numbers.seal_text(ID).as_deref(), Ok("6WFC0Z3J6MZTAKV7NK3VWK76VB"));
    assert_eq!(numbers.unseal_text("6wfcoz3j6mztakv7nk3vwk76vb"), Ok(ID));
    assert_eq!(numbers.seal8_text(ID).as_deref(), Ok("6WFE337S3ST0HS"));
    assert_eq!(numbers.unseal8_text("6WFE337S3STOHS"), Ok(ID));
    let wide = 56_443 << 111 | i64::MAX as u128;
    let text = numbers.seal_wide_text(wide).expect("sealed");
    assert_eq!(text, "6WFC0QCJY4T29ASHYW1RZFQZJX");
    assert_eq!(numbers.unseal_wide_text(&text), Ok(wide));
    assert_eq!(numbers.unseal_text(&text).expect_err("of a wide id").code, Code::Forged);
    assert_eq!(numbers.unseal_text("6WFC0Z3J6MZTAKV7NK3VWK76VC").expect_err("mistyped").code, Code::Forged);
    assert_eq!(numbers.unseal8_text("6WFE337S3ST0HT").expect_err("mistyped").code, Code::InvalidArgument);
}

#[test]
fn an_order_number_is_routed_without_a_key() {
    let router = Router::from_text(
        r#"{"version": 3, "range": [
            {"upper": 20000, "shard": "s1"},
            {"upper": 50000, "shard": "s2", "to": "s4", "percent": 25},
            {"upper": 65535, "shard": "s3"}]}"#,
    )
    .expect("a table");
    let numbers = numbers();
    for gene in [0, 20_000, 50_001, 56_443, 65_535_u64] {
        let id = gene << 47 | 0x3039;
        let shard = router.route(id).expect("an id").shard;
        let (long, short) = (numbers.seal(id).expect("sealed"), numbers.seal8(id).expect("sealed"));
        let (text, text8) = (numbers.seal_text(id).expect("sealed"), numbers.seal8_text(id).expect("sealed"));
        let wide = numbers.seal_wide(u128::from(gene) << 111 | 0x3039).expect("sealed");
        for route in [
            router.route_order_no(&long),
            router.route_order_no(&wide),
            router.route_order_no(short),
            router.route_order_no(&short.to_be_bytes()),
            router.route_order_no(&text),
            router.route_order_no(&text8),
        ] {
            let route = route.expect("a route");
            assert_eq!((u64::from(route.gene.get()), route.shard, route.also), (gene, shard, None));
        }
    }
    // The number decides, and it is encrypted.
    let sealed = numbers.seal(30_000 << 47 | 7).expect("sealed");
    let route = router.route_order_no(&sealed).expect("a route");
    assert_eq!((route.read, route.also), ("s2", Some("s4")));
    for refused in [
        router.route_order_no(&[0; 15]),
        router.route_order_no(&[0; 16]),
        router.route_order_no(&[255; 8]),
        router.route_order_no(1 << 63),
        router.route_order_no(""),
        router.route_order_no("6WFE337S3ST0HT"),
        router.route_order_no("00000000000000000000000000"),
    ] {
        assert_eq!(refused.expect_err("no order number").code, Code::InvalidArgument);
    }
}

#[test]
fn threads_share_keys_and_debug_output_shows_none() {
    let numbers = numbers();
    let sealed = numbers.seal(ID).expect("sealed");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let numbers = numbers.clone();
            scope.spawn(move || (0..100).for_each(|_| assert_eq!(numbers.unseal(&sealed), Ok(ID))));
        }
    });
    let shown = format!("{numbers:?} {:?}", numbers.with_version(1));
    assert!(
        shown.contains("seal_with: 1") && !shown.contains(&SECRET[..8]) && !shown.contains("0, 1, 2"),
        "{shown}"
    );
}
