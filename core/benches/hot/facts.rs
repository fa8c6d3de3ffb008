//! Figures that are no ratio of two rows.

use std::time::{Duration, Instant};

use keymill::Mill;
use serde_json::{Value, json};

use super::harness::{consume, cpu_time, median, process_cpu_time};
use super::{ENDLESS, open};

/// A figure that is no ratio of two rows: name, value, unit, the goal as text, and whether it is met.
pub struct Fact {
    pub name: String,
    pub value: f64,
    pub unit: &'static str,
    pub goal: &'static str,
    pub met: Option<bool>,
}

impl Fact {
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Fact {
        Fact { name: name.into(), value, unit, goal: "", met: None }
    }

    pub fn goal(self, goal: &'static str, met: bool) -> Fact {
        Fact { goal, met: Some(met), ..self }
    }

    pub fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }

    pub fn json(&self) -> Value {
        json!({ "row": self.name, "value": self.value, "unit": self.unit, "goal": self.goal, "verdict": self.verdict() })
    }
}

/// Ids per wall second of a loop, after a time that is not counted.
pub fn sustained(before: Duration, counted: Duration, mut next: impl FnMut() -> u64) -> f64 {
    let mut run = |time: Duration| {
        let (started, mut ids) = (Instant::now(), 0_u64);
        while started.elapsed() < time {
            for _ in 0..64 {
                consume(next());
            }
            ids += 64;
        }
        ids as f64 / started.elapsed().as_secs_f64()
    };
    run(before);
    run(counted)
}

/// A fresh source with default options for two seconds; its refills count.
pub fn defaults() -> Vec<Fact> {
    let mill = Mill::open("memory:").expect("a mill");
    let mut facts = Vec::new();
    for (spec, text) in [
        ("segment:cold", false),
        ("segment:cold_thread?order=thread", false),
        ("serial:cold/id?zone=UTC&number=000000000000000", true),
    ] {
        let source = open(&mill, spec);
        let mut buffer = [0; 64];
        let cpu = cpu_time();
        let counted = Duration::from_secs(2);
        let rate = sustained(Duration::ZERO, counted, || {
            if text {
                source.write_text(&mut buffer).expect("a serial") as u64
            } else {
                source.next().expect("an id")
            }
        });
        let busy = cpu_time().saturating_sub(cpu).as_secs_f64() / counted.as_secs_f64();
        let stats = source.stats().expect("stats");
        facts.push(Fact::new(format!("{spec}, from cold, 1 thread: wall"), 1e9 / rate, "ns/id"));
        facts.push(Fact::new(format!("{spec}: CPU of the caller"), 1e9 * busy / rate, "ns/id"));
        facts.push(Fact::new(
            format!("{spec}: refills per million ids"),
            stats.refills as f64 / (stats.issued as f64 / 1e6),
            "",
        ));
    }
    facts
}

/// An id from memory while the store answers, and while it does not: 20 000 a second, as a program takes them.
pub fn outage() -> Vec<Fact> {
    let mut facts = Vec::new();
    // The first segment lasts five seconds at this rate. It is less than the source wants in stock, so the keeper asks for more.
    for (state, script) in [("the store answers", "ack"), ("the store is down", "ack,down:10000")] {
        let mill = Mill::open(&format!("memory:?script={script}")).expect("a mill");
        let source = open(&mill, "segment:outage?min_step=100000");
        consume(source.next().expect("an id"));
        let (rounds, each) = (3000_u32, 20);
        let ids = f64::from(rounds * each);
        let (process, thread, switches) = (process_cpu_time(), cpu_time(), keeper_switches());
        let mut caller = Duration::ZERO;
        let began = Instant::now();
        for round in 1..=rounds {
            let before = cpu_time();
            for _ in 0..each {
                consume(source.next().expect("an id from memory"));
            }
            caller += cpu_time().saturating_sub(before);
            let next = Duration::from_millis(1) * round;
            std::thread::sleep(next.saturating_sub(began.elapsed()));
        }
        let seconds = began.elapsed().as_secs_f64();
        let others =
            (process_cpu_time().saturating_sub(process)).saturating_sub(cpu_time().saturating_sub(thread));
        let nanos = |time: Duration| time.as_secs_f64() * 1e9 / ids;
        facts.push(Fact::new(format!("{state}: CPU of the caller, clock included"), nanos(caller), "ns/id"));
        facts.push(Fact::new(format!("{state}: CPU of the keeper"), nanos(others), "ns/id"));
        if let (Some(before), Some(after)) = (switches, keeper_switches()) {
            facts.push(Fact::new(
                format!("{state}: the keeper wakes"),
                (after - before) / seconds,
                "times/s",
            ));
        }
    }
    facts
}

