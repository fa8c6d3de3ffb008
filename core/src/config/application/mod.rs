//! The application's database as the store: what frameworks know of it (JDBC URLs, Django's `DATABASES`, SQLAlchemy's and
//! others' URLs, and the parameters beside them) becomes a mill's configuration string. Nothing is asked and nothing is opened.
//!
//! * `jdbc`, `django`, `client_url`: the forms.
//! * `client_library`: what a parameter can mean; `known_names`: which names mean it, by library; `words`: unknown names.
//! * `settings`: what was found, and the string that says the same.
//! * `database_file`: SQLite.
//!
//! Known are where, as whom, how encrypted, which certificates and how long. An unknown name that may speak of one of these is
//! refused; every other one is ignored, and named by the mill's option `ignored=`, and the mill makes an event of it. Encryption
//! is never weaker than what is written, nor than what the library does where nothing is written. No message repeats a value: a
//! password may stand anywhere in a URL or a setting.

mod client_library;
mod client_url;
mod database_file;
mod django;
mod jdbc;
mod known_names;
mod settings;
#[cfg(test)]
mod tests;
mod words;

use percent_encoding::percent_decode_str;

use crate::error::{Error, Result};

/// The databases that can be a store, for messages.
const KNOWN: &str = "keymill keeps its numbers in MySQL, MariaDB, TiDB, PostgreSQL or SQLite";
/// What always works.
const INSTEAD: &str = "or configure the store itself, such as mysql://user:password@host/database?tls=verify";

/// The configuration string of a mill in the database that `url` and `properties` name.
pub(super) fn translate(url: &str, properties: &[(&str, &str)]) -> Result<String> {
    if url.len() + properties.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > 1 << 16 {
        return Err(Error::config("the application's database is described in more than 64 KiB"));
    }
    if let Some(rest) = url.strip_prefix("jdbc:") {
        return jdbc::translate(rest, properties);
    }
    if let Some(engine) = url.strip_prefix("django:") {
        return django::translate(engine, properties);
    }
    if let Some(rest) = url.strip_prefix("r2dbc:") {
        return client_url::translate(rest.strip_prefix("pool:").unwrap_or(rest), properties);
    }
    if let Some(rest) = url.strip_prefix("r2dbcs:") {
        let mut properties = properties.to_vec();
        properties.push(("sslmode", "verify-full"));
        return client_url::translate(rest.strip_prefix("pool:").unwrap_or(rest), &properties);
    }
    client_url::translate(url, properties)
}

/// The tables of known parameters: whose they are, the names, and what they mean for a store. The documentation shows it.
#[cfg(feature = "internals")]
#[must_use]
pub fn described() -> Vec<(&'static str, Vec<client_library::DescribedRow>)> {
    let each = |rows: client_library::RoleRows| {
        rows.iter().map(|(names, role)| (names.to_vec(), role.described())).collect()
    };
    known_names::TABLES.map(|(title, rows)| (title, each(rows))).to_vec()
}

/// What words of unknown names are about, and the words. The documentation shows it.
#[cfg(feature = "internals")]
#[must_use]
pub fn described_words() -> Vec<(&'static str, Vec<String>)> {
    words::TOPICS.iter().map(|topic| (topic.about, topic.words().collect())).collect()
}

/// A refusal that says what else can be done.
fn refused(why: impl std::fmt::Display) -> Error {
    Error::config(format!("{why}; {INSTEAD}"))
}

/// A text with its %XX decoded; with `plus` a `+` is a blank, as in a form.
fn decoded(text: &str, plus: bool) -> Result<String> {
    let text = if plus { text.replace('+', " ") } else { text.to_owned() };
    let decoded = percent_decode_str(&text).decode_utf8();
    decoded.map(std::borrow::Cow::into_owned).map_err(|_| {
        Error::config("the URL of the application's database is not UTF-8 once its %XX are decoded")
    })
}
