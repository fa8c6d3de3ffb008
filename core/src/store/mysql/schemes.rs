//! The tables of MySQL, MariaDB and TiDB: their DDL, their shape, and the statements on their rows.

use mysql::{Params, Value};

use super::values::{cell, number, spelled, text};
use super::{Phase, Session, sequence, tickets};
use crate::store::counter::{Cell, Counter, CounterRow, Leap, Tongue, segment_of};
use crate::store::model::decide::decide;
use crate::store::rows::{self, Digits, ProducerKey, Rows, Stored, producer_row, stored_at};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Request, Reserved, Scheme, SerialKey};

/// The statement that creates a scheme's table: the only place where it stands.
#[must_use]
pub fn create_table(key: &Key) -> String {
    let table = &key.table;
    let own = |column| key.columns.own(column);
    match key.scheme {
        // Exact bytes in `name`: a collation would join `a` and `A`, or `a` and `a `. `next` may be 2^63, when every
        // number is used up.
        Scheme::Keymill => format!(
            "CREATE TABLE IF NOT EXISTS `{table}` (\n  \
             `name` VARBINARY(512) NOT NULL,\n  \
             `period` BIGINT UNSIGNED NOT NULL DEFAULT 0,\n  \
             `next` BIGINT UNSIGNED NOT NULL COMMENT 'lowest number not yet reserved',\n  \
             `updated_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n  \
             PRIMARY KEY (`name`)\n\
             ) ENGINE=InnoDB"
        ),
        // KeyFactory's own statement, byte for byte.
        Scheme::KeyProducer => {
            let [tablename, columnname, maxserialno, datefmt, nofmt, update_time] =
                ["TABLENAME", "COLUMNNAME", "MAXSERIALNO", "DATEFMT", "NOFMT", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS `{table}` (\n  \
             `{tablename}` varchar(80) COLLATE utf8_bin NOT NULL COMMENT '表名',\n  \
             `{columnname}` varchar(80) COLLATE utf8_bin NOT NULL COMMENT '列名',\n  \
             `{maxserialno}` varchar(80) COLLATE utf8_bin DEFAULT NULL COMMENT '最大数',\n  \
             `{datefmt}` varchar(20) COLLATE utf8_bin NOT NULL COMMENT '日期模式',\n  \
             `{nofmt}` varchar(20) COLLATE utf8_bin NOT NULL COMMENT '流水号模式',\n  \
             `{update_time}` datetime NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT '更新时间',\n  \
             PRIMARY KEY (`{tablename}`,`{columnname}`,`{datefmt}`,`{nofmt}`)\n\
             ) ENGINE=InnoDB DEFAULT CHARSET=utf8 COLLATE=utf8_bin COMMENT='索引生成表 '"
            )
        }
        // The seed's.
        Scheme::SequenceTable => {
            let [biz_type, cur_id, step, time_to_live] =
                ["biz_type", "cur_id", "step", "time_to_live"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS `{table}` (\n\
             `{biz_type}` VARCHAR(50) NOT NULL COMMENT '业务类型',\n\
             `{cur_id}` BIGINT(20) NOT NULL COMMENT '当前值',\n\
             `{step}` INT(11) NOT NULL COMMENT '步长',\n\
             `{time_to_live}` INT(11) NOT NULL COMMENT '生存时长(秒)',\n\
             PRIMARY KEY (`{biz_type}`)\n\
             )\n\
             COLLATE='utf8_general_ci'\n\
             ENGINE=InnoDB"
            )
        }
        Scheme::AutoIncrement | Scheme::Ticket => tickets::create_table(key),
        Scheme::Sequence => sequence::create(key),
        // Leaf's `scripts/leaf_alloc.sql`.
        Scheme::LeafAlloc => {
            let [biz_tag, max_id, step, update_time] = ["biz_tag", "max_id", "step", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS `{table}` (\n  \
             `{biz_tag}` varchar(128)  NOT NULL DEFAULT '',\n  \
             `{max_id}` bigint(20) NOT NULL DEFAULT '1',\n  \
             `{step}` int(11) NOT NULL,\n  \
             `description` varchar(256)  DEFAULT NULL,\n  \
             `{update_time}` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,\n  \
             PRIMARY KEY (`{biz_tag}`)\n\
             ) ENGINE=InnoDB"
            )
        }
        // tinyid's `tinyid-server/db.sql`.
        Scheme::TinyIdInfo => {
            let [biz_type, max_id, step, delta, remainder, version, update_time] =
                ["biz_type", "max_id", "step", "delta", "remainder", "version", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS `{table}` (\n  \
             `id` bigint(20) unsigned NOT NULL AUTO_INCREMENT COMMENT '自增主键',\n  \
             `{biz_type}` varchar(63) NOT NULL DEFAULT '' COMMENT '业务类型，唯一',\n  \
             `begin_id` bigint(20) NOT NULL DEFAULT '0' COMMENT '开始id，仅记录初始值，无其他含义。初始化时begin_id和max_id应相同',\n  \
             `{max_id}` bigint(20) NOT NULL DEFAULT '0' COMMENT '当前最大id',\n  \
             `{step}` int(11) DEFAULT '0' COMMENT '步长',\n  \
             `{delta}` int(11) NOT NULL DEFAULT '1' COMMENT '每次id增量',\n  \
             `{remainder}` int(11) NOT NULL DEFAULT '0' COMMENT '余数',\n  \
             `create_time` timestamp NOT NULL DEFAULT '2010-01-01 00:00:00' COMMENT '创建时间',\n  \
             `{update_time}` timestamp NOT NULL DEFAULT '2010-01-01 00:00:00' COMMENT '更新时间',\n  \
             `{version}` bigint(20) NOT NULL DEFAULT '0' COMMENT '版本号',\n  \
             PRIMARY KEY (`id`),\n  \
             UNIQUE KEY `uniq_biz_type` (`{biz_type}`)\n\
             ) ENGINE=InnoDB AUTO_INCREMENT=1 DEFAULT CHARSET=utf8 COMMENT 'id信息表'"
            )
        }
        // CosId's, from its guide.
        Scheme::Cosid => {
            let [name, last_max_id, last_fetch_time] =
                ["name", "last_max_id", "last_fetch_time"].map(|column| key.columns.in_ddl(column));
            format!(
                "create table if not exists `{table}`\n\
             (\n    \
             {name}            varchar(100) not null comment '{{namespace}}.{{name}}',\n    \
             {last_max_id}     bigint       not null default 0,\n    \
             {last_fetch_time} bigint       not null,\n    \
             constraint cosid_pk\n        \
             primary key ({name})\n\
             ) engine = InnoDB"
            )
        }
    }
}

