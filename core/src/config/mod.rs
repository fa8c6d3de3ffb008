//! Configuration: one string opens a mill, one string names a source. Every default is in this folder.

mod application;
mod environment;
mod machine;
mod option_reader;
pub mod options;
mod scheme_options;
mod sign_in;
mod source_spec;
mod toml;
mod url;
mod worker_option;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "internals")]
pub use application::{described as application_parameters, described_words as application_words};
pub use environment::Environment;
pub use source_spec::spec_string;
pub(crate) use source_spec::{check_name, check_options, parse as parse_spec};

use crate::error::fault::{CommandLine, quoted};
use crate::error::{Error, Result};
use crate::request::reservation::Scheme;
use crate::spec::{Kind, Spec};
use crate::store::memory::Step;
use crate::store::{Durability, server};

/// Options by name, as text.
pub type Options = BTreeMap<String, String>;

/// The mill that opens without a configuration.
pub const DEFAULT_MILL: &str = "sqlite:keymill.db";

/// The environment variable every language reads for its default mill.
pub const MILL_VARIABLE: &str = "KEYMILL_CONFIG";

/// `fork=revive|error`: what the first call in a forked child does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fork {
    /// Starts anew: new segments, new connections.
    #[default]
    Revive,
    /// Answers `FORKED`.
    Error,
}

/// Where reservations are kept, from the store's URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// `memory:` or `memory:NAME`.
    Memory {
        /// Mills that name the same memory share it; an empty name is this mill's own.
        name: String,
        /// `script=…`: what happens to the next requests that write, for tests.
        script: Vec<Step>,
    },
    /// `sqlite:PATH`.
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What to do about settings that lose commits.
        durability: Durability,
        /// How long to wait for other writers of the file.
        busy: Duration,
    },
    /// `mysql://user:password@host:port/database`.
    Mysql(server::ServerOptions),
    /// `stores = […]` of a TOML file: several stores serve each source together.
    Interleaved {
        /// The stores, in the order that their rows record.
        stores: Vec<StoreConfig>,
        /// How many numbers one of them owns in a row.
        chunk: u64,
    },
    /// `postgres://user:password@host:port/database`.
    Postgres(server::ServerOptions),
    /// `redis://user:password@host:port/0`.
    Redis {
        /// The server, or with `sentinel` the Sentinels.
        server: server::ServerOptions,
        /// `sentinel=NAME`: the name by which the Sentinels know the master.
        sentinel: Option<String>,
        /// `wait_replicas=N`: how many replicas have to acknowledge a reservation.
        wait_replicas: u32,
    },
}

/// The configuration string of the default mill: the value of [`MILL_VARIABLE`], else [`DEFAULT_MILL`].
///
/// # Errors
/// `INVALID_CONFIG` where the variable is empty or not UTF-8.
pub fn default_mill() -> Result<String> {
    Environment::of_process().default_mill()
}

/// The configuration string of a mill in the application's own database, from what its framework knows of it.
///
/// `url` is a JDBC URL, a URL as SQLAlchemy, Prisma and `DATABASE_URL` write them, or `django:ENGINE` for an entry of Django's
/// `DATABASES`. `properties` are the parameters beside it, such as JDBC's `user` and `password`; of a Django entry its keys
/// (`NAME`, `OPTIONS.ssl.ca`). Nothing is opened or asked. The answer holds the password.
///
/// ```
/// let mill = keymill::store_of("jdbc:mysql://db:3306/shop?sslMode=VERIFY_IDENTITY", &[("user", "app"), ("password", "p@ss")])?;
/// assert_eq!(mill, "mysql://app:p%40ss@db:3306/shop?tls=verify");
/// # Ok::<(), keymill::Error>(())
/// ```
///
/// A parameter that shapes statements, results or pools is ignored; the answer names it (`ignored=`), and so does the mill, in an
/// event.
///
/// # Errors
/// `INVALID_CONFIG`: a parameter that says where, as whom or how encrypted, in a way that a mill cannot, by its name; or a database
/// that cannot be a store. No message holds a value.
pub fn store_of(url: &str, properties: &[(&str, &str)]) -> Result<String> {
    let mill = application::translate(url, properties)?;
    MillConfig::read(&mill)?;
    Ok(mill)
}

