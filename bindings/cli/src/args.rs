//! The words of the command line, and the help that teaches them. What each verb does stands in its own file.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::dialect::{Dialect, Variant};
use crate::move_args::MoveVerb;

const STORY: &str = "\
Five minutes:
  keymill take segment:orders 5                   ids 1 to 5, kept in ./keymill.db
  keymill take segment:orders 5                   6 to 10: unused numbers were given back
  keymill take 'serial:cust_info/custid?date=yyyyMMdd&number=000000' 3
  keymill next 'snowflake:tx?worker=5'            a 64-bit id with time, worker and sequence in it
  keymill parse 'snowflake:tx?worker=5' ID        … and what it is made of
  keymill status segment:orders                   what the store says
  keymill --mill 'mysql://app@127.0.0.1:3306/ids?password_file=/etc/ids.password' init     the same on a server
  export KEYMILL_CONFIG=file:keymill.toml         … and for every command from now on

A source is named by one string, kind:name?option=value&…: segment:NAME, snowflake:NAME, serial:TABLE/COLUMN,
business:NAME.
Other users can read a command line (ps): put a password into KEYMILL_CONFIG, KEYMILL_PASSWORD, a file that
password_file= names, or a TOML file, with mode 600.
A mill is opened from one string: sqlite:FILE, memory:, mysql://user@host:port/database, postgres://…, redis://host:port, file:CONFIG.toml.

Ids and answers go to standard output, everything else to standard error. Exit 0: done; 1: it could not be done, and
the first line says why (keymill: CODE: message); 2: the command line itself is wrong; 130 or 143: SIGINT or SIGTERM ended it.";

/// Identifiers at memory speed: database segments, snowflakes and serial numbers.
#[derive(Debug, Parser)]
#[command(name = "keymill", version, after_help = STORY)]
#[command(arg_required_else_help = true, max_term_width = 110)]
pub struct Args {
    /// The mill: a store's URL or file:CONFIG.toml [default: $KEYMILL_CONFIG, else sqlite:keymill.db]; no password in it (ps)
    #[arg(long, global = true, value_name = "CONFIG")]
    pub mill: Option<String>,

    /// Answer in JSON; ids are decimal strings
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The key of a business id.
#[derive(clap::Args, Clone, Debug)]
pub struct KeyArgs {
    /// For business ids: the key, a whole number
    #[arg(long, value_name = "K", allow_negative_numbers = true, conflicts_with = "key_text")]
    pub key: Option<i128>,
    /// For business ids: the key, a text
    #[arg(long, value_name = "T")]
    pub key_text: Option<String>,
}

impl KeyArgs {
    /// Whether one is given.
    pub fn is_given(&self) -> bool {
        self.key.is_some() || self.key_text.is_some()
    }
}

/// The keys of order numbers, and whose they are.
#[derive(clap::Args, Clone, Debug)]
pub struct OrderKeys {
    /// The key file; other users must not be able to read it [default: the text in $KEYMILL_ORDER_KEYS]
    #[arg(long, value_name = "FILE")]
    pub keys: Option<std::path::PathBuf>,
    /// The tenant of the orders; each tenant has its own keys
    #[arg(long, value_name = "T", default_value = "", hide_default_value = true)]
    pub tenant: String,
    /// The table of the orders; each table has its own keys, too
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub table: String,
    /// The key's version, 1 to 255; an order number of 16 bytes has to have this version
    #[arg(long, value_name = "V", value_parser = clap::value_parser!(u16).range(0..=255))]
    pub key_version: Option<u16>,
    /// The id has 128 bits
    #[arg(long)]
    pub wide: bool,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print one id
    #[command(after_help = "\
Examples:
  keymill next segment:orders
  keymill next 'serial:cust_info/custid?number=000000'
  keymill next business:order --key 42
  keymill next 'business:order?counters=4096' --key-text buyer-42
  id=$(keymill --mill memory: next 'snowflake:tx?worker=5')")]
    Next {
        /// The source: kind:name?option=value&…
        source: String,
        #[command(flatten)]
        key: KeyArgs,
    },

    /// Print N ids, one a line
    #[command(long_about = "\
Print N ids, one a line.

Ids are printed as they come, so a large N needs no more memory. If the reader goes away (| head), the command ends
without an error. At the end, and at the first Ctrl-C, unused numbers go back to the store; a second Ctrl-C kills the
command. On a terminal, a count that takes a while shows its progress on standard error. With --json: an array of strings.")]
    #[command(after_help = "\
Examples:
  keymill take segment:orders 5
  keymill take segment:orders 10000000 > ids.txt
  keymill take 'serial:cust_info/custid?date=yyyyMMdd&number=000000&step=500' 3 --json")]
    Take {
        /// The source: kind:name?option=value&…
        source: String,
        /// How many
        #[arg(value_name = "N")]
        count: u64,
        #[command(flatten)]
        key: KeyArgs,
    },

