//! `text=` and `prefix=`: what the command prints and reads.

use crate::common::Home;
use serde_json::json;

#[test]
fn texts_have_the_form_and_the_prefix_that_the_spec_says() {
    let home = Home::new();
    let spec = "segment:orders?text=crockford&prefix=ord_";
    assert_eq!(home.run(&["take", spec, "2"]).done(), "ord_0000000000001\nord_0000000000002\n");
    assert_eq!(home.run(&["next", spec]).done(), "ord_0000000000003\n");
    assert_eq!(home.run(&["next", spec, "--json"]).json(), json!({"id": "4", "text": "ord_0000000000004"}));
    let two = json!([{"id": "5", "text": "ord_0000000000005"}, {"id": "6", "text": "ord_0000000000006"}]);
    assert_eq!(home.run(&["take", spec, "2", "--json"]).json(), two);
    assert_eq!(home.run(&["take", spec, "0", "--json"]).json(), json!([]));
    assert_eq!(home.run(&["parse", spec, "ord_000000000000i"]).done(), "number: 1\n");
    assert_eq!(home.run(&["parse", spec, "42", "--json"]).json(), json!({"number": "42"}));
    // The form is not stored: other programs go on with numbers.
    assert_eq!(home.run(&["next", "segment:orders"]).done(), "7\n");
}

#[test]
fn many_texts_come_in_order_over_chunks() {
    let home = Home::new();
    let out = home.run(&["take", "segment:orders?text=base62", "70000"]).done();
    let texts: Vec<&str> = out.lines().collect();
    assert_eq!((texts.len(), texts[0]), (70_000, "00000000001"));
    assert!(texts.iter().zip(&texts[1..]).all(|(one, next)| one < next));
}

#[test]
fn ids_for_a_key_have_texts_too() {
    let home = Home::new();
    let spec = "business:orders?text=base36&prefix=o_";
    let text = home.run(&["next", spec, "--key", "42"]).done();
    assert_eq!(home.run(&["parse", spec, text.trim_end()]).done(), "gene: 61763\nnumber: 1\n");
    let both = home.run(&["take", spec, "1", "--key", "42", "--json"]).json();
    let (id, text) = (both[0]["id"].as_str().unwrap(), both[0]["text"].as_str().unwrap());
    assert_eq!(u64::from_str_radix(&text[2..], 36).unwrap().to_string(), id);
}
