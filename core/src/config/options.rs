//! Every option of every store and source: its name, its default, its values, and what it does.
//!
//! The parsers take the valid names from these tables, and the documentation shows them.

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// What it is where it is not given, as it could be written; empty where that cannot be written as one value.
    pub default: &'static str,
    /// What may be written.
    pub values: &'static str,
    /// What it does, as a line of Markdown.
    pub about: &'static str,
}

const fn option(
    name: &'static str,
    default: &'static str,
    values: &'static str,
    about: &'static str,
) -> Described {
    Described { name, default, values, about }
}

const DURABILITY: Described = option(
    "durability",
    "refuse",
    "`refuse`, `warn`",
    "What to do about settings of the store that lose commits: answer `STORE_UNSAFE`, or report them and accept the risk of duplicates.",
);

/// Options of a mill, in every URL and at the top of a TOML file.
pub const MILL: &[Described] = &[
    option(
        "fork",
        "revive",
        "`revive`, `error`",
        "What the first call in a forked child does: start anew with numbers and connections of its own, or answer `FORKED`.",
    ),
    option(
        "clock",
        "system",
        "`system`, `manual`, `manual@MILLISECONDS`",
        "For tests: a `manual` clock stands still until the program moves it.",
    ),
    option(
        "max_sources",
        "100000",
        "1 to 100000000",
        "How many sources may be opened. Each keeps about 4 kB until the mill is closed.",
    ),
    option(
        "reader_lease",
        "10s",
        "1s to 1h",
        "A process that follows a route table has a row in the store with the version that it runs. The row lasts for this time, see [Moving a shard](moving-a-shard.md).",
    ),
    option(
        "ignored",
        "",
        "names joined by `,`, then `+N` for more",
        "In a URL only: settings that `store_of` found in [the application's settings](application-database.md) and a store does not need. The event `settings_ignored` and `keymill status` list them.",
    ),
];

/// Options of `memory:`.
pub const MEMORY: &[Described] =
    &[option("script", "", "steps joined by `,`", "What happens to the next requests that write.")];

/// Options of `sqlite:`.
pub const SQLITE: &[Described] = &[
    DURABILITY,
    option("busy", "2s", "1ms to 5s", "How long to wait for other processes that write the file."),
];

/// Options of every server.
pub const SERVER: &[Described] = &[
    DURABILITY,
    option(
        "connect_timeout",
        "2s",
        "1ms to 1h",
        "How long a connect may take, including the look-up of the host's name.",
    ),
    option(
        "timeout",
        "2s",
        "1ms to 1h",
        "How long the server's answer may take. Half of it is the longest wait for a lock.",
    ),
    option("idle_timeout", "50s", "1ms to 1h", "A connection that has been idle for this long is closed."),
    option(
        "tls",
        "",
        "`off`, `prefer`, `require`, `verify-ca`, `verify`",
        "See [Encryption](#encryption). Default: `prefer` to another machine, and to this machine if the login sends the password.",
    ),
    option(
        "ca",
        "",
        "a PEM file",
        "With `tls=verify` or `verify-ca`: the only authorities that are trusted.",
    ),
    option(
        "cert",
        "",
        "a PEM file",
        "The certificate of this program, with `key` and `tls=require`, `verify-ca` or `verify`.",
    ),
    option("key", "", "a PEM file", "The key of `cert`."),
    option("socket", "", "a path", "A Unix socket file, in place of the hosts."),
    option("password_file", "", "a path", "A file with the password, read again at each connect."),
];

/// Options of `postgres:` beyond [`SERVER`].
pub const POSTGRES: &[Described] = &[
    option(
        "target_session_attrs",
        "read-write",
        "`read-write`",
        "Accepted because other clients write it. It is always in force.",
    ),
    option("schema", "", "a schema's name", "The schema of keymill's tables. Write it in production."),
];

/// Options of `redis:` beyond [`SERVER`].
pub const REDIS: &[Described] = &[
    option(
        "sentinel",
        "",
        "a master's name",
        "The hosts are Sentinels, and they know the master by this name.",
    ),
    option(
        "wait_replicas",
        "0",
        "0 to 100",
        "A reservation counts only when so many replicas have acknowledged it.",
    ),
];

