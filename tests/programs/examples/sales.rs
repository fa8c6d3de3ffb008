//! Buyer → id → shard → found again: orders on two databases, found by their id alone.
//!
//! ```text
//! cargo run -p keymill-tests --example sales -- MILL [COUNT]
//! ```

use std::collections::HashMap;

use keymill::{Error, Mill, Router};

const TABLE: &str = r#"
version = 1
[[range]]
upper = 32767
shard = "north"
[[range]]
upper = 65535
shard = "south"
"#;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().collect();
    let count: u32 = args.get(2).and_then(|count| count.parse().ok()).unwrap_or(5);
    // `mill.router("orders")` follows a table in the store.
    let router = Router::from_text(TABLE)?;
    let mut shards: HashMap<String, HashMap<u64, String>> = HashMap::new();

    let mill = Mill::open(args.get(1).map_or("", String::as_str))?;
    let sales = mill.source("business:sale")?;
    for number in 1..=count {
        let buyer = format!("buyer-{number}");
        let id = sales.next_for(&buyer)?;
        shards.entry(router.route(id)?.shard.to_owned()).or_default().insert(id, buyer.clone());
        // The id alone leads to the row, and the buyer alone to its shard.
        let found = router.route(id)?;
        assert_eq!(shards[found.shard].get(&id), Some(&buyer));
        assert_eq!(router.route_key(&buyer)?.shard, found.shard);
        println!("{buyer}: sale {id}, gene {}, on {}", found.gene, found.shard);
    }
    mill.close();
    Ok(())
}
