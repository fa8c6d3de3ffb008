//! An entry of Django's `DATABASES`: `django:ENGINE`, and its other keys as properties. A name in `OPTIONS` is written `OPTIONS.charset`, a
//! name in a dictionary there `OPTIONS.ssl.ca`.

use crate::error::Result;

use super::client_library::{ClientLibrary, DatabaseKind};
use super::known_names::{MYSQL_CLIENTS, POSTGRES_CLIENTS, SQLITE_CLIENTS};
use super::settings::{Given, Settings};
use super::{KNOWN, refused};

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
    // Packages around Django's own backends name the database too: django_prometheus.db.backends.mysql, django_tidb,
    // mysql.connector.django, psqlextra.backend.
    let names = |words: &[&str]| words.iter().any(|word| engine.to_ascii_lowercase().contains(word));
    let found: [(&[&str], &'static ClientLibrary); 3] = [
        (&["mysql", "mariadb", "tidb"], &MYSQL_CLIENTS),
        (&["postgres", "postgis", "psql"], &POSTGRES_CLIENTS),
        (&["sqlite", "spatialite"], &SQLITE_CLIENTS),
    ];
    let mut found = found.into_iter().filter(|(words, _)| names(words)).map(|(_, library)| library);
    let (Some(library), None) = (found.next(), found.next()) else {
        return Err(refused(format!(
            "the ENGINE of the DATABASES entry cannot be a store: {KNOWN} (django.db.backends.mysql, .postgresql, .sqlite3)"
        )));
    };
    let mut settings = Settings::new(library);
    for (key, value) in entry {
        if let Some((_, name)) = KEYS.iter().find(|(own, _)| own == key) {
            // An empty one is not given, and of SQLite Django reads the name alone.
            let is_read = *key == "NAME" || library.kind != DatabaseKind::Sqlite;
            if is_read && !value.is_empty() {
                settings.take(Given::property(name, value))?;
            }
        } else if let Some(name) = key.strip_prefix("OPTIONS.") {
            settings.take(Given::property(name, value))?;
        } else if !OF_DJANGO.contains(&key.split('.').next().unwrap_or_default()) {
            settings.take_unknown(Given::property(key, value))?;
        }
    }
    if library.kind == DatabaseKind::Sqlite {
        let file = settings.database.clone().unwrap_or_default();
        return settings.into_file(&file);
    }
    settings.into_mill()
}
