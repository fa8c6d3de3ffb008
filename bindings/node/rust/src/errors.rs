//! How every function runs its verb, and how an error reaches JavaScript.

use std::panic::{AssertUnwindSafe, catch_unwind};

use keymill::{Code, Error};
use napi_derive::napi;

/// What stands in the `code` of a native error: the code's name, and `/` with milliseconds where there is a hint when to
/// ask again. `ts/error.ts` reads it.
pub struct Thrown(String);

impl AsRef<str> for Thrown {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Thrown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn thrown(error: Error) -> napi::Error<Thrown> {
    let code = error.code.name();
    let status = match error.retry_after {
        Some(pause) => format!("{code}/{}", pause.as_millis()),
        None => code.to_owned(),
    };
    napi::Error::new(Thrown(status), error.message)
}

/// Runs a verb; a panic becomes an error.
pub fn guarded<T>(verb: impl FnOnce() -> keymill::Result<T>) -> keymill::Result<T> {
    catch_unwind(AssertUnwindSafe(verb))
        .unwrap_or_else(|_| Err(Error::new(Code::Internal, "a defect in keymill, please report it")))
}

/// Runs a verb; its error becomes a JavaScript error.
pub fn enter<T>(verb: impl FnOnce() -> keymill::Result<T>) -> napi::Result<T, Thrown> {
    guarded(verb).map_err(thrown)
}

/// The names of success and of every error code, in the order of their numbers.
#[napi]
pub fn codes() -> Vec<&'static str> {
    std::iter::once("OK").chain(Code::ALL.iter().map(|code| code.name())).collect()
}

/// keymill's version.
#[napi]
pub fn version() -> &'static str {
    keymill::VERSION
}
