//! Faults of processes, servers, wires, answers and locks, and load, under a running mill.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL`, `KEYMILL_TEST_POSTGRES` and `KEYMILL_TEST_REDIS`
//! (`ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo test …`); servers that are hurt belong to one test each.

mod any_answer;
mod application_database;
mod banks;
mod clocks;
#[cfg(target_os = "linux")]
mod closed_descriptors;
mod every_kind;
mod fork_lookup;
mod held_rows;
mod lease_losses;
mod leases;
mod long_values;
mod many;
mod mariadb_definers;
mod mariadb_options;
mod mill;
mod moves;
mod postgres_options;
mod postgres_owners;
mod process_numbers;
mod rates;
mod server_faults;
mod server_kills;
mod sessions;
mod wrong_servers;
