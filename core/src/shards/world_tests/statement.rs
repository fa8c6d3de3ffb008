//! Reads the statements of the machine, which have few shapes, and answers in the words of their server. A statement of another shape fails
//! the test.

use crate::shards::{ShardKind, ShardRow};

use super::database::{Database, Key, Lock, Scope, Statement, Table, Value};

fn rows(rows: &[&[&'static str]]) -> Statement {
    Statement::Catalogue(rows.iter().map(|row| row.to_vec()).collect())
}

pub(super) fn asks_catalogue(sql: &str) -> bool {
    sql.contains(" FROM information_schema.")
        || sql.contains(" FROM pg_catalog.pg_") && !sql.contains("set_config")
}

fn catalogue(kind: ShardKind, is_mariadb: bool, defers: bool, sql: &str) -> Option<Statement> {
    let deferrable = if defers { "true" } else { "false" };
    // No row takes another one along.
    if sql.contains("REFERENTIAL_CONSTRAINTS") || sql.contains("confdeltype") {
        return Some(rows(&[]));
    }
    match kind {
        ShardKind::MySql => {
            let is_root = sql.contains("TABLE_NAME = _utf8mb4 't'");
            let (columns, server) =
                (if is_root { "2" } else { "3" }, if is_mariadb { "MySQL or MariaDB" } else { "MySQL" });
            let id: &[&str] = &["id", "bigint", "bigint", "", "", "NO"];
            if sql.contains("TABLE_TYPE") {
                return Some(rows(&[&["db", "BASE TABLE", "0", columns, server, "", "", "false", "99999"]]));
            }
            if sql.contains("DATA_TYPE") {
                let at: &[&str] = &["at", "int", "int", "", "", "NO"];
                let n: &[&str] = &["n", "bigint", "bigint", "", "", "NO"];
                let seat: &[&str] = &["seat", "bigint", "bigint", "", "", "YES"];
                return Some(if is_root { rows(&[id, n]) } else { rows(&[id, at, seat]) });
            }
            sql.contains("STATISTICS")
                .then(|| if is_root { rows(&[&["id"]]) } else { rows(&[&["id"], &["at"]]) })
        }
        ShardKind::Postgres => {
            let id: &[&str] = &["id", "bigint", "t", "", "N", "int8"];
            if sql.contains("to_regclass") {
                let is_root = sql.contains("quote_ident('t')");
                assert!(is_root || sql.contains("quote_ident('c')"), "{sql}");
                let oid = if is_root { "1" } else { "2" };
                return Some(rows(&[&["public", "r", oid, "77", "", "", "", deferrable, "", "UTF8"]]));
            }
            let is_root = sql.contains(" = 1 AND ");
            if sql.contains("format_type") {
                let at: &[&str] = &["at", "integer", "t", "", "N", "int4"];
                let n: &[&str] = &["n", "bigint", "t", "", "N", "int8"];
                let seat: &[&str] = &["seat", "bigint", "", "", "N", "int8"];
                return Some(if is_root { rows(&[id, n]) } else { rows(&[id, at, seat]) });
            }
            sql.contains("indisprimary")
                .then(|| if is_root { rows(&[&["id"]]) } else { rows(&[&["id"], &["at"]]) })
        }
    }
}

/// The rest of a statement behind its beginning.
fn after<'s>(sql: &'s str, start: &str) -> Option<&'s str> {
    sql.strip_prefix(start)
}

fn table(name: &str) -> Table {
    match name {
        "t" => Table::Root,
        "c" => Table::Child,
        _ => panic!("the table {name}"),
    }
}

fn number(text: &str) -> u64 {
    text.trim_matches('\'').parse().unwrap_or_else(|_| panic!("the number {text}"))
}

fn value(text: &str) -> Value {
    (text != "NULL").then(|| number(text))
}

/// `id = '1'`, `id = '1' AND at = '2'`.
fn key(table: Table, text: &str) -> Key {
    let (id, at) = match (table, text.split_once(" AND ")) {
        (Table::Root, None) => (text, "at = 0"),
        (Table::Child, Some(both)) => both,
        _ => panic!("the key {text}"),
    };
    let cell = |text: &str, name: &str| number(text.strip_prefix(name).expect("a column of the key"));
    Key { table, id: cell(id, "id = "), at: cell(at, "at = ") }
}

