//! What the stores of SQL servers do alike: one connection, made when it is needed and kept while it may be used.

use std::collections::HashSet;
use std::sync::Arc;

use super::rows::HeldRow;
use super::server::{LOOKED_AT_READ_ONLY, ServerOptions};
use super::{Durability, Facts, Fault, FaultKind, Key, rows};
use crate::time::Clock;

/// A connection, and what is known of the server behind it.
pub(crate) trait Connection {
    /// Whether it is not to be used again.
    fn is_broken(&self) -> bool;

    /// It has just been used, at this boot time.
    fn used(&mut self, now_ms: u64);

    /// The boot time of its last use.
    fn used_ms(&self) -> u64;

    /// Makes sure, once per connection, that the table is what the scheme needs; `false`: it is not there.
    fn check_table(&mut self, key: &Key) -> Result<bool, Fault>;

    /// Tables are to be checked anew.
    fn forget_tables(&mut self);

    /// The statement that creates a table, with the schema where it is to be, on servers that have such.
    fn placed(&self, _key: &Key, statement: String) -> String {
        statement
    }

    /// Creates a table or a sequence.
    fn create(&mut self, statement: &str) -> Result<(), Fault>;

    /// Refuses where the server takes no writes.
    fn writable(&mut self) -> Result<(), Fault>;

    /// What it said about itself, and whether it takes no writes.
    fn about(&self) -> (Facts, bool);

    /// Rows that somebody held when they were last asked for.
    fn held(&mut self) -> &mut HashSet<HeldRow>;

    /// Whether a row that somebody holds is not waited for.
    fn is_hasty(&self) -> bool;

    /// From now on a row that somebody holds is not waited for, or it is again.
    fn set_hasty(&mut self, hasty: bool) -> Result<(), Fault>;
}

/// A store with one connection.
pub(crate) trait Connected {
    type Connection: Connection;

    fn options(&mut self) -> &mut ServerOptions;

    /// Where the connection is kept while nobody uses it.
    fn kept(&mut self) -> &mut Option<Self::Connection>;

    /// The connection, asked first whether it lives if it was idle, or a new one.
    fn ready(&mut self) -> Result<Self::Connection, Fault>;

    /// Runs with a live connection and keeps it if it may be used again.
    fn with_session<T>(
        &mut self,
        work: impl FnOnce(&mut Self::Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let mut session = self.ready()?;
        let answer = work(&mut session);
        if !session.is_broken() {
            session.used(Clock::System.boot_ms());
            *self.kept() = Some(session);
        }
        answer
    }

    /// [`Store::release_idle`](super::Store::release_idle).
    fn close_idle(&mut self, now_ms: u64) -> Option<u64> {
        let idle_ms = u64::try_from(self.options().idle_timeout.as_millis()).unwrap_or(u64::MAX);
        let close_at = self.kept().as_ref()?.used_ms().saturating_add(idle_ms);
        if now_ms < close_at {
            return Some(close_at);
        }
        *self.kept() = None;
        None
    }

    /// Asks for a row, in haste where somebody held it the last time: meanwhile the other sources wait.
    fn on_row<T>(&mut self, key: &Key, work: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        let row = rows::held_row(key);
        if self.kept().as_mut().is_some_and(|session| session.held().contains(&row)) {
            self.with_session(|session| session.set_hasty(true))?;
        }
        let answer = work(self);
        if let Some(session) = self.kept() {
            if answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Locked) {
                session.held().insert(row);
            } else {
                session.held().remove(&row);
            }
            if session.is_hasty() && session.set_hasty(false).is_err() {
                *self.kept() = None;
            }
        }
        answer
    }

    /// Creates what is missing of these keys' tables, and answers with the statements.
    fn create_tables(
        &mut self,
        keys: &[Arc<Key>],
        create: impl Fn(&Key) -> String,
        dry_run: bool,
    ) -> Result<Vec<String>, Fault> {
        let tables = rows::tables(keys, create, dry_run)?;
        if dry_run {
            match self.ready() {
                Ok(session) => *self.kept() = Some(session),
                // The statements are wanted before there is a server, a user or a database.
                Err(_) => return Ok(tables.into_iter().map(|(_, statement)| statement).collect()),
            }
        }
        self.with_session(|session| {
            // What was there a moment ago may be gone: that is why somebody runs `init`.
            session.forget_tables();
            let mut missing = Vec::new();
            // A user without the right to create may well run `init` on tables that are there.
            for (key, statement) in tables {
                if !session.check_table(key)? {
                    missing.push((key, session.placed(key, statement)));
                }
            }
            if !dry_run && !missing.is_empty() {
                session.writable()?;
                for (key, statement) in &missing {
                    session.create(statement)?;
                    session.check_table(key)?;
                }
            }
            Ok(missing.into_iter().map(|(_, statement)| statement).collect())
        })
        .map_err(|fault| rows::during(rows::creating(dry_run), fault))
    }

    /// What the server says about itself, whatever its settings: asking is safe where reserving is not, and an operator wants
    /// to see what is wrong.
    fn all_facts(&mut self) -> Result<Facts, Fault> {
        if self.kept().is_some() {
            match self.told_facts() {
                Err(fault) if fault.kind == FaultKind::Unsafe => {}
                told => return told,
            }
        }
        let durability = std::mem::replace(&mut self.options().durability, Durability::Warn);
        let facts = self.told_facts();
        if durability != Durability::Warn {
            self.options().durability = durability;
            *self.kept() = None;
        }
        facts
    }

    /// What the connection was warned about; asks nobody.
    fn known_warnings(&mut self) -> Option<Vec<String>> {
        self.kept().as_ref().map(|session| session.about().0.warnings)
    }

    fn told_facts(&mut self) -> Result<Facts, Fault> {
        self.with_session(|session| {
            let (mut facts, read_only) = session.about();
            if read_only {
                facts.warnings.push(LOOKED_AT_READ_ONLY.to_owned());
            }
            Ok(facts)
        })
        .map_err(|fault| rows::during("asking the server about itself", fault))
    }
}
