//! JDBC URLs, with the properties that stand beside them.

use crate::error::Result;

use super::client_library::ClientLibrary;
use super::client_url::{UrlParts, hosts, parameters};
use super::known_names::{CONNECTOR_J, MARIADB_JAVA, PGJDBC, SQLITE_JDBC};
use super::settings::Settings;
use super::{KNOWN, decoded, refused};

/// Drivers that pass everything on to the one whose URL follows.
const WRAPPERS: [&str; 4] = ["log4jdbc:", "p6spy:", "tracing:", "otel:"];

/// Databases that a JDBC URL begins with and that cannot be a store, and what to do.
const OTHERS: [(&str, &str); 6] = [
    (
        "h2",
        "H2 cannot be a store: configure one beside it, such as sqlite:keymill.db (keymill.config=sqlite:keymill.db), or memory: in a test whose mill lives as long as the database",
    ),
    (
        "hsqldb",
        "HSQLDB cannot be a store: configure one beside it, such as sqlite:keymill.db (keymill.config=sqlite:keymill.db), or memory: in a test whose mill lives as long as the database",
    ),
    (
        "derby",
        "Derby cannot be a store: configure one beside it, such as sqlite:keymill.db (keymill.config=sqlite:keymill.db), or memory: in a test whose mill lives as long as the database",
    ),
    (
        "tc",
        "`jdbc:tc:` is a container that Testcontainers starts, on a port that only its driver learns: give the container's own JDBC URL (getJdbcUrl())",
    ),
    (
        "aws-wrapper",
        "`jdbc:aws-wrapper:` finds its hosts and passwords by itself: write the cluster's writer endpoint",
    ),
    ("mysql+srv", "`jdbc:mysql+srv:` asks the DNS for its hosts: write the hosts"),
];

/// Translates what follows `jdbc:`.
pub(super) fn translate(url: &str, properties: &[(&str, &str)]) -> Result<String> {
    let mut rest = url;
    while let Some(inner) = WRAPPERS.iter().find_map(|wrapper| rest.strip_prefix(wrapper)) {
        rest = inner;
    }
    let Some((database, rest)) = rest.split_once(':') else {
        return Err(refused(
            "the JDBC URL names no database: it begins with jdbc:mysql:, jdbc:mariadb:, jdbc:postgresql: or jdbc:sqlite:",
        ));
    };
    match database {
        // MariaDB's driver takes it by this word.
        "mysql" if rest.contains("permitMysqlScheme") => mysql(&MARIADB_JAVA, rest, properties),
        "mysql" => mysql(&CONNECTOR_J, rest, properties),
        "mariadb" => mysql(&MARIADB_JAVA, rest, properties),
        "postgresql" => postgres(rest, properties),
        "sqlite" => sqlite(rest, properties),
        _ => {
            if let Some((_, why)) = OTHERS.iter().find(|(name, _)| *name == database) {
                return Err(refused(why));
            }
            let is_word = database.len() <= 40
                && database.chars().all(|c| c.is_ascii_alphanumeric() || "+-_".contains(c));
            let named = if is_word {
                format!("`jdbc:{database}:` cannot be a store")
            } else {
                "the JDBC URL names no store".to_owned()
            };
            Err(refused(format!(
                "{named}: {KNOWN} (jdbc:mysql:, jdbc:mariadb:, jdbc:postgresql:, jdbc:sqlite:)"
            )))
        }
    }
}

fn mysql(library: &'static ClientLibrary, rest: &str, properties: &[(&str, &str)]) -> Result<String> {
    let Some((mode, place)) = rest.split_once("//") else {
        return Err(refused("the JDBC URL has no `//` before its host"));
    };
    let writes_to_first = match mode.to_ascii_lowercase().as_str() {
        "" | "sequential:" => false,
        "replication:" => true,
        "loadbalance:" | "load-balance:" | "load-balance-read:" | "failover:" | "aurora:" => {
            return Err(refused(format!(
                "the JDBC URL spreads its statements over hosts (`{mode}`), and keymill's are written to one: name the host that keymill writes to, and behind a comma those that take its place when it fails"
            )));
        }
        _ => return Err(refused("keymill does not know what stands before the `//` of the JDBC URL")),
    };
    let parts = UrlParts::of(library, place)?;
    let mut settings = Settings::new(library);
    parts.put_login(library, &mut settings)?;
    settings.url_hosts = hosts(library, parts.hosts)?;
    if writes_to_first {
        // The others are replicas.
        settings.url_hosts.truncate(1);
    }
    if !parts.database.is_empty() {
        settings.database = Some(if library.is_encoded {
            decoded(parts.database, library.has_plus)?
        } else {
            parts.database.to_owned()
        });
    }
    parameters(library, parts.place, parts.query, &mut settings)?;
    settings.take_all(properties)?;
    settings.into_mill()
}

fn postgres(rest: &str, properties: &[(&str, &str)]) -> Result<String> {
    let mut settings = Settings::new(&PGJDBC);
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let database = match place.strip_prefix("//") {
        None => place,
        Some(place) => {
            let (names, database) = place.split_once('/').unwrap_or((place, ""));
            if !names.is_empty() {
                settings.url_hosts = hosts(&PGJDBC, names)?;
            }
            database
        }
    };
    if database.contains('/') {
        return Err(refused("the JDBC URL has a `/` too many: jdbc:postgresql://host:port/database"));
    }
    if !database.is_empty() {
        settings.database = Some(decoded(database, true)?);
    }
    parameters(&PGJDBC, place, query, &mut settings)?;
    settings.take_all(properties)?;
    settings.into_mill()
}

fn sqlite(rest: &str, properties: &[(&str, &str)]) -> Result<String> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut settings = Settings::new(&SQLITE_JDBC);
    parameters(&SQLITE_JDBC, path, query, &mut settings)?;
    settings.take_all(properties)?;
    settings.into_file(path)
}