    /// Say what an id is made of: time, worker, sequence; date, number
    #[command(after_help = "\
Nothing is read from the store. The layout and the epoch come from the spec, so write both into it.

Examples:
  keymill parse 'snowflake:tx?worker=5' 247860366901596160
  keymill parse 'snowflake:tx?layout=uid&worker=5' 2147483690
  keymill parse 'serial:cust_info/custid?number=000000' 20261120000001")]
    Parse {
        /// The source: kind:name?option=value&…
        source: String,
        /// An id, or the text of a serial number
        id: String,
    },

    /// Print the gene of a business key, 0 to 65535
    #[command(after_help = "\
(xxhash64(key, 0) ^ murmurhash64A(key, 0)) & 0xFFFF. A text is its UTF-8 bytes, an integer its 8 bytes little-endian.

Examples:
  keymill gene --key 42
  keymill gene --key-text buyer-42")]
    #[command(group = clap::ArgGroup::new("one_key").args(["key", "key_text"]).required(true))]
    Gene {
        #[command(flatten)]
        key: KeyArgs,
    },

    /// Print where an id or a business key belongs, or store a route table
    #[command(long_about = "\
Print where an id or a business key belongs: its gene, its shard, the shards to read from and to write to, and the
version of the table. The table comes from the mill's store, under NAME, or from a file.")]
    #[command(after_help = "\
An id is a decimal number of 64 bits, with --wide of 128 bits, or 0x and its 8 or 16 bytes in hexadecimal. The
`version` of a table only rises: `put` is refused if the store has the same or a higher version. Without --yes it only
shows both versions.

Examples:
  keymill route put orders routes.toml --yes
  keymill route 7943786259550846977 orders
  keymill route --key 42 orders
  keymill route --key-text buyer-42 --table routes.json --json
  keymill route --order-no 6WFC0Z3J6MZTAKV7NK3VWK76VB --table routes.toml
  keymill route 0x6e3d8000000000000000000000000001 --table routes.toml")]
    #[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Route {
        #[command(subcommand)]
        verb: Option<RouteVerb>,
        /// The id, and the router's name [default: default]; with --key, --key-text or --order-no only the name
        #[arg(value_name = "ID] [NAME", num_args = 0..=2, required_unless_present_any = ["key", "key_text", "order_no"])]
        words: Vec<String>,
        #[command(flatten)]
        key: KeyArgs,
        /// An order number: 26 or 14 characters, a decimal number, or 0x and 32 or 16 hexadecimal digits
        #[arg(long, value_name = "N", conflicts_with_all = ["key", "key_text", "wide"])]
        order_no: Option<String>,
        /// The id has 128 bits
        #[arg(long)]
        wide: bool,
        /// A file with the table, TOML or JSON, instead of the store
        #[arg(long, value_name = "FILE")]
        table: Option<std::path::PathBuf>,
    },

    /// Move ranges of genes between shards, while programs go on
    #[command(long_about = "\
Move ranges of genes between shards, while programs go on.

First a range is mirrored: programs write to both shards, and the old shard decides. Older rows are copied and compared.
Then a growing percentage of ids is read from the new shard, both shards are compared again, and the move is finished.
A step is stored only when every process that follows the table runs the version before it. Each step but the last can
be undone without loss. Without --yes a command only shows what it would do.")]
    #[command(after_help = "\
Examples:
  keymill move plan orders --shards s1,s2,s3 --out plan.toml
  keymill move start orders --plan plan.toml --yes
  keymill move verify orders --wait --yes
  keymill move next orders --wait --yes
  keymill move back orders --yes
  keymill move finish orders --wait --yes
  keymill move status orders")]
    Move {
        #[command(subcommand)]
        verb: MoveVerb,
    },

