//! What operators do: the page for database administrators, regions of scattered ids, rows that a program moves, and rows of other programs imported while old nodes are at work.
//! The command's own tests are in `bindings/cli/tests`.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL` and `KEYMILL_TEST_POSTGRES` (`ci/servers/mariadb run ci/servers/postgres run cargo test …`).

mod import;
mod import_open;
mod logins;
mod page;
mod pools;
mod refusals;
mod regions;
mod rows;
