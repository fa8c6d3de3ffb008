//! The one [`Store`] over any database.

use std::fmt;
use std::sync::Arc;

use crate::request::scheme::Kept;
use crate::store::model::pool_rows::SlotRows;
use crate::store::model::rows::{self, Answers, Rows};
use crate::store::{
    BankStore, Catalogue, Facts, Fault, FaultKind, GiveBack, Import, Key, MOST_AT_ONCE, Mark, PoolRows,
    ReaderStore, Renewal, Renewed, Request, Reserved, RouteStore, Row, RowMark, RowStore, RowsWork,
    SlotStore, SlotWork, StoredTable, Work, reading_route, replacing_route,
};

use super::sql_rows::OpenRows;
use super::{Connection, Dialect, check_table, relation, row_id};

/// Connects to one database and keeps one connection.
pub(crate) trait Server: fmt::Debug + Send {
    /// The dialect, as far as it is known without a connection.
    fn dialect(&self) -> Dialect;

    /// The schema in the configuration, on databases with schemas.
    fn schema(&self) -> Option<&str> {
        None
    }

    /// Runs `work` with a live connection, and keeps it if it is still usable.
    ///
    /// # Errors
    /// Those of connecting, and those of `work`.
    fn with<T>(&mut self, work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>) -> Result<T, Fault>;

    /// Whether the database exists. Reading does not create it.
    fn is_there(&self) -> bool {
        true
    }

    /// Whether the database can be queried now.
    fn answers(&mut self) -> bool {
        self.is_there()
    }

    /// Warnings of the connection; sends no query.
    fn warnings(&self) -> Option<Vec<String>>;

    /// Facts about the database.
    ///
    /// # Errors
    /// Those of connecting.
    fn facts(&mut self) -> Result<Facts, Fault>;

    /// [`Store::created`].
    fn created(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// [`Store::release_idle`].
    fn release_idle(&mut self, _now_ms: u64) -> Option<u64> {
        None
    }
}

/// Reservations in a SQL database.
pub struct SqlStore<S> {
    pub(crate) server: S,
}

impl<S: fmt::Debug> fmt::Debug for SqlStore<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlStore").field(&self.server).finish()
    }
}

/// Runs `work` to change rows, with a connection to a database that takes writes.
pub(super) fn write<T>(
    server: &mut impl Server,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    server.with(|connection| {
        connection.writable()?;
        work(connection)
    })
}

/// Runs `work` on a row, with NOWAIT if the row was locked last time, so one locked row cannot delay other sources.
fn write_row<T>(
    server: &mut impl Server,
    key: &Key,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    write(server, |connection| {
        let row = row_id(key);
        let state = connection.state();
        let was_locked = state.locked.contains(&row) || state.locked_batch > 0 && key.is_counter();
        let answer = if was_locked { without_waiting(connection, work) } else { work(&mut *connection) };
        if answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Locked) {
            connection.state().locked.insert(row);
        } else {
            connection.state().locked.remove(&row);
        }
        answer
    })
}

/// Runs `work` with NOWAIT.
pub(super) fn without_waiting<T>(
    connection: &mut dyn Connection,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    connection.set_nowait(true)?;
    let answer = work(&mut *connection);
    if !connection.state().broken && connection.set_nowait(false).is_err() {
        connection.state().broken = true;
    }
    answer
}

/// Reserves from the row of one key.
fn reserve(connection: &mut dyn Connection, request: &Request) -> Result<Reserved, Fault> {
    let key = &*request.key;
    if matches!(key.scheme.kept(), Kept::Sequence) {
        return super::sequence::reserve(connection, request);
    }
    if key.scheme.is_ticket() {
        return with_tickets(connection, key, |tickets| tickets.draw(request));
    }
    if let Some(reserved) = reserve_alone(connection, request)? {
        return Ok(reserved);
    }
    super::sql_rows::transact(connection, key, |rows| rows::reserve(rows, request))
}

