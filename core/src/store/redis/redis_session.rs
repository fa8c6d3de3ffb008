//! A connection to a server that keeps rows: login, durability, the two scripts.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::{Cmd, Value, cmd};

use super::RedisOptions;
use super::redis_server::{Finding, RedisServer, questions, replicas_to_write};
use super::redis_slots;
use super::redis_wire::{CommandKind, RedisWire};
use crate::error::shown;
use crate::store::model::rows::{self, Answers, Digits, Rows, StoredRow};
use crate::store::server::{self, Target};
use crate::store::{
    Durability, Fault, FaultKind, Key, MAX_NUMBER, Mark, Partition, Request, Reserved, RowMark, RowStatus,
    RowsWork, Scheme, SerialKey,
};
use crate::time::Clock;

/// A script's text, and the hash under which a server knows it once it has run it.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Script {
        Script { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }
}

static RESERVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("reserve.lua")));
static REPLACE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("replace.lua")));

/// A connection that was idle for this long is pinged before use: firewalls and servers close idle connections.
const IDLE_MS: u64 = 30_000;

/// Settings that hold a password in clear, and the user of the second password.
const SECRETS: [&str; 3] = ["requirepass", "masterauth", "masteruser"];

pub(super) struct RedisSession {
    pub(super) wire: RedisWire,
    pub(super) server: RedisServer,
    pub(super) warnings: Vec<String>,
    /// As the Sentinels named it, if any are configured.
    pub(super) master: Option<(String, u16)>,
    durability: Durability,
    wait_replicas: u32,
    /// How long the server waits for replicas: shorter than the read timeout, so that too few of them still give an answer.
    wait: Duration,
    /// Boot time of the last answer.
    pub(super) used_ms: u64,
    /// The highest time that the server's clock has shown when a new period was compared with it, milliseconds since 1970.
    clock_ms: u64,
}

/// The Redis key of a row.
pub(super) fn place(key: &Key) -> String {
    format!("{}:{}", key.table, key.name)
}

impl RedisSession {
    /// Connects, logs in, and checks the settings that decide whether a commit survives.
    pub(super) fn open(target: &Target, options: &RedisOptions) -> Result<RedisSession, Fault> {
        let server = options.server.signed_in()?;
        let mut session = RedisSession {
            wire: RedisWire::open(target, &server)?,
            server: RedisServer::default(),
            warnings: Vec::new(),
            master: None,
            durability: options.server.durability,
            wait_replicas: options.wait_replicas,
            wait: options.server.read_timeout / 2,
            used_ms: Clock::System.boot_ms(),
            clock_ms: 0,
        };
        session.introduce(options, &server)?;
        Ok(session)
    }

    fn introduce(&mut self, options: &RedisOptions, server: &server::ServerOptions) -> Result<(), Fault> {
        let mut commands = Vec::new();
        let login = login(server);
        let logs_in = login.is_some();
        commands.extend(login);
        let database = options.server.database.as_str();
        let selects = !matches!(database, "" | "0");
        if selects {
            commands.push(cmd("SELECT").arg(database).take());
        }
        // A name in `CLIENT LIST`. A proxy or an ACL may refuse it, which is no fault.
        commands.push(cmd("CLIENT").arg("SETNAME").arg("keymill").take());
        commands.push(cmd("INFO"));
        commands.push(replicas_to_write());
        let asked = questions(true);
        commands.extend(asked.iter().cloned());
        let mut answers = match self.wire.exchange(&commands, CommandKind::Query) {
            Ok(answers) => answers.into_iter(),
            Err(fault) => return Err(fault.and(self.wire.silence())),
        };
        let mut next = || answers.next().unwrap_or_default();
        if logs_in {
            self.wire.answer(next())?;
        }
        if selects {
            self.wire.answer(next())?;
        }
        let _named = next();
        match self.wire.answer(next()) {
            Ok(info) => self.server = RedisServer::new(&text(&info).unwrap_or_default()),
            Err(fault) if fault.kind == FaultKind::Refused && !self.wire.broken => {
                self.warnings.push(format!("INFO cannot be read: {fault}"));
            }
            Err(fault) => return Err(fault),
        }
        self.server.take_config(&next());
        // A setting that cannot be read now cannot be read with a reservation either.
        self.server.take_answers(true, &answers.collect::<Vec<_>>());
        if let Some(why) = self.server.is_no_store() {
            return Err(Fault::new(FaultKind::Refused, why));
        }
        for finding in self.server.findings(options.wait_replicas, options.sentinel.is_some()) {
            match (finding, options.server.durability) {
                (Finding::Unsafe(found), Durability::Refuse) => {
                    return Err(Fault::new(
                        FaultKind::Unsafe,
                        format!("{found}, or accept the risk of duplicates with `durability=warn`"),
                    ));
                }
                (Finding::Unsafe(found) | Finding::Warning(found), _) => self.warnings.push(found),
            }
        }
        Ok(())
    }

