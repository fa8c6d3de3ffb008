//! The data of the pictures in `docs/pictures`, from the code that ships, in virtual time.
//!
//! ```text
//! cargo run -p keymill-tests --example pictures -- runway > docs/pictures/runway.csv
//! cargo run -p keymill-tests --example pictures -- processes > docs/pictures/processes.csv
//! ```

use keymill::{Error, Mill, Source};

/// Virtual milliseconds between two looks at the clock.
const TICK_MS: u64 = 10;

/// Takes up to this many ids from memory; answers with the last one and how many there were.
fn take(source: &Source, count: u64) -> (Option<u64>, u64) {
    let ids: Vec<u64> = (0..count).map_while(|_| source.try_next().ok()).collect();
    (ids.last().copied(), ids.len() as u64)
}

/// A source at a steady rate whose store fails after `acks` reservations, `fails` times.
fn outage(acks: u64, fails: u64, until_ms: u64, show: bool) -> Result<u64, Error> {
    const RATE: u64 = 2000;
    let script = if fails == 0 { String::new() } else { format!("&script=ack:{acks},down:{fails}") };
    let mill = Mill::open(&format!("memory:?clock=manual{script}"))?;
    let orders = mill.source("segment:orders")?;
    let (mut served, mut failed) = (0, 0);
    for ms in (0..until_ms).step_by(TICK_MS as usize) {
        served += take(&orders, RATE * TICK_MS / 1000).1;
        mill.advance_clock(TICK_MS)?;
        if show && (ms + TICK_MS).is_multiple_of(1000) {
            let failures = mill.latency().failed;
            let runway = orders.stats()?.left as f64 / RATE as f64;
            println!(
                "{:.1},{runway:.2},{},{}",
                (ms + TICK_MS) as f64 / 1000.0,
                served,
                u8::from(failures > failed)
            );
            (served, failed) = (0, failures);
        }
    }
    orders.stats().map(|stats| stats.refills)
}

fn runway() -> Result<(), Error> {
    println!("seconds,runway_seconds,ids_per_second,refill_failed");
    // So many reservations come back before the outage begins.
    let acks = outage(0, 0, 30_000, false)?;
    outage(acks, 17, 110_000, true).map(drop)
}

/// Three processes on one store, at rates of their own.
fn processes() -> Result<(), Error> {
    println!("seconds,process,id");
    let rates = [400, 200, 100];
    let mills = rates.map(|_| Mill::open("memory:processes?clock=manual"));
    let mills = mills.into_iter().collect::<Result<Vec<_>, _>>()?;
    let sources = mills.iter().map(|mill| mill.source("segment:orders?min_step=250&buffer=2s"));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    for ms in (0..10_000_u64).step_by(TICK_MS as usize) {
        for (n, source) in sources.iter().enumerate() {
            let (last, _) = take(source, rates[n] * TICK_MS / 1000);
            if let Some(id) = last.filter(|_| ms.is_multiple_of(100)) {
                println!("{:.1},{n},{id}", ms as f64 / 1000.0);
            }
            mills[n].advance_clock(TICK_MS)?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    match std::env::args().nth(1).as_deref() {
        Some("runway") => runway(),
        Some("processes") => processes(),
        _ => Err(Error::argument("name a picture: runway, processes")),
    }
}
