//! What opens, what does not, and values that were computed apart from keymill: HKDF by Python's `hashlib`, FF1 as NIST writes it, AES by
//! OpenSSL.

use proptest::prelude::*;

use super::*;

/// Keys 1, 2 and so on: 32 bytes that count.
fn secrets(count: u8) -> Vec<[u8; 32]> {
    (0..count).map(|version| std::array::from_fn(|at| 32 * version + at as u8)).collect()
}

/// Versions 1 to `count`; the last one seals.
fn ring_of(count: u8, tenant: &str, table: &str) -> KeyRing {
    let secrets = secrets(count);
    let keys: Vec<_> = (1..=count).zip(secrets.iter().map(<[u8; 32]>::as_slice)).collect();
    let file = KeyFile::of_keys(&keys, count).expect("keys");
    KeyRing::derive(&file, tenant, table).expect("names")
}

fn ring() -> KeyRing {
    ring_of(1, "acme", "orders")
}

fn key(ring: &KeyRing, version: u8) -> &SealingKey {
    ring.key(version).expect("loaded")
}

fn code<T: fmt::Debug>(answer: Result<T>) -> Code {
    answer.expect_err("refused").code
}

const ID: u64 = 7_943_646_055_239_778_305;
const WIDE: u128 = 56_443 << 111 | i64::MAX as u128;

#[test]
fn order_numbers_computed_apart() {
    let acme = ring_of(2, "acme", "orders");
    let secret = &secrets(1)[0];
    let file = KeyFile::of_keys(&[(255, secret)], 255).expect("a key");
    let shop = KeyRing::derive(&file, "店铺", "订单").expect("names");
    for (ring, version, id, long, short) in [
        (&ring_of(1, "", ""), 1, 1, 0x0000_019c_99fb_de90_40de_0e2c_a179_1d4a_u128, 8_029_051_224_713),
        (&acme, 1, 0, 0x0000_0179_ca00_c929_855b_5e15_3753_0283, 139_367_805_879_874),
        (&acme, 1, ID, 0xdc7b_01f1_c8d4_fe95_3d9e_b31e_f933_9b6b, 7_943_719_833_957_099_537),
        (&acme, 2, ID, 0xdc7b_02f8_4ca6_2f76_6895_4543_f6e0_821f, 7_943_673_288_135_987_321),
        (&acme, 2, i64::MAX as u64, 0xffff_02b6_8b80_eb5a_419c_9ad2_95ba_30bb, 9_223_237_717_660_274_302),
        (&shop, 255, 2, 0x0000_ff20_788c_d6f4_7a00_2d91_b552_9b08, 28_482_501_935_921),
    ] {
        let key = key(ring, version);
        assert_eq!(key.seal(id), Ok(long.to_be_bytes()), "{id}");
        assert_eq!(key.unseal(&long.to_be_bytes()), Ok(id));
        assert_eq!((key.seal8(id), key.unseal8(short)), (Ok(short), Ok(id)));
    }
    for (version, id, long) in [
        (1, 1, 0x0000_0179_af16_4d8a_93d2_769d_6cb3_c263_u128),
        (2, WIDE, 0xdc7b_02cd_18a4_044c_a6a5_ead8_3387_9bee),
    ] {
        assert_eq!(key(&acme, version).seal_wide(id), Ok(long.to_be_bytes()), "{id}");
        assert_eq!(key(&acme, version).unseal_wide(&long.to_be_bytes()), Ok(id));
    }
}

/// Both forms of an order number, opened after this bit was flipped.
fn flipped(ring: &KeyRing, bit: usize) -> [Code; 2] {
    let with_flipped_bit = |sealed: Result<[u8; 16]>| {
        let mut changed = sealed.expect("sealed");
        changed[bit / 8] ^= 0x80 >> (bit % 8);
        changed
    };
    let (narrow, wide) =
        (with_flipped_bit(key(ring, 3).seal(ID)), with_flipped_bit(key(ring, 3).seal_wide(WIDE)));
    let open = |order_no: &[u8; 16]| ring.key_of(order_no, None).and_then(|key| key.unseal(order_no));
    let open_wide =
        |order_no: &[u8; 16]| ring.key_of(order_no, None).and_then(|key| key.unseal_wide(order_no));
    [code(open(&narrow)), code(open_wide(&wide))]
}

#[test]
fn each_of_the_128_bits_counts() {
    // Version 3 becomes 2, 1, 7, 11, …: two of them are loaded.
    let ring = ring_of(3, "acme", "orders");
    for bit in 0..128 {
        let expected = match bit {
            22 | 23 => Code::Forged,
            16..24 => Code::InvalidArgument,
            _ => Code::Forged,
        };
        assert_eq!(flipped(&ring, bit), [expected; 2], "bit {bit}");
    }
}

