//! Whether a test that a text names exists, and whether `ci/test --all` runs it. Found by reading the sources and the steps.
//!
//! | written | where it is |
//! |---|---|
//! | `faults::mill::NAME` | a program of `tests/`, its modules, and the function; the module that a macro makes of a store is left out |
//! | `core::segment::tests::NAME` | a unit test of the core, by its file in `core/src` |
//! | `api::close::NAME`, `fork::NAME`, `command::restore::NAME`, `header::NAME` | the other test programs of Rust |
//! | `java::FaultsTest::NAME`, `python::test_faults::NAME`, `node::faults::NAME` | a language's own test |
//! | `python_frameworks::sqlalchemy/test_sqlalchemy::NAME` | one of Python's frameworks |
//! | `node_frameworks::typeorm::NAME` | one of Node's frameworks |
//! | `frameworks::BootTest::NAME` | a test of a module for Java's frameworks |
//! | `c::signals::NAME` | a function of a C program |
//! | `vectors::fault::NAME` | a case that every language plays |
//! | `ci/steps/docs: NAME` | a check of a step, as it is written there |

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The test programs of Rust: their name, the file of their root, and how a step names them.
const PROGRAMS: [(&str, &str, &str); 15] = [
    ("core", "core/src/lib.rs", "--lib"),
    ("api", "core/tests/api/main.rs", "--test api"),
    ("fork", "core/tests/fork.rs", "--test fork"),
    ("header", "ffi/tests/header.rs", "--test header"),
    ("symbols", "ffi/tests/symbols.rs", "--test symbols"),
    ("command", "bindings/cli/tests/command/main.rs", "--test command"),
    ("contract", "tests/contract/main.rs", "--test contract"),
    ("schemes", "tests/schemes/main.rs", "--test schemes"),
    ("faults", "tests/faults/main.rs", "--test faults"),
    ("failover", "tests/failover/main.rs", "--test failover"),
    ("interleave", "tests/interleave/main.rs", "--test interleave"),
    ("languages", "tests/languages/main.rs", "--test languages"),
    ("operator", "tests/operator/main.rs", "--test operator"),
    ("shards", "tests/shards/main.rs", "--test shards"),
    ("simulation", "tests/simulation/test.rs", "--test simulation"),
];

/// The tests of the languages: the prefix, the folder, how a file of it is called, the step that runs all of them, and what the step
/// says when it does.
const LANGUAGES: [(&str, &str, &str, &str, &str); 7] = [
    (
        "java",
        "bindings/java/java/src/test/java/io/keymill",
        "{}.java",
        "java",
        "--scan-classpath=\"$build/test-classes\"",
    ),
    ("frameworks", "bindings/java/frameworks", "{}.java", "java-frameworks", "--scan-classpath=\"$classes\""),
    ("python", "bindings/python/tests", "{}.py", "python", "-s tests"),
    (
        "python_frameworks",
        "bindings/python/tests/frameworks",
        "{}.py",
        "python-frameworks",
        "bindings/python/tests/frameworks",
    ),
    ("node", "bindings/node/tests", "{}.test.mjs", "node", "tests/*.test.mjs"),
    (
        "node_frameworks",
        "bindings/node/tests/frameworks",
        "{}.test.ts",
        "node-frameworks",
        "/tests/frameworks/*.test.ts",
    ),
    ("c", "tests/programs/c", "{}.c", "c", "{}.c"),
];

/// Where the vectors are, and the step that compares what every language ran.
const VECTORS: (&str, &str) = ("tests/vectors", "vectors");

/// The script with the list of all steps, and the folder of the steps.
const GATE: (&str, &str) = ("ci/test", "ci/steps");

/// A command of a step that runs tests.
#[derive(Debug)]
struct Run {
    /// What it says, as words.
    words: Vec<String>,
    /// Names that a test has to hold one of; empty: all are run.
    filters: Vec<String>,
    /// Names that keep a test from being run.
    skips: Vec<String>,
    /// It is built with `--cfg loom`, which has tests of its own.
    is_loom: bool,
}

