//! The database of an application as a mill: what frameworks know of it (JDBC URLs, SQLAlchemy's, `DATABASE_URL`, an entry of Django's
//! `DATABASES`) as a configuration string.
//!
//! A parameter either has a counterpart, or is known to mean nothing for a store (a pool's size, a fetch size), or is refused by name: none is
//! dropped, and encryption is never weaker than the application's own. No message has a value that may be a password.

use std::collections::BTreeMap;
use std::path::Path;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::error::{Error, Result, shown};

/// The page that has the parameters.
const PAGE: &str = "docs/application-database.md";

/// What is percent-encoded in a part of a configuration string.
const RESERVED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'/')
    .add(b'?')
    .add(b'#')
    .add(b'&')
    .add(b'=')
    .add(b'@')
    .add(b':')
    .add(b'+');

const KNOWN: &str = "keymill keeps its rows on MySQL, MariaDB, TiDB, PostgreSQL, SQLite and Redis";

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Database {
    MySql,
    Postgres,
    Sqlite,
}

/// Whose parameters they are: units and defaults differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Jdbc,
    /// C libraries, Python, Node, Ruby: times are seconds.
    Other,
}

/// A server's name without what stands before it: `mysql`, `mariadb`, `postgresql` …
fn database(name: &str) -> Option<Database> {
    Some(match name {
        "mysql" | "mysql2" | "mariadb" | "tidb" | "mysqlgis" => Database::MySql,
        "postgres" | "postgresql" | "psql" | "pgsql" | "postgis" | "postgresql_psycopg2" => {
            Database::Postgres
        }
        "sqlite" | "sqlite3" | "spatialite" | "file" => Database::Sqlite,
        _ => return None,
    })
}

/// The configuration string for the database of an application.
///
/// `url` is a JDBC URL, one of SQLAlchemy, a `DATABASE_URL` or `django:ENGINE`; `properties` are what the framework keeps beside it: a
/// user, a password, the properties of a connection, or the keys of a Django entry (`NAME`, `HOST`, `OPTIONS.sslmode` …). A property
/// counts more than the same parameter of the URL.
///
/// A SQLite file gives `NAME.keymill` beside it: ids are reserved while the application's own transaction holds its file.
///
/// ```
/// let store = keymill::store_of("jdbc:mysql://db:3306/shop?sslMode=VERIFY_IDENTITY", &[("user", "app"), ("password", "s@cret")])?;
/// assert_eq!(store, "mysql://app:s%40cret@db:3306/shop?tls=verify");
/// # Ok::<(), keymill::Error>(())
/// ```
///
/// # Errors
/// `INVALID_CONFIG`: a database that keymill does not know, or a parameter that has no counterpart, by its name.
pub fn store_of(url: &str, properties: &[(&str, &str)]) -> Result<String> {
    let mut parts = Parts::read(url)?;
    for (name, value) in properties {
        parts.parameters.insert((*name).to_owned(), (*value).to_owned());
    }
    parts.translated()
}

/// What a URL says.
#[derive(Default)]
struct Parts {
    client: Option<Client>,
    database: Option<Database>,
    user: Option<String>,
    password: Option<String>,
    /// With their ports.
    hosts: Vec<String>,
    name: String,
    parameters: BTreeMap<String, String>,
}

fn unknown(name: &str) -> Error {
    let is_word = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "+_-.".contains(c));
    let which = if is_word { format!(" `{}`", shown(name)) } else { String::new() };
    Error::config(format!(
        "the application's database{which} cannot keep ids: {KNOWN}; name a store of keymill's own, such as `sqlite:keymill.db`"
    ))
}

fn decoded(text: &str) -> Result<String> {
    let text = percent_decode_str(text).decode_utf8();
    text.map(std::borrow::Cow::into_owned)
        .map_err(|_| Error::config("the database's URL is not UTF-8 once its %XX are decoded"))
}

