//! What is said in more than one place is the same in each: versions, pins, error codes, option names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use keymill::{Code, Stats, VERSION};
use toml::{Table, Value};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn table(path: &str) -> Table {
    read(path).parse().unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The folders of the workspace's crates.
fn members() -> Vec<String> {
    let members = table("Cargo.toml")["workspace"]["members"].clone();
    members.try_into().expect("a list of folders")
}

/// The names a manifest depends on, in any way.
fn dependencies(manifest: &Table) -> Vec<(String, Value)> {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .filter_map(|kind| manifest.get(*kind)?.as_table())
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn shared_dependencies() -> Table {
    table("Cargo.toml")["workspace"]["dependencies"].as_table().expect("a table").clone()
}

#[test]
fn every_package_has_the_version_of_the_workspace() {
    assert_eq!(table("Cargo.toml")["workspace"]["package"]["version"].as_str(), Some(VERSION));
    assert_eq!(shared_dependencies()["keymill"]["version"].as_str(), Some(VERSION));
    for member in members() {
        let manifest = table(&format!("{member}/Cargo.toml"));
        let inherited = manifest["package"]["version"].get("workspace").and_then(Value::as_bool);
        assert_eq!(inherited, Some(true), "{member}: version.workspace = true");
    }
    let package: serde_json::Value = serde_json::from_str(&read("bindings/node/package.json")).expect("JSON");
    assert_eq!(package["version"].as_str(), Some(VERSION), "bindings/node/package.json");
    let pom = read("bindings/java/java/pom.xml");
    let own = pom.split_once("<artifactId>keymill</artifactId>").expect("its artifact").1;
    let version = own.split_once("<version>").and_then(|(_, rest)| rest.split_once("</version>"));
    assert_eq!(version.expect("its version").0, VERSION, "bindings/java/java/pom.xml");
    // Dynamic: maturin takes the crate's.
    let project = table("bindings/python/pyproject.toml")["project"].clone();
    let dynamic = || project.get("dynamic").is_some_and(|list| list.to_string().contains("version"));
    let same = project.get("version").map_or_else(dynamic, |version| version.as_str() == Some(VERSION));
    assert!(same, "bindings/python/pyproject.toml");
}

#[test]
fn what_must_not_drift_is_pinned_exactly_and_in_one_place() {
    /// A package, and the folders that may use it.
    const HOMES: [(&str, &[&str]); 7] = [
        ("cbindgen", &["ffi"]),
        ("pyo3", &["bindings/python/rust"]),
        ("napi", &["bindings/node/rust"]),
        ("napi-build", &["bindings/node/rust"]),
        ("napi-derive", &["bindings/node/rust"]),
        ("jni", &["bindings/java/rust"]),
        ("mysql", &["core", "tests"]),
    ];
    let shared = shared_dependencies();
    for (name, homes) in HOMES {
        let pin = shared.get(name).unwrap_or_else(|| panic!("{name} stands in the workspace's manifest"));
        let version = pin.as_str().or_else(|| pin.get("version").and_then(Value::as_str));
        assert!(version.is_some_and(|v| v.starts_with('=')), "{name} is pinned with `=`, not {version:?}");
        for member in members() {
            let manifest = table(&format!("{member}/Cargo.toml"));
            if let Some((_, how)) = dependencies(&manifest).iter().find(|(used, _)| used == name) {
                assert!(
                    homes.contains(&member.as_str()),
                    "{name} is used in {member}; its home is {homes:?}"
                );
                assert!(how.get("version").is_none() && !how.is_str(), "{member} pins {name} a second time");
            }
        }
    }
}

#[test]
fn a_dependency_that_two_crates_share_has_one_version() {
    let shared = shared_dependencies();
    for member in members() {
        for (name, how) in dependencies(&table(&format!("{member}/Cargo.toml"))) {
            let inherited = how.get("workspace").and_then(Value::as_bool) == Some(true);
            // `keymill_core = { package = "keymill", path = … }` renames, which a workspace's entry cannot.
            assert!(inherited || how.get("path").is_some(), "{member}: {name}.workspace = true");
            assert!(!inherited || shared.contains_key(&name), "{member}: {name} is not in the workspace");
        }
    }
}

/// The codes and their numbers as the surface fixes them for all languages and for ever.
const CODES: &str = "OK 0 · INVALID_ARGUMENT 1 · INVALID_CONFIG 2 · CLOSED 3 · DEADLINE 4 · NOT_READY 5 · EXHAUSTED 6 · \
STORE_UNAVAILABLE 7 · STORE_REFUSED 8 · STORE_WENT_BACKWARDS 9 · STORE_UNSAFE 10 · NUMBER_OVERFLOW 11 · CLOCK_BEHIND 12 · \
LEASE_LOST 13 · NO_WORKER_FREE 14 · LAYOUT_ENDED 15 · FORKED 16 · FORGED 17 · BUFFER_TOO_SMALL 18 · INTERNAL 19";

/// The crates that `deny.toml` names: exceptions by `crate = "NAME@VERSION"`, reasons in back quotes.
#[test]
fn a_crate_that_the_rules_for_crates_name_is_in_the_lock_file() {
    let (deny, lock) = (read("deny.toml"), read("Cargo.lock"));
    let packages: Vec<(&str, &str)> = lock
        .split("[[package]]")
        .skip(1)
        .map(|package| {
            let value = |key: &str| package.split(key).nth(1).and_then(|rest| rest.split('"').next());
            (value("\nname = \"").expect("a name"), value("\nversion = \"").expect("a version"))
        })
        .collect();
    let exceptions = deny.split("crate = \"").skip(1).filter_map(|rest| rest.split('"').next());
    let exceptions: Vec<_> = exceptions.filter_map(|named| named.split_once('@')).collect();
    assert!(exceptions.len() > 2, "{exceptions:?}: the reader is broken");
    let comments = deny.lines().filter(|line| line.starts_with('#'));
    let reasons =
        comments.flat_map(|line| line.split('`').skip(1).step_by(2)).filter(|word| !word.contains('/'));
    for (name, version) in exceptions.into_iter().chain(reasons.map(|name| (name, ""))) {
        let is_there = packages.iter().any(|(package, has)| *package == name && has.starts_with(version));
        assert!(is_there, "deny.toml names {name} {version}, which Cargo.lock does not have");
    }
}

#[test]
fn the_codes_are_those_of_the_surface_in_its_order() {
    let codes = Code::ALL.iter().map(|code| format!("{} {}", code.name(), code.number()));
    // Success has the number 0 and is no error, so it is not in the core's list.
    let codes: Vec<_> = std::iter::once("OK 0".to_owned()).chain(codes).collect();
    assert_eq!(codes.join(" · "), CODES);
}

/// The bindings' own sources: not their tests, benches and what was built.
fn binding_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    const ENDS: [&str; 7] = ["java", "py", "pyi", "ts", "mts", "js", "mjs"];
    const NOT: [&str; 8] =
        ["tests", "test", "target", "node_modules", "dist", "benches", "bench", "examples"];
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !NOT.contains(&name.as_str()) && !name.starts_with('.') {
            binding_sources(&path, found);
        } else if path.extension().is_some_and(|end| ENDS.iter().any(|known| end == *known)) {
            found.push(path);
        }
    }
}

