//! What is asked of a store, and what a store answers: keys, ranges, leased workers, the rows of a bank, and the schemes they are kept
//! under.

pub(crate) mod bank_spec;
pub(crate) mod partition;
pub(crate) mod position;
pub(crate) mod reader;
pub(crate) mod reservation;
pub(crate) mod row_key;
pub(crate) mod row_mark;
pub(crate) mod scheme;
pub(crate) mod store_index;
pub(crate) mod stride;
pub(crate) mod subject;
pub(crate) mod worker;
