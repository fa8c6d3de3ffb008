//! Key files: which versions of a key there are, and which one seals.
//!
//! ```toml
//! seal_with = 2
//! [key]
//! 1 = "64 hexadecimal digits"
//! 2 = "64 hexadecimal digits"
//! ```
//!
//! No message holds a value of the file, nor a name that may be a key in the wrong place. What the parser says about a value quotes it, so only
//! its line number is told.

use serde_json::{Map, Value};
use zeroize::{Zeroize, Zeroizing};

use crate::document::{self, Faults, Unreadable};
use crate::error::{Error, Result, shown};

/// The longest key file, in bytes: 255 keys have a third of it.
pub(crate) const LONGEST_KEY_FILE: usize = 64 << 10;

/// How long a name may be that a message shows.
const LONGEST_SHOWN: usize = 32;

/// A key of 32 bytes.
pub(super) type KeyBytes = Zeroizing<[u8; 32]>;

/// The keys of a file.
pub(crate) struct KeyFile {
    pub(super) seal_with: u8,
    /// By rising version.
    pub(super) keys: Vec<(u8, KeyBytes)>,
}

impl KeyFile {
    /// Keys of the caller's.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: no key, a key without 32 bytes, version 0, a version that is there twice, or `seal_with` without a key.
    pub(crate) fn of_keys(keys: &[(u8, &[u8])], seal_with: u8) -> Result<KeyFile> {
        for (at, (version, key)) in keys.iter().enumerate() {
            if *version == 0 {
                return Err(Error::argument("key version 0 is reserved; versions are 1 to 255"));
            }
            if key.len() != 32 {
                return Err(Error::argument(format!("key {version} has {} bytes; a key has 32", key.len())));
            }
            if keys[..at].iter().any(|(other, _)| other == version) {
                return Err(Error::argument(format!("key version {version} is given twice")));
            }
        }
        let mut found = Vec::new();
        for wanted in 1..=u8::MAX {
            for (_, bytes) in keys.iter().filter(|(version, _)| *version == wanted) {
                let mut key = Zeroizing::new([0; 32]);
                key.copy_from_slice(bytes);
                found.push((wanted, key));
            }
        }
        if !found.iter().any(|(version, _)| *version == seal_with) {
            return Err(Error::argument(format!(
                "there is no key of version {seal_with}, the version to seal with; given are {}",
                versions(found.iter().map(|(version, _)| version))
            )));
        }
        Ok(KeyFile { seal_with, keys: found })
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// `INVALID_CONFIG` with the faults of the text, 100 at most.
    pub(crate) fn parse(text: &str) -> Result<KeyFile> {
        let document = document::read_toml(text, LONGEST_KEY_FILE).map(KeyDocument).map_err(|unreadable| {
            Error::config(match unreadable {
                // Without the parser's message, which quotes the text.
                Unreadable::Malformed { line, .. } => format!(
                    "the key file is not TOML in line {line}: it has `seal_with = 1` and below `[key]` lines such as `1 = \"64 hexadecimal digits\"`"
                ),
                other => format!("the key file {other}"),
            })
        })?;
        document.checked()
    }
}

/// The versions as a message lists them.
pub(super) fn versions<'v>(versions: impl Iterator<Item = &'v u8>) -> String {
    let all: Vec<_> = versions.map(u8::to_string).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// The document of a key file, whose texts are wiped. The type is the same as for route tables, so that the reader is compiled once.
struct KeyDocument(Value);

impl Drop for KeyDocument {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(list) => list.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        _ => {}
    }
}

