//! How full InnoDB's pages are under ids that begin with a gene, against random ids and ids that rise, and what each further row costs in
//! pages as the table grows.
//!
//! ```text
//! export KEYMILL_CI_DIR=/tmp/page-fill KEYMILL_CI_MARIADB_ARGS="--innodb-buffer-pool-size=2G --innodb-log-file-size=512M"
//! ci/servers/mariadb start
//! ci/servers/mariadb root -e "GRANT PROCESS ON *.* TO keymill@'%'"
//! cargo run -p keymill-tests --example page_fill -- "$(ci/servers/mariadb url)" [ROWS [GENES]]
//! ```
//!
//! The server says of each page in its memory how many bytes of rows it holds, so the whole table has to be there. Buyers come at random,
//! of as many genes as the table's shard has. Ids with a gene are issued by one mill, and by four as of four programs,
//! which reserve blocks by their rate or small ones.

use std::fmt::Write as _;

use keymill::{Change, Gene, Mill, OrderNumbers, Source};
use mysql::prelude::Queryable;

const PAGE: f64 = 16_384.0;
const ROWS_A_STATEMENT: usize = 1000;

/// The table of `keymill ddl business:order --dialect mariadb`, and other columns of 64 bytes.
const TABLE: &str = "CREATE TABLE page_fill (
    order_id BIGINT NOT NULL PRIMARY KEY,
    order_no VARBINARY(16) NOT NULL,
    order_no_kv TINYINT UNSIGNED NOT NULL,
    buyer_id BIGINT NOT NULL,
    shard_gene SMALLINT UNSIGNED GENERATED ALWAYS AS (order_id >> 47) VIRTUAL,
    version BIGINT NOT NULL DEFAULT 1,
    created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    more VARBINARY(64) NOT NULL,
    UNIQUE KEY order_no (order_no),
    KEY buyer_id (buyer_id),
    KEY shard_gene (shard_gene)) ENGINE=InnoDB";

/// Where the ids of a table come from.
enum Ids {
    Rising(u64),
    Random,
    ByGene(Vec<Source>),
}

impl Ids {
    fn next(&mut self, buyer: u64, random: &mut fastrand::Rng) -> u64 {
        match self {
            Ids::Rising(last) => {
                *last += 1;
                *last
            }
            Ids::Random => random.u64(1..1 << 63),
            Ids::ByGene(sources) => {
                let source = &sources[random.usize(..sources.len())];
                source.next_for(buyer).expect("an id")
            }
        }
    }
}

/// An index at a moment: its pages, and the bytes of rows in them.
#[derive(Clone, Copy, Default)]
struct Index {
    pages: u64,
    bytes: u64,
}

impl Index {
    fn read(connection: &mut mysql::Conn, name: &str, rows: usize) -> Index {
        let sql = "SELECT COUNT(*), CAST(SUM(DATA_SIZE) AS UNSIGNED), CAST(SUM(NUMBER_RECORDS) AS UNSIGNED) \
                   FROM information_schema.INNODB_BUFFER_PAGE \
                   WHERE TABLE_NAME LIKE '%page_fill%' AND PAGE_TYPE = 'INDEX' AND INDEX_NAME = ?";
        let (pages, bytes, records): (u64, u64, u64) =
            connection.exec_first(sql, (name,)).expect("the right PROCESS").expect("a row");
        assert!(records >= rows as u64, "the server's memory is too small for the table");
        Index { pages, bytes }
    }

    fn since(self, before: Index) -> Index {
        Index { pages: self.pages - before.pages, bytes: self.bytes - before.bytes }
    }

    fn fill(self) -> f64 {
        self.bytes as f64 / (self.pages as f64 * PAGE)
    }
}

