//! Draws a world from a seed: databases, rows, machines, sources, callers, and the times of the faults.

use std::fmt::Write as _;
use std::sync::Arc;

use keymill::simulation::{MillConfig, Spec};

use super::check::KeyId;
use super::store::{MS, Micros, SECOND, Storm, Weather};

/// A minute.
pub const MINUTE: Micros = 60 * SECOND;

/// A fault and when it begins.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// The time.
    pub at: Micros,
    /// The fault.
    pub fault: Fault,
}

/// The faults.
#[allow(missing_docs, reason = "the fields say what they are")]
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A database's wire loses, cuts and refuses for a while.
    Storm { db: usize, storm: Storm, length: Micros },
    /// Every message becomes slow.
    SlowNet { db: usize, way: Micros, length: Micros },
    /// The server stops; requests that reached it are applied when it continues, whether their callers still wait or not.
    Freeze { db: usize, length: Micros },
    /// The server is killed and started again; every commit survives.
    Crash { db: usize, length: Micros },
    /// The server is replaced by a replica that stopped following a while ago.
    Failover { db: usize, lag: Micros },
    /// An older backup is restored.
    Restore { db: usize, age: Micros, cuts: bool },
    /// A row is deleted.
    Delete { row: KeyId },
    /// A row is set back by this many numbers.
    SetBack { row: KeyId, by: u64 },
    /// A machine's wall clock is set.
    Clock { machine: usize, by_ms: i64 },
    /// `kill -9`, and a start a while later.
    Kill { machine: usize, length: Micros },
    /// A clean close, and a start a while later.
    Close { machine: usize, length: Micros },
    /// A process forks; parent and child continue.
    Fork { machine: usize },
    /// SIGSTOP and SIGCONT.
    Pause { machine: usize, length: Micros },
    /// A machine cannot reach its database.
    Partition { machine: usize, length: Micros },
}

impl Fault {
    /// Its name where faults are counted.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Storm { .. } => "storm",
            Fault::SlowNet { .. } => "slow net",
            Fault::Freeze { .. } => "freeze",
            Fault::Crash { .. } => "store crash",
            Fault::Failover { .. } => "failover",
            Fault::Restore { .. } => "restored backup",
            Fault::Delete { .. } => "deleted row",
            Fault::SetBack { .. } => "row set back",
            Fault::Clock { by_ms, .. } if *by_ms < 0 => "clock back",
            Fault::Clock { .. } => "clock forward",
            Fault::Kill { .. } => "kill -9",
            Fault::Close { .. } => "clean close",
            Fault::Fork { .. } => "fork",
            Fault::Pause { .. } => "paused process",
            Fault::Partition { .. } => "partition",
        }
    }
}

/// A source that every process opens.
#[derive(Clone, Debug)]
pub struct SourcePlan {
    /// Its spec on each machine, or one for all.
    pub specs: Vec<Arc<Spec>>,
    /// Its row on database 0 or machine 0; the others follow.
    pub first_row: KeyId,
    /// A row of its own on every machine: a snowflake's worker.
    pub per_machine: bool,
    /// The mean time between calls.
    pub every: Micros,
    /// The most numbers that one call asks for.
    pub want: u64,
}

impl SourcePlan {
    /// The spec on this machine.
    #[must_use]
    pub fn spec(&self, machine: usize) -> &Arc<Spec> {
        &self.specs[if self.per_machine { machine } else { 0 }]
    }

    /// The row on this machine, whose database is `db`.
    #[must_use]
    pub fn row(&self, machine: usize, db: usize) -> KeyId {
        self.first_row + if self.per_machine { machine } else { db }
    }
}

/// An old KeyFactory node: Java, in the same table, on the same row.
#[derive(Clone, Copy, Debug)]
pub struct OldNode {
    /// The source whose row it uses.
    pub source: usize,
    /// Its database.
    pub db: usize,
    /// Numbers it reserves at a time.
    pub step: u64,
    /// How often.
    pub every: Micros,
}

