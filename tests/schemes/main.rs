//! The schemes, one by one: tables of other programs with their nodes beside ours, the database's own counters, and the rows
//! and answers that make no sense.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL`, `KEYMILL_TEST_POSTGRES` and `KEYMILL_TEST_REDIS`
//! (`ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo test …`).

mod bad_tables;
mod beside;
mod columns;
mod days;
mod ends;
mod jpa;
mod million;
mod round_trips;
mod sequences;
mod specs;
mod strides;
mod tickets;
mod tidb;
mod worker_node;
