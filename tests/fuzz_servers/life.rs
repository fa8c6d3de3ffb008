//! The life of one mill behind a corrupting proxy, and what it must never see.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Error, Mill, Source};
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, postgres, redis};

use crate::corrupt::{Corrupter, Wire};

/// The password of all three servers.
const PASSWORD: &str = "secret";
/// How long the sources' callers wait; and how late an answer may be on a machine that is busy.
const DEADLINE: Duration = Duration::from_millis(400);
const LATE: Duration = Duration::from_secs(20);
/// How long a mill may take to find that its server is well again: its longest rest, and connects that time out.
const HEALED: Duration = Duration::from_secs(180);

/// What a seed counted.
#[derive(Debug, Default)]
pub struct Outcome {
    pub corrupted: u64,
    pub calls: u64,
    pub refused: u64,
    pub ids: u64,
    pub panics: u64,
}

impl Outcome {
    pub fn add(&mut self, other: &Outcome) {
        self.corrupted += other.corrupted;
        self.calls += other.calls;
        self.refused += other.refused;
        self.ids += other.ids;
        self.panics += other.panics;
    }
}

pub struct Life {
    seed: u64,
    rng: fastrand::Rng,
    wire: Wire,
    proxy: Corrupter,
    outcome: Outcome,
    last: u64,
    /// The ids of leased workers and of the bank.
    others: HashSet<u64>,
}

/// Every operator's call ends within this.
const OPERATOR: Duration = Duration::from_secs(30);

/// The name of the route table that all mills read.
const ROUTER: &str = "fuzz";

/// The server of a wire: host, port, and what its URLs look like.
fn server(wire: Wire) -> (String, (String, u16)) {
    let (url, hosts) = match wire {
        Wire::Mysql => (mariadb::url(), mariadb::options_of(&mariadb::url()).hosts),
        Wire::Postgres => (postgres::url(), postgres::options_of(&postgres::url()).hosts),
        Wire::Redis => (redis::url(), redis::options_of(&redis::url()).server.hosts),
    };
    (url, hosts[0].clone())
}

/// Makes the tables, without a proxy in between.
pub fn prepare() {
    for wire in [Wire::Mysql, Wire::Postgres] {
        let mill = Mill::open(&server(wire).0).expect("a mill");
        persistently(|| mill.init(&[], Change::Apply)).expect("a table");
        persistently(|| mill.init(&["snowflake:fuzz"], Change::Apply)).expect("a table");
    }
    let mysql = Mill::open(&server(Wire::Mysql).0).expect("a mill");
    persistently(|| mysql.init(&["snowflake:fuzz?worker=disposable"], Change::Apply)).expect("a table");
    for wire in [Wire::Mysql, Wire::Postgres, Wire::Redis] {
        let mill = Mill::open(&server(wire).0).expect("a mill");
        let table = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\n";
        persistently(|| mill.put_routes(ROUTER, table, Change::Apply)).expect("a table");
    }
}

impl Life {
    pub fn new(seed: u64) -> Life {
        let mut rng = fastrand::Rng::with_seed(seed);
        let wire = [Wire::Mysql, Wire::Postgres, Wire::Redis][(seed % 3) as usize];
        let proxy = Corrupter::start(wire, server(wire).1, &mut rng);
        Life { seed, rng, wire, proxy, outcome: Outcome::default(), last: 0, others: HashSet::new() }
    }

    /// The seed's story; what it found wrong, if anything.
    pub fn live(mut self) -> Result<Outcome, String> {
        let wire = self.wire;
        self.story().map_err(|why| format!("{wire:?}: {why}"))?;
        self.outcome.corrupted = self.proxy.corrupted();
        Ok(self.outcome)
    }

