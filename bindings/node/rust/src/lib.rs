//! keymill for Node: translations of the core's verbs, and nothing else.
//!
//! Free functions over opaque values; `ts/` makes the classes that people see. **No function here waits for ids**: a
//! refused verb answers with the pause after which to ask again, and JavaScript waits, by `Atomics.wait`, or for news of the keeper
//! (`news`) and a timer. So a
//! worker can be terminated and a process can end in the middle of a wait. Only a close waits, for its store, and an open
//! for a close of the same mill.

#![cfg_attr(test, allow(dead_code, reason = "the macro of napi exports nothing to a test build"))]

mod batch;
mod business;
mod contexts;
mod direct;
mod errors;
mod holder;
mod mill;
mod news;
mod order_numbers;
mod registry;
mod router;
mod shards;
mod shared;
mod source;
mod words;
