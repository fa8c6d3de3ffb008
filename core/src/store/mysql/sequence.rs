//! A SQL sequence that counts in steps: the value *v* owns `[v, v + step)`.
//!
//! * MariaDB hands out the values of its sequences again after a crash (MDEV-36288; seen in this project's own measurements:
//!   forty `NEXTVAL`, `kill -9`, the same forty again). There the scheme is refused unless `unsafe=on`.
//! * MySQL has no sequences. TiDB's statements are written from its documentation and source, and not run on a TiDB.
//! * The step is the sequence's `INCREMENT BY`: a source with another one is refused, and so is a sequence that starts over.

use super::dialect::Dialect;
use super::values::{number, text};
use super::{MysqlStore, Phase, Session};
use crate::store::connected::Connected;
use crate::store::rows;
use crate::store::sequences::{exhausted, row_at, used_before, went_backwards};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Request, Reserved, Row};

/// What loses values here, restored backups apart.
const LOSER: &str = "a failover or a crash";

/// The statement that creates a sequence. `NOCACHE`: each server of a TiDB cluster would else draw from values of its own,
/// and what one server has cached is lost with it.
pub(super) fn create(key: &Key) -> String {
    let Key { table, step, .. } = key;
    format!(
        "CREATE SEQUENCE IF NOT EXISTS `{table}` START WITH 1 MINVALUE 1 INCREMENT BY {step} NOCACHE NOCYCLE"
    )
}

impl Session {
    /// Whether this server's sequences are to be used at all.
    fn check_server(&self, key: &Key) -> Result<(), Fault> {
        match self.server.dialect {
            Dialect::TiDb => Ok(()),
            Dialect::MariaDb if key.unsafe_on => Ok(()),
            Dialect::MariaDb => Err(Fault::new(
                FaultKind::Unsafe,
                "MariaDB hands out values of a sequence again after a crash (MDEV-36288), so numbers would come twice; use \
                 `scheme=keymill`, or `unsafe=on` accepts that",
            )),
            Dialect::MySql => {
                Err(Fault::new(FaultKind::Refused, "MySQL has no sequences; use `scheme=keymill`"))
            }
        }
    }

    /// Makes sure, once per connection, that the sequence counts as this source says. `false`: it is not there.
    pub(super) fn check_sequence(&mut self, key: &Key) -> Result<bool, Fault> {
        let Key { scheme, table, step, .. } = key;
        self.check_server(key)?;
        let place = key.place();
        if self.checked.iter().any(|(of, known)| of == scheme && *known == place) {
            return Ok(true);
        }
        rows::check_table_name(table)?;
        let wrong = |what: String| {
            Fault::new(FaultKind::Refused, format!("`{table}` {what}; name another sequence with `table=`"))
        };
        let found = if self.server.dialect == Dialect::TiDb {
            let found = self.ask(
                "SELECT `INCREMENT`, `CYCLE`, `START`, `CACHE` FROM information_schema.SEQUENCES \
                 WHERE SEQUENCE_SCHEMA = DATABASE() AND SEQUENCE_NAME = ?",
                (table,),
            )?;
            if let Some(row) = found.first() {
                if text(row, 2).is_some_and(|start| start != "1") {
                    return Err(wrong("does not start with 1".to_owned()));
                }
                if text(row, 3).is_some_and(|cache| cache != "0") {
                    return Err(wrong(
                        "is cached, so that each TiDB server hands out values of its own and none is known to be the \
                         next; `ALTER SEQUENCE … NOCACHE`"
                            .to_owned(),
                    ));
                }
            }
            found
        } else {
            let kind = self.ask(
                "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
                (table,),
            )?;
            match kind.first().and_then(|row| text(row, 0)) {
                None => return Ok(false),
                Some(kind) if kind.eq_ignore_ascii_case("SEQUENCE") => {
                    self.ask(&format!("SELECT increment, cycle_option FROM `{table}`"), ())?
                }
                Some(_) => return Err(wrong("is a table, not a sequence".to_owned())),
            }
        };
        let Some(row) = found.first() else { return Ok(false) };
        let found = text(row, 0).unwrap_or_default();
        if found != step.to_string() {
            return Err(wrong(format!(
                "counts in steps of {found}, and this source says step={step}: numbers would be issued twice or lost; use \
                 `step={found}`"
            )));
        }
        if text(row, 1).is_none_or(|cycle| cycle != "0") {
            return Err(wrong("starts over at its end (CYCLE)".to_owned()));
        }
        self.checked.push((*scheme, place));
        Ok(true)
    }