#[test]
fn an_order_number_opens_for_its_tenant_its_table_and_its_key_only() {
    let sealed = key(&ring(), 1).seal(ID).expect("sealed");
    let wide = key(&ring(), 1).seal_wide(WIDE).expect("sealed");
    let short = key(&ring(), 1).seal8(ID).expect("sealed");
    assert_eq!(key(&ring(), 1).unseal(&sealed), Ok(ID));
    for (tenant, table) in [
        ("acme", "order"),
        ("acm", "eorders"),
        ("", "orders"),
        ("acme", ""),
        ("ACME", "orders"),
        ("orders", "acme"),
    ] {
        let other = ring_of(1, tenant, table);
        assert_eq!(code(key(&other, 1).unseal(&sealed)), Code::Forged, "{tenant} {table}");
        assert_eq!(code(key(&other, 1).unseal_wide(&wide)), Code::Forged, "{tenant} {table}");
        assert_ne!(key(&other, 1).unseal8(short), Ok(ID), "{tenant} {table}");
    }
    // The same secret in another version, and another secret in the same one.
    let secret = &secrets(1)[0];
    let other_version = KeyFile::of_keys(&[(2, secret)], 2).expect("a key");
    let other_version = KeyRing::derive(&other_version, "acme", "orders").expect("names");
    let mut relabelled = sealed;
    relabelled[2] = 2;
    assert_eq!(code(key(&other_version, 2).unseal(&relabelled)), Code::Forged);
    let other_secret = KeyFile::of_keys(&[(1, &[9; 32])], 1).expect("a key");
    let other_secret = KeyRing::derive(&other_secret, "acme", "orders").expect("names");
    assert_eq!(code(key(&other_secret, 1).unseal(&sealed)), Code::Forged);
}

#[test]
fn each_bit_that_has_to_be_zero_is_looked_at() {
    // Only with the key can a number be sealed in which one of them is set.
    let (ring, gene) = (ring(), 7);
    let key = key(&ring, 1);
    for bit in (0..56).chain([103]) {
        let (left, right) = ((1_u128 << bit >> 52) as u64, (1_u128 << bit) as u64 & low(52));
        let mut lane = SealingKey::lane(key.narrow_start, gene, left, right);
        permute(&key.long, &LONG, key.narrow_start as u64, Way::Forth, &mut lane);
        let order_no = key.bytes(gene, lane);
        assert_eq!(code(key.unseal(&order_no)), Code::Forged, "bit {bit}");
        assert_eq!(code(ring.unseal_all(&[order_no], None)), Code::Forged, "bit {bit}");
        if (40..103).contains(&bit) {
            continue;
        }
        let mut lane = SealingKey::lane(key.wide_start, gene, left, right);
        permute(&key.long, &LONG, key.wide_start as u64, Way::Forth, &mut lane);
        assert_eq!(code(key.unseal_wide(&key.bytes(gene, lane))), Code::Forged, "bit {bit} of a wide id");
    }
}

#[test]
fn after_a_rotation_old_numbers_open_and_new_ones_have_the_new_version() {
    let (before, after) = (ring_of(1, "acme", "orders"), ring_of(2, "acme", "orders"));
    let old = key(&before, before.seal_with()).seal(ID).expect("sealed");
    let new = key(&after, after.seal_with()).seal(ID).expect("sealed");
    assert_eq!((old[2], new[2]), (1, 2));
    assert_ne!(old[3..], new[3..]);
    for order_no in [old, new] {
        assert_eq!(after.key_of(&order_no, None).and_then(|key| key.unseal(&order_no)), Ok(ID));
    }
    let refused = before.key_of(&new, None).expect_err("not loaded");
    assert_eq!(refused.code, Code::InvalidArgument);
    assert!(refused.message.contains("the key of version 2 is not loaded, only 1"), "{refused}");
    let refused = after.key_of(&old, Some(2)).expect_err("another version was asked for");
    assert_eq!(refused.code, Code::InvalidArgument);
    assert!(refused.message.contains("has key version 1, and 2 was asked for"), "{refused}");
    assert!(after.only_key().expect_err("two are loaded").message.contains("versions 1, 2"));
}

#[test]
fn the_bytes_of_an_id_are_no_order_number() {
    let ring = ring_of(1, "", "");
    for id in [WIDE, 0, 1, u128::from(ID)] {
        let bytes = id.to_be_bytes();
        let error = ring.key_of(&bytes, None).expect_err("an id");
        assert_eq!(error.code, Code::InvalidArgument, "{error}");
    }
    assert_eq!(code(gene_of(&1_u128.to_be_bytes())), Code::InvalidArgument);
}

