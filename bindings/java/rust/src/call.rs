//! How every native runs its verb: a panic or an error becomes a `KeymillException`, strings come in as UTF-8 bytes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use jni::objects::{JByteArray, JString, JThrowable};
use jni::{Env, EnvUnowned, JValue, jni_sig, jni_str};
use keymill::{Code, Error, Result};

/// What a native that uses its environment may fail with.
pub(crate) enum CallError {
    /// An error of keymill, to be thrown.
    Keymill(Error),
    /// Java's own exception is pending already (out of memory, mostly).
    Java,
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        CallError::Keymill(error)
    }
}

impl From<jni::errors::Error> for CallError {
    fn from(error: jni::errors::Error) -> Self {
        match error {
            jni::errors::Error::JavaException => CallError::Java,
            other => {
                CallError::Keymill(Error::new(Code::Internal, format!("a call into the JVM failed: {other}")))
            }
        }
    }
}

/// Runs a verb that needs nothing of the JVM. Nothing of it is touched unless the verb fails; then an exception is
/// pending and the answer is `otherwise`.
#[inline]
pub(crate) fn enter<T>(env: &mut EnvUnowned<'_>, otherwise: T, verb: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(verb)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => {
            throw(env, &error);
            otherwise
        }
        Err(panic) => {
            throw(env, &defect(panic));
            otherwise
        }
    }
}

/// Runs a verb that reads or makes Java objects.
pub(crate) fn enter_with<'local, T>(
    env: &mut EnvUnowned<'local>,
    otherwise: T,
    verb: impl FnOnce(&mut Env<'local>) -> std::result::Result<T, CallError>,
) -> T {
    match env.with_env(verb).into_outcome() {
        jni::Outcome::Ok(answer) => answer,
        jni::Outcome::Err(CallError::Java) => otherwise,
        jni::Outcome::Err(CallError::Keymill(error)) => {
            throw(env, &error);
            otherwise
        }
        jni::Outcome::Panic(panic) => {
            throw(env, &defect(panic));
            otherwise
        }
    }
}

#[cold]
fn defect(panic: Box<dyn Any + Send>) -> Error {
    let what = panic.downcast_ref::<&str>().copied();
    let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let error = Error::new(Code::Internal, format!("a defect in keymill, please report it: {what}"));
    // Dropping a payload may panic again; it is small and rare.
    std::mem::forget(panic);
    error
}

/// Leaves a `KeymillException` pending; where that fails, the JVM's own exception is.
#[cold]
fn throw(env: &mut EnvUnowned<'_>, error: &Error) {
    let thrown = env.with_env(|env| -> jni::errors::Result<()> {
        let class = env.find_class(jni_str!("io/keymill/KeymillException"))?;
        let message = env.new_string(&error.message)?;
        let retry = error.retry_after.map_or(-1, |wait| i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX));
        let exception = env.new_object(
            class,
            jni_sig!("(ILjava/lang/String;J)V"),
            &[JValue::Int(error.code.number()), JValue::Object(&message), JValue::Long(retry)],
        )?;
        // A checked cast would look up Throwable through the thread's class loader, by reflection that an image built ahead of
        // time does not have: `KeymillException` stays the only class that this library looks up.
        // SAFETY: the object was made of `KeymillException`, which is a Throwable; the local reference is this frame's own.
        let exception = unsafe { JThrowable::from_raw(env, exception.into_raw()) };
        env.throw(&exception)
    });
    drop(thrown.into_outcome());
}

/// UTF-8 bytes from Java as text.
pub(crate) fn text_in(env: &Env<'_>, bytes: &JByteArray<'_>) -> std::result::Result<String, CallError> {
    let bytes = env.convert_byte_array(bytes)?;
    String::from_utf8(bytes).map_err(|_| Error::argument("a text is not UTF-8").into())
}

/// Text for Java.
pub(crate) fn text_out<'local>(
    env: &mut Env<'local>,
    text: &str,
) -> std::result::Result<JString<'local>, CallError> {
    Ok(env.new_string(text)?)
}

/// Rows of `name, value` as one text: neither holds control characters that are used here as marks.
pub(crate) fn rows_out<N: AsRef<str>, V: AsRef<str>>(rows: impl IntoIterator<Item = (N, V)>) -> String {
    rows.into_iter().fold(String::new(), |text, (name, value)| {
        text + name.as_ref() + "\u{1f}" + value.as_ref() + "\u{1e}"
    })
}
