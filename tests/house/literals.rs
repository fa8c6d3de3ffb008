//! The text literals of a Rust source.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::Lit;

/// A text literal, and the identifiers before it: `["Remedy", "Text"]` of `Remedy::Text("…")`, `["first"]` of a field.
pub(super) struct Literal {
    pub(super) text: String,
    before: Vec<String>,
}

impl Literal {
    pub(super) fn is_remedy(&self) -> bool {
        self.before == ["Remedy", "Text"] || self.before == ["first"]
    }
}

/// The text literals of a source in their order, without those of tests, comments and attributes.
pub(super) fn literals(source: &str) -> Vec<Literal> {
    let tokens = source.parse().unwrap_or_else(|e| panic!("no Rust: {e}"));
    let mut found = Vec::new();
    read(tokens, Vec::new(), &mut found);
    found
}

fn read(tokens: TokenStream, mut before: Vec<String>, found: &mut Vec<Literal>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                tokens.next_if(|token| matches!(token, TokenTree::Punct(inner) if inner.as_char() == '!'));
                let Some(TokenTree::Group(attribute)) = tokens.peek() else { continue };
                let is_test = is_for_tests(attribute);
                tokens.next();
                // The item behind it ends with a semicolon or its braces.
                while is_test && tokens.next().is_some_and(|token| !is_end(&token)) {}
            }
            // A path and a field go on.
            TokenTree::Punct(mark) if mark.as_char() == ':' => {}
            TokenTree::Punct(_) => before.clear(),
            TokenTree::Ident(name) => {
                let goes_on = before.len() == 1 && before[0] == "Remedy";
                before.truncate(usize::from(goes_on));
                before.push(name.to_string());
            }
            TokenTree::Group(group) => read(group.stream(), std::mem::take(&mut before), found),
            TokenTree::Literal(literal) => {
                if let Lit::Str(text) = Lit::new(literal) {
                    found.push(Literal { text: text.value(), before: std::mem::take(&mut before) });
                }
            }
        }
    }
}

fn is_for_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    text.starts_with("cfg(test") || text.starts_with("cfg(all(test")
}

fn is_end(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        _ => false,
    }
}

#[test]
fn texts_are_told_from_comments_tests_and_attributes() {
    let source = r#"
        #![doc = "none"]
        // "none"
        #[cfg(test)] use a::{b, c};
        const A: Remedy = Remedy::Text("restore \
            it");
        fn f<'a>(c: char) -> bool { g(C { first: "run \"x\"" }, '"', b"none") && c == '\'' }
        #[cfg(all(test, unix))] mod tests { const A: &str = "none"; }
    "#;
    let found = literals(source);
    let texts: Vec<&str> = found.iter().map(|literal| literal.text.as_str()).collect();
    assert_eq!(texts, ["restore it", "run \"x\""]);
    assert!(found.iter().all(Literal::is_remedy));
}
