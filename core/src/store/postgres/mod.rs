//! Reservations in PostgreSQL.
//!
//! One connection, opened when it is first needed, on a runtime of its own that runs only while the keeper waits. Rules,
//! each bought with a duplicate somewhere:
//! * A connection that has answered with anything but rows or the server's own error is closed and never used again.
//! * A range is used only after the server is ready for the next question, which is after the commit: rows come before it.
//! * A commit whose wait for a synchronous standby was cancelled counts as unknown, although the server calls it done.
//! * Every wait has an end. The driver for threads, `postgres`, has none while it reads.
//! * `nextval` alone is not durable: see `sequence.rs`.

mod dialect;
mod error;
mod name;
mod place;
mod prepared;
mod schemes;
mod sequence;
mod session;
mod values;
mod wire;

use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::connected::Connected;
use super::rows::{self, Rows};
use super::server::Phase;
pub use super::server::{ServerOptions, Tls, TlsMode};
use super::transactions::Transactions;
use super::{
    Facts, Fault, FaultKind, Import, Key, MOST_AT_ONCE, Mark, Request, Reserved, Row, Scheme, Store,
};
use crate::time::Clock;
pub use schemes::create_table;
use schemes::{Open, create_table_in};
use session::{History, Session, Shared};

/// After this long without a question a connection is asked first whether it lives: firewalls and servers close idle ones.
const IDLE_MS: u64 = 30_000;

/// A client of one server, or of the one among several that takes writes.
pub struct PostgresStore {
    options: ServerOptions,
    session: Option<Session>,
    /// Where this process has written last.
    history: Option<History>,
    /// What this process knows of the server beyond one connection.
    shared: Shared,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("options", &self.options)
            .field("connected", &self.session.is_some())
            .finish_non_exhaustive()
    }
}

impl PostgresStore {
    /// A store on this server. Nothing is connected yet.
    #[must_use]
    pub fn new(options: ServerOptions) -> PostgresStore {
        PostgresStore { options, session: None, history: None, shared: Shared::default() }
    }

    /// The first host that takes writes, but none that was replaced: a primary that comes back after a failover takes writes
    /// too, and knows nothing of those since. Its timeline is the older one. Who has no history yet asks every host.
    fn connect(&mut self) -> Result<Session, Fault> {
        let (mut failures, mut replaced) = (Vec::new(), Vec::new());
        let (mut best, mut fallback): (Option<(String, Session)>, Option<Session>) = (None, None);
        for target in self.options.targets(&mut failures) {
            let session = match Session::open(&self.options, &target, &self.shared, Clock::System.boot_ms()) {
                Ok(session) => session,
                Err(fault) if fault.kind == FaultKind::Unavailable || best.is_some() => {
                    failures.push(format!("{target}: {}", fault.message));
                    continue;
                }
                Err(fault) => return Err(Fault::new(fault.kind, format!("{target}: {}", fault.message))),
            };
            let found = session.server.history.as_ref();
            if session.server.read_only {
                // A replica answers questions; it is kept in case no other host does better.
                fallback.get_or_insert(session);
            } else if let Some((place, older)) = best.as_ref().filter(|(_, best)| best.is_before(found)) {
                replaced.push(older.replaced(place));
                best = Some((target.to_string(), session));
            } else if session
                .is_before(best.as_ref().map_or(self.history.as_ref(), |best| best.1.server.history.as_ref()))
            {
                replaced.push(session.replaced(&target));
            } else if best.is_none() {
                best = Some((target.to_string(), session));
            }
            if best.is_some() && (self.history.is_some() || self.options.hosts.len() < 2) {
                break;
            }
        }
        let Some((_, mut best)) = best else {
            failures.extend(replaced);
            return fallback.ok_or_else(|| {
                Fault::new(FaultKind::Unavailable, format!("no connection to {}", failures.join(", nor to ")))
            });
        };
        if best.server.history.is_some() {
            self.history.clone_from(&best.server.history);
        }
        best.warnings.extend(replaced);
        Ok(best)
    }
}

