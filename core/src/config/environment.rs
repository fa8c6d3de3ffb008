//! The environment variables that name a mill and its password.

use std::ffi::OsString;

use super::{DEFAULT_MILL, MILL_VARIABLE};
use crate::error::{Error, Result};
use crate::store::server::PASSWORD_VARIABLE;

/// What the environment says of a mill. A language whose threads have environments of their own hands over the one of its thread.
#[derive(Default)]
pub struct Environment {
    /// `KEYMILL_CONFIG`.
    pub mill: Option<OsString>,
    /// `KEYMILL_PASSWORD`.
    pub password: Option<OsString>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

impl Environment {
    /// The environment of the process.
    #[must_use]
    pub fn of_process() -> Environment {
        Environment { mill: std::env::var_os(MILL_VARIABLE), password: std::env::var_os(PASSWORD_VARIABLE) }
    }

    /// The configuration string of the default mill: the value of [`MILL_VARIABLE`], else [`DEFAULT_MILL`].
    ///
    /// # Errors
    /// `INVALID_CONFIG` where the variable is empty or not UTF-8. An empty one is a setting that was never filled in; the default
    /// in its place would count from another row.
    pub fn default_mill(&self) -> Result<String> {
        let Some(config) = &self.mill else { return Ok(DEFAULT_MILL.to_owned()) };
        let config = config.to_str().ok_or_else(|| Error::config(format!("{MILL_VARIABLE} is not UTF-8")))?;
        if config.trim().is_empty() {
            return Err(Error::config(format!(
                "{MILL_VARIABLE} is empty; set it to a mill, such as {DEFAULT_MILL}, or unset it"
            )));
        }
        Ok(config.to_owned())
    }
}