/// Reserves with one statement; `None` if a transaction is needed.
fn reserve_alone(connection: &mut dyn Connection, request: &Request) -> Result<Option<Reserved>, Fault> {
    if !connection.dialect().has_conditional_add()
        || connection.state().nowait && !connection.commits_alone_without_waiting()
    {
        return Ok(None);
    }
    check_table(connection, &request.key)?;
    super::sql_rows::patiently(connection, |connection| {
        let answer = super::conditional_add::reserve(connection, request);
        let state = connection.state();
        match answer {
            // Other clients of a pooler may have set a stricter isolation level; a transaction sets its own, and repeats.
            Err(fault)
                if state.conflict
                    && !state.broken
                    && fault.kind != FaultKind::Locked
                    && connection.dialect() == Dialect::Postgres =>
            {
                Ok(Some(None))
            }
            answer => answer.map(Some),
        }
    })
}

/// Draws or raises a ticket; repeats if another node has drawn the ticket.
fn with_tickets<T>(
    connection: &mut dyn Connection,
    key: &Key,
    mut work: impl FnMut(&mut dyn super::Tickets) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    check_table(connection, key)?;
    super::sql_rows::patiently(connection, |connection| match connection.tickets() {
        Some(tickets) => work(tickets),
        // `check_kept` has refused the key on a database without tickets.
        None => rows::check_kept_here(key).map(|()| None),
    })
}

/// The answers to pieces of work in one transaction.
type InOne<T> = Vec<Result<Option<T>, Fault>>;

/// Carries out one piece of work for each item in one transaction, and so with one flush of the log. A refused item has
/// written nothing and does not affect the others. The inner fault belongs to one item, after which nothing was changed for
/// any; the outer fault is the transaction's own.
fn in_one_transaction<I, T>(
    connection: &mut dyn Connection,
    items: &[I],
    key: impl Fn(&I) -> &Key,
    work: impl Fn(&mut dyn Rows, &I) -> Result<Option<T>, Fault>,
) -> Result<Result<InOne<T>, Fault>, Fault> {
    connection.begin()?;
    connection.state().aborted = false;
    let mut answers = Vec::with_capacity(items.len());
    for item in items {
        let answer = connection
            .ensure_table(key(item))
            .and_then(|()| work(&mut OpenRows { connection: &mut *connection }, item));
        // If the disk or memory is full, the database may have rolled back earlier work.
        match answer {
            Err(fault) if fault.kind.is_outage() || connection.state().aborted => {
                connection.roll_back();
                return Ok(Err(fault));
            }
            answer => answers.push(answer),
        }
    }
    connection.commit()?;
    Ok(Ok(answers))
}

