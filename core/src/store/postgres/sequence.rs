//! A SQL sequence that counts in steps: the value *v* owns `[v, v + step)`.
//!
//! `SELECT nextval(…)` alone is not durable. A sequence writes one log record for 32 values, ahead; only the transaction
//! that wrote it waits for the disk when it commits. Whoever draws one of the other 31, after a first one that was rolled
//! back or has not committed yet, has a value of which the disk knows nothing, and after a crash it is drawn again. Giving
//! that transaction a number of its own (`txid_current()`) does not help: a commit without a log record of its own waits for
//! nothing. So each draw writes a record, a message that nobody reads, in the same statement: its commit flushes the log
//! up to there, what others wrote before included, and waits for synchronous standbys.

use super::Phase;
use super::PostgresStore;
use super::name::check_name;
use super::session::Session;
use super::values::{number, text};
use crate::store::connected::Connected;
use crate::store::rows;
use crate::store::sequences::{exhausted, row_at, used_before, went_backwards};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Request, Reserved, Row};

/// The advisory lock of a sequence: `keym` and its number in the catalogue. Who draws shares it, who raises has it alone.
const LOCK: &str =
    "(1801812333::pg_catalog.int8 << 32) | pg_catalog.to_regclass(?)::pg_catalog.oid::pg_catalog.int8";

/// What loses values here, restored backups apart.
const LOSER: &str = "a failover";

/// The statement that creates a sequence.
pub(super) fn create(key: &Key) -> String {
    let (table, step) = (key.table.to_ascii_lowercase(), key.step);
    format!("CREATE SEQUENCE IF NOT EXISTS \"{table}\" INCREMENT BY {step} MINVALUE 1 START WITH 1 NO CYCLE")
}

impl Session {
    /// Makes sure, once per connection, that the sequence counts as this source says. `false`: it is not there.
    pub(super) fn check_sequence(&mut self, key: &Key) -> Result<bool, Fault> {
        let Key { scheme, table, step, .. } = key;
        let wrong = |what: String| {
            Fault::new(FaultKind::Refused, format!("`{table}` {what}; name another sequence with `table=`"))
        };
        let Some(relation) = self.find(key)? else { return Ok(false) };
        let found = self.ask(
            "SELECT seqcache, seqincrement, seqcycle::pg_catalog.text FROM pg_catalog.pg_sequence \
             WHERE seqrelid = CAST(? AS pg_catalog.oid)",
            &[relation.oid.into()],
        )?;
        let Some(row) = found.first() else { return Err(wrong("is a table, not a sequence".to_owned())) };
        let cycle = text(row, 2).unwrap_or_default();
        match number(row, 1) {
            Some(found) if found == *step => {}
            Some(found) if found > 0 => {
                return Err(wrong(format!(
                    "counts in steps of {found}, and this source says step={step}: numbers would be issued twice or lost; \
                     use `step={found}`"
                )));
            }
            _ => return Err(wrong("counts downwards".to_owned())),
        }
        if cycle != "false" {
            return Err(wrong("starts over at its end (CYCLE)".to_owned()));
        }
        // Each connection then takes that many values at once and issues them as it likes: behind a pooler, and among
        // processes, they come in no order, and each lower one looks like a sequence that was set back.
        match number(row, 0) {
            Some(1) => {}
            cache => {
                let cache = cache.map_or_else(|| "more than one".to_owned(), |cache| cache.to_string());
                let place = self.place(key)?;
                return Err(Fault::new(
                    FaultKind::Refused,
                    format!(
                        "`{table}` hands out {cache} values at a time to each connection (CACHE {cache}), so they come in no \
                         order: `ALTER SEQUENCE {place} CACHE 1`"
                    ),
                ));
            }
        }
        self.check_kept(table, &relation.kept)?;
        self.checked.push((*scheme, key.place()));
        Ok(true)
    }

    /// The sequence, or what to do about its absence.
    fn need_sequence(&mut self, key: &Key) -> Result<(), Fault> {
        check_name(&key.table)?;
        self.check_table(key)?;
        self.place(key).map(drop)
    }

