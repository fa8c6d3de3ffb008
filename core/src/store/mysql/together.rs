//! Reservations of several sources in one go. (floor 2)
//!
//! One packet of several statements, one transaction: one round trip and one flush of the log for all of them. (Without the
//! transaction each statement is a commit and a flush of its own, which is most of what a reservation costs.) So they are
//! all reserved or none is; and rows are locked in one order by every process. The driver allows such packets on every
//! connection anyway. Prepared statements cannot go in one packet, so values stand in the text: numbers in digits, and
//! everything else in hexadecimal, which no quote and no SQL mode can end.

use std::fmt::Write as _;
use std::time::Instant;

use mysql::Value;
use mysql::prelude::Queryable;

use super::schemes::Fast;
use super::{Phase, Session};
use crate::store::connected::Connection as _;
use crate::store::rows::{self, Together};
use crate::store::{Fault, FaultKind, Request};

/// One of several requests, with its statement.
struct Taken<'r> {
    at: usize,
    request: &'r Request,
    fast: Fast,
    statement: String,
}

/// What became of a packet.
enum Carried {
    /// All of it: of each statement, how many rows it changed, and the number it says.
    All(Vec<(u64, u64)>),
    /// Nothing: somebody holds the row of this statement.
    HeldAt(usize),
    /// Nothing.
    None,
}

impl Session {
    /// Fast statements of several requests. `None`: nothing was changed for this one.
    pub(super) fn reserve_together(&mut self, requests: &[Request]) -> Result<Together, Fault> {
        let mut answers = vec![None; requests.len()];
        let mut taken: Vec<Taken> = Vec::with_capacity(requests.len());
        for at in rows::in_order(requests) {
            let Some(request) = requests.get(at) else { continue };
            if request.key.scheme.is_ticket() || self.held.contains(&rows::held_row(&request.key)) {
                continue;
            }
            // A table that is missing would spoil it for all; alone, it is told.
            match self.check_table(&request.key) {
                Ok(true) => {}
                Err(fault) if self.broken => return Err(fault),
                Ok(false) | Err(_) => continue,
            }
            if let Ok(Some(fast)) = self.fast(request)
                && let Some(statement) = spelled(&fast.sql, &fast.values)
            {
                taken.push(Taken { at, request, fast, statement });
            }
        }
        let said = self.sift(&mut taken);
        if self.hasty && !self.broken {
            // What was reserved is; a connection that could not be set back is not used again.
            let _ = self.set_hasty(false);
        }
        let said = said?;
        for (Taken { at, request, fast, .. }, (changed, id)) in taken.iter().zip(said) {
            if let Some(answer) = answers.get_mut(*at) {
                *answer = self.understood(request, &fast.says, changed, id).transpose();
            }
        }
        Ok(answers)
    }

