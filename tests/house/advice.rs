//! Every advice that a message or a page gives is a row of `tests/adversaries/advice.toml`, with the test that follows it while other
//! programs go on.
//!
//! The advices are found in the sources of the core and of the command: what a `Remedy` says, and every text with a clause that
//! begins with a verb; and in the help texts and the blocks of the pages for operators: every command and
//! statement that changes a row, a table or a setting. A new one without a row fails here, and so does a row of which no message says the words.

use std::collections::BTreeSet;
use std::fs;

use super::adversaries::{Proof, root, texts};
use super::floors::sources;
use super::literals::literals;
use super::proofs::Proofs;

const TABLE: &str = "tests/adversaries/advice.toml";

/// What an operator is told to do.
const VERBS: [&str; 50] = [
    "add", "alter", "allow", "change", "check", "close", "create", "delete", "disable", "drop", "enable",
    "give", "grant", "leave", "let", "make", "mend", "move", "name", "open", "persist", "put", "raise",
    "rename", "repair", "restore", "revoke", "run", "set", "start", "stop", "store", "take", "use", "wait",
    "write", "have", "keep", "install", "turn", "end", "lower", "choose", "begin", "widen", "copy", "go",
    "try", "compare", "remove",
];

/// What stands before such a word where it begins a clause.
const BEFORE: [&str; 12] = [";", ":", ",", ".", "(", " and", " or", " then", " to", " else", "; else", "}"];

/// The advices of a source, without its tests and comments.
fn advices_in(source: &str) -> Vec<String> {
    let advice = literals(source)
        .into_iter()
        .filter(|literal| !literal.text.is_empty() && (literal.is_remedy() || is_advice(&literal.text)));
    advice.map(|literal| literal.text).collect()
}

/// Whether a text tells an operator to do something: a verb at the beginning of a clause.
fn is_advice(text: &str) -> bool {
    const STATEMENTS: [&str; 13] = [
        "SELECT ",
        "DELETE FROM ",
        "INSERT ",
        "UPDATE ",
        "ALTER ",
        "CREATE ",
        "BEGIN ",
        "START ",
        "SET ",
        "DROP ",
        "REVOKE ",
        "GRANT ",
        "-- ",
    ];
    if STATEMENTS.iter().any(|statement| text.starts_with(statement)) {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    VERBS.iter().any(|verb| {
        lower.match_indices(verb).any(|(at, _)| {
            let (before, after) = (lower[..at].trim_end(), &lower[at + verb.len()..]);
            let begins = before.is_empty() || BEFORE.iter().any(|mark| before.ends_with(mark));
            begins && after.starts_with(' ') && (at == 0 || !lower.as_bytes()[at - 1].is_ascii_alphanumeric())
        })
    })
}

/// What an advice has to say where it says one of these words: followed without it, it gives ids twice.
struct Needed {
    says: &'static [&'static str],
    /// One of these is enough.
    needs: &'static [&'static str],
}

const NEEDED: [Needed; 2] = [
    // A program that goes on issues what it reserved before, above whatever is written now.
    Needed { says: &["mend the row", "set it to the"], needs: &["stop every program"] },
    // A new source begins at its first id, and the ids of two layouts may be equal.
    Needed {
        says: &[
            "a new source and",
            "new source name",
            "a new source with",
            "or a new source",
            "source of another name",
        ],
        needs: &["column", "another entity"],
    },
];

/// What an advice leaves out that makes it safe to follow.
fn left_out(text: &str) -> Vec<String> {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let missing = NEEDED.iter().filter(|needed| says(needed.says) && !says(needed.needs));
    missing.map(|needed| format!("`{text}` says none of {:?}", needed.needs)).collect()
}

#[test]
fn an_advice_that_repeats_ids_while_programs_go_on_says_what_comes_first() {
    let mut found: Vec<String> = core_sources()
        .flat_map(|(name, text)| literals(&text).into_iter().map(move |literal| (name.clone(), literal.text)))
        .flat_map(|(name, literal)| left_out(&literal).into_iter().map(move |what| format!("{name}: {what}")))
        .collect();
    let page = fs::read_to_string(root().join("docs/guarantees.md")).expect("a page");
    let codes = page.lines().filter(|line| line.starts_with("| `"));
    found.extend(codes.flat_map(left_out));
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(left_out("it is 7; set it to the highest").len(), 1);
}

