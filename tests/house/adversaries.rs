//! Every feature meets every adversary: `tests/adversaries/features` has a file for each feature, which names the tests that prove it,
//! or says why it cannot happen. Nothing that a user can write or call, and no conversation with a store, is outside of them. The
//! tables of `docs/guarantees.md` are made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use keymill::options;
use keymill::store::Scheme;

use super::floors::files;
use super::proofs::Proofs;
use super::verbs;

/// The adversaries, what keymill does, and how many gaps there may be.
const TABLE: &str = "tests/adversaries/adversaries.toml";

/// A file for each feature, called after it.
const FEATURES: &str = "tests/adversaries/features";

/// Every `pub trait` below this folder is a conversation with a store.
const STORES: &str = "core/src/store";

/// Public traits of that folder that are none.
const NO_STORES: [&str; 2] = ["AsRows", "AsSlots"];

/// The `CREATE` statements, a file for each table and database.
const TABLES: &str = "core/src/store/sql/ddl";

pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What belongs to a row: the key of the list, and every member that there is.
type Covered = BTreeMap<&'static str, BTreeSet<String>>;

/// One thing that a cell says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    Test(String),
    /// The sentence why it cannot happen.
    Cannot(String),
    /// The cell of this feature proves it, and the sentence why.
    As(String, String),
    /// The sentence what is not promised, which the documents say too.
    NotPromised(String),
    /// The sentence what no test proves yet.
    NotTested(String),
}

impl Proof {
    pub(super) fn read(text: &str) -> Proof {
        let sentence = |rest: &str| rest.trim().to_owned();
        if let Some(rest) = text.strip_prefix("cannot: ") {
            return Proof::Cannot(sentence(rest));
        }
        if let Some(rest) = text.strip_prefix("not promised: ") {
            return Proof::NotPromised(sentence(rest));
        }
        if let Some(rest) = text.strip_prefix("not tested: ") {
            return Proof::NotTested(sentence(rest));
        }
        match text.strip_prefix("as ").and_then(|rest| rest.split_once(": ")) {
            Some((feature, why)) => Proof::As(feature.to_owned(), sentence(why)),
            None => Proof::Test(text.to_owned()),
        }
    }

    /// What it says to a reader, if it is a sentence.
    fn sentence(&self) -> Option<&str> {
        match self {
            Proof::Test(_) => None,
            Proof::Cannot(text) | Proof::As(_, text) | Proof::NotPromised(text) | Proof::NotTested(text) => {
                Some(text)
            }
        }
    }
}

#[derive(Debug)]
struct Feature {
    name: String,
    /// What it is called in the documents.
    title: String,
    covers: BTreeMap<String, Vec<String>>,
    cells: BTreeMap<String, Vec<Proof>>,
}

impl Feature {
    fn tests(&self, adversary: &str) -> usize {
        let cell = self.cells.get(adversary).map_or(&[][..], Vec::as_slice);
        cell.iter().filter(|proof| matches!(proof, Proof::Test(_))).count()
    }
}

/// What happens, and what keymill does: a line of the documents.
#[derive(Debug)]
struct Fault {
    happens: String,
    does: String,
    by: Vec<String>,
}

#[derive(Debug)]
struct Table {
    /// How many gaps there may be.
    not_tested: usize,
    /// The adversaries, with what they do.
    adversaries: Vec<(String, String)>,
    faults: Vec<Fault>,
    features: Vec<Feature>,
}

pub(super) fn texts(value: &toml::Value) -> Vec<String> {
    match value {
        toml::Value::String(text) => vec![text.clone()],
        toml::Value::Array(all) => all.iter().flat_map(texts).collect(),
        other => panic!("`{other}` is neither a text nor a list of texts"),
    }
}

