//! Store URLs: `memory:`, `sqlite:PATH`, `mysql://user:password@host:port/database?option=value`. (floor 3)

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::error::{Error, Result, shown};
use crate::store::memory::Step;
use crate::store::{Durability, Secret};

use super::{Fork, MillConfig, StoreConfig, duration};

/// Mill options, allowed in every URL.
const MILL: &[&str] = &["fork", "clock"];
const MEMORY: &[&str] = &["script"];
const SQLITE: &[&str] = &["durability", "busy"];
const MYSQL: &[&str] = &["durability", "connect_timeout", "timeout", "tls", "socket"];

const VALID: &str = "valid stores: sqlite:FILE, memory:, mysql://user@host:port/database, file:CONFIG.toml";

pub(super) fn parse(config: &str) -> Result<MillConfig> {
    let (place, query) = config.split_once('?').map_or((config, ""), |(p, q)| (p, q));
    // A URL without a known scheme may be a bare password or worse: it is not repeated.
    let Some((scheme, rest)) = place.split_once(':') else {
        return Err(Error::config(format!("the configuration string names no store; {VALID}")));
    };
    match scheme {
        "memory" => {
            let options = options(query, MEMORY, "memory")?;
            mill(StoreConfig::Memory { name: decode(rest)?, script: script(&options)? }, &options)
        }
        "sqlite" => sqlite(rest, query),
        "mysql" | "mariadb" => mysql(rest, query),
        "postgres" | "postgresql" | "redis" | "rediss" => {
            Err(Error::config(format!("the store `{scheme}` comes with a later version; {VALID}")))
        }
        // Only a word is repeated: what stands before a port may be a login.
        _ if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
            Err(Error::config(format!("unknown store `{}`; {VALID}", shown(scheme))))
        }
        _ => Err(Error::config(format!("the configuration string names no store; {VALID}"))),
    }
}

fn decode(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| Error::config("the store's URL is not UTF-8 once its %XX are decoded"))
}

fn options(query: &str, store: &[&str], name: &str) -> Result<BTreeMap<String, String>> {
    let mut found = BTreeMap::new();
    for pair in query.split('&').filter(|p| !p.is_empty()) {
        let Some((option, value)) = pair.split_once('=') else {
            return Err(Error::config(format!(
                "store option `{}` has no value; write option=value",
                shown(pair)
            )));
        };
        if !store.contains(&option) && !MILL.contains(&option) {
            let valid: Vec<_> = store.iter().chain(MILL).copied().collect();
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
    Ok(MillConfig { store, fork, manual_clock, kinds: BTreeMap::new(), sources: BTreeMap::new() })
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

/// A memory's faults, for tests in every language.
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
    let options = options(query, SQLITE, "sqlite")?;
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
        path: PathBuf::from(path),
        durability: durability(&options)?,
        busy: busy(&options)?,
    };
    mill(store, &options)
}

fn mysql(rest: &str, query: &str) -> Result<MillConfig> {
    const SHAPE: &str = "write mysql://user:password@host:port/database";
    // A password that holds a `?` ends up here: nothing of it may be repeated.
    if query.contains('@') {
        return Err(Error::config(
            "the mysql URL has an `@` after its `?`; write a `?` in a password as %3F, an `@` in an option as %40",
        ));
    }
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| Error::config(format!("`mysql:` is not followed by `//`; {SHAPE}")))?;
    // The last @ ends the user's part: a password may hold one, percent-encoded or not.
    let (login, place) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (hosts, database) = place
        .split_once('/')
        .filter(|(_, d)| !d.is_empty())
        .ok_or_else(|| Error::config(format!("the mysql URL names no database; {SHAPE}")))?;
    if user.is_empty() {
        return Err(Error::config(format!("the mysql URL names no user; {SHAPE}")));
    }
    // Not before: without an `@` what follows a `?` may still be of the password.
    let options = options(query, MYSQL, "mysql")?;
    let mut places = Vec::new();
    for host in hosts.split(',') {
        places.push(host_and_port(host)?);
    }
    if places.len() > 1 {
        return Err(Error::config("several hosts in one URL come with a later version; name one host"));
    }
    let tls = match options.get("tls").map(String::as_str) {
        None | Some("off") => false,
        Some("verify") => {
            if !cfg!(feature = "rustls") {
                return Err(Error::config("tls=verify needs a build with the feature `rustls`"));
            }
            true
        }
        Some(other) => return Err(bad("tls", other, "off, verify")),
    };
    let store = StoreConfig::Mysql {
        hosts: places,
        socket: options.get("socket").map(PathBuf::from),
        user: decode(user)?,
        password: Secret::new(decode(password)?),
        database: decode(database)?,
        durability: durability(&options)?,
        connect_timeout: time(&options, "connect_timeout", 2000)?,
        timeout: time(&options, "timeout", 2000)?,
        tls,
    };
    mill(store, &options)
}

/// `host`, `host:port`, `[::1]:port`.
fn host_and_port(text: &str) -> Result<(String, u16)> {
    const DEFAULT_PORT: u16 = 3306;
    let wrong =
        || Error::config(format!("`{}` is not a host and port; write host:3306 or [::1]:3306", shown(text)));
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
        (host, rest.strip_prefix(':'))
    } else {
        text.split_once(':').map_or((text, None), |(h, p)| (h, Some(p)))
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(p) => p.parse().map_err(|_| wrong())?,
    };
    if host.is_empty() {
        return Err(wrong());
    }
    Ok((decode(host)?, port))
}
