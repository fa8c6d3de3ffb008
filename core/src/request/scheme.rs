//! How a store keeps a source: the schemes, each described once, as data.
//!
//! A new scheme is one entry of the list below and its `CREATE` statements. Statements, checks of a table's shape, `init`,
//! `import`, options and messages derive from the description.
//!
//! Other programs may use the same row at the same time, so the description says what their numbers mean:
//! * IDSnowman (`sequence_table`): `SET cur_id = LAST_INSERT_ID(cur_id + step)`, and the batch that ends at 800 begins at 601
//!   where `step` is 200: `cur_id` is the *last* number handed out.
//! * Leaf (`leaf_alloc`): `SET max_id = max_id + step`, and a node counts from `max_id - step` up to *below* `max_id`: it is the
//!   *next* number.
//! * tinyid (`tiny_id_info`): a segment is `(max_id - step, max_id]`, and a writer compares `version` and `max_id`: *last*. A
//!   node issues only the numbers with `id % delta == remainder`. `max_id` need not be one of them: wherever it stands
//!   between two of them, the next one is the same.
//! * CosId (`cosid`): a segment is `(last_max_id - step, last_max_id]`: *last*.
//! * JPA's sequences (`jpa_sequence`) count in steps of *a*. With Hibernate's optimizer `pooled`, the default, a value *v* owns the numbers
//!   `[v - a + 1, v]`, and the first value of the sequence itself alone; with `pooled-lo` it owns `[v, v + a - 1]`.
//! * JPA's table generators (`jpa_table`) move a row from *m* to *m + a*, and *a* is in no column. EclipseLink, and Hibernate with
//!   `pooled-lo`, issue *m + 1* to *m + a*; Hibernate with `pooled`, its default, *m + 2 - a* to *m + 1*; with `none` only
//!   *m + 1*. With `stored_last_used=false`, and before Hibernate 5.3, each of these is one lower; before HHH-9287 `pooled`
//!   issues *m - a* to *m - 1*. So every number up to *m* may be issued, and a program that moves the row on from *m + n* may
//!   issue from *m + n - a* on: keymill moves a row from *m* to *m + n* and takes *m + 1* to *m + n - a - 1*. With `hilo` a row
//!   counts blocks, so keymill must not share it; no column tells.

#![cfg_attr(not(feature = "_sql"), allow(dead_code))] // without a database no statement is written

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result, shown};

/// What the maximum of a row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The last number handed out.
    Last,
    /// The next number to hand out.
    Next,
}

/// The columns of a table with one row for each name and in it how far numbers have been handed out.
#[derive(Debug)]
pub struct CounterColumns {
    /// The column that identifies a row.
    pub name: &'static str,
    /// How many characters that column holds.
    pub name_width: usize,
    /// The column of the maximum.
    pub maximum: &'static str,
    /// Which number that is.
    pub holds: Holds,
    /// Every reservation is a whole multiple of this column.
    pub step: Option<&'static str>,
    /// How many seconds a range may be issued for; 0 means without end.
    pub ttl: Option<&'static str>,
    /// Counts the changes; every writer compares it.
    pub version: Option<&'static str>,
    /// Delta and remainder: a node issues only the numbers with `number % delta == remainder`.
    pub stride: Option<(&'static str, &'static str)>,
    /// Each program has an allocation of its own, which no column says, and may own numbers on both sides of the maximum.
    pub allocates: bool,
}

impl CounterColumns {
    /// No optional column.
    const PLAIN: CounterColumns = CounterColumns {
        name: "name",
        name_width: 0,
        maximum: "",
        holds: Holds::Last,
        step: None,
        ttl: None,
        version: None,
        stride: None,
        allocates: false,
    };
}

