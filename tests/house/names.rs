//! One name is one thing: no two types of the core have the same name, and files in an editor's tabs are told apart.

use std::collections::BTreeMap;

use super::floors::{code, module, root, sources};

/// Types that are defined more than once, each with the reason why that is one thing.
const SEVERAL_TIMES: [(&str, &str); 0] = [];

/// Files that several folders have, each with the reason why the folder's name says enough.
const IN_SEVERAL_FOLDERS: [(&str, &str); 3] = [
    ("mod", "the folder's own file"),
    ("loom", "the model checker's tests of the folder"),
    ("counters", "of callers, and of banks over several stores"),
];

/// The names of the types that this code defines: structs, enums, unions and traits wherever they are, and aliases at the left
/// margin, because an alias inside an `impl` belongs to its trait.
fn types(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in code.lines() {
        let is_inside = line.starts_with(' ');
        let mut words =
            line.split_whitespace().skip_while(|word| word.starts_with("pub") || *word == "unsafe");
        let kind = words.next().unwrap_or_default();
        if ["struct", "enum", "union", "trait"].contains(&kind) || kind == "type" && !is_inside {
            let name = words.next().unwrap_or_default();
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
            found.push(&name[..end]);
        }
    }
    found
}

/// Whether a module is that of a platform whose names `system/unix` or `system/unix/linux` has too. They have to be the same:
/// `floors.rs` compares them.
fn is_another_platform(module: &str) -> bool {
    ["system/windows", "system/unix/macos"].iter().any(|platform| module.starts_with(platform))
}

#[test]
fn definitions_of_types_are_read_whatever_stands_around_them() {
    let code = "pub(crate) struct One<'a> {\n    Struct(u8),\n}\nenum Two {}\npub type Three = u8;\nimpl A for B {\n    type Not = u8;\n\
                }\nmod inner {\n    pub(super) trait Four: Sized {}\n    union Five { a: u8 }\n}\nstruct Six(u8);\nlet x = struct_of;";
    assert_eq!(types(code), ["One", "Two", "Three", "Four", "Five", "Six"]);
}

/// Those of `found` that have several places; `excepted` may have them, and must.
fn repeated(found: &BTreeMap<String, Vec<String>>, excepted: &[(&str, &str)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, places) in found {
        let is_excepted = excepted.iter().any(|(one, _)| one == name);
        if places.len() > 1 && !is_excepted {
            wrong.push(format!("{name} is in {}", places.join(", ")));
        }
    }
    for (name, _) in excepted {
        if found.get(*name).is_none_or(|places| places.len() < 2) {
            wrong.push(format!("{name} is there once: take it out of the list"));
        }
    }
    wrong
}

#[test]
fn no_two_types_of_the_core_have_one_name() {
    let src = root().join("core/src");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources(&src) {
        let (code, module) = (code(&path), module(&src, &path));
        for name in
            types(&code).into_iter().filter(|_| !module.ends_with("loom") && !is_another_platform(&module))
        {
            found.entry(name.to_owned()).or_default().push(module.clone());
        }
    }
    assert!(found.len() > 250, "only {} types were found: the reader is broken", found.len());
    let wrong = repeated(&found, &SEVERAL_TIMES);
    assert!(wrong.is_empty(), "name each after what it is:\n{}", wrong.join("\n"));
}

#[test]
fn no_two_files_of_the_core_have_one_name() {
    let src = root().join("core/src");
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources(&src) {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let place = path.strip_prefix(&src).unwrap_or(&path).display().to_string();
        if !place.contains("tests") && !is_another_platform(&place) {
            found.entry(name).or_default().push(place);
        }
    }
    let wrong = repeated(&found, &IN_SEVERAL_FOLDERS);
    assert!(wrong.is_empty(), "name each file after its main type:\n{}", wrong.join("\n"));
}
