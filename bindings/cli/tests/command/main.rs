//! The `keymill` command, run as a program.

mod common;
mod operator;
mod postgres;
mod refusals;
mod vectors;
mod verbs;
