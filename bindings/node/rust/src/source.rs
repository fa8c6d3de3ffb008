//! A source's verbs: blocks for cursors in JavaScript, and single ids where a block would be wrong.

use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keymill::binding::{LastBlock, Lease};
use keymill::{Code, Error, FigureValue, Kind, Layout, Source};
use napi::bindgen_prelude::{BigInt, BigUint64ArraySlice, Either, External, Object, Unknown};
use napi::{Env, Result};
use napi_derive::napi;

use crate::contexts::Membership;
use crate::errors::{Thrown, enter, guarded};
use crate::mill::{MillBox, off_the_loop};
use crate::router::word;
use crate::words;

/// The size of a source that the garbage collector reckons with.
const WEIGHT: usize = 256;

/// A source as one JavaScript context holds it.
pub struct SourceBox {
    pub source: Source,
    membership: RefCell<Option<Membership>>,
    /// A view keeps the source, and so its word, alive.
    word: Cell<Option<&'static AtomicU64>>,
    /// The date part of the numbers leased last.
    prefix: RefCell<String>,
    /// The cursor's block, until its rest is given back.
    block: Cell<Option<Lease>>,
    /// By which the core sizes the next block.
    last: Cell<LastBlock>,
}

impl SourceBox {
    fn of(source: Source) -> External<SourceBox> {
        let source = SourceBox {
            source,
            membership: RefCell::default(),
            word: Cell::default(),
            prefix: RefCell::default(),
            block: Cell::default(),
            last: Cell::default(),
        };
        External::new_with_size_hint(source, WEIGHT)
    }
}

/// Opens a source of a mill.
#[napi]
pub fn source(mill: &External<MillBox>, spec: String) -> Result<External<SourceBox>, Thrown> {
    enter(|| Ok(SourceBox::of(mill.get()?.source(&spec)?)))
}

/// The same source once more, for a cursor of its own.
#[napi]
pub fn copy_source(source: &External<SourceBox>) -> External<SourceBox> {
    SourceBox::of(source.source.clone())
}

/// The same for every copy of one source.
#[napi]
pub fn identity(source: &External<SourceBox>) -> String {
    source.source.identity().to_string()
}

/// What a source is.
#[napi(object, object_from_js = false)]
pub struct SourceFacts {
    pub kind: &'static str,
    pub label: String,
    pub by_thread: bool,
    /// Whether its ids follow each other, so that blocks of them can be counted through.
    pub counts: bool,
    /// Whether its ids have 128 bits.
    pub wide: bool,
    /// Whether every id is exact as a JavaScript number.
    pub fits_number: bool,
    pub settings: Vec<Vec<String>>,
}

/// What a source is.
#[napi]
pub fn source_facts(source: &External<SourceBox>) -> Result<SourceFacts, Thrown> {
    enter(|| {
        let it = &source.source;
        Ok(SourceFacts {
            kind: match it.kind() {
                Kind::Snowflake => "snowflake",
                Kind::Serial => "serial",
                Kind::Business => "business",
                _ => "segment",
            },
            label: it.label().to_owned(),
            by_thread: it.by_thread(),
            counts: it.counts(),
            wide: it.is_wide(),
            fits_number: fits_number(it),
            settings: it.settings().into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect(),
        })
    })
}

/// Only a layout bounds the ids of a source; `js53` is made for this.
fn fits_number(source: &Source) -> bool {
    const MOST: u64 = (1 << 53) - 1;
    let settings = source.settings();
    let layout = settings.iter().find(|(name, _)| *name == "layout");
    layout.and_then(|(_, text)| Layout::parse(text, "").ok()).is_some_and(|layout| layout.max_id() <= MOST)
}

/// This context joins those that hold the source: while it is alone, it may count through blocks.
#[napi]
pub fn join(source: &External<SourceBox>) -> Result<(), Thrown> {
    enter(|| {
        let mut membership = source.membership.borrow_mut();
        if membership.is_none() {
            *membership = Some(Membership::join(source.source.identity()));
        }
        Ok(())
    })
}

/// This context leaves.
#[napi]
pub fn leave(source: &External<SourceBox>) {
    source.membership.borrow_mut().take();
}

