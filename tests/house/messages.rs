//! A message is found by a search for any of its words that follow each other: no literal is broken over lines.

use std::fs;
use std::path::{Path, PathBuf};

/// Where messages stand in one piece.
const FOLDERS: [&str; 4] = ["core/src", "bindings", "ffi", "include"];

/// What other programs made, and tests, which no user reads.
const NOT_READ: [&str; 6] = ["node_modules", "dist", "target", "tests", "test", "benches"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !NOT_READ.contains(&name.as_str()) {
            sources(&path, found);
        } else if ["rs", "ts", "mjs", "java", "py", "hpp"]
            .iter()
            .any(|end| name.ends_with(&format!(".{end}")))
        {
            found.push(path);
        }
    }
}

/// Whether a literal that stands in `line` goes on in the line below. One that begins or ends with a line of its own does not count.
fn is_broken(line: &str, below: &str) -> bool {
    let (line, below) = (line.trim(), below.trim());
    if line.starts_with("//") || line.starts_with('*') {
        return false;
    }
    if let Some(text) = line.strip_suffix('\\') {
        return !(text.is_empty() || text.ends_with('"') || text.ends_with("\\n"));
    }
    let quotes = ['"', '\'', '`'];
    let text = line.strip_suffix('+').unwrap_or(line).trim_end();
    let more = below.strip_prefix('+').unwrap_or(below).trim_start().trim_start_matches('f');
    let ends = text.ends_with(quotes) && !text.ends_with("\"\"\"") && text.len() > 1;
    ends && more.starts_with(quotes) && !more.starts_with("\"\"\"")
}

/// Whether a statement of SQL begins in this line, or in the one below it: it is no message, and is read in its clauses.
fn begins_sql(line: &str, below: &str) -> bool {
    let words = ["SELECT ", "WITH ", "CREATE ", "INSERT ", "UPDATE ", "DELETE "];
    let below = below.trim_start();
    words
        .iter()
        .any(|word| line.contains(&format!("\"{word}")) || line.ends_with("\"\\") && below.starts_with(word))
}

#[test]
fn no_message_is_broken_over_lines() {
    let mut files = Vec::new();
    for folder in FOLDERS {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 100, "{} files", files.len());
    let mut broken = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let lines: Vec<&str> = text.lines().collect();
        let mut in_sql = false;
        for (at, pair) in lines.windows(2).enumerate() {
            in_sql = begins_sql(pair[0], pair[1]) || in_sql && at > 0 && lines[at - 1].ends_with('\\');
            if !in_sql && is_broken(pair[0], pair[1]) {
                broken.push(format!("{}:{}: {}", file.display(), at + 1, pair[0].trim()));
            }
        }
    }
    assert!(broken.is_empty(), "these go on in the next line:\n{}", broken.join("\n"));
}

#[test]
fn a_literal_that_goes_on_in_the_next_line_is_seen() {
    for (line, below) in [
        (r#""the buffer's items are \"#, r#"numbers","#),
        (r#"throw argument("a" + b + "c""#, r#"+ "d")"#),
        (r#"throw argument("a" +"#, r#""d")"#),
        (r#"f"one {a}""#, r#"f"two""#),
    ] {
        assert!(is_broken(line, below), "{line}");
    }
    for (line, below) in [
        (r#"#[command(after_help = "\"#, "Examples:"),
        (r#"["a","#, r#""b"]"#),
        (r##""# HELP a.\n\"##, "# TYPE"),
        (r#"/// Says "a""#, r#"/// "b""#),
        (r#"+ name + "a""#, "+ b"),
    ] {
        assert!(!is_broken(line, below), "{line}");
    }
}
