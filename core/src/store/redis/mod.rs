//! Reservations in Redis or Valkey: one key for each row, `keymill_segment:segment:orders`, a hash of the columns
//! of `keymill_segment` but the last.
//!
//! One connection, opened when it is first needed. Rules, each bought with a duplicate somewhere:
//! * A reservation is one script, which the server runs alone: it takes the next numbers only where the row stands where
//!   it should. Whatever is out of the ordinary (a missing row, a new period, the end of the numbers, a row that went
//!   backwards) is decided by `model`, as in every other store, and written by compare-and-set.
//! * Numbers are texts or the server's own integers, never Lua's, which are exact up to 2^53 only.
//! * A range is used only after the script's answer. Anything else breaks the connection and leaves the outcome unknown.
//! * The server confirms in the same pipeline, after the script, that it is a master and flushes its writes: both can
//!   change while a connection is open.
//! * A process creates a row only if it has seen no numbers of it: eviction, `FLUSHALL` and a failover that lost writes are
//!   refused.
//! * Replicas follow asynchronously. `wait_replicas=N` counts a reservation only when N of them have acknowledged it.
//! * With Sentinels, every change asks them for the master first: a master that is cut off from them does not know that it
//!   was replaced.

mod meaning;
mod redis_listing;
mod redis_routes;
mod redis_server;
mod redis_session;
mod redis_slots;
mod redis_wire;
mod sentinel;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::model::rows::{self, Answers};
use super::{
    BankStore, Catalogue, Durability, Facts, Fault, FaultKind, Key, ListedRow, MOST_AT_ONCE, PoolRows,
    ReaderStore, Renewal, Renewed, Request, Reserved, RouteStore, Row, RowMark, RowStore, RowsWork,
    SlotStore, SlotWork, StoredTable, Work,
};
use crate::store::model::pool_rows::SlotRows;
use crate::store::server::FailedTargets;
use crate::store::{reading_route, replacing_route};
use crate::time::Clock;
use meaning::advised;
use redis_session::{Open, RedisSession, check};
use redis_slots::RedisSlots;
use sentinel::Sentinels;

/// The server, and the options that only Redis has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisOptions {
    /// The server, the user and the timeouts; with `sentinel`, the hosts of the Sentinels.
    pub server: super::server::ServerOptions,
    /// The master's name at the Sentinels.
    pub sentinel: Option<String>,
    /// How many replicas have to acknowledge a reservation before it counts.
    pub wait_replicas: u32,
}

/// A client of one server, or of whichever server the Sentinels call the master.
pub struct RedisStore {
    options: RedisOptions,
    sentinels: Option<Sentinels>,
    session: Option<RedisSession>,
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("options", &self.options)
            .field("connected", &self.session.is_some())
            .finish_non_exhaustive()
    }
}

impl RedisStore {
    /// A store on this server. Nothing is connected yet.
    #[must_use]
    pub fn new(options: RedisOptions) -> RedisStore {
        let sentinels = options.sentinel.as_ref().map(|name| Sentinels::new(&options.server, name));
        RedisStore { options, sentinels, session: None }
    }

    /// The same for a change: connects to a server that takes writes and that the Sentinels call the master now.
    fn with_master<T>(
        &mut self,
        work: impl FnOnce(&mut RedisSession) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        if let Some(sentinels) = &mut self.sentinels
            && let Some(session) = &self.session
            && Some(sentinels.master()?) != session.master
        {
            self.session = None;
        }
        self.with_session(|session| {
            session.writable()?;
            work(session)
        })
    }

    /// Runs with a live connection and keeps it if it may be used again.
    fn with_session<T>(
        &mut self,
        work: impl FnOnce(&mut RedisSession) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut session = self.ready()?;
        let answer = work(&mut session);
        if !session.wire.broken {
            session.used_ms = Clock::System.boot_ms();
            self.session = Some(session);
        }
        answer
    }

    /// The connection, or a new one.
    fn ready(&mut self) -> Result<RedisSession, Fault> {
        let asked = Instant::now();
        if let Some(mut session) = self.session.take() {
            if session.is_alive() {
                return Ok(session);
            }
            // To connect would take a timeout again.
            if super::server::was_silent(asked, self.options.server.read_timeout) {
                return Err(super::server::silent_when_idle(&self.options.server));
            }
        }
        self.connect()
    }