impl StoreConfig {
    /// Whether the store is a SQL database: only there `init=max` is valid, and `key_producer` the default of serials.
    #[must_use]
    pub fn is_sql(&self) -> bool {
        match self {
            StoreConfig::Interleaved { stores, .. } => stores.iter().all(StoreConfig::is_sql),
            other => !matches!(other, StoreConfig::Memory { .. } | StoreConfig::Redis { .. }),
        }
    }

    /// Whether numbers are kept in this process's memory, all of them or some.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        match self {
            StoreConfig::Memory { .. } => true,
            StoreConfig::Interleaved { stores, .. } => stores.iter().any(StoreConfig::is_in_memory),
            StoreConfig::Sqlite { .. }
            | StoreConfig::Mysql(_)
            | StoreConfig::Postgres(_)
            | StoreConfig::Redis { .. } => false,
        }
    }

    /// Calls `change` with the options of each server among the stores.
    fn servers(&mut self, change: &mut dyn FnMut(&mut server::ServerOptions) -> Result<()>) -> Result<()> {
        match self {
            StoreConfig::Memory { .. } | StoreConfig::Sqlite { .. } => Ok(()),
            StoreConfig::Interleaved { stores, .. } => {
                stores.iter_mut().try_for_each(|store| store.servers(change))
            }
            StoreConfig::Mysql(server)
            | StoreConfig::Postgres(server)
            | StoreConfig::Redis { server, .. } => change(server),
        }
    }

    /// The store without user and password, for messages.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            StoreConfig::Memory { name, .. } => format!("memory:{name}"),
            StoreConfig::Sqlite { path, .. } => format!("sqlite:{}", path.display()),
            StoreConfig::Mysql(server) => format!("mysql://{}", server.shown()),
            StoreConfig::Interleaved { stores, .. } => {
                let each: Vec<_> = stores.iter().map(StoreConfig::shown).collect();
                format!("[{}]", each.join(", "))
            }
            StoreConfig::Postgres(server) => format!("postgres://{}", server.shown()),
            StoreConfig::Redis { server, .. } => format!("redis://{}", server.shown()),
        }
    }
}

/// A mill's configuration, checked.
#[derive(Clone, Debug)]
pub struct MillConfig {
    /// The store.
    pub store: StoreConfig,
    /// What a forked child does.
    pub fork: Fork,
    /// `clock=manual`: the clock stands at this wall time until it is moved.
    pub manual_clock: Option<i64>,
    /// How many sources may be opened: each keeps its memory until the mill is closed.
    pub max_sources: usize,
    /// How long the row of a reader of a route table lasts.
    pub reader_lease_ms: u64,
    /// The application's settings that `store_of` ignored, by their names; `+N`: so many more.
    pub ignored: Vec<String>,
    /// The beginning of a command on this mill, as it can be typed; without a server's login. `None` where no other process
    /// reaches it.
    pub command: Option<Arc<str>>,
    /// Option defaults by kind, from a TOML file.
    pub kinds: BTreeMap<String, Options>,
    /// Options by source, from a TOML file.
    pub sources: BTreeMap<String, Options>,
}

impl MillConfig {
    /// Reads a configuration string: a store's URL, or `file:PATH` for a TOML file.
    ///
    /// # Errors
    /// `INVALID_CONFIG` with one line that says what is wrong and what is valid.
    pub fn parse(config: &str) -> Result<Self> {
        Self::parse_in(config, &Environment::of_process())
    }

    /// As [`MillConfig::parse`], in this environment.
    pub(crate) fn parse_in(config: &str, environment: &Environment) -> Result<Self> {
        let mut read = Self::read_in(config, environment)?;
        sign_in::from_environment(&mut read.store, environment)?;
        Ok(read)
    }

    /// As [`MillConfig::parse`], in an empty environment.
    fn read(config: &str) -> Result<Self> {
        Self::read_in(config, &Environment::default())
    }

    /// As [`MillConfig::parse_in`], without the password.
    fn read_in(config: &str, environment: &Environment) -> Result<Self> {
        if config.is_empty() {
            return Err(Error::config(format!(
                "the configuration string is empty; write a store's URL, such as {DEFAULT_MILL}"
            )));
        }
        if config.len() > 4096 {
            return Err(Error::config(
                "the configuration string is longer than 4096 bytes; use file:PATH with a TOML file",
            ));
        }
        if config.chars().any(char::is_control) {
            return Err(Error::config("the configuration string holds a control character"));
        }
        let mut read = match config.strip_prefix("file:") {
            Some("") => Err(Error::config("`file:` names no file; write file:keymill.toml")),
            Some(path) => toml::read(path, environment),
            None => url::parse(config),
        }?;
        read.command = (!matches!(read.store, StoreConfig::Memory { .. })).then(|| command(config).into());
        Ok(read)
    }

