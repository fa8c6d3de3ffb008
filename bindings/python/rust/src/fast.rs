//! The methods that give most ids, without what a general call costs: `next` and `fill`; iteration is in [`crate::iteration`].
//!
//! pyo3's entry to a method keeps a count of the thread's attachments, which is a call into the thread's storage and a
//! third of the time an id takes. Here the interpreter calls a function of ours that takes a number from the cursor and
//! makes an int of it; everything else (a wait, an error, a text) is done in [`enter`](crate::iteration::enter), where a panic ends too.

use std::ffi::{CStr, CString, c_int};

use pyo3::PyTypeInfo;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyTuple, PyType};

use crate::handle::Handle;
use crate::iteration::{HasIds, enter, take};
use crate::lazy::Lazy;
use crate::source::Source;
use crate::value::raw_int;

/// `next` as the interpreter calls it.
unsafe extern "C" fn next<T: HasIds>(this: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the interpreter called us, through a descriptor that checks for `T`; a frozen class is only read.
    let this = unsafe { Borrowed::from_ptr(Python::assume_attached(), this).cast_unchecked::<T>() };
    take(this.get().ids())
}

/// `next` of a lazy source as the interpreter calls it; a key belongs to business ids.
unsafe extern "C" fn next_lazily(
    this: *mut ffi::PyObject,
    arguments: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as in `next`; the arguments are a tuple, borrowed for the call.
    let (py, this, arguments) = unsafe {
        let py = Python::assume_attached();
        let arguments = Borrowed::from_ptr(py, arguments).cast_unchecked::<PyTuple>();
        (py, Borrowed::from_ptr(py, this).cast_unchecked::<Lazy>(), arguments)
    };
    let number = if arguments.is_empty() { this.get().quick() } else { None };
    match number {
        Some(number) => raw_int(number),
        None => enter(py, || this.get().next_with(py, &arguments)),
    }
}

/// `fill` as the interpreter calls it.
unsafe extern "C" fn fill(this: *mut ffi::PyObject, buffer: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: as in `next`; the argument is borrowed for the call.
    let (py, this, buffer) = unsafe {
        let py = Python::assume_attached();
        (py, Borrowed::from_ptr(py, this).cast_unchecked::<Source>(), Borrowed::from_ptr(py, buffer))
    };
    enter(py, || this.get().fill(py, &buffer).map(|()| py.None().into_bound(py)))
}

/// Puts our entries in the place of the methods of the same names, which say what they are for.
pub(crate) fn install(py: Python<'_>) -> PyResult<()> {
    let no_arguments = |entry| (ffi::METH_NOARGS, ffi::PyMethodDefPointer { PyCFunction: entry });
    let source = &Source::type_object(py);
    put(source, c"next", "($self, /)", no_arguments(next::<Source>))?;
    put(source, c"fill", "($self, buffer, /)", (ffi::METH_O, ffi::PyMethodDefPointer { PyCFunction: fill }))?;
    let with_key = (ffi::METH_VARARGS, ffi::PyMethodDefPointer { PyCFunction: next_lazily });
    put(&Lazy::type_object(py), c"next", "($self, key=None, /)", with_key)?;
    put(&Handle::type_object(py), c"next", "($self, /)", no_arguments(next::<Handle>))
}

fn put(
    class: &Bound<'_, PyType>,
    name: &'static CStr,
    signature: &str,
    (ml_flags, ml_meth): (c_int, ffi::PyMethodDefPointer),
) -> PyResult<()> {
    let title = name.to_string_lossy();
    let doc: String = class.getattr(&*title)?.getattr("__doc__")?.extract()?;
    let doc = CString::new(format!("{title}{signature}\n--\n\n{doc}"))?;
    // The interpreter keeps the definition as long as it lives.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: name.as_ptr(),
        ml_meth,
        ml_flags,
        ml_doc: doc.into_raw(),
    }));
    // SAFETY: a type, and a definition that lives as long as the interpreter; a new reference, or NULL with an exception.
    let method = unsafe {
        Bound::from_owned_ptr_or_err(class.py(), ffi::PyDescr_NewMethod(class.as_type_ptr(), definition))?
    };
    class.setattr(&*title, method)
}