    /// Passwords of the server that this user can read: `CONFIG GET` cannot be allowed for single settings. Their texts are
    /// looked at and dropped.
    pub(super) fn readable_secrets(&mut self) -> Result<Option<String>, Fault> {
        let questions = SECRETS.map(|name| cmd("CONFIG").arg("GET").arg(name).take());
        let answers = self.wire.exchange(&questions, CommandKind::Query)?;
        let is_set = |answer: &Value| {
            let has_text = |value: &Value| text(value).is_some_and(|value| !value.is_empty());
            match answer {
                Value::Array(pair) => pair.get(1).is_some_and(has_text),
                Value::Map(pairs) => pairs.iter().any(|(_, value)| has_text(value)),
                _ => false,
            }
        };
        let [of_default, of_masters, replicates] = [0, 1, 2].map(|at| answers.get(at).is_some_and(is_set));
        // With a `masteruser` the second one is the password of a user that may only replicate.
        let found: Vec<_> = [(of_default, SECRETS[0]), (of_masters && !replicates, SECRETS[1])]
            .into_iter()
            .filter_map(|(found, name)| found.then_some(name))
            .collect();
        if found.is_empty() {
            return Ok(None);
        }
        Ok(Some(format!(
            "this user can read {} by `CONFIG GET`, the password of a user that may do everything: keep the password of `default` in the ACL only, and name a `masteruser` that may only replicate (page Privileges and passwords)",
            found.join(" and ")
        )))
    }

    /// Whether the connection still answers; only an idle connection is asked.
    pub(super) fn is_alive(&mut self) -> bool {
        let idle = Clock::System.boot_ms().saturating_sub(self.used_ms);
        // Any answer is a sign of life. This query needs no right that a reservation does not need.
        idle <= IDLE_MS || self.wire.exchange(&questions(false), CommandKind::Query).is_ok()
    }

    /// Refuses to write to a server that is no master, and drops the connection: the next attempt may find another server.
    pub(super) fn writable(&mut self) -> Result<(), Fault> {
        if let Some(why) = self.server.not_writable(self.durability) {
            self.wire.broken = true;
            return Err(Fault::new(FaultKind::Unavailable, why));
        }
        if self.wait_replicas > 0 {
            // Checked before anything is reserved: a range that too few replicas have is never used.
            let acknowledged = self.wire.ask(self.wait_command())?;
            self.enough(&acknowledged, FaultKind::Unavailable, "nothing was reserved")?;
        }
        Ok(())
    }

    fn wait_command(&self) -> Cmd {
        let millis = u64::try_from(self.wait.as_millis()).unwrap_or(u64::MAX).max(1);
        cmd("WAIT").arg(self.wait_replicas).arg(millis).take()
    }

