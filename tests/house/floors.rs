//! The floors of `core/src/lib.rs`: a module names its own floor or a lower one, never a higher one; rooms, the folders of the
//! core, name each other in no circle; nothing below the stores does I/O; the bindings use only what the core shows them.
//! Checked by reading the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of the core, which are its folders, and their floors.
const FLOORS: &[(&str, u32)] = &[
    ("error", 0),
    ("process", 0),
    ("system", 0),
    ("time", 0),
    ("gene", 0),
    ("order_number", 0),
    ("document", 0),
    ("serial", 0),
    ("text_form", 0),
    ("layout", 0),
    ("request", 0),
    ("spec", 0),
    ("refill", 0),
    ("callers", 1),
    ("segment", 1),
    ("snowflake", 1),
    ("bank", 1),
    ("router", 1),
    ("moves", 1),
    ("planner", 1),
    ("store", 2),
    ("monitoring", 2),
    ("keeper", 3),
    ("config", 3),
    ("engine", 3),
    ("api", 4),
    ("rows", 4),
    ("shards", 4),
    ("binding", 4),
];

/// The Rust sources of the bindings, the C library among them.
const BINDINGS: [&str; 5] = [
    "ffi/src",
    "bindings/cli/src",
    "bindings/java/rust/src",
    "bindings/node/rust/src",
    "bindings/python/rust/src",
];

/// The hidden module of the core that exists for bindings.
const FOR_BINDINGS: &str = "binding";

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A path below the root, which may itself lie below a folder called `src` or `tests`.
pub(super) fn below_root(path: &Path) -> &Path {
    path.strip_prefix(root()).expect("a path of this repository")
}

pub(super) fn sources(folder: &Path) -> Vec<PathBuf> {
    files(folder, "rs")
}

/// The files of a folder and of those in it whose names end so.
pub(super) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|end| end == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The floor of a module path such as `keeper/executor` or `store/mysql/dialect`.
fn floor(module: &str) -> Option<u32> {
    let mut path = module;
    loop {
        if let Some((_, floor)) = FLOORS.iter().find(|(name, _)| *name == path) {
            return Some(*floor);
        }
        path = path.rsplit_once('/')?.0;
    }
}

/// The module of a file in `src`: `keeper/plan` of `keeper/plan.rs`, `store` of `store/mod.rs`.
pub(super) fn module(src: &Path, file: &Path) -> String {
    let module = file.strip_prefix(src).expect("a core source").with_extension("");
    module.to_string_lossy().trim_end_matches("/mod").to_owned()
}

/// The code of a file: without comments, and without tests, which may be in files and folders of their own.
pub(super) fn code(path: &Path) -> String {
    let is_a_test =
        |part: &std::ffi::OsStr| part.to_string_lossy().trim_end_matches(".rs").ends_with("tests");
    if below_root(path).components().any(|part| is_a_test(part.as_os_str())) {
        return String::new();
    }
    let text = fs::read_to_string(path).expect("a source");
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n")
}

/// The paths that begin at `text`, which follows a `::`: one, or one for each name in `{…}`.
fn tree(text: &str) -> Vec<Vec<String>> {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let (mut depth, mut from, mut paths) = (0, 0, Vec::new());
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth > 0 => depth -= 1,
                ',' | '}' if depth == 0 => {
                    paths.extend(tree(&group[from..at]));
                    from = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                _ => {}
            }
        }
        return paths;
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match rest.strip_prefix("::") {
        _ if name.is_empty() => Vec::new(),
        Some(rest) => {
            let mut paths = tree(rest);
            // Generic arguments or a glob follow.
            if paths.is_empty() {
                paths.push(Vec::new());
            }
            for path in &mut paths {
                path.insert(0, name.to_owned());
            }
            paths
        }
        None => vec![vec![name.to_owned()]],
    }
}

/// Every path of the code that begins with `start`, without it.
fn paths(code: &str, start: &str) -> Vec<Vec<String>> {
    let start = format!("{start}::");
    let begins =
        |at: &usize| !code[..*at].ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
    code.match_indices(&start)
        .map(|(at, _)| at)
        .filter(begins)
        .flat_map(|at| tree(&code[at + start.len()..]))
        .collect()
}

