//! A database across a network: one connection, made when it is needed and kept while it is usable.

use std::collections::HashSet;
use std::fmt;
use std::time::Instant;

use crate::store::server::{READ_ONLY_FOR_STATUS, ServerOptions, silent_when_idle, was_silent};
use crate::store::{Durability, Facts, Fault, FaultKind};
use crate::time::Clock;

use super::access::Server;
use super::{Connection, Dialect};

/// After this long without a statement a connection is tested first: firewalls and servers close idle ones.
///
/// A store that fell back to another host stays there while it serves. The preferred host is tried again when a connection
/// breaks, or has been closed because it was idle for `idle_timeout`.
///
/// A server that leaves the test without an answer is silent. The attempt ends there: to connect would take a timeout again.
const IDLE_MS: u64 = 30_000;

/// Makes connections.
pub(crate) trait Driver: fmt::Debug + Send {
    type Connection: RemoteConnection;

    /// The dialect, as far as it is known without a connection.
    const DIALECT: Dialect;

    fn connect(&mut self, options: &ServerOptions) -> Result<Self::Connection, Fault>;

    /// Completes the dialect from a connection.
    fn complete(&self, _facts: &mut Facts) {}
}

/// A connection that may die while it is idle.
pub(crate) trait RemoteConnection: Connection + Send {
    /// Whether it still serves; with `idle` the server is asked.
    fn is_alive(&mut self, idle: bool) -> bool;

    /// Facts about the server, and whether it takes no writes.
    fn about(&self) -> (Facts, bool);
}

/// A server, and a connection to it.
pub struct Remote<D, C> {
    options: ServerOptions,
    driver: D,
    kept: Option<C>,
    /// [`State::numberless`](super::State::numberless) of the connections so far.
    numberless: HashSet<String>,
}

impl<D: fmt::Debug, C> fmt::Debug for Remote<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("driver", &self.driver)
            .field("options", &self.options)
            .field("connected", &self.kept.is_some())
            .finish_non_exhaustive()
    }
}

impl<D, C> Remote<D, C> {
    /// Connects to nothing yet.
    pub(crate) fn new(options: ServerOptions, driver: D) -> Remote<D, C> {
        Remote { options, driver, kept: None, numberless: HashSet::new() }
    }
}