    fn connect(&mut self) -> Result<RedisSession, Fault> {
        let mut failures = FailedTargets::default();
        let mut fallback = None;
        let mut master = None;
        if let Some(sentinels) = &mut self.sentinels {
            let named = sentinels.master()?;
            master = Some(named);
        }
        let targets = match &master {
            Some(master) => self.options.server.targets_at(std::slice::from_ref(master), &mut failures),
            None => self.options.server.targets(&mut failures),
        };
        for target in targets {
            let mut opened = RedisSession::open(&target, &self.options);
            if let Ok(session) = &mut opened {
                session.master.clone_from(&master);
            }
            match opened {
                Ok(session) if session.server.not_writable(self.options.server.durability).is_some() => {
                    // A replica answers questions; it is kept in case no other host does better.
                    fallback.get_or_insert(session);
                }
                Ok(session) => return Ok(session),
                Err(fault) if fault.kind == FaultKind::Unavailable => {
                    failures.note_fault(&target, &fault);
                }
                Err(fault) => return Err(fault.at(target)),
            }
        }
        fallback.ok_or_else(|| failures.fault())
    }
}

/// How often a change is repeated while other processes change the row first.
const ATTEMPTS: u32 = 20;

/// Repeats while the row changed in between, at most as long as an answer may take.
fn contend<T>(patience: Duration, mut attempt: impl FnMut() -> Result<Option<T>, Fault>) -> Result<T, Fault> {
    let until = Instant::now() + patience;
    for tried in 0..ATTEMPTS {
        if tried > 0 {
            if Instant::now() >= until {
                break;
            }
            std::thread::sleep(Duration::from_micros(fastrand::u64(50..500) * u64::from(tried)));
        }
        if let Some(done) = attempt()? {
            return Ok(done);
        }
    }
    Err(rows::moved_on())
}

impl RowStore for RedisStore {
    fn transact(&mut self, key: &Key, _period: u64, work: &mut Work<'_>) -> Result<(), Fault> {
        check(key)?;
        let patience = self.options.server.read_timeout;
        self.with_master(|session| {
            contend(patience, || Ok(work.run(&mut Open { session: &mut *session })?.then_some(())))
        })
    }

    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        let patience = self.options.server.read_timeout;
        check(&request.key)
            .and_then(|()| {
                self.with_master(|session| {
                    contend(patience, || match session.reserve_fast(request)? {
                        Some(reserved) => Ok(Some(reserved)),
                        None => rows::reserve(&mut Open { session: &mut *session }, request),
                    })
                })
            })
            .map_err(|fault| fault.with_context(&rows::reserving(request)))
    }

    fn batch(&self) -> usize {
        MOST_AT_ONCE
    }

    fn reserve_all(&mut self, requests: &[Request]) -> Answers {
        rows::in_context(requests, self.with_master(|session| Ok(session.reserve_together(requests))))
    }

    fn look_rows(&mut self, keys: &[Arc<Key>]) -> Result<Vec<Option<RowMark>>, Fault> {
        keys.iter().try_for_each(|key| check(key))?;
        let found = self.with_session(|session| session.read_many(keys)?.into_iter().collect());
        found.map_err(|fault| fault.with_context(&rows::looking(keys)))
    }

    fn change_rows(&mut self, keys: &[Arc<Key>], work: &mut RowsWork<'_>) -> Result<Vec<bool>, Fault> {
        keys.iter().try_for_each(|key| check(key))?;
        self.with_master(|session| session.change_many(keys, work))
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        check(key)
            .and_then(|()| self.with_session(|session| rows::look(&mut Open { session }, key)))
            .map_err(|fault| fault.with_context(&format!("looking at `{}`", key.name)))
    }
}

impl SlotStore for RedisStore {
    fn clock_ms(&mut self, key: &Key) -> Result<u64, Fault> {
        check(key)
            .and_then(|()| self.with_master(redis_slots::now_ms))
            .map_err(|fault| fault.with_context(&format!("reading the clock for `{}`", key.name)))
    }

    fn transact_slots(&mut self, key: &Key, work: &mut SlotWork<'_>) -> Result<(), Fault> {
        check(key)?;
        let patience = self.options.server.read_timeout;
        let done = self.with_master(|session| {
            contend(patience, || Ok(work.run(&mut RedisSlots { session: &mut *session })?.then_some(())))
        });
        done.map_err(|fault| advised(fault, meaning::leases(key)))
    }

    fn renew_slots(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        let mut renewed = Renewed { marks: Vec::with_capacity(renewals.len()), now_ms: 0 };
        for renewal in renewals {
            check(&renewal.own.key)?;
            let answer =
                self.with_master(|session| redis_slots::renew(session, renewal)).and_then(|answer| {
                    match answer {
                        Some(answer) => Ok(answer),
                        // The row tells why.
                        None => {
                            let looked = super::renew_slots(self, std::slice::from_ref(renewal))?;
                            let mark =
                                looked.marks.into_iter().next().unwrap_or_else(|| Err(rows::moved_on()))?;
                            Ok((looked.now_ms, mark))
                        }
                    }
                });
            match answer {
                Ok((now_ms, mark)) => {
                    renewed.now_ms = now_ms;
                    renewed.marks.push(Ok(mark));
                }
                // An outage ends the rest too; what was renewed before it counts.
                Err(fault) if fault.kind.is_outage() && renewed.marks.is_empty() => return Err(fault),
                Err(fault) if fault.kind.is_outage() => {
                    renewed.marks.push(Err(fault));
                    return Ok(renewed);
                }
                Err(fault) => renewed.marks.push(Err(advised(fault, meaning::leases(&renewal.own.key)))),
            }
        }
        Ok(renewed)
    }

