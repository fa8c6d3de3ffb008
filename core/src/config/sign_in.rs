//! Which servers get the password of the environment, or the `password_file` at the top of a TOML file. No URL holds either.
//!
//! Such a password is one user's. It goes to servers whose URL names this user and to no others: each of the others would
//! learn it.

use std::ffi::OsStr;
use std::sync::{Mutex, PoisonError};

use super::{Environment, StoreConfig};
use crate::error::{Error, Result, shown};
use crate::store::Secret;
use crate::store::server::{PASSWORD_VARIABLE, PasswordSource};

/// The user of the password that the environment holds. No variable names this user: it is the first user that a URL of this process names
/// without a password. A process reads several URLs: the URLs of its mills, and of the shards of a move.
static VARIABLES_USER: Mutex<Option<NamedPassword>> = Mutex::new(None);

/// A password, and the user who was the first to be signed in with it.
struct NamedPassword {
    password: Secret,
    user: String,
}

/// Gives the environment's password to the servers whose URLs name its user and no password.
///
/// # Errors
/// `INVALID_CONFIG`: the variable is empty or not UTF-8, or a URL names another user than the first one.
pub(super) fn from_environment(store: &mut StoreConfig, environment: &Environment) -> Result<()> {
    let mut named = VARIABLES_USER.lock().unwrap_or_else(PoisonError::into_inner);
    sign_in(store, environment.password.as_deref(), &mut named)
}

fn sign_in(
    store: &mut StoreConfig,
    password: Option<&OsStr>,
    named: &mut Option<NamedPassword>,
) -> Result<()> {
    let Some(password) = password else { return Ok(()) };
    // Another password is another user's: the program has changed its environment.
    let mut user =
        named.as_ref().filter(|named| password == named.password.reveal()).map(|named| named.user.clone());
    let mut is_used = false;
    store.servers(&mut |server| {
        if server.password_source != PasswordSource::None || server.user.is_empty() {
            return Ok(());
        }
        let text = password
            .to_str()
            .ok_or_else(|| Error::config(format!("{PASSWORD_VARIABLE} is not UTF-8")))?;
        if text.is_empty() {
            // A secret that was never filled in: without it some servers would accept the login.
            return Err(Error::config(format!(
                "{PASSWORD_VARIABLE} is empty, and the URL of {} names no password; set the variable, or unset it",
                server.shown()
            )));
        }
        one_user(PASSWORD_VARIABLE, &mut user, &server.user)?;
        server.password = Secret::new(text);
        server.password_source = PasswordSource::Environment;
        is_used = true;
        Ok(())
    })?;
    if is_used && let (Some(user), Some(text)) = (user, password.to_str()) {
        *named = Some(NamedPassword { password: Secret::new(text), user });
    }
    Ok(())
}

/// Gives the file of a TOML file's `password_file` to the servers whose URLs name no password.
///
/// # Errors
/// `INVALID_CONFIG`: there is no such server, or they name several users.
pub(super) fn from_file(store: &mut StoreConfig, source: &PasswordSource) -> Result<()> {
    let mut user = None;
    store.servers(&mut |server| {
        if server.password_source == PasswordSource::None {
            one_user("`password_file`", &mut user, &server.user)?;
            server.password_source = source.clone();
        }
        Ok(())
    })?;
    match user {
        Some(_) => Ok(()),
        None => Err(Error::config(
            "no store here reads `password_file`: it is for servers whose URL has no password and no `password_file=`; leave it out",
        )),
    }
}