/// The sources of the core with messages, each with its name.
fn core_sources() -> impl Iterator<Item = (String, String)> {
    sources_in("core/src")
}

fn sources_in(folder: &str) -> impl Iterator<Item = (String, String)> {
    let folder = root().join(folder);
    sources(&folder).into_iter().filter_map(move |path| {
        let name = path.strip_prefix(&folder).expect("below it").to_string_lossy().into_owned();
        // The descriptions of the options are a page, not a message.
        let is_read = !name.ends_with("tests.rs")
            && !name.contains("_tests/")
            && !name.ends_with("loom.rs")
            && name != "config/options.rs";
        is_read.then(|| (name, fs::read_to_string(&path).expect("a source")))
    })
}

/// The commands that change a row, a table or a setting, of the lines of a help text or of a page's blocks, without what stands behind them.
fn commands<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    const CHANGES: [&str; 5] = ["repair", "init", "import", "move", "put"];
    const STATEMENTS: [&str; 8] =
        ["ALTER ", "UPDATE ", "DELETE ", "DROP ", "REVOKE ", "CONFIG SET ", "ACL ", "RENAMENX "];
    let is_change = |line: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some("keymill") && words.any(|word| CHANGES.contains(&word))
            || STATEMENTS.iter().any(|statement| line.starts_with(statement))
    };
    let commands = lines.map(str::trim).filter(|line| is_change(line));
    commands.filter_map(|line| Some(line.split("  ").next()?.trim_end_matches("\")]").to_owned())).collect()
}

/// The lines of a page that stand in its blocks.
fn blocks(page: &str) -> impl Iterator<Item = &str> {
    let mut is_in = false;
    page.lines().filter(move |line| {
        is_in ^= line.starts_with("```");
        is_in && !line.starts_with("```")
    })
}

/// Every advice of the core and of the command, with its file, and every command of the help texts and of the pages for operators.
fn advices() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (name, text) in sources_in("bindings/cli/src") {
        let of_help = commands(text.lines().filter(|line| !line.trim_start().starts_with("//")));
        found.extend(advices_in(&text).into_iter().chain(of_help).map(|advice| (name.clone(), advice)));
    }
    for page in fs::read_dir(root().join("docs/operations")).expect("the pages") {
        let path = page.expect("a page").path();
        let text = fs::read_to_string(&path).expect("a page");
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.extend(commands(blocks(&text)).into_iter().map(|command| (name.clone(), command)));
    }
    for (name, text) in core_sources() {
        found.extend(advices_in(&text).into_iter().map(|literal| (name.clone(), literal)));
    }
    found
}

/// A row: words of one or more advices, and what proves that they are safe to follow.
struct Row {
    says: Vec<String>,
    proofs: Vec<Proof>,
}

/// The rows, and how many of them may have no test.
fn rows(text: &str) -> (Vec<Row>, usize) {
    let parsed: toml::Table = text.parse().unwrap_or_else(|e| panic!("{TABLE}: {e}"));
    let most = parsed["advice_not_tested"].as_integer().and_then(|n| n.try_into().ok()).expect("a number");
    let rows = parsed["advice"].as_array().cloned().unwrap_or_default();
    let rows = rows.iter().map(|row| Row {
        says: texts(&row["says"]),
        proofs: texts(&row["proof"]).iter().map(|text| Proof::read(text)).collect(),
    });
    (rows.collect(), most)
}

/// Whether a row's words are those of an advice: the whole of it, or a part that is long enough to be no other's.
fn has(advices: &BTreeSet<(String, String)>, words: &str, advice: &str) -> bool {
    advice == words
        || words.len() >= 16 && advice.contains(words) && !advices.iter().any(|(_, advice)| advice == words)
}