/// The statement without what differs between servers and does not matter here.
fn plain(kind: ShardKind, sql: &str) -> String {
    match kind {
        ShardKind::MySql => {
            let sql = match sql.strip_prefix("SET STATEMENT ") {
                Some(rest) => rest.split_once(" FOR ").expect("a statement").1.to_owned(),
                None => match sql.split_once("/*+ ") {
                    Some((verb, rest)) => verb.to_owned() + rest.split_once("*/ ").expect("a hint's end").1,
                    None => sql.to_owned(),
                },
            };
            sql.replace('`', "")
                .replace("db.", "")
                .replace("_latin1 ", "")
                .replace(" LIMIT 18446744073709551615", "")
        }
        ShardKind::Postgres => sql
            .replace(" OPERATOR(pg_catalog.=) ", " = ")
            .replace("pg_catalog.", "")
            .replace('"', "")
            .replace("public.", "")
            .replace("::text", "")
            .replace(" OVERRIDING SYSTEM VALUE", ""),
    }
}

/// Reads a statement.
pub(super) fn read(database: &Database, is_mariadb: bool, sql: &str) -> Statement {
    let kind = database.kind;
    if let Some(statement) = catalogue(kind, is_mariadb, database.defers, sql) {
        return statement;
    }
    if kind == ShardKind::MySql {
        let is_hinted = sql.starts_with("SET STATEMENT ") || sql.contains("/*+ SET_VAR(");
        let is_bare = sql.starts_with("SELECT '1'") || sql.ends_with("SAVEPOINT keymill");
        assert!(is_hinted != is_bare, "settings: {sql}");
    }
    let sql = plain(kind, sql);
    let unknown = || -> ! { panic!("an unknown statement: {sql}") };
    match sql.as_str() {
        "SAVEPOINT keymill" => return Statement::Savepoint,
        "RELEASE SAVEPOINT keymill" => return Statement::Release,
        "SET CONSTRAINTS ALL IMMEDIATE" => return Statement::CheckConstraints,
        _ => {}
    }
    let advisory = || {
        let from = sql.find("pg_advisory_xact_lock(").map(|at| &sql[at + "pg_advisory_xact_lock(".len()..]);
        from.and_then(|rest| rest.split_once(')')).map(|(id, _)| id.to_owned())
    };
    if let Some(rest) = after(&sql, "SELECT '1' FROM t WHERE id = ") {
        let (id, end) = rest.split_once(' ').unwrap_or_else(|| unknown());
        let waits = match end {
            "FOR UPDATE" => true,
            "FOR UPDATE NOWAIT" => false,
            _ => unknown(),
        };
        return Statement::Probe { id: number(id), lock: Some(Lock::Update), waits };
    }
    if let Some(rest) = after(&sql, "SELECT current_setting('transaction_isolation'), ") {
        if let Some((_, mark)) = rest.split_once(", set_config('keymill.id', '") {
            return Statement::LockId(advisory(), mark.split('\'').next().unwrap_or_default().to_owned());
        }
        assert!(rest.contains("set_config('lock_timeout', '"), "{sql}");
        return Statement::PinNew(advisory());
    }
    if sql.starts_with("SELECT current_setting('keymill.id', true), (COALESCE(") {
        return Statement::PinOld;
    }
    if let Some(rest) = after(&sql, "SELECT ") {
        let (values, rest) = rest.split_once(" FROM ").unwrap_or_else(|| unknown());
        let (values, rest) = match values.find("(SELECT *") {
            Some(at) => {
                let (_, rest) = rest.split_once(" FROM ").unwrap_or_else(|| unknown());
                (&values[..at], rest)
            }
            None => (values, rest),
        };
        let (name, rest) = rest.split_once(" WHERE id = ").unwrap_or_else(|| unknown());
        let (id, lock) = match rest.split_once(' ') {
            None => (rest, None),
            Some((id, "FOR UPDATE")) => (id, Some(Lock::Update)),
            Some(_) => unknown(),
        };
        let table = table(name);
        let expected: &[&str] = match (kind, table) {
            (ShardKind::MySql, Table::Root) => &[
                "CAST(id AS BINARY), CAST(n AS BINARY), CONCAT(id IS NULL, n IS NULL, @@time_zone)",
                "CAST(id AS BINARY), CAST(n AS BINARY), CONCAT(id IS NULL, n IS NULL, @@time_zone), CONCAT('', ROW(NULL, NULL) = ",
            ],
            (ShardKind::MySql, Table::Child) => &[
                "CAST(id AS BINARY), CAST(at AS BINARY), CAST(seat AS BINARY), CONCAT(id IS NULL, at IS NULL, seat IS NULL, @@time_zone)",
                "CAST(id AS BINARY), CAST(at AS BINARY), CAST(seat AS BINARY), CONCAT(id IS NULL, at IS NULL, seat IS NULL, @@time_zone), CONCAT('', ROW(NULL, NULL, NULL) = ",
            ],
            (ShardKind::Postgres, Table::Root) => &["id, n"],
            (ShardKind::Postgres, Table::Child) => &["id, at, seat"],
        };
        assert!(expected.contains(&values), "an unknown statement: {sql}");
        return Statement::Select(Scope::Ids(table, vec![number(id)]), lock);
    }
    if let Some(rest) = after(&sql, "UPDATE ") {
        let (name, rest) = rest.split_once(" SET ").unwrap_or_else(|| unknown());
        let table = table(name);
        let (set, is) = rest.split_once(" WHERE ").unwrap_or_else(|| unknown());
        let column = if table == Table::Root { "n = " } else { "seat = " };
        return Statement::Update(key(table, is), value(after(set, column).unwrap_or_else(|| unknown())));
    }
    if let Some(rest) = after(&sql, "DELETE FROM ") {
        let (name, rest) = rest.split_once(" WHERE ").unwrap_or_else(|| unknown());
        let keys = rest.split(" OR ").map(|of_key| {
            let inner = of_key.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
            key(table(name), inner.unwrap_or_else(|| unknown()))
        });
        return Statement::Delete(Scope::Keys(keys.collect()));
    }
    if let Some(rest) = after(&sql, "INSERT INTO ") {
        let (head, rest) = rest.split_once(" VALUES ").unwrap_or_else(|| unknown());
        let table = match head {
            "t (id, n)" => Table::Root,
            "c (id, at, seat)" => Table::Child,
            _ => unknown(),
        };
        let inner =
            rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or_else(|| unknown());
        let rows = inner.split("), (").map(|row| {
            let cells: Vec<&str> = row.split(", ").collect();
            match (table, cells.as_slice()) {
                (Table::Root, [id, n]) => (Key { table, id: number(id), at: 0 }, value(n)),
                (Table::Child, [id, at, seat]) => {
                    (Key { table, id: number(id), at: number(at) }, value(seat))
                }
                _ => unknown(),
            }
        });
        return Statement::Insert { rows: rows.collect(), or_replace: false };
    }
    unknown()
}

