//! Tests of behaviour once more, in a process where every message is `x`: code that decides by words shows itself.

use std::fmt::Display;
use std::process::Command;
use std::sync::LazyLock;

const VARIABLE: &str = "KEYMILL_TEST_WORDLESS";

static IS_ON: LazyLock<bool> = LazyLock::new(|| {
    let is_on = std::env::var_os(VARIABLE).is_some();
    if is_on {
        keymill::simulation::blank_messages();
    }
    is_on
});

/// Blanks the messages of this process if it was started by [`run_again`]. To be called before the first store is opened.
#[must_use]
pub fn is_on() -> bool {
    *IS_ON
}

/// Whether a message contains `part`. In such a process none is compared.
#[must_use]
pub fn says(message: impl Display, part: &str) -> bool {
    is_on() || message.to_string().contains(part)
}

/// Runs tests of this program again, chosen by these arguments.
///
/// # Panics
/// Where one of them fails, or none is chosen.
pub fn run_again(arguments: &[&str]) {
    let program = std::env::current_exe().expect("this program");
    let ran = Command::new(program).args(arguments).env(VARIABLE, "1").output().expect("the tests");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
    assert!(!said.contains(" 0 passed"), "{said}");
    println!("wordless: {}", said.lines().rfind(|line| line.starts_with("test result")).unwrap_or_default());
}
