//! Natives for `io.keymill.Waiters`: how the waiting threads of a class loader learn of news.

use std::time::Duration;

use jni::EnvUnowned;
use jni::objects::{JClass, JLongArray, JObject};
use jni::sys::{jint, jlong};
use keymill::Source;
use keymill::binding::{Notifier, Registration};

use crate::call::{enter, enter_with};
use crate::held::{Held, boxed};

/// `static long notifier()`: a notifier, which is never freed.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_notifier(mut env: EnvUnowned<'_>, _: JClass<'_>) -> jlong {
    enter(&mut env, 0, || Ok(boxed(Notifier::new(|| ()))))
}

/// `static long[] awaitNews(long notifier, long nanos)`: the tokens that have news. Waits for them here: the calling thread has no other
/// work.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_awaitNews<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    notifier: Held<'_, Notifier>,
    nanos: jlong,
) -> JLongArray<'local> {
    enter_with(&mut env, JLongArray::null(), |env| {
        let tokens = notifier.wait(Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)));
        let tokens: Vec<jlong> = tokens.into_iter().map(|token| token as jlong).collect();
        let out = JLongArray::new(env, tokens.len())?;
        out.set_region(env, 0, &tokens)?;
        Ok(out)
    })
}

/// `static void tell(long notifier, long token)`: as if there were news of the token.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_Native_tell(
    mut env: EnvUnowned<'_>,
    _: JClass<'_>,
    notifier: Held<'_, Notifier>,
    token: jlong,
) {
    enter(&mut env, (), || {
        notifier.notify(token as u64);
        Ok(())
    });
}

/// `long register(long address, int gene, long notifier, long token)`: a registration, which `unregister` frees. `gene`: of the key, or less
/// than 0.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_register(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    source: Held<'_, Source>,
    gene: jint,
    notifier: Held<'_, Notifier>,
    token: jlong,
) -> jlong {
    enter(&mut env, 0, || {
        let gene = u16::try_from(gene).ok().map(Into::into);
        Ok(boxed(source.register(gene, &notifier, token as u64)?))
    })
}

/// `void unregister(long registration)`: its caller waits no more, or had news.
#[unsafe(no_mangle)]
extern "system" fn Java_io_keymill_SourceBox_unregister(
    mut env: EnvUnowned<'_>,
    _: JObject<'_>,
    registration: jlong,
) {
    enter(&mut env, (), || {
        // SAFETY: from `register`, freed once: Java forgets the address in the same step.
        drop(unsafe { Box::from_raw(registration as *mut Registration) });
        Ok(())
    });
}
