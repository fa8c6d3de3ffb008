//! How the rows are measured: thread CPU time, interleaved rounds, medians of each round's ratios. On Windows, whose CPU times are counted in
//! ticks of the scheduler, it is wall time.
//!
//! One thread: the CPU time of the calling thread, so a machine that does other work too slows nothing down. Two threads:
//! wall time from a start barrier to the end of the later one, and only rounds in which both ran nearly undisturbed.

use std::collections::BTreeMap;
use std::sync::Arc;
#[cfg(any(target_os = "linux", windows))]
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::utils::CachePadded;
use serde_json::{Value, json};

/// Does `n` operations.
pub type Work = Box<dyn FnMut(u64) + Send>;

/// A round of one row lasts about this long.
const ROUND: Duration = Duration::from_millis(2);
/// Short, so that both threads get through it before the scheduler takes a core away.
const PAIR_ROUND: Duration = Duration::from_micros(250);
/// CPU time over wall time from which on a thread counts as undisturbed.
const UNDISTURBED: f64 = 0.96;
/// How much of a two-thread round both must have been running; an allocator is quicker in one thread than in the other.
const OVERLAP: f64 = 0.75;
/// How often a disturbed two-thread round is tried again at once.
const TRIES: usize = 20;

/// How many rounds a run has.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub alone: usize,
    pub paired: usize,
}

/// Another row of the section, and the most this row may cost in its units; no goal where there is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Against {
    pub base: &'static str,
    pub alone: Option<f64>,
    pub paired: Option<f64>,
}

/// One line of the table.
pub struct Row {
    pub name: &'static str,
    pub against: Option<Against>,
    /// Makes the work of one thread; called once a thread.
    make: Box<dyn Fn() -> Work>,
    /// Whether two threads may run it.
    shared: bool,
}

impl Row {
    pub fn new<W: FnMut(u64) + Send + 'static>(name: &'static str, make: impl Fn() -> W + 'static) -> Row {
        // What a thread owns is kept off the lines of the other.
        let make = move || {
            let mut work = CachePadded::new(make());
            Box::new(move |n| (*work)(n)) as Work
        };
        Row { name, against: None, make: Box::new(make), shared: true }
    }

    /// Compared with `base`, without a goal.
    pub fn beside(mut self, base: &'static str) -> Row {
        self.against = Some(Against { base, ..Against::default() });
        self
    }

    /// Compared with `base`; `alone` and `paired` are the goals for one and for two threads.
    pub fn goal(mut self, base: &'static str, alone: f64, paired: impl Into<Option<f64>>) -> Row {
        self.against = Some(Against { base, alone: Some(alone), paired: paired.into() });
        self
    }

    /// For generators that one thread must own.
    pub fn alone(mut self) -> Row {
        self.shared = false;
        self
    }
}

/// What a row came to.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub name: String,
    pub against: Option<Against>,
    pub ns: Option<f64>,
    pub ratio: Option<f64>,
    pub pair_ns: Option<f64>,
    pub pair_ratio: Option<f64>,
    /// Two-thread rounds that were kept.
    pub kept: usize,
}

impl Outcome {
    /// `met`, `missed`, or nothing where there is no goal or no figure.
    pub fn verdict(&self) -> &'static str {
        let Some(against) = self.against else { return "" };
        let met = [(self.ratio, against.alone), (self.pair_ratio, against.paired)]
            .into_iter()
            .filter_map(|(ratio, goal)| Some(ratio? <= goal?));
        match met.fold(None, |all, one| Some(all.unwrap_or(true) && one)) {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "row": self.name,
            "against": self.against.map(|a| a.base),
            "ns_1_thread": self.ns,
            "ratio_1_thread": self.ratio,
            "goal_1_thread": self.against.and_then(|a| a.alone),
            "ns_2_threads": self.pair_ns,
            "ratio_2_threads": self.pair_ratio,
            "goal_2_threads": self.against.and_then(|a| a.paired),
            "kept_rounds_2_threads": self.kept,
            "verdict": self.verdict(),
        })
    }
}

pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some(f64::midpoint(values[n / 2 - 1], values[n / 2])),
    }
}