/// Everything that is wrong with the rows.
fn wrong(
    (rows, most): &(Vec<Row>, usize),
    advices: &BTreeSet<(String, String)>,
    check: &dyn Fn(&str) -> Result<(), String>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let words = || rows.iter().flat_map(|row| &row.says);
    for (file, advice) in advices {
        if !words().any(|words| has(advices, words, advice)) {
            wrong.push(format!("{file}: no row has the advice `{advice}`"));
        }
    }
    for words in words() {
        if !advices.iter().any(|(_, advice)| has(advices, words, advice)) {
            wrong.push(format!("no message says `{words}`"));
        }
    }
    let mut gaps = 0;
    for row in rows {
        let name = row.says.first().map_or("", String::as_str);
        gaps += usize::from(row.proofs.iter().any(|proof| matches!(proof, Proof::NotTested(_))));
        if row.proofs.is_empty() {
            wrong.push(format!("`{name}`: nothing proves it"));
        }
        for proof in &row.proofs {
            match proof {
                Proof::Test(test) => {
                    wrong.extend(check(test).err().map(|why| format!("`{name}`: `{test}`: {why}")));
                }
                Proof::Cannot(why) | Proof::NotTested(why) if why.ends_with('.') => {}
                other => wrong.push(format!("`{name}`: {other:?} is no sentence of a row of advice")),
            }
        }
    }
    if gaps != *most {
        wrong.push(format!(
            "{gaps} rows are `not tested`, and `advice_not_tested` says {most}: it may only fall"
        ));
    }
    wrong
}

#[test]
fn every_advice_of_a_message_has_a_row_and_its_test() {
    let proofs = Proofs::read(&root());
    let table = fs::read_to_string(root().join(TABLE)).expect("the rows of advice");
    let (rows, advices) = (rows(&table), advices());
    assert!(advices.len() > 100, "only {} were found: the reader is broken", advices.len());
    let wrong = wrong(&rows, &advices, &|name| proofs.check(name));
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
    println!("{} advices in {} rows; not tested: {}", advices.len(), rows.0.len(), rows.1);
}

#[test]
fn a_new_advice_a_lost_one_and_a_lost_test_are_seen() {
    let table = "advice_not_tested = 0\n[[advice]]\nsays = \"it differs; use `step=\"\nproof = \"a::b\"\n";
    let there = BTreeSet::from([("a.rs".to_owned(), "it differs; use `step=5`".to_owned())]);
    let found = |table: &str, advices: &BTreeSet<(String, String)>| wrong(&rows(table), advices, &|_| Ok(()));
    assert_eq!(found(table, &there), Vec::<String>::new());
    let mut more = there.clone();
    more.insert(("b.rs".to_owned(), "raise `skew`".to_owned()));
    assert_eq!(found(table, &more), ["b.rs: no row has the advice `raise `skew``"]);
    assert_eq!(found(table, &BTreeSet::new()), ["no message says `it differs; use `step=`"]);
    let untested = table.replace("a::b", "not tested: nobody wrote it yet.");
    assert!(found(&untested, &there)[0].contains("`advice_not_tested` says 0"));
    let refused = wrong(&rows(table), &there, &|_| Err("no such test".to_owned()));
    assert_eq!(refused, ["`it differs; use `step=`: `a::b`: no such test"]);
}

#[test]
fn a_command_of_a_page_is_told_from_other_lines() {
    let page = "keymill repair a\n```sh\nkeymill repair segment:a --to 5 --yes     # above it\nkeymill status\n\
                UPDATE t SET a = 1;\necho keymill init\n```\nDELETE FROM t\n";
    assert_eq!(commands(blocks(page)), ["keymill repair segment:a --to 5 --yes", "UPDATE t SET a = 1;"]);
}

#[test]
fn an_advice_is_told_from_another_text() {
    for text in
        ["set the clock, or raise `skew` if", "run `{keymill} init`", "it is gone; use `step={found}`"]
    {
        assert!(is_advice(text), "{text}");
    }
    for text in
        ["reserving {len} for `{}`", "DELETE FROM `{}` WHERE `stub`", "its use of `x` is over", "no number"]
    {
        assert!(!is_advice(text), "{text}");
    }
    let source = "const A: Remedy = Remedy::Text(\n    \"restore it\",\n);\n// \"run `x`\"\nlet b = \"name `x`\";\n#[cfg(test)]\nmod tests { \"use `y`\" }";
    assert_eq!(advices_in(source), ["restore it", "name `x`"]);
}
