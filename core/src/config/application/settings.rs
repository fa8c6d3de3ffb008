//! What the application's settings say of a server, and the configuration string that says the same.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::document;
use crate::error::{Error, Result};

use super::client_library::{ClientLibrary, DatabaseKind, Role, TlsLevel};
use super::{database_file, refused, words};

/// What stands as it is in every part of a mill's URL.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// The same for a file's path.
const PATH: &AsciiSet = &ENCODED.remove(b'/');
/// The same for an IPv6 address.
const ADDRESS: &AsciiSet = &ENCODED.remove(b':');
/// The longest time that a mill takes.
const LONGEST_MS: f64 = 3_600_000.0;
/// So many bytes of ignored names are passed on: a mill's string has an end.
const MOST_IGNORED: usize = 1000;
/// Begins the value of a parameter that is no text in the application's language; the name of its type follows. No text has this noncharacter.
const OBJECT: char = '\u{fdd0}';

/// One parameter as it was given.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a str,
    /// The name may be repeated in a message: it cannot be a piece of a password.
    pub(super) is_shown: bool,
    /// The URL may have been cut here, inside a password: an unknown name is not ignored.
    pub(super) is_doubtful: bool,
}

impl<'a> Given<'a> {
    /// Of a property beside the URL: no piece of one.
    pub(super) fn property(name: &'a str, value: &'a str) -> Given<'a> {
        Given { name, value, is_shown: true, is_doubtful: false }
    }

    /// The type of the value where it is no text: a function, a class.
    fn object(&self) -> Option<&'a str> {
        let object = self.value.strip_prefix(OBJECT)?;
        Some(if is_word(object) { object } else { "object" })
    }
}

/// A host and the port that stands behind it.
pub(super) type HostPort = (String, Option<u16>);

/// What was found so far.
pub(super) struct Settings {
    library: &'static ClientLibrary,
    /// Of a URL, with the ports that it names.
    pub(super) url_hosts: Vec<HostPort>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
    host: Option<String>,
    port: Option<String>,
    socket: Option<String>,
    schema: Option<String>,
    connect_ms: Option<f64>,
    answer_ms: Option<f64>,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    mode: Option<TlsLevel>,
    switch: Option<TlsLevel>,
    trusts_all: bool,
    key_from_server: bool,
    /// What `options=endpoint=…` names.
    endpoint: Option<String>,
    /// Names that a store does not need.
    ignored: Vec<String>,
    /// How many more of them there are, whose names are not repeated.
    unnamed: usize,
}

impl Settings {
    pub(super) fn new(library: &'static ClientLibrary) -> Settings {
        Settings {
            library,
            url_hosts: Vec::new(),
            user: None,
            password: None,
            database: None,
            host: None,
            port: None,
            socket: None,
            schema: None,
            connect_ms: None,
            answer_ms: None,
            ca: None,
            cert: None,
            key: None,
            mode: None,
            switch: None,
            trusts_all: false,
            key_from_server: false,
            endpoint: None,
            ignored: Vec::new(),
            unnamed: 0,
        }
    }

    fn is_postgres(&self) -> bool {
        self.library.kind == DatabaseKind::Postgres
    }

    /// Takes the properties in: their names are no pieces of a URL.
    pub(super) fn take_all(&mut self, properties: &[(&str, &str)]) -> Result<()> {
        properties.iter().try_for_each(|(name, value)| self.take(Given::property(name, value)))
    }

