//! The tables of MySQL, MariaDB and TiDB: their DDL, their shape, and the statements on their rows. (floor 2)

use mysql::{Params, Value};

use super::{Phase, Session};
use crate::store::rows::{self, Digits, ProducerKey, Rows, Stored};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Request, Reserved, Scheme, SerialKey};

/// The statement that creates a scheme's table: the only place where it stands.
#[must_use]
pub fn create_table(scheme: Scheme, table: &str) -> String {
    match scheme {
        // Exact bytes in `name`: a collation would join `a` and `A`, or `a` and `a `. `next` may be 2^63, when every
        // number is used up.
        Scheme::Keymill => format!(
            "CREATE TABLE IF NOT EXISTS `{table}` (\n  \
             `name` VARBINARY(512) NOT NULL,\n  \
             `period` BIGINT UNSIGNED NOT NULL DEFAULT 0,\n  \
             `next` BIGINT UNSIGNED NOT NULL COMMENT 'lowest number not yet reserved',\n  \
             `stores` INT NOT NULL DEFAULT 1,\n  \
             `store_index` INT NOT NULL DEFAULT 0,\n  \
             `updated_at` TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n  \
             PRIMARY KEY (`name`)\n\
             ) ENGINE=InnoDB"
        ),
        // KeyFactory's own statement, byte for byte.
        Scheme::KeyProducer => format!(
            "CREATE TABLE IF NOT EXISTS `{table}` (\n  \
             `TABLENAME` varchar(80) COLLATE utf8_bin NOT NULL COMMENT '表名',\n  \
             `COLUMNNAME` varchar(80) COLLATE utf8_bin NOT NULL COMMENT '列名',\n  \
             `MAXSERIALNO` varchar(80) COLLATE utf8_bin DEFAULT NULL COMMENT '最大数',\n  \
             `DATEFMT` varchar(20) COLLATE utf8_bin NOT NULL COMMENT '日期模式',\n  \
             `NOFMT` varchar(20) COLLATE utf8_bin NOT NULL COMMENT '流水号模式',\n  \
             `update_time` datetime NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT '更新时间',\n  \
             PRIMARY KEY (`TABLENAME`,`COLUMNNAME`,`DATEFMT`,`NOFMT`)\n\
             ) ENGINE=InnoDB DEFAULT CHARSET=utf8 COLLATE=utf8_bin COMMENT='索引生成表 '"
        ),
    }
}