    fn enough(&self, acknowledged: &Value, kind: FaultKind, so: &str) -> Result<(), Fault> {
        let acknowledged = match acknowledged {
            Value::Int(count) => *count,
            _ => 0,
        };
        if acknowledged >= i64::from(self.wait_replicas) {
            return Ok(());
        }
        Err(Fault::new(
            kind,
            format!(
                "{acknowledged} of {} replicas (`wait_replicas`) have acknowledged, {so}",
                self.wait_replicas
            ),
        ))
    }

    /// Whether settings that lose commits are refused, and are therefore read with each change.
    fn refuses(&self) -> bool {
        self.durability == Durability::Refuse
    }

    /// The server's report right after a change, in the same pipeline. If it is no master any more, or has lost a setting
    /// that keeps commits, the change does not count and the connection is not used again: the next one is refused before
    /// anything is written.
    fn kept(&mut self, answers: &[Value]) -> Result<(), Fault> {
        let refuses = self.refuses();
        self.server.take_answers(refuses, answers);
        let so =
            "it was changed while this connection was open; the range that was just reserved is never used";
        if let Some(why) = self.server.not_writable(self.durability) {
            self.wire.broken = true;
            return Err(Fault::new(FaultKind::Unavailable, format!("{why}; {so}")));
        }
        if refuses && let Some(loss) = self.server.losses().into_iter().next() {
            self.wire.broken = true;
            return Err(Fault::new(
                FaultKind::Unsafe,
                format!("{loss}, or accept the risk of duplicates with `durability=warn`; {so}"),
            ));
        }
        Ok(())
    }

    /// Runs a script on one row. `changed` decides from its answer whether it wrote: then the replicas are waited for, and
    /// the server's report is checked.
    pub(super) fn run(
        &mut self,
        script: &Script,
        key: &Key,
        values: &[String],
        changed: impl Fn(&Value) -> bool,
    ) -> Result<Value, Fault> {
        let by_hash = cmd("EVALSHA").arg(&script.hash).take();
        let mut answers = self.say_script(by_hash, key, values)?;
        if matches!(answers.first(), Some(Value::ServerError(error)) if error.code() == "NOSCRIPT") {
            // The server was restarted, or does not know the script yet: nothing was done.
            let by_text = cmd("EVAL").arg(script.text).take();
            answers = self.say_script(by_text, key, values)?;
        }
        let mut answers = answers.into_iter();
        let answer = self.wire.answer(answers.next().unwrap_or_default())?;
        if !changed(&answer) {
            return Ok(answer);
        }
        if self.wait_replicas > 0 {
            let acknowledged = answers.next().unwrap_or_default();
            self.enough(
                &acknowledged,
                FaultKind::Unknown,
                "so a failover may lose that range, and it is never used",
            )?;
        }
        self.kept(&answers.collect::<Vec<_>>())?;
        Ok(answer)
    }

    fn say_script(&mut self, mut command: Cmd, key: &Key, values: &[String]) -> Result<Vec<Value>, Fault> {
        command.arg(1).arg(place(key)).arg(values);
        let mut commands = vec![command];
        if self.wait_replicas > 0 {
            commands.push(self.wait_command());
        }
        commands.extend(questions(self.refuses()));
        self.wire.exchange(&commands, CommandKind::Change)
    }

    /// Reserves in one round trip if the row is as expected. `None`: nothing was changed, and `rows` decides.
    pub(super) fn reserve_fast(&mut self, request: &Request) -> Result<Option<Reserved>, Fault> {
        let Some((lowest, highest)) = bounds(request) else { return Ok(None) };
        let values = fast_values(request, (lowest, highest));
        let wrote = |answer: &Value| *answer != Value::Nil;
        let answer = self.run(&RESERVE, &request.key, &values, wrote)?;
        self.understood(request, (lowest, highest), &answer)
    }