    /// Takes one parameter in.
    pub(super) fn take(&mut self, given: Given<'_>) -> Result<()> {
        let library = self.library.name;
        let Some((name, role)) = self.library.role(given.name) else { return self.take_unknown(given) };
        if let Some(object) = given.object().filter(|_| !matches!(role, Role::Ignored)) {
            return Err(refused(format!(
                "`{name}` of {library} is no text but an object ({object}), which keymill cannot read; write it as text"
            )));
        }
        let value = given.value;
        if name == "ssl" && value.starts_with('{') {
            return self.take_object(given);
        }
        match role {
            Role::User => set(&mut self.user, name, value),
            Role::Password => set(&mut self.password, name, value),
            // SQLAlchemy writes `host` once for each.
            Role::Host if self.is_postgres() && self.host.as_deref().is_some_and(|host| host != value) => {
                self.host = self.host.take().map(|host| format!("{host},{value}"));
                Ok(())
            }
            Role::Host => set(&mut self.host, name, value),
            Role::Port => set(&mut self.port, name, value),
            Role::Database => set(&mut self.database, name, value),
            Role::Socket => set(&mut self.socket, name, value),
            Role::Schema => set(&mut self.schema, name, first_schema(name, value)?),
            Role::ServerOptions => match (search_path(value), endpoint(value)) {
                (Some(""), _) => Ok(()),
                (Some(path), _) => set(&mut self.schema, name, first_schema(name, path)?),
                (None, Some(endpoint)) => set(&mut self.endpoint, name, endpoint),
                (None, None) => Err(refused(format!(
                    "`{name}` of {library} sets something else than `-c search_path=SCHEMA`, and keymill sends the server no settings; leave it out"
                ))),
            },
            Role::TlsMode(words) => {
                let words = || words.iter().copied().flatten();
                let Some((_, level)) = words().find(|(word, _)| word.eq_ignore_ascii_case(value)) else {
                    let valid: Vec<_> = words().map(|(word, _)| *word).collect();
                    return Err(refused(format!(
                        "`{name}` of {library} has a value that keymill does not know; it knows {}",
                        valid.join(", ")
                    )));
                };
                self.mode = self.mode.max(Some(*level));
                Ok(())
            }
            // A name without a value does not turn encryption off.
            Role::TlsSwitch { on: Some(TlsLevel::Off), .. } | Role::TrustAll | Role::KeyFromServer
                if value.is_empty() =>
            {
                Ok(())
            }
            Role::TlsSwitch { on, off } => {
                self.switch = self.switch.max(if is_on(name, library, value)? { on } else { off });
                Ok(())
            }
            // Node verifies unless it is `false` itself: not where it is 0 or another text.
            Role::RejectUnauthorized => {
                let level = if value == "false" { TlsLevel::Require } else { TlsLevel::Verify };
                self.switch = self.switch.max(Some(level));
                Ok(())
            }
            Role::VerifySwitch => {
                if is_on(name, library, value)? {
                    self.mode = self.mode.max(Some(TlsLevel::Verify));
                }
                Ok(())
            }
            Role::TrustAll => {
                self.trusts_all |= is_on(name, library, value)?;
                Ok(())
            }
            Role::SocketClass => match value {
                "" | "org.postgresql.ssl.LibPQFactory" | "org.postgresql.ssl.DefaultJavaSSLFactory" => Ok(()),
                "org.postgresql.ssl.NonValidatingFactory" => {
                    self.trusts_all = true;
                    Ok(())
                }
                _ => Err(refused(format!(
                    "`{name}` of {library} names a class that keymill cannot run; leave it out"
                ))),
            },
            Role::KeyFromServer => {
                self.key_from_server |= is_on(name, library, value)?;
                Ok(())
            }
            Role::RootCert if value == "system" => {
                self.mode = self.mode.max(Some(TlsLevel::Verify));
                Ok(())
            }
            Role::Ca | Role::RootCert => set(&mut self.ca, name, pem(name, library, value)?),
            Role::Cert => set(&mut self.cert, name, pem(name, library, value)?),
            Role::Key => set(&mut self.key, name, pem(name, library, value)?),
            Role::ConnectSeconds => set_time(&mut self.connect_ms, name, library, value, 1000.0),
            Role::ConnectMillis => set_time(&mut self.connect_ms, name, library, value, 1.0),
            Role::AnswerSeconds => set_time(&mut self.answer_ms, name, library, value, 1000.0),
            Role::AnswerMillis => set_time(&mut self.answer_ms, name, library, value, 1.0),
            Role::ChannelBinding if value.eq_ignore_ascii_case("require") => {
                self.mode = self.mode.max(Some(TlsLevel::Verify));
                Ok(())
            }
            Role::ChannelBinding if ["", "disable", "prefer"].contains(&value) => Ok(()),
            Role::ChannelBinding => Err(refused(format!(
                "`{name}` of {library} has a value that keymill does not know; it knows disable, prefer, require"
            ))),
            Role::SessionSql if !words::sets_only_variables(value) => Err(refused(format!(
                "`{name}` of {library} does more than set variables (`SET …`) on each new connection, so keymill cannot tell where the application's statements go"
            ))),
            Role::SessionSql | Role::Ignored => Ok(()),
            Role::Only(same, why) => {
                if same.iter().any(|word| word.eq_ignore_ascii_case(value)) {
                    return Ok(());
                }
                Err(refused(format!(
                    "`{name}` of {library} has a value without a counterpart: {why}; keymill takes {}",
                    same.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
                )))
            }
            Role::Refused(why) => {
                Err(refused(format!("`{name}` of {library} has no counterpart in keymill: {why}")))
            }
        }
    }