    fn story(&mut self) -> Result<(), String> {
        let (url, (host, port)) = server(self.wire);
        let url = url.replace(&format!("{host}:{port}"), &format!("127.0.0.1:{}", self.proxy.port()));
        let mill = Mill::open(&format!("{url}?connect_timeout=1s&timeout=1s&durability=warn"))
            .map_err(|e| e.to_string())?;
        // A run again finds rows of its own.
        let name = format!("fuzz-{}-{}", self.seed, std::process::id());
        let deadline = DEADLINE.as_millis();
        let open = |spec: &str| mill.source(spec).map_err(|e| e.to_string());
        let orders = open(&format!("segment:{name}?step=5&max_step=5&deadline={deadline}ms"))?;
        let others = open(&format!("segment:{name}-b?deadline={deadline}ms"))?;
        let serials =
            open(&format!("serial:{name}/no?scheme=keymill&zone=UTC&number=000000&deadline={deadline}ms"))?;
        let flakes = open(&format!("snowflake:{name}?worker=5&deadline={deadline}ms"))?;
        let leased = open(&format!("snowflake:{name}-l?lease=1s&deadline={deadline}ms"))?;
        let bank = open(&format!("business:{name}?counters=4&deadline={deadline}ms"))?;
        // Only this server has uid-generator's table.
        let once = match self.wire {
            Wire::Mysql => {
                Some(open(&format!("snowflake:{name}-d?worker=disposable&deadline={deadline}ms"))?)
            }
            _ => None,
        };
        for _ in 0..self.rng.u32(12..40) {
            match self.rng.u8(0..21) {
                0..=4 => self.next(&orders)?,
                5..=6 => {
                    let count = self.rng.usize(1..30);
                    self.take(&orders, count)?;
                }
                7 => drop(self.timed(DEADLINE, || others.next())?),
                8 => drop(self.timed(DEADLINE, || serials.next_text())?),
                9 => drop(self.timed(DEADLINE, || flakes.next())?),
                10 => drop(self.timed(OPERATOR, || orders.row())?),
                11 => drop(self.timed(OPERATOR, || mill.facts())?),
                12..=13 => {
                    let ids = self.timed(DEADLINE, || leased.take(5))?;
                    self.distinct(ids)?;
                }
                14..=15 => {
                    let key = self.rng.u64(0..8);
                    let ids = self.timed(DEADLINE, || bank.take_for(key, 5))?;
                    self.distinct(ids)?;
                }
                16 => drop(self.timed(OPERATOR, || mill.router(ROUTER))?),
                17 => drop(self.timed(OPERATOR, || bank.status())?),
                18 => {
                    let to = self.rng.u64(1..1 << 40);
                    drop(self.timed(OPERATOR, || others.repair(to, Change::Apply))?);
                }
                19 => drop(self.timed(OPERATOR, || mill.stored_routers())?),
                _ => {
                    let ids = once.as_ref().map(|once| self.timed(DEADLINE, || once.take(5)));
                    self.distinct(ids.transpose()?.flatten())?;
                }
            }
        }
        // Some close while the server still answers wrongly.
        if self.rng.u8(0..4) > 0 {
            self.heals(&mill, &orders)?;
        }
        self.tells_no_secret(&mill)?;
        self.timed(OPERATOR, || {
            mill.close();
            Ok(())
        })?;
        match orders.next() {
            Err(error) if error.code == Code::Closed => Ok(()),
            other => Err(format!("after the close: {other:?}")),
        }
    }

    fn next(&mut self, source: &Source) -> Result<(), String> {
        if let Some(id) = self.timed(DEADLINE, || source.next())? {
            self.got(&[id])?;
        }
        Ok(())
    }

    fn take(&mut self, source: &Source, count: usize) -> Result<(), String> {
        match self.timed(DEADLINE, || source.take(count))? {
            Some(ids) if ids.len() == count => self.got(&ids),
            Some(ids) => Err(format!("{} ids instead of {count}", ids.len())),
            None => Ok(()),
        }
    }

