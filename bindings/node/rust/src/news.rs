//! How a JavaScript context learns which of its promises have news: one function, which the keeper has the event loop call once however many
//! promises they are for.

use std::cell::RefCell;

use keymill::binding::{Notifier, Registration};
use napi::bindgen_prelude::{External, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi::{Result, Status};
use napi_derive::napi;

use crate::errors::{Thrown, enter};
use crate::source::SourceBox;

/// The notifier of one context.
pub struct NotifierBox(pub Notifier);

/// Makes a notifier whose context calls `told` when promises have news. It does not keep the process alive: their timers do.
#[napi]
pub fn notifier(told: Function<'_, (), ()>) -> Result<External<NotifierBox>> {
    let told = told.build_threadsafe_function().weak::<true>().callee_handled::<false>().build()?;
    let signal = move || {
        // A context that has ended waits for nothing.
        let _: Status = told.call((), ThreadsafeFunctionCallMode::NonBlocking);
    };
    Ok(External::new(NotifierBox(Notifier::new(signal))))
}

/// The promises that have news.
#[napi]
pub fn news(notifier: &External<NotifierBox>) -> Vec<f64> {
    notifier.0.take().into_iter().map(|token| token as f64).collect()
}

/// A promise that is told of news; empty once it waits no more.
pub struct RegistrationBox(RefCell<Option<Registration>>);

/// Registers a promise: its context is told of the token once when it is worth to ask the source again. `gene`: of its key, or −1.
#[napi]
pub fn register(
    source: &External<SourceBox>,
    gene: i32,
    notifier: &External<NotifierBox>,
    token: f64,
) -> Result<External<RegistrationBox>, Thrown> {
    enter(|| {
        let gene = u16::try_from(gene).ok().map(Into::into);
        let registration = source.source.register(gene, &notifier.0, token as u64)?;
        Ok(External::new(RegistrationBox(RefCell::new(Some(registration)))))
    })
}

/// The promise waits no more.
#[napi]
pub fn unregister(registration: &External<RegistrationBox>) {
    registration.0.borrow_mut().take();
}