impl Parts {
    fn read(url: &str) -> Result<Parts> {
        if let Some(rest) = url.strip_prefix("jdbc:") {
            return Parts::jdbc(rest);
        }
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(Error::config(
                "the application's database is given by no URL: write one such as jdbc:mysql://host/database or postgresql://host/database",
            ));
        };
        if scheme == "django" {
            let name = rest.rsplit('.').next().unwrap_or_default();
            let database = database(name).ok_or_else(|| unknown(rest))?;
            return Ok(Parts { client: Some(Client::Other), database: Some(database), ..Parts::default() });
        }
        let name = scheme.split('+').next().unwrap_or_default();
        let database = database(&name.to_ascii_lowercase()).ok_or_else(|| unknown(scheme))?;
        Parts { client: Some(Client::Other), database: Some(database), ..Parts::default() }.located(rest)
    }

    fn jdbc(rest: &str) -> Result<Parts> {
        // Wrappers that log or trace: what they wrap is the database.
        for wrapper in ["p6spy:", "log4jdbc:", "tracing:", "otel:", "datadog:"] {
            if let Some(rest) = rest.strip_prefix(wrapper) {
                return Parts::jdbc(rest);
            }
        }
        let (name, rest) = rest.split_once(':').unwrap_or((rest, ""));
        if name == "tc" {
            return Err(Error::config(
                "a `jdbc:tc:` URL starts a database of its own for each connection; take the URL of a container that is started once",
            ));
        }
        let database = database(name).filter(|_| name != "file").ok_or_else(|| unknown(name))?;
        let parts = Parts { client: Some(Client::Jdbc), database: Some(database), ..Parts::default() };
        if database == Database::MySql && !rest.starts_with("//") {
            // `sequential` takes the first host that answers, as keymill takes the first that is writable.
            let Some(rest) = rest.strip_prefix("sequential:") else {
                return Err(Error::config(format!(
                    "of `jdbc:{name}:` URLs only those with `//` or `sequential://` have a counterpart: a store has one server that takes writes; name its host"
                )));
            };
            return parts.located(rest);
        }
        if database == Database::Postgres && !rest.starts_with("//") {
            // `jdbc:postgresql:shop` is the database of this name on this machine.
            return parts.located(&format!("//localhost/{}", rest.trim_start_matches('/')));
        }
        parts.located(rest)
    }

    /// Reads `//user:password@host:port,host/database?name=value` or a path.
    fn located(mut self, rest: &str) -> Result<Parts> {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        for pair in query.split(['&', ';']).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            self.parameters.insert(decoded(name)?, decoded(value)?);
        }
        if self.database == Some(Database::Sqlite) {
            self.name = decoded(place)?;
            return Ok(self);
        }
        let Some(place) = place.strip_prefix("//") else {
            return Err(Error::config(
                "the database's URL names no host: write //host:port/database behind its scheme",
            ));
        };
        let (server, name) = place.split_once('/').unwrap_or((place, ""));
        let (login, hosts) =
            server.rsplit_once('@').map_or((None, server), |(login, hosts)| (Some(login), hosts));
        if let Some(login) = login {
            let (user, password) =
                login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
            self.user = Some(decoded(user)?).filter(|user| !user.is_empty());
            self.password = password.map(decoded).transpose()?;
        }
        if hosts.contains(['(', ')']) || name.contains(['(', ')']) {
            return Err(Error::config(
                "hosts with properties of their own, `address=(…)`, have no counterpart; write host:port, and further ones behind commas",
            ));
        }
        self.hosts = hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        self.name = decoded(name)?;
        Ok(self)
    }

    /// Takes a parameter out, whatever the case of its name.
    fn take(&mut self, name: &str) -> Option<String> {
        let found = self.parameters.keys().find(|of| same(of, name)).cloned()?;
        self.parameters.remove(&found)
    }

    fn translated(mut self) -> Result<String> {
        // Django keeps options of the driver in a dictionary of their own.
        let own: Vec<String> =
            self.parameters.keys().filter(|name| name.starts_with("OPTIONS.")).cloned().collect();
        for name in own {
            if let Some(value) = self.parameters.remove(&name) {
                self.parameters.insert(name.trim_start_matches("OPTIONS.").to_owned(), value);
            }
        }
        for (names, place) in [(&["user", "username"], 0), (&["password", "passwd"], 1)] {
            for name in names {
                if let Some(value) = self.take(name).filter(|value| !value.is_empty()) {
                    *(if place == 0 { &mut self.user } else { &mut self.password }) = Some(value);
                }
            }
        }
        for name in ["NAME", "dbname", "database", "databaseName", "db"] {
            if let Some(value) = self.take(name).filter(|value| !value.is_empty()) {
                self.name = value;
            }
        }
        match self.database {
            Some(Database::Sqlite) => self.sqlite(),
            Some(Database::MySql) => self.server("mysql", 3306),
            _ => self.server("postgres", 5432),
        }
    }

    fn sqlite(mut self) -> Result<String> {
        let path = self.name.clone();
        // SQLAlchemy has three slashes before a relative path and four before an absolute one; JDBC none.
        let path = match path.strip_prefix("///") {
            Some(rest) => rest.to_owned(),
            None => path.strip_prefix("//").unwrap_or(&path).to_owned(),
        };
        let path = path.strip_prefix("file:").unwrap_or(&path);
        let mode = self.take("mode");
        if path.is_empty()
            || path.contains(":memory:")
            || path.starts_with(':')
            || mode.as_deref() == Some("memory")
            || path.starts_with("memorydb_")
        {
            return Err(Error::config(
                "a database in memory cannot keep ids; name a store of keymill's own: `memory:` for one process, `sqlite:FILE` for all of this machine",
            ));
        }
        let path = Path::new(path).with_extension("keymill");
        Ok(format!("sqlite:{}", utf8_percent_encode(&path.to_string_lossy(), PATH)))
    }

    fn server(mut self, scheme: &str, port: u16) -> Result<String> {
        let mut options: Vec<(&str, String)> = Vec::new();
        let socket = self.socket();
        if let Some(host) = self.take("host").or_else(|| self.take("server")).filter(|host| !host.is_empty())
        {
            self.hosts = host.split(',').map(str::to_owned).collect();
        }
        if let Some(given) = self.take("port").filter(|port| !port.is_empty()) {
            for host in &mut self.hosts {
                if has_port(host).is_none() {
                    *host = format!("{}:{}", bracketed(host), shown(&given));
                }
            }
        }
        if self.hosts.is_empty() {
            self.hosts.push("localhost".to_owned());
        }
        if self.name.is_empty() {
            return Err(Error::config(
                "the application's database has no name: keymill's tables have to lie in one",
            ));
        }
        self.encryption(&mut options)?;
        self.times(&mut options)?;
        if let Some(schema) = self.schema()? {
            options.push(("schema", schema));
        }
        if let Some(socket) = socket {
            options.push(("socket", socket));
        }
        self.rest()?;
        let login = match (&self.user, &self.password) {
            (None, _) => String::new(),
            (Some(user), None) => format!("{}@", encoded(user)),
            (Some(user), Some(password)) => format!("{}:{}@", encoded(user), encoded(password)),
        };
        let hosts: Vec<String> =
            self.hosts
                .iter()
                .map(|host| {
                    if has_port(host).is_some() {
                        host.clone()
                    } else {
                        format!("{}:{port}", bracketed(host))
                    }
                })
                .collect();
        let mut store = format!("{scheme}://{login}{}/{}", hosts.join(","), encoded(&self.name));
        for (at, (option, value)) in options.iter().enumerate() {
            store.push_str(&format!(
                "{}{option}={}",
                if at == 0 { '?' } else { '&' },
                utf8_percent_encode(value, PATH)
            ));
        }
        // What a user wrote into a name or a host is checked where the string is read.
        super::url::parse(&store).map_err(|error| {
            Error::new(error.code, format!("the application's database, as a store: {}", error.message))
        })?;
        Ok(store)
    }

    /// A Unix socket: a parameter, or for PostgreSQL a host that is a folder.
    fn socket(&mut self) -> Option<String> {
        let named =
            ["unix_socket", "unixsocket", "localsocket", "socket"].iter().find_map(|name| self.take(name));
        if let Some(socket) = named.filter(|socket| !socket.is_empty()) {
            return Some(socket);
        }
        let of_host =
            self.parameters.iter().find(|(name, value)| same(name, "host") && value.starts_with('/'));
        let (name, folder) = of_host.map(|(name, value)| (name.clone(), value.clone()))?;
        self.parameters.remove(&name);
        if self.database == Some(Database::MySql) {
            return Some(folder);
        }
        let port = self
            .parameters
            .iter()
            .find(|(name, _)| same(name, "port"))
            .map_or("5432", |(_, port)| port.as_str());
        Some(format!("{}/.s.PGSQL.{port}", folder.trim_end_matches('/')))
    }

    /// `tls=`, `ca=`, `cert=` and `key=`.
    fn encryption(&mut self, options: &mut Vec<(&'static str, String)>) -> Result<()> {
        let mode = ["sslMode", "ssl-mode", "ssl_mode", "tls"].iter().find_map(|name| self.take(name));
        let mut level = match mode {
            Some(mode) => Some(level_of(&mode)?),
            None => None,
        };
        let raise = |level: &mut Option<Level>, to: Level| *level = Some(level.map_or(to, |had| had.max(to)));
        for (name, to) in [
            ("useSSL", Level::Require),
            ("requireSSL", Level::Require),
            ("verifyServerCertificate", Level::Verify),
            ("ssl", Level::Verify),
            ("ssl_verify_cert", Level::Verify),
            ("ssl_verify_identity", Level::Verify),
            ("sslaccept", Level::Verify),
        ] {
            let Some(value) = self.take(name) else { continue };
            // Drivers differ in what `ssl` on alone checks; the application's certificate then has to be a good one.
            match value.to_ascii_lowercase().as_str() {
                "false" | "0" | "no" | "off" | "disable" | "none" => {
                    if name == "useSSL" || name == "ssl" {
                        level = level.or(Some(Level::Off));
                    }
                }
                "accept_invalid_certs" | "prefer" => raise(&mut level, Level::Require),
                "true" | "1" | "yes" | "on" | "" | "require" | "strict" | "verify" | "verify-full"
                | "verify_ca" => {
                    raise(
                        &mut level,
                        if value.eq_ignore_ascii_case("require") { Level::Require } else { to },
                    );
                }
                _ => return Err(no_counterpart(name)),
            }
        }
        if let Some(factory) = self.take("sslfactory") {
            match factory.rsplit('.').next() {
                Some("NonValidatingFactory") => level = Some(Level::Require),
                Some("DefaultJavaSSLFactory" | "LibPQFactory") => {}
                _ => return Err(no_counterpart("sslfactory")),
            }
        }
        let mut files = Vec::new();
        for (names, option) in [
            (&["sslrootcert", "ssl_ca", "ssl-ca", "ssl.ca", "serverSslCert", "sslca"][..], "ca"),
            (&["sslcert", "ssl_cert", "ssl-cert", "ssl.cert"][..], "cert"),
            (&["sslkey", "ssl_key", "ssl-key", "ssl.key"][..], "key"),
        ] {
            for name in names {
                let Some(file) = self.take(name).filter(|file| !file.is_empty()) else { continue };
                if option == "ca" && file == "system" {
                    raise(&mut level, Level::Verify);
                    continue;
                }
                let ending = file.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
                if matches!(ending.as_str(), "pk8" | "p12" | "pfx" | "jks" | "der")
                    || file.starts_with("classpath:")
                {
                    return Err(Error::config(format!(
                        "parameter `{name}` names a file that is no PEM: convert it, and name a store with `{option}=FILE.pem` ({PAGE})"
                    )));
                }
                if file.contains("-----BEGIN") {
                    return Err(Error::config(format!(
                        "parameter `{name}` holds a certificate or key itself: write it into a file, and name the file"
                    )));
                }
                raise(&mut level, if option == "ca" { Level::Verify } else { Level::Require });
                files.push((option, file));
            }
        }
        if let Some(level) = level {
            options.push(("tls", level.word().to_owned()));
        }
        options.extend(files);
        Ok(())
    }

    /// `connect_timeout=` and `timeout=`.
    fn times(&mut self, options: &mut Vec<(&'static str, String)>) -> Result<()> {
        let in_ms = self.client == Some(Client::Jdbc) && self.database == Some(Database::MySql);
        for (names, option, in_ms) in [
            (&["connectTimeout"][..], "connect_timeout", in_ms),
            (&["connect_timeout"][..], "connect_timeout", false),
            (&["socketTimeout", "socket_timeout"][..], "timeout", in_ms),
            (&["read_timeout", "command_timeout"][..], "timeout", false),
        ] {
            for name in names {
                let Some(text) = self.take(name).filter(|text| !text.is_empty()) else { continue };
                let Some(time) = text.parse::<f64>().ok().filter(|time| (0.0..=3.6e6).contains(time)) else {
                    return Err(Error::config(format!("parameter `{name}` is no time: a number")));
                };
                let ms = (if in_ms { time } else { time * 1000.0 }).round() as u64;
                // 0 is for ever, and a store's answer has an end.
                if ms > 0 && options.iter().all(|(of, _)| *of != option) {
                    options.push((option, format!("{}ms", ms.min(3_600_000))));
                }
            }
        }
        Ok(())
    }

    fn schema(&mut self) -> Result<Option<String>> {
        if self.database != Some(Database::Postgres) {
            return Ok(None);
        }
        let named = ["currentSchema", "schema", "search_path"].iter().find_map(|name| self.take(name));
        let of_options = match self.take("options") {
            None => None,
            Some(text) => Some(search_path(&text).ok_or_else(|| no_counterpart("options"))?),
        };
        let Some(schema) = named.or(of_options).filter(|schema| !schema.is_empty()) else { return Ok(None) };
        // Of a list the first schema is where the application's tables are made.
        let first = schema
            .split(',')
            .map(|of| of.trim().trim_matches('"'))
            .find(|of| !of.is_empty() && *of != "$user");
        Ok(first.map(str::to_owned))
    }

    /// What is left has no meaning for a store, or no counterpart.
    fn rest(&mut self) -> Result<()> {
        for name in ["gssEncMode", "channel_binding"] {
            if self.take(name).is_some_and(|value| value.eq_ignore_ascii_case("require")) {
                return Err(no_counterpart(name));
            }
        }
        for name in self.parameters.keys() {
            if !WITHOUT_MEANING.iter().any(|known| same(known, name)) {
                return Err(no_counterpart(name));
            }
        }
        Ok(())
    }
}

/// What follows `search_path=` in libpq's `options`, where nothing else stands there.
fn search_path(options: &str) -> Option<String> {
    let rest = options.trim().strip_prefix("-c")?.trim_start();
    let path = rest.strip_prefix("search_path=")?;
    (!path.contains(" -")).then(|| path.to_owned())
}

fn no_counterpart(name: &str) -> Error {
    Error::config(format!(
        "parameter `{}` of the application's database has no counterpart in a store, and is not left out in silence: name the store itself, as `mysql://…` or `postgres://…` ({PAGE})",
        shown(name)
    ))
}

/// How much a connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Off,
    Prefer,
    Require,
    Verify,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Off => "off",
            Level::Prefer => "prefer",
            Level::Require => "require",
            Level::Verify => "verify",
        }
    }
}