/// The description of a world.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The source of all randomness.
    pub seed: u64,
    /// When callers stop.
    pub length: Micros,
    /// The time of a right clock at the start.
    pub wall_ms: i64,
    /// How databases behave.
    pub weather: Vec<Weather>,
    /// How long a client waits for an answer.
    pub timeout: Micros,
    /// Each machine's clock, compared with a right one.
    pub skews_ms: Vec<i64>,
    /// The sources.
    pub sources: Vec<SourcePlan>,
    /// How many rows there are.
    pub rows: usize,
    /// Old nodes.
    pub old: Vec<OldNode>,
    /// The faults, in order.
    pub faults: Vec<Planned>,
    /// Whether callers come at random or at fixed intervals.
    pub even: bool,
    /// How many requests a store takes in one batch.
    pub together: usize,
    /// Whether it carries a batch out as one transaction, or one by one.
    pub as_one: bool,
}

/// 2026-11-20T23:50:00Z: a run of half an hour sees midnight.
const BEFORE_MIDNIGHT_MS: i64 = 1_795_218_600_000;
/// 2026-10-25T00:50:00Z: ten minutes before the clocks of Berlin go back.
const BEFORE_WINTER_MS: i64 = 1_792_889_400_000;

impl Scenario {
    /// The world of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Scenario {
        let mut draw = Draw { rng: fastrand::Rng::with_seed(seed) };
        let machines = draw.machines();
        let length =
            if machines > 150 { draw.between(30, 60) * SECOND } else { draw.between(2, 40) * MINUTE };
        let dbs = 1 + usize::from(draw.one_in(4) && machines > 1);
        let mut scenario = Scenario {
            seed,
            length,
            wall_ms: draw.start(length),
            weather: (0..dbs).map(|_| draw.weather(machines)).collect(),
            timeout: draw.between(1, 5) * SECOND,
            skews_ms: draw.skews(machines),
            sources: Vec::new(),
            rows: 0,
            old: Vec::new(),
            faults: Vec::new(),
            even: false,
            together: 1,
            as_one: false,
        };
        // A generator of its own, so that worlds of old seeds stay as they were before stores took batches.
        let mut company = fastrand::Rng::with_seed(seed ^ 0x70_6765_7468_6572);
        scenario.together = [1, 2, 3, 64][company.usize(0..4)];
        scenario.as_one = company.bool();
        let with_old = draw.one_in(6);
        draw.sources(&mut scenario, with_old);
        draw.faults(&mut scenario, with_old);
        scenario
    }

    /// Adds a source of this spec, `{worker}` and all.
    ///
    /// # Panics
    /// If the spec is not valid: a defect of the scenario.
    pub fn add_source(&mut self, text: &str, every: Micros, want: u64) {
        let config = MillConfig::parse("memory:").expect("a configuration");
        let per_machine = text.contains("{worker}");
        let machines = if per_machine { self.skews_ms.len() } else { 1 };
        let specs: Vec<_> = (0..machines)
            .map(|machine| {
                Arc::new(config.spec(&text.replace("{worker}", &machine.to_string())).expect(text))
            })
            .collect();
        let twin =
            self.sources.iter().find(|s| s.specs[0].key.name == specs[0].key.name).map(|s| s.first_row);
        let first_row = twin.unwrap_or(self.rows);
        if twin.is_none() {
            self.rows += if per_machine { machines } else { self.weather.len() };
        }
        self.sources.push(SourcePlan { specs, first_row, per_machine, every, want });
    }
}

/// The random numbers.
struct Draw {
    rng: fastrand::Rng,
}

impl Draw {
    fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    fn between(&mut self, least: u64, most: u64) -> u64 {
        self.rng.u64(least..=most)
    }

