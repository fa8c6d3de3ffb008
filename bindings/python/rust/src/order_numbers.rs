//! Order numbers: what business ids are called outside.

use std::path::PathBuf;

use keymill::Error;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyInt, PyList, PyMemoryView};

use crate::error::{bad_argument, raised};
use crate::value::{int, shown, text, whole};

/// From how many on a batch runs without the interpreter's lock.
const MANY: usize = 1000;

/// The bytes of an order number, which drivers give as bytes, bytearray or memoryview.
fn bytes_of<'py>(value: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(PyBytes::new(value.py(), &bytes.to_vec()));
    }
    if value.is_instance_of::<PyMemoryView>() {
        return Ok(value.call_method0("tobytes")?.cast_into::<PyBytes>()?);
    }
    Err(bad_argument(format!("{what} must be bytes, not {}", shown(value))))
}

/// A tenant or a table; without one the empty text.
type Name<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

fn name(value: Name<'_, '_>, what: &str) -> PyResult<String> {
    value.map_or_else(|| Ok(String::new()), |value| text(value, what))
}

fn wide(value: &Bound<'_, PyAny>) -> PyResult<u128> {
    value
        .extract::<u128>()
        .map_err(|_| bad_argument(format!("id must be an int from 0 to 2**128-1, not {}", shown(value))))
}

fn version_of(value: &Bound<'_, PyAny>, what: &str) -> PyResult<u8> {
    value
        .extract::<u8>()
        .map_err(|_| bad_argument(format!("{what} must be an int from 1 to 255, not {}", shown(value))))
}

fn all(values: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u64>> {
    listed(values, what)?.map(|value| whole(&value?, what)).collect()
}

fn listed<'py>(
    values: &Bound<'py, PyAny>,
    what: &str,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyAny>>>> {
    values.try_iter().map_err(|_| bad_argument(format!("{what}s must be a list, not {}", shown(values))))
}

/// What an order number is looked up by: bytes, an int or a str.
pub(crate) fn route<'r>(
    router: &'r keymill::Router,
    order_no: &Bound<'_, PyAny>,
) -> PyResult<Result<keymill::Route<'r>, Error>> {
    if order_no.is_instance_of::<PyInt>() {
        return Ok(router.route_order_no(whole(order_no, "an order number")?));
    }
    if let Ok(text) = text(order_no, "an order number") {
        return Ok(router.route_order_no(&text));
    }
    Ok(router.route_order_no(bytes_of(order_no, "an order number")?.as_bytes()))
}

/// Turns business ids into order numbers, which may be shown to anyone, and back. The gene in an order number stays readable, and the number
/// is encrypted with keys of this tenant and this table. Any thread may use it.
///
/// >>> import keymill
/// >>> numbers = keymill.OrderNumbers.from_keys({1: bytes(32)}, 1, "acme", "orders")
/// >>> no = numbers.seal(7943646055239778305)
/// >>> len(no), numbers.unseal(no)
/// (16, 7943646055239778305)
#[pyclass(frozen, module = "keymill", weakref)]
#[derive(Debug)]
pub(crate) struct OrderNumbers {
    numbers: keymill::OrderNumbers,
}

impl OrderNumbers {
    fn of(numbers: Result<keymill::OrderNumbers, Error>) -> PyResult<OrderNumbers> {
        Ok(OrderNumbers { numbers: numbers.map_err(raised)? })
    }
}

#[pymethods]
impl OrderNumbers {
    /// With the keys of a file, which other users must not be able to read, for one tenant and one table; either may be empty.
    #[staticmethod]
    #[pyo3(signature = (file, tenant = None, table = None), text_signature = "(file, tenant=\"\", table=\"\")")]
    fn open(file: PathBuf, tenant: Name<'_, '_>, table: Name<'_, '_>) -> PyResult<OrderNumbers> {
        let (tenant, table) = (name(tenant, "tenant")?, name(table, "table")?);
        OrderNumbers::of(keymill::OrderNumbers::open(file, &tenant, &table))
    }