    /// The range in the script's answer.
    fn understood(
        &mut self,
        request: &Request,
        (lowest, highest): (u64, u64),
        answer: &Value,
    ) -> Result<Option<Reserved>, Fault> {
        if *answer == Value::Nil {
            return Ok(None);
        }
        let lo = text(answer).and_then(|text| text.parse::<u64>().ok());
        match lo {
            Some(lo) if (lowest..=highest).contains(&lo) => {
                Ok(Some(Reserved { lo, hi: lo + request.len, period: request.period, ttl_ms: None }))
            }
            // A range was reserved, but the answer does not say which.
            _ => {
                self.wire.broken = true;
                Err(Fault::new(
                    FaultKind::Unknown,
                    "the server's answer is not of keymill's script; that range is never used",
                ))
            }
        }
    }

    /// The same for several requests, each with a script of its own, in one pipeline. No range counts before the last
    /// answer. `None`: nothing was changed for this request.
    pub(super) fn reserve_together(&mut self, requests: &[Request]) -> Answers {
        let mut answers = vec![None; requests.len()];
        let mut commands = Vec::with_capacity(requests.len() + 1);
        let mut taken = Vec::with_capacity(requests.len());
        for (at, request) in requests.iter().enumerate() {
            let Some(bounds) = check(&request.key).ok().and_then(|()| bounds(request)) else { continue };
            let values = fast_values(request, bounds);
            let mut command = cmd("EVALSHA");
            command.arg(&RESERVE.hash).arg(1).arg(place(&request.key)).arg(&values);
            commands.push(command);
            taken.push((at, request, bounds));
        }
        if taken.is_empty() {
            return answers;
        }
        if self.wait_replicas > 0 {
            commands.push(self.wait_command());
        }
        commands.extend(questions(self.refuses()));
        let (said, cut) = self.wire.exchange_until_cut(&commands, CommandKind::Change);
        let kept = self.counts(said.get(taken.len()..).unwrap_or_default(), cut.as_ref());
        let mut said = said.into_iter();
        for (at, request, bounds) in taken {
            let understood = match said.next() {
                Some(answer) => self.counted(request, bounds, answer, &kept),
                // The connection broke before this request's answer.
                None => cut.clone().map_or(Ok(None), Err),
            };
            if let Some(answer) = answers.get_mut(at) {
                *answer = understood.transpose();
            }
        }
        answers
    }

    /// Whether ranges reserved together count, by the answers that follow the scripts' answers: enough replicas have them,
    /// and the server's settings keep them.
    fn counts(&mut self, after: &[Value], cut: Option<&Fault>) -> Result<(), Fault> {
        if let Some(cut) = cut {
            return Err(cut.clone());
        }
        let mut after = after;
        if self.wait_replicas > 0 {
            let (acknowledged, rest) = after.split_first().unwrap_or((&Value::Nil, &[]));
            let so = "so a failover may lose that range, and it is never used";
            self.enough(acknowledged, FaultKind::Unknown, so)?;
            after = rest;
        }
        self.kept(after)
    }

    /// One of several answers; a reserved range counts only if it is kept.
    fn counted(
        &mut self,
        request: &Request,
        bounds: (u64, u64),
        answer: Value,
        kept: &Result<(), Fault>,
    ) -> Result<Option<Reserved>, Fault> {
        if matches!(&answer, Value::ServerError(error) if error.code() == "NOSCRIPT") {
            // The server was restarted: nothing was done, and a request on its own sends the script again.
            return Ok(None);
        }
        let answer = self.wire.answer(answer)?;
        match self.understood(request, bounds, &answer)? {
            Some(reserved) => kept.clone().map(|()| Some(reserved)),
            None => Ok(None),
        }
    }
}

/// The script's arguments after the row's key.
fn fast_values(request: &Request, (lowest, highest): (u64, u64)) -> [String; 9] {
    let row = request.key.row_at(Mark { period: request.period, next: 0 });
    let [period, _, state, stores, store, chunk, writer] = fields(row.by(request.writer));
    let [lowest, highest, len] = [lowest, highest, request.len].map(|number| number.to_string());
    [period, lowest, highest, len, state, stores, store, chunk, writer]
}