/// How a scheme keeps a source.
#[derive(Debug)]
pub(crate) enum Kept {
    /// A row of a period and the next number: `keymill_segment`.
    Segment,
    /// A row whose text is the highest serial: `key_producer`.
    Serial,
    /// A row of another program's counter.
    Counter(CounterColumns),
    /// A row for each range; an AUTO_INCREMENT column numbers the ranges. `stub_is_unique`: one row a name, replaced for each range.
    Ticket { stub_is_unique: bool },
    /// A SQL sequence, whose values are 1, 1 + step, …
    Sequence,
    /// A row for each worker of a pool: `keymill_worker`.
    Worker,
    /// A row for each process that ever began, whose number is a worker: `WORKER_NODE`.
    Node,
    /// A row for each route table: `keymill_route`.
    Route,
}

/// A column that the builds before 0.2.0 called otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renamed {
    pub(crate) now: &'static str,
    pub(crate) before: &'static str,
}

/// A column that holds when a row was changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub(crate) column: &'static str,
    /// Seconds since 1970; else the database's own type.
    pub(crate) in_seconds: bool,
    /// The families of databases whose statements have to set it. The others have a default that does.
    pub(crate) set_on: &'static [Family],
}

/// Databases that share a table's `CREATE` statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// MySQL, MariaDB and TiDB.
    MySql,
    Postgres,
    Sqlite,
}

/// A scheme, described.
#[derive(Debug)]
pub(crate) struct Description {
    /// The name as it is written in a spec string.
    name: &'static str,
    /// The table's name unless `table=` names another.
    table: &'static str,
    kept: Kept,
    touched: Option<Touched>,
    /// The statement that creates the table, for each family of databases that keeps the scheme.
    create: &'static [(Family, &'static str)],
}

macro_rules! family {
    (mysql) => {
        Family::MySql
    };
    (postgres) => {
        Family::Postgres
    };
    (sqlite) => {
        Family::Sqlite
    };
}

/// The files of the `CREATE` statements. Each is SQL that an administrator can run as it is: the default table, its authors' column names
/// and a step of 1000 stand in for a source's own.
macro_rules! create {
    ($scheme:literal: $($family:ident)+) => {
        &[$((family!($family), include_str!(concat!("../store/sql/ddl/", $scheme, ".", stringify!($family), ".sql")))),+]
    };
}