    /// Print the order number of a business id, the number that customers see
    #[command(long_about = "\
Print the order number of a business id, the number that customers see. Its gene stays readable, so
`keymill route --order-no` needs no key; the number in the id is encrypted. --json has the order number in each of its
forms.")]
    #[command(after_help = "\
A key file has `seal_with = 1` and, below `[key]`, lines such as `1 = \"64 hexadecimal digits\"`. Make one, for you alone:
  (umask 077; printf 'seal_with = 1\n[key]\n1 = \"%s\"\n' \"$(openssl rand -hex 32)\" > keys.toml)

Examples:
  keymill seal 7943646055239778305 --keys keys.toml --table orders
  keymill seal 7943646055239778305 --keys keys.toml --tenant acme --table orders --json
  keymill seal 7943646055239778305 --keys keys.toml --form 8 --key-version 1
  keymill seal - --keys keys.toml --table orders < ids.txt")]
    Seal {
        /// The id, in decimal; or `-`, for an id in each line of standard input
        id: String,
        #[command(flatten)]
        keys: OrderKeys,
        /// How many bytes: 16, printed as text; or 8 for a BIGINT, printed in decimal and without a check against forgery
        #[arg(long, value_name = "16|8", default_value = "16", value_parser = ["16", "8"], conflicts_with = "wide")]
        form: String,
    },

    /// Print the id in an order number
    #[command(after_help = "\
An order number of 16 bytes is 26 characters, or 0x and 32 hexadecimal digits. An order number of 8 bytes is 14
characters, a decimal number, or 0x and 16 hexadecimal digits. An order number of 16 bytes that these keys did not seal
for this tenant and this table is FORGED. An order number of 8 bytes has no such check: it always opens.

Examples:
  keymill unseal 6WFC0Z3J6MZTAKV7NK3VWK76VB --keys keys.toml --tenant acme --table orders
  keymill unseal 7943719833957099537 --keys keys.toml --tenant acme --table orders --key-version 1
  keymill unseal - --keys keys.toml --table orders < numbers.txt")]
    Unseal {
        /// The order number; or `-`, for one in each line of standard input
        #[arg(value_name = "NUMBER")]
        order_no: String,
        #[command(flatten)]
        keys: OrderKeys,
    },

    /// Explain a snowflake layout: fields, capacity, the day it ends; or propose one
    #[command(after_help = "\
Presets: twitter, uid, sonyflake, js53. Free form: time:BITS@UNIT,worker:BITS,seq:BITS, at most 63 bits.
With --years, --workers and --rate instead of a name: layouts that hold so much, and, if 53 bits are enough, a layout
whose ids JavaScript numbers hold exactly.

Examples:
  keymill layout uid
  keymill layout uid --epoch 2016-05-20
  keymill layout twitter --scatter 1
  keymill layout time:41@1ms,dc-worker:5+5,seq:12
  keymill layout --years 50 --workers 1000 --rate 100000")]
    Layout {
        /// A preset's name, or the fields
        #[arg(value_name = "NAME_OR_SPEC", required_unless_present_any = ["years", "workers", "rate"])]
        layout: Option<String>,
        /// The moment ticks are counted from: 2025-01-01 or 2025-01-01T00:00:00Z
        #[arg(long, default_value = keymill::snowflake::layout::DEFAULT_EPOCH)]
        epoch: String,
        /// The scattered form of the ids: 0, 1, 2, 3 or high:BITS
        #[arg(long, default_value = "0")]
        scatter: String,
        /// Propose layouts that last this long
        #[arg(long, value_name = "Y", conflicts_with_all = ["layout", "scatter", "epoch"], requires_all = ["workers", "rate"])]
        years: Option<u32>,
        /// … have this many workers
        #[arg(long, value_name = "W", requires = "years")]
        workers: Option<u64>,
        /// … and make this many ids per second in each of them
        #[arg(long, value_name = "R", requires = "years")]
        rate: Option<u64>,
    },

    /// Print a first CREATE TABLE for rows whose key is an id of this source
    #[command(long_about = "\
Print a first CREATE TABLE for rows whose key is an id of this source. No database is asked. On TiDB the default variant
depends on the source: clustered for scattered ids and business ids, nonclustered for ids that rise, text for serials.")]
    #[command(after_help = "\
Examples:
  keymill ddl segment:orders --dialect postgres
  keymill ddl 'snowflake:tx?worker=5&scatter=1' t_tx --dialect tidb
  keymill ddl 'snowflake:tx?worker=5' t_tx --dialect tidb --variant text")]
    Ddl {
        /// The source: kind:name?option=value&…
        source: String,
        /// The table [default: the source's name]
        table: Option<String>,
        /// The database
        #[arg(long)]
        dialect: Dialect,
        /// How TiDB keeps the rows
        #[arg(long)]
        variant: Option<Variant>,
    },

    /// Show where the ids of a source land, over time and over regions
    #[command(long_about = "\
Show where the ids of a source land, over time and over the regions of a table or the residues of a modulo.

Ids are made in memory for a minute of simulated time, 250 a second and worker; the mill's store is not asked. More ids
make a cell fuller in a terminal and darker in the SVG file. The hottest share of a second is the load of one region,
and so of one server.")]
    #[command(after_help = "\
Examples:
  keymill spread 'snowflake:tx?worker=5'
  keymill spread 'snowflake:tx?worker=5&scatter=1' --workers 4
  keymill spread 'snowflake:tx?worker=5&scatter=high:4' --svg spread.svg
  keymill spread 'snowflake:tx?worker=5' --modulo 10")]
    Spread {
        /// The source: kind:name?option=value&…
        source: String,
        /// Parts of equal size [default: as many as scatter has, else 32]
        #[arg(long, value_name = "N", conflicts_with = "modulo", value_parser = clap::value_parser!(u32).range(2..=4096))]
        regions: Option<u32>,
        /// Residues of this number, as for sharding by id
        #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(2..=4096))]
        modulo: Option<u32>,
        /// How many processes make ids, each with a worker of its own
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
        workers: u16,
        /// Draw the picture into this file, too
        #[arg(long, value_name = "FILE")]
        svg: Option<std::path::PathBuf>,
    },

    /// Print the statements that cut a TiDB table into regions, for scattered ids
    #[command(
        name = "split-sql",
        long_about = "\
Print the statements that cut a TiDB table into regions, for scattered ids. No database is asked.

With scatter=1, 2 or 3 the regions hold the ids of one first digit; the statements for the next digit follow, with the
first date of its ids. With scatter=high:BITS the regions stay for the life of the layout."
    )]
    #[command(after_help = "\
