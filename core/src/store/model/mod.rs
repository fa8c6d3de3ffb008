//! Decisions about rows, without I/O: which range is reserved, how a row is kept as columns, and how a row is imported.
//!
//! Every store shares this code, so every store decides alike. A store brings its own [`rows::Rows`].

pub(crate) mod counter;
pub(crate) mod decide;
pub(crate) mod import;
pub(crate) mod period_clock;
pub(crate) mod pool_rows;
pub(crate) mod reader_rows;
#[cfg(feature = "_sql")]
pub(crate) mod row_layout;
pub(crate) mod rows;
pub(crate) mod sequence_value;
#[cfg(any(feature = "_sql", feature = "redis"))]
pub(crate) mod slot_columns;
pub(crate) mod slot_rows;
#[cfg(feature = "_sql")]
pub(crate) mod value;

#[cfg(test)]
mod counter_tests;
#[cfg(test)]
mod tests;