impl<S: Server> RowStore for SqlStore<S> {
    fn transact(&mut self, key: &Key, _period: u64, work: &mut Work<'_>) -> Result<(), Fault> {
        write_row(&mut self.server, key, |connection| {
            super::sql_rows::transact(connection, key, |rows| Ok(work.run(rows)?.then_some(())))
        })
    }

    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        write_row(&mut self.server, &request.key, |connection| reserve(connection, request))
            .map_err(|fault| fault.with_context(&rows::reserving(request)))
    }

    fn batch(&self) -> usize {
        // Without a conditional add or a transaction for all of them, there is nothing to batch.
        let dialect = self.server.dialect();
        if dialect.has_conditional_add() || dialect.goes_on_after_errors() { MOST_AT_ONCE } else { 1 }
    }

    fn reserve_all(&mut self, requests: &[Request]) -> Answers {
        let answers = write(&mut self.server, |connection| {
            if !connection.dialect().goes_on_after_errors() {
                return super::together::reserve(connection, requests);
            }
            let all = in_one_transaction(
                connection,
                requests,
                |request| &*request.key,
                |rows, request| rows::reserve(rows, request),
            )?;
            // A request on its own reports what is wrong.
            let alone = |_| vec![None; requests.len()];
            Ok(all.map_or_else(alone, |answers| answers.into_iter().map(Result::transpose).collect()))
        });
        rows::in_context(requests, answers)
    }

    fn look_rows(&mut self, keys: &[Arc<Key>]) -> Result<Vec<Option<RowMark>>, Fault> {
        let nothing = vec![None; keys.len()];
        let Some(first) = keys.first().filter(|_| self.server.is_there()) else { return Ok(nothing) };
        let found = self.server.with(|connection| {
            let creates = connection.dialect().creates_tables();
            if creates {
                // Another process may have dropped it since: then there is no row.
                connection.forget_tables();
            }
            if !check_table(connection, first)? && creates {
                return Ok(nothing);
            }
            super::many::read(connection, keys, false)?.into_iter().collect()
        });
        found.map_err(|fault| fault.with_context(&rows::looking(keys)))
    }

    fn change_rows(&mut self, keys: &[Arc<Key>], work: &mut RowsWork<'_>) -> Result<Vec<bool>, Fault> {
        write(&mut self.server, |connection| {
            let held = connection.state().locked_batch;
            let answer = if held > 0 {
                without_waiting(connection, |connection| super::many::change(connection, keys, work))
            } else {
                super::many::change(&mut *connection, keys, work)
            };
            let is_locked = answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Locked);
            connection.state().locked_batch =
                if is_locked { held.max(keys.len()) } else { held.saturating_sub(keys.len()) };
            answer
        })
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        if key.scheme.is_ticket() {
            return Ok(false); // what was drawn once is never drawn again
        }
        write(&mut self.server, |connection| {
            if connection.dialect().has_conditional_add() {
                check_table(connection, key)?;
                let given = super::sql_rows::patiently(connection, |connection| {
                    let change =
                        super::conditional_add::prepare_give_back(connection, key, period, (lo, hi))?;
                    let Some(change) = change else { return Ok(Some(None)) };
                    let changed = connection.commit_alone(&change)?;
                    super::conditional_add::given_back(connection, changed).map(|given| Some(Some(given)))
                })?;
                if let Some(given) = given {
                    return Ok(given);
                }
            }
            super::sql_rows::transact(connection, key, |rows| {
                rows::give_back(rows, key, period, lo, hi).map(Some)
            })
        })
        .map_err(|fault| fault.with_context(&format!("giving back [{lo}, {hi}) of `{}`", key.name)))
    }

    fn give_back_all(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        let given: Result<Vec<Option<bool>>, Fault> = write(&mut self.server, |connection| {
            if !connection.dialect().goes_on_after_errors() {
                let chunks =
                    ranges.chunks(MOST_AT_ONCE).map(|some| super::together::give_back(connection, some));
                return chunks.collect::<Result<Vec<_>, Fault>>().map(|given| given.concat());
            }
            let all = in_one_transaction(
                connection,
                ranges,
                |range| &*range.key,
                |rows, of| rows::give_back(rows, &of.key, of.period, of.lo, of.hi).map(Some),
            )?;
            // A refused row was not changed, and the refusal concerns no other row.
            let given = |answer: Result<Option<bool>, Fault>| Some(answer.ok().flatten().unwrap_or(false));
            Ok(all?.into_iter().map(given).collect())
        });
        let given =
            given.map_err(|fault| fault.with_context(&format!("giving back {} ranges", ranges.len())))?;
        let alone = |(of, given): (&GiveBack, Option<bool>)| match given {
            Some(given) => Ok(given),
            None => self.give_back(&of.key, of.period, of.lo, of.hi),
        };
        ranges.iter().zip(given).map(alone).collect()
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        if !self.server.is_there() {
            return Ok(None);
        }
        self.server
            .with(|connection| {
                if matches!(key.scheme.kept(), Kept::Sequence) {
                    return super::sequence::row(connection, key);
                }
                if connection.dialect().creates_tables() {
                    // Another process may have dropped it since: then there is no row.
                    connection.forget_tables();
                    if !check_table(connection, key)? {
                        return Ok(None);
                    }
                } else {
                    check_table(connection, key)?;
                }
                match connection.tickets() {
                    Some(tickets) if key.scheme.is_ticket() => tickets.newest(key),
                    _ => rows::look(&mut OpenRows { connection }, key),
                }
            })
            .map_err(|fault| fault.with_context(&format!("looking at `{}`", key.name)))
    }

    fn age(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        if !self.server.is_there() {
            return Ok(None);
        }
        self.server
            .with(|connection| super::sql_rows::age(connection, key))
            .map_err(|fault| fault.with_context(&format!("looking at `{}`", key.name)))
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        let doing = format!("repairing `{}`", key.name);
        if !key.scheme.is_ticket() {
            return crate::store::in_transaction(self, key, to.period, &doing, |rows| {
                rows::repair(rows, key, to)
            });
        }
        write(&mut self.server, |connection| {
            if matches!(key.scheme.kept(), Kept::Sequence) {
                return super::sequence::repair(connection, key, to);
            }
            with_tickets(connection, key, |tickets| tickets.raise(key, to))
        })
        .map_err(|fault| fault.with_context(&doing))
    }

    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        let doing = format!("importing `{}`", new.name);
        if !self.server.dialect().creates_tables() {
            let checked = self.server.with(|connection| check_table(connection, old));
            checked.map_err(|fault| fault.with_context(&doing))?;
        }
        crate::store::in_transaction(self, new, period, &doing, |rows| {
            crate::store::model::import::import(rows, old, new, period)
        })
    }

    fn new_owner(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        // Reading creates nothing.
        if !self.server.is_there() {
            return Ok(None);
        }
        crate::store::new_owner(self, old, new)
    }
}

