//! Ids as text in the forms of `text=`, beside decimal ones.

use keymill::{Mill, Source};

use super::harness::{Outcome, Rounds, Row, consume, measure};
use super::{ENDLESS, open};

/// What a form may cost, in decimal texts of the same ids.
const MOST: f64 = 1.1;

/// Texts in a `String` each, as most programs take them.
fn owned(source: Source) -> impl FnMut(u64) + Send {
    move |n| (0..n).for_each(|_| consume(source.next_text().expect("a text").as_ptr() as u64))
}

/// Texts in one buffer that is used again.
fn written(source: Source) -> impl FnMut(u64) + Send {
    let mut buffer = [0; 64];
    move |n| {
        for _ in 0..n {
            consume(source.write_text(&mut buffer).expect("a text") as u64);
            consume(buffer.as_ptr() as u64);
        }
    }
}

/// Ids of nineteen digits, as a snowflake has them.
pub fn large(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    rows(mill, rounds, "1000000000000000000")
}

/// Ids of up to ten digits, as a table has them: a form writes zeros in front, decimal digits are few.
pub fn small(mill: &Mill, rounds: Rounds) -> Vec<Outcome> {
    rows(mill, rounds, "1")
}

fn rows(mill: &Mill, rounds: Rounds, start: &str) -> Vec<Outcome> {
    const OWNED: &str = "Source::next_text, decimal";
    const WRITTEN: &str = "Source::write_text, decimal";
    let row = |name: &'static str, form: &str, is_owned: bool| {
        let name_of = name.replace([' ', ':', ','], "_");
        let source = open(mill, &format!("segment:{name_of}{start}?start={start}&{ENDLESS}&{form}"));
        if is_owned {
            Row::new(name, move || Box::new(owned(source.clone())) as Box<dyn FnMut(u64) + Send>)
        } else {
            Row::new(name, move || Box::new(written(source.clone())) as Box<dyn FnMut(u64) + Send>)
        }
    };
    let rows = [
        row(OWNED, "text=decimal", true),
        row("Source::next_text, crockford", "text=crockford", true).goal(OWNED, MOST, None),
        row("Source::next_text, base62", "text=base62", true).goal(OWNED, MOST, None),
        row("Source::next_text, base36", "text=base36", true).goal(OWNED, MOST, None),
        row("Source::next_text, crockford, prefix", "text=crockford&prefix=ord_", true)
            .goal(OWNED, MOST, None),
        row(WRITTEN, "text=decimal", false),
        row("Source::write_text, crockford", "text=crockford", false).goal(WRITTEN, MOST, None),
        row("Source::write_text, base62", "text=base62", false).goal(WRITTEN, MOST, None),
        row("Source::write_text, base36", "text=base36", false).goal(WRITTEN, MOST, None),
    ];
    measure(&rows, rounds)
}