/// The modules that the code of `module` names: by `crate::a::b`, by `super::a`, in groups or one by one.
fn named(module: &str, code: &str) -> Vec<String> {
    let mut named = paths(code, "crate");
    for path in paths(code, "super") {
        // `super` of a file `a/b.rs` and of a folder `a/b/mod.rs` is `a`.
        let above = 1 + path.iter().take_while(|name| *name == "super").count();
        let home: Vec<&str> = module.split('/').collect();
        let kept = home.len().saturating_sub(above);
        let from_home = home[..kept].iter().map(|name| (*name).to_owned());
        named.push(from_home.chain(path[above - 1..].iter().cloned()).collect());
    }
    named
        .into_iter()
        .map(|path| {
            let modules =
                path.into_iter().take_while(|name| !name.starts_with(|c: char| c.is_ascii_uppercase()));
            modules.collect::<Vec<_>>().join("/")
        })
        .filter(|path| !path.is_empty())
        .collect()
}

#[test]
fn grouped_paths_are_read_name_by_name() {
    let code = "use crate::{api::{Mill, source::Source}, keeper::plan::*, error};\nuse super::super::time;\nlet x = super::own::<u8>();";
    assert_eq!(named("a/b/c", code), ["api", "api/source", "keeper/plan", "error", "a/time", "a/b/own"]);
}