fn insert(
    connection: &mut mysql::Conn,
    numbers: &OrderNumbers,
    ids: &mut Ids,
    buyers: &[u64],
    random: &mut fastrand::Rng,
) {
    let more = "x".repeat(64);
    let buyers: Vec<u64> = (0..ROWS_A_STATEMENT).map(|_| buyers[random.usize(..buyers.len())]).collect();
    let new: Vec<u64> = buyers.iter().map(|buyer| ids.next(*buyer, random)).collect();
    let sealed = numbers.seal_all(&new).expect("order numbers");
    let mut sql =
        "INSERT INTO page_fill (order_id, order_no, order_no_kv, buyer_id, more) VALUES ".to_owned();
    for (at, ((id, buyer), number)) in new.iter().zip(&buyers).zip(sealed).enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(sql, "{comma}({id},X'{:032x}',1,{buyer},'{more}')", u128::from_be_bytes(number));
    }
    connection.query_drop(sql).expect("no key comes twice");
}

/// Prints a line for each doubling of the table.
fn measure(url: &str, name: &str, ids: &mut Ids, rows: usize, buyers: &[u64], genes: usize) {
    let mut connection =
        mysql::Conn::new(format!("{url}?prefer_socket=false").as_str()).expect("the server answers");
    connection.query_drop("DROP TABLE IF EXISTS page_fill").expect("dropped");
    connection.query_drop(TABLE).expect("created");
    let numbers = OrderNumbers::from_keys(&[(1, &[7; 32])], 1, "", "page_fill").expect("keys");
    // The same buyers in the same turns for every form.
    let mut random = fastrand::Rng::with_seed(7);
    let (mut there, mut before, mut rows_before) = (0, Index::default(), 0);
    let mut next = (rows / 64).next_multiple_of(ROWS_A_STATEMENT);
    while there < rows {
        insert(&mut connection, &numbers, ids, buyers, &mut random);
        there += ROWS_A_STATEMENT;
        if there < next.min(rows) {
            continue;
        }
        let primary = Index::read(&mut connection, "PRIMARY", there);
        let new = primary.since(before);
        println!(
            "| {name} | {there} | {} | {:.1} % | {:.1} % | {:.2} |",
            there / genes,
            primary.fill() * 100.0,
            new.fill() * 100.0,
            new.pages as f64 * 1000.0 / (there - rows_before) as f64,
        );
        (before, rows_before) = (primary, there);
        next = there * 2;
    }
    let others = ["order_no", "buyer_id", "shard_gene"]
        .map(|index| format!("`{index}` {:.1} %", Index::read(&mut connection, index, there).fill() * 100.0));
    println!("| {name}, other indexes | {there} | | {} | | |", others.join(", "));
    connection.query_drop("DROP TABLE page_fill").expect("dropped");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |at: usize, default: usize| args.get(at).map_or(default, |text| text.parse().expect("a number"));
    let Some(url) = args.first() else {
        eprintln!("page_fill URL [ROWS [GENES]]");
        return;
    };
    let (rows, genes) = (number(1, 1_024_000), number(2, 512));
    let buyers: Vec<u64> =
        (1..).filter(|buyer| usize::from(Gene::of_number(*buyer).get()) < genes).take(genes * 8).collect();
    let spec = "business:page_fill?counters=4096&deadline=60s";
    // As where a counter has fewer than 16 orders in half a minute: a program reserves the least for it.
    let slow = "business:page_fill_slow?counters=4096&step=16&max_step=16&deadline=60s";
    let mills: Vec<Mill> = (0..4).map(|_| Mill::open(url).expect("a mill")).collect();
    mills[0].init(&[spec, slow], Change::Apply).expect("tables");
    let sources = |count: usize, spec: &str| {
        Ids::ByGene(mills[..count].iter().map(|mill| mill.source(spec).expect("a source")).collect())
    };
    println!("{rows} rows, {genes} genes of the 65536\n");
    println!(
        "| primary key | rows | rows a gene | page fill | new rows to new pages | new pages for 1000 rows |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, mut ids) in [
        ("rising", Ids::Rising(0)),
        ("random", Ids::Random),
        ("gene first, one program", sources(1, spec)),
        ("gene first, four programs", sources(4, spec)),
        ("gene first, four programs, blocks of 16", sources(4, slow)),
    ] {
        measure(url, name, &mut ids, rows, &buyers, genes);
    }
}