    /// How a shell names the mill.
    pub(crate) fn command_line(&self) -> CommandLine<'_> {
        self.command.as_deref().map_or(CommandLine::BARE, |keymill| CommandLine { keymill, source: None })
    }

    /// Reads a source's spec with this configuration's defaults behind it.
    ///
    /// # Errors
    /// `INVALID_CONFIG` with one line that says what is wrong and what is valid.
    pub fn spec(&self, spec: &str) -> Result<Spec> {
        self.spec_in(spec, None)
    }

    /// As [`MillConfig::spec`], for a program with a time zone of its own.
    pub(crate) fn spec_in(&self, spec: &str, program_zone: Option<&str>) -> Result<Spec> {
        let defaults = |kind: &str, label: &str| {
            let options = |found: Option<&Options>| found.cloned().unwrap_or_default();
            [options(self.kinds.get(kind)), options(self.sources.get(label))]
        };
        let mut read = parse_spec(spec, &defaults, self.store.is_sql(), program_zone)?;
        read.command.clone_from(&self.command);
        if matches!(self.store, StoreConfig::Interleaved { .. }) && read.kind() == Kind::Serial {
            return Err(Error::config(format!(
                "`{}`: serial numbers count each period from 1 in one row, so several `stores` cannot serve them; open them in a mill with one store",
                read.label
            )));
        }
        let is_by_millisecond =
            read.key.serial.as_ref().is_some_and(|serial| serial.pattern.is_by_millisecond());
        if is_by_millisecond && !matches!(self.store, StoreConfig::Memory { .. }) {
            return Err(Error::config(format!(
                "`{}`: a period of a millisecond (`SSS`) is over before a store has reserved a number of it; end the date pattern with `ss` or a longer part, or take the time from a snowflake",
                read.label
            )));
        }
        if read.key.scheme == Scheme::WorkerNode
            && !matches!(self.store, StoreConfig::Mysql(_) | StoreConfig::Memory { .. })
        {
            return Err(Error::config(format!(
                "`{}`: `worker=disposable` is for one store of MySQL, MariaDB or TiDB, where uid-generator keeps its table; `worker=lease` works on every store",
                read.label
            )));
        }
        if matches!(self.store, StoreConfig::Interleaved { .. }) && !read.key.stride.is_every() {
            return Err(Error::config(format!(
                "`{}`: `delta` and `remainder` already divide the numbers between databases, and so do several `stores`; open a mill with one store for each database, with the `remainder` of its row",
                read.label
            )));
        }
        if matches!(self.store, StoreConfig::Interleaved { .. }) && read.key.scheme.keeps_allocation() {
            return Err(Error::config(format!(
                "`{}`: the other programs of scheme={} would take numbers of every store from one row; open a mill with one store, or use `scheme=keymill`",
                read.label,
                read.key.scheme.name()
            )));
        }
        Ok(read)
    }
}