/// The columns a scheme uses, each with its type where another would cut or wrap.
fn shape(key: &Key) -> (Vec<(&str, &'static str)>, Vec<&str>) {
    let (scheme, own) = (key.scheme, |column| key.columns.own(column));
    match Counter::of_key(key) {
        Some(counter) => {
            let wide = |column| if column == counter.maximum { "bigint" } else { "" };
            let columns = counter.needed().into_iter().map(|column| (column, wide(column)));
            (columns.collect(), vec![counter.name.0])
        }
        None if scheme.is_ticket() => {
            (vec![("id", "bigint"), ("stub", ""), ("step", "int")], tickets::unique(scheme))
        }
        None if scheme == Scheme::Keymill => {
            (vec![("name", ""), ("period", "bigint"), ("next", "bigint")], vec!["name"])
        }
        None => (
            ["TABLENAME", "COLUMNNAME", "MAXSERIALNO", "DATEFMT", "NOFMT"]
                .map(|column| (own(column), ""))
                .into(),
            ["TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"].map(own).into(),
        ),
    }
}

impl Session {
    /// Makes sure, once per connection, that the table is what the scheme needs. `false`: it is not there, or this user
    /// may not see it; the first statement's own error says which.
    pub(super) fn check_table(&mut self, key: &Key) -> Result<bool, Fault> {
        let answer = self.look_at_table(key);
        // On a connection whose answers belong to earlier questions every table has another shape. The next attempt asks on a
        // new one.
        self.broken |= answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Refused);
        answer
    }

    /// The same, and the connection is kept whatever is found: others may be served by it.
    pub(super) fn look_at_table(&mut self, key: &Key) -> Result<bool, Fault> {
        let Key { scheme, table, .. } = key;
        if *scheme == Scheme::Sequence {
            return self.check_sequence(key);
        }
        let place = key.place();
        if self.checked.iter().any(|(of, known)| of == scheme && *known == place) {
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
        let (needed, unique) = shape(key);
        for (name, data_type) in &needed {
            let column =
                columns.iter().find(|row| text(row, 0).is_some_and(|found| found.eq_ignore_ascii_case(name)));
            let Some(column) = column else { return Err(wrong(rows::missing_column(key, name))) };
            let found = text(column, 1).unwrap_or_default();
            if !data_type.is_empty() && !found.eq_ignore_ascii_case(data_type) {
                return Err(wrong(format!(
                    "column `{name}` is `{found}`, too narrow for `{data_type}`, alter it"
                )));
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
        if scheme.is_ticket() {
            self.check_step(key)?;
        }
        self.checked.push((*scheme, place));
        Ok(true)
    }

    /// One autocommitted statement for the common case: a segment, whose row is there in its period (0, or the share of one of
    /// several stores), not below the high water and not near its end. `None`: it is another case, and nothing was changed.
    ///
    /// `LAST_INSERT_ID(next) + n` puts the range's first number into the OK packet, which no proxy can mix up with
    /// another session's.
    pub(super) fn reserve_fast(&mut self, request: &Request) -> Result<Option<Reserved>, Fault> {
        let Some(Fast { sql, values, says }) = self.fast(request)? else { return Ok(None) };
        let (changed, id) = self.execute(&sql, values, Phase::Commit)?;
        self.understood(request, &says, changed, id)
    }

    /// One autocommitted compare-and-set: whether the row ended at `hi`, and now ends at `lo`. `None`: this server has no such
    /// statement.
    pub(super) fn give_back_fast(
        &mut self,
        key: &Key,
        period: u64,
        lo: u64,
        hi: u64,
    ) -> Result<Option<bool>, Fault> {
        if !self.server.dialect.has_fast_statement() {
            return Ok(None);
        }
        let ends = |next| Stored::Segment(Mark { period, next });
        let Some((sql, values)) = replacing(key, &ends(hi), &ends(lo))? else { return Ok(None) };
        match self.execute(&sql, values, Phase::Commit)? {
            (0, _) => Ok(Some(false)),
            (1, _) => Ok(Some(true)),
            (many, _) => {
                self.broken = true;
                let what =
                    format!("{many} rows of one key changed at once; the table has lost its primary key");
                Err(Fault::new(FaultKind::Refused, what))
            }
        }
    }

    pub(super) fn fast(&self, request: &Request) -> Result<Option<Fast>, Fault> {
        let key = &request.key;
        if let Some(counter) = Counter::of_key(key) {
            return self.leap(request, &counter);
        }
        let last = request.last.min(MAX_NUMBER);
        let Some(highest) = last.checked_sub(request.len).map(|below| below + 1) else { return Ok(None) };
        let lowest = request.high_water.next.max(1);
        if !self.server.dialect.has_fast_statement() || request.len == 0 {
            return Ok(None);
        }
        if key.scheme != Scheme::Keymill
            || key.serial.is_some()
            || (request.high_water != Mark::default() && request.high_water.period != request.period)
        {
            return Self::go_on(request);
        }
        let sql = format!(
            "UPDATE `{}` SET `next` = LAST_INSERT_ID(`next`) + ? WHERE `name` = ? AND `period` = ? \
             AND `next` >= ? AND `next` <= ?",
            key.table
        );
        let name = key.name.as_bytes();
        let values =
            vec![request.len.into(), name.into(), request.period.into(), lowest.into(), highest.into()];
        Ok(Some(Fast { sql, values, says: Says::First(lowest, highest) }))
    }

    /// What the OK packet of a fast statement says; `None` where it found no row and changed nothing.
    pub(super) fn understood(
        &mut self,
        request: &Request,
        says: &Says,
        changed: u64,
        id: u64,
    ) -> Result<Option<Reserved>, Fault> {
        let (len, period) = (request.len, request.period);
        let ((lowest, highest), reserved) = match says {
            _ if changed == 0 => return Ok(None),
            Says::Exactly(reserved) => ((reserved.lo, reserved.lo), Some(*reserved)),
            // id <= last + 1 - len, so the end is at most 2^63.
            Says::First(lowest, highest) => {
                let lo = Some(id).filter(|lo| (lowest..=highest).contains(&lo));
                ((*lowest, *highest), lo.map(|lo| Reserved { lo, hi: lo + len, period, ttl_ms: None }))
            }
            Says::Leapt(leap, known) => {
                (leap.from, Counter::of_key(&request.key).and_then(|counter| counter.leapt(leap, known, id)))
            }
        };
        if let (1, Some(reserved)) = (changed, reserved) {
            return Ok(Some(reserved));
        }
        self.broken = true;
        Err(Fault::new(
            FaultKind::Unknown,
            format!(
                "the server answered with {changed} rows and {id}, not one row from {lowest} to {highest}; that range is \
                 never used"
            ),
        ))
    }
}

/// One statement that reserves where nothing is out of the ordinary.
pub(super) struct Fast {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
    pub(super) says: Says,
}

/// What its answer says where it changed one row.
pub(super) enum Says {
    /// The first number; it lies between these.
    First(u64, u64),
    /// That this was reserved.
    Exactly(Reserved),
    /// The maximum after a leap of a row as it is known.
    Leapt(Leap, CounterRow),
}

impl Session {
    /// One autocommitted compare-and-set for serials: the row stands exactly where this process has left it. `None`: it does
    /// not, or there is something to be told; nothing was changed.
    fn go_on(request: &Request) -> Result<Option<Fast>, Fault> {
        let (key, seen) = (&*request.key, request.high_water);
        if seen.next == 0 {
            return Ok(None);
        }
        let Ok(reserved) = decide(Some(seen), request) else { return Ok(None) };
        let after = Mark { period: reserved.period, next: reserved.hi };
        let (Ok(old), Ok(new)) = (stored_at(key, seen), stored_at(key, after)) else { return Ok(None) };
        let replacing = replacing(key, &old, &new)?;
        Ok(replacing.map(|(sql, values)| Fast { sql, values, says: Says::Exactly(reserved) }))
    }
}

/// Reservations from the tables of IDSnowman and its kin.
impl Session {
    /// `UPDATE … SET cur_id = LAST_INSERT_ID(cur_id + n)`, autocommitted, of a row whose step and time to live have been
    /// read and are still the same. The end comes from the OK packet.
    fn leap(&self, request: &Request, counter: &Counter<'_>) -> Result<Option<Fast>, Fault> {
        let key = &request.key;
        let name = counter.row_name(key)?;
        let known = self.known.get(&(key.place(), name.to_owned())).copied();
        let Some(known) = known.filter(|_| self.server.dialect.has_fast_statement()) else {
            return Ok(None);
        };
        let Some(leap) = counter.leap(request, &known) else { return Ok(None) };
        let value = format!("LAST_INSERT_ID(`{}` + ?)", counter.maximum);
        let mut sql = counter.update(&key.table, &value, Tongue::MySql);
        let mut values: Vec<Value> =
            vec![leap.len.into(), name.into(), leap.from.0.into(), leap.from.1.into()];
        sql.push_str(&format!(" AND `{0}` >= ? AND `{0}` <= ?", counter.maximum));
        let own = counter.own;
        let stride =
            counter.stride.map(|(delta, remainder)| [(delta, own.delta()), (remainder, own.remainder())]);
        let same = [
            counter.step.map(|column| (column, known.step)),
            counter.ttl.map(|column| (column, known.ttl_s)),
        ];
        for (column, value) in same.into_iter().flatten().chain(stride.into_iter().flatten()) {
            sql.push_str(&format!(" AND `{column}` = ?"));
            values.push(value.into());
        }
        Ok(Some(Fast { sql, values, says: Says::Leapt(leap, known) }))
    }
}

/// Rows inside an open transaction of this session.
pub(super) struct Open<'a> {
    pub(super) session: &'a mut Session,
}

impl Open<'_> {
    /// Seconds since the row was changed, by the server's clock.
    pub(super) fn age(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        let Some((column, seconds)) = rows::touched(key) else { return Ok(None) };
        let age = if seconds {
            format!("UNIX_TIMESTAMP() - `{column}`")
        } else {
            format!("TIMESTAMPDIFF(SECOND, `{column}`, CURRENT_TIMESTAMP)")
        };
        let table = &key.table;
        let found = match (key.scheme, Counter::of_key(key)) {
            (Scheme::KeyProducer, _) => {
                let of = producer(key)?;
                let (row, _) = producer_row(key);
                let sql = format!("SELECT {age} FROM `{table}` WHERE {row}");
                self.session.ask(&sql, (of.table, of.column, of.date, of.number))?
            }
            (_, Some(counter)) => {
                let sql = format!("SELECT {age} FROM `{table}` WHERE `{}` = ?", counter.name.0);
                self.session.ask(&sql, (counter.row_name(key)?,))?
            }
            _ => {
                let sql = format!("SELECT {age} FROM `{table}` WHERE `name` = ?");
                self.session.ask(&sql, (key.name.as_bytes(),))?
            }
        };
        Ok(found.first().and_then(|row| number(row, 0)))
    }

    fn change(&mut self, sql: &str, values: impl Into<Params>) -> Result<bool, Fault> {
        match self.session.execute(sql, values, Phase::Write)?.0 {
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

/// The compare-and-set that makes `new` of a row that is `old`.
fn replacing(key: &Key, old: &Stored, new: &Stored) -> Result<Option<(String, Vec<Value>)>, Fault> {
    let table = &key.table;
    Ok(match (old, new) {
        (Stored::Segment(old), Stored::Segment(new)) => {
            let sql = format!(
                "UPDATE `{table}` SET `period` = ?, `next` = ? WHERE `name` = ? AND `period` = ? AND `next` = ?"
            );
            let name = key.name.as_bytes();
            Some((
                sql,
                vec![new.period.into(), new.next.into(), name.into(), old.period.into(), old.next.into()],
            ))
        }
        (Stored::Serial(old), Stored::Serial(new)) => {
            let of = producer(key)?;
            // `<=>` is equality that holds for two NULLs. Old nodes compare the same way, so whoever comes second
            // finds no row.
            let (row, serial) = producer_row(key);
            let sql = format!("UPDATE `{table}` SET `{serial}` = ? WHERE {row} AND `{serial}` <=> ?");
            let values =
                [new.into(), of.table.into(), of.column.into(), of.date.into(), of.number.into(), old.into()];
            Some((sql, values.into()))
        }
        (Stored::Counter(old), Stored::Counter(new)) => match Counter::of_key(key) {
            Some(counter) => {
                let mut values: Vec<Value> = vec![new.maximum.into(), counter.row_name(key)?.into()];
                values.push(old.maximum.into());
                values.extend(counter.version.map(|_| Value::from(old.version)));
                Some((counter.replace(table, Tongue::MySql), values))
            }
            None => None,
        },
        _ => None,
    })
}

impl Rows for Open<'_> {
    fn read(&mut self, key: &Key, lock: bool) -> Result<Option<Stored>, Fault> {
        let (table, lock) = (&key.table, if lock { self.session.for_update() } else { "" });
        match key.scheme {
            Scheme::Keymill => {
                let sql = format!("SELECT `period`, `next` FROM `{table}` WHERE `name` = ?{lock}");
                let found = self.session.ask(&sql, (key.name.as_bytes(),))?;
                let Some(row) = found.first() else { return Ok(None) };
                let cells = [cell(row, 0), cell(row, 1)];
                segment_of(key, &cells).map(|mark| Some(Stored::Segment(mark)))
            }
            Scheme::KeyProducer => {
                let of = producer(key)?;
                let (row, serial) = producer_row(key);
                let sql = format!("SELECT `{serial}` FROM `{table}` WHERE {row}{lock}");
                let found = self.session.ask(&sql, (of.table, of.column, of.date, of.number))?;
                let Some(row) = found.first() else { return Ok(None) };
                if matches!(row.as_ref(0), Some(Value::NULL)) {
                    return Ok(Some(Stored::Serial(None)));
                }
                text(row, 0).map(|text| Some(Stored::Serial(Some(text)))).ok_or_else(|| {
                    Fault::new(FaultKind::Refused, format!("its `{serial}` is no text; nothing was changed"))
                })
            }
            _ => {
                let Some(counter) = Counter::of_key(key) else { return Ok(None) };
                let name = counter.row_name(key)?;
                let found = self.session.ask(&format!("{}{lock}", counter.select(table)), (name,))?;
                let Some(row) = found.first() else { return Ok(None) };
                let cells: Vec<Cell> = (0..row.len()).map(|column| cell(row, column)).collect();
                let place = (key.place(), name.to_owned());
                self.session.known.remove(&place);
                let row = counter.row_of(key, &cells)?;
                self.session.known.insert(place, row);
                Ok(Some(Stored::Counter(row)))
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
                let columns = ["MAXSERIALNO", "TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"];
                let columns = columns.map(|column| format!("`{}`", key.columns.own(column))).join(", ");
                let sql = format!("INSERT INTO `{table}` ({columns}) VALUES (?, ?, ?, ?, ?)");
                self.change(&sql, (text, of.table, of.column, of.date, of.number))
            }
            Stored::Counter(row) => {
                let Some(counter) = Counter::of_key(key) else { return Ok(false) };
                let mut values: Vec<Value> = vec![counter.row_name(key)?.into()];
                values.extend(counter.insert_values(row).into_iter().map(Value::from));
                self.change(&counter.insert(table, Tongue::MySql), values)
            }
        };
        // Somebody else has just created it.
        if made.is_err() && std::mem::take(&mut self.session.duplicate) { Ok(false) } else { made }
    }

    fn replace(&mut self, key: &Key, old: &Stored, new: &Stored) -> Result<bool, Fault> {
        match replacing(key, old, new)? {
            Some((sql, values)) => self.change(&sql, values),
            None => Ok(false),
        }
    }

    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        let SerialKey { table, column, .. } = serial;
        // As text: of a binary column bytes would be counted, and MySQL matches no pattern with one (error 3995).
        let sql = format!(
            "SELECT `number` FROM (SELECT SUBSTRING(CONVERT(`{column}` USING utf8mb4), ?) AS `number` FROM `{table}` \
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
        let Params::Positional(values) = Params::from(values) else { return Ok(None) };
        let Some(question) = spelled(&sql, &values) else { return Ok(None) };
        let found = self.session.scan(serial, &question)?;
        Ok(found.first().and_then(|row| text(row, 0)))
    }

    fn new_owner(&mut self, key: &Key, record: &str) -> Result<Option<String>, Fault> {
        // As it stands now, not as it stood when the transaction began.
        let sql = format!(
            "SELECT `name` FROM `{}` WHERE `name` > ? AND `name` < ? ORDER BY `name` LIMIT 1 FOR UPDATE",
            key.table
        );
        let found = self.session.ask(&sql, (record.as_bytes(), rows::beyond(record).as_bytes()))?;
        let name = found.first().and_then(|row| text(row, 0));
        Ok(name.and_then(|name| name.strip_prefix(record).map(str::to_owned)))
    }
}
