//! keymill for Python: translations of the core's verbs, and nothing else.
//!
//! * `cursor`: numbers leased ahead, counted through while the interpreter's lock is held.
//! * `id_source`: what a source and a handle have in common: one id, now or after a wait.
//! * `fast`, `iteration`: the entries of `next`, `fill` and of iteration.
//! * `batch`: many ids, all or none.
//! * `notifier`: how a loop of asyncio learns which of its tasks have news.
//! * `wait`: pauses without the lock, in which signals are handled.
//! * `mill`, `source`, `handle`, `business`, `router`, `order_numbers`: the classes.
//! * `shards`: writes over the program's own connections, which `_shards.py` runs.
//! * `lazy`: the shared mill, and sources that are declared before it is open.
//! * `buffer`, `dicts`, `value`, `error`: what crosses.
//! * `command`: the command `keymill`, which the package brings along.

mod batch;
mod buffer;
mod business;
mod command;
mod cursor;
mod dicts;
mod error;
mod fast;
mod handle;
mod id_source;
mod iteration;
mod lazy;
mod mill;
mod notifier;
mod order_numbers;
mod router;
mod shards;
mod source;
mod value;
mod wait;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The interpreter that loaded this library first; -1: none yet.
static INTERPRETER: AtomicI64 = AtomicI64::new(-1);

/// The name under which the package was imported: a program may carry it along inside a package of its own.
static PACKAGE: OnceLock<String> = OnceLock::new();

/// The name of a module beside this one.
fn beside(module: &str) -> String {
    format!("{}.{module}", PACKAGE.get().map_or("keymill", String::as_str))
}

/// The compiled part of the package `keymill`.
///
/// `gil_used`: cursors count under the interpreter's lock. A free-threaded build of CPython does not load an abi3 wheel;
/// built from source for one, the module makes it switch its lock on, and uses no cursor there all the same, because the
/// user may forbid the lock (`PYTHON_GIL=0`): see [`cursor::Cursor::refill`]. That has not been tested.
#[pymodule(name = "_keymill", gil_used = true)]
fn python_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    refuse_a_second_interpreter(py)?;
    let name = module.name()?.extract::<String>()?;
    let _ = PACKAGE.set(name.strip_suffix("._keymill").unwrap_or("keymill").to_owned());
    keymill::binding::quiet_panics();
    cursor::ask_for_the_lock(py)?;
    module.add_class::<mill::Mill>()?;
    module.add_class::<source::Source>()?;
    module.add_class::<handle::Handle>()?;
    module.add_class::<business::Business>()?;
    module.add_class::<lazy::Lazy>()?;
    module.add_class::<batch::Batch>()?;
    module.add_class::<notifier::Notifier>()?;
    module.add_class::<router::Router>()?;
    module.add_class::<router::Route>()?;
    module.add_class::<shards::ShardTables>()?;
    module.add_class::<shards::ShardWrite>()?;
    module.add_class::<order_numbers::OrderNumbers>()?;
    fast::install(py)?;
    module.add_function(wrap_pyfunction!(mill::open, module)?)?;
    module.add_function(wrap_pyfunction!(lazy::share, module)?)?;
    module.add_function(wrap_pyfunction!(lazy::shared, module)?)?;
    module.add_function(wrap_pyfunction!(lazy::lazy, module)?)?;
    module.add_function(wrap_pyfunction!(mill::spec_string, module)?)?;
    module.add_function(wrap_pyfunction!(mill::store_of, module)?)?;
    module.add_function(wrap_pyfunction!(router::gene, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(close_left_open, module)?)?;
    let (codes, families) = (PyDict::new(py), PyDict::new(py));
    // `CODES` has a name for success too.
    codes.set_item("OK", 0)?;
    families.set_item("OK", "KeymillError")?;
    for code in keymill::Code::ALL {
        codes.set_item(code.name(), code.number())?;
        families.set_item(code.name(), error::family(code))?;
    }
    close_together_at_exit(module)?;
    module.add("CODES", codes)?;
    module.add("FAMILIES", families)?;
    module.add("VERSION", keymill::VERSION)
}

/// The mills that are open when the interpreter ends close with its last objects, which give back what they hold; those that a daemon
/// thread keeps close after them. None waits for its store: one wait at the end is for all.
fn close_together_at_exit(module: &Bound<'_, PyModule>) -> PyResult<()> {
    extern "C" fn wait() {
        let _ = std::panic::catch_unwind(|| keymill::binding::close_all(mill::left_open()));
    }
    // SAFETY: the function takes and gives nothing, does not unwind and calls no interpreter. The library stays loaded.
    if unsafe { ffi::Py_AtExit(Some(wait)) } == 0 {
        let ends = wrap_pyfunction!(interpreter_ends, module)?;
        module.py().import("atexit")?.call_method1("register", (ends,))?;
    }
    Ok(())
}

/// Closes the mills of a process that ends without the interpreter's exit.
#[pyfunction]
fn close_left_open(py: Python<'_>) {
    py.detach(|| keymill::binding::close_all(mill::left_open()));
}

#[pyfunction]
fn interpreter_ends() {
    keymill::binding::process_ends();
}

/// Classes are made once a process, and cursors rely on one lock: a second interpreter would share the first one's
/// objects without its lock.
fn refuse_a_second_interpreter(py: Python<'_>) -> PyResult<()> {
    // SAFETY: the interpreter is attached.
    let this = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    if this < 0 {
        return Err(PyErr::fetch(py));
    }
    // ordering: AcqRel — one interpreter comes first; nothing else hangs on it.
    match INTERPRETER.compare_exchange(-1, this, Ordering::AcqRel, Ordering::Acquire) {
        Err(first) if first != this => Err(PyImportError::new_err(
            "keymill serves one interpreter of a process, and another one has loaded it: use threads or processes instead of subinterpreters",
        )),
        _ => Ok(()),
    }
}
