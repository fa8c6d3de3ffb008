//! The one [`Store`](crate::store::Store) over any database: each verb enters a connection and names itself in its errors.

use std::sync::Arc;

use crate::request::scheme::Kept;
use crate::store::model::import;
use crate::store::model::pool_rows::SlotRows;
use crate::store::model::rows::{self, Answers};
use crate::store::{
    BankStore, Catalogue, Facts, Fault, GiveBack, Import, Key, ListedRow, MOST_AT_ONCE, Mark, PoolRows,
    ReaderStore, Renewal, Renewed, Request, Reserved, RouteStore, Row, RowMark, RowStore, RowsWork,
    SlotStore, SlotWork, StoredTable, Work, in_transaction, listing_routes, listing_rows, making_a_node,
    new_owner, reading_route, replacing_route,
};

use super::access::{self, Server};
use super::sql_rows::{self, OpenRows};
use super::sql_slots::{self, SqlSlots};
use super::{
    many, relation, renewals, rights, sequence, sql_batch, sql_listing, sql_reservation, sql_routes,
    transaction,
};

/// Reservations in a SQL database.
#[derive(Debug)]
pub struct SqlStore<S> {
    pub(crate) server: S,
}

impl<S: Server> RowStore for SqlStore<S> {
    fn transact(&mut self, key: &Key, _period: u64, work: &mut Work<'_>) -> Result<(), Fault> {
        access::write_row(&mut self.server, key, |connection| {
            transaction::on_row(connection, key, |rows| Ok(work.run(rows)?.then_some(())))
        })
    }

    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        access::write_row(&mut self.server, &request.key, |connection| {
            sql_reservation::reserve(connection, request)
        })
        .map_err(|fault| rows::if_seen(request, fault).with_context(&rows::reserving(request)))
    }

    fn batch(&self) -> usize {
        // Without a conditional add or a transaction for all of them, there is nothing to batch.
        let dialect = self.server.dialect();
        if dialect.has_conditional_add() || dialect.goes_on_after_errors() { MOST_AT_ONCE } else { 1 }
    }

    fn reserve_all(&mut self, requests: &[Request]) -> Answers {
        let answers =
            access::write_several(&mut self.server, |connection| sql_batch::reserve(connection, requests));
        rows::in_context(requests, answers)
    }

    fn look_rows(&mut self, keys: &[Arc<Key>]) -> Result<Vec<Option<RowMark>>, Fault> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let found = access::read(&mut self.server, first, |connection, _| {
            many::read(connection, keys, false)?.into_iter().collect()
        });
        let found = found.map_err(|fault| fault.with_context(&rows::looking(keys)))?;
        Ok(found.unwrap_or_else(|| vec![None; keys.len()]))
    }

    fn change_rows(&mut self, keys: &[Arc<Key>], work: &mut RowsWork<'_>) -> Result<Vec<bool>, Fault> {
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        access::write_rows(&mut self.server, first, keys.len(), |connection| {
            many::change(connection, keys, work)
        })
    }

    fn give_back(&mut self, range: &GiveBack) -> Result<bool, Fault> {
        let GiveBack { key, lo, hi, .. } = range;
        if key.scheme.is_ticket() {
            return Ok(false); // what was drawn once is never drawn again
        }
        access::write(&mut self.server, key, |connection| sql_reservation::give_back(connection, range))
            .map_err(|fault| fault.with_context(&format!("giving back [{lo}, {hi}) of `{}`", key.name)))
    }

    fn give_back_all(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        let given =
            access::write_several(&mut self.server, |connection| sql_batch::give_back(connection, ranges))
                .map_err(|fault| fault.with_context(&format!("giving back {} ranges", ranges.len())))?;
        let alone = |(range, given): (&GiveBack, Option<bool>)| match given {
            Some(given) => Ok(given),
            None => self.give_back(range),
        };
        ranges.iter().zip(given).map(alone).collect()
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        let found = access::read(&mut self.server, key, |connection, is_seen| {
            match (key.scheme.kept(), connection.tickets()) {
                (Kept::Sequence, _) if is_seen => sequence::row(connection, key).map(Some),
                (Kept::Sequence, _) => Ok(None),
                (Kept::Ticket { .. }, Some(tickets)) => tickets.newest(key),
                _ => rows::look(&mut OpenRows { connection }, key),
            }
        });
        found.map(Option::flatten).map_err(|fault| fault.with_context(&format!("looking at `{}`", key.name)))
    }

    fn age(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        let age = access::read(&mut self.server, key, |connection, is_seen| {
            if is_seen { sql_rows::age(connection, key) } else { Ok(None) }
        });
        age.map(Option::flatten).map_err(|fault| fault.with_context(&format!("looking at `{}`", key.name)))
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        let doing = format!("repairing `{}`", key.name);
        if !key.scheme.is_ticket() {
            return in_transaction(self, key, to.period, &doing, |rows| rows::repair(rows, key, to));
        }
        access::write(&mut self.server, key, |connection| match key.scheme.kept() {
            Kept::Sequence => sequence::repair(connection, key, to),
            _ => transaction::on_tickets(connection, key, |tickets| tickets.raise(key, to)),
        })
        .map_err(|fault| fault.with_context(&doing))
    }

    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        let doing = format!("importing `{}`", new.name);
        if !self.server.dialect().creates_tables() {
            let checked = self.server.with(|connection| relation::check_table(connection, old));
            checked.map_err(|fault| fault.with_context(&doing))?;
        }
        in_transaction(self, new, period, &doing, |rows| import::import(rows, old, new, period))
    }

    fn new_owner(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        // Reading creates nothing.
        if self.server.is_there() { new_owner(self, old, new) } else { Ok(None) }
    }
}

