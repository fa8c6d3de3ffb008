//! Reservations in MySQL, MariaDB or TiDB.
//!
//! One connection, opened when it is first needed. Rules, each bought with a duplicate somewhere:
//! * A connection that has answered with anything but a result or an error packet is closed and never used again: after
//!   a read timeout it would hand the *previous* question's answer, another key's range, to the next one.
//! * A range is used only after the answer to the statement that commits it. A connection that dies before that answer
//!   leaves the outcome unknown; nobody reads the row again to guess.
//! * All four timeouts are set, so that a server that falls silent costs seconds and not for ever.
//! * The server's options are tested with each change (`guard`): what they were when the connection was made says nothing.
//! * Nothing is prepared: a server keeps only so many statements for all of its clients.
//! * No pool: `mysql::Pool` connects under its own lock and fails at construction while the server is down.

mod answers;
mod connect;
mod dialect;
mod error;
mod guard;
mod schemes;
mod sequence;
mod session;
mod tickets;
mod together;
#[cfg(feature = "rustls")]
mod tunnel;
mod values;

use std::fmt;
use std::sync::Arc;

pub use super::Secret;
use super::connected::Connected;
use super::rows::{self, Rows};
use super::server::Phase;
pub use super::server::{ServerOptions, Tls, TlsMode};
use super::transactions::Transactions;
use super::{Facts, Fault, Import, Key, MOST_AT_ONCE, Mark, Request, Reserved, Row, Scheme, Store};
use crate::time::Clock;
use schemes::Open;
pub use schemes::create_table;
use session::{Scans, Session};

/// After this long without a question a connection is pinged first: firewalls and servers close idle ones.
///
/// Who fell back to another host stays there while it serves. The favourite is tried again when a connection breaks, or has
/// been closed because it was idle for `idle_timeout`.
const IDLE_MS: u64 = 30_000;

/// A client of one server.
pub struct MysqlStore {
    options: ServerOptions,
    session: Option<Session>,
    scans: Scans,
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore")
            .field("options", &self.options)
            .field("connected", &self.session.is_some())
            .finish_non_exhaustive()
    }
}

impl MysqlStore {
    /// A store on this server. Nothing is connected yet.
    #[must_use]
    pub fn new(options: ServerOptions) -> MysqlStore {
        MysqlStore { options, session: None, scans: Scans::default() }
    }
}

impl Connected for MysqlStore {
    type Connection = Session;

    fn options(&mut self) -> &mut ServerOptions {
        &mut self.options
    }

    fn kept(&mut self) -> &mut Option<Session> {
        &mut self.session
    }

    fn ready(&mut self) -> Result<Session, Fault> {
        if let Some(mut session) = self.session.take() {
            let idle = Clock::System.boot_ms().saturating_sub(session.used_ms);
            if idle <= IDLE_MS || session.connection.ping().is_ok() {
                session.again = false;
                session.duplicate = false;
                return Ok(session);
            }
        }
        self.connect()
    }
}

impl Transactions for MysqlStore {
    fn transact<T>(
        &mut self,
        key: &Key,
        _period: u64,
        work: impl Fn(&mut dyn Rows) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault> {
        let patience = self.options.read_timeout;
        self.with_session(|session| {
            session.writable()?;
            session.check_table(key)?;
            session.patiently(patience, |session| session.attempt(&work))
        })
    }
}

impl Store for MysqlStore {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.on_row(&request.key, |store| store.reserve_alone(request))
    }

    fn batch(&self) -> usize {
        // Where there is no fast statement there is nothing to carry together.
        let fast = self.session.as_ref().is_none_or(|session| session.server.dialect.has_fast_statement());
        if fast { MOST_AT_ONCE } else { 1 }
    }

    fn reserve_all(&mut self, requests: &[Request]) -> rows::Together {
        let together = self.with_session(|session| {
            session.writable()?;
            session.reserve_together(requests)
        });
        rows::told(requests, together)
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        if key.scheme.is_ticket() {
            return Ok(false); // a ticket once drawn is never drawn again
        }
        if key.scheme == Scheme::Keymill && key.serial.is_none() && 0 < lo && lo < hi {
            // A thousand sources are given back one after the other: in one round trip each.
            let patience = self.options.read_timeout;
            let given = self.with_session(|session| {
                session.writable()?;
                session.check_table(key)?;
                session.patiently(patience, |session| session.give_back_fast(key, period, lo, hi).map(Some))
            });
            match given {
                Ok(Some(given)) => return Ok(given),
                Ok(None) => {}
                Err(fault) => {
                    return Err(rows::during(&rows::giving_back(key, lo, hi), fault));
                }
            }
        }
        self.give_back_in_one(key, period, lo, hi)
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.on_row(key, |store| store.raise_in_one(key, expect, to))
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        self.with_session(|session| {
            session.check_table(key)?;
            if key.scheme == Scheme::Sequence {
                return session.sequence_row(key);
            }
            if key.scheme.is_ticket() {
                return session.last_ticket(key);
            }
            rows::look(&mut Open { session }, key)
        })
        .map_err(|fault| rows::during(&format!("looking at `{}`", key.name), fault))
    }

    fn age(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        self.with_session(|session| Open { session }.age(key))
            .map_err(|fault| rows::during(&format!("looking at `{}`", key.name), fault))
    }

    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        self.create_tables(keys, create_table, dry_run)
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if key.scheme.is_ticket() {
            let raised = match key.scheme {
                Scheme::Sequence => self.raise_sequence(key, to),
                _ => self.raise_tickets(key, to),
            };
            return raised.map_err(|fault| rows::during(&format!("repairing `{}`", key.name), fault));
        }
        self.repair_in_one(key, to)
    }

    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        self.import_in_one(old, new, period)
    }

    fn new_owner(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        self.new_owner_in_one(old, new)
    }

    fn writable(&mut self) -> Result<(), Fault> {
        self.with_session(Session::writable)
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        self.known_warnings()
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        self.all_facts()
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        self.close_idle(now_ms)
    }
}

impl MysqlStore {
    fn reserve_alone(&mut self, request: &Request) -> Result<Reserved, Fault> {
        if request.key.scheme == Scheme::Sequence {
            return self.draw_value(request).map_err(|fault| rows::during(&rows::reserving(request), fault));
        }
        if request.key.scheme.is_ticket() {
            return self.draw(request).map_err(|fault| rows::during(&rows::reserving(request), fault));
        }
        let patience = self.options.read_timeout;
        let fast = self.with_session(|session| {
            session.writable()?;
            session.check_table(&request.key)?;
            if session.asks_without_waiting() {
                return Ok(None); // a single statement cannot
            }
            session.patiently(patience, |session| session.reserve_fast(request).map(Some))
        });
        match fast {
            Ok(Some(reserved)) => Ok(reserved),
            Ok(None) => self.reserve_in_one(request),
            Err(fault) => Err(rows::during(&rows::reserving(request), fault)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let options = ServerOptions { password: Secret::new("opensesame"), ..ServerOptions::default() };
        let shown = format!("{options:?} {:?}", MysqlStore::new(options.clone()));
        assert!(!shown.contains("opensesame"), "{shown}");
        assert_eq!(
            super::super::server::hide("near 'opensesame'\nat line 1", &options.password),
            "near '(hidden)' at line 1"
        );
    }
}
