//! Batches: all of the ids or none, asked for again until they are complete.

use std::cell::RefCell;

use keymill::Error;
use keymill::binding::Pending;
use napi::Result;
use napi::bindgen_prelude::{BigUint64ArraySlice, Either, External, Null};
use napi_derive::napi;

use crate::errors::{Thrown, enter};
use crate::news::NotifierBox;
use crate::source::SourceBox;

/// A batch that is not complete yet; empty once its ids were handed out.
pub struct BatchBox(RefCell<Option<Pending>>);

impl BatchBox {
    pub fn of(pending: Pending) -> External<BatchBox> {
        External::new(BatchBox(RefCell::new(Some(pending))))
    }

    pub fn handed_out(&self) -> keymill::Result<Pending> {
        self.0
            .borrow_mut()
            .take()
            .ok_or_else(|| Error::argument("the ids of this batch were handed out before"))
    }
}

/// Fills `out` at once if its ids are in memory (null); otherwise answers with the batch to poll.
#[napi]
pub fn fill_now(
    source: &External<SourceBox>,
    mut out: BigUint64ArraySlice,
) -> Result<Either<Null, External<BatchBox>>, Thrown> {
    enter(|| {
        // SAFETY: no JavaScript of this context runs meanwhile; shared memory is refused in `ts/source.ts`.
        let out = unsafe { out.as_mut() };
        let mut pending = source.source.ask(out.len())?;
        match pending.poll()? {
            None => {
                pending.write(out);
                Ok(Either::A(Null))
            }
            Some(_) => Ok(Either::B(BatchBox::of(pending))),
        }
    })
}

/// Begins a batch of `count` ids or texts.
#[napi]
pub fn ask(source: &External<SourceBox>, count: f64) -> Result<External<BatchBox>, Thrown> {
    enter(|| Ok(BatchBox::of(source.source.ask(count as usize)?)))
}

/// 0: the batch is complete; otherwise the pause after which to poll again.
#[napi]
pub fn poll(batch: &External<BatchBox>) -> Result<f64, Thrown> {
    enter(|| {
        let pause = batch.0.borrow_mut().as_mut().map_or(Ok(None), Pending::poll)?;
        Ok(pause.map_or(0.0, |pause| (pause.as_secs_f64() * 1000.0).max(1.0)))
    })
}

/// As `poll`; before the pause is over the notifier's context is told of the token when the batch is worth another poll.
#[napi]
pub fn poll_or_register(
    batch: &External<BatchBox>,
    notifier: &External<NotifierBox>,
    token: f64,
) -> Result<f64, Thrown> {
    enter(|| {
        let mut batch = batch.0.borrow_mut();
        let Some(pending) = batch.as_mut() else { return Ok(0.0) };
        let pause = pending.poll_or_register(&notifier.0, token as u64)?;
        Ok(pause.map_or(0.0, |pause| (pause.as_secs_f64() * 1000.0).max(1.0)))
    })
}

/// Writes the ids of a complete batch.
#[napi]
pub fn write_batch(batch: &External<BatchBox>, mut out: BigUint64ArraySlice) -> Result<(), Thrown> {
    enter(|| {
        // SAFETY: as in `fill_now`.
        batch.handed_out()?.write(unsafe { out.as_mut() });
        Ok(())
    })
}

/// The texts of a complete batch, each ended by a line feed, which no text holds.
#[napi]
pub fn batch_texts(batch: &External<BatchBox>) -> Result<String, Thrown> {
    enter(|| {
        let mut all = String::new();
        batch.handed_out()?.texts(|text| {
            all.push_str(text);
            all.push('\n');
        });
        Ok(all)
    })
}
