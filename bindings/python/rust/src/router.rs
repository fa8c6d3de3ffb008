//! Genes and routers: which shard an id or a business key belongs to.

use std::borrow::Cow;
use std::path::PathBuf;

use keymill::{Error, GeneKey};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyString};

use crate::error::{bad_argument, raised};
use crate::order_numbers;
use crate::value::{not_pickled, shown, text, whole};

/// A business key: an int, a str or bytes.
pub(crate) enum Key<'k> {
    Number(u64),
    Text(Cow<'k, str>),
    Bytes(&'k [u8]),
}

impl<'k> Key<'k> {
    pub(crate) fn of(value: &'k Bound<'_, PyAny>) -> PyResult<Key<'k>> {
        if let Ok(text) = value.cast::<PyString>() {
            let text = text.to_cow();
            return text
                .map(Key::Text)
                .map_err(|_| bad_argument("the key holds lone surrogates, which are no UTF-8"));
        }
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Key::Bytes(bytes.as_bytes()));
        }
        // A bool is an int of Python's, and a mistake here.
        if !value.is_instance_of::<PyBool>() {
            if let Ok(number) = value.extract::<i64>() {
                return Ok(Key::Number(number.cast_unsigned()));
            }
            if let Ok(number) = value.extract::<u64>() {
                return Ok(Key::Number(number));
            }
        }
        Err(bad_argument(format!(
            "a key must be an int from -9223372036854775808 to 18446744073709551615, a str or bytes, not {}",
            shown(value)
        )))
    }

    pub(crate) fn as_key(&self) -> GeneKey<'_> {
        match self {
            Key::Number(key) => GeneKey::Number(*key),
            Key::Text(key) => GeneKey::Text(key.as_bytes()),
            Key::Bytes(key) => GeneKey::Text(key),
        }
    }
}

/// The gene of a business key, 0 to 65535; an int is another key than its digits as a str.
///
/// >>> import keymill
/// >>> keymill.gene("buyer-42"), keymill.gene(42)
/// (56443, 61763)
#[pyfunction]
#[pyo3(signature = (key, /))]
pub(crate) fn gene(key: &Bound<'_, PyAny>) -> PyResult<u16> {
    keymill::Gene::of(Key::of(key)?.as_key()).map(keymill::Gene::get).map_err(raised)
}

/// Where an id or a business key belongs.
#[pyclass(frozen, get_all, module = "keymill")]
#[derive(Debug)]
pub(crate) struct Route {
    /// The gene, 0 to 65535.
    gene: u16,
    /// The shard of the gene's range. While the range moves, the shard that it leaves.
    shard: Py<PyString>,
    /// The shard to read from.
    read: Py<PyString>,
    /// The shard that decides a write: `shard`, until a move is finished. None while the route is paused.
    write: Option<Py<PyString>>,
    /// While the range moves, the second shard to write to; else None. It follows `write`, and a write is acknowledged when both have it: see
    /// `Router.is_current`.
    mirror: Option<Py<PyString>>,
    /// Whether writes of the range wait, because its move is about to be finished: for a second at most where all processes live. Take another
    /// route then; reads go on.
    paused: bool,
    /// A second shard that may serve ids of this key, for a key whose range moves by number; else None.
    also: Option<Py<PyString>>,
    /// The version of the table.
    version: u64,
}

#[pymethods]
impl Route {
    fn __repr__(&self, py: Python<'_>) -> String {
        let other = |name: &str, other: Option<&Py<PyString>>| {
            other.map_or_else(String::new, |other| format!(" {name}={}", other.bind(py)))
        };
        let (mirror, also) = (other("mirror", self.mirror.as_ref()), other("also", self.also.as_ref()));
        let write = if self.paused { " paused".to_owned() } else { other("write", self.write.as_ref()) };
        format!(
            "<keymill.Route gene={} shard={} read={}{write}{mirror}{also} version={}>",
            self.gene,
            self.shard.bind(py),
            self.read.bind(py),
            self.version
        )
    }
}

fn answer(py: Python<'_>, route: Result<keymill::Route<'_>, Error>) -> PyResult<Route> {
    let route = route.map_err(raised)?;
    let shard = PyString::new(py, route.shard);
    let read = if route.read == route.shard { shard.clone() } else { PyString::new(py, route.read) };
    Ok(Route {
        gene: route.gene.get(),
        read: read.unbind(),
        write: route.write.map(|_| shard.clone().unbind()),
        shard: shard.unbind(),
        mirror: route.mirror.map(|name| PyString::new(py, name).unbind()),
        paused: route.paused,
        also: route.also.map(|name| PyString::new(py, name).unbind()),
        version: route.version,
    })
}