    /// Ignores a name that keymill does not know, or refuses it.
    pub(super) fn take_unknown(&mut self, given: Given<'_>) -> Result<()> {
        let library = self.library.name;
        let which = if given.is_shown {
            format!("`{}` of {library}", crate::error::shown(given.name))
        } else {
            format!(
                "a parameter of {library} (not repeated here: it may be a piece of a password, in which `&`, `?`, `#` and `@` are written %26, %3F, %23 and %40)"
            )
        };
        if let Some((word, topic)) = words::speaks(given.name) {
            let word = if given.is_shown { format!(" (`{word}`)") } else { String::new() };
            return Err(refused(format!(
                "keymill does not know {which}, and by its name it may say {}{word}; leave it out",
                topic.about
            )));
        }
        if given.is_doubtful {
            return Err(refused(format!("keymill does not know {which}; leave it out")));
        }
        // `?a=1&=2`: nothing is named.
        if given.name.is_empty() {
            return Ok(());
        }
        if !given.is_shown || !is_word(given.name) {
            self.unnamed += 1;
        } else if !self.ignored.iter().any(|name| name == given.name) {
            self.ignored.push(given.name.to_owned());
        }
        Ok(())
    }

    /// Takes `ssl={"rejectUnauthorized":true}` in, as mysql2 reads it.
    fn take_object(&mut self, given: Given<'_>) -> Result<()> {
        let wrong = || {
            refused(format!(
                "`ssl` of {} is no object of texts, numbers and switches in JSON, such as {{\"rejectUnauthorized\":true}}",
                self.library.name
            ))
        };
        let Ok(Value::Object(object)) = document::read_json(given.value, given.value.len()) else {
            return Err(wrong());
        };
        let mut fields: Vec<(String, String)> = Vec::new();
        for (field, value) in object {
            let text = match value {
                // The text is not `false` itself.
                Value::String(_) if field == "rejectUnauthorized" => "true".to_owned(),
                Value::String(text) => text,
                Value::Number(number) => number.to_string(),
                Value::Bool(is_on) => is_on.to_string(),
                _ => return Err(wrong()),
            };
            fields.push((format!("ssl.{field}"), text));
        }
        // An object asks for encryption and a look at the certificate, whatever is not in it.
        if !fields.iter().any(|(field, _)| field == "ssl.rejectUnauthorized") {
            fields.push(("ssl.rejectUnauthorized".to_owned(), "true".to_owned()));
        }
        fields.iter().try_for_each(|(name, value)| self.take(Given { name, value, ..given }))
    }

    /// What `ignored=` says: the names joined by `,`, and `+N` for more of them.
    fn ignored(&self) -> Option<String> {
        let (mut text, mut more) = (String::new(), self.unnamed);
        for name in &self.ignored {
            if text.len() + name.len() > MOST_IGNORED {
                more += 1;
                continue;
            }
            let _ = write!(text, "{}{name}", if text.is_empty() { "" } else { "," });
        }
        if more > 0 {
            let _ = write!(text, "{}+{more}", if text.is_empty() { "" } else { "," });
        }
        (!text.is_empty()).then_some(text)
    }

    /// The mill beside the application's file of SQLite.
    pub(super) fn into_file(self, file: &str) -> Result<String> {
        let mut mill = database_file::beside(file)?;
        if let Some(ignored) = self.ignored() {
            let _ = write!(mill, "?ignored={ignored}");
        }
        Ok(mill)
    }

