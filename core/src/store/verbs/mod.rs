//! The verbs of a store, by what they are about: rows, slots, banks, routes, and the store itself. [`Store`](super::Store) is all of
//! them.

mod banks;
mod catalogue;
mod routes;
mod rows;
mod slots;

pub use banks::BankStore;
pub use catalogue::Catalogue;
pub use routes::RouteStore;
#[cfg_attr(not(feature = "_sql"), allow(unused_imports))]
pub(crate) use routes::{listing_routes, reading_route, replacing_route};
pub use rows::{RowStore, RowsWork, Work};
pub(crate) use rows::{in_transaction, new_owner};
pub use slots::{SlotStore, SlotWork};
#[cfg_attr(not(feature = "_sql"), allow(unused_imports))]
pub(crate) use slots::{making_a_node, on_slots, renew_slots, renewing};
