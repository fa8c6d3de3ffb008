//! Which other users can read or change a file: not looked at. A file has the rights of its folder, and the rights of a user's own
//! folders keep other users out. libpq does the same with its password file.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::system::Rights;

/// Nothing is said against the file: its rights are not looked at.
///
/// # Errors
/// None.
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
pub(crate) fn of_secret(_file: &File, _path: &Path) -> io::Result<Rights> {
    Ok(Rights { exposed: None, changeable: None })
}

/// Not looked at.
pub(crate) fn exposed_database(_real: &Path) -> Option<String> {
    None
}

/// No password goes to a socket file.
pub(crate) fn is_shared(_socket: &Path) -> bool {
    true
}