impl Table {
    fn read(text: &str) -> Table {
        let parsed: toml::Table = text.parse().unwrap_or_else(|e| panic!("tests/adversaries: {e}"));
        let table =
            |name: &str| parsed.get(name).and_then(|value| value.as_table()).cloned().unwrap_or_default();
        // In the order of the text: the parser sorts by name.
        let in_order = |section: &str, names: &toml::Table| {
            let mut names: Vec<_> = names.keys().cloned().collect();
            names.sort_by_key(|name| {
                [format!("[{section}.{name}]"), format!("\n{name} =")]
                    .iter()
                    .filter_map(|head| text.find(head))
                    .min()
            });
            names
        };
        let adversaries = table("adversary");
        let described = |name: &String| (name.clone(), texts(&adversaries[name]).concat());
        let features = table("feature");
        let covered: BTreeSet<&str> = everything_that_is_covered();
        let features = in_order("feature", &features).into_iter().map(|name| {
            let row = features[&name].as_table().unwrap_or_else(|| panic!("feature.{name} is no table"));
            let (mut covers, mut cells) = (BTreeMap::new(), BTreeMap::new());
            for (key, value) in row.iter().filter(|(key, _)| *key != "title") {
                if covered.contains(key.as_str()) {
                    covers.insert(key.clone(), texts(value));
                } else {
                    cells.insert(key.clone(), texts(value).iter().map(|text| Proof::read(text)).collect());
                }
            }
            let title =
                row.get("title").map_or_else(|| name.replace('_', " "), |title| texts(title).concat());
            Feature { name, title, covers, cells }
        });
        let faults = parsed.get("fault").and_then(|faults| faults.as_array()).cloned().unwrap_or_default();
        let faults = faults.iter().map(|fault| Fault {
            happens: texts(&fault["happens"]).concat(),
            does: texts(&fault["keymill"]).concat(),
            by: texts(&fault["by"]),
        });
        Table {
            not_tested: parsed["not_tested"].as_integer().and_then(|n| n.try_into().ok()).expect("a number"),
            adversaries: in_order("adversary", &adversaries).iter().map(described).collect(),
            faults: faults.collect(),
            features: features.collect(),
        }
    }

    fn feature(&self, name: &str) -> Option<&Feature> {
        self.features.iter().find(|feature| feature.name == name)
    }

    /// The sentences of one kind, with the feature and the adversary.
    fn sentences(&self, wanted: impl Fn(&Proof) -> bool) -> Vec<(&Feature, &str, &str)> {
        let mut found = Vec::new();
        for feature in &self.features {
            for (adversary, _) in &self.adversaries {
                let cell = feature.cells.get(adversary).into_iter().flatten();
                let sentences = cell.filter(|proof| wanted(proof)).filter_map(Proof::sentence);
                found.extend(sentences.map(|what| (feature, adversary.as_str(), what)));
            }
        }
        found
    }

    /// What no test proves yet.
    fn gaps(&self) -> Vec<(&Feature, &str, &str)> {
        self.sentences(|proof| matches!(proof, Proof::NotTested(_)))
    }

    /// Everything that is wrong with the table; `check` says of a test why it is none.
    fn wrong(&self, covered: &Covered, check: &dyn Fn(&str) -> Result<(), String>) -> Vec<String> {
        let mut wrong = Vec::new();
        let known: BTreeSet<&str> = self.adversaries.iter().map(|(name, _)| name.as_str()).collect();
        for feature in &self.features {
            for (adversary, _) in &self.adversaries {
                match feature.cells.get(adversary) {
                    Some(cell) if !cell.is_empty() => self.cell(feature, adversary, cell, check, &mut wrong),
                    _ => wrong.push(format!("{}.{adversary} is empty", feature.name)),
                }
            }
            let unknown = feature.cells.keys().filter(|name| !known.contains(name.as_str()));
            wrong.extend(unknown.map(|name| format!("{}.{name}: there is no such adversary", feature.name)));
        }
        self.in_rows(covered, &mut wrong);
        for fault in &self.faults {
            let unknown = fault.by.iter().filter(|name| !known.contains(name.as_str()));
            wrong.extend(unknown.map(|name| format!("`{}`: there is no adversary `{name}`", fault.happens)));
        }
        for (adversary, _) in &self.adversaries {
            if !self.faults.iter().any(|fault| fault.by.contains(adversary)) {
                wrong.push(format!("no fault is by `{adversary}`: say what keymill does"));
            }
        }
        match self.gaps().len() {
            gaps if gaps > self.not_tested => wrong.push(format!(
                "{gaps} gaps are `not tested`, and `not_tested` allows {}: write the test",
                self.not_tested
            )),
            gaps if gaps < self.not_tested => {
                wrong.push(format!(
                    "only {gaps} gaps are left: `not_tested = {gaps}`, so that it never rises again"
                ));
            }
            _ => {}
        }
        wrong
    }

