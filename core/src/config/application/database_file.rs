//! SQLite: the store is a file of its own beside the application's. A reservation during a write of the application to the same
//! file would wait for that, and the application for the id; and two SQLite libraries in one process damage a file that they
//! share.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::error::Result;

use super::refused;

/// What a `sqlite:` URL could read as something else.
const PATH: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'#');

/// The mill beside this file of the application's: `sqlite:NAME.keymill`.
pub(super) fn beside(file: &str) -> Result<String> {
    let (path, is_uri) = match file.strip_prefix("file:") {
        Some(path) => (path.strip_prefix("//").unwrap_or(path), true),
        None => (file, false),
    };
    let (path, query) = if is_uri { path.split_once('?').unwrap_or((path, "")) } else { (path, "") };
    let is_memory = path.is_empty()
        || path.starts_with(':')
        || path.starts_with("memorydb_")
        || query.split('&').any(|pair| pair == "mode=memory");
    if is_memory {
        return Err(refused(
            "the application's SQLite database lives in memory, and numbers kept there would begin again while its rows are still there: configure a store of its own, such as sqlite:keymill.db in the tests' folder, or memory: where the mill lives as long as the database",
        ));
    }
    // Two slashes at the beginning of a mill's URL are none of the path.
    let path =
        if path.starts_with("//") { format!("/{}", path.trim_start_matches('/')) } else { path.to_owned() };
    Ok(format!("sqlite:{}.keymill", utf8_percent_encode(&path, PATH)))
}
