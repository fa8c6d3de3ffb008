//! The TOML file: a store or several, mill options, defaults by kind, options by source.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::document::{self, Unreadable};
use crate::error::{Error, Result, shown};

use crate::store::interleave::{DEFAULT_CHUNK, MOST_STORES, NARROWEST_CHUNK, WIDEST_CHUNK};

use crate::store::secret_file;
use crate::store::server::{PASSWORD_VARIABLE, PasswordSource};

use super::{Environment, Fork, MillConfig, Options, StoreConfig, check_options, sign_in, url};

/// The longest file that is read.
const LONGEST: usize = 16 << 20;

/// The file as it is written; unknown keys are refused with the valid ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    store: Option<String>,
    stores: Option<Vec<String>>,
    chunk: Option<u64>,
    fork: Option<String>,
    clock: Option<String>,
    max_sources: Option<OptionValue>,
    reader_lease: Option<String>,
    password_file: Option<String>,
    #[serde(default)]
    segment: BTreeMap<String, OptionValue>,
    #[serde(default)]
    snowflake: BTreeMap<String, OptionValue>,
    #[serde(default)]
    serial: BTreeMap<String, OptionValue>,
    #[serde(default)]
    business: BTreeMap<String, OptionValue>,
    #[serde(default)]
    source: BTreeMap<String, BTreeMap<String, OptionValue>>,
}

/// An option's value: people write `step = 1000` as well as `step = "1000"`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an option's value is a text, a whole number, true or false")]
enum OptionValue {
    Text(String),
    Number(i64),
    Switch(bool),
}

impl OptionValue {
    fn into_text(self) -> String {
        match self {
            OptionValue::Text(text) => text,
            OptionValue::Number(number) => number.to_string(),
            OptionValue::Switch(on) => if on { "on" } else { "off" }.to_owned(),
        }
    }
}

fn texts(values: BTreeMap<String, OptionValue>) -> Options {
    values.into_iter().map(|(k, v)| (k, v.into_text())).collect()
}

pub(super) fn read(path: &str, environment: &Environment) -> Result<MillConfig> {
    let file = secret_file::read(Path::new(path), LONGEST as u64)
        .map_err(|e| Error::config(format!("reading the configuration file `{}`: {e}; name a TOML file that can be read, by its whole path if need be, or a store's URL such as sqlite:keymill.db", shown(path))))?;
    let mut config = parse(&file.text)
        .map_err(|e| Error::config(format!("configuration file `{}`: {}", shown(path), e.message)))?;
    if let Some(exposed) = file.exposed {
        config.store.servers(&mut |server| {
            if server.password_source == PasswordSource::Url && !server.password.reveal().is_empty() {
                return Err(Error::config(format!(
                    "configuration file `{}` holds a password and {exposed}; or move the password into a file of its own and name it with `password_file=`",
                    shown(path)
                )));
            }
            Ok(())
        })?;
    }
    if let Some(changeable) = file.changeable.filter(|_| environment.password.is_some()) {
        config.store.servers(&mut |server| {
            if server.password_source == PasswordSource::None && !server.user.is_empty() {
                return Err(Error::config(format!(
                    "configuration file `{}` says where the password of {PASSWORD_VARIABLE} is sent, and {changeable}",
                    shown(path)
                )));
            }
            Ok(())
        })?;
    }
    Ok(config)
}

fn parse(text: &str) -> Result<MillConfig> {
    let file: Document = document::read_toml(text, LONGEST).map_err(|unreadable| {
        Error::config(match unreadable {
            Unreadable::Malformed { line, says, .. } => {
                format!("line {line}: {}", document::said(&without_values(&says)))
            }
            other => format!("it {other}"),
        })
    })?;
    let mut config = stores(file.store, file.stores, file.chunk)?;
    if let Some(path) = file.password_file {
        sign_in::from_file(&mut config.store, &url::password_file(&path)?)?;
    }
    let mut own = Options::new();
    own.extend(file.fork.map(|v| ("fork".to_owned(), v)));
    own.extend(file.clock.map(|v| ("clock".to_owned(), v)));
    own.extend(file.max_sources.map(|v| ("max_sources".to_owned(), v.into_text())));
    own.extend(file.reader_lease.map(|v| ("reader_lease".to_owned(), v)));
    set_mill_options(&mut config, &own)?;
    for (kind, options) in [
        ("segment", file.segment),
        ("snowflake", file.snowflake),
        ("serial", file.serial),
        ("business", file.business),
    ] {
        let options = texts(options);
        check_options(kind, &options)?;
        config.kinds.insert(kind.to_owned(), options);
    }
    set_sources(&mut config, file.source)?;
    Ok(config)
}

