//! The `keymill` command, run as a program.

mod advice;
mod common;
mod earlier_build;
mod logins;
mod manual;
mod moves;
mod operator;
mod order_numbers;
mod order_table;
mod planted;
mod planted_mysql;
mod postgres;
mod refusals;
mod restore;
mod rows;
mod tables;
mod text_forms;
mod twice;
mod vectors;
mod verbs;
