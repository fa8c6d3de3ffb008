//! `include/keymill.h` is what the sources say. `UPDATE_HEADER=1 cargo test -p keymill-ffi --test header` rewrites it.

use std::path::PathBuf;
use std::{env, fs};

/// In the header's order.
const SOURCES: [&str; 10] = [
    "src/handle.rs",
    "src/mill.rs",
    "src/source.rs",
    "src/business.rs",
    "src/router.rs",
    "src/numbers.rs",
    "src/cursor.rs",
    "src/spec.rs",
    "src/error.rs",
    "src/version.rs",
];

fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rendered() -> String {
    let config = cbindgen::Config::from_file(home().join("cbindgen.toml")).expect("cbindgen.toml");
    let sources = SOURCES.iter().map(|source| home().join(source));
    let codes = home().join("../core/src/error/mod.rs");
    let builder = std::iter::once(codes)
        .chain(sources)
        .fold(cbindgen::Builder::new().with_config(config), cbindgen::Builder::with_src);
    let mut text = Vec::new();
    builder.generate().expect("cbindgen reads the sources").write(&mut text);
    // A variant's prefix is its type's name; C's codes are called KM_OK, not KM_CODE_OK.
    let text = String::from_utf8(text).expect("UTF-8").replace("KM_CODE_", "KM_");
    for_old_standards(&with_success(&without_list(&text)))
}

/// C90 and C++98 know no `//`, no comma behind the last variant and no type of an enum.
fn for_old_standards(text: &str) -> String {
    let mut text = text
        .replace(
            "defined(__cplusplus) || __STDC_VERSION__",
            "(defined(__cplusplus) && __cplusplus >= 201103L) || __STDC_VERSION__",
        )
        .replace(",\n};", "\n};");
    while let Some(at) = text.find(" // ") {
        let end = text[at..].find('\n').map_or(text.len(), |end| at + end);
        let comment = format!(" /* {} */", &text[at + 4..end]);
        text.replace_range(at..end, &comment);
    }
    text
}

/// cbindgen has no way to leave out an associated constant: `Code::ALL` is Rust's.
fn without_list(text: &str) -> String {
    let list = text.find("#define km_code_ALL").expect("Code::ALL is rendered");
    let start = text[..list].rfind("/**").expect("its comment");
    let end = list + text[list..].find("\n\n").expect("its end") + 2;
    format!("{}{}", &text[..start], &text[end..])
}

/// `KM_OK` is C's own: `Code` lists errors.
fn with_success(text: &str) -> String {
    let list = text.find("enum km_code").expect("Code is rendered");
    let first = list + text[list..].find("    /**").expect("the first code's comment");
    format!("{}    /**\n     * No error.\n     */\n    KM_OK = 0,\n{}", &text[..first], &text[first..])
}

#[test]
fn the_header_is_what_the_sources_say() {
    let path = home().join("../include/keymill.h");
    let rendered = rendered();
    if env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&path, &rendered).expect("the header can be written");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    let first = committed.lines().zip(rendered.lines()).find(|(is, should)| is != should);
    assert!(
        committed == rendered,
        "include/keymill.h is out of date, first difference: {first:?}; run UPDATE_HEADER=1 cargo test -p keymill-ffi --test header"
    );
}

#[test]
fn every_source_file_is_rendered() {
    let files: Vec<_> = fs::read_dir(home().join("src"))
        .expect("src")
        .map(|entry| format!("src/{}", entry.expect("entry").file_name().display()))
        .filter(|file| !SOURCES.contains(&file.as_str()))
        .collect();
    for file in files {
        let text = fs::read_to_string(home().join(&file)).expect("a source file");
        assert!(!text.contains("no_mangle"), "{file} has exports: put it into SOURCES");
    }
}

#[test]
fn the_header_names_every_code_with_its_number() {
    let header = rendered();
    let codes = keymill_core::Code::ALL.iter().map(|code| (code.name(), code.number()));
    for (name, number) in std::iter::once(("OK", 0)).chain(codes) {
        let line = format!("KM_{name} = {number}");
        let there = header.lines().any(|shown| shown.trim().trim_end_matches(',') == line);
        assert!(there, "{line} is missing");
    }
}