/// A mode of any client. What it checks half (`verify-ca`) is checked whole.
fn level_of(mode: &str) -> Result<Level> {
    Ok(match mode.to_ascii_lowercase().replace('_', "-").as_str() {
        "disable" | "disabled" | "off" | "false" | "0" => Level::Off,
        "allow" | "prefer" | "preferred" => Level::Prefer,
        "require" | "required" | "trust" | "true" | "1" | "no-verify" => Level::Require,
        "verify-ca" | "verify-full" | "verify-identity" | "verify" | "strict" => Level::Verify,
        _ => {
            return Err(Error::config(format!(
                "parameter `sslMode` has a value that keymill does not know; name the store itself, with `tls=` ({PAGE})"
            )));
        }
    })
}

/// One parameter, whatever its case and whether `-` or `_` stands in it.
fn same(one: &str, other: &str) -> bool {
    let plain = |text: &str| {
        text.chars().filter(|c| !"-_".contains(*c)).map(|c| c.to_ascii_lowercase()).collect::<String>()
    };
    plain(one) == plain(other)
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// What is percent-encoded in a path or the value of an option.
const PATH: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'?').add(b'#').add(b'&');

/// The port behind a host; an address of IPv6 stands in brackets.
fn has_port(host: &str) -> Option<&str> {
    let (name, port) = host.rsplit_once(':')?;
    (!port.is_empty()
        && port.bytes().all(|c| c.is_ascii_digit())
        && (!name.contains(':') || name.ends_with(']')))
    .then_some(port)
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

/// Parameters of drivers, pools and frameworks that say nothing about where the database is, who asks, and how the connection is
/// protected.
const WITHOUT_MEANING: &[&str] = &[
    // Texts and times: keymill's statements have their own.
    "useUnicode",
    "characterEncoding",
    "connectionCollation",
    "charset",
    "collation",
    "character_set",
    "client_encoding",
    "serverTimezone",
    "connectionTimeZone",
    "forceConnectionTimeZoneToSession",
    "useLegacyDatetimeCode",
    "timezone",
    "tz",
    "TIME_ZONE",
    "USE_TZ",
    "zeroDateTimeBehavior",
    "yearIsDateType",
    "noDatetimeStringSync",
    "useTimezone",
    "tinyInt1isBit",
    "transformedBitIsBoolean",
    "sessionVariables",
    "init_command",
    "sql_mode",
    "isolation_level",
    "stringtype",
    // Statements and results.
    "rewriteBatchedStatements",
    "reWriteBatchedInserts",
    "useServerPrepStmts",
    "cachePrepStmts",
    "prepStmtCacheSize",
    "prepStmtCacheSqlLimit",
    "cacheResultSetMetadata",
    "cacheServerConfiguration",
    "cacheCallableStmts",
    "useLocalSessionState",
    "elideSetAutoCommits",
    "maintainTimeStats",
    "useCursorFetch",
    "defaultFetchSize",
    "defaultRowFetchSize",
    "prepareThreshold",
    "preparedStatementCacheQueries",
    "preparedStatementCacheSizeMiB",
    "preferQueryMode",
    "binaryTransfer",
    "adaptiveFetch",
    "allowMultiQueries",
    "useAffectedRows",
    "nullCatalogMeansCurrent",
    "nullDatabaseMeansCurrent",
    "noAccessToProcedureBodies",
    "useInformationSchema",
    "getProceduresReturnsFunctions",
    "autocommit",
    "autosave",
    "ATOMIC_REQUESTS",
    "AUTOCOMMIT",
    "DISABLE_SERVER_SIDE_CURSORS",
    "prepared_statement_cache_size",
    "statement_cache_size",
    "prepared_statement_name_func",
    "prepare_threshold",
    "statement_cache_capacity",
    "pgbouncer",
    "cursor_factory",
    "server_side_binding",
    "conv",
    "cursorclass",
    "local_infile",
    "allowLoadLocalInfile",
    "allowUrlInLocalInfile",
    // Pools and names.
    "application_name",
    "ApplicationName",
    "fallback_application_name",
    "connectionAttributes",
    "program_name",
    "pool",
    "pool_size",
    "max_overflow",
    "pool_timeout",
    "pool_recycle",
    "pool_pre_ping",
    "connection_limit",
    "max_connections",
    "min_connections",
    "pool_min",
    "pool_max",
    "CONN_MAX_AGE",
    "CONN_HEALTH_CHECKS",
    "poolName",
    "maximumPoolSize",
    "minimumIdle",
    "maxLifetime",
    "idleTimeout",
    "keepaliveTime",
    "connectionTestQuery",
    "autoReconnect",
    "failOverReadOnly",
    "maxReconnects",
    "initialTimeout",
    "tcpKeepAlive",
    "tcpNoDelay",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
    "loggerLevel",
    "logger",
    "profileSQL",
    "dumpQueriesOnException",
    "useCompression",
    "compress",
    "readOnly",
    "readOnlyMode",
    "loadBalanceHosts",
    "hostRecheckSeconds",
    "targetServerType",
    "target_session_attrs",
    "loginTimeout",
    "allowPublicKeyRetrieval",
    "permitMysqlScheme",
    "usePipelineAuth",
    "cancelSignalTimeout",
    "queryTimeout",
    "ENGINE",
    "TEST",
    "driver",
    "driverClassName",
    "driver_class_name",
    "serverVersion",
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PASSWORD: &str = "hunter2-SECRET";

    proptest! {
        #[test]
        fn no_url_is_a_panic_and_no_message_has_the_password(
            scheme in prop::sample::select(vec!["jdbc:mysql:", "jdbc:postgresql:", "jdbc:h2:", "mysql+pymysql:", "postgres:", "sqlite:", "django:", "x:", ""]),
            before in "[a-z/@:?&=%(),;]{0,12}",
            after in ".{0,24}",
        ) {
            for url in [format!("{scheme}//app:{PASSWORD}@{before}{after}"), format!("{scheme}{before}{PASSWORD}{after}")] {
                for properties in [&[][..], &[("password", PASSWORD)][..], &[("sslMode", "x"), ("password", PASSWORD)][..]] {
                    if let Err(error) = store_of(&url, properties) {
                        // What stands where a name belongs is a name.
                        let as_a_name = url.contains(&format!("{before}{PASSWORD}"));
                        prop_assert!(as_a_name || !error.message.contains(PASSWORD), "{url}: {error}");
                    }
                }
            }
        }

        #[test]
        fn what_is_translated_is_a_configuration_string(user in "[^\u{0}]{1,12}", password in "[^\u{0}]{1,12}", name in "[a-z0-9_]{1,10}") {
            let store = store_of(&format!("jdbc:postgresql://db/{name}"), &[("user", &user), ("password", &password)]);
            let store = store.expect("any login is encoded");
            let read = super::super::url::parse(&store).expect("it is read");
            let super::super::StoreConfig::Postgres(server) = read.store else { panic!("{store}") };
            prop_assert_eq!((server.user.as_str(), server.password.reveal()), (user.as_str(), password.as_str()));
        }
    }
}