/// The word of the source's contexts, as a buffer of 4 bytes; null where the runtime refuses views.
#[napi]
pub fn contexts_word<'env>(env: &'env Env, source: &External<SourceBox>) -> Option<Unknown<'env>> {
    let contexts = source.membership.borrow().as_ref()?.contexts().clone();
    let data = std::ptr::from_ref(contexts.word()).cast_mut().cast();
    // SAFETY: the word lives in what is handed over.
    unsafe { words::view(env, data, 4, contexts) }
}

/// The revocation word of the numbers leased last, as a buffer of 8 bytes; null where the runtime refuses views.
#[napi]
pub fn source_word<'env>(env: &'env Env, source: &External<SourceBox>) -> Option<Unknown<'env>> {
    let word = source.word.get()?;
    let data = std::ptr::from_ref(word).cast_mut().cast();
    // SAFETY: words stay readable for ever.
    unsafe { words::view(env, data, 8, source.source.clone()) }
}

/// The date part of the numbers leased last.
#[napi]
pub fn prefix(source: &External<SourceBox>) -> String {
    source.prefix.borrow().clone()
}

/// What to do after a refusal. `waited` in milliseconds; negative: the caller does not wait, and only wants to know
/// whether there is nothing now, or nothing at all. `registered`: it is told of news, as a
/// caller that does not say so is not.
pub fn pause_after(
    source: &Source,
    refusal: Error,
    waited: f64,
    registered: Option<bool>,
) -> keymill::Result<f64> {
    let pause = if waited >= 0.0 {
        let waited = Duration::from_secs_f64((waited / 1000.0).min(1e9));
        if registered == Some(true) {
            source.patience_until_news(refusal, waited)?
        } else {
            source.patience(refusal, waited)?
        }
    } else if refusal.code == Code::NotReady {
        refusal.retry_after.unwrap_or_default()
    } else {
        return Err(refusal);
    };
    Ok((pause.as_secs_f64() * 1000.0).max(1.0))
}

/// Takes back the rest of the cursor's block after `used` numbers were issued: the cursor issues no more of them.
#[napi]
pub fn give_back(source: &External<SourceBox>, used: f64) -> Result<(), Thrown> {
    enter(|| {
        if let Some(block) = source.block.take() {
            source.source.give_back(block.leased_at, block.lo + used as u64, block.hi, source.last.take());
        }
        Ok(())
    })
}

/// Leases at most `count` numbers, or with 0 the cursor's next block; it has used up or given back the last one. `out`: first number, how many, low half of the word they live
/// by, the contexts' word, whether the date part changed, digits. Answers 0; or the pause after which to ask again; or −1
/// where a block would break the order: another context holds the source too.
#[napi]
pub fn lease(
    source: &External<SourceBox>,
    count: f64,
    owned: bool,
    waited: f64,
    mut out: BigUint64ArraySlice,
    registered: Option<bool>,
) -> Result<f64, Thrown> {
    enter(|| {
        let it = &source.source;
        let try_lease = || {
            if count > 0.0 {
                // The block before it is used up.
                source.block.take();
                return it.try_lease(count as u64, 1);
            }
            let mut last = source.last.get();
            let leased = it.try_lease_block(&mut last, 1);
            source.last.set(last);
            source.block.set(leased.as_ref().ok().copied());
            leased
        };
        let membership = source.membership.borrow();
        let leased = match membership.as_ref() {
            Some(membership) if !owned && !it.by_thread() => {
                match membership.contexts().while_alone(|word| (word, try_lease())) {
                    Some((word, leased)) => leased.map(|lease| (word, lease)),
                    None => return Ok(-1.0),
                }
            }
            _ => try_lease().map(|lease| (0, lease)),
        };
        match leased {
            Ok((contexts, lease)) => {
                // SAFETY: the array is a private one of `ts/cursor.ts`; no JavaScript runs meanwhile.
                write(source, contexts, &lease, unsafe { out.as_mut() });
                Ok(0.0)
            }
            Err(refusal) => pause_after(it, refusal, waited, registered),
        }
    })
}