    /// The mill's configuration string.
    pub(super) fn into_mill(self) -> Result<String> {
        let library = self.library.name;
        let (scheme, default_port) = if self.is_postgres() { ("postgres", 5432) } else { ("mysql", 3306) };
        let user = self.user.as_deref().filter(|user| !user.is_empty()).ok_or_else(|| {
            refused(format!("the settings of the application's database ({library}) name no user; keymill takes none from the system"))
        })?;
        // As the libraries of PostgreSQL: the database that has the user's name.
        let database = self.database.as_deref().filter(|name| !name.is_empty());
        let Some(database) = database.or_else(|| self.is_postgres().then_some(user)) else {
            return Err(refused(format!(
                "the settings of the application's database ({library}) name no database"
            )));
        };
        let hosts = self.hosts()?;
        if self
            .endpoint
            .as_deref()
            .is_some_and(|endpoint| !hosts.iter().all(|(host, _)| has_endpoint(host, endpoint)))
        {
            return Err(refused(format!(
                "`options` of {library} names another endpoint than the host, and keymill names the host alone; write the endpoint's host"
            )));
        }
        // An empty one names no file: the host holds.
        let socket = self.socket.as_deref().filter(|socket| !socket.is_empty());
        let socket = match (socket, &hosts[..]) {
            (Some(socket), _) => Some(socket.to_owned()),
            (None, [(host, port)]) if is_path(host) && self.is_postgres() => {
                Some(format!("{}/.s.PGSQL.{}", host.trim_end_matches('/'), port.unwrap_or(default_port)))
            }
            (None, [(host, _)]) if is_path(host) => Some(host.clone()),
            (None, hosts) if hosts.iter().any(|(host, _)| is_path(host)) => {
                return Err(refused(format!(
                    "the settings of the application's database ({library}) name a socket file and hosts; a mill takes either a socket file or hosts"
                )));
            }
            _ => None,
        };
        let mut text = format!("{scheme}://{}", utf8_percent_encode(user, ENCODED));
        if let Some(password) = &self.password {
            let _ = write!(text, ":{}", utf8_percent_encode(password, ENCODED));
        }
        text.push('@');
        if socket.is_some() {
            text.push_str("localhost");
        } else {
            let each: Vec<_> =
                hosts.iter().map(|(host, port)| written(host, port.unwrap_or(default_port))).collect();
            text.push_str(&each.join(","));
        }
        let _ = write!(text, "/{}", utf8_percent_encode(database, ENCODED));
        let mut mark = '?';
        let mut option = |name: &str, value: &str| {
            let _ = write!(text, "{mark}{name}={}", utf8_percent_encode(value, PATH));
            mark = '&';
        };
        let tls = self.tls(socket.is_some())?;
        let is_plain_socket = socket.is_some() && tls.is_none();
        if let Some(tls) = tls {
            option("tls", tls);
        }
        let options = [
            ("ca", &self.ca),
            ("cert", &self.cert),
            ("key", &self.key),
            ("socket", &socket),
            ("connect_timeout", &self.connect_ms.map(time)),
            ("timeout", &self.answer_ms.map(time)),
            ("schema", &self.schema),
        ];
        for (name, value) in options {
            // Not encrypted there: see `tls`.
            if is_plain_socket && ["ca", "cert", "key"].contains(&name) {
                continue;
            }
            // An empty one says that there is none.
            if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
                option(name, value);
            }
        }
        if let Some(ignored) = self.ignored() {
            let _ = write!(text, "{mark}ignored={ignored}");
        }
        Ok(text)
    }

    /// The hosts of the parameters, else the hosts of the URL, else this machine.
    fn hosts(&self) -> Result<Vec<HostPort>> {
        let hosts = match self.host.as_deref().filter(|host| !host.is_empty()) {
            Some(hosts) => {
                let named = hosts.split(',').map(|host| host_and_port(host.trim())).collect::<Vec<_>>();
                let from_url: Vec<_> = self.url_hosts.iter().map(|(host, _)| host.clone()).collect();
                // A socket file beside `localhost`, as Prisma wants it written.
                let is_socket = named.iter().all(|(host, _)| is_path(host))
                    && from_url.iter().all(|host| host == "localhost");
                if is_socket {
                    return self.with_ports(named);
                }
                let is_same = from_url.iter().all(String::is_empty)
                    || from_url == named.iter().map(|(host, _)| host.clone()).collect::<Vec<_>>();
                if !is_same {
                    return Err(twice("the host"));
                }
                if from_url.iter().any(|host| !host.is_empty()) { self.url_hosts.clone() } else { named }
            }
            None => self.url_hosts.clone(),
        };
        self.with_ports(hosts)
    }

    /// These hosts with the ports of the parameters.
    fn with_ports(&self, mut hosts: Vec<HostPort>) -> Result<Vec<HostPort>> {
        let wrong = || {
            refused(format!(
                "the application's database has no valid host and port ({}); write host, host:port or [::1]:port",
                self.library.name
            ))
        };
        if hosts.is_empty() {
            hosts.push((String::new(), None));
        }
        if let Some(ports) = self.port.as_deref().filter(|port| !port.is_empty()) {
            let ports = ports.split(',').map(|port| port.trim().parse::<u16>().map_err(|_| wrong()));
            let ports = ports.collect::<Result<Vec<_>>>()?;
            if ports.len() != 1 && ports.len() != hosts.len() {
                return Err(wrong());
            }
            for (i, (_, port)) in hosts.iter_mut().enumerate() {
                let own = ports[if ports.len() == 1 { 0 } else { i }];
                if port.replace(own).is_some_and(|before| before != own) {
                    return Err(twice("the port"));
                }
            }
        }
        for (host, port) in &mut hosts {
            if host.is_empty() {
                "localhost".clone_into(host);
            }
            if *port == Some(0) || host.chars().any(|c| c.is_control() || c.is_whitespace()) {
                return Err(wrong());
            }
        }
        Ok(hosts)
    }

    /// What `tls=` says; `None`: it is not written.
    fn tls(&self, is_socket: bool) -> Result<Option<&'static str>> {
        let library = self.library.name;
        let is_named = |file: &Option<String>| file.as_deref().is_some_and(|file| !file.is_empty());
        let switch = match self.switch {
            Some(TlsLevel::Verify) if self.trusts_all => Some(TlsLevel::Require),
            other => other,
        };
        let mut level = self.mode.max(switch);
        if level == Some(TlsLevel::Off) && (is_named(&self.ca) || is_named(&self.cert) || is_named(&self.key))
        {
            return Err(refused(format!(
                "the settings of the application's database ({library}) turn encryption off and name a certificate; leave one of them out"
            )));
        }
        if is_named(&self.cert) != is_named(&self.key) {
            return Err(refused(format!(
                "the settings of the application's database ({library}) name a client's certificate without its key, or a key without its certificate; keymill takes both, as PEM files"
            )));
        }
        if is_named(&self.cert) {
            level = level.max(Some(TlsLevel::Require));
        }
        level = match (level, is_named(&self.ca)) {
            (Some(TlsLevel::VerifyCa), true) => level,
            // Without a look at the certificate the authority would be without effect. And the system's authorities sign for
            // everybody: without a name they would prove nothing.
            (Some(TlsLevel::VerifyCa), false) | (_, true) => Some(TlsLevel::Verify),
            (_, false) => level,
        };
        // A socket file does not leave the machine, and PostgreSQL's libraries pass encryption over there.
        if is_socket && (self.is_postgres() || level <= Some(TlsLevel::Prefer)) {
            return Ok(None);
        }
        Ok(match level {
            Some(TlsLevel::Verify) => Some("verify"),
            Some(TlsLevel::VerifyCa) => Some("verify-ca"),
            Some(TlsLevel::Require) => Some("require"),
            None | Some(TlsLevel::Prefer) => Some("prefer"),
            // `off` sends a password as it is if the server asks for that, which these libraries do not.
            Some(TlsLevel::Off) if self.library.guards_password && !self.key_from_server => None,
            Some(TlsLevel::Off) => Some("off"),
        })
    }
}

