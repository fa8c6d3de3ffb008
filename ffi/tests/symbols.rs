//! `ffi/abi.txt` is the ledger of exported symbols: it, the sources, the header and the built library say the same.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(home().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The ledger: `name version`, by name.
fn ledger() -> BTreeSet<String> {
    let text = read("abi.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, version) = line.split_once(' ').unwrap_or_else(|| panic!("`{line}` has no version"));
            let numbers = version.split('.').filter(|part| part.parse::<u32>().is_ok()).count();
            assert_eq!(numbers, 3, "`{line}`: a version is three numbers");
            name.to_owned()
        })
        .collect()
}

/// Every exported function of the sources: its name, and its text up to the closing brace.
fn exports() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(home().join("src")).expect("src") {
        let text = fs::read_to_string(entry.expect("entry").path()).expect("a source file");
        for function in text.split("#[unsafe(no_mangle)]").skip(1) {
            let name = function.split_once("fn ").expect("a function").1;
            let name = name.split_once('(').expect("its parameters").0;
            let end = function.find("\n}").expect("its end");
            found.push((name.to_owned(), function[..end].to_owned()));
        }
    }
    found
}

fn names(exports: &[(String, String)]) -> BTreeSet<String> {
    exports.iter().map(|(name, _)| name.clone()).collect()
}

#[test]
fn the_ledger_has_every_exported_function() {
    assert_eq!(names(&exports()), ledger(), "write new functions into ffi/abi.txt; never take one out");
}

#[test]
fn the_header_has_every_exported_function() {
    // A declaration may be broken at a comma.
    let header = read("../include/keymill.h").replace(",\n  ", ", ");
    let declared: BTreeSet<String> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '/']) && line.ends_with(");"))
        .map(|line| {
            let before = line.split_once('(').expect("a declaration").0;
            before.rsplit([' ', '*']).next().expect("a name").to_owned()
        })
        .collect();
    assert_eq!(declared, ledger());
}

#[test]
fn every_exported_function_goes_through_the_door() {
    for (name, text) in exports() {
        let body = text.split_once("{\n").expect("a body").1;
        let first = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let first: Vec<_> =
            first.skip_while(|line| line.starts_with("const ") || !line.contains("enter")).collect();
        let entry =
            first.first().is_some_and(|line| line.starts_with("enter(") || line.starts_with("enter_for("));
        assert!(entry, "{name} does not go through `enter`");
        // All it does is what `enter` guards: constants, `enter`, nothing after it.
        let last = body.trim_end().lines().last().expect("a last line").trim();
        assert!(last.ends_with(')'), "{name} does something after `enter`: {last}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn the_library_exports_the_ledger_and_nothing_else() {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build
        .args(["build", "--quiet", "-p", "keymill-ffi", "--lib", "--message-format=json"])
        .current_dir(home());
    // Cargo tells a test which package it belongs to. A build script of a dependency asks for these variables, and would run again here and
    // once more in the next command: with it everything that depends on it is compiled twice.
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            build.env_remove(&*name);
        }
    }
    let built = build.output().expect("cargo runs");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8(built.stdout).expect("UTF-8");
    let library = messages
        .split('"')
        .rfind(|text| text.ends_with("/libkeymill.so"))
        .expect("the library is among cargo's messages");
    let nm = Command::new("nm").args(["-D", "--defined-only", library]).output().expect("nm (binutils) runs");
    let symbols = String::from_utf8(nm.stdout).expect("UTF-8");
    let symbols: BTreeSet<_> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    assert_eq!(symbols, ledger());
}
