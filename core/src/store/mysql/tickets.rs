//! Ranges named by an AUTO_INCREMENT column: ticket *t* owns `[(t-1)·step+1, t·step]`.
//!
//! Two forms, both of IDSnowman (1a and 1b; the second is Flickr's ticket server,
//! <http://code.flickr.net/2010/02/08/ticket-servers-distributed-unique-primary-keys-on-the-cheap/>): `auto_increment`
//! inserts a row for each ticket and purges old ones, `ticket` replaces one row a name, so that the table stays small by
//! itself. Concurrent plain `REPLACE`s deadlock on the unique key, and may write a lower ticket over a higher one. So the
//! row is locked first here, by the statement itself or in one short transaction, and a deadlock's victim draws again.
//!
//! * All names of a table draw from one counter: two sources of it share its tickets, and never a number.
//! * Nodes with different steps would give the same numbers to different tickets. So the step belongs to the table: it is the
//!   column's default, and a check constraint that each insert has to pass.
//! * A ticket is used only after the commit of its row: InnoDB hands out the tickets of a rolled-back row again after a crash.
//! * TiDB's servers count apart, unless the table says `AUTO_ID_CACHE 1`, and even then an id may be named again after the
//!   allocator has moved. There a ticket counts only above every row of the table. The newest row of each name stays, so the
//!   highest ticket ever used is always among them. A jump of 30 000 tickets, as after each restart, is a gap and nothing else.
//! * One server among several: `auto_increment_increment` and `auto_increment_offset`, or large different beginnings, hold.

use super::Phase;
use super::mysql_connection::is_replaced;
use super::mysql_session::MysqlSession;
use crate::store::model::rows::{not_lower, ticket_row};
use crate::store::model::value::{Value, number, text};
use crate::store::sql::{Changed, Connection, Tickets, step_of, wrong};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Remedy, Request, Reserved, Row};

/// After every 64th ticket the process that drew it deletes older rows: all before the newest 64, at most 1000 at a time.
const PURGE_EVERY: u64 = 64;
const PURGE_AT_MOST: u64 = 1000;

/// The range of a ticket, cut at `last`.
fn range_of(ticket: u64, step: u64, last: u64) -> Result<Reserved, Fault> {
    let last = last.min(MAX_NUMBER);
    let lo = ticket
        .checked_sub(1)
        .and_then(|before| before.checked_mul(step))
        .map(|before| before.saturating_add(1));
    match lo {
        Some(lo) if lo <= last => {
            // `last` is below 2^63, so neither sum can wrap.
            Ok(Reserved { lo, hi: lo.saturating_add(step).min(last + 1), period: 0, ttl_ms: None })
        }
        _ if ticket == 0 => Err(Fault::new(
            FaultKind::Refused,
            "the server named no ticket: the column `id` is not AUTO_INCREMENT",
        )),
        _ => Err(Fault::new(FaultKind::Exhausted, format!("every number up to {last} has been reserved"))),
    }
}

/// The server's answer to an insert.
struct InsertedTicket {
    /// How many rows changed.
    changed: u64,
    ticket: u64,
    reserved: Reserved,
}