    fn choose<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.usize(0..all.len())]
    }

    fn machines(&mut self) -> usize {
        match self.rng.u32(0..100) {
            0..60 => self.rng.usize(1..=6),
            60..85 => self.rng.usize(7..=30),
            85..98 => self.rng.usize(31..=150),
            _ => 1000,
        }
    }

    /// A start time from which the run may see a day end, an hour repeated, or neither.
    fn start(&mut self, length: Micros) -> i64 {
        let into = self.rng.i64(0..(length / MS) as i64);
        match self.rng.u32(0..3) {
            0 => BEFORE_MIDNIGHT_MS + 600_000 - into,
            1 => BEFORE_WINTER_MS + 600_000 - into,
            _ => BEFORE_MIDNIGHT_MS - 43_200_000 + into,
        }
    }

    fn weather(&mut self, machines: usize) -> Weather {
        Weather {
            way: self.between(100, 3 * MS),
            slow: self.choose(&[0, 1_000, 20_000]),
            slow_way: self.choose(&[50 * MS, 2 * SECOND, 10 * SECOND]),
            service: if machines > 30 { 100 } else { self.between(50, 500) },
        }
    }

    fn skews(&mut self, machines: usize) -> Vec<i64> {
        let most = self.choose(&[0, 200, 2_000, 20_000]);
        (0..machines).map(|_| self.rng.i64(-most..=most)).collect()
    }

    fn sources(&mut self, scenario: &mut Scenario, with_old: bool) {
        let machines = scenario.skews_ms.len() as u64;
        let count = if machines > 150 { 1 } else { self.between(1, 6) };
        // The total number of calls: it bounds the cost of a seed.
        let every = (scenario.length * machines * count / 40_000).max(2 * MS);
        for n in 0..count {
            let every = self.between(every / 2, every * 2);
            let want = self.choose(&[1, 1, 3, 50, 2_000]);
            match self.rng.u32(0..10) {
                0..5 => {
                    let text = self.segment(n);
                    // Small steps must not be asked for more than one batch at a time can fetch.
                    let want = if text.contains("max_step") { want.min(3) } else { want };
                    scenario.add_source(&text, every, want);
                    if self.one_in(8) {
                        let twin = format!("segment:s{n}?min_step={}", self.between(1, 300));
                        scenario.add_source(&twin, every, want);
                    }
                }
                5..8 => {
                    let text = self.serial(n, false);
                    scenario.add_source(&text, every, want.min(200));
                }
                _ => {
                    let text = self.snowflake(n);
                    scenario.add_source(&text, every, want.min(30));
                }
            }
        }
        if with_old {
            let source = scenario.sources.len();
            let text = self.serial(99, true);
            scenario.add_source(&text, every, 100);
            for db in 0..scenario.weather.len() {
                for _ in 0..self.between(1, 3) {
                    let (step, every) = (self.between(1, 700), self.between(200 * MS, 20 * SECOND));
                    scenario.old.push(OldNode { source, db, step, every });
                }
            }
            // Old nodes are safe beside ours while their clocks are good and no day ends (see `AHEAD_MS` in the planner).
            scenario.wall_ms = BEFORE_MIDNIGHT_MS - 43_200_000;
            let most = self.choose(&[0, 300]);
            for skew in &mut scenario.skews_ms {
                *skew = self.rng.i64(-most..=most);
            }
        }
    }

    fn segment(&mut self, n: u64) -> String {
        let step = match self.rng.u32(0..4) {
            0 => format!("step={}", self.between(1, 500)),
            1 => format!("min_step={}", self.between(1, 100)),
            2 => format!("min_step={}&max_step={}", self.between(1, 50), self.between(400, 4_000)),
            _ => "min_step=1000".to_owned(),
        };
        let mut text = format!("segment:s{n}?{step}&buffer={}", self.choose(&["1s", "5s", "30s"]));
        if self.one_in(4) {
            let _ = write!(text, "&ttl={}", self.choose(&["500ms", "10s", "3m"]));
        }
        if self.one_in(4) {
            let _ = write!(text, "&order=thread&block={}", self.choose(&[1, 7, 64, 1024]));
        }
        if self.one_in(5) {
            text += "&backwards=heal";
        }
        if self.one_in(12) {
            let _ = write!(text, "&start={}", i64::MAX as u64 - self.between(100, 200_000));
        }
        text
    }

    fn serial(&mut self, n: u64, old: bool) -> String {
        let date = if old {
            "yyyyMMdd"
        } else {
            self.choose(&[
                "yyyyMMdd",
                "yyyyMMdd",
                "yyyyMMddHH",
                "yyyyMMddHHmm",
                "'A'yyMMdd",
                "yyyyMMddHHmmss",
            ])
        };
        let mut text = format!("serial:t{n}/c?date={date}&step={}", self.between(1, 500));
        let _ = write!(text, "&zone={}", self.choose(&["UTC", "Europe/Berlin", "Asia/Kolkata"]));
        let _ = write!(text, "&buffer={}", self.choose(&["1s", "30s"]));
        let _ = write!(text, "&skew={}", self.choose(&["0ms", "1s", "5s", "30s"]));
        if old || self.one_in(3) {
            text += "&scheme=key_producer";
        }
        if !old && self.one_in(4) {
            let _ = write!(text, "&number=0000&overflow={}", self.choose(&["error", "widen"]));
        }
        if self.one_in(6) {
            text += "&order=thread&block=16";
        }
        if !old && self.one_in(8) {
            text += "&ttl=20s";
        }
        text
    }

    fn snowflake(&mut self, n: u64) -> String {
        let mut text = format!("snowflake:f{n}?worker={{worker}}");
        let _ = write!(
            text,
            "&layout={}",
            self.choose(&["twitter", "time:40@10ms,worker:10,seq:3", "time:32@1s,worker:10,seq:8"])
        );
        let _ = write!(text, "&max_lead={}", self.choose(&["1s", "3s", "60s"]));
        let _ = write!(text, "&clock_back={}", self.choose(&["borrow", "borrow", "wait", "error"]));
        // Ticks that are longer than the lead; from a generator of its own, so that worlds of old seeds stay as they were.
        let own =
            text.bytes().fold(self.rng.clone().u64(..), |sum, byte| sum.rotate_left(7) ^ u64::from(byte));
        if own.count_ones() % 2 == 0 {
            let (layout, lead) = [
                ("uid", "500ms"),
                ("sonyflake", "5ms"),
                ("sonyflake", "10ms"),
                ("time:34@4s,worker:10,seq:18", "3s"),
                ("time:33@10s,worker:10,seq:18", "3s"),
                ("time:33@10s,worker:10,seq:18", "60s"),
            ][own as usize % 6];
            text =
                format!("snowflake:f{n}?worker={{worker}}&layout={layout}&max_lead={lead}&clock_back=borrow");
        }
        text
    }

    fn faults(&mut self, scenario: &mut Scenario, with_old: bool) {
        let machines = scenario.skews_ms.len();
        let count = match self.rng.u32(0..10) {
            0 => 0,
            1..7 => self.between(1, 12),
            _ => self.between(12, 40 + machines as u64),
        };
        let forgets = !with_old && self.one_in(3);
        let clocks = !with_old && self.one_in(2);
        let end = scenario.length * 9 / 10;
        for _ in 0..count {
            let at = self.between(SECOND, end);
            let fault = self.fault(scenario, forgets, clocks);
            scenario.faults.push(Planned { at, fault });
        }
        scenario.faults.sort_by_key(|planned| planned.at);
    }

    fn fault(&mut self, scenario: &Scenario, forgets: bool, clocks: bool) -> Fault {
        let db = self.rng.usize(0..scenario.weather.len());
        let machine = self.rng.usize(0..scenario.skews_ms.len());
        let length = self.choose(&[200 * MS, 2 * SECOND, 10 * SECOND, 60 * SECOND]);
        let pick = self.rng.u32(0..100);
        if forgets && pick < 12 {
            let row = self.rng.usize(0..scenario.rows);
            return match self.rng.u32(0..4) {
                0 => Fault::Failover { db, lag: self.between(1, 5_000) * MS },
                1 => Fault::Restore { db, age: self.between(1, 300) * SECOND, cuts: self.one_in(2) },
                2 => Fault::Delete { row },
                _ => Fault::SetBack { row, by: self.between(1, 5_000) },
            };
        }
        if clocks && (12..35).contains(&pick) {
            let far = self.choose(&[1_000, 600_000, 2 * 86_400_000i64]);
            let by = self.rng.i64(1..=far);
            // A jump by days would end the run's periods for good; that happens too, but seldom.
            let back = self.rng.u32(0..3) > 0;
            return Fault::Clock { machine, by_ms: if back { -by } else { by } };
        }
        match pick {
            0..40 => {
                let storm = Storm {
                    lose: self.choose(&[0, 100_000, 500_000]),
                    cut: self.choose(&[0, 100_000, 300_000]),
                    refuse: self.choose(&[0, 100_000]),
                };
                Fault::Storm { db, storm, length: length * 3 }
            }
            40..46 => Fault::SlowNet { db, way: self.between(10 * MS, 6 * SECOND), length },
            46..54 => Fault::Freeze { db, length: length / 2 },
            54..60 => Fault::Crash { db, length: length / 4 },
            60..72 => Fault::Kill { machine, length: length / 2 },
            72..82 => Fault::Close { machine, length: length / 2 },
            82..88 => Fault::Fork { machine },
            88..94 => Fault::Pause { machine, length: length / 2 },
            _ => Fault::Partition { machine, length },
        }
    }
}