/// The columns a scheme uses, each with its type where another would cut or wrap.
const fn shape(scheme: Scheme) -> (&'static [(&'static str, &'static str)], &'static [&'static str]) {
    match scheme {
        Scheme::Keymill => (&[("name", ""), ("period", "bigint"), ("next", "bigint")], &["name"]),
        Scheme::KeyProducer => (
            &[("TABLENAME", ""), ("COLUMNNAME", ""), ("MAXSERIALNO", ""), ("DATEFMT", ""), ("NOFMT", "")],
            &["TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"],
        ),
    }
}

impl Session {
    /// Makes sure, once per connection, that the table is what the scheme needs. `false`: it is not there, or this user
    /// may not see it; the first statement's own error says which.
    pub(super) fn check_table(&mut self, key: &Key) -> Result<bool, Fault> {
        let Key { scheme, table, .. } = key;
        if self.checked.iter().any(|(of, name)| of == scheme && name == table) {
            return Ok(true);
        }
        if !rows::is_identifier(table) {
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "`{table}` is no table name: an identifier [A-Za-z_][A-Za-z0-9_$]* of at most 64 is needed"
                ),
            ));
        }
        let found = self.ask(
            "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = ?",
            (table,),
        )?;
        let Some(engine) = found.first().map(|row| text(row, 0).unwrap_or_else(|| "a view".to_owned()))
        else {
            return Ok(false);
        };
        let wrong = |what: String| {
            let scheme = scheme.name();
            Fault::new(
                FaultKind::Refused,
                format!(
                    "table `{table}` is not one of scheme `{scheme}`: {what}; name another with `table=`"
                ),
            )
        };
        let columns = self.ask(
            "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() \
             AND TABLE_NAME = ?",
            (table,),
        )?;
        let (needed, unique) = shape(*scheme);
        for (name, data_type) in needed {
            let column =
                columns.iter().find(|row| text(row, 0).is_some_and(|found| found.eq_ignore_ascii_case(name)));
            let Some(column) = column else { return Err(wrong(format!("column `{name}` is missing"))) };
            let found = text(column, 1).unwrap_or_default();
            if !data_type.is_empty() && !found.eq_ignore_ascii_case(data_type) {
                return Err(wrong(format!("column `{name}` is `{found}`, too narrow for `{data_type}`")));
            }
        }
        // Without a unique key two first users of a key would make two rows of it.
        let indexes = self.ask(
            "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() \
             AND TABLE_NAME = ? AND NON_UNIQUE = 0",
            (table,),
        )?;
        let index_is_ours = |index: &Option<String>| {
            indexes.iter().filter(|row| text(row, 0) == *index).all(|row| {
                text(row, 1).is_some_and(|column| unique.iter().any(|of| of.eq_ignore_ascii_case(&column)))
            })
        };
        if !indexes.iter().any(|row| index_is_ours(&text(row, 0))) {
            return Err(wrong(format!("it has no primary key ({})", unique.join(", "))));
        }
        if !engine.eq_ignore_ascii_case("InnoDB") {
            self.judge(format!("table `{table}` is kept by {engine}, not by InnoDB, and may lose commits"))?;
        }
        self.checked.push((*scheme, table.clone()));
        Ok(true)
    }

    /// One autocommitted statement for the common case: a key without periods, whose row is there, not below the high
    /// water and not near its end. `None`: it is another case, and nothing was changed.
    ///
    /// `LAST_INSERT_ID(next) + n` puts the range's first number into the OK packet, which no proxy can mix up with
    /// another session's.
    pub(super) fn reserve_fast(&mut self, request: &Request) -> Result<Option<Reserved>, Fault> {
        let key = &request.key;
        let last = request.last.min(MAX_NUMBER);
        let Some(highest) = last.checked_sub(request.len).map(|below| below + 1) else { return Ok(None) };
        let lowest = request.high_water.next.max(1);
        if !self.server.dialect.has_fast_statement()
            || key.scheme != Scheme::Keymill
            || key.serial.is_some()
            || request.len == 0
            || (request.period, request.high_water.period) != (0, 0)
        {
            return Ok(None);
        }
        let sql = format!(
            "UPDATE `{}` SET `next` = LAST_INSERT_ID(`next`) + ? WHERE `name` = ? AND `period` = 0 \
             AND `next` >= ? AND `next` <= ?",
            key.table
        );
        let changed =
            self.execute(&sql, (request.len, key.name.as_bytes(), lowest, highest), Phase::Commit)?;
        if changed == 0 {
            return Ok(None);
        }
        let lo = self.connection.last_insert_id();
        if changed != 1 || lo < lowest || lo > highest {
            self.broken = true;
            return Err(Fault::new(
                FaultKind::Unknown,
                format!(
                    "the server answered with {changed} rows and {lo}, not one row from {lowest} to {highest}"
                ),
            ));
        }
        // lo <= last + 1 - len, so this is at most 2^63.
        Ok(Some(Reserved { lo, hi: lo + request.len, period: 0 }))
    }
}

/// Rows inside an open transaction of this session.
pub(super) struct Open<'a> {
    pub(super) session: &'a mut Session,
}

impl Open<'_> {
    fn change(&mut self, sql: &str, values: impl Into<Params>) -> Result<bool, Fault> {
        match self.session.execute(sql, values, Phase::Write)? {
            0 => Ok(false),
            1 => Ok(true),
            many => Err(Fault::new(
                FaultKind::Refused,
                format!("{many} rows of one key would change at once; the table has lost its primary key"),
            )),
        }
    }
}

/// The columns of `key_producer` are three-byte utf8: a wider character would make the server scan the whole table to
/// find that it is not there, or be cut.
fn producer(key: &Key) -> Result<ProducerKey, Fault> {
    let of = ProducerKey::new(rows::serial_of(key)?)?;
    if let Some(wide) = [&of.table, &of.column, &of.date, &of.number]
        .into_iter()
        .flat_map(|text| text.chars())
        .find(|c| *c > '\u{ffff}')
    {
        return Err(Fault::new(
            FaultKind::Refused,
            format!(
                "`{wide}` cannot be kept in `{}`, whose text is three-byte utf8; use `scheme=keymill`",
                key.table
            ),
        ));
    }
    Ok(of)
}

const PRODUCER_ROW: &str = "`TABLENAME` = ? AND `COLUMNNAME` = ? AND `DATEFMT` = ? AND `NOFMT` = ?";

