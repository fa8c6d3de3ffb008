//! An entry of Django's `DATABASES`: `django:ENGINE`, and its other keys as properties. Those of `OPTIONS` are named
//! `OPTIONS.charset`, those of a dictionary in it `OPTIONS.ssl.ca`.

use crate::error::Result;

use super::client_library::{ClientLibrary, DatabaseKind};
use super::other_libraries::{MYSQL_CLIENTS, POSTGRES_CLIENTS, SQLITE_CLIENTS};
use super::settings::{Given, Settings};
use super::{KNOWN, database_file, refused};

/// The entry's own keys, and which parameter each of them is.
const KEYS: [(&str, &str); 5] =
    [("NAME", "database"), ("USER", "user"), ("PASSWORD", "password"), ("HOST", "host"), ("PORT", "port")];

/// Keys of an entry that concern Django alone.
const OF_DJANGO: [&str; 7] = [
    "ATOMIC_REQUESTS",
    "AUTOCOMMIT",
    "CONN_MAX_AGE",
    "CONN_HEALTH_CHECKS",
    "TIME_ZONE",
    "DISABLE_SERVER_SIDE_CURSORS",
    "TEST",
];

/// Translates an entry with this `ENGINE`.
pub(super) fn translate(engine: &str, entry: &[(&str, &str)]) -> Result<String> {
    // Packages around Django's own backends (django_prometheus.db.backends.mysql) keep the last word.
    let library: &'static ClientLibrary = match engine.rsplit('.').next().unwrap_or_default() {
        "mysql" => &MYSQL_CLIENTS,
        "postgresql" | "postgresql_psycopg2" | "postgis" => &POSTGRES_CLIENTS,
        "sqlite3" | "spatialite" => &SQLITE_CLIENTS,
        _ => {
            return Err(refused(format!(
                "the ENGINE of the DATABASES entry cannot be a store: {KNOWN} (django.db.backends.mysql, .postgresql, .sqlite3)"
            )));
        }
    };
    let mut settings = Settings::new(library);
    for (key, value) in entry {
        if let Some((_, name)) = KEYS.iter().find(|(own, _)| own == key) {
            // An empty one is not given, and of SQLite Django reads the name alone.
            let is_read = *key == "NAME" || library.kind != DatabaseKind::Sqlite;
            if is_read && !value.is_empty() {
                settings.take(Given { name, value, is_shown: true })?;
            }
        } else if let Some(name) = key.strip_prefix("OPTIONS.") {
            // psycopg's pool has settings of its own.
            let name = if name.starts_with("pool.") { "pool" } else { name };
            settings.take(Given { name, value, is_shown: true })?;
        } else if !OF_DJANGO
            .iter()
            .any(|own| key == own || key.strip_prefix(own).is_some_and(|rest| rest.starts_with('.')))
        {
            return Err(refused(format!(
                "keymill does not know the key `{}` of the DATABASES entry, so it cannot tell what it means for the store",
                crate::error::shown(key)
            )));
        }
    }
    if library.kind == DatabaseKind::Sqlite {
        return database_file::beside(settings.database.as_deref().unwrap_or_default());
    }
    settings.into_mill()
}
