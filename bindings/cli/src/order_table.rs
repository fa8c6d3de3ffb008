//! The table of orders, whose key is a business id: `ddl` of a business source.

use crate::dialect::{Dialect, Variant, quoted};

/// The gene of an id of 64 bits. The highest bit is 0, and 47 bits of the number follow the gene.
const GENE_OF_NUMBER: &str = "order_id >> 47";

/// The gene of an id in bytes. Both forms begin with a bit that is 0 and the gene, so this holds for 8 bytes and for 16.
fn gene_of_bytes(dialect: Dialect) -> String {
    let byte = |at: u8| match dialect {
        Dialect::Postgres => format!("get_byte(order_id, {at})"),
        _ => format!("ORD(SUBSTR(order_id, {}, 1))", at + 1),
    };
    // SQLite has no number of a byte: it reads the first five hexadecimal digits.
    let digit = |at: u8| format!("(instr('123456789ABCDEF', substr(hex(order_id), {at}, 1)))");
    match dialect {
        Dialect::Sqlite => format!(
            "({} << 13) | ({} << 9) | ({} << 5) | ({} << 1) | ({} >> 3)",
            digit(1),
            digit(2),
            digit(3),
            digit(4),
            digit(5)
        ),
        _ => format!("({} << 9) | ({} << 1) | ({} >> 7)", byte(0), byte(1), byte(2)),
    }
}

/// The words that differ between the databases.
struct Words {
    quote: char,
    number: &'static str,
    bytes: &'static str,
    version: &'static str,
    gene: &'static str,
    /// Whether a generated column is computed when it is read.
    kept: &'static str,
    created: &'static str,
}

impl Words {
    fn of(dialect: Dialect) -> Words {
        match dialect {
            Dialect::Postgres => Words {
                quote: '"',
                number: "bigint",
                bytes: "bytea",
                version: "smallint",
                gene: "integer",
                kept: "STORED",
                created: "timestamptz(3) NOT NULL DEFAULT now()",
            },
            Dialect::Sqlite => Words {
                quote: '"',
                number: "INTEGER",
                bytes: "BLOB",
                version: "INTEGER",
                gene: "INTEGER",
                kept: "VIRTUAL",
                created: "TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP",
            },
            Dialect::Mysql | Dialect::Mariadb | Dialect::Tidb => Words {
                quote: '`',
                number: "BIGINT",
                bytes: "VARBINARY(16)",
                version: "TINYINT UNSIGNED",
                gene: "SMALLINT UNSIGNED",
                kept: "VIRTUAL",
                created: "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)",
            },
        }
    }

    fn gene(&self, expression: &str) -> String {
        format!("shard_gene {} GENERATED ALWAYS AS ({expression}) {}", self.gene, self.kept)
    }
}

/// The name of an index of the table, without its schema.
fn index(name: &str, column: &str, quote: char) -> String {
    let table = name.rsplit('.').next().unwrap_or(name);
    quoted(&format!("{table}_{column}").replace('.', "_"), quote)
}

