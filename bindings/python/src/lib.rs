//! keymill for Python: translations of the waist, and nothing else. (floor 5)
//!
//! * `cursor`: numbers leased ahead, counted through while the interpreter's lock is held.
//! * `taker`: what a source and a handle have in common: one id, now or after a wait.
//! * `fast`: the entries of `next`, `fill` and of iteration.
//! * `batch`: many ids, all or none.
//! * `wait`: pauses without the lock, in which signals are heard.
//! * `mill`, `source`, `handle`: the classes.
//! * `buffer`, `value`, `error`: what crosses.

mod batch;
mod buffer;
mod cursor;
mod error;
mod fast;
mod handle;
mod mill;
mod source;
mod taker;
mod value;
mod wait;

use pyo3::prelude::*;

/// The compiled part of the package `keymill`.
///
/// `gil_used`: cursors count under the interpreter's lock. A free-threaded interpreter switches its lock on for this
/// module; where the user forbids that (`PYTHON_GIL=0`) no cursor is used: see [`cursor::Cursor::refill`].
#[pymodule(name = "_keymill", gil_used = true)]
mod module {
    use pyo3::prelude::*;
    use pyo3::types::PyDict;

    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::handle::Handle;
    #[pymodule_export]
    use crate::mill::{Mill, open, spec_string};
    #[pymodule_export]
    use crate::source::Source;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        crate::cursor::ask_for_the_lock(py)?;
        crate::fast::install(py)?;
        let codes = PyDict::new(py);
        let families = PyDict::new(py);
        for code in keymill::Code::ALL {
            codes.set_item(code.name(), code.number())?;
            families.set_item(code.name(), crate::error::family(code))?;
        }
        module.add("CODES", codes)?;
        module.add("FAMILIES", families)?;
        module.add("VERSION", keymill::VERSION)
    }
}