impl<S: Server> SlotStore for SqlStore<S> {
    fn make_node(&mut self, key: &Key, host: &str, process: &str) -> Result<u64, Fault> {
        let made = write(&mut self.server, |connection| {
            with_tickets(connection, key, |tickets| tickets.make_node(key, host, process).map(Some))
        });
        made.map_err(|fault| fault.with_context(&crate::store::making_a_node(key)))
    }

    fn clock_ms(&mut self, key: &Key) -> Result<u64, Fault> {
        let read = self.server.with(super::sql_slots::now_ms);
        read.map_err(|fault| fault.with_context(&format!("reading the clock for `{}`", key.name)))
    }

    fn transact_slots(&mut self, key: &Key, work: &mut SlotWork<'_>) -> Result<(), Fault> {
        write(&mut self.server, |connection| super::sql_slots::transact(connection, key, work))
    }

    fn renew_slots(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        super::sql_slots::renew(self, renewals)
    }

    fn slots(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        // Reading creates nothing.
        if !self.server.is_there() {
            return Ok(PoolRows::default());
        }
        self.server
            .with(|connection| {
                let creates = connection.dialect().creates_tables();
                if creates {
                    // Another process may have dropped it since: then there is no row.
                    connection.forget_tables();
                }
                if !check_table(connection, key)? && creates {
                    return Ok(PoolRows::default());
                }
                super::sql_slots::SqlSlots { connection }.read_pool(key)
            })
            .map_err(|fault| fault.with_context(&format!("looking at pool `{}`", key.name)))
    }
}

impl<S: Server> BankStore for SqlStore<S> {}

impl<S: Server> ReaderStore for SqlStore<S> {}

impl<S: Server> RouteStore for SqlStore<S> {
    fn list_routes(&mut self, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        if !self.server.is_there() {
            return Ok(Vec::new());
        }
        let listed = self.server.with(|connection| super::sql_routes::list(connection, key));
        listed.map_err(|fault| fault.with_context(&crate::store::listing_routes(key)))
    }

    fn read_route(&mut self, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
        // Reading creates nothing.
        if !self.server.is_there() {
            return Ok(None);
        }
        let read = self.server.with(|connection| super::sql_routes::read(connection, key, known));
        read.map_err(|fault| fault.with_context(&reading_route(key)))
    }

    fn replace_route(&mut self, key: &Key, old: Option<u64>, new: (u64, &str)) -> Result<bool, Fault> {
        write(&mut self.server, |connection| super::sql_routes::replace(connection, key, old, new))
            .map_err(|fault| fault.with_context(&replacing_route(key)))
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
