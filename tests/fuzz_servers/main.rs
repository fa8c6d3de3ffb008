//! Servers that answer wrongly, by seed: `fuzz_servers SEED` replays one, `fuzz_servers --seeds N [--from S]` runs many. `ci/steps/fuzz`
//! starts the servers and runs it.
//!
//! A seed drives a proxy between a mill and a real MariaDB, PostgreSQL or Redis and corrupts some of the server's messages: bytes, lengths,
//! order, cuts, whole answers of another meaning (`corrupt`). The promises (`life`): the process lives and the keeper is never
//! started anew, each call ends within its deadline, the ids of a mill rise, no message holds the password, and once the server
//! answers rightly again the mill gives ids or refuses for a reason of the store.

mod corrupt;
mod life;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use life::{Life, Outcome};

const USAGE: &str = "fuzz_servers SEED | --seeds N [--from S]";
/// Seeds that run at the same time; each mostly waits.
const AT_ONCE: usize = 24;
/// No seed takes so long, on however busy a machine.
const STUCK: Duration = Duration::from_secs(240);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().ok();
    let seeds = match arguments.as_slice() {
        ["--seeds", count] => number(count).map(|count| (1, count)),
        ["--seeds", count, "--from", first] => number(first).zip(number(count)),
        [seed] => number(seed).map(|seed| (seed, 1)),
        _ => None,
    };
    let Some((first, count)) = seeds else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // A driver's panics are what is looked for, and the guard's to report: printed, they would be mistaken for failures.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if thread::current().name() != Some("keymill-keeper") {
            print(info);
        }
    }));
    life::prepare();
    run(first, count)
}

fn run(first: u64, count: u64) -> ExitCode {
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let running: Vec<Mutex<Option<(u64, Instant)>>> = (0..AT_ONCE).map(|_| Mutex::new(None)).collect();
    let (sender, outcomes) = mpsc::channel::<(u64, Result<Outcome, String>)>();
    let mut total = Outcome::default();
    let mut failed = 0;
    thread::scope(|scope| {
        for place in &running {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    // ordering: Relaxed — each seed once; nothing else hangs on it.
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((seed, Instant::now()));
                    let outcome = std::panic::catch_unwind(|| Life::new(seed).live());
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    let outcome = outcome.unwrap_or_else(|_| Err("a panic reached the caller".to_owned()));
                    if sender.send((seed, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match outcomes.recv_timeout(Duration::from_secs(1)) {
                Ok((_, Ok(outcome))) => total.add(&outcome),
                Ok((seed, Err(why))) => {
                    failed += 1;
                    println!("FAILED seed {seed}: {why}; replay it with `ci/steps/fuzz {seed}`");
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    for place in &running {
                        let stuck = *place.lock().unwrap_or_else(PoisonError::into_inner);
                        if let Some((seed, _)) = stuck.filter(|(_, since)| since.elapsed() > STUCK) {
                            println!("FAILED seed {seed}: it hangs; replay it with `ci/steps/fuzz {seed}`");
                            // Its thread would be waited for.
                            std::process::exit(1);
                        }
                    }
                }
            }
        }
    });
    println!(
        "{count} seeds of corrupted servers: {} messages corrupted, {} calls, {} refused, {} ids, {} panics of drivers held off, {:.0} s",
        total.corrupted,
        total.calls,
        total.refused,
        total.ids,
        total.panics,
        started.elapsed().as_secs_f64()
    );
    println!("{} passed, {failed} failed", count - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
