//! Which schemes each kind of server keeps, derived from the one list of all schemes.

use keymill::Source;
use keymill::store::Scheme;

/// Those of MySQL, MariaDB and Galera. MySQL and MariaDB have no sequences that keymill counts by.
pub fn on_mysql() -> impl Iterator<Item = Scheme> + Clone {
    Scheme::ALL.into_iter().filter(|scheme| *scheme != Scheme::Sequence)
}

/// Those of PostgreSQL, which has no AUTO_INCREMENT.
pub fn on_postgres() -> impl Iterator<Item = Scheme> + Clone {
    Scheme::ALL.into_iter().filter(|scheme| !scheme.is_ticket() || *scheme == Scheme::Sequence)
}

/// Those that are rows. Every database keeps them.
pub fn in_rows() -> impl Iterator<Item = Scheme> + Clone {
    Scheme::ALL.into_iter().filter(|scheme| !scheme.is_ticket())
}

/// The rows of other programs' counters.
pub fn counters() -> impl Iterator<Item = Scheme> + Clone {
    Source::IMPORTS.iter().copied().filter(|scheme| scheme.keeps_segments())
}

/// The step of a key whose row no other program uses: a row with allocations has none then.
#[must_use]
pub fn step(scheme: Scheme, step: u64) -> u64 {
    if scheme.keeps_allocation() { 0 } else { step }
}

/// The option that the scheme's spec must have where no other program uses the row.
#[must_use]
pub fn option(scheme: Scheme) -> &'static str {
    if scheme.keeps_allocation() { "&allocation=0" } else { "" }
}
