//! The verbs of a store, by what they are about: rows, slots, banks, routes, their readers, and the store itself. [`Store`](super::Store) is all of
//! them.

mod bank_store;
mod catalogue;
mod reader_store;
mod route_store;
mod row_store;
mod slot_store;

pub use bank_store::BankStore;
#[cfg_attr(not(feature = "_sql"), allow(unused_imports))]
pub(crate) use catalogue::listing_rows;
pub use catalogue::{Catalogue, ListedRow};
pub(crate) use reader_store::drawn_member;
pub use reader_store::{KeepReader, ReaderStore};
pub use route_store::RouteStore;
#[cfg_attr(not(feature = "_sql"), allow(unused_imports))]
pub(crate) use route_store::{listing_routes, reading_route, replacing_route};
pub use row_store::{RowStore, RowsWork, Work};
pub(crate) use row_store::{in_transaction, new_owner};
#[cfg_attr(not(feature = "_sql"), allow(unused_imports))]
#[cfg(feature = "redis")]
pub(crate) use slot_store::renew_slots;
pub use slot_store::{SlotStore, SlotWork};
pub(crate) use slot_store::{making_a_node, on_slots, renewing};