impl<S: Server> SlotStore for SqlStore<S> {
    fn make_node(&mut self, key: &Key, host: &str, process: &str) -> Result<u64, Fault> {
        access::write(&mut self.server, key, |connection| {
            transaction::on_tickets(connection, key, |tickets| {
                tickets.make_node(key, host, process).map(Some)
            })
        })
        .map_err(|fault| rights::advised(fault, rights::INSERT_NODE).with_context(&making_a_node(key)))
    }

    fn clock_ms(&mut self, key: &Key) -> Result<u64, Fault> {
        let read = self.server.with(sql_slots::now_ms);
        read.map_err(|fault| fault.with_context(&format!("reading the clock for `{}`", key.name)))
    }

    fn transact_slots(&mut self, key: &Key, work: &mut SlotWork<'_>) -> Result<(), Fault> {
        access::write_row(&mut self.server, key, |connection| {
            transaction::on_table(connection, key, |connection| {
                Ok(work.run(&mut SqlSlots { connection })?.then_some(()))
            })
        })
        .map_err(|fault| rights::of_slots(fault, key))
    }

    fn renew_slots(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        renewals::renew(&mut self.server, renewals)
    }

    fn slots(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let pool =
            access::read(&mut self.server, key, |connection, _| SqlSlots { connection }.read_pool(key));
        pool.map(Option::unwrap_or_default).map_err(|fault| {
            rights::of_slots(fault, key).with_context(&format!("looking at pool `{}`", key.name))
        })
    }
}

impl<S: Server> BankStore for SqlStore<S> {}

impl<S: Server> ReaderStore for SqlStore<S> {}

impl<S: Server> RouteStore for SqlStore<S> {
    fn list_routes(&mut self, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        if !self.server.is_there() {
            return Ok(Vec::new());
        }
        let listed = self.server.with(|connection| {
            access::past_locked_table(connection, key, |connection| sql_routes::list(connection, key))
        });
        listed.map_err(|fault| fault.with_context(&listing_routes(key)))
    }

    fn read_route(&mut self, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
        let read =
            access::read(&mut self.server, key, |connection, _| sql_routes::read(connection, key, known));
        read.map(Option::flatten)
            .map_err(|fault| rights::advised(fault, rights::READ).with_context(&reading_route(key)))
    }

    fn replace_route(&mut self, key: &Key, old: Option<u64>, new: (u64, &str)) -> Result<bool, Fault> {
        access::write(&mut self.server, key, |connection| sql_routes::replace(connection, key, old, new))
            .map_err(|fault| rights::advised(fault, rights::PUT_ROUTE).with_context(&replacing_route(key)))
    }
}

impl<S: Server> Catalogue for SqlStore<S> {
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        let tables = relation::tables(keys, self.server.dialect().family(), self.server.schema());
        let created = tables.and_then(|tables| {
            // The statements are wanted before a server, a user or a database exists.
            if dry_run && !self.server.answers() {
                return Ok(tables.into_iter().map(|(_, statement)| statement).collect());
            }
            self.server.with(|connection| relation::create_missing(connection, tables, dry_run))
        });
        created.map_err(|fault| fault.with_context(rows::creating(dry_run)))
    }

    fn writable(&mut self) -> Result<(), Fault> {
        // The first change creates a database file that does not exist yet.
        if !self.server.is_there() {
            return Ok(());
        }
        self.server.with(|connection| connection.writable())
    }

    fn list_rows(&mut self, key: &Key, most: usize) -> Result<Vec<ListedRow>, Fault> {
        if !self.server.is_there() {
            return Ok(Vec::new());
        }
        let listed = self.server.with(|connection| {
            access::past_locked_table(connection, key, |connection| sql_listing::list(connection, key, most))
        });
        listed.map_err(|fault| fault.with_context(&listing_rows(key)))
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        self.server.facts()
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        self.server.warnings()
    }

    fn created(&mut self) -> Vec<String> {
        self.server.created()
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        self.server.release_idle(now_ms)
    }
}