macro_rules! schemes {
    ($($(#[doc = $doc:literal])+ $scheme:ident = $description:expr;)+) => {
        /// How a store keeps a source: in which table, and with which statements. A spec's `scheme=` names it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Scheme {
            $($(#[doc = $doc])+ $scheme,)+
            /// `keymill_worker`, keymill's own table of leased workers. No spec names it: `worker=lease` does.
            Worker,
            /// `WORKER_NODE`, the table of uid-generator. No spec names it: `worker=disposable` does.
            WorkerNode,
            /// `keymill_route`, keymill's own table of route tables. No spec names it.
            Route,
        }

        impl Scheme {
            /// Every scheme that a spec may name, in the order in which documents list them.
            pub const ALL: [Scheme; [$(Scheme::$scheme),+].len()] = [$(Scheme::$scheme),+];

            const fn description(self) -> &'static Description {
                match self {
                    $(Scheme::$scheme => const { &$description },)+
                    Scheme::Worker => &WORKER,
                    Scheme::WorkerNode => &WORKER_NODE,
                    Scheme::Route => &ROUTE,
                }
            }
        }
    };
}

/// Where a table has `update_time`, and every statement sets it.
const UPDATE_TIME: Option<Touched> = Some(Touched {
    column: "update_time",
    in_seconds: false,
    set_on: &[Family::MySql, Family::Postgres, Family::Sqlite],
});

/// Leased workers. Not among the schemes of a spec.
static WORKER: Description = Description {
    name: "worker",
    table: "keymill_worker",
    kept: Kept::Worker,
    touched: None,
    create: create!("worker": mysql postgres sqlite),
};

/// Workers that are used once. Not among the schemes of a spec.
static WORKER_NODE: Description = Description {
    name: "worker_node",
    table: "WORKER_NODE",
    kept: Kept::Node,
    touched: None,
    create: create!("worker_node": mysql),
};

/// Route tables. Not among the schemes of a spec.
static ROUTE: Description = Description {
    name: "route",
    table: "keymill_route",
    kept: Kept::Route,
    touched: None,
    create: create!("route": mysql postgres sqlite),
};

schemes! {
    /// `keymill_segment`, keymill's own table.
    Keymill = Description {
        name: "keymill",
        table: "keymill_segment",
        kept: Kept::Segment,
        touched: Some(Touched {
            column: "updated_at",
            in_seconds: false,
            set_on: &[Family::Postgres, Family::Sqlite],
        }),
        create: create!("keymill": mysql postgres sqlite),
    };
    /// `key_producer`, the table of KeyFactory; old nodes may write the same row.
    KeyProducer = Description {
        name: "key_producer",
        table: "key_producer",
        kept: Kept::Serial,
        touched: Some(Touched { column: "update_time", in_seconds: false, set_on: &[Family::Sqlite] }),
        create: create!("key_producer": mysql postgres sqlite),
    };
    /// `sequence_table`, the table of IDSnowman; the row's `step` and `time_to_live` apply.
    SequenceTable = Description {
        name: "sequence_table",
        table: "sequence_table",
        kept: Kept::Counter(CounterColumns {
            name: "biz_type",
            name_width: 50,
            maximum: "cur_id",
            step: Some("step"),
            ttl: Some("time_to_live"),
            ..CounterColumns::PLAIN
        }),
        touched: None,
        create: create!("sequence_table": mysql postgres sqlite),
    };
    /// `leaf_alloc`, the table of Leaf; the row's `step` applies.
    LeafAlloc = Description {
        name: "leaf_alloc",
        table: "leaf_alloc",
        kept: Kept::Counter(CounterColumns {
            name: "biz_tag",
            name_width: 128,
            maximum: "max_id",
            holds: Holds::Next,
            step: Some("step"),
            ..CounterColumns::PLAIN
        }),
        touched: UPDATE_TIME,
        create: create!("leaf_alloc": mysql postgres sqlite),
    };
    /// `tiny_id_info`, the table of tinyid; the row's `step` applies.
    TinyIdInfo = Description {
        name: "tiny_id_info",
        table: "tiny_id_info",
        kept: Kept::Counter(CounterColumns {
            name: "biz_type",
            name_width: 63,
            maximum: "max_id",
            step: Some("step"),
            version: Some("version"),
            stride: Some(("delta", "remainder")),
            ..CounterColumns::PLAIN
        }),
        touched: UPDATE_TIME,
        create: create!("tiny_id_info": mysql postgres sqlite),
    };
    /// `cosid`, the table of CosId.
    Cosid = Description {
        name: "cosid",
        table: "cosid",
        kept: Kept::Counter(CounterColumns {
            name: "name",
            name_width: 100,
            maximum: "last_max_id",
            ..CounterColumns::PLAIN
        }),
        touched: Some(Touched {
            column: "last_fetch_time",
            in_seconds: true,
            set_on: &[Family::MySql, Family::Postgres, Family::Sqlite],
        }),
        create: create!("cosid": mysql postgres sqlite),
    };
    /// `hibernate_sequences`, the table of Hibernate's `TableGenerator`, and with other names the table of any JPA `@TableGenerator`.
    JpaTable = Description {
        name: "jpa_table",
        table: "hibernate_sequences",
        kept: Kept::Counter(CounterColumns {
            name: "sequence_name",
            name_width: 255,
            maximum: "next_val",
            allocates: true,
            ..CounterColumns::PLAIN
        }),
        touched: None,
        create: create!("jpa_table": mysql postgres sqlite),
    };
    /// A row for each range, numbered by an AUTO_INCREMENT column; old rows are purged.
    AutoIncrement = Description {
        name: "auto_increment",
        table: "keymill_auto_increment",
        kept: Kept::Ticket { stub_is_unique: false },
        touched: None,
        create: create!("auto_increment": mysql),
    };
    /// One row for each name, replaced for each range and so numbered anew by an AUTO_INCREMENT column.
    Ticket = Description {
        name: "ticket",
        table: "keymill_ticket",
        kept: Kept::Ticket { stub_is_unique: true },
        touched: None,
        create: create!("ticket": mysql),
    };
    /// A SQL sequence that counts in steps.
    Sequence = Description {
        name: "sequence",
        table: "keymill_sequence",
        kept: Kept::Sequence,
        touched: None,
        create: create!("sequence": mysql postgres),
    };
    /// The sequence of a JPA `@SequenceGenerator`; other programs draw from it too.
    JpaSequence = Description {
        name: "jpa_sequence",
        table: "orders_seq",
        kept: Kept::Sequence,
        touched: None,
        create: create!("jpa_sequence": mysql postgres),
    };
}

impl Scheme {
    /// How the scheme keeps a source.
    pub(crate) const fn kept(self) -> &'static Kept {
        &self.description().kept
    }

    /// The columns of another program's counter, if the scheme is one.
    pub(crate) const fn counter(self) -> Option<&'static CounterColumns> {
        match self.kept() {
            Kept::Counter(columns) => Some(columns),
            _ => None,
        }
    }

    /// The columns that identify a row. No two rows may have the same values in them.
    pub(crate) fn identity(self) -> Vec<&'static str> {
        match self.kept() {
            Kept::Segment | Kept::Route => vec!["name"],
            Kept::Serial => vec!["TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"],
            Kept::Counter(columns) => vec![columns.name],
            Kept::Ticket { stub_is_unique: true } => vec!["stub"],
            Kept::Ticket { stub_is_unique: false } => vec!["id"],
            Kept::Sequence => Vec::new(),
            Kept::Worker => vec!["pool", "slot"],
            Kept::Node => vec!["ID"],
        }
    }

    /// The columns that say where a row stands, and what else a reservation depends on.
    pub(crate) fn content(self) -> Vec<&'static str> {
        match self.kept() {
            Kept::Segment => vec!["date", "next", "state", "stores", "store", "chunk", "writer"],
            Kept::Serial => vec!["MAXSERIALNO"],
            Kept::Counter(columns) => {
                let (delta, remainder) = columns.stride.unzip();
                let optional = [columns.step, columns.ttl, columns.version, delta, remainder];
                std::iter::once(columns.maximum).chain(optional.into_iter().flatten()).collect()
            }
            Kept::Ticket { .. } => vec!["id", "stub", "step"],
            Kept::Sequence => Vec::new(),
            Kept::Worker => {
                vec!["token", "mark", "ends_at", "state", "source", "process", "layout", "stores", "store"]
            }
            Kept::Node => vec!["HOST_NAME", "PORT", "TYPE", "LAUNCH_DATE", "MODIFIED", "CREATED"],
            Kept::Route => vec!["version", "table_text"],
        }
    }

    /// A column of keymill's own table, and what the builds before 0.2.0 called it. They need their name in every statement, so they
    /// refuse today's table, as this build refuses theirs.
    pub(crate) const fn renamed(self) -> Option<Renamed> {
        match self.kept() {
            Kept::Segment => Some(Renamed { now: "date", before: "period" }),
            Kept::Worker => Some(Renamed { now: "process", before: "owner" }),
            _ => None,
        }
    }

    /// Whether the rows belong to another program, which has them with or without keymill.
    pub(crate) const fn is_of_another_program(self) -> bool {
        matches!(self.kept(), Kept::Serial | Kept::Counter(_))
    }

    /// How many schemes are another program's.
    const IMPORTED: usize = {
        let (mut at, mut count) = (0, 0);
        while at < Scheme::ALL.len() {
            count += Scheme::ALL[at].is_of_another_program() as usize;
            at += 1;
        }
        count
    };

    /// The schemes whose rows can be imported.
    pub(crate) const IMPORTS: [Scheme; Scheme::IMPORTED] = {
        let mut schemes = [Scheme::Keymill; Scheme::IMPORTED];
        let (mut at, mut count) = (0, 0);
        while count < schemes.len() {
            if Scheme::ALL[at].is_of_another_program() {
                schemes[count] = Scheme::ALL[at];
                count += 1;
            }
            at += 1;
        }
        schemes
    };

    /// The columns that `columns=` may rename; none where the table is keymill's own.
    pub(crate) fn renamable(self) -> Vec<&'static str> {
        if !self.is_of_another_program() {
            return Vec::new();
        }
        let touched = self.touched().map(|touched| touched.column);
        self.identity().into_iter().chain(self.content()).chain(touched).collect()
    }

    /// The column that holds when a row was changed.
    pub(crate) const fn touched(self) -> Option<Touched> {
        self.description().touched
    }

    /// The statement that creates the table; `None` where the family does not keep the scheme.
    pub(crate) fn create(self, family: Family) -> Option<&'static str> {
        self.description()
            .create
            .iter()
            .find(|(created_in, _)| *created_in == family)
            .map(|(_, statement)| *statement)
    }

    /// Whether the scheme keeps plain numbers: segments.
    #[must_use]
    pub const fn keeps_segments(self) -> bool {
        !matches!(self.kept(), Kept::Serial | Kept::Worker | Kept::Node | Kept::Route)
    }

    /// Whether the server itself counts, by AUTO_INCREMENT or a sequence. Each of its counts is worth `step` numbers.
    #[must_use]
    pub const fn is_ticket(self) -> bool {
        matches!(self.kept(), Kept::Ticket { .. } | Kept::Sequence)
    }

    /// Whether the scheme is a SQL sequence.
    #[must_use]
    pub const fn is_sequence(self) -> bool {
        matches!(self.kept(), Kept::Sequence)
    }

    /// Whether the scheme is a SQL sequence from which other programs draw too.
    #[must_use]
    pub const fn is_shared_sequence(self) -> bool {
        matches!(self, Scheme::JpaSequence)
    }

    /// Whether a row may own only every delta-th number.
    #[must_use]
    pub const fn keeps_stride(self) -> bool {
        matches!(self.counter(), Some(CounterColumns { stride: Some(_), .. }))
    }

    /// Whether the spec has to say how many numbers the other programs on a row take at a time.
    #[must_use]
    pub const fn keeps_allocation(self) -> bool {
        self.is_shared_sequence() || matches!(self.counter(), Some(CounterColumns { allocates: true, .. }))
    }

    /// Whether a row may say how long its numbers live.
    #[must_use]
    pub const fn keeps_ttl(self) -> bool {
        matches!(self.counter(), Some(CounterColumns { ttl: Some(_), .. }))
    }

    /// Whether the scheme keeps numbers of a date: serials.
    #[must_use]
    pub const fn keeps_serials(self) -> bool {
        matches!(self.kept(), Kept::Segment | Kept::Serial)
    }

    /// The name as it is written in a spec string.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.description().name
    }

    /// The table the scheme uses unless `table=` names another.
    #[must_use]
    pub const fn default_table(self) -> &'static str {
        self.description().table
    }
}

/// The columns of a scheme that is another program's counter: tests derive their cases from them.
#[cfg(feature = "internals")]
#[must_use]
pub const fn counter_columns(scheme: Scheme) -> Option<&'static CounterColumns> {
    scheme.counter()
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// From the name as it is written in a spec string; `INVALID_ARGUMENT` for any other text.
impl FromStr for Scheme {
    type Err = Error;

    fn from_str(name: &str) -> Result<Scheme> {
        Scheme::ALL.into_iter().find(|scheme| scheme.name() == name).ok_or_else(|| {
            let valid: Vec<_> = Scheme::ALL.iter().map(|scheme| scheme.name()).collect();
            Error::argument(format!("unknown scheme `{}`; valid: {}", shown(name), valid.join(", ")))
        })
    }
}