#[test]
fn a_binding_that_lists_codes_lists_them_all() {
    /// So many names are a list, not a mention.
    const A_LIST: usize = 12;
    let mut files = Vec::new();
    binding_sources(&root().join("bindings"), &mut files);
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let missing: Vec<_> = Code::ALL.iter().filter(|code| !words.contains(&code.name())).collect();
        let named = Code::ALL.len() - missing.len();
        assert!(named < A_LIST || missing.is_empty(), "{} lacks {missing:?}", file.display());
    }
}

/// `runwaySeconds` of `runway_seconds`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |so_far, word| so_far + &word[..1].to_uppercase() + &word[1..])
}

/// The names that a type of a language declares: the last word before `end` on each line between `begin` and the next `close`.
fn declared(file: &str, begin: &str, close: &str, end: &[char]) -> Vec<String> {
    let text = read(file);
    let body = text.split_once(begin).and_then(|(_, rest)| rest.split_once(close));
    let body = body.unwrap_or_else(|| panic!("{file} has no `{begin}`")).0;
    let code = body.lines().map(str::trim).filter(|line| !line.starts_with(['/', '*']));
    code.filter_map(|line| line.split_once(end)?.0.split_whitespace().last().map(str::to_owned)).collect()
}

#[test]
fn a_type_with_a_sources_figures_has_all_of_them() {
    let stats = Stats::default();
    let names: Vec<String> = stats.fields().map(|figure| figure.name.to_owned()).collect();
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    let python =
        declared("bindings/python/python/keymill/__init__.pyi", "class _Stats(TypedDict):\n", "\n\n", &[':']);
    assert_eq!(python, names, "__init__.pyi");
    let node = declared("bindings/node/ts/native.ts", "interface SourceStats {\n", "\n}", &['?', ':']);
    assert_eq!(node, names.iter().map(|name| camel(name)).collect::<Vec<_>>(), "native.ts");
    // In C the caller has named the source, and the struct grew at its end.
    let in_c = ["struct_size", "present"].map(str::to_owned).into_iter();
    let in_c = in_c.chain(names.iter().filter(|name| !["source", "spec"].contains(&name.as_str())).cloned());
    let in_c = sorted(in_c.collect());
    let header = read("include/keymill.h");
    let front = header.split_once("} km_stats;").expect("km_stats").0;
    let fields = front.rsplit_once("typedef struct {").expect("a struct").1.lines();
    let fields = fields.filter_map(|line| line.strip_suffix(';')?.split_whitespace().last());
    let fields = fields.map(|field| field.split('[').next().unwrap_or_default().to_owned());
    assert_eq!(sorted(fields.collect()), in_c, "keymill.h");
    let filled = declared("ffi/src/source.rs", "self.put(&km_stats {\n", "\n        });", &[':']);
    assert_eq!(sorted(filled), in_c, "ffi/src/source.rs");
    let java = read("bindings/java/java/src/main/java/io/keymill/Stats.java");
    for name in names {
        assert!(java.contains(&format!("(\"{name}\")")), "Stats.java does not show `{name}`");
    }
}