    /// The sequence, or what to do about its absence.
    fn need_sequence(&mut self, key: &Key) -> Result<(), Fault> {
        if self.check_sequence(key)? {
            return Ok(());
        }
        Err(Fault::new(
            FaultKind::Refused,
            format!("sequence `{}` is missing; run `keymill init`", key.table),
        ))
    }

    /// The value that comes next.
    pub(super) fn sequence_row(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        if !self.check_sequence(key)? {
            return Ok(None);
        }
        let table = &key.table;
        let next = if self.server.dialect == Dialect::TiDb {
            let found = self.ask(&format!("SHOW TABLE `{table}` NEXT_ROW_ID"), ())?;
            // One more than the value used last, or 1: the next value is the first of 1, 1 + step, … from there on.
            let above_used =
                found.first().and_then(|row| number(row, 3)).and_then(|next| next.checked_sub(1));
            above_used.map(|used| used.div_ceil(key.step).saturating_mul(key.step).saturating_add(1))
        } else {
            let found = self.ask(&format!("SELECT next_not_cached_value FROM `{table}`"), ())?;
            found.first().and_then(|row| number(row, 0))
        };
        let next = next.filter(|next| *next > 0).ok_or_else(|| {
            Fault::new(FaultKind::Refused, format!("sequence `{table}` says no positive next value"))
        })?;
        Ok(Some(row_at(next)))
    }

    fn next_value(&mut self, request: &Request) -> Result<Reserved, Fault> {
        let key = &request.key;
        self.need_sequence(key)?;
        // Before a value is drawn: a sequence that was set back would else, value by value, come up to where this process
        // stands, and pass what other nodes have issued on its way.
        if request.high_water.next > 0 {
            let row = self.sequence_row(key)?;
            // Values drawn at the same moment count only upwards.
            if row.as_ref().is_none_or(|row| row.mark.next < request.high_water.next.min(MAX_NUMBER)) {
                return Err(went_backwards(request, row.as_ref().map_or(0, |row| row.mark.next), LOSER));
            }
        }
        self.test_options(Phase::Ask)?;
        // One statement, committed by itself: a value that was drawn is never drawn again, but by a crash on MariaDB.
        let found = self.run(&format!("SELECT NEXTVAL(`{}`)", key.table), (), Phase::Commit);
        let value = match found {
            Ok(rows) => rows.first().and_then(|row| number(row, 0)),
            // Run out: 4084 on MariaDB, 4135 on TiDB.
            Err(_) if matches!(self.code, Some(4084 | 4135)) => return Err(exhausted(request)),
            Err(fault) => return Err(fault),
        };
        let lo = value.filter(|lo| *lo > 0).ok_or_else(|| {
            Fault::new(FaultKind::Refused, format!("sequence `{}` named no positive value", key.table))
        })?;
        self.test_options(Phase::Commit)?;
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

impl MysqlStore {
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
            // `SETVAL` says which value has been used last.
            if before.as_ref().is_none_or(|row| row.mark < to) {
                session.test_options(Phase::Ask)?;
                session.run(&format!("SELECT SETVAL(`{}`, {used})", key.table), (), Phase::Commit)?;
            }
            let after = session.sequence_row(key)?.unwrap_or_else(|| row_at(to.next));
            Ok((before, after))
        })
    }
}