/// How often the newest keeper of this process has gone to sleep.
fn keeper_switches() -> Option<f64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let newest = tasks
        .filter_map(|task| {
            let path = task.ok()?.path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let number: u64 = path.file_name()?.to_str()?.parse().ok()?;
            (name.trim_end() == "keymill-keeper").then_some((number, path))
        })
        .max()?
        .1;
    let status = std::fs::read_to_string(newest.join("status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

/// Memory that this process has in use.
#[cfg(unix)]
fn resident_bytes() -> Option<f64> {
    let pages: f64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    // SAFETY: reads a constant of the system.
    Some(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as f64)
}

#[cfg(windows)]
fn resident_bytes() -> Option<f64> {
    None
}

const MANY: usize = 10_000;

pub fn many_sources() -> Vec<Fact> {
    let mut facts = Vec::new();
    let before = resident_bytes();
    let mill = Mill::open("memory:").expect("a mill");
    let sources: Vec<_> = (0..MANY).map(|i| open(&mill, &format!("segment:many{i}"))).collect();
    // Each has given an id and holds the rest of its first segment.
    for source in &sources {
        consume(source.next().expect("an id"));
    }
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        let grown = (after - before) / f64::from(1 << 20);
        facts.push(
            Fact::new("10 000 idle segment sources: memory", grown, "MiB").goal("< 50 MiB", grown < 50.0),
        );
    }
    drop((sources, mill));

    #[cfg(feature = "sqlite")]
    {
        let directory = tempfile::tempdir().expect("a directory");
        let started = Instant::now();
        let mill =
            Mill::open(&format!("sqlite:{}", directory.path().join("many.db").display())).expect("a mill");
        let sources: Vec<_> = (0..MANY).map(|i| open(&mill, &format!("segment:many{i}"))).collect();
        let opened = started.elapsed().as_secs_f64();
        facts.push(Fact::new("10 000 sources on SQLite: open", opened, "s").goal("< 5 s", opened < 5.0));
        let started = Instant::now();
        for source in &sources {
            consume(source.next().expect("an id"));
        }
        let first = started.elapsed().as_secs_f64();
        facts.push(Fact::new("10 000 sources on SQLite: first id of each, one after the other", first, "s"));
        let started = Instant::now();
        drop((sources, mill));
        facts.push(Fact::new(
            "10 000 sources on SQLite: close and give back",
            started.elapsed().as_secs_f64(),
            "s",
        ));
    }
    facts
}

pub fn large_batches(mill: &Mill) -> Vec<Fact> {
    const TEN_MILLION: usize = 10_000_000;
    let source = open(mill, &format!("segment:large?{ENDLESS}"));
    let cold = open(mill, "segment:large_cold");
    let measure = |name: &str, take: &mut dyn FnMut()| {
        let mut times: Vec<f64> = (0..5)
            .map(|_| {
                let started = Instant::now();
                take();
                started.elapsed().as_secs_f64() * 1e9 / TEN_MILLION as f64
            })
            .collect();
        Fact::new(name, median(&mut times).unwrap_or(0.0), "ns/id")
    };
    let mut buffer = vec![1; TEN_MILLION];
    vec![
        measure("take(10 000 000), fresh memory included", &mut || {
            consume(source.take(TEN_MILLION).expect("ids")[TEN_MILLION - 1]);
        }),
        measure("take(10 000 000), default options", &mut || {
            consume(cold.take(TEN_MILLION).expect("ids")[TEN_MILLION - 1]);
        }),
        measure("fill of 10 000 000 in a warm buffer", &mut || {
            source.fill(&mut buffer).expect("ids");
            consume(buffer[TEN_MILLION - 1]);
        }),
    ]
}
