//! Reads the options of a spec string one by one, with a message for a value that is not valid.

use std::collections::BTreeMap;

use crate::error::{Error, Result, shown};
use crate::spec::in_words;
use crate::time::duration;

/// Names that become SQL must be plain identifiers.
pub(super) fn check_identifier(name: &str, what: &str) -> Result<()> {
    let plain = !name.is_empty()
        && name.len() <= 64
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    if plain {
        return Ok(());
    }
    Err(Error::config(format!(
        "{what} `{}` is not an identifier: letters, digits, `_` and `$`, at most 64, not starting with a digit",
        shown(name)
    )))
}

/// Options of one spec, followed by the options of the file.
pub(super) struct OptionReader<'a> {
    pub(super) kind: &'static str,
    pub(super) given: &'a BTreeMap<String, String>,
}

impl OptionReader<'_> {
    pub(super) fn is_given(&self, option: &str) -> bool {
        self.given.contains_key(option)
    }

    pub(super) fn get(&self, option: &str) -> Option<&str> {
        self.given.get(option).map(String::as_str)
    }

    pub(super) fn text(&self, option: &str, default: &str) -> String {
        self.given.get(option).map_or(default, String::as_str).to_owned()
    }

    pub(super) fn one_of<T: Copy>(&self, option: &str, valid: &[(&str, T)]) -> Result<T> {
        let value = self.given.get(option).map_or(valid[0].0, String::as_str);
        valid.iter().find(|(name, _)| *name == value).map(|(_, t)| *t).ok_or_else(|| {
            let names: Vec<_> = valid.iter().map(|(name, _)| *name).collect();
            self.bad(option, value, &names.join(", "))
        })
    }

    pub(super) fn number(&self, option: &str, default: u64, least: u64, most: u64) -> Result<u64> {
        let Some(value) = self.given.get(option) else { return Ok(default) };
        match value.parse::<u64>() {
            Ok(n) if n >= least && n <= most && !value.starts_with('+') => Ok(n),
            _ => Err(self.bad(option, value, &format!("a whole number from {least} to {most}"))),
        }
    }

    pub(super) fn millis(&self, option: &str, default_ms: u64, least: u64, most: u64) -> Result<u64> {
        let Some(value) = self.given.get(option) else { return Ok(default_ms) };
        match duration(value) {
            Some(ms) if ms >= least && ms <= most => Ok(ms),
            _ => Err(self.bad(
                option,
                value,
                &format!(
                    "a time such as 500ms, 3s, 5m or 1h, from {} to {}",
                    in_words(least),
                    in_words(most)
                ),
            )),
        }
    }

    pub(super) fn bad(&self, option: &str, value: &str, valid: &str) -> Error {
        Error::config(format!(
            "option `{option}={}` of `{}` is not valid; valid: {valid}",
            shown(value),
            self.kind
        ))
    }
}