/// The fields of a row.
const FIELDS: [&str; 7] = ["date", "next", "state", "stores", "store", "chunk", "writer"];

/// What the builds before 0.2.0 called `date`. Their scripts need it, so they refuse today's rows.
const EARLIER_DATE: &str = "period";

/// The values of a row's fields.
fn fields(RowMark { mark, status, writer }: RowMark) -> [String; FIELDS.len()] {
    let [period, next] = [mark.period, mark.next].map(|number| number.to_string());
    let [stores, store, chunk] = Partition::columns(status.partition).map(|number| number.to_string());
    [period, next, status.state.word().to_owned(), stores, store, chunk, writer.to_string()]
}

/// The arguments of a compare-and-set; an old row of empty fields is none.
fn replacing(old: Option<RowMark>, new: RowMark) -> Vec<String> {
    let old = old.map_or_else(Default::default, fields);
    old.into_iter().chain(fields(new)).collect()
}

/// The bounds of the next number between which the script may reserve; `None` where `rows` decides. The last number, and
/// every number above 2^63-1, exceeds the server's integers.
fn bounds(request: &Request) -> Option<(u64, u64)> {
    let seen = request.high_water;
    if request.len == 0 || seen.period > request.period || request.period > request.period_max {
        return None;
    }
    let lowest = if seen.period == request.period { seen.next.max(1) } else { 1 };
    let highest = request.last_of_whole().min(MAX_NUMBER - 1).checked_sub(request.len - 1)?;
    (lowest <= highest).then_some((lowest, highest))
}

pub(super) fn login(options: &crate::store::server::ServerOptions) -> Option<Cmd> {
    let (user, password) = (options.user.as_str(), options.password.reveal());
    match (user, password) {
        ("", "") => None,
        ("", password) => Some(cmd("AUTH").arg(password).take()),
        (user, password) => Some(cmd("AUTH").arg(user).arg(password).take()),
    }
}

/// The text of an answer; `None` for anything else.
pub(super) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text.clone()),
        _ => None,
    }
}

/// The texts that a command answers with; `None` for each that is missing.
pub(super) fn ask_texts(
    session: &mut RedisSession,
    command: redis::Cmd,
) -> Result<Vec<Option<String>>, Fault> {
    let answer =
        session.wire.exchange(&[command], CommandKind::Query)?.into_iter().next().unwrap_or_default();
    match session.wire.answer(answer)? {
        Value::Array(fields) => Ok(fields.iter().map(text).collect()),
        _ => Ok(Vec::new()),
    }
}

/// Rows of an open session. Each verb of `rows` reads and then writes once, by compare-and-set: that write is the commit.
pub(super) struct Open<'a> {
    pub(super) session: &'a mut RedisSession,
}

impl Open<'_> {
    fn set(&mut self, key: &Key, old: Option<RowMark>, new: &StoredRow) -> Result<bool, Fault> {
        let values = replacing(old, segment(new)?);
        let done = Value::Int(1);
        Ok(self.session.run(&REPLACE, key, &values, |answer| *answer == done)? == done)
    }
}

/// Redis keeps rows of scheme `keymill` only, which `check` ensures.
fn segment(stored: &StoredRow) -> Result<RowMark, Fault> {
    match stored {
        StoredRow::Segment(row) => Ok(*row),
        _ => Err(Fault::new(FaultKind::Refused, "Redis keeps scheme=keymill only")),
    }
}