/// `user` is the first user seen; another one is refused.
fn one_user(origin: &str, user: &mut Option<String>, next: &str) -> Result<()> {
    let first = user.get_or_insert_with(|| next.to_owned());
    if first == next {
        return Ok(());
    }
    let named =
        |user: &str| if user.is_empty() { "no user".to_owned() } else { format!("`{}`", shown(user)) };
    Err(Error::config(format!(
        "{origin} is the password of one user, but the URLs without a password name {} and {}; give each of them its own `password_file=FILE`",
        named(first),
        named(next)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;
    use crate::config::MillConfig;

    /// The servers' passwords after the environment was read, one URL after the other, as one process reads them.
    fn signed_in(urls: &[&str], variable: Option<&str>) -> Result<Vec<(PasswordSource, String)>> {
        let (mut named, mut found) = (None, Vec::new());
        for url in urls {
            let mut store = MillConfig::read(url)?.store;
            sign_in(&mut store, variable.map(OsStr::new), &mut named)?;
            store.servers(&mut |server| {
                found.push((server.password_source.clone(), server.password.reveal().to_owned()));
                Ok(())
            })?;
        }
        Ok(found)
    }

    fn several(urls: [&str; 2]) -> Result<StoreConfig> {
        let [first, second] = urls.map(|url| MillConfig::read(url).map(|read| read.store));
        Ok(StoreConfig::Interleaved { stores: vec![first?, second?], chunk: 1 })
    }

    type Way<'w> = &'w dyn Fn([&str; 2]) -> Result<Vec<PasswordSource>>;

    #[test]
    fn the_environment_gives_a_password_where_the_url_names_a_user_without_one() -> Result<()> {
        use PasswordSource::{Environment, File, None, Url};
        for (url, variable, source, password) in [
            ("mysql://u@h/x", Some("horse"), Environment, "horse"),
            ("redis://default@h", Some("horse"), Environment, "horse"),
            // No user: it is not known whose password that would be.
            ("redis://h", Some("horse"), None, ""),
            ("redis://h", Some(""), None, ""),
            ("redis://:own@h", Some("horse"), Url, "own"),
            ("redis://s?sentinel=m", Some("horse"), None, ""),
            ("mysql://u@h/x", Option::None, None, ""),
            ("mysql://u:own@h/x", Some("horse"), Url, "own"),
            ("mysql://u:@h/x", Some("horse"), Url, ""),
            ("mysql://u:own@h/x", Some(""), Url, "own"),
            ("postgres://u@h/x?password_file=/f", Some("horse"), File("/f".into()), ""),
        ] {
            assert_eq!(signed_in(&[url], variable)?, [(source, password.to_owned())], "{url} {variable:?}");
        }
        let error = signed_in(&["mysql://u@h/x"], Some("")).map(drop).unwrap_err();
        assert!(error.message.contains("KEYMILL_PASSWORD is empty"), "{}", error.message);
        let error = signed_in(&["mysql://u:own@h/x?password_file=/f"], Option::None).map(drop).unwrap_err();
        assert!(error.message.contains("write one of them"), "{}", error.message);
        Ok(())
    }

    #[test]
    fn the_environments_password_is_sent_for_one_user_only() -> Result<()> {
        use PasswordSource::{Environment, None, Url};
        let together = |urls: [&str; 2]| {
            let mut stores = several(urls)?;
            sign_in(&mut stores, Some(OsStr::new("horse")), &mut Option::None)?;
            let mut found = Vec::new();
            stores.servers(&mut |server| {
                found.push(server.password_source.clone());
                Ok(())
            })?;
            Ok(found)
        };
        let one_by_one = |urls: [&str; 2]| -> Result<Vec<PasswordSource>> {
            Ok(signed_in(&urls, Some("horse"))?.into_iter().map(|(source, _)| source).collect())
        };
        // Stores of one mill, and two mills or shards of one process.
        for found in [&together as Way<'_>, &one_by_one] {
            assert_eq!(found(["mysql://app@a/x", "mysql://app@b/x"])?, [Environment, Environment]);
            assert_eq!(found(["postgres://app@a/x", "redis://b"])?, [Environment, None]);
            assert_eq!(found(["redis://b", "postgres://app@a/x"])?, [None, Environment]);
            assert_eq!(found(["mysql://app@a/x", "mysql://ids:own@b/x"])?, [Environment, Url]);
            assert_eq!(found(["mysql://ids:own@b/x", "mysql://app@a/x"])?, [Url, Environment]);
            let error: Error = found(["mysql://app@a/x", "redis://ids@b"]).unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig);
            assert!(error.message.contains("`app` and `ids`"), "{}", error.message);
            assert!(!error.message.contains("horse"), "{}", error.message);
        }
        Ok(())
    }

    #[test]
    fn a_password_that_the_program_changed_is_the_next_users() -> Result<()> {
        let mut named = None;
        for (url, password) in [("mysql://app@a/x", "horse"), ("mysql://ids@a/x", "cow")] {
            sign_in(&mut MillConfig::read(url)?.store, Some(OsStr::new(password)), &mut named)?;
        }
        // A refused URL changes nothing.
        for url in ["mysql://app@a/x", "mysql://other@a/x"] {
            sign_in(&mut MillConfig::read(url)?.store, Some(OsStr::new("cow")), &mut named).unwrap_err();
        }
        sign_in(&mut MillConfig::read("mysql://ids@b/x")?.store, Some(OsStr::new("cow")), &mut named)
    }

    #[test]
    fn a_password_file_for_every_store_is_for_one_user_only() -> Result<()> {
        let source = PasswordSource::File("/f".into());
        from_file(&mut several(["mysql://app@a/x", "postgres://app@b/x"])?, &source)?;
        for (urls, names) in [
            (["mysql://app@a/x", "redis://ids@b"], "`app` and `ids`"),
            (["mysql://app@a/x", "redis://b"], "`app` and no user"),
        ] {
            let error = from_file(&mut several(urls)?, &source).unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig);
            assert!(error.message.contains(names), "{}", error.message);
        }
        Ok(())
    }
}
