//! `ddl` of business ids: servers run the statements, and read the same gene from an id as the core.

use keymill::Gene;

use crate::common::Home;
use crate::restore::Server;

const PAGE: &str = include_str!("../../../../docs/order-table.md");

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
        let rows = ids
            .iter()
            .enumerate()
            .map(|(at, id)| format!("({id}, {}, 1, {at})", self.bytes(&format!("{at:032x}"))));
        let rows: Vec<String> = rows.collect();
        self.run(&format!(
            "INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id) VALUES {}",
            rows.join(", ")
        ));
    }

    /// The genes by rising ids.
    fn genes(&self) -> Vec<u16> {
        let sql = "SELECT shard_gene FROM t_order ORDER BY order_id";
        match self {
            Database::Server(server, _) => {
                server.say(sql).lines().map(|gene| gene.parse().unwrap()).collect()
            }
            Database::Sqlite(database) => {
                let mut statement = database.prepare(sql).unwrap();
                let rows = statement.query_map([], |row| row.get(0)).unwrap();
                rows.map(Result::unwrap).collect()
            }
        }
    }
}

/// Rising ids: the first and the last number of genes at every edge of a byte and of a digit, and of others.
fn ids() -> Vec<u64> {
    let edges = (0..16).flat_map(|bit| [1_u64 << bit, (1 << bit) - 1, 0xFFFF ^ (1 << bit)]);
    let mut ids: Vec<u64> = edges
        .chain((0..64).map(|n| n * 1_021))
        .chain([0xFFFF])
        .flat_map(|gene| [1, (1 << 47) - 1].map(|number| gene << 47 | number))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// The id of 128 bits with the same gene and number.
fn wide(id: u64) -> u128 {
    u128::from(id >> 47) << 111 | u128::from(id & ((1 << 47) - 1))
}

fn gene(id: u64) -> u16 {
    Gene::of_id(id).unwrap().get()
}

#[test]
fn a_database_reads_the_gene_of_an_id_of_64_and_of_128_bits_as_the_core_does() {
    let home = Home::new();
    let issued = home.run(&["take", NARROW, "2", "--key-text", "buyer-42"]).ids();
    let mut ids: Vec<u64> = ids().into_iter().chain(issued).collect();
    ids.sort_unstable();
    for database in Database::all("gene") {
        let genes: Vec<u16> = ids.iter().copied().map(gene).collect();
        database.run(&database.ddl(&home, NARROW));
        database.insert(&ids.iter().map(u64::to_string).collect::<Vec<_>>());
        assert_eq!(database.genes(), genes, "{}", database.dialect());
        database.run("DROP TABLE t_order");
        database.run(&database.ddl(&home, WIDE));
        // Both lengths in one column.
        let mut both: Vec<(String, u16)> = ids.iter().map(|id| (format!("{id:016x}"), gene(*id))).collect();
        both.extend(ids.iter().map(|id| {
            let id = wide(*id);
            (format!("{id:032x}"), Gene::of_wide(id).unwrap().get())
        }));
        database.insert(&both.iter().map(|(hex, _)| database.bytes(hex)).collect::<Vec<_>>());
        both.sort_unstable();
        let genes: Vec<u16> = both.iter().map(|(_, gene)| *gene).collect();
        assert_eq!(database.genes(), genes, "{}", database.dialect());
    }
}

#[test]
fn an_order_number_comes_once_and_a_table_with_ids_of_64_bits_gets_a_key_of_16_bytes_as_printed() {
    let home = Home::new();
    let [mariadb, postgres, sqlite] = Database::all("widened");
    assert!(!sqlite.ddl(&home, WIDE).contains("From a table"), "SQLite changes no primary key");
    for database in [mariadb, postgres] {
        let Database::Server(server, dialect) = &database else { unreachable!() };
        let (ids, late) = (ids(), (1_u64 << 63) - 1);
        database.run(&database.ddl(&home, NARROW));
        database.insert(&ids[..ids.len() - 1].iter().map(u64::to_string).collect::<Vec<_>>());
        assert_eq!(ids.last(), Some(&late));
        let ddl = database.ddl(&home, WIDE);
        let steps: Vec<&str> = ddl
            .lines()
            .skip_while(|line| !line.starts_with("-- From a table"))
            .skip(1)
            .map(|line| line.strip_prefix("-- ").expect("a comment"))
            .collect();
        for step in &steps {
            assert!(PAGE.lines().any(|line| line == *step), "{dialect}: docs/order-table.md has not {step}");
        }
        let [add, from_second @ ..] = &steps[..] else { panic!("{ddl}") };
        let (fill, others): (Vec<&str>, Vec<&str>) =
            from_second.iter().partition(|step| step.starts_with("UPDATE"));
        // As they are pasted into a client that goes on after an error; on MariaDB as a login whose sessions are not strict.
        let paste = |steps: &[&str]| match *dialect {
            "mariadb" => server.try_say(&format!("SET SESSION sql_mode = ''; {}", steps.concat())).is_ok(),
            _ => steps.iter().filter(|step| server.try_say(step).is_ok()).count() == steps.len(),
        };
        database.run(add);
        database.run(&fill.concat());
        // A program wrote meanwhile, and the step that fills is left out.
        let row = |id: &str, number: &str| {
            let number = database.bytes(number);
            format!(
                "INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id) VALUES ({id}, {number}, 2, 7)"
            )
        };
        database.run(&row(&late.to_string(), &"ee".repeat(16)));
        assert!(!paste(&others), "{dialect}: a row has no id of 16 bytes");
        assert_eq!(server.say("SELECT COUNT(order_id) FROM t_order"), ids.len().to_string(), "{dialect}");
        assert!(paste(from_second), "{dialect}");
        assert_eq!(database.genes(), ids.iter().copied().map(gene).collect::<Vec<_>>(), "{dialect}");
        let hex = if *dialect == "postgres" { "encode(order_id, 'hex')" } else { "LOWER(HEX(order_id))" };
        let select = format!("SELECT {hex} FROM t_order ORDER BY order_id");
        let found = server.say(&select);
        let expected: Vec<String> = ids.iter().map(|id| format!("{id:016x}")).collect();
        assert_eq!(found.lines().collect::<Vec<_>>(), expected, "{dialect}");
        // What programs with wide=on write from now on.
        let new = database.bytes(&format!("{:032x}", wide(ids[0])));
        assert!(
            server.try_say(&row(&new, &"00".repeat(16))).is_err(),
            "{dialect}: the order number is there"
        );
        database.run(&row(&new, &"ff".repeat(16)));
        assert!(server.try_say(&row(&new, &"fe".repeat(16))).is_err(), "{dialect}: the id is there");
        // All steps once more: refused, and the ids are those of before.
        let before = server.say(&select);
        database.run(add);
        assert!(!paste(from_second), "{dialect}: the ids are bytes");
        assert_eq!(server.say(&select), before, "{dialect}");
        database.run("ALTER TABLE t_order DROP COLUMN order_id_16");
        // The columns of the widened table are those of a new one.
        database.run("ALTER TABLE t_order RENAME TO widened");
        for name in ["order_no", "buyer_id", "shard_gene"].map(|column| format!("t_order_{column}")) {
            if *dialect == "postgres" {
                database.run(&format!("ALTER INDEX {name} RENAME TO widened_{name}"));
            }
        }
        database.run(&ddl);
        assert_eq!(columns(server, dialect, "widened"), columns(server, dialect, "t_order"), "{dialect}");
    }
}

/// Each column of a table with its type, whether it may be null, and how it is computed; and the columns of its indexes.
fn columns(server: &Server, dialect: &str, table: &str) -> Vec<String> {
    let (columns, indexes) = match dialect {
        "postgres" => (
            format!(
                "SELECT column_name, data_type, is_nullable, generation_expression FROM information_schema.columns \
                 WHERE table_schema = current_schema AND table_name = '{table}'"
            ),
            format!(
                "SELECT substr(indexdef, strpos(indexdef, 'USING')), indexdef LIKE '%UNIQUE%' FROM pg_indexes \
                 WHERE schemaname = current_schema AND tablename = '{table}'"
            ),
        ),
        _ => (
            format!(
                "SELECT column_name, column_type, is_nullable, generation_expression, extra FROM information_schema.columns \
                 WHERE table_schema = DATABASE() AND table_name = '{table}'"
            ),
            format!(
                "SELECT column_name, index_name = 'PRIMARY', non_unique FROM information_schema.statistics \
                 WHERE table_schema = DATABASE() AND table_name = '{table}'"
            ),
        ),
    };
    let mut all: Vec<String> = [columns, indexes]
        .iter()
        .flat_map(|sql| server.say(sql).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    all.sort_unstable();
    all
}
