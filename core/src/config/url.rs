//! Store URLs: `memory:`, `sqlite:PATH`, `mysql://user:password@host:port/database?option=value`, `postgres://…`.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::error::{Error, Result, shown};
use crate::store::memory::Step;
use crate::store::server::{NEEDS_CA, PasswordSource, ServerOptions, Tls, TlsMode};
use crate::store::{Durability, Secret};
use crate::system::files;

use super::options::{self, Described};
use super::{Fork, MillConfig, StoreConfig};
use crate::time::duration;

/// Default of `max_sources`: some 400 MB. A program that names its sources has hundreds; a program that makes names from user input is
/// stopped before its memory is used up.
pub(super) const MAX_SOURCES: usize = 100_000;
/// Default of `reader_lease`.
pub(super) const READER_LEASE_MS: u64 = 10_000;

/// The highest `max_sources`.
const MOST_SOURCES: usize = 100_000_000;
const VALID: &str = "valid stores: sqlite:FILE, memory:, mysql://user@host:port/database, postgres://user@host:port/database, redis://host:port, file:CONFIG.toml";

pub(super) fn parse(config: &str) -> Result<MillConfig> {
    let (place, query) = config.split_once('?').map_or((config, ""), |(p, q)| (p, q));
    not_as_in_xml(query)?;
    // A URL without a known scheme may be a bare password: it is not repeated.
    let Some((scheme, rest)) = place.split_once(':') else {
        return Err(Error::config(format!("the configuration string names no store; {VALID}")));
    };
    if let Some((driver, store)) = driver_of(scheme) {
        return Err(Error::config(format!(
            "a URL of a driver, `{driver}`, names no store; write {store}://user@host:port/database; a program can give its application's own settings to `store_of`"
        )));
    }
    match scheme {
        "memory" => {
            let options = read_options(query, &[options::MEMORY], "memory")?;
            mill(StoreConfig::Memory { name: decode(rest)?, script: script(&options)? }, &options)
        }
        "sqlite" => sqlite(rest, query),
        "mysql" | "mariadb" => {
            let (server, options) = server(&MYSQL, rest, query)?;
            mill(StoreConfig::Mysql(server), &options)
        }
        "postgres" | "postgresql" => {
            let (server, options) = server(&POSTGRES, rest, query)?;
            // In any case: a server that takes no writes cannot reserve.
            match options.get("target_session_attrs").map(String::as_str) {
                None | Some("read-write") => mill(StoreConfig::Postgres(server), &options),
                Some(other) => Err(bad("target_session_attrs", other, "read-write")),
            }
        }
        "redis" => redis(rest, query),
        // The same, encrypted.
        "rediss" => match query.split('&').find_map(|pair| pair.strip_prefix("tls=")) {
            None => redis(rest, &format!("tls=verify&{query}")),
            Some("require" | "verify-ca" | "verify") => redis(rest, query),
            // The value may be what follows a `?` in a password.
            Some(_) => Err(Error::config(
                "`rediss:` is always encrypted: write tls=verify, tls=verify-ca or tls=require, or `redis:`",
            )),
        },
        // Only a word is repeated: what stands before a port may be a login.
        _ if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
            Err(Error::config(format!("unknown store `{}`; {VALID}", shown(scheme))))
        }
        _ => Err(Error::config(format!("the configuration string names no store; {VALID}"))),
    }
}

/// The driver whose URLs begin with this, as a word that may be repeated, and the store that is meant.
fn driver_of(scheme: &str) -> Option<(&'static str, &'static str)> {
    let database = scheme.split('+').next().unwrap_or_default();
    match (database, scheme.contains('+')) {
        ("jdbc" | "r2dbc", false) => Some(("jdbc:", "mysql://user@host:port/database or postgres")),
        ("mysql" | "mariadb", true) => Some(("mysql+driver:", "mysql")),
        ("postgresql" | "postgres", true) => Some(("postgresql+driver:", "postgres")),
        _ => None,
    }
}

/// Refuses a query whose options are separated as in a file of XML: `amp;tls` would be another option than `tls`.
pub(super) fn not_as_in_xml(query: &str) -> Result<()> {
    if query.contains("&amp;") {
        return Err(Error::config(
            "the URL has `&amp;`, which is `&` in XML only: write `&` between its options, and in a password %26",
        ));
    }
    Ok(())
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| Error::config("the store's URL is not UTF-8 once its %XX are decoded"))?;
    // The protocols end a name there: another user or database would be taken.
    if decoded.contains('\0') {
        return Err(Error::config("the store's URL has a NUL (%00), which no name or password has"));
    }
    Ok(decoded.into_owned())
}

