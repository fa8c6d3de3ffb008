//! The caller's buffers of ids, through the buffer protocol.
//!
//! The limited API has the protocol from 3.11 on only; the wheel runs from 3.9 on and may not link to it. So the two
//! functions are looked up in the running interpreter, and the struct is declared here: `PyObject_GetBuffer`,
//! `PyBuffer_Release` and the layout of `Py_buffer` have been exported and unchanged since CPython 3.3 (PEP 3118; the limited
//! API adopted exactly these in 3.11, which froze them for good). PyPy's struct is longer, but no abi3 wheel is loaded there.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use keymill::binding::exported;
use pyo3::ffi::PyObject;
use pyo3::prelude::*;

use crate::batch::IdBatch;
use crate::error::bad_argument;

/// `Py_buffer` of CPython 3.3 and later.
#[repr(C)]
struct View {
    buf: *mut c_void,
    obj: *mut PyObject,
    len: isize,
    itemsize: isize,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut isize,
    strides: *mut isize,
    suboffsets: *mut isize,
    internal: *mut c_void,
}

// The struct the limited API froze in 3.11: nine words and two ints.
const _: () = assert!(size_of::<View>() == 9 * size_of::<usize>() + 2 * size_of::<c_int>());

type GetBuffer = unsafe extern "C" fn(exporter: *mut PyObject, view: *mut View, flags: c_int) -> c_int;
type ReleaseBuffer = unsafe extern "C" fn(view: *mut View);

/// The protocol's functions, as the running interpreter exports them.
#[derive(Clone, Copy)]
struct Protocol {
    get: GetBuffer,
    release: ReleaseBuffer,
}

fn protocol() -> Option<Protocol> {
    static FOUND: OnceLock<Option<Protocol>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // A type, because a function's address may lead to a stub in this library.
        let interpreter = (&raw const pyo3::ffi::PyLong_Type).cast();
        let [get, release] =
            [c"PyObject_GetBuffer", c"PyBuffer_Release"].map(|name| exported(name, interpreter));
        if get.is_null() || release.is_null() {
            return None;
        }
        // SAFETY: functions of CPython by these names have these types since 3.3.
        Some(unsafe {
            Protocol {
                get: std::mem::transmute::<*mut c_void, GetBuffer>(get),
                release: std::mem::transmute::<*mut c_void, ReleaseBuffer>(release),
            }
        })
    })
}

/// `PyBUF_FORMAT | PyBUF_STRIDES | PyBUF_ND | PyBUF_WRITABLE`: strides are asked for so that a buffer with gaps is told apart from a
/// read-only buffer.
const RECORDS: c_int = 0x4 | 0x10 | 0x8 | 0x1;
/// `PyBUF_RECORDS_RO`: the same, read-only allowed.
const RECORDS_RO: c_int = 0x4 | 0x10 | 0x8;

/// A writable buffer of 64-bit integers, held until dropped.
pub(crate) struct Ids {
    view: Box<View>,
    protocol: Protocol,
    count: usize,
}

impl Ids {
    /// The buffer of an object, or what is wrong with it.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Ids> {
        let Some(protocol) = protocol() else {
            return Err(bad_argument(
                "this interpreter exports no buffer protocol; use take instead of fill",
            ));
        };
        let Some(asked) = view(protocol, object, RECORDS) else {
            // Asking again is the only way to tell the reasons apart.
            return Err(bad_argument(match view(protocol, object, RECORDS_RO) {
                Some(ids) => {
                    drop(Ids { view: ids, protocol, count: 0 });
                    "the buffer is read-only; fill needs one it may write to, as array.array(\"Q\", bytes(8 * n))".to_owned()
                }
                None => format!(
                    "fill needs a writable buffer of 64-bit integers, as array.array(\"Q\", bytes(8 * n)), not {}",
                    crate::value::shown(object)
                ),
            }));
        };
        let mut ids = Ids { view: asked, protocol, count: 0 };
        ids.count = ids.check()?;
        Ok(ids)
    }

    /// How many ids it holds.
    fn check(&self) -> PyResult<usize> {
        let view = &*self.view;
        let format = if view.format.is_null() {
            "B"
        } else {
            // SAFETY: a NUL-terminated string that lives as long as the view.
            unsafe { CStr::from_ptr(view.format) }.to_str().unwrap_or("?")
        };
        let native = if cfg!(target_endian = "little") { '<' } else { '>' };
        let letter = format.strip_prefix(['@', '=', native]).unwrap_or(format);
        let integers = matches!(letter, "Q" | "q" | "L" | "l" | "N" | "n") && view.itemsize == 8;
        if !integers {
            return Err(bad_argument(format!(
                "the buffer's items are `{}` of {} bytes; fill needs native 64-bit integers (`Q` or `q`), as array.array(\"Q\"), a numpy array of uint64 or int64, or memoryview(b).cast(\"Q\")",
                format.chars().take(16).collect::<String>(),
                view.itemsize
            )));
        }
        if !self.is_contiguous() {
            return Err(bad_argument(
                "the buffer has gaps or another order than C's; fill needs a contiguous one",
            ));
        }
        Ok(view.len as usize / 8)
    }

    /// Whether the items lie one behind the other.
    fn is_contiguous(&self) -> bool {
        let view = &*self.view;
        if view.strides.is_null() || view.len == 0 || view.ndim == 0 {
            return view.suboffsets.is_null();
        }
        let ndim = view.ndim as usize;
        // SAFETY: `shape` and `strides` have `ndim` items each where they are given, which was asked for.
        let (shape, strides) = unsafe {
            (std::slice::from_raw_parts(view.shape, ndim), std::slice::from_raw_parts(view.strides, ndim))
        };
        let mut step = view.itemsize;
        let in_order = shape.iter().zip(strides).rev().all(|(length, stride)| {
            let right = *stride == step || *length <= 1;
            step *= *length;
            right
        });
        in_order && view.suboffsets.is_null()
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Writes a complete batch of as many ids.
    pub(crate) fn write(&self, batch: IdBatch) {
        let first = self.view.buf.cast::<u64>();
        let mut at = 0;
        batch.for_each_part(|part| {
            let room = self.count - at;
            for (i, number) in part.clone().take(room).enumerate() {
                // SAFETY: `at + i` is under the number of items that were checked and that the view keeps where they
                // are; the buffer is writable. It may be unaligned.
                unsafe { first.add(at + i).write_unaligned(number) };
            }
            at += (part.end - part.start).min(room as u64) as usize;
        });
    }
}

fn view(protocol: Protocol, object: &Bound<'_, PyAny>, flags: c_int) -> Option<Box<View>> {
    let mut view = Box::new(MaybeUninit::<View>::zeroed());
    // SAFETY: the interpreter is attached; the view is writable and stays where it is until it is released.
    let answer = unsafe { (protocol.get)(object.as_ptr(), view.as_mut_ptr(), flags) };
    if answer != 0 {
        drop(PyErr::take(object.py()));
        return None;
    }
    // SAFETY: filled in by the call above, and all zeros is a value of it too.
    Some(unsafe { Box::from_raw(Box::into_raw(view).cast::<View>()) })
}

impl Drop for Ids {
    fn drop(&mut self) {
        // SAFETY: a view that `PyObject_GetBuffer` filled in, released once; the interpreter is attached, because `Ids`
        // lives inside one call.
        unsafe { (self.protocol.release)(ptr::from_mut(&mut *self.view)) };
    }
}