    fn cell(
        &self,
        feature: &Feature,
        adversary: &str,
        cell: &[Proof],
        check: &dyn Fn(&str) -> Result<(), String>,
        wrong: &mut Vec<String>,
    ) {
        let at = format!("{}.{adversary}", feature.name);
        for proof in cell {
            if proof.sentence().is_some_and(|text| !text.ends_with('.') || text.split(' ').count() < 3) {
                wrong.push(format!("{at}: `{}` is no sentence", proof.sentence().unwrap_or_default()));
            }
            match proof {
                Proof::Test(name) => {
                    if let Err(why) = check(name) {
                        wrong.push(format!("{at}: `{name}`: {why}"));
                    }
                }
                Proof::As(other, _) => match self.feature(other) {
                    None => wrong.push(format!("{at}: there is no feature `{other}`")),
                    Some(found) if found.name == feature.name || found.tests(adversary) == 0 => {
                        wrong.push(format!("{at}: {other}.{adversary} names no test"));
                    }
                    Some(_) => {}
                },
                Proof::Cannot(_) if cell.len() > 1 => {
                    wrong.push(format!("{at}: what cannot happen has no test and no gap"));
                }
                Proof::Cannot(_) | Proof::NotPromised(_) | Proof::NotTested(_) => {}
            }
        }
    }

    /// Each option, verb, conversation and table belongs to one row.
    fn in_rows(&self, covered: &Covered, wrong: &mut Vec<String>) {
        for (list, all) in covered {
            let mut rows: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for feature in &self.features {
                for name in feature.covers.get(*list).into_iter().flatten() {
                    rows.entry(name).or_default().push(&feature.name);
                }
            }
            for name in all {
                match rows.get(name.as_str()).map_or(0, Vec::len) {
                    0 => wrong.push(format!("{list}: `{name}` is in no file of tests/adversaries/features")),
                    1 => {}
                    _ => {
                        wrong.push(format!("{list}: `{name}` is in several rows: {:?}", rows[name.as_str()]));
                    }
                }
            }
            let gone = rows.iter().filter(|(name, _)| !all.contains(**name));
            wrong.extend(
                gone.map(|(name, listing)| format!("{list}: there is no `{name}`, which {listing:?} lists")),
            );
        }
    }
}

// ---- what there is ----

fn everything_that_is_covered() -> BTreeSet<&'static str> {
    BTreeSet::from(["options", "verbs", "store", "tables"])
}

fn option_names() -> BTreeSet<String> {
    let groups = [
        ("mill", options::MILL),
        ("memory", options::MEMORY),
        ("sqlite", options::SQLITE),
        ("server", options::SERVER),
        ("postgres", options::POSTGRES),
        ("redis", options::REDIS),
        ("source", options::SOURCE),
        ("text", options::TEXT),
        ("supply", options::SUPPLY),
        ("segment", options::SEGMENT),
        ("serial", options::SERIAL),
        ("snowflake", options::SNOWFLAKE),
        ("business", options::BUSINESS),
    ];
    let named = |(group, options): (&str, &[options::Described])| {
        options.iter().map(|option| format!("{group}.{}", option.name)).collect::<Vec<_>>()
    };
    groups.into_iter().flat_map(named).collect()
}

/// The names of the methods of each public trait in a source.
fn conversations_of(source: &str) -> Vec<String> {
    let mut methods = Vec::new();
    let mut is_inside = false;
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("pub trait ") {
            let name = rest.split([':', ' ', '<', '{']).next().unwrap_or_default();
            is_inside = !NO_STORES.contains(&name);
        } else if line.starts_with('}') {
            is_inside = false;
        } else if is_inside && let Some(rest) = line.strip_prefix("    fn ") {
            methods.extend(rest.split(['(', '<']).next().map(str::to_owned));
        }
    }
    methods
}

fn conversations() -> BTreeSet<String> {
    let methods = super::floors::sources(&root().join(STORES))
        .into_iter()
        .flat_map(|path| conversations_of(&fs::read_to_string(path).expect("a source")));
    let methods: BTreeSet<String> = methods.collect();
    assert!(methods.len() > 30, "only {methods:?} were found: the reader is broken");
    methods
}

