//! What keymill is built from, against `deny.toml`: licences, sources, one version of each crate. `cargo deny` reads the same file
//! where it can look up advisories; this test needs nothing but cargo.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value as Json;
use toml::Value;

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn policy() -> toml::Table {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    text.parse().expect("deny.toml is TOML")
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|text| text.as_str().expect("a string")).collect()
}

/// What cargo resolved for one system, with all features.
struct Graph {
    packages: BTreeMap<String, Json>,
    /// The packages that each one names, except for its tests.
    edges: BTreeMap<String, Vec<String>>,
    members: Vec<String>,
}

impl Graph {
    fn of(target: &str) -> Graph {
        let output = Command::new(env!("CARGO"))
            .args([
                "metadata",
                "--format-version=1",
                "--locked",
                "--all-features",
                "--filter-platform",
                target,
            ])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all: Json = serde_json::from_slice(&output.stdout).expect("JSON");
        let list = |value: &Json| value.as_array().expect("a list").clone();
        let text = |value: &Json| value.as_str().expect("a string").to_owned();
        let built =
            |dep: &&Json| list(&dep["dep_kinds"]).iter().any(|kind| kind["kind"].as_str() != Some("dev"));
        let edges = list(&all["resolve"]["nodes"])
            .iter()
            .map(|node| {
                let deps = list(&node["deps"]);
                (text(&node["id"]), deps.iter().filter(built).map(|dep| text(&dep["pkg"])).collect())
            })
            .collect();
        let packages =
            list(&all["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
        Graph { packages, edges, members: list(&all["workspace_members"]).iter().map(text).collect() }
    }

    fn name(&self, id: &str) -> &str {
        self.packages[id]["name"].as_str().expect("a name")
    }

    fn version(&self, id: &str) -> &str {
        self.packages[id]["version"].as_str().expect("a version")
    }

    /// Whether this package is what `name@1.2` means.
    fn is(&self, id: &str, spec: &str) -> bool {
        let (name, version) = spec.split_once('@').expect("name@version");
        self.name(id) == name && format!("{}.", self.version(id)).starts_with(&format!("{version}."))
    }

    /// These packages, and all that they are built from.
    fn trees(&self, roots: &[String]) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut next = roots.to_vec();
        while let Some(id) = next.pop() {
            next.extend(self.edges[&id].iter().filter(|dep| !found.contains(*dep)).cloned());
            found.insert(id);
        }
        found
    }
}

fn graphs() -> Vec<Graph> {
    strings(&policy()["graph"]["targets"]).into_iter().map(Graph::of).collect()
}

/// Whether an SPDX expression can be fulfilled by the allowed licences. `/` is an old way to write `OR`.
fn may_be_used(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let answer = any_of(&words, &mut at, allowed);
    assert_eq!(at, words.len(), "`{expression}` is not read to its end");
    answer
}

fn any_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut answer = all_of(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        answer |= all_of(words, at, allowed);
    }
    answer
}

fn all_of(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let mut answer = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        answer &= one(words, at, allowed);
    }
    answer
}

fn one(words: &[&str], at: &mut usize, allowed: &[&str]) -> bool {
    let word = words.get(*at).copied().unwrap_or_default();
    *at += 1;
    if word == "(" {
        let answer = any_of(words, at, allowed);
        *at += 1;
        return answer;
    }
    if words.get(*at) == Some(&"WITH") {
        let exception = words.get(*at + 1).copied().unwrap_or_default();
        *at += 2;
        return allowed.contains(&format!("{word} WITH {exception}").as_str());
    }
    allowed.contains(&word)
}

#[test]
fn an_expression_of_licences_is_read_as_spdx_defines_it() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
    for (expression, fulfilled) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0 OR MIT AND ISC", true),
        ("(GPL-3.0 OR MIT) AND ISC", true),
        ("(GPL-3.0 OR MIT) AND Apache-2.0", false),
    ] {
        assert_eq!(may_be_used(expression, &allowed), fulfilled, "{expression}");
    }
}

#[test]
fn every_crate_comes_from_crates_io_under_a_licence_that_is_allowed() {
    let policy = policy();
    let allowed = strings(&policy["licenses"]["allow"]);
    let mut used: BTreeSet<&str> = BTreeSet::new();
    let mut wrong = BTreeSet::new();
    for graph in graphs() {
        let built = graph.trees(&graph.members);
        for (id, package) in &graph.packages {
            let licence = package["license"].as_str().unwrap_or_default();
            // What only tests use is in no package.
            if built.contains(id) && !may_be_used(licence, &allowed) {
                wrong.insert(format!("{id}: licence `{licence}`"));
            }
            used.extend(allowed.iter().copied().filter(|allowed| licence.contains(allowed)));
            let is_own = graph.members.contains(id) && package["source"].is_null();
            if !is_own && package["source"].as_str() != Some(CRATES_IO) {
                wrong.insert(format!("{id}: source {}", package["source"]));
            }
            for named in package["dependencies"].as_array().expect("a list") {
                if named["req"].as_str() == Some("*") && named["path"].is_null() && graph.members.contains(id)
                {
                    wrong.insert(format!("{id} takes any version of {}", named["name"]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let unused: Vec<_> = allowed.iter().filter(|licence| !used.contains(*licence)).collect();
    assert!(unused.is_empty(), "deny.toml allows {unused:?}, which no crate has");
}

#[test]
fn no_crate_is_built_in_two_versions() {
    let policy = policy();
    let entries = |list: &str| -> Vec<String> {
        let entries = policy["bans"][list].as_array().expect("a list").iter();
        entries.map(|entry| entry["crate"].as_str().expect("`crate`").to_owned()).collect()
    };
    let (skipped, skipped_trees) = (entries("skip"), entries("skip-tree"));
    for graph in graphs() {
        let all = graph.trees(&graph.members);
        let of = |spec: &String| all.iter().find(|id| graph.is(id, spec)).cloned();
        for spec in skipped.iter().chain(&skipped_trees) {
            assert!(
                of(spec).is_some(),
                "deny.toml makes an exception for {spec}, which keymill does not use"
            );
        }
        let roots: Vec<_> = skipped_trees.iter().filter_map(of).collect();
        let excepted = graph.trees(&roots);
        let versions = |is_counted: &dyn Fn(&String) -> bool| {
            let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for id in all.iter().filter(|id| is_counted(id)) {
                versions.entry(graph.name(id)).or_default().insert(graph.version(id));
            }
            versions.retain(|_, versions| versions.len() > 1);
            versions
        };
        let double = versions(&|_| true);
        for spec in &skipped {
            let is_needed = spec.split('@').next().is_some_and(|name| double.contains_key(name));
            assert!(is_needed, "deny.toml makes an exception for {spec}, whose crate has one version");
        }
        let skips = |id: &String| skipped.iter().any(|spec| graph.is(id, spec));
        let left = versions(&|id| !excepted.contains(id) && !skips(id));
        assert!(left.is_empty(), "{left:#?}");
    }
}