fn twice(what: &str) -> Error {
    Error::config(format!(
        "{what} of the application's database is given twice, with different values; write it once"
    ))
}

/// Takes a value that may be given several times, and must be the same each time.
fn set(slot: &mut Option<String>, name: &str, value: impl Into<String>) -> Result<()> {
    let value = value.into();
    match slot {
        Some(before) if *before != value => Err(twice(&format!("`{name}`"))),
        _ => {
            *slot = Some(value);
            Ok(())
        }
    }
}

fn set_time(slot: &mut Option<f64>, name: &str, library: &str, value: &str, ms: f64) -> Result<()> {
    let number: f64 = match value.trim().parse() {
        Ok(number) if f64::is_finite(number) => number,
        _ => return Err(refused(format!("`{name}` of {library} is no time in numbers"))),
    };
    // Without a limit for them; a mill always has one.
    if number <= 0.0 {
        return Ok(());
    }
    let ms = (number * ms).clamp(1.0, LONGEST_MS).round();
    // Of two limits the shorter one holds.
    *slot = Some(slot.map_or(ms, |before| before.min(ms)));
    Ok(())
}

fn time(ms: f64) -> String {
    if ms % 1000.0 == 0.0 { format!("{}s", ms / 1000.0) } else { format!("{ms}ms") }
}

