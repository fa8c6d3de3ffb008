//! Tests of the server's options, before and after every statement that changes a row.
//!
//! A server's options change while a connection lives: a primary is set read-only before it is replaced, the flush of the log
//! is turned off under load, a proxy hands the next statement to a session that another client has set up. So the server
//! itself judges its options with each reservation, in the same packet and without a round trip:
//!
//! ```sql
//! SET SESSION autocommit = 1, completion_type = IF(@@GLOBAL.read_only = 0 AND …, 0, 9);  -- 9 is no value: error 1231, and the
//! UPDATE …;                                                                            --    server carries out nothing more
//! COMMIT AND NO CHAIN NO RELEASE;
//! SET SESSION completion_type = IF(@@GLOBAL.read_only = 0 AND …, 0, 9)
//! ```
//!
//! * The first `SET` protects a server that must not be written, and sets what a statement's commit depends on.
//! * `COMMIT` ends a transaction that an option (`completion_type`, `autocommit`) has opened; without such a transaction it
//!   does nothing.
//! * The last `SET` proves that the options were safe when the commit was over. A range is used only after it succeeded.
//!
//! A `SET` is not written to the binary log. The same test in the statement's `WHERE` would be written there: replicas of a
//! statement-based log would then test their own options, and leave the row unchanged.

use std::time::Duration;

use crate::store::sql::Dialect;

/// The error of a test that failed: a variable cannot be set to that value.
pub(super) const NOT_PASSED: u16 = 1231;

/// Without a limit on rows: under `sql_select_limit=0` an existing row would not be found, and counting would begin again.
pub(super) const ALL_ROWS: &str = "sql_select_limit = 18446744073709551615";

/// One tested option.
#[derive(Debug)]
pub(super) struct Condition {
    /// The variable with its scope, `@@GLOBAL.read_only`.
    pub(super) variable: String,
    /// The condition on it, as SQL.
    pub(super) test: String,
    /// The condition on it for messages; `None`: the server takes no writes.
    pub(super) safe: Option<String>,
}

impl Condition {
    pub(super) fn sql(&self) -> String {
        format!("{} {}", self.variable, self.test)
    }
}

/// The statements of the test.
#[derive(Debug, Default)]
pub(super) struct SettingsCheck {
    pub(super) conditions: Vec<Condition>,
    /// Before a statement that commits by itself.
    pub(super) alone: Option<String>,
    /// Before a transaction begins.
    pub(super) opening: Option<String>,
    /// Before a commit.
    pub(super) within: Option<String>,
    /// After a commit.
    pub(super) closing: Option<String>,
    /// After a rollback.
    pub(super) rolled_back: Option<String>,
}

impl SettingsCheck {
    /// `limits`: how many seconds the server waits for a client inside a transaction, and outside one, where no option of the
    /// server itself limits the first.
    pub(super) fn new(
        dialect: Dialect,
        conditions: Vec<Condition>,
        limits: Option<(Duration, Duration)>,
    ) -> SettingsCheck {
        if !dialect.has_conditional_add() {
            return SettingsCheck::default();
        }
        let all: Vec<_> = conditions.iter().map(Condition::sql).collect();
        let all = if all.is_empty() { "TRUE".to_owned() } else { all.join(" AND ") };
        let test = format!("completion_type = IF({all}, 0, 9)");
        let wait = |limit: Option<Duration>| {
            limit.map_or_else(String::new, |limit| format!("wait_timeout = {}, ", limit.as_secs().max(1)))
        };
        let (inside, outside) =
            (wait(limits.map(|(inside, _)| inside)), wait(limits.map(|(_, outside)| outside)));
        SettingsCheck {
            alone: Some(format!("SET SESSION autocommit = 1, {test}")),
            opening: Some(format!("SET SESSION autocommit = 1, {ALL_ROWS}, {inside}{test}")),
            within: Some(format!("SET SESSION {test}")),
            closing: Some(format!("SET SESSION {outside}{test}")),
            rolled_back: limits
                .map(|(_, outside)| format!("SET SESSION wait_timeout = {}", outside.as_secs().max(1))),
            conditions,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_statement_sets_what_a_commit_depends_on_and_tests_the_options() {
        let condition =
            |variable: &str| Condition { variable: variable.to_owned(), test: "= 0".to_owned(), safe: None };
        let conditions = || vec![condition("@@GLOBAL.read_only"), condition("@@GLOBAL.x")];
        let settings_check = SettingsCheck::new(Dialect::MariaDb, conditions(), None);
        assert_eq!(
            settings_check.alone.as_deref(),
            Some(
                "SET SESSION autocommit = 1, completion_type = IF(@@GLOBAL.read_only = 0 AND @@GLOBAL.x = 0, 0, 9)"
            )
        );
        assert!(settings_check.opening.as_ref().is_some_and(|opening| opening.contains(ALL_ROWS)));
        // `autocommit` would end a transaction on some servers.
        assert!(settings_check.within.as_ref().is_some_and(|within| !within.contains("autocommit")));
        let limits = Some((Duration::from_secs(5), Duration::from_secs(60)));
        let settings_check = SettingsCheck::new(Dialect::MySql, conditions(), limits);
        assert!(settings_check.opening.as_ref().is_some_and(|sql| sql.contains("wait_timeout = 5,")));
        assert!(settings_check.closing.as_ref().is_some_and(|sql| sql.contains("wait_timeout = 60,")));
        assert!(SettingsCheck::new(Dialect::TiDb, conditions(), limits).alone.is_none());
        let nothing = SettingsCheck::new(Dialect::MySql, Vec::new(), None);
        assert!(nothing.within.as_ref().is_some_and(|sql| sql.ends_with("IF(TRUE, 0, 9)")));
    }
}