/// Runs `work` with the kept connection if it lives, or with a new one, and keeps it if it is still usable.
fn with_live<D: Driver, T>(
    remote: &mut Remote<D, D::Connection>,
    work: impl FnOnce(&mut D::Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let asked = Instant::now();
    let alive = remote.kept.take().and_then(|mut kept| {
        let idle = Clock::System.boot_ms().saturating_sub(kept.state().used_ms);
        kept.is_alive(idle > IDLE_MS).then_some(kept)
    });
    let mut connection = match alive {
        Some(kept) => kept,
        None if was_silent(asked, remote.options.read_timeout) => {
            return Err(silent_when_idle(&remote.options));
        }
        None => {
            let mut new = remote.driver.connect(&remote.options)?;
            new.state().numberless.clone_from(&remote.numberless);
            new
        }
    };
    connection.state().begin_attempt();
    let answer = work(&mut connection);
    if connection.state().broken {
        remote.numberless.extend(connection.state().numberless.drain());
    } else {
        connection.state().used_ms = Clock::System.boot_ms();
        remote.kept = Some(connection);
    }
    answer
}

fn asked_facts<D: Driver>(remote: &mut Remote<D, D::Connection>) -> Result<Facts, Fault> {
    let asked = with_live(remote, |connection| {
        let (mut facts, read_only) = connection.about();
        if read_only {
            facts.warnings.push(READ_ONLY_FOR_STATUS.to_owned());
        }
        Ok(facts)
    });
    asked.map_err(|fault| fault.with_context("asking the server about itself"))
}

impl<D: Driver> Server for Remote<D, D::Connection> {
    fn dialect(&self) -> Dialect {
        self.kept.as_ref().map_or(D::DIALECT, Connection::dialect)
    }

    fn schema(&self) -> Option<&str> {
        self.options.schema.as_deref()
    }

    fn with<T>(&mut self, work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>) -> Result<T, Fault> {
        with_live(self, |connection| work(connection))
    }

    fn answers(&mut self) -> bool {
        with_live(self, |_| Ok(())).is_ok()
    }

    fn warnings(&self) -> Option<Vec<String>> {
        self.kept.as_ref().map(|connection| connection.about().0.warnings)
    }

    /// Not limited to safe settings: reading is safe where reserving is not, and an operator needs to see what is wrong.
    fn facts(&mut self) -> Result<Facts, Fault> {
        let mut facts = None;
        if self.kept.is_some() {
            match asked_facts(self) {
                Err(fault) if fault.kind == FaultKind::Unsafe => {}
                asked => facts = Some(asked),
            }
        }
        let facts = facts.unwrap_or_else(|| {
            let durability = std::mem::replace(&mut self.options.durability, Durability::Warn);
            let facts = asked_facts(self);
            if durability != Durability::Warn {
                self.options.durability = durability;
                self.kept = None;
            }
            facts
        });
        facts.map(|mut facts| {
            self.driver.complete(&mut facts);
            facts
        })
    }

    fn release_idle(&mut self, now_ms: u64) -> Option<u64> {
        let idle_ms = u64::try_from(self.options.idle_timeout.as_millis()).unwrap_or(u64::MAX);
        let close_at = self.kept.as_mut()?.state().used_ms.saturating_add(idle_ms);
        if now_ms < close_at {
            return Some(close_at);
        }
        self.kept = None;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::store::model::rows::Digits;
    use crate::store::model::value::{ColumnValue, Value};
    use crate::store::sql::{Relation, State};
    use crate::store::{Key, SerialKey};

    /// How long one answer may take.
    const LIMIT: Duration = Duration::from_millis(40);

    /// A connection that answers no test.
    struct Silent(State);

    /// Counts the connections.
    #[derive(Debug, Default)]
    struct Dials(u32);

    impl Driver for Dials {
        type Connection = Silent;
        const DIALECT: Dialect = Dialect::MySql;

        fn connect(&mut self, options: &ServerOptions) -> Result<Silent, Fault> {
            self.0 += 1;
            Ok(Silent(State::new(options.durability, options.read_timeout, Clock::System.boot_ms())))
        }
    }

    impl RemoteConnection for Silent {
        fn is_alive(&mut self, idle: bool) -> bool {
            if idle {
                thread::sleep(LIMIT);
            }
            !idle
        }

        fn about(&self) -> (Facts, bool) {
            (Facts::default(), false)
        }
    }

    impl Connection for Silent {
        fn dialect(&self) -> Dialect {
            Dialect::MySql
        }

        fn state(&mut self) -> &mut State {
            &mut self.0
        }

        fn query(&mut self, _sql: &str, _values: &[Value]) -> Result<Vec<Vec<ColumnValue>>, Fault> {
            Ok(Vec::new())
        }

        fn change(&mut self, _sql: &str, _values: &[Value]) -> Result<u64, Fault> {
            Ok(0)
        }

        fn begin(&mut self) -> Result<(), Fault> {
            Ok(())
        }

        fn commit(&mut self) -> Result<(), Fault> {
            Ok(())
        }

        fn roll_back(&mut self) {}

        fn relation(&mut self, _key: &Key) -> Result<Option<Relation>, Fault> {
            Ok(None)
        }

        fn create(&mut self, _key: &Key, _statement: &str) -> Result<(), Fault> {
            Ok(())
        }

        fn largest(&mut self, _: &SerialKey, _: &str, _: Digits) -> Result<Option<String>, Fault> {
            Ok(None)
        }
    }

    #[test]
    fn a_server_that_is_silent_on_an_idle_connection_costs_one_timeout() {
        let options = ServerOptions { read_timeout: LIMIT, ..ServerOptions::default() };
        let mut remote = Remote::new(options, Dials::default());
        with_live(&mut remote, |_| Ok(())).expect("a new connection");
        remote.kept.as_mut().expect("it is kept").state().used_ms = 0;
        let fault = with_live(&mut remote, |_| Ok(())).expect_err("it does not answer");
        assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
        assert_eq!(remote.driver.0, 1, "it was not connected to again");
        with_live(&mut remote, |_| Ok(())).expect("the next attempt connects");
        assert_eq!(remote.driver.0, 2);
    }
}