#[cfg(unix)]
fn clock(id: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the call.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of the calling thread.
#[cfg(unix)]
pub fn cpu_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process.
#[cfg(unix)]
pub fn process_cpu_time() -> Duration {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

#[cfg(windows)]
pub fn cpu_time() -> Duration {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed()
}

#[cfg(windows)]
pub use cpu_time as process_cpu_time;

/// The cores this program may use, as they were before any thread was pinned: who is pinned hands that on.
#[cfg(target_os = "linux")]
static CORES: LazyLock<Vec<usize>> = LazyLock::new(|| {
    // SAFETY: a zeroed set is an empty one.
    let mut may: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and of the size that is told.
    unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut may) };
    // SAFETY: the numbers are below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|&core| unsafe { libc::CPU_ISSET(core, &may) }).collect()
});

/// Keeps the calling thread on the `index`-th of the cores it may use.
#[cfg(target_os = "linux")]
fn pin(index: usize) {
    if let Some(&core) = CORES.get(index) {
        // SAFETY: as above.
        let mut only: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the number came out of such a set.
        unsafe { libc::CPU_SET(core, &mut only) };
        // SAFETY: the set is readable and of the size that is told.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only) };
    }
}

#[cfg(not(target_os = "linux"))]
fn pin(_index: usize) {}

/// What one thread of a two-thread round saw.
struct Run {
    started: Instant,
    ended: Instant,
    cpu: Duration,
}

impl Run {
    fn of(work: &mut Work, n: u64) -> Run {
        let (cpu, started) = (cpu_time(), Instant::now());
        work(n);
        let ended = Instant::now();
        Run { started, ended, cpu: cpu_time().saturating_sub(cpu) }
    }

    fn undisturbed(&self) -> bool {
        self.cpu.as_secs_f64() >= UNDISTURBED * (self.ended - self.started).as_secs_f64()
    }
}

/// The second thread, kept for the whole run so that what a thread owns stays warm.
struct Second {
    jobs: Sender<(Work, u64)>,
    done: Receiver<(Work, Run)>,
    gate: Arc<AtomicU64>,
    rounds: u64,
}

/// Waits until both threads stand at the gate of this round.
fn meet(gate: &AtomicU64, round: u64) {
    gate.fetch_add(1, Ordering::AcqRel);
    while gate.load(Ordering::Acquire) < 2 * round {
        std::hint::spin_loop();
    }
}

impl Second {
    fn start() -> Second {
        let (jobs, inbox) = channel::<(Work, u64)>();
        let (outbox, done) = channel();
        let gate = Arc::new(AtomicU64::new(0));
        let met = gate.clone();
        thread::spawn(move || {
            pin(1);
            for (round, (mut work, n)) in inbox.into_iter().enumerate() {
                meet(&met, round as u64 + 1);
                let run = Run::of(&mut work, n);
                if outbox.send((work, run)).is_err() {
                    return;
                }
            }
        });
        Second { jobs, done, gate, rounds: 0 }
    }

    /// Aggregate wall nanoseconds per operation; `None` if the round was disturbed.
    fn round(&mut self, pair: &mut [Work; 2], n: u64) -> Option<f64> {
        let [mine, theirs] = pair;
        let job = std::mem::replace(theirs, Box::new(|_| ()));
        self.rounds += 1;
        self.jobs.send((job, n)).expect("the second thread lives as long as the run");
        // A thread that has just slept is not the next to be taken off its core.
        thread::sleep(Duration::from_micros(100));
        meet(&self.gate, self.rounds);
        let here = Run::of(mine, n);
        let (job, there) = self.done.recv().expect("the second thread answers each round");
        *theirs = job;
        let all = here.ended.max(there.ended) - here.started.min(there.started);
        let both = here.ended.min(there.ended).saturating_duration_since(here.started.max(there.started));
        let overlapped = both.as_secs_f64() >= OVERLAP * all.as_secs_f64();
        (here.undisturbed() && there.undisturbed() && overlapped)
            .then(|| all.as_nanos() as f64 / (2 * n) as f64)
    }
}

/// How many operations last about as long as `round`.
fn calibrated(work: &mut Work, round: Duration) -> u64 {
    let mut n = 1024;
    loop {
        let before = cpu_time();
        work(n);
        let took = cpu_time().saturating_sub(before);
        if took * 4 >= round {
            let per_op = took.as_secs_f64() / n as f64;
            // Whole thousands, so that batches come out even.
            return ((round.as_secs_f64() / per_op) as u64).next_multiple_of(1000);
        }
        n *= 2;
    }
}