    /// The ids of one mill rise, so none of them comes twice.
    fn got(&mut self, ids: &[u64]) -> Result<(), String> {
        for &id in ids {
            if id <= self.last || id >= 1 << 63 {
                return Err(format!("id {id} after {}", self.last));
            }
            self.last = id;
        }
        self.outcome.ids += ids.len() as u64;
        Ok(())
    }

    /// The ids of leased workers and of a bank come once, whatever the server says.
    fn distinct(&mut self, ids: Option<Vec<u64>>) -> Result<(), String> {
        let ids = ids.unwrap_or_default();
        self.outcome.ids += ids.len() as u64;
        match ids.into_iter().find(|id| !self.others.insert(*id)) {
            Some(id) => Err(format!("{id} was handed out twice")),
            None => Ok(()),
        }
    }

    fn timed<T>(
        &mut self,
        limit: Duration,
        verb: impl FnOnce() -> keymill::Result<T>,
    ) -> Result<Option<T>, String> {
        let started = Instant::now();
        let answer = verb();
        let took = started.elapsed();
        self.outcome.calls += 1;
        if took > limit + LATE {
            return Err(format!("a call took {took:?}, and its deadline is {limit:?}"));
        }
        match answer {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                self.outcome.refused += 1;
                allowed(&error)?;
                Ok(None)
            }
        }
    }

    /// Nothing is corrupted any more: ids come, or the store says why its row is unusable.
    fn heals(&mut self, mill: &Mill, orders: &Source) -> Result<(), String> {
        self.proxy.heal();
        let give_up = Instant::now() + HEALED;
        loop {
            match orders.next() {
                Ok(id) => return self.got(&[id]),
                // A corrupted answer was accepted like the server's own: the row is lower than that answer said.
                Err(error)
                    if matches!(
                        error.code,
                        Code::StoreWentBackwards | Code::Exhausted | Code::ClockBehind
                    ) =>
                {
                    return allowed(&error);
                }
                Err(error) => {
                    allowed(&error)?;
                    if Instant::now() > give_up {
                        return Err(format!("not healed: {error}; {:?}", mill.events().last()));
                    }
                    std::thread::sleep(error.retry_after.unwrap_or_default().min(Duration::from_millis(50)));
                }
            }
        }
    }

    /// Neither events nor figures hold the password; the keeper was never started anew.
    fn tells_no_secret(&mut self, mill: &Mill) -> Result<(), String> {
        for event in mill.events() {
            clean(&event.to_string())?;
        }
        let metrics = mill.metrics();
        clean(&metrics)?;
        let figure = |name: &str| {
            metrics
                .lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
                .unwrap_or(u64::MAX)
        };
        self.outcome.panics = figure("keymill_driver_panics_total");
        if figure("keymill_keeper_restarts_total") != 0 {
            return Err("the keeper was started anew".to_owned());
        }
        Ok(())
    }
}

/// Whether a text can be shown: it holds no password, and no control character for a terminal.
fn clean(text: &str) -> Result<(), String> {
    if text.contains(PASSWORD) {
        return Err(format!("the password stands in: {text}"));
    }
    match text.chars().find(|c| c.is_control() && *c != '\n') {
        Some(c) => Err(format!("{c:?} stands in: {text:?}")),
        None => Ok(()),
    }
}

/// The codes that a caller may get if a server answers wrongly.
fn allowed(error: &Error) -> Result<(), String> {
    clean(&error.to_string())?;
    match error.code {
        Code::StoreUnavailable
        | Code::StoreRefused
        | Code::StoreWentBackwards
        | Code::StoreUnsafe
        | Code::Deadline
        | Code::ClockBehind
        | Code::LeaseLost
        | Code::NoWorkerFree
        | Code::NotReady
        | Code::InvalidConfig
        | Code::LayoutEnded
        | Code::Exhausted
        | Code::NumberOverflow => Ok(()),
        _ => Err(format!("told {error}")),
    }
}
