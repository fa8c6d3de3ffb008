//! Reservations in a SQL database: everything that does not depend on the database.
//!
//! A scheme is data ([`Scheme`](crate::request::scheme::Scheme)), a database is a [`Connection`], and everything between them is
//! written once here. So a new scheme is an entry in the list of schemes, and a new database is a connection with its
//! differences.
//!
//! A request goes straight down, and each file calls only files below it: `store` (the verbs), `access` (a live connection, with
//! `relation`, which checks the table), `sql_reservation`, `sql_batch`, `many` or `renewals`, `conditional_add` or `transaction`, `statement`,
//! `connection`. `docs/architecture.md` draws it.
//!
//! Rules for every connection, each bought with a duplicate somewhere:
//! * After anything but a result or the database's own error a connection is not used again: after a read timeout it would
//!   return the answer of the *previous* query, the range of another key, to the next one.
//! * A range is used only after the answer to the statement that commits it. If the connection dies before that answer, the
//!   outcome is unknown: the range is never used, and the row is not read again to guess.
//! * The settings on which a commit's durability depends are judged with each reservation, in its own statements.

pub(crate) mod access;
mod conditional_add;
mod connection;
pub(crate) mod dialect;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod judgement;
mod many;
mod relation;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod remote;
mod renewals;
mod rights;
pub(crate) mod sequence;
mod sql_batch;
mod sql_listing;
mod sql_reservation;
mod sql_routes;
mod sql_rows;
pub(super) mod sql_slots;
mod statement;
pub mod store;
mod transaction;

pub(crate) use connection::{
    Changed, Connection, Counting, Drawn, NOWAIT_PATIENCE, Relation, Sequences, State, Tickets, Together,
    refused_setting, wrong,
};
pub(crate) use dialect::{Dialect, create_statement, step_of};
pub(crate) use statement::{Statement, like};
pub use store::SqlStore;