    /// Carries out all of these but those whose row somebody holds, which are taken out, and answers with what each changed;
    /// with nothing where nothing was changed. The first such row is waited for, unless one is known already; the others are
    /// not.
    fn sift(&mut self, taken: &mut Vec<Taken<'_>>) -> Result<Vec<(u64, u64)>, Fault> {
        let mut until = None;
        if taken.len() > 1 && !self.held.is_empty() {
            self.set_hasty(true)?;
        }
        loop {
            if taken.len() < 2 {
                return Ok(Vec::new());
            }
            let mut packet = self.server.dialect.begin().to_owned();
            // Each has one or none has, or answers could not be told apart.
            let probes = || taken.iter().map(|one| probe(&one.statement)).collect::<Option<Vec<_>>>();
            let probes = if self.asks_without_waiting() { probes() } else { None };
            for (at, Taken { statement, .. }) in taken.iter().enumerate() {
                let probe = probes.as_ref().and_then(|probes| probes.get(at));
                for statement in probe.into_iter().chain([statement]) {
                    packet.push_str("; ");
                    packet.push_str(statement);
                }
            }
            packet.push_str("; COMMIT");
            let each = 1 + usize::from(probes.is_some());
            let held = match self.carry(&packet, taken.len() * each + 2)? {
                // The first is the transaction's beginning.
                Carried::All(said) => return Ok(said.into_iter().skip(each).step_by(each).collect()),
                Carried::HeldAt(at) => at.checked_sub(1).map(|at| at / each).filter(|at| *at < taken.len()),
                Carried::None => None,
            };
            let Some(held) = held else { return Ok(Vec::new()) };
            self.held.insert(rows::held_row(&taken.remove(held).request.key));
            if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + rows::SIFTING) {
                return Ok(Vec::new());
            }
            if !self.hasty {
                self.set_hasty(true)?;
            }
        }
    }

    /// Says a packet of so many statements, a transaction, and answers with what each of them changed. Where one
    /// failed the server has carried out none after it, and nothing was changed.
    fn carry(&mut self, packet: &str, statements: usize) -> Result<Carried, Fault> {
        let mut said = Vec::with_capacity(statements);
        let failed = match self.connection.query_iter(packet) {
            Err(error) => Some(error),
            Ok(mut results) => loop {
                let (changed, id) = (results.affected_rows(), results.last_insert_id());
                match results.iter().map(|mut result| result.next()) {
                    None => break None,
                    // A probe has a row, what changes one has none.
                    Some(None | Some(Ok(_))) => said.push((changed, id.unwrap_or(0))),
                    Some(Some(Err(error))) => break Some(error),
                }
            },
        };
        let Some(error) = failed else {
            // Fewer answers than statements: the last of them may not have been the commit's.
            return if said.len() == statements {
                Ok(Carried::All(said))
            } else {
                Err(self.incomplete(said.len()))
            };
        };
        let fault = self.failed(&error, Phase::Commit);
        let by_server = matches!(error, mysql::Error::MySqlError(_));
        if by_server && said.len() + 1 < statements || self.again {
            self.roll_back();
            let held = fault.kind == FaultKind::Held && !self.broken;
            return Ok(if held { Carried::HeldAt(said.len()) } else { Carried::None });
        }
        self.roll_back();
        Err(fault)
    }
}

/// The statement with its values in the text; `None` for a value that has no place there.
fn spelled(sql: &str, values: &[Value]) -> Option<String> {
    let mut parts = sql.split('?');
    let mut out = parts.next()?.to_owned();
    let mut values = values.iter();
    for part in parts {
        match values.next()? {
            Value::NULL => out.push_str("NULL"),
            Value::Int(number) => out.push_str(&number.to_string()),
            Value::UInt(number) => out.push_str(&number.to_string()),
            // As a prepared statement has it: text of the connection's character set, whatever the column's is.
            Value::Bytes(bytes) => {
                out.push_str("_utf8mb4 X'");
                for byte in bytes {
                    let _ = write!(out, "{byte:02x}");
                }
                out.push('\'');
            }
            _ => return None,
        }
        out.push_str(part);
    }
    values.next().is_none().then_some(out)
}

/// `SELECT` of the row that an `UPDATE` is about to change, for who does not wait for it.
fn probe(update: &str) -> Option<String> {
    // No value stands as it is, so no other words than the statement's own are found.
    let (change, row) = update.split_once(" WHERE ")?;
    let (table, _) = change.strip_prefix("UPDATE ")?.split_once(" SET ")?;
    Some(format!("SELECT 1 FROM {table} WHERE {row} FOR UPDATE NOWAIT"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_ends_its_quotes_or_its_statement() {
        let values = [Value::UInt(u64::MAX), Value::Bytes(b"a'; DROP \\".to_vec()), Value::NULL];
        assert_eq!(
            spelled("UPDATE `t` SET n = ? WHERE a = ? AND b <=> ?", &values).as_deref(),
            Some(
                "UPDATE `t` SET n = 18446744073709551615 WHERE a = _utf8mb4 X'61273b2044524f50205c' AND b <=> NULL"
            )
        );
        assert_eq!(spelled("a = ?", &values), None, "a value too many");
        assert_eq!(spelled("a = ? b = ?", &values[..1]), None, "a value too few");
        assert_eq!(
            probe("UPDATE `t` SET `n` = LAST_INSERT_ID(`n`) + 5 WHERE `a` = X'61' AND `n` >= 1").as_deref(),
            Some("SELECT 1 FROM `t` WHERE `a` = X'61' AND `n` >= 1 FOR UPDATE NOWAIT")
        );
    }
}