/// The `CREATE` statements, and as a comment the way from a table with ids of 64 bits to one with 16 bytes.
pub fn statements(name: &str, dialect: Dialect, is_wide: bool, variant: Option<Variant>) -> Vec<String> {
    let words = Words::of(dialect);
    let (id, expression) = if is_wide {
        (words.bytes, gene_of_bytes(dialect))
    } else {
        (words.number, GENE_OF_NUMBER.to_owned())
    };
    let (how, end) = match (dialect, variant) {
        (Dialect::Tidb, Some(Variant::Nonclustered)) => {
            (" NONCLUSTERED", " SHARD_ROW_ID_BITS = 4 PRE_SPLIT_REGIONS = 4")
        }
        (Dialect::Tidb, _) => (" CLUSTERED", ""),
        _ => ("", ""),
    };
    let table = quoted(name, words.quote);
    let [number, buyer, gene] =
        ["order_no", "buyer_id", "shard_gene"].map(|column| index(name, column, words.quote));
    let columns = [
        format!("order_id {id} NOT NULL PRIMARY KEY{how}"),
        format!("order_no {} NOT NULL", words.bytes),
        format!("order_no_kv {} NOT NULL", words.version),
        format!("buyer_id {} NOT NULL", words.number),
        words.gene(&expression),
        format!("version {} NOT NULL DEFAULT 1", words.number),
        format!("created_at {}", words.created),
    ];
    let mut all = vec![
        "-- order_id: the id of `next_for(buyer_id)`, so buyer_id has the type of your keys. An id begins with the gene of its key: rows of one key are neighbours, those of different keys are spread.".to_owned(),
        format!("-- order_no: what `seal` makes of it, with key version order_no_kv; of `seal8` it is {}.", words.number),
        "-- shard_gene: the gene in the id. version: every UPDATE raises it by 1, so that a copy of a row never replaces a newer one.".to_owned(),
    ];
    match dialect {
        Dialect::Postgres | Dialect::Sqlite => {
            all.push(format!("CREATE TABLE {table} (\n  {}\n)", columns.join(",\n  ")));
            // SQLite keeps an index in the schema that its own name says.
            let on = match (dialect, name.rsplit_once('.')) {
                (Dialect::Sqlite, Some((schema, _))) => format!("{}.", quoted(schema, words.quote)),
                _ => String::new(),
            };
            let indexed = if dialect == Dialect::Sqlite { quoted(name.rsplit('.').next().unwrap_or(name), words.quote) } else { table.clone() };
            all.push(format!("CREATE UNIQUE INDEX {on}{number} ON {indexed} (order_no)"));
            all.push(format!("CREATE INDEX {on}{buyer} ON {indexed} (buyer_id)"));
            all.push(format!("CREATE INDEX {on}{gene} ON {indexed} (shard_gene)"));
        }
        Dialect::Mysql | Dialect::Mariadb | Dialect::Tidb => all.push(format!(
            "CREATE TABLE {table} (\n  {},\n  UNIQUE KEY {number} (order_no),\n  KEY {buyer} (buyer_id),\n  KEY {gene} (shard_gene)\n){end}",
            columns.join(",\n  ")
        )),
    }
    if is_wide {
        all.extend(widening(&words, &table, &gene, dialect));
    }
    all
}

/// How a table with ids of 64 bits gets a key of 16 bytes, as comments. An `ALTER` of the column's type would write the digits of the
/// ids.
fn widening(words: &Words, table: &str, gene: &str, dialect: Dialect) -> Vec<String> {
    let shard_gene = words.gene(&gene_of_bytes(dialect));
    let steps = match dialect {
        Dialect::Postgres => vec![
            format!("ALTER TABLE {table} ADD COLUMN order_id_16 bytea"),
            format!("UPDATE {table} SET order_id_16 = int8send(order_id) WHERE order_id_16 IS NULL"),
            format!(
                "ALTER TABLE {table} DROP COLUMN shard_gene, DROP COLUMN order_id, ALTER COLUMN order_id_16 SET NOT NULL"
            ),
            format!("ALTER TABLE {table} RENAME COLUMN order_id_16 TO order_id"),
            format!("ALTER TABLE {table} ADD PRIMARY KEY (order_id), ADD COLUMN {shard_gene}"),
            format!("CREATE INDEX {gene} ON {table} (shard_gene)"),
        ],
        Dialect::Mysql | Dialect::Mariadb => vec![
            format!("ALTER TABLE {table} ADD COLUMN order_id_16 VARBINARY(16)"),
            // Where the steps are taken twice, any other mode makes an empty id of a row that was not filled, and an id of 8 bytes of an id
            // of 16: `+ 0` is refused for bytes.
            "SET SESSION sql_mode = 'STRICT_ALL_TABLES'".to_owned(),
            format!(
                "UPDATE {table} SET order_id_16 = UNHEX(LPAD(HEX(order_id + 0), 16, '0')) WHERE order_id_16 IS NULL"
            ),
            format!(
                "ALTER TABLE {table} DROP COLUMN shard_gene, DROP PRIMARY KEY, DROP COLUMN order_id, CHANGE COLUMN order_id_16 order_id VARBINARY(16) NOT NULL FIRST, ADD PRIMARY KEY (order_id)"
            ),
            format!(
                "ALTER TABLE {table} ADD COLUMN {shard_gene} AFTER buyer_id, ADD KEY {gene} (shard_gene)"
            ),
        ],
        // Neither changes the primary key of a table that has rows.
        Dialect::Tidb | Dialect::Sqlite => return Vec::new(),
    };
    let mut lines = vec![
        "-- From a table with ids of 64 bits to this one; both lengths may stand in one column. The steps up to UPDATE may run while programs write. Then stop the programs, and go on from the second step.".to_owned(),
    ];
    lines.extend(steps.into_iter().map(|step| format!("-- {step};")));
    lines
}