/// The beginning of a command on this configuration, with `USER:PASSWORD` for a server's login, where it has one. No password is
/// among the command's arguments, which every user of the machine can read.
fn command(config: &str) -> String {
    // What a mill ignores makes no difference there.
    let config = &match config.split_once('?') {
        Some((place, query)) => {
            let rest: Vec<_> = query.split('&').filter(|pair| !pair.starts_with("ignored=")).collect();
            if rest.is_empty() { place.to_owned() } else { format!("{place}?{}", rest.join("&")) }
        }
        None => config.to_owned(),
    };
    let with_argument = |text: &str| format!("keymill --mill {}", quoted(text));
    let servers = ["mysql", "mariadb", "postgres", "postgresql", "redis", "rediss"];
    let Some((scheme, rest)) = config.split_once("://").filter(|(scheme, _)| servers.contains(scheme)) else {
        return with_argument(config);
    };
    // As the URL is read: an option has no `@`.
    match rest.rsplit_once('@') {
        Some((login, place)) if login.contains(':') => {
            format!("{MILL_VARIABLE}={} keymill", quoted(&format!("{scheme}://USER:PASSWORD@{place}")))
        }
        Some((_, place)) => with_argument(&format!("{scheme}://USER@{place}")),
        None => with_argument(config),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_is_the_one_option_of_a_server_that_has_an_at_sign() -> Result<()> {
        for url in ["mysql://u:p@h/db", "postgres://u:p@h/db", "redis://h:6379"] {
            MillConfig::read(&format!("{url}?timeout=5s&clock=manual@1795218600000"))?;
        }
        for url in ["mysql://u:p?w@h/db", "mysql://u:p?clock=manual@h/db", "mysql://u:p?clock=manual@1@h/db"]
        {
            let refused = MillConfig::read(url).expect_err("a password");
            assert!(refused.message.contains("has an `@` after its `?`"), "{refused}");
        }
        Ok(())
    }

    #[test]
    fn a_scheme_that_a_source_cannot_have_is_answered_with_every_scheme_that_it_can() -> Result<()> {
        let mill = MillConfig::read("memory:")?;
        for source in ["segment:a", "serial:a/b"] {
            let is_serial = source.starts_with("serial");
            let is_kept =
                |scheme: Scheme| if is_serial { scheme.keeps_serials() } else { scheme.keeps_segments() };
            let mut valid: Vec<_> =
                Scheme::ALL.into_iter().filter(|scheme| is_kept(*scheme)).map(Scheme::name).collect();
            let default = mill.spec(source)?.key.scheme.name();
            valid.sort_by_key(|name| *name != default);
            let says = format!("valid: {}", valid.join(", "));
            for scheme in Scheme::ALL {
                let needs = is_kept(scheme) && scheme.keeps_allocation();
                let allocation = if needs { "&allocation=1" } else { "" };
                let answer = mill.spec(&format!("{source}?scheme={scheme}{allocation}"));
                let error = answer.err().map(|error| error.message);
                assert_eq!(error.is_none(), is_kept(scheme), "{source}, {scheme}: {error:?}");
                assert!(error.is_none_or(|message| message.ends_with(&says)), "{source}, {scheme}");
            }
            let unknown = mill.spec(&format!("{source}?scheme=leaf")).expect_err("an unknown scheme").message;
            assert!(unknown.ends_with(&says), "{unknown}");
        }
        Ok(())
    }

    /// A URL of each kind of store, with the tables of its options.
    fn stores() -> [(&'static str, Vec<&'static [options::Described]>); 5] {
        [
            ("memory:", vec![options::MILL, options::MEMORY]),
            ("sqlite:a.db", vec![options::SQLITE]),
            ("mysql://u@h/d", vec![options::SERVER]),
            ("postgres://u@h/d", vec![options::SERVER, options::POSTGRES]),
            ("redis://h", vec![options::SERVER, options::REDIS]),
        ]
    }

    #[test]
    fn each_default_of_the_tables_is_what_holds_where_nothing_is_written() -> Result<()> {
        let mill = MillConfig::read("memory:")?;
        let spec = |spec: String| -> Result<String> {
            let read = Spec { text: String::new(), ..mill.spec(&spec)? };
            Ok(format!("{read:?}"))
        };
        for (source, groups) in [
            ("segment:a?", vec![options::SOURCE, options::TEXT, options::SUPPLY, options::SEGMENT]),
            ("segment:a?scheme=tiny_id_info&", vec![options::SEGMENT]),
            ("snowflake:a?", vec![options::SOURCE, options::TEXT, options::SNOWFLAKE]),
            ("serial:a/b?", vec![options::SOURCE, options::SERIAL]),
            ("business:a?", vec![options::SOURCE, options::TEXT, options::BUSINESS]),
        ] {
            for option in groups.into_iter().flatten().filter(|option| !option.default.is_empty()) {
                if matches!(option.name, "delta" | "remainder") && !source.contains("tiny_id_info") {
                    continue;
                }
                // Of serials a step, as with `step`.
                if option.name == "block" && source.starts_with("serial") {
                    continue;
                }
                let written = spec(format!("{source}{}={}", option.name, option.default))?;
                assert_eq!(written, spec(source.to_owned())?, "{source} {}", option.name);
            }
        }
        for (store, groups) in stores() {
            for option in groups.into_iter().flatten().filter(|option| !option.default.is_empty()) {
                let read =
                    |text: &str| MillConfig::read(text).map(|read| MillConfig { command: None, ..read });
                let written = read(&format!("{store}?{}={}", option.name, option.default))?;
                assert_eq!(format!("{written:?}"), format!("{:?}", read(store)?), "{store} {}", option.name);
            }
        }
        Ok(())
    }

    /// Names and values come from files, variables and other programs.
    #[test]
    fn no_message_quotes_a_long_name_or_value_whole() -> Result<()> {
        let long = |unit: &str| unit.repeat(100_000 / unit.len());
        let values =
            ["x", "7", "é", "%60", "a,", "a:", "/", "'", "a%20", "store 1;", "%3D=", "2026-01-01T"].map(long);
        let short = |what: &str, answer: Option<Error>| {
            let Some(error) = answer else { return };
            let bytes = error.message.len();
            assert!(
                bytes < 1000,
                "{what}: {bytes} bytes: {}",
                error.message.chars().take(300).collect::<String>()
            );
        };
        let mill = MillConfig::read("memory:")?;
        for value in &values {
            for (source, groups) in [
                ("segment:a", vec![options::SOURCE, options::TEXT, options::SUPPLY, options::SEGMENT]),
                ("snowflake:a", vec![options::SOURCE, options::TEXT, options::SNOWFLAKE]),
                ("serial:a/b", vec![options::SOURCE, options::SERIAL]),
                ("business:a", vec![options::SOURCE, options::TEXT, options::BUSINESS]),
            ] {
                for option in groups.into_iter().flatten() {
                    let name = option.name;
                    short(name, mill.spec(&format!("{source}?{name}={value}")).err());
                    short(name, mill.spec(&format!("{source}?{name}=1&{name}={value}")).err());
                }
                short("a name", mill.spec(&format!("{source}{value}")).err());
                short("an option", mill.spec(&format!("{source}?{value}=1")).err());
                short("options", mill.spec(&format!("{source}?{value}")).err());
            }
            short("a kind", mill.spec(value).err());
            short("a kind", mill.spec(&format!("{value}:a")).err());
            for (store, groups) in stores() {
                for option in groups.into_iter().flatten() {
                    let name = option.name;
                    short(name, MillConfig::read(&format!("{store}?{name}={value}")).err());
                }
                short("an option", MillConfig::read(&format!("{store}?{value}=1")).err());
                short("a store", MillConfig::read(&format!("{store}{value}")).err());
                let (scheme, rest) = store.split_once(':').unwrap_or_default();
                short("a user", MillConfig::read(&format!("{scheme}://{value}@h/d")).err());
                short("a place", MillConfig::read(&format!("{scheme}:{value}{rest}")).err());
            }
            short("a store", MillConfig::read(value).err());
            short("a scheme", MillConfig::read(&format!("{value}://u@h/d")).err());
            for url in [
                "jdbc:mysql://h/d?",
                "jdbc:postgresql://h/d?",
                "postgresql://h/d?",
                "mysql+pymysql://h/d?",
                "django:django.db.backends.mysql?",
            ] {
                for name in ["user", "sslMode", "sslmode", "socketTimeout", "serverTimezone", "host", "x"] {
                    short(name, store_of(&format!("{url}{name}={value}"), &[]).err());
                    short(name, store_of(url.trim_end_matches('?'), &[(name, value)]).err());
                }
                short("a parameter", store_of(url.trim_end_matches('?'), &[(value, "1")]).err());
                short("a URL", store_of(&format!("{url}{value}"), &[]).err());
            }
            short("a URL", store_of(value, &[]).err());
            let folder = tempfile::tempdir().map_err(|error| Error::config(error.to_string()))?;
            let file = folder.path().join("mill.toml");
            let quoted = value.replace('\'', "\"");
            for text in [
                format!("store = '{quoted}'"),
                format!("'{quoted}' = 1"),
                format!("{quoted} = 1"),
                format!("store = 'memory:'\nfork = '{quoted}'"),
                format!("store = 'memory:'\nsources = ['{quoted}']"),
                format!("store = 'memory:'\n[sources.'{quoted}']\nblock = 1"),
                format!("store = 'memory:'\n[sources.'segment:a']\n'{quoted}' = 1"),
                format!("store = 'memory:'\n[sources.'segment:a']\nblock = '{quoted}'"),
                format!("stores = ['memory:', '{quoted}']"),
            ] {
                std::fs::write(&file, &text).map_err(|error| Error::config(error.to_string()))?;
                let shown: String = text.chars().take(40).collect();
                short(&shown, MillConfig::read(&format!("file:{}", file.display())).err());
            }
        }
        Ok(())
    }
}