impl Rows for Open<'_> {
    fn read(&mut self, key: &Key, _lock: bool) -> Result<Option<StoredRow>, Fault> {
        let at = place(key);
        let mut answers = self.session.wire.exchange(&look_up(&at), CommandKind::Query)?.into_iter();
        let expires = self.session.wire.answer(answers.next().unwrap_or_default())?;
        let fields = self.session.wire.answer(answers.next().unwrap_or_default())?;
        Ok(row_of(&at, fields, &expires)?.map(StoredRow::Segment))
    }

    fn insert(&mut self, key: &Key, new: &StoredRow) -> Result<bool, Fault> {
        self.set(key, None, new)
    }

    fn replace(&mut self, key: &Key, old: &StoredRow, new: &StoredRow) -> Result<bool, Fault> {
        self.set(key, Some(segment(old)?), new)
    }

    fn clock_ms(&mut self, enough_ms: u64) -> Result<Option<u64>, Fault> {
        if self.session.clock_ms < enough_ms {
            match redis_slots::now_ms(self.session) {
                Ok(now_ms) => self.session.clock_ms = now_ms,
                // `+time` is optional, and the page says what is not compared without it.
                Err(fault) if fault.native.as_deref() == Some("NOPERM") => return Ok(None),
                Err(fault) => return Err(fault),
            }
        }
        Ok(Some(self.session.clock_ms))
    }

    fn largest(
        &mut self,
        _serial: &SerialKey,
        _prefix: &str,
        _digits: Digits,
    ) -> Result<Option<String>, Fault> {
        Err(Fault::new(FaultKind::Refused, "`init=max` reads a business table, and Redis has none"))
    }

    fn new_owner(&mut self, _key: &Key, _record: &str) -> Result<Option<String>, Fault> {
        // Redis keeps no rows of other programs.
        Ok(None)
    }
}

/// The questions for a row. Another client may make it between the two: then it is there, and was made without an end.
fn look_up(at: &str) -> [Cmd; 2] {
    [cmd("PTTL").arg(at).take(), cmd("HMGET").arg(at).arg(&FIELDS).arg(EARLIER_DATE).take()]
}

/// The row in the answers to them.
fn row_of(at: &str, fields: Value, expires: &Value) -> Result<Option<RowMark>, Fault> {
    match expires {
        Value::Int(-2) if matches!(&fields, Value::Array(fields) if fields.iter().all(|field| *field == Value::Nil)) =>
        {
            return Ok(None);
        }
        Value::Int(-2 | -1) => {}
        _ => {
            return Err(Fault::new(
                FaultKind::Unsafe,
                format!("its key `{at}` expires, and a row that is gone is begun anew; run `PERSIST {at}`"),
            ));
        }
    }
    let Value::Array(fields) = fields else { return Err(no_row(at, "no hash")) };
    let kept = |name: &str| {
        let field = FIELDS.iter().position(|field| *field == name);
        let kept = field.and_then(|field| fields.get(field)).and_then(text);
        kept.ok_or_else(|| no_row(at, &format!("no `{name}`")))
    };
    let number = |name: &str| {
        let kept = kept(name)?;
        match kept.parse::<u64>() {
            // As the script reads it: servers write neither `007` nor `+7`.
            Ok(number) if number.to_string() == kept => Ok(number),
            _ => Err(no_row(at, &format!("{name}={}", shown(&kept)))),
        }
    };
    let row = format!("its key `{at}`");
    let has_earlier_date = fields.get(FIELDS.len()).and_then(text).is_some();
    if has_earlier_date && kept("date").is_err() {
        return Err(rows::of_earlier_build(&row, "it has `period` in place of `date`"));
    }
    let mark = Mark { period: number("date")?, next: number("next")? };
    let state = rows::state_of(&row, Some(&kept("state")?))?;
    let partition = rows::partition_of(&row, [number("stores")?, number("store")?, number("chunk")?])?;
    let writer = number("writer")?;
    Ok(Some(RowMark { mark, status: RowStatus { state, partition }, writer }))
}

