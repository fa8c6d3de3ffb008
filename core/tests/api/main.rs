//! The public API. `fork` is a program of its own, because it changes the process's folder.

mod close;
mod cold;
mod config;
mod memory_model;
mod moves;
mod order;
mod order_numbers;
mod panics;
mod pending;
mod refusals;
mod router;
mod strides;
mod text;
mod waste;