fn read_options(query: &str, store: &[&'static [Described]], name: &str) -> Result<BTreeMap<String, String>> {
    let (store, server, mill) =
        (options::names(store), options::names(&[options::SERVER]), options::names(&[options::MILL]));
    let mut found = BTreeMap::new();
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let Some((option, value)) = pair.split_once('=') else {
            return Err(Error::config(format!(
                "store option `{}` has no value; write option=value",
                shown(pair)
            )));
        };
        if server.iter().all(|name| store.contains(name)) {
            if let Some(own) = own_word(option, value) {
                return Err(Error::config(format!(
                    "option `{}` is another client's; write {own}",
                    shown(option)
                )));
            }
            if NOTHING_TO_A_STORE.contains(&option) {
                return Err(Error::config(format!(
                    "option `{}` is another client's; leave it out",
                    shown(option)
                )));
            }
        }
        if !store.contains(&option) && !mill.contains(&option) {
            let valid: Vec<_> = store.iter().chain(&mill).copied().collect();
            return Err(Error::config(format!(
                "unknown option `{}` of store `{name}`; valid options: {}",
                shown(option),
                valid.join(", ")
            )));
        }
        if found.insert(option.to_owned(), decode(value)?).is_some() {
            return Err(Error::config(format!("store option `{option}` is given twice")));
        }
    }
    Ok(found)
}

/// Options that providers write into their URLs for pools and libraries, and that a store does not need.
const NOTHING_TO_A_STORE: [&str; 5] = ["pgbouncer", "connection_limit", "pool_timeout", "supa", "charset"];

/// keymill's name of an option that URLs of other clients have.
fn own_word(option: &str, value: &str) -> Option<&'static str> {
    Some(match option {
        "sslmode" | "ssl-mode" | "ssl_mode" | "sslMode" => match value.to_ascii_lowercase().as_str() {
            "prefer" | "preferred" => "`tls=prefer`",
            "require" | "required" => "`tls=require`",
            "verify-ca" | "verify_ca" => "`tls=verify-ca` with `ca=FILE.pem`",
            "verify-full" | "verify_identity" => "`tls=verify`",
            // `tls=off` also sends the password in clear, so no message proposes it.
            _ => "`tls=…`",
        },
        "ssl" | "useSSL" => "`tls=…`",
        "sslaccept" | "channel_binding" | "channelBinding" => {
            "`tls=verify`, and give an application's own settings to `store_of`"
        }
        "sslrootcert" | "ssl-ca" | "ssl_ca" => "`ca=FILE.pem`",
        "sslcert" | "ssl-cert" | "ssl_cert" => "`cert=FILE.pem`",
        "sslkey" | "ssl-key" | "ssl_key" => "`key=FILE.pem`",
        "options" | "currentSchema" | "search_path" => {
            "`schema=NAME`, which names the schema of keymill's tables"
        }
        "host" | "port" | "dbname" | "user" => {
            "it in front of the `?`: store://user:password@host:port/database"
        }
        "password" | "passfile" => "the password as user:password@host, or `password_file=FILE`",
        "connectTimeout" | "connection_timeout" => "`connect_timeout=2s`",
        "socketTimeout" | "read_timeout" | "statement_timeout" => "`timeout=2s`",
        _ => return None,
    })
}

fn bad(option: &str, value: &str, valid: &str) -> Error {
    Error::config(format!("option `{option}={}` is not valid; valid: {valid}", shown(value)))
}

