//! `bench`: every way of taking ids, against one shared `lock xadd`.
//!
//! Absolute figures say more of the machine and its neighbours than of keymill. So all contenders take turns in short
//! slices on the same threads, round after round; each round gives its own ratio to the bare counter, and the median
//! of the rounds is shown.

use std::hint::black_box;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use keymill::serial::MAX_TEXT;
use keymill::{Handle, Kind, Result, Source};
use serde_json::json;

use crate::{print, signal};

/// One contender's turn. Long against a thread's start, short against a machine's moods.
const SLICE: Duration = Duration::from_millis(40);
const FEWEST_ROUNDS: usize = 3;
/// Ids of a batch.
const BATCH: usize = 1000;
/// Ids between two looks at the clock, which costs as much as many ids.
const STRIDE: u64 = 1024;

/// A way of taking ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// The bare counter all others are compared with.
    Counter,
    Next,
    Handle,
    Batch,
    Text,
    HandleText,
}

impl Method {
    /// The counter stands first: ratios are to the first of a round.
    const NUMBERS: [Method; 4] = [Method::Counter, Method::Next, Method::Handle, Method::Batch];
    const TEXTS: [Method; 3] = [Method::Counter, Method::Text, Method::HandleText];

    fn name(self) -> &'static str {
        match self {
            Method::Counter => "lock xadd",
            Method::Next => "next",
            Method::Handle => "handle",
            Method::Batch => "batch of 1000",
            Method::Text => "text",
            Method::HandleText => "handle, text",
        }
    }
}

/// What all threads share.
struct Field<'a> {
    source: &'a Source,
    ways: &'a [Method],
    rounds: usize,
    barrier: Barrier,
    counter: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<keymill::Error>>,
    /// Ids a second of all threads, by round and way.
    rates: Vec<Vec<Mutex<f64>>>,
}

/// What one thread brings.
struct Runner {
    handle: Handle,
    ids: Vec<u64>,
    text: [u8; MAX_TEXT],
}

/// Measures and prints.
pub fn run(source: &Source, threads: Option<u16>, seconds: u16, json: bool) -> Result<()> {
    signal::listen();
    let threads = threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let serial = source.kind() == Kind::Serial;
    let ways: &[Method] = if serial { &Method::TEXTS } else { &Method::NUMBERS };
    let turn = SLICE.as_millis() as usize * ways.len();
    let rounds = (usize::from(seconds) * 1000 / turn).max(FEWEST_ROUNDS);
    if std::io::stderr().is_terminal() {
        print::note(&format!(
            "measuring `{}` on {threads} threads for {:.1} s …",
            source.label(),
            (turn * rounds) as f64 / 1000.0
        ));
    }
    // The first id may cost a connection and a reservation, and must work.
    source.next_text()?;
    let field = Field {
        source,
        ways,
        rounds,
        barrier: Barrier::new(threads),
        counter: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failed: Mutex::new(None),
        rates: (0..rounds).map(|_| ways.iter().map(|_| Mutex::new(0.0)).collect()).collect(),
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| field.run());
        }
    });
    if let Some(error) = field.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    if signal::exit_code().is_some() {
        return Ok(());
    }
    field.report(threads, json)?;
    if cfg!(debug_assertions) {
        print::note(
            "keymill: this is a debug build, many times slower than a release build: its figures say nothing of keymill",
        );
    }
    Ok(())
}

impl Field<'_> {
    /// One thread, through all rounds.
    fn run(&self) {
        let mut runner = Runner { handle: self.source.handle(), ids: vec![0; BATCH], text: [0; MAX_TEXT] };
        for round in 0..self.rounds {
            for (place, way) in self.ways.iter().enumerate() {
                // All threads stop at the same turn, or the barrier would hold the others for ever.
                if self.barrier.wait().is_leader() {
                    let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some();
                    // ordering: Relaxed — the barrier publishes it.
                    self.stop.store(failed || signal::exit_code().is_some(), Ordering::Relaxed);
                }
                self.barrier.wait();
                // ordering: Relaxed — as above.
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
                match self.turn(&mut runner, *way) {
                    Ok(rate) => {
                        let cell = self.rates.get(round).and_then(|ways| ways.get(place));
                        if let Some(cell) = cell {
                            *cell.lock().unwrap_or_else(PoisonError::into_inner) += rate;
                        }
                    }
                    Err(error) => {
                        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            }
        }
    }

    /// One slice of one way on one thread; answers with its ids a second.
    fn turn(&self, runner: &mut Runner, way: Method) -> Result<f64> {
        let started = Instant::now();
        let mut ids = 0_u64;
        loop {
            match way {
                Method::Counter => {
                    for _ in 0..STRIDE {
                        // ordering: Relaxed — what a bare counter costs; on x86 every ordering is one `lock xadd`.
                        black_box(self.counter.fetch_add(1, Ordering::Relaxed));
                    }
                }
                Method::Next => {
                    for _ in 0..STRIDE {
                        black_box(self.source.next()?);
                    }
                }
                Method::Handle => {
                    for _ in 0..STRIDE {
                        black_box(runner.handle.next()?);
                    }
                }
                Method::Batch => {
                    self.source.fill(&mut runner.ids)?;
                    black_box(&runner.ids);
                }
                Method::Text => {
                    for _ in 0..STRIDE {
                        black_box(self.source.write_text(&mut runner.text)?);
                    }
                }
                Method::HandleText => {
                    for _ in 0..STRIDE {
                        black_box(runner.handle.next_text()?);
                    }
                }
            }
            ids += if way == Method::Batch { BATCH as u64 } else { STRIDE };
            let elapsed = started.elapsed();
            if elapsed >= SLICE {
                return Ok(ids as f64 / elapsed.as_secs_f64());
            }
        }
    }

    fn report(&self, threads: usize, json: bool) -> Result<()> {
        let rate = |round: usize, place: usize| {
            let cell = self.rates.get(round).and_then(|ways| ways.get(place));
            cell.map_or(0.0, |cell| *cell.lock().unwrap_or_else(PoisonError::into_inner))
        };
        let mut rows = Vec::new();
        for (place, way) in self.ways.iter().enumerate() {
            let a_second = median((0..self.rounds).map(|round| rate(round, place)).collect());
            let ratio = median((0..self.rounds).map(|round| rate(round, 0) / rate(round, place)).collect());
            // What one thread spends on one id.
            let ns = threads as f64 * 1e9 / a_second;
            rows.push((way.name(), ns, a_second, ratio));
        }
        if json {
            let ways: Vec<_> = rows
                .iter()
                .map(|(name, ns, a_second, ratio)| {
                    json!({ "way": name, "ns_per_id": ns, "ids_per_second": a_second, "ratio": ratio })
                })
                .collect();
            return print::json(&json!({
                "source": self.source.label(),
                "store": self.source.mill().store(),
                "threads": threads,
                "rounds": self.rounds,
                "ways": ways,
            }));
        }
        let mut table = vec![["WAY", "NS/ID", "IDS/S", "RATIO"].map(str::to_owned).to_vec()];
        table.extend(rows.iter().map(|(name, ns, a_second, ratio)| {
            vec![(*name).to_owned(), format!("{ns:.2}"), format!("{a_second:.0}"), format!("{ratio:.2}")]
        }));
        print::text(&format!(
            "source: {}\nstore: {}\nthreads: {threads}\nrounds: {}\n\n{}",
            self.source.label(),
            self.source.mill().store(),
            self.rounds,
            print::table(&table)
        ))
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
