//! One range of one key: reserved, and given back.

use crate::request::scheme::Kept;
use crate::store::model::rows;
use crate::store::{Fault, GiveBack, Request, Reserved};

use super::{Connection, conditional_add, sequence, transaction};

/// Reserves. One statement does it in the common case; a transaction decides the others.
pub(super) fn reserve(connection: &mut dyn Connection, request: &Request) -> Result<Reserved, Fault> {
    let key = &*request.key;
    match key.scheme.kept() {
        Kept::Sequence => return sequence::reserve(connection, request),
        Kept::Ticket { .. } => {
            return transaction::on_tickets(connection, key, |tickets| tickets.draw(request));
        }
        _ => {}
    }
    if let Some(add) = conditional_add::prepare(connection, request)?
        && let Some(changed) = transaction::commit_alone(connection, &add.statement)?
        && let Some(reserved) = conditional_add::interpret(connection, request, &add, changed)?
    {
        return Ok(reserved);
    }
    transaction::on_row(connection, key, |rows| rows::reserve(rows, request))
}

/// Gives a range back; `false`: the row has moved on.
pub(super) fn give_back(connection: &mut dyn Connection, range: &GiveBack) -> Result<bool, Fault> {
    if let Some(change) = conditional_add::prepare_give_back(connection, range)?
        && let Some(changed) = transaction::commit_alone(connection, &change)?
    {
        return conditional_add::given_back(connection, changed);
    }
    transaction::on_row(connection, &range.key, |rows| rows::give_back(rows, range).map(Some))
}