/// The sources, and what `ci/test --all` runs of them.
#[derive(Debug)]
pub(super) struct Proofs {
    root: PathBuf,
    /// The steps of `ci/test --all`, with their text.
    steps: BTreeMap<String, String>,
    runs: Vec<Run>,
}

/// The steps that the gate's line for `--all` lists.
fn steps_of(gate: &str) -> Vec<&str> {
    let (_, all) = gate.split_once("--all)").expect("the gate has a list for --all");
    let (_, list) = all.split_once("queue=(").expect("a list");
    let (list, _) = list.split_once(')').expect("its end");
    list.split_whitespace().filter(|word| !word.starts_with('"')).collect()
}

/// The commands of a script that run tests.
fn runs_of(script: &str) -> Vec<Run> {
    const WITH_VALUE: [&str; 8] =
        ["--package", "--test", "--target-dir", "--features", "--example", "--bin", "-p", "--target"];
    let is_loom = script.contains("--cfg loom");
    let joined = script.replace("\\\n", " ");
    let mut runs = Vec::new();
    for line in joined.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let Some((at, start)) = ["cargo test ", "tests ", "cargo +nightly miri test "]
            .iter()
            .find_map(|start| line.find(start).map(|at| (at, start)))
        else {
            continue;
        };
        let rest = &line[at + start.len()..];
        let rest = ["|", ">", "&&", ";", ")", "}"]
            .iter()
            .fold(rest, |rest, end| rest.split_once(end).map_or(rest, |(before, _)| before));
        let words: Vec<String> =
            rest.split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect();
        let mut run = Run { words: words.clone(), filters: Vec::new(), skips: Vec::new(), is_loom };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--skip" {
                run.skips.extend(words.next().cloned());
            } else if WITH_VALUE.contains(&word.as_str()) {
                words.next();
            } else if !word.starts_with('-') && !word.contains('$') {
                run.filters.push(word.clone());
            }
        }
        runs.push(run);
    }
    runs
}

impl Run {
    /// Whether it runs this test of a program that steps name so.
    fn covers(&self, program: &str, test: &str, is_loom: bool) -> bool {
        let option: Vec<&str> = program.split(' ').collect();
        let named = self.words.windows(option.len()).any(|words| words == option);
        named
            && self.is_loom == is_loom
            && !self.skips.iter().any(|skip| test.contains(skip.as_str()))
            && (self.filters.is_empty() || self.filters.iter().any(|filter| test.contains(filter.as_str())))
    }
}

/// What stands between the braces of each macro that a source uses at its margin.
fn macro_lists(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("! {\n").filter_map(|(at, open)| {
        let name = text[..at].rsplit('\n').next().unwrap_or_default();
        let is_at_the_margin =
            name != "macro_rules" && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let list = &text[at + open.len()..];
        is_at_the_margin.then(|| list.split_once("\n}").map_or(list, |(list, _)| list))
    })
}

/// Whether this source of Rust declares `fn NAME(` as a test, by itself or in a list of a macro that makes tests of its names.
fn declares(text: &str, name: &str) -> bool {
    let declaration = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().collect();
    let is_test = |at: usize| {
        let attributes =
            lines[..at].iter().rev().map(|line| line.trim()).take_while(|line| line.starts_with(['#', '/']));
        attributes.into_iter().any(|line| line == "#[test]")
    };
    let declared = |at: usize| {
        lines[at]
            .find(&declaration)
            .is_some_and(|begin| begin == 0 || lines[at].as_bytes()[begin - 1].is_ascii_whitespace())
    };
    let listed = || {
        macro_lists(text).any(|list| {
            list.split(|c: char| !(c.is_ascii_alphanumeric() || "_(".contains(c))).any(|word| word == name)
        })
    };
    (0..lines.len()).filter(|at| declared(*at)).any(|at| is_test(at) || listed())
}

