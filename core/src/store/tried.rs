//! The versions of servers that keymill's tests have run on, and what it says of a server that is older than these, or another one.

/// One kind of server.
struct Tried {
    /// As `status` names it.
    dialect: &'static str,
    name: &'static str,
    /// The tried versions, the oldest one first.
    versions: &'static [&'static str],
}

const TRIED: [Tried; 5] = [
    Tried { dialect: "mysql", name: "MySQL", versions: &["8.0", "9.7"] },
    Tried { dialect: "mariadb", name: "MariaDB", versions: &["10.5", "10.11", "11.8"] },
    Tried { dialect: "postgres", name: "PostgreSQL", versions: &["13", "15", "17", "18"] },
    Tried { dialect: "redis", name: "Redis", versions: &["6.0", "6.2", "7.0", "8.0"] },
    Tried { dialect: "valkey", name: "Valkey", versions: &["8.1", "9.1"] },
];

impl Tried {
    fn of(dialect: &str) -> Option<&'static Tried> {
        TRIED.iter().find(|tried| tried.dialect == dialect)
    }

    fn oldest(&self) -> Option<[u32; 2]> {
        numbers(self.versions.first()?)
    }

    /// The tried versions: `10.5, 10.11 and 11.8`.
    fn all(&self) -> String {
        match self.versions {
            [others @ .., last] if !others.is_empty() => format!("{} and {last}", others.join(", ")),
            versions => versions.concat(),
        }
    }
}

/// The oldest PostgreSQL that has what keymill's statements use.
const OLDEST_POSTGRES: u32 = 11;

/// The first two numbers of `10.11.19-MariaDB-0+deb12u1`, `13.16 (Debian 13.16-0+deb11u1)`, `18beta1`.
fn numbers(version: &str) -> Option<[u32; 2]> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let first = numbers.next()?.ok()?;
    Some([first, numbers.next().and_then(Result::ok).unwrap_or(0)])
}

/// The warning about a server that is older than all tried versions.
pub(crate) fn too_old(dialect: &str, version: &str) -> Option<String> {
    let (tried, found) = (Tried::of(dialect)?, numbers(version)?);
    (found < tried.oldest()?).then(|| {
        let (name, [major, minor]) = (tried.name, found);
        format!(
            "{name} {major}.{minor} is older than every version that keymill was tried on: {}",
            tried.all()
        )
    })
}

/// Why a PostgreSQL of this version cannot be used.
pub(crate) fn lacks_statements(version: &str) -> Option<String> {
    let [major, _] = numbers(version)?;
    (major < OLDEST_POSTGRES).then(|| {
        let tried = Tried::of("postgres").map(Tried::all).unwrap_or_default();
        format!("PostgreSQL {major} is too old: keymill needs {OLDEST_POSTGRES} or later, and was tried on {tried}")
    })
}

/// The warning about a server that speaks PostgreSQL's protocol and is another one, by its own words.
pub(crate) fn is_another(own_words: &str) -> Option<String> {
    let is_postgres =
        own_words.is_empty() || own_words.starts_with("PostgreSQL ") && !own_words.contains("-YB-");
    (!is_postgres).then(|| {
        let name: String = own_words.chars().filter(|c| !c.is_control()).take(60).collect();
        format!("the server calls itself `{name}`: keymill was tried on PostgreSQL itself only")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_older_than_every_tried_one_is_named() {
        for (dialect, version, says) in [
            ("mysql", "5.7.44-log", Some("MySQL 5.7 is older")),
            ("mysql", "8.0.33", None),
            ("mysql", "8.0.mysql_aurora.3.04.0", None),
            ("mysql", "26.10.0", None),
            (
                "mariadb",
                "10.4.34-MariaDB",
                Some(
                    "MariaDB 10.4 is older than every version that keymill was tried on: 10.5, 10.11 and 11.8",
                ),
            ),
            ("mariadb", "10.11.19-MariaDB-0+deb12u1", None),
            ("postgres", "12.4 (Debian 12.4-1)", Some("PostgreSQL 12.4 is older")),
            ("postgres", "13.16", None),
            ("postgres", "18beta1", None),
            ("redis", "5.0.14", Some("Redis 5.0 is older")),
            ("valkey", "7.2.5", Some("Valkey 7.2 is older")),
            ("valkey", "8.1.1", None),
            ("tidb", "8.0.11-TiDB-v8.5.1", None),
            ("mysql", "", None),
            ("mysql", "unknown", None),
        ] {
            let found = too_old(dialect, version);
            match says {
                Some(says) => {
                    assert!(found.as_deref().is_some_and(|text| text.starts_with(says)), "{found:?}");
                }
                None => assert_eq!(found, None, "{dialect} {version}"),
            }
        }
        let lacks = "needs 11 or later, and was tried on 13, 15, 17 and 18";
        assert!(lacks_statements("10.23").is_some_and(|text| text.ends_with(lacks)));
        assert!(lacks_statements("9.6.24").is_some() && lacks_statements("11.22").is_none());
        assert!(lacks_statements("").is_none());
    }

    #[test]
    fn a_server_that_is_no_postgresql_is_named_by_its_own_words() {
        assert_eq!(is_another("PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64"), None);
        assert_eq!(is_another(""), None);
        assert!(
            is_another("CockroachDB CCL v24.1.0")
                .is_some_and(|text| text.contains("`CockroachDB CCL v24.1.0`"))
        );
        assert!(is_another("PostgreSQL 11.2-YB-2.19.0.0-b0 on x86_64").is_some());
    }
}
