//! Words and patterns that make a reader read twice. `tests/house/language.toml` has how often each is there: the numbers only fall.
//!
//! `UPDATE_DOCS=1 cargo test -p keymill-tests --test house language` writes lower numbers, and never higher ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use proc_macro2::{TokenStream, TokenTree};

use super::floors::{files, root, sources};

/// The sources of Rust whose names and comments are counted.
const SOURCES: [&str; 6] = [
    "core/src",
    "ffi/src",
    "bindings/cli/src",
    "bindings/java/rust/src",
    "bindings/node/rust/src",
    "bindings/python/rust/src",
];

/// The sources of other languages, whose sentences are counted.
const OTHERS: [(&str, &str); 6] = [
    ("bindings/java/java/src/main", "java"),
    ("bindings/java/frameworks", "java"),
    ("bindings/node/ts", "ts"),
    ("bindings/python/python", "py"),
    ("include", "h"),
    ("include", "hpp"),
];

/// Patterns of sentences, in comments, in the documents and in the sources of other languages.
const SENTENCES: [(&str, &str); 6] = [
    ("that of", "say the noun again"),
    ("those of", "say the noun again"),
    ("one that", "name the thing"),
    ("of which", "write two sentences"),
    ("whoever", "name the person or the program"),
    ("likewise", "say what is alike"),
];

fn documents() -> Vec<PathBuf> {
    let mut found = files(&root().join("docs"), "md");
    found.push(root().join("README.md"));
    found
}

/// How often these words stand in a text, one after the other.
fn count(text: &str, words: &str) -> usize {
    let is_letter =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let found = text.match_indices(words).filter(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
        !is_letter(before) && !is_letter(text.as_bytes().get(at + words.len()))
    });
    found.count()
}

/// How often `of` names a variable, a field or an argument. A function of this name is a constructor; texts and comments have no
/// names.
fn variables_called_of(source: &str) -> usize {
    named_of(source.parse().unwrap_or_else(|e| panic!("no Rust: {e}")))
}

fn named_of(tokens: TokenStream) -> usize {
    let mut found = 0;
    let mut before = String::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                let is_function = before == "::" || before == "fn";
                found += usize::from(name == "of" && !is_function);
                before = name.to_string();
            }
            TokenTree::Punct(mark) if before == ":" => before.push(mark.as_char()),
            TokenTree::Punct(mark) => before = mark.to_string(),
            TokenTree::Group(group) => {
                found += named_of(group.stream());
                before.clear();
            }
            TokenTree::Literal(_) => before.clear(),
        }
    }
    found
}

#[test]
fn variables_called_of_are_told_from_functions_and_words() {
    let code = "let of = Gene::of(key);\nfor (of, name) in all {\n    say(\"one of them\", of.kind, offset_of!(A, b), proof);\n}\nfn of(a: u8) {}";
    assert_eq!(variables_called_of(code), 3);
    let code = "/// One of all.\nfn a(of: u8) {\n    b(of, \"three\n      of them\", r#\"a \"of\" b\"#); // The end of it.\n}";
    assert_eq!(variables_called_of(code), 2);
    assert_eq!(count("That of a range, that of one; that often", "that of"), 1);
}

fn counted() -> BTreeMap<String, usize> {
    let (mut comments, mut variables) = (String::new(), 0);
    for path in SOURCES.iter().flat_map(|folder| sources(&root().join(folder))) {
        let text = fs::read_to_string(&path).expect("a source");
        let is_comment = |line: &&str| line.trim_start().starts_with("//");
        variables += variables_called_of(&text);
        for line in text.lines().filter(is_comment) {
            let _ = write!(comments, "{} ", line.trim_start().trim_start_matches(['/', '!']).trim());
        }
    }
    let others = OTHERS.iter().flat_map(|(folder, extension)| files(&root().join(folder), extension));
    for path in documents().into_iter().chain(others) {
        let text = fs::read_to_string(&path).expect("a page");
        // A sentence goes on in the next line of a comment.
        let lines = text.lines().map(|line| line.trim_start().trim_start_matches(['/', '*', '#']));
        comments += &lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
        comments += " ";
    }
    let comments = comments.to_lowercase();
    let sentences = SENTENCES.iter().map(|(words, _)| ((*words).to_owned(), count(&comments, words)));
    sentences.chain([("a variable called `of`".to_owned(), variables)]).collect()
}

#[test]
fn patterns_that_are_read_twice_become_fewer() {
    let path = root().join("tests/house/language.toml");
    let most: BTreeMap<String, usize> =
        toml::from_str(&fs::read_to_string(&path).expect("the list")).expect("numbers by pattern");
    let counted = counted();
    let more: Vec<_> =
        counted.iter().filter(|(name, is)| most.get(*name).is_none_or(|most| *is > most)).collect();
    let advice = |name: &str| {
        SENTENCES
            .iter()
            .find(|(words, _)| *words == name)
            .map_or("name it after what it is", |(_, advice)| advice)
    };
    let more: Vec<_> = more.iter().map(|(name, is)| format!("{name}: {is}; {}", advice(name))).collect();
    assert!(more.is_empty(), "more than tests/house/language.toml has:\n{}", more.join("\n"));
    if counted == most {
        return;
    }
    assert!(
        std::env::var_os("UPDATE_DOCS").is_some(),
        "fewer than tests/house/language.toml has: {counted:?}; run `UPDATE_DOCS=1 cargo test -p keymill-tests --test house language`"
    );
    let lines = counted.iter().map(|(name, is)| format!("\"{name}\" = {is}\n"));
    fs::write(&path, lines.collect::<String>()).expect("written");
}