pub(super) fn mill(store: StoreConfig, options: &BTreeMap<String, String>) -> Result<MillConfig> {
    let fork = match options.get("fork").map(String::as_str) {
        None | Some("revive") => Fork::Revive,
        Some("error") => Fork::Error,
        Some(other) => return Err(bad("fork", other, "revive, error")),
    };
    let manual_clock = match options.get("clock").map(String::as_str) {
        None | Some("system") => None,
        // 2026-01-01T00:00:00Z: a fixed moment, so that a scenario is the same on every day.
        Some("manual") => Some(1_767_225_600_000),
        Some(other) => match other.strip_prefix("manual@").and_then(|ms| ms.parse().ok()) {
            Some(ms) => Some(ms),
            None => return Err(bad("clock", other, "system, manual, manual@MILLISECONDS")),
        },
    };
    let max_sources = match options.get("max_sources") {
        None => MAX_SOURCES,
        Some(text) => match text.parse() {
            Ok(most @ 1..=MOST_SOURCES) => most,
            _ => return Err(bad("max_sources", text, &format!("a whole number from 1 to {MOST_SOURCES}"))),
        },
    };
    let reader_lease_ms = match options.get("reader_lease") {
        None => READER_LEASE_MS,
        Some(text) => match duration(text) {
            Some(ms) if (1_000..=3_600_000).contains(&ms) => ms,
            _ => return Err(bad("reader_lease", text, "a time from 1s to 1h, such as 10s")),
        },
    };
    Ok(MillConfig {
        store,
        fork,
        manual_clock,
        max_sources,
        reader_lease_ms,
        ignored: ignored(options)?,
        command: None,
        kinds: BTreeMap::new(),
        sources: BTreeMap::new(),
    })
}

/// The names of `ignored=`, and how many more there are.
fn ignored(options: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let Some(text) = options.get("ignored") else { return Ok(Vec::new()) };
    let is_item = |item: &str| match item.strip_prefix('+') {
        Some(more) => more.parse::<u16>().is_ok(),
        None => !item.is_empty() && item.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)),
    };
    let items: Vec<_> = text.split(',').map(str::to_owned).collect();
    if items.iter().all(|item| is_item(item)) {
        return Ok(items);
    }
    Err(Error::config("option `ignored=` is not valid; valid: names joined by `,`, as `store_of` writes it"))
}

fn durability(options: &BTreeMap<String, String>) -> Result<Durability> {
    match options.get("durability").map(String::as_str) {
        None | Some("refuse") => Ok(Durability::Refuse),
        Some("warn") => Ok(Durability::Warn),
        Some(other) => Err(bad("durability", other, "refuse, warn")),
    }
}

fn time(options: &BTreeMap<String, String>, option: &str, default_ms: u64) -> Result<Duration> {
    let Some(value) = options.get(option) else { return Ok(Duration::from_millis(default_ms)) };
    match duration(value) {
        Some(ms) if (1..=3_600_000).contains(&ms) => Ok(Duration::from_millis(ms)),
        _ => Err(bad(option, value, "a time from 1ms to 1h, such as 2s")),
    }
}

/// The script of a memory store, for tests in every language.
fn script(options: &BTreeMap<String, String>) -> Result<Vec<Step>> {
    let Some(text) = options.get("script") else { return Ok(Vec::new()) };
    let time = |value: &str| duration(value).filter(|ms| *ms <= 60_000).map(Duration::from_millis);
    Step::parse_script(text, time).ok_or_else(|| bad("script", text, Step::FORM))
}

/// A fork waits for the statement that is running, so a statement may not wait for ever.
fn busy(options: &BTreeMap<String, String>) -> Result<Duration> {
    const LONGEST: Duration = Duration::from_secs(5);
    let wait = time(options, "busy", 2000)?;
    if wait > LONGEST {
        return Err(bad("busy", options.get("busy").map_or("", String::as_str), "a time from 1ms to 5s"));
    }
    Ok(wait)
}

fn sqlite(rest: &str, query: &str) -> Result<MillConfig> {
    let options = read_options(query, &[options::SQLITE], "sqlite")?;
    let path = decode(rest.strip_prefix("//").unwrap_or(rest))?;
    if path.is_empty() {
        return Err(Error::config("`sqlite:` names no file; write sqlite:keymill.db"));
    }
    if path.starts_with(':') {
        return Err(Error::config(format!(
            "`sqlite:{}` names no file; numbers kept in memory are `memory:`",
            shown(&path)
        )));
    }
    let store = StoreConfig::Sqlite {
        path: files::path_of_url(&path),
        durability: durability(&options)?,
        busy: busy(&options)?,
    };
    mill(store, &options)
}

/// The differences between the URLs of server stores.
struct ServerKind {
    name: &'static str,
    port: u16,
    /// The shape of a URL, for messages.
    shape: &'static str,
    /// A URL has to name a user.
    user: bool,
    /// A URL has to name a database.
    database: bool,
    /// Options beyond the options of every server.
    more: &'static [Described],
}

const MYSQL: ServerKind = ServerKind {
    name: "mysql",
    port: 3306,
    shape: "write mysql://user:password@host:port/database",
    user: true,
    database: true,
    more: &[],
};