    fn slots(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        check(key).and_then(|()| self.with_session(|session| RedisSlots { session }.read_pool(key))).map_err(
            |fault| {
                let advice =
                    if key.is_of_readers() { meaning::LOOKS_AT_READERS } else { meaning::leases(key) };
                advised(fault, advice).with_context(&format!("looking at pool `{}`", key.name))
            },
        )
    }
}

impl BankStore for RedisStore {}

impl ReaderStore for RedisStore {}

impl RouteStore for RedisStore {
    fn list_routes(&mut self, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        check(key)
            .and_then(|()| self.with_session(|session| redis_routes::list(session, key)))
            .map_err(|fault| fault.with_context(&crate::store::listing_routes(key)))
    }

    fn read_route(&mut self, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
        check(key)
            .and_then(|()| self.with_session(|session| redis_routes::read(session, key, known)))
            .map_err(|fault| fault.with_context(&reading_route(key)))
    }

    fn replace_route(&mut self, key: &Key, old: Option<u64>, new: (u64, &str)) -> Result<bool, Fault> {
        check(key)
            .and_then(|()| self.with_master(|session| redis_routes::replace(session, key, old, new)))
            .map_err(|fault| fault.with_context(&replacing_route(key)))
    }
}

impl Catalogue for RedisStore {
    /// The first reservation creates a row's key: there is nothing else to create.
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        keys.iter()
            .try_for_each(|key| check(key))
            .and_then(|()| if dry_run { Ok(()) } else { self.with_master(|_| Ok(())) })
            .map(|()| Vec::new())
            .map_err(|fault| {
                fault.with_context(if dry_run { rows::creating(true) } else { "preparing the server" })
            })
    }

    fn list_rows(&mut self, key: &Key, most: usize) -> Result<Vec<ListedRow>, Fault> {
        check(key)
            .and_then(|()| self.with_session(|session| redis_listing::list(session, key, most)))
            .map_err(|fault| fault.with_context(&crate::store::listing_rows(key)))
    }

    fn writable(&mut self) -> Result<(), Fault> {
        self.with_master(|_| Ok(()))
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        self.session.as_ref().map(|session| session.warnings.clone())
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        let idle_ms = u64::try_from(self.options.server.idle_timeout.as_millis()).unwrap_or(u64::MAX);
        let close_at = self.session.as_ref().map(|session| session.used_ms.saturating_add(idle_ms));
        let of_sentinels =
            self.sentinels.as_mut().and_then(|sentinels| sentinels.release_idle(now_ms, idle_ms));
        if close_at.is_some_and(|at| at <= now_ms) {
            self.session = None;
        }
        [close_at.filter(|at| *at > now_ms), of_sentinels].into_iter().flatten().min()
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        // Reading is safe where reserving is not: an operator needs to see what is wrong.
        let durability = std::mem::replace(&mut self.options.server.durability, Durability::Warn);
        let facts = self.told_facts();
        self.options.server.durability = durability;
        if durability == Durability::Refuse && facts.as_ref().is_ok_and(|facts| !facts.warnings.is_empty()) {
            // This connection may have been opened although it would be refused for a reservation.
            self.session = None;
        }
        facts
    }
}

impl RedisStore {
    fn told_facts(&mut self) -> Result<Facts, Fault> {
        let wait_replicas = self.options.wait_replicas;
        // `default` knows its own password, and may do everything.
        let is_narrow = !matches!(self.options.server.user.as_str(), "" | "default");
        self.with_session(|session| {
            let mut warnings = session.warnings.clone();
            if is_narrow {
                warnings.extend(session.readable_secrets()?);
            }
            if let Some(why) = session.server.not_writable(Durability::Warn) {
                warnings.push(format!("{why}; its rows may be older than a master's"));
            }
            Ok(Facts {
                dialect: session.server.dialect().to_owned(),
                version: session.server.version().to_owned(),
                durability: session.server.durability(wait_replicas),
                tls: session.wire.protection.words().to_owned(),
                warnings,
                tables: Vec::new(),
            })
        })
        .map_err(|fault| fault.with_context("asking the server about itself"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Secret;

    #[test]
    fn a_password_is_never_shown() {
        let mut options = RedisOptions::default();
        options.server.password = Secret::new("opensesame");
        let shown = format!("{options:?} {:?}", RedisStore::new(options.clone()));
        assert!(!shown.contains("opensesame"), "{shown}");
    }
}
