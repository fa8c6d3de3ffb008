//! The mills of this process, by what they were opened with. (floor 5)
//!
//! A worker that opens what another has open gets the same mill: one set of segments, one order of ids. It closes with
//! its last holder. `memory:` without a name is the exception: there each opening has numbers of its own.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use keymill::{DEFAULT_MILL, Error, MILL_VARIABLE, Mill, Result};

/// The working folder belongs to the name: relative paths mean another file after `process.chdir`.
type Name = (PathBuf, String);

static MILLS: Mutex<Option<HashMap<Name, Weak<OpenMill>>>> = Mutex::new(None);

/// A mill that all who opened it share.
pub struct OpenMill {
    pub mill: Mill,
    name: Option<Name>,
}

impl Drop for OpenMill {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            let mut mills = MILLS.lock().unwrap_or_else(PoisonError::into_inner);
            // Another may have been opened under the name since the last holder went.
            if let Some(mills) = mills.as_mut()
                && mills.get(&name).is_some_and(|mill| mill.strong_count() == 0)
            {
                mills.remove(&name);
            }
        }
        // Batches in flight hold sources, which would keep it open.
        self.mill.close();
    }
}

/// The mill of `config`; none given: the environment's, else the default.
pub fn open(config: Option<String>) -> Result<Arc<OpenMill>> {
    let config = match config {
        Some(config) => config,
        None => match std::env::var(MILL_VARIABLE) {
            Ok(config) => config,
            Err(std::env::VarError::NotPresent) => DEFAULT_MILL.to_owned(),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Error::config(format!("{MILL_VARIABLE} is not UTF-8")));
            }
        },
    };
    if config == "memory:" || config.starts_with("memory:?") {
        return Ok(Arc::new(OpenMill { mill: Mill::open(&config)?, name: None }));
    }
    let name = (std::env::current_dir().unwrap_or_default(), config);
    // Opening connects nothing, so the lock is short.
    let mut mills = MILLS.lock().unwrap_or_else(PoisonError::into_inner);
    let mills = mills.get_or_insert_default();
    if let Some(open) = mills.get(&name).and_then(Weak::upgrade) {
        return Ok(open);
    }
    let open = Arc::new(OpenMill { mill: Mill::open(&name.1)?, name: Some(name.clone()) });
    mills.insert(name, Arc::downgrade(&open));
    Ok(open)
}