    /// The value that comes next.
    pub(super) fn sequence_row(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        if !self.check_table(key)? {
            return Ok(None);
        }
        let select = format!("SELECT last_value, is_called::pg_catalog.text FROM {}", self.place(key)?);
        let found = self.ask(&select, &[])?;
        let next = found.first().and_then(|row| {
            let last = number(row, 0)?;
            Some(if text(row, 1)? == "true" { last.saturating_add(key.step) } else { last })
        });
        let next = next.filter(|next| *next > 0).ok_or_else(|| {
            Fault::new(FaultKind::Refused, format!("sequence `{}` says no positive next value", key.table))
        })?;
        Ok(Some(row_at(next)))
    }

    /// Only upwards. Between the look at the sequence and `setval` somebody may draw beyond, and would be followed by the same
    /// values again: so whoever draws shares a lock that this one has alone, and looks after it has it.
    fn set_value(&mut self, key: &Key, used: u64) -> Result<(), Fault> {
        let place = self.place(key)?;
        let lock = format!("SELECT pg_catalog.pg_advisory_xact_lock({LOCK})::pg_catalog.text");
        self.run(&lock, &[place.as_str().into()], Phase::Write)?;
        let sql = format!(
            "SELECT pg_catalog.setval(pg_catalog.to_regclass(?), ?) FROM {place} s WHERE s.last_value < ?"
        );
        self.run(&sql, &[place.as_str().into(), used.into(), used.into()], Phase::Write)?;
        Ok(())
    }

    fn next_value(&mut self, request: &Request) -> Result<Reserved, Fault> {
        let key = &request.key;
        self.need_sequence(key)?;
        let place = self.place(key)?;
        // In one statement, so that a sequence that was set back is left where it stands: it would else, value by value,
        // come up to where this process stands, and pass what other nodes have issued on its way.
        let sql = format!(
            "SELECT pg_catalog.pg_advisory_xact_lock_shared({LOCK})::pg_catalog.text, \
             pg_catalog.nextval(pg_catalog.to_regclass(?)), \
             pg_catalog.pg_logical_emit_message(true, 'keymill', ''::pg_catalog.text)::pg_catalog.text, {} FROM {place} s \
             WHERE s.last_value >= CASE WHEN s.is_called THEN ? ELSE ? END{}",
            self.pinned(),
            self.own_limits(),
        );
        let seen = request.high_water.next.min(MAX_NUMBER);
        let values =
            [place.as_str().into(), place.as_str().into(), seen.saturating_sub(key.step).into(), seen.into()];
        let found = match self.run(&sql, &values, Phase::Commit) {
            Ok(rows) => rows,
            Err(_) if self.code.as_deref() == Some("2200H") => return Err(exhausted(request)),
            Err(fault) => return Err(fault),
        };
        let Some(row) = found.first() else {
            let stands = self.sequence_row(key)?.map_or(0, |row| row.mark.next);
            return Err(went_backwards(request, stands, LOSER));
        };
        self.check_watched_row(row, 3)?;
        let lo = number(row, 1).filter(|lo| *lo > 0).ok_or_else(|| {
            Fault::new(FaultKind::Refused, format!("sequence `{}` named no positive value", key.table))
        })?;
        if lo < request.high_water.next {
            return Err(went_backwards(request, lo, LOSER));
        }
        let last = request.last.min(MAX_NUMBER);
        if lo > last {
            return Err(exhausted(request));
        }
        // `last` is below 2^63, so this cannot wrap.
        Ok(Reserved { lo, hi: lo.saturating_add(key.step).min(last + 1), period: 0, ttl_ms: None })
    }
}

impl PostgresStore {
    pub(super) fn draw_value(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.with_session(|session| {
            session.writable()?;
            session.next_value(request)
        })
    }

    /// Moves the sequence on, so that the next value is `to` or the first of its values above.
    pub(super) fn raise_sequence(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        let used = used_before(to, key.step)?;
        self.with_session(|session| {
            session.writable()?;
            session.need_sequence(key)?;
            let before = session.sequence_row(key)?;
            rows::not_lower(before.as_ref(), to)?;
            // `setval` says which value has been used last.
            if before.as_ref().is_none_or(|row| row.mark < to) {
                let began = session.begin(session.limits().lock());
                let raised = began.and_then(|()| session.set_value(key, used));
                match raised.and_then(|()| session.say("COMMIT", Phase::Commit)) {
                    Ok(()) => {}
                    Err(fault) => {
                        session.roll_back();
                        return Err(fault);
                    }
                }
            }
            let after = session.sequence_row(key)?.unwrap_or_else(|| row_at(to.next));
            Ok((before, after))
        })
    }
}
