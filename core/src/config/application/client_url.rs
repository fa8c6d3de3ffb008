//! The URLs of other languages: SQLAlchemy's, `DATABASE_URL`, Prisma's; and the parts of every URL.

use std::path::Path;

use crate::config::url::not_as_in_xml;
use crate::error::{Error, Result};

use super::client_library::{ClientLibrary, DatabaseKind, Role};
use super::known_names::{MYSQL_CLIENTS, POSTGRES_CLIENTS, SQLITE_CLIENTS};
use super::settings::{Given, HostPort, Settings, is_word};
use super::{KNOWN, decoded, refused};

/// Translates `scheme[+driver]://user:password@host:port/database?name=value`.
pub(super) fn translate(url: &str, properties: &[(&str, &str)]) -> Result<String> {
    // Without one it may be a bare password: it is not repeated.
    let Some((scheme, rest)) = url.split_once(':') else {
        return Err(refused(format!(
            "the application's database is no URL such as mysql://…, postgres://… or jdbc:…: {KNOWN}"
        )));
    };
    // SQLAlchemy writes a driver behind a `+`. Behind ODBC the host is a name of its manager's.
    let (database, driver) = scheme.split_once('+').unwrap_or((scheme, ""));
    let is_known = !driver.contains("odbc");
    match database {
        "mysql" | "mysql2" | "trilogy" | "mariadb" if is_known => server(&MYSQL_CLIENTS, rest, properties),
        "postgres" | "postgresql" | "pgsql" | "psql" if is_known => {
            server(&POSTGRES_CLIENTS, rest, properties)
        }
        "sqlite" | "sqlite3" => sqlite(rest, properties),
        "file" => prisma_file(rest, properties),
        // Such a server is more often a cache than the application's own database: numbers are kept there only where a mill names it.
        "redis" | "rediss" => Err(Error::config(
            "a URL of Redis is a mill's configuration string already: `open` and KEYMILL_CONFIG take it as it stands",
        )),
        _ => {
            // What stands before a port may be a login.
            let is_word = scheme.len() <= 40
                && rest.starts_with("//")
                && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-_".contains(c));
            let named = if is_word {
                format!("`{scheme}://` cannot be a store")
            } else {
                "the URL of the application's database names no store".to_owned()
            };
            Err(refused(format!("{named}: {KNOWN} (mysql://, mariadb://, postgresql://, sqlite:///)")))
        }
    }
}

fn server(library: &'static ClientLibrary, rest: &str, properties: &[(&str, &str)]) -> Result<String> {
    let Some(place) = rest.strip_prefix("//") else {
        return Err(refused("the URL of the application's database has no `//` before its host"));
    };
    let parts = UrlParts::of(library, place)?;
    let mut settings = Settings::new(library);
    parts.put_login(library, &mut settings)?;
    if !parts.hosts.is_empty() {
        settings.url_hosts = hosts(library, parts.hosts)?;
    }
    if !parts.database.is_empty() {
        settings.database = Some(decoded(parts.database, false)?);
    }
    parameters(library, parts.place, parts.query, &mut settings)?;
    settings.take_all(properties)?;
    settings.into_mill()
}

/// `sqlite:///relative.db`, `sqlite:////absolute.db`; others write `sqlite:relative.db` and `sqlite://./relative.db`.
fn sqlite(rest: &str, properties: &[(&str, &str)]) -> Result<String> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match path.strip_prefix("//") {
        Some(after) => after.strip_prefix('/').unwrap_or(after),
        None => path,
    };
    let mut settings = Settings::new(&SQLITE_CLIENTS);
    parameters(&SQLITE_CLIENTS, path, query, &mut settings)?;
    settings.take_all(properties)?;
    settings.into_file(&decoded(path, false)?)
}

/// `file:/folder/dev.db`, as Prisma writes SQLite files.
fn prisma_file(rest: &str, properties: &[(&str, &str)]) -> Result<String> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.starts_with('/') && !Path::new(path).is_absolute() {
        return Err(refused(
            "`file:` with a relative path counts from a folder that only Prisma knows: write the file's absolute path, or a store of its own such as sqlite:keymill.db",
        ));
    }
    let mut settings = Settings::new(&SQLITE_CLIENTS);
    parameters(&SQLITE_CLIENTS, path, query, &mut settings)?;
    settings.take_all(properties)?;
    settings.into_file(&decoded(path, false)?)
}

