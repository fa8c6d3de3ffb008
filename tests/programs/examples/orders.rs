//! Orders with ids of a segment and invoices with serial numbers of the day, on the database of your choice.
//!
//! ```text
//! cargo run -p keymill-tests --example orders -- MILL [COUNT] [PAUSE_MS]
//! ```
//!
//! Run it twice at once: no order comes twice. Stop the database under it: it goes on from memory.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use keymill::{Error, Mill};

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, default| args.get(i).map_or(default, |text| text.parse().unwrap_or(default));
    let (count, pause) = (number(2, 5), Duration::from_millis(number(3, 0)));
    let mut errors = BTreeMap::new();

    let mill = Mill::open(args.get(1).map_or("", String::as_str))?;
    let orders = mill.source("segment:orders")?;
    let invoices = mill.source("serial:invoice/number?date=yyyyMMdd&number=00000000")?;
    for _ in 0..count {
        match orders.next().and_then(|order| Ok((order, invoices.next_text()?))) {
            Ok((order, invoice)) => println!("order {order}, invoice {invoice}"),
            Err(error) => *errors.entry(error.code.name()).or_insert(0) += 1,
        }
        thread::sleep(pause);
    }
    mill.close();

    eprintln!("errors: {}", if errors.is_empty() { "none".to_owned() } else { format!("{errors:?}") });
    Ok(())
}