    /// With the keys in the environment variable KEYMILL_ORDER_KEYS, which has the text of a key file.
    #[staticmethod]
    #[pyo3(signature = (tenant = None, table = None), text_signature = "(tenant=\"\", table=\"\")")]
    fn from_env(tenant: Name<'_, '_>, table: Name<'_, '_>) -> PyResult<OrderNumbers> {
        let (tenant, table) = (name(tenant, "tenant")?, name(table, "table")?);
        OrderNumbers::of(keymill::OrderNumbers::from_env(&tenant, &table))
    }

    /// With keys of the caller's: a dict of versions, 1 to 255, and 32 bytes each; version `seal_with` seals.
    #[staticmethod]
    #[pyo3(signature = (keys, seal_with, tenant = None, table = None), text_signature = "(keys, seal_with, tenant=\"\", table=\"\")")]
    fn from_keys(
        keys: &Bound<'_, PyAny>,
        seal_with: &Bound<'_, PyAny>,
        tenant: Name<'_, '_>,
        table: Name<'_, '_>,
    ) -> PyResult<OrderNumbers> {
        let Ok(keys) = keys.cast::<PyDict>() else {
            return Err(bad_argument(format!(
                "keys must be a dict of versions and bytes, not {}",
                shown(keys)
            )));
        };
        let given = keys
            .iter()
            .map(|(version, key)| Ok((version_of(&version, "a version")?, bytes_of(&key, "a key")?)));
        let given = given.collect::<PyResult<Vec<_>>>()?;
        let keys: Vec<_> = given.iter().map(|(version, key)| (*version, key.as_bytes())).collect();
        let seal_with = version_of(seal_with, "seal_with")?;
        let (tenant, table) = (name(tenant, "tenant")?, name(table, "table")?);
        OrderNumbers::of(keymill::OrderNumbers::from_keys(&keys, seal_with, &tenant, &table))
    }

    /// The same keys, with only this version in use: it seals, it opens order numbers of 8 bytes, and order numbers of 16 bytes have to be
    /// of this version.
    #[pyo3(signature = (version, /))]
    fn with_version(&self, version: &Bound<'_, PyAny>) -> PyResult<OrderNumbers> {
        OrderNumbers::of(self.numbers.with_version(version_of(version, "version")?))
    }

    /// The version that seals, which belongs into a column beside order numbers of 8 bytes.
    #[getter]
    fn version(&self) -> u8 {
        self.numbers.version()
    }