/// Options of every source.
pub const SOURCE: &[Described] = &[
    option(
        "scheme",
        "",
        "a scheme's name",
        "The program whose table it is. Default: `keymill`; for serials on SQL stores `key_producer`.",
    ),
    option("table", "", "an identifier", "Another table of the scheme's shape. Default: the scheme's own."),
    option("deadline", "3s", "1ms to 1h", "The longest time that a call waits."),
    option(
        "order",
        "process",
        "`process`, `thread`",
        "Ids rise over all threads of the process, or within each thread, which scales with cores. No effect on snowflakes, business ids and with `delta`.",
    ),
    option(
        "block",
        "1024",
        "1 to 1048576",
        "The most numbers that a thread or handle takes for itself at a time: blocks begin at 16 and grow with use. For serials: a step, if that is less.",
    ),
];

/// Options of segments and serials: how much is reserved.
pub const SUPPLY: &[Described] = &[
    option(
        "min_step",
        "800",
        "1 to 2^40",
        "The smallest reservation. For serials: 500, or a hundredth of the pattern's numbers, if that is less.",
    ),
    option(
        "max_step",
        "10000000",
        "1 to 2^40",
        "The largest reservation. For serials: at most a hundredth of the pattern's numbers.",
    ),
    option(
        "buffer",
        "30s",
        "1ms to 1d",
        "How long the numbers in memory last at the present rate. For serials: no more is reserved ahead than was used in this time, and two steps.",
    ),
    option(
        "step",
        "",
        "1 to 2^40",
        "Reserve whole multiples of this, in place of `min_step`. For tickets and sequences: how many numbers one value stands for, 1000.",
    ),
    option("ttl", "none", "`none`, 10ms to 366d", "Numbers that were reserved longer ago are dropped."),
    option(
        "backwards",
        "refuse",
        "`refuse`, `heal`",
        "What to do about a row below what this process has seen: answer `STORE_WENT_BACKWARDS`, or raise it to this process's own mark.",
    ),
];

const COLUMNS: Described = option(
    "columns",
    "",
    "`column:own_name`, joined by `,`",
    "Names of the columns of another program's table, if they are not the scheme's.",
);

/// Options of every source whose ids are numbers: how they are written as text.
pub const TEXT: &[Described] = &[
    option(
        "text",
        "decimal",
        "`decimal`, `crockford`, `base62`, `base36`",
        "The digits of `next_text`, see [Text forms](text-forms.md).",
    ),
    option(
        "prefix",
        "",
        "at most 16 small letters, digits and `_`",
        "Text in front of the digits of `next_text`: `prefix=ord_`.",
    ),
];

/// Options of segments beyond [`SUPPLY`].
pub const SEGMENT: &[Described] = &[
    option("start", "1", "1 to 2^63 - 1", "The first number of a new row."),
    option(
        "unsafe",
        "off",
        "`off`, `on`",
        "With `scheme=sequence` and `jpa_sequence`: accept MariaDB, whose sequences hand out values again after a crash.",
    ),
    COLUMNS,
    option(
        "delta",
        "1",
        "a whole number",
        "With `scheme=tiny_id_info`: this source's ids are `remainder` modulo `delta`.",
    ),
    option("remainder", "0", "0 to `delta` - 1", "See `delta`."),
    option(
        "allocation",
        "",
        "0 to 2^31 - 1",
        "For schemes that ask for it: the most that another program takes from the row at a time; 0 if no other program uses it. For `jpa_sequence`: the `INCREMENT BY` of the sequence.",
    ),
    option(
        "optimizer",
        "",
        "`pooled`, `pooled-lo`, `none`",
        "With `scheme=jpa_sequence`: how Hibernate turns a value into ids. Default: `pooled`, as in Hibernate; `none` with `allocation=1`.",
    ),
];