/// What follows the `//` of a URL, split and not decoded.
pub(super) struct UrlParts<'a> {
    user: Option<&'a str>,
    password: Option<&'a str>,
    /// Hosts and database.
    pub(super) place: &'a str,
    pub(super) hosts: &'a str,
    pub(super) database: &'a str,
    pub(super) query: &'a str,
}

impl<'a> UrlParts<'a> {
    pub(super) fn of(library: &ClientLibrary, text: &'a str) -> Result<UrlParts<'a>> {
        // Some libraries end there and some do not: a password that holds one would be cut.
        if library.is_encoded && text.contains('#') {
            return Err(refused(
                "the URL of the application's database has a `#`; in a password or a value it is written %23",
            ));
        }
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        // The last @ ends the login: a password may hold one, percent-encoded or not.
        let (login, place) = match place.rsplit_once('@') {
            Some((login, place)) => (Some(login), place),
            None => (None, place),
        };
        let (user, password) = match login {
            Some(login) => match login.split_once(':') {
                Some((user, password)) => (Some(user), Some(password)),
                None => (Some(login), None),
            },
            None => (None, None),
        };
        let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
        Ok(UrlParts { user, password, place, hosts, database, query })
    }

    /// Puts user and password into the settings.
    pub(super) fn put_login(&self, library: &ClientLibrary, settings: &mut Settings) -> Result<()> {
        // `+` is one in a login: only what stands behind a `?` is a form.
        let plus = library.has_plus && !(library.kind == DatabaseKind::Postgres) && self.user.is_some();
        let read = |text: &str| if library.is_encoded { decoded(text, plus) } else { Ok(text.to_owned()) };
        settings.user = self.user.filter(|user| !user.is_empty()).map(read).transpose()?;
        settings.password = self.password.map(read).transpose()?;
        Ok(())
    }
}

/// `host:port,[::1]:port`. No message repeats it: a password with a `/` or a `?` ends up here.
pub(super) fn hosts(library: &ClientLibrary, text: &str) -> Result<Vec<HostPort>> {
    let wrong = || {
        refused(
            "what follows the `//` of the application's URL is no host and port: write host:port or [::1]:port, and in a password `/`, `?`, `#` and `@` as %2F, %3F, %23 and %40",
        )
    };
    let host_and_port = |text: &str| -> Result<HostPort> {
        let text = text.trim();
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, rest) = rest.split_once(']').ok_or_else(wrong)?;
            (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(wrong)?) })
        } else {
            text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)))
        };
        let port = match port {
            None | Some("") => None,
            Some(port) => Some(port.parse().map_err(|_| wrong())?),
        };
        // A list of keys and values, as `address=(host=…)`, or a login.
        if host.contains(['(', ')', '=', '@']) {
            return Err(wrong());
        }
        let host = if library.is_encoded { decoded(host, false)? } else { host.to_owned() };
        Ok((host, port))
    };
    text.split(',').map(host_and_port).collect()
}

/// Takes the parameters of a URL in. `place` is what stands before them.
pub(super) fn parameters(
    library: &ClientLibrary,
    place: &str,
    query: &str,
    settings: &mut Settings,
) -> Result<()> {
    not_as_in_xml(query)?;
    // What follows a password, or is followed by an `@`, may be a piece of a password: unknown names are not repeated. Where no
    // database stands before it, the URL may have been cut inside its login (`app:12?3@db/shop`): unknown names are refused.
    let mut is_behind_password = false;
    let mut rest = query;
    while !rest.is_empty() {
        let is_before_at = rest.contains('@');
        let (pair, after) = rest.split_once('&').unwrap_or((rest, ""));
        rest = after;
        if pair.is_empty() {
            continue;
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = if library.is_encoded { decoded(name, library.has_plus)? } else { name.to_owned() };
        let value = if library.is_encoded { decoded(value, library.has_plus)? } else { value.to_owned() };
        let has_value = pair.contains('=');
        settings.take(Given {
            name: &name,
            value: &value,
            is_shown: has_value && !is_before_at && !is_behind_password && is_word(&name),
            is_doubtful: !has_value || is_before_at && !place.contains('/'),
        })?;
        is_behind_password |= matches!(library.role(&name), Some((_, Role::Password)));
    }
    Ok(())
}