fn is_on(name: &str, library: &str, value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "" | "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(refused(format!("`{name}` of {library} is neither true nor false"))),
    }
}

/// The file of a certificate or key.
fn pem<'v>(name: &str, library: &str, value: &'v str) -> Result<&'v str> {
    let end = value.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_other = ["jks", "p12", "pfx", "pk8", "der", "bcfks", "keystore"].contains(&end.as_str());
    let is_text = value.contains("-----BEGIN") || value.starts_with("classpath:");
    if is_other || is_text {
        return Err(refused(format!(
            "`{name}` of {library} is no PEM file, and keymill reads no other; write it as a PEM file"
        )));
    }
    Ok(value)
}

/// The first schema of a search path, as the server reads it: a name without quotes is folded to lower case. Of `schema` that cannot be
/// told: Prisma quotes it, and R2DBC's driver does not.
fn first_schema(name: &str, value: &str) -> Result<String> {
    let first = value.split(',').next().unwrap_or_default().trim();
    let quoted = first.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let first = match quoted {
        Some(quoted) => quoted.to_owned(),
        None if name == "schema" && first.contains(|c: char| c.is_ascii_uppercase()) => {
            return Err(refused(
                "`schema` of the application's database has capital letters: some clients fold them and others do not; write the name in double quotes, or in small letters",
            ));
        }
        None => first.to_ascii_lowercase(),
    };
    // What a mill takes: the server would cut a longer one silently.
    let is_name = !first.contains(['"', '$', '\'', '\\']) && first.len() <= 63 && !first.starts_with("pg_");
    if !is_name || first.chars().any(char::is_control) {
        return Err(refused(format!(
            "`{name}` of the application's database does not begin with the name of a schema"
        )));
    }
    Ok(first)
}

/// The value of `-c search_path=VALUE`, where that is all; empty where nothing is said.
fn search_path(options: &str) -> Option<&str> {
    let options = options.trim();
    if options.is_empty() {
        return Some("");
    }
    let rest = options.strip_prefix("--").or_else(|| options.strip_prefix("-c").map(str::trim_start))?;
    let path = rest.strip_prefix("search_path=")?;
    // Blanks separate options.
    (!path.is_empty() && !path.contains([' ', '\t', '\\'])).then_some(path)
}

/// The endpoint that Neon's `endpoint=…` names, for clients that do not name the host in TLS.
fn endpoint(options: &str) -> Option<&str> {
    let name =
        options.trim().strip_prefix("endpoint=").or_else(|| options.trim().strip_prefix("project="))?;
    (!name.is_empty() && is_word(name)).then_some(name)
}

/// Whether the host is this endpoint's, which has it as its first label, with `-pooler` behind it or without.
fn has_endpoint(host: &str, endpoint: &str) -> bool {
    let label = host.split('.').next().unwrap_or_default();
    let (label, endpoint) = (label.to_ascii_lowercase(), endpoint.to_ascii_lowercase());
    label == endpoint || label.strip_suffix("-pooler") == Some(&*endpoint)
}

/// A name as parameters have them.
pub(super) fn is_word(text: &str) -> bool {
    text.len() <= 60 && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// A socket file or its folder, or an abstract one.
fn is_path(host: &str) -> bool {
    host.starts_with(['/', '@'])
}

/// A host of a parameter, with a port behind it or none.
fn host_and_port(text: &str) -> HostPort {
    match text.split_once(':') {
        // A path may have a `:` of its own.
        Some((host, port)) if !host.contains('[') && !is_path(text) => match port.parse() {
            Ok(port) => (host.to_owned(), Some(port)),
            Err(_) => (text.to_owned(), None),
        },
        _ => (text.to_owned(), None),
    }
}

/// A host and port as a mill's URL has them.
fn written(host: &str, port: u16) -> String {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.contains(':') {
        return format!("[{}]:{port}", utf8_percent_encode(bare, ADDRESS));
    }
    format!("{}:{port}", utf8_percent_encode(bare, ENCODED))
}