impl Tickets for MysqlSession {
    fn check(&mut self, key: &Key) -> Result<(), Fault> {
        let of_table = Value::from(key.table.as_str());
        let found = self.query(
            "SELECT COLUMN_DEFAULT, (SELECT EXTRA FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() \
             AND TABLE_NAME = ? AND COLUMN_NAME = 'id'), (SELECT TABLE_COMMENT FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() \
             AND TABLE_NAME = ?) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? AND COLUMN_NAME = 'step'",
            &[of_table.clone(), of_table.clone(), of_table.clone()],
        )?;
        let word = |column| found.first().and_then(|row| text(row, column));
        if !word(1).is_some_and(|extra| extra.to_ascii_lowercase().contains("auto_increment")) {
            return Err(wrong(self, key, "column `id` is not AUTO_INCREMENT"));
        }
        let default = word(0).and_then(|step| step.parse::<u64>().ok());
        let made_with = match word(2).and_then(step_of) {
            None => self.step_of_rows(key, default)?,
            comment => comment,
        };
        if let Some(step) = made_with.filter(|step| default != Some(*step)) {
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "tickets of table `{}` were worth step={step} numbers, and its column `step` has the default {} now: numbers that were issued would come again; nothing was drawn. Put {step} back as the default, in the CHECK of the column and in the rows",
                    key.table,
                    word(0).unwrap_or("none"),
                ),
            ));
        }
        if default != Some(key.step) {
            let found = word(0).unwrap_or("none");
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "tickets of table `{}` are worth step={found} numbers, and this source says step={}: with another step they would be issued twice; use `step={found}`",
                    key.table, key.step
                ),
            ));
        }
        let unique = self.query(
            "SELECT 1 FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ? \
             AND COLUMN_NAME = 'stub' AND NON_UNIQUE = 0",
            &[of_table],
        )?;
        if !is_replaced(key) && !unique.is_empty() {
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "table `{}` keeps one row a name: it is of scheme `ticket`; name another with `table=`, if no id of this source was issued",
                    key.table
                ),
            ));
        }
        Ok(())
    }

    fn draw(&mut self, request: &Request) -> Result<Option<Reserved>, Fault> {
        if !self.server.dialect.counts_apart()
            && let Some(drawn) = self.draw_in_one(request)?
        {
            self.purge(&request.key, drawn.ticket);
            return Ok(Some(drawn.reserved));
        }
        if !is_replaced(&request.key) && !self.server.dialect.counts_apart() {
            self.look_back(request, "")?;
            let drawn = self.write_ticket(request, "INSERT", Phase::Commit)?;
            self.purge(&request.key, drawn.ticket);
            return if drawn.changed == 1 {
                Ok(Some(drawn.reserved))
            } else {
                Err(self.odd(drawn.changed, drawn.ticket))
            };
        }
        // Under the row's lock, so that the row only rises. Without it, of two draws at once the lower ticket could be
        // written last; a server that continues from the rows after a restart would then issue the higher one again.
        self.begin()?;
        match self.draw_under_lock(request) {
            Ok(Some(drawn)) => {
                self.commit()?;
                self.purge(&request.key, drawn.ticket);
                Ok(Some(drawn.reserved))
            }
            other => {
                self.roll_back();
                other.map(|_| None)
            }
        }
    }

    fn make_node(&mut self, key: &Key, host: &str, process: &str) -> Result<u64, Fault> {
        // As uid-generator writes it: `ACTUAL` is 2, and `PORT` of a process without one distinguishes processes of a host.
        let sql = format!(
            "INSERT INTO `{}` (`HOST_NAME`, `PORT`, `TYPE`, `LAUNCH_DATE`, `MODIFIED`, `CREATED`) \
             VALUES (?, ?, 2, CURRENT_DATE(), NOW(), NOW())",
            key.table
        );
        let made = self.execute(&sql, &[host.into(), process.into()], Phase::Commit)?;
        let number = made.number.unwrap_or(0);
        if made.rows != 1 || number == 0 {
            return Err(self.odd(made.rows, number));
        }
        Ok(number)
    }

    fn newest(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        self.newest_ticket(key, "")
    }

    fn raise(&mut self, key: &Key, to: Mark) -> Result<Option<(Option<Row>, Row)>, Fault> {
        if to.next == 0 || to.next > MAX_NUMBER + 1 {
            return Err(Fault::new(FaultKind::Refused, "a next number is from 1 to 2^63"));
        }
        // Only this isolation level locks the gap after the last row.
        self.begin_at(Some("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))?;
        match self.raise_inside(key, to) {
            Ok(Some(rows)) => self.commit().map(|()| Some(rows)),
            other => {
                self.roll_back();
                other
            }
        }
    }
}

impl MysqlSession {
    fn newest_ticket(&mut self, key: &Key, lock: &str) -> Result<Option<Row>, Fault> {
        let sql =
            format!("SELECT `id` FROM `{}` WHERE `stub` = ? ORDER BY `id` DESC LIMIT 1{lock}", key.table);
        let found = self.query(&sql, &[key.name.as_str().into()])?;
        Ok(found.first().and_then(|row| number(row, 0)).map(|ticket| ticket_row(key, ticket)))
    }

    /// The step of a ticket that was drawn while the column had another default than now.
    fn step_of_rows(&mut self, key: &Key, default: Option<u64>) -> Result<Option<u64>, Fault> {
        let Some(default) = default else { return Ok(None) };
        let sql = format!("SELECT `step` FROM `{}` WHERE `step` <> ? LIMIT 1", key.table);
        let found = self.query(&sql, &[default.into()])?;
        Ok(found.first().and_then(|row| number(row, 0)))
    }

    /// One autocommitted statement for the common case: the row exists and is not below what this process has seen. `None`:
    /// another case, and nothing was changed. A statement that reads the table it writes reads first, so the row is locked,
    /// or read, before a ticket is drawn.
    fn draw_in_one(&mut self, request: &Request) -> Result<Option<InsertedTicket>, Fault> {
        let Key { table, name, step, .. } = &*request.key;
        let Some(seen) = request.high_water.next.checked_sub(1) else { return Ok(None) };
        // The newest ticket this process knows of. Near the end of the numbers the other path reports how many are left.
        let newest = seen.div_ceil(*step);
        if range_of(newest + 1, *step, request.last).is_err() {
            return Ok(None);
        }
        // Finds the row that this process wrote last by its primary key: a search for the newest row of the name would scan
        // rows that are marked deleted. For scheme `ticket` the replaced ticket identifies the row.
        let (verb, lock, expected) =
            if is_replaced(&request.key) { ("REPLACE", self.for_update(), 2) } else { ("INSERT", "", 1) };
        let sql = format!(
            "{verb} INTO `{table}` (`stub`, `step`) SELECT `stub`, ? FROM `{table}` WHERE `stub` = ? AND `id` = ?{lock}"
        );
        let values = [(*step).into(), name.as_str().into(), newest.into()];
        let changed = self.execute(&sql, &values, Phase::Commit)?;
        if changed.rows == 0 {
            return Ok(None);
        }
        let drawn = MysqlSession::drawn(request, changed)?;
        if drawn.changed == expected { Ok(Some(drawn)) } else { Err(self.odd(drawn.changed, drawn.ticket)) }
    }

    fn draw_under_lock(&mut self, request: &Request) -> Result<Option<InsertedTicket>, Fault> {
        let highest = if self.server.dialect.counts_apart() { self.highest_ticket(&request.key)? } else { 0 };
        let (before, drawn) = if is_replaced(&request.key) {
            let before = self.look_back(request, self.for_update())?;
            (before, self.write_ticket(request, "REPLACE", Phase::Write)?)
        } else {
            self.look_back(request, "")?;
            (None, self.write_ticket(request, "INSERT", Phase::Write)?)
        };
        if drawn.ticket <= highest {
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "the server named ticket {}, and table `{}` holds {highest} already: its servers count apart, or its allocator has lost count; nothing is used. Stop every program that uses it; then create a table with `AUTO_ID_CACHE 1`, as `keymill init` does, and raise it with `keymill repair` above every number that was issued, or use `scheme=keymill`, with `start=` above them",
                    drawn.ticket, request.key.table
                ),
            ));
        }
        // A replaced row counts twice. A row inserted since the search may hold a higher ticket than ours.
        let rises = before.as_ref().is_none_or(|row| row.mark.next <= drawn.reserved.lo);
        Ok((drawn.changed == 1 + u64::from(before.is_some()) && rises).then_some(drawn))
    }

    /// Raises this name's ticket, in an open transaction. `None`: another node has drawn the ticket.
    ///
    /// Under a lock on the end of the table. Without it, another process that raises another name to the same number would
    /// replace our row, and a lower ticket would replace a ticket drawn since the search.
    fn raise_inside(&mut self, key: &Key, to: Mark) -> Result<Option<(Option<Row>, Row)>, Fault> {
        let before = self.newest_ticket(key, " FOR UPDATE")?;
        not_lower(before.as_ref(), to)?;
        if let Some(row) = before.as_ref().filter(|row| row.mark >= to) {
            return Ok(Some((before.clone(), row.clone())));
        }
        let sql = format!("SELECT `id` FROM `{}` ORDER BY `id` DESC LIMIT 1 FOR UPDATE", key.table);
        let newest = self.query(&sql, &[])?.first().and_then(|row| number(row, 0)).unwrap_or(0);
        let ticket = (to.next - 1).div_ceil(key.step);
        // If another name's ticket is above, the counter's next ticket is above too.
        let ticket = (ticket > newest).then_some(ticket);
        let verb = if is_replaced(key) { "REPLACE" } else { "INSERT" };
        let sql = format!("{verb} INTO `{}` (`id`, `stub`, `step`) VALUES (?, ?, ?)", key.table);
        let values = [ticket.map_or(Value::Null, Value::Number), key.name.as_str().into(), key.step.into()];
        let drawn = match self.execute(&sql, &values, Phase::Write) {
            Ok(changed) => changed.number.unwrap_or(0),
            Err(_) if std::mem::take(&mut self.state.duplicate) => return Ok(None),
            Err(fault) => return Err(fault),
        };
        let after = ticket_row(key, ticket.unwrap_or(drawn));
        Ok(Some((before, after)))
    }

    /// The highest ticket in the table, of whatever name.
    fn highest_ticket(&mut self, key: &Key) -> Result<u64, Fault> {
        let found = self.query(&format!("SELECT MAX(`id`) FROM `{}`", key.table), &[])?;
        Ok(found.first().and_then(|row| number(row, 0)).unwrap_or(0))
    }

    /// The fault for an answer that is not one inserted row, or whose two counts disagree: its ticket is not used.
    fn odd(&mut self, changed: u64, ticket: u64) -> Fault {
        self.state.broken = true;
        Fault::new(
            FaultKind::Unknown,
            format!("the server answered with {changed} rows and ticket {ticket}, which is not used"),
        )
    }

    /// Reads the newest ticket of this name before drawing another. A counter that was set back would otherwise rise ticket
    /// by ticket to where this process stands, and pass tickets that other nodes have issued.
    fn look_back(&mut self, request: &Request, lock: &str) -> Result<Option<Row>, Fault> {
        if lock.is_empty() && request.high_water.next == 0 {
            return Ok(None);
        }
        let newest = self.newest_ticket(&request.key, lock)?;
        if request.high_water.next > 0 && newest.as_ref().is_none_or(|row| row.mark < request.high_water) {
            let stands =
                newest.map_or("its row is gone".to_owned(), |row| format!("its row stands at {}", row.text));
            return Err(went_backwards(request, &stands));
        }
        Ok(newest)
    }

    fn write_ticket(&mut self, request: &Request, verb: &str, phase: Phase) -> Result<InsertedTicket, Fault> {
        let Key { table, name, step, .. } = &*request.key;
        let sql = format!("{verb} INTO `{table}` (`stub`, `step`) VALUES (?, ?)");
        let changed = self.execute(&sql, &[name.as_str().into(), (*step).into()], phase)?;
        MysqlSession::drawn(request, changed)
    }

    /// The ticket of an answer, as a range.
    fn drawn(request: &Request, changed: Changed) -> Result<InsertedTicket, Fault> {
        let ticket = changed.number.unwrap_or(0);
        let reserved = range_of(ticket, request.key.step, request.last)?;
        if reserved.lo < request.high_water.next {
            let named = format!("the server named ticket {ticket}, which is not used");
            return Err(went_backwards(request, &named));
        }
        Ok(InsertedTicket { changed: changed.rows, ticket, reserved })
    }

    /// Deletes older rows of this name. The newest stays: after a restart old servers continue from the largest. The last
    /// few stay too, because other nodes draw beside them.
    fn purge(&mut self, key: &Key, ticket: u64) {
        if is_replaced(key) || !ticket.is_multiple_of(PURGE_EVERY) {
            return;
        }
        // In order, so that a replica of a statement-based log deletes the same rows.
        let sql = format!(
            "DELETE FROM `{}` WHERE `stub` = ? AND `id` < ? ORDER BY `id` LIMIT {PURGE_AT_MOST}",
            key.table
        );
        let values = [key.name.as_str().into(), ticket.saturating_sub(PURGE_EVERY).into()];
        if let Err(fault) = self.execute(&sql, &values, Phase::Write) {
            // The ticket is valid anyway. Two purges at once are expected; a missing right is reported.
            let warning = format!("old rows of `{}` cannot be deleted: {fault}", key.table);
            if !self.state.conflict {
                self.state.warn(warning);
            }
            self.state.conflict = false;
        }
    }
}

fn went_backwards(request: &Request, found: &str) -> Fault {
    Fault::new(
        FaultKind::WentBackwards,
        format!(
            "{found}, this process has seen {}: a backup was restored, a failover lost writes or the table was emptied",
            request.high_water.next
        ),
    )
    .with_remedy(Remedy::repair(&request.key.name, request.high_water.next))
}
