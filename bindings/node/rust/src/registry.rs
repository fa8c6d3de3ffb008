//! The mills of this process, by what they were opened with.
//!
//! A worker that opens what another has open gets the same mill: one set of segments, one order of ids. It closes with
//! its last holder, and an opener of its name meanwhile waits for that: two mills at once would be two processes to each
//! other, and a snowflake of the second would lose its worker when the first gives its time mark back. `memory:` without a
//! name is the exception: there each opening has numbers of its own.
//!
//! A mill that is open when the process exits is closed then. `process.exit` and an uncaught error collect nothing, so this is a handler
//! of the C library's `exit`, which runs after all JavaScript. On Windows Node has a C library of its own: `cursor.ts` has a listener there.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use keymill::binding::{Environment, open_in};
use keymill::{Mill, Result};

/// The working folder belongs to the name: relative paths mean another file after `process.chdir`.
type Name = (PathBuf, String);

/// Those that are open, and (without a holder) those that are closing.
type Mills = Option<HashMap<Name, Weak<OpenMill>>>;

static MILLS: Mutex<Mills> = Mutex::new(None);

/// A mill that closed has left the list.
static GONE: Condvar = Condvar::new();

/// Longer than a close takes, however silent its store is.
const CLOSE_WAIT: Duration = Duration::from_secs(15);

fn mills() -> MutexGuard<'static, Mills> {
    MILLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A mill that all its holders share.
pub struct OpenMill {
    pub mill: Mill,
    name: Option<Name>,
}

impl Drop for OpenMill {
    fn drop(&mut self) {
        // Batches in flight hold sources, which would keep it open.
        self.mill.close();
        let Some(name) = self.name.take() else { return };
        // Another is there under the name only if its opener would wait no longer.
        if let Some(mills) = mills().as_mut()
            && mills.get(&name).is_some_and(|mill| mill.strong_count() == 0)
        {
            mills.remove(&name);
        }
        GONE.notify_all();
    }
}

/// Has all mills closed when the process exits.
fn close_at_exit() {
    extern "C" fn at_exit() {
        close_all();
    }
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Node never unloads the library.
        let _is_registered = keymill::binding::at_exit(at_exit);
    });
}

/// Closes all mills, whichever thread holds them, and waits for those that are closing. The process ends, so a panic ends here.
pub fn close_all() {
    let _ = std::panic::catch_unwind(|| {
        let open: Vec<_> = mills().iter().flatten().filter_map(|(_, mill)| mill.upgrade()).collect();
        keymill::binding::close_all(open.iter().map(|open| open.mill.clone()));
    });
}

fn is_unnamed_memory(config: &str) -> bool {
    config == "memory:" || config.starts_with("memory:?")
}

/// The default mill of lazy sources. In memory it is one for all threads and stays open: a second one would give its ids again.
pub fn open_default(environment: &Environment) -> Result<Arc<OpenMill>> {
    static IN_MEMORY: Mutex<Option<Arc<OpenMill>>> = Mutex::new(None);
    let config = environment.default_mill()?;
    if !is_unnamed_memory(&config) {
        return open(Some(config), environment);
    }
    let mut kept = IN_MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = &*kept {
        return Ok(open.clone());
    }
    Ok(kept.insert(open(Some(config), environment)?).clone())
}

/// The mill of `config`; none given: the environment's, else the default.
pub fn open(config: Option<String>, environment: &Environment) -> Result<Arc<OpenMill>> {
    keymill::binding::quiet_panics();
    let config = match config {
        Some(config) => config,
        None => environment.default_mill()?,
    };
    if is_unnamed_memory(&config) {
        return Ok(Arc::new(OpenMill { mill: open_in(&config, environment)?, name: None }));
    }
    let name = (std::env::current_dir().unwrap_or_default(), config);
    let give_up_at = Instant::now() + CLOSE_WAIT;
    let mut list = mills();
    while let Some(mill) = list.get_or_insert_default().get(&name) {
        if let Some(open) = mill.upgrade() {
            return Ok(open);
        }
        let left = give_up_at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        list = GONE.wait_timeout(list, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    // Opening connects nothing, so the lock is short.
    close_at_exit();
    let mills = list.get_or_insert_default();
    let open = Arc::new(OpenMill { mill: open_in(&name.1, environment)?, name: Some(name.clone()) });
    mills.insert(name, Arc::downgrade(&open));
    Ok(open)
}
