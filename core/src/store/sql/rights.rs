//! The advice for a login that lacks a right: exactly the rights of the page about privileges, so that no program's login gets more.

use crate::store::{Absence, Fault, Key, Remedy, Subject};

pub(super) const READ: &str = "grant this user SELECT on the table";
pub(super) const PUT_ROUTE: &str = "store route tables as a user with SELECT, INSERT and UPDATE on the table; no program's user needs the last two";
pub(super) const INSERT_NODE: &str = "grant this user INSERT on the table";
const READERS: &str = "grant this user SELECT, INSERT, UPDATE and DELETE on the table";

/// MySQL's catalogue shows no table to a login without a right on it.
const ROUTE_TO_CREATE: &str = "if the table is there, store route tables as a user with SELECT, INSERT and UPDATE on it; else let a user who may create tables store the first one";
const READERS_TO_CREATE: &str = "if the table is there, grant this user SELECT, INSERT, UPDATE and DELETE on it; else let a user who may create tables store the first route table";

/// The fault with this advice, where the login lacks a right.
pub(super) fn advised(fault: Fault, advice: &'static str) -> Fault {
    if fault.absence() == Some(Absence::Forbidden) { fault.instead(Remedy::Text(advice)) } else { fault }
}

/// The same for the rows of a pool: leased workers, which need the same rights as every source, or the readers of a router.
pub(super) fn of_slots(fault: Fault, key: &Key) -> Fault {
    if matches!(key.name.subject(), Subject::Readers(_)) { advised(fault, READERS) } else { fault }
}

/// The same for a table that was to be created.
pub(super) fn of_creating(fault: Fault, key: &Key) -> Fault {
    match key.name.subject() {
        Subject::Route(_) => advised(fault, ROUTE_TO_CREATE),
        Subject::Readers(_) => advised(fault, READERS_TO_CREATE),
        _ => fault,
    }
}
