//! A mill: configuration, keeper thread, sources; and its second life in a forked child. (floor 3)

mod engine;
mod shared;

pub(crate) use engine::{Engine, store_for};
pub(crate) use shared::{SharedMill, SharedSource};