/// What the program's surroundings tell keymill and holds no secret.
const NO_SECRETS: [&str; 4] = ["KEYMILL_LIBRARY", "KEYMILL_GENE", "source", "idWorker"];

/// The words of `text` that stand between `begin` and `end`.
fn words_between<'t>(text: &'t str, begin: &str, end: char) -> Vec<&'t str> {
    text.split(begin).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0)).collect()
}

#[test]
fn the_endpoints_of_boot_mask_every_variable_and_property_but_those_that_hold_no_secret() {
    const STARTER: &str = "bindings/java/frameworks/spring-boot-starter/src/main/java/io/keymill/spring/boot";
    let guard = read(&format!("{STARTER}/KeymillGuardAutoConfiguration.java"));
    let list = guard.split_once("SECRETS = ").and_then(|(_, rest)| rest.split_once(';')).expect("the list").0;
    let masked = words_between(list, "\"KEYMILL_", '"');
    let mut files = super::floors::sources(&root().join("core/src"));
    binding_sources(&root().join("bindings"), &mut files);
    let mut told = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let names = words_between(&text, "\"KEYMILL_", '"').into_iter().filter(|name| is_name(name));
        told.extend(names.filter(|name| !name.starts_with("TEST_")).map(|name| format!("KEYMILL_{name}")));
    }
    let properties = read(&format!("{STARTER}/KeymillProperties.java"));
    for declared in words_between(&properties, "private String ", ';') {
        let name = declared.split(' ').next().unwrap_or_default();
        told.push(if name == "config" { "KEYMILL_CONFIG".to_owned() } else { name.to_owned() });
    }
    assert!(told.len() > masked.len() && masked.len() >= 3, "{told:?}, {masked:?}");
    let is_masked = |name: &str| name.strip_prefix("KEYMILL_").is_some_and(|name| masked.contains(&name));
    told.retain(|name| !is_masked(name) && !NO_SECRETS.contains(&name.as_str()));
    assert!(told.is_empty(), "these may hold a secret, and Boot's endpoints show them: {told:?}");
}

#[test]
fn every_package_has_the_public_address_of_the_workspace() {
    let check = Command::new(root().join("ci/package/address")).arg("check").output().expect("python3");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}

/// The folders whose packages npm installs.
fn locked_by_npm() -> Vec<PathBuf> {
    let folders = fs::read_dir(root().join("ci/npm")).expect("ci/npm");
    let mut folders: Vec<_> = folders.map(|entry| entry.expect("a folder").path()).collect();
    folders.push(root().join("bindings/node"));
    folders
}

#[test]
fn a_lock_file_of_npm_has_the_hash_of_each_package_and_names_no_registry() {
    for folder in locked_by_npm() {
        let file = folder.join("package-lock.json");
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let lock: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        for (name, package) in lock["packages"].as_object().expect("packages") {
            assert!(package.get("resolved").is_none(), "{}: `{name}` names a registry", file.display());
            assert!(
                name.is_empty() || package["integrity"].is_string(),
                "{}: `{name}` has no hash",
                file.display()
            );
        }
    }
}

#[test]
fn what_pip_installs_for_the_scripts_has_hashes() {
    for entry in fs::read_dir(root().join("ci/requirements")).expect("ci/requirements") {
        let file = entry.expect("a file").path();
        if file.extension().is_none_or(|kind| kind != "txt") {
            continue;
        }
        let text = fs::read_to_string(&file).expect("text");
        let packages = text.lines().filter(|line| line.contains("==")).count();
        let hashed = text.lines().collect::<Vec<_>>();
        let hashed =
            hashed.windows(2).filter(|two| two[0].contains("==") && two[1].contains("--hash=sha256:"));
        assert_eq!(hashed.count(), packages, "{}", file.display());
        assert!(packages > 0 && !text.contains("://"), "{}", file.display());
    }
}
