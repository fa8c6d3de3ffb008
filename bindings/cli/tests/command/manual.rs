//! The pages of the manual, as `examples/man.rs` writes them.

use std::fs;

/// Every verb that `--help` shows, and every verb of `move` and `route`.
#[test]
fn the_manual_has_a_page_for_each_verb() {
    let folder = tempfile::tempdir().expect("a folder");
    clap_mangen::generate_to(keymill_cli::command(), folder.path()).expect("pages");
    let page = |name: &str| {
        fs::read_to_string(folder.path().join(format!("{name}.1")))
            .unwrap_or_else(|e| panic!("{name}.1: {e}"))
    };
    assert!(page("keymill").contains("keymill\\-take(1)"), "the first page names the others");
    assert!(page("keymill-take").contains("Print N ids, one a line"));
    let command = keymill_cli::command();
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = format!("keymill-{}", verb.get_name());
        page(&name);
        for inner in verb.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            page(&format!("{name}-{}", inner.get_name()));
        }
    }
}
