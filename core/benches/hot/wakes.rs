//! What the keeper's processor does at one wake, beside how many others it keeps: a keeper without a thread, a store in memory whose time
//! is not counted, and a few of many counters, sources, workers or refused sources that want something.

use std::sync::Arc;
use std::time::Duration;

use keymill::Gene;
use keymill::keeper::{Keeper, KeptSource};
use keymill::planner::{Answer, Ask, Batch, Now};
use keymill::simulation::{BankAnswer, BankAsk, BankSource, MillConfig, ReadyQueue};
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::{BankStore, Fault, FaultKind, RowStore, SlotStore};
use keymill::time::{Clock, ManualClock};

use super::facts::Fact;
use super::harness::{consume, cpu_time, median};

/// How many there are of each, and how many of them are awake in turn: as many in each size, so that the caches of the machine are alike.
const SIZES: [usize; 3] = [10, 1_000, 65_536];
const AWAKE: usize = 10;
const WAKES: usize = 2_000;

struct Kept {
    keeper: Keeper,
    clock: Arc<ManualClock>,
    store: MemoryStore,
    /// What the keeper's thread has done, without the store.
    time: Duration,
    /// Every request of these sources is refused.
    refuses: bool,
}

impl Kept {
    fn new() -> Kept {
        Kept {
            keeper: Keeper::new(1, Arc::new(ReadyQueue::default())),
            clock: Arc::new(ManualClock::new(1_795_218_600_000)),
            store: MemoryStore::new(Memory::new()),
            time: Duration::ZERO,
            refuses: false,
        }
    }

    fn open(&mut self, index: usize, spec: &str) -> KeptSource {
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
        self.keeper.open(index, Arc::new(spec), Clock::Manual(self.clock.clone())).expect("a source")
    }

    fn now(&self) -> Now {
        Clock::Manual(self.clock.clone()).now()
    }

    fn answer(&mut self, ask: &Ask) -> Result<Answer, Fault> {
        match ask {
            _ if self.refuses => Err(Fault::new(FaultKind::Refused, "no")),
            Ask::Reserve(request) => self.store.reserve(request).map(Answer::Reserved),
            Ask::Take(take) => self.store.take_slot(take).map(Answer::Taken),
            ask => panic!("{ask:?}"),
        }
    }

    /// What the keeper's thread does when it wakes.
    fn wake(&mut self) {
        loop {
            let now = self.now();
            let began = cpu_time();
            let batch = self.keeper.poll(now, 100);
            self.time += cpu_time().saturating_sub(began);
            let Some(batch) = batch else { break };
            let mut answers = Vec::new();
            let mut bank = None;
            match batch {
                Batch::One(index, ask) => answers.push((index, self.answer(&ask))),
                Batch::Several(indexes, requests) => {
                    for (index, request) in indexes.into_iter().zip(requests) {
                        answers.push((index, self.answer(&Ask::Reserve(request))));
                    }
                }
                Batch::Bank(index, BankAsk::Open { key, bank: spec }) => {
                    bank = Some((index, BankAnswer::Opened(self.store.open_bank(&key, spec))));
                }
                Batch::Bank(index, BankAsk::Reserve { indexes, requests }) => {
                    let reserved = self.store.reserve_counters(&requests);
                    bank = Some((index, BankAnswer::Reserved(indexes, reserved)));
                }
                batch @ Batch::Renew(..) => panic!("{batch:?}"),
            }
            let began = cpu_time();
            for (index, answer) in answers {
                self.keeper.complete(index, answer, now);
            }
            if let Some((index, answer)) = bank {
                self.keeper.complete_bank(index, answer, now);
            }
            self.time += cpu_time().saturating_sub(began);
        }
        let began = cpu_time();
        consume(self.keeper.wake_at(self.now()).unwrap_or(0));
        self.time += cpu_time().saturating_sub(began);
    }

    /// Nanoseconds of a wake, of which `want` makes one of the awake ones want something.
    fn nanos(&mut self, mut want: impl FnMut(usize)) -> f64 {
        let mut each: Vec<f64> = (0..WAKES)
            .map(|wake| {
                want(wake % AWAKE);
                self.time = Duration::ZERO;
                self.wake();
                self.time.as_secs_f64() * 1e9
            })
            .collect();
        median(&mut each).unwrap_or(0.0)
    }
}

fn gene(counters: usize, index: usize) -> Gene {
    let each = 65_536 / counters.next_power_of_two();
    Gene::from((index * each) as u16)
}

/// Takes all that a counter's cell holds, so that the keeper is asked for more.
fn drain(bank: &BankSource, gene: Gene) {
    while bank.try_take(gene, u64::MAX, 1).is_ok() {}
}

/// A bank of counters that have numbers ahead of their cells.
fn counters(count: usize) -> f64 {
    let mut kept = Kept::new();
    let counters = count.next_power_of_two();
    let spec = format!("business:order?counters={counters}&min_step=1000&max_step=1000000");
    let KeptSource::Bank(bank) = kept.open(0, &spec) else { panic!("{spec}") };
    for _ in 0..2 {
        for index in 0..counters {
            // More than a cell holds.
            let _ = bank.try_take(gene(counters, index), 1, 300_000);
        }
        kept.wake();
    }
    kept.nanos(|index| drain(&bank, gene(counters, index * counters / count.max(AWAKE))))
}

fn sources(count: usize, options: &str, refuses: bool) -> f64 {
    let mut kept = Kept::new();
    let sources: Vec<KeptSource> =
        (0..count).map(|index| kept.open(index, &format!("segment:s{index}?{options}"))).collect();
    for source in &sources {
        let _ = source.try_next();
    }
    kept.refuses = refuses;
    kept.wake();
    for source in &sources {
        let _ = source.try_next();
    }
    kept.wake();
    kept.refuses = false;
    let awake: Vec<KeptSource> = (0..AWAKE)
        .map(|index| kept.open(count + index, &format!("segment:awake{index}?min_step=1&max_step=1")))
        .collect();
    kept.nanos(|index| while awake[index].try_next().is_ok() {})
}

fn workers(count: usize) -> f64 {
    let mut kept = Kept::new();
    for index in 0..count {
        let source = kept.open(index, &format!("snowflake:w{index}?worker=lease&lease=1h"));
        let _ = source.try_next();
    }
    kept.wake();
    let awake: Vec<KeptSource> = (0..AWAKE)
        .map(|index| kept.open(count + index, &format!("segment:awake{index}?min_step=1&max_step=1")))
        .collect();
    kept.nanos(|index| while awake[index].try_next().is_ok() {})
}

type Measured = fn(usize) -> f64;

pub fn wakes() -> Vec<Fact> {
    let mut facts = Vec::new();
    let kinds: [(&str, Measured); 5] = [
        ("counters of a bank, warm", counters),
        ("sources, idle", |count| sources(count, "min_step=1000", false)),
        ("sources that the store refused", |count| sources(count, "min_step=1000", true)),
        ("sources with a time to live", |count| sources(count, "min_step=1000&ttl=1h", false)),
        ("sources with a leased worker", workers),
    ];
    for (name, measured) in kinds {
        let nanos = SIZES.map(measured);
        for (size, nanos_each) in SIZES.into_iter().zip(nanos) {
            let ratio = nanos_each / nanos[0];
            let fact = Fact::new(format!("{size} {name}: a wake, beside 10"), ratio, "times");
            facts.push(if size == SIZES[0] {
                Fact::new(format!("{size} {name}: a wake"), nanos_each, "ns")
            } else {
                fact.goal("≤ 1.5", ratio <= 1.5)
            });
        }
    }
    facts
}