impl RedisSession {
    /// Reads many rows in one pipeline; the fault of a key that is no row is that row's own.
    pub(super) fn read_many(
        &mut self,
        keys: &[Arc<Key>],
    ) -> Result<Vec<Result<Option<RowMark>, Fault>>, Fault> {
        let places: Vec<_> = keys.iter().map(|key| place(key)).collect();
        let commands: Vec<_> = places.iter().flat_map(|at| look_up(at)).collect();
        let mut answers = self.wire.exchange(&commands, CommandKind::Query)?.into_iter();
        let mut found = Vec::with_capacity(keys.len());
        for at in &places {
            let (expires, fields) = (answers.next().unwrap_or_default(), answers.next().unwrap_or_default());
            let row = match (self.wire.answer(fields), self.wire.answer(expires)) {
                (Ok(fields), Ok(expires)) => row_of(at, fields, &expires),
                (Err(fault), _) | (_, Err(fault)) => Err(fault),
            };
            if self.wire.broken {
                return Err(row.err().unwrap_or_else(rows::moved_on));
            }
            found.push(row);
        }
        Ok(found)
    }

    /// Reads many rows in one pipeline and writes what `work` decides in a second one, each row by compare-and-set.
    pub(super) fn change_many(
        &mut self,
        keys: &[Arc<Key>],
        work: &mut RowsWork<'_>,
    ) -> Result<Vec<bool>, Fault> {
        let found = self.read_many(keys)?;
        let mut written = vec![true; keys.len()];
        let (mut changed, mut changes) = (Vec::new(), Vec::new());
        for (at, (key, row)) in keys.iter().zip(found).enumerate() {
            let before = row.as_ref().ok().copied().flatten();
            let Some(after) = work.run(at, row).filter(|after| Some(*after) != before) else { continue };
            changes.push((place(key), replacing(before, segment(&rows::stored_as(key, after)?)?)));
            changed.push(at);
        }
        if changed.is_empty() {
            return Ok(written);
        }
        let mut answers = self.say_changes("EVALSHA", &REPLACE.hash, &changes)?;
        let is_unknown =
            |answer: &Value| matches!(answer, Value::ServerError(error) if error.code() == "NOSCRIPT");
        if answers.iter().take(changes.len()).all(is_unknown) {
            // The server was restarted, or does not know the script yet: nothing was done.
            answers = self.say_changes("EVAL", REPLACE.text, &changes)?;
        }
        let after = answers.split_off(changes.len().min(answers.len()));
        self.counts(&after, None)?;
        for (at, answer) in changed.into_iter().zip(answers) {
            let done = self.wire.answer(answer)? == Value::Int(1);
            if let Some(written) = written.get_mut(at) {
                *written = done;
            }
        }
        Ok(written)
    }

    /// Sends a script for each row in one pipeline, with the server's report behind them.
    fn say_changes(
        &mut self,
        how: &str,
        script: &str,
        changes: &[(String, Vec<String>)],
    ) -> Result<Vec<Value>, Fault> {
        let mut commands: Vec<Cmd> = changes
            .iter()
            .map(|(at, values)| cmd(how).arg(script).arg(1).arg(at).arg(values.as_slice()).take())
            .collect();
        if self.wait_replicas > 0 {
            commands.push(self.wait_command());
        }
        commands.extend(questions(self.refuses()));
        self.wire.exchange(&commands, CommandKind::Change)
    }
}

fn no_row(at: &str, found: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "its key `{at}` is no row of keymill's, a hash of {}: it has {found}; nothing was changed",
            FIELDS.map(|field| format!("`{field}`")).join(", ")
        ),
    )
}

/// Refuses a key that Redis cannot keep.
pub(super) fn check(key: &Key) -> Result<(), Fault> {
    rows::check_table_name(&key.table)?;
    if matches!(key.scheme, Scheme::Keymill | Scheme::Worker | Scheme::Route) {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!("scheme `{}` is a table of a database; Redis keeps `scheme=keymill`", key.scheme.name()),
    ))
}