/// What `store`, `stores` and `chunk` say.
fn stores(store: Option<String>, stores: Option<Vec<String>>, chunk: Option<u64>) -> Result<MillConfig> {
    match (store, stores) {
        (Some(_), Some(_)) => Err(Error::config("`store` and `stores` are both given; write one of them")),
        (None, Some(stores)) => several(&stores, chunk),
        (_, None) if chunk.is_some() => Err(Error::config(
            "`chunk` says how several `stores` share the numbers; with one `store` leave it out",
        )),
        (store, None) => {
            let store = store.unwrap_or_else(|| super::DEFAULT_MILL.to_owned());
            if store.starts_with("file:") {
                return Err(Error::config("`store` names another file; write a store's URL"));
            }
            MillConfig::read(&store)
        }
    }
}

/// Options of the mill stand above the options of its store's URL.
fn set_mill_options(config: &mut MillConfig, own: &Options) -> Result<()> {
    let mill = url::mill(config.store.clone(), own)?;
    if own.contains_key("fork") {
        config.fork = mill.fork;
    }
    if own.contains_key("clock") {
        config.manual_clock = mill.manual_clock;
    }
    if own.contains_key("max_sources") {
        config.max_sources = mill.max_sources;
    }
    if own.contains_key("reader_lease") {
        config.reader_lease_ms = mill.reader_lease_ms;
    }
    Ok(())
}

fn set_sources(
    config: &mut MillConfig,
    sources: BTreeMap<String, BTreeMap<String, OptionValue>>,
) -> Result<()> {
    for (source, options) in sources {
        let options = texts(options);
        if source.contains('?') {
            return Err(Error::config(format!(
                "source `{}`: options stand under the name, not in it; write [source.\"kind:name\"] and option = value",
                shown(&source)
            )));
        }
        let kind = source.split(':').next().unwrap_or_default();
        check_options(kind, &options)
            .map_err(|e| Error::config(format!("source `{}`: {}", shown(&source), e.message)))?;
        config.sources.insert(source, options);
    }
    // A typing error in a value is reported now, not when the source is first used.
    for source in config.sources.keys() {
        config
            .spec(source)
            .map_err(|e| Error::config(format!("source `{}`: {}", shown(source), e.message)))?;
    }
    Ok(())
}

/// `stores = […]`: every source is served by all of them.
fn several(stores: &[String], chunk: Option<u64>) -> Result<MillConfig> {
    let chunk = chunk.unwrap_or(DEFAULT_CHUNK);
    if !(NARROWEST_CHUNK..=WIDEST_CHUNK).contains(&chunk) {
        return Err(Error::config(format!(
            "`chunk = {chunk}` is not valid; valid: a whole number from {NARROWEST_CHUNK} to {WIDEST_CHUNK}"
        )));
    }
    if !(2..=MOST_STORES).contains(&stores.len()) {
        return Err(Error::config(format!(
            "`stores` lists {}; write 2 to {MOST_STORES}, or store = \"…\" for one",
            stores.len()
        )));
    }
    let (mut each, mut ignored): (Vec<StoreConfig>, Vec<String>) = (Vec::new(), Vec::new());
    for (at, url) in stores.iter().enumerate() {
        let refused = |message: &str| Error::config(format!("store {} of `stores`: {message}", at + 1));
        if url.is_empty() || url.starts_with("file:") {
            return Err(refused("it is no URL of a store"));
        }
        let read = MillConfig::read(url).map_err(|e| refused(&e.message))?;
        if read.fork != Fork::default()
            || read.manual_clock.is_some()
            || read.max_sources != url::MAX_SOURCES
            || read.reader_lease_ms != url::READER_LEASE_MS
        {
            return Err(refused(
                "`fork`, `clock`, `max_sources` and `reader_lease` are the mill's; write them at the top of the file",
            ));
        }
        // Memories without a name are different ones.
        let shown = read.store.shown();
        if shown != "memory:" && each.iter().any(|other| other.shown() == shown) {
            return Err(refused("it stands there twice"));
        }
        each.push(read.store);
        ignored.extend(read.ignored);
    }
    let mill = url::mill(StoreConfig::Interleaved { stores: each, chunk }, &Options::new())?;
    Ok(MillConfig { ignored, ..mill })
}

