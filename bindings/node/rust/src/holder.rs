//! A share of an open mill, and the share that all threads use.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keymill::Mill;

use crate::registry::OpenMill;

/// One holder's share of a mill; guests of other threads look at it.
pub struct Holder {
    /// Empty once it was closed.
    share: Mutex<Option<Arc<OpenMill>>>,
    /// For its figures, which outlive the close.
    pub mill: Mill,
}

impl Holder {
    pub fn new(open: Arc<OpenMill>) -> Holder {
        Holder { mill: open.mill.clone(), share: Mutex::new(Some(open)) }
    }

    pub fn share(&self) -> MutexGuard<'_, Option<Arc<OpenMill>>> {
        self.share.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The holder that is shared.
pub static SHARED: Mutex<Option<Arc<Holder>>> = Mutex::new(None);

/// Rises when another mill is shared, and when the shared one is closed. It never reads 0.
pub static GENERATION: AtomicU32 = AtomicU32::new(1);

/// The next generation.
pub fn rise() -> u32 {
    // ordering: SeqCst — before any id of another mill; read by plain loads of JavaScript before each id.
    GENERATION.fetch_add(1, Ordering::SeqCst).wrapping_add(1)
}

/// A holder was closed.
pub fn closed(holder: &Arc<Holder>) {
    let shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.as_ref().is_some_and(|shared| Arc::ptr_eq(shared, holder)) {
        rise();
    }
}