/// Every scheme and every table that keymill makes.
fn tables() -> BTreeSet<String> {
    let files = fs::read_dir(root().join(TABLES)).expect("the CREATE statements").flatten();
    let of_files = files.filter_map(|file| {
        file.file_name().to_string_lossy().split_once('.').map(|(name, _)| name.to_owned())
    });
    let schemes = Scheme::ALL.iter().map(|scheme| scheme.name().to_owned());
    of_files.chain(schemes).collect()
}

/// The files as one text, the features by name.
fn table() -> Table {
    let mut text = fs::read_to_string(root().join(TABLE)).expect("the table of adversaries");
    for path in files(&root().join(FEATURES), "toml") {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let cells = fs::read_to_string(&path).expect("a feature");
        let _ = write!(text, "\n[feature.{name}]\n{cells}");
    }
    Table::read(&text)
}

// ---- the documents ----

/// The table of faults: what happens, what keymill does.
pub(super) fn faults() -> String {
    let mut text = "| what happens | what keymill does | adversary |\n|---|---|---|\n".to_owned();
    for fault in table().faults {
        let _ = writeln!(text, "| {} | {} | {} |", fault.happens, fault.does, fault.by.join(", "));
    }
    text
}

/// What each adversary does, how many tests a feature meets it in, and what has no test yet.
pub(super) fn proof() -> String {
    let table = table();
    let mut text = "| adversary | what it does |\n|---|---|\n".to_owned();
    for (name, does) in &table.adversaries {
        let _ = writeln!(text, "| {name} | {does} |");
    }
    let names: Vec<_> = table.adversaries.iter().map(|(name, _)| name.as_str()).collect();
    let _ = writeln!(text, "\n| | {} |\n|---|{}", names.join(" | "), "---:|".repeat(names.len()));
    for feature in &table.features {
        let cells = names.iter().map(|name| {
            let cell = &feature.cells[*name];
            let tests = match feature.tests(name) {
                0 => String::new(),
                tests => tests.to_string(),
            };
            let is_gap = cell.iter().any(|proof| matches!(proof, Proof::NotTested(_)));
            let is_same = cell.iter().any(|proof| matches!(proof, Proof::As(..)));
            let is_open = cell.iter().any(|proof| matches!(proof, Proof::NotPromised(_)));
            let marks = [(is_same, "="), (is_open, "*"), (is_gap, "!")];
            let marks: String = marks.iter().filter(|(is, _)| *is).map(|(_, mark)| *mark).collect();
            match format!("{tests}{marks}") {
                nothing if nothing.is_empty() => "–".to_owned(),
                some => some,
            }
        });
        let _ = writeln!(text, "| {} | {} |", feature.title, cells.collect::<Vec<_>>().join(" | "));
    }
    let mut list = |head: &str, all: Vec<(&Feature, &str, &str)>| {
        let _ = writeln!(text, "\n{head}:\n");
        for (feature, adversary, what) in all {
            let _ = writeln!(text, "* {}, {adversary}: {what}", feature.title);
        }
    };
    list("Not promised", table.sentences(|proof| matches!(proof, Proof::NotPromised(_))));
    if !table.gaps().is_empty() {
        list("Without a test today", table.gaps());
    }
    text
}

// ---- the checks ----