fn write(source: &SourceBox, contexts: u32, lease: &Lease, out: &mut [u64]) {
    source.word.set(Some(lease.word));
    let mut prefix = source.prefix.borrow_mut();
    let changed = *prefix != lease.prefix.as_str();
    if changed {
        lease.prefix.as_str().clone_into(&mut prefix);
    }
    let answer = [
        lease.lo,
        lease.hi - lease.lo,
        lease.leased_at & u64::from(u32::MAX),
        u64::from(contexts),
        u64::from(changed),
        u64::from(lease.width),
    ];
    for (slot, value) in out.iter_mut().zip(answer) {
        *slot = value;
    }
}

/// One id straight from the core, or the pause after which to ask again.
#[napi]
pub fn next_id(
    source: &External<SourceBox>,
    waited: f64,
    registered: Option<bool>,
) -> Result<Either<u64, f64>, Thrown> {
    enter(|| match source.source.try_next() {
        Ok(id) => Ok(Either::A(id)),
        Err(refusal) => pause_after(&source.source, refusal, waited, registered).map(Either::B),
    })
}

/// One text straight from the core, or the pause after which to ask again.
#[napi]
pub fn next_text(
    source: &External<SourceBox>,
    waited: f64,
    registered: Option<bool>,
) -> Result<Either<String, f64>, Thrown> {
    enter(|| match source.source.try_next_text() {
        Ok(text) => Ok(Either::A(text)),
        Err(refusal) => pause_after(&source.source, refusal, waited, registered).map(Either::B),
    })
}

/// An id as its source writes it.
#[napi]
pub fn text_of(source: &External<SourceBox>, id: BigInt) -> Result<String, Thrown> {
    enter(|| source.source.text_of(word(&id)))
}

/// A question about the keys that a table has, and the answer once there is one.
pub struct KeysBox {
    source: Source,
    table: String,
    highest: u64,
    answer: Arc<Mutex<Option<keymill::Result<Option<String>>>>>,
}

/// Prepares a question off the event loop, as `opening` does: `await ask_keys(it)`, then `keys_answer(it)`. `highest` is the table's highest
/// key, read before.
#[napi]
pub fn keys_question(source: &External<SourceBox>, table: String, highest: BigInt) -> External<KeysBox> {
    External::new(KeysBox {
        source: source.source.clone(),
        table,
        highest: word(&highest),
        answer: Arc::default(),
    })
}

/// Asks the store, on another thread.
#[napi(ts_return_type = "Promise<void>")]
pub fn ask_keys<'env>(env: &'env Env, question: &External<KeysBox>) -> Result<Object<'env>, Thrown> {
    let (source, table, highest) = (question.source.clone(), question.table.clone(), question.highest);
    let answer = question.answer.clone();
    off_the_loop(env, move || {
        let told = guarded(|| source.refusal_of_keys(&table, highest, 0));
        *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    })
}

/// Why the source would give keys that the table has; null where it gives none of them.
#[napi]
pub fn keys_answer(question: &External<KeysBox>) -> Result<Option<String>, Thrown> {
    enter(|| {
        let told = question.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        told.unwrap_or_else(|| Err(Error::argument("the question was not asked")))
    })
}

/// The parts of a text, or of a number in its digits, as names and values.
#[napi]
pub fn parse(
    source: &External<SourceBox>,
    text: String,
    is_number: bool,
) -> Result<Vec<Vec<String>>, Thrown> {
    enter(|| {
        let source = &source.source;
        let parts = if is_number { source.parse_number(&text)? } else { source.parse_text(&text)? };
        Ok(parts.fields().into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect())
    })
}

/// A source's figures, as names and values; without those that are not known.
#[napi]
pub fn stats(source: &External<SourceBox>) -> Result<Vec<Vec<Either<String, f64>>>, Thrown> {
    enter(|| {
        let stats = source.source.stats()?;
        let rows = stats.fields().filter_map(|figure| {
            let value = match figure.value? {
                FigureValue::Count(count) => Either::B(count as f64),
                FigureValue::Milliseconds(ms) => Either::B(ms as f64),
                FigureValue::Real(value) => Either::B(value),
                text => Either::A(text.to_string()),
            };
            Some(vec![Either::A(figure.name.to_owned()), value])
        });
        Ok(rows.collect())
    })
}
