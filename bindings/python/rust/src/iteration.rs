//! Classes that give ids, and the iterators through them: the interpreter calls these functions directly, like the functions of
//! [`crate::fast`].

use std::ffi::{c_int, c_uint};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use keymill::{Code, Error};
use pyo3::PyClass;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::sync::PyOnceLock;

use crate::error::raised;
use crate::id_source::IdSource;
use crate::value::raw_int;

/// A class whose `next` calls its [`IdSource`].
pub(crate) trait HasIds: PyClass<Frozen = True> + Sync {
    fn ids(&self) -> &IdSource;
}

/// The next id as a new reference; NULL with an exception set.
#[inline]
pub(crate) fn take(ids: &IdSource) -> *mut ffi::PyObject {
    match ids.cursor.next() {
        Some(number) => raw_int(number),
        None => otherwise(ids),
    }
}

#[inline(never)]
fn otherwise(ids: &IdSource) -> *mut ffi::PyObject {
    // SAFETY: the interpreter called us.
    let py = unsafe { Python::assume_attached() };
    enter(py, || ids.next_otherwise(py))
}

/// Runs a verb that is not quick: its error becomes the pending exception, and so does a panic.
pub(crate) fn enter<'py>(
    py: Python<'py>,
    verb: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    let answer = catch_unwind(AssertUnwindSafe(verb))
        .unwrap_or_else(|_| Err(raised(Error::new(Code::Internal, "a defect in keymill, please report it"))));
    match answer {
        Ok(id) => id.into_ptr(),
        Err(error) => {
            error.restore(py);
            ptr::null_mut()
        }
    }
}

/// What `iter` gives: the object it goes through, and that object's ids. All zeros where Python code has made one by
/// itself.
#[repr(C)]
struct Iteration {
    head: ffi::PyObject,
    owner: *mut ffi::PyObject,
    ids: *const IdSource,
}

/// An iterator through `owner`.
pub(crate) fn iterate<'py, T: HasIds>(owner: &Bound<'py, T>) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = owner.py();
    let class = CLASS.get_or_try_init(py, || class(py))?;
    // SAFETY: a heap type made below, of `Iteration`'s size; a new reference, or NULL with an exception.
    let made =
        unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0))? };
    // SAFETY: made above, and not shared yet.
    let iteration = unsafe { &mut *made.as_ptr().cast::<Iteration>() };
    iteration.ids = ptr::from_ref(owner.get().ids());
    iteration.owner = owner.clone().into_ptr();
    Ok(made)
}

fn class(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let slot = |slot: c_int, pfunc| ffi::PyType_Slot { slot, pfunc };
    let mut slots = [
        slot(ffi::Py_tp_dealloc, drop_iteration as *mut _),
        slot(ffi::Py_tp_iter, ffi::PyObject_SelfIter as *mut _),
        slot(ffi::Py_tp_iternext, next_of_iteration as *mut _),
        slot(0, ptr::null_mut()),
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"keymill.Ids".as_ptr(),
        basicsize: mem::size_of::<Iteration>() as c_int,
        itemsize: 0,
        flags: ffi::Py_TPFLAGS_DEFAULT as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the spec describes `Iteration`, and is read only during the call (the name is static).
    Ok(unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&raw mut spec))? }.unbind())
}

unsafe extern "C" fn next_of_iteration(this: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the slot of a class whose instances are `Iteration`s; the owner is kept alive by the reference it holds.
    let ids = unsafe { (*this.cast::<Iteration>()).ids.as_ref() };
    match ids {
        Some(ids) => take(ids),
        None => {
            // SAFETY: the interpreter called us.
            PyTypeError::new_err("iterate over a source or a handle")
                .restore(unsafe { Python::assume_attached() });
            ptr::null_mut()
        }
    }
}

unsafe extern "C" fn drop_iteration(this: *mut ffi::PyObject) {
    // SAFETY: the slot of a heap type whose instances are `Iteration`s: the last reference is gone; the type is let go
    // after its instance, as heap types' instances must.
    unsafe {
        let class = ffi::Py_TYPE(this);
        ffi::Py_XDECREF((*this.cast::<Iteration>()).owner);
        let free: ffi::freefunc = mem::transmute(ffi::PyType_GetSlot(class, ffi::Py_tp_free));
        free(this.cast());
        ffi::Py_DECREF(class.cast());
    }
}
