//! Reservations of several sources in one go.
//!
//! One packet of several statements, one transaction: one round trip and one flush of the log for all of them. (Without the
//! transaction each statement is a commit and a flush of its own, which is most of what a reservation costs.) So they are
//! all reserved or none is; and rows are locked in one order by every process. The driver allows such packets on every
//! connection anyway.

use std::time::Instant;

use super::schemes::Fast;
use super::session::{Changed, Stopped};
use super::values::spelled;
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
    All(Vec<Changed>),
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
            match self.look_at_table(&request.key) {
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
    fn sift(&mut self, taken: &mut Vec<Taken<'_>>) -> Result<Vec<Changed>, Fault> {
        let mut until = None;
        if taken.len() > 1 && !self.held.is_empty() {
            self.set_hasty(true)?;
        }
        loop {
            if taken.len() < 2 {
                return Ok(Vec::new());
            }
            // Each has one or none has, or answers could not be told apart.
            let probes = || taken.iter().map(|one| probe(&one.statement)).collect::<Option<Vec<_>>>();
            let probes = if self.asks_without_waiting() { probes() } else { None };
            let each = 1 + usize::from(probes.is_some());
            let (opening, within) = (self.guard.opening.clone(), self.guard.within.clone());
            let closing = self.guard.closing.clone();
            let mut packet: Vec<&str> = opening.as_deref().into_iter().collect();
            packet.push(self.server.dialect.begin());
            let before = packet.len();
            for (at, Taken { statement, .. }) in taken.iter().enumerate() {
                packet.extend(probes.as_ref().and_then(|probes| probes.get(at)).map(String::as_str));
                packet.push(statement);
            }
            packet.extend(within.as_deref());
            let commit = packet.len();
            packet.push(self.server.dialect.commit());
            packet.extend(closing.as_deref());
            let held = match self.carry(&packet, opening.is_some(), commit)? {
                Carried::All(said) => {
                    let of_rows = said.into_iter().take(before + taken.len() * each);
                    return Ok(of_rows.skip(before + each - 1).step_by(each).collect());
                }
                Carried::HeldAt(at) => {
                    at.checked_sub(before).map(|at| at / each).filter(|at| *at < taken.len())
                }
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

    /// Says a packet, a transaction whose commit is the statement at `commit`, and answers with what each statement changed.
    /// Where one failed the server has carried out none after it, and nothing was changed. `tested`: the first statement, the
    /// one before the commit and the one after it are tests of the server's options.
    fn carry(&mut self, packet: &[&str], tested: bool, commit: usize) -> Result<Carried, Fault> {
        let (at, error) = match self.say_all(packet) {
            Ok(said) => return Ok(Carried::All(said)),
            Err(Stopped::Short(answers)) => return Err(self.incomplete(answers)),
            Err(Stopped::At(at, error)) => (at, error),
        };
        if tested && (at == 0 || at + 1 == commit || at > commit) {
            let phase = if at > commit { Phase::Commit } else { Phase::Write };
            let fault = self.not_passed(&error, phase);
            self.roll_back();
            return Err(fault);
        }
        let fault = self.failed(&error, Phase::Commit);
        let by_server = matches!(error, mysql::Error::MySqlError(_));
        self.roll_back();
        if by_server && at < commit || self.again {
            let held = fault.kind == FaultKind::Locked && !self.broken;
            return Ok(if held { Carried::HeldAt(at) } else { Carried::None });
        }
        Err(fault)
    }
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
    use mysql::Value;

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