impl Proofs {
    pub(super) fn read(root: &Path) -> Proofs {
        let read =
            |path: PathBuf| fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (gate, folder) = GATE;
        let gate = read(root.join(gate));
        let steps: BTreeMap<String, String> = steps_of(&gate)
            .into_iter()
            .map(|step| (step.to_owned(), read(root.join(folder).join(step))))
            .collect();
        assert!(steps.len() > 15, "the gate's list was not found: the reader is broken");
        let runs = steps.values().flat_map(|script| runs_of(script)).collect();
        Proofs { root: root.to_owned(), steps, runs }
    }

    /// The path of the file that is called so, in this folder or below it.
    fn below(&self, folder: &str, called: &str) -> Option<String> {
        let entries = fs::read_dir(self.root.join(folder)).ok()?.filter_map(Result::ok);
        let mut paths =
            entries.map(|entry| (entry.path(), format!("{folder}/{}", entry.file_name().to_string_lossy())));
        paths.find_map(|(entry, path)| {
            if entry.is_dir() {
                self.below(&path, called)
            } else {
                path.ends_with(&format!("/{called}")).then_some(path)
            }
        })
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// Why this is no test that `ci/test --all` runs.
    pub(super) fn check(&self, named: &str) -> Result<(), String> {
        if let Some(rest) = named.strip_prefix("ci/steps/") {
            return self.check_of_step(rest);
        }
        let (first, rest) = named.split_once("::").ok_or("it has no program before `::`")?;
        if first == "vectors" {
            return self.vector(rest);
        }
        if let Some(language) = LANGUAGES.iter().find(|(name, ..)| *name == first) {
            return self.of_language(*language, rest);
        }
        let program = PROGRAMS.iter().find(|(name, ..)| *name == first);
        let (_, main, step) = program.ok_or_else(|| format!("there is no test program `{first}`"))?;
        self.of_rust(main, step, rest)
    }

    fn check_of_step(&self, named: &str) -> Result<(), String> {
        let (step, check) = named.split_once(": ").map_or((named, None), |(step, check)| (step, Some(check)));
        let script = self.steps.get(step).ok_or_else(|| format!("`ci/test --all` runs no step `{step}`"))?;
        match check {
            Some(check) if !script.contains(&format!("\"{check}\"")) => {
                Err(format!("`ci/steps/{step}` has no check \"{check}\""))
            }
            _ => Ok(()),
        }
    }

    fn vector(&self, named: &str) -> Result<(), String> {
        let (file, case) = named.split_once("::").ok_or("it names no file of vectors")?;
        let (folder, step) = VECTORS;
        let text = self
            .text(&format!("{folder}/{file}.json"))
            .ok_or_else(|| format!("there is no {folder}/{file}.json"))?;
        let parsed: serde_json::Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
        let cases = parsed["cases"].as_array().ok_or("the file has no cases")?;
        if !cases.iter().any(|found| found["name"] == case) {
            return Err(format!("{folder}/{file}.json has no case `{case}`"));
        }
        self.steps.contains_key(step).then_some(()).ok_or_else(|| format!("no step `{step}` is run"))
    }

    fn of_language(
        &self,
        (name, folder, called, step, says): (&str, &str, &str, &str, &str),
        named: &str,
    ) -> Result<(), String> {
        let (file, test) = named.split_once("::").ok_or("it names no file")?;
        let called = called.replace("{}", file);
        let mut path = format!("{folder}/{called}");
        if name == "c" && !self.root.join(&path).is_file() {
            path.push_str("pp");
        }
        if name == "frameworks" {
            path = self.below(folder, &called).ok_or_else(|| format!("there is no {called} in {folder}"))?;
        }
        let text = self.text(&path).ok_or_else(|| format!("there is no {path}"))?;
        let declared = match name {
            "java" | "frameworks" => text.contains(&format!("void {test}(")),
            "python" | "python_frameworks" => text.contains(&format!("def {test}(")),
            "node" | "node_frameworks" => ["'", "\"", "`"].iter().any(|quote| {
                ["test(", "it("].iter().any(|call| text.contains(&format!("{call}{quote}{test}{quote}")))
            }),
            _ => text.lines().any(|line| line.contains(&format!(" {test}("))),
        };
        if !declared {
            return Err(format!("{path} has no test `{test}`"));
        }
        let says = says.replace("{}", file);
        let script = self.steps.get(step).ok_or_else(|| format!("no step `{step}` is run"))?;
        let file = Path::new(&path).file_name().expect("a file").to_string_lossy();
        if script.contains(&says) || script.contains(file.as_ref()) {
            Ok(())
        } else {
            Err(format!("`ci/steps/{step}` does not run {path}"))
        }
    }

    fn of_rust(&self, main: &str, step: &str, named: &str) -> Result<(), String> {
        let modules: Vec<&str> = named.split("::").collect();
        let (name, modules) = modules.split_last().expect("a name");
        let folder = Path::new(main).parent().expect("a folder").to_string_lossy().into_owned();
        let root = self.text(main).ok_or_else(|| format!("there is no {main}"))?;
        // The file of the longest path of modules; those that a macro makes have none.
        let file = (0..=modules.len()).rev().find_map(|depth| {
            let path = modules[..depth].join("/");
            match depth {
                0 => Some(main.to_owned()),
                _ => [format!("{folder}/{path}.rs"), format!("{folder}/{path}/mod.rs")]
                    .into_iter()
                    .find(|path| self.root.join(path).is_file()),
            }
        });
        let file = file.expect("at least the root");
        let text = self.text(&file).unwrap_or_default();
        if !declares(&text, name) {
            return Err(format!("{file} has no test `{name}`"));
        }
        if file != main && !root.contains(&format!("mod {}", modules[0])) {
            return Err(format!("{main} has no module `{}`", modules[0]));
        }
        let is_loom = file.ends_with("loom.rs");
        if self.runs.iter().any(|run| run.covers(step, named, is_loom)) {
            Ok(())
        } else {
            Err(format!("no step of `ci/test --all` runs it: none says `{step}`, or all skip it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_all_steps_is_read_from_the_gate() {
        let gate = "queue=(rust)\ncase $1 in\n--all)\n    queue=(rust c \"${@:2}\")\n";
        assert_eq!(steps_of(gate), ["rust", "c"]);
    }

    #[test]
    fn a_run_has_its_programs_and_leaves_out_what_it_skips() {
        let script = "with_servers cargo test --no-fail-fast --test faults --test failover \\\n    -- --nocapture --skip galera:: | tee x\n";
        let runs = runs_of(script);
        let covers = |program, test| runs.iter().any(|run| run.covers(program, test, false));
        assert!(covers("--test faults", "mill::a"));
        assert!(covers("--test failover", "postgres::a"));
        assert!(!covers("--test failover", "galera::a"), "it is skipped");
        assert!(!covers("--test contract", "a"), "it is not named");
        let runs = runs_of("tests() { cargo test \"$@\"; }\ncheck \"x\" tests --test contract -- tidb_\n");
        assert!(runs.iter().any(|run| run.covers("--test contract", "tidb_segment::a", false)));
        assert!(
            !runs.iter().any(|run| run.covers("--test contract", "sqlite_segment::a", false)),
            "not asked for"
        );
    }

    #[test]
    fn tests_of_loom_are_run_with_loom_only() {
        let loom =
            runs_of("export RUSTFLAGS=\"--cfg loom\"\ncargo test --release --package keymill --lib loom\n");
        assert!(loom.iter().any(|run| run.covers("--lib", "segment::loom::a", true)));
        assert!(!loom.iter().any(|run| run.covers("--lib", "segment::loom::a", false)));
    }

    #[test]
    fn a_function_is_a_test_by_its_attribute_or_by_the_list_of_a_macro() {
        assert!(declares("#[test]\n// Why.\nfn a() {}", "a"));
        assert!(declares("fn a(bench: &Bench) {}\ncontract! {\n    a\n}", "a"));
        assert!(declares(
            "fn a(place: &Place) {}\nplaces! {\n    on_redis \"redis\": b a\n        c;\n}",
            "a"
        ));
        assert!(!declares("fn a() {}", "a"), "a function that no test calls");
        assert!(!declares("fn a() {}\nlazy! {\n    static X: u8 = a();\n}", "a"), "a call");
        assert!(!declares("#[test]\nfn ba() {}", "a"));
        assert!(!declares("#[test]\nfn b() {}\nfn a() {}", "a"));
    }

    #[test]
    fn what_a_step_leaves_out_is_there_to_be_left_out() {
        let root = super::super::adversaries::root();
        let sources: Vec<String> = ["tests", "core/src", "bindings/cli/tests"]
            .iter()
            .flat_map(|folder| super::super::floors::sources(&root.join(folder)))
            .map(|path| fs::read_to_string(path).expect("a source"))
            .collect();
        let mut left_out = 0;
        for (step, script) in &Proofs::read(&root).steps {
            for name in script.split("--skip ").skip(1).filter_map(|rest| rest.split_whitespace().next()) {
                let path: Vec<&str> =
                    name.trim_matches(['"', ')']).split("::").filter(|word| !word.is_empty()).collect();
                let last = path.last().expect("a name");
                assert!(
                    sources.iter().any(|text| text.contains(last)),
                    "`ci/steps/{step}` skips `{name}`, and no test is called so"
                );
                left_out += 1;
            }
        }
        assert!(left_out > 10, "the reader found {left_out} names");
    }

    #[test]
    fn a_step_names_every_program_of_tests() {
        let root = super::super::adversaries::root();
        let proofs = Proofs::read(&root);
        for folder in ["core/tests", "ffi/tests", "bindings/cli/tests"] {
            for entry in
                fs::read_dir(root.join(folder)).expect("a folder").map(|entry| entry.expect("an entry"))
            {
                let path = entry.path();
                let program = format!("--test {}", path.file_stem().expect("a name").to_string_lossy());
                assert!(
                    proofs.runs.iter().any(|run| run.covers(&program, "", false)),
                    "no step of `ci/test --all` says `{program}`, which is {}",
                    path.display()
                );
            }
        }
    }

    #[test]
    fn what_is_no_test_is_told_with_what_is_missing() {
        let proofs = Proofs::read(&super::super::adversaries::root());
        for (named, why) in [
            ("two_hundred_kills", "no program"),
            ("nowhere::a", "no test program"),
            ("faults::mill::no_such_test", "has no test"),
            ("faults::mill::config", "has no test"),
            ("java::FaultsTest::no_such_test", "has no test"),
            ("java::NoTest::a", "there is no"),
            ("frameworks::NoTest::a", "there is no"),
            ("frameworks::BootTest::no_such_test", "has no test"),
            ("node::faults::no such test", "has no test"),
            ("python::test_faults::test_no_such", "has no test"),
            ("c::signals::no_such", "has no test"),
            ("vectors::fault::no such case", "has no case"),
            ("ci/steps/nowhere", "runs no step"),
            ("ci/steps/java: no such check", "has no check"),
        ] {
            let told = proofs.check(named).expect_err(named);
            assert!(told.contains(why), "{named}: {told}");
        }
        for named in [
            "faults::mill::two_hundred_kills_on_sqlite_leave_no_duplicate",
            "contract::reservations_follow_each_other",
            "failover::galera::a_lost_quorum_is_an_outage_with_that_reason_and_heals_by_itself",
            "schemes::tidb::a_conflict_is_begun_again_and_moves_the_row_once",
            "core::segment::loom::two_takers_and_a_publisher_never_share_a_number",
            "vectors::fault::a lost answer burns its range",
            "frameworks::BootTest::a_store_that_stops_and_comes_back",
            "ci/steps/fuzz",
        ] {
            assert_eq!(proofs.check(named), Ok(()), "{named}");
        }
    }
}
