//! Which schemes each kind of server keeps, derived from the one list of all schemes.

use keymill::store::{Key, Scheme, SerialKey};
use keymill::{CounterColumns, Source, counter_columns};

/// The stores, as documents name them.
pub const STORES: [&str; 7] = ["memory", "SQLite", "MySQL", "MariaDB", "TiDB", "PostgreSQL", "Redis"];

/// Whether a store keeps a scheme. `tests/contract/matrix.rs` asks the stores, and `tests/house/documents.rs` writes the page's table
/// from this.
///
/// # Panics
/// For another name of a store.
#[must_use]
pub fn keeps(store: &str, scheme: Scheme) -> bool {
    let is_sequence = scheme.is_sequence();
    match store {
        "memory" | "SQLite" => !scheme.is_ticket(),
        "MySQL" | "MariaDB" => !is_sequence,
        "TiDB" => true,
        "PostgreSQL" => is_sequence || !scheme.is_ticket(),
        "Redis" => scheme == Scheme::Keymill,
        other => panic!("no store is called `{other}`"),
    }
}

/// Those of MySQL, MariaDB and Galera. MySQL and MariaDB have no sequences that keymill counts by.
pub fn on_mysql() -> impl Iterator<Item = Scheme> + Clone {
    Scheme::ALL.into_iter().filter(|scheme| keeps("MariaDB", *scheme))
}

/// Those of PostgreSQL, which has no AUTO_INCREMENT.
pub fn on_postgres() -> impl Iterator<Item = Scheme> + Clone {
    Scheme::ALL.into_iter().filter(|scheme| keeps("PostgreSQL", *scheme))
}

/// Those that are rows. Every database keeps them.
pub fn in_rows() -> impl Iterator<Item = Scheme> + Clone {
    Scheme::ALL.into_iter().filter(|scheme| keeps("SQLite", *scheme))
}

/// The rows of other programs' counters.
pub fn counters() -> impl Iterator<Item = Scheme> + Clone {
    Source::IMPORTS.iter().copied().filter(|scheme| scheme.keeps_segments())
}

/// What a counter of another program calls its columns.
///
/// # Panics
/// For another scheme.
#[must_use]
pub fn columns(scheme: Scheme) -> &'static CounterColumns {
    counter_columns(scheme).expect("another program's counter")
}

/// The step of a key whose row no other program uses: a row with allocations has none then.
#[must_use]
pub fn step(scheme: Scheme, step: u64) -> u64 {
    if scheme.keeps_allocation() && !scheme.is_sequence() { 0 } else { step }
}

/// The option that the scheme's spec must have where no other program uses the row.
#[must_use]
pub fn option(scheme: Scheme) -> &'static str {
    match scheme {
        _ if scheme.is_shared_sequence() => "&allocation=1000",
        _ if scheme.keeps_allocation() => "&allocation=0",
        _ => "",
    }
}

/// A key of this scheme: of serials, or of the segment `name`.
#[must_use]
pub fn key(scheme: Scheme, table: &str, name: &str, serial: Option<SerialKey>) -> Key {
    let key = match serial {
        Some(serial) => Key::of_serials(scheme, table, serial),
        None => Key::segment(scheme, table, name),
    };
    Key { step: step(scheme, 10), ..key }
}