impl Session {
    /// One try: begin, work, commit. `None`: somebody else was faster, nothing was changed.
    fn attempt<T>(
        &mut self,
        work: impl Fn(&mut dyn Rows) -> Result<Option<T>, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.again = false;
        self.duplicate = false;
        let wait = if self.hasty { rows::HASTE } else { self.limits().lock() };
        if let Err(fault) = self.begin(wait) {
            // It may have begun all the same.
            self.roll_back();
            return Err(fault);
        }
        self.spoiled = false;
        let answer = work(&mut Open { session: self });
        match answer {
            Ok(Some(done)) if !self.spoiled => match self.say("COMMIT", Phase::Commit) {
                Ok(()) => Ok(Some(done)),
                Err(fault) => {
                    // A unique constraint that is checked late finds the other row here.
                    self.again |= self.duplicate;
                    self.roll_back();
                    Err(fault)
                }
            },
            Ok(_) => {
                self.roll_back();
                Ok(None)
            }
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    /// Rolls back; a connection that cannot do that is not used again (the server rolls back when it closes).
    fn roll_back(&mut self) {
        if self.broken {
            return;
        }
        // What the failed statement meant is still to be asked.
        let (again, duplicate, code) = (self.again, self.duplicate, self.code.take());
        if self.say("ROLLBACK", Phase::Ask).is_err() {
            self.broken = true;
        }
        (self.again, self.duplicate, self.code) = (again, duplicate, code);
    }
}

impl Connected for PostgresStore {
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
            if session.is_alive(idle > IDLE_MS) {
                session.again = false;
                session.duplicate = false;
                return Ok(session);
            }
        }
        self.connect()
    }
}

impl Transactions for PostgresStore {
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
            let patience = if session.hasty { rows::HASTE } else { patience };
            let until = Instant::now() + patience;
            let mut conflict = rows::moved_on();
            for attempt in 0..rows::ATTEMPTS {
                if attempt > 0 {
                    if Instant::now() >= until {
                        break;
                    }
                    std::thread::sleep(Duration::from_micros(fastrand::u64(200..2000) * u64::from(attempt)));
                }
                match session.attempt(&work) {
                    Ok(Some(done)) => return Ok(done),
                    Ok(None) if session.broken => return Err(rows::rolled_back_badly()),
                    Ok(None) => {}
                    // One lock's wait is enough: the other sources wait too.
                    Err(fault) if fault.kind == FaultKind::Locked => return Err(fault),
                    Err(fault) if session.again && !session.broken => conflict = fault,
                    Err(fault) => return Err(fault),
                }
            }
            Err(conflict)
        })
    }
}

impl Store for PostgresStore {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.on_row(&request.key, |store| store.reserve_alone(request))
    }

    fn batch(&self) -> usize {
        MOST_AT_ONCE
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
            return Ok(false); // a value once drawn is never drawn again
        }
        self.give_back_in_one(key, period, lo, hi)
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.on_row(key, |store| store.raise_in_one(key, expect, to))
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        self.with_session(|session| {
            if key.scheme == Scheme::Sequence {
                return session.sequence_row(key);
            }
            session.check_table(key)?;
            rows::look(&mut Open { session }, key)
        })
        .map_err(|fault| rows::during(&format!("looking at `{}`", key.name), fault))
    }

    fn age(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        self.with_session(|session| Open { session }.age(key))
            .map_err(|fault| rows::during(&format!("looking at `{}`", key.name), fault))
    }

    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        for key in keys {
            schemes::check_kept_here(key).map_err(|fault| rows::during(rows::creating(dry_run), fault))?;
        }
        let schema = self.options.schema.clone();
        let create = |key: &Key| match &schema {
            Some(schema) => create_table_in(schema, key),
            None => create_table(key),
        };
        self.create_tables(keys, create, dry_run)
    }

    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        self.with_session(|session| session.check_table(old))
            .map_err(|fault| rows::during(&format!("importing `{}`", new.name), fault))?;
        self.import_in_one(old, new, period)
    }

    fn new_owner(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        self.new_owner_in_one(old, new)
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if key.scheme == Scheme::Sequence {
            return self
                .raise_sequence(key, to)
                .map_err(|fault| rows::during(&format!("repairing `{}`", key.name), fault));
        }
        self.repair_in_one(key, to)
    }

    fn writable(&mut self) -> Result<(), Fault> {
        self.with_session(Session::writable)
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        self.known_warnings()
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        let mut facts = self.all_facts()?;
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        facts.tables = shared.schemas.iter().map(|(table, schema)| format!("{schema}.{table}")).collect();
        facts.tables.sort();
        Ok(facts)
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        self.close_idle(now_ms)
    }
}

impl PostgresStore {
    fn reserve_alone(&mut self, request: &Request) -> Result<Reserved, Fault> {
        if request.key.scheme == Scheme::Sequence {
            return self.draw_value(request).map_err(|fault| rows::during(&rows::reserving(request), fault));
        }
        let fast = self.with_session(|session| {
            session.writable()?;
            session.check_table(&request.key)?;
            if session.hasty {
                return Ok(None);
            }
            match session.reserve_fast(request) {
                // The transaction repeats it, with a pause.
                Err(fault) if fault.kind != FaultKind::Locked && session.again && !session.broken => Ok(None),
                other => other,
            }
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
    use crate::store::Secret;

    #[test]
    fn a_password_is_never_shown() {
        let options = ServerOptions { password: Secret::new("opensesame"), ..ServerOptions::default() };
        let shown = format!("{options:?} {:?}", PostgresStore::new(options.clone()));
        assert!(!shown.contains("opensesame"), "{shown}");
    }
}