/// Which shard an id or a business key belongs to, by a table of ranges over the genes. From `Router.open`,
/// `Router.from_text` or `Mill.router`. Any thread may use it.
///
/// >>> import keymill
/// >>> router = keymill.Router.from_text("""
/// ... version = 7
/// ... [[range]]
/// ... upper = 32767
/// ... shard = "s1"
/// ... [[range]]
/// ... upper = 65535
/// ... shard = "s2"
/// ... """)
/// >>> router.route_key("buyer-42").shard, router.route(56443 << 47 | 1).shard
/// ('s2', 's2')
#[pyclass(frozen, module = "keymill", weakref)]
#[derive(Debug)]
pub(crate) struct Router {
    pub(crate) router: keymill::Router,
}

#[pymethods]
impl Router {
    /// A router whose table is in a file, TOML or JSON. The file is read once; `load` replaces the table.
    #[staticmethod]
    #[pyo3(signature = (file, /))]
    fn open(file: PathBuf) -> PyResult<Router> {
        Ok(Router { router: keymill::Router::open(file).map_err(raised)? })
    }

    /// A router with this table: TOML, or JSON if the text begins with a brace.
    #[staticmethod]
    #[pyo3(signature = (table, /))]
    fn from_text(table: &Bound<'_, PyAny>) -> PyResult<Router> {
        Ok(Router { router: keymill::Router::from_text(&text(table, "table")?).map_err(raised)? })
    }

    /// Replaces the table while other threads read. False: it is the present one. A bad table, or one whose version is not higher,
    /// raises `ConfigError` with all its faults, and the old one stays.
    #[pyo3(signature = (table, /))]
    fn load(&self, table: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.router.load(&text(table, "table")?).map_err(raised)
    }

    /// Where an id belongs: an int of 64 bits, or bytes, 8 of them or 16 of a wide id. An int of 128 bits is for `route_wide`, also
    /// where it is small.
    #[pyo3(signature = (id, /))]
    fn route(&self, py: Python<'_>, id: &Bound<'_, PyAny>) -> PyResult<Route> {
        if let Ok(bytes) = id.cast::<PyBytes>() {
            return answer(py, self.router.route_bytes(bytes.as_bytes()));
        }
        answer(py, self.router.route(whole(id, "id")?))
    }

    /// Where an id of 128 bits belongs.
    #[pyo3(signature = (id, /))]
    fn route_wide(&self, py: Python<'_>, id: &Bound<'_, PyAny>) -> PyResult<Route> {
        let id = id
            .extract::<u128>()
            .map_err(|_| bad_argument(format!("id must be an int from 0 to 2**128-1, not {}", shown(id))))?;
        answer(py, self.router.route_wide(id))
    }

    /// Where the ids of a business key belong: an int or a str.
    #[pyo3(signature = (key, /))]
    fn route_key(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Route> {
        answer(py, self.router.route_key(Key::of(key)?.as_key()))
    }

    /// Where the order belongs that has this order number, which needs no key: bytes, an int of 8 bytes, or a str. Where a range moves by
    /// number, the id decides, which is encrypted: `also` names the second shard then.
    #[pyo3(signature = (order_no, /))]
    fn route_order_no(&self, py: Python<'_>, order_no: &Bound<'_, PyAny>) -> PyResult<Route> {
        answer(py, order_numbers::route(&self.router, order_no)?)
    }

    /// Whether a write by this route may still be committed: the present table says the same about where the ids of its gene are written, and
    /// while the range moves, this process may answer for it. Asks no store. A write while the range moves holds a transaction open on both
    /// shards, and asks this before it commits `write`, then `mirror`. If not, roll both back and take a new route.
    #[pyo3(signature = (route, /))]
    fn is_current(&self, py: Python<'_>, route: &Route) -> PyResult<bool> {
        let name = |name: &Option<Py<PyString>>| {
            name.as_ref().map(|name| name.bind(py).to_cow().map(Cow::into_owned)).transpose()
        };
        let (write, mirror) = (name(&route.write)?, name(&route.mirror)?);
        Ok(self.router.writes_to(route.gene, write.as_deref(), mirror.as_deref()))
    }

    /// The version of the present table.
    #[getter]
    fn version(&self) -> u64 {
        self.router.version()
    }

    /// How many seconds ago the store said that the table is the present one; None where the table is not from a store.
    #[getter]
    fn age(&self) -> Option<f64> {
        self.router.age().map(|age| age.as_secs_f64())
    }

    fn __repr__(&self) -> String {
        format!("<keymill.Router version {}>", self.router.version())
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(not_pickled(slf))
    }
}