/// A parser's message without the values it quotes: `store` may have been misspelt, and its password with it.
fn without_values(message: &str) -> String {
    let quoted = message.split_once('"').and_then(|(head, rest)| Some((head, rest.rsplit_once('"')?.1)));
    match quoted {
        Some((head, tail)) => format!("{head}\"…\"{tail}"),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::request::worker::Slots;
    use crate::spec::Worker;

    #[test]
    fn a_password_in_the_wrong_place_is_not_repeated() {
        for text in [
            r#"stores = "mysql://u:topsecret@h/x""#,
            r#"segment = "mysql://u:topsecret@h/x""#,
            r#"store = ["mysql://u:topsecret@h/x"]"#,
            r#"store = "mysql://u:topsecret@h/x"#,
            "store = mysql://u:topsecret@h/x",
            r#"store = "mysql://u:p?topsecret@h/x""#,
            r#"store = "mysql://u:p@q?topsecret@h/x""#,
            r#"store = "mysql://u:p?topsecret=1@h/x""#,
            r#"store = "mysql://u:p?topsecret""#,
            r#"store = "mysql://u:p?topsecret=1/x""#,
            r#"store = "u/topsecret@h:3306/x""#,
            r#"store = "topsecret@h:3306/x""#,
        ] {
            let error = parse(text).map(drop).unwrap_err();
            assert!(!error.message.contains("topsecret"), "{text}: {}", error.message);
            assert!(!error.message.contains('\n'), "{text}: {}", error.message);
        }
    }

    #[test]
    fn every_kind_of_source_has_its_defaults() -> Result<()> {
        for (kind, spec) in [
            ("segment", "segment:a"),
            ("snowflake", "snowflake:a"),
            ("serial", "serial:a/b"),
            ("business", "business:a"),
        ] {
            let config = parse(&format!("store = \"memory:\"\n[{kind}]\ndeadline = \"7s\""))?;
            assert_eq!(config.spec(spec)?.deadline, std::time::Duration::from_secs(7), "{kind}");
            let error = parse(&format!("[{kind}]\nnonsense = 1")).map(drop).expect_err(kind);
            assert!(error.message.contains("nonsense"), "{}", error.message);
        }
        Ok(())
    }

    #[test]
    fn several_stores_are_read_in_their_order() -> Result<()> {
        let config = parse("stores = [\"mysql://u:topsecret@a/x\", \"sqlite:b.db\"]\nchunk = 5000")?;
        assert_eq!(config.store.shown(), "[mysql://a:3306/x, sqlite:b.db]");
        assert!(matches!(config.store, StoreConfig::Interleaved { chunk: 5000, .. }));
        assert!(parse("stores = [\"memory:\", \"memory:\"]").is_ok(), "each is another memory");
        Ok(())
    }

    #[test]
    fn stores_that_cannot_share_are_refused_with_what_to_write() {
        for (text, says) in [
            ("stores = []", "2 to 99"),
            ("stores = [\"memory:\"]", "2 to 99"),
            ("stores = [\"memory:a\", \"memory:a\"]", "store 2 of `stores`: it stands there twice"),
            ("stores = [\"mysql://u@a/x\", \"mysql://v:topsecret@a:3306/x\"]", "twice"),
            ("stores = [\"memory:a\", \"file:b.toml\"]", "no URL"),
            ("stores = [\"memory:a\", \"\"]", "no URL"),
            ("stores = [\"memory:a\", \"mysql://u:topsecret@a\"]", "names no database"),
            ("stores = [\"memory:a\", \"memory:b?fork=error\"]", "top of the file"),
            ("stores = [\"memory:a\", \"memory:b\"]\nchunk = 10", "from 1000"),
            ("stores = [\"memory:a\", \"memory:b\"]\nstore = \"memory:c\"", "one of them"),
            ("store = \"memory:a\"\nchunk = 1000", "leave it out"),
        ] {
            let error = parse(text).map(drop).expect_err(text);
            assert!(error.message.contains(says), "{text}: {}", error.message);
            assert!(!error.message.contains("topsecret"), "{text}: {}", error.message);
        }
        let config = parse("stores = [\"memory:a\", \"memory:b\"]").expect("a configuration");
        let error = config.spec("serial:a/b").expect_err("a serial over several stores");
        assert!(error.message.contains("a mill with one store"), "{}", error.message);
    }

    #[test]
    fn a_public_file_with_a_password_is_refused() -> Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().map_err(|e| Error::config(e.to_string()))?;
        let path = folder.path().join("keymill.toml");
        let at = path.display().to_string();
        let read_as = |mode, text: &str| {
            std::fs::write(&path, text).expect("a file");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("a mode");
            read(&at, &Environment::default())
        };
        let one = "store = \"mysql://u:topsecret@h/x\"";
        let several = "stores = [\"sqlite:a.db\", \"redis://:topsecret@h\"]";
        for text in [one, several] {
            for mode in [0o644, 0o640, 0o604] {
                let error = read_as(mode, text).map(drop).expect_err(text);
                assert!(error.message.contains(&format!("run `chmod 600 {at}`")), "{}", error.message);
                assert!(!error.message.contains("topsecret"), "{}", error.message);
            }
            read_as(0o600, text)?;
        }
        for text in
            ["store = \"mysql://u@h/x?password_file=/run/secrets/ids\"", "store = \"sqlite:a.db\"", ""]
        {
            read_as(0o644, text)?;
        }
        Ok(())
    }

    #[test]
    fn a_password_file_is_for_the_servers_that_name_no_password() -> Result<()> {
        let config = parse(
            "stores = [\"mysql://u@a/x\", \"mysql://u:topsecret@b/x\", \"postgres://u@c/x?password_file=/c\", \"sqlite:a.db\"]\n\
             password_file = \"/run/secrets/ids\"",
        )?;
        let mut found = Vec::new();
        let mut store = config.store;
        store.servers(&mut |server| {
            found.push(server.password_source.clone());
            Ok(())
        })?;
        let file = |path: &str| PasswordSource::File(path.into());
        assert_eq!(found, [file("/run/secrets/ids"), PasswordSource::Url, file("/c")]);
        for store in ["sqlite:a.db", "mysql://u:topsecret@b/x", "mysql://u@b/x?password_file=/y"] {
            let error = parse(&format!("store = \"{store}\"\npassword_file = \"/x\"")).map(drop).unwrap_err();
            assert!(error.message.contains("for servers whose URL"), "{store}: {}", error.message);
        }
        Ok(())
    }

    #[test]
    fn an_error_names_the_line_it_stands_in() {
        for (text, line) in [
            ("stor = 1", "line 1:"),
            ("\n\nstor = 1", "line 3:"),
            ("fork = \"error\"\nclock = [\n", "line 2:"),
        ] {
            let error = parse(text).map(drop).unwrap_err();
            assert!(error.message.starts_with(line), "{text}: {}", error.message);
        }
    }

    #[test]
    fn an_option_for_another_worker_than_a_source_names_is_passed_over() -> Result<()> {
        let config = parse(
            "store = \"memory:\"\n[snowflake]\nlease = \"3s\"\n[source.\"snowflake:b\"]\nworker = 5\nmark = \"none\"",
        )?;
        let worker = |spec: &str| config.spec(spec).map(|read| read.snowflake.expect("a snowflake").worker);
        let slots = Slots { first: 0, last: 1023 };
        assert_eq!(worker("snowflake:a")?, Worker::Leased { lease_ms: 3000, slots });
        assert_eq!(worker("snowflake:a?worker=7")?, Worker::Fixed(7));
        assert_eq!(worker("snowflake:b")?, Worker::Fixed(5));
        assert_eq!(worker("snowflake:b?worker=lease")?, Worker::Leased { lease_ms: 3000, slots });
        for contrary in ["snowflake:a?worker=7&lease=4s", "snowflake:b?lease=4s"] {
            assert_eq!(worker(contrary).unwrap_err().code, Code::InvalidConfig, "{contrary}");
        }
        let contrary = "store = \"memory:\"\n[source.\"snowflake:c\"]\nworker = 5\nlease = \"4s\"";
        assert!(parse(contrary).is_err(), "in one place");
        Ok(())
    }

    #[test]
    fn an_option_that_is_no_text_number_or_switch_is_said_so() {
        let error = parse("[source.\"segment:a\"]\nstep = [1]").map(drop).unwrap_err();
        assert!(error.message.contains("a whole number"), "{}", error.message);
    }
}