const POSTGRES: ServerKind = ServerKind {
    name: "postgres",
    port: 5432,
    shape: "write postgres://user:password@host:port/database",
    user: true,
    database: true,
    more: options::POSTGRES,
};

const REDIS: ServerKind = ServerKind {
    name: "redis",
    port: 6379,
    shape: "write redis://user:password@host:port",
    user: false,
    database: false,
    more: options::REDIS,
};

/// A URL without a login may be one whose password holds a `?`: then nothing of it may be repeated.
fn no_cut_password(rest: &str, query: &str) -> Result<()> {
    if rest.contains('@') {
        return Ok(());
    }
    let hosts = rest.trim_start_matches('/').split('/').next().unwrap_or_default();
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_address = |text: &str| text.split('%').next().unwrap_or_default().parse::<Ipv6Addr>().is_ok();
    let has_port = |host: &str| match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, "")) => is_address(address),
        Some((address, after)) => is_address(address) && after.strip_prefix(':').is_some_and(is_port),
        None => host.split_once(':').is_none_or(|(_, port)| is_port(port)),
    };
    if !hosts.split(',').all(has_port) {
        return Err(Error::config(format!(
            "what follows a `:` in the redis URL is no port; {}, and a `?` in a password as %3F",
            REDIS.shape
        )));
    }
    let valid = options::names(&[options::SERVER, REDIS.more, options::MILL]);
    let name = |pair: &str| pair.split_once('=').map_or(String::new(), |(name, _)| name.to_owned());
    if query.split('&').any(|pair| !pair.is_empty() && !valid.contains(&name(pair).as_str())) {
        return Err(Error::config(format!(
            "the redis URL has an unknown option (a `?` in a password is written %3F); valid options: {}",
            valid.join(", ")
        )));
    }
    Ok(())
}

/// A Redis server by its own name, or by `sentinel=NAME` the master that these Sentinels know by it.
fn redis(rest: &str, query: &str) -> Result<MillConfig> {
    no_cut_password(rest, query)?;
    let (server, options) = server(&REDIS, rest, query)?;
    if !server.database.is_empty() && server.database.parse::<u16>().is_err() {
        return Err(Error::config(format!(
            "`/{}` at the end of the redis URL is no database: Redis numbers them from 0 (the default; a server has 16 unless its `databases` says otherwise), so write redis://host:port/0",
            shown(&server.database)
        )));
    }
    let sentinel = options.get("sentinel").cloned();
    if sentinel.as_ref().is_some_and(|name| name.is_empty() || server.socket.is_some()) {
        return Err(Error::config(
            "`sentinel=` is the name of the master that the Sentinels in the URL know: redis://user:password@sentinel:26379?sentinel=mymaster",
        ));
    }
    let wait_replicas = match options.get("wait_replicas") {
        None => 0,
        Some(text) => match text.parse() {
            Ok(count @ 0..=100) => count,
            _ => return Err(bad("wait_replicas", text, "a number of replicas from 0 to 100")),
        },
    };
    mill(StoreConfig::Redis { server, sentinel, wait_replicas }, &options)
}

/// `//user:password@host:port,host:port/database` and the options of a server.
fn server(kind: &ServerKind, rest: &str, query: &str) -> Result<(ServerOptions, BTreeMap<String, String>)> {
    let ServerKind { name, shape, .. } = kind;
    // A password that holds a `?` ends up here: nothing of it may be repeated. One option has an `@` of its own.
    let is_clock = |part: &str| {
        part.strip_prefix("clock=manual@").is_some_and(|ms| ms.bytes().all(|digit| digit.is_ascii_digit()))
    };
    if query.split('&').any(|part| part.contains('@') && !is_clock(part)) {
        return Err(Error::config(format!(
            "the {name} URL has an `@` after its `?`; write a `?` in a password as %3F, an `@` in an option as %40"
        )));
    }
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| Error::config(format!("`{name}:` is not followed by `//`; {shape}")))?;
    // The last @ ends the user's part: a password may hold one, percent-encoded or not.
    let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (user, password) =
        login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
    let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
    if kind.database && database.is_empty() {
        return Err(Error::config(format!("the {name} URL names no database; {shape}")));
    }
    if kind.user && user.is_empty() {
        return Err(Error::config(format!("the {name} URL names no user; {shape}")));
    }
    // Not before: without an `@` what follows a `?` may still be of the password.
    let options = read_options(query, &[options::SERVER, kind.more], name)?;
    let mut places = Vec::new();
    for host in hosts.split(',') {
        places.push(host_and_port(host, kind.port)?);
    }
    let password_source = match (password, options.get("password_file")) {
        (Some(_), Some(_)) => {
            return Err(Error::config(format!(
                "the {name} URL has both a password and `password_file=`; write one of them"
            )));
        }
        (Some(_), None) => PasswordSource::Url,
        (None, Some(path)) => password_file(path)?,
        (None, None) => PasswordSource::None,
    };
    let server = ServerOptions {
        hosts: places,
        socket: options.get("socket").map(PathBuf::from),
        user: decode(user)?,
        password: Secret::new(decode(password.unwrap_or_default())?),
        password_source,
        database: decode(database)?,
        schema: schema(&options)?,
        durability: durability(&options)?,
        connect_timeout: time(&options, "connect_timeout", 2000)?,
        read_timeout: time(&options, "timeout", 2000)?,
        idle_timeout: time(&options, "idle_timeout", 50_000)?,
        tls: tls(&options)?,
        ..ServerOptions::default()
    };
    Ok((server, options))
}