#[test]
fn every_feature_meets_every_adversary() {
    let table = table();
    let covered = Covered::from([
        ("options", option_names()),
        ("verbs", verbs::names()),
        ("store", conversations()),
        ("tables", tables()),
    ]);
    assert!(covered.keys().all(|list| everything_that_is_covered().contains(list)));
    let proofs = Proofs::read(&root());
    let wrong = table.wrong(&covered, &|name| proofs.check(name));
    assert!(wrong.is_empty(), "tests/adversaries, {} problems:\n{}", wrong.len(), wrong.join("\n"));
    let cells = table.features.len() * table.adversaries.len();
    let tests: usize =
        table.features.iter().flat_map(|row| table.adversaries.iter().map(|(name, _)| row.tests(name))).sum();
    println!("{cells} cells name {tests} tests; not tested: {}", table.gaps().len());
    for (feature, adversary, what) in table.gaps() {
        println!("not tested: {}, {adversary}: {what}", feature.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sound table of two features and two adversaries.
    const SOUND: &str = r#"
not_tested = 1

[adversary]
killed = "kills"
silent = "says nothing"

[[fault]]
by = ["killed", "silent"]
happens = "It is killed"
keymill = "Nothing."

[feature.segment]
options = ["source.step"]
killed = ["faults::a", "not tested: a second kill of it."]
silent = "faults::a"

[feature.loader]
verbs = ["Mill::open"]
killed = "cannot: it keeps nothing."
silent = "as segment: it asks there too."
"#;

    /// The problems of the sound table after a change.
    fn after(from: &str, to: &str) -> Vec<String> {
        assert!(SOUND.contains(from), "{from}");
        let covered = Covered::from([
            ("options", BTreeSet::from(["source.step".to_owned()])),
            ("verbs", BTreeSet::from(["Mill::open".to_owned()])),
        ]);
        let check = |name: &str| (name == "faults::a").then_some(()).ok_or_else(|| "no such test".to_owned());
        Table::read(&SOUND.replacen(from, to, 1)).wrong(&covered, &check)
    }

    #[test]
    fn a_sound_table_has_no_problem() {
        assert_eq!(after("", ""), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_gap_is_told() {
        for (from, to, told) in [
            ("silent = \"faults::a\"\n", "", "segment.silent is empty"),
            ("silent = \"faults::a\"", "silent = []", "segment.silent is empty"),
            ("silent = \"faults::a\"", "silent = \"faults::b\"", "segment.silent: `faults::b`: no such test"),
            (
                "silent = \"faults::a\"",
                "silent = \"faults::a\"\nslow = \"faults::a\"",
                "segment.slow: there is no such adversary",
            ),
            (
                "options = [\"source.step\"]\n",
                "",
                "options: `source.step` is in no file of tests/adversaries/features",
            ),
            (
                "verbs = [\"Mill::open\"]\n",
                "",
                "verbs: `Mill::open` is in no file of tests/adversaries/features",
            ),
            (
                "verbs = [",
                "options = [\"source.step\"]\nverbs = [",
                "options: `source.step` is in several rows: [\"segment\", \"loader\"]",
            ),
            (
                "\"source.step\"",
                "\"source.step\", \"source.gone\"",
                "options: there is no `source.gone`, which [\"segment\"] lists",
            ),
            ("cannot: it keeps nothing.", "cannot: no", "loader.killed: `no` is no sentence"),
            (
                "\"cannot: it keeps nothing.\"",
                "[\"cannot: it keeps nothing.\", \"faults::a\"]",
                "loader.killed: what cannot happen has no test and no gap",
            ),
            ("as segment:", "as nothing:", "loader.silent: there is no feature `nothing`"),
            (
                "silent = \"faults::a\"",
                "silent = \"cannot: it asks nothing.\"",
                "loader.silent: segment.silent names no test",
            ),
            (
                "by = [\"killed\", \"silent\"]",
                "by = [\"killed\", \"loud\"]",
                "`It is killed`: there is no adversary `loud`",
            ),
            (
                "by = [\"killed\", \"silent\"]",
                "by = [\"killed\"]",
                "no fault is by `silent`: say what keymill does",
            ),
            (
                "not_tested = 1",
                "not_tested = 0",
                "1 gaps are `not tested`, and `not_tested` allows 0: write the test",
            ),
            (
                "not_tested = 1",
                "not_tested = 2",
                "only 1 gaps are left: `not_tested = 1`, so that it never rises again",
            ),
        ] {
            let wrong = after(from, to);
            assert!(wrong.iter().any(|line| line == told), "{told}: {wrong:?}");
        }
    }

    #[test]
    fn methods_of_public_traits_are_conversations() {
        let source = "pub trait Rows {\n    /// fn no(\n    fn reserve(&mut self);\n    fn look<T>(&mut self) {\n        fn inner() {}\n    }\n}\n\
                      pub(crate) trait Other {\n    fn own(&self);\n}\nimpl Rows for A {\n    fn more(&self) {}\n}\n";
        assert_eq!(conversations_of(source), ["reserve", "look"]);
    }

    #[test]
    fn what_there_is_is_found() {
        assert!(option_names().contains("server.tls"));
        assert!(verbs::names().contains("Source::next_wide_for"));
        assert!(conversations().contains("renew_slots"));
        assert!(["keymill", "worker", "worker_node", "route"].iter().all(|name| tables().contains(*name)));
    }
}