Examples:
  keymill split-sql 'snowflake:tx?worker=5&scatter=1' t_tx
  keymill split-sql 'snowflake:tx?worker=5&scatter=high:4' shop.t_tx --index PRIMARY --tikv 12")]
    SplitSql {
        /// The source: kind:name?option=value&…
        source: String,
        /// The table
        table: String,
        /// The index of the ids, if they are not the clustered primary key: PRIMARY for a nonclustered key
        #[arg(long, value_name = "NAME")]
        index: Option<String>,
        /// How many regions [default: as many as scatter has parts]
        #[arg(long, value_name = "N")]
        regions: Option<u64>,
        /// The number of TiKV servers, for advice about scatter
        #[arg(long, value_name = "N")]
        tikv: Option<u64>,
    },

    /// Create what the store needs for these sources
    #[command(after_help = "\
Without a source: the sources of the TOML file, else keymill's own table. Tables and rows that exist stay as they are.
--dry-run prints the statements, for a user who may run them.

Examples:
  keymill init
  keymill --mill mysql://app@127.0.0.1:3306/ids init segment:orders serial:cust_info/custid
  keymill --mill mysql://app@127.0.0.1:3306/ids init --dry-run > schema.sql")]
    Init {
        /// Sources: kind:name?option=value&…
        #[arg(value_name = "SOURCE")]
        sources: Vec<String>,
        /// Print the statements, carry out none
        #[arg(long)]
        dry_run: bool,
    },

    /// Show the store, and where these sources stand in it
    #[command(after_help = "\
Without a source: the sources of the TOML file, and the rows in keymill's own tables. The name of a listed segment,
serial or business row can be given as a source. Nothing is created or changed.

Examples:
  keymill status
  keymill status segment:orders serial:cust_info/custid
  keymill --mill file:keymill.toml status --json")]
    Status {
        /// Sources: kind:name?option=value&…
        #[arg(value_name = "SOURCE")]
        sources: Vec<String>,
        /// Measure for this time how fast the hottest counters of business ids are used up
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=3600))]
        seconds: Option<u16>,
    },

    /// Print where sources stand in the store, as Prometheus text
    #[command(after_help = "\
The figures come from the store's settings and rows. A program's own figures (ids issued, refills, errors) are in its
mill.metrics().

Examples:
  keymill metrics segment:orders
  keymill --mill file:keymill.toml metrics > /var/lib/node_exporter/keymill.prom")]
    Metrics {
        /// Sources: kind:name?option=value&…
        #[arg(value_name = "SOURCE")]
        sources: Vec<String>,
    },

    /// Measure a source against one shared atomic counter
    #[command(after_help = "\
