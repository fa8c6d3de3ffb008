//! A mill's verbs.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use keymill::binding::Environment;
use keymill::{Change, Code, Error, Mill};
use napi::bindgen_prelude::{External, Object};
use napi::{Env, Result};
use napi_derive::napi;

use crate::errors::{Thrown, enter, guarded};
use crate::holder::{self, Holder};
use crate::registry::{self, OpenMill};

/// A mill as JavaScript has it.
pub struct MillBox {
    holder: Arc<Holder>,
    /// It belongs to another thread, which closes it.
    guest: bool,
}

impl MillBox {
    pub fn new(open: Arc<OpenMill>) -> External<MillBox> {
        External::new(MillBox { holder: Arc::new(Holder::new(open)), guest: false })
    }

    pub fn guest(holder: Arc<Holder>) -> External<MillBox> {
        External::new(MillBox { holder, guest: true })
    }

    pub fn is_open(holder: &Holder) -> bool {
        holder.share().is_some()
    }

    pub fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }

    pub fn get(&self) -> keymill::Result<Mill> {
        match &*self.holder.share() {
            Some(open) => Ok(open.mill.clone()),
            None => Err(Error::new(Code::Closed, "the mill was closed")),
        }
    }

    /// Gives up the share, for the caller to drop.
    fn take(&self) -> Option<Arc<OpenMill>> {
        if self.guest {
            return None;
        }
        let open = self.holder.share().take()?;
        holder::closed(&self.holder);
        Some(open)
    }
}

impl Drop for MillBox {
    fn drop(&mut self) {
        let Some(open) = self.take() else { return };
        // Collected, or its worker or process ended, without a close. A close may wait for a store, and this thread may not.
        if Arc::strong_count(&open) == 1 {
            let _ = keymill::binding::spawn("keymill-close", move || drop(open));
        }
    }
}

/// What `process.env` of the calling context says: a worker and a test of Jest have one of their own.
#[napi(object, object_to_js = false)]
#[derive(Clone)]
pub struct Variables {
    /// `KEYMILL_CONFIG`.
    pub config: Option<String>,
    /// `KEYMILL_PASSWORD`.
    pub password: Option<String>,
}

/// Without `variables`, and where one is not set: the environment of the process. A worker that has an environment of its own would else
/// take ids from the default file beside a program whose variable names a store.
pub fn environment(variables: Option<Variables>) -> Environment {
    let process = Environment::of_process();
    let Some(given) = variables else { return process };
    // JavaScript shows bytes that are no text as U+FFFD. What they are is refused, and not what they are shown as.
    let unless_same = |given: Option<String>, own: Option<OsString>| match (given, own) {
        (Some(given), Some(own)) if own.to_string_lossy() == given => Some(own),
        (Some(given), _) => Some(given.into()),
        (None, own) => own,
    };
    Environment {
        mill: unless_same(given.config, process.mill),
        password: unless_same(given.password, process.password),
    }
}

/// Opens a mill, or joins the one this process has open under the same configuration.
#[napi]
pub fn open_mill(config: Option<String>, variables: Option<Variables>) -> Result<External<MillBox>, Thrown> {
    enter(|| registry::open(config, &environment(variables)).map(MillBox::new))
}