/// Measures the rows of one section, round by round.
pub fn measure(rows: &[Row], rounds: Rounds) -> Vec<Outcome> {
    let mut works: Vec<_> = rows.iter().map(|row| (row.make)()).collect();
    let mut pairs: Vec<_> = rows.iter().map(|row| row.shared.then(|| [(row.make)(), (row.make)()])).collect();
    // Threads that sources have started run where they like; only the measured ones are pinned.
    thread::scope(|scope| {
        let run = scope.spawn(|| {
            pin(0);
            let alone = measure_alone(&mut works, rounds.alone);
            let paired = measure_paired(&mut pairs, rounds.paired);
            (alone, paired)
        });
        let (alone, paired) = run.join().expect("a row panicked");
        outcomes(rows, &alone, &paired)
    })
}

/// A figure of each round and row; `None` where a round was dropped.
type Figures = Vec<Vec<Option<f64>>>;

fn measure_alone(works: &mut [Work], rounds: usize) -> Figures {
    let counts: Vec<_> = works.iter_mut().map(|work| calibrated(work, ROUND)).collect();
    (0..rounds)
        .map(|_| {
            let round = works.iter_mut().zip(&counts).map(|(work, &n)| {
                let before = cpu_time();
                work(n);
                Some(cpu_time().saturating_sub(before).as_nanos() as f64 / n as f64)
            });
            round.collect()
        })
        .collect()
}

fn measure_paired(pairs: &mut [Option<[Work; 2]>], rounds: usize) -> Figures {
    let counts: Vec<_> = pairs
        .iter_mut()
        .map(|pair| pair.as_mut().map_or(0, |[work, _]| calibrated(work, PAIR_ROUND)))
        .collect();
    let mut second = Second::start();
    (0..rounds)
        .map(|_| {
            let round = pairs.iter_mut().zip(&counts).map(|(pair, &n)| {
                let pair = pair.as_mut()?;
                (0..TRIES).find_map(|_| second.round(pair, n))
            });
            round.collect()
        })
        .collect()
}

fn outcomes(rows: &[Row], alone: &Figures, paired: &Figures) -> Vec<Outcome> {
    let places: BTreeMap<_, _> = rows.iter().enumerate().map(|(i, row)| (row.name, i)).collect();
    let column =
        |figures: &Figures, at: usize| -> Vec<f64> { figures.iter().filter_map(|round| round[at]).collect() };
    let ratio = |figures: &Figures, at: usize, base: usize| {
        let mut ratios: Vec<f64> =
            figures.iter().filter_map(|round| Some(round[at]? / round[base]?)).collect();
        median(&mut ratios)
    };
    let one = |(at, row): (usize, &Row)| {
        let base = row.against.map(|a| {
            *places
                .get(a.base)
                .unwrap_or_else(|| panic!("`{}` is compared with a row that is not there", row.name))
        });
        let mut pair = column(paired, at);
        Outcome {
            name: row.name.to_owned(),
            against: row.against,
            ns: median(&mut column(alone, at)),
            ratio: base.and_then(|base| ratio(alone, at, base)),
            kept: pair.len(),
            pair_ns: median(&mut pair),
            pair_ratio: base.and_then(|base| ratio(paired, at, base)),
        }
    };
    rows.iter().enumerate().map(one).collect()
}

/// Uses a value up without letting the compiler keep a generator's state in registers over the loop.
#[inline]
pub fn consume(value: u64) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: no instruction at all; the memory clobber that `asm!` implies is the point.
    unsafe {
        std::arch::asm!("/* {} */", in(reg) value, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::hint::black_box(value);
}

/// The limit that counting is measured against: the bare instruction.
#[inline]
pub fn bare_add(counter: &AtomicU64) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let mut one: u64 = 1;
        // SAFETY: `counter` is a valid, aligned word for the whole instruction.
        unsafe {
            std::arch::asm!("lock xadd [{}], {}", in(reg) counter.as_ptr(), inout(reg) one, options(nostack));
        }
        one
    }
    #[cfg(not(target_arch = "x86_64"))]
    counter.fetch_add(1, Ordering::Relaxed)
}

/// The cheapest clock the kernel has.
#[cfg(unix)]
#[inline]
pub fn coarse_seconds() -> u64 {
    #[cfg(target_os = "linux")]
    const COARSE: libc::clockid_t = libc::CLOCK_REALTIME_COARSE;
    #[cfg(not(target_os = "linux"))]
    const COARSE: libc::clockid_t = libc::CLOCK_REALTIME;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the call.
    unsafe { libc::clock_gettime(COARSE, &raw mut time) };
    time.tv_sec as u64
}

#[cfg(windows)]
#[inline]
pub fn coarse_seconds() -> u64 {
    std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}