fn text(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// The answer to a statement, as a driver has it.
pub(super) fn answer(
    database: &Database,
    connection: usize,
    statement: &Statement,
    found: &[(Key, Value)],
) -> Vec<ShardRow> {
    let row =
        |cells: &[&str]| -> ShardRow { cells.iter().map(|cell| Some(cell.as_bytes().to_vec())).collect() };
    match statement {
        Statement::Catalogue(rows) => rows.iter().map(|cells| row(cells)).collect(),
        Statement::LockId(_, mark) => vec![row(&["read committed", "", mark])],
        Statement::PinOld => vec![row(&[&database.mark(connection), "154"])],
        Statement::PinNew(_) => vec![row(&["read committed", "154"])],
        Statement::Probe { .. } => found.iter().map(|_| row(&["1"])).collect(),
        Statement::Select(..) => {
            let cells = |(key, value): &(Key, Value)| {
                let mut cells = vec![Some(text(key.id))];
                if key.table == Table::Child {
                    cells.push(Some(text(key.at)));
                }
                cells.push(value.map(text));
                if database.kind == ShardKind::MySql {
                    let nulls: String =
                        cells.iter().map(|cell| if cell.is_some() { '0' } else { '1' }).collect();
                    cells.push(Some((nulls + "+00:00").into_bytes()));
                    cells.push(None);
                }
                cells
            };
            found.iter().map(cells).collect()
        }
        _ => Vec::new(),
    }
}