/// A file with the password. Relative paths are taken from the present working folder: a daemon changes it later.
pub(super) fn password_file(path: &str) -> Result<PasswordSource> {
    match std::path::absolute(path) {
        Ok(absolute) => Ok(PasswordSource::File(absolute)),
        Err(error) => Err(Error::config(format!("`password_file={}` names no file: {error}", shown(path)))),
    }
}

/// `schema=NAME`, as the server's catalogue has it.
fn schema(options: &BTreeMap<String, String>) -> Result<Option<String>> {
    let Some(name) = options.get("schema") else { return Ok(None) };
    // The server would cut a longer one silently.
    if name.is_empty() || name.len() > 63 || name.chars().any(char::is_control) || name.starts_with("pg_") {
        return Err(bad("schema", name, "the name of a schema of at most 63 bytes, as the server has it"));
    }
    Ok(Some(name.clone()))
}

/// `tls=off|prefer|require|verify-ca|verify`, `ca=FILE` with the trusted authorities, and `cert=` and `key=` with this program's own
/// certificate.
fn tls(options: &BTreeMap<String, String>) -> Result<Tls> {
    let mode = match options.get("tls").map(String::as_str) {
        None => TlsMode::Default,
        Some("off") => TlsMode::Off,
        Some("prefer") => TlsMode::Prefer,
        Some("require") => TlsMode::Require,
        Some("verify-ca") => TlsMode::VerifyCa,
        Some("verify") => TlsMode::Verify,
        Some(other) => return Err(bad("tls", other, "off, prefer, require, verify-ca, verify")),
    };
    let file = |option: &str| options.get(option).map(PathBuf::from);
    let tls = Tls { mode, ca: file("ca"), cert: file("cert"), key: file("key") };
    let written = options.get("tls").map_or("", String::as_str);
    let verifies = matches!(mode, TlsMode::VerifyCa | TlsMode::Verify);
    let encrypts = verifies || mode == TlsMode::Require;
    if encrypts && options.contains_key("socket") {
        return Err(Error::config(format!(
            "tls={written} with `socket=`: a socket file does not leave the machine and is never encrypted; leave one of them out"
        )));
    }
    if mode == TlsMode::VerifyCa && tls.ca.is_none() {
        return Err(Error::config(NEEDS_CA));
    }
    if tls.ca.is_some() && !verifies {
        return Err(Error::config(
            "`ca=` names a certificate, but the server's is not verified; add tls=verify, or tls=verify-ca",
        ));
    }
    if tls.cert.is_some() != tls.key.is_some() {
        return Err(Error::config("`cert=` and `key=` belong together: write both, or none"));
    }
    if tls.cert.is_some() && !encrypts {
        return Err(Error::config(
            "`cert=` is shown over an encrypted connection only; add tls=verify, or tls=require",
        ));
    }
    Ok(tls)
}

/// `host`, `host:port`, `[::1]:port`.
fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16)> {
    let wrong = || {
        let shown = shown(text);
        Error::config(format!(
            "`{shown}` is not a host and port; write host:{default_port} or [::1]:{default_port}"
        ))
    };
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
        (host, rest.strip_prefix(':'))
    } else {
        text.split_once(':').map_or((text, None), |(h, p)| (h, Some(p)))
    };
    let port = match port {
        None => default_port,
        Some(p) => p.parse().map_err(|_| wrong())?,
    };
    if host.is_empty() {
        return Err(wrong());
    }
    Ok((decode(host)?, port))
}
