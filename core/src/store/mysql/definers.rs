//! Judges the definers of a view and of a table's triggers. Pure.
//!
//! A table has no owner here: only a user with `CREATE` in the database makes one. A trigger changes what a statement writes, with
//! the rights of its definer. So a trigger is accepted if this user or the server's administrator has defined it. Who else
//! administers the server, this user cannot know. Without the right `TRIGGER` MariaDB does not show it the definer, which is a
//! warning, and MySQL and MariaDB 10.5 not even the trigger.

use crate::store::model::value::{ColumnValue, text};
use crate::store::{Fault, FaultKind, Key, Remedy};

/// The table: its kind, its engine and this user; of a view and of each trigger the name, the definer and the database. As
/// `CHAR` all columns have one collation, so that `UNION` can join them.
pub(super) const RELATION: &str = "SELECT 'table', CAST(TABLE_TYPE AS CHAR), CAST(ENGINE AS CHAR), CAST(CURRENT_USER() AS CHAR) \
     FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? \
     UNION ALL SELECT 'view', CAST(TABLE_NAME AS CHAR), CAST(DEFINER AS CHAR), CAST(TABLE_SCHEMA AS CHAR) \
     FROM information_schema.VIEWS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? \
     UNION ALL SELECT 'trigger', CAST(TRIGGER_NAME AS CHAR), CAST(DEFINER AS CHAR), CAST(TRIGGER_SCHEMA AS CHAR) \
     FROM information_schema.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE = ?";

/// The accounts of the server itself.
const ADMINISTRATORS: [&str; 3] = ["root", "mysql.sys", "mariadb.sys"];

fn is_trusted(definer: &str, user: &str) -> bool {
    let account = definer.rsplit_once('@').map_or(definer, |(account, _)| account);
    definer == user || ADMINISTRATORS.contains(&account)
}

/// A name in SQL; a plain one without quotes.
fn name(identifier: &str) -> String {
    let is_plain = identifier.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_plain { identifier.to_owned() } else { format!("`{}`", identifier.replace('`', "``")) }
}

/// What the catalogue says of a table.
pub(super) struct TableEntry {
    pub(super) engine: String,
    /// Of a trigger whose definer this user may not see.
    pub(super) warning: Option<String>,
}

/// The table, from the rows of [`RELATION`]; `None`: there is none, or this user does not see it. Refused if it is a view, or has
/// a trigger of another user.
pub(super) fn checked(key: &Key, rows: &[Vec<ColumnValue>]) -> Result<Option<TableEntry>, Fault> {
    let word = |row: &[ColumnValue], at| text(row, at).unwrap_or_default().to_owned();
    let of_kind = |kind: &'static str| rows.iter().filter(move |row| text(row, 0) == Some(kind));
    let Some(table) = of_kind("table").next() else { return Ok(None) };
    let (kind, engine, user) = (word(table, 1), word(table, 2), word(table, 3));
    let refused = |what: String, statement: String| {
        let first = "if it is not yours, run as an administrator";
        Err(Fault::new(FaultKind::Refused, what)
            .with_remedy(Remedy::Sql { first, statements: vec![statement] }))
    };
    if kind.ends_with("VIEW") {
        let definer = of_kind("view").next().map(|row| word(row, 2)).unwrap_or_default();
        let what = format!(
            "`{}` is no table, but a view of `{definer}`; name another with `table=`, if no id of this source was issued",
            key.table
        );
        return refused(what, format!("DROP VIEW {}", name(&key.table)));
    }
    let (hidden, shown): (Vec<_>, Vec<_>) = of_kind("trigger").partition(|row| word(row, 2).is_empty());
    let Some(trigger) = shown.into_iter().find(|row| !is_trusted(&word(row, 2), &user)) else {
        let warning = hidden.first().map(|row| {
            format!(
                "table `{}` has a trigger `{}` whose definer this user may not see: grant it TRIGGER on the table, so that a trigger of another user is refused",
                key.table,
                word(row, 1)
            )
        });
        return Ok(Some(TableEntry { engine, warning }));
    };
    let (called, definer, schema) = (word(trigger, 1), word(trigger, 2), word(trigger, 3));
    let what = format!(
        "table `{}` has a trigger `{called}` of `{definer}`, which may change what keymill writes: only triggers of this user (`{user}`) and of `root` are trusted",
        key.table
    );
    refused(what, format!("DROP TRIGGER {}.{}", name(&schema), name(&called))).map_err(|fault: Fault| {
        fault.with_remedy(Remedy::Text(
            "if it is, make it again as this user, or with `DEFINER = root@localhost`",
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_user_and_the_servers_own_accounts_are_trusted() {
        for (definer, is) in [
            ("ids@%", true),
            ("root@localhost", true),
            ("root@10.0.0.%", true),
            ("mariadb.sys@localhost", true),
            ("ids@localhost", false),
            ("evil@%", false),
            ("evil@root@%", false),
            ("root2@%", false),
        ] {
            assert_eq!(is_trusted(definer, "ids@%"), is, "{definer}");
        }
    }

    #[test]
    fn a_name_is_quoted_only_where_it_must_be() {
        assert_eq!((name("a_1"), name("a`b c")), ("a_1".to_owned(), "`a``b c`".to_owned()));
    }
}