impl Rows for Open<'_> {
    fn read(&mut self, key: &Key, lock: bool) -> Result<Option<Stored>, Fault> {
        let (table, lock) = (&key.table, if lock { " FOR UPDATE" } else { "" });
        match key.scheme {
            Scheme::Keymill => {
                let sql = format!("SELECT `period`, `next` FROM `{table}` WHERE `name` = ?{lock}");
                let found = self.session.ask(&sql, (key.name.as_bytes(),))?;
                let Some(row) = found.first() else { return Ok(None) };
                match (number(row, 0), number(row, 1)) {
                    (Some(period), Some(next)) => Ok(Some(Stored::Segment(Mark { period, next }))),
                    _ => Err(Fault::new(
                        FaultKind::Refused,
                        "its row holds no positive numbers; nothing was changed",
                    )),
                }
            }
            Scheme::KeyProducer => {
                let of = producer(key)?;
                let sql = format!("SELECT `MAXSERIALNO` FROM `{table}` WHERE {PRODUCER_ROW}{lock}");
                let found = self.session.ask(&sql, (of.table, of.column, of.date, of.number))?;
                let Some(row) = found.first() else { return Ok(None) };
                if matches!(row.as_ref(0), Some(Value::NULL)) {
                    return Ok(Some(Stored::Serial(None)));
                }
                text(row, 0).map(|text| Some(Stored::Serial(Some(text)))).ok_or_else(|| {
                    Fault::new(FaultKind::Refused, "its `MAXSERIALNO` is no text; nothing was changed")
                })
            }
        }
    }

    fn insert(&mut self, key: &Key, new: &Stored) -> Result<bool, Fault> {
        let table = &key.table;
        let made = match new {
            Stored::Segment(mark) => {
                let sql = format!("INSERT INTO `{table}` (`name`, `period`, `next`) VALUES (?, ?, ?)");
                self.change(&sql, (key.name.as_bytes(), mark.period, mark.next))
            }
            Stored::Serial(text) => {
                let of = producer(key)?;
                let sql = format!(
                    "INSERT INTO `{table}` (`MAXSERIALNO`, `TABLENAME`, `COLUMNNAME`, `DATEFMT`, `NOFMT`) \
                     VALUES (?, ?, ?, ?, ?)"
                );
                self.change(&sql, (text, of.table, of.column, of.date, of.number))
            }
        };
        // Somebody else has just created it.
        if made.is_err() && std::mem::take(&mut self.session.duplicate) { Ok(false) } else { made }
    }

    fn replace(&mut self, key: &Key, old: &Stored, new: &Stored) -> Result<bool, Fault> {
        let table = &key.table;
        match (old, new) {
            (Stored::Segment(old), Stored::Segment(new)) => {
                let sql = format!(
                    "UPDATE `{table}` SET `period` = ?, `next` = ? WHERE `name` = ? AND `period` = ? AND `next` = ?"
                );
                self.change(&sql, (new.period, new.next, key.name.as_bytes(), old.period, old.next))
            }
            (Stored::Serial(old), Stored::Serial(new)) => {
                let of = producer(key)?;
                // `<=>` is equality that holds for two NULLs. Old nodes compare the same way, so whoever comes second
                // finds no row.
                let sql = format!(
                    "UPDATE `{table}` SET `MAXSERIALNO` = ? WHERE {PRODUCER_ROW} AND `MAXSERIALNO` <=> ?"
                );
                self.change(&sql, (new, of.table, of.column, of.date, of.number, old))
            }
            _ => Ok(false),
        }
    }

    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        let SerialKey { table, column, .. } = serial;
        let sql = format!(
            "SELECT `number` FROM (SELECT SUBSTRING(`{column}`, ?) AS `number` FROM `{table}` \
             WHERE `{column}` LIKE ? ESCAPE '|') AS `found` \
             WHERE `number` NOT REGEXP '[^0-9]' AND CHAR_LENGTH(`number`) BETWEEN ? AND ? \
             AND (CHAR_LENGTH(`number`) = ? OR LEFT(`number`, 1) <> '0') \
             ORDER BY CHAR_LENGTH(`number`) DESC, `number` DESC LIMIT 1"
        );
        let mut like = String::with_capacity(prefix.len() + 1);
        for c in prefix.chars() {
            if matches!(c, '|' | '%' | '_') {
                like.push('|');
            }
            like.push(c);
        }
        like.push('%');
        let values =
            (prefix.chars().count() as u64 + 1, like, digits.shortest, digits.longest, digits.shortest);
        let found = self.session.ask(&sql, values)?;
        Ok(found.first().and_then(|row| text(row, 0)))
    }
}

/// A number column; `None` for NULL and for what is negative.
pub(super) fn number(row: &mysql::Row, column: usize) -> Option<u64> {
    match row.as_ref(column)? {
        Value::Int(value) => u64::try_from(*value).ok(),
        Value::UInt(value) => Some(*value),
        Value::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// A text column, or a number as text; `None` for NULL and for what is not UTF-8.
pub(super) fn text(row: &mysql::Row, column: usize) -> Option<String> {
    match row.as_ref(column)? {
        Value::Bytes(text) => String::from_utf8(text.clone()).ok(),
        Value::Int(value) => Some(value.to_string()),
        Value::UInt(value) => Some(value.to_string()),
        _ => None,
    }
}