#[test]
fn names_that_would_run_into_each_other_are_refused() {
    let file = KeyFile::of_keys(&[(1, &[7; 32])], 1).expect("a key");
    let long = "x".repeat(129);
    for (tenant, table) in [("a\u{1f}b", "c"), ("a", "b\u{1f}c"), ("a\n", ""), (&*long, ""), ("", &*long)] {
        assert_eq!(code(KeyRing::derive(&file, tenant, table)), Code::InvalidArgument);
    }
    assert!(KeyRing::derive(&file, &long[1..], &long[1..]).is_ok());
}

#[test]
fn a_batch_of_any_length_is_what_one_by_one_gives() {
    let ring = ring_of(3, "acme", "orders");
    let ids: Vec<u64> = (0..200_u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1).collect();
    for count in [0, 1, 2, 7, 8, 63, 64, 65, 127, 128, 200] {
        let ids = &ids[..count];
        let (key, older) = (key(&ring, 3), key(&ring, 1));
        let one_by_one: Result<Vec<_>> = ids.iter().map(|id| key.seal(*id)).collect();
        assert_eq!(key.seal_all(ids), one_by_one, "{count}");
        // Of several versions, as after a rotation.
        let mixed =
            ids.iter().enumerate().map(|(at, id)| if at % 3 == 1 { older.seal(*id) } else { key.seal(*id) });
        let mixed = mixed.collect::<Result<Vec<_>>>().expect("sealed");
        assert_eq!(ring.unseal_all(&mixed, None).as_deref(), Ok(ids), "{count}");
        let short = key.seal8_all(ids).expect("sealed");
        assert_eq!(
            short,
            ids.iter().map(|id| key.seal8(*id)).collect::<Result<Vec<_>>>().expect("sealed"),
            "{count}"
        );
        assert_eq!(key.unseal8_all(&short).as_deref(), Ok(ids), "{count}");
    }
}

#[test]
fn a_batch_says_which_of_it_is_wrong() {
    let ring = ring();
    let key = key(&ring, 1);
    let mut ids: Vec<u64> = (0..100).collect();
    let mut sealed = key.seal_all(&ids).expect("sealed");
    sealed[77][9] ^= 4;
    let error = ring.unseal_all(&sealed, None).expect_err("one was changed");
    assert_eq!(error.code, Code::Forged);
    assert!(error.message.starts_with("order number 78 of 100: "), "{error}");
    sealed[77][2] = 9;
    let error = ring.unseal_all(&sealed, None).expect_err("no such key");
    assert_eq!(error.code, Code::InvalidArgument);
    assert!(error.message.starts_with("order number 78 of 100: the key of version 9"), "{error}");
    ids[70] = 1 << 63;
    for error in [key.seal_all(&ids).expect_err("no id"), key.seal8_all(&ids).expect_err("no id")] {
        assert_eq!(error.code, Code::InvalidArgument);
        assert!(error.message.starts_with("id 71 of 100: "), "{error}");
    }
    let error = key.unseal8_all(&ids).expect_err("no order number");
    assert!(error.message.starts_with("order number 71 of 100: "), "{error}");
}

#[test]
fn neither_a_message_nor_debug_output_has_a_key() {
    let ring = ring();
    let shown = format!("{ring:?} {:?}", ring.keys);
    assert!(shown.contains("version: 1"), "{shown}");
    for secret in ["0001", "0, 1, 2", "[0", "start"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

proptest! {
    #[test]
    fn what_is_sealed_opens_as_what_it_was(gene: u16, number in 0..1_u64 << 47, wide in 0..1_u64 << 63) {
        let ring = ring();
        let key = key(&ring, 1);
        let id = u64::from(gene) << 47 | number;
        let sealed = key.seal(id).expect("an id");
        prop_assert_eq!(key.unseal(&sealed), Ok(id));
        prop_assert_eq!(gene_of(&sealed).map(Gene::get), Ok(gene));
        // The other form never opens it.
        prop_assert_eq!(code(key.unseal_wide(&sealed)), Code::Forged);
        let wide = u128::from(gene) << 111 | u128::from(wide);
        let sealed = key.seal_wide(wide).expect("an id");
        prop_assert_eq!(key.unseal_wide(&sealed), Ok(wide));
        prop_assert_eq!(gene_of(&sealed).map(Gene::get), Ok(gene));
        prop_assert_eq!(code(key.unseal(&sealed)), Code::Forged);
        let short = key.seal8(id).expect("an id");
        prop_assert_eq!((key.unseal8(short), Gene::of_id(short).map(Gene::get)), (Ok(id), Ok(gene)));
    }

    #[test]
    fn sixteen_bytes_that_no_key_made_are_forged(mut bytes: [u8; 16]) {
        bytes[2] = 1;
        let ring = ring();
        prop_assert_eq!(code(key(&ring, 1).unseal(&bytes)), Code::Forged);
        prop_assert_eq!(code(key(&ring, 1).unseal_wide(&bytes)), Code::Forged);
    }
}