impl KeyDocument {
    fn checked(&self) -> Result<KeyFile> {
        let mut faults = Faults::default();
        for name in self
            .0
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
            .filter(|name| !["seal_with", "key"].contains(&name.as_str()))
        {
            faults.push(format!("it has {}, which is neither `seal_with` nor `key`", named_as(name)));
        }
        let given = match self.0.get("key") {
            Some(Value::Object(given)) => Some(given),
            Some(_) => {
                faults.push("`key` is no table: write `[key]` in a line of its own".to_owned());
                None
            }
            None => None,
        };
        let mut known = 0;
        let (mut keys, mut named) = (Vec::new(), Vec::new());
        for version in 1..=u8::MAX {
            let Some(key) = given.and_then(|given| given.get(&version.to_string())) else { continue };
            known += 1;
            named.push(version);
            match key.as_str().map(|text| (key_of_hex(text), text.chars().count())) {
                Some((Some(key), _)) => keys.push((version, key)),
                Some((None, length)) => faults.push(format!(
                    "key {version} is not 64 hexadecimal digits: it has {length} characters; make one with `openssl rand -hex 32`"
                )),
                None => faults.push(format!("key {version} is not a text of 64 hexadecimal digits")),
            }
        }
        if let Some(given) = given.filter(|given| given.len() > known) {
            // One spelling for each version: `01` and `1` would be two names of one.
            let is_version = |name: &String| named.iter().any(|version| version.to_string() == *name);
            for name in given.keys().filter(|name| !is_version(name)) {
                faults.push(format!("`key` has {}, and versions are 1 to 255", named_as(name)));
            }
        }
        if named.is_empty() {
            faults.push(
                "it has no key: write one below `[key]`, such as `1 = \"64 hexadecimal digits\"`".to_owned(),
            );
        }
        let mut seal_with = 0;
        match self.0.get("seal_with").map(Value::as_i64) {
            None => faults.push(
                "`seal_with` is missing: it says which version seals, such as `seal_with = 1`".to_owned(),
            ),
            Some(None) => faults.push("`seal_with` is not a whole number from 1 to 255".to_owned()),
            Some(Some(given)) => match u8::try_from(given).ok().filter(|version| *version > 0) {
                None => faults.push(format!("`seal_with = {given}`, and versions are 1 to 255")),
                Some(version) if !named.contains(&version) => {
                    faults.push(format!(
                        "`seal_with = {version}`, and the file's keys are {}",
                        versions(named.iter())
                    ));
                }
                Some(version) => seal_with = version,
            },
        }
        match faults.in_one_line() {
            None => Ok(KeyFile { seal_with, keys }),
            Some(faults) => Err(Error::config(format!("the key file is refused: {faults}"))),
        }
    }
}

/// A name of the file as a message may show it.
fn named_as(name: &str) -> String {
    match name.chars().count() {
        short if short <= LONGEST_SHOWN => format!("`{}`", shown(name)),
        long => format!("a name of {long} characters"),
    }
}