/// Options of serials beyond [`SUPPLY`].
pub const SERIAL: &[Described] = &[
    option("date", "yyyyMMdd", "Java's letters `y M d H m s S`, text in quotes", "The date part."),
    option("number", "00000000", "1 to 18 zeros", "The width of the number."),
    option("zone", "local", "`local`, `UTC`, `Asia/Shanghai`, `+08:00`", "The time zone of the dates."),
    option(
        "overflow",
        "error",
        "`error`, `widen`",
        "After the last number of the pattern: answer `NUMBER_OVERFLOW`, or go on with one digit more.",
    ),
    option(
        "init",
        "none",
        "`none`, `max`",
        "With `scheme=key_producer`: a missing row starts at 1, or at the largest serial of the business table.",
    ),
    option("skew", "5s", "0ms to 1d", "How far this machine's clock may be behind the row's date."),
    COLUMNS,
];

/// Options of business ids, beyond [`SOURCE`].
pub const BUSINESS: &[Described] = &[
    option(
        "counters",
        "",
        "a power of two from 1 to 65536",
        "How many counters the source has; neighbouring genes share a counter. The store records the number. A source without this option has the recorded number, or 1. `keymill repair SOURCE --counters N` changes it.",
    ),
    option("wide", "off", "`off`, `on`", "Ids of 128 bits: `next_wide_for` in place of `next_for`."),
    option("min_step", "16", "1 to 2^40", "The smallest reservation of a counter."),
    option("max_step", "10000000", "1 to 2^40", "The largest reservation of a counter."),
    option(
        "buffer",
        "30s",
        "1ms to 1d",
        "How long the numbers of a counter last at its present rate, once it has a rate.",
    ),
    option("step", "", "1 to 2^40", "Reserve whole multiples of this, in place of `min_step`."),
    option(
        "backwards",
        "refuse",
        "`refuse`, `heal`",
        "What to do about a row below what this process has seen: answer `STORE_WENT_BACKWARDS`, or raise it to this process's own mark.",
    ),
    option("start", "1", "1 to 2^47 - 1; with `wide=on` to 2^63 - 1", "The first number of a counter."),
];

/// Options of snowflakes.
pub const SNOWFLAKE: &[Described] = &[
    option(
        "layout",
        "twitter",
        "`twitter`, `uid`, `sonyflake`, `js53`, or fields such as `time:41@1ms,worker:10,seq:12`",
        "How the bits are divided.",
    ),
    option("epoch", "2025-01-01", "a date, or a time with `Z`", "The moment at which time begins to count."),
    option(
        "worker",
        "lease",
        "`lease`, 0 to what the layout holds, `DC+N`, `ordinal`, `ordinal:NAME`, `ip`, `ip6`, `ip:ADDRESS`, `disposable`",
        "Where the worker number comes from: a lease of the store, the spec, the end of the host name, the low bits of the address, or a row of uid-generator's table, which excludes every other kind.",
    ),
    option("lease", "30s", "1s to 1h", "How long a leased worker belongs to this process without renewal."),
    option("pool", "", "a name", "Sources with the same pool share its workers. Default: the source's name."),
    option(
        "mark",
        "store",
        "`store`, `none`",
        "For a worker number that the spec gives: keep the highest time in use in the store, or nowhere.",
    ),
    option("slots", "", "`A-B`", "The workers to lease from. Default: all workers of the layout."),
    option(
        "clock_back",
        "borrow",
        "`borrow`, `wait`, `error`",
        "When the clock steps back: go on with the time reached so far, wait for the clock, or answer `CLOCK_BEHIND`.",
    ),
    option("max_lead", "3s", "1ms to 1h", "How far ids may run ahead of the clock."),
    option(
        "scatter",
        "0",
        "`0`, `1`, `2`, `3`, `high:BITS`",
        "For TiDB: moves the last decimal digits behind the first digit, or the lowest bits of the sequence above the time, so that the ids of one moment lie in 10, 100, 1000 or 2^BITS regions. Such ids do not rise.",
    ),
];

/// The names of these options, in their order.
pub(super) fn names(groups: &[&'static [Described]]) -> Vec<&'static str> {
    groups.iter().flat_map(|group| group.iter().map(|option| option.name)).collect()
}