    /// The order number of an id of 64 bits: 16 bytes.
    #[pyo3(signature = (id, /))]
    fn seal<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.numbers.seal(whole(id, "id")?).map_err(raised)?))
    }

    /// The id in an order number of 16 bytes. What was not sealed with these keys for this tenant and this table raises `ArgumentError` with
    /// the code `FORGED`.
    #[pyo3(signature = (order_no, /))]
    fn unseal<'py>(&self, py: Python<'py>, order_no: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        int(py, self.numbers.unseal(bytes_of(order_no, "an order number")?.as_bytes()).map_err(raised)?)
    }

    /// The order number of an id of 128 bits.
    #[pyo3(signature = (id, /))]
    fn seal_wide<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.numbers.seal_wide(wide(id)?).map_err(raised)?))
    }

    /// The id of 128 bits in an order number.
    #[pyo3(signature = (order_no, /))]
    fn unseal_wide(&self, order_no: &Bound<'_, PyAny>) -> PyResult<u128> {
        self.numbers.unseal_wide(bytes_of(order_no, "an order number")?.as_bytes()).map_err(raised)
    }

    /// The order number of 8 bytes: an int below 2**63. It has no room for a check: every such int opens as some id.
    #[pyo3(signature = (id, /))]
    fn seal8<'py>(&self, py: Python<'py>, id: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        int(py, self.numbers.seal8(whole(id, "id")?).map_err(raised)?)
    }

    /// The id in an order number of 8 bytes, of the version of `with_version` or the only loaded version.
    #[pyo3(signature = (order_no, /))]
    fn unseal8<'py>(&self, py: Python<'py>, order_no: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        int(py, self.numbers.unseal8(whole(order_no, "an order number")?).map_err(raised)?)
    }

    /// The order numbers of many ids, several times as fast as one by one.
    #[pyo3(signature = (ids, /))]
    fn seal_all<'py>(&self, py: Python<'py>, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let ids = all(ids, "id")?;
        let sealed = run(py, ids.len(), || self.numbers.seal_all(&ids))?;
        PyList::new(py, sealed.iter().map(|order_no| PyBytes::new(py, order_no)))
    }

    /// The ids in many order numbers of 16 bytes: all of them, or an error that names a wrong one.
    #[pyo3(signature = (order_nos, /))]
    fn unseal_all(&self, py: Python<'_>, order_nos: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        let sixteen = |value: PyResult<Bound<'_, PyAny>>| {
            let bytes = bytes_of(&value?, "an order number")?;
            <[u8; 16]>::try_from(bytes.as_bytes()).map_err(|_| {
                bad_argument(format!("an order number has 16 bytes, and one has {}", bytes.as_bytes().len()))
            })
        };
        let order_nos = listed(order_nos, "order number")?.map(sixteen).collect::<PyResult<Vec<_>>>()?;
        run(py, order_nos.len(), || self.numbers.unseal_all(&order_nos))
    }

    /// The order numbers of 8 bytes of many ids.
    #[pyo3(signature = (ids, /))]
    fn seal8_all(&self, py: Python<'_>, ids: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        let ids = all(ids, "id")?;
        run(py, ids.len(), || self.numbers.seal8_all(&ids))
    }

    /// The ids in many order numbers of 8 bytes, which one version has sealed.
    #[pyo3(signature = (order_nos, /))]
    fn unseal8_all(&self, py: Python<'_>, order_nos: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        let order_nos = all(order_nos, "order number")?;
        run(py, order_nos.len(), || self.numbers.unseal8_all(&order_nos))
    }

    /// The order number of an id of 64 bits as text of 26 characters.
    #[pyo3(signature = (id, /))]
    fn seal_text(&self, id: &Bound<'_, PyAny>) -> PyResult<String> {
        self.numbers.seal_text(whole(id, "id")?).map_err(raised)
    }

    /// The id in the text of an order number of 16 bytes. Small letters are read too, and i, l and o as the digits that they look like.
    #[pyo3(signature = (order_no, /))]
    fn unseal_text<'py>(&self, py: Python<'py>, order_no: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        int(py, self.numbers.unseal_text(&text(order_no, "an order number")?).map_err(raised)?)
    }

    /// The order number of an id of 128 bits as text of 26 characters.
    #[pyo3(signature = (id, /))]
    fn seal_wide_text(&self, id: &Bound<'_, PyAny>) -> PyResult<String> {
        self.numbers.seal_wide_text(wide(id)?).map_err(raised)
    }

    /// The id of 128 bits in the text of an order number.
    #[pyo3(signature = (order_no, /))]
    fn unseal_wide_text(&self, order_no: &Bound<'_, PyAny>) -> PyResult<u128> {
        self.numbers.unseal_wide_text(&text(order_no, "an order number")?).map_err(raised)
    }

    /// The order number of 8 bytes as text of 14 characters; the last character finds typing errors.
    #[pyo3(signature = (id, /))]
    fn seal8_text(&self, id: &Bound<'_, PyAny>) -> PyResult<String> {
        self.numbers.seal8_text(whole(id, "id")?).map_err(raised)
    }

    /// The id in the text of an order number of 8 bytes.
    #[pyo3(signature = (order_no, /))]
    fn unseal8_text<'py>(
        &self,
        py: Python<'py>,
        order_no: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        int(py, self.numbers.unseal8_text(&text(order_no, "an order number")?).map_err(raised)?)
    }

    fn __repr__(&self) -> String {
        format!("<keymill.OrderNumbers version {}>", self.numbers.version())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(bad_argument(format!(
            "{} cannot be pickled or copied: they hold keys; open them in each process",
            shown(slf)
        )))
    }
}

/// Runs a batch; a large one without the interpreter's lock.
fn run<T: Send>(
    py: Python<'_>,
    count: usize,
    batch: impl Send + FnOnce() -> Result<T, Error>,
) -> PyResult<T> {
    if count < MANY { batch() } else { py.detach(batch) }.map_err(raised)
}
