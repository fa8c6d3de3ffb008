//! Boxes of the core that Java owns, by their addresses.

use std::marker::PhantomData;
use std::ops::Deref;

use jni::sys::jlong;

/// A box of the core as a native gets it from Java: its address, which [`boxed`] or `MillBox.source` gave.
///
/// Only Java makes one. The object that holds the address is the native's receiver, so it is reachable during the call, and the box is
/// freed only when nothing reaches that object.
#[repr(transparent)]
pub(crate) struct Held<'call, T>(jlong, PhantomData<&'call T>);

impl<T> Clone for Held<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Held<'_, T> {}

impl<'call, T> Held<'call, T> {
    /// What the box holds, for as long as the native runs.
    #[inline]
    pub(crate) fn get(self) -> &'call T {
        // SAFETY: the address of a box that is not freed during the call: see the type.
        unsafe { &*(self.0 as *const T) }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.get()
    }
}

/// A box for Java, which frees it by its address.
pub(crate) fn boxed<T>(value: T) -> jlong {
    Box::into_raw(Box::new(value)) as jlong
}
