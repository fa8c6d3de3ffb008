//! keymill hands out identifiers at memory speed: segments of a database, snowflakes, serial numbers and business ids.
//!
//! ```
//! let mill = keymill::Mill::open("memory:")?;
//! let orders = mill.source("segment:orders")?;
//! let id: u64 = orders.next()?;
//! let serials = mill.source("serial:cust_info/custid?number=000000&zone=UTC")?;
//! let text: String = serials.next_text()?;           // 20261120000001
//! # assert_eq!((id, text.len()), (1, 14));
//! # Ok::<(), keymill::Error>(())
//! ```
//!
//! A [`Mill`] is opened from one string and a [`Source`] is named by one string; both are described in `docs/configuration.md`. A
//! source answers [`next`](Source::next), [`try_next`](Source::try_next), [`take`](Source::take), [`fill`](Source::fill) and
//! [`lease`](Source::lease); a [`Handle`] is the fastest loop of one thread. Each error has a [`Code`]. [`Layout`] and
//! [`SerialPattern`] are pure types without I/O.
//!
//! # Features
//!
//! `memory:` is always there, and `sqlite` is a default feature. Servers are the features `mysql` (MariaDB and TiDB too), `postgres`
//! and `redis`, each with TLS. `moves` has the verbs for operators who move ranges between shards ([`Mill::moves`]), and [`Shards`] for programs that write while
//! ranges move; a program that only follows a route table does not need it. `postgres-client` is for `Shards` over the crate `postgres`.

// Floors: each names only itself and what is under it, and no two modules here name each other:
//
//     4  api rows shards binding   the public verbs, which every language translates; rows of moves
//     3  engine keeper config      assembly, and the one thread
//     2  store monitoring          all I/O; events and counters for operators
//     1  planner segment snowflake bank callers router moves   state machines; no I/O, time is passed in
//     0  refill spec request layout serial gene order_number document text_form time error process system   pure functions and types, and what the process and the system give
//
// Users see what is listed at the end of this file. The languages of this repository also use `binding`. With the feature
// `internals`, which has no promise and no documentation, tests, benches and the simulation see the modules below.
#![cfg_attr(not(feature = "internals"), allow(dead_code, unused_imports))] // a build with them finds what is dead

mod api;
mod bank;
#[doc(hidden)]
pub mod binding;
mod callers;
mod config;
mod document;
mod engine;
mod error;
pub mod gene;
#[cfg(not(feature = "internals"))]
mod keeper;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod keeper;
mod layout;
mod monitoring;
#[cfg(feature = "moves")]
mod moves;
mod order_number;
#[cfg(not(feature = "internals"))]
mod planner;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod planner;
mod process;
mod refill;
mod request;
mod router;
#[cfg(all(feature = "moves", any(feature = "mysql", feature = "postgres")))]
mod rows;
mod segment;
pub mod serial;
#[cfg(all(feature = "moves", any(feature = "mysql", feature = "postgres")))]
mod shards;
/// What `tests/simulation` drives: sources and generators without threads, specs without a mill.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod simulation {
    pub use crate::bank::{BankAnswer, BankAsk, BankSource};
    pub use crate::callers::waker::ReadyQueue;
    pub use crate::config::MillConfig;
    pub use crate::error::blank_messages;
    pub use crate::request::bank_spec::counter_key;
    pub use crate::segment::{SegmentSource, TakenRange};
    pub use crate::snowflake::generator::{ClockBack, Generator, Refusal, Why};
    pub use crate::snowflake::snowflake_source::SnowflakeSource;
    pub use crate::spec::{Kind, Order, Rules, SnowflakeSpec, Spec};
}
pub mod snowflake;
mod spec;
#[cfg(not(feature = "internals"))]
mod store;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod store;
mod system;
mod text_form;
#[cfg(not(feature = "internals"))]
mod time;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod time;

pub use api::{
    Change, Handle, Heat, Iter, Kind, ListedRow, Mill, ORDER_KEYS_VARIABLE, OldRow, OrderNo, OrderNumbers,
    Parts, Periods, Repair, ReservedAhead, Route, Router, Source, SourceStatus, Stored, StoredRouter,
    StoredRows, Table, VERSION,
};
#[cfg(feature = "moves")]
pub use api::{FinishedMove, MoveOptions, MoveStatus, Moves, Moving};
pub use config::{DEFAULT_MILL, MILL_VARIABLE, default_mill, spec_string, store_of};
/// The tables of options and parameters that the documentation shows.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use config::{application_parameters, application_words, options};
pub use engine::stats::{Figure, FigureKind, FigureUnit, FigureValue, Stats};
pub use error::{Code, Error, Result};
pub use gene::{Gene, GeneKey};
pub use monitoring::events::{Event, EventKind};
pub use monitoring::mill_counters::Latency;
#[cfg(feature = "moves")]
pub use moves::{MovePhase, MovePlan, PlannedMove};
pub use request::reader::Reader;
/// What the schemes of other programs call their columns.
#[cfg(feature = "internals")]
#[doc(hidden)]
pub use request::scheme::{CounterColumns, Holds, counter_columns};
#[cfg(all(feature = "moves", any(feature = "mysql", feature = "postgres")))]
pub use rows::{
    ComparedRows, Comparison, CopiedRows, DifferingRow, Differs, MovedRows, OnEvent, RemovedRows, RowRepair,
    RowsEvent, RowsTask,
};
pub use serial::SerialPattern;
#[cfg(all(feature = "moves", any(feature = "mysql", feature = "postgres")))]
pub use shards::{ShardConnection, ShardFailure, ShardKind, ShardRow, Shards, WorkError};
pub use snowflake::{Layout, scatter};
pub use store::{BankChange, Facts, Import, Mark, Row, Scheme};

// What the documentation promises of threads.
const _: () = {
    const fn shared_and_sent<T: Send + Sync>() {}
    const fn sent<T: Send>() {}
    shared_and_sent::<(Mill, Source, Router, OrderNumbers, Error, Stats, Event)>();
    sent::<(Handle, Iter)>();
};
