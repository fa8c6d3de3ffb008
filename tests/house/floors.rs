//! The floors of `core/src/lib.rs`: a module names its own floor or a lower one, never a higher one; nothing below the
//! stores does I/O; the bindings know only what the crate shows. Checked by reading the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Each module of the core and its floor. A file that is not named here stands on the floor of its folder.
const FLOORS: &[(&str, u32)] = &[
    ("base", 0),
    ("time", 0),
    ("serial", 0),
    ("snowflake/layout", 0),
    ("snowflake", 1),
    ("segment", 1),
    ("planner", 1),
    ("well", 1),
    ("store", 2),
    ("keeper", 3),
    ("config", 3),
    ("engine", 3),
    ("api", 4),
    ("binding", 4),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
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

/// The code of a file: without comments, and without tests, which may stand in a file of their own.
fn code(path: &Path) -> String {
    if path.ends_with("tests.rs") {
        return String::new();
    }
    let text = fs::read_to_string(path).expect("a source");
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n")
}

/// The modules a text names by `crate::a::b`.
fn named(code: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest: String =
            code[at + 7..].chars().take_while(|c| c.is_ascii_lowercase() || matches!(c, '_' | ':')).collect();
        let path = rest.trim_end_matches(':').replace("::", "/");
        if !path.is_empty() {
            modules.push(path);
        }
    }
    modules
}

#[test]
fn no_module_names_one_of_a_higher_floor() {
    let src = root().join("core/src");
    let mut wrong = Vec::new();
    let mut checked = 0;
    for path in sources(&src) {
        let module = path.strip_prefix(&src).expect("a core source").with_extension("");
        let module = module.to_string_lossy().trim_end_matches("/mod").to_owned();
        if module == "lib" || module.ends_with("loom") {
            continue;
        }
        let own = floor(&module)
            .unwrap_or_else(|| panic!("`{module}` stands on no floor; add it to tests/house/floors.rs"));
        for other in named(&code(&path)) {
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

#[test]
fn below_the_stores_nothing_reads_clocks_files_or_sockets_or_starts_threads() {
    let src = root().join("core/src");
    for path in sources(&src) {
        let module = path.strip_prefix(&src).expect("a core source").with_extension("");
        let module = module.to_string_lossy().trim_end_matches("/mod").to_owned();
        let does_it_for_others = ["time/system", "base/thread"].contains(&module.as_str());
        if floor(&module).is_none_or(|f| f > 1) || does_it_for_others || module.ends_with("loom") {
            continue;
        }
        let code = code(&path);
        for banned in ["std::net", "std::fs", "SystemTime", "thread::spawn", "thread::Builder", "println!"] {
            assert!(!code.contains(banned), "{module} uses {banned}");
        }
    }
}

#[test]
fn the_bindings_know_only_what_the_core_shows_them() {
    let shown = ["store", "keeper", "planner", "time", "simulation"];
    for folder in ["ffi/src", "bindings/cli/src"] {
        for path in sources(&root().join(folder)) {
            let code = code(&path);
            for hidden in shown {
                for name in ["keymill::", "keymill_core::"] {
                    assert!(
                        !code.contains(&format!("{name}{hidden}")),
                        "{} names {name}{hidden}",
                        path.display()
                    );
                }
            }
        }
    }
}

#[test]
fn every_unsafe_and_every_ordering_says_why() {
    let mut missing = BTreeMap::new();
    for folder in ["core/src", "ffi/src", "bindings/cli/src"] {
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
                    missing.insert(format!("{}:{}", path.display(), i + 1), "SAFETY");
                }
                let orders = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
                if orders.iter().any(|o| line.contains(&format!("Ordering::{o}")))
                    && !above.contains("ordering:")
                {
                    missing.insert(format!("{}:{}", path.display(), i + 1), "ordering");
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