Each way of taking ids is measured in turns with a bare `lock xadd` on one shared word, on the same threads and in the
same run. Compare the ratios between machines, not the seconds.

Note: on a mill with a real store this reserves many millions of numbers of that source. The numbers left at the end go
back, the measured ones do not. Use memory: or a source that nothing else uses.

Examples:
  keymill --mill memory: bench segment:bench
  keymill --mill sqlite:/tmp/bench.db bench segment:bench --threads 4 --seconds 10
  keymill --mill memory: bench 'serial:t/c?number=000000000000000000' --json")]
    Bench {
        /// The source: kind:name?option=value&…
        source: String,
        /// How many threads take ids [default: one for each processor]
        #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        /// How long to measure in all
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=3600))]
        seconds: u16,
    },

    /// Raise a source's row, after a restored backup or a lost failover
    #[command(long_about = "\
Raise a source's row, after a restored backup or a lost failover.

If the row is below numbers that were already handed out, keymill refuses to go on (STORE_WENT_BACKWARDS), because it
would hand them out again. Stop every program that uses the source first: a running program may issue numbers that it
reserved before, or give them back. Then find the highest id that any of them has issued, add 1, and give that as --to:
it becomes the next number reserved. A row is only raised; --set-back alone may lower one.
Without --yes nothing is written: the row is shown before and after.
A second run says that the row is there already.")]
    #[command(after_help = "\
Examples:
  keymill repair segment:orders --to 50001
  keymill repair segment:orders --to 50001 --yes
  keymill repair 'serial:cust_info/custid?number=000000&zone=Asia/Shanghai' --to 731 --yes
                                                 today's serials go on at 731, in the zone of the programs
  keymill repair 'snowflake:tx?max_lead=3s&lease=30s' --to now --yes
                                                 no leased worker begins before any id that was made by now
  keymill repair business:order --counters 4096 --yes")]
    Repair {
        /// The source: kind:name?option=value&…
        source: String,
        /// The next number to reserve, for business ids of every counter; for a snowflake `now`, a time, or the highest id
        #[arg(
            long,
            value_name = "N|TIME",
            required_unless_present = "counters",
            conflicts_with = "counters"
        )]
        to: Option<String>,
        /// For business ids: give the source this many counters, each above every number of the old counters
        #[arg(long, value_name = "C")]
        counters: Option<u32>,
        /// For a serial whose row is in a period that has not begun in any time zone: set the row back to the present period
        #[arg(long, requires = "to")]
        set_back: bool,
        /// Write it
        #[arg(long)]
        yes: bool,
    },

    /// Show which ranges of genes take most business ids
    #[command(long_about = "\
Show which ranges of genes take most business ids.

Only the rows of the counters are read, so programs that take ids are not disturbed. Numbers count when they are
reserved, a moment before they become ids. With --seconds the rows are read twice, and the rates are for the time between.")]
    #[command(after_help = "\
Examples:
  keymill heat business:order
  keymill heat business:order --ranges 64 --seconds 10 --json")]
    Heat {
        /// The source: business:NAME
        source: String,
        /// How many ranges of equal size to show; no more than there are counters
        #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
        ranges: u32,
        /// Measure rates for this time
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=3600))]
        seconds: Option<u16>,
    },

    /// Take over the row of another program's table
    #[command(long_about = "\
Take over the row of another program's table: Leaf, tinyid, CosId, KeyFactory, IDSnowman, or a table generator of JPA.

The source, of scheme keymill, goes on where the old row stands. In one transaction the old row is locked and moved 2^62
(4611686018427387904) numbers away, then the new row begins where it stood. So an old node that still runs never
hands out a number of the source: it goes on far away. A second run says that it is done and changes nothing. No other
source can take the same row. Without --yes nothing is written: both rows are shown before and after.

An old KeyFactory begins at 1 with every new date, whatever its row says: stop old nodes before the date changes.")]
    #[command(after_help = "\