fn key_of_hex(text: &str) -> Option<KeyBytes> {
    if text.len() != 64 {
        return None;
    }
    let mut key = Zeroizing::new([0; 32]);
    for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16);
        *byte = (digit(0)? << 4 | digit(1)?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use proptest::prelude::*;

    const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";

    fn file(text: &str) -> Result<KeyFile> {
        KeyFile::parse(&text.replace("KEY", KEY))
    }

    #[test]
    fn a_file_has_keys_by_their_versions() -> Result<()> {
        for text in [
            "seal_with = 255\n[key]\n1 = \"KEY\"\n255 = \"KEY\"\n",
            "\u{feff}seal_with = 255\nkey = { 1 = \"KEY\", 255 = \"KEY\" } # comment",
            "key.1 = 'KEY'\nkey.255 = \"\"\"KEY\"\"\"\nseal_with = 0xff\n",
        ] {
            let found = file(text)?;
            assert_eq!(
                (found.seal_with, found.keys.iter().map(|(version, _)| *version).collect()),
                (255, vec![1, 255]),
                "{text}"
            );
            assert!(
                found
                    .keys
                    .iter()
                    .all(|(_, key)| key.iter().enumerate().all(|(at, byte)| at == usize::from(*byte)))
            );
        }
        Ok(())
    }

    #[test]
    fn each_fault_of_a_file_is_told_and_no_key_is_shown() {
        for (text, told) in [
            ("", "it has no key"),
            ("seal_with = 1", "it has no key"),
            ("seal_with = 1\n[key]", "it has no key"),
            ("[key]\n1 = \"KEY\"", "`seal_with` is missing"),
            ("seal_with = 0\n[key]\n1 = \"KEY\"", "`seal_with = 0`, and versions are 1 to 255"),
            ("seal_with = 256\n[key]\n1 = \"KEY\"", "`seal_with = 256`"),
            ("seal_with = -1\n[key]\n1 = \"KEY\"", "`seal_with = -1`"),
            ("seal_with = \"1\"\n[key]\n1 = \"KEY\"", "`seal_with` is not a whole number"),
            ("seal_with = \"KEY\"\n[key]\n1 = \"KEY\"", "`seal_with` is not a whole number"),
            ("seal_with = 1.0\n[key]\n1 = \"KEY\"", "`seal_with` is not a whole number"),
            (
                "seal_with = 3\n[key]\n2 = \"KEY\"\n1 = \"KEY\"",
                "`seal_with = 3`, and the file's keys are 1, 2",
            ),
            ("seal_with = 1\n[key]\n0 = \"KEY\"\n1 = \"KEY\"", "`key` has `0`, and versions are 1 to 255"),
            ("seal_with = 1\n[key]\n256 = \"KEY\"\n1 = \"KEY\"", "`key` has `256`"),
            ("seal_with = 1\n[key]\n01 = \"KEY\"\n1 = \"KEY\"", "`key` has `01`"),
            ("seal_with = 1\n[key]\nKEY = 1\n1 = \"KEY\"", "`key` has a name of 64 characters"),
            (
                "seal_with = 1\nKEY = 1\n[key]\n1 = \"KEY\"",
                "it has a name of 64 characters, which is neither",
            ),
            ("seal_with = 1\nother = \"KEY\"\n[key]\n1 = \"KEY\"", "it has `other`, which is neither"),
            (
                "seal_with = 1\n[key]\n1 = \"KEY0\"",
                "key 1 is not 64 hexadecimal digits: it has 65 characters",
            ),
            ("seal_with = 1\n[key]\n1 = \"\"", "key 1 is not 64 hexadecimal digits: it has 0 characters"),
            ("seal_with = 1\n[key]\n1 = \" KEY\"", "it has 65 characters"),
            ("seal_with = 1\n[key]\n1 = 42", "key 1 is not a text of 64 hexadecimal digits"),
            ("seal_with = 1\n[key]\n1 = [\"KEY\"]", "key 1 is not a text"),
            ("seal_with = 1\n[key.1]\na = \"KEY\"", "key 1 is not a text"),
            ("seal_with = 1\n[key]\n1 = \"KEY", "is not TOML in line 3"),
            ("seal_with = 1\nkey = \"KEY\"", "`key` is no table"),
            ("seal_with = 1\n[[key]]\n1 = \"KEY\"", "`key` is no table"),
            ("seal_with = 1\n[key]\n1 = \"KEY\"\n1 = \"KEY\"", "is not TOML in line"),
            ("{\"seal_with\": 1}", "is not TOML in line 1"),
            ("KEY", "is not TOML in line 1"),
            ("[key]\n1 = true", "key 1 is not a text of 64 hexadecimal digits; `seal_with` is missing"),
        ] {
            let error = file(text).err().unwrap_or_else(|| panic!("accepted: {text}"));
            assert_eq!(error.code, Code::InvalidConfig);
            assert!(error.message.contains(told), "{text}: {error}");
            assert!(!error.message.contains(&KEY[..8]), "{error}");
        }
        let wrong = KEY.replace('a', "g");
        let error =
            KeyFile::parse(&format!("seal_with = 1\n[key]\n1 = \"{wrong}\"")).err().expect("no digits");
        assert!(
            error.message.contains("it has 64 characters") && !error.message.contains(&wrong[..8]),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn no_other_text_is_taken(text in "\\PC*", keys in "(seal_with|key|\\[|\\]|=|1|\"|\n|\\{|\\}|\\.| )*") {
            prop_assert!(KeyFile::parse(&text).is_err());
            prop_assert!(KeyFile::parse(&keys).is_err());
        }
    }

    #[test]
    fn keys_of_the_caller_have_versions_of_their_own() {
        let key = [7; 32];
        let key_file = |versions: &[u8], seal_with| {
            let keys: Vec<_> = versions.iter().map(|version| (*version, key.as_slice())).collect();
            KeyFile::of_keys(&keys, seal_with)
        };
        assert!(key_file(&[1, 255], 255).is_ok());
        for (versions, seal_with, told) in [
            (&[0, 1][..], 1, "version 0 is reserved"),
            (&[1, 1], 1, "version 1 is given twice"),
            (&[1, 2], 3, "no key of version 3, the version to seal with; given are 1, 2"),
            (&[], 1, "given are none"),
        ] {
            let error = key_file(versions, seal_with).err().expect("refused");
            assert_eq!(error.code, Code::InvalidArgument);
            assert!(error.message.contains(told), "{error}");
        }
        for length in [0, 16, 31, 33, 64] {
            let error = KeyFile::of_keys(&[(1, &vec![7; length])], 1).err().expect("no key");
            assert!(error.message.contains(&format!("has {length} bytes; a key has 32")), "{error}");
        }
    }
}
