//! `ddl` of business ids: servers run the statements, and read the same gene from an id as the core.

use crate::common::Home;
use crate::restore::Server;

const NARROW: &str = "business:order";
const WIDE: &str = "business:order?wide=on";

/// A database that the statements are for.
enum Database {
    Server(Server, &'static str),
    Sqlite(rusqlite::Connection),
}

impl Database {
    fn all(name: &str) -> [Database; 3] {
        [
            Database::Server(Server::mariadb(name), "mariadb"),
            Database::Server(Server::postgres(name), "postgres"),
            Database::Sqlite(rusqlite::Connection::open_in_memory().unwrap()),
        ]
    }

    fn dialect(&self) -> &'static str {
        match self {
            Database::Server(_, dialect) => dialect,
            Database::Sqlite(_) => "sqlite",
        }
    }

    fn ddl(&self, home: &Home, spec: &str) -> String {
        home.run(&["ddl", spec, "t_order", "--dialect", self.dialect()]).done()
    }

    fn run(&self, sql: &str) {
        match self {
            Database::Server(server, _) => drop(server.say(sql)),
            Database::Sqlite(database) => database.execute_batch(sql).unwrap(),
        }
    }

    fn bytes(&self, hex: &str) -> String {
        match self.dialect() {
            "postgres" => format!("'\\x{hex}'::bytea"),
            _ => format!("X'{hex}'"),
        }
    }

    fn insert(&self, ids: &[String]) {
        let rows = ids.iter().enumerate().map(|(at, id)| {
            format!("({id}, {}, 1)", self.bytes(&format!("{at:032x}")))
        });
        let rows: Vec<String> = rows.collect();
        self.run(&format!("INSERT INTO t_order (order_id, order_no, order_no_kv) VALUES {}", rows.join(", ")));
    }

    /// The genes by rising ids.
    fn genes(&self) -> Vec<u16> {
        let sql = "SELECT shard_gene FROM t_order ORDER BY order_id";
        match self {
            Database::Server(server, _) => server.say(sql).lines().map(|gene| gene.parse().unwrap()).collect(),
            Database::Sqlite(database) => {
                let mut statement = database.prepare(sql).unwrap();
                let rows = statement.query_map([], |row| row.get(0)).unwrap();
                rows.map(Result::unwrap).collect()
            }
        }
    }
}

/// Genes at every edge of a byte and of a digit, and the first and last ids of each.
fn ids() -> Vec<(u16, u64)> {
    let edges = (0..16).flat_map(|bit| [1_u16 << bit, (1 << bit) - 1, !(1 << bit)]);
    let mut genes: Vec<u16> = edges.chain((0..64).map(|n| n * 1_021)).collect();
    genes.sort_unstable();
    genes.dedup();
    let of = |gene: u16| [1, (1 << 47) - 1].map(|number| (gene, u64::from(gene) << 47 | number));
    genes.into_iter().flat_map(of).collect()
}

/// The same number with the same gene in 128 bits, in hexadecimal.
fn wide(id: u64) -> String {
    let (gene, number) = (id >> 47, id & ((1 << 47) - 1));
    format!("{:032x}", u128::from(gene) << 111 | u128::from(number))
}

#[test]
fn a_database_reads_the_gene_of_an_id_of_64_and_of_128_bits_as_the_core_does() {
    let home = Home::new();
    for database in Database::all("gene") {
        let genes: Vec<u16> = ids().iter().map(|(gene, _)| *gene).collect();
        database.run(&database.ddl(&home, NARROW));
        database.insert(&ids().iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>());
        assert_eq!(database.genes(), genes, "{}", database.dialect());
        database.run("DROP TABLE t_order");
        database.run(&database.ddl(&home, WIDE));
        // Both lengths in one column.
        let bytes = |of: &dyn Fn(u64) -> String| -> Vec<String> {
            ids().iter().map(|(_, id)| database.bytes(&of(*id))).collect()
        };
        let mut all = bytes(&|id| format!("{id:016x}"));
        all.extend(bytes(&wide));
        database.insert(&all);
        let mut twice: Vec<u16> = genes.iter().chain(&genes).copied().collect();
        twice.sort_unstable();
        assert_eq!(database.genes(), twice, "{}", database.dialect());
    }
}

#[test]
fn an_order_number_comes_once_and_a_table_with_ids_of_64_bits_gets_a_key_of_16_bytes_as_printed() {
    let home = Home::new();
    let [mariadb, postgres, sqlite] = Database::all("widened");
    assert!(!sqlite.ddl(&home, WIDE).contains("From a table"), "SQLite changes no primary key");
    for database in [mariadb, postgres] {
        database.run(&database.ddl(&home, NARROW));
        database.insert(&ids().iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>());
        let genes = database.genes();
        let Database::Server(server, dialect) = &database else { unreachable!() };
        let ddl = database.ddl(&home, WIDE);
        let steps: Vec<&str> =
            ddl.lines().skip_while(|line| !line.starts_with("-- From a table")).skip(1).collect();
        assert!(steps.len() > 4, "{ddl}");
        for step in steps {
            database.run(step.strip_prefix("-- ").expect("a comment"));
        }
        assert_eq!(database.genes(), genes, "{dialect}");
        let hex = if *dialect == "postgres" { "encode(order_id, 'hex')" } else { "LOWER(HEX(order_id))" };
        let found = server.say(&format!("SELECT {hex} FROM t_order ORDER BY order_id"));
        let expected: Vec<String> = ids().iter().map(|(_, id)| format!("{id:016x}")).collect();
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{dialect}");
        // What programs with wide=on write from now on.
        let new = database.bytes(&wide(ids()[0].1));
        let row = |number: &str| {
            format!("INSERT INTO t_order (order_id, order_no, order_no_kv) VALUES ({new}, {}, 2)", database.bytes(number))
        };
        assert!(server.try_say(&row(&"00".repeat(16))).is_err(), "{dialect}: the order number is there");
        database.run(&row(&"ff".repeat(16)));
        assert!(server.try_say(&row(&"fe".repeat(16))).is_err(), "{dialect}: the id is there");
    }
}