Examples:
  keymill import segment:orders --from leaf_alloc
  keymill import segment:orders --from leaf_alloc --yes
  keymill import segment:orders --from cosid --row shop.orders --yes
  keymill import segment:orders --from leaf_alloc --columns max_id:current,biz_tag:name
  keymill import 'serial:cust_info/custid?number=000000&scheme=keymill&zone=Asia/Shanghai' --from key_producer --yes")]
    Import {
        /// The source that takes over: kind:name?option=value&…
        source: String,
        /// The scheme of the old row
        #[arg(long, value_name = "SCHEME", value_parser = clap::builder::PossibleValuesParser::new(keymill::Source::IMPORTS.iter().map(|scheme| scheme.name())))]
        from: String,
        /// The old row's table [default: the scheme's]
        #[arg(long, value_name = "NAME")]
        table: Option<String>,
        /// The old row's name [default: the source's]; TABLE/COLUMN for key_producer
        #[arg(long, value_name = "NAME")]
        row: Option<String>,
        /// Names of the old table's columns, if they are not the scheme's: max_id:current,biz_tag:name
        #[arg(long, value_name = "OF:OWN,…")]
        columns: Option<String>,
        /// Only show what would happen, as without --yes
        #[arg(long, conflicts_with = "yes")]
        dry_run: bool,
        /// Write it
        #[arg(long)]
        yes: bool,
    },

    /// Run a scenario from standard input, for tests
    #[command(long_about = "\
Run a scenario from standard input: one JSON object a line, each answered by one line. For tests.

The mill is that of --mill or of a step \"open\"; $KEYMILL_CONFIG is not read, so a scenario meets no store by accident.
An answer is {\"is\": VALUE}, {} or {\"error\": CODE, \"says\": MESSAGE, \"retry_after_ms\": MS}; an error does not end
the scenario, a line that is no step does. All scalars are strings. The steps are those of tests/vectors:
  {\"do\":\"open\",\"config\":C}                 {\"do\":\"close\"}
  {\"do\":\"source\",\"as\":A,\"spec\":S}          {\"do\":\"parse\",\"of\":A,\"id\":ID}
  {\"do\":\"next\",\"of\":A}                     {\"do\":\"try_next\",\"of\":A}
  {\"do\":\"next_for\",\"of\":A,\"key\":K}       also try_next_for, next_wide_for, and take_for with count;
                                            \"key_text\":T in place of key for a text
  {\"do\":\"take\",\"of\":A,\"count\":N}           {\"do\":\"spec\",\"kind\":K,\"name\":[PART…],\"options\":[[OPTION,VALUE]…]}
  {\"do\":\"clock_set\",\"ms\":MS}               {\"do\":\"clock_advance\",\"ms\":MS}    with a mill on clock=manual
  {\"do\":\"gene\",KEY}                        KEY: \"key\":N, or \"key_text\":TEXT with \"times\":N where it is repeated
  {\"do\":\"router\",\"as\":R,\"table\":TEXT}       {\"do\":\"load\",\"of\":R,\"table\":TEXT}
  {\"do\":\"route\",\"of\":R,\"id\":ID}            {\"do\":\"route_wide\",\"of\":R,\"id\":ID}       {\"do\":\"route_key\",\"of\":R,KEY}
  {\"do\":\"route_order_no\",\"of\":R,NO}       NO: \"no\":HEX, \"number\":N or \"text\":TEXT
  {\"do\":\"numbers\",\"as\":N,\"keys\":[[VERSION,HEX]…],\"seal_with\":V,\"tenant\":T,\"table\":T}    \"version\":V chooses one
  {\"do\":\"seal\",\"of\":N,\"id\":ID}             {\"do\":\"unseal\",\"of\":N,\"no\":HEX}
                                            alike seal_wide, seal8, seal_text, seal_wide_text, seal8_text; seal_all and
                                            seal8_all with \"ids\", and back with \"nos\"; numbers_version
  {\"do\":\"document\",\"kind\":KIND,\"text\":[[PIECE,TIMES]…]}    KIND: routes, load with \"table\":TEXT, keys or config")]
    #[command(after_help = "\
Examples:
  printf '%s\\n' '{\"do\":\"source\",\"as\":\"a\",\"spec\":\"segment:orders\"}' '{\"do\":\"next\",\"of\":\"a\"}' |
    keymill --mill 'memory:?script=lost' steps")]
    Steps,

    /// Print a completion script for a shell
    #[command(after_help = "\
Examples:
  keymill completions bash > ~/.local/share/bash-completion/completions/keymill
  keymill completions zsh > ~/.zfunc/_keymill
  keymill completions fish > ~/.config/fish/completions/keymill.fish")]
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: Shell,
    },
}

/// What `route` does beside answering.
#[derive(Debug, Subcommand)]
pub enum RouteVerb {
    /// Store a route table under a name
    Put {
        /// The router's name
        name: String,
        /// A file with the table: TOML or JSON
        file: std::path::PathBuf,
        /// Write it
        #[arg(long)]
        yes: bool,
    },
    /// Print the route table that the store has
    Get {
        /// The router's name
        name: String,
    },
}