#[test]
fn no_module_names_one_of_a_higher_floor() {
    let src = root().join("core/src");
    let mut wrong = Vec::new();
    let mut checked = 0;
    for path in sources(&src) {
        let module = module(&src, &path);
        if module == "lib" || module.ends_with("loom") {
            continue;
        }
        let own = floor(&module)
            .unwrap_or_else(|| panic!("`{module}` stands on no floor; add it to tests/house/floors.rs"));
        for other in named(&module, &code(&path)) {
            checked += 1;
            match floor(&other) {
                Some(there) if there <= own => {}
                Some(there) => wrong.push(format!("{module} (floor {own}) names {other} (floor {there})")),
                None => wrong.push(format!("{module} names {other}, which stands on no floor")),
            }
        }
    }
    assert!(checked > 100, "only {checked} names were found: the reader is broken");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rooms that stand in circles, with those that they name: rooms that name none of the others, or that none of the others
/// names, are left out until no further one is.
fn in_circles(mut names: BTreeMap<String, BTreeSet<String>>) -> BTreeMap<String, BTreeSet<String>> {
    loop {
        let is_named = |room: &String| names.values().any(|others| others.contains(room));
        let is_in_none = |(room, others): (&String, &BTreeSet<String>)| {
            (others.is_empty() || !is_named(room)).then(|| room.clone())
        };
        let Some(in_none) = names.iter().find_map(is_in_none) else { return names };
        names.remove(&in_none);
        for others in names.values_mut() {
            others.remove(&in_none);
        }
    }
}

#[test]
fn circles_are_found_and_ways_down_are_none() {
    let house = |arrows: &[(&str, &str)]| {
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in arrows {
            names.entry((*to).to_owned()).or_default();
            names.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        in_circles(names).into_keys().collect::<Vec<_>>()
    };
    assert!(house(&[("a", "b"), ("b", "c"), ("a", "c")]).is_empty());
    assert_eq!(house(&[("a", "b"), ("b", "a"), ("b", "c")]), ["a", "b"]);
    assert_eq!(house(&[("top", "a"), ("a", "b"), ("b", "c"), ("c", "a")]), ["a", "b", "c"]);
}

#[test]
fn no_two_rooms_name_each_other_directly_or_by_way_of_others() {
    let src = root().join("core/src");
    let room = |module: &str| module.split('/').next().unwrap_or_default().to_owned();
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut files: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for path in sources(&src) {
        let module = module(&src, &path);
        if module == "lib" || module.ends_with("loom") {
            continue;
        }
        let others = names.entry(room(&module)).or_default();
        for other in named(&module, &code(&path)).iter().map(|other| room(other)) {
            if other != room(&module) {
                files.entry((room(&module), other.clone())).or_default().insert(module.clone());
                others.insert(other);
            }
        }
    }
    assert!(files.len() > 50, "only {} arrows between rooms were found: the reader is broken", files.len());
    let mut wrong = Vec::new();
    for (from, others) in in_circles(names) {
        for to in others {
            let by = files.remove(&(from.clone(), to.clone())).unwrap_or_default();
            wrong.push(format!("{from} names {to} in {}", Vec::from_iter(by).join(", ")));
        }
    }
    assert!(wrong.is_empty(), "rooms in a circle:\n{}", wrong.join("\n"));
}

#[test]
fn every_floor_has_its_module() {
    for (module, _) in FLOORS {
        let file = root().join("core/src").join(module);
        assert!(
            file.is_dir() || file.with_extension("rs").is_file(),
            "there is no `{module}`: take it out of the floors"
        );
    }
}

#[test]
fn below_the_stores_nothing_reads_clocks_files_or_sockets_or_starts_threads() {
    let src = root().join("core/src");
    for path in sources(&src) {
        let module = module(&src, &path);
        let does_it_for_others = module.split('/').next() == Some("system") || module == "process/thread";
        if floor(&module).is_none_or(|f| f > 1) || does_it_for_others || module.ends_with("loom") {
            continue;
        }
        let code = code(&path);
        for banned in ["std::net", "std::fs", "SystemTime", "thread::spawn", "thread::Builder", "println!"] {
            assert!(!code.contains(banned), "{module} uses {banned}");
        }
    }
}

/// Sources outside `core/src/system` that may ask which system they are compiled for, and why.
const ASK_FOR_THE_SYSTEM: [(&str, &str); 1] = [(
    "bindings/python/rust/src/notifier.rs",
    "a loop of asyncio waits for a pair of sockets, which Windows does not have; it waits on a thread there",
)];

/// What only one system has.
const OF_ONE_SYSTEM: [&str; 8] = [
    "cfg(unix",
    "cfg(windows",
    "cfg(not(unix",
    "cfg(not(windows",
    "target_os",
    "std::os::",
    "libc::",
    "windows_sys",
];

/// Nothing above the room asks for the system, so that a platform is added in one folder.
#[test]
fn only_the_room_of_the_system_knows_the_system() {
    let mut found = Vec::new();
    for folder in BINDINGS.into_iter().chain(["core/src"]) {
        for path in sources(&root().join(folder)) {
            let shown = below_root(&path).display().to_string();
            let asks = ASK_FOR_THE_SYSTEM.iter().any(|(file, _)| *file == shown);
            if shown.starts_with("core/src/system/") || asks {
                continue;
            }
            let code = code(&path);
            let known = OF_ONE_SYSTEM.iter().filter(|word| code.contains(**word));
            found.extend(known.map(|word| format!("{shown} says `{word}`: ask `core/src/system`")));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (file, _) in ASK_FOR_THE_SYSTEM {
        let text = code(&root().join(file));
        assert!(OF_ONE_SYSTEM.iter().any(|word| text.contains(word)), "{file}: take its row out");
    }
}

/// The names that a module of the room has for the modules above.
fn offered(path: &Path) -> BTreeSet<String> {
    let code = code(path);
    let after = |word: &'static str| code.match_indices(word).map(move |(at, _)| at + word.len());
    let names = [
        "pub(crate) fn ",
        "pub(crate) unsafe fn ",
        "pub(crate) async fn ",
        "pub(crate) struct ",
        "pub(crate) type ",
    ];
    let mut offered: BTreeSet<String> = names
        .into_iter()
        .flat_map(after)
        .map(|at| code[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
        .collect();
    for (at, start) in code.match_indices("pub(crate) use super::own::") {
        let line = code[at + start.len()..].split(';').next().unwrap_or_default();
        offered.extend(tree(line).into_iter().filter_map(|path| path.last().cloned()));
    }
    offered
}

/// The compiler misses a function only on the system that has none.
#[test]
fn every_platform_has_the_same_modules_with_the_same_functions() {
    let room = root().join("core/src/system");
    let modules = |platform: &str| -> BTreeMap<String, BTreeSet<String>> {
        let folder = room.join(platform);
        let files = fs::read_dir(&folder).expect("a platform").flatten().map(|entry| entry.path());
        let files =
            files.filter(|path| path.extension().is_some_and(|e| e == "rs") && !path.ends_with("mod.rs"));
        files
            .map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), offered(&path)))
            .collect()
    };
    let (mut unix, windows) = (modules("unix"), modules("windows"));
    let descriptors = |system: &str| offered(&room.join(format!("{system}/sqlite_descriptors.rs")));
    unix.insert("sqlite_descriptors".to_owned(), descriptors("unix/linux"));
    assert!(unix.len() > 8, "only {} modules were found: the reader is broken", unix.len());
    assert_eq!(unix, windows);
    let own = |system: &str| offered(&room.join(format!("unix/{system}/mod.rs")));
    assert_eq!(own("linux"), own("macos"));
    assert_eq!(descriptors("unix/linux"), descriptors("unix/macos"));
}

/// The public modules of the core that its documentation hides.
fn hidden() -> Vec<String> {
    let lib = fs::read_to_string(root().join("core/src/lib.rs")).expect("the core's root");
    let mut hidden = Vec::new();
    let mut is_hidden = false;
    for line in lib.lines() {
        if let Some(module) = line.strip_prefix("pub mod ").filter(|_| is_hidden) {
            hidden.push(module.trim_end_matches([';', '{', ' ']).to_owned());
        }
        is_hidden = line == "#[doc(hidden)]" || is_hidden && line.starts_with("#[");
    }
    hidden
}

#[test]
fn only_tests_and_benches_build_the_core_with_its_internals() {
    for member in fs::read_to_string(root().join("Cargo.toml")).expect("a manifest").split('"') {
        let Ok(manifest) = fs::read_to_string(root().join(member).join("Cargo.toml")) else { continue };
        let (before_tests, _) = manifest.split_once("[dev-dependencies]").unwrap_or((&manifest, ""));
        let asks = before_tests.contains("\"internals\"");
        assert_eq!(asks, member == "tests", "{member}");
    }
}

#[test]
fn the_bindings_know_only_what_the_core_shows_them() {
    let hidden = hidden();
    for internal in ["keeper", "planner", "simulation", "store", "time"] {
        assert!(
            hidden.contains(&internal.to_owned()),
            "{internal} is not in {hidden:?}: the reader is broken"
        );
    }
    for folder in BINDINGS {
        let mut checked = 0;
        for path in sources(&root().join(folder)) {
            let code = code(&path);
            for named in ["keymill", "keymill_core"].iter().flat_map(|name| paths(&code, name)) {
                checked += 1;
                let allowed = named[0] == FOR_BINDINGS || !hidden.contains(&named[0]);
                assert!(allowed, "{} names {}", below_root(&path).display(), named.join("::"));
            }
        }
        assert!(checked > 0, "no name was found in {folder}: the reader is broken");
    }
}

#[test]
fn every_unsafe_and_every_ordering_says_why() {
    let mut missing = BTreeMap::new();
    for folder in BINDINGS.into_iter().chain(["core/src"]) {
        for path in sources(&root().join(folder)) {
            let text = fs::read_to_string(&path).expect("a source");
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            if path.ends_with("loom.rs") {
                continue;
            }
            let lines: Vec<&str> = text.lines().collect();
            for (i, line) in lines.iter().enumerate() {
                if line.trim_start().starts_with("//")
                    || line.trim_start().starts_with("use ")
                    || line.contains("pub(crate) use")
                {
                    continue;
                }
                let above = lines[i.saturating_sub(6)..=i].join("\n");
                let is_unsafe = line.contains("unsafe {") || line.contains("unsafe impl");
                if is_unsafe && !above.contains("SAFETY") {
                    missing.insert(format!("{}:{}", below_root(&path).display(), i + 1), "SAFETY");
                }
                let orders = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
                if orders.iter().any(|o| line.contains(&format!("Ordering::{o}")))
                    && !above.contains("ordering:")
                {
                    missing.insert(format!("{}:{}", below_root(&path).display(), i + 1), "ordering");
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Only `postgres_wire.rs` speaks to PostgreSQL over keymill's connections, and it sends nothing before the search path is pinned: a statement that another file
/// sent would look names up along the login's path, where other roles plant their own.
#[test]
fn every_statement_for_postgresql_goes_through_the_pinned_wire() {
    let folder = root().join("core/src");
    let sends = [
        "simple_query",
        "query_typed",
        "execute_typed",
        "prepare_typed",
        "batch_execute",
        "query_raw",
        "copy_in",
        "copy_out",
    ];
    let senders: Vec<_> = sources(&folder)
        .into_iter()
        .filter(|path| {
            code(path).split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| sends.contains(&word))
        })
        .map(|path| module(&folder, &path))
        .collect();
    // The connections of `Shards` are the program's own.
    assert_eq!(senders, ["shards/postgres_client", "store/postgres/postgres_wire"]);
    let wire = code(&folder.join("store/postgres/postgres_wire.rs"));
    assert!(wire.contains("    fn ask<"), "the way to the driver is private to the wire");
}

/// The file that reads TOML and JSON, with limits of length and depth.
const READER: &str = "core/src/document.rs";

/// What reads another format without that file, by the ending of the sources' names.
const PARSERS: &[(&str, &[&str])] = &[
    (
        "rs",
        &[
            "toml::from_",
            "toml::de",
            "toml::Table",
            "toml::Value",
            "use toml",
            "toml_parser::",
            "toml_edit",
            "serde_json::from_",
            "serde_json::Deserializer",
            "serde_json::de",
            "parse::<Value>",
            "yaml",
            "quick_xml",
            "roxmltree",
            "bincode",
            "ciborium",
        ],
    ),
    ("py", &["import json", "from json", "tomllib", "yaml", "ElementTree", "pickle", "literal_eval"]),
    ("ts", &["JSON.parse", "\"yaml\"", "\"toml\"", "eval("]),
    (
        "java",
        &[
            "readTree(",
            "readValue(",
            "parseMap(",
            "DocumentBuilder",
            "SAXParser",
            "XMLInputFactory",
            ".readObject(",
            "Yaml(",
        ],
    ),
];

/// Files that read a text that no other program and no other login writes, with the reason.
const OWN_TEXTS: &[(&str, &str)] = &[(
    "bindings/cli/src/steps.rs",
    "the scenario that its caller writes to standard input; `serde_json` reads 128 levels",
)];

/// The uses of parsers in the sources that are shipped.
fn parsers_in(folder: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{folder}/{name}");
        if entry.path().is_dir() {
            let skipped = ["node_modules", "target", "test", "tests", "benches", "dist", "examples"];
            if !skipped.contains(&&*name) && !name.starts_with('.') {
                parsers_in(&path, found);
            }
            continue;
        }
        let ending = name.rsplit('.').next().unwrap_or_default();
        let Some((_, parsers)) = PARSERS.iter().find(|(format, _)| *format == ending) else { continue };
        if path == READER || OWN_TEXTS.iter().any(|(own, _)| *own == path) {
            continue;
        }
        let text = if ending == "rs" {
            code(&entry.path())
        } else {
            fs::read_to_string(entry.path()).expect("a source")
        };
        for parser in parsers.iter().filter(|parser| text.contains(**parser)) {
            found.push(format!("{path} uses `{parser}`: read the text with `{READER}`"));
        }
    }
}

#[test]
fn texts_of_others_pass_the_one_reader_with_its_limits() {
    let mut found = Vec::new();
    for folder in ["core/src", "ffi/src", "bindings"] {
        parsers_in(folder, &mut found);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    for (own, _) in OWN_TEXTS {
        assert!(root().join(own).exists(), "{own} is gone: remove its row");
    }
}