/// Runs `work` on a thread of its own, and then settles the promise. A thread of Node's pool would delay the end of the process until
/// `work` is done, and `work` waits for stores.
pub fn off_the_loop(env: &Env, work: impl FnOnce() + Send + 'static) -> Result<Object<'_>, Thrown> {
    let internal = |error: napi::Error| Error::new(Code::Internal, error.reason.clone());
    enter(|| {
        let (deferred, promise) = env.create_deferred::<(), _>().map_err(internal)?;
        let run = move || {
            // After a panic nothing is left to do here: `work` has told no result.
            let _ = guarded(|| {
                work();
                Ok(())
            });
            deferred.resolve(|_| Ok(()));
        };
        match keymill::binding::spawn("keymill-close", run) {
            Ok(_) => Ok(promise),
            Err(error) => Err(keymill::binding::not_started("the call", &error)),
        }
    })
}

type Opened = Arc<Mutex<Option<keymill::Result<Arc<OpenMill>>>>>;

/// The process ends: closes all mills, whichever thread holds them.
#[napi]
pub fn close_all_mills() {
    registry::close_all();
}

/// A mill that is being opened.
pub struct OpeningBox {
    config: Option<String>,
    variables: Option<Variables>,
    opened: Opened,
}

/// Prepares an opening off the event loop: `await run_opening(it)`, then `opened(it)`.
#[napi]
pub fn opening(config: Option<String>, variables: Option<Variables>) -> External<OpeningBox> {
    External::new(OpeningBox { config, variables, opened: Arc::default() })
}

/// Opens on another thread: it may read a file, and wait for a mill of its name that closes.
#[napi(ts_return_type = "Promise<void>")]
pub fn run_opening<'env>(env: &'env Env, opening: &External<OpeningBox>) -> Result<Object<'env>, Thrown> {
    let (config, variables) = (opening.config.clone(), opening.variables.clone());
    let result = opening.opened.clone();
    off_the_loop(env, move || {
        let opened = guarded(|| registry::open(config, &environment(variables)));
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(opened);
    })
}

/// The mill that was opened, or why it was not.
#[napi]
pub fn opened(opening: &External<OpeningBox>) -> Result<External<MillBox>, Thrown> {
    enter(|| {
        let opened = opening.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        opened.unwrap_or_else(|| Err(Error::argument("the opening has not run"))).map(MillBox::new)
    })
}

/// Gives up this holder's share; the last one's closes the mill.
#[napi]
pub fn close_mill(mill: &External<MillBox>) -> Result<(), Thrown> {
    let open = mill.take();
    enter(|| {
        drop(open);
        Ok(())
    })
}

/// `close_mill` off the event loop.
#[napi(ts_return_type = "Promise<void>")]
pub fn close_mill_async<'env>(env: &'env Env, mill: &External<MillBox>) -> Result<Object<'env>, Thrown> {
    let open = mill.take();
    off_the_loop(env, move || drop(open))
}

/// Every figure as Prometheus text; after the close, too.
#[napi]
pub fn metrics(mill: &External<MillBox>) -> Result<String, Thrown> {
    enter(|| Ok(mill.holder.mill.metrics()))
}

/// The events since the last call, a line each; after the close, too.
#[napi]
pub fn events(mill: &External<MillBox>) -> Result<Vec<String>, Thrown> {
    enter(|| Ok(mill.holder.mill.events().iter().map(ToString::to_string).collect()))
}

/// Creates what these sources need in the store, and answers with the statements.
#[napi]
pub fn init(mill: &External<MillBox>, specs: Vec<String>) -> Result<Vec<String>, Thrown> {
    enter(|| mill.get()?.init(&specs.iter().map(String::as_str).collect::<Vec<_>>(), Change::Apply))
}

/// Sets a manual clock: milliseconds since 1970.
#[napi]
pub fn set_clock(mill: &External<MillBox>, ms: f64) -> Result<(), Thrown> {
    enter(|| mill.get()?.set_clock(ms as i64))
}

/// Moves a manual clock forward.
#[napi]
pub fn advance_clock(mill: &External<MillBox>, ms: f64) -> Result<(), Thrown> {
    enter(|| mill.get()?.advance_clock(ms as u64))
}

/// The mill in the application's database.
#[napi]
pub fn store_of(url: String, properties: Vec<Vec<String>>) -> Result<String, Thrown> {
    enter(|| {
        let properties: Vec<(&str, &str)> = properties
            .iter()
            .filter_map(|pair| Some((pair.first()?.as_str(), pair.get(1)?.as_str())))
            .collect();
        keymill::store_of(&url, &properties)
    })
}

/// The spec string that a name and options stand for.
#[napi]
pub fn spec_string(kind: String, name: Vec<String>, options: Vec<Vec<String>>) -> Result<String, Thrown> {
    enter(|| {
        let name: Vec<&str> = name.iter().map(String::as_str).collect();
        let options: Vec<(&str, &str)> =
            options.iter().filter_map(|pair| Some((pair.first()?.as_str(), pair.get(1)?.as_str()))).collect();
        Ok(keymill::spec_string(&kind, &name, &options))
    })
}
